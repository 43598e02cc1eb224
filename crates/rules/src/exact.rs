//! Nodes by the exact value that leads to them.
//!
//! A plain table with open addressing: what a look-up has to wait for is one load, whose place is known before the node is, as
//! all tables of a tree hash alike. Values of ordinary length are in the table itself, so that there is no second load.

use crate::by_name::{TextHasher, same_bytes};
use crate::tree::NodeId;

/// Bytes of a value that fit into its slot.
const SHORT: usize = 19;
/// The length of values that do not: where they are is in their slot instead.
const LONG: u8 = u8::MAX;
/// What no value leads to: the root of all.
const FREE: NodeId = 0;

#[derive(Debug, Default)]
pub(crate) struct Exact {
    /// A power of two, of which half are free at least; or none.
    slots: Box<[Slot]>,
    taken: usize,
    /// Values that do not fit into their slots.
    long: Vec<Box<str>>,
}

/// Half a cache line, and never on two.
#[derive(Clone, Debug)]
#[repr(C, align(32))]
struct Slot {
    hash: u64,
    node: NodeId,
    length: u8,
    value: [u8; SHORT],
}

impl Exact {
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    #[inline(always)]
    pub(crate) fn get(&self, value: &str, hasher: &TextHasher) -> Option<NodeId> {
        let hash = hasher.hash(value);
        let mask = self.slots.len().wrapping_sub(1);
        let mut at = hash as usize & mask;
        while let Some(slot) = self.slots.get(at).filter(|slot| slot.node != FREE) {
            if slot.hash == hash && same_bytes(self.value(slot), value.as_bytes()) {
                return Some(slot.node);
            }
            at = (at + 1) & mask;
        }
        None
    }

    #[inline(always)]
    fn value<'a>(&'a self, slot: &'a Slot) -> &'a [u8] {
        slot.value.get(..usize::from(slot.length)).unwrap_or_else(|| self.long_value(slot))
    }

    #[cold]
    fn long_value(&self, slot: &Slot) -> &[u8] {
        let at = slot.value.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        self.long.get(at as usize).map_or(&[], |value| value.as_bytes())
    }

    /// Leads to `node`, which is not the root, from now on, unless it led elsewhere before; says where it does.
    pub(crate) fn get_or_insert(&mut self, value: &str, node: NodeId, hasher: &TextHasher) -> NodeId {
        if let Some(known) = self.get(value, hasher) {
            return known;
        }
        self.taken += 1;
        if self.taken * 2 > self.slots.len() {
            let room = (self.slots.len() * 2).max(2);
            let free = Slot { hash: 0, node: FREE, length: 0, value: [0; SHORT] };
            let old = std::mem::replace(&mut self.slots, vec![free; room].into());
            old.into_iter().filter(|slot| slot.node != FREE).for_each(|slot| self.put(slot));
        }
        let mut slot = Slot { hash: hasher.hash(value), node, length: LONG, value: [0; SHORT] };
        if let Some(short) = slot.value.get_mut(..value.len()) {
            short.copy_from_slice(value.as_bytes());
            slot.length = value.len() as u8;
        } else if let Some(place) = slot.value.first_chunk_mut() {
            *place = (self.long.len() as u32).to_le_bytes();
            self.long.push(value.into());
        }
        self.put(slot);
        node
    }

    fn put(&mut self, slot: Slot) {
        let mask = self.slots.len().wrapping_sub(1);
        let mut at = slot.hash as usize & mask;
        while self.slots.get(at).is_some_and(|slot| slot.node != FREE) {
            at = (at + 1) & mask;
        }
        if let Some(free) = self.slots.get_mut(at) {
            *free = slot;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_leads_where_it_was_first_led() {
        let (mut exact, hasher) = (Exact::default(), TextHasher::default());
        assert_eq!(exact.get("", &hasher), None);
        let values: Vec<String> = (0..1_000).map(|number| "x".repeat(number % 30) + &number.to_string()).collect();
        for (node, value) in (1..).zip(&values) {
            assert_eq!(exact.get(value, &hasher), None, "{value}");
            assert_eq!(exact.get_or_insert(value, node, &hasher), node);
            assert_eq!(exact.get_or_insert(value, node + 1, &hasher), node);
        }
        for (node, value) in (1..).zip(&values) {
            assert_eq!(exact.get(value, &hasher), Some(node), "{value}");
        }
        assert!(exact.slots.len() >= 2 * values.len());
    }
}
