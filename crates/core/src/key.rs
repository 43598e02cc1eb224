//! The identity of one counter.
//!
//! A [`Key`] is which limit counts (by number) and what it counts by (any bytes). Its encoding is injective: whatever
//! the bytes are, two keys with equal encodings are equal, so nobody's bytes can collide with another's key.

/// Identity of one counter: which rule and limit, and the values it counts by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key<'a> {
    /// The limit's number, unique among those that share a store.
    pub limit: u64,
    /// What is counted by, such as a user and a path. An empty value differs from none.
    pub values: &'a [&'a [u8]],
}

impl<'a> Key<'a> {
    /// The counter of limit number `limit` for `values`.
    pub const fn new(limit: u64, values: &'a [&'a [u8]]) -> Self {
        Self { limit, values }
    }

    /// Appends the injective encoding: the limit, then each value behind its length.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.limit.to_be_bytes());
        for value in self.values {
            out.extend_from_slice(&(value.len() as u64).to_be_bytes());
            out.extend_from_slice(value);
        }
    }

    /// Where this key's windows are shifted when a limit spreads them: the same on every machine and in every release.
    #[inline]
    pub fn phase(self) -> u64 {
        phase(self.limit, self.values)
    }
}

/// Out of line and by parts: so that keys are not put into memory for the sake of the few limits that ask.
#[inline(never)]
fn phase(limit: u64, values: &[&[u8]]) -> u64 {
    mix(stable_hash(values.iter().copied()) ^ mix(limit))
}

/// A hash that never changes (FNV-1a, each part behind its length). Not for tables: it is not keyed.
pub fn stable_hash<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    let absorb = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(PRIME);
    parts.into_iter().fold(OFFSET, |hash, part| {
        let hash = (part.len() as u64).to_be_bytes().iter().fold(hash, absorb);
        part.iter().fold(hash, absorb)
    })
}

/// A bijection on 64 bits that spreads every input bit over all output bits (the SplitMix64 finaliser).
pub fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodings_of_different_keys_differ() {
        let encode = |limit: u64, values: &[&[u8]]| {
            let mut out = Vec::new();
            Key::new(limit, values).encode(&mut out);
            out
        };
        let keys: [(u64, &[&[u8]]); 8] = [
            (1, &[b"a", b"b"]),
            (1, &[b"ab"]),
            (1, &[b"ab", b""]),
            (1, &[b"", b"ab"]),
            (1, &[]),
            (1, &[b""]),
            (2, &[b"ab"]),
            (1, &[b"a\0\0\0\0\0\0\0\x01b"]),
        ];
        for (i, a) in keys.iter().enumerate() {
            for (j, b) in keys.iter().enumerate() {
                assert_eq!(encode(a.0, a.1) == encode(b.0, b.1), i == j, "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn phases_never_change_and_are_spread_evenly() {
        assert_eq!(Key::new(7, &[b"user-42"]).phase(), Key::new(7, &[b"user-42"]).phase());
        let mut quarters = [0u32; 4];
        for user in 0..4_000u32 {
            let phase = Key::new(1, &[&user.to_be_bytes()]).phase();
            quarters[(phase >> 62) as usize] += 1;
        }
        assert!(quarters.iter().all(|count| (900..1_100).contains(count)), "{quarters:?}");
    }
}
