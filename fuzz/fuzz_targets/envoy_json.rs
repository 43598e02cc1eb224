//! Hands libFuzzer's inputs to [`tollgate_server::fuzzing::envoy_json`]: any bytes as the body of `/json`.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Err(nonsense) = tollgate_server::fuzzing::envoy_json(bytes) {
        panic!("{nonsense}");
    }
});
