//! Random calls of all kinds, seeded.
//!
//! A script has few counters and many calls, so that they meet; its steps in time land by preference on what was
//! promised, and its costs on what was said to remain.

use tollgate::{Charge, Intent, Key, Limit, Micros, Outcome, Settlement, Store, Timestamp};

use super::duel::{Duel, Names};
use super::{Kept, Maker, Time, demand, limits};
use crate::workload::Rng;

const SCRIPTS: u64 = 120;
const CALLS: usize = 150;

const ENTITIES: [&[&[u8]]; 5] = [&[b"alice"], &[b"bob"], &[b"alice", b"/search"], &[b""], &[]];

pub(super) async fn all_intents<M: Maker>(maker: &M, time: Time) -> Kept {
    for seed in 0..SCRIPTS {
        let mut script = Script::new(Duel::new(maker, time).await, seed)?;
        script.play(false).await.map_err(|how| format!("script {seed}: {how}"))?;
    }
    Ok(())
}

pub(super) async fn all_intents_over_time<M: Maker>(maker: &M) -> Kept {
    for seed in 0..SCRIPTS * 2 {
        let mut script = Script::new(Duel::new(maker, Time::Given).await, seed ^ 0x5eed)?;
        script.play(true).await.map_err(|how| format!("script {seed}: {how}"))?;
    }
    Ok(())
}

/// What is used up stays so while time is before the latest that was given, and comes back when it would have.
pub(super) async fn backwards_earns_nothing<M: Maker>(maker: &M) -> Kept {
    for (number, limit) in limits::all(Time::Given)?.iter().enumerate() {
        let store = maker.make().await;
        let charge = Charge::new(Key::new(number as u64, ENTITIES[0]), limit);
        let at = Time::Given.start();
        let mut last = None;
        for _ in 0..40 {
            last = ask(&store, &charge, Intent::Spend, at).await?.or(last);
        }
        let Some(wait) = last.and_then(|denied| denied.retry_after) else { continue };
        for back in [1, 1_000, 1_000_000, 10_000_000_000] {
            let earlier = at.minus(Micros::from_micros(back));
            let answer = ask(&store, &charge, Intent::Spend, earlier).await?;
            demand!(answer.is_some(), "admitted {back} microseconds ago: {:?}", limit.algorithm());
        }
        // A log that counts denials has counted those above as well.
        let answer = ask(&store, &charge, Intent::Peek, at.plus(wait)).await?;
        demand!(answer.is_none(), "time that ran backwards is still missing: {answer:?} {:?}", limit.algorithm());
    }
    Ok(())
}

/// The outcome, if it is a denial.
async fn ask(
    store: &impl Store,
    charge: &Charge<'_>,
    intent: Intent,
    now: Timestamp,
) -> Result<Option<Outcome>, String> {
    let outcomes = store.apply(&[*charge], intent, now).await.map_err(super::duel::failed)?;
    Ok(outcomes.first().copied().filter(Outcome::denied))
}

/// A charge by itself, and when it could proceed by the store and by the model.
struct Charged {
    number: u64,
    values: &'static [&'static [u8]],
    cost: u64,
    lease: u64,
    proceeds_at: (Timestamp, Timestamp),
}

struct Script<S> {
    duel: Duel<S>,
    rng: Rng,
    limits: Vec<(u64, Limit)>,
    entities: usize,
    reservations: Vec<Names>,
    /// Charges that may be given back.
    charged: Vec<Charged>,
    last: Vec<Outcome>,
}

