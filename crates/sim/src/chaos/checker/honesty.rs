//! Answers are what they say they are: a node is alone only if it has a reason, and who answers by Redis's clock has
//! asked Redis.

use super::{Findings, Kind, Misses, Recovery};
use crate::chaos::record::{Excuse, Fault, History, Moment, Record, Shared, drift};

/// A node that missed a deadline may leave Redis alone for so long: a breaker that opens again within a second stays
/// open until the second is over.
const BREAKER: Moment = 1_500_000;

pub(super) fn check(history: &History, findings: &mut Findings) {
    alone(history, findings);
    clock(history, findings);
    awake(history, findings);
}

fn alone(history: &History, findings: &mut Findings) {
    let is_excused = |record: &Record| {
        let meets =
            |fault: &Fault| fault.excuse.alone && fault.begin <= record.returned && record.begun <= fault.recovered;
        history.faults.iter().any(meets)
    };
    let mut records: Vec<&Record> =
        history.records.iter().filter(|record| record.is_alone() && record.outcome.is_some()).collect();
    // By their begins: who misses a deadline hears of it after those that are turned away because of it.
    records.sort_unstable_by_key(|record| record.begun);
    // By node: when it last had a reason to rest.
    let mut reason = vec![None::<Moment>; usize::from(u16::MAX) + 1];
    let mut misses = Misses { watched: watched(history), ..Misses::default() };
    let mut last_unexplained = None;
    for record in records {
        findings.alone += 1;
        let last = &mut reason[usize::from(record.node)];
        if is_excused(record) {
            *last = (*last).max(Some(record.returned));
            continue;
        }
        // Without a fault, a deadline is missed when the machine stands still; if it was not seen to, that is compared
        // with how often it happens when nothing is done (`Times::compare`).
        if waited(history, record) {
            misses.missed += 1;
            let meets = |(from, to): &(Moment, Moment)| {
                from.saturating_sub(history.deadline) <= record.returned && record.begun <= to + history.deadline
            };
            if !history.stalls.iter().any(meets) {
                misses.unexplained += u64::from(last_unexplained.is_none_or(|last| record.begun > last + AT_ONCE));
                last_unexplained = Some(record.begun);
            }
            *last = (*last).max(Some(record.returned));
        } else if !last.is_some_and(|last| record.begun <= last + BREAKER) {
            let text = format!("node {} was alone at {} us without a reason", record.node, record.begun);
            findings.violation(Kind::Alone, text);
        }
    }
    findings.misses = misses;
}

/// Deadlines that are missed within so long, by whatever node, are missed for one reason.
const AT_ONCE: Moment = 100_000;

/// For how long there was no fault.
fn watched(history: &History) -> Moment {
    let mut faults: Vec<(Moment, Moment)> =
        history.faults.iter().filter(|fault| fault.excuse.alone).map(|fault| (fault.begin, fault.recovered)).collect();
    faults.sort_unstable();
    let (mut watched, mut upto) = (0, 0);
    for (begin, recovered) in faults {
        watched += begin.saturating_sub(upto);
        upto = upto.max(recovered);
    }
    watched + history.length().saturating_sub(upto)
}

/// Whether a deadline was missed. A link looks at its deadlines once in a millisecond, and a request is on its way for
/// a while before it is there.
fn waited(history: &History, record: &Record) -> bool {
    record.returned - record.begun >= history.deadline * 7 / 10
}

/// What the shared store answers was decided while it was asked, by the one clock.
fn clock(history: &History, findings: &mut Findings) {
    if history.faults.iter().any(|fault| fault.excuse.clock != 0) {
        return;
    }
    let slack = drift(history.length());
    for record in &history.records {
        let Some(outcome) = record.outcome.filter(|_| record.shared == Shared::Answered) else { continue };
        let (from, to) = (history.wall(record.begun.saturating_sub(slack)), history.wall(record.returned + slack));
        if outcome.at < from || outcome.at > to {
            let off = i128::from(outcome.at.as_micros()) - i128::from(history.wall(record.begun).as_micros());
            let text = format!("node {}: an answer was made {off} us after it was asked for", record.node);
            findings.violation(Kind::Clock, text);
        }
    }
}

/// Nodes that had recovered for so long when that was noted.
const SETTLED: Moment = 100_000;

/// Every node asks again when all is over, unless it missed another deadline.
fn awake(history: &History, findings: &mut Findings) {
    let over = history.faults.iter().map(|fault| fault.recovered).max().unwrap_or(0);
    for node in 0..u16::try_from(history.servers).unwrap_or(u16::MAX) {
        let after = |record: &&Record| record.node == node && record.begun >= over && record.shared != Shared::Repeated;
        let (mut asked, mut answered) = (0, 0);
        for record in history.records.iter().filter(after) {
            asked += 1;
            answered += u64::from(record.shared == Shared::Answered);
        }
        let missed = |record: &Record| record.node == node && record.begun + SETTLED >= over && waited(history, record);
        if asked >= 20 && answered == 0 && !history.records.iter().any(missed) {
            findings.violation(Kind::Alone, format!("node {node} did not ask Redis again, {asked} times"));
        }
    }
}

/// How long it took after the end of a fault until every node had an answer.
pub(super) fn recovery(history: &History, fault: &Fault) -> Option<Recovery> {
    if fault.excuse == Excuse::NOTHING {
        return None;
    }
    let first = |node: u16| {
        let answered =
            |record: &&Record| record.node == node && record.shared == Shared::Answered && record.begun >= fault.end;
        history.records.iter().filter(answered).map(|record| record.returned - fault.end).min()
    };
    let each = (0..u16::try_from(history.servers).unwrap_or(u16::MAX)).map(first);
    let took = each.collect::<Option<Vec<Moment>>>().and_then(|took| took.into_iter().max());
    let before = fault.begin.saturating_sub(BREAKER)..fault.begin;
    let missed = |record: &Record| record.is_alone() && before.contains(&record.begun);
    Some(Recovery { took, after_another: history.records.iter().any(missed) })
}
