//! Pacing as the list of what was spent, held against the straight line.
//!
//! - At each instant of a window the total that was spent in it may be the budget times the share of the window that has
//!   passed, plus the slack (no more than the budget), and never more than the budget. The overage of a soft limit
//!   comes on top of all that.
//! - A cost that does not fit waits for the line to rise, in this window or the next. One that does not fit within either
//!   never does.
//! - A refund gives back units of this window if they were charged in it.
//! - When the clock is set back, windows are those of the fixed window.

use num_rational::Ratio;
use tollgate_core::Window;

use super::window::{Frame, instead_of};
use super::{Event, Model, first, floor, give_back, is_representable, total};

#[derive(Clone)]
pub(super) struct Pacing {
    budget: u64,
    slack: u64,
    frame: Frame,
    /// The window that goes on since the clock was set back.
    held: Option<(u64, u64)>,
    /// Each at the start of its window.
    spends: Vec<Event>,
}

impl Pacing {
    pub(super) fn new(spec: &tollgate_core::Pacing, phase: u64) -> Self {
        let frame = match &spec.window {
            Window::Clock { length, spread } => Frame::clock(length.as_micros(), *spread, phase),
            Window::FirstEvent { length } => Frame::clock(length.as_micros(), false, phase),
            Window::Calendar(calendar) => Frame::Calendar(calendar.clone()),
        };
        Self { budget: spec.budget, slack: spec.slack.min(spec.budget), frame, held: None, spends: Vec::new() }
    }

    fn window_at(&self, at: u64) -> (u64, u64) {
        self.held.filter(|held| at < held.1).unwrap_or_else(|| self.frame.window_at(at))
    }

    fn spent(&self, at: u64) -> u64 {
        let (start, end) = self.window_at(at);
        total(self.spends.iter().filter(|spend| start <= spend.at && spend.at < end))
    }
}

impl Model for Pacing {
    fn limit(&self) -> u64 {
        self.budget
    }

    fn room(&self, at: u64, extra: u64) -> u64 {
        let (start, end) = self.window_at(at);
        let line = Ratio::new(i128::from(self.budget) * i128::from(at.saturating_sub(start)), i128::from(end - start));
        let allowed = (floor(line) + self.slack).min(self.budget) + extra;
        allowed.saturating_sub(self.spent(at))
    }

    fn opens(&self, from: u64, cost: u64, extra: u64) -> Option<u64> {
        let fits = |at: u64| cost <= self.room(at, extra);
        let (_, end) = self.window_at(from);
        first(from, end, fits).or_else(|| first(end, self.window_at(end).1, fits))
    }

    fn charge(&mut self, at: u64, cost: u64, _lease: u64) {
        let (start, _) = self.window_at(at);
        self.spends.push(Event { at: start, units: cost });
    }

    fn refund(&mut self, at: u64, cost: u64, charged_at: u64, _lease: u64) {
        let (start, _) = self.window_at(at);
        if charged_at >= start {
            give_back(&mut self.spends, cost, |spend| spend.at >= start);
        }
        if self.spent(at) == 0 {
            self.held = None;
        }
    }

    fn set_back(&mut self, changed_at: u64, at: u64) -> bool {
        let kept = self.window_at(changed_at);
        self.spends.retain(|spend| spend.at == kept.0);
        let held = match &self.frame {
            Frame::Clock { length, .. } => instead_of(kept, *length, None, at),
            Frame::Calendar(calendar) => instead_of(kept, 0, Some(calendar), at),
        };
        self.held = Some(held).filter(|_| !self.spends.is_empty());
        self.spends.iter_mut().for_each(|spend| spend.at = held.0);
        true
    }

    fn reset_at(&self, at: u64) -> u64 {
        if self.spent(at) == 0 { at } else { self.window_at(at).1 }
    }

    fn is_exact(&self, at: u64) -> bool {
        // Waits lead into the next window, whose line is steeper where time ends before it.
        let (_, end) = self.window_at(at);
        is_representable(end) && is_representable(self.window_at(end).1) && is_representable(total(&self.spends))
    }
}
