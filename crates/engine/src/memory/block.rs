//! The unit of the front: a few counters and the lock over them, on two neighbouring cache lines.
//!
//! ```text
//!   ┌──────┬───────────────────────┬───────────────────────┬─ ─ ─┬───────────────────────┐
//!   │ head │ tag   fresh_at   word │ tag   fresh_at   word │     │ tag   fresh_at   word │   128 bytes
//!   └──────┴───────────────────────┴───────────────────────┴─ ─ ─┴───────────────────────┘
//! ```
//!
//! Whoever decides about a key holds the lock of the block that is its home, wherever its state is. The head is the
//! lock, and while nobody has it, the latest time that the block has seen and whether some of its keys are in the back.
//!
//! One of the files with `unsafe` in them. What it relies on: slots are touched by who holds the lock of their block,
//! and nobody else.

use std::cell::UnsafeCell;
use std::hint::select_unpredictable;

use tollgate_core::{Cell, MAX_INTEGER, Timestamp};

use super::hash::Hash;
use crate::sync::atomic::{AtomicU64, Ordering};

/// Counters in a block.
pub(super) const SLOTS: usize = 5;

/// The bits of a timestamp. Above it a part of the hash is kept.
const TIME_BITS: u32 = MAX_INTEGER.count_ones();
const ABOVE_BITS: u32 = 64 - TIME_BITS;

/// One key's cell, and of its hash what is not known from where it lies. All zeroes are a slot that nobody has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Slot {
    tag: u64,
    /// `fresh_at` of the cell, and above it another part of the hash.
    fresh_at: u64,
    word: u64,
}

impl Slot {
    #[inline]
    pub(super) fn new(hash: Hash, cell: Cell) -> Self {
        Self { tag: tag(hash), fresh_at: cell.fresh_at.as_micros() | (hash.high & !MAX_INTEGER), word: cell.word }
    }

    /// The hash it was made with.
    pub(super) fn hash(&self) -> Hash {
        let high = (self.fresh_at & !MAX_INTEGER) | self.tag >> Hash::LOW_BITS << (Hash::LOW_BITS - ABOVE_BITS);
        Hash::new(high, self.tag & ((1 << Hash::LOW_BITS) - 1))
    }

    #[inline(always)]
    fn is_of(&self, hash: Hash) -> bool {
        self.tag == tag(hash) && (self.fresh_at ^ hash.high) >> TIME_BITS == 0
    }

    pub(super) fn is_of_entity(&self, hash: Hash) -> bool {
        self.hash().high == hash.high
    }

    #[inline(always)]
    pub(super) fn cell(&self) -> Cell {
        Cell { fresh_at: self.fresh_at(), word: self.word }
    }

    #[inline(always)]
    pub(super) fn fresh_at(&self) -> Timestamp {
        // The mask is that of all timestamps, so there is nothing left to clamp.
        Timestamp::from_micros(self.fresh_at & MAX_INTEGER)
    }

    #[inline(always)]
    pub(super) fn set(&mut self, cell: Cell) {
        self.fresh_at = cell.fresh_at.as_micros() | (self.fresh_at & !MAX_INTEGER);
        self.word = cell.word;
    }

    /// Whether it holds a state at all, stale ones included.
    pub(super) fn is_used(&self) -> bool {
        self.fresh_at() > Timestamp::EPOCH
    }
}

/// All of a hash but its uppermost bits, which are kept above the timestamp.
#[inline(always)]
fn tag(hash: Hash) -> u64 {
    hash.high << ABOVE_BITS | hash.low
}

/// Somebody has the lock.
const LOCKED: u64 = 1;
/// The block is not in use, and its lock is nobody's but that of who will take it into use.
const PARKED: u64 = 3;
/// Set in both of them, and in no other head.
const TAKEN: u64 = 1;

/// What is known of a block as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head(u64);

impl Head {
    const CROWDED: u64 = 2;

    pub(super) fn new(latest: Timestamp) -> Self {
        Self(latest.as_micros() << ABOVE_BITS)
    }

    /// The latest time that was given.
    #[inline(always)]
    pub(super) fn latest(self) -> Timestamp {
        Timestamp::from_micros(self.0 >> ABOVE_BITS)
    }

