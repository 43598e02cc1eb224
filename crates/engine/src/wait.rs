//! Who waits for the same charges waits in line.
//!
//! A turnstile per list of charges lets one waiter through at a time, in the order of arrival; only that one asks the store and sleeps. It
//! exists while someone waits.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tollgate_core::Timestamp;

use crate::charge::Charge;
use crate::clock::Clock;

#[derive(Default)]
pub(crate) struct Turnstiles {
    open: Mutex<HashMap<Box<[u8]>, Arc<Semaphore>>>,
}

/// A place in line, given up when dropped.
pub(crate) struct Turn<'t> {
    turnstiles: &'t Turnstiles,
    name: Box<[u8]>,
    gate: Option<Arc<Semaphore>>,
    through: Mutex<Option<OwnedSemaphorePermit>>,
}

impl Turnstiles {
    pub(crate) fn enter(&self, charges: &[Charge<'_>]) -> Turn<'_> {
        let mut name = Vec::new();
        for charge in charges {
            name.extend_from_slice(&charge.limit.lineage().to_be_bytes());
            name.extend_from_slice(&(charge.key.values.len() as u64).to_be_bytes());
            charge.key.encode(&mut name);
        }
        let name = name.into_boxed_slice();
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let gate = open.entry(name.clone()).or_insert_with(|| Arc::new(Semaphore::new(1))).clone();
        drop(open);
        Turn { turnstiles: self, name, gate: Some(gate), through: Mutex::new(None) }
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }
}

impl Turn<'_> {
    /// Waits for those ahead. `false` when `deadline` comes first.
    pub(crate) async fn reached_before(&self, clock: &impl Clock, deadline: Timestamp) -> bool {
        let Some(gate) = self.gate.clone() else { return false };
        let mut turn = pin!(gate.acquire_owned());
        let mut late = pin!(clock.sleep_until(deadline));
        let permit = poll_fn(|context| match turn.as_mut().poll(context) {
            Poll::Ready(permit) => Poll::Ready(permit.ok()),
            Poll::Pending => late.as_mut().poll(context).map(|()| None),
        })
        .await;
        let reached = permit.is_some();
        *self.through.lock().unwrap_or_else(PoisonError::into_inner) = permit;
        reached
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut open = self.turnstiles.open.lock().unwrap_or_else(PoisonError::into_inner);
        self.through.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        self.gate.take();
        // Only the map is left holding it: nobody waits, and nobody can come while the map is locked.
        if open.get(&self.name).is_some_and(|gate| Arc::strong_count(gate) == 1) {
            open.remove(&self.name);
        }
    }
}
