//! Judges what was recorded. Pure: a history goes in, findings come out.

mod bounds;
mod denials;
mod honesty;
mod law;
mod ledger;
mod repeats;
mod replay;
mod tree;

use super::record::{History, Moment, Shared};

/// What can be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// The shared store admitted too much.
    SharedBound,
    /// A node alone admitted more than its share.
    LoneBound,
    /// All together admitted more than the limit and what faults excuse.
    Bound,
    /// A denial that nothing justifies.
    Denial,
    /// A denial that was repeated and does not hold any more.
    Repeat,
    /// An answer that is not the algorithm's.
    Replay,
    /// A node was alone without a reason, or stayed alone.
    Alone,
    /// An answer was not made when it was asked for.
    Clock,
    /// Something was charged twice, or for nobody.
    Ledger,
    /// A key stays for ever.
    Expiry,
    /// Something that this fault in particular must not lead to.
    Row,
}

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// What is wrong, the first few of each kind in words.
    pub violations: Vec<(Kind, String)>,
    /// How many there were.
    pub violated: u64,
    /// How much of what was allowed was admitted, at worst, by all together.
    pub ratio: f64,
    /// The same by the shared store.
    pub shared_ratio: f64,
    /// Answers that were replayed, and were right or are among the violations.
    pub replayed: u64,
    /// Answers of the shared store.
    pub answered: u64,
    /// Decisions.
    pub decisions: u64,
    /// Denials.
    pub denied: u64,
    /// Of these, those that were repeated without asking.
    pub repeated: u64,
    /// Units that were given back, or are to be.
    pub given_back: u64,
    /// How often something was given back through a node that remembered a denial which it lifted.
    pub lifted: u64,
    /// Decisions that were made alone.
    pub alone: u64,
    /// Deadlines that were missed without a fault.
    pub misses: Misses,
    /// Units of which nobody knows whether they were counted.
    pub unknown: u64,
    /// How soon all was well after each fault.
    pub recoveries: Vec<Recovery>,
}

/// Deadlines that were missed without a fault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Misses {
    /// How many decisions waited for the whole deadline.
    pub missed: u64,
    /// How often that happened, to however many, while the machine was not seen to stand still.
    pub unexplained: u64,
    /// For how long there was no fault.
    pub watched: Moment,
}

/// How soon all was well after a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// How long after its end the last node was answered; `None` if one never was.
    pub took: Option<Moment>,
    /// Nodes were alone just before it began: their breakers open once in a second, and stay open until it is over.
    pub after_another: bool,
}

/// So many violations of one kind are told in words.
const TOLD: usize = 5;

impl Findings {
    fn violation(&mut self, kind: Kind, text: String) {
        self.violated += 1;
        if self.violations.iter().filter(|(known, _)| *known == kind).count() < TOLD {
            self.violations.push((kind, text));
        }
    }

    fn worst_ratio(&mut self, kind: Kind, ratio: f64) {
        match kind {
            Kind::Bound => self.ratio = self.ratio.max(ratio),
            Kind::SharedBound => self.shared_ratio = self.shared_ratio.max(ratio),
            _ => {}
        }
    }

    /// Whether something of this kind was found.
    pub fn has(&self, kind: Kind) -> bool {
        self.violations.iter().any(|(known, _)| *known == kind)
    }
}

/// Judges a history.
pub fn judge(history: &History) -> Findings {
    let mut findings = Findings { decisions: history.records.len() as u64, ..Findings::default() };
    for record in &history.records {
        findings.answered += u64::from(record.shared == Shared::Answered);
        findings.denied += u64::from(record.is_denied());
        findings.given_back += if record.gives_back().is_some() { record.cost } else { 0 };
    }
    bounds::check(history, &mut findings);
    denials::check(history, &mut findings);
    repeats::check(history, &mut findings);
    replay::check(history, &mut findings);
    honesty::check(history, &mut findings);
    ledger::check(history, &mut findings);
    for complaint in &history.complaints {
        findings.violation(Kind::Row, complaint.clone());
    }
    findings.recoveries = history.faults.iter().filter_map(|fault| honesty::recovery(history, fault)).collect();
    findings
}

#[cfg(test)]
mod tests;
