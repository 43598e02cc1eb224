//! `envoy.service.ratelimit.v3.RateLimitResponse`: what a verdict says in Envoy's words, whichever way it is written
//! down.
//!
//! The shapes are those of envoyproxy/ratelimit. Nothing is decided here but how settings of the whole service bend the
//! overall answer, as they do there.

use serde_json::Value;
use smallvec::SmallVec;
use tollgate::rules::{Limits, LyftUnit, Rule};
use tollgate::{Algorithm, CalendarUnit, DescriptorStatus, LeakyForm, Micros, StatusKind, Toll, Verdict, Window};

use super::metadata;
use super::request::Request;
use super::wire::{bytes_length, number_length, put_bytes, put_head, put_number, sized_length};
use crate::serve::EnvoySettings;

/// The answer to a request.
#[derive(Debug)]
pub(crate) struct Answer<'v> {
    pub(crate) allowed: bool,
    pub(crate) statuses: SmallVec<[Status<'v>; 1]>,
    /// Names and values.
    headers: Option<Box<[(&'v str, String); 3]>>,
    pub(crate) metadata: Option<Box<Value>>,
    /// Decided by this server alone.
    is_degraded: bool,
}

/// What became of one descriptor.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Status<'v> {
    pub(crate) over_limit: bool,
    /// Denies only together with all others of this kind.
    is_quota: bool,
    pub(crate) limit: Option<CurrentLimit<'v>>,
    pub(crate) remaining: u32,
    /// Whole seconds.
    pub(crate) until_reset: Option<u64>,
}

/// The limit that was asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CurrentLimit<'v> {
    pub(crate) requests_per_unit: u32,
    /// `None` for limits per another time.
    pub(crate) unit: Option<LyftUnit>,
    pub(crate) name: &'v str,
}

