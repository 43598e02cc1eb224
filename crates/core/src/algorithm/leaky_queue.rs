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
//!
//! When the clock is set back, departures that were told cannot be taken back. They come, by any clock, no later than a
//! full queue takes to empty, so that is how far ahead the next free one is at most. What was forced into a full queue
//! is counted, so as to be told from that.

use super::{MOST_APART, Machine, Saved, View};
use crate::error::LimitError;
use crate::limit::Ask;
use crate::lua::Numbers;
use crate::rate::{Pace, Rate, Stretch};
use crate::state::Cell;
use crate::time::{MAX_INTEGER, Micros, Timestamp};

/// The word holds the fraction below this bit, and above it how many units more than fit were forced in.
const FORCED_BITS: u32 = 26;
/// So many are counted; from here on nothing is known of how many there are.
const MOST_FORCED: u64 = (1 << FORCED_BITS) - 1;

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
    /// No less than what is in the queue beyond its places.
    forced: u64,
    /// The clock was set back since this was stored.
    moved: bool,
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

    /// Whether fractions leave room in the word for what was forced. Where they do not, a clock set back is not told
    /// from it.
    #[inline]
    fn counts_forced(&self) -> bool {
        self.pace.units() >> FORCED_BITS == 0
    }

    /// How many units there are beyond the places.
    #[cold]
    fn beyond(&self, now: &Now) -> u64 {
        let beyond = self.pace.subtract(self.ahead(now), self.depth);
        let whole = self.pace.units_within(beyond);
        whole.saturating_add(u64::from(self.pace.times(whole) < beyond))
    }

    /// Brings the next free departure to where it can be.
    #[cold]
    fn held_back(&self, now: Now) -> Now {
        match self.furthest(now.forced) {
            Some(furthest) if self.ahead(&now).whole.saturating_sub(furthest.whole) > MOST_APART => {
                let free = self.pace.add(Stretch { whole: now.at, part: 0 }, furthest);
                Now { free, moved: true, ..now }
            }
            _ => now,
        }
    }

    /// How far ahead the next free departure can be when so much was forced in; `None` when that is not known.
    #[inline]
    fn furthest(&self, forced: u64) -> Option<Stretch> {
        match forced {
            _ if !self.counts_forced() => None,
            0 => Some(self.depth),
            MOST_FORCED.. => None,
            forced => Some(self.pace.add(self.depth, self.pace.times(forced))),
        }
    }
}

impl Machine for Queue {
    type Now<'a> = Now;

    #[inline]
    fn load(&self, view: View<'_>, ask: &Ask) -> Now {
        let at = ask.now.as_micros();
        let start = Stretch { whole: at, part: 0 };
        if view.is_fresh() {
            return Now { at, free: start, forced: 0, moved: false };
        }
        let word = view.cell.word;
        let (part, forced) = if word > MOST_FORCED && self.counts_forced() {
            (word & MOST_FORCED, word >> FORCED_BITS)
        } else {
            (word, 0)
        };
        let part = part.min(self.pace.units() - 1);
        let whole = view.cell.fresh_at.as_micros().saturating_sub(u64::from(part > 0));
        let now = Now { at, free: Stretch { whole, part }.max(start), forced, moved: false };
        if self.ahead(&now) > self.depth { self.held_back(now) } else { Now { forced: 0, ..now } }
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
        now.forced = if self.ahead(now) > self.depth { self.beyond(now) } else { 0 };
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

    fn is_adjusted(&self, now: &Now) -> bool {
        now.moved
    }

    fn delay(&self, now: &Now) -> Micros {
        self.ahead(now).ceil()
    }

    #[inline]
    fn save(&self, now: Now) -> Saved {
        let fresh_at = Timestamp::from_micros(now.free.ceil().as_micros());
        let is_forced = now.forced > 0 && self.counts_forced() && self.ahead(&now) > self.depth;
        let forced = if is_forced { now.forced.min(MOST_FORCED) << FORCED_BITS } else { 0 };
        Saved::cell(Cell { fresh_at, word: now.free.part | forced })
    }
}
