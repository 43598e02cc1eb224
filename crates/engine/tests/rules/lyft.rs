//! Envoy's way to ask, to the letter: sections 1.2 to 2.2 of what is known of envoyproxy/ratelimit.

use super::asking::{Asked, START, advance, alone, costing, gate, of, request, request_in, status};
use tollgate::rules::{LyftUnit, OnLimit, Override};
use tollgate::{Check, Descriptor, Micros, StatusKind, Verdict};

const TEN: &str = "domain: d\ndescriptors:\n- {key: a, rate_limit: {unit: minute, requests_per_unit: 10}}\n";

fn at_limit(requests_per_unit: u32, unit: LyftUnit, entries: &str) -> Asked<'_> {
    Asked { limit: Some(Override { requests_per_unit, unit }), ..of(entries) }
}

fn refund(entries: &str, cost: u64) -> Asked<'_> {
    Asked { refund: true, ..costing(entries, cost) }
}

#[test]
fn what_is_denied_burns_the_window() {
    let gate = gate(TEN);
    assert_eq!(alone(&gate, costing("a=1", 8)), "OK 2/10");
    assert_eq!(alone(&gate, costing("a=1", 5)), "OVER 0/10");
    assert_eq!(alone(&gate, of("a=1")), "OVER 0/10");
    assert_eq!(alone(&gate, of("a=2")), "OK 9/10", "another value is another counter");
    assert_eq!(alone(&gate, refund("a=1", 5)), "OK 1/10", "14 were counted");
    advance(&gate, Micros::MINUTE);
    assert_eq!(alone(&gate, of("a=1")), "OK 9/10");
}

#[test]
fn a_cost_above_the_limit_burns_the_window_as_well() {
    let gate = gate(TEN);
    assert_eq!(alone(&gate, costing("a=1", 11)), "OVER 0/10");
    assert_eq!(alone(&gate, of("a=1")), "OVER 0/10");
}

#[test]
fn a_peek_is_over_only_above_the_limit() {
    let gate = gate(TEN);
    let peek = costing("a=1", 0);
    assert_eq!(alone(&gate, peek), "OK 10/10");
    assert_eq!(alone(&gate, costing("a=1", 10)), "OK 0/10");
    assert_eq!(alone(&gate, peek), "OK 0/10", "at the limit");
    assert_eq!(alone(&gate, peek), "OK 0/10", "nothing was counted");
    assert_eq!(alone(&gate, of("a=1")), "OVER 0/10");
    assert_eq!(alone(&gate, peek), "OVER 0/10", "above the limit");
    let verdict = request(&gate, &[peek]);
    assert_eq!(verdict.tolls[0].cost, 0);
}

#[test]
fn a_descriptors_cost_comes_before_the_requests() {
    let gate = gate(TEN);
    let entries = [("a", "1")];
    let descriptors = [Descriptor::new(&entries), Descriptor::new(&entries).cost(2), Descriptor::new(&entries).cost(0)];
    let verdict = super::asking::ready(gate.check(&Check::descriptors("d", &descriptors).cost(3))).unwrap();
    let statuses = [0, 1, 2].map(|at| status(&verdict, at));
    assert_eq!(statuses, ["OK 7/10", "OK 5/10", "OK 5/10"], "each is counted on its own, in order");
}

#[test]
fn zero_requests_per_unit_deny_every_hit_and_no_peek() {
    let gate = gate("domain: d\ndescriptors:\n- {key: a, rate_limit: {unit: day, requests_per_unit: 0}}\n");
    assert_eq!(alone(&gate, costing("a=1", 0)), "OK 0/0");
    assert_eq!(alone(&gate, of("a=1")), "OVER 0/0");
    assert_eq!(alone(&gate, costing("a=1", 0)), "OVER 0/0", "what was denied counts");
}

#[test]
fn what_has_no_limit_is_ok() {
    let gate = gate("domain: d\ndescriptors:\n- {key: a, rate_limit: {unlimited: true}}\n- {key: b}\n");
    assert_eq!(alone(&gate, costing("a=1", 1_000_000)), "OK unlimited");
    assert_eq!(alone(&gate, of("b=1")), "OK -");
    assert_eq!(alone(&gate, of("q=1")), "OK -");
    assert_eq!(alone(&gate, of("")), "OK -");
    let elsewhere = request_in(&gate, "elsewhere", &[of("a=1")]);
    assert!(elsewhere.allowed && elsewhere.tolls.is_empty());
}

