//! Where entries probably are.
//!
//! A decision waits for two cache lines: that of its table's lock, which another processor may have, and that of its entry, which
//! is often in no cache at all. The entry's address is known only under the lock, so one wait would follow the other. This is a
//! copy of those addresses that is read without the lock, by which both lines are asked for at once.
//!
//! In a table that is nine tenths full most entries lie some slots right of their homes, and each line on the way there is one
//! more to wait for. How far entries are pushed changes little from one home to the next, so it is noted here for every few
//! homes, in four bits: then an entry is mostly on the first line that is looked at, or on the second.
//!
//! It is never relied on: a hint that is out of date costs time and nothing else. Its own lines are written
//! when keys are new and at no other time, so every processor has them.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::SHARDS;
use super::hash::Hash;
use super::prefetch::{LINE, prefetch, prefetch_to_read};
use super::slots::CHUNK;
use super::table::{Entry, home};

/// Chunks of a table for which there are hints. Entries beyond are found without help.
const ROWS: usize = 2048;

/// An entry is on the line where the search begins or on the next one, in nine of ten cases.
pub(super) const LINES: usize = 2;

/// So many homes share a note of how far their entries are pushed.
const GROUP: usize = 2;
/// Such notes in a word,
const NOTES: usize = 64 / BITS;
/// of so many bits each.
const BITS: usize = 4;
/// What is pushed further is looked for from here.
const MOST: usize = (1 << BITS) - 1;
/// Words for a chunk.
const WORDS: usize = CHUNK / GROUP / NOTES;

/// The slot of what cannot be guessed.
pub(super) const NOWHERE: usize = usize::MAX;
/// The slot of what was found last, which the table knows.
pub(super) const RECENT: usize = usize::MAX - 1;

pub(super) struct Hints {
    /// The number of homes of each table.
    capacities: Box<[AtomicUsize; SHARDS]>,
    /// All tables' first chunks, then all second chunks, and so on: so there are as many rows as a table has chunks.
    rows: Box<[OnceLock<Box<[Hint; SHARDS]>>; ROWS]>,
}

/// What is known of a chunk.
#[derive(Default)]
struct Hint {
    address: AtomicUsize,
    pushes: [AtomicU64; WORDS],
}

impl Default for Hints {
    fn default() -> Self {
        Self {
            capacities: Box::new(std::array::from_fn(|_| AtomicUsize::new(0))),
            rows: Box::new(std::array::from_fn(|_| OnceLock::new())),
        }
    }
}

impl Hints {
    /// Fetches `lines` where the entry of `hash` is, if it is where it was last, and says in which slot to begin the search.
    #[inline(always)]
    pub(super) fn prefetch(&self, table: usize, hash: Hash, lines: usize) -> usize {
        let Some((slot, address)) = self.guess(table, hash) else { return NOWHERE };
        (0..lines).for_each(|line| prefetch(address + line * LINE));
        slot
    }

    /// Fetches what [`Self::prefetch`] will read.
    #[inline(always)]
    pub(super) fn approach(&self, table: usize, hash: Hash) {
        let home = home(hash, self.capacities[table].load(Ordering::Relaxed));
        if let Some(hint) = self.hint(table, home / CHUNK) {
            prefetch_to_read(std::ptr::from_ref(hint).addr());
        }
    }

    /// The slot where a search for `hash` best begins, and its address.
    #[inline(always)]
    fn guess(&self, table: usize, hash: Hash) -> Option<(usize, usize)> {
        let home = home(hash, self.capacities[table].load(Ordering::Relaxed));
        let at_home = self.hint(table, home / CHUNK)?;
        let pushes = at_home.pushes[home / GROUP / NOTES % WORDS].load(Ordering::Relaxed);
        let slot = home.max(home / GROUP * GROUP + push(pushes, home / GROUP));
        let hint = if slot / CHUNK == home / CHUNK { at_home } else { self.hint(table, slot / CHUNK)? };
        Some((slot, hint.address.load(Ordering::Relaxed) + slot % CHUNK * size_of::<Entry>()))
    }

    #[inline(always)]
    fn hint(&self, table: usize, chunk: usize) -> Option<&Hint> {
        Some(&self.rows.get(chunk)?.get()?[table])
    }

