//! Who waits at a limit of the gateway: in which order, for how long, and until when.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "gateway/origin.rs"]
mod origin;
mod support;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use origin::{Origin, Seen};
use quanta::Instant;
use support::{Service, eventually};

fn gaps(origin: &Origin) -> Vec<Duration> {
    let mut times: Vec<Instant> = origin.seen().iter().map(|seen| seen.at).collect();
    times.sort();
    times.windows(2).map(|pair| pair[1].duration_since(pair[0])).collect()
}

/// Connections on which something was asked already, so that what is written to them one after the other is read in that order.
fn warm(at: SocketAddr, number: usize) -> Vec<TcpStream> {
    let connect = |_| {
        let mut stream = TcpStream::connect(at).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(b"GET /bytes/0 HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        assert_eq!(status_of(&mut stream), 200);
        stream
    };
    (0..number).map(connect).collect()
}

/// Reads the head of an answer.
fn status_of(stream: &mut TcpStream) -> u16 {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    String::from_utf8_lossy(&head).split(' ').nth(1).unwrap().parse().unwrap()
}

fn ask_on(stream: &mut TcpStream, number: usize) {
    let request = format!("GET /limited/{number} HTTP/1.1\r\nHost: a\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
}

/// One thread before a limit on what is below `/limited`.
fn limited(origin: &Origin, limit: &str) -> Service {
    let at = origin.address;
    let file = format!(
        "routes:\n  - {{name: all, upstream: 'http://{at}'}}\n\
         rules:\n  - {{name: r, when: {{path: /limited/*}}, per: ip, limits: [{limit}]}}\n"
    );
    Service::gateway(&file, &["--workers", "1"])
}

/// The numbers of those that arrived, in that order.
fn arrived(origin: &Origin) -> Vec<usize> {
    let mut seen = origin.seen();
    seen.sort_by_key(|seen| seen.at);
    let number = |seen: &Seen| seen.line.strip_prefix("GET /limited/")?.split(' ').next()?.parse().ok();
    seen.iter().filter_map(number).collect()
}

/// [D8, B11] Of a hundred who wait the first is served first, by a limit that delays as by a queue, and they come to the server apart.
#[test]
fn d8_first_come_first_served() {
    for limit in [
        "{rate: 50/s, burst: 1, algorithm: token_bucket, on_limit: {delay: 10s}}",
        "{rate: 50/s, algorithm: leaky_bucket, queue: 200}",
    ] {
        let origin = Origin::start();
        let gateway = limited(&origin, limit);
        let mut connections = warm(gateway.proxy(), 100);
        for (number, stream) in connections.iter_mut().enumerate() {
            ask_on(stream, number);
        }
        assert!(connections.iter_mut().all(|stream| status_of(stream) == 200), "{limit}");
        let order = arrived(&origin);
        assert_eq!(order.len(), 100, "{limit}");
        // Who was let go later may still be quicker on its way to a busy server.
        let strayed = order.iter().enumerate().map(|(place, number)| place.abs_diff(*number)).max();
        assert!(strayed <= Some(3), "{limit}: {order:?}");
        let mut gaps = gaps(&origin).split_off(100);
        gaps.sort_unstable();
        let middle = gaps[gaps.len() / 2].as_millis();
        assert!((10..=40).contains(&middle), "{limit}: {gaps:?}");
    }
}

/// [D6] Who stands behind more than can be served in time does not wait for that.
#[test]
fn d6_a_flood_is_refused_at_once() {
    let origin = Origin::start();
    let gateway = limited(&origin, "{rate: 2/s, burst: 1, algorithm: token_bucket, on_limit: {delay: 5s}}");
    let mut connections = warm(gateway.proxy(), 100);
    let begun = Instant::now();
    for (number, stream) in connections.iter_mut().enumerate() {
        ask_on(stream, number);
    }
    let mut statuses = Vec::new();
    for stream in connections.iter_mut().rev().take(80) {
        statuses.push(status_of(stream));
    }
    assert_eq!(statuses, [429; 80]);
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    let through = connections.iter_mut().take(20).map(status_of).filter(|status| *status == 200).count();
    assert!((10..=12).contains(&through), "{through}");
}

/// Whoever leaves while it waits is not sent, and the next goes in its place.
#[test]
fn who_leaves_is_not_waited_for() {
    let origin = Origin::start();
    let gateway = limited(&origin, "{rate: 1/s, burst: 1, algorithm: token_bucket, on_limit: {delay: 10s}}");
    let mut connections = warm(gateway.proxy(), 5);
    for (number, stream) in connections.iter_mut().enumerate() {
        ask_on(stream, number);
    }
    eventually("the first is through", || !arrived(&origin).is_empty());
    let begun = Instant::now();
    // The first of those who wait, and one behind it.
    drop((connections.remove(1), connections.remove(2)));
    assert!(connections.iter_mut().all(|stream| status_of(stream) == 200));
    assert_eq!(arrived(&origin), [0, 2, 4]);
    assert!(begun.elapsed() < Duration::from_millis(3_500), "{:?}", begun.elapsed());
}
