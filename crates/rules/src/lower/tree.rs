//! Rules as a tree of descriptors, for both dialects.
//!
//! Each node with limits is a rule whose entries are the way to it; so is each leaf without, which exempts what it
//! matches. What a node says about its limits does not pass to the nodes below, as upstream has it.

use std::borrow::Cow;
use std::sync::Arc;

use hashbrown::HashMap;

use super::Lowering;
use super::name::made_up;
use super::pattern::Reading;
use super::root::File;
use super::settings::Settings;
use crate::diagnostic::{Diagnostic, Span};
use crate::grammar::{DescriptorFields, Fields, Slot};
use crate::model::{Counted, Entry, KeyPattern, Limits, Mode, Rule};
use crate::pattern::{Glob, Pattern};
use crate::yaml::{Kind, Node};

/// The way from the root to where we are.
struct Way {
    entries: Vec<Entry>,
    /// The domain and the entries, dotted: what upstream calls a rule in its metrics.
    name: String,
    /// Whether every node on it could be read. Below one that could not, problems are told and nothing is kept.
    sound: bool,
}

/// Siblings that are the same: their key, whether the value is text, and the value.
type Siblings<'a> = HashMap<(&'a str, bool, Cow<'a, str>), Span>;

/// Appends a key and its pattern to a name, as upstream does: different entries may have one name.
fn push_name(name: &mut String, entry: &Entry) {
    name.push('.');
    match &entry.key {
        KeyPattern::Exact(key) => name.push_str(key),
        KeyPattern::Glob(key) => name.push_str(&key.to_string()),
    }
    match &entry.value {
        Pattern::Any => {}
        Pattern::Exact(value) => {
            name.push('_');
            name.push_str(value);
        }
        value => {
            name.push('_');
            name.push_str(&value.to_string());
        }
    }
}

