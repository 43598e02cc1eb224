//! Token bucket that is refilled once per interval: n tokens at a time, on the clock.
//!
//! ```text
//!   tokens      refill 4 per minute, capacity 4
//!   4 ┤━━┓         ┏━━━━
//!   3 ┤  ┗┓        ┃
//!   0 ┤   ┗━━━━━━━━┛
//!     ┼──┬─┬───────┬──── time
//!    1:00:00     1:01:00
//! ```
//!
//! Refills fall on multiples of the interval since the epoch, so every bucket of a limit is refilled at the same
//! instants, as in figure 4-6 of the source. What is kept is how many tokens are missing and when none will be; the two
//! tell the interval at which they were counted. When the clock is set back, what was counted later than in the next
//! interval was counted in that one, so that a whole interval passes before the first refill.

use super::{MOST_APART, Machine, Saved, View};
use crate::error::LimitError;
use crate::limit::Ask;
use crate::lua::Numbers;
use crate::spec::TokenBucket;
use crate::state::Cell;
use crate::time::{MAX_INTEGER, Micros, Timestamp};

#[derive(Clone, Copy, Debug)]
pub(crate) struct IntervalBucket {
    /// Tokens per refill, at least one.
    refill: u64,
    /// Microseconds between refills, at least one.
    interval: u64,
    capacity: u64,
    /// Tokens that a fresh bucket lacks.
    unfilled: u64,
    /// Intervals after being full until a key counts as new: zero when new ones are full.
    hold: u64,
}

#[derive(Clone, Copy)]
pub(crate) struct Now {
    at: u64,
    /// The number of the interval since the epoch.
    index: u64,
    missing: u64,
    /// Time alone does not make this of what is stored.
    adjusted: bool,
}

impl IntervalBucket {
    pub(crate) fn new(spec: &TokenBucket) -> Result<Self, LimitError> {
        let capacity = spec.capacity;
        let initial = spec.initial.unwrap_or(capacity);
        let (refill, interval) = (spec.rate.units, spec.rate.period.as_micros());
        if interval == 0 || (refill == 0 && capacity > 0) {
            return Err(LimitError::NeverRefills);
        }
        if capacity > MAX_INTEGER || refill > MAX_INTEGER {
            return Err(LimitError::TooLarge);
        }
        if spec.loan > 0 {
            return Err(LimitError::LoanNeedsContinuousRefill);
        }
        if initial > capacity {
            return Err(LimitError::InitialAboveCapacity);
        }
        let refill = refill.max(1);
        let refills = capacity.div_ceil(refill);
        if refills.checked_mul(interval).is_none_or(|span| span >= MAX_INTEGER / 4) {
            return Err(LimitError::RefillTooSlow);
        }
        let hold = if initial < capacity { refills } else { 0 };
        Ok(Self { refill, interval, capacity, unfilled: capacity - initial, hold })
    }

    pub(crate) fn raised(&self, overage: u64) -> Self {
        Self { capacity: self.capacity.saturating_add(overage), ..*self }
    }

    pub(crate) fn lineage(&self) -> u64 {
        // One that starts part-filled reads its states by how long they are held.
        crate::key::mix(self.hold) ^ self.interval
    }

    /// For the same step in Lua.
    pub(crate) fn encode(&self, numbers: &mut Numbers<'_>) {
        numbers.begin();
        numbers.put_all([self.refill, self.interval, self.capacity, self.unfilled, self.hold]);
    }

    /// The interval in which nothing is missing any more.
    fn full_index(&self, now: &Now) -> u64 {
        now.index.saturating_add(now.missing.div_ceil(self.refill))
    }

    fn fresh_at(&self, now: &Now) -> Timestamp {
        Timestamp::from_micros(self.full_index(now).saturating_add(self.hold).saturating_mul(self.interval))
    }

    /// From `at` to the start of interval `index`.
    fn until(&self, now: &Now, index: u64) -> Micros {
        Micros::from_micros(index.saturating_mul(self.interval).saturating_sub(now.at))
    }
}

impl Machine for IntervalBucket {
    type Now<'a> = Now;

    #[inline]
    fn load(&self, view: View<'_>, ask: &Ask) -> Now {
        let at = ask.now.as_micros();
        let index = at / self.interval;
        if view.is_fresh() {
            return Now { at, index, missing: self.unfilled, adjusted: self.hold > 0 };
        }
        let missing = view.cell.word;
        let full = (view.cell.fresh_at.as_micros() / self.interval).saturating_sub(self.hold);
        let counted = full.saturating_sub(missing.div_ceil(self.refill));
        let moved = counted > index + 1 && counted.saturating_mul(self.interval) > at + MOST_APART;
        let counted = if moved { index + 1 } else { counted };
        let refilled = index.saturating_sub(counted).saturating_mul(self.refill);
        let missing = missing.saturating_sub(refilled);
        let mut now = Now { at, index: index.max(counted), missing, adjusted: false };
        now.adjusted = moved || missing > 0 && self.fresh_at(&now) != view.cell.fresh_at;
        now
    }

    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn remaining(&self, now: &Now) -> u64 {
        self.capacity.saturating_sub(now.missing)
    }

    fn fits(&self, now: &Now, cost: u64) -> bool {
        now.missing.saturating_add(cost) <= self.capacity
    }

    fn wait(&self, now: &Now, cost: u64) -> Option<Micros> {
        if cost > self.capacity {
            return None;
        }
        let excess = now.missing.saturating_add(cost).saturating_sub(self.capacity);
        Some(self.until(now, now.index.saturating_add(excess.div_ceil(self.refill))))
    }

    fn charge(&self, now: &mut Now, cost: u64) {
        now.missing = now.missing.saturating_add(cost);
        if now.missing > self.capacity {
            // Only what will be refilled before the end of time can be told from less.
            let refills = (MAX_INTEGER / self.interval).saturating_sub(now.index.saturating_add(self.hold));
            now.missing = now.missing.min(refills.saturating_mul(self.refill)).min(MAX_INTEGER);
        }
    }

    fn refund(&self, now: &mut Now, cost: u64, _charged_at: Timestamp) {
        now.missing = now.missing.saturating_sub(cost);
    }

    /// A new key that starts part-filled begins to fill when it is first asked for, admitted or not; and a bucket of
    /// another limit is one of this from then on.
    fn is_adjusted(&self, now: &Now) -> bool {
        now.adjusted
    }

    fn reset_after(&self, now: &Now) -> Micros {
        self.until(now, self.full_index(now))
    }

    fn kept_for(&self, now: &Now) -> Micros {
        self.until(now, self.full_index(now).saturating_add(self.hold))
    }

    fn save(&self, now: Now) -> Saved {
        Saved::cell(Cell { fresh_at: self.fresh_at(&now), word: now.missing })
    }
}
