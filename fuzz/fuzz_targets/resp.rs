//! Hands libFuzzer's inputs to [`tollgate_server::fuzzing::resp`]: any bytes as what a Redis client sends, in any
//! pieces.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Err(nonsense) = tollgate_server::fuzzing::resp(bytes) {
        panic!("{nonsense}");
    }
});
