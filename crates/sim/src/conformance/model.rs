//! The naive store: a map behind one lock, states as the core returns them, and nothing clever.
//!
//! It is the measure of every other store and deliberately slow: states are cloned before a stack of charges and put
//! back when one is denied, and reservations are a list that is searched from end to end.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::convert::Infallible;
use std::future::{Future, ready};
use std::sync::{Mutex, PoisonError};

use tollgate::core::{Ask, State};
use tollgate::{
    Charge, Intent, Limit, Micros, Outcome, Outcomes, ReservationId, Settled, Settlement, Store, Timestamp,
};

/// Keeps every state for ever. Honours the time it is given.
#[derive(Default)]
pub struct Model {
    naive: Mutex<Naive>,
}

/// A key's encoding and its limit's lineage.
type Counter = (Vec<u8>, u64);

#[derive(Default)]
struct Naive {
    states: HashMap<Counter, State>,
    open: Vec<Reserved>,
    next_reservation: u64,
}

/// All charges of one call on one counter.
#[derive(Clone)]
struct Asked {
    counter: Counter,
    limit: Limit,
    ask: Ask,
    /// Which charges these are, and the cost of each.
    charges: Vec<(usize, u64)>,
}

struct Reserved {
    id: u64,
    due: Timestamp,
    held: Vec<Held>,
}

struct Held {
    asked: Asked,
    proceeds_at: Timestamp,
}

