//! tollgate's own dialect: every field, and what each wrong use of one is answered with.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod marked;

use std::sync::Arc;

use marked::{assert_wrong, rules};
use tollgate_core::{
    Algorithm, CalendarUnit, Concurrency, FixedWindow, LeakyBucket, LeakyForm, Limit, Micros, Pacing, Rate, Rounding,
    SlidingCounter, SlidingLog, Soft, TokenBucket, Window,
};
use tollgate_rules::{
    Consistency, Counted, KeyPattern, Limits, Mode, OnLimit, Pattern, Priority, Rule, RuleLimit, StoreFailure, Unit,
};

fn own(rule: &Rule) -> &[RuleLimit] {
    match &rule.limits {
        Limits::Own(limits) => limits,
        other => panic!("{}: {other:?}", rule.name),
    }
}

/// The one limit of a rule with `limits: text`.
#[track_caller]
fn limit(text: &str) -> RuleLimit {
    let rules = rules(&format!("rules:\n- limits: {text}\n"));
    let [limit] = own(&rules[0]) else { panic!("{text} is one limit") };
    limit.clone()
}

#[track_caller]
fn assert_is(text: &str, algorithm: impl Into<Algorithm>) {
    assert_eq!(*limit(text).limit.algorithm(), algorithm.into(), "{text}");
}

/// Asserts what is wrong with a rule that has `limits: marked`.
#[track_caller]
fn assert_wrong_limit(marked: &str, messages: &[&str]) {
    assert_wrong(&format!("rules:\n- limits: {marked}\n"), messages);
}

/// A pattern in `when`, and one in the tree.
fn patterns(text: &str) -> (Pattern, Pattern) {
    let flat = rules(&format!("rules:\n- {{when: {{a: {text}}}, limits: 1/s}}\n"));
    let tree = rules(&format!("domain: d\ndescriptors:\n- {{key: a, value: {text}, limits: 1/s}}\n"));
    (flat[0].entries[0].value.clone(), tree[0].entries[0].value.clone())
}

#[test]
fn the_example_with_every_field_is_understood() {
    let rules = rules(include_str!("examples/own.yaml"));
    let named = |name: &str| rules.iter().find(|rule| &*rule.name == name).unwrap_or_else(|| panic!("{name}"));
    let posts = named("posts");
    assert_eq!(&*posts.domain, "api");
    let keys: Vec<_> = posts.entries.iter().map(|entry| (entry.key.clone(), entry.counted)).collect();
    let exact = |key: &str| KeyPattern::Exact(key.into());
    let together = Counted::Together;
    assert_eq!(keys, [(exact("path"), together), (exact("method"), together), (exact("user_id"), Counted::ByValue)]);
    assert_eq!((posts.unless.len(), posts.exempt.len()), (1, 2), "its own group and two of the file");
    let quiet = named("quiet posts");
    assert_eq!((quiet.mode, quiet.priority), (Mode::Shadow, Some(Priority::Low)));
    assert_eq!(quiet.consistency, Consistency::Synced(Micros::from_millis(100)));
    assert_eq!(quiet.on_store_failure, StoreFailure::Deny);
    assert_eq!(quiet.entries.last().unwrap().counted, Counted::ByNetwork { v4: 24, v6: 56 });
    let signup = named("signup");
    assert_eq!(signup.entries[0].counted, Counted::ByNetwork { v4: 32, v6: 64 });
    assert_eq!(own(signup)[1].on_limit, OnLimit::RejectSlowly(Micros::SECOND));
    let identities = |name: &str| own(named(name)).iter().map(|limit| limit.identity.to_string()).collect::<Vec<_>>();
    assert_eq!(identities("buckets"), ["name:main", "requests/60s", "bytes/1s", "tokens/60s"]);
    assert_eq!(own(named("buckets"))[0].on_limit, OnLimit::Delay(Micros::from_secs(2)));
    assert!(matches!(named("admins").limits, Limits::None));
    let tenants = named("tenants a and b");
    assert_eq!(tenants.entries[0].value, Pattern::OneOf(["a".into(), "b".into()].into()));
    assert_eq!((tenants.mode, tenants.priority), (Mode::Off, Some(Priority::Critical)));
    assert_eq!((tenants.consistency, tenants.on_store_failure), (Consistency::Local, StoreFailure::Allow));
    assert_eq!(own(tenants)[1].on_limit, OnLimit::Enqueue);
    assert!(rules.iter().all(|rule| Arc::ptr_eq(&rule.exempt, &posts.exempt)), "one list for the whole file");
}

