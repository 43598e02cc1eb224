//! Tokens that were verified already, so that the signature of each is verified once and not with every request.
//!
//! A token is known by what SHA-256 makes of it; only good ones are remembered, so nobody fills this who has no key.
//! There are two generations: when the young one is full the old one is forgotten, so that whoever is asked about now
//! and then stays.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tollgate_core::Timestamp;

use super::Claims;

/// Parts with a lock each.
const PARTS: usize = 16;
/// Tokens in each part and generation: 16,384 in all at most.
const MOST: usize = 512;

pub(super) type Digest = [u8; 32];

#[derive(Default)]
pub(super) struct Remembered([Mutex<Generations>; PARTS]);

#[derive(Default)]
struct Generations {
    young: HashMap<Digest, Good>,
    old: HashMap<Digest, Good>,
}

#[derive(Clone)]
struct Good {
    until: Timestamp,
    claims: Arc<Claims>,
}

impl Remembered {
    /// What the token of this digest says, if it is known to be good at `now`.
    pub(super) fn get(&self, digest: &Digest, now: Timestamp) -> Option<Arc<Claims>> {
        let mut part = self.part(digest);
        if let Some(good) = part.young.get(digest) {
            return (now < good.until).then(|| Arc::clone(&good.claims));
        }
        let good = part.old.remove(digest).filter(|good| now < good.until)?;
        let claims = Arc::clone(&good.claims);
        part.put(*digest, good);
        Some(claims)
    }

    pub(super) fn put(&self, digest: Digest, claims: &Arc<Claims>, until: Timestamp) {
        self.part(&digest).put(digest, Good { until, claims: Arc::clone(claims) });
    }

    fn part(&self, digest: &Digest) -> std::sync::MutexGuard<'_, Generations> {
        self.0[usize::from(digest[0]) % PARTS].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Generations {
    fn put(&mut self, digest: Digest, good: Good) {
        if self.young.len() >= MOST {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(digest, good);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(number: u32) -> Digest {
        let mut digest = [0; 32];
        // All in one part.
        digest[4..8].copy_from_slice(&number.to_be_bytes());
        digest
    }

    #[test]
    fn a_token_is_remembered_until_its_end() {
        let (remembered, claims) = (Remembered::default(), Arc::new(Claims::default()));
        remembered.put(digest(1), &claims, Timestamp::from_secs(10));
        assert!(remembered.get(&digest(1), Timestamp::from_secs(9)).is_some());
        assert!(remembered.get(&digest(1), Timestamp::from_secs(10)).is_none());
        assert!(remembered.get(&digest(2), Timestamp::from_secs(9)).is_none());
    }

    #[test]
    fn there_is_a_bound_and_those_in_use_stay() {
        let (remembered, claims) = (Remembered::default(), Arc::new(Claims::default()));
        let (now, until) = (Timestamp::from_secs(1), Timestamp::from_secs(10));
        remembered.put(digest(0), &claims, until);
        for number in 1..10 * MOST as u32 {
            remembered.put(digest(number), &claims, until);
            assert!(remembered.get(&digest(0), now).is_some(), "{number}");
            let part = remembered.part(&digest(0));
            assert!(part.young.len() + part.old.len() <= 2 * MOST);
        }
        assert!(remembered.get(&digest(1), now).is_none());
    }
}
