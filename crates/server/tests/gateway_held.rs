//! What lasts as long as a request: slots are held for all of it, bytes are paid for whoever sends them, and a drain
//! waits.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "gateway/origin.rs"]
mod origin;
mod support;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use origin::Origin;
use quanta::Instant;
use support::{Answer, Service, eventually, http, pause};

fn get(at: SocketAddr, path: &str) -> Answer {
    http(at, &format!("GET {path} HTTP/1.1"), "")
}

fn file(origin: &Origin, limits: &str) -> String {
    let at = origin.address;
    format!(
        "routes:\n  - {{name: all, upstream: 'http://{at}'}}\nrules:\n  - {{name: r, per: ip, limits: [{limits}]}}\n"
    )
}

const UPGRADE: &str = "GET /websocket HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";

/// What a request is told, whatever follows that.
fn status_of(at: SocketAddr, request: &str) -> u16 {
    let mut stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    // Who is refused may be cut off while it sends.
    let _ = stream.write_all(request.as_bytes());
    let mut status = [0; 12];
    stream.read_exact(&mut status).unwrap();
    String::from_utf8_lossy(&status).rsplit(' ').next().unwrap().parse().unwrap()
}

/// A WebSocket, after what the server says first.
fn websocket(at: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream.write_all(UPGRADE.as_bytes()).unwrap();
    let mut said = Vec::new();
    while !said.ends_with(b"hello") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        said.push(byte[0]);
    }
    stream
}

/// Who is being sent a long answer owes what was sent of it, and not only once it is through.
#[test]
fn bytes_are_paid_for_as_they_flow() {
    let origin = Origin::start();
    let gateway = Service::gateway(&file(&origin, "{rate: 100KiB/d, algorithm: token_bucket}"), &[]);
    let mut client = TcpStream::connect(gateway.proxy()).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    client.write_all(b"GET /half/200000 HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    client.read_exact(&mut vec![0; 200_000]).unwrap();
    eventually("it is paid for", || get(gateway.proxy(), "/bytes/0").status == 429);
    assert_eq!(origin.closed(), 0, "the answer is still on its way");
    drop(client);
}

/// However short the lease: it is renewed for as long as the request is there.
#[test]
fn slots_are_held_for_as_long_as_the_request_takes() {
    let origin = Origin::start();
    let gateway = Service::gateway(&file(&origin, "{concurrency: 2, lease: 1s}"), &[]);
    let at = gateway.proxy();
    let tunnel = websocket(at);
    let slow = std::thread::spawn(move || get(at, "/drip/70").status);
    eventually("both are on their way", || origin.seen().len() == 2);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(2_700) {
        assert_eq!(get(at, "/").status, 429, "after {:?}", begun.elapsed());
        pause(Duration::from_millis(50));
    }
    assert_eq!(slow.join().unwrap(), 200);
    eventually("the slot is free", || get(at, "/").status == 200);
    drop(tunnel);
}

/// What was taken before limits were switched off is given back while they are.
#[test]
fn slots_are_given_back_while_limits_are_off() {
    let origin = Origin::start();
    let gateway = Service::gateway(&file(&origin, "{concurrency: 1, lease: 1min}"), &[]);
    let tunnel = websocket(gateway.proxy());
    assert_eq!(get(gateway.proxy(), "/").status, 429);
    let switch = |to: &str| http(gateway.admin(), &format!("POST /{to} HTTP/1.1"), "").status;
    assert_eq!(switch("off"), 200);
    drop(tunnel);
    // The server has seen that it is over when it can be asked again without a wait.
    pause(Duration::from_millis(300));
    assert_eq!(switch("on"), 200);
    assert_eq!(get(gateway.proxy(), "/").status, 200);
}

/// A body that nobody announced is paid for as it flows, and so is what goes through a tunnel, either way.
#[test]
fn bytes_that_were_not_announced_are_paid_for() {
    let origin = Origin::start();
    let upload = |at: SocketAddr| {
        let chunk = "x".repeat(4_096);
        let head = "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n";
        let chunks = format!("1000\r\n{chunk}\r\n").repeat(8);
        status_of(at, &format!("{head}{chunks}0\r\n\r\n"))
    };
    for unit in ["request_bytes", "bytes"] {
        let limit = format!("{{rate: 20000 {unit}/d, algorithm: token_bucket}}");
        let gateway = Service::gateway(&file(&origin, &limit), &[]);
        assert_eq!(upload(gateway.proxy()), 200, "{unit}");
        assert_eq!(origin.last().body.len(), 8 * 4_096);
        eventually("it is charged", || upload(gateway.proxy()) == 429);
    }
    for (unit, sent) in [("request_bytes", 30_000), ("response_bytes", 30_000), ("bytes", 15_000)] {
        let limit = format!("{{rate: 20000 {unit}/d, algorithm: token_bucket}}");
        let gateway = Service::gateway(&file(&origin, &limit), &[]);
        let mut tunnel = websocket(gateway.proxy());
        for _ in 0..sent / 1_000 {
            tunnel.write_all(&[b'x'; 1_000]).unwrap();
            tunnel.read_exact(&mut [0; 1_000]).unwrap();
        }
        drop(tunnel);
        let ask = || status_of(gateway.proxy(), UPGRADE);
        eventually(&format!("{unit} of the tunnel are charged"), || ask() == 429);
    }
}

/// A limit on slots beside a cost that the answer says: nothing stays held.
#[test]
fn a_cost_that_is_known_later_holds_no_slots() {
    let origin = Origin::start();
    let at = origin.address;
    let file = format!(
        "routes:\n  - {{name: all, upstream: 'http://{at}', cost: {{response_header: X-Cost}}}}\n\
         rules:\n  - {{name: r, per: ip, limits: [{{concurrency: 5, lease: 1min}}]}}\n"
    );
    let gateway = Service::gateway(&file, &[]);
    for _ in 0..5 {
        assert_eq!(get(gateway.proxy(), "/cost/4").status, 200);
        eventually("all are free again", || get(gateway.proxy(), "/cost/1").status == 200);
    }
}

/// A gateway that is told to end finishes what its servers still work on.
#[test]
fn a_drain_waits_for_slow_servers() {
    let origin = Origin::start();
    let gateway = Service::gateway(&file(&origin, "1000/s"), &["--drain-delay", "0s"]);
    let at = gateway.proxy();
    let slow = std::thread::spawn(move || get(at, "/drip/80"));
    eventually("it is on its way", || origin.seen().len() == 1);
    gateway.signal("TERM");
    let answer = slow.join().unwrap();
    assert!(answer.status == 200 && answer.body.contains("79\n"), "it was cut off: {}", answer.body);
    assert!(gateway.wait().success());
}

/// So long and no longer: as the option, a variable or the file say.
#[test]
fn a_drain_ends_when_it_may_take_no_longer() {
    let origin = Origin::start();
    let written = format!("settings: {{drain-timeout: 500ms}}\n{}", file(&origin, "1000/s"));
    for (file, args) in [
        (file(&origin, "1000/s"), &["--drain-delay", "0s", "--drain-timeout", "500ms"][..]),
        (written, &["--drain-delay", "0s"]),
    ] {
        let gateway = Service::gateway(&file, args);
        let tunnel = websocket(gateway.proxy());
        let begun = Instant::now();
        gateway.signal("TERM");
        assert!(gateway.wait().success());
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
        drop(tunnel);
    }
}
