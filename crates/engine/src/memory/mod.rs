//! States in memory.
//!
//! Counters lie in blocks of five, each behind a lock of its own on the same two cache lines. A decision hashes its
//! key, which says where its block is, locks that for some tens of nanoseconds and touches nothing else; nothing is
//! allocated, no other thread is needed. What finds no room in its block, or does not fit into it, is in the back of
//! its table, one of many. Several charges lock their blocks in ascending order and then the backs, so all of them pass
//! or none is charged, and no two decisions can wait for each other.
//!
//! The budget bounds the memory of everything that grows with keys. When it is spent, keys that are already counted go
//! on as before, and new ones of a limit share one counter: a flood of invented keys limits itself and resets nobody. A
//! part of it is for reservations: when that is spent, there are no more until one ends.

mod approach;
mod block;
mod budget;
mod chunk;
mod front;
mod hash;
mod item;
mod one;
mod prefetch;
mod rebuild;
mod region;
mod reservations;
mod shard;
mod shared;
mod site;
mod slots;
mod snapshot;
mod stack;
mod table;
mod together;

use std::convert::Infallible;
use std::future::{Future, ready};

use smallvec::SmallVec;
use tollgate_core::{Ask, Intent, Micros, Outcome, Timestamp};

use self::block::Locked;
use self::budget::{Budget, Unbounded};
use self::front::{Front, Home};
use self::hash::Hash;
pub(crate) use self::hash::KeyHasher;
pub(crate) use self::prefetch::prefetch_to_read;
use self::rebuild::Purpose;
use self::reservations::{Held, Reservations};
use self::shard::Shard;
use self::site::Site;
use self::table::{Allowance, Full};
use crate::charge::{Charge, Outcomes};
use crate::store::{ReservationId, Settled, Settlement, Store};
use crate::sync::Lock;
use crate::sync::atomic::{AtomicU64, Ordering};

pub use self::approach::Approach;
pub use self::snapshot::SnapshotError;

/// So many tables that threads rarely meet, or few when they are meant to. A power of two, as all numbers of tables
/// are.
const USUAL_TABLES: usize = if cfg!(shuttle) { 2 } else { 1024 };
/// A store that has less than this for each of them has fewer: what one table has taken another cannot use.
const BYTES_PER_TABLE: usize = 64 << 10;
/// One that has more than this for each has more of them, so that no rebuild of one is long.
const MOST_BYTES_PER_TABLE: usize = 1 << 20;
/// Only where what is mapped takes no memory until it is used.
const MOST_TABLES: usize = if cfg!(all(target_os = "linux", not(shuttle))) { 16 * USUAL_TABLES } else { USUAL_TABLES };
/// This part of the budget is for reservations, the others for keys.
const TO_RESERVE: usize = 16;
/// In place of a table's number, the counters that keys share when the budget is spent. They are locked last.
const SHARED: usize = usize::MAX;

/// Keeps states in memory. Share it by reference or in an `Arc`.
pub struct MemoryStore {
    hasher: KeyHasher,
    /// The blocks of all tables.
    front: Front,
    /// What they have no room for, by table.
    shards: Box<[Shelf]>,
    /// The counters that keys share.
    shared: Shelf,
    /// The number of tables, less one.
    mask: usize,
    budget: Budget,
    reservations: Reservations,
    shared_charges: AtomicU64,
}

/// A back behind its lock, on two neighbouring cache lines of its own.
#[repr(align(128))]
#[derive(Default)]
struct Shelf(Lock<Shard>);

impl MemoryStore {
    /// The budget of [`Self::new`]: 1 GiB, room for some 27 million keys and 110,000 reservations.
    pub const DEFAULT_BUDGET: usize = 1 << 30;

    /// An empty store with the default budget.
    pub fn new() -> Self {
        Self::with_budget(Self::DEFAULT_BUDGET)
    }

    /// An empty store that uses at most `bytes`: a sixteenth of it for open reservations, the rest for keys. Memory is
    /// taken as they come; the tables by themselves are some 260 KiB with the default budget, which are not counted.
    pub fn with_budget(bytes: usize) -> Self {
        Self::with_hasher(KeyHasher::random(), bytes)
    }

