//! Limits that come with the question instead of from a rule file: asked of the same store, under a number that no rule
//! has.
//!
//! Not a second way to the limits of rules: these counters can be met only here.

use std::sync::atomic::{AtomicU64, Ordering};

use tollgate::{Approach, Charge, Clock as _, Intent, Key, Limit, Outcome, Store as _, Timestamp};

use super::text::Exposition;
use super::{Gate, Unavailable, unavailable};

/// The number that these counters are kept under. The numbers of rules are hashes, so this one is as unlikely as any
/// other.
const NUMBER: u64 = 0x7468_726f_7474_6c65;

/// What was answered.
#[derive(Debug, Default)]
pub(super) struct Throttled {
    allowed: AtomicU64,
    denied: AtomicU64,
}

impl Gate {
    /// Charges `quantity` on the counter of `key` under `limit`, which is in memory: zero only looks, and a negative
    /// one is given back.
    #[inline]
    pub(crate) fn throttle(&self, key: &[u8], limit: &Limit, quantity: i64) -> Outcome {
        if !self.is_limiting() {
            return Outcome::UNLIMITED;
        }
        let values = [key];
        let charge = Charge::new(Key::new(NUMBER, &values), limit).cost(quantity.unsigned_abs());
        let memory = self.store().memory();
        let outcome = if quantity < 0 {
            let now = self.now();
            memory.apply_one(&charge, Intent::Refund { charged_at: now }, now)
        } else {
            memory.apply_one_at(&charge, Intent::Spend, || self.now())
        };
        if quantity > 0 {
            self.throttled.count(&outcome);
        }
        outcome
    }

    /// The same where servers share their counters: it takes waiting.
    pub(crate) async fn throttle_shared(
        &self,
        key: &[u8],
        limit: &Limit,
        quantity: i64,
    ) -> Result<Outcome, Unavailable> {
        if !self.is_limiting() {
            return Ok(Outcome::UNLIMITED);
        }
        let values = [key];
        let charge = Charge::new(Key::new(NUMBER, &values), limit).cost(quantity.unsigned_abs());
        let now = self.now();
        let intent = if quantity < 0 { Intent::Refund { charged_at: now } } else { Intent::Spend };
        let outcomes = self.store().apply(&[charge], intent, now).await.map_err(unavailable)?;
        let outcome = outcomes.first().copied().unwrap_or(Outcome::UNLIMITED);
        if quantity > 0 {
            self.throttled.count(&outcome);
        }
        Ok(outcome)
    }

    /// The time of decisions that are made now.
    #[inline]
    pub(crate) fn now(&self) -> Timestamp {
        self.tollgate.engine().clock().now()
    }

    /// Begins to fetch the counter of `key`.
    #[inline]
    pub(crate) fn approach(&self, key: &[u8], limit: &Limit) -> Approach {
        self.store().memory().approach(&Charge::new(Key::new(NUMBER, &[key]), limit))
    }

    /// Charges one on the counter of `key`, which was approached.
    #[inline]
    pub(crate) fn throttle_approached(&self, key: &[u8], limit: &Limit, approach: Approach, now: Timestamp) -> Outcome {
        if !self.is_limiting() {
            return Outcome::UNLIMITED;
        }
        let values = [key];
        let charge = Charge::new(Key::new(NUMBER, &values), limit);
        let outcome = self.store().memory().apply_approached(&charge, approach, Intent::Spend, now);
        self.throttled.count(&outcome);
        outcome
    }
}

impl Throttled {
    #[inline]
    fn count(&self, outcome: &Outcome) {
        let Self { allowed, denied } = self;
        (if outcome.allowed { allowed } else { denied }).fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn expose(&self, out: &mut Exposition) {
        out.counter("tollgate_throttle_checks_total", "What was said under limits that came with the question.");
        out.sample(&[("outcome", "allowed")], self.allowed.load(Ordering::Relaxed));
        out.sample(&[("outcome", "denied")], self.denied.load(Ordering::Relaxed));
    }
}
