//! Services that share their limits through a real Redis: exact together, and unharmed when it dies.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;
#[path = "support/wire.rs"]
mod wire;

use std::fs::OpenOptions;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

use quanta::Instant;
use serde_json::{Value, json};
use support::{Answer, Service, eventually, http, scratch, within};
use tollgate_sim::redis::{Fault, FaultProxy, RedisServer};
use wire::Connection;

const RULES: &str = "
domain: d
rules:
  - {name: posts, per: user, limits: [{rate: 30/day, algorithm: fixed_window}]}
  - {name: open, per: guest, limits: [{rate: 1/day, algorithm: fixed_window}], on_store_failure: allow}
  - {name: shut, per: robot, limits: [{rate: 1000000/day, algorithm: fixed_window}], on_store_failure: deny}
  - {name: slots, per: team, limits: [{concurrency: 2, lease: 60s}]}
";

/// So many services that share the Redis at `url`. A busy machine may keep a decision waiting for longer than is usual.
fn services(count: usize, url: &str, deadline: &str) -> Vec<Service> {
    let servers = count.to_string();
    let args = ["--store", url, "--store-servers", &servers, "--store-deadline", deadline];
    (0..count).map(|_| Service::start(RULES, &args)).collect()
}

fn url(redis: &RedisServer) -> String {
    format!("redis://{}", redis.address())
}

fn ask(service: &Service, path: &str, body: &Value) -> (Answer, Value) {
    let answer = http(service.http(), &format!("POST {path} HTTP/1.1"), &body.to_string());
    let told = serde_json::from_str(&answer.body).unwrap_or(Value::Null);
    (answer, told)
}

fn check(service: &Service, key: &str, value: &str) -> (Answer, Value) {
    ask(service, "/v1/check", &json!({"attributes": {key: value}}))
}

/// Asks one service after the other: how many are allowed.
fn flood(services: &[Service], user: &str, requests: usize) -> usize {
    (0..requests).filter(|at| check(&services[at % services.len()], "user", user).0.status == 200).count()
}

fn is_degraded(service: &Service) -> bool {
    check(service, "user", "probe").1["degraded"] == true
}

#[test]
fn three_services_admit_exactly_the_limit_in_turn_and_all_at_once() {
    let redis = RedisServer::start(&[]);
    let services = services(3, &url(&redis), "2s");
    eventually("all are connected", || services.iter().all(|service| !is_degraded(service)));
    assert_eq!(flood(&services, "in turn", 60), 30);
    // Twelve clients at the same time, four at each service.
    let allowed: usize = std::thread::scope(|scope| {
        let one = |at: usize| {
            let service = &services[at % 3..=at % 3];
            scope.spawn(move || flood(service, "at once", 10))
        };
        let clients: Vec<_> = (0..12).map(one).collect();
        clients.into_iter().map(|client| client.join().unwrap()).sum()
    });
    assert_eq!(allowed, 30);
    // One unit is left, and 64 clients of all services ask for it at the same time.
    for round in 0..5 {
        let user = format!("last {round}");
        let used = json!({"attributes": {"user": user}, "cost": 29});
        assert_eq!(ask(&services[0], "/v1/check", &used).0.status, 200);
        let start = std::sync::Barrier::new(64);
        let allowed: usize = std::thread::scope(|scope| {
            let one = |at: usize| {
                let (service, user, start) = (&services[at % 3], &user, &start);
                scope.spawn(move || {
                    start.wait();
                    usize::from(check(service, "user", user).0.status == 200)
                })
            };
            let clients: Vec<_> = (0..64).map(one).collect();
            clients.into_iter().map(|client| client.join().unwrap()).sum()
        });
        assert_eq!(allowed, 1);
    }
    // What one service charged, reserved or lent, another knows.
    let (_, told) = check(&services[0], "user", "told");
    assert_eq!(told["remaining"], 29);
    let (_, told) = ask(&services[1], "/v1/peek", &json!({"attributes": {"user": "told"}}));
    assert_eq!(told["remaining"], 29);
    let (_, held) = ask(&services[0], "/v1/reserve", &json!({"attributes": {"user": "told"}, "cost": 20}));
    let (_, told) = ask(&services[2], "/v1/cancel", &json!({"reservation": held["reservation"]}));
    assert_eq!(told["settled"], true);
    let (_, told) = ask(&services[1], "/v1/peek", &json!({"attributes": {"user": "told"}}));
    assert_eq!(told["remaining"], 29);
    let lease = ask(&services[0], "/v1/acquire", &json!({"attributes": {"team": "a"}})).1["lease"].clone();
    assert_eq!(ask(&services[1], "/v1/acquire", &json!({"attributes": {"team": "a"}})).0.status, 200);
    assert_eq!(ask(&services[2], "/v1/acquire", &json!({"attributes": {"team": "a"}})).0.status, 429);
    assert_eq!(ask(&services[2], "/v1/release", &json!({"attributes": {"team": "a"}, "lease": lease})).0.status, 200);
    assert_eq!(ask(&services[2], "/v1/acquire", &json!({"attributes": {"team": "a"}})).0.status, 200);
    // And limits that come with the question.
    let mut throttled = [0, 1].map(|at: usize| Connection::open(services[at].resp()).unwrap());
    let answers: Vec<Value> = (0..4)
        .map(|at| throttled[at % 2].command(&["CL.THROTTLE", "k", "2", "1", "3600"]).answer()[0].clone())
        .collect();
    assert_eq!(answers, [0, 0, 0, 1]);
    // Nothing is kept for ever.
    let keys = redis.cli(&["--scan", "--pattern", "*"]);
    assert!(keys.lines().count() >= 4, "{keys}");
    for at in 0..keys.lines().count() {
        let ttl = redis.cli(&["EVAL", "return redis.call('PTTL', redis.call('RANDOMKEY'))", "0"]);
        assert!(ttl.trim().parse::<i64>().unwrap() > 0, "{at}: {ttl}");
    }
}

