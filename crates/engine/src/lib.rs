//! Exact, fast and small rate limiting in process.

pub use tollgate_core as core;
