//! Histories made by hand: those that are right pass, and each that is wrong is found out by what is wrong with it.

use tollgate::{
    Algorithm, FixedWindow, Intent, Limit, Micros, Outcome, Rate, SlidingCounter, SlidingLog, Timestamp, TokenBucket,
};
use tollgate_core::{Ask, State};

use super::*;
use crate::chaos::Plan;
use crate::chaos::record::{Act, Counter, Excuse, Fault, Layout, Record};

mod returns;

const MS: Moment = 1_000;
const SECOND: Moment = 1_000_000;

/// A history of one counter, as a store that is right would make it.
struct Draft {
    history: History,
    state: State,
    total: u64,
}

impl Draft {
    fn new(algorithm: impl Into<Algorithm>) -> Self {
        let limit = Limit::new(algorithm).unwrap();
        let counter = Counter { name: "x".to_owned(), limit, ledger: None };
        let history = History {
            layout: Layout::Single,
            plan: Plan::default(),
            servers: 3,
            deadline: 50 * MS,
            epoch: Timestamp::from_secs(1_000_000_000),
            counters: vec![counter],
            records: Vec::new(),
            faults: Vec::new(),
            stalls: Vec::new(),
            keys_for_ever: 0,
            complaints: Vec::new(),
            leaps: Vec::new(),
        };
        Self { history, state: State::default(), total: 0 }
    }

    fn bucket() -> Self {
        Self::new(TokenBucket::new(Rate::per_second(10)).burst(6))
    }

    fn step(&mut self, at: Moment, cost: u64) -> Outcome {
        let now = self.history.wall(at);
        let outcome = self.history.counters[0].limit.apply(&mut self.state, &Ask::spend(cost, now));
        self.total += if outcome.allowed { cost } else { 0 };
        outcome
    }

    fn record(&mut self, at: Moment, cost: u64, shared: Shared, outcome: Option<Outcome>) -> &mut Record {
        let total = outcome.filter(|outcome| outcome.allowed && shared == Shared::Answered).map(|_| self.total);
        let (scheduled, begun, returned) = (at, at - 100, at + 100);
        let (number, act) = (self.history.records.len() as u64, Act::Spend);
        let record =
            Record { number, act, node: 0, counter: 0, cost, scheduled, begun, returned, shared, outcome, total };
        self.history.records.push(record);
        self.history.records.last_mut().unwrap()
    }

    /// Asks the shared store.
    fn ask(&mut self, at: Moment, cost: u64) -> &mut Record {
        let outcome = self.step(at, cost);
        self.record(at, cost, Shared::Answered, Some(outcome))
    }

    /// A node decides alone.
    fn alone(&mut self, at: Moment, node: u16, allowed: bool) -> &mut Record {
        let outcome = Outcome { allowed, alone: true, at: self.history.wall(at), ..Outcome::UNLIMITED };
        let record = self.record(at, 1, Shared::NotRun, Some(outcome));
        record.node = node;
        record
    }

    fn fault(&mut self, begin: Moment, end: Moment, excuse: Excuse) {
        self.history.faults.push(Fault { what: "fault".to_owned(), begin, end, recovered: end, excuse });
    }

    /// Asks at a steady pace.
    fn many(&mut self, from: Moment, to: Moment, every: Moment) {
        (from..to).step_by(every as usize).for_each(|at| {
            self.ask(at, 1 + at / every % 2);
        });
    }

    fn judge(&mut self) -> Findings {
        self.history.counters[0].ledger = Some(self.total);
        judge(&self.history)
    }

    #[track_caller]
    fn is_well(&mut self) {
        let findings = self.judge();
        assert_eq!(findings.violated, 0, "{:?}", findings.violations);
    }

    #[track_caller]
    fn is_found(&mut self, kind: Kind) {
        let findings = self.judge();
        assert!(findings.has(kind), "{:?}", findings.violations);
    }
}

