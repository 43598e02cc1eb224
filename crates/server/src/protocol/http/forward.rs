//! Forward-auth: a proxy asks about a request, and gets 200 and nothing else, or a denial to hand on.
//!
//! What the rules see: `method`, `path`, `host`, `ip` and `user_agent` of the original request, and whatever the proxy adds by the
//! query of the address it asks at, or by headers `X-RL-…` if it is trusted. Nothing of it is logged.

use std::borrow::Cow;

use http::{HeaderName, HeaderValue, Request, StatusCode};
use tollgate::{Attribute, Check, Verdict};

use super::answer::{self, Answer, Extras, Form, Refusal};
use super::origin::{Original, is_trusted};
use super::value::LONGEST;
use crate::protocol::bounds::MOST_ATTRIBUTES;
use crate::serve::{House, Peer};

/// The headers that become attributes: `X-RL-User-Id: 42` is `user_id`.
const PREFIX: &str = "x-rl-";
/// Says what a denial is where the proxy cannot be told by the status.
const DENY_STATUS: HeaderName = HeaderName::from_static("x-ratelimit-deny-status");

type Pair<'a> = (Cow<'a, str>, Cow<'a, str>);

/// What the proxy says about the question itself.
#[derive(Debug)]
struct Wishes<'a> {
    domain: Option<Cow<'a, str>>,
    deny_status: StatusCode,
    cost: u64,
}

/// Answers a proxy, whatever the body of its request is.
pub(super) async fn answer<B>(house: &House, request: &Request<B>, peer: Peer, form: Form) -> Result<Answer, Refusal> {
    let settings = &house.settings;
    let headers = request.headers();
    let own_path = request.uri().path().strip_prefix("/check").unwrap_or_default();
    let mut wishes = Wishes { domain: None, deny_status: default_status(settings.deny_status), cost: 1 };
    let mut pairs: Vec<Pair<'_>> = Vec::with_capacity(8);
    if is_trusted(peer, &settings.trusted_proxies) {
        for (name, value) in headers {
            if let Some(key) = name.as_str().strip_prefix(PREFIX).filter(|key| !key.is_empty()) {
                let value = String::from_utf8_lossy(value.as_bytes());
                add(&mut pairs, key.replace('-', "_").into(), value)?;
            }
        }
    }
    // With a path behind it, the query is the original request's: its client's words, not the proxy's.
    if let Some(query) = request.uri().query().filter(|_| own_path.is_empty()) {
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            wishes.take(&mut pairs, decode(key), decode(value))?;
        }
    }
    let own = (request.method(), request.uri(), own_path);
    let original = Original::of(headers, own, peer, &settings.trusted_proxies);
    let ip = original.ip.map(|ip| Cow::Owned(ip.to_string()));
    let known = [
        ("method", Some(original.method)),
        ("path", Some(original.path)),
        ("host", original.host),
        ("ip", ip),
        ("user_agent", original.user_agent),
    ];
    for (key, value) in known {
        if let Some(value) = value {
            add(&mut pairs, Cow::Borrowed(key), value)?;
        }
    }
    let attributes: Vec<Attribute<'_>> = pairs.iter().map(|(key, value)| (&**key, &**value)).collect();
    let domain = house.domain(wishes.domain.as_deref())?;
    let check = Check::attributes(domain.as_str(), &attributes).cost(wishes.cost);
    let tell = |verdict: &Verdict<'_>| {
        if verdict.denied() {
            let mut denied = answer::denial(verdict, wishes.deny_status, &settings.headers, form, Extras::default());
            if wishes.deny_status != StatusCode::TOO_MANY_REQUESTS {
                denied.headers_mut().insert(DENY_STATUS, HeaderValue::from_static("429"));
            }
            return denied;
        }
        let mut allowed = Answer::default();
        answer::tell_limits(verdict, &settings.headers, &mut allowed);
        allowed
    };
    Ok(house.gate.check(&check, tell).await?)
}

impl<'a> Wishes<'a> {
    /// One parameter of the query: about the question, or an attribute.
    fn take(&mut self, pairs: &mut Vec<Pair<'a>>, key: Cow<'a, str>, value: Cow<'a, str>) -> Result<(), Refusal> {
        match &*key {
            "domain" => self.domain = Some(value),
            "cost" => {
                let wrong = |_| Refusal::bad("`cost` is a whole number, as in /check?cost=5");
                self.cost = value.parse().map_err(wrong)?;
            }
            "deny_status" => {
                self.deny_status = match &*value {
                    "429" => StatusCode::TOO_MANY_REQUESTS,
                    "403" => StatusCode::FORBIDDEN,
                    _ => return Err(Refusal::bad("`deny_status` is 403 or 429, as in /check?deny_status=403")),
                }
            }
            _ => add(pairs, key, value)?,
        }
        Ok(())
    }
}

fn default_status(status: u16) -> StatusCode {
    if status == 403 { StatusCode::FORBIDDEN } else { StatusCode::TOO_MANY_REQUESTS }
}

/// Adds an attribute, unless what counts more has said it already.
fn add<'a>(pairs: &mut Vec<Pair<'a>>, key: Cow<'a, str>, value: Cow<'a, str>) -> Result<(), Refusal> {
    if key.len() > LONGEST || value.len() > LONGEST {
        return Err(Refusal::bad(format!("a text of {} bytes: {LONGEST} are the most", key.len().max(value.len()))));
    }
    if pairs.iter().any(|(known, _)| *known == key) {
        return Ok(());
    }
    if pairs.len() == MOST_ATTRIBUTES {
        return Err(Refusal::bad(format!("there are more than {MOST_ATTRIBUTES} attributes: send fewer")));
    }
    pairs.push((key, value));
    Ok(())
}

/// A part of a query as it was before it was put into an address.
fn decode(text: &str) -> Cow<'_, str> {
    if !text.contains(['%', '+']) {
        return Cow::Borrowed(text);
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let hex = after.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        let hex = hex.filter(|hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit()));
        match (first, hex.and_then(|hex| u8::from_str_radix(hex, 16).ok())) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = after.get(2..).unwrap_or_default();
                continue;
            }
            (b'+', _) => bytes.push(b' '),
            (other, _) => bytes.push(*other),
        }
        rest = after;
    }
    Cow::Owned(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_decoded_and_what_is_no_code_stays() {
        for (text, expected) in
            [("a", "a"), ("a+b", "a b"), ("%41%2f", "A/"), ("%", "%"), ("%4", "%4"), ("%zz", "%zz"), ("%+1", "% 1")]
        {
            assert_eq!(decode(text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_said_first_counts() {
        let mut pairs = Vec::new();
        add(&mut pairs, "ip".into(), "1".into()).unwrap();
        add(&mut pairs, "ip".into(), "2".into()).unwrap();
        assert_eq!(pairs, [("ip".into(), "1".into())]);
        assert!(add(&mut pairs, "x".into(), "y".repeat(LONGEST + 1).into()).is_err());
        for number in 1..MOST_ATTRIBUTES {
            add(&mut pairs, number.to_string().into(), "".into()).unwrap();
        }
        assert!(add(&mut pairs, "more".into(), "".into()).is_err());
    }
}
