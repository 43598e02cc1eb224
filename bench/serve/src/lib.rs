//! The service measured beside others that do less, by `scripts/bench serve`.
//!
//! Servers are processes on one core, the load is this process on another, and both are the same for everybody.

pub mod behind;
mod contest;
pub mod load;
pub mod messages;
mod metronome;
pub mod paced;
pub mod parts;
pub mod process;
pub mod report;
mod rules;
pub mod speakers;
