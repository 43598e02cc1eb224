//! What a rule did for each of the values that its metrics shall name, as `detailed_metric` and `value_to_metric` ask.
//!
//! Only here do labels say what requests say. So they are bounded, for each rule and for all rules together: what finds
//! no room is counted as one, and a client that invents values cannot make a server grow.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use tollgate::rules::{Attribute, Counted, Entry, KeyPattern, Rule};

use super::counters::RuleCounters;
use super::upstream;

/// How many values one rule names, so that a flood of one leaves room for others.
const MOST_OF_A_RULE: usize = 1_000;
/// How many all rules name.
const MOST: usize = 10_000;
/// The longest text that becomes a label, in bytes.
const LONGEST: usize = 256;

/// The name of all that is not named. Texts of values have a `_` in them, so that none is this one.
pub(super) const OTHER: &str = "other";

/// Room for values, shared by all rules.
#[derive(Debug)]
pub(super) struct Room(AtomicUsize);

impl Default for Room {
    fn default() -> Self {
        Self(AtomicUsize::new(MOST))
    }
}

impl Room {
    fn take(&self) -> bool {
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
    }

    fn is_spent(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }

    fn give_back(&self, places: usize) {
        self.0.fetch_add(places, Ordering::Relaxed);
    }
}

/// What was said of a request when the rule was met.
#[derive(Clone, Copy, Debug)]
pub(super) enum Given<'a> {
    /// In any order.
    Attributes(&'a [Attribute<'a>]),
    /// In the order of the rule's levels.
    Entries(&'a [Attribute<'a>]),
}

/// One level of a rule, as metrics name it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Level {
    /// As it is written.
    Written(String),
    /// By what requests say.
    Told(Entry),
}

impl Level {
    /// The levels of a rule, if one of them is told. What is counted together is named together, whatever else is asked.
    pub(super) fn all(rule: &Rule) -> Option<Vec<Self>> {
        let is_told =
            |entry: &Entry| (rule.detailed_metric || entry.value_to_metric) && entry.counted != Counted::Together;
        let level = |entry: &Entry| match is_told(entry) {
            true => Self::Told(entry.clone()),
            false => Self::Written(upstream::level(entry)),
        };
        rule.entries.iter().any(is_told).then(|| rule.entries.iter().map(level).collect())
    }

    fn text<'a>(&'a self, at: usize, given: Given<'a>) -> Option<Cow<'a, str>> {
        let entry = match self {
            Self::Written(text) => return Some(Cow::Borrowed(text)),
            Self::Told(entry) => entry,
        };
        let is_meant = |(key, value): &&Attribute<'_>| {
            let is_key = match &entry.key {
                KeyPattern::Exact(exact) => **exact == **key,
                KeyPattern::Glob(glob) => glob.matches(key),
            };
            is_key && entry.value.matches(value)
        };
        let (key, value) = match given {
            Given::Attributes(attributes) => attributes.iter().find(is_meant)?,
            Given::Entries(entries) => entries.get(at)?,
        };
        (key.len() + value.len() < LONGEST).then(|| Cow::Owned(format!("{key}_{value}")))
    }
}

/// The counters of one rule by values.
#[derive(Debug)]
pub(super) struct Values {
    levels: Vec<Level>,
    hits: bool,
    room: Arc<Room>,
    named: RwLock<HashMap<Box<str>, Named>>,
    other: RuleCounters,
}

/// The counters of some values.
#[derive(Debug)]
struct Named {
    /// The levels that labels of envoyproxy/ratelimit have.
    levels: Vec<String>,
    counters: RuleCounters,
}

impl Values {
    pub(super) fn new(levels: Vec<Level>, hits: bool, room: Arc<Room>) -> Self {
        Self { levels, hits, room, named: RwLock::default(), other: RuleCounters::new(hits, None) }
    }

    pub(super) fn levels(&self) -> &[Level] {
        &self.levels
    }

    /// Lets `count` count for the values of a request.
    pub(super) fn with(&self, given: Given<'_>, count: impl FnOnce(&RuleCounters)) {
        let levels: Option<Vec<_>> = self.levels.iter().enumerate().map(|(at, level)| level.text(at, given)).collect();
        let text = levels.as_ref().map(|levels| levels.join(".")).filter(|text| text.len() <= LONGEST);
        let (Some(levels), Some(text)) = (levels, text) else { return count(&self.other) };
        let is_full = {
            let named = self.named.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(known) = named.get(&*text) {
                return count(&known.counters);
            }
            named.len() >= MOST_OF_A_RULE || self.room.is_spent()
        };
        if is_full {
            return count(&self.other);
        }
        let mut named = self.named.write().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have been first.
        if !named.contains_key(&*text) && (named.len() >= MOST_OF_A_RULE || !self.room.take()) {
            drop(named);
            return count(&self.other);
        }
        let new = || Named {
            levels: levels.into_iter().take(upstream::LEVELS).map(Cow::into_owned).collect(),
            counters: RuleCounters::new(self.hits, None),
        };
        count(&named.entry(text.into()).or_insert_with(new).counters);
    }

    /// Makes room: its rule has gone.
    pub(super) fn forget(&self) {
        let mut named = self.named.write().unwrap_or_else(PoisonError::into_inner);
        self.room.give_back(named.len());
        named.clear();
    }

