//! The command line.

use crate::contender::{Entry, all};
use crate::speed::Scenario;

pub const HELP: &str = "\
Measures in-process rate limiters side by side and prints tables.

usage: tollgate-bench [speed|memory|growth|all] [options]

  speed    ns per decision: one hot key, 1M keys uniform and Zipf, two threads
  memory   resident bytes per live key, at 1M and 10M keys
  growth   the slowest single decisions while a table grows to 10M keys
  all      all three (also when nothing is named)

options:
  --quick              a tenth of the keys and shorter rounds
  --only NAME          only this contender; repeat it for more (speed keeps
                       governor and the floor, to which it gives ratios)
  --scenario NAME      speed: only this scenario; repeat it for more
                       hot        one key
                       uniform    random keys; requests lie in memory in order
                       zipf       the same, Zipf with exponent 1.0
                       two        uniform in two threads at once
                       scattered  uniform, but the key strings are cold too
  --rounds N           speed: rounds to take the median of (5)
  --list               print the names of the contenders
  -h, --help           print this

Progress goes to stderr, tables to stdout.
";

pub struct Options {
    pub speed: bool,
    pub memory: bool,
    pub growth: bool,
    pub quick: bool,
    pub rounds: usize,
    pub scenarios: Vec<Scenario>,
    only: Vec<String>,
}

/// What the command line asks for.
pub enum Asked {
    Run(Options),
    Help,
    List,
}

impl Options {
    pub fn parse(arguments: &[String]) -> Result<Asked, String> {
        let mut options = Options {
            speed: false,
            memory: false,
            growth: false,
            quick: false,
            rounds: 5,
            scenarios: Vec::new(),
            only: Vec::new(),
        };
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
            match argument.as_str() {
                "speed" => options.speed = true,
                "memory" => options.memory = true,
                "growth" => options.growth = true,
                "all" => options.everything(),
                "--quick" => options.quick = true,
                "--only" => options.only.push(contender(value()?)?),
                "--scenario" => options.scenarios.push(scenario(value()?)?),
                "--rounds" => options.rounds = rounds(value()?)?,
                "--list" => return Ok(Asked::List),
                "-h" | "--help" | "help" => return Ok(Asked::Help),
                other => return Err(format!("{other}: not understood; try --help")),
            }
        }
        if !(options.speed || options.memory || options.growth) {
            options.everything();
        }
        if options.scenarios.is_empty() {
            options.scenarios = Scenario::ALL.to_vec();
        }
        Ok(Asked::Run(options))
    }

    fn everything(&mut self) {
        (self.speed, self.memory, self.growth) = (true, true, true);
    }

    /// The contenders asked for, and those that `keep` wants in any case.
    pub fn entries(&self, keep: impl Fn(&Entry) -> bool) -> Vec<Entry> {
        let asked = |entry: &Entry| self.only.is_empty() || self.only.iter().any(|name| name == entry.name);
        let mut entries = all();
        entries.retain(|entry| asked(entry) || keep(entry));
        entries
    }
}

fn contender(name: &str) -> Result<String, String> {
    let known = all().iter().any(|entry| entry.name == name);
    if known { Ok(name.to_string()) } else { Err(format!("{name}: no such contender; --list prints their names")) }
}

fn scenario(name: &str) -> Result<Scenario, String> {
    let mut scenarios = Scenario::ALL.into_iter();
    scenarios.find(|scenario| scenario.name() == name).ok_or(format!("{name}: no such scenario; try --help"))
}

fn rounds(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(rounds) if rounds > 0 => Ok(rounds),
        _ => Err(format!("{text}: not a number of rounds")),
    }
}
