//! Decisions by rules: Lyft's dialect as envoyproxy/ratelimit decides, tollgate's own as it should be.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "rules/asking.rs"]
mod asking;
#[path = "rules/lyft.rs"]
mod lyft;
#[path = "rules/own.rs"]
mod own;
#[path = "rules/reload.rs"]
mod reload;
