//! From located YAML to rules.
//!
//! Everything that is wrong is told, each problem once and where it is; what is right is kept. A rule with an error in
//! it is left out, whatever is beside it stays. Nothing here looks at more than one file; what is wrong only between
//! rules is for others to find.

mod exceptions;
mod fields;
mod gateway;
mod jwt;
mod limit;
mod lyft;
mod name;
mod overload;
mod pattern;
mod root;
mod rule;
mod scalar;
mod settings;
mod tree;

use std::hash::BuildHasher;
use std::sync::Arc;

use hashbrown::{DefaultHashBuilder, HashMap, HashSet};
use tollgate_core::{Algorithm, Limit, Soft, Zone};

use crate::diagnostic::{Diagnostic, Diagnostics, Severity, Span};
use crate::gateway::Gateway;
use crate::grammar::Written;
use crate::lint::Work;
use crate::model::{LyftRate, LyftUnit, Rule};
use crate::nearest::nearest;
use crate::pattern::{Pattern, text_size};
use crate::shorthand::Wrong;
use crate::yaml::{Kind, Node};

pub(crate) use root::lower;
#[cfg(test)]
pub(crate) use scalar::to_json;

/// The most rules of one file, the most entries and conditions in all of them, and the most values in those. What a rule
/// has from others (through aliases, or from above in a tree) is its own in memory, so that a few lines can say what
/// takes more than there is. A plain rule takes a kilobyte while it is loaded.
const MAX_RULES: usize = 1 << 17;
const MAX_PARTS: usize = 4 * MAX_RULES;
const MAX_VALUES: usize = 16 * MAX_RULES;

/// What is needed all the way down.
struct Lowering<'d> {
    diagnostics: &'d mut Diagnostics,
    rules: &'d mut Vec<Rule>,
    gateway: &'d mut Gateway,
    /// How many errors there were, including repeated ones: whoever made some rule compares.
    errors: usize,
    /// What was said, so that a mistake in an anchor is told once and not at each of its aliases.
    said: HashSet<u64>,
    hasher: DefaultHashBuilder,
    /// Keys recur from rule to rule.
    keys: HashMap<Box<str>, Arc<str>>,
    /// Looking a zone up takes long, and many limits share one. None: there is no such zone.
    zones: HashMap<Box<str>, Option<Arc<Zone>>>,
    /// The names of all zones, once one was asked for that is none.
    zone_names: Vec<String>,
    /// Many rules have the same limits, and a limit is large.
    limits: HashMap<(Algorithm, Option<Soft>), Arc<Limit>>,
    lyft_rates: HashMap<(u32, LyftUnit), Arc<LyftRate>>,
    /// Entries and conditions so far.
    parts: usize,
    /// Their values so far.
    values: usize,
    /// Whether there was one too many, which was told.
    is_full: bool,
    /// Rules and parts of earlier files are not ours to count.
    rules_before: usize,
    /// For comparing patterns and exceptions with each other.
    work: &'d mut Work,
}

impl<'d> Lowering<'d> {
    fn new(
        rules: &'d mut Vec<Rule>,
        gateway: &'d mut Gateway,
        work: &'d mut Work,
        diagnostics: &'d mut Diagnostics,
    ) -> Self {
        Self {
            gateway,
            diagnostics,
            errors: 0,
            said: HashSet::new(),
            hasher: DefaultHashBuilder::default(),
            keys: HashMap::new(),
            zones: HashMap::new(),
            zone_names: Vec::new(),
            limits: HashMap::new(),
            lyft_rates: HashMap::new(),
            parts: 0,
            values: 0,
            is_full: false,
            rules_before: rules.len(),
            work,
            rules,
        }
    }

    fn say(&mut self, diagnostic: Diagnostic) {
        self.errors += usize::from(diagnostic.severity == Severity::Error);
        let identity = self.hasher.hash_one((diagnostic.span, diagnostic.code, diagnostic.message.as_str()));
        if self.said.insert(identity) {
            self.diagnostics.push(diagnostic);
        }
    }

    fn error(&mut self, code: &'static str, span: Span, message: impl Into<String>, help: impl Into<String>) {
        self.say(Diagnostic::error(code, span, message).help(help));
    }

