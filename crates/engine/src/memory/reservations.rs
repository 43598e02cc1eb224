//! What is spent on approval, and when it is given back.
//!
//! Nothing runs in the background: whoever uses the store next finds by one look at [`Reservations::any_due`] that
//! something has expired, and gives it back before deciding. All that are open have a budget of their own: no flood of
//! keys leaves them without room, nor do they take any from keys.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use smallvec::SmallVec;
use tollgate_core::{Intent, Limit, Micros, Outcome, Timestamp};

use super::MemoryStore;
use super::budget::Budget;
use super::hash::Hash;
use super::table::Allowance;
use crate::charge::{Charge, Outcomes};
use crate::store::ReservationId;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Lock, randomize};

const SHARDS: usize = if cfg!(shuttle) { 2 } else { 16 };

/// What a reservation holds of one counter, with all that giving it back takes.
#[derive(Clone)]
pub(super) struct Held {
    pub(super) shard: usize,
    pub(super) hash: Hash,
    /// The counter that keys of the limit share.
    pub(super) shared_hash: Hash,
    pub(super) limit: Limit,
    /// Of all charges on this counter.
    pub(super) cost: u64,
    /// Those charges: the number of each in the reservation, and its cost.
    pub(super) charges: SmallVec<[(usize, u64); 1]>,
    pub(super) phase: u64,
    pub(super) lease: u64,
    proceeds_at: Timestamp,
}

impl Held {
    pub(super) fn new(charge: &Charge<'_>, shard: usize, hash: Hash, shared_hash: Hash, outcome: &Outcome) -> Self {
        Self {
            shard,
            hash,
            shared_hash,
            limit: charge.limit.clone(),
            cost: charge.cost,
            charges: SmallVec::new(),
            phase: if charge.limit.spreads_keys() { charge.key.phase() } else { 0 },
            lease: charge.lease,
            proceeds_at: outcome.proceeds_at(),
        }
    }

    pub(super) fn refund(&self) -> Intent {
        Intent::Refund { charged_at: self.proceeds_at }
    }
}

/// What one reservation holds, in as much memory as that takes.
type Reserved = Box<[Held]>;

#[derive(Default)]
struct Part {
    /// With the instant when each is due.
    open: HashMap<u64, (Timestamp, Reserved)>,
    /// Settled ones stay here until they are due or outnumber the open ones.
    due: BinaryHeap<Reverse<(Timestamp, u64)>>,
}

impl Part {
    /// When the next one ends by itself, if any is open.
    fn next_end(&mut self) -> Option<Timestamp> {
        while let Some(Reverse((due, id))) = self.due.peek().copied() {
            if self.open.contains_key(&id) {
                return Some(due);
            }
            self.due.pop();
        }
        None
    }

    /// Lets go of what those that have ended have left behind, once that is most of it.
    fn tidy(&mut self) {
        let Self { open, due } = self;
        if due.len() > 2 * open.len() + FEW {
            due.retain(|Reverse((_, id))| open.contains_key(id));
        }
        if open.capacity() > 4 * (open.len() + FEW) {
            open.shrink_to(2 * open.len());
        }
        if due.capacity() > 4 * (due.len() + FEW) {
            due.shrink_to(2 * due.len());
        }
    }
}

/// How many are given back by one decision at most, so that none takes long. The next ones go on with it.
const AT_ONCE: usize = 256;
/// So many settled ones stay in any case.
const FEW: usize = 64;

pub(super) struct Reservations {
    parts: [Lock<Part>; SHARDS],
    /// Held by whoever gives back what has expired.
    expiring: Lock<()>,
    /// No reservation is due before this instant.
    next_due: AtomicU64,
    of_nothing: ReservationId,
    budget: Budget,
}

impl Reservations {
    /// Those that are open take at most `budget` bytes together.
    pub(super) fn new(budget: usize) -> Self {
        Self {
            parts: std::array::from_fn(|_| Lock::new(Part::default())),
            expiring: Lock::new(()),
            next_due: AtomicU64::new(u64::MAX),
            of_nothing: ReservationId(random_id()),
            budget: Budget::new(budget),
        }
    }

    pub(super) fn bytes_used(&self) -> usize {
        self.budget.used()
    }

    /// The name of all that have no charges: no limit bounds how many of them there are, so nothing is kept of them.
    /// One that costs nothing is another matter, since it may turn out to have cost something.
    pub(super) fn of_nothing(&self) -> ReservationId {
        self.of_nothing
    }

    #[inline]
    pub(super) fn any_due(&self, now: Timestamp) -> bool {
        now.as_micros() >= self.next_due.load(Ordering::Acquire)
    }

    /// Sets memory aside for one of so many charges. `false` if there is none left.
    fn set_aside(&self, charges: usize) -> bool {
        self.budget.take(bytes_for(charges))
    }

    /// Gives back what was set aside for one that was not made.
    pub(super) fn give_up(&self, charges: usize) {
        self.budget.give_back(bytes_for(charges));
    }

