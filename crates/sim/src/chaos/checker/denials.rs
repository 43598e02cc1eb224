//! Nobody is denied without a reason: where every charge that could possibly have counted is counted, at the worst
//! possible instant, there has to be too little left.
//!
//! Of denials by the shared store this is asked of all; where the chain of answers is whole, [`replay`](super::replay)
//! asks for more. Of denials by a node alone it is asked with its share, which begins with what Redis last said: N
//! units of its own count as much as one that the servers shared. What it begins with is counted as if it had been
//! charged just then, so that a log or a sliding counter may remember it for twice as long.
//!
//! What was certainly given back does not count any more: to whoever asks the shared store from the answer on, and to a
//! node that repeats a denial at once if it was given back through this node, and a second later if it was through
//! another.

use std::collections::HashMap;
use std::iter::Peekable;
use std::vec::IntoIter;

use tollgate::{Algorithm, Rate};

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
        let denied = |which: &dyn Fn(&Record) -> bool| -> Vec<&Record> {
            records.iter().filter(|record| record.is_denied() && which(record)).copied().collect()
        };
        let returns = Returns::of(history, &records);
        let charged = |known: Known| {
            possible(history, &records, |record| (u64::from(record.may_be_charged()), returns.certain(record, known)))
        };
        let exactly = Reading { times: 1, rounding: 0, longer: 1 };
        let by_shared = denied(&|record| record.shared == Shared::Answered);
        judge(history, counter, &by_shared, &charged(Known::AtOnce), exactly, findings);
        for node in 0..u16::try_from(history.servers).unwrap_or(u16::MAX) {
            let repeated = denied(&|record| record.node == node && record.shared == Shared::Repeated);
            judge(history, counter, &repeated, &charged(Known::By(node)), exactly, findings);
            let own = denied(&|record| record.node == node && record.is_alone());
            // What is given back meanwhile is not looked at.
            let weight = |record: &Record| match record.shared {
                _ if record.node == node && record.is_lone_admission() => {
                    (history.servers + u64::from(record.shared == Shared::Unknown), None)
                }
                _ => (u64::from(record.may_be_charged()), None),
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

/// For so long a denial is repeated although another node has given something back.
const REPEATED: Moment = 1_000_000;

/// Who has to know of what was given back.
#[derive(Clone, Copy)]
enum Known {
    /// The shared store, which gave it back.
    AtOnce,
    /// This node.
    By(u16),
}

/// What was given back for certain, by the number of the decision that had spent it.
struct Returns<'h>(HashMap<u64, &'h Record>);

impl<'h> Returns<'h> {
    fn of(history: &History, records: &[&'h Record]) -> Self {
        // What was given back may be lost, and what it was given back to not.
        let since = history.lost_until();
        let is_certain =
            |record: &&&Record| record.shared == Shared::Answered && since.is_none_or(|since| record.begun > since);
        let certain = records.iter().filter(is_certain);
        Self(certain.filter_map(|record| Some((record.gives_back()?, *record))).collect())
    }

    fn certain(&self, spent: &Record, known: Known) -> Option<Back> {
        let back = self.0.get(&spent.number)?;
        let known_at = match known {
            Known::By(node) if node != back.node => back.returned + REPEATED,
            Known::By(_) | Known::AtOnce => back.returned,
        };
        Some(Back { begun: back.begun, known_at })
    }
}

/// A charge that was given back.
#[derive(Clone, Copy)]
struct Back {
    /// Not before this.
    begun: Moment,
    /// Whoever decides after this has to know.
    known_at: Moment,
}

/// A charge that may have counted, with the time in which it may have.
#[derive(Clone, Copy)]
struct Charged {
    op: Op,
    back: Option<Back>,
}

fn possible(history: &History, records: &[&Record], weight: impl Fn(&Record) -> (u64, Option<Back>)) -> Vec<Charged> {
    let charged = |record: &&Record| {
        let (weight, back) = weight(record);
        Charged { op: Op { from: record.begun, to: history.settled(record), cost: record.cost * weight }, back }
    };
    records.iter().map(charged).filter(|charged| charged.op.cost > 0).collect()
}

fn judge(
    history: &History,
    counter: &Counter,
    denied: &[&Record],
    charged: &[Charged],
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
            let who = match record.shared {
                Shared::Answered => "the shared store",
                Shared::Repeated => "a node, by an earlier denial,",
                Shared::NotRun | Shared::Unknown => "a node alone",
            };
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
    Bucket(Box<Bucket>),
    Windows { charged: Vec<Charged>, back: Moment },
}

/// For each instant since which a bucket may have been drained: what was charged from then on, less what was given
/// back, and what the rate had brought before.
struct Bucket {
    tree: Tree,
    begins: Vec<Moment>,
    waiting: Peekable<IntoIter<Op>>,
    /// What was given back, from when on: by when it has to be known.
    returns: Peekable<IntoIter<(Moment, Op)>>,
    /// For each denial, the earliest begin of it and those after it.
    earliest: IntoIter<Moment>,
    units: i128,
    period: i128,
    slack: Moment,
}

impl Sweep {
    fn new(law: Law, counter: &Counter, charged: &[Charged], denied: &[&Record], slack: Moment, longer: u64) -> Self {
        let mut charged = charged.to_vec();
        charged.sort_unstable_by_key(|charged| charged.op.from);
        match law {
            Law::Bucket { rate, .. } => Self::Bucket(Box::new(Bucket::new(rate, &charged, denied, slack))),
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
                let counts = |charged: &&Charged| {
                    charged.op.to >= from && charged.back.is_none_or(|back| back.known_at > denied.begun)
                };
                let meets = charged.iter().take_while(|charged| charged.op.from <= denied.returned).filter(counts);
                meets.map(|charged| i128::from(charged.op.cost)).sum()
            }
        }
    }
}

impl Bucket {
    fn new(rate: Rate, charged: &[Charged], denied: &[&Record], slack: Moment) -> Self {
        let (units, period) = (i128::from(rate.units), i128::from(rate.period.as_micros()));
        let mut returns: Vec<(Moment, Op)> = charged
            .iter()
            .filter_map(|charged| Some((charged.back?, charged.op)))
            .map(|(back, op)| (back.known_at, Op { from: back.begun, ..op }))
            .collect();
        returns.sort_unstable_by_key(|(known_at, _)| *known_at);
        // Charges weigh most at the last instant at which they may have counted, or now if that is later; what is given
        // back weighs least at the first.
        let ends = charged.iter().map(|charged| charged.op.to).chain(denied.iter().map(|record| record.begun));
        let mut begins: Vec<Moment> = ends.chain(returns.iter().map(|(_, op)| op.from)).collect();
        begins.sort_unstable();
        begins.dedup();
        let values: Vec<i128> = begins.iter().map(|begin| i128::from(*begin) * units).collect();
        let mut earliest: Vec<Moment> = denied.iter().map(|record| record.begun).collect();
        for index in (1..earliest.len()).rev() {
            earliest[index - 1] = earliest[index - 1].min(earliest[index]);
        }
        Self {
            tree: Tree::new(&values),
            begins,
            waiting: charged.iter().map(|charged| charged.op).collect::<Vec<_>>().into_iter().peekable(),
            returns: returns.into_iter().peekable(),
            earliest: earliest.into_iter(),
            units,
            period,
            slack,
        }
    }

    fn most_used(&mut self, denied: &Record) -> i128 {
        let Self { tree, begins, waiting, returns, earliest, units, period, slack } = self;
        let upto = |moment: Moment| begins.partition_point(|begin| *begin <= moment);
        while let Some(op) = waiting.next_if(|op| op.from <= denied.returned) {
            tree.add(upto(op.to), i128::from(op.cost) * *period);
        }
        let earliest = earliest.next().unwrap_or(0);
        while let Some((_, op)) = returns.next_if(|(known_at, _)| *known_at <= earliest) {
            // A bucket that was full in between had nothing to be given back.
            tree.add(upto(op.from.saturating_sub(1)), -(i128::from(op.cost) * *period));
        }
        let most = tree.most(upto(denied.begun)) - i128::from(denied.begun) * *units + i128::from(*slack) * *units;
        // Rounded up: what is left is rounded down.
        most.div_euclid(*period) + i128::from(most.rem_euclid(*period) > 0)
    }
}
