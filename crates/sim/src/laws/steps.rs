//! Laws of single steps, held against every state that a random history passes through.

use tollgate_core::{
    Algorithm, Ask, Change, Intent, LeakyForm, Micros, Outcome, Refill, State, Timestamp, TokenBucket,
};

use super::trace::brief;
use super::{Course, Kept, Kind, Scale, Trace};
use crate::oracle::Oracle;

/// Every answer to every question equals that of the oracle.
pub fn equals_the_oracle(kind: Kind, bytes: &[u8]) -> Kept {
    against_the_oracle(kind, Scale::Small, Course::ANY, bytes)
}

/// The same when the clock is set back now and then, by anything from microseconds to years.
pub fn equals_the_oracle_set_back(kind: Kind, bytes: &[u8]) -> Kept {
    against_the_oracle(kind, Scale::Small, Course { set_back: true, ..Course::ANY }, bytes)
}

/// The same where integers end. Where numbers saturate, only that there is an answer counts.
pub fn equals_the_oracle_at_the_edges(kind: Kind, bytes: &[u8]) -> Kept {
    against_the_oracle(kind, Scale::Extreme, Course::ANY, bytes)
}

fn against_the_oracle(kind: Kind, scale: Scale, course: Course, bytes: &[u8]) -> Kept {
    let Some(mut trace) = Trace::new(kind, scale, course, bytes) else { return Ok(()) };
    let mut oracle = Oracle::new(trace.limit.algorithm(), trace.soft(), trace.phase);
    while let Some(ask) = trace.next_ask() {
        let outcome = trace.apply(&ask);
        if !oracle.is_exact() {
            continue;
        }
        let expected = oracle.ask(&ask);
        if oracle.is_exact() && outcome != expected {
            return Err(trace.broken(&format!("the oracle says: {}", brief(&expected))));
        }
    }
    Ok(())
}

/// Peeks, denials and costs of nothing change nothing; a peek says what a spend would meet; and what remains is the
/// largest cost that is within the limit.
pub fn answers_are_honest(kind: Kind, bytes: &[u8]) -> Kept {
    let Some(mut trace) = Trace::new(kind, Scale::Small, Course::ANY, bytes) else { return Ok(()) };
    while let Some(ask) = trace.next_ask() {
        trace.apply(&ask);
        let cost = trace.cost();
        for intent in [Intent::Spend, Intent::Peek, Intent::Force] {
            let nothing = trace.question(0, intent, trace.now);
            if nothing.change != Change::Keep || !nothing.outcome.allowed {
                return Err(trace.broken(&format!("a cost of nothing with {intent:?}: {nothing:?}")));
            }
        }
        let peeked = trace.question(cost, Intent::Peek, trace.now);
        let spent = trace.question(cost, Intent::Spend, trace.now);
        if peeked.change != Change::Keep {
            return Err(trace.broken(&format!("a peek of {cost} changes {:?}", peeked.change)));
        }
        if !spent.outcome.allowed && spent.change != Change::Keep && !denials_count(&trace) {
            return Err(trace.broken(&format!("a denial of {cost} changes {:?}", spent.change)));
        }
        let ask = Ask { phase: trace.phase, ..Ask::spend(cost, trace.now) };
        if trace.limit.admit(trace.state.cell, &trace.state.extra, &ask) != (spent.outcome.allowed, spent.change) {
            return Err(trace.broken(&format!("of {cost}: not admitted in the same way as {spent:?}")));
        }
        let gist = |outcome: &Outcome| (outcome.allowed, outcome.delay, outcome.overage);
        if gist(&peeked.outcome) != gist(&spent.outcome) {
            return Err(trace.broken(&format!("of {cost}: {peeked:?} but {spent:?}")));
        }
        let remaining = peeked.outcome.remaining;
        let within = |cost: u64| {
            let outcome = trace.peek(cost, trace.now);
            outcome.allowed && !outcome.overage
        };
        if !within(remaining) || within(remaining + 1) {
            return Err(trace.broken(&format!("{remaining} is not the largest cost that is admitted")));
        }
        if remaining > peeked.outcome.limit {
            return Err(trace.broken("more remains than there can be"));
        }
    }
    Ok(())
}

/// Logs and windows that record what they deny, and new keys that start part-filled: their first denial begins the
/// refill.
fn denials_count(trace: &Trace<'_>) -> bool {
    match trace.limit.algorithm() {
        Algorithm::SlidingLog(log) => log.record_rejected,
        Algorithm::FixedWindow(window) => window.record_rejected,
        Algorithm::TokenBucket(bucket) => starts_part_filled(bucket) && trace.state.cell.fresh_at <= trace.now,
        _ => false,
    }
}

fn starts_part_filled(bucket: &TokenBucket) -> bool {
    bucket.initial.is_some_and(|initial| initial < bucket.capacity)
}