#[test]
fn what_the_algorithms_answer_passes_and_is_replayed() {
    let all: [Algorithm; 4] = [
        TokenBucket::new(Rate::per_second(10)).burst(6).into(),
        FixedWindow::new(10, Micros::SECOND).into(),
        SlidingLog::new(10, Micros::SECOND).into(),
        SlidingCounter::new(10, Micros::SECOND).into(),
    ];
    for algorithm in all {
        let mut draft = Draft::new(algorithm);
        draft.many(SECOND, 6 * SECOND, 37 * MS);
        // Two at the same instant, in the wrong order: somebody else's answer was there first.
        draft.ask(7 * SECOND, 2);
        draft.ask(7 * SECOND, 1);
        let last = draft.history.records.len() - 1;
        draft.history.records.swap(last, last - 1);
        draft.is_well();
        let findings = draft.judge();
        assert_eq!(findings.replayed, findings.answered);
        // A sliding counter may admit twice its limit, and does so only to those who know how.
        assert!(findings.denied > 20 && findings.ratio >= 0.5, "{findings:?}");
    }
}

#[test]
fn one_admission_too_many_is_found_in_two_ways() {
    let mut draft = Draft::bucket();
    (0..6).for_each(|n| {
        let _ = draft.ask(SECOND + n * MS, 1);
    });
    let record = draft.ask(SECOND + 7 * MS, 1);
    assert!(!record.is_allowed());
    record.outcome = record.outcome.map(|outcome| Outcome { allowed: true, ..outcome });
    draft.is_found(Kind::SharedBound);
    draft.is_found(Kind::Bound);
    draft.is_found(Kind::Replay);
}

#[test]
fn a_denial_without_a_reason_is_found_in_two_ways() {
    let mut draft = Draft::bucket();
    draft.many(SECOND, 2 * SECOND, 200 * MS);
    let record = draft.ask(3 * SECOND, 1);
    record.outcome = record.outcome.map(|outcome| Outcome { allowed: false, ..outcome });
    draft.is_found(Kind::Denial);
    draft.is_found(Kind::Replay);
}

#[test]
fn a_number_that_is_off_by_one_is_found() {
    for change in [
        |outcome: &mut Outcome| outcome.remaining += 1,
        |outcome: &mut Outcome| outcome.reset_after = Micros::from_micros(outcome.reset_after.as_micros() + 1),
    ] {
        let mut draft = Draft::bucket();
        draft.many(SECOND, 2 * SECOND, 40 * MS);
        let record = draft.ask(3 * SECOND, 1);
        record.outcome.iter_mut().for_each(change);
        draft.is_found(Kind::Replay);
    }
}

#[test]
fn what_nobody_knows_breaks_a_chain_and_a_fresh_answer_mends_it() {
    for is_counted in [true, false] {
        let mut draft = Draft::bucket();
        draft.many(SECOND, 2 * SECOND, 300 * MS);
        if is_counted {
            draft.step(2 * SECOND, 3);
        }
        draft.record(2 * SECOND, 3, Shared::Unknown, None);
        draft.many(2 * SECOND + MS, 3 * SECOND, 300 * MS);
        draft.many(6 * SECOND, 7 * SECOND, 300 * MS);
        draft.is_well();
        let findings = draft.judge();
        assert!(findings.replayed >= 8 && findings.replayed < findings.answered, "{findings:?}");
        // Without that record, what was counted was counted for nobody.
        if is_counted {
            draft.history.records.retain(|record| record.shared == Shared::Answered);
            draft.is_found(Kind::Replay);
            draft.is_found(Kind::Ledger);
        }
    }
}

#[test]
fn a_state_that_was_lost_is_excused_once() {
    let lose = |faults: u64| {
        let mut draft = Draft::bucket();
        for n in 0..2 {
            (0..6).for_each(|unit| {
                let _ = draft.ask(SECOND + n * 20 * MS + unit * MS, 1);
            });
            if n < faults {
                let from = SECOND + n * 20 * MS + 10 * MS;
                draft.fault(from, from + MS, Excuse { alone: false, ..Excuse::LOSS });
            }
            draft.state = State::default();
        }
        (0..6).for_each(|unit| {
            let _ = draft.ask(SECOND + 40 * MS + unit * MS, 1);
        });
        draft
    };
    lose(2).is_well();
    lose(1).is_found(Kind::SharedBound);
}

