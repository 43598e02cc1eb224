//! What rules are told of a request: those attributes that they ask for, and no others.

use std::borrow::Cow;

use http::header::{COOKIE, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use http::{Uri, request};
use smallvec::SmallVec;
use tollgate::Attribute;

use super::jwt::Claims;
use super::onward::Origin;
use super::table::{Consumer, Lane};
use crate::protocol::percent::decode_query;

/// A longer value is somebody's play; what is behind this does not tell requests apart.
const LONGEST_VALUE: usize = 1 << 10;

/// Where an attribute comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Method,
    Path,
    Host,
    Ip,
    Route,
    UserAgent,
    /// Whoever the key in the request belongs to.
    Consumer,
    /// The same, or the address of somebody without a key.
    Client,
    /// The key itself, by the beginning of its hash, or the address of somebody without one.
    Credential,
    /// `header_or_ip.x-user`: the header, or the address where there is none.
    HeaderOrIp(HeaderName),
    /// `header.x-user`.
    Header(HeaderName),
    /// `cookie.session`.
    Cookie(Box<str>),
    /// `query.page`.
    Query(Box<str>),
    /// `segment.1`, the first of the path.
    Segment(usize),
    /// `jwt.org.id`: what a token says.
    Claim(Box<str>),
    /// `jwt_or_ip.sub`: the same, or the address of somebody without one.
    ClaimOrIp(Box<str>),
}

impl Source {
    /// What a key of a rule stands for; `None` if it is nothing that a request says.
    pub(super) fn of(key: &str) -> Option<Self> {
        Some(match key {
            "method" => Self::Method,
            "path" => Self::Path,
            "host" => Self::Host,
            "ip" => Self::Ip,
            "route" => Self::Route,
            "user_agent" => Self::UserAgent,
            "consumer" => Self::Consumer,
            "client" => Self::Client,
            "credential" => Self::Credential,
            _ => match key.split_once('.')? {
                ("header_or_ip", name) => Self::HeaderOrIp(HeaderName::from_bytes(name.as_bytes()).ok()?),
                ("header", name) => Self::Header(HeaderName::from_bytes(name.as_bytes()).ok()?),
                ("cookie", name) => Self::Cookie(name.into()),
                ("query", name) => Self::Query(name.into()),
                ("jwt", name) if !name.is_empty() => Self::Claim(name.into()),
                ("jwt_or_ip", name) if !name.is_empty() => Self::ClaimOrIp(name.into()),
                ("segment", number) => Self::Segment(number.parse().ok().filter(|number| *number > 0)?),
                _ => return None,
            },
        })
    }

    /// The claim that it is.
    pub(super) fn claim(&self) -> Option<&str> {
        match self {
            Self::Claim(name) | Self::ClaimOrIp(name) => Some(name),
            _ => None,
        }
    }
}

/// A request, as far as rules can ask about it.
pub(super) struct Facts<'r> {
    pub(super) head: &'r request::Parts,
    pub(super) path: &'r str,
    pub(super) host: &'r str,
    pub(super) origin: &'r Origin<'r>,
    pub(super) consumer: Option<&'r Consumer>,
    /// What SHA-256 makes of the key.
    pub(super) credential: Option<&'r [u8; 32]>,
    pub(super) claims: Option<&'r Claims>,
}

/// What is known of a request: keys and values, as rules ask for them.
#[derive(Clone, Debug)]
pub(super) struct Known<'r>(SmallVec<[(&'r str, Cow<'r, str>); 4]>);

/// The same, to be kept.
#[derive(Clone, Debug)]
pub(super) struct Kept(Vec<(Box<str>, Box<str>)>);

impl<'r> Known<'r> {
    pub(super) fn of(facts: &Facts<'r>, lane: &'r Lane) -> Self {
        let mut known = SmallVec::new();
        for (key, source) in &*lane.wanted {
            if let Some(value) = value(facts, lane, source) {
                known.push((&**key, shortened(value)));
            }
        }
        let of_consumer = facts.consumer.iter().flat_map(|consumer| &consumer.attributes);
        known.extend(of_consumer.chain(&lane.attributes).map(|(key, value)| (&**key, Cow::Borrowed(&**value))));
        Self(known)
    }

    pub(super) fn attributes(&self) -> SmallVec<[Attribute<'_>; 4]> {
        self.0.iter().map(|(key, value)| (*key, &**value)).collect()
    }

