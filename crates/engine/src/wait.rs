//! Who waits for the same charges waits in line.
//!
//! A turnstile per list of charges lets one waiter through at a time, in the order of arrival; only that one asks the store and sleeps. It
//! exists while someone waits.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError};
use std::task::Poll;

use smallvec::SmallVec;
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tollgate_core::Timestamp;

use crate::charge::Charge;
use crate::clock::Clock;
use crate::sync::Mutex;

/// Who may wait at the same time, in all lines together.
const MOST_WAITING: usize = 10_000;

#[derive(Default)]
pub(crate) struct Turnstiles {
    open: Mutex<HashMap<Box<[u8]>, Line>>,
    /// How many have a place.
    waiting: AtomicUsize,
    /// Rung when something is given back: whoever is first in a line asks again.
    bell: Notify,
}

struct Line {
    gate: Arc<Semaphore>,
    /// What those cost who have not reached their turn, for each of the charges.
    queued: Costs,
}

/// What each of a list of charges costs.
type Costs = SmallVec<[u64; 3]>;

/// A place in line, given up when dropped.
pub(crate) struct Turn<'t> {
    turnstiles: &'t Turnstiles,
    name: Box<[u8]>,
    gate: Option<Arc<Semaphore>>,
    through: Mutex<Option<OwnedSemaphorePermit>>,
    /// What it costs, until its turn is reached.
    queued: Mutex<Costs>,
    ahead: Costs,
}

