//! Why a check meets the rules that it meets, and not others.
//!
//! Slow on purpose: it looks at every rule of the domain and says of each what the index says without looking.

use std::fmt;

use crate::check::{Attribute, Check, Descriptor, Subject};
use crate::model::{Counted, Entry, KeyPattern, Limits, LyftLimit, Rule};
use crate::pattern::Pattern;
use crate::ruleset::{CompiledRule, RuleSet, Value, Values};

/// What was considered for a check.
#[derive(Debug)]
pub struct Explanation<'r> {
    /// Whose rules were asked; they may not exist.
    pub domain: String,
    /// Whether there are rules for it.
    pub domain_exists: bool,
    /// The rules that come into question: those that apply first, then those that missed by the least.
    pub considered: Vec<Considered<'r>>,
    /// How many more do not apply.
    pub left_out: usize,
}

/// One rule, and what became of it.
#[derive(Debug)]
pub struct Considered<'r> {
    /// The rule.
    pub rule: &'r CompiledRule,
    /// Of which descriptor, if the check was by descriptors.
    pub descriptor: Option<usize>,
    /// What became of it.
    pub fate: Fate,
}

/// What becomes of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It applies.
    Applies(Applied),
    /// It would apply, and this rule, which another descriptor finds, replaces it.
    Replaced(String),
    /// It would apply, and the descriptor brings a limit of its own.
    Overridden,
    /// One of its exceptions applies.
    Exempt,
    /// It matches, and a more specific rule with the same keys applies instead.
    LessSpecific(String),
    /// It matches, and a descriptor finds this rule first: the exact value before wildcards, these in the order of the
    /// file, and any value last.
    FoundLater(String),
    /// It would match, but an earlier entry leads elsewhere, and a descriptor does not turn back.
    NotReached,
    /// This key is not given.
    KeyMissing(String),
    /// This key's value is another one.
    ValueDiffers {
        /// Which key.
        key: String,
        /// What the rule is for.
        wanted: String,
        /// What it is.
        given: String,
    },
    /// A descriptor has another number of entries, or other keys.
    OtherEntries(String),
}

/// How a rule applies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// The keys and values that it is counted by; of an address that is counted by network, the network.
    pub by: Vec<(String, String)>,
    /// What comes of it.
    pub effect: Effect,
}

/// What comes of a rule that applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It is counted.
    Counts,
    /// Nothing is counted: it is unlimited, or exempts what it is for.
    Exempts,
    /// It is counted, and denies only together with all other quotas of the question.
    Quota,
}

impl Fate {
    /// How far from applying it is.
    fn distance(&self) -> u8 {
        match self {
            Self::Applies(_) => 0,
            Self::Exempt | Self::Replaced(_) | Self::Overridden => 1,
            Self::LessSpecific(_) | Self::FoundLater(_) => 2,
            Self::NotReached => 3,
            Self::ValueDiffers { .. } => 4,
            Self::KeyMissing(_) => 5,
            Self::OtherEntries(_) => 6,
        }
    }
}

/// More rules than this that do not apply help nobody.
const MOST: usize = 12;

impl RuleSet {
    /// Says which rules were considered for `check`, which apply, and why the others do not.
    pub fn explain(&self, check: &Check<'_>) -> Explanation<'_> {
        let mut considered = Vec::new();
        match check.subject {
            Subject::Attributes(attributes) => self.explain_attributes(check.domain, attributes, &mut considered),
            Subject::Descriptors(descriptors) => {
                for (at, descriptor) in descriptors.iter().enumerate() {
                    self.explain_descriptor(check.domain, at, descriptor, descriptors, &mut considered);
                }
            }
        }
        considered.sort_by_key(|one| one.fate.distance());
        let applying = considered.iter().take_while(|one| one.fate.distance() < 2).count();
        let kept = considered.len().min(applying + MOST);
        let left_out = considered.len() - kept;
        considered.truncate(kept);
        let domain_exists = self.has_domain(check.domain);
        Explanation { domain: check.domain.to_owned(), domain_exists, considered, left_out }
    }

    fn of_domain<'r>(&'r self, domain: &str) -> impl Iterator<Item = (u32, &'r CompiledRule)> {
        let rules = (0u32..).zip(self.rules());
        rules.filter(move |(_, compiled)| *compiled.rule().domain == *domain)
    }

