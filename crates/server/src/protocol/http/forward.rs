//! Forward-auth: a proxy asks about a request, and gets 200 and nothing else, or a denial to hand on.
//!
//! What the rules see: `method`, `path`, `host`, `ip` and `user_agent` of the original request, and whatever the proxy
//! adds by the query of the address it asks at, or by headers `X-RL-…` if it is trusted. Nothing of it is logged.

use std::borrow::Cow;

use http::{HeaderName, HeaderValue, Request, StatusCode};
use tollgate::rules::Network;
use tollgate::{Attribute, Check, Verdict};

use super::answer::{self, Answer, Form, Refusal};
use super::origin::{Original, is_trusted};
use super::told::Extras;
use crate::protocol::bounds::{MOST_ATTRIBUTES, MOST_COST};
use crate::protocol::percent::decode_query;
use crate::serve::{House, Peer};

/// The headers that become attributes: `X-RL-User-Id: 42` is `user_id`.
const PREFIX: &str = "x-rl-";
/// Says what a denial is where the proxy cannot be told by the status.
const DENY_STATUS: HeaderName = HeaderName::from_static("x-ratelimit-deny-status");

/// Parameters that only a trusted peer's address may have: what is known better of others, and what is not theirs to
/// say.
const ONLY_TRUSTED: [&str; 8] = ["ip", "method", "path", "host", "user_agent", "domain", "cost", "deny_status"];

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
    let (wishes, pairs) = read(request, peer, &settings.trusted_proxies, settings.deny_status)?;
    let attributes: Vec<Attribute<'_>> = pairs.iter().map(|(key, value)| (&**key, &**value)).collect();
    let domain = house.domain(wishes.domain.as_deref())?;
    let check = Check::attributes(domain.as_str(), &attributes).cost(wishes.cost);
    let tell = |verdict: &Verdict<'_>| {
        if verdict.denied() {
            let mut denied = answer::denial(verdict, wishes.deny_status, settings.manner(), form, &Extras::default());
            if wishes.deny_status != StatusCode::TOO_MANY_REQUESTS {
                denied.headers_mut().insert(DENY_STATUS, HeaderValue::from_static("429"));
            }
            return denied;
        }
        let mut allowed = Answer::default();
        answer::tell_limits(verdict, settings.manner(), &mut allowed);
        allowed
    };
    Ok(house.gate.check(&check, tell).await?)
}

/// What is asked: about the question itself, and the attributes.
fn read<'r, B>(
    request: &'r Request<B>,
    peer: Peer,
    trusted: &[Network],
    deny_status: u16,
) -> Result<(Wishes<'r>, Vec<Pair<'r>>), Refusal> {
    let headers = request.headers();
    let own_path = request.uri().path().strip_prefix("/check").unwrap_or_default();
    let mut wishes = Wishes { domain: None, deny_status: default_status(deny_status), cost: 1 };
    let mut pairs: Vec<Pair<'_>> = Vec::with_capacity(8);
    let is_trusted = is_trusted(peer, trusted);
    if is_trusted {
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
            let key = decode_query(key);
            if is_trusted || !ONLY_TRUSTED.contains(&&*key) {
                wishes.take(&mut pairs, key, decode_query(value))?;
            }
        }
    }
    let own = (request.method(), request.uri(), own_path);
    let original = Original::of(headers, own, peer, trusted);
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
    Ok((wishes, pairs))
}

impl<'a> Wishes<'a> {
    /// One parameter of the query: about the question, or an attribute.
    fn take(&mut self, pairs: &mut Vec<Pair<'a>>, key: Cow<'a, str>, value: Cow<'a, str>) -> Result<(), Refusal> {
        match &*key {
            "domain" => self.domain = Some(value),
            "cost" => {
                let cost = value.parse().ok().filter(|cost| *cost <= MOST_COST);
                let wrong = || Refusal::bad(format!("`cost` is a whole number up to {MOST_COST}, as in /check?cost=5"));
                self.cost = cost.ok_or_else(wrong)?;
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

/// Adds an attribute, unless what counts more has said it already. It may be as long as it likes, since the head of a
/// request is not: to refuse a long one would be an error of the proxy's, for what its client sent.
fn add<'a>(pairs: &mut Vec<Pair<'a>>, key: Cow<'a, str>, value: Cow<'a, str>) -> Result<(), Refusal> {
    if pairs.iter().any(|(known, _)| *known == key) {
        return Ok(());
    }
    if pairs.len() == MOST_ATTRIBUTES {
        return Err(Refusal::bad(format!("there are more than {MOST_ATTRIBUTES} attributes: send fewer")));
    }
    pairs.push((key, value));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_is_not_trusted_says_nothing_about_what_is_known_of_him() {
        let address = "/check?ip=1.2.3.4&method=PUT&path=/x&host=h&user_agent=none&cost=0&domain=other&deny_status=403\
                       &%69p=5.6.7.8&plan=gold";
        let request = Request::get(address).header("host", "tollgate").header("user-agent", "curl").body(()).unwrap();
        let read = |peer: &str| {
            let (wishes, mut pairs) = read(&request, Peer::Address(peer.parse().unwrap()), &[], 429).unwrap();
            pairs.sort_unstable();
            let pairs: Vec<String> = pairs.iter().map(|(key, value)| format!("{key}={value}")).collect();
            let about = (wishes.cost, wishes.domain.is_some(), wishes.deny_status.as_u16());
            (pairs.join(" "), about)
        };
        let (pairs, about) = read("203.0.113.9");
        assert_eq!(pairs, "host=tollgate ip=203.0.113.9 method=GET path=/ plan=gold user_agent=curl");
        assert_eq!(about, (1, false, 429));
        let (pairs, about) = read("127.0.0.1");
        assert_eq!(pairs, "host=h ip=1.2.3.4 method=PUT path=/x plan=gold user_agent=none");
        assert_eq!(about, (0, true, 403));
    }

    #[test]
    fn what_is_said_first_counts() {
        let mut pairs = Vec::new();
        add(&mut pairs, "ip".into(), "1".into()).unwrap();
        add(&mut pairs, "ip".into(), "2".into()).unwrap();
        assert_eq!(pairs, [("ip".into(), "1".into())]);
        for number in 1..MOST_ATTRIBUTES {
            add(&mut pairs, number.to_string().into(), "".into()).unwrap();
        }
        assert!(add(&mut pairs, "more".into(), "".into()).is_err());
    }
}
