//! Many patterns, and those of them that a value matches, without trying each.
//!
//! Patterns that begin with a literal are found by it, one table look-up for each length that occurs; those that end with one
//! likewise; networks by their first bits. Only what has neither (`*mid*`, "not this") is tried one by one.

use hashbrown::HashMap;
use smallvec::SmallVec;

use crate::pattern::{Network, Pattern, parse_address};

/// What is found: numbers given on insertion, and where they lead.
pub(crate) type Found<T> = SmallVec<[(u32, T); 4]>;

/// A pattern, its number and where it leads.
type Numbered<T> = (u32, Pattern, T);

/// Patterns, each with a number and a target.
#[derive(Debug)]
pub(crate) struct PatternIndex<T> {
    heads: Literals<T>,
    tails: Literals<T>,
    networks: HashMap<Network, Vec<(u32, T)>>,
    /// The prefix lengths that occur.
    network_lengths: Vec<u8>,
    others: Vec<Numbered<T>>,
}

/// Patterns by a literal at one of their ends.
#[derive(Debug)]
struct Literals<T> {
    by_literal: HashMap<Box<[u8]>, Vec<Numbered<T>>>,
    /// The lengths that occur.
    lengths: Vec<usize>,
}

impl<T> Default for PatternIndex<T> {
    fn default() -> Self {
        Self {
            heads: Literals::default(),
            tails: Literals::default(),
            networks: HashMap::new(),
            network_lengths: Vec::new(),
            others: Vec::new(),
        }
    }
}

impl<T> Default for Literals<T> {
    fn default() -> Self {
        Self { by_literal: HashMap::new(), lengths: Vec::new() }
    }
}

impl<T: Copy> PatternIndex<T> {
    /// Adds `pattern`. Values that match it find `number` and `target`.
    pub(crate) fn insert(&mut self, number: u32, pattern: &Pattern, target: T) {
        match pattern {
            Pattern::Glob(glob) if !glob.head().is_empty() => {
                self.heads.insert(glob.head(), (number, pattern.clone(), target));
            }
            Pattern::Glob(glob) if !glob.tail().is_empty() => {
                self.tails.insert(glob.tail(), (number, pattern.clone(), target));
            }
            Pattern::Networks(networks) => {
                for network in networks {
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
        self.heads.find(value, |length| bytes.get(..length), found);
        self.tails.find(value, |length| bytes.get(bytes.len().checked_sub(length)?..), found);
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

impl<T: Copy> Literals<T> {
    fn insert(&mut self, literal: &str, item: Numbered<T>) {
        if !self.lengths.contains(&literal.len()) {
            self.lengths.push(literal.len());
        }
        self.by_literal.entry(literal.as_bytes().into()).or_default().push(item);
    }

    fn find<'v>(&self, value: &str, end: impl Fn(usize) -> Option<&'v [u8]>, found: &mut Found<T>) {
        for length in &self.lengths {
            let candidates = end(*length).and_then(|literal| self.by_literal.get(literal));
            let matching = candidates.into_iter().flatten().filter(|(_, pattern, _)| pattern.matches(value));
            found.extend(matching.map(|(number, _, target)| (*number, *target)));
        }
    }
}
