//! Fixed window: a counter that starts anew with every window.
//!
//! ```text
//!   5 per minute    2:00            2:01            2:02
//!   ────────────────┼───────────ooooo┼ooooo──────────┼──── time
//!                            2:00:30 ├──────┤ 2:01:30
//! ```
//!
//! Cheap and easy to explain, and good for quotas that people think of as "per day". Its known flaw is the drawing:
//! a burst on both sides of a boundary passes twice the limit within one window's length. The sliding
//! algorithms do not have it.
//!
//! Windows are half-open: an event at the boundary belongs to the later one. What is kept is the end of the
//! window and the count; a window that is over is forgotten.
//!
//! When the clock is set back, what was counted in a window that has not begun yet counts for one window from now on.
//! Days and months stay days and months: what was counted in the next one stays there, and what was counted later
//! counts in the next one.

use super::{Machine, Saved, View, is_ahead};
use crate::calendar::{Calendar, CalendarUnit};
use crate::error::LimitError;
use crate::limit::Ask;
use crate::lua::{Numbers, Reach};
use crate::spec::{FixedWindow, Window};
use crate::state::Cell;
use crate::time::{MAX_INTEGER, Micros, Timestamp};

/// Where windows begin and end.
#[derive(Clone, Debug)]
pub(crate) enum Frame {
    /// On multiples of the length since the epoch, or that far from them when keys are spread.
    Clock { length: u64, spread: bool },
    /// At the first event after the last window.
    FirstEvent { length: u64 },
    /// By the calendar.
    Calendar(Calendar),
}

impl Frame {
    pub(crate) fn new(window: &Window) -> Result<Self, LimitError> {
        let checked = |length: Micros| match length.as_micros() {
            0 => Err(LimitError::NoWindow),
            micros if micros > MAX_INTEGER / 4 => Err(LimitError::WindowTooLong),
            micros => Ok(micros),
        };
        Ok(match window {
            Window::Clock { length, spread } => Self::Clock { length: checked(*length)?, spread: *spread },
            Window::FirstEvent { length } => Self::FirstEvent { length: checked(*length)? },
            Window::Calendar(calendar) => Self::Calendar(calendar.clone()),
        })
    }

    /// The window that a key without state is in.
    pub(crate) fn at(&self, instant: Timestamp, phase: u64) -> (Timestamp, Timestamp) {
        let now = instant.as_micros();
        match self {
            Self::Clock { length, spread } => {
                let offset = if *spread { Self::offset(phase, *length) } else { 0 };
                let start = match now.checked_sub(offset) {
                    Some(since) => now - since % length,
                    None => offset.saturating_sub(*length),
                };
                // The first window of a spread key is cut short by the epoch.
                let end = if now < offset { offset } else { start.saturating_add(*length) };
                (Timestamp::from_micros(start), Timestamp::from_micros(end))
            }
            Self::FirstEvent { length } => (instant, instant.plus(Micros::from_micros(*length))),
            Self::Calendar(calendar) => calendar.window_at(instant),
        }
    }

    /// How far the windows of a key are shifted: `phase / 2^64` of `length`.
    pub(crate) fn offset(phase: u64, length: u64) -> u64 {
        ((u128::from(phase) * u128::from(length)) >> 64) as u64
    }

    /// The window that ends at `end`.
    pub(crate) fn ending(&self, end: Timestamp) -> (Timestamp, Timestamp) {
        match self {
            Self::Clock { length, .. } | Self::FirstEvent { length } => (end.minus(Micros::from_micros(*length)), end),
            Self::Calendar(calendar) => calendar.window_at(end.minus(Micros::from_micros(1))),
        }
    }

    /// The window that a key is in whose state ends at `end`, and whether it is another one because the clock was set
    /// back.
    #[inline]
    pub(crate) fn kept(&self, end: Timestamp, now: Timestamp) -> ((Timestamp, Timestamp), bool) {
        let window = self.ending(end);
        if is_ahead(window.0, now) { self.instead_of(window, now) } else { (window, false) }
    }

    /// The window for what was counted in one that is too far ahead.
    #[cold]
    fn instead_of(&self, window: (Timestamp, Timestamp), now: Timestamp) -> ((Timestamp, Timestamp), bool) {
        match self {
            Self::Clock { length, .. } | Self::FirstEvent { length } => {
                ((now, now.plus(Micros::from_micros(*length))), true)
            }
            Self::Calendar(calendar) => {
                let next = calendar.window_at(calendar.window_at(now).1);
                if window.0 > next.0 { (next, true) } else { (window, false) }
            }
        }
    }

