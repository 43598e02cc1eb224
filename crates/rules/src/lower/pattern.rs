//! What a rule says about values: patterns, and the conditions made of them.

use hashbrown::HashMap;

use super::Lowering;
use super::exceptions::{and_more, short};
use super::fields::is_merge;
use crate::diagnostic::Diagnostic;
use crate::grammar::{Dialect, Fields, PatternFields, Written};
use crate::lint::Listed;
use crate::model::Condition;
use crate::nearest::one_of;
use crate::pattern::{Glob, Network, Pattern};
use crate::yaml::{Kind, Node};

/// How values are to be read.
#[derive(Clone, Copy)]
pub(super) struct Reading {
    /// Whether text that looks like an address is a network. In the tree of descriptors it is text, as upstream has it.
    networks: bool,
    /// Whether rules compete by how much their values say: then a narrow value beside a wide one means something.
    ranked: bool,
}

impl Reading {
    /// In the tree of descriptors.
    pub(super) const DESCRIPTOR: Self = Self { networks: false, ranked: true };
    /// What a rule is for.
    pub(super) const WHEN: Self = Self { networks: true, ranked: true };
    /// What it is not for.
    pub(super) const EXCEPTION: Self = Self { networks: true, ranked: false };
}

impl Lowering<'_> {
    /// What `node` says about a value.
    pub(super) fn pattern(&mut self, node: &Node, reading: Reading) -> Option<Pattern> {
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
                        _ => self.pattern(item, reading),
                    })
                    .collect();
                let patterns: Vec<Pattern> = patterns.into_iter().collect::<Option<_>>()?;
                self.listed_twice(items, &patterns, reading);
                Some(Pattern::any_of(patterns))
            }
            Kind::Map(_) => self.pattern_in_detail(node, reading),
            _ if node.is_null() => {
                let help = "write `\"*\"` for any value and `\"\"` for the empty one";
                self.error("empty-pattern", node.span, "there is no value here", help);
                None
            }
            _ => {
                let text = self.text(node)?;
                self.text_pattern(node, text, reading)
            }
        }
    }

    fn text_pattern(&mut self, node: &Node, text: &str, reading: Reading) -> Option<Pattern> {
        if let Some(glob) = Glob::parse(text) {
            // Among descriptors, a star comes before the key alone; conditions know no such order.
            let is_any = text == "*" && reading.networks;
            return Some(if is_any { Pattern::Any } else { Pattern::Glob(glob) });
        }
        if reading.networks {
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

    fn pattern_in_detail(&mut self, node: &Node, reading: Reading) -> Option<Pattern> {
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
            let reading = Reading { ranked: false, ..reading };
            return self.pattern(value, reading).map(|pattern| Pattern::Not(pattern.into()));
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
        if self.errors > before {
            return None;
        }
        self.listed_twice(items, &patterns, reading);
        Some(Pattern::any_of(patterns))
    }

    /// Items of a list that say nothing new, each with its pattern.
    fn listed_twice(&mut self, items: &[Node], patterns: &[Pattern], reading: Reading) {
        if patterns.len() < 2 {
            return;
        }
        let listed = Listed::new(patterns.iter());
        let mut found = Vec::new();
        for (at, pattern) in patterns.iter().enumerate() {
            let other = match reading.ranked {
                true => listed.equal(at, pattern, self.work),
                false => listed.covering(at, pattern, self.work),
            };
            found.extend(other.map(|other| (at, other)));
        }
        // Long lists come from elsewhere and repeat themselves: one is shown for all.
        let Some((at, other)) = found.first().copied() else { return };
        let (Some(item), Some(pattern)) = (items.get(at), patterns.get(at)) else { return };
        let (Some(there), Some(other)) = (items.get(other), patterns.get(other)) else { return };
        let shown = short(&pattern.to_string());
        let message = match other == pattern {
            true => format!("`{shown}` is listed twice"),
            false => format!("`{shown}` says nothing new: `{}` has all of it", short(&other.to_string())),
        };
        let message = message + &and_more(found.len());
        let warning = Diagnostic::warning("listed-twice", item.spot(), message).related(there.spot(), "listed here");
        self.say(warning.help("leave it out"));
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
    pub(super) fn conditions<'a>(&mut self, node: &'a Node, reading: Reading) -> Option<Vec<(&'a Node, Condition)>> {
        let before = self.errors;
        let mut found = Vec::new();
        let mut first: HashMap<&'a str, &'a Node> = HashMap::new();
        self.add_conditions(node, reading, &mut found, &mut first, false)?;
        if found.is_empty() && self.errors == before {
            let help = "write a key and a value, such as `{plan: free}`";
            self.error("empty-pattern", node.spot(), "there are no conditions here, so it would always hold", help);
        }
        (self.errors == before).then_some(found)
    }

    fn add_conditions<'a>(
        &mut self,
        node: &'a Node,
        reading: Reading,
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
            if let Some(value) = self.pattern(value, reading) {
                found.push((key, Condition { key: self.key(name), value }));
            }
        }
        for (_, value) in items.iter().filter(|(key, _)| is_merge(key)) {
            for map in self.one_or_more(value) {
                self.add_conditions(map, reading, found, first, true)?;
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
}

/// An address or a network with a mistake in it, such as `10.0.0/8` or `10.0.0.0/33`.
fn is_nearly_a_network(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else { return false };
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let looks_like_v4 = address.contains('.') && address.split('.').all(is_number);
    let looks_like_v6 = address.contains(':') && address.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b':');
    is_number(length) && (looks_like_v4 || looks_like_v6)
}
