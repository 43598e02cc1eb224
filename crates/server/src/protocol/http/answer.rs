//! Verdicts and refusals as responses: JSON, problems (RFC 9457) and plain text.
//!
//! A denial is a problem of the type that the IETF's draft gives it, with the same fields as any other answer, so that one reader
//! serves both.

use std::fmt::Write as _;

use bytes::Bytes;
use http::header::{ACCEPT, ALLOW, CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body_util::Full;
use serde::Serialize;
use serde::ser::{SerializeSeq, Serializer};
use tollgate::{StatusKind, Toll, Verdict};

use super::headers;
use super::policy::Policy;
use super::value::Seconds;
use crate::serve::{HeaderProfile, SeveralDomains};

pub(super) type Answer = Response<Full<Bytes>>;

const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";
const QUOTA_EXCEEDED_TITLE: &str = "Request cannot be satisfied as assigned quota has been exceeded";

/// The form of what is not an ordinary answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Problem,
    Json,
    Text,
}

impl Form {
    /// What the client likes best of what there is; the problem if it does not say.
    pub(super) fn wanted(headers: &HeaderMap) -> Self {
        let Some(accept) = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()) else { return Self::Problem };
        if accept == "*/*" {
            return Self::Problem;
        }
        let mut best = (0.0, Self::Problem);
        for range in accept.split(',') {
            let mut parts = range.split(';').map(str::trim);
            let form = match parts.next().map(str::to_ascii_lowercase).as_deref() {
                Some("application/problem+json" | "application/*" | "*/*") => Self::Problem,
                Some("application/json") => Self::Json,
                Some("text/plain" | "text/*") => Self::Text,
                _ => continue,
            };
            let quality = parts.find_map(|part| part.strip_prefix("q=")).and_then(|q| q.parse::<f32>().ok());
            let quality = quality.unwrap_or(1.0);
            if quality > best.0 {
                best = (quality, form);
            }
        }
        best.1
    }

    const fn content_type(self) -> HeaderValue {
        match self {
            Self::Problem => HeaderValue::from_static("application/problem+json"),
            Self::Json => HeaderValue::from_static("application/json"),
            Self::Text => HeaderValue::from_static("text/plain; charset=utf-8"),
        }
    }
}

/// What an answer has beside its verdict.
#[derive(Debug, Default, Serialize)]
pub(super) struct Extras {
    /// Null when there is nothing to settle; absent where nothing was to be reserved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reservation: Option<Option<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) hold: Option<Seconds>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) lease: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) expires_after: Option<Seconds>,
}

/// An answer as JSON.
#[derive(Serialize)]
pub(super) struct Told<'v> {
    allowed: bool,
    rule: Option<&'v str>,
    limit: Option<u64>,
    remaining: Option<u64>,
    reset_after: Seconds,
    retry_after: Option<Seconds>,
    delay: Seconds,
    at: Seconds,
    limits: Tolls<'v>,
    #[serde(skip_serializing_if = "Option::is_none")]
    descriptors: Option<Descriptors<'v>>,
    #[serde(flatten)]
    extras: Extras,
}

impl<'v> Told<'v> {
    pub(super) fn new(verdict: &'v Verdict<'_>, extras: Extras) -> Self {
        let binding = verdict.binding();
        let outcome = binding.map(|toll| &toll.outcome);
        Self {
            allowed: verdict.allowed,
            rule: binding.and_then(|toll| verdict.rule(toll)).map(|rule| &*rule.name),
            limit: outcome.map(|outcome| outcome.limit),
            remaining: outcome.map(|outcome| outcome.remaining),
            reset_after: outcome.map(|outcome| outcome.reset_after).unwrap_or_default().into(),
            retry_after: verdict.retry_after().map(Seconds::from),
            delay: verdict.delay().into(),
            at: verdict.at.into(),
            limits: Tolls(verdict),
            descriptors: (!verdict.descriptors.is_empty()).then_some(Descriptors(verdict)),
            extras,
        }
    }
}

struct Tolls<'v>(&'v Verdict<'v>);

#[derive(Serialize)]
struct TollTold<'v> {
    policy: &'v str,
    rule: Option<&'v str>,
    allows: &'v str,
    unit: &'v str,
    cost: u64,
    allowed: bool,
    shadow: bool,
    limit: u64,
    remaining: u64,
    reset_after: Seconds,
    retry_after: Option<Seconds>,
    delay: Seconds,
    overage: bool,
}

