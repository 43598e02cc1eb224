//! Hands libFuzzer's inputs to [`tollgate_server::fuzzing::envoy_message`]: any bytes as a question of Envoy's.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Err(nonsense) = tollgate_server::fuzzing::envoy_message(bytes) {
        panic!("{nonsense}");
    }
});
