//! The rules of one domain, as a tree of keys and values.
//!
//! Both ways to ask walk the same tree, and neither looks at rules that do not match: a level is a table of keys, a key
//! a table of exact values, an index of patterns and a default.
//!
//! - [`Tree::find`] follows one descriptor. At each entry it takes the exact value, else the first pattern in the order of the
//!   file, else the default; it never turns back.
//! - [`Tree::collect`] looks for all rules whose keys are among some attributes. Of rules with the same keys, in the same order, the
//!   most specific applies: at each key the exact value before patterns, patterns with more literal bytes or longer
//!   prefixes before others, and the default last.

mod attributes;

use std::borrow::Cow;
use std::num::NonZero;

use hashbrown::HashMap;
use smallvec::SmallVec;

use crate::by_name::ByName;
use crate::check::Attribute;
use crate::exact::Exact;
use crate::index::{Found, PatternIndex};
use crate::model::{Entry, KeyPattern};
use crate::pattern::{Glob, Pattern};
use crate::words::WordsHasher;

pub(crate) use self::attributes::{NotStraight, Path};

/// A place in the tree: its number, from one on.
pub(crate) type NodeId = NonZero<u32>;
/// A rule, by its number in the set.
pub(crate) type RuleId = u32;

const ROOT: NodeId = NodeId::MIN;

#[derive(Debug)]
pub(crate) struct Tree {
    nodes: Vec<Node>,
    /// Of each node what is needed where it is the last: close together, since there are as many as rules.
    ends: Vec<End>,
    /// Hashes the exact values of all keys.
    hasher: WordsHasher,
    /// Patterns so far: the order of the file.
    patterns: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct End {
    rule: Option<RuleId>,
    /// A rule with the same keys in the same order has the same shape.
    shape: u32,
    /// Whether there is something below.
    leads_on: bool,
}

/// One cache line, with all that it takes to get past most nodes: those of one key.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Node {
    keys: ByName<Values>,
    /// Few nodes have any.
    key_globs: Option<Box<KeyGlobs>>,
}

#[derive(Debug, Default)]
struct Values {
    exact: Exact,
    patterns: Option<Box<Patterns>>,
}

#[derive(Debug, Default)]
struct Patterns {
    index: PatternIndex<Target>,
    /// What was inserted, to find the node of the same pattern again.
    nodes: HashMap<Pattern, NodeId>,
}

/// Where a pattern leads, and how specific it is.
#[derive(Clone, Copy, Debug)]
struct Target {
    node: NodeId,
    specificity: u32,
}

#[derive(Debug, Default)]
struct KeyGlobs {
    /// In the order of the file.
    list: Vec<KeyGlob>,
    /// The node of each, to find that of the same again.
    nodes: HashMap<(Glob, Pattern), NodeId>,
}

#[derive(Debug)]
struct KeyGlob {
    key: Glob,
    value: Pattern,
    number: u32,
    node: NodeId,
}

const _: () = assert!(size_of::<Node>() == 64);

impl Values {
    fn matching(&self, value: &str) -> Found<Target> {
        let mut found = Found::new();
        if let Some(patterns) = &self.patterns {
            patterns.index.find(value, &mut found);
        }
        found
    }
}

impl Default for Tree {
    fn default() -> Self {
        Self { nodes: vec![Node::default()], ends: vec![End::default()], hasher: WordsHasher::default(), patterns: 0 }
    }
}

impl Tree {
    /// At how many places a rule of these entries is put: one for each combination of values.
    pub(crate) fn combinations(entries: &[Entry]) -> usize {
        levels(entries).last().unwrap_or(1)
    }

    /// How many nodes lead there and are there, if no other rule shares them.
    pub(crate) fn nodes(entries: &[Entry]) -> usize {
        levels(entries).fold(0, usize::saturating_add)
    }

    /// Puts `rule` where `entries` lead. A rule of several values is put at each.
    pub(crate) fn insert(&mut self, entries: &[Entry], rule: RuleId, shape: u32) {
        let mut ends: SmallVec<[NodeId; 1]> = SmallVec::from_slice(&[ROOT]);
        for entry in entries {
            let mut next = SmallVec::new();
            for node in ends {
                for value in alternatives(&entry.value) {
                    next.push(self.child(node, &entry.key, &value));
                }
            }
            ends = next;
        }
        for end in ends {
            if let Some(end) = self.ends.get_mut(place(end)) {
                (end.rule, end.shape) = (Some(rule), shape);
            }
        }
    }

    #[inline(always)]
    fn node(&self, id: NodeId) -> &Node {
        &self.nodes[place(id)]
    }

    #[inline(always)]
    fn end(&self, id: NodeId) -> End {
        self.ends[place(id)]
    }