impl Turnstiles {
    /// Takes a place behind all others for the same charges; `None` when too many wait already.
    pub(crate) fn enter(&self, charges: &[Charge<'_>]) -> Option<Turn<'_>> {
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= MOST_WAITING {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let name = name_of(charges);
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = || Line { gate: Arc::new(Semaphore::new(1)), queued: charges.iter().map(|_| 0).collect() };
        let line = open.entry(name.clone()).or_insert_with(fresh);
        let (gate, ahead) = (Arc::clone(&line.gate), line.queued.clone());
        let own: Costs = charges.iter().map(|charge| charge.cost).collect();
        line.queued.iter_mut().zip(&own).for_each(|(all, own)| *all = all.saturating_add(*own));
        drop(open);
        Some(Turn {
            turnstiles: self,
            name,
            gate: Some(gate),
            through: Mutex::new(None),
            queued: Mutex::new(own),
            ahead,
        })
    }

    /// Whether anybody waits for anything.
    pub(crate) fn has_waiters(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Whether somebody waits for these.
    pub(crate) fn has_line(&self, charges: &[Charge<'_>]) -> bool {
        self.has_waiters() && self.open.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&name_of(charges))
    }

    /// Completes when something is given back after this call.
    pub(crate) fn given_back(&self) -> Notified<'_> {
        self.bell.notified()
    }

    pub(crate) fn give_back(&self) {
        self.bell.notify_waiters();
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }
}

/// What a line for these is called.
fn name_of(charges: &[Charge<'_>]) -> Box<[u8]> {
    let mut name = Vec::new();
    for charge in charges {
        name.extend_from_slice(&charge.limit.lineage().to_be_bytes());
        name.extend_from_slice(&(charge.key.values.len() as u64).to_be_bytes());
        charge.key.encode(&mut name);
    }
    name.into_boxed_slice()
}

impl Turn<'_> {
    /// What those ahead cost, for each charge. Whose turn it is does not count, as it may be admitted already.
    pub(crate) fn ahead(&self) -> &[u64] {
        &self.ahead
    }

    /// It stands in nobody's way any more, as far as that can be foreseen.
    fn leave_queue(&self, open: &mut HashMap<Box<[u8]>, Line>) {
        let own = std::mem::take(&mut *self.queued.lock().unwrap_or_else(PoisonError::into_inner));
        if let Some(line) = open.get_mut(&self.name) {
            line.queued.iter_mut().zip(&own).for_each(|(all, own)| *all = all.saturating_sub(*own));
        }
    }

    /// Waits for those ahead. `false` when `deadline` comes first.
    pub(crate) async fn reached_before(&self, clock: &impl Clock, deadline: Timestamp) -> bool {
        let Some(gate) = self.gate.clone() else { return false };
        let turn = async { gate.acquire_owned().await.ok() };
        let late = async {
            clock.sleep_until(deadline).await;
            None
        };
        let permit = either(turn, late).await;
        let reached = permit.is_some();
        self.leave_queue(&mut self.turnstiles.open.lock().unwrap_or_else(PoisonError::into_inner));
        *self.through.lock().unwrap_or_else(PoisonError::into_inner) = permit;
        reached
    }
}

/// What comes first; the first of the two if both are there.
pub(crate) async fn either<T>(first: impl Future<Output = T>, second: impl Future<Output = T>) -> T {
    let (mut first, mut second) = (pin!(first), pin!(second));
    poll_fn(|context| match first.as_mut().poll(context) {
        Poll::Pending => second.as_mut().poll(context),
        ready => ready,
    })
    .await
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut open = self.turnstiles.open.lock().unwrap_or_else(PoisonError::into_inner);
        self.turnstiles.waiting.fetch_sub(1, Ordering::Relaxed);
        self.leave_queue(&mut open);
        self.through.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        self.gate.take();
        // Only the map is left holding it: nobody waits, and nobody can come while the map is locked.
        if open.get(&self.name).is_some_and(|line| Arc::strong_count(&line.gate) == 1) {
            open.remove(&self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use tollgate_core::{FixedWindow, Key, Limit, Micros};

    use super::*;
    use crate::clock::ManualClock;

    fn limit() -> Limit {
        Limit::new(FixedWindow::new(1, Micros::SECOND)).unwrap()
    }

    fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_turnstile_is_there_while_someone_waits() {
        let (turnstiles, clock, limit) = (Turnstiles::default(), ManualClock::at(Timestamp::EPOCH), limit());
        let charges = [Charge::new(Key::new(1, &[b"user"]), &limit)];
        let deadline = Timestamp::from_secs(9);
        let (first, second, third) = (
            turnstiles.enter(&charges).unwrap(),
            turnstiles.enter(&charges).unwrap(),
            turnstiles.enter(&charges).unwrap(),
        );
        let mut second_turn = Box::pin(second.reached_before(&clock, deadline));
        assert_eq!(poll(pin!(first.reached_before(&clock, deadline))), Poll::Ready(true));
        assert!(poll(second_turn.as_mut()).is_pending());
        // One who has not come to wait yet leaves: the line does not notice.
        drop(third);
        assert!(!turnstiles.is_empty());
        drop(first);
        assert_eq!(poll(second_turn.as_mut()), Poll::Ready(true));
        drop(second_turn);
        assert!(!turnstiles.is_empty());
        drop(second);
        assert!(turnstiles.is_empty());
    }

    #[test]
    fn those_who_give_up_or_are_late_leave_nothing_behind() {
        let (turnstiles, clock, limit) = (Turnstiles::default(), ManualClock::at(Timestamp::EPOCH), limit());
        let charges = [Charge::new(Key::new(1, &[b"user"]), &limit)];
        let turns = [
            turnstiles.enter(&charges).unwrap(),
            turnstiles.enter(&charges).unwrap(),
            turnstiles.enter(&charges).unwrap(),
        ];
        let deadlines = [90, 5, 90].map(Timestamp::from_secs);
        let mut waits: Vec<_> = turns
            .iter()
            .zip(deadlines)
            .map(|(turn, deadline)| Box::pin(turn.reached_before(&clock, deadline)))
            .collect();
        assert_eq!(poll(waits[0].as_mut()), Poll::Ready(true));
        assert!(poll(waits[1].as_mut()).is_pending() && poll(waits[2].as_mut()).is_pending());
        clock.set(Timestamp::from_secs(5));
        assert_eq!(poll(waits[1].as_mut()), Poll::Ready(false));
        drop(waits);
        drop(turns);
        assert!(turnstiles.is_empty());
        assert_eq!(clock.next_due(), None);
    }

    #[test]
    fn different_charges_are_different_lines() {
        let (turnstiles, limit) = (Turnstiles::default(), limit());
        let other = Limit::new(FixedWindow::new(1, Micros::MINUTE)).unwrap();
        let charge = |values: &'static [&'static [u8]]| Charge::new(Key::new(1, values), &limit);
        let lists = [
            vec![],
            vec![charge(&[])],
            vec![charge(&[b"a"])],
            vec![charge(&[b"a"]), charge(&[])],
            vec![charge(&[]), charge(&[b"a"])],
            vec![charge(&[b"a", b""])],
            vec![charge(&[b"a"]), charge(&[b"b"])],
            vec![charge(&[b"a", b"b"])],
            vec![Charge::new(Key::new(2, &[b"a"]), &limit)],
            vec![Charge::new(Key::new(1, &[b"a"]), &other)],
        ];
        let turns: Vec<_> = lists.iter().map(|charges| turnstiles.enter(charges).unwrap()).collect();
        assert_eq!(turnstiles.open.lock().unwrap().len(), lists.len());
        // What it costs is nobody's place in line.
        let _same = turnstiles.enter(&[charge(&[b"a"]).cost(7)]).unwrap();
        assert_eq!(turnstiles.open.lock().unwrap().len(), lists.len());
        drop((turns, _same));
        assert!(turnstiles.is_empty());
    }

    #[test]
    fn what_is_ahead_is_known_and_there_is_a_most() {
        let (turnstiles, clock, limit) = (Turnstiles::default(), ManualClock::at(Timestamp::EPOCH), limit());
        let charge = |cost| [Charge::new(Key::new(1, &[b"user"]), &limit).cost(cost)];
        let first = turnstiles.enter(&charge(3)).unwrap();
        assert_eq!(first.ahead(), [0]);
        assert_eq!(poll(pin!(first.reached_before(&clock, Timestamp::from_secs(9)))), Poll::Ready(true));
        let second = turnstiles.enter(&charge(5)).unwrap();
        assert_eq!(second.ahead(), [0], "whose turn it is may be admitted already");
        let third = turnstiles.enter(&charge(7)).unwrap();
        assert_eq!(third.ahead(), [5]);
        drop(second);
        assert_eq!(turnstiles.enter(&charge(1)).unwrap().ahead(), [7]);
        let mut turns: Vec<_> = std::iter::from_fn(|| turnstiles.enter(&charge(1))).take(2 * MOST_WAITING).collect();
        assert_eq!(turns.len(), MOST_WAITING - 2);
        turns.pop();
        assert!(turnstiles.enter(&charge(1)).is_some());
        drop((first, third, turns));
        assert!(turnstiles.is_empty());
    }
}
