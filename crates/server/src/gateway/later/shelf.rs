//! Where requests are kept: in memory, in a file, or in a Redis that gateways share.
//!
//! The one place that knows there are three. Whatever is awaited here is durable, as far as the place is, when it returns.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;

use super::file::FileShelf;
use super::form::{Entry, Id, Stage};

/// Why something could not be written down or read.
#[derive(Debug)]
pub(crate) struct Fault(pub(super) String);

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "what is kept for later cannot be reached: {}", self.0)
    }
}

/// Where requests are kept.
pub(super) enum Shelf {
    /// Gone with the process.
    Memory(Mutex<HashMap<Id, Bytes>>),
    File(FileShelf),
}

impl Shelf {
    pub(super) fn memory() -> Self {
        Self::Memory(Mutex::default())
    }

    /// Whether it outlives the process.
    pub(super) fn is_durable(&self) -> bool {
        !matches!(self, Self::Memory(_))
    }

    /// Writes a request down.
    pub(super) async fn put(&self, entry: &Entry, request: Vec<u8>) -> Result<(), Fault> {
        match self {
            Self::Memory(requests) => {
                requests.lock().unwrap_or_else(PoisonError::into_inner).insert(entry.id, request.into());
                Ok(())
            }
            Self::File(file) => file.put(entry, request).await,
        }
    }

    /// Writes down what became of one. Of one that is done only that is kept.
    pub(super) async fn mark(&self, entry: &Entry) -> Result<(), Fault> {
        match self {
            Self::Memory(requests) => {
                if let Stage::Done(_) = entry.state.stage {
                    requests.lock().unwrap_or_else(PoisonError::into_inner).remove(&entry.id);
                }
                Ok(())
            }
            Self::File(file) => file.mark(entry).await,
        }
    }

    /// The request itself.
    pub(super) async fn request(&self, id: Id) -> Result<Option<Bytes>, Fault> {
        match self {
            Self::Memory(requests) => Ok(requests.lock().unwrap_or_else(PoisonError::into_inner).get(&id).cloned()),
            Self::File(file) => file.request(id).await,
        }
    }

    /// Forgets one.
    pub(super) async fn remove(&self, id: Id) -> Result<(), Fault> {
        match self {
            Self::Memory(requests) => {
                requests.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
                Ok(())
            }
            Self::File(file) => file.remove(id).await,
        }
    }
}
