//! One token: three parts of text, two of them JSON, and what is wrong with it if anything is.
//!
//! Nothing that a token says about how to verify it is believed but the name of one of our own keys and which of that
//! key's own algorithms was used. What points elsewhere (`jku`, `jwk`, `x5u`) is not looked at, and what has to be
//! understood (`crit`) is not.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::Value;
use tollgate::rules::{JwtAlgorithm, JwtSpec};
use tollgate_core::Timestamp;

use super::keys::Key;

/// Longer ones are nobody's: they would not fit into the headers of most servers.
pub(super) const LONGEST: usize = 8 << 10;

/// Why a token is not good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadToken {
    Missing,
    TooLong,
    Malformed,
    Algorithm,
    Signature,
    Expired,
    NotYet,
    Issuer,
    Audience,
}

impl BadToken {
    pub(super) const ALL: [Self; 9] = [
        Self::Missing,
        Self::TooLong,
        Self::Malformed,
        Self::Algorithm,
        Self::Signature,
        Self::Expired,
        Self::NotYet,
        Self::Issuer,
        Self::Audience,
    ];

    /// In metrics.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::TooLong => "too_long",
            Self::Malformed => "malformed",
            Self::Algorithm => "algorithm",
            Self::Signature => "signature",
            Self::Expired => "expired",
            Self::NotYet => "not_yet",
            Self::Issuer => "issuer",
            Self::Audience => "audience",
        }
    }

    /// For whoever sent it.
    pub(crate) const fn told(self) -> &'static str {
        match self {
            Self::Missing => "a bearer token is needed",
            Self::TooLong => "the token is longer than 8192 bytes",
            Self::Malformed => "this is no JSON Web Token",
            Self::Algorithm => "the token is signed in a way that no key is for",
            Self::Signature => "no key that is known here has signed the token",
            Self::Expired => "the token has expired",
            Self::NotYet => "the token is not valid yet",
            Self::Issuer => "the token is by another issuer",
            Self::Audience => "the token is for another audience",
        }
    }
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    crit: Option<Value>,
}

/// A token, taken apart.
pub(super) struct Token<'t> {
    header: Header,
    pub(super) claims: Value,
    /// What is signed, and by what.
    signed: &'t str,
    signature: Vec<u8>,
}

impl<'t> Token<'t> {
    pub(super) fn parse(text: &'t str) -> Result<Self, BadToken> {
        if text.len() > LONGEST {
            return Err(BadToken::TooLong);
        }
        Self::parts(text).filter(|token| token.claims.is_object()).ok_or(BadToken::Malformed)
    }

    fn parts(text: &'t str) -> Option<Self> {
        let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).ok();
        let (signed, signature) = text.rsplit_once('.')?;
        let (header, claims) = signed.split_once('.')?;
        // Whatever else is between dots is no letter of the alphabet.
        let header = serde_json::from_slice(&decode(header)?).ok()?;
        let claims = serde_json::from_slice(&decode(claims)?).ok()?;
        Some(Self { header, claims, signed, signature: decode(signature)? })
    }

    /// Makes sure that it is good: cheap things first, so that the signature of what is no good anyway is not looked
    /// at.
    pub(super) fn verify(&self, spec: &JwtSpec, keys: &[Key], now: Timestamp) -> Result<(), BadToken> {
        if self.header.crit.is_some() {
            return Err(BadToken::Malformed);
        }
        let algorithm = JwtAlgorithm::named(&self.header.alg).ok_or(BadToken::Algorithm)?;
        self.check_claims(spec, now)?;
        let fit = || keys.iter().filter(|key| key.is_for(algorithm));
        if fit().next().is_none() {
            return Err(BadToken::Algorithm);
        }
        let is_called = |key: &&Key| match (&key.name, &self.header.kid) {
            (Some(name), Some(wanted)) => name == wanted,
            _ => true,
        };
        let is_signed =
            fit().filter(is_called).any(|key| key.has_signed(algorithm, self.signed.as_bytes(), &self.signature));
        if is_signed { Ok(()) } else { Err(BadToken::Signature) }
    }

    fn check_claims(&self, spec: &JwtSpec, now: Timestamp) -> Result<(), BadToken> {
        let (now, leeway) = (seconds(now.as_micros()), seconds(spec.leeway.as_micros()));
        if self.instant("exp")?.is_some_and(|expires| now >= expires + leeway) {
            return Err(BadToken::Expired);
        }
        if self.instant("nbf")?.is_some_and(|begins| now + leeway < begins) {
            return Err(BadToken::NotYet);
        }
        let is_one_of = |wanted: &[std::sync::Arc<str>], said: &Value| {
            said.as_str().is_some_and(|said| wanted.iter().any(|wanted| **wanted == *said))
        };
        if !spec.issuer.is_empty() && !is_one_of(&spec.issuer, &self.claims["iss"]) {
            return Err(BadToken::Issuer);
        }
        let is_meant = || match &self.claims["aud"] {
            Value::Array(several) => several.iter().any(|one| is_one_of(&spec.audience, one)),
            one => is_one_of(&spec.audience, one),
        };
        if !spec.audience.is_empty() && !is_meant() {
            return Err(BadToken::Audience);
        }
        Ok(())
    }

    /// Until when it is good, if it says so.
    pub(super) fn good_until(&self, spec: &JwtSpec) -> Option<Timestamp> {
        let expires = self.instant("exp").ok().flatten()?;
        // What lies beyond the range of numbers is as far as they go.
        let expires = Timestamp::from_micros((expires * 1e6) as u64);
        Some(expires.plus(spec.leeway))
    }

    /// In seconds since the epoch.
    fn instant(&self, name: &str) -> Result<Option<f64>, BadToken> {
        match &self.claims[name] {
            Value::Null => Ok(None),
            value => value.as_f64().map(Some).ok_or(BadToken::Malformed),
        }
    }
}

fn seconds(micros: u64) -> f64 {
    micros as f64 / 1e6
}

/// What a token says under a name such as `org.id`: a text, a number or a truth. Names may have dots themselves, so the
/// longest is looked for first. A list of one is what is in it; `roles.0` is the first of several.
pub(super) fn claim(value: &Value, path: &str) -> Option<String> {
    let inner = |name: &str| match value {
        Value::Object(fields) => fields.get(name),
        Value::Array(items) => items.get(name.parse::<usize>().ok()?),
        _ => None,
    };
    if let Some(found) = inner(path).and_then(scalar) {
        return Some(found);
    }
    let dots = path.match_indices('.').map(|(at, _)| at).rev();
    dots.into_iter().find_map(|at| claim(inner(path.get(..at)?)?, path.get(at + 1..)?))
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(truth) => Some(truth.to_string()),
        Value::Array(items) => match &**items {
            [one] if !one.is_array() => scalar(one),
            _ => None,
        },
        Value::Null | Value::Object(_) => None,
    }
}
