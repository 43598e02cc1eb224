//! Measurements that need a process of their own: the program runs itself again
//! with `child WHAT NAME KEYS` and reads the numbers that it prints.

use std::process::{Command, Stdio};

use crate::contender::{Entry, all};

/// Runs `what` on `entry` in a fresh process. None if it failed, with its
/// reason already on stderr.
pub fn run(what: &str, entry: &Entry, keys: usize) -> Option<Vec<u64>> {
    eprintln!("{what}: {} with {keys} keys", entry.name);
    let output = Command::new(std::env::current_exe().ok()?)
        .args(["child", what, entry.name, &keys.to_string()])
        .stderr(Stdio::inherit())
        .output()
        .ok()?;
    if !output.status.success() {
        eprintln!("{what}: {} failed: {}", entry.name, output.status);
        return None;
    }
    let text = String::from_utf8(output.stdout).ok()?;
    text.split_whitespace().map(|n| n.parse().ok()).collect()
}

/// The other side of [`run`].
pub fn answer(what: &str, name: &str, keys: &str) -> Result<(), String> {
    let entry = all().into_iter().find(|entry| entry.name == name);
    let entry = entry.ok_or("no such contender")?;
    let keys = keys.parse().map_err(|_| "not a number of keys")?;
    let numbers = match what {
        "memory" => crate::memory::measure(&entry, keys),
        "growth" => crate::growth::measure(&entry, keys, crate::growth::wall),
        "growth-least" => crate::growth::measure_least(&entry, keys),
        "growth-cpu" => crate::growth::measure(&entry, keys, crate::growth::cpu),
        _ => return Err("no such measurement".to_string()),
    };
    let numbers: Vec<String> = numbers.iter().map(u64::to_string).collect();
    println!("{}", numbers.join(" "));
    Ok(())
}

/// Whether `keys` keys of this contender are likely to fit in memory.
pub fn fits(entry: &Entry, keys: usize) -> bool {
    let free = crate::memory::available().unwrap_or(u64::MAX);
    let fits = (keys * entry.bytes_per_key) as u64 * 5 / 4 < free;
    if !fits {
        eprintln!("{} with {keys} keys may not fit in memory: skipped", entry.name);
    }
    fits
}
