//! The back of a table: states that do not fit into a slot of a block, and keys whose block had no room.
//!
//! It is used under its lock, and for a key's state also under the lock of the key's block. The last one, of the
//! counters that keys share when the budget is spent, has no blocks before it. Time does not run backwards in it: a
//! state that was forgotten because it was stale must not be missed when an earlier time is given.

use std::borrow::Cow;

use tollgate_core::{Ask, Cell, Change, Extra, Limit, Outcome, State, Step, Timestamp};

use super::hash::Hash;
use super::item::Item;
use super::table::{Allowance, Entry, Full, Table};

/// In this order, so that what is needed of it for every key is on one cache line with the lock, which comes last: two
/// processors that take turns pass on one line, not two.
#[derive(Default)]
#[repr(C)]
pub(super) struct Shard {
    pub(super) crowd: Crowd,
    /// Most shards never need one.
    extras: Option<Box<Extras>>,
    table: Table,
    latest: Timestamp,
}

/// Keys that are here only because their blocks had no room.
#[derive(Default)]
pub(super) struct Crowd {
    /// How many came since they were counted last, and were here then.
    pub(super) size: usize,
    /// When they are more than this, the blocks are too few.
    pub(super) most: usize,
    /// While the budget is spent, blocks are not searched for what is stale before this instant,
    pub(super) retry_at: Timestamp,
    /// nor before this many more keys were turned away,
    pub(super) retry_after: usize,
    /// unless everything is stale by then.
    pub(super) retry_by: Timestamp,
}

impl Crowd {
    /// Whether to search the blocks once more for what is stale would be in vain. Counts those who were turned away.
    pub(super) fn is_in_vain(&mut self, now: Timestamp) -> bool {
        let is_in_vain = now < self.retry_at || (self.retry_after > 0 && now < self.retry_by);
        if is_in_vain {
            self.retry_after = self.retry_after.saturating_sub(1);
        }
        is_in_vain
    }

    pub(super) fn is_too_large(&self) -> bool {
        self.size > self.most
    }
}

/// The states that do not fit into a cell, by the index that the cell's word holds instead.
#[derive(Default)]
struct Extras {
    items: Vec<Item>,
    free: Vec<usize>,
    /// While the budget is spent, stale ones are not searched for again before this instant,
    retry_at: Timestamp,
    /// nor before this many more keys were turned away.
    retry_after: usize,
}

/// How much of an answer is wanted.
pub(super) trait Reply: Sized {
    /// Asks and hands the answer on.
    fn ask<T>(limit: &Limit, cell: Cell, extra: &Extra, ask: &Ask, then: impl FnOnce(Self, &Change) -> T) -> T;
    /// The same answer, given on behalf of a shared counter.
    fn shared(self) -> Self;
    /// Whether the charge is admitted.
    fn is_allowed(&self) -> bool;
}

impl Reply for bool {
    #[inline(always)]
    fn ask<T>(limit: &Limit, cell: Cell, extra: &Extra, ask: &Ask, then: impl FnOnce(Self, &Change) -> T) -> T {
        limit.admit_then(cell, extra, ask, then)
    }

    fn shared(self) -> Self {
        self
    }

    #[inline(always)]
    fn is_allowed(&self) -> bool {
        *self
    }
}

impl Reply for Outcome {
    #[inline(always)]
    fn ask<T>(limit: &Limit, cell: Cell, extra: &Extra, ask: &Ask, then: impl FnOnce(Self, &Change) -> T) -> T {
        limit.step_then(cell, extra, ask, then)
    }

    fn shared(self) -> Self {
        Self { shared: true, ..self }
    }

    #[inline(always)]
    fn is_allowed(&self) -> bool {
        self.allowed
    }
}

/// Where a key is, or is about to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// It has a state.
    Known,
    /// A slot is kept for it, and its state is fresh.
    Reserved,
    /// It has none, and none is needed.
    Absent,
}

impl Shard {
    /// The later of `now` and any time given before.
    #[inline]
    pub(super) fn advance(&mut self, now: Timestamp) -> Timestamp {
        if now > self.latest {
            self.latest = now;
        }
        self.latest
    }

