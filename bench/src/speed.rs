//! Nanoseconds per decision, in several orders of keys, contenders interleaved.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::claims;
use crate::contender::{Allowance, Entry, FAST, FLOOR, GOVERNOR, Kind};
use crate::measure::{Runner, Timing};
use crate::options::Options;
use crate::table::Table;
use crate::workload::Workload;

const TRIAL: usize = 20_000;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Scenario {
    Hot,
    Uniform,
    Zipf,
    TwoThreads,
    Scattered,
}

impl Scenario {
    pub const ALL: [Scenario; 5] =
        [Scenario::Hot, Scenario::Uniform, Scenario::Zipf, Scenario::TwoThreads, Scenario::Scattered];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Scenario::Hot => "hot",
            Scenario::Uniform => "uniform",
            Scenario::Scattered => "scattered",
            Scenario::Zipf => "zipf",
            Scenario::TwoThreads => "two",
        }
    }

    pub fn title(self) -> &'static str {
        match self {
            Scenario::Hot => "one hot key",
            Scenario::Uniform => "uniform",
            Scenario::Scattered => "uniform, key strings scattered over memory",
            Scenario::Zipf => "Zipf(1.0)",
            Scenario::TwoThreads => "uniform, two threads",
        }
    }

    /// Decides `count` requests, starting with the one numbered `from`.
    fn run(self, runner: &dyn Runner, workload: &Workload, from: usize, count: usize) -> Timing {
        let here = from..from + count;
        match self {
            Scenario::Hot => runner.walk(&workload.hot[here]),
            Scenario::Uniform => runner.walk(&workload.uniform[here]),
            Scenario::Zipf => runner.walk(&workload.zipf[here]),
            Scenario::TwoThreads => {
                let too = &workload.uniform_too[here.clone()];
                runner.walk_together(&[&workload.uniform[here], too])
            }
            Scenario::Scattered => runner.jump(&workload.keys, &workload.order[here]),
        }
    }
}

/// Nanoseconds per decision of every round, by contender.
#[derive(Default)]
pub struct Results {
    rounds: HashMap<(Scenario, &'static str), Vec<f64>>,
    /// Of one thread alone, beside every round of two.
    alone: HashMap<&'static str, Vec<f64>>,
}

impl Results {
    fn rounds(&self, scenario: Scenario, name: &'static str) -> Option<&[f64]> {
        self.rounds.get(&(scenario, name)).map(Vec::as_slice)
    }

    fn median(&self, scenario: Scenario, name: &'static str) -> Option<f64> {
        median(self.rounds(scenario, name)?.iter().copied())
    }

    fn least(&self, scenario: Scenario, name: &'static str) -> Option<f64> {
        let rounds = self.rounds(scenario, name)?.iter();
        rounds.copied().min_by(f64::total_cmp)
    }

    /// The median of the ratios found in each round.
    pub fn ratio(&self, scenario: Scenario, name: &'static str, to: &'static str) -> Option<f64> {
        let rounds = self.rounds(scenario, name)?.iter();
        median(rounds.zip(self.rounds(scenario, to)?).map(|(of, to)| of / to))
    }