    pub(super) fn keep(&self) -> Kept {
        Kept(self.0.iter().map(|(key, value)| (Box::from(*key), Box::from(&**value))).collect())
    }
}

impl From<Vec<(Box<str>, Box<str>)>> for Kept {
    fn from(pairs: Vec<(Box<str>, Box<str>)>) -> Self {
        Self(pairs)
    }
}

impl Kept {
    pub(super) fn attributes(&self) -> SmallVec<[Attribute<'_>; 4]> {
        self.0.iter().map(|(key, value)| (&**key, &**value)).collect()
    }
}

fn value<'r>(facts: &Facts<'r>, lane: &'r Lane, source: &Source) -> Option<Cow<'r, str>> {
    let Facts { head, path, host, origin, consumer, credential, claims } = facts;
    let claim = |name: &str| claims.and_then(|claims| claims.get(name));
    let consumer = || consumer.map(|consumer| &*consumer.name);
    Some(match source {
        Source::Method => Cow::Borrowed(head.method.as_str()),
        Source::Path => Cow::Borrowed(path),
        Source::Host => Cow::Borrowed(host),
        Source::Ip => Cow::Borrowed(origin.text()?),
        Source::Route => Cow::Borrowed(&*lane.name),
        Source::Consumer => Cow::Borrowed(consumer()?),
        Source::Client => Cow::Borrowed(consumer().or_else(|| origin.text())?),
        Source::Credential => match credential {
            Some(hash) => Cow::Owned(fingerprint(hash)),
            None => Cow::Borrowed(origin.text()?),
        },
        Source::UserAgent => header(&head.headers, &USER_AGENT)?,
        Source::HeaderOrIp(name) => header(&head.headers, name).or_else(|| origin.text().map(Cow::Borrowed))?,
        Source::Header(name) => header(&head.headers, name)?,
        Source::Claim(name) => Cow::Borrowed(claim(name)?),
        Source::ClaimOrIp(name) => Cow::Borrowed(claim(name).or_else(|| origin.text())?),
        Source::Cookie(name) => cookie(&head.headers, name)?,
        Source::Query(name) => query(&head.uri, name)?,
        Source::Segment(number) => Cow::Borrowed(path.split('/').nth(*number).filter(|part| !part.is_empty())?),
    })
}

/// As much of a hash as tells keys apart, and too little to look for a key by it elsewhere.
fn fingerprint(hash: &[u8; 32]) -> String {
    hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// A host as all name it alike: in lower case, without the port, and without the dot that may end it.
pub(super) fn plain_host(host: &str) -> Cow<'_, str> {
    let colon = memchr::memrchr(b':', host.as_bytes()).and_then(|colon| host.split_at_checked(colon));
    let name = match colon {
        Some((name, port)) if !port.contains(']') => name,
        _ => host,
    };
    let name = name.strip_suffix('.').unwrap_or(name);
    match name.bytes().any(|byte| byte.is_ascii_uppercase()) {
        true => Cow::Owned(name.to_ascii_lowercase()),
        false => Cow::Borrowed(name),
    }
}

/// What is not UTF-8 is told all the same: to leave it out would be a way round the rules.
fn header<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<Cow<'h, str>> {
    headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()))
}

/// The first of this name. What is no text, here or in another cookie, hides none.
pub(super) fn cookie<'h>(headers: &'h HeaderMap, name: &str) -> Option<Cow<'h, str>> {
    let values = headers.get_all(COOKIE).into_iter().map(HeaderValue::as_bytes);
    let pairs = values.flat_map(|value| value.split(|byte| *byte == b';')).map(<[u8]>::trim_ascii);
    let mut named = pairs.filter_map(|pair| pair.strip_prefix(name.as_bytes())?.strip_prefix(b"="));
    named.next().map(|value| match String::from_utf8_lossy(value) {
        Cow::Borrowed(value) => Cow::Borrowed(value.trim_matches('"')),
        Cow::Owned(value) => Cow::Owned(value.trim_matches('"').to_owned()),
    })
}

pub(super) fn query<'u>(uri: &'u Uri, name: &str) -> Option<Cow<'u, str>> {
    let pairs = uri.query()?.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    pairs
        .map(|(key, value)| (decode_query(key), value))
        .find(|(key, _)| key == name)
        .map(|(_, value)| decode_query(value))
}

