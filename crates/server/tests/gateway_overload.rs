//! What the gateway does when servers have more to do than they can: who gets through, who waits, and who is told to
//! come again.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "gateway/origin.rs"]
mod origin;
mod support;

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use origin::Origin;
use quanta::Instant;
use support::{Answer, Service, eventually, http, pause};

fn get(at: SocketAddr, path: &str) -> Answer {
    http(at, &format!("GET {path} HTTP/1.1"), "")
}

fn asking(at: SocketAddr, path: &'static str) -> JoinHandle<u16> {
    std::thread::spawn(move || get(at, path).status)
}

/// A gateway whose servers are given so much. What begins with a priority's name is that important by its route.
fn before(origin: &Origin, overload: &str, more: &str) -> Service {
    let file = format!(
        "upstreams:\n  - {{name: api, server: 'http://{}', overload: {overload}}}\n\
         routes:\n  - {{name: all, upstream: api}}\n  \
         - {{name: critical, path: /critical, strip_path: true, upstream: api, priority: critical}}\n  \
         - {{name: low, path: /low, strip_path: true, upstream: api, priority: low}}\n{more}",
        origin.address
    );
    Service::gateway(&file, &[])
}

fn metric(gateway: &Service, name: &str) -> f64 {
    let text = get(gateway.admin(), "/metrics").body;
    let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("no {name} in\n{text}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

const RUNNING: &str = "tollgate_upstream_requests{upstream=\"api\",state=\"running\"}";
const WAITING: &str = "tollgate_upstream_requests{upstream=\"api\",state=\"waiting\"}";

/// [A11] With a fifth reserved, critical requests get through at once while more of the others come than can ever be
/// served.
#[test]
fn a11_critical_requests_get_through_while_others_saturate() {
    let origin = Origin::start();
    let gateway = before(&origin, "{max_concurrent: 10, reserved: {critical: 20%}}", "");
    let at = gateway.proxy();
    let is_over = Arc::new(AtomicBool::new(false));
    let (served, shed) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let crowd: Vec<_> = (0..16)
        .map(|_| {
            let (is_over, served, shed) = (Arc::clone(&is_over), Arc::clone(&served), Arc::clone(&shed));
            std::thread::spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    let answer = get(at, "/drip/2");
                    match answer.status {
                        200 => served.fetch_add(1, Ordering::Relaxed),
                        503 => {
                            assert_eq!(answer.header("retry-after"), Some("1"));
                            assert!(answer.body.contains("too much to do"), "{}", answer.body);
                            pause(Duration::from_millis(5));
                            shed.fetch_add(1, Ordering::Relaxed)
                        }
                        other => panic!("{other}"),
                    };
                }
            })
        })
        .collect();
    eventually("others are refused", || shed.load(Ordering::Relaxed) > 20);
    // Two at a time, again and again: a fifth of what there is.
    let critical: Vec<_> = (0..2)
        .map(|_| {
            std::thread::spawn(move || {
                for _ in 0..15 {
                    assert_eq!(get(at, "/critical/drip/2").status, 200);
                }
            })
        })
        .collect();
    critical.into_iter().for_each(|thread| thread.join().unwrap());
    assert!(served.load(Ordering::Relaxed) > 30);
    is_over.store(true, Ordering::Relaxed);
    crowd.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(
        metric(&gateway, "tollgate_shed_requests_total{upstream=\"api\",priority=\"critical\",reason=\"full\"}"),
        0.0
    );
    let refused = "tollgate_shed_requests_total{upstream=\"api\",priority=\"normal\",reason=\"full\"}";
    assert_eq!(metric(&gateway, refused) as usize, shed.load(Ordering::Relaxed));
    eventually("nothing is left", || metric(&gateway, RUNNING) == 0.0);
}

