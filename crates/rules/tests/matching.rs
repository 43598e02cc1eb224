//! Which rules a question meets: the naive model for every rule set, and each rule of envoyproxy/ratelimit by an
//! example.
//!
//! The tests of the second part are named after the steps of upstream's `GetLimit`.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

use proptest::collection::vec;
use proptest::prelude::{ProptestConfig, any, proptest};
use proptest::test_runner::TestCaseError;
use tollgate_rules::{Attribute, Check, Descriptor, LyftUnit, RuleSet};
use tollgate_sim::rules::fuzz_matching;

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_way_to_ask_says_what_the_model_says(bytes in vec(any::<u8>(), 0..400)) {
        fuzz_matching(&bytes).map_err(TestCaseError::fail)?;
    }
}

/// The rules of `text` below a domain `d`.
#[track_caller]
fn rules(text: &str) -> RuleSet {
    RuleSet::from_yaml(&format!("domain: d\n{text}")).unwrap_or_else(|wrong| panic!("{}", wrong.render(false)))
}

/// `a=1 b=2` as entries.
fn entries(text: &str) -> Vec<Attribute<'_>> {
    text.split_whitespace().map(|entry| entry.split_once('=').unwrap_or((entry, ""))).collect()
}

/// The name of the rule that a descriptor finds, and what it is counted by.
fn found(rules: &RuleSet, asked: &str) -> String {
    match rules.find("d", &entries(asked)) {
        None => "none".to_owned(),
        Some(found) => {
            let values = found.values.iter().map(|value| String::from_utf8_lossy(value.bytes()).into_owned());
            format!("{}[{}]", found.rule.rule().name, values.collect::<Vec<_>>().join(","))
        }
    }
}

/// The names of the rules that apply to attributes, sorted.
fn applying(rules: &RuleSet, asked: &str) -> Vec<String> {
    let mut names = Vec::new();
    rules.collect("d", &entries(asked), |found| names.push(found.rule.rule().name.to_string()));
    names.sort();
    names
}

#[track_caller]
fn assert_found(rules: &RuleSet, table: &[(&str, &str)]) {
    for (asked, expected) in table {
        assert_eq!(found(rules, asked), *expected, "{asked}");
    }
}

#[track_caller]
fn assert_applying(rules: &RuleSet, table: &[(&str, &[&str])]) {
    for (asked, expected) in table {
        assert_eq!(applying(rules, asked), *expected, "{asked}");
    }
}

/// The identity of the counter that a descriptor is counted by.
fn counter(rules: &RuleSet, asked: &str) -> (u64, Vec<Vec<u8>>) {
    let asked = entries(asked);
    let found = rules.find("d", &asked).expect("a rule");
    (found.rule.limit_id(0), found.values.iter().map(|value| value.bytes().to_vec()).collect())
}

const PER_MINUTE: &str = "rate_limit: {unit: minute, requests_per_unit: 5}";

/// A tree of one level, with a limit at each node.
fn level(nodes: &[&str]) -> RuleSet {
    let nodes: Vec<String> = nodes.iter().map(|node| format!("- {{{node}, {PER_MINUTE}}}\n")).collect();
    rules(&format!("descriptors:\n{}", nodes.concat()))
}

#[test]
fn step_1_domains_are_looked_up_exactly() {
    let rules = level(&["key: a"]);
    assert!(rules.find("d", &[("a", "1")]).is_some());
    for other in ["", "D", "d ", "dd"] {
        assert!(rules.find(other, &[("a", "1")]).is_none() && !rules.has_domain(other), "{other}");
    }
}

#[test]
fn step_3a_the_exact_value_comes_first() {
    let rules = level(&["key: a", "key: a, value: \"x*\"", "key: a, value: xy"]);
    assert_found(&rules, &[("a=xy", "d.a_xy[]"), ("a=xz", "d.a_x*[xz]"), ("a=y", "d.a[y]")]);
}

