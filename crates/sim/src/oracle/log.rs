//! The sliding log as it is told: every event, filtered by age.
//!
//! - An event counts until it is one window old. The limit bounds the units of the events that count.
//! - A refund gives back units that were counted at the very instant it names.
//! - With `record_rejected` denied spends are events too, and then only the newest units are remembered: as many as
//!   the limit and its overage.
//! - Forced charges do not make a log longer than the limit and its overage (at least one instant): when as many instants
//!   count, what is charged joins the units of the newest instant, which all count from now on.
//! - When the clock is set back, all events after now are one event now, if the last of them is more than ten milliseconds ahead.

use tollgate_core::SlidingLog;

use super::{Event, MOST_APART, Model, give_back, is_representable, total};

#[derive(Clone)]
pub(super) struct Log {
    limit: u64,
    window: u64,
    record_rejected: bool,
    /// How many units or instants are remembered at most.
    most: u64,
    events: Vec<Event>,
}

impl Log {
    pub(super) fn new(spec: &SlidingLog, overage: u64) -> Self {
        let most = spec.limit + overage;
        let window = spec.window.as_micros();
        Self { limit: spec.limit, window, record_rejected: spec.record_rejected, most, events: Vec::new() }
    }

    fn counting(&self, at: u64) -> impl Iterator<Item = &Event> {
        self.events.iter().filter(move |event| at < event.at + self.window)
    }

    fn record(&mut self, at: u64, cost: u64) {
        let is_full = self.counting(at).count() as u64 >= self.most.max(1);
        match self.events.last_mut() {
            Some(last) if last.at == at || (is_full && !self.record_rejected) => {
                *last = Event { at, units: last.units.saturating_add(cost) };
            }
            _ => self.events.push(Event { at, units: cost }),
        }
        if self.record_rejected {
            self.forget_oldest(at);
        }
    }

    fn forget_oldest(&mut self, at: u64) {
        let window = self.window;
        self.events.retain(|event| at < event.at + window);
        let mut excess = total(&self.events).saturating_sub(self.most);
        for event in &mut self.events {
            let forgotten = event.units.min(excess);
            event.units -= forgotten;
            excess -= forgotten;
        }
        self.events.retain(|event| event.units > 0);
    }
}

impl Model for Log {
    fn limit(&self) -> u64 {
        self.limit
    }

    fn room(&self, at: u64, extra: u64) -> u64 {
        (self.limit + extra).saturating_sub(total(self.counting(at)))
    }

    fn opens(&self, from: u64, cost: u64, extra: u64) -> Option<u64> {
        let leaving = self.counting(from).map(|event| event.at + self.window);
        std::iter::once(from).chain(leaving).find(|at| cost <= self.room(*at, extra))
    }

    fn charge(&mut self, at: u64, cost: u64, _lease: u64) {
        self.record(at, cost);
    }

    fn set_back(&mut self, changed_at: u64, at: u64) -> bool {
        self.events.retain(|event| changed_at < event.at + self.window);
        let newest = self.events.last().map_or(at, |newest| newest.at);
        if newest <= at + MOST_APART {
            return newest <= at;
        }
        let units = total(self.events.iter().filter(|event| event.at >= at));
        self.events.retain(|event| event.at < at);
        self.events.push(Event { at, units });
        true
    }

    fn deny(&mut self, at: u64, cost: u64) -> bool {
        if self.record_rejected {
            self.record(at, cost);
        }
        self.record_rejected
    }

    fn refund(&mut self, at: u64, cost: u64, charged_at: u64, _lease: u64) {
        if at < charged_at.saturating_add(self.window) {
            give_back(&mut self.events, cost, |event| event.at == charged_at);
        }
    }

    fn reset_at(&self, at: u64) -> u64 {
        self.counting(at).last().map_or(at, |newest| newest.at + self.window)
    }

    fn is_exact(&self, _at: u64) -> bool {
        is_representable(total(&self.events))
    }
}
