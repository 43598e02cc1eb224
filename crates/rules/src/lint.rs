//! What is wrong only between rules, and what is legal and probably wrong.
//!
//! Errors are what a compiled set could not keep apart: two rules at one place, or of one name. Everything else is a
//! warning, and only given where it is certain: a rule is never suspected. The work is proportional to the number of
//! rules; where looking at pairs is unavoidable, it ends when a budget is spent.

mod bound;
mod coverage;
mod exclusions;
mod listed;
mod places;
mod work;

use hashbrown::{HashMap, HashSet};
use tollgate_core::{Algorithm, Limit};

use crate::diagnostic::{Diagnostic, Diagnostics, Span};
use crate::model::{Condition, KeyPattern, Limits, Mode, Rule, RuleLimit};
use crate::nearest::nearest;
use crate::pattern::Pattern;

pub(crate) use listed::Listed;
pub(crate) use work::Work;

/// Of a rule's limits so many are compared with one another.
const MOST_LIMITS: usize = 32;

/// Looks at all rules together.
pub(crate) fn lint(rules: &[Rule], work: &mut Work, diagnostics: &mut Diagnostics) {
    let duplicates = places::check(rules, work, diagnostics);
    names(rules, &duplicates, diagnostics);
    replaced(rules, work, diagnostics);
    exclusions::check(rules, work, diagnostics);
    for rule in rules {
        if rule.mode == Mode::Off {
            let message = format!("the rule `{}` is off: it is as if it were not there", rule.name);
            let help = "write `mode: shadow` to have it counted, or remove the rule";
            diagnostics.push(Diagnostic::warning("off", rule.span, message).help(help));
            continue;
        }
        never_applies(rule, work, diagnostics);
        if let Limits::Own(limits) = &rule.limits {
            pointless(limits, diagnostics);
            denying(limits, diagnostics);
        }
    }
}

/// Two rules of one name would count together. Of those in `duplicates`, which may have no names of their own, worse is
/// told.
fn names(rules: &[Rule], duplicates: &HashSet<Span>, diagnostics: &mut Diagnostics) {
    let mut known: HashMap<(&str, &str), Span> = HashMap::with_capacity(rules.len());
    for rule in rules.iter().filter(|rule| rule.mode != Mode::Off && matches!(rule.limits, Limits::Own(_))) {
        match known.entry((&rule.domain, &rule.name)) {
            hashbrown::hash_map::Entry::Vacant(place) => drop(place.insert(rule.span)),
            hashbrown::hash_map::Entry::Occupied(_) if duplicates.contains(&rule.span) => {}
            hashbrown::hash_map::Entry::Occupied(first) => {
                let message = format!("two rules of the domain `{}` are called `{}`", rule.domain, rule.name);
                let error =
                    Diagnostic::error("duplicate-name", rule.span, message).related(*first.get(), "the other one");
                diagnostics.push(error.help("give one of them another `name`; the name tells their counters apart"));
            }
        }
    }
}

/// In Lyft's dialect, limits that replace others name them.
fn replaced(rules: &[Rule], work: &mut Work, diagnostics: &mut Diagnostics) {
    fn limit(rule: &Rule) -> Option<&crate::model::LyftLimit> {
        match &rule.limits {
            Limits::Lyft(limit) => Some(limit),
            _ => None,
        }
    }
    let replacing: Vec<_> = rules
        .iter()
        .filter_map(|rule| limit(rule).filter(|limit| !limit.replaces.is_empty()).map(|limit| (rule, limit)))
        .collect();
    if replacing.is_empty() {
        return;
    }
    let names: HashSet<(&str, &str)> =
        rules.iter().filter_map(|rule| Some((&*rule.domain, limit(rule)?.name.as_deref()?))).collect();
    for (rule, limit) in replacing {
        for name in limit.replaces.iter().filter(|name| !names.contains(&(&*rule.domain, &***name))) {
            let message = format!("`{name}` is replaced, and no limit of the domain `{}` has that name", rule.domain);
            let mut warning = Diagnostic::warning("replaces-nothing", rule.span, message)
                .help("give the limit that is meant this `name`, or remove it from `replaces`");
            if work.take(names.len()) {
                let here = names.iter().filter(|(domain, _)| **domain == *rule.domain).map(|(_, name)| *name);
                if let Some(near) = nearest(name, here) {
                    warning.help = Some(format!("did you mean `{near}`?"));
                }
            }
            diagnostics.push(warning);
        }
    }
}

