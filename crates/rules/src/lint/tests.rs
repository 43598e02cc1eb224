//! Each finding fires, and for each there is a near miss that does not.

use std::sync::Arc;

use tollgate_core::{
    Algorithm, Calendar, CalendarUnit, Concurrency, FixedWindow, LeakyBucket, Limit, Micros, Rate, Refill,
    SlidingCounter, SlidingLog, Soft, TokenBucket, Window, Zone,
};

use super::*;
use crate::diagnostic::{Severity, Source};
use crate::model::{Consistency, Counted, Entry, LyftLimit, LyftRate, LyftUnit, OnLimit, StoreFailure, Unit};
use crate::pattern::{Glob, Network};

/// A value as in a file: `a`, `a*`, `10.0.0.0/8`, `!a`, `a|b`, or nothing for any.
fn pattern(text: &str) -> Pattern {
    if let Some(not) = text.strip_prefix('!') {
        return Pattern::Not(Box::new(pattern(not)));
    }
    match text {
        "" => Pattern::Any,
        "[]" => Pattern::AnyOf([].into()),
        list if list.contains('|') => Pattern::AnyOf(list.split('|').map(pattern).collect()),
        network if network.contains('/') => Pattern::Networks([Network::parse(network).unwrap()].into()),
        glob if glob.contains('*') => Pattern::Glob(Glob::parse(glob).unwrap()),
        exact => Pattern::Exact(exact.into()),
    }
}

/// `key=value key=value`.
fn pairs(text: &str) -> Vec<(Arc<str>, Pattern)> {
    let pair = |word: &str| {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        (Arc::from(key), pattern(value))
    };
    text.split_whitespace().map(pair).collect()
}

fn rule(name: &str, entries: &str, limits: Limits) -> Rule {
    let entry =
        |(key, value)| Entry { key: KeyPattern::Exact(key), value, counted: Counted::ByValue, value_to_metric: false };
    Rule {
        domain: "shop".into(),
        name: name.into(),
        span: Span::default(),
        entries: pairs(entries).into_iter().map(entry).collect(),
        unless: Vec::new(),
        exempt: [].into(),
        limits,
        mode: Mode::Enforce,
        priority: None,
        consistency: Consistency::default(),
        on_store_failure: StoreFailure::default(),
        quota_mode: false,
        detailed_metric: false,
        metadata: None,
    }
}

fn lyft(entries: &str) -> Rule {
    let rate = LyftRate::new(5, LyftUnit::Second).unwrap();
    rule(entries, entries, Limits::Lyft(LyftLimit { name: None, replaces: Vec::new(), rate: Some(rate.into()) }))
}

fn limit(text: &str, algorithm: impl Into<Algorithm>) -> RuleLimit {
    RuleLimit {
        text: text.into(),
        limit: Limit::new(algorithm).unwrap().into(),
        identity: text.into(),
        unit: Unit::Requests,
        on_limit: OnLimit::Reject,
        span: Span::default(),
    }
}

fn own(name: &str, entries: &str) -> Rule {
    rule(name, entries, Limits::Own(vec![limit("5/s", SlidingCounter::new(5, Micros::SECOND))]))
}

fn at(start: u32, rule: Rule) -> Rule {
    Rule { span: Span { start, ..rule.span }, ..rule }
}

fn found(rules: &[Rule]) -> Vec<(Severity, &'static str, String)> {
    let mut diagnostics = Diagnostics::new(vec![Source::new("a", "")]);
    lint(rules, &mut Work::default(), &mut diagnostics);
    assert!(diagnostics.iter().all(|one| one.help.is_some()), "{diagnostics}");
    diagnostics.iter().map(|one| (one.severity, one.code, one.message.clone())).collect()
}

fn codes(rules: &[Rule]) -> Vec<&'static str> {
    found(rules).into_iter().map(|(_, code, _)| code).collect()
}

