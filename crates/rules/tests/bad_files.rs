//! Files with something wrong: all of it is told at once, each where it is, and nothing makes the reader panic or
//! stall.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod marked;

use std::fmt::Write as _;

use marked::{assert_wrong, read, rules};
use proptest::prelude::*;

/// The problems of `text`, one in a line.
fn problems(text: &str) -> Vec<String> {
    read(text).diagnostics.to_string().lines().map(str::to_owned).collect()
}

#[test]
fn everything_is_told_at_once_as_the_golden_file_shows() {
    let shown = read(include_str!("golden/many-problems.yaml")).diagnostics.render(false) + "\n";
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/many-problems.txt");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(golden, &shown).expect("the golden file can be written");
    }
    let expected = std::fs::read_to_string(golden).unwrap_or_default();
    assert!(shown == expected, "run with UPDATE_GOLDEN=1 and read the difference\n{shown}");
}

#[test]
fn what_is_right_beside_what_is_wrong_is_kept() {
    let parsed =
        read("domain: d\ndescriptors:\n- {key: a, limits: 1/s}\n- {key: b, limits: 1/x}\n- {key: c, limits: 3/s}\n");
    assert_eq!(parsed.rules.iter().map(|rule| &*rule.name).collect::<Vec<_>>(), ["d.a", "d.c"]);
    assert_eq!(
        parsed.diagnostics.to_string(),
        "rules.yaml:4:22: error: there is no unit of time `x` (units are `us`, `ms`, `s`, `min`, `h`, `day`, `week`, `month` and `year`)"
    );
}

#[test]
fn a_problem_below_a_bad_descriptor_is_told_too() {
    assert_wrong(
        "domain: d\ndescriptors:\n- «value»: a\n  descriptors:\n  - key: b\n    limits: «5»\n",
        &["descriptor has empty key", "`5` is not a rate"],
    );
}

#[test]
fn a_problem_in_an_anchor_is_told_once() {
    let text =
        "x-a: &a {rate: 5/«x»}\nrules:\n- {per: a, limits: *a}\n- {per: b, limits: *a}\n- {per: c, limits: [*a]}\n";
    assert_wrong(text, &["there is no unit of time `x`"]);
    assert!(read(&text.replace(['«', '»'], "")).rules.is_empty());
}

#[test]
fn files_that_are_no_rules() {
    assert_wrong("«just text»", &["expected a mapping, found `just text`"]);
    assert_wrong("- «a»\n- b\n", &["expected a mapping, found a list"]);
    for (text, beginning) in [
        ("domain: a\n\tdescriptors: []\n", "rules.yaml:2:1: error: this is not YAML"),
        ("domain: [a\n", "rules.yaml:2:1: error: this is not YAML"),
        ("domain: \"a\n", "rules.yaml:1:9: error: this is not YAML"),
        ("a: *nobody\n", "rules.yaml:1:4: error: this is not YAML"),
        ("a: &a [*a]\n", "rules.yaml:1:8: error: this alias is inside its own anchor"),
        ("? [a]\n: b\n", "rules.yaml:1:4: error: a field has a name"),
    ] {
        let problems = problems(text);
        assert!(problems.first().is_some_and(|problem| problem.starts_with(beginning)), "{text}: {problems:?}");
    }
}

#[test]
fn files_from_other_systems_are_read() {
    let text = "\u{feff}domain: d\r\ndescriptors:\r\n- key: a\r\n  limits: 5/s\r\n";
    assert_eq!(&*rules(text)[0].name, "d.a");
    let json =
        r#"{"domain": "d", "descriptors": [{"key": "a", "rate_limit": {"unit": "day", "requests_per_unit": 5}}]}"#;
    assert_eq!(&*rules(json)[0].name, "d.a");
}

#[test]
fn texts_of_other_alphabets_are_marked_where_they_are() {
    assert_wrong(
        "domain: d\ndescriptors:\n- {key: 名前, «größe»: 1, limits: \"1 «größe»/s\"}\n",
        &["unknown field `größe`", "`größe` is no unit"],
    );
    assert_wrong(
        "# ééé 名前\ndomain: d # ööö\n«x»: 'é' # é\n«v»: \"é\"\n«z»: |\n  éé\n«w»: 1\n",
        &["unknown field…"; 4],
    );
}

