//! Calling an API that allows five calls a second: wait instead of being refused.
//!
//! `cargo run -p tollgate --example waiting`
#![allow(clippy::print_stdout, reason = "an example talks to its reader")]

use tollgate::{Clock, Limiter, Micros};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), tollgate::LimitError> {
    let limiter = Limiter::requests_per_second(5).burst(1).build()?;
    let start = limiter.engine().clock().now();
    for call in 1..=6 {
        let decision = limiter.wait("paid-api", Micros::from_secs(2)).await;
        let after = limiter.engine().clock().now().since(start).as_micros() / 1_000;
        println!("call {call}: allowed {} after {after} ms", decision.allowed);
    }
    Ok(())
}
