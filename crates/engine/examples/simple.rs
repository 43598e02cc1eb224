//! One limit for many keys.
//!
//! `cargo run -p tollgate --example simple`
#![allow(clippy::print_stdout, reason = "an example talks to its reader")]

use tollgate::Limiter;

fn main() -> Result<(), tollgate::LimitError> {
    let limiter = Limiter::requests_per_second(5).burst(10).build()?;

    if limiter.allow("user-42") {
        // go ahead
    }

    for request in 2..=12 {
        let outcome = limiter.check("user-42");
        match outcome.retry_after {
            Some(_) if outcome.allowed => println!("request {request}: allowed, {} left", outcome.remaining),
            Some(wait) => println!("request {request}: denied, try again in {wait}"),
            None => println!("request {request}: denied, and waiting will not help"),
        }
    }
    println!("user-43 is another key: {} left", limiter.check("user-43").remaining);
    Ok(())
}
