//! The level of a token bucket, followed from charge to charge. Also the leaky bucket as a meter.
//!
//! - The level starts at `initial` (the capacity, if nothing is said) and rises by n tokens every p microseconds, evenly,
//!   up to the capacity. A spend takes its cost, a forced charge takes it even below zero, a refund gives back up to the
//!   capacity.
//! - A new key begins to fill with its first spend, allowed or denied, or forced charge. It counts as new again when it
//!   has been full for as long as a whole refill takes, rounded up to microseconds; a refund to a full bucket does not
//!   delay that. When new keys are full, being full is being new.
//! - A charge that takes the level from zero or more to below zero borrows the shortfall, rounded up to whole tokens;
//!   each further charge while the level is below zero borrows its whole cost, and a refund returns that much.
//!   Whatever is borrowed counts against the loan until the level is zero again, and then none of it does. The overage
//!   of a soft limit is more loan if there is one, and otherwise lets the level fall that far below zero.
//! - When the clock is set back, the level is what it would have been then by the same refill: so much lower. It is not below zero,
//!   by more than ten milliseconds of refill, unless something was borrowed or forced: then not below what that makes of zero. (A
//!   rate whose fraction has 2^26 units or more, or as many tokens borrowed, leaves no room to remember how much it was.)
//! - A bucket that holds nothing and lends nothing may have a rate of zero; it is then taken to be one per second.

use num_rational::Ratio;
use tollgate_core::{Micros, Rate, TokenBucket};

use super::{Exact, MOST_APART, Model, ceil, exact, floor, is_representable};

/// What is borrowed is counted up to here.
const MOST_BORROWED: u64 = (1 << 26) - 1;

#[derive(Clone)]
pub(super) struct Bucket {
    capacity: u64,
    initial: u64,
    loan: u64,
    /// Tokens per microsecond.
    rate: Exact,
    seen: Option<Seen>,
}

/// The bucket after the last charge or refund.
#[derive(Clone, Copy)]
struct Seen {
    at: u64,
    level: Exact,
    borrowed: u64,
}

impl Bucket {
    pub(super) fn new(spec: &TokenBucket) -> Self {
        let never = spec.rate.units == 0 || spec.rate.period.is_zero();
        let Rate { units, period } = if never { Rate::new(1, Micros::SECOND) } else { spec.rate };
        Self {
            capacity: spec.capacity,
            initial: spec.initial.unwrap_or(spec.capacity),
            loan: spec.loan,
            rate: Ratio::new(i128::from(units), i128::from(period.as_micros())),
            seen: None,
        }
    }

    fn time_for(&self, tokens: Exact) -> u64 {
        ceil(tokens / self.rate)
    }

    /// From when on a bucket that was last charged as `seen` is full.
    fn full_from(&self, seen: &Seen) -> u64 {
        seen.at.saturating_add(self.time_for(exact(self.capacity) - seen.level))
    }

    /// The bucket at `at`; a new one if it is as good as new by then.
    fn at(&self, at: u64) -> Seen {
        let Some(seen) = self.seen.filter(|_| at < self.new_from(at)) else {
            return Seen { at, level: exact(self.initial), borrowed: 0 };
        };
        let level = (seen.level + self.rate * exact(at - seen.at)).min(exact(self.capacity));
        let borrowed = if level < exact(0) { seen.borrowed } else { 0 };
        Seen { at, level, borrowed }
    }

    /// How far below zero a spend may take the level, and how much it may borrow.
    fn grace(&self, extra: u64) -> (u64, u64) {
        if self.loan > 0 { (0, self.loan + extra) } else { (extra, 0) }
    }
}

impl Model for Bucket {
    fn limit(&self) -> u64 {
        self.capacity + self.loan
    }

    fn room(&self, at: u64, extra: u64) -> u64 {
        let (below, loan) = self.grace(extra);
        let Seen { level, borrowed, .. } = self.at(at);
        if loan > 0 && level < exact(0) { loan.saturating_sub(borrowed) } else { floor(level + exact(below)) + loan }
    }

    fn opens(&self, from: u64, cost: u64, extra: u64) -> Option<u64> {
        let (below, loan) = self.grace(extra);
        if cost <= self.room(from, extra) {
            return Some(from);
        }
        // A loan is granted out of debt only.
        let needed = if loan > 0 { exact(cost.saturating_sub(loan)) } else { exact(cost) - exact(below) };
        let due = from.saturating_add(self.time_for(needed - self.at(from).level));
        (cost <= self.capacity + loan + below).then_some(due)
    }

    fn charge(&mut self, at: u64, cost: u64, _lease: u64) {
        let Seen { level, borrowed, .. } = self.at(at);
        let after = level - exact(cost);
        let borrowed = match () {
            () if level < exact(0) => borrowed + cost,
            () if after < exact(0) => ceil(-after),
            () => 0,
        };
        self.seen = Some(Seen { at, level: after, borrowed });
    }

    fn refund(&mut self, at: u64, cost: u64, _charged_at: u64, _lease: u64) {
        let Seen { level, borrowed, .. } = self.at(at);
        let level = (level + exact(cost)).min(exact(self.capacity));
        self.seen = Some(Seen { at, level, borrowed: borrowed.saturating_sub(cost) });
    }

    fn set_back(&mut self, _changed_at: u64, at: u64) -> bool {
        let Some(seen) = self.seen else { return true };
        let mut level = seen.level - self.rate * exact(seen.at - at);
        let borrowed = if seen.level < exact(0) { seen.borrowed } else { 0 };
        let is_counted = *self.rate.numer() < 1 << 26 && borrowed < MOST_BORROWED;
        let time_from_full = |level: Exact| floor((exact(self.capacity) - level) / self.rate);
        let lowest = exact(0) - exact(borrowed);
        let too_far = time_from_full(level).saturating_sub(time_from_full(lowest)) > MOST_APART;
        let is_known = level >= lowest || too_far && (borrowed == 0 || is_counted);
        if is_known {
            level = level.max(lowest);
        }
        self.seen = Some(Seen { at, level, borrowed });
        is_known
    }

    fn deny(&mut self, at: u64, _cost: u64) -> bool {
        let begins = self.initial < self.capacity && self.new_from(at) <= at;
        if begins {
            self.seen = Some(self.at(at));
        }
        begins
    }

    fn reset_at(&self, at: u64) -> u64 {
        self.full_from(&self.at(at))
    }

    fn new_from(&self, at: u64) -> u64 {
        let Some(seen) = &self.seen else { return at };
        let full = self.full_from(seen);
        if self.initial == self.capacity {
            full
        } else {
            full.saturating_add(self.time_for(exact(self.capacity)).max(1))
        }
    }

    fn is_exact(&self, _at: u64) -> bool {
        let Some(seen) = &self.seen else { return true };
        is_representable(self.full_from(seen)) && (self.loan == 0 || seen.borrowed <= MOST_BORROWED)
    }
}
