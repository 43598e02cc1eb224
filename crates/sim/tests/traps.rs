//! Mistakes that other limiters have made, each as a test with the numbers of the failure.
//!
//! The numbers in the names are those of the peer study. What concerns shared memory or a store is tested where
//! those are; here is the arithmetic.

#![allow(clippy::expect_used, reason = "a test that cannot be set up has failed")]

use std::collections::HashSet;

use tollgate_core::{
    Algorithm, Ask, Calendar, CalendarUnit, Cell, Concurrency, FixedWindow, Intent, Key, LeakyBucket, Limit, Micros,
    Outcome, Pacing, Rate, Rounding, SlidingCounter, SlidingLog, Soft, State, Timestamp, TokenBucket, Window, Zone,
};
use tollgate_sim::workload::Rng;

const NOON: Timestamp = Timestamp::from_secs(1_705_320_000);
const INSTANT: Micros = Micros::from_micros(1);

/// Every algorithm in every form, at `number` per `window`.
fn every_algorithm(number: u64, window: Micros) -> Vec<Algorithm> {
    let rate = Rate::new(number, window);
    let log = SlidingLog::new(number, window);
    let counter = SlidingCounter::new(number, window);
    vec![
        TokenBucket::new(rate).into(),
        TokenBucket::new(rate).burst(number * 2).initially(number).into(),
        TokenBucket::new(rate).borrow(number).into(),
        TokenBucket::new(rate).refill_at_intervals().into(),
        LeakyBucket::meter(rate).into(),
        LeakyBucket::queue(rate, number).into(),
        LeakyBucket::queue(rate, number * 9).max_wait(window).into(),
        FixedWindow::new(number, window).into(),
        FixedWindow::in_window(number, Window::Clock { length: window, spread: true }).into(),
        FixedWindow::in_window(number, Window::FirstEvent { length: window }).into(),
        FixedWindow::in_window(number, Calendar::new(CalendarUnit::Day, Zone::utc()).into()).into(),
        log.into(),
        log.record_rejected().into(),
        counter.into(),
        counter.rounding(Rounding::Floor).into(),
        counter.sub_windows(5).into(),
        counter.sub_windows(5).rounding(Rounding::Floor).into(),
        Concurrency::new(number, window).into(),
        Pacing::new(number, Window::clock(window)).into(),
    ]
}

fn limit(algorithm: impl Into<Algorithm>) -> Limit {
    Limit::new(algorithm).expect("a valid limit")
}

/// Hard and soft limits of all kinds.
fn every_limit(number: u64, window: Micros) -> impl Iterator<Item = Limit> {
    let soft = Soft { overage: 2, lasting: Micros::from_micros(window.as_micros() / 2) };
    let hard = every_algorithm(number, window).into_iter().map(limit);
    hard.chain(
        every_algorithm(number, window).into_iter().map(move |one| Limit::soft(one, soft).expect("a valid limit")),
    )
}

fn records_denials(limit: &Limit) -> bool {
    matches!(limit.algorithm(), Algorithm::SlidingLog(log) if log.record_rejected)
}

fn spend(limit: &Limit, state: &mut State, cost: u64, now: Timestamp) -> Outcome {
    limit.apply(state, &Ask::spend(cost, now))
}

fn burst(limit: &Limit, state: &mut State, now: Timestamp) -> u64 {
    (0..100_000).take_while(|_| spend(limit, state, 1, now).allowed).count() as u64
}

/// Random requests of a key around its limit: what was asked and the state before it.
fn random_walk(limit: &Limit, seed: u64, mut visit: impl FnMut(&State, &Ask, &Outcome)) {
    let mut rng = Rng::new(seed);
    let (mut state, mut now) = (State::default(), NOON);
    for _ in 0..300 {
        let gap = [0, 1, rng.below(700_000), rng.below(5_000_000), rng.below(40_000_000)][rng.below(5) as usize];
        now = now.plus(Micros::from_micros(gap));
        let ask = Ask { lease: rng.below(3), ..Ask::spend(1 + rng.below(3), now) };
        let before = state.clone();
        let outcome = limit.apply(&mut state, &ask);
        visit(&before, &ask, &outcome);
    }
}

