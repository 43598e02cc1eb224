//! What one key has in the back beside its cell: marks, and since when a soft limit is exceeded.
//!
//! The budget is told of every mark that there is room for, before there is. A log has room for what is in its window
//! and some more: it grows and shrinks with that. What counts by slots has room for all of them from the beginning,
//! since slots that were promised cannot be made one. This file knows neither tables nor locks.

use std::borrow::Cow;

use tollgate_core::{Algorithm, Concurrency, Edit, Extra, Intent, Limit, Mark, MarkEdit};

use super::table::Allowance;

/// The least room for marks, if there is any.
const LEAST: usize = 4;
/// So much is not worth giving back.
const FEW: usize = 16;

#[derive(Default)]
pub(super) struct Item {
    /// The word that the index displaced.
    pub(super) word: u64,
    extra: Extra,
    /// So many marks are paid for. There is never room for more.
    room: usize,
}

impl Item {
    /// For a key that is new.
    pub(super) fn new(limit: &Limit, word: u64, extra: Extra) -> Self {
        Self { word, room: room_for(extra.marks.capacity()).max(first_room(limit)), extra }
    }

    /// As it was elsewhere.
    pub(super) fn adopted(word: u64, extra: Extra) -> Self {
        Self { word, room: room_for(extra.marks.capacity()), extra }
    }

    pub(super) fn extra(&self) -> &Extra {
        &self.extra
    }

    /// What of the budget it holds.
    pub(super) fn bytes(&self) -> usize {
        // Twice the item: the list of items and that of free places double their room as well.
        2 * (size_of::<Self>() + size_of::<usize>()) + self.room * size_of::<Mark>()
    }

    /// Makes it that of a fresh state, and keeps what is paid for.
    pub(super) fn forget(&mut self) {
        (self.word, self.extra) = (0, Extra::default());
    }

    /// Takes room for all slots that a limit has by now: more than at first if it was raised.
    pub(super) fn take_room_for(&mut self, limit: &Limit, allowance: &impl Allowance) {
        if self.has_first_room(limit) {
            return;
        }
        let more = first_room(limit).saturating_sub(self.room);
        if allowance.take(more * size_of::<Mark>()) {
            self.room += more;
        }
    }

    /// Whether it has what a key of the limit has room for from the beginning. As often as a key is asked for.
    #[inline]
    fn has_first_room(&self, limit: &Limit) -> bool {
        matches!(limit.algorithm(), Algorithm::SlidingLog(_)) || limit.most_marks() <= self.room as u64
    }

    /// The limit to go by: one that was raised while the budget is spent has as many slots as there is room for.
    pub(super) fn limit_within_room<'l>(&self, limit: &'l Limit, intent: Intent) -> Cow<'l, Limit> {
        match limit.algorithm() {
            Algorithm::Concurrency(spec) if !self.has_first_room(limit) => {
                // Forced charges take up to twice as many as there are.
                let most = if intent == Intent::Force { self.room / 2 } else { self.room };
                let within = Limit::new(Concurrency { slots: spec.slots.min(most as u64), ..*spec });
                within.map_or(Cow::Borrowed(limit), Cow::Owned)
            }
            _ => Cow::Borrowed(limit),
        }
    }

    /// Carries out an edit that a step asked for. A log that needs more room and cannot have it counts its newest
    /// events as one.
    pub(super) fn apply(&mut self, edit: &Edit, limit: &Limit, allowance: &impl Allowance) {
        let kept = if edit.clear { 0 } else { self.extra.marks.len().saturating_sub(edit.expired) };
        let needed = kept.saturating_add(most_added(&edit.marks));
        if needed > self.room && !self.grow(needed, allowance) {
            self.extra.merge_newest();
        }
        let marks = &mut self.extra.marks;
        if needed > marks.capacity() {
            // By itself it would take more than that at times.
            marks.reserve_exact(room_for(needed).min(self.room).saturating_sub(marks.len()));
        }
        self.extra.apply(edit);
        self.shrink(limit, allowance);
    }

    /// Takes room for so many marks, and some more. `false` if that cannot be had.
    fn grow(&mut self, marks: usize, allowance: &impl Allowance) -> bool {
        let room = room_for(marks);
        let taken = allowance.take((room - self.room) * size_of::<Mark>());
        if taken {
            self.room = room;
        }
        taken
    }

    /// Gives back most of what is empty, if most of it is.
    fn shrink(&mut self, limit: &Limit, allowance: &impl Allowance) {
        let used = self.extra.marks.len();
        if self.room <= FEW || 8 * used > self.room {
            return;
        }
        let room = room_for(2 * used).max(first_room(limit)).max(FEW);
        if room < self.room {
            self.extra.marks.shrink_to(room);
            allowance.give_back((self.room - room) * size_of::<Mark>());
            self.room = room;
        }
    }
}