#[test]
fn step_3b_then_the_first_wildcard_in_the_order_of_the_file() {
    let rules = level(&[
        "key: a, value: \"x*\"",
        "key: a, value: \"xyz*\"",
        "key: \"*\", value: \"q*\"",
        "key: a, value: \"qq*\"",
    ]);
    assert_found(&rules, &[("a=xyz1", "d.a_x*[xyz1]"), ("a=qq", "d.*_q*[a,qq]"), ("b=q", "d.*_q*[b,q]")]);
    let turned = level(&["key: a, value: \"xyz*\"", "key: a, value: \"x*\""]);
    assert_found(&turned, &[("a=xyz1", "d.a_xyz*[xyz1]"), ("a=xy", "d.a_x*[xy]")]);
}

#[test]
fn step_3b_stars_anywhere_match_any_bytes_anchored_and_in_the_case_given() {
    let rules = level(&["key: a, value: \"/api/*/users/*\"", "key: a, value: \"*.png\"", "key: \"x-*\""]);
    assert_found(
        &rules,
        &[
            ("a=/api/v1/users/7", "d.a_/api/*/users/*[/api/v1/users/7]"),
            ("a=/api//users/", "d.a_/api/*/users/*[/api//users/]"),
            ("a=/API/v1/users/7", "none"),
            ("a=q/api/v1/users/7", "none"),
            ("a=x.png", "d.a_*.png[x.png]"),
            ("a=x.pngs", "none"),
            ("x-user=7", "d.x-*[x-user,7]"),
            ("x=7", "none"),
        ],
    );
}

#[test]
fn step_3c_then_the_key_alone_and_3d_else_nothing() {
    let rules = level(&["key: a", "key: b, value: x"]);
    assert_found(&rules, &[("a=anything", "d.a[anything]"), ("b=y", "none"), ("c=x", "none")]);
}

const TWO_LEVELS: &str = "\
descriptors:
- key: a
  value: x
  rate_limit: {unit: second, requests_per_unit: 1}
  descriptors:
  - {key: b, rate_limit: {unit: second, requests_per_unit: 2}}
- key: a
  descriptors:
  - {key: b, rate_limit: {unit: second, requests_per_unit: 3}}
  - {key: c, rate_limit: {unit: second, requests_per_unit: 4}}
";

#[test]
fn step_4_the_depth_of_the_request_is_that_of_the_rule() {
    let rules = rules(TWO_LEVELS);
    assert_found(
        &rules,
        &[("a=x", "d.a_x[]"), ("a=x b=1", "d.a_x.b[1]"), ("a=x b=1 c=1", "none"), ("a=y", "none"), ("", "none")],
    );
}

#[test]
fn step_5_nothing_turns_back() {
    let rules = rules(TWO_LEVELS);
    assert_found(&rules, &[("a=y c=1", "d.a.c[y,1]"), ("a=x c=1", "none")]);
}

#[test]
fn step_6_a_leaf_without_limits_exempts_its_value() {
    let rules = rules(&format!("descriptors:\n- {{key: a, {PER_MINUTE}}}\n- {{key: a, value: vip}}\n"));
    assert_found(&rules, &[("a=x", "d.a[x]"), ("a=vip", "d.a_vip[]")]);
    let exempt = rules.find("d", &[("a", "vip")]).unwrap();
    assert!(matches!(exempt.rule.rule().limits, tollgate_rules::Limits::None));
    let descriptors = [Descriptor::new(&[("a", "vip")])];
    assert!(rules.simple(&Check::descriptors("d", &descriptors), &mut Default::default()).is_none());
}

#[test]
fn a_star_in_a_key_stands_for_a_part_of_the_key_and_not_of_its_value() {
    let rules =
        rules(&format!("descriptors:\n- {{key: \"*_id\", {PER_MINUTE}}}\n- {{key: \"a*\", value: b, {PER_MINUTE}}}\n"));
    assert_found(
        &rules,
        &[
            ("user_id=7", "d.*_id[user_id,7]"),
            // To envoyproxy/ratelimit this is `user_id`, which matches, and `user_id_7` above does not.
            ("user=id", "none"),
            ("ab=b", "d.a*_b[ab]"),
            ("a=b", "d.a*_b[a]"),
            // `a_x_b` there.
            ("a=x_b", "none"),
        ],
    );
}

