//! Denials that are still true, answered without asking again.
//!
//! Whoever floods a limit is denied again and again, and each of these answers could be known from the one before:
//! until `retry_after` is over, the same cost is denied again. So the flood ends here, and the shared store hears of it
//! once a second.
//!
//! **What is repeated is exact.** A charge of one unit gets what the store would have said, with its waits shortened by the time that has
//! passed since the answer came: never too short, and longer than the store's by no more than that answer took. Of a
//! larger cost the denial is exact, and what remains is told as it was: tokens that have come in meanwhile, too few for
//! the cost, are not added up here. So it is with the other limits of the same call, and with rules that only watch it.
//!
//! **When it is forgotten.** What lifts a limit before its time is a refund, a reservation that is given back or lapses, or another rule.
//! Through this server each of them takes effect at once: an answer is repeated only for the very limit it was given
//! for, only if nothing was given back to any of its keys since, and not beyond the end of what is held of them. What
//! another server gives back, or a refund that nobody knows the fate of, is not heard of here, which is why nothing is
//! repeated for longer than a second.
//!
//! **What is never repeated**: that slots are taken, since they come back at any time; and what may change by itself, with limits that record
//! what they deny, and soft ones for larger costs.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};

use tollgate_core::{Algorithm, Intent, Micros, Outcome, Timestamp};

use crate::charge::{Charge, Outcomes};
use crate::clock::{Clock, SystemClock};
use crate::held::{Held, Parts};
use crate::memory::KeyHasher;
use crate::store::{ReservationId, Settled, Settlement, Store};
use crate::sync::Lock;
use crate::sync::atomic::{AtomicU64, Ordering};

/// A denial is repeated for so long at most.
const LONGEST: Micros = Micros::SECOND;
/// How many places denials are kept in, each behind a lock.
const PLACES: usize = 64;
/// How many are kept in one place.
const PER_PLACE: usize = 1_024;
/// Keys are told apart this well when something is given back: others in the same part lose their denials as well.
const PARTS: usize = 1_024;

/// A store behind its own denials.
pub struct Denials<S, C = SystemClock> {
    store: S,
    /// Says when an answer came.
    clock: C,
    keys: KeyHasher,
    limits: RandomState,
    places: Box<[Lock<Place>]>,
    parts: Box<[Part]>,
    /// How often something was given back to nobody knows which.
    settled: Part,
    held: Held,
    repeated: AtomicU64,
}

/// What is known of some of the keys.
#[derive(Default)]
struct Part {
    /// How often something was given back to one of them.
    given_back: AtomicU64,
    /// From when on and until when something that is held of them may lapse, in microseconds.
    first_due: AtomicU64,
    last_due: AtomicU64,
}

impl Part {
    fn forget(&self) {
        self.given_back.fetch_add(1, Ordering::Release);
    }

    /// Something may be given back between `from` and [`LONGEST`] after it, by the store's clock.
    fn expect(&self, from: Timestamp, now: Timestamp) {
        let earlier = |first: u64| {
            let is_over = self.last_due.load(Ordering::Acquire) <= now.as_micros();
            Some(if is_over { from.as_micros() } else { first.min(from.as_micros()) })
        };
        let _ = self.first_due.fetch_update(Ordering::AcqRel, Ordering::Acquire, earlier);
        self.last_due.fetch_max(from.plus(LONGEST).as_micros(), Ordering::AcqRel);
    }

    /// Until when nothing lapses.
    fn calm_until(&self, now: Timestamp) -> Timestamp {
        let (first, last) = (self.first_due.load(Ordering::Acquire), self.last_due.load(Ordering::Acquire));
        match now.as_micros() {
            now if now >= last => Timestamp::MAX,
            at if at >= first => now,
            _ => Timestamp::from_micros(first),
        }
    }
}

#[derive(Default)]
struct Place {
    denials: HashMap<u128, Denial>,
    /// Before this there is no use in looking for one that is over.
    full_until: Timestamp,
}

struct Denial {
    outcomes: Box<[Outcome]>,
    /// By this server's clock, before the store was asked: it cannot have answered earlier.
    asked_at: Timestamp,
    answered_at: Timestamp,
    until: Timestamp,
    version: u64,
}

