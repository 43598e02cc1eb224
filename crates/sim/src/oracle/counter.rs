//! The sliding window counter, worked out from the events themselves.
//!
//! - Time is divided into n sub-windows per window (n = 1: whole windows), from the epoch on. The estimate at an
//!   instant is the units of the current sub-window and of the n - 1 before it, and of the one before those the share
//!   that the rolling window still covers.
//! - A cost fits when it does not exceed the limit together with the estimate, of which the fraction is kept, dropped or
//!   rounded up first.
//! - A refund gives back units of the sub-window in which they were charged. With n = 1 (and a limit below 2^31) what is said to have been
//!   charged later than now was charged now.
//! - When the clock is set back, what was counted in later sub-windows counts in that of now, if the latest of them is more than ten
//!   milliseconds ahead. With n = 1 (and a limit below 2^31) it is no more than the limit, if neither window alone was.
//! - Limits up to 2^31 - 1 with n = 1 count up to 2^32 - 1 per window, all others up to 2^53 - 1.

use num_rational::Ratio;
use tollgate_core::{MAX_INTEGER, Rounding, SlidingCounter};

use super::{Event, Exact, MOST_APART, Model, exact, first, give_back, is_representable, total};

#[derive(Clone)]
pub(super) struct Counter {
    limit: u64,
    /// Of one sub-window.
    length: u64,
    number: u64,
    rounding: Rounding,
    events: Vec<Event>,
}

impl Counter {
    pub(super) fn new(spec: &SlidingCounter) -> Self {
        let number = u64::from(spec.sub_windows);
        let length = spec.window.as_micros() / number;
        Self { limit: spec.limit, length, number, rounding: spec.rounding, events: Vec::new() }
    }

    /// The start of the sub-window that an instant is in.
    fn start_of(&self, at: u64) -> u64 {
        at - at % self.length
    }

    /// Units of the sub-windows whose start is `meant`.
    fn count(&self, meant: impl Fn(u64) -> bool) -> u64 {
        total(self.events.iter().filter(|event| meant(self.start_of(event.at))))
    }

    fn estimate(&self, at: u64) -> Exact {
        let start = self.start_of(at);
        let window = self.number * self.length;
        let full = self.count(|earlier| start < earlier + window);
        let fading = self.count(|earlier| start == earlier + window);
        exact(full) + Ratio::new(i128::from(fading) * i128::from(self.length - (at - start)), i128::from(self.length))
    }

    fn has_two_windows(&self) -> bool {
        self.number == 1 && self.limit < 1 << 31
    }

    fn most_per_window(&self) -> u64 {
        if self.has_two_windows() { u64::from(u32::MAX) } else { MAX_INTEGER }
    }
}

impl Model for Counter {
    fn limit(&self) -> u64 {
        self.limit
    }

    fn room(&self, at: u64, extra: u64) -> u64 {
        let estimate = self.estimate(at);
        let rounded = match self.rounding {
            Rounding::None => estimate,
            Rounding::Floor => estimate.floor(),
            Rounding::Ceil => estimate.ceil(),
        };
        super::floor(exact(self.limit + extra) - rounded)
    }

    fn opens(&self, from: u64, cost: u64, extra: u64) -> Option<u64> {
        let empty = self.reset_at(from).max(from);
        first(from, empty.saturating_add(1), |at| cost <= self.room(at, extra))
    }

    fn charge(&mut self, at: u64, cost: u64, _lease: u64) {
        self.events.push(Event { at, units: cost });
    }

    fn refund(&mut self, at: u64, cost: u64, charged_at: u64, _lease: u64) {
        let start = self.start_of(if self.has_two_windows() { charged_at.min(at) } else { charged_at });
        give_back(&mut self.events, cost, |event| (start..start + self.length).contains(&event.at));
    }

    fn reset_at(&self, at: u64) -> u64 {
        self.events.last().map_or(at, |newest| self.start_of(newest.at) + (self.number + 1) * self.length)
    }

    fn set_back(&mut self, changed_at: u64, at: u64) -> bool {
        let (length, window) = (self.length, self.number * self.length);
        let start_of = |at: u64| at - at % length;
        self.events.retain(|event| start_of(changed_at) <= start_of(event.at) + window);
        let Some(newest) = self.events.last().map(|newest| start_of(newest.at)) else { return true };
        if newest <= at + MOST_APART {
            return newest <= at;
        }
        if self.has_two_windows() {
            let current = self.count(|start| start == newest);
            let units = current.max(total(&self.events).min(self.limit));
            self.events = vec![Event { at, units }];
        }
        self.events.iter_mut().for_each(|event| event.at = event.at.min(at));
        true
    }

    fn is_exact(&self, _at: u64) -> bool {
        let newest = self.events.last().map_or(0, |newest| self.start_of(newest.at));
        self.count(|start| start == newest) <= self.most_per_window() && is_representable(total(&self.events))
    }
}
