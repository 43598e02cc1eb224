//! Tokens that clients show to the gateway: which are good, which are not, and what rules know by them.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "gateway/issuer.rs"]
mod issuer;
#[path = "gateway/origin.rs"]
mod origin;
mod support;

use std::path::Path;

use issuer::{CurveIssuer, RsaIssuer, by_nobody, by_secret};
use origin::Origin;
use serde_json::{Value, json};
use support::{Answer, Service, eventually, http, scratch};

const SECRET: &str = "a secret of more than thirty-two bytes";

/// A gateway whose tokens are verified as `jwt` says.
fn gateway(origin: &Origin, jwt: &str, rules: &str) -> Service {
    let at = origin.address;
    Service::gateway(
        &format!("jwt: {{{jwt}}}\nroutes:\n  - {{name: all, upstream: 'http://{at}'}}\nrules:\n{rules}"),
        &[],
    )
}

fn with(gateway: &Service, token: &str) -> Answer {
    http(gateway.proxy(), &format!("GET / HTTP/1.1\nAuthorization: Bearer {token}"), "")
}

fn now() -> u64 {
    jiff::Timestamp::now().as_second().unsigned_abs()
}

fn metric(gateway: &Service, result: &str) -> u64 {
    let metrics = http(gateway.admin(), "GET /metrics HTTP/1.1", "").body;
    let line = format!("tollgate_tokens_total{{result=\"{result}\"}} ");
    metrics.lines().find_map(|known| known.strip_prefix(&line)).unwrap().parse().unwrap()
}

fn path(path: &Path) -> String {
    path.display().to_string()
}

/// What is counted by a claim is counted for each of its values, and what is for one value of it is for no other.
#[test]
fn rules_count_by_claims_and_ask_for_them() {
    let (origin, issuer) = (Origin::start(), RsaIssuer::new());
    let rules = "  - {name: subs, per: jwt.sub, limits: [{rate: 3/d, algorithm: fixed_window}]}\n  \
                 - {name: free, when: {jwt.plan: free}, per: jwt.org.id, limits: [{rate: 2/d, algorithm: fixed_window}]}\n";
    let gateway = gateway(&origin, &format!("keys: {}, required: true", path(&issuer.public)), rules);
    let token = |sub: &str, plan: &str, org: u64| {
        issuer.token("RS256", &json!({"sub": sub, "plan": plan, "org": {"id": org}, "exp": now() + 600}))
    };
    let (alice, bob, carol) = (token("alice", "gold", 1), token("bob", "free", 2), token("carol", "free", 2));
    let ask = |token: &str| with(&gateway, token).status;
    assert_eq!([ask(&alice), ask(&alice), ask(&alice), ask(&alice)], [200, 200, 200, 429]);
    // Bob and Carol are of one organisation, which may ask twice.
    assert_eq!([ask(&bob), ask(&carol), ask(&bob), ask(&carol)], [200, 200, 429, 429]);
    assert_eq!(origin.seen().len(), 5);
    assert!(origin.last().header("authorization").is_some_and(|sent| sent.starts_with("Bearer ")));
    // Each signature was verified once.
    assert_eq!((metric(&gateway, "verified"), metric(&gateway, "remembered")), (3, 5));
    let again = issuer.token("PS256", &json!({"sub": "dora"}));
    assert_eq!(ask(&again), 200);
}

