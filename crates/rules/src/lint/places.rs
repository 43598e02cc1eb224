//! The places that rules take in the tree of their domain: two at one place, and places that no descriptor comes to.
//!
//! The same places as those of the tree that is compiled: a rule that has lists of values is at every combination of
//! them.

use std::fmt;
use std::hash::BuildHasher;
use std::sync::LazyLock;

use hashbrown::{DefaultHashBuilder, HashMap, HashSet};
use smallvec::{SmallVec, smallvec};

use super::{MOST_PAIRS, composite_key, coverage};
use crate::diagnostic::{Diagnostic, Diagnostics, Span};
use crate::model::{Entry, KeyPattern, Limits, Mode, Rule};
use crate::pattern::{Glob, Network, Pattern};

/// Rules that stand for more combinations are refused elsewhere.
const MOST_COMBINATIONS: usize = crate::ruleset::MAX_COMBINATIONS;
/// How many places are looked at in all.
const MOST_PLACES: usize = crate::ruleset::MAX_PLACES;

static EVERY_VALUE: LazyLock<Glob> = LazyLock::new(|| Glob::prefix(""));

/// One of the patterns that a list stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Alternative<'a> {
    Any,
    Exact(&'a str),
    Network(Network),
    Other(&'a Pattern),
}

impl fmt::Display for Alternative<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("*"),
            Self::Exact(value) => f.write_str(value),
            Self::Network(network) => write!(f, "{network}"),
            Self::Other(pattern) => write!(f, "{pattern}"),
        }
    }
}

/// What a pattern is a list of, or the pattern itself.
pub(super) fn alternatives(pattern: &Pattern) -> impl Iterator<Item = Alternative<'_>> {
    let (values, patterns): (&[Box<str>], &[Pattern]) = match pattern {
        Pattern::OneOf(values) => (values, &[]),
        Pattern::AnyOf(patterns) => (&[], patterns),
        one => (&[], std::slice::from_ref(one)),
    };
    let values = values.iter().map(|value| Alternative::Exact(value));
    let others = patterns.iter().flat_map(|pattern| {
        let (one, texts, networks): (_, &[Box<str>], &[Network]) = match pattern {
            Pattern::Any => (Some(Alternative::Any), &[], &[]),
            Pattern::Exact(value) => (Some(Alternative::Exact(value)), &[], &[]),
            Pattern::OneOf(texts) => (None, texts, &[]),
            Pattern::Networks(networks) => (None, &[], networks),
            other => (Some(Alternative::Other(other)), &[], &[]),
        };
        let texts = texts.iter().map(|text| Alternative::Exact(text));
        one.into_iter().chain(texts).chain(networks.iter().map(|network| Alternative::Network(*network)))
    });
    values.chain(others)
}

/// Tells which rules are at the same place, and which are at one that is never reached. The answer is where those are
/// that came second.
pub(super) fn check(rules: &[Rule], diagnostics: &mut Diagnostics) -> HashSet<Span> {
    let mut places = Places::new(rules.len());
    for rule in rules.iter().filter(|rule| rule.mode != Mode::Off) {
        places.add(rule, diagnostics);
    }
    places.unreached_defaults(diagnostics);
    places.duplicates
}

/// A place, by a hash of the way to it. What is said of two rules at one place is verified; that two places of
/// wildcards have one hash is less likely than a fault of the memory.
type Place = u64;

struct Places<'a> {
    hasher: DefaultHashBuilder,
    rules: HashMap<Place, &'a Rule>,
    patterns: HashMap<(Place, &'a KeyPattern), Patterns<'a>>,
    /// Patterns that were met.
    known: HashSet<Place>,
    /// Each key's default, to be compared with wildcards that may come later.
    defaults: Vec<(Place, &'a KeyPattern, &'a Rule)>,
    duplicates: HashSet<Span>,
    pairs_left: usize,
    places_left: usize,
}

/// The patterns of one key, in the order of the files.
#[derive(Default)]
struct Patterns<'a> {
    by_head: HashMap<&'a str, Vec<(&'a Glob, &'a Rule)>>,
    /// How long the heads are.
    lengths: Vec<usize>,
    networks: HashMap<Network, &'a Rule>,
    /// How long the prefixes are.
    network_lengths: Vec<u8>,
    /// Those that are for anything but something.
    exclusions: Vec<(&'a Pattern, &'a Rule)>,
    /// The one that takes every value.
    all: Option<&'a Rule>,
}