    /// Takes note of a table that changed its size.
    pub(super) fn update(&self, table: usize, capacity: usize, chunks: impl Iterator<Item = usize>) {
        self.capacities[table].store(capacity, Ordering::Relaxed);
        for (chunk, address) in chunks.take(ROWS).enumerate() {
            self.change(table, chunk, |hint| hint.address.store(address, Ordering::Relaxed));
        }
    }

    /// Takes note of how far the entries of some homes are pushed: those of the word numbered `word`.
    pub(super) fn spread(&self, table: usize, word: usize, pushes: u64) {
        self.change(table, word / WORDS, |hint| hint.pushes[word % WORDS].store(pushes, Ordering::Relaxed));
    }

    /// Takes note of a new entry, which pushed all from where it lies to before the slot `free`.
    pub(super) fn inserted(&self, table: usize, home: usize, free: usize) {
        let (mut group, last) = (home / GROUP + 1, free / GROUP);
        while group <= last {
            let word = group / NOTES;
            self.change(table, word / WORDS, |hint| {
                let noted = &hint.pushes[word % WORDS];
                let mut pushes = noted.load(Ordering::Relaxed);
                for group in group..(last + 1).min((word + 1) * NOTES) {
                    let push = push(pushes, group);
                    // What lies right of the free slot was not moved.
                    if push < MOST && group * GROUP + push <= free {
                        pushes += 1 << (group % NOTES * BITS);
                    }
                }
                noted.store(pushes, Ordering::Relaxed);
            });
            group = (word + 1) * NOTES;
        }
    }

    fn change(&self, table: usize, chunk: usize, change: impl FnOnce(&Hint)) {
        if let Some(row) = self.rows.get(chunk) {
            change(&row.get_or_init(|| Box::new(std::array::from_fn(|_| Hint::default())))[table]);
        }
    }
}

/// How far the first entry of `group` is pushed, of those that are noted in one word.
#[inline(always)]
fn push(pushes: u64, group: usize) -> usize {
    (pushes >> (group % NOTES * BITS)) as usize & MOST
}

/// Notes, entry by entry from left to right, how far each group is pushed.
#[derive(Default)]
pub(super) struct Pushes {
    group: usize,
    word: u64,
}

impl Pushes {
    /// The next entry's home is `home`, and the next slot after the last one is `next`. Words that are complete go to `done`.
    #[inline(always)]
    pub(super) fn note(&mut self, home: usize, next: usize, mut done: impl FnMut(usize, u64)) {
        while self.group * GROUP <= home {
            let push = next.saturating_sub(self.group * GROUP).min(MOST);
            self.word |= (push as u64) << (self.group % NOTES * BITS);
            self.group += 1;
            if self.group.is_multiple_of(NOTES) {
                done(self.group / NOTES - 1, self.word);
                self.word = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::{Cell, Micros, Timestamp, mix};

    use super::super::budget::{Ground, Unbounded};
    use super::super::table::Table;
    use super::*;

    fn hash(key: u64) -> Hash {
        Hash::new(mix(key), key)
    }

    /// Everything that is noted is so.
    fn check(hints: &Hints, table: &Table) {
        // For each slot, the first one right of all entries whose homes are left of it.
        let mut beyond: Vec<usize> = (0..table.len()).collect();
        for slot in 0..table.len() {
            let Some(entry) = table.get(slot).filter(|entry| entry.fresh_at() > Timestamp::EPOCH) else { continue };
            for later in &mut beyond[table.home(entry.hash) + 1..] {
                *later = slot.max(*later - 1) + 1;
            }
        }
        for key in 0..1_000 {
            let home = table.home(hash(key));
            let group = home / GROUP * GROUP;
            let expected = beyond.get(group).map(|first| home.max((*first).min(group + MOST)));
            let address = expected.and_then(|slot| table.get(slot)).map(|entry| std::ptr::from_ref(entry).addr());
            assert_eq!(hints.guess(1, hash(key)), expected.zip(address));
        }
    }

    #[test]
    fn hints_follow_a_table_that_grows_and_shrinks() {
        let (hints, mut table) = (Hints::default(), Table::default());
        let ground = Ground { allowance: &Unbounded, hints: &hints, table: 1 };
        let mut now = Timestamp::from_secs(1);
        for key in 0..5_000 {
            // Some make way for others before the next rebuild.
            now = now.plus(Micros::from_micros(500));
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
