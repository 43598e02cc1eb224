//! Clients of HTTP that send much, or slowly, or do not listen: what each may cost, and that others are unharmed.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use support::{Service, eventually, http, printed, scratch};

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

/// A large message by gRPC: how it ended.
fn large_message(service: &Service) -> String {
    let file = scratch("message");
    let mut message = vec![0, 0, 1, 0, 0];
    message.resize(5 + (1 << 16), 0xff);
    std::fs::write(&file, message).unwrap();
    let url = format!("http://{}/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit", service.grpc());
    let output = Command::new("curl")
        .args(["-sS", "-i", "--http2-prior-knowledge", "--max-time", "10", "-H", "content-type: application/grpc"])
        .args(["--data-binary", &format!("@{}", file.display())])
        .arg(url)
        .output();
    printed(&output.unwrap())
}

#[test]
fn bodies_that_do_not_end_take_so_much_memory_and_no_more() {
    let service = Service::start(RULES, &[]);
    let head = "POST /v1/batch HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1048576\r\n\r\n";
    let body = vec![b' '; (1 << 20) - 1];
    let large = format!("{}{QUESTION}", " ".repeat(60_000));
    let ask = || http(service.http(), "POST /v1/check HTTP/1.1", &large);
    assert_eq!(ask().status, 200);
    assert!(large_message(&service).contains("grpc-status: 3"), "it is read, and makes no sense");
    let senders: Vec<TcpStream> = (0..70)
        .map(|_| {
            let mut stream = connect(service.http());
            stream.write_all(head.as_bytes()).unwrap();
            stream.write_all(&body).unwrap();
            stream
        })
        .collect();
    eventually("the memory for bodies is spent", || ask().status == 503);
    assert!(large_message(&service).contains("grpc-status: 8"), "by gRPC as well");
    assert_eq!(
        http(service.http(), "POST /v1/check HTTP/1.1", QUESTION).status,
        200,
        "what is in one piece is answered"
    );
    drop(senders);
    eventually("it is there again", || ask().status == 200);
}