/// A rule that says nothing of priority does not undo what another says.
#[test]
fn a_rule_may_make_requests_less_important() {
    let origin = Origin::start();
    let rules = "rules:\n  - {name: all, per: ip, limits: 1000/s}\n  \
                 - {name: crawlers, when: {query.crawler: '1'}, limits: unlimited, priority: low}\n";
    let gateway = before(&origin, "{max_concurrent: 1, queue: 1, max_wait: 5s}", rules);
    let at = gateway.proxy();
    let first = asking(at, "/drip/10");
    eventually("it is on its way", || metric(&gateway, RUNNING) == 1.0);
    let low = asking(at, "/one?crawler=1");
    eventually("it waits", || metric(&gateway, WAITING) == 1.0);
    let normal = asking(at, "/two");
    assert_eq!(low.join().unwrap(), 503, "it makes way");
    assert_eq!([first.join().unwrap(), normal.join().unwrap()], [200; 2]);
}

/// Who waits is served by importance, and the least important goes first when there is no room to wait.
#[test]
fn the_least_important_wait_and_are_shed_first() {
    let origin = Origin::start();
    let rules = "rules:\n  - {name: vip, when: {query.vip: '1'}, limits: unlimited, priority: high}\n";
    let gateway = before(&origin, "{max_concurrent: 1, queue: 2, max_wait: 5s}", rules);
    let at = gateway.proxy();
    let first = asking(at, "/drip/10");
    eventually("it is on its way", || metric(&gateway, RUNNING) == 1.0);
    let low = asking(at, "/low/one");
    eventually("it waits", || metric(&gateway, WAITING) == 1.0);
    let normal = asking(at, "/two");
    eventually("it waits", || metric(&gateway, WAITING) == 2.0);
    // More important by a rule that has no limit.
    let high = asking(at, "/three?vip=1");
    assert_eq!(low.join().unwrap(), 503);
    assert_eq!([first.join().unwrap(), high.join().unwrap(), normal.join().unwrap()], [200; 3]);
    let lines: Vec<String> = origin.seen().iter().map(|seen| seen.line.clone()).collect();
    assert!(lines[1].contains("/three") && lines[2].contains("/two"), "{lines:?}");
    assert_eq!(metric(&gateway, "tollgate_queue_wait_seconds_count{queue=\"upstream\"}"), 3.0);
    assert_eq!(
        metric(&gateway, "tollgate_shed_requests_total{upstream=\"api\",priority=\"low\",reason=\"displaced\"}"),
        1.0
    );
}

