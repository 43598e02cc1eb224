//! One script of questions, asked through every protocol of a service of its own: the answers are the same, and so is
//! what the service counted. Times stand still, so that waits and resets are compared to the second.
//!
//! What a protocol cannot say is asked by HTTP at the same service instead, so that what follows finds the same
//! counters.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;
#[path = "support/wire.rs"]
mod wire;

use std::fmt::Write as _;
use std::net::SocketAddr;

use serde_json::{Value, json};
use support::{http, scratch};
use tollgate::{ManualClock, Micros, Timestamp};
use tollgate_server::GateClock;
use tollgate_server::serve::{Address, Server, Settings};
use wire::{Connection, Grpc};

const RULES: &str = "
domain: shop
rules:
  - {name: per-user, per: user_id, limits: [{rate: 5/d, algorithm: token_bucket}]}
  - {name: posts, when: {path: /posts}, per: user_id, limits: [{rate: 2/d, algorithm: fixed_window}]}
  - {name: slots, when: {path: /export}, per: team, limits: [{concurrency: 1, lease: 1h}]}
  - {name: tried, mode: shadow, per: visitor, limits: [{rate: 1/d, algorithm: token_bucket}]}
  - {name: free, per: friend, limits: unlimited}
  - {name: both, per: job, limits: [{rate: 3/d, algorithm: token_bucket}, {rate: 2/w, algorithm: token_bucket}]}
  - {name: uneven, per: batch, limits: [{rate: 5/d, algorithm: token_bucket}, {rate: 6/w, algorithm: token_bucket}]}
  - {name: spending, per: model, limits: [{rate: 100/d, algorithm: token_bucket}, {rate: 1000 tokens/d, algorithm: token_bucket}]}
";

/// A protocol, and for those that have both, the form of its questions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Door {
    Grpc,
    Json,
    HttpByAttributes,
    HttpByDescriptors,
    ForwardAuth,
    RespByAttributes,
    RespByDescriptors,
}

use Door::{
    ForwardAuth, Grpc as GrpcDoor, HttpByAttributes, HttpByDescriptors, Json, RespByAttributes, RespByDescriptors,
};

const DOORS: [Door; 7] =
    [HttpByAttributes, HttpByDescriptors, GrpcDoor, Json, ForwardAuth, RespByAttributes, RespByDescriptors];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verb {
    Check,
    Peek,
    Force,
    Refund,
    Reserve,
    /// What was needed after all.
    Commit(u64),
    Cancel,
    Renew,
    Release,
    /// Hours pass.
    Later(u64),
}