impl Denial {
    /// What the store would say `now`.
    fn repeat(&self, now: Timestamp) -> Outcomes {
        let passed = now.since(self.answered_at);
        let later = |outcome: &Outcome| Outcome {
            at: outcome.at.plus(passed),
            retry_after: outcome.retry_after.map(|wait| wait.minus(passed)),
            reset_after: outcome.reset_after.minus(passed),
            ..*outcome
        };
        self.outcomes.iter().map(later).collect()
    }
}

/// A question that may be answered by an earlier denial.
struct Question {
    name: u128,
    version: u64,
}

impl<S: Store> Denials<S> {
    /// Remembers what `store` denies.
    pub fn new(store: S) -> Self {
        Self::with_clock(store, SystemClock::new())
    }
}

impl<S: Store, C: Clock> Denials<S, C> {
    /// The same on a clock of your own.
    pub fn with_clock(store: S, clock: C) -> Self {
        Self {
            store,
            clock,
            keys: KeyHasher::random(),
            limits: RandomState::new(),
            places: (0..PLACES).map(|_| Lock::new(Place::default())).collect(),
            parts: (0..PARTS).map(|_| Part::default()).collect(),
            settled: Part::default(),
            held: Held::default(),
            repeated: AtomicU64::new(0),
        }
    }

    /// The store behind it.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// How many answers the store was not asked for.
    pub fn repeated(&self) -> u64 {
        self.repeated.load(Ordering::Relaxed)
    }

    /// Names what is asked: every charge by its counter, its limit in every detail, and its cost. `None` if a denial
    /// could not be repeated.
    fn question(&self, charges: &[Charge<'_>]) -> Option<Question> {
        let (mut name, mut version) = (charges.len() as u128, self.settled.given_back.load(Ordering::Acquire));
        for charge in charges {
            if is_fickle(charge) {
                return None;
            }
            let entity = self.keys.entity(&charge.key);
            name = self.named(name, charge, entity);
            version = version.wrapping_add(self.part(entity).map_or(0, |part| part.given_back.load(Ordering::Acquire)));
        }
        Some(Question { name, version })
    }

    /// The same with what is only looked at after a denial of `first`, and told as it was while that is repeated.
    fn question_in_turn(&self, first: &[Charge<'_>], later: &[&[Charge<'_>]]) -> Option<Question> {
        let mut question = self.question(first)?;
        for charges in later {
            question.name = question.name.wrapping_add(1 + charges.len() as u128);
            for charge in *charges {
                question.name = self.named(question.name, charge, self.keys.entity(&charge.key));
            }
        }
        Some(question)
    }

    /// A name that goes on with a charge.
    fn named(&self, name: u128, charge: &Charge<'_>, entity: u128) -> u128 {
        let counter = self.keys.counter(entity, &charge.key, charge.limit.lineage());
        let limit = self.limits.hash_one((charge.limit.algorithm(), charge.limit.softness()));
        self.keys.chain_on(name, [counter.high, counter.low, charge.cost, limit])
    }

    fn part(&self, entity: u128) -> Option<&Part> {
        self.parts.get(usize::from(number_of_part(entity)))
    }

