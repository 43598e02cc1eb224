//! At most two at a time, and a holder that crashed gives its slot back.
//!
//! `cargo run -p tollgate --example slots`
#![allow(clippy::print_stdout, reason = "an example talks to its reader")]

use tollgate::{Charge, Concurrency, Engine, Key, Limit, MemoryStore, Micros};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let slots = Limit::new(Concurrency::new(2, Micros::from_secs(30)))?;
    let engine = Engine::new(MemoryStore::new());
    let tenant: [&[u8]; 1] = [b"tenant-1"];
    let lease = |number| Charge::new(Key::new(1, &tenant), &slots).lease(number);

    for number in 1..=3 {
        let decision = engine.decide(&[lease(number)]).await?;
        println!("lease {number}: allowed {}", decision.allowed);
    }
    engine.renew(&[lease(2)]).await?;
    engine.release(&[lease(1)]).await?;
    println!("lease 3: allowed {}", engine.decide(&[lease(3)]).await?.allowed);
    Ok(())
}