/// What is no good never gets to a server, and is told why.
#[test]
fn bad_tokens_are_refused() {
    let (origin, issuer, other) = (Origin::start(), RsaIssuer::new(), RsaIssuer::new());
    let jwt = format!("keys: {}, required: true, issuer: me, audience: [api, web], leeway: 5s", path(&issuer.public));
    let gateway = gateway(&origin, &jwt, "  - {name: subs, per: jwt.sub, limits: 100/d}\n");
    let good = json!({"sub": "a", "iss": "me", "aud": ["web"], "exp": now() + 600, "nbf": now() - 10});
    let but = |name: &str, value: Value| {
        let mut claims = good.clone();
        claims[name] = value;
        claims
    };
    assert_eq!(with(&gateway, &issuer.token("RS256", &good)).status, 200);
    let seen = origin.seen().len();
    let rs256 = |claims: &Value| issuer.token("RS256", claims);
    let mut forged = rs256(&good);
    forged.replace_range(forged.len() - 20..forged.len() - 16, "AAAA");
    let huge = rs256(&but("sub", "x".repeat(9_000).into()));
    for (what, token, result, told) in [
        ("expired", rs256(&but("exp", (now() - 60).into())), "expired", "the token has expired"),
        ("not yet good", rs256(&but("nbf", (now() + 60).into())), "not_yet", "not valid yet"),
        ("by another", other.token("RS256", &good), "signature", "no key that is known here"),
        ("changed", forged, "signature", "no key that is known here"),
        // The public key, which everybody has, is no secret.
        ("a confusion of algorithms", by_secret(issuer.pem().as_bytes(), &good), "algorithm", "no key is for"),
        ("by nobody", by_nobody(&good), "algorithm", "no key is for"),
        ("of another issuer", rs256(&but("iss", "you".into())), "issuer", "another issuer"),
        ("for somebody else", rs256(&but("aud", "shop".into())), "audience", "another audience"),
        ("no base64", "a!.b.c".to_owned(), "malformed", "no JSON Web Token"),
        ("no token", "hello".to_owned(), "malformed", "no JSON Web Token"),
        ("huge", huge, "too_long", "longer than 8192 bytes"),
    ] {
        let before = metric(&gateway, result);
        let answer = with(&gateway, &token);
        assert_eq!(answer.status, 401, "{what}");
        let said = answer.header("www-authenticate").unwrap();
        assert!(said.starts_with("Bearer error=\"invalid_token\", error_description=\""), "{what}: {said}");
        assert!(answer.body.contains(told) && said.contains(told), "{what}: {} {said}", answer.body);
        assert_eq!(metric(&gateway, result), before + 1, "{what}");
        // What was refused once is not remembered as anything.
        assert_eq!(with(&gateway, &token).status, 401, "{what}");
    }
    let missing = http(gateway.proxy(), "GET / HTTP/1.1", "");
    assert_eq!((missing.status, missing.header("www-authenticate")), (401, Some("Bearer")));
    let basic = http(gateway.proxy(), "GET / HTTP/1.1\nAuthorization: Basic YTpi", "");
    assert_eq!((basic.status, basic.header("www-authenticate")), (401, Some("Bearer")));
    let token = rs256(&good);
    let twice = format!("GET / HTTP/1.1\nAuthorization: Bearer {token}\nAuthorization: Bearer {token}");
    assert_eq!(http(gateway.proxy(), &twice, "").status, 401);
    assert_eq!(origin.seen().len(), seen);
}

/// Without `required`, who shows no good token is somebody without claims.
#[test]
fn without_a_good_token_there_are_no_claims() {
    let origin = Origin::start();
    let file = scratch("secret");
    std::fs::write(&file, format!("{SECRET}\n")).unwrap();
    let rules = "  - {name: subs, per: jwt.sub, limits: [{rate: 1/d, algorithm: fixed_window}]}\n  \
                 - {name: who, per: jwt_or_ip.sub, limits: [{rate: 2/d, algorithm: fixed_window}]}\n";
    let gateway = gateway(&origin, &format!("secret_file: {}", path(&file)), rules);
    let token = |claims: Value| by_secret(SECRET.as_bytes(), &claims);
    let alice = token(json!({"sub": "alice"}));
    assert_eq!([with(&gateway, &alice).status, with(&gateway, &alice).status], [200, 429]);
    // No `sub`, no token, and one by somebody else are all counted by the address.
    let other = by_secret(b"another secret that is long enough too", &json!({"sub": "bob"}));
    let statuses = [token(json!({"plan": "gold"})), String::new(), other].map(|token| with(&gateway, &token).status);
    assert_eq!(statuses, [200, 200, 429]);
}

