//! A bounded, seeded run of the fuzz target, built with overflow checks like all tests.
//!
//! For a longer one, guided by coverage: `cargo +nightly fuzz run step` in the root of the repository.

use tollgate_core::mix;
use tollgate_sim::fuzz::fuzz_one;

/// Bytes of the longest input.
const LONGEST: u64 = 512;

fn inputs() -> u64 {
    std::env::var("TOLLGATE_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(50_000)
}

#[test]
#[expect(clippy::print_stdout, reason = "says how much was tried")]
fn any_bytes_have_an_answer() {
    let mut drawn = 0;
    let mut draw = || {
        drawn += 1;
        mix(drawn)
    };
    for number in 0..inputs() {
        let length = draw() % LONGEST;
        let bytes: Vec<u8> = (0..length.div_ceil(8)).flat_map(|_| draw().to_le_bytes()).collect();
        if let Err(nonsense) = fuzz_one(&bytes) {
            panic!("input {number}: {nonsense}");
        }
    }
    println!("{} inputs", inputs());
}