    /// Shows each to `show`, in the order of their texts and what has no name last: with its levels, if it has some.
    pub(super) fn each(&self, mut show: impl FnMut(&str, Option<&[String]>, &RuleCounters)) {
        let named = self.named.read().unwrap_or_else(PoisonError::into_inner);
        let mut sorted: Vec<_> = named.iter().collect();
        sorted.sort_unstable_by_key(|(text, _)| *text);
        for (text, Named { levels, counters }) in sorted {
            show(text, Some(levels), counters);
        }
        show(OTHER, None, &self.other);
    }
}

impl Drop for Values {
    fn drop(&mut self) {
        self.forget();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::panic, reason = "a test fails by panicking")]

    use tollgate::rules::{Source, parse};
    use tollgate::{RuleSet, rules};

    use super::*;

    /// The only rule of a tree.
    fn rule(descriptors: &str) -> Rule {
        let text = format!("domain: d\ndescriptors: [{descriptors}]");
        let (set, problems) = RuleSet::compile(parse(vec![Source::new("rules.yaml", text)]));
        assert!(!problems.has_errors(), "{problems}");
        let [only] = set.rules() else { panic!("{descriptors}") };
        rules::CompiledRule::rule(only).clone()
    }

    const LIMIT: &str = "rate_limit: {unit: day, requests_per_unit: 9}";

    fn values(descriptors: &str, room: &Arc<Room>) -> Values {
        let Some(levels) = Level::all(&rule(descriptors)) else { panic!("no value is told of {descriptors}") };
        Values::new(levels, true, Arc::clone(room))
    }

    fn of_each_user(room: &Arc<Room>) -> Values {
        values(&format!("{{key: user, value_to_metric: true, {LIMIT}}}"), room)
    }

    fn count(values: &Values, given: Given<'_>) {
        values.with(given, |counters| {
            counters.allowed.fetch_add(1, Ordering::Relaxed);
        });
    }

    fn count_users(values: &Values, users: std::ops::Range<usize>) {
        users.for_each(|user| count(values, Given::Entries(&[("user", &user.to_string())])));
    }

    /// What is told, and how often.
    fn told(values: &Values) -> Vec<(String, u64)> {
        let mut told = Vec::new();
        values.each(|text, _, counters| told.push((text.to_owned(), counters.allowed.load(Ordering::Relaxed))));
        told.retain(|(_, times)| *times > 0);
        told
    }

    #[test]
    fn levels_are_named_as_there() {
        let entries = [("path", "/api/x"), ("user", "42")];
        for (first, second, expected) in [
            ("value_to_metric: true", "value_to_metric: false", "path_/api/x.user"),
            ("value_to_metric: false", "value_to_metric: true", "path_/api/*.user_42"),
            ("value_to_metric: false", "detailed_metric: true", "path_/api/x.user_42"),
            ("share_threshold: true", "detailed_metric: true", "path_/api/*.user_42"),
        ] {
            let below = format!("{{key: user, {second}, {LIMIT}}}");
            let tree = format!("{{key: path, value: '/api/*', {first}, descriptors: [{below}]}}");
            let values = values(&tree, &Arc::default());
            count(&values, Given::Entries(&entries));
            // Attributes come in any order, and with others.
            count(&values, Given::Attributes(&[("user", "42"), ("ip", "::1"), ("path", "/x"), ("path", "/api/x")]));
            assert_eq!(told(&values), [(expected.to_owned(), 2)], "{first}, {second}");
        }
    }

    #[test]
    fn nothing_is_kept_where_nothing_is_told() {
        for descriptors in [
            format!("{{key: user, {LIMIT}}}"),
            format!("{{key: user, value: 'a*', share_threshold: true, value_to_metric: true, {LIMIT}}}"),
        ] {
            assert_eq!(Level::all(&rule(&descriptors)), None, "{descriptors}");
        }
    }

    #[test]
    fn a_rule_names_no_more_than_its_most_and_nothing_long() {
        let values = of_each_user(&Arc::default());
        count_users(&values, 0..MOST_OF_A_RULE + 7);
        count(&values, Given::Entries(&[("user", &"x".repeat(LONGEST))]));
        count(&values, Given::Entries(&[]));
        // Who has a name keeps it.
        count_users(&values, 3..4);
        let told = told(&values);
        assert_eq!(told.len(), MOST_OF_A_RULE + 1);
        assert_eq!(told.last(), Some(&(OTHER.to_owned(), 9)));
        assert!(told.contains(&("user_3".to_owned(), 2)));
    }

    #[test]
    fn all_rules_share_room_that_comes_back() {
        let room = Arc::default();
        let rules: Vec<Values> = (0..MOST / MOST_OF_A_RULE).map(|_| of_each_user(&room)).collect();
        rules.iter().for_each(|values| count_users(values, 0..MOST_OF_A_RULE));
        let late = of_each_user(&room);
        count_users(&late, 0..2);
        assert_eq!(told(&late), [(OTHER.to_owned(), 2)]);
        rules.first().into_iter().for_each(Values::forget);
        count_users(&late, 0..1);
        drop(rules);
        assert_eq!(told(&late), [("user_0".to_owned(), 1), (OTHER.to_owned(), 2)]);
        assert_eq!(room.0.load(Ordering::Relaxed), MOST - 1);
    }
}
