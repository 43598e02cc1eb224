//! Exactness: what the shared store answered, in the order of its own time, is what the algorithm answers, to the last number.
//!
//! A chain of answers breaks where it is not known what was counted, or where states were lost. It goes on with the first answer
//! that a fresh state would have given. What was decided at one instant, in one call of the script, is put into an order in which
//! all of it is right, if there is one.

use tollgate::{Limit, Outcome, Timestamp};
use tollgate_core::{Ask, State};

use super::{Findings, Kind};
use crate::chaos::record::{Counter, Fault, History, Moment, Record, Shared, drift};

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
            .filter(|record| record.shared == Shared::Unknown)
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
                "{}: a charge of {} at {} us of Redis's time was answered {}, and should have been {}",
                counter.name,
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
    cost: u64,
    outcome: Outcome,
    total: Option<u64>,
}

impl Answer {
    fn of(record: &Record) -> Option<Self> {
        let outcome = record.outcome.filter(|_| record.shared == Shared::Answered)?;
        Some(Self { cost: record.cost, outcome, total: record.total })
    }
}

struct Chain<'h> {
    limit: &'h Limit,
    state: Option<State>,
}

impl Chain<'_> {
    /// Takes the steps that were taken at one instant, in whatever order explains them; else returns one that nothing explains, and
    /// what it should have been.
    fn explain(&mut self, at_once: &[Answer]) -> Option<(Answer, Outcome)> {
        let state = self.state.get_or_insert_default();
        let mut open = at_once.to_vec();
        while !open.is_empty() {
            let step = |answer: &Answer| {
                self.limit.step(state.cell, &state.extra, &Ask::spend(answer.cost, answer.outcome.at))
            };
            let Some(found) = open.iter().position(|answer| is_same(&step(answer).outcome, &answer.outcome)) else {
                return open.first().map(|answer| (*answer, step(answer).outcome));
            };
            let answer = open.remove(found);
            let change = step(&answer).change;
            state.apply(&change);
        }
        None
    }
}

fn is_same(a: &Outcome, b: &Outcome) -> bool {
    let numbers = |outcome: &Outcome| {
        (outcome.allowed, outcome.remaining, outcome.retry_after, outcome.reset_after, outcome.delay)
    };
    numbers(a) == numbers(b)
}