/// What a key has room for from the beginning.
fn first_room(limit: &Limit) -> usize {
    match limit.algorithm() {
        Algorithm::SlidingLog(_) => LEAST,
        _ => room_for(usize::try_from(limit.most_marks()).unwrap_or(usize::MAX / 64)),
    }
}

/// The room that so many marks are given.
fn room_for(marks: usize) -> usize {
    if marks == 0 { 0 } else { marks.next_power_of_two().max(LEAST) }
}

/// How many marks an edit adds at most.
fn most_added(edit: &MarkEdit) -> usize {
    match edit {
        MarkEdit::Count { .. } | MarkEdit::Merge { .. } | MarkEdit::CountAtMost { .. } => 1,
        MarkEdit::Lease { count, .. } => usize::try_from(*count).unwrap_or(usize::MAX / 64),
        MarkEdit::Keep | MarkEdit::Uncount { .. } | MarkEdit::Unlease { .. } | MarkEdit::Renew { .. } => 0,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tollgate_core::{Ask, Micros, SlidingLog, Timestamp};

    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1_000);

    /// So many bytes may be taken.
    struct Left(Cell<usize>);

    impl Allowance for Left {
        fn take(&self, bytes: usize) -> bool {
            let left = self.0.get().checked_sub(bytes);
            left.map(|left| self.0.set(left)).is_some()
        }

        fn give_back(&self, bytes: usize) {
            self.0.set(self.0.get() + bytes);
        }
    }

    /// Does to a key what a shard does.
    fn ask(item: &mut Item, cell: &mut tollgate_core::Cell, limit: &Limit, ask: &Ask, left: &Left) -> bool {
        item.take_room_for(limit, left);
        let step = item.limit_within_room(limit, ask.intent).step(*cell, item.extra(), ask);
        if let tollgate_core::Change::Both(changed, edit) = &step.change {
            *cell = *changed;
            item.apply(edit, limit, left);
        }
        assert!(item.extra.marks.capacity() <= item.room, "{} for {}", item.extra.marks.capacity(), item.room);
        step.outcome.allowed
    }

    #[test]
    fn there_is_never_more_room_than_is_paid_for() {
        let limits = [
            Limit::new(Concurrency::new(30, Micros::from_secs(5))).unwrap(),
            Limit::new(Concurrency::new(300, Micros::from_secs(5))).unwrap(),
            Limit::new(SlidingLog::new(300, Micros::from_secs(5))).unwrap(),
        ];
        for (limit, raised) in [(0, 1), (1, 0), (2, 2)] {
            for bytes in [0, 1_000, 2_000, 100_000] {
                let left = Left(Cell::new(bytes));
                let mut item = Item::new(&limits[limit], 0, Extra::default());
                let at_first = item.bytes();
                let mut cell = tollgate_core::Cell::FRESH;
                for number in 0..2_000u64 {
                    let limit = &limits[if number > 100 { raised } else { limit }];
                    let intent = if number % 7 == 0 { Intent::Force } else { Intent::Spend };
                    let now = NOW.plus(Micros::from_millis(number * (number % 1_000) / 20));
                    let one = Ask { cost: 1 + number % 17, intent, now, phase: 0, lease: number };
                    ask(&mut item, &mut cell, limit, &one, &left);
                    assert_eq!(left.0.get() + item.bytes(), bytes + at_first, "what is taken is given back");
                }
            }
        }
    }

    #[test]
    fn slots_for_which_there_is_no_room_are_not_given() {
        let (few, many) = (Concurrency::new(2, Micros::HOUR), Concurrency::new(60_000, Micros::HOUR));
        let (few, many) = (Limit::new(few).unwrap(), Limit::new(many).unwrap());
        let (left, mut cell) = (Left(Cell::new(0)), tollgate_core::Cell::FRESH);
        let mut item = Item::new(&few, 0, Extra::default());
        let mut admitted = |limit: &Limit, cost: u64, left: &Left| {
            let one = |lease| Ask { lease, ..Ask::spend(cost, NOW) };
            (0..100).filter(|lease| ask(&mut item, &mut cell, limit, &one(*lease), left)).count()
        };
        assert_eq!(admitted(&few, 1, &left), 2);
        assert_eq!(admitted(&many, 1, &left), 2, "there was room for as many forced ones");
        left.0.set(3 << 20);
        assert_eq!(admitted(&many, 15, &left), 100);
        assert_eq!(left.0.get(), (3 << 20) - (131_072 - 4) * size_of::<Mark>(), "paid for all there may be");
    }
}
