//! Why a check meets the rules that it meets, and not others.
//!
//! Slow on purpose: it looks at every rule of the domain and says of each what the index says without looking.

use std::borrow::Cow;
use std::fmt;

use crate::check::{Attribute, Check, Subject};
use crate::model::{Counted, Entry, KeyPattern};
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
    /// It applies, and is counted by these.
    Applies(Vec<(String, String)>),
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

impl Fate {
    /// How far from applying it is.
    fn distance(&self) -> u8 {
        match self {
            Self::Applies(_) => 0,
            Self::Exempt => 1,
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
                    self.explain_descriptor(check.domain, at, descriptor.entries, &mut considered);
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
        let mut applying: Vec<(u32, Values<'_>)> = Vec::new();
        self.collect(domain, attributes, |found| applying.push((found.number, found.values)));
        // Of a key that is given twice, the first counts.
        let mut given: Vec<Attribute<'_>> = Vec::new();
        for attribute in attributes {
            if !given.iter().any(|(key, _)| *key == attribute.0) {
                given.push(*attribute);
            }
        }
        for (number, compiled) in self.of_domain(domain) {
            let entries = &compiled.rule().entries;
            let fate = if let Some((_, values)) = applying.iter().find(|(applies, _)| *applies == number) {
                Fate::Applies(counted_by(entries, values, &given))
            } else if let Some(obstacle) = entries.iter().find_map(|entry| obstacle(entry, &given)) {
                obstacle
            } else if compiled.exempts(attributes) {
                Fate::Exempt
            } else {
                Fate::LessSpecific(self.same_shape(entries, &applying, attributes))
            };
            considered.push(Considered { rule: compiled, descriptor: None, fate });
        }
    }

    /// The name of the rule that applies in the place of one with these entries.
    fn same_shape(&self, entries: &[Entry], applying: &[(u32, Values<'_>)], attributes: &[Attribute<'_>]) -> String {
        let same_keys = |compiled: &&CompiledRule| {
            let others = &compiled.rule().entries;
            others.len() == entries.len() && others.iter().zip(entries).all(|(a, b)| a.key == b.key)
        };
        let instead = applying.iter().filter_map(|(number, _)| self.rules().get(*number as usize)).find(same_keys);
        // One that exempts its matches stands in the place of others as well.
        let instead = instead.or_else(|| self.rules().iter().filter(same_keys).find(|one| one.exempts(attributes)));
        instead.map_or_else(|| "another rule".to_owned(), |compiled| compiled.rule().name.to_string())
    }

    fn explain_descriptor<'r>(
        &'r self,
        domain: &str,
        at: usize,
        asked: &[Attribute<'_>],
        considered: &mut Vec<Considered<'r>>,
    ) {
        let found = self.find(domain, asked).map(|found| found.number);
        for (number, compiled) in self.of_domain(domain) {
            let entries = &compiled.rule().entries;
            let mut pairs = entries.iter().zip(asked);
            let obstacle = if entries.len() != asked.len() {
                let wanted: Vec<String> = entries.iter().map(|entry| key_text(&entry.key)).collect();
                Some(Fate::OtherEntries(wanted.join(", ")))
            } else {
                pairs.find_map(|(entry, (key, value))| {
                    if names(&entry.key, key) {
                        return differs(entry, key, value);
                    }
                    let wanted: Vec<String> = entries.iter().map(|entry| key_text(&entry.key)).collect();
                    Some(Fate::OtherEntries(wanted.join(", ")))
                })
            };
            let fate = match (obstacle, found) {
                (Some(fate), _) => fate,
                (None, Some(found)) if found == number => {
                    let by_place = entries.iter().zip(asked);
                    Fate::Applies(
                        by_place
                            .filter(|(entry, _)| entry.counted != Counted::Together)
                            .map(|(_, (key, value))| ((*key).to_owned(), (*value).to_owned()))
                            .collect(),
                    )
                }
                (None, _) if compiled.exempts(asked) => Fate::Exempt,
                (None, Some(other)) => {
                    let name = self.rules().get(other as usize).map(|other| other.rule().name.to_string());
                    Fate::FoundLater(name.unwrap_or_default())
                }
                (None, None) => Fate::NotReached,
            };
            considered.push(Considered { rule: compiled, descriptor: Some(at), fate });
        }
    }
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

/// The attributes that a rule is counted by. Which key a pattern stands for is among the values that it was met with:
/// the key before the value, and no value where it is exact.
fn counted_by(entries: &[Entry], values: &Values<'_>, given: &[Attribute<'_>]) -> Vec<(String, String)> {
    let mut values = values.iter();
    let mut counted = Vec::new();
    for entry in entries.iter().filter(|entry| entry.counted != Counted::Together) {
        let key = match &entry.key {
            KeyPattern::Exact(key) => Cow::Borrowed(&**key),
            KeyPattern::Glob(_) => String::from_utf8_lossy(values.next().map_or(&[], Value::bytes)),
        };
        if !matches!(entry.value, Pattern::Exact(_)) {
            values.next();
        }
        let value = given.iter().find(|(known, _)| *known == key);
        counted.extend(value.map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
    }
    counted
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Applies(counted) if counted.is_empty() => f.write_str("applies, to all together"),
            Self::Applies(counted) => {
                let counted: Vec<String> = counted.iter().map(|(key, value)| format!("{key}={value}")).collect();
                write!(f, "applies, by {}", counted.join(" "))
            }
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
