//! Several limits on one request: all pass or none is charged.
//!
//! `cargo run -p tollgate --example stacked`
#![allow(clippy::print_stdout, reason = "an example talks to its reader")]

use tollgate::{Charge, Engine, Key, Limit, MemoryStore, Micros, Rate, SlidingCounter, TokenBucket};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let per_second = Limit::new(TokenBucket::new(Rate::per_second(5)))?;
    let per_hour = Limit::new(SlidingCounter::new(100_000, Micros::HOUR))?;
    let engine = Engine::new(MemoryStore::new());

    let user: [&[u8]; 1] = [b"user-42"];
    for request in 1..=6 {
        let decision = engine
            .decide(&[Charge::new(Key::new(1, &user), &per_second), Charge::new(Key::new(2, &user), &per_hour)])
            .await?;

        if let Some(wait) = decision.retry_after().filter(|_| decision.denied()) {
            println!("try again in {wait}");
        }
        let left: Vec<u64> = decision.outcomes.iter().map(|outcome| outcome.remaining).collect();
        println!("request {request}: allowed {}, left {left:?}", decision.allowed);
    }
    Ok(())
}
