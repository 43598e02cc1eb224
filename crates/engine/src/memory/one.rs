//! One charge: the way of most decisions.

use tollgate_core::{Ask, Cell, Change, Extra, Intent, Timestamp};

use super::block::Locked;
use super::hash::Hash;
use super::shard::Reply;
use super::site::Site;
use super::table::Full;
use super::{MemoryStore, ask};
use crate::charge::Charge;

impl MemoryStore {
    #[inline(always)]
    pub(super) fn answer_one<R: Reply>(
        &self,
        charge: &Charge<'_>,
        intent: Intent,
        now: impl FnOnce() -> Timestamp,
    ) -> R {
        let slowly = |hash, ask, home| self.answer_slowly(*charge, hash, ask, home);
        self.answer_known(charge, intent, now, |reply| reply, slowly)
    }

    /// Answers for a key whose state is in its block, as most are. Others are for `other`, with nothing done.
    #[inline(always)]
    pub(super) fn answer_known<'s, R: Reply, T>(
        &'s self,
        charge: &Charge<'_>,
        intent: Intent,
        now: impl FnOnce() -> Timestamp,
        known: impl FnOnce(R) -> T,
        other: impl FnOnce(Hash, Ask, Option<Locked<'s>>) -> T,
    ) -> T {
        let hash = self.hash(charge);
        // Written out for both: which it is, the processor mostly guesses right, and then does not wait for what it can
        // do without.
        if self.front.is_recent(hash) {
            let now = now();
            return match self.front.lock_recent().and_then(|block| self.answer_in(block, charge, hash, intent, now)) {
                Some(reply) => known(reply),
                None => self.answer_at(
                    charge,
                    hash,
                    self.front.lock_home(self.shard_of(hash), hash),
                    intent,
                    now,
                    known,
                    other,
                ),
            };
        }
        let home = self.prefetch(hash);
        let now = now();
        let locked = home.and_then(|home| {
            self.front.remember(hash, home, now);
            self.front.lock(self.shard_of(hash), hash, home)
        });
        self.answer_at(charge, hash, locked, intent, now, known, other)
    }

    /// [`Self::answer_known`] for a hash whose home is locked, unless there is none.
    #[inline(always)]
    #[expect(clippy::too_many_arguments, reason = "inlined, for what would otherwise be written twice")]
    pub(super) fn answer_at<'s, R: Reply, T>(
        &'s self,
        charge: &Charge<'_>,
        hash: Hash,
        home: Option<Locked<'s>>,
        intent: Intent,
        now: Timestamp,
        known: impl FnOnce(R) -> T,
        other: impl FnOnce(Hash, Ask, Option<Locked<'s>>) -> T,
    ) -> T {
        let Some(mut block) = home.filter(|_| !self.reservations.any_due(now)) else {
            return other(hash, ask(charge, intent, now), None);
        };
        let ask = ask(charge, intent, block.head.advance(now));
        match answer_in(&mut block, charge, hash, &ask) {
            Some(reply) => {
                drop(block);
                known(reply)
            }
            None => other(hash, ask, Some(block)),
        }
    }

    /// The same for a block that may be the home of `hash`, or was. `None`, and nothing done, for keys that are not
    /// there.
    #[inline(always)]
    fn answer_in<R: Reply>(
        &self,
        mut block: Locked<'_>,
        charge: &Charge<'_>,
        hash: Hash,
        intent: Intent,
        now: Timestamp,
    ) -> Option<R> {
        if self.reservations.any_due(now) {
            return None;
        }
        let mut head = block.head;
        let reply = answer_in(&mut block, charge, hash, &ask(charge, intent, head.advance(now)));
        if reply.is_some() {
            block.head = head;
        }
        reply
    }

    /// For keys that are new, or whose state is not in their block.
    #[inline(never)]
    pub(super) fn answer_slowly<R: Reply>(
        &self,
        charge: Charge<'_>,
        hash: Hash,
        ask: Ask,
        mut home: Option<Locked<'_>>,
    ) -> R {
        match &mut home {
            Some(block) if block.head.is_crowded() => {
                let mut site = Site { block, back: &mut self.shard(self.shard_of(hash)).lock() };
                let ask = Ask { now: site.advance(ask.now), ..ask };
                if let Some(reply) = site.apply_behind(hash, charge.limit, &ask, &self.budget) {
                    return reply;
                }
            }
            Some(_) => {}
            None => self.expire_reservations_due(ask.now),
        }
        let may_be_shared = self.may_be_shared(&charge, ask.intent);
        // Where there is nothing, looking makes nothing.
        let answer = if may_be_shared || home.is_some() || self.front.blocks(self.shard_of(hash)) > 0 {
            self.at_site(hash, ask.now, home, &self.budget, |site, now| {
                let ask = Ask { now, ..ask };
                if self.is_shared(&charge, hash, &ask, site) {
                    return Err(Full);
                }
                site.apply(hash, charge.limit, &ask, &self.budget)
            })
        } else {
            Err(Full)
        };
        match answer {
            Ok(reply) => reply,
            Err(Full) if may_be_shared => self.apply_shared(&charge, ask),
            // There is nothing to tell of, and nothing to change.
            Err(Full) => R::ask(charge.limit, Cell::FRESH, Extra::NONE, &ask, |reply, _| reply),
        }
    }
}

/// Answers for a key whose state is in its block. `None`, and nothing done, for others.
#[inline(always)]
fn answer_in<R: Reply>(block: &mut Locked<'_>, charge: &Charge<'_>, hash: Hash, ask: &Ask) -> Option<R> {
    let slot = block.find_quickly(hash)?;
    R::ask(charge.limit, slot.cell(), Extra::NONE, ask, |reply, change| match change {
        Change::Keep => Some(reply),
        Change::Cell(cell) => {
            slot.set(*cell);
            Some(reply)
        }
        Change::Both(..) => None,
    })
}
