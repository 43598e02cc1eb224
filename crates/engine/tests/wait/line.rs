//! The line before a limit: order, deadlines and giving up.

use tollgate::{
    Charge, Clock, Concurrency, FixedWindow, Key, LeakyBucket, Limit, Micros, Rate, SlidingCounter, SlidingLog,
    TokenBucket,
};

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
fn who_would_wait_in_vain_is_told_and_the_line_goes_on() {
    let (engine, bucket) = (engine(), limit(TokenBucket::new(Rate::per_second(1)).burst(1)));
    let mut tasks = Tasks::new(engine.clock());
    for longest in [0, 10_000, 10_000, 1_500, 10_000, 200] {
        tasks.spawn(wait(&engine, vec![charge(&bucket, USER)], millis(longest)));
    }
    tasks.run();
    let told: Vec<_> = tasks.done.iter().map(|(task, _, decision)| (*task, decision.allowed)).collect();
    assert_eq!(told, [(0, true), (3, false), (5, false), (1, true), (2, true), (4, true)]);
    assert_eq!(tasks.times(START), [0, 0, 0, 1_000_000, 2_000_000, 3_000_000]);
}

/// Whose turn it is counts among those ahead while it is known to wait.
#[test]
fn who_comes_too_late_by_the_first_in_line_is_told_at_once() {
    let (engine, bucket) = (engine(), limit(TokenBucket::new(Rate::per_second(1)).burst(1)));
    let mut tasks = Tasks::new(engine.clock());
    for longest in [0, 10_000, 1_999, 2_000, 2_000] {
        tasks.spawn(wait(&engine, vec![charge(&bucket, USER)], millis(longest)));
    }
    tasks.run();
    let told: Vec<_> = tasks.done.iter().map(|(task, _, decision)| (*task, decision.allowed)).collect();
    assert_eq!(told, [(0, true), (2, false), (4, false), (1, true), (3, true)]);
    assert_eq!(tasks.times(START), [0, 0, 0, 1_000_000, 2_000_000]);
}

/// Who finds a queue full leaves it after all that are in it, and those before it in line.
#[test]
fn who_would_leave_a_queue_too_late_is_told_at_once() {
    let (engine, queue) = (engine(), limit(LeakyBucket::queue(Rate::per_second(1), 2)));
    let mut tasks = Tasks::new(engine.clock());
    for longest in [0, 1_000, 2_000, 2_999, 3_000, 3_999, 4_000] {
        tasks.spawn(wait(&engine, vec![charge(&queue, USER)], millis(longest)));
    }
    tasks.run();
    let told: Vec<_> = tasks.done.iter().map(|(task, _, decision)| (*task, decision.allowed)).collect();
    assert_eq!(told, [(0, true), (3, false), (5, false), (1, true), (2, true), (4, true), (6, true)]);
    assert_eq!(tasks.times(START), [0, 0, 0, 1_000_000, 2_000_000, 3_000_000, 4_000_000]);
}