/// What a question is about: `key=value` with commas between.
#[derive(Clone, Copy, Debug)]
enum About {
    /// Attributes, or one descriptor of the same.
    Either(&'static str),
    Attributes(&'static str),
    Descriptors(&'static [&'static str]),
}

use About::{Attributes, Descriptors, Either};
use Verb::{Cancel, Check, Commit, Force, Later, Peek, Refund, Release, Renew, Reserve};

struct Step {
    verb: Verb,
    about: About,
    cost: u64,
    tokens: Option<u64>,
    lease: u64,
    /// Yes or no; then, for what binds or for each descriptor, rule and remaining/limit, with a mark if it is over.
    said: &'static str,
}

const fn step(verb: Verb, about: About, cost: u64, said: &'static str) -> Step {
    Step { verb, about, cost, tokens: None, lease: 0, said }
}

const fn leased(verb: Verb, lease: u64, said: &'static str) -> Step {
    Step { lease, ..step(verb, Either("path=/export,team=t"), 1, said) }
}

const fn spending(tokens: u64, said: &'static str) -> Step {
    Step { tokens: Some(tokens), ..step(Check, Either("model=m"), 1, said) }
}

const NOTHING: About = Either("");

const SCRIPT: &[Step] = &[
    // Costs, looks, denials.
    step(Check, Either("user_id=1"), 1, "yes: per-user 4/5"),
    step(Check, Either("user_id=1"), 3, "yes: per-user 1/5"),
    step(Check, Either("user_id=1"), 2, "no: per-user 1/5 over"),
    step(Check, Either("user_id=1"), 0, "yes: per-user 1/5"),
    step(Peek, Either("user_id=1"), 1, "yes: per-user 1/5"),
    step(Check, Either("user_id=1"), 1, "yes: per-user 0/5"),
    step(Check, Either("user_id=1"), 1, "no: per-user 0/5 over"),
    step(Peek, Either("user_id=1"), 1, "no: per-user 0/5 over"),
    step(Check, Either("user_id=1"), 0, "yes: per-user 0/5"),
    // What never fits; others are not concerned.
    step(Check, Either("user_id=2"), 6, "no: per-user 5/5 over"),
    step(Check, Either("user_id=2"), 1, "yes: per-user 4/5"),
    // Time, refunds and debts.
    step(Later(12), NOTHING, 0, ""),
    step(Check, Either("user_id=1"), 1, "yes: per-user 1/5"),
    step(Refund, Either("user_id=1"), 1, "yes: per-user 2/5"),
    step(Check, Either("user_id=1"), 2, "yes: per-user 0/5"),
    step(Force, Either("user_id=2"), 9, "yes: per-user 0/5"),
    step(Check, Either("user_id=2"), 1, "no: per-user 0/5 over"),
    // Several rules: all have to hold, and a denial charges none.
    step(Check, Attributes("user_id=3,path=/posts"), 1, "yes: posts 1/2"),
    step(Check, Attributes("path=/posts,user_id=3"), 1, "yes: posts 0/2"),
    step(Check, Attributes("user_id=3,path=/posts"), 1, "no: posts 0/2 over"),
    step(Check, Attributes("user_id=3"), 1, "yes: per-user 2/5"),
    // Descriptors are counted each on its own.
    step(Check, Descriptors(&["user_id=4", "path=/posts,user_id=4"]), 1, "yes: per-user 4/5, posts 1/2"),
    step(Check, Descriptors(&["user_id=4", "path=/posts,user_id=4"]), 2, "no: per-user 2/5, posts 1/2 over"),
    step(Check, Descriptors(&["nobody=1", "user_id=4"]), 1, "yes: -, per-user 1/5"),
    step(Check, Descriptors(&["user_id=4,path=/posts"]), 1, "yes: -"),
    // One rule of two limits, of which the longer denies first, and then both.
    step(Check, Either("job=1"), 1, "yes: both 1/2"),
    step(Check, Either("job=1"), 2, "no: both 1/2 over"),
    step(Check, Either("job=2"), 4, "no: both 3/3 over"),
    step(Check, Either("job=1"), 1, "yes: both 0/2"),
    // The limit with the least left is not the one that takes longest.
    step(Check, Either("batch=1"), 5, "yes: uneven 0/5"),
    step(Check, Either("batch=1"), 2, "no: uneven 1/6 over"),
    // No rule, no limit, no enforcement.
    step(Check, Either("nobody=1"), 1, "yes: -"),
    step(Check, Either("friend=1"), 1_000, "yes: -"),
    step(Check, Attributes("visitor=1"), 1, "yes: -"),
    step(Check, Attributes("visitor=1"), 1, "yes: -"),
    step(Check, Descriptors(&["visitor=2"]), 1, "yes: tried 0/1"),
    step(Check, Descriptors(&["visitor=2"]), 1, "yes: tried 0/1"),
    // Other units.
    spending(400, "yes: spending 600/1000"),
    spending(700, "no: spending 600/1000 over"),
    spending(600, "yes: spending 0/1000"),
    // Leases, and slots that nobody's lease holds.
    leased(Check, 7, "yes: slots 0/1"),
    leased(Check, 8, "no: slots 0/1 over"),
    leased(Renew, 7, "yes"),
    leased(Renew, 8, "no"),
    leased(Release, 7, "yes"),
    leased(Check, 8, "yes: slots 0/1"),
    step(Check, Either("path=/export,team=u"), 1, "yes: slots 0/1"),
    step(Check, Either("path=/export,team=u"), 1, "no: slots 0/1 over"),
    // Reservations.
    step(Reserve, Either("user_id=5"), 3, "yes: per-user 2/5"),
    step(Commit(1), NOTHING, 0, "yes"),
    step(Commit(1), NOTHING, 0, "no"),
    step(Check, Either("user_id=5"), 0, "yes: per-user 4/5"),
    step(Reserve, Either("user_id=5"), 4, "yes: per-user 0/5"),
    step(Check, Either("user_id=5"), 1, "no: per-user 0/5 over"),
    step(Cancel, NOTHING, 0, "yes"),
    step(Cancel, NOTHING, 0, "no"),
    step(Check, Either("user_id=5"), 1, "yes: per-user 3/5"),
    step(Reserve, Either("user_id=5"), 4, "no: per-user 3/5 over"),
];

/// Which steps a protocol has words for.
fn can_say(door: Door, step: &Step) -> bool {
    let by_descriptors = matches!(door, GrpcDoor | Json | HttpByDescriptors | RespByDescriptors);
    let form = match step.about {
        Either(_) => true,
        Attributes(_) => !by_descriptors,
        Descriptors(_) => by_descriptors,
    };
    let words = match door {
        // Envoy's messages know neither leases nor units, and nothing between a check and a refund.
        GrpcDoor | Json => matches!(step.verb, Check | Refund) && step.lease == 0 && step.tokens.is_none(),
        // A proxy asks whether a request may pass, and no more.
        ForwardAuth => step.verb == Check && step.lease == 0 && step.tokens.is_none(),
        HttpByAttributes | HttpByDescriptors | RespByAttributes | RespByDescriptors => true,
    };
    form && words
}

/// An answer, whatever it looked like.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Told {
    text: String,
    /// For each limit that was told of: seconds until it is as good as new, and seconds to wait, as far as they were
    /// told.
    times: Vec<(Option<u64>, Option<Wait>)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    Seconds(u64),
    Never,
}