#[test]
fn a_leaf_without_limits_exempts_its_value_whatever_its_mode() {
    for vip in ["shadow_mode: true", "mode: shadow"] {
        let rules = rules(&format!("descriptors:\n- {{key: a, {PER_MINUTE}}}\n- {{key: a, value: vip, {vip}}}\n"));
        assert_found(&rules, &[("a=x", "d.a[x]"), ("a=vip", "d.a_vip[]")]);
        let mut applying = Vec::new();
        rules.collect("d", &[("a", "vip")], |found| applying.push(found.rule.rule().name.to_string()));
        assert_eq!(applying, ["d.a_vip"]);
    }
    let rules = rules(&format!(
        "defaults: {{mode: shadow}}\ndescriptors:\n- {{key: a, {PER_MINUTE}}}\n- {{key: a, value: vip}}\n"
    ));
    assert_found(&rules, &[("a=x", "d.a[x]"), ("a=vip", "d.a_vip[]")]);
}

/// The rule that attributes meet if it is one, and what it is counted by; "more" for whatever is not so simple.
fn met(rules: &RuleSet, asked: &str) -> String {
    let (attributes, mut values) = (entries(asked), Default::default());
    let Some(simple) = rules.simple(&Check::attributes("d", &attributes), &mut values) else {
        return "more".to_owned();
    };
    let values: Vec<_> = simple.values.iter().map(|value| String::from_utf8_lossy(value)).collect();
    format!("{}[{}]", rules.rules()[simple.number as usize].rule().name, values.join(","))
}

