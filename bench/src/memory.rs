//! Resident bytes per live key, each count in a process of its own.

use std::fs::read_to_string;

use crate::child;
use crate::claims;
use crate::contender::{Contender, Entry, Kind, SLOW};
use crate::options::Options;
use crate::own::Tollgate;
use crate::table::Table;

/// Bytes that a live key of tollgate takes at most, all included, where there are a million or more.
const MOST_BYTES: f64 = 40.0;

/// `false` if a claim does not hold.
pub fn run(options: &Options) -> bool {
    let counts: &[usize] = if options.quick { &[100_000, 1_000_000] } else { &[1_000_000, 10_000_000] };
    let mut header = vec![String::new()];
    for keys in counts {
        header.push(format!("B/key, {}", short(*keys)));
        header.push("at peak".to_string());
    }
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    let mut table = Table::new(&header);
    let mut claimed = Vec::new();
    for entry in options.entries(|_| false) {
        if entry.kind != Kind::Keyed {
            continue;
        }
        let mut row = vec![entry.name.to_string()];
        for &keys in counts {
            let found = child::fits(&entry, keys).then(|| child::run("memory", &entry, keys)).flatten();
            let per_key = |at: usize| Some(*found.as_ref()?.get(at)? as f64 / keys as f64);
            row.extend((0..2).map(|at| per_key(at).map_or("-".to_string(), |bytes| format!("{bytes:.1}"))));
            if entry.name == Tollgate::NAME && keys >= 1_000_000 {
                claimed.push((keys, per_key(0)));
            }
        }
        table.row(row);
    }
    println!("Memory: growth of the resident set per live key of 24 bytes, the key included; a fresh process");
    println!("for each count; the peak is what growing the table took for a while.\n");
    table.print();
    let mut hold = true;
    for (keys, bytes) in claimed {
        let claim = format!("memory: a key of tollgate takes at most {MOST_BYTES:.0} bytes at {} keys", short(keys));
        hold &= claims::verdict(&claim, bytes, |bytes| bytes <= MOST_BYTES);
    }
    println!();
    hold
}

/// 1M for 1000000.
pub fn short(keys: usize) -> String {
    if keys.is_multiple_of(1_000_000) { format!("{}M", keys / 1_000_000) } else { format!("{}k", keys / 1000) }
}

/// Resident bytes gained by `keys` keys, at the end and at most.
pub fn measure(entry: &Entry, keys: usize) -> Vec<u64> {
    let read = |field| status("self/status", field).unwrap_or(0);
    let before = read("VmRSS:");
    let runner = (entry.build)(keys, SLOW);
    runner.insert(keys);
    vec![read("VmRSS:").saturating_sub(before), read("VmHWM:").saturating_sub(before)]
}

/// Bytes of memory that the machine could still give.
pub fn available() -> Option<u64> {
    status("meminfo", "MemAvailable:")
}

/// A field counted in kB, from a file under /proc.
fn status(file: &str, field: &str) -> Option<u64> {
    let text = read_to_string(format!("/proc/{file}")).ok()?;
    let line = text.lines().find(|line| line.starts_with(field))?;
    let kilobytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kilobytes * 1024)
}
