//! Charges of many keys that are known before they are decided, as in a pipeline: the waits for their memory become
//! one.
//!
//! Nothing is decided here, and nothing is locked or kept for anybody: between an approach and its charge anything may
//! happen to the key.

use tollgate_core::{Intent, Outcome, Timestamp};

use super::MemoryStore;
use super::hash::Hash;
use crate::charge::Charge;

/// A charge whose memory is on its way.
#[derive(Clone, Copy, Debug)]
pub struct Approach {
    hash: Hash,
}

impl MemoryStore {
    /// Begins to fetch what a decision about `charge` will need. For a row of charges, first approach all and then
    /// [apply](Self::apply_approached) each.
    #[inline]
    pub fn approach(&self, charge: &Charge<'_>) -> Approach {
        let hash = self.hash(charge);
        let _on_its_way = self.prefetch(hash);
        Approach { hash }
    }

    /// [`Self::apply_one`] for a charge that was approached: for that one, and no other.
    #[inline]
    pub fn apply_approached(&self, charge: &Charge<'_>, approach: Approach, intent: Intent, now: Timestamp) -> Outcome {
        let hash = approach.hash;
        let slowly = |hash, ask, home| self.answer_slowly(*charge, hash, ask, home);
        let home = self.front.lock_home(self.shard_of(hash), hash);
        self.answer_at(charge, hash, home, intent, now, |reply| reply, slowly)
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::{Key, Limit, Micros, Rate, TokenBucket};

    use super::*;

    #[test]
    fn a_row_of_charges_is_decided_as_each_would_be() {
        let limit = Limit::new(TokenBucket::new(Rate::per_second(2)).burst(3)).unwrap();
        let (in_rows, one_by_one) = (MemoryStore::new(), MemoryStore::new());
        let mut now = Timestamp::from_secs(1_000);
        for round in 0..2_000_u64 {
            // The same key may stand in a row twice, and new keys grow the tables meanwhile.
            let keys: Vec<[u8; 8]> = (0..16).map(|at| ((round * 7 + at * at) % (round + 3)).to_be_bytes()).collect();
            let values: Vec<[&[u8]; 1]> = keys.iter().map(|key| [&key[..]]).collect();
            let charges: Vec<_> = values.iter().map(|values| Charge::new(Key::new(9, values), &limit)).collect();
            let row: Vec<Approach> = charges.iter().map(|charge| in_rows.approach(charge)).collect();
            for (charge, approach) in charges.iter().zip(row) {
                assert_eq!(
                    in_rows.apply_approached(charge, approach, Intent::Spend, now),
                    one_by_one.apply_one(charge, Intent::Spend, now)
                );
            }
            now = now.plus(Micros::from_millis(40));
        }
    }
}