    /// When the next one ends by itself, if any is open.
    fn next_end(&self) -> Option<Timestamp> {
        self.parts.iter().filter_map(|part| part.lock().next_end()).min()
    }

    /// Keeps one that memory was set aside for.
    pub(super) fn add(&self, id: u64, charges: impl Iterator<Item = Held>, due: Timestamp) {
        let mut reserved: Vec<Held> = Vec::new();
        for (index, charge) in charges.enumerate() {
            match reserved.iter_mut().find(|held| (held.shard, held.hash) == (charge.shard, charge.hash)) {
                Some(same) => {
                    same.cost = same.cost.saturating_add(charge.cost);
                    same.charges.push((index, charge.cost));
                }
                None => reserved.push(Held { charges: SmallVec::from_elem((index, charge.cost), 1), ..charge }),
            }
        }
        let mut part = self.part(id).lock();
        part.open.insert(id, (due, reserved.into_boxed_slice()));
        part.due.push(Reverse((due, id)));
        // Under the lock, so that `expire` either sees the entry or this.
        self.next_due.fetch_min(due.as_micros(), Ordering::AcqRel);
    }

    /// Ends a reservation that is not due yet, for one caller only.
    pub(super) fn take(&self, id: ReservationId, now: Timestamp) -> Option<Reserved> {
        let mut part = self.part(id.0).lock();
        // One that is due has expired, even if nobody has given it back yet.
        part.open.get(&id.0).filter(|(due, _)| *due > now)?;
        let (_, reserved) = part.open.remove(&id.0)?;
        part.tidy();
        self.budget.give_back(bytes_of(&reserved));
        Some(reserved)
    }

    /// Ends some that are due, and hands them to `give_back`. Others that find something due meanwhile wait for it, so
    /// that nobody decides on what is half given back.
    pub(super) fn expire(&self, now: Timestamp, give_back: impl FnMut(&Held)) {
        let _turn = self.expiring.lock();
        let mut expired = Vec::new();
        for part in &self.parts {
            let mut part = part.lock();
            while expired.len() < AT_ONCE
                && let Some(Reverse((due, id))) = part.due.peek().copied()
                && (due <= now || !part.open.contains_key(&id))
            {
                part.due.pop();
                expired.extend(part.open.remove(&id).map(|(_, reserved)| reserved));
            }
            part.tidy();
        }
        self.budget.give_back(expired.iter().map(bytes_of).sum());
        // The last of a queue first, so that all their places are free again.
        let mut held: Vec<Held> = expired.into_iter().flatten().collect();
        held.sort_by_key(|held| Reverse(held.proceeds_at));
        held.iter().for_each(give_back);

        // Under all locks: nothing is added meanwhile, and at no time does something that is due look as if it were
        // not.
        let parts = self.parts.each_ref().map(Lock::lock);
        let next = parts.iter().filter_map(|part| part.due.peek()).map(|Reverse((due, _))| due.as_micros()).min();
        self.next_due.store(next.unwrap_or(u64::MAX), Ordering::Release);
    }

    fn part(&self, id: u64) -> &Lock<Part> {
        &self.parts[id as usize % SHARDS]
    }
}

impl MemoryStore {
    /// Sets memory aside for a reservation of so many charges. `false` if there is none left.
    pub(super) fn has_room_to_reserve(&self, charges: usize, now: Timestamp) -> bool {
        loop {
            if self.reservations.set_aside(charges) {
                return true;
            }
            if !self.reservations.any_due(now) {
                return false;
            }
            self.expire_reservations(now);
        }
    }

    /// What is said to a reservation that there is no room for: no, until one of those that are open ends.
    #[cold]
    pub(super) fn refuse_to_reserve(&self, charges: &[Charge<'_>], hashes: &[Hash], now: Timestamp) -> Outcomes {
        let (outcomes, now) = self.apply_together(charges, hashes, Intent::Peek, now);
        let until_one_ends = self.reservations.next_end().map(|end| end.since(now).max(Micros::from_micros(1)));
        let refused = |outcome: Outcome| Outcome {
            allowed: false,
            retry_after: outcome.retry_after.zip(until_one_ends).map(|(own, room)| own.max(room)),
            delay: Micros::ZERO,
            overage: false,
            shared: true,
            ..outcome
        };
        outcomes.into_iter().map(refused).collect()
    }
}

/// What a reservation of so many charges takes at most, with its places in the lists, of which some is free or left
/// behind.
fn bytes_for(charges: usize) -> usize {
    let places = size_of::<(u64, (Timestamp, Reserved))>() + size_of::<(Timestamp, u64)>();
    4 * places + charges * size_of::<Held>()
}

fn bytes_of(reserved: &Reserved) -> usize {
    bytes_for(reserved.iter().map(|held| held.charges.len()).sum())
}

pub(super) fn random_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let mut bytes = [0; 8];
    if randomize(&mut bytes) {
        return u64::from_le_bytes(bytes);
    }
    tollgate_core::mix(NEXT.fetch_add(1, Ordering::Relaxed))
}

