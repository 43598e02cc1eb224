//! Where requests are kept: in memory, in a file, or in a Redis that gateways share.
//!
//! The one place that knows there are three. Whatever is awaited here is durable, as far as the place is, when it
//! returns.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;

use super::file::FileShelf;
use super::form::{Entry, Id, Stage};
use super::redis::RedisShelf;

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
    Redis(RedisShelf),
}

impl Shelf {
    pub(super) fn memory() -> Self {
        Self::Memory(Mutex::default())
    }

    /// Whether it outlives the process.
    pub(super) fn is_durable(&self) -> bool {
        !matches!(self, Self::Memory(_))
    }

    /// The one that gateways share, if it is that.
    pub(super) fn shared(&self) -> Option<&RedisShelf> {
        match self {
            Self::Redis(redis) => Some(redis),
            Self::Memory(_) | Self::File(_) => None,
        }
    }

    /// Writes a request down that a place was taken for. In a Redis places are taken there, by [`RedisShelf::put`].
    pub(super) async fn put(&self, entry: &Entry, request: Vec<u8>) -> Result<(), Fault> {
        match self {
            Self::Memory(requests) => {
                requests.lock().unwrap_or_else(PoisonError::into_inner).insert(entry.id, request.into());
                Ok(())
            }
            Self::File(file) => file.put(entry, request).await,
            Self::Redis(_) => Err(Fault("its place is not known".to_owned())),
        }
    }

    /// Writes down what became of one. Of one that is done only that is kept. False if that is not for this gateway to
    /// say any more.
    pub(super) async fn mark(&self, entry: &Entry) -> Result<bool, Fault> {
        match self {
            Self::Memory(requests) => {
                if let Stage::Done(_) = entry.state.stage {
                    requests.lock().unwrap_or_else(PoisonError::into_inner).remove(&entry.id);
                }
                Ok(true)
            }
            Self::File(file) => file.mark(entry).await.map(|()| true),
            Self::Redis(redis) => redis.mark(entry).await,
        }
    }

    /// The request itself.
    pub(super) async fn request(&self, id: Id) -> Result<Option<Bytes>, Fault> {
        match self {
            Self::Memory(requests) => Ok(requests.lock().unwrap_or_else(PoisonError::into_inner).get(&id).cloned()),
            Self::File(file) => file.request(id).await,
            Self::Redis(redis) => redis.request(id).await,
        }
    }

    /// Forgets one. False if it is on its way from another gateway.
    pub(super) async fn remove(&self, id: Id) -> Result<bool, Fault> {
        match self {
            Self::Memory(requests) => {
                requests.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
                Ok(true)
            }
            Self::File(file) => file.remove(id).await.map(|()| true),
            Self::Redis(redis) => redis.remove(id).await,
        }
    }
}
