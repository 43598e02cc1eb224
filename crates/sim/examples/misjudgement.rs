//! Measures how often the sliding counter is wrong, against the exact log, on tens of millions of requests.
//!
//! ```text
//! cargo run --release -p tollgate-sim --example misjudgement [requests per pattern]
//! ```
//!
//! The definitions of the columns are those of [`tollgate_sim::misjudgement`]; what came of it is in
//! `docs/accuracy.md`. The traces are seeded, so every run on one platform prints the same table.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a table is what this program is for")]

use std::io::{IsTerminal, stderr};

use tollgate_core::{LimitError, Micros, Timestamp};
use tollgate_sim::misjudgement::Comparison;
use tollgate_sim::workload::{Boundary, ByClient, ByPopularity, Diurnal, OnOff, Poisson, Request, Rng, Zipf};

/// Monday, 15 January 2024, 00:00 UTC.
const START: Timestamp = Timestamp::from_secs(1_705_276_800);
const SUB_WINDOWS: [u32; 4] = [1, 4, 10, 60];

/// A kind of traffic and the limit per minute that it meets.
struct Pattern {
    name: &'static str,
    limit: u64,
    requests: Box<dyn Iterator<Item = Request>>,
}

impl Pattern {
    fn new(name: &'static str, limit: u64, requests: impl Iterator<Item = Request> + 'static) -> Self {
        Self { name, limit, requests: Box::new(requests) }
    }
}

/// Ten thousand clients that nearly all stay below 100 a minute: spread evenly over the orders of magnitude from 0.1 to
/// `most` a minute, and one in a thousand at 1,000 a minute.
fn population(most: f64, seed: u64) -> impl Iterator<Item = Request> {
    let per_minute = move |client: u64| match client {
        abuser if abuser.is_multiple_of(1_000) => 1_000.0,
        ordinary => 0.1 * (most / 0.1).powf(Rng::new(ordinary).unit()),
    };
    ByClient::new((0..10_000).map(move |client| Poisson::new(per_minute(client) / 60.0, START, seed + client)))
}

fn patterns() -> Vec<Pattern> {
    let minute = Micros::MINUTE;
    let popular = |seed| ByPopularity::new(Poisson::new(2_000.0, START, seed), Zipf::new(100_000, 1.0), seed + 1);
    let whole_day = ByPopularity::new(Diurnal::new(10e6 / 86_400.0, 0.8, START, 5), Zipf::new(100_000, 1.0), 6);
    let at_the_limit = (0..1_000).map(|client| Poisson::new(100.0 / 60.0, START, 2_000_000 + client));
    let bursty = (0..2_000).map(move |client| {
        let (on, off) = (Micros::from_secs(5), Micros::from_secs(55));
        OnOff::new(20.0, on, off, START, 3_000_000 + client)
    });
    let adversaries =
        (0..1_000).map(move |client| Boundary::new(100, minute, Micros::SECOND, START, 4_000_000 + client));
    vec![
        Pattern::new("up to 50 %", 100, population(50.0, 1_000_000)),
        Pattern::new("up to 80 %", 100, population(80.0, 1_000_000)),
        Pattern::new("Zipf, lenient", 1_000, popular(1)),
        Pattern::new("Zipf, strict", 100, popular(3)),
        Pattern::new("Zipf, one day", 100, whole_day),
        Pattern::new("at the limit", 100, ByClient::new(at_the_limit)),
        Pattern::new("bursty", 100, ByClient::new(bursty)),
        Pattern::new("boundary", 100, ByClient::new(adversaries)),
    ]
}

/// A bar on the terminal, and nothing when there is none.
struct Progress {
    shown: bool,
    total: u64,
}

impl Progress {
    fn show(&self, name: &str, done: u64) {
        if self.shown && done.is_multiple_of(self.total.div_ceil(100).max(1)) {
            let percent = done * 100 / self.total;
            eprint!("\r{name:<16} [{:<50}] {percent:>3} %", "#".repeat(percent as usize / 2));
        }
    }

    fn clear(&self) {
        if self.shown {
            eprint!("\r{:<76}\r", "");
        }
    }
}

const HEAD: [&str; 2] = [
    "|denied|sub-|wrongly|wrongly|mis-|of that|verdicts|wrong if|mean|worst|admitted",
    "pattern|by log|win.|allowed|denied|judged|far off|differ|all count|error|window|vs. log",
];

/// Prints one line of the table.
fn row<'a>(cells: impl IntoIterator<Item = &'a str>) {
    let widths = [15, 8, 4, 8, 8, 8, 8, 8, 9, 8, 6, 9];
    let mut line = String::new();
    for (index, (cell, width)) in cells.into_iter().zip(widths).enumerate() {
        line += &if index == 0 { format!("{cell:<width$}") } else { format!(" {cell:>width$}") };
    }
    println!("{line}");
}

fn report(pattern: &str, limit: u64, comparison: &Comparison) {
    let percent = |share: f64, decimals: usize| format!("{:.decimals$}%", share * 100.0);
    for (index, (sub_windows, tally)) in comparison.tallies().enumerate() {
        let denied = percent(comparison.denied_exactly(), 3);
        let cells = [
            sub_windows.to_string(),
            percent(tally.share(tally.wrongly_allowed), 3),
            percent(tally.share(tally.wrongly_denied), 3),
            percent(tally.misjudged(), 3),
            percent(tally.share(tally.far_off), 3),
            percent(tally.share(tally.differs), 3),
            percent(tally.share(tally.wrong_when_all_count), 4),
            percent(tally.mean_error(), 2),
            percent(tally.worst_window as f64 / limit as f64, 0),
            percent(comparison.admitted_by(tally), 2),
        ];
        let first = if index == 0 { [pattern, &denied] } else { ["", ""] };
        row(first.into_iter().chain(cells.iter().map(String::as_str)));
    }
}

fn main() -> Result<(), LimitError> {
    let total = std::env::args().nth(1).and_then(|number| number.parse().ok()).unwrap_or(10_000_000);
    let progress = Progress { shown: stderr().is_terminal(), total };
    println!("{total} requests per pattern; share of all requests; limits per minute\n");
    HEAD.iter().for_each(|head| row(head.split('|')));
    for Pattern { name, limit, requests } in patterns() {
        let mut comparison = Comparison::new(limit, Micros::MINUTE, &SUB_WINDOWS)?;
        for (done, request) in (0..total).zip(requests) {
            progress.show(name, done);
            comparison.feed(request);
        }
        progress.clear();
        report(name, limit, &comparison);
    }
    Ok(())
}
