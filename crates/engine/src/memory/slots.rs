//! An array that grows and shrinks in chunks of one size.
//!
//! A table changes its size often and by little. In one piece it would be copied each time and leave holes behind that
//! fit nothing else; chunks of equal size are never copied and fit wherever one was freed.

use super::chunk::Chunk;
use super::prefetch::{LINE, prefetch};
use super::table::{Allowance, Entry};

/// Entries per chunk: 512 bytes.
pub(super) const CHUNK: usize = 16;
/// What a chunk takes, with its pointer and what is kept beside it.
const CHUNK_BYTES: usize = CHUNK * size_of::<Entry>() + 16;

#[derive(Default)]
pub(super) struct Slots {
    chunks: Vec<Chunk>,
}

impl Slots {
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.chunks.len() * CHUNK
    }

    #[inline]
    pub(super) fn chunks(&self) -> usize {
        self.chunks.len()
    }

    #[inline]
    pub(super) fn get(&self, index: usize) -> Option<&Entry> {
        self.chunks.get(index / CHUNK)?.get(index % CHUNK)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, index: usize) -> Option<&mut Entry> {
        // Masked, the second index needs no check.
        self.chunks.get_mut(index / CHUNK).map(|chunk| &mut chunk[index % CHUNK])
    }

    /// The entries from `index` to the end of its chunk.
    #[inline]
    pub(super) fn run_from(&self, index: usize) -> Option<&[Entry]> {
        self.chunks.get(index / CHUNK)?.get(index % CHUNK..)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.chunks.iter().flat_map(|chunk| chunk.iter())
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Entry> {
        self.chunks.iter_mut().flat_map(|chunk| chunk.iter_mut())
    }

    pub(super) fn iter_from(&self, index: usize) -> impl Iterator<Item = &Entry> {
        self.run_from(index)
            .into_iter()
            .flatten()
            .chain(self.chunks.iter().skip(index / CHUNK + 1).flat_map(|chunk| chunk.iter()))
    }

    /// Moves the entries of `from..to` one to the right, over the one at `to`.
    pub(super) fn shift_right(&mut self, from: usize, to: usize) {
        let mut end = to;
        while end / CHUNK > from / CHUNK {
            let carried = self.get(end / CHUNK * CHUNK - 1).copied();
            if let Some(chunk) = self.chunks.get_mut(end / CHUNK) {
                chunk.copy_within(..end % CHUNK, 1);
            }
            end = end / CHUNK * CHUNK;
            if let Some(carried) = carried {
                self.put(end, carried);
            }
            end -= 1;
        }
        if let Some(chunk) = self.chunks.get_mut(end / CHUNK) {
            chunk.copy_within(from % CHUNK..end % CHUNK, from % CHUNK + 1);
        }
    }

    /// Fetches a chunk that will be needed soon, if there is one.
    pub(super) fn prefetch(&self, chunk: usize) {
        if let Some(chunk) = self.chunks.get(chunk) {
            let address = std::ptr::from_ref(&**chunk).addr();
            (address..address + size_of_val(&**chunk)).step_by(LINE).for_each(prefetch);
        }
    }

    /// Empties the slots from `from` to before `to`.
    #[inline]
    pub(super) fn clear(&mut self, from: usize, to: usize) {
        for index in from..to {
            self.put(index, Entry::EMPTY);
        }
    }

    /// Stores an entry.
    #[inline]
    pub(super) fn put(&mut self, index: usize, entry: Entry) {
        if let Some(slot) = self.get_mut(index) {
            *slot = entry;
        }
    }

    /// Makes it at least `length` slots long, and no chunk longer, at its left end: what is there keeps its distance
    /// from the right one. `false`, and nothing changed, if that cannot be had.
    pub(super) fn resize(&mut self, length: usize, allowance: &impl Allowance) -> bool {
        let wanted = length.div_ceil(CHUNK);
        let present = self.chunks.len();
        if wanted > present {
            let more = wanted - present;
            if !allowance.take(more * CHUNK_BYTES) {
                return false;
            }
            // By more than is needed: lists of every length would leave holes of every size.
            if self.chunks.try_reserve(more).is_ok() {
                self.chunks.extend((0..more).map_while(|_| Chunk::new()));
            }
            if self.chunks.len() < wanted {
                self.chunks.truncate(present);
                allowance.give_back(more * CHUNK_BYTES);
                return false;
            }
            self.chunks.rotate_right(more);
        } else if wanted < present {
            self.chunks.drain(..present - wanted);
            self.chunks.shrink_to_fit();
            allowance.give_back((present - wanted) * CHUNK_BYTES);
        }
        true
    }
}
