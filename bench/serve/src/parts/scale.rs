//! Whether a million keys or ten thousand rules are felt, and what they take.

use std::time::Duration;

use super::{FEW, MANY, Run, calls, commands, found, grpc, http, requests, resp};
use crate::contest::{Contender, measure};
use crate::load::{self, Keys, Ran, Shape, Speak};
use crate::process::Server;
use crate::report::{Bound, Table};
use crate::rules;

const RULES: usize = 10_000;
const KEYS: u64 = 1_000_000;
const ROUNDS: usize = 11;

pub(crate) fn run(run: &mut Run) -> Result<(), String> {
    let few = run.tollgate("lyft.yaml", &rules::lyft(), &[])?;
    let idle = few.resident()?;
    let full = run.tollgate("full.yaml", &rules::lyft(), &[])?;
    fill(&full, &grpc::speak, found(full.grpc)?)?;
    let with_keys = full.resident()?;
    let throttled = run.tollgate("full.yaml", &rules::lyft(), &[])?;
    fill(&throttled, &resp::throttle, found(throttled.resp)?)?;
    let many = run.tollgate("many.yaml", &rules::many(RULES, 0), &[])?;
    let with_rules = many.resident()?;

    let by_rule = Keys::Any(RULES as u64);
    let shapes: [(&str, Speak<'_>, fn(Keys) -> Shape); 3] = [
        ("gRPC", &grpc::speak, calls),
        ("RESP, depth 16", &resp::throttle, |keys| commands(16, keys)),
        ("HTTP", &http::speak, requests),
    ];
    let mut contenders = Vec::new();
    for (protocol, speak, shape) in shapes {
        // Each has its own million: the same user is another key for a rule and for CL.THROTTLE.
        let full = if protocol.starts_with("RESP") { &throttled } else { &full };
        let servers = [("few keys", &few, FEW), ("1,000,000 keys", full, MANY), ("10,000 rules", &many, by_rule)];
        for (what, server, keys) in servers {
            let address = match protocol {
                "gRPC" => server.grpc,
                "HTTP" => server.http,
                _ => server.resp,
            };
            let (name, shape) = (format!("{protocol}, {what}"), shape(keys));
            contenders.push(Contender {
                name,
                address: found(address)?,
                process: server.id(),
                behind: None,
                speak,
                shape,
            });
        }
    }
    let results = measure(&contenders, ROUNDS)?;
    results.print(
        "Scale: tollgate with a thousand keys of one rule, with a million keys alive, with a rule for each of 10,000",
    );
    for (protocol, ..) in shapes {
        for what in ["1,000,000 keys", "10,000 rules"] {
            let (a, b) = (format!("{protocol}, {what}"), format!("{protocol}, few keys"));
            let cpu = results.ratio(&a, &b, Ran::cpu);
            run.goals.add(
                format!("{protocol}: CPU per request with {what}, in that with few"),
                Bound::AtMost(1.15),
                "x",
                cpu,
            );
        }
    }
    let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    println!("Memory: the resident set\n");
    let mut table = Table::new(&["", "MiB"]);
    for (what, bytes) in
        [("idle, one rule", idle), ("after 1,000,000 keys", with_keys), ("idle, 10,000 rules", with_rules)]
    {
        table.row(vec![what.to_owned(), format!("{:.1}", mebibytes(bytes))]);
    }
    table.print();
    run.goals.add("resident after 1,000,000 keys", Bound::Below(80.0), " MiB", mebibytes(with_keys));
    run.goals.add("resident when idle", Bound::Below(15.0), " MiB", mebibytes(idle));
    Ok(())
}

/// Asks for each key once.
fn fill(server: &Server, speak: Speak<'_>, address: std::net::SocketAddr) -> Result<(), String> {
    let shape = Shape { connections: 8, depth: 64, in_batches: false, keys: Keys::Once(KEYS) };
    let ran = load::run(address, (server.id(), None), speak, shape, Duration::ZERO, Duration::ZERO)?;
    if ran.answers == KEYS { Ok(()) } else { Err(format!("{} of {KEYS} keys were answered", ran.answers)) }
}
