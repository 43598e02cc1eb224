//! One server: its connections, and whether it is worth asking.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::connect::{Trust, Way, connect};
use crate::connection::{Connection, Idle};
use tollgate_rules::{Address, Place};

/// Places for connections at rest. A thread has its own, as long as there are no more threads than places: a connection
/// that comes back to the thread that opened it costs less.
const PLACES: usize = 16;
/// Failures in a row after which a server is left alone, and for how long.
const FAILURES: u32 = 3;
const REST: Duration = Duration::from_secs(10);

/// One server of a group.
#[derive(Debug)]
pub struct Server {
    address: Address,
    way: Way,
    authority: Box<str>,
    trust: Option<Trust>,
    /// Where it may be.
    within: Option<Arc<[Place]>>,
    idle: [Mutex<Vec<Idle>>; PLACES],
    /// Connections at rest that each thread keeps, and for how long.
    most_idle: usize,
    longest_idle: Duration,
    busy: AtomicUsize,
    /// In a row.
    failures: AtomicU32,
    /// Until when it is left alone.
    rests: Mutex<Option<Instant>>,
    /// What a health check says.
    is_well: AtomicBool,
}

impl Server {
    pub(crate) fn new(
        address: Address,
        trust: Option<Trust>,
        within: Option<Arc<[Place]>>,
        most_idle: usize,
        longest_idle: Duration,
    ) -> Self {
        Self {
            way: Way::to(&address),
            authority: address.authority().into(),
            address,
            trust,
            within,
            idle: Default::default(),
            most_idle,
            longest_idle,
            busy: AtomicUsize::new(0),
            failures: AtomicU32::new(0),
            rests: Mutex::new(None),
            is_well: AtomicBool::new(true),
        }
    }

    /// Where it is.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// What `Host` says to it.
    pub(crate) fn authority(&self) -> &str {
        &self.authority
    }

    /// Requests that it has not answered yet.
    pub fn busy(&self) -> usize {
        self.busy.load(Ordering::Relaxed)
    }

    /// Whether its health check went well the last time; true if there is none.
    pub fn is_well(&self) -> bool {
        self.is_well.load(Ordering::Relaxed)
    }

    pub(crate) fn set_well(&self, is_well: bool) {
        let was_well = self.is_well.swap(is_well, Ordering::Relaxed);
        match (was_well, is_well) {
            (true, false) => tracing::warn!(server = %self.address, "the health check fails: it is not asked any more"),
            (false, true) => tracing::info!(server = %self.address, "the health check succeeds again"),
            _ => {}
        }
        if is_well {
            self.succeeded();
        }
    }

    /// Whether it is left alone because it failed.
    pub fn rests(&self) -> bool {
        if self.failures.load(Ordering::Relaxed) < FAILURES {
            return false;
        }
        let rests = self.rests.lock().unwrap_or_else(PoisonError::into_inner);
        rests.is_some_and(|until| Instant::now() < until)
    }

    pub(crate) fn succeeded(&self) {
        if self.failures.load(Ordering::Relaxed) > 0 {
            self.failures.store(0, Ordering::Relaxed);
        }
    }

    /// Who has no others beside it is asked on.
    pub(crate) fn failed(&self, why: &dyn std::fmt::Display, has_others: bool) {
        let failures = self.failures.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        tracing::debug!(server = %self.address, "a request failed: {why}");
        if failures >= FAILURES {
            if failures == FAILURES {
                let then =
                    if has_others { "is left alone for a while" } else { "there is no other, so it is asked on" };
                tracing::warn!(server = %self.address, "it failed {FAILURES} times in a row and {then}: {why}");
            }
            *self.rests.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + REST);
        }
    }

    /// A connection at rest. With `surely`, one that has certainly not been closed so far.
    pub(crate) fn take_idle(&self, surely: bool) -> Option<Box<Connection>> {
        let mut idle = self.place();
        loop {
            let candidate = idle.pop()?;
            if candidate.is_older_than(self.longest_idle) {
                // Those below are older still.
                let old = std::mem::take(&mut *idle);
                drop(idle);
                drop((candidate, old));
                return None;
            }
            if let Some(connection) = candidate.wake(surely) {
                return Some(connection);
            }
        }
    }

    pub(crate) async fn connect(&self) -> io::Result<Box<Connection>> {
        connect(&self.address, &self.way, self.trust.as_ref(), self.within.as_deref()).await.map(Connection::new)
    }

    /// Keeps a connection for the next request, if it is fit for one.
    pub(crate) fn give_back(&self, connection: Box<Connection>) {
        let Some(rested) = connection.at_rest() else { return };
        let mut idle = self.place();
        if idle.len() < self.most_idle {
            idle.push(rested);
        }
    }

    /// Closes connections that were at rest for too long.
    pub(crate) fn sweep(&self) {
        for place in &self.idle {
            let mut idle = place.lock().unwrap_or_else(PoisonError::into_inner);
            // The oldest are first.
            let old = idle.iter().take_while(|idle| idle.is_older_than(self.longest_idle)).count();
            let old: Vec<Idle> = idle.drain(..old).collect();
            drop(idle);
            drop(old);
        }
    }

    fn place(&self) -> std::sync::MutexGuard<'_, Vec<Idle>> {
        let place = &self.idle[THREAD.with(|thread| *thread) % PLACES];
        place.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The number of this thread.
    static THREAD: usize = THREADS.fetch_add(1, Ordering::Relaxed);
}

/// A server that is at work, for as long as this lives.
#[derive(Debug)]
pub(crate) struct Busy(Arc<Server>);

impl Busy {
    pub(crate) fn new(server: &Arc<Server>) -> Self {
        server.busy.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(server))
    }

    pub(crate) fn server(&self) -> &Arc<Server> {
        &self.0
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::Relaxed);
    }
}