/// [B13] Whoever waited longest is served last, and goes when there is no room; nobody waits longer than one may.
#[test]
fn b13_the_newest_may_be_served_first_and_nobody_waits_for_ever() {
    for (order, expected) in [("newest_first", ["/c", "/b"]), ("oldest_first", ["/a", "/b"])] {
        let origin = Origin::start();
        let overload = format!("{{max_concurrent: 1, queue: 2, max_wait: 5s, order: {order}}}");
        let gateway = before(&origin, &overload, "");
        let at = gateway.proxy();
        let first = asking(at, "/drip/10");
        eventually("it is on its way", || metric(&gateway, RUNNING) == 1.0);
        let a = asking(at, "/a");
        eventually("it waits", || metric(&gateway, WAITING) == 1.0);
        let b = asking(at, "/b");
        eventually("it waits", || metric(&gateway, WAITING) == 2.0);
        let c = asking(at, "/c");
        let statuses = [a, b, c].map(|thread| thread.join().unwrap());
        assert_eq!(statuses, if order == "newest_first" { [503, 200, 200] } else { [200, 200, 503] }, "{order}");
        assert_eq!(first.join().unwrap(), 200);
        let seen = origin.seen();
        for (seen, path) in seen[1..].iter().zip(expected) {
            assert!(seen.line.starts_with(&format!("GET {path} ")), "{order}: {}", seen.line);
        }
    }
    let origin = Origin::start();
    let gateway = before(&origin, "{max_concurrent: 1, queue: 2, max_wait: 200ms}", "");
    let slow = asking(gateway.proxy(), "/drip/40");
    eventually("it is on its way", || metric(&gateway, RUNNING) == 1.0);
    let began = Instant::now();
    let shed = get(gateway.proxy(), "/");
    assert_eq!((shed.status, shed.header("retry-after")), (503, Some("1")));
    let told: serde_json::Value = serde_json::from_str(&shed.body).unwrap();
    assert_eq!(told["type"], "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity");
    assert_eq!(told["title"], "Request cannot be satisfied due to temporary server capacity constraints");
    assert!(
        (Duration::from_millis(190)..Duration::from_millis(1_500)).contains(&began.elapsed()),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(slow.join().unwrap(), 200);
}

/// A seat is held for as long as the answer flows, by tunnels to their end, and given back by whoever leaves in the
/// middle.
#[test]
fn a_seat_is_held_until_the_answer_is_through() {
    let origin = Origin::start();
    let gateway = before(&origin, "{max_concurrent: 1}", "");
    let mut client = TcpStream::connect(gateway.proxy()).unwrap();
    client
        .write_all(b"GET /websocket HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        .unwrap();
    let mut byte = [0; 1];
    client.read_exact(&mut byte).unwrap();
    assert_eq!(get(gateway.proxy(), "/").status, 503);
    drop(client);
    eventually("the seat is free", || get(gateway.proxy(), "/").status == 200);
    let mut client = TcpStream::connect(gateway.proxy()).unwrap();
    client.write_all(b"GET /silence HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    eventually("it is on its way", || metric(&gateway, RUNNING) == 1.0);
    assert_eq!(get(gateway.proxy(), "/").status, 503);
    drop(client);
    eventually("the seat is free", || get(gateway.proxy(), "/").status == 200);
    // Servers that fail keep nothing either.
    assert_eq!(get(gateway.proxy(), "/gone").status, 502);
    assert_eq!(get(gateway.proxy(), "/").status, 200);
}

/// In front of a server that works on four requests at a time, an adaptive limit stays near four, whatever comes.
#[test]
fn an_adaptive_limit_finds_what_a_server_can_do() {
    let origin = Origin::start();
    let gateway = before(&origin, "{max_concurrent: {min: 2, max: 200}, queue: 100, max_wait: 10s}", "");
    let at = gateway.proxy();
    let is_over = Arc::new(AtomicBool::new(false));
    let crowd: Vec<_> = (0..60)
        .map(|_| {
            let is_over = Arc::clone(&is_over);
            std::thread::spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    let status = get(at, "/work/20").status;
                    assert!([200, 503].contains(&status), "{status}");
                }
            })
        })
        .collect();
    let limit = || metric(&gateway, "tollgate_upstream_max_concurrent{upstream=\"api\"}");
    eventually("it grows", || limit() > 3.0);
    let mut limits: Vec<f64> = (0..40)
        .map(|_| {
            pause(Duration::from_millis(75));
            limit()
        })
        .collect();
    is_over.store(true, Ordering::Relaxed);
    crowd.into_iter().for_each(|thread| thread.join().unwrap());
    limits.sort_by(f64::total_cmp);
    // Sixty come at a time. What it swings between is 17/10 of what the server can do, and 5, at most.
    assert!((3.0..=12.0).contains(&limits[20]), "{limits:?}");
}

/// [E5] All requests together are bounded by a rule that counts by nothing.
#[test]
fn e5_so_many_requests_at_a_time_in_all() {
    let origin = Origin::start();
    let at = origin.address;
    let file = format!(
        "routes:\n  - {{name: one, path: /drip, upstream: 'http://{at}'}}\n  - {{name: two, upstream: 'http://{at}'}}\n\
         rules:\n  - {{name: all, limits: {{concurrency: 2}}}}\n"
    );
    let gateway = Service::gateway(&file, &[]);
    let slow: Vec<_> = (0..2).map(|_| asking(gateway.proxy(), "/drip/20")).collect();
    eventually("both are on their way", || origin.seen().len() == 2);
    assert_eq!(get(gateway.proxy(), "/other").status, 429);
    slow.into_iter().for_each(|thread| assert_eq!(thread.join().unwrap(), 200));
    eventually("a slot is free", || get(gateway.proxy(), "/other").status == 200);
}

