//! Runs all rows of `tollgate_sim::chaos` on the store that tollgate uses, prints what came of them and writes it to a
//! file. By `scripts/chaos`, which says what can be asked for.

#![allow(clippy::expect_used, clippy::panic, reason = "it is a test")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it is a program")]

#[path = "../tests/chaos/maker.rs"]
mod maker;

use std::process::ExitCode;
use std::time::Duration;

use maker::Plain;
use tollgate_sim::chaos::rows::{self, Bench};
use tollgate_sim::chaos::{Plan, details, json, line, table};

/// What was asked for.
struct Arguments {
    rows: Option<Vec<String>>,
    report: String,
    per_second: u32,
    fault: Duration,
    judge_times: bool,
}

impl Arguments {
    fn read(mut given: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut arguments = Self {
            rows: None,
            report: "target/chaos-report.json".to_owned(),
            per_second: 5_000,
            fault: Duration::from_millis(1_500),
            judge_times: true,
        };
        while let Some(name) = given.next() {
            let mut value = || given.next().ok_or(format!("{name} needs a value"));
            match &*name {
                "--rows" => arguments.rows = Some(value()?.split(',').map(str::to_owned).collect()),
                "--report" => arguments.report = value()?,
                "--rate" => arguments.per_second = value()?.parse().map_err(|_| "--rate needs a number")?,
                "--fault-ms" => {
                    arguments.fault = Duration::from_millis(value()?.parse().map_err(|_| "--fault-ms needs a number")?);
                }
                "--no-times" => arguments.judge_times = false,
                _ => return Err(format!("what is {name}?")),
            }
        }
        Ok(arguments)
    }
}

fn main() -> ExitCode {
    let arguments = match Arguments::read(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    // What users get: a deadline of 5 ms.
    let plan = Plan { per_second: arguments.per_second, deadline: Duration::from_millis(5), ..Plan::default() };
    let bench = Bench::new(Plain, plan, arguments.fault);
    let rows = rows::all();
    let is_chosen = |name: &str| arguments.rows.as_ref().is_none_or(|chosen| chosen.iter().any(|one| one == name));
    let chosen: Vec<_> = rows.iter().filter(|row| is_chosen(row.name)).collect();
    if chosen.is_empty() {
        eprintln!("no such row; the rows are {:?}", rows.iter().map(|row| row.name).collect::<Vec<_>>());
        return ExitCode::from(2);
    }
    let mut judged = Vec::new();
    for row in chosen {
        let one = bench.run(row);
        println!("{}", line(&one, arguments.judge_times));
        print!("{}", details(&one));
        judged.push(one);
    }
    let judged = [bench.calm(), judged].concat();
    println!("\n{}", table(&judged, arguments.judge_times));
    if let Err(error) = std::fs::write(&arguments.report, json(&judged, arguments.judge_times)) {
        eprintln!("{}: {error}", arguments.report);
        return ExitCode::FAILURE;
    }
    let bad = judged.iter().filter(|row| !row.is_well(arguments.judge_times)).count();
    println!("{} rows, {bad} not as promised; {}", judged.len(), arguments.report);
    if bad == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