#[test]
fn deep_files_are_refused() {
    let nested = |depth| "[".repeat(depth) + &"]".repeat(depth);
    assert!(problems(&nested(1_000_000))[0].contains("nested more than 64 deep"));
    let mut tree = String::from("domain: d\n");
    for level in 0..100 {
        let indent = "  ".repeat(level);
        let _ = write!(tree, "{indent}descriptors:\n{indent}- key: a\n");
    }
    assert!(problems(&tree)[0].contains("nested more than 64 deep"));
    // Each alias is one level deeper than the one before it.
    let mut chain = String::from("x-0: &a0 {key: a}\n");
    for level in 1..1_000 {
        let _ = writeln!(chain, "x-{level}: &a{level} {{key: a, descriptors: [*a{}]}}", level - 1);
    }
    assert!(problems(&chain)[0].contains("nested more than 64 deep"));
}

#[test]
fn a_bomb_of_aliases_is_refused() {
    let mut bomb = String::from("x-0: &a0 {key: a, limits: 1/s}\n");
    for level in 1..=9 {
        let nine = vec![format!("*a{}", level - 1); 9].join(", ");
        let _ = writeln!(bomb, "x-{level}: &a{level} {{key: a, descriptors: [{nine}]}}");
    }
    assert!(problems(&bomb)[0].contains("the file stands for more than 4194304 values"));
}

#[test]
fn what_follows_the_value_of_a_file_and_is_no_document_is_an_error() {
    let early = "{\n  \"domain\": \"d\"\n}«,»\n\"rules\": [{\"limits\": \"5/s\"}]\n}\n";
    assert_wrong(early, &["the value of this file ends before this"]);
    assert_wrong("[]\n«a»: b\n", &["the value of this file ends before this"]);
    assert_wrong("{\"domain\": \"d\"}\n«}»\n", &["this is not YAML: misplaced bracket"]);
    assert_wrong("rules: [{limits: 5/s}]\n«---»\n} whatever: [\n", &["only the first document of a file is read"]);
    assert_eq!(problems("rules: [{limits: 5/s}]\n...\n"), [""; 0]);
}

#[test]
fn aliases_that_stand_for_too_many_rules_are_refused() {
    let mut text = String::from("domain: d\nx-0: &a0 [{key: a}, {key: b}, {key: c}, {key: d}, {key: e}]\n");
    for level in 1..8 {
        let keys: Vec<_> =
            ["a", "b", "c", "d", "e"].map(|key| format!("{{key: {key}, descriptors: *a{}}}", level - 1)).into();
        let _ = writeln!(text, "x-{level}: &a{level} [{}]", keys.join(", "));
    }
    let parsed = read(&(text + "descriptors: *a7\n"));
    assert!(parsed.diagnostics.to_string().contains("the file stands for more than"), "{}", parsed.rules.len());
}

#[test]
fn a_long_list_of_problems_is_cut_and_errors_come_before_warnings() {
    let mut text = String::from("domain: d\ndescriptors:\n");
    for number in 0..5_000 {
        let _ = writeln!(text, "- {{key: k{number}, rate_limit: {{unit: day}}}}");
    }
    text.push_str("- key: bad\n  limits: nonsense\n");
    let parsed = read(&text);
    assert!(parsed.diagnostics.has_errors() && parsed.diagnostics.left_out() > 4_000);
}

/// Words that a rule file has, and some that it has not.
fn word() -> impl Strategy<Value = String> {
    let words = [
        "domain",
        "descriptors",
        "rules",
        "key",
        "value",
        "Value",
        "rate_limit",
        "unit",
        "requests_per_unit",
        "unlimited",
        "limits",
        "rate",
        "algorithm",
        "token_bucket",
        "sliding_log",
        "concurrency",
        "burst",
        "soft",
        "overage",
        "for",
        "per",
        "when",
        "unless",
        "exempt",
        "defaults",
        "mode",
        "shadow",
        "5/s",
        "10/day@Europe/Berlin",
        "2/month",
        "1MiB/s",
        "day",
        "a",
        "\"*\"",
        "a*b",
        "10.0.0.0/8",
        "ip/64",
        "{}",
        "[]",
        "~",
        "1.5",
        "-1",
        "0x10",
        "true",
        "on_limit",
        "delay",
        "2s",
        "is",
        "not",
        "cidr",
        "prefix",
        "replaces",
        "name",
        "metadata",
        "<<",
        "x-a",
        "unlimited",
        "min_interval",
        "initial",
        "share_threshold",
        "99999999999999999999",
        "\"\"",
        "&a b",
        "*a",
        "é/s",
        "consistency",
        "sync",
        "spread",
        "anchor",
    ];
    prop::sample::select(words.to_vec()).prop_map(str::to_owned)
}