    /// Answers one charge and puts the answer into effect. `Full` when its key is new and has no room.
    pub(super) fn apply<R: Reply>(
        &mut self,
        hash: Hash,
        limit: &Limit,
        ask: &Ask,
        allowance: &impl Allowance,
    ) -> Result<R, Full> {
        let found = self.table.find(hash);
        let limit = match found.and_then(|index| self.item_at(index)) {
            Some(item) => {
                item.take_room_for(limit, allowance);
                item.limit_within_room(limit, ask.intent)
            }
            None => Cow::Borrowed(limit),
        };
        let limit = &*limit;
        let (cell, extra) =
            found.and_then(|index| self.table.get(index)).map_or((Cell::FRESH, Extra::NONE), |entry| self.view(entry));
        let (reply, change) = R::ask(limit, cell, extra, ask, |reply, change| (reply, *change));
        if found.is_some() {
            self.commit_at(found, limit, &change, allowance);
        } else if change != Change::Keep {
            self.insert(hash, limit, &change, ask.now, allowance)?;
        }
        Ok(reply)
    }

    /// Finds a place for a key that is about to be charged. `Full` when it is new and has no room.
    pub(super) fn reserve(
        &mut self,
        hash: Hash,
        limit: &Limit,
        now: Timestamp,
        allowance: &impl Allowance,
    ) -> Result<Place, Full> {
        if let Some(index) = self.table.find(hash) {
            if let Some(item) = self.item_at(index) {
                item.take_room_for(limit, allowance);
            }
            return Ok(self.keep(index, now));
        }
        // Not stale, so that no other key takes the slot before this one is charged.
        let cell = Cell { fresh_at: Timestamp::MAX, word: 0 };
        self.insert(hash, limit, &Change::Cell(cell), now, allowance)?;
        Ok(Place::Reserved)
    }

    /// Keeps a state from being dropped. One that is stale is made the fresh one that it counts as.
    fn keep(&mut self, index: usize, now: Timestamp) -> Place {
        let Some(entry) = self.table.get_mut(index).filter(|entry| entry.fresh_at() <= now) else {
            return Place::Known;
        };
        if !entry.is_elsewhere() {
            entry.set(Cell { fresh_at: Timestamp::MAX, word: 0 });
            return Place::Reserved;
        }
        let at = entry.word;
        entry.set(Cell { fresh_at: Timestamp::MAX, word: at });
        if let Some(item) = self.extras.as_mut().and_then(|extras| extras.items.get_mut(at as usize)) {
            item.forget();
        }
        Place::Reserved
    }

    pub(super) fn has(&self, hash: Hash) -> bool {
        self.table.find(hash).is_some()
    }

    pub(super) fn look_up(&self, hash: Hash) -> Place {
        if self.table.find(hash).is_some() { Place::Known } else { Place::Absent }
    }

    /// Answers a charge and changes nothing.
    pub(super) fn step(&self, hash: Hash, place: Place, limit: &Limit, ask: &Ask) -> Step {
        match self.table.find(hash) {
            Some(index) if place == Place::Known => self.step_at(index, limit, ask),
            _ => limit.step(Cell::FRESH, Extra::NONE, ask),
        }
    }

    /// Puts a step into effect. A reserved slot that is not used is free again.
    pub(super) fn commit(
        &mut self,
        hash: Hash,
        place: Place,
        limit: &Limit,
        change: &Change,
        allowance: &impl Allowance,
    ) {
        let Some(index) = self.table.find(hash) else { return };
        if place == Place::Reserved
            && let Some(entry) = self.table.get_mut(index)
        {
            let word = if entry.is_elsewhere() { entry.word } else { 0 };
            entry.set(Cell { word, ..Cell::FRESH });
        }
        self.commit_at(Some(index), limit, change, allowance);
    }

    pub(super) fn shrink(&mut self, now: Timestamp, allowance: &impl Allowance) {
        let Self { table, extras, latest, .. } = self;
        table.shrink(now.max(*latest), allowance, |stale| release(extras, stale, allowance));
        if extras.as_ref().is_some_and(|extras| extras.free.len() == extras.items.len()) {
            *extras = None;
        }
    }

