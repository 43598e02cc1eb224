//! A store that servers share, and what each does by itself while it cannot be asked.
//!
//! Nobody waits for a shared store that is gone, and nobody is refused because of it: what it does not answer is
//! decided by each charge's own policy, and the outcomes say so. Deciding alone means to enforce this server's share of
//! the limit, in memory, warm: whatever the shared store last said of a key is what its share begins with. What this
//! server admits alone it remembers itself, since the shared store never hears of it: as long as that counts, a share
//! is not lifted, however often the store comes and goes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use smallvec::SmallVec;
use tollgate_core::{Algorithm, Intent, Limit, Micros, Outcome, Soft, Timestamp};
use tollgate_rules::StoreFailure;

use crate::charge::{Charge, Outcomes};
use crate::join::join_all;
use crate::memory::{KeyHasher, MemoryStore};
use crate::store::{ReservationId, Settled, Settlement, Store};
use crate::sync::Lock;

/// Shares of more limits than this are not kept, but made anew.
const MOST_SHARES: usize = 10_000;

/// Keys are told apart this well in when they were last heard of.
const PARTS: usize = 1_024;

/// A shared store with a shelter for when it fails. Only settling a reservation can fail: there is nothing that could
/// be done instead.
pub struct Shelter<S> {
    shared: S,
    local: MemoryStore,
    /// How many servers share the limits, this one included.
    servers: AtomicU64,
    shares: RwLock<Shares>,
    keys: KeyHasher,
    parts: Box<[Lock<Part>]>,
    alone: AtomicU64,
}

/// What is known of some of the keys. Those that share a part make each other's shares stricter, never more lenient.
#[derive(Default)]
struct Part {
    /// The last time at which the shared store spoke of one of them, by its clock: answers may come in another order
    /// than they were given.
    heard_at: Timestamp,
    /// Until when something counts that this server admitted alone.
    alone_until: Timestamp,
}

/// This server's part of each limit, by what the limit is.
type Shares = HashMap<(Algorithm, Option<Soft>), Arc<Limit>>;

impl<S: Store> Shelter<S> {
    /// `shared` by default, and `local` while it cannot be asked. One server, until [`Self::set_servers`] says how
    /// many.
    pub fn new(shared: S, local: MemoryStore) -> Self {
        Self {
            shared,
            local,
            servers: AtomicU64::new(1),
            shares: RwLock::default(),
            keys: KeyHasher::random(),
            parts: (0..PARTS).map(|_| Lock::new(Part::default())).collect(),
            alone: AtomicU64::new(0),
        }
    }

    /// The store that servers share.
    pub fn shared(&self) -> &S {
        &self.shared
    }

    /// What this server remembers for itself.
    pub fn local(&self) -> &MemoryStore {
        &self.local
    }

    /// How many calls this server has decided alone.
    pub fn decided_alone(&self) -> u64 {
        self.alone.load(Ordering::Relaxed)
    }

    /// Says how many servers share the limits, this one included: each enforces its part when it is alone.
    pub fn set_servers(&self, servers: u64) {
        if self.servers.swap(servers.max(1), Ordering::Relaxed) != servers.max(1) {
            self.shares.write().unwrap_or_else(PoisonError::into_inner).clear();
        }
    }

    /// How many servers share the limits, as far as is known.
    pub fn servers(&self) -> u64 {
        self.servers.load(Ordering::Relaxed)
    }

    /// This server's part of `limit`.
    fn share(&self, limit: &Limit) -> Arc<Limit> {
        let servers = self.servers.load(Ordering::Relaxed);
        let name = (limit.algorithm().clone(), limit.softness());
        if let Some(share) = self.shares.read().unwrap_or_else(PoisonError::into_inner).get(&name) {
            return Arc::clone(share);
        }
        let share = Arc::new(limit.share(servers));
        let mut shares = self.shares.write().unwrap_or_else(PoisonError::into_inner);
        if shares.len() < MOST_SHARES && self.servers.load(Ordering::Relaxed) == servers {
            shares.insert(name, Arc::clone(&share));
        }
        share
    }