/// One request, a pause, and a burst: a stored time in the past must not count as credit. The failure let 14 and 17
/// pass and reported 16 of 10 remaining.
#[test]
fn trap_1_a_pause_never_earns_more_than_the_capacity() {
    let ten = limit(TokenBucket::new(Rate::per_second(1)).burst(10));
    for pause in [5_000, 8_900, 9_000, 10_000, 1_000_000] {
        let mut state = State::default();
        assert!(spend(&ten, &mut state, 1, NOON).allowed);
        let then = NOON.plus(Micros::from_millis(pause));
        assert_eq!(ten.step(state.cell, &state.extra, &Ask::spend(0, then)).outcome.remaining, 10);
        assert_eq!(burst(&ten, &mut state, then), 10, "after {pause} ms");
    }
    for one in every_limit(10, Micros::from_secs(10)) {
        random_walk(&one, 1, |_, _, outcome: &Outcome| {
            assert!(outcome.remaining <= outcome.limit, "{:?}", one.algorithm());
        });
    }
}

/// Intervals that are cut to whole nanoseconds run fast. Here the number admitted is exact after hours, for rates
/// that divide nothing evenly.
#[test]
fn trap_2_no_rate_drifts() {
    for (units, period, periods) in [
        (3, Micros::SECOND, 50_000),
        (7, Micros::SECOND, 30_000),
        (1_000_003, Micros::HOUR, 1),
        (999_983, Micros::SECOND, 1),
        (13, Micros::from_micros(9_999_991), 10_000),
    ] {
        let one = limit(TokenBucket::new(Rate::new(units, period)).burst(10));
        let (mut state, mut now, mut admitted) = (State::default(), NOON, 0);
        let end = NOON.plus(Micros::from_micros(period.as_micros() * periods));
        while now <= end {
            let outcome = spend(&one, &mut state, 1, now);
            admitted += u64::from(outcome.allowed);
            let wait = outcome.retry_after.expect("waiting helps");
            assert!(outcome.allowed || !wait.is_zero(), "denied, and told not to wait");
            now = now.plus(wait);
        }
        assert_eq!(admitted, 10 + units * periods, "{units} per {period}");
    }
}

/// Parameters and costs at the ends of their range: refused with a reason or answered, never a panic, a wrap or a
/// burst.
#[test]
fn trap_3_extreme_numbers_are_refused_or_answered() {
    let extremes = [0, 1, 2, 1 << 32, 1_000_000_007, (1 << 53) - 1, i64::MAX as u64, u64::MAX];
    let times = [Timestamp::EPOCH, Timestamp::from_micros(1), NOON, Timestamp::MAX];
    let mut answered = 0;
    for number in extremes {
        for span in extremes.map(Micros::from_micros) {
            let rate = Rate::new(number, span);
            let mut all: Vec<Algorithm> = extremes.iter().flat_map(|size| extreme(rate, *size)).collect();
            all.push(Concurrency::new(number, span).into());
            all.push(SlidingLog::new(number, span).into());
            for one in all.into_iter().filter_map(|one| Limit::new(one).ok()) {
                answered += 1;
                let mut state = State::default();
                for (now, cost) in times.into_iter().flat_map(|now| extremes.map(|cost| (now, cost))) {
                    let ask = Ask { phase: u64::MAX, ..Ask::spend(cost, now) };
                    let outcome = one.apply(&mut state, &ask);
                    assert!(outcome.remaining <= outcome.limit, "{:?}", one.algorithm());
                    assert!(cost <= outcome.limit || outcome.denied(), "{:?} let {cost} pass", one.algorithm());
                }
            }
        }
    }
    assert!(answered > 300, "only {answered} of the extreme limits were accepted");
}

fn extreme(rate: Rate, size: u64) -> [Algorithm; 6] {
    [
        TokenBucket::new(rate).burst(size).into(),
        TokenBucket::new(rate).burst(size).refill_at_intervals().into(),
        LeakyBucket::queue(rate, size).into(),
        FixedWindow::in_window(size, Window::Clock { length: rate.period, spread: true }).into(),
        SlidingCounter::new(size, rate.period).into(),
        Pacing::new(size, Window::clock(rate.period)).into(),
    ]
}

