//! Requests, as the script reads them.
//!
//! ```text
//!   O  intent charge now:f64 extra:f64        one charge; extra is when what is refunded was charged
//!
//!   op intent count:u16 now:f64 extra:f64     the beginning of all others; or extra is how long to hold
//!   A  charges                                all or nothing
//!   E  (length:u32 charge) …                  each on its own
//!   R  id count:u16 (tag:u16)…  (charge, count:u16 (index:u16 cost:f64)…) …
//!   S  id (high:f64 low:f64) …                intent says how to settle, the pairs are actual costs
//! ```
//!
//! The keys are those of the charges in their order, then that of the reservation, and then what long logs keep beside
//! their values.
//!
//! A charge is what [`Limit::encode`](tollgate_core::Limit::encode) makes of it. All numbers are little-endian.

use smallvec::SmallVec;
use tokio::time::Instant;
use tollgate::{Algorithm, Charge, Intent, Micros, ReservationId, Settlement, Timestamp};
use tollgate_core::lua::{MOST_WHOLE, Reach};

use crate::call::{Request, Tag, among};
use crate::keys;

/// What fits into a request's count.
pub(crate) const MOST_CHARGES: usize = u16::MAX as usize;
/// How far the clock of a node may be off before a limit by the calendar has to be asked twice.
const MOST_APART: Micros = Micros::DAY;

/// How a reservation ends.
pub(super) const COMMIT: u8 = 0;
pub(super) const COMMIT_ACTUAL: u8 = 1;
pub(super) const CANCEL: u8 = 2;
const WITHDRAW: u8 = 3;
/// Actual costs are sent in two halves, of which the lower has so many bits.
pub(super) const HALF: u32 = 26;

/// All charges of one call on one counter.
#[derive(Clone)]
pub(crate) struct Counter<'c> {
    pub(crate) name: Vec<u8>,
    pub(crate) tag: Tag,
    pub(crate) charge: Charge<'c>,
    /// Which charges these are, and the cost of each.
    pub(crate) charges: SmallVec<[(u16, u64); 1]>,
}

impl<'c> Counter<'c> {
    pub(crate) fn new(charge: &Charge<'c>, index: usize) -> Self {
        let tag = keys::tag_of(charge);
        // Bounded by `MOST_CHARGES`.
        let charges = SmallVec::from_elem((index as u16, charge.cost), 1);
        Self { name: keys::counter(charge, tag), tag, charge: *charge, charges }
    }

    /// What it may keep beside its value.
    fn middle(&self) -> Option<Vec<u8>> {
        let limit = self.charge.limit;
        let is_log = matches!(limit.algorithm(), Algorithm::SlidingLog(_));
        (is_log && limit.most_marks() > MOST_WHOLE).then(|| keys::middle(&self.name))
    }
}

/// Makes the requests of one decision, at one time of the node's.
#[derive(Clone, Copy)]
pub(crate) struct Encoder {
    now: Timestamp,
    reach: Reach,
    begun: Instant,
}

impl Encoder {
    pub(crate) fn new(now: Timestamp) -> Self {
        let reach = Reach { from: now.minus(MOST_APART), until: now.plus(MOST_APART) };
        Self { now, reach, begun: Instant::now() }
    }

    /// The same, with windows around other times as well.
    pub(crate) fn reaching(self, a: Timestamp, b: Timestamp) -> Self {
        let reach = Reach { from: a.min(b).minus(MOST_APART), until: a.max(b).plus(MOST_APART) };
        Self { reach, ..self }
    }

