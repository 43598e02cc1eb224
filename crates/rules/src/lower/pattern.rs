//! What a rule says about values: patterns, and the conditions made of them.

use hashbrown::HashMap;

use super::Lowering;
use super::fields::is_merge;
use crate::grammar::{Dialect, Fields, PatternFields, Written};
use crate::model::Condition;
use crate::nearest::one_of;
use crate::pattern::{Glob, Network, Pattern};
use crate::yaml::{Kind, Node};

/// What text that looks like an address is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Addresses {
    /// Text: in the tree of descriptors, as upstream has it.
    AreText,
    /// A network: in conditions.
    AreNetworks,
}

impl Lowering<'_> {
    /// What `node` says about a value.
    pub(super) fn pattern(&mut self, node: &Node, addresses: Addresses) -> Option<Pattern> {
        match node.kind() {
            Kind::List(items) => {
                self.nonempty_list(node, items)?;
                let patterns: Vec<Option<Pattern>> = items
                    .iter()
                    .map(|item| match item.kind() {
                        Kind::List(_) => {
                            self.wrong_type(item, "text or a mapping");
                            None
                        }
                        _ => self.pattern(item, addresses),
                    })
                    .collect();
                patterns.into_iter().collect::<Option<Vec<Pattern>>>().map(any_of)
            }
            Kind::Map(_) => self.pattern_in_detail(node, addresses),
            _ if node.is_null() => {
                let help = "write `\"*\"` for any value and `\"\"` for the empty one";
                self.error("empty-pattern", node.span, "there is no value here", help);
                None
            }
            _ => {
                let text = self.text(node)?;
                self.text_pattern(node, text, addresses)
            }
        }
    }

    fn text_pattern(&mut self, node: &Node, text: &str, addresses: Addresses) -> Option<Pattern> {
        if let Some(glob) = Glob::parse(text) {
            // Among descriptors, a star comes before the key alone; conditions know no such order.
            let is_any = text == "*" && addresses == Addresses::AreNetworks;
            return Some(if is_any { Pattern::Any } else { Pattern::Glob(glob) });
        }
        if addresses == Addresses::AreNetworks {
            if let Some(network) = Network::parse(text) {
                return Some(Pattern::Networks([network].into()));
            }
            if is_nearly_a_network(text) {
                let help = format!("write a network such as `10.0.0.0/8`, or `{{is: \"{text}\"}}` for that very text");
                self.error("network", node.span, format!("`{text}` is not a network"), help);
                return None;
            }
        }
        Some(Pattern::Exact(text.into()))
    }

    fn pattern_in_detail(&mut self, node: &Node, addresses: Addresses) -> Option<Pattern> {
        let before = self.errors;
        let fields: PatternFields<'_> = self.fields(node)?;
        let written = fields.written();
        let [(field, Written { value, .. })] = written.as_slice() else {
            let names = one_of(PatternFields::place().fields().map(|field| field.name));
            let message = format!("a pattern has one field: {names}");
            let help =
                if written.is_empty() { "write one of them" } else { "write a list of patterns for any of several" };
            if let [_, (_, second), ..] = written.as_slice() {
                self.error("pattern", second.key.span, message, help);
            } else {
                self.missing(before, node, &message, help);
            }
            return None;
        };
        if fields.not.is_some() {
            return self.pattern(value, addresses).map(|pattern| Pattern::Not(pattern.into()));
        }
        let mut patterns = Vec::new();
        let items = self.one_or_more(value);
        self.nonempty_list(value, items)?;
        for item in items {
            let Some(text) = self.text(item) else { continue };
            patterns.push(if fields.is.is_some() {
                Pattern::Exact(text.into())
            } else if fields.prefix.is_some() {
                Pattern::Glob(Glob::prefix(text))
            } else if let Some(network) = Network::parse(text) {
                Pattern::Networks([network].into())
            } else {
                let message = format!("{} is not a network", item.describe());
                let help =
                    format!("`{}` takes networks and addresses such as `10.0.0.0/8` or `2001:db8::1`", field.name);
                self.error("network", item.span, message, help);
                continue;
            });
        }
        (self.errors == before).then(|| any_of(patterns))
    }

    fn nonempty_list(&mut self, node: &Node, items: &[Node]) -> Option<()> {
        if items.is_empty() {
            self.error(
                "empty-pattern",
                node.span,
                "an empty list matches nothing",
                "write at least one item, or `\"*\"`",
            );
            return None;
        }
        Some(())
    }

    /// Keys with patterns, in the order written; merged ones last.
    pub(super) fn conditions<'a>(&mut self, node: &'a Node) -> Option<Vec<(&'a Node, Condition)>> {
        let before = self.errors;
        let mut found = Vec::new();
        let mut first: HashMap<&'a str, &'a Node> = HashMap::new();
        self.add_conditions(node, &mut found, &mut first, false)?;
        if found.is_empty() && self.errors == before {
            let help = "write a key and a value, such as `{plan: free}`";
            self.error("empty-pattern", node.spot(), "there are no conditions here, so it would always hold", help);
        }
        (self.errors == before).then_some(found)
    }

    fn add_conditions<'a>(
        &mut self,
        node: &'a Node,
        found: &mut Vec<(&'a Node, Condition)>,
        first: &mut HashMap<&'a str, &'a Node>,
        merged: bool,
    ) -> Option<()> {
        let Kind::Map(items) = node.kind() else {
            self.wrong_type(node, "keys with values, such as `{plan: free}`");
            return None;
        };
        for (key, value) in items.iter().filter(|(key, _)| !is_merge(key)) {
            let Some(name) = self.plain_key(key) else { continue };
            match first.get(name) {
                Some(_) if merged => continue,
                Some(other) => self.twice(Dialect::Own, key, other),
                None => {
                    first.insert(name, key);
                }
            }
            if let Some(value) = self.pattern(value, Addresses::AreNetworks) {
                found.push((key, Condition { key: self.key(name), value }));
            }
        }
        for (_, value) in items.iter().filter(|(key, _)| is_merge(key)) {
            for map in self.one_or_more(value) {
                self.add_conditions(map, found, first, true)?;
            }
        }
        Some(())
    }

    /// A key outside the tree of descriptors, where it has no pattern.
    pub(super) fn plain_key<'a>(&mut self, node: &'a Node) -> Option<&'a str> {
        let text = self.text(node)?;
        if text.is_empty() || node.is_null() {
            self.error("empty-key", node.span, "there is no key here", "write the name of a key, such as `user_id`");
            return None;
        }
        if text.contains('*') {
            let help = "name the keys one by one, or write the rule as a descriptor, whose `key` may have a `*`";
            self.error("key-pattern", node.span, "keys have no patterns here", help);
            return None;
        }
        Some(text)
    }

    /// Groups of conditions: one mapping, or a list of them.
    pub(super) fn groups(&mut self, node: &Node) -> Vec<Vec<Condition>> {
        let items = self.one_or_more(node);
        items.iter().filter_map(|item| self.conditions(item)).map(without_nodes).collect()
    }
}

