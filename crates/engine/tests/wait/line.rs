//! The line before a limit: order, deadlines and giving up.

use tollgate::{Charge, Clock, FixedWindow, Key, Micros, Rate, SlidingLog, TokenBucket};

use crate::tasks::Tasks;
use crate::{START, charge, engine, left, limit, millis, wait};

const USER: &[&[u8]] = &[b"user"];
const LONG: Micros = Micros::HOUR;

#[test]
fn a_hundred_waiters_are_served_in_the_order_they_came() {
    let (engine, bucket) = (engine(), limit(TokenBucket::new(Rate::per_second(10)).burst(1)));
    let mut tasks = Tasks::new(engine.clock());
    for _ in 0..100 {
        tasks.spawn(wait(&engine, vec![charge(&bucket, USER)], LONG));
    }
    tasks.run();
    assert_eq!(tasks.order(), (0..100).collect::<Vec<_>>());
    assert_eq!(tasks.times(START), (0..100).map(|place| place * 100_000).collect::<Vec<_>>());
    assert!(tasks.done.iter().all(|(_, at, decision)| decision.allowed && decision.at == *at));
}

#[test]
fn the_cheap_do_not_overtake_the_dear() {
    let (engine, bucket) = (engine(), limit(TokenBucket::new(Rate::per_second(10)).burst(5)));
    let mut tasks = Tasks::new(engine.clock());
    for place in 0..40 {
        let cost = if place % 2 == 0 { 5 } else { 1 };
        tasks.spawn(wait(&engine, vec![charge(&bucket, USER).cost(cost)], LONG));
    }
    tasks.run();
    assert_eq!(tasks.order(), (0..40).collect::<Vec<_>>());
}

#[test]
fn those_who_come_later_stand_behind_those_who_wait() {
    let (engine, bucket) = (engine(), limit(TokenBucket::new(Rate::per_second(10)).burst(1)));
    let mut tasks = Tasks::new(engine.clock());
    for arrival in 0..30 {
        tasks.spawn(wait(&engine, vec![charge(&bucket, USER)], LONG));
        tasks.run_until(START.plus(millis(37 * arrival)));
    }
    tasks.run();
    assert_eq!(tasks.order(), (0..30).collect::<Vec<_>>());
    assert_eq!(tasks.times(START), (0..30).map(|place| place * 100_000).collect::<Vec<_>>());
}

#[test]
fn nobody_waits_for_another_key() {
    let (engine, bucket) = (engine(), limit(TokenBucket::new(Rate::per_second(1)).burst(1)));
    let names: Vec<[u8; 1]> = (0..50).map(|name| [name]).collect();
    let values: Vec<[&[u8]; 1]> = names.iter().map(|name| [name.as_slice()]).collect();
    let mut tasks = Tasks::new(engine.clock());
    for _ in 0..2 {
        for values in &values {
            tasks.spawn(wait(&engine, vec![charge(&bucket, values)], LONG));
        }
    }
    tasks.run();
    assert_eq!(tasks.times(START), [vec![0; 50], vec![1_000_000; 50]].concat());
}

#[test]
fn a_denial_that_can_be_foreseen_comes_at_once() {
    let (engine, bucket) = (engine(), limit(TokenBucket::new(Rate::per_second(2)).burst(2)));
    let one = charge(&bucket, USER);
    let mut tasks = Tasks::new(engine.clock());
    tasks.spawn(wait(&engine, vec![one.cost(2)], Micros::ZERO));
    tasks.spawn(wait(&engine, vec![one], millis(499)));
    tasks.spawn(wait(&engine, vec![one.cost(3)], LONG));
    tasks.settle();
    let told: Vec<_> = tasks.done.iter().map(|(_, _, decision)| (decision.allowed, decision.retry_after())).collect();
    assert_eq!(told, [(true, Some(Micros::ZERO)), (false, Some(millis(500))), (false, None)]);
    assert_eq!(left(&engine, &one).retry_after, Some(millis(500)), "the denied were charged");
    // Exactly in time is in time.
    tasks.spawn(wait(&engine, vec![one], millis(500)));
    tasks.run();
    assert!(tasks.done[3].2.allowed);
    assert_eq!(tasks.times(START)[3], 500_000);
}

#[test]
fn time_runs_out_in_line_and_the_line_goes_on() {
    let (engine, bucket) = (engine(), limit(TokenBucket::new(Rate::per_second(1)).burst(1)));
    let mut tasks = Tasks::new(engine.clock());
    for longest in [0, 10_000, 10_000, 1_500, 10_000, 200] {
        tasks.spawn(wait(&engine, vec![charge(&bucket, USER)], millis(longest)));
    }
    tasks.run();
    let told: Vec<_> = tasks.done.iter().map(|(task, _, decision)| (*task, decision.allowed)).collect();
    assert_eq!(told, [(0, true), (5, false), (1, true), (3, false), (2, true), (4, true)]);
    assert_eq!(tasks.times(START), [0, 200_000, 1_000_000, 1_500_000, 2_000_000, 3_000_000]);
}