/// When a slot is released cannot be foreseen, so that time may run out in line.
#[test]
fn time_that_runs_out_in_line_is_noticed() {
    let (engine, slots) = (engine(), limit(Concurrency::new(1, LONG)));
    let mut tasks = Tasks::new(engine.clock());
    for longest in [0, 3_000, 1_500, 200, 3_000] {
        tasks.spawn(wait(&engine, vec![charge(&slots, USER)], millis(longest)));
    }
    tasks.run();
    assert_eq!(tasks.order()[..3], [0, 3, 2]);
    assert_eq!(tasks.times(START), [0, 200_000, 1_500_000, 3_000_000, 3_000_000]);
    assert!(tasks.done.iter().skip(1).all(|(_, _, decision)| decision.denied()));
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

/// Whoever waits for a counter that others wait for stands in line with them, whatever else it is charged.
#[test]
fn who_waits_for_the_same_counter_stands_in_one_line() {
    let (engine, shared) = (engine(), limit(TokenBucket::new(Rate::per_second(10)).burst(1)));
    let own = limit(FixedWindow::new(1_000, Micros::HOUR));
    let stacks: [&[&[u8]]; 2] = [&[b"a"], &[b"b"]];
    let mut tasks = Tasks::new(engine.clock());
    for place in 0..40 {
        let stack = vec![charge(&shared, USER), Charge::new(Key::new(2, stacks[place % 2]), &own)];
        tasks.spawn(wait(&engine, stack, LONG));
    }
    tasks.run();
    assert_eq!(tasks.order(), (0..40).collect::<Vec<_>>());
    assert_eq!(tasks.times(START), (0..40).map(|place| place * 100_000).collect::<Vec<_>>());
    assert_eq!(left(&engine, &Charge::new(Key::new(2, stacks[0]), &own)).remaining, 980);
}

/// Whoever has to wait for two counters waits for the one that takes longer, and keeps nobody waiting at the other.
#[test]
fn who_waits_for_another_counter_keeps_nobody_waiting() {
    let (engine, all) = (engine(), limit(TokenBucket::new(Rate::per_second(10)).burst(1)));
    let slow = limit(TokenBucket::new(Rate::per_second(1)).burst(1));
    let shops: [&[&[u8]]; 2] = [&[b"slow"], &[b"free"]];
    let stack = |shop: usize| vec![charge(&all, USER), Charge::new(Key::new(2, shops[shop]), &slow)];
    let mut tasks = Tasks::new(engine.clock());
    // Four of one shop, which may send one a second, and then each of another.
    for _ in 0..4 {
        tasks.spawn(wait(&engine, stack(0), LONG));
    }
    for _ in 0..5 {
        tasks.spawn(wait(&engine, vec![charge(&all, USER)], LONG));
    }
    tasks.spawn(wait(&engine, stack(1), LONG));
    tasks.run();
    let mut order: Vec<(usize, u64)> = tasks.order().into_iter().zip(tasks.times(START)).collect();
    order.sort_unstable();
    let times: Vec<u64> = order.into_iter().map(|(_, at)| at / 1_000).collect();
    assert_eq!(times[..4], [0, 1_000, 2_000, 3_000], "one a second");
    assert_eq!(times[4..], [100, 200, 300, 400, 500, 600], "ten a second, in order");
    assert!(engine.waiting() == 0);
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
        let longest = if place == 20 { millis(20_000) } else { LONG };
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

/// When each of sixty is admitted who come together, after so much was spent, and how many of the others were not told
/// at once.
fn admitted(limit: &Limit, spent: u64, longest: Micros) -> (Vec<u64>, usize) {
    let engine = engine();
    let mut tasks = Tasks::new(engine.clock());
    tasks.spawn(wait(&engine, vec![charge(limit, USER).cost(spent)], Micros::ZERO));
    for _ in 0..60 {
        tasks.spawn(wait(&engine, vec![charge(limit, USER)], longest));
    }
    tasks.run();
    let times = tasks.times(START);
    let done = tasks.done.iter().zip(times).skip(1);
    let (passed, denied): (Vec<_>, Vec<_>) = done.partition(|((_, _, decision), _)| decision.allowed);
    (passed.into_iter().map(|(_, at)| at).collect(), denied.into_iter().filter(|(_, at)| *at > 0).count())
}

/// Whoever would be admitted in time waits, and whoever would not is told at once: those ahead are counted.
#[test]
fn who_stands_behind_too_many_is_denied_at_once() {
    let second = Micros::SECOND;
    for (limit, is_exact) in [
        (limit(TokenBucket::new(Rate::per_second(10)).burst(1)), true),
        (limit(TokenBucket::new(Rate::per_second(10)).burst(7)), true),
        (limit(TokenBucket::new(Rate::per_second(10)).refill_at_intervals()), false),
        (limit(LeakyBucket::meter(Rate::per_second(10))), true),
        (limit(LeakyBucket::queue(Rate::per_second(10), 1_000)), true),
        (limit(LeakyBucket::queue(Rate::per_second(10), 3)), true),
        (limit(FixedWindow::new(10, second)), true),
        (limit(SlidingLog::new(10, second)), true),
        (limit(SlidingCounter::new(10, second)), false),
    ] {
        for spent in [0, 1] {
            let (all, _) = admitted(&limit, spent, LONG);
            assert_eq!(all.len(), 60);
            for longest in [0, 50, 99, 101, 999, 1_001, 2_500] {
                let in_time: Vec<u64> = all.iter().copied().filter(|at| *at <= longest * 1_000).collect();
                let (passed, late) = admitted(&limit, spent, millis(longest));
                assert_eq!(passed, in_time, "{:?}, {spent} spent, {longest} ms", limit.algorithm());
                assert!(late == 0 || !is_exact, "{late}: {:?}, {spent} spent, {longest} ms", limit.algorithm());
            }
        }
    }
}