    fn explain_attributes<'r>(
        &'r self,
        domain: &str,
        attributes: &[Attribute<'_>],
        considered: &mut Vec<Considered<'r>>,
    ) {
        // Those that apply, unless one of their exceptions does.
        let mut met: Vec<(u32, Values<'_>)> = Vec::new();
        self.collect_all(domain, attributes, |found| met.push((found.number, found.values)));
        // Of a key that is given twice, the first counts.
        let mut given: Vec<Attribute<'_>> = Vec::new();
        for attribute in attributes {
            if !given.iter().any(|(key, _)| *key == attribute.0) {
                given.push(*attribute);
            }
        }
        for (number, compiled) in self.of_domain(domain) {
            let rule = compiled.rule();
            let fate = if let Some((_, values)) = met.iter().find(|(met, _)| *met == number) {
                match compiled.exempts(attributes) {
                    true => Fate::Exempt,
                    false => Fate::Applies(applied(rule, values, false)),
                }
            } else if let Some(obstacle) = rule.entries.iter().find_map(|entry| obstacle(entry, &given)) {
                obstacle
            } else {
                let met = met.iter().filter_map(|(number, _)| self.rules().get(*number as usize));
                let instead = { met }.map(CompiledRule::rule).find(|other| competes(rule, other));
                Fate::LessSpecific(instead.map_or_else(|| "another rule".to_owned(), |rule| rule.name.to_string()))
            };
            considered.push(Considered { rule: compiled, descriptor: None, fate });
        }
    }

    fn explain_descriptor<'r>(
        &'r self,
        domain: &str,
        at: usize,
        descriptor: &Descriptor<'_>,
        all: &[Descriptor<'_>],
        considered: &mut Vec<Considered<'r>>,
    ) {
        let asked = descriptor.entries;
        let found = self.find_any(domain, asked);
        for (number, compiled) in self.of_domain(domain) {
            let rule = compiled.rule();
            let wanted = || rule.entries.iter().map(|entry| key_text(&entry.key)).collect::<Vec<_>>().join(", ");
            let mut pairs = rule.entries.iter().zip(asked);
            let obstacle = if rule.entries.len() != asked.len() {
                Some(Fate::OtherEntries(wanted()))
            } else {
                pairs.find_map(|(entry, (key, value))| match names(&entry.key, key) {
                    true => differs(entry, key, value),
                    false => Some(Fate::OtherEntries(wanted())),
                })
            };
            let fate = match (obstacle, &found) {
                (Some(fate), _) => fate,
                (None, Some(found)) if found.number == number => {
                    if compiled.exempts(asked) {
                        Fate::Exempt
                    } else if descriptor.limit.is_some() {
                        Fate::Overridden
                    } else if let Some(other) = self.replacing(domain, rule, all) {
                        Fate::Replaced(other.name.to_string())
                    } else {
                        Fate::Applies(applied(rule, &found.values, true))
                    }
                }
                (None, Some(found)) => Fate::FoundLater(found.rule.rule().name.to_string()),
                (None, None) => Fate::NotReached,
            };
            considered.push(Considered { rule: compiled, descriptor: Some(at), fate });
        }
    }

    /// The rule that one of these descriptors finds and that replaces `rule`.
    fn replacing<'r>(&'r self, domain: &str, rule: &Rule, descriptors: &[Descriptor<'_>]) -> Option<&'r Rule> {
        let name = lyft(rule)?.name.as_ref()?;
        let counting = descriptors.iter().filter(|descriptor| descriptor.limit.is_none());
        let mut found = counting.filter_map(|descriptor| self.find(domain, descriptor.entries));
        found
            .find(|found| lyft(found.rule.rule()).is_some_and(|limit| limit.replaces.contains(name)))
            .map(|found| found.rule.rule())
    }
}

fn lyft(rule: &Rule) -> Option<&LyftLimit> {
    match &rule.limits {
        Limits::Lyft(limit) => Some(limit),
        Limits::None | Limits::Own(_) => None,
    }
}

/// Whether two rules are for the same keys in the same order, so that the more specific one takes the other's place.
fn competes(one: &Rule, other: &Rule) -> bool {
    one.is_beside() == other.is_beside()
        && one.entries.len() == other.entries.len()
        && one.entries.iter().zip(&other.entries).all(|(one, other)| one.key == other.key)
}

/// How a rule applies that was met with `values`.
fn applied(rule: &Rule, values: &Values<'_>, by_descriptor: bool) -> Applied {
    let effect = match &rule.limits {
        Limits::None => Effect::Exempts,
        Limits::Lyft(limit) if limit.rate.is_none() => Effect::Exempts,
        _ if rule.quota_mode && by_descriptor => Effect::Quota,
        _ => Effect::Counts,
    };
    Applied { by: counted_by(&rule.entries, values), effect }
}

fn names(pattern: &KeyPattern, key: &str) -> bool {
    match pattern {
        KeyPattern::Exact(exact) => **exact == *key,
        KeyPattern::Glob(glob) => glob.matches(key),
    }
}

fn key_text(pattern: &KeyPattern) -> String {
    match pattern {
        KeyPattern::Exact(exact) => exact.to_string(),
        KeyPattern::Glob(glob) => glob.to_string(),
    }
}

fn differs(entry: &Entry, key: &str, value: &str) -> Option<Fate> {
    (!entry.value.matches(value)).then(|| Fate::ValueDiffers {
        key: key.to_owned(),
        wanted: entry.value.to_string(),
        given: value.to_owned(),
    })
}

/// Why an entry has none of the attributes. A pattern of keys is content with any of those that it matches.
fn obstacle(entry: &Entry, given: &[Attribute<'_>]) -> Option<Fate> {
    let mut named = given.iter().filter(|(key, _)| names(&entry.key, key));
    let Some((key, value)) = named.next() else { return Some(Fate::KeyMissing(key_text(&entry.key))) };
    let fate = differs(entry, key, value)?;
    (!named.any(|(_, value)| entry.value.matches(value))).then_some(fate)
}

/// The keys and values that a rule is counted by. Which key a pattern stands for is among the values that it was met
/// with: the key before the value, and no value where it is exact.
fn counted_by(entries: &[Entry], values: &Values<'_>) -> Vec<(String, String)> {
    let mut values = values.iter().map(|value| match Value::network_in(value.bytes()) {
        Some(network) => network.to_string(),
        None => String::from_utf8_lossy(value.bytes()).into_owned(),
    });
    let mut next = || values.next().unwrap_or_default();
    let counted = entries.iter().filter(|entry| entry.counted != Counted::Together);
    let pair = |entry: &Entry| {
        let key = match &entry.key {
            KeyPattern::Exact(key) => key.to_string(),
            KeyPattern::Glob(_) => next(),
        };
        let value = match &entry.value {
            Pattern::Exact(value) => value.to_string(),
            _ => next(),
        };
        (key, value)
    };
    counted.map(pair).collect()
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Applies(Applied { effect: Effect::Exempts, .. }) => f.write_str("applies, and limits nothing"),
            Self::Applies(Applied { by, effect }) => {
                let by: Vec<String> = by.iter().map(|(key, value)| format!("{key}={value}")).collect();
                match &*by {
                    [] => f.write_str("applies, to all together")?,
                    by => write!(f, "applies, by {}", by.join(" "))?,
                }
                match effect {
                    Effect::Quota => f.write_str(", as a quota: it denies only if all quotas of the question do"),
                    Effect::Counts | Effect::Exempts => Ok(()),
                }
            }
            Self::Replaced(by) => write!(f, "does not apply: {by} replaces it"),
            Self::Overridden => f.write_str("does not apply: the descriptor brings a limit of its own"),
            Self::Exempt => f.write_str("does not apply: one of its exceptions does"),
            Self::LessSpecific(than) => write!(f, "does not apply: {than} is more specific"),
            Self::FoundLater(than) => write!(f, "does not apply: {than} is found first"),
            Self::NotReached => {
                f.write_str("is not reached: an earlier entry finds another value first, and there is no way back")
            }
            Self::KeyMissing(key) => write!(f, "does not apply: there is no {key}"),
            Self::ValueDiffers { key, wanted, given } => {
                write!(f, "does not apply: {key} is {given}, not {wanted}")
            }
            Self::OtherEntries(wanted) => write!(f, "does not apply: it is for the entries {wanted}"),
        }
    }
}

impl fmt::Display for Explanation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.domain_exists {
            return write!(f, "there are no rules for the domain {:?}", self.domain);
        }
        if self.considered.is_empty() {
            return write!(f, "the domain {:?} has no rules", self.domain);
        }
        for (at, one) in self.considered.iter().enumerate() {
            if at > 0 {
                writeln!(f)?;
            }
            if let Some(descriptor) = one.descriptor {
                write!(f, "descriptor {}: ", descriptor + 1)?;
            }
            write!(f, "{} {}", one.rule.rule().name, one.fate)?;
        }
        if self.left_out > 0 {
            write!(f, "\nand {} more that do not apply", self.left_out)?;
        }
        Ok(())
    }
}
