//! Requests and answers as another implementation of protocol buffers writes and reads them, with time standing still.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod json;
mod theirs;

use std::collections::BTreeMap;

use proptest::prelude::*;
use prost::Message as _;
use tollgate::{ManualClock, MemoryStore, RuleSet, Timestamp};

use super::answer::Answer;
use super::request::{Refusal, Request};
use crate::gate::{Gate, GateClock, GateStore};
use crate::serve::EnvoySettings;

/// 12:00:10 on some day, which is a Tuesday.
const NOON: u64 = 1_767_700_810;

fn gate(rules: &str) -> Gate {
    let clock = GateClock::Manual(ManualClock::at(Timestamp::from_secs(NOON)));
    let gate = Gate::new(GateStore::Memory(MemoryStore::with_budget(1 << 20)), clock, 0.8, false);
    gate.replace_rules(RuleSet::from_yaml(rules).unwrap());
    gate
}

/// One descriptor, such as `a=1, b=2`.
fn descriptor(entries: &str) -> theirs::Descriptor {
    let entry = |entry: &str| {
        let (key, value) = entry.trim().split_once('=').unwrap();
        theirs::Entry { key: key.to_owned(), value: value.to_owned() }
    };
    theirs::Descriptor { entries: entries.split(',').map(entry).collect(), ..Default::default() }
}

fn request(descriptors: impl IntoIterator<Item = theirs::Descriptor>) -> theirs::Request {
    theirs::Request { domain: "d".to_owned(), descriptors: descriptors.into_iter().collect(), hits_addend: 0 }
}

fn ask_with(gate: &Gate, settings: &EnvoySettings, request: &theirs::Request) -> theirs::Response {
    let message = request.encode_to_vec();
    let request = Request::decode(&message).unwrap();
    let descriptors = request.descriptors();
    let check = request.check(&descriptors);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let asked = gate.check(&check, |verdict| Answer::new(verdict, &request, settings).encode());
    let answer = runtime.block_on(asked).unwrap();
    let (prefix, answer) = answer.split_at(super::grpc::PREFIX);
    assert_eq!(prefix[0], 0);
    assert_eq!(u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]) as usize, answer.len());
    theirs::Response::decode(answer).unwrap()
}

fn ask(gate: &Gate, descriptors: impl IntoIterator<Item = theirs::Descriptor>) -> theirs::Response {
    ask_with(gate, &EnvoySettings::default(), &request(descriptors))
}

/// A status in a few words.
fn shown(status: &theirs::Status) -> String {
    let code = ["UNKNOWN", "OK", "OVER"][status.code as usize];
    let limit = status.current_limit.as_ref().map_or("no limit".to_owned(), |limit| {
        format!("{} of {} per {} {}", status.limit_remaining, limit.requests_per_unit, limit.unit, limit.name)
    });
    let remaining = if status.current_limit.is_some() { 0 } else { status.limit_remaining };
    let reset = status.duration_until_reset.map_or(String::new(), |reset| format!(" until {}", reset.value));
    format!("{code} {}{reset}{}", limit.trim_end(), if remaining > 0 { format!(" {remaining}") } else { String::new() })
}

fn statuses(response: &theirs::Response) -> Vec<String> {
    response.statuses.iter().map(shown).collect()
}

