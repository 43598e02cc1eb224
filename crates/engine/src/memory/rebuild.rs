//! Tables that get more blocks, or fewer.
//!
//! A key whose block has no room goes to the back. That is where crowding shows: when the keys there become too many, the table gets a tenth
//! more blocks, and every key a new home. Homes keep the order of hashes, so with more blocks each lies further on or where it was: taken from the
//! last block to the first, all of them can move within the table itself. With fewer blocks it is the other way round.
//!
//! Whoever rebuilds holds all blocks of the table, then its back. What it takes is short, since a store has many tables.

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
    /// Gives a table as many blocks as it needs at `now`, if they can be had.
    #[cold]
    #[inline(never)]
    pub(super) fn rebuild(&self, table: usize, now: Timestamp, purpose: Purpose, allowance: &impl Allowance) {
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
            return;
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
        Purpose::Grow if needed < present && needed * 4 > present * 3 => present,
        _ => needed,
    }
}

/// Gives the keys of the first so many chunks their homes among so many blocks, drops what is stale, and returns those that found no room.
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

/// Drops what is stale, moves those who are in the back for want of room to their homes where there is some, and takes in those who found none.
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
        let state = || State { cell: slot.cell(), ..State::default() };
        if back.adopt(slot.hash(), state(), now, credit).is_err() {
            // Beyond the budget rather than forgotten. That is seen only where there is no memory at all.
            let _none_at_all = back.adopt(slot.hash(), state(), now, &Forced(credit.budget));
        }
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
