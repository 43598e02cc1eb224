//! `/json` and `/healthcheck` of the HTTP port: the rate limit service for whoever has no gRPC.
//!
//! The body is the JSON form of a `RateLimitRequest`, as the mapping of protocol buffers has it: names in camel case or
//! as in the schema, large numbers as texts too, `null` for what is absent. Answers differ from those of gRPC in their
//! form only.

use std::fmt;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response, StatusCode};
use http_body_util::Full;
use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::answer::{Answer, Status};
use super::request::{Refusal, Request, SentLimit};
use super::{Unanswered, decide};
use crate::gate::Door;
use crate::serve::House;

/// Answers `/json`, whatever the method.
pub(crate) async fn json(house: &House, body: &[u8]) -> Response<Full<Bytes>> {
    let meter = house.gate.meter(Door::Json);
    let started = meter.start();
    let answered = answer(house, body).await;
    if answered.is_err() {
        meter.error();
    }
    let answered = answered.unwrap_or_else(|(status, why)| {
        let reason = status.canonical_reason().unwrap_or_default();
        plain(status, format!("{reason}: {why}\n"))
    });
    meter.finish(started);
    answered
}

/// Answers `/healthcheck`.
pub(crate) fn healthcheck(house: &House) -> Response<Full<Bytes>> {
    match house.is_ready() {
        true => plain(StatusCode::OK, "OK".to_owned()),
        false => plain(StatusCode::INTERNAL_SERVER_ERROR, String::new()),
    }
}

fn plain(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    with_body(status, "text/plain; charset=utf-8", body.into_bytes())
}

fn with_body(status: StatusCode, kind: &'static str, body: Vec<u8>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

async fn answer(house: &House, body: &[u8]) -> Result<Response<Full<Bytes>>, (StatusCode, String)> {
    let bad_request = |refusal| match refusal {
        Refusal::Invalid(why) => (StatusCode::BAD_REQUEST, why),
        Refusal::Upstream(why) => (StatusCode::BAD_REQUEST, why.to_owned()),
    };
    let sent = SentRequest::parse(body).map_err(bad_request)?;
    let request = sent.request().map_err(bad_request)?;
    let write = |answer: &Answer<'_>| {
        let status = if answer.allowed { StatusCode::OK } else { StatusCode::TOO_MANY_REQUESTS };
        (status, serde_json::to_vec(&Told::of(answer)))
    };
    match decide(house, &request, write).await {
        Ok((status, Ok(body))) => Ok(with_body(status, "application/json", body)),
        Ok((_, Err(error))) => Err((StatusCode::INTERNAL_SERVER_ERROR, error.to_string())),
        Err(Unanswered::Refused(refusal)) => Err(bad_request(refusal)),
        Err(Unanswered::Unavailable(why)) => Err((StatusCode::SERVICE_UNAVAILABLE, why)),
    }
}

