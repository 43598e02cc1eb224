//! Which parts of the keys reservations were made on, so that whoever gives one back is known to give back to those and
//! no others. Bounded: a reservation that is not found here may be on any.

use std::collections::HashMap;
use std::sync::PoisonError;

use smallvec::SmallVec;
use tollgate_core::Timestamp;

use crate::store::ReservationId;
use crate::sync::{Mutex, MutexGuard};

/// How many reservations are known at a time.
const MOST: usize = 65_536;

/// Numbers of parts.
pub(crate) type Parts = SmallVec<[u16; 4]>;

/// Reservations that were made here.
#[derive(Default)]
pub(crate) struct Held(Mutex<Known>);

#[derive(Default)]
struct Known {
    reservations: HashMap<ReservationId, (Parts, Timestamp)>,
    /// Before this there is no use in looking for one that is over.
    full_until: Timestamp,
}

impl Held {
    /// A reservation was made that lapses at `due`.
    pub(crate) fn add(&self, id: ReservationId, parts: Parts, due: Timestamp, now: Timestamp) {
        let mut known = self.known();
        if known.reservations.len() >= MOST {
            if now < known.full_until {
                return;
            }
            known.reservations.retain(|_, (_, due)| now < *due);
            if known.reservations.len() >= MOST {
                known.full_until = known.reservations.values().map(|(_, due)| *due).min().unwrap_or(now);
                return;
            }
        }
        known.reservations.insert(id, (parts, due));
    }

    /// What a reservation was made on, if it is known.
    pub(crate) fn find(&self, id: ReservationId) -> Option<Parts> {
        self.known().reservations.get(&id).map(|(parts, _)| parts.clone())
    }

    /// It was settled.
    pub(crate) fn remove(&self, id: ReservationId) {
        self.known().reservations.remove(&id);
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::Micros;

    use super::*;

    #[test]
    fn those_that_are_over_make_room_and_no_others() {
        let (held, now) = (Held::default(), Timestamp::from_secs(1));
        let due = now.plus(Micros::SECOND);
        for number in 0..MOST as u64 {
            held.add(ReservationId(number), Parts::from_elem(7, 1), due, now);
        }
        held.add(ReservationId(u64::MAX), Parts::new(), due, now);
        assert_eq!(held.find(ReservationId(u64::MAX)), None);
        assert_eq!(held.find(ReservationId(3)), Some(Parts::from_elem(7, 1)));
        held.remove(ReservationId(3));
        assert_eq!(held.find(ReservationId(3)), None);
        held.add(ReservationId(u64::MAX), Parts::new(), due.plus(Micros::SECOND), due);
        held.add(ReservationId(u64::MAX - 1), Parts::new(), due.plus(Micros::SECOND), due);
        assert!(held.find(ReservationId(u64::MAX)).is_some() && held.find(ReservationId(u64::MAX - 1)).is_some());
        assert_eq!(held.find(ReservationId(4)), None, "it lapsed");
    }
}
