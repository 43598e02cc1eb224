//! Nobody is denied without a reason: where every charge that could possibly have counted is counted, at the worst possible instant,
//! there has to be too little left.
//!
//! Of denials by the shared store this is asked of all; where the chain of answers is whole, [`replay`](super::replay) asks for more.
//! Of denials by a node alone it is asked with its share, which begins with what Redis last said: N units of its own count as much as
//! one that the servers shared. What it begins with is counted as if it had been charged just then, so that a log or a sliding
//! counter may remember it for twice as long.

use tollgate::Algorithm;

use super::law::{Law, Op};
use super::tree::Tree;
use super::{Findings, Kind};
use crate::chaos::record::{Counter, History, Moment, Record, Shared, drift};

pub(super) fn check(history: &History, findings: &mut Findings) {
    // A clock that was set back may keep a key closed, and nodes believe it: what that means is for the row to say.
    if history.faults.iter().any(|fault| fault.excuse.clock < 0) {
        return;
    }
    for (number, counter) in history.counters.iter().enumerate() {
        let records: Vec<&Record> = history.of(u32::try_from(number).unwrap_or(u32::MAX)).collect();
        let denied = |record: &&&Record| record.outcome.is_some_and(|outcome| !outcome.allowed);
        let (by_shared, alone): (Vec<&Record>, Vec<&Record>) =
            records.iter().filter(denied).partition(|record| record.shared == Shared::Answered);
        let charged = possible(history, &records, |record| u64::from(record.may_be_charged()));
        let exactly = Reading { times: 1, rounding: 0, longer: 1 };
        judge(history, counter, &by_shared, &charged, exactly, findings);
        for node in 0..u16::try_from(history.servers).unwrap_or(u16::MAX) {
            let own: Vec<&Record> = alone.iter().filter(|record| record.node == node).copied().collect();
            let weight = |record: &Record| match record.shared {
                _ if record.node == node && record.is_lone_admission() => {
                    history.servers + u64::from(record.shared == Shared::Unknown)
                }
                _ => u64::from(record.may_be_charged()),
            };
            let charged = possible(history, &records, weight);
            // Parts are rounded, by less than one each: the share, and what is left of it.
            let by_share = Reading { times: history.servers, rounding: 3 * history.servers, longer: 2 };
            judge(history, counter, &own, &charged, by_share, findings);
        }
    }
}

/// How a counter is read by whoever denies.
#[derive(Clone, Copy)]
struct Reading {
    /// A unit counts as so many.
    times: u64,
    /// Units that rounding may have cost.
    rounding: u64,
    /// What is charged counts for so many times as long as it should.
    longer: u64,
}

/// Charges that may have counted, each with the time in which they may have.
fn possible(history: &History, records: &[&Record], weight: impl Fn(&Record) -> u64) -> Vec<Op> {
    let op = |record: &&Record| {
        let to = if record.shared == Shared::Unknown { history.settled(record) } else { record.returned };
        Op { from: record.begun, to, cost: record.cost * weight(record) }
    };
    records.iter().map(op).filter(|op| op.cost > 0).collect()
}

fn judge(
    history: &History,
    counter: &Counter,
    denied: &[&Record],
    charged: &[Op],
    reading: Reading,
    findings: &mut Findings,
) {
    let Some(law) = Law::of(&counter.limit, history.epoch.as_micros()) else { return };
    let slack = drift(history.length());
    let most = match counter.limit.algorithm() {
        // Its law says twice as much as the limit.
        Algorithm::SlidingCounter(spec) => spec.limit,
        _ => law.most(),
    };
    let mut denied = denied.to_vec();
    denied.sort_unstable_by_key(|record| record.returned);
    let mut sweep = Sweep::new(law, counter, charged, &denied, slack, reading.longer);
    for record in denied {
        let used = sweep.most_used(record);
        let needed = record.cost * reading.times + reading.rounding;
        if used + i128::from(needed) <= i128::from(most) {
            let who = if record.shared == Shared::Answered { "the shared store" } else { "a node alone" };
            let text = format!(
                "{}: {who} denied {} at {} us, when at most {used} of {most} could be used",
                counter.name, record.cost, record.begun
            );
            findings.violation(Kind::Denial, text);
        }
    }
}

/// What may be used at most when something is denied, for denials in the order of their returns.
enum Sweep {
    Bucket(Bucket),
    Windows { charged: Vec<Op>, back: Moment },
}

/// For each instant since which a bucket may have been drained: what was charged from then on, and what the rate had brought before.
struct Bucket {
    tree: Tree,
    begins: Vec<Moment>,
    waiting: std::iter::Peekable<std::vec::IntoIter<Op>>,
    units: i128,
    period: i128,
    slack: Moment,
}

impl Sweep {
    fn new(law: Law, counter: &Counter, charged: &[Op], denied: &[&Record], slack: Moment, longer: u64) -> Self {
        let mut charged = charged.to_vec();
        charged.sort_unstable_by_key(|op| op.from);
        match law {
            Law::Bucket { rate, .. } => {
                let (units, period) = (i128::from(rate.units), i128::from(rate.period.as_micros()));
                // Charges weigh most at the last instant at which they may have counted, or now if that is later.
                let ends = charged.iter().map(|op| op.to).chain(denied.iter().map(|record| record.begun));
                let mut begins: Vec<Moment> = ends.collect();
                begins.sort_unstable();
                begins.dedup();
                let values: Vec<i128> = begins.iter().map(|begin| i128::from(*begin) * units).collect();
                let tree = Tree::new(&values);
                Self::Bucket(Bucket { tree, begins, waiting: charged.into_iter().peekable(), units, period, slack })
            }
            Law::Clock { width, .. } | Law::Sliding { width, .. } => {
                let windows = if matches!(counter.limit.algorithm(), Algorithm::SlidingCounter(_)) { 2 } else { 1 };
                Self::Windows { charged, back: width * windows * longer + slack }
            }
        }
    }

    fn most_used(&mut self, denied: &Record) -> i128 {
        match self {
            Self::Bucket(bucket) => bucket.most_used(denied),
            Self::Windows { charged, back } => {
                let from = denied.begun.saturating_sub(*back);
                let meets = charged.iter().take_while(|op| op.from <= denied.returned).filter(|op| op.to >= from);
                meets.map(|op| i128::from(op.cost)).sum()
            }
        }
    }
}

impl Bucket {
    fn most_used(&mut self, denied: &Record) -> i128 {
        let Self { tree, begins, waiting, units, period, slack } = self;
        let upto = |moment: Moment| begins.partition_point(|begin| *begin <= moment);
        while let Some(op) = waiting.next_if(|op| op.from <= denied.returned) {
            tree.add(upto(op.to), i128::from(op.cost) * *period);
        }
        let most = tree.most(upto(denied.begun)) - i128::from(denied.begun) * *units + i128::from(*slack) * *units;
        // Rounded up: what is left is rounded down.
        most.div_euclid(*period) + i128::from(most.rem_euclid(*period) > 0)
    }
}