const REPLACING: &str = "\
domain: d
descriptors:
- {key: old, rate_limit: {name: old, unit: minute, requests_per_unit: 1}}
- {key: new, rate_limit: {name: new, unit: minute, requests_per_unit: 5, replaces: [{name: old}]}}
- {key: free, rate_limit: {name: free, unlimited: true, replaces: [{name: old}, {name: new}]}}
- {key: x, rate_limit: {name: x, unit: minute, requests_per_unit: 1, replaces: [{name: y}]}}
- {key: y, rate_limit: {name: y, unit: minute, requests_per_unit: 1, replaces: [{name: x}]}}
";

#[test]
fn a_replaced_limit_does_not_count_within_the_request() {
    let gate = gate(REPLACING);
    for left in (0..5).rev() {
        let verdict = request(&gate, &[of("old=1"), of("new=1")]);
        assert_eq!([status(&verdict, 0), status(&verdict, 1)], ["OK -".to_owned(), format!("OK {left}/5")]);
        assert_eq!(verdict.descriptors[0].kind, StatusKind::Replaced);
    }
    assert_eq!(alone(&gate, of("old=1")), "OK 0/1", "it was never incremented");
    assert_eq!(alone(&gate, of("old=1")), "OVER 0/1", "alone it counts");
}

#[test]
fn an_unlimited_limit_replaces_and_two_may_replace_each_other() {
    let gate = gate(REPLACING);
    for _ in 0..9 {
        let verdict = request(&gate, &[of("old=1"), of("new=1"), of("free=1")]);
        assert_eq!([0, 1, 2].map(|at| status(&verdict, at)), ["OK -", "OK -", "OK unlimited"]);
        let verdict = request(&gate, &[of("x=1"), of("y=1")]);
        assert_eq!([0, 1].map(|at| status(&verdict, at)), ["OK -", "OK -"]);
    }
    assert_eq!(alone(&gate, of("x=1")), "OK 0/1");
}

#[test]
fn shadow_mode_counts_and_says_ok() {
    let gate = gate(
        "domain: d\ndescriptors:\n- {key: a, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 1}}\n",
    );
    assert_eq!(alone(&gate, of("a=1")), "OK 0/1");
    let verdict = request(&gate, &[of("a=1")]);
    assert_eq!((verdict.allowed, status(&verdict, 0)), (true, "OK 0/1".to_owned()));
    assert!(verdict.tolls[0].shadow && verdict.tolls[0].outcome.denied(), "what it would have said is told");
}

#[test]
fn quotas_deny_only_when_all_of_them_are_over() {
    let gate = gate(
        "\
domain: d
descriptors:
- {key: p, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 1}}
- {key: q, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 2}}
- {key: own, quota_mode: true, limits: 1/m}
- {key: a, rate_limit: {unit: minute, requests_per_unit: 3}}
",
    );
    let both = || request(&gate, &[of("p=1"), of("q=1"), of("a=1"), of("nothing=1")]);
    assert!(both().allowed);
    let second = both();
    assert_eq!((second.allowed, status(&second, 0), status(&second, 1)), (true, "OVER 0/1".into(), "OK 0/2".into()));
    let third = both();
    assert_eq!((third.allowed, status(&third, 0), status(&third, 1)), (false, "OVER 0/1".into(), "OVER 0/2".into()));
    assert!(!request(&gate, &[of("p=9"), of("a=1")]).allowed, "others deny by themselves");
    let own = request(&gate, &[of("own=1")]);
    assert_eq!((own.allowed, own.descriptors[0].kind), (true, StatusKind::Quota));
}

/// What binds, and how long it takes.
fn bound_by<'a>(verdict: &'a Verdict<'_>) -> (&'a str, Option<Micros>) {
    let rule = verdict.binding().and_then(|toll| verdict.rule(toll));
    (rule.map_or("none", |rule| &*rule.name), verdict.retry_after())
}

