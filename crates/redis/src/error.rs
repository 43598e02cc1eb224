//! What can go wrong with shared limits.

use std::fmt;

/// Why a store in Redis has no answer. A denial is an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RedisError<L> {
    /// The request was not carried there, or the reply not back.
    Link(L),
    /// What came back is no answer to what was asked.
    Reply {
        /// What is wrong with it.
        why: &'static str,
    },
    /// The script could not answer.
    Script {
        /// What it said, cut short.
        said: String,
    },
    /// More charges than one request can have.
    TooManyCharges {
        /// How many.
        count: usize,
    },
}

impl<L: fmt::Display> fmt::Display for RedisError<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Link(error) => error.fmt(f),
            Self::Reply { why } => {
                write!(
                    f,
                    "what Redis answered is not an answer of tollgate's script: {why}; is something between that changes replies?"
                )
            }
            Self::Script { said } => write!(f, "tollgate's script failed in Redis: {said:?}"),
            Self::TooManyCharges { count } => write!(f, "{count} charges at once; 65535 are the most"),
        }
    }
}

impl<L: std::error::Error + 'static> std::error::Error for RedisError<L> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Link(error) => error.source(),
            _ => None,
        }
    }
}
