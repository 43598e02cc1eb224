//! Laws of a clock that is set back, by anything from microseconds to years.
//!
//! What each algorithm makes of it in full is the [oracle](crate::oracle)'s affair. Here is what all have in common:
//! nobody is locked out, and nobody gains.

use tollgate_core::{
    Algorithm, Ask, Concurrency, Intent, LeakyBucket, LeakyForm, Micros, Outcome, Pacing, Refill, Rounding,
    SlidingCounter, SlidingLog, Timestamp, TokenBucket, Window,
};

use super::bounds::{Admission, bucket, in_every_interval, log, queue, slots};
use super::{Course, Kept, Kind, Scale, Trace};

const SET_BACK: Course = Course { set_back: true, ..Course::SPENDS };
/// How far a clock may be behind another thread's without having been set back, and a microsecond for what is rounded
/// up.
const APART: u64 = 10_001;

/// Whoever is denied is told to wait no longer than from a state in which nothing is left, and is admitted then,
/// however often it asks meanwhile.
pub fn nobody_is_locked_out(kind: Kind, bytes: &[u8]) -> Kept {
    let Some(mut trace) = Trace::new(kind, Scale::Small, SET_BACK, bytes) else { return Ok(()) };
    while let Some(ask) = trace.next_ask() {
        let outcome = trace.apply(&ask);
        let denied = ask.intent == Intent::Spend && outcome.denied();
        let Some(wait) = outcome.retry_after.filter(|_| denied) else { continue };
        let longest = longest_wait(trace.limit.algorithm(), ask.now);
        if wait > longest {
            return Err(trace.broken(&format!("no wait is longer than {longest}")));
        }
        let mut state = trace.state.clone();
        let again = |at: u64| Ask { now: ask.now.plus(Micros::from_micros(at)), ..ask };
        for part in 1..4 {
            let asked = again(wait.as_micros() * part / 4);
            // What is asked sooner is denied, and that changes nothing but where denials count.
            if asked.now < ask.now.plus(wait) && !counts_denials(&trace) {
                let outcome: Outcome = trace.limit.apply(&mut state, &asked);
                if outcome.allowed {
                    return Err(trace.broken(&format!("admitted after only {:?}", asked.now.since(ask.now))));
                }
            }
        }
        if trace.limit.apply(&mut state, &again(wait.as_micros())).denied() {
            return Err(trace.broken("denied after the promised wait"));
        }
    }
    Ok(())
}

fn counts_denials(trace: &Trace<'_>) -> bool {
    match trace.limit.algorithm() {
        Algorithm::SlidingLog(log) => log.record_rejected,
        Algorithm::FixedWindow(window) => window.record_rejected,
        _ => false,
    }
}

/// How long anybody who is denied at `now` waits at most, whatever was done to the clock and if nothing was forced:
/// from when nothing is left until everything is.
pub fn longest_wait(algorithm: &Algorithm, now: Timestamp) -> Micros {
    let for_units =
        |units: u64, rate: tollgate_core::Rate| (units * rate.period.as_micros()).div_ceil(rate.units.max(1));
    // By the calendar, what was counted in the next window stays there.
    let window = |window: &Window| match window {
        Window::Clock { length, .. } | Window::FirstEvent { length } => length.as_micros(),
        Window::Calendar(calendar) => {
            let (_, end) = calendar.window_at(now);
            calendar.window_at(end).1.since(now).as_micros()
        }
    };
    let longest = match algorithm {
        Algorithm::TokenBucket(TokenBucket { rate, capacity, refill: Refill::Interval, .. }) => {
            // Until the next interval has passed, and then as from an empty one.
            (capacity.div_ceil(rate.units.max(1)) + 2) * rate.period.as_micros()
        }
        Algorithm::TokenBucket(TokenBucket { rate, capacity, loan, .. }) => for_units(capacity + loan, *rate),
        Algorithm::LeakyBucket(LeakyBucket { rate, form }) => match form {
            LeakyForm::Meter { capacity } => for_units(*capacity, *rate),
            LeakyForm::Queue { length, .. } => for_units(length + 1, *rate),
        },
        Algorithm::FixedWindow(spec) => window(&spec.window),
        Algorithm::SlidingLog(SlidingLog { window, .. }) => window.as_micros(),
        Algorithm::SlidingCounter(SlidingCounter { window, sub_windows, .. }) => {
            window.as_micros() + window.as_micros() / u64::from(*sub_windows)
        }
        Algorithm::Concurrency(Concurrency { lease, .. }) => lease.as_micros(),
        // To the end of the window, and then the line has to rise.
        Algorithm::Pacing(Pacing { window: Window::Clock { length, .. }, .. }) => 2 * length.as_micros(),
        Algorithm::Pacing(spec) => window(&spec.window) + Micros::YEAR.as_micros() + Micros::DAY.as_micros(),
    };
    Micros::from_micros(longest + APART)
}

