//! Units per period, and the exact arithmetic of evenly spaced units.
//!
//! A rate of `units` per `period` is kept as a reduced fraction. One unit takes `period / units`
//! microseconds, which is rarely a whole number: three per second take 333,333 and a third each. That
//! third is never rounded away. Times on such a schedule are a [`Stretch`]: whole microseconds and a
//! numerator over the rate's own units.

use std::cmp::Ordering;

use crate::time::{MAX_INTEGER, Micros};

/// So many units in so much time, such as 300 per 3 hours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rate {
    /// How many units.
    pub units: u64,
    /// In how much time.
    pub period: Micros,
}

impl Rate {
    /// `units` in every `period`.
    pub const fn new(units: u64, period: Micros) -> Self {
        Self { units, period }
    }

    /// `units` in every second: `per_second(5)` is five a second, never one in five seconds.
    pub const fn per_second(units: u64) -> Self {
        Self::new(units, Micros::SECOND)
    }

    /// `units` in every minute.
    pub const fn per_minute(units: u64) -> Self {
        Self::new(units, Micros::MINUTE)
    }

    /// `units` in every hour.
    pub const fn per_hour(units: u64) -> Self {
        Self::new(units, Micros::HOUR)
    }

    /// `units` in every 24 hours.
    pub const fn per_day(units: u64) -> Self {
        Self::new(units, Micros::DAY)
    }
}

/// A length of time on the schedule of a [`Pace`]: `whole + part / units` microseconds, `part < units`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stretch {
    pub(crate) whole: u64,
    pub(crate) part: u64,
}

impl Stretch {
    pub(crate) const ZERO: Self = Self { whole: 0, part: 0 };

    pub(crate) const fn of(span: Micros) -> Self {
        Self { whole: span.as_micros(), part: 0 }
    }

    /// The shortest whole number of microseconds that is not shorter.
    #[inline(always)]
    pub(crate) const fn ceil(self) -> Micros {
        Micros::from_micros(self.whole + (self.part > 0) as u64)
    }
}

/// Compared as one number, which is one subtraction with borrow and no branch.
impl Ord for Stretch {
    #[inline(always)]
    fn cmp(&self, other: &Self) -> Ordering {
        let joined = |stretch: &Self| u128::from(stretch.whole) << 64 | u128::from(stretch.part);
        joined(self).cmp(&joined(other))
    }
}

impl PartialOrd for Stretch {
    #[inline(always)]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The spacing of units at a rate, as the reduced fraction `micros / units`.
///
/// When `WHOLE`, every unit takes whole microseconds: no stretch has a part, and none is looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace<const WHOLE: bool = false> {
    units: u64,
    micros: u64,
    each: Stretch,
}

impl Pace {
    /// `None` when the rate is zero or its period is.
    pub(crate) fn new(rate: Rate) -> Option<Self> {
        let (units, micros) = (rate.units, rate.period.as_micros());
        if units == 0 || micros == 0 {
            return None;
        }
        let divisor = greatest_common_divisor(units, micros);
        let (units, micros) = (units / divisor, micros / divisor);
        let each = Stretch { whole: micros / units, part: micros % units };
        Some(Self { units, micros, each })
    }

    /// The same, if units are whole microseconds apart.
    pub(crate) fn whole(&self) -> Option<Pace<true>> {
        let Self { units, micros, each } = *self;
        (units == 1).then_some(Pace { units, micros, each })
    }
}

impl<const WHOLE: bool> Pace<WHOLE> {
    /// The denominator of every [`Stretch`] of this pace.
    #[inline(always)]
    pub(crate) const fn units(&self) -> u64 {
        if WHOLE { 1 } else { self.units }
    }

    /// In so many microseconds there are [`Self::units`].
    pub(crate) const fn micros(&self) -> u64 {
        self.micros
    }

