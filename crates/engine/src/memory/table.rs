//! A flat table of cells, sorted by hash, with gaps.
//!
//! Each entry has a home: its hash scaled to the table's capacity. It lies there or a little to the right, and entries
//! are in the order of their hashes:
//!
//! ```text
//!   home of  h2      h5 h6        h9
//!            ↓       ↓  ↓         ↓
//!   ┌───┬───┬───┬───┬───┬───┬───┬───┬───┬───┬───┐
//!   │   │   │h2 │h3 │h4 │h5 │h6 │   │h9 │   │ ∅ │   ∅: the last slot stays empty
//!   └───┴───┴───┴───┴───┴───┴───┴───┴───┴───┴───┘
//! ```
//!
//! Looking up walks from the home until the hash is found or passed. The table is kept nine tenths full, so that is two
//! or three cache lines. The order makes rebuilding two plain passes over memory: gather what is not stale at the right
//! end, add or remove room at the left one, spread again. So capacities grow in small steps, which keeps the waste
//! small, and a rebuild is short because a store has many tables.
//!
//! A cell whose `fresh_at` has passed counts as free space wherever it is met; nothing else is ever overwritten. This
//! file knows neither limits nor locks.

use tollgate_core::{Cell, MAX_INTEGER, Timestamp};

use super::hash::Hash;
use super::slots::{CHUNK, Slots};

/// One key's hash and cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
// Never on two cache lines.
#[repr(align(32))]
pub(super) struct Entry {
    pub(super) hash: Hash,
    /// `fresh_at` of the cell. The top bit marks a cell whose word is an index elsewhere.
    fresh_at: u64,
    pub(super) word: u64,
}

const ELSEWHERE: u64 = 1 << 63;

impl Entry {
    /// After every hash, so that a search ends here without asking what it is.
    pub(super) const EMPTY: Self = Self { hash: Hash::NONE, fresh_at: 0, word: 0 };

    pub(super) fn new(hash: Hash, cell: Cell, elsewhere: bool) -> Self {
        let flag = if elsewhere { ELSEWHERE } else { 0 };
        Self { hash, fresh_at: cell.fresh_at.as_micros() | flag, word: cell.word }
    }

    #[inline]
    pub(super) fn is_elsewhere(&self) -> bool {
        self.fresh_at & ELSEWHERE != 0
    }

    #[inline]
    pub(super) fn cell(&self) -> Cell {
        Cell { fresh_at: self.fresh_at(), word: self.word }
    }

    #[inline]
    pub(super) fn fresh_at(&self) -> Timestamp {
        // The mask is that of all timestamps, so there is nothing left to clamp.
        Timestamp::from_micros(self.fresh_at & MAX_INTEGER)
    }

    #[inline]
    pub(super) fn set(&mut self, cell: Cell) {
        self.fresh_at = cell.fresh_at.as_micros() | (self.fresh_at & ELSEWHERE);
        self.word = cell.word;
    }

    #[inline]
    pub(super) fn is_of(&self, hash: Hash) -> bool {
        self.hash == hash
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.hash.high == Hash::NONE.high
    }

    #[inline]
    fn is_stale(&self, now: Timestamp) -> bool {
        self.fresh_at() <= now
    }
}

/// What is asked whenever memory for keys is needed.
pub(super) trait Allowance {
    /// Asks for `bytes` more; `false` when they are not to be had.
    fn take(&self, bytes: usize) -> bool;
    /// Gives `bytes` back.
    fn give_back(&self, bytes: usize);
}

/// There is no room for another key.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Full;

/// What a search needs comes last: see [`super::shard::Shard`].
#[derive(Default)]
#[repr(C)]
pub(super) struct Table {
    /// Slots that are not empty, stale ones included.
    used: usize,
    /// A full table is not searched for stale cells again before this instant,
    retry_at: Timestamp,
    /// nor before this many more keys were turned away, so that the search costs each of them little,
    retry_after: usize,
    /// unless everything is stale by then.
    retry_by: Timestamp,
    capacity: usize,
    /// One for each home, some more for those pushed beyond the last one, and one that stays empty; none at all while
    /// capacity is zero.
    slots: Slots,
}