    pub(super) fn keys(&self) -> usize {
        self.table.entries().count()
    }

    /// A key that is here for want of room in its block.
    pub(super) fn crowded_out(&mut self, hash: Hash) -> Option<&mut Entry> {
        let index = self.table.find(hash)?;
        self.table.get_mut(index).filter(|entry| !entry.is_elsewhere())
    }

    /// Takes such a key in, for another that leaves.
    pub(super) fn crowd_out(
        &mut self,
        hash: Hash,
        cell: Cell,
        now: Timestamp,
        allowance: &impl Allowance,
    ) -> Result<(), Full> {
        match self.table.find(hash).and_then(|index| self.table.get_mut(index)) {
            Some(entry) => entry.set(cell),
            None => {
                self.insert_entry(hash, cell, None, now, allowance)?;
                self.crowd.size -= 1;
            }
        }
        Ok(())
    }

    /// Hands on the keys that are here for want of room in their blocks and not stale. Those that `leaves` says have
    /// left.
    pub(super) fn crowded(&mut self, now: Timestamp, mut leaves: impl FnMut(Hash, Cell) -> bool) {
        for entry in self.table.entries_mut() {
            if !entry.is_elsewhere() && entry.fresh_at() > now && leaves(entry.hash, entry.cell()) {
                entry.set(Cell::FRESH);
            }
        }
    }

    /// The hash of every key, and when its state is stale.
    pub(super) fn hashes(&self) -> impl Iterator<Item = (Hash, Timestamp)> {
        self.table.entries().map(|entry| (entry.hash, entry.fresh_at()))
    }

    /// Every key's hash and state.
    pub(super) fn states(&self) -> impl Iterator<Item = (Hash, State)> {
        self.table.entries().map(|entry| {
            let (cell, extra) = self.view(entry);
            (entry.hash, State { cell, extra: extra.clone() })
        })
    }

    /// Takes in a key that is not there yet, as it was elsewhere.
    pub(super) fn adopt(
        &mut self,
        hash: Hash,
        state: State,
        now: Timestamp,
        allowance: &impl Allowance,
    ) -> Result<(), Full> {
        let item = (!state.extra.is_empty()).then(|| Item::adopted(state.cell.word, state.extra));
        self.insert_entry(hash, state.cell, item, now, allowance)
    }

    #[inline]
    fn step_at(&self, index: usize, limit: &Limit, ask: &Ask) -> Step {
        match self.table.get(index) {
            Some(entry) => {
                let (cell, extra) = self.view(entry);
                let item = self.item(entry);
                let limit = item.map_or(Cow::Borrowed(limit), |item| item.limit_within_room(limit, ask.intent));
                limit.step(cell, extra, ask)
            }
            None => limit.step(Cell::FRESH, Extra::NONE, ask),
        }
    }

    #[inline]
    fn view(&self, entry: &Entry) -> (Cell, &Extra) {
        if !entry.is_elsewhere() {
            return (entry.cell(), Extra::NONE);
        }
        match self.item(entry) {
            Some(item) => (Cell { word: item.word, ..entry.cell() }, item.extra()),
            None => (Cell::FRESH, Extra::NONE),
        }
    }

    fn item(&self, entry: &Entry) -> Option<&Item> {
        self.extras.as_ref().filter(|_| entry.is_elsewhere())?.items.get(entry.word as usize)
    }

    fn item_at(&mut self, index: usize) -> Option<&mut Item> {
        let entry = self.table.get(index).filter(|entry| entry.is_elsewhere())?;
        self.extras.as_mut()?.items.get_mut(entry.word as usize)
    }

    fn commit_at(&mut self, index: Option<usize>, limit: &Limit, change: &Change, allowance: &impl Allowance) {
        if let Some(entry) = index.and_then(|index| self.table.get_mut(index)) {
            commit_entry(entry, &mut self.extras, limit, change, allowance);
        }
    }

