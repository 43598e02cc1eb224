//! The common case of several charges: a few limits on one entity, all of which know it.
//!
//! Such a stack has one hash but for its limits, one lock, and neighbouring entries, so that three limits cost less than twice
//! one. Everything else goes the general way, `together.rs`, which gives the same answers.

use tollgate_core::{Cell, Change, Intent, Timestamp};

use super::hash::Hash;
use super::shard::Shard;
use super::{MemoryStore, ask};
use crate::charge::{Charge, Outcomes};
use crate::sync::Guard;

/// Larger stacks go the general way.
const MOST: usize = 4;

/// Cache lines to fetch: entries that are neighbours of each other push their neighbours further.
const LINES: usize = 4;

/// A stack under its lock, judged and not yet charged.
struct Judged<'s> {
    shard: Guard<'s, Shard>,
    now: Timestamp,
    /// Where the entity's states begin.
    first: usize,
    hashes: [Hash; MOST],
    /// Where each charge's state is, what becomes of it, and whether it is admitted.
    steps: [(usize, Cell, bool); MOST],
    all_admitted: bool,
}

impl MemoryStore {
    /// Spends a stack and says whether it was admitted. `None`, and nothing changed, when it is not the common case.
    #[inline]
    pub(super) fn admit_stack(&self, charges: &[Charge<'_>], now: impl FnOnce() -> Timestamp) -> Option<bool> {
        let mut judged = self.judge_stack(charges, now)?;
        judged.commit(charges.len());
        Some(judged.all_admitted)
    }

    /// The same, with all there is to say about each charge.
    #[inline]
    pub(super) fn spend_stack(&self, charges: &[Charge<'_>], now: Timestamp) -> Option<Outcomes> {
        let mut judged = self.judge_stack(charges, || now)?;
        let mut outcomes = Outcomes::new();
        for ((charge, hash), (index, _, admitted)) in charges.iter().zip(&judged.hashes).zip(&judged.steps) {
            // What would have passed alone was not charged: what is reported is what is.
            let intent = if *admitted && !judged.all_admitted { Intent::Peek } else { Intent::Spend };
            let asked = ask(charge, intent, judged.now);
            let outcome = |_, _, outcome, _: &_| Some(outcome);
            outcomes.push(judged.shard.ask_known(judged.first, *index, *hash, charge.limit, &asked, outcome)?);
        }
        judged.commit(charges.len());
        Some(outcomes)
    }

    #[inline(always)]
    fn judge_stack(&self, charges: &[Charge<'_>], now: impl FnOnce() -> Timestamp) -> Option<Judged<'_>> {
        let (first, others) = charges.split_first()?;
        // What counts everything together has a place of its own for each limit.
        if charges.len() > MOST || first.key.values.is_empty() {
            return None;
        }
        let mut last = first.key.limit;
        for other in others {
            // One entity, and no counter twice: the same one would have to be added up first.
            if !std::ptr::eq(other.key.values, first.key.values) || other.key.limit <= last {
                return None;
            }
            last = other.key.limit;
        }
        let entity = self.hasher.entity(&first.key);
        let mut hashes = [Hash { high: 0, low: 0 }; MOST];
        for (slot, charge) in hashes.iter_mut().zip(charges) {
            *slot = self.hasher.counter(entity, &charge.key, charge.limit.lineage());
        }

        let hash = *hashes.first()?;
        let index = self.shard_of(hash);
        let guess = self.prefetch(index, hash, LINES);
        let now = now();
        self.expire_reservations_due(now);
        let mut shard = self.shard(index).lock();
        let now = shard.advance(now);
        let first = shard.first(guess, hash)?;
        let mut steps = [(0, Cell::FRESH, true); MOST];
        let mut all_admitted = true;
        // Limits that came together lie side by side.
        let mut next = first;
        for ((step, charge), hash) in steps.iter_mut().zip(charges).zip(&hashes) {
            let asked = ask(charge, Intent::Spend, now);
            let judge = |index, cell, admitted, change: &Change| match change {
                Change::Cell(cell) if admitted => Some((index, *cell, admitted)),
                Change::Keep => Some((index, cell, admitted)),
                // A limit that remembers denials does so whatever the others say: not the common case, nor is more than a cell.
                _ => None,
            };
            *step = shard.ask_known(first, next, *hash, charge.limit, &asked, judge)?;
            next = step.0 + 1;
            all_admitted &= step.2;
        }
        Some(Judged { shard, now, first, hashes, steps, all_admitted })
    }
}

impl Judged<'_> {
    #[inline]
    fn commit(&mut self, charges: usize) {
        if self.all_admitted {
            for (index, cell, _) in self.steps.iter().take(charges) {
                self.shard.set(*index, *cell);
            }
        }
    }
}