impl<'v> Answer<'v> {
    /// What `verdict` says about `request`. A verdict without descriptors is that of a service that limits nothing.
    #[inline]
    pub(crate) fn new(verdict: &'v Verdict<'_>, request: &Request<'_>, settings: &'v EnvoySettings) -> Self {
        let mut statuses = SmallVec::new();
        for at in 0..request.descriptors.len() {
            statuses
                .push(verdict.descriptors.get(at).map_or_else(Status::default, |status| Status::of(verdict, status)));
        }
        let mut allowed = verdict.allowed;
        if settings.quota_mode {
            let counts =
                |at: usize| verdict.descriptors.get(at).is_none_or(|status| status.kind != StatusKind::Unlimited);
            let mut quotas = statuses.iter().enumerate().filter(|(at, _)| counts(*at)).peekable();
            allowed = quotas.peek().is_none() || quotas.any(|(_, status): (_, &Status<'_>)| !status.over_limit);
        }
        let names = settings.response_headers.as_ref();
        let headers = names.and_then(|names| headers(names, &statuses, settings.quota_mode));
        let metadata = settings.dynamic_metadata.then(|| metadata::of(verdict, request, &statuses));
        let (allowed, metadata) = (allowed || settings.shadow_mode, metadata.map(Box::new));
        Self { allowed, statuses, headers, metadata, is_degraded: verdict.is_degraded() }
    }

    /// Headers to be added to what the client is answered.
    #[inline]
    pub(super) fn headers(&self) -> impl Iterator<Item = (&str, &str)> {
        let asked_for = self.headers.iter().flat_map(|headers| headers.iter());
        let degraded = self.is_degraded.then_some(("x-tollgate-degraded", "true"));
        asked_for.map(|(name, value)| (*name, value.as_str())).chain(degraded)
    }

    /// How many bytes [`Self::encode`] writes, of which the metadata are written already.
    #[inline]
    fn length(&self, metadata: &[u8]) -> usize {
        let statuses: usize = self.statuses.iter().map(|status| sized_length(status.length())).sum();
        let headers: usize = self.headers().map(|(name, value)| sized_length(header_length(name, value))).sum();
        number_length(code(!self.allowed)) + statuses + headers + bytes_length(metadata)
    }

    /// The message of gRPC: whether it is compressed (never), its length, and the answer.
    #[inline]
    pub(crate) fn encode(&self) -> Vec<u8> {
        let metadata = self.metadata.as_deref().map(metadata::encode).unwrap_or_default();
        let length = self.length(&metadata);
        let mut out = Vec::with_capacity(5 + length);
        out.push(0);
        out.extend_from_slice(&(length as u32).to_be_bytes());
        put_number(&mut out, 1, code(!self.allowed));
        for status in &self.statuses {
            put_head(&mut out, 2, status.length());
            status.encode(&mut out);
        }
        for (name, value) in self.headers() {
            put_head(&mut out, 3, header_length(name, value));
            put_bytes(&mut out, 1, name.as_bytes());
            put_bytes(&mut out, 2, value.as_bytes());
        }
        put_bytes(&mut out, 6, &metadata);
        out
    }
}

/// As the enumeration of codes has it.
const fn code(over_limit: bool) -> u64 {
    if over_limit { 2 } else { 1 }
}

fn header_length(name: &str, value: &str) -> usize {
    bytes_length(name.as_bytes()) + bytes_length(value.as_bytes())
}

impl<'v> Status<'v> {
    #[inline]
    fn of(verdict: &'v Verdict<'_>, status: &DescriptorStatus) -> Self {
        if status.kind == StatusKind::Unlimited {
            return Self { remaining: u32::MAX, ..Self::default() };
        }
        let Some(toll) = verdict.binding_of(status) else { return Self::default() };
        let (limit, until_reset) = match (verdict.rule(toll), status.limit) {
            (Some(rule), _) => of_rule(rule, toll),
            (None, Some(limit)) => {
                let current =
                    CurrentLimit { requests_per_unit: limit.requests_per_unit, unit: Some(limit.unit), name: "" };
                (current, until_window_ends(toll, limit.unit))
            }
            (None, None) => return Self::default(),
        };
        let remaining = u32::try_from(toll.outcome.remaining).unwrap_or(u32::MAX);
        let is_quota = status.kind == StatusKind::Quota;
        Self { over_limit: status.over_limit, is_quota, limit: Some(limit), remaining, until_reset: Some(until_reset) }
    }

    #[inline]
    fn length(&self) -> usize {
        let limit = self.limit.map_or(0, |limit| sized_length(limit.length()));
        // A duration of zero is a message without fields.
        let until_reset = self.until_reset.map_or(0, |seconds| sized_length(number_length(seconds)));
        number_length(code(self.over_limit)) + limit + number_length(u64::from(self.remaining)) + until_reset
    }

    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        put_number(out, 1, code(self.over_limit));
        if let Some(limit) = &self.limit {
            put_head(out, 2, limit.length());
            put_number(out, 1, u64::from(limit.requests_per_unit));
            put_number(out, 2, unit_number(limit.unit));
            put_bytes(out, 3, limit.name.as_bytes());
        }
        put_number(out, 3, u64::from(self.remaining));
        if let Some(seconds) = self.until_reset {
            put_head(out, 4, number_length(seconds));
            put_number(out, 1, seconds);
        }
    }
}

impl CurrentLimit<'_> {
    #[inline]
    fn length(&self) -> usize {
        number_length(u64::from(self.requests_per_unit))
            + number_length(unit_number(self.unit))
            + bytes_length(self.name.as_bytes())
    }
}

/// As the enumeration in the answer has it, which is not that of overrides: it has a week, after the year.
const fn unit_number(unit: Option<LyftUnit>) -> u64 {
    match unit {
        None => 0,
        Some(LyftUnit::Second) => 1,
        Some(LyftUnit::Minute) => 2,
        Some(LyftUnit::Hour) => 3,
        Some(LyftUnit::Day) => 4,
        Some(LyftUnit::Month) => 5,
        Some(LyftUnit::Year) => 6,
        Some(LyftUnit::Week) => 7,
    }
}