/// Newest first, the queue of a leaky bucket is kept by whoever lets requests wait: the limit itself lets nobody in who
/// cannot leave at once.
#[test]
fn a_queue_that_is_newest_first_promises_no_departures() {
    let text = "rules:\n- {name: a, per: a, limits: {rate: 5/s, algorithm: leaky_bucket, queue: 7, on_limit: {delay: 2s, order: newest_first}}}\n\
                - {name: b, per: b, limits: {rate: 5/s, on_limit: {delay: 2s, order: newest_first}}}\n\
                - {name: c, per: c, limits: {rate: 5/s, on_limit: {delay: 2s, order: oldest_first}}}\n";
    let rules = rules(text);
    let longest = Micros::from_secs(2);
    assert_eq!(own(&rules[0])[0].on_limit, OnLimit::DelayNewestFirst { longest, most: 7 });
    let queue = LeakyBucket::queue(Rate::per_second(5), 7).max_wait(Micros::ZERO);
    assert_eq!(*own(&rules[0])[0].limit.algorithm(), queue.into());
    assert_eq!(own(&rules[1])[0].on_limit, OnLimit::DelayNewestFirst { longest, most: u32::MAX });
    assert_eq!(own(&rules[2])[0].on_limit, OnLimit::Delay(longest));
}

#[test]
fn a_file_of_rules_needs_no_domain_and_a_rule_no_keys() {
    let rules = rules("rules:\n- limits: 10000/s\n- {per: ip, limits: 5/s}\n");
    assert_eq!(rules.iter().map(|rule| &*rule.name).collect::<Vec<_>>(), ["default", "default.ip"]);
    assert!(rules[0].entries.is_empty() && &*rules[0].domain == "default");
}

#[test]
fn a_key_that_is_a_condition_and_counted_is_one_entry() {
    let rules = rules("rules:\n- {when: {ip: 10.0.0.0/8, path: \"/a*\"}, per: [user, ip/48], limits: 1/s}\n");
    let entries = &rules[0].entries;
    assert_eq!(entries.len(), 3);
    assert_eq!(entries[0].counted, Counted::ByNetwork { v4: 32, v6: 48 });
    assert!(entries[0].value.matches("10.1.2.3"));
    assert_eq!(&*rules[0].name, "default.ip=(10.0.0.0/8).path=/a*.user");
}

#[test]
fn patterns_are_read() {
    let exact = |text: &str| Pattern::Exact(text.into());
    assert_eq!(patterns("x"), (exact("x"), exact("x")));
    assert_eq!(patterns("1"), (exact("1"), exact("1")));
    assert_eq!(patterns("{is: \"a*\"}"), (exact("a*"), exact("a*")));
    let (flat, tree) = patterns("\"*\"");
    assert_eq!(flat, Pattern::Any);
    assert!(matches!(tree, Pattern::Glob(_)), "in the tree a star comes before the key alone");
    let (flat, tree) = patterns("10.0.0.0/8");
    assert!(flat.matches("10.1.2.3") && !tree.matches("10.1.2.3") && tree.matches("10.0.0.0/8"));
    for (text, yes, no) in [
        ("[a, b]", ["a", "b"], ["c", "[a, b]"]),
        ("\"a*z\"", ["az", "abcz"], ["a", "bz"]),
        ("{prefix: /api/}", ["/api/", "/api/x"], ["/api", "x/api/"]),
        ("{prefix: [a, \"b*\"]}", ["ab", "b*c"], ["bc", ""]),
        ("{cidr: 10.0.0.0/8}", ["10.0.0.1", "::ffff:10.9.9.9"], ["11.0.0.1", "x"]),
        ("{cidr: [10.0.0.1, \"2001:db8::/32\"]}", ["10.0.0.1", "2001:db8::5"], ["10.0.0.2", "::1"]),
        ("{not: a}", ["b", ""], ["a", "a"]),
        ("{not: [a, \"b*\"]}", ["c", ""], ["a", "bx"]),
        ("{not: {cidr: 10.0.0.0/8}}", ["11.0.0.1", "x"], ["10.0.0.1", "10.2.2.2"]),
        ("[a, \"b*\", {cidr: 10.0.0.0/8}, {not: {prefix: c}}]", ["a", "10.0.0.1"], ["c", "cc"]),
    ] {
        let (flat, tree) = patterns(text);
        for pattern in [flat, tree] {
            assert!(yes.iter().all(|value| pattern.matches(value)), "{text}: {pattern:?}");
            assert!(!no.iter().any(|value| pattern.matches(value)), "{text}: {pattern:?}");
        }
    }
    let (flat, _) = patterns("[a, 10.0.0.1, 10.0.0.2, b]");
    assert!(["a", "b", "10.0.0.1", "10.0.0.2"].iter().all(|value| flat.matches(value)) && !flat.matches("c"));
}

