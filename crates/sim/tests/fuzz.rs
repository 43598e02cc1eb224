//! A bounded, seeded run of the fuzz targets, built with overflow checks like all tests.
//!
//! For a longer one, guided by coverage: `cargo +nightly fuzz run step` in the root of the repository, or `rule_text`
//! or `rule_matching` instead of `step`.

#![allow(clippy::panic, reason = "a test fails by panicking")]

use tollgate_core::mix;
use tollgate_sim::fuzz::fuzz_one;
use tollgate_sim::laws::Kept;
use tollgate_sim::rules::{fuzz_matching, fuzz_text};

/// Bytes of the longest input.
const LONGEST: u64 = 512;

/// A file that has most of the words, to be damaged.
const RULES: &str = include_str!("../../rules/tests/examples/own.yaml");
const LYFT_RULES: &str = include_str!("../../rules/tests/examples/lyft.yaml");

fn inputs(otherwise: u64) -> u64 {
    std::env::var("TOLLGATE_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(otherwise)
}

/// Draws numbers, the same in every run.
fn numbers() -> impl FnMut() -> u64 {
    let mut drawn = 0;
    move || {
        drawn += 1;
        mix(drawn)
    }
}

fn random(draw: &mut impl FnMut() -> u64) -> Vec<u8> {
    let length = draw() % LONGEST;
    (0..length.div_ceil(8)).flat_map(|_| draw().to_le_bytes()).collect()
}

#[expect(clippy::print_stdout, reason = "says how much was tried")]
fn run(inputs: u64, fuzz: fn(&[u8]) -> Kept, mut input: impl FnMut() -> Vec<u8>) {
    for number in 0..inputs {
        if let Err(nonsense) = fuzz(&input()) {
            panic!("input {number}: {nonsense}");
        }
    }
    println!("{inputs} inputs");
}

#[test]
fn any_bytes_have_an_answer() {
    let mut draw = numbers();
    run(inputs(50_000), fuzz_one, || random(&mut draw));
}

#[test]
fn any_bytes_are_rules_or_are_refused_in_words() {
    let mut draw = numbers();
    run(inputs(3_000), fuzz_text, || random(&mut draw));
}

/// Bytes changed, cut out and put in again elsewhere.
#[test]
fn damaged_rules_are_read_or_refused_in_words() {
    let mut draw = numbers();
    run(inputs(1_500), fuzz_text, || {
        let mut bytes = if draw().is_multiple_of(2) { RULES } else { LYFT_RULES }.as_bytes().to_vec();
        for _ in 0..1 + draw() % 6 {
            let place = |draw: u64, length: usize| (draw % (length as u64 + 1)) as usize;
            let (from, to) = (place(draw(), bytes.len()), place(draw(), bytes.len()));
            match draw() % 4 {
                0 => bytes.truncate(from.max(1)),
                1 => bytes.insert(from, b"\n:{}[]&*\"\t- 0\xff!|"[(draw() % 16) as usize]),
                2 => drop(bytes.drain(from.min(to)..from.max(to).min(from.min(to) + 40))),
                _ => {
                    let part = bytes[from.min(to)..from.max(to).min(from.min(to) + 40)].to_vec();
                    let at = place(draw(), bytes.len());
                    bytes.splice(at..at, part);
                }
            }
        }
        bytes
    });
}

#[test]
fn arbitrary_rules_answer_as_the_model_does() {
    let mut draw = numbers();
    run(inputs(4_000), fuzz_matching, || random(&mut draw));
}
