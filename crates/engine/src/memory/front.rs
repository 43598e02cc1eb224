//! Where blocks are.
//!
//! Each table has so many blocks, and a key's home is its hash scaled to their number: nothing has to be looked up but
//! that number, which is in the nearest cache. Blocks lie in rows: the first few of every table side by side, then the
//! next few of every table. So there is one address for many blocks, and a row can become a large page of the system.
//!
//! ```text
//!             table 0        table 1        table 2
//!   row 0   │ 0 1 … 15     │ 0 1 … 15     │ 0 1 … 15     │
//!   row 1   │ 16 17 …      │ 16 17 …      │ 16 17 …      │
//! ```
//!
//! The number is read without a lock, and may be another one by the time the block's lock is had. So it is read again
//! then: it changes only while somebody holds all blocks of the table (`rebuild.rs`). Memory of blocks stays mapped
//! while the store lives, so that whoever is mistaken meets a block that is empty and not in use, and nothing else.
//!
//! One of the files with `unsafe` in them. What it relies on: a row that was needed once stays where it is, and is
//! large enough for every table.

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::AtomicPtr;

use tollgate_core::Timestamp;

use super::block::{Block, Locked};
use super::hash::Hash;
use super::prefetch::{LINE, prefetch};
use super::region::{LARGE, Region};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Lock, relax};

/// Blocks that a table takes or gives back at once: 2 KiB.
pub(super) const CHUNK: usize = if cfg!(shuttle) { 2 } else { 16 };
/// What is taken of the budget for them.
pub(super) const CHUNK_BYTES: usize = CHUNK * 128;
/// So many tables have their chunks of a row on one large page.
const TABLES_PER_PAGE: usize = LARGE / CHUNK_BYTES;
/// How often a lock is tried before others are given way to.
const SPINS: usize = if cfg!(shuttle) { 1 } else { 32 };
/// So many blocks ahead of the one that is locked, all of a table are fetched.
const AHEAD: usize = 8;
/// A table has no more chunks than this: some million keys.
const ROWS: usize = 1 << 14;

pub(super) struct Front {
    /// Of each table the number of its blocks, and above it how often that has changed.
    sizes: Box<[AtomicU64]>,
    /// Where each row begins.
    rows: Box<[AtomicPtr<Block>]>,
    ground: Lock<Vec<Row>>,
    /// How many tables there are.
    tables: usize,
    recent: Recent,
}

/// A block that was asked for not long ago, and by what: one key that is asked for again and again, as by a client that
/// floods, is not searched for. It is noted now and then only, so that threads do not pass it back and forth, and never
/// relied on: whether a key is there is seen there.
#[repr(align(128))]
#[derive(Default)]
struct Recent {
    low: AtomicU64,
    block: AtomicPtr<Block>,
}

struct Row {
    region: Region,
    /// How many tables use it.
    users: usize,
    pages: Box<[Page]>,
}

/// Of a row what is given back to the system at once: no decision waits for more.
#[derive(Clone)]
struct Page {
    /// How many tables use it.
    users: usize,
    /// Whether nobody has used it since its memory was given back.
    is_clear: bool,
}

impl Row {
    /// One with room for so many tables.
    fn new(tables: usize) -> Option<Self> {
        let region = Region::new(tables * CHUNK * size_of::<Block>())?;
        // Zeroes are empty blocks, but not where locks are replaced by others.
        if cfg!(shuttle) {
            for index in 0..tables * CHUNK {
                // SAFETY: inside the region, which is large enough, aligned, and nobody else's.
                #[allow(unsafe_code, reason = "blocks are made in place")]
                unsafe {
                    region.start().cast::<Block>().add(index).write(Block::default());
                }
            }
        }
        let page = Page { users: 0, is_clear: true };
        Some(Self { region, users: 0, pages: vec![page; tables.div_ceil(TABLES_PER_PAGE)].into() })
    }
}

/// A block that was the home of some hash a moment ago.
#[derive(Clone, Copy)]
pub(super) struct Home<'s> {
    block: &'s Block,
    size: u64,
}

impl Home<'_> {
    /// Fetches it.
    #[inline(always)]
    pub(super) fn prefetch(&self) {
        let address = std::ptr::from_ref(self.block).addr();
        prefetch(address);
        prefetch(address + LINE);
    }
}

