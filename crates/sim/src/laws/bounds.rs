//! What each algorithm promises to never exceed, checked on what it admitted.
//!
//! These are the bounds as they are declared to people, computed from the list of admissions alone.

use num_rational::Ratio;
use tollgate_core::{
    Algorithm, Concurrency, FixedWindow, Intent, LeakyBucket, LeakyForm, Pacing, Rate, Refill, Rounding,
    SlidingCounter, SlidingLog, Timestamp, TokenBucket, Window,
};

use super::{Course, Kept, Kind, Scale, Trace};

/// A cost that was admitted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Admission {
    /// When; or the time of the latest change of the state, if time ran backwards since.
    pub(super) at: u64,
    pub(super) cost: u64,
    pub(super) delay: u64,
    /// When it could proceed.
    pub(super) departure: u64,
}

/// What is admitted never exceeds the declared bound, in any interval.
pub fn bounds_hold(kind: Kind, bytes: &[u8]) -> Kept {
    bounds_hold_in(Course::SPENDS, kind, bytes)
}

/// The same when time runs backwards now and then: what is admitted meanwhile counts as if it had stood still.
pub fn bounds_hold_backwards(kind: Kind, bytes: &[u8]) -> Kept {
    bounds_hold_in(Course { backwards: true, ..Course::SPENDS }, kind, bytes)
}

fn bounds_hold_in(course: Course, kind: Kind, bytes: &[u8]) -> Kept {
    let Some(mut trace) = Trace::new(kind, Scale::Small, course, bytes) else { return Ok(()) };
    let (mut admissions, mut latest) = (Vec::new(), 0);
    while let Some(ask) = trace.next_ask() {
        let before = trace.state.clone();
        let outcome = trace.apply(&ask);
        if trace.state != before {
            latest = ask.now.as_micros().max(latest);
        }
        if ask.intent == Intent::Spend && outcome.allowed && ask.cost > 0 {
            let departure = outcome.proceeds_at().as_micros();
            admissions.push(Admission { at: latest, cost: ask.cost, delay: outcome.delay.as_micros(), departure });
        }
    }
    let phase = trace.phase;
    let kept = match trace.limit.algorithm() {
        Algorithm::TokenBucket(spec) => bucket(spec, &admissions),
        Algorithm::LeakyBucket(LeakyBucket { rate, form: LeakyForm::Meter { capacity } }) => {
            bucket(&TokenBucket::new(*rate).burst(*capacity), &admissions)
        }
        Algorithm::LeakyBucket(LeakyBucket { rate, form: LeakyForm::Queue { length, max_wait } }) => {
            let longest = max_wait.map_or(u64::MAX, |most| most.as_micros());
            admissions.iter().all(|admission| admission.delay <= longest) && queue(*rate, *length, &admissions)
        }
        Algorithm::FixedWindow(spec) => fixed(spec, phase, &admissions),
        Algorithm::SlidingLog(spec) => log(spec, &admissions),
        Algorithm::SlidingCounter(spec) => counter(spec, &admissions),
        Algorithm::Concurrency(spec) => slots(spec, &admissions),
        Algorithm::Pacing(spec) => pacing(spec, phase, &admissions),
    };
    if kept { Ok(()) } else { Err(trace.broken("more was admitted than declared")) }
}

fn total<'a>(admissions: impl IntoIterator<Item = &'a Admission>) -> u64 {
    admissions.into_iter().map(|admission| admission.cost).sum()
}

/// Whether a bound holds from every admission to every later one.
pub(super) fn in_every_interval(admissions: &[Admission], holds: impl Fn(u64, u64, u64) -> bool) -> bool {
    admissions.iter().enumerate().all(|(index, first)| {
        let mut sum = 0;
        admissions.iter().skip(index).all(|last| {
            sum += last.cost;
            holds(first.at, last.at, sum)
        })
    })
}

/// The capacity and the loan at once, and what flows in meanwhile.
pub(super) fn bucket(spec: &TokenBucket, admissions: &[Admission]) -> bool {
    let most = spec.capacity + spec.loan;
    let (units, period) = (spec.rate.units, spec.rate.period.as_micros());
    in_every_interval(admissions, |from, to, sum| match spec.refill {
        Refill::Continuous => sum.saturating_sub(most) * period <= units * (to - from),
        Refill::Interval => sum <= most + units * (to / period - from / period),
    })
}

