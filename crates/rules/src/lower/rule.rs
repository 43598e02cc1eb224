//! tollgate's own flat rules: when, per what, how much.

use std::sync::Arc;

use hashbrown::HashMap;

use super::Lowering;
use super::name::made_up;
use super::pattern::Reading;
use super::root::File;
use crate::diagnostic::Diagnostic;
use crate::grammar::{PerFields, RuleFields};
use crate::model::{Counted, Entry, KeyPattern, Rule};
use crate::pattern::Pattern;
use crate::yaml::{Kind, Node};

impl Lowering<'_> {
    pub(super) fn rule(&mut self, node: &Node, file: &File) {
        if self.is_full {
            return;
        }
        let before = self.errors;
        let Some(fields) = self.fields::<RuleFields<'_>>(node) else { return };
        if fields.policy.limits.is_none() {
            let help = "write how much, such as `limits: 5/s`, or `limits: unlimited` to exempt what it matches";
            self.missing(before, node, "this rule has no `limits`", help);
        }
        let policy = &fields.policy;
        let settings = self.settings(&policy.settings, file.defaults);
        let conditions = fields.when.and_then(|when| self.conditions(when.value, Reading::WHEN)).unwrap_or_default();
        let mut entries: Vec<Entry> = Vec::with_capacity(conditions.len());
        for (_, condition) in conditions {
            let key = KeyPattern::Exact(condition.key);
            entries.push(Entry { key, value: condition.value, counted: Counted::Together, value_to_metric: false });
        }
        if let Some(per) = fields.per {
            self.per(per.value, &mut entries);
        }
        let unless = self.unless(policy.unless, &entries, &file.exempt);
        let name = policy.name.and_then(|name| self.text(name.value)).filter(|name| !name.is_empty());
        let limits = policy.limits.and_then(|limits| self.limits(limits.value, settings));
        if self.errors > before || file.domain.is_empty() {
            return;
        }
        let Some(limits) = limits else { return };
        let name = match name {
            Some(name) => name.into(),
            None => made_up(&file.domain, &entries).into(),
        };
        self.keep(Rule {
            domain: file.domain.clone(),
            name,
            span: policy.name.map_or(node.spot(), |name| name.value.span),
            entries,
            unless,
            exempt: Arc::clone(&file.exempt),
            limits,
            mode: settings.mode,
            priority: settings.priority,
            consistency: settings.consistency,
            on_store_failure: settings.on_store_failure,
            quota_mode: false,
            detailed_metric: false,
            metadata: None,
        });
    }

    /// The keys whose values are counted apart: those of conditions keep their place, others follow.
    fn per<'a>(&mut self, node: &'a Node, entries: &mut Vec<Entry>) {
        let items = self.one_or_more(node);
        if items.is_empty() {
            self.error("empty-key", node.span, "this list of keys is empty", "remove `per` to count all together");
        }
        let places: HashMap<_, usize> = entries.iter().map(|entry| entry.key.clone()).zip(0..).collect();
        let mut seen: HashMap<&'a str, &'a Node> = HashMap::new();
        for item in items {
            let Some((key_node, key, counted)) = self.counted_key(item) else { continue };
            if let Some(first) = seen.insert(key, key_node) {
                let message = format!("`{key}` is counted by twice");
                let again = Diagnostic::error("duplicate-field", key_node.span, message);
                self.say(again.related(first.span, "first here").help("remove one of them"));
                continue;
            }
            let key = KeyPattern::Exact(self.key(key));
            match places.get(&key).and_then(|place| entries.get_mut(*place)) {
                Some(entry) => entry.counted = counted,
                None => entries.push(Entry { key, value: Pattern::Any, counted, value_to_metric: false }),
            }
        }
    }

    /// `user_id`, `ip/64`, or `{key: ip, v4: 24, v6: 56}`.
    fn counted_key<'a>(&mut self, node: &'a Node) -> Option<(&'a Node, &'a str, Counted)> {
        if !matches!(node.kind(), Kind::Map(_)) {
            let text = self.plain_key(node)?;
            let Some((key, bits)) = text.rsplit_once('/').filter(|(_, bits)| is_number(bits)) else {
                return Some((node, text, Counted::ByValue));
            };
            return match bits.parse::<u8>().ok().filter(|bits| *bits <= 128 && !key.is_empty()) {
                Some(v6) => Some((node, key, Counted::ByNetwork { v4: 32, v6 })),
                None => {
                    let message = format!("`{text}` does not name a key and a number of bits up to 128");
                    self.error("network", node.span, message, "write `ip/64`, or `{key: ip, v4: 24, v6: 56}`");
                    None
                }
            };
        }
        let fields: PerFields<'_> = self.fields(node)?;
        let Some(key) = fields.key else {
            self.error(
                "empty-key",
                node.spot(),
                "there is no key here",
                "write which one, such as `{key: ip, v6: 64}`",
            );
            return None;
        };
        let name = self.plain_key(key.value)?;
        let mut bits = |slot, most: u8| {
            let bits = self.or(slot, u64::from(most), |this, node| this.integer(node, 0, most.into()));
            u8::try_from(bits).unwrap_or(most)
        };
        let (v4, v6) = (bits(fields.v4, 32), bits(fields.v6, 128));
        if fields.v4.is_none() && fields.v6.is_none() {
            return Some((key.value, name, Counted::ByValue));
        }
        Some((key.value, name, Counted::ByNetwork { v4, v6 }))
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}
