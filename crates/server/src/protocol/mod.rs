//! The ways to ask. Each only translates: bytes to a check, a verdict to bytes.

pub(crate) mod answered;
pub(crate) mod body;
pub(crate) mod bounds;
mod budget;
mod calm;
pub(crate) mod departure;
pub(crate) mod envoy;
pub(crate) mod http;
pub(crate) mod http1;
pub(crate) mod hyper_connection;
mod patient;
pub(crate) mod percent;
pub(crate) mod resp;
mod rewound;
pub(crate) mod snippet;
mod taken;