#[test]
fn a_redis_that_dies_costs_nobody_an_error_and_is_found_again() {
    let mut redis = RedisServer::start(&[]);
    let services = services(2, &url(&redis), "200ms");
    eventually("all are connected", || services.iter().all(|service| !is_degraded(service)));
    assert_eq!(flood(&services, "a", 10), 10);
    redis.kill();
    eventually("the loss is known", || services.iter().all(is_degraded));
    // Each has half of what was left when it last heard of it: of 21 the one, of 20 the other.
    assert_eq!(flood(&services, "a", 60), 11 + 10);
    // And half of all for whom it has not heard of.
    assert_eq!(flood(&services, "b", 60), 30);
    let (answer, told) = check(&services[0], "guest", "g");
    assert_eq!((answer.status, &told["degraded"]), (200, &true.into()));
    assert_eq!(answer.header("x-tollgate-degraded"), Some("true"));
    assert_eq!(check(&services[0], "guest", "g").0.status, 200);
    let (answer, told) = check(&services[0], "robot", "r");
    assert_eq!((answer.status, &told["degraded"]), (429, &true.into()));
    assert_eq!(answer.header("retry-after"), Some("1"));
    let envoy = json!({"domain": "d", "descriptors": [{"entries": [{"key": "guest", "value": "g"}]}]});
    let (answer, told) = ask(&services[0], "/json", &envoy);
    let added = json!([{"key": "x-tollgate-degraded", "value": "true"}]);
    assert_eq!((answer.status, &told["responseHeadersToAdd"]), (200, &added));
    // The service is as ready as before, and says how its store is.
    assert_eq!(http(services[0].http(), "GET /ready HTTP/1.1", "").status, 200);
    let metrics = || http(services[0].admin(), "GET /metrics HTTP/1.1", "").body;
    assert!(metrics().contains("\ntollgate_store_serving 0\n"), "{}", metrics());
    assert!(!metrics().contains("\ntollgate_degraded_decisions_total 0\n"));
    let begun = Instant::now();
    redis.restart();
    eventually("it is found again", || services.iter().all(|service| !is_degraded(service)));
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    // It came back empty, and counts exactly.
    assert_eq!(flood(&services, "a", 60), 30);
    assert!(metrics().contains("\ntollgate_store_serving 1\n"));
}

