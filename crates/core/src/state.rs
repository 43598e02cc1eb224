//! What an algorithm remembers for one key.
//!
//! Two integers ([`Cell`]) for nearly everything; a short list of [`Mark`]s besides for the algorithms
//! that must remember single events, and the start of an overage for soft limits.
//!
//! **The first integer always says when the state equals a fresh one** ([`Cell::fresh_at`]). From then on
//! forgetting it changes no answer, so expiry needs no other bookkeeping: stores drop such states at
//! will, and [`crate::Limit::step`] itself reads them as fresh.

use std::collections::VecDeque;

use crate::time::{MAX_INTEGER, Timestamp};

/// The two integers that every algorithm keeps per key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Cell {
    /// From this instant on the state equals a fresh one.
    pub fresh_at: Timestamp,
    /// The algorithm's own integer.
    pub word: u64,
}

impl Cell {
    /// The state of a key that was never seen.
    pub const FRESH: Self = Self { fresh_at: Timestamp::EPOCH, word: 0 };
}

/// One remembered event: when, and the algorithm's own integer about it (a count, or a lease).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mark {
    /// The instant, never earlier than that of the mark before.
    pub at: Timestamp,
    /// What the algorithm notes about it.
    pub note: u64,
}

/// What does not fit into a [`Cell`]. Most keys have none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Extra {
    /// When a soft limit began to be exceeded; the epoch when it is not.
    pub over_since: Timestamp,
    /// Single events, oldest first.
    pub marks: VecDeque<Mark>,
}

impl Extra {
    /// Nothing to remember.
    pub const NONE: &'static Self = &Self { over_since: Timestamp::EPOCH, marks: VecDeque::new() };

    /// Whether there is nothing to remember.
    pub fn is_empty(&self) -> bool {
        self.over_since == Timestamp::EPOCH && self.marks.is_empty()
    }

    /// Carries out an edit that a step asked for.
    pub fn apply(&mut self, edit: &Edit) {
        if edit.clear {
            self.marks.clear();
        }
        self.over_since = edit.over_since;
        let expired = edit.expired.min(self.marks.len());
        self.marks.drain(..expired);
        edit.ahead.hold_back(&mut self.marks);
        match edit.marks {
            MarkEdit::Keep => {}
            MarkEdit::Count { at, count } => match self.marks.back_mut() {
                Some(last) if last.at == at => last.note = sum(last.note, count),
                _ => self.marks.push_back(Mark { at, note: count }),
            },
            MarkEdit::Merge { at, count } => match self.marks.back_mut() {
                Some(last) => *last = Mark { at, note: sum(last.note, count) },
                None => self.marks.push_back(Mark { at, note: count }),
            },
            MarkEdit::CountAtMost { at, count, most } => {
                let marks = MarkEdit::Count { at, count };
                self.apply(&Edit { clear: false, expired: 0, ahead: Ahead::Stay, marks, ..*edit });
                self.trim_oldest(most);
            }
            MarkEdit::Uncount { at, count } => self.uncount(at, count),
            MarkEdit::Lease { until, lease, count } => {
                self.marks.extend((0..count).map(|_| Mark { at: until, note: lease }));
            }
            MarkEdit::Unlease { lease, count } => {
                let mut left = count;
                self.marks.retain(|mark| {
                    let gone = mark.note == lease && left > 0;
                    left -= u64::from(gone);
                    !gone
                });
            }
            MarkEdit::Renew { until, lease } => {
                let before = self.marks.len();
                self.marks.retain(|mark| mark.note != lease);
                let held = before - self.marks.len();
                self.marks.extend((0..held).map(|_| Mark { at: until, note: lease }));
            }
        }
    }

    /// Counts the newest two marks as one at the later instant: stricter, and one mark less.
    pub fn merge_newest(&mut self) {
        if let Some(last) = self.marks.pop_back() {
            match self.marks.back_mut() {
                Some(before) => *before = Mark { at: last.at, note: sum(before.note, last.note) },
                None => self.marks.push_back(last),
            }
        }
    }

    /// Forgets the oldest counts until the newest `most` are left.
    fn trim_oldest(&mut self, most: u64) {
        let total = self.marks.iter().fold(0, |sum: u64, mark| sum.saturating_add(mark.note));
        let mut excess = total.saturating_sub(most);
        while let Some(first) = self.marks.front_mut() {
            if first.note > excess {
                first.note -= excess;
                break;
            }
            excess -= first.note;
            self.marks.pop_front();
        }
    }