#[test]
fn every_algorithm_and_option_is_understood() {
    let (second, five) = (Micros::SECOND, Rate::per_second(5));
    assert_is("5/s", SlidingCounter::new(5, second));
    assert_is("{rate: 5/s}", SlidingCounter::new(5, second));
    let rounded = SlidingCounter::new(5, second).rounding(Rounding::Ceil).sub_windows(10);
    assert_is("{rate: 5/s, rounding: ceil, sub_windows: 10}", rounded);
    assert_is("{rate: 5/s, algorithm: token_bucket}", TokenBucket::new(five));
    let bucket = TokenBucket::new(five).burst(10).initially(0).borrow(3);
    assert_is("{rate: 5/s, algorithm: token_bucket, burst: 10, initial: empty, borrow: 3}", bucket);
    let interval = TokenBucket::new(five).refill_at_intervals().initially(2);
    assert_is("{rate: 5/s, algorithm: token_bucket, refill: interval, initial: 2}", interval);
    assert_is("{rate: 5/s, algorithm: leaky_bucket}", LeakyBucket::queue(five, 5));
    let queue = LeakyBucket::queue(five, 9).max_wait(Micros::from_secs(2));
    assert_is("{rate: 5/s, algorithm: leaky_bucket, queue: 9, max_wait: 2s}", queue);
    assert_is("{rate: 5/s, algorithm: leaky_meter}", LeakyBucket::meter(five));
    let meter = LeakyBucket { rate: five, form: LeakyForm::Meter { capacity: 3 } };
    assert_is("{rate: 5/s, algorithm: leaky_meter, burst: 3}", meter);
    assert_is("{rate: 5/s, algorithm: fixed_window}", FixedWindow::new(5, second));
    let first = FixedWindow::in_window(5, Window::FirstEvent { length: second });
    assert_is("{rate: 5/s, algorithm: fixed_window, anchor: first_request}", first);
    let spread = FixedWindow::in_window(5, Window::Clock { length: second, spread: true }).record_rejected();
    assert_is("{rate: 5/s, algorithm: fixed_window, spread: true, record_rejected: true}", spread);
    assert_is("{min_interval: 5s}", FixedWindow::once_per(Micros::from_secs(5)));
    assert_is("{rate: 5/s, algorithm: sliding_log}", SlidingLog::new(5, second));
    let log = SlidingLog::new(10_000, Micros::HOUR).record_rejected().scaled_to(100);
    assert_is("{rate: 10k/h, algorithm: sliding_log, scale_to: 100, record_rejected: true}", log);
    assert_is("{concurrency: 10}", Concurrency::new(10, Micros::MINUTE));
    assert_is("{concurrency: 10, lease: 30s, algorithm: concurrency}", Concurrency::new(10, Micros::from_secs(30)));
    let clock = |spread| Window::Clock { length: Micros::DAY, spread };
    assert_is("{rate: 5000/day, algorithm: pacing}", Pacing::new(5_000, clock(false)));
    assert_is("{rate: 5000/day, algorithm: pacing, slack: 9, spread: true}", Pacing::new(5_000, clock(true)).slack(9));
    let soft = limit("{rate: 5/s, soft: {overage: 2, for: 30s}}").limit;
    assert_eq!(soft.softness(), Some(Soft { overage: 2, lasting: Micros::from_secs(30) }));
}

#[test]
fn the_calendar_gives_fixed_windows_and_budgets() {
    let window = |limit: &Limit| match limit.algorithm() {
        Algorithm::FixedWindow(FixedWindow { window: Window::Calendar(calendar), limit, .. })
        | Algorithm::Pacing(Pacing { window: Window::Calendar(calendar), budget: limit, .. }) => {
            (*limit, calendar.unit(), calendar.zone().name().to_owned())
        }
        other => panic!("{other:?}"),
    };
    for (text, amount, unit, zone) in [
        ("10/day@Europe/Berlin", 10, CalendarUnit::Day, "Europe/Berlin"),
        ("1/week@UTC", 1, CalendarUnit::Week, "UTC"),
        ("2/month", 2, CalendarUnit::Month, "UTC"),
        ("3/year@Asia/Tokyo", 3, CalendarUnit::Year, "Asia/Tokyo"),
        ("{rate: 900/month, algorithm: pacing}", 900, CalendarUnit::Month, "UTC"),
    ] {
        assert_eq!(window(&limit(text).limit), (amount, unit, zone.to_owned()), "{text}");
    }
    assert_is("10/day", SlidingCounter::new(10, Micros::DAY));
    assert_is("1/week", SlidingCounter::new(1, Micros::WEEK));
    let rules = rules("defaults: {algorithm: token_bucket}\nrules:\n- limits: [5/s, 10/month]\n");
    let algorithms: Vec<_> = own(&rules[0]).iter().map(|limit| limit.limit.algorithm()).collect();
    assert!(matches!(algorithms[..], [Algorithm::TokenBucket(_), Algorithm::FixedWindow(_)]));
}

