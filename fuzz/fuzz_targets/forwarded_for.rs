//! Hands libFuzzer's inputs to [`tollgate_server::fuzzing::forwarded_for`]: any bytes as lines of X-Forwarded-For.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Err(nonsense) = tollgate_server::fuzzing::forwarded_for(bytes) {
        panic!("{nonsense}");
    }
});
