//! Concurrency: at most so many at the same time.
//!
//! ```text
//!   2 slots     a ├─────────────┤ released
//!               b    ├─────────────────────────┤ lease expires: its holder is gone
//!               c        ✗ denied   ├────────
//! ```
//!
//! Each admitted request holds a slot until it is released, or until its lease expires so that a holder that
//! crashed gives its slot back all the same. A lease that is still needed is renewed. What is kept is one mark per
//! slot: when its lease expires, and whose it is.
//!
//! When the clock is set back, a lease that expires further ahead than any can is one that was taken now. Its holder
//! has it for no shorter than it was told, and a holder that crashed no longer than any. (So a limit with a shorter
//! lease than before soon takes back what is not renewed.)

use std::collections::VecDeque;

use super::{Machine, Saved, View, is_ahead};
use crate::error::LimitError;
use crate::limit::Ask;
use crate::lua::Numbers;
use crate::spec::{Concurrency, MAX_LOG};
use crate::state::{Ahead, Cell, Mark, MarkEdit};
use crate::time::{Micros, Timestamp};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Slots {
    slots: u64,
    lease: Micros,
    /// How many slots are ever tracked: twice those there are, or those with the overage of a soft limit.
    most: u64,
}

pub(crate) struct Now<'a> {
    at: Timestamp,
    /// The lease that asks.
    lease: u64,
    marks: &'a VecDeque<Mark>,
    expired: usize,
    held: u64,
    edit: MarkEdit,
}

impl Slots {
    pub(crate) fn new(spec: &Concurrency, overage: u64) -> Result<Self, LimitError> {
        if spec.slots > MAX_LOG {
            return Err(LimitError::TooManySlots { slots: spec.slots });
        }
        if spec.lease.is_zero() {
            return Err(LimitError::NoLease);
        }
        let most = spec.slots.saturating_add(overage.max(spec.slots));
        Ok(Self { slots: spec.slots, lease: spec.lease, most })
    }

    pub(crate) fn raised(&self, overage: u64) -> Self {
        Self { slots: self.slots.saturating_add(overage), ..*self }
    }

    pub(crate) fn most_marks(&self) -> u64 {
        self.most.max(1)
    }

    /// For the same step in Lua.
    pub(crate) fn encode(&self, numbers: &mut Numbers<'_>) {
        numbers.begin();
        numbers.put_all([self.slots, self.lease.as_micros(), self.most]);
        numbers.lease();
    }

    /// When a lease that is taken or renewed now expires: never before one that was granted earlier.
    fn expiry(&self, now: &Now<'_>) -> Timestamp {
        let due = now.at.plus(self.lease);
        now.marks.back().map_or(due, |last| last.at.max(due))
    }

    fn last_expiry(&self, now: &Now<'_>) -> Timestamp {
        match now.edit {
            MarkEdit::Lease { until, .. } | MarkEdit::Renew { until, .. } => until,
            MarkEdit::Unlease { lease, count } => {
                let mut left = count;
                let is_kept = |mark: &&Mark| {
                    let gone = mark.note == lease && left > 0;
                    left -= u64::from(gone);
                    !gone
                };
                now.marks.iter().skip(now.expired).filter(is_kept).last().map_or(now.at, |last| last.at)
            }
            _ => now.marks.back().map_or(now.at, |last| last.at),
        }
    }
}

impl Machine for Slots {
    type Now<'a> = Now<'a>;

    #[inline]
    fn ahead(&self, marks: &VecDeque<Mark>, ask: &Ask) -> Ahead {
        let latest = ask.now.plus(self.lease);
        match marks.back() {
            Some(last) if is_ahead(last.at, latest) => Ahead::Cut(latest),
            _ => Ahead::Stay,
        }
    }

    fn load<'a>(&self, view: View<'a>, ask: &Ask) -> Now<'a> {
        let marks = &view.extra.marks;
        let expired = marks.partition_point(|mark| mark.at <= ask.now);
        let held = (marks.len() - expired) as u64;
        Now { at: ask.now, lease: ask.lease, marks, expired, held, edit: MarkEdit::Keep }
    }

    fn capacity(&self) -> u64 {
        self.slots
    }

    fn remaining(&self, now: &Now<'_>) -> u64 {
        self.slots.saturating_sub(now.held)
    }

    fn fits(&self, now: &Now<'_>, cost: u64) -> bool {
        now.held.saturating_add(cost) <= self.slots
    }

    fn wait(&self, now: &Now<'_>, cost: u64) -> Option<Micros> {
        if cost > self.slots {
            return None;
        }
        let excess = now.held.saturating_add(cost).saturating_sub(self.slots);
        let nth = usize::try_from(excess).ok()?.checked_sub(1)?;
        let freed_by = now.marks.get(now.expired.checked_add(nth)?)?;
        Some(freed_by.at.since(now.at))
    }

    /// A forced charge takes no more slots than are tracked.
    fn charge(&self, now: &mut Now<'_>, cost: u64) {
        let count = cost.min(self.most_marks().saturating_sub(now.held));
        if count > 0 {
            now.edit = MarkEdit::Lease { until: self.expiry(now), lease: now.lease, count };
            now.held += count;
        }
    }

    fn refund(&self, now: &mut Now<'_>, cost: u64, _charged_at: Timestamp) {
        let held = now.marks.iter().skip(now.expired).filter(|mark| mark.note == now.lease).count() as u64;
        let count = cost.min(held);
        now.edit = MarkEdit::Unlease { lease: now.lease, count };
        now.held -= count;
    }

    fn reset_after(&self, now: &Now<'_>) -> Micros {
        if now.held == 0 { Micros::ZERO } else { self.last_expiry(now).since(now.at) }
    }

    fn renew(&self, now: &mut Now<'_>) -> bool {
        let is_held = now.marks.iter().skip(now.expired).any(|mark| mark.note == now.lease);
        if is_held {
            now.edit = MarkEdit::Renew { until: self.expiry(now), lease: now.lease };
        }
        is_held
    }

    fn save(&self, now: Now<'_>) -> Saved {
        let cell = if now.held == 0 { Cell::FRESH } else { Cell { fresh_at: self.last_expiry(&now), word: 0 } };
        Saved { cell, expired: now.expired, marks: now.edit }
    }
}
