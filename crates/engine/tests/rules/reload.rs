//! New rules under load: what keeps its counts, and that nobody ever sees half a set.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use super::asking::{START, advance, ask, entries, gate, passing, ready, rules};
use tollgate::{Check, Engine, ManualClock, MemoryStore, Micros, RuleSet, Tollgate};

fn flat(name: &str, limits: &str) -> String {
    format!("domain: d\nrules:\n- {{name: {name}, per: user, limits: {limits}}}\n")
}

const WINDOW: &str = "{rate: 5/h, algorithm: fixed_window}";

#[test]
fn what_is_unchanged_keeps_its_counts() {
    let gate = gate(&flat("a", WINDOW));
    assert_eq!(passing(&gate, "user=1", 3), 3);
    gate.replace_rules(rules(&flat("a", WINDOW)));
    let more = format!("{}- {{name: b, per: ip, limits: 9/s}}\n", flat("a", WINDOW));
    gate.replace_rules(rules(&more));
    assert_eq!(passing(&gate, "user=1", 9), 2);
    assert_eq!(passing(&gate, "user=2", 9), 5);
}

#[test]
fn changed_numbers_keep_the_counts_and_a_changed_window_starts_anew() {
    let gate = gate(&flat("a", WINDOW));
    assert_eq!(passing(&gate, "user=1", 4), 4);
    gate.replace_rules(rules(&flat("a", "{rate: 7/h, algorithm: fixed_window}")));
    assert_eq!(passing(&gate, "user=1", 9), 3);
    gate.replace_rules(rules(&flat("a", "{rate: 2/h, algorithm: fixed_window}")));
    assert_eq!(passing(&gate, "user=1", 9), 0);
    gate.replace_rules(rules(&flat("a", "{rate: 7/2h, algorithm: fixed_window}")));
    assert_eq!(passing(&gate, "user=1", 9), 7, "another window is another limit");
}

/// A named limit stays the same one, whatever it counts over; whether its counts are kept is for the core to say.
#[test]
fn a_bucket_keeps_its_level_across_rates_and_another_algorithm_starts_anew() {
    let bucket = |rate: &str| flat("a", &format!("{{name: x, rate: {rate}, algorithm: token_bucket, burst: 10}}"));
    let gate = gate(&bucket("1/s"));
    assert_eq!(passing(&gate, "user=1", 10), 10);
    gate.replace_rules(rules(&bucket("2/s")));
    assert_eq!(passing(&gate, "user=1", 10), 0);
    advance(&gate, Micros::SECOND);
    assert_eq!(passing(&gate, "user=1", 10), 2);
    gate.replace_rules(rules(&flat("a", "{name: x, rate: 3/m, algorithm: sliding_log}")));
    assert_eq!(passing(&gate, "user=1", 10), 3);
    gate.replace_rules(rules(&flat("a", "{name: x, rate: 3/m, algorithm: sliding_window}")));
    assert_eq!(passing(&gate, "user=1", 10), 3);
}

#[test]
fn what_is_renamed_starts_anew_and_what_is_removed_expires() {
    let gate = gate(&flat("a", WINDOW));
    assert_eq!(passing(&gate, "user=1", 9), 5);
    gate.replace_rules(rules(&flat("b", WINDOW)));
    assert_eq!(passing(&gate, "user=1", 9), 5);
    gate.replace_rules(RuleSet::default());
    assert!(ask(&gate, "user=1", 1).tolls.is_empty());
    gate.replace_rules(rules(&flat("a", WINDOW)));
    assert_eq!(passing(&gate, "user=1", 9), 0, "back within the hour, it goes on");
    gate.replace_rules(RuleSet::default());
    advance(&gate, Micros::HOUR);
    gate.replace_rules(rules(&flat("a", WINDOW)));
    assert_eq!(passing(&gate, "user=1", 9), 5);
}

/// How many of nine pass after three did and the rule was written another way.
fn after_three(before: &str, after: &str) -> u64 {
    let file = |rules: &str| format!("domain: d\nrules:\n{rules}\n");
    let gate = gate(&file(before));
    assert_eq!(passing(&gate, "user=1 plan=free ip=192.0.2.1", 3), 3, "{before}");
    gate.replace_rules(rules(&file(after)));
    passing(&gate, "user=1 plan=free ip=192.0.2.1", 9)
}