    /// The later of `now` and any time given before.
    #[inline(always)]
    pub(super) fn advance(&mut self, now: Timestamp) -> Timestamp {
        // Compared as it is kept: what lies below the time decides nothing, as `now` has zeroes there.
        let given = now.as_micros() << ABOVE_BITS;
        if given > self.0 {
            self.0 = given | (self.0 & Self::CROWDED);
        }
        self.latest()
    }

    /// Whether some of the block's keys may be in the back.
    #[inline(always)]
    pub(super) fn is_crowded(self) -> bool {
        self.0 & Self::CROWDED != 0
    }

    pub(super) fn crowd(&mut self) {
        self.0 |= Self::CROWDED;
    }
}

#[repr(C, align(128))]
pub(super) struct Block {
    head: AtomicU64,
    slots: UnsafeCell<[Slot; SLOTS]>,
}

// SAFETY: slots are touched under the lock only.
#[allow(unsafe_code, reason = "a lock of our own makes it so")]
unsafe impl Sync for Block {}

impl Default for Block {
    fn default() -> Self {
        Self { head: AtomicU64::new(0), slots: UnsafeCell::default() }
    }
}

impl Block {
    /// Locks it unless it is locked or parked.
    #[inline(always)]
    pub(super) fn try_lock(&self) -> Option<Locked<'_>> {
        // Looked at first, and not taken from what the exchange returns: so what follows from it is on its way while
        // the exchange waits for all that was written before.
        let head = self.head.load(Ordering::Relaxed);
        if head & TAKEN != 0 {
            return None;
        }
        // What was there is with the holder meanwhile.
        let locked = self.head.compare_exchange(head, LOCKED, Ordering::Acquire, Ordering::Relaxed);
        locked.ok().map(|_| Locked { block: self, head: Head(head) })
    }

    /// Locks a block that is not in use, which only those hold who are mistaken about that, and not for long.
    pub(super) fn try_claim(&self) -> Option<Locked<'_>> {
        let head = self.head.load(Ordering::Relaxed);
        if head == LOCKED {
            return None;
        }
        let claimed = self.head.compare_exchange(head, LOCKED, Ordering::Acquire, Ordering::Relaxed);
        claimed.ok().map(|_| Locked { block: self, head: Head(0) })
    }

    /// Locks such a block for good: until it is put back, or made of zeroes, which is the same.
    pub(super) fn try_take_away(&self) -> bool {
        self.try_claim().map(std::mem::forget).is_some()
    }

    /// Unlocks what was taken away.
    pub(super) fn put_back(&self) {
        self.head.store(0, Ordering::Release);
    }
}

/// A block under its lock.
pub(super) struct Locked<'s> {
    block: &'s Block,
    pub(super) head: Head,
}

impl Drop for Locked<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.block.head.store(self.head.0, Ordering::Release);
    }
}

