//! The end of a service while everybody asks: every question gets its answer, from this service or from the next, and
//! no counter is lost.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;
#[path = "support/wire.rs"]
mod wire;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use quanta::Instant;
use serde_json::{Value, json};
use support::{Running, Service, eventually, http, pause, scratch, tool};
use wire::{Connection, Heard};

/// Counts are exact: nothing is refilled, but at the end of the week.
const LIMIT: u64 = 1_000_000_000;
const RULES: &str = "
domain: shop
rules:
  - {name: everything, per: client, limits: [{rate: 1000000000/week, algorithm: fixed_window}]}
";

/// What clients of one kind went through.
#[derive(Clone, Default)]
struct Record {
    answers: Arc<AtomicU64>,
    /// Questions that were sent while the connection was being closed: not looked at, and known not to be.
    crossed: Arc<AtomicU64>,
    failures: Arc<Mutex<Vec<String>>>,
}

impl Record {
    fn answered(&self) {
        self.answers.fetch_add(1, Ordering::Relaxed);
    }

    fn failed(&self, why: impl Into<String>) {
        self.failures.lock().unwrap().push(why.into());
    }
}

/// Asks over connections that are kept until it is told to close, and then elsewhere.
fn speak_http(addresses: [SocketAddr; 2], stop: &AtomicBool, record: &Record) {
    let body = json!({"attributes": {"client": "all"}}).to_string();
    let mut at = 0;
    while !stop.load(Ordering::Relaxed) {
        let mut connection = match Connection::open(addresses[at]) {
            Ok(connection) => connection,
            Err(error) => return record.failed(format!("HTTP cannot connect: {error}")),
        };
        while !stop.load(Ordering::Relaxed) {
            match connection.http("POST /v1/check HTTP/1.1", &body) {
                Heard::Answer(answer) if answer.status == 200 => {
                    record.answered();
                    if answer.header("connection") == Some("close") {
                        at = 1;
                        break;
                    }
                }
                Heard::Answer(answer) => record.failed(format!("HTTP {}: {}", answer.status, answer.body)),
                Heard::Closed => return record.failed("HTTP was closed without a word"),
                Heard::Failed(why) => return record.failed(format!("HTTP: {why}")),
            }
        }
    }
}

/// Asks until the connection is closed, and then elsewhere.
fn speak_resp(addresses: [SocketAddr; 2], stop: &AtomicBool, record: &Record) {
    let mut at = 0;
    while !stop.load(Ordering::Relaxed) {
        let mut connection = match Connection::open(addresses[at]) {
            Ok(connection) => connection,
            Err(error) => return record.failed(format!("RESP cannot connect: {error}")),
        };
        while !stop.load(Ordering::Relaxed) {
            // As clients with a pool of connections look before they send.
            if connection.is_closed() {
                at = 1;
                break;
            }
            match connection.command(&["TG.CHECK", "FOR", "client", "all"]) {
                Heard::Answer(answer) if answer[1] == 1 => record.answered(),
                Heard::Answer(answer) => record.failed(format!("RESP: {answer}")),
                Heard::Closed => {
                    record.crossed.fetch_add(1, Ordering::Relaxed);
                    at = 1;
                    break;
                }
                Heard::Failed(why) => return record.failed(format!("RESP: {why}")),
            }
        }
    }
}

fn spawn(
    speak: fn([SocketAddr; 2], &AtomicBool, &Record),
    addresses: [SocketAddr; 2],
    stop: &Arc<AtomicBool>,
    record: &Record,
) -> Vec<JoinHandle<()>> {
    let one = || {
        let (stop, record) = (Arc::clone(stop), record.clone());
        std::thread::spawn(move || speak(addresses, &stop, &record))
    };
    (0..4).map(|_| one()).collect()
}

/// How much of the one counter is used.
fn used(service: &Service) -> u64 {
    let body = json!({"attributes": {"client": "all"}, "cost": 0}).to_string();
    let told: Value = serde_json::from_str(&http(service.http(), "POST /v1/check HTTP/1.1", &body).body).unwrap();
    LIMIT - told["remaining"].as_u64().unwrap()
}