impl Model {
    /// See [`Store::apply`].
    pub fn apply_all(&self, charges: &[Charge<'_>], intent: Intent, now: Timestamp) -> Outcomes {
        self.with(now, |naive| naive.apply(charges, intent, now).0)
    }

    /// See [`Store::reserve`].
    pub fn reserve_all(
        &self,
        charges: &[Charge<'_>],
        hold: Micros,
        now: Timestamp,
    ) -> (Outcomes, Option<ReservationId>) {
        self.with(now, |naive| naive.reserve(charges, hold, now))
    }

    /// See [`Store::settle`].
    pub fn settle_now(&self, reservation: ReservationId, settlement: Settlement<'_>, now: Timestamp) -> Settled {
        self.with(now, |naive| naive.settle(reservation, settlement, now))
    }

    fn with<R>(&self, now: Timestamp, f: impl FnOnce(&mut Naive) -> R) -> R {
        let mut naive = self.naive.lock().unwrap_or_else(PoisonError::into_inner);
        naive.expire(now);
        f(&mut naive)
    }
}

impl Naive {
    /// The outcomes, and what was asked of each counter with the outcome of that.
    fn apply(
        &mut self,
        charges: &[Charge<'_>],
        intent: Intent,
        now: Timestamp,
    ) -> (Outcomes, Vec<Asked>, Vec<Outcome>) {
        let (asked, counter_of) = add_up(charges, intent, now);
        let before: Vec<State> = asked.iter().map(|asked| self.state(asked).clone()).collect();
        let mut answers: Vec<Outcome> = asked.iter().map(|asked| self.take(asked)).collect();
        if intent == Intent::Spend && answers.iter().any(Outcome::denied) {
            for ((asked, before), answer) in asked.iter().zip(before).zip(&mut answers) {
                *self.state(asked) = before;
                let intent = if answer.allowed { Intent::Peek } else { Intent::Spend };
                *answer = self.take(&Asked { ask: asked.ask.with_intent(intent), ..asked.clone() });
            }
        }
        let outcomes = counter_of.iter().filter_map(|index| answers.get(*index).copied()).collect();
        (outcomes, asked, answers)
    }

    fn reserve(&mut self, charges: &[Charge<'_>], hold: Micros, now: Timestamp) -> (Outcomes, Option<ReservationId>) {
        let own = u64::MAX - self.next_reservation;
        let mut charges = charges.to_vec();
        charges.iter_mut().filter(|charge| charge.lease == 0).for_each(|charge| charge.lease = own);
        let (outcomes, asked, answers) = self.apply(&charges, Intent::Spend, now);
        if outcomes.iter().any(Outcome::denied) {
            return (outcomes, None);
        }
        let held = asked.into_iter().zip(answers);
        let held = held.map(|(asked, answer)| Held { asked, proceeds_at: now.plus(answer.delay) }).collect();
        self.next_reservation += 1;
        self.open.push(Reserved { id: self.next_reservation, due: now.plus(hold), held });
        (outcomes, Some(ReservationId(self.next_reservation)))
    }

    fn settle(&mut self, reservation: ReservationId, settlement: Settlement<'_>, now: Timestamp) -> Settled {
        let Some(index) = self.open.iter().position(|open| open.id == reservation.0) else { return Settled::Unknown };
        for held in self.open.remove(index).held {
            let reserved = held.asked.ask.cost;
            let kept = held.asked.charges.iter().map(|(index, cost)| match settlement {
                Settlement::Commit => *cost,
                Settlement::CommitActual(actual) => actual.get(*index).copied().unwrap_or(*cost),
                Settlement::Cancel => 0,
            });
            let kept = kept.fold(0, u64::saturating_add);
            self.give_back(&held, reserved.saturating_sub(kept), now);
            self.take(&held.asked.later(kept.saturating_sub(reserved), Intent::Force, now));
        }
        Settled::Done
    }

    /// Whoever could proceed last gives back first, so that all places of a queue are free again.
    fn expire(&mut self, now: Timestamp) {
        let (expired, open) = std::mem::take(&mut self.open).into_iter().partition(|open| open.due <= now);
        self.open = open;
        let expired: Vec<Reserved> = expired;
        let mut held: Vec<Held> = expired.into_iter().flat_map(|reserved| reserved.held).collect();
        held.sort_by_key(|held| Reverse(held.proceeds_at));
        held.iter().for_each(|held| self.give_back(held, held.asked.ask.cost, now));
    }

    fn give_back(&mut self, held: &Held, cost: u64, now: Timestamp) {
        self.take(&held.asked.later(cost, Intent::Refund { charged_at: held.proceeds_at }, now));
    }

    fn take(&mut self, asked: &Asked) -> Outcome {
        asked.limit.apply(self.state(asked), &asked.ask)
    }

    fn state(&mut self, asked: &Asked) -> &mut State {
        self.states.entry(asked.counter.clone()).or_default()
    }
}

impl Asked {
    fn later(&self, cost: u64, intent: Intent, now: Timestamp) -> Self {
        Self { ask: Ask { cost, intent, now, ..self.ask }, ..self.clone() }
    }
}

/// What is asked of each counter in all, and which of them each charge is counted on.
fn add_up(charges: &[Charge<'_>], intent: Intent, now: Timestamp) -> (Vec<Asked>, Vec<usize>) {
    let (mut all, mut counter_of) = (Vec::<Asked>::new(), Vec::new());
    for (number, charge) in charges.iter().enumerate() {
        let mut encoded = Vec::new();
        charge.key.encode(&mut encoded);
        let counter = (encoded, charge.limit.lineage());
        let known = all.iter().position(|asked| asked.counter == counter);
        match known.and_then(|index| all.get_mut(index)) {
            Some(asked) => {
                asked.ask.cost = asked.ask.cost.saturating_add(charge.cost);
                asked.charges.push((number, charge.cost));
            }
            None => {
                let ask = Ask { cost: charge.cost, intent, now, phase: charge.key.phase(), lease: charge.lease };
                all.push(Asked { counter, limit: charge.limit.clone(), ask, charges: vec![(number, charge.cost)] });
            }
        }
        counter_of.push(known.unwrap_or(all.len() - 1));
    }
    (all, counter_of)
}

impl Store for Model {
    type Error = Infallible;

    fn apply(
        &self,
        charges: &[Charge<'_>],
        intent: Intent,
        now: Timestamp,
    ) -> impl Future<Output = Result<Outcomes, Infallible>> + Send {
        ready(Ok(self.apply_all(charges, intent, now)))
    }

    fn apply_each(
        &self,
        charges: &[Charge<'_>],
        intent: Intent,
        now: Timestamp,
    ) -> impl Future<Output = Result<Vec<Outcome>, Infallible>> + Send {
        let each = charges.iter().flat_map(|charge| self.apply_all(std::slice::from_ref(charge), intent, now));
        ready(Ok(each.collect()))
    }

    fn reserve(
        &self,
        charges: &[Charge<'_>],
        hold: Micros,
        now: Timestamp,
    ) -> impl Future<Output = Result<(Outcomes, Option<ReservationId>), Infallible>> + Send {
        ready(Ok(self.reserve_all(charges, hold, now)))
    }

    fn settle(
        &self,
        reservation: ReservationId,
        settlement: Settlement<'_>,
        now: Timestamp,
    ) -> impl Future<Output = Result<Settled, Infallible>> + Send {
        ready(Ok(self.settle_now(reservation, settlement, now)))
    }
}