/// A request as it was sent.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct SentRequest {
    domain: Option<String>,
    descriptors: Option<Vec<SentDescriptor>>,
    #[serde(alias = "hits_addend")]
    hits_addend: Option<Integer>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct SentDescriptor {
    entries: Option<Vec<SentEntry>>,
    limit: Option<SentOverride>,
    #[serde(alias = "hits_addend")]
    hits_addend: Option<Integer>,
    #[serde(alias = "is_negative_hits")]
    is_negative_hits: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SentEntry {
    key: Option<String>,
    value: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct SentOverride {
    #[serde(alias = "requests_per_unit")]
    requests_per_unit: Option<Integer>,
    unit: Option<Unit>,
    #[serde(alias = "unit_multiplier")]
    unit_multiplier: Option<Integer>,
}

impl SentRequest {
    pub(crate) fn parse(body: &[u8]) -> Result<Self, Refusal> {
        let no_request = |error| Refusal::Invalid(format!("the body is no RateLimitRequest: {error}"));
        serde_json::from_slice(body).map_err(no_request)
    }

    /// The same as gRPC would have it.
    pub(crate) fn request(&self) -> Result<Request<'_>, Refusal> {
        let mut request = Request::default();
        request.domain = self.domain.as_deref().unwrap_or_default();
        request.hits_addend = short(self.hits_addend, "hitsAddend")?;
        for sent in self.descriptors.iter().flatten() {
            let mut asked = request.begin()?;
            for SentEntry { key, value } in sent.entries.iter().flatten() {
                request.enter(&asked, key.as_deref().unwrap_or_default(), value.as_deref().unwrap_or_default())?;
            }
            if let Some(limit) = &sent.limit {
                asked.limit = Some(request.known(SentLimit {
                    requests_per_unit: short(limit.requests_per_unit, "requestsPerUnit")?,
                    unit: limit.unit.map_or(0, |Unit(number)| number),
                    unit_multiplier: short(limit.unit_multiplier, "unitMultiplier")?,
                })?);
            }
            asked.hits_addend = sent.hits_addend.map(|Integer(hits)| hits);
            asked.is_refund = sent.is_negative_hits.unwrap_or_default();
            request.end(asked);
        }
        request.checked()
    }
}

/// A number of 32 bits.
fn short(number: Option<Integer>, name: &str) -> Result<u32, Refusal> {
    let Integer(number) = number.unwrap_or(Integer(0));
    u32::try_from(number).map_err(|_| Refusal::Invalid(format!("{name}: {number} does not fit into 32 bits")))
}

/// A number that is not negative, or a text of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Integer(u64);

impl<'de> Deserialize<'de> for Integer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Integers;
        impl Visitor<'_> for Integers {
            type Value = Integer;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number that is not negative")
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Integer, E> {
                Ok(Integer(number))
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Integer, E> {
                Err(E::invalid_value(Unexpected::Signed(number), &self))
            }

            fn visit_f64<E: Error>(self, number: f64) -> Result<Integer, E> {
                // Ends where not every whole number can be written any more.
                let is_exact = number.fract() == 0.0 && (0.0..9_007_199_254_740_992.0).contains(&number);
                is_exact
                    .then_some(Integer(number as u64))
                    .ok_or_else(|| E::invalid_value(Unexpected::Float(number), &self))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Integer, E> {
                match text.parse() {
                    Ok(number) if !text.starts_with('+') => Ok(Integer(number)),
                    _ => Err(E::invalid_value(Unexpected::Str(text), &self)),
                }
            }
        }
        deserializer.deserialize_any(Integers)
    }
}

/// The number of a unit, or its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Unit(i32);

const UNITS: [&str; 7] = ["UNKNOWN", "SECOND", "MINUTE", "HOUR", "DAY", "MONTH", "YEAR"];

impl<'de> Deserialize<'de> for Unit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Units;
        impl Visitor<'_> for Units {
            type Value = Unit;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("SECOND, MINUTE, HOUR, DAY, MONTH or YEAR, or the number of one")
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Unit, E> {
                let short = i32::try_from(number);
                short.map(Unit).map_err(|_| E::invalid_value(Unexpected::Unsigned(number), &self))
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Unit, E> {
                let short = i32::try_from(number);
                short.map(Unit).map_err(|_| E::invalid_value(Unexpected::Signed(number), &self))
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<Unit, E> {
                let number = (0..).zip(UNITS).find(|(_, known)| *known == name);
                number.map(|(number, _)| Unit(number)).ok_or_else(|| E::invalid_value(Unexpected::Str(name), &self))
            }
        }
        deserializer.deserialize_any(Units)
    }
}

/// The answer. What is zero is left out.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Told<'a> {
    overall_code: &'static str,
    statuses: Vec<ToldStatus<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    response_headers_to_add: Vec<ToldHeader<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dynamic_metadata: Option<&'a Value>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ToldStatus<'a> {
    code: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    current_limit: Option<ToldLimit<'a>>,
    #[serde(skip_serializing_if = "is_zero")]
    limit_remaining: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    duration_until_reset: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ToldLimit<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
    #[serde(skip_serializing_if = "is_zero")]
    requests_per_unit: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    unit: Option<String>,
}

#[derive(Serialize)]
struct ToldHeader<'a> {
    key: &'a str,
    value: &'a str,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl<'a> Told<'a> {
    fn of(answer: &'a Answer<'_>) -> Self {
        Self {
            overall_code: code(!answer.allowed),
            statuses: answer.statuses.iter().map(ToldStatus::of).collect(),
            response_headers_to_add: answer.headers().map(|(key, value)| ToldHeader { key, value }).collect(),
            dynamic_metadata: answer.metadata.as_deref(),
        }
    }
}

impl<'a> ToldStatus<'a> {
    fn of(status: &'a Status<'_>) -> Self {
        let limit = status.limit.as_ref();
        Self {
            code: code(status.over_limit),
            current_limit: limit.map(|limit| ToldLimit {
                name: limit.name,
                requests_per_unit: limit.requests_per_unit,
                unit: limit.unit.map(|unit| unit.name().to_uppercase()),
            }),
            limit_remaining: status.remaining,
            duration_until_reset: status.until_reset.map(|seconds| format!("{seconds}s")),
        }
    }
}

const fn code(over_limit: bool) -> &'static str {
    if over_limit { "OVER_LIMIT" } else { "OK" }
}
