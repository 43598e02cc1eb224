//! One file per command: its arguments, its help, and what it does.

pub(crate) mod attempt;
pub(crate) mod check;
pub(crate) mod completions;
pub(crate) mod inspect;
mod line;
pub(crate) mod load;
pub(crate) mod nftables;
pub(crate) mod schema;
mod summary;
