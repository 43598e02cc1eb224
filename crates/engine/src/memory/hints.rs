//! Where entries probably are.
//!
//! A decision waits for two cache lines: that of its table's lock, which another processor may have, and that of its entry, which
//! is often in no cache at all. The entry's address is known only under the lock, so one wait would follow the other. This is a
//! copy of those addresses that is read without the lock, by which both lines are asked for at once.
//!
//! It is never followed, only prefetched: an address that is out of date costs time and nothing else. Its own lines are written
//! when tables change their size and at no other time, so every processor has them.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::hash::Hash;
use super::prefetch::{LINE, prefetch};
use super::slots::CHUNK;
use super::table::{Entry, home};

/// Chunks of a table whose addresses are kept. Entries beyond are found without help.
const ROWS: usize = 2048;

/// An entry is on this line or on the next ones, in nearly all cases.
const LINES: usize = 4;

pub(super) struct Hints {
    /// The number of homes of each table.
    capacities: Box<[AtomicUsize]>,
    /// The addresses of all tables' first chunks, then of all second chunks, and so on: so there are as many rows as a table has
    /// chunks.
    rows: Box<[OnceLock<Box<[AtomicUsize]>>]>,
}

impl Hints {
    pub(super) fn new(tables: usize) -> Self {
        Self { capacities: zeros(tables), rows: (0..ROWS).map(|_| OnceLock::new()).collect() }
    }

    /// Fetches the entry of `hash`, if it is where it was last.
    #[inline(always)]
    pub(super) fn prefetch(&self, table: usize, hash: Hash) {
        if let Some(address) = self.address(table, hash) {
            (0..LINES).for_each(|line| prefetch(address + line * LINE));
        }
    }

    /// Where a search for `hash` begins.
    #[inline(always)]
    fn address(&self, table: usize, hash: Hash) -> Option<usize> {
        let home = home(hash, self.capacities[table].load(Ordering::Relaxed));
        let row = self.rows.get(home / CHUNK)?.get()?;
        Some(row[table].load(Ordering::Relaxed) + home % CHUNK * size_of::<Entry>())
    }

    /// Takes note of a table that changed its size.
    pub(super) fn update(&self, table: usize, capacity: usize, chunks: impl Iterator<Item = usize>) {
        self.capacities[table].store(capacity, Ordering::Relaxed);
        for (row, address) in self.rows.iter().zip(chunks) {
            row.get_or_init(|| zeros(self.capacities.len()))[table].store(address, Ordering::Relaxed);
        }
    }
}

fn zeros(count: usize) -> Box<[AtomicUsize]> {
    (0..count).map(|_| AtomicUsize::new(0)).collect()
}

#[cfg(test)]
mod tests {
    use tollgate_core::{Cell, Micros, Timestamp, mix};

    use super::super::budget::{Ground, Unbounded};
    use super::super::table::Table;
    use super::*;

    fn hash(key: u64) -> Hash {
        Hash { high: mix(key), low: key }
    }

    fn check(hints: &Hints, table: &Table) {
        for key in 0..1_000 {
            let slot = table.get(table.home(hash(key))).map(|entry| std::ptr::from_ref(entry).addr());
            assert_eq!(hints.address(1, hash(key)), slot);
        }
    }

    #[test]
    fn hints_follow_a_table_that_grows_and_shrinks() {
        let (hints, mut table) = (Hints::new(2), Table::default());
        let ground = Ground { allowance: &Unbounded, hints: &hints, table: 1 };
        let now = Timestamp::from_secs(1);
        for key in 0..5_000 {
            let stays = if key % 8 == 0 { Micros::HOUR } else { Micros::SECOND };
            let entry = Entry::new(hash(key), Cell { fresh_at: now.plus(stays), word: 0 }, false);
            assert_eq!(table.insert(entry, now, &ground, |_| {}), Ok(()));
            if key % 500 == 0 {
                check(&hints, &table);
            }
        }
        table.shrink(now.plus(Micros::MINUTE), &ground, |_| {});
        check(&hints, &table);
    }
}