#[test]
fn statuses_have_the_shapes_of_upstream() {
    let gate = gate(
        "domain: d\ndescriptors:\n\
         - {key: minute, rate_limit: {unit: minute, requests_per_unit: 2, name: few}}\n\
         - {key: week, rate_limit: {unit: week, requests_per_unit: 5}}\n\
         - {key: month, rate_limit: {unit: month, requests_per_unit: 5}}\n\
         - {key: second, rate_limit: {unit: second, requests_per_unit: 5}}\n\
         - {key: free, rate_limit: {unlimited: true}}\n\
         - {key: listed}\n\
         - {key: shadow, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 0}}\n",
    );
    let all = ["minute=1", "week=1", "month=1", "second=1", "free=1", "listed=1", "shadow=1", "unknown=1"];
    let first = ask(&gate, all.map(descriptor));
    assert_eq!(first.overall_code, 1);
    let month = 2_592_000 - NOON % 2_592_000;
    assert_eq!(
        statuses(&first),
        [
            "OK 1 of 2 per 2 few until 50",
            &format!("OK 4 of 5 per 7 until {}", 604_800 - NOON % 604_800),
            &format!("OK 4 of 5 per 5 until {month}"),
            "OK 4 of 5 per 1 until 1",
            "OK no limit 4294967295",
            "OK no limit",
            "OK 0 of 0 per 3 until 3590",
            "OK no limit",
        ]
    );
    ask(&gate, [descriptor("minute=1")]);
    let over = ask(&gate, [descriptor("minute=1"), descriptor("free=1")]);
    assert_eq!(over.overall_code, 2);
    assert_eq!(statuses(&over), ["OVER 0 of 2 per 2 few until 50", "OK no limit 4294967295"]);
    let elsewhere = theirs::Request { domain: "elsewhere".to_owned(), ..request([descriptor("minute=1")]) };
    let answer = ask_with(&gate, &EnvoySettings::default(), &elsewhere);
    assert_eq!((answer.overall_code, statuses(&answer)), (1, vec!["OK no limit".to_owned()]));
    let empty = ask(&gate, [theirs::Descriptor::default()]);
    assert_eq!(statuses(&empty), ["OK no limit"]);
}

#[test]
fn hits_are_those_of_the_descriptor_or_the_request_or_one() {
    let gate = gate("domain: d\ndescriptors:\n- {key: a, rate_limit: {unit: day, requests_per_unit: 10}}\n");
    let hits = |value| theirs::Descriptor { hits_addend: Some(theirs::Wrapped { value }), ..descriptor("a=1") };
    let asked = theirs::Request { hits_addend: 3, ..request([descriptor("a=1"), hits(2), hits(0)]) };
    let answer = ask_with(&gate, &EnvoySettings::default(), &asked);
    let remaining =
        |answer: &theirs::Response| -> Vec<u32> { answer.statuses.iter().map(|s| s.limit_remaining).collect() };
    assert_eq!(remaining(&answer), [7, 5, 5]);
    assert_eq!(remaining(&ask(&gate, [descriptor("a=1")])), [4], "absent is one");
    let refund = theirs::Descriptor { is_negative_hits: true, ..hits(6) };
    assert_eq!(remaining(&ask(&gate, [refund])), [10]);
    assert_eq!(ask(&gate, [hits(u64::MAX)]).overall_code, 2);
}

#[test]
fn overrides_have_units_of_their_own() {
    let gate = gate("domain: d\ndescriptors:\n- {key: a, rate_limit: {unit: day, requests_per_unit: 10}}\n");
    let per = |unit| theirs::Descriptor {
        limit: Some(theirs::Override { requests_per_unit: 3, unit, unit_multiplier: None }),
        ..descriptor("a=1")
    };
    for unit in 1..=6 {
        let answer = ask(&gate, [per(unit)]);
        let limit = answer.statuses[0].current_limit.clone().unwrap();
        assert_eq!((limit.requests_per_unit, limit.unit, limit.name.as_str()), (3, unit, ""));
    }
    for unit in [-1, 0, 7, 8, i32::MAX] {
        let message = request([descriptor("a=1"), per(unit)]).encode_to_vec();
        let Err(Refusal::Invalid(why)) = Request::decode(&message) else { panic!("{unit} was accepted") };
        assert!(why.starts_with(&format!("descriptors[1].limit: unit {unit} is not one of SECOND")), "{why}");
    }
    let mut twice = per(2);
    twice.limit.as_mut().unwrap().unit_multiplier = Some(theirs::Wrapped { value: 2 });
    assert!(matches!(Request::decode(&request([twice.clone()]).encode_to_vec()), Err(Refusal::Invalid(_))));
    twice.limit.as_mut().unwrap().unit_multiplier = Some(theirs::Wrapped { value: 1 });
    assert!(Request::decode(&request([twice]).encode_to_vec()).is_ok());
}

