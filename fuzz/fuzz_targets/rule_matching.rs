//! Hands libFuzzer's inputs to [`tollgate_sim::rules::fuzz_matching`]: any bytes as a rule set and questions to it.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Err(nonsense) = tollgate_sim::rules::fuzz_matching(bytes) {
        panic!("{nonsense}");
    }
});
