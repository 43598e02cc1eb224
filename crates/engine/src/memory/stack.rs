//! The common case of several charges: a few limits on one entity, all of which know it.
//!
//! Such a stack has one hash but for its limits, one lock, and neighbouring entries, so that three limits cost less than twice
//! one. Everything else goes the general way, `together.rs`, which gives the same answers.

use smallvec::SmallVec;
use tollgate_core::{Cell, Intent, Outcome, Timestamp};

use super::hash::Hash;
use super::shard::{Reply, Shard, Spent};
use super::{MemoryStore, ask};
use crate::charge::{Charge, Outcomes};
use crate::sync::Guard;

/// Larger stacks go the general way.
const MOST: usize = 4;

/// Cache lines to fetch: entries that are neighbours of each other push their neighbours further.
const LINES: usize = 4;

/// A stack under its lock.
struct Stack<'s, 'c> {
    charges: &'c [Charge<'c>],
    hashes: &'c [Hash; MOST],
    shard: Guard<'s, Shard>,
    now: Timestamp,
    /// Where the entity's states begin.
    first: usize,
}

impl MemoryStore {
    /// Spends a stack and says whether it was admitted. `None`, and nothing changed, when it is not the common case.
    #[inline]
    pub(super) fn admit_stack(&self, charges: &[Charge<'_>], now: impl FnOnce() -> Timestamp) -> Option<bool> {
        self.with_stack(charges, now, |stack| stack.spend(|_: bool| {}))
    }

    /// The same, with all there is to say about each charge.
    #[inline]
    pub(super) fn spend_stack(&self, charges: &[Charge<'_>], now: Timestamp) -> Option<Outcomes> {
        self.with_stack(
            charges,
            || now,
            |stack| {
                let mut outcomes = Outcomes::new();
                match stack.spend(|outcome| outcomes.push(outcome))? {
                    true => Some(outcomes),
                    false => stack.outcomes_of_denial(),
                }
            },
        )
    }

    /// Locks a stack for `then`.
    #[inline(always)]
    fn with_stack<T>(
        &self,
        charges: &[Charge<'_>],
        now: impl FnOnce() -> Timestamp,
        then: impl FnOnce(&mut Stack<'_, '_>) -> Option<T>,
    ) -> Option<T> {
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
        let mut hashes = [Hash::NONE; MOST];
        for (slot, charge) in hashes.iter_mut().zip(charges) {
            *slot = self.hasher.counter(entity, &charge.key, charge.limit.lineage());
        }

        let hash = *hashes.first()?;
        let (shelf, guess) = self.prefetch(hash, LINES);
        let now = now();
        self.expire_reservations_due(now);
        let mut shard = shelf.shard.lock();
        let now = shard.advance(now);
        let first = shard.first(guess, hash)?;
        shelf.remember(hash);
        then(&mut Stack { charges, hashes: &hashes, shard, now, first })
    }
}

impl Stack<'_, '_> {
    /// Charges one after the other. When one is denied, or is not the common case (`None`), those before it get back what they had.
    #[inline(always)]
    fn spend<R: Reply>(&mut self, mut hear: impl FnMut(R)) -> Option<bool> {
        let mut charged = SmallVec::<[(usize, Cell); MOST]>::new();
        // Limits that came together lie side by side.
        let mut next = self.first;
        for (charge, hash) in self.charges.iter().zip(self.hashes) {
            let asked = ask(charge, Intent::Spend, self.now);
            match self.shard.spend_known(self.first, next, *hash, charge.limit, &asked) {
                Some(Spent { index, before, reply }) if R::is_allowed(&reply) => {
                    charged.push((index, before));
                    next = index + 1;
                    hear(reply);
                }
                other => {
                    charged.into_iter().for_each(|(index, before)| self.shard.set(index, before));
                    return other.map(|_| false);
                }
            }
        }
        Some(true)
    }

    /// What is to be said of each charge when one of them is denied, and none is charged.
    fn outcomes_of_denial(&self) -> Option<Outcomes> {
        let outcomes = self.charges.iter().zip(self.hashes).map(|(charge, hash)| {
            let answer = |intent| self.shard.ask_known(self.first, *hash, charge.limit, &ask(charge, intent, self.now));
            let outcome: Outcome = answer(Intent::Spend)?;
            // What would have passed alone was not charged: what is reported is what is.
            if outcome.allowed { answer(Intent::Peek) } else { Some(outcome) }
        });
        outcomes.collect()
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::{Key, Limit, Rate, TokenBucket};

    use super::*;

    #[test]
    fn a_stack_is_charged_in_whatever_order_its_limits_came() {
        let limit = Limit::new(TokenBucket::new(Rate::per_hour(100))).unwrap();
        let values: [&[u8]; 1] = [b"user"];
        let [a, b] = [1, 2].map(|number| Charge::new(Key::new(number, &values), &limit));
        let store = MemoryStore::new();
        let now = Timestamp::from_secs(1_000);
        // The second is known first, so it lies before the first.
        assert!(store.admit_one(&b, now));
        for round in 1..=20 {
            let left = [100 - round, 99 - round];
            let outcomes = match round % 4 {
                // What was found last is now the one, now the other.
                0 => {
                    assert_eq!(store.apply_one(&a, Intent::Peek, now).remaining, left[0] + 1);
                    store.apply_all(&[a, b], Intent::Spend, now)
                }
                1 => {
                    assert_eq!(store.apply_one(&b, Intent::Peek, now).remaining, left[1] + 1);
                    store.apply_all(&[a, b], Intent::Spend, now)
                }
                _ => store.apply_all(&[a, b], Intent::Spend, now),
            };
            assert_eq!(outcomes.iter().map(|outcome| outcome.remaining).collect::<Vec<_>>(), left, "round {round}");
            // The common case it is, and not only right.
            assert_eq!(store.admit_stack(&[a, b], || now), Some(true));
            let _returned = store.apply_all(&[a, b], Intent::Refund { charged_at: now }, now);
        }
        assert_eq!(store.keys(), 2);
    }
}
