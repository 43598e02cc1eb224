//! What whoever runs the service does to it while it is asked by every protocol: switches, and new rules.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;
#[path = "support/wire.rs"]
mod wire;

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use quanta::Instant;
use serde_json::{Value, json};
use support::{Service, eventually, http, scratch, within};
use wire::{Connection, Grpc};

/// Everything that a service can be asked by, connected.
struct Doors {
    grpc: Grpc,
    http: Connection,
    resp: Connection,
}

const NAMES: [&str; 6] = ["gRPC", "/json", "HTTP", "forward-auth", "TG.CHECK", "CL.THROTTLE"];

impl Doors {
    fn open(service: &Service) -> Self {
        let mut resp = Connection::open(service.resp()).unwrap();
        assert_eq!(resp.command(&["HELLO", "3"]).answer()["proto"], 3);
        Self { grpc: Grpc::start(service.grpc()), http: Connection::open(service.http()).unwrap(), resp }
    }

    /// Whether each protocol allows `key` of its own name, in the order of the names above.
    fn allow(&mut self, key: &str) -> [bool; 6] {
        let envoy = |name: &str| json!({"domain": "d", "descriptors": [{"entries": [{"key": key, "value": name}]}]});
        let status = |answer: support::Answer| match answer.status {
            200 => true,
            429 => false,
            other => panic!("{other}: {}", answer.body),
        };
        let post = |path: &str| format!("POST {path} HTTP/1.1");
        let [grpc, json, own, forward, tg, cl] = NAMES;
        [
            self.grpc.ask(&envoy(grpc))["overallCode"] == "OK",
            status(self.http.http(&post("/json"), &envoy(json).to_string()).answer()),
            status(self.http.http(&post("/v1/check"), &json!({"attributes": {key: own}}).to_string()).answer()),
            status(self.http.http(&format!("GET /check?{key}={forward} HTTP/1.1"), "").answer()),
            self.resp.command(&["TG.CHECK", "FOR", key, tg]).answer()["allowed"] == 1,
            self.resp.command(&["CL.THROTTLE", &format!("{key}:{cl}"), "0", "1", "86400"]).answer()[0] == 0,
        ]
    }
}

fn switch(service: &Service, path: &str) {
    let answer = http(service.admin(), &format!("POST {path} HTTP/1.1"), "");
    assert_eq!(answer.status, 200, "{}", answer.body);
}

#[test]
fn a_switch_reaches_every_protocol_at_once_and_leaves_counters_alone() {
    let rules = "
domain: d
rules:
  - {name: once, per: user, limits: [{rate: 1/d, algorithm: token_bucket}]}
  - {name: other, per: device, limits: [{rate: 1/d, algorithm: token_bucket}]}
";
    let service = Service::start(rules, &["--workers", "2"]);
    let mut doors = Doors::open(&service);
    for key in ["user", "device"] {
        assert_eq!(doors.allow(key), [true; 6]);
        assert_eq!(doors.allow(key), [false; 6]);
    }
    let keys = |service: &Service| {
        let stats = http(service.admin(), "GET /stats HTTP/1.1", "").body;
        let is_of_rules =
            |line: &&str| line.starts_with("tollgate_rule_checks_total") || line.starts_with("tollgate_keys");
        stats.lines().filter(is_of_rules).map(str::to_owned).collect::<Vec<_>>()
    };
    let counted = keys(&service);

    within(Duration::from_millis(100), || {
        switch(&service, "/on");
        let started = Instant::now();
        switch(&service, "/off");
        let allowed = doors.allow("user");
        let took = started.elapsed();
        assert_eq!(allowed, [true; 6]);
        took
    });
    // Also for what was never asked before, and as often as anyone likes.
    for _ in 0..3 {
        assert_eq!(doors.allow("user"), [true; 6]);
        assert_eq!(doors.allow("fresh"), [true; 6]);
    }
    assert_eq!(keys(&service), counted, "nothing is counted");
    assert!(http(service.admin(), "GET /metrics HTTP/1.1", "").body.contains("tollgate_limiting 0\n"));
    switch(&service, "/on");
    for key in ["user", "device"] {
        assert_eq!(doors.allow(key), [false; 6], "{key}: as before");
    }

    // One rule; limits that come with the question belong to none.
    within(Duration::from_millis(100), || {
        switch(&service, "/rules/once/on");
        let started = Instant::now();
        switch(&service, "/rules/once/off");
        let allowed = doors.allow("user");
        let took = started.elapsed();
        assert_eq!(allowed, [true, true, true, true, true, false]);
        took
    });
    assert_eq!(doors.allow("device"), [false; 6]);
    switch(&service, "/rules/once/on");
    assert_eq!(doors.allow("user"), [false; 6], "its counters are those of before");
}

