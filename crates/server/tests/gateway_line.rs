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
use support::{Service, eventually, pause};

fn gaps(origin: &Origin) -> Vec<Duration> {
    let mut times: Vec<Instant> = origin.seen().iter().map(|seen| seen.at).collect();
    times.sort();
    times.windows(2).map(|pair| pair[1].duration_since(pair[0])).collect()
}

/// Connections on which something was asked already, so that what is written to them one after the other is read in
/// that order.
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
fn head_of(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    String::from_utf8_lossy(&head).into_owned()
}

fn status_of(stream: &mut TcpStream) -> u16 {
    head_of(stream).split(' ').nth(1).unwrap().parse().unwrap()
}

fn ask_on(stream: &mut TcpStream, number: usize) {
    let request = format!("GET /limited/{number} HTTP/1.1\r\nHost: a\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
}

/// One thread before a limit on what is below `/limited`.
fn limited(origin: &Origin, limit: &str) -> Service {
    limited_with(origin, limit, &[])
}

fn limited_with(origin: &Origin, limit: &str, args: &[&str]) -> Service {
    let at = origin.address;
    let file = format!(
        "routes:\n  - {{name: all, upstream: 'http://{at}'}}\n\
         rules:\n  - {{name: r, when: {{path: /limited/*}}, per: ip, limits: [{limit}]}}\n"
    );
    Service::gateway(&file, &[&["--workers", "1"], args].concat())
}

/// The numbers of those that arrived, in that order.
fn arrived(origin: &Origin) -> Vec<usize> {
    let mut seen = origin.seen();
    seen.sort_by_key(|seen| seen.at);
    let number = |seen: &Seen| seen.line.strip_prefix("GET /limited/")?.split(' ').next()?.parse().ok();
    seen.iter().filter_map(number).collect()
}

/// [D8, B11] Of a hundred who wait the first is served first, by a limit that delays as by a queue, and they come to
/// the server apart.
///
/// Order can be lost on the way to the gateway, in its line, and on the way to the server. By its own account (when
/// each came, and how long it waited) the gateway is told from the two others, and has no excuse.
#[test]
fn d8_first_come_first_served() {
    for limit in [
        "{rate: 50/s, burst: 1, algorithm: token_bucket, on_limit: {delay: 10s}}",
        "{rate: 50/s, algorithm: leaky_bucket, queue: 200}",
    ] {
        let origin = Origin::start();
        let log = support::scratch("access.log");
        let gateway = limited_with(&origin, limit, &["--access-log", &log.display().to_string()]);
        let mut connections = warm(gateway.proxy(), 100);
        for (number, stream) in connections.iter_mut().enumerate() {
            ask_on(stream, number);
        }
        let waited: Vec<i64> = connections.iter_mut().map(|stream| waited(&head_of(stream))).collect();
        eventually("all are written down", || came(&log).len() == 100);
        let came = came(&log);
        let first = came.iter().map(|(_, at)| *at).min().unwrap();
        let mut arrived_at: Vec<(i64, usize)> = came.iter().map(|(number, at)| (at - first, *number)).collect();
        arrived_at.sort_unstable();
        let strayed = arrived_at.iter().enumerate().map(|(place, (_, number))| place.abs_diff(*number)).max();
        assert!(strayed <= Some(3), "{limit}: lost on the way to the gateway: {arrived_at:?}");
        // One thread reads them: each began to wait after it came, and before the next did. To the millisecond, either
        // way.
        let begun = arrived_at.windows(2).map(|pair| (pair[0].1, pair[0].0 - 1, pair[1].0 + 1));
        let let_go: Vec<(usize, i64, i64)> =
            begun.map(|(number, from, to)| (number, from + waited[number] - 1, to + waited[number] + 1)).collect();
        let mut latest = (0, i64::MIN);
        for (number, not_before, not_after) in &let_go {
            assert!(latest.1 <= *not_after, "{limit}: {number} overtook {} in the line: {let_go:?}", latest.0);
            latest = if *not_before > latest.1 { (*number, *not_before) } else { latest };
        }
        let order = arrived(&origin);
        assert_eq!(order.len(), 100, "{limit}");
        // Who was let go later may still be quicker on its way to a busy server.
        let strayed = order.iter().enumerate().map(|(place, number)| place.abs_diff(*number)).max();
        assert!(strayed <= Some(3), "{limit}: lost on the way to the server: {order:?}");
        let mut gaps = gaps(&origin).split_off(100);
        gaps.sort_unstable();
        let middle = gaps[gaps.len() / 2].as_millis();
        assert!((10..=40).contains(&middle), "{limit}: {gaps:?}");
    }
}

/// How long a request waited by its answer, in milliseconds.
fn waited(head: &str) -> i64 {
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    let header = head.lines().find_map(|line| line.strip_prefix("x-tollgate-waited: "));
    header.map_or(0, |seconds| (seconds.parse::<f64>().unwrap() * 1e3).round() as i64)
}

/// By the access log, who came and at which millisecond.
fn came(log: &std::path::Path) -> Vec<(usize, i64)> {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    // The last line may be on its way.
    let lines = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let of = |line: serde_json::Value| {
        let number = line["path"].as_str()?.strip_prefix("/limited/")?.parse().ok()?;
        let at: jiff::Timestamp = line["time"].as_str()?.parse().ok()?;
        Some((number, at.as_millisecond()))
    };
    lines.filter_map(of).collect()
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

/// Requests with bodies that nobody reads while they wait, in all the ways in which one may have been sent by then, and
/// with what may have been sent behind them.
fn unread_bodies() -> [(&'static str, Vec<u8>); 7] {
    let post = |headers: &str, body: &[u8]| {
        let head = format!("POST /limited/left HTTP/1.1\r\nHost: a\r\n{headers}\r\n\r\n");
        [head.as_bytes(), body].concat()
    };
    [
        ("whole", post("Content-Length: 5", b"hello")),
        ("in part", post("Content-Length: 500", b"hello")),
        ("more than is read ahead", post("Content-Length: 1000000", &[b'x'; 40_000])),
        ("in chunks", post("Transfer-Encoding: chunked", b"5\r\nhello\r\n")),
        ("announced", post("Content-Length: 5\r\nExpect: 100-continue", b"")),
        ("none, and a byte of the next request", post("Content-Length: 0", b"G")),
        ("whole, and the next request", post("Content-Length: 5", b"helloGET / HTTP/1.1\r\nHost: a\r\n\r\n")),
    ]
}

/// A gateway before a limit on `/limited`, and its access log.
fn logged(origin: &Origin, limit: &str, args: &[&str]) -> (Service, std::path::PathBuf) {
    let log = support::scratch("access.log");
    let file = format!(
        "upstreams:\n  - {{name: up, servers: 'http://{}', overload: {{max_concurrent: 1, queue: 10, max_wait: 1min}}}}\n\
         routes:\n  - {{name: all, upstream: up}}\n\
         rules:\n  - {{name: r, when: {{path: /limited/*}}, per: ip, limits: [{limit}]}}\n",
        origin.address
    );
    let gateway = Service::gateway(&file, &[&["--access-log", &log.display().to_string()], args].concat());
    (gateway, log)
}

/// How many left before there was an answer.
fn left(log: &std::path::Path) -> usize {
    std::fs::read_to_string(log).unwrap_or_default().matches("\"status\":499").count()
}

/// Whoever leaves is missed at once, whatever it has sent of a body that nobody reads: before a limit that delays, in
/// the queue of a leaky bucket, while a refusal is held back, and before a server that has too much to do.
#[test]
fn who_leaves_a_body_behind_is_not_waited_for() {
    for limit in [
        "{rate: 1/h, burst: 1, algorithm: token_bucket, on_limit: {delay: 2h}}",
        "{rate: 1/h, algorithm: leaky_bucket, queue: 10}",
        "{rate: 1/h, burst: 1, algorithm: token_bucket, on_limit: {reject_slowly: 1h}}",
        "1000/s",
    ] {
        let origin = Origin::start();
        let (gateway, log) = logged(&origin, limit, &[]);
        let mut first = TcpStream::connect(gateway.proxy()).unwrap();
        let is_overload = limit == "1000/s";
        let path = if is_overload { "silence" } else { "limited/first" };
        first.write_all(format!("GET /{path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).unwrap();
        eventually("the first is through", || origin.seen().len() == 1);
        if !is_overload {
            assert_eq!(status_of(&mut first), 200);
        }
        for (number, (what, request)) in unread_bodies().into_iter().enumerate() {
            // Whoever closes with something unread resets; whoever does not ends its half.
            for (turn, ends_half) in [false, true].into_iter().enumerate() {
                let mut stream = TcpStream::connect(gateway.proxy()).unwrap();
                stream.write_all(&request).unwrap();
                // It is asked about once it is there: a second request of the same connection would not be.
                stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
                let told = stream.read(&mut [0; 1]).map_err(|error| error.kind());
                assert!(told.is_err_and(|kind| kind == std::io::ErrorKind::WouldBlock), "{limit}, {what}: it waits");
                assert_eq!(left(&log), number * 2 + turn, "{limit}, {what}: nobody else leaves");
                if ends_half {
                    stream.shutdown(std::net::Shutdown::Write).unwrap();
                    eventually(&format!("{limit}, {what}: its end is noticed"), || left(&log) == number * 2 + turn + 1);
                }
                drop(stream);
                eventually(&format!("{limit}, {what}: it is missed"), || left(&log) == number * 2 + turn + 1);
            }
        }
        let before = left(&log);
        let mut curl = std::process::Command::new("curl");
        curl.args(["-sS", "--http2-prior-knowledge", "-d", "hello"]);
        let mut curl = curl.arg(format!("http://{}/limited/left", gateway.proxy())).spawn().unwrap();
        pause(Duration::from_millis(200));
        assert_eq!((left(&log), curl.try_wait().unwrap()), (before, None), "{limit}: it waits, by HTTP/2");
        curl.kill().unwrap();
        curl.wait().unwrap();
        eventually(&format!("{limit}: it is missed, by HTTP/2"), || left(&log) == before + 1);
        assert_eq!(origin.seen().len(), 1, "{limit}: nobody who left was sent");
    }
}

/// Who stays is served, with all of its body, however much of it came while it waited.
#[test]
fn a_body_that_waited_arrives_whole() {
    let origin = Origin::start();
    let gateway = limited(&origin, "{rate: 2/s, burst: 1, algorithm: token_bucket, on_limit: {delay: 10s}}");
    let mut connections = warm(gateway.proxy(), 4);
    let body = |number: usize| vec![b'0' + number as u8; 300_000];
    for (number, stream) in connections.iter_mut().enumerate() {
        let head = format!("POST /limited/{number} HTTP/1.1\r\nHost: a\r\nContent-Length: 300000\r\n\r\n");
        stream.write_all(&[head.as_bytes(), &body(number)[..100_000]].concat()).unwrap();
    }
    for (number, stream) in connections.iter_mut().enumerate() {
        stream.write_all(&body(number)[100_000..]).unwrap();
        assert_eq!(status_of(stream), 200);
    }
    let seen = origin.seen();
    for number in 0..4 {
        let line = format!("POST /limited/{number} HTTP/1.1");
        let sent = seen.iter().find(|seen| seen.line == line).unwrap();
        assert!(sent.body == body(number), "{number}: {} bytes", sent.body.len());
    }
}

/// The last place of a leaky bucket is free again when whoever had it leaves; no other is, since those behind it have
/// been told theirs.
#[test]
fn the_last_place_of_a_queue_is_given_back() {
    let origin = Origin::start();
    let (gateway, log) = logged(&origin, "{rate: 1/min, algorithm: leaky_bucket, queue: 3}", &["--workers", "1"]);
    let at = gateway.proxy();
    let ask = |number: usize| {
        let mut stream = TcpStream::connect(at).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        ask_on(&mut stream, number);
        stream
    };
    assert_eq!(status_of(&mut ask(0)), 200);
    let queued = |number: usize| {
        let metrics = support::http(gateway.admin(), "GET /metrics HTTP/1.1", "").body;
        let line =
            format!("tollgate_rule_checks_total{{domain=\"default\",rule=\"r\",outcome=\"delayed\"}} {number}\n");
        metrics.contains(&line)
    };
    let wait = |number: usize, places: usize| {
        let stream = ask(number);
        eventually("it is in the queue", || queued(places));
        stream
    };
    let is_full = || {
        let answer = support::http(at, "GET /limited/9 HTTP/1.1", "");
        assert_eq!(answer.status, 429);
        // There are three ahead, and the time between two.
        assert!(answer.header("x-tollgate-expected-wait").unwrap().parse::<f64>().unwrap() > 170.0);
    };
    let (first, second, third) = (wait(1, 1), wait(2, 2), wait(3, 3));
    is_full();
    // One in the middle: its place stays empty.
    drop(first);
    eventually("it is missed", || left(&log) == 1);
    is_full();
    // The last: the next one has its place, and no other is free.
    drop(third);
    eventually("it is missed", || left(&log) == 2);
    let fourth = wait(4, 4);
    is_full();
    // Both that are left, from the end.
    drop(fourth);
    eventually("it is missed", || left(&log) == 3);
    drop(second);
    eventually("it is missed", || left(&log) == 4);
    let _both = (wait(5, 5), wait(6, 6));
    is_full();
    assert_eq!(arrived(&origin), [0]);
}

/// A place in line is behind those in the queue itself, whether one gets through or is refused; who could not be served
/// in time is refused at once.
#[test]
fn places_are_counted_on_behind_a_full_queue() {
    let origin = Origin::start();
    let gateway = limited(&origin, "{rate: 1/s, algorithm: leaky_bucket, queue: 2, on_limit: {delay: 3500ms}}");
    let mut connections = warm(gateway.proxy(), 5);
    for (number, stream) in connections.iter_mut().enumerate() {
        ask_on(stream, number);
        pause(Duration::from_millis(50));
    }
    let begun = Instant::now();
    let header = |head: &str, name: &str| {
        let value = head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        value.map(|value| value.parse::<f64>().unwrap())
    };
    let refused = head_of(&mut connections[4]);
    assert!(begun.elapsed() < Duration::from_millis(500), "{refused}");
    assert!(refused.starts_with("HTTP/1.1 429 "), "{refused}");
    assert_eq!(header(&refused, "x-tollgate-queue-position"), Some(4.0), "{refused}");
    let expected = header(&refused, "x-tollgate-expected-wait").unwrap();
    assert!((3.5..4.0).contains(&expected), "{refused}");
    for (number, stream) in connections[..4].iter_mut().enumerate() {
        let head = head_of(stream);
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        let position = (number > 0).then_some(number as f64);
        assert_eq!(header(&head, "x-tollgate-queue-position"), position, "{number}: {head}");
    }
}

/// A queue that is only tried out holds nobody back.
#[test]
fn a_queue_in_the_shadow_delays_nobody() {
    let origin = Origin::start();
    let file = format!(
        "routes:\n  - {{name: all, upstream: 'http://{}'}}\n\
         rules:\n  - {{name: r, mode: shadow, per: ip, limits: [{{rate: 1/h, algorithm: leaky_bucket, queue: 10}}]}}\n",
        origin.address
    );
    let gateway = Service::gateway(&file, &[]);
    for _ in 0..5 {
        let answer = support::http(gateway.proxy(), "GET / HTTP/1.1", "");
        assert_eq!((answer.status, answer.header("x-tollgate-waited")), (200, None));
    }
}

/// A gateway before a limit on everybody together, and one on each key.
fn fair(origin: &Origin, all: &str, each: &str) -> Service {
    let file = format!(
        "routes:\n  - {{name: all, upstream: 'http://{}'}}\n\
         rules:\n  - {{name: all, when: {{path: /limited/*}}, limits: [{all}]}}\n  \
         - {{name: each, when: {{path: /limited/*}}, per: header.x-key, limits: [{each}]}}\n",
        origin.address
    );
    Service::gateway(&file, &["--workers", "1"])
}

fn ask_as(stream: &mut TcpStream, key: &str, number: usize) {
    let request = format!("GET /limited/{number} HTTP/1.1\r\nHost: a\r\nX-Key: {key}\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
}

/// [A8] A limit that rejects is undone by no other that is over for longer and would rather keep requests, or have them
/// wait.
#[test]
fn a8_a_flood_is_rejected_whatever_a_slower_limit_says() {
    for on_limit in ["enqueue", "{delay: 1h}", "{delay: 1h, order: newest_first}", "{reject_slowly: 1h}"] {
        let origin = Origin::start();
        let all = format!("{{rate: 3/d, algorithm: token_bucket, on_limit: {on_limit}}}");
        let gateway = fair(&origin, &all, "{rate: 2/h, algorithm: token_bucket}");
        let ask = |key: &str| support::http(gateway.proxy(), &format!("GET /limited/1 HTTP/1.1\nX-Key: {key}"), "");
        assert_eq!([ask("flood").status, ask("flood").status, ask("other").status], [200; 3], "{on_limit}");
        for _ in 0..20 {
            let answer = ask("flood");
            assert_eq!(answer.status, 429, "{on_limit}");
            let wait: u64 = answer.header("retry-after").unwrap().parse().unwrap();
            assert!(wait > 8 * 3_600 - 60, "{on_limit}: who waits that long is admitted, by both: {wait}");
        }
        let metrics = support::http(gateway.admin(), "GET /metrics HTTP/1.1", "").body;
        assert!(
            metrics.contains("\ntollgate_limit_waiting 0\n") && metrics.contains("\ntollgate_later_kept_total 0\n")
        );
        assert_eq!(origin.seen().len(), 3);
    }
}

/// [D8, B14] All who wait for one counter are one line, whatever else is counted of them: who comes first is served
/// first, is told its place, and is refused at once if those ahead take too long, whoever they are.
#[test]
fn d8_everybody_who_waits_for_a_counter_is_in_one_line() {
    let origin = Origin::start();
    let all = "{rate: 2/s, burst: 1, algorithm: token_bucket, on_limit: {delay: 4s}}";
    let gateway = fair(&origin, all, "100/s");
    let mut connections = warm(gateway.proxy(), 20);
    let begun = Instant::now();
    for (number, stream) in connections.iter_mut().enumerate() {
        ask_as(stream, &number.to_string(), number);
        pause(Duration::from_millis(5));
    }
    let position = |head: &str| {
        let value = head.lines().find_map(|line| line.strip_prefix("x-tollgate-queue-position: "));
        value.map(|value| value.parse::<usize>().unwrap())
    };
    for stream in connections.iter_mut().skip(14) {
        let head = head_of(stream);
        assert!(head.starts_with("HTTP/1.1 429 ") && position(&head) >= Some(6), "{head}");
    }
    assert!(begun.elapsed() < Duration::from_millis(3_500), "{:?}", begun.elapsed());
    let mut places = Vec::new();
    for stream in connections.iter_mut().take(8) {
        let head = head_of(stream);
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        places.push(position(&head).unwrap_or(0));
    }
    assert!(places.is_sorted() && places[1..].iter().all(|place| *place > 0) && places[7] >= 5, "{places:?}");
    assert!(arrived(&origin).is_sorted(), "{:?}", arrived(&origin));
}

/// [A9] One client asks without end, the other gets its whole quota: with nothing but its own limit, behind a limit on
/// everybody that delays, and behind one that keeps requests.
#[test]
fn a9_a_flood_takes_nothing_from_others() {
    for all in [
        "1000000/s",
        "{rate: 40/s, burst: 1, algorithm: token_bucket, on_limit: {delay: 5s}}",
        "{rate: 40/s, algorithm: token_bucket, on_limit: enqueue}",
    ] {
        let origin = Origin::start();
        let gateway = fair(&origin, all, "{rate: 20/h, algorithm: token_bucket}");
        let at = gateway.proxy();
        let is_over = std::sync::atomic::AtomicBool::new(false);
        let ask = |key: &str| support::http(at, &format!("GET /limited/1 HTTP/1.1\nX-Key: {key}"), "").status;
        let (flood, quota) = std::thread::scope(|scope| {
            let floods: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| {
                        let asking = std::iter::repeat_with(|| ask("flood"));
                        asking.take_while(|_| !is_over.load(std::sync::atomic::Ordering::Relaxed)).collect::<Vec<u16>>()
                    })
                })
                .collect();
            pause(Duration::from_millis(200));
            let quota: Vec<u16> = (0..21).map(|_| ask("other")).collect();
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
            let flood: Vec<u16> = floods.into_iter().flat_map(|flood| flood.join().unwrap()).collect();
            (flood, quota)
        });
        let taken = |statuses: &[u16]| statuses.iter().filter(|status| [200, 202].contains(*status)).count();
        assert_eq!((taken(&quota), quota[20]), (20, 429), "{all}: {quota:?}");
        assert_eq!(taken(&flood), 20, "{all}: of {}", flood.len());
        assert!(flood.len() > 40, "{all}: it was to be a flood: {}", flood.len());
    }
}
