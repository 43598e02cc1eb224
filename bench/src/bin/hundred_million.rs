//! One hundred million live keys in one store: how much memory, how slow at worst, and whether all are remembered.
//!
//! `cargo run --release --bin hundred_million [KEYS]`

use std::fmt::Write;
use std::fs::read_to_string;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use tollgate::core::mix;
use tollgate::{Charge, Intent, Key, Limit, MemoryStore, Micros, Rate, Timestamp, TokenBucket};

const NOW: Timestamp = Timestamp::from_secs(1_700_000_000);
const BUDGET: usize = 4 << 30;

fn resident_bytes() -> u64 {
    let status = read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kilobytes| kilobytes.parse::<u64>().ok()).unwrap_or(0) * 1024
}

fn main() {
    let keys: u64 = std::env::args().nth(1).and_then(|keys| keys.parse().ok()).unwrap_or(100_000_000);
    let limit = Limit::new(TokenBucket::new(Rate::new(10, Micros::DAY))).expect("a limit");
    let store = MemoryStore::with_budget(BUDGET);
    let mut key = String::new();
    let mut charge = |number: u64, intent: Intent| {
        key.clear();
        let _ = write!(key, "user:{number:019}");
        let values = [key.as_bytes()];
        store.apply_one(&Charge::new(Key::new(1, &values), &limit), intent, NOW)
    };

    let before = resident_bytes();
    let start = Instant::now();
    let mut slowest = Duration::ZERO;
    let mut over = 0;
    for number in 0..keys {
        let begun = Instant::now();
        let outcome = charge(number, Intent::Spend);
        let took = begun.elapsed();
        slowest = slowest.max(took);
        over += u64::from(took > Duration::from_millis(1));
        assert!(outcome.allowed && outcome.remaining == 9 && !outcome.shared, "key {number}: {outcome:?}");
        if number % 1_000_000 == 0 && std::io::stderr().is_terminal() {
            eprint!("\r{} of {} million keys", number / 1_000_000, keys / 1_000_000);
        }
    }
    let took = start.elapsed();
    let resident = resident_bytes() - before;

    let looked_up = keys.min(1_000_000);
    let remembered = (0..looked_up).filter(|n| charge(mix(*n) % keys, Intent::Peek).remaining == 9).count();
    let fresh = charge(keys, Intent::Peek).remaining;

    eprintln!();
    println!("keys                 {keys}");
    println!(
        "resident             {resident} bytes, {:.1} per key, {:.2} GiB",
        resident as f64 / keys as f64,
        resident as f64 / (1u64 << 30) as f64
    );
    println!("budget in use        {} bytes", store.bytes_used());
    println!(
        "time                 {:.0} s, {:.0} ns per new key",
        took.as_secs_f64(),
        took.as_nanos() as f64 / keys as f64
    );
    println!("slowest decision     {:.3} ms by the wall; {over} took over 1 ms", slowest.as_secs_f64() * 1e3);
    println!("remembered           {remembered} of {looked_up} looked up; an unknown key has {fresh} left");
}