/// A rule that no request can meet.
fn never_applies(rule: &Rule, work: &mut Work, diagnostics: &mut Diagnostics) {
    let name = &rule.name;
    if let Some(entry) = rule.entries.iter().find(|entry| coverage::is_none(&entry.value)) {
        let key = key_text(&entry.key);
        let message = format!("the rule `{name}` never applies: no value of `{key}` is `{}`", entry.value);
        let help = "write which values it is for, or remove the rule";
        diagnostics.push(Diagnostic::warning("never-applies", rule.span, message).help(help));
        return;
    }
    // A pattern of keys may stand for a key that has a condition, with another value than the rule asks for.
    if rule.entries.iter().any(|entry| matches!(entry.key, KeyPattern::Glob(_))) {
        return;
    }
    let met_always = |condition: &Condition, work: &mut Work| {
        let mut entries = rule.entries.iter();
        // Where a key is asked for twice, it is the first that is compared.
        let entry = entries.find(|entry| matches!(&entry.key, KeyPattern::Exact(key) if *key == condition.key));
        work.take(1 + rule.entries.len()) && entry.is_some_and(|entry| work.covers(&condition.value, &entry.value))
    };
    // Exceptions of a whole file are shared by its rules; many of both are not worth the time.
    if !work.take(rule.unless.len() + rule.exempt.len()) {
        return;
    }
    let always = rule.exceptions().find(|group| group.iter().all(|condition| met_always(condition, work)));
    if let Some(group) = always {
        let all = group.iter().map(|condition| format!("{}={}", condition.key, condition.value)).collect::<Vec<_>>();
        let exception =
            if all.is_empty() { "everything".to_owned() } else { format!("`{}`", shortened(&all.join(" "))) };
        let message = format!("the rule `{name}` never applies: all that it is for is excepted by {exception}");
        let help = "make the exception narrower, or remove the rule";
        diagnostics.push(Diagnostic::warning("never-applies", rule.span, message).help(help));
    }
}

/// The beginning of what is too long for a message.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(80) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Limits that another of the same rule makes pointless.
fn pointless(limits: &[RuleLimit], diagnostics: &mut Diagnostics) {
    let limits = limits.get(..MOST_LIMITS).unwrap_or(limits);
    // Beside one that denies everything all are pointless, and that one is told already.
    if limits.iter().any(|limit| denies_all(&limit.limit)) {
        return;
    }
    for (at, limit) in limits.iter().enumerate() {
        let others = || limits.iter().enumerate().filter(|(other, _)| *other != at);
        let stricter = others().find(|(other, stricter)| {
            let alike = stricter.unit == limit.unit && bound::never_denies(&limit.limit, &stricter.limit);
            // Of two that make each other pointless, the first is kept.
            alike && (*other < at || !bound::never_denies(&stricter.limit, &limit.limit))
        });
        if let Some((_, stricter)) = stricter {
            let message = format!("`{}` never denies anything: `{}` always denies first", limit.text, stricter.text);
            let warning = Diagnostic::warning("pointless-limit", limit.span, message);
            diagnostics
                .push(warning.related(stricter.span, "the stricter one").help("leave it out, or make it smaller"));
        }
    }
}

/// Limits of zero.
fn denying(limits: &[RuleLimit], diagnostics: &mut Diagnostics) {
    for limit in limits.iter().filter(|limit| denies_all(&limit.limit)) {
        let message = format!("`{}` denies everything", limit.text);
        let help = "write how many may pass; what is never to pass is better refused before it is counted";
        diagnostics.push(Diagnostic::warning("denies-all", limit.span, message).help(help));
    }
}

fn denies_all(limit: &Limit) -> bool {
    let most = match limit.algorithm() {
        Algorithm::TokenBucket(spec) => spec.capacity.max(spec.initial.unwrap_or(0)).max(spec.loan),
        Algorithm::FixedWindow(spec) => spec.limit,
        Algorithm::SlidingLog(spec) => spec.limit,
        Algorithm::SlidingCounter(spec) => spec.limit,
        Algorithm::Concurrency(spec) => spec.slots,
        Algorithm::Pacing(spec) => spec.budget,
        Algorithm::LeakyBucket(spec) => bound::leaky_room(spec),
    };
    most == 0 && limit.softness().is_none()
}

fn key_text(key: &KeyPattern) -> String {
    match key {
        KeyPattern::Exact(key) => key.to_string(),
        KeyPattern::Glob(glob) => glob.to_string(),
    }
}

/// As upstream writes the place of a descriptor: `domain.key_value.key`.
fn composite_key(rule: &Rule) -> String {
    let parts = rule.entries.iter().map(|entry| {
        let key = key_text(&entry.key);
        match &entry.value {
            Pattern::Any => key,
            value => format!("{key}_{value}"),
        }
    });
    std::iter::once(rule.domain.to_string()).chain(parts).collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests;
