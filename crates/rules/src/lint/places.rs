//! The places that rules take in the tree of their domain: two at one place, and places that no descriptor comes to.
//!
//! The same places as those of the tree that is compiled: a rule that has lists of values is at every combination of
//! them.

use std::borrow::Cow;
use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashMap, HashSet};
use smallvec::{SmallVec, smallvec};

use super::{Work, composite_key, coverage, key_text};
use crate::diagnostic::{Diagnostic, Diagnostics, Span};
use crate::model::{Entry, KeyPattern, Limits, Mode, Rule};
use crate::pattern::{Glob, Network, Pattern, text_size};
use crate::ruleset::{MAX_COMBINATIONS, MAX_NODES};
use crate::tree::Tree;

/// Trying so many patterns takes some microseconds.
const MOST_TRIED: usize = 1_000;

/// One of the patterns that a list stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Alternative<'a> {
    Any,
    Exact(&'a str),
    Network(Network),
    Other(&'a Pattern),
}

impl<'a> Alternative<'a> {
    fn pattern(self) -> Cow<'a, Pattern> {
        match self {
            Self::Any => Cow::Owned(Pattern::Any),
            Self::Exact(value) => Cow::Owned(Pattern::Exact(value.into())),
            Self::Network(network) => Cow::Owned(Pattern::Networks([network].into())),
            Self::Other(pattern) => Cow::Borrowed(pattern),
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
pub(super) fn check(rules: &[Rule], work: &mut Work, diagnostics: &mut Diagnostics) -> HashSet<Span> {
    let mut places = Places::new(rules, work);
    for rule in rules.iter().filter(|rule| rule.mode != Mode::Off) {
        places.add(rule, diagnostics);
    }
    places.unreached_defaults(diagnostics);
    places.tried_one_by_one(diagnostics);
    places.duplicates
}

/// A place, by a hash of the way to it. What is said of two rules at one place is verified; that two places of
/// wildcards have one hash is less likely than a fault of the memory.
type Place = u64;

struct Places<'a, 'w> {
    hasher: DefaultHashBuilder,
    rules: HashMap<Place, &'a Rule>,
    /// Those of exact keys.
    patterns: HashMap<(Place, &'a KeyPattern), Patterns<'a>>,
    /// Those whose keys are wildcards too, in the order of the files.
    by_key: HashMap<Place, Vec<ByKey<'a>>>,
    /// Patterns that were met, by rules of either kind: of tollgate's own and others.
    known: HashSet<(Place, bool)>,
    /// Each key's default, to be compared with wildcards that may come later.
    defaults: Vec<(Place, &'a KeyPattern, Known<'a>)>,
    /// Those that are found by nothing but trying each, and the first rule of them.
    tried: HashMap<Tried<'a>, (usize, &'a Rule)>,
    /// Domains in which descriptors ask for some rule.
    in_order: HashSet<&'a str>,
    duplicates: HashSet<Span>,
    work: &'w mut Work,
    nodes_left: usize,
}

/// Where patterns are tried one by one: which key they are for, and how they begin and end.
type Tried<'a> = (Place, Option<&'a KeyPattern>, &'a str, &'a str);

/// Where a pattern is, and the rule that had it first.
#[derive(Clone, Copy)]
struct Known<'a> {
    place: Place,
    rule: &'a Rule,
}

/// A pattern whose key is one.
struct ByKey<'a> {
    key: &'a Glob,
    value: Alternative<'a>,
    known: Known<'a>,
}

impl<'a, 'w> Places<'a, 'w> {
    fn new(rules: &'a [Rule], work: &'w mut Work) -> Self {
        let lyft = rules.iter().filter(|rule| matches!(rule.limits, Limits::Lyft(_)));
        Self {
            hasher: DefaultHashBuilder::default(),
            rules: HashMap::with_capacity(rules.len()),
            patterns: HashMap::new(),
            by_key: HashMap::new(),
            known: HashSet::new(),
            defaults: Vec::new(),
            tried: HashMap::new(),
            in_order: lyft.map(|rule| &*rule.domain).collect(),
            duplicates: HashSet::new(),
            work,
            nodes_left: MAX_NODES,
        }
    }

