//! How long decisions took, and whether that is as promised.
//!
//! A machine that others use keeps threads from running for milliseconds at a time. How late it was is measured in the same run, by a
//! thread that only sleeps and by the load itself, and added to what is promised; both are reported.

use super::checker::Findings;
use super::record::{Excuse, Fault, History, Moment, Record};

/// What is promised about time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// A server that is gone costs nobody time: 20 ms after it went, decisions take less than a millisecond again.
    Gone,
    /// A server that is silent costs nobody more than the deadline and a millisecond, for 50 ms, and after that nobody.
    Silent,
    /// Nobody waits for longer than the deadline and a millisecond.
    Deadline,
    /// All nodes are answered again so many milliseconds after it is over; a second later if they were alone just before it.
    Back(u64),
}

/// How late the machine was by itself, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lateness {
    /// Of 100 decisions, 99 began no later than this after their time; a tick of a millisecond is part of it.
    pub p99: Moment,
    /// The longest time for which a thread that wanted to run did not.
    pub longest: Moment,
}

/// How long decisions took, in microseconds.
#[derive(Clone, Debug, Default)]
pub struct Times {
    /// Half of all.
    pub p50: Moment,
    /// 99 of 100.
    pub p99: Moment,
    /// All.
    pub most: Moment,
    /// While faults were on: 99 of 100, and all.
    pub faulty: (Moment, Moment),
    /// The machine.
    pub lateness: Lateness,
    /// Each goal in words, and whether it was met.
    pub goals: Vec<(String, bool)>,
}

const MS: Moment = 1_000;
const SECOND: Moment = 1_000_000;

impl Times {
    /// Measures a history by goals.
    pub fn measure(history: &History, findings: &Findings, goals: &[Goal]) -> Self {
        let all: Vec<Moment> = took(history, |_| true);
        let during = |fault: &Fault, after: Moment| {
            took(history, |record| record.begun >= fault.begin + after && record.begun < fault.end)
        };
        let mut late: Vec<Moment> =
            history.records.iter().map(|record| record.begun.saturating_sub(record.scheduled)).collect();
        late.sort_unstable();
        let longest = history.stalls.iter().map(|(from, to)| (to - from).saturating_sub(MS)).max().unwrap_or(0);
        let lateness = Lateness { p99: quantile(&late, 990).saturating_sub(MS), longest };
        let faulty: Vec<Moment> = took(history, |record| {
            history.faults.iter().any(|fault| record.begun >= fault.begin && record.begun < fault.end)
        });
        let mut measured = Self {
            p50: quantile(&all, 500),
            p99: quantile(&all, 990),
            most: quantile(&all, 1_000),
            faulty: (quantile(&faulty, 990), quantile(&faulty, 1_000)),
            lateness,
            goals: Vec::new(),
        };
        let is_fault = |fault: &&Fault| fault.excuse != Excuse::NOTHING;
        for goal in goals {
            for fault in history.faults.iter().filter(is_fault) {
                let all = during(fault, 0);
                let (p99, most) = match goal {
                    Goal::Gone => (Some((20, quantile(&during(fault, 20 * MS), 990))), None),
                    Goal::Silent => (Some((50, quantile(&during(fault, 50 * MS), 990))), Some(quantile(&all, 1_000))),
                    Goal::Deadline => (None, Some(quantile(&all, 1_000))),
                    Goal::Back(_) => (None, None),
                };
                if let Some((after, p99)) = p99 {
                    let text = format!("{}: from {after} ms on 99 of 100 in {p99} us", fault.what);
                    measured.goals.push((text, p99 <= MS + lateness.p99));
                }
                if let Some(most) = most {
                    let text = format!("{}: all in {most} us", fault.what);
                    measured.goals.push((text, most <= history.deadline + MS + lateness.longest));
                }
            }
            if let Goal::Back(within) = goal {
                for recovery in &findings.recoveries {
                    // A breaker that was opened by the machine or another fault just before is allowed its second.
                    let (more, why) =
                        if recovery.after_another { (SECOND, ", having been alone just before") } else { (0, "") };
                    let text = format!("answered again after {} ms{why}", recovery.took / MS);
                    measured.goals.push((text, recovery.took <= within * MS + lateness.longest + more));
                }
            }
        }
        measured
    }
}

/// From begin to return: how late the load itself was is the machine's.
fn took(history: &History, which: impl Fn(&Record) -> bool) -> Vec<Moment> {
    let which = history.records.iter().filter(|record| record.outcome.is_some() && which(record));
    let mut took: Vec<Moment> = which.map(|record| record.returned - record.begun).collect();
    took.sort_unstable();
    took
}

/// What `part` of 1,000 do not exceed.
fn quantile(sorted: &[Moment], part: usize) -> Moment {
    let index = (sorted.len() * part / 1_000).min(sorted.len().saturating_sub(1));
    sorted.get(index).copied().unwrap_or(0)
}