/// In order, one interval apart (but for rounding up), and never more than `length` waiting.
pub(super) fn queue(rate: Rate, length: u64, admissions: &[Admission]) -> bool {
    let (units, period) = (rate.units, rate.period.as_micros());
    let spaced = admissions.iter().enumerate().all(|(index, first)| {
        let mut ahead = 0;
        admissions.iter().skip(index).zip(admissions.iter().skip(index + 1)).all(|(before, next)| {
            ahead += before.cost;
            (next.departure + 1 - first.departure) * units > ahead * period
        })
    });
    let few = admissions.iter().enumerate().all(|(index, last)| {
        let waiting = admissions.iter().take(index + 1).filter(|admission| admission.departure > last.at);
        waiting.count() as u64 <= length
    });
    let in_order = admissions.iter().zip(admissions.iter().skip(1)).all(|(a, b)| a.departure <= b.departure);
    spaced && few && in_order
}

/// The window on the clock or the calendar that an instant is in.
fn window_at(window: &Window, phase: u64, at: u64) -> (u64, u64) {
    match window {
        Window::Clock { length, spread } => {
            let length = i128::from(length.as_micros());
            let shift = if *spread { (i128::from(phase) * length) >> 64 } else { 0 };
            let start = (i128::from(at) - shift).div_euclid(length) * length + shift;
            let micros = |instant: i128| u64::try_from(instant.max(0)).unwrap_or(u64::MAX);
            (micros(start), micros(start + length))
        }
        Window::FirstEvent { length } => (at, at + length.as_micros()),
        Window::Calendar(calendar) => {
            let (start, end) = calendar.window_at(Timestamp::from_micros(at));
            (start.as_micros(), end.as_micros())
        }
    }
}

/// The limit in each window.
fn fixed(spec: &FixedWindow, phase: u64, admissions: &[Admission]) -> bool {
    let mut rest = admissions;
    while let Some(first) = rest.first() {
        let (_, end) = window_at(&spec.window, phase, first.at);
        let (inside, later) = rest.split_at(rest.partition_point(|admission| admission.at < end));
        if total(inside) > spec.limit {
            return false;
        }
        rest = later;
    }
    true
}

/// The limit in every window, wherever it begins.
pub(super) fn log(spec: &SlidingLog, admissions: &[Admission]) -> bool {
    in_every_interval(admissions, |from, to, sum| to - from >= spec.window.as_micros() || sum <= spec.limit)
}

/// The weighted sum is within the limit after each admission, and twice the limit is never exceeded in a window.
fn counter(spec: &SlidingCounter, admissions: &[Admission]) -> bool {
    let window = spec.window.as_micros();
    let length = window / u64::from(spec.sub_windows);
    let weighted = admissions.iter().enumerate().all(|(index, last)| {
        let start = last.at / length * length;
        let before = admissions.iter().take(index);
        let estimate = before.fold(Ratio::from_integer(0), |sum, earlier| {
            let place = earlier.at / length * length + window;
            let share = match place {
                _ if place > start => Ratio::from_integer(1),
                _ if place == start => Ratio::new(i128::from(start + length - last.at), i128::from(length)),
                _ => Ratio::from_integer(0),
            };
            sum + share * i128::from(earlier.cost)
        });
        let estimate = if spec.rounding == Rounding::Floor { estimate.floor() } else { estimate };
        estimate + i128::from(last.cost) <= Ratio::from_integer(i128::from(spec.limit))
    });
    weighted
        && in_every_interval(admissions, |from, to, sum| {
            to - from >= window || sum <= 2 * spec.limit + u64::from(spec.rounding == Rounding::Floor)
        })
}

/// As many leases at a time as there are slots.
pub(super) fn slots(spec: &Concurrency, admissions: &[Admission]) -> bool {
    in_every_interval(admissions, |from, to, sum| to - from >= spec.lease.as_micros() || sum <= spec.slots)
}

/// The straight line and the slack at each instant, and the budget in each window.
fn pacing(spec: &Pacing, phase: u64, admissions: &[Admission]) -> bool {
    admissions.iter().enumerate().all(|(index, last)| {
        let (start, end) = window_at(&spec.window, phase, last.at);
        let spent = total(admissions.iter().take(index + 1).filter(|admission| admission.at >= start));
        let above = u128::from(spent.saturating_sub(spec.slack));
        spent <= spec.budget && above * u128::from(end - start) <= u128::from(spec.budget) * u128::from(last.at - start)
    })
}