#[test]
fn what_the_table_of_the_documents_says_stays_stays() {
    let rule = |more: &str| format!("- {{name: a, per: user, limits: {WINDOW}{more}}}");
    let other = "- {name: b, per: ip, limits: 100/s}";
    let when = |plan: &str| rule(&format!(", when: {{plan: {plan}}}"));
    let two = |limits: &str| format!("- {{name: a, per: user, limits: [{limits}]}}");
    for (before, after) in [
        (format!("{}\n{other}", rule("")), format!("{other}\n{}", rule(""))),
        (two(&format!("{WINDOW}, 100/s")), two(&format!("100/s, {WINDOW}"))),
        (when("free"), when("[free, gold]")),
        (rule(""), rule(", unless: {plan: gold}")),
        (rule(", mode: shadow"), rule("")),
        (rule(""), rule(", on_limit: {reject_slowly: 1s}")),
    ] {
        assert_eq!(after_three(&before, &after), 2, "{before}\n{after}");
    }
    // In another file, behind another rule.
    let sources = ["domain: d\nrules: [{name: b, per: ip, limits: 100/s}]\n".to_owned(), flat("a", WINDOW)];
    let gate = gate(&flat("a", WINDOW));
    assert_eq!(passing(&gate, "user=1", 3), 3);
    let sources = sources.map(|text| tollgate::rules::Source::new("rules.yaml", text));
    gate.replace_rules(RuleSet::compile(tollgate::rules::parse(sources.into())).0);
    assert_eq!(passing(&gate, "user=1", 9), 2);
}

#[test]
fn what_the_table_of_the_documents_says_starts_anew_does_unless_it_is_named() {
    let rule = |limits: &str| format!("- {{name: a, per: user, limits: {limits}}}");
    let unnamed = |plan: &str| format!("- {{when: {{plan: {plan}}}, per: user, limits: {WINDOW}}}");
    let day = |zone: &str| rule(&format!("5/day@{zone}"));
    let sliding = |parts: u32| rule(&format!("{{rate: 5/h, sub_windows: {parts}}}"));
    let refill = |how: &str| rule(&format!("{{rate: 5/h, algorithm: token_bucket, refill: {how}}}"));
    let named = |rate: &str, algorithm: &str| rule(&format!("{{rate: {rate}, algorithm: {algorithm}, name: x}}"));
    for (before, after, passing) in [
        (rule(WINDOW), rule(WINDOW).replace("per: user", "per: [user, ip]"), 5),
        (unnamed("free"), unnamed("\"f*\""), 5),
        (rule(WINDOW), rule(WINDOW).replace("name: a", "name: b"), 5),
        (day("UTC"), day("Europe/Berlin"), 5),
        (sliding(1), sliding(2), 5),
        (refill("continuous"), refill("interval"), 5),
        (rule("{rate: 5/h, algorithm: fixed_window}"), rule("{rate: 5/h, algorithm: sliding_log}"), 5),
        (rule("{rate: 5/h, algorithm: sliding_log}"), rule("{rate: 5/2h, algorithm: sliding_log}"), 5),
        (named("5/h", "fixed_window"), named("5/2h", "fixed_window"), 5),
        (named("5/h", "sliding_log"), named("5/2h", "sliding_log"), 2),
        // A bucket keeps the time after which it is full: 36 minutes, in which half as many flow in now.
        (named("5/h", "token_bucket"), named("5/2h", "token_bucket"), 3),
    ] {
        assert_eq!(after_three(&before, &after), passing, "{before}\n{after}");
    }
    let domain = |name: &str| rules(&flat("a", WINDOW).replace("domain: d", &format!("domain: {name}")));
    let gate = gate(&flat("a", WINDOW));
    assert_eq!(passing(&gate, "user=1", 5), 5);
    gate.replace_rules(domain("e"));
    assert!(ready(gate.check(&Check::attributes("e", &[("user", "1")]))).is_ok_and(|verdict| verdict.allowed));
    gate.replace_rules(domain("d"));
    assert_eq!(passing(&gate, "user=1", 1), 0);
}

#[test]
fn lyfts_limits_are_told_by_their_place_and_unit() {
    let tree = |unit: &str, count: u32, name: &str| {
        format!(
            "domain: d\ndescriptors:\n- {{key: user, rate_limit: {{name: {name}, unit: {unit}, requests_per_unit: {count}}}}}\n"
        )
    };
    let gate = gate(&tree("hour", 5, "a"));
    assert_eq!(passing(&gate, "user=1", 4), 4);
    gate.replace_rules(rules(&tree("hour", 6, "b")));
    assert_eq!(passing(&gate, "user=1", 2), 2);
    gate.replace_rules(rules(&tree("day", 6, "b")));
    assert_eq!(passing(&gate, "user=1", 9), 6);
}