    fn warning(&mut self, code: &'static str, span: Span, message: impl Into<String>, help: impl Into<String>) {
        self.say(Diagnostic::warning(code, span, message).help(help));
    }

    /// The word that was probably meant. Nobody looks for it once there is no room to tell it.
    fn nearest<'w>(&self, word: &str, known: impl IntoIterator<Item = &'w str>) -> Option<&'w str> {
        if self.diagnostics.is_full() { None } else { nearest(word, known) }
    }

    /// What is missing. Not told when there were errors since `before`: it is probably there, with a mistake in its
    /// name.
    fn missing(&mut self, before: usize, node: &Node, message: &str, help: &str) {
        if self.errors == before {
            self.error("missing-field", node.spot(), message, help);
        }
    }

    /// A mistake inside the text of `node`.
    fn wrong(&mut self, code: &'static str, node: &Node, wrong: Wrong) {
        self.error(code, node.part(wrong.part), wrong.message, wrong.help);
    }

    /// Two fields of which one has to go: the error is at the second.
    fn exclusive(&mut self, one: Written<'_>, other: Written<'_>, why: &str, help: &str) {
        let (first, second) = if one.key.span.start <= other.key.span.start { (one, other) } else { (other, one) };
        let name = |written: Written<'_>| written.key.text().unwrap_or_default().to_owned();
        let message = format!("`{}` beside `{}`: {why}", name(second), name(first));
        let here = format!("`{}` is here", name(first));
        self.say(Diagnostic::error("either-or", second.key.span, message).related(first.key.span, here).help(help));
    }

    fn key(&mut self, text: &str) -> Arc<str> {
        if let Some(key) = self.keys.get(text) {
            return Arc::clone(key);
        }
        let key: Arc<str> = text.into();
        self.keys.insert(text.into(), Arc::clone(&key));
        key
    }

    /// Keeps a rule, unless there are too many.
    fn keep(&mut self, rule: Rule) {
        let own_conditions = || rule.unless.iter().flatten();
        self.parts += rule.entries.len() + own_conditions().count();
        let patterns = rule.entries.iter().map(|entry| &entry.value).chain(own_conditions().map(|one| &one.value));
        self.values += patterns.map(Pattern::size).sum::<usize>() + text_size(rule.name.len());
        let (what, most) = if self.rules.len() - self.rules_before >= MAX_RULES {
            ("rules", MAX_RULES)
        } else if self.parts > MAX_PARTS {
            ("keys in its rules", MAX_PARTS)
        } else if self.values > MAX_VALUES {
            ("values in its rules", MAX_VALUES)
        } else {
            self.rules.push(rule);
            return;
        };
        self.is_full = true;
        let message = format!("the file stands for more than {most} {what}; from here on they are left out");
        let help = match what {
            "values in its rules" => "write a list that many rules share once, into `exempt`, or use patterns",
            _ => "use patterns instead of one rule for each value, or several files",
        };
        self.error("too-large", rule.span, message, help);
    }
}

impl Node {
    /// The narrowest place that shows what this is: the first word of a collection that may go on for pages.
    fn spot(&self) -> Span {
        match &self.kind {
            Kind::List(items) => items.first().map_or(self.span, Node::spot),
            Kind::Map(items) => items.first().map_or(self.span, |(key, _)| key.spot()),
            Kind::Alias(node) if node.span == self.span => node.spot(),
            _ => self.span,
        }
    }

    /// Where these bytes of a scalar's text are written; all of it when escapes or line breaks make that hard to say.
    fn part(&self, bytes: std::ops::Range<usize>) -> Span {
        let (Some(text), whole) = (self.text(), self.span) else { return self.spot() };
        if matches!(&self.kind, Kind::Alias(node) if node.span != whole) || bytes.is_empty() {
            return whole;
        }
        let count = |text: &str| u32::try_from(text.chars().count()).unwrap_or(u32::MAX);
        let quote = match (whole.end - whole.start).checked_sub(count(text)) {
            Some(0) => 0,
            Some(2) => 1,
            _ => return whole,
        };
        match (text.get(..bytes.start), text.get(bytes)) {
            (Some(before), Some(part)) => {
                let start = whole.start + quote + count(before);
                Span { start, end: start + count(part), ..whole }
            }
            _ => whole,
        }
    }
}
