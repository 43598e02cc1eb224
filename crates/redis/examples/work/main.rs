//! What a decision costs Redis and what comes through, beside a plain script: `scripts/bench redis`.
//!
//! The plain script is a token bucket as people write it, one `EVALSHA` per decision, with `HMGET`, `HSET` and
//! `PEXPIRE`. It is measured again beside every figure, in the same round, and what is reported is the median of the
//! ratios: a machine that others use is slow and quick by turns.

#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a report")]
#![allow(clippy::disallowed_methods, reason = "time is what is measured")]

mod cases;
mod instructions;
mod link;
mod logs;
mod memory;
mod processor;
mod report;
#[path = "../../tests/server/mod.rs"]
mod server;

use std::process::ExitCode;
use std::time::Instant;

use report::Goals;

const PARTS: [(&str, &str); 6] = [
    ("work", "processor time of redis-server per decision, 1 to 64 of them sharing a call"),
    ("link", "decisions per second of 64 callers, beside redis-benchmark"),
    ("latency", "the time of one decision, one after the other"),
    ("memory", "bytes per key"),
    ("logs", "processor time per decision and bytes per event on logs of 10 to 10,000 events"),
    ("instructions", "counted by callgrind (needs valgrind, minutes; only if asked for)"),
];

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let asked: Vec<String> = std::env::args().skip(1).collect();
    if asked.iter().any(|name| !PARTS.iter().any(|(known, _)| known == name)) {
        println!(
            "Usage: scripts/bench redis [PART...]\n\nMeasures all parts but the last (about three minutes), or these:\n"
        );
        PARTS.iter().for_each(|(name, what)| println!("  {name:<12} {what}"));
        let is_help = asked.iter().any(|name| name == "--help" || name == "-h");
        return if is_help { ExitCode::SUCCESS } else { ExitCode::from(2) };
    }
    let begun = Instant::now();
    let wanted = |part: &str| asked.iter().any(|name| name == part) || (asked.is_empty() && part != "instructions");
    let mut goals = Goals::default();
    if wanted("work") {
        processor::work(&mut goals).await;
    }
    if wanted("link") {
        link::speed(&mut goals).await;
    }
    if wanted("latency") {
        link::latency(&mut goals).await;
    }
    if wanted("memory") {
        memory::run().await;
    }
    if wanted("logs") {
        logs::run(&mut goals).await;
    }
    if wanted("instructions") {
        instructions::run().await;
    }
    let met = goals.print();
    println!("all of it took {:.0} s", begun.elapsed().as_secs_f64());
    if met { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
