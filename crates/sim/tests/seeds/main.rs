//! The figures and worked examples of the source documents, as transcripts.
//!
//! Each test plays one example against [`tollgate_core::Limit`] in virtual time and names the requirement it proves. A
//! transcript is a table of rows: when, at what cost, and what is to become of it.

#![allow(clippy::expect_used, clippy::panic, reason = "a test that cannot be set up has failed")]

mod accuracy;
mod bursts;
mod changes;
mod fixed_window;
mod leaky_bucket;
mod policy;
mod reserve_and_pace;
mod sliding_counter;
mod sliding_log;
mod stacked;
mod token_bucket;
mod transcript;
