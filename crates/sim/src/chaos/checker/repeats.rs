//! What is repeated is still true: a node that denies without asking says what it was told, with the waits that are
//! left of that; for a second at most, no longer than the denial holds, and not after something was given back to the
//! key through this node.

use std::collections::HashMap;

use tollgate::{Outcome, Timestamp};

use super::{Findings, Kind};
use crate::chaos::record::{History, Moment, Record, Shared, drift};

/// Nothing is repeated for longer.
const LONGEST: Moment = 1_000_000;

/// What one node knows of one question: a counter and a cost.
#[derive(Default)]
struct Question<'h> {
    /// What the shared store denied, by when it was asked.
    told: Vec<&'h Record>,
    /// What was denied without asking.
    repeated: Vec<&'h Record>,
}

pub(super) fn check(history: &History, findings: &mut Findings) {
    let mut questions = HashMap::<(u16, u32, u64), Question<'_>>::new();
    // By node and counter: what was given back.
    let mut returns = HashMap::<(u16, u32), Vec<&Record>>::new();
    for record in &history.records {
        let question = (record.node, record.counter, record.cost);
        // What only the node itself held, it gives back to itself.
        if record.may_be_given_back() {
            returns.entry((record.node, record.counter)).or_default().push(record);
        } else if record.shared == Shared::Repeated {
            questions.entry(question).or_default().repeated.push(record);
        } else if record.shared == Shared::Answered && record.is_denied() {
            questions.entry(question).or_default().told.push(record);
        }
    }
    let slack = drift(history.length());
    for ((node, counter, cost), question) in &questions {
        let returns = returns.get(&(*node, *counter)).map_or(&[][..], |returns| &**returns);
        let name = history.counters.get(*counter as usize).map_or("?", |counter| &*counter.name);
        for record in &question.repeated {
            if let Some(wrong) = wrong(history, question, returns, record, slack) {
                let text = format!("{name}: node {node} denied {cost} at {} us without asking: {wrong}", record.begun);
                findings.violation(Kind::Repeat, text);
            }
            findings.repeated += 1;
        }
        findings.lifted += lifted(question, returns);
    }
}

/// What is wrong with a denial that was repeated.
fn wrong(
    history: &History,
    question: &Question<'_>,
    returns: &[&Record],
    record: &Record,
    slack: Moment,
) -> Option<&'static str> {
    let Some(outcome) = record.outcome.filter(Outcome::denied) else { return Some("it is no denial") };
    let told: Vec<&Record> = question.told.iter().filter(|told| says_the_same(told, &outcome)).copied().collect();
    if told.is_empty() {
        return Some("nobody was told so");
    }
    let holds = |told: &&&Record| {
        let wait = told.outcome.and_then(|told| told.retry_after).map_or(LONGEST, |wait| wait.as_micros());
        (told.begun..told.begun + wait.min(LONGEST)).contains(&record.begun)
    };
    let told: Vec<&Record> = told.iter().filter(holds).copied().collect();
    if told.is_empty() {
        return Some("what was told does not hold any more");
    }
    // All that a node does is done by one thread: what began later was also told later.
    let given_back = returns.iter().filter(|back| back.returned <= record.begun).map(|back| back.begun).max();
    let mut told = told.iter().filter(|told| given_back.is_none_or(|back| told.begun >= back)).peekable();
    if told.peek().is_none() {
        return Some("something was given back through this node since");
    }
    let is_clock_right = history.faults.iter().all(|fault| fault.excuse.clock == 0);
    let is_dated_now = |told: &&Record| {
        let from = record.begun.saturating_sub(slack + (told.returned - told.begun));
        (history.wall(from)..=history.wall(record.returned + slack)).contains(&outcome.at)
    };
    if is_clock_right && !told.any(is_dated_now) {
        return Some("it is dated at another time");
    }
    None
}

/// Whether both say the same, each at its own time. What is as good as new stays so: a cost that never fits is denied
/// to that as well.
fn says_the_same(told: &Record, repeated: &Outcome) -> bool {
    let instants = |outcome: &Outcome| -> (Option<Timestamp>, Option<Timestamp>, u64) {
        let is_new = outcome.reset_after.is_zero();
        (
            outcome.retry_after.map(|wait| outcome.at.plus(wait)),
            (!is_new).then(|| outcome.at.plus(outcome.reset_after)),
            outcome.remaining,
        )
    };
    told.outcome.is_some_and(|told| instants(&told) == instants(repeated))
}

/// How often what could have been repeated was not, since something had been given back.
fn lifted(question: &Question<'_>, returns: &[&Record]) -> u64 {
    let could_be = |back: &&&Record| {
        question.told.iter().any(|told| {
            let wait = told.outcome.and_then(|told| told.retry_after).map_or(LONGEST, |wait| wait.as_micros());
            told.returned <= back.begun && back.returned < told.begun + wait.min(LONGEST)
        })
    };
    returns.iter().filter(could_be).count() as u64
}
