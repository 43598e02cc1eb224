//! Requests that are done later, kept in a real Redis by several gateways: one of them sends, and another goes on where
//! it ends.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "gateway/kept.rs"]
mod kept;
#[path = "gateway/origin.rs"]
mod origin;
mod support;

use std::collections::HashMap;
use std::time::Duration;

use kept::{judge, keep, told};
use origin::Origin;
use serde_json::Value;
use support::{Answer, Service, eventually, http};
use tollgate_sim::redis::{Fault, FaultProxy, RedisServer};

const KEYS: usize = 10;
/// One at once and then one a second: two that follow each other on a busy machine are not both let through.
const SLOW: &str = "{rate: 1/s, burst: 1, algorithm: token_bucket, on_limit: enqueue}";

/// The name that a request was given that was kept.
fn id(answer: &Answer) -> String {
    assert_eq!(answer.status, 202, "{}", answer.body);
    told(answer)["id"].as_str().unwrap().to_owned()
}

fn file(origin: &Origin, later: &str, limit: &str) -> String {
    format!(
        "routes:\n  - {{name: all, upstream: 'http://{}', later: {{{later}}}}}\n\
         rules:\n  - {{name: r, per: header.x-key, limits: [{limit}]}}\n",
        origin.address
    )
}

/// A gateway that shares `redis`. A busy machine may keep a decision waiting for longer than is usual.
fn gateway(file: &str, redis: &RedisServer) -> Service {
    let url = format!("redis://{}", redis.address());
    Service::gateway(file, &["--store", &url, "--store-deadline", "2s", "--store-servers", "2", "--drain-delay", "0s"])
}

fn send(gateway: &Service, method: &str, path: &str, key: usize) -> Answer {
    http(gateway.proxy(), &format!("{method} {path} HTTP/1.1\nX-Key: {key}"), "body")
}

fn status(gateway: &Service, id: &str) -> Value {
    told(&http(gateway.proxy(), &format!("GET /.tollgate/later/{id} HTTP/1.1"), ""))
}

fn admin(gateway: &Service, line: &str) -> Answer {
    http(gateway.admin(), &format!("{line} HTTP/1.1"), "")
}

/// Who sends, by its name.
fn turn(redis: &RedisServer) -> String {
    redis.cli(&["GET", "tgl1:{000}:turn"]).trim().to_owned()
}

fn paths(origin: &Origin) -> Vec<String> {
    origin.seen().iter().map(|seen| seen.line.split(' ').nth(1).unwrap().to_owned()).collect()
}

/// [D9] Of two gateways the one is killed that sends: the other goes on, nothing is lost, and nothing is sent twice
/// that was answered.
#[test]
fn d9_another_gateway_goes_on_where_one_was_killed() {
    let origin = Origin::start();
    let redis = RedisServer::start(&[]);
    let file = file(&origin, "", "{rate: 4/s, burst: 1, algorithm: token_bucket, on_limit: enqueue}");
    let first = gateway(&file, &redis);
    eventually("the first has the turn", || !turn(&redis).is_empty());
    let second = gateway(&file, &redis);
    let one = turn(&redis);
    for key in 0..KEYS {
        assert_eq!(send(&first, "GET", &format!("/first/{key}"), key).status, 200);
    }
    let through = [first.proxy(), second.proxy()];
    let kept = keep(80, KEYS, move |number, method, path, key| {
        let at = through[usize::from(number % 3 > 0)];
        http(at, &format!("{method} {path} HTTP/1.1\nX-Key: {key}"), "body")
    });
    assert!(kept.len() >= 60, "{}", kept.len());
    eventually("some are on their way", || origin.seen().len() > 20 + KEYS);
    assert_eq!(turn(&redis), one, "the one that was first sends");
    drop(first);
    let before = origin.seen().len();
    assert!(before < kept.len(), "it was to end in the middle: {before}");
    eventually("the other has the turn", || ![one.as_str(), ""].contains(&&*turn(&redis)));
    let is_over = |id: &String| ["done", "dead"].contains(&status(&second, id)["state"].as_str().unwrap());
    eventually("all are over", || kept.keys().all(is_over));
    let unknown = judge(&kept, KEYS, &origin, |id| status(&second, id));
    let listed = told(&admin(&second, "GET /later"));
    assert_eq!((&listed["waiting"], &listed["dead"]), (&0.into(), &unknown.into()));
}