#[test]
fn limits_have_texts_and_identities() {
    for (text, written, identity, unit) in [
        ("300/3h", "300/3h", "requests/10800s", None),
        ("1MiB/s", "1MiB/s", "bytes/1s", Some("bytes")),
        ("\"1000  tokens/min\"", "1000 tokens/min", "tokens/60s", Some("tokens")),
        ("10/500ms", "10/500ms", "requests/500ms", None),
        ("2/month", "2/month", "requests/month@UTC", None),
        ("{concurrency: 10}", "10 at once", "requests/at once", None),
        ("{min_interval: 5s}", "1/5s", "requests/5s", None),
        ("{rate: 5/s, name: burst}", "5/s", "name:burst", None),
        ("{rate: 5/s, counts: bytes}", "5/s", "bytes/1s", Some("bytes")),
        ("{rate: 5/s, counts: requests}", "5/s", "requests/1s", None),
    ] {
        let limit = limit(text);
        let unit = unit.map_or(Unit::Requests, |unit| Unit::Named(unit.into()));
        assert_eq!((&*limit.text, &*limit.identity, limit.unit), (written, identity, unit));
    }
    let rules = rules("rules:\n- limits: [5/s, {rate: 9/s, algorithm: token_bucket}, 3/h]\n");
    let identities: Vec<_> = own(&rules[0]).iter().map(|limit| &*limit.identity).collect();
    assert_eq!(identities, ["requests/1s", "requests/1s#2", "requests/3600s"]);
    let rules = marked::rules("rules:\n- limits: [5/s, {rate: 9/h, name: requests/1s}]\n");
    let identities: Vec<_> = own(&rules[0]).iter().map(|limit| &*limit.identity).collect();
    assert_eq!(identities, ["requests/1s", "name:requests/1s"], "a name is not what another limit is known by");
}

#[test]
fn defaults_hold_where_nothing_else_is_said() {
    let text = "\
domain: d
defaults: {mode: shadow, priority: high, consistency: local, on_store_failure: deny, on_limit: enqueue, algorithm: pacing}
descriptors:
- {key: a, rate_limit: {unit: day, requests_per_unit: 1}}
- {key: b, limits: 5/s}
rules:
- {per: c, limits: {rate: 5/s, algorithm: token_bucket, on_limit: reject}, mode: enforce, priority: low}
";
    let rules = rules(text);
    for rule in &rules[..2] {
        assert_eq!((rule.mode, rule.priority), (Mode::Shadow, Some(Priority::High)), "{}", rule.name);
        assert_eq!((rule.consistency, rule.on_store_failure), (Consistency::Local, StoreFailure::Deny));
    }
    assert!(matches!(own(&rules[1])[0].limit.algorithm(), Algorithm::Pacing(_)));
    assert_eq!(own(&rules[1])[0].on_limit, OnLimit::Enqueue);
    assert_eq!((rules[2].mode, rules[2].priority), (Mode::Enforce, Some(Priority::Low)));
    assert!(matches!(own(&rules[2])[0].limit.algorithm(), Algorithm::TokenBucket(_)));
    assert_eq!(own(&rules[2])[0].on_limit, OnLimit::Reject);
}

#[test]
fn merged_fields_come_after_those_written() {
    let text = "\
x-a: &a {mode: shadow, priority: high, limits: 5/s}
x-b: &b {priority: low, per: user}
rules:
- {<<: [*a, *b], mode: enforce}
- {<<: *b, limits: 1/s, when: {<<: {plan: free, host: x}, plan: gold}}
";
    let rules = rules(text);
    assert_eq!((rules[0].mode, rules[0].priority), (Mode::Enforce, Some(Priority::High)));
    assert_eq!(&*rules[0].name, "default.user");
    assert_eq!(&*rules[1].name, "default.plan=gold.host=x.user");
}

#[test]
fn options_of_other_algorithms_are_refused_with_the_names_of_theirs() {
    assert_wrong_limit(
        "{rate: 5/s, «burst»: 5, «queue»: 5, «lease»: 5s}",
        &[
            "`burst` is an option of `token_bucket` or `leaky_meter`, not of `sliding_window`",
            "`queue` is an option of `leaky_bucket`, not of `sliding_window`",
            "`lease` is an option of `concurrency`, not of `sliding_window`",
        ],
    );
    assert_wrong_limit("{concurrency: 5, «rate»: 5/s}", &["`rate` is an option of `sliding_window`, `token_bucket`…"]);
    assert_wrong_limit(
        "{rate: «5/month», algorithm: token_bucket}",
        &["`token_bucket` needs a time of fixed length, not a month of the calendar"],
    );
    assert_wrong_limit(
        "{rate: 5/month, algorithm: fixed_window, «anchor»: clock}",
        &["a month of the calendar begins when it begins"],
    );
    assert_wrong_limit("{rate: 5/s, «min_interval»: 5s}", &["`min_interval` beside `rate`: at most one in…"]);
    assert_wrong_limit(
        "{rate: 5/s, algorithm: fixed_window, anchor: first_request, «spread»: true}",
        &["`spread` beside `anchor`: each key's windows…"],
    );
}