#[test]
fn a_redis_that_is_silent_is_waited_for_a_moment_and_then_not_at_all() {
    let redis = RedisServer::start(&[]);
    let proxy = FaultProxy::start(redis.address());
    let services = services(1, &format!("redis://{}", proxy.address()), "5ms");
    let service = &services[0];
    eventually("it is connected", || !is_degraded(service));
    proxy.set(Fault::Blackhole);
    let ask_and_time = |at: usize| {
        let begun = Instant::now();
        assert_eq!(check(service, "user", &at.to_string()).0.status, 200);
        begun.elapsed()
    };
    // A few pay the deadline, then nobody does, but for what a busy machine does.
    within(Duration::from_millis(4), || {
        let mut took: Vec<Duration> = (0..201).map(ask_and_time).collect();
        took.sort();
        took[100]
    });
    assert!(is_degraded(service));
    proxy.set(Fault::None);
    proxy.drop_connections();
    eventually("it is found again", || !is_degraded(service));
}

#[test]
fn a_redis_that_is_not_there_yet_is_joined_when_it_comes() {
    let mut redis = RedisServer::absent(tollgate_sim::redis::free_port(), &[]);
    let services = services(1, &url(&redis), "200ms");
    let (answer, told) = check(&services[0], "user", "early");
    assert_eq!((answer.status, &told["degraded"]), (200, &true.into()));
    redis.launch();
    eventually("it is joined", || !is_degraded(&services[0]));
    let (_, told) = check(&services[0], "user", "late");
    assert_eq!((&told["remaining"], told.get("degraded")), (&29.into(), None));
}

/// Whoever collects the log is stuck. What there is to say of Redis waits for that; decisions do not.
#[test]
fn a_log_that_nobody_reads_keeps_nobody_waiting() {
    let mut redis = RedisServer::start(&[]);
    let (pipe, rules) = (scratch("pipe"), scratch("rules.yaml"));
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo runs").success());
    std::fs::write(&rules, RULES).expect("a file can be written");
    // As much as a pipe holds: nothing else goes into it.
    let mut full = OpenOptions::new().read(true).write(true).open(&pipe).expect("a pipe");
    full.write_all(&[b'x'; 64 << 10]).expect("there is room");
    let mut command = Command::new("sh");
    command.args(["-c", "exec \"$0\" \"$@\" 2>>\"$PIPE\"", env!("CARGO_BIN_EXE_tollgate")]).env("PIPE", &pipe);
    let rules = rules.display().to_string();
    let store = url(&redis);
    let (sender, started) = mpsc::channel();
    std::thread::spawn(move || {
        let args = ["--rules", &rules, "--store", &store, "--store-deadline", "200ms"];
        sender.send(Service::start_with(command, &args))
    });
    let Ok(service) = started.recv_timeout(Duration::from_secs(20)) else {
        // It goes on when there is nobody to read, and can be ended.
        drop(full);
        drop(started.recv());
        panic!("it waits for its log to be read");
    };
    eventually("it is connected", || !is_degraded(&service));
    redis.kill();
    eventually("the loss is known", || is_degraded(&service));
    redis.restart();
    eventually("it is found again", || !is_degraded(&service));
    // When somebody reads again, all that was said is there.
    let (sender, lines) = mpsc::channel();
    std::thread::spawn(move || BufReader::new(full).lines().try_for_each(|line| sender.send(line.expect("text"))));
    let mut heard = String::new();
    eventually("all is said", || {
        heard.extend(lines.try_iter());
        let said = ["serving", "Redis is connected", "Redis is not asked for now", "Redis is asked again"];
        said.iter().all(|said| heard.contains(said))
    });
}

#[test]
fn what_is_wrong_with_an_address_is_said_without_its_password() {
    let run = |store: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_tollgate"))
            .args(["serve", "--print-config", "--store", store])
            .output()
            .unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&said).into_owned())
    };
    for wrong in ["redis", "http://a:secret@b", "redis://a:secret@b:x", "redis+sentinel://a:secret@b", "redis://"] {
        let (worked, said) = run(wrong);
        assert!(!worked && said.contains("--store") && !said.contains("secret"), "{wrong}: {said}");
    }
    let (worked, said) = run("redis://a:secret@b");
    assert!(worked && said.contains("store: set, with a login, not shown") && !said.contains("secret"), "{said}");
}

/// The number of a metric.
fn metric(service: &Service, name: &str) -> u64 {
    let text = http(service.admin(), "GET /metrics HTTP/1.1", "").body;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{name}: {text}")).parse().unwrap()
}

