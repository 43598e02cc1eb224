//! Measures in-process rate limiters side by side: speed, memory, and the
//! slowest decisions while a table grows.

mod child;
mod claims;
mod contender;
mod floors;
mod growth;
mod measure;
mod memory;
mod options;
mod own;
mod peers;
mod speed;
mod table;
mod workload;

use std::process::ExitCode;

use options::{Asked, HELP, Options};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match start(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

fn start(arguments: &[String]) -> Result<(), String> {
    if let [first, what, name, keys] = arguments
        && first == "child"
    {
        return child::answer(what, name, keys);
    }
    match Options::parse(arguments)? {
        Asked::Help => print!("{HELP}"),
        Asked::List => {
            for entry in contender::all() {
                println!("{}", entry.name);
            }
        }
        Asked::Run(options) => return run(&options),
    }
    Ok(())
}

/// Runs every part that was asked for, also after one that missed a goal.
fn run(options: &Options) -> Result<(), String> {
    let parts: [(bool, fn(&Options) -> bool); 3] =
        [(options.speed, speed::run), (options.memory, memory::run), (options.growth, growth::run)];
    let missed = parts.iter().filter(|(is_asked_for, run)| *is_asked_for && !run(options)).count();
    if missed == 0 { Ok(()) } else { Err("a claim does not hold: see FAIL above".to_string()) }
}
