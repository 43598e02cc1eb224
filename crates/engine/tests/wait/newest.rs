//! Lines in which whoever comes last is next.

use tollgate::{Charge, Concurrency, Decision, Micros, Queueing, Rate, TokenBucket};

use crate::tasks::Tasks;
use crate::{START, TestEngine, charge, engine, left, limit, millis};

const USER: &[&[u8]] = &[b"user"];
const NEWEST: Queueing = Queueing { longest: Micros::HOUR, newest_first: true, most: usize::MAX };

async fn wait(engine: &TestEngine, charges: Vec<Charge<'_>>, how: Queueing) -> (Decision, usize) {
    engine.wait_in_line(&charges, how).await.unwrap()
}

#[test]
fn those_who_came_last_are_served_first() {
    let (engine, bucket) = (engine(), limit(TokenBucket::new(Rate::per_second(10)).burst(1)));
    let mut tasks = Tasks::new(engine.clock());
    for _ in 0..50 {
        tasks.spawn(wait(&engine, vec![charge(&bucket, USER)], NEWEST));
    }
    tasks.run();
    // The first found nobody, and went at once.
    assert_eq!(tasks.order(), [0].into_iter().chain((1..50).rev()).collect::<Vec<_>>());
    assert_eq!(tasks.times(START), (0..50).map(|place| place * 100_000).collect::<Vec<_>>());
    assert!(tasks.done.iter().all(|(_, _, (decision, position))| decision.allowed && *position == 1));
}

#[test]
fn who_has_the_turn_stands_back_for_who_comes() {
    let (engine, bucket) = (engine(), limit(TokenBucket::new(Rate::per_second(10)).burst(1)));
    let mut tasks = Tasks::new(engine.clock());
    for arrival in [0, 1, 99, 150] {
        tasks.run_until(START.plus(millis(arrival)));
        tasks.spawn(wait(&engine, vec![charge(&bucket, USER)], NEWEST));
    }
    tasks.run();
    assert_eq!(tasks.order(), [0, 2, 3, 1]);
    assert_eq!(tasks.times(START), [0, 100_000, 200_000, 300_000]);
}

/// At twice the rate, those who are served waited for less than two of their intervals; the others for as long as one
/// may, and no longer. In the order of arrival everybody would wait for nearly that long.
#[test]
fn under_a_flood_the_newest_wait_least() {
    let longest = millis(1_000);
    let flood = |newest_first: bool| {
        let (engine, bucket) = (engine(), limit(TokenBucket::new(Rate::per_second(10)).burst(1)));
        let mut tasks = Tasks::new(engine.clock());
        let how = Queueing { longest, newest_first, most: usize::MAX };
        for arrival in 0..200_u64 {
            tasks.run_until(START.plus(millis(50 * arrival)));
            tasks.spawn(wait(&engine, vec![charge(&bucket, USER)], how));
        }
        tasks.run();
        let waited = |(task, at, (decision, _)): &(usize, tollgate::Timestamp, (Decision, usize))| {
            (decision.allowed, at.since(START.plus(millis(50 * *task as u64))))
        };
        let (served, refused): (Vec<_>, Vec<_>) = tasks.done.iter().map(waited).partition(|(allowed, _)| *allowed);
        let mut served: Vec<Micros> = served.into_iter().map(|(_, waited)| waited).collect();
        served.sort();
        (served, refused.into_iter().map(|(_, waited)| waited).collect::<Vec<_>>())
    };
    let (newest, refused) = flood(true);
    let (oldest, _) = flood(false);
    assert!(newest.len() >= 100 && newest.len() + refused.len() == 200, "{}", newest.len());
    assert!(newest[95] < millis(100), "{newest:?}");
    assert!(refused.iter().all(|waited| *waited == longest), "{refused:?}");
    assert!(oldest[50] > millis(700), "{oldest:?}");
}