#[test]
fn a_pipeline_and_a_batch_take_one_round_trip_and_not_one_for_each() {
    let redis = RedisServer::start(&[]);
    let proxy = FaultProxy::start(redis.address());
    let service = &services(1, &format!("redis://{}", proxy.address()), "2s")[0];
    eventually("it is connected", || !is_degraded(service));
    let alone = metric(service, "tollgate_degraded_decisions_total");
    let delay = Duration::from_millis(20);
    proxy.set(Fault::Delay { by: delay, jitter: Duration::ZERO });
    let mut number = 0;
    let mut client = Connection::open(service.resp()).unwrap();
    // A hundred, one after the other, would take two seconds.
    within(delay * 20, || {
        number += 1;
        let key = format!("pipeline {number}");
        let begun = Instant::now();
        let throttle: &[&str] = &["CL.THROTTLE", &key, "29", "30", "86400"];
        let answers = client.pipeline(&[throttle; 100]).answer();
        let took = begun.elapsed();
        let denied: Vec<bool> = answers.iter().map(|answer| answer[0] == 1).collect();
        assert!(denied[..30].iter().all(|denied| !denied) && denied[30..].iter().all(|denied| *denied), "{denied:?}");
        took
    });
    // The same as most clients send it, with other commands between.
    within(delay * 20, || {
        number += 1;
        let user = format!("transaction {number}");
        let begun = Instant::now();
        let check: &[&str] = &["TG.CHECK", "FOR", "user", &user];
        let commands = [&[&["MULTI"][..]][..], &[check; 50], &[&["PING"]], &[check; 50], &[&["EXEC"]]].concat();
        let replies = client.pipeline(&commands).answer();
        let took = begun.elapsed();
        let answers = replies.last().unwrap().as_array().unwrap();
        assert_eq!((answers.len(), &answers[50]), (101, &"PONG".into()));
        let allowed = answers.iter().filter(|answer| answer[1] == 1).count();
        assert_eq!(allowed, 30);
        took
    });
    within(delay * 20, || {
        number += 1;
        let of = |at: usize| json!({"attributes": {"user": format!("batch {number} {}", at % 250)}, "cost": 20});
        let checks: Vec<Value> = (0..500).map(of).collect();
        let begun = Instant::now();
        let (answer, told) = ask(service, "/v1/batch", &json!({"checks": checks}));
        let took = begun.elapsed();
        assert_eq!(answer.status, 200, "{}", answer.body);
        let allowed: Vec<bool> = told["answers"].as_array().unwrap().iter().map(|one| one["allowed"] == true).collect();
        assert!(allowed[..250].iter().all(|allowed| *allowed) && !allowed[250..].iter().any(|allowed| *allowed));
        took
    });
    assert_eq!(metric(service, "tollgate_degraded_decisions_total"), alone, "all by Redis");
}

#[test]
fn a_flood_does_not_reach_redis_and_what_is_given_back_counts_at_once() {
    let redis = RedisServer::start(&[]);
    let service = &services(1, &url(&redis), "2s")[0];
    eventually("it is connected", || !is_degraded(service));
    assert_eq!(flood(std::slice::from_ref(service), "a", 30), 30);
    let (answer, told) = check(service, "user", "a");
    assert_eq!(answer.status, 429);
    let before = metric(service, "tollgate_repeated_denials_total");
    let retry_after = |told: &Value| told["retry_after"].as_f64().unwrap_or_else(|| panic!("{told}"));
    let mut last = retry_after(&told);
    for _ in 0..300 {
        let (answer, told) = check(service, "user", "a");
        assert!(answer.status == 429 && retry_after(&told) <= last, "{last}: {told}");
        last = retry_after(&told);
    }
    let repeated = metric(service, "tollgate_repeated_denials_total") - before;
    assert!(repeated >= 200, "{repeated} of 300");
    let (_, told) = ask(service, "/v1/refund", &json!({"attributes": {"user": "a"}, "cost": 2}));
    assert_eq!(told["allowed"], true, "{told}");
    assert_eq!(flood(std::slice::from_ref(service), "a", 10), 2);
    // Also for who asks right behind, in the same breath.
    let mut client = Connection::open(service.resp()).unwrap();
    let refund: &[&str] = &["TG.REFUND", "FOR", "user", "a"];
    let check: &[&str] = &["TG.CHECK", "FOR", "user", "a"];
    for commands in [&[refund, check, check][..], &[&["MULTI"], refund, check, check, &["EXEC"]]] {
        assert_eq!(client.command(check).answer()[1], 0);
        let replies = client.pipeline(commands).answer();
        let replies = replies.last().and_then(Value::as_array).filter(|all| all.len() == 3).unwrap_or(&replies);
        let allowed: Vec<bool> = replies.iter().map(|reply| reply[1] == 1).collect();
        assert_eq!(allowed, [true, true, false], "{replies:?}");
    }
}

