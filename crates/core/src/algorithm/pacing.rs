//! Pacing: a budget that is spent evenly over its window.
//!
//! ```text
//!   spent
//!   budget ┤                          ╭────   what may be spent by now:
//!          │                    ╭─────╯       the straight line plus the slack
//!          │              ╭─────╯  ╱
//!   slack  ┤━━━━━━━━╭─────╯  ╱
//!        0 ┼──────────────────────────┬──── time
//!        window starts           window ends
//! ```
//!
//! An advertising budget for a day must not be gone by noon. At each instant the total spent may not exceed the share
//! of the window that has passed, plus a stated slack, nor the budget. What was not spent earlier may be spent later,
//! so slow hours cost nothing. When the clock is set back, windows are those of the fixed window, and the line begins
//! with them.

use super::fixed_window::Frame;
use super::{Machine, Saved, View};
use crate::error::LimitError;
use crate::limit::Ask;
use crate::lua::{Numbers, Reach};
use crate::spec::{Pacing, Window};
use crate::state::Cell;
use crate::time::{MAX_INTEGER, Micros, Timestamp};

#[derive(Clone, Debug)]
pub(crate) struct Budget {
    /// How high the straight line rises.
    budget: u64,
    /// How much may be spent in a window: more than the budget only where that is soft.
    most: u64,
    slack: u64,
    frame: Frame,
}

#[derive(Clone, Copy)]
pub(crate) struct Now {
    at: Timestamp,
    start: Timestamp,
    end: Timestamp,
    spent: u64,
    /// The clock was set back since this was stored.
    moved: bool,
    phase: u64,
}

impl Budget {
    pub(crate) fn new(spec: &Pacing) -> Result<Self, LimitError> {
        if spec.budget > MAX_INTEGER {
            return Err(LimitError::TooLarge);
        }
        if matches!(spec.window, Window::FirstEvent { .. }) {
            return Err(LimitError::PacingNeedsAClock);
        }
        if spec.slack == 0 && spec.budget > 0 {
            return Err(LimitError::NoSlack);
        }
        let (budget, slack) = (spec.budget, spec.slack.min(spec.budget));
        Ok(Self { budget, most: budget, slack, frame: Frame::new(&spec.window)? })
    }

    pub(crate) fn raised(&self, overage: u64) -> Self {
        Self {
            budget: self.budget,
            most: self.most.saturating_add(overage),
            slack: self.slack.saturating_add(overage),
            frame: self.frame.clone(),
        }
    }

    pub(crate) fn lineage(&self) -> u64 {
        self.frame.lineage()
    }

    /// For the same step in Lua.
    pub(crate) fn encode(&self, numbers: &mut Numbers<'_>, phase: u64, reach: Reach) {
        numbers.begin();
        numbers.put_all([self.budget, self.most, self.slack]);
        numbers.frame(&self.frame, phase, reach);
    }

    /// What may have been spent `elapsed` into a window of `length`.
    fn allowance(&self, elapsed: u64, length: u64) -> u64 {
        let line = u128::from(self.budget) * u128::from(elapsed) / u128::from(length.max(1));
        let line = u64::try_from(line).unwrap_or(u64::MAX);
        line.saturating_add(self.slack).min(self.most)
    }

    /// How far into a window of `length` `total` may have been spent; `None` when it may not before its end.
    fn elapsed_for(&self, total: u64, length: u64) -> Option<u64> {
        let on_line = u128::from(total.saturating_sub(self.slack));
        let elapsed = (on_line * u128::from(length)).div_ceil(u128::from(self.budget.max(1)));
        u64::try_from(elapsed).ok().filter(|elapsed| total <= self.most && *elapsed < length)
    }

    fn elapsed(now: &Now) -> u64 {
        now.at.since(now.start).as_micros()
    }

    fn length(now: &Now) -> u64 {
        now.end.since(now.start).as_micros()
    }
}

impl Machine for Budget {
    type Now<'a> = Now;

    fn load(&self, view: View<'_>, ask: &Ask) -> Now {
        let (((start, end), moved), spent) = if view.is_fresh() {
            ((self.frame.at(ask.now, ask.phase), false), 0)
        } else {
            (self.frame.kept(view.cell.fresh_at, ask.now), view.cell.word)
        };
        Now { at: ask.now, start, end, spent, moved, phase: ask.phase }
    }

    fn capacity(&self) -> u64 {
        self.most
    }

    fn remaining(&self, now: &Now) -> u64 {
        self.allowance(Self::elapsed(now), Self::length(now)).saturating_sub(now.spent)
    }

    fn fits(&self, now: &Now, cost: u64) -> bool {
        cost <= self.remaining(now)
    }

    fn wait(&self, now: &Now, cost: u64) -> Option<Micros> {
        let due = match self.elapsed_for(now.spent.saturating_add(cost), Self::length(now)) {
            Some(elapsed) => now.start.plus(Micros::from_micros(elapsed)),
            None => {
                // After a clock was set back this one may end within the next.
                let (start, end) = self.frame.at(now.end, now.phase);
                let elapsed = self.elapsed_for(cost, end.since(start).as_micros())?;
                start.plus(Micros::from_micros(elapsed)).max(now.end)
            }
        };
        Some(due.since(now.at))
    }

    fn charge(&self, now: &mut Now, cost: u64) {
        now.spent = now.spent.saturating_add(cost).min(MAX_INTEGER);
    }

    fn refund(&self, now: &mut Now, cost: u64, charged_at: Timestamp) {
        let returned = if charged_at >= now.start { cost } else { 0 };
        now.spent = now.spent.saturating_sub(returned);
        if now.spent == 0 {
            (now.start, now.end) = self.frame.at(now.at, now.phase);
        }
    }

    fn reset_after(&self, now: &Now) -> Micros {
        if now.spent == 0 { Micros::ZERO } else { now.end.since(now.at) }
    }

    fn is_adjusted(&self, now: &Now) -> bool {
        now.moved
    }

    fn save(&self, now: Now) -> Saved {
        Saved::cell(if now.spent == 0 { Cell::FRESH } else { Cell { fresh_at: now.end, word: now.spent } })
    }
}
