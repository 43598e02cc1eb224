//! The gateway under the load of real clients: wrk for HTTP/1.1, h2load for HTTP/2. What they were told, what the
//! servers saw and what the gateway counted have to be the same numbers.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "gateway/origin.rs"]
mod origin;
mod support;

use std::process::Command;

use origin::Origin;
use support::{Service, eventually, http, printed, scratch};

/// Answers by kind: how they began, and how many of them there were.
#[derive(Debug, PartialEq, Eq)]
struct Told {
    passed: usize,
    denied: usize,
    /// Other statuses, and connections that went wrong.
    failed: usize,
}

fn before(origin: &Origin, limit: usize) -> Service {
    let file = format!(
        "routes:\n  - {{name: all, upstream: 'http://{}'}}\n\
         rules:\n  - {{name: r, per: ip, limits: [{{rate: {limit}/d, algorithm: fixed_window}}]}}\n",
        origin.address
    );
    Service::gateway(&file, &[])
}

/// What wrk says after a second of 16 connections. A script of its own counts, since wrk tells no statuses apart.
fn wrk(gateway: &Service, path: &str) -> Told {
    const SCRIPT: &str = r#"
        local threads = {}
        function setup(thread) table.insert(threads, thread) end
        function init() passed, denied, other = 0, 0, 0 end
        function response(status)
            if status == 200 then passed = passed + 1
            elseif status == 429 then denied = denied + 1
            else other = other + 1 end
        end
        function done(summary)
            local passed, denied, failed = 0, 0, 0
            for _, thread in ipairs(threads) do
                passed, denied = passed + thread:get("passed"), denied + thread:get("denied")
                failed = failed + thread:get("other")
            end
            local errors = summary.errors
            failed = failed + errors.connect + errors.read + errors.write + errors.timeout
            print(string.format("told %d %d %d", passed, denied, failed))
        end"#;
    let script = scratch("count.lua");
    std::fs::write(&script, SCRIPT).unwrap();
    let url = format!("http://{}{path}", gateway.proxy());
    let mut wrk = Command::new("wrk");
    wrk.args(["-t", "2", "-c", "16", "-d", "1s", "--timeout", "10s", "-s"]).arg(script).arg(url);
    let said = printed(&wrk.output().expect("wrk runs: scripts/test-tools installs it"));
    let line = said.lines().find_map(|line| line.strip_prefix("told ")).unwrap_or_else(|| panic!("{said}"));
    let counts: Vec<usize> = line.split(' ').map(|count| count.parse().unwrap()).collect();
    Told { passed: counts[0], denied: counts[1], failed: counts[2] }
}

/// What h2load says after so many requests on 8 connections, ten at a time on each.
fn h2load(gateway: &Service, path: &str, number: usize) -> Told {
    let url = format!("http://{}{path}", gateway.proxy());
    let mut h2load = Command::new("h2load");
    h2load.args(["-n", &number.to_string(), "-c", "8", "-m", "10", &url]);
    let said = printed(&h2load.output().expect("h2load runs: scripts/test-tools installs it"));
    assert!(said.contains("Application protocol: h2c"), "{said}");
    // `status codes: 500 2xx, 0 3xx, 1500 4xx, 0 5xx`, and `0 errored, 0 timeout` a line before.
    let count = |what: &str| -> usize {
        let before = said.find(what).unwrap_or_else(|| panic!("{what}: {said}"));
        said[..before].trim_end().rsplit(' ').next().unwrap().parse().unwrap()
    };
    assert_eq!(count(" total,"), number);
    let told = Told { passed: count(" 2xx"), denied: count(" 4xx"), failed: count(" errored") + count(" timeout") };
    assert_eq!(told.passed + told.denied + count(" 3xx") + count(" 5xx") + count(" errored"), number, "{said}");
    told
}

/// How many requests the gateway says that its rule had this to say about.
fn counted(gateway: &Service, decision: &str) -> usize {
    let metrics = http(gateway.admin(), "GET /metrics HTTP/1.1", "").body;
    let is_wanted =
        |line: &&str| line.starts_with("tollgate_rule_checks_total{") && line.contains(&format!("\"{decision}\""));
    metrics.lines().filter(is_wanted).map(|line| line.rsplit(' ').next().unwrap().parse::<usize>().unwrap()).sum()
}

#[test]
fn wrk_is_let_through_as_often_as_the_limit_says() {
    let origin = Origin::start();
    let gateway = before(&origin, 50);
    let Told { passed, denied, failed } = wrk(&gateway, "/");
    assert_eq!((passed, failed), (50, 0), "{denied} were denied");
    assert!(denied > 0, "a second is enough for more than 50 requests");
    assert_eq!((origin.seen().len(), counted(&gateway, "allowed")), (50, 50));
}

#[test]
fn wrk_meets_no_failure_below_the_limit() {
    let origin = Origin::start();
    let gateway = before(&origin, 10_000_000);
    let Told { passed, denied, failed } = wrk(&gateway, "/bytes/3000");
    assert_eq!((denied, failed), (0, 0));
    // When its time is over it leaves in the middle of at most one request on each connection.
    let seen = origin.seen().len();
    assert!(passed > 0 && (passed..=passed + 16).contains(&seen), "{passed} were answered, {seen} were seen");
    eventually("all are counted", || counted(&gateway, "allowed") >= seen);
}

#[test]
fn h2load_is_let_through_as_often_as_the_limit_says() {
    let origin = Origin::start();
    let gateway = before(&origin, 500);
    assert_eq!(h2load(&gateway, "/", 2_000), Told { passed: 500, denied: 1_500, failed: 0 });
    assert_eq!((origin.seen().len(), counted(&gateway, "allowed")), (500, 500));
    assert_eq!(counted(&gateway, "denied"), 1_500);
}

#[test]
fn h2load_meets_no_failure_below_the_limit() {
    let origin = Origin::start();
    let gateway = before(&origin, 10_000_000);
    assert_eq!(h2load(&gateway, "/bytes/20000", 1_000), Told { passed: 1_000, denied: 0, failed: 0 });
    assert_eq!(origin.seen().len(), 1_000);
}
