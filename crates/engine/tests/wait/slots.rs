//! Waiting for what others hold: it may be given back at any time, and then the first in line has it.

use tollgate::{Charge, Clock, Concurrency, FixedWindow, Intent, Key, Limit, Micros};

use crate::tasks::Tasks;
use crate::{START, TestEngine, charge, engine, left, limit, millis};

const USER: &[&[u8]] = &[b"user"];
const LONG: Micros = Micros::HOUR;

fn slots(number: u64) -> Limit {
    limit(Concurrency::new(number, Micros::MINUTE))
}

/// Waits for a slot, holds it for a while, and releases it. Whether it had one.
async fn work(engine: &TestEngine, slots: &Limit, lease: u64, longest: Micros, span: Micros) -> bool {
    let charge = charge(slots, USER).lease(lease);
    let decision = engine.wait(&[charge], longest).await.unwrap();
    if decision.allowed {
        engine.clock().sleep_until(engine.clock().now().plus(span)).await;
        engine.release(&[charge]).await.unwrap();
    }
    decision.allowed
}

#[test]
fn a_released_slot_goes_to_the_first_in_line_at_once() {
    let (engine, slots) = (engine(), slots(2));
    let mut tasks = Tasks::new(engine.clock());
    for lease in 0..20 {
        tasks.spawn(work(&engine, &slots, lease, LONG, millis(100)));
    }
    tasks.run();
    assert_eq!(tasks.done.len(), 20);
    for (task, at, had) in &tasks.done {
        assert_eq!((at.since(START), *had), (millis(100 * (*task as u64 / 2 + 1)), true), "two at a time, in order");
    }
    assert_eq!(left(&engine, &charge(&slots, USER)).remaining, 2);
}

/// A slot may be released long before its lease ends: nobody is turned away for a wait that only looks too long.
#[test]
fn time_runs_out_only_when_it_does() {
    let (engine, slots) = (engine(), slots(1));
    let mut tasks = Tasks::new(engine.clock());
    tasks.spawn(work(&engine, &slots, 1, LONG, millis(500)));
    tasks.spawn(work(&engine, &slots, 2, millis(499), millis(1)));
    tasks.spawn(work(&engine, &slots, 3, millis(501), millis(1)));
    tasks.spawn(work(&engine, &slots, 4, Micros::ZERO, millis(1)));
    tasks.run();
    let told: Vec<_> = tasks.done.iter().map(|(task, _, had)| (*task, *had)).collect();
    assert_eq!(told, [(3, false), (1, false), (0, true), (2, true)]);
    assert_eq!(tasks.times(START), [0, 499_000, 500_000, 501_000]);
}

#[test]
fn a_holder_that_is_gone_is_waited_for_until_its_lease_ends() {
    let (engine, slots) = (engine(), slots(1));
    engine.store().apply_one(&charge(&slots, USER).lease(99), Intent::Spend, START);
    let mut tasks = Tasks::new(engine.clock());
    tasks.spawn(work(&engine, &slots, 1, LONG, millis(1)));
    tasks.spawn(work(&engine, &slots, 2, LONG, millis(1)));
    tasks.run();
    assert_eq!(tasks.times(START), [60_001_000, 60_002_000]);
}

#[test]
fn more_slots_than_there_are_can_never_be_had() {
    let (engine, slots) = (engine(), slots(3));
    let mut tasks = Tasks::new(engine.clock());
    let engine = &engine;
    let many = [charge(&slots, USER).cost(4)];
    tasks.spawn(async move { engine.wait(&many, LONG).await.unwrap().denied() });
    tasks.settle();
    assert_eq!(tasks.done, [(0, START, true)]);
}

/// Refunds and settled reservations are room for those who wait, before the promised time.
#[test]
fn what_is_given_back_is_had_by_the_first_in_line() {
    let (engine, window) = (engine(), limit(FixedWindow::new(2, Micros::HOUR)));
    let mut tasks = Tasks::new(engine.clock());
    let (engine, one) = (&engine, charge(&window, USER));
    let other = Charge::new(Key::new(2, USER), &window);
    tasks.spawn(async move {
        let (decision, reserved) = engine.reserve(&[one], Micros::HOUR).await.unwrap();
        assert!(decision.allowed);
        engine.clock().sleep_until(START.plus(millis(300))).await;
        engine.cancel(reserved.unwrap()).await.unwrap();
        START
    });
    tasks.spawn(async move {
        let decision = engine.decide(&[one, other]).await.unwrap();
        engine.clock().sleep_until(START.plus(millis(200))).await;
        engine.refund(&[one], decision.outcomes[0].proceeds_at()).await.unwrap();
        START
    });
    for _ in 0..2 {
        tasks.spawn(async move { engine.wait(&[one], Micros::DAY).await.unwrap().at });
    }
    tasks.run();
    assert_eq!(tasks.order(), [1, 2, 0, 3]);
    assert_eq!(tasks.times(START), [200_000, 200_000, 300_000, 300_000]);
}