/// What was told of one limit.
struct Limit {
    /// Rule, remaining, limit.
    of: Option<(String, u64, u64)>,
    over: bool,
    reset: Option<u64>,
    wait: Option<Wait>,
}

const NO_LIMIT: Limit = Limit { of: None, over: false, reset: None, wait: None };

impl Told {
    fn new(allowed: bool, limits: impl IntoIterator<Item = Limit>) -> Self {
        let mut told = Self { text: yes(allowed), times: Vec::new() };
        for (at, limit) in limits.into_iter().enumerate() {
            told.text.push_str(if at == 0 { ": " } else { ", " });
            match &limit.of {
                Some((rule, remaining, most)) => write!(told.text, "{rule} {remaining}/{most}").unwrap(),
                None => told.text.push('-'),
            }
            if limit.over {
                told.text.push_str(" over");
            }
            told.times.push((limit.reset, limit.wait));
        }
        told
    }

    /// Whether nothing that both tell differs.
    fn agrees(&self, other: &Self) -> bool {
        fn same<T: PartialEq>(one: Option<T>, other: Option<T>) -> bool {
            one.zip(other).is_none_or(|(one, other)| one == other)
        }
        let mut times = self.times.iter().zip(&other.times);
        self.text == other.text && times.all(|(one, other)| same(one.0, other.0) && same(one.1, other.1))
    }
}

fn yes(allowed: bool) -> String {
    if allowed { "yes".to_owned() } else { "no".to_owned() }
}

fn up(seconds: f64) -> u64 {
    seconds.ceil() as u64
}

/// A service under the script's rules, and everything to ask it by.
struct Asked {
    clock: ManualClock,
    http: SocketAddr,
    admin: SocketAddr,
    grpc: Grpc,
    resp: Connection,
    /// What was reserved last.
    reservation: String,
    /// The service ends with it.
    _end: tokio::sync::oneshot::Sender<()>,
}

