//! How much a limit can let through, and whether another can ever notice.
//!
//! Each limit is put into the form "never more than `burst + rate × time` in an interval of any length and place".
//! Where one limit's most is within what another always allows, the other is pointless beside it. Rounded so that "yes"
//! is certain.

use tollgate_core::{
    Algorithm, CalendarUnit, FixedWindow, LeakyBucket, LeakyForm, Limit, Micros, Refill, Rounding, SlidingCounter,
    Window,
};

/// Never more than `burst` and, for each `period` microseconds, `units`.
#[derive(Clone, Copy)]
struct Most {
    burst: u128,
    units: u128,
    period: u128,
}

impl Most {
    /// In a time of so many microseconds, rounded up.
    fn within(self, micros: u128) -> u128 {
        self.burst.saturating_add(self.units.saturating_mul(micros).div_ceil(self.period.max(1)))
    }
}

/// Whether `limit` can deny nothing that `stricter` admits, for one key that is charged to both.
pub(super) fn never_denies(limit: &Limit, stricter: &Limit) -> bool {
    // What is soft admits more for a while than can be said here.
    if stricter.softness().is_some() {
        return false;
    }
    let (one, other) = (limit.algorithm(), stricter.algorithm());
    if is_smaller(one, other) || aligned(one, other) {
        return true;
    }
    if let (Algorithm::Concurrency(limit), Algorithm::Concurrency(stricter)) = (limit.algorithm(), stricter.algorithm())
    {
        // A longer lease holds what the other has already let go.
        return stricter.slots <= limit.slots && stricter.lease >= limit.lease;
    }
    let Some(most) = most(stricter.algorithm()) else { return false };
    let fits =
        |micros: u64, allowed: u64| within(stricter.algorithm(), most, u128::from(micros)) <= u128::from(allowed);
    match limit.algorithm() {
        Algorithm::FixedWindow(spec) if !spec.record_rejected => fits(longest(&spec.window), spec.limit),
        Algorithm::SlidingLog(spec) if !spec.record_rejected => fits(spec.window.as_micros(), spec.limit),
        // The estimate is a weighted mean of what an interval of the window's length and its parts hold, and what grows
        // evenly with time is never above the line at such a mean. Rounding may add one.
        Algorithm::SlidingCounter(spec) => {
            let window = u128::from(spec.window.as_micros());
            let parts = if spec.sub_windows > 1 { window.div_ceil(u128::from(spec.sub_windows)) } else { 0 };
            let rounded = u128::from(spec.rounding == Rounding::Ceil);
            most.within(window + parts).saturating_add(rounded) <= u128::from(spec.limit)
        }
        Algorithm::TokenBucket(spec) if spec.refill == Refill::Continuous => {
            let starts_full = spec.initial.is_none_or(|initial| initial >= spec.capacity);
            starts_full && below(most, spec.capacity, spec.rate.units, spec.rate.period)
        }
        Algorithm::LeakyBucket(LeakyBucket { rate, form: LeakyForm::Meter { capacity } }) => {
            below(most, *capacity, rate.units, rate.period)
        }
        // The others delay, pace or refill in steps, which has an effect before anything is denied.
        _ => false,
    }
}

/// How many a leaky bucket has room for at once.
pub(super) fn leaky_room(spec: &LeakyBucket) -> u64 {
    match spec.form {
        LeakyForm::Queue { length, .. } => length,
        LeakyForm::Meter { capacity } => capacity,
    }
}

/// Whether a bucket that starts full is never empty.
fn below(most: Most, capacity: u64, units: u64, period: Micros) -> bool {
    let (slow, fast) = (most.units * u128::from(period.as_micros()), u128::from(units) * most.period);
    most.burst <= u128::from(capacity) && slow <= fast
}

/// Whether `stricter` is the same as `limit` with a smaller number: both remember the same, and the smaller is exceeded
/// first.
fn is_smaller(limit: &Algorithm, stricter: &Algorithm) -> bool {
    match (limit, stricter) {
        // Windows that are spread begin at another time for each limit.
        (Algorithm::FixedWindow(limit), Algorithm::FixedWindow(stricter)) => {
            let is_spread = matches!(limit.window, Window::Clock { spread: true, .. });
            stricter.limit <= limit.limit && stricter.window == limit.window && !limit.record_rejected && !is_spread
        }
        (Algorithm::SlidingCounter(limit), Algorithm::SlidingCounter(stricter)) => {
            stricter.limit <= limit.limit && SlidingCounter { limit: limit.limit, ..*stricter } == *limit
        }
        _ => false,
    }
}

/// Windows on the clock where one is a number of the others: then they begin together, and no window is cut.
fn aligned(limit: &Algorithm, stricter: &Algorithm) -> bool {
    let on_clock = |algorithm: &Algorithm| match algorithm {
        Algorithm::FixedWindow(FixedWindow {
            limit,
            window: Window::Clock { length, spread: false },
            record_rejected,
        }) => (!record_rejected).then_some((*limit, length.as_micros())),
        Algorithm::SlidingCounter(spec) if spec.sub_windows == 1 => Some((spec.limit, spec.window.as_micros())),
        _ => None,
    };
    let Some(((allowed, long), (most, short))) = on_clock(limit).zip(on_clock(stricter)) else { return false };
    if short == 0 || !long.is_multiple_of(short) {
        return false;
    }
    // The long window's estimate weighs the one before; the short window that is running may be as full as it gets.
    let running = match limit {
        Algorithm::SlidingCounter(spec) if spec.rounding == Rounding::Ceil => u128::from(most) + 1,
        Algorithm::SlidingCounter(_) => u128::from(most),
        _ => 0,
    };
    u128::from(long / short) * u128::from(most) + running <= u128::from(allowed)
}

