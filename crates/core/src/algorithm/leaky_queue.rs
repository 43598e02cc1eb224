//! Leaky bucket as a queue: requests leave one by one at a fixed rate, in the order they came.
//!
//! The queue itself is never stored. What is kept is **when the next free departure is**. A request that is
//! admitted gets that instant as its own (or leaves at once when it lies in the past), and the next free one moves on
//! by its cost:
//!
//! ```text
//!   arrivals    a b c          d
//!   ────────────┴┴┴────────────┴──────────────── time
//!   departures  a    b    c    d    ·  ← next free
//!               ├─e──┼─e──┼─e──┤
//! ```
//!
//! So order and spacing hold by construction: departures are handed out in order of admission, one interval
//! apart, and whoever holds a request back for its `delay` has the queue. Requests that wait are those
//! whose departure lies ahead; at most `length` may, and none longer than `max_wait`. A place that is given back
//! is free again only when it was the last one: all others have been told their departure.

use super::{Machine, Saved, View};
use crate::error::LimitError;
use crate::limit::Ask;
use crate::lua::Numbers;
use crate::rate::{Pace, Rate, Stretch};
use crate::state::Cell;
use crate::time::{MAX_INTEGER, Micros, Timestamp};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Queue {
    pace: Pace,
    /// Units that fit in all: those waiting and the one leaving.
    places: u64,
    /// How far ahead the next free departure may be after an admission.
    depth: Stretch,
    max_wait: Stretch,
}

#[derive(Clone, Copy)]
pub(crate) struct Now {
    at: u64,
    /// The next free departure: not before `at`.
    free: Stretch,
}

impl Queue {
    pub(crate) fn new(rate: Rate, length: u64, max_wait: Option<Micros>) -> Result<Self, LimitError> {
        let pace = Pace::new(rate).ok_or(LimitError::NeverRefills)?;
        if length >= MAX_INTEGER || pace.units() > MAX_INTEGER {
            return Err(LimitError::TooLarge);
        }
        let places = length + 1;
        let depth = pace.times(places);
        if depth.whole >= MAX_INTEGER / 2 {
            return Err(LimitError::RefillTooSlow);
        }
        Ok(Self { pace, places, depth, max_wait: Stretch::of(max_wait.unwrap_or(Micros::MAX)) })
    }

    pub(crate) fn raised(&self, overage: u64) -> Result<Self, LimitError> {
        let places = self.places.saturating_add(overage);
        let depth = self.pace.times(places);
        if depth.whole >= MAX_INTEGER / 2 {
            return Err(LimitError::RefillTooSlow);
        }
        Ok(Self { places, depth, ..*self })
    }

    /// For the same step in Lua.
    pub(crate) fn encode(&self, numbers: &mut Numbers<'_>) {
        let Self { pace, places, depth, max_wait } = self;
        numbers.begin();
        numbers.put_all([pace.units(), pace.micros(), *places, depth.whole, depth.part, max_wait.whole]);
    }

    #[inline]
    fn ahead(&self, now: &Now) -> Stretch {
        Stretch { whole: now.free.whole - now.at, part: now.free.part }
    }
}

impl Machine for Queue {
    type Now<'a> = Now;

    #[inline]
    fn load(&self, view: View<'_>, ask: &Ask) -> Now {
        let at = ask.now.as_micros();
        let start = Stretch { whole: at, part: 0 };
        if view.is_fresh() {
            return Now { at, free: start };
        }
        let part = view.cell.word.min(self.pace.units() - 1);
        let whole = view.cell.fresh_at.as_micros().saturating_sub(u64::from(part > 0));
        Now { at, free: Stretch { whole, part }.max(start) }
    }

    fn capacity(&self) -> u64 {
        self.places
    }

    fn remaining(&self, now: &Now) -> u64 {
        let ahead = self.ahead(now);
        if ahead > self.max_wait { 0 } else { self.pace.units_within(self.pace.subtract(self.depth, ahead)) }
    }

    #[inline]
    fn fits(&self, now: &Now, cost: u64) -> bool {
        let ahead = self.ahead(now);
        cost <= self.places && ahead <= self.max_wait && self.pace.add(ahead, self.pace.times(cost)) <= self.depth
    }

    fn wait(&self, now: &Now, cost: u64) -> Option<Micros> {
        if cost > self.places {
            return None;
        }
        let ahead = self.ahead(now);
        let for_place = self.pace.subtract(ahead, self.pace.subtract(self.depth, self.pace.times(cost)));
        let for_wait = self.pace.subtract(ahead, self.max_wait);
        Some(for_place.max(for_wait).ceil())
    }

    #[inline]
    fn charge(&self, now: &mut Now, cost: u64) {
        now.free = self.pace.add(now.free, self.pace.times(cost));
    }

    /// Only the last place can be given back: those behind any other keep the departures they were told.
    fn refund(&self, now: &mut Now, cost: u64, charged_at: Timestamp) {
        let departure = self.pace.subtract(now.free, self.pace.times(cost));
        let start = Stretch { whole: now.at, part: 0 };
        if departure.ceil().as_micros() == charged_at.as_micros() {
            now.free = departure.max(start);
        }
    }

    fn reset_after(&self, now: &Now) -> Micros {
        self.ahead(now).ceil()
    }

    fn delay(&self, now: &Now) -> Micros {
        self.ahead(now).ceil()
    }

    #[inline]
    fn save(&self, now: Now) -> Saved {
        let fresh_at = Timestamp::from_micros(now.free.ceil().as_micros());
        Saved::cell(Cell { fresh_at, word: now.free.part })
    }
}
