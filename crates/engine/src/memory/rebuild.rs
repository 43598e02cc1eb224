//! Tables that get more blocks, or fewer.
//!
//! A key whose block has no room goes to the back. That is where crowding shows: when the keys there become too many,
//! the table gets as many more blocks as it needs, about a tenth, and every key a new home. Homes keep the order of
//! hashes, so with more blocks each lies further on or where it was: taken from the last block to the first, all of
//! them can move within the table itself. With fewer blocks it is the other way round.
//!
//! Whoever rebuilds holds all blocks of the table, then its back. What it takes is short, since a store has many
//! tables.

use std::cell::Cell as Left;

use tollgate_core::{State, Timestamp};

use super::MemoryStore;
use super::block::{Head, Locked, SLOTS, Slot};
use super::budget::{Budget, Forced};
use super::front::{CHUNK, CHUNK_BYTES, place};
use super::shard::Shard;
use super::table::Allowance;

/// So many keys are to a chunk what is neither crowded nor empty: at 33 bytes each, one in twelve is in the back.
const KEYS_PER_CHUNK: usize = CHUNK * 31 / 8;
/// What is taken of the budget besides blocks when there are more: the back may need a little more room meanwhile.
const SPARE: usize = 4096;

/// Why a table is rebuilt.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Too many keys are in the back.
    Grow,
    /// A key was turned away.
    MakeRoom,
    /// What is not needed is to be given back.
    Shrink,
}

impl MemoryStore {
    /// Gives a table as many blocks as it needs at `now`, if they can be had, and says whether it has any.
    #[cold]
    #[inline(never)]
    pub(super) fn rebuild(&self, table: usize, now: Timestamp, purpose: Purpose, allowance: &impl Allowance) -> bool {
        let (mut blocks, mut back) = loop {
            let blocks = self.front.lock_all(table);
            let back = self.shard(table).lock();
            // Those who make the first blocks have only the lock of the back to keep others out.
            if !blocks.is_empty() || self.front.blocks(table) == 0 {
                break (blocks, back);
            }
        };
        let is_done = !blocks.is_empty() && !back.crowd.is_too_large();
        if purpose == Purpose::Grow && is_done {
            return true;
        }
        let latest = blocks.iter().map(|block| block.head.latest()).fold(now, Timestamp::max);
        let now = back.advance(latest);

        let present = blocks.len() / CHUNK;
        let mut chunks = chunks_for(&blocks, &mut back, now, purpose);
        let credit = Credit { left: Left::new(0), budget: &self.budget };
        if chunks > present {
            chunks = self.more_blocks(table, chunks, &mut blocks, allowance, &credit);
        }
        let homeless = if chunks == present { Vec::new() } else { relocate(&mut blocks, present, chunks * CHUNK, now) };
        if chunks < present && self.front.resize(table, chunks, &mut blocks) {
            credit.give_back((present - chunks) * CHUNK_BYTES);
        }
        settle(&mut blocks, &mut back, homeless, now, &credit);
        if purpose == Purpose::MakeRoom {
            back.crowd.retry_after = blocks.len() * SLOTS / 16;
            let front = blocks.iter().flat_map(|block| block.slots()).filter(|slot| slot.is_used()).map(Slot::fresh_at);
            let fresh_ats = || front.clone().chain(back.hashes().map(|(_, fresh_at)| fresh_at));
            let (first, last) = (fresh_ats().min().unwrap_or_default(), fresh_ats().max().unwrap_or_default());
            (back.crowd.retry_at, back.crowd.retry_by) = (first, last);
        }
        self.budget.give_back(credit.left.get());
        let has_any = !blocks.is_empty();
        drop((blocks, back));
        // Not while anybody waits for the table, and no more than one where a decision waits for it.
        while chunks < present && self.front.clear_page() && purpose == Purpose::Shrink {}
        has_any
    }

    /// Tries to make room for a key that was turned away, unless that was in vain not long ago; `false` then.
    pub(super) fn make_room(&self, table: usize, now: Timestamp, allowance: &impl Allowance) -> bool {
        let is_in_vain = self.shard(table).lock().crowd.is_in_vain(now);
        if !is_in_vain {
            self.rebuild(table, now, Purpose::MakeRoom, allowance);
        }
        !is_in_vain
    }