#[test]
fn what_makes_no_sense_is_told_by_check() {
    for (overload, said) in [
        ("{queue: 5}", "does not say how many requests"),
        ("{max_concurrent: 0}", "from 1 to"),
        ("{max_concurrent: some}", "expected `adaptive`"),
        ("{max_concurrent: 10, max_wait: 1s}", "there is none"),
        ("{max_concurrent: 10, reserved: {critical: 120%}}", "is no share"),
        ("{max_concurrent: 10, reserved: {critical: 100%}}", "`low` requests can never get through"),
        ("{max_concurrent: 10, reserved: {vital: 1}}", "unknown field `vital`"),
        ("{max_concurrent: {min: 5, max: 4}}", "there is nothing"),
    ] {
        let file = support::scratch("gateway.yaml");
        let text = format!("upstreams:\n  - {{name: api, server: 'http://127.0.0.1:9', overload: {overload}}}\n");
        std::fs::write(&file, text).unwrap();
        let mut check = std::process::Command::new(env!("CARGO_BIN_EXE_tollgate"));
        let output = check.arg("check").arg(&file).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
        assert!(!output.status.success() && told.contains(said), "{overload}: {told}");
    }
}

/// An address of this machine that is nobody special. Nothing is sent to find it out.
fn other_address() -> IpAddr {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.connect("192.0.2.1:9").expect("a machine with a network");
    let other = socket.local_addr().unwrap().ip();
    assert!(!other.is_loopback(), "{other}");
    other
}

/// A connection that is answered, and stays open.
fn connected(at: SocketAddr) -> std::io::Result<TcpStream> {
    let mut stream = TcpStream::connect(at)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")?;
    let mut status = [0; 12];
    stream.read_exact(&mut status)?;
    assert_eq!(&status, b"HTTP/1.1 200");
    Ok(stream)
}

fn is_reset(connection: std::io::Result<TcpStream>) -> bool {
    use std::io::ErrorKind::{BrokenPipe, ConnectionReset};
    connection.is_err_and(|error| matches!(error.kind(), ConnectionReset | BrokenPipe))
}

/// [C10] An address has so many connections at a time, and whoever comes for many has as many as it likes.
#[test]
fn c10_an_address_has_so_many_connections() {
    let origin = Origin::start();
    let file = format!("routes:\n  - {{name: all, upstream: 'http://{}'}}\n", origin.address);
    let gateway = Service::gateway(&file, &["--proxy", "0.0.0.0:0", "--max-connections-per-address", "3"]);
    let port = gateway.proxy().port();
    let at = SocketAddr::new(other_address(), port);
    let mut three: Vec<_> = (0..3).map(|_| connected(at).unwrap()).collect();
    assert!(is_reset(connected(at)));
    let local = SocketAddr::new([127, 0, 0, 1].into(), port);
    let _many: Vec<_> = (0..10).map(|_| connected(local).unwrap()).collect();
    assert_eq!(metric(&gateway, "tollgate_refused_connections_total{reason=\"too_many\"}"), 1.0);
    three.pop();
    eventually("another is let in", || connected(at).is_ok());
}

/// [C10] An address opens so many connections in a time.
#[test]
fn c10_an_address_opens_so_many_connections_in_a_time() {
    let origin = Origin::start();
    let file = format!(
        "settings: {{connection_rate: 3/h}}\nroutes:\n  - {{name: all, upstream: 'http://{}'}}\n",
        origin.address
    );
    let gateway = Service::gateway(&file, &["--proxy", "0.0.0.0:0"]);
    let at = SocketAddr::new(other_address(), gateway.proxy().port());
    (0..3).for_each(|_| drop(connected(at).unwrap()));
    assert!(is_reset(connected(at)) && is_reset(connected(at)));
    assert_eq!(metric(&gateway, "tollgate_refused_connections_total{reason=\"too_fast\"}"), 2.0);
    assert_eq!(origin.seen().len(), 3);
}
