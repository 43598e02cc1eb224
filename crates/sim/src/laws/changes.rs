//! Laws of limits that change while they have states.

use tollgate_core::{Algorithm, FixedWindow, Intent, Limit, Micros, Pacing, Rate, SlidingCounter, TokenBucket};

use super::{Course, Kept, Kind, Scale, Trace, limits};

/// A changed limit goes on with the states of the old one: never more remains than there can be, and who waits as
/// long as promised is admitted.
pub fn changed_limits_go_on(kind: Kind, bytes: &[u8]) -> Kept {
    let Some(mut trace) = Trace::new(kind, Scale::Small, Course::ANY, bytes) else { return Ok(()) };
    let lineage = trace.limit.lineage();
    while let Some(ask) = trace.next_ask() {
        let outcome = trace.apply(&ask);
        if outcome.remaining > outcome.limit {
            return Err(trace.broken("more remains than there can be"));
        }
        let promise = outcome.retry_after.filter(|_| ask.intent == Intent::Spend && outcome.denied());
        if let Some(wait) = promise
            && trace.peek(ask.cost, ask.now.plus(wait)).denied()
        {
            return Err(trace.broken("denied after the promised wait"));
        }
        if trace.source.once_in(6) {
            let algorithm = limits::algorithm(kind, Scale::Small, &mut trace.source);
            let algorithm = in_the_windows_of(trace.limit.algorithm(), algorithm);
            let soft = limits::soft(Scale::Small, Micros::SECOND, &mut trace.source);
            let changed = match soft {
                Some(soft) => Limit::soft(algorithm, soft),
                None => Limit::new(algorithm),
            };
            if let Some(changed) = changed.ok().filter(|changed| changed.lineage() == lineage) {
                trace.change_limit(changed);
            }
        }
    }
    Ok(())
}

/// The new description with the windows of the old one, where only those understand each other's states.
fn in_the_windows_of(old: &Algorithm, new: Algorithm) -> Algorithm {
    match (old, new) {
        (Algorithm::TokenBucket(old), Algorithm::TokenBucket(new)) if old.refill == tollgate_core::Refill::Interval => {
            TokenBucket { rate: Rate { period: old.rate.period, ..new.rate }, ..new }.into()
        }
        (Algorithm::FixedWindow(old), Algorithm::FixedWindow(new)) => {
            FixedWindow { window: old.window.clone(), ..new }.into()
        }
        (Algorithm::SlidingCounter(old), Algorithm::SlidingCounter(new)) => {
            SlidingCounter { window: old.window, sub_windows: old.sub_windows, ..new }.into()
        }
        (Algorithm::Pacing(old), Algorithm::Pacing(new)) => Pacing { window: old.window.clone(), ..new }.into(),
        (_, new) => new,
    }
}
