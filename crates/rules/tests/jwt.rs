//! What a file says about tokens: what is understood, and what is told with its place where it is not.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

use tollgate_core::Micros;
use tollgate_rules::{JwtAlgorithm, JwtSpec, Severity, Source, TokenPlace, TokenTrust, parse};

const ROUTE: &str = "routes:\n  - {name: a, upstream: 'http://a'}\n";

/// All that is told about a file: `line:column: message (help)`.
fn told(text: &str) -> Vec<(Severity, String)> {
    let parsed = parse(vec![Source::new("f", text)]);
    let place = |span| parsed.diagnostics.position(span);
    let line = |problem: &tollgate_rules::Diagnostic| {
        let (line, column) = problem.span.map_or((0, 0), place);
        let help = problem.help.clone().unwrap_or_default();
        (problem.severity, format!("{line}:{column}: {} ({help})", problem.message))
    };
    parsed.diagnostics.iter().map(line).collect()
}

fn spec(jwt: &str) -> JwtSpec {
    let parsed = parse(vec![Source::new("f", format!("jwt: {jwt}\n{ROUTE}"))]);
    assert!(!parsed.diagnostics.has_errors(), "{}", parsed.diagnostics.render(false));
    (**parsed.gateway.routes[0].jwt.as_ref().unwrap()).clone()
}

#[test]
fn all_of_it_is_understood() {
    let usual = spec("{keys: /k.pem}");
    let keys = |keys: &[&str], secret: Option<&str>, algorithms: &[JwtAlgorithm]| TokenTrust::Keys {
        keys: keys.iter().map(|key| (*key).into()).collect(),
        secret: secret.map(Into::into),
        algorithms: algorithms.to_vec(),
    };
    assert_eq!((&usual.place, &usual.trust), (&TokenPlace::Bearer, &keys(&["/k.pem"], None, &[])));
    assert_eq!((usual.leeway, usual.required), (Micros::from_secs(30), false));
    assert!(usual.issuer.is_empty() && usual.audience.is_empty());
    let all = spec(
        "{keys: [/a.json, /b.pem], secret_file: /s, algorithms: [ES256, HS256], issuer: me, audience: [x, y], leeway: 0s, \
         cookie: Session, required: true, verify: true}",
    );
    assert_eq!(all.trust, keys(&["/a.json", "/b.pem"], Some("/s"), &[JwtAlgorithm::Es256, JwtAlgorithm::Hs256]));
    assert_eq!((&all.place, all.required, all.leeway), (&TokenPlace::Cookie("Session".into()), true, Micros::ZERO));
    assert_eq!((all.issuer.len(), all.audience.len()), (1, 2));
    assert_eq!(spec("{secret_file: /s, header: X-Token}").place, TokenPlace::Header("x-token".into()));
    assert_eq!(spec("{secret_file: /s, header: Authorization}").place, TokenPlace::Bearer);
    assert_eq!(spec("{verify: false}").trust, TokenTrust::Nothing);
}

#[test]
fn a_route_says_something_else_than_its_file_or_nothing() {
    let text = "jwt: {keys: /all.pem}\nroutes:\n  - {name: a, upstream: 'http://a'}\n  - {name: b, path: /b, upstream: 'http://a', jwt: off}\n  \
                - {name: c, path: /c, upstream: 'http://a', jwt: {keys: /c.pem}}\n";
    let parsed = parse(vec![Source::new("f", text)]);
    assert!(parsed.diagnostics.is_empty(), "{}", parsed.diagnostics.render(false));
    let of = |number: usize| parsed.gateway.routes[number].jwt.as_ref().map(|jwt| format!("{:?}", jwt.trust));
    assert!(of(0).is_some_and(|trust| trust.contains("/all.pem")));
    assert_eq!(of(1), None);
    assert!(of(2).is_some_and(|trust| trust.contains("/c.pem")));
}

#[test]
fn mistakes_are_told_with_their_places() {
    for (jwt, expected) in [
        ("jwt: «{}", "`jwt` does not say what tokens are verified by (write `keys: /etc/tollgate/jwks.json`"),
        ("jwt: {«required: true}", "`jwt` does not say what tokens are verified by"),
        ("jwt: {«kyes: /a}", "unknown field `kyes` (did you mean `keys`?)"),
        ("jwt: {keys: «''}", "this says nothing"),
        ("jwt: {keys: /a, algorithms: «none}", "expected `HS256`, `HS384`"),
        ("jwt: {keys: /a, algorithms: [«RS265]}", "expected `HS256`"),
        (
            "jwt: {secret_file: /a, algorithms: «RS256}",
            "nobody can verify these by a secret (write `algorithms: HS256`",
        ),
        ("jwt: {keys: /a, leeway: «2h}", "clocks do not differ by that much (write `1h` at most)"),
        ("jwt: {keys: /a, leeway: «soon}", ""),
        ("jwt: {keys: /a, header: «'a b'}", "`a b` is no name of a header"),
        ("jwt: {keys: /a, cookie: «'a=b'}", "`a=b` is no name of a cookie"),
        ("jwt: {keys: /a, header: a, «cookie: b}", "`cookie` beside `header`: a token is in one place"),
        ("jwt: {keys: /a, required: «maybe}", ""),
        ("jwt: {verify: false, «keys: /a}", "`keys` beside `verify`: nothing is verified (leave one of them out)"),
        ("jwt: {verify: false, «audience: x}", "`audience` beside `verify`: nothing is verified"),
        ("jwt: [«/a]", "expected a mapping"),
    ] {
        let column = jwt.chars().position(|mark| mark == '«').unwrap() + 1;
        let all = told(&format!("{}\n{ROUTE}", jwt.replace('«', "")));
        let [(severity, one)] = &*all else { panic!("{jwt}: {all:?}") };
        assert_eq!(*severity, Severity::Error, "{jwt}");
        assert!(one.starts_with(&format!("1:{column}: {expected}")), "{jwt}: {one}");
    }
    let all = told("routes:\n  - {name: a, upstream: 'http://a', jwt: on}\n");
    assert!(all[0].1.starts_with("2:42: expected `off`, found `on`"), "{all:?}");
}

#[test]
fn what_is_probably_not_meant_is_warned_of() {
    let all = told(&format!("jwt: {{verify: false}}\n{ROUTE}"));
    let [(Severity::Warning, one)] = &*all else { panic!("{all:?}") };
    assert!(one.starts_with("1:15: tokens are not verified: whoever sends one writes into it what they like"), "{one}");
    for rule in
        ["per: jwt.sub", "per: ip, when: {jwt.plan: free}", "per: jwt_or_ip.sub", "per: ip, unless: {jwt.role: admin}"]
    {
        let rule = format!("rules:\n  - {{name: r, {rule}, limits: 5/s}}\n");
        let all = told(&format!("{ROUTE}{rule}"));
        let [(Severity::Warning, one)] = &*all else { panic!("{rule}: {all:?}") };
        assert!(one.contains("no route looks at tokens, so there is never a `jwt"), "{one}");
        assert_eq!(told(&format!("jwt: {{keys: /a}}\n{ROUTE}{rule}")), []);
        // Without routes this is no gateway, and what others call their attributes is their business.
        assert_eq!(told(&rule), []);
    }
}
