//! What a rule set says to a question, found by looking at every rule.
//!
//! Nothing of `tollgate-rules` is used to match: patterns, addresses and the order among rules are written here once
//! more, in the plainest way.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::IpAddr;

use tollgate::rules::{Attribute, Match};

use super::spec::{Alternative, Entry, Rule, Told};

/// A rule that is met, by its name, and what it is counted by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Met {
    /// Which rule.
    pub rule: String,
    /// What tells its counters apart.
    pub values: Vec<Vec<u8>>,
}

impl Met {
    /// What was found by the rules themselves.
    pub fn of(found: &Match<'_, '_>) -> Self {
        let values = found.values.iter().map(|value| value.bytes().to_vec()).collect();
        Self { rule: found.rule.rule().name.to_string(), values }
    }
}

/// One step on the way to a rule: a key, and one of its alternatives.
type Step<'a> = (&'a str, &'a Alternative);

/// What a descriptor finds: at each entry the exact value, else the first pattern in the order of the file, else the
/// default of the key; what was taken is never given up.
///
/// A shadow that stands beside the others is found where they have nothing.
pub fn find(rules: &[Rule], entries: &[Attribute<'_>]) -> Option<Met> {
    let found = find_among(rules, false, entries).or_else(|| find_among(rules, true, entries))?;
    (!is_exempt(found, entries)).then(|| met(found, entries))
}

fn find_among<'r>(rules: &'r [Rule], beside: bool, entries: &[Attribute<'_>]) -> Option<&'r Rule> {
    let mut left: Vec<&Rule> = rules.iter().filter(|rule| !rule.off && rule.beside == beside).collect();
    if entries.is_empty() {
        return None;
    }
    for (at, (key, value)) in entries.iter().enumerate() {
        let steps = || left.iter().filter_map(|rule| rule.entries.get(at)).flat_map(|entry| entry.steps());
        let exact =
            steps().find(|(known, step)| known == key && matches!(step, Alternative::Exact(text) if text == value));
        let pattern = || {
            let is_pattern =
                |(known, step): &Step<'_>| is_glob(known) || !matches!(step, Alternative::Any | Alternative::Exact(_));
            steps().filter(is_pattern).find(|(known, step)| key_matches(known, key) && step_matches(step, value))
        };
        let default = || steps().find(|(known, step)| known == key && **step == Alternative::Any);
        let (key, taken) = exact.or_else(pattern).or_else(default)?;
        let (key, taken) = (key.to_owned(), taken.clone());
        left.retain(|rule| rule.entries.get(at).is_some_and(|entry| entry.steps().any(|step| step == (&*key, &taken))));
    }
    left.into_iter().find(|rule| rule.entries.len() == entries.len())
}

/// What applies to attributes, sorted; and how many rules would apply if they had no exceptions.
///
/// Every rule applies whose keys are all there with values that it is for. Of rules with the same keys in the same
/// order only the most specific is looked at; shadows that stand beside the others are a matter of their own.
pub fn collect(rules: &[Rule], attributes: &[Attribute<'_>]) -> (Vec<Met>, usize) {
    let mut first_ones: Vec<Attribute<'_>> = Vec::new();
    for attribute in attributes {
        if first_ones.iter().all(|(key, _)| *key != attribute.0) {
            first_ones.push(*attribute);
        }
    }
    let mut best: BTreeMap<(bool, Vec<&str>), Candidate<'_, '_>> = BTreeMap::new();
    for rule in rules.iter().filter(|rule| !rule.off) {
        for way in ways(rule) {
            let Some(path) = way.iter().map(|step| first_that_fits(step, &first_ones)).collect() else { continue };
            let ranks = ranks(rules, rule.beside, &way);
            let shape: Vec<&str> = way.iter().map(|(key, _)| *key).collect();
            let known = best.entry((rule.beside, shape)).or_insert_with(|| (ranks.clone(), rule, Vec::clone(&path)));
            if ranks < known.0 {
                *known = (ranks, rule, path);
            }
        }
    }
    let (exempt, applying): (Vec<_>, Vec<_>) = best.into_values().partition(|(_, rule, _)| is_exempt(rule, attributes));
    let mut applying: Vec<Met> = applying.iter().map(|(_, rule, path)| met(rule, path)).collect();
    applying.sort();
    (applying, exempt.len())
}

/// Whether the quick way is open to a rule that is met alone.
pub fn is_simple(rules: &[Rule], met: &Met) -> bool {
    rules.iter().find(|rule| rule.name == met.rule).is_some_and(|rule| {
        let is_simple = |entry: &Entry| match entry.told {
            Told::Together => true,
            Told::Value => !is_glob(&entry.key),
            Told::Network { .. } => is_one_text(entry),
        };
        rule.plain && rule.unless.is_empty() && met.values.len() <= 4 && rule.entries.iter().all(is_simple)
    })
}

/// How specific a way to a rule is, the rule, and the attributes that it is met by.
type Candidate<'a, 'q> = (Vec<Rank>, &'a Rule, Vec<Attribute<'q>>);

/// How specific a step is, the most specific first, and which came first of equals.
type Rank = (Reverse<usize>, usize, usize);

fn ranks(rules: &[Rule], beside: bool, way: &[Step<'_>]) -> Vec<Rank> {
    (0..way.len())
        .map(|at| {
            let (_, step) = way[at];
            let specificity = match step {
                Alternative::Exact(_) => usize::MAX,
                Alternative::Glob(text) => 2 + text.bytes().filter(|byte| *byte != b'*').count(),
                Alternative::Network(_, length) => 2 + usize::from(*length),
                Alternative::Not(_) => 1,
                Alternative::Any => 0,
            };
            // The place of the first rule that goes this way so far.
            let goes_here = |rule: &Rule| {
                let before =
                    way[..at].iter().zip(&rule.entries).all(|(step, entry)| entry.steps().any(|other| other == *step));
                let here = rule.entries.get(at).and_then(|entry| entry.steps().position(|other| other == way[at]));
                here.filter(|_| before && !rule.off && rule.beside == beside)
            };
            let first = rules.iter().enumerate().find_map(|(number, rule)| Some((number, goes_here(rule)?)));
            let (rule, alternative) = first.unwrap_or_default();
            (Reverse(specificity), rule, alternative)
        })
        .collect()
}

/// Every combination of the alternatives of a rule's entries.
fn ways(rule: &Rule) -> Vec<Vec<Step<'_>>> {
    let mut ways: Vec<Vec<Step<'_>>> = vec![Vec::new()];
    for entry in &rule.entries {
        let mut longer = Vec::new();
        for way in &ways {
            longer.extend(entry.steps().map(|step| [&**way, &[step]].concat()));
        }
        ways = longer;
    }
    ways
}

fn first_that_fits<'q>((key, step): &Step<'_>, attributes: &[Attribute<'q>]) -> Option<Attribute<'q>> {
    attributes.iter().find(|(known, value)| key_matches(key, known) && step_matches(step, value)).copied()
}

fn met(rule: &Rule, path: &[Attribute<'_>]) -> Met {
    let mut values = Vec::new();
    for (entry, (key, value)) in rule.entries.iter().zip(path) {
        if entry.told == Told::Together {
            continue;
        }
        if is_glob(&entry.key) {
            values.push(key.as_bytes().to_vec());
        }
        if is_one_text(entry) {
            continue;
        }
        values.push(match entry.told {
            Told::Network { v4, v6 } => network_bytes(value, v4, v6),
            Told::Value | Told::Together => value.as_bytes().to_vec(),
        });
    }
    Met { rule: rule.name.clone(), values }
}

fn is_one_text(entry: &Entry) -> bool {
    matches!(&*entry.alternatives, [Alternative::Exact(_)])
}

fn is_exempt(rule: &Rule, attributes: &[Attribute<'_>]) -> bool {
    let holds = |(key, alternatives): &(String, Vec<Alternative>)| {
        let given = attributes.iter().find(|(known, _)| known == key);
        given.is_some_and(|(_, value)| alternatives.iter().any(|step| step_matches(step, value)))
    };
    rule.unless.iter().any(|group| group.iter().all(holds))
}

/// Stars make a pattern of a key.
pub fn is_glob(key: &str) -> bool {
    key.contains('*')
}

fn key_matches(pattern: &str, key: &str) -> bool {
    glob_matches(pattern.as_bytes(), key.as_bytes())
}

fn step_matches(step: &Alternative, value: &str) -> bool {
    match step {
        Alternative::Any => true,
        Alternative::Exact(text) => text == value,
        Alternative::Glob(text) => glob_matches(text.as_bytes(), value.as_bytes()),
        Alternative::Network(bits, length) => {
            address(value).is_some_and(|address| first_bits(address, *length) == first_bits(*bits, *length))
        }
        Alternative::Not(inner) => !inner.iter().any(|step| step_matches(step, value)),
    }
}

/// Tries every length for every star.
fn glob_matches(pattern: &[u8], value: &[u8]) -> bool {
    match pattern {
        [] => value.is_empty(),
        [b'*', rest @ ..] => (0..=value.len()).any(|skipped| glob_matches(rest, &value[skipped..])),
        [byte, rest @ ..] => value.first() == Some(byte) && glob_matches(rest, &value[1..]),
    }
}

/// An address in 128 bits, version 4 in its mapped form; brackets and zones are left out.
pub fn address(text: &str) -> Option<u128> {
    let bare = match (text.strip_prefix('['), text.strip_suffix(']')) {
        (Some(_), Some(_)) => &text[1..text.len() - 1],
        _ => text,
    };
    let bare = bare.split('%').next().unwrap_or_default();
    Some(match bare.parse::<IpAddr>().ok()? {
        IpAddr::V4(v4) => u128::from(v4.to_bits()) | 0xffff_0000_0000,
        IpAddr::V6(v6) => v6.to_bits(),
    })
}

fn first_bits(bits: u128, length: u8) -> u128 {
    (0..length).fold(0, |kept, bit| kept | (bits & (1 << (127 - bit))))
}

fn network_bytes(value: &str, v4: u8, v6: u8) -> Vec<u8> {
    let Some(bits) = address(value) else { return value.as_bytes().to_vec() };
    let length = if bits >> 32 == 0xffff { 96 + v4 } else { v6 };
    let bits = first_bits(bits, length).to_be_bytes();
    [&[0xff][..], &bits, &[length]].concat()
}
