//! States in memory.
//!
//! Many small tables behind a lock each. A decision hashes its key, locks one table for some tens of nanoseconds and touches
//! one or two of its cache lines; nothing is allocated, no other thread is needed. Several charges lock their
//! tables in ascending order, so all of them pass or none is charged, and no two decisions can wait for each other.
//!
//! The budget bounds the memory of everything that grows with keys. When it is spent, keys that are already counted go on as
//! before, and new ones of a limit share one counter: a flood of invented keys limits itself and resets nobody.

mod approach;
mod budget;
mod chunk;
mod hash;
mod hints;
mod prefetch;
mod reservations;
mod shard;
mod slots;
mod snapshot;
mod stack;
mod table;
mod together;

use std::convert::Infallible;
use std::future::{Future, ready};

use smallvec::SmallVec;
use tollgate_core::{Algorithm, Ask, Cell, Extra, Intent, Micros, Outcome, Timestamp};

use self::budget::{Budget, Forced, Ground, Unbounded};
use self::hash::Hash;
pub(crate) use self::hash::KeyHasher;
use self::hints::{Hints, NOWHERE, RECENT};
use self::prefetch::prefetch;
pub(crate) use self::prefetch::prefetch_to_read;
use self::reservations::{Held, Reservations};
use self::shard::{Reply, Shard};
use self::table::Full;
use crate::charge::{Charge, Outcomes};
use crate::store::{ReservationId, Settled, Settlement, Store};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Guard, Lock};

pub use self::approach::Approach;
pub use self::snapshot::SnapshotError;

/// Enough that a rebuild of one is short and that threads rarely meet, or few when they are meant to. A power of two.
const SHARDS: usize = if cfg!(shuttle) { 2 } else { 1024 };
/// A store that has less than this for each of them uses fewer: what one table has taken another cannot use.
const BYTES_PER_SHARD: usize = 64 << 10;
/// The shard of the counters that keys share when the budget is spent. It is locked last.
const SHARED: usize = SHARDS;

/// Keeps states in memory. Share it by reference or in an `Arc`.
pub struct MemoryStore {
    hasher: KeyHasher,
    /// The tables, and after them the one of shared counters.
    shards: Box<[Shelf; SHARDS + 1]>,
    /// Where the entries of all but the last are.
    hints: Hints,
    /// The number of tables in use, less one.
    mask: usize,
    budget: Budget,
    reservations: Reservations,
    shared_charges: AtomicU64,
}

/// A table behind its lock, on cache lines of its own.
#[repr(C, align(128))]
#[derive(Default)]
struct Shelf {
    /// The low half of the hash that was found last. One that is asked for again and again, as by a client that floods, is not searched for.
    recent: AtomicU64,
    shard: Lock<Shard>,
}

impl Shelf {
    /// Takes note of what was found, under the lock.
    #[inline(always)]
    fn remember(&self, hash: Hash) {
        self.recent.store(hash.low, Ordering::Relaxed);
    }
}

impl MemoryStore {
    /// The budget of [`Self::new`]: 1 GiB, room for some 28 million keys.
    pub const DEFAULT_BUDGET: usize = 1 << 30;

    /// An empty store with the default budget.
    pub fn new() -> Self {
        Self::with_budget(Self::DEFAULT_BUDGET)
    }

    /// An empty store that uses at most `bytes` for keys. What is not used is not allocated.
    pub fn with_budget(bytes: usize) -> Self {
        Self::with_hasher(KeyHasher::random(), bytes)
    }

    fn with_hasher(hasher: KeyHasher, budget: usize) -> Self {
        Self {
            reservations: Reservations::default(),
            hasher,
            hints: Hints::default(),
            shards: Box::new(std::array::from_fn(|_| Shelf::default())),
            mask: (budget / BYTES_PER_SHARD).clamp(1, SHARDS).next_power_of_two().min(SHARDS) - 1,
            budget: Budget::new(budget),
            shared_charges: AtomicU64::new(0),
        }
    }

