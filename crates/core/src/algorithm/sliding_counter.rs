//! Sliding window counter: two fixed windows, the earlier one fading out.
//!
//! ```text
//!   previous window: 5          current window: 3
//!   ├──────────────────────────┼──────────────────────────┤
//!            └──── rolling window ─────┘ now: 30 % in
//!             70 % of the previous, all of the current:  3 + 5 × 0.7 = 6.5
//! ```
//!
//! The count of the rolling window is estimated as the current count plus the previous one times the share of
//! it that the rolling window still covers. The estimate is exact if the earlier requests were evenly spread; the
//! error against the log is measured by `tollgate-sim` and small. Two counters are all it takes, which makes
//! it the default.
//!
//! The sum is compared as the fraction it is: a request fits when the sum with its cost does not exceed the limit.
//! `floor` drops the fraction of the sum before the request first (as the source does), `ceil` rounds it up; since
//! costs and limits are whole, `ceil` and no rounding give the same verdicts.
//!
//! What is kept is the end of the following window (from then on neither count matters) and both counts. When the clock
//! is set back to before the window, both count in the window of now, though no more than the limit if neither alone
//! was.

use super::{MOST_APART, Machine, Saved, View};
use crate::error::LimitError;
use crate::limit::Ask;
use crate::lua::Numbers;
use crate::spec::{Rounding, SlidingCounter};
use crate::state::Cell;
use crate::time::{Micros, Timestamp};

/// Both counts share one word.
const COUNT_BITS: u32 = 32;
const COUNT_MAX: u64 = (1 << COUNT_BITS) - 1;

#[derive(Clone, Copy, Debug)]
pub(crate) struct TwoWindows {
    limit: u64,
    window: u64,
    rounding: Rounding,
}

#[derive(Clone, Copy)]
pub(crate) struct Now {
    /// Not before `start`.
    at: u64,
    asked_at: u64,
    start: u64,
    current: u64,
    previous: u64,
    /// The clock was set back since this was stored.
    moved: bool,
}

impl TwoWindows {
    /// The largest limit whose counts fit, with as much again for forced charges.
    pub(crate) const MAX_LIMIT: u64 = COUNT_MAX / 2;

    /// `limit` is at most [`Self::MAX_LIMIT`].
    pub(crate) fn new(spec: &SlidingCounter) -> Result<Self, LimitError> {
        match spec.window.as_micros() {
            0 => Err(LimitError::NoWindow),
            micros if micros > Micros::MAX.as_micros() / 4 => Err(LimitError::WindowTooLong),
            window => Ok(Self { limit: spec.limit, window, rounding: spec.rounding }),
        }
    }

    pub(crate) fn raised(&self, overage: u64) -> Self {
        Self { limit: self.limit.saturating_add(overage).min(COUNT_MAX), ..*self }
    }

    pub(crate) fn window(&self) -> u64 {
        self.window
    }

    /// For the same step in Lua.
    pub(crate) fn encode(&self, numbers: &mut Numbers<'_>) {
        numbers.begin();
        numbers.put_all([self.limit, self.window]);
        numbers.byte(u8::from(self.rounding == Rounding::Floor));
    }

    /// What `previous × (window − elapsed)` may be at most so that `cost` fits besides `current`; `None` when even
    /// nothing is too much.
    #[inline]
    fn room(&self, current: u64, cost: u64) -> Option<u128> {
        room(self.limit, current.saturating_add(cost), self.window, self.rounding)
    }

    #[inline]
    fn faded(&self, now: &Now) -> u128 {
        u128::from(now.previous) * u128::from(self.window - (now.at - now.start))
    }
}

/// See [`TwoWindows::room`]; shared with the form that has more windows.
#[inline]
pub(crate) fn room(limit: u64, taken: u64, window: u64, rounding: Rounding) -> Option<u128> {
    match rounding {
        Rounding::None | Rounding::Ceil => Some(u128::from(limit.checked_sub(taken)?) * u128::from(window)),
        Rounding::Floor => Some((u128::from(limit.checked_sub(taken)?) + 1) * u128::from(window) - 1),
    }
}

