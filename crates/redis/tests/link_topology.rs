//! Links through Sentinel and to a Cluster: failovers, a primary that comes back, slots that move.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "real servers take real time")]
#![allow(clippy::print_stdout, reason = "what was measured is shown")]

mod support;

use std::collections::HashSet;
use std::time::{Duration, Instant};

use support::{
    Load, answered_again, ask, between, in_time, kinds, longest_tolerance, ms, open, opened_with, patient, quantile,
    runtime, sleep, timely, tolerance,
};
use tollgate_redis::link::{RedisLink, Settings, Standing, Unavailable, Why, Word};
use tollgate_redis::{Link as _, Request, Tag};
use tollgate_sim::redis::{Cluster, Replicated, eventually};

/// Longer than usual: the six servers of a Cluster share the processors with the test.
const DEADLINE: Duration = ms(50);

fn at(link: &RedisLink) -> String {
    link.health().first().map(|health| health.server.to_string()).unwrap_or_default()
}

#[test]
fn sentinel_says_who_is_the_primary_and_one_that_comes_back_is_not_believed() {
    let _alone = support::alone();
    in_time(|| {
        let replicated = Replicated::start(&[]);
        let link = opened_with(&replicated.url(), Settings { deadline: DEADLINE, ..Settings::default() });
        let first = replicated.primary_port(0).expect("a primary");
        assert_eq!(at(&link), format!("127.0.0.1:{first}"));
        let load = Load::start(&link, 1_000, 4);
        sleep(ms(200));
        let paused = Instant::now();
        replicated.server(first).expect("it").pause();
        eventually("another is promoted", || {
            (0..3).any(|sentinel| replicated.primary_port(sentinel).is_some_and(|port| port != first))
        });
        let promoted = Instant::now();
        let again = answered_again(&link, 0);
        println!("promoted after {:?}, answered again {again:?} after that", promoted - paused);
        assert_ne!(at(&link), format!("127.0.0.1:{first}"));
        // The old one wakes up and believes that it is the primary, for up to ten seconds.
        let old = replicated.server(first).expect("it");
        old.resume();
        sleep(ms(700));
        let woken = old_count(old);
        let asked = load.finish();
        timely(again < ms(300) + longest_tolerance(), &format!("answered again after {again:?}"));
        let outage = between(&asked, paused, ms(0), promoted - paused);
        println!("outage: {} p99 {:?} max {:?}", kinds(&outage), quantile(&outage, 990), quantile(&outage, 1000));
        assert!(quantile(&outage, 500) <= DEADLINE + tolerance(), "{:?}", quantile(&outage, 500));
        timely(quantile(&outage, 990) <= DEADLINE + tolerance(), "late");
        // What was in its sockets when it was stopped is all that it may still have carried out.
        let before = |asked: &&support::Asked| asked.begun < promoted;
        let answered = asked.iter().filter(|asked| asked.begun < paused && asked.result.is_ok()).count() as u64;
        let unknown =
            asked.iter().filter(before).filter(|asked| asked.result.as_ref().is_err_and(Unavailable::may_have_run));
        let unknown = unknown.count() as u64;
        println!("the old one carried out {woken}, answered {answered} and left {unknown} open");
        assert!((answered..=answered + unknown).contains(&woken), "{answered} + {unknown}: {woken}");
        timely(woken - answered <= 100, &format!("it carried out {} that nobody knows of", woken - answered));
        assert!(link.is_serving());
        assert!(!support::logged("min-replicas-to-write is 0").is_empty(), "the risk is told of");
        // Sentinels that are gone take nothing with them.
        let Replicated { servers, mut sentinels } = replicated;
        sentinels.iter_mut().for_each(|sentinel| sentinel.kill());
        sleep(ms(300));
        assert!(runtime().block_on(ask(&link, 0)).is_ok());
        drop(servers);
    });
}

fn old_count(server: &tollgate_sim::redis::RedisServer) -> u64 {
    // While it is stopped it cannot be asked.
    let keys = (0..4).map(support::key).collect::<Vec<_>>();
    let mut command = std::process::Command::new("timeout");
    command.args(["0.3", "redis-cli", "-p", &server.port().to_string(), "MGET"]).args(keys);
    let said = command.output().expect("redis-cli");
    String::from_utf8_lossy(&said.stdout).lines().filter_map(|line| line.trim().parse::<u64>().ok()).sum()
}

#[test]
fn a_sentinel_that_wants_a_password_or_does_not_know_the_name_is_told_of() {
    let _alone = support::alone();
    let link = open("redis+sentinel://127.0.0.1:1/main");
    let error = runtime().block_on(ask(&link, 0)).expect_err("nobody is there");
    assert_eq!(error.kind(), "homeless");
    assert!(error.to_string().contains("main of Sentinels 127.0.0.1:1"), "{error}");
}

