//! Memory for the entries of tables, in pieces of one size.
//!
//! One of the files with `unsafe` in them. What it relies on: a place is handed out to one chunk at a time, it is
//! inside a region, and a region is returned to the system only when none of its places is out. Entries are plain
//! integers, so nothing has to be dropped.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

use super::region::{LARGE, Region};
use super::slots::CHUNK;
use super::table::Entry;

/// Places in a region.
const PLACES: usize = LARGE / size_of::<Entries>();

type Entries = [Entry; CHUNK];

/// The entries of a chunk, owned as by a box.
pub(super) struct Chunk(NonNull<Entries>);

// SAFETY: the entries are reached through their owner alone, and are integers.
#[allow(unsafe_code, reason = "a pointer that is owned is no reason to stay on one thread")]
unsafe impl Send for Chunk {}
// SAFETY: as above; whoever shares the owner can only read.
#[allow(unsafe_code, reason = "as above")]
unsafe impl Sync for Chunk {}

/// All regions of the process. Nothing is done under this lock but what is in this file.
static POOL: Mutex<Pool> = Mutex::new(Pool { regions: BTreeMap::new(), open: BTreeSet::new() });

impl Chunk {
    /// An empty one, or `None` if there is no memory.
    pub(super) fn new() -> Option<Self> {
        let place = POOL.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        // SAFETY: a place is as large as the entries and aligned for them, and is nobody else's.
        #[allow(unsafe_code, reason = "the place is not yet initialized")]
        unsafe {
            place.write([Entry::EMPTY; CHUNK]);
        }
        Some(Self(place))
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        POOL.lock().unwrap_or_else(PoisonError::into_inner).give_back(self.0);
    }
}

impl Deref for Chunk {
    type Target = Entries;

    #[inline(always)]
    fn deref(&self) -> &Entries {
        // SAFETY: initialized when it was made, and this chunk's until it is dropped.
        #[allow(unsafe_code, reason = "as a box does")]
        unsafe {
            self.0.as_ref()
        }
    }
}

impl DerefMut for Chunk {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Entries {
        // SAFETY: as above.
        #[allow(unsafe_code, reason = "as a box does")]
        unsafe {
            self.0.as_mut()
        }
    }
}

/// Regions, by address.
#[derive(Default)]
struct Pool {
    regions: BTreeMap<usize, Places>,
    /// Those that have free places. The lowest is used first, so that others become empty.
    open: BTreeSet<usize>,
}

struct Places {
    region: Region,
    /// A bit for each place that is free.
    free: [u64; PLACES / 64],
    taken: usize,
}

impl Pool {
    fn take(&mut self) -> Option<NonNull<Entries>> {
        if self.open.is_empty() {
            let region = Region::new(LARGE)?;
            let at = region.start().addr().get();
            self.regions.insert(at, Places { region, free: [u64::MAX; PLACES / 64], taken: 0 });
            self.open.insert(at);
        }
        let at = *self.open.first()?;
        let places = self.regions.get_mut(&at)?;
        let place = places.take();
        if places.taken == PLACES {
            self.open.remove(&at);
            places.region.fill();
        }
        place
    }

    fn give_back(&mut self, place: NonNull<Entries>) {
        let at = place.addr().get() & !(LARGE - 1);
        let Some(places) = self.regions.get_mut(&at) else { return };
        places.give_back(place);
        self.open.insert(at);
        // One that is empty may stay, for whoever needs a chunk next.
        if places.taken == 0 && self.open.len() > 1 {
            self.regions.remove(&at);
            self.open.remove(&at);
        }
    }
}

impl Places {
    fn take(&mut self) -> Option<NonNull<Entries>> {
        let (word, bits) = self.free.iter_mut().enumerate().find(|(_, bits)| **bits != 0)?;
        let bit = bits.trailing_zeros() as usize;
        *bits &= *bits - 1;
        self.taken += 1;
        // SAFETY: the place is one of the region's.
        #[allow(unsafe_code, reason = "a step inside the region")]
        Some(unsafe { self.region.start().cast::<Entries>().add(word * 64 + bit) })
    }

