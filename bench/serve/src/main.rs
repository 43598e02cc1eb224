//! `scripts/bench serve [PART...]`: the numbers of the service, what was wanted of each, and exit code 1 if one is missed.

use std::process::ExitCode;
use std::time::Instant;

use tollgate_bench_serve::parts::{PARTS, Run};
use tollgate_bench_serve::process::{Cores, Scratch, tollgate};
use tollgate_bench_serve::report::Goals;

fn main() -> ExitCode {
    let asked: Vec<String> = std::env::args().skip(1).collect();
    let unknown = asked.iter().any(|name| !PARTS.iter().any(|(known, ..)| known == name));
    if unknown {
        println!("Usage: scripts/bench serve [PART...]\n\nMeasures all parts (about five minutes), or these:\n");
        PARTS.iter().for_each(|(name, what, _)| println!("  {name:<8} {what}"));
        let is_help = asked.iter().any(|name| name == "--help" || name == "-h");
        return if is_help { ExitCode::SUCCESS } else { ExitCode::from(2) };
    }
    match run(&asked) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(asked: &[String]) -> Result<bool, String> {
    let started = Instant::now();
    if !tollgate().exists() {
        return Err(format!("{} is missing: cargo build --release", tollgate().display()));
    }
    let cores = Cores::find()?;
    Cores::go_to(&[cores.load])?;
    println!(
        "Servers on core {}, the load on core {}; CPU time is that of the server, in user and system mode.\n",
        cores.server, cores.load
    );
    let mut run = Run { cores, scratch: Scratch::new()?, goals: Goals::default() };
    for (name, _, part) in PARTS {
        if asked.is_empty() || asked.iter().any(|one| one == name) {
            part(&mut run).map_err(|error| format!("{name}: {error}"))?;
        }
    }
    let all_met = run.goals.print();
    println!("\nall of it took {:.0} s", started.elapsed().as_secs_f64());
    Ok(all_met)
}
