//! Random descriptions of limits.
//!
//! Small ones have numbers so low that boundaries meet often; extreme ones put every number to the edges of what an
//! integer or a double can hold. Not all extreme ones are limits: [`tollgate_core::Limit::new`] refuses most.

use tollgate_core::{
    Algorithm, Calendar, CalendarUnit, Concurrency, FixedWindow, LeakyBucket, LeakyForm, Micros, Pacing, Rate,
    Rounding, SlidingCounter, SlidingLog, Soft, TokenBucket, Window, Zone,
};

use super::source::Source;

/// The algorithms and their variants, as far as they have laws of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A token bucket with continuous refill, perhaps with an initial fill.
    TokenBucket,
    /// The same, lending.
    LendingBucket,
    /// A token bucket that is refilled at intervals.
    IntervalBucket,
    /// A leaky bucket as a meter.
    Meter,
    /// A leaky bucket as a queue.
    Queue,
    /// A fixed window on the clock, perhaps spread by key.
    ClockWindow,
    /// A fixed window that begins with the first event.
    FirstEventWindow,
    /// A fixed window by the calendar.
    CalendarWindow,
    /// A sliding log.
    SlidingLog,
    /// A sliding counter of two windows.
    SlidingCounter,
    /// A sliding counter of sub-windows.
    SubWindows,
    /// Slots with leases.
    Concurrency,
    /// A budget spent evenly.
    Pacing,
}

/// How large the numbers of a description are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Units below a dozen, times from microseconds to days.
    Small,
    /// Anything, by preference where integers end.
    Extreme,
}

/// The edges of integers and doubles.
pub const EDGES: [u64; 12] = [
    0,
    1,
    2,
    (1 << 31) - 1,
    1 << 31,
    (1 << 32) - 1,
    1 << 52,
    (1 << 53) - 1,
    1 << 53,
    (1 << 53) + 1,
    i64::MAX as u64,
    u64::MAX,
];

impl Scale {
    /// A number of units.
    pub fn units(self, source: &mut Source<'_>) -> u64 {
        match self {
            Self::Small => source.below(11),
            Self::Extreme => match source.below(4) {
                0 => source.below(1_000),
                1 => source.pick(&[1_000_000, 1_000_000_000, 65_536, 65_537], 1),
                2 => source.pick(&EDGES, 1),
                _ => source.word() >> source.below(64),
            },
        }
    }

    /// A length of time.
    pub fn span(self, source: &mut Source<'_>) -> Micros {
        match self {
            Self::Small => {
                let count = source.pick(&[1, 2, 3, 4, 5, 6, 7, 10, 12, 60], 1);
                let unit = source.pick(&[1, 1, 10, 1_000, 1_000_000], 1);
                Micros::from_micros(count * unit)
            }
            Self::Extreme => match source.below(4) {
                0 => {
                    source.pick(&[Micros::SECOND, Micros::MINUTE, Micros::HOUR, Micros::DAY, Micros::YEAR], Micros::DAY)
                }
                1 => Micros::from_micros(source.below(1_000)),
                2 => Micros::from_micros(source.pick(&EDGES, 1)),
                _ => Micros::from_micros(source.word() >> source.below(64)),
            },
        }
    }

    fn rate(self, source: &mut Source<'_>) -> Rate {
        let units = match self {
            Self::Small => 1 + source.below(10),
            Self::Extreme => self.units(source),
        };
        Rate::new(units, self.span(source))
    }
}

