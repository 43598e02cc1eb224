//! How much work a decision is for Redis.

#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a report")]
#![allow(clippy::disallowed_methods, reason = "time is what is measured")]

mod cases;
mod instructions;
mod report;
#[path = "../../tests/server/mod.rs"]
mod server;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    instructions::run(&std::env::args().nth(1).unwrap_or_default()).await;
}
