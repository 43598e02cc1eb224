//! A bounded, seeded run of the fuzz target for requests of HTTP/1: good ones, one behind the other, damaged.
//!
//! For a longer one, guided by coverage: `cargo +nightly fuzz run http1` in the root of the repository.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use tollgate_core::mix;
use tollgate_server::fuzzing::http1;

const GOOD: [&str; 6] = [
    "GET /a?b=c HTTP/1.1\r\nHost: example.com\r\nAccept: */*\r\n\r\n",
    "POST /b HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\nhello\r\n\r\n--",
    "PUT /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n1;x=y\r\n \r\n0\r\nX-Sum: 1\r\n\r\n",
    "HEAD http://a/ HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    "\r\nOPTIONS * HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nok",
    "GET / HTTP/1.1\r\nConnection: close\r\nUpgrade: websocket\r\nX:\r\n\r\n",
];
const PARTS: [&str; 12] = [
    "\r\n",
    "\n",
    "\r",
    " ",
    ":",
    "\0",
    "Content-Length: 3\r\n",
    "Transfer-Encoding: chunked\r\n",
    "0\r\n\r\n",
    "HTTP/1.0",
    "\t",
    "\r\n\r\n",
];

#[test]
fn any_bytes_are_the_same_requests_in_any_pieces() {
    let cases = std::env::var("TOLLGATE_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(20_000u64);
    let mut drawn = 0;
    let mut draw = |below: usize| {
        drawn += 1;
        (mix(drawn) % below.max(1) as u64) as usize
    };
    for number in 0..cases {
        let mut bytes = vec![draw(256) as u8];
        for _ in 0..1 + draw(4) {
            bytes.extend_from_slice(GOOD[draw(GOOD.len())].as_bytes());
        }
        for _ in 0..draw(5) {
            let at = 1 + draw(bytes.len() - 1);
            let to = at + draw((bytes.len() - at).min(40));
            match draw(4) {
                0 => bytes[at] = draw(256) as u8,
                1 => drop(bytes.drain(at..to)),
                2 => drop(bytes.splice(at..at, PARTS[draw(PARTS.len())].bytes())),
                _ => {
                    let part = bytes[at..to].to_vec();
                    let place = 1 + draw(bytes.len() - 1);
                    bytes.splice(place..place, part);
                }
            }
        }
        if let Err(nonsense) = http1(&bytes) {
            panic!("input {number}: {nonsense}\n{}", String::from_utf8_lossy(&bytes));
        }
    }
}
