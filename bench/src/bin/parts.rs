//! The parts of a decision measured alone: clocks, 24-byte hashes and
//! uncontended locks, in nanoseconds per call.
//!
//! `repeated` calls the part over and over, so that the processor overlaps
//! neighbouring calls. `chained` picks the next key from the last hash, so that
//! every call waits for the one before it: this is the part's latency, plus the
//! few nanoseconds of the first-level cache read that fetches the next key.

use std::hash::{BuildHasher, Hasher};
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime};

const ROUNDS: usize = 9;
const CALLS: u64 = 1_000_000;
const KEYS: usize = 64;

struct Part {
    name: &'static str,
    repeated: Box<dyn FnMut()>,
    chained: Option<Box<dyn FnMut()>>,
}

/// A part that takes no input.
fn plain<T>(name: &'static str, mut call: impl FnMut() -> T + 'static) -> Part {
    Part {
        name,
        repeated: Box::new(move || {
            for _ in 0..CALLS {
                black_box(call());
            }
        }),
        chained: None,
    }
}

/// A part that hashes a key.
fn hash(name: &'static str, call: impl Fn(&[u8]) -> u128 + Copy + 'static) -> Part {
    let keys: Vec<String> = (0..KEYS).map(|i| format!("user:{i:019}")).collect();
    let same = keys.clone();
    Part {
        name,
        repeated: Box::new(move || {
            for i in 0..CALLS as usize {
                black_box(call(keys[i % KEYS].as_bytes()));
            }
        }),
        chained: Some(Box::new(move || {
            let mut at = 0;
            for _ in 0..CALLS {
                let both = call(same[at].as_bytes());
                at = (both ^ (both >> 64)) as usize % KEYS;
            }
            black_box(at);
        })),
    }
}

/// Runs a built hasher over raw bytes, with no length or terminator mixed in.
fn with(build: &impl BuildHasher, key: &[u8]) -> u64 {
    let mut hasher = build.build_hasher();
    hasher.write(key);
    hasher.finish()
}

fn pair(high: u64, low: u64) -> u128 {
    u128::from(high) << 64 | u128::from(low)
}

fn clocks() -> Vec<Part> {
    let now = quanta::Clock::new();
    let raw = now.clone();
    let scaled = now.clone();
    let origin = scaled.raw();
    vec![
        plain("nothing (cost of the loop)", || ()),
        plain("quanta Clock::now", move || now.now()),
        plain("quanta Clock::raw", move || raw.raw()),
        plain("quanta raw, scaled to ns", move || scaled.delta_as_nanos(origin, scaled.raw())),
        plain("std Instant::now", Instant::now),
        plain("std SystemTime::now", SystemTime::now),
    ]
}

