//! The rules of one domain, as a tree of keys and values.
//!
//! Both ways to ask walk the same tree, and neither looks at rules that do not match: a level is a table of keys, a key a table of
//! exact values, an index of patterns and a default.
//!
//! - [`Tree::find`] follows one descriptor. At each entry it takes the exact value, else the first pattern in the order of the
//!   file, else the default; it never turns back.
//! - [`Tree::collect`] looks for all rules whose keys are among some attributes. Of rules with the same keys, in the same order, the
//!   most specific applies: at each key the exact value before patterns, patterns with more literal bytes or longer
//!   prefixes before others, and the default last.

use std::borrow::Cow;

use hashbrown::{HashMap, HashSet};
use smallvec::SmallVec;

use crate::by_name::{ByName, TextHasher, same};
use crate::check::Attribute;
use crate::exact::Exact;
use crate::index::{Found, PatternIndex};
use crate::model::{Entry, KeyPattern};
use crate::pattern::{Glob, Pattern};

/// A place in the tree.
pub(crate) type NodeId = u32;
/// A rule, by its number in the set.
pub(crate) type RuleId = u32;

const ROOT: NodeId = 0;
/// More attributes than this are freed of repeated keys first.
const MANY_ATTRIBUTES: usize = 16;

#[derive(Debug)]
pub(crate) struct Tree {
    nodes: Vec<Node>,
    /// Of each node what is needed where it is the last: close together, since there are as many as rules.
    ends: Vec<End>,
    /// Hashes the exact values of all keys.
    hasher: TextHasher,
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

#[derive(Debug, Default)]
struct Node {
    keys: ByName<Values>,
    key_globs: Vec<KeyGlob>,
}

#[derive(Debug, Default)]
struct Values {
    exact: Exact,
    patterns: Option<Box<Patterns>>,
    any: Option<NodeId>,
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

#[derive(Debug)]
struct KeyGlob {
    key: Glob,
    value: Pattern,
    number: u32,
    node: NodeId,
}

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
        Self { nodes: vec![Node::default()], ends: vec![End::default()], hasher: TextHasher::default(), patterns: 0 }
    }
}

impl Tree {
    /// At how many places a rule of these entries is put: one for each combination of values.
    pub(crate) fn combinations(entries: &[Entry]) -> usize {
        fn count(pattern: &Pattern) -> usize {
            match pattern {
                Pattern::OneOf(values) => values.len(),
                Pattern::Networks(networks) => networks.len().max(1),
                Pattern::AnyOf(patterns) => patterns.iter().map(count).sum(),
                _ => 1,
            }
        }
        entries.iter().map(|entry| count(&entry.value)).fold(1, usize::saturating_mul)
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
            if let Some(end) = self.ends.get_mut(end as usize) {
                (end.rule, end.shape) = (Some(rule), shape);
            }
        }
    }

    #[inline(always)]
    fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id as usize]
    }

    #[inline(always)]
    fn end(&self, id: NodeId) -> End {
        self.ends[id as usize]
    }

    fn child(&mut self, parent: NodeId, key: &KeyPattern, value: &Pattern) -> NodeId {
        let new = self.nodes.len() as NodeId;
        let number = self.patterns;
        let Some(node) = self.nodes.get_mut(parent as usize) else { return parent };
        if let Some(end) = self.ends.get_mut(parent as usize) {
            end.leads_on = true;
        }
        let child = match key {
            KeyPattern::Glob(glob) => {
                let known = node.key_globs.iter().find(|known| known.key == *glob && known.value == *value);
                match known.map(|known| known.node) {
                    Some(known) => known,
                    None => {
                        self.patterns += 1;
                        node.key_globs.push(KeyGlob { key: glob.clone(), value: value.clone(), number, node: new });
                        new
                    }
                }
            }
            KeyPattern::Exact(key) => {
                let values = node.keys.get_or_insert(key);
                match value {
                    Pattern::Any => *values.any.get_or_insert(new),
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
        for (key, value) in entries {
            at = self.step(self.node(at), key, value)?;
        }
        self.end(at).rule
    }

    /// Where one entry of a descriptor leads.
    #[inline(always)]
    fn step(&self, node: &Node, key: &str, value: &str) -> Option<NodeId> {
        let values = node.keys.get(key);
        if let Some(values) = values
            && !values.exact.is_empty()
            && let Some(exact) = values.exact.get(value, &self.hasher)
        {
            return Some(exact);
        }
        if (!node.key_globs.is_empty() || values.is_some_and(|values| values.patterns.is_some()))
            && let Some(first) = first_pattern(node, values, key, value)
        {
            return Some(first);
        }
        values?.any
    }

    /// Hands every rule that applies to `attributes` to `apply`, with those that its keys stand for, in the order of its keys.
    pub(crate) fn collect<'q>(&self, attributes: &[Attribute<'q>], apply: &mut impl FnMut(RuleId, &[Attribute<'q>])) {
        // Who gives very many is not to pay for it with their square.
        let distinct: Option<Vec<Attribute<'q>>> = (attributes.len() > MANY_ATTRIBUTES).then(|| {
            let mut known = HashSet::with_capacity(attributes.len());
            attributes.iter().filter(|(key, _)| known.insert(*key)).copied().collect()
        });
        let is_distinct = distinct.is_some();
        let attributes = distinct.as_deref().unwrap_or(attributes);
        let (shapes, path) = (SmallVec::new(), SmallVec::new());
        let mut walk = Walk { tree: self, attributes, is_distinct, shapes, path, apply };
        walk.visit(ROOT);
    }
}