/// The slot where a search for `hash` begins in a table of `capacity` homes.
#[inline]
fn home(hash: Hash, capacity: usize) -> usize {
    ((u128::from(hash.high) * capacity as u128) >> 64) as usize
}

/// How many entries of `run` come before that of `hash`, or before where it would have to be.
#[inline(always)]
fn before(run: &[Entry], hash: Hash) -> usize {
    let reached =
        |entry: &Entry| entry.hash.high >= hash.high && (entry.hash.high > hash.high || entry.hash.low == hash.low);
    run.iter().position(reached).unwrap_or(run.len())
}

/// Slots right of the last home, to begin with.
const MARGIN: usize = 8;

/// Tables are rebuilt when fuller than this,
const fn most_used(capacity: usize) -> usize {
    capacity - capacity / 12
}

/// and have at least so many homes after it.
const fn roomy(live: usize) -> usize {
    live + live / 7 + 8
}

impl Table {
    /// The slot of `hash`, if it has one.
    pub(super) fn find(&self, hash: Hash) -> Option<usize> {
        let mut index = self.home(hash);
        loop {
            let run = self.slots.run_from(index)?;
            let past = before(run, hash);
            index += past;
            if let Some(entry) = run.get(past) {
                return entry.is_of(hash).then_some(index);
            }
        }
    }

    #[inline]
    pub(super) fn get(&self, index: usize) -> Option<&Entry> {
        self.slots.get(index)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, index: usize) -> Option<&mut Entry> {
        self.slots.get_mut(index)
    }

