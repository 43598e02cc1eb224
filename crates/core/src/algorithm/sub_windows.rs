//! Sliding window counter of n sub-windows: all but the oldest are counted in full, the oldest fades out.
//!
//! ```text
//!   n = 4   ├──o──┼──o──┼──o──┼──o──┼──o──┤
//!              └──── rolling window ───┘ now
//!             fading   full  full  full (current)
//! ```
//!
//! Only the oldest sub-window is assumed to be evenly filled, so the error falls as n grows, at the price of one mark
//! per sub-window that saw a request. With n = 1 it is the two-window counter, whose arithmetic it shares; it also
//! serves limits too large for that one's packed counts. When the clock is set back, what was counted ahead counts in
//! the sub-window of now.

use std::collections::VecDeque;

use super::sliding_counter::{elapsed_until, left, room};
use super::{Machine, Saved, View, is_ahead};
use crate::error::LimitError;
use crate::limit::Ask;
use crate::lua::Numbers;
use crate::spec::{MAX_SUB_WINDOWS, Rounding, SlidingCounter};
use crate::state::{Ahead, Cell, Mark, MarkEdit};
use crate::time::{MAX_INTEGER, Micros, Timestamp};

#[derive(Clone, Copy, Debug)]
pub(crate) struct SubWindows {
    limit: u64,
    /// The length of one sub-window.
    length: u64,
    number: u64,
    rounding: Rounding,
}

pub(crate) struct Now<'a> {
    asked_at: u64,
    /// Not before the start of the current sub-window.
    at: u64,
    /// The start of the current sub-window.
    start: u64,
    marks: &'a VecDeque<Mark>,
    expired: usize,
    /// Counted in the oldest sub-window that the rolling one reaches into.
    oldest: u64,
    /// Counted in all later ones, with those of `edit`.
    later: u64,
    edit: MarkEdit,
}

impl SubWindows {
    pub(crate) fn new(spec: &SlidingCounter) -> Result<Self, LimitError> {
        let (window, number) = (spec.window.as_micros(), u64::from(spec.sub_windows));
        if window == 0 {
            return Err(LimitError::NoWindow);
        }
        if window > MAX_INTEGER / 4 {
            return Err(LimitError::WindowTooLong);
        }
        if spec.limit > MAX_INTEGER {
            return Err(LimitError::TooLarge);
        }
        if number == 0 || spec.sub_windows > MAX_SUB_WINDOWS || !window.is_multiple_of(number) {
            return Err(LimitError::UnevenSubWindows);
        }
        Ok(Self { limit: spec.limit, length: window / number, number, rounding: spec.rounding })
    }

    pub(crate) fn most_marks(&self) -> u64 {
        self.number + 2
    }

    pub(crate) fn raised(&self, overage: u64) -> Self {
        Self { limit: self.limit.saturating_add(overage), ..*self }
    }

    pub(crate) fn lineage(&self) -> u64 {
        self.length << 11 | self.number
    }

    /// For the same step in Lua.
    pub(crate) fn encode(&self, numbers: &mut Numbers<'_>) {
        numbers.begin();
        numbers.put_all([self.limit, self.length, self.number]);
        numbers.byte(u8::from(self.rounding == Rounding::Floor));
    }

    /// The start of the oldest sub-window that the rolling window ending in the one from `start` on reaches into.
    fn reach(&self, start: u64) -> u64 {
        start.saturating_sub(self.number * self.length)
    }

    /// What is counted in the sub-windows from `from` on (in full), and in the one before it.
    fn sums<'m>(&self, marks: impl Iterator<Item = &'m Mark>, start: u64) -> (u64, u64) {
        let reach = self.reach(start);
        let has_oldest = start >= self.number * self.length;
        marks.fold((0, 0), |(oldest, later): (u64, u64), mark| match mark.at.as_micros() {
            at if has_oldest && at == reach => (oldest.saturating_add(mark.note), later),
            at if at < reach => (oldest, later),
            _ => (oldest, later.saturating_add(mark.note)),
        })
    }

    fn marks_after<'m>(now: &'m Now<'_>) -> impl DoubleEndedIterator<Item = Mark> + 'm {
        let pending = match now.edit {
            MarkEdit::Count { at, count } => Some(Mark { at, note: count }),
            _ => None,
        };
        let returned = move |mark: &Mark| match now.edit {
            MarkEdit::Uncount { at, count } if at == mark.at => Mark { note: mark.note.saturating_sub(count), ..*mark },
            _ => *mark,
        };
        now.marks.iter().skip(now.expired).map(returned).chain(pending)
    }

    /// When nothing that was counted matters any more.
    fn fresh_at(&self, now: &Now<'_>) -> Timestamp {
        let newest = Self::marks_after(now).rfind(|mark| mark.note > 0);
        newest.map_or(Timestamp::EPOCH, |mark| mark.at.plus(Micros::from_micros((self.number + 1) * self.length)))
    }
}

