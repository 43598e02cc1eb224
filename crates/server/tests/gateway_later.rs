//! Requests over a limit that are kept and done later: in order, at the rate, whatever ends meanwhile.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "gateway/kept.rs"]
mod kept;
#[path = "gateway/origin.rs"]
mod origin;
mod support;

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use kept::{judge, keep, told};
use origin::Origin;
use serde_json::Value;
use support::{Answer, Service, eventually, free_port, http, pause, scratch};

/// One at once and then ten a second.
const TEN: &str = "{rate: 10/s, burst: 1, algorithm: token_bucket, on_limit: enqueue}";
/// One, and the next tomorrow.
const ONE: &str = "{rate: 1/d, algorithm: token_bucket, on_limit: enqueue}";

/// A file for a gateway in front of one server: what its route says of `later`, who is counted apart, and the limit.
fn file(upstream: SocketAddr, later: &str, per: &str, limit: &str) -> String {
    format!(
        "routes:\n  - {{name: all, upstream: 'http://{upstream}', later: {{{later}}}}}\n\
         rules:\n  - {{name: r, per: {per}, limits: [{limit}]}}\n"
    )
}

/// A directory of this test's own.
fn data() -> PathBuf {
    let path = scratch("data");
    std::fs::create_dir_all(&path).unwrap();
    path
}

fn with_data(file: &str, data: &Path) -> Service {
    Service::gateway(file, &["--data", data.to_str().unwrap()])
}

fn send(at: SocketAddr, method: &str, path: &str, key: &str, body: &str) -> Answer {
    http(at, &format!("{method} {path} HTTP/1.1\nX-Key: {key}"), body)
}

fn post(at: SocketAddr, path: &str) -> Answer {
    send(at, "POST", path, "k", "body")
}

/// The name that a request was given that was kept.
fn id(answer: &Answer) -> String {
    assert_eq!(answer.status, 202, "{}", answer.body);
    told(answer)["id"].as_str().unwrap().to_owned()
}

/// What became of a request, as its client asks for it.
fn status(gateway: &Service, id: &str) -> Value {
    told(&http(gateway.proxy(), &format!("GET /.tollgate/later/{id} HTTP/1.1"), ""))
}

fn admin(gateway: &Service, line: &str) -> Answer {
    http(gateway.admin(), &format!("{line} HTTP/1.1"), "")
}

/// How often each path was asked for.
fn seen(origin: &Origin) -> HashMap<String, usize> {
    let mut times = HashMap::new();
    for seen in origin.seen() {
        *times.entry(seen.line.split(' ').nth(1).unwrap().to_owned()).or_default() += 1;
    }
    times
}

fn paths(origin: &Origin) -> Vec<String> {
    origin.seen().iter().map(|seen| seen.line.split(' ').nth(1).unwrap().to_owned()).collect()
}

