//! Whose counter is whose: what is counted anew, what is kept apart, and what many attributes cost.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

use std::future::Future;
use std::task::{Context, Poll, Waker};

use tollgate::rules::{LyftUnit, Override, Source};
use tollgate::{Attribute, Check, Descriptor, MemoryStore, RuleSet, Tollgate};

fn gate(text: &str) -> Tollgate<MemoryStore> {
    Tollgate::new(RuleSet::from_yaml(text).unwrap(), MemoryStore::new())
}

fn ready<T>(future: impl Future<Output = T>) -> T {
    match std::pin::pin!(future).as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("nothing to wait for"),
    }
}

fn passes(gate: &Tollgate<MemoryStore>, attributes: &[Attribute<'_>]) -> bool {
    ready(gate.check(&Check::attributes("d", attributes))).unwrap().allowed
}

fn passes_with(gate: &Tollgate<MemoryStore>, entries: &[Attribute<'_>], limit: Override) -> bool {
    let descriptors = [Descriptor::new(entries).limit(limit)];
    ready(gate.check(&Check::descriptors("d", &descriptors))).unwrap().allowed
}

#[test]
fn what_is_counted_by_another_key_is_counted_anew() {
    let by = |per: &str| {
        format!("domain: d\nrules:\n- {{name: a, per: {per}, limits: {{rate: 1/year, algorithm: fixed_window}}}}\n")
    };
    let gate = gate(&by("user"));
    assert!(passes(&gate, &[("user", "42")]) && !passes(&gate, &[("user", "42")]));
    gate.replace_rules(RuleSet::from_yaml(&by("account")).unwrap());
    assert!(passes(&gate, &[("account", "42")]), "another entity's count");
    gate.replace_rules(RuleSet::from_yaml(&by("user")).unwrap());
    assert!(!passes(&gate, &[("user", "42")]), "its own count");
}

#[test]
fn an_overriding_limit_counts_each_value_where_the_rule_counts_them_together() {
    let gate = gate(
        "domain: d\ndescriptors:\n- {key: k, value: a*, share_threshold: true, rate_limit: {unit: year, requests_per_unit: 9}}\n",
    );
    let once = Override { requests_per_unit: 1, unit: LyftUnit::Year };
    assert!(passes_with(&gate, &[("k", "a1")], once) && passes_with(&gate, &[("k", "a2")], once));
    assert!(!passes_with(&gate, &[("k", "a1")], once));
}

#[test]
fn a_domain_without_rules_takes_limits_that_come_with_the_question() {
    let once = Override { requests_per_unit: 1, unit: LyftUnit::Year };
    let empty = gate("domain: d\ndescriptors: []\n");
    assert!(passes_with(&empty, &[("k", "v")], once) && !passes_with(&empty, &[("k", "v")], once));
    assert!(passes_with(&empty, &[("kv", "")], once) && passes_with(&empty, &[("k", ""), ("v", "")], once));
    let other = gate("domain: e\ndescriptors: []\n");
    assert!((0..3).all(|_| passes_with(&other, &[("k", "v")], once)), "no such domain");
}

#[test]
fn many_attributes_are_looked_at_once_and_of_a_repeated_key_the_first_counts() {
    let gate = gate(
        "domain: d\nrules:\n- {name: all, per: [a, b, c, e, f], limits: {rate: 1/year, algorithm: fixed_window}}\n\
         - {per: b, limits: 9/s}\n- {per: c, limits: 9/s}\n- {per: e, limits: 9/s}\n- {per: f, limits: 9/s}\n",
    );
    let keys: Vec<String> = (0..20_000).map(|number| format!("key-{number}")).collect();
    let mut attributes: Vec<Attribute<'_>> = keys.iter().map(|key| (key.as_str(), "x")).collect();
    attributes.extend([("a", "1"), ("a", "2"), ("b", "1"), ("c", "1"), ("e", "1"), ("f", "1")]);
    assert!(passes(&gate, &attributes) && !passes(&gate, &attributes));
    attributes.swap(20_000, 20_001);
    assert!(passes(&gate, &attributes), "now the first is another");
}

#[test]
fn lists_that_stand_for_too_many_places_are_refused_by_number() {
    let list: Vec<String> = (0..256).map(|number| format!("v{number}")).collect();
    let mut text = format!("domain: d\nx-list: &list [{}]\nrules:\n", list.join(", "));
    for number in 0..40 {
        text.push_str(&format!("- {{name: r{number}, when: {{a: *list, b: *list, c: c{number}}}, limits: 5/s}}\n"));
    }
    let (_, problems) = RuleSet::compile(tollgate::rules::parse(vec![Source::new("rules", text)]));
    let problems = problems.to_string();
    assert!(problems.contains("all rules have more than 2097152 combinations"), "{problems}");
    // Each takes 256 for the first list, and twice 65,536 for what follows: fifteen fit.
    assert_eq!(problems.lines().count(), 25, "{problems}");
}
