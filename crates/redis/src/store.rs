//! States in Redis.
//!
//! Every call is one request, and one round trip. The time of the engine is not used but to know which calendar windows
//! to send: Redis's own clock decides.
//!
//! **As one.** All charges of a call are decided in one run of the script, so they pass together or not at all. Only in a Cluster
//! may they live on different nodes; see [`apart`](crate::apart) for what holds then.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use tollgate::{
    Charge, Intent, Micros, Outcome, Outcomes, ReservationId, Settled, Settlement, Store, Timestamp, join_all,
};

use crate::apart::{Group, groups, in_order};
use crate::call::{Link, Reply, Request, Tag};
use crate::error::RedisError;
use crate::keys;
use crate::script::{Answer, Answers, Counter, Encoder, Ended, MOST_CHARGES, Unreadable, ended, outcomes};
use crate::troubles::{Trouble, Troubles};

/// How often a question about calendar windows is asked, each time with those that were missing.
const ATTEMPTS: usize = 3;
/// How many charges of a batch go into one request.
const BATCH: usize = 1_000;
/// From so many charges on, equal counters are found by a table.
const FEW: usize = 16;

/// Keeps states in Redis, behind a [`Link`]. Share it by reference or in an `Arc`.
#[derive(Debug)]
pub struct RedisStore<L> {
    link: L,
    troubles: Troubles,
}

pub(crate) type Result<T, L> = std::result::Result<T, RedisError<<L as Link>::Error>>;

impl<L: Link> RedisStore<L> {
    /// A store at the other end of `link`.
    pub fn new(link: L) -> Self {
        Self { link, troubles: Troubles::default() }
    }

    /// What carries its requests.
    pub fn link(&self) -> &L {
        &self.link
    }

    /// How many answers found something else under their key than tollgate writes. It was taken for nothing: someone
    /// else uses keys that begin with `tg1:`.
    pub fn foreign_values(&self) -> u64 {
        let [_, _, (_, foreign)] = self.troubles.counts();
        foreign
    }

