//! Lyft's dialect: every field means what it means to envoyproxy/ratelimit, and what it refuses is refused, with the
//! place.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod marked;

use marked::{assert_wrong, rules};
use serde_json::json;
use tollgate_core::{Algorithm, FixedWindow, Micros};
use tollgate_rules::{
    Attribute, Counted, KeyPattern, Limits, LyftLimit, LyftUnit, Mode, Pattern, Rule, RuleSet, Source, parse,
};

fn lyft(rule: &Rule) -> &LyftLimit {
    match &rule.limits {
        Limits::Lyft(limit) => limit,
        other => panic!("{}: {other:?}", rule.name),
    }
}

/// Each rule in a line: its name, and how much it allows.
fn told(text: &str) -> Vec<String> {
    let amount = |rule: &Rule| match &rule.limits {
        Limits::None => "everything".to_owned(),
        Limits::Lyft(limit) => match &limit.rate {
            Some(rate) => format!("{} per {}", rate.requests_per_unit, rate.unit.name()),
            None => "unlimited".to_owned(),
        },
        Limits::Own(limits) => limits.iter().map(|limit| &*limit.text).collect::<Vec<_>>().join(", "),
    };
    rules(text).iter().map(|rule| format!("{}: {}", rule.name, amount(rule))).collect()
}

#[test]
fn both_files_of_the_seeds_load_verbatim() {
    let marketing = include_str!("examples/seed_messaging.yaml");
    assert_eq!(told(marketing), ["messaging.message_type_marketing: 5 per day"]);
    let login = include_str!("examples/seed_auth.yaml");
    assert_eq!(told(login), ["auth.auth_type_login: 5 per minute"]);
    let rules = rules(login);
    let rate = lyft(&rules[0]).rate.as_ref().unwrap();
    let expected = Algorithm::from(FixedWindow::new(5, Micros::MINUTE).record_rejected());
    assert_eq!(*rate.limit.algorithm(), expected);
    assert_eq!(rules[0].entries[0].value, Pattern::Exact("login".into()));
}

#[test]
fn every_field_is_understood() {
    let text = include_str!("examples/lyft.yaml");
    assert_eq!(
        told(text),
        [
            "mongo_cps.database_users: 500 per second",
            "mongo_cps.database_default: 500 per week",
            "mongo_cps.database: unlimited",
            "mongo_cps.path_/api/*: 4294967295 per minute",
            "mongo_cps.path_/api/*.remote_address_50.0.0.5: everything",
            "mongo_cps.path_/api/*.remote_address: 0 per month",
            "mongo_cps.header_*: 1 per year",
            "mongo_cps.port_8080: 16 per hour",
            "mongo_cps.flag_true: 10 per day",
        ]
    );
    let rules = rules(text);
    let named = |name: &str| rules.iter().find(|rule| &*rule.name == name).unwrap();
    let users = named("mongo_cps.database_users");
    assert!(users.detailed_metric && users.mode == Mode::Enforce && users.metadata.is_none());
    assert_eq!(lyft(users).name.as_deref(), Some("tight"));
    let default = named("mongo_cps.database_default");
    assert_eq!(default.mode, Mode::Shadow);
    assert!(!default.quota_mode);
    assert_eq!(lyft(default).replaces, ["tight".into()]);
    let metadata = json!({"owner": "storage", "tags": ["a", 1, true], "pager": {"level": 2}});
    assert_eq!(default.metadata.as_deref(), Some(&metadata));
    let path = named("mongo_cps.path_/api/*");
    assert_eq!(path.entries[0].counted, Counted::Together);
    assert!(path.entries[0].value_to_metric && path.entries[0].value.matches("/api/x"));
    let below = named("mongo_cps.path_/api/*.remote_address");
    assert_eq!(below.entries[1].counted, Counted::ByValue);
    assert_eq!(below.entries[1].value, Pattern::Any);
    let header = named("mongo_cps.header_*");
    assert!(matches!(&header.entries[0].key, KeyPattern::Glob(glob) if glob.matches("header_x")));
    assert!(header.quota_mode);
}

