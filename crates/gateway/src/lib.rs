//! The proxy of tollgate: requests on to groups of servers, and their answers back.
//!
//! It speaks HTTP/1.1 to them, by itself: the connection that a request goes out on belongs to the body of its answer,
//! so that no task, no channel and no lock stands between the two sockets. What it deliberately is not: it knows no
//! limits, no rules and no listener; requests come to it read. Invariants: a request is sent twice only where it cannot
//! have been seen, or where its method says that twice is as good as once; it is framed anew, in one way; an answer
//! that is not clearly framed is refused, never repaired; headers that concern one hop end with it.

mod connect;
mod connection;
mod error;
mod exchange;
mod framing;
mod fuzz;
mod group;
mod head;
mod health;
mod hop;
mod lines;
mod name;
mod outgoing;
mod room;
mod route;
mod server;
mod spare;
mod tunnel;

pub use connect::{Trust, probe};
pub use error::{Failure, ForwardError};
pub use exchange::Answer;
pub use fuzz::{any_answer, any_path};
pub use group::{Group, Limits, is_idempotent};
pub use head::{Head, Onward};
pub use health::HealthCheck;
pub use hop::upgrade_of;
pub use lines::Lines;
pub use outgoing::Outgoing;
pub use room::Room;
pub use route::{Found, Route, Routes, Wanted, normal_path, open_path};
pub use server::Server;
pub use spare::{recycle, spare_headers};
pub use tunnel::{Tunnel, tunnel};
