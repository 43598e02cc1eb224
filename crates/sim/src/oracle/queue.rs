//! A first-in, first-out queue, as the list of who leaves when.
//!
//! - A request that is admitted leaves when the one before it has had its intervals (one per unit of cost), or at once.
//!   Its delay is that wait, rounded up to microseconds.
//! - It is admitted when all intervals that are then still ahead, with its own, are at most `length` and one, and its own
//!   wait is at most `max_wait`. A forced charge joins the queue in any case.
//! - Only the end of the queue can be given back: a refund of c units that could proceed at t is granted when the last c
//!   intervals begin at t, rounded up (and not before the epoch). What has already passed of them stays spent.
//! - The overage of a soft limit is as many more places.
//! - When the clock is set back, the queue ends no later, by more than ten milliseconds, than a full one that begins now; or one with as
//!   many units more as it had more than were full when it was last charged. (A rate whose fraction has 2^26 units or more, or as many
//!   units more, leaves no room to remember that.)

use num_rational::Ratio;
use tollgate_core::{MAX_INTEGER, Micros, Rate};

use super::{Exact, MOST_APART, Model, ceil, exact, floor};

/// What is more than full is counted up to here.
const MOST_FORCED: u64 = (1 << 26) - 1;

#[derive(Clone)]
pub(super) struct Queue {
    /// Microseconds per unit.
    interval: Exact,
    places: u64,
    max_wait: Option<Micros>,
    admitted: Vec<Departure>,
    /// When the end of the queue was given back after the last admission: when it ends instead.
    cut_at: Option<Exact>,
    /// How many units more than there are places for it had when it was last charged.
    forced: u64,
}

#[derive(Clone)]
struct Departure {
    at: Exact,
    units: u64,
}

impl Queue {
    pub(super) fn new(rate: Rate, length: u64, max_wait: Option<Micros>) -> Self {
        let interval = Ratio::new(i128::from(rate.period.as_micros()), i128::from(rate.units));
        Self { interval, places: length + 1, max_wait, admitted: Vec::new(), cut_at: None, forced: 0 }
    }

    /// When the last interval that was given to someone ends.
    fn end(&self) -> Exact {
        let of_last = || self.admitted.last().map(|last| last.at + self.interval * exact(last.units));
        self.cut_at.or_else(of_last).unwrap_or_else(|| exact(0))
    }

    fn ahead(&self, at: u64) -> Exact {
        (self.end() - exact(at)).max(exact(0))
    }

    fn depth(&self) -> Exact {
        self.interval * exact(self.places)
    }
}

impl Model for Queue {
    fn limit(&self) -> u64 {
        self.places
    }

    fn room(&self, at: u64, extra: u64) -> u64 {
        let ahead = self.ahead(at);
        if self.max_wait.is_some_and(|most| ahead > exact(most.as_micros())) {
            return 0;
        }
        floor(exact(self.places + extra) - ahead / self.interval)
    }

    fn opens(&self, from: u64, cost: u64, extra: u64) -> Option<u64> {
        let spare = exact(self.places + extra) - exact(cost);
        if spare < exact(0) {
            return None;
        }
        let until_places = self.ahead(from) - spare * self.interval;
        let until_bearable = self.max_wait.map_or(exact(0), |most| self.ahead(from) - exact(most.as_micros()));
        Some(from.saturating_add(ceil(until_places.max(until_bearable))))
    }

    fn charge(&mut self, at: u64, cost: u64, _lease: u64) {
        let departure = self.end().max(exact(at));
        self.admitted.push(Departure { at: departure, units: cost });
        self.cut_at = None;
        self.forced = ceil((self.ahead(at) - self.depth()) / self.interval);
    }

    fn refund(&mut self, at: u64, cost: u64, charged_at: u64, _lease: u64) {
        let begin = self.end() - self.interval * exact(cost);
        if ceil(begin) == charged_at {
            self.cut_at = Some(begin.max(exact(at)));
        }
        if self.ahead(at) <= self.depth() {
            self.forced = 0;
        }
    }

    fn set_back(&mut self, _changed_at: u64, at: u64) -> bool {
        let is_counted = *self.interval.denom() < 1 << 26 && self.forced < MOST_FORCED;
        let most = self.depth() + self.interval * exact(self.forced);
        if is_counted && floor(self.ahead(at)).saturating_sub(floor(most)) > MOST_APART {
            self.cut_at = Some(exact(at) + most);
        }
        true
    }

    fn reset_at(&self, at: u64) -> u64 {
        at.saturating_add(self.delay(at))
    }

    fn delay(&self, at: u64) -> u64 {
        ceil(self.ahead(at))
    }

    fn is_exact(&self, _at: u64) -> bool {
        self.end() <= exact(MAX_INTEGER)
    }
}