impl Serialize for Tolls<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let verdict = self.0;
        let mut list = serializer.serialize_seq(Some(verdict.tolls.len()))?;
        for (at, toll) in verdict.tolls.iter().enumerate() {
            let policy = Policy::of(verdict, at, toll);
            let outcome = &toll.outcome;
            list.serialize_element(&TollTold {
                policy: &policy.name(),
                rule: policy.rule.map(|rule| &*rule.name),
                allows: &policy.allows.text(),
                unit: policy.unit,
                cost: toll.cost,
                allowed: outcome.allowed,
                shadow: toll.shadow,
                limit: outcome.limit,
                remaining: outcome.remaining,
                reset_after: outcome.reset_after.into(),
                retry_after: outcome.retry_after.map(Seconds::from),
                delay: outcome.delay.into(),
                overage: outcome.overage,
            })?;
        }
        list.end()
    }
}

struct Descriptors<'v>(&'v Verdict<'v>);

#[derive(Serialize)]
struct DescriptorTold {
    over_limit: bool,
    status: &'static str,
    /// Which of `limits` are its own: the first, and the one after the last.
    limits: (u32, u32),
}

impl Serialize for Descriptors<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.descriptors.iter().map(|status| DescriptorTold {
            over_limit: status.over_limit,
            status: match status.kind {
                StatusKind::NoLimit => "no_limit",
                StatusKind::Unlimited => "unlimited",
                StatusKind::Replaced => "replaced",
                StatusKind::Counted => "counted",
                StatusKind::Quota => "quota",
            },
            limits: status.tolls,
        }))
    }
}

/// A problem, with whatever else there is to know.
#[derive(Serialize)]
struct Problem<'p, T: Serialize> {
    #[serde(rename = "type")]
    kind: &'static str,
    title: &'static str,
    status: u16,
    detail: &'p str,
    #[serde(flatten)]
    rest: T,
}

#[derive(Serialize)]
struct Violation<'v> {
    #[serde(rename = "violated-policies")]
    policies: Vec<std::borrow::Cow<'v, str>>,
    #[serde(flatten)]
    told: Told<'v>,
}

/// The answer to a question: 200, or 429 with the reason.
pub(super) fn answer(verdict: &Verdict<'_>, profiles: &[HeaderProfile], form: Form, extras: Extras) -> Answer {
    if verdict.denied() {
        return denial(verdict, StatusCode::TOO_MANY_REQUESTS, profiles, form, extras);
    }
    let mut response = json(StatusCode::OK, &Told::new(verdict, extras));
    tell_limits(verdict, profiles, &mut response);
    response
}

/// A denial, under whatever status the asker needs.
pub(super) fn denial(
    verdict: &Verdict<'_>,
    status: StatusCode,
    profiles: &[HeaderProfile],
    form: Form,
    extras: Extras,
) -> Answer {
    let detail = reason(verdict);
    let mut response = match form {
        Form::Text => with_type(status, format!("{detail}\n").into_bytes(), form.content_type()),
        Form::Problem | Form::Json => {
            let denies = |toll: &Toll| toll.outcome.denied() && !toll.shadow;
            let denying = verdict.tolls.iter().enumerate().filter(|(_, toll)| denies(toll));
            let mut policies: Vec<_> = denying.map(|(at, toll)| Policy::of(verdict, at, toll).name()).collect();
            policies.dedup();
            let problem = Problem {
                kind: QUOTA_EXCEEDED,
                title: QUOTA_EXCEEDED_TITLE,
                status: status.as_u16(),
                detail: &detail,
                rest: Violation { policies, told: Told::new(verdict, extras) },
            };
            with_type(status, to_vec(&problem), form.content_type())
        }
    };
    tell_limits(verdict, profiles, &mut response);
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Adds the headers about limits.
pub(super) fn tell_limits(verdict: &Verdict<'_>, profiles: &[HeaderProfile], response: &mut Answer) {
    let headers = response.headers_mut();
    headers::tell(verdict, profiles, |name, value| {
        headers.append(name, value);
    });
}

/// Why a request was denied, and what helps.
fn reason(verdict: &Verdict<'_>) -> String {
    let binding = verdict.binding();
    let at = verdict.tolls.iter().position(|toll| binding.is_some_and(|binding| std::ptr::eq(binding, toll)));
    let Some((toll, at)) = binding.zip(at) else { return "this is over a limit".to_owned() };
    let policy = Policy::of(verdict, at, toll);
    let mut text = match policy.rule {
        Some(rule) => format!("rule {} allows {}", rule.name, policy.allows.text()),
        None => format!("the limit that came with the request allows {}", policy.allows.text()),
    };
    // Writing to a string cannot fail.
    let _ = match headers::retry_after(verdict) {
        Some(seconds) => write!(text, "; wait {seconds} s"),
        None => write!(
            text,
            "; a cost of {} never fits, since {} are the most at once: waiting does not help",
            toll.cost, toll.outcome.limit
        ),
    };
    text
}

/// What cannot be answered: a status, and what to do about it.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    pub(super) detail: String,
    /// The methods that would be right.
    pub(super) allow: Option<&'static str>,
}