/// A spend that is denied is admitted after exactly the wait that it was promised, and at no time before; one that was
/// promised none is not admitted later either.
pub fn promised_waits_are_exact(kind: Kind, bytes: &[u8]) -> Kept {
    let Some(mut trace) = Trace::new(kind, Scale::Small, Course::ANY, bytes) else { return Ok(()) };
    while let Some(ask) = trace.next_ask() {
        let outcome = trace.apply(&ask);
        if ask.intent != Intent::Spend || outcome.allowed {
            continue;
        }
        let Some(wait) = outcome.retry_after else {
            never_fits(&trace, &ask, &outcome)?;
            continue;
        };
        if trace.peek(ask.cost, ask.now.plus(wait)).denied() {
            return Err(trace.broken("denied after the promised wait"));
        }
        for _ in 0..4 {
            let sooner = match trace.source.below(4) {
                0 => wait.as_micros().saturating_sub(1),
                _ => trace.source.below(wait.as_micros()),
            };
            let asked_at = ask.now.plus(Micros::from_micros(sooner));
            if wait.is_zero() || trace.peek(ask.cost, asked_at).allowed {
                return Err(trace.broken(&format!("admitted after only {sooner}")));
            }
        }
    }
    Ok(())
}

fn never_fits(trace: &Trace<'_>, ask: &Ask, outcome: &Outcome) -> Kept {
    let reset = outcome.reset_after.as_micros();
    let fresh = trace.state.cell.fresh_at.since(ask.now).as_micros();
    for wait in [0, reset.saturating_sub(1), reset, reset + 1, fresh, fresh + 1, 2 * fresh, 10 * fresh, 1 << 50] {
        if trace.peek(ask.cost, ask.now.plus(Micros::from_micros(wait))).allowed {
            return Err(trace.broken(&format!("no wait was promised, yet it is admitted after {wait}")));
        }
    }
    Ok(())
}

/// Spending a and then b at one instant is spending a + b. Only where there is a longest wait may b have to wait too
/// long by itself, behind a.
pub fn costs_add(kind: Kind, bytes: &[u8]) -> Kept {
    let Some(mut trace) = Trace::new(kind, Scale::Small, Course::HARD, bytes) else { return Ok(()) };
    let waits_once = match trace.limit.algorithm() {
        Algorithm::LeakyBucket(leaky) => matches!(leaky.form, LeakyForm::Queue { max_wait: Some(_), .. }),
        _ => false,
    };
    while let Some(ask) = trace.next_ask() {
        trace.apply(&ask);
        let (a, b) = (trace.cost(), trace.source.below(4));
        let spend = |state: &State, cost: u64| {
            let ask = Ask { phase: trace.phase, ..Ask::spend(cost, trace.now) };
            let mut after = state.clone();
            (trace.limit.apply(&mut after, &ask), after)
        };
        let (first, after_first) = spend(&trace.state, a);
        let (second, after_both) = spend(&after_first, b);
        let (at_once, after_sum) = spend(&trace.state, a + b);
        if at_once.allowed != (first.allowed && second.allowed) && !(waits_once && at_once.allowed) {
            return Err(trace.broken(&format!("{a} and then {b} is not the same as both at once")));
        }
        if at_once.allowed && second.allowed && after_both != after_sum {
            return Err(trace.broken(&format!("{a}, {b}: {after_both:?} and not {after_sum:?}")));
        }
    }
    Ok(())
}

/// The stored state says exactly when it will be as good as new, and from then on nothing tells it from a key that was
/// never seen.
pub fn forgetting_changes_nothing(kind: Kind, bytes: &[u8]) -> Kept {
    let Some(mut trace) = Trace::new(kind, Scale::Small, Course::ANY, bytes) else { return Ok(()) };
    while let Some(ask) = trace.next_ask() {
        let before = trace.state.clone();
        let outcome = trace.apply(&ask);
        let fresh_at = trace.state.cell.fresh_at;
        let due = full_from(&trace, ask.now.plus(outcome.reset_after)).plus(hold(&trace));
        let is_new = outcome.reset_after.is_zero() && fresh_at <= ask.now;
        if trace.state != before && fresh_at != due && !is_new {
            return Err(trace.broken(&format!("fresh at {} instead of {}", fresh_at.as_micros(), due.as_micros())));
        }
        let after = fresh_at.max(ask.now).plus(Micros::from_micros(trace.source.below(3)));
        forgotten_is_new(&mut trace, after)?;
        let reset_at = ask.now.plus(outcome.reset_after);
        let new = Trace::new(kind, Scale::Small, Course::ANY, bytes).map(|new| new.peek(0, reset_at));
        let reset = trace.peek(0, reset_at);
        if new.is_some_and(|new| {
            reset.remaining < new.remaining || !reset.reset_after.is_zero() && hold(&trace).is_zero()
        }) {
            return Err(trace.broken("not as good as new after the promised reset"));
        }
    }
    Ok(())
}

