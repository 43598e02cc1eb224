//! A real Envoy in front of an API, with its ratelimit filter asking tollgate; all by HTTP through Envoy.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::net::SocketAddr;
use std::process::{Command, Stdio};

use support::{Answer, Running, Service, eventually, free_port, http, scratch, tool};

const RULES: &str = "\
domain: api
descriptors:
  - key: user
    rate_limit: {unit: day, requests_per_unit: 3}
  - key: trial
    shadow_mode: true
    rate_limit: {unit: day, requests_per_unit: 1}
  - key: tokens
    rate_limit: {unit: day, requests_per_unit: 10}
";

struct Envoy {
    _process: Running,
    open: SocketAddr,
    closed: SocketAddr,
}

impl Envoy {
    /// In front of `service`; gives back when it serves.
    fn start(service: &Service) -> Self {
        let [open, closed, upstream] = [free_port(), free_port(), free_port()];
        let config = include_str!("envoy/envoy.yaml")
            .replace("@OPEN@", &open.to_string())
            .replace("@CLOSED@", &closed.to_string())
            .replace("@UPSTREAM@", &upstream.to_string())
            .replace("@TOLLGATE@", &service.grpc().port().to_string());
        let path = scratch("envoy.yaml");
        std::fs::write(&path, config).expect("its configuration can be written");
        let log = path.with_extension("log");
        let process = Command::new(tool("envoy"))
            .args(["--concurrency", "1", "--disable-hot-restart", "--log-level", "warning", "--log-path"])
            .arg(&log)
            .arg("-c")
            .arg(&path)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("Envoy starts");
        let local = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let envoy = Self { _process: Running(process), open: local(open), closed: local(closed) };
        for address in [envoy.open, envoy.closed, local(upstream)] {
            eventually(&format!("Envoy listens; see {}", log.display()), || {
                std::net::TcpStream::connect(address).is_ok()
            });
        }
        envoy
    }
}

fn get(address: SocketAddr, path: &str, headers: &str) -> Answer {
    http(address, &format!("GET {path} HTTP/1.1{headers}"), "")
}

fn statuses(address: SocketAddr, path: &str, headers: &str, times: usize) -> Vec<u16> {
    (0..times).map(|_| get(address, path, headers).status).collect()
}

#[test]
fn requests_are_limited_and_told_so() {
    let service = Service::start(RULES, &["--response-headers"]);
    let envoy = Envoy::start(&service);
    let first = get(envoy.open, "/", "\nx-user: alice");
    assert_eq!((first.status, &*first.body), (200, "served"));
    // Envoy's own headers, made from the statuses, and those of the service.
    assert_eq!(first.header("x-ratelimit-limit"), Some("3, 3;w=86400"));
    assert_eq!(first.header("x-ratelimit-remaining"), Some("2"));
    let reset: u32 = first.header("x-ratelimit-reset").and_then(|reset| reset.parse().ok()).expect("seconds");
    assert!((1..=86_400).contains(&reset), "{reset}");
    assert_eq!(first.header("ratelimit-limit"), Some("3"));
    assert_eq!(first.header("ratelimit-remaining"), Some("2"));

    assert_eq!(statuses(envoy.open, "/", "\nx-user: alice", 3), [200, 200, 429]);
    let denied = get(envoy.open, "/", "\nx-user: alice");
    assert_eq!(denied.header("x-envoy-ratelimited"), Some("true"));
    assert_eq!(denied.header("x-ratelimit-remaining"), Some("0"));
    assert_eq!(get(envoy.open, "/", "\nx-user: bob").status, 200, "others are not concerned");
    assert_eq!(statuses(envoy.open, "/", "", 5), [200; 5], "what no rule is about passes");
}

#[test]
fn a_shadow_denies_nothing_and_is_counted() {
    let service = Service::start(RULES, &[]);
    let envoy = Envoy::start(&service);
    assert_eq!(statuses(envoy.open, "/", "\nx-trial: a", 4), [200; 4]);
    let metrics = http(service.admin(), "GET /metrics HTTP/1.1", "").body;
    let line = "tollgate_rule_checks_total{domain=\"api\",rule=\"api.trial\",outcome=\"shadow_denied\"} 3\n";
    assert!(metrics.contains(line), "{metrics}");
}

#[test]
fn tokens_are_charged_by_what_the_response_says() {
    let service = Service::start(RULES, &[]);
    let envoy = Envoy::start(&service);
    // Six tokens each: after two, twelve of ten are spent. The charge comes when the response is done, so wait for it.
    let charged = |hits: u32| {
        let line =
            format!("tollgate_rule_checks_total{{domain=\"api\",rule=\"api.tokens\",outcome=\"allowed\"}} {hits}\n");
        eventually(&line, || http(service.admin(), "GET /metrics HTTP/1.1", "").body.contains(&line));
    };
    assert_eq!(get(envoy.open, "/tokens", "\nx-user: alice").status, 200);
    charged(1);
    assert_eq!(get(envoy.open, "/tokens", "\nx-user: alice").status, 200);
    let line = "tollgate_rule_checks_total{domain=\"api\",rule=\"api.tokens\",outcome=\"denied\"} 1\n";
    eventually(line, || http(service.admin(), "GET /metrics HTTP/1.1", "").body.contains(line));
    assert_eq!(get(envoy.open, "/tokens", "\nx-user: alice").status, 429);
    assert_eq!(get(envoy.open, "/tokens", "\nx-user: bob").status, 200);
}

#[test]
fn without_the_limiter_each_listener_does_as_it_was_told() {
    let service = Service::start(RULES, &[]);
    let envoy = Envoy::start(&service);
    assert_eq!(get(envoy.open, "/", "\nx-user: alice").status, 200);
    assert_eq!(get(envoy.closed, "/", "\nx-user: alice").status, 200);
    drop(service);
    assert_eq!(statuses(envoy.open, "/", "\nx-user: alice", 5), [200; 5], "open");
    assert_eq!(statuses(envoy.closed, "/", "\nx-user: alice", 5), [500; 5], "closed");
}
