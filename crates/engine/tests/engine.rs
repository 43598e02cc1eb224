//! The engine's calls: one reading of the clock, one call of the store, and what each of them means.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};

use tollgate::{
    Algorithm, Charge, Clock, Concurrency, Engine, FixedWindow, Intent, Key, Limit, Limiter, ManualClock, MemoryStore,
    Micros, Outcome, Outcomes, Rate, ReservationId, Settled, Settlement, SlidingLog, Store, Timestamp, TokenBucket,
};

const START: Timestamp = Timestamp::from_secs(1_700_000_000);
const USER: &[&[u8]] = &[b"user"];

fn limit(algorithm: impl Into<Algorithm>) -> Limit {
    Limit::new(algorithm).unwrap()
}

fn engine() -> Engine<MemoryStore, ManualClock> {
    Engine::with_clock(MemoryStore::new(), ManualClock::at(START))
}

/// A memory store that counts how often it is called, beside a clock that counts how often it is read.
#[derive(Default)]
struct Counted {
    inner: MemoryStore,
    calls: AtomicU64,
    readings: AtomicU64,
}

impl Counted {
    fn call(&self) -> &MemoryStore {
        self.calls.fetch_add(1, Ordering::Relaxed);
        &self.inner
    }
}

impl Store for &Counted {
    type Error = Infallible;