#[test]
fn a_window_of_a_clock_that_was_set_back_ends_within_the_next_on_the_clock() {
    const HOUR: Moment = 3_600 * SECOND;
    let set_back = |by: Moment| {
        let mut draft = Draft::new(FixedWindow::new(5, Micros::SECOND));
        draft.history.faults.push(Fault {
            what: "clock set right".to_owned(),
            begin: 2 * SECOND - 30 * MS,
            end: 2 * SECOND - 30 * MS,
            recovered: 2 * SECOND - 25 * MS,
            excuse: Excuse { clock: -(by as i64), ..Excuse::NOTHING },
        });
        // Ahead until the fault, and right from then on: the last window of a clock that is ahead goes on for a second.
        let mut ask = |at: Moment, ahead: Moment| {
            let outcome = draft.step(at + ahead, 1);
            draft.record(at, 1, Shared::Answered, Some(outcome)).is_allowed()
        };
        assert!(ask(2 * SECOND - 40 * MS, by));
        assert!(ask(2 * SECOND - 20 * MS, 0));
        assert!((1..=3).all(|n| ask(2 * SECOND + n * 100 * MS, 0)));
        assert!(!ask(2 * SECOND + 500 * MS, 0));
        assert!((0..5).all(|n| ask(3 * SECOND - 15 * MS + n * MS, 0)));
        draft
    };
    let bounds = |mut draft: Draft| {
        let findings = draft.judge();
        findings.has(Kind::SharedBound) || findings.has(Kind::Bound)
    };
    assert!(!bounds(set_back(HOUR)));
    // Also if nobody asks for a while: it begins with whoever asks first.
    let mut later = set_back(HOUR);
    for record in later.history.records.iter_mut().skip(1) {
        for moment in [&mut record.scheduled, &mut record.begun, &mut record.returned] {
            *moment += 7 * SECOND;
        }
    }
    assert!(!bounds(later));
    // In the window after that nothing is excused.
    let mut late = set_back(HOUR);
    for n in 0..6 {
        let admitted = Outcome { allowed: true, ..Outcome::UNLIMITED };
        late.record(3 * SECOND + (100 + n) * MS, 1, Shared::Answered, Some(admitted));
    }
    assert!(bounds(late));
    let mut never = set_back(HOUR);
    never.history.faults.clear();
    assert!(bounds(never));
}

#[test]
fn the_ledger_counts_what_was_admitted_and_each_unit_once() {
    let mut draft = Draft::bucket();
    draft.many(SECOND, 2 * SECOND, 200 * MS);
    draft.is_well();
    draft.total += 1;
    draft.is_found(Kind::Ledger);
    draft.total -= 2;
    draft.is_found(Kind::Ledger);
    draft.total += 1;
    let last = draft.history.records.last_mut().unwrap();
    last.total = last.total.map(|total| total - 1);
    draft.is_found(Kind::Ledger);
}

#[test]
fn a_node_is_alone_only_with_a_reason() {
    let mut draft = Draft::bucket();
    draft.many(SECOND, 2 * SECOND, 200 * MS);
    draft.alone(2 * SECOND, 1, true);
    draft.is_found(Kind::Alone);
    // A fault is one, and so is a deadline that was missed just before.
    draft.fault(2 * SECOND - MS, 2 * SECOND, Excuse::ALONE);
    draft.is_well();
    draft.history.faults.clear();
    let missed = draft.alone(2 * SECOND - 100 * MS, 1, true);
    missed.returned = missed.begun + 50 * MS;
    draft.is_well();
    assert_eq!((draft.judge().misses.missed, draft.judge().misses.unexplained), (1, 1));
    draft.history.stalls.push((2 * SECOND - 90 * MS, 2 * SECOND - 60 * MS));
    assert_eq!(draft.judge().misses.unexplained, 0);
}