#[test]
fn a_quota_binds_only_with_all_others_and_then_by_the_shortest_wait() {
    let gate = gate(
        "\
domain: d
descriptors:
- {key: q, name: q, quota_mode: true, limits: {rate: 1/d, algorithm: fixed_window, on_limit: enqueue}}
- {key: p, name: p, quota_mode: true, rate_limit: {unit: day, requests_per_unit: 100}}
- {key: m, name: m, quota_mode: true, limits: {rate: 1/m, algorithm: fixed_window, on_limit: {reject_slowly: 3s}}}
- {key: s, name: s, rate_limit: {unit: second, requests_per_unit: 1}}
- {key: h, name: h, rate_limit: {unit: hour, requests_per_unit: 1}}
",
    );
    let first = request(&gate, &[of("q=1"), of("p=1"), of("s=1")]);
    assert_eq!((first.allowed, bound_by(&first)), (true, ("s", Some(Micros::ZERO))));
    let second = request(&gate, &[of("q=1"), of("p=1"), of("s=1")]);
    assert_eq!((second.allowed, bound_by(&second)), (false, ("s", Some(Micros::SECOND))), "q is over, and p is not");
    assert_eq!(second.on_limit(), OnLimit::Reject, "not what q says");

    let lenient = request(&gate, &[of("q=1"), of("p=1")]);
    assert_eq!((lenient.allowed, bound_by(&lenient)), (true, ("p", Some(Micros::ZERO))), "q is over and stops nobody");

    assert!(request(&gate, &[of("q=1"), of("m=1"), of("h=1")]).allowed);
    let spent = request(&gate, &[of("q=1"), of("m=1")]);
    assert_eq!((spent.allowed, bound_by(&spent)), (false, ("m", Some(Micros::MINUTE))), "one of them is enough");
    assert_eq!(spent.on_limit(), OnLimit::RejectSlowly(Micros::from_secs(3)));
    let both = request(&gate, &[of("q=1"), of("m=1"), of("s=1"), of("s=1")]);
    assert_eq!(bound_by(&both), ("m", Some(Micros::MINUTE)), "the second is over sooner");
    let both = request(&gate, &[of("q=1"), of("m=1"), of("h=1")]);
    assert_eq!(bound_by(&both), ("h", Some(Micros::HOUR)), "the minute is over sooner");
    let never = request(&gate, &[costing("q=1", 2), of("m=1")]);
    assert_eq!(bound_by(&never), ("m", Some(Micros::MINUTE)), "what never fits is no matter if another does");
    let never = request(&gate, &[costing("q=1", 2), costing("m=1", 2), of("h=1")]);
    assert_eq!((never.allowed, never.retry_after()), (false, None));
}

#[test]
fn an_override_counts_with_the_rule_of_its_unit() {
    let gate = gate(TEN);
    assert_eq!(alone(&gate, costing("a=1", 4)), "OK 6/10");
    assert_eq!(alone(&gate, at_limit(20, LyftUnit::Minute, "a=1")), "OK 15/20");
    assert_eq!(alone(&gate, of("a=1")), "OK 4/10");
    assert_eq!(alone(&gate, at_limit(3, LyftUnit::Minute, "a=1")), "OVER 0/3");
    assert_eq!(alone(&gate, at_limit(3, LyftUnit::Hour, "a=1")), "OK 2/3", "another unit is another counter");
    assert_eq!(alone(&gate, at_limit(2, LyftUnit::Second, "free=1")), "OK 1/2", "no rule is needed");
    assert_eq!(alone(&gate, at_limit(2, LyftUnit::Second, "free=2")), "OK 1/2");
    let elsewhere = request_in(&gate, "elsewhere", &[at_limit(0, LyftUnit::Second, "a=1")]);
    assert_eq!((elsewhere.allowed, status(&elsewhere, 0)), (true, "OK -".to_owned()));
    assert!(elsewhere.descriptors[0].limit.is_none());
}

