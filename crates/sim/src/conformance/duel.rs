//! A store and the model, asked the same.
//!
//! Each call goes to both; the first answer that differs ends the case with a transcript of what led to it.

use std::collections::VecDeque;
use std::fmt::Write;

use tollgate::{Charge, Intent, Micros, Outcome, Outcomes, ReservationId, Settled, Settlement, Store, Timestamp};

use super::{Kept, Maker, Model, Time};

/// How many calls are shown when answers differ.
const REMEMBERED: usize = 40;

pub(super) struct Duel<S> {
    pub(super) store: S,
    pub(super) time: Time,
    /// The time of the next call.
    pub(super) now: Timestamp,
    /// What the model answered last.
    pub(super) expected: Vec<Outcome>,
    model: Model,
    past: VecDeque<String>,
}

/// A reservation's names: the store's and the model's.
pub(super) type Names = (ReservationId, ReservationId);

impl<S: Store> Duel<S> {
    pub(super) async fn new(maker: &impl Maker<Store = S>, time: Time) -> Self {
        let store = maker.make().await;
        let (expected, model, past) = (Vec::new(), Model::default(), VecDeque::new());
        Self { store, time, now: time.start(), expected, model, past }
    }

    pub(super) fn pass(&mut self, span: Micros) {
        self.now = self.now.plus(span);
    }

    pub(super) async fn spend(&mut self, charges: &[Charge<'_>]) -> Result<Outcomes, String> {
        self.apply(charges, Intent::Spend).await
    }

    pub(super) async fn peek(&mut self, charges: &[Charge<'_>]) -> Result<Outcomes, String> {
        self.apply(charges, Intent::Peek).await
    }

    /// One charge, and its one outcome.
    pub(super) async fn one(&mut self, charge: Charge<'_>, intent: Intent) -> Result<Outcome, String> {
        self.apply(&[charge], intent).await?.first().copied().ok_or_else(|| "no outcome for one charge".to_owned())
    }

    pub(super) async fn apply(&mut self, charges: &[Charge<'_>], intent: Intent) -> Result<Outcomes, String> {
        self.apply_both(charges, intent, intent).await
    }

    /// Gives a charge back that could proceed at one time by the store and at another by the model.
    pub(super) async fn give_back(&mut self, charge: Charge<'_>, charged_at: (Timestamp, Timestamp)) -> Kept {
        let [stored, modelled] = [charged_at.0, charged_at.1].map(|charged_at| Intent::Refund { charged_at });
        self.apply_both(&[charge], stored, modelled).await.map(|_| ())
    }

    async fn apply_both(
        &mut self,
        charges: &[Charge<'_>],
        of_store: Intent,
        of_model: Intent,
    ) -> Result<Outcomes, String> {
        let answered = self.store.apply(charges, of_store, self.now).await.map_err(failed)?;
        self.expected = self.model.apply_all(charges, of_model, self.now).into_vec();
        self.note(&format!("{of_model:?}"), charges);
        self.compare(charges, &answered, &self.expected)?;
        Ok(answered)
    }

    pub(super) async fn apply_each(&mut self, charges: &[Charge<'_>], intent: Intent) -> Result<Vec<Outcome>, String> {
        let answered = self.store.apply_each(charges, intent, self.now).await.map_err(failed)?;
        let expected = self.model.apply_each(charges, intent, self.now).await.map_err(failed)?;
        self.note(&format!("{intent:?} each"), charges);
        self.compare(charges, &answered, &expected)?;
        Ok(answered)
    }

    pub(super) async fn reserve(
        &mut self,
        charges: &[Charge<'_>],
        hold: Micros,
    ) -> Result<(Outcomes, Option<Names>), String> {
        let (answered, name) = self.store.reserve(charges, hold, self.now).await.map_err(failed)?;
        let (expected, model_name) = self.model.reserve_all(charges, hold, self.now);
        self.note(&format!("reserve for {hold}"), charges);
        self.compare(charges, &answered, &expected)?;
        match (name, model_name) {
            (Some(name), Some(model_name)) => Ok((answered, Some((name, model_name)))),
            (None, None) => Ok((answered, None)),
            (name, _) => Err(self.differs(&format!("all admitted and reserved are two things: {name:?}"))),
        }
    }

    pub(super) async fn settle(&mut self, names: Names, settlement: Settlement<'_>) -> Result<Settled, String> {
        let answered = self.store.settle(names.0, settlement, self.now).await.map_err(failed)?;
        let expected = self.model.settle_now(names.1, settlement, self.now);
        self.note(&format!("{settlement:?} of reservation {}", names.1.0), &[]);
        if answered == expected {
            return Ok(answered);
        }
        Err(self.differs(&format!("the store answers {answered:?}, the model {expected:?}")))
    }

    fn compare(&self, charges: &[Charge<'_>], answered: &[Outcome], expected: &[Outcome]) -> Kept {
        if answered.len() != charges.len() {
            return Err(self.differs(&format!("{} outcomes for {} charges", answered.len(), charges.len())));
        }
        for (index, (answered, expected)) in answered.iter().zip(expected).enumerate() {
            if !same(self.time, answered, expected) {
                let limit = charges.get(index).map(|charge| charge.limit.algorithm());
                let text = format!("charge {index} under {limit:?}\n   store {answered:?}\n   model {expected:?}");
                return Err(self.differs(&text));
            }
        }
        Ok(())
    }

    fn note(&mut self, what: &str, charges: &[Charge<'_>]) {
        let mut line = format!("{} {what}", self.now.as_micros());
        for Charge { key, cost, lease, .. } in charges.iter().take(8) {
            let name: Vec<_> = key.values.iter().map(|value| String::from_utf8_lossy(short(value))).collect();
            // Writing to a string cannot fail.
            let _ = write!(line, ", {cost} of limit {} for {name:?} (lease {lease})", key.limit);
        }
        self.past.truncate(REMEMBERED - 1);
        self.past.push_front(line);
    }

    fn differs(&self, text: &str) -> String {
        self.past.iter().fold(format!("{text}\nlatest calls first:\n"), |all, line| all + "   " + line + "\n")
    }
}

fn short(value: &[u8]) -> &[u8] {
    value.get(..40).unwrap_or(value)
}

pub(super) fn failed(error: impl std::error::Error) -> String {
    format!("the store failed: {error}")
}

/// Whether two answers are the same, as far as they can be when a store has its own time.
pub(super) fn same(time: Time, a: &Outcome, b: &Outcome) -> bool {
    let timeless = |outcome: &Outcome| {
        let Outcome { allowed, limit, remaining, retry_after, delay, overage, shared, .. } = *outcome;
        (allowed, limit, remaining, overage, shared, retry_after.map(Micros::is_zero), delay.is_zero())
    };
    match time {
        Time::Given => a == b,
        Time::Own => timeless(a) == timeless(b),
    }
}
