//! Everything that is stored is found, wherever in a Cluster it lives.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "real servers take real time")]
#![allow(clippy::print_stdout, reason = "what was measured is shown")]

mod support;

use std::collections::HashSet;

use support::runtime;
use tollgate::{Charge, Clock as _, FixedWindow, Intent, Key, Limit, Micros, SlidingLog, Store as _, SystemClock};
use tollgate_redis::link::{RedisLink, Settings};
use tollgate_redis::{RedisStore, Stored, Visitor, counted_by, inspect, script, visiting_script};
use tollgate_sim::redis::{Cluster, eventually};

#[test]
fn a_visitor_finds_all_keys_of_a_cluster_and_no_others() {
    let _alone = support::alone();
    let cluster = Cluster::start(&[]);
    let store = RedisStore::new(connect(&cluster, script::source()));
    let limit = Limit::new(FixedWindow::new(5, Micros::HOUR)).unwrap();
    let names: HashSet<Vec<u8>> = (0..200).map(|number| format!("user {number}").into_bytes()).collect();
    let runtime = runtime();
    for name in &names {
        let values: &[&[u8]] = &[name];
        let charge = [Charge::new(Key::new(7, values), &limit)];
        assert!(runtime.block_on(store.apply(&charge, Intent::Spend, SystemClock::new().now())).unwrap()[0].allowed);
    }
    for server in &cluster.servers[..3] {
        // Somebody else's, on whichever server has its slot.
        server.cli(&["SET", "tg1:{foreign", "x"]);
    }
    drop(store);
    let visitor = Visitor::new(connect(&cluster, visiting_script()));
    let keys = runtime.block_on(visitor.keys(10_000, |_| true)).unwrap();
    let found = keys.iter().map(|key| counted_by(key).unwrap().1[0].to_vec());
    assert_eq!(found.collect::<HashSet<_>>(), names);
    assert_eq!(keys.len(), 200);
    for key in &keys {
        let Stored::Value(value, Some(kept)) = runtime.block_on(visitor.read(key)).unwrap() else { panic!("{key:?}") };
        assert!(!value.is_empty() && kept <= 3_600_001, "{kept}");
    }
    assert_eq!(runtime.block_on(visitor.keys(7, |_| true)).unwrap().len(), 7);
    let is_user_5 = |key: &[u8]| counted_by(key).unwrap().1[0] == b"user 5";
    assert_eq!(runtime.block_on(visitor.keys(7, is_user_5)).unwrap().len(), 1);
}

#[test]
fn a_long_log_lives_at_one_place_of_a_cluster_and_is_told_as_one() {
    let _alone = support::alone();
    let cluster = Cluster::start(&[]);
    let store = RedisStore::new(connect(&cluster, script::source()));
    let log = Limit::new(SlidingLog::new(1_000, Micros::HOUR)).unwrap();
    let window = Limit::new(FixedWindow::new(1_000, Micros::HOUR)).unwrap();
    let runtime = runtime();
    for name in [b"alice", b"carol", b"david"] {
        let values: &[&[u8]] = &[name];
        let charges = [Charge::new(Key::new(7, values), &log), Charge::new(Key::new(8, values), &window)];
        // One after the other: those of one call are of one microsecond, and share a mark.
        for _ in 0..300 {
            let outcomes = runtime.block_on(store.apply(&charges, Intent::Spend, SystemClock::new().now())).unwrap();
            assert!(outcomes.iter().all(|outcome| outcome.allowed));
        }
        let left = runtime.block_on(store.apply(&charges, Intent::Peek, SystemClock::new().now())).unwrap();
        assert_eq!((left[0].remaining, left[1].remaining), (700, 700));
    }
    drop(store);
    let visitor = Visitor::new(connect(&cluster, visiting_script()));
    let keys = runtime.block_on(visitor.keys(100, |key| counted_by(key).unwrap().0 == 7)).unwrap();
    assert_eq!(keys.len(), 3, "what they keep besides is not told by itself");
    for key in keys {
        let Stored::Value(value, Some(_)) = runtime.block_on(visitor.read(&key)).unwrap() else { panic!("{key:?}") };
        let text = inspect(&key, Some(&value));
        let mut beside = key.clone();
        beside[9] = b'+';
        let Stored::Value(marks, Some(_)) = runtime.block_on(visitor.read(&beside)).unwrap() else { panic!("{text}") };
        assert!(text.contains(&format!("and {} marks between these", marks.len() / 16)), "{text}");
        assert!(inspect(&beside, Some(&marks)).ends_with(" more\n"));
    }
}

fn connect(cluster: &Cluster, script: &str) -> RedisLink {
    let settings = Settings { deadline: support::ms(2_000), ..Settings::default() };
    let link = RedisLink::open(cluster.url().parse().unwrap(), script, settings).unwrap();
    eventually("it is connected", || link.is_serving());
    link
}