/// At most as long as tells requests apart.
pub(super) fn shortened(value: Cow<'_, str>) -> Cow<'_, str> {
    if value.len() <= LONGEST_VALUE {
        return value;
    }
    let mut end = LONGEST_VALUE;
    while !value.is_char_boundary(end) {
        end -= 1;
    }
    Cow::Owned(value.get(..end).unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::gateway::table::tests::lane;

    fn told(keys: &[&str], uri: &str, lines: &[(&'static str, &'static str)]) -> String {
        let wanted = keys.iter().filter_map(|key| Some((Arc::from(*key), Source::of(key)?))).collect();
        let lane = lane("shop", wanted);
        let mut request = http::Request::get(uri);
        for (name, value) in lines {
            request = request.header(*name, *value);
        }
        let (head, ()) = request.body(()).unwrap().into_parts();
        let origin = Origin::at("1.2.3.4");
        let known = Known::of(
            &Facts {
                head: &head,
                path: head.uri.path(),
                host: "api",
                origin: &origin,
                consumer: None,
                credential: None,
                claims: None,
            },
            &lane,
        );
        known.attributes().iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn rules_are_told_what_they_ask_for_and_nothing_else() {
        let headers = [("user-agent", "curl"), ("x-user", "7"), ("cookie", "a=1; session=\"abc\"; b")];
        let uri = "/v1/users/9?page=2&q=a%20b&empty";
        for (keys, expected) in [
            (
                &["ip", "method", "path", "host", "route", "user_agent"][..],
                "ip=1.2.3.4 method=GET path=/v1/users/9 host=api route=shop user_agent=curl",
            ),
            (&["header.X-User", "header.x-none"], "header.X-User=7"),
            (&["cookie.session", "cookie.b", "cookie.none"], "cookie.session=abc"),
            (&["query.q", "query.empty", "query.none"], "query.q=a b query.empty="),
            (&["segment.1", "segment.3", "segment.4", "segment.0"], "segment.1=v1 segment.3=9"),
            (&["user_id", "planet.x", "header."], ""),
        ] {
            assert_eq!(told(keys, uri, &headers), expected, "{keys:?}");
        }
    }

    /// Whoever writes rules is warned of all other keys.
    #[test]
    fn what_rules_are_told_is_what_they_are_said_to_be_told() {
        for key in [
            "method",
            "path",
            "host",
            "ip",
            "route",
            "user_agent",
            "consumer",
            "client",
            "credential",
            "header.x-user",
            "header.X_User",
            "header_or_ip.a",
            "header.",
            "header.a b",
            "header.ü",
            "header",
            "headers.a",
            "cookie.a",
            "cookie.",
            "query.a b",
            "segment.1",
            "segment.0",
            "segment.x",
            "segment",
            "jwt.sub",
            "jwt.",
            "jwt_or_ip.sub",
            "jwt_or_ip.",
            "user_id",
            "",
        ] {
            assert_eq!(Source::of(key).is_some(), tollgate::rules::is_told(key), "{key}");
        }
    }

    #[test]
    fn what_is_no_text_hides_nothing() {
        let mut headers = HeaderMap::new();
        headers.append(COOKIE, HeaderValue::from_bytes(b"x=\xff; session=abc; other=\xfe").unwrap());
        headers.append(COOKIE, HeaderValue::from_static("late=1;  =; session=def"));
        assert_eq!(cookie(&headers, "session").as_deref(), Some("abc"));
        assert_eq!(cookie(&headers, "other").as_deref(), Some("\u{fffd}"));
        assert_eq!(cookie(&headers, "late").as_deref(), Some("1"));
        assert_eq!(cookie(&headers, "sess"), None);
    }

    #[test]
    fn hosts_are_told_in_one_form() {
        for (host, plain) in [
            ("api.example.com", "api.example.com"),
            ("API.Example.com:8000", "api.example.com"),
            ("api.example.com.", "api.example.com"),
            ("api.example.com.:80", "api.example.com"),
            ("api.example.com:", "api.example.com"),
            ("[::1]:80", "[::1]"),
            ("[FE80::1]", "[fe80::1]"),
            ("", ""),
        ] {
            assert_eq!(plain_host(host), plain, "{host}");
        }
    }

    #[test]
    fn long_values_are_cut_where_a_character_ends() {
        let long = "é".repeat(2_000);
        assert_eq!(shortened(long.as_str().into()).len(), 1 << 10);
        assert_eq!(shortened(format!("a{long}").into()).len(), (1 << 10) - 1);
        assert_eq!(shortened("short".into()), "short");
    }
}