/// A value in flow style.
fn value() -> impl Strategy<Value = String> {
    word().prop_recursive(5, 60, 6, |inner| {
        let pair = (word(), inner.clone()).prop_map(|(key, value)| format!("{key}: {value}"));
        prop_oneof![
            prop::collection::vec(inner, 0..6).prop_map(|items| format!("[{}]", items.join(", "))),
            prop::collection::vec(pair, 0..6).prop_map(|items| format!("{{{}}}", items.join(", "))),
        ]
    })
}

/// Whatever is said about a text is said about a place in it, and can be shown.
fn assert_told_well(text: &str) {
    let parsed = read(text);
    let length = text.chars().count() as u32;
    for problem in parsed.diagnostics.iter() {
        let span = problem.span.expect("a place");
        assert!(span.start <= span.end && span.end <= length + 1, "{problem:?}");
        assert!(problem.help.as_ref().is_some_and(|help| !help.is_empty()), "{problem:?}");
    }
    let _ = parsed.diagnostics.render(false);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_makes_it_panic(text in "\\PC{0,200}") {
        assert_told_well(&text);
    }

    #[test]
    fn no_file_makes_it_panic(fields in prop::collection::vec((word(), value()), 0..6)) {
        let text: String = fields.iter().map(|(key, value)| format!("{key}: {value}\n")).collect();
        assert_told_well(&text);
    }

    #[test]
    fn no_rule_makes_it_panic(rule in value(), limits in value(), pattern in value(), descriptor in value()) {
        assert_told_well(&format!(
            "domain: d\nrules:\n- {rule}\n- {{limits: {limits}, per: a}}\n- {{when: {{a: {pattern}}}, limits: 1/s}}\ndescriptors:\n- {descriptor}\n- {{key: a, rate_limit: {limits}, value: {pattern}}}\n"
        ));
    }

    #[test]
    fn no_limit_makes_it_panic(rate in "[0-9._]{0,22}[ a-zA-Z]{0,8}/[0-9.]{0,20}[a-z]{0,7}(@[A-Za-z/]{0,12})?") {
        assert_told_well(&format!("rules: [{{limits: \"{rate}\"}}]\n"));
    }
}

#[test]
fn of_many_mistakes_those_that_are_shown_have_help_and_the_others_take_no_time() {
    let mut zones = "rules:\n- limits:\n".to_owned();
    let mut fields = "rules:\n- limits: 1/s\n".to_owned();
    for number in 0..20_000 {
        let _ = writeln!(zones, "  - 1/day@Europe/Berln{number}");
        let _ = writeln!(fields, "  limts{number}: 5/s");
    }
    for text in [zones, fields] {
        let diagnostics = read(&text).diagnostics;
        assert_eq!(diagnostics.count(tollgate_rules::Severity::Error), 20_000);
        assert_eq!(diagnostics.iter().filter(|problem| problem.help.as_deref() != Some("")).count(), 200);
    }
}

#[test]
#[allow(clippy::disallowed_methods, reason = "how long it takes is what is tested")]
fn what_a_file_exempts_is_not_looked_through_for_each_of_its_rules() {
    let mut text = String::from("exempt:\n");
    for number in 0..50_000 {
        let _ = writeln!(text, "- {{ip: 10.{}.{}.0/24}}", number % 200, number / 200);
    }
    text.push_str("rules:\n");
    for number in 0..20_000 {
        let _ = writeln!(text, "- {{name: r{number}, when: {{path: /{number}}}, per: ip, limits: 5/s}}");
    }
    let started = std::time::Instant::now();
    assert_eq!(rules(&text).len(), 20_000);
    // A thousand million looks take minutes where this takes a second.
    assert!(started.elapsed() < std::time::Duration::from_secs(30), "{:?}", started.elapsed());
}
