//! Headers that tell clients about limits, from a verdict: for this service and for whoever else answers clients.
//!
//! Which families there are, the settings say. `Retry-After` is part of all but [`HeaderProfile::Nothing`]: on every denial that waiting
//! helps, in whole seconds, at least one, and never before the time after which the request would be allowed.
//!
//! This is how everything is said; what is said most often, [`super::phrase`] says with less work.

use http::header::RETRY_AFTER;
use http::{HeaderName, HeaderValue};
use tollgate::{Micros, Toll, Verdict};

use super::phrase::Usual;
use super::policy::Policy;
use crate::protocol::snippet::{digits, value, value_of};
use crate::serve::{HeaderProfile, Manner};

pub(super) const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
pub(super) const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
pub(super) const X_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
pub(super) const X_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
pub(super) const X_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
const X_RETRY_AFTER: HeaderName = HeaderName::from_static("x-ratelimit-retry-after");

const KONG_LIMIT: HeaderName = HeaderName::from_static("ratelimit-limit");
const KONG_REMAINING: HeaderName = HeaderName::from_static("ratelimit-remaining");
const KONG_RESET: HeaderName = HeaderName::from_static("ratelimit-reset");
/// Time spans that have names, in seconds.
const KONG_SPANS: [(u64, &str, &str); 6] = [
    (1, "x-ratelimit-limit-second", "x-ratelimit-remaining-second"),
    (60, "x-ratelimit-limit-minute", "x-ratelimit-remaining-minute"),
    (3_600, "x-ratelimit-limit-hour", "x-ratelimit-remaining-hour"),
    (86_400, "x-ratelimit-limit-day", "x-ratelimit-remaining-day"),
    (2_592_000, "x-ratelimit-limit-month", "x-ratelimit-remaining-month"),
    (31_536_000, "x-ratelimit-limit-year", "x-ratelimit-remaining-year"),
];

/// Decided by one server alone, which could not ask the others' store.
const DEGRADED: HeaderName = HeaderName::from_static("x-tollgate-degraded");

/// The largest integer of a structured field: 15 digits.
pub(super) const MOST: u64 = 999_999_999_999_999;
/// More policies than this make a header that nobody reads: then only the one that decides is told.
const MOST_POLICIES: usize = 32;

/// Hands each header to `header`. Those of the IETF's draft are lists: whoever passes on another server's adds to them.
pub(crate) fn tell(verdict: &Verdict<'_>, manner: Manner<'_>, header: impl FnMut(HeaderName, HeaderValue)) {
    match Usual::of(verdict, manner.profiles) {
        Some(usual) => usual.tell(header),
        None => tell_at_length(verdict, manner, header),
    }
}

/// Headers that are told later, when there is an answer to put them into.
pub(crate) enum Notice {
    Usual(Usual),
    Other(Vec<(HeaderName, HeaderValue)>),
}

impl Notice {
    pub(crate) const NONE: Self = Self::Other(Vec::new());

    /// What [`tell`] tells.
    pub(crate) fn of(verdict: &Verdict<'_>, manner: Manner<'_>) -> Self {
        if let Some(usual) = Usual::of(verdict, manner.profiles) {
            return Self::Usual(usual);
        }
        let mut headers = Vec::new();
        tell_at_length(verdict, manner, |name, value| headers.push((name, value)));
        Self::Other(headers)
    }

    /// Hands each header to `header`.
    pub(crate) fn tell(self, mut header: impl FnMut(HeaderName, HeaderValue)) {
        match self {
            Self::Usual(usual) => usual.tell(header),
            Self::Other(headers) => headers.into_iter().for_each(|(name, value)| header(name, value)),
        }
    }

    /// Writes each header as a line of HTTP/1.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Usual(usual) => usual.write(out),
            Self::Other(headers) => headers.iter().for_each(|(name, value)| write_line(out, name, value)),
        }
    }
}

