//! Nodes by the exact value that leads to them, and the one of all other values.
//!
//! A plain table with open addressing: what a look-up has to wait for is one load, whose place is known before the node
//! is, as all tables of a tree hash alike. A value of up to 16 bytes is two words and a length, in the table as in the
//! question, so it is compared as it was hashed. Only longer ones are looked at once more. A small table takes those
//! bits of the hash by which none of its values is in the place of another, if there are any: most look at one slot.

use crate::tree::NodeId;
use crate::words::{Words, WordsHasher};

#[derive(Debug, Default)]
pub(crate) struct Exact {
    /// A power of two, of which half are free at least; or none.
    slots: Box<[Slot]>,
    /// So many, as bytes, to leave room for the next.
    taken: [u8; 3],
    /// The first of the bits of a hash that say where to begin.
    bits_from: u8,
    /// Where every value leads that leads nowhere else. Here, where there is room for it on the line.
    pub(crate) any: Option<NodeId>,
}

/// Tables of at most so many slots have their bits chosen,
const SMALL: usize = 64;
/// from here on at the latest.
const MOST_FROM: u8 = 56;

/// Half a cache line, and never on two.
#[derive(Clone, Debug)]
#[repr(C, align(32))]
struct Slot {
    words: [u64; 2],
    length: u32,
    /// None if it is free.
    node: Option<NodeId>,
    /// The value, if it has more bytes than its words can hold. A pointer of one word, since most slots have none.
    long: Option<Box<Box<str>>>,
}

impl Slot {
    const FREE: Self = Self { words: [0; 2], length: 0, node: None, long: None };

    #[inline(always)]
    fn words(&self) -> Words {
        let [first, last] = self.words;
        Words { first, last, length: self.length }
    }

    #[inline(always)]
    fn is(&self, words: Words, value: &&str) -> bool {
        self.words() == words && (self.long.is_none() || self.is_long(value))
    }

    #[cold]
    fn is_long(&self, value: &&str) -> bool {
        self.long.as_ref().is_some_and(|long| ***long == **value)
    }
}

impl Exact {
    /// The value is borrowed once more, since it is mostly not looked at again.
    #[inline(always)]
    pub(crate) fn get(&self, value: &&str, hasher: &WordsHasher) -> Option<NodeId> {
        if self.slots.is_empty() {
            return None;
        }
        let words = hasher.words(value);
        let mask = self.slots.len().wrapping_sub(1);
        let mut at = self.place(words, hasher) & mask;
        loop {
            let slot = self.slots.get(at)?;
            // One that is free ends the search.
            if slot.node.is_none() || slot.is(words, value) {
                return slot.node;
            }
            at = (at + 1) & mask;
        }
    }

    /// Leads to `node` from now on, unless it led elsewhere before; says where it does.
    pub(crate) fn get_or_insert(&mut self, value: &str, node: NodeId, hasher: &WordsHasher) -> NodeId {
        if let Some(known) = self.get(&value, hasher) {
            return known;
        }
        let [a, b, c] = self.taken;
        let taken = u32::from_le_bytes([a, b, c, 0]) + 1;
        let [a, b, c, _] = taken.to_le_bytes();
        self.taken = [a, b, c];
        if taken as usize * 2 > self.slots.len() {
            // A large one needs more bits than are left behind those that a small one chose.
            self.bits_from = 0;
            self.put_anew((self.slots.len() * 2).max(2), hasher);
        }
        let Words { first, last, length } = hasher.words(value);
        let long = (value.len() > Words::MOST).then(|| Box::new(value.into()));
        let mut is_at_home = self.put(Slot { words: [first, last], length, node: Some(node), long }, hasher);
        while !is_at_home && self.slots.len() <= SMALL && self.bits_from < MOST_FROM {
            self.bits_from += 1;
            is_at_home = self.put_anew(self.slots.len(), hasher);
        }
        node
    }

    #[inline(always)]
    fn place(&self, words: Words, hasher: &WordsHasher) -> usize {
        (hasher.hash(words) >> (self.bits_from & 63)) as usize
    }

    /// Puts all into so many slots; whether each begins a search.
    fn put_anew(&mut self, room: usize, hasher: &WordsHasher) -> bool {
        let old = std::mem::replace(&mut self.slots, vec![Slot::FREE; room].into());
        let mut all_at_home = true;
        for slot in old.into_iter().filter(|slot| slot.node.is_some()) {
            all_at_home &= self.put(slot, hasher);
        }
        all_at_home
    }

    /// Whether it is where a search for it begins.
    fn put(&mut self, slot: Slot, hasher: &WordsHasher) -> bool {
        let mask = self.slots.len().wrapping_sub(1);
        let home = self.place(slot.words(), hasher) & mask;
        let mut at = home;
        while self.slots.get(at).is_some_and(|slot| slot.node.is_some()) {
            at = (at + 1) & mask;
        }
        if let Some(free) = self.slots.get_mut(at) {
            *free = slot;
        }
        at == home
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_leads_where_it_was_first_led() {
        let (mut exact, hasher) = (Exact::default(), WordsHasher::default());
        assert_eq!(exact.get(&"", &hasher), None);
        let values: Vec<String> = (0..1_000).map(|number| "x".repeat(number % 30) + &number.to_string()).collect();
        let nodes = || (1..).filter_map(NodeId::new);
        for (node, value) in nodes().zip(&values) {
            assert_eq!(exact.get(&&**value, &hasher), None, "{value}");
            assert_eq!(exact.get_or_insert(value, node, &hasher), node);
            assert_eq!(exact.get_or_insert(value, NodeId::MAX, &hasher), node);
        }
        for (node, value) in nodes().zip(&values) {
            assert_eq!(exact.get(&&**value, &hasher), Some(node), "{value}");
        }
        assert!(exact.slots.len() >= 2 * values.len());
        assert_eq!(exact.bits_from, 0, "a large table needs them all");
    }

    #[test]
    fn the_values_of_a_small_table_do_not_push_each_other() {
        let pushed = (0..200).filter(|_| {
            let (mut exact, hasher) = (Exact::default(), WordsHasher::default());
            for number in 1..=10 {
                exact.get_or_insert(&format!("/path-{number}"), NodeId::new(number).unwrap(), &hasher);
            }
            let home = |slot: &Slot| exact.place(slot.words(), &hasher) % exact.slots.len();
            exact.slots.iter().enumerate().any(|(at, slot)| slot.node.is_some() && home(slot) != at)
        });
        // It is about one of ten, and would be more than half by the lowest bits alone.
        let pushed = pushed.count();
        assert!(pushed < 60, "in {pushed} of 200");
    }

    #[test]
    fn long_values_are_compared_whole() {
        let hasher = WordsHasher::default();
        let long = "a value of more than sixteen bytes";
        let mut exact = Exact::default();
        exact.get_or_insert(long, NodeId::MIN, &hasher);
        assert_eq!(exact.get(&long, &hasher), Some(NodeId::MIN));
        // As if another value had the same words, which nobody can make happen.
        exact.slots.iter_mut().flat_map(|slot| &mut slot.long).for_each(|text| **text = "another".into());
        assert_eq!(exact.get(&long, &hasher), None);
    }
}
