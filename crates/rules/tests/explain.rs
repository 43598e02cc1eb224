//! What is said of each rule agrees with what is decided.

#![allow(clippy::panic, reason = "a test fails by panicking")]

use tollgate_rules::{Attribute, Check, Descriptor, Fate, RuleSet};

#[track_caller]
fn rules(text: &str) -> RuleSet {
    RuleSet::from_yaml(&format!("domain: d\n{text}")).unwrap_or_else(|wrong| panic!("{wrong}"))
}

/// `a=1 b=2` as entries.
fn entries(asked: &str) -> Vec<Attribute<'_>> {
    asked.split_whitespace().map(|entry| entry.split_once('=').unwrap_or((entry, ""))).collect()
}

/// What is said of each rule of `text` for descriptors, separated by `;`.
#[track_caller]
fn explain_descriptors(text: &str, asked: &str) -> String {
    let rules = rules(text);
    let asked: Vec<Vec<Attribute<'_>>> = asked.split(';').map(entries).collect();
    let descriptors: Vec<Descriptor<'_>> = asked.iter().map(|entries| Descriptor::new(entries)).collect();
    let explanation = rules.explain(&Check::descriptors("d", &descriptors));
    for one in &explanation.considered {
        let found = one.descriptor.and_then(|at| rules.find("d", &asked[at]));
        let applies = found.is_some_and(|found| found.rule.rule().name == one.rule.rule().name);
        assert_eq!(matches!(one.fate, Fate::Applies(_)), applies, "{explanation}");
    }
    explanation.to_string()
}

/// What is said of each rule of `text`, for attributes such as `a=1 b=2`.
#[track_caller]
fn explain(text: &str, asked: &str) -> String {
    let (rules, asked) = (rules(text), entries(asked));
    let check = Check::attributes("d", &asked);
    let explanation = rules.explain(&check);
    let mut applying = Vec::new();
    rules.collect("d", &asked, |found| applying.push(&*found.rule.rule().name));
    for one in &explanation.considered {
        let said = matches!(one.fate, Fate::Applies(_));
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

const TREE: &str = "descriptors:
- {key: a, name: any, limits: 1/s}
- {key: a, value: \"x*\", name: early, limits: 1/s}
- {key: a, value: \"xy*\", name: late, limits: 1/s}
- {key: a, value: xyz, name: exact, limits: 1/s, descriptors: [{key: b, value: \"1\", name: below, limits: 1/s}]}
- {key: a, value: \"xyz*\", descriptors: [{key: b, name: beside, limits: 1/s}]}
";

#[test]
fn of_wildcards_a_descriptor_finds_the_first_of_the_file_however_specific_the_other_is() {
    let told = explain_descriptors(TREE, "a=xy");
    let expected = "early applies, by a=xy
any does not apply: early is found first
late does not apply: early is found first
exact does not apply: a is xy, not xyz
below does not apply: it is for the entries a, b
beside does not apply: it is for the entries a, b";
    assert_eq!(told.replace("descriptor 1: ", ""), expected);
    // By attributes it is the most specific.
    assert!(explain(TREE, "a=xy").starts_with("late applies, by a=xy\nany does not apply: late is more specific"));
}

#[test]
fn each_descriptor_is_told_on_its_own_and_does_not_turn_back() {
    let told = explain_descriptors(TREE, "a=xyz;a=xyz b=2");
    assert!(told.starts_with("descriptor 1: exact applies"), "{told}");
    for line in [
        "descriptor 1: any does not apply: exact is found first",
        "descriptor 1: early does not apply: exact is found first",
        "descriptor 1: below does not apply: it is for the entries a, b",
        "descriptor 2: exact does not apply: it is for the entries a",
        "descriptor 2: below does not apply: b is 2, not 1",
        "descriptor 2: beside is not reached: an earlier entry finds another value first, and there is no way back",
    ] {
        assert!(told.lines().any(|told| told == line), "{line}\n{told}");
    }
}
