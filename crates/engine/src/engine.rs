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

    /// Waits until all of `charges` are admitted, at most `longest`. Who waits for the same counter is served in the
    /// order of arrival, whatever else it is charged. If it can be seen that the time will not do, also for those ahead
    /// in the line, the denial comes at once; so it does for the next while 10,000 wait. What is given back through this
    /// engine meanwhile (a slot, a refund, a reservation) wakes whoever can use it.
    ///
    /// Who has to wait for several counters stands in the line of the one that takes longest, and goes to the end of
    /// another's line when that one denies it longer.
    ///
    /// Dropping the future gives up the place, and nothing is charged. Only who already has a departure from a queue
    /// and sits out the delay is past that: it stays charged.
    pub async fn wait(&self, charges: &[Charge<'_>], longest: impl Into<Micros>) -> Result<Decision, S::Error> {
        self.wait_in_line(charges, Queueing::in_order(longest)).await.map(|(decision, _)| decision)
    }

    /// The same in lines that are kept as `how` says, and the place in the last of them, from one: of who is allowed,
    /// the one that it had when it came; of who is denied, the one that it left.
    pub async fn wait_in_line(&self, charges: &[Charge<'_>], how: Queueing) -> Result<(Decision, usize), S::Error> {
        self.wait_where(charges, |_| Some(how)).await
    }

    /// The same where each charge, by its number, is waited for in its own way, or not at all: what such a one denies
    /// is denied at once. Nor may more stand in a line than such a one has room for, or somebody who is about to be
    /// denied would keep others out.
    pub(crate) async fn wait_where(
        &self,
        charges: &[Charge<'_>],
        how: impl Fn(usize) -> Option<Queueing>,
    ) -> Result<(Decision, usize), S::Error> {
        let begun = self.clock.now();
        let ways: SmallVec<[Option<Queueing>; 3]> = (0..charges.len()).map(how).collect();
        let waited_for = || charges.iter().enumerate().filter(|(at, _)| ways.get(*at).is_some_and(Option::is_some));
        // Nobody is overtaken who waits already.
        let first = waited_for().find(|(_, charge)| self.turnstiles.has_line(charge)).or_else(|| waited_for().next());
        let mut line = first.and_then(|(at, _)| Some((at, ways.get(at).copied()??)));
        while let Some((at, how)) = line {
            let deadline = begun.plus(how.longest);
            let turn = match self.turnstiles.enter(charges, at, how) {
                Ok(turn) => turn,
                Err(TooMany { position }) => {
                    return self.peek(charges).await.map(|decision| (as_denied(decision), position));
                }
            };
            match self.stand(turn, charges, &ways, (at, how), deadline).await? {
                Stood::Through(decision, position) => {
                    // The next may ask already; this one only has its delay to sit out.
                    return Ok((self.sit_out(charges, decision, deadline).await?, position));
                }
                Stood::Denied(decision, position) => return Ok((decision, position)),
                Stood::Elsewhere(next) => line = ways.get(next).copied().flatten().map(|how| (next, how)),
            }
        }
        self.decide(charges).await.map(|decision| (decision, 1))
    }

    /// Stands in the line of the charge at `at`.
    async fn stand(
        &self,
        turn: Turn<'_>,
        charges: &[Charge<'_>],
        ways: &[Option<Queueing>],
        (at, how): (usize, Queueing),
        deadline: Timestamp,
    ) -> Result<Stood, S::Error> {
        let first = turn.position();
        if let Some(decision) = self.hopeless(&turn, charges, ways, deadline).await? {
            return Ok(Stood::Denied(decision, turn.position()));
        }
        turn.stay(how);
        // Slots may be released long before their leases end, so for them no wait is known to be too long.
        let foreseeable = !charges.iter().any(|charge| matches!(charge.limit.algorithm(), Algorithm::Concurrency(_)));
        while turn.reached_before(&self.clock, deadline).await {
            let given_back = self.turnstiles.given_back();
            turn.asks();
            let decision = self.decide(charges).await?;
            if decision.allowed {
                return Ok(Stood::Through(decision, first));
            }
            turn.denied();
            // From now on by this clock: `decision.at` may be by another.
            let now = self.clock.now();
            let Some(wait) = decision.retry_after() else { return Ok(Stood::Denied(decision, turn.position())) };
            if is_denied_at_once(&decision, ways) {
                return Ok(Stood::Denied(decision, turn.position()));
            }
            // Who waits for another counter keeps nobody waiting here.
            if let Some(other) = decision.binding().filter(|other| *other != at) {
                return Ok(Stood::Elsewhere(other));
            }
            let due = now.plus(wait.max(Micros::from_micros(1)));
            // Who may enter a queue by then may leave it too late.
            let waits = charges.iter().zip(&decision.outcomes);
            let waits = waits.map(|(charge, outcome)| least_wait(charge.limit, charge.cost, charge.cost, outcome));
            let through = now.plus(waits.max().unwrap_or(wait)).max(due);
            if through > deadline && (foreseeable || now >= deadline) {
                return Ok(Stood::Denied(decision, turn.position()));
            }
            either(self.clock.sleep_until(due.min(deadline)), either(given_back, turn.taken())).await;
        }
        let position = turn.position();
        drop(turn);
        self.peek(charges).await.map(|decision| Stood::Denied(as_denied(decision), position))
    }

    /// The denial of whoever has just come and need not wait for it: it is certain that those ahead take longer than
    /// there is time, or that there is no room for it beside the others where nobody waits for any. What is known of
    /// the others holds only if none of them asked or left meanwhile.
    async fn hopeless(
        &self,
        turn: &Turn<'_>,
        charges: &[Charge<'_>],
        ways: &[Option<Queueing>],
        deadline: Timestamp,
    ) -> Result<Option<Decision>, S::Error> {
        loop {
            let company = turn.company();
            let is_behind = company.ahead.iter().any(|cost| *cost > 0);
            let mut at_once = company.all.iter().zip(ways).filter(|(_, way)| way.is_none()).map(|(others, _)| *others);
            // Whoever has the turn is about to hear it in any case.
            let is_told = if turn.has_turn() { at_once.all(|others| others == 0) } else { at_once.next().is_none() };
            if !is_behind && is_told {
                return Ok(None);
            }
            let mut asked: SmallVec<[Charge<'_>; 3]> = charges.iter().copied().collect();
            let all = |at: usize, costs: &[u64]| {
                let own = charges.get(at).map_or(0, |charge| charge.cost);
                own.saturating_add(costs.get(at).copied().unwrap_or(0))
            };
            for (at, charge) in asked.iter_mut().enumerate() {
                charge.cost = match ways.get(at) {
                    Some(Some(_)) => probe(charge.limit, charge.cost, all(at, &company.ahead)),
                    _ => all(at, &company.all),
                };
            }
            let outcomes = self.peek(&asked).await?;
            let is_crowded = is_denied_at_once(&outcomes, ways);
            let waits = asked.iter().zip(&outcomes.outcomes).enumerate().filter(|(at, _)| ways.get(*at) != Some(&None));
            let waits = waits
                .map(|(at, (asked, outcome))| least_wait(asked.limit, all(at, &company.ahead), asked.cost, outcome));
            let least = waits.max().unwrap_or(Micros::ZERO);
            let is_late = is_behind && least > deadline.since(self.clock.now());
            if !is_crowded && !is_late {
                return Ok(None);
            }
            if turn.is_as_it_was(&company) {
                let decision = self.peek(charges).await?;
                return Ok(Some(if is_crowded {
                    denied_where(decision, &outcomes, ways, least)
                } else {
                    as_denied(decision)
                }));
            }
        }
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

    /// Whether somebody waits for this counter.
    pub(crate) fn has_line(&self, charge: &Charge<'_>) -> bool {
        self.turnstiles.has_line(charge)
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

/// How standing in a line ended.
enum Stood {
    /// Allowed, with the place that it had when it came.
    Through(Decision, usize),
    /// With the place that it left.
    Denied(Decision, usize),
    /// It is the charge of this number that it has to wait for.
    Elsewhere(usize),
}

/// Whether a charge denies that nobody waits for.
fn is_denied_at_once(decision: &Decision, ways: &[Option<Queueing>]) -> bool {
    decision.outcomes.iter().zip(ways).any(|(outcome, way)| way.is_none() && outcome.denied())
}

/// The same, denied by those charges that nobody waits for and that deny it together with the others in line. Where
/// these are more than could ever pass together, until those ahead have gone, `least` from now.
fn denied_where(mut decision: Decision, together: &Decision, ways: &[Option<Queueing>], least: Micros) -> Decision {
    let least = least.max(Micros::from_millis(1));
    for ((outcome, together), way) in decision.outcomes.iter_mut().zip(&together.outcomes).zip(ways) {
        if way.is_none() && together.denied() {
            outcome.allowed = false;
            outcome.retry_after = together.retry_after.or(outcome.retry_after.map(|own| own.max(least)));
        }
    }
    as_denied(decision)
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
