//! Token bucket with continuous refill; also the leaky bucket as a meter, which is the same arithmetic
//! seen from the other side.
//!
//! A bucket of capacity C gains n tokens every p microseconds, evenly, and never holds more than C. A
//! request takes its cost in tokens or is denied. Keeping the level would need a timer or a fraction that
//! drifts. Instead one instant is kept: **when the bucket will be full again**.
//!
//! ```text
//!   tokens
//!   C ┤━━━━┓ take 3                 ╭━━━━━   full at F: fresh again
//!     │    ┃                   ╭╌╌╌╌╯
//!     │    ┃              ╭╌╌╌╌╯
//!     │    ┗━━━━╌╌╌╌╌╌╌╌╌╌╯     each cost c moves F by c·p/n to the right
//!   0 ┼────┬────────────────────┬──────── time
//!         now                   F
//! ```
//!
//! The level at any instant is C minus what refills between then and F, so time alone refills the bucket
//! (lazily, without a timer), three charges of one equal one charge of three, and a cost fits exactly when it
//! would not push F further than C·p/n away. F is kept as whole microseconds and a numerator over n:
//! nothing is ever rounded, so neither drift nor rate error exists.
//!
//! Variants, all on the same F:
//! - **Forced charges** may push F beyond the capacity: debt, repaid before anything else is admitted.
//! - **Loan**: a request that finds too few tokens may borrow up to `loan` of the future. What is borrowed is
//!   not available again until the whole debt is repaid: that is what tells a loan from a larger bucket.
//! - **Initial fill** below capacity: a new key starts part-filled. A key that has been full for as long again
//!   as a refill takes counts as new.
//!
//! When the rate or the capacity of a limit changes, F stays: a bucket that was nine tenths drained stays so,
//! and one that would now be emptier than empty is empty.

use super::{Machine, Saved, View};
use crate::error::LimitError;
use crate::limit::Ask;
use crate::rate::{Pace, Rate, Stretch};
use crate::spec::TokenBucket;
use crate::state::Cell;
use crate::time::{MAX_INTEGER, Micros, Timestamp};

/// The longest refill of a whole bucket, so that instants stay representable for another century.
const LONGEST_SPAN: u64 = 1 << 52;
/// In the word: the debt was forced, so an F beyond the capacity is meant.
const FORCED: u64 = 1 << 52;
/// With a loan the word holds the fraction below this bit and what is borrowed above it.
const LOAN_BITS: u32 = 26;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket {
    pace: Pace,
    capacity: u64,
    /// How long a refill from empty to full takes.
    span: Stretch,
    /// How far from full a fresh bucket is.
    unfilled: Stretch,
    /// How long after being full a key counts as new: zero when new ones are full.
    hold: u64,
    loan: u64,
}

#[derive(Clone, Copy)]
pub(crate) struct Now {
    at: u64,
    /// When the bucket will be full: not before `at`.
    full: Stretch,
    forced: bool,
    /// Borrowed since the bucket was last out of debt.
    borrowed: u64,
}

impl Bucket {
    pub(crate) fn new(spec: &TokenBucket) -> Result<Self, LimitError> {
        Self::with(spec.rate, spec.capacity, spec.initial.unwrap_or(spec.capacity), spec.loan)
    }

    pub(crate) fn meter(rate: Rate, capacity: u64) -> Result<Self, LimitError> {
        Self::with(rate, capacity, capacity, 0)
    }

    fn with(rate: Rate, capacity: u64, initial: u64, loan: u64) -> Result<Self, LimitError> {
        let most = capacity.checked_add(loan).filter(|most| *most <= MAX_INTEGER).ok_or(LimitError::TooLarge)?;
        // A bucket that holds nothing denies everything, at any rate.
        let effective = if most == 0 { Rate::per_second(1) } else { rate };
        let pace = Pace::new(effective).ok_or(LimitError::NeverRefills)?;
        if pace.times(most).whole >= LONGEST_SPAN {
            return Err(LimitError::RefillTooSlow);
        }
        if pace.units() >= FORCED {
            return Err(LimitError::TooLarge);
        }
        if loan > 0 && (pace.units().max(loan) >> LOAN_BITS) > 0 {
            return Err(LimitError::LoanTooLarge);
        }
        if initial > capacity {
            return Err(LimitError::InitialAboveCapacity);
        }
        let span = pace.times(capacity);
        let hold = if initial < capacity { span.ceil().as_micros().max(1) } else { 0 };
        Ok(Self { pace, capacity, span, unfilled: pace.times(capacity - initial), hold, loan })
    }

    /// The same states, read as those of a bucket that holds `overage` more.
    pub(crate) fn raised(&self, overage: u64) -> Result<Self, LimitError> {
        let capacity = self.capacity.saturating_add(overage);
        let span = self.pace.times(capacity);
        if span.whole >= LONGEST_SPAN {
            return Err(LimitError::RefillTooSlow);
        }
        Ok(Self { capacity, span, ..*self })
    }