#[test]
fn those_who_give_up_leave_no_gap_and_are_not_charged() {
    let (engine, bucket) = (engine(), limit(TokenBucket::new(Rate::per_second(1)).burst(1)));
    let mut tasks = Tasks::new(engine.clock());
    for _ in 0..10 {
        tasks.spawn(wait(&engine, vec![charge(&bucket, USER)], LONG));
    }
    tasks.run_until(START.plus(millis(500)));
    // In the middle, at the end, and the one at the front, whose turn it is.
    [4, 9, 1].into_iter().for_each(|task| tasks.cancel(task));
    tasks.run();
    assert_eq!(tasks.order(), [0, 2, 3, 5, 6, 7, 8]);
    assert_eq!(tasks.times(START), (0..7).map(|place| place * 1_000_000).collect::<Vec<_>>());
}

#[test]
fn giving_up_before_the_first_step_is_nothing_at_all() {
    let (engine, bucket) = (engine(), limit(TokenBucket::new(Rate::per_second(1)).burst(1)));
    drop(wait(&engine, vec![charge(&bucket, USER)], LONG));
    assert_eq!(left(&engine, &charge(&bucket, USER)).remaining, 1);
}

/// Two stacks with a counter in common are two lines; neither starves and the counter stays exact.
#[test]
fn lines_that_share_a_counter_both_move() {
    let (engine, shared) = (engine(), limit(TokenBucket::new(Rate::per_second(10)).burst(1)));
    let own = limit(FixedWindow::new(1_000, Micros::HOUR));
    let stacks: [&[&[u8]]; 2] = [&[b"a"], &[b"b"]];
    let mut tasks = Tasks::new(engine.clock());
    for place in 0..40 {
        let stack = vec![charge(&shared, USER), Charge::new(Key::new(2, stacks[place % 2]), &own)];
        tasks.spawn(wait(&engine, stack, LONG));
    }
    tasks.run();
    assert_eq!(tasks.times(START), (0..40).map(|place| place * 100_000).collect::<Vec<_>>());
    for side in 0..2 {
        let order: Vec<usize> = tasks.order().into_iter().filter(|task| task % 2 == side).collect();
        assert!(order.is_sorted() && order.len() == 20, "{order:?}");
    }
    assert_eq!(left(&engine, &Charge::new(Key::new(2, stacks[0]), &own)).remaining, 980);
}

/// Someone who does not wait may take what a waiter was promised; the waiter asks again, and its line stays in order.
#[test]
fn those_who_do_not_wait_are_not_held_up() {
    let (engine, bucket) = (engine(), limit(TokenBucket::new(Rate::per_second(1)).burst(1)));
    let one = charge(&bucket, USER);
    let mut tasks = Tasks::new(engine.clock());
    for _ in 0..3 {
        tasks.spawn(wait(&engine, vec![one], LONG));
    }
    tasks.run_until(START.plus(millis(999)));
    engine.clock().set(START.plus(millis(1_000)));
    assert!(engine.store().admit_one(&one, engine.clock().now()));
    tasks.run();
    assert_eq!(tasks.order(), [0, 1, 2]);
    assert_eq!(tasks.times(START), [0, 2_000_000, 3_000_000]);
}

/// A process that stood still for a while finds everyone due at once; no more pass than the limit has.
#[test]
fn no_burst_after_a_pause() {
    let (engine, bucket) = (engine(), limit(TokenBucket::new(Rate::per_second(1)).burst(5)));
    let mut tasks = Tasks::new(engine.clock());
    for place in 0..40 {
        let longest = if place == 20 { millis(7_000) } else { LONG };
        tasks.spawn(wait(&engine, vec![charge(&bucket, USER)], longest));
    }
    tasks.settle();
    assert_eq!(tasks.done.len(), 5);
    engine.clock().advance(Micros::from_secs(30));
    tasks.settle();
    assert_eq!(tasks.done.iter().filter(|(_, _, decision)| decision.allowed).count(), 10, "five more, at once");
    assert!(tasks.done.iter().any(|(task, _, decision)| *task == 20 && decision.denied()), "too late is too late");
    tasks.run();
    assert!(tasks.order().iter().filter(|task| **task != 20).is_sorted());
}

#[test]
fn a_window_that_rolls_lets_its_whole_limit_in() {
    let (engine, window) = (engine(), limit(SlidingLog::new(3, Micros::SECOND)));
    let mut tasks = Tasks::new(engine.clock());
    for _ in 0..10 {
        tasks.spawn(wait(&engine, vec![charge(&window, USER)], LONG));
    }
    tasks.run();
    let seconds: Vec<u64> = tasks.times(START).iter().map(|micros| micros / 1_000_000).collect();
    assert_eq!(seconds, [0, 0, 0, 1, 1, 1, 2, 2, 2, 3]);
}