#[test]
fn two_descriptors_at_one_place_are_told_in_the_words_of_upstream() {
    let found = found(&[lyft("a=b c=d"), lyft("a=b"), lyft("a=b c=d")]);
    let message = "duplicate descriptor composite key 'shop.a_b.c_d'".to_owned();
    assert_eq!(found, [(Severity::Error, "duplicate-descriptor", message)]);
    assert_eq!(codes(&[lyft("a=b*"), lyft("a=b*")]), ["duplicate-descriptor"]);

    let elsewhere = Rule { domain: "other".into(), ..lyft("a=b") };
    assert!(codes(&[lyft("a=b"), lyft("a_b"), lyft("a=c"), lyft("a"), lyft("b=a"), elsewhere]).is_empty());
    assert!(codes(&[lyft("a b"), lyft("b a")]).is_empty());
}

#[test]
fn two_rules_for_the_same_are_told_also_where_only_lists_overlap() {
    assert_eq!(codes(&[own("x", "a=1 b"), own("y", "a=1 b")]), ["duplicate-rule"]);
    assert_eq!(codes(&[own("x", "a=1|2 b"), own("y", "a=2|3 b")]), ["duplicate-rule"]);
    assert_eq!(codes(&[own("x", ""), own("y", "")]), ["duplicate-rule"]);
    assert!(codes(&[own("x", "a=1|2 b"), own("y", "a=3|4 b"), own("z", "a=3 c")]).is_empty());
    let off = Rule { mode: Mode::Off, ..own("x", "a=1") };
    assert_eq!(codes(&[off, own("x", "a=1")]), ["off"]);
}

#[test]
fn two_rules_of_one_name_are_told() {
    assert_eq!(codes(&[own("x", "a"), at(1, own("x", "b"))]), ["duplicate-name"]);
    assert_eq!(codes(&[own("x", "a"), at(1, own("x", "a"))]), ["duplicate-rule"], "the worse of the two");
    let elsewhere = Rule { domain: "other".into(), ..own("x", "a") };
    assert!(codes(&[own("x", "a"), own("y", "b"), elsewhere]).is_empty());
    let named = |entries| rule("x", entries, lyft("a").limits);
    assert!(codes(&[named("a"), named("b")]).is_empty(), "descriptors are told apart by their place");
}

#[test]
fn wildcards_behind_wider_ones_are_told() {
    assert_eq!(codes(&[lyft("a=*"), lyft("a=foo*")]), ["shadowed"]);
    assert_eq!(codes(&[lyft("a=foo*"), lyft("a=foobar*")]), ["shadowed"]);
    assert_eq!(codes(&[lyft("a=*r*"), lyft("a=foobar*")]), ["shadowed"]);
    assert_eq!(codes(&[lyft("a=f* b"), lyft("a=foo* c")]), ["shadowed"], "nobody turns back");
    assert_eq!(codes(&[lyft("a"), lyft("a=*")]), ["shadowed"]);
    let near_misses = [
        lyft("a=foo*"),
        lyft("a=fo*"),
        lyft("a=*bar"),
        lyft("a=foo"),
        lyft("a"),
        lyft("b=foo*"),
        lyft("c=x d=*"),
        lyft("c=y d=foo*"),
    ];
    assert!(codes(&near_misses).is_empty());
    assert!(codes(&[own("x", "a=*"), own("y", "a=foo*")]).is_empty(), "of attributes the most specific wins");
}

#[test]
fn descriptors_ask_for_rules_of_both_dialects_in_the_order_of_the_file() {
    assert_eq!(codes(&[own("x", "a=*"), lyft("a=foo*")]), ["shadowed"]);
    assert_eq!(codes(&[lyft("a=*"), own("x", "a=foo*")]), ["shadowed"]);
    assert_eq!(codes(&[own("x", "a=*"), lyft("a")]), ["shadowed"], "the default comes last");
    assert_eq!(codes(&[own("x", "a=f*"), own("y", "a=foo* b"), lyft("a=foo* c")]), ["shadowed"], "met before");
    assert!(codes(&[own("x", "a=foo*"), lyft("a=foo* b"), lyft("a=foo* c")]).is_empty(), "one pattern, three rules");
    let elsewhere = Rule { domain: "other".into(), ..lyft("a=foo*") };
    assert!(codes(&[own("x", "a=*"), elsewhere]).is_empty());
}

