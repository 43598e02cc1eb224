//! The memory store keeps the contract of a store.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use tollgate::MemoryStore;

tollgate_sim::conformance_tests! {
    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    given_time: || async { MemoryStore::new() }
}
