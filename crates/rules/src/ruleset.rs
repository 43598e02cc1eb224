//! Rules compiled: immutable, indexed, and the only thing that a decision looks at.

use std::borrow::Cow;
use std::sync::Arc;

use hashbrown::HashMap;
use smallvec::SmallVec;
use tollgate_core::{mix, stable_hash};

use crate::Parsed;
use crate::check::Attribute;
use crate::diagnostic::{Diagnostic, Diagnostics, Source};
use crate::model::{Counted, Entry, KeyPattern, Limits, LyftUnit, Mode, Rule};
use crate::pattern::{Network, Pattern, parse_address};
use crate::tree::{RuleId, Tree};

/// A rule has at most so many keys.
const MAX_ENTRIES: usize = 64;
/// A rule whose keys have lists of values stands for each combination of them: at most so many.
const MAX_COMBINATIONS: usize = 65_536;

/// A set of rules, ready to be asked.
#[derive(Debug, Default)]
pub struct RuleSet {
    rules: Vec<CompiledRule>,
    domains: HashMap<Arc<str>, Tree>,
}

/// One rule of a set.
#[derive(Debug)]
pub struct CompiledRule {
    rule: Rule,
    /// The entries whose values tell its counters apart, and how. An exact value is part of the rule's identity instead.
    counted: SmallVec<[(u16, Counted); 2]>,
    /// The numbers of its limits.
    limit_ids: SmallVec<[u64; 1]>,
    path_id: u64,
}

/// A rule that applies, and what it is counted by.
#[derive(Clone, Debug)]
pub struct Match<'r, 'q> {
    /// The rule.
    pub rule: &'r CompiledRule,
    /// Its number in the set.
    pub number: u32,
    /// What it is counted by.
    pub values: Values<'q>,
}

/// What a counter is told by.
pub type Values<'q> = SmallVec<[Value<'q>; 2]>;

/// One value that a counter is told by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'q> {
    /// As it is.
    Text(&'q str),
    /// The network that an address is in.
    Network([u8; 17]),
}

impl Value<'_> {
    /// As bytes of a key.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Text(text) => text.as_bytes(),
            Self::Network(bytes) => bytes,
        }
    }
}

impl RuleSet {
    /// Compiles what was read from one text. Warnings are lost: [`crate::parse`] has them.
    pub fn from_yaml(text: &str) -> Result<Self, Diagnostics> {
        let (rules, diagnostics) = Self::compile(crate::parse(vec![Source::new("rules", text)]));
        if diagnostics.has_errors() { Err(diagnostics) } else { Ok(rules) }
    }

    /// Compiles rules. What cannot be used is left out and told.
    pub fn compile(parsed: Parsed) -> (Self, Diagnostics) {
        let Parsed { rules, mut diagnostics } = parsed;
        let mut set = Self { rules: Vec::with_capacity(rules.len()), domains: HashMap::new() };
        let mut shapes = Shapes::default();
        for rule in rules {
            if let Some(problem) = too_large(&rule) {
                diagnostics.push(problem);
                continue;
            }
            let tree = set.domains.entry(Arc::clone(&rule.domain)).or_default();
            if rule.mode != Mode::Off {
                tree.insert(&rule.entries, set.rules.len() as RuleId, shapes.number(&rule.entries));
                set.rules.push(CompiledRule::new(rule));
            }
        }
        (set, diagnostics)
    }

    /// The rules, by number.
    pub fn rules(&self) -> &[CompiledRule] {
        &self.rules
    }

    /// The names of all domains, in no order.
    pub fn domains(&self) -> impl Iterator<Item = &str> {
        self.domains.keys().map(|name| &**name)
    }

    /// Whether there are rules for `domain`.
    pub fn has_domain(&self, domain: &str) -> bool {
        self.domains.contains_key(domain)
    }

    /// The rule that a descriptor finds, if any.
    #[inline]
    pub fn find<'q>(&self, domain: &str, entries: &[Attribute<'q>]) -> Option<Match<'_, 'q>> {
        let number = self.domains.get(domain)?.find(entries)?;
        let rule = self.rules.get(number as usize)?;
        if !rule.rule.unless.is_empty() && rule.exempts(entries) {
            return None;
        }
        Some(Match { rule, number, values: rule.values(|at| entries.get(at).map_or("", |(_, value)| value)) })
    }

    /// Hands over every rule that applies to `attributes`.
    #[inline]
    pub fn collect<'r, 'q>(&'r self, domain: &str, attributes: &[Attribute<'q>], mut apply: impl FnMut(Match<'r, 'q>)) {
        let Some(tree) = self.domains.get(domain) else { return };
        tree.collect(attributes, &mut |number, path| {
            if let Some(rule) = self.rules.get(number as usize)
                && (rule.rule.unless.is_empty() || !rule.exempts(attributes))
            {
                let values = rule.values(|at| path.get(at).copied().unwrap_or(""));
                apply(Match { rule, number, values });
            }
        });
    }

    /// The number under which an overriding limit counts what `entries` say: that of the rule they find, if it counts per the same
    /// unit.
    pub fn override_key<'q>(&self, domain: &str, entries: &[Attribute<'q>], unit: LyftUnit) -> (u64, Values<'q>) {
        if let Some(found) = self.find(domain, entries) {
            return (lyft_id(found.rule.path_id, unit), found.values);
        }
        let keys = entries.iter().map(|(key, _)| [b"k", key.as_bytes(), b"", b""].map(Cow::Borrowed));
        let path = path_hash(domain, keys);
        (lyft_id(path, unit), entries.iter().map(|(_, value)| Value::Text(value)).collect())
    }
}

