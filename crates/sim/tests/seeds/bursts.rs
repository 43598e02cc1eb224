//! Bursts as a loan and as savings: the same trace, two outcomes.

use tollgate_core::{Micros, Rate, TokenBucket};

use crate::transcript::{Allowed, Denied, Gate, at, seconds};

/// One a second; two may be saved and three borrowed.
const LOAN: TokenBucket = TokenBucket::new(Rate::per_second(1)).burst(2).borrow(3);
/// One a second; five may be saved.
const SAVINGS: TokenBucket = TokenBucket::new(Rate::per_second(1)).burst(5);

/// [D1] Three tokens of the future may be spent now; they are repaid before anything else is admitted.
#[test]
fn a_loan_spends_the_future_and_is_repaid_first() {
    let mut gate = Gate::new(LOAN);
    gate.plays(&[
        ("1:00:00", 5, Allowed),
        ("1:00:00", 1, Denied),
        ("1:00:01", 1, Denied),
        ("1:00:02.999999", 1, Denied),
        ("1:00:03", 1, Allowed),
    ]);
    assert_eq!(gate.peek(1, at("1:00:03")).remaining, 2, "repaid, so the rest of a new loan is there");
}

/// [D1] A loan that is not used up can be drawn further, up to its size and no more.
#[test]
fn a_loan_is_never_larger_than_its_size() {
    let mut gate = Gate::new(LOAN.initially(0));
    gate.plays(&[
        ("1:00:00", 1, Allowed),
        ("1:00:00", 1, Allowed),
        ("1:00:00", 1, Allowed),
        ("1:00:00", 1, Denied),
        ("1:00:00", 4, Denied),
    ]);
    assert_eq!(gate.peek(1, at("1:00:00")).retry_after, Some(seconds(3)));
}

/// [D2] Idle seconds are saved up to the capacity, and a new key starts full or empty as configured.
#[test]
fn savings_grow_while_idle_up_to_a_maximum() {
    let mut gate = Gate::new(SAVINGS.initially(0));
    gate.plays(&[("1:00:00", 1, Denied)]);
    let mut used = Gate::new(SAVINGS);
    used.plays(&[("1:00:00", 5, Allowed), ("1:00:00", 1, Denied)]);
    for (clock, saved) in [("1:00:01", 1), ("1:00:03", 3), ("1:00:05", 5), ("1:00:09", 5), ("9:00:00", 5)] {
        assert_eq!(used.remaining(clock), saved, "{clock}");
    }
}

/// [D2] A key that starts empty earns its first token like any other, from its first request on.
#[test]
fn an_empty_start_is_earned_from_the_first_admission_on() {
    let mut gate = Gate::new(SAVINGS.initially(2));
    gate.plays(&[("1:00:00", 2, Allowed), ("1:00:00", 1, Denied), ("1:00:01", 1, Allowed), ("1:00:05", 4, Allowed)]);
    gate.plays(&[("1:00:10", 5, Allowed), ("1:00:10", 1, Denied)]);
}

/// [D3] Both admit the same burst of five after a pause. A second later the saver has earned a token and may spend
/// it; the borrower is in debt, and what it has borrowed it cannot borrow again before it is out of debt at the third
/// second.
#[test]
fn loan_and_savings_on_the_same_trace() {
    let trace = ["1:00:00", "1:00:01", "1:00:02", "1:00:03", "1:00:04", "1:00:05", "1:00:06"];
    let play = |bucket: TokenBucket| -> Vec<u64> {
        let mut gate = Gate::new(bucket);
        trace.iter().enumerate().map(|(turn, clock)| gate.admits(if turn == 0 { 6 } else { 2 }, at(clock))).collect()
    };
    assert_eq!(play(SAVINGS), [5, 1, 1, 1, 1, 1, 1]);
    assert_eq!(play(LOAN), [5, 0, 0, 2, 1, 0, 2], "2 and 1 of the new loan, then it is repaid again");
}

/// [D3] Without idle time before it nothing is saved, so only a loan admits a burst.
#[test]
fn only_a_loan_admits_a_burst_that_was_not_saved_for() {
    let (mut loan, mut savings) = (Gate::new(LOAN.initially(0)), Gate::new(SAVINGS.initially(0)));
    let now = at("1:00:00");
    assert_eq!((loan.admits(10, now), savings.admits(10, now)), (3, 0));
}

/// [D1, D2] Over a long time neither admits more than its rate and its burst.
#[test]
fn in_the_long_run_loan_and_savings_admit_the_same_rate() {
    for bucket in [LOAN, SAVINGS] {
        let mut gate = Gate::new(bucket);
        let admitted: u64 =
            (0..10_000).map(|tick| gate.admits(3, at("1:00:00").plus(Micros::from_millis(tick * 100)))).sum();
        assert!((1_000..=1_005).contains(&admitted), "{bucket:?} admitted {admitted} in 1,000 seconds");
    }
}
