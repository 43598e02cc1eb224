//! Rules of tollgate's own for anything but something, of which another leaves nothing.
//!
//! More is said by other patterns than by these, so that whoever asks by attributes finds them last, and two of them in
//! the order of the file; whoever asks by descriptors finds all patterns in that order. So one that comes first and has
//! all values of another is in its way however it is asked for.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashMap};

use super::Work;
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::model::{Entry, KeyPattern, Limits, Mode, Rule};
use crate::pattern::Pattern;

/// Rules of the same domain and keys that have an exclusion, in the order of the files.
type Alike<'a> = HashMap<(&'a str, bool, Vec<&'a KeyPattern>), Vec<&'a Rule>>;

/// Tells of exclusions that an earlier one leaves nothing.
pub(super) fn check(rules: &[Rule], work: &mut Work, diagnostics: &mut Diagnostics) {
    let has_exclusion = |rule: &&Rule| rule.entries.iter().any(|entry| matches!(entry.value, Pattern::Not(_)));
    let mut alike = Alike::new();
    let order = Order::new(rules.iter().filter(has_exclusion));
    for rule in rules.iter().filter(|rule| rule.mode != Mode::Off).filter(has_exclusion) {
        let keys = rule.entries.iter().map(|entry| &entry.key).collect();
        let before = alike.entry((&*rule.domain, rule.is_beside(), keys)).or_default();
        let looked = if work.take(before.len()) { &**before } else { &[] };
        let mut some = looked.iter().filter(|earlier| !is_told([rule, earlier]));
        if let Some(earlier) = some.find(|earlier| leaves_nothing(earlier, rule, &order, work)) {
            let message =
                format!("the rule `{}` never applies: `{}` is for all that it is for", rule.name, earlier.name);
            let warning = Diagnostic::warning("shadowed", rule.span, message).related(earlier.span, "the earlier one");
            diagnostics
                .push(warning.help("of two rules for anything but something, the first wins; put this one before it"));
        }
        before.push(rule);
    }
}

/// Whether it is told elsewhere that one of these is in the way of the other: where descriptors ask.
fn is_told(rules: [&Rule; 2]) -> bool {
    rules.iter().any(|rule| matches!(rule.limits, Limits::Lyft(_)))
}

/// Whether `earlier` is met before `rule` by all that meets `rule`.
fn leaves_nothing(earlier: &Rule, rule: &Rule, order: &Order, work: &mut Work) -> bool {
    let mut pairs = earlier.entries.iter().zip(&rule.entries);
    let Some(at) = pairs.position(|(one, other)| !work.same(&one.value, &other.value)) else { return false };
    let is_exclusion = |rule: &Rule| matches!(rule.entries.get(at), Some(Entry { value: Pattern::Not(_), .. }));
    is_exclusion(earlier)
        && is_exclusion(rule)
        && order.of(earlier, at) < order.of(rule, at)
        && earlier.entries.iter().zip(&rule.entries).all(|(wide, narrow)| work.covers(&wide.value, &narrow.value))
}

/// In which order exclusions were met first, whatever rule had them: that is the order in which they are tried.
struct Order {
    hasher: DefaultHashBuilder,
    numbers: HashMap<u64, usize>,
}

impl Order {
    fn new<'a>(rules: impl Iterator<Item = &'a Rule>) -> Self {
        let mut order = Self { hasher: DefaultHashBuilder::default(), numbers: HashMap::new() };
        for rule in rules.filter(|rule| rule.mode != Mode::Off) {
            for (at, _) in rule.entries.iter().enumerate().filter(|(_, entry)| matches!(entry.value, Pattern::Not(_))) {
                let next = order.numbers.len();
                order.numbers.entry(order.place(rule, at)).or_insert(next);
            }
        }
        order
    }

    fn place(&self, rule: &Rule, at: usize) -> u64 {
        let way = rule.entries.get(..=at).unwrap_or_default();
        let way: Vec<_> = way.iter().map(|entry| (&entry.key, &entry.value)).collect();
        self.hasher.hash_one((&rule.domain, rule.is_beside(), way))
    }

    fn of(&self, rule: &Rule, at: usize) -> Option<usize> {
        self.numbers.get(&self.place(rule, at)).copied()
    }
}
