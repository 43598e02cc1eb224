//! Hands libFuzzer's inputs to [`tollgate_sim::fuzz::fuzz_one`]. What is tried and what counts as wrong is decided
//! there.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Err(nonsense) = tollgate_sim::fuzz::fuzz_one(bytes) {
        panic!("{nonsense}");
    }
});
