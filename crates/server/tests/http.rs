//! The native HTTP API as clients see it: every route, every family of headers, every kind of bad input.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::process::Command;

use serde_json::{Value, json};
use support::{Answer, Service, eventually, http};

/// Windows are days, so that no test is at the edge of one but once a day, and then only with other numbers of seconds.
const RULES: &str = "
domain: shop
rules:
  - {name: per-user, per: user_id, limits: [{rate: 3/d, algorithm: token_bucket}]}
  - {name: posts, when: {path: /posts}, per: user_id, limits: [{rate: 2/d, algorithm: token_bucket}]}
  - {name: slots, when: {path: /export}, per: team, limits: [{concurrency: 2, lease: 1h}]}
  - {name: spending, per: model, limits: [{rate: 100/d, algorithm: token_bucket}, {rate: 1000 tokens/d, algorithm: token_bucket}]}
  - {name: tried, mode: shadow, per: visitor, limits: 1/d}
  - {name: bulk, per: bulk, limits: [{rate: 1000000/d, algorithm: token_bucket}]}
";

fn post(address: SocketAddr, path: &str, body: &str) -> Answer {
    http(address, &format!("POST {path} HTTP/1.1"), body)
}

fn ask(address: SocketAddr, path: &str, body: &Value) -> (u16, Value) {
    let answer = post(address, path, &body.to_string());
    let body = serde_json::from_str(&answer.body).unwrap_or_else(|error| panic!("{error}: {}", answer.body));
    (answer.status, body)
}

fn user(id: &str) -> Value {
    json!({"attributes": {"user_id": id}})
}

#[test]
fn a_check_is_allowed_until_the_limit_and_then_denied_with_the_reason() {
    let service = Service::start(RULES, &[]);
    let at = service.http();
    let first = post(at, "/v1/check", &user("1").to_string());
    assert_eq!((first.status, first.header("content-type")), (200, Some("application/json")));
    let told: Value = serde_json::from_str(&first.body).unwrap();
    assert_eq!(told["allowed"], true);
    assert_eq!((&told["rule"], &told["limit"], &told["remaining"]), (&json!("per-user"), &json!(3), &json!(2)));
    assert_eq!((&told["retry_after"], &told["delay"]), (&json!(0), &json!(0)));
    assert!(told["reset_after"].as_f64().unwrap() <= 28_800.0 && told["at"].as_f64().unwrap() > 1.7e9, "{told}");
    assert_eq!(told["limits"][0]["allows"], "3/d");
    assert_eq!(told["limits"][0]["shadow"], false);

    ask(at, "/v1/check", &user("1"));
    assert_eq!(ask(at, "/v1/check", &user("1")).1["remaining"], 0);
    let denied = post(at, "/v1/check", &user("1").to_string());
    assert_eq!((denied.status, denied.header("content-type")), (429, Some("application/problem+json")));
    assert_eq!(denied.header("cache-control"), Some("no-store"));
    let told: Value = serde_json::from_str(&denied.body).unwrap();
    assert_eq!(told["type"], "https://iana.org/assignments/http-problem-types#quota-exceeded");
    assert_eq!(told["title"], "Request cannot be satisfied as assigned quota has been exceeded");
    assert_eq!(told["status"], 429);
    assert_eq!(told["violated-policies"], json!(["per-user"]));
    assert_eq!((&told["allowed"], &told["rule"], &told["remaining"]), (&json!(false), &json!("per-user"), &json!(0)));
    let wait: u64 = denied.header("retry-after").unwrap().parse().unwrap();
    assert_eq!(told["detail"], format!("rule per-user allows 3/d; wait {wait} s"));
    assert_eq!(wait, told["retry_after"].as_f64().unwrap().ceil() as u64);
    // Others are not concerned.
    assert_eq!(ask(at, "/v1/check", &user("2")).0, 200);
}

