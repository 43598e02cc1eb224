//! Floods of HTTP/2: whoever sends more than anybody needs is left, servers see little of it, memory stays what it is,
//! and others are served meanwhile.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "gateway/frames.rs"]
mod frames;
#[path = "gateway/origin.rs"]
mod origin;
mod support;

use std::collections::HashMap;
use std::io;

use frames::{
    CANCEL, CONTINUATION, DATA, END_HEADERS, END_STREAM, ENHANCE_YOUR_CALM, GOAWAY, HEADERS, Http2, PING, PRIORITY,
    REFUSED_STREAM, RST_STREAM, SETTINGS, Told, WINDOW_UPDATE, asks, block, frame, is_left, length,
};
use origin::Origin;
use support::{Service, eventually, http};

/// What a flood may add to the memory of the gateway. Each of them would add far more if it were kept.
const MOST_MEMORY: usize = 32 << 20;

fn before(origin: &Origin) -> Service {
    let file = format!(
        "routes:\n  - {{name: all, upstream: 'http://{}'}}\nrules:\n  - {{name: many, limits: 1000000/s}}\n",
        origin.address
    );
    Service::gateway(&file, &[])
}

/// The most memory that it ever had.
fn memory(gateway: &Service) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", gateway.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

/// How many requests the rule was asked about.
fn decided(gateway: &Service) -> u64 {
    let metrics = http(gateway.admin(), "GET /metrics HTTP/1.1", "").body;
    let ours = metrics.lines().filter(|line| line.starts_with("tollgate_rule_checks_total{"));
    ours.map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum()
}

/// Has a flood come while others ask, each of whom is answered, and looks at what it took.
fn meanwhile<T: Send>(gateway: &Service, flood: impl FnOnce() -> T + Send) -> T {
    let others = |number: usize| {
        for _ in 0..number {
            assert_eq!(http(gateway.proxy(), "GET /other HTTP/1.1", "").status, 200);
        }
    };
    others(20);
    let before = memory(gateway);
    let came = std::thread::scope(|scope| {
        let flood = scope.spawn(flood);
        while !flood.is_finished() {
            others(1);
        }
        flood.join().unwrap()
    });
    others(1);
    let grown = memory(gateway) - before;
    assert!(grown < MOST_MEMORY, "{grown} bytes more");
    came
}

/// Sends this over and over, `most` times, while it reads all that comes back; everything that was told until the
/// connection was ended from the other side.
fn flood(mut http2: Http2, first: &[u8], again: &[u8], most: usize) -> Vec<Told> {
    http2.send(first).unwrap();
    let mut reader = Http2 { stream: http2.stream.try_clone().unwrap() };
    let reading = std::thread::spawn(move || {
        let mut told = Vec::new();
        loop {
            match reader.read() {
                // Pongs and the like would be a flood of their own here.
                Ok(frame) if matches!(frame.kind, HEADERS | RST_STREAM | GOAWAY) => told.push(frame),
                Ok(_) => {}
                Err(error) => return (told, error),
            }
        }
    });
    // Whoever is left cannot go on.
    let some = again.repeat(most.min(100));
    let _ = (0..most.div_ceil(100)).try_for_each(|_| http2.send(&some));
    let (told, error) = reading.join().unwrap();
    assert!(is_left(&error), "it was borne with: {error}");
    told
}

fn reasons(told: &[Told], kind: u8) -> HashMap<u32, usize> {
    let mut reasons = HashMap::new();
    for frame in told.iter().filter(|frame| frame.kind == kind) {
        *reasons.entry(frame.reason()).or_default() += 1;
    }
    reasons
}

fn seen(origin: &Origin, path: &str) -> usize {
    origin.seen().iter().filter(|seen| seen.line.contains(path)).count()
}

/// The numbers of streams that a client may open, one after the other.
fn streams() -> impl Iterator<Item = u32> {
    (1..).step_by(2)
}

/// Requests that are taken back in the same breath, before anybody looked at them.
#[test]
fn requests_that_are_taken_back_at_once_end_the_connection() {
    let origin = Origin::start();
    let gateway = before(&origin);
    let request = block(&asks("GET", "/silence"));
    let mut all = Vec::new();
    for stream in streams().take(2_000) {
        all.extend(frame(HEADERS, END_HEADERS | END_STREAM, stream, &request));
        all.extend(frame(RST_STREAM, 0, stream, &CANCEL.to_be_bytes()));
    }
    let told = meanwhile(&gateway, || flood(Http2::connect(gateway.proxy()), &[], &all, 1));
    let known = reasons(&told, GOAWAY);
    assert!(known.is_empty() || known.contains_key(&ENHANCE_YOUR_CALM), "{known:?}");
    assert!(seen(&origin, "/silence") <= 500, "{}", seen(&origin, "/silence"));
}

