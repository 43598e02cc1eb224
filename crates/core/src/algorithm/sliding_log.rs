//! Sliding window log: every admitted request is remembered for one window's length.
//!
//! ```text
//!   2 per minute      1:00:01   1:00:30   1:00:50        1:01:40
//!   ──────────────────●─────────●─────────✗──────────────●──── time
//!                                    ├── one minute ─────┤
//! ```
//!
//! Exact: no window of the given length, wherever it begins, holds more than the limit. The price is memory
//! for each event in the window, so the limit itself is bounded ([`MAX_LOG`]); events in the same microsecond share
//! a mark. An event exactly one window old has left it.
//!
//! With `record_rejected` denied requests are remembered too, as in the source's figure 4-10: a client that
//! keeps knocking stays out. Only as many of the newest events are kept as the limit has places: older ones
//! cannot change an answer.
//!
//! When the clock is set back, events that are ahead count as one at now. None of them is given back from then on:
//! nobody knows which of them it was.

use std::collections::VecDeque;

use super::{Machine, Saved, View, is_ahead};
use crate::error::LimitError;
use crate::limit::Ask;
use crate::lua::Numbers;
use crate::spec::{MAX_LOG, SlidingLog};
use crate::state::{Ahead, Cell, Mark, MarkEdit};
use crate::time::{MAX_INTEGER, Micros, Timestamp};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Log {
    limit: u64,
    window: Micros,
    record_rejected: bool,
    /// How many units, and so marks, are ever needed: the limit, and the overage of a soft one.
    most: u64,
}

pub(crate) struct Now<'a> {
    at: Timestamp,
    marks: &'a VecDeque<Mark>,
    /// How many of the marks have left the window.
    expired: usize,
    /// Units in the window, with those of `edit`.
    count: u64,
    edit: MarkEdit,
}

impl Log {
    pub(crate) fn new(spec: &SlidingLog, overage: u64) -> Result<Self, LimitError> {
        if spec.limit > MAX_LOG {
            return Err(LimitError::LogTooLong { limit: spec.limit, window: spec.window });
        }
        match spec.window.as_micros() {
            0 => Err(LimitError::NoWindow),
            micros if micros > Micros::MAX.as_micros() / 4 => Err(LimitError::WindowTooLong),
            _ => Ok(Self {
                limit: spec.limit,
                window: spec.window,
                record_rejected: spec.record_rejected,
                most: spec.limit.saturating_add(overage),
            }),
        }
    }

    pub(crate) fn most_marks(&self) -> u64 {
        self.most.max(1)
    }

    pub(crate) fn raised(&self, overage: u64) -> Self {
        Self { limit: self.limit.saturating_add(overage), ..*self }
    }

    /// For the same step in Lua.
    pub(crate) fn encode(&self, numbers: &mut Numbers<'_>) {
        numbers.begin();
        numbers.put_all([self.limit, self.window.as_micros()]);
        numbers.byte(u8::from(self.record_rejected));
        numbers.put(self.most);
    }

    /// When the window lets go of the last of its `count` oldest units, not counting those that the edit forgets.
    fn leaves(&self, now: &Now<'_>, count: u64) -> Timestamp {
        let in_window = || now.marks.iter().skip(now.expired);
        let forgotten = match now.edit {
            MarkEdit::CountAtMost { count, most, .. } => {
                in_window().fold(count, |sum, mark| sum.saturating_add(mark.note)).saturating_sub(most)
            }
            _ => 0,
        };
        let mut left = count.saturating_add(forgotten);
        for mark in in_window() {
            left = left.saturating_sub(mark.note);
            if left == 0 {
                return mark.at.plus(self.window);
            }
        }
        self.newest(now).plus(self.window)
    }

    fn newest(&self, now: &Now<'_>) -> Timestamp {
        let (given_back_at, given_back) = match now.edit {
            MarkEdit::Count { at, .. } | MarkEdit::Merge { at, .. } | MarkEdit::CountAtMost { at, .. } => return at,
            MarkEdit::Uncount { at, count } => (at, count),
            _ => (now.at, 0),
        };
        let is_left = |mark: &&Mark| mark.at != given_back_at || mark.note > given_back;
        now.marks.iter().rev().find(is_left).map_or(now.at, |mark| mark.at)
    }

    fn record(&self, now: &mut Now<'_>, cost: u64) {
        let at = now.marks.back().map_or(now.at, |last| last.at.max(now.at));
        now.count = now.count.saturating_add(cost).min(MAX_INTEGER);
        now.edit = if self.record_rejected {
            now.count = now.count.min(self.most);
            MarkEdit::CountAtMost { at, count: cost.min(self.most), most: self.most }
        } else if (now.marks.len() - now.expired) as u64 >= self.most_marks() {
            // Only forced charges get here. They share a mark, so that a log never outgrows its limit.
            MarkEdit::Merge { at, count: cost.min(MAX_INTEGER) }
        } else {
            MarkEdit::Count { at, count: cost.min(MAX_INTEGER) }
        };
    }
}

impl Machine for Log {
    type Now<'a> = Now<'a>;

    #[inline]
    fn ahead(&self, marks: &VecDeque<Mark>, ask: &Ask) -> Ahead {
        match marks.back() {
            Some(last) if is_ahead(last.at, ask.now) => Ahead::Join(ask.now),
            _ => Ahead::Stay,
        }
    }

    fn load<'a>(&self, view: View<'a>, ask: &Ask) -> Now<'a> {
        let marks = &view.extra.marks;
        let gone = |mark: &&Mark| mark.at.plus(self.window) <= ask.now;
        let (mut expired, mut count) = (0, view.cell.word);
        for mark in marks.iter().take_while(gone) {
            expired += 1;
            count = count.saturating_sub(mark.note);
        }
        Now { at: ask.now, marks, expired, count, edit: MarkEdit::Keep }
    }

    fn capacity(&self) -> u64 {
        self.limit
    }

    fn remaining(&self, now: &Now<'_>) -> u64 {
        self.limit.saturating_sub(now.count)
    }

    fn fits(&self, now: &Now<'_>, cost: u64) -> bool {
        now.count.saturating_add(cost) <= self.limit
    }

    fn wait(&self, now: &Now<'_>, cost: u64) -> Option<Micros> {
        if cost > self.limit {
            return None;
        }
        let excess = now.count.saturating_add(cost).saturating_sub(self.limit);
        Some(self.leaves(now, excess).since(now.at))
    }

    fn charge(&self, now: &mut Now<'_>, cost: u64) {
        self.record(now, cost);
    }

    fn refund(&self, now: &mut Now<'_>, cost: u64, charged_at: Timestamp) {
        let counted = now.marks.iter().skip(now.expired).find(|mark| mark.at == charged_at).map_or(0, |mark| mark.note);
        let returned = cost.min(counted);
        now.count = now.count.saturating_sub(returned);
        now.edit = MarkEdit::Uncount { at: charged_at, count: returned };
    }

    fn reset_after(&self, now: &Now<'_>) -> Micros {
        if now.count == 0 { Micros::ZERO } else { self.newest(now).plus(self.window).since(now.at) }
    }

    fn deny(&self, now: &mut Now<'_>, cost: u64) -> bool {
        if self.record_rejected {
            self.record(now, cost);
        }
        self.record_rejected
    }

    fn save(&self, now: Now<'_>) -> Saved {
        let fresh_at = self.newest(&now).plus(self.window);
        let cell = if now.count == 0 { Cell::FRESH } else { Cell { fresh_at, word: now.count } };
        Saved { cell, expired: now.expired, marks: now.edit }
    }
}