/// Continues from `after` with the state and without it.
fn forgotten_is_new(trace: &mut Trace<'_>, after: Timestamp) -> Kept {
    let (mut kept, mut dropped) = (trace.state.clone(), State::default());
    let mut now = after;
    for _ in 0..3 {
        let intents = [Intent::Spend, Intent::Spend, Intent::Peek, Intent::Force, Intent::Renew];
        let intent = match trace.source.below(6) {
            5 => Intent::Refund { charged_at: trace.now },
            _ => trace.source.pick(&intents, Intent::Spend),
        };
        let ask = Ask { cost: trace.source.below(6), intent, now, phase: trace.phase, lease: trace.source.below(3) };
        let answers = (trace.limit.apply(&mut kept, &ask), trace.limit.apply(&mut dropped, &ask));
        if answers.0 != answers.1 {
            return Err(trace.broken(&format!("{ask:?}: {:?} with the state, without it {:?}", answers.0, answers.1)));
        }
        now = now.plus(Micros::from_micros(trace.source.below(4)));
    }
    Ok(())
}

/// A bucket that is refilled at intervals is as full as ever from the beginning of one.
fn full_from(trace: &Trace<'_>, at: Timestamp) -> Timestamp {
    match trace.limit.algorithm() {
        Algorithm::TokenBucket(TokenBucket { refill: Refill::Interval, rate, .. }) => {
            at.minus(Micros::from_micros(at.as_micros() % rate.period.as_micros()))
        }
        _ => at,
    }
}

/// How long after a reset a part-filled bucket is remembered.
fn hold(trace: &Trace<'_>) -> Micros {
    let Algorithm::TokenBucket(bucket) = trace.limit.algorithm() else { return Micros::ZERO };
    if !starts_part_filled(bucket) {
        return Micros::ZERO;
    }
    let (units, period) = (bucket.rate.units.max(1), bucket.rate.period.as_micros());
    match bucket.refill {
        Refill::Continuous => Micros::from_micros((bucket.capacity * period).div_ceil(units)),
        Refill::Interval => Micros::from_micros(bucket.capacity.div_ceil(units) * period),
    }
}

/// What is spent or forced and given back at once leaves what there was, and no refund leaves more than there can be.
pub fn refunds_restore(kind: Kind, bytes: &[u8]) -> Kept {
    let Some(mut trace) = Trace::new(kind, Scale::Small, Course::HARD, bytes) else { return Ok(()) };
    while let Some(ask) = trace.next_ask() {
        let outcome = trace.apply(&ask);
        if outcome.remaining > outcome.limit {
            return Err(trace.broken("more remains than there can be"));
        }
        let cost = trace.cost();
        for intent in [Intent::Spend, Intent::Force] {
            let mut state = trace.state.clone();
            // A lease of its own, so that no other slots are given back.
            let ask = Ask { cost, intent, now: trace.now, phase: trace.phase, lease: 99 };
            let charged = trace.limit.apply(&mut state, &ask);
            if charged.denied() || (intent == Intent::Force && denials_count(&trace)) {
                continue;
            }
            let charged_at = charged.proceeds_at();
            trace.limit.apply(&mut state, &ask.with_intent(Intent::Refund { charged_at }));
            let peek = ask.with_intent(Intent::Peek);
            let before = trace.limit.step(trace.state.cell, &trace.state.extra, &peek).outcome;
            let after = trace.limit.step(state.cell, &state.extra, &peek).outcome;
            let same_reset = intent == Intent::Force || before.reset_after == after.reset_after;
            if before.remaining != after.remaining || !same_reset {
                return Err(trace.broken(&format!("{intent:?} {cost}, given back: {before:?} became {after:?}")));
            }
        }
    }
    Ok(())
}

/// Asking at an earlier time than the last change admits no more than asking at the time of that change.
pub fn backwards_earns_nothing(kind: Kind, bytes: &[u8]) -> Kept {
    let course = Course { backwards: true, ..Course::ANY };
    let Some(mut trace) = Trace::new(kind, Scale::Small, course, bytes) else { return Ok(()) };
    let mut latest = trace.now;
    while let Some(ask) = trace.next_ask() {
        let remembers = trace.state.cell.fresh_at > latest;
        if remembers && ask.now < latest {
            let cost = ask.cost;
            let (early, late) = (trace.peek(cost, ask.now), trace.peek(cost, latest));
            let earns = early.allowed && !early.overage && late.denied();
            if earns || early.remaining > late.remaining {
                let what = format!("{cost} at {}: {early:?}; at {latest:?}: {late:?}", ask.now.as_micros());
                return Err(trace.broken(&what));
            }
        }
        let before = trace.state.clone();
        trace.apply(&ask);
        let kept = if remembers { latest } else { Timestamp::EPOCH };
        latest = if trace.state == before { kept.max(latest) } else { kept.max(ask.now) };
    }
    Ok(())
}