#[test]
fn what_is_reserved_and_leased_while_limits_are_off_can_be_given_back() {
    let rules = "{domain: d, rules: [{name: a, per: user, limits: [{rate: 1/d, algorithm: token_bucket}]}]}";
    let service = Service::start(rules, &[]);
    let mut doors = Doors::open(&service);
    let ask = |doors: &mut Doors, path: &str, body: &Value| {
        let answer = doors.http.http(&format!("POST /v1/{path} HTTP/1.1"), &body.to_string()).answer();
        (answer.status, serde_json::from_str::<Value>(&answer.body).unwrap())
    };
    let user = json!({"attributes": {"user": "1"}});
    let (_, held) = ask(&mut doors, "reserve", &user);
    switch(&service, "/off");
    // Made before, settled now.
    assert_eq!(ask(&mut doors, "cancel", &json!({"reservation": held["reservation"]})).0, 200);
    // Made now: there is nothing to settle, and saying so is no error.
    let (status, nothing) = ask(&mut doors, "reserve", &user);
    assert_eq!((status, &nothing["reservation"]), (200, &Value::Null));
    assert_eq!(ask(&mut doors, "commit", &json!({"reservation": nothing["reservation"]})).0, 200);
    let told = doors.resp.command(&["TG.RESERVE", "1000", "FOR", "user", "1"]).answer();
    assert_eq!((&told["allowed"], &told["reservation"]), (&json!(1), &Value::Null), "{told}");
    let (_, lease) = ask(&mut doors, "acquire", &user);
    let with = json!({"attributes": {"user": "1"}, "lease": lease["lease"]});
    assert_eq!([ask(&mut doors, "renew", &with).0, ask(&mut doors, "release", &with).0], [200, 200]);
    switch(&service, "/on");
    assert_eq!(ask(&mut doors, "check", &user).0, 200, "the reservation was cancelled");
}

/// A thousand rules. Those for `user` are called by the set and allow what only this set does; that for `kept` never
/// changes.
fn set(name: &str, limit: u64) -> String {
    let mut text = format!(
        "domain: d\nrules:\n  - {{name: kept, per: kept, limits: [{{rate: 100000000/week, algorithm: fixed_window}}]}}\n\
         \x20 - {{name: {name}, per: user, limits: [{{rate: {limit}/week, algorithm: fixed_window}}]}}\n"
    );
    for number in 2..1_000 {
        let _ = writeln!(text, "  - {{name: rule-{number}, when: {{path: /{name}/{number}}}, per: user, limits: 5/s}}");
    }
    text
}

const SETS: [(&str, u64); 2] = [("odd", 1_000_000_000), ("even", 2_000_000_000)];

/// As careful people do it: half a file is never seen.
fn put(path: &Path, text: &str) {
    let beside = path.with_extension("new");
    std::fs::write(&beside, text).unwrap();
    std::fs::rename(&beside, path).unwrap();
}

/// Asks until told to stop, and gives how often each set answered and how often `kept` was charged.
fn ask_all_the_time(mut ask: impl FnMut(&str) -> Value, stop: &AtomicBool, asked: &AtomicU64) -> ([u64; 2], u64) {
    let (mut by, mut kept) = ([0, 0], 0);
    while !stop.load(Ordering::Relaxed) {
        let told = ask("user");
        let (rule, limit) = (told["rule"].as_str().unwrap_or("none"), told["limit"].as_u64().unwrap_or(0));
        let set = SETS.iter().position(|known| *known == (rule, limit));
        by[set.unwrap_or_else(|| panic!("an answer of no set: {told}"))] += 1;
        let told = ask("kept");
        assert_eq!((&told["rule"], &told["limit"]), (&json!("kept"), &json!(100_000_000)), "{told}");
        kept += 1;
        asked.fetch_add(2, Ordering::Relaxed);
    }
    (by, kept)
}

fn ask_by_resp(address: SocketAddr) -> impl FnMut(&str) -> Value {
    let mut connection = Connection::open(address).unwrap();
    connection.command(&["HELLO", "3"]).answer();
    move |key| connection.command(&["TG.CHECK", "FOR", key, "1"]).answer()
}

