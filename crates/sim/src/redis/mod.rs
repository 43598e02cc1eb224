//! Real Redis servers for tests, as processes on free ports that end with what started them: one, a primary with
//! replicas and Sentinels, a Cluster; a proxy that does to connections what networks do; and names that lead where a
//! test wants them to.
//!
//! `redis-server` and `redis-cli` have to be installed; whatever goes wrong here is a panic, since it is a test that
//! wants it.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "real processes take real time")]

mod cluster;
mod names;
mod proxy;
mod sentinel;
mod server;

use std::time::{Duration, Instant};

pub use cluster::Cluster;
pub use names::{Meaning, Name, look_up};
pub use proxy::{Fault, FaultProxy};
pub use sentinel::Replicated;
pub use server::{RedisServer, free_port, program, scratch};

/// Waits until `condition` holds, for as long as a busy machine may need, and says how long it took.
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) -> Duration {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < Duration::from_secs(20), "{what} does not happen");
        std::thread::sleep(Duration::from_millis(2));
    }
    begun.elapsed()
}
