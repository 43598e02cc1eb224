//! Changing a limit while it is in use: another number goes on with the states, another algorithm starts anew.

use tollgate_core::{
    Algorithm, Concurrency, FixedWindow, LeakyBucket, Limit, Micros, Pacing, Rate, SlidingCounter, SlidingLog, State,
    TokenBucket, Window,
};

use crate::transcript::{Allowed, Denied, Gate, at, seconds};

fn all_at(number: u64) -> Vec<Algorithm> {
    let minute = Micros::MINUTE;
    vec![
        TokenBucket::new(Rate::new(number, minute)).into(),
        TokenBucket::new(Rate::new(number, minute)).refill_at_intervals().into(),
        LeakyBucket::queue(Rate::new(number, minute), number).into(),
        FixedWindow::new(number, minute).into(),
        SlidingLog::new(number, minute).into(),
        SlidingCounter::new(number, minute).into(),
        SlidingCounter::new(number, minute).sub_windows(6).into(),
        Concurrency::new(number, minute).into(),
        Pacing::new(number, Window::clock(minute)).into(),
    ]
}

fn lineage(algorithm: Algorithm) -> u64 {
    Limit::new(algorithm).expect("a valid limit").lineage()
}

/// [B31] Another algorithm has another lineage, so its states start anew.
#[test]
fn another_algorithm_starts_anew() {
    let lineages: Vec<u64> = all_at(10).into_iter().map(lineage).collect();
    for (index, one) in lineages.iter().enumerate() {
        let twins = lineages.iter().filter(|other| *other == one).count();
        assert_eq!(twins, 1, "{:?}", all_at(10)[index]);
    }
}

/// [B31] Another number has the same lineage, so its states go on.
#[test]
fn another_number_goes_on() {
    for (old, new) in all_at(10).into_iter().zip(all_at(20)) {
        assert_eq!(lineage(old), lineage(new.clone()), "{new:?}");
    }
}

/// [B31] Counts of one window mean nothing in windows of another length.
#[test]
fn another_window_starts_anew() {
    let counters = |window: Micros| -> [Algorithm; 3] {
        [
            FixedWindow::new(10, window).into(),
            SlidingCounter::new(10, window).into(),
            SlidingCounter::new(10, window).sub_windows(6).into(),
        ]
    };
    for (old, new) in counters(Micros::MINUTE).into_iter().zip(counters(Micros::HOUR)) {
        assert_ne!(lineage(old), lineage(new.clone()), "{new:?}");
    }
    let minute = Micros::MINUTE;
    assert_ne!(
        lineage(FixedWindow::new(10, minute).into()),
        lineage(FixedWindow::in_window(10, Window::FirstEvent { length: minute }).into())
    );
}

/// [B31] Raised from 10 to 20 in mid-minute, a limit that was used up has ten left; lowered to 5, it has none.
#[test]
fn what_was_used_stays_used_when_the_number_changes() {
    let now = at("1:00:30");
    let windows = [3, 4, 5, 6, 7];
    for index in windows {
        let mut old = Gate::new(all_at(10).swap_remove(index));
        assert_eq!(old.admits(15, now), 10);
        let mut raised = old.changed_to(all_at(20).swap_remove(index));
        let mut lowered = old.changed_to(all_at(5).swap_remove(index));
        assert_eq!(raised.admits(15, now), 10, "{:?}", raised.limit.algorithm());
        assert_eq!(lowered.admits(15, now), 0, "{:?}", lowered.limit.algorithm());
    }
}

/// [B31] A bucket keeps the time at which it is full again: emptied at ten a minute it is empty at twenty, refills at
/// the new rate, and never holds more than it does from now on.
#[test]
fn an_empty_bucket_stays_empty_and_refills_at_the_new_rate() {
    let mut slow = Gate::new(TokenBucket::new(Rate::per_minute(10)));
    assert_eq!(slow.admits(15, at("1:00:00")), 10);
    let mut fast = slow.changed_to(TokenBucket::new(Rate::per_minute(20)));
    fast.plays(&[
        ("1:00:00", 1, Denied),
        ("1:00:02.999999", 1, Denied),
        ("1:00:03", 1, Allowed),
        ("1:00:03", 1, Denied),
        ("1:01:03", 20, Allowed),
        ("1:01:03", 1, Denied),
    ]);
}

/// [B31] The flash sale: a window that is used up gives way to a bucket with a full burst, at the price of one fresh
/// start.
#[test]
fn a_flash_sale_switches_from_windows_to_a_bucket() {
    let mut window = Gate::new(SlidingCounter::new(100, Micros::MINUTE));
    assert_eq!(window.admits(150, at("11:59:00")), 100);
    let mut sale = window.changed_to(TokenBucket::new(Rate::per_minute(100)).burst(500));
    assert_ne!(window.limit.lineage(), sale.limit.lineage());
    assert_eq!(sale.state, State::default());
    assert_eq!(sale.admits(1_000, at("12:00:00")), 500);
    assert_eq!(sale.admits(1_000, at("12:00:00").plus(seconds(60))), 100);
}

/// [B31] A bucket that starts part-filled reads its states in its own way, so changing that starts anew instead of
/// giving away or taking what nobody spent.
#[test]
fn a_changed_initial_fill_starts_anew() {
    let bucket = |capacity: u64| TokenBucket::new(Rate::per_second(1)).burst(capacity);
    let lineage = |bucket: TokenBucket| Limit::new(bucket).unwrap().lineage();
    assert_ne!(lineage(bucket(10)), lineage(bucket(10).initially(1)));
    assert_ne!(lineage(bucket(10).initially(1)), lineage(bucket(20).initially(1)));
    assert_eq!(lineage(bucket(10)), lineage(bucket(20)));
    let interval = |bucket: TokenBucket| bucket.refill_at_intervals();
    assert_ne!(lineage(interval(bucket(10)).initially(1)), lineage(interval(bucket(20)).initially(1)));
    assert_eq!(lineage(interval(bucket(10))), lineage(interval(bucket(20))));
}