    pub(super) fn insert(
        &mut self,
        hash: Hash,
        limit: &Limit,
        change: &Change,
        now: Timestamp,
        allowance: &impl Allowance,
    ) -> Result<(), Full> {
        let mut state = State::default();
        state.apply(change);
        let item = limit.needs_extra().then(|| Item::new(limit, state.cell.word, state.extra));
        self.insert_entry(hash, state.cell, item, now, allowance)
    }

    fn insert_entry(
        &mut self,
        hash: Hash,
        cell: Cell,
        item: Option<Item>,
        now: Timestamp,
        allowance: &impl Allowance,
    ) -> Result<(), Full> {
        let Self { table, extras, crowd, .. } = self;
        let Some(item) = item else {
            let entry = Entry::new(hash, cell, false);
            table.insert(entry, now, allowance, |stale| release(extras, stale, allowance))?;
            crowd.size += 1;
            return Ok(());
        };
        let bytes = item.bytes();
        let paid = allowance.take(bytes) || release_stale(table, extras, now, allowance) && allowance.take(bytes);
        if !paid {
            return Err(Full);
        }
        let at = put(extras, item);
        let entry = Entry::new(hash, Cell { word: at as u64, ..cell }, true);
        let inserted = table.insert(entry, now, allowance, |stale| release(extras, stale, allowance));
        if inserted.is_err() {
            release(extras, entry, allowance);
        }
        inserted
    }
}

/// Puts a step into effect.
fn commit_entry(
    entry: &mut Entry,
    extras: &mut Option<Box<Extras>>,
    limit: &Limit,
    change: &Change,
    allowance: &impl Allowance,
) {
    let (cell, edit) = match change {
        Change::Keep => return,
        Change::Cell(cell) if !entry.is_elsewhere() => return entry.set(*cell),
        Change::Cell(cell) => (cell, None),
        Change::Both(cell, edit) => (cell, Some(edit)),
    };
    if !entry.is_elsewhere() {
        // The limit became soft since this key was stored. Without room its overage is not remembered.
        let item = Item::new(limit, 0, Extra::default());
        if !allowance.take(item.bytes()) {
            return entry.set(*cell);
        }
        let at = put(extras, item);
        *entry = Entry::new(entry.hash, Cell { word: at as u64, ..entry.cell() }, true);
    }
    let at = entry.word;
    entry.set(Cell { word: at, ..*cell });
    if let Some(item) = extras.as_mut().and_then(|extras| extras.items.get_mut(at as usize)) {
        item.word = cell.word;
        if let Some(edit) = edit {
            item.apply(edit, limit, allowance);
        }
    }
}

fn put(extras: &mut Option<Box<Extras>>, item: Item) -> usize {
    let extras = extras.get_or_insert_default();
    let reused = extras.free.pop();
    match reused.and_then(|at| Some((at, extras.items.get_mut(at)?))) {
        Some((at, slot)) => {
            *slot = item;
            at
        }
        None => {
            extras.items.push(item);
            extras.items.len() - 1
        }
    }
}

/// Drops what is stale for the sake of the budget, unless that was in vain not long ago; `false` then.
fn release_stale(
    table: &mut Table,
    extras: &mut Option<Box<Extras>>,
    now: Timestamp,
    allowance: &impl Allowance,
) -> bool {
    let book = extras.get_or_insert_default();
    if now < book.retry_at || book.retry_after > 0 {
        book.retry_after = book.retry_after.saturating_sub(1);
        return false;
    }
    table.shrink(now, allowance, |stale| release(extras, stale, allowance));
    if let Some(extras) = extras {
        extras.retry_at = table.entries().map(Entry::fresh_at).min().unwrap_or_default();
        extras.retry_after = (extras.items.len() - extras.free.len()) / 16;
    }
    true
}

fn release(extras: &mut Option<Box<Extras>>, entry: Entry, allowance: &impl Allowance) {
    if !entry.is_elsewhere() {
        return;
    }
    let Some(extras) = extras else { return };
    if let Some(item) = extras.items.get_mut(entry.word as usize) {
        allowance.give_back(item.bytes());
        *item = Item::default();
        extras.free.push(entry.word as usize);
    }
    if extras.free.len() == extras.items.len() {
        (extras.items, extras.free) = (Vec::new(), Vec::new());
    }
}
