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
//! - **Initial fill** below capacity: a new key starts part-filled and fills from its first request on, admitted or not.
//!   A key that has been full for as long again as a refill takes counts as new.
//!
//! When the rate or the capacity of a limit changes, F stays: a bucket that was nine tenths drained stays so, and one
//! that would now be emptier than empty is empty. The same when the clock is set back: F stays, and who waits for it
//! waits no longer than an empty bucket takes to fill, and its debt to be repaid, of which is kept how much it was at
//! most.

use super::{MOST_APART, Machine, Saved, View};
use crate::error::LimitError;
use crate::limit::{Ask, Intent};
use crate::lua::Numbers;
use crate::rate::{Pace, Rate, Stretch};
use crate::spec::TokenBucket;
use crate::state::Cell;
use crate::time::{MAX_INTEGER, Micros, Timestamp};

/// The longest refill of a whole bucket, so that instants stay representable for another century.
const LONGEST_SPAN: u64 = 1 << 52;
/// In the word of a bucket whose fractions need more than [`LOAN_BITS`]: there is a debt, and nothing is known of how
/// much.
const FORCED: u64 = 1 << 52;
/// The word holds the fraction below this bit and what is borrowed above it.
const LOAN_BITS: u32 = 26;
/// What is borrowed is counted up to here, which is also what is said of a debt of which nothing is known.
const MOST_BORROWED: u64 = (1 << LOAN_BITS) - 1;

/// `PLAIN` buckets, by far the most common, neither lend nor start part-filled, and their tokens come whole
/// microseconds apart: the same code, compiled without what they do not need.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket<const PLAIN: bool> {
    pace: Pace<PLAIN>,
    capacity: u64,
    /// How long a refill from empty to full takes.
    span: Stretch,
    /// How far from full a fresh bucket is.
    unfilled: Stretch,
    /// How long after being full a key counts as new: zero when new ones are full.
    hold: u64,
    loan: u64,
}

pub(crate) struct Now {
    at: u64,
    /// How far from full the bucket is: from `at` to F.
    drained: Stretch,
    /// Borrowed, or taken by force, since the bucket was last out of debt: no less than the debt.
    borrowed: u64,
    /// Time alone does not make this of what is stored.
    adjusted: bool,
}

impl Bucket<false> {
    pub(crate) fn new(spec: &TokenBucket) -> Result<Self, LimitError> {
        Self::with(spec.rate, spec.capacity, spec.initial.unwrap_or(spec.capacity), spec.loan)
    }

    pub(crate) fn meter(rate: Rate, capacity: u64) -> Result<Self, LimitError> {
        Self::with(rate, capacity, capacity, 0)
    }

    fn with(rate: Rate, capacity: u64, initial: u64, loan: u64) -> Result<Self, LimitError> {
        let most = capacity.checked_add(loan).filter(|most| *most <= MAX_INTEGER).ok_or(LimitError::TooLarge)?;
        // A bucket that holds nothing denies everything, even at no rate.
        let any = if most == 0 { Pace::new(Rate::per_second(1)) } else { None };
        let pace = Pace::new(rate).or(any).ok_or(LimitError::NeverRefills)?;
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

    /// Buckets that start part-filled read their states by how long they are held.
    pub(crate) fn lineage(&self) -> u64 {
        self.hold
    }

    /// The same as a plain one, if it is.
    pub(crate) fn plain(&self) -> Option<Bucket<true>> {
        let Self { pace, capacity, span, unfilled, hold, loan } = *self;
        let pace = pace.whole().filter(|_| hold == 0 && loan == 0)?;
        Some(Bucket { pace, capacity, span, unfilled, hold, loan })
    }

    /// The same states, read as those of a bucket that holds `overage` more, or lends it if it lends at all.
    pub(crate) fn raised(&self, overage: u64) -> Result<Self, LimitError> {
        let most = self.capacity.saturating_add(self.loan).saturating_add(overage);
        if self.pace.times(most).whole >= LONGEST_SPAN {
            return Err(LimitError::RefillTooSlow);
        }
        if self.loan == 0 {
            return Ok(Self { capacity: most, span: self.pace.times(most), ..*self });
        }
        let loan = self.loan.saturating_add(overage);
        if loan >> LOAN_BITS > 0 { Err(LimitError::LoanTooLarge) } else { Ok(Self { loan, ..*self }) }
    }
}

impl<const PLAIN: bool> Bucket<PLAIN> {
    /// For the same step in Lua.
    pub(crate) fn encode(&self, numbers: &mut Numbers<'_>) {
        let Self { pace, capacity, span, unfilled, hold, loan } = self;
        numbers.begin();
        numbers.put_all([*capacity, pace.micros(), span.whole]);
        numbers.byte(u8::from(!PLAIN));
        if !PLAIN {
            numbers.put_all([pace.units(), span.part, unfilled.whole, unfilled.part, *hold, *loan]);
        }
    }

