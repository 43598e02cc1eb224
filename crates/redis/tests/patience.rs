//! How long decisions of several questions wait, through a network that is slow or silent: not for each question, but
//! longer for many.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "real servers take real time")]

mod support;

use std::time::{Duration, Instant};

use support::{in_time, ms, runtime, timely};
use tollgate::{
    Charge, Check, FixedWindow, Intent, Key, Limit, MemoryStore, Micros, RuleSet, Shelter, Store as _, Timestamp,
    Tollgate, join_all,
};
use tollgate_redis::link::{RedisLink, Settings};
use tollgate_redis::{RedisStore, at_once, script};
use tollgate_sim::redis::{Fault, FaultProxy, RedisServer, eventually};

const RULES: &str = "domain: d\nrules:\n- {name: real, per: user, limits: 5/s}\n\
                     - {name: trial, per: user, limits: 9/s, mode: shadow}\n- {name: other, limits: 9/s, mode: shadow}\n";

/// A server, a network before it, and a store that waits for `deadline`.
fn slow(deadline: Duration) -> (RedisServer, FaultProxy, RedisStore<RedisLink>) {
    let server = RedisServer::start(&[]);
    let proxy = FaultProxy::start(server.address());
    let address = format!("redis://{}", proxy.address()).parse().expect("an address");
    let settings = Settings { deadline, ..Settings::default() };
    let link = RedisLink::open(address, script::source(), settings).expect("a thread can be started");
    eventually("the link is connected", || link.is_serving());
    (server, proxy, RedisStore::new(link))
}

#[test]
fn shadows_wait_no_longer_than_what_they_watch() {
    let _alone = support::alone();
    in_time(|| {
        let deadline = ms(400);
        let (_server, proxy, store) = slow(deadline);
        let gate = Tollgate::new(RuleSet::from_yaml(RULES).expect("rules"), Shelter::new(store, MemoryStore::new()));
        let runtime = runtime();
        let check = || {
            let begun = Instant::now();
            let verdict = runtime.block_on(gate.check(&Check::attributes("d", &[("user", "alice")])));
            let alone: Vec<_> = verdict.expect("an answer").tolls.iter().map(|toll| toll.outcome.alone).collect();
            (alone, begun.elapsed())
        };
        let (alone, _) = check();
        timely(alone == [false; 3], &format!("{alone:?} while all is well"));
        let count = |name: &str| gate.engine().store().shared().link().health()[0].count(name);
        // One answer comes in time, and two after one another do not.
        proxy.set(Fault::Delay { by: ms(250), jitter: ms(0) });
        let (alone, took) = check();
        assert_eq!(alone[1..], [true; 2], "there was no time to ask about them");
        timely(!alone[0] && took <= deadline + ms(50), &format!("{alone:?} after {took:?}"));
        assert_eq!(count("opened"), 0, "who asks late says nothing against the server");
        eventually("all late answers are there", || count("late") >= 2);
        // No answer at all: nothing more is asked.
        proxy.set(Fault::Blackhole);
        let before = (count("requests"), count("deadline"));
        let (alone, took) = check();
        assert_eq!(alone, [true; 3]);
        assert_eq!((count("requests"), count("deadline")), (before.0 + 1, before.1 + 1));
        timely(took <= deadline + ms(50), &format!("{took:?}"));
    });
}

#[test]
fn many_that_are_asked_at_once_wait_for_as_long_as_all_need() {
    let _alone = support::alone();
    in_time(|| {
        // The deadline that servers have by default, and a network that is slower than it.
        let (_server, proxy, store) = slow(Settings::default().deadline);
        let limit = Limit::new(FixedWindow::new(1_000, Micros::HOUR)).expect("a limit");
        let names: Vec<[u8; 2]> = (0..500_u16).map(u16::to_le_bytes).collect();
        let values: Vec<[&[u8]; 1]> = names.iter().map(|name| [&name[..]]).collect();
        let charges: Vec<Charge<'_>> = values.iter().map(|values| Charge::new(Key::new(1, values), &limit)).collect();
        let now = Timestamp::from_secs(1_790_000_000);
        let runtime = runtime();
        proxy.set(Fault::Delay { by: ms(7), jitter: ms(0) });
        let one = runtime.block_on(store.apply(&charges[..1], Intent::Spend, now));
        timely(one.is_err(), &format!("one is not waited for: {one:?}"));
        let each = charges.iter().map(|charge| store.apply(std::slice::from_ref(charge), Intent::Spend, now));
        let answered = runtime.block_on(at_once(charges.len(), join_all(each)));
        let answered = answered.iter().filter(|answer| answer.is_ok()).count();
        timely(answered == 500, &format!("{answered} of 500 were answered"));
        let batch = runtime.block_on(store.apply_each(&charges, Intent::Spend, now));
        timely(batch.is_ok(), &format!("a batch: {:?}", batch.map(|outcomes| outcomes.len())));
    });
}
