//! Calls to someone else's API: wrapped in a wait, they never exceed what was agreed.

use tollgate::{
    Charge, Clock, FixedWindow, Key, LeakyBucket, Limit, Micros, Rate, SlidingCounter, SlidingLog, Timestamp,
    TokenBucket,
};
use tollgate_sim::workload::{OnOff, Poisson};

use crate::tasks::Tasks;
use crate::{START, engine, limit};

const CALLS: usize = 600;

/// When each of the calls goes out if they arrive like this and wait for `limit`.
fn sent(limit: &Limit, arrivals: impl Iterator<Item = Timestamp>) -> Vec<Timestamp> {
    let engine = engine();
    let api: [&[u8]; 1] = [b"api.example.com"];
    let mut tasks = Tasks::new(engine.clock());
    let (engine, api) = (&engine, &api);
    for arrival in arrivals.take(CALLS) {
        tasks.run_until(arrival);
        tasks.spawn(async move {
            let decision = engine.wait(&[Charge::new(Key::new(1, api), limit)], Micros::DAY).await.unwrap();
            assert!(decision.allowed);
            engine.clock().now()
        });
    }
    tasks.run();
    let sent: Vec<Timestamp> = tasks.done.iter().map(|(_, _, at)| *at).collect();
    assert_eq!(sent.len(), CALLS, "every call goes out");
    assert!(sent.is_sorted());
    sent
}

/// The most calls in any interval of this length.
fn most_within(sent: &[Timestamp], length: Micros) -> usize {
    let within = |first: &Timestamp| sent.iter().filter(|at| *at >= first && at.since(*first) < length).count();
    sent.iter().map(within).max().unwrap_or(0)
}

fn traces() -> [Box<dyn Iterator<Item = Timestamp>>; 2] {
    let (busy, idle) = (Micros::from_secs(2), Micros::from_secs(6));
    [Box::new(Poisson::new(25.0, START, 7)), Box::new(OnOff::new(60.0, busy, idle, START, 11))]
}

#[test]
fn never_more_than_ten_in_any_second() {
    let second = Micros::SECOND;
    let limits = [
        limit(SlidingLog::new(10, second)),
        limit(LeakyBucket::queue(Rate::per_second(10), 1_000)),
        limit(LeakyBucket::meter(Rate::per_second(10))),
    ];
    for limit in limits {
        for trace in traces() {
            let sent = sent(&limit, trace);
            let most = most_within(&sent, second);
            assert!(most <= 10, "{most} calls in a second: {:?}", limit.algorithm());
            assert_eq!(most, 10, "what is agreed is used: {:?}", limit.algorithm());
        }
    }
}

#[test]
fn a_burst_comes_on_top_once() {
    let bucket = limit(TokenBucket::new(Rate::per_second(10)).burst(4));
    for trace in traces() {
        let sent = sent(&bucket, trace);
        for seconds in 1..20 {
            let most = most_within(&sent, Micros::from_secs(seconds)) as u64;
            assert!(most <= 10 * seconds + 4, "{most} calls in {seconds} seconds");
        }
    }
}

#[test]
fn windows_on_the_clock_and_rolling_ones_keep_their_word() {
    for trace in traces() {
        let sent = sent(&limit(FixedWindow::new(10, Micros::SECOND)), trace);
        let seconds: Vec<u64> = sent.iter().map(|at| at.as_micros() / 1_000_000).collect();
        assert!(seconds.chunk_by(|a, b| a == b).all(|second| second.len() <= 10));
    }
    for trace in traces() {
        // An estimate can be wrong by what came early in a window, and never by more than the limit.
        let sent = sent(&limit(SlidingCounter::new(10, Micros::SECOND)), trace);
        assert!(most_within(&sent, Micros::SECOND) < 20);
    }
}