    /// How long `count` units take, saturating at 2^53 - 1 microseconds.
    #[inline(always)]
    pub(crate) fn times(&self, count: u64) -> Stretch {
        if count == 1 {
            return self.each;
        }
        let (whole, part) = match count.checked_mul(self.micros) {
            Some(product) => (product / self.units(), product % self.units()),
            None => {
                let (product, units) = (u128::from(count) * u128::from(self.micros), u128::from(self.units()));
                // The remainder is below `units`, a u64.
                (u64::try_from(product / units).unwrap_or(u64::MAX), (product % units) as u64)
            }
        };
        if whole > MAX_INTEGER { Stretch { whole: MAX_INTEGER, part: 0 } } else { Stretch { whole, part } }
    }

    /// How many whole units fit into `stretch`.
    #[inline(always)]
    pub(crate) fn units_within(&self, stretch: Stretch) -> u64 {
        match stretch.whole.checked_mul(self.units()).and_then(|n| n.checked_add(stretch.part)) {
            Some(numerator) => numerator / self.micros,
            None => {
                let numerator = u128::from(stretch.whole) * u128::from(self.units()) + u128::from(stretch.part);
                u64::try_from(numerator / u128::from(self.micros)).unwrap_or(u64::MAX)
            }
        }
    }

    /// `a + b`. Both are at most 2^53 microseconds; so is the sum, saturating.
    #[inline(always)]
    pub(crate) fn add(&self, a: Stretch, b: Stretch) -> Stretch {
        let part = if WHOLE { 0 } else { a.part + b.part };
        let carry = part >= self.units();
        let whole = a.whole + b.whole + u64::from(carry);
        let sum = Stretch { whole, part: if carry { part - self.units() } else { part } };
        if whole > MAX_INTEGER { Stretch { whole: MAX_INTEGER, part: 0 } } else { sum }
    }

    /// Whether `a` is longer than `b`.
    #[inline(always)]
    pub(crate) fn exceeds(&self, a: Stretch, b: Stretch) -> bool {
        if WHOLE { a.whole > b.whole } else { a > b }
    }

    /// `a - b`, or zero when `b` is longer.
    #[inline(always)]
    pub(crate) fn subtract(&self, a: Stretch, b: Stretch) -> Stretch {
        if WHOLE {
            return Stretch { whole: a.whole.saturating_sub(b.whole), part: 0 };
        }
        if a <= b {
            return Stretch::ZERO;
        }
        let borrow = a.part < b.part;
        Stretch {
            whole: a.whole - b.whole - u64::from(borrow),
            part: if borrow { a.part + self.units() - b.part } else { a.part - b.part },
        }
    }
}

const fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_third_of_a_second_is_kept_exactly() {
        let pace = Pace::new(Rate::per_second(3)).expect("not zero");
        assert_eq!(pace.times(1), Stretch { whole: 333_333, part: 1 });
        assert_eq!(pace.times(3), Stretch::of(Micros::SECOND));
        assert_eq!(pace.add(pace.times(1), pace.times(2)), Stretch::of(Micros::SECOND));
        assert_eq!(pace.subtract(pace.times(3), pace.times(1)), pace.times(2));
        assert_eq!(pace.units_within(Stretch { whole: 333_333, part: 0 }), 0);
        assert_eq!(pace.units_within(Stretch { whole: 333_333, part: 1 }), 1);
    }

    #[test]
    fn both_ends_of_the_range_are_exact() {
        let slow = Pace::new(Rate::new(1, Micros::YEAR)).expect("not zero");
        assert_eq!(slow.times(1), Stretch::of(Micros::YEAR));
        let fast = Pace::new(Rate::per_second(1_000_000_000)).expect("not zero");
        assert_eq!(fast.times(1), Stretch { whole: 0, part: 1 });
        assert_eq!(fast.units_within(Stretch::of(Micros::SECOND)), 1_000_000_000);
        let odd = Pace::new(Rate::new(MAX_INTEGER, Micros::YEAR)).expect("not zero");
        assert_eq!(odd.units_within(odd.times(MAX_INTEGER)), MAX_INTEGER);
    }

    #[test]
    fn what_does_not_fit_saturates() {
        let slow = Pace::new(Rate::new(1, Micros::YEAR)).expect("not zero");
        assert_eq!(slow.times(u64::MAX), Stretch::of(Micros::MAX));
        assert_eq!(slow.add(Stretch::of(Micros::MAX), slow.times(1)), Stretch::of(Micros::MAX));
    }
}