#[test]
fn nodes_that_stay_alone_are_found() {
    let mut draft = Draft::bucket();
    draft.fault(SECOND, 2 * SECOND, Excuse::ALONE);
    for node in [0, 1, 2] {
        (0..30).for_each(|n| {
            let _ = draft.alone(2 * SECOND + n * 10 * MS, node, n == 0);
        });
    }
    draft.is_found(Kind::Alone);
}

#[test]
fn nodes_that_are_alone_have_their_share_and_no_more() {
    // Two units each of a burst of six, and a third of the rate.
    let mut draft = Draft::bucket();
    draft.fault(SECOND, 2 * SECOND, Excuse::ALONE);
    (0..6).for_each(|n| {
        let _ = draft.ask(SECOND - 10 * MS + n * MS, 1);
    });
    for node in [0, 1, 2] {
        draft.alone(SECOND + 10 * MS, node, true);
        draft.alone(SECOND + 11 * MS, node, true);
    }
    draft.is_well();
    draft.alone(SECOND + 12 * MS, 1, true);
    draft.is_found(Kind::LoneBound);
}

#[test]
fn a_node_whose_clock_is_set_ahead_may_admit_its_share_once_more_by_itself() {
    let mut draft = Draft::bucket();
    draft.fault(SECOND, 2 * SECOND, Excuse::ALONE);
    for at in [10, 11, 12, 13] {
        draft.alone(SECOND + at * MS, 1, true);
    }
    draft.history.leaps.push((1, SECOND + 12 * MS, 3_600 * SECOND));
    draft.is_well();
    // Not of another node's, and not twice.
    draft.history.leaps[0].0 = 2;
    draft.is_found(Kind::LoneBound);
    draft.history.leaps[0].0 = 1;
    (0..3).for_each(|n| {
        let _ = draft.alone(SECOND + (20 + n) * MS, 1, true);
    });
    draft.is_found(Kind::LoneBound);
}

#[test]
fn all_together_may_admit_what_being_alone_excuses_and_no_more() {
    let mut draft = Draft::bucket();
    draft.fault(SECOND, 2 * SECOND, Excuse::ALONE);
    (0..6).for_each(|n| {
        let _ = draft.ask(SECOND - 10 * MS + n * MS, 1);
    });
    for node in [0, 1, 2] {
        // As if each took itself for the only one.
        (0..6).for_each(|n| {
            let _ = draft.alone(SECOND + 10 * MS + n * MS, node, true);
        });
    }
    draft.is_found(Kind::Bound);
}

#[test]
fn a_node_that_denies_its_share_is_found() {
    let mut draft = Draft::new(TokenBucket::new(Rate::per_second(10)).burst(60));
    draft.fault(SECOND, 2 * SECOND, Excuse::ALONE);
    draft.ask(SECOND / 2, 1);
    (0..4).for_each(|n| {
        let _ = draft.alone(SECOND + n * MS, 1, true);
    });
    draft.is_well();
    draft.alone(SECOND + 10 * MS, 1, false);
    draft.is_found(Kind::Denial);
}

#[test]
fn an_answer_of_another_time_is_found() {
    let mut draft = Draft::bucket();
    draft.many(SECOND, 2 * SECOND, 200 * MS);
    let record = draft.ask(3 * SECOND, 1);
    record.outcome.iter_mut().for_each(|outcome| outcome.at = outcome.at.plus(Micros::from_secs(10)));
    draft.is_found(Kind::Clock);
}

#[test]
fn keys_for_ever_and_complaints_are_told() {
    let mut draft = Draft::bucket();
    draft.many(SECOND, 2 * SECOND, 200 * MS);
    draft.history.keys_for_ever = 1;
    draft.history.complaints.push("something else".to_owned());
    draft.is_found(Kind::Expiry);
    draft.is_found(Kind::Row);
}
