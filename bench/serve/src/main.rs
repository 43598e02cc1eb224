//! `scripts/bench serve [PART...]` and `scripts/bench gateway [PART...]`: the numbers of the service and of the
//! gateway, what was wanted of each, and exit code 1 if one is missed.

use std::process::ExitCode;
use std::time::Instant;

use tollgate_bench_serve::parts::{OF_THE_GATEWAY, PARTS, Part, Run};
use tollgate_bench_serve::process::{Cores, Scratch, tollgate};
use tollgate_bench_serve::report::Goals;

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let which = args.next().unwrap_or_default();
    let asked: Vec<String> = args.collect();
    let parts = || PARTS.iter().filter(|(name, ..)| OF_THE_GATEWAY.contains(name) == (which == "gateway"));
    let unknown = asked.iter().any(|name| !parts().any(|(known, ..)| known == name));
    if unknown || !["serve", "gateway"].contains(&&*which) {
        println!("Usage: scripts/bench {which} [PART...]\n\nMeasures all parts (a few minutes), or these:\n");
        parts().for_each(|(name, what, _)| println!("  {name:<8} {what}"));
        let is_help = asked.iter().any(|name| name == "--help" || name == "-h");
        return if is_help { ExitCode::SUCCESS } else { ExitCode::from(2) };
    }
    let chosen: Vec<_> = parts().filter(|(name, ..)| asked.is_empty() || asked.iter().any(|one| one == name)).collect();
    match run(&chosen) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(parts: &[&Part]) -> Result<bool, String> {
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
    for (name, _, part) in parts {
        part(&mut run).map_err(|error| format!("{name}: {error}"))?;
    }
    let all_met = run.goals.print();
    println!("\nall of it took {:.0} s", started.elapsed().as_secs_f64());
    Ok(all_met)
}
