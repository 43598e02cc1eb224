//! Judges rate limiters: a naive oracle, workloads, virtual time and the conformance suite for stores.