#[test]
fn networks_and_exclusions_behind_wider_patterns_are_told() {
    for (earlier, later) in [
        ("a=10.0.0.0/8", "a=10.1.0.0/16"),
        ("a=10.0.0.0/8", "a=10.1.0.0/16|10.2.3.4/32"),
        ("a=*", "a=10.0.0.0/8"),
        ("a=*", "a=!x"),
        ("a=!x", "a=!x|y"),
        ("a=!f*", "a=!f*|g"),
        ("a=!10.0.0.0/8", "a=11.0.0.0/8"),
        ("a=!x", "a=y*"),
        ("a=!10.1.0.0/16", "a=!10.0.0.0/8"),
        ("a=10.0.0.0/8 b", "a=10.1.0.0/16 c"),
    ] {
        let told = codes(&[lyft(earlier), lyft(later)]);
        assert!(!told.is_empty() && told.iter().all(|code| *code == "shadowed"), "{earlier} {later}: {told:?}");
        assert!(codes(&[lyft(later), lyft(earlier)]).is_empty(), "{later} {earlier}");
    }
    let near_misses = [
        lyft("a=10.0.0.0/8"),
        lyft("a=11.0.0.0/8"),
        lyft("a=10.0.0.0/7"),
        lyft("a=10.*"),
        lyft("a=!x|y"),
        lyft("a=!x"),
        lyft("b=!10.0.0.0/8"),
        lyft("b=10.1.0.0/16"),
        lyft("b=x*"),
        lyft("c=10.1.0.0/16"),
        lyft("d=10.0.0.0/8|10.1.0.0/16"),
    ];
    assert!(codes(&near_misses).is_empty(), "{:?}", found(&near_misses));
    let by_attributes = [own("x", "a=10.0.0.0/8"), own("y", "a=10.1.0.0/16"), own("z", "a=!q"), own("w", "a=f*")];
    assert!(codes(&by_attributes).is_empty(), "of attributes the most specific wins");
}

#[test]
fn of_exclusions_the_first_wins_however_it_is_asked() {
    for (earlier, later) in
        [("a=!x", "a=!x|y"), ("a=!x b", "a=!x|y b=1"), ("a=1 b=!x c", "a=1 b=!x|y c=2"), ("a=!x", "a=!x*")]
    {
        let rules = [own("w", earlier), own("n", later)];
        let message = "the rule `n` never applies: `w` is for all that it is for".to_owned();
        assert_eq!(found(&rules), [(Severity::Warning, "shadowed", message)], "{earlier} {later}");
        assert!(codes(&[own("n", later), own("w", earlier)]).is_empty(), "{later} {earlier}");
        let shadow = Rule { mode: Mode::Shadow, ..own("w", earlier) };
        assert!(codes(&[shadow, own("n", later)]).is_empty(), "a shadow takes nobody's place");
    }
    for (earlier, later) in [
        ("a=!x", "a=!y"),
        ("a=!x b=1", "a=!x|y b"),
        ("a=!x b=1", "a=!x|y b=2"),
        ("b a=!x", "a=!x|y b"),
        ("a=!x", "a=!x|y b"),
        ("a=!x b=1", "a=2 b=1"),
    ] {
        assert!(codes(&[own("w", earlier), own("n", later)]).is_empty(), "{earlier} {later}");
    }
    // The pattern of the last was met before, on the way to a rule of other keys, and is tried first.
    let rules = [own("o", "a=!x|y c"), own("w", "a=!x b"), own("n", "a=!x|y b")];
    assert!(codes(&rules).is_empty());
}

