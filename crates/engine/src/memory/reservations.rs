//! What is spent on approval, and when it is given back.
//!
//! Nothing runs in the background: whoever uses the store next finds by one look at [`Reservations::any_due`] that
//! something has expired, and gives it back before deciding.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use smallvec::SmallVec;
use tollgate_core::{Intent, Limit, Outcome, Timestamp};

use super::hash::Hash;
use super::table::Allowance;
use crate::charge::Charge;
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

type Reserved = SmallVec<[Held; 1]>;

#[derive(Default)]
struct Part {
    /// With the instant when each is due.
    open: HashMap<u64, (Timestamp, Reserved)>,
    /// Settled ones stay here until they are due or outnumber the open ones.
    due: BinaryHeap<Reverse<(Timestamp, u64)>>,
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
}

impl Default for Reservations {
    fn default() -> Self {
        Self {
            parts: std::array::from_fn(|_| Lock::new(Part::default())),
            expiring: Lock::new(()),
            next_due: AtomicU64::new(u64::MAX),
            of_nothing: ReservationId(random_id()),
        }
    }
}

impl Reservations {
    /// The name of all that have no charges: no limit bounds how many of them there are, so nothing is kept of them.
    /// One that costs nothing is another matter, since it may turn out to have cost something.
    pub(super) fn of_nothing(&self) -> ReservationId {
        self.of_nothing
    }

    #[inline]
    pub(super) fn any_due(&self, now: Timestamp) -> bool {
        now.as_micros() >= self.next_due.load(Ordering::Acquire)
    }

    pub(super) fn add(&self, id: u64, charges: impl Iterator<Item = Held>, due: Timestamp, allowance: &impl Allowance) {
        let mut reserved = Reserved::new();
        for (index, charge) in charges.enumerate() {
            match reserved.iter_mut().find(|held| (held.shard, held.hash) == (charge.shard, charge.hash)) {
                Some(same) => {
                    same.cost = same.cost.saturating_add(charge.cost);
                    same.charges.push((index, charge.cost));
                }
                None => reserved.push(Held { charges: SmallVec::from_elem((index, charge.cost), 1), ..charge }),
            }
        }
        allowance.take(bytes_of(&reserved));
        let mut part = self.part(id).lock();
        part.open.insert(id, (due, reserved));
        part.due.push(Reverse((due, id)));
        // Under the lock, so that `expire` either sees the entry or this.
        self.next_due.fetch_min(due.as_micros(), Ordering::AcqRel);
    }

    /// Ends a reservation that is not due yet, for one caller only.
    pub(super) fn take(&self, id: ReservationId, now: Timestamp, allowance: &impl Allowance) -> Option<Reserved> {
        let mut part = self.part(id.0).lock();
        // One that is due has expired, even if nobody has given it back yet.
        part.open.get(&id.0).filter(|(due, _)| *due > now)?;
        let (_, reserved) = part.open.remove(&id.0)?;
        allowance.give_back(bytes_of(&reserved));
        let Part { open, due } = &mut *part;
        if due.len() > 2 * open.len() + FEW {
            due.retain(|Reverse((_, id))| open.contains_key(id));
        }
        Some(reserved)
    }

    /// Ends some that are due, and hands them to `give_back`. Others that find something due meanwhile wait for it, so
    /// that nobody decides on what is half given back.
    pub(super) fn expire(&self, now: Timestamp, allowance: &impl Allowance, give_back: impl FnMut(&Held)) {
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
        }
        allowance.give_back(expired.iter().map(bytes_of).sum());
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

/// What a reservation takes, with its places in the lists.
fn bytes_of(reserved: &Reserved) -> usize {
    let spilled = if reserved.spilled() { reserved.len() * size_of::<Held>() } else { 0 };
    2 * (size_of::<(u64, (Timestamp, Reserved))>() + size_of::<(Timestamp, u64)>()) + spilled
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

    use super::super::Unbounded;
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
        reservations.add(id, [held].into_iter(), NOW.plus(Micros::from_secs(hold)), &Unbounded);
        ReservationId(id)
    }

    fn later(seconds: u64) -> Timestamp {
        NOW.plus(Micros::from_secs(seconds))
    }

    #[test]
    fn each_is_given_back_once_when_it_is_due() {
        let (reservations, limit) = (Reservations::default(), limit());
        assert!(!reservations.any_due(Timestamp::MAX));
        for name in 1..=100 {
            add(&reservations, &limit, name, name);
        }
        let mut given_back = Vec::new();
        for second in 0..=100 {
            assert_eq!(reservations.any_due(later(second)), second > 0, "second {second}");
            reservations.expire(later(second), &Unbounded, |held| given_back.push(held.cost));
            assert!(!reservations.any_due(later(second)));
        }
        assert_eq!(given_back, (1..=100).collect::<Vec<_>>());
        assert!(!reservations.any_due(Timestamp::MAX));
    }

    #[test]
    fn a_crowd_that_is_due_at_once_is_given_back_in_small_parts() {
        let (reservations, limit) = (Reservations::default(), limit());
        (0..1_000).for_each(|name| _ = add(&reservations, &limit, name, 5));
        let mut calls = 0;
        let mut given_back = 0;
        while reservations.any_due(later(5)) {
            let before = given_back;
            reservations.expire(later(5), &Unbounded, |_| given_back += 1);
            assert!(given_back - before <= AT_ONCE);
            calls += 1;
        }
        assert_eq!(given_back, 1_000);
        assert!(calls <= 1_000 / AT_ONCE + 2, "{calls}");
    }

    #[test]
    fn what_is_due_cannot_be_settled_even_if_nobody_looked() {
        let (reservations, limit) = (Reservations::default(), limit());
        let id = add(&reservations, &limit, 7, 5);
        assert!(reservations.take(id, later(5), &Unbounded).is_none());
        let mut given_back = 0;
        reservations.expire(later(5), &Unbounded, |held| given_back += held.cost);
        assert_eq!(given_back, 7);
    }

    #[test]
    fn what_is_settled_early_takes_no_room() {
        let (reservations, limit) = (Reservations::default(), limit());
        for name in 0..20_000 {
            let id = add(&reservations, &limit, name, 1_000_000);
            assert!(reservations.take(id, NOW, &Unbounded).is_some());
            assert!(reservations.take(id, NOW, &Unbounded).is_none());
        }
        let waiting: usize = reservations.parts.iter().map(|part| part.lock().due.len()).sum();
        assert!(waiting <= SHARDS * (FEW + 1), "{waiting} are remembered");
    }

    #[test]
    fn charges_of_one_counter_are_one() {
        let (reservations, limit) = (Reservations::default(), limit());
        let (a, b) = (Hash::new(1, 1), Hash::new(1, 2));
        let charge = Charge::new(Key::new(1, &[]), &limit);
        let held = |(cost, hash): (u64, Hash)| Held::new(&charge.cost(cost), 0, hash, hash, &Outcome::UNLIMITED);
        let id = ReservationId(random_id());
        reservations.add(id.0, [(1, a), (2, b), (4, a), (u64::MAX, b)].into_iter().map(held), later(1), &Unbounded);
        let held = reservations.take(id, NOW, &Unbounded).unwrap();
        let held: Vec<_> = held.iter().map(|held| (held.hash, held.cost, held.charges.len())).collect();
        assert_eq!(held, [(a, 5, 2), (b, u64::MAX, 2)]);
    }
}
