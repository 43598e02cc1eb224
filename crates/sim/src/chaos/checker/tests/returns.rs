//! What is given back, and what is repeated without asking.

use super::*;
use crate::chaos::record::Act;

/// Well within a window.
const BASE: Moment = SECOND + 100 * MS;

impl Draft {
    /// Gives back what the decision at `index` spent, through the shared store.
    fn refund(&mut self, at: Moment, index: usize) -> &mut Record {
        let spent = self.history.records[index];
        let charged_at = spent.outcome.unwrap().proceeds_at();
        let ask = Ask::spend(spent.cost, self.history.wall(at)).with_intent(Intent::Refund { charged_at });
        let outcome = self.history.counters[0].limit.apply(&mut self.state, &ask);
        self.total -= spent.cost;
        let total = self.total;
        let record = self.record(at, spent.cost, Shared::Answered, Some(outcome));
        record.act = Act::Refund { of: spent.number, charged_at };
        record.total = Some(total);
        record
    }

    /// Says again what was denied at `index`, without asking.
    fn repeat(&mut self, at: Moment, index: usize) -> &mut Record {
        let told = self.history.records[index];
        let outcome = told.outcome.unwrap();
        let passed = Micros::from_micros(at - told.returned);
        let outcome = Outcome {
            at: outcome.at.plus(passed),
            retry_after: outcome.retry_after.map(|wait| wait.minus(passed)),
            reset_after: outcome.reset_after.minus(passed),
            ..outcome
        };
        let record = self.record(at, told.cost, Shared::Repeated, Some(outcome));
        record.node = told.node;
        record
    }

    /// Spends all there is at a second, and is denied once more at the end: the index of that.
    fn drained(algorithm: impl Into<Algorithm>) -> (Self, usize) {
        let mut draft = Self::new(algorithm);
        (0..6).for_each(|n| {
            let _ = draft.ask(BASE + n * MS, 1);
        });
        assert!(draft.ask(BASE + 10 * MS, 1).is_denied());
        (draft, 6)
    }
}

fn window() -> FixedWindow {
    FixedWindow::new(6, Micros::SECOND)
}

#[test]
fn what_is_given_back_may_be_had_again_and_no_more() {
    let all: [Algorithm; 4] = [
        TokenBucket::new(Rate::per_hour(1)).burst(6).into(),
        window().into(),
        SlidingLog::new(6, Micros::SECOND).into(),
        SlidingCounter::new(6, Micros::SECOND).into(),
    ];
    for algorithm in all {
        let is_exact = !matches!(algorithm, Algorithm::SlidingCounter(_));
        let (mut draft, _) = Draft::drained(algorithm);
        draft.refund(BASE + 20 * MS, 2);
        assert!(draft.ask(BASE + 30 * MS, 1).is_allowed());
        draft.is_well();
        let findings = draft.judge();
        assert_eq!((findings.given_back, findings.replayed), (1, findings.answered));
        // Once more than it was given back.
        let record = draft.ask(BASE + 40 * MS, 1);
        assert!(record.is_denied());
        record.outcome = record.outcome.map(|outcome| Outcome { allowed: true, ..outcome });
        draft.is_found(Kind::Replay);
        if is_exact {
            draft.is_found(Kind::SharedBound);
            draft.is_found(Kind::Bound);
        }
    }
}

#[test]
fn a_denial_although_something_was_given_back_is_found() {
    for algorithm in [Algorithm::from(TokenBucket::new(Rate::per_hour(1)).burst(6)), window().into()] {
        let (mut draft, denied) = Draft::drained(algorithm);
        draft.refund(BASE + 20 * MS, 2);
        let outcome = draft.history.records[denied].outcome.unwrap();
        let at = draft.history.wall(BASE + 30 * MS);
        draft.record(BASE + 30 * MS, 1, Shared::Answered, Some(Outcome { at, ..outcome }));
        draft.is_found(Kind::Denial);
        draft.is_found(Kind::Replay);
        // Of what nobody knows whether it was given back, nothing can be said.
        let refund = &mut draft.history.records[denied + 1];
        (refund.shared, refund.outcome) = (Shared::Unknown, None);
        draft.total += 1;
        draft.is_well();
    }
}

#[test]
fn what_nobody_knows_whether_it_was_given_back_is_in_the_ledger_or_is_not() {
    for is_counted in [true, false] {
        let (mut draft, _) = Draft::drained(window());
        let refund = draft.refund(BASE + 20 * MS, 0);
        (refund.shared, refund.outcome) = (Shared::Unknown, None);
        if !is_counted {
            draft.total += 1;
        }
        draft.is_well();
        draft.total -= if is_counted { 1 } else { 2 };
        draft.is_found(Kind::Ledger);
    }
    // What is known to have been given back is not in it.
    let (mut draft, _) = Draft::drained(window());
    draft.refund(BASE + 20 * MS, 0);
    draft.is_well();
    draft.total += 1;
    draft.is_found(Kind::Ledger);
}

