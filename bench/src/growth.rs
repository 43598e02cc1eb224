//! The slowest decisions while a table grows from nothing, each contender in
//! processes of its own: one timed by the wall, one by the thread's CPU time,
//! which does not count the moments when the machine ran something else.
//!
//! tollgate grows several times over in a third process, always by the same keys under the same secret, so that every
//! pass does the same work at the same decision. What a decision takes at least, over all passes, is what it takes by
//! itself: a machine that stops for a moment does not stop at the same decision each time. The slowest of these is held
//! against the goal.

use std::sync::LazyLock;
use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};

use crate::child;
use crate::claims;
use crate::contender::{Contender, Entry, Kind, SLOW};
use crate::memory::short;
use crate::options::Options;
use crate::own;
use crate::table::Table;

/// The control: the same loop with nothing in it.
const CONTROL: &str = "empty";
/// Nanoseconds.
const LONG: u32 = 1_000_000;
/// How often tollgate grows.
const PASSES: usize = 5;

/// `false` if a claim does not hold.
pub fn run(options: &Options) -> bool {
    let keys = if options.quick { 1_000_000 } else { 10_000_000 };
    let mut table = Table::new(&["", "p99.99 us", "max us", "over 1 ms", "CPU p99.99 us", "CPU max us", "over 1 ms"]);
    let is_control = |entry: &Entry| entry.name == CONTROL || entry.kind == Kind::Growth;
    for entry in options.entries(is_control) {
        if !(is_control(&entry) || entry.kind == Kind::Keyed) || !child::fits(&entry, keys) {
            continue;
        }
        let name = match entry.name {
            CONTROL => "(nothing: the noise)",
            _ if entry.kind == Kind::Growth => "(as much fresh memory)",
            name => name,
        };
        let mut row = vec![name.to_string()];
        for what in ["growth", "growth-cpu"] {
            let found = child::run(what, &entry, keys);
            match found.as_deref() {
                Some(&[percentile, most, slow]) => row.extend([
                    format!("{:.1}", percentile as f64 / 1000.0),
                    format!("{:.1}", most as f64 / 1000.0),
                    slow.to_string(),
                ]),
                _ => row.extend(["-", "-", "-"].map(String::from)),
            }
        }
        table.row(row);
    }
    let repeated = options.entries(|_| false).into_iter().find(|entry| entry.name == own::Tollgate::NAME);
    let least =
        repeated.filter(|entry| child::fits(entry, keys)).and_then(|entry| child::run("growth-least", &entry, keys));
    println!(
        "Growth: single decisions while a table grows from 0 to {} keys, by the wall and by the thread's",
        short(keys)
    );
    println!("CPU time (its clock costs more, and its reading is included).\n");
    table.print();
    let mut slowest = None;
    if let Some(&[percentile, most, slow]) = least.as_deref() {
        let (percentile, most) = (percentile as f64 / 1000.0, most as f64 / 1000.0);
        println!(
            "What each of tollgate's decisions takes at least in {PASSES} passes over the same keys, by the wall:"
        );
        println!("p99.99 {percentile:.1} us, max {most:.1} us, over 1 ms {slow}");
        slowest = Some(most / 1000.0);
    }
    let claim = "growth: the slowest decision of tollgate takes at most 1 ms by itself";
    let holds = claims::verdict(claim, slowest, |most| most <= f64::from(LONG) / 1e6);
    println!();
    holds
}

/// The 99.99th percentile and the maximum in nanoseconds, and how many were slow.
pub fn measure(entry: &Entry, keys: usize, clock: fn() -> u64) -> Vec<u64> {
    summary((entry.build)(keys, SLOW).insert_timed(keys, clock))
}

/// The same of what each decision takes at least.
pub fn measure_least(entry: &Entry, keys: usize) -> Vec<u64> {
    let pass = || (entry.build)(keys, SLOW).insert_timed(keys, wall);
    let mut least = pass();
    for _ in 1..PASSES {
        least.iter_mut().zip(pass()).for_each(|(least, time)| *least = time.min(*least));
    }
    summary(least)
}

fn summary(mut times: Vec<u32>) -> Vec<u64> {
    let keys = times.len();
    let slow = times.iter().filter(|&&time| time > LONG).count();
    let most = times.iter().copied().max().unwrap_or(0);
    let at = keys - keys / 10_000 - 1;
    let (_, percentile, _) = times.select_nth_unstable(at);
    vec![u64::from(*percentile), u64::from(most), slow as u64]
}

pub fn wall() -> u64 {
    static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
    ORIGIN.elapsed().as_nanos() as u64
}

pub fn cpu() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