impl CompiledRule {
    fn new(rule: Rule) -> Self {
        let is_counted =
            |entry: &Entry| entry.counted != Counted::Together && !matches!(entry.value, Pattern::Exact(_));
        let counted = rule.entries.iter().enumerate().filter(|(_, entry)| is_counted(entry));
        let counted = counted.filter_map(|(at, entry)| Some((u16::try_from(at).ok()?, entry.counted))).collect();
        let path_id = path_hash(&rule.domain, rule.entries.iter().map(entry_parts));
        let limit_ids = match &rule.limits {
            Limits::None => SmallVec::new(),
            Limits::Lyft(limit) => limit.rate.iter().map(|rate| lyft_id(path_id, rate.unit)).collect(),
            Limits::Own(limits) => limits
                .iter()
                .map(|limit| {
                    let parts = [b"own", rule.domain.as_bytes(), rule.name.as_bytes(), limit.identity.as_bytes()];
                    mix(stable_hash(parts))
                })
                .collect(),
        };
        Self { rule, counted, limit_ids, path_id }
    }

    /// The rule as it was written.
    pub fn rule(&self) -> &Rule {
        &self.rule
    }

    /// The number of its limit at `index`: the same in every process, and as long as it is the same limit of the same rule.
    #[inline]
    pub fn limit_id(&self, index: usize) -> u64 {
        self.limit_ids.get(index).copied().unwrap_or_default()
    }

    #[inline]
    fn values<'q>(&self, value: impl Fn(usize) -> &'q str) -> Values<'q> {
        let told_by = |(at, counted): &(u16, Counted)| {
            let text = value(usize::from(*at));
            match counted {
                Counted::ByNetwork { v4, v6 } => network_of(text, *v4, *v6),
                Counted::ByValue | Counted::Together => Value::Text(text),
            }
        };
        self.counted.iter().map(told_by).collect()
    }

    /// Whether it does not apply because one of its exceptions does.
    pub fn exempts(&self, attributes: &[Attribute<'_>]) -> bool {
        self.rule.unless.iter().any(|group| {
            group.iter().all(|condition| {
                let value = attributes.iter().find(|(key, _)| **key == *condition.key);
                value.is_some_and(|(_, value)| condition.value.matches(value))
            })
        })
    }
}

/// What is no address is counted as what it is.
fn network_of(text: &str, v4: u8, v6: u8) -> Value<'_> {
    let Some(address) = parse_address(text) else { return Value::Text(text) };
    let address = address.to_canonical();
    let length = if address.is_ipv4() { 96 + v4.min(32) } else { v6.min(128) };
    Value::Network(Network::around(address, length).to_bytes())
}

fn path_hash<'a>(domain: &str, parts: impl Iterator<Item = [Cow<'a, [u8]>; 4]>) -> u64 {
    let start = stable_hash([b"path", domain.as_bytes()]);
    parts.fold(start, |hash, entry| stable_hash([&hash.to_be_bytes(), &*entry[0], &entry[1], &entry[2], &entry[3]]))
}

/// What of an entry tells its rule's counters from those of others: an exact value, and a pattern whose values are counted
/// together. Another pattern does not, so that a counter stays the same when the pattern changes.
fn entry_parts(entry: &Entry) -> [Cow<'_, [u8]>; 4] {
    let (kind, key) = match &entry.key {
        KeyPattern::Exact(key) => ("k", Cow::Borrowed(key.as_bytes())),
        KeyPattern::Glob(glob) => ("g", Cow::Owned(glob.to_string().into_bytes())),
    };
    let (told, value) = match &entry.value {
        Pattern::Exact(value) => ("v", Cow::Borrowed(value.as_bytes())),
        pattern if entry.counted == Counted::Together => ("p", Cow::Owned(pattern.to_string().into_bytes())),
        _ => ("", Cow::Borrowed(&[][..])),
    };
    [Cow::Borrowed(kind.as_bytes()), key, Cow::Borrowed(told.as_bytes()), value]
}

fn lyft_id(path: u64, unit: LyftUnit) -> u64 {
    mix(path ^ mix(unit.length().as_micros()))
}

fn too_large(rule: &Rule) -> Option<Diagnostic> {
    if rule.entries.len() > MAX_ENTRIES {
        let message = format!("the rule has {} keys; at most {MAX_ENTRIES} are possible", rule.entries.len());
        return Some(Diagnostic::error("too-large", rule.span, message));
    }
    let combinations = Tree::combinations(&rule.entries);
    (combinations > MAX_COMBINATIONS).then(|| {
        let message =
            format!("the rule's lists have {combinations} combinations; at most {MAX_COMBINATIONS} are possible");
        Diagnostic::error("too-large", rule.span, message).help("use a wildcard, or split the rule")
    })
}

/// Numbers for lists of keys.
#[derive(Default)]
struct Shapes {
    numbers: HashMap<Vec<KeyPattern>, u32>,
}

impl Shapes {
    fn number(&mut self, entries: &[Entry]) -> u32 {
        let keys = entries.iter().map(|entry| entry.key.clone()).collect();
        let next = self.numbers.len() as u32;
        *self.numbers.entry(keys).or_insert(next)
    }
}