fn hashes() -> Vec<Part> {
    fn leak<T>(value: T) -> &'static T {
        Box::leak(Box::new(value))
    }
    let fold_a = leak(foldhash::quality::RandomState::default());
    let fold_b = leak(foldhash::quality::RandomState::default());
    let shared = foldhash::SharedSeed::global_random();
    let seeded_a = leak(foldhash::quality::SeedableRandomState::with_seed(1, shared));
    let secret: [u8; 192] = std::array::from_fn(|index| index as u8 ^ 0xa5);
    let own = leak(foldhash::SharedSeed::from_u64(black_box(7)));
    let seeded_b = leak(foldhash::quality::SeedableRandomState::with_seed(2, own));
    let rapid_a = leak(rapidhash::quality::RandomState::default());
    let rapid_b = leak(rapidhash::quality::RandomState::default());
    let sip = leak(siphasher::sip128::SipHasher13::new_with_keys(black_box(1), black_box(2)));
    let std_sip = leak(std::hash::RandomState::new());
    let seed = black_box(0x9e37_79b9_7f4a_7c15);
    vec![
        hash("read 24 bytes, no hash", |key| {
            let word = |i: usize| key[i..i + 8].try_into().map_or(0, u64::from_ne_bytes);
            u128::from(word(0) ^ word(8) ^ word(16))
        }),
        hash("foldhash quality x1", |key| u128::from(with(fold_a, key))),
        hash("foldhash quality x2", |key| pair(with(fold_a, key), with(fold_b, key))),
        hash("foldhash quality x2, own shared seeds", |key| pair(with(seeded_a, key), with(seeded_b, key))),
        hash("rapidhash quality x1", |key| u128::from(with(rapid_a, key))),
        hash("rapidhash quality x2", |key| pair(with(rapid_a, key), with(rapid_b, key))),
        hash("xxh3_64_with_seed", move |key| u128::from(xxhash_rust::xxh3::xxh3_64_with_seed(key, seed))),
        hash("xxh3_128_with_seed", move |key| xxhash_rust::xxh3::xxh3_128_with_seed(key, seed)),
        hash("xxh3_128_with_secret", move |key| xxhash_rust::xxh3::xxh3_128_with_secret(key, &secret)),
        hash("siphasher 1-3, 128 bits", |key| {
            let both = sip.hash(key);
            pair(both.h1, both.h2)
        }),
        hash("std RandomState (SipHash 1-3, 64 bits)", |key| u128::from(with(std_sip, key))),
    ]
}

fn locks() -> Vec<Part> {
    let word = AtomicU64::new(0);
    let parking_lot = parking_lot::Mutex::new(0u64);
    let std = std::sync::Mutex::new(0u64);
    let spin = spin::Mutex::<u64>::new(0);
    let read_write = parking_lot::RwLock::new(0u64);
    vec![
        plain("load + compare-exchange of a word", move || {
            let old = word.load(Ordering::Relaxed);
            word.compare_exchange(old, old + 1, Ordering::AcqRel, Ordering::Relaxed)
        }),
        plain("parking_lot Mutex, lock + unlock", move || {
            *parking_lot.lock() += 1;
        }),
        plain("std Mutex, lock + unlock", move || {
            if let Ok(mut value) = std.lock() {
                *value += 1;
            }
        }),
        plain("spin Mutex, lock + unlock", move || *spin.lock() += 1),
        plain("parking_lot RwLock, read + unlock", move || *read_write.read()),
    ]
}

fn main() {
    let mut parts: Vec<Part> = [clocks(), hashes(), locks()].into_iter().flatten().collect();
    let mut times = vec![(Vec::new(), Vec::new()); parts.len()];
    for _ in 0..ROUNDS {
        for (part, (repeated, chained)) in parts.iter_mut().zip(&mut times) {
            repeated.push(time(&mut part.repeated));
            if let Some(run) = &mut part.chained {
                chained.push(time(run));
            }
        }
    }
    println!("ns per call, {ROUNDS} rounds of {CALLS} calls, parts interleaved; the loop is not subtracted\n");
    println!("{:<40} {:>9} {:>9}   {:>9} {:>9}", "", "repeated", "", "chained", "");
    println!("{:<40} {:>9} {:>9}   {:>9} {:>9}", "part", "median", "least", "median", "least");
    for (part, (mut repeated, mut chained)) in parts.into_iter().zip(times) {
        let (median, least) = median_and_least(&mut repeated);
        print!("{:<40} {median:>9.1} {least:>9.1}", part.name);
        if chained.is_empty() {
            println!();
        } else {
            let (median, least) = median_and_least(&mut chained);
            println!("   {median:>9.1} {least:>9.1}");
        }
    }
}

fn time(run: &mut dyn FnMut()) -> f64 {
    let start = Instant::now();
    run();
    start.elapsed().as_nanos() as f64 / CALLS as f64
}

fn median_and_least(times: &mut [f64]) -> (f64, f64) {
    times.sort_by(f64::total_cmp);
    (times[times.len() / 2], times[0])
}