/// A description of this kind. It need not be a limit.
pub fn algorithm(kind: Kind, scale: Scale, source: &mut Source<'_>) -> Algorithm {
    match kind {
        Kind::TokenBucket | Kind::IntervalBucket => {
            let bucket = TokenBucket::new(scale.rate(source)).burst(scale.units(source));
            let bucket = if kind == Kind::IntervalBucket { bucket.refill_at_intervals() } else { bucket };
            let initially = scale.units(source).min(bucket.capacity);
            if source.once_in(3) { bucket.initially(initially).into() } else { bucket.into() }
        }
        Kind::LendingBucket => {
            let bucket = TokenBucket::new(scale.rate(source)).burst(scale.units(source)).borrow(1 + source.below(6));
            let initially = scale.units(source).min(bucket.capacity);
            if source.once_in(3) { bucket.initially(initially).into() } else { bucket.into() }
        }
        Kind::Meter => {
            let form = LeakyForm::Meter { capacity: scale.units(source) };
            LeakyBucket { rate: scale.rate(source), form }.into()
        }
        Kind::Queue => {
            let queue = LeakyBucket::queue(scale.rate(source), scale.units(source));
            if source.once_in(3) { queue.max_wait(scale.span(source)).into() } else { queue.into() }
        }
        Kind::ClockWindow | Kind::FirstEventWindow | Kind::CalendarWindow => {
            let fixed = FixedWindow::in_window(scale.units(source), window(kind, scale, source));
            if source.once_in(3) { fixed.record_rejected().into() } else { fixed.into() }
        }
        Kind::SlidingLog => {
            let log = SlidingLog::new(scale.units(source), scale.span(source));
            if source.once_in(3) { log.record_rejected().into() } else { log.into() }
        }
        Kind::SlidingCounter => counter(scale, source).into(),
        Kind::SubWindows => {
            let number = if scale == Scale::Small { 2 + source.byte() % 5 } else { 1 + source.byte() % 6 };
            let counter = counter(scale, source);
            let window = Micros::from_micros(counter.window.as_micros().saturating_mul(u64::from(number)));
            SlidingCounter { window, ..counter }.sub_windows(u32::from(number)).into()
        }
        Kind::Concurrency => Concurrency::new(scale.units(source), scale.span(source)).into(),
        Kind::Pacing => {
            let kind = if source.once_in(4) { Kind::CalendarWindow } else { Kind::ClockWindow };
            let pacing = Pacing::new(scale.units(source), window(kind, scale, source));
            let slack = scale.units(source);
            if source.once_in(2) { pacing.slack(slack.max(1)).into() } else { pacing.into() }
        }
    }
}

fn counter(scale: Scale, source: &mut Source<'_>) -> SlidingCounter {
    let rounding = source.pick(&[Rounding::None, Rounding::Floor, Rounding::Ceil], Rounding::None);
    SlidingCounter::new(scale.units(source), scale.span(source)).rounding(rounding)
}

fn window(kind: Kind, scale: Scale, source: &mut Source<'_>) -> Window {
    match kind {
        Kind::FirstEventWindow => Window::FirstEvent { length: scale.span(source) },
        Kind::CalendarWindow => calendar(source).into(),
        _ => Window::Clock { length: scale.span(source), spread: source.once_in(3) },
    }
}

/// Calendar windows in a zone with a few changes of its offset.
pub fn calendar(source: &mut Source<'_>) -> Calendar {
    use CalendarUnit::{Day, Month, Week, Year};
    let unit = source.pick(&[Day, Week, Month, Year], Day);
    let (initial, changes) = zone(source);
    Calendar::new(unit, Zone::new("Anywhere", initial, changes))
}

/// The offset of a random zone, and its changes: at most half a day, now and then over a day border.
pub fn zone(source: &mut Source<'_>) -> (i32, Vec<(i64, i32)>) {
    const QUARTER: i32 = 900;
    let offset = |source: &mut Source<'_>| (i32::from(source.byte() % 105) - 48) * QUARTER;
    let initial = offset(source);
    let number = source.below(4);
    let mut at = 0;
    let changes = (0..number).map(|_| {
        at += i64::from(source.byte()) * 86_400 + i64::from(source.byte() % 96) * i64::from(QUARTER) + 3 * 86_400;
        (at, offset(source))
    });
    (initial, changes.collect())
}

/// Softness, one time in four.
pub fn soft(scale: Scale, grain: Micros, source: &mut Source<'_>) -> Option<Soft> {
    if !source.once_in(4) {
        return None;
    }
    let lasting = match scale {
        Scale::Small => Micros::from_micros(1 + grain.as_micros() / 4 * source.below(12)),
        Scale::Extreme => scale.span(source),
    };
    Some(Soft { overage: scale.units(source), lasting })
}

/// The time in which something happens to a limit: one unit's interval, or one window.
pub fn grain(algorithm: &Algorithm) -> Micros {
    let windowed = |window: &Window| match window {
        Window::Clock { length, .. } | Window::FirstEvent { length } => *length,
        Window::Calendar(calendar) => match calendar.unit() {
            CalendarUnit::Day => Micros::DAY,
            CalendarUnit::Week => Micros::WEEK,
            CalendarUnit::Month => Micros::from_secs(30 * 86_400),
            CalendarUnit::Year => Micros::YEAR,
        },
    };
    match algorithm {
        Algorithm::TokenBucket(TokenBucket { rate, .. }) | Algorithm::LeakyBucket(LeakyBucket { rate, .. }) => {
            rate.period
        }
        Algorithm::FixedWindow(spec) => windowed(&spec.window),
        Algorithm::Pacing(spec) => windowed(&spec.window),
        Algorithm::SlidingLog(spec) => spec.window,
        Algorithm::SlidingCounter(spec) => spec.window,
        Algorithm::Concurrency(spec) => spec.lease,
    }
}