/// By a clock that nobody sets, no more is admitted in any interval than by a limit whose clock is not set either: what
/// was counted before stays counted for as long as it would have been.
///
/// Windows may end off the clock once after it was set back, and then begin on it again: three of them touch an
/// interval that is shorter than one, where otherwise two do. Calendar windows have no length, and are left to the
/// oracle.
pub fn nobody_gains(kind: Kind, bytes: &[u8]) -> Kept {
    let Some(mut trace) = Trace::new(kind, Scale::Small, SET_BACK, bytes) else { return Ok(()) };
    let (mut admissions, mut passed, mut before) = (Vec::new(), 0, trace.now);
    while let Some(ask) = trace.next_ask() {
        passed += ask.now.since(before).as_micros();
        before = ask.now;
        let outcome = trace.apply(&ask);
        if ask.intent == Intent::Spend && outcome.allowed && ask.cost > 0 {
            let delay = outcome.delay.as_micros();
            admissions.push(Admission { at: passed, cost: ask.cost, delay, departure: passed + delay });
        }
    }
    let at_most = |times: u64, limit: u64, length: Micros| {
        in_every_interval(&admissions, |from, to, sum| to - from >= length.as_micros() || sum <= times * limit)
    };
    let kept = match trace.limit.algorithm() {
        Algorithm::TokenBucket(TokenBucket { rate, capacity, refill: Refill::Interval, .. }) => {
            let refills = |span: u64| span / rate.period.as_micros() + 1;
            in_every_interval(&admissions, |from, to, sum| sum <= capacity + rate.units * refills(to - from))
        }
        Algorithm::TokenBucket(spec) => bucket(spec, &admissions),
        Algorithm::LeakyBucket(LeakyBucket { rate, form: LeakyForm::Meter { capacity } }) => {
            bucket(&TokenBucket::new(*rate).burst(*capacity), &admissions)
        }
        Algorithm::LeakyBucket(LeakyBucket { rate, form: LeakyForm::Queue { length, max_wait } }) => {
            let longest = max_wait.map_or(u64::MAX, |most| most.as_micros());
            admissions.iter().all(|admission| admission.delay <= longest) && queue(*rate, *length, &admissions)
        }
        Algorithm::FixedWindow(spec) => match spec.window {
            Window::Clock { length, .. } => at_most(3, spec.limit, length),
            Window::FirstEvent { length } => at_most(2, spec.limit, length),
            Window::Calendar(_) => true,
        },
        Algorithm::SlidingLog(spec) => log(spec, &admissions),
        Algorithm::SlidingCounter(spec) => {
            let most = 2 * spec.limit + u64::from(spec.rounding == Rounding::Floor);
            at_most(1, most, spec.window)
        }
        Algorithm::Concurrency(spec) => slots(spec, &admissions),
        Algorithm::Pacing(spec) => match spec.window {
            Window::Clock { length, .. } => at_most(3, spec.budget, length),
            _ => true,
        },
    };
    if kept { Ok(()) } else { Err(trace.broken("more was admitted than by a clock that is not set back")) }
}