#[test]
fn limits_that_do_not_work_are_refused() {
    for (text, messages) in [
        ("«[»]", &["this list of limits is empty"][..]),
        ("[5/s, «unlimited»]", &["`unlimited` stands alone"]),
        ("{rate: «unlimited»}", &["`unlimited` is not a rate"]),
        ("[[«5/s»]]", &["expected a limit such as…"]),
        ("{«burst»: 5, algorithm: token_bucket}", &["this limit has no `rate`"]),
        ("{«algorithm»: concurrency}", &["how many at the same time?"]),
        ("{rate: 5/s, «alogrithm»: pacing}", &["unknown field `alogrithm`"]),
        ("{rate: 5/s, algorithm: «gcra»}", &["expected `sliding_window`, `token_bucket`…"]),
        ("{rate: 5/s, soft: {«overage»: 5}}", &["`soft` needs `overage` and `for`"]),
        ("{rate: 5/s, soft: {overage: 5, for: «0s»}}", &["this is no time at all"]),
        ("{rate: 5/s, on_limit: «queue»}", &["a queue in which requests wait is an algorithm"]),
        ("{rate: 5/s, on_limit: «delay»}", &["`delay` does not say how long"]),
        ("{rate: 5/s, on_limit: {delay: «2»}}", &["`2` of what?"]),
        ("{rate: 5/s, on_limit: «order»}", &["expected `reject` or `enqueue`, found `order`"]),
        ("{rate: 5/s, on_limit: {«order»: newest_first}}", &["this is about those who wait, and nobody does"]),
        (
            "{rate: 5/s, on_limit: {delay: 1s, order: «newest»}}",
            &["expected `oldest_first` or `newest_first`, found `newest`"],
        ),
        (
            "{rate: 5/s, algorithm: leaky_bucket, «max_wait»: 2s, on_limit: {delay: 1s, order: newest_first}}",
            &["how long one may wait is said by `delay`"],
        ),
        (
            "{rate: 5/s, algorithm: leaky_bucket, queue: «0», on_limit: {delay: 1s, order: newest_first}}",
            &["nobody may wait, so nobody is first"],
        ),
        ("{rate: 5/s, on_limit: {delay: 2s, «reject_slowly»: 1s}}", &["`reject_slowly` beside `delay`: a request…"]),
        ("{rate: 5/s, «rate»: 6/s}", &["`rate` is written twice"]),
        ("{rate: 1MiB/s, counts: «tokens»}", &["the rate counts something else"]),
        ("{rate: 5/s, counts: «a b»}", &["`a b` is no unit"]),
        ("{rate: 5/s, algorithm: token_bucket, initial: «7»}", &["the initial fill is above the capacity"]),
        ("{rate: 5/s, algorithm: token_bucket, initial: «half»}", &["expected `full` or `empty`, found `half`"]),
        ("{rate: «0/s», algorithm: token_bucket, burst: 5}", &["the rate is zero, so the bucket…"]),
        ("{rate: 5/s, sub_windows: «7»}", &["the window must divide into 1 to 1024…"]),
        ("{rate: 5/s, sub_windows: «0»}", &["`0` is not a whole number from 1 to 1024"]),
        ("{rate: «100k/s», algorithm: sliding_log}", &["a sliding log of 100000 entries is above…"]),
        ("{rate: 5/s, algorithm: pacing, slack: «0»}", &["the slack is zero, so the last unit could never be spent"]),
        ("{concurrency: «70000»}", &["70000 slots are above the bound of 65536"]),
        ("{concurrency: 5, lease: «0s»}", &["this is no time at all"]),
        ("«5/80000d»", &["the window is longer than 71 years"]),
        ("{rate: 5/s, algorithm: token_bucket, burst: «-5»}", &["`-5` is not a whole number…"]),
        ("{rate: 5/s, algorithm: token_bucket, burst: «5 tokens»}", &["what is counted is said by the rate"]),
        ("[{rate: 5/s, name: a}, {rate: 5/h, name: «a»}]", &["two limits of this rule are named `a`"]),
        ("[10/day@«Europe/Berln»]", &["there is no time zone `Europe/Berln`"]),
        ("\"10/day@«Mars/Olympus»\"", &["there is no time zone `Mars/Olympus`"]),
    ] {
        assert_wrong_limit(text, messages);
    }
}