#[test]
fn own_limits_have_a_unit_only_where_there_is_one() {
    let gate = gate(
        "domain: d\nrules:\n\
         - {name: hourly, per: hour, limits: [7/h]}\n\
         - {name: odd, per: odd, limits: [7/5min]}\n\
         - {name: bucket, per: bucket, limits: [{rate: 5/s, algorithm: token_bucket, burst: 9}]}\n\
         - {name: stacked, per: stacked, limits: [5/s, 3/d]}\n",
    );
    let answer = ask(&gate, ["hour=1", "odd=1", "bucket=1", "stacked=1"].map(descriptor));
    let limits: Vec<_> = answer.statuses.iter().map(|status| status.current_limit.clone().unwrap()).collect();
    let limits: Vec<_> = limits.iter().map(|l| (l.requests_per_unit, l.unit, l.name.as_str())).collect();
    assert_eq!(limits, [(7, 3, "hourly"), (7, 0, "odd"), (9, 0, "bucket"), (3, 4, "stacked")]);
    let remaining: Vec<_> = answer.statuses.iter().map(|status| status.limit_remaining).collect();
    assert_eq!(remaining, [6, 6, 8, 2]);
    assert!(answer.statuses.iter().all(|status| status.duration_until_reset.is_some_and(|reset| reset.value > 0)));
}

#[test]
fn modes_of_the_whole_service_bend_only_the_overall_answer() {
    let rules = "domain: d\ndescriptors:\n- {key: none, rate_limit: {unit: day, requests_per_unit: 0}}\n\
                 - {key: some, rate_limit: {unit: day, requests_per_unit: 9}}\n- {key: free, rate_limit: {unlimited: true}}\n";
    let gate = gate(rules);
    let overall = |settings: &EnvoySettings, asked: &[&str]| {
        let answer = ask_with(&gate, settings, &request(asked.iter().map(|entries| descriptor(entries))));
        let over = answer.statuses.iter().filter(|status| status.code == 2).count();
        (answer.overall_code, over)
    };
    let plain = EnvoySettings::default();
    let shadow = EnvoySettings { shadow_mode: true, ..plain.clone() };
    let quota = EnvoySettings { quota_mode: true, ..plain.clone() };
    assert_eq!(overall(&plain, &["none=1", "some=1"]), (2, 1));
    assert_eq!(overall(&shadow, &["none=1", "some=1"]), (1, 1));
    assert_eq!(overall(&quota, &["none=1", "some=1"]), (1, 1));
    assert_eq!(overall(&quota, &["none=1", "none=2"]), (2, 2));
    assert_eq!(overall(&quota, &["none=1", "unknown=1"]), (1, 1), "what meets no rule is never over");
    assert_eq!(overall(&quota, &["none=1", "free=1"]), (2, 1), "what has no limit takes no part");
    assert_eq!(overall(&quota, &["free=1"]), (1, 0));
}

#[test]
fn quotas_deny_together_and_replaced_limits_do_not_count() {
    let gate = gate(
        "domain: d\ndescriptors:\n\
         - {key: q, quota_mode: true, rate_limit: {unit: day, requests_per_unit: 0}}\n\
         - {key: r, quota_mode: true, rate_limit: {unit: day, requests_per_unit: 5}}\n\
         - {key: old, rate_limit: {unit: day, requests_per_unit: 0, name: old}}\n\
         - {key: new, rate_limit: {unit: day, requests_per_unit: 5, replaces: [{name: old}]}}\n",
    );
    assert_eq!(ask(&gate, ["q=1", "r=1"].map(descriptor)).overall_code, 1);
    assert_eq!(ask(&gate, ["q=1", "q=2"].map(descriptor)).overall_code, 2);
    let replaced = ask(&gate, ["old=1", "new=1"].map(descriptor));
    assert_eq!((replaced.overall_code, shown(&replaced.statuses[0])), (1, "OK no limit".to_owned()));
    assert_eq!(ask(&gate, [descriptor("old=1")]).overall_code, 2);
}