#[test]
fn attributes_that_meet_one_rule_are_told_from_those_that_meet_more() {
    let flat = rules(
        "rules:
- {name: root, when: {user: root}, per: ip, limits: 1/s}
- {name: user, per: [user, ip], limits: 1/s}
- {name: city, per: [user, city], limits: 1/s}
- {name: tenant, per: tenant, limits: 1/s}
- {name: pair, per: [f, g], limits: 1/s}
- {name: first, per: f, limits: 1/s}
- {name: net, when: {at: \"10.*\"}, per: tenant2, limits: 1/s}
",
    );
    for (asked, expected) in [
        ("user=x ip=1", "user[x,1]"),
        ("ip=1 other=2 user=x", "user[x,1]"),
        ("user=root ip=1", "root[1]"),
        ("user=root city=b", "city[root,b]"),
        ("user=root ip=1 city=b", "more"),
        ("tenant=t", "tenant[t]"),
        ("tenant=t tenant=u", "tenant[t]"),
        ("tenant=t user=x", "tenant[t]"),
        ("tenant=t user=x ip=1", "more"),
        ("f=1", "first[1]"),
        ("f=1 g=2", "more"),
        ("at=10.1 tenant2=t", "net[t]"),
        ("at=11.1 tenant2=t", "more"),
        ("user=x", "more"),
        ("", "more"),
    ] {
        assert_eq!(met(&flat, asked), expected, "{asked}");
    }
    let everyone = rules("rules: [{name: all, limits: 1/s}]");
    assert_eq!((&*met(&everyone, ""), &*met(&everyone, "a=1")), ("all[]", "all[]"));
    let deep = rules("rules: [{name: deep, per: [a, b, c, d, e], limits: 1/s}]");
    assert_eq!(met(&deep, "a=1 b=2 c=3 d=4 e=5"), "more", "counted by five values");
    let long = rules("rules: [{name: long, when: {a: 1, b: 1, c: 1, d: 1}, per: e, limits: 1/s}]");
    assert_eq!(met(&long, "a=1 b=1 c=1 d=1 e=5"), "long[5]");
    let shadowed = rules("rules: [{name: a, per: a, limits: 1/s}, {name: b, per: b, limits: 1/s, mode: shadow}]");
    assert_eq!((&*met(&shadowed, "a=1"), &*met(&shadowed, "a=1 b=1")), ("a[1]", "more"));
}

#[test]
fn step_7_entries_have_an_order_and_may_be_empty() {
    let ordered = rules(TWO_LEVELS);
    assert_found(&ordered, &[("b=1 a=x", "none")]);
    let rules = level(&["key: a", "key: b, value: \"*\"", "key: c, value: x"]);
    assert_found(&rules, &[("a=", "d.a[]"), ("b=", "d.b_*[]"), ("c=", "none")]);
}

/// Upstream takes `(a, b)` for the key `a_b`.
#[test]
fn step_8_a_key_and_its_value_are_not_another_key() {
    let rules = level(&["key: a_b", "key: a, value: b", "key: a, value: b_c", "key: a_b, value: c"]);
    assert_found(&rules, &[("a=b", "d.a_b[]"), ("a_b=q", "d.a_b[q]"), ("a_b=c", "d.a_b_c[]"), ("a=b_c", "d.a_b_c[]")]);
    assert_ne!(counter(&rules, "a_b=c"), counter(&rules, "a=b_c"));
    let only = level(&["key: a_b"]);
    assert_found(&only, &[("a=b", "none")]);
    let counters = level(&["key: a, value: \"b*\"", "key: \"a_b*\""]);
    assert_ne!(counter(&counters, "a=bq"), counter(&counters, "a_bx=bq"));
}

#[test]
fn step_9_each_value_has_a_counter_unless_it_is_shared() {
    let rules =
        level(&["key: a", "key: b, value: \"x*\"", "key: c, value: \"x*\", share_threshold: true", "key: \"k*\""]);
    assert_ne!(counter(&rules, "a=1"), counter(&rules, "a=2"));
    assert_ne!(counter(&rules, "b=x1"), counter(&rules, "b=x2"));
    assert_eq!(counter(&rules, "c=x1"), counter(&rules, "c=x2"));
    assert_ne!(counter(&rules, "k1=v"), counter(&rules, "k2=v"), "keys of one pattern are counted apart");
    let two = level(&["key: c, value: \"x*\", share_threshold: true", "key: c, value: \"y*\", share_threshold: true"]);
    assert_ne!(counter(&two, "c=x1"), counter(&two, "c=y1"), "two patterns do not share");
    let below = self::rules(
        "descriptors:\n- {key: c, value: \"x*\", share_threshold: true, descriptors: [{key: u, limits: 5/s}]}\n",
    );
    assert_eq!(counter(&below, "c=x1 u=7"), counter(&below, "c=x2 u=7"));
    assert_ne!(counter(&below, "c=x1 u=7"), counter(&below, "c=x1 u=8"));
}

#[test]
fn an_override_counts_with_the_rule_of_its_unit() {
    let rules = level(&["key: a", "key: b, value: x", "key: c, value: \"x*\", share_threshold: true"]);
    let overridden = |asked: &str, unit| {
        let asked = entries(asked);
        let (id, values) = rules.override_key("d", &asked, unit);
        (id, values.iter().map(|value| value.bytes().to_vec()).collect::<Vec<_>>())
    };
    // What a rule counts together, a limit that comes with the question counts apart.
    assert_ne!(overridden("c=xy", LyftUnit::Minute), counter(&rules, "c=xy"));
    assert_ne!(overridden("c=xy", LyftUnit::Minute), overridden("c=xz", LyftUnit::Minute));
    for asked in ["a=1", "b=x"] {
        assert_eq!(overridden(asked, LyftUnit::Minute), counter(&rules, asked));
        assert_ne!(overridden(asked, LyftUnit::Hour), counter(&rules, asked));
    }
    assert_ne!(overridden("q=1", LyftUnit::Minute), overridden("q=2", LyftUnit::Minute));
    assert_ne!(overridden("q=1", LyftUnit::Minute), overridden("r=1", LyftUnit::Minute));
    assert_ne!(overridden("q_r=1", LyftUnit::Minute), overridden("q=r_1", LyftUnit::Minute));
}

#[test]
fn attributes_meet_every_rule_whose_keys_are_there() {
    let rules = rules(
        "rules:\n- {name: all, limits: 9/s}\n- {name: user, per: user, limits: 5/s}\n- {name: pair, per: [user, path], limits: 1/s}\n",
    );
    assert_applying(
        &rules,
        &[
            ("", &["all"]),
            ("user=1", &["all", "user"]),
            ("path=/ user=1", &["all", "pair", "user"]),
            ("path=/", &["all"]),
        ],
    );
}

#[test]
fn of_the_same_keys_the_most_specific_applies() {
    let rules = rules(
        "\
rules:
- {name: any, per: ip, limits: 5/s}
- {name: not ten, when: {ip: {not: {cidr: 10.0.0.0/8}}}, limits: 5/s}
- {name: ten, when: {ip: 10.0.0.0/8}, limits: 5/s}
- {name: ten zero, when: {ip: 10.0.0.0/16}, limits: 5/s}
- {name: one, when: {ip: {is: 10.0.0.1}}, limits: 5/s}
- {name: trusted, when: {ip: 10.9.0.0/16}, limits: unlimited}
",
    );
    assert_applying(
        &rules,
        &[
            ("ip=10.0.0.1", &["one"]),
            ("ip=10.0.0.2", &["ten zero"]),
            ("ip=::ffff:10.1.0.2", &["ten"]),
            ("ip=10.9.1.1", &["trusted"]),
            ("ip=11.0.0.1", &["not ten"]),
            ("ip=nonsense", &["not ten"]),
        ],
    );
}

#[test]
fn earlier_keys_decide_before_later_ones() {
    let rules = rules(
        "\
rules:
- {name: exact then any, when: {a: x}, per: b, limits: 5/s}
- {name: any then exact, when: {a: \"*\", b: y}, limits: 5/s}
- {name: prefix then exact, when: {a: \"x*\", b: y}, limits: 5/s}
",
    );
    assert_applying(
        &rules,
        &[
            ("a=x b=y", &["exact then any"]),
            ("a=xx b=y", &["prefix then exact"]),
            ("a=q b=y", &["any then exact"]),
            ("a=q b=q", &[]),
        ],
    );
}

#[test]
fn exceptions_and_what_is_off() {
    let rules = rules(
        "\
exempt: [{role: admin}, {plan: gold, region: [eu, us]}]
rules:
- {name: user, per: user, limits: 5/s, unless: {path: \"/health*\"}}
- {name: path, per: path, limits: 5/s}
- {name: absent, when: {user: \"7\"}, limits: unlimited, mode: off}
",
    );
    assert_applying(
        &rules,
        &[
            ("user=7 path=/", &["path", "user"]),
            ("user=7 path=/healthz", &["path"]),
            ("user=7 role=admin", &[]),
            ("user=7 plan=gold", &["user"]),
            ("user=7 plan=gold region=eu", &[]),
            ("user=7 plan=gold region=asia", &["user"]),
        ],
    );
}

#[test]
fn of_a_key_given_twice_the_first_counts() {
    let many = "rules:\n- {name: x, when: {a: x}, limits: 5/s}\n- {per: b, limits: 1/s}\n- {per: c, limits: 1/s}\n- {per: e, limits: 1/s}\n- {per: f, limits: 1/s}\n";
    let globs = "descriptors:\n- {key: \"a*\", value: x, name: x, limits: 5/s}\n";
    for text in ["rules:\n- {name: x, when: {a: x}, limits: 5/s}\n", many, globs] {
        let rules = rules(text);
        assert_applying(&rules, &[("a=x a=y", &["x"]), ("a=y a=x", &[])]);
    }
}

#[test]
fn two_rules_for_one_network_are_refused() {
    let wrong = RuleSet::from_yaml(
        "rules:\n- {name: p, when: {ip: [10.0.0.0/8, 11.0.0.0/8]}, limits: 5/s}\n- {name: q, when: {ip: 11.0.0.0/8}, limits: 1/s}\n",
    );
    assert!(wrong.unwrap_err().render(false).contains("same keys and values"));
}

/// However many keys match, what is below a pattern of keys is looked at once.
#[test]
fn nested_patterns_of_keys_cost_no_more_than_their_number() {
    let mut node = "{key: \"*\", name: deep, limits: 5/s}".to_owned();
    for _ in 0..30 {
        node = format!("{{key: \"*\", descriptors: [{node}]}}");
    }
    let rules = rules(&format!("descriptors: [{node}]\n"));
    let keys: Vec<String> = (0..30).map(|key| format!("k{key}=v")).collect();
    assert_applying(&rules, &[(&keys.join(" "), &["deep"])]);
}
