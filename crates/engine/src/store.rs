//! Where states live.
//!
//! A store promises atomicity and nothing else: what a charge does to a state is decided by [`tollgate_core`], the same
//! for every store. The suite `conformance` of `tollgate-sim` is this contract in executable form.

use std::future::Future;
use std::sync::Arc;

use tollgate_core::{Intent, Micros, Outcome, Timestamp};

use crate::charge::{Charge, Outcomes};
use crate::join::join_all;

/// Keeps states and applies charges to them.
pub trait Store: Send + Sync {
    /// Why a store could not answer. A denial is not an error.
    type Error: std::error::Error + Send + Sync + 'static;

    /// Applies `charges` as one: with [`Intent::Spend`] all are charged or, if one is denied, none (only what a denial
    /// itself leaves behind is kept). The other intents take effect on each counter that lets them. Two charges of the
    /// same counter under the same limit count as one of their sum, in the name of the first one's lease.
    ///
    /// `now` is the engine's time. A store that is shared between machines uses its own instead.
    fn apply(
        &self,
        charges: &[Charge<'_>],
        intent: Intent,
        now: Timestamp,
    ) -> impl Future<Output = Result<Outcomes, Self::Error>> + Send;

    /// The same as [`Self::apply`], from a store that has the answer without waiting; otherwise `None`, with nothing
    /// done. A store that cannot answer every question so may answer at once only what changes nothing, since it may be
    /// asked again.
    fn apply_now(
        &self,
        charges: &[Charge<'_>],
        intent: Intent,
        now: Timestamp,
    ) -> Option<Result<Outcomes, Self::Error>> {
        let _ = (charges, intent, now);
        None
    }

    /// Applies `first` and, once that is decided, each of `later`: as `intent` says if `first` passed, and otherwise
    /// only looked at where it would have been spent. An answer for each, in order; if `first` has none, there are no
    /// others. Whoever waits for all waits no longer than for one.
    fn apply_in_turn(
        &self,
        first: &[Charge<'_>],
        later: &[&[Charge<'_>]],
        intent: Intent,
        now: Timestamp,
    ) -> impl Future<Output = Vec<Result<Outcomes, Self::Error>>> + Send {
        async move {
            let mut answers = vec![self.apply(first, intent, now).await];
            if let Some(Ok(outcomes)) = answers.first() {
                let then = intent.after(outcomes);
                answers.extend(join_all(later.iter().map(|charges| self.apply(charges, then, now))).await);
            }
            answers
        }
    }

    /// The same for one charge, from a store that has the answer at once and can do so now: `None`, with nothing done,
    /// means that it has to be asked in another way. It asks for the time when it needs it, if it does: processors do
    /// little else while they read clocks.
    fn apply_one_quickly(
        &self,
        charge: &Charge<'_>,
        intent: Intent,
        now: impl FnOnce() -> Timestamp,
    ) -> Option<Outcome> {
        let _ = (charge, intent, now);
        None
    }

    /// Where the state of a charge lives, in a store of several parts that fail one by one: a batch of charges of one
    /// home is answered as a whole or not at all.
    fn home(&self, charge: &Charge<'_>) -> u64 {
        let _ = charge;
        0
    }

    /// Applies each of `charges` on its own, in order: one call for many keys.
    fn apply_each(
        &self,
        charges: &[Charge<'_>],
        intent: Intent,
        now: Timestamp,
    ) -> impl Future<Output = Result<Vec<Outcome>, Self::Error>> + Send;

    /// Spends `charges` as one, to be settled within `hold`; after that they are given back. There is a reservation if
    /// and only if all were admitted. Slots that it takes for nobody in particular (lease zero) are its own, so that it
    /// gives back no other's. One without charges has nothing to end: settling it is [`Settled::Done`] once at least, and
    /// may be again. A store that has no memory left for one more denies it, and charges nothing.
    fn reserve(
        &self,
        charges: &[Charge<'_>],
        hold: Micros,
        now: Timestamp,
    ) -> impl Future<Output = Result<(Outcomes, Option<ReservationId>), Self::Error>> + Send;

    /// Ends a reservation.
    fn settle(
        &self,
        reservation: ReservationId,
        settlement: Settlement<'_>,
        now: Timestamp,
    ) -> impl Future<Output = Result<Settled, Self::Error>> + Send;
}

impl Settlement<'_> {
    /// What stays spent of a charge of `cost` that was the one numbered `index`.
    pub fn keeps(&self, index: usize, cost: u64) -> u64 {
        match self {
            Self::Commit => cost,
            Self::CommitActual(actual) => actual.get(index).copied().unwrap_or(cost),
            Self::Cancel => 0,
        }
    }
}

/// A store that is shared is a store.
impl<S: Store> Store for Arc<S> {
    type Error = S::Error;

    fn apply(
        &self,
        charges: &[Charge<'_>],
        intent: Intent,
        now: Timestamp,
    ) -> impl Future<Output = Result<Outcomes, S::Error>> + Send {
        S::apply(self, charges, intent, now)
    }

    fn apply_now(&self, charges: &[Charge<'_>], intent: Intent, now: Timestamp) -> Option<Result<Outcomes, S::Error>> {
        S::apply_now(self, charges, intent, now)
    }

    fn apply_in_turn(
        &self,
        first: &[Charge<'_>],
        later: &[&[Charge<'_>]],
        intent: Intent,
        now: Timestamp,
    ) -> impl Future<Output = Vec<Result<Outcomes, S::Error>>> + Send {
        S::apply_in_turn(self, first, later, intent, now)
    }

    #[inline]
    fn apply_one_quickly(
        &self,
        charge: &Charge<'_>,
        intent: Intent,
        now: impl FnOnce() -> Timestamp,
    ) -> Option<Outcome> {
        S::apply_one_quickly(self, charge, intent, now)
    }

    fn home(&self, charge: &Charge<'_>) -> u64 {
        S::home(self, charge)
    }

    fn apply_each(
        &self,
        charges: &[Charge<'_>],
        intent: Intent,
        now: Timestamp,
    ) -> impl Future<Output = Result<Vec<Outcome>, S::Error>> + Send {
        S::apply_each(self, charges, intent, now)
    }

    fn reserve(
        &self,
        charges: &[Charge<'_>],
        hold: Micros,
        now: Timestamp,
    ) -> impl Future<Output = Result<(Outcomes, Option<ReservationId>), S::Error>> + Send {
        S::reserve(self, charges, hold, now)
    }

    fn settle(
        &self,
        reservation: ReservationId,
        settlement: Settlement<'_>,
        now: Timestamp,
    ) -> impl Future<Output = Result<Settled, S::Error>> + Send {
        S::settle(self, reservation, settlement, now)
    }
}

/// Names a reservation. Unique within its store if it has charges, and not to be guessed from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReservationId(pub u64);

/// How a reservation ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settlement<'a> {
    /// What was reserved stays spent.
    Commit,
    /// What each charge needed after all, in their order: the rest is given back, or what is missing is charged in any
    /// case. Charges without a number keep what was reserved.
    CommitActual(&'a [u64]),
    /// Everything is given back.
    Cancel,
}

/// What became of a settlement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// It took effect.
    Done,
    /// There is no such reservation: it was settled before, has expired (and was given back), or never existed. Nothing
    /// changed.
    Unknown,
}