#[test]
fn one_that_is_counted_twice_has_two_places_in_the_ledger() {
    let (mut draft, _) = Draft::drained(window());
    let last = draft.history.records.iter_mut().rfind(|record| record.is_allowed()).unwrap();
    last.total = last.total.map(|total| total + 1);
    draft.total += 1;
    // In the sum it does not show: something may have been given back.
    let refund = draft.refund(BASE + 20 * MS, 0);
    (refund.shared, refund.outcome) = (Shared::Unknown, None);
    draft.is_found(Kind::Ledger);
}

#[test]
fn a_denial_is_repeated_for_as_long_as_it_holds() {
    let (mut draft, denied) = Draft::drained(window());
    draft.repeat(BASE + 20 * MS, denied);
    draft.repeat(2 * SECOND - 20 * MS, denied);
    draft.is_well();
    assert_eq!(draft.judge().repeated, 2);
    // Not for longer.
    draft.repeat(2 * SECOND + 300 * MS, denied);
    draft.is_found(Kind::Repeat);
}

#[test]
fn a_denial_is_repeated_for_a_second_at_most() {
    let (mut draft, denied) = Draft::drained(TokenBucket::new(Rate::per_hour(1)).burst(6));
    draft.repeat(BASE + SECOND, denied);
    draft.is_well();
    draft.repeat(BASE + SECOND + 20 * MS, denied);
    draft.is_found(Kind::Repeat);
}

#[test]
fn what_is_repeated_is_what_was_told_by_this_node_and_about_now() {
    let changes: [fn(&mut Record); 5] = [
        |record| record.node = 1,
        |record| record.outcome.iter_mut().for_each(|outcome| outcome.remaining += 1),
        |record| record.outcome.iter_mut().for_each(|outcome| outcome.retry_after = Some(Micros::SECOND)),
        |record| record.outcome.iter_mut().for_each(|outcome| outcome.allowed = true),
        |record| {
            // As if no time had passed since.
            record.outcome.iter_mut().for_each(|outcome| {
                let passed = Micros::from_micros(300 * MS);
                outcome.at = Timestamp::from_micros(outcome.at.as_micros() - passed.as_micros());
                outcome.retry_after = outcome.retry_after.map(|wait| wait.plus(passed));
                outcome.reset_after = outcome.reset_after.plus(passed);
            });
        },
    ];
    for change in changes {
        let (mut draft, denied) = Draft::drained(window());
        change(draft.repeat(BASE + 320 * MS, denied));
        draft.is_found(Kind::Repeat);
    }
}

#[test]
fn what_is_given_back_through_a_node_ends_what_it_repeats() {
    for (node, kinds) in [(0, &[Kind::Repeat, Kind::Denial][..]), (1, &[])] {
        let (mut draft, denied) = Draft::drained(window());
        draft.repeat(BASE + 15 * MS, denied);
        draft.refund(BASE + 20 * MS, 2).node = node;
        draft.repeat(BASE + 30 * MS, denied);
        let findings = draft.judge();
        assert_eq!(findings.lifted, u64::from(node == 0));
        kinds.iter().for_each(|kind| draft.is_found(*kind));
        if kinds.is_empty() {
            draft.is_well();
        }
    }
}

#[test]
fn what_a_node_held_alone_is_nothing_to_the_shared_store() {
    for (shared, is_well) in [(Shared::NotRun, true), (Shared::Unknown, false)] {
        let (mut draft, denied) = Draft::drained(window());
        let record = draft.record(BASE + 20 * MS, 1, shared, None);
        record.act = Act::Cancel { of: 99 };
        draft.repeat(BASE + 30 * MS, denied);
        if is_well {
            draft.is_well();
        } else {
            draft.is_found(Kind::Repeat);
        }
    }
}

#[test]
fn what_never_fits_is_repeated_too() {
    for before in [0, 3] {
        let mut draft = Draft::new(window());
        if before > 0 {
            draft.ask(BASE - 10 * MS, before);
        }
        draft.ask(BASE, 100);
        let denied = draft.history.records.len() - 1;
        draft.repeat(BASE + 20 * MS, denied);
        draft.is_well();
        draft.repeat(BASE + SECOND + 20 * MS, denied);
        draft.is_found(Kind::Repeat);
    }
}