fn within(algorithm: &Algorithm, most: Most, micros: u128) -> u128 {
    match algorithm {
        // Holds in every window, so the last of several need not be a full one more.
        Algorithm::SlidingLog(spec) => {
            u128::from(spec.limit).saturating_mul(micros.div_ceil(u128::from(spec.window.as_micros()).max(1)))
        }
        _ => most.within(micros),
    }
}

fn most(algorithm: &Algorithm) -> Option<Most> {
    let of = |burst: u64, units: u64, period: u64| Most {
        burst: u128::from(burst),
        units: u128::from(units),
        period: u128::from(period),
    };
    // An interval may begin and end inside windows, and have the whole of both.
    let windows = |limit: u64, length: u64| of(limit.saturating_mul(2), limit, length);
    Some(match algorithm {
        Algorithm::TokenBucket(spec) => {
            let full = spec.capacity.max(spec.initial.unwrap_or(0)).saturating_add(spec.loan);
            let at_once = if spec.refill == Refill::Interval { spec.rate.units } else { 0 };
            of(full.saturating_add(at_once), spec.rate.units, spec.rate.period.as_micros())
        }
        Algorithm::LeakyBucket(spec) => {
            of(leaky_room(spec).saturating_add(1), spec.rate.units, spec.rate.period.as_micros())
        }
        Algorithm::FixedWindow(spec) => windows(spec.limit, shortest(&spec.window)),
        Algorithm::Pacing(spec) => windows(spec.budget, shortest(&spec.window)),
        Algorithm::SlidingLog(spec) => of(spec.limit, spec.limit, spec.window.as_micros()),
        Algorithm::SlidingCounter(spec) => windows(spec.limit, spec.window.as_micros()),
        Algorithm::Concurrency(_) => return None,
    })
}

const HOUR: u64 = Micros::HOUR.as_micros();
/// By how much a change of the clocks may lengthen or shorten a day.
const SHIFT: u64 = 2 * HOUR;

fn shortest(window: &Window) -> u64 {
    match window {
        Window::Clock { length, .. } | Window::FirstEvent { length } => length.as_micros(),
        Window::Calendar(calendar) => days(calendar.unit()).0 * 24 * HOUR - SHIFT,
    }
}

fn longest(window: &Window) -> u64 {
    match window {
        Window::Clock { length, .. } | Window::FirstEvent { length } => length.as_micros(),
        Window::Calendar(calendar) => days(calendar.unit()).1 * 24 * HOUR + SHIFT,
    }
}

fn days(unit: CalendarUnit) -> (u64, u64) {
    match unit {
        CalendarUnit::Day => (1, 1),
        CalendarUnit::Week => (7, 7),
        CalendarUnit::Month => (28, 31),
        CalendarUnit::Year => (365, 366),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tollgate_core::{Ask, Pacing, Rate, SlidingLog, State, Timestamp, TokenBucket};

    use super::*;

    fn limit(most: u64) -> impl Strategy<Value = Limit> {
        let period = prop::sample::select(vec![2u64, 3, 6, 12, 24, 60]).prop_map(Micros::from_micros);
        let rounding = prop::sample::select(vec![Rounding::None, Rounding::Floor, Rounding::Ceil]);
        let algorithm = (0..9u8, 1..=most, 1..=most, period, rounding, 1..4u32).prop_map(
            |(kind, units, burst, period, rounding, parts)| -> Algorithm {
                let rate = Rate::new(units, period);
                match kind {
                    0 => TokenBucket::new(rate).burst(burst).into(),
                    1 => TokenBucket::new(rate).burst(burst).refill_at_intervals().into(),
                    2 => LeakyBucket { rate, form: LeakyForm::Meter { capacity: burst } }.into(),
                    3 => LeakyBucket::queue(rate, burst).into(),
                    4 => FixedWindow::in_window(units, Window::Clock { length: period, spread: burst % 2 == 0 }).into(),
                    5 => FixedWindow::in_window(units, Window::FirstEvent { length: period }).into(),
                    6 => SlidingLog::new(units, period).into(),
                    7 => Pacing::new(units, Window::Clock { length: period, spread: burst % 2 == 0 }).into(),
                    _ => SlidingCounter::new(units, period).rounding(rounding).sub_windows(parts).into(),
                }
            },
        );
        algorithm.prop_filter_map("a limit", |algorithm| Limit::new(algorithm).ok())
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 20_000, ..ProptestConfig::default() })]

        #[test]
        fn what_is_called_pointless_never_denies(
            stricter in limit(6),
            wide in limit(80),
            // Each limit has a key of its own, by which its windows are shifted.
            phases in prop::array::uniform2(any::<u64>()),
            arrivals in prop::collection::vec((prop::sample::select(vec![0u64, 0, 0, 1, 2, 5, 6, 11, 12]), 1..4u64), 80),
        ) {
            if never_denies(&wide, &stricter) {
                let (mut strict_state, mut wide_state) = (State::default(), State::default());
                let mut now = 1_000_000;
                for (later, cost) in arrivals {
                    now += later;
                    let ask = Ask::spend(cost, Timestamp::from_micros(now));
                    if stricter.apply(&mut strict_state, &Ask { phase: phases[0], ..ask }).allowed {
                        let ask = Ask { phase: phases[1], ..ask };
                        prop_assert!(wide.apply(&mut wide_state, &ask).allowed, "{:?} {:?}", stricter, wide);
                    }
                }
            }
        }
    }
}