    fn child(&mut self, parent: NodeId, key: &KeyPattern, value: &Pattern) -> NodeId {
        let Some(new) = NodeId::new(self.nodes.len() as u32 + 1) else { return parent };
        let number = self.patterns;
        let Some(node) = self.nodes.get_mut(place(parent)) else { return parent };
        if let Some(end) = self.ends.get_mut(place(parent)) {
            end.leads_on = true;
        }
        let child = match key {
            KeyPattern::Glob(glob) => {
                let globs = node.key_globs.get_or_insert_default();
                let child = *globs.nodes.entry((glob.clone(), value.clone())).or_insert(new);
                if child == new {
                    self.patterns += 1;
                    globs.list.push(KeyGlob { key: glob.clone(), value: value.clone(), number, node: new });
                }
                child
            }
            KeyPattern::Exact(key) => {
                let values = node.keys.get_or_insert(key);
                match value {
                    Pattern::Any => *values.exact.any.get_or_insert(new),
                    Pattern::Exact(exact) => values.exact.get_or_insert(exact, new, &self.hasher),
                    pattern => {
                        let patterns = values.patterns.get_or_insert_default();
                        let child = *patterns.nodes.entry(pattern.clone()).or_insert(new);
                        if child == new {
                            self.patterns += 1;
                            let specificity = specificity(pattern);
                            patterns.index.insert(number, pattern, Target { node: new, specificity });
                        }
                        child
                    }
                }
            }
        };
        if child == new {
            self.nodes.push(Node::default());
            self.ends.push(End::default());
        }
        child
    }

    /// Whether there is no rule in it.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        matches!(&*self.ends, [root] if root.rule.is_none())
    }

    /// The rule that a descriptor finds.
    #[inline(always)]
    pub(crate) fn find(&self, entries: &[Attribute<'_>]) -> Option<RuleId> {
        if entries.is_empty() {
            return None;
        }
        let mut at = ROOT;
        for entry in entries {
            at = self.step(self.node(at), entry)?;
        }
        self.end(at).rule
    }

    /// Where one entry of a descriptor leads.
    #[inline(always)]
    fn step(&self, node: &Node, entry: &Attribute<'_>) -> Option<NodeId> {
        let values = node.keys.get(entry.0);
        if let Some(values) = values
            && let Some(exact) = values.exact.get(&entry.1, &self.hasher)
        {
            return Some(exact);
        }
        if (node.key_globs.is_some() || values.is_some_and(|values| values.patterns.is_some()))
            && let Some(first) = first_pattern(node, values, entry)
        {
            return Some(first);
        }
        values?.exact.any
    }
}

/// How many combinations there are of the values of the first entry, of the first two, and so on.
fn levels(entries: &[Entry]) -> impl Iterator<Item = usize> {
    fn count(pattern: &Pattern) -> usize {
        match pattern {
            Pattern::OneOf(values) => values.len(),
            Pattern::Networks(networks) => networks.len().max(1),
            Pattern::AnyOf(patterns) => patterns.iter().map(count).sum(),
            _ => 1,
        }
    }
    entries.iter().scan(1usize, |combinations, entry| {
        *combinations = combinations.saturating_mul(count(&entry.value));
        Some(*combinations)
    })
}

/// Where in a list that has something for each node.
#[inline(always)]
fn place(id: NodeId) -> usize {
    id.get() as usize - 1
}

/// Where the first pattern leads that an entry matches, in the order of the file.
#[inline(never)]
fn first_pattern(node: &Node, values: Option<&Values>, (key, value): &Attribute<'_>) -> Option<NodeId> {
    let found = values.map(|values| values.matching(value)).unwrap_or_default();
    let by_value = found.iter().map(|(number, target)| (*number, target.node));
    let globs = node.key_globs.iter().flat_map(|globs| &globs.list);
    let by_key = globs
        .filter(|known| known.key.matches(key) && known.value.matches(value))
        .map(|known| (known.number, known.node));
    by_value.chain(by_key).min().map(|(_, first)| first)
}

/// The patterns that a pattern is a list of.
fn alternatives(pattern: &Pattern) -> Vec<Cow<'_, Pattern>> {
    match pattern {
        Pattern::OneOf(values) => values.iter().map(|value| Cow::Owned(Pattern::Exact(value.clone()))).collect(),
        Pattern::Networks(networks) if networks.len() > 1 => {
            networks.iter().map(|network| Cow::Owned(Pattern::Networks([*network].into()))).collect()
        }
        Pattern::AnyOf(patterns) => patterns.iter().flat_map(alternatives).collect(),
        one => vec![Cow::Borrowed(one)],
    }
}

/// How much a pattern says, among those that a value matches.
fn specificity(pattern: &Pattern) -> u32 {
    match pattern {
        Pattern::Any => 0,
        Pattern::Not(_) => 1,
        Pattern::Glob(glob) => 2 + u32::try_from(glob.literal_bytes()).unwrap_or(u32::MAX - 1000),
        Pattern::Networks(networks) => {
            2 + networks.iter().map(|network| u32::from(network.length())).max().unwrap_or(0)
        }
        // Lists are taken apart before anyone asks.
        Pattern::Exact(_) | Pattern::OneOf(_) | Pattern::AnyOf(_) => u32::MAX,
    }
}
