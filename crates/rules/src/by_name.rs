//! A map by name that is quick for a few names as well as for many.

use std::hash::BuildHasher;
use std::sync::Arc;

use hashbrown::{DefaultHashBuilder, HashMap};

/// More names than this are kept in a table; fewer are found faster one by one.
const FEW: usize = 4;

#[derive(Debug)]
pub(crate) enum ByName<V> {
    Few(Vec<(Arc<str>, V)>),
    Many(HashMap<Arc<str>, V>),
}

impl<V> Default for ByName<V> {
    fn default() -> Self {
        Self::Few(Vec::new())
    }
}

impl<V> ByName<V> {
    #[inline(always)]
    pub(crate) fn get(&self, name: &str) -> Option<&V> {
        match self {
            Self::Few(few) => few.iter().find(|(known, _)| same(known, name)).map(|(_, value)| value),
            Self::Many(many) => Self::get_of_many(many, name),
        }
    }

    /// Out of line, so that the few are found in line.
    #[inline(never)]
    fn get_of_many<'a>(many: &'a HashMap<Arc<str>, V>, name: &str) -> Option<&'a V> {
        many.get(name)
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &str> {
        let (few, many) = match self {
            Self::Few(few) => (Some(few), None),
            Self::Many(many) => (None, Some(many)),
        };
        let few = few.into_iter().flatten().map(|(name, _)| &**name);
        few.chain(many.into_iter().flat_map(|many| many.keys().map(|name| &**name)))
    }
}

impl<V: Default> ByName<V> {
    pub(crate) fn get_or_insert(&mut self, name: &Arc<str>) -> &mut V {
        if let Self::Few(few) = self
            && few.len() == FEW
            && few.iter().all(|(known, _)| known != name)
        {
            *self = Self::Many(few.drain(..).collect());
        }
        match self {
            Self::Many(many) => many.entry(Arc::clone(name)).or_default(),
            Self::Few(few) => {
                let at = few.iter().position(|(known, _)| known == name).unwrap_or(few.len());
                if at == few.len() {
                    few.push((Arc::clone(name), V::default()));
                }
                &mut few[at].1
            }
        }
    }
}

/// Hashes texts for a table, quickest for the short ones that values mostly are. The seed is drawn at random; who knows it can
/// make look-ups slower, not tables larger, since only files fill them.
#[derive(Debug)]
pub(crate) struct TextHasher {
    seeds: [u64; 2],
}

impl Default for TextHasher {
    fn default() -> Self {
        let random = DefaultHashBuilder::default();
        Self { seeds: [random.hash_one(0u8), random.hash_one(1u8)] }
    }
}

impl TextHasher {
    #[inline(always)]
    pub(crate) fn hash(&self, text: &str) -> u64 {
        let bytes = text.as_bytes();
        let word = |chunk: Option<&[u8; 8]>| chunk.map_or(0, |chunk| u64::from_le_bytes(*chunk));
        let half = |chunk: Option<&[u8; 4]>| chunk.map_or(0, |chunk| u64::from(u32::from_le_bytes(*chunk)));
        // Two words that overlap hold all of a short text.
        let (first, last) = match bytes.len() {
            8..=16 => (word(bytes.first_chunk()), word(bytes.last_chunk())),
            4..8 => (half(bytes.first_chunk()), half(bytes.last_chunk())),
            0..4 => {
                let at = |place: usize| u64::from(bytes.get(place).copied().unwrap_or(0));
                (at(0) | at(1) << 8 | at(2) << 16, 0)
            }
            _ => {
                let mut hash = self.seeds[0];
                let (words, rest) = bytes.as_chunks::<8>();
                for chunk in words {
                    hash = fold(hash ^ u64::from_le_bytes(*chunk), self.seeds[1]);
                }
                (hash, if rest.is_empty() { 0 } else { word(bytes.last_chunk()) })
            }
        };
        fold(first ^ self.seeds[0], last ^ self.seeds[1] ^ bytes.len() as u64)
    }
}

/// The product, its upper half folded onto its lower.
#[inline(always)]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b | 1);
    product as u64 ^ (product >> 64) as u64
}

/// Whether two texts are equal: the same as `==`, without a call for the short ones that keys and values mostly are.
#[inline(always)]
pub(crate) fn same(a: &str, b: &str) -> bool {
    same_bytes(a.as_bytes(), b.as_bytes())
}

/// The same for bytes.
#[inline(always)]
pub(crate) fn same_bytes(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    // Two words that overlap cover anything from one word's length to twice it.
    match (a.first_chunk::<8>(), b.first_chunk::<8>()) {
        (Some(a_first), Some(b_first)) if a.len() <= 16 => {
            a_first == b_first && a.last_chunk::<8>() == b.last_chunk::<8>()
        }
        (Some(_), _) => a == b,
        _ => match (a.first_chunk::<4>(), b.first_chunk::<4>()) {
            (Some(a_first), Some(b_first)) => a_first == b_first && a.last_chunk::<4>() == b.last_chunk::<4>(),
            _ => a.iter().eq(b),
        },
    }
}
