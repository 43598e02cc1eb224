//! A bounded, seeded run of the fuzz target for bodies of the HTTP API: examples of it, damaged.
//!
//! For a longer one, guided by coverage: `cargo +nightly fuzz run http_json` in the root of the repository.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use tollgate_core::mix;
use tollgate_server::fuzzing::http_json;

const OPENAPI: &str = include_str!("../src/protocol/http/openapi.json");

/// Every example of a body in the document.
fn examples() -> Vec<Vec<u8>> {
    let document: serde_json::Value = serde_json::from_str(OPENAPI).expect("JSON");
    let paths = document["paths"].as_object().expect("paths").values();
    let examples = paths
        .filter_map(|path| path["post"]["requestBody"]["content"]["application/json"]["examples"].as_object().cloned());
    let values = examples.flat_map(|examples| examples.into_iter().map(|(_, example)| example["value"].to_string()));
    let examples: Vec<Vec<u8>> = values.map(String::into_bytes).collect();
    assert!(examples.len() > 10);
    examples
}

#[test]
fn any_bytes_are_a_question_or_are_refused_in_words() {
    let cases = std::env::var("TOLLGATE_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(20_000u64);
    let examples = examples();
    let mut drawn = 0;
    let mut draw = |below: usize| {
        drawn += 1;
        (mix(drawn) % below.max(1) as u64) as usize
    };
    for number in 0..cases {
        let mut bytes = examples[draw(examples.len())].clone();
        for _ in 0..draw(4) {
            let at = draw(bytes.len());
            let to = at + draw(bytes.len() - at);
            match draw(5) {
                0 => bytes[at] = draw(256) as u8,
                1 => bytes[at] = b"{}[]\",:0-9.eu\\tf"[draw(16)],
                2 => drop(bytes.drain(at..to)),
                3 => {
                    let part = bytes[at..to].to_vec();
                    let place = draw(bytes.len());
                    bytes.splice(place..place, part);
                }
                _ => {
                    let other = &examples[draw(examples.len())];
                    let part = other[..draw(other.len())].to_vec();
                    bytes.splice(at..at, part);
                }
            }
            if bytes.is_empty() {
                bytes.push(b'{');
            }
        }
        if let Err(nonsense) = http_json(&bytes) {
            panic!("input {number}: {nonsense}\n{}", String::from_utf8_lossy(&bytes));
        }
    }
}