/// A header as a line of HTTP/1.
pub(crate) fn write_line(out: &mut Vec<u8>, name: &HeaderName, value: &HeaderValue) {
    for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
        out.extend_from_slice(part);
    }
}

fn tell_at_length(verdict: &Verdict<'_>, manner: Manner<'_>, mut header: impl FnMut(HeaderName, HeaderValue)) {
    let Manner { profiles, jitter } = manner;
    let has = |profile| profiles.contains(&profile);
    let Some(binding) = verdict.binding().filter(|_| !has(HeaderProfile::Nothing)) else { return };
    let wait = retry_after(verdict, jitter);
    if let Some(seconds) = wait {
        header(RETRY_AFTER, number(seconds));
    }
    if verdict.is_degraded() {
        header(DEGRADED, HeaderValue::from_static("true"));
    }
    if has(HeaderProfile::Ietf) {
        let (policies, limits) = fields(verdict, binding);
        header(POLICY, value_of(policies.into()));
        header(RATELIMIT, value_of(limits.into()));
    }
    if has(HeaderProfile::X) || has(HeaderProfile::Seed) {
        header(X_LIMIT, number(binding.outcome.limit));
        header(X_REMAINING, number(binding.outcome.remaining));
    }
    if has(HeaderProfile::X) {
        header(X_RESET, number(binding.outcome.reset_after.as_secs_ceil()));
    }
    if let Some(seconds) = wait.filter(|_| has(HeaderProfile::Seed)) {
        header(X_RETRY_AFTER, number(seconds));
    }
    if has(HeaderProfile::Kong) {
        tell_as_kong(verdict, binding, header);
    }
}

/// As Kong's plugin does: what binds, and each limit that is over a time span with a name.
fn tell_as_kong(verdict: &Verdict<'_>, binding: &Toll, mut header: impl FnMut(HeaderName, HeaderValue)) {
    let reset = if binding.outcome.denied() { binding.outcome.retry_after } else { Some(binding.outcome.reset_after) };
    header(KONG_LIMIT, number(binding.outcome.limit));
    header(KONG_REMAINING, number(binding.outcome.remaining));
    if let Some(reset) = reset {
        header(KONG_RESET, number(whole_seconds(reset)));
    }
    for (at, toll) in verdict.tolls.iter().enumerate().filter(|(_, toll)| !toll.shadow) {
        let (_, window) = Policy::of(verdict, at, toll).quota.in_seconds();
        let names = KONG_SPANS.iter().find(|(seconds, ..)| window == Some(*seconds));
        if let Some((_, limit, remaining)) = names {
            header(HeaderName::from_static(limit), number(toll.outcome.limit));
            header(HeaderName::from_static(remaining), number(toll.outcome.remaining));
        }
    }
}

fn number(number: u64) -> HeaderValue {
    value(|out| digits(out, number))
}

/// What `Retry-After` promises: nothing when the request is allowed, or when no wait helps. By chance up to `jitter`
/// more than is needed.
pub(super) fn retry_after(verdict: &Verdict<'_>, jitter: Micros) -> Option<u64> {
    let wait = verdict.retry_after().filter(|_| verdict.denied())?;
    Some(whole_seconds(Micros::from_micros(wait.as_micros().saturating_add(part_of(jitter)))))
}

/// Somewhere from nothing to all of it, in microseconds.
fn part_of(jitter: Micros) -> u64 {
    if jitter.is_zero() {
        return 0;
    }
    let mut random = [0; 4];
    // Without randomness all come back at once, as they would without jitter.
    let _ = getrandom::fill(&mut random);
    let share = u128::from(u32::from_le_bytes(random));
    u64::try_from(u128::from(jitter.as_micros()) * share / u128::from(u32::MAX)).unwrap_or(u64::MAX)
}

/// As a client is told to wait: rounded up, and at least one.
pub(crate) fn whole_seconds(wait: Micros) -> u64 {
    wait.as_secs_ceil().max(1)
}

