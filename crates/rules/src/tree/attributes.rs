//! All rules of a tree that apply to some attributes, whatever their order.
//!
//! Mostly that is one rule, and the way to it does not fork: [`Tree::only`] goes it in a fraction of the time that
//! looking for all takes. What is not so simple is left to [`Tree::collect`].

use std::cmp::Reverse;
use std::sync::Arc;

use hashbrown::HashSet;
use smallvec::SmallVec;

use super::{KeyGlob, Node, NodeId, ROOT, RuleId, Target, Tree, Values, specificity};
use crate::by_name::{ByName, same};
use crate::check::Attribute;
use crate::index::Found;

/// More attributes than this are freed of repeated keys first.
const MANY_ATTRIBUTES: usize = 16;

/// What leads to a rule, with room for as many keys as most have.
pub(crate) type Path<'a, 'q> = [&'a Attribute<'q>; 4];

/// It takes [`Tree::collect`] to find what applies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NotStraight;

impl Tree {
    /// The only rule that applies to `attributes`, and how many of `path` lead to it, where all that it takes is to go
    /// straight on. What it finds is what [`Self::collect`] would.
    #[inline(always)]
    pub(crate) fn only<'a, 'q>(
        &self,
        attributes: &'a [Attribute<'q>],
        path: &mut Path<'a, 'q>,
    ) -> Result<Option<(RuleId, u32)>, NotStraight> {
        let mut at = ROOT;
        for depth in 0.. {
            let end = self.end(at);
            let way = if end.leads_on { self.only_way(self.node(at), attributes)? } else { None };
            let Some((next, attribute)) = way else { return Ok(end.rule.map(|rule| (rule, depth))) };
            match path.get_mut(depth as usize) {
                Some(place) if end.rule.is_none() => *place = attribute,
                _ => break,
            }
            at = next;
        }
        Err(NotStraight)
    }

    /// What is below `node`, if there is one way on at most, and by which attribute.
    #[inline(always)]
    fn only_way<'a, 'q>(
        &self,
        node: &Node,
        attributes: &'a [Attribute<'q>],
    ) -> Result<Option<(NodeId, &'a Attribute<'q>)>, NotStraight> {
        let given = match &node.keys {
            ByName::One((key, values)) => attribute_of(key, attributes).map(|attribute| (values, attribute)),
            ByName::Few(few) => only_given(few, attributes)?,
            ByName::Many(_) => return Err(NotStraight),
        };
        if node.key_globs.is_some() {
            return Err(NotStraight);
        }
        let Some((Values { exact, patterns }, attribute)) = given else { return Ok(None) };
        if patterns.is_some() {
            return Err(NotStraight);
        }
        match (exact.get(&attribute.1, &self.hasher), exact.any) {
            (Some(next), None) | (None, Some(next)) => Ok(Some((next, attribute))),
            (None, None) => Ok(None),
            (Some(_), Some(_)) => Err(NotStraight),
        }
    }

    /// Hands every rule that applies to `attributes` to `apply`, with those that its keys stand for, in the order of
    /// its keys.
    #[inline]
    pub(crate) fn collect<'q>(&self, attributes: &[Attribute<'q>], apply: impl FnMut(RuleId, &[&Attribute<'q>])) {
        if attributes.len() <= MANY_ATTRIBUTES {
            return Walk { tree: self, attributes, is_distinct: false }.all(apply);
        }
        // Who gives very many is not to pay for it with their square.
        let mut known = HashSet::with_capacity(attributes.len());
        let distinct: Vec<_> = attributes.iter().filter(|(key, _)| known.insert(*key)).copied().collect();
        Walk { tree: self, attributes: &distinct, is_distinct: true }.all(apply);
    }
}

/// The one of some keys that is given, with what it leads to and its attribute.
#[inline(never)]
fn only_given<'t, 'a, 'q>(
    keys: &'t [(Arc<str>, Values)],
    attributes: &'a [Attribute<'q>],
) -> Result<Option<(&'t Values, &'a Attribute<'q>)>, NotStraight> {
    let mut given = keys.iter().filter_map(|(key, values)| Some((values, attribute_of(key, attributes)?)));
    let first = given.next();
    if given.next().is_some() { Err(NotStraight) } else { Ok(first) }
}

