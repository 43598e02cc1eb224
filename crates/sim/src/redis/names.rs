//! Names that stand for whatever a test says, without a resolver of the system's.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError};

/// What becomes of a lookup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// The name stands for this address.
    Address(SocketAddr),
    /// Nobody knows it.
    Unknown,
    /// There is no answer until it means something else.
    Silence,
}

/// A name of its own; nobody else has it.
#[derive(Debug)]
pub struct Name(String);

/// What names mean, and how often they were asked for.
type Known = HashMap<String, (Meaning, u64)>;

static KNOWN: LazyLock<Mutex<Known>> = LazyLock::new(Mutex::default);
static CHANGED: Condvar = Condvar::new();

fn known() -> MutexGuard<'static, Known> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Name {
    /// A new one.
    pub fn new(meaning: Meaning) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let name = Self(format!("redis-{}.test", NUMBER.fetch_add(1, Ordering::Relaxed)));
        name.set(meaning);
        name
    }

    /// From now on, this; also for lookups that are under way.
    pub fn set(&self, meaning: Meaning) {
        known().entry(self.0.clone()).or_insert((Meaning::Unknown, 0)).0 = meaning;
        CHANGED.notify_all();
    }

    /// How many lookups there were.
    pub fn asked(&self) -> u64 {
        known().get(&self.0).map_or(0, |(_, asked)| *asked)
    }

    /// The URL of a Redis by this name, at whatever port.
    pub fn url(&self) -> String {
        format!("redis://{}:6379", self.0)
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        known().remove(&self.0);
        CHANGED.notify_all();
    }
}

/// Looks up a name.
///
/// # Errors
/// If nobody knows it.
pub fn look_up(host: &str) -> io::Result<Vec<SocketAddr>> {
    let mut names = known();
    if let Some((_, asked)) = names.get_mut(host) {
        *asked += 1;
    }
    loop {
        match names.get(host) {
            Some((Meaning::Address(address), _)) => return Ok(vec![*address]),
            Some((Meaning::Silence, _)) => {
                names = CHANGED.wait(names).unwrap_or_else(PoisonError::into_inner);
            }
            Some((Meaning::Unknown, _)) | None => return Err(io::Error::other("nobody knows that name")),
        }
    }
}
