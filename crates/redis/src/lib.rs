//! Limits shared through Redis or Valkey.
//!
//! One script decides inside Redis, by Redis's clock, with the arithmetic of [`tollgate_core`]. [`RedisStore`] is the
//! [`tollgate::Store`] on top of it; whatever carries its requests there and back is a [`Link`].

mod apart;
mod call;
mod error;
mod inspect;
mod keys;
pub mod link;
pub mod script;
mod store;
mod troubles;
mod visit;

pub use call::{Link, Reply, Request, TAGS, Tag, at_once};
pub use error::RedisError;
pub use inspect::inspect;
pub use store::RedisStore;
pub use visit::{Stored, Visitor, counted_by, visiting_script};