    fn with_hasher(hasher: KeyHasher, budget: usize) -> Self {
        let usual = (budget / BYTES_PER_TABLE).clamp(1, USUAL_TABLES);
        let tables = (budget / MOST_BYTES_PER_TABLE).clamp(usual, MOST_TABLES).next_power_of_two();
        Self {
            reservations: Reservations::new(budget / TO_RESERVE),
            hasher,
            front: Front::new(tables),
            shards: (0..tables).map(|_| Shelf::default()).collect(),
            shared: Shelf::default(),
            mask: tables - 1,
            budget: Budget::new(budget - budget / TO_RESERVE),
            shared_charges: AtomicU64::new(0),
        }
    }

    /// How many keys are stored, those that are stale and not yet overwritten included. Looks at every table.
    pub fn keys(&self) -> usize {
        let in_blocks = |table| {
            let blocks = self.front.lock_all(table);
            blocks.iter().flat_map(|block| block.slots()).filter(|slot| slot.is_used()).count()
        };
        let in_backs = self.shards.iter().chain([&self.shared]).map(|shelf| shelf.0.lock().keys());
        (0..=self.mask).map(in_blocks).chain(in_backs).sum()
    }

    /// Bytes of the budget in use.
    pub fn bytes_used(&self) -> usize {
        self.budget.used() + self.reservations.bytes_used()
    }

    /// How many charges were counted on a shared counter because the budget was spent.
    pub fn shared_charges(&self) -> u64 {
        self.shared_charges.load(Ordering::Relaxed)
    }

    /// Drops every stale state and gives the memory back. Never needed: stale states make way as new keys come. Useful
    /// after a flood, when no new keys come.
    pub fn shrink(&self, now: Timestamp) {
        for table in 0..=self.mask {
            let _has_any = self.rebuild(table, now, Purpose::Shrink, &self.budget);
        }
        let mut shared = self.shard(SHARED).lock();
        // What is dropped as stale must not be missed at an earlier time.
        let now = shared.advance(now);
        shared.shrink(now, &Unbounded);
    }

    /// Applies one charge. See [`Store::apply`].
    #[inline]
    pub fn apply_one(&self, charge: &Charge<'_>, intent: Intent, now: Timestamp) -> Outcome {
        self.apply_one_at(charge, intent, || now)
    }

    /// Whether one charge is admitted, and charges it if so. The cheapest question: neither what is remaining nor how
    /// long to wait is computed.
    #[inline]
    pub fn admit_one(&self, charge: &Charge<'_>, now: Timestamp) -> bool {
        self.admit_one_at(charge, || now)
    }

    /// [`Self::apply_one`] at a time that is read once the charge's memory is on its way: that takes a while, and so do
    /// clocks.
    #[inline]
    pub fn apply_one_at(&self, charge: &Charge<'_>, intent: Intent, now: impl FnOnce() -> Timestamp) -> Outcome {
        self.answer_one(charge, intent, now)
    }

    /// [`Self::admit_one`] at such a time as [`Self::apply_one_at`] takes.
    #[inline]
    pub fn admit_one_at(&self, charge: &Charge<'_>, now: impl FnOnce() -> Timestamp) -> bool {
        self.answer_one(charge, Intent::Spend, now)
    }