    fn parts_of(&self, charges: &[Charge<'_>]) -> impl Iterator<Item = &Part> {
        charges.iter().filter_map(|charge| self.part(self.keys.entity(&charge.key)))
    }

    fn place(&self, question: &Question) -> Option<&Lock<Place>> {
        self.places.get((question.name >> 64) as usize % PLACES)
    }

    /// What was denied and is denied still.
    fn recall(&self, question: &Question, now: Timestamp) -> Option<Outcomes> {
        let mut place = self.place(question)?.lock();
        let denial = place.denials.get(&question.name)?;
        if denial.version != question.version || !(denial.asked_at..denial.until).contains(&now) {
            place.denials.remove(&question.name);
            return None;
        }
        let outcomes = denial.repeat(now);
        drop(place);
        self.repeated.fetch_add(1, Ordering::Relaxed);
        Some(outcomes)
    }

    /// Takes note of an answer, if it is a denial that can be repeated. After the outcomes of `charges` there may be
    /// others, to be told with them.
    fn note(&self, question: &Question, charges: &[Charge<'_>], outcomes: &[Outcome], asked_at: Timestamp) {
        let mut wait = LONGEST;
        let mut is_denied = false;
        for (charge, outcome) in charges.iter().zip(outcomes).filter(|(_, outcome)| outcome.denied()) {
            if matches!(charge.limit.algorithm(), Algorithm::Concurrency(_)) {
                return;
            }
            is_denied = true;
            // What can never be admitted is denied as long as you like, but a window that is over says other things.
            let never = if outcome.reset_after.is_zero() { LONGEST } else { outcome.reset_after };
            wait = wait.min(outcome.retry_after.unwrap_or(never));
        }
        let parts = self.parts_of(charges).chain([&self.settled]);
        let calm_until = parts.map(|part| part.calm_until(asked_at)).min().unwrap_or(asked_at);
        let until = asked_at.plus(wait).min(calm_until);
        // What could not be asked beside a denial may be known the next time.
        if !is_denied || until <= asked_at || outcomes.iter().any(|outcome| outcome.alone) {
            return;
        }
        let Some(place) = self.place(question) else { return };
        let mut place = place.lock();
        if place.denials.len() >= PER_PLACE && !place.denials.contains_key(&question.name) {
            if asked_at < place.full_until {
                return;
            }
            place.denials.retain(|_, denial| asked_at < denial.until);
            if place.denials.len() >= PER_PLACE {
                place.full_until = place.denials.values().map(|denial| denial.until).min().unwrap_or(asked_at);
                return;
            }
        }
        let answered_at = self.clock.now().max(asked_at);
        let denial = Denial { outcomes: outcomes.into(), asked_at, answered_at, until, version: question.version };
        place.denials.insert(question.name, denial);
    }

    /// Takes note of what became of a spend. Of charges that live apart, some may have been charged in vain and given
    /// back: whoever was denied for it meanwhile may be admitted now.
    fn note_spent<E>(
        &self,
        question: Option<&Question>,
        charges: &[Charge<'_>],
        answer: Result<&[Outcome], &E>,
        asked_at: Timestamp,
    ) {
        let outcomes = answer.unwrap_or_default();
        let passed = answer.is_ok() && charges.iter().zip(outcomes).all(|(_, outcome)| outcome.allowed);
        let home = |charge: &Charge<'_>| self.store.home(charge);
        let is_apart =
            |charges: &[Charge<'_>]| charges.windows(2).any(|pair| pair.first().map(home) != pair.last().map(home));
        let mut version = question.map_or(0, |question| question.version);
        if !passed && is_apart(charges) {
            let denied = charges.iter().zip(outcomes).filter(|(_, outcome)| outcome.denied());
            let at_denied: Vec<u64> = denied.map(|(charge, _)| home(charge)).collect();
            for charge in charges.iter().filter(|charge| !at_denied.contains(&home(charge))) {
                let Some(part) = self.part(self.keys.entity(&charge.key)) else { continue };
                part.forget();
                // What is forgotten by this answer itself does not make it old.
                let same = self.parts_of(charges).filter(|other| std::ptr::eq(*other, part)).count();
                version = version.wrapping_add(same as u64);
            }
        }
        if let (Ok(outcomes), Some(question)) = (answer, question) {
            self.note(&Question { version, ..*question }, charges, outcomes, asked_at);
        }
    }

    /// What is held of the keys of `charges` lapses unless it is settled before.
    fn expect(&self, charges: &[Charge<'_>], hold: Micros, now: Timestamp) {
        self.parts_of(charges).for_each(|part| part.expect(now.plus(hold), now));
    }

    /// Forgets what is denied to the keys of `charges`, now and when this is dropped: whoever asks after this one is
    /// asked after it, and what was asked before may have been decided before.
    fn forget<'d>(&'d self, charges: &[Charge<'_>], now: Timestamp) -> Forget<'d> {
        Forget::new(self.parts_of(charges).collect(), now)
    }
}

struct Forget<'d> {
    parts: Vec<&'d Part>,
    now: Timestamp,
    is_known: bool,
}

impl<'d> Forget<'d> {
    fn new(parts: Vec<&'d Part>, now: Timestamp) -> Self {
        parts.iter().for_each(|part| part.forget());
        Self { parts, now, is_known: false }
    }

    /// Forgets only when this is dropped.
    fn later(parts: Vec<&'d Part>, now: Timestamp) -> Self {
        Self { parts, now, is_known: false }
    }

    /// Nothing was given back.
    fn nothing(mut self) {
        self.parts.clear();
    }

    /// It is known what became of the call, if `result` says so.
    fn after<T, E>(self, result: Result<T, E>) -> Result<T, E> {
        self.known(result.is_ok());
        result
    }

    /// Whether it is known what became of the call.
    fn known(mut self, is_known: bool) {
        self.is_known = is_known;
    }
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        for part in &self.parts {
            if !self.is_known {
                // It was given up, and may still be carried out.
                part.expect(self.now, self.now);
            }
            part.forget();
        }
    }
}

/// Which part a key is in.
fn number_of_part(entity: u128) -> u16 {
    // Below `PARTS`.
    (entity as usize % PARTS) as u16
}

/// Whether a denial may not be the same the second time.
fn is_fickle(charge: &Charge<'_>) -> bool {
    match charge.limit.algorithm() {
        Algorithm::FixedWindow(window) if window.record_rejected => true,
        Algorithm::SlidingLog(log) if log.record_rejected => true,
        // A smaller request that is within a soft limit ends its being exceeded, and larger ones may exceed it again.
        _ => charge.limit.softness().is_some() && charge.cost > 1,
    }
}

impl<S: Store, C: Clock> Store for Denials<S, C> {
    type Error = S::Error;

    async fn apply(&self, charges: &[Charge<'_>], intent: Intent, now: Timestamp) -> Result<Outcomes, S::Error> {
        match intent {
            Intent::Spend => {
                let question = self.question(charges);
                if let Some(outcomes) = question.as_ref().and_then(|question| self.recall(question, now)) {
                    return Ok(outcomes);
                }
                let answer = self.store.apply(charges, intent, now).await;
                self.note_spent(question.as_ref(), charges, answer.as_deref(), now);
                answer
            }
            Intent::Peek => self.store.apply(charges, intent, now).await,
            Intent::Force | Intent::Refund { .. } | Intent::Renew => {
                let forget = self.forget(charges, now);
                forget.after(self.store.apply(charges, intent, now).await)
            }
        }
    }

    /// A denial that is repeated changes nothing, so it is at hand.
    fn apply_now(&self, charges: &[Charge<'_>], intent: Intent, now: Timestamp) -> Option<Result<Outcomes, S::Error>> {
        if intent != Intent::Spend {
            return None;
        }
        self.recall(&self.question(charges)?, now).map(Ok)
    }

    async fn apply_in_turn(
        &self,
        first: &[Charge<'_>],
        later: &[&[Charge<'_>]],
        intent: Intent,
        now: Timestamp,
    ) -> Vec<Result<Outcomes, S::Error>> {
        if matches!(intent, Intent::Force | Intent::Refund { .. } | Intent::Renew) {
            let all: Vec<Charge<'_>> = first.iter().chain(later.iter().copied().flatten()).copied().collect();
            let forget = self.forget(&all, now);
            let answers = self.store.apply_in_turn(first, later, intent, now).await;
            forget.known(answers.len() > later.len() && answers.iter().all(Result::is_ok));
            return answers;
        }
        if intent == Intent::Peek {
            return self.store.apply_in_turn(first, later, intent, now).await;
        }
        let question = self.question_in_turn(first, later);
        if let Some(known) = question.as_ref().and_then(|question| self.recall(question, now)) {
            let mut known = known.into_iter();
            let lengths = std::iter::once(first.len()).chain(later.iter().map(|charges| charges.len()));
            return lengths.map(|length| Ok(known.by_ref().take(length).collect())).collect();
        }
        let answers = self.store.apply_in_turn(first, later, intent, now).await;
        let is_whole = answers.len() > later.len() && answers.iter().all(Result::is_ok);
        let outcomes: Outcomes = answers.iter().flatten().flatten().copied().collect();
        if let Some(answer) = answers.first() {
            let told = answer.as_ref().map(|_| &*outcomes);
            self.note_spent(question.as_ref().filter(|_| is_whole), first, told, now);
        }
        answers
    }

    fn home(&self, charge: &Charge<'_>) -> u64 {
        self.store.home(charge)
    }

    async fn apply_each(
        &self,
        charges: &[Charge<'_>],
        intent: Intent,
        now: Timestamp,
    ) -> Result<Vec<Outcome>, S::Error> {
        if intent == Intent::Peek {
            return self.store.apply_each(charges, intent, now).await;
        }
        if intent != Intent::Spend {
            let forget = self.forget(charges, now);
            return forget.after(self.store.apply_each(charges, intent, now).await);
        }
        let mut questions = Vec::with_capacity(charges.len());
        let mut known = Vec::with_capacity(charges.len());
        for charge in charges {
            let question = self.question(std::slice::from_ref(charge));
            let recalled = question.as_ref().and_then(|question| self.recall(question, now));
            known.push(recalled.and_then(|outcomes| outcomes.first().copied()));
            questions.push(question);
        }
        let unknown = |index: &usize| known.get(*index).is_some_and(Option::is_none);
        let asked: Vec<usize> = (0..charges.len()).filter(unknown).collect();
        let open: Vec<Charge<'_>> = asked.iter().filter_map(|index| charges.get(*index).copied()).collect();
        if !open.is_empty() {
            let outcomes = self.store.apply_each(&open, intent, now).await?;
            for ((index, charge), outcome) in asked.into_iter().zip(&open).zip(outcomes) {
                if let Some(question) = questions.get(index).and_then(Option::as_ref) {
                    self.note(question, std::slice::from_ref(charge), &[outcome], now);
                }
                if let Some(place) = known.get_mut(index) {
                    *place = Some(outcome);
                }
            }
        }
        Ok(known.into_iter().flatten().collect())
    }

    async fn reserve(
        &self,
        charges: &[Charge<'_>],
        hold: Micros,
        now: Timestamp,
    ) -> Result<(Outcomes, Option<ReservationId>), S::Error> {
        let question = self.question(charges);
        if let Some(outcomes) = question.as_ref().and_then(|question| self.recall(question, now)) {
            return Ok((outcomes, None));
        }
        let reserved = self.store.reserve(charges, hold, now).await;
        self.note_spent(question.as_ref(), charges, reserved.as_ref().map(|(outcomes, _)| &**outcomes), now);
        // What is not known to have failed may be held.
        if !matches!(reserved, Ok((_, None))) {
            self.expect(charges, hold, now);
        }
        if let Ok((_, Some(id))) = &reserved {
            let parts: Parts = charges.iter().map(|charge| number_of_part(self.keys.entity(&charge.key))).collect();
            self.held.add(*id, parts, now.plus(hold).plus(LONGEST), now);
        }
        reserved
    }

    async fn settle(
        &self,
        reservation: ReservationId,
        settlement: Settlement<'_>,
        now: Timestamp,
    ) -> Result<Settled, S::Error> {
        let parts = self.held.find(reservation);
        let forget = match &parts {
            _ if settlement == Settlement::Commit => Forget::new(Vec::new(), now),
            Some(parts) => {
                Forget::new(parts.iter().filter_map(|part| self.parts.get(usize::from(*part))).collect(), now)
            }
            // It was made elsewhere, if at all: on keys that the store alone knows.
            None => Forget::later(vec![&self.settled], now),
        };
        let settled = self.store.settle(reservation, settlement, now).await;
        if settled.is_ok() {
            self.held.remove(reservation);
        }
        if matches!(settled, Ok(Settled::Unknown)) && parts.is_none() {
            forget.nothing();
            return settled;
        }
        forget.after(settled)
    }
}
