//! Clients of HTTP that send much, or slowly, or do not listen: what each may cost, and that others are unharmed.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;
use support::{Answer, Service, eventually, http, python};

const RULES: &str = "
domain: shop
rules:
  - {name: per-user, per: user_id, limits: [{rate: 1000000/d, algorithm: token_bucket}]}
";

const QUESTION: &str = r#"{"attributes": {"user_id": "1"}}"#;

/// Three for everybody, to see what was charged.
const THREE: &str = "
domain: shop
rules:
  - {name: per-user, per: user_id, limits: [{rate: 3/d, algorithm: token_bucket}]}
";

fn post(address: SocketAddr, path: &str, body: &str) -> Answer {
    http(address, &format!("POST {path} HTTP/1.1"), body)
}

/// Asks for one user: the status, and how much is left.
fn check(address: SocketAddr) -> (u16, Value) {
    let answer = post(address, "/v1/check", QUESTION);
    let told: Value = serde_json::from_str(&answer.body).unwrap_or_else(|error| panic!("{error}: {}", answer.body));
    (answer.status, told["remaining"].clone())
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

/// A large message by gRPC that makes no sense: how it ended.
fn large_message(service: &Service) -> String {
    let script = r#"
import grpc, sys
call = grpc.insecure_channel(sys.argv[1]).unary_unary("/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit")
try:
    call(b"\xff" * 100_000, timeout=10)
except grpc.RpcError as error:
    print(error.code().name)
"#;
    python(script, &[&service.grpc().to_string()])
}

#[test]
fn bodies_that_do_not_end_take_so_much_memory_and_no_more() {
    let service = Service::start(RULES, &[]);
    let head = "POST /v1/batch HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1048576\r\n\r\n";
    let body = vec![b' '; (1 << 20) - 1];
    let large = format!("{}{QUESTION}", " ".repeat(60_000));
    let ask = || http(service.http(), "POST /v1/check HTTP/1.1", &large);
    assert_eq!(ask().status, 200);
    assert!(large_message(&service).contains("INVALID_ARGUMENT"), "it is read");
    let senders: Vec<TcpStream> = (0..70)
        .map(|_| {
            let mut stream = connect(service.http());
            stream.write_all(head.as_bytes()).unwrap();
            stream.write_all(&body).unwrap();
            stream
        })
        .collect();
    eventually("the memory for bodies is spent", || ask().status == 503);
    assert!(large_message(&service).contains("RESOURCE_EXHAUSTED"), "by gRPC as well");
    assert_eq!(
        http(service.http(), "POST /v1/check HTTP/1.1", QUESTION).status,
        200,
        "what is in one piece is answered"
    );
    drop(senders);
    eventually("it is there again", || ask().status == 200);
}

/// What every client of HTTP/2 sends first, with no settings of its own.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;

/// The next frame: its kind and its body. `None` when the other side has ended the connection.
fn frame(stream: &mut TcpStream) -> Option<(u8, Vec<u8>)> {
    let mut head = [0; 9];
    stream.read_exact(&mut head).ok()?;
    let mut body = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
    stream.read_exact(&mut body).ok()?;
    Some((head[3], body))
}

#[test]
fn clients_of_http2_are_told_how_much_they_may_send() {
    let service = Service::start(RULES, &[]);
    for (address, streams) in [(service.http(), 100), (service.grpc(), 1_000)] {
        let mut stream = connect(address);
        stream.write_all(PREFACE).unwrap();
        let (kind, body) = frame(&mut stream).unwrap();
        assert_eq!(kind, SETTINGS);
        let told = |number: u8| {
            let setting = body.chunks(6).find(|setting| setting[..2] == [0, number])?;
            Some(u32::from_be_bytes([setting[2], setting[3], setting[4], setting[5]]))
        };
        // The most streams, and the window of each, of which 65,535 is what goes without saying.
        assert_eq!((told(3), told(4)), (Some(streams), Some(65_536)));
    }
}

#[test]
fn an_idle_connection_of_http2_is_closed_although_it_answers_pings() {
    let service = Service::start(RULES, &["--http-timeout", "500ms"]);
    let mut stream = connect(service.http());
    stream.write_all(PREFACE).unwrap();
    let mut kinds = Vec::new();
    while let Some((kind, body)) = frame(&mut stream) {
        if kind == PING {
            let _ = stream.write_all(&[&[0, 0, 8, PING, 1, 0, 0, 0, 0], &*body].concat());
        }
        kinds.push(kind);
    }
    assert!(kinds.contains(&GOAWAY), "it is told to go: {kinds:?}");
    assert_eq!(http(service.http(), "POST /v1/check HTTP/1.1", QUESTION).status, 200);
}

#[test]
fn whoever_does_not_read_the_answers_is_left() {
    let service = Service::start(RULES, &["--http-timeout", "500ms"]);
    let mut stream = connect(service.http());
    stream.set_write_timeout(Some(Duration::from_secs(20))).unwrap();
    let request = "GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(1_000);
    // Answers are not read, so that requests are not either, until the other side has had enough.
    let error = loop {
        if let Err(error) = stream.write_all(request.as_bytes()) {
            break error;
        }
    };
    let is_closed = matches!(error.kind(), std::io::ErrorKind::ConnectionReset | std::io::ErrorKind::BrokenPipe);
    assert!(is_closed, "{error}");
    assert_eq!(http(service.http(), "POST /v1/check HTTP/1.1", QUESTION).status, 200);
}

#[test]
fn a_request_of_http1_has_one_host() {
    let service = Service::start(RULES, &[]);
    for (head, status) in [
        ("GET /live HTTP/1.1\r\n", "HTTP/1.1 400"),
        ("GET /live HTTP/1.1\r\nHost: a\r\nHost: b\r\n", "HTTP/1.1 400"),
        ("GET /live HTTP/1.1\r\nHost: a\r\n", "HTTP/1.1 200"),
        ("GET /live HTTP/1.0\r\n", "HTTP/1.0 200"),
    ] {
        let mut stream = connect(service.http());
        write!(stream, "{head}Connection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with(status), "{head}: {answer}");
    }
}

#[test]
fn bodies_that_are_too_large_are_refused_however_they_are_sent() {
    let service = Service::start(THREE, &[]);
    let at = service.http();
    let large = "x".repeat(10 << 20);
    for path in ["/v1/check", "/v1/batch"] {
        let answer = post(at, path, &large);
        assert_eq!(answer.status, 413, "{path}");
        assert!(answer.body.contains("KiB: send less"), "{}", answer.body);
    }
    // In pieces, without an announcement.
    let mut stream = connect(at);
    stream
        .write_all(b"POST /v1/check HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n")
        .unwrap();
    for _ in 0..20 {
        stream.write_all(format!("2000\r\n{}\r\n", "x".repeat(0x2000)).as_bytes()).unwrap();
    }
    stream.write_all(b"0\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 413"), "{text}");
    // Whoever asks first whether to send is told at once.
    let mut stream = connect(at);
    stream.write_all(b"POST /v1/check HTTP/1.1\r\nHost: a\r\nConnection: close\r\nExpect: 100-continue\r\nContent-Length: 99999999\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 413"), "{text}");
    let largest = format!("{{\"attributes\":{{\"user_id\":\"1\"}}{}}}", " ".repeat((64 << 10) - 32));
    assert_eq!(post(at, "/v1/check", &largest).status, 200);
}

