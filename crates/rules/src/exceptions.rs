//! What takes rules out, made ready to be asked: of many groups of one condition, those for the same key become one.
//!
//! It takes out the same as what was written. Groups of several conditions stay as they are, and are tried one by one.

use std::sync::Arc;

use hashbrown::HashMap;

use crate::model::{Condition, Rule};
use crate::pattern::Pattern;

/// Fewer groups are tried as they are.
const MANY: usize = 8;

/// Groups of conditions that rules share.
pub(crate) type Shared = Arc<[Vec<Condition>]>;

/// The exceptions of a file's rules, which share theirs before and after.
#[derive(Default)]
pub(crate) struct Exceptions {
    of_file: Option<(Shared, Shared)>,
}

impl Exceptions {
    /// Makes those of `rule` ready. Rules of one file come one after the other.
    pub(crate) fn gather(&mut self, rule: &mut Rule) {
        if rule.unless.len() >= MANY {
            rule.unless = gathered(&rule.unless);
        }
        if rule.exempt.len() < MANY {
            return;
        }
        if let Some((_, gathered)) = self.of_file.as_ref().filter(|(written, _)| Arc::ptr_eq(written, &rule.exempt)) {
            rule.exempt = Arc::clone(gathered);
            return;
        }
        let written = Arc::clone(&rule.exempt);
        rule.exempt = gathered(&written).into();
        self.of_file = Some((written, Arc::clone(&rule.exempt)));
    }
}

fn gathered(groups: &[Vec<Condition>]) -> Vec<Vec<Condition>> {
    let mut places: HashMap<Arc<str>, usize> = HashMap::new();
    let mut alone: Vec<(Arc<str>, Vec<Pattern>)> = Vec::new();
    let mut others = Vec::new();
    for group in groups {
        let [Condition { key, value }] = &**group else {
            others.push(group.clone());
            continue;
        };
        let place = *places.entry(Arc::clone(key)).or_insert(alone.len());
        match alone.get_mut(place) {
            Some((_, patterns)) => patterns.push(value.clone()),
            None => alone.push((Arc::clone(key), vec![value.clone()])),
        }
    }
    let alone = alone.into_iter().map(|(key, patterns)| vec![Condition { key, value: Pattern::any_of(patterns) }]);
    alone.chain(others).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{RuleSet, Source, parse};

    #[test]
    fn many_exceptions_take_out_what_they_took_out_one_by_one() {
        let mut unless = String::from("    - {path: /a, method: GET}\n    - {ip: 2001:db8::/32}\n");
        for number in 0..200 {
            unless += &format!("    - {{ip: 10.{number}.0.0/16}}\n    - {{user: u{number}}}\n");
        }
        unless += "    - {user: \"root*\"}\n";
        let exempt = unless.replace("    - ", "- ");
        for text in [
            format!("rules:\n- name: a\n  limits: 5/s\n  unless:\n{unless}"),
            format!("exempt:\n{exempt}rules:\n- {{name: a, limits: 5/s}}\n- {{name: b, per: x, limits: 5/s}}\n"),
        ] {
            let (rules, diagnostics) = RuleSet::compile(parse(vec![Source::new("a", text)]));
            assert!(!diagnostics.has_errors(), "{diagnostics}");
            let first = rules.rules()[0].rule();
            assert_eq!(first.exceptions().count(), 3, "by `ip`, by `user`, and by two keys");
            assert!(rules.rules().iter().all(|rule| Arc::ptr_eq(&rule.rule().exempt, &first.exempt)));
            for (attributes, exempt) in [
                (&[("ip", "10.7.1.2")][..], true),
                (&[("ip", "::ffff:10.7.1.2")], true),
                (&[("ip", "2001:db8:1::1")], true),
                (&[("ip", "10.200.0.1")], false),
                (&[("ip", "u7")], false),
                (&[("user", "u199")], true),
                (&[("user", "rooted")], true),
                (&[("user", "u200")], false),
                (&[("path", "/a"), ("method", "GET")], true),
                (&[("path", "/a"), ("method", "POST")], false),
                (&[("path", "/a")], false),
                (&[], false),
            ] {
                let mut met = 0;
                rules.collect("default", attributes, |_| met += 1);
                assert_eq!(met == 0, exempt, "{attributes:?}");
            }
        }
    }
}
