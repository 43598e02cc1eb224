//! Where the counters are: in this process, or in a Redis that several share.
//!
//! The one place that knows there are two. A decision in memory is made on the spot; one in Redis is waited for, and
//! made here after all while Redis cannot be asked.

use tollgate::{
    Charge, Denials, Intent, MemoryStore, Micros, Outcome, Outcomes, ReservationId, Settled, Settlement, Shelter,
    Store, Timestamp,
};
use tollgate_redis::link::{RedisLink, Unavailable};
use tollgate_redis::{RedisError, RedisStore};

/// Limits in Redis, with what it denied a moment ago, and with this server's memory for when it cannot be asked.
pub(crate) type Shared = Shelter<Denials<RedisStore<RedisLink>>>;

/// Where the counters are.
#[allow(clippy::large_enum_variant, reason = "there is one of them")]
pub(crate) enum GateStore {
    Memory(MemoryStore),
    Shared(Box<Shared>),
}

impl GateStore {
    /// This server's memory: that of all counters, or of the shelter.
    #[inline]
    pub(crate) fn memory(&self) -> &MemoryStore {
        match self {
            Self::Memory(store) => store,
            Self::Shared(store) => store.local(),
        }
    }

    pub(crate) fn shared(&self) -> Option<&Shared> {
        match self {
            Self::Memory(_) => None,
            Self::Shared(store) => Some(store),
        }
    }
}

impl Store for GateStore {
    type Error = RedisError<Unavailable>;

    async fn apply(&self, charges: &[Charge<'_>], intent: Intent, now: Timestamp) -> Result<Outcomes, Self::Error> {
        match self {
            Self::Memory(store) => Ok(store.apply_all(charges, intent, now)),
            Self::Shared(store) => store.apply(charges, intent, now).await,
        }
    }

    async fn apply_in_turn(
        &self,
        first: &[Charge<'_>],
        later: &[&[Charge<'_>]],
        intent: Intent,
        now: Timestamp,
    ) -> Vec<Result<Outcomes, Self::Error>> {
        match self {
            Self::Memory(store) => {
                let outcomes = store.apply_all(first, intent, now);
                let then = intent.after(&outcomes);
                let later = later.iter().map(|charges| store.apply_all(charges, then, now));
                std::iter::once(outcomes).chain(later).map(Ok).collect()
            }
            Self::Shared(store) => store.apply_in_turn(first, later, intent, now).await,
        }
    }

    fn apply_now(
        &self,
        charges: &[Charge<'_>],
        intent: Intent,
        now: Timestamp,
    ) -> Option<Result<Outcomes, Self::Error>> {
        match self {
            Self::Memory(store) => Some(Ok(store.apply_all(charges, intent, now))),
            Self::Shared(store) => store.apply_now(charges, intent, now),
        }
    }

    #[inline]
    fn apply_one_quickly(
        &self,
        charge: &Charge<'_>,
        intent: Intent,
        now: impl FnOnce() -> Timestamp,
    ) -> Option<Outcome> {
        match self {
            // Also for keys that are new: clients often are.
            Self::Memory(store) => Some(store.apply_one_at(charge, intent, now)),
            Self::Shared(_) => None,
        }
    }

    async fn apply_each(
        &self,
        charges: &[Charge<'_>],
        intent: Intent,
        now: Timestamp,
    ) -> Result<Vec<Outcome>, Self::Error> {
        match self {
            Self::Memory(store) => Ok(charges.iter().map(|charge| store.apply_one(charge, intent, now)).collect()),
            Self::Shared(store) => store.apply_each(charges, intent, now).await,
        }
    }

    async fn reserve(
        &self,
        charges: &[Charge<'_>],
        hold: Micros,
        now: Timestamp,
    ) -> Result<(Outcomes, Option<ReservationId>), Self::Error> {
        match self {
            Self::Memory(store) => Ok(store.reserve_all(charges, hold, now)),
            Self::Shared(store) => store.reserve(charges, hold, now).await,
        }
    }

    async fn settle(
        &self,
        reservation: ReservationId,
        settlement: Settlement<'_>,
        now: Timestamp,
    ) -> Result<Settled, Self::Error> {
        match self {
            Self::Memory(store) => Ok(store.settle_now(reservation, settlement, now)),
            Self::Shared(store) => store.settle(reservation, settlement, now).await,
        }
    }
}
