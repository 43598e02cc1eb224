//! How long decisions took, and whether that is as promised.
//!
//! A machine that others use keeps threads from running for milliseconds at a time. How late it was is measured in the
//! same run, by a thread that only sleeps and by the load itself, and added to what is promised; both are reported.

use super::checker::{Findings, Misses};
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
    /// All nodes are answered again so many milliseconds after it is over; a second later if they were alone just
    /// before it.
    Back(u64),
}

/// What came of a goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Met {
    /// It was met.
    Yes,
    /// It was not.
    No,
    /// Too little was asked to say.
    NoSample,
}

impl Met {
    fn by(holds: bool) -> Self {
        if holds { Self::Yes } else { Self::No }
    }
}

/// Of 99 in 100 is spoken where so many were asked.
const ENOUGH_FOR_99: usize = 100;
/// Of all where so many were.
const ENOUGH_FOR_ALL: usize = 20;

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
    /// Each goal in words, and what came of it.
    pub goals: Vec<(String, Met)>,
    /// Whether deadlines are missed without a reason no more often than when nothing is done; one of the goals.
    pub is_steady: bool,
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
            is_steady: true,
        };
        for goal in goals {
            let before = measured.goals.len();
            match goal {
                Goal::Back(within) => measured.back(findings, *within),
                Goal::Deadline => {
                    let mut faults: Vec<&Fault> = history.faults.iter().filter(|fault| fault.excuse.alone).collect();
                    let all = Fault {
                        what: "all the time".to_owned(),
                        begin: 0,
                        end: Moment::MAX,
                        recovered: 0,
                        excuse: Excuse::NOTHING,
                    };
                    // Where nobody may notice anything, nobody waits for longer at any time.
                    if faults.is_empty() {
                        faults.push(&all);
                    }
                    for fault in faults {
                        measured.meanwhile(history.deadline, fault, *goal, |after| during(fault, after));
                    }
                }
                Goal::Gone | Goal::Silent => {
                    for fault in history.faults.iter().filter(|fault| fault.excuse != Excuse::NOTHING) {
                        measured.meanwhile(history.deadline, fault, *goal, |after| during(fault, after));
                    }
                }
            }
            if measured.goals.len() == before {
                measured.goals.push((format!("{goal:?}"), Met::NoSample));
            }
        }
        measured.samples(history, findings);
        measured
    }

    /// How long decisions took while a fault was on; `during` are the times of those that began so long after it.
    fn meanwhile(&mut self, deadline: Moment, fault: &Fault, goal: Goal, during: impl Fn(Moment) -> Vec<Moment>) {
        let after = match goal {
            Goal::Gone => Some(20),
            Goal::Silent => Some(50),
            Goal::Deadline | Goal::Back(_) => None,
        };
        if let Some(after) = after {
            let took = during(after * MS);
            let p99 = quantile(&took, 990);
            let text = format!("{}: from {after} ms on 99 of 100 of {} in {p99} us", fault.what, took.len());
            let met = Met::by(p99 <= MS + self.lateness.p99);
            self.goals.push((text, if took.len() < ENOUGH_FOR_99 { Met::NoSample } else { met }));
        }
        if goal != Goal::Gone {
            let took = during(0);
            let most = quantile(&took, 1_000);
            let text = format!("{}: all {} in {most} us", fault.what, took.len());
            let met = Met::by(most <= deadline + MS + self.lateness.longest);
            self.goals.push((text, if took.len() < ENOUGH_FOR_ALL { Met::NoSample } else { met }));
        }
    }

    /// How soon all nodes were answered again.
    fn back(&mut self, findings: &Findings, within: u64) {
        for recovery in &findings.recoveries {
            // A breaker that was opened by the machine or another fault just before is allowed its second.
            let (more, why) =
                if recovery.after_another { (SECOND, ", having been alone just before") } else { (0, "") };
            self.goals.push(match recovery.took {
                Some(took) => {
                    let met = Met::by(took <= within * MS + self.lateness.longest + more);
                    (format!("answered again after {} ms{why}", took / MS), met)
                }
                None => ("answered again, all nodes".to_owned(), Met::NoSample),
            });
        }
    }

    /// Compares how often deadlines were missed for no reason that could be seen with how often they are when nothing
    /// is done at all.
    pub fn compare(&mut self, misses: &Misses, calm: &Misses) {
        let expected = calm.unexplained as f64 * misses.watched as f64 / (calm.watched as f64).max(1.0);
        let text = format!(
            "deadlines missed without a reason {} times in {} ms, and {} times in {} ms when nothing is done",
            misses.unexplained,
            misses.watched / MS,
            calm.unexplained,
            calm.watched / MS,
        );
        let met = Met::by(misses.unexplained as f64 <= 2.0 * expected + RARE);
        self.is_steady = met == Met::Yes;
        self.goals.push((text, if calm.watched < SECOND { Met::NoSample } else { met }));
    }

    /// What is promised is compared with a run in which nothing is done. If nodes are often alone even then, that says
    /// nothing.
    pub fn is_fit(&mut self, alone: u64, asked: u64) {
        let text = format!("alone {alone} times of {asked} when nothing is done: the machine is too busy to judge");
        self.goals.push((text, Met::by(alone * LEAST_CALM <= asked)));
    }

    /// What is judged by what happened to be asked: if nothing was, that it is well says nothing.
    fn samples(&mut self, history: &History, findings: &Findings) {
        // Keys are not used up at once, and then only some are asked for again in time.
        let is_long = findings.misses.watched >= 2 * SECOND;
        let is_in_order = history.faults.iter().all(|fault| fault.excuse.clock == 0);
        for (what, count) in [
            ("answers that can be replayed", if is_in_order { findings.replayed } else { 1 }),
            ("units that are given back", findings.given_back),
            ("denials that are repeated", if is_long { findings.repeated } else { 1 }),
            ("denials that are lifted by what is given back", if is_long { findings.lifted } else { 1 }),
        ] {
            if count == 0 {
                self.goals.push((what.to_owned(), Met::NoSample));
            }
        }
    }
}

/// Where nothing is done, no more than one decision of so many is made alone.
const LEAST_CALM: u64 = 5;
/// What happens at random may happen so often where it was not seen before.
const RARE: f64 = 2.0;

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
