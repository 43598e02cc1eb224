//! A flat table of cells, sorted by hash, with gaps.
//!
//! Each entry has a home: its hash scaled to the table's capacity. It lies there or a little to the right, and entries are in
//! the order of their hashes:
//!
//! ```text
//!   home of  h2      h5 h6        h9
//!            ↓       ↓  ↓         ↓
//!   ┌───┬───┬───┬───┬───┬───┬───┬───┬───┬───┬───┐
//!   │   │   │h2 │h3 │h4 │h5 │h6 │   │h9 │   │ ∅ │   ∅: the last slot stays empty
//!   └───┴───┴───┴───┴───┴───┴───┴───┴───┴───┴───┘
//! ```
//!
//! Looking up walks from the home until the hash is found or passed: one or two cache lines, although the table is
//! kept nine tenths full. The order makes rebuilding a plain pass over memory: squeeze out what is stale, make
//! room at the end, spread again. So capacities grow in small steps, which keeps the waste small, and a
//! rebuild is short because a store has many tables.
//!
//! A cell whose `fresh_at` has passed counts as free space wherever it is met; nothing else is ever overwritten. This file
//! knows neither limits nor locks.

use tollgate_core::{Cell, Timestamp};

use super::hash::Hash;

/// One key's hash and cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) hash: Hash,
    /// `fresh_at` of the cell; zero in an empty slot. The top bit marks a cell whose word is an index elsewhere.
    fresh_at: u64,
    pub(super) word: u64,
}

const ELSEWHERE: u64 = 1 << 63;

impl Entry {
    const EMPTY: Self = Self { hash: Hash { high: 0, low: 0 }, fresh_at: 0, word: 0 };

    pub(super) fn new(hash: Hash, cell: Cell, elsewhere: bool) -> Self {
        // A fresh cell is not worth storing; an empty slot it must not look like.
        let fresh_at = cell.fresh_at.as_micros().max(1);
        Self { hash, fresh_at: fresh_at | if elsewhere { ELSEWHERE } else { 0 }, word: cell.word }
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
        Timestamp::from_micros(self.fresh_at & !ELSEWHERE)
    }

    #[inline]
    pub(super) fn set(&mut self, cell: Cell) {
        self.fresh_at = cell.fresh_at.as_micros().max(1) | (self.fresh_at & ELSEWHERE);
        self.word = cell.word;
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.fresh_at == 0
    }

    #[inline]
    fn is_stale(&self, now: Timestamp) -> bool {
        self.fresh_at() <= now
    }
}

/// What happens to memory when tables change their size.
pub(super) trait Allowance {
    /// Asks for `bytes` more; `false` when they are not to be had.
    fn take(&self, bytes: usize) -> bool;
    /// Gives `bytes` back.
    fn give_back(&self, bytes: usize);
}

/// There is no room for another key.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Full;

#[derive(Default)]
pub(super) struct Table {
    /// One for each home, some more for those pushed beyond the last one, and one that stays empty; none at all while
    /// capacity is zero.
    slots: Vec<Entry>,
    capacity: usize,
    /// Slots that are not empty, stale ones included.
    used: usize,
    /// A full table is not searched for stale cells again before this instant,
    retry_at: Timestamp,
    /// nor before this many more keys were turned away: so that the search costs each of them little.
    retry_after: usize,
}

const LEAST_CAPACITY: usize = 8;

/// Slots right of the last home, to begin with.
const fn margin(capacity: usize) -> usize {
    let share = 4 + capacity / 16;
    if share < 48 { share } else { 48 }
}

/// Tables are rebuilt when fuller than this,
const fn most_used(capacity: usize) -> usize {
    capacity / 12 * 11 + capacity % 12
}

/// and are this large after it.
const fn roomy(live: usize) -> usize {
    let capacity = live + live / 7 + 1;
    if capacity < LEAST_CAPACITY { LEAST_CAPACITY } else { capacity }
}

