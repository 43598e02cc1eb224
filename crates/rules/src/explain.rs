//! Why a check meets the rules that it meets, and not others.
//!
//! Slow on purpose: it looks at every rule of the domain and says of each what the index says without looking.

use std::fmt;

use crate::check::{Attribute, Check, Subject};
use crate::model::{Counted, Entry, KeyPattern};
use crate::ruleset::{CompiledRule, RuleSet};

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
            Self::LessSpecific(_) => 2,
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
        let mut applying: Vec<u32> = Vec::new();
        self.collect(domain, attributes, |found| applying.push(found.number));
        for (number, compiled) in self.of_domain(domain) {
            let entries = &compiled.rule().entries;
            let value_of = |entry: &Entry| {
                attributes.iter().find(|(key, _)| names(&entry.key, key)).map(|(key, value)| (*key, *value))
            };
            let obstacle = entries.iter().find_map(|entry| match value_of(entry) {
                None => Some(Fate::KeyMissing(key_text(&entry.key))),
                Some((key, value)) => differs(entry, key, value),
            });
            let fate = match obstacle {
                Some(fate) => fate,
                None if applying.contains(&number) => Fate::Applies(counted_by(entries, value_of)),
                None if compiled.exempts(attributes) => Fate::Exempt,
                None => Fate::LessSpecific(self.same_shape(entries, &applying, attributes)),
            };
            considered.push(Considered { rule: compiled, descriptor: None, fate });
        }
    }

    /// The name of the rule that applies in the place of one with these entries.
    fn same_shape(&self, entries: &[Entry], applying: &[u32], attributes: &[Attribute<'_>]) -> String {
        let same_keys = |compiled: &&CompiledRule| {
            let others = &compiled.rule().entries;
            others.len() == entries.len() && others.iter().zip(entries).all(|(a, b)| a.key == b.key)
        };
        let instead = applying.iter().filter_map(|number| self.rules().get(*number as usize)).find(same_keys);
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
                    Fate::LessSpecific(name.unwrap_or_default())
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

fn counted_by<'q>(entries: &[Entry], value_of: impl Fn(&Entry) -> Option<(&'q str, &'q str)>) -> Vec<(String, String)> {
    let counted = entries.iter().filter(|entry| entry.counted != Counted::Together);
    counted.filter_map(value_of).map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
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
            Self::NotReached => {
                f.write_str("is not reached: an earlier entry finds a more specific value, and there is no way back")
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