#[test]
fn an_override_resets_what_the_rule_says_about_itself() {
    let gate = gate(&format!(
        "{REPLACING}- {{key: s, shadow_mode: true, rate_limit: {{unit: minute, requests_per_unit: 1}}}}\n"
    ));
    assert_eq!(alone(&gate, at_limit(0, LyftUnit::Minute, "s=1")), "OVER 0/0", "no shadow");
    assert_eq!(alone(&gate, at_limit(0, LyftUnit::Minute, "free=1")), "OVER 0/0", "no unlimited");
    let verdict = request(&gate, &[of("old=1"), at_limit(5, LyftUnit::Minute, "new=1")]);
    assert_eq!([0, 1].map(|at| status(&verdict, at)), ["OK 0/1", "OK 4/5"], "no replacing");
}

#[test]
fn a_refund_never_goes_below_zero_and_is_always_ok() {
    let gate = gate(TEN);
    assert_eq!(alone(&gate, refund("a=1", 3)), "OK 10/10", "nothing is created");
    assert_eq!(alone(&gate, costing("a=1", 4)), "OK 6/10");
    assert_eq!(alone(&gate, refund("a=1", 3)), "OK 9/10");
    assert_eq!(alone(&gate, refund("a=1", 0)), "OK 9/10", "nothing of nothing");
    assert_eq!(alone(&gate, refund("a=1", 3)), "OK 10/10");
    assert_eq!(alone(&gate, costing("a=1", 12)), "OVER 0/10");
    assert_eq!(alone(&gate, refund("a=1", 1)), "OK 0/10", "always OK");
    assert_eq!(alone(&gate, refund("a=1", 0)), "OK 0/10", "always OK");
    advance(&gate, Micros::MINUTE);
    assert_eq!(alone(&gate, refund("a=1", 1)), "OK 10/10");
}

#[test]
fn windows_are_aligned_to_the_epoch_and_end_when_they_say() {
    for (unit, seconds) in [
        ("second", 1),
        ("minute", 60),
        ("hour", 3_600),
        ("day", 86_400),
        ("week", 604_800),
        ("month", 2_592_000),
        ("year", 31_536_000),
    ] {
        let text =
            format!("domain: d\ndescriptors:\n- {{key: a, rate_limit: {{unit: {unit}, requests_per_unit: 2}}}}\n");
        let gate = gate(&text);
        advance(&gate, Micros::from_millis(250));
        let verdict = request(&gate, &[of("a=1")]);
        let micros = seconds * 1_000_000;
        let left = micros - (START.as_micros() + 250_000) % micros;
        assert_eq!(verdict.tolls[0].outcome.reset_after, Micros::from_micros(left), "{unit}");
        assert_eq!(alone(&gate, of("a=1")), "OK 0/2");
        let denied = request(&gate, &[of("a=1")]);
        assert_eq!(denied.retry_after(), Some(Micros::from_micros(left)), "{unit}");
        advance(&gate, Micros::from_micros(left - 1));
        assert_eq!(alone(&gate, of("a=1")), "OVER 0/2", "{unit}");
        advance(&gate, Micros::from_micros(1));
        assert_eq!(alone(&gate, of("a=1")), "OK 1/2", "{unit}");
    }
}

#[test]
fn each_descriptor_is_counted_whatever_becomes_of_the_others() {
    let gate = gate(
        "domain: d\ndescriptors:\n- {key: a, rate_limit: {unit: hour, requests_per_unit: 9}}\n- {key: b, rate_limit: {unit: hour, requests_per_unit: 1}}\n",
    );
    for left in [8, 7, 6] {
        let verdict = request(&gate, &[of("a=1"), of("b=1")]);
        assert_eq!(status(&verdict, 0), format!("OK {left}/9"));
        assert_eq!(verdict.allowed, left == 8);
    }
}

/// More descriptors than fit into sixteen bits.
#[test]
fn every_one_of_very_many_descriptors_is_counted() {
    let gate = gate(TEN);
    let asked = vec![costing("a=1", 1); 70_000];
    let verdict = request(&gate, &asked);
    assert!(verdict.descriptors[9].over_limit != verdict.descriptors[10].over_limit);
    assert!(verdict.descriptors[69_999].over_limit);
    assert_eq!(verdict.tolls.len(), 70_000);
}