#[test]
fn rules_that_do_not_work_are_refused() {
    for (text, messages) in [
        ("rules:\n- «per»: a\n", &["this rule has no `limits`"][..]),
        ("rules:\n- {per: a, «limts»: 5/s}\n", &["unknown field `limts`"]),
        ("rules: «5»\n", &["expected a list, found `5`"]),
        ("rules:\n- {«key»: a, limits: 1/s}\n", &["`key` belongs in…"]),
        ("rules:\n- {«burst»: 5, limits: 1/s}\n", &["`burst` belongs inside `limits`, not beside it"]),
        (
            "rules:\n- {«rate_limit»: {unit: day}, limits: 1/s}\n",
            &["`rate_limit` belongs in a descriptor, not in a rule"],
        ),
        ("rules:\n- {when: «{»}, limits: 1/s}\n", &["there are no conditions here, so it would always hold"]),
        ("rules:\n- {when: «a», limits: 1/s}\n", &["expected keys with values…"]),
        ("rules:\n- {when: {a: b, «a»: c}, limits: 1/s}\n", &["`a` is written twice"]),
        ("rules:\n- {when: {«\"a*\"»: b}, limits: 1/s}\n", &["keys have no patterns here"]),
        ("rules:\n- {when: {a«»: }, limits: 1/s}\n", &["there is no value here"]),
        ("rules:\n- {when: {a: «1.5»}, limits: 1/s}\n", &["`1.5` is a number that can be read in…"]),
        ("rules:\n- {when: {a: «10.0.0.0/33»}, limits: 1/s}\n", &["`10.0.0.0/33` is not a network"]),
        ("rules:\n- {when: {a: {cidr: «x»}}, limits: 1/s}\n", &["`x` is not a network"]),
        ("rules:\n- {when: {a: {is: x, «not»: y}}, limits: 1/s}\n", &["a pattern has one field…"]),
        ("rules:\n- {when: {a: {«regex»: x}}, limits: 1/s}\n", &["unknown field `regex`"]),
        (
            "rules:\n- {per: [«\"a*\"», b, «b/200», «{»}], limits: 1/s}\n",
            &["keys have…", "`b/200` does not…", "there is no key…"],
        ),
        ("rules:\n- {per: [a, «a»], limits: 1/s}\n", &["`a` is counted by twice"]),
        ("rules:\n- {per: {key: a, v4: «33», v6: «129»}, limits: 1/s}\n", &["`33` is not…", "`129` is not…"]),
        ("rules:\n- {mode: «of», priority: «urgent», limits: 1/s}\n", &["expected `enforce`…", "expected `low`…"]),
        ("rules:\n- {consistency: «eventual», limits: 1/s}\n", &["expected `exact` or `local`, found `eventual`"]),
        ("rules:\n- {consistency: {sync: «100»}, limits: 1/s}\n", &["`100` of what?"]),
        ("defaults: {«limits»: 5/s}\nrules: [{limits: 1/s}]\n", &["`limits` belongs in…"]),
        ("exempt: «5»\nrules: [{limits: 1/s}]\n", &["expected keys with values…"]),
        ("«rulez»: []\nrules: [{limits: 1/s}]\n", &["unknown field `rulez`"]),
        (
            "domain: d\ndescriptors:\n- {key: a, limits: 1/s, «rate_limit»: {unit: day, requests_per_unit: 1}}\n",
            &["`rate_limit` beside `limits`: a descriptor has…"],
        ),
        (
            "domain: d\ndescriptors:\n- {key: a, limits: 1/s, shadow_mode: true, «mode»: off}\n",
            &["`mode` beside `shadow_mode`: they say the same"],
        ),
        (
            "domain: d\ndescriptors:\n- {key: a, «algorithm»: pacing, rate_limit: {unit: day, requests_per_unit: 1}}\n",
            &["`algorithm` belongs to `limits`…"],
        ),
    ] {
        assert_wrong(text, messages);
    }
}

#[test]
fn what_may_be_written_instead_of_a_word_is_told_with_the_words() {
    for (rule, help) in [
        ("{limits: 1/s, on_limit: wait}", "write `reject`, `enqueue`, `{delay: 2s}` or `{reject_slowly: 1s}`"),
        ("{limits: 1/s, consistency: eventual}", "write `exact`, `local` or `{sync: 100ms}`"),
    ] {
        let parsed = marked::read(&format!("rules: [{rule}]\n"));
        let told: Vec<_> = parsed.diagnostics.iter().map(|problem| problem.help.as_deref()).collect();
        assert_eq!(told, [Some(help)], "{rule}");
    }
}

