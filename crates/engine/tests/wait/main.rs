//! Waiting in line, in virtual time: nothing here sleeps.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod departures;
mod egress;
mod line;
mod newest;
mod skewed;
mod slots;
mod tasks;

use tollgate::{Algorithm, Charge, Decision, Engine, Key, Limit, ManualClock, MemoryStore, Micros, Outcome, Timestamp};

const START: Timestamp = Timestamp::from_secs(1_700_000_000);

type TestEngine = Engine<MemoryStore, ManualClock>;

fn engine() -> TestEngine {
    Engine::with_clock(MemoryStore::new(), ManualClock::at(START))
}

fn limit(algorithm: impl Into<Algorithm>) -> Limit {
    Limit::new(algorithm).unwrap()
}

fn millis(millis: u64) -> Micros {
    Micros::from_millis(millis)
}

fn charge<'a>(limit: &'a Limit, values: &'a [&'a [u8]]) -> Charge<'a> {
    Charge::new(Key::new(1, values), limit)
}

/// Waits with charges of its own.
async fn wait(engine: &TestEngine, charges: Vec<Charge<'_>>, longest: Micros) -> Decision {
    engine.wait(&charges, longest).await.unwrap()
}

/// What is left, without waiting.
fn left(engine: &TestEngine, charge: &Charge<'_>) -> Outcome {
    let now = tollgate::Clock::now(engine.clock());
    engine.store().apply_one(charge, tollgate::Intent::Peek, now)
}
