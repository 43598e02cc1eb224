//! The schema that reflection tells is the one in `proto/`, compiled.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::path::Path;

use prost::Message as _;

const FILES: [&str; 4] = [
    "envoy/service/ratelimit/v3/rls.proto",
    "grpc/health/v1/health.proto",
    "grpc/reflection/v1/reflection.proto",
    "grpc/reflection/v1alpha/reflection.proto",
];

/// With `TOLLGATE_BLESS=1` it writes the file instead.
#[test]
fn the_compiled_schema_is_what_the_files_say() {
    let proto = Path::new(env!("CARGO_MANIFEST_DIR")).join("proto");
    let mut compiled = protox::compile(FILES, [&proto]).expect("the schema compiles");
    for file in &mut compiled.file {
        // Places and comments are of no use to a reader of bytes.
        file.source_code_info = None;
    }
    let compiled = compiled.encode_to_vec();
    let path = proto.join("descriptors.bin");
    if std::env::var_os("TOLLGATE_BLESS").is_some() {
        std::fs::write(&path, &compiled).expect("it can be written");
    }
    let committed = std::fs::read(&path).expect("it is there");
    assert!(committed == compiled, "proto/descriptors.bin is out of date: run this test with TOLLGATE_BLESS=1");
}
