//! Hands libFuzzer's inputs to [`tollgate_server::fuzzing::http1`]: any bytes as what a client of HTTP/1 sends.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Err(nonsense) = tollgate_server::fuzzing::http1(bytes) {
        panic!("{nonsense}");
    }
});