    #[inline(always)]
    fn loan(&self) -> u64 {
        if PLAIN { 0 } else { self.loan }
    }

    #[inline(always)]
    fn hold(&self) -> u64 {
        if PLAIN { 0 } else { self.hold }
    }

    #[inline(always)]
    fn unfilled(&self) -> Stretch {
        if PLAIN { Stretch::ZERO } else { self.unfilled }
    }

    #[inline(always)]
    fn in_debt(&self, now: &Now) -> bool {
        self.pace.exceeds(now.drained, self.span)
    }

    /// How far from full the bucket is once `cost` is taken.
    #[inline(always)]
    fn drained_by(&self, now: &Now, cost: u64) -> Stretch {
        self.pace.add(now.drained, self.pace.times(cost))
    }

    /// Units that a charge of `cost` would have to borrow in all.
    #[inline(always)]
    fn borrowing(&self, now: &Now, cost: u64) -> u64 {
        if self.in_debt(now) {
            return now.borrowed.saturating_add(cost);
        }
        let short = self.pace.subtract(self.drained_by(now, cost), self.span);
        let whole = self.pace.units_within(short);
        whole.saturating_add(u64::from(self.pace.times(whole) < short))
    }

    /// Whether fractions leave room in the word for what is borrowed: always when there is a loan.
    #[inline(always)]
    fn counts_debt(&self) -> bool {
        PLAIN || self.pace.units() >> LOAN_BITS == 0
    }

    /// The fraction, and what is borrowed.
    #[inline(always)]
    fn unpack(&self, word: u64) -> (u64, u64) {
        let (part, borrowed) = if self.counts_debt() {
            (word & MOST_BORROWED, word >> LOAN_BITS)
        } else {
            (word & (FORCED - 1), if word & FORCED == 0 { 0 } else { MOST_BORROWED })
        };
        (part.min(self.pace.units() - 1), borrowed)
    }

    #[inline(always)]
    fn pack(&self, part: u64, borrowed: u64) -> u64 {
        let borrowed = if self.counts_debt() {
            borrowed.min(MOST_BORROWED) << LOAN_BITS
        } else {
            FORCED * u64::from(borrowed > 0)
        };
        part | borrowed
    }

    /// The furthest from full that a bucket gets which has borrowed so much; `None` when that is not known.
    #[inline(always)]
    fn most_drained(&self, borrowed: u64) -> Option<Stretch> {
        match borrowed {
            0 => Some(self.span),
            MOST_BORROWED.. => None,
            borrowed => Some(self.pace.add(self.span, self.pace.times(borrowed))),
        }
    }
}

impl Bucket<true> {
    /// What [`super::run`] makes of a charge that fits, as most do: F, or now if that is later, moves on. `None` for
    /// whatever else is asked.
    #[inline(always)]
    pub(crate) fn spend(&self, cell: Cell, ask: &Ask) -> Option<(Now, Cell)> {
        let is_usual = ask.intent == Intent::Spend && ask.cost.wrapping_sub(1) < self.capacity;
        let at = ask.now.as_micros();
        let full_at = cell.fresh_at.as_micros().max(at).wrapping_add(ask.cost.wrapping_mul(self.pace.micros()));
        let drained = Stretch { whole: full_at.wrapping_sub(at), part: 0 };
        (is_usual && drained.whole <= self.span.whole).then_some((
            Now { at, drained, borrowed: 0, adjusted: false },
            Cell { fresh_at: Timestamp::from_micros(full_at), word: self.pack(0, 0) },
        ))
    }
}

impl<const PLAIN: bool> Machine for Bucket<PLAIN> {
    type Now<'a> = Now;