impl Asked {
    fn start() -> Self {
        let rules = scratch("rules.yaml");
        std::fs::write(&rules, RULES).unwrap();
        let clock = ManualClock::at(Timestamp::from_micros(1_800_000_000_000_000));
        let settings = Settings { rules: vec![rules], ..Settings::default() };
        let server = Server::start(settings, GateClock::Manual(clock.clone())).expect("it starts");
        let of = |address: &Address| match address {
            Address::Tcp(address) => *address,
            other => panic!("{other}"),
        };
        let addresses = server.addresses().clone();
        let (end, ended) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || {
            server.run(async {
                let _ = ended.await;
            })
        });
        let mut resp = Connection::open(of(&addresses.resp)).unwrap();
        assert_eq!(resp.command(&["HELLO", "3"]).answer()["proto"], 3);
        let (http, admin, grpc) = (of(&addresses.http), of(&addresses.admin), Grpc::start(of(&addresses.grpc)));
        Self { clock, http, admin, grpc, resp, reservation: String::new(), _end: end }
    }

    fn ask(&mut self, door: Door, step: &Step) -> Told {
        if let Later(hours) = step.verb {
            self.clock.advance(Micros::from_secs(hours * 3_600));
            return Told::default();
        }
        match door {
            GrpcDoor => told_by_envoy(&self.grpc.ask(&envoy_request(step))),
            Json => {
                let answer = http(self.http, "POST /json HTTP/1.1", &envoy_request(step).to_string());
                let told: Value = serde_json::from_str(&answer.body).unwrap_or_else(|_| panic!("{}", answer.body));
                assert_eq!(answer.status == 200, told["overallCode"] == "OK", "{told}");
                told_by_envoy(&told)
            }
            ForwardAuth => self.ask_as_proxy(step),
            HttpByAttributes | HttpByDescriptors => self.ask_by_http(door, step),
            RespByAttributes | RespByDescriptors => self.ask_by_resp(door, step),
        }
    }

    fn ask_by_http(&mut self, door: Door, step: &Step) -> Told {
        let mut body = json!({});
        let path = match step.verb {
            Check if step.lease > 0 => "acquire",
            Check => "check",
            Peek => "peek",
            Force => "force",
            Refund => "refund",
            Reserve => "reserve",
            Commit(_) => "commit",
            Cancel => "cancel",
            Renew => "renew",
            Release => "release",
            Later(_) => unreachable!("nothing is asked"),
        };
        if matches!(step.verb, Commit(_) | Cancel) {
            body["reservation"] = self.reservation.clone().into();
            if let Commit(actual) = step.verb {
                body["actual"] = actual.into();
            }
        } else {
            match descriptors(step, door == HttpByDescriptors) {
                Some(descriptors) => {
                    let entries = |descriptor: &'static str| {
                        Value::from(pairs(descriptor).map(|(k, v)| json!([k, v])).collect::<Vec<_>>())
                    };
                    let all = descriptors.iter().map(|descriptor| json!({"entries": entries(descriptor)}));
                    body["descriptors"] = all.collect::<Vec<_>>().into();
                }
                None => {
                    body["attributes"] = pairs(attributes(step))
                        .map(|(k, v)| (k.to_owned(), v.into()))
                        .collect::<serde_json::Map<_, _>>()
                        .into();
                }
            }
            body["cost"] = step.cost.into();
            if let Some(tokens) = step.tokens {
                body["costs"] = json!({"tokens": tokens});
            }
            if step.lease > 0 {
                body["lease"] = step.lease.into();
            }
        }
        let answer = http(self.http, &format!("POST /v1/{path} HTTP/1.1"), &body.to_string());
        let told: Value = serde_json::from_str(&answer.body).unwrap_or_else(|_| panic!("{}", answer.body));
        if matches!(step.verb, Commit(_) | Cancel | Renew | Release) {
            assert!([200, 404].contains(&answer.status), "{told}");
            return Told { text: yes(answer.status == 200), times: Vec::new() };
        }
        assert_eq!(answer.status, if told["allowed"] == true { 200 } else { 429 }, "{told}");
        if let Some(reservation) = told["reservation"].as_str() {
            self.reservation = reservation.to_owned();
        }
        told_by_http(&told)
    }

    fn ask_as_proxy(&self, step: &Step) -> Told {
        let query = pairs(attributes(step)).map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join("&");
        let answer = http(self.http, &format!("GET /check?cost={}&{query} HTTP/1.1", step.cost), "");
        if answer.status == 429 {
            return told_by_http(&serde_json::from_str(&answer.body).unwrap());
        }
        assert_eq!((answer.status, &*answer.body), (200, ""));
        let number = |name: &str| answer.header(name).map(|value| value.parse::<u64>().unwrap());
        let limit = number("x-ratelimit-remaining").zip(number("x-ratelimit-limit")).map(|(remaining, most)| {
            // The list names all limits; that of the same numbers is the one that binds.
            let list = answer.header("ratelimit").unwrap();
            let item =
                list.split(',').find(|item| item.split(';').any(|part| part == format!("r={remaining}"))).unwrap();
            let name = item.split('"').nth(1).unwrap();
            let rule = name.split(':').next().unwrap().to_owned();
            Limit { of: Some((rule, remaining, most)), reset: number("x-ratelimit-reset"), ..NO_LIMIT }
        });
        Told::new(true, [limit.unwrap_or(NO_LIMIT)])
    }

    fn ask_by_resp(&mut self, door: Door, step: &Step) -> Told {
        let mut words: Vec<String> = Vec::new();
        let mut say = |word: &str| words.push(word.to_owned());
        match step.verb {
            Check => say("TG.CHECK"),
            Peek => say("TG.PEEK"),
            Force => say("TG.FORCE"),
            Refund => say("TG.REFUND"),
            Reserve => ["TG.RESERVE", "60000"].into_iter().for_each(say),
            Renew => say("TG.RENEW"),
            Release => say("TG.RELEASE"),
            Commit(actual) => ["TG.COMMIT", &self.reservation, &actual.to_string()].into_iter().for_each(say),
            Cancel => ["TG.CANCEL", &self.reservation].into_iter().for_each(say),
            Later(_) => unreachable!("nothing is asked"),
        }
        if !matches!(step.verb, Commit(_) | Cancel) {
            words.extend(["COST".to_owned(), step.cost.to_string()]);
            if let Some(tokens) = step.tokens {
                words.extend(["UNIT".to_owned(), "tokens".to_owned(), tokens.to_string()]);
            }
            if step.lease > 0 {
                words.extend(["LEASE".to_owned(), step.lease.to_string()]);
            }
            match descriptors(step, door == RespByDescriptors) {
                Some(descriptors) => {
                    for descriptor in descriptors {
                        words.extend(["DESCRIPTOR".to_owned(), pairs(descriptor).count().to_string()]);
                        words.extend(pairs(descriptor).flat_map(|(key, value)| [key.to_owned(), value.to_owned()]));
                    }
                }
                None => {
                    words.push("FOR".to_owned());
                    words.extend(pairs(attributes(step)).flat_map(|(key, value)| [key.to_owned(), value.to_owned()]));
                }
            }
        }
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let told = self.resp.command(&words).answer();
        match step.verb {
            Commit(_) | Cancel => return Told { text: yes(told == 1), times: Vec::new() },
            Renew | Release => return Told { text: yes(told["allowed"] == 1), times: Vec::new() },
            _ => {}
        }
        if let Some(reservation) = told["reservation"].as_str() {
            self.reservation = reservation.to_owned();
        }
        let allowed = told["allowed"] == 1;
        let limit = |of: &Value, over: bool| Limit {
            of: of["rule"]
                .as_str()
                .map(|rule| (rule.to_owned(), of["remaining"].as_u64().unwrap(), of["limit"].as_u64().unwrap())),
            over,
            reset: of["rule"].is_string().then(|| of["reset_after_ms"].as_u64().unwrap().div_ceil(1_000)),
            wait: of["rule"].is_string().then(|| match of["retry_after_ms"].as_i64().unwrap() {
                -1 => Wait::Never,
                millis => Wait::Seconds(millis.unsigned_abs().div_ceil(1_000)),
            }),
        };
        match told["descriptors"].as_array() {
            Some(all) => Told::new(allowed, all.iter().map(|one| limit(one, one["over_limit"] == 1))),
            None => Told::new(allowed, [limit(&told, !allowed)]),
        }
    }

    /// What the service counted of each rule.
    fn counted(&self) -> Vec<String> {
        let all = http(self.admin, "GET /stats HTTP/1.1", "").body;
        let of_rules =
            |line: &&str| line.starts_with("tollgate_rule_checks_total") || line.starts_with("tollgate_unmatched");
        all.lines().filter(of_rules).map(str::to_owned).collect()
    }
}

