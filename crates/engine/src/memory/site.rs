//! Where one key's state is: in its block or in the back, never in both.
//!
//! The general way to all that can be asked of a key, under the locks of its block and of its table's back. What is
//! asked most, about a key that is in its block, is answered under the block's lock alone, where it is asked.

use tollgate_core::{Ask, Cell, Change, Extra, Limit, State, Step, Timestamp};

use super::block::{Locked, SLOTS, Slot};
use super::hash::Hash;
use super::shard::{Place, Reply, Shard};
use super::table::{Allowance, Full};

pub(super) struct Site<'a, 's> {
    /// The key's home.
    pub(super) block: &'a mut Locked<'s>,
    pub(super) back: &'a mut Shard,
}

impl Site<'_, '_> {
    /// The latest of `now` and any time that was given in either: what is stale in the back makes way for keys of other
    /// blocks as well.
    pub(super) fn advance(&mut self, now: Timestamp) -> Timestamp {
        let now = self.back.advance(self.block.head.advance(now));
        self.block.head.advance(now)
    }

    /// Whether the key has a state.
    pub(super) fn has(&self, hash: Hash) -> bool {
        self.block.has(hash) || self.is_in_back(hash)
    }

    fn is_in_back(&self, hash: Hash) -> bool {
        self.block.head.is_crowded() && self.back.has(hash)
    }

    /// Answers one charge and puts the answer into effect. `Full` when its key is new and has no room.
    pub(super) fn apply<R: Reply>(
        &mut self,
        hash: Hash,
        limit: &Limit,
        ask: &Ask,
        allowance: &impl Allowance,
    ) -> Result<R, Full> {
        let known = self.block.find(hash).map(|slot| slot.cell());
        if known.is_none() && self.is_in_back(hash) {
            return self.back.apply(hash, limit, ask, allowance);
        }
        let cell = known.unwrap_or(Cell::FRESH);
        let (reply, change) = R::ask(limit, cell, Extra::NONE, ask, |reply, change| (reply, *change));
        if known.is_some() {
            self.change(hash, limit, &change, ask.now, allowance);
        } else if change != Change::Keep {
            self.insert(hash, limit, &change, ask.now, allowance)?;
        }
        Ok(reply)
    }

    /// Answers one charge of a key that is in the back only for want of room, and puts the answer into effect. `None`,
    /// and nothing changed, for others.
    pub(super) fn apply_behind<R: Reply>(
        &mut self,
        hash: Hash,
        limit: &Limit,
        ask: &Ask,
        allowance: &impl Allowance,
    ) -> Option<R> {
        // Who has come forward may have left a trace behind.
        let is_behind = !self.block.has(hash);
        let entry = self.back.crowded_out(hash).filter(|_| is_behind)?;
        let reply = R::ask(limit, entry.cell(), Extra::NONE, ask, |reply, change| match change {
            Change::Keep => Some(reply),
            Change::Cell(cell) => {
                entry.set(*cell);
                Some(reply)
            }
            Change::Both(..) => None,
        });
        // Who is asked for often comes forward sooner or later, and whoever makes way is asked for less often, most
        // likely.
        if reply.is_some() {
            self.bring_forward(hash, ask.now, allowance);
        }
        reply
    }

    /// Lets a key of the back change places with one of the block, of another entity, if it is time to.
    pub(super) fn bring_forward(&mut self, hash: Hash, now: Timestamp, allowance: &impl Allowance) {
        /// So many microseconds are between those in which keys come forward.
        const ONCE_IN: u64 = 64;
        // Not by the time alone, which may be one of whole seconds.
        if !(now.as_micros() ^ hash.low).is_multiple_of(ONCE_IN) || self.block.has(hash) {
            return;
        }
        let behind = self.back.crowded_out(hash).filter(|entry| entry.fresh_at() > now);
        let Some(cell) = behind.map(|entry| entry.cell()) else { return };
        let first = (now.as_micros() / ONCE_IN) as usize;
        let others = (first..first + SLOTS).map(|at| at % SLOTS);
        let slots = self.block.slots_mut();
        let other = others.into_iter().find(|at| slots.get(*at).is_some_and(|slot| !slot.is_of_entity(hash)));
        let Some(slot) = other.and_then(|at| slots.get_mut(at)) else { return };
        let makes_way = slot.fresh_at() <= now || self.back.crowd_out(slot.hash(), slot.cell(), now, allowance).is_ok();
        // It may lie elsewhere by now, but it is there: nothing that is not stale is dropped.
        if let Some(entry) = self.back.crowded_out(hash).filter(|_| makes_way) {
            entry.set(Cell::FRESH);
            *slot = Slot::new(hash, cell);
        }
    }