/// Where the first pattern leads that an entry matches, in the order of the file.
#[inline(never)]
fn first_pattern(node: &Node, values: Option<&Values>, key: &str, value: &str) -> Option<NodeId> {
    let found = values.map(|values| values.matching(value)).unwrap_or_default();
    let by_value = found.iter().map(|(number, target)| (*number, target.node));
    let by_key = node
        .key_globs
        .iter()
        .filter(|known| known.key.matches(key) && known.value.matches(value))
        .map(|known| (known.number, known.node));
    by_value.chain(by_key).min().map(|(_, first)| first)
}

struct Walk<'t, 'q, F> {
    tree: &'t Tree,
    attributes: &'t [Attribute<'q>],
    /// Whether no key is there twice.
    is_distinct: bool,
    /// Those that have their rule.
    shapes: SmallVec<[u32; 8]>,
    path: SmallVec<[Attribute<'q>; 8]>,
    apply: F,
}

impl<'q, F: FnMut(RuleId, &[Attribute<'q>])> Walk<'_, 'q, F> {
    fn visit(&mut self, id: NodeId) {
        let end = self.tree.end(id);
        if let Some(rule) = end.rule
            && !self.shapes.contains(&end.shape)
        {
            self.shapes.push(end.shape);
            (self.apply)(rule, &self.path);
        }
        if !end.leads_on {
            return;
        }
        let node = self.tree.node(id);
        match &node.keys {
            ByName::Few(few) => {
                for (key, values) in few {
                    if let Some(attribute) = self.attributes.iter().find(|(known, _)| same(known, key)) {
                        self.visit_values(values, *attribute);
                    }
                }
            }
            ByName::Many(many) => {
                for attribute in first_of_each_key(self.attributes, self.is_distinct) {
                    if let Some(values) = many.get(attribute.0) {
                        self.visit_values(values, *attribute);
                    }
                }
            }
        }
        if !node.key_globs.is_empty() {
            self.visit_key_globs(&node.key_globs);
        }
    }

    /// What is below a pattern of keys does not depend on which key matched it, so one is enough: the first.
    fn visit_key_globs(&mut self, globs: &[KeyGlob]) {
        let attributes = self.attributes;
        let mut found: SmallVec<[(&KeyGlob, Attribute<'q>); 4]> = SmallVec::new();
        for known in globs {
            let matching = |(key, value): &&Attribute<'q>| known.key.matches(key) && known.value.matches(value);
            found.extend(
                first_of_each_key(attributes, self.is_distinct).find(matching).map(|attribute| (known, *attribute)),
            );
        }
        found.sort_by_key(|(known, _)| (std::cmp::Reverse(specificity(&known.value)), known.number));
        for (known, attribute) in found {
            self.descend(known.node, attribute);
        }
    }

    fn visit_values(&mut self, values: &Values, attribute: Attribute<'q>) {
        if !values.exact.is_empty()
            && let Some(exact) = values.exact.get(attribute.1, &self.tree.hasher)
        {
            self.descend(exact, attribute);
        }
        if values.patterns.is_some() {
            let mut found = values.matching(attribute.1);
            found.sort_by_key(|(number, target)| (std::cmp::Reverse(target.specificity), *number));
            for (_, target) in found {
                self.descend(target.node, attribute);
            }
        }
        if let Some(any) = values.any {
            self.descend(any, attribute);
        }
    }

    fn descend(&mut self, node: NodeId, attribute: Attribute<'q>) {
        self.path.push(attribute);
        self.visit(node);
        self.path.pop();
    }
}

/// Of a key that is given twice, the first counts.
fn first_of_each_key<'a, 'q>(
    attributes: &'a [Attribute<'q>],
    is_distinct: bool,
) -> impl Iterator<Item = &'a Attribute<'q>> {
    let is_first =
        move |at: usize, key: &str| is_distinct || !attributes.iter().take(at).any(|(earlier, _)| *earlier == key);
    attributes.iter().enumerate().filter(move |(at, (key, _))| is_first(*at, key)).map(|(_, attribute)| attribute)
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