    /// How many keys are stored, those that are stale and not yet overwritten included. Looks at every table.
    pub fn keys(&self) -> usize {
        self.shards.iter().map(|shelf| shelf.shard.lock().keys()).sum()
    }

    /// Bytes of the budget in use.
    pub fn bytes_used(&self) -> usize {
        self.budget.used()
    }

    /// How many charges were counted on a shared counter because the budget was spent.
    pub fn shared_charges(&self) -> u64 {
        self.shared_charges.load(Ordering::Relaxed)
    }

    /// Drops every stale state and gives the memory back. Never needed: stale states make way as new keys come. Useful
    /// after a flood, when no new keys come.
    pub fn shrink(&self, now: Timestamp) {
        for index in 0..SHARDS {
            self.shard(index).lock().shrink(now, &self.ground(index));
        }
        self.shard(SHARED).lock().shrink(now, &Unbounded);
    }

    /// Applies one charge. See [`Store::apply`].
    #[inline]
    pub fn apply_one(&self, charge: &Charge<'_>, intent: Intent, now: Timestamp) -> Outcome {
        self.apply_one_at(charge, intent, || now)
    }

    /// Whether one charge is admitted, and charges it if so. The cheapest question: neither what is remaining nor how long to
    /// wait is computed.
    #[inline]
    pub fn admit_one(&self, charge: &Charge<'_>, now: Timestamp) -> bool {
        self.admit_one_at(charge, || now)
    }

    /// [`Self::apply_one`] at a time that is read once the charge's memory is on its way: that takes a while, and so do clocks.
    #[inline]
    pub fn apply_one_at(&self, charge: &Charge<'_>, intent: Intent, now: impl FnOnce() -> Timestamp) -> Outcome {
        self.answer_one(charge, intent, now)
    }

    /// [`Self::admit_one`] at such a time as [`Self::apply_one_at`] takes.
    #[inline]
    pub fn admit_one_at(&self, charge: &Charge<'_>, now: impl FnOnce() -> Timestamp) -> bool {
        self.answer_one(charge, Intent::Spend, now)
    }

    #[inline(always)]
    fn answer_one<R: Reply>(&self, charge: &Charge<'_>, intent: Intent, now: impl FnOnce() -> Timestamp) -> R {
        let slowly = |guess, hash, ask, shard| self.answer_slowly(*charge, guess, hash, ask, shard);
        self.answer_known(charge, intent, now, |reply| reply, slowly)
    }

    /// Answers for a key whose state is in its table alone, as most are. Others are for `other`, with nothing done.
    #[inline(always)]
    fn answer_known<'s, R: Reply, T>(
        &'s self,
        charge: &Charge<'_>,
        intent: Intent,
        now: impl FnOnce() -> Timestamp,
        known: impl FnOnce(R) -> T,
        other: impl FnOnce(usize, Hash, Ask, Guard<'s, Shard>) -> T,
    ) -> T {
        let entity = self.hasher.entity(&charge.key);
        let hash = self.hasher.counter(entity, &charge.key, charge.limit.lineage());
        // Written out for both, so that neither asks again which it is.
        match self.prefetch(hash, hints::LINES) {
            (shelf, RECENT) => self.answer_at(charge, hash, shelf, RECENT, intent, now(), known, other),
            (shelf, guess) => self.answer_at(charge, hash, shelf, guess, intent, now(), known, other),
        }
    }

