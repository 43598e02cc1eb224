//! The vocabulary and the exact arithmetic of rate limiting.
//!
//! The inside of tollgate is a pure function: a [`Limit`], the [`State`] of a key, a cost and an instant go in; an
//! [`Outcome`] and a new state come out. No clock is read here, no memory shared, nothing fails: [`Limit::new`]
//! refuses what does not work, and after that every question has an answer.
//!
//! ```
//! use tollgate_core::{Ask, Limit, Rate, State, Timestamp, TokenBucket};
//!
//! let limit = Limit::new(TokenBucket::new(Rate::per_second(5)).burst(10))?;
//! let mut state = State::default();
//! let now = Timestamp::from_secs(1_700_000_000);
//! for _ in 0..10 {
//!     assert!(limit.apply(&mut state, &Ask::spend(1, now)).allowed);
//! }
//! let denied = limit.apply(&mut state, &Ask::spend(1, now));
//! assert!(denied.denied());
//! assert_eq!(denied.retry_after.map(|wait| wait.as_micros()), Some(200_000));
//! # Ok::<(), tollgate_core::LimitError>(())
//! ```
//!
//! All integers stay below 2^53 and all fractions are kept as fractions, so that the same arithmetic can run inside
//! a Redis script and give the same answers to the bit.

mod algorithm;
mod calendar;
mod error;
mod key;
mod limit;
pub mod lua;
mod outcome;
mod rate;
mod share;
mod spec;
mod state;
mod time;

pub use calendar::{Calendar, CalendarUnit, Zone};
pub use error::LimitError;
pub use key::{Key, mix, stable_hash};
pub use limit::{Ask, Intent, Limit, Step};
pub use outcome::Outcome;
pub use rate::Rate;
pub use spec::{
    Algorithm, Concurrency, FixedWindow, LeakyBucket, LeakyForm, MAX_LOG, MAX_SUB_WINDOWS, Pacing, Refill, Rounding,
    SlidingCounter, SlidingLog, Soft, TokenBucket, Window,
};
pub use state::{Ahead, Cell, Change, Edit, Extra, Mark, MarkEdit, State};
pub use time::{MAX_INTEGER, Micros, Timestamp};
