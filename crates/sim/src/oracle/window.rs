//! Fixed windows as lists of events; and where windows begin and end.
//!
//! - Windows on the clock begin at multiples of their length since the epoch, those of a spread key that share of the
//!   length later that its phase is of 2^64, rounded down to microseconds; none begins before the epoch. Where
//!   calendar windows begin is the calendar's own affair, which has a law for itself.
//! - A window that begins with the first event ends one length later, whatever is given back of it, unless everything
//!   is: then there is no window.
//! - The limit bounds the units of one window; with `record_rejected` denied spends are units too. A refund gives back units of this window if they were charged in it.

use tollgate_core::{Calendar, Timestamp, Window};

use super::{Event, Model, give_back, is_representable, total};

/// Windows that begin where they do whatever happens.
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

pub(super) struct FixedWindow {
    limit: u64,
    record_rejected: bool,
    windows: Windows,
    events: Vec<Event>,
}

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
        Self { limit: spec.limit, record_rejected: spec.record_rejected, windows, events: Vec::new() }
    }

    /// The window that an event at `at` is in, or would begin.
    fn window_at(&self, at: u64) -> (u64, u64) {
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
        self.events.push(Event { at, units: cost });
    }

    fn deny(&mut self, at: u64, cost: u64) {
        if self.record_rejected {
            self.charge(at, cost, 0);
        }
    }

    fn refund(&mut self, at: u64, cost: u64, charged_at: u64, _lease: u64) {
        let (start, _) = self.window_at(at);
        if charged_at >= start {
            give_back(&mut self.events, cost, |event| event.at >= start);
        }
        let left = self.count(at);
        if let Windows::FirstEvent { began, .. } = &mut self.windows
            && left == 0
        {
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
