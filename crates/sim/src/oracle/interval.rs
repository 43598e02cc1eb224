//! The level of a token bucket that is refilled once per interval, followed from refill to refill.
//!
//! - n tokens come in at each multiple of the interval since the epoch, up to the capacity. Spends, forced charges and
//!   refunds are as for the continuous bucket, and a new key begins to fill at the same moments.
//! - It counts as new again when it has been full for as many intervals as a whole refill takes, counted from the interval
//!   in which it became full.
//! - When the clock is set back, what was counted in a later interval stays there, in the next one at the latest if it is more than
//!   ten milliseconds ahead.

use tollgate_core::{MAX_INTEGER, TokenBucket};

use super::{MOST_APART, Model, is_representable};

#[derive(Clone)]
pub(super) struct Interval {
    refill: u64,
    interval: u64,
    capacity: u64,
    initial: u64,
    seen: Option<Seen>,
}

/// The bucket after the last charge or refund.
#[derive(Clone, Copy)]
struct Seen {
    /// The number of the interval since the epoch.
    index: u64,
    level: i128,
}

impl Interval {
    pub(super) fn new(spec: &TokenBucket) -> Self {
        Self {
            refill: spec.rate.units.max(1),
            interval: spec.rate.period.as_micros(),
            capacity: spec.capacity,
            initial: spec.initial.unwrap_or(spec.capacity),
            seen: None,
        }
    }

    fn refills_for(&self, tokens: i128) -> u64 {
        let (tokens, refill) = (tokens.max(0), i128::from(self.refill));
        let whole = tokens / refill + i128::from(tokens % refill > 0);
        u64::try_from(whole).unwrap_or(u64::MAX)
    }

    fn at(&self, at: u64) -> Seen {
        let index = at / self.interval;
        let Some(seen) = self.seen.filter(|_| at < self.new_from(at)) else {
            return Seen { index, level: i128::from(self.initial) };
        };
        let index = index.max(seen.index);
        let refilled = i128::from(index - seen.index) * i128::from(self.refill);
        Seen { index, level: (seen.level + refilled).min(i128::from(self.capacity)) }
    }

    /// The interval in which a bucket that was last charged as `seen` becomes full.
    fn full_index(&self, seen: &Seen) -> u64 {
        seen.index.saturating_add(self.refills_for(i128::from(self.capacity) - seen.level))
    }

    fn start_of(&self, index: u64) -> u64 {
        index.saturating_mul(self.interval)
    }
}

impl Model for Interval {
    fn limit(&self) -> u64 {
        self.capacity
    }

    fn room(&self, at: u64, extra: u64) -> u64 {
        u64::try_from((self.at(at).level + i128::from(extra)).max(0)).unwrap_or(u64::MAX)
    }

    fn opens(&self, from: u64, cost: u64, extra: u64) -> Option<u64> {
        if cost <= self.room(from, extra) {
            return Some(from);
        }
        let Seen { index, level } = self.at(from);
        let missing = i128::from(cost) - i128::from(extra) - level;
        let due = self.start_of(index.saturating_add(self.refills_for(missing)));
        (cost <= self.capacity + extra).then_some(due)
    }

    fn charge(&mut self, at: u64, cost: u64, _lease: u64) {
        let Seen { index, level } = self.at(at);
        self.seen = Some(Seen { index, level: level - i128::from(cost) });
    }

    fn refund(&mut self, at: u64, cost: u64, _charged_at: u64, _lease: u64) {
        let Seen { index, level } = self.at(at);
        let level = (level + i128::from(cost)).min(i128::from(self.capacity));
        self.seen = Some(Seen { index, level });
    }

    fn set_back(&mut self, _changed_at: u64, at: u64) -> bool {
        let next = at / self.interval + 1;
        if let Some(seen) = &mut self.seen
            && seen.index > next
            && seen.index.saturating_mul(self.interval) > at + MOST_APART
        {
            seen.index = next;
        }
        true
    }

    fn deny(&mut self, at: u64, _cost: u64) -> bool {
        let begins = self.initial < self.capacity && self.new_from(at) <= at;
        if begins {
            self.seen = Some(self.at(at));
        }
        begins
    }

    fn reset_at(&self, at: u64) -> u64 {
        self.start_of(self.full_index(&self.at(at)))
    }

    fn new_from(&self, at: u64) -> u64 {
        let Some(seen) = &self.seen else { return at };
        let full = self.full_index(seen);
        let held = if self.initial < self.capacity { self.refills_for(i128::from(self.capacity)) } else { 0 };
        self.start_of(full.saturating_add(held))
    }

    fn is_exact(&self, _at: u64) -> bool {
        self.seen.is_none_or(|seen| {
            let most_missing = i128::from(MAX_INTEGER);
            let full = self.start_of(self.full_index(&seen));
            i128::from(self.capacity) - seen.level <= most_missing && is_representable(full)
        })
    }
}