#[test]
fn units_are_read_in_any_case_and_have_upstreams_lengths() {
    for (unit, seconds) in [
        ("second", 1),
        ("MINUTE", 60),
        ("Hour", 3_600),
        ("dAy", 86_400),
        ("week", 604_800),
        ("month", 2_592_000),
        ("year", 31_536_000),
    ] {
        let text =
            format!("{{domain: a, descriptors: [{{key: b, rate_limit: {{unit: {unit}, requests_per_unit: 1}}}}]}}");
        let rules = rules(&text);
        let rate = lyft(&rules[0]).rate.as_ref().unwrap();
        assert_eq!((rate.unit, rate.unit.length()), (LyftUnit::parse(unit).unwrap(), Micros::from_secs(seconds)));
    }
}

#[test]
fn a_leaf_without_limits_exempts_and_an_inner_node_says_nothing() {
    let text = "domain: d\ndescriptors:\n- key: a\n  descriptors:\n  - key: b\n    value: x\n  - key: c\n    descriptors: []\n";
    assert_eq!(told(text), ["d.a.b_x: everything", "d.a.c: everything"]);
}

#[test]
fn an_empty_value_is_the_key_alone() {
    for value in ["\"\"", "", "~", "null"] {
        let rules = rules(&format!("domain: d\ndescriptors:\n- key: a\n  value: {value}\n"));
        assert_eq!(rules[0].entries[0].value, Pattern::Any, "{value}");
    }
}

#[test]
fn what_upstream_refuses_is_refused() {
    let rows: [(&str, &[&str]); 18] = [
        ("- key: a\n  «0.25»: x\n", &["config error, key is not of type string: 0.25"]),
        ("- key: a\n  «ratelimit»: {}\n", &["unknown field `ratelimit`"]),
        ("- «a»\n", &["expected a mapping, found `a`"]),
        ("- key: a\n  value: «1.5»\n", &["`1.5` is a number that can be read in more than one way"]),
        (
            "- key: «18446744073709551615»\n",
            &["`18446744073709551615` is a number that can be read in more than one way"],
        ),
        ("- «value»: a\n", &["descriptor has empty key"]),
        ("- key: «\"\"»\n", &["descriptor has empty key"]),
        (
            "- key: a\n  value: b\n  descriptors:\n  - key: c\n  - key: «c»\n- key: a\n  value: «b»\n",
            &["duplicate descriptor composite key 'd.a_b.c'", "duplicate descriptor composite key 'd.a_b'"],
        ),
        ("- key: a\n  rate_limit: {unit: «foo», requests_per_unit: 1}\n", &["invalid rate limit unit 'foo'"]),
        ("- key: a\n  rate_limit: {unit: «unknown», requests_per_unit: 1}\n", &["invalid rate limit unit 'unknown'"]),
        ("- key: a\n  rate_limit: {«requests_per_unit»: 1}\n", &["invalid rate limit unit ''"]),
        (
            "- key: a\n  rate_limit: {unlimited: true, «unit»: day}\n",
            &["should not specify rate limit unit when unlimited"],
        ),
        (
            "- key: a\n  rate_limit: {unlimited: true, replaces: [{name: «\"\"»}, «{}»]}\n",
            &["should not have an empty replaces entry", "should not have an empty replaces entry"],
        ),
        (
            "- key: a\n  rate_limit: {unlimited: true, name: x, replaces: [{name: «x»}]}\n",
            &["replaces should not contain name of same descriptor"],
        ),
        (
            "- key: k\n  value: v\n  «share_threshold»: true\n",
            &["share_threshold can only be used with wildcard values (containing '*'), but found key 'k_v'"],
        ),
        (
            "- key: a\n  rate_limit: {unit: day, requests_per_unit: «-1»}\n- key: b\n  rate_limit: {unit: day, requests_per_unit: «4294967296»}\n",
            &[
                "`-1` is not a whole number from 0 to 4294967295",
                "`4294967296` is not a whole number from 0 to 4294967295",
            ],
        ),
        ("- key: a\n  rate_limit: {unit: day, requests_per_unit: «\"5\"»}\n", &["\"5\" is text because of its quotes"]),
        (
            "- key: a\n  metadata: {a: {«1»: x}}\n- key: b\n  metadata: {a: [«.nan»]}\n- key: c\n  metadata: «5»\n",
            &[
                "error parsing metadata: `1` has no…",
                "error parsing metadata: `.nan` has no…",
                "expected a mapping, found `5`",
            ],
        ),
    ];
    for (text, messages) in rows {
        // Where the mark of an empty mapping is, is of no interest to a reader.
        let text = text.replace("«{}»", "«{»}");
        assert_wrong(&format!("domain: d\ndescriptors:\n{text}"), messages);
    }
}

