//! Nodes by the exact value that leads to them.
//!
//! A plain table with open addressing: what a look-up has to wait for is one load, whose place is known before the node is, as
//! all tables of a tree hash alike.

use crate::by_name::{TextHasher, same};
use crate::tree::NodeId;

#[derive(Debug, Default)]
pub(crate) struct Exact {
    /// A power of two, of which half are free at least; or none.
    slots: Box<[Option<Slot>]>,
    taken: usize,
}

#[derive(Debug)]
struct Slot {
    value: Box<str>,
    hash: u64,
    node: NodeId,
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
        while let Some(slot) = self.slots.get(at)?.as_ref() {
            if slot.hash == hash && same(&slot.value, value) {
                return Some(slot.node);
            }
            at = (at + 1) & mask;
        }
        None
    }

    /// Leads to `node` from now on, unless it led elsewhere before; says where it does.
    pub(crate) fn get_or_insert(&mut self, value: &str, node: NodeId, hasher: &TextHasher) -> NodeId {
        if let Some(known) = self.get(value, hasher) {
            return known;
        }
        self.taken += 1;
        if self.taken * 2 > self.slots.len() {
            let room = (self.slots.len() * 2).max(2);
            let old = std::mem::replace(&mut self.slots, (0..room).map(|_| None).collect());
            old.into_iter().flatten().for_each(|slot| self.put(slot));
        }
        self.put(Slot { hash: hasher.hash(value), value: value.into(), node });
        node
    }

    fn put(&mut self, slot: Slot) {
        let mask = self.slots.len().wrapping_sub(1);
        let mut at = slot.hash as usize & mask;
        while let Some(Some(_)) = self.slots.get(at) {
            at = (at + 1) & mask;
        }
        if let Some(free) = self.slots.get_mut(at) {
            *free = Some(slot);
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
