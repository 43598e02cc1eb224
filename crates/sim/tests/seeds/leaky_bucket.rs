//! Leaky buckets: the queue of figure 4-7 and the meter of the essay, and requests that wait a little or not at all.

use tollgate_core::{LeakyBucket, Micros, Rate};
use tollgate_sim::workload::Poisson;

use crate::transcript::{Allowed, Delayed, Denied, Gate, at, seconds};

/// [B11, B14] Requests leave in order, one interval apart; each is told when; those that find the queue full are
/// dropped.
#[test]
fn figure_4_7_a_queue_with_a_fixed_outflow() {
    let mut gate = Gate::new(LeakyBucket::queue(Rate::per_second(2), 4));
    gate.plays(&[
        ("1:00:00", 1, Allowed),
        ("1:00:00", 1, Delayed("0:00:00.5")),
        ("1:00:00", 1, Delayed("0:00:01")),
        ("1:00:00.1", 1, Delayed("0:00:01.4")),
        ("1:00:00.2", 1, Delayed("0:00:01.8")),
        ("1:00:00.3", 1, Denied),
        ("1:00:00.499999", 1, Denied),
        ("1:00:00.5", 1, Delayed("0:00:02")),
        ("1:00:00.5", 1, Denied),
    ]);
    assert_eq!(gate.remaining("1:00:01"), 1);
    gate.plays(&[("1:00:10", 1, Allowed), ("1:00:10", 1, Delayed("0:00:00.5"))]);
}

/// [B11, D10] Whatever comes in, what goes out is never closer than one interval and never out of order; while requests
/// wait, departures are exactly one interval apart, so the variance of the outflow is that of the silences alone.
#[test]
fn figure_4_7_the_outflow_is_even_whatever_flows_in() {
    let mut gate = Gate::new(LeakyBucket::queue(Rate::per_second(50), 20));
    let arrivals: Vec<_> = Poisson::new(80.0, at("1:00:00"), 47).take(20_000).collect();
    let mut departures = Vec::new();
    for now in &arrivals {
        let outcome = gate.spend(1, *now);
        if outcome.allowed {
            departures.push((now.plus(outcome.delay), !outcome.delay.is_zero()));
        }
    }
    let interval = Micros::from_millis(20);
    for pair in departures.windows(2) {
        let gap = pair[1].0.since(pair[0].0);
        assert!(if pair[1].1 { gap == interval } else { gap >= interval }, "{pair:?}");
    }
    let dropped = arrivals.len() - departures.len();
    assert!((6_500..8_500).contains(&dropped), "80 a second into 50 a second drops three in eight, not {dropped}");
}

/// [B12] The meter of the essay has no queue and no burst: what comes too soon is refused at once.
#[test]
fn a_meter_refuses_where_a_queue_delays() {
    let rate = Rate::per_second(2);
    Gate::new(LeakyBucket::queue(rate, 4)).plays(&[("1:00:00", 1, Allowed), ("1:00:00.1", 1, Delayed("0:00:00.4"))]);
    Gate::new(LeakyBucket::meter(rate)).plays(&[
        ("1:00:00", 1, Allowed),
        ("1:00:00.1", 1, Denied),
        ("1:00:00.499999", 1, Denied),
        ("1:00:00.5", 1, Allowed),
        ("1:00:10", 1, Allowed),
        ("1:00:10", 1, Denied),
    ]);
}

/// [B13] Old requests cannot starve new ones for longer than the longest wait that is allowed.
#[test]
fn a_longest_wait_bounds_what_old_requests_can_take() {
    let queue = LeakyBucket::queue(Rate::per_second(1), 1_000);
    let wait =
        |gate: &mut Gate| (0..1_001).filter_map(|_| Some(gate.spend(1, at("1:00:00"))).filter(|o| o.allowed)).last();
    let unbounded = wait(&mut Gate::new(queue)).expect("some were admitted");
    let bounded = wait(&mut Gate::new(queue.max_wait(seconds(5)))).expect("some were admitted");
    assert_eq!((unbounded.delay, bounded.delay), (seconds(1_000), seconds(5)));
}

/// [D4, D5, D6] Short waits are waited for, long ones refused at once with the time to come back.
#[test]
fn short_waits_are_delayed_and_long_ones_rejected() {
    let mut gate = Gate::new(LeakyBucket::queue(Rate::per_second(1), 100).max_wait(Micros::from_millis(2_500)));
    gate.plays(&[
        ("1:00:00", 1, Allowed),
        ("1:00:00", 1, Delayed("0:00:01")),
        ("1:00:00", 1, Delayed("0:00:02")),
        ("1:00:00", 1, Denied),
    ]);
    let refused = gate.peek(1, at("1:00:00"));
    assert_eq!(refused.retry_after, Some(Micros::from_millis(500)));
    assert!(refused.delay.is_zero(), "a refusal is not held back");
    gate.plays(&[("1:00:00.499999", 1, Denied), ("1:00:00.5", 1, Delayed("0:00:02.5")), ("1:00:00.5", 1, Denied)]);
}
