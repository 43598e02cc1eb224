//! Descriptions of limits: plain data with nothing computed and nothing checked.
//!
//! [`crate::Limit::new`] makes a limit of one or says why it cannot.

use crate::calendar::Calendar;
use crate::rate::Rate;
use crate::time::Micros;

/// The most entries a sliding log may have to remember for one key, and the most slots of a concurrency limit.
pub const MAX_LOG: u64 = 1 << 16;
/// The most sub-windows of a sliding counter.
pub const MAX_SUB_WINDOWS: u32 = 1024;

/// How a limit counts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// Tokens that refill; see [`TokenBucket`].
    TokenBucket(TokenBucket),
    /// A fixed outflow; see [`LeakyBucket`].
    LeakyBucket(LeakyBucket),
    /// A counter per window; see [`FixedWindow`].
    FixedWindow(FixedWindow),
    /// Every event of the last window; see [`SlidingLog`].
    SlidingLog(SlidingLog),
    /// The default: two windows, weighted; see [`SlidingCounter`].
    SlidingCounter(SlidingCounter),
    /// At most so many at a time; see [`Concurrency`].
    Concurrency(Concurrency),
    /// A budget spent evenly; see [`Pacing`].
    Pacing(Pacing),
}

/// Tokens flow in at a rate, up to a capacity; a request takes its cost in tokens or is denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TokenBucket {
    /// How fast tokens flow in.
    pub rate: Rate,
    /// How many tokens the bucket holds: the largest burst.
    pub capacity: u64,
    /// Whether they flow in evenly or once per period.
    pub refill: Refill,
    /// How many tokens a new key starts with: a full bucket when `None`.
    pub initial: Option<u64>,
    /// How many tokens of the future may be borrowed. A loan is repaid in full before the next.
    pub loan: u64,
}

/// How tokens flow in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Refill {
    /// Evenly: 4 per minute is one every 15 seconds.
    #[default]
    Continuous,
    /// All at once, on the clock: 4 per minute is four at each full minute.
    Interval,
}

impl TokenBucket {
    /// A bucket that refills at `rate` and holds what one period brings.
    pub const fn new(rate: Rate) -> Self {
        Self { rate, capacity: rate.units, refill: Refill::Continuous, initial: None, loan: 0 }
    }

    /// Holds `capacity` tokens, so that many requests may come at once after a pause.
    pub const fn burst(self, capacity: u64) -> Self {
        Self { capacity, ..self }
    }

    /// Refills a whole period's tokens at once, at multiples of the period on the clock.
    pub const fn refill_at_intervals(self) -> Self {
        Self { refill: Refill::Interval, ..self }
    }

    /// New keys start with `tokens` instead of a full bucket.
    pub const fn initially(self, tokens: u64) -> Self {
        Self { initial: Some(tokens), ..self }
    }

    /// Lets a request that finds too few tokens borrow up to `loan` of the future.
    pub const fn borrow(self, loan: u64) -> Self {
        Self { loan, ..self }
    }
}

/// A bucket with a hole: what flows in leaves at a fixed rate, what does not fit is denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LeakyBucket {
    /// The rate of the outflow.
    pub rate: Rate,
    /// What happens to requests that come faster.
    pub form: LeakyForm,
}

/// The two things that are called a leaky bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LeakyForm {
    /// They wait their turn: admitted with a delay, in order.
    Queue {
        /// How many may wait.
        length: u64,
        /// How long one may wait at most.
        max_wait: Option<Micros>,
    },
    /// They are denied when the bucket is full; nothing is delayed.
    Meter {
        /// How many fit into the bucket: 1 allows no burst at all.
        capacity: u64,
    },
}

impl LeakyBucket {
    /// A queue of at most `length` waiting requests that leave at `rate`.
    pub const fn queue(rate: Rate, length: u64) -> Self {
        Self { rate, form: LeakyForm::Queue { length, max_wait: None } }
    }

    /// A meter without queue or burst.
    pub const fn meter(rate: Rate) -> Self {
        Self { rate, form: LeakyForm::Meter { capacity: 1 } }
    }

    /// Denies requests that would have to wait longer. A meter never makes anyone wait.
    pub const fn max_wait(self, longest: Micros) -> Self {
        match self.form {
            LeakyForm::Queue { length, .. } => {
                Self { form: LeakyForm::Queue { length, max_wait: Some(longest) }, ..self }
            }
            LeakyForm::Meter { .. } => self,
        }
    }
}

/// At most `limit` in each window.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FixedWindow {
    /// How many.
    pub limit: u64,
    /// Per which window.
    pub window: Window,
    /// Whether denied requests count as well.
    pub record_rejected: bool,
}

/// Where windows begin and end.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Window {
    /// At multiples of the length since the epoch: minutes at full minutes, hours at full hours.
    Clock {
        /// How long.
        length: Micros,
        /// Shifts each key's windows by its own offset, so that not all keys start anew at once.
        spread: bool,
    },
    /// At a key's first request after its last window.
    FirstEvent {
        /// How long.
        length: Micros,
    },
    /// By the calendar of a time zone.
    Calendar(Calendar),
}

impl Window {
    /// Windows on the clock.
    pub const fn clock(length: Micros) -> Self {
        Self::Clock { length, spread: false }
    }
}

impl From<Calendar> for Window {
    fn from(calendar: Calendar) -> Self {
        Self::Calendar(calendar)
    }
}