impl<'a> Places<'a> {
    fn new(rules: usize) -> Self {
        Self {
            hasher: DefaultHashBuilder::default(),
            rules: HashMap::with_capacity(rules),
            patterns: HashMap::new(),
            known: HashSet::new(),
            defaults: Vec::new(),
            duplicates: HashSet::new(),
            pairs_left: MOST_PAIRS,
            places_left: MOST_PLACES,
        }
    }

    fn add(&mut self, rule: &'a Rule, diagnostics: &mut Diagnostics) {
        let counts = rule.entries.iter().map(|entry| alternatives(&entry.value).count());
        let combinations = counts.fold(1usize, usize::saturating_mul);
        if combinations > MOST_COMBINATIONS.min(self.places_left) {
            return;
        }
        self.places_left -= combinations;
        let mut ends: SmallVec<[Place; 4]> = smallvec![self.hasher.hash_one((&rule.domain, rule.is_beside()))];
        for entry in &rule.entries {
            let mut next = SmallVec::new();
            for parent in ends {
                for value in alternatives(&entry.value) {
                    let place = self.hasher.hash_one((parent, &entry.key, value));
                    next.push(place);
                    if !matches!(rule.limits, Limits::Own(_)) {
                        self.note(parent, &entry.key, value, place, rule, diagnostics);
                    }
                }
            }
            ends = next;
        }
        let mut first = None;
        for end in ends {
            let taken = *self.rules.entry(end).or_insert(rule);
            if !std::ptr::eq(taken, rule) && overlap(taken, rule) {
                first = first.or(Some(taken));
            }
        }
        if let Some(first) = first {
            self.duplicates.insert(rule.span);
            diagnostics.push(duplicate(rule, first));
        }
    }

    /// Remembers a default or a pattern, and tells if an earlier one leaves it nothing.
    fn note(
        &mut self,
        parent: Place,
        key: &'a KeyPattern,
        value: Alternative<'a>,
        place: Place,
        rule: &'a Rule,
        diagnostics: &mut Diagnostics,
    ) {
        // Where the key is a wildcard too, all go by the order of the file, also those for every value.
        let is_default = value == Alternative::Any && matches!(key, KeyPattern::Exact(_));
        if matches!(value, Alternative::Exact(_)) || !self.known.insert(place) {
            return;
        }
        if is_default {
            self.defaults.push((parent, key, rule));
            return;
        }
        if let Some(earlier) = self.patterns.entry((parent, key)).or_default().insert(value, rule, &mut self.pairs_left)
            && is_asked_in_order(rule, earlier)
            && !std::ptr::eq(rule, earlier)
        {
            diagnostics.push(shadowed(value, rule, earlier));
        }
    }

    /// A default is tried last, so a wildcard that takes everything leaves it nothing, wherever it is written.
    fn unreached_defaults(&self, diagnostics: &mut Diagnostics) {
        for (parent, key, rule) in &self.defaults {
            let all = self.patterns.get(&(*parent, *key)).and_then(|patterns| patterns.all);
            if let Some(all) = all.filter(|all| is_asked_in_order(rule, all)) {
                let message = format!("`{}` is never reached: `*` takes every value before it", composite_key(rule));
                let warning = Diagnostic::warning("shadowed", rule.span, message).related(all.span, "the one with `*`");
                diagnostics.push(warning.help("keep one of the two: without a value, a descriptor is for every value"));
            }
        }
    }
}