/// Requests that are taken back as soon as they are on their way: each is work for limits and for servers.
#[test]
fn requests_that_are_taken_back_on_their_way_end_the_connection() {
    const ROUND: usize = 50;
    let origin = Origin::start();
    let gateway = before(&origin);
    let request = block(&asks("GET", "/silence"));
    let before = decided(&gateway);
    let rounds = meanwhile(&gateway, || {
        let mut http2 = Http2::connect(gateway.proxy());
        let mut numbers = streams();
        let mut round = || -> io::Result<()> {
            let numbers: Vec<u32> = numbers.by_ref().take(ROUND).collect();
            let asked: Vec<u8> =
                numbers.iter().flat_map(|id| frame(HEADERS, END_HEADERS | END_STREAM, *id, &request)).collect();
            http2.send(&asked)?;
            http2.settled()?;
            let back: Vec<u8> =
                numbers.iter().flat_map(|id| frame(RST_STREAM, 0, *id, &CANCEL.to_be_bytes())).collect();
            http2.send(&back)?;
            http2.settled().map(drop)
        };
        let ended = (0..40).find_map(|number| round().err().map(|error| (number, error)));
        let (rounds, error) = ended.expect("the connection is ended");
        assert!(is_left(&error), "{error}");
        rounds
    });
    assert!((2..=10).contains(&rounds), "{rounds} rounds");
    let most = (rounds + 1) * ROUND;
    assert!(seen(&origin, "/silence") <= most, "{}", seen(&origin, "/silence"));
    let decided = usize::try_from(decided(&gateway) - before).unwrap() - seen(&origin, "/other");
    assert!(decided <= most, "{decided} decisions");
}

/// Whoever takes back some of what it asks is a client like any other.
#[test]
fn a_client_may_change_its_mind() {
    let origin = Origin::start();
    let gateway = before(&origin);
    let mut http2 = Http2::connect(gateway.proxy());
    for (number, stream) in streams().take(1_200).enumerate() {
        let path = if number % 3 == 0 { "/silence" } else { "/quick" };
        http2.send(&frame(HEADERS, END_HEADERS | END_STREAM, stream, &block(&asks("GET", path)))).unwrap();
        if number % 3 == 0 {
            http2.settled().unwrap();
            http2.send(&frame(RST_STREAM, 0, stream, &CANCEL.to_be_bytes())).unwrap();
        } else {
            let is_answered = |told: &Told| told.stream == stream && told.flags & END_STREAM != 0;
            while !is_answered(&http2.read().expect("it is answered")) {}
        }
    }
    http2.settled().unwrap();
    assert_eq!(seen(&origin, "/quick"), 800);
}

/// Frames that ask for nothing, whether they are answered or not, and whether the answers are read or not.
#[test]
fn frames_that_say_nothing_end_the_connection() {
    let origin = Origin::start();
    let gateway = before(&origin);
    let post = frame(HEADERS, END_HEADERS, 1, &block(&asks("POST", "/post")));
    let window = [[0, 4], [0, 0], [0, 1]].concat();
    for (what, again) in [
        ("PING", frame(PING, 0, 0, &[7; 8])),
        ("PING that answers none", frame(PING, 1, 0, &[7; 8])),
        ("SETTINGS", frame(SETTINGS, 0, 0, &[])),
        ("SETTINGS with a window", frame(SETTINGS, 0, 0, &window)),
        ("PRIORITY", frame(PRIORITY, 0, 3, &[0, 0, 0, 0, 1])),
        ("WINDOW_UPDATE", frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1])),
        ("DATA", frame(DATA, 0, 1, &[])),
        ("an unknown frame", frame(99, 0, 0, &[])),
    ] {
        let told = meanwhile(&gateway, || flood(Http2::connect(gateway.proxy()), &post, &again, 200_000));
        assert!(told.iter().all(|told| told.kind != HEADERS), "{what}: {told:?}");
        let mut deaf = Http2::connect(gateway.proxy());
        meanwhile(&gateway, || {
            let some = again.repeat(1_000);
            let error = (0..10_000).find_map(|_| deaf.send(&some).err());
            assert!(is_left(&error.expect("the connection is ended")), "{what}");
        });
    }
    assert_eq!(seen(&origin, "/post"), 0, "a request that never ended");
}