#[test]
fn rules_that_never_apply_are_told() {
    let unless = |entries: &str, groups: &[&str]| {
        let condition = |(key, value)| Condition { key, value };
        let groups: Vec<Vec<_>> =
            groups.iter().map(|group| pairs(group).into_iter().map(condition).collect()).collect();
        // What the file says counts as what the rule says.
        let exempt = Rule { exempt: groups.clone().into(), ..own("x", entries) };
        let unless = Rule { unless: groups, ..own("x", entries) };
        assert_eq!(codes(std::slice::from_ref(&exempt)), codes(std::slice::from_ref(&unless)), "{unless:?}");
        unless
    };
    for never in [
        unless("a=[]", &[]),
        unless("a=!*", &[]),
        unless("a=foo", &["a=f*"]),
        unless("a=foo|far", &["b=1", "a=f*"]),
        unless("a=foo b", &["a=foo b"]),
        unless("a", &["a"]),
        unless("a", &[""]),
    ] {
        assert_eq!(codes(std::slice::from_ref(&never)), ["never-applies"], "{never:?}");
    }
    for sometimes in [
        unless("a=foo", &["a=b*"]),
        unless("a=foo|bar", &["a=f*"]),
        unless("a=foo", &["a=foo b"]),
        unless("a=foo b", &["a=foo b=1"]),
        unless("a=foo", &["b"]),
        unless("a", &["a=f*", "a=g*"]),
        unless("a=!foo", &[]),
    ] {
        assert!(codes(std::slice::from_ref(&sometimes)).is_empty(), "{sometimes:?}");
    }
}

#[test]
fn a_pattern_of_keys_may_stand_for_the_key_of_an_exception() {
    // A descriptor `ab=1 ab=foo` is not excepted: it is the first `ab` that is compared.
    let unless = vec![vec![Condition { key: "ab".into(), value: pattern("foo") }]];
    let mut rule = Rule { unless, ..own("x", "a ab=foo") };
    assert!(codes(&[Rule { entries: rule.entries.clone(), ..rule.clone() }]).contains(&"never-applies"));
    rule.entries[0].key = KeyPattern::Glob(Glob::parse("a*").unwrap());
    assert!(codes(&[rule]).is_empty());
}

#[test]
fn rules_that_are_off_are_told() {
    assert_eq!(codes(&[Rule { mode: Mode::Off, ..own("x", "a") }]), ["off"]);
    assert!(codes(&[Rule { mode: Mode::Shadow, ..own("x", "a") }]).is_empty());
}

#[test]
fn replacing_what_does_not_exist_is_told_with_the_nearest_name() {
    let named = |entries: &str, name: Option<&str>, replaces: &[&str]| {
        let replaces = replaces.iter().map(|name| Arc::from(*name)).collect();
        rule(entries, entries, Limits::Lyft(LyftLimit { name: name.map(Arc::from), replaces, rate: None }))
    };
    let rules = [named("a", Some("base"), &[]), named("b", None, &["bsae"])];
    let mut diagnostics = Diagnostics::default();
    lint(&rules, &mut Work::default(), &mut diagnostics);
    let first = diagnostics.iter().next().unwrap();
    assert_eq!((first.code, first.help.as_deref()), ("replaces-nothing", Some("did you mean `base`?")));

    assert!(codes(&[named("a", Some("base"), &[]), named("b", None, &["base"])]).is_empty());
    let elsewhere = Rule { domain: "other".into(), ..named("a", Some("base"), &[]) };
    assert_eq!(codes(&[elsewhere, named("b", None, &["base"])]), ["replaces-nothing"]);
}