/// A set whose rules all say which it is: a decision that met rules of two sets would show it.
fn labelled(label: &str, amount: u64) -> String {
    let limits = format!("limits: {{rate: {amount}/h, name: {label}, algorithm: fixed_window}}");
    format!(
        "\
domain: d
rules:
- {{name: first {label}, per: user, {limits}}}
- {{name: second {label}, per: ip, {limits}}}
- {{name: alone {label}, per: single, {limits}}}
"
    )
}

#[test]
fn no_decision_sees_half_a_set_and_old_sets_are_freed() {
    const SWAPS: u64 = 4_000;
    const THREADS: u64 = 4;
    let (even, odd) = (labelled("even", 1_000_000_000), labelled("odd", 2_000_000_000));
    let clock = ManualClock::at(START);
    let gate = Tollgate::with_engine(rules(&even), Engine::with_clock(MemoryStore::new(), clock));
    let (stop, decisions) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut sets: Vec<Weak<RuleSet>> = Vec::new();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (gate, stop, decisions) = (&gate, &stop, &decisions);
            scope.spawn(move || {
                let mut kept = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    let simple = decisions.fetch_add(1, Ordering::Relaxed) % 2 == thread % 2;
                    let asked = entries(if simple { "single=1" } else { "user=1 ip=2.2.2.2" });
                    let verdict = ready(gate.check(&Check::attributes("d", &asked))).unwrap();
                    let names: Vec<&str> =
                        verdict.tolls.iter().map(|toll| &*verdict.rule(toll).expect("its own rule").name).collect();
                    let label = names[0].rsplit(' ').next().unwrap();
                    let limit = if label == "even" { 1_000_000_000 } else { 2_000_000_000 };
                    assert_eq!(names.len(), if simple { 1 } else { 2 });
                    assert!(names.iter().all(|name| name.ends_with(label)), "{names:?}");
                    assert!(verdict.tolls.iter().all(|toll| toll.outcome.limit == limit), "{verdict:?}");
                    // Some verdicts are kept for a while, and their rules with them.
                    kept.push(verdict);
                    if kept.len() > 20 {
                        kept.clear();
                    }
                }
            });
        }
        for swap in 0..SWAPS {
            sets.push(Arc::downgrade(&gate.rules()));
            gate.replace_rules(rules(if swap % 2 == 0 { &odd } else { &even }));
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(decisions.load(Ordering::Relaxed) > SWAPS / 10, "{decisions:?}");
    // A thread lets go of its last set a moment after it was waited for.
    let in_use = || sets.iter().filter(|set| set.strong_count() > 0).count();
    for _ in 0..100_000 {
        gate.replace_rules(RuleSet::default());
        if in_use() == 0 {
            break;
        }
        std::thread::yield_now();
    }
    assert_eq!(in_use(), 0, "sets that nobody uses");
}

#[test]
fn a_verdict_keeps_the_rules_that_it_was_made_by() {
    let gate = gate(&flat("a", WINDOW));
    let verdict = ask(&gate, "user=1", 1);
    let set = Arc::downgrade(&gate.rules());
    gate.replace_rules(rules(&flat("b", WINDOW)));
    assert_eq!(verdict.rule(&verdict.tolls[0]).map(|rule| &*rule.name), Some("a"));
    drop(verdict);
    gate.replace_rules(RuleSet::default());
    assert_eq!(set.strong_count(), 0);
}

#[test]
fn an_old_set_is_freed_by_who_replaces_the_next_one_and_never_by_who_decides() {
    let gate = gate(&flat("a", WINDOW));
    let replace = |text: &str| {
        let rules = rules(text);
        std::thread::scope(|scope| drop(scope.spawn(|| gate.replace_rules(rules))));
    };
    assert!(ask(&gate, "user=1", 1).allowed);
    let old = Arc::downgrade(&gate.rules());
    replace(&flat("b", WINDOW));
    assert_eq!(old.strong_count(), 2, "this thread has decided by it last");
    assert!(ask(&gate, "user=1", 1).allowed);
    assert_eq!(old.strong_count(), 1, "this thread has let it go, and did not free it");
    replace(&flat("a", WINDOW));
    assert_eq!(old.strong_count(), 0);
}