impl Machine for SubWindows {
    type Now<'a> = Now<'a>;

    #[inline]
    fn ahead(&self, marks: &VecDeque<Mark>, ask: &Ask) -> Ahead {
        match marks.back() {
            Some(newest) if is_ahead(newest.at, ask.now) => {
                let now = ask.now.as_micros();
                Ahead::Join(Timestamp::from_micros(now - now % self.length))
            }
            _ => Ahead::Stay,
        }
    }

    fn load<'a>(&self, view: View<'a>, ask: &Ask) -> Now<'a> {
        let asked_at = ask.now.as_micros();
        let start = asked_at - asked_at % self.length;
        let marks = &view.extra.marks;
        let start = marks.back().map_or(start, |newest| start.max(newest.at.as_micros()));
        let reach = self.reach(start);
        let expired = marks.iter().take_while(|mark| mark.at.as_micros() < reach).count();
        let (oldest, later) = self.sums(marks.iter(), start);
        Now { asked_at, at: asked_at.max(start), start, marks, expired, oldest, later, edit: MarkEdit::Keep }
    }

    fn capacity(&self) -> u64 {
        self.limit
    }

    fn remaining(&self, now: &Now<'_>) -> u64 {
        let faded = u128::from(now.oldest) * u128::from(self.length - (now.at - now.start));
        left(self.limit, now.later, faded, self.length, self.rounding)
    }

    fn fits(&self, now: &Now<'_>, cost: u64) -> bool {
        cost <= self.remaining(now)
    }

    fn wait(&self, now: &Now<'_>, cost: u64) -> Option<Micros> {
        let due = |start: u64, oldest: u64, later: u64| {
            let room = room(self.limit, later.saturating_add(cost), self.length, self.rounding)?;
            let due = start.saturating_add(elapsed_until(oldest, room, self.length));
            Some(Micros::from_micros(due.saturating_sub(now.asked_at)))
        };
        if let Some(wait) = due(now.start, now.oldest, now.later) {
            return Some(wait);
        }
        // One sub-window after the other becomes the oldest and fades.
        let covered = self.number * self.length;
        let mut later = now.later;
        for mark in now.marks.iter().skip(now.expired) {
            let start = mark.at.as_micros().saturating_add(covered);
            if start > now.start {
                later = later.saturating_sub(mark.note);
                if let Some(wait) = due(start, mark.note, later) {
                    return Some(wait);
                }
            }
        }
        None
    }

    fn charge(&self, now: &mut Now<'_>, cost: u64) {
        let cost = cost.min(MAX_INTEGER);
        now.edit = MarkEdit::Count { at: Timestamp::from_micros(now.start), count: cost };
        now.later = now.later.saturating_add(cost);
    }

    fn refund(&self, now: &mut Now<'_>, cost: u64, charged_at: Timestamp) {
        let charged_at = charged_at.as_micros();
        let at = Timestamp::from_micros(charged_at - charged_at % self.length);
        now.edit = MarkEdit::Uncount { at, count: cost };
        let marks: Vec<Mark> = Self::marks_after(now).collect();
        (now.oldest, now.later) = self.sums(marks.iter(), now.start);
    }

    fn reset_after(&self, now: &Now<'_>) -> Micros {
        self.fresh_at(now).since(Timestamp::from_micros(now.asked_at))
    }

    fn save(&self, now: Now<'_>) -> Saved {
        let cell = Cell { fresh_at: self.fresh_at(&now), word: 0 };
        Saved { cell, expired: now.expired, marks: now.edit }
    }
}
