//! Hands libFuzzer's inputs to [`tollgate_server::fuzzing::http_json`]: any bytes as the body of a question.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Err(nonsense) = tollgate_server::fuzzing::http_json(bytes) {
        panic!("{nonsense}");
    }
});
