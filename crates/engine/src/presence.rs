//! How many servers share a store: each of them holds a slot there.
//!
//! A server that is alive takes a slot of a limit that nobody reaches, and renews it before its lease is over. How many
//! slots are taken is how many servers there are; one that ends gives its slot back, and one that dies loses it when
//! the lease is over. The store does nothing for it that it does not do for everybody.

use std::collections::VecDeque;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Mutex, PoisonError};

use tollgate_core::{Concurrency, Intent, Key, Limit, LimitError, Micros, Timestamp, stable_hash};

use crate::charge::Charge;
use crate::store::Store;
use crate::sync::randomize;

/// More are not counted.
const MOST_SERVERS: u64 = 10_000;
/// How long a server is counted that is not heard of.
const LEASE: Micros = Micros::from_secs(10);
/// How often a server is to be heard of.
const EVERY: Micros = Micros::from_secs(2);

/// For so long a count that was larger holds: when a store has lost all slots, everybody is back after one round of
/// reports.
const ROUNDS: Micros = Micros::from_secs(4);

/// One server among those that share a store.
pub struct Presence {
    slots: Limit,
    lease: u64,
    /// What was heard lately, and when.
    heard: Mutex<VecDeque<(Timestamp, u64)>>,
}

impl Presence {
    /// A server that nobody has heard of.
    pub fn new() -> Result<Self, LimitError> {
        let mut lease = [0; 8];
        if !randomize(&mut lease) {
            lease = RandomState::new().hash_one(std::process::id()).to_le_bytes();
        }
        let slots = Limit::new(Concurrency::new(MOST_SERVERS, LEASE))?;
        // Zero would be nobody's.
        Ok(Self { slots, lease: u64::from_le_bytes(lease) | 1, heard: Mutex::default() })
    }

    /// How often to [report](Self::report).
    pub const fn every() -> Micros {
        EVERY
    }

    /// Says that this server is alive, and hears how many are, itself included. A smaller number is believed after two
    /// rounds.
    pub async fn report<S: Store>(&self, store: &S, now: Timestamp) -> Result<u64, S::Error> {
        let charge = self.charge();
        let mut outcomes = store.apply(&[charge], Intent::Renew, now).await?;
        if outcomes.iter().any(|outcome| outcome.denied()) {
            outcomes = store.apply(&[charge], Intent::Spend, now).await?;
        }
        let remaining = outcomes.first().map_or(MOST_SERVERS, |outcome| outcome.remaining);
        let servers = MOST_SERVERS.saturating_sub(remaining).max(1);
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard.push_back((now, servers));
        heard.retain(|(at, _)| at.plus(ROUNDS) > now);
        Ok(heard.iter().map(|(_, servers)| *servers).max().unwrap_or(servers))
    }

    /// Says that this server is gone.
    pub async fn leave<S: Store>(&self, store: &S, now: Timestamp) -> Result<(), S::Error> {
        store.apply(&[self.charge()], Intent::Refund { charged_at: now }, now).await.map(|_| ())
    }

    /// The number of the limit that servers are counted by: no rule's.
    pub fn number() -> u64 {
        stable_hash([b"servers that share this store".as_slice()])
    }

    fn charge(&self) -> Charge<'_> {
        Charge::new(Key::new(Self::number(), &[]), &self.slots).lease(self.lease)
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::task::{Context, Poll, Waker};

    use super::*;
    use crate::memory::MemoryStore;

    fn done<T, E: std::fmt::Debug>(future: impl Future<Output = Result<T, E>>) -> T {
        match std::pin::pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => value.unwrap(),
            Poll::Pending => panic!("it waits"),
        }
    }

    #[test]
    fn servers_are_counted_while_they_are_heard_of() {
        let (store, start) = (MemoryStore::new(), Timestamp::from_secs(1_700_000_000));
        let servers: Vec<_> = (0..5).map(|_| Presence::new().unwrap()).collect();
        let report = |number: usize, at| done(servers[number].report(&store, at));
        assert_eq!((0..5).map(|number| report(number, start)).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
        // One ends, one dies, and the others are heard of for a minute.
        done(servers[0].leave(&store, start));
        let mut counted = Vec::new();
        for round in 1..=30 {
            let now = start.plus(Micros::from_micros(round * EVERY.as_micros()));
            counted = (2..5).map(|number| report(number, now)).collect();
            let expected = match now.since(start) {
                passed if passed < ROUNDS => 5,
                passed if passed < LEASE.plus(ROUNDS).minus(EVERY) => 4,
                _ => 3,
            };
            assert_eq!(counted.last(), Some(&expected), "round {round}");
        }
        assert_eq!(counted, [3, 3, 3]);
        // The store loses everything: nobody takes itself for the only one.
        let lost = MemoryStore::new();
        let again = start.plus(Micros::from_secs(61));
        let counted: Vec<_> = (2..5).map(|number| done(servers[number].report(&lost, again))).collect();
        assert_eq!(counted, [3, 3, 3]);
        // And one that was away for long is back.
        let later = start.plus(Micros::HOUR);
        assert_eq!((report(1, later), report(1, later)), (1, 1));
    }
}