impl<S: Store> Script<S> {
    fn new(duel: Duel<S>, seed: u64) -> Result<Self, String> {
        let mut rng = Rng::new(seed);
        let mut limits: Vec<(u64, Limit)> = (0..).zip(limits::all(duel.time)?).collect();
        let kept = 1 + rng.below(limits.len() as u64);
        while limits.len() as u64 > kept {
            limits.swap_remove(index(rng.below(limits.len() as u64)));
        }
        let entities = 1 + index(rng.below(ENTITIES.len() as u64));
        let (reservations, charged, last) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Self { duel, rng, limits, entities, reservations, charged, last })
    }

    async fn play(&mut self, over_time: bool) -> Kept {
        for _ in 0..CALLS {
            if over_time {
                self.step_in_time();
            }
            self.call(over_time).await?;
        }
        Ok(())
    }

    async fn call(&mut self, over_time: bool) -> Kept {
        let limits = self.limits.clone();
        let charges = self.charges(&limits);
        let given = self.duel.time == Time::Given;
        let intent = match self.rng.below(20) {
            0..=9 => Intent::Spend,
            10 | 11 => Intent::Peek,
            12 => Intent::Renew,
            // If a store has its own time it is not known which events of a log it joined.
            13 if given => Intent::Force,
            14 if given => Intent::Refund { charged_at: self.charge_time() },
            14 | 15 => return self.give_back().await,
            16 | 17 => return self.settle().await,
            _ => return self.reserve(&charges, over_time).await,
        };
        if self.rng.below(6) == 0 {
            self.last = self.duel.apply_each(&charges, intent).await?;
            return Ok(());
        }
        self.last = self.duel.apply(&charges, intent).await?.into_vec();
        if let (Intent::Spend, [charge], [answered]) = (intent, charges.as_slice(), self.last.as_slice())
            && let [expected] = self.duel.expected.as_slice()
            && let Some(values) = ENTITIES.into_iter().find(|values| *values == charge.key.values)
            && answered.allowed
        {
            let proceeds_at = (answered.proceeds_at(), expected.proceeds_at());
            let Charge { key, cost, lease, .. } = *charge;
            self.charged.push(Charged { number: key.limit, values, cost, lease, proceeds_at });
        }
        Ok(())
    }

    /// Gives a recent charge back, once.
    async fn give_back(&mut self) -> Kept {
        let recent = index(self.rng.below(self.charged.len().min(6) as u64));
        let Some(chosen) = self.charged.len().checked_sub(recent + 1) else { return Ok(()) };
        let Charged { number, values, cost, lease, proceeds_at } = self.charged.swap_remove(chosen);
        let limit = self.limits.iter().find(|(other, _)| *other == number).map(|(_, limit)| limit.clone());
        let Some(limit) = limit else { return Ok(()) };
        let charge = Charge::new(Key::new(number, values), &limit).cost(cost).lease(lease);
        self.duel.give_back(charge, proceeds_at).await
    }

    async fn reserve(&mut self, charges: &[Charge<'_>], over_time: bool) -> Kept {
        let unit = limits::unit(self.duel.time);
        let halves = if over_time { self.rng.below(12) } else { 200 };
        let hold = Micros::from_micros(unit.as_micros() / 2 * halves);
        let (outcomes, names) = self.duel.reserve(charges, hold).await?;
        self.reservations.extend(names);
        self.last = outcomes.into_vec();
        Ok(())
    }

    /// Settles an open reservation, or one that was settled or has expired before.
    async fn settle(&mut self) -> Kept {
        let chosen = index(self.rng.below(self.reservations.len() as u64));
        let Some(names) = self.reservations.get(chosen).copied() else { return Ok(()) };
        if self.rng.below(4) > 0 {
            self.reservations.swap_remove(chosen);
        }
        let actual = [self.rng.below(5), self.rng.below(5), self.rng.below(5)];
        let settlement = match self.rng.below(4) {
            0 => Settlement::Commit,
            1 => Settlement::Cancel,
            _ if self.duel.time == Time::Own => Settlement::CommitActual(&[0; 5]),
            _ => Settlement::CommitActual(&actual),
        };
        self.duel.settle(names, settlement).await.map(|_| ())
    }

    /// One to five charges; the same counter twice now and then. All in the name of one lease.
    fn charges<'a>(&mut self, limits: &'a [(u64, Limit)]) -> Vec<Charge<'a>> {
        let lease = self.rng.below(3);
        let number = (1 + self.rng.below(7)).saturating_sub(2).max(1);
        let same_entity = self.rng.below(2) == 0;
        let entity = index(self.rng.below(self.entities as u64));
        let mut charges = Vec::new();
        for _ in 0..number {
            let chosen = index(self.rng.below(limits.len() as u64));
            let Some((number, limit)) = limits.get(chosen) else { continue };
            let other = index(self.rng.below(self.entities as u64));
            let values = ENTITIES.get(if same_entity { entity } else { other }).copied().unwrap_or_default();
            charges.push(Charge::new(Key::new(*number, values), limit).cost(self.cost()).lease(lease));
        }
        charges
    }

    fn cost(&mut self) -> u64 {
        let last = self.last.get(index(self.rng.below(self.last.len() as u64)));
        let (remaining, limit) = last.map_or((1, 1), |outcome| (outcome.remaining, outcome.limit));
        match self.rng.below(24) {
            0..=14 => 1,
            15 => 0,
            16 | 17 => 2,
            18 => remaining,
            19 => remaining.saturating_add(1),
            20 => limit,
            21 => limit.saturating_add(1),
            22 => self.rng.below(limit.saturating_add(3)),
            _ => self.rng.bits() >> self.rng.below(64),
        }
    }

    fn charge_time(&mut self) -> Timestamp {
        let recent = self.rng.below(self.charged.len().min(6) as u64);
        let recent = self.charged.iter().rev().nth(index(recent)).map(|charged| charged.proceeds_at.0);
        recent.filter(|_| self.rng.below(5) > 0).unwrap_or(self.duel.now)
    }

    fn step_in_time(&mut self) {
        let unit = limits::unit(self.duel.time).as_micros();
        let last = self.last.get(index(self.rng.below(self.last.len() as u64)));
        let retry = last.and_then(|outcome| outcome.retry_after).unwrap_or_default().as_micros();
        let (reset, delay) =
            last.map_or((0, 0), |outcome| (outcome.reset_after.as_micros(), outcome.delay.as_micros()));
        let span = match self.rng.below(30) {
            0..=11 => 0,
            12..=14 => retry,
            15 => retry.saturating_sub(1),
            16 => retry + 1,
            17 => reset,
            18 => reset.saturating_sub(1),
            19 => delay,
            20..=23 => self.rng.below(unit),
            24..=26 => unit / 2 * self.rng.below(12),
            27 => unit * self.rng.below(60),
            28 => Micros::DAY.as_micros() / 3,
            _ => 1,
        };
        // A wait for years would leave every later call to fresh keys.
        self.duel.pass(Micros::from_micros(span.min(Micros::DAY.as_micros())));
    }
}

fn index(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
