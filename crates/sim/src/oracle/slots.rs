//! Concurrency as the list of who holds a slot until when.
//!
//! - A slot is held until it is given back or its lease expires. A charge takes as many slots as it costs, all for the one
//!   lease that asks; that lease renewed holds all its slots for one lease's length from then on.
//! - A refund gives back slots of the lease that asks, those first that expire first, whenever they were taken.
//! - No charge, forced or not, makes more slots held than twice those there are, or those there are and the overage of a
//!   soft limit if that is more; at least one can be held by force.
//! - When the clock is set back, no lease is longer than one that is taken now.

use tollgate_core::Concurrency;

use super::{MOST_APART, Model, is_representable};

#[derive(Clone)]
pub(super) struct Slots {
    slots: u64,
    lease: u64,
    most: u64,
    held: Vec<Held>,
}

#[derive(Clone)]
struct Held {
    lease: u64,
    until: u64,
}

impl Slots {
    pub(super) fn new(spec: &Concurrency, overage: u64) -> Self {
        let most = (spec.slots + spec.slots.max(overage)).max(1);
        Self { slots: spec.slots, lease: spec.lease.as_micros(), most, held: Vec::new() }
    }

    fn held_at(&self, at: u64) -> u64 {
        self.held.iter().filter(|held| at < held.until).count() as u64
    }
}

impl Model for Slots {
    fn limit(&self) -> u64 {
        self.slots
    }

    fn room(&self, at: u64, extra: u64) -> u64 {
        (self.slots + extra).saturating_sub(self.held_at(at))
    }

    fn opens(&self, from: u64, cost: u64, extra: u64) -> Option<u64> {
        let mut expiries: Vec<u64> = self.held.iter().map(|held| held.until.max(from)).collect();
        expiries.push(from);
        expiries.sort_unstable();
        expiries.dedup();
        expiries.into_iter().find(|at| cost <= self.room(*at, extra))
    }

    fn charge(&mut self, at: u64, cost: u64, lease: u64) {
        let taken = cost.min(self.most.saturating_sub(self.held_at(at)));
        self.held.retain(|held| at < held.until);
        self.held.extend((0..taken).map(|_| Held { lease, until: at + self.lease }));
    }

    fn refund(&mut self, at: u64, cost: u64, _charged_at: u64, lease: u64) {
        let mut left = cost;
        self.held.sort_by_key(|held| held.until);
        self.held.retain(|held| {
            let given_back = left > 0 && held.lease == lease && at < held.until;
            left -= u64::from(given_back);
            !given_back
        });
    }

    fn set_back(&mut self, changed_at: u64, at: u64) -> bool {
        self.held.retain(|held| changed_at < held.until);
        let (latest, last) = (at + self.lease, self.held.iter().map(|held| held.until).max().unwrap_or(0));
        if last <= latest + MOST_APART {
            return last <= latest;
        }
        self.held.iter_mut().for_each(|held| held.until = held.until.min(latest));
        true
    }

    fn renew(&mut self, at: u64, lease: u64) -> bool {
        let until = at + self.lease;
        let mut renewed = false;
        for held in self.held.iter_mut().filter(|held| held.lease == lease && at < held.until) {
            held.until = until;
            renewed = true;
        }
        renewed
    }

    fn reset_at(&self, at: u64) -> u64 {
        self.held.iter().map(|held| held.until).max().unwrap_or(at)
    }

    fn is_exact(&self, _at: u64) -> bool {
        self.held.iter().all(|held| is_representable(held.until))
    }
}