fn pairs(text: &'static str) -> impl Iterator<Item = (&'static str, &'static str)> {
    text.split(',').filter_map(|pair| pair.split_once('='))
}

fn attributes(step: &Step) -> &'static str {
    match step.about {
        Either(pairs) | Attributes(pairs) => pairs,
        Descriptors(_) => unreachable!("asked by descriptors only"),
    }
}

fn descriptors(step: &Step, is_preferred: bool) -> Option<Vec<&'static str>> {
    match step.about {
        Either(pairs) => is_preferred.then(|| vec![pairs]),
        Attributes(_) => None,
        Descriptors(all) => Some(all.to_vec()),
    }
}

fn envoy_request(step: &Step) -> Value {
    let entries =
        |descriptor| pairs(descriptor).map(|(key, value)| json!({"key": key, "value": value})).collect::<Vec<_>>();
    let of = |descriptor| match step.verb {
        Refund => json!({"entries": entries(descriptor), "hitsAddend": step.cost, "isNegativeHits": true}),
        _ => json!({"entries": entries(descriptor), "hitsAddend": step.cost}),
    };
    let all = descriptors(step, true).expect("asked by descriptors");
    json!({"domain": "shop", "descriptors": all.into_iter().map(of).collect::<Vec<_>>()})
}

fn told_by_envoy(answer: &Value) -> Told {
    let statuses = answer["statuses"].as_array().unwrap_or_else(|| panic!("{answer}"));
    let limits = statuses.iter().map(|status| {
        let over = status["code"] == "OVER_LIMIT";
        let Some(limit) = status.get("currentLimit") else { return Limit { over, ..NO_LIMIT } };
        let number = |value: &Value| value.as_u64().unwrap_or(0);
        let of = (
            limit["name"].as_str().unwrap().to_owned(),
            number(&status["limitRemaining"]),
            number(&limit["requestsPerUnit"]),
        );
        let reset = status["durationUntilReset"].as_str().map(|text| text.trim_end_matches('s').parse().unwrap());
        Limit { of: Some(of), over, reset, wait: None }
    });
    Told::new(answer["overallCode"] == "OK", limits)
}

