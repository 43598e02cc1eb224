//! What routes say about requests that are done later.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod marked;

use marked::{assert_wrong, read};
use tollgate_core::Micros;
use tollgate_rules::LaterSpec;

fn route(later: &str) -> String {
    format!("routes:\n- {{name: a, upstream: 'http://127.0.0.1:9', later: {later}}}\n")
}

#[test]
fn a_route_says_how_requests_are_kept() {
    let later = |text: &str| {
        let parsed = read(&route(text));
        assert!(!parsed.diagnostics.has_errors(), "{}", parsed.diagnostics.render(false));
        parsed.gateway.routes[0].later.clone()
    };
    assert_eq!(later("{}"), LaterSpec::default());
    let all = "{most_waiting: 2k, most_body: 64KiB, attempts: 3, repeat: true, give_up: 2h, keep: 5min}";
    let expected = LaterSpec {
        most_waiting: 2_000,
        most_body: 64 << 10,
        attempts: 3,
        repeat: true,
        give_up: Micros::from_secs(7_200),
        keep: Micros::from_secs(300),
    };
    assert_eq!(later(all), expected);
    assert_eq!(read("routes:\n- {name: a, upstream: 'http://h'}\n").gateway.routes[0].later, LaterSpec::default());
}

#[test]
fn what_makes_no_sense_is_told_and_leaves_the_route_out() {
    for (later, message) in [
        ("{most_body: «0»}", "`0` is not a whole number from 1 to 67108864"),
        ("{most_body: «65MiB»}", "`65MiB` is not a whole number from 1 to 67108864"),
        ("{most_waiting: «0»}", "`0` is not a whole number from 1 to 1000000"),
        ("{attempts: «0»}", "`0` is not a whole number from 1 to 1000"),
        ("{keep: «0s»}", "this is no time at all"),
        ("{«retries»: 3}", "…"),
    ] {
        assert_wrong(&route(later), &[message]);
        let plain = route(later).replace(['«', '»'], "");
        assert!(read(&plain).gateway.routes.is_empty(), "{later}");
    }
}

/// A rule that no request can ever meet is not what anybody meant.
#[test]
fn what_no_request_says_is_warned_of() {
    let routes = "routes:\n- {name: a, upstream: 'http://h', attributes: {plan: free}}\n- {name: shop, path: /shop, upstream: 'http://h'}\n";
    let consumers = "consumers:\n- {name: alice, keys: [k], attributes: {tier: gold}}\n";
    let rule = |rule: &str| format!("rules:\n- {{name: r, {rule}, limits: 5/s}}\n");
    let warnings = |text: &str| {
        let parsed = read(text);
        let told = |problem: &tollgate_rules::Diagnostic| {
            format!("{} ({})", problem.message, problem.help.clone().unwrap_or_default())
        };
        parsed.diagnostics.iter().map(told).collect::<Vec<_>>()
    };
    for (written, said) in [
        ("per: headers.x-user", "no request says `headers.x-user`"),
        ("per: headers.x-user", "did you mean `header.x-user`?"),
        ("per: 'header.a b'", "no request says `header.a b`"),
        ("per: segment.0", "did you mean `segment.1`?"),
        ("per: ip, when: {rout: a}", "did you mean `route`?"),
        ("per: user_id", "give routes or consumers such an attribute"),
        ("per: ip, when: {route: shpo}", "there is no route `shpo`: `r` never applies (did you mean `shop`?)"),
        ("per: ip, when: {route: [x*, nope]}", "there is no route `nope`"),
        ("per: ip, when: {route: /nowhere/*}", "no route is called so: `r` never applies"),
        ("per: ip, when: {method: get}", "methods are in upper case, not `get`: `r` never applies (write `GET`)"),
        ("per: ip, when: {method: [get, po*]}", "not `po*`: `r` never applies"),
        ("per: ip, when: {path: c}", "paths begin with a slash, not as `c`: `r` never applies (write `/c`)"),
        ("per: ip, when: {path: c/*}", "(write `/c/*`)"),
        ("per: ip, when: {path: '/a%3ab%2fc/%e9*'}", "paths are never told as `/a%3ab%2fc/%e9*`: `r` never applies"),
        ("per: ip, when: {path: '/a%3ab%2fc/%e9*'}", "(write `/a:b%2Fc/%E9*`)"),
        ("per: ip, when: {path: [/café, /a b]}", "(write `/caf%C3%A9`)"),
        ("per: ip, when: {host: 'Example.com:8000'}", "without a port, not `Example.com:8000`: `r` never applies"),
        ("per: ip, when: {host: 'Example.com:8000'}", "(write `example.com`)"),
        ("per: ip, when: {host: '*.Example.com'}", "(write `*.example.com`)"),
        ("per: ip, when: {consumer: alise}", "there is no consumer `alise`: `r` never applies (did you mean `alice`?)"),
    ] {
        let all = warnings(&format!("{routes}{consumers}{}", rule(written)));
        assert!(all.len() == 1 && all[0].contains(said), "{written}: {all:?}");
        // Without routes this is no gateway, and what others call their attributes is their business.
        assert_eq!(warnings(&rule(written)), [""; 0], "{written}");
    }
    for written in [
        "per: ip/64",
        "per: [plan, tier]",
        "per: 'query.a b'",
        "per: cookie.a",
        "per: ip, mode: off",
        "per: route",
        "per: ip, when: {route: shop}",
        "per: ip, when: {route: sh*}",
        "per: ip, when: {route: [a, nope]}",
        "per: ip, when: {route: {not: nope}}",
        "per: ip, when: {route: nope}, mode: off",
        "per: ip, when: {method: [get, GET]}",
        "per: ip, when: {method: {not: get}}",
        "per: ip, when: {method: get}, mode: off",
        "per: ip, when: {path: '*.css'}",
        "per: ip, when: {host: ['[::1]', example.com]}",
        "per: ip, when: {host: '::1'}",
        "per: ip, when: {host: '[2001:*'}",
        "per: ip, when: {consumer: alice}",
        "per: ip, when: {consumer: al*}",
        "per: ip, when: {consumer: 'consumer:bob'}",
    ] {
        let all = warnings(&format!("{routes}{consumers}{}", rule(written)));
        assert!(all.iter().all(|one| !one.contains("never applies")), "{written}: {all:?}");
    }
}

