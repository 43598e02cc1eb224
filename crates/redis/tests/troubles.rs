//! What is told of answers that are none, of values that are somebody else's, and of servers that are not asked for
//! another reason than at first.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "real servers take real time")]

mod support;

use std::convert::Infallible;
use std::sync::Mutex;

use support::{logged, ms, patient, runtime, sleep};
use tollgate::{Charge, FixedWindow, Intent, Key, Limit, Micros, ReservationId, Settlement, Store as _, Timestamp};
use tollgate_redis::link::{RedisLink, Settings};
use tollgate_redis::{Link, RedisError, RedisStore, Reply, Request, script};
use tollgate_sim::redis::{RedisServer, eventually};

/// Answers the same to everything.
struct Parrot(Mutex<Vec<u8>>);

impl Link for Parrot {
    type Error = Infallible;

    async fn call(&self, _: Request) -> Result<Reply, Infallible> {
        Ok(self.0.lock().expect("a lock").clone().into())
    }

    fn send(&self, _: Request) {}

    fn one_tag_per_call(&self) -> bool {
        false
    }
}

const NOW: Timestamp = Timestamp::from_secs(1_790_000_000);

#[test]
fn answers_that_are_none_are_counted_and_told_once() {
    let _alone = support::alone();
    let limit = Limit::new(FixedWindow::new(9, Micros::HOUR)).expect("a limit");
    let values: [&[u8]; 1] = [b"canary"];
    let charge = Charge::new(Key::new(0xabcd_0001, &values), &limit);
    let store = RedisStore::new(Parrot(Mutex::new(b"nonsense".to_vec())));
    let runtime = runtime();
    for _ in 0..3 {
        let said = runtime.block_on(store.apply(&[charge], Intent::Spend, NOW));
        assert!(matches!(said, Err(RedisError::Reply { .. })), "{said:?}");
    }
    // The script says that it failed.
    *store.link().0.lock().expect("a lock") = [&[2][..], &7_f64.to_le_bytes(), b"user_script:1: oh"].concat();
    for _ in 0..2 {
        let said = runtime.block_on(store.apply_each(&[charge], Intent::Spend, NOW));
        assert!(matches!(said, Err(RedisError::Script { .. })), "{said:?}");
        assert!(runtime.block_on(store.settle(ReservationId(1), Settlement::Cancel, NOW)).is_err());
    }
    assert_eq!(store.bad_answers(), [("unreadable", 3), ("failed", 4)]);
    let told = logged("abcd0001");
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[0].contains("not an answer of tollgate's script"), "{told:?}");
    assert!(told[1].contains("user_script:1: oh"), "{told:?}");
    assert!(logged("canary").is_empty(), "nothing that clients say");
}

#[test]
fn values_of_others_are_told_of_once() {
    let _alone = support::alone();
    let server = RedisServer::start(&[]);
    let settings = Settings { deadline: ms(2_000), ..Settings::default() };
    let address = format!("redis://{}", server.address()).parse().expect("an address");
    let link = RedisLink::open(address, script::source(), settings).expect("a thread can be started");
    eventually("the link is connected", || link.is_serving());
    let store = RedisStore::new(link);
    let limit = Limit::new(FixedWindow::new(9, Micros::HOUR)).expect("a limit");
    let values: [&[u8]; 1] = [b"canary"];
    let charge = Charge::new(Key::new(0xabcd_0002, &values), &limit);
    let runtime = runtime();
    for times in 1..=3 {
        assert!(runtime.block_on(store.apply(&[charge], Intent::Spend, NOW)).is_ok());
        assert_eq!(store.foreign_values(), times - 1);
        let vandal =
            "for _, key in ipairs(redis.call('KEYS', '*')) do redis.call('SET', key, 'what is this?') end return 1";
        assert_eq!(server.cli(&["EVAL", vandal, "0"]), "1");
        assert!(runtime.block_on(store.apply(&[charge], Intent::Spend, NOW)).is_ok());
        assert_eq!(store.foreign_values(), times);
    }
    let told = logged("abcd0002");
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("who else uses keys"), "{told:?}");
    assert!(logged("canary").is_empty(), "nothing that clients say");
}

#[test]
fn another_reason_for_not_asking_is_told_too() {
    let _alone = support::alone();
    let mut server = RedisServer::start(&[]);
    let url = format!("redis://{}", server.address());
    let link = patient(&url);
    server.kill();
    eventually("it is not asked", || !link.is_serving());
    let server = RedisServer::start_on(server.port(), &["--requirepass", "another"]);
    eventually("that it wants a password is told", || !logged("Redis is still not asked").is_empty());
    let told = logged("Redis is still not asked");
    assert!(told.iter().any(|line| line.contains("NOAUTH")), "{told:?}");
    // Once, however often it is tried.
    sleep(ms(1_500));
    assert_eq!(logged("Redis is still not asked").iter().filter(|line| line.contains("NOAUTH")).count(), 1);
    drop((link, server));
}