/// All gateways end, and what they kept is done by the next.
#[test]
fn what_was_kept_outlives_all_gateways() {
    let origin = Origin::start();
    let redis = RedisServer::start(&[]);
    let slow = file(&origin, "", "{rate: 1/d, algorithm: token_bucket, on_limit: enqueue}");
    let first = gateway(&slow, &redis);
    let second = gateway(&slow, &redis);
    assert_eq!(send(&first, "POST", "/0", 1).status, 200);
    let answers: Vec<Answer> =
        (1..=3).map(|number| send([&first, &second][number % 2], "POST", &format!("/{number}"), 1)).collect();
    let places: Vec<Value> = answers.iter().map(|answer| told(answer)["position"].clone()).collect();
    assert_eq!(places, [1, 2, 3]);
    let id = told(&answers[0])["id"].as_str().unwrap().to_owned();
    for gateway in [&first, &second] {
        assert_eq!(status(gateway, &id)["state"], "waiting");
        assert_eq!(told(&admin(gateway, "GET /later"))["waiting"], 3);
    }
    // Somebody else is counted apart.
    assert_eq!(send(&second, "POST", "/other", 2).status, 200);
    first.signal("TERM");
    assert!(first.wait().success());
    drop(second);
    let fast = file(&origin, "", "{rate: 20/s, burst: 1, algorithm: token_bucket, on_limit: enqueue}");
    let third = gateway(&fast, &redis);
    eventually("all arrived", || origin.seen().len() == 5);
    assert_eq!(paths(&origin), ["/0", "/other", "/1", "/2", "/3"]);
    eventually("it is done", || status(&third, &id)["state"] == "done");
    eventually("nothing is left", || redis.cli(&["GET", "tgl1:{000}:bytes"]).trim() == "0");
    assert_eq!(redis.cli(&["HLEN", "tgl1:{000}:lines"]).trim(), "0");
}

/// What was put aside is everybody's to see, to remove and to have tried again; there is no room for more than was
/// said.
#[test]
fn every_gateway_can_look_after_what_was_put_aside() {
    let origin = Origin::start();
    let redis = RedisServer::start(&[]);
    let later = "attempts: 1, most_waiting: 2";
    let file = file(&origin, later, "{rate: 10/s, burst: 1, algorithm: token_bucket, on_limit: enqueue}");
    let (first, second) = (gateway(&file, &redis), gateway(&file, &redis));
    assert_eq!(send(&first, "POST", "/", 1).status, 200);
    let answer = send(&first, "POST", "/status/500", 1);
    let id = told(&answer)["id"].as_str().unwrap().to_owned();
    eventually("it is put aside", || status(&second, &id)["state"] == "dead");
    for gateway in [&first, &second] {
        let listed = told(&admin(gateway, "GET /later?state=dead"));
        assert_eq!((&listed["dead"], &listed["requests"][0]["id"]), (&1.into(), &id.as_str().into()));
    }
    let tried = |times: usize| paths(&origin).iter().filter(|path| *path == "/status/500").count() == times;
    assert_eq!(admin(&second, &format!("POST /later/{id}/again")).status, 202);
    eventually("it is tried again", || tried(2) && status(&first, &id)["state"] == "dead");
    assert_eq!(admin(&first, &format!("POST /later/{id}/again")).status, 202);
    eventually("and again", || tried(3) && status(&first, &id)["state"] == "dead");
    assert_eq!(admin(&first, &format!("DELETE /later/{id}")).status, 204);
    for gateway in [&first, &second] {
        assert_eq!(admin(gateway, &format!("GET /later/{id}")).status, 404);
    }
    assert_eq!(redis.cli(&["GET", "tgl1:{000}:bytes"]).trim(), "0");
    let statuses: Vec<u16> = (0..12).map(|number| send(&second, "POST", &format!("/{number}"), 7).status).collect();
    assert!(statuses.contains(&429) && statuses.contains(&202), "{statuses:?}");
}

/// A gateway that stood still for so long that another took over begins with nothing when it goes on.
#[test]
fn a_gateway_that_stood_still_sends_nothing_twice() {
    let origin = Origin::start();
    let redis = RedisServer::start(&[]);
    let file = file(&origin, "", "{rate: 4/s, burst: 1, algorithm: token_bucket, on_limit: enqueue}");
    let first = gateway(&file, &redis);
    eventually("the first has the turn", || !turn(&redis).is_empty());
    let (second, one) = (gateway(&file, &redis), turn(&redis));
    let mut kept = Vec::new();
    for key in 0..KEYS {
        assert_eq!(send(&second, "GET", &format!("/first/{key}"), key).status, 200);
    }
    for number in 0..150 {
        // The server takes longer than the limit, so that two who send would send the same.
        let path = format!("/drip/8?{number}");
        let answer = send(&second, "POST", &path, number % KEYS);
        if answer.status == 202 {
            kept.push((told(&answer)["id"].as_str().unwrap().to_owned(), path));
        }
    }
    eventually("some arrived", || origin.seen().len() > 30 + KEYS);
    first.signal("STOP");
    eventually("the other has the turn", || ![one.as_str(), ""].contains(&&*turn(&redis)));
    let before = origin.seen().len();
    eventually("the other sends", || origin.seen().len() > before + 10);
    first.signal("CONT");
    let is_over =
        |(id, _): &(String, String)| ["done", "dead"].contains(&status(&second, id)["state"].as_str().unwrap());
    eventually("half of them are over", || kept.iter().filter(|one| is_over(one)).count() > kept.len() / 2);
    eventually("all are over", || kept.iter().all(is_over));
    let mut times: HashMap<String, usize> = HashMap::new();
    for path in paths(&origin) {
        *times.entry(path).or_default() += 1;
    }
    let twice: Vec<_> = times.iter().filter(|(_, times)| **times > 1).collect();
    assert!(twice.is_empty(), "{twice:?}");
    for (id, path) in &kept {
        let told = status(&second, id);
        assert!(times.contains_key(path) || told["state"] == "dead", "{path}: {told}");
    }
}

