//! Attacks on the gateway's reading of requests: each is refused in words, and the server sees exactly the requests
//! that were decided about.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "gateway/corpus.rs"]
mod corpus;
#[path = "gateway/frames.rs"]
mod frames;
#[path = "gateway/origin.rs"]
mod origin;
mod support;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use corpus::{Fate, NONE, SMUGGLED, cases};
use frames::{END_HEADERS, END_STREAM, GOAWAY, HEADERS, Http2, RST_STREAM, block, frame};
use origin::Origin;
use serde_json::Value;
use support::{Running, Service, eventually, free_port, http, nginx, scratch};

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

/// The statuses in what came back, but for those that only say to go on.
fn statuses_in(answer: &str) -> Vec<&str> {
    let heads = answer.match_indices("HTTP/1.").map(|(at, _)| answer.get(at + 9..at + 12).unwrap_or_default());
    let statuses = heads.filter(|status| status.len() == 3 && status.bytes().all(|byte| byte.is_ascii_digit()));
    statuses.filter(|status| *status != "100").collect()
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

/// A server that has written down the whole requests that it saw: methods and paths.
struct Backend {
    address: SocketAddr,
    seen: Box<dyn Fn() -> Vec<String>>,
    _running: Option<Running>,
}

/// The server of these tests.
fn ours() -> Backend {
    let origin = Origin::start();
    let address = origin.address;
    let seen = move || origin.seen().iter().map(|seen| seen.line.trim_end_matches(" HTTP/1.1").to_owned()).collect();
    Backend { address, seen: Box::new(seen), _running: None }
}

/// An nginx. It takes the whole of a request before it asks another one, which writes it down.
fn theirs() -> Backend {
    let port = free_port();
    let log = scratch("seen.log");
    let socket = scratch("behind.sock");
    let (file, behind) = (log.display(), format!("unix:{}", socket.display()));
    let running = nginx(
        &format!(
            "log_format seen '$request_method $request_uri'; keepalive_requests 1000000;
            server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://{behind}:; }} }}
            server {{ listen {behind}; access_log {file} seen; location / {{ return 200 'nginx'; }} }}"
        ),
        port,
    );
    let seen = move || std::fs::read_to_string(&log).unwrap().lines().map(str::to_owned).collect();
    Backend { address: ([127, 0, 0, 1], port).into(), seen: Box::new(seen), _running: Some(running) }
}

/// What the access log says was answered by the server.
fn passed_on(log: &std::path::Path) -> Vec<String> {
    let text = std::fs::read_to_string(log).unwrap();
    let lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    let entries = lines.map(|line| serde_json::from_str::<Value>(line).unwrap());
    let answered = entries.filter(|entry| entry["status"] == 200);
    answered.map(|entry| format!("{} {}", entry["method"].as_str().unwrap(), entry["path"].as_str().unwrap())).collect()
}

/// How many refusals the access log tells of, each with its client.
fn refusals(log: &std::path::Path) -> usize {
    let text = std::fs::read_to_string(log).unwrap();
    let entries = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let refused: Vec<Value> = entries.filter(|entry| entry["status"].as_u64().is_some_and(|it| it >= 400)).collect();
    assert!(refused.iter().all(|entry| entry["client"] == "127.0.0.1"), "{refused:?}");
    refused.len()
}

/// How many requests of clients could not be answered as they wished.
fn errors(gateway: &Service) -> usize {
    let metrics = http(gateway.admin(), "GET /metrics HTTP/1.1", "").body;
    let line = metrics.lines().find_map(|line| line.strip_prefix("tollgate_request_errors_total{protocol=\"proxy\"} "));
    line.unwrap_or_else(|| panic!("{metrics}")).parse().unwrap()
}

/// How many requests the limits were asked about.
fn decided(gateway: &Service) -> usize {
    let metrics = http(gateway.admin(), "GET /metrics HTTP/1.1", "").body;
    let checks = metrics.lines().filter(|line| line.starts_with("tollgate_rule_checks_total{"));
    checks.map(|line| line.rsplit_once(' ').unwrap().1.parse::<usize>().unwrap()).sum()
}

/// Sends all of the corpus through a gateway to a server of this kind: each answer is what it should be, and the server
/// has seen exactly what was decided about and written down.
fn survives(backend: &Backend) {
    let log = scratch("access.log");
    let file = format!(
        "routes:\n  - {{name: all, upstream: 'http://{}'}}\nrules:\n  - {{name: all, limits: 1000000/s}}\n",
        backend.address
    );
    let gateway = Service::gateway(&file, &["--access-log", &log.display().to_string()]);
    let (mut known, mut broken, mut refused) = (0, 0, 0);
    for (sent, fate) in cases() {
        let shown: String = sent.escape_ascii().to_string().chars().take(120).collect();
        // Alone on its connection, and behind a request that is none of its business; in one piece, and in many.
        for (first, piece) in [("", usize::MAX), ("", 7), ("GET /good HTTP/1.1\r\nHost: a\r\n\r\n", usize::MAX)] {
            let piece = if sent.len() > 10_000 { usize::MAX } else { piece };
            let (status, why, passed, goes_on) = match &fate {
                Fate::Ended(status, why) => (Some(*status), *why, &[][..], false),
                Fate::Refused(status, why) => (Some(*status), *why, &[][..], true),
                Fate::Broken => (Some("400"), "ended before it was whole", &[][..], false),
                Fate::Passed(requests) => (None, "", &requests[..], true),
                Fate::Last(requests) => (None, "", &requests[..], false),
            };
            let good = if first.is_empty() { &[][..] } else { &["GET /good"] };
            let end = if goes_on { &["GET /end"][..] } else { &[] };
            // Where the connection goes on it is told to end.
            let behind = if goes_on { "GET /end HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n" } else { SMUGGLED };
            let answer = said(gateway.proxy(), &[first.as_bytes(), &sent, behind.as_bytes()].concat(), piece);
            let mut statuses = vec!["200"; good.len() + passed.len()];
            statuses.extend(status);
            statuses.extend(end.iter().map(|_| "200"));
            assert_eq!(statuses_in(&answer), statuses, "{shown}\n{answer}");
            assert!(answer.contains(why), "{shown}\n{answer}");
            assert!(status.is_none() || answer.contains("application/problem+json"), "{shown}\n{answer}");
            let expected = [good, passed, end].concat();
            eventually(&shown, || (backend.seen)().len() >= known + expected.len());
            let seen: Vec<String> =
                (backend.seen)()[known..].iter().map(|line| line.split('?').next().unwrap().to_owned()).collect();
            assert_eq!(seen, expected, "{shown}");
            known += expected.len();
            broken += usize::from(matches!(fate, Fate::Broken));
            refused += usize::from(status.is_some());
        }
    }
    assert_eq!(get(gateway.proxy(), "/last").status, 200);
    known += 1;
    eventually("all is written down", || passed_on(&log).len() >= known && (backend.seen)().len() >= known);
    let (mut logged, seen) = (passed_on(&log), (backend.seen)());
    let mut seen: Vec<String> = seen.iter().map(|line| line.split('?').next().unwrap().to_owned()).collect();
    logged.sort();
    seen.sort();
    assert_eq!(logged, seen);
    // What was refused is written down and counted as well, whether or not it could be read.
    eventually("refusals are written down", || refusals(&log) == refused);
    assert_eq!(errors(&gateway), refused);
    assert_eq!(decided(&gateway), known + broken);
}

#[test]
fn the_corpus_is_read_in_one_way_before_our_server() {
    assert!(cases().len() >= 120, "{}", cases().len());
    survives(&ours());
}

#[test]
fn the_corpus_is_read_in_one_way_before_nginx() {
    survives(&theirs());
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

/// A body that was not read before a denial is not the next request: either it is gone over, or the connection ends.
#[test]
fn a_denied_body_is_no_request() {
    let origin = Origin::start();
    let gateway = before(&origin, "rules:\n  - {name: none, when: {method: POST}, limits: 0/s}\n");
    let inner = "GET /inner HTTP/1.1\r\nHost: a\r\n\r\n";
    let after = "GET /after HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let large = format!("{}{}", "x".repeat(100_000), inner.repeat(100));
    let mut asked_after = 0;
    for body in [inner, &inner.repeat(20), &large] {
        let length = (format!("Content-Length: {}\r\n\r\n", body.len()), body.to_owned());
        let chunk =
            ("Transfer-Encoding: chunked\r\n\r\n".to_owned(), format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len()));
        for (lines, body) in [length, chunk] {
            for expect in ["", "Expect: 100-continue\r\n"] {
                let head = format!("POST /denied HTTP/1.1\r\nHost: a\r\n{expect}{lines}");
                // All at once, and in pieces, of which some come after the denial.
                for piece in [usize::MAX, 1_000, 50] {
                    let answer = said(gateway.proxy(), format!("{head}{body}{after}").as_bytes(), piece);
                    match &*statuses_in(&answer) {
                        ["429"] => assert!(answer.to_ascii_lowercase().contains("connection: close"), "{answer}"),
                        ["429", "200"] => asked_after += 1,
                        others => panic!("{others:?}: {answer}"),
                    }
                }
                // What comes of it only then.
                for begun in [0, 1, body.len() / 2] {
                    let mut stream = TcpStream::connect(gateway.proxy()).unwrap();
                    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
                    stream.write_all(format!("{head}{}", &body[..begun]).as_bytes()).unwrap();
                    let mut denied = [0; 12];
                    stream.read_exact(&mut denied).unwrap();
                    assert_eq!(&denied, b"HTTP/1.1 429");
                    // Whoever is left cannot go on.
                    let _ = stream.write_all(format!("{}{after}", &body[begun..]).as_bytes());
                    let mut rest = Vec::new();
                    let _ = stream.read_to_end(&mut rest);
                    let rest = String::from_utf8_lossy(&rest).into_owned();
                    assert_eq!(statuses_in(&rest), [""; 0], "{rest}");
                    assert!(rest.to_ascii_lowercase().contains("connection: close"), "{rest}");
                }
            }
        }
    }
    assert!(asked_after > 0, "a small body that is there does not end the connection");
    let lines: Vec<String> = origin.seen().into_iter().map(|seen| seen.line).collect();
    assert_eq!(lines, vec!["GET /after HTTP/1.1"; asked_after]);
}

/// What becomes of a request of HTTP/2 with exactly these fields and no body.
fn by_http2(at: SocketAddr, fields: &[(&str, &str)]) -> &'static str {
    let mut http2 = Http2::connect(at);
    http2.send(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &block(fields))).unwrap();
    loop {
        let told = http2.read().unwrap_or_else(|error| panic!("{fields:?}: {error}"));
        // Statuses have numbers of their own.
        match (told.kind, told.payload.first()) {
            (HEADERS, Some(0x88)) => return "200",
            (HEADERS, Some(0x8c)) => return "400",
            (HEADERS, Some(0x8d)) => return "404",
            (HEADERS, _) => return "another status",
            (RST_STREAM | GOAWAY, _) => return "refused",
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