/// The failing cases by name: a period of 2^63 - 1 with a burst of 2^32, more than a billion a second, and a limit of
/// zero, which denies and says that waiting does not help.
#[test]
fn trap_3_the_numbers_that_broke_others() {
    let slow = Rate::new(1, Micros::from_micros(i64::MAX as u64));
    assert!(Limit::new(TokenBucket::new(slow).burst(1 << 32)).is_err());
    let fast = limit(TokenBucket::new(Rate::per_second(5_000_000_000)));
    let mut state = State::default();
    assert!(spend(&fast, &mut state, 5_000_000_000, NOON).allowed);
    assert_eq!(spend(&fast, &mut state, 5_000, NOON).retry_after, Some(INSTANT));
    assert!(spend(&fast, &mut state, i64::MAX as u64, NOON).can_never_fit());
    let none = Rate::new(0, Micros::SECOND);
    let zero: [Algorithm; 6] = [
        TokenBucket::new(none).into(),
        FixedWindow::new(0, Micros::SECOND).into(),
        SlidingLog::new(0, Micros::SECOND).into(),
        SlidingCounter::new(0, Micros::SECOND).into(),
        Concurrency::new(0, Micros::SECOND).into(),
        Pacing::new(0, Window::clock(Micros::SECOND)).into(),
    ];
    for one in zero.map(limit) {
        let outcome = spend(&one, &mut State::default(), 1, NOON);
        assert!(outcome.denied() && outcome.can_never_fit(), "{:?}", one.algorithm());
    }
}

/// Denied requests, and those that could never fit, change nothing. The failure charged them: a balance of -1,000,000
/// kept a client out for months.
#[test]
fn trap_4_what_is_denied_is_not_charged() {
    for one in every_limit(5, Micros::MINUTE).filter(|one| !records_denials(one)) {
        let mut state = State::default();
        burst(&one, &mut state, NOON);
        let exhausted = state.clone();
        for cost in [1, 5, 6, 1_000_000, u64::MAX].into_iter().cycle().take(1_000) {
            assert!(spend(&one, &mut state, cost, NOON).denied());
        }
        assert_eq!(state, exhausted, "{:?}", one.algorithm());
    }
}

/// Clocks that step back earn nothing, however far they go. Steps forward earn what that much time would, also when
/// they undo a step back, so one capacity at most.
#[test]
fn trap_7_a_clock_that_steps_back_earns_nothing() {
    for one in every_limit(5, Micros::MINUTE).filter(|one| !records_denials(one)) {
        for back in [1, 1_000, 1_000_000, 3_600_000_000, Micros::YEAR.as_micros()].map(Micros::from_micros) {
            let mut state = State::default();
            burst(&one, &mut state, NOON);
            let capacity = spend(&one, &mut state, 0, NOON).limit + one.softness().map_or(0, |soft| soft.overage);
            assert_eq!(burst(&one, &mut state, NOON.minus(back)), 0, "{:?} {back} earlier", one.algorithm());
            let returned = burst(&one, &mut state, NOON);
            let earned = if back <= Micros::SECOND { 0 } else { capacity };
            assert!(returned <= earned, "{:?} let {returned} pass after {back}", one.algorithm());
            let leapt = burst(&one, &mut state, NOON.plus(Micros::YEAR));
            assert!(leapt <= capacity, "{:?} let {leapt} pass", one.algorithm());
        }
    }
}

/// Forgetting a state at the instant from which it counts as fresh changes no answer, so eviction by expiry grants
/// nothing.
#[test]
fn trap_8_expiry_grants_nothing() {
    for (seed, one) in (0..20).flat_map(|seed| every_limit(4, Micros::from_secs(10)).map(move |one| (seed, one))) {
        let mut forgetful = State::default();
        random_walk(&one, seed, |kept, ask, outcome| {
            if forgetful.cell.fresh_at <= ask.now {
                forgetful = State::default();
            }
            let told = one.apply(&mut forgetful, ask);
            assert_eq!(told, *outcome, "{:?} from {kept:?}", one.algorithm());
        });
    }
    assert_eq!(State::default().cell, Cell::FRESH);
}

/// Any bytes are a key: empty, not UTF-8, with separators and zeros in them, a megabyte long; and no two share a
/// counter.
#[test]
fn trap_10_hostile_keys_are_keys() {
    let long = vec![b'a'; 1 << 20];
    let mut longer = long.clone();
    longer.push(b'a');
    let values: [&[&[u8]]; 12] = [
        &[],
        &[b""],
        &[b"", b""],
        &[b"\xff\xfe\x80"],
        &[b"\0"],
        &[b"\0\0\0\0\0\0\0\0"],
        &[b"user:1"],
        &[b"user", b"1"],
        &[b"{user}"],
        &[b"\r\n*1\r\n"],
        &[&long],
        &[&longer],
    ];
    let keys = values.iter().flat_map(|values| [0, 1, u64::MAX].map(|limit| Key::new(limit, values)));
    let encoded: HashSet<Vec<u8>> = keys
        .clone()
        .map(|key| {
            let mut out = Vec::new();
            key.encode(&mut out);
            out
        })
        .collect();
    assert_eq!(encoded.len(), 36);
    let phases: HashSet<u64> = keys.map(|key| key.phase()).collect();
    assert_eq!(phases.len(), 36);
}