/// What was written down while nobody could be told so is taken back: its client was refused, and comes again.
#[test]
fn a_request_that_was_refused_is_not_done_all_the_same() {
    let origin = Origin::start();
    let redis = RedisServer::start(&[]);
    let proxy = FaultProxy::start(redis.address());
    let url = format!("redis://{}", proxy.address());
    let file = file(&origin, "", "{rate: 1/d, algorithm: token_bucket, on_limit: enqueue}");
    let args = ["--store", &url, "--store-deadline", "1s", "--store-servers", "1"];
    let gateway = Service::gateway(&file, &args);
    eventually("it has the turn", || !turn(&redis).is_empty());
    assert_eq!(send(&gateway, "POST", "/0", 1).status, 200);
    assert_eq!(send(&gateway, "POST", "/1", 1).status, 202);
    let waiting = || redis.cli(&["XLEN", "tgl1:{000}:order"]).trim().to_owned();
    assert_eq!(waiting(), "1");
    // Redis hears everything, and nobody hears Redis.
    proxy.set(Fault::Delay { by: Duration::from_secs(60), jitter: Duration::ZERO });
    let refused = send(&gateway, "POST", "/2", 1);
    assert_eq!(refused.status, 503, "{}", refused.body);
    assert_eq!(waiting(), "2", "it was written down all the same");
    proxy.set(Fault::None);
    proxy.drop_connections();
    eventually("it is taken back", || waiting() == "1");
}

/// What others have written into the stream, or a later version, hides nothing that stands behind it.
#[test]
fn what_cannot_be_read_hides_nothing() {
    let origin = Origin::start();
    let redis = RedisServer::start(&[]);
    for number in 0..250 {
        let id = format!("{number:032x}");
        redis.cli(&["XADD", "tgl1:{000}:order", "*", "id", &id]);
        redis.cli(&["HSET", &format!("tgl1:{{000}}:e:{id}"), "s", "\u{2}what?", "k", "w", "l", "line", "b", "0"]);
    }
    let gateway = gateway(&file(&origin, "", SLOW), &redis);
    // On a busy machine more than one may pass before the limit is reached.
    let mut answers = (0..9).map(|number| send(&gateway, "POST", &format!("/{number}"), 1));
    let passed = answers.by_ref().take_while(|answer| answer.status == 200).count();
    let kept: Vec<String> = answers.by_ref().take(2).map(|answer| id(&answer)).collect();
    eventually("they are done", || kept.iter().all(|id| status(&gateway, id)["state"] == "done"));
    assert_eq!(paths(&origin), (0..passed + 3).map(|number| format!("/{number}")).collect::<Vec<_>>());
    assert_eq!(redis.cli(&["XLEN", "tgl1:{000}:order"]).trim(), "250", "it stays where it is");
}

/// [D9] Redis is killed and comes back with what it has written down: all that was promised is done, once.
#[test]
fn d9_what_was_kept_survives_a_restart_of_redis() {
    let origin = Origin::start();
    let mut redis = RedisServer::start(&["--appendonly", "yes", "--appendfsync", "always"]);
    let file = file(&origin, "", "{rate: 2/s, burst: 1, algorithm: token_bucket, on_limit: enqueue}");
    let gateway = gateway(&file, &redis);
    assert_eq!(send(&gateway, "POST", "/0", 1).status, 200);
    let answers: Vec<Answer> = (1..=8).map(|number| send(&gateway, "POST", &format!("/{number}"), 1)).collect();
    // A busy machine may be so slow that some need not be kept.
    let kept: Vec<String> = answers.iter().filter(|answer| answer.status != 200).map(id).collect();
    eventually("some are done", || origin.seen().len() >= 3);
    redis.kill();
    let before = origin.seen().len();
    assert!(before < 9, "it was to end in the middle: {before}");
    redis.restart();
    let is_over = |id: &String| ["done", "dead"].contains(&status(&gateway, id)["state"].as_str().unwrap_or_default());
    eventually("all are over", || kept.iter().all(is_over));
    let unknown = kept.iter().filter(|id| status(&gateway, id)["state"] == "dead").count();
    assert!(unknown <= 1, "at most the one that was on its way");
    let mut once = paths(&origin);
    assert!(once.is_sorted(), "in order: {once:?}");
    once.dedup();
    assert_eq!(once.len(), origin.seen().len(), "none twice: {:?}", paths(&origin));
    assert!(once.len() + unknown >= 9 && once.len() <= 9, "{once:?}");
}