#[test]
fn servers_are_counted_in_redis_if_nobody_says_how_many_there_are() {
    let mut redis = RedisServer::start(&[]);
    let url = url(&redis);
    let start = || Service::start(RULES, &["--store", &url, "--store-deadline", "200ms"]);
    let mut services = vec![start(), start(), start()];
    let counted =
        |services: &[Service], count| services.iter().all(|service| metric(service, "tollgate_store_servers") == count);
    eventually("three are counted", || counted(&services, 3));
    let leaving = services.pop().unwrap();
    leaving.signal("TERM");
    assert!(leaving.wait().success());
    eventually("two are left", || counted(&services, 2));
    redis.kill();
    eventually("the loss is known", || services.iter().all(is_degraded));
    assert_eq!(flood(&services, "a", 60), 30, "half of it each");
    assert!(counted(&services, 2));
}

/// What is counted by networks is told as one, and found by it or by an address in it.
#[test]
fn networks_are_shown_as_networks() {
    let redis = RedisServer::start(&[]);
    let rules = "rules:\n  - {name: nets, per: ip/64, limits: [{rate: 30/day, algorithm: fixed_window}]}\n";
    let service = Service::start(rules, &["--store", &url(&redis), "--store-deadline", "2s"]);
    eventually("it is connected", || check(&service, "ip", "198.51.100.1").1["degraded"] != true);
    for ip in ["2001:db8:1:2:3::4", "2001:db8:1:2::9", "192.0.2.7"] {
        assert_eq!(check(&service, "ip", ip).0.status, 200);
    }
    let run = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
        support::printed(&command.args(["inspect", "--store", &url(&redis)]).args(args).output().unwrap())
    };
    let all = run(&[]);
    assert!(all.contains("for network 2001:db8:1:2::/64 (") && all.contains("for network 192.0.2.7/32 ("), "{all}");
    for wanted in ["2001:db8:1:2::/64", "2001:db8:1:2::abcd"] {
        let one = run(&["--for", wanted]);
        assert!(
            one.contains("network 2001:db8:1:2::/64") && one.contains("2 counted") && !one.contains("192"),
            "{one}"
        );
    }
    assert_eq!(run(&["--for", "2001:db8:1:3::1"]), "");
}

#[test]
fn what_is_stored_is_shown_in_words() {
    let redis = RedisServer::start(&[]);
    let service = &services(1, &url(&redis), "2s")[0];
    eventually("it is connected", || !is_degraded(service));
    flood(std::slice::from_ref(service), "alice \"}", 3);
    check(service, "team", "a");
    redis.cli(&["SET", "somebody's", "own"]);
    let file = scratch("rules.yaml");
    std::fs::write(&file, RULES).unwrap();
    let run = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
        let output = command.args(["inspect", "--store", &url(&redis)]).args(args).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let rules = file.display().to_string();
    let all = run(&["--rules", &rules]);
    let keys = all.lines().filter(|line| line.starts_with('"')).count();
    assert_eq!(keys, 3, "alice, the probe and the team: {all}");
    let one = run(&["--rules", &rules, "--for", "alice \"}"]);
    let [key, rule, what, counted, kept] = &*one.lines().collect::<Vec<_>>() else { panic!("{one}") };
    assert!(key.starts_with("\"tg1:{"), "{key}");
    assert_eq!(*rule, "  posts: 30/day");
    assert!(what.starts_with("  fixed window, limit ") && what.contains(r#"for "alice \"}""#), "{what}");
    assert!(counted.starts_with("  3 counted, over at "), "{counted}");
    assert!(kept.starts_with("  kept for ") && kept.ends_with(" more"), "{kept}");
    // The same by the key, as it is printed.
    assert_eq!(run(&[key]).lines().take(3).collect::<Vec<_>>(), [*key, what, counted]);
    let other = run(&["somebody's", "tg1:{000}/12345678"]);
    assert!(other.contains("not a key of tollgate's") && other.contains("nothing is stored"), "{other}");
    let absent = format!("redis://user:secret@127.0.0.1:{}", tollgate_sim::redis::free_port());
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    let output = command.args(["inspect", "--store", &absent]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("refused") && !said.contains("secret"), "{said}");
}
