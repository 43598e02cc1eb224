//! Hands libFuzzer's inputs to [`tollgate_server::fuzzing::answer`]: any bytes as what a server answers to the gateway.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Err(nonsense) = tollgate_server::fuzzing::answer(bytes) {
        panic!("{nonsense}");
    }
});
