//! Links to a server by its name: lookups that fail, hang, or say something else keep nobody waiting, and what they say
//! is followed.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "real servers take real time")]
#![allow(clippy::print_stdout, reason = "what was measured is shown")]

mod support;

use std::time::Duration;

use support::{Load, answered_again, ask, in_time, ms, open_with, quantile, runtime, sleep, timely, tolerance};
use tollgate_redis::link::{RedisLink, Resolver, Settings, Why};
use tollgate_sim::redis::{Meaning, Name, RedisServer, eventually, free_port, look_up, scratch};

fn settings() -> Settings {
    Settings { deadline: ms(2_000), resolver: Resolver::new(|host, _| look_up(host)), ..Settings::default() }
}

fn link(name: &Name) -> RedisLink {
    open_with(&name.url(), settings())
}

fn why(link: &RedisLink) -> String {
    link.health().first().map(|health| health.why.to_string()).unwrap_or_default()
}

#[test]
fn a_name_that_is_unknown_at_first_is_told_of_and_followed_when_it_is_known() {
    let _alone = support::alone();
    let server = RedisServer::start(&[]);
    let name = Name::new(Meaning::Unknown);
    let link = link(&name);
    eventually("it is told", || why(&link).contains("nobody knows that name"));
    let error = runtime().block_on(ask(&link, 0)).expect_err("there is no address");
    assert!(matches!(error.why, Why::Resting(_)), "{error}");
    name.set(Meaning::Address(server.address()));
    answered_again(&link, 0);
}

#[test]
fn a_lookup_that_hangs_is_waited_for_by_nobody_who_asks_and_is_asked_for_once() {
    let _alone = support::alone();
    in_time(|| {
        let server = RedisServer::start(&[]);
        let name = Name::new(Meaning::Silence);
        let link = link(&name);
        let load = Load::start(&link, 1_000, 4);
        sleep(ms(1_000));
        assert!(why(&link).contains("not looked up in time"), "{}", why(&link));
        let asked = load.finish();
        let all: Vec<_> = asked.iter().collect();
        assert!(all.len() > 500 && asked.iter().all(|asked| asked.result.is_err()), "{}", all.len());
        assert_eq!(name.asked(), 1, "one is enough");
        timely(quantile(&all, 990) < tolerance(), &format!("99 of 100 in {:?}", quantile(&all, 990)));
        name.set(Meaning::Address(server.address()));
        answered_again(&link, 0);
        assert_eq!(name.asked(), 1, "what it said in the end is used");
    });
}

#[test]
fn an_address_that_is_known_is_used_while_lookups_fail_or_hang() {
    let _alone = support::alone();
    in_time(|| {
        let password = scratch().join("password");
        std::fs::write(&password, "secret").expect("a file can be written");
        let mut server = RedisServer::start(&["--requirepass", "secret"]);
        let name = Name::new(Meaning::Address(server.address()));
        // Files are read all the same: they do not wait behind lookups.
        let link = open_with(&format!("{}?password_file={}", name.url(), password.display()), settings());
        answered_again(&link, 0);
        for (what, meaning) in [("unknown", Meaning::Unknown), ("silent", Meaning::Silence)] {
            name.set(meaning);
            server.kill();
            eventually("it is gone", || !link.is_serving());
            // Long enough for several attempts.
            sleep(ms(700));
            server.restart();
            let again = answered_again(&link, 0);
            println!("{what}: answered again after {again:?}");
            timely(again < ms(250) + tolerance(), &format!("{what}: {again:?}"));
        }
    });
}

#[test]
fn a_name_that_leads_to_another_server_is_followed() {
    let _alone = support::alone();
    in_time(|| {
        let (mut first, mut second) = (RedisServer::start(&[]), RedisServer::absent(free_port(), &[]));
        let name = Name::new(Meaning::Address(first.address()));
        let link = link(&name);
        answered_again(&link, 0);
        second.restart();
        name.set(Meaning::Address(second.address()));
        assert_eq!(
            runtime().block_on(ask(&link, 0)).expect("an answer"),
            2,
            "as long as there is a connection, it is used"
        );
        first.kill();
        let again = answered_again(&link, 0);
        println!("answered by another after {again:?}");
        timely(again < ms(250) + tolerance(), &format!("{again:?}"));
        assert_eq!(second.cli(&["GET", &support::key(0)]), "1");
    });
}

/// A name that stands for the primary leads to another one now, and the one that was it says that it is none any more.
#[test]
fn whoever_is_told_that_this_is_a_replica_follows_the_name() {
    let _alone = support::alone();
    let (first, second) = (RedisServer::start(&[]), RedisServer::start(&[]));
    let name = Name::new(Meaning::Address(first.address()));
    let link = link(&name);
    answered_again(&link, 0);
    first.cli(&["REPLICAOF", "127.0.0.1", &second.port().to_string()]);
    eventually("it is a replica", || first.cli(&["INFO", "replication"]).contains("master_link_status:up"));
    name.set(Meaning::Address(second.address()));
    assert_eq!(runtime().block_on(ask(&link, 0)).expect("the primary answers"), 1, "it has nothing of the first");
    assert_eq!(second.cli(&["GET", &support::key(0)]), "1", "once");
}

/// Of several addresses, one at which nobody answers stands before no other.
#[test]
fn a_name_with_an_address_that_is_silent_leads_to_the_others() {
    let _alone = support::alone();
    let silent = RedisServer::start(&["--tcp-backlog", "1"]);
    silent.pause();
    // As many connections as it keeps; whoever comes then hears nothing at all.
    let mut kept = Vec::new();
    while let Ok(stream) = std::net::TcpStream::connect_timeout(&silent.address(), ms(300)) {
        kept.push(stream);
        assert!(kept.len() < 100, "it keeps them all");
    }
    let server = RedisServer::start(&[]);
    let addresses = vec![silent.address(), silent.address(), server.address()];
    let resolver = Resolver::new(move |_, _| Ok(addresses.clone()));
    let link = open_with("redis://redis.example", Settings { resolver, ..settings() });
    answered_again(&link, 0);
    assert_eq!(server.cli(&["GET", &support::key(0)]), "1");
    assert_eq!(link.health()[0].count("connect_failed"), 0, "the first attempt leads there");
    silent.resume();
}

/// A lookup that takes longer than it is waited for, each time, is of use all the same.
#[test]
fn a_lookup_that_always_takes_long_is_followed() {
    let _alone = support::alone();
    let (mut first, second) = (RedisServer::start(&[]), RedisServer::start(&[]));
    let name = Name::new(Meaning::Address(first.address()));
    let slowly = |host: &str, _: u16| {
        std::thread::sleep(Duration::from_millis(150));
        look_up(host)
    };
    let link = open_with(&name.url(), Settings { resolver: Resolver::new(slowly), ..settings() });
    answered_again(&link, 0);
    name.set(Meaning::Address(second.address()));
    first.kill();
    answered_again(&link, 0);
    assert_eq!(second.cli(&["GET", &support::key(0)]), "1");
}
