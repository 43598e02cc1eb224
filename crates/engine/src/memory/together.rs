//! Several charges as one: all pass or none is charged.
//!
//! The blocks are locked in ascending order, then the backs of their tables. Each charge finds the counter that it will
//! be counted on, all of them are judged, and only then is anything changed. No lock is held that is not needed, and
//! there is no global one.

use smallvec::SmallVec;
use tollgate_core::{Ask, Change, Intent, Limit, Outcome, Step, Timestamp};

use super::block::Locked;
use super::budget::Unbounded;
use super::front::place;
use super::hash::Hash;
use super::rebuild::Purpose;
use super::shard::{Place, Shard};
use super::site::Site;
use super::table::Full;
use super::{MemoryStore, SHARED, ask};
use crate::charge::{Charge, Outcomes};
use crate::sync::Guard;

/// The locked blocks with their tables and their numbers, ascending, and then the backs.
struct Held<'s> {
    blocks: SmallVec<[(usize, usize, Locked<'s>); 3]>,
    backs: SmallVec<[(usize, Guard<'s, Shard>); 3]>,
    /// Of each table how many blocks it has.
    sizes: SmallVec<[(usize, usize); 3]>,
}

/// One counter and what all charges on it ask for.
struct Planned<'c> {
    shard: usize,
    hash: Hash,
    place: Place,
    limit: &'c Limit,
    ask: Ask,
    step: Option<Step>,
}

impl MemoryStore {
    /// See [`MemoryStore::apply_all`]. Also returns the time that was used.
    pub(super) fn apply_together(
        &self,
        charges: &[Charge<'_>],
        hashes: &[Hash],
        intent: Intent,
        now: Timestamp,
    ) -> (Outcomes, Timestamp) {
        self.expire_reservations_due(now);
        // Tables in which room was made for what had none, once.
        let mut tried: SmallVec<[usize; 1]> = SmallVec::new();
        loop {
            let mut held = self.hold_all(hashes, now);
            let now = held.advance(now);
            match self.plan(&mut held, charges, hashes, intent, now, &tried) {
                Ok((planned, counter_of)) => {
                    let answer = self.carry_out(&mut held, planned, &counter_of, intent, now);
                    let crowded =
                        held.backs.iter().filter(|(table, back)| *table != SHARED && back.crowd.is_too_large());
                    let crowded: SmallVec<[usize; 1]> = crowded.map(|(table, _)| *table).collect();
                    drop(held);
                    crowded.iter().for_each(|table| _ = self.rebuild(*table, answer.1, Purpose::Grow, &self.budget));
                    return answer;
                }
                Err(table) => {
                    drop(held);
                    self.make_room(table, now, &self.budget);
                    tried.push(table);
                }
            }
        }
    }

    /// Finds the counters that the charges are counted on. Or gives the table that has no room for one of them, with
    /// nothing changed.
    #[expect(clippy::type_complexity, reason = "the counters, and which of them each charge is counted on")]
    fn plan<'s, 'c>(
        &'s self,
        held: &mut Held<'s>,
        charges: &[Charge<'c>],
        hashes: &[Hash],
        intent: Intent,
        now: Timestamp,
        tried: &[usize],
    ) -> Result<(SmallVec<[Planned<'c>; 3]>, SmallVec<[usize; 3]>), usize> {
        let mut planned: SmallVec<[Planned<'c>; 3]> = SmallVec::new();
        let mut counter_of: SmallVec<[usize; 3]> = SmallVec::new();
        for (charge, hash) in charges.iter().zip(hashes) {
            let ask = ask(charge, intent, now);
            let Ok((shard, hash, place)) = self.find_counter(held, charge, *hash, &ask, tried) else {
                // What was kept for those before it is free again.
                for plan in planned {
                    self.commit(held, &plan, &Change::Keep, now);
                }
                return Err(self.shard_of(*hash));
            };
            let known = planned.iter().position(|other| other.shard == shard && other.hash == hash);
            match known.and_then(|index| planned.get_mut(index)) {
                Some(same) => same.ask.cost = same.ask.cost.saturating_add(charge.cost),
                None => planned.push(Planned { shard, hash, place, limit: charge.limit, ask, step: None }),
            }
            counter_of.push(known.unwrap_or(planned.len() - 1));
        }
        Ok((planned, counter_of))
    }

    /// Judges all, and puts what came of it into effect.
    fn carry_out(
        &self,
        held: &mut Held<'_>,
        mut planned: SmallVec<[Planned<'_>; 3]>,
        counter_of: &[usize],
        intent: Intent,
        now: Timestamp,
    ) -> (Outcomes, Timestamp) {
        // The shared counters may have seen a later time. What was planned is put into effect at the time of the plan:
        // nothing of it is stale by that.
        let planned_at = now;
        let now = held.advance(now);
        for plan in &mut planned {
            plan.ask.now = now;
            plan.step = Some(held.step(plan, &plan.ask));
        }
        let denied = intent == Intent::Spend && planned.iter().any(|plan| plan.outcome().denied());
        for plan in &mut planned {
            let Some(step) = plan.step else { continue };
            let is_taken_back = denied && step.outcome.allowed;
            self.commit(held, plan, if is_taken_back { &Change::Keep } else { &step.change }, planned_at);
            if is_taken_back {
                // Not charged after all: what is reported is what is.
                plan.step = Some(held.step(plan, &plan.ask.with_intent(Intent::Peek)));
            }
        }
        if matches!(intent, Intent::Spend | Intent::Force) {
            let shared = |index: &&usize| planned.get(**index).is_some_and(|plan| plan.shard == SHARED);
            counter_of.iter().filter(shared).for_each(|_| self.count_shared());
        }
        let outcomes = counter_of.iter().map(|index| planned.get(*index).map_or(Outcome::UNLIMITED, Planned::outcome));
        (outcomes.collect(), now)
    }

    /// Locks the homes of all of these, as far as there are any, and the backs of their tables.
    fn hold_all(&self, hashes: &[Hash], now: Timestamp) -> Held<'_> {
        hashes.iter().for_each(|hash| _ = self.prefetch(*hash));
        loop {
            let mut tables: SmallVec<[usize; 3]> = hashes.iter().map(|hash| self.shard_of(*hash)).collect();
            tables.sort_unstable();
            tables.dedup();
            let size = |table: &usize| loop {
                // What was had may be given back before it is used.
                let blocks = self.front.blocks(*table);
                if blocks > 0 || !self.rebuild(*table, now, Purpose::Grow, &self.budget) {
                    break (*table, blocks);
                }
            };
            let sizes: SmallVec<[(usize, usize); 3]> = tables.iter().map(size).collect();
            let mut held = Held { blocks: SmallVec::new(), backs: SmallVec::new(), sizes };
            let mut homes: SmallVec<[(usize, usize); 3]> =
                hashes.iter().filter_map(|hash| held.home(self.shard_of(*hash), *hash)).collect();
            homes.sort_unstable();
            homes.dedup();
            for (table, index) in &homes {
                let Some(block) = self.front.lock_numbered(*table, *index, held.size(*table)) else { break };
                held.blocks.push((*table, *index, block));
            }
            held.backs.extend(tables.iter().map(|table| (*table, self.shard(*table).lock())));
            // From here on no table changes its size. One that did so before has other homes.
            let is_as_it_was = held.sizes.iter().all(|(table, blocks)| self.front.blocks(*table) == *blocks);
            if held.blocks.len() == homes.len() && is_as_it_was {
                return held;
            }
        }
    }

    /// The counter that `charge` is counted on: its own, or its limit's shared one when there is no room. `Full` where
    /// room can still be made.
    fn find_counter<'s>(
        &'s self,
        held: &mut Held<'s>,
        charge: &Charge<'_>,
        hash: Hash,
        ask: &Ask,
        tried: &[usize],
    ) -> Result<(usize, Hash, Place), Full> {
        let table = self.shard_of(hash);
        let charges = matches!(ask.intent, Intent::Spend | Intent::Force);
        let is_shared = match held.site(table, hash) {
            Some(mut site) if charges => match site.reserve(hash, charge.limit, ask.now, &self.budget) {
                Ok(place) => return Ok((table, hash, place)),
                Err(Full) if !tried.contains(&table) => return Err(Full),
                Err(Full) => true,
            },
            Some(mut site) => self.is_shared(charge, hash, ask, &mut site),
            None => self.may_be_shared(charge, ask.intent),
        };
        if !is_shared {
            let place = held.site(table, hash).map_or(Place::Absent, |site| site.look_up(hash));
            return Ok((table, hash, place));
        }
        let hash = self.hasher.shared(&charge.key, charge.limit.lineage());
        if held.backs.last().is_none_or(|(last, _)| *last != SHARED) {
            held.backs.push((SHARED, self.shard(SHARED).lock()));
        }
        let place = held.back(SHARED).and_then(|shard| match charges {
            true => shard.reserve(hash, charge.limit, ask.now, &Unbounded).ok(),
            false => Some(shard.look_up(hash)),
        });
        Ok((SHARED, hash, place.unwrap_or(Place::Absent)))
    }

    fn commit(&self, held: &mut Held<'_>, plan: &Planned<'_>, change: &Change, now: Timestamp) {
        let Planned { shard, hash, place, limit, .. } = plan;
        if *shard == SHARED {
            if let Some(shared) = held.back(SHARED) {
                shared.commit(*hash, *place, limit, change, &Unbounded);
            }
        } else if let Some(mut site) = held.site(*shard, *hash) {
            site.commit(*hash, *place, limit, change, now, &self.budget);
        }
    }
}

impl<'s> Held<'s> {
    fn size(&self, table: usize) -> usize {
        self.sizes.iter().find(|(known, _)| *known == table).map_or(0, |(_, blocks)| *blocks)
    }

    /// The table and the number of a key's block, if the table has any.
    fn home(&self, table: usize, hash: Hash) -> Option<(usize, usize)> {
        let blocks = self.size(table);
        (blocks > 0).then(|| (table, place(hash, blocks)))
    }

    fn back(&mut self, table: usize) -> Option<&mut Shard> {
        self.backs.iter_mut().find(|(known, _)| *known == table).map(|(_, back)| &mut **back)
    }

    fn site(&mut self, table: usize, hash: Hash) -> Option<Site<'_, 's>> {
        let home = self.home(table, hash)?;
        let block =
            self.blocks.iter_mut().find(|(table, index, _)| (*table, *index) == home).map(|(.., block)| block)?;
        let back = self.backs.iter_mut().find(|(known, _)| *known == table).map(|(_, back)| &mut **back)?;
        Some(Site { block, back })
    }

    /// Answers a charge and changes nothing.
    fn step(&mut self, plan: &Planned<'_>, ask: &Ask) -> Step {
        let Planned { shard, hash, place, limit, .. } = plan;
        let fresh = || limit.step(tollgate_core::Cell::FRESH, tollgate_core::Extra::NONE, ask);
        if *shard == SHARED {
            return self.back(SHARED).map_or_else(fresh, |shared| shared.step(*hash, *place, limit, ask));
        }
        self.site(*shard, *hash).map_or_else(fresh, |mut site| site.step(*hash, *place, limit, ask))
    }

    /// Brings all to the latest time that one of them has seen, or `now` if that is later. A decision has one time.
    fn advance(&mut self, now: Timestamp) -> Timestamp {
        let now = self.blocks.iter_mut().fold(now, |latest, (.., block)| block.head.advance(latest));
        let now = self.backs.iter_mut().fold(now, |latest, (_, back)| back.advance(latest));
        self.blocks.iter_mut().for_each(|(.., block)| _ = block.head.advance(now));
        self.backs.iter_mut().for_each(|(_, back)| _ = back.advance(now));
        now
    }
}

impl Planned<'_> {
    fn outcome(&self) -> Outcome {
        let outcome = self.step.map_or(Outcome::UNLIMITED, |step| step.outcome);
        Outcome { shared: self.shard == SHARED, ..outcome }
    }
}
