//! Judges rate limiters: a naive oracle, workloads, virtual time and the conformance suite for stores.

pub mod chaos;
pub mod conformance;
pub mod fuzz;
pub mod laws;
pub mod misjudgement;
pub mod oracle;
pub mod redis;
pub mod rules;
pub mod workload;
