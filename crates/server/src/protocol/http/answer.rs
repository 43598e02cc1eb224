//! Verdicts and refusals as responses: JSON, problems (RFC 9457) and plain text.
//!
//! A denial is a problem of the type that the IETF's draft gives it, with the same fields as any other answer, so that
//! one reader serves both.

use std::fmt::Write as _;

use bytes::Bytes;
use http::header::{ACCEPT, ALLOW, CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body_util::Full;
use serde::Serialize;
use tollgate::{Micros, Toll, Verdict};

use super::headers;
use super::policy::Policy;
use super::told::{self, Extras};
use crate::serve::{Manner, SeveralDomains};

pub(crate) type Answer = Response<Full<Bytes>>;

const REDUCED_CAPACITY: &str = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity";
const REDUCED_CAPACITY_TITLE: &str = "Request cannot be satisfied due to temporary server capacity constraints";
const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";
const QUOTA_EXCEEDED_TITLE: &str = "Request cannot be satisfied as assigned quota has been exceeded";

/// Room for an ordinary body, in bytes, and for an ordinary answer's headers.
const ROOM: usize = 640;
const HEADERS: usize = 6;

/// The form of what is not an ordinary answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Problem,
    Json,
    Text,
}

impl Form {
    /// What the client likes best of what there is; the problem if it does not say.
    pub(crate) fn wanted(headers: &HeaderMap) -> Self {
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

/// The beginning of a problem, to which fields may be added.
fn problem(kind: &str, title: &str, status: StatusCode, detail: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(1_024);
    for (name, value) in [(r#"{"type":"#, kind), (r#","title":"#, title)] {
        told::raw(&mut bytes, name);
        told::text(&mut bytes, value);
    }
    told::raw(&mut bytes, r#","status":"#);
    told::number(&mut bytes, status.as_u16().into());
    told::raw(&mut bytes, r#","detail":"#);
    told::text(&mut bytes, detail);
    bytes
}

/// The answer to a question: 200, or 429 with the reason.
pub(super) fn answer(verdict: &Verdict<'_>, manner: Manner<'_>, form: Form, extras: &Extras) -> Answer {
    if verdict.denied() {
        return denial(verdict, StatusCode::TOO_MANY_REQUESTS, manner, form, extras);
    }
    verdict_told(verdict, manner, extras)
}

/// A verdict that is no denial, whatever it says.
pub(super) fn verdict_told(verdict: &Verdict<'_>, manner: Manner<'_>, extras: &Extras) -> Answer {
    let mut bytes = Vec::with_capacity(ROOM);
    told::object(&mut bytes, verdict, extras);
    let mut response = with_type(StatusCode::OK, line(bytes), HeaderValue::from_static("application/json"));
    tell_limits(verdict, manner, &mut response);
    response
}

/// A denial, under whatever status the asker needs.
pub(super) fn denial(
    verdict: &Verdict<'_>,
    status: StatusCode,
    manner: Manner<'_>,
    form: Form,
    extras: &Extras,
) -> Answer {
    let detail = reason(verdict);
    let mut response = match form {
        Form::Text => with_type(status, format!("{detail}\n").into_bytes(), form.content_type()),
        Form::Problem | Form::Json => {
            let denies = |toll: &Toll| toll.outcome.denied() && !toll.shadow;
            let denying = verdict.tolls.iter().enumerate().filter(|(_, toll)| denies(toll));
            let mut policies: Vec<_> = denying.map(|(at, toll)| Policy::of(verdict, at, toll).name()).collect();
            policies.dedup();
            let mut bytes = problem(QUOTA_EXCEEDED, QUOTA_EXCEEDED_TITLE, status, &detail);
            told::raw(&mut bytes, r#","violated-policies":["#);
            for (at, policy) in policies.iter().enumerate() {
                told::raw(&mut bytes, if at == 0 { "" } else { "," });
                told::text(&mut bytes, policy);
            }
            told::raw(&mut bytes, "],");
            told::fields(&mut bytes, verdict, extras);
            bytes.push(b'}');
            with_type(status, line(bytes), form.content_type())
        }
    };
    tell_limits(verdict, manner, &mut response);
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Adds the headers about limits.
pub(super) fn tell_limits(verdict: &Verdict<'_>, manner: Manner<'_>, response: &mut Answer) {
    let headers = response.headers_mut();
    headers::tell(verdict, manner, |name, value| {
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
    let _ = match headers::retry_after(verdict, Micros::ZERO) {
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
    /// What kind of problem it is, and what that is called; nothing that is not in the status if there is none.
    pub(super) kind: Option<(&'static str, &'static str)>,
}

impl From<SeveralDomains> for Refusal {
    fn from(domains: SeveralDomains) -> Self {
        Self::bad(domains.to_string())
    }
}

impl Refusal {
    pub(super) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self { status, detail: detail.into(), allow: None, kind: None }
    }

    /// There is too much to do.
    pub(super) fn shed(detail: impl Into<String>) -> Self {
        Self {
            kind: Some((REDUCED_CAPACITY, REDUCED_CAPACITY_TITLE)),
            ..Self::new(StatusCode::SERVICE_UNAVAILABLE, detail)
        }
    }

    pub(super) fn bad(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    pub(super) fn into_answer(self, form: Form) -> Answer {
        let mut response = match form {
            Form::Text => with_type(self.status, format!("{}\n", self.detail).into_bytes(), form.content_type()),
            Form::Problem | Form::Json => {
                let usual = || ("about:blank", self.status.canonical_reason().unwrap_or("Error"));
                let (kind, title) = self.kind.unwrap_or_else(usual);
                let mut bytes = problem(kind, title, self.status, &self.detail);
                bytes.push(b'}');
                with_type(self.status, line(bytes), form.content_type())
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
    let mut bytes = Vec::with_capacity(ROOM);
    // Only maps with keys that are no strings fail, and there are none.
    let _ = serde_json::to_writer(&mut bytes, body);
    line(bytes)
}

/// With an end of line, for people with a terminal.
pub(super) fn line(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.push(b'\n');
    bytes
}

pub(super) fn with_type(status: StatusCode, body: impl Into<Bytes>, kind: HeaderValue) -> Answer {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().reserve(HEADERS);
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