/// The values of `RateLimit-Policy` and `RateLimit`.
fn fields(verdict: &Verdict<'_>, binding: &Toll) -> (Vec<u8>, Vec<u8>) {
    let (mut policies, mut limits) = (Vec::with_capacity(96), Vec::with_capacity(96));
    let only_binding = verdict.tolls.len() > MOST_POLICIES;
    for (at, toll) in verdict.tolls.iter().enumerate() {
        let is_left_out =
            if only_binding { !std::ptr::eq(toll, binding) } else { is_told_by_another(verdict, at, toll) };
        if toll.shadow || is_left_out {
            continue;
        }
        let policy = Policy::of(verdict, at, toll);
        policy_item(&mut policies, &policy);
        item(&mut limits, &policy.name());
        parameter(&mut limits, b";r=", toll.outcome.remaining);
        if let Some(seconds) = effective_window(toll) {
            parameter(&mut limits, b";t=", seconds);
        }
    }
    (policies, limits)
}

/// An item of `RateLimit-Policy`.
pub(super) fn policy_item(field: &mut Vec<u8>, policy: &Policy<'_>) {
    let (quota, window) = policy.quota.in_seconds();
    item(field, &policy.name());
    parameter(field, b";q=", quota);
    match policy.unit {
        _ if policy.quota.is_concurrent => field.extend_from_slice(b";qu=\"concurrent-requests\""),
        "requests" => {}
        "bytes" => field.extend_from_slice(b";qu=\"content-bytes\""),
        other => {
            field.extend_from_slice(b";qu=");
            string(field, other);
        }
    }
    if let Some(window) = window {
        parameter(field, b";w=", window);
    }
}

/// For how long no more than what remains can be used: at most what `Retry-After` says where the toll denies.
pub(super) fn effective_window(toll: &Toll) -> Option<u64> {
    if toll.outcome.denied() {
        return toll.outcome.retry_after.map(whole_seconds);
    }
    Some(toll.outcome.reset_after.as_secs_ceil()).filter(|seconds| *seconds > 0)
}

/// Whether the same limit was asked about something else as well, which has less left (or as little, and came first).
fn is_told_by_another(verdict: &Verdict<'_>, at: usize, toll: &Toll) -> bool {
    let Some(rule) = toll.rule else { return false };
    verdict.tolls.iter().enumerate().any(|(other_at, other)| {
        let rank = |at: usize, toll: &Toll| (toll.outcome.allowed, toll.outcome.remaining, at);
        other_at != at
            && (other.rule, other.limit, other.shadow) == (Some(rule), toll.limit, false)
            && rank(other_at, other) < rank(at, toll)
    })
}

/// The name that an item begins with.
pub(super) fn item(field: &mut Vec<u8>, name: &str) {
    if !field.is_empty() {
        field.push(b',');
    }
    string(field, name);
}

fn parameter(field: &mut Vec<u8>, name: &[u8], value: u64) {
    field.extend_from_slice(name);
    field.extend_from_slice(itoa::Buffer::new().format(value.min(MOST)).as_bytes());
}