    fn give_back(&mut self, place: NonNull<Entries>) {
        let number = (place.addr().get() % LARGE) / size_of::<Entries>();
        if let Some(bits) = self.free.get_mut(number / 64) {
            *bits |= 1 << (number % 64);
            self.taken -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::{Cell, Timestamp};

    use super::super::hash::Hash;
    use super::*;

    fn mark(chunk: &mut Chunk, number: u64) {
        let cell = Cell { fresh_at: Timestamp::from_micros(number + 1), word: number };
        chunk.fill(Entry::new(Hash::new(number << 32, number), cell, false));
    }

    fn is_marked(chunk: &Chunk, number: u64) -> bool {
        chunk.iter().all(|entry| entry.hash == Hash::new(number << 32, number) && entry.word == number)
    }

    #[test]
    fn chunks_are_empty_when_new_and_nobody_elses() {
        let count = if cfg!(miri) { 40 } else { 3 * PLACES as u64 };
        let new = |number| {
            let mut chunk = Chunk::new().unwrap();
            assert!(chunk.iter().all(|entry| *entry == Entry::EMPTY));
            mark(&mut chunk, number);
            (number, chunk)
        };
        let mut chunks: Vec<_> = (0..count).map(new).collect();
        chunks.retain(|(number, _)| number % 3 != 1);
        chunks.extend((count..2 * count).map(new));
        assert!(chunks.iter().all(|(number, chunk)| is_marked(chunk, *number)));
    }

    #[test]
    fn regions_are_used_up_before_there_are_more_and_go_when_they_are_empty() {
        let mut pool = Pool::default();
        let places: Vec<_> = (0..2 * PLACES + 1).map(|_| pool.take().unwrap()).collect();
        assert_eq!((pool.regions.len(), pool.open.len()), (3, 1));
        assert!(places.iter().all(|place| place.addr().get() % size_of::<Entries>() == 0));
        let mut distinct: Vec<usize> = places.iter().map(|place| place.addr().get()).collect();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), places.len());

        let (kept, gone) = places.split_first().unwrap();
        gone.iter().for_each(|place| pool.give_back(*place));
        assert_eq!(pool.regions.len(), 1, "all but that of the one that is kept");
        assert_eq!(pool.regions.keys().next(), Some(&(kept.addr().get() & !(LARGE - 1))));
        pool.give_back(*kept);
        assert_eq!(pool.regions.len(), 1, "one may stay");
    }

    /// What the system was told about the pages at `address`.
    #[cfg(all(target_os = "linux", not(miri)))]
    fn advice_at(address: usize) -> String {
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let is_inside = |line: &str| {
            let (start, end) = line.split_once(' ')?.0.split_once('-')?;
            let bounds = [start, end].map(|bound| usize::from_str_radix(bound, 16).ok());
            Some((bounds[0]?..bounds[1]?).contains(&address))
        };
        let of_it = maps.lines().skip_while(|line| is_inside(line) != Some(true));
        of_it.into_iter().find_map(|line| line.strip_prefix("VmFlags:")).unwrap_or_default().to_owned()
    }

    #[test]
    #[cfg(all(target_os = "linux", not(miri)))]
    fn large_pages_are_asked_for_when_a_region_is_full_and_not_before() {
        let has_large_pages = std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists();
        let mut pool = Pool::default();
        let first = pool.take().unwrap();
        let is_told = |flag| advice_at(first.addr().get()).split_whitespace().any(|known| known == flag);
        assert_eq!((is_told("nh"), is_told("hg")), (has_large_pages, false));
        (1..PLACES).for_each(|_| assert!(pool.take().is_some()));
        assert_eq!((is_told("nh"), is_told("hg")), (false, has_large_pages));
    }
}