    /// What two limits must have in common to understand each other's windows.
    pub(crate) fn lineage(&self) -> u64 {
        match self {
            Self::Clock { length, spread } => length << 3 | u64::from(*spread),
            Self::FirstEvent { length } => length << 3 | 2,
            Self::Calendar(calendar) => {
                let unit = match calendar.unit() {
                    CalendarUnit::Day => 4,
                    CalendarUnit::Week => 5,
                    CalendarUnit::Month => 6,
                    CalendarUnit::Year => 7,
                };
                crate::key::stable_hash([calendar.zone().name().as_bytes()]) << 3 | unit
            }
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct WindowCount {
    limit: u64,
    frame: Frame,
    record_rejected: bool,
}

#[derive(Clone, Copy)]
pub(crate) struct Now {
    at: Timestamp,
    start: Timestamp,
    end: Timestamp,
    count: u64,
    /// The clock was set back since this was stored.
    moved: bool,
}

impl WindowCount {
    pub(crate) fn new(spec: &FixedWindow) -> Result<Self, LimitError> {
        if spec.limit > MAX_INTEGER {
            return Err(LimitError::TooLarge);
        }
        Ok(Self { limit: spec.limit, frame: Frame::new(&spec.window)?, record_rejected: spec.record_rejected })
    }

    pub(crate) fn raised(&self, overage: u64) -> Self {
        Self { limit: self.limit.saturating_add(overage), frame: self.frame.clone(), ..*self }
    }

    pub(crate) fn lineage(&self) -> u64 {
        self.frame.lineage()
    }

    /// For the same step in Lua.
    pub(crate) fn encode(&self, numbers: &mut Numbers<'_>, phase: u64, reach: Reach) {
        numbers.begin();
        numbers.put(self.limit);
        numbers.byte(u8::from(self.record_rejected));
        numbers.frame(&self.frame, phase, reach);
    }
}

impl Machine for WindowCount {
    type Now<'a> = Now;

    #[inline]
    fn load(&self, view: View<'_>, ask: &Ask) -> Now {
        // A state that is not stale is of the current window, or of a later one when time ran backwards.
        let (((start, end), moved), count) = if view.is_fresh() {
            ((self.frame.at(ask.now, ask.phase), false), 0)
        } else {
            (self.frame.kept(view.cell.fresh_at, ask.now), view.cell.word)
        };
        Now { at: ask.now, start, end, count, moved }
    }

    fn capacity(&self) -> u64 {
        self.limit
    }

    fn remaining(&self, now: &Now) -> u64 {
        self.limit.saturating_sub(now.count)
    }

    fn excess(&self, now: &Now) -> u32 {
        u32::try_from(now.count.saturating_sub(self.limit)).unwrap_or(u32::MAX)
    }

    fn fits(&self, now: &Now, cost: u64) -> bool {
        now.count.saturating_add(cost) <= self.limit
    }

    fn wait(&self, now: &Now, cost: u64) -> Option<Micros> {
        (cost <= self.limit).then(|| now.end.since(now.at))
    }

    fn charge(&self, now: &mut Now, cost: u64) {
        now.count = now.count.saturating_add(cost).min(MAX_INTEGER);
    }

    /// What was counted in a window that is over is not given back to this one.
    fn refund(&self, now: &mut Now, cost: u64, charged_at: Timestamp) {
        let returned = if charged_at >= now.start { cost } else { 0 };
        now.count = now.count.saturating_sub(returned);
    }

    fn reset_after(&self, now: &Now) -> Micros {
        if now.count == 0 { Micros::ZERO } else { now.end.since(now.at) }
    }

    fn is_adjusted(&self, now: &Now) -> bool {
        now.moved
    }

    fn deny(&self, now: &mut Now, cost: u64) -> bool {
        if self.record_rejected {
            self.charge(now, cost);
        }
        self.record_rejected
    }

    #[inline]
    fn save(&self, now: Now) -> Saved {
        Saved::cell(if now.count == 0 { Cell::FRESH } else { Cell { fresh_at: now.end, word: now.count } })
    }
}
