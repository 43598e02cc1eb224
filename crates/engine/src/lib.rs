//! Rate limiting in process: exact, fast, small.
//!
//! The simple case is one line, and nobody can misread it:
//!
//! ```
//! use tollgate::Limiter;
//!
//! let limiter = Limiter::requests_per_second(5).burst(10).build()?;
//!
//! let outcome = limiter.check("user-42");
//! assert!(outcome.allowed);
//! assert_eq!(outcome.remaining, 9);
//! # Ok::<(), tollgate::LimitError>(())
//! ```
//!
//! Every other case is an [`Engine`]: any number of limits of any [`Algorithm`], several on one request (all pass or
//! none is charged), reservations, refunds, waiting in line. This one stacks two limits on a user:
//!
//! ```
//! use tollgate::{Charge, Engine, Key, Limit, MemoryStore, Micros, Rate, SlidingCounter, TokenBucket};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
//! let per_second = Limit::new(TokenBucket::new(Rate::per_second(5)))?;
//! let per_hour = Limit::new(SlidingCounter::new(100_000, Micros::HOUR))?;
//! let engine = Engine::new(MemoryStore::new());
//!
//! let user: [&[u8]; 1] = [b"user-42"];
//! let decision = engine
//!     .decide(&[Charge::new(Key::new(1, &user), &per_second), Charge::new(Key::new(2, &user), &per_hour)])
//!     .await?;
//! assert!(decision.allowed);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! States live in a [`Store`]; time comes from a [`Clock`], which in tests is a [`ManualClock`].

mod ahead;
mod charge;
mod clock;
mod denials;
mod engine;
mod held;
mod join;
mod limiter;
mod memory;
mod plan;
mod presence;
mod shelter;
mod store;
mod sync;
mod tollgate;
mod verdict;
mod wait;

/// The words and the arithmetic underneath, for those who build on them.
pub use tollgate_core as core;
pub use tollgate_core::{
    Algorithm, Calendar, CalendarUnit, Concurrency, FixedWindow, Intent, Key, LeakyBucket, LeakyForm, Limit,
    LimitError, Micros, Outcome, Pacing, Rate, Refill, Rounding, SlidingCounter, SlidingLog, Soft, Timestamp,
    TokenBucket, Window, Zone,
};
/// The rule language, for those who read files and report on them.
pub use tollgate_rules as rules;

pub use charge::{Charge, Decision, Outcomes};
pub use clock::{Clock, ManualClock, SystemClock};
pub use denials::Denials;
pub use engine::Engine;
#[doc(hidden)]
pub use join::join_all;
pub use limiter::{Limiter, LimiterBuilder};
pub use memory::{Approach, MemoryStore, SnapshotError};
pub use presence::Presence;
pub use shelter::Shelter;
pub use store::{ReservationId, Settled, Settlement, Store};
pub use tollgate::Tollgate;
pub use tollgate_rules::{Attribute, Check, Descriptor, Part, RuleSet, UnknownZone, zone};
pub use verdict::{DescriptorStatus, StatusKind, Toll, Verdict};
pub use wait::Queueing;