    /// What is remembered, stale entries included.
    pub(super) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.slots.iter().filter(|entry| entry.fresh_at() > Timestamp::EPOCH)
    }

    /// The same, to be changed.
    pub(super) fn entries_mut(&mut self) -> impl Iterator<Item = &mut Entry> {
        self.slots.iter_mut().filter(|entry| entry.fresh_at() > Timestamp::EPOCH)
    }

    /// Adds a key that is not in the table. Stale cells make way; `dropped` hears of each.
    pub(super) fn insert(
        &mut self,
        entry: Entry,
        now: Timestamp,
        allowance: &impl Allowance,
        mut dropped: impl FnMut(Entry),
    ) -> Result<(), Full> {
        let known_full = now < self.retry_at && self.used >= most_used(self.capacity);
        if known_full {
            return Err(Full);
        }
        if self.place(entry, now, &mut dropped) {
            return Ok(());
        }
        if now < self.retry_at || (self.retry_after > 0 && now < self.retry_by) {
            self.retry_after = self.retry_after.saturating_sub(1);
            return Err(Full);
        }
        // Once is enough, unless many keys crowd at the very end.
        let mut margin_factor = 1;
        while self.rebuild(margin_factor, now, allowance, &mut dropped) {
            if self.place(entry, now, &mut dropped) {
                return Ok(());
            }
            margin_factor *= 2;
        }
        self.retry_at = self.entries().map(Entry::fresh_at).min().unwrap_or_default();
        self.retry_by = self.entries().map(Entry::fresh_at).max().unwrap_or_default();
        self.retry_after = self.capacity / 16;
        Err(Full)
    }

    /// Drops what is stale and gives memory back that is not needed.
    pub(super) fn shrink(&mut self, now: Timestamp, allowance: &impl Allowance, mut dropped: impl FnMut(Entry)) {
        if self.slots.len() > 0 {
            self.rebuild(1, now, allowance, &mut dropped);
        }
        if self.used == 0 {
            self.slots.resize(0, allowance);
            self.capacity = 0;
        }
        // What others gave back as well may be room enough.
        (self.retry_at, self.retry_after) = (Timestamp::EPOCH, 0);
    }

    #[inline]
    fn home(&self, hash: Hash) -> usize {
        home(hash, self.capacity)
    }

    /// Puts `entry` in its place, if there is a stale cell or an empty slot near enough.
    fn place(&mut self, entry: Entry, now: Timestamp, dropped: &mut impl FnMut(Entry)) -> bool {
        let home = self.home(entry.hash);
        let before = |e: &&Entry| !e.is_empty() && e.hash.high <= entry.hash.high;
        let target = home + self.slots.iter_from(home).take_while(before).count();
        let Some(past) = self.slots.iter_from(target).position(|e| e.is_stale(now)) else { return false };
        let free = target + past;

        let was_empty = self.slots.get(free).is_none_or(Entry::is_empty);
        if was_empty && (self.used >= most_used(self.capacity) || free + 1 >= self.slots.len()) {
            return false;
        }
        if let Some(stale) = self.slots.get(free).filter(|e| !e.is_empty()) {
            dropped(*stale);
        }
        self.used += usize::from(was_empty);
        self.slots.shift_right(target, free);
        self.slots.put(target, entry);
        true
    }

    /// Drops what is stale and changes the capacity to suit what is left and one more. `false` if that cannot be had.
    fn rebuild(
        &mut self,
        margin_factor: usize,
        now: Timestamp,
        allowance: &impl Allowance,
        mut dropped: impl FnMut(Entry),
    ) -> bool {
        self.gather(now, &mut dropped);
        let mut margin = MARGIN * margin_factor;
        while self.slots.resize(roomy(self.used + 1) + margin + 1, allowance) {
            // What a chunk has left over is put to use.
            if self.spread(self.slots.len() - margin - 1) {
                return true;
            }
            self.gather(now, &mut dropped);
            margin *= 2;
        }
        // What is there has to do, with fewer homes if need be: it held all of them before.
        let mut capacity = self.capacity;
        while !self.spread(capacity) {
            self.gather(now, &mut dropped);
            capacity -= capacity / 16 + 1;
        }
        margin_factor == 1 && self.used < most_used(self.capacity)
    }

    /// Moves what is not stale to the right end, in order, and drops the rest.
    fn gather(&mut self, now: Timestamp, dropped: &mut impl FnMut(Entry)) {
        let mut first = self.slots.len();
        for chunk in (0..self.slots.chunks()).rev() {
            self.slots.prefetch(chunk.wrapping_sub(2));
            for index in (chunk * CHUNK..(chunk + 1) * CHUNK).rev() {
                let Some(entry) = self.slots.get(index).copied() else { continue };
                let (empty, stale) = (entry.is_empty(), entry.is_stale(now));
                if stale & !empty {
                    dropped(entry);
                }
                // Put there in any case, and overwritten by the next one if it is not kept: no branch to guess.
                self.slots.put(first - 1, entry);
                first -= usize::from(!stale);
            }
        }
        self.slots.clear(0, first);
        self.used = self.slots.len() - first;
    }

    /// Spreads what was gathered over homes of `capacity`. `false`, with all of it still there and in order, if it
    /// would run over the end.
    fn spread(&mut self, capacity: usize) -> bool {
        self.capacity = capacity;
        let end = self.slots.len();
        let mut next = 0;
        for from in end - self.used..end {
            let Some(entry) = self.slots.get(from).copied() else { break };
            let home = home(entry.hash, capacity);
            let to = home.max(next);
            // From the right end every entry moves left or stays, so none is overwritten.
            if to > from || to + 1 >= end {
                self.slots.clear(next, from);
                return false;
            }
            self.slots.clear(next, to);
            self.slots.put(to, entry);
            next = to + 1;
        }
        self.slots.clear(next, end);
        true
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell as Counter;
    use std::collections::BTreeMap;

    use tollgate_core::{Micros, mix};

    use super::*;

    struct Bytes {
        left: Counter<usize>,
    }

    impl Bytes {
        fn new(bytes: usize) -> Self {
            Self { left: Counter::new(bytes) }
        }
    }

    impl Allowance for Bytes {
        fn take(&self, bytes: usize) -> bool {
            let left = self.left.get().checked_sub(bytes);
            self.left.set(left.unwrap_or(self.left.get()));
            left.is_some()
        }
        fn give_back(&self, bytes: usize) {
            self.left.set(self.left.get() + bytes);
        }
    }

    fn hash(n: u64) -> Hash {
        Hash::new(mix(n), mix(!n))
    }

    fn entry(n: u64, fresh_at: u64) -> Entry {
        Entry::new(hash(n), Cell { fresh_at: Timestamp::from_micros(fresh_at), word: n }, false)
    }

    /// Everything this file promises about the arrangement.
    fn check(table: &Table) {
        let mut last = 0;
        for (index, slot) in table.slots.iter().enumerate().filter(|(_, slot)| !slot.is_empty()) {
            let home = table.home(slot.hash);
            assert!(home <= index, "left of its home");
            assert!(table.slots.iter_from(home).take(index - home).all(|e| !e.is_empty()), "a gap before it");
            assert!(slot.hash.high >= last, "out of order");
            last = slot.hash.high;
        }
        assert_eq!(table.used, table.entries().count());
        assert!(table.slots.iter().last().is_none_or(Entry::is_empty));
    }

    #[test]
    fn agrees_with_a_map_while_keys_come_and_go() {
        let (mut table, mut map, plenty) = (Table::default(), BTreeMap::new(), Bytes::new(usize::MAX / 2));
        let mut now = 1;
        for step in 0..60_000u64 {
            now += mix(step) % 3;
            let key = mix(step ^ 0xabcd) % 5_000;
            let fresh_at = now + 1 + mix(step ^ 77) % 4_000;
            let at = Timestamp::from_micros(now);
            match table.find(hash(key)) {
                Some(index) => {
                    let slot = table.get_mut(index).unwrap();
                    slot.set(Cell { fresh_at: Timestamp::from_micros(fresh_at), word: key });
                }
                None => table.insert(entry(key, fresh_at), at, &plenty, |_| {}).unwrap(),
            }
            map.insert(key, fresh_at);
            if step % 997 == 0 {
                check(&table);
                for (key, fresh_at) in map.iter().filter(|(_, fresh_at)| **fresh_at > now) {
                    let index = table.find(hash(*key)).expect("a live key was forgotten");
                    assert_eq!(table.get(index).unwrap().cell().fresh_at.as_micros(), *fresh_at);
                }
            }
        }
    }

    #[test]
    fn live_keys_are_never_dropped_and_a_full_table_says_so() {
        let budget = 64 * 1024;
        let (mut table, allowance) = (Table::default(), Bytes::new(budget));
        let now = Timestamp::from_micros(1);
        let mut kept = Vec::new();
        for key in 0..5_000 {
            if table.insert(entry(key, 1_000), now, &allowance, |_| panic!("dropped a live key")).is_ok() {
                kept.push(key);
            }
        }
        check(&table);
        assert!(kept.len() * 32 > budget * 8 / 10, "{} keys in {budget} bytes", kept.len());
        assert!(table.slots.len() * 32 <= budget);
        assert!(kept.iter().all(|key| table.find(hash(*key)).is_some()));
        // Once they are stale, their room is used again.
        let later = Timestamp::from_micros(1_000);
        let again = (10_000..15_000).filter(|key| table.insert(entry(*key, 2_000), later, &allowance, |_| {}).is_ok());
        assert!(again.count() * 32 > budget * 8 / 10);
        check(&table);
    }

    #[test]
    fn nine_tenths_full_at_every_size() {
        let (mut table, plenty) = (Table::default(), Bytes::new(usize::MAX / 2));
        let now = Timestamp::from_micros(1);
        for key in 1..=20_000u64 {
            table.insert(entry(key, 1_000), now, &plenty, |_| {}).unwrap();
            if key > 900 {
                let bytes = table.slots.len() * size_of::<Entry>();
                assert!(bytes as u64 <= key * 40, "{bytes} bytes for {key} keys");
            }
        }
        table.shrink(Timestamp::from_micros(1_000), &plenty, |_| {});
        assert_eq!(table.slots.len(), 0);
    }

    #[test]
    fn equal_high_halves_stay_apart() {
        let (mut table, plenty) = (Table::default(), Bytes::new(usize::MAX / 2));
        let now = Timestamp::from_micros(1);
        for low in 0..100 {
            let hash = Hash::new(u64::MAX, low);
            let cell = Cell { fresh_at: now.plus(Micros::SECOND), word: low };
            table.insert(Entry::new(hash, cell, low % 2 == 0), now, &plenty, |_| {}).unwrap();
        }
        check(&table);
        for low in 0..100 {
            let found = table.find(Hash::new(u64::MAX, low)).and_then(|index| table.get(index)).unwrap();
            assert_eq!((found.word, found.is_elsewhere()), (low, low % 2 == 0));
        }
    }
}
