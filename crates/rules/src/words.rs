//! Texts as numbers, for a table of them.
//!
//! A text of up to 16 bytes is its words: whoever has equal ones has the same text. Of a longer one they are a hash,
//! and whoever has equal ones has to look at the texts.

use std::hash::BuildHasher;

use hashbrown::DefaultHashBuilder;

/// A text as two words and how many bytes it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Words {
    pub(crate) first: u64,
    pub(crate) last: u64,
    pub(crate) length: u32,
}

impl Words {
    /// Texts of more bytes are more than their words.
    pub(crate) const MOST: usize = 16;
}

/// Makes words of texts, and hashes them. The seed is drawn at random; who knows it can make look-ups slower, not
/// tables larger, since only files fill them.
#[derive(Debug)]
pub(crate) struct WordsHasher {
    seeds: [u64; 2],
}

impl Default for WordsHasher {
    fn default() -> Self {
        let random = DefaultHashBuilder::default();
        Self { seeds: [random.hash_one(0u8), random.hash_one(1u8)] }
    }
}

impl WordsHasher {
    #[inline(always)]
    pub(crate) fn words(&self, text: &str) -> Words {
        let bytes = text.as_bytes();
        // Two words that overlap hold all of a short text.
        let (first, last) = match bytes.len() {
            8..=Words::MOST => (word(bytes.first_chunk()), word(bytes.last_chunk())),
            4..8 => (half(bytes.first_chunk()), half(bytes.last_chunk())),
            0..4 => {
                let at = |place: usize| u64::from(bytes.get(place).copied().unwrap_or(0));
                (at(0) | at(1) << 8 | at(2) << 16, 0)
            }
            _ => (self.long(bytes), word(bytes.last_chunk())),
        };
        Words { first, last, length: bytes.len() as u32 }
    }

    #[cold]
    fn long(&self, bytes: &[u8]) -> u64 {
        let [start, factor] = self.seeds;
        let (words, _) = bytes.as_chunks::<8>();
        words.iter().fold(start, |hash, word| fold(hash ^ u64::from_le_bytes(*word), factor))
    }

    #[inline(always)]
    pub(crate) fn hash(&self, words: Words) -> u64 {
        fold(words.first ^ self.seeds[0], words.last ^ self.seeds[1] ^ u64::from(words.length))
    }
}

#[inline(always)]
fn word(chunk: Option<&[u8; 8]>) -> u64 {
    chunk.map_or(0, |chunk| u64::from_le_bytes(*chunk))
}

#[inline(always)]
fn half(chunk: Option<&[u8; 4]>) -> u64 {
    chunk.map_or(0, |chunk| u64::from(u32::from_le_bytes(*chunk)))
}

/// The product, its upper half folded onto its lower.
#[inline(always)]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b | 1);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn texts_of_equal_words_are_equal_unless_they_are_long(a in "[ab]{0,16}|\\PC{0,5}", b in "[ab]{0,16}|\\PC{0,5}") {
            let hasher = WordsHasher::default();
            let is_short = a.len().max(b.len()) <= Words::MOST;
            let copy: Vec<u8> = a.bytes().collect();
            prop_assert_eq!(Ok(hasher.words(&a)), std::str::from_utf8(&copy).map(|copy| hasher.words(copy)));
            prop_assert!(!is_short || (hasher.words(&a) == hasher.words(&b)) == (a == b));
        }
    }

    #[test]
    fn every_byte_counts() {
        let hasher = WordsHasher::default();
        for length in 1..40 {
            let text = "x".repeat(length);
            for at in 0..length {
                let mut other = text.clone();
                other.replace_range(at..=at, "y");
                assert_ne!(hasher.words(&text), hasher.words(&other), "{other}");
            }
            assert_ne!(hasher.words(&text), hasher.words(&format!("{text}x")));
        }
    }
}