impl Front {
    pub(super) fn new(tables: usize) -> Self {
        Self {
            sizes: (0..tables).map(|_| AtomicU64::new(0)).collect(),
            rows: (0..ROWS).map(|_| AtomicPtr::default()).collect(),
            ground: Lock::new(Vec::new()),
            tables,
            recent: Recent::default(),
        }
    }

    /// Whether it was noted where `hash` is.
    #[inline(always)]
    pub(super) fn is_recent(&self, hash: Hash) -> bool {
        self.recent.low.load(Ordering::Relaxed) == hash.low
    }

    /// Locks the block that was noted.
    #[inline(always)]
    pub(super) fn lock_recent(&self) -> Option<Locked<'_>> {
        let block = NonNull::new(self.recent.block.load(Ordering::Acquire))?;
        // SAFETY: it is one of this store's blocks, which stay where they are.
        #[allow(unsafe_code, reason = "a block that was had before")]
        unsafe { block.as_ref() }.try_lock()
    }

    /// Takes note of where `hash` is, if it is time to.
    #[inline(always)]
    pub(super) fn remember(&self, hash: Hash, home: Home<'_>, now: Timestamp) {
        /// One in so many keys is noted at any time, and another one at another: one that is asked for all the time
        /// soon is.
        const ONCE_IN: u64 = 512;
        // Not by the time alone, which may be one of whole seconds.
        if (now.as_micros() ^ hash.low).is_multiple_of(ONCE_IN) {
            self.recent.block.store(std::ptr::from_ref(home.block).cast_mut(), Ordering::Release);
            self.recent.low.store(hash.low, Ordering::Relaxed);
        }
    }

    /// How many blocks a table has.
    #[inline(always)]
    pub(super) fn blocks(&self, table: usize) -> usize {
        blocks(self.sizes[table].load(Ordering::Acquire))
    }

    /// Where `hash` is at home. `None` while its table has no blocks.
    #[inline(always)]
    pub(super) fn home(&self, table: usize, hash: Hash) -> Option<Home<'_>> {
        let size = self.sizes[table].load(Ordering::Acquire);
        let index = place(hash, blocks(size));
        // Without blocks there is no first one either.
        let block = if size as u32 == 0 { None } else { self.block(table, index) }?;
        Some(Home { block, size })
    }

    /// Locks the home of `hash`, which was at `home` a moment ago.
    #[inline(always)]
    pub(super) fn lock<'s>(&'s self, table: usize, hash: Hash, home: Home<'s>) -> Option<Locked<'s>> {
        if let Some(locked) = home.block.try_lock()
            && self.sizes[table].load(Ordering::Acquire) == home.size
        {
            return Some(locked);
        }
        self.lock_slowly(table, hash)
    }

    /// Locks the home of `hash`. `None` while its table has no blocks.
    #[inline]
    pub(super) fn lock_home(&self, table: usize, hash: Hash) -> Option<Locked<'_>> {
        self.lock(table, hash, self.home(table, hash)?)
    }

    #[cold]
    #[inline(never)]
    fn lock_slowly(&self, table: usize, hash: Hash) -> Option<Locked<'_>> {
        loop {
            let home = self.home(table, hash)?;
            // Whoever has it will not have it for long.
            for _ in 0..SPINS {
                if let Some(locked) = home.block.try_lock()
                    && self.sizes[table].load(Ordering::Acquire) == home.size
                {
                    return Some(locked);
                }
                std::hint::spin_loop();
            }
            relax();
        }
    }

    /// Locks a block by its number, in a table of so many. `None` once that has another number.
    pub(super) fn lock_numbered(&self, table: usize, index: usize, blocks: usize) -> Option<Locked<'_>> {
        while self.blocks(table) == blocks {
            match self.block(table, index).and_then(Block::try_lock) {
                // One that is not in use any more must not be held by who goes on to wait for others.
                Some(locked) if self.blocks(table) == blocks => return Some(locked),
                Some(_) => {}
                None => relax(),
            }
        }
        None
    }

    /// Locks every block of a table, in order.
    pub(super) fn lock_all(&self, table: usize) -> Vec<Locked<'_>> {
        loop {
            let size = self.sizes[table].load(Ordering::Acquire);
            let mut all: Vec<Locked<'_>> = Vec::with_capacity(blocks(size));
            while all.len() < blocks(size) && self.sizes[table].load(Ordering::Acquire) == size {
                // Locks are taken one after the other, but what they lie in can be fetched all at once.
                if let Some(block) = self.block(table, all.len() + AHEAD) {
                    Home { block, size }.prefetch();
                }
                match self.block(table, all.len()).and_then(Block::try_lock) {
                    Some(locked) => all.push(locked),
                    None => relax(),
                }
            }
            // Who has the first block knows that the number stays; before that it may have changed.
            if self.sizes[table].load(Ordering::Acquire) == size {
                return all;
            }
        }
    }

    /// Gives a table of which all blocks are `locked` so many chunks. New blocks are empty and `locked` as well, those
    /// that go must be empty. `false`, and nothing changed, if there is no memory.
    pub(super) fn resize<'s>(&'s self, table: usize, chunks: usize, locked: &mut Vec<Locked<'s>>) -> bool {
        let before = locked.len() / CHUNK;
        if !self.occupy(table, before..chunks) {
            return false;
        }
        while locked.len() < chunks * CHUNK {
            match self.block(table, locked.len()).and_then(Block::try_claim) {
                Some(claimed) => locked.push(claimed),
                None => relax(),
            }
        }
        let size = self.sizes[table].load(Ordering::Relaxed);
        self.sizes[table].store(((size >> 32) + 1) << 32 | (chunks * CHUNK) as u64, Ordering::Release);
        locked.drain(chunks * CHUNK..).for_each(Locked::park);
        self.vacate(table, chunks..before);
        true
    }

    /// Makes sure of rows that a table is about to use.
    fn occupy(&self, table: usize, rows: Range<usize>) -> bool {
        let mut ground = self.ground.lock();
        while ground.len() < rows.end {
            let (Some(row), Some(known)) = (Row::new(self.tables), self.rows.get(ground.len())) else { return false };
            // Known before any table says that it has blocks there.
            known.store(row.region.start().cast().as_ptr(), Ordering::Release);
            ground.push(row);
        }
        for row in ground.get_mut(rows).into_iter().flatten() {
            row.users += 1;
            if let Some(page) = row.pages.get_mut(table / TABLES_PER_PAGE) {
                page.users += 1;
                page.is_clear = false;
            }
            if row.users == self.tables {
                row.region.fill();
            }
        }
        true
    }

    /// Hears of rows that a table no longer uses.
    fn vacate(&self, table: usize, rows: Range<usize>) {
        for row in self.ground.lock().get_mut(rows).into_iter().flatten() {
            row.users -= 1;
            if let Some(page) = row.pages.get_mut(table / TABLES_PER_PAGE) {
                page.users -= 1;
            }
        }
    }

    /// Gives the memory of one page that no table uses back to the system. `false` if there is none.
    pub(super) fn clear_page(&self) -> bool {
        let mut ground = self.ground.lock();
        let is_idle = |page: &Page| page.users == 0 && !page.is_clear;
        let idle = |(number, row): (usize, &Row)| Some((number, row.pages.iter().position(is_idle)?));
        let Some((number, at)) = ground.iter().enumerate().find_map(idle) else { return false };
        let tables = at * TABLES_PER_PAGE..self.tables.min((at + 1) * TABLES_PER_PAGE);
        // Nobody may hold what is made zero. Who does so by mistake has let go of it soon.
        let blocks = |table| (number * CHUNK..(number + 1) * CHUNK).filter_map(move |index| self.block(table, index));
        for block in tables.clone().flat_map(blocks) {
            while !block.try_take_away() {
                relax();
            }
        }
        let Some(row) = ground.get_mut(number) else { return false };
        if let Some(page) = row.pages.get_mut(at) {
            page.is_clear = true;
        }
        if cfg!(shuttle) || !row.region.clear(tables.start * CHUNK_BYTES..tables.end * CHUNK_BYTES) {
            tables.flat_map(blocks).for_each(Block::put_back);
        }
        true
    }

    #[inline(always)]
    fn block(&self, table: usize, index: usize) -> Option<&Block> {
        let row = NonNull::new(self.rows.get(index / CHUNK)?.load(Ordering::Acquire))?;
        // SAFETY: rows have so many blocks for each table, and stay where they are while the store does.
        #[allow(unsafe_code, reason = "a step inside the row")]
        Some(unsafe { row.add(table * CHUNK + index % CHUNK).as_ref() })
    }
}

#[inline(always)]
fn blocks(size: u64) -> usize {
    size as u32 as usize
}

/// Which of so many blocks is the home of `hash`.
#[inline(always)]
pub(super) fn place(hash: Hash, blocks: usize) -> usize {
    ((u128::from(hash.high) * blocks as u128) >> 64) as usize
}
