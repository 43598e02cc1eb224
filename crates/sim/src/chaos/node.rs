//! What is tested: nodes that share limits, each as a server has it, with a listener between what remembers and what
//! asks.

#![allow(clippy::disallowed_methods, reason = "real processes take real time")]

use std::cell::Cell;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tollgate::{
    Charge, Clock, Intent, MemoryStore, Micros, Outcome, Outcomes, ReservationId, Settled, Settlement, Shelter, Store,
    Timestamp,
};

use super::record::{Moment, Shared};

/// Makes the stores that are tested.
pub trait Maker: Send + Sync + 'static {
    /// What asks Redis.
    type Store: Store + 'static;
    /// What is in front of it, and may know the answer.
    type Front<S: Store + 'static>: Store<Error = S::Error> + 'static;

    /// A store for a node, at the Redis that `url` names, which waits for answers no longer than `deadline`.
    fn open(&self, url: &str, node: u16, deadline: Duration) -> Self::Store;

    /// Puts in front of a store what a server has there, by the node's clock.
    fn front<S: Store + 'static>(&self, store: S, clock: NodeClock) -> Self::Front<S>;

    /// Whether it asks Redis, for all keys.
    fn is_serving(&self, store: &Self::Store) -> bool;

    /// Whether what failed may have been carried out.
    fn may_have_run(&self, error: &<Self::Store as Store>::Error) -> bool;
}

/// The one clock of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Watch {
    begin: Instant,
    pub(super) epoch: Timestamp,
}

impl Watch {
    pub(super) fn start() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let epoch = Timestamp::from_micros(u64::try_from(since.as_micros()).unwrap_or(u64::MAX));
        Self { begin: Instant::now(), epoch }
    }

    pub(super) fn moment(&self) -> Moment {
        u64::try_from(self.begin.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

/// The clock of a node, which may be wrong.
#[derive(Clone, Debug)]
pub struct NodeClock {
    watch: Watch,
    /// How far it is ahead, in microseconds.
    ahead: Arc<AtomicI64>,
}

impl NodeClock {
    pub(super) fn new(watch: Watch, ahead: i64) -> Self {
        Self { watch, ahead: Arc::new(AtomicI64::new(ahead)) }
    }

    pub(super) fn set(&self, ahead: i64) {
        self.ahead.store(ahead, Ordering::Relaxed);
    }

    /// What it shows at a moment.
    pub(super) fn at(&self, moment: Moment) -> Timestamp {
        let wall = self.watch.epoch.as_micros() + moment;
        Timestamp::from_micros(wall.saturating_add_signed(self.ahead.load(Ordering::Relaxed)))
    }
}

impl Clock for NodeClock {
    fn now(&self) -> Timestamp {
        self.at(self.watch.moment())
    }

    async fn sleep_until(&self, at: Timestamp) {
        tokio::time::sleep(Duration::from_micros(at.since(self.now()).as_micros())).await;
    }
}

tokio::task_local! {
    /// What the shared store said to the decision that this task is about; that it was not asked, until it is.
    pub(super) static SAID: Cell<Shared>;
}

/// Listens in front of the store.
pub(super) struct Tap<M: Maker> {
    maker: Arc<M>,
    pub(super) store: M::Store,
}

impl<M: Maker> Tap<M> {
    pub(super) fn is_serving(&self) -> bool {
        self.maker.is_serving(&self.store)
    }

    async fn heard<T>(
        &self,
        asking: impl Future<Output = Result<T, <M::Store as Store>::Error>> + Send,
    ) -> Result<T, <M::Store as Store>::Error> {
        let say = |said| {
            let _ = SAID.try_with(|cell| cell.set(said));
        };
        say(Shared::Unknown);
        let result = asking.await;
        say(match &result {
            Ok(_) => Shared::Answered,
            Err(error) if self.maker.may_have_run(error) => Shared::Unknown,
            Err(_) => Shared::NotRun,
        });
        result
    }
}

impl<M: Maker> Store for Tap<M> {
    type Error = <M::Store as Store>::Error;

    async fn apply(&self, charges: &[Charge<'_>], intent: Intent, now: Timestamp) -> Result<Outcomes, Self::Error> {
        self.heard(self.store.apply(charges, intent, now)).await
    }

    async fn apply_each(
        &self,
        charges: &[Charge<'_>],
        intent: Intent,
        now: Timestamp,
    ) -> Result<Vec<Outcome>, Self::Error> {
        self.heard(self.store.apply_each(charges, intent, now)).await
    }

    async fn reserve(
        &self,
        charges: &[Charge<'_>],
        hold: Micros,
        now: Timestamp,
    ) -> Result<(Outcomes, Option<ReservationId>), Self::Error> {
        self.heard(self.store.reserve(charges, hold, now)).await
    }

    async fn settle(
        &self,
        reservation: ReservationId,
        settlement: Settlement<'_>,
        now: Timestamp,
    ) -> Result<Settled, Self::Error> {
        self.heard(self.store.settle(reservation, settlement, now)).await
    }
}

/// One machine of those that share the limits.
pub(super) struct Node<M: Maker> {
    pub(super) shelter: Shelter<M::Front<Arc<Tap<M>>>>,
    pub(super) tap: Arc<Tap<M>>,
    pub(super) clock: NodeClock,
    /// What is to be given back through it, or settled.
    dues: Mutex<Vec<Due>>,
}

/// Something that follows from an earlier decision.
#[derive(Clone, Copy, Debug)]
pub(super) struct Due {
    pub(super) at: Moment,
    /// The number of that decision, what it was about, and when that was by the shared store's clock.
    pub(super) of: u64,
    pub(super) counter: u32,
    pub(super) cost: u64,
    pub(super) charged_at: Timestamp,
    pub(super) how: How,
}

/// What is to be done.
#[derive(Clone, Copy, Debug)]
pub(super) enum How {
    Refund,
    Cancel(ReservationId),
    Commit(ReservationId),
}

impl<M: Maker> Node<M> {
    pub(super) fn new(maker: &Arc<M>, store: M::Store, clock: NodeClock, servers: u64) -> Self {
        let tap = Arc::new(Tap { store, maker: Arc::clone(maker) });
        let shelter = Shelter::new(maker.front(Arc::clone(&tap), clock.clone()), MemoryStore::new());
        shelter.set_servers(servers);
        Self { shelter, tap, clock, dues: Mutex::default() }
    }

    pub(super) fn expect(&self, due: Due) {
        self.dues.lock().unwrap_or_else(PoisonError::into_inner).push(due);
    }

    /// What is due by now.
    pub(super) fn due(&self, now: Moment) -> Vec<Due> {
        let mut dues = self.dues.lock().unwrap_or_else(PoisonError::into_inner);
        let (due, later) = dues.iter().partition(|due| due.at <= now);
        *dues = later;
        due
    }
}
