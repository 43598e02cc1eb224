//! The laws of rate limiting, as checks of one random history each.
//!
//! Every law is a function from a kind of limit and some bytes to nothing, or to a transcript of how it was broken. The
//! bytes make all choices ([`Source`]), so the same laws serve property tests, fuzzers and seeded runs. What a limit
//! must answer in full is the [oracle](crate::oracle)'s affair; the other laws need no model and hold for themselves.

pub mod bounds;
pub mod changes;
pub mod clocks;
pub mod edges;
pub mod limits;
pub mod source;
pub mod steps;
pub mod trace;

pub use limits::{Kind, Scale};
pub use source::Source;
pub use trace::{Course, Trace};

/// Kept, or how it was broken.
pub type Kept = Result<(), String>;

/// A check of one random history of a limit of this kind.
pub type Law = fn(Kind, &[u8]) -> Kept;