    async fn apply(&self, charges: &[Charge<'_>], intent: Intent, now: Timestamp) -> Result<Outcomes, Infallible> {
        self.call().apply(charges, intent, now).await
    }

    async fn apply_each(
        &self,
        charges: &[Charge<'_>],
        intent: Intent,
        now: Timestamp,
    ) -> Result<Vec<Outcome>, Infallible> {
        self.call().apply_each(charges, intent, now).await
    }

    async fn reserve(
        &self,
        charges: &[Charge<'_>],
        hold: Micros,
        now: Timestamp,
    ) -> Result<(Outcomes, Option<ReservationId>), Infallible> {
        self.call().reserve(charges, hold, now).await
    }

    async fn settle(
        &self,
        reservation: ReservationId,
        settlement: Settlement<'_>,
        now: Timestamp,
    ) -> Result<Settled, Infallible> {
        self.call().settle(reservation, settlement, now).await
    }
}

impl Clock for &Counted {
    fn now(&self) -> Timestamp {
        self.readings.fetch_add(1, Ordering::Relaxed);
        START
    }

    async fn sleep_until(&self, _at: Timestamp) {}
}

#[tokio::test]
async fn a_decision_is_one_reading_and_one_call() {
    let counted = Counted::default();
    let engine = Engine::with_clock(&counted, &counted);
    let window = limit(FixedWindow::new(9, Micros::HOUR));
    let charges = [Charge::new(Key::new(1, USER), &window), Charge::new(Key::new(2, USER), &window)];
    let steps = || (counted.calls.swap(0, Ordering::Relaxed), counted.readings.swap(0, Ordering::Relaxed));
    engine.decide(&charges).await.unwrap();
    assert_eq!(steps(), (1, 1));
    engine.peek(&charges).await.unwrap();
    assert_eq!(steps(), (1, 1));
    engine.decide_each(&charges).await.unwrap();
    assert_eq!(steps(), (1, 1));
    let (_, reservation) = engine.reserve(&charges, Micros::SECOND).await.unwrap();
    assert_eq!(steps(), (1, 1));
    engine.commit(reservation.unwrap()).await.unwrap();
    assert_eq!(steps(), (1, 1));
}

#[tokio::test]
async fn spending_forcing_and_giving_back() {
    let (engine, bucket) = (engine(), limit(TokenBucket::new(Rate::per_second(10))));
    let charge = Charge::new(Key::new(1, USER), &bucket);
    let decision = engine.decide(&[charge.cost(8)]).await.unwrap();
    assert_eq!((decision.allowed, decision.at, decision.outcomes[0].remaining), (true, START, 2));
    assert!(engine.decide(&[charge.cost(3)]).await.unwrap().denied());
    let forced = engine.force(&[charge.cost(7)]).await.unwrap();
    assert_eq!((forced.allowed, forced.outcomes[0].remaining), (true, 0));
    assert_eq!(engine.peek(&[charge]).await.unwrap().retry_after(), Some(Micros::from_millis(600)));
    engine.refund(&[charge.cost(8)], decision.at).await.unwrap();
    assert_eq!(engine.peek(&[charge]).await.unwrap().outcomes[0].remaining, 3);
    engine.refund(&[charge.cost(100)], decision.at).await.unwrap();
    assert_eq!(engine.peek(&[charge]).await.unwrap().outcomes[0].remaining, 10);
}

#[tokio::test]
async fn slots_are_taken_renewed_and_released() {
    let (engine, slots) = (engine(), limit(Concurrency::new(1, Micros::MINUTE)));
    let [mine, yours] = [1, 2].map(|lease| Charge::new(Key::new(1, USER), &slots).lease(lease));
    assert!(engine.decide(&[mine]).await.unwrap().allowed);
    assert!(engine.decide(&[yours]).await.unwrap().denied());
    engine.clock().advance(Micros::from_secs(50));
    assert!(engine.renew(&[mine]).await.unwrap().allowed);
    engine.clock().advance(Micros::from_secs(50));
    assert!(engine.renew(&[yours]).await.unwrap().denied());
    assert!(engine.decide(&[yours]).await.unwrap().denied());
    engine.release(&[mine]).await.unwrap();
    assert!(engine.decide(&[yours]).await.unwrap().allowed);
    engine.clock().advance(Micros::MINUTE);
    assert!(engine.decide(&[mine]).await.unwrap().allowed, "a holder that is gone gives its slot back");
}

/// Look at many candidates, reserve the winner, and settle.
#[tokio::test]
async fn filter_reserve_and_commit() {
    let (engine, log) = (engine(), limit(SlidingLog::new(3, Micros::HOUR)));
    let names: Vec<[u8; 4]> = (0..500u32).map(u32::to_be_bytes).collect();
    let values: Vec<[&[u8]; 1]> = names.iter().map(|name| [name.as_slice()]).collect();
    let charges: Vec<Charge<'_>> = values.iter().map(|values| Charge::new(Key::new(1, values), &log)).collect();
    engine.decide(&[charges[7].cost(3)]).await.unwrap();
    let open = engine.peek_each(&charges).await.unwrap();
    assert_eq!(open.iter().filter(|outcome| outcome.allowed).count(), 499);
    let (decision, winner) = engine.reserve(&[charges[8].cost(2)], Micros::SECOND).await.unwrap();
    assert!(decision.allowed);
    let (denied, nobody) = engine.reserve(&[charges[8].cost(2)], Micros::SECOND).await.unwrap();
    assert!(denied.denied() && nobody.is_none());
    assert_eq!(engine.commit_actual(winner.unwrap(), &[1]).await.unwrap(), Settled::Done);
    let (_, other) = engine.reserve(&[charges[8].cost(2)], Micros::SECOND).await.unwrap();
    assert_eq!(engine.cancel(other.unwrap()).await.unwrap(), Settled::Done);
    let (_, forgotten) = engine.reserve(&[charges[8].cost(2)], Micros::SECOND).await.unwrap();
    engine.clock().advance(Micros::SECOND);
    assert_eq!(engine.peek(&[charges[8]]).await.unwrap().outcomes[0].remaining, 2);
    assert_eq!(engine.commit(forgotten.unwrap()).await.unwrap(), Settled::Unknown);
}

#[test]
fn the_simple_case_counts_every_key_for_itself() {
    let limiter = Limiter::requests_per_second(5).burst(10).build().unwrap();
    assert_eq!(limiter.limit().algorithm(), &TokenBucket::new(Rate::per_second(5)).burst(10).into());
    let engine = Engine::with_clock(MemoryStore::new(), ManualClock::at(START));
    let limiter = Limiter::with_engine(limiter.limit().clone(), engine);
    assert_eq!((0..20).filter(|_| limiter.allow("alice")).count(), 10);
    assert_eq!(limiter.check("bob").remaining, 9);
    assert_eq!(limiter.check_cost(b"bob", 9).remaining, 0);
    assert_eq!(limiter.check("bob").retry_after, Some(Micros::from_millis(200)));
    assert_eq!(limiter.peek("bob", 3).retry_after, Some(Micros::from_millis(600)));
    assert!(limiter.peek("carol", 11).can_never_fit());
    limiter.engine().clock().advance(Micros::from_secs(2));
    assert_eq!(limiter.peek("alice", 1).remaining, 10);
    assert!(Limiter::requests_per_minute(0).build().is_err(), "a limiter that allows nothing is a mistake");
}

#[tokio::test]
async fn the_simple_case_can_wait() {
    let engine = Engine::with_clock(MemoryStore::new(), ManualClock::at(START));
    let limiter = Limiter::with_engine(limit(TokenBucket::new(Rate::per_second(1)).burst(1)), engine);
    assert!(limiter.wait("alice", Micros::ZERO).await.allowed);
    assert!(limiter.wait("alice", Micros::from_millis(999)).await.denied());
    let clock = limiter.engine().clock().clone();
    let (decision, ()) = tokio::join!(limiter.wait("alice", Micros::SECOND), async { clock.advance(Micros::SECOND) });
    assert!(decision.allowed);
}
