//! Hands libFuzzer's inputs to [`tollgate_server::fuzzing::path`]: any bytes as the path of a request to the gateway.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Err(nonsense) = tollgate_server::fuzzing::path(bytes) {
        panic!("{nonsense}");
    }
});
