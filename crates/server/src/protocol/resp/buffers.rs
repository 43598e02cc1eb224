//! The memory that connections read into. One buffer serves all idle connections of a thread: whoever has nothing to
//! say needs none.

use std::cell::RefCell;

/// The bytes that one read can bring.
pub(super) const SIZE: usize = 64 << 10;
/// Buffers that a thread keeps for later.
const KEPT: usize = 4;

thread_local! {
    static FREE: RefCell<Vec<Buffer>> = const { RefCell::new(Vec::new()) };
}

/// Bytes that were read, and room for more.
#[derive(Debug, Default)]
pub(super) struct Buffer {
    bytes: Vec<u8>,
    /// Where what is not yet used begins, and where it ends.
    used: usize,
    filled: usize,
}

impl Buffer {
    /// An empty one, from those that are kept if there are any.
    #[inline]
    pub(super) fn take() -> Self {
        let kept = FREE.try_with(|free| free.borrow_mut().pop()).ok().flatten();
        kept.unwrap_or_else(|| Self { bytes: vec![0; SIZE], used: 0, filled: 0 })
    }

    /// Gives it back.
    #[inline]
    pub(super) fn give_back(mut self) {
        if self.bytes.len() != SIZE {
            return;
        }
        (self.used, self.filled) = (0, 0);
        let _thread_is_ending = FREE.try_with(|free| {
            let mut free = free.borrow_mut();
            if free.len() < KEPT {
                free.push(self);
            }
        });
    }

    /// What was read and is not yet used.
    #[inline]
    pub(super) fn unused(&self) -> &[u8] {
        self.bytes.get(self.used..self.filled).unwrap_or_default()
    }

    #[inline]
    pub(super) fn advance(&mut self, bytes: usize) {
        self.used = (self.used + bytes).min(self.filled);
    }

    /// Room to read into: at least a byte, unless `most` bytes are unused already.
    #[inline]
    pub(super) fn room(&mut self, most: usize) -> &mut [u8] {
        if self.used > 0 {
            self.bytes.copy_within(self.used..self.filled, 0);
            self.filled -= self.used;
            self.used = 0;
        }
        if self.filled == self.bytes.len() {
            let larger = (self.bytes.len() * 2).clamp(SIZE, most.max(SIZE));
            self.bytes.resize(larger, 0);
        }
        self.bytes.get_mut(self.filled..).unwrap_or_default()
    }

    /// So many bytes were read into the room.
    #[inline]
    pub(super) fn fill(&mut self, bytes: usize) {
        self.filled = (self.filled + bytes).min(self.bytes.len());
    }

    /// Puts `bytes` behind those that are there.
    pub(super) fn put(&mut self, bytes: &[u8]) {
        if let Some(room) = self.room(SIZE).get_mut(..bytes.len()) {
            room.copy_from_slice(bytes);
            self.fill(bytes.len());
        }
    }
}
