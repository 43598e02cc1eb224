//! Hands libFuzzer's inputs to [`tollgate_server::fuzzing::token`]: any bytes as a JSON Web Token.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Err(nonsense) = tollgate_server::fuzzing::token(bytes) {
        panic!("{nonsense}");
    }
});
