//! Limits shared through Redis or Valkey.
//!
//! One script decides inside Redis, by Redis's clock, with the arithmetic of [`tollgate_core`]. `RedisStore` is the
//! [`tollgate::Store`] on top of it; whatever carries its requests there and back is a [`Link`].

mod call;
pub mod script;

pub use call::{Link, Reply, Request, TAGS, Tag};
