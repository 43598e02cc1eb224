//! Why a request got no answer from a server.

use std::sync::Arc;
use std::{fmt, io};

use crate::server::Server;

/// Why a request got no answer.
#[derive(Debug)]
pub enum ForwardError {
    /// No server of the group may be asked at the moment.
    NoServer,
    /// No connection came about.
    Connect(io::Error),
    /// The connection ended before there was an answer.
    Broken(io::Error),
    /// What came back is no answer.
    Nonsense(&'static str),
    /// Nothing came back in time.
    Late,
    /// The request ended before it was whole: its sender gave up.
    Unsent,
    /// The rest of the request did not come in time.
    Stalled,
}

impl ForwardError {
    /// 502, 503 or 504; 408 where the sender stalled; 400 where it gave up, and does not read it.
    pub fn status(&self) -> http::StatusCode {
        match self {
            Self::NoServer => http::StatusCode::SERVICE_UNAVAILABLE,
            Self::Connect(error) if is_late(error) => http::StatusCode::GATEWAY_TIMEOUT,
            Self::Connect(_) | Self::Broken(_) | Self::Nonsense(_) => http::StatusCode::BAD_GATEWAY,
            Self::Late => http::StatusCode::GATEWAY_TIMEOUT,
            Self::Unsent => http::StatusCode::BAD_REQUEST,
            Self::Stalled => http::StatusCode::REQUEST_TIMEOUT,
        }
    }

    /// Whether a server may have seen the request. If not, sending it again is sending it for the first time.
    pub fn may_have_been_seen(&self) -> bool {
        !matches!(self, Self::NoServer | Self::Connect(_))
    }

    /// For the body of an answer: what happened, and nothing about where.
    pub fn told(&self) -> &'static str {
        match self {
            Self::NoServer => "no server is available for this request: try again later",
            Self::Connect(error) if is_late(error) => "the server did not answer in time",
            Self::Connect(_) => "the server cannot be reached: try again later",
            Self::Broken(_) => "the server closed the connection before it answered",
            Self::Nonsense(_) => "the server's answer cannot be understood",
            Self::Late => "the server did not answer in time",
            Self::Unsent => "the request ended before it was whole",
            Self::Stalled => "the rest of the request did not come in time: send it at once",
        }
    }
}

/// Whether a connection took too long to come about.
fn is_late(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::TimedOut
}

impl fmt::Display for ForwardError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoServer => f.write_str("the health checks of all servers fail"),
            Self::Connect(error) => write!(f, "it cannot be reached: {error}"),
            Self::Broken(error) => write!(f, "it closed the connection before it answered: {error}"),
            Self::Nonsense(why) => write!(f, "its answer cannot be understood: {why}"),
            Self::Late => f.write_str("it did not answer in time"),
            Self::Unsent | Self::Stalled => f.write_str(self.told()),
        }
    }
}

impl std::error::Error for ForwardError {}

/// Why a request got no answer, and from whom: for those who run the servers, not for clients.
#[derive(Debug)]
pub struct Failure {
    /// Why.
    pub why: ForwardError,
    /// The last server that was asked, if any was.
    pub server: Option<Arc<Server>>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.server {
            Some(server) => write!(f, "{}: {}", server.address(), self.why),
            None => self.why.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_never_sent_is_told_from_what_may_have_been_seen() {
        let late = || io::Error::from(io::ErrorKind::TimedOut);
        for (error, status, may_have_been_seen) in [
            (ForwardError::NoServer, 503, false),
            (ForwardError::Connect(io::ErrorKind::ConnectionRefused.into()), 502, false),
            (ForwardError::Connect(late()), 504, false),
            (ForwardError::Broken(late()), 502, true),
            (ForwardError::Nonsense("no"), 502, true),
            (ForwardError::Late, 504, true),
            (ForwardError::Stalled, 408, true),
        ] {
            assert_eq!((error.status().as_u16(), error.may_have_been_seen()), (status, may_have_been_seen), "{error}");
        }
    }
}
