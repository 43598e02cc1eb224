//! Counters that survive a restart.
//!
//! `cargo run -p tollgate --example restart`, twice
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example talks to its reader")]

use tollgate::{Charge, Clock, Engine, FixedWindow, Key, Limit, MemoryStore, Micros, SystemClock};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::temp_dir().join("tollgate-example.snapshot");
    let clock = SystemClock::new();
    let now = clock.now();
    let store = match MemoryStore::load_snapshot(&path, MemoryStore::DEFAULT_BUDGET, now) {
        Ok(store) => store,
        Err(error) if error.is_missing() => MemoryStore::new(),
        Err(error) => {
            eprintln!("{error}");
            MemoryStore::new()
        }
    };
    let engine = Engine::with_clock(store, clock);

    let per_hour = Limit::new(FixedWindow::new(10, Micros::HOUR))?;
    let user: [&[u8]; 1] = [b"user-42"];
    let decision = engine.decide(&[Charge::new(Key::new(1, &user), &per_hour)]).await?;
    println!("allowed {}, {} left this hour", decision.allowed, decision.outcomes[0].remaining);

    engine.store().save_snapshot(&path, engine.clock().now())?;
    Ok(())
}