impl FixedWindow {
    /// At most `limit` in each window of `length` on the clock.
    pub const fn new(limit: u64, length: Micros) -> Self {
        Self { limit, window: Window::clock(length), record_rejected: false }
    }

    /// At most `limit` in each `window`.
    pub const fn in_window(limit: u64, window: Window) -> Self {
        Self { limit, window, record_rejected: false }
    }

    /// Counts denied requests too.
    pub fn record_rejected(self) -> Self {
        Self { record_rejected: true, ..self }
    }

    /// At most one per `interval`, counted from the last one admitted.
    pub const fn once_per(interval: Micros) -> Self {
        Self { limit: 1, window: Window::FirstEvent { length: interval }, record_rejected: false }
    }
}

/// At most `limit` in every window of this length, wherever it begins; exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SlidingLog {
    /// How many: at most [`MAX_LOG`].
    pub limit: u64,
    /// Per how much time.
    pub window: Micros,
    /// Whether denied requests count as well.
    pub record_rejected: bool,
}

impl SlidingLog {
    /// At most `limit` in any `window`; denied requests do not count.
    pub const fn new(limit: u64, window: Micros) -> Self {
        Self { limit, window, record_rejected: false }
    }

    /// Counts denied requests too.
    pub const fn record_rejected(self) -> Self {
        Self { record_rejected: true, ..self }
    }

    /// The nearest limit of the same rate with at most `most` entries: 10,000 per hour with at most 100 becomes 100
    /// per 36 seconds. Stricter than the original, since bursts must fit into the shorter window.
    pub const fn scaled_to(self, most: u64) -> Self {
        if most == 0 || self.limit <= most {
            return self;
        }
        let parts = self.limit.div_ceil(most);
        let limit = self.limit / parts;
        // Rounded up: the rate may fall by less than a microsecond's worth, never rise.
        let window = (self.window.as_micros() as u128 * limit as u128).div_ceil(self.limit as u128);
        Self { limit, window: Micros::from_micros(window as u64), ..self }
    }
}

/// At most `limit` in a rolling window, estimated from the counts of fixed ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SlidingCounter {
    /// How many.
    pub limit: u64,
    /// Per how much time.
    pub window: Micros,
    /// What happens to the fraction of the estimate.
    pub rounding: Rounding,
    /// Into how many counters the window is divided: more are more exact.
    pub sub_windows: u32,
}

/// What happens to the fraction of an estimate before a request's cost is added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Rounding {
    /// It counts as what it is.
    #[default]
    None,
    /// It is dropped.
    Floor,
    /// It counts as one.
    Ceil,
}

impl SlidingCounter {
    /// At most `limit` in a rolling `window`.
    pub const fn new(limit: u64, window: Micros) -> Self {
        Self { limit, window, rounding: Rounding::None, sub_windows: 1 }
    }

    /// Rounds the estimate.
    pub const fn rounding(self, rounding: Rounding) -> Self {
        Self { rounding, ..self }
    }

    /// Divides the window into `number` counters.
    pub const fn sub_windows(self, number: u32) -> Self {
        Self { sub_windows: number, ..self }
    }
}

/// At most `slots` at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Concurrency {
    /// How many at a time: at most [`MAX_LOG`].
    pub slots: u64,
    /// After how long a slot that was not released is free again.
    pub lease: Micros,
}

impl Concurrency {
    /// At most `slots` at a time, each for `lease` unless renewed.
    pub const fn new(slots: u64, lease: Micros) -> Self {
        Self { slots, lease }
    }
}

/// A budget spent evenly over each window.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pacing {
    /// How much per window.
    pub budget: u64,
    /// Which window.
    pub window: Window,
    /// How far spending may run ahead of the straight line: at least 1.
    pub slack: u64,
}

impl Pacing {
    /// `budget` per `window`, at most one thousandth (and at least 1) ahead of the straight line.
    pub const fn new(budget: u64, window: Window) -> Self {
        let slack = budget.div_ceil(1_000);
        Self { budget, window, slack }
    }

    /// At most `slack` ahead of the straight line.
    pub fn slack(self, slack: u64) -> Self {
        Self { slack, ..self }
    }
}

/// Lets a limit be exceeded by a little, for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Soft {
    /// By how many units.
    pub overage: u64,
    /// For how long after the first request above the limit. After that the limit is hard until a request is within it
    /// again, or the key is as good as new.
    pub lasting: Micros,
}

impl Algorithm {
    /// The number that people would call its limit.
    pub(crate) fn size(&self) -> u64 {
        match self {
            Self::TokenBucket(spec) => spec.capacity,
            Self::LeakyBucket(LeakyBucket { form: LeakyForm::Queue { length, .. }, .. }) => *length,
            Self::LeakyBucket(LeakyBucket { form: LeakyForm::Meter { capacity }, .. }) => *capacity,
            Self::FixedWindow(spec) => spec.limit,
            Self::SlidingLog(spec) => spec.limit,
            Self::SlidingCounter(spec) => spec.limit,
            Self::Concurrency(spec) => spec.slots,
            Self::Pacing(spec) => spec.budget,
        }
    }
}

macro_rules! algorithm_from {
    ($($name:ident),*) => {
        $(impl From<$name> for Algorithm {
            fn from(spec: $name) -> Self {
                Self::$name(spec)
            }
        })*
    };
}
algorithm_from!(TokenBucket, LeakyBucket, FixedWindow, SlidingLog, SlidingCounter, Concurrency, Pacing);
