//! The contract of stores, on a real redis-server, at the time that is given: equal to the microsecond.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "server/mod.rs"]
mod server;

use server::Server;
use tollgate_redis::script;

/// A server, and stores on it that decide at given times.
struct OnRedis(Server);

impl tollgate_sim::conformance::Maker for OnRedis {
    type Store = tollgate_redis::RedisStore<server::PlainLink>;

    async fn make(&self) -> Self::Store {
        self.0.store(script::given_time_source(), self.0.empty_database(), 2)
    }
}

tollgate_sim::conformance_tests! {
    #[tokio::test(flavor = "multi_thread")] given_time: OnRedis(Server::start())
}
