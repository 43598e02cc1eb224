//! Decisions: one clock reading, one store call, one answer.

use std::fmt;

use smallvec::SmallVec;
use tollgate_core::{Algorithm, Intent, Micros, Outcome, Timestamp};

use crate::ahead::{least_wait, probe};
use crate::charge::{Charge, Decision};
use crate::clock::{Clock, SystemClock};
use crate::store::{ReservationId, Settled, Settlement, Store};
use crate::wait::{Queueing, TooMany, Turn, Turnstiles, either};

/// Decides over charges, with states in `S` and time from `C`.
pub struct Engine<S, C = SystemClock> {
    store: S,
    clock: C,
    turnstiles: Turnstiles,
}

impl<S: Store> Engine<S> {
    /// An engine on the system's clock.
    pub fn new(store: S) -> Self {
        Self::with_clock(store, SystemClock::new())
    }
}

impl<S: Store, C: Clock> Engine<S, C> {
    /// An engine on a clock of your own.
    pub fn with_clock(store: S, clock: C) -> Self {
        Self { store, clock, turnstiles: Turnstiles::default() }
    }

    /// The store.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// The clock.
    pub fn clock(&self) -> &C {
        &self.clock
    }

    /// Charges all of `charges`, or none if one is denied.
    pub async fn decide(&self, charges: &[Charge<'_>]) -> Result<Decision, S::Error> {
        self.apply(charges, Intent::Spend).await
    }

    /// What [`Self::decide`] would say. Nothing is charged.
    pub async fn peek(&self, charges: &[Charge<'_>]) -> Result<Decision, S::Error> {
        self.apply(charges, Intent::Peek).await
    }

    /// Charges in any case: for costs that are known only when the work is done. What does not fit becomes debt.
    pub async fn force(&self, charges: &[Charge<'_>]) -> Result<Decision, S::Error> {
        self.apply(charges, Intent::Force).await
    }

    /// Gives back what was charged by a decision that was made at `charged_at` ([`Decision::at`], plus its delay if it
    /// had one; [`Outcome::proceeds_at`] is that). Never lifts a key above fresh; a window that is over keeps what was
    /// counted in it.
    pub async fn refund(&self, charges: &[Charge<'_>], charged_at: Timestamp) -> Result<Decision, S::Error> {
        self.apply(charges, Intent::Refund { charged_at }).await
    }

    /// Holds the slots of a concurrency limit longer. Denied where the lease has expired.
    pub async fn renew(&self, charges: &[Charge<'_>]) -> Result<Decision, S::Error> {
        self.apply(charges, Intent::Renew).await
    }

    /// Gives the slots of concurrency limits back. Charges of other limits in the list stay charged.
    pub async fn release(&self, charges: &[Charge<'_>]) -> Result<Decision, S::Error> {
        let slots = |charge: &&Charge<'_>| matches!(charge.limit.algorithm(), Algorithm::Concurrency(_));
        let slots: SmallVec<[Charge<'_>; 3]> = charges.iter().filter(slots).copied().collect();
        self.apply(&slots, Intent::Refund { charged_at: self.clock.now() }).await
    }

    /// Decides over each of `charges` on its own: one call, and one round trip for shared stores, for many keys.
    pub async fn decide_each(&self, charges: &[Charge<'_>]) -> Result<Vec<Outcome>, S::Error> {
        self.store.apply_each(charges, Intent::Spend, self.clock.now()).await
    }

    /// What [`Self::decide_each`] would say. Nothing is charged.
    pub async fn peek_each(&self, charges: &[Charge<'_>]) -> Result<Vec<Outcome>, S::Error> {
        self.store.apply_each(charges, Intent::Peek, self.clock.now()).await
    }

    /// Charges like [`Self::decide`], on approval: commit or cancel within `hold`, or everything is given back.
    pub async fn reserve(
        &self,
        charges: &[Charge<'_>],
        hold: impl Into<Micros>,
    ) -> Result<(Decision, Option<ReservationId>), S::Error> {
        let now = self.clock.now();
        let (outcomes, reservation) = self.store.reserve(charges, hold.into(), now).await?;
        Ok((Decision::new(outcomes, now), reservation))
    }

    /// Keeps what was reserved.
    pub async fn commit(&self, reservation: ReservationId) -> Result<Settled, S::Error> {
        self.settle(reservation, Settlement::Commit).await
    }

    /// Keeps what each charge needed after all, in the order they were reserved: gives the rest back, or charges what
    /// is missing in any case. Charges without a number keep what was reserved.
    pub async fn commit_actual(&self, reservation: ReservationId, actual: &[u64]) -> Result<Settled, S::Error> {
        self.settle(reservation, Settlement::CommitActual(actual)).await
    }

    /// Gives back what was reserved.
    pub async fn cancel(&self, reservation: ReservationId) -> Result<Settled, S::Error> {
        self.settle(reservation, Settlement::Cancel).await
    }

    /// Waits until all of `charges` are admitted, at most `longest`. Who waits for the same charges is served in the
    /// order of arrival. If it can be seen that the time will not do, also for those ahead in the line, the denial
    /// comes at once; so it does for the next while 10,000 wait. What is given back through this engine meanwhile (a
    /// slot, a refund, a reservation) wakes whoever can use it.
    ///
    /// Dropping the future gives up the place, and nothing is charged. Only who already has a departure from a queue
    /// and sits out the delay is past that: it stays charged.
    pub async fn wait(&self, charges: &[Charge<'_>], longest: impl Into<Micros>) -> Result<Decision, S::Error> {
        self.wait_in_line(charges, Queueing::in_order(longest)).await.map(|(decision, _)| decision)
    }

    /// The same in a line that is kept as `how` says, and the place in it, from one: of who is allowed, the one that it
    /// had when it came; of who is denied, the one that it left.
    pub async fn wait_in_line(&self, charges: &[Charge<'_>], how: Queueing) -> Result<(Decision, usize), S::Error> {
        let deadline = self.clock.now().plus(how.longest);
        let turn = match self.turnstiles.enter(charges, how) {
            Ok(turn) => turn,
            Err(TooMany { position }) => {
                return self.peek(charges).await.map(|decision| (as_denied(decision), position));
            }
        };
        let first = turn.position();
        let is_in_vain = self.is_in_vain(&turn, charges, deadline).await?;
        // Slots may be released long before their leases end, so for them no wait is known to be too long.
        let foreseeable = !charges.iter().any(|charge| matches!(charge.limit.algorithm(), Algorithm::Concurrency(_)));
        while !is_in_vain && turn.reached_before(&self.clock, deadline).await {
            let given_back = self.turnstiles.given_back();
            turn.asks();
            let decision = self.decide(charges).await?;
            if decision.allowed {
                // The next may ask now; this one only has its delay to sit out.
                drop(turn);
                return Ok((self.sit_out(charges, decision, deadline).await?, first));
            }
            turn.denied();
            // From now on by this clock: `decision.at` may be by another.
            let now = self.clock.now();
            let Some(wait) = decision.retry_after() else { return Ok((decision, turn.position())) };
            let due = now.plus(wait.max(Micros::from_micros(1)));
            // Who may enter a queue by then may leave it too late.
            let waits = charges.iter().zip(&decision.outcomes);
            let waits = waits.map(|(charge, outcome)| least_wait(charge.limit, charge.cost, charge.cost, outcome));
            let through = now.plus(waits.max().unwrap_or(wait)).max(due);
            if through > deadline && (foreseeable || now >= deadline) {
                return Ok((decision, turn.position()));
            }
            either(self.clock.sleep_until(due.min(deadline)), either(given_back, turn.taken())).await;
        }
        let position = turn.position();
        drop(turn);
        self.peek(charges).await.map(|decision| (as_denied(decision), position))
    }

    /// Whether it is certain that those ahead take longer than there is time. What is known of them holds only if none
    /// of them asked or left meanwhile.
    async fn is_in_vain(&self, turn: &Turn<'_>, charges: &[Charge<'_>], deadline: Timestamp) -> Result<bool, S::Error> {
        loop {
            let ahead = turn.ahead();
            let is_behind = ahead.cost.iter().any(|cost| *cost > 0);
            if !is_behind || self.least_wait(charges, &ahead.cost).await? <= deadline.since(self.clock.now()) {
                return Ok(false);
            }
            if turn.is_as_it_was(&ahead) {
                return Ok(true);
            }
        }
    }

    /// How long it takes at least until all of `charges` are admitted after those that cost so much.
    async fn least_wait(&self, charges: &[Charge<'_>], ahead: &[u64]) -> Result<Micros, S::Error> {
        let all = || charges.iter().zip(ahead).map(|(charge, ahead)| charge.cost.saturating_add(*ahead));
        let mut asked: SmallVec<[Charge<'_>; 3]> = charges.iter().copied().collect();
        asked.iter_mut().zip(all()).for_each(|(charge, all)| charge.cost = probe(charge.limit, charge.cost, all));
        let outcomes = self.peek(&asked).await?.outcomes;
        let waits = asked.iter().zip(&outcomes).zip(all());
        let waits = waits.map(|((asked, outcome), all)| least_wait(asked.limit, all, asked.cost, outcome));
        Ok(waits.max().unwrap_or(Micros::ZERO))
    }

    async fn sit_out(
        &self,
        charges: &[Charge<'_>],
        decision: Decision,
        deadline: Timestamp,
    ) -> Result<Decision, S::Error> {
        if decision.delay().is_zero() {
            return Ok(decision);
        }
        let due = self.clock.now().plus(decision.delay());
        if due > deadline {
            self.give_back(charges, &decision).await?;
            return self.peek(charges).await.map(as_denied);
        }
        self.clock.sleep_until(due).await;
        Ok(decision)
    }

    /// Gives back what a decision charged: each charge as of when it could have proceeded by itself.
    async fn give_back(&self, charges: &[Charge<'_>], decision: &Decision) -> Result<(), S::Error> {
        let mut left: Vec<(Charge<'_>, Timestamp)> =
            charges.iter().zip(&decision.outcomes).map(|(charge, outcome)| (*charge, outcome.proceeds_at())).collect();
        while let Some((_, charged_at)) = left.first().copied() {
            // Charges of one counter proceed together, and go back as one.
            let (equal, others): (Vec<_>, Vec<_>) = left.into_iter().partition(|(_, other)| *other == charged_at);
            let equal: Vec<Charge<'_>> = equal.into_iter().map(|(charge, _)| charge).collect();
            self.refund(&equal, charged_at).await?;
            left = others;
        }
        Ok(())
    }

    /// How many stand in line, for whatever.
    pub fn waiting(&self) -> usize {
        self.turnstiles.waiting()
    }

    /// Whether anybody waits for anything: cheap, and to be asked first.
    pub(crate) fn has_waiters(&self) -> bool {
        self.waiting() > 0
    }

    /// Whether somebody waits for these charges.
    pub(crate) fn has_line(&self, charges: &[Charge<'_>]) -> bool {
        self.turnstiles.has_line(charges)
    }

    /// Whoever waits may find room now.
    pub(crate) fn wake_waiters(&self) {
        self.turnstiles.give_back();
    }

    async fn settle(&self, reservation: ReservationId, settlement: Settlement<'_>) -> Result<Settled, S::Error> {
        let settled = self.store.settle(reservation, settlement, self.clock.now()).await;
        self.wake_waiters();
        settled
    }

    async fn apply(&self, charges: &[Charge<'_>], intent: Intent) -> Result<Decision, S::Error> {
        let now = self.clock.now();
        let outcomes = self.store.apply(charges, intent, now).await?;
        if matches!(intent, Intent::Refund { .. }) {
            self.wake_waiters();
        }
        Ok(Decision::new(outcomes, now))
    }
}

/// The answer to someone whose time ran out, whatever could be had by now.
fn as_denied(decision: Decision) -> Decision {
    Decision { allowed: false, ..decision }
}

impl<S: fmt::Debug, C: fmt::Debug> fmt::Debug for Engine<S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("store", &self.store).field("clock", &self.clock).finish_non_exhaustive()
    }
}
