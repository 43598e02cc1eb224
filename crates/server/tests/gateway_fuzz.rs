//! Bounded, seeded runs of the gateway's fuzz targets: good inputs, one behind the other, damaged.
//!
//! For longer ones, guided by coverage: `cargo +nightly fuzz run answer` (or `path`, `forwarded_for`, `token`) in the
//! root of the repository.

#![allow(clippy::panic, reason = "a test fails by panicking")]

use tollgate_core::mix;
use tollgate_server::fuzzing::{answer, forwarded_for, good_token, path, token};

/// Hands inputs to a target that are made of good ones: some of these one behind the other, then damaged in a few
/// places, by chance and by putting in these parts.
fn run(target: fn(&[u8]) -> Result<(), String>, good: &[&str], parts: &[&str], several: usize) {
    let cases = std::env::var("TOLLGATE_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(20_000u64);
    let mut drawn = 0;
    let mut draw = |below: usize| {
        drawn += 1;
        (mix(drawn) % below.max(1) as u64) as usize
    };
    for number in 0..cases {
        let mut bytes = Vec::new();
        for _ in 0..1 + draw(several) {
            bytes.extend_from_slice(good[draw(good.len())].as_bytes());
        }
        for _ in 0..draw(5) {
            let at = draw(bytes.len());
            let to = at + draw((bytes.len() - at).min(40));
            match draw(4) {
                0 if !bytes.is_empty() => bytes[at] = draw(256) as u8,
                1 => drop(bytes.drain(at..to)),
                2 => drop(bytes.splice(at..at, parts[draw(parts.len())].bytes())),
                _ => {
                    let part = bytes[at..to].to_vec();
                    let place = draw(bytes.len());
                    bytes.splice(place..place, part);
                }
            }
        }
        if let Err(nonsense) = target(&bytes) {
            panic!("input {number}: {nonsense}\n{}", bytes.escape_ascii());
        }
    }
}

#[test]
fn any_bytes_are_the_same_answer_in_any_pieces() {
    let good = [
        "\0HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-Y: z\r\n\r\nhello",
        "\x01HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n1;x=y\r\n \r\n0\r\nX-Sum: 1\r\n\r\n",
        "\x02HTTP/1.0 302 Found\r\nLocation: /\r\n\r\nto the end",
        "\x04HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\nConnection: close, X-Y\r\nX-Y: 1\r\n\r\n",
        "\x07HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
    ];
    let parts = [
        "\r\n",
        "\n",
        ":",
        "\0",
        "Content-Length: 3\r\n",
        "Transfer-Encoding: chunked\r\n",
        "0\r\n\r\n",
        " ",
        "\r\n\r\n",
    ];
    run(answer, &good, &parts, 2);
}

#[test]
fn any_path_has_one_normal_form() {
    let good =
        ["/", "/v1/chat:send", "/caf%c3%a9/é", "//a;b=c/%61", "/.well-known", "/a%2Fb%5C%00", "/%252e/..", "/a b|\"["];
    let parts =
        ["%", "%2e", "%2E%2e", "%2f", "%5c", "%3b", ";", "/", "\\", ".", "..", "%3f", "%23", "%25", "%C3", "\u{1f600}"];
    run(path, &good, &parts, 3);
}

#[test]
fn any_chain_of_proxies_has_one_client_that_is_in_it() {
    let good = [
        "198.51.100.1",
        "10.0.0.2, ",
        "2001:db8::7,",
        "[2001:db8::1]:443\n",
        "198.51.100.1:80",
        "127.0.0.1,",
        "::ffff:10.0.0.1,",
    ];
    let parts = [",", " ", "\n", ":", "]", "[", "unknown", "%", "::", "0x7f.1", "999", "\t"];
    run(forwarded_for, &good, &parts, 6);
}

#[test]
fn no_token_is_good_that_was_not_signed() {
    let signed = good_token();
    let good = [
        &*signed,
        r#"{"sub":"a","exp":1e300,"nbf":-1,"aud":["x"]}"#,
        r#"{"alg":"HS256","kid":"x"}"#,
        r#"{"alg":"none"}"#,
    ];
    let parts = [".", "..", "=", "e30", "\"", "{", "}", "null", "-", "1e999", r#""crit":[],"#, r#""exp":0,"#];
    run(token, &good, &parts, 1);
}
