//! What is said of each rule agrees with what is decided.

#![allow(clippy::panic, reason = "a test fails by panicking")]

use tollgate_rules::{Attribute, Check, RuleSet};

/// What is said of each rule of `text`, for attributes such as `a=1 b=2`.
#[track_caller]
fn explain(text: &str, asked: &str) -> String {
    let rules = RuleSet::from_yaml(&format!("domain: d\n{text}")).unwrap_or_else(|wrong| panic!("{wrong}"));
    let asked: Vec<Attribute<'_>> =
        asked.split_whitespace().map(|entry| entry.split_once('=').unwrap_or((entry, ""))).collect();
    let check = Check::attributes("d", &asked);
    let explanation = rules.explain(&check);
    let mut applying = Vec::new();
    rules.collect("d", &asked, |found| applying.push(&*found.rule.rule().name));
    for one in &explanation.considered {
        let said = matches!(one.fate, tollgate_rules::Fate::Applies(_));
        assert_eq!(said, applying.contains(&&*one.rule.rule().name), "{explanation}");
    }
    explanation.to_string()
}

#[test]
fn a_pattern_of_keys_stands_for_any_that_matches() {
    let exact = "descriptors:\n- {key: \"a*\", name: r, value: x, limits: 1/s}\n";
    assert_eq!(explain(exact, "aa=1 ab=x"), "r applies, by ab=x");
    assert_eq!(explain(exact, "ab=x aa=1"), "r applies, by ab=x");
    assert_eq!(explain(exact, "aa=1 ab=2"), "r does not apply: aa is 1, not x");
    assert_eq!(explain(exact, "b=x"), "r does not apply: there is no a*");
    assert_eq!(explain(exact, "aa=1 aa=x"), "r does not apply: aa is 1, not x", "the first of a key counts");
    let any = "descriptors:\n- {key: \"a*\", name: r, limits: 1/s}\n";
    assert_eq!(explain(any, "b=1 ac=7 ab=x"), "r applies, by ac=7");
}

#[test]
fn what_follows_a_pattern_of_keys_is_told_by_its_own_key() {
    let nested = "descriptors:\n- {key: \"a*\", value: \"x*\", descriptors: [{key: \"b*\", value: y, descriptors: \
                  [{key: c, name: r, limits: 1/s}]}]}\n";
    assert_eq!(explain(nested, "c=9 ba=1 bb=y aa=1 ab=xy"), "r applies, by ab=xy bb=y c=9");
    assert_eq!(explain(nested, "c=9 ba=1 aa=1 ab=xy"), "r does not apply: ba is 1, not y");
}

#[test]
fn a_more_specific_rule_is_named_for_patterns_of_keys_too() {
    let both =
        "descriptors:\n- {key: \"a*\", name: one, value: x, limits: 1/s}\n- {key: \"a*\", name: all, limits: 1/s}\n";
    assert_eq!(explain(both, "aa=1 ab=x"), "one applies, by ab=x\nall does not apply: one is more specific");
}