impl Locked<'_> {
    #[inline(always)]
    pub(super) fn slots(&self) -> &[Slot; SLOTS] {
        // SAFETY: the lock is held, and whoever borrows from it has it no longer than that.
        #[allow(unsafe_code, reason = "as a guard does")]
        unsafe {
            &*self.block.slots.get()
        }
    }

    #[inline(always)]
    pub(super) fn slots_mut(&mut self) -> &mut [Slot; SLOTS] {
        // SAFETY: as above, and nobody else borrows from it.
        #[allow(unsafe_code, reason = "as a guard does")]
        unsafe {
            &mut *self.block.slots.get()
        }
    }

    /// The slot of `hash`, if it has one here; quickly.
    #[inline(always)]
    pub(super) fn find_quickly(&mut self, hash: Hash) -> Option<&mut Slot> {
        // No branch to mispredict until it is known which it is. Of two that have one tag, only the last is found.
        let (tag, slots) = (tag(hash), self.slots_mut());
        let (first, others) = slots.split_first_mut()?;
        let mut found = first;
        for slot in others {
            found = select_unpredictable(slot.tag == tag, slot, found);
        }
        Some(found).filter(|slot| slot.is_of(hash))
    }

    /// The slot of `hash`, if it has one here.
    pub(super) fn find(&mut self, hash: Hash) -> Option<&mut Slot> {
        self.slots_mut().iter_mut().find(|slot| slot.is_of(hash))
    }

    pub(super) fn has(&self, hash: Hash) -> bool {
        self.slots().iter().any(|slot| slot.is_of(hash))
    }

    /// A slot that nobody needs.
    pub(super) fn room(&mut self, now: Timestamp) -> Option<&mut Slot> {
        self.slots_mut().iter_mut().find(|slot| slot.fresh_at() <= now)
    }

    /// Ends its use.
    pub(super) fn park(mut self) {
        *self.slots_mut() = Default::default();
        self.head = Head(PARKED);
    }
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests {
    use tollgate_core::mix;

    use super::*;

    fn hash(number: u64) -> Hash {
        Hash::new(mix(number), mix(!number))
    }

    fn cell(number: u64) -> Cell {
        Cell { fresh_at: Timestamp::from_micros(1 + number), word: !number }
    }

    #[test]
    fn a_block_is_two_cache_lines() {
        assert_eq!((size_of::<Block>(), align_of::<Block>()), (128, 128));
    }

    #[test]
    fn a_slot_keeps_all_of_a_hash_and_of_a_cell() {
        for number in 0..10_000 {
            let mut slot = Slot::new(hash(number), cell(number));
            assert_eq!((slot.hash(), slot.cell()), (hash(number), cell(number)));
            let last = Cell { fresh_at: Timestamp::MAX, word: u64::MAX };
            slot.set(last);
            assert_eq!((slot.hash(), slot.cell()), (hash(number), last));
        }
    }

    #[test]
    fn every_bit_that_is_kept_tells_keys_apart() {
        let block = Block::default();
        let mut locked = block.try_lock().unwrap();
        let known = hash(7);
        locked.slots_mut()[3] = Slot::new(known, cell(7));
        assert!(locked.find(known).is_some() && locked.find_quickly(known).is_some() && locked.has(known));
        let highs = (32..64).map(|bit| Hash { high: known.high ^ 1 << bit, ..known });
        let lows = (0..Hash::LOW_BITS).map(|bit| Hash { low: known.low ^ 1 << bit, ..known });
        for other in highs.chain(lows) {
            assert!(locked.find(other).is_none() && locked.find_quickly(other).is_none() && !locked.has(other));
        }
    }

    #[test]
    fn keys_of_one_tag_are_found_all_the_same() {
        let block = Block::default();
        let mut locked = block.try_lock().unwrap();
        // They differ above the timestamp alone.
        let both = [1, 2].map(|number: u64| Hash { high: number << 60, low: 5 });
        locked.slots_mut()[1] = Slot::new(both[0], cell(1));
        locked.slots_mut()[2] = Slot::new(both[1], cell(2));
        let found = both.map(|hash| locked.find(hash).map(|slot| slot.cell()));
        assert_eq!(found, [Some(cell(1)), Some(cell(2))]);
    }

    #[test]
    fn time_goes_on_and_what_else_is_known_stays() {
        let mut head = Head::new(Timestamp::from_micros(9));
        assert_eq!(head.advance(Timestamp::from_micros(7)), Timestamp::from_micros(9));
        assert_eq!(head.advance(Timestamp::MAX), Timestamp::MAX);
        let mut head = Head::new(Timestamp::from_micros(9));
        head.crowd();
        assert_eq!(head.advance(Timestamp::from_micros(9)), Timestamp::from_micros(9));
        assert_eq!(head.advance(Timestamp::from_micros(10)), Timestamp::from_micros(10));
        assert!(head.is_crowded());
        assert_eq!(head.0 & TAKEN, 0, "no time looks like a lock");
    }

    #[test]
    fn a_block_is_had_by_one_at_a_time_and_one_that_is_parked_by_nobody_but_its_owner() {
        let block = Block::default();
        let mut locked = block.try_lock().unwrap();
        assert!(block.try_lock().is_none() && block.try_claim().is_none());
        locked.slots_mut()[0] = Slot::new(hash(1), cell(1));
        drop(locked);
        block.try_lock().unwrap().park();
        assert!(block.try_lock().is_none());
        let claimed = block.try_claim().unwrap();
        assert!(claimed.slots().iter().all(|slot| !slot.is_used()), "parked blocks are empty");
        drop(claimed);
        assert!(block.try_lock().is_some());
    }
}