/// A string of structured fields. They are ASCII: what is not is written as in addresses.
fn string(field: &mut Vec<u8>, text: &str) {
    field.push(b'"');
    // As nearly all are. To look at all of it, many bytes at once, is quicker than to stop at the first.
    if text.bytes().fold(true, |plain, byte| plain & (b' '..=b'~').contains(&byte) & (byte != b'"') & (byte != b'\\')) {
        field.extend_from_slice(text.as_bytes());
        field.push(b'"');
        return;
    }
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => field.extend_from_slice(&[b'\\', byte]),
            b' '..=b'~' => field.push(byte),
            other => {
                let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or('0').to_ascii_uppercase();
                field.extend_from_slice(&[b'%', digit(other >> 4) as u8, digit(other & 15) as u8]);
            }
        }
    }
    field.push(b'"');
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::future::Future;
    use std::task::{Context, Poll, Waker};

    use tollgate::rules::{LyftUnit, Override};
    use tollgate::{Check, Descriptor, Engine, ManualClock, MemoryStore, RuleSet, Timestamp, Tollgate};

    use super::*;

    type Gate = Tollgate<MemoryStore, ManualClock>;

    fn gate(rules: &str) -> (Gate, ManualClock) {
        let clock = ManualClock::at(Timestamp::from_secs(1_000_000_040));
        let rules = RuleSet::from_yaml(rules).unwrap_or_else(|wrong| panic!("{}", wrong.render(false)));
        (Tollgate::with_engine(rules, Engine::with_clock(MemoryStore::new(), clock.clone())), clock)
    }

    fn now<T>(future: impl Future<Output = T>) -> T {
        match std::pin::pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => value,
            Poll::Pending => panic!("it waits"),
        }
    }

    fn exact(profiles: &[HeaderProfile]) -> Manner<'_> {
        Manner { profiles, jitter: Micros::ZERO }
    }

    fn told(verdict: &Verdict<'_>, profiles: &[HeaderProfile]) -> Vec<String> {
        let mut lines = Vec::new();
        tell(verdict, exact(profiles), |name, value| lines.push(format!("{name}: {}", value.to_str().unwrap())));
        lines
    }

    const USER: Check<'static> = Check::attributes("d", &[("user", "7")]);

    #[test]
    fn each_profile_has_its_headers_when_allowed_and_when_denied() {
        let (gate, _) =
            gate("{domain: d, rules: [{name: posts, per: user, limits: [{rate: 2/min, algorithm: fixed_window}]}]}");
        let first = now(gate.check(&USER)).unwrap();
        assert_eq!(
            told(&first, &[HeaderProfile::Ietf]),
            ["ratelimit-policy: \"posts\";q=2;w=60", "ratelimit: \"posts\";r=1;t=40"]
        );
        assert_eq!(
            told(&first, &[HeaderProfile::X]),
            ["x-ratelimit-limit: 2", "x-ratelimit-remaining: 1", "x-ratelimit-reset: 40"]
        );
        assert_eq!(told(&first, &[HeaderProfile::Seed]), ["x-ratelimit-limit: 2", "x-ratelimit-remaining: 1"]);
        assert!(told(&first, &[HeaderProfile::None]).is_empty());
        now(gate.check(&USER)).unwrap();
        let denied = now(gate.check(&USER)).unwrap();
        assert_eq!(
            told(&denied, &[HeaderProfile::Ietf, HeaderProfile::X, HeaderProfile::Seed]),
            [
                "retry-after: 40",
                "ratelimit-policy: \"posts\";q=2;w=60",
                "ratelimit: \"posts\";r=0;t=40",
                "x-ratelimit-limit: 2",
                "x-ratelimit-remaining: 0",
                "x-ratelimit-reset: 40",
                "x-ratelimit-retry-after: 40",
            ]
        );
        assert_eq!(told(&denied, &[HeaderProfile::None]), ["retry-after: 40"]);
        assert!(told(&denied, &[HeaderProfile::Nothing, HeaderProfile::Kong]).is_empty());
    }

    #[test]
    fn a_wait_is_rounded_up_and_at_least_a_second_and_absent_when_it_cannot_help() {
        let (gate, clock) =
            gate("{domain: d, rules: [{name: a, per: user, limits: [{rate: 10/s, algorithm: token_bucket}]}]}");
        now(gate.check(&USER.cost(10))).unwrap();
        let denied = now(gate.check(&USER)).unwrap();
        let wait = denied.retry_after().unwrap();
        assert!(wait < Micros::SECOND);
        assert_eq!(told(&denied, &[HeaderProfile::None]), ["retry-after: 1"]);
        // Waiting as long as the header says is enough.
        clock.advance(Micros::SECOND);
        assert!(now(gate.check(&USER)).unwrap().allowed);
        let never = now(gate.check(&USER.cost(11))).unwrap();
        let lines = told(&never, &[HeaderProfile::Ietf, HeaderProfile::Seed]);
        assert!(!lines.iter().any(|line| line.contains("retry-after") || line.contains(";t=")), "{lines:?}");
    }

    #[test]
    fn jitter_makes_waits_longer_and_different_and_nothing_else() {
        let (gate, _) =
            gate("{domain: d, rules: [{name: a, per: user, limits: [{rate: 1/min, algorithm: fixed_window}]}]}");
        now(gate.check(&USER)).unwrap();
        let denied = now(gate.check(&USER)).unwrap();
        let (profiles, jitter) = ([HeaderProfile::Ietf, HeaderProfile::X, HeaderProfile::Seed], Micros::from_secs(30));
        let without = told(&denied, &profiles);
        let mut waits = BTreeSet::new();
        for _ in 0..200 {
            let mut lines = Vec::new();
            let manner = Manner { profiles: &profiles, jitter };
            tell(&denied, manner, |name, value| lines.push(format!("{name}: {}", value.to_str().unwrap())));
            let (later, same): (Vec<_>, Vec<_>) = lines.into_iter().partition(|line| line.contains("retry-after"));
            let [first, second] = &*later else { panic!("{later:?}") };
            assert_eq!(*second, format!("x-ratelimit-{first}"), "both say the same");
            waits.insert(first.rsplit(' ').next().unwrap().parse::<u64>().unwrap());
            assert!(same.iter().all(|line| without.contains(line)), "{same:?}");
        }
        assert!(waits.iter().all(|wait| (40..=70).contains(wait)) && waits.len() > 15, "{waits:?}");
    }

    #[test]
    fn all_policies_are_told_and_shadows_are_not() {
        let (gate, _) = gate(
            "{domain: d, rules: [
                {name: 'a \"b\" \\ é', per: user, limits: [{rate: 5/100ms, algorithm: fixed_window}, {rate: 100/h, algorithm: fixed_window}]},
                {name: slots, per: team, limits: [{concurrency: 2, lease: 30s}]},
                {name: size, per: model, limits: [1000 bytes/min, 50 tokens/min]},
                {name: tried, mode: shadow, per: visitor, limits: 1/min},
            ]}",
        );
        let attributes = [("user", "7"), ("team", "7"), ("model", "7"), ("visitor", "7")];
        let check = Check::attributes("d", &attributes).costs(&[("bytes", 10), ("tokens", 1)]);
        let verdict = now(gate.check(&check)).unwrap();
        let [policies, limits] = &*told(&verdict, &[HeaderProfile::Ietf]) else { panic!("two headers") };
        assert_eq!(
            policies,
            r#"ratelimit-policy: "a \"b\" \\ %C3%A9:5/100ms";q=50;w=1,"a \"b\" \\ %C3%A9:100/h";q=100;w=3600,"slots";q=2;qu="concurrent-requests","size:1000 bytes/min";q=1000;qu="content-bytes";w=60,"size:50 tokens/min";q=50;qu="tokens";w=60"#
        );
        assert!(limits.contains(r#""slots";r=1;t=30"#) && !limits.contains("tried"), "{limits}");
    }

    #[test]
    fn a_limit_that_is_asked_twice_is_told_once_and_numbers_have_fifteen_digits_at_most() {
        let (gate, _) = gate("{domain: d, descriptors: [{key: user, rate_limit: {unit: hour, requests_per_unit: 3}}]}");
        let own = Override { requests_per_unit: 9, unit: LyftUnit::Day };
        let descriptors = [
            Descriptor::new(&[("user", "1")]),
            Descriptor::new(&[("user", "2")]).cost(2),
            Descriptor::new(&[("user", "3")]).limit(own),
        ];
        let verdict = now(gate.check(&Check::descriptors("d", &descriptors))).unwrap();
        let lines = told(&verdict, &[HeaderProfile::Ietf]);
        assert_eq!(lines[0], "ratelimit-policy: \"d.user\";q=3;w=3600,\"descriptor-3\";q=9;w=86400");
        assert!(lines[1].starts_with("ratelimit: \"d.user\";r=1;t="), "{lines:?}");
        let mut field = Vec::new();
        parameter(&mut field, b";q=", u64::MAX);
        assert_eq!(field, b";q=999999999999999");
    }

    #[test]
    fn what_is_said_most_often_is_said_in_the_same_words() {
        let long = "n".repeat(5_000);
        let rules = format!(
            "{{domain: d, rules: [
                {{name: 'a \"b\" é', per: user, limits: [{{rate: 1000000/min, algorithm: fixed_window}}]}},
                {{name: b, per: team, limits: 7/s}},
                {{name: c, per: ip, limits: 3 bytes/h}},
                {{name: d, per: model, limits: [{{rate: 5/s, algorithm: leaky_bucket, queue: 9}}]}},
                {{name: e, per: visitor, limits: [{{concurrency: 2, lease: 30s}}]}},
                {{name: {long}, per: tenant, limits: 9/s}},
                {{name: g, mode: shadow, per: guest, limits: 9/s}},
                {{name: h, per: host, limits: [5/s, 9/min]}},
            ]}}"
        );
        let ((gate, clock), (other, _)) = (gate(&rules), gate(&rules.replace("7/s", "8/s")));
        let families = [HeaderProfile::Ietf, HeaderProfile::X, HeaderProfile::Seed, HeaderProfile::Kong];
        let mut usual = 0;
        for round in 0..12 {
            for key in ["user", "team", "ip", "model", "visitor", "tenant", "guest", "host", "nobody"] {
                let attributes = [(key, "7")];
                let check = Check::attributes("d", &attributes).costs(&[("bytes", 1)]);
                for verdict in [now(gate.check(&check)).unwrap(), now(other.check(&check)).unwrap()] {
                    for set in 0..1 << families.len() {
                        let in_set = |at: &usize| set >> at & 1 == 1;
                        let profiles: Vec<_> = (0..families.len()).filter(in_set).map(|at| families[at]).collect();
                        let mut at_length = Vec::new();
                        let mut line = |name: HeaderName, value: HeaderValue| {
                            at_length.push(format!("{name}: {}", value.to_str().unwrap()));
                        };
                        tell_at_length(&verdict, exact(&profiles), &mut line);
                        assert_eq!(told(&verdict, &profiles), at_length, "{key} {profiles:?}");
                        let mut later = Vec::new();
                        let notice = Notice::of(&verdict, exact(&profiles));
                        usual += usize::from(matches!(notice, Notice::Usual(_)));
                        let mut lines = Vec::new();
                        notice.write(&mut lines);
                        let expected: String = at_length.iter().map(|line| format!("{line}\r\n")).collect();
                        assert_eq!(String::from_utf8(lines).unwrap(), expected, "{key} {profiles:?}");
                        notice.tell(|name, value| later.push(format!("{name}: {}", value.to_str().unwrap())));
                        assert_eq!(later, at_length, "{key} {profiles:?}");
                    }
                }
            }
            clock.advance(Micros::from_micros(10_000 * round));
        }
        assert!(usual > 500, "{usual}");
    }

    #[test]
    fn what_no_rule_applies_to_has_no_headers() {
        let (gate, _) = gate("{domain: d, rules: [{name: a, per: user, limits: 1/s}]}");
        let verdict = now(gate.check(&Check::attributes("d", &[("other", "7")]))).unwrap();
        assert!(told(&verdict, &[HeaderProfile::Ietf, HeaderProfile::X]).is_empty());
    }
}
