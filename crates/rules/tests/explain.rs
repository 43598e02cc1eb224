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

#[test]
fn a_shadow_and_the_rule_in_force_do_not_stand_in_for_each_other() {
    let both = "rules:
- {name: all, per: a, limits: 1/s}
- {name: x, when: {a: x}, limits: 1/s}
- {name: try, per: a, limits: 2/s, mode: shadow}
- {name: try x, when: {a: x}, limits: 2/s, mode: shadow}
";
    let told = explain(both, "a=x");
    for line in ["all does not apply: x is more specific", "try does not apply: try x is more specific"] {
        assert!(told.lines().any(|told| told == line), "{told}");
    }
}

#[test]
fn the_rule_that_takes_the_place_is_the_one_that_was_met_and_not_one_elsewhere() {
    let other = "domain: e\nrules: [{name: elsewhere, when: {a: x}, unless: {b: y}, limits: 1/s}]\n";
    let here = "domain: d
rules:
- {name: all, per: a, limits: 1/s}
- {name: y, when: {a: y}, unless: {b: y}, limits: 1/s}
- {name: wide, when: {a: \"x*\"}, unless: {b: y}, limits: 1/s}
- {name: x, when: {a: x}, unless: {b: y}, limits: 1/s}
";
    let sources = [other, here].map(|text| tollgate_rules::Source::new("rules.yaml", text));
    let (rules, _) = RuleSet::compile(tollgate_rules::parse(sources.into()));
    let told = rules.explain(&Check::attributes("d", &[("a", "x"), ("b", "y")])).to_string();
    let expected = "x does not apply: one of its exceptions does
all does not apply: x is more specific
wide does not apply: x is more specific
y does not apply: a is x, not y";
    assert_eq!(told, expected);
    let by_descriptor = [("a", "x")];
    let unless = "descriptors:\n- {key: a, name: all, limits: 1/s}\n- {key: a, value: x, name: x, limits: 1/s, unless: {a: x}}\n";
    let told = self::rules(unless).explain(&Check::descriptors("d", &[Descriptor::new(&by_descriptor)])).to_string();
    let expected = "descriptor 1: x does not apply: one of its exceptions does\ndescriptor 1: all does not apply: x is found first";
    assert_eq!(told, expected);
}

#[test]
fn networks_are_told_where_they_are_counted_by() {
    let per = "rules: [{name: r, per: ip/64, limits: 1/s}]\n";
    assert_eq!(explain(per, "ip=2001:db8::7"), "r applies, by ip=2001:db8::/64");
    assert_eq!(explain(per, "ip=192.0.2.7"), "r applies, by ip=192.0.2.7/32");
    assert_eq!(explain(per, "ip=nobody"), "r applies, by ip=nobody");
    assert_eq!(explain_descriptors(per, "ip=2001:db8::7"), "descriptor 1: r applies, by ip=2001:db8::/64");
}

const REPLACING: &str = "descriptors:
- {key: a, name: general, rate_limit: {unit: day, requests_per_unit: 5, name: base}}
- {key: b, name: special, rate_limit: {unit: day, requests_per_unit: 5, replaces: [{name: base}]}}
- {key: c, name: free, rate_limit: {unlimited: true}}
- {key: d, name: leaf}
- {key: e, name: share, quota_mode: true, rate_limit: {unit: day, requests_per_unit: 5}}
";

#[test]
fn what_is_replaced_or_brought_along_or_counts_nothing_is_told_as_such() {
    let fates = |entries: &[(&str, &str)], limit| {
        let pairs: Vec<[Attribute<'_>; 1]> = entries.iter().map(|pair| [*pair]).collect();
        let descriptors: Vec<_> =
            pairs.iter().map(|entries| Descriptor { limit, ..Descriptor::new(entries) }).collect();
        let told = rules(REPLACING).explain(&Check::descriptors("d", &descriptors)).to_string();
        told.lines().filter(|line| !line.contains("it is for the entries")).collect::<Vec<_>>().join("\n")
    };
    assert_eq!(fates(&[("a", "1")], None), "descriptor 1: general applies, by a=1");
    assert_eq!(
        fates(&[("a", "1"), ("b", "2")], None),
        "descriptor 2: special applies, by b=2\ndescriptor 1: general does not apply: special replaces it"
    );
    let own = tollgate_rules::Override { requests_per_unit: 7, unit: tollgate_rules::LyftUnit::Day };
    assert_eq!(
        fates(&[("a", "1")], Some(own)),
        "descriptor 1: general does not apply: the descriptor brings a limit of its own"
    );
    assert_eq!(fates(&[("c", "1")], None), "descriptor 1: free applies, and limits nothing");
    assert_eq!(fates(&[("d", "1")], None), "descriptor 1: leaf applies, and limits nothing");
    assert_eq!(
        fates(&[("e", "1")], None),
        "descriptor 1: share applies, by e=1, as a quota: it denies only if all quotas of the question do"
    );
    assert_eq!(explain(REPLACING, "a=1 b=1").matches("applies, by").count(), 2, "by attributes nothing is replaced");
    assert_eq!(explain(REPLACING, "e=1").lines().next(), Some("share applies, by e=1"));
}