#[test]
fn numbers_and_booleans_are_values_and_all_rules_that_apply_are_asked() {
    let service = Service::start(RULES, &[]);
    let at = service.http();
    let both = json!({"domain": "shop", "attributes": {"user_id": 7, "path": "/posts", "beta": true, "share": 0.5}});
    let (_, told) = ask(at, "/v1/check", &both);
    assert_eq!((&told["rule"], told["limits"].as_array().unwrap().len()), (&json!("posts"), 2));
    assert_eq!(ask(at, "/v1/check", &user("7")).1["remaining"], 1, "7 and \"7\" are the same");
    // The stricter denies, and nothing is charged.
    ask(at, "/v1/check", &json!({"attributes": {"user_id": "8", "path": "/posts"}, "cost": 2}));
    let (status, told) = ask(at, "/v1/check", &json!({"attributes": {"user_id": "8", "path": "/posts"}}));
    assert_eq!((status, &told["violated-policies"]), (429, &json!(["posts"])));
    assert_eq!(ask(at, "/v1/peek", &user("8")).1["remaining"], 1);
    // Shadows are flagged and deny nothing.
    let visitor = json!({"attributes": {"visitor": "a"}, "cost": 5});
    let (status, told) = ask(at, "/v1/check", &visitor);
    assert_eq!((status, &told["rule"]), (200, &Value::Null));
    assert_eq!((&told["limits"][0]["shadow"], &told["limits"][0]["allowed"]), (&json!(true), &json!(false)));
    // What no rule applies to is allowed.
    let (status, told) = ask(at, "/v1/check", &json!({"attributes": {}}));
    assert_eq!((status, &told["limits"], &told["limit"]), (200, &json!([]), &Value::Null));
}

/// What is to become of whoever is denied is told to whoever asked, and is theirs to do.
#[test]
fn denials_say_what_the_rule_wants_done() {
    let wanted = ["reject", "enqueue", "{delay: 2s}", "{delay: 500ms, order: newest_first}", "{reject_slowly: 1s}"];
    let rule = |(at, on_limit): (usize, &&str)| {
        format!("  - {{name: r{at}, per: k{at}, limits: {{rate: 1/h, on_limit: {on_limit}}}}}\n")
    };
    let rules: String = wanted.iter().enumerate().map(rule).collect();
    let service = Service::start(&format!("rules:\n{rules}"), &[]);
    let told = [0, 1, 2, 3, 4].map(|at| {
        let body = json!({"attributes": {format!("k{at}"): "x"}});
        let (first, denied) = (ask(service.http(), "/v1/check", &body), ask(service.http(), "/v1/check", &body));
        assert_eq!((first.0, denied.0), (200, 429));
        assert!(first.1["on_limit"].is_null());
        denied.1["on_limit"].clone()
    });
    let slowly = json!({"reject_slowly": 1});
    let newest = json!({"order": "newest_first", "delay": 0.5});
    assert_eq!(told, [Value::Null, json!("enqueue"), json!({"delay": 2}), newest, slowly]);
}