impl Lowering<'_> {
    pub(super) fn tree(&mut self, node: &Node, file: &File) {
        let mut way = Way { entries: Vec::new(), name: file.domain.to_string(), sound: !file.domain.is_empty() };
        self.siblings(node, file, &mut way);
    }

    fn siblings(&mut self, node: &Node, file: &File, way: &mut Way) {
        let nodes = self.list(node);
        let mut seen = Siblings::new();
        for node in nodes {
            if self.is_full {
                return;
            }
            self.descriptor(node, file, way, if nodes.len() > 1 { Some(&mut seen) } else { None });
        }
    }

    fn descriptor<'a>(&mut self, node: &'a Node, file: &File, way: &mut Way, seen: Option<&mut Siblings<'a>>) {
        let before = self.errors;
        let Some(fields) = self.fields::<DescriptorFields<'_>>(node) else { return };
        let (length, was_sound) = (way.name.len(), way.sound);
        let entry = self.entry(node, &fields);
        way.sound &= entry.is_some();
        if let Some(entry) = entry {
            push_name(&mut way.name, &entry);
            way.entries.push(entry);
            if let Some(seen) = seen {
                self.not_twice(&fields, way, seen);
            }
            self.shared_counter(&fields, way);
        }
        self.node_rule(node, &fields, file, way, before);
        if let Some(children) = fields.descriptors {
            self.siblings(children.value, file, way);
        }
        if way.sound {
            way.entries.pop();
        }
        way.sound = was_sound;
        way.name.truncate(length);
    }

    fn entry(&mut self, node: &Node, fields: &DescriptorFields<'_>) -> Option<Entry> {
        let value = match fields.value {
            Some(value) if value.value.text() != Some("") => self.pattern(value.value, Reading::DESCRIPTOR),
            _ => Some(Pattern::Any),
        };
        let counted = if self.is_set(fields.share_threshold) { Counted::Together } else { Counted::ByValue };
        let value_to_metric = self.is_set(fields.value_to_metric);
        let key = match fields.key {
            Some(key) => self.text(key.value)?,
            None => "",
        };
        if key.is_empty() {
            let place = fields.key.map_or(node.spot(), |key| key.value.span);
            self.error(
                "empty-key",
                place,
                "descriptor has empty key",
                "write which key it is for, such as `key: user_id`",
            );
            return None;
        }
        let key = match Glob::parse(key) {
            Some(glob) => KeyPattern::Glob(glob),
            None => KeyPattern::Exact(self.key(key)),
        };
        Some(Entry { key, value: value?, counted, value_to_metric })
    }

    fn not_twice<'a>(&mut self, fields: &DescriptorFields<'a>, way: &Way, seen: &mut Siblings<'a>) {
        let (Some(key), Some(entry)) = (fields.key, way.entries.last()) else { return };
        let (is_text, value) = match fields.value.map(|value| value.value) {
            Some(value) => match value.text() {
                Some(text) => (true, Cow::Borrowed(text)),
                None => (false, Cow::Owned(entry.value.to_string())),
            },
            None => (true, Cow::Borrowed("")),
        };
        let place = fields.value.map_or(key.value.span, |value| value.value.spot());
        if let Some(first) = seen.insert((key.value.text().unwrap_or_default(), is_text, value), place) {
            let message = format!("duplicate descriptor composite key '{}'", way.name);
            let help = "remove one of them; several limits for one descriptor are a list: `limits: [5/s, 100/h]`";
            self.say(Diagnostic::error("duplicate-descriptor", place, message).related(first, "first here").help(help));
        }
    }

    fn shared_counter(&mut self, fields: &DescriptorFields<'_>, way: &Way) {
        let (Some(written), Some(entry)) = (fields.share_threshold, way.entries.last()) else { return };
        let is_one =
            matches!(entry.key, KeyPattern::Exact(_)) && matches!(entry.value, Pattern::Exact(_) | Pattern::Any);
        if entry.counted == Counted::Together && is_one {
            let mut found = String::new();
            push_name(&mut found, entry);
            let message = format!(
                "share_threshold can only be used with wildcard values (containing '*'), but found key '{}'",
                found.trim_start_matches('.')
            );
            self.error(
                "share-threshold",
                written.key.span,
                message,
                "put a `*` into the value, or remove `share_threshold`",
            );
        }
    }

    /// The rule that ends at this node, if one does.
    fn node_rule(&mut self, node: &Node, fields: &DescriptorFields<'_>, file: &File, way: &Way, before: usize) {
        let policy = &fields.policy;
        let settings = self.settings(&policy.settings, file.defaults);
        let shadow = self.is_set(fields.shadow_mode);
        let quota_mode = self.is_set(fields.quota_mode);
        let detailed_metric = self.is_set(fields.detailed_metric);
        let metadata = fields.metadata.and_then(|metadata| self.metadata(metadata.value));
        let unless = self.unless(policy.unless, &way.entries, &file.exempt);
        let name = policy.name.and_then(|name| self.text(name.value)).filter(|name| !name.is_empty());
        if let (Some(mode), Some(shadow)) = (policy.settings.mode, fields.shadow_mode) {
            self.exclusive(mode, shadow, "they say the same", "write one of them");
        }
        let limits = match (fields.rate_limit, policy.limits) {
            (Some(lyft), Some(own)) => {
                let help = "write `limits` only, with all of them in a list";
                self.exclusive(lyft, own, "a descriptor has the limits of one dialect", help);
                None
            }
            (Some(lyft), None) => {
                for option in [policy.settings.on_limit, policy.settings.algorithm].into_iter().flatten() {
                    let name = option.key.describe();
                    let message = format!("{name} belongs to `limits`; `rate_limit` does what it does upstream");
                    self.error("foreign-option", option.key.span, message, "write `limits` instead of `rate_limit`");
                }
                self.rate_limit(lyft.value).map(Limits::Lyft)
            }
            (None, Some(own)) => self.limits(own.value, settings),
            (None, None) if has_items(fields.descriptors) => {
                self.without_effect(fields);
                None
            }
            (None, None) => {
                self.empty_rate_limit(node);
                Some(Limits::None)
            }
        };
        if self.errors > before || !way.sound || self.is_full {
            return;
        }
        let Some(limits) = limits else { return };
        let Settings { mode, priority, consistency, on_store_failure, .. } = settings;
        // What has no limits exempts, and has nothing that could be counted without binding.
        let exempts = fields.rate_limit.is_none() && policy.limits.is_none();
        let mode = match if shadow { Mode::Shadow } else { mode } {
            Mode::Shadow if exempts => Mode::Enforce,
            mode => mode,
        };
        self.keep(Rule {
            domain: file.domain.clone(),
            name: match name {
                Some(name) => name.into(),
                None if policy.limits.is_some() => made_up(&file.domain, &way.entries).into(),
                None => way.name.as_str().into(),
            },
            span: fields.key.map_or(node.spot(), |key| key.value.span),
            entries: way.entries.clone(),
            unless,
            exempt: Arc::clone(&file.exempt),
            limits,
            mode,
            priority,
            consistency,
            on_store_failure,
            quota_mode,
            detailed_metric,
            metadata,
        });
    }

    /// A `rate_limit` that says nothing reads like a limit and is none.
    fn empty_rate_limit(&mut self, node: &Node) {
        let Kind::Map(items) = node.kind() else { return };
        if let Some((key, _)) = items.iter().find(|(key, value)| key.text() == Some("rate_limit") && value.is_null()) {
            let message = "`rate_limit` says nothing, so what this descriptor matches is exempt";
            let help = "write how much, such as `{unit: minute, requests_per_unit: 5}`, or remove it if that is meant";
            self.warning("no-effect", key.span, message, help);
        }
    }

    /// What is said about limits that are not there.
    fn without_effect(&mut self, fields: &DescriptorFields<'_>) {
        let lyft = [fields.shadow_mode, fields.quota_mode, fields.detailed_metric, fields.metadata];
        let own = fields.policy.written().into_iter().map(|(_, written)| written);
        for written in lyft.into_iter().flatten().chain(own) {
            let message = format!("{} has no effect: this descriptor has no limits of its own", written.key.describe());
            self.warning("no-effect", written.key.span, message, "write it in the descriptors below that have limits");
        }
    }
}

fn has_items(slot: Slot<'_>) -> bool {
    slot.is_some_and(|written| !matches!(written.value.kind(), Kind::List(items) if items.is_empty()))
}
