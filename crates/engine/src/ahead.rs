//! How long those ahead in a line take at least: who would wait in vain is told so at once.
//!
//! What is told here is never longer than it takes, so that nobody is sent away who would have been admitted. Only what
//! is given back meanwhile, and who leaves the line, is not foreseen.

use tollgate_core::{Algorithm, LeakyForm, Limit, Micros, Outcome, Rate, Refill, Window};

/// What to ask for, to find out how soon `all` units are admitted one by one, of which the last `own` are the asker's.
///
/// Where it takes the same time to be admitted all at once, that is asked. Counters of two windows weigh what they
/// admitted before, so that one by one may be quicker there; queues admit at once what leaves later.
pub(crate) fn probe(limit: &Limit, own: u64, all: u64) -> u64 {
    let most = limit.most().max(1);
    match limit.algorithm() {
        Algorithm::TokenBucket(_) | Algorithm::FixedWindow(_) => all.min(most),
        Algorithm::LeakyBucket(bucket) if matches!(bucket.form, LeakyForm::Meter { .. }) => all.min(most),
        // Each has to wait a window for the one that is so many before it.
        Algorithm::SlidingLog(_) => all.saturating_sub(1) % most + 1,
        Algorithm::LeakyBucket(_) | Algorithm::SlidingCounter(_) | Algorithm::Pacing(_) | Algorithm::Concurrency(_) => {
            own
        }
    }
}

/// How long it takes at least until `all` units have been admitted one by one; `outcome` is what came of asking for
/// [`probe`] of them.
pub(crate) fn least_wait(limit: &Limit, all: u64, asked: u64, outcome: &Outcome) -> Micros {
    let (most, wait) = (limit.most().max(1), outcome.retry_after.unwrap_or(Micros::ZERO));
    let later = |time: Micros| Micros::from_micros(wait.as_micros().saturating_add(time.as_micros()));
    let times = |number: u64, time: Micros| Micros::from_micros(time.as_micros().saturating_mul(number));
    match limit.algorithm() {
        Algorithm::TokenBucket(bucket) => {
            let rest = time_for(bucket.rate, all.saturating_sub(asked));
            later(match bucket.refill {
                Refill::Continuous => rest,
                Refill::Interval => {
                    Micros::from_micros(rest.as_micros().saturating_sub(bucket.rate.period.as_micros()))
                }
            })
        }
        Algorithm::LeakyBucket(bucket) => {
            let rest = time_for(bucket.rate, all.saturating_sub(asked));
            // What a queue admits leaves after its delay, and whoever finds it full leaves behind all that are in it.
            let leaves = match bucket.form {
                LeakyForm::Queue { .. } if !outcome.allowed => outcome.reset_after,
                _ => later(outcome.delay),
            };
            Micros::from_micros(leaves.as_micros().saturating_add(rest.as_micros()))
        }
        Algorithm::FixedWindow(window) => {
            let room = if outcome.allowed { outcome.remaining.saturating_add(asked) } else { outcome.remaining };
            // In how many further windows, of which the first is the one that is waited for.
            let windows = all.saturating_sub(room).div_ceil(most).saturating_sub(1);
            match &window.window {
                Window::Clock { length, .. } | Window::FirstEvent { length } => later(times(windows, *length)),
                Window::Calendar(_) => wait,
            }
        }
        Algorithm::SlidingLog(log) => later(times(all.saturating_sub(1) / most, log.window)),
        // Two windows' worth may come at once, and one more in each further window.
        Algorithm::SlidingCounter(counter) => wait.max(times((all / most).saturating_sub(2), counter.window)),
        Algorithm::Pacing(_) => wait,
        // Slots may be released long before their leases end.
        Algorithm::Concurrency(_) => Micros::ZERO,
    }
}

/// The time in which so many units flow in.
fn time_for(rate: Rate, units: u64) -> Micros {
    let time = u128::from(units) * u128::from(rate.period.as_micros()) / u128::from(rate.units.max(1));
    Micros::from_micros(u64::try_from(time).unwrap_or(u64::MAX))
}