/// Else requests of one would be counted as the other's.
#[test]
fn a_key_is_one_consumers_and_no_message_repeats_it() {
    let hash = format!("'sha256:{}'", "0a".repeat(32));
    for (first, second) in [("secret", "[other, secret]"), ("[secret, more]", "[more, secret]"), (&*hash, &*hash)] {
        let consumer = |name: &str, keys: &str| format!("- name: {name}\n  keys: {keys}\n");
        let text = format!("consumers:\n{}{}", consumer("alice", first), consumer("«bob»", second));
        assert_wrong(&text, &["`alice` and `bob` have a key in common"]);
        let diagnostics = read(&text.replace(['«', '»'], "")).diagnostics;
        let problem = diagnostics.iter().next().expect("a problem");
        let first = problem.related.as_ref().expect("both places").0;
        assert_eq!((first.start, first.end), (19, 24));
        let told = format!("{}{:?}{:?}{:?}", problem.message, problem.help, problem.label, problem.related);
        assert!(["secret", "more", "0a0a"].iter().all(|key| !told.contains(key)), "{told}");
    }
    let own = "consumers: [{name: alice, keys: [a, a]}, {name: bob, keys: [b]}]\n";
    assert_eq!(read(own).diagnostics.iter().count(), 0);
}

#[test]
fn where_keys_are_is_a_name_and_no_yes_or_number() {
    for (written, found) in
        [("«true»", "true"), ("«no»", "no"), ("«1»", "1"), ("«1.5»", "1.5"), ("[X-Key, «on»]", "on")]
    {
        let text = format!("routes: [{{name: a, upstream: 'http://h', api_key: {written}}}]\n");
        assert_wrong(&text, &[&format!("`{found}` is no name of a header or a parameter")]);
    }
    for written in ["X-Api-Key", "[X-Api-Key, apikey]", "'1'", "\"y\""] {
        let text = format!("routes: [{{name: a, upstream: 'http://h', api_key: {written}}}]\n");
        assert_eq!(read(&text).diagnostics.iter().count(), 0, "{written}");
    }
}

/// A list of nothing would be read as anything: a route that is for nobody, or that needs no key, would be open.
#[test]
fn a_list_that_is_empty_opens_nothing() {
    for field in ["hosts", "paths", "methods", "allow", "api_key"] {
        let text = format!("routes: [{{name: a, upstream: 'http://h', {field}: «[»]}}]\n");
        assert_wrong(&text, &[&format!("`{field}` has nothing in it")]);
        assert!(read(&text.replace(['«', '»'], "")).gateway.routes.is_empty(), "{field}");
    }
    for field in ["issuer", "audience", "algorithms"] {
        let text = format!("jwt: {{keys: /a, {field}: «[»]}}\n");
        assert_wrong(&text, &[&format!("`{field}` has nothing in it")]);
    }
    // These say that there is none.
    let none = "routes: [{name: a, upstream: 'http://h', deny: [], upgrades: []}]\nconsumers: [{name: c, keys: []}]\n";
    assert_eq!(read(none).diagnostics.iter().count(), 0);
}

#[test]
fn a_second_route_of_a_name_is_shown_where_it_is_named() {
    let text = "routes:\n- {name: a, path: /a, upstream: 'http://h'}\n- {name: «a», upstream: 'http://h'}\n";
    assert_wrong(text, &["there are two routes called `a`"]);
    assert_wrong("routes: [{name: a, upstream: «nowhere»}]\n", &["there is no upstream `nowhere`"]);
}

#[test]
fn a_route_that_another_hides_is_warned_of() {
    let two = |first: &str, second: &str| {
        format!("routes:\n- {{name: a, upstream: 'http://h'{first}}}\n- {{name: «b», upstream: 'http://h'{second}}}\n")
    };
    for (first, second) in [
        ("", ""),
        (", path: /", ""),
        (", path: /v1", ", paths: [/v1/]"),
        (", hosts: [x.org, y.org], method: GET", ", hosts: [Y.org, x.org], methods: [GET]"),
    ] {
        assert_wrong(&two(first, second), &["`b` is for the same requests as `a`, and gets none of them"]);
    }
    for (first, second) in [("", ", path: /v1"), (", method: GET", ""), (", host: x.org", ", host: '*.x.org'")] {
        let text = two(first, second).replace(['«', '»'], "");
        assert_eq!(read(&text).diagnostics.iter().count(), 0, "{text}");
    }
}
