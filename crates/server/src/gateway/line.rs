//! Lines before limits: how a request stands in one, and what its client is told of it.
//!
//! The lines themselves are the engine's.

use std::time::Duration;

use http::header::{HeaderName, HeaderValue};
use tollgate::{Micros, Timestamp, Verdict};
use tollgate_core::{Algorithm, LeakyBucket, LeakyForm, Limit, Window};

use crate::gate::Stood;

const POSITION: HeaderName = HeaderName::from_static("x-tollgate-queue-position");
const WAITED: HeaderName = HeaderName::from_static("x-tollgate-waited");
const EXPECTED: HeaderName = HeaderName::from_static("x-tollgate-expected-wait");

/// How long those in a line are likely to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Outlook {
    /// The first of them.
    pub(super) wait: Micros,
    /// How much longer each of the others.
    pub(super) pace: Micros,
    /// How many go before all of them, since they are in the limit's own queue.
    pub(super) queued: usize,
}

impl Outlook {
    /// By the limit that says what happens. `None` for what is never allowed, however long it waits.
    pub(super) fn of(verdict: &Verdict<'_>) -> Option<Self> {
        let toll = verdict.acting()?;
        let (wait, limit) = (toll.outcome.retry_after?, verdict.limit(toll)?);
        let pace = pace(&limit.limit, toll.cost);
        Some(match full_queue(verdict) {
            // To be let into the queue is not to leave it.
            Some(Stood { position, waited }) => Self { wait: waited.into(), pace, queued: position.saturating_sub(1) },
            None => Self { wait, pace, queued: 0 },
        })
    }

    /// The one at this place, counted from one.
    pub(super) fn at(&self, position: usize) -> Duration {
        let others = self.pace.as_micros().saturating_mul(position.saturating_sub(1) as u64);
        Duration::from_micros(self.wait.as_micros().saturating_add(others))
    }
}

/// How long a limit takes for each request of this cost, on average; nothing where it has no rate.
pub(super) fn pace(limit: &Limit, cost: u64) -> Micros {
    let of_window = |window: &Window| match window {
        Window::Clock { length, .. } | Window::FirstEvent { length } => *length,
        // Months and days differ; who waits for one is told of the first end of it only.
        Window::Calendar(_) => Micros::ZERO,
    };
    let (units, period) = match limit.algorithm() {
        Algorithm::TokenBucket(spec) => (spec.rate.units, spec.rate.period),
        Algorithm::LeakyBucket(spec) => (spec.rate.units, spec.rate.period),
        Algorithm::FixedWindow(spec) => (spec.limit, of_window(&spec.window)),
        Algorithm::SlidingLog(spec) => (spec.limit, spec.window),
        Algorithm::SlidingCounter(spec) => (spec.limit, spec.window),
        Algorithm::Pacing(spec) => (spec.budget, of_window(&spec.window)),
        Algorithm::Concurrency(_) => (1, Micros::ZERO),
    };
    let each = u128::from(period.as_micros()) * u128::from(cost) / u128::from(units.max(1));
    Micros::from_micros(u64::try_from(each).unwrap_or(u64::MAX))
}

/// In the queue of a leaky bucket everybody has a departure: the place and the time until then of who was let in.
pub(super) fn departure(verdict: &Verdict<'_>) -> Option<Stood> {
    // What only counts holds nobody back.
    let binding = verdict.tolls.iter().filter(|toll| !toll.shadow);
    let toll = binding.max_by_key(|toll| toll.outcome.delay).filter(|toll| !toll.outcome.delay.is_zero())?;
    // Whoever leaves now is not waiting any more.
    let others = toll.outcome.limit.saturating_sub(toll.outcome.remaining).saturating_sub(toll.cost);
    let position = usize::try_from(others.max(1)).unwrap_or(usize::MAX);
    Some(Stood { position, waited: Duration::from(toll.outcome.delay) })
}

/// As of when everything was paid, for whoever might give it back. `None` where limits differ in that: what a time means
/// to one of them another would not know.
pub(super) fn paid_at(verdict: &Verdict<'_>) -> Option<Timestamp> {
    let (first, others) = verdict.tolls.split_first()?;
    let at = first.outcome.proceeds_at();
    others.iter().all(|toll| toll.outcome.proceeds_at() == at).then_some(at)
}

/// The same of who finds the queue full: behind all others.
pub(super) fn full_queue(verdict: &Verdict<'_>) -> Option<Stood> {
    let toll = verdict.acting()?;
    let limit = &verdict.limit(toll)?.limit;
    let Algorithm::LeakyBucket(LeakyBucket { rate, form: LeakyForm::Queue { .. } }) = limit.algorithm() else {
        return None;
    };
    let outcome = &toll.outcome;
    // A queue may be closed before it is full, if it says how long one may wait there. Departures are whole
    // microseconds, rounded up.
    let before = u128::from(outcome.reset_after.as_micros().saturating_sub(1)) * u128::from(rate.units);
    let position = before / u128::from(rate.period.as_micros().max(1)) + 1;
    let position = usize::try_from(position.min(outcome.limit.into())).unwrap_or(usize::MAX);
    Some(Stood { position, waited: Duration::from(outcome.reset_after) })
}

/// Tells who goes on.
pub(super) fn tell_passed(stood: Stood, mut header: impl FnMut(HeaderName, HeaderValue)) {
    header(POSITION, HeaderValue::from(stood.position as u64));
    header(WAITED, seconds(stood.waited));
}

/// Tells who is refused after it has stood in line.
pub(super) fn tell_refused(stood: Stood, outlook: Option<Outlook>, mut header: impl FnMut(HeaderName, HeaderValue)) {
    tell_passed(stood.behind(outlook.map_or(0, |outlook| outlook.queued)), &mut header);
    if let Some(outlook) = outlook {
        header(EXPECTED, seconds(outlook.at(stood.position)));
    }
}

/// Tells who is refused at once by a queue that is full.
pub(super) fn tell_full(would: Stood, mut header: impl FnMut(HeaderName, HeaderValue)) {
    header(POSITION, HeaderValue::from(would.position as u64));
    header(EXPECTED, seconds(would.waited));
}

/// To the millisecond.
fn seconds(time: Duration) -> HeaderValue {
    HeaderValue::try_from(format!("{:.3}", time.as_secs_f64())).unwrap_or_else(|_| HeaderValue::from_static("0"))
}