    /// Finds a place for a key that is about to be charged. `Full` when it is new and has no room.
    pub(super) fn reserve(
        &mut self,
        hash: Hash,
        limit: &Limit,
        now: Timestamp,
        allowance: &impl Allowance,
    ) -> Result<Place, Full> {
        // Not stale, so that no other key takes the slot before this one is charged.
        const KEPT: Cell = Cell { fresh_at: Timestamp::MAX, word: 0 };
        if let Some(slot) = self.block.find(hash) {
            if slot.fresh_at() > now {
                return Ok(Place::Known);
            }
            slot.set(KEPT);
            return Ok(Place::Reserved);
        }
        if self.is_in_back(hash) {
            return self.back.reserve(hash, limit, now, allowance);
        }
        match self.block.room(now).filter(|_| !limit.needs_extra()) {
            Some(slot) => *slot = Slot::new(hash, KEPT),
            None => {
                self.back.reserve(hash, limit, now, allowance)?;
                self.block.head.crowd();
            }
        }
        Ok(Place::Reserved)
    }

    /// Whether there is room for a key that is not there.
    pub(super) fn could_take(&mut self, hash: Hash, limit: &Limit, now: Timestamp, allowance: &impl Allowance) -> bool {
        let place = self.reserve(hash, limit, now, allowance);
        if let Ok(place) = place {
            self.commit(hash, place, limit, &Change::Keep, now, allowance);
        }
        place.is_ok()
    }

    pub(super) fn look_up(&self, hash: Hash) -> Place {
        if self.has(hash) { Place::Known } else { Place::Absent }
    }

    /// Answers a charge and changes nothing.
    pub(super) fn step(&mut self, hash: Hash, place: Place, limit: &Limit, ask: &Ask) -> Step {
        match self.block.find(hash) {
            Some(slot) if place == Place::Known => limit.step(slot.cell(), Extra::NONE, ask),
            Some(_) => limit.step(Cell::FRESH, Extra::NONE, ask),
            None => self.back.step(hash, place, limit, ask),
        }
    }

    /// Puts a step into effect. A reserved slot that is not used is free again.
    pub(super) fn commit(
        &mut self,
        hash: Hash,
        place: Place,
        limit: &Limit,
        change: &Change,
        now: Timestamp,
        allowance: &impl Allowance,
    ) {
        match self.block.find(hash) {
            Some(slot) => {
                if place == Place::Reserved {
                    slot.set(Cell::FRESH);
                }
                self.change(hash, limit, change, now, allowance);
            }
            None => self.back.commit(hash, place, limit, change, allowance),
        }
    }

    /// Takes in a key that is not there yet, as it was elsewhere.
    pub(super) fn adopt(
        &mut self,
        hash: Hash,
        state: State,
        now: Timestamp,
        allowance: &impl Allowance,
    ) -> Result<(), Full> {
        match self.block.room(now).filter(|_| state.extra.is_empty()) {
            Some(slot) => *slot = Slot::new(hash, state.cell),
            None => {
                self.back.adopt(hash, state, now, allowance)?;
                self.block.head.crowd();
            }
        }
        Ok(())
    }

    /// Changes what is in the block.
    fn change(&mut self, hash: Hash, limit: &Limit, change: &Change, now: Timestamp, allowance: &impl Allowance) {
        let Some(slot) = self.block.find(hash) else { return };
        match change {
            Change::Keep => {}
            Change::Cell(cell) => slot.set(*cell),
            // The limit became soft since this key was stored. Without room its overage is not remembered.
            Change::Both(cell, _) => {
                let has_left_a_trace = self.back.crowded_out(hash).map(|entry| entry.set(slot.cell())).is_some();
                if has_left_a_trace {
                    self.back.commit(hash, Place::Known, limit, change, allowance);
                } else if self.back.insert(hash, limit, change, now, allowance).is_err() {
                    return slot.set(*cell);
                }
                *slot = Slot::default();
                self.block.head.crowd();
            }
        }
    }

    fn insert(
        &mut self,
        hash: Hash,
        limit: &Limit,
        change: &Change,
        now: Timestamp,
        allowance: &impl Allowance,
    ) -> Result<(), Full> {
        match self.block.room(now).filter(|_| !limit.needs_extra()) {
            Some(slot) => {
                let mut state = State::default();
                state.apply(change);
                *slot = Slot::new(hash, state.cell);
            }
            None => {
                self.back.insert(hash, limit, change, now, allowance)?;
                self.block.head.crowd();
            }
        }
        Ok(())
    }
}