#[test]
fn what_upstream_ignores_in_the_wrong_place_is_told_where_it_belongs() {
    let rows: [(&str, &[&str]); 5] = [
        (
            "- key: a\n  rate_limit: {unit: day, requests_per_unit: 1, «shadow_mode»: true}\n",
            &["`shadow_mode` belongs beside `rate_limit`, not in it"],
        ),
        ("- key: a\n  «unlimited»: true\n", &["`unlimited` belongs inside `rate_limit`, not beside it"]),
        ("- key: a\n«unit»: day\n", &["`unit` belongs in `rate_limit`, not at the top of the file"]),
        ("- key: a\n«key»: day\n", &["`key` belongs inside `descriptors`, not beside it"]),
        ("- key: a\n  «domain»: day\n", &["`domain` belongs at the top of the file, not in a descriptor"]),
    ];
    for (text, messages) in rows {
        assert_wrong(&format!("domain: d\ndescriptors:\n{text}"), messages);
    }
}

#[test]
fn what_is_legal_and_strange_is_a_warning() {
    let rows: [(&str, &[&str]); 6] = [
        ("- key: a\n  rate_limit: {«unit»: day}\n", &["without `requests_per_unit` everything is denied"]),
        ("- key: a\n  «key»: b\n", &["`key` is written twice; this one counts"]),
        ("- key: a\n  value: x\n  «Value»: y\n", &["`Value` is written twice; this one counts"]),
        (
            "- key: a\n  rate_limit: {unlimited: true, «unit»: foo, «requests_per_unit»: 5}\n",
            &["`unit: foo` has no effect beside `unlimited`", "`requests_per_unit` has no effect beside `unlimited`"],
        ),
        (
            "- key: a\n  «shadow_mode»: true\n  descriptors:\n  - key: b\n",
            &["`shadow_mode` has no effect: this descriptor has no limits of its own"],
        ),
        ("- key: a\n«---»\ndomain: e\n", &["only the first document of a file is read"]),
    ];
    for (text, messages) in rows {
        let text = format!("domain: d\ndescriptors:\n{text}");
        assert_wrong(&text, messages);
        assert!(!marked::read(&text.replace(['«', '»'], "")).diagnostics.has_errors());
    }
    let rules = rules("domain: d\ndescriptors:\n- {key: a, key: b, Value: x, value: y}\n");
    assert_eq!(&*rules[0].name, "d.b_y");
}

#[test]
fn keys_with_underscores_are_not_mistaken_for_values() {
    assert_eq!(told("domain: d\ndescriptors:\n- key: a\n  value: b\n- key: a_b\n").len(), 2);
}

#[test]
fn merge_keys_and_anchors_are_understood() {
    let text = "\
domain: d
descriptors:
- key: a
  rate_limit: &limit {unit: day, requests_per_unit: 5}
- key: b
  rate_limit: *limit
- key: c
  rate_limit: {<<: *limit, requests_per_unit: 7}
";
    assert_eq!(told(text), ["d.a: 5 per day", "d.b: 5 per day", "d.c: 7 per day"]);
}

