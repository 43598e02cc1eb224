//! A cost that is known only afterwards: reserve what it may be, settle what it was.
//!
//! `cargo run -p tollgate --example reserve`
#![allow(clippy::print_stdout, reason = "an example talks to its reader")]

use tollgate::{Charge, Engine, Key, Limit, MemoryStore, Micros, Rate, TokenBucket};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let tokens = Limit::new(TokenBucket::new(Rate::per_minute(10_000)))?;
    let engine = Engine::new(MemoryStore::new());
    let account: [&[u8]; 1] = [b"account-7"];
    let charge = Charge::new(Key::new(1, &account), &tokens);

    let (decision, reservation) = engine.reserve(&[charge.cost(4_000)], Micros::from_secs(60)).await?;
    println!("reserved 4,000: {}, {} left", decision.allowed, decision.outcomes[0].remaining);

    if let Some(reservation) = reservation {
        engine.commit_actual(reservation, &[1_234]).await?;
    }
    println!("it took 1,234: {} left", engine.peek(&[charge]).await?.outcomes[0].remaining);
    Ok(())
}