fn told_by_http(told: &Value) -> Told {
    let allowed = told["allowed"] == true;
    let limit = |of: &Value, over: bool| Limit {
        of: of["rule"]
            .as_str()
            .map(|rule| (rule.to_owned(), of["remaining"].as_u64().unwrap(), of["limit"].as_u64().unwrap())),
        over,
        reset: of["rule"].is_string().then(|| up(of["reset_after"].as_f64().unwrap())),
        wait: of["rule"]
            .is_string()
            .then(|| of["retry_after"].as_f64().map_or(Wait::Never, |wait| Wait::Seconds(up(wait)))),
    };
    let Some(descriptors) = told["descriptors"].as_array() else {
        return Told::new(allowed, [limit(told, !allowed)]);
    };
    let all = told["limits"].as_array().unwrap();
    Told::new(
        allowed,
        descriptors.iter().map(|one| {
            let end = |at: usize| one["limits"][at].as_u64().unwrap() as usize;
            // Of several limits of one rule, the one that takes longest; else the one with the least share left.
            let strictest = all[end(0)..end(1)].iter().min_by_key(|limit| {
                let share = limit["remaining"].as_u64().unwrap() * 1_000 / limit["limit"].as_u64().unwrap();
                let wait = limit["retry_after"].as_f64().map_or(u64::MAX, up);
                if limit["allowed"] == true { (1, share) } else { (0, u64::MAX - wait) }
            });
            strictest.map_or(NO_LIMIT, |strictest| limit(strictest, one["over_limit"] == true))
        }),
    )
}

#[test]
fn every_protocol_gives_the_same_answers_and_counts_the_same() {
    let mut first: Option<(Vec<Told>, Vec<String>)> = None;
    for door in DOORS {
        let mut asked = Asked::start();
        let mut told = Vec::new();
        let mut said = 0;
        for (number, step) in SCRIPT.iter().enumerate() {
            let stand_in = if matches!(step.about, Descriptors(_)) { HttpByDescriptors } else { HttpByAttributes };
            let by = if can_say(door, step) { door } else { stand_in };
            said += usize::from(by == door);
            let answer = asked.ask(by, step);
            let what =
                || format!("step {number}, {by:?} (for {door:?}): {:?} {:?} for {}", step.verb, step.about, step.cost);
            assert_eq!(answer.text, step.said, "{}", what());
            if let Some(before) = first.as_ref().map(|(told, _)| &told[number]) {
                assert!(answer.agrees(before), "{}\n{before:?} by {:?}\n{answer:?}", what(), DOORS[0]);
            }
            told.push(answer);
        }
        assert!(said > SCRIPT.len() / 2, "{door:?} has words for {said} of {} steps", SCRIPT.len());
        let counted = asked.counted();
        match &first {
            None => first = Some((told, counted)),
            Some((_, before)) => assert_eq!(&counted, before, "{door:?}"),
        }
    }
}
