//! What the gateway does at a limit, and what it counts.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "gateway/origin.rs"]
mod origin;
mod support;

use std::net::SocketAddr;
use std::time::Duration;

use origin::Origin;
use quanta::Instant;
use support::{Answer, Service, eventually, http};

fn get(at: SocketAddr, path: &str) -> Answer {
    http(at, &format!("GET {path} HTTP/1.1"), "")
}

fn before(origin: &Origin, route: &str, limits: &str) -> Service {
    let at = origin.address;
    let file = format!(
        "routes:\n  - {{name: all, upstream: 'http://{at}'{route}}}\nrules:\n  - {{name: r, per: ip, limits: [{limits}]}}\n"
    );
    Service::gateway(&file, &[])
}

/// All at once, each with the path of its number; statuses in that order.
fn together(at: SocketAddr, number: usize) -> Vec<u16> {
    let asking: Vec<_> =
        (0..number).map(|number| std::thread::spawn(move || get(at, &format!("/{number}")).status)).collect();
    asking.into_iter().map(|thread| thread.join().unwrap()).collect()
}

fn gaps(origin: &Origin) -> Vec<Duration> {
    let mut times: Vec<Instant> = origin.seen().iter().map(|seen| seen.at).collect();
    times.sort();
    times.windows(2).map(|pair| pair[1].duration_since(pair[0])).collect()
}

/// [D4, D6] Who can be let through soon waits; who cannot is refused at once.
#[test]
fn d6_short_waits_are_waited_and_long_ones_refused() {
    let origin = Origin::start();
    let limit = "{rate: 5/s, burst: 1, algorithm: token_bucket, on_limit: {delay: 700ms}}";
    let gateway = before(&origin, "", limit);
    let begun = Instant::now();
    let mut statuses = together(gateway.proxy(), 10);
    statuses.sort_unstable();
    // One at once and one every fifth of a second: three more within the time that one may wait.
    let through = statuses.iter().filter(|status| **status == 200).count();
    assert!((3..=5).contains(&through), "{statuses:?}");
    assert!(statuses.iter().all(|status| [200, 429].contains(status)) && origin.seen().len() == through);
    assert!(begun.elapsed() >= Duration::from_millis(390) && gaps(&origin).iter().all(|gap| gap.as_millis() >= 100));
}

/// [B11, D10] A queue: requests leave it one by one, however they came.
#[test]
fn b11_requests_leave_the_queue_at_the_rate() {
    let origin = Origin::start();
    let gateway = before(&origin, "", "{rate: 10/s, algorithm: leaky_bucket, queue: 7}");
    let mut statuses = together(gateway.proxy(), 12);
    statuses.sort_unstable();
    let through = statuses.iter().filter(|status| **status == 200).count();
    // Those in the queue, the one that leaves at once, and at most one for whose place there was time meanwhile.
    assert!((7..=9).contains(&through), "{statuses:?}");
    let gaps = gaps(&origin);
    assert!(gaps.iter().sum::<Duration>() >= Duration::from_millis(550), "{gaps:?}");
}

/// [B18] Who is refused at the same time is not told to come back at the same time, nor too early.
#[test]
fn b18_retry_hints_are_spread() {
    let origin = Origin::start();
    let file = format!(
        "routes:\n  - {{name: all, upstream: 'http://{}'}}\nrules:\n  - {{name: r, per: ip, limits: [{{rate: 1/d, algorithm: token_bucket}}]}}\n",
        origin.address
    );
    let gateway = Service::gateway(&file, &["--retry-jitter", "1h"]);
    assert_eq!(get(gateway.proxy(), "/").status, 200);
    let told = |_| {
        let denied = get(gateway.proxy(), "/");
        let told: serde_json::Value = serde_json::from_str(&denied.body).unwrap();
        let hint: f64 = denied.header("retry-after").unwrap().parse().unwrap();
        let exact = told["retry_after"].as_f64().unwrap();
        assert!((86_000.0..=86_400.0).contains(&exact), "what the limit says is as ever: {exact}");
        assert!((exact..exact + 3_601.0).contains(&hint), "{hint} after {exact}");
        hint as u64
    };
    let hints: std::collections::BTreeSet<u64> = (0..20).map(told).collect();
    assert!(hints.len() > 10, "{hints:?}");
}

