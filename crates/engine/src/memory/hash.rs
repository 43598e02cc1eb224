//! Keys as 128 keyed bits.
//!
//! The table never sees a key's bytes, only their hash, so two keys whose hashes were equal would share a counter. With
//! a secret drawn at random for each store that cannot be made to happen: nobody outside can compute a hash, so nobody
//! can choose keys that collide or crowd one place. Of the 128 bits a counter is known by 75: that any two of a million
//! keys had the same ones would happen once in 10^11 stores, and of a hundred million once in 10^7. Two limits on the
//! same entity are told apart by 43 bits of their numbers, in every store alike: of a thousand rules, any two are not
//! by a chance of one in 10^7.
//!
//! The limit's number goes into the low part only. So all limits on one entity have the same high part, which
//! decides the shard and the place: a stack of limits is one lock and two cache lines.

use tollgate_core::{Key, mix};
use xxhash_rust::xxh3::xxh3_128_with_secret;

use crate::sync::randomize;

/// The bytes of a secret, as the hash function wants them.
pub(crate) const SECRET_BYTES: usize = 192;

/// A hashed key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Hash {
    /// The same for all limits on one entity.
    pub(crate) high: u64,
    pub(crate) low: u64,
}

impl Hash {
    /// No key's: after those of all.
    pub(crate) const NONE: Self = Self { high: u64::MAX, low: 0 };

    /// How many bits of the low part are kept. Of the high part it is the upper half.
    pub(crate) const LOW_BITS: u32 = 43;

    /// What is kept of 128 bits. What was kept once stays as it is.
    #[inline(always)]
    pub(crate) const fn new(high: u64, low: u64) -> Self {
        // What is cut off of the low part still counts: limits may differ there alone.
        let folded = low ^ (low >> Self::LOW_BITS);
        Self { high: high & (!0 << 32), low: folded & ((1 << Self::LOW_BITS) - 1) }
    }
}

/// Hashes keys under one secret.
pub(crate) struct KeyHasher {
    secret: [u8; SECRET_BYTES],
}

impl KeyHasher {
    pub(crate) fn random() -> Self {
        let mut secret = [0; SECRET_BYTES];
        if !randomize(&mut secret) {
            // No randomness to be had: the address of this frame and the process differ at least.
            let seed = std::ptr::from_ref(&secret).addr() as u64 ^ u64::from(std::process::id()) << 32;
            for (word, index) in secret.chunks_exact_mut(8).zip(1..) {
                word.copy_from_slice(&mix(seed.wrapping_add(index)).to_le_bytes());
            }
        }
        Self { secret }
    }

    pub(crate) fn from_secret(secret: [u8; SECRET_BYTES]) -> Self {
        Self { secret }
    }

    pub(crate) fn secret(&self) -> &[u8; SECRET_BYTES] {
        &self.secret
    }

    /// The entity's hash: every value counts, and where one ends.
    #[inline(always)]
    pub(crate) fn entity(&self, key: &Key<'_>) -> u128 {
        match key.values {
            [value] => xxh3_128_with_secret(value, &self.secret),
            [] => self.everything(key.limit),
            values => self.chain(values),
        }
    }

    /// Chained by hashes of fixed length, so that no value can pose as two.
    fn chain(&self, values: &[&[u8]]) -> u128 {
        values.iter().fold(values.len() as u128, |chain, value| {
            let mut link = [0; 32];
            link[..16].copy_from_slice(&chain.to_le_bytes());
            link[16..].copy_from_slice(&xxh3_128_with_secret(value, &self.secret).to_le_bytes());
            xxh3_128_with_secret(&link, &self.secret)
        })
    }

    /// Names a list, item by item.
    pub(crate) fn chain_on(&self, chain: u128, item: [u64; 4]) -> u128 {
        let mut link = [0; 48];
        link[..16].copy_from_slice(&chain.to_le_bytes());
        for (bytes, word) in link[16..].chunks_exact_mut(8).zip(item) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        xxh3_128_with_secret(&link, &self.secret)
    }

    /// The entity of a limit that counts everything together: its own number, so that many such limits are not
    /// neighbours. Hashed twice, so that no value can pose as it.
    #[cold]
    fn everything(&self, limit: u64) -> u128 {
        let number = xxh3_128_with_secret(&limit.to_le_bytes(), &self.secret);
        xxh3_128_with_secret(&number.to_le_bytes(), &self.secret)
    }

    /// One limit's counter on an entity. `lineage` keeps states apart that do not understand each other.
    #[inline]
    pub(crate) fn counter(&self, entity: u128, key: &Key<'_>, lineage: u64) -> Hash {
        // Odd, so that two numbers never become one. The entity's half is random already.
        const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
        Hash::new((entity >> 64) as u64, (entity as u64) ^ (key.limit ^ lineage).wrapping_mul(SPREAD))
    }

    /// The counter that a limit's keys share when there is no room for one each.
    pub(crate) fn shared(&self, key: &Key<'_>, lineage: u64) -> Hash {
        let entity = xxh3_128_with_secret(b"shared", &self.secret);
        self.counter(entity, key, lineage)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_and_every_boundary_counts() {
        let hasher = KeyHasher::random();
        let entities: [&[&[u8]]; 7] = [&[], &[b""], &[b"", b""], &[b"ab"], &[b"a", b"b"], &[b"b", b"a"], &[b"ab", b""]];
        for (i, a) in entities.iter().enumerate() {
            for (j, b) in entities.iter().enumerate() {
                assert_eq!(hasher.entity(&Key::new(1, a)) == hasher.entity(&Key::new(1, b)), i == j, "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn no_value_poses_as_everything() {
        let hasher = KeyHasher::random();
        for limit in [0, 1, 7, u64::MAX] {
            let everything = hasher.entity(&Key::new(limit, &[]));
            for number in [limit.to_le_bytes(), limit.to_be_bytes()] {
                assert_ne!(hasher.entity(&Key::new(limit, &[&number])), everything, "{limit}");
            }
        }
    }

    #[test]
    fn limits_on_one_entity_are_neighbours_and_never_the_same() {
        let hasher = KeyHasher::random();
        let entity = hasher.entity(&Key::new(1, &[b"user"]));
        let counters: Vec<Hash> =
            (0..1_000).map(|limit| hasher.counter(entity, &Key::new(limit, &[b"user"]), 7)).collect();
        assert!(counters.iter().all(|hash| hash.high == counters[0].high));
        let mut lows: Vec<u64> = counters.iter().map(|hash| hash.low).collect();
        lows.sort_unstable();
        lows.dedup();
        assert_eq!(lows.len(), 1_000);
    }

    #[test]
    fn limits_that_count_everything_are_no_neighbours() {
        let hasher = KeyHasher::random();
        let high = |limit| (hasher.entity(&Key::new(limit, &[])) >> 64) as u64;
        let mut highs: Vec<u64> = (0..1_000).map(high).collect();
        highs.sort_unstable();
        highs.dedup();
        assert_eq!(highs.len(), 1_000);
    }

    #[test]
    fn two_stores_hash_differently() {
        let key = Key::new(1, &[b"user"]);
        assert_ne!(KeyHasher::random().entity(&key), KeyHasher::random().entity(&key));
    }
}
