//! The places that rules take in the tree of their domain: two at one place, and places that no descriptor comes to.
//!
//! The same tree as the one that is compiled, with names in place of indexes: a rule that has lists of values is at every
//! combination of them.

use std::fmt;

use hashbrown::HashMap;

use super::{MOST_PAIRS, composite_key, coverage};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::model::{KeyPattern, Limits, Mode, Rule};
use crate::pattern::{Glob, Pattern};

/// Rules that stand for more combinations are refused elsewhere.
const MOST_COMBINATIONS: usize = 1 << 16;
/// How many places are looked at in all.
const MOST_PLACES: usize = 1 << 22;

/// One of the patterns that a list stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Alternative<'a> {
    Any,
    Exact(&'a str),
    Other(&'a Pattern),
}

impl fmt::Display for Alternative<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("*"),
            Self::Exact(value) => f.write_str(value),
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
    values.chain(patterns.iter().map(|pattern| match pattern {
        Pattern::Any => Alternative::Any,
        Pattern::Exact(value) => Alternative::Exact(value),
        other => Alternative::Other(other),
    }))
}

/// Tells which rules are at the same place, and which are at one that is never reached.
pub(super) fn check(rules: &[Rule], diagnostics: &mut Diagnostics) {
    let mut places = Places::with_capacity(rules.len());
    for rule in rules.iter().filter(|rule| rule.mode != Mode::Off) {
        places.add(rule, diagnostics);
    }
    places.unreached_defaults(diagnostics);
}

struct Places<'a> {
    domains: HashMap<&'a str, u32>,
    children: HashMap<(u32, &'a KeyPattern, Alternative<'a>), u32>,
    /// By place.
    rules: Vec<Option<&'a Rule>>,
    wildcards: HashMap<(u32, &'a KeyPattern), Wildcards<'a>>,
    /// Each key's default, to be compared with wildcards that may come later.
    defaults: Vec<(u32, &'a KeyPattern, &'a Rule)>,
    pairs_left: usize,
    places_left: usize,
}

/// The wildcards of one key, in the order of the files.
#[derive(Default)]
struct Wildcards<'a> {
    by_head: HashMap<&'a str, Vec<(&'a Glob, &'a Rule)>>,
    /// How long the heads are.
    lengths: Vec<usize>,
    /// The one that takes every value.
    all: Option<&'a Rule>,
}

impl<'a> Places<'a> {
    fn with_capacity(rules: usize) -> Self {
        Self {
            domains: HashMap::new(),
            children: HashMap::with_capacity(rules),
            rules: Vec::with_capacity(rules),
            wildcards: HashMap::new(),
            defaults: Vec::new(),
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
        let root = match self.domains.get(&*rule.domain) {
            Some(root) => *root,
            None => {
                let root = self.new_place();
                self.domains.insert(&rule.domain, root);
                root
            }
        };
        let mut ends = vec![root];
        for entry in &rule.entries {
            let mut next = Vec::with_capacity(ends.len());
            for place in ends {
                next.extend(
                    alternatives(&entry.value).map(|value| self.child(place, &entry.key, value, rule, diagnostics)),
                );
            }
            ends = next;
        }
        let mut first = None;
        for end in ends {
            match self.rules.get_mut(end as usize) {
                Some(Some(taken)) if !std::ptr::eq(*taken, rule) => first = first.or(Some(*taken)),
                Some(place) => *place = Some(rule),
                None => {}
            }
        }
        if let Some(first) = first {
            diagnostics.push(duplicate(rule, first));
        }
    }

    fn new_place(&mut self) -> u32 {
        self.rules.push(None);
        u32::try_from(self.rules.len() - 1).unwrap_or(u32::MAX)
    }

    fn child(
        &mut self,
        parent: u32,
        key: &'a KeyPattern,
        value: Alternative<'a>,
        rule: &'a Rule,
        diagnostics: &mut Diagnostics,
    ) -> u32 {
        if let Some(known) = self.children.get(&(parent, key, value)) {
            return *known;
        }
        let place = self.new_place();
        self.children.insert((parent, key, value), place);
        match value {
            Alternative::Any => self.defaults.push((parent, key, rule)),
            Alternative::Other(Pattern::Glob(glob)) => {
                let wildcards = self.wildcards.entry((parent, key)).or_default();
                if let Some(earlier) = wildcards.insert(glob, rule, &mut self.pairs_left)
                    && is_asked_in_order(rule, earlier)
                {
                    diagnostics.push(shadowed(glob, rule, earlier));
                }
            }
            Alternative::Exact(_) | Alternative::Other(_) => {}
        }
        place
    }

    /// A default is tried last, so a wildcard that takes everything leaves it nothing, wherever it is written.
    fn unreached_defaults(&self, diagnostics: &mut Diagnostics) {
        for (parent, key, rule) in &self.defaults {
            let all = self.wildcards.get(&(*parent, *key)).and_then(|wildcards| wildcards.all);
            if let Some(all) = all.filter(|all| is_asked_in_order(rule, all)) {
                let message = format!("`{}` is never reached: `*` takes every value before it", composite_key(rule));
                let warning = Diagnostic::warning("shadowed", rule.span, message).related(all.span, "the one with `*`");
                diagnostics.push(warning.help("keep one of the two: without a value, a descriptor is for every value"));
            }
        }
    }
}

impl<'a> Wildcards<'a> {
    /// Adds a wildcard. The answer is the rule of an earlier one that has all its values.
    fn insert(&mut self, glob: &'a Glob, rule: &'a Rule, pairs_left: &mut usize) -> Option<&'a Rule> {
        // What covers it begins as it does, with as many bytes or fewer.
        let heads = self.lengths.iter().filter_map(|length| glob.head().get(..*length));
        let candidates = heads.filter_map(|head| self.by_head.get(head)).flatten();
        let mut looked = 0;
        let covering = candidates.take(*pairs_left).inspect(|_| looked += 1);
        let covering = { covering }.find(|(earlier, _)| coverage::glob_covers(earlier, glob)).map(|(_, rule)| *rule);
        *pairs_left -= looked;
        if !self.lengths.contains(&glob.head().len()) {
            self.lengths.push(glob.head().len());
        }
        self.by_head.entry(glob.head()).or_default().push((glob, rule));
        if glob.literal_bytes() == 0 {
            self.all = self.all.or(Some(rule));
        }
        covering
    }
}

/// Whether descriptors ask for these rules, one after the other. Where attributes do, the most specific value wins and order
/// does not matter.
fn is_asked_in_order(one: &Rule, other: &Rule) -> bool {
    [one, other].into_iter().any(|rule| matches!(rule.limits, Limits::Lyft(_)))
}

fn duplicate(rule: &Rule, first: &Rule) -> Diagnostic {
    let (message, help) = match rule.limits {
        Limits::Own(_) => (
            format!("the rule `{}` is for the same keys and values as `{}`", rule.name, first.name),
            "write the limits of both into one rule, or tell them apart by a key or a value",
        ),
        _ => (
            format!("duplicate descriptor composite key '{}'", composite_key(rule)),
            "write both into one descriptor, or give one of them another value",
        ),
    };
    Diagnostic::error("duplicate-rule", rule.span, message).related(first.span, "the first one").help(help)
}

fn shadowed(glob: &Glob, rule: &Rule, earlier: &Rule) -> Diagnostic {
    let message = format!("`{glob}` is never reached: an earlier wildcard takes all its values");
    let warning = Diagnostic::warning("shadowed", rule.span, message);
    warning
        .related(earlier.span, "the earlier one")
        .help("of wildcards the first that matches wins; put this one before it")
}
