//! What is spent on approval, and when it is given back.
//!
//! Nothing runs in the background: whoever uses the store next finds by one look at [`Reservations::any_due`] that something
//! has expired, and gives it back before deciding.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};

use smallvec::SmallVec;
use tollgate_core::{Intent, Limit, Outcome, Timestamp};

use super::hash::Hash;
use super::{SHARED, shard_of};
use crate::charge::Charge;
use crate::store::ReservationId;
use crate::sync::Lock;

const SHARDS: usize = 16;

/// One charge of a reservation, with all that giving it back takes.
#[derive(Clone)]
pub(super) struct Held {
    pub(super) shard: usize,
    pub(super) hash: Hash,
    pub(super) limit: Limit,
    pub(super) cost: u64,
    pub(super) phase: u64,
    pub(super) lease: u64,
    proceeds_at: Timestamp,
}

impl Held {
    pub(super) fn refund(&self) -> Intent {
        Intent::Refund { charged_at: self.proceeds_at }
    }
}

type Reserved = SmallVec<[Held; 1]>;

#[derive(Default)]
struct Part {
    open: HashMap<u64, Reserved>,
    /// Settled ones stay here until they are due.
    due: BinaryHeap<Reverse<(Timestamp, u64)>>,
}

pub(super) struct Reservations {
    parts: [Lock<Part>; SHARDS],
    /// No reservation is due before this instant.
    next_due: AtomicU64,
}

impl Default for Reservations {
    fn default() -> Self {
        Self { parts: std::array::from_fn(|_| Lock::new(Part::default())), next_due: AtomicU64::new(u64::MAX) }
    }
}

impl Reservations {
    #[inline]
    pub(super) fn any_due(&self, now: Timestamp) -> bool {
        now.as_micros() >= self.next_due.load(Ordering::Acquire)
    }

    pub(super) fn add(
        &self,
        charges: &[Charge<'_>],
        hashes: &[Hash],
        outcomes: &[Outcome],
        now: Timestamp,
        due: Timestamp,
        shared: impl Fn(&Charge<'_>) -> Hash,
    ) -> ReservationId {
        let held = |((charge, hash), outcome): ((&Charge<'_>, &Hash), &Outcome)| Held {
            shard: if outcome.shared { SHARED } else { shard_of(*hash) },
            hash: if outcome.shared { shared(charge) } else { *hash },
            limit: charge.limit.clone(),
            cost: charge.cost,
            phase: if charge.limit.spreads_keys() { charge.key.phase() } else { 0 },
            lease: charge.lease,
            proceeds_at: now.plus(outcome.delay),
        };
        let reserved: Reserved = charges.iter().zip(hashes).zip(outcomes).map(held).collect();
        let id = random_id();
        let mut part = self.part(id).lock();
        part.open.insert(id, reserved);
        part.due.push(Reverse((due, id)));
        // Under the lock, so that `expire` either sees the entry or this.
        self.next_due.fetch_min(due.as_micros(), Ordering::AcqRel);
        ReservationId(id)
    }

    /// Ends a reservation, for one caller only.
    pub(super) fn take(&self, id: ReservationId) -> Option<Reserved> {
        self.part(id.0).lock().open.remove(&id.0)
    }

    /// Ends all that are due, and hands them to `give_back`.
    pub(super) fn expire(&self, now: Timestamp, mut give_back: impl FnMut(&Held)) {
        self.next_due.store(u64::MAX, Ordering::Release);
        for part in &self.parts {
            let mut expired = Vec::new();
            {
                let mut part = part.lock();
                while let Some(Reverse((due, id))) = part.due.peek().copied() {
                    if due > now && part.open.contains_key(&id) {
                        self.next_due.fetch_min(due.as_micros(), Ordering::AcqRel);
                        break;
                    }
                    part.due.pop();
                    expired.extend(part.open.remove(&id));
                }
            }
            // Not under this lock: giving back takes another.
            expired.iter().flatten().for_each(&mut give_back);
        }
    }

    fn part(&self, id: u64) -> &Lock<Part> {
        &self.parts[id as usize % SHARDS]
    }
}

fn random_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    getrandom::u64().unwrap_or_else(|_| tollgate_core::mix(NEXT.fetch_add(1, Ordering::Relaxed)))
}