#[test]
fn rules_without_names_are_told_apart_by_their_entries() {
    let whens = [
        "{a: b}",
        "{a: b, c: \"*\"}",
        "{a: b.c}",
        "{a: \"b=c\"}",
        "{a: {is: \"b*\"}}",
        "{a: \"b*\"}",
        "{a: {prefix: \"b*\"}}",
        "{a: \"b**\"}",
        "{a: \"b.*\"}",
        "{a: {not: b}}",
        "{a: not b}",
        "{a: \"!b\"}",
        "{a: [x, y]}",
        "{a: \"[x,y]\"}",
        "{a: \"[x, y]\"}",
        "{a: [v, \"z*\"]}",
        "{a: \"\"}",
        "{a: '\"\"'}",
        "{a: 2001:db8::/32}",
        "{a: {is: 2001:db8::/32}}",
        "{a: '(2001:db8::/32)'}",
        "{a: {not: \"*\"}}",
    ];
    let mut text = "domain: d\nrules:\n".to_owned();
    for when in whens {
        text += &format!("- {{when: {when}, limits: 1/s}}\n");
    }
    text += "- {per: a_b, limits: 1/s}\n- {per: [a, b], limits: 1/s}\n- {per: a.b, limits: 1/s}\n";
    text += "- {per: a=b, limits: 1/s}\n- {per: a, limits: 1/s}\n";
    text += "descriptors:\n- {key: a, value: \"*\", limits: 1/s}\n- {key: \"a*\", value: b, limits: 1/s}\n";
    let rules = rules(&text);
    let names: std::collections::BTreeSet<_> = rules.iter().map(|rule| &*rule.name).collect();
    assert_eq!(names.len(), whens.len() + 7, "{names:#?}");
    for name in ["d.a=b", "d.a_b", "d.a.b", "d.\"a.b\"", "d.a=\"b.c\"", "d.a=b*", "d.a=\"b*\"", "d.a*=b", "d.a=*"] {
        assert!(names.contains(name), "{name}: {names:#?}");
    }
}

#[test]
fn names_that_are_written_twice_or_made_up_elsewhere_are_refused() {
    for text in [
        "rules:\n- {name: x, per: a, limits: 1/s}\n- {name: «x», per: b, limits: 1/s}\n",
        "rules:\n- {per: a, limits: 1/s}\n- {name: «default.a», per: b, limits: 1/s}\n",
    ] {
        assert_wrong(text, &["two rules of the domain `default` are called…"]);
    }
}

#[test]
fn what_to_write_instead_is_told() {
    for (text, message, help) in [
        (
            "domain: d\ndescriptors:\n- {key: a, limits: 1/s, shadow_mode: \"true\"}\n",
            "\"true\" is text because of its quotes",
            "write true without quotes",
        ),
        ("rules: [{limits: 1e3/s}]\n", "`1e3` has an exponent", "write `1000` or `1k`"),
        (
            "rules:\n- limits: 5/s, 100/h\n",
            "`5/s, 100/h` is more than one rate",
            "several limits are a list: `[5/s, 100/h]`",
        ),
        ("rules: [{limits: unlimitted}]\n", "`unlimitted` is not a rate", "did you mean `unlimited`?"),
        ("rules: [{limits: 5r/s}]\n", "there is no unit `r`", "requests are counted without a unit: `5/…`"),
        ("rules: [{limits: 5/M}]\n", "there is no unit of time `M`", "write `min` for a minute or `month` for a month"),
        ("limits: 5/s\nrules: []\n", "`limits` belongs inside `rules`, not beside it", "write `rules: [{limits: …}]`"),
        (
            "rules:\n- name:a\n  limits:5/s\n",
            "expected a mapping, found `name:a limits:5/s`",
            "put a space after each colon: `name: …`",
        ),
        (
            "rules: [{limits: {rate: 5/s, algorithm: token_bucket, initial: half}}]\n",
            "expected `full` or `empty`, found `half`",
            "write `full`, `empty` or `20`",
        ),
        (
            "rules: [{limits: {rate: 5/s, sub_windows: 7}}]\n",
            "the window must divide into 1 to 1024 sub-windows of whole microseconds",
            "write a number that divides the window evenly",
        ),
        ("rules: [{limits: 2.5E+2/s}]\n", "`2.5E+2` has an exponent", "write `250`"),
        (
            "rules: [{limits: 1e99/s}]\n",
            "`1e99` has an exponent",
            "write all its digits, or a short form such as `1k` or `1M`",
        ),
        (
            "rules: [{limits: 1/s, exempt: {a: b}}]\n",
            "`exempt` belongs at the top of the file, not in a rule",
            "move it out, beside `rules`",
        ),
        (
            "domain: d\ndescriptors:\n- {key: a, rate_limit: {}}\n",
            "invalid rate limit unit ''",
            "write per which time, such as `unit: minute`, or `unlimited: true`",
        ),
        (
            "domain: d\ndescriptors:\n- key: a\n  rate_limit:\n",
            "`rate_limit` says nothing, so what this descriptor matches is exempt",
            "write how much, such as `{unit: minute, requests_per_unit: 5}`, or remove it if that is meant",
        ),
    ] {
        let parsed = marked::read(text);
        let told: Vec<_> =
            parsed.diagnostics.iter().map(|problem| (&*problem.message, problem.help.as_deref())).collect();
        assert_eq!(told, [(message, Some(help))], "{text}");
    }
}