/// [D9, B14] What is over the limit is kept and told so, and leaves in the order of its arrival, at the rate.
#[test]
fn d9_what_is_over_the_limit_is_done_later_in_order_and_at_the_rate() {
    let origin = Origin::start();
    let gateway = with_data(&file(origin.address, "", "ip", TEN), &data());
    assert_eq!(post(gateway.proxy(), "/0").status, 200);
    let kept: Vec<Answer> = (1..=10).map(|number| post(gateway.proxy(), &format!("/{number}?a=b%20c"))).collect();
    let first = told(&kept[0]);
    assert_eq!((&first["position"], &first["durable"], &first["state"]), (&1.into(), &true.into(), &"waiting".into()));
    let location = kept[0].header("location").unwrap();
    assert_eq!((location, first["status"].as_str()), (&*format!("/.tollgate/later/{}", id(&kept[0])), Some(location)));
    assert!(first["expected_start"].as_str().unwrap().ends_with('Z') && kept[0].header("retry-after").is_some());
    let last = told(&kept[9]);
    let wait = last["expected_wait_seconds"].as_f64().unwrap();
    let position = last["position"].as_u64().unwrap();
    assert!((5..=10).contains(&position), "{last}");
    assert!((wait - position as f64 / 10.0).abs() < 0.11, "{last}");
    eventually("all arrived", || origin.seen().len() == 11);
    let expected: Vec<String> = std::iter::once("/0".into()).chain((1..=10).map(|n| format!("/{n}?a=b%20c"))).collect();
    assert_eq!(paths(&origin), expected);
    let all = origin.seen();
    let times: Vec<_> = all.iter().map(|seen| seen.at).collect();
    // A busy machine may carry one later than it was let go, never sooner.
    for (number, at) in (0..).zip(&times) {
        let after = at.duration_since(times[0]) + Duration::from_millis(60);
        assert!(after >= Duration::from_millis(100) * number, "{number} came {after:?} after the first");
    }
    let one = &all[4];
    assert_eq!((&*one.body, one.header("x-key"), one.header("content-length")), (&b"body"[..], Some("k"), Some("4")));
    assert_eq!(one.header("idempotency-key"), Some(&*id(&kept[3])));
    assert_eq!(one.header("x-request-id"), kept[3].header("x-request-id"));
    assert_eq!(one.header("x-forwarded-for"), Some("127.0.0.1"));
    // Whoever was told its name is told what the server said.
    eventually("it is done", || status(&gateway, &id(&kept[9]))["state"] == "done");
    let answer = &status(&gateway, &id(&kept[9]))["answer"];
    assert_eq!((&answer["status"], &answer["body"]), (&200.into(), &"POST /10?a=b%20c HTTP/1.1 4".into()));
    assert_eq!(http(gateway.proxy(), &format!("DELETE {location} HTTP/1.1"), "").status, 405);
    assert_eq!(http(gateway.proxy(), "GET /.tollgate/later/0123 HTTP/1.1", "").status, 404);
    assert_eq!(http(gateway.proxy(), &format!("GET {location}0 HTTP/1.1"), "").status, 404);
}

/// First come, first served: who comes while others wait is put behind them, and others are not concerned.
#[test]
fn nobody_overtakes_those_who_wait() {
    let origin = Origin::start();
    let gateway = with_data(&file(origin.address, "", "header.x-key", TEN), &data());
    assert_eq!(post(gateway.proxy(), "/0").status, 200);
    // The server takes longer than the limit: there is always room, and nobody takes it who is not first.
    let sent: Vec<String> = (1..=20).map(|number| format!("/drip/4?{number}")).collect();
    for (number, path) in (1..).zip(&sent) {
        assert_eq!(post(gateway.proxy(), path).status, 202, "{number}");
        pause(Duration::from_millis(50));
        if number == 10 {
            assert_eq!(send(gateway.proxy(), "GET", "/other", "else", "").status, 200);
        }
    }
    eventually("all arrived", || origin.seen().len() == 22);
    let arrived: Vec<String> = paths(&origin).into_iter().filter(|path| path.starts_with("/drip")).collect();
    assert_eq!(arrived, sent);
    // Nobody waits any more: who comes goes through again.
    eventually("none is left", || told(&admin(&gateway, "GET /later"))["waiting"] == 0);
    pause(Duration::from_millis(150));
    assert_eq!(post(gateway.proxy(), "/last").status, 200);
}