#[cfg(test)]
mod tests {
    use tollgate_core::{FixedWindow, Key, Micros};

    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1_000);

    fn limit() -> Limit {
        Limit::new(FixedWindow::new(9, Micros::HOUR)).unwrap()
    }

    fn add(reservations: &Reservations, limit: &Limit, name: u64, hold: u64) -> ReservationId {
        let hash = Hash::new(name, name);
        let charge = Charge::new(Key::new(1, &[]), limit).cost(name);
        let held = Held::new(&charge, 0, hash, hash, &Outcome::UNLIMITED);
        let id = random_id();
        assert!(reservations.set_aside(1));
        reservations.add(id, [held].into_iter(), NOW.plus(Micros::from_secs(hold)));
        ReservationId(id)
    }

    fn reservations() -> Reservations {
        Reservations::new(usize::MAX)
    }

    fn later(seconds: u64) -> Timestamp {
        NOW.plus(Micros::from_secs(seconds))
    }

    #[test]
    fn each_is_given_back_once_when_it_is_due() {
        let (reservations, limit) = (reservations(), limit());
        assert!(!reservations.any_due(Timestamp::MAX));
        for name in 1..=100 {
            add(&reservations, &limit, name, name);
        }
        let mut given_back = Vec::new();
        for second in 0..=100 {
            assert_eq!(reservations.any_due(later(second)), second > 0, "second {second}");
            reservations.expire(later(second), |held| given_back.push(held.cost));
            assert!(!reservations.any_due(later(second)));
        }
        assert_eq!(given_back, (1..=100).collect::<Vec<_>>());
        assert!(!reservations.any_due(Timestamp::MAX));
    }

    #[test]
    fn a_crowd_that_is_due_at_once_is_given_back_in_small_parts() {
        let (reservations, limit) = (reservations(), limit());
        (0..1_000).for_each(|name| _ = add(&reservations, &limit, name, 5));
        let mut calls = 0;
        let mut given_back = 0;
        while reservations.any_due(later(5)) {
            let before = given_back;
            reservations.expire(later(5), |_| given_back += 1);
            assert!(given_back - before <= AT_ONCE);
            calls += 1;
        }
        assert_eq!(given_back, 1_000);
        assert!(calls <= 1_000 / AT_ONCE + 2, "{calls}");
    }

    #[test]
    fn what_is_due_cannot_be_settled_even_if_nobody_looked() {
        let (reservations, limit) = (reservations(), limit());
        let id = add(&reservations, &limit, 7, 5);
        assert!(reservations.take(id, later(5)).is_none());
        let mut given_back = 0;
        reservations.expire(later(5), |held| given_back += held.cost);
        assert_eq!(given_back, 7);
    }

    #[test]
    fn what_is_settled_early_takes_no_room() {
        let (reservations, limit) = (reservations(), limit());
        for name in 0..20_000 {
            let id = add(&reservations, &limit, name, 1_000_000);
            assert!(reservations.take(id, NOW).is_some());
            assert!(reservations.take(id, NOW).is_none());
        }
        let waiting: usize = reservations.parts.iter().map(|part| part.lock().due.len()).sum();
        assert!(waiting <= SHARDS * (FEW + 1), "{waiting} are remembered");
        assert_eq!(reservations.bytes_used(), 0);
    }

    #[test]
    fn what_a_crowd_took_is_given_back_when_it_is_over() {
        let (reservations, limit) = (reservations(), limit());
        let settled: Vec<_> = (0..10_000).map(|name| add(&reservations, &limit, name, 5)).collect();
        let places = || -> usize {
            let parts = reservations.parts.iter().map(Lock::lock);
            parts.map(|part| part.open.capacity().max(part.due.capacity())).sum()
        };
        assert!(places() >= 10_000);
        assert!(settled.into_iter().all(|id| reservations.take(id, NOW).is_some()));
        assert!(places() < 10_000, "{} places after they were settled", places());
        (0..10_000).for_each(|name| _ = add(&reservations, &limit, name, 5));
        while reservations.any_due(later(5)) {
            reservations.expire(later(5), |_| {});
        }
        assert!(places() < 10_000, "{} places after they expired", places());
        assert_eq!(reservations.bytes_used(), 0);
    }

    #[test]
    fn charges_of_one_counter_are_one() {
        let (reservations, limit) = (reservations(), limit());
        let (a, b) = (Hash::new(1, 1), Hash::new(1, 2));
        let charge = Charge::new(Key::new(1, &[]), &limit);
        let held = |(cost, hash): (u64, Hash)| Held::new(&charge.cost(cost), 0, hash, hash, &Outcome::UNLIMITED);
        let id = ReservationId(random_id());
        assert!(reservations.set_aside(4));
        reservations.add(id.0, [(1, a), (2, b), (4, a), (u64::MAX, b)].into_iter().map(held), later(1));
        let held = reservations.take(id, NOW).unwrap();
        let held: Vec<_> = held.iter().map(|held| (held.hash, held.cost, held.charges.len())).collect();
        assert_eq!(held, [(a, 5, 2), (b, u64::MAX, 2)]);
        assert_eq!(reservations.bytes_used(), 0);
    }
}