    fn shares_of(&self, charges: &[Charge<'_>]) -> SmallVec<[Arc<Limit>; 3]> {
        charges.iter().map(|charge| self.share(charge.limit)).collect()
    }

    /// Takes note of what the shared store said, so that this server could go on from there: of its share as much is
    /// left as of the whole.
    fn remember(&self, charges: &[Charge<'_>], outcomes: &[Outcome], intent: Intent, now: Timestamp) {
        let is_charged = intent != Intent::Spend || outcomes.iter().all(|outcome| outcome.allowed);
        let servers = self.servers.load(Ordering::Relaxed);
        // Beside a denial, some may not have been heard of.
        for (charge, outcome) in charges.iter().zip(outcomes).filter(|(_, outcome)| !outcome.alone) {
            let share = self.share(charge.limit);
            let own = Charge { limit: &share, ..*charge };
            let noted = match intent {
                // Slots are given back one by one, so they are taken one by one.
                Intent::Spend | Intent::Force if is_charged && is_slots(charge.limit) => Intent::Force,
                Intent::Refund { .. } | Intent::Renew => intent,
                Intent::Spend | Intent::Force | Intent::Peek => Intent::Peek,
            };
            if is_slots(charge.limit) {
                self.local.apply_one(&own, noted, now);
                continue;
            }
            let Some(part) = self.part(charge) else { continue };
            let mut part = part.lock();
            let is_latest = outcome.at > part.heard_at;
            part.heard_at = part.heard_at.max(outcome.at);
            let here = self.local.apply_one(&own, noted, now).remaining;
            let too_much = here.saturating_sub(outcome.remaining.div_ceil(servers));
            let too_little = (outcome.remaining / servers).saturating_sub(here);
            if too_much > 0 {
                self.local.apply_one(&own.cost(too_much), Intent::Force, now);
            } else if too_little > 0 && is_latest && part.alone_until <= now {
                self.local.apply_one(&own.cost(too_little), Intent::Refund { charged_at: now }, now);
            }
        }
    }

    /// Takes note of what this server admits alone.
    fn note_alone(&self, charges: &[Charge<'_>], outcomes: &[Outcome], now: Timestamp) {
        for (charge, outcome) in charges.iter().zip(outcomes).filter(|(_, outcome)| outcome.allowed) {
            if let Some(part) = self.part(charge) {
                let mut part = part.lock();
                part.alone_until = part.alone_until.max(now.plus(outcome.reset_after));
            }
        }
    }

    /// What the shared store answered, taken note of, or else what this server decides.
    fn heard(
        &self,
        charges: &[Charge<'_>],
        intent: Intent,
        answer: Option<Result<Outcomes, S::Error>>,
        now: Timestamp,
    ) -> Outcomes {
        match answer {
            Some(Ok(outcomes)) => {
                self.remember(charges, &outcomes, intent, now);
                outcomes
            }
            Some(Err(_)) | None => self.apply_alone(charges, intent, now),
        }
    }

    fn part(&self, charge: &Charge<'_>) -> Option<&Lock<Part>> {
        self.parts.get(self.keys.entity(&charge.key) as usize % PARTS)
    }

    /// Each on its own, all of one home.
    async fn apply_each_at_home(&self, charges: &[Charge<'_>], intent: Intent, now: Timestamp) -> Vec<Outcome> {
        match self.shared.apply_each(charges, intent, now).await {
            Ok(outcomes) => {
                for (charge, outcome) in charges.iter().zip(&outcomes) {
                    self.remember(&[*charge], &[*outcome], intent, now);
                }
                outcomes
            }
            Err(_) => charges.iter().flat_map(|charge| self.apply_alone(&[*charge], intent, now)).collect(),
        }
    }

    /// Decides without the shared store, all or nothing as it would.
    fn apply_alone(&self, charges: &[Charge<'_>], intent: Intent, now: Timestamp) -> Outcomes {
        self.alone.fetch_add(1, Ordering::Relaxed);
        let is_denied = |charge: &Charge<'_>| charge.on_failure == StoreFailure::Deny && intent == Intent::Spend;
        // If one is denied by policy, the others are only looked at.
        let intent = if charges.iter().any(is_denied) { Intent::Peek } else { intent };
        let shares = self.shares_of(charges);
        let counted = charges.iter().zip(&shares).filter(|(charge, _)| charge.on_failure == StoreFailure::Local);
        let counted: SmallVec<[Charge<'_>; 3]> =
            counted.map(|(charge, share)| Charge { limit: share, ..*charge }).collect();
        let decided = self.local.apply_all(&counted, intent, now);
        if matches!(intent, Intent::Spend | Intent::Force) {
            self.note_alone(&counted, &decided, now);
        }
        let mut decided = decided.into_iter();
        let by_policy = |charge: &Charge<'_>| match charge.on_failure {
            StoreFailure::Local => decided.next().unwrap_or(Outcome::UNLIMITED),
            StoreFailure::Allow => Outcome { at: now, ..Outcome::UNLIMITED },
            // Nobody knows how long it takes; a moment is better than for ever.
            StoreFailure::Deny => Outcome {
                allowed: false,
                at: now,
                limit: 0,
                remaining: 0,
                retry_after: Some(Micros::SECOND),
                ..Outcome::UNLIMITED
            },
        };
        charges.iter().map(by_policy).map(|outcome| Outcome { alone: true, ..outcome }).collect()
    }
}

fn is_slots(limit: &Limit) -> bool {
    matches!(limit.algorithm(), Algorithm::Concurrency(_))
}

impl<S: Store> Store for Shelter<S> {
    type Error = S::Error;

    async fn apply(&self, charges: &[Charge<'_>], intent: Intent, now: Timestamp) -> Result<Outcomes, S::Error> {
        let answer = self.shared.apply(charges, intent, now).await;
        Ok(self.heard(charges, intent, Some(answer), now))
    }

    async fn apply_in_turn(
        &self,
        first: &[Charge<'_>],
        later: &[&[Charge<'_>]],
        intent: Intent,
        now: Timestamp,
    ) -> Vec<Result<Outcomes, S::Error>> {
        let mut answers = self.shared.apply_in_turn(first, later, intent, now).await.into_iter();
        let outcomes = self.heard(first, intent, answers.next(), now);
        let then = intent.after(&outcomes);
        let later = later.iter().map(|charges| Ok(self.heard(charges, then, answers.next(), now)));
        std::iter::once(Ok(outcomes)).chain(later).collect()
    }

    /// What the shared store has at hand is told: nothing was changed, so there is nothing to be remembered.
    fn apply_now(&self, charges: &[Charge<'_>], intent: Intent, now: Timestamp) -> Option<Result<Outcomes, S::Error>> {
        self.shared.apply_now(charges, intent, now)?.ok().map(Ok)
    }

    /// Those that live together are asked together, so that one part of the shared store that cannot be asked concerns
    /// no other.
    async fn apply_each(
        &self,
        charges: &[Charge<'_>],
        intent: Intent,
        now: Timestamp,
    ) -> Result<Vec<Outcome>, S::Error> {
        let homes: Vec<u64> = charges.iter().map(|charge| self.shared.home(charge)).collect();
        if homes.windows(2).all(|pair| pair.first() == pair.last()) {
            return Ok(self.apply_each_at_home(charges, intent, now).await);
        }
        let mut order: Vec<usize> = (0..charges.len()).collect();
        let home = |index: &usize| homes.get(*index).copied();
        order.sort_by_key(home);
        let asked = order.chunk_by(|a, b| home(a) == home(b)).map(|places| async move {
            let charges: Vec<Charge<'_>> = places.iter().filter_map(|place| charges.get(*place).copied()).collect();
            self.apply_each_at_home(&charges, intent, now).await
        });
        let outcomes = join_all(asked).await.into_iter().flatten();
        let mut placed: Vec<(usize, Outcome)> = order.iter().copied().zip(outcomes).collect();
        placed.sort_unstable_by_key(|(place, _)| *place);
        Ok(placed.into_iter().map(|(_, outcome)| outcome).collect())
    }

    async fn reserve(
        &self,
        charges: &[Charge<'_>],
        hold: Micros,
        now: Timestamp,
    ) -> Result<(Outcomes, Option<ReservationId>), S::Error> {
        if let Ok((outcomes, reservation)) = self.shared.reserve(charges, hold, now).await {
            self.remember(charges, &outcomes, Intent::Spend, now);
            return Ok((outcomes, reservation));
        }
        if !charges.iter().all(|charge| charge.on_failure == StoreFailure::Local) {
            // Policies decide, and leave nothing to be settled.
            return Ok((self.apply_alone(charges, Intent::Spend, now), None));
        }
        let shares = self.shares_of(charges);
        let counted: SmallVec<[Charge<'_>; 3]> =
            charges.iter().zip(&shares).map(|(charge, share)| Charge { limit: share, ..*charge }).collect();
        self.alone.fetch_add(1, Ordering::Relaxed);
        let (outcomes, reservation) = self.local.reserve_all(&counted, hold, now);
        self.note_alone(&counted, &outcomes, now);
        Ok((outcomes.into_iter().map(|outcome| Outcome { alone: true, ..outcome }).collect(), reservation))
    }

    async fn settle(
        &self,
        reservation: ReservationId,
        settlement: Settlement<'_>,
        now: Timestamp,
    ) -> Result<Settled, S::Error> {
        // Made while this server was alone, or not: numbers are random, so that only one of the two knows it.
        if self.local.settle_now(reservation, settlement, now) == Settled::Done {
            return Ok(Settled::Done);
        }
        self.shared.settle(reservation, settlement, now).await
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::sync::atomic::AtomicBool;
    use std::task::{Context, Poll, Waker};

    use tollgate_core::{Concurrency, FixedWindow, Key, Rate, TokenBucket};

    use super::*;

    /// A store that several servers share, until somebody pulls its plug.
    #[derive(Clone, Default)]
    struct Shared(Arc<(MemoryStore, AtomicBool)>);

    #[derive(Debug)]
    struct Unplugged;

    impl std::fmt::Display for Unplugged {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("unplugged")
        }
    }

    impl std::error::Error for Unplugged {}

    impl Shared {
        fn plug(&self, is_in: bool) {
            self.0.1.store(!is_in, Ordering::Relaxed);
        }

        fn store(&self) -> Result<&MemoryStore, Unplugged> {
            if self.0.1.load(Ordering::Relaxed) { Err(Unplugged) } else { Ok(&self.0.0) }
        }
    }

    impl Store for Shared {
        type Error = Unplugged;

        async fn apply(&self, charges: &[Charge<'_>], intent: Intent, now: Timestamp) -> Result<Outcomes, Unplugged> {
            Ok(self.store()?.apply_all(charges, intent, now))
        }

        async fn apply_each(
            &self,
            charges: &[Charge<'_>],
            intent: Intent,
            now: Timestamp,
        ) -> Result<Vec<Outcome>, Unplugged> {
            let store = self.store()?;
            Ok(charges.iter().map(|charge| store.apply_one(charge, intent, now)).collect())
        }

        async fn reserve(
            &self,
            charges: &[Charge<'_>],
            hold: Micros,
            now: Timestamp,
        ) -> Result<(Outcomes, Option<ReservationId>), Unplugged> {
            Ok(self.store()?.reserve_all(charges, hold, now))
        }

        async fn settle(
            &self,
            reservation: ReservationId,
            settlement: Settlement<'_>,
            now: Timestamp,
        ) -> Result<Settled, Unplugged> {
            Ok(self.store()?.settle_now(reservation, settlement, now))
        }
    }

    fn now<T>(future: impl Future<Output = T>) -> T {
        match std::pin::pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => value,
            Poll::Pending => panic!("it waits"),
        }
    }

    const START: Timestamp = Timestamp::from_secs(1_000_000_020);

    fn servers(count: u64) -> (Shared, Vec<Shelter<Shared>>) {
        let shared = Shared::default();
        let servers: Vec<_> = (0..count).map(|_| Shelter::new(shared.clone(), MemoryStore::new())).collect();
        servers.iter().for_each(|server| server.set_servers(count));
        (shared, servers)
    }

    /// Asks one unit at a time, one server after the other: how many are admitted.
    fn flood(servers: &[Shelter<Shared>], charge: &Charge<'_>, requests: usize, at: Timestamp) -> usize {
        let ask = |server: &Shelter<Shared>| now(server.apply(&[*charge], Intent::Spend, at)).unwrap()[0].allowed;
        (0..requests).filter(|request| ask(&servers[request % servers.len()])).count()
    }

    #[test]
    fn servers_that_are_alone_admit_no_more_than_the_limit_together() {
        for fresh in [true, false] {
            let limit = Limit::new(FixedWindow::new(30, Micros::MINUTE)).unwrap();
            let charge = Charge::new(Key::new(1, &[b"user"]), &limit);
            let (shared, servers) = servers(3);
            // Twelve before, all through one server, which is the only one to know.
            let before = if fresh { 0 } else { flood(&servers[..1], &charge, 12, START) };
            shared.plug(false);
            let alone = flood(&servers, &charge, 100, START);
            // The one that knows leaves a third of what is left, and the others, which know nothing, a third of all.
            assert_eq!((before, alone), if fresh { (0, 30) } else { (12, 6 + 10 + 10) });
            // One window later everything is new.
            assert_eq!(flood(&servers, &charge, 100, START.plus(Micros::MINUTE)), 30);
            assert_eq!(servers[0].decided_alone(), 68);
            // And it is exact again as soon as the store is back.
            shared.plug(true);
            assert_eq!(flood(&servers, &charge, 100, START), 30 - before);
        }
    }

    #[test]
    fn what_others_spent_is_known_from_the_last_answer() {
        let limit = Limit::new(TokenBucket::new(Rate::per_hour(40))).unwrap();
        let charge = Charge::new(Key::new(1, &[b"user"]), &limit);
        let (shared, servers) = servers(2);
        flood(&servers[..1], &charge, 39, START);
        // The second server asks once, is admitted, and so hears that nothing is left.
        assert_eq!(flood(&servers[1..], &charge, 1, START), 1);
        shared.plug(false);
        assert_eq!(flood(&servers[1..], &charge, 10, START), 0);
        let later = START.plus(Micros::HOUR);
        assert_eq!(flood(&servers, &charge, 100, later), 40);
    }

    #[test]
    fn what_was_given_back_is_known_from_the_last_answer() {
        let limit = Limit::new(FixedWindow::new(40, Micros::HOUR)).unwrap();
        let charge = Charge::new(Key::new(1, &[b"user"]), &limit);
        let at = |micros| START.plus(Micros::from_micros(micros));
        let (shared, servers) = servers(2);
        assert_eq!(flood(&servers[..1], &charge, 40, START), 40);
        // Through another server, so that this one hears of it with the next answer.
        let refund = Intent::Refund { charged_at: START };
        now(servers[1].apply(&[charge.cost(21)], refund, START)).unwrap();
        assert_eq!(flood(&servers[..1], &charge, 1, at(1)), 1);
        // An answer that was given before, and comes after it, lifts nothing.
        let before = Outcome { at: START, remaining: 40, ..Outcome::UNLIMITED };
        servers[0].remember(&[charge], &[before], Intent::Peek, at(1));
        shared.plug(false);
        assert_eq!(flood(&servers[..1], &charge, 100, at(2)), 10, "half of what is left");
        // What was admitted alone is not forgotten, although the shared store knows nothing of it, however often it
        // comes back.
        for round in 3..10 {
            shared.plug(true);
            assert_eq!(flood(&servers[1..], &charge, 1, at(round)), 1);
            now(servers[0].apply(&[charge], Intent::Peek, at(round))).unwrap();
            shared.plug(false);
            assert_eq!(flood(&servers[..1], &charge, 100, at(round)), 0);
        }
        let later = START.plus(Micros::HOUR);
        shared.plug(true);
        assert_eq!(flood(&servers[..1], &charge, 10, later), 10);
        now(servers[1].apply(&[charge.cost(10)], Intent::Refund { charged_at: later }, later)).unwrap();
        let later = later.plus(Micros::SECOND);
        now(servers[0].apply(&[charge], Intent::Peek, later)).unwrap();
        shared.plug(false);
        assert_eq!(flood(&servers[..1], &charge, 100, later), 20, "the hour in which it was alone is over");
    }

    #[test]
    fn one_part_of_the_shared_store_that_cannot_be_asked_concerns_no_other() {
        /// Keys of an odd number live in a part of their own, which is gone.
        struct Parted(MemoryStore);

        impl Store for Parted {
            type Error = Unplugged;

            async fn apply(&self, _: &[Charge<'_>], _: Intent, _: Timestamp) -> Result<Outcomes, Unplugged> {
                Err(Unplugged)
            }

            fn home(&self, charge: &Charge<'_>) -> u64 {
                charge.cost % 2
            }

            async fn apply_each(
                &self,
                charges: &[Charge<'_>],
                intent: Intent,
                now: Timestamp,
            ) -> Result<Vec<Outcome>, Unplugged> {
                if charges.iter().any(|charge| self.home(charge) == 1) {
                    return Err(Unplugged);
                }
                Ok(charges.iter().map(|charge| self.0.apply_one(charge, intent, now)).collect())
            }

            async fn reserve(
                &self,
                _: &[Charge<'_>],
                _: Micros,
                _: Timestamp,
            ) -> Result<(Outcomes, Option<ReservationId>), Unplugged> {
                Err(Unplugged)
            }

            async fn settle(&self, _: ReservationId, _: Settlement<'_>, _: Timestamp) -> Result<Settled, Unplugged> {
                Err(Unplugged)
            }
        }

        let limit = Limit::new(FixedWindow::new(100, Micros::MINUTE)).unwrap();
        let shelter = Shelter::new(Parted(MemoryStore::new()), MemoryStore::new());
        let users: Vec<[u8; 1]> = (0..20).map(|user| [user]).collect();
        let values: Vec<[&[u8]; 1]> = users.iter().map(|user| [&user[..]]).collect();
        let charges: Vec<_> =
            (1..).zip(&values).map(|(cost, values)| Charge::new(Key::new(1, values), &limit).cost(cost)).collect();
        let outcomes = now(shelter.apply_each(&charges, Intent::Spend, START)).unwrap();
        for (charge, outcome) in charges.iter().zip(&outcomes) {
            assert_eq!((outcome.remaining, outcome.alone), (100 - charge.cost, charge.cost % 2 == 1));
        }
        assert_eq!((outcomes.len(), shelter.decided_alone()), (20, 10));
    }

    #[test]
    fn each_charge_has_its_policy_and_says_that_it_was_decided_alone() {
        let limit = Limit::new(FixedWindow::new(1, Micros::MINUTE)).unwrap();
        let (shared, servers) = servers(1);
        shared.plug(false);
        let one = |number, policy| Charge::new(Key::new(number, &[]), &limit).on_failure(policy);
        let ask = |charges: &[Charge<'_>]| now(servers[0].apply(charges, Intent::Spend, START)).unwrap();
        let local = one(1, StoreFailure::Local);
        // Denied by policy: nothing else is charged.
        let outcomes = ask(&[local, one(2, StoreFailure::Deny), one(3, StoreFailure::Allow)]);
        assert_eq!(outcomes.iter().map(|outcome| outcome.allowed).collect::<Vec<_>>(), [true, false, true]);
        assert!(outcomes.iter().all(|outcome| outcome.alone) && outcomes[1].retry_after == Some(Micros::SECOND));
        // So this one still fits, once.
        assert!(ask(&[local, one(3, StoreFailure::Allow)]).iter().all(|outcome| outcome.allowed));
        assert!(ask(&[local])[0].denied());
        shared.plug(true);
        assert!(!ask(&[local])[0].alone);
    }

    #[test]
    fn reservations_of_either_kind_are_settled_where_they_were_made() {
        let limit = Limit::new(FixedWindow::new(10, Micros::HOUR)).unwrap();
        let charge = Charge::new(Key::new(1, &[b"user"]), &limit).cost(10);
        let (shared, servers) = servers(1);
        let server = &servers[0];
        let reserve = || now(server.reserve(&[charge], Micros::MINUTE, START)).unwrap();
        let (outcomes, made_together) = reserve();
        assert!(outcomes[0].allowed && !outcomes[0].alone);
        shared.plug(false);
        // It is warm: what is reserved there is not there.
        assert!(reserve().0[0].denied());
        assert!(now(server.settle(made_together.unwrap(), Settlement::Cancel, START)).is_err());
        let later = START.plus(Micros::HOUR);
        let (outcomes, made_alone) = now(server.reserve(&[charge], Micros::MINUTE, later)).unwrap();
        assert!(outcomes[0].allowed && outcomes[0].alone);
        assert_eq!(now(server.settle(made_alone.unwrap(), Settlement::Cancel, later)).unwrap(), Settled::Done);
        shared.plug(true);
        assert_eq!(now(server.settle(made_together.unwrap(), Settlement::Cancel, START)).unwrap(), Settled::Done);
    }

    #[test]
    fn slots_are_shared_out_and_given_back() {
        let limit = Limit::new(Concurrency::new(4, Micros::MINUTE)).unwrap();
        let slot = |lease| Charge::new(Key::new(1, &[]), &limit).lease(lease);
        let (shared, servers) = servers(2);
        let ask = |lease, intent| now(servers[0].apply(&[slot(lease)], intent, START)).unwrap()[0];
        assert!(ask(1, Intent::Spend).allowed);
        shared.plug(false);
        assert!(ask(2, Intent::Spend).allowed);
        // Two of four, and both are taken: one of them since before.
        assert!(ask(3, Intent::Spend).denied());
        ask(1, Intent::Refund { charged_at: START });
        assert!(ask(3, Intent::Spend).allowed);
    }
}