/// Of a key that is given twice, the first counts.
#[inline(always)]
fn attribute_of<'a, 'q>(key: &str, attributes: &'a [Attribute<'q>]) -> Option<&'a Attribute<'q>> {
    attributes.iter().find(|(known, _)| same(known, key))
}

/// A walk to all nodes that attributes lead to, in the order in which their rules come before others of the same keys.
struct Walk<'t, 'q> {
    tree: &'t Tree,
    attributes: &'t [Attribute<'q>],
    /// Whether no key is there twice.
    is_distinct: bool,
}

impl<'t, 'q> Walk<'t, 'q> {
    #[inline(never)]
    fn all(&self, mut apply: impl FnMut(RuleId, &[&Attribute<'q>])) {
        // Those that have their rule.
        let mut shapes: SmallVec<[u32; 8]> = SmallVec::new();
        let mut path: SmallVec<[&Attribute<'q>; 8]> = SmallVec::new();
        // Nodes that are left for later, the next one last, and how long the path is from which they branch off.
        let mut left: SmallVec<[(usize, NodeId, &Attribute<'q>); 4]> = SmallVec::new();
        let mut at = ROOT;
        loop {
            let end = self.tree.end(at);
            if let Some(rule) = end.rule
                && shapes.iter().all(|known| *known != end.shape)
            {
                shapes.push(end.shape);
                apply(rule, &path);
            }
            let mut next = None;
            if end.leads_on {
                let before = left.len();
                // Mostly there is one way on, and nothing is left for later.
                self.ways(self.tree.node(at), |node, attribute| match next {
                    None => next = Some((node, attribute)),
                    Some(_) => left.push((path.len(), node, attribute)),
                });
                if left.len() > before {
                    left[before..].reverse();
                }
            }
            let (node, attribute) = match next {
                Some(next) => next,
                None => {
                    let Some((depth, node, attribute)) = left.pop() else { return };
                    path.truncate(depth);
                    (node, attribute)
                }
            };
            path.push(attribute);
            at = node;
        }
    }

    /// Hands on what is below `node`, and by which attribute, in the order in which it is to be visited.
    #[inline(always)]
    fn ways(&self, node: &'t Node, mut add: impl FnMut(NodeId, &'t Attribute<'q>)) {
        for (key, values) in node.keys.few() {
            if let Some(attribute) = attribute_of(key, self.attributes) {
                self.ways_by_value(values, attribute, &mut add);
            }
        }
        if let ByName::Many(many) = &node.keys {
            for attribute in first_of_each_key(self.attributes, self.is_distinct) {
                if let Some(values) = many.get(attribute.0) {
                    self.ways_by_value(values, attribute, &mut add);
                }
            }
        }
        if let Some(globs) = &node.key_globs {
            self.by_key_globs(&globs.list).into_iter().for_each(|(known, attribute)| add(known.node, attribute));
        }
    }

    #[inline(always)]
    fn ways_by_value(
        &self,
        values: &'t Values,
        attribute: &'t Attribute<'q>,
        add: &mut impl FnMut(NodeId, &'t Attribute<'q>),
    ) {
        if let Some(exact) = values.exact.get(&attribute.1, &self.tree.hasher) {
            add(exact, attribute);
        }
        if values.patterns.is_some() {
            values.by_specificity(attribute.1).into_iter().for_each(|(_, target)| add(target.node, attribute));
        }
        if let Some(any) = values.exact.any {
            add(any, attribute);
        }
    }

    /// What is below a pattern of keys does not depend on which key matched it, so one is enough: the first.
    #[inline(never)]
    fn by_key_globs(&self, globs: &'t [KeyGlob]) -> SmallVec<[(&'t KeyGlob, &'t Attribute<'q>); 4]> {
        let mut found = SmallVec::new();
        for known in globs {
            let matching = |(key, value): &&Attribute<'q>| known.key.matches(key) && known.value.matches(value);
            let first = first_of_each_key(self.attributes, self.is_distinct).find(matching);
            found.extend(first.map(|attribute| (known, attribute)));
        }
        found.sort_by_key(|(known, _): &(&KeyGlob, _)| (Reverse(specificity(&known.value)), known.number));
        found
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

impl Values {
    /// The patterns that a value matches, the most specific first.
    #[inline(never)]
    fn by_specificity(&self, value: &str) -> Found<Target> {
        let mut found = self.matching(value);
        found.sort_by_key(|(number, target)| (Reverse(target.specificity), *number));
        found
    }
}