#[test]
fn headers_are_about_the_descriptor_nearest_to_its_limit() {
    let gate = gate(
        "domain: d\ndescriptors:\n- {key: a, rate_limit: {unit: hour, requests_per_unit: 9}}\n\
         - {key: b, rate_limit: {unit: minute, requests_per_unit: 5}}\n\
         - {key: c, rate_limit: {unit: minute, requests_per_unit: 0}}\n\
         - {key: once, rate_limit: {unit: hour, requests_per_unit: 1}}\n\
         - {key: q, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 0}}\n",
    );
    let names = ["RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"].map(str::to_owned);
    let settings = EnvoySettings { response_headers: Some(names), ..EnvoySettings::default() };
    let headers = |asked: &[&str]| {
        let answer = ask_with(&gate, &settings, &request(asked.iter().map(|entries| descriptor(entries))));
        let headers =
            answer.response_headers_to_add.into_iter().map(|header| format!("{}: {}", header.key, header.value));
        headers.collect::<Vec<_>>().join(", ")
    };
    let shown = |limit: u32, remaining: u32, reset: u32| {
        format!("RateLimit-Limit: {limit}, RateLimit-Remaining: {remaining}, RateLimit-Reset: {reset}")
    };
    assert_eq!(headers(&["a=1", "b=1", "unknown=1"]), shown(5, 4, 50));
    assert_eq!(headers(&["c=1", "b=1"]), shown(0, 0, 50));
    assert_eq!(headers(&["q=1", "b=1"]), shown(0, 0, 50));
    assert_eq!(headers(&["once=1", "q=1"]), shown(1, 0, 3590), "a quota that is over does not come before others");
    assert_eq!(headers(&["c=1", "once=1"]), shown(1, 0, 3590), "the last that is over");
    assert_eq!(headers(&["unknown=1"]), "");
}

#[test]
fn metadata_tell_the_question_and_what_the_rules_say() {
    use theirs::{Kind, List, Struct, Value};
    let gate = gate(
        "domain: d\ndescriptors:\n\
         - {key: a, rate_limit: {unit: hour, requests_per_unit: 9}, metadata: {plan: gold, deep: {x: 1, w: [true, null]}}}\n\
         - {key: b, rate_limit: {unit: hour, requests_per_unit: 9}, metadata: {plan: iron, deep: {z: 2.5}}}\n\
         - {key: c, rate_limit: {unit: hour, requests_per_unit: 0}, metadata: {never: told}}\n",
    );
    let settings = EnvoySettings { dynamic_metadata: true, ..EnvoySettings::default() };
    let mut last = descriptor("c=1,x=y");
    last.entries.truncate(1);
    last.hits_addend = Some(theirs::Wrapped { value: 2 });
    let asked = theirs::Request { hits_addend: 1, ..request([descriptor("a=1"), descriptor("b=1"), last]) };
    let told = ask_with(&gate, &settings, &asked).dynamic_metadata.unwrap();
    let value = |kind| Value { kind: Some(kind) };
    let text = |text: &str| value(Kind::Text(text.to_owned()));
    let object = |fields: Vec<(&str, Value)>| {
        let fields: BTreeMap<_, _> = fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        Struct { fields }
    };
    let list = |values: Vec<Value>| value(Kind::List(List { values }));
    let number = |number: f64| value(Kind::Number(number));
    let entries = |entry: &str| ("entries", list(vec![text(entry)]));
    let deep = object(vec![
        ("x", number(1.0)),
        ("w", list(vec![value(Kind::Bool(true)), value(Kind::Null(0))])),
        ("z", number(2.5)),
    ]);
    let metadata = object(vec![("plan", text("gold")), ("deep", value(Kind::Struct(deep)))]);
    let descriptors = [
        object(vec![entries("a=1")]),
        object(vec![entries("b=1")]),
        object(vec![entries("c=1"), ("hitsAddend", number(2.0))]),
    ];
    let expected = object(vec![
        ("domain", text("d")),
        ("descriptors", list(descriptors.into_iter().map(|fields| value(Kind::Struct(fields))).collect())),
        ("hitsAddend", number(1.0)),
        ("metadata", value(Kind::Struct(metadata))),
    ]);
    assert_eq!(told, expected);
}

#[test]
fn a_switched_off_service_says_yes_to_every_descriptor() {
    let gate = gate("domain: d\ndescriptors:\n- {key: a, rate_limit: {unit: hour, requests_per_unit: 0}}\n");
    gate.set_limiting(false);
    let answer = ask(&gate, ["a=1", "b=1"].map(descriptor));
    assert_eq!((answer.overall_code, statuses(&answer)), (1, vec!["OK no limit".to_owned(); 2]));
}