    fn uncount(&mut self, at: Timestamp, count: u64) {
        if let Ok(index) = self.marks.binary_search_by_key(&at, |mark| mark.at)
            && let Some(mark) = self.marks.get_mut(index)
        {
            mark.note = mark.note.saturating_sub(count);
            if mark.note == 0 {
                self.marks.remove(index);
            }
        }
    }
}

/// Counts add up to what a double can still hold.
fn sum(a: u64, b: u64) -> u64 {
    a.saturating_add(b).min(MAX_INTEGER)
}

/// How a step wants the state changed. Nothing changes until a store applies it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Not at all.
    Keep,
    /// The cell alone.
    Cell(Cell),
    /// The cell and what is kept besides.
    Both(Cell, Edit),
}

/// A change of an [`Extra`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edit {
    /// The state was stale: forget all marks first.
    pub clear: bool,
    /// How many of the oldest marks have expired.
    pub expired: usize,
    /// The new start of the overage.
    pub over_since: Timestamp,
    /// What becomes of marks that are further ahead than clocks differ.
    pub ahead: Ahead,
    /// What happens to the marks after that.
    pub marks: MarkEdit,
}

/// What becomes of marks that were made by a clock that has been set back since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ahead {
    /// There are none.
    Stay,
    /// Counts after this instant are counted at it, all in one mark.
    Join(Timestamp),
    /// Leases that end after this instant end at it.
    Cut(Timestamp),
}

impl Ahead {
    /// Marks stay sorted, and there are no more of them than before.
    pub(crate) fn hold_back(self, marks: &mut VecDeque<Mark>) {
        match self {
            Self::Stay => {}
            Self::Join(latest) => {
                let after = marks.partition_point(|mark| mark.at <= latest);
                let count = marks.drain(after..).fold(0, |count, mark| sum(count, mark.note));
                match marks.back_mut() {
                    Some(last) if last.at == latest => last.note = sum(last.note, count),
                    _ if count > 0 => marks.push_back(Mark { at: latest, note: count }),
                    _ => {}
                }
            }
            Self::Cut(latest) => marks.iter_mut().for_each(|mark| mark.at = mark.at.min(latest)),
        }
    }
}

/// What happens to the marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkEdit {
    /// Nothing.
    Keep,
    /// `count` more at `at`, which is not earlier than any mark.
    Count {
        /// When.
        at: Timestamp,
        /// How many.
        count: u64,
    },
    /// `count` more in the newest mark, which moves to `at`: so no more marks are needed.
    Merge {
        /// When.
        at: Timestamp,
        /// How many.
        count: u64,
    },
    /// `count` more at `at`, and only the newest `most` counts are kept.
    CountAtMost {
        /// When.
        at: Timestamp,
        /// How many.
        count: u64,
        /// How many counts are kept in all.
        most: u64,
    },
    /// `count` fewer at the mark of `at`, if it is there.
    Uncount {
        /// When they were counted.
        at: Timestamp,
        /// How many.
        count: u64,
    },
    /// `count` more slots held by `lease`.
    Lease {
        /// When the lease expires.
        until: Timestamp,
        /// Whose it is.
        lease: u64,
        /// How many slots.
        count: u64,
    },
    /// `count` fewer slots held by `lease`.
    Unlease {
        /// Whose it was.
        lease: u64,
        /// How many slots.
        count: u64,
    },
    /// All slots held by `lease` expire later.
    Renew {
        /// When the lease expires now.
        until: Timestamp,
        /// Whose it is.
        lease: u64,
    },
}

/// A whole state, owned. What a simple store keeps per key; the memory store packs it tighter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct State {
    /// The two integers.
    pub cell: Cell,
    /// What does not fit into them.
    pub extra: Extra,
}

impl State {
    /// Carries out what a step asked for.
    pub fn apply(&mut self, change: &Change) {
        match change {
            Change::Keep => {}
            Change::Cell(cell) => self.cell = *cell,
            Change::Both(cell, edit) => {
                self.cell = *cell;
                self.extra.apply(edit);
            }
        }
    }
}
