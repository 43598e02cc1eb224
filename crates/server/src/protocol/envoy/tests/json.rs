//! `/json`, which says the same as gRPC in another form.

use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tollgate::{ManualClock, Timestamp};

use super::super::json::{SentRequest, healthcheck, json as answer_json};
use super::super::request::Refusal;
use super::{NOON, as_theirs, descriptor, request, theirs};
use crate::gate::GateClock;
use crate::serve::{EnvoySettings, House, Settings};

/// Whether two forms say the same.
fn same(json: &str, request: &theirs::Request) {
    let sent = SentRequest::parse(json.as_bytes()).unwrap_or_else(|refusal| panic!("{json}: {refusal:?}"));
    assert_eq!(as_theirs(&sent.request().unwrap()), *request, "{json}");
}

#[test]
fn json_is_read_in_all_its_forms() {
    let mut full = descriptor("a=1,b=2");
    full.limit = Some(theirs::Override { requests_per_unit: 7, unit: 3, unit_multiplier: None });
    full.hits_addend = Some(theirs::Wrapped { value: u64::MAX });
    full.is_negative_hits = true;
    let full = theirs::Request { hits_addend: 5, ..request([full]) };
    same(
        r#"{"domain":"d","hitsAddend":5,"descriptors":[{"entries":[{"key":"a","value":"1"},{"key":"b","value":"2"}],
            "limit":{"requestsPerUnit":7,"unit":"HOUR"},"hitsAddend":"18446744073709551615","isNegativeHits":true}]}"#,
        &full,
    );
    same(
        r#"{"domain":"d","hits_addend":"5","descriptors":[{"entries":[{"key":"a","value":"1"},{"value":"2","key":"b"}],
            "limit":{"requests_per_unit":7.0,"unit":3},"hits_addend":18446744073709551615,"is_negative_hits":true}]}"#,
        &full,
    );
    same(
        r#"{"domain":"d","hitsAddend":null,"descriptors":[{"entries":[{"key":"a","value":"1"}],"limit":null,
            "hitsAddend":null,"isNegativeHits":null}]}"#,
        &request([descriptor("a=1")]),
    );
    let refused = |json: &str| {
        let read =
            SentRequest::parse(json.as_bytes()).and_then(|sent| sent.request().map(|request| as_theirs(&request)));
        match read.expect_err(json) {
            Refusal::Invalid(why) => why,
            Refusal::Upstream(why) => why.to_owned(),
        }
    };
    let with = |fields: &str| refused(&format!(r#"{{"domain":"d","descriptors":[{{"entries":[],{fields}}}]}}"#));
    assert!(refused("").contains("EOF"));
    assert!(refused("[]").contains("no RateLimitRequest"));
    assert!(refused("{} {}").contains("trailing"));
    assert_eq!(refused("{}"), "rate limit domain must not be empty");
    assert_eq!(refused(r#"{"domain":"d"}"#), "rate limit descriptor list must not be empty");
    assert!(refused(r#"{"Domain":"d"}"#).contains("unknown field `Domain`"));
    assert!(refused(r#"{"domain":"d","hitsAddend":4294967296}"#).contains("32 bits"));
    assert!(with(r#""hitsAddend":-1"#).contains("not negative"));
    assert!(with(r#""hitsAddend":"+1""#).contains("not negative"));
    assert!(with(r#""hitsAddend":1.5"#).contains("whole number"));
    assert!(with(r#""limit":{"unit":"WEEK"}"#).contains("SECOND, MINUTE"));
    assert!(with(r#""limit":{"requestsPerUnit":1}"#).contains("unit 0 is not one of"));
    assert!(with(r#""limit":{"unit":-9999999999}"#).contains("SECOND, MINUTE"));
    assert!(refused(&"[".repeat(1_000)).contains("no RateLimitRequest"));
}

/// The status and the body of an answer; a body that is no JSON as a text.
fn answer(house: &House, body: &str) -> (u16, Value) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let answer = answer_json(house, body.as_bytes()).await;
        let (head, body) = answer.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let text = String::from_utf8(body.to_vec()).unwrap();
        let is_json = head.headers["content-type"] == "application/json";
        assert!(is_json || head.headers["content-type"] == "text/plain; charset=utf-8");
        (head.status.as_u16(), if is_json { serde_json::from_str(&text).unwrap() } else { text.into() })
    })
}

fn house(rules: &str, settings: Settings) -> std::sync::Arc<House> {
    House::unreachable(rules, settings, GateClock::Manual(ManualClock::at(Timestamp::from_secs(NOON))))
}

#[test]
fn json_is_answered_as_upstream_does() {
    let rules = "domain: d\ndescriptors:\n\
                 - {key: a, rate_limit: {unit: minute, requests_per_unit: 1, name: one}, metadata: {plan: gold}}\n\
                 - {key: free, rate_limit: {unlimited: true}}\n";
    let names = ["L", "R", "T"].map(str::to_owned);
    let envoy = EnvoySettings { response_headers: Some(names), dynamic_metadata: true, ..EnvoySettings::default() };
    let told = house(rules, Settings { envoy, ..Settings::default() });
    let plain = house(rules, Settings::default());
    let asked = r#"{"domain":"d","descriptors":[{"entries":[{"key":"a","value":"1"}]},{"entries":[{"key":"free","value":"1"}]}]}"#;
    let limit = json!({"name": "one", "requestsPerUnit": 1, "unit": "MINUTE"});
    let free = json!({"code": "OK", "limitRemaining": u32::MAX});
    let first = json!({"code": "OK", "currentLimit": limit, "durationUntilReset": "50s"});
    assert_eq!(answer(&plain, asked), (200, json!({"overallCode": "OK", "statuses": [first, free]})));
    let over = json!({"code": "OVER_LIMIT", "currentLimit": limit, "durationUntilReset": "50s"});
    assert_eq!(answer(&plain, asked), (429, json!({"overallCode": "OVER_LIMIT", "statuses": [over, free]})));
    let (status, body) = answer(&told, asked);
    assert_eq!(status, 200);
    let header = |key: &str, value: &str| json!({"key": key, "value": value});
    assert_eq!(body["responseHeadersToAdd"], json!([header("L", "1"), header("R", "0"), header("T", "50")]));
    assert_eq!(body["dynamicMetadata"]["metadata"], json!({"plan": "gold"}));
    assert_eq!(
        answer(&plain, r#"{"domain":"","descriptors":[]}"#),
        (400, "Bad Request: rate limit domain must not be empty\n".into())
    );
    let (status, body) = answer(&plain, r#"{"domain":"d","hits":1}"#);
    assert!(status == 400 && body.as_str().unwrap().contains("unknown field `hits`"), "{body}");
    let never = house("domain: [", Settings { strict_start: false, ..Settings::default() });
    assert_eq!(answer(&never, asked), (400, "Bad Request: no rate limit configuration loaded\n".into()));
}

#[test]
fn health_is_a_status_and_two_letters() {
    let house = house("domain: d\ndescriptors: []\n", Settings::default());
    assert_eq!(healthcheck(&house).status(), 200);
    house.leave();
    assert_eq!(healthcheck(&house).status(), 500);
}