#[test]
fn what_upstream_would_merge_over_a_field_is_told() {
    let file = |limit: &str| {
        format!(
            "domain: d\nx-a: &a {{requests_per_unit: 5, unit: day}}\nx-b: &b {{requests_per_unit: 6}}\ndescriptors:\n- key: a\n  rate_limit: {limit}\n"
        )
    };
    let later = "`requests_per_unit` counts as it is written here; envoyproxy/ratelimit takes what is merged after it";
    assert_wrong(&file("{«requests_per_unit»: 7, <<: *a}"), &[later]);
    assert_wrong(&file("{unit: day, «requests_per_unit»: 7, <<: [*b, *a]}"), &[later]);
    for good in ["{<<: *a, requests_per_unit: 7}", "{<<: [*b, *a]}", "{requests_per_unit: 5, <<: *a}"] {
        assert_wrong(&file(good), &[]);
    }
    assert_eq!(told(&file("{requests_per_unit: 7, <<: *a}")), ["d.a: 7 per day"]);
    assert_wrong("x-a: &a {rate: 5/s}\nrules:\n- limits: {rate: 7/s, <<: *a}\n", &[]);
}

#[test]
fn a_misspelt_field_is_not_called_missing_as_well() {
    assert_wrong(
        "domain: d\ndescriptors:\n- key: a\n  rate_limit: {unit: «minutes», «request_per_unit»: 5}\n",
        &["invalid rate limit unit 'minutes'", "unknown field `request_per_unit`"],
    );
}

#[test]
fn files_without_a_domain() {
    for text in ["«»", "«»# only a comment", "«»---\n"] {
        assert_wrong(text, &["the file is empty"]);
    }
    assert_wrong("«descriptors»:\n- key: a\n", &["config file cannot have empty domain"]);
    assert_wrong("domain: «\"\"»\ndescriptors:\n- key: a\n", &["config file cannot have empty domain"]);
    assert_wrong("«rules»: [{limits: 1/s}]\ndescriptors: []\n", &["config file cannot have empty domain"]);
}

/// Upstream refuses the second file of a domain unless it is told to merge them.
#[test]
fn files_of_one_domain_are_merged() {
    let auth = "domain: auth\ndescriptors:\n- {key: ip, rate_limit: {unit: minute, requests_per_unit: 5}}\n";
    let more = "domain: auth\ndescriptors:\n- {key: user, value: root, rate_limit: {unit: hour, requests_per_unit: 9}}\n\
                - {key: ip, value: 10.1.1.1, rate_limit: {unit: minute, requests_per_unit: 50}}\n";
    let other = "domain: other\ndescriptors:\n- {key: ip, rate_limit: {unit: day, requests_per_unit: 1}}\n";
    for order in [[auth, more, other], [other, more, auth]] {
        let sources = order.iter().zip(["a.yaml", "b.yaml", "c.yaml"]).map(|(text, name)| Source::new(name, *text));
        let (rules, problems) = RuleSet::compile(parse(sources.collect()));
        assert_eq!(problems.iter().count(), 0, "{}", problems.render(false));
        let amount = |domain: &str, entry: Attribute<'_>| {
            let found = rules.find(domain, &[entry])?;
            lyft(found.rule.rule()).rate.as_ref().map(|rate| rate.requests_per_unit)
        };
        assert_eq!(amount("auth", ("ip", "10.2.2.2")), Some(5));
        assert_eq!(amount("auth", ("ip", "10.1.1.1")), Some(50), "a value of the other file's key");
        assert_eq!(amount("auth", ("user", "root")), Some(9));
        assert_eq!(amount("other", ("ip", "10.1.1.1")), Some(1));
        assert_eq!(amount("other", ("user", "root")), None);
    }
    // What both say is told with its place in the second.
    let twice = parse(vec![Source::new("a.yaml", auth), Source::new("b.yaml", auth)]);
    let shown = twice.diagnostics.render(false);
    assert!(shown.contains("b.yaml:3"), "{shown}");
}
