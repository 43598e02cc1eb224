//! Exactness: what the shared store answered, in the order of its own time, is what the algorithm answers, to the last
//! number.
//!
//! A chain of answers breaks where it is not known what was counted, or where states were lost. It goes on with the
//! first answer that a fresh state would have given. What was decided at one instant, in one call of the script, is put
//! into an order in which all of it is right, if there is one.

use tollgate::{Intent, Limit, Outcome, Timestamp};
use tollgate_core::{Ask, State};

use super::{Findings, Kind};
use crate::chaos::record::{Act, Counter, Fault, History, Moment, Record, Shared, drift};

pub(super) fn check(history: &History, findings: &mut Findings) {
    // By a clock that is set back, instants come twice.
    if history.faults.iter().any(|fault| fault.excuse.clock != 0) {
        return;
    }
    let slack = drift(history.length());
    for (number, counter) in history.counters.iter().enumerate() {
        let records: Vec<&Record> = history.of(u32::try_from(number).unwrap_or(u32::MAX)).collect();
        let mut breaks: Vec<(Moment, Moment)> = records
            .iter()
            // Of what is given back by settling it is not told when.
            .filter(|record| record.shared == Shared::Unknown || is_settled(record))
            .map(|record| (record.begun, history.settled(record)))
            .collect();
        let is_loss = |fault: &&Fault| fault.excuse.losses > 0;
        breaks.extend(history.faults.iter().filter(is_loss).map(|fault| (fault.begin, fault.recovered)));
        let mut breaks: Vec<(Timestamp, Timestamp)> = breaks
            .iter()
            .map(|(from, to)| (history.wall(from.saturating_sub(slack)), history.wall(to + slack)))
            .collect();
        breaks.sort_unstable();
        let mut breaks = breaks.into_iter().peekable();
        let mut broken_until = Timestamp::EPOCH;
        let mut answers: Vec<Answer> = records.iter().filter_map(|record| Answer::of(record)).collect();
        answers.sort_by_key(|answer| (answer.outcome.at, answer.total));
        let mut chain = Chain { limit: &counter.limit, state: Some(State::default()) };
        for at_once in answers.chunk_by(|a, b| a.outcome.at == b.outcome.at) {
            let Some(first) = at_once.first() else { continue };
            let at = first.outcome.at;
            // A break counts, whether or not somebody asked meanwhile.
            while let Some((_, to)) = breaks.next_if(|(from, _)| *from <= at) {
                chain.state = None;
                broken_until = broken_until.max(to);
            }
            if at > broken_until {
                follow(&mut chain, at_once, counter, findings);
            }
        }
    }
}

fn is_settled(record: &Record) -> bool {
    matches!(record.act, Act::Cancel { .. }) && record.shared == Shared::Answered
}

fn follow(chain: &mut Chain<'_>, at_once: &[Answer], counter: &Counter, findings: &mut Findings) {
    if chain.state.is_none() {
        let mut fresh = Chain { limit: chain.limit, state: Some(State::default()) };
        if fresh.explain(at_once).is_none() {
            chain.state = fresh.state;
            findings.replayed += at_once.len() as u64;
        }
        return;
    }
    match chain.explain(at_once) {
        None => findings.replayed += at_once.len() as u64,
        Some(wrong) => {
            let text = format!(
                "{}: a {} of {} at {} us of Redis's time was answered {}, and should have been {}",
                counter.name,
                if wrong.0.intent == Intent::Spend { "charge" } else { "refund" },
                wrong.0.cost,
                wrong.0.outcome.at.as_micros(),
                told(&wrong.0.outcome),
                told(&wrong.1)
            );
            findings.violation(Kind::Replay, text);
            // One wrong answer is one violation: go on when the state is known again.
            chain.state = None;
        }
    }
}

fn told(outcome: &Outcome) -> String {
    let verdict = if outcome.allowed { "allowed" } else { "denied" };
    let (retry, reset) = (outcome.retry_after.map(|wait| wait.as_micros()), outcome.reset_after.as_micros());
    format!("{verdict} ({} left, retry after {retry:?} us, reset after {reset} us)", outcome.remaining)
}

#[derive(Clone, Copy)]
struct Answer {
    intent: Intent,
    cost: u64,
    outcome: Outcome,
    total: Option<u64>,
}

impl Answer {
    fn of(record: &Record) -> Option<Self> {
        let outcome = record.outcome.filter(|_| record.shared == Shared::Answered)?;
        let intent = match record.act {
            Act::Spend | Act::Hold => Intent::Spend,
            Act::Refund { charged_at, .. } => Intent::Refund { charged_at },
            Act::Cancel { .. } => return None,
        };
        Some(Self { intent, cost: record.cost, outcome, total: record.total })
    }
}

struct Chain<'h> {
    limit: &'h Limit,
    state: Option<State>,
}

/// So many steps are tried to find an order.
const TRIES: u32 = 10_000;

impl Chain<'_> {
    /// Takes the steps that were taken at one instant, in whatever order explains them; else returns one that nothing
    /// explains, and what it should have been.
    fn explain(&mut self, at_once: &[Answer]) -> Option<(Answer, Outcome)> {
        let state = self.state.clone().unwrap_or_default();
        let mut closest = None;
        self.state = order(self.limit, state, at_once, &mut closest, &mut TRIES.clone());
        if self.state.is_some() { None } else { closest.map(|(_, answer, outcome)| (answer, outcome)) }
    }
}

/// The state after all of `open`, in an order in which each is answered as it was; else, of the order that explains
/// most, what it does not explain.
fn order(
    limit: &Limit,
    state: State,
    open: &[Answer],
    closest: &mut Option<(usize, Answer, Outcome)>,
    tries: &mut u32,
) -> Option<State> {
    let Some(first) = open.first() else { return Some(state) };
    let step = |answer: &Answer| {
        let ask = Ask::spend(answer.cost, answer.outcome.at).with_intent(answer.intent);
        limit.step(state.cell, &state.extra, &ask)
    };
    if closest.as_ref().is_none_or(|(left, ..)| open.len() < *left) {
        *closest = Some((open.len(), *first, step(first).outcome));
    }
    for (index, answer) in open.iter().enumerate() {
        let taken = step(answer);
        if *tries == 0 || !is_same(&taken.outcome, &answer.outcome) {
            continue;
        }
        *tries -= 1;
        let mut after = state.clone();
        after.apply(&taken.change);
        let rest = [&open[..index], &open[index + 1..]].concat();
        if let Some(found) = order(limit, after, &rest, closest, tries) {
            return Some(found);
        }
    }
    None
}

fn is_same(a: &Outcome, b: &Outcome) -> bool {
    let numbers = |outcome: &Outcome| {
        (outcome.allowed, outcome.remaining, outcome.retry_after, outcome.reset_after, outcome.delay)
    };
    numbers(a) == numbers(b)
}
