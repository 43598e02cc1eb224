//! Memory for the entries of tables, apart from all other memory.
//!
//! Chunks are taken by the ten thousand and stay, while almost everything that is allocated between them goes again. On the common
//! heap they would leave it full of holes of every size, and whoever allocates anything would have to search these: a service with
//! a million keys spent a sixth of its time that way. So chunks have regions of their own.
//!
//! A region is as large as a large page and lies where one could. When it is full for the first time, the system is asked to make
//! a large page of it when it likes: what is not in any cache is then waited for once, and not for the tables of pages as well.
//! Not before, and it is told so, since a large page has to be emptied as a whole, which takes longer than a decision may.
//!
//! One of two files of the workspace with `unsafe` in it. What it relies on: a place is handed out to one chunk at a time, it is
//! inside a region, and a region is returned to the system only when none of its places is out. Entries are plain integers, so
//! nothing has to be dropped.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

use super::slots::CHUNK;
use super::table::Entry;

/// Bytes of a region, and what it is aligned to.
const REGION: usize = 2 << 20;
/// Places in a region.
const PLACES: usize = REGION / size_of::<Entries>();

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
    regions: BTreeMap<usize, Region>,
    /// Those that have free places. The lowest is used first, so that others become empty.
    open: BTreeSet<usize>,
}

struct Region {
    start: NonNull<Entries>,
    /// A bit for each place that is free.
    free: [u64; PLACES / 64],
    taken: usize,
    /// Whether a large page was asked for.
    is_enlarged: bool,
}

// SAFETY: a region is memory, which is everybody's; who may touch which place is for the chunks to say.
#[allow(unsafe_code, reason = "as for chunks")]
unsafe impl Send for Region {}

impl Pool {
    fn take(&mut self) -> Option<NonNull<Entries>> {
        if self.open.is_empty() {
            let start = system::map()?;
            let region = Region { start, free: [u64::MAX; PLACES / 64], taken: 0, is_enlarged: false };
            self.regions.insert(start.addr().get(), region);
            self.open.insert(start.addr().get());
        }
        let at = *self.open.first()?;
        let region = self.regions.get_mut(&at)?;
        let place = region.take();
        if region.taken == PLACES {
            self.open.remove(&at);
            if !std::mem::replace(&mut region.is_enlarged, true) {
                system::enlarge(region.start);
            }
        }
        place
    }

    fn give_back(&mut self, place: NonNull<Entries>) {
        let at = place.addr().get() & !(REGION - 1);
        let Some(region) = self.regions.get_mut(&at) else { return };
        region.give_back(place);
        self.open.insert(at);
        // One that is empty may stay, for whoever needs a chunk next.
        if region.taken == 0 && self.open.len() > 1 {
            let start = region.start;
            self.regions.remove(&at);
            self.open.remove(&at);
            system::unmap(start);
        }
    }
}

impl Region {
    fn take(&mut self) -> Option<NonNull<Entries>> {
        let (word, bits) = self.free.iter_mut().enumerate().find(|(_, bits)| **bits != 0)?;
        let bit = bits.trailing_zeros() as usize;
        *bits &= *bits - 1;
        self.taken += 1;
        // SAFETY: the place is one of the region's.
        #[allow(unsafe_code, reason = "a step inside the region")]
        Some(unsafe { self.start.add(word * 64 + bit) })
    }

    fn give_back(&mut self, place: NonNull<Entries>) {
        let number = (place.addr().get() % REGION) / size_of::<Entries>();
        if let Some(bits) = self.free.get_mut(number / 64) {
            *bits |= 1 << (number % 64);
            self.taken -= 1;
        }
    }
}

/// Where regions come from.
#[cfg(all(target_os = "linux", not(miri)))]
mod system {
    use std::ptr::NonNull;

    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

    use super::{Entries, REGION};

    /// A region whose bytes are zero and, until they are touched, take no memory.
    #[allow(unsafe_code, reason = "mapping memory has no safe name")]
    pub(super) fn map() -> Option<NonNull<Entries>> {
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: new memory, wherever the system likes; of twice the size, a region lies in it somewhere.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), 2 * REGION, access, flags) }.ok()?;
        let before = start.addr().next_multiple_of(REGION) - start.addr();
        // SAFETY: both parts are inside what was mapped, and nobody knows of them. What is not unmapped is never touched.
        let region = unsafe {
            let region = start.byte_add(before);
            let _stays = if before > 0 { munmap(start, before) } else { Ok(()) };
            let _stays = munmap(region.byte_add(REGION), REGION - before);
            region
        };
        let region = NonNull::new(region.cast())?;
        advise(region, Advice::LinuxNoHugepage);
        Some(region)
    }

    /// Asks for a large page.
    pub(super) fn enlarge(region: NonNull<Entries>) {
        advise(region, Advice::LinuxHugepage);
    }

    /// Gives advice about large pages. Systems that have none say so, which changes nothing.
    #[allow(unsafe_code, reason = "advice has no safe name")]
    fn advise(region: NonNull<Entries>, advice: Advice) {
        // SAFETY: neither advice changes anything of what is in memory, nor whether it may be used.
        let _not_to_be_had = unsafe { madvise(region.as_ptr().cast(), REGION, advice) };
    }

    /// Gives a region back that nobody uses.
    #[allow(unsafe_code, reason = "as for mapping")]
    pub(super) fn unmap(region: NonNull<Entries>) {
        // SAFETY: it was mapped by `map`, none of its places is out, and it is unmapped once.
        let _stays = unsafe { munmap(region.as_ptr().cast(), REGION) };
    }
}

/// The same from the common heap.
#[cfg(not(all(target_os = "linux", not(miri))))]
mod system {
    use std::alloc::{Layout, alloc, dealloc};
    use std::ptr::NonNull;

    use super::{Entries, REGION};

    fn layout() -> Option<Layout> {
        Layout::from_size_align(REGION, REGION).ok()
    }

    #[allow(unsafe_code, reason = "allocating without a type has no safe name")]
    pub(super) fn map() -> Option<NonNull<Entries>> {
        // SAFETY: its size is not zero.
        NonNull::new(unsafe { alloc(layout()?) }.cast())
    }

    pub(super) fn enlarge(_region: NonNull<Entries>) {}

    #[allow(unsafe_code, reason = "as for allocating")]
    pub(super) fn unmap(region: NonNull<Entries>) {
        if let Some(layout) = layout() {
            // SAFETY: it came from `map`, with this layout, and is freed once.
            unsafe { dealloc(region.as_ptr().cast(), layout) };
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
        chunk.fill(Entry::new(Hash::new(number, number), cell, false));
    }

    fn is_marked(chunk: &Chunk, number: u64) -> bool {
        chunk.iter().all(|entry| entry.hash.high == number && entry.word == number)
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
        assert_eq!(pool.regions.keys().next(), Some(&(kept.addr().get() & !(REGION - 1))));
        pool.give_back(*kept);
        assert_eq!(pool.regions.len(), 1, "one may stay");
        pool.regions.values().for_each(|region| system::unmap(region.start));
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
        pool.regions.values().for_each(|region| system::unmap(region.start));
    }
}