#[test]
fn of_too_many_the_one_that_came_first_goes_at_once() {
    let (engine, bucket) = (engine(), limit(TokenBucket::new(Rate::per_second(1)).burst(1)));
    let one = charge(&bucket, USER);
    let mut tasks = Tasks::new(engine.clock());
    let how = Queueing { most: 2, ..NEWEST };
    for _ in 0..5 {
        tasks.spawn(wait(&engine, vec![one], how));
    }
    tasks.settle();
    let told: Vec<_> = tasks.done.iter().map(|(task, _, (decision, _))| (*task, decision.allowed)).collect();
    assert_eq!(told[0], (0, true));
    assert_eq!(told[1..].iter().copied().collect::<std::collections::BTreeSet<_>>(), [(1, false), (2, false)].into());
    assert!(tasks.done[1..].iter().all(|(_, at, (_, position))| *at == START && *position == 3));
    tasks.run();
    assert_eq!(tasks.order()[3..], [4, 3]);
    // In order, it is the last one that goes.
    let how = Queueing { newest_first: false, ..how };
    let mut tasks = Tasks::new(engine.clock());
    for _ in 0..4 {
        tasks.spawn(wait(&engine, vec![one], how));
    }
    tasks.settle();
    let refused: Vec<_> =
        tasks.done.iter().filter(|(_, _, (decision, _))| decision.denied()).map(|done| done.0).collect();
    assert_eq!(refused.len(), 2);
    assert!(!refused.contains(&0) && !refused.contains(&1), "{refused:?}");
}

#[test]
fn those_who_give_up_leave_no_gap_and_are_not_charged() {
    let (engine, bucket) = (engine(), limit(TokenBucket::new(Rate::per_second(1)).burst(1)));
    let mut tasks = Tasks::new(engine.clock());
    for _ in 0..8 {
        tasks.spawn(wait(&engine, vec![charge(&bucket, USER)], NEWEST));
    }
    tasks.run_until(START.plus(millis(500)));
    // The one that has the turn, one in the middle, and the last of them.
    [7, 4, 1].into_iter().for_each(|task| tasks.cancel(task));
    tasks.run();
    assert_eq!(tasks.order(), [0, 6, 5, 3, 2]);
    assert_eq!(tasks.times(START), (0..5).map(|place| place * 1_000_000).collect::<Vec<_>>());
    assert_eq!(left(&engine, &charge(&bucket, USER)).remaining, 0);
}

#[test]
fn places_are_told() {
    let bucket = limit(TokenBucket::new(Rate::per_second(1)).burst(1));
    let places = |newest_first: bool, longest: Micros| {
        let engine = engine();
        let mut tasks = Tasks::new(engine.clock());
        for _ in 0..5 {
            let how = Queueing { longest, newest_first, most: usize::MAX };
            tasks.spawn(wait(&engine, vec![charge(&bucket, USER)], how));
        }
        tasks.run();
        let mut told: Vec<_> =
            tasks.done.iter().map(|(task, _, (decision, position))| (*task, decision.allowed, *position)).collect();
        told.sort_unstable();
        told
    };
    // Who is served is told the place that it had when it came. The first went at once, and is nobody's to wait for.
    assert_eq!(places(false, Micros::HOUR), [(0, true, 1), (1, true, 1), (2, true, 2), (3, true, 3), (4, true, 4)]);
    assert_eq!(places(true, Micros::HOUR), [0, 1, 2, 3, 4].map(|task| (task, true, 1)));
    // Who is refused is told where it was then: of those whose time is over at the same moment, some may have gone.
    let in_order = places(false, millis(500));
    assert!(in_order[1..].iter().all(|(task, allowed, place)| !allowed && place <= task), "{in_order:?}");
    let newest = places(true, millis(1_500));
    assert_eq!((newest[0], newest[4]), ((0, true, 1), (4, true, 1)));
    assert!(newest[1..4].iter().all(|(task, allowed, place)| !allowed && *place <= 4 - task), "{newest:?}");
}

#[test]
fn what_is_given_back_goes_to_the_newest() {
    let (engine, slots) = (engine(), limit(Concurrency::new(1, Micros::MINUTE)));
    let lease = |number: u64| charge(&slots, USER).lease(number);
    assert!(engine.store().admit_one(&lease(1), tollgate::Clock::now(engine.clock())));
    let mut tasks = Tasks::new(engine.clock());
    for number in 2..5 {
        tasks.spawn(wait(&engine, vec![lease(number)], NEWEST));
    }
    tasks.run_until(START.plus(millis(10)));
    let mut given_back = Box::pin(async { engine.release(&[lease(1)]).await.unwrap() });
    let waker = std::task::Waker::noop();
    assert!(given_back.as_mut().poll(&mut std::task::Context::from_waker(waker)).is_ready());
    tasks.settle();
    assert_eq!(tasks.order(), [2], "the last of the three");
}