/// Giving back more than was taken, or twice, or to a key that was never seen, never lifts a balance above its
/// capacity.
#[test]
fn trap_11_a_refund_never_exceeds_the_capacity() {
    for one in every_limit(5, Micros::MINUTE) {
        let overage = one.softness().map_or(0, |soft| soft.overage);
        let fresh = spend(&one, &mut State::default(), 0, NOON).remaining;
        for (taken, first) in (0..=2).flat_map(|taken| [(taken, taken), (taken, taken + 3), (taken, u64::MAX)]) {
            let mut state = State::default();
            let charge = spend(&one, &mut state, taken, NOON);
            let mut left = if first == taken { fresh } else { charge.remaining };
            let intent = Intent::Refund { charged_at: NOON.plus(charge.delay) };
            for cost in [first, 1, 1, 5, 1_000, u64::MAX] {
                let outcome = one.apply(&mut state, &Ask::spend(cost, NOON).with_intent(intent));
                assert!((left..=outcome.limit).contains(&outcome.remaining), "{:?} gave back {cost}", one.algorithm());
                left = outcome.remaining;
            }
            let capacity = spend(&one, &mut state, 0, NOON).limit;
            let after = burst(&one, &mut state, NOON);
            assert!(after <= capacity + overage, "{:?} let {after} pass", one.algorithm());
        }
    }
}

/// Who waits exactly as long as it was told is admitted, and an instant earlier is not. The failures floored a fifth
/// of a second to none.
#[test]
fn trap_12_the_wait_that_is_told_is_enough_and_none_too_long() {
    let fifth = limit(TokenBucket::new(Rate::per_second(5)).burst(1));
    let mut state = State::default();
    assert!(spend(&fifth, &mut state, 1, NOON).allowed);
    let wait = spend(&fifth, &mut state, 1, NOON).retry_after.expect("waiting helps");
    assert_eq!((wait, wait.as_secs_ceil()), (Micros::from_millis(200), 1));

    for (seed, one) in (0..20).flat_map(|seed| every_limit(4, Micros::from_secs(10)).map(move |one| (seed, one))) {
        let mut denials = 0;
        random_walk(&one, seed, |before, ask, outcome| {
            let Some(wait) = outcome.retry_after.filter(|_| outcome.denied()) else { return };
            denials += 1;
            let mut state = before.clone();
            one.apply(&mut state, ask);
            let again = |now| one.apply(&mut state.clone(), &Ask { now, ..*ask }).allowed;
            assert!(again(ask.now.plus(wait)), "{one:?} said {wait} at {ask:?} from {before:?}");
            let sooner = again(ask.now.plus(wait).minus(INSTANT));
            assert!(!sooner, "{one:?} said {wait} at {ask:?} from {before:?}");
        });
        assert!(denials > 0, "{:?} never denied", one.algorithm());
    }
}

/// A cost that can never fit is told so, not given a time.
#[test]
fn trap_12_waiting_for_more_than_the_capacity_is_not_suggested() {
    for one in every_algorithm(5, Micros::MINUTE).into_iter().map(limit) {
        let outcome = spend(&one, &mut State::default(), 1_000_000, NOON);
        assert!(outcome.denied() && outcome.can_never_fit(), "{:?}", one.algorithm());
    }
}

/// Windows longer than 2^31 milliseconds (24.8 days) last as long as they say. The failure let them end at once.
#[test]
fn trap_13_windows_of_months_and_years_last() {
    let day = Micros::DAY.as_micros();
    for days in [25, 30, 365, 3_650] {
        let window = Micros::from_micros(days * day);
        let start = Timestamp::from_micros(NOON.as_micros() / window.as_micros() * window.as_micros());
        let lasting: [Algorithm; 4] = [
            FixedWindow::new(3, window).into(),
            FixedWindow::once_per(window).into(),
            SlidingLog::new(3, window).into(),
            Concurrency::new(3, window).into(),
        ];
        for one in lasting.map(limit) {
            let mut state = State::default();
            burst(&one, &mut state, start);
            assert_eq!(spend(&one, &mut state, 1, start).retry_after, Some(window));
            for later in [1, 1 << 31, (1 << 31) * 1_000, window.as_micros() - 1].map(Micros::from_micros) {
                assert!(spend(&one, &mut state, 1, start.plus(later)).denied(), "{:?} after {later}", one.algorithm());
            }
            assert!(spend(&one, &mut state, 1, start.plus(window)).allowed, "{:?}", one.algorithm());
        }
    }
}