fn ask_by_http(address: SocketAddr) -> impl FnMut(&str) -> Value {
    let mut connection = Connection::open(address).unwrap();
    move |key| {
        let body = json!({"attributes": {key: "1"}}).to_string();
        let answer = connection.http("POST /v1/check HTTP/1.1", &body).answer();
        assert_eq!(answer.status, 200, "{}", answer.body);
        serde_json::from_str(&answer.body).unwrap()
    }
}

#[test]
fn every_answer_is_of_one_set_while_a_thousand_rules_are_replaced() {
    let file = scratch("rules.yaml");
    let texts = SETS.map(|(name, limit)| set(name, limit));
    std::fs::write(&file, &texts[0]).unwrap();
    let path = file.display().to_string();
    let command = std::process::Command::new(env!("CARGO_BIN_EXE_tollgate"));
    let service = Service::start_with(command, &["--rules", &path, "--workers", "2"]);
    let (stop, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let clients: Vec<_> = (0..4)
        .map(|number| {
            let (stop, asked, resp, at) = (Arc::clone(&stop), Arc::clone(&asked), service.resp(), service.http());
            std::thread::spawn(move || match number % 2 {
                0 => ask_all_the_time(ask_by_resp(resp), &stop, &asked),
                _ => ask_all_the_time(ask_by_http(at), &stop, &asked),
            })
        })
        .collect();
    for round in 1..=20 {
        let before = asked.load(Ordering::Relaxed);
        eventually("they ask under each set", || asked.load(Ordering::Relaxed) > before + 40);
        put(&file, &texts[round % 2]);
        let answer = http(service.admin(), "POST /reload HTTP/1.1", "");
        assert_eq!(answer.status, 200, "{}", answer.body);
    }
    stop.store(true, Ordering::Relaxed);
    let mut sums = ([0, 0], 0);
    for client in clients {
        let (by, kept) = client.join().expect("nobody failed");
        assert!(by.iter().all(|count| *count > 0), "both sets answered: {by:?}");
        sums = ([sums.0[0] + by[0], sums.0[1] + by[1]], sums.1 + kept);
    }
    // What did not change goes on counting; and so does a rule that comes back.
    let mut ask = ask_by_resp(service.resp());
    let remaining = |told: &Value| told["limit"].as_u64().unwrap() - told["remaining"].as_u64().unwrap();
    assert_eq!(remaining(&ask("kept")), sums.1 + 1);
    assert_eq!(remaining(&ask("user")), sums.0[0] + 1);
    let stats = http(service.admin(), "GET /stats HTTP/1.1", "").body;
    let line = format!("tollgate_rule_checks_total{{domain=\"d\",rule=\"kept\",outcome=\"allowed\"}} {}", sums.1 + 1);
    assert!(stats.contains(&line), "{line}\n{stats}");
}

#[test]
fn the_rules_of_a_directory_that_cannot_be_read_stay_in_force() {
    let files = ["user", "device"].map(|key| {
        let file = scratch("rules/rules.yaml");
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, format!("{{domain: d, rules: [{{name: {key}, per: {key}, limits: 1/d}}]}}")).unwrap();
        file
    });
    let directories = files.clone().map(|file| file.parent().unwrap().to_owned());
    let paths = directories.clone().map(|directory| directory.display().to_string()).join(",");
    let command = std::process::Command::new(env!("CARGO_BIN_EXE_tollgate"));
    let service = Service::start_with(command, &["--rules", &paths]);
    let away = directories[0].with_extension("away");
    std::fs::rename(&directories[0], &away).unwrap();
    let answer = http(service.admin(), "POST /reload HTTP/1.1", "");
    assert_eq!(answer.status, 422);
    let told: Value = serde_json::from_str(&answer.body).unwrap();
    assert_eq!((&told["rules"], &told["bad_files"][0]["last_good_text_in_force"]), (&json!(2), &json!(true)), "{told}");
    // The other one is followed meanwhile.
    std::fs::remove_file(&files[1]).unwrap();
    std::fs::write(files[1].with_file_name("new.yaml"), "{domain: d, rules: [{name: new, per: ip, limits: 1/d}]}")
        .unwrap();
    assert_eq!(http(service.admin(), "POST /reload HTTP/1.1", "").status, 422);
    let shown = http(service.admin(), "GET /rlconfig HTTP/1.1", "").body;
    assert!(shown.contains("d.user: 1/d") && shown.contains("d.new: 1/d") && !shown.contains("d.device"), "{shown}");
    std::fs::rename(&away, &directories[0]).unwrap();
    assert_eq!(http(service.admin(), "POST /reload HTTP/1.1", "").status, 200);
}
