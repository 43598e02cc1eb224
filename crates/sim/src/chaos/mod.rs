//! Faults of Redis, and what limits are worth meanwhile.
//!
//! Nodes that share limits through a real Redis decide under a load that comes at fixed times whatever happens
//! ([`Session`]), while something is done to Redis or its network ([`rows`]). Every decision and every fault is
//! recorded ([`History`]), and a checker that knows nothing of how it came about says whether it was right ([`judge`]):
//! never more admitted, in any stretch of time, than the limit and what the faults excuse; nobody denied without a
//! reason; nothing charged twice; nothing kept for ever.
//!
//! What is tested is whatever a [`Maker`] makes: the store itself, or one with a flaw, to see that it is found.

mod checker;
mod drive;
mod node;
mod record;
mod report;
pub mod rows;
mod session;
mod shim;
mod times;
mod workload;

pub use checker::{Findings, Kind, Misses, Recovery, judge};
pub use node::{Maker, NodeClock};
pub use record::{Act, Counter, Excuse, Fault, History, Layout, Moment, Record, Shared};
pub use report::{Judged, Verdict, details, json, line, table};
pub use session::Session;
pub use shim::ClockShim;
pub use times::{Goal, Lateness, Met, Times};
pub use workload::{Plan, Workload};
