//! Verdicts as JSON, written straight into the bytes of an answer: a serializer takes a tenth of the time of a whole
//! request to look for what is to be escaped in names of fields, and to find the shortest form of times that are whole
//! microseconds.

use tollgate::rules::OnLimit;
use tollgate::{Micros, StatusKind, Verdict};

use super::policy::Policy;

/// What an answer has beside its verdict.
#[derive(Debug, Default)]
pub(super) struct Extras {
    /// Null when there is nothing to settle; absent where nothing was to be reserved.
    pub(super) reservation: Option<Option<String>>,
    pub(super) hold: Option<Micros>,
    pub(super) lease: Option<u64>,
    pub(super) expires_after: Option<Micros>,
}

/// An object: the verdict, and what is beside it.
pub(super) fn object(out: &mut Vec<u8>, verdict: &Verdict<'_>, extras: &Extras) {
    out.push(b'{');
    fields(out, verdict, extras);
    out.push(b'}');
}

/// The same without braces, for an object that has more.
pub(super) fn fields(out: &mut Vec<u8>, verdict: &Verdict<'_>, extras: &Extras) {
    let binding = verdict.binding();
    let outcome = binding.map(|toll| &toll.outcome);
    raw(out, r#""allowed":"#);
    boolean(out, verdict.allowed);
    raw(out, r#","rule":"#);
    optional(out, binding.and_then(|toll| verdict.rule(toll)).map(|rule| &*rule.name), text);
    raw(out, r#","limit":"#);
    optional(out, outcome.map(|outcome| outcome.limit), number);
    raw(out, r#","remaining":"#);
    optional(out, outcome.map(|outcome| outcome.remaining), number);
    raw(out, r#","reset_after":"#);
    seconds(out, outcome.map(|outcome| outcome.reset_after).unwrap_or_default());
    raw(out, r#","retry_after":"#);
    optional(out, verdict.retry_after(), seconds);
    raw(out, r#","delay":"#);
    seconds(out, verdict.delay());
    if !verdict.allowed {
        on_limit(out, verdict.on_limit());
    }
    raw(out, r#","at":"#);
    seconds(out, Micros::from_micros(verdict.at.as_micros()));
    limits(out, verdict);
    if !verdict.descriptors.is_empty() {
        descriptors(out, verdict);
    }
    if verdict.is_degraded() {
        raw(out, r#","degraded":true"#);
    }
    beside(out, extras);
}

/// What the rule wants to become of a request that is denied, which is for whoever asked to do.
fn on_limit(out: &mut Vec<u8>, on_limit: OnLimit) {
    let (what, time) = match on_limit {
        OnLimit::Reject => return,
        OnLimit::Enqueue => return raw(out, r#","on_limit":"enqueue""#),
        OnLimit::Delay(longest) => (r#","on_limit":{"delay":"#, longest),
        OnLimit::DelayNewestFirst { longest, .. } => (r#","on_limit":{"order":"newest_first","delay":"#, longest),
        OnLimit::RejectSlowly(time) => (r#","on_limit":{"reject_slowly":"#, time),
    };
    raw(out, what);
    seconds(out, time);
    out.push(b'}');
}

fn limits(out: &mut Vec<u8>, verdict: &Verdict<'_>) {
    raw(out, r#","limits":["#);
    for (at, toll) in verdict.tolls.iter().enumerate() {
        let policy = Policy::of(verdict, at, toll);
        let outcome = &toll.outcome;
        raw(out, if at == 0 { r#"{"policy":"# } else { r#",{"policy":"# });
        text(out, &policy.name());
        raw(out, r#","rule":"#);
        optional(out, policy.rule.map(|rule| &*rule.name), text);
        raw(out, r#","allows":"#);
        text(out, &policy.allows.text());
        raw(out, r#","unit":"#);
        text(out, policy.unit);
        raw(out, r#","cost":"#);
        number(out, toll.cost);
        raw(out, r#","allowed":"#);
        boolean(out, outcome.allowed);
        raw(out, r#","shadow":"#);
        boolean(out, toll.shadow);
        raw(out, r#","limit":"#);
        number(out, outcome.limit);
        raw(out, r#","remaining":"#);
        number(out, outcome.remaining);
        raw(out, r#","reset_after":"#);
        seconds(out, outcome.reset_after);
        raw(out, r#","retry_after":"#);
        optional(out, outcome.retry_after, seconds);
        raw(out, r#","delay":"#);
        seconds(out, outcome.delay);
        raw(out, r#","overage":"#);
        boolean(out, outcome.overage);
        out.push(b'}');
    }
    out.push(b']');
}

fn descriptors(out: &mut Vec<u8>, verdict: &Verdict<'_>) {
    raw(out, r#","descriptors":["#);
    for (at, status) in verdict.descriptors.iter().enumerate() {
        raw(out, if at == 0 { r#"{"over_limit":"# } else { r#",{"over_limit":"# });
        boolean(out, status.over_limit);
        raw(out, r#","status":"#);
        raw(
            out,
            match status.kind {
                StatusKind::NoLimit => r#""no_limit""#,
                StatusKind::Unlimited => r#""unlimited""#,
                StatusKind::Replaced => r#""replaced""#,
                StatusKind::Counted => r#""counted""#,
                StatusKind::Quota => r#""quota""#,
            },
        );
        // Which of `limits` are its own: the first, and the one after the last.
        raw(out, r#","limits":["#);
        number(out, status.tolls.0.into());
        out.push(b',');
        number(out, status.tolls.1.into());
        raw(out, "]}");
    }
    out.push(b']');
}

fn beside(out: &mut Vec<u8>, extras: &Extras) {
    let Extras { reservation, hold, lease, expires_after } = extras;
    if let Some(reservation) = reservation {
        raw(out, r#","reservation":"#);
        optional(out, reservation.as_deref(), text);
    }
    if let Some(hold) = hold {
        raw(out, r#","hold":"#);
        seconds(out, *hold);
    }
    if let Some(lease) = lease {
        // A string, since many JSON libraries cannot hold the number.
        raw(out, r#","lease":""#);
        number(out, *lease);
        out.push(b'"');
    }
    if let Some(expires_after) = expires_after {
        raw(out, r#","expires_after":"#);
        seconds(out, *expires_after);
    }
}

#[inline]
pub(super) fn raw(out: &mut Vec<u8>, json: &str) {
    out.extend_from_slice(json.as_bytes());
}

#[inline]
fn boolean(out: &mut Vec<u8>, value: bool) {
    raw(out, if value { "true" } else { "false" });
}

#[inline]
pub(super) fn number(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

#[inline]
fn optional<T>(out: &mut Vec<u8>, value: Option<T>, write: impl FnOnce(&mut Vec<u8>, T)) {
    match value {
        Some(value) => write(out, value),
        None => raw(out, "null"),
    }
}

pub(super) fn text(out: &mut Vec<u8>, text: &str) {
    // All are looked at, many at once: to stop at the first would take longer.
    if text.bytes().fold(false, |odd, byte| odd | (byte < b' ') | (byte == b'"') | (byte == b'\\')) {
        // Strings cannot fail.
        let _ = serde_json::to_writer(out, text);
        return;
    }
    out.push(b'"');
    raw(out, text);
    out.push(b'"');
}

/// Seconds, with as many digits as the microseconds need.
pub(super) fn seconds(out: &mut Vec<u8>, time: Micros) {
    let micros = time.as_micros();
    number(out, micros / 1_000_000);
    let mut rest = micros % 1_000_000;
    if rest == 0 {
        return;
    }
    let mut digits = *b".000000";
    for digit in digits.iter_mut().skip(1).rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    let length = digits.iter().rposition(|digit| *digit != b'0').map_or(0, |last| last + 1);
    out.extend(digits.iter().take(length));
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::task::{Context, Poll, Waker};

    use tollgate::{Check, Engine, ManualClock, MemoryStore, RuleSet, Timestamp, Tollgate};

    use super::*;

    fn now<T>(future: impl Future<Output = T>) -> T {
        match std::pin::pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => value,
            Poll::Pending => panic!("it waits"),
        }
    }

    /// Many verdicts, allowed and denied, by rules of all kinds: what a parser reads from each is what the verdict
    /// holds.
    #[test]
    fn what_is_written_is_read_back_as_it_was() {
        let rules = "{domain: d, rules: [
            {name: 'a \"b\" \\ é\t', per: user, limits: [{rate: 5/100ms, algorithm: fixed_window}, {rate: 7/h}]},
            {name: slots, per: team, limits: [{concurrency: 2, lease: 30s}]},
            {name: size, per: model, limits: [1000 bytes/min, 50 tokens/min]},
            {name: queue, per: line, limits: [{rate: 3/s, algorithm: leaky_bucket, queue: 5}]},
            {name: tried, mode: shadow, per: visitor, limits: 1/min},
        ]}";
        let rules = RuleSet::from_yaml(rules).unwrap_or_else(|wrong| panic!("{}", wrong.render(false)));
        let clock = ManualClock::at(Timestamp::from_micros(1_000_000_040_000_001));
        let gate = Tollgate::with_engine(rules, Engine::with_clock(MemoryStore::new(), clock.clone()));
        let all = [("user", "7"), ("team", "7"), ("model", "7"), ("visitor", "7"), ("line", "7"), ("other", "7")];
        let mut denied = 0;
        for round in 0..200 {
            let attributes = all.get(round % all.len()..).unwrap_or_default();
            let check = Check::attributes("d", attributes).costs(&[("bytes", 10), ("tokens", 1)]);
            let verdict = now(gate.check(&check)).unwrap();
            let mut json = Vec::new();
            let hold = Some(Micros::from_micros(1_500_000));
            object(
                &mut json,
                &verdict,
                &Extras { reservation: Some(None), hold, lease: Some(u64::MAX), ..Extras::default() },
            );
            let read: serde_json::Value = serde_json::from_slice(&json).unwrap();
            let time = |time: Micros| serde_json::json!(time.as_micros() as f64 / 1e6);
            let same = |read: &serde_json::Value, time: serde_json::Value| read.as_f64() == time.as_f64();
            assert_eq!(read["allowed"], verdict.allowed);
            assert_eq!(read["remaining"].as_u64(), verdict.binding().map(|toll| toll.outcome.remaining));
            assert_eq!(read["retry_after"].as_f64(), verdict.retry_after().and_then(|wait| time(wait).as_f64()));
            assert!(same(&read["at"], time(Micros::from_micros(verdict.at.as_micros()))), "{read}");
            assert_eq!((&read["lease"], &read["hold"]), (&"18446744073709551615".into(), &1.5.into()));
            assert!(read["reservation"].is_null() && read.get("expires_after").is_none());
            let limits = read["limits"].as_array().unwrap();
            assert_eq!(limits.len(), verdict.tolls.len());
            for (told, toll) in limits.iter().zip(&verdict.tolls) {
                assert_eq!(told["rule"].as_str(), verdict.rule(toll).map(|rule| &*rule.name));
                assert_eq!((&told["limit"], &told["cost"]), (&toll.outcome.limit.into(), &toll.cost.into()));
                assert!(same(&told["reset_after"], time(toll.outcome.reset_after)), "{told}");
                assert!(same(&told["delay"], time(toll.outcome.delay)), "{told}");
            }
            denied += usize::from(verdict.denied());
            clock.advance(Micros::from_micros(1 << (round % 26)));
        }
        assert!((1..200).contains(&denied), "{denied}");
    }

    #[test]
    fn seconds_are_read_back_to_the_microsecond() {
        let few = (0..2_000_000).step_by(7).chain(0..3_000);
        let many = (0..100_000_u64).map(|number| number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (14 + number % 50));
        for micros in few.chain(many).chain([999_999, 1_000_000, 1_000_001, 1_500_000, (1 << 50) - 1]) {
            let mut told = Vec::new();
            seconds(&mut told, Micros::from_micros(micros));
            let told = String::from_utf8(told).unwrap();
            let read: f64 = serde_json::from_str(&told).unwrap();
            assert_eq!((read * 1e6).round() as u64, micros, "{told}");
            assert!(!told.contains('.') || !told.ends_with(['0', '.']), "{told}");
        }
    }
}