    #[inline(always)]
    fn load(&self, view: View<'_>, ask: &Ask) -> Now {
        let at = ask.now.as_micros();
        if view.is_fresh() {
            return Now { at, drained: self.unfilled(), borrowed: 0, adjusted: self.hold() > 0 };
        }
        let (part, borrowed) = self.unpack(view.cell.word);
        let whole = view.cell.fresh_at.as_micros().saturating_sub(at).checked_sub(self.hold() + u64::from(part > 0));
        let drained = whole.map_or(Stretch::ZERO, |whole| Stretch { whole, part });
        let mut now = Now { at, drained, borrowed, adjusted: false };
        if !self.in_debt(&now) {
            now.borrowed = 0;
        } else if now.drained.whole - self.span.whole > MOST_APART
            && let Some(most) = self.most_drained(borrowed)
            && now.drained.whole.saturating_sub(most.whole) > MOST_APART
        {
            // Emptier than it was ever made: the limit was another one when this was stored, or the clock was set back
            // since.
            (now.drained, now.adjusted) = (most, true);
        }
        now
    }

    fn capacity(&self) -> u64 {
        self.capacity + self.loan()
    }

    #[inline(always)]
    fn remaining(&self, now: &Now) -> u64 {
        if self.in_debt(now) {
            self.loan().saturating_sub(now.borrowed)
        } else {
            self.pace.units_within(self.pace.subtract(self.span, now.drained)) + self.loan()
        }
    }

    #[inline(always)]
    fn fits(&self, now: &Now, cost: u64) -> bool {
        if self.loan() > 0 {
            return cost <= self.remaining(now);
        }
        cost <= self.capacity && !self.pace.exceeds(self.drained_by(now, cost), self.span)
    }

    #[inline(never)]
    fn wait(&self, now: &Now, cost: u64) -> Option<Micros> {
        if cost > self.capacity() {
            return None;
        }
        // Out of debt the whole loan is there again, so only the rest has to be earned.
        let to_earn = self.pace.times(cost.saturating_sub(self.loan()));
        Some(self.pace.subtract(now.drained, self.pace.subtract(self.span, to_earn)).ceil())
    }

    #[inline(always)]
    fn charge(&self, now: &mut Now, cost: u64) {
        let drained = self.drained_by(now, cost);
        if self.pace.exceeds(drained, self.span) {
            now.borrowed = self.borrowing(now, cost);
        }
        now.drained = drained;
    }

    fn refund(&self, now: &mut Now, cost: u64, _charged_at: Timestamp) {
        now.drained = self.pace.subtract(now.drained, self.pace.times(cost));
        if self.in_debt(now) {
            // All debt is borrowed, even when more was forced than is counted.
            let is_counted = now.borrowed < MOST_BORROWED;
            let returned = if is_counted { cost } else { 0 };
            now.borrowed = now.borrowed.saturating_sub(returned).max(u64::from(self.loan() > 0));
        } else {
            now.borrowed = 0;
        }
    }

    /// A new key that starts part-filled begins to fill when it is first asked for, admitted or not; and a bucket that
    /// was emptier than empty is empty from then on.
    #[inline(always)]
    fn is_adjusted(&self, now: &Now) -> bool {
        now.adjusted
    }

    #[inline(always)]
    fn reset_after(&self, now: &Now) -> Micros {
        now.drained.ceil()
    }

    fn kept_for(&self, now: &Now) -> Micros {
        self.reset_after(now).plus(Micros::from_micros(self.hold()))
    }

    #[inline(always)]
    fn save(&self, now: Now) -> Saved {
        let fresh_at = now.at + now.drained.ceil().as_micros() + self.hold();
        let word = self.pack(now.drained.part, now.borrowed);
        Saved::cell(Cell { fresh_at: Timestamp::from_micros(fresh_at), word })
    }
}