/// The first instant of a window, counted from its start, at which `count × (window − elapsed)` is at most `room`.
pub(crate) fn elapsed_until(count: u64, room: u128, window: u64) -> u64 {
    match room.checked_div(u128::from(count)) {
        // The quotient is below the window, or the whole window is covered.
        Some(covered) => window.saturating_sub(u64::try_from(covered).unwrap_or(u64::MAX)),
        None => 0,
    }
}

/// How many whole units are left beside a fading count.
pub(crate) fn left(limit: u64, current: u64, faded: u128, window: u64, rounding: Rounding) -> u64 {
    let window = u128::from(window);
    let fading = match rounding {
        Rounding::None | Rounding::Ceil => faded.div_ceil(window),
        Rounding::Floor => faded / window,
    };
    let taken = u64::try_from(fading).unwrap_or(u64::MAX).saturating_add(current);
    limit.saturating_sub(taken)
}

impl Machine for TwoWindows {
    type Now<'a> = Now;

    #[inline]
    fn load(&self, view: View<'_>, ask: &Ask) -> Now {
        let asked_at = ask.now.as_micros();
        let here = |start: u64, current: u64, previous: u64| Now {
            at: asked_at.max(start),
            asked_at,
            start,
            current,
            previous,
            moved: false,
        };
        if view.is_fresh() {
            return here(asked_at - asked_at % self.window, 0, 0);
        }
        // Not stale, so the stored window is the current one, the one before, or ahead because time ran backwards.
        let start = view.cell.fresh_at.as_micros().saturating_sub(2 * self.window);
        let (current, previous) = (view.cell.word & COUNT_MAX, view.cell.word >> COUNT_BITS);
        if start > asked_at + MOST_APART {
            let counted = current.max(current.saturating_add(previous).min(self.limit));
            Now { moved: true, ..here(asked_at - asked_at % self.window, counted, 0) }
        } else if asked_at < start.saturating_add(self.window) {
            here(start, current, previous)
        } else {
            here(start.saturating_add(self.window), 0, current)
        }
    }

    fn capacity(&self) -> u64 {
        self.limit
    }

    #[inline]
    fn remaining(&self, now: &Now) -> u64 {
        left(self.limit, now.current, self.faded(now), self.window, self.rounding)
    }

    #[inline]
    fn fits(&self, now: &Now, cost: u64) -> bool {
        self.room(now.current, cost).is_some_and(|room| self.faded(now) <= room)
    }

    fn wait(&self, now: &Now, cost: u64) -> Option<Micros> {
        let due = match self.room(now.current, cost) {
            Some(room) => now.start.saturating_add(elapsed_until(now.previous, room, self.window)),
            None => {
                let room = self.room(0, cost)?;
                let next = now.start.saturating_add(self.window);
                next.saturating_add(elapsed_until(now.current, room, self.window))
            }
        };
        Some(Micros::from_micros(due.saturating_sub(now.asked_at)))
    }

    #[inline]
    fn charge(&self, now: &mut Now, cost: u64) {
        now.current = now.current.saturating_add(cost).min(COUNT_MAX);
    }

    fn refund(&self, now: &mut Now, cost: u64, charged_at: Timestamp) {
        let at = charged_at.as_micros();
        if at >= now.start {
            now.current = now.current.saturating_sub(cost);
        } else if at.saturating_add(self.window) >= now.start {
            now.previous = now.previous.saturating_sub(cost);
        }
    }

    fn reset_after(&self, now: &Now) -> Micros {
        let windows = match (now.current, now.previous) {
            (0, 0) => return Micros::ZERO,
            (0, _) => 1,
            _ => 2,
        };
        Micros::from_micros(now.start.saturating_add(windows * self.window).saturating_sub(now.asked_at))
    }

    fn is_adjusted(&self, now: &Now) -> bool {
        now.moved
    }

    #[inline]
    fn save(&self, now: Now) -> Saved {
        let (start, word) = match (now.current, now.previous) {
            (0, 0) => return Saved::cell(Cell::FRESH),
            // Seen from its own window, what is left fades one window sooner.
            (0, previous) => (now.start.saturating_sub(self.window), previous),
            (current, previous) => (now.start, previous << COUNT_BITS | current),
        };
        Saved::cell(Cell { fresh_at: Timestamp::from_micros(start.saturating_add(2 * self.window)), word })
    }
}
