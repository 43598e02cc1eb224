//! Several charges as one: all pass or none is charged.
//!
//! The tables are locked in ascending order, each charge finds the counter that it will be counted on, all of them are
//! judged, and only then is anything changed. No lock is held that is not needed, and there is no global one.

use smallvec::SmallVec;
use tollgate_core::{Ask, Change, Intent, Limit, Outcome, Step, Timestamp};

use super::budget::Unbounded;
use super::hash::Hash;
use super::hints::LINES;
use super::shard::{Place, Shard};
use super::table::Full;
use super::{MemoryStore, SHARED, ask};
use crate::charge::{Charge, Outcomes};
use crate::sync::Guard;

/// The locked shards, ascending.
type Locked<'s> = SmallVec<[(usize, Guard<'s, Shard>); 3]>;

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
        let mut locked = self.lock_all(hashes);
        let now = advance_all(&mut locked, now);

        let mut planned: SmallVec<[Planned<'_>; 3]> = SmallVec::new();
        let mut counter_of: SmallVec<[usize; 3]> = SmallVec::new();
        for (charge, hash) in charges.iter().zip(hashes) {
            let (shard, hash, place) = self.find_counter(&mut locked, charge, *hash, intent, now);
            let known = planned.iter().position(|other| other.shard == shard && other.hash == hash);
            match known.and_then(|index| planned.get_mut(index)) {
                Some(same) => same.ask.cost = same.ask.cost.saturating_add(charge.cost),
                None => {
                    let ask = ask(charge, intent, now);
                    planned.push(Planned { shard, hash, place, limit: charge.limit, ask, step: None });
                }
            }
            counter_of.push(known.unwrap_or(planned.len() - 1));
        }

        // The shared counters may have seen a later time.
        let now = advance_all(&mut locked, now);
        for plan in &mut planned {
            plan.ask.now = now;
            plan.step = locked_shard(&mut locked, plan.shard).map(|shard| plan.step_in(shard));
        }
        let denied = intent == Intent::Spend && planned.iter().any(|plan| plan.outcome().denied());
        for plan in &mut planned {
            let Some(shard) = locked_shard(&mut locked, plan.shard) else { continue };
            let Some(step) = &plan.step else { continue };
            let change = if denied && step.outcome.allowed { &Change::Keep } else { &step.change };
            if plan.shard == SHARED {
                shard.commit(plan.hash, plan.place, plan.limit, change, &Unbounded);
            } else {
                shard.commit(plan.hash, plan.place, plan.limit, change, &self.ground(plan.shard));
            }
            if denied && step.outcome.allowed {
                // Not charged after all: what is reported is what is.
                let ask = plan.ask.with_intent(Intent::Peek);
                plan.step = Some(plan.limit_step(shard, &ask));
            }
        }
        let outcomes = counter_of.iter().map(|index| planned.get(*index).map_or(Outcome::UNLIMITED, Planned::outcome));
        (outcomes.collect(), now)
    }

    fn lock_all(&self, hashes: &[Hash]) -> Locked<'_> {
        hashes.iter().for_each(|hash| _ = self.prefetch(*hash, LINES));
        let mut shards: SmallVec<[usize; 3]> = hashes.iter().map(|hash| self.shard_of(*hash)).collect();
        shards.sort_unstable();
        shards.dedup();
        shards.into_iter().map(|shard| (shard, self.shard(shard).lock())).collect()
    }

    /// The counter that `charge` is counted on: its own, or its limit's shared one when there is no room.
    fn find_counter<'s>(
        &'s self,
        locked: &mut Locked<'s>,
        charge: &Charge<'_>,
        hash: Hash,
        intent: Intent,
        now: Timestamp,
    ) -> (usize, Hash, Place) {
        let index = self.shard_of(hash);
        let Some(shard) = locked_shard(locked, index) else { return (index, hash, Place::Absent) };
        let charges = matches!(intent, Intent::Spend | Intent::Force);
        if !charges && !self.is_shared(charge, hash, intent, now, shard) {
            return (index, hash, shard.look_up(hash));
        }
        match if charges { shard.reserve(hash, charge.limit, now, &self.ground(index)) } else { Err(Full) } {
            Ok(place) => (index, hash, place),
            Err(Full) => {
                if charges {
                    self.count_shared();
                }
                let hash = self.hasher.shared(&charge.key, charge.limit.lineage());
                if locked.last().is_none_or(|(last, _)| *last != SHARED) {
                    locked.push((SHARED, self.shard(SHARED).lock()));
                }
                let place = locked_shard(locked, SHARED).and_then(|shard| match charges {
                    true => shard.reserve(hash, charge.limit, now, &Unbounded).ok(),
                    false => Some(shard.look_up(hash)),
                });
                (SHARED, hash, place.unwrap_or(Place::Absent))
            }
        }
    }
}

impl Planned<'_> {
    fn step_in(&self, shard: &Shard) -> Step {
        self.limit_step(shard, &self.ask)
    }

    fn limit_step(&self, shard: &Shard, ask: &Ask) -> Step {
        shard.step(self.hash, self.place, self.limit, ask)
    }

    fn outcome(&self) -> Outcome {
        let outcome = self.step.map_or(Outcome::UNLIMITED, |step| step.outcome);
        Outcome { shared: self.shard == SHARED, ..outcome }
    }
}

/// Brings all to the latest time that one of them has seen, or `now` if that is later. A decision has one time.
fn advance_all(locked: &mut Locked<'_>, now: Timestamp) -> Timestamp {
    let now = locked.iter_mut().fold(now, |latest, (_, shard)| shard.advance(latest));
    locked.iter_mut().for_each(|(_, shard)| _ = shard.advance(now));
    now
}

fn locked_shard<'a>(locked: &'a mut Locked<'_>, index: usize) -> Option<&'a mut Shard> {
    locked.iter_mut().find(|(shard, _)| *shard == index).map(|(_, shard)| &mut **shard)
}
