//! Hands libFuzzer's inputs to [`tollgate_sim::rules::fuzz_text`]: any bytes as a file of rules.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Err(nonsense) = tollgate_sim::rules::fuzz_text(bytes) {
        panic!("{nonsense}");
    }
});