#[test]
fn everybody_is_answered_while_a_service_leaves_and_its_counters_come_back() {
    // In memory: how long a disk takes to be sure of a file is not what this is about.
    let memory = std::path::Path::new("/dev/shm");
    let state =
        if memory.is_dir() { memory.join(format!("tollgate-{}", std::process::id())) } else { scratch("state") };
    let path = state.display().to_string();
    let first = Service::start(RULES, &["--state", &path, "--workers", "2"]);
    let second = Service::start(RULES, &["--workers", "2"]);

    let mut command = Command::new(tool("python"));
    command.args(["-c", include_str!("drain/clients.py")]);
    command.args([first.grpc(), second.grpc(), first.http()].map(|address| address.to_string()));
    let mut python = Running(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("Python runs"));
    let mut said = BufReader::new(python.0.stdout.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    assert_eq!(line, "asking\n");
    let stop = Arc::new(AtomicBool::new(false));
    let (by_http, by_resp) = (Record::default(), Record::default());
    let mut threads = spawn(speak_http, [first.http(), second.http()], &stop, &by_http);
    threads.extend(spawn(speak_resp, [first.resp(), second.resp()], &stop, &by_resp));
    eventually("everybody asks", || {
        by_http.answers.load(Ordering::Relaxed).min(by_resp.answers.load(Ordering::Relaxed)) > 1_000
    });

    let (admin, at) = (first.admin(), first.http());
    let started = Instant::now();
    first.signal("TERM");
    eventually("readiness is off", || http(admin, "GET /ready HTTP/1.1", "").status == 503);
    let body = json!({"attributes": {"client": "late"}}).to_string();
    assert_eq!(http(at, "POST /v1/check HTTP/1.1", &body).status, 200, "whoever comes all the same is answered");
    assert!(first.wait().success());
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    // They have all found the other by now, or say so.
    pause(Duration::from_millis(300));
    stop.store(true, Ordering::Relaxed);
    threads.into_iter().for_each(|thread| thread.join().expect("it ends"));
    writeln!(python.0.stdin.as_mut().unwrap()).unwrap();
    let mut rest = String::new();
    said.read_to_string(&mut rest).unwrap();
    let python: Value = serde_json::from_str(&rest).unwrap_or_else(|error| panic!("{error}: {rest}"));

    assert_eq!(python["failures"], json!([]), "of gRPC and HTTP/2");
    assert!(python["told"].as_array().unwrap().iter().all(|code| code == 0), "{python}");
    for record in [&by_http, &by_resp] {
        assert_eq!(*record.failures.lock().unwrap(), Vec::<String>::new());
    }
    let crossed = by_resp.crossed.load(Ordering::Relaxed);
    assert!(crossed <= 4, "at most one for each connection: {crossed}");

    let mode = std::fs::metadata(&state).unwrap().permissions().mode();
    assert_eq!(mode & 0o077, 0, "{mode:o}: nobody else may read it");
    let again = Service::start(RULES, &["--state", &path]);
    let of_python: u64 = python["answers"].as_array().unwrap().iter().map(|count| count.as_u64().unwrap()).sum();
    let answers = of_python + by_http.answers.load(Ordering::Relaxed) + by_resp.answers.load(Ordering::Relaxed);
    assert_eq!(used(&again) + used(&second), answers, "what was charged is what was answered");
    assert!(used(&second) > 0 && used(&again) > 2_000);
    drop(again);
    let _ = std::fs::remove_file(&state);
}

#[test]
fn a_limit_that_is_half_used_stays_half_used() {
    let state = scratch("state");
    let path = state.display().to_string();
    let rules = "{domain: d, rules: [{name: a, per: user, limits: [{rate: 4/week, algorithm: fixed_window}]}]}";
    let check = |service: &Service| {
        let body = json!({"attributes": {"user": "1"}}).to_string();
        http(service.http(), "POST /v1/check HTTP/1.1", &body).status
    };
    for end in ["TERM", "INT"] {
        let service = Service::start(rules, &["--state", &path, "--drain-delay", "0s"]);
        assert_eq!([check(&service), check(&service)], [200, 200], "{end}");
        service.signal(end);
        assert!(service.wait().success());
    }
    let service = Service::start(rules, &["--state", &path, "--drain-delay", "0s"]);
    assert_eq!(check(&service), 429);
    // Ended by force, it leaves what was there before.
    service.signal("KILL");
    assert!(!service.wait().success());
    let service = Service::start(rules, &["--state", &path]);
    assert_eq!(check(&service), 429);
}