impl From<SeveralDomains> for Refusal {
    fn from(domains: SeveralDomains) -> Self {
        Self::bad(domains.to_string())
    }
}

impl Refusal {
    pub(super) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self { status, detail: detail.into(), allow: None }
    }

    pub(super) fn bad(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    pub(super) fn into_answer(self, form: Form) -> Answer {
        let mut response = match form {
            Form::Text => with_type(self.status, format!("{}\n", self.detail).into_bytes(), form.content_type()),
            Form::Problem | Form::Json => {
                let problem = Problem {
                    kind: "about:blank",
                    title: self.status.canonical_reason().unwrap_or("Error"),
                    status: self.status.as_u16(),
                    detail: &self.detail,
                    rest: (),
                };
                with_type(self.status, to_vec(&problem), form.content_type())
            }
        };
        if let Some(allow) = self.allow {
            response.headers_mut().insert(ALLOW, HeaderValue::from_static(allow));
        }
        response
    }
}

impl From<crate::gate::Unavailable> for Refusal {
    fn from(error: crate::gate::Unavailable) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string())
    }
}

/// What is wrong with a body, and where.
impl From<serde_json::Error> for Refusal {
    fn from(error: serde_json::Error) -> Self {
        let (line, column) = (error.line(), error.column());
        let text = error.to_string();
        let place = format!(" at line {line} column {column}");
        let what = text.strip_suffix(&*place).unwrap_or(&text);
        let help = match error.classify() {
            serde_json::error::Category::Eof => ": the JSON ends too early",
            serde_json::error::Category::Syntax => ": this is no JSON",
            _ => "",
        };
        Self::bad(format!("line {line}, column {column}: {what}{help}"))
    }
}

pub(super) fn json(status: StatusCode, body: &impl Serialize) -> Answer {
    with_type(status, to_vec(body), HeaderValue::from_static("application/json"))
}

pub(super) fn text(status: StatusCode, body: impl Into<Bytes>) -> Answer {
    with_type(status, body, HeaderValue::from_static("text/plain; charset=utf-8"))
}

fn to_vec(body: &impl Serialize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(512);
    // Only maps with keys that are no strings fail, and there are none.
    let _ = serde_json::to_writer(&mut bytes, body);
    // For people with a terminal.
    bytes.push(b'\n');
    bytes
}

pub(super) fn with_type(status: StatusCode, body: impl Into<Bytes>, kind: HeaderValue) -> Answer {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().reserve(8);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_is_what_the_client_likes_best() {
        for (accept, form) in [
            ("*/*", Form::Problem),
            ("text/plain", Form::Text),
            ("application/json", Form::Json),
            ("application/problem+json, text/plain", Form::Problem),
            ("text/plain;q=0.5, application/json", Form::Json),
            ("text/plain, */*;q=0.1", Form::Text),
            ("TEXT/Plain", Form::Text),
            ("image/png", Form::Problem),
            ("text/plain;q=x", Form::Text),
            ("text/plain;q=0", Form::Problem),
            (";;,,;q=", Form::Problem),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, HeaderValue::from_static(accept));
            assert_eq!(Form::wanted(&headers), form, "{accept}");
        }
        assert_eq!(Form::wanted(&HeaderMap::new()), Form::Problem);
    }
}