    /// [`Self::answer_known`] for a hash whose memory is on its way.
    #[inline(always)]
    #[expect(clippy::too_many_arguments, reason = "inlined, for what would otherwise be written twice")]
    fn answer_at<'s, R: Reply, T>(
        &'s self,
        charge: &Charge<'_>,
        hash: Hash,
        shelf: &'s Shelf,
        guess: usize,
        intent: Intent,
        now: Timestamp,
        known: impl FnOnce(R) -> T,
        other: impl FnOnce(usize, Hash, Ask, Guard<'s, Shard>) -> T,
    ) -> T {
        self.expire_reservations_due(now);
        let mut shard = shelf.shard.lock();
        let ask = ask(charge, intent, shard.advance(now));
        match shard.apply_known(guess, hash, charge.limit, &ask, &self.budget) {
            Some(reply) => {
                if guess != RECENT {
                    shelf.remember(hash);
                }
                drop(shard);
                known(reply)
            }
            None => other(guess, hash, ask, shard),
        }
    }

    /// For keys that are new, or whose state is not in the table alone.
    #[inline(never)]
    fn answer_slowly<R: Reply>(
        &self,
        charge: Charge<'_>,
        guess: usize,
        hash: Hash,
        ask: Ask,
        mut shard: Guard<'_, Shard>,
    ) -> R {
        let may_be_shared = !matches!(ask.intent, Intent::Spend | Intent::Force);
        if may_be_shared && self.is_shared(&charge, hash, ask.intent, ask.now, &mut shard) {
            return self.apply_shared(&charge, ask);
        }
        match shard.apply_slowly(guess, hash, charge.limit, ask, &self.ground(self.shard_of(hash))) {
            Ok(reply) => {
                self.shelf(hash).remember(hash);
                reply
            }
            // The lock is still held, and the shared one comes after it: the order is kept.
            Err(Full) => self.apply_shared(&charge, ask),
        }
    }

    /// Whether a peek, a refund or a renewal concerns the shared counter: the key has none of its own, and would have to be or
    /// may be counted there. What is refunded has to be known to have been charged there, which only leases can tell.
    #[cold]
    fn is_shared(&self, charge: &Charge<'_>, hash: Hash, intent: Intent, now: Timestamp, shard: &mut Shard) -> bool {
        if self.shared_charges() == 0 || shard.has(hash) {
            return false;
        }
        match intent {
            Intent::Peek => !shard.could_take(hash, charge.limit, now, &self.ground(self.shard_of(hash))),
            _ => matches!(charge.limit.algorithm(), Algorithm::Concurrency(_)),
        }
    }

    #[cold]
    fn apply_shared<R: Reply>(&self, charge: &Charge<'_>, ask: Ask) -> R {
        if matches!(ask.intent, Intent::Spend | Intent::Force) {
            self.count_shared();
        }
        let hash = self.hasher.shared(&charge.key, charge.limit.lineage());
        let mut shard = self.shard(SHARED).lock();
        let now = shard.advance(ask.now);
        let ask = Ask { now, ..ask };
        match shard.apply(NOWHERE, hash, charge.limit, &ask, &Unbounded) {
            Ok(reply) => R::shared(reply),
            // Memory itself is spent: what would be said to a new key, and not remembered.
            Err(Full) => R::ask(charge.limit, Cell::FRESH, Extra::NONE, &ask, |reply: R, _| reply.shared()),
        }
    }