/// Killed without a word while a hundred wait and some are on their way: each arrives, and none twice that was
/// answered.
#[test]
fn a_crash_loses_nothing_and_repeats_nothing_that_was_answered() {
    const KEYS: usize = 10;
    let origin = Origin::start();
    let data = data();
    let limit = "{rate: 4/s, burst: 1, algorithm: token_bucket, on_limit: enqueue}";
    let file = file(origin.address, "", "header.x-key", limit);
    let gateway = with_data(&file, &data);
    for key in 0..KEYS {
        assert_eq!(send(gateway.proxy(), "GET", &format!("/first/{key}"), &key.to_string(), "").status, 200);
    }
    let proxy = gateway.proxy();
    let kept = keep(100, KEYS, move |_, method, path, key| send(proxy, method, path, key, "body"));
    assert!(kept.len() >= 80, "{}", kept.len());
    eventually("some are on their way", || origin.seen().len() > 25 + KEYS);
    drop(gateway);
    let before = origin.seen().len();
    assert!(before < 100, "it was to end in the middle: {before}");
    let gateway = with_data(&file, &data);
    let is_over = |id: &String| ["done", "dead"].contains(&status(&gateway, id)["state"].as_str().unwrap());
    eventually("all are over", || kept.keys().all(is_over));
    let unknown = judge(&kept, KEYS, &origin, |id| status(&gateway, id));
    assert_eq!(told(&admin(&gateway, "GET /later"))["dead"], unknown);
}

/// A gateway that is told to end finishes what is on its way and keeps the rest.
#[test]
fn a_restart_is_noticed_by_nobody() {
    let origin = Origin::start();
    let data = data();
    let file = file(origin.address, "", "ip", TEN);
    let mut gateway = Service::gateway(&file, &["--data", data.to_str().unwrap(), "--drain-delay", "0s"]);
    let all: Vec<String> = (0..20).map(|number| format!("/drip/1?{number}")).collect();
    for path in &all {
        post(gateway.proxy(), path);
    }
    for _ in 0..2 {
        let before = origin.seen().len();
        eventually("it goes on", || origin.seen().len() >= before + 3);
        gateway.signal("TERM");
        assert!(gateway.wait().success());
        assert!(origin.seen().len() < all.len());
        gateway = Service::gateway(&file, &["--data", data.to_str().unwrap(), "--drain-delay", "0s"]);
    }
    eventually("all arrived", || origin.seen().len() >= all.len());
    pause(Duration::from_millis(300));
    assert_eq!(paths(&origin), all, "each once, and in order");
    eventually("none is left", || told(&admin(&gateway, "GET /later"))["waiting"] == 0);
    assert_eq!(told(&admin(&gateway, "GET /later"))["dead"], 0);
}

/// A server that cannot be reached is waited for; that is no attempt.
#[test]
fn a_server_that_is_away_is_waited_for() {
    let port = free_port();
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let gateway = with_data(&file(address, "attempts: 1", "ip", TEN), &data());
    assert_eq!(post(gateway.proxy(), "/live").status, 502);
    let kept: Vec<String> = (0..3).map(|number| id(&post(gateway.proxy(), &format!("/{number}")))).collect();
    eventually("it was tried", || status(&gateway, &kept[0])["why"] == "the server cannot be reached: try again later");
    assert_eq!(status(&gateway, &kept[0])["attempts"], 0);
    assert_eq!(status(&gateway, &kept[2])["position"], 3);
    let origin = Origin::at(TcpListener::bind(address).unwrap());
    eventually("all are done", || kept.iter().all(|id| status(&gateway, id)["state"] == "done"));
    assert_eq!(paths(&origin), ["/0", "/1", "/2"]);
    assert_eq!(status(&gateway, &kept[0])["attempts"], 1);
}

/// What may wait for no longer is put aside.
#[test]
fn a_server_that_stays_away_is_given_up() {
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let gateway = with_data(&file(address, "give_up: 1s", "ip", TEN), &data());
    // Some are sent at once, and fail at once; on a busy machine the next one may be, too.
    let kept = (0..100).map(|_| post(gateway.proxy(), "/kept")).find(|answer| answer.status == 202);
    let kept = id(&kept.expect("two within a tenth of a second"));
    eventually("it is put aside", || status(&gateway, &kept)["state"] == "dead");
    let why = status(&gateway, &kept)["why"].as_str().unwrap().to_owned();
    assert!(why.ends_with("for all the time that it may wait"), "{why}");
}