    /// How many times as much two threads decide as one does: the median of what was found in each round.
    pub fn speedup(&self, name: &'static str) -> Option<f64> {
        let alone = self.alone.get(name)?.iter();
        median(alone.zip(self.rounds(Scenario::TwoThreads, name)?).map(|(one, two)| one / two))
    }
}

fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// `false` if a claim does not hold.
pub fn run(options: &Options) -> bool {
    let key_count = if options.quick { 100_000 } else { 1_000_000 };
    let round = Duration::from_millis(if options.quick { 40 } else { 200 });
    let mut entries = options.entries(|entry| [GOVERNOR, FLOOR].contains(&entry.name));
    entries.retain(|entry| entry.kind != Kind::Growth);
    let scenarios = &options.scenarios;

    eprintln!("making {key_count} keys");
    let workload = Workload::new(key_count, 2 * key_count);
    // Since when every key has been asked for.
    let mut since = Instant::now();
    let runners: Vec<(Entry, Box<dyn Runner>)> = entries
        .into_iter()
        .map(|entry| {
            eprintln!("filling {}", entry.name);
            let runner = (entry.build)(key_count, FAST);
            if entry.kind != Kind::OneKey {
                runner.insert(key_count);
            }
            (entry, runner)
        })
        .collect();

    if !options.quick {
        settle();
    }
    let mut results = Results::default();
    let Allowance { units, seconds, burst } = FAST;
    for &scenario in scenarios {
        if since.elapsed() > Duration::from_secs(seconds / units) {
            eprintln!("not all keys are live any more: this took too long");
        }
        let began = Instant::now();
        measure(scenario, &runners, &workload, options.rounds, round, &mut results);
        if ![Scenario::Hot, Scenario::Zipf].contains(&scenario) {
            since = began;
        }
    }

    println!(
        "Speed: {key_count} keys of 24 bytes; {units} in {seconds} s and a burst of {burst} for each key, so that all keys"
    );
    println!(
        "are live and every decision is allowed and writes; median and least of {} rounds of about {} ms, contenders",
        options.rounds,
        round.as_millis()
    );
    println!("interleaved in each round; a ratio is the median of the rounds' ratios.\n");
    for &scenario in scenarios {
        print(scenario, &runners, &results);
    }
    claims::print(&results)
}

/// Waits until the system has made large pages where they were asked for. That takes it some ten seconds, as it does in
/// a server that has just come up; where there are none, it is over at once.
fn settle() {
    const PAUSE: Duration = Duration::from_secs(11);
    let large = || {
        let text = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("AnonHugePages:")).unwrap_or_default();
        line.split_whitespace().next().and_then(|kilobytes| kilobytes.parse::<u64>().ok()).unwrap_or(0)
    };
    let mut before = 0;
    for _ in 0..24 {
        std::thread::sleep(PAUSE);
        let now = large();
        eprintln!("{} MiB on large pages", now >> 10);
        if now == before {
            return;
        }
        before = now;
    }
}

fn measure(
    scenario: Scenario,
    runners: &[(Entry, Box<dyn Runner>)],
    workload: &Workload,
    rounds: usize,
    round: Duration,
    results: &mut Results,
) {
    let longest = workload.length;
    let counts: Vec<usize> = runners
        .iter()
        .map(|(_, runner)| {
            let trial = scenario.run(&**runner, workload, 0, TRIAL);
            let fits = round.as_nanos() as f64 / trial.ns_per_decision();
            (fits as usize).clamp(TRIAL, longest)
        })
        .collect();
    for number in 0..rounds {
        eprintln!("{}, round {} of {rounds}", scenario.title(), number + 1);
        let mut turns: Vec<_> = runners.iter().zip(&counts).collect();
        if number % 2 == 1 {
            turns.reverse();
        }
        for ((entry, runner), &count) in turns {
            if entry.kind == Kind::OneKey && scenario != Scenario::Hot {
                continue;
            }
            let from = number * count % (longest - count + 1);
            let time = |scenario: Scenario| {
                let timing = scenario.run(&**runner, workload, from, count);
                if timing.allowed * 1000 < timing.decisions * 999 {
                    eprintln!("{}: only {} of {} decisions were allowed", entry.name, timing.allowed, timing.decisions);
                }
                timing.ns_per_decision()
            };
            if scenario == Scenario::TwoThreads {
                results.alone.entry(entry.name).or_default().push(time(Scenario::Uniform));
            }
            results.rounds.entry((scenario, entry.name)).or_default().push(time(scenario));
        }
    }
}

fn print(scenario: Scenario, runners: &[(Entry, Box<dyn Runner>)], results: &Results) {
    println!("{}", scenario.title());
    let two = scenario == Scenario::TwoThreads;
    let mut header = vec!["", "ns/decision", "least", "to governor", "to floor"];
    if two {
        header.extend(["M/s", "to one thread"]);
    }
    let mut table = Table::new(&header);
    for (entry, _) in runners {
        let name = entry.name;
        let Some(ns) = results.median(scenario, name) else {
            continue;
        };
        let cell = |value: Option<f64>, digits: usize| value.map_or(String::new(), |value| format!("{value:.digits$}"));
        let mut row = vec![
            name.to_string(),
            cell(Some(ns), 1),
            cell(results.least(scenario, name), 1),
            cell(results.ratio(scenario, name, GOVERNOR), 2),
            cell(results.ratio(scenario, name, FLOOR), 2),
        ];
        if two {
            row.push(cell(Some(1000.0 / ns), 2));
            row.push(cell(results.speedup(name), 2));
        }
        table.row(row);
    }
    table.print();
}