    /// All of `counters` as one.
    pub(crate) fn apply(self, counters: &[Counter<'_>], intent: Intent) -> Request {
        let mut argument = Vec::with_capacity(20 + 96 * counters.len());
        let (number, charged_at) = numbered(intent);
        if let [counter] = counters {
            // As most are, and answered on a shorter way.
            argument.extend_from_slice(&[b'O', number]);
            self.charge(&mut argument, &counter.charge, self.reach);
            put(&mut argument, self.now.as_micros());
            put(&mut argument, charged_at.as_micros());
        } else {
            self.head(&mut argument, b'A', number, counters.len(), charged_at.as_micros());
            for counter in counters {
                self.charge(&mut argument, &counter.charge, self.reach);
            }
        }
        self.request(counters, None, &argument, intent == Intent::Peek)
    }

    /// Each of `counters` on its own.
    pub(crate) fn each(self, counters: &[Counter<'_>], intent: Intent) -> Request {
        let mut argument = Vec::with_capacity(20 + 100 * counters.len());
        let (number, charged_at) = numbered(intent);
        self.head(&mut argument, b'E', number, counters.len(), charged_at.as_micros());
        for counter in counters {
            let start = argument.len();
            argument.extend_from_slice(&[0; 4]);
            self.charge(&mut argument, &counter.charge, self.reach);
            let length = (argument.len() - start - 4) as u32;
            if let Some(place) = argument.get_mut(start..start + 4) {
                place.copy_from_slice(&length.to_le_bytes());
            }
        }
        self.request(counters, None, &argument, intent == Intent::Peek)
    }

    /// All of `counters` as one, to be settled under `id`; `elsewhere` are the other tags where it holds something.
    pub(crate) fn reserve(
        self,
        counters: &[Counter<'_>],
        id: ReservationId,
        hold: Micros,
        at: Tag,
        elsewhere: &[Tag],
    ) -> Request {
        let mut argument = Vec::with_capacity(32 + 112 * counters.len());
        self.head(&mut argument, b'R', 0, counters.len(), hold.as_micros());
        argument.extend_from_slice(&id.0.to_le_bytes());
        argument.extend_from_slice(&(elsewhere.len() as u16).to_le_bytes());
        elsewhere.iter().for_each(|tag| argument.extend_from_slice(&tag.number().to_le_bytes()));
        // It may be settled as late as that, by someone who does not know the calendar.
        let reach = Reach { until: self.reach.until.plus(hold), ..self.reach };
        for counter in counters {
            self.charge(&mut argument, &counter.charge, reach);
            argument.extend_from_slice(&(counter.charges.len() as u16).to_le_bytes());
            for (index, cost) in &counter.charges {
                argument.extend_from_slice(&index.to_le_bytes());
                put(&mut argument, *cost);
            }
        }
        let name = keys::reservation(id, at);
        self.request(counters, Some((&name, at)), &argument, false)
    }

    /// Ends what a reservation holds at `at`.
    pub(crate) fn settle(self, id: ReservationId, at: Tag, settlement: Settlement<'_>) -> Request {
        match settlement {
            Settlement::Commit => self.end(id, at, COMMIT, &[]),
            Settlement::CommitActual(actual) => self.end(id, at, COMMIT_ACTUAL, actual),
            Settlement::Cancel => self.end(id, at, CANCEL, &[]),
        }
    }

    /// Gives back what was held at `at` for a reservation that was refused elsewhere.
    pub(crate) fn withdraw(self, id: ReservationId, at: Tag) -> Request {
        self.end(id, at, WITHDRAW, &[])
    }

    fn end(self, id: ReservationId, at: Tag, mode: u8, actual: &[u64]) -> Request {
        let actual = actual.get(..MOST_CHARGES).unwrap_or(actual);
        let mut argument = Vec::with_capacity(28 + 16 * actual.len());
        self.head(&mut argument, b'S', mode, actual.len(), 0);
        argument.extend_from_slice(&id.0.to_le_bytes());
        for cost in actual {
            // In two halves, since it may be beyond what a double holds, and less what was reserved within it again.
            put(&mut argument, cost >> HALF);
            put(&mut argument, cost & ((1 << HALF) - 1));
        }
        // What it holds is in its record.
        self.request(&[], Some((&keys::reservation(id, at), at)), &argument, false).reading_more()
    }

    fn head(self, argument: &mut Vec<u8>, op: u8, intent: u8, count: usize, extra: u64) {
        argument.extend_from_slice(&[op, intent]);
        argument.extend_from_slice(&(count as u16).to_le_bytes());
        put(argument, self.now.as_micros());
        put(argument, extra);
    }

    fn charge(self, argument: &mut Vec<u8>, charge: &Charge<'_>, reach: Reach) {
        let phase = if charge.limit.spreads_keys() { charge.key.phase() } else { 0 };
        charge.limit.encode(charge.cost, charge.lease, phase, reach, argument);
    }

    fn request(
        self,
        counters: &[Counter<'_>],
        last: Option<(&[u8], Tag)>,
        argument: &[u8],
        changes_nothing: bool,
    ) -> Request {
        let tag = counters.first().map(|counter| counter.tag).or(last.map(|(_, tag)| tag)).unwrap_or(Tag::new(0));
        let middles: Vec<Vec<u8>> = counters.iter().filter_map(Counter::middle).collect();
        let names = counters.iter().map(|counter| counter.name.as_slice()).chain(last.map(|(name, _)| name));
        let names = names.chain(middles.iter().map(Vec::as_slice));
        let among = among().max(counters.len());
        Request::new(tag, names, argument, changes_nothing).part_of(self.begun).among(among)
    }
}

/// An intent's number, and when what is refunded was charged.
fn numbered(intent: Intent) -> (u8, Timestamp) {
    match intent {
        Intent::Spend => (0, Timestamp::EPOCH),
        Intent::Peek => (1, Timestamp::EPOCH),
        Intent::Force => (2, Timestamp::EPOCH),
        Intent::Refund { charged_at } => (3, charged_at),
        Intent::Renew => (4, Timestamp::EPOCH),
    }
}

fn put(argument: &mut Vec<u8>, number: u64) {
    argument.extend_from_slice(&(number as f64).to_le_bytes());
}