/// [D7] A refusal that is held back.
#[test]
fn d7_a_refusal_may_be_slow() {
    let origin = Origin::start();
    let gateway = before(&origin, "", "{rate: 1/d, algorithm: token_bucket, on_limit: {reject_slowly: 400ms}}");
    assert_eq!(get(gateway.proxy(), "/").status, 200);
    let begun = Instant::now();
    assert_eq!(get(gateway.proxy(), "/").status, 429);
    assert!(begun.elapsed() >= Duration::from_millis(390));
}

/// [E5] As many at a time as there are slots, which are free again when an answer is through or its client gone.
#[test]
fn e5_slots_are_held_until_the_answer_is_through() {
    let origin = Origin::start();
    let gateway = before(&origin, "", "{concurrency: 2, lease: 1min}");
    let at = gateway.proxy();
    let slow: Vec<_> = (0..2).map(|_| std::thread::spawn(move || get(at, "/drip/20").status)).collect();
    eventually("both are on their way", || origin.seen().len() == 2);
    assert_eq!(get(at, "/").status, 429);
    assert!(slow.into_iter().all(|thread| thread.join().unwrap() == 200));
    eventually("a slot is free", || get(at, "/").status == 200);
    // A client that leaves in the middle gives its slot back as well.
    let silent = || origin.seen().iter().filter(|seen| seen.line.starts_with("GET /silence")).count();
    let leaving: Vec<_> = (1..=2)
        .map(|number| {
            let mut stream = std::net::TcpStream::connect(at).unwrap();
            std::io::Write::write_all(&mut stream, b"GET /silence HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
            eventually("it is on its way", || silent() == number);
            stream
        })
        .collect();
    assert_eq!(get(at, "/").status, 429);
    drop(leaving);
    eventually("slots are free again", || get(at, "/").status == 200);
}

/// [C5] What a request costs may be known only by its answer.
#[test]
fn c5_costs_come_from_headers_and_from_answers() {
    let origin = Origin::start();
    let gateway = before(&origin, ", cost: {header: X-Cost}", "{rate: 10/d, algorithm: token_bucket}");
    let ask = |cost: &str| http(gateway.proxy(), &format!("GET / HTTP/1.1\nX-Cost: {cost}"), "").status;
    assert_eq!([ask("6"), ask("5"), ask("4"), ask("1")], [200, 429, 200, 429]);
    assert_eq!(ask("lots"), 400);

    let gateway = before(&origin, ", cost: {response_header: X-Cost}", "{rate: 10/d, algorithm: token_bucket}");
    assert_eq!(get(gateway.proxy(), "/cost/20").status, 200);
    eventually("it is charged", || get(gateway.proxy(), "/cost/0").status == 429);

    let gateway =
        before(&origin, ", cost: {response_header: Content-Length}", "{rate: 1000/d, algorithm: token_bucket}");
    assert_eq!(get(gateway.proxy(), "/bytes/60000").status, 200);
    eventually("it is charged", || get(gateway.proxy(), "/bytes/0").status == 429);
}

/// [C6, C12] Reads and writes apart, in requests and in bytes.
#[test]
fn c6_reads_and_writes_are_counted_in_requests_and_in_bytes() {
    let origin = Origin::start();
    let file = format!(
        "routes:\n  - {{name: all, upstream: 'http://{}'}}\nrules:\n  \
         - {{name: reads, when: {{method: GET}}, per: ip, limits: [{{rate: 10/d, algorithm: token_bucket}}, {{rate: 50KiB/d, algorithm: token_bucket}}]}}\n  \
         - {{name: writes, when: {{method: POST}}, per: ip, limits: [{{rate: 3/d, algorithm: token_bucket}}, {{rate: 10KiB/d, algorithm: token_bucket}}]}}\n",
        origin.address
    );
    let gateway = Service::gateway(&file, &[]);
    let at = gateway.proxy();
    let post = |bytes: usize| http(at, "POST / HTTP/1.1", &"x".repeat(bytes)).status;
    assert_eq!([post(4_000), post(4_000), post(4_000), post(10), post(10)], [200, 200, 429, 200, 429]);
    // The body of an answer is paid for when it is known: what is over is owed.
    assert_eq!(get(at, "/bytes/60000").status, 200);
    eventually("it is charged", || get(at, "/bytes/0").status == 429);
    let reads = origin.seen().iter().filter(|seen| seen.line.starts_with("GET")).count();
    assert!(reads < 10, "{reads}");
    // Whoever reads little is stopped by the number of requests, and may still write.
    let gateway = Service::gateway(&file, &[]);
    let at = gateway.proxy();
    let reads: Vec<u16> = (0..11).map(|_| get(at, "/bytes/1").status).collect();
    assert_eq!((&reads[..10], reads[10]), (&[200; 10][..], 429));
    assert_eq!(http(at, "POST / HTTP/1.1", "x").status, 200);
}

/// [A10] A stricter rule for one route beside the one for all.
#[test]
fn a10_a_route_may_be_stricter() {
    let origin = Origin::start();
    let at = origin.address;
    let file = format!(
        "routes:\n  - {{name: all, upstream: 'http://{at}'}}\n  - {{name: login, path: /login, upstream: 'http://{at}'}}\n\
         rules:\n  - {{name: all, per: ip, limits: [{{rate: 5/d, algorithm: token_bucket}}]}}\n  \
         - {{name: login, when: {{route: login}}, per: ip, limits: [{{rate: 2/d, algorithm: token_bucket}}]}}\n"
    );
    let gateway = Service::gateway(&file, &[]);
    let ask = |path: &str| get(gateway.proxy(), path).status;
    assert_eq!([ask("/login"), ask("/login"), ask("/login")], [200, 200, 429]);
    // A denial charged nothing: three of five are left.
    assert_eq!([ask("/"), ask("/"), ask("/"), ask("/")], [200, 200, 200, 429]);
}

/// [A10] A rule for one route in place of the one for all, where both name the route: also a looser one.
#[test]
fn a10_a_route_may_have_a_rule_of_its_own_instead() {
    let origin = Origin::start();
    let at = origin.address;
    let file = format!(
        "routes:\n  - {{name: all, upstream: 'http://{at}'}}\n  - {{name: feed, path: /feed, upstream: 'http://{at}'}}\n\
         rules:\n  - {{name: all, when: {{route: '*'}}, per: ip, limits: [{{rate: 2/d, algorithm: token_bucket}}]}}\n  \
         - {{name: feed, when: {{route: feed}}, per: ip, limits: [{{rate: 4/d, algorithm: token_bucket}}]}}\n"
    );
    let gateway = Service::gateway(&file, &[]);
    let ask = |path: &str| get(gateway.proxy(), path).status;
    assert_eq!([ask("/feed"), ask("/feed"), ask("/feed"), ask("/feed"), ask("/feed")], [200, 200, 200, 200, 429]);
    assert_eq!([ask("/"), ask("/"), ask("/")], [200, 200, 429]);
}

/// A route says what its requests cost, and what whoever is denied is told.
#[test]
fn routes_have_costs_and_denials_of_their_own() {
    let origin = Origin::start();
    let denied = "{status: 503, body: '{\"try\": \"later\"}', content_type: application/vnd.shop+json, headers: [x]}";
    let gateway = before(&origin, &format!(", cost: 4, denied: {denied}"), "{rate: 10/d, algorithm: token_bucket}");
    let answers = [(); 3].map(|()| get(gateway.proxy(), "/"));
    assert_eq!(answers.each_ref().map(|answer| answer.status), [200, 200, 503], "ten are two times four");
    let [.., told] = answers;
    assert_eq!(told.header("content-type"), Some("application/vnd.shop+json"));
    assert_eq!((told.header("x-ratelimit-limit"), told.header("ratelimit")), (Some("10"), None));
    assert_eq!(told.body, "{\"try\": \"later\"}");
    assert!(told.header("retry-after").is_some(), "when to come back is told all the same");
}

/// Each request is a line, when its answer is through; what clients put behind `?` is not in it.
#[test]
fn requests_are_written_down() {
    let origin = Origin::start();
    let path = support::scratch("access.log");
    let at = origin.address;
    let file = format!(
        "routes:\n  - {{name: all, upstream: 'http://{at}'}}\nrules:\n  - {{name: r, per: ip, limits: [2/day]}}\n"
    );
    let gateway = Service::gateway(&file, &["--access-log", &path.display().to_string()]);
    let mut answers: Vec<Answer> = ["/a?key=secret", "/b", "/c"].map(|asked| get(gateway.proxy(), asked)).into();
    answers.push(http(gateway.proxy(), "HEAD /../d HTTP/1.1", ""));
    let lines = || std::fs::read_to_string(&path).unwrap_or_default();
    eventually("all are written", || lines().lines().count() == 4);
    let lines: Vec<serde_json::Value> = lines().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |name: &str| lines.iter().map(|line| line[name].to_string()).collect::<Vec<_>>();
    assert_eq!(of("path"), [r#""/a""#, r#""/b""#, r#""/c""#, r#""/../d""#]);
    assert_eq!(of("status"), ["200", "200", "429", "400"]);
    assert_eq!(of("denied_by"), ["null", "null", r#""r""#, "null"]);
    assert_eq!(of("client"), [r#""127.0.0.1""#; 4], "also of who is refused");
    assert!(lines.iter().all(|line| line["cut_off"].is_null() && line["ms"].as_f64() >= Some(0.0)), "{lines:?}");
    assert!(lines[0]["bytes"].as_u64() > Some(0) && lines[0]["id"].as_str().is_some_and(|id| id.len() == 16));
    // Whoever is refused can name the request, too.
    assert!(lines.iter().zip(&answers).all(|(line, answer)| line["id"].as_str() == answer.header("x-request-id")));
    assert!(!lines.iter().any(|line| line.to_string().contains("secret")));
}

/// A client that is gone before there is an answer was told nothing.
#[test]
fn who_leaves_before_the_answer_is_written_down_as_such() {
    let origin = Origin::start();
    let path = support::scratch("access.log");
    let file = format!("routes:\n  - {{name: all, upstream: 'http://{}'}}\n", origin.address);
    let gateway = Service::gateway(&file, &["--access-log", &path.display().to_string()]);
    let mut stream = std::net::TcpStream::connect(gateway.proxy()).unwrap();
    std::io::Write::write_all(&mut stream, b"GET /silence HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    eventually("it is on its way", || origin.seen().len() == 1);
    drop(stream);
    let lines = || std::fs::read_to_string(&path).unwrap_or_default();
    eventually("it is written", || lines().lines().count() == 1);
    let line: serde_json::Value = serde_json::from_str(lines().trim()).unwrap();
    assert_eq!((&line["status"], &line["cut_off"]), (&499.into(), &true.into()), "{line}");
}

/// Whoever reads a 502, 503 or 504 of the gateway's own finds there why, and which server it was.
#[test]
fn why_a_server_was_not_reached_is_written_down() {
    let origin = Origin::start();
    let (path, refusing) = (support::scratch("access.log"), support::free_port());
    let file = format!(
        "upstreams:\n  - {{name: slow, servers: ['http://{}'], timeout: 200ms}}\n\
         routes:\n  - {{name: gone, path: /gone, upstream: 'http://127.0.0.1:{refusing}'}}\n  \
         - {{name: slow, upstream: slow}}\n",
        origin.address
    );
    let gateway = Service::gateway(&file, &["--access-log", &path.display().to_string()]);
    let statuses = ["/gone?key=secret", "/silence", "/"].map(|asked| get(gateway.proxy(), asked).status);
    assert_eq!(statuses, [502, 504, 200]);
    let lines = || std::fs::read_to_string(&path).unwrap_or_default();
    eventually("all are written", || lines().lines().count() == 3);
    let lines: Vec<serde_json::Value> = lines().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let error = |number: usize| lines[number]["error"].as_str().unwrap_or_default();
    assert!(error(0).starts_with(&format!("http://127.0.0.1:{refusing}: it cannot be reached: ")), "{lines:?}");
    assert!(error(0).contains("refused") && !error(0).contains("secret"), "{lines:?}");
    assert_eq!(error(1), format!("http://{}: it did not answer in time", origin.address));
    assert!(lines[2].get("error").is_none(), "{lines:?}");
}

/// Standard output is as good as a file, and at once: the process itself holds its lock.
#[test]
fn requests_are_written_to_standard_output() {
    let path = support::scratch("stdout");
    let out = std::fs::File::create(&path).unwrap();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command.args(["gateway", "--proxy", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--access-log", "-"]);
    let mut process = command.stdout(out).stderr(std::process::Stdio::null()).spawn().unwrap();
    let printed = || std::fs::read_to_string(&path).unwrap_or_default();
    let proxy = || printed().lines().find_map(|line| line.trim().strip_prefix("proxy")?.trim().parse().ok());
    eventually("it says where it is", || proxy().is_some() && printed().contains("curl -i"));
    get(proxy().unwrap(), "/nowhere");
    let is_it = |line: serde_json::Value| line["path"] == "/nowhere" && line["status"] == 404;
    let is_there = || printed().lines().filter_map(|line| serde_json::from_str(line).ok()).any(is_it);
    eventually("the line is there", is_there);
    process.kill().unwrap();
    process.wait().unwrap();
}

/// [I4] Gateways that share a Redis admit the limit together, whichever is asked; without it each admits its share.
#[test]
fn two_gateways_admit_the_limit_together() {
    let origin = Origin::start();
    let mut redis = tollgate_sim::redis::RedisServer::start(&[]);
    let (at, url) = (origin.address, format!("redis://{}", redis.address()));
    let file = format!(
        "routes:\n  - {{name: all, upstream: 'http://{at}'}}\nrules:\n  - {{name: r, per: header.x-user, limits: [{{rate: 20/day, algorithm: fixed_window}}]}}\n"
    );
    let args = ["--store", &url, "--store-servers", "2", "--store-deadline", "2s"];
    let gateways = [Service::gateway(&file, &args), Service::gateway(&file, &args)];
    let ask =
        |user: &str, number: usize| http(gateways[number % 2].proxy(), &format!("GET / HTTP/1.1\nX-User: {user}"), "");
    let answers: Vec<Answer> = (0..30).map(|number| ask("a", number)).collect();
    assert_eq!(answers.iter().filter(|answer| answer.status == 200).count(), 20);
    assert_eq!(origin.seen().len(), 20);
    assert!(answers.iter().all(|answer| answer.header("x-tollgate-degraded").is_none()));
    redis.kill();
    // Nobody is told of an error: each gateway admits its half.
    let alone: Vec<Answer> = (0..30).map(|number| ask("b", number)).collect();
    assert!(alone.iter().all(|answer| [200, 429].contains(&answer.status)));
    assert_eq!(alone.iter().filter(|answer| answer.status == 200).count(), 20);
    assert!(alone.iter().all(|answer| answer.header("x-tollgate-degraded").is_some()), "{:?}", alone[0].headers);
}
