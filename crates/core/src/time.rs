//! Points in time and lengths of time, in whole microseconds.
//!
//! Nothing here reads a clock: a [`Timestamp`] is always an argument. Both types stay below 2^53 and
//! saturate there, so that every value can also be held exactly by a double (and so by a Lua script).

use std::fmt;
use std::time::Duration;

/// The largest integer that is stored or handed to a script: 2^53 - 1.
pub const MAX_INTEGER: u64 = (1 << 53) - 1;

/// Microseconds since the Unix epoch, at most [`Timestamp::MAX`] (in the year 2255).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The Unix epoch.
    pub const EPOCH: Self = Self(0);
    /// The last representable instant; arithmetic saturates here.
    pub const MAX: Self = Self(MAX_INTEGER);

    /// The instant `micros` after the epoch, or [`Self::MAX`] when that is later.
    #[inline]
    pub const fn from_micros(micros: u64) -> Self {
        Self(if micros < MAX_INTEGER { micros } else { MAX_INTEGER })
    }

    /// The instant `seconds` after the epoch, or [`Self::MAX`] when that is later.
    pub const fn from_secs(seconds: u64) -> Self {
        Self::from_micros(seconds.saturating_mul(1_000_000))
    }

    /// Microseconds since the epoch.
    #[inline]
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// How long after `earlier` this is; zero when it is not after it.
    #[inline]
    pub const fn since(self, earlier: Self) -> Micros {
        Micros(self.0.saturating_sub(earlier.0))
    }

    /// This much later, saturating.
    #[inline]
    pub const fn plus(self, span: Micros) -> Self {
        Self::from_micros(self.0.saturating_add(span.0))
    }

    /// This much earlier, saturating at the epoch.
    #[inline]
    pub const fn minus(self, span: Micros) -> Self {
        Self(self.0.saturating_sub(span.0))
    }
}

/// A length of time in whole microseconds, at most [`Micros::MAX`] (285 years).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Micros(u64);

impl Micros {
    /// No time at all.
    pub const ZERO: Self = Self(0);
    /// The longest representable span; arithmetic saturates here.
    pub const MAX: Self = Self(MAX_INTEGER);
    /// One second.
    pub const SECOND: Self = Self(1_000_000);
    /// One minute.
    pub const MINUTE: Self = Self(60 * 1_000_000);
    /// One hour.
    pub const HOUR: Self = Self(3_600 * 1_000_000);
    /// 24 hours.
    pub const DAY: Self = Self(86_400 * 1_000_000);
    /// 7 days.
    pub const WEEK: Self = Self(7 * 86_400 * 1_000_000);
    /// 365 days.
    pub const YEAR: Self = Self(365 * 86_400 * 1_000_000);

    /// `micros` microseconds, saturating at [`Self::MAX`].
    #[inline]
    pub const fn from_micros(micros: u64) -> Self {
        Self(if micros < MAX_INTEGER { micros } else { MAX_INTEGER })
    }

    /// `millis` milliseconds, saturating.
    pub const fn from_millis(millis: u64) -> Self {
        Self::from_micros(millis.saturating_mul(1_000))
    }

    /// `seconds` seconds, saturating.
    pub const fn from_secs(seconds: u64) -> Self {
        Self::from_micros(seconds.saturating_mul(1_000_000))
    }

    /// The length in microseconds.
    #[inline]
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// The length in seconds, rounded up: what a `Retry-After` header may promise.
    pub const fn as_secs_ceil(self) -> u64 {
        self.0.div_ceil(1_000_000)
    }

    /// Whether this is no time at all.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// What is left after `other`, or nothing.
    pub const fn minus(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// The sum, saturating at [`Self::MAX`].
    pub const fn plus(self, other: Self) -> Self {
        Self::from_micros(self.0.saturating_add(other.0))
    }
}

impl From<Micros> for Duration {
    fn from(span: Micros) -> Self {
        Duration::from_micros(span.0)
    }
}

/// Rounds up to the next microsecond and saturates.
impl From<Duration> for Micros {
    fn from(span: Duration) -> Self {
        let micros = span.as_nanos().div_ceil(1_000);
        Self::from_micros(u64::try_from(micros).unwrap_or(MAX_INTEGER))
    }
}

/// Writes the largest unit that divides the span, such as `90s` or `3h`; failing that, seconds or less with a fraction,
/// such as `1.5s` or `199.935ms`.
impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(Micros, &str); 4] =
            [(Micros::DAY, "d"), (Micros::HOUR, "h"), (Micros::MINUTE, "min"), (Micros::SECOND, "s")];
        if let Some((size, name)) = UNITS.into_iter().find(|(size, _)| *self >= *size && self.0.is_multiple_of(size.0))
        {
            return write!(f, "{}{name}", self.0 / size.0);
        }
        let (size, digits, name) = match self.0 {
            0 => return f.write_str("0s"),
            1..1_000 => (1, 0, "us"),
            1_000..1_000_000 => (1_000, 3, "ms"),
            _ => (1_000_000, 6, "s"),
        };
        let fraction = format!("{:0digits$}", self.0 % size);
        let fraction = if digits == 0 { "" } else { fraction.trim_end_matches('0') };
        let point = if fraction.is_empty() { "" } else { "." };
        write!(f, "{}{point}{fraction}{name}", self.0 / size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_at_both_ends() {
        assert_eq!(Timestamp::from_micros(u64::MAX), Timestamp::MAX);
        assert_eq!(Timestamp::MAX.plus(Micros::SECOND), Timestamp::MAX);
        assert_eq!(Timestamp::EPOCH.minus(Micros::SECOND), Timestamp::EPOCH);
        assert_eq!(Timestamp::EPOCH.since(Timestamp::MAX), Micros::ZERO);
        assert_eq!(Micros::from_secs(u64::MAX), Micros::MAX);
        assert_eq!(Micros::from(Duration::MAX), Micros::MAX);
    }

    #[test]
    fn conversions_from_durations_round_up() {
        assert_eq!(Micros::from(Duration::from_nanos(1)), Micros::from_micros(1));
        assert_eq!(Micros::from_micros(1_000_001).as_secs_ceil(), 2);
        assert_eq!(Micros::SECOND.as_secs_ceil(), 1);
    }

    #[test]
    fn spans_print_in_a_unit_that_suits_them() {
        assert_eq!(Micros::from_secs(90).to_string(), "90s");
        assert_eq!(Micros::from_secs(10_800).to_string(), "3h");
        assert_eq!(Micros::from_micros(1_500).to_string(), "1.5ms");
        assert_eq!(Micros::from_micros(2_000).to_string(), "2ms");
        assert_eq!(Micros::from_micros(7).to_string(), "7us");
        assert_eq!(Micros::from_micros(199_935).to_string(), "199.935ms");
        assert_eq!(Micros::from_micros(61_050_000).to_string(), "61.05s");
        assert_eq!(Micros::ZERO.to_string(), "0s");
    }
}
