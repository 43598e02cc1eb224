//! The common case of several charges: a few limits on one entity, all of which know it.
//!
//! Such a stack has one hash but for its limits, and so one block, so that three limits cost less than twice
//! one. Everything else goes the general way, `together.rs`, which gives the same answers.

use tollgate_core::{Cell, Change, Extra, Intent, Outcome, Timestamp};

use super::block::{Locked, Slot};
use super::hash::Hash;
use super::shard::{Reply, Shard};
use super::site::Site;
use super::table::{Allowance, Entry};
use super::{MemoryStore, ask};
use crate::charge::{Charge, Outcomes};
use crate::sync::{Guard, Lock};

/// Larger stacks go the general way.
const MOST: usize = 4;

/// A stack under its lock.
struct Stack<'s, 'c> {
    charges: &'c [Charge<'c>],
    hashes: &'c [Hash; MOST],
    block: Locked<'s>,
    /// What of it is not in its block is here.
    behind: &'s Lock<Shard>,
    back: Option<Guard<'s, Shard>>,
    now: Timestamp,
}

/// A counter of a stack, wherever it is.
enum Counter<'a> {
    InBlock(&'a mut Slot),
    Behind(&'a mut Entry),
}

impl Counter<'_> {
    #[inline(always)]
    fn cell(&self) -> Cell {
        match self {
            Self::InBlock(slot) => slot.cell(),
            Self::Behind(entry) => entry.cell(),
        }
    }

    #[inline(always)]
    fn set(&mut self, cell: Cell) {
        match self {
            Self::InBlock(slot) => slot.set(cell),
            Self::Behind(entry) => entry.set(cell),
        }
    }
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
        then: impl Fn(&mut Stack<'_, '_>) -> Option<T>,
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
        let table = self.shard_of(hash);
        let is_recent = self.front.is_recent(hash);
        let home = if is_recent { None } else { self.prefetch(hash) };
        let now = now();
        self.expire_reservations_due(now);
        let at = |block| Stack::new(charges, &hashes, block, self.shard(table), now);
        if is_recent && let Some(answer) = self.front.lock_recent().and_then(|block| then(&mut at(block))) {
            return Some(answer);
        }
        let home = home.or_else(|| self.front.home(table, hash))?;
        self.front.remember(hash, home, now);
        let block = self.front.lock(table, hash, home)?;
        let mut stack = at(block);
        if let Some(answer) = then(&mut stack) {
            return Some(answer);
        }
        let answer = if stack.look_behind() { then(&mut stack) } else { None };
        stack.come_forward(&self.budget);
        answer
    }
}

impl<'s, 'c> Stack<'s, 'c> {
    #[inline(always)]
    fn new(
        charges: &'c [Charge<'c>],
        hashes: &'c [Hash; MOST],
        mut block: Locked<'s>,
        behind: &'s Lock<Shard>,
        now: Timestamp,
    ) -> Self {
        let now = block.head.advance(now);
        Self { charges, hashes, block, behind, back: None, now }
    }

    /// The counter of `hash`, if all of its state is in one place: in the block, unless it is known that some are not.
    #[inline(always)]
    fn counter(&mut self, hash: Hash) -> Option<Counter<'_>> {
        let Some(back) = &mut self.back else { return self.block.find_quickly(hash).map(Counter::InBlock) };
        match self.block.find(hash) {
            Some(slot) => Some(Counter::InBlock(slot)),
            None => back.crowded_out(hash).map(Counter::Behind),
        }
    }

    /// Looks behind the block as well from now on. `false` if there is nothing of it.
    #[cold]
    fn look_behind(&mut self) -> bool {
        let is_crowded = self.back.is_none() && self.block.head.is_crowded();
        if is_crowded {
            let mut back = self.behind.lock();
            self.now = Site { block: &mut self.block, back: &mut back }.advance(self.now);
            self.back = Some(back);
        }
        is_crowded
    }

    /// Lets those who are behind the block come forward now and then, as single keys do.
    #[cold]
    fn come_forward(&mut self, allowance: &impl Allowance) {
        let Some(back) = &mut self.back else { return };
        let mut site = Site { block: &mut self.block, back };
        let hashes = self.hashes.iter().zip(self.charges).map(|(hash, _)| *hash);
        hashes.for_each(|hash| site.bring_forward(hash, self.now, allowance));
    }

    /// Charges one after the other. When one is denied, or is not the common case (`None`), those before it get back
    /// what they had.
    #[inline(always)]
    fn spend<R: Reply>(&mut self, mut hear: impl FnMut(R)) -> Option<bool> {
        let mut before = [Cell::FRESH; MOST];
        for (number, ((charge, hash), had)) in self.charges.iter().zip(self.hashes).zip(&mut before).enumerate() {
            let asked = ask(charge, Intent::Spend, self.now);
            let spent = self.counter(*hash).and_then(|mut counter| {
                *had = counter.cell();
                R::ask(charge.limit, *had, Extra::NONE, &asked, |reply: R, change| match change {
                    Change::Cell(cell) if reply.is_allowed() => {
                        counter.set(*cell);
                        Some(reply)
                    }
                    Change::Keep => Some(reply),
                    // A denial is remembered, or what does not fit into a slot.
                    _ => None,
                })
            });
            match spent {
                Some(reply) if reply.is_allowed() => hear(reply),
                other => {
                    self.restore(&before, number);
                    return other.filter(|_| !self.is_denial_remembered(number + 1)).map(|_| false);
                }
            }
        }
        Some(true)
    }

    /// Gives the first so many counters back what they had.
    #[cold]
    fn restore(&mut self, before: &[Cell; MOST], charged: usize) {
        for (hash, before) in self.hashes.iter().zip(before).take(charged) {
            if let Some(mut counter) = self.counter(*hash) {
                counter.set(*before);
            }
        }
    }

    /// Whether one of the charges from the one numbered `from` on is denied as well, and remembers it.
    fn is_denial_remembered(&mut self, from: usize) -> bool {
        let (charges, hashes, now) = (self.charges, self.hashes, self.now);
        charges.iter().zip(hashes).skip(from).any(|(charge, hash)| {
            let Some(counter) = self.counter(*hash) else { return true };
            let ask = ask(charge, Intent::Spend, now);
            let is_remembered = |allowed: bool, change: &Change| !allowed && *change != Change::Keep;
            charge.limit.admit_then(counter.cell(), Extra::NONE, &ask, is_remembered)
        })
    }

    /// What is to be said of each charge when one of them is denied, and none is charged. `None` where a denial is
    /// remembered.
    fn outcomes_of_denial(&mut self) -> Option<Outcomes> {
        let outcomes = self.charges.iter().zip(self.hashes).map(|(charge, hash)| {
            let (cell, now) = (self.counter(*hash)?.cell(), self.now);
            let answer = |intent| {
                let ask = ask(charge, intent, now);
                charge.limit.step_then(cell, Extra::NONE, &ask, |outcome: Outcome, change| {
                    (outcome.allowed || *change == Change::Keep).then_some(outcome)
                })
            };
            let outcome = answer(Intent::Spend)?;
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
        // The second is known first.
        assert!(store.admit_one(&b, now));
        for round in 1..=20 {
            let left = [100 - round, 99 - round];
            let outcomes = match round % 4 {
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
