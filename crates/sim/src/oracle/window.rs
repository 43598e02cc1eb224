//! Fixed windows as lists of events; and where windows begin and end.
//!
//! - Windows on the clock begin at multiples of their length since the epoch, those of a spread key that share of the
//!   length later that its phase is of 2^64, rounded down to microseconds; none begins before the epoch. Where
//!   calendar windows begin is the calendar's own affair, which has a law for itself.
//! - A window that begins with the first event ends one length later, whatever is given back of it, unless everything
//!   is: then there is no window.
//! - When the clock is set back, the window in which something was counted goes on. If it begins more than ten milliseconds after now, it
//!   begins now instead, and ends one length later, on the clock or not; by the calendar it begins with the next window at the latest.
//! - The limit bounds the units of one window; with `record_rejected` denied spends are units too. A refund gives back units of this window if they were charged in it.

use tollgate_core::{Calendar, Timestamp, Window};

use super::{Event, MOST_APART, Model, give_back, is_representable, total};

/// Windows that begin where they do whatever happens.
#[derive(Clone)]
pub(super) enum Frame {
    Clock { length: u64, offset: u64 },
    Calendar(Calendar),
}

impl Frame {
    pub(super) fn clock(length: u64, spread: bool, phase: u64) -> Self {
        let share = u128::from(if spread { phase } else { 0 });
        let offset = share * u128::from(length) / (1 << 64);
        Self::Clock { length, offset: u64::try_from(offset).unwrap_or(0) }
    }

    pub(super) fn window_at(&self, at: u64) -> (u64, u64) {
        match self {
            Self::Clock { length, offset } if at < *offset => (offset.saturating_sub(*length), *offset),
            Self::Clock { length, offset } => {
                let number = (at - offset) / length;
                let start = offset + number * length;
                (start, start + length)
            }
            Self::Calendar(calendar) => {
                let (start, end) = calendar.window_at(Timestamp::from_micros(at));
                (start.as_micros(), end.as_micros())
            }
        }
    }
}

/// The window that goes on after the clock was set back to `at`, instead of `kept`.
pub(super) fn instead_of(kept: (u64, u64), length: u64, calendar: Option<&Calendar>, at: u64) -> (u64, u64) {
    if kept.0 <= at + MOST_APART {
        return kept;
    }
    let Some(calendar) = calendar else { return (at, at + length) };
    let (_, end) = calendar.window_at(Timestamp::from_micros(at));
    let (start, end) = calendar.window_at(end);
    if kept.0 > start.as_micros() { (start.as_micros(), end.as_micros()) } else { kept }
}

#[derive(Clone)]
pub(super) struct FixedWindow {
    limit: u64,
    record_rejected: bool,
    windows: Windows,
    /// The window that goes on since the clock was set back.
    held: Option<(u64, u64)>,
    /// Each at the start of its window.
    events: Vec<Event>,
}

#[derive(Clone)]
enum Windows {
    Standing(Frame),
    /// With the start of the last one that began.
    FirstEvent {
        length: u64,
        began: Option<u64>,
    },
}

impl FixedWindow {
    pub(super) fn new(spec: &tollgate_core::FixedWindow, phase: u64) -> Self {
        let windows = match &spec.window {
            Window::Clock { length, spread } => Windows::Standing(Frame::clock(length.as_micros(), *spread, phase)),
            Window::FirstEvent { length } => Windows::FirstEvent { length: length.as_micros(), began: None },
            Window::Calendar(calendar) => Windows::Standing(Frame::Calendar(calendar.clone())),
        };
        Self { limit: spec.limit, record_rejected: spec.record_rejected, windows, held: None, events: Vec::new() }
    }

    /// The window that an event at `at` is in, or would begin.
    fn window_at(&self, at: u64) -> (u64, u64) {
        if let Some(held) = self.held.filter(|held| at < held.1) {
            return held;
        }
        match &self.windows {
            Windows::Standing(frame) => frame.window_at(at),
            Windows::FirstEvent { length, began } => {
                let start = began.filter(|began| at < began + length).unwrap_or(at);
                (start, start + length)
            }
        }
    }

    fn count(&self, at: u64) -> u64 {
        let (start, end) = self.window_at(at);
        total(self.events.iter().filter(|event| start <= event.at && event.at < end))
    }
}

impl Model for FixedWindow {
    fn limit(&self) -> u64 {
        self.limit
    }

    fn room(&self, at: u64, extra: u64) -> u64 {
        (self.limit + extra).saturating_sub(self.count(at))
    }

    fn excess(&self, at: u64) -> u64 {
        self.count(at).saturating_sub(self.limit)
    }

    fn opens(&self, from: u64, cost: u64, extra: u64) -> Option<u64> {
        let (_, end) = self.window_at(from);
        [from, end].into_iter().find(|at| cost <= self.room(*at, extra))
    }

    fn charge(&mut self, at: u64, cost: u64, _lease: u64) {
        let (start, _) = self.window_at(at);
        if let Windows::FirstEvent { began, .. } = &mut self.windows {
            *began = Some(start);
        }
        self.events.push(Event { at: start, units: cost });
    }

    fn set_back(&mut self, changed_at: u64, at: u64) -> bool {
        let kept = self.window_at(changed_at);
        self.events.retain(|event| event.at == kept.0);
        let held = match &mut self.windows {
            Windows::Standing(Frame::Clock { length, .. }) => instead_of(kept, *length, None, at),
            Windows::Standing(Frame::Calendar(calendar)) => instead_of(kept, 0, Some(calendar), at),
            Windows::FirstEvent { length, began } => {
                *began = None;
                instead_of(kept, *length, None, at)
            }
        };
        self.held = Some(held).filter(|_| !self.events.is_empty());
        self.events.iter_mut().for_each(|event| event.at = held.0);
        true
    }

    fn deny(&mut self, at: u64, cost: u64) -> bool {
        if self.record_rejected {
            self.charge(at, cost, 0);
        }
        self.record_rejected
    }

    fn refund(&mut self, at: u64, cost: u64, charged_at: u64, _lease: u64) {
        let (start, _) = self.window_at(at);
        if charged_at >= start {
            give_back(&mut self.events, cost, |event| event.at >= start);
        }
        if self.count(at) > 0 {
            return;
        }
        self.held = None;
        if let Windows::FirstEvent { began, .. } = &mut self.windows {
            *began = None;
        }
    }

    fn reset_at(&self, at: u64) -> u64 {
        if self.count(at) == 0 { at } else { self.window_at(at).1 }
    }

    fn is_exact(&self, at: u64) -> bool {
        is_representable(self.window_at(at).1) && is_representable(total(&self.events))
    }
}