#[test]
fn slow_clients_are_left_and_others_are_unharmed() {
    let service = Service::start(THREE, &["--http-timeout", "300ms"]);
    let at = service.http();
    // One says nothing, one stops in the head, one in the first word of either protocol, one in the body.
    let starts: [&[u8]; 6] = [
        b"",
        b"POST /v1/check HTTP/1.1\r\nHost: a\r\nX-Slow:",
        b"PRI * HTT",
        b"P",
        b"POST /v1/check HTTP/1.1\r\nHost: a\r\nContent-Length: 30\r\n\r\n{\"attributes\"",
        b"GET /live HTTP/1.1\r\nHost: a\r\n\r\n",
    ];
    let mut streams: Vec<TcpStream> = starts
        .iter()
        .map(|start| {
            let mut stream = connect(at);
            stream.write_all(start).unwrap();
            stream
        })
        .collect();
    assert_eq!(check(at).0, 200);
    let texts: Vec<String> = streams
        .iter_mut()
        .map(|stream| {
            let mut bytes = Vec::new();
            stream.read_to_end(&mut bytes).expect("it is closed before this test gives up");
            String::from_utf8_lossy(&bytes).into_owned()
        })
        .collect();
    assert!(texts[4].starts_with("HTTP/1.1 408"), "{texts:?}");
    assert!(texts[5].starts_with("HTTP/1.1 200"), "an idle connection is closed as well: {texts:?}");
    assert_eq!(check(at).1, 1);
}

#[test]
fn broken_requests_and_closed_sockets_harm_nobody() {
    let service = Service::start(THREE, &[]);
    let at = service.http();
    let many = (0..100).map(|n| format!("X-{n}: 1\r\n")).collect::<String>();
    let many = format!("GET /live HTTP/1.1\r\nHost: a\r\n{many}\r\n");
    let long = format!("GET /live HTTP/1.1\r\nHost: a\r\nX-Long: {}\r\n\r\n", "x".repeat(64 << 10));
    let path = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(64 << 10));
    for (bytes, statuses) in [
        (many.as_bytes(), &["431"][..]),
        (long.as_bytes(), &["431"]),
        (path.as_bytes(), &["414", "431"]),
        (&b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03"[..], &["400"]),
        (b"NONSENSE\r\n\r\n", &["400"]),
        (b"POST /v1/check HTTP/1.1\r\nHost: a\r\nContent-Length: banana\r\n\r\n", &["400"]),
    ] {
        let mut stream = connect(at);
        // It may be closed before everything is sent.
        let _ = stream.write_all(bytes);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let text = String::from_utf8_lossy(&answer);
        let status = text.split(' ').nth(1).unwrap_or_default();
        // Of what is larger than is read, the rest may reset the connection before the answer arrives.
        let is_lost = text.is_empty() && bytes.len() > 32 << 10;
        assert!(is_lost || statuses.contains(&status), "{statuses:?}: {text}");
    }
    // Half a body, and nobody there to hear the answer.
    for _ in 0..20 {
        let mut stream = connect(at);
        let half = "POST /v1/check HTTP/1.1\r\nHost: a\r\nContent-Length: 50\r\n\r\n{\"attributes\": {\"user_id\"";
        stream.write_all(half.as_bytes()).unwrap();
        drop(stream);
        let mut stream = connect(at);
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nbanana banana banana").unwrap();
        drop(stream);
    }
    assert_eq!(check(at).1, 2);
}