    /// How far from full the bucket is.
    #[inline]
    fn drained(&self, now: &Now) -> Stretch {
        // `full` is not before `at`, so only whole microseconds are subtracted.
        Stretch { whole: now.full.whole - now.at, part: now.full.part }
    }

    #[inline]
    fn in_debt(&self, drained: Stretch) -> bool {
        drained > self.span
    }

    /// Units that a charge of `cost` would have to borrow in all.
    #[inline]
    fn borrowing(&self, now: &Now, cost: u64) -> u64 {
        let drained = self.drained(now);
        if self.in_debt(drained) {
            return now.borrowed.saturating_add(cost);
        }
        let short = self.pace.subtract(self.pace.add(drained, self.pace.times(cost)), self.span);
        if short == Stretch::ZERO {
            return 0;
        }
        let whole = self.pace.units_within(short);
        whole + u64::from(self.pace.times(whole) < short)
    }
}

impl Machine for Bucket {
    type Now<'a> = Now;

    #[inline]
    fn load(&self, view: View<'_>, ask: &Ask) -> Now {
        let at = ask.now.as_micros();
        let start = Stretch { whole: at, part: 0 };
        if view.is_fresh() {
            let full = if self.hold == 0 { start } else { self.pace.add(start, self.unfilled) };
            return Now { at, full, forced: false, borrowed: 0 };
        }
        let word = view.cell.word;
        let forced = self.loan == 0 && word & FORCED != 0;
        let (part, borrowed) =
            if self.loan == 0 { (word & (FORCED - 1), 0) } else { (word & ((1 << LOAN_BITS) - 1), word >> LOAN_BITS) };
        let part = part.min(self.pace.units() - 1);
        let ceiling = view.cell.fresh_at.as_micros().saturating_sub(self.hold);
        let full = Stretch { whole: ceiling.saturating_sub(u64::from(part > 0)), part };
        let mut now = Now { at, full: full.max(start), forced, borrowed };
        let drained = self.drained(&now);
        if self.in_debt(drained) {
            // Emptier than empty without having been forced: the limit was another one when this was stored.
            if !forced && borrowed == 0 {
                now.full = self.pace.add(start, self.span);
            }
        } else {
            now.forced = false;
            now.borrowed = 0;
        }
        now
    }

    fn capacity(&self) -> u64 {
        self.capacity + self.loan
    }

    #[inline]
    fn remaining(&self, now: &Now) -> u64 {
        let drained = self.drained(now);
        if self.in_debt(drained) {
            self.loan.saturating_sub(now.borrowed)
        } else {
            self.pace.units_within(self.pace.subtract(self.span, drained)) + self.loan
        }
    }

    #[inline]
    fn fits(&self, now: &Now, cost: u64) -> bool {
        if self.loan > 0 {
            return cost <= self.remaining(now);
        }
        cost <= self.capacity && self.pace.add(self.drained(now), self.pace.times(cost)) <= self.span
    }

    fn wait(&self, now: &Now, cost: u64) -> Option<Micros> {
        if cost > self.capacity() {
            return None;
        }
        let drained = self.drained(now);
        // Out of debt the whole loan is there again, so only the rest has to be earned.
        let to_earn = self.pace.times(cost.saturating_sub(self.loan));
        let excess = self.pace.subtract(self.pace.add(drained, to_earn), self.span);
        Some(excess.ceil())
    }

    #[inline]
    fn charge(&self, now: &mut Now, cost: u64) {
        if self.loan > 0 {
            now.borrowed = self.borrowing(now, cost);
        }
        now.full = self.pace.add(now.full, self.pace.times(cost));
        now.forced |= self.loan == 0 && self.in_debt(self.drained(now));
    }

    fn refund(&self, now: &mut Now, cost: u64, _charged_at: Timestamp) {
        let earlier = self.pace.subtract(now.full, self.pace.times(cost));
        now.full = earlier.max(Stretch { whole: now.at, part: 0 });
        now.borrowed = now.borrowed.saturating_sub(cost);
        if !self.in_debt(self.drained(now)) {
            now.forced = false;
            now.borrowed = 0;
        }
    }

    fn reset_after(&self, now: &Now) -> Micros {
        self.drained(now).ceil()
    }

    #[inline]
    fn save(&self, now: Now) -> Saved {
        let fresh_at = now.full.ceil().as_micros().saturating_add(self.hold);
        let word = if self.loan == 0 {
            now.full.part | if now.forced { FORCED } else { 0 }
        } else {
            now.full.part | (now.borrowed.min((1 << LOAN_BITS) - 1) << LOAN_BITS)
        };
        Saved::cell(Cell { fresh_at: Timestamp::from_micros(fresh_at), word })
    }
}
