//! Clients of HTTP that send much, or slowly, or do not listen: what each may cost, and that others are unharmed.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use support::{Service, eventually, http, python};

const RULES: &str = "
domain: shop
rules:
  - {name: per-user, per: user_id, limits: [{rate: 1000000/d, algorithm: token_bucket}]}
";

const QUESTION: &str = r#"{"attributes": {"user_id": "1"}}"#;

fn connect(address: std::net::SocketAddr) -> TcpStream {
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