#[test]
fn what_can_never_fit_is_denied_without_a_wait() {
    let service = Service::start(RULES, &[]);
    let denied = post(service.http(), "/v1/check", r#"{"attributes": {"user_id": "1"}, "cost": 4}"#);
    assert_eq!((denied.status, denied.header("retry-after")), (429, None));
    let told: Value = serde_json::from_str(&denied.body).unwrap();
    assert_eq!(told["retry_after"], Value::Null);
    assert!(told["detail"].as_str().unwrap().contains("a cost of 4 never fits"), "{told}");
}

#[test]
fn descriptors_are_counted_each_on_its_own() {
    let rules = "{domain: rl, descriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: 1}}]}";
    let service = Service::start(rules, &[]);
    let at = service.http();
    let asked = json!({"descriptors": [
        {"entries": [["user", 1]]},
        {"entries": [{"key": "user", "value": "2"}], "cost": 2},
        {"entries": [["user", "3"]], "limit": {"requests_per_unit": 5, "unit": "HOUR"}},
        {"entries": [["other"]]},
    ]});
    let (status, told) = ask(at, "/v1/check", &asked);
    assert_eq!(status, 400, "{told}");
    let asked = json!({"descriptors": [
        {"entries": [["user", 1]]},
        {"entries": [{"key": "user", "value": "2"}], "cost": 2},
        {"entries": [["user", "3"]], "limit": {"requests_per_unit": 5, "unit": "HOUR"}},
        {"entries": [["other", ""]]},
    ]});
    let (status, told) = ask(at, "/v1/check", &asked);
    assert_eq!(status, 429);
    let statuses = &told["descriptors"];
    let expected = [(false, "counted"), (true, "counted"), (false, "counted"), (false, "no_limit")];
    for (at, (over, status)) in expected.into_iter().enumerate() {
        assert_eq!((&statuses[at]["over_limit"], &statuses[at]["status"]), (&json!(over), &json!(status)), "{told}");
    }
    assert_eq!(told["violated-policies"], json!(["rl.user"]));
    assert_eq!(told["limits"][2]["allows"], "5/hour");
    // The first was counted although the second was denied, and can be given back.
    let one = |refund: bool| json!({"descriptors": [{"entries": [["user", "1"]], "refund": refund}]});
    assert_eq!(ask(at, "/v1/check", &one(false)).0, 429);
    ask(at, "/v1/check", &one(true));
    ask(at, "/v1/check", &one(true));
    assert_eq!(ask(at, "/v1/check", &one(false)).0, 200);
}

#[test]
fn peek_force_and_refund() {
    let service = Service::start(RULES, &[]);
    let at = service.http();
    assert_eq!(ask(at, "/v1/peek", &user("1")).1["remaining"], 3);
    assert_eq!(ask(at, "/v1/peek", &user("1")).1["remaining"], 3, "nothing was charged");
    let (status, told) = ask(at, "/v1/force", &json!({"attributes": {"user_id": "1"}, "cost": 5}));
    assert_eq!((status, &told["remaining"]), (200, &json!(0)));
    assert_eq!(ask(at, "/v1/peek", &user("1")).0, 429);
    let refund = json!({"attributes": {"user_id": "1"}, "cost": 4, "charged_at": told["at"]});
    assert_eq!(ask(at, "/v1/refund", &refund).0, 200);
    assert_eq!(ask(at, "/v1/check", &user("1")).1["remaining"], 1);
    assert_eq!(ask(at, "/v1/refund", &user("1")).0, 200, "now, if nothing is said");
    assert_eq!(ask(at, "/v1/peek", &user("1")).1["remaining"], 2);
}

#[test]
fn a_batch_answers_each_and_charges_nothing_if_one_is_wrong() {
    let service = Service::start(RULES, &[]);
    let at = service.http();
    let four: Vec<Value> = (0..4).map(|_| user("1")).chain([user("2")]).collect();
    let (status, told) = ask(at, "/v1/batch", &json!({"checks": four}));
    let allowed: Vec<bool> = told["answers"].as_array().unwrap().iter().map(|one| one["allowed"] == true).collect();
    assert_eq!((status, &*allowed), (200, &[true, true, true, false, true][..]));
    assert_eq!(told["answers"][3]["rule"], "per-user");
    let wrong = json!({"checks": [user("3"), {"attributes": {"user_id": []}}]});
    assert_eq!(ask(at, "/v1/batch", &wrong).0, 400);
    assert_eq!(ask(at, "/v1/peek", &user("3")).1["remaining"], 3);
    let many = |number: usize| json!({"checks": vec![json!({"attributes": {"bulk": "b"}}); number]});
    let (status, told) = ask(at, "/v1/batch", &many(500));
    assert_eq!((status, told["answers"].as_array().unwrap().len()), (200, 500));
    let (status, told) = ask(at, "/v1/batch", &many(501));
    assert_eq!(status, 400);
    assert!(told["detail"].as_str().unwrap().contains("more than 500 checks"), "{told}");
    assert_eq!(ask(at, "/v1/batch", &json!({"checks": []})).0, 400);
}

#[test]
fn reservations_are_committed_as_they_are_or_with_what_was_needed_or_given_back() {
    let service = Service::start(RULES, &[]);
    let at = service.http();
    let reserve = json!({"attributes": {"model": "m"}, "costs": {"tokens": 500}, "hold": "1h"});
    let remaining = |unit: usize| {
        let (_, told) = ask(at, "/v1/peek", &json!({"attributes": {"model": "m"}, "cost": 0, "costs": {"tokens": 0}}));
        told["limits"][unit]["remaining"].as_u64().unwrap()
    };
    let (status, told) = ask(at, "/v1/reserve", &reserve);
    assert_eq!((status, &told["hold"]), (200, &json!(3600)));
    assert_eq!((remaining(0), remaining(1)), (99, 500));
    let commit = |told: &Value, actual: Value| {
        let body = match actual {
            Value::Null => json!({"reservation": told["reservation"]}),
            actual => json!({"reservation": told["reservation"], "actual": actual}),
        };
        ask(at, "/v1/commit", &body)
    };
    assert_eq!(commit(&told, json!({"tokens": 812})), (200, json!({"settled": true})));
    assert_eq!((remaining(0), remaining(1)), (99, 188));
    assert_eq!(commit(&told, Value::Null).0, 404, "once is enough");
    let small = json!({"attributes": {"model": "m"}, "costs": {"tokens": 100}});
    let (_, told) = ask(at, "/v1/reserve", &small);
    assert_eq!(commit(&told, json!({"bananas": 1})).0, 400);
    assert_eq!(commit(&told, json!([1, 10])).0, 200);
    assert_eq!((remaining(0), remaining(1)), (98, 178));
    let (_, told) = ask(at, "/v1/reserve", &small);
    assert_eq!(commit(&told, json!(3)).0, 200, "a number is of requests");
    assert_eq!((remaining(0), remaining(1)), (95, 78));
    let cancel = |told: &Value| ask(at, "/v1/cancel", &json!({"reservation": told["reservation"]})).0;
    let (status, denied) = ask(at, "/v1/reserve", &small);
    assert_eq!((status, &denied["reservation"]), (429, &Value::Null));
    let (_, told) = ask(at, "/v1/reserve", &json!({"attributes": {"model": "m"}, "costs": {"tokens": 78}}));
    assert_eq!((cancel(&told), cancel(&told)), (200, 404));
    assert_eq!((remaining(0), remaining(1)), (95, 78));
    for hold in [json!(0), json!("2d"), json!(-1), json!("soon")] {
        let asked = json!({"attributes": {"model": "m"}, "hold": hold});
        assert_eq!(ask(at, "/v1/reserve", &asked).0, 400, "{asked}");
    }
    for body in [r#"{}"#, r#"{"reservation": "banana"}"#, r#"{"reservation": "1:x"}"#, r#"{"reservation": []}"#] {
        assert_eq!(post(at, "/v1/commit", body).status, 400, "{body}");
    }
    assert_eq!(post(at, "/v1/commit", r#"{"reservation": null}"#).status, 200, "made while limits were off");
}

#[test]
fn leases_are_acquired_renewed_and_released() {
    let service = Service::start(RULES, &[]);
    let at = service.http();
    let export = json!({"attributes": {"team": "t", "path": "/export"}});
    let (status, first) = ask(at, "/v1/acquire", &export);
    assert_eq!((status, &first["expires_after"]), (200, &json!(3600)));
    let (_, second) = ask(at, "/v1/acquire", &export);
    assert_ne!(first["lease"], second["lease"]);
    let (status, third) = ask(at, "/v1/acquire", &export);
    assert_eq!((status, &third["violated-policies"], third.get("lease")), (429, &json!(["slots"]), None));
    let with = |lease: &Value| json!({"attributes": {"team": "t", "path": "/export"}, "lease": lease});
    assert_eq!(ask(at, "/v1/renew", &with(&first["lease"])).0, 200);
    assert_eq!(ask(at, "/v1/release", &with(&first["lease"])).0, 200);
    assert_eq!(ask(at, "/v1/release", &with(&first["lease"])).0, 200, "a second time does nothing");
    assert_eq!(ask(at, "/v1/renew", &with(&first["lease"])).0, 404);
    assert_eq!(ask(at, "/v1/acquire", &export).0, 200);
    assert_eq!(ask(at, "/v1/acquire", &export).0, 429, "only one slot was given back");
    for path in ["/v1/renew", "/v1/release"] {
        let (status, told) = ask(at, path, &export);
        assert_eq!(status, 400);
        assert!(told["detail"].as_str().unwrap().contains("/v1/acquire"), "{told}");
    }
}

#[test]
fn explanations_name_the_rules_and_charge_nothing() {
    let service = Service::start(RULES, &[]);
    let (status, told) = ask(service.http(), "/v1/explain", &user("1"));
    assert_eq!((status, &told["domain_exists"]), (200, &json!(true)));
    assert_eq!((&told["considered"][0]["rule"], &told["considered"][0]["applies"]), (&json!("per-user"), &json!(true)));
    assert!(told["text"].as_str().unwrap().contains("posts does not apply: there is no path"), "{told}");
    assert_eq!(told["answer"]["remaining"], 3);
    assert_eq!(ask(service.http(), "/v1/explain", &user("1")).1["answer"]["remaining"], 3);
    let elsewhere = json!({"domain": "nowhere", "attributes": {}});
    assert_eq!(ask(service.http(), "/v1/explain", &elsewhere).1["domain_exists"], false);
}

#[test]
fn b18_retry_hints_are_spread_for_those_who_ask_and_for_proxies() {
    let service = Service::start(RULES, &["--retry-jitter", "1h"]);
    (0..3).for_each(|_| drop(post(service.http(), "/v1/check", &user("1").to_string())));
    let hint = |answer: Answer| {
        let told: Value = serde_json::from_str(&answer.body).unwrap();
        let hint: f64 = answer.header("retry-after").unwrap().parse().unwrap();
        let exact = told["retry_after"].as_f64().unwrap();
        assert!((exact..exact + 3_601.0).contains(&hint), "{hint} after {exact}");
        hint as u64
    };
    let asked = (0..20).map(|_| hint(post(service.http(), "/v1/check", &user("1").to_string())));
    let passed = (0..20).map(|_| hint(http(service.http(), "GET /check?user_id=1 HTTP/1.1", "")));
    for hints in [asked.collect::<BTreeSet<u64>>(), passed.collect()] {
        assert!(hints.len() > 10, "{hints:?}");
    }
}

#[test]
fn each_profile_has_its_headers() {
    let body = user("1").to_string();
    for (profile, allowed, denied) in [
        ("ietf", &["ratelimit", "ratelimit-policy"][..], &["retry-after", "ratelimit", "ratelimit-policy"][..]),
        (
            "x",
            &["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"],
            &["retry-after", "x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"],
        ),
        (
            "seed",
            &["x-ratelimit-limit", "x-ratelimit-remaining"],
            &["retry-after", "x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-retry-after"],
        ),
        ("none", &[], &["retry-after"]),
    ] {
        let service = Service::start(RULES, &["--headers", profile]);
        let mut answers: Vec<Answer> = (0..4).map(|_| post(service.http(), "/v1/check", &body)).collect();
        let names = |answer: &Answer| {
            let about = |name: &str| name.contains("ratelimit") || name == "retry-after";
            let mut names: Vec<String> =
                answer.headers.iter().map(|(name, _)| name.clone()).filter(|name| about(name)).collect();
            names.sort();
            names
        };
        let sorted = |names: &[&str]| {
            let mut names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            names.sort();
            names
        };
        let last = answers.pop().unwrap();
        assert_eq!((last.status, names(&last)), (429, sorted(denied)), "{profile}");
        assert_eq!((answers[0].status, names(&answers[0])), (200, sorted(allowed)), "{profile}");
        if profile == "ietf" {
            assert_eq!(last.header("ratelimit-policy"), Some("\"per-user\";q=3;w=86400"));
            let wait = last.header("retry-after").unwrap();
            assert_eq!(last.header("ratelimit"), Some(&*format!("\"per-user\";r=0;t={wait}")));
        }
        if profile == "seed" {
            assert_eq!(last.header("x-ratelimit-retry-after"), last.header("retry-after"));
            assert_eq!(
                (last.header("x-ratelimit-limit"), last.header("x-ratelimit-remaining")),
                (Some("3"), Some("0"))
            );
        }
    }
}

#[test]
fn denials_and_errors_come_in_the_form_that_is_accepted() {
    let service = Service::start(RULES, &[]);
    let at = service.http();
    let body = json!({"attributes": {"user_id": "1"}, "cost": 3}).to_string();
    assert_eq!(post(at, "/v1/check", &body).status, 200);
    for (accept, kind, is_json) in [
        ("*/*", "application/problem+json", true),
        ("application/json", "application/json", true),
        ("text/plain", "text/plain; charset=utf-8", false),
    ] {
        for (path, body, status) in [("/v1/check", &*body, 429), ("/v1/check", "{", 400), ("/nowhere", "{}", 404)] {
            let answer = http(at, &format!("POST {path} HTTP/1.1\nAccept: {accept}"), body);
            assert_eq!((answer.status, answer.header("content-type")), (status, Some(kind)));
            assert_eq!(serde_json::from_str::<Value>(&answer.body).is_ok(), is_json, "{}", answer.body);
        }
    }
    let text = http(at, "POST /v1/check HTTP/1.1\nAccept: text/plain", &body).body;
    assert!(text.starts_with("rule per-user allows 3/d; wait "), "{text}");
}

#[test]
fn the_domain_is_the_one_named_or_that_of_the_settings_or_the_only_one() {
    let two = support::scratch("rules");
    std::fs::create_dir_all(&two).unwrap();
    for domain in ["a", "b"] {
        let rules = format!("{{domain: {domain}, rules: [{{name: in-{domain}, per: u, limits: 5/d}}]}}");
        std::fs::write(two.join(format!("{domain}.yaml")), rules).unwrap();
    }
    let start = |more: &[&str]| {
        let two = two.display().to_string();
        let args = [&["--rules", &two], more].concat();
        Service::start_with(Command::new(env!("CARGO_BIN_EXE_tollgate")), &args)
    };
    let asked = json!({"attributes": {"u": "1"}});
    let service = start(&[]);
    let (status, told) = ask(service.http(), "/v1/check", &asked);
    assert_eq!(status, 400);
    assert!(told["detail"].as_str().unwrap().contains("name one of a, b"), "{told}");
    let named = json!({"domain": "b", "attributes": {"u": "1"}});
    assert_eq!(ask(service.http(), "/v1/check", &named).1["rule"], "in-b");
    assert_eq!(ask(start(&["--domain", "a"]).http(), "/v1/check", &asked).1["rule"], "in-a");
}

#[test]
fn the_other_routes_answer() {
    let service = Service::start(RULES, &["--drain-delay", "1s"]);
    let at = service.http();
    let get = |path: &str| http(at, &format!("GET {path} HTTP/1.1"), "");
    assert_eq!((get("/live").status, get("/ready").status), (200, 200));
    assert!(get("/").body.contains("POST /v1/check"));
    let document: Value = serde_json::from_str(&get("/openapi.json").body).unwrap();
    assert_eq!(document["openapi"], "3.1.1");
    let wrong = get("/v1/check");
    assert_eq!((wrong.status, wrong.header("allow")), (405, Some("POST")));
    let wrong = post(at, "/live", "");
    assert_eq!((wrong.status, wrong.header("allow")), (405, Some("GET, HEAD")));
    let lost = get("/v1/chek");
    assert_eq!(lost.status, 404);
    assert!(lost.body.contains("did you mean /v1/check?"), "{}", lost.body);
    service.signal("TERM");
    eventually("readiness is off", || get("/ready").status == 503);
    assert_eq!(get("/live").status, 200);
}

#[test]
fn every_example_of_the_openapi_document_is_accepted() {
    let service = Service::start_with(Command::new(env!("CARGO_BIN_EXE_tollgate")), &[]);
    let at = service.http();
    let document: Value = serde_json::from_str(include_str!("../src/protocol/http/openapi.json")).unwrap();
    let mut tried = 0;
    for (path, methods) in document["paths"].as_object().unwrap() {
        let Some(examples) = methods["post"]["requestBody"]["content"]["application/json"]["examples"].as_object()
        else {
            continue;
        };
        for (name, example) in examples {
            let (status, told) = ask(at, path, &example["value"]);
            let known = methods["post"]["responses"].as_object().unwrap();
            assert!(known.contains_key(&status.to_string()), "{path} {name}: {status} is not in the document");
            // Its reservations and leases are made up, and some users ask too often; but all of it is understood.
            assert!([200, 404, 429].contains(&status), "{path} {name}: {told}");
            tried += 1;
        }
    }
    assert!(tried > 12, "{tried}");
}

#[test]
fn every_question_of_the_document_is_accepted() {
    let service = Service::start_with(Command::new(env!("CARGO_BIN_EXE_tollgate")), &[]);
    let document = include_str!("../../../docs/http.md");
    let mut tried = 0;
    for block in document.split("```json").skip(1).filter_map(|rest| rest.split("```").next()) {
        let (kind, body) = block.split_once('\n').unwrap();
        let value: Value = serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {body}"));
        if !kind.is_empty() {
            let (status, told) = ask(service.http(), &format!("/v1/{}", kind.trim()), &value);
            // Its reservations and leases are made up, and some users ask too often; but all of it is understood.
            assert!([200, 404, 429].contains(&status), "{kind}: {told}");
            tried += 1;
        }
    }
    assert!(tried > 7, "{tried}");
}

#[test]
fn http2_is_spoken_to_those_who_begin_with_it() {
    let service = Service::start(RULES, &[]);
    let url = format!("http://{}/v1/check", service.http());
    for (version, told) in [("--http2-prior-knowledge", "HTTP/2 200"), ("--http1.1", "HTTP/1.1 200")] {
        let output = Command::new("curl")
            .args(["--silent", "--show-error", "--include", version, "--data", &user("1").to_string(), &url])
            .output()
            .expect("curl runs");
        let text = support::printed(&output);
        assert!(text.starts_with(told) && text.contains("\"allowed\":true"), "{text}");
    }
}

#[test]
fn with_tls_the_protocol_is_what_both_agree_on() {
    let certificate = support::scratch("certificate.pem");
    let key = certificate.with_file_name("key.pem");
    let (certificate, key) = (certificate.display().to_string(), key.display().to_string());
    let output = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"])
        .args(["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"])
        .args(["-keyout", &key, "-out", &certificate])
        .output()
        .expect("openssl runs");
    support::printed(&output);
    let service = Service::start(RULES, &["--http-tls-cert", &certificate, "--http-tls-key", &key]);
    let url = format!("https://localhost:{}/v1/check", service.http().port());
    for (version, told) in [("--http2", "HTTP/2 200"), ("--http1.1", "HTTP/1.1 200"), ("--no-alpn", "HTTP/1.1 200")] {
        let output = Command::new("curl")
            .args(["--silent", "--show-error", "--include", "--ipv4", "--cacert", &certificate, version])
            .args(["--data", &user("1").to_string(), &url])
            .output()
            .expect("curl runs");
        let text = support::printed(&output);
        assert!(text.starts_with(told) && text.contains("\"allowed\":true"), "{version}: {text}");
    }
}

#[test]
fn bad_bodies_are_refused_with_the_place_and_what_to_write() {
    let service = Service::start(RULES, &[]);
    let at = service.http();
    let deep = format!("{{\"attributes\": {}", "[".repeat(20_000));
    let deep_object = "{\"attributes\":".repeat(2_000);
    let many = (0..65).map(|n| format!("\"k{n}\":1")).collect::<Vec<_>>().join(",");
    let many = format!("{{\"attributes\":{{{many}}}}}");
    let long = format!("{{\"attributes\":{{\"user_id\":\"{}\"}}}}", "x".repeat(8_193));
    for (body, told) in [
        ("", "line 1, column 0: "),
        ("{", "the JSON ends too early"),
        ("banana", "this is no JSON"),
        ("[]", "an object such as"),
        ("{}", "there is nothing to ask about: write"),
        ("{\"attributes\": {}} x", "line 1, column 20: trailing characters"),
        ("{\n \"atributes\": {}}", "line 2, column 12: there is no field `atributes`: did you mean `attributes`?"),
        ("{\"hold\": 5, \"attributes\": {}}", "there is no field `hold`"),
        ("{\"attributes\": {}, \"attributes\": {}}", "`attributes` is there twice"),
        ("{\"attributes\": {\"a\": 1, \"a\": 2}}", "`a` is there twice"),
        ("{\"attributes\": {\"a\": null}}", "a string, a number or a boolean"),
        ("{\"attributes\": {\"a\": 123456789012345678901234567890}}", "write it as a string"),
        ("{\"attributes\": {}, \"descriptors\": [{\"entries\": [[\"a\", \"b\"]]}]}", "leave one of them out"),
        ("{\"attributes\": {}, \"cost\": -1}", "a whole number from 0 on"),
        ("{\"attributes\": {}, \"cost\": 1.5}", "a whole number from 0 on"),
        ("{\"attributes\": {}, \"cost\": \"1\"}", "a whole number from 0 on"),
        ("{\"attributes\": {}, \"costs\": {\"bytes\": \"1\"}}", "a whole number from 0 on"),
        ("{\"attributes\": {}, \"costs\": {\"requests\": 5}}", "use `cost`"),
        ("{\"attributes\": {}, \"cost\": 9007199254740992}", "9007199254740991 is the most"),
        ("{\"attributes\": {}, \"costs\": {\"bytes\": 9007199254740992}}", "9007199254740991 is the most"),
        ("{\"attributes\": {}, \"lease\": \"x\"}", "a number in digits"),
        ("{\"attributes\": \"user\"}", "an object of keys and values"),
        ("{\"domain\": {}, \"attributes\": {}}", "a string, a number or a boolean"),
        ("{\"descriptors\": []}", "`descriptors` is empty"),
        ("{\"descriptors\": [{}]}", "a descriptor has \"entries\""),
        ("{\"descriptors\": [{\"entries\": [[\"a\"]]}]}", "an entry such as"),
        ("{\"descriptors\": [{\"entries\": [[\"a\",\"b\",\"c\"]]}]}", "an entry such as"),
        (
            "{\"descriptors\": [{\"entries\": [[\"a\",\"b\"]], \"limit\": {\"requests_per_unit\": 1, \"unit\": \"fortnight\"}}]}",
            "`fortnight` is no unit: write one of second, minute",
        ),
        ("{\"attributes\": {\"a\": \"\u{1}\"}}", "this is no JSON"),
        (&deep, "an object of keys and values"),
        (&deep_object, "a string, a number or a boolean"),
        (&many, "more than 64 attributes"),
        (&long, "a text of 8193 bytes: 8192 are the most"),
    ] {
        let answer = post(at, "/v1/check", body);
        let start: String = body.chars().take(80).collect();
        assert_eq!((answer.status, answer.header("content-type")), (400, Some("application/problem+json")), "{start}");
        let problem: Value = serde_json::from_str(&answer.body).unwrap();
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains(told) && detail.starts_with("line "), "{start}: {detail}");
        assert!(detail.len() < 1_000, "{start}");
    }
    for (path, body, told) in [
        ("/v1/refund", r#"{"attributes": {}, "charged_at": 1e300}"#, "too far away"),
        ("/v1/refund", r#"{"attributes": {}, "charged_at": 1763264400250000}"#, "too far away"),
        ("/v1/refund", r#"{"attributes": {}, "charged_at": -0.5}"#, "cannot be negative"),
        ("/v1/release", r#"{"attributes": {}}"#, "there is no `lease`"),
        ("/v1/renew", r#"{"attributes": {}, "lease": 0}"#, "there is no `lease`"),
        ("/v1/commit", r#"{"reservation": "1:requests=1", "actual": 9007199254740992}"#, "is the most"),
    ] {
        let answer = post(at, path, body);
        assert!(answer.status == 400 && answer.body.contains(told), "{body}: {}", answer.body);
    }
    assert_eq!(ask(at, "/v1/peek", &user("1")).1["remaining"], 3, "nothing was charged, and others are served");
}