/// A head that goes on and on, in pieces large and small.
#[test]
fn a_head_without_an_end_ends_the_connection() {
    let origin = Origin::start();
    let gateway = before(&origin);
    let large = [&[0, 1, b'x'], &*length(16_000), &*vec![b'y'; 16_000]].concat();
    let begun = frame(HEADERS, END_STREAM, 1, &block(&asks("GET", "/head")));
    let half = frame(HEADERS, END_STREAM, 1, &[0, 1, b'x', 127, 255, 255, 255, 127]);
    for (what, first, again) in [
        ("many fields", &begun, frame(CONTINUATION, 0, 1, &block(&[("x", "y")]))),
        ("large fields", &begun, frame(CONTINUATION, 0, 1, &large)),
        ("nothing", &begun, frame(CONTINUATION, 0, 1, &[])),
        ("one field", &half, frame(CONTINUATION, 0, 1, &[b'y'; 16_000])),
    ] {
        let told = meanwhile(&gateway, || flood(Http2::connect(gateway.proxy()), first, &again, 10_000));
        assert!(told.iter().all(|told| told.kind != HEADERS), "{what}: {told:?}");
    }
    assert_eq!(seen(&origin, "/head"), 0);
}

/// A head that is larger than it may be is refused, and one that is far larger, or becomes so, ends the connection.
#[test]
fn a_head_has_a_size() {
    let origin = Origin::start();
    let gateway = before(&origin);
    let ask = |lengths: &[usize], end: &[u8]| {
        let mut fields = block(&asks("GET", "/head"));
        for size in lengths {
            fields.extend([&[0, 1, b'x'], &*length(*size), &*vec![b'y'; *size]].concat());
        }
        fields.extend_from_slice(end);
        let mut pieces = fields.chunks(16_000);
        let mut sent = frame(HEADERS, END_STREAM, 1, pieces.next().unwrap());
        pieces.for_each(|piece| sent.extend(frame(CONTINUATION, 0, 1, piece)));
        sent.extend(frame(CONTINUATION, END_HEADERS, 1, &[]));
        let mut http2 = Http2::connect(gateway.proxy());
        let _ = http2.send(&sent);
        loop {
            let told = http2.read().expect("it is told");
            match (told.kind, &*told.payload) {
                (HEADERS, [0x88, ..]) => return "200",
                (HEADERS, _) => return "another status",
                (RST_STREAM, _) => return "reset",
                (GOAWAY, _) => return "ended",
                _ => {}
            }
        }
    };
    assert_eq!(ask(&[], &[]), "200");
    assert_eq!(ask(&[8_000], &[]), "200");
    assert_eq!(ask(&[8_000, 9_000], &[]), "another status");
    assert_eq!(ask(&[15_000; 5], &[]), "ended");
    // Remembered once, and said again with a byte each: sixteen megabytes.
    let said = [&[0x40, 1, b'x'], &*length(4_000), &*vec![b'y'; 4_000], &*vec![0x80 | 62; 4_000]].concat();
    assert_eq!(meanwhile(&gateway, || ask(&[], &said)), "ended");
    assert_eq!(seen(&origin, "/head"), 2);
}

/// Of more streams than there may be at once, those that are too many are refused, and who goes on is left.
#[test]
fn streams_are_as_many_as_they_may_be() {
    let origin = Origin::start();
    let gateway = before(&origin);
    let mut http2 = Http2::connect(gateway.proxy());
    let mut numbers = streams();
    let mut ask = |number: usize| -> Vec<u8> {
        let request = block(&asks("GET", "/silence"));
        let numbers = numbers.by_ref().take(number);
        numbers.flat_map(|id| frame(HEADERS, END_HEADERS | END_STREAM, id, &request)).collect()
    };
    http2.send(&ask(150)).unwrap();
    let told = http2.settled().unwrap();
    assert_eq!(reasons(&told, RST_STREAM), HashMap::from([(REFUSED_STREAM, 50)]));
    eventually("those that are not refused are asked", || seen(&origin, "/silence") == 100);
    let more = ask(20_000);
    let told = meanwhile(&gateway, || flood(http2, &[], &more, 1));
    assert!(reasons(&told, RST_STREAM).values().sum::<usize>() < 5_000);
    assert_eq!(seen(&origin, "/silence"), 100);
}
