//! Attacks on the gateway's reading of requests: each is refused in words, and the server sees exactly the requests
//! that were decided about.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "gateway/origin.rs"]
mod origin;
mod support;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use origin::Origin;
use support::{Service, http};

fn get(at: SocketAddr, path: &str) -> support::Answer {
    http(at, &format!("GET {path} HTTP/1.1"), "")
}

/// A gateway in front of one server, with these lines at the end of its file.
fn before(origin: &Origin, rules: &str) -> Service {
    let file = format!("routes:\n  - {{name: all, upstream: 'http://{}'}}\n{rules}", origin.address);
    Service::gateway(&file, &[])
}

/// All that comes back on a connection that says exactly this, in pieces of this size, until it is closed.
fn said(at: SocketAddr, bytes: &[u8], piece: usize) -> String {
    let mut stream = TcpStream::connect(at).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    for piece in bytes.chunks(piece) {
        // Whoever is refused may be left before it has said everything.
        let _ = stream.write_all(piece);
    }
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

/// The statuses in what came back.
fn statuses_in(answer: &str) -> Vec<&str> {
    let heads = answer.match_indices("HTTP/1.1 ").map(|(at, _)| answer.get(at + 9..at + 12).unwrap_or_default());
    heads.filter(|status| status.len() == 3 && status.bytes().all(|byte| byte.is_ascii_digit())).collect()
}

/// What follows each of the attacks, for whoever takes it for a request.
const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";

const TWICE: &str = "told twice";
const NO_LENGTH: &str = "no number of bytes";
const ENCODING: &str = "transfer encoding is not supported";
const LINE_FEED: &str = "a line feed alone";
const HOST: &str = "Host is no name";
const SEVERAL: &str = "more than one Host";
const NONE: &str = "no Host";
const OTHER: &str = "another host";
const PATH: &str = "more than one way";
const NO_PATH: &str = "begins with a slash";
/// What is no HTTP at all gets a status and no words.
const BARE: &str = "";

/// Heads that are refused, each with its status and what is told.
fn attacks() -> Vec<(String, &'static str, &'static str)> {
    let post = |lines: &str, body: &str| format!("POST / HTTP/1.1\r\nHost: a\r\n{lines}\r\n{body}");
    let get = |lines: &str| format!("GET / HTTP/1.1\r\n{lines}\r\n");
    let length = SMUGGLED.len();
    let mut attacks = vec![
        // Two lengths, or none that is one.
        (post("Content-Length: 4\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"), "400", TWICE),
        (post("Transfer-Encoding: chunked\r\nContent-Length: 4\r\n", "0\r\n\r\n"), "400", TWICE),
        (post(&format!("Content-Length: 0\r\nContent-Length: {length}\r\n"), ""), "400", TWICE),
        (post("Content-Length: 0\r\nContent-Length: 0\r\n", ""), "400", TWICE),
        (post("Content-Length: 0, 0\r\n", ""), "400", NO_LENGTH),
        (post(&format!("Content-Length: +{length}\r\n"), ""), "400", NO_LENGTH),
        (post("Content-Length: -1\r\n", ""), "400", NO_LENGTH),
        (post("Content-Length: 0x2\r\n", "ab"), "400", NO_LENGTH),
        (post("Content-Length: 2 2\r\n", "ab"), "400", NO_LENGTH),
        (post("Content-Length:\r\n", ""), "400", NO_LENGTH),
        (post("Content-Length: 99999999999999999999\r\n", ""), "400", NO_LENGTH),
        // Encodings that are not exactly `chunked`.
        (post("Transfer-Encoding: xchunked\r\n", "0\r\n\r\n"), "400", ENCODING),
        (post("Transfer-Encoding: gzip, chunked\r\n", "0\r\n\r\n"), "400", ENCODING),
        (post("Transfer-Encoding: chunked, identity\r\n", "0\r\n\r\n"), "400", ENCODING),
        (post("Transfer-Encoding: identity\r\n", ""), "400", ENCODING),
        (post("Transfer-Encoding: \"chunked\"\r\n", "0\r\n\r\n"), "400", ENCODING),
        (post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"), "400", ENCODING),
        (post("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", "0\r\n\r\n"), "400", ENCODING),
        (post("Transfer-Encoding:\r\n", ""), "400", ENCODING),
        ("POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".to_owned(), "400", ENCODING),
        // Lines that end where others see no end, or go on where others see one.
        ("GET / HTTP/1.1\nHost: a\n\n".to_owned(), "400", LINE_FEED),
        (get("Host: a\r\nX: 1\nContent-Length: 30\r\n"), "400", LINE_FEED),
        ("GET / HTTP/1.1\r\nHost: a\r\n\n".to_owned(), "400", LINE_FEED),
        (get("Host: a\r\n X: folded\r\n"), "400", "goes on in the next line"),
        (get("Host: a\r\n\tX: folded\r\n"), "400", "goes on in the next line"),
        (get("Host: a\r\nX: a\rb\r\n"), "400", BARE),
        (get("Host: a\r\nX\0Y: 1\r\n"), "400", BARE),
        (get("Host: a\r\nX: a\0b\r\n"), "400", BARE),
        (get("Host: a\r\nX Y: 1\r\n"), "400", BARE),
        (post("Content-Length : 5\r\n", ""), "400", BARE),
        (post("Transfer-Encoding : chunked\r\n", "0\r\n\r\n"), "400", BARE),
        (get("Host: a\r\n: 1\r\n"), "400", BARE),
        (get("Host: a\r\nX\r\n"), "400", BARE),
        ("GET  / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), "400", BARE),
        ("GET / HTTP/1.2\r\nHost: a\r\n\r\n".to_owned(), "400", BARE),
        ("GET /\r\nHost: a\r\n\r\n".to_owned(), "400", BARE),
        ("G\tET / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), "400", BARE),
        ("\0\0\0\r\n\r\n".to_owned(), "400", BARE),
        // Hosts and paths that others read differently.
        (get("Host: a\r\nHost: b\r\n"), "400", SEVERAL),
        (get("Host: a\r\nHost: a\r\n"), "400", SEVERAL),
        (get(""), "400", NONE),
        (get("Host:\r\n"), "400", HOST),
        (get("Host: a/b\r\n"), "400", HOST),
        (get("Host: a b\r\n"), "400", HOST),
        (get("Host: user@a\r\n"), "400", HOST),
        ("GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), "400", OTHER),
        ("CONNECT b:443 HTTP/1.1\r\nHost: b:443\r\n\r\n".to_owned(), "405", "CONNECT"),
        ("GET * HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), "400", NO_PATH),
        ("GET a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n".to_owned(), "400", NO_PATH),
        // More than anybody needs.
        (get(&format!("Host: a\r\nX: {}\r\n", "y".repeat(100_000))), "431", "too large"),
        (get(&format!("Host: a\r\n{}", "X: y\r\n".repeat(200))), "431", "too many headers"),
        (format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "y".repeat(100_000)), "431", "too large"),
    ];
    for path in ["/a/../b", "/a/%2e%2e/b", "/a/.%2E/b", "/a%2f..%2fb", "/a%5cb", "/%00", "/a/..;/b", "/%zz"] {
        attacks.push((format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"), "400", PATH));
    }
    attacks
}

/// `OPTIONS *` is about the gateway and no path: it is answered, and no server hears of it.
#[test]
fn a_request_about_the_gateway_itself_is_answered() {
    let origin = Origin::start();
    let gateway = before(&origin, "");
    let ask = |head: &str| {
        said(gateway.proxy(), format!("OPTIONS * HTTP/1.1\r\n{head}Connection: close\r\n\r\n").as_bytes(), 7)
    };
    let answer = ask("Host: a\r\n").to_ascii_lowercase();
    assert!(answer.starts_with("http/1.1 204 "), "{answer}");
    assert!(!answer.contains("\r\nallow:") && !answer.contains("\r\ncontent-length:"), "{answer}");
    assert!(ask("").contains(NONE), "what is wrong stays wrong");
    let mut curl = std::process::Command::new("curl");
    curl.args([
        "-sS",
        "--http2-prior-knowledge",
        "-X",
        "OPTIONS",
        "--request-target",
        "*",
        "-o",
        "/dev/null",
        "-w",
        "%{http_code}",
    ]);
    let told = curl.arg(format!("http://{}", gateway.proxy())).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&told.stdout), "204");
    assert_eq!(origin.seen().len(), 0);
}

#[test]
fn what_could_be_read_in_two_ways_is_refused_and_never_reaches_the_server() {
    let origin = Origin::start();
    let gateway = before(&origin, "");
    for (attack, status, why) in attacks() {
        let shown = attack.escape_debug().to_string().chars().take(120).collect::<String>();
        // Alone on its connection, and behind a request that is none of its business; in one piece, and in many.
        for (first, piece) in [("", usize::MAX), ("", 7), ("GET /good HTTP/1.1\r\nHost: a\r\n\r\n", usize::MAX)] {
            let piece = if attack.len() > 10_000 { usize::MAX } else { piece };
            // Where the path is wrong and nothing else, the connection goes on, and is told to end.
            let is_over = !matches!(why, HOST | SEVERAL | NONE | OTHER | PATH | NO_PATH | "CONNECT");
            let behind = if is_over { SMUGGLED } else { "GET /end HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n" };
            let before = origin.seen().len();
            let answer = said(gateway.proxy(), format!("{first}{attack}{behind}").as_bytes(), piece);
            let mut expected = vec![status];
            if !first.is_empty() {
                expected.insert(0, "200");
            }
            if !is_over {
                expected.push("200");
            }
            let lines: Vec<String> = origin.seen()[before..].iter().map(|seen| seen.line.clone()).collect();
            let mut decided = vec!["GET /good HTTP/1.1", "GET /end HTTP/1.1"];
            decided.retain(|line| if line.contains("good") { !first.is_empty() } else { !is_over });
            assert_eq!(statuses_in(&answer), expected, "{shown}\n{answer}");
            assert!(answer.contains(why), "{shown}\n{answer}");
            assert!(why == BARE || answer.contains("application/problem+json"), "{shown}\n{answer}");
            assert_eq!(lines, decided, "{shown}");
        }
    }
    assert_eq!(get(gateway.proxy(), "/x").status, 200);
}

/// Of a body that is not framed as it should be the server sees no end, and no request behind it.
#[test]
fn a_body_that_breaks_off_is_no_request_and_hides_none() {
    let origin = Origin::start();
    let gateway = before(&origin, "");
    for body in [
        "ffffffffffffffff1\r\n",
        "-1\r\n",
        "x\r\n",
        "\r\n",
        "1\r\nab\r\n",
        "1\na\r\n",
        "1\r\na\n0\r\n\r\n",
        "0\r\n\n",
        "1 1\r\n",
        "0x1\r\na\r\n",
    ] {
        let attack = format!("POST /broken HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{body}{SMUGGLED}");
        for piece in [usize::MAX, 5] {
            let answer = said(gateway.proxy(), attack.as_bytes(), piece);
            assert_eq!(statuses_in(&answer), ["400"], "{body:?}\n{answer}");
            assert!(answer.contains("ended before it was whole"), "{body:?}\n{answer}");
            assert!(origin.seen().is_empty(), "{body:?}: {:?}", origin.seen());
        }
    }
    assert_eq!(get(gateway.proxy(), "/x").status, 200);
}

/// What is clear passes, however it is cut, and what is behind a body is a request of its own.
#[test]
fn what_is_clear_passes_in_whatever_pieces() {
    let origin = Origin::start();
    let gateway = before(&origin, "");
    let inner = "GET /inner HTTP/1.1\nContent-Length: 1\r\n\r\n";
    let requests = format!(
        "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{inner}\
         PUT /b HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: CHUNKED\r\n\r\n3;x=y\r\na\n\n\r\n0\r\nX: 1\r\n\r\n\
         \r\nGET /c HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        inner.len()
    );
    for piece in [1, 3, 50, usize::MAX] {
        let before = origin.seen().len();
        let answer = said(gateway.proxy(), requests.as_bytes(), piece);
        assert_eq!(statuses_in(&answer), ["200", "200", "200"], "{piece}: {answer}");
        let seen = origin.seen();
        let seen: Vec<(&str, &[u8])> = seen[before..].iter().map(|seen| (&*seen.line, &*seen.body)).collect();
        let expected: [(&str, &[u8]); 3] =
            [("POST /a HTTP/1.1", inner.as_bytes()), ("PUT /b HTTP/1.1", b"a\n\n"), ("GET /c HTTP/1.1", b"")];
        assert_eq!(seen, expected, "{piece}");
    }
}

/// A body that was not read before a denial is not the next request.
#[test]
fn a_denied_body_is_no_request() {
    let origin = Origin::start();
    let gateway = before(&origin, "rules:\n  - {name: none, limits: 0/s}\n");
    let inner = "GET /inner HTTP/1.1\r\nHost: a\r\n\r\n";
    for lines in [
        format!("Content-Length: {}\r\n\r\n{inner}", inner.len()),
        format!("Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{inner}\r\n0\r\n\r\n", inner.len()),
    ] {
        let request = format!("POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{lines}");
        let answer = said(gateway.proxy(), request.as_bytes(), usize::MAX);
        assert_eq!(statuses_in(&answer), ["429"], "{answer}");
        assert!(origin.seen().is_empty());
    }
}

/// What a client of HTTP/2 sends first, with no settings of its own.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// What becomes of a request of HTTP/2 with exactly these fields and no body.
fn by_http2(at: SocketAddr, fields: &[(&str, &str)]) -> &'static str {
    let mut block = Vec::new();
    for (name, value) in fields {
        // Literal, not to be remembered.
        block.push(0);
        for part in [name, value] {
            block.push(u8::try_from(part.len()).unwrap());
            block.extend_from_slice(part.as_bytes());
        }
    }
    let length = u8::try_from(block.len()).unwrap();
    let mut stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    // The end of the head, and of the request.
    stream.write_all(&[PREFACE, &[0, 0, length, 1, 5, 0, 0, 0, 1], &block].concat()).unwrap();
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).unwrap_or_else(|error| panic!("{fields:?}: {error}"));
        let mut body = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        stream.read_exact(&mut body).unwrap();
        // Statuses have numbers of their own.
        match (head[3], body.first()) {
            (1, Some(0x88)) => return "200",
            (1, Some(0x8c)) => return "400",
            (1, Some(0x8d)) => return "404",
            (1, _) => return "another status",
            (3 | 7, _) => return "refused",
            _ => {}
        }
    }
}

#[test]
fn what_could_be_read_in_two_ways_by_http2_never_reaches_the_server() {
    let origin = Origin::start();
    let gateway = before(&origin, "");
    let good = [(":method", "GET"), (":scheme", "http"), (":authority", "a"), (":path", "/x")];
    assert_eq!(by_http2(gateway.proxy(), &good), "200");
    let with = |name: &'static str, value: &'static str| {
        let mut fields: Vec<(&str, &str)> = good.into_iter().filter(|(known, _)| *known != name).collect();
        fields.push((name, value));
        // Those with a colon come first.
        fields.sort_by_key(|(name, _)| !name.starts_with(':'));
        fields
    };
    let without = |name: &str| good.into_iter().filter(|(known, _)| *known != name).collect::<Vec<_>>();
    let twice = |name: &'static str, value: &'static str| [&[(name, value)], &good[..]].concat();
    for (fields, expected) in [
        (with("connection", "close"), "refused"),
        (with("transfer-encoding", "chunked"), "refused"),
        (with("te", "gzip"), "refused"),
        (with("upgrade", "h2c"), "refused"),
        (with("content-length", "5"), "refused"),
        (with("X-Upper", "1"), "refused"),
        (with("x y", "1"), "refused"),
        (with("x", "a\r\nx-evil: 1"), "refused"),
        (with("x", "a\0b"), "refused"),
        (with(":path", "/x HTTP/1.1\r\nhost: b\r\n\r\n"), "refused"),
        (with(":path", "/a b"), "refused"),
        (with(":path", "x"), "refused"),
        (with(":method", "G ET"), "refused"),
        (with(":status", "200"), "refused"),
        (without(":path"), "refused"),
        (without(":method"), "refused"),
        (twice(":path", "/y"), "refused"),
        (twice(":authority", "b"), "refused"),
        (without(":authority"), "400"),
        (with("host", "b"), "400"),
        (with(":authority", "user@a"), "400"),
        (with(":path", "/a/../b"), "400"),
        (with(":path", "/a%2fb"), "400"),
        (with(":path", "/a/..;/b"), "400"),
    ] {
        assert_eq!(by_http2(gateway.proxy(), &fields), expected, "{fields:?}");
        assert_eq!(origin.seen().len(), 1, "{fields:?}: {:?}", origin.last());
    }
}