#[inline]
fn of_rule<'v>(rule: &'v Rule, toll: &Toll) -> (CurrentLimit<'v>, u64) {
    if let Limits::Lyft(limit) = &rule.limits
        && let Some(rate) = &limit.rate
    {
        let name = limit.name.as_deref().unwrap_or_default();
        let current = CurrentLimit { requests_per_unit: rate.requests_per_unit, unit: Some(rate.unit), name };
        return (current, until_window_ends(toll, rate.unit));
    }
    let unit = match &rule.limits {
        Limits::Own(limits) => limits.get(usize::from(toll.limit)).and_then(|own| unit_of(own.limit.algorithm())),
        _ => None,
    };
    let requests_per_unit = u32::try_from(toll.outcome.limit).unwrap_or(u32::MAX);
    (CurrentLimit { requests_per_unit, unit, name: &rule.name }, toll.outcome.reset_after.as_secs_ceil())
}

/// Windows begin at multiples of their length, and seconds are whole: a window ends after 1 to all of its seconds.
#[inline]
fn until_window_ends(toll: &Toll, unit: LyftUnit) -> u64 {
    let length = unit.length().as_micros() / 1_000_000;
    length - toll.outcome.at.as_micros() / 1_000_000 % length
}

/// The unit that a limit is per, if there is one: 10 per 5 minutes has none, nor has a bucket that holds more than one
/// period brings.
fn unit_of(algorithm: &Algorithm) -> Option<LyftUnit> {
    let length = match algorithm {
        Algorithm::TokenBucket(bucket) if bucket.capacity == bucket.rate.units => bucket.rate.period,
        Algorithm::LeakyBucket(bucket) => match bucket.form {
            LeakyForm::Meter { capacity } if capacity == bucket.rate.units => bucket.rate.period,
            _ => return None,
        },
        Algorithm::FixedWindow(fixed) => return unit_of_window(&fixed.window),
        Algorithm::Pacing(pacing) => return unit_of_window(&pacing.window),
        Algorithm::SlidingLog(log) => log.window,
        Algorithm::SlidingCounter(counter) => counter.window,
        Algorithm::TokenBucket(_) | Algorithm::Concurrency(_) => return None,
    };
    unit_of_length(length)
}

fn unit_of_window(window: &Window) -> Option<LyftUnit> {
    match window {
        Window::Clock { length, .. } | Window::FirstEvent { length } => unit_of_length(*length),
        Window::Calendar(calendar) => Some(match calendar.unit() {
            CalendarUnit::Day => LyftUnit::Day,
            CalendarUnit::Week => LyftUnit::Week,
            CalendarUnit::Month => LyftUnit::Month,
            CalendarUnit::Year => LyftUnit::Year,
        }),
    }
}

fn unit_of_length(length: Micros) -> Option<LyftUnit> {
    LyftUnit::ALL.into_iter().find(|unit| unit.length() == length)
}

/// About the descriptor that is nearest to its limit; about the last that is over it and denies by itself, if one does.
fn headers<'v>(
    names: &'v [String; 3],
    statuses: &[Status<'v>],
    quotas_only: bool,
) -> Option<Box<[(&'v str, String); 3]>> {
    let limited = statuses.iter().filter(|status| status.limit.is_some());
    let over = limited.clone().rfind(|status| status.over_limit && !status.is_quota && !quotas_only);
    let status = over.or_else(|| limited.min_by_key(|status| status.remaining))?;
    let limit = status.limit?;
    let values =
        [u64::from(limit.requests_per_unit), u64::from(status.remaining), status.until_reset.unwrap_or_default()];
    let [first, second, third] = names;
    let [limit, remaining, reset] = values.map(|value| value.to_string());
    Some(Box::new([(first, limit), (second, remaining), (third, reset)]))
}