/// Failures are repeated so often and no more; then people decide.
#[test]
fn what_fails_too_often_is_put_aside_for_people() {
    let origin = Origin::start();
    let gateway = with_data(&file(origin.address, "attempts: 2", "ip", TEN), &data());
    assert_eq!(post(gateway.proxy(), "/").status, 200);
    let bad = id(&post(gateway.proxy(), "/status/503"));
    let missing = id(&post(gateway.proxy(), "/status/404"));
    eventually("it is put aside", || status(&gateway, &bad)["state"] == "dead");
    let dead = status(&gateway, &bad);
    assert_eq!(
        (&dead["why"], &dead["attempts"]),
        (&"the server answered 503, at the last of 2 attempts".into(), &2.into())
    );
    // What is no failure of the server is an answer, and came after the one before it was put aside.
    eventually("the next one is done", || status(&gateway, &missing)["answer"]["status"] == 404);
    assert_eq!(paths(&origin), ["/", "/status/503", "/status/503", "/status/404"]);
    let listed = told(&admin(&gateway, "GET /later?state=dead"));
    assert_eq!((&listed["dead"], &listed["requests"][0]["id"]), (&1.into(), &bad.as_str().into()));
    assert_eq!(listed["requests"].as_array().unwrap().len(), 1);
    assert_eq!(admin(&gateway, &format!("POST /later/{missing}/again")).status, 409);
    assert_eq!(admin(&gateway, &format!("POST /later/{bad}/again")).status, 202);
    eventually("it is tried again", || seen(&origin)["/status/503"] == 4);
    eventually("and put aside again", || status(&gateway, &bad)["state"] == "dead");
    assert_eq!(admin(&gateway, &format!("DELETE /later/{bad}")).status, 204);
    assert_eq!(admin(&gateway, &format!("GET /later/{bad}")).status, 404);
    assert_eq!(admin(&gateway, &format!("DELETE /later/{bad}")).status, 404);
    let metrics = admin(&gateway, "GET /metrics").body;
    for line in [
        "tollgate_later_kept_total 2",
        "tollgate_later_ended_total{end=\"done\"} 1",
        "tollgate_later_ended_total{end=\"dead\"} 2",
        "tollgate_later_ended_total{end=\"removed\"} 1",
        "tollgate_later_sent_total{result=\"failed\"} 4",
        "tollgate_later_requests{state=\"dead\"} 0",
        "tollgate_later_bytes 0",
    ] {
        assert!(metrics.lines().any(|known| known == line), "{line} in {metrics}");
    }
}

/// Nobody knows whether a request was done whose connection was lost: it is sent again only where that does no harm.
#[test]
fn what_may_have_been_done_is_not_sent_again() {
    let origin = Origin::start();
    let file = format!(
        "routes:\n  - {{name: all, upstream: 'http://{0}'}}\n  - {{name: more, path: /gone/repeat, upstream: 'http://{0}', later: {{repeat: true, attempts: 2}}}}\n\
         rules:\n  - {{name: r, per: ip, limits: [{TEN}]}}\n",
        origin.address
    );
    let gateway = with_data(&file, &data());
    assert_eq!(post(gateway.proxy(), "/").status, 200);
    let once = id(&post(gateway.proxy(), "/gone"));
    let repeated = id(&post(gateway.proxy(), "/gone/repeat"));
    let put = id(&send(gateway.proxy(), "PUT", "/gone/put", "k", "body"));
    eventually("it is put aside", || status(&gateway, &once)["state"] == "dead");
    let why = status(&gateway, &once)["why"].as_str().unwrap().to_owned();
    assert!(why.starts_with("unknown whether it was done: the server closed the connection"), "{why}");
    eventually("the other is repeated", || status(&gateway, &repeated)["state"] == "dead");
    eventually("and so is a PUT", || seen(&origin).get("/gone/put") >= Some(&2));
    let times = seen(&origin);
    assert_eq!((times["/gone"], times["/gone/repeat"]), (1, 2));
    assert_eq!(admin(&gateway, &format!("GET /later/{put}")).status, 200);
}

