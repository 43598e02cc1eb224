//! A store with a clock of its own, which is not the engine's: waits are lengths, not instants.

use tollgate::{
    Charge, Engine, Intent, LeakyBucket, ManualClock, MemoryStore, Micros, Outcome, Outcomes, Rate, ReservationId,
    Settled, Settlement, SlidingLog, Store, Timestamp, TokenBucket,
};

use crate::tasks::Tasks;
use crate::{START, charge, limit, millis};

const USER: &[&[u8]] = &[b"user"];

/// Decides `ahead` of the time that it is given, less an hour.
struct Skewed {
    inner: MemoryStore,
    ahead: Micros,
}

impl Skewed {
    fn time(&self, now: Timestamp) -> Timestamp {
        now.minus(Micros::HOUR).plus(self.ahead)
    }
}

impl Store for Skewed {
    type Error = std::convert::Infallible;

    async fn apply(&self, charges: &[Charge<'_>], intent: Intent, now: Timestamp) -> Result<Outcomes, Self::Error> {
        self.inner.apply(charges, intent, self.time(now)).await
    }

    async fn apply_each(
        &self,
        charges: &[Charge<'_>],
        intent: Intent,
        now: Timestamp,
    ) -> Result<Vec<Outcome>, Self::Error> {
        self.inner.apply_each(charges, intent, self.time(now)).await
    }

    async fn reserve(
        &self,
        charges: &[Charge<'_>],
        hold: Micros,
        now: Timestamp,
    ) -> Result<(Outcomes, Option<ReservationId>), Self::Error> {
        self.inner.reserve(charges, hold, self.time(now)).await
    }

    async fn settle(
        &self,
        reservation: ReservationId,
        settlement: Settlement<'_>,
        now: Timestamp,
    ) -> Result<Settled, Self::Error> {
        self.inner.settle(reservation, settlement, self.time(now)).await
    }
}

#[test]
fn waits_are_as_long_as_they_are_whatever_the_store_takes_for_now() {
    let bucket = limit(TokenBucket::new(Rate::per_second(1)).burst(1));
    let queue = limit(LeakyBucket::queue(Rate::per_second(1), 20));
    for ahead in [Micros::ZERO, Micros::HOUR, Micros::DAY] {
        for limit in [&bucket, &queue] {
            let store = Skewed { inner: MemoryStore::new(), ahead };
            let engine = Engine::with_clock(store, ManualClock::at(START));
            let mut tasks = Tasks::new(engine.clock());
            for longest in [10_000, 10_000, 1_500, 10_000] {
                let engine = &engine;
                tasks.spawn(async move { engine.wait(&[charge(limit, USER)], millis(longest)).await.unwrap().allowed });
            }
            tasks.run();
            let mut passed = tasks.done.iter().filter(|(_, _, allowed)| *allowed);
            assert!(passed.clone().map(|(task, ..)| *task).eq([0, 1, 3]), "{:?}", tasks.order());
            assert!(passed.all(|(task, at, _)| at.since(START) == Micros::from_secs([0, 1, 9, 2][*task])));
        }
    }
}

#[test]
fn a_refund_names_the_time_of_the_store() {
    let log = limit(SlidingLog::new(5, Micros::MINUTE));
    let queue = limit(LeakyBucket::queue(Rate::per_second(1), 20));
    let store = Skewed { inner: MemoryStore::new(), ahead: Micros::ZERO };
    let engine = Engine::with_clock(store, ManualClock::at(START));
    let mut tasks = Tasks::new(engine.clock());
    let (engine, log, queue) = (&engine, &log, &queue);
    tasks.spawn(async move {
        let charges = [charge(log, USER), charge(queue, USER)];
        let decision = engine.decide(&charges).await.unwrap();
        assert_eq!(decision.at, START.minus(Micros::HOUR));
        engine.refund(&charges[..1], decision.outcomes[0].proceeds_at()).await.unwrap();
        assert_eq!(engine.peek(&charges).await.unwrap().outcomes[0].remaining, 5);
        // Denied because the departure would come too late: the log is given back as well.
        assert!(engine.wait(&charges, Micros::from_millis(10)).await.unwrap().denied());
        assert_eq!(engine.peek(&charges).await.unwrap().outcomes[0].remaining, 5);
    });
    tasks.run();
}
