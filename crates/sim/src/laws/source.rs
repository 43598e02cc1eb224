//! Choices made by bytes: the one way in which random tests decide what to do.
//!
//! A property test, a fuzzer and a seeded generator all hand over bytes, and a failing case shrinks as bytes do. When
//! they are used up every choice is the first one, so the first is always the plainest.

/// Bytes that are used up choice by choice.
pub struct Source<'a> {
    bytes: &'a [u8],
}

impl<'a> Source<'a> {
    /// Choices made by `bytes`.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// Whether all bytes are used up.
    pub const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The next byte, or zero.
    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.bytes.split_first() else { return 0 };
        self.bytes = rest;
        *first
    }

    /// The next eight bytes.
    pub fn word(&mut self) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|_| self.byte()))
    }

    /// One of `0..bound`, and zero if there is none.
    pub fn below(&mut self, bound: u64) -> u64 {
        let chosen = if bound <= 256 { u64::from(self.byte()) } else { self.word() };
        chosen.checked_rem(bound).unwrap_or(0)
    }

    /// True once in `times`.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.below(times) + 1 == times
    }

    /// One of `choices`, which is `otherwise` if there are none.
    pub fn pick<T: Copy>(&mut self, choices: &[T], otherwise: T) -> T {
        let index = self.below(choices.len() as u64);
        usize::try_from(index).ok().and_then(|index| choices.get(index)).copied().unwrap_or(otherwise)
    }
}