/// The files of keys are followed: what is new is in force, what makes no sense changes nothing.
#[test]
fn keys_change_while_it_runs() {
    let origin = Origin::start();
    let (old, new) = (CurveIssuer::new(), CurveIssuer::new());
    let file = scratch("jwks.json");
    let write = |keys: &[Value]| std::fs::write(&file, json!({"keys": keys}).to_string()).unwrap();
    write(&[old.jwk("old"), RsaIssuer::new().jwk("rsa")]);
    let gateway = gateway(&origin, &format!("keys: [{}], required: true", path(&file)), "  []\n");
    let (by_old, by_new) = (old.token("old", &json!({"sub": "a"})), new.token("new", &json!({"sub": "a"})));
    let statuses = || [with(&gateway, &by_old).status, with(&gateway, &by_new).status];
    assert_eq!(statuses(), [200, 401]);
    write(&[old.jwk("old"), new.jwk("new")]);
    eventually("both are good", || statuses() == [200, 200]);
    std::fs::write(&file, "{\"keys\": [").unwrap();
    http(gateway.admin(), "POST /reload HTTP/1.1", "");
    assert_eq!(statuses(), [200, 200], "half a file");
    write(&[new.jwk("new")]);
    // It was remembered as good, and is not any more.
    eventually("the old one is not", || statuses() == [401, 200]);
    std::fs::remove_file(&file).unwrap();
    http(gateway.admin(), "POST /reload HTTP/1.1", "");
    assert_eq!(statuses(), [401, 200], "no file");
}

/// Without keys no token is good.
#[test]
fn a_file_that_is_not_there_verifies_nothing() {
    let origin = Origin::start();
    let file = scratch("jwks.json");
    let gateway = gateway(&origin, &format!("keys: {}, required: true", path(&file)), "  []\n");
    let issuer = CurveIssuer::new();
    let token = issuer.token("a", &json!({}));
    assert_eq!(with(&gateway, &token).status, 401);
    std::fs::write(&file, json!({"keys": [issuer.jwk("a")]}).to_string()).unwrap();
    eventually("it is there", || with(&gateway, &token).status == 200);
}

/// Tokens may be elsewhere, and routes may say something else than their file.
#[test]
fn routes_say_where_tokens_are_and_who_needs_one() {
    let origin = Origin::start();
    let (at, file) = (origin.address, scratch("secret"));
    std::fs::write(&file, SECRET).unwrap();
    let secret = path(&file);
    let gateway = Service::gateway(
        &format!(
            "jwt: {{secret_file: {secret}, required: true}}\nroutes:\n  \
             - {{name: usual, path: /usual, upstream: 'http://{at}'}}\n  \
             - {{name: open, path: /open, upstream: 'http://{at}', jwt: off}}\n  \
             - {{name: header, path: /header, upstream: 'http://{at}', jwt: {{secret_file: {secret}, header: X-Token, required: true}}}}\n  \
             - {{name: cookie, path: /cookie, upstream: 'http://{at}', jwt: {{secret_file: {secret}, cookie: session, required: true}}}}\n  \
             - {{name: plain, path: /plain, upstream: 'http://{at}', jwt: {{verify: false}}}}\n\
             rules:\n  - {{name: r, when: {{jwt.role: robot}}, limits: [{{rate: 0/d, algorithm: fixed_window}}]}}\n"
        ),
        &[],
    );
    let ask = |path: &str, header: &str| http(gateway.proxy(), &format!("GET {path} HTTP/1.1{header}"), "").status;
    let token = by_secret(SECRET.as_bytes(), &json!({"sub": "a"}));
    let bearer = format!("\nAuthorization: bearer {token}");
    assert_eq!([ask("/usual", ""), ask("/usual", &bearer)], [401, 200]);
    assert_eq!(ask("/open", ""), 200);
    assert_eq!([ask("/header", &bearer), ask("/header", &format!("\nX-Token: {token}"))], [401, 200]);
    assert_eq!([ask("/cookie", &bearer), ask("/cookie", &format!("\nCookie: a=b; session={token}"))], [401, 200]);
    // Nobody has verified it, and it is believed where the file says so.
    let robot = format!("\nAuthorization: Bearer {}", by_nobody(&json!({"role": "robot"})));
    assert_eq!([ask("/plain", ""), ask("/plain", &robot), ask("/open", &robot)], [200, 429, 200]);
}