impl Table {
    /// The slot of `hash`, if it has one.
    #[inline]
    pub(super) fn find(&self, hash: Hash) -> Option<usize> {
        let mut index = self.home(hash);
        while let Some(entry) = self.slots.get(index) {
            if entry.hash == hash && !entry.is_empty() {
                return Some(index);
            }
            if entry.hash.high > hash.high || entry.is_empty() {
                break;
            }
            index += 1;
        }
        None
    }

    #[inline]
    pub(super) fn get(&self, index: usize) -> Option<&Entry> {
        self.slots.get(index)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, index: usize) -> Option<&mut Entry> {
        self.slots.get_mut(index)
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.slots.iter().filter(|entry| !entry.is_empty())
    }

    /// Adds a key that is not in the table. Stale cells make way; `dropped` hears of each.
    pub(super) fn insert(
        &mut self,
        entry: Entry,
        now: Timestamp,
        allowance: &impl Allowance,
        mut dropped: impl FnMut(Entry),
    ) -> Result<(), Full> {
        if self.place(entry, now, &mut dropped) {
            return Ok(());
        }
        if now < self.retry_at || self.retry_after > 0 {
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
        let stale_from = self.entries().map(Entry::fresh_at).min();
        self.retry_at = stale_from.unwrap_or(Timestamp::EPOCH);
        self.retry_after = self.capacity / 16;
        Err(Full)
    }

    /// Drops what is stale and gives memory back that is not needed.
    pub(super) fn shrink(&mut self, now: Timestamp, allowance: &impl Allowance, mut dropped: impl FnMut(Entry)) {
        if self.capacity > 0 {
            self.rebuild(1, now, allowance, &mut dropped);
        }
    }

    #[inline]
    fn home(&self, hash: Hash) -> usize {
        ((u128::from(hash.high) * self.capacity as u128) >> 64) as usize
    }

    /// Puts `entry` in its place, if there is a stale cell or an empty slot near enough.
    fn place(&mut self, entry: Entry, now: Timestamp, dropped: &mut impl FnMut(Entry)) -> bool {
        let home = self.home(entry.hash);
        let Some(tail) = self.slots.get(home..) else { return false };
        let before = tail.iter().take_while(|e| !e.is_empty() && e.hash.high <= entry.hash.high).count();
        let Some(free) = tail.iter().skip(before).position(|e| e.is_stale(now)) else { return false };
        let (target, free) = (home + before, home + before + free);

        let was_empty = self.slots.get(free).is_none_or(Entry::is_empty);
        if was_empty && (self.used >= most_used(self.capacity) || free + 1 >= self.slots.len()) {
            return false;
        }
        if let Some(stale) = self.slots.get(free).filter(|e| !e.is_empty()) {
            dropped(*stale);
        }
        self.used += usize::from(was_empty);
        self.slots.copy_within(target..free, target + 1);
        if let Some(slot) = self.slots.get_mut(target) {
            *slot = entry;
        }
        true
    }

    /// Drops what is stale and changes the capacity to suit what is left and one more. `false` if that cannot be had.
    fn rebuild(
        &mut self,
        margin_factor: usize,
        now: Timestamp,
        allowance: &impl Allowance,
        dropped: &mut impl FnMut(Entry),
    ) -> bool {
        let live = self.squeeze(now, dropped);
        let capacity = roomy(live + 1);
        let mut margin = margin(capacity) * margin_factor;
        while self.resize(capacity + margin + 1, allowance) {
            if self.spread(live, capacity) {
                return true;
            }
            margin *= 2;
        }
        // What is there has to do: it held all of them before.
        self.spread_within_present(live);
        margin_factor == 1 && live < most_used(self.capacity)
    }

    /// Moves what is not stale to the front, in order, and returns how many entries that is.
    fn squeeze(&mut self, now: Timestamp, dropped: &mut impl FnMut(Entry)) -> usize {
        let mut live = 0;
        for index in 0..self.slots.len() {
            let Some(&entry) = self.slots.get(index) else { break };
            if entry.is_empty() {
                continue;
            }
            if entry.is_stale(now) {
                dropped(entry);
                continue;
            }
            if let Some(slot) = self.slots.get_mut(live) {
                *slot = entry;
            }
            live += 1;
        }
        self.slots.iter_mut().skip(live).for_each(|slot| *slot = Entry::EMPTY);
        self.used = live;
        live
    }

    fn resize(&mut self, length: usize, allowance: &impl Allowance) -> bool {
        let slot = size_of::<Entry>();
        match length.checked_sub(self.slots.len()) {
            Some(more) => {
                if !allowance.take(more * slot) {
                    return false;
                }
                if self.slots.try_reserve_exact(more).is_err() {
                    allowance.give_back(more * slot);
                    return false;
                }
                self.slots.resize(length, Entry::EMPTY);
            }
            None => {
                allowance.give_back((self.slots.len() - length) * slot);
                self.slots.truncate(length);
                self.slots.shrink_to_fit();
            }
        }
        true
    }

    /// Spreads the `live` entries at the front over homes of `capacity`. `false`, and nothing changed, if they would run over
    /// the end.
    fn spread(&mut self, live: usize, capacity: usize) -> bool {
        let homes = |entry: &Entry| ((u128::from(entry.hash.high) * capacity as u128) >> 64) as usize;
        let mut next = 0;
        for entry in self.slots.iter().take(live) {
            next = homes(entry).max(next) + 1;
        }
        if next >= self.slots.len() {
            return false;
        }
        self.capacity = capacity;
        // From the end of the table towards the front, every entry is read before its slot is written.
        let offset = self.slots.len() - live;
        self.slots.copy_within(..live, offset);
        self.slots.iter_mut().take(offset).for_each(|slot| *slot = Entry::EMPTY);
        let mut next = 0;
        for from in offset..self.slots.len() {
            let Some(&entry) = self.slots.get(from) else { break };
            let to = homes(&entry).max(next);
            if let Some(slot) = self.slots.get_mut(from) {
                *slot = Entry::EMPTY;
            }
            if let Some(slot) = self.slots.get_mut(to) {
                *slot = entry;
            }
            next = to + 1;
        }
        true
    }

    /// Spreads over the slots that there are, with fewer homes if need be.
    fn spread_within_present(&mut self, live: usize) {
        let mut capacity = self.capacity;
        while capacity > 0 && !self.spread(live, capacity) {
            capacity -= capacity / 16 + 1;
        }
        self.capacity = capacity;
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
        Hash { high: mix(n), low: mix(!n) }
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
            assert!(table.slots[home..index].iter().all(|e| !e.is_empty()), "a gap before it");
            assert!(slot.hash.high >= last, "out of order");
            last = slot.hash.high;
        }
        assert_eq!(table.used, table.entries().count());
        assert!(table.slots.last().is_none_or(Entry::is_empty));
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
        assert!(table.slots.capacity() * 32 <= budget);
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
            if key > 500 {
                let bytes = table.slots.capacity() * size_of::<Entry>();
                assert!(bytes as u64 <= key * 41, "{bytes} bytes for {key} keys");
            }
        }
        table.shrink(Timestamp::from_micros(1_000), &plenty, |_| {});
        assert!(table.slots.capacity() < 32);
    }

    #[test]
    fn equal_high_halves_stay_apart() {
        let (mut table, plenty) = (Table::default(), Bytes::new(usize::MAX / 2));
        let now = Timestamp::from_micros(1);
        for low in 0..100 {
            let hash = Hash { high: u64::MAX, low };
            let cell = Cell { fresh_at: now.plus(Micros::SECOND), word: low };
            table.insert(Entry::new(hash, cell, low % 2 == 0), now, &plenty, |_| {}).unwrap();
        }
        check(&table);
        for low in 0..100 {
            let found = table.find(Hash { high: u64::MAX, low }).and_then(|index| table.get(index)).unwrap();
            assert_eq!((found.word, found.is_elsewhere()), (low, low % 2 == 0));
        }
    }
}