    /// Adds blocks, as many as can be had up to so many chunks, and says how many chunks there are then.
    fn more_blocks<'s>(
        &'s self,
        table: usize,
        most: usize,
        blocks: &mut Vec<Locked<'s>>,
        allowance: &impl Allowance,
        credit: &Credit<'_>,
    ) -> usize {
        let present = blocks.len() / CHUNK;
        let spare = if present > 0 { SPARE } else { 0 };
        for chunks in [most, present + 1] {
            let bytes = (chunks - present) * CHUNK_BYTES + spare;
            if allowance.take(bytes) {
                if self.front.resize(table, chunks, blocks) {
                    credit.give_back(spare);
                    return chunks;
                }
                allowance.give_back(bytes);
            }
        }
        present
    }
}

/// How many chunks there should be.
fn chunks_for(blocks: &[Locked<'_>], back: &mut Shard, now: Timestamp, purpose: Purpose) -> usize {
    let slots = blocks.iter().flat_map(|block| block.slots());
    let mut keys = slots.filter(|slot| slot.fresh_at() > now).count();
    back.crowded(now, |_, _| {
        keys += 1;
        false
    });
    let (present, needed) = (blocks.len() / CHUNK, (keys + 1).div_ceil(KEYS_PER_CHUNK));
    let is_empty = keys == 0 && back.hashes().all(|(_, fresh_at)| fresh_at <= now);
    match purpose {
        Purpose::Shrink if is_empty => 0,
        // What is a little too much stays: it will be needed again.
        Purpose::Grow | Purpose::MakeRoom if needed < present && needed * 4 > present * 3 => present,
        _ => needed,
    }
}

/// Gives the keys of the first so many chunks their homes among so many blocks, drops what is stale, and returns those
/// that found no room.
fn relocate(blocks: &mut [Locked<'_>], chunks: usize, homes: usize, now: Timestamp) -> Vec<Slot> {
    let mut homeless = Vec::new();
    let before = chunks * CHUNK;
    for step in 0..before {
        let from = if homes > before { before - 1 - step } else { step };
        let Some(block) = blocks.get_mut(from) else { continue };
        let slots = std::mem::take(block.slots_mut());
        for slot in slots.into_iter().filter(|slot| slot.fresh_at() > now) {
            match blocks.get_mut(place(slot.hash(), homes)).and_then(|block| block.room(now)) {
                Some(room) => *room = slot,
                None => homeless.push(slot),
            }
        }
    }
    homeless
}

/// Drops what is stale, moves those who are in the back for want of room to their homes where there is some, and takes
/// in those who found none.
fn settle(blocks: &mut [Locked<'_>], back: &mut Shard, homeless: Vec<Slot>, now: Timestamp, credit: &Credit<'_>) {
    let homes = blocks.len();
    let slots = blocks.iter_mut().flat_map(|block| block.slots_mut());
    slots.filter(|slot| slot.fresh_at() <= now).for_each(|slot| *slot = Slot::default());
    back.crowded(now, |hash, cell| match blocks.get_mut(place(hash, homes)).and_then(|block| block.room(now)) {
        Some(room) => {
            *room = Slot::new(hash, cell);
            true
        }
        None => false,
    });
    // Those who left are really gone, so that none is found twice.
    back.shrink(now, credit);
    for slot in homeless {
        let state = State { cell: slot.cell(), ..State::default() };
        // Only where there is no memory at all is anything forgotten.
        let _none_at_all = back.adopt(slot.hash(), state, now, &Owed(credit));
    }
    blocks.iter_mut().for_each(|block| block.head = Head::new(now));
    for (hash, _) in back.hashes() {
        if let Some(block) = blocks.get_mut(place(hash, homes)) {
            block.head.crowd();
        }
    }
    let mut size = 0;
    back.crowded(now, |_, _| {
        size += 1;
        false
    });
    (back.crowd.size, back.crowd.most) = (size, size + homes / 16 + 4);
}

/// What of the budget was taken in advance, and the rest of it.
struct Credit<'a> {
    left: Left<usize>,
    budget: &'a Budget,
}

impl Allowance for Credit<'_> {
    fn take(&self, bytes: usize) -> bool {
        match self.left.get().checked_sub(bytes) {
            Some(left) => {
                self.left.set(left);
                true
            }
            None => self.budget.take(bytes),
        }
    }

    fn give_back(&self, bytes: usize) {
        self.left.set(self.left.get() + bytes);
    }
}

/// The same, and beyond the budget if need be: what is not stale is kept.
struct Owed<'a>(&'a Credit<'a>);

impl Allowance for Owed<'_> {
    fn take(&self, bytes: usize) -> bool {
        self.0.take(bytes) || Forced(self.0.budget).take(bytes)
    }

    fn give_back(&self, bytes: usize) {
        self.0.give_back(bytes);
    }
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests {
    use tollgate_core::{Ask, FixedWindow, Intent, Key, Limit, Micros, Rate, SlidingLog, Soft, TokenBucket, Window};

    use super::super::{BYTES_PER_TABLE, MOST_TABLES};
    use super::*;
    use crate::charge::Charge;

    const NOW: Timestamp = Timestamp::from_secs(1_700_000_000);

    fn bucket() -> Limit {
        Limit::new(TokenBucket::new(Rate::per_hour(100))).expect("a limit")
    }

    /// A store of one table.
    fn table() -> MemoryStore {
        MemoryStore::with_budget(2 * BYTES_PER_TABLE - 1)
    }

    /// Everything that is promised about where keys are.
    fn check(store: &MemoryStore) {
        for table in 0..=store.mask {
            let blocks = store.front.lock_all(table);
            let homes = blocks.len();
            let mut back = store.shard(table).lock();
            let mut seen = std::collections::BTreeSet::new();
            for (number, block) in blocks.iter().enumerate() {
                for slot in block.slots().iter().filter(|slot| slot.is_used()) {
                    assert_eq!(place(slot.hash(), homes), number, "not at home");
                    assert!(seen.insert(slot.hash()), "in two slots");
                }
            }
            back.crowded(NOW, |hash, _| {
                assert!(seen.insert(hash), "in its block and in the back");
                assert!(blocks[place(hash, homes)].head.is_crowded(), "nobody would look for it in the back");
                false
            });
            let mut hashes: Vec<_> = back.hashes().map(|(hash, _)| hash).collect();
            hashes.sort_unstable();
            assert!(hashes.windows(2).all(|pair| pair[0] != pair[1]), "in the back twice");
        }
    }

    #[test]
    fn the_larger_the_budget_the_more_tables_up_to_a_point() {
        let tables = |budget| MemoryStore::with_budget(budget).mask + 1;
        assert_eq!([0, 1 << 17, 1 << 26, 1 << 30].map(tables), [1, 2, 1024, 1024]);
        let many = [2048, 4096, 16_384, 16_384].map(|tables: usize| tables.min(MOST_TABLES));
        assert_eq!([(1 << 30) + (1 << 20), 4 << 30, 16 << 30, usize::MAX].map(tables), many);

        let (store, limit) = (MemoryStore::with_budget(4 << 30), bucket());
        let left = |name: u64, intent| {
            store.apply_one(&Charge::new(Key::new(1, &[&name.to_be_bytes()]), &limit), intent, NOW).remaining
        };
        assert!((0..100_000).all(|name| left(name, Intent::Spend) == 99));
        assert!((0..100_000).all(|name| left(name, Intent::Peek) == 99));
        assert_eq!(store.keys(), 100_000);
        check(&store);
        assert!((0..=store.mask).all(|table| store.front.blocks(table) > 0), "a table that nobody uses");
        store.shrink(NOW.plus(Micros::DAY));
        assert_eq!((store.keys(), store.bytes_used()), (0, 0));
        // What was given back to the system can be had again.
        let later = NOW.plus(Micros::DAY);
        let again = |name: u64| {
            store.apply_one(&Charge::new(Key::new(1, &[&name.to_be_bytes()]), &limit), Intent::Spend, later).remaining
        };
        assert!((0..100_000).all(|name| again(name) == 99) && (0..100_000).all(|name| again(name) == 98));
        check(&store);
    }

    #[test]
    fn keys_stay_what_they_are_while_a_table_grows_and_shrinks() {
        let (store, limit) = (table(), bucket());
        let ask = |name: u64, cost, intent, now| {
            store.apply_one(&Charge::new(Key::new(1, &[&name.to_be_bytes()]), &limit).cost(cost), intent, now)
        };
        for name in 0..3_000 {
            assert_eq!(ask(name, 1 + name % 7, Intent::Spend, NOW).remaining, 99 - name % 7);
            if name % 100 == 0 {
                check(&store);
                assert!((0..=name).all(|name| ask(name, 1, Intent::Peek, NOW).remaining == 99 - name % 7));
            }
        }
        assert_eq!(store.keys(), 3_000);
        assert!(store.bytes_used() < 3_000 * 40, "{} bytes", store.bytes_used());
        // What cost most is back to normal last: all others make way.
        let later = NOW.plus(Micros::from_secs(6 * 36));
        store.shrink(later);
        let left = (0..3_000).filter(|name| name % 7 == 6).count();
        assert_eq!(store.keys(), left);
        for name in 0..3_000 {
            assert_eq!(ask(name, 1, Intent::Peek, later).remaining, if name % 7 == 6 { 99 } else { 100 });
        }
        store.shrink(later.plus(Micros::HOUR));
        assert_eq!((store.keys(), store.bytes_used(), store.front.blocks(0)), (0, 0, 0));
    }

    #[test]
    fn who_is_asked_for_often_comes_forward_and_nobody_is_lost() {
        let (store, limit) = (table(), bucket());
        let names: Vec<[u8; 8]> = (0..2_000_u64).map(u64::to_be_bytes).collect();
        let values: Vec<[&[u8]; 1]> = names.iter().map(|name| [&name[..]]).collect();
        let charge = |at: usize| Charge::new(Key::new(1, &values[at]), &limit);
        let in_block =
            |at: usize| store.front.lock_home(0, store.hash(&charge(at))).unwrap().has(store.hash(&charge(at)));
        (0..names.len()).for_each(|at| assert!(store.admit_one(&charge(at), NOW)));
        let behind: Vec<usize> = (0..names.len()).filter(|at| !in_block(*at)).collect();
        assert!(behind.len() > 50, "{} keys have no room", behind.len());
        for (at, turn) in behind.iter().zip(0..) {
            let came = (0..64).any(|micros| {
                let now = NOW.plus(Micros::from_micros(64 * turn + micros));
                let _looked = store.apply_one(&charge(*at), Intent::Peek, now);
                in_block(*at)
            });
            assert!(came, "in one of any 64 microseconds");
        }
        check(&store);
        for at in 0..names.len() {
            assert_eq!(store.apply_one(&charge(at), Intent::Peek, NOW).remaining, 99);
        }
    }

    #[test]
    fn nobody_is_forgotten_when_a_table_is_rebuilt_without_any_room() {
        let limit = bucket();
        for names in (500..4_000_u64).step_by(37) {
            let store = table();
            let own = |intent| -> Vec<u64> {
                let is_own = |name: &u64| {
                    let bytes = name.to_be_bytes();
                    let outcome = store.apply_one(&Charge::new(Key::new(1, &[&bytes]), &limit), intent, NOW);
                    !outcome.shared && outcome.remaining == 99
                };
                (0..names).filter(is_own).collect()
            };
            let kept = own(Intent::Spend);
            while store.budget.take(1) {}
            for purpose in [Purpose::MakeRoom, Purpose::Shrink, Purpose::MakeRoom] {
                assert!(store.rebuild(0, NOW, purpose, &store.budget));
                check(&store);
                let left = own(Intent::Peek);
                assert!(kept.iter().all(|name| left.binary_search(name).is_ok()), "{names} keys");
            }
        }
    }

    #[test]
    fn who_finds_no_room_is_kept_beyond_the_budget() {
        let (store, limit) = (table(), bucket());
        let names: Vec<[u8; 8]> = (0..1_000_u64).map(u64::to_be_bytes).collect();
        let values: Vec<[&[u8]; 1]> = names.iter().map(|name| [&name[..]]).collect();
        let charges: Vec<Charge<'_>> = values.iter().map(|value| Charge::new(Key::new(1, value), &limit)).collect();
        let (known, homeless) = charges.split_at(500);
        assert!(known.iter().all(|charge| store.admit_one(charge, NOW)));
        while store.budget.take(1) {}
        let spent = store.bytes_used();

        let mut state = State::default();
        limit.apply(&mut state, &Ask { cost: 1, intent: Intent::Spend, now: NOW, phase: 0, lease: 0 });
        let homeless = homeless.iter().map(|charge| Slot::new(store.hash(charge), state.cell)).collect();
        let credit = Credit { left: Left::new(0), budget: &store.budget };
        settle(&mut store.front.lock_all(0), &mut store.shard(0).lock(), homeless, NOW, &credit);
        store.budget.give_back(credit.left.get());
        assert!(store.bytes_used() > spent, "{} bytes", store.bytes_used());
        check(&store);
        assert!(charges.iter().all(|charge| store.apply_one(charge, Intent::Peek, NOW).remaining == 99));
    }

    #[test]
    fn a_limit_that_becomes_soft_goes_on_with_who_came_forward() {
        let (store, hard) = (table(), bucket());
        let soft = Soft { overage: 5, lasting: Micros::HOUR };
        let soft = Limit::soft(TokenBucket::new(Rate::per_hour(100)), soft).unwrap();
        let names: Vec<[u8; 8]> = (0..2_000_u64).map(u64::to_be_bytes).collect();
        let mut now = NOW;
        let mut ask = |at: usize, limit: &Limit, cost, intent| {
            now = now.plus(Micros::from_micros(1));
            store.apply_one(&Charge::new(Key::new(1, &[&names[at][..]]), limit).cost(cost), intent, now)
        };
        let in_block = |at: usize| {
            let hash = store.hash(&Charge::new(Key::new(1, &[&names[at][..]]), &hard));
            store.front.lock_home(0, hash).unwrap().has(hash)
        };
        (0..names.len()).for_each(|at| assert!(ask(at, &hard, 100, Intent::Spend).allowed));
        let behind: Vec<usize> = (0..names.len()).filter(|at| !in_block(*at)).collect();
        for at in behind {
            while !in_block(at) {
                assert!(ask(at, &hard, 1, Intent::Peek).denied());
            }
            // It has left a trace in the back, and returns there.
            assert!(ask(at, &soft, 3, Intent::Spend).overage);
            let after = ask(at, &soft, 3, Intent::Spend);
            assert!(after.denied(), "{at}: {after:?}");
        }
        check(&store);
    }

    #[test]
    fn time_does_not_run_backwards_for_shared_counters() {
        let window = Window::FirstEvent { length: Micros::from_secs(50) };
        let limit = Limit::new(FixedWindow::in_window(5, window)).unwrap();
        let store = MemoryStore::with_budget(0);
        let ask = |seconds: u64| {
            let charge = Charge::new(Key::new(1, &[b"user"]), &limit).cost(5);
            store.apply_one(&charge, Intent::Spend, NOW.plus(Micros::from_secs(seconds)))
        };
        assert!(ask(0).shared && ask(1).denied());
        store.shrink(NOW.plus(Micros::from_secs(51)));
        let outcome = ask(49);
        assert!(outcome.denied() || outcome.at >= NOW.plus(Micros::from_secs(50)), "{outcome:?}");
    }

    #[test]
    fn time_does_not_run_backwards_behind_blocks() {
        let window = Window::FirstEvent { length: Micros::from_secs(50) };
        let limit = Limit::new(FixedWindow::in_window(5, window)).unwrap();
        let log = Limit::new(SlidingLog::new(5, Micros::HOUR)).unwrap();
        let (store, names) = (table(), (0..2_000_u64).map(u64::to_be_bytes).collect::<Vec<_>>());
        let ask = |at: usize, limit: &Limit, seconds: u64| {
            let value: [&[u8]; 1] = [&names[at]];
            let charge = Charge::new(Key::new(1, &value), limit).cost(5);
            store.apply_one(&charge, Intent::Spend, NOW.plus(Micros::from_secs(seconds)))
        };
        assert!((0..1_000).all(|at| ask(at, &limit, 0).allowed));
        // What is stale in the back by then makes way for logs, which have no place in blocks.
        (1_000..1_100).for_each(|at| assert!(ask(at, &log, 51).allowed));
        for at in 0..1_000 {
            // Either it is remembered, or it is 51 seconds later for it as well: never twice in one window.
            let outcome = ask(at, &limit, 49);
            assert!(outcome.denied() || outcome.at >= NOW.plus(Micros::from_secs(50)), "{at}: {outcome:?}");
        }
    }
}
