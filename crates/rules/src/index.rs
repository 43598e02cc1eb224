//! Many patterns, and those of them that a value matches, without trying each.
//!
//! Patterns are found by the literals at their ends, one table look-up for each pair of lengths that occurs; networks
//! by their first bits. Only what has no literal at either end (`*mid*`, "not this") is tried one by one.

use std::hash::{Hash, Hasher};

use hashbrown::{Equivalent, HashMap};
use smallvec::SmallVec;

use crate::pattern::{Network, Pattern, parse_address};

/// What is found: numbers given on insertion, and where they lead.
pub(crate) type Found<T> = SmallVec<[(u32, T); 4]>;

/// A pattern, its number and where it leads.
type Numbered<T> = (u32, Pattern, T);

/// Patterns, each with a number and a target.
#[derive(Debug)]
pub(crate) struct PatternIndex<T> {
    by_ends: HashMap<Ends<Box<[u8]>>, Vec<Numbered<T>>>,
    /// The lengths of ends that occur together.
    lengths: Vec<(usize, usize)>,
    networks: HashMap<Network, Vec<(u32, T)>>,
    /// The prefix lengths that occur.
    network_lengths: Vec<u8>,
    others: Vec<Numbered<T>>,
}

/// How a value begins and ends.
#[derive(Debug, PartialEq, Eq)]
struct Ends<B> {
    head: B,
    tail: B,
}

impl<B: AsRef<[u8]>> Hash for Ends<B> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.head.as_ref().hash(state);
        self.tail.as_ref().hash(state);
    }
}

impl Equivalent<Ends<Box<[u8]>>> for Ends<&[u8]> {
    fn equivalent(&self, key: &Ends<Box<[u8]>>) -> bool {
        *self.head == *key.head && *self.tail == *key.tail
    }
}

impl<T> Default for PatternIndex<T> {
    fn default() -> Self {
        Self {
            by_ends: HashMap::new(),
            lengths: Vec::new(),
            networks: HashMap::new(),
            network_lengths: Vec::new(),
            others: Vec::new(),
        }
    }
}

impl<T: Copy> PatternIndex<T> {
    /// Adds `pattern`. Values that match it find `number` and `target`.
    pub(crate) fn insert(&mut self, number: u32, pattern: &Pattern, target: T) {
        match pattern {
            Pattern::Glob(glob) if !glob.head().is_empty() || !glob.tail().is_empty() => {
                let lengths = (glob.head().len(), glob.tail().len());
                if !self.lengths.contains(&lengths) {
                    self.lengths.push(lengths);
                }
                let ends = Ends { head: glob.head().as_bytes().into(), tail: glob.tail().as_bytes().into() };
                self.by_ends.entry(ends).or_default().push((number, pattern.clone(), target));
            }
            Pattern::Networks(networks) => {
                for network in networks.iter() {
                    if !self.network_lengths.contains(&network.length()) {
                        self.network_lengths.push(network.length());
                    }
                    self.networks.entry(*network).or_default().push((number, target));
                }
            }
            _ => self.others.push((number, pattern.clone(), target)),
        }
    }

    /// Adds to `found` all that `value` matches, in no order.
    pub(crate) fn find(&self, value: &str, found: &mut Found<T>) {
        let bytes = value.as_bytes();
        for (head, tail) in &self.lengths {
            // Ends may not overlap: the pattern itself says so when it is tried.
            let ends = bytes.get(..*head).zip(bytes.len().checked_sub(*tail).and_then(|at| bytes.get(at..)));
            let candidates = ends.and_then(|(head, tail)| self.by_ends.get(&Ends { head, tail }));
            let matching = candidates.into_iter().flatten().filter(|(_, pattern, _)| pattern.matches(value));
            found.extend(matching.map(|(number, _, target)| (*number, *target)));
        }
        if !self.network_lengths.is_empty()
            && let Some(address) = parse_address(value)
        {
            for length in &self.network_lengths {
                found.extend(self.networks.get(&Network::around(address, *length)).into_iter().flatten().copied());
            }
        }
        let matching = self.others.iter().filter(|(_, pattern, _)| pattern.matches(value));
        found.extend(matching.map(|(number, _, target)| (*number, *target)));
    }
}