#[test]
fn limits_of_zero_are_told() {
    let zero = |limits| codes(&[rule("x", "a", Limits::Own(limits))]);
    assert_eq!(zero(vec![limit("0/s", SlidingCounter::new(0, Micros::SECOND))]), ["denies-all"]);
    let with_other =
        vec![limit("0/s", FixedWindow::new(0, Micros::SECOND)), limit("5/s", FixedWindow::new(5, Micros::SECOND))];
    assert_eq!(zero(with_other), ["denies-all"]);
    assert!(zero(vec![limit("1/s", SlidingCounter::new(1, Micros::SECOND))]).is_empty());
    let soft = Soft { overage: 1, lasting: Micros::SECOND };
    let soft = RuleLimit {
        limit: Limit::soft(SlidingCounter::new(0, Micros::SECOND), soft).unwrap().into(),
        ..limit("0/s", SlidingCounter::new(0, Micros::SECOND))
    };
    assert!(zero(vec![soft]).is_empty());
}

/// Whether the second limit is pointless beside the first.
#[track_caller]
fn assert_pointless(expected: bool, first: impl Into<Algorithm>, second: impl Into<Algorithm>) {
    let (first, second) = (limit("first", first), limit("second", second));
    let rules = [rule("x", "a", Limits::Own(vec![first, second]))];
    let found = found(&rules);
    let told = found.iter().any(|(_, code, message)| *code == "pointless-limit" && message.starts_with("`second`"));
    assert_eq!(told, expected, "{found:?}");
}

#[test]
fn limits_that_another_makes_pointless_are_told() {
    let (second, minute) = (Micros::SECOND, Micros::MINUTE);
    let counter = SlidingCounter::new;
    assert_pointless(true, counter(10, second), counter(1_000, minute));
    assert_pointless(true, counter(10, second), counter(610, minute));
    assert_pointless(false, counter(10, second), counter(609, minute));
    assert_pointless(false, counter(10, second), counter(500, minute));
    assert_pointless(true, counter(5, second), counter(7, second));
    assert_pointless(true, counter(5, second), counter(5, second));
    assert_pointless(false, counter(7, second), counter(5, second));
    assert_pointless(true, counter(10, second), counter(630, minute).sub_windows(60));
    assert_pointless(false, counter(10, second), counter(600, minute).sub_windows(60));
    // 7 seconds do not divide a minute: an interval of one may touch ten windows.
    assert_pointless(true, counter(70, Micros::from_secs(7)), counter(740, minute));
    assert_pointless(false, counter(70, Micros::from_secs(7)), counter(739, minute));

    let window = FixedWindow::new;
    assert_pointless(true, window(10, second), window(600, minute));
    assert_pointless(false, window(10, second), window(599, minute));
    let spread = FixedWindow::in_window(10, Window::Clock { length: second, spread: true });
    assert_pointless(false, spread.clone(), window(600, minute));
    let more = FixedWindow { limit: 11, ..spread.clone() };
    assert_pointless(false, spread, more);

    let log = SlidingLog::new;
    assert_pointless(true, log(10, second), log(600, minute));
    assert_pointless(false, log(10, second), log(599, minute));
    assert_pointless(false, log(10, second), log(600, minute).record_rejected());

    let bucket = |units, burst| TokenBucket::new(Rate::per_second(units)).burst(burst);
    assert_pointless(true, bucket(10, 50), window(650, minute));
    assert_pointless(false, bucket(10, 50), window(649, minute));
    assert_pointless(true, bucket(10, 50), bucket(10, 50));
    assert_pointless(true, bucket(10, 50), bucket(11, 50));
    assert_pointless(false, bucket(10, 50), bucket(11, 49));
    assert_pointless(false, bucket(10, 50), bucket(9, 100));
    assert_pointless(false, bucket(10, 50), bucket(10, 50).initially(49));
    assert_pointless(false, bucket(10, 50), TokenBucket { refill: Refill::Interval, ..bucket(100, 500) });
    assert_pointless(true, LeakyBucket::meter(Rate::per_second(10)), bucket(10, 2));

    let day = FixedWindow::in_window(300, Calendar::new(CalendarUnit::Day, Zone::utc()).into());
    assert_pointless(true, window(10, Micros::HOUR), day.clone());
    assert_pointless(false, window(11, Micros::HOUR), day);
    assert_pointless(true, Concurrency::new(5, minute), Concurrency::new(5, second));
    assert_pointless(false, Concurrency::new(5, second), Concurrency::new(6, minute));
    assert_pointless(false, Concurrency::new(5, minute), window(1_000_000, second));
}