    /// Applies charges as one. See [`Store::apply`].
    pub fn apply_all(&self, charges: &[Charge<'_>], intent: Intent, now: Timestamp) -> Outcomes {
        if let [charge] = charges {
            return Outcomes::from_iter([self.apply_one(charge, intent, now)]);
        }
        let common = if intent == Intent::Spend { self.spend_stack(charges, now) } else { None };
        common.unwrap_or_else(|| self.apply_together(charges, &self.hashes(charges), intent, now).0)
    }

    /// Whether charges are admitted as one, and charges them if so: [`Self::admit_one`] for several.
    #[inline]
    pub fn admit_all(&self, charges: &[Charge<'_>], now: Timestamp) -> bool {
        self.admit_all_at(charges, || now)
    }

    /// [`Self::admit_all`] at such a time as [`Self::apply_one_at`] takes. It may be read twice.
    #[inline]
    pub fn admit_all_at(&self, charges: &[Charge<'_>], now: impl Fn() -> Timestamp) -> bool {
        if let [charge] = charges {
            return self.admit_one_at(charge, now);
        }
        self.admit_stack(charges, &now).unwrap_or_else(|| {
            let (outcomes, _) = self.apply_together(charges, &self.hashes(charges), Intent::Spend, now());
            outcomes.iter().all(|outcome| outcome.allowed)
        })
    }

    /// Spends charges as one, until settled or expired. See [`Store::reserve`].
    pub fn reserve_all(
        &self,
        charges: &[Charge<'_>],
        hold: Micros,
        now: Timestamp,
    ) -> (Outcomes, Option<ReservationId>) {
        let id = reservations::random_id();
        // Slots that are nobody's in particular are the reservation's, so that it gives back its own.
        let mut charges: SmallVec<[Charge<'_>; 3]> = charges.iter().copied().collect();
        charges.iter_mut().filter(|charge| charge.lease == 0).for_each(|charge| charge.lease = id);
        let hashes = self.hashes(&charges);
        let (outcomes, now) = self.apply_together(&charges, &hashes, Intent::Spend, now);
        if outcomes.iter().any(Outcome::denied) {
            return (outcomes, None);
        }
        let held = charges.iter().zip(&hashes).zip(&outcomes).map(|((charge, hash), outcome)| {
            let shared = self.hasher.shared(&charge.key, charge.limit.lineage());
            let (shard, hash) = if outcome.shared { (SHARED, shared) } else { (self.shard_of(*hash), *hash) };
            Held::new(charge, shard, hash, shared, outcome)
        });
        self.reservations.add(id, held, now.plus(hold), &Forced(&self.budget));
        (outcomes, Some(ReservationId(id)))
    }

    /// Ends a reservation. See [`Store::settle`].
    pub fn settle_now(&self, reservation: ReservationId, settlement: Settlement<'_>, now: Timestamp) -> Settled {
        self.expire_reservations_due(now);
        let Some(reserved) = self.reservations.take(reservation, now, &self.budget) else { return Settled::Unknown };
        for held in &reserved {
            let kept = |(index, cost): &(usize, u64)| settlement.keeps(*index, *cost);
            let kept = held.charges.iter().map(kept).fold(0, u64::saturating_add);
            match kept.checked_sub(held.cost) {
                Some(0) => {}
                Some(missing) => self.apply_held(held, Intent::Force, missing, now),
                None => self.apply_held(held, held.refund(), held.cost - kept, now),
            }
        }
        Settled::Done
    }

    #[inline]
    fn expire_reservations_due(&self, now: Timestamp) {
        if self.reservations.any_due(now) {
            self.expire_reservations(now);
        }
    }

    #[cold]
    fn expire_reservations(&self, now: Timestamp) {
        self.reservations.expire(now, &self.budget, |held| {
            self.apply_held(held, held.refund(), held.cost, now);
        });
    }

    fn apply_held(&self, held: &Held, intent: Intent, cost: u64, now: Timestamp) {
        let mut shard = self.shard(held.shard).lock();
        let ask = Ask { cost, intent, now: shard.advance(now), phase: held.phase, lease: held.lease };
        let applied = if held.shard == SHARED {
            shard.apply::<bool>(NOWHERE, held.hash, &held.limit, &ask, &Unbounded)
        } else {
            shard.apply::<bool>(NOWHERE, held.hash, &held.limit, &ask, &self.ground(held.shard))
        };
        // A key that is gone has nothing to give back. One that must be charged and has no room is charged with the others.
        if applied.is_err() && held.shard != SHARED {
            self.count_shared();
            let mut shared = self.shard(SHARED).lock();
            let ask = Ask { now: shared.advance(ask.now), ..ask };
            let _full = shared.apply::<bool>(NOWHERE, held.shared_hash, &held.limit, &ask, &Unbounded);
        }
    }

    #[inline]
    fn shard_of(&self, hash: Hash) -> usize {
        // The low bits: the high ones say where in the table. The compiler is told once more that there is such a table.
        hash.high as usize & self.mask & (SHARDS - 1)
    }

    fn count_shared(&self) {
        self.shared_charges.fetch_add(1, Ordering::Relaxed);
    }

    fn hashes(&self, charges: &[Charge<'_>]) -> SmallVec<[Hash; 3]> {
        let mut last: Option<(&[&[u8]], u128)> = None;
        let mut hashes = SmallVec::with_capacity(charges.len());
        for charge in charges {
            // The limits of one rule count by the same values: these are hashed once.
            let entity = match last {
                Some((values, entity)) if std::ptr::eq(values, charge.key.values) && !values.is_empty() => entity,
                _ => self.hasher.entity(&charge.key),
            };
            last = Some((charge.key.values, entity));
            hashes.push(self.hasher.counter(entity, &charge.key, charge.limit.lineage()));
        }
        hashes
    }

    /// Asks for the memory that a decision is about to wait for: the table's lock and the entry, both at once. Returns where in
    /// the table the entry probably is.
    #[inline(always)]
    fn prefetch(&self, hash: Hash, lines: usize) -> (&Shelf, usize) {
        let shelf = self.shelf(hash);
        prefetch(std::ptr::from_ref(shelf).addr());
        // Mostly so or mostly not, and then the processor does not wait to know.
        let is_recent = shelf.recent.load(Ordering::Relaxed) == hash.low;
        (shelf, if is_recent { RECENT } else { self.hints.prefetch(self.shard_of(hash), hash, lines) })
    }

    /// Where the table of `hash` is.
    #[inline(always)]
    fn shelf(&self, hash: Hash) -> &Shelf {
        &self.shards[self.shard_of(hash)]
    }

    /// What the table numbered `index` grows on.
    #[inline]
    fn ground(&self, index: usize) -> Ground<'_, Budget> {
        Ground { allowance: &self.budget, hints: &self.hints, table: index }
    }

    #[inline]
    fn shard(&self, index: usize) -> &Lock<Shard> {
        &self.shards[index].shard
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryStore").field("bytes_used", &self.bytes_used()).finish_non_exhaustive()
    }
}

impl Store for MemoryStore {
    type Error = Infallible;

    fn apply(
        &self,
        charges: &[Charge<'_>],
        intent: Intent,
        now: Timestamp,
    ) -> impl Future<Output = Result<Outcomes, Infallible>> + Send {
        ready(Ok(self.apply_all(charges, intent, now)))
    }

    #[inline]
    fn apply_now(
        &self,
        charges: &[Charge<'_>],
        intent: Intent,
        now: Timestamp,
    ) -> Option<Result<Outcomes, Infallible>> {
        Some(Ok(self.apply_all(charges, intent, now)))
    }

    /// For keys whose state is in its table alone, as most are.
    #[inline(always)]
    fn apply_one_quickly(
        &self,
        charge: &Charge<'_>,
        intent: Intent,
        now: impl FnOnce() -> Timestamp,
    ) -> Option<Outcome> {
        self.answer_known(charge, intent, now, Some, |_, _, _, _| None)
    }

    fn apply_each(
        &self,
        charges: &[Charge<'_>],
        intent: Intent,
        now: Timestamp,
    ) -> impl Future<Output = Result<Vec<Outcome>, Infallible>> + Send {
        ready(Ok(charges.iter().map(|charge| self.apply_one(charge, intent, now)).collect()))
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

#[inline]
fn ask(charge: &Charge<'_>, intent: Intent, now: Timestamp) -> Ask {
    let phase = if charge.limit.spreads_keys() { charge.key.phase() } else { 0 };
    Ask { cost: charge.cost, intent, now, phase, lease: charge.lease }
}
