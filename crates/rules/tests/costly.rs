//! Files that are made to take long do not.
//!
//! Each of them took minutes when it was compared pair by pair. What counts is the processor's time of this thread, so
//! that other tests do not matter.

use std::fmt::Write;

use tollgate_rules::{RuleSet, Source, parse};

/// Nanoseconds that this thread had a processor.
fn cpu() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or_default()
}

/// What is said of `text`, which is read and compiled without compiler optimisations in some seconds.
#[track_caller]
fn quickly(text: &str) -> String {
    let start = cpu();
    let (_, diagnostics) = RuleSet::compile(parse(vec![Source::new("rules.yaml", text)]));
    let took = (cpu() - start) / 1_000_000;
    assert!(took < 20_000, "{took} ms for {} bytes", text.len());
    diagnostics.to_string()
}

/// `[first 0 last, first 1 last, …]`
fn list(length: usize, first: &str, last: &str) -> String {
    let items: Vec<String> = (0..length).map(|number| format!("{first}{number}{last}")).collect();
    format!("[{}]", items.join(", "))
}

#[test]
fn two_rules_with_the_same_long_list() {
    let values = list(65_536, "v", "");
    let text = format!(
        "x-l: &l {values}\nrules:\n- {{name: a, when: {{a: *l}}, limits: 5/s}}\n- {{name: b, when: {{a: *l}}, limits: 5/s}}\n"
    );
    let told = quickly(&text);
    assert!(told.contains("the rule `b` is for the same keys and values as `a`"), "{told}");
}

#[test]
fn merged_fields_behind_very_many_others() {
    let mut text = String::new();
    for number in 0..50_000 {
        let _ = writeln!(text, "x-{number}: 1");
    }
    text.push_str("domain: d\n<<:\n");
    for _ in 0..50_000 {
        text.push_str("  domain: d\n");
    }
    text.push_str("rules: [{limits: 5/s}]\n");
    assert_eq!(quickly(&text), "");
}

#[test]
fn exceptions_that_are_long_lists_of_beginnings() {
    let (wide, narrow) = (list(30_000, "p", "-"), list(30_000, "p", "-x"));
    let one = format!(
        "rules:\n- {{name: a, when: {{k: {{prefix: {narrow}}}}}, unless: {{k: {{prefix: {wide}}}}}, limits: 5/s}}\n"
    );
    assert_eq!(quickly(&one), "", "what takes too long to see is not told");
    let mut many = format!("rules:\n- name: a\n  when: {{k: {{prefix: {narrow}}}}}\n  limits: 5/s\n  unless:\n");
    for number in 0..3_000 {
        let _ = writeln!(many, "  - {{k: {{prefix: q{number}}}}}");
    }
    quickly(&many);
    let groups: String =
        (0..2_000).map(|number| format!("  - {{k: {{prefix: [q{number}, r{number}]}}, j: j{number}}}\n")).collect();
    quickly(&format!("exempt:\n{groups}rules:\n- name: a\n  limits: 5/s\n  unless:\n{groups}"));
}

#[test]
fn very_many_keys_with_a_star() {
    let mut text = String::from("domain: d\ndescriptors:\n");
    for number in 0..100_000 {
        let _ = writeln!(text, "- {{key: \"k{number}*\", limits: 5/s}}");
    }
    let told = quickly(&text);
    assert!(told.contains("100000 keys with a `*` are tried one by one for each request"), "{told}");
}

#[test]
fn patterns_that_are_tried_one_by_one_are_counted() {
    let file = |many: usize, pattern: &str| {
        let mut text = String::from("rules:\n");
        for number in 0..many {
            let pattern = pattern.replace('N', &number.to_string());
            let _ = writeln!(text, "- {{when: {{path: {pattern}}}, limits: 5/s}}");
        }
        quickly(&text)
    };
    let alike = file(20_000, "\"/api/*/rN/*\"");
    assert!(
        alike.contains("20000 patterns of `path` that begin and end alike are tried one by one for each request"),
        "{alike}"
    );
    let loose = file(1_001, "\"*rN*\"");
    assert!(loose.contains("1001 patterns of `path` without a fixed beginning or end are tried one by one"), "{loose}");
    let not = file(1_001, "{not: rN}");
    assert!(not.contains("1001 patterns of `path` without a fixed beginning or end are tried one by one"), "{not}");
    for quick in [file(1_000, "\"*rN*\""), file(20_000, "\"/api/rN/*\""), file(20_000, "\"*/api/rN\"")] {
        assert_eq!(quick, "");
    }
}
