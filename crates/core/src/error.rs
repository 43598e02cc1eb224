//! Why a description is not a limit, and what to write instead.

use std::fmt;

use crate::spec::{MAX_LOG, MAX_SUB_WINDOWS, SlidingLog};
use crate::time::{MAX_INTEGER, Micros};

/// Why a description is not a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LimitError {
    /// A number exceeds 2^53 - 1.
    TooLarge,
    /// A bucket with room for tokens but a rate of zero.
    NeverRefills,
    /// Refilling the bucket or emptying the queue takes over 140 years.
    RefillTooSlow,
    /// The initial fill exceeds the capacity.
    InitialAboveCapacity,
    /// A loan of 2^26 or more, or a rate that needs a larger denominator.
    LoanTooLarge,
    /// A loan on a bucket that is refilled at intervals.
    LoanNeedsContinuousRefill,
    /// A window of zero length.
    NoWindow,
    /// A window of over 71 years.
    WindowTooLong,
    /// A log would have to remember too much.
    LogTooLong {
        /// What was asked for.
        limit: u64,
        /// Per how much time.
        window: Micros,
    },
    /// The window cannot be divided into that many whole parts.
    UnevenSubWindows,
    /// More slots than can be tracked.
    TooManySlots {
        /// What was asked for.
        slots: u64,
    },
    /// A lease of zero length.
    NoLease,
    /// A pacing slack of zero.
    NoSlack,
    /// A pacing window that starts with the first request.
    PacingNeedsAClock,
    /// An overage that lasts no time, or is larger than both the limit itself and 65,536.
    BadOverage,
}

impl fmt::Display for LimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge => write!(f, "a number is above {MAX_INTEGER} (2^53 - 1); count in a larger unit"),
            Self::NeverRefills => {
                write!(
                    f,
                    "the rate is zero, so the bucket never refills or the queue never moves; use at least 1 per period, or a capacity of 0 to deny everything"
                )
            }
            Self::RefillTooSlow => {
                write!(
                    f,
                    "refilling the whole bucket would take over 140 years; use a smaller capacity or a higher rate"
                )
            }
            Self::InitialAboveCapacity => write!(f, "the initial fill is above the capacity; use at most the capacity"),
            Self::LoanTooLarge => {
                write!(
                    f,
                    "the loan and the units of the reduced rate must be below 2^26; use a smaller loan or a rounder rate"
                )
            }
            Self::LoanNeedsContinuousRefill => {
                write!(f, "a bucket refilled at intervals cannot lend; use continuous refill or a larger capacity")
            }
            Self::NoWindow => write!(f, "the window has no length; use at least one microsecond"),
            Self::WindowTooLong => write!(f, "the window is longer than 71 years; use a shorter one"),
            Self::LogTooLong { limit, window } => {
                let fits = SlidingLog::new(*limit, *window).scaled_to(MAX_LOG);
                write!(
                    f,
                    "a sliding log of {limit} entries is above the bound of {MAX_LOG}; use a sliding counter, or {} per {}",
                    fits.limit, fits.window
                )
            }
            Self::UnevenSubWindows => {
                write!(f, "the window must divide into 1 to {MAX_SUB_WINDOWS} sub-windows of whole microseconds")
            }
            Self::TooManySlots { slots } => {
                write!(f, "{slots} slots are above the bound of {MAX_LOG}; use fewer, or several keys")
            }
            Self::NoLease => write!(f, "the lease has no length, so a slot would be free again at once"),
            Self::NoSlack => write!(f, "the slack is zero, so the last unit could never be spent; use at least 1"),
            Self::PacingNeedsAClock => {
                write!(
                    f,
                    "pacing needs windows on the clock or the calendar, not windows that start with the first request"
                )
            }
            Self::BadOverage => {
                write!(
                    f,
                    "the overage of a soft limit must last some time, and be at most the limit itself or 65536, whichever is larger"
                )
            }
        }
    }
}

impl std::error::Error for LimitError {}