    /// Does something about a key where its state is, at `now` or a later time that was seen there. `Full` once more if
    /// there was no room for it, and none could be made.
    fn at_site<'s, T>(
        &'s self,
        hash: Hash,
        now: Timestamp,
        mut home: Option<Locked<'s>>,
        allowance: &impl Allowance,
        act: impl Fn(&mut Site<'_, '_>, Timestamp) -> Result<T, Full>,
    ) -> Result<T, Full> {
        let table = self.shard_of(hash);
        let mut is_last = false;
        loop {
            let mut block = home.take().or_else(|| self.lock_home(table, hash, now, allowance)).ok_or(Full)?;
            let mut back = self.shard(table).lock();
            let now = Site { block: &mut block, back: &mut back }.advance(now);
            let done = act(&mut Site { block: &mut block, back: &mut back }, now);
            let is_crowded = back.crowd.is_too_large();
            drop(back);
            drop(block);
            if is_crowded {
                self.rebuild(table, now, Purpose::Grow, allowance);
            }
            if done.is_ok() || is_last || !self.make_room(table, now, allowance) {
                return done;
            }
            is_last = true;
        }
    }

    /// Locks the home of a key. `None` if its table has no blocks, and cannot have any.
    fn lock_home(&self, table: usize, hash: Hash, now: Timestamp, allowance: &impl Allowance) -> Option<Locked<'_>> {
        loop {
            // What was had may be given back before it is used.
            let home = self.front.lock_home(table, hash);
            if home.is_some() || !self.rebuild(table, now, Purpose::Grow, allowance) {
                return home;
            }
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
        if charges.is_empty() {
            return (Outcomes::new(), Some(self.reservations.of_nothing()));
        }
        let id = reservations::random_id();
        // Slots that are nobody's in particular are the reservation's, so that it gives back its own.
        let mut charges: SmallVec<[Charge<'_>; 3]> = charges.iter().copied().collect();
        charges.iter_mut().filter(|charge| charge.lease == 0).for_each(|charge| charge.lease = id);
        let hashes = self.hashes(&charges);
        if !self.has_room_to_reserve(charges.len(), now) {
            return (self.refuse_to_reserve(&charges, &hashes, now), None);
        }
        let (outcomes, now) = self.apply_together(&charges, &hashes, Intent::Spend, now);
        if outcomes.iter().any(Outcome::denied) {
            self.reservations.give_up(charges.len());
            return (outcomes, None);
        }
        let held = charges.iter().zip(&hashes).zip(&outcomes).map(|((charge, hash), outcome)| {
            let shared = self.hasher.shared(&charge.key, charge.limit.lineage());
            let (shard, hash) = if outcome.shared { (SHARED, shared) } else { (self.shard_of(*hash), *hash) };
            Held::new(charge, shard, hash, shared, outcome)
        });
        self.reservations.add(id, held, now.plus(hold));
        (outcomes, Some(ReservationId(id)))
    }

    /// Ends a reservation. See [`Store::settle`].
    pub fn settle_now(&self, reservation: ReservationId, settlement: Settlement<'_>, now: Timestamp) -> Settled {
        self.expire_reservations_due(now);
        if reservation == self.reservations.of_nothing() {
            return Settled::Done;
        }
        let Some(reserved) = self.reservations.take(reservation, now) else { return Settled::Unknown };
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
        self.reservations.expire(now, |held| {
            self.apply_held(held, held.refund(), held.cost, now);
        });
    }

    fn apply_held(&self, held: &Held, intent: Intent, cost: u64, now: Timestamp) {
        let ask = Ask { cost, intent, now, phase: held.phase, lease: held.lease };
        let share = |hash| {
            let mut shared = self.shard(SHARED).lock();
            let ask = Ask { now: shared.advance(now), ..ask };
            let _full = shared.apply::<bool>(hash, &held.limit, &ask, &Unbounded);
        };
        if held.shard == SHARED {
            return share(held.hash);
        }
        let applied = self.at_site(held.hash, now, None, &self.budget, |site, now| {
            site.apply::<bool>(held.hash, &held.limit, &Ask { now, ..ask }, &self.budget)
        });
        // A key that is gone has nothing to give back. One that must be charged and has no room is charged with the
        // others.
        if applied.is_err() && intent == Intent::Force {
            self.count_shared();
            share(held.shared_hash);
        }
    }

    #[inline]
    fn shard_of(&self, hash: Hash) -> usize {
        // The lower bits of what is kept: the upper ones say where in the table.
        (hash.high >> 32) as usize & self.mask
    }

    #[inline(always)]
    fn hash(&self, charge: &Charge<'_>) -> Hash {
        let entity = self.hasher.entity(&charge.key);
        self.hasher.counter(entity, &charge.key, charge.limit.lineage())
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

    /// Asks for the memory that a decision is about to wait for.
    #[inline(always)]
    fn prefetch(&self, hash: Hash) -> Option<Home<'_>> {
        let home = self.front.home(self.shard_of(hash), hash)?;
        home.prefetch();
        Some(home)
    }

    #[inline]
    fn shard(&self, index: usize) -> &Lock<Shard> {
        &self.shards.get(index).unwrap_or(&self.shared).0
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

    /// For keys whose state is in their block, as most are.
    #[inline(always)]
    fn apply_one_quickly(
        &self,
        charge: &Charge<'_>,
        intent: Intent,
        now: impl FnOnce() -> Timestamp,
    ) -> Option<Outcome> {
        self.answer_known(charge, intent, now, Some, |_, _, _| None)
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