#[test]
fn limits_of_other_units_are_not_compared() {
    let small = limit("10/s", SlidingCounter::new(10, Micros::SECOND));
    let large = limit("1000/min", SlidingCounter::new(1_000, Micros::MINUTE));
    let bytes = RuleLimit { unit: Unit::Named("bytes".into()), ..large.clone() };
    let both = |one, other| codes(&[rule("x", "a", Limits::Own(vec![one, other]))]);
    assert_eq!(both(large.clone(), small.clone()), ["pointless-limit"], "in either order");
    assert!(both(small.clone(), bytes).is_empty());
    let soft = Soft { overage: 5, lasting: Micros::MINUTE };
    let soft = RuleLimit { limit: Limit::soft(SlidingCounter::new(10, Micros::SECOND), soft).unwrap().into(), ..small };
    assert!(both(soft, large).is_empty());
}

#[test]
fn many_rules_that_are_alike_come_to_an_end() {
    let rules: Vec<Rule> = (0..20_000).map(|number| lyft(&format!("a=*{number}x*"))).collect();
    assert!(codes(&rules).len() <= 1_000);
    let wide = (0..100).map(|number| number.to_string()).collect::<Vec<_>>().join("|");
    let rules: Vec<Rule> =
        (0..3).map(|number| own(&number.to_string(), &format!("a={wide} b={wide} c={wide} d={wide}"))).collect();
    assert!(codes(&rules).is_empty(), "too many combinations to look at");
}

#[test]
fn where_the_key_is_a_wildcard_the_order_of_the_file_counts() {
    let keyed = |start, key: &str, value: &str| {
        let mut rule = at(start, lyft(&format!("a={value}")));
        rule.entries[0].key = match Glob::parse(key) {
            Some(glob) => KeyPattern::Glob(glob),
            None => KeyPattern::Exact(key.into()),
        };
        rule
    };
    let shadowed = |rules: &[Rule]| {
        let mut diagnostics = Diagnostics::new(vec![Source::new("a", "0123456789")]);
        lint(rules, &mut Work::default(), &mut diagnostics);
        diagnostics.iter().map(|one| (one.code, one.span.unwrap().start)).collect::<Vec<_>>()
    };
    for (earlier, later) in [
        (("a*", ""), ("a*", "*")),
        (("a*", "*"), ("a*", "")),
        (("a*", ""), ("a*", "x*")),
        (("a*", ""), ("a*", "x")),
        (("*", ""), ("x*", "")),
        (("*", ""), ("*x*", "y*")),
        (("*", ""), ("a", "x*")),
        (("a*", "*"), ("ab", "!x")),
        (("a*", "x*"), ("ab", "xy*")),
    ] {
        let rules = [keyed(1, earlier.0, earlier.1), keyed(2, later.0, later.1)];
        assert_eq!(shadowed(&rules), [("shadowed", 2)], "{earlier:?} {later:?}");
    }
    // The default of a key is tried last, wherever it is written.
    assert_eq!(shadowed(&[keyed(1, "a", ""), keyed(2, "*", "")]), [("shadowed", 1)]);
    for (earlier, later) in [
        (("a*", "x*"), ("a*", "")),
        (("x*", ""), ("*", "")),
        (("*", ""), ("a", "x")),
        (("a", "x*"), ("*", "")),
        (("b*", ""), ("a", "x*")),
        (("b*", ""), ("a", "")),
        (("*", "x*"), ("a", "")),
    ] {
        let rules = [keyed(1, earlier.0, earlier.1), keyed(2, later.0, later.1)];
        assert_eq!(shadowed(&rules), [], "{earlier:?} {later:?}");
    }
}
