//! How long answers take while the rules are replaced every second, beside when they are not.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use super::{Run, calls, found, grpc};
use crate::load::{Keys, Usage};
use crate::paced::paced;
use crate::report::{Bound, Table, median};
use crate::rules;

const RULES: usize = 1_000;
const RATE: u64 = 10_000;
/// As long as it takes until the rules change again.
const PHASE: Duration = Duration::from_secs(1);
const PHASES: usize = 30;

pub(crate) fn run(run: &mut Run) -> Result<(), String> {
    let server = run.tollgate("reload.yaml", &rules::many(RULES, 0), &[])?;
    let address = found(server.grpc)?;
    // The percentiles of a phase, and how much of the cores went to others meanwhile.
    let ask = |time| {
        let usage = Usage::new(server.id(), None)?;
        let took = paced(address, &grpc::speak, calls(Keys::Any(RULES as u64)), RATE, time)?;
        Ok::<_, String>((usage.elapsed()?.2, percentiles(&took)))
    };
    ask(Duration::from_secs(1))?;
    let mut found = [Vec::new(), Vec::new()];
    let texts = [0, 1].map(|version| rules::many(RULES, version));
    let mut version = 0;
    for _ in 0..PHASES {
        found[0].push(ask(PHASE)?);
        let (stop, stopped) = channel::<()>();
        let took = std::thread::scope(|scope| {
            let (scratch, texts, version) = (&run.scratch, &texts, &mut version);
            let writer = scope.spawn(move || {
                // On the core of the load, where it takes the turn of a call or two.
                loop {
                    *version += 1;
                    scratch.write("reload.yaml", &texts[*version % 2])?;
                    if !matches!(stopped.recv_timeout(Duration::from_secs(1)), Err(RecvTimeoutError::Timeout)) {
                        return Ok::<_, String>(());
                    }
                }
            });
            let took = ask(PHASE);
            drop(stop);
            writer.join().map_err(|_| "the writer failed".to_owned())??;
            took
        })?;
        found[1].push(took);
    }
    let loaded = reloads(super::found(server.admin)?)?;
    println!(
        "Reload: gRPC at {RATE} calls a second while {RULES} rules are rewritten every second ({loaded} times loaded)"
    );
    println!(
        "microseconds from when a call was due to its answer; median of the quieter half of {PHASES} phases of {PHASE:?}\n"
    );
    let mut table = Table::new(&["", "p50", "p99", "p99.9", "slowest", "others"]);
    let mut p99 = [0.0; 2];
    for ((name, found), p99) in ["quiet", "reloading"].iter().zip(&mut found).zip(&mut p99) {
        // Where processors are shared with other machines they are gone for some milliseconds, a few times a second,
        // which is all that a p99 then shows. Of no interest, and the same for both.
        found.sort_by(|(_, a), (_, b)| a[1].total_cmp(&b[1]));
        found.truncate(PHASES / 2);
        let figure = |at: usize| median(found.iter().map(|(_, phase): &(f64, [f64; 4])| phase[at]).collect());
        *p99 = figure(1);
        let others = median(found.iter().map(|(others, _)| *others).collect());
        let cells = (0..4).map(|at| format!("{:.0}", figure(at)));
        table.row([name.to_string()].into_iter().chain(cells).chain([format!("{:.0} %", others * 100.0)]).collect());
    }
    table.print();
    run.goals.add("p99 while reloading, in quiet times'", Bound::AtMost(1.2), "x", p99[1] / p99[0]);
    Ok(())
}

/// Microseconds of p50, p99, p99.9 and the slowest.
fn percentiles(sorted: &[Duration]) -> [f64; 4] {
    let at = |share: f64| sorted.get(((sorted.len() as f64 * share) as usize).min(sorted.len().saturating_sub(1)));
    [0.5, 0.99, 0.999, 1.0].map(|share| at(share).map_or(f64::NAN, |took| took.as_nanos() as f64 / 1e3))
}

/// How often the server says that it loaded rules.
fn reloads(admin: std::net::SocketAddr) -> Result<String, String> {
    let metrics = super::start::get(admin, "/metrics").map_err(|error| error.to_string())?;
    let line =
        metrics.lines().find(|line| line.starts_with("tollgate_rules_version") || line.contains("reloads_total"));
    Ok(line.and_then(|line| line.split(' ').next_back()).unwrap_or("an unknown number of").to_owned())
}