    fn add(&mut self, rule: &'a Rule, diagnostics: &mut Diagnostics) {
        // Those that are too large are refused elsewhere.
        let nodes = Tree::nodes(&rule.entries);
        if Tree::combinations(&rule.entries) > MAX_COMBINATIONS || nodes > self.nodes_left {
            return;
        }
        self.nodes_left -= nodes;
        let mut ends: SmallVec<[Place; 4]> = smallvec![self.hasher.hash_one((&rule.domain, rule.is_beside()))];
        for entry in &rule.entries {
            let mut next = SmallVec::new();
            for parent in ends {
                for value in alternatives(&entry.value) {
                    let place = self.hasher.hash_one((parent, &entry.key, value));
                    next.push(place);
                    self.note(parent, &entry.key, value, Known { place, rule }, diagnostics);
                }
            }
            ends = next;
        }
        let mut first = None;
        for end in ends {
            let taken = *self.rules.entry(end).or_insert(rule);
            if first.is_none() && !std::ptr::eq(taken, rule) && overlap(taken, rule) {
                first = Some(taken);
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
        new: Known<'a>,
        diagnostics: &mut Diagnostics,
    ) {
        let is_own = matches!(new.rule.limits, Limits::Own(_));
        let is_exact = matches!((key, value), (KeyPattern::Exact(_), Alternative::Exact(_)));
        if is_exact || !self.known.insert((new.place, is_own)) {
            return;
        }
        if !self.known.contains(&(new.place, !is_own)) {
            self.count_tried(parent, key, value, new.rule);
        }
        if !self.in_order.contains(&*new.rule.domain) {
            return;
        }
        let earlier = match key {
            // Where the key is a wildcard too, all go by the order of the file, also those for every value.
            KeyPattern::Glob(glob) => {
                let earlier = self.by_key(parent, key, value, new.place);
                self.by_key.entry(parent).or_default().push(ByKey { key: glob, value, known: new });
                earlier
            }
            KeyPattern::Exact(_) if value == Alternative::Any => {
                self.defaults.push((parent, key, new));
                None
            }
            KeyPattern::Exact(_) => {
                let covering = self.patterns.entry((parent, key)).or_default().insert(value, new, self.work);
                covering.or_else(|| self.by_key(parent, key, value, new.place))
            }
        };
        if let Some(earlier) = earlier
            && is_asked_in_order(new.rule, earlier)
            && !std::ptr::eq(new.rule, earlier)
        {
            diagnostics.push(shadowed(key, value, new.rule, earlier));
        }
    }

    /// The rule of an earlier pattern for several keys that takes all values of these.
    fn by_key(&mut self, parent: Place, key: &KeyPattern, value: Alternative<'_>, place: Place) -> Option<&'a Rule> {
        for earlier in self.by_key.get(&parent)? {
            if !self.work.take(1) {
                break;
            }
            if earlier.known.place != place
                && covers_key(earlier.key, key)
                && self.work.covers(&earlier.value.pattern(), &value.pattern())
            {
                return Some(earlier.known.rule);
            }
        }
        None
    }

    fn count_tried(&mut self, parent: Place, key: &'a KeyPattern, value: Alternative<'a>, rule: &'a Rule) {
        let tried = match (key, value) {
            (KeyPattern::Glob(_), _) => (parent, None, "", ""),
            (_, Alternative::Other(Pattern::Glob(glob))) => (parent, Some(key), glob.head(), glob.tail()),
            (_, Alternative::Other(_)) => (parent, Some(key), "", ""),
            _ => return,
        };
        self.tried.entry(tried).or_insert((0, rule)).0 += 1;
    }

    /// Tells of patterns that are so many that trying each takes longer than a decision may.
    fn tried_one_by_one(&self, diagnostics: &mut Diagnostics) {
        for ((_, key, head, tail), (many, rule)) in self.tried.iter().filter(|(_, (many, _))| *many > MOST_TRIED) {
            let (what, help) = match key {
                None => ("keys with a `*`".to_owned(), "name the keys one by one, whose values are looked up"),
                Some(key) if head.is_empty() && tail.is_empty() => (
                    format!("patterns of `{}` without a fixed beginning or end", key_text(key)),
                    "give each a fixed beginning or end of its own, or write values, which are looked up",
                ),
                Some(key) => (
                    format!("patterns of `{}` that begin and end alike", key_text(key)),
                    "give each a beginning or an end of its own, or write values, which are looked up",
                ),
            };
            let message = format!("{many} {what} are tried one by one for each request");
            diagnostics.push(Diagnostic::warning("tried-one-by-one", rule.span, message).help(help));
        }
    }

    /// A default is tried last, so a wildcard that takes everything leaves it nothing, wherever it is written.
    fn unreached_defaults(&mut self, diagnostics: &mut Diagnostics) {
        for (parent, key, Known { place, rule }) in std::mem::take(&mut self.defaults) {
            let all = self.patterns.get(&(parent, key)).and_then(|patterns| patterns.all).map(|known| known.rule);
            let all = all.or_else(|| self.by_key(parent, key, Alternative::Any, place));
            if let Some(all) = all.filter(|all| is_asked_in_order(rule, all)) {
                let message = format!("`{}` is never reached: a `*` takes every value before it", composite_key(rule));
                let warning = Diagnostic::warning("shadowed", rule.span, message).related(all.span, "the one with `*`");
                diagnostics.push(warning.help("keep one of the two: without a value, a descriptor is for every value"));
            }
        }
    }
}

fn covers_key(wide: &Glob, key: &KeyPattern) -> bool {
    match key {
        KeyPattern::Exact(key) => wide.matches(key),
        KeyPattern::Glob(narrow) => coverage::glob_covers(wide, narrow),
    }
}

/// The patterns of one key, in the order of the files.
#[derive(Default)]
struct Patterns<'a> {
    by_head: HashMap<&'a str, Vec<(&'a Glob, Known<'a>)>>,
    /// How long the heads are.
    lengths: Vec<usize>,
    networks: HashMap<Network, Known<'a>>,
    /// How long the prefixes are.
    network_lengths: Vec<u8>,
    /// Those that are for anything but something.
    exclusions: Vec<(&'a Pattern, Known<'a>)>,
    /// The one that takes every value.
    all: Option<Known<'a>>,
}

impl<'a> Patterns<'a> {
    /// Adds a pattern. The answer is the rule of an earlier one that has all its values.
    fn insert(&mut self, value: Alternative<'a>, new: Known<'a>, work: &mut Work) -> Option<&'a Rule> {
        let covering = match value {
            Alternative::Other(Pattern::Glob(glob)) => self.insert_glob(glob, new, work),
            Alternative::Network(network) => self.insert_network(network, new, work),
            Alternative::Other(exclusion @ Pattern::Not(_)) => {
                let covering = self.all.or_else(|| self.excluding(exclusion, new.place, work));
                self.exclusions.push((exclusion, new));
                covering
            }
            Alternative::Any | Alternative::Exact(_) | Alternative::Other(_) => None,
        };
        covering.map(|known| known.rule)
    }

    fn insert_glob(&mut self, glob: &'a Glob, new: Known<'a>, work: &mut Work) -> Option<Known<'a>> {
        // What covers it begins as it does, with as many bytes or fewer.
        let heads = self.lengths.iter().filter_map(|length| glob.head().get(..*length));
        let candidates = heads.filter_map(|head| self.by_head.get(head)).flatten();
        let steps = text_size(glob.literal_bytes());
        let mut looked_at = candidates.take_while(|_| work.take(steps));
        let covering =
            looked_at.find(|(earlier, known)| known.place != new.place && coverage::glob_covers(earlier, glob));
        let covering = covering.map(|(_, known)| *known).or_else(|| match &*self.exclusions {
            [] => None,
            _ => self.excluding(&Pattern::Glob(glob.clone()), new.place, work),
        });
        if !self.lengths.contains(&glob.head().len()) {
            self.lengths.push(glob.head().len());
        }
        self.by_head.entry(glob.head()).or_default().push((glob, new));
        if glob.literal_bytes() == 0 {
            self.all = self.all.or(Some(new));
        }
        covering
    }