impl<'a> Patterns<'a> {
    /// Adds a pattern. The answer is the rule of an earlier one that has all its values.
    fn insert(&mut self, value: Alternative<'a>, rule: &'a Rule, pairs_left: &mut usize) -> Option<&'a Rule> {
        match value {
            Alternative::Any => self.insert_glob(&EVERY_VALUE, rule, pairs_left),
            Alternative::Other(Pattern::Glob(glob)) => self.insert_glob(glob, rule, pairs_left),
            Alternative::Network(network) => self.insert_network(network, rule, pairs_left),
            Alternative::Other(exclusion @ Pattern::Not(_)) => {
                let covering = self.all.or_else(|| self.excluding(exclusion, pairs_left));
                self.exclusions.push((exclusion, rule));
                covering
            }
            Alternative::Exact(_) | Alternative::Other(_) => None,
        }
    }

    fn insert_glob(&mut self, glob: &'a Glob, rule: &'a Rule, pairs_left: &mut usize) -> Option<&'a Rule> {
        // What covers it begins as it does, with as many bytes or fewer.
        let heads = self.lengths.iter().filter_map(|length| glob.head().get(..*length));
        let candidates = heads.filter_map(|head| self.by_head.get(head)).flatten();
        let mut looked = 0;
        let covering = candidates.take(*pairs_left).inspect(|_| looked += 1);
        let covering = { covering }.find(|(earlier, _)| coverage::glob_covers(earlier, glob)).map(|(_, rule)| *rule);
        *pairs_left -= looked;
        let covering = covering.or_else(|| match &*self.exclusions {
            [] => None,
            _ => self.excluding(&Pattern::Glob(glob.clone()), pairs_left),
        });
        if !self.lengths.contains(&glob.head().len()) {
            self.lengths.push(glob.head().len());
        }
        self.by_head.entry(glob.head()).or_default().push((glob, rule));
        if glob.literal_bytes() == 0 {
            self.all = self.all.or(Some(rule));
        }
        covering
    }

    fn insert_network(&mut self, network: Network, rule: &'a Rule, pairs_left: &mut usize) -> Option<&'a Rule> {
        let wider = self.network_lengths.iter().filter(|length| **length <= network.length());
        let wider = { wider }.find_map(|length| self.networks.get(&network.shortened(*length)).copied());
        let covering = wider.or(self.all).or_else(|| match &*self.exclusions {
            [] => None,
            _ => self.excluding(&Pattern::Networks([network].into()), pairs_left),
        });
        if !self.network_lengths.contains(&network.length()) {
            self.network_lengths.push(network.length());
        }
        self.networks.entry(network).or_insert(rule);
        covering
    }

    /// The rule of one that is for anything but something, if that has all values of `pattern`.
    fn excluding(&self, pattern: &Pattern, pairs_left: &mut usize) -> Option<&'a Rule> {
        let mut looked = 0;
        let some = self.exclusions.iter().take(*pairs_left).inspect(|_| looked += 1);
        let found = { some }.find(|(earlier, _)| coverage::covers(earlier, pattern)).map(|(_, rule)| *rule);
        *pairs_left -= looked;
        found
    }
}

/// Whether two rules have a combination of values in common.
fn overlap(one: &Rule, other: &Rule) -> bool {
    let alike = |(one, other): (&Entry, &Entry)| {
        let values: HashSet<_> = alternatives(&one.value).collect();
        one.key == other.key && alternatives(&other.value).any(|value| values.contains(&value))
    };
    one.domain == other.domain
        && one.entries.len() == other.entries.len()
        && one.entries.iter().zip(&other.entries).all(alike)
}

/// Whether descriptors ask for these rules, one after the other. Where attributes do, the most specific value wins and
/// order does not matter.
fn is_asked_in_order(one: &Rule, other: &Rule) -> bool {
    [one, other].into_iter().any(|rule| matches!(rule.limits, Limits::Lyft(_)))
}

fn duplicate(rule: &Rule, first: &Rule) -> Diagnostic {
    let (code, message, help) = match rule.limits {
        Limits::Own(_) => (
            "duplicate-rule",
            format!("the rule `{}` is for the same keys and values as `{}`", rule.name, first.name),
            "write the limits of both into one rule, or tell them apart by a key or a value",
        ),
        _ => (
            "duplicate-descriptor",
            format!("duplicate descriptor composite key '{}'", composite_key(rule)),
            "write both into one descriptor, or give one of them another value",
        ),
    };
    Diagnostic::error(code, rule.span, message).related(first.span, "the first one").help(help)
}

fn shadowed(value: Alternative<'_>, rule: &Rule, earlier: &Rule) -> Diagnostic {
    let message = format!("`{value}` is never reached: an earlier pattern takes all its values");
    let warning = Diagnostic::warning("shadowed", rule.span, message);
    warning
        .related(earlier.span, "the earlier one")
        .help("of patterns the first that matches wins; put this one before it")
}
