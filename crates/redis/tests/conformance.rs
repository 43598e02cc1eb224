//! The contract of stores, on a real redis-server, at the time that is given: equal to the microsecond.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "server/mod.rs"]
mod server;

use server::Server;
use tollgate_redis::script;

/// A server, and stores on it that decide at given times.
struct OnRedis {
    server: Server,
    script: String,
}

impl OnRedis {
    /// Nothing expires.
    fn lasting() -> Self {
        Self { server: Server::start(), script: script::given_time_source().to_owned() }
    }

    /// Whatever is over at a given time is gone.
    fn expiring() -> Self {
        Self { server: Server::start(), script: server::expiring(script::given_time_source()) }
    }
}

impl tollgate_sim::conformance::Maker for OnRedis {
    type Store = tollgate_redis::RedisStore<server::PlainLink>;

    async fn make(&self) -> Self::Store {
        self.server.store(&self.script, self.server.empty_database(), 2)
    }
}

mod lasting {
    use super::OnRedis;

    tollgate_sim::conformance_tests! {
        #[tokio::test(flavor = "multi_thread")] given_time: OnRedis::lasting()
    }
}

mod expiring {
    use super::OnRedis;

    tollgate_sim::conformance_tests! {
        #[tokio::test(flavor = "multi_thread")] given_time: OnRedis::expiring()
    }
}