    fn insert_network(&mut self, network: Network, new: Known<'a>, work: &mut Work) -> Option<Known<'a>> {
        let wider = self.network_lengths.iter().filter(|length| **length <= network.length());
        let mut wider = wider.filter_map(|length| self.networks.get(&network.shortened(*length)).copied());
        let covering = wider.find(|known| known.place != new.place).or(self.all).or_else(|| match &*self.exclusions {
            [] => None,
            _ => self.excluding(&Pattern::Networks([network].into()), new.place, work),
        });
        if !self.network_lengths.contains(&network.length()) {
            self.network_lengths.push(network.length());
        }
        self.networks.entry(network).or_insert(new);
        covering
    }

    /// One that is for anything but something, if that has all values of `pattern`.
    fn excluding(&self, pattern: &Pattern, place: Place, work: &mut Work) -> Option<Known<'a>> {
        for (earlier, known) in &self.exclusions {
            if !work.take(1) {
                break;
            }
            if known.place != place && work.covers(earlier, pattern) {
                return Some(*known);
            }
        }
        None
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

fn shadowed(key: &KeyPattern, value: Alternative<'_>, rule: &Rule, earlier: &Rule) -> Diagnostic {
    let what = match key {
        KeyPattern::Glob(_) => composite_key(rule),
        KeyPattern::Exact(_) => value.pattern().to_string(),
    };
    let message = format!("`{what}` is never reached: an earlier pattern takes all its values");
    let warning = Diagnostic::warning("shadowed", rule.span, message);
    warning
        .related(earlier.span, "the earlier one")
        .help("of patterns the first that matches wins; put this one before it")
}
