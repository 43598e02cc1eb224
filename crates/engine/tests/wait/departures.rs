//! Queues: admitted at once, held back until the departure.

use tollgate::{Charge, Key, LeakyBucket, Micros, Rate, SlidingLog, TokenBucket};

use crate::tasks::Tasks;
use crate::{START, charge, engine, left, limit, millis, wait};

const USER: &[&[u8]] = &[b"user"];
const LONG: Micros = Micros::HOUR;

/// With places for all, and with so few that most stand in line for a place first.
#[test]
fn a_hundred_leave_one_by_one_in_the_order_they_came() {
    for places in [200, 20, 1, 0] {
        let (engine, queue) = (engine(), limit(LeakyBucket::queue(Rate::per_second(10), places)));
        let mut tasks = Tasks::new(engine.clock());
        for _ in 0..100 {
            tasks.spawn(wait(&engine, vec![charge(&queue, USER)], LONG));
        }
        tasks.run();
        assert_eq!(tasks.order(), (0..100).collect::<Vec<_>>(), "{places} places");
        assert_eq!(tasks.times(START), (0..100).map(|place| place * 100_000).collect::<Vec<_>>(), "{places} places");
    }
}

#[test]
fn a_cost_takes_so_many_places() {
    let (engine, queue) = (engine(), limit(LeakyBucket::queue(Rate::per_second(10), 30)));
    let mut tasks = Tasks::new(engine.clock());
    for cost in [3, 1, 0, 4, 1] {
        tasks.spawn(wait(&engine, vec![charge(&queue, USER).cost(cost)], LONG));
    }
    tasks.run();
    assert_eq!(tasks.order(), [0, 2, 1, 3, 4], "what costs nothing is not held back");
    assert_eq!(tasks.times(START), [0, 0, 300_000, 400_000, 800_000]);
}

#[test]
fn who_would_leave_too_late_is_denied_at_once_and_keeps_no_place() {
    let (engine, queue) = (engine(), limit(LeakyBucket::queue(Rate::per_second(10), 50)));
    let mut tasks = Tasks::new(engine.clock());
    for longest in [1_000, 1_000, 1_000, 250, 1_000, 300, 1_000] {
        tasks.spawn(wait(&engine, vec![charge(&queue, USER)], millis(longest)));
    }
    tasks.settle();
    let denied: Vec<_> = tasks.done.iter().map(|(task, _, decision)| (*task, decision.allowed)).collect();
    assert_eq!(denied, [(0, true), (3, false), (5, false)]);
    tasks.run();
    assert_eq!(tasks.order(), [0, 3, 5, 1, 2, 4, 6]);
    assert_eq!(tasks.times(START), [0, 0, 0, 100_000, 200_000, 300_000, 400_000]);
}

/// The others of a stack are given back as well, each at the time at which it was charged.
#[test]
fn who_would_leave_too_late_is_charged_nowhere() {
    let (engine, queue) = (engine(), limit(LeakyBucket::queue(Rate::per_second(10), 50)));
    let log = limit(SlidingLog::new(10, Micros::MINUTE));
    let bucket = limit(TokenBucket::new(Rate::per_minute(10)));
    let stack = vec![
        charge(&queue, USER).cost(2),
        Charge::new(Key::new(2, USER), &log),
        Charge::new(Key::new(3, USER), &bucket),
        Charge::new(Key::new(2, USER), &log),
    ];
    let mut tasks = Tasks::new(engine.clock());
    tasks.spawn(wait(&engine, stack.clone(), LONG));
    tasks.spawn(wait(&engine, stack.clone(), millis(100)));
    tasks.settle();
    assert!(tasks.done[1].2.denied());
    let remaining: Vec<u64> = stack.iter().map(|charge| left(&engine, charge).remaining).collect();
    assert_eq!(remaining, [49, 8, 9, 8], "only the first was charged");
}

/// Others have been told their departures, so a place once taken stays taken.
#[test]
fn who_gives_up_while_held_back_leaves_a_gap() {
    let (engine, queue) = (engine(), limit(LeakyBucket::queue(Rate::per_second(10), 50)));
    let mut tasks = Tasks::new(engine.clock());
    for _ in 0..5 {
        tasks.spawn(wait(&engine, vec![charge(&queue, USER)], LONG));
    }
    tasks.run_until(START.plus(millis(150)));
    tasks.cancel(2);
    tasks.spawn(wait(&engine, vec![charge(&queue, USER)], LONG));
    tasks.run();
    assert_eq!(tasks.order(), [0, 1, 3, 4, 5]);
    assert_eq!(tasks.times(START), [0, 100_000, 300_000, 400_000, 500_000]);
}