#[test]
fn a_cluster_is_asked_by_slot_and_survives_migration() {
    let _alone = support::alone();
    let cluster = Cluster::start(&[]);
    let link = patient(&cluster.url());
    let runtime = runtime();
    for tag in 0..200 {
        assert_eq!(runtime.block_on(ask(&link, tag)).expect("an answer"), 1);
    }
    let asked_of: HashSet<_> = link
        .health()
        .iter()
        .filter(|health| health.count("answered") > 0)
        .map(|health| health.server.to_string())
        .collect();
    assert_eq!(asked_of.len(), 3, "all primaries are asked");
    assert_eq!(link.health().len(), 6, "there is a connection to each");
    let moved: u64 = link.health().iter().map(|health| health.count("redirected")).sum();
    assert_eq!(moved, 0, "nobody is sent on");

    // A slot moves, with its key, under load.
    let tag = 17;
    let slot: u16 = cluster.servers[0].cli(&["CLUSTER", "KEYSLOT", &support::key(tag)]).parse().expect("a slot");
    let owner = usize::from(slot / 5461).min(2);
    let to = (owner + 1) % 3;
    let load = Load::start(&link, 500, 200);
    cluster.migrate(slot, owner, to, || sleep(ms(50)));
    sleep(ms(100));
    let asked = load.finish();
    let all: Vec<_> = asked.iter().collect();
    println!("migration: {}", kinds(&all));
    assert!(asked.iter().all(|asked| asked.result.is_ok()), "{}", kinds(&all));
    let before = runtime.block_on(ask(&link, tag)).expect("an answer");
    assert_eq!(runtime.block_on(ask(&link, tag)).expect("an answer"), before + 1);
    // Half way, with the key gone already: the old owner says ASK.
    cluster.migrate(slot, to, owner, || {
        let source = &cluster.servers[to];
        let port = cluster.servers[owner].port().to_string();
        source.cli(&["MIGRATE", "127.0.0.1", &port, &support::key(tag), "0", "1000"]);
        assert_eq!(runtime.block_on(ask(&link, tag)).expect("an answer"), before + 2);
    });

    // Two keys, of which one is gone already: nobody has both, and that is said within the deadline.
    let hasty = opened_with(&cluster.url(), Settings { deadline: DEADLINE, ..Settings::default() });
    cluster.migrate(slot, owner, to, || {
        let second = format!("{}b", support::key(tag));
        cluster.servers[owner].cli(&["SET", &second, "1"]);
        let port = cluster.servers[to].port().to_string();
        cluster.servers[owner].cli(&["MIGRATE", "127.0.0.1", &port, &second, "0", "1000"]);
        let key = support::key(tag);
        in_time(|| {
            let begun = Instant::now();
            let request = Request::new(Tag::new(tag), [key.as_bytes(), second.as_bytes()], b"x", false);
            let error = runtime.block_on(hasty.call(request)).expect_err("nobody has both");
            let took = begun.elapsed();
            let is_said = matches!(&error.why, Why::Refused(refusal) if refusal.word == Word::TryAgain);
            timely(is_said && took <= DEADLINE + ms(1), &format!("{error} after {took:?}"));
            assert!(!is_said || !error.may_have_run(), "{error}");
        });
    });
}

/// Only the keys of the primary that dies are without an answer, until its replica is promoted.
#[test]
fn a_primary_of_a_cluster_dies_and_another_is_asked() {
    let _alone = support::alone();
    in_time(|| {
        let mut cluster = Cluster::start(&[]);
        let runtime = runtime();
        let victim = 0;
        let link = opened_with(&cluster.url(), Settings { deadline: DEADLINE, ..Settings::default() });
        let load = Load::start(&link, 1_000, 200);
        sleep(ms(100));
        let killed = Instant::now();
        let port = cluster.servers[victim].port();
        cluster.servers[victim].kill();
        let other = &cluster.servers[1];
        eventually("the replica is promoted", || {
            let nodes = other.cli(&["CLUSTER", "NODES"]);
            let owner = nodes.lines().find(|line| line.contains("master") && line.contains(" 0-"));
            owner.is_some_and(|line| !line.contains(&format!(":{port}@")))
                && other.cli(&["CLUSTER", "INFO"]).contains("cluster_state:ok")
        });
        let promoted = Instant::now();
        let again =
            eventually("all are answered again", || (0..200).all(|tag| runtime.block_on(ask(&link, tag)).is_ok()));
        println!("promoted after {:?}, answered again {again:?} after that", promoted - killed);
        let asked = load.finish();
        let outage = between(&asked, killed, ms(0), promoted - killed);
        println!("outage: {} p99 {:?} max {:?}", kinds(&outage), quantile(&outage, 990), quantile(&outage, 1000));
        timely(again < ms(300) + longest_tolerance(), &format!("answered again after {again:?}"));
        assert!(quantile(&outage, 500) <= DEADLINE + tolerance(), "{:?}", quantile(&outage, 500));
        timely(quantile(&outage, 990) <= DEADLINE + tolerance(), "late");
        let gone =
            link.health().into_iter().find(|health| health.server.ends_with(&format!(":{port}"))).expect("it is known");
        assert_eq!(gone.standing, Standing::Resting);
    });
}