fn without_nodes(conditions: Vec<(&Node, Condition)>) -> Vec<Condition> {
    conditions.into_iter().map(|(_, condition)| condition).collect()
}

/// Texts and networks are gathered, so that many of them are looked up and not tried one by one.
fn any_of(mut patterns: Vec<Pattern>) -> Pattern {
    if patterns.len() == 1
        && let Some(only) = patterns.pop()
    {
        return only;
    }
    let (mut texts, mut networks, mut others) = (Vec::new(), Vec::new(), Vec::new());
    for pattern in patterns {
        match pattern {
            Pattern::Exact(text) => texts.push(text),
            Pattern::OneOf(list) => texts.extend(list),
            Pattern::Networks(list) => networks.extend(list),
            Pattern::AnyOf(list) => others.extend(list),
            other => others.push(other),
        }
    }
    match texts.len() {
        0 => {}
        1 => others.extend(texts.pop().map(Pattern::Exact)),
        _ => others.push(Pattern::OneOf(texts.into())),
    }
    if !networks.is_empty() {
        others.push(Pattern::Networks(networks.into()));
    }
    match others.len() {
        1 => others.pop().unwrap_or(Pattern::Any),
        _ => Pattern::AnyOf(others.into()),
    }
}

/// An address or a network with a mistake in it, such as `10.0.0/8` or `10.0.0.0/33`.
fn is_nearly_a_network(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else { return false };
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let looks_like_v4 = address.contains('.') && address.split('.').all(is_number);
    let looks_like_v6 = address.contains(':') && address.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b':');
    is_number(length) && (looks_like_v4 || looks_like_v6)
}