#[test]
fn a_request_has_bounds() {
    let refused = |request: &theirs::Request| Request::decode(&request.encode_to_vec()).unwrap_err();
    assert_eq!(refused(&theirs::Request::default()), Refusal::Upstream("rate limit domain must not be empty"));
    assert_eq!(refused(&request([])), Refusal::Upstream("rate limit descriptor list must not be empty"));
    let many = request((0..257).map(|_| descriptor("a=1")));
    assert!(matches!(refused(&many), Refusal::Invalid(why) if why.contains("at most 256 descriptors")));
    let mut long = descriptor("a=1");
    long.entries = vec![long.entries[0].clone(); 65];
    assert!(matches!(refused(&request([long])), Refusal::Invalid(why) if why.contains("at most 64 entries")));
}

/// What a request of ours says, as one of theirs.
fn as_theirs(ours: &Request<'_>) -> theirs::Request {
    let descriptor = |asked: &super::request::Asked| theirs::Descriptor {
        entries: ours
            .entries_of(asked)
            .iter()
            .map(|(key, value)| theirs::Entry { key: (*key).to_owned(), value: (*value).to_owned() })
            .collect(),
        limit: asked.limit.map(|limit| {
            let unit = limit.unit as i32 + 1;
            // Ours counts the week, which comes before the month.
            let unit = if unit > 5 { unit - 1 } else { unit };
            theirs::Override { requests_per_unit: limit.requests_per_unit, unit, unit_multiplier: None }
        }),
        hits_addend: asked.hits_addend.map(|value| theirs::Wrapped { value }),
        is_negative_hits: asked.is_refund,
    };
    theirs::Request {
        domain: ours.domain.to_owned(),
        descriptors: ours.descriptors.iter().map(descriptor).collect(),
        hits_addend: ours.hits_addend,
    }
}

prop_compose! {
    fn any_descriptor()(
        entries in prop::collection::vec((".{0,4}", ".{0,4}"), 0..4),
        limit in prop::option::of((any::<u32>(), 1..7i32)),
        hits in prop::option::of(any::<u64>()),
        is_negative_hits in any::<bool>(),
    ) -> theirs::Descriptor {
        theirs::Descriptor {
            entries: entries.into_iter().map(|(key, value)| theirs::Entry { key, value }).collect(),
            limit: limit.map(|(requests_per_unit, unit)| theirs::Override { requests_per_unit, unit, unit_multiplier: None }),
            hits_addend: hits.map(|value| theirs::Wrapped { value }),
            is_negative_hits,
        }
    }
}

prop_compose! {
    fn any_request()(
        domain in ".{1,4}",
        descriptors in prop::collection::vec(any_descriptor(), 1..4),
        hits_addend in any::<u32>(),
    ) -> theirs::Request {
        theirs::Request { domain, descriptors, hits_addend }
    }
}

proptest! {
    #[test]
    fn requests_are_read_as_others_write_them(request in any_request()) {
        let message = request.encode_to_vec();
        prop_assert_eq!(as_theirs(&Request::decode(&message).unwrap()), request);
    }

    /// Bytes that were changed, cut or put together are read as others read them, or by neither.
    #[test]
    fn damaged_requests_are_read_as_others_read_them(
        request in any_request(),
        more in any_request(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut message = request.encode_to_vec();
        message.extend(more.encode_to_vec());
        for (at, byte) in changes {
            let at = at.index(message.len());
            message[at] = byte;
        }
        if let Some(cut) = cut {
            message.truncate(cut.index(message.len()));
        }
        match (Request::decode(&message), theirs::Request::decode(&*message)) {
            (Ok(ours), Ok(mut theirs)) => {
                for descriptor in &mut theirs.descriptors {
                    // One is the same as none.
                    if let Some(limit) = &mut descriptor.limit {
                        limit.unit_multiplier = None;
                    }
                }
                prop_assert_eq!(as_theirs(&ours), theirs);
            }
            (Err(Refusal::Invalid(why)), theirs) if why.starts_with("the message is no") => prop_assert!(theirs.is_err()),
            // Well-formed, and refused for what it says; what comes after may still be damaged.
            (Err(_), _) => {}
            (Ok(_), Err(error)) => prop_assert!(false, "they refuse it: {error}"),
        }
    }

    #[test]
    fn any_bytes_are_read_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        super::fuzz_message(&bytes).unwrap();
        super::fuzz_json(&bytes).unwrap();
    }
}