    /// How many answers were none, by what was wrong with them: `unreadable`, if they were not the script's, or
    /// `failed`, if it said so. What they were asked for is decided by policy.
    pub fn bad_answers(&self) -> [(&'static str, u64); 2] {
        let [unreadable, failed, _] = self.troubles.counts();
        [unreadable, failed]
    }

    pub(crate) async fn call(&self, request: Request) -> Result<Reply, L> {
        self.link.call(request).await.map_err(RedisError::Link)
    }

    /// Asks in one request. `encode` makes it, again if windows are missing.
    pub(crate) async fn ask(
        &self,
        counters: &[Counter<'_>],
        mut encoder: Encoder,
        encode: impl Fn(Encoder, &[Counter<'_>]) -> Request + Send + Sync,
    ) -> Result<Vec<Outcome>, L> {
        for _ in 0..ATTEMPTS {
            let reply = self.call(encode(encoder, counters)).await?;
            match self.read(&reply, counters)? {
                Answers::Again { now, at } => encoder = encoder.reaching(now, at),
                Answers::All { answers, .. } => {
                    let plain = |answer: &Answer| match answer {
                        Answer::Outcome(outcome) => Some(*outcome),
                        Answer::Again(_) => None,
                    };
                    let error = RedisError::Reply { why: "one of several that are asked as one has to be asked again" };
                    return answers.iter().map(plain).collect::<Option<_>>().ok_or_else(|| self.bad(error, None));
                }
            }
        }
        Err(self.bad(no_windows(), counters.first().map(|counter| counter.charge.key.limit)))
    }

    pub(crate) async fn apply_as_one(
        &self,
        counters: &[Counter<'_>],
        intent: Intent,
        encoder: Encoder,
    ) -> Result<Vec<Outcome>, L> {
        self.ask(counters, encoder, move |encoder, counters| encoder.apply(counters, intent)).await
    }

    /// All of `charges`, wherever they live.
    async fn apply_with(&self, charges: &[Charge<'_>], intent: Intent, encoder: Encoder) -> Result<Outcomes, L> {
        if charges.is_empty() {
            return Ok(Outcomes::new());
        }
        let (counters, counter_of) = add_up(charges)?;
        let found = if self.link.one_tag_per_call() && !is_together(&counters) {
            self.apply_apart(&counters, intent, encoder).await?
        } else {
            self.apply_as_one(&counters, intent, encoder).await?
        };
        Ok(spread_out(&found, &counter_of))
    }

    /// Each on its own, in order.
    async fn ask_each(&self, counters: &[Counter<'_>], intent: Intent, now: Timestamp) -> Result<Vec<Outcome>, L> {
        let mut found = Vec::with_capacity(counters.len());
        for batch in counters.chunks(BATCH) {
            let reply = self.call(Encoder::new(now).each(batch, intent)).await?;
            found.extend(self.hear_each(batch, intent, now, &reply).await?);
        }
        Ok(found)
    }

    /// The same of counters that live apart, all of them asked at once.
    async fn ask_each_apart(&self, groups: &[Group<'_>], intent: Intent, now: Timestamp) -> Result<Vec<Outcome>, L> {
        let requests = groups.iter().map(|group| Encoder::new(now).each(&group.counters, intent)).collect();
        let replies = self.link.call_all(requests).await;
        let heard = groups.iter().zip(replies).map(async |(group, reply)| {
            self.hear_each(&group.counters, intent, now, &reply.map_err(RedisError::Link)?).await
        });
        let heard = join_all(heard).await.into_iter().collect::<std::result::Result<Vec<_>, _>>()?;
        Ok(in_order(groups, heard))
    }

    /// What was answered to each; those that windows are missing for are asked again, one by one.
    async fn hear_each(
        &self,
        counters: &[Counter<'_>],
        intent: Intent,
        now: Timestamp,
        reply: &[u8],
    ) -> Result<Vec<Outcome>, L> {
        let Answers::All { answers, now: decided_at, .. } = self.read(reply, counters)? else {
            return Err(no_windows());
        };
        let mut found = Vec::with_capacity(counters.len());
        for (counter, answer) in counters.iter().zip(answers) {
            found.push(match answer {
                Answer::Outcome(outcome) => outcome,
                Answer::Again(at) => {
                    let encoder = Encoder::new(now).reaching(decided_at, at);
                    let outcomes = self.apply_as_one(std::slice::from_ref(counter), intent, encoder).await?;
                    outcomes.first().copied().ok_or_else(no_windows)?
                }
            });
        }
        Ok(found)
    }

    fn read(&self, reply: &[u8], counters: &[Counter<'_>]) -> Result<Answers, L> {
        let limit = counters.first().map(|counter| counter.charge.key.limit);
        let answers = outcomes(reply, counters).map_err(|why| self.bad(unreadable(why), limit))?;
        if let Answers::All { foreign, .. } = &answers
            && let [limit, ..] = &**foreign
        {
            let what = "there is something else in Redis than tollgate writes, under one of its keys, and it counts as nothing: \
                        who else uses keys that begin with `tg1:`?";
            self.troubles.tell(Trouble::Foreign, foreign.len() as u64, Some(*limit), what);
        }
        Ok(answers)
    }

    /// Takes note of an answer that is none, about this limit among others.
    fn bad(&self, error: RedisError<L::Error>, limit: Option<u64>) -> RedisError<L::Error> {
        let trouble = match &error {
            RedisError::Reply { .. } => Trouble::Unreadable,
            RedisError::Script { .. } => Trouble::Failed,
            RedisError::Link(_) | RedisError::TooManyCharges { .. } => return error,
        };
        self.troubles.tell(trouble, 1, limit, &error.to_string());
        error
    }

    async fn settle_at(
        &self,
        id: ReservationId,
        tag: Tag,
        settlement: Settlement<'_>,
        encoder: Encoder,
    ) -> Result<Ended, L> {
        let reply = self.call(encoder.settle(id, tag, settlement)).await?;
        ended(&reply).map_err(|why| self.bad(unreadable(why), None))
    }
}

fn no_windows<E>() -> RedisError<E> {
    RedisError::Reply { why: "it asks for calendar windows again and again; is the clock of Redis right?" }
}

fn unreadable<E>(why: Unreadable) -> RedisError<E> {
    match why {
        Unreadable::Malformed(why) => RedisError::Reply { why },
        Unreadable::Failed(said) => RedisError::Script { said },
    }
}

/// What is asked of each counter in all, and which of them each charge is counted on.
fn add_up<'c, E>(charges: &[Charge<'c>]) -> std::result::Result<(Vec<Counter<'c>>, Vec<usize>), RedisError<E>> {
    if charges.len() > MOST_CHARGES {
        return Err(RedisError::TooManyCharges { count: charges.len() });
    }
    let mut counters: Vec<Counter<'c>> = Vec::with_capacity(charges.len());
    let mut counter_of = Vec::with_capacity(charges.len());
    let mut known: HashMap<Vec<u8>, usize> = HashMap::new();
    for (index, charge) in charges.iter().enumerate() {
        let counter = Counter::new(charge, index);
        let same = if charges.len() > FEW {
            known.get(&counter.name).copied()
        } else {
            counters.iter().position(|other| other.name == counter.name)
        };
        counter_of.push(same.unwrap_or(counters.len()));
        match same.and_then(|same| counters.get_mut(same)) {
            Some(same) => {
                same.charge.cost = same.charge.cost.saturating_add(charge.cost);
                same.charges.extend(counter.charges);
            }
            None => {
                if charges.len() > FEW {
                    known.insert(counter.name.clone(), counters.len());
                }
                counters.push(counter);
            }
        }
    }
    Ok((counters, counter_of))
}

/// An outcome for each charge.
fn spread_out(found: &[Outcome], counter_of: &[usize]) -> Outcomes {
    counter_of.iter().filter_map(|index| found.get(*index).copied()).collect()
}

/// Whether all live at one tag.
fn is_together(counters: &[Counter<'_>]) -> bool {
    counters.iter().zip(counters.iter().skip(1)).all(|(a, b)| a.tag == b.tag)
}

impl<L: Link> Store for RedisStore<L> {
    type Error = RedisError<L::Error>;

    async fn apply(&self, charges: &[Charge<'_>], intent: Intent, now: Timestamp) -> Result<Outcomes, L> {
        self.apply_with(charges, intent, Encoder::new(now)).await
    }

    async fn apply_in_turn(
        &self,
        first: &[Charge<'_>],
        later: &[&[Charge<'_>]],
        intent: Intent,
        now: Timestamp,
    ) -> Vec<Result<Outcomes, L>> {
        // All have begun when the first has.
        let encoder = Encoder::new(now);
        let mut answers = vec![self.apply_with(first, intent, encoder).await];
        if let Some(Ok(outcomes)) = answers.first() {
            let then = intent.after(outcomes);
            answers.extend(join_all(later.iter().map(|charges| self.apply_with(charges, then, encoder))).await);
        }
        answers
    }

    fn home(&self, charge: &Charge<'_>) -> u64 {
        if self.link.one_tag_per_call() { u64::from(keys::tag_of(charge).number()) } else { 0 }
    }

    async fn apply_each(&self, charges: &[Charge<'_>], intent: Intent, now: Timestamp) -> Result<Vec<Outcome>, L> {
        let counters: Vec<Counter<'_>> = charges.iter().map(|charge| Counter::new(charge, 0)).collect();
        if !self.link.one_tag_per_call() || is_together(&counters) {
            return self.ask_each(&counters, intent, now).await;
        }
        let groups = groups(&counters);
        if groups.iter().all(|group| group.counters.len() <= BATCH) {
            return self.ask_each_apart(&groups, intent, now).await;
        }
        let asked = groups.iter().map(|group| self.ask_each(&group.counters, intent, now));
        let answered = join_all(asked).await.into_iter().collect::<std::result::Result<Vec<_>, _>>()?;
        Ok(in_order(&groups, answered))
    }

    async fn reserve(
        &self,
        charges: &[Charge<'_>],
        hold: Micros,
        now: Timestamp,
    ) -> Result<(Outcomes, Option<ReservationId>), L> {
        let tag = charges.first().map_or(Tag::new(0), keys::tag_of);
        let id = keys::reservation_at(tag, random());
        // Slots that are nobody's in particular are the reservation's, so that it gives back its own.
        let mut charges = charges.to_vec();
        charges.iter_mut().filter(|charge| charge.lease == 0).for_each(|charge| charge.lease = id.0);
        let (counters, counter_of) = add_up(&charges)?;
        let found = if self.link.one_tag_per_call() && !is_together(&counters) {
            self.reserve_apart(&counters, id, hold, now).await?
        } else {
            let encode =
                move |encoder: Encoder, counters: &[Counter<'_>]| encoder.reserve(counters, id, hold, tag, &[]);
            self.ask(&counters, Encoder::new(now), encode).await?
        };
        let held = found.iter().all(|outcome| outcome.allowed);
        Ok((spread_out(&found, &counter_of), held.then_some(id)))
    }

    async fn settle(
        &self,
        reservation: ReservationId,
        settlement: Settlement<'_>,
        now: Timestamp,
    ) -> Result<Settled, L> {
        let (home, encoder) = (keys::tag_of_reservation(reservation), Encoder::new(now));
        let at_home = self.settle_at(reservation, home, settlement, encoder).await?;
        // How it ends is decided there, once. Who comes later only helps to end it everywhere, in case the first one
        // was cut short.
        let (how, elsewhere, mut is_done) = match &at_home {
            Ended::Unknown => return Ok(Settled::Unknown),
            Ended::Now { elsewhere } => (settlement, elsewhere, true),
            Ended::Before { how, elsewhere } => (how.settlement(), elsewhere, false),
        };
        let others = elsewhere.iter().map(|tag| self.settle_at(reservation, *tag, how, encoder));
        for other in join_all(others).await {
            is_done |= other? != Ended::Unknown && how == settlement;
        }
        Ok(if is_done { Settled::Done } else { Settled::Unknown })
    }
}

/// Not to be guessed, so that nobody settles another's reservation.
fn random() -> u64 {
    getrandom::u64().unwrap_or_else(|_| tollgate_core::mix(SEQUENCE.fetch_add(1, Ordering::Relaxed)))
}

/// If the system has no random numbers, reservations can be told apart within a process, and no more.
static SEQUENCE: AtomicU64 = AtomicU64::new(1);
