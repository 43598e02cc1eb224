//! The simple limiter, and an engine whose store is shared.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use tollgate::{
    Charge, Concurrency, Engine, Key, Limit, LimitError, Limiter, ManualClock, MemoryStore, Micros, Rate, Timestamp,
    TokenBucket,
};

const NOW: Timestamp = Timestamp::from_secs(1_700_000_000);

#[tokio::test]
async fn five_per_second_with_a_burst_of_ten() {
    let clock = ManualClock::at(NOW);
    let limiter = Limiter::requests_per_second(5).burst(10).build_with_clock(clock.clone()).unwrap();
    assert_eq!((0..12).filter(|_| limiter.allow("user")).count(), 10);
    assert_eq!(limiter.check("user").retry_after, Some(Micros::from_millis(200)));
    clock.advance(Micros::from_micros(199_999));
    assert!(!limiter.allow("user"));
    clock.advance(Micros::from_micros(1));
    assert!(limiter.allow("user") && limiter.allow("another"));
    // Three take 600 ms to come: more than there is time for.
    assert!(limiter.wait_cost("user", 3, Duration::from_millis(599)).await.denied());
    // The limiter's own charges are those of its engine.
    let decision = limiter.engine().peek(&[limiter.charge(&[b"another"])]).await.unwrap();
    assert_eq!(decision.outcomes[0].remaining, 9);
}

#[test]
fn zero_requests_are_refused_and_the_budget_is_kept() {
    assert_eq!(Limiter::requests_per_day(0).build().unwrap_err(), LimitError::NeverRefills);
    let limiter = Limiter::requests_per_hour(5).memory_budget(0).build().unwrap();
    assert!(limiter.check("user").shared);
}

#[tokio::test]
async fn two_engines_share_one_store() {
    let store = Arc::new(MemoryStore::new());
    let engines = [(); 2].map(|()| Engine::with_clock(store.clone(), ManualClock::at(NOW)));
    let limit = Limit::new(TokenBucket::new(Rate::per_hour(2))).unwrap();
    let charge = Charge::new(Key::new(1, &[b"user"]), &limit);
    assert!(engines[0].decide(&[charge]).await.unwrap().allowed);
    assert!(engines[1].decide(&[charge]).await.unwrap().allowed);
    assert!(engines[0].decide(&[charge]).await.unwrap().denied());
}

#[tokio::test]
async fn releasing_a_stack_gives_back_slots_and_no_tokens() {
    let engine = Engine::with_clock(MemoryStore::new(), ManualClock::at(NOW));
    let slots = Limit::new(Concurrency::new(1, Micros::MINUTE)).unwrap();
    let bucket = Limit::new(TokenBucket::new(Rate::per_hour(5))).unwrap();
    let user: [&[u8]; 1] = [b"user"];
    let stack = [Charge::new(Key::new(1, &user), &slots).lease(7), Charge::new(Key::new(2, &user), &bucket)];
    assert!(engine.decide(&stack).await.unwrap().allowed);
    engine.release(&stack).await.unwrap();
    let left: Vec<u64> = engine.peek(&stack).await.unwrap().outcomes.iter().map(|outcome| outcome.remaining).collect();
    assert_eq!(left, [1, 4]);
}
