//! Never too much: what was admitted, in any stretch of time, by the shared store, by each node alone, and by all
//! together.
//!
//! - **The shared store** admits what the limit promises, and once more what a lost state held, for each loss.
//! - **A node alone** admits what its share promises, always, whatever happens to Redis; and once more when its own clock is set ahead.
//! - **All together** admit the limit and an allowance O that is computed and not chosen: for each time that k of n nodes were alone on
//!   a counter, for D, their shares k/n of the burst, and what the shared state gained meanwhile without being asked: at most what
//!   the rate brings in D, at most a burst if nobody asked it. Whether nodes had a reason to be alone is asked elsewhere.
//!
//! What is given back may be had again, by each of them that may have given it back: where an answer is lost, that may
//! be both the shared store and the node.

use std::collections::BTreeSet;

use super::law::{Extra, Law, Op, Use};
use super::{Findings, Kind};
use crate::chaos::record::{Fault, History, Moment, Record, Shared, drift};

/// Lone decisions that are closer than this belong to one outage.
const SAME: Moment = 1_000_000;

pub(super) fn check(history: &History, findings: &mut Findings) {
    let slack = drift(history.length());
    for (number, counter) in history.counters.iter().enumerate() {
        let Some(law) = Law::of(&counter.limit, history.epoch.as_micros()) else { continue };
        let records: Vec<&Record> = history.of(u32::try_from(number).unwrap_or(u32::MAX)).collect();
        let losses = losses(history, &records, &law);
        let mut judge = |kind: Kind, used: Use, who: &str| {
            findings.worst_ratio(kind, used.ratio);
            if used.excess > 0 {
                findings.violation(
                    kind,
                    format!("{}: {who} admitted {} too much up to {} us", counter.name, used.excess, used.at),
                );
            }
        };
        let returned = |which: &dyn Fn(&Record) -> bool| given_back(history, &records, which, slack);
        let by_shared = returned(&Record::may_be_given_back);
        let shared = ops(&records, Record::is_shared_admission);
        let allowance = [&*losses, &by_shared].concat();
        judge(Kind::SharedBound, law.worst(&shared, &allowance, slack), "the shared store");
        let share = counter.limit.share(history.servers);
        let nodes: BTreeSet<u16> = records.iter().map(|record| record.node).collect();
        if let Some(share) = Law::of(&share, history.epoch.as_micros()) {
            for node in nodes {
                let alone = ops(&records, |record| record.node == node && record.is_lone_admission());
                // A node hears of what it gives back through the shared store as well.
                let own = returned(&|record| record.node == node);
                let own = [own, leaps(history, &share, |leaping| leaping == node)].concat();
                judge(Kind::LoneBound, share.worst(&alone, &own, slack), &format!("node {node} alone"));
            }
        }
        let all = ops(&records, Record::is_allowed);
        let outages = outages(&records, &law, counter.limit.share(history.servers).most());
        let leaps = Law::of(&share, history.epoch.as_micros()).map(|share| leaps(history, &share, |_| true));
        let leaps = leaps.unwrap_or_default();
        let allowance = [losses, outages, by_shared, returned(&Record::is_alone), leaps].concat();
        judge(Kind::Bound, law.worst(&all, &allowance, slack), "all together");
    }
}

fn ops(records: &[&Record], which: impl Fn(&Record) -> bool) -> Vec<Op> {
    let which = records.iter().filter(|record| which(record));
    which.map(|record| Op { from: record.begun, to: record.returned, cost: record.cost }).collect()
}

/// What was given back, by those that `which` are about.
fn given_back(history: &History, records: &[&Record], which: &dyn Fn(&Record) -> bool, slack: Moment) -> Vec<Extra> {
    let returned = records.iter().filter(|record| record.gives_back().is_some() && which(record));
    let extra = |record: &&Record| Extra {
        from: record.begun.saturating_sub(slack),
        to: history.settled(record) + slack,
        units: record.cost,
    };
    returned.map(extra).collect()
}

/// What nodes gain by themselves when their clocks are set ahead. It takes a moment until they go by them.
fn leaps(history: &History, share: &Law, whose: impl Fn(u16) -> bool) -> Vec<Extra> {
    let leaps = history.leaps.iter().filter(|(node, ..)| whose(*node));
    let extra = |(_, at, by): &(u16, Moment, Moment)| Extra {
        from: at.saturating_sub(history.deadline),
        to: at + 2 * history.deadline,
        units: share.most().min(share.refill(*by)),
    };
    leaps.map(extra).collect()
}

/// What faults excuse the shared store for.
fn losses(history: &History, records: &[&Record], law: &Law) -> Vec<Extra> {
    let of = |fault: &Fault| {
        let excuse = fault.excuse;
        let (mut units, mut to) = (law.most() * excuse.losses, fault.recovered);
        // A bucket gains nothing by a clock that is set back; a window begins anew.
        if excuse.clock > 0 || excuse.clock < 0 && !matches!(law, Law::Bucket { .. }) {
            units += law.most().min(law.refill(excuse.clock.unsigned_abs()));
        }
        // It begins off the clock when somebody asks for the first time after that, and ends within a window on the
        // clock, of which nothing is counted then.
        if let Law::Clock { width, .. } = law
            && excuse.clock < 0
        {
            let after =
                records.iter().filter(|record| record.shared == Shared::Answered && record.begun >= fault.recovered);
            to = after.map(|record| record.returned).min().unwrap_or(to).max(to) + width;
        }
        Extra { from: fault.begin, to, units }
    };
    history.faults.iter().map(of).filter(|extra| extra.units > 0).collect()
}

/// The times that nodes were alone on a counter, and what they may have admitted by that.
fn outages(records: &[&Record], law: &Law, share: u64) -> Vec<Extra> {
    let mut alone: Vec<&Record> = records.iter().filter(|record| record.is_lone_admission()).copied().collect();
    alone.sort_unstable_by_key(|record| record.begun);
    let mut found = Vec::new();
    let mut rest = &alone[..];
    while let Some(first) = rest.first() {
        let mut end = first.returned;
        let count = rest
            .iter()
            .take_while(|record| {
                let same = record.begun <= end + SAME;
                end = if same { end.max(record.returned) } else { end };
                same
            })
            .count();
        let (outage, after) = rest.split_at(count);
        rest = after;
        let nodes = outage.iter().map(|record| record.node).collect::<BTreeSet<_>>().len() as u64;
        let from = first.begun;
        let asked =
            records.iter().any(|record| record.is_shared_admission() && record.begun > from && record.returned < end);
        let gained = law.refill(end - from);
        let gained = if asked { gained } else { gained.min(law.most()) };
        found.push(Extra { from, to: end, units: nodes * share + gained });
    }
    found
}
