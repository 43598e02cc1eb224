//! Stores for chaos: the one that is used, and how it is asked about itself.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::time::Duration;

use tollgate::{Denials, Store};
use tollgate_redis::link::{RedisLink, Resolver, Settings, Unavailable};
use tollgate_redis::{RedisError, RedisStore, script};
use tollgate_sim::chaos::{Maker, NodeClock};

/// Makes what tollgate uses.
pub(crate) struct Plain;

/// A store over a link of its own, with a script.
pub(crate) fn open(url: &str, deadline: Duration, script: &str) -> RedisStore<RedisLink> {
    let resolver = Resolver::new(|host, _| tollgate_sim::redis::look_up(host));
    let settings = Settings { deadline, resolver, ..Settings::default() };
    RedisStore::new(
        RedisLink::open(url.parse().expect("an address"), script, settings).expect("a thread can be started"),
    )
}

/// Whether what failed may have been carried out.
pub(crate) fn may_have_run(error: &RedisError<Unavailable>) -> bool {
    match error {
        RedisError::Link(error) => error.may_have_run(),
        RedisError::Reply { .. } | RedisError::Script { .. } => true,
        RedisError::TooManyCharges { .. } => false,
    }
}

impl Maker for Plain {
    type Store = RedisStore<RedisLink>;
    type Front<S: Store + 'static> = Denials<S, NodeClock>;

    fn front<S: Store + 'static>(&self, store: S, clock: NodeClock) -> Self::Front<S> {
        Denials::with_clock(store, clock)
    }

    fn open(&self, url: &str, _: u16, deadline: Duration) -> Self::Store {
        open(url, deadline, script::source())
    }

    fn is_serving(&self, store: &Self::Store) -> bool {
        store.link().is_serving()
    }

    fn may_have_run(&self, error: &<Self::Store as Store>::Error) -> bool {
        may_have_run(error)
    }
}