#[test]
fn values_that_are_listed_twice_are_told() {
    for (text, messages) in [
        ("{when: {a: [x, y, «x»]}, limits: 1/s}", &["`x` is listed twice"][..]),
        ("{when: {a: {is: [x, «x»]}}, limits: 1/s}", &["`x` is listed twice"]),
        ("{when: {a: [x, y, «x», y, x]}, limits: 1/s}", &["`x` is listed twice (and 2 more of this list)"]),
        ("{when: {a: {not: [x, y, «x»]}}, limits: 1/s}", &["`x` is listed twice"]),
        ("{when: {a: [10.0.0.0/8, «10.1.2.3/8»]}, limits: 1/s}", &["`10.0.0.0/8` is listed twice"]),
        (
            "{when: {a: {not: [10.0.0.0/8, «10.1.0.0/16»]}}, limits: 1/s}",
            &["`10.1.0.0/16` says nothing new: `10.0.0.0/8` has all of it"],
        ),
        (
            "{per: a, unless: {ip: [«10.1.0.0/16», 10.0.0.0/8], path: [/a*, «/ab»]}, limits: 1/s}",
            &[
                "`10.1.0.0/16` says nothing new: `10.0.0.0/8` has all of it",
                "`/ab` says nothing new: `/a*` has all of it",
            ],
        ),
        (
            "{per: a, unless: {ip: {cidr: [10.0.0.0/8, «10.1.2.3»]}}, limits: 1/s}",
            &["`10.1.2.3/32` says nothing new: `10.0.0.0/8` has all of it"],
        ),
    ] {
        assert_wrong(&format!("rules:\n- {text}\n"), messages);
    }
    // Among rules the longer network wins, so it is not pointless beside the shorter one.
    assert_wrong("rules:\n- {when: {ip: [10.0.0.0/8, 10.1.0.0/16], b: [1, 11]}, limits: 1/s}\n", &[]);
}

#[test]
fn exceptions_that_say_nothing_are_told() {
    let new = "this exception says nothing new: another one holds whenever it does";
    for (text, messages) in [
        ("exempt: [{ip: 10.0.0.0/8}, {«ip»: 10.1.0.0/16}]\nrules: [{limits: 1/s}]", &[new][..]),
        ("exempt: [{«ip»: 10.1.0.0/16}, {ip: 10.0.0.0/8}]\nrules: [{limits: 1/s}]", &[new]),
        ("rules:\n- {per: a, unless: [{b: 1}, {«b»: 1, c: 2}], limits: 1/s}", &[new]),
        ("rules:\n- {per: a, unless: [{b: 1, c: x*}, {«c»: xy, b: 1}], limits: 1/s}", &[new]),
        (
            "rules:\n- {when: {plan: free}, unless: {«plan»: gold}, limits: 1/s}",
            &["this exception never holds: the rule is only for `plan=free`"],
        ),
        (
            "rules:\n- {when: {ip: 10.0.0.0/8}, unless: [{«ip»: 192.168.0.0/16}, {ip: 10.1.0.0/16}], limits: 1/s}",
            &["this exception never holds: the rule is only for `ip=10.0.0.0/8`"],
        ),
        (
            "domain: d\ndescriptors:\n- {key: plan, value: f*, unless: {«plan»: gold}, limits: 1/s}",
            &["this exception never holds: the rule is only for `plan=f*`"],
        ),
        (
            "exempt: {ip: 10.0.0.0/8}\nrules:\n- {per: a, unless: {«ip»: 10.1.0.0/16, b: 1}, limits: 1/s}",
            &["this exception says nothing new: `exempt` of this file has all of it"],
        ),
        ("rules:\n- {per: a, unless: [{b: 1, c: 2}, {b: 1, d: 2}, {b: 2}, {c: 3}], limits: 1/s}", &[]),
        ("exempt: [{ip: 10.1.0.0/16}, {ip: 10.0.0.0/8, path: /a}]\nrules: [{limits: 1/s, unless: {path: /a}}]", &[]),
        ("rules:\n- {when: {a: 1}, per: b, unless: [{b: x}, {a: \"1*\", c: 1}], limits: 1/s}", &[]),
        ("domain: d\ndescriptors:\n- {key: p*, value: free, unless: {plan: gold}, limits: 1/s}", &[]),
    ] {
        assert_wrong(&format!("{text}\n"), messages);
    }
}
