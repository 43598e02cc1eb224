//! Any bytes as a description, a state and a history: whatever they say, nothing panics and nothing overflows.
//!
//! One entry for every fuzzer: the bounded seeded run of the tests, and `cargo fuzz` with coverage. It checks that
//! there is an answer and that it is sane, not that it is right: states here need not be any that a limit would make.

use std::collections::VecDeque;

use tollgate_core::{
    Algorithm, Ask, Cell, Concurrency, Extra, FixedWindow, Intent, LeakyBucket, LeakyForm, Limit, Mark, Micros, Pacing,
    Rate, Refill, Rounding, SlidingCounter, SlidingLog, Soft, State, Timestamp, TokenBucket, Window,
};

use crate::laws::limits::{EDGES, calendar};
use crate::laws::{Kept, Source};

/// How many questions one input asks at most.
const MOST_ASKS: usize = 24;

/// Runs one input. An error says which question had an answer that makes no sense.
pub fn fuzz_one(bytes: &[u8]) -> Kept {
    let mut source = Source::new(bytes);
    let mut state = state(&mut source);
    let mut limit = limit(&mut source);
    for _ in 0..MOST_ASKS {
        if source.is_empty() {
            break;
        }
        if source.once_in(8) {
            limit = self::limit(&mut source);
        }
        if let Some(limit) = &limit {
            let ask = ask(&state, &mut source);
            question(limit, &mut state, &ask)?;
        }
    }
    Ok(())
}

fn question(limit: &Limit, state: &mut State, ask: &Ask) -> Kept {
    let step = limit.step(state.cell, &state.extra, ask);
    let admitted = limit.admit(state.cell, &state.extra, ask);
    let outcome = step.outcome;
    let sane = outcome.remaining <= outcome.limit
        && admitted == (outcome.allowed, step.change)
        && (outcome.denied() || outcome.retry_after == Some(Micros::ZERO))
        && (outcome.allowed || outcome.delay.is_zero() && !outcome.overage);
    if !sane {
        return Err(format!("{:?} of {:?}\n{state:?}\n{ask:?}: {step:?}", limit.algorithm(), limit.softness()));
    }
    state.apply(&step.change);
    Ok(())
}

/// The first of a few descriptions that is a limit.
fn limit(source: &mut Source<'_>) -> Option<Limit> {
    (0..8).find_map(|_| described(source))
}

/// A limit, if the description is one. If not, there is something to say about it.
fn described(source: &mut Source<'_>) -> Option<Limit> {
    let algorithm = algorithm(source);
    let limit = if source.once_in(3) {
        Limit::soft(algorithm, Soft { overage: number(source), lasting: span(source) })
    } else {
        Limit::new(algorithm)
    };
    limit.inspect_err(|refused| drop(refused.to_string())).ok()
}

fn number(source: &mut Source<'_>) -> u64 {
    match source.below(6) {
        0..=2 => source.below(20),
        3 => source.pick(&EDGES, 0),
        4 => source.word() >> source.below(64),
        _ => source.word(),
    }
}

fn span(source: &mut Source<'_>) -> Micros {
    Micros::from_micros(number(source))
}

fn window(source: &mut Source<'_>) -> Window {
    match source.below(4) {
        0 | 1 => Window::Clock { length: span(source), spread: source.once_in(2) },
        2 => Window::FirstEvent { length: span(source) },
        _ => calendar(source).into(),
    }
}

fn algorithm(source: &mut Source<'_>) -> Algorithm {
    let rate = |source: &mut Source<'_>| Rate::new(number(source), span(source));
    match source.below(8) {
        0 => TokenBucket {
            rate: rate(source),
            capacity: number(source),
            refill: source.pick(&[Refill::Continuous, Refill::Interval], Refill::Continuous),
            initial: source.once_in(3).then(|| number(source)),
            loan: if source.once_in(3) { number(source) } else { 0 },
        }
        .into(),
        1 => LeakyBucket { rate: rate(source), form: LeakyForm::Meter { capacity: number(source) } }.into(),
        2 => {
            let max_wait = source.once_in(2).then(|| span(source));
            LeakyBucket { rate: rate(source), form: LeakyForm::Queue { length: number(source), max_wait } }.into()
        }
        3 => FixedWindow { limit: number(source), window: window(source), record_rejected: source.once_in(2) }.into(),
        4 => {
            let log = SlidingLog::new(number(source), span(source)).scaled_to(number(source));
            SlidingLog { record_rejected: source.once_in(2), ..log }.into()
        }
        5 => {
            let rounding = source.pick(&[Rounding::None, Rounding::Floor, Rounding::Ceil], Rounding::None);
            let sub_windows = if source.once_in(4) { source.word() as u32 } else { 1 + u32::from(source.byte() % 8) };
            SlidingCounter { limit: number(source), window: span(source), rounding, sub_windows }.into()
        }
        6 => Concurrency { slots: number(source), lease: span(source) }.into(),
        _ => Pacing { budget: number(source), window: window(source), slack: number(source) }.into(),
    }
}

fn instant(source: &mut Source<'_>) -> Timestamp {
    Timestamp::from_micros(number(source))
}

fn state(source: &mut Source<'_>) -> State {
    let cell = Cell { fresh_at: instant(source), word: number(source) };
    let marks: VecDeque<Mark> =
        (0..source.below(6)).map(|_| Mark { at: instant(source), note: number(source) }).collect();
    State { cell, extra: Extra { over_since: instant(source), marks } }
}

/// A question about any time, by preference one close to when the state says it is fresh.
fn ask(state: &State, source: &mut Source<'_>) -> Ask {
    let near = Micros::from_micros(number(source));
    let now = match source.below(4) {
        0 => state.cell.fresh_at.minus(near),
        1 => state.cell.fresh_at.plus(near),
        2 => state.extra.marks.back().map_or(Timestamp::EPOCH, |mark| mark.at).plus(near),
        _ => instant(source),
    };
    let intent = match source.below(6) {
        0 | 1 => Intent::Spend,
        2 => Intent::Peek,
        3 => Intent::Force,
        4 => Intent::Refund { charged_at: if source.once_in(2) { now } else { instant(source) } },
        _ => Intent::Renew,
    };
    Ask { cost: number(source), intent, now, phase: source.word(), lease: number(source) }
}