/// How much is kept is bounded, and whoever does not fit is told.
#[test]
fn what_is_kept_is_bounded() {
    let origin = Origin::start();
    let file = format!(
        "routes:\n  - {{name: all, upstream: 'http://{}', later: {{most_waiting: 2, most_body: 10}}}}\n\
         rules:\n  - {{name: r, per: header.x-key, limits: [{ONE}]}}\n",
        origin.address
    );
    let data = data();
    let gateway = Service::gateway(&file, &["--data", data.to_str().unwrap(), "--later-requests", "3"]);
    let at = gateway.proxy();
    for key in ["a", "b", "c"] {
        assert_eq!(send(at, "GET", "/", key, "").status, 200);
    }
    let kept = id(&send(at, "POST", "/1", "a", "0123456789"));
    assert_eq!(send(at, "POST", "/2", "a", "").status, 202);
    let full = send(at, "POST", "/3", "a", "");
    assert_eq!(full.status, 429);
    assert!(full.body.contains("as many requests as may wait for it do"), "{}", full.body);
    assert!(full.header("retry-after").is_some_and(|seconds| seconds.parse::<u64>().unwrap() > 1_000));
    assert_eq!(send(at, "POST", "/4", "b", "").status, 202);
    let full = send(at, "POST", "/5", "c", "");
    assert_eq!(full.status, 429);
    assert!(full.body.contains("there is no room to keep it"), "{}", full.body);
    let large = send(at, "POST", "/6", "a", "01234567890");
    assert_eq!(large.status, 413);
    assert!(large.body.contains("could only be kept for later"), "{}", large.body);
    // Without a length it is found out on the way.
    let mut stream = TcpStream::connect(at).unwrap();
    let chunks = "8\r\n01234567\r\n8\r\n01234567\r\n0\r\n\r\n";
    write!(
        stream,
        "POST /7 HTTP/1.1\r\nHost: a\r\nX-Key: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    // What lasts cannot be done without its client.
    let upgrade = http(at, "GET /8 HTTP/1.1\nX-Key: a\nUpgrade: websocket\nConnection: Upgrade", "");
    assert_eq!(upgrade.status, 429);
    assert_eq!(http(at, "GET /9 HTTP/1.1\nX-Key: a\nAccept: text/event-stream", "").status, 429);
    // Who is let go makes room.
    assert_eq!(admin(&gateway, &format!("DELETE /later/{kept}")).status, 204);
    assert_eq!(send(at, "POST", "/10", "c", "").status, 202);
    assert_eq!(origin.seen().len(), 3);
    assert!(admin(&gateway, "GET /metrics").body.contains("tollgate_later_refused_total{why=\"full\"} 2\n"));
}

/// Answers can be asked for only so long; without a directory nothing outlives the process, and that is said.
#[test]
fn in_memory_it_is_kept_as_long_as_the_process_lives() {
    let origin = Origin::start();
    let gateway = Service::gateway(&file(origin.address, "keep: 1s", "ip", TEN), &[]);
    assert_eq!(post(gateway.proxy(), "/").status, 200);
    let answer = post(gateway.proxy(), "/bytes/5000");
    assert_eq!(told(&answer)["durable"], false);
    let kept = id(&answer);
    eventually("it is done", || status(&gateway, &kept)["state"] == "done");
    let answer = &status(&gateway, &kept)["answer"];
    assert_eq!((answer["body"].as_str().unwrap().len(), &answer["whole"]), (4 << 10, &false.into()));
    eventually("it is forgotten", || admin(&gateway, &format!("GET /later/{kept}")).status == 404);
    assert_eq!(told(&admin(&gateway, "GET /later"))["done"], 0);
}

/// What is lost with the memory it was kept in is told: at the start that it would be, at the end how much it is.
#[test]
fn what_is_lost_with_the_process_is_told() {
    let origin = Origin::start();
    let gateway = Service::gateway(&file(origin.address, "", "ip", ONE), &[]);
    eventually("it is told at the start", || gateway.log().contains("in memory only"));
    assert_eq!(post(gateway.proxy(), "/").status, 200);
    for _ in 0..3 {
        assert_eq!(post(gateway.proxy(), "/").status, 202);
    }
    gateway.signal("TERM");
    let log = gateway.last_words();
    let told: Vec<&str> = log.lines().filter(|line| line.contains("lost")).collect();
    assert!(told.len() == 1 && told[0].contains("\"requests\":3"), "{log}");

    let data = data();
    let gateway = with_data(&file(origin.address, "", "ip", ONE), &data);
    assert_eq!(post(gateway.proxy(), "/").status, 200);
    assert_eq!(post(gateway.proxy(), "/").status, 202);
    gateway.signal("TERM");
    let log = gateway.last_words();
    assert!(!log.contains("lost") && !log.contains("in memory only"), "{log}");
}

/// Rules that change are noticed by those who wait.
#[test]
fn who_waits_notices_new_rules() {
    let origin = Origin::start();
    let path = scratch("gateway.yaml");
    std::fs::write(&path, file(origin.address, "", "ip", ONE)).unwrap();
    let gateway = Service::gateway_with(&["--config", path.to_str().unwrap()]);
    assert_eq!(post(gateway.proxy(), "/0").status, 200);
    let kept: Vec<String> = (1..=3).map(|number| id(&post(gateway.proxy(), &format!("/{number}")))).collect();
    assert_eq!(status(&gateway, &kept[2])["position"], 3);
    assert_eq!(admin(&gateway, "POST /off").status, 200);
    eventually("all arrived", || origin.seen().len() == 4);
    assert_eq!(paths(&origin), ["/0", "/1", "/2", "/3"]);
    assert_eq!(admin(&gateway, "POST /on").status, 200);
    let kept = id(&post(gateway.proxy(), "/4"));
    std::fs::write(&path, file(origin.address, "", "ip", TEN)).unwrap();
    eventually("it arrived", || origin.seen().len() == 5);
    eventually("it is done", || status(&gateway, &kept)["state"] == "done");
}

/// An answer that does not end is one all the same: those behind it are not kept waiting for ever.
#[test]
fn an_answer_that_does_not_end_keeps_nobody_waiting() {
    let origin = Origin::start();
    let gateway = with_data(&file(origin.address, "", "ip", TEN), &data());
    assert_eq!(post(gateway.proxy(), "/live").status, 200);
    // It drips for a minute.
    let endless = id(&post(gateway.proxy(), "/drip/1200"));
    let next = id(&post(gateway.proxy(), "/next"));
    eventually("it is on its way", || origin.seen().len() == 2);
    assert_eq!(status(&gateway, &next)["state"], "waiting");
    pause(Duration::from_secs(5));
    eventually("the next is done", || status(&gateway, &next)["state"] == "done");
    let told = status(&gateway, &endless);
    assert_eq!((&told["state"], &told["attempts"]), (&"done".into(), &1.into()), "{told}");
}

/// What is on its way when the gateway is told to end is waited for, and known to be done.
#[test]
fn what_is_on_its_way_at_the_end_is_finished() {
    let origin = Origin::start();
    let (data, file) = (data(), file(origin.address, "", "ip", TEN));
    let gateway = Service::gateway(&file, &["--data", data.to_str().unwrap(), "--drain-delay", "0s"]);
    assert_eq!(post(gateway.proxy(), "/live").status, 200);
    let slow = id(&post(gateway.proxy(), "/work/4000"));
    eventually("it is on its way", || origin.seen().len() == 2);
    gateway.signal("TERM");
    assert!(gateway.wait().success());
    let gateway = with_data(&file, &data);
    assert_eq!(status(&gateway, &slow)["state"], "done");
    assert_eq!(seen(&origin)["/work/4000"], 1);
}

/// What was kept in a file that is none of ours is said, and nothing is begun without it.
#[test]
fn a_file_that_was_not_kept_here_is_refused() {
    for (name, text) in [("later.redb", "this is not a database"), ("objects.json", "{\"apis\": [")] {
        let data = data();
        std::fs::write(data.join(name), text).unwrap();
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_tollgate"));
        command.args(["gateway", "--proxy", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--data"]).arg(&data);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(name), "{name}: {said}");
        assert!(!said.contains("panicked"), "{said}");
        assert_eq!(std::fs::read_to_string(data.join(name)).unwrap(), text, "it is left as it was");
    }
}

/// A file with a limit on each shop, which keeps requests, and one on each client, which does not.
fn shops(upstream: SocketAddr, route: &str, shop: &str, client: &str) -> String {
    format!(
        "routes:\n  - {{name: all, upstream: 'http://{upstream}'{route}}}\n\
         rules:\n  - {{name: shop, per: header.x-shop, limits: [{shop}]}}\n  \
         - {{name: client, per: header.x-client, limits: [{client}]}}\n"
    )
}

fn order(at: SocketAddr, path: &str, shop: &str, client: &str) -> Answer {
    http(at, &format!("POST {path} HTTP/1.1\nX-Shop: {shop}\nX-Client: {client}"), "body")
}

/// [A9] A line is held up by its own limit only. Limits that do not keep requests are asked when one comes, whoever
/// waits already, and have been paid when it is kept.
#[test]
fn a9_who_has_spent_its_own_limit_holds_up_nobody() {
    let origin = Origin::start();
    let client = "{rate: 3/d, algorithm: token_bucket}";
    let gateway = with_data(&shops(origin.address, "", TEN, client), &data());
    let at = gateway.proxy();
    assert_eq!(order(at, "/0", "a", "greedy").status, 200);
    let mut kept: Vec<String> = (1..=2).map(|number| id(&order(at, &format!("/{number}"), "a", "greedy"))).collect();
    for _ in 0..5 {
        let answer = order(at, "/spent", "a", "greedy");
        assert_eq!(answer.status, 429, "{}", answer.body);
        assert_eq!(told(&answer)["rule"], "client", "{}", answer.body);
    }
    kept.extend((3..=5).map(|number| id(&order(at, &format!("/{number}"), "a", &number.to_string()))));
    eventually("all are done", || kept.iter().all(|id| status(&gateway, id)["state"] == "done"));
    assert_eq!(paths(&origin), ["/0", "/1", "/2", "/3", "/4", "/5"]);
    // What was kept was paid for when it came, and once.
    assert_eq!([order(at, "/6", "b", "3").status, order(at, "/7", "c", "3").status], [200, 200]);
    assert_eq!(order(at, "/8", "d", "3").status, 429);
}

/// Whoever finds no room is denied in the words of its route, with what there is to say about limits, and pays nothing.
#[test]
fn who_finds_no_room_is_denied_like_anybody_else() {
    let origin = Origin::start();
    let route =
        ", later: {most_waiting: 1, most_body: 10}, denied: {status: 503, body: 'come back', content_type: text/plain}";
    let client = "{rate: 4/d, algorithm: token_bucket}";
    let gateway = with_data(&shops(origin.address, route, ONE, client), &data());
    let at = gateway.proxy();
    assert_eq!(order(at, "/1", "a", "c").status, 200);
    assert_eq!(order(at, "/2", "a", "c").status, 202);
    for _ in 0..3 {
        let full = order(at, "/3", "a", "c");
        assert_eq!((full.status, &*full.body, full.header("content-type")), (503, "come back", Some("text/plain")));
        assert!(full.header("retry-after").is_some_and(|seconds| seconds.parse::<u64>().unwrap() > 1_000));
        assert!(full.header("ratelimit").is_some() || full.header("x-ratelimit-limit").is_some(), "{:?}", full.headers);
        // Nor does one that is too large to be kept.
        let large = http(at, "POST /4 HTTP/1.1\nX-Shop: a\nX-Client: c", "01234567890");
        assert_eq!(large.status, 413);
    }
    eventually("it is given back", || order(at, "/5", "b", "c").status == 200);
    pause(Duration::from_millis(100));
    assert_eq!([order(at, "/6", "c", "c").status, order(at, "/7", "d", "c").status], [200, 503]);
}

/// Who asks what became of requests without end is refused, and others are not.
#[test]
fn asking_what_became_of_requests_is_bounded() {
    let origin = Origin::start();
    let gateway = with_data(&file(origin.address, "", "ip", TEN), &data());
    let ask = |from: &str, times: usize| {
        let mut stream = TcpStream::connect(gateway.proxy()).unwrap();
        let head = format!("GET /.tollgate/later/{:032x} HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: {from}\r\n", 7);
        let (more, last) = (format!("{head}\r\n").repeat(times - 1), format!("{head}Connection: close\r\n\r\n"));
        // All at once, so that no time passes between them.
        let mut out = stream.try_clone().unwrap();
        let writing = std::thread::spawn(move || out.write_all(format!("{more}{last}").as_bytes()));
        let mut answers = String::new();
        stream.read_to_string(&mut answers).unwrap();
        writing.join().unwrap().unwrap();
        let count = |status: u16| answers.matches(&format!("HTTP/1.1 {status} ")).count();
        assert_eq!(answers.to_lowercase().matches("retry-after: 1\r\n").count(), count(429));
        (count(404), count(429))
    };
    let (answered, refused) = ask("192.0.2.1", 40_000);
    assert!(answered >= 10_000 && refused > 0 && answered + refused == 40_000, "{answered} and {refused}");
    assert_eq!(ask("192.0.2.2", 10), (10, 0));
    assert_eq!(post(gateway.proxy(), "/").status, 200);
}

/// While the disk is full nothing is kept that could be lost, and its client is told; when there is room again all goes
/// on, with what was kept before.
#[test]
fn a_disk_that_is_full_loses_nothing() {
    let origin = Origin::start();
    let (data, path) = (data(), scratch("gateway.yaml"));
    std::fs::write(&path, file(origin.address, "", "header.x-key", ONE)).unwrap();
    let arguments = ["--config", path.to_str().unwrap(), "--data", data.to_str().unwrap()];
    // A file that may not grow is an error, and not the end.
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_tollgate")]);
    let gateway = Service::gateway_by(shell, &arguments);
    let body = "x".repeat(500_000);
    let keep = |number: usize| send(gateway.proxy(), "POST", &format!("/{number}"), "k", &body).status;
    let limit = |most: &str| {
        let mut command = std::process::Command::new("prlimit");
        command.args(["--pid", &gateway.id().to_string(), &format!("--fsize={most}:unlimited")]);
        assert!(command.status().unwrap().success());
    };
    assert_eq!([keep(0), keep(1)], [200, 202]);
    let size = std::fs::metadata(data.join("later.redb")).unwrap().len();
    // No file may grow any more: what does not fit into this one fails.
    limit(&size.to_string());
    let mut kept = 1;
    eventually("it is full", || match keep(2) {
        202 => {
            kept += 1;
            false
        }
        status => {
            assert_eq!(status, 503);
            true
        }
    });
    assert_eq!(keep(3), 503);
    let waiting = || told(&admin(&gateway, "GET /later"))["waiting"].clone();
    assert_eq!(waiting(), kept);
    limit("unlimited");
    eventually("there is room again", || keep(4) == 202);
    assert_eq!(waiting(), kept + 1);
    drop(gateway);
    let gateway = Service::gateway_with(&arguments);
    assert_eq!(told(&admin(&gateway, "GET /later"))["waiting"], kept + 1, "all that was promised, and nothing else");
}
