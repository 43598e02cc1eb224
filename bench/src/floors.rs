//! Yardsticks: the least that a decision can cost on this machine.

use std::hash::{BuildHasher, Hasher};
use std::hint::black_box;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::contender::{Allowance, Contender, FAST, FLOOR, Key, Kind};

const WORDS: usize = 8 << 20;
const MICROS_PER_TOKEN: u64 = 1_000_000 * FAST.seconds / FAST.units;

/// Reads the key and does nothing else: the cost of the loop.
pub struct Empty;

impl Contender for Empty {
    const NAME: &'static str = "empty";
    const KIND: Kind = Kind::Floor;

    fn new(_keys: usize, _allowance: Allowance) -> Self {
        Empty
    }

    fn check(&self, key: &Key) -> bool {
        let sum = key
            .as_bytes()
            .chunks_exact(8)
            .filter_map(|word| word.try_into().ok())
            .fold(0u64, |sum, word| sum.wrapping_add(u64::from_ne_bytes(word)));
        black_box(sum) != 0
    }
}

/// The same, and a page of memory more whenever a table of 39 bytes per key would need one: what growing costs on this
/// machine whatever grows.
#[derive(Default)]
pub struct Fresh {
    keys: AtomicUsize,
    pages: Mutex<Vec<Box<[u8; PAGE]>>>,
}

const PAGE: usize = 4096;

impl Contender for Fresh {
    const NAME: &'static str = "fresh memory";
    const KIND: Kind = Kind::Growth;

    fn new(keys: usize, _allowance: Allowance) -> Self {
        Fresh { pages: Mutex::new(Vec::with_capacity(keys * 39 / PAGE + 1)), ..Fresh::default() }
    }

    fn check(&self, key: &Key) -> bool {
        if self.keys.fetch_add(1, Ordering::Relaxed).is_multiple_of(PAGE / 39) {
            self.pages.lock().expect("nobody panics here").push(Box::new([1; PAGE]));
        }
        Empty.check(key)
    }
}

/// A clock, a keyed hash and a flat table of words with no keys in it.
struct Words {
    clock: quanta::Clock,
    origin: u64,
    hash: foldhash::quality::RandomState,
    words: Vec<AtomicU64>,
}

impl Words {
    fn new() -> Self {
        let clock = quanta::Clock::new();
        Words {
            origin: clock.raw(),
            clock,
            hash: foldhash::quality::RandomState::default(),
            words: (0..WORDS).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    fn now_micros(&self) -> u64 {
        self.clock.delta_as_nanos(self.origin, self.clock.raw()) / 1000
    }

    fn word(&self, key: &str) -> &AtomicU64 {
        let mut hasher = self.hash.build_hasher();
        hasher.write(key.as_bytes());
        &self.words[hasher.finish() as usize % WORDS]
    }
}

/// Clock, hash and one compare-exchange: no limiter, only what none can avoid.
pub struct Floor(Words);

impl Contender for Floor {
    const NAME: &'static str = FLOOR;
    const KIND: Kind = Kind::Floor;

    fn new(_keys: usize, _allowance: Allowance) -> Self {
        Floor(Words::new())
    }

    fn check(&self, key: &Key) -> bool {
        let now = self.0.now_micros();
        let word = self.0.word(key);
        let old = word.load(Ordering::Relaxed);
        word.compare_exchange(old, now, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

/// The same with a GCRA step: a limiter that takes colliding keys for one.
pub struct FloorGcra(Words);

impl Contender for FloorGcra {
    const NAME: &'static str = "floor+gcra";
    const KIND: Kind = Kind::Floor;

    fn new(_keys: usize, _allowance: Allowance) -> Self {
        FloorGcra(Words::new())
    }

    fn check(&self, key: &Key) -> bool {
        let now = self.0.now_micros();
        let word = self.0.word(key);
        let mut arrival = word.load(Ordering::Relaxed);
        loop {
            let next = arrival.max(now) + MICROS_PER_TOKEN;
            if next > now + FAST.burst * MICROS_PER_TOKEN {
                return false;
            }
            match word.compare_exchange_weak(arrival, next, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(found) => arrival = found,
            }
        }
    }
}
