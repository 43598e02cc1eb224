//! What is said to servers on behalf of clients: who they are, what they asked for, and by which name.

use std::borrow::Cow;
use std::net::IpAddr;

use http::Uri;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use smallvec::SmallVec;

use super::Client;
use super::noticed::Noticed;
use super::table::Lane;
use crate::protocol::http::written_client;
use crate::serve::{Peer, Settings};

pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The chain of a proxy that is trusted goes on; longer ones are not, since they are none.
const LONGEST_CHAIN: usize = 4 << 10;

/// Where a request comes from: the client's address, behind proxies that are trusted.
pub(super) struct Origin<'r> {
    pub(super) ip: Option<IpAddr>,
    text: Option<Cow<'r, str>>,
}

impl<'r> Origin<'r> {
    pub(super) fn of(headers: &'r HeaderMap, client: &'r Client, settings: &Settings) -> Self {
        let peer = match client.peer {
            Peer::Address(address) => Some(address.to_canonical()),
            Peer::Local => None,
        };
        let own = || Self { ip: peer, text: client.address.as_deref().map(Cow::Borrowed) };
        if !client.is_trusted {
            return own();
        }
        match written_client(headers, client.peer, &settings.trusted_proxies) {
            Some((ip, Some(written))) if Some(ip) != peer => Self { ip: Some(ip), text: Some(text_of(ip, written)) },
            _ => own(),
        }
    }

    /// The address as text.
    pub(super) fn text(&self) -> Option<&str> {
        self.text.as_deref()
    }

    #[cfg(test)]
    pub(super) fn at(text: &'r str) -> Self {
        Self { ip: text.parse().ok(), text: Some(Cow::Borrowed(text)) }
    }
}

/// An address as all write it alike, which is mostly how it was written.
fn text_of(ip: IpAddr, written: &str) -> Cow<'_, str> {
    // Of version 4 there is one way, if there is nothing else about it.
    let is_plain = ip.is_ipv4() && written.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    if is_plain { Cow::Borrowed(written) } else { Cow::Owned(ip.to_string()) }
}

/// Names, and values if there are any: each is one.
pub(super) type Own<'r> = [(&'static str, Option<&'r [u8]>); 7];

/// What we say of a client ourselves, in place of whatever it says. A trusted proxy's word is passed on.
pub(super) fn own_headers<'r>(
    noticed: &Noticed<'r>,
    client: &'r Client,
    origin: &'r Origin<'_>,
    chain: &'r Chain,
    host: &'r str,
    name: &'r HeaderValue,
) -> Own<'r> {
    let theirs = |value: Option<&'r HeaderValue>| value.filter(|_| client.is_trusted).map(HeaderValue::as_bytes);
    let (proto, usual_port): (&[u8], &[u8]) = if client.is_encrypted { (b"https", b"443") } else { (b"http", b"80") };
    let asked = || noticed.host.map_or(host.as_bytes(), HeaderValue::as_bytes);
    let port = || behind_colon(host).filter(|port| port.parse::<u16>().is_ok()).map_or(usual_port, str::as_bytes);
    [
        ("x-forwarded-for", (!chain.is_empty()).then_some(&**chain)),
        ("x-real-ip", origin.text().map(str::as_bytes)),
        ("x-forwarded-proto", theirs(noticed.forwarded_proto).or(Some(proto))),
        ("x-forwarded-host", theirs(noticed.forwarded_host).or_else(|| Some(asked()))),
        ("x-forwarded-port", theirs(noticed.forwarded_port).or_else(|| Some(port()))),
        ("forwarded", theirs(noticed.forwarded)),
        ("x-request-id", Some(name.as_bytes())),
    ]
}

/// The same, to be kept.
pub(super) fn keep(own: &Own<'_>) -> Vec<(HeaderName, Option<HeaderValue>)> {
    let value = |value: &[u8]| HeaderValue::from_bytes(value).ok();
    own.iter().map(|(name, text)| (HeaderName::from_static(name), text.and_then(value))).collect()
}

/// What is behind the last colon.
fn behind_colon(host: &str) -> Option<&str> {
    memchr::memrchr(b':', host.as_bytes()).and_then(|colon| host.get(colon + 1..))
}

/// Takes away what a client that is not trusted says in the name of a proxy, under whichever name of the family:
/// servers believe it.
pub(super) fn leave_out_claims(headers: &mut HeaderMap) {
    let claims: Vec<HeaderName> = headers.keys().filter(|name| is_claim(name.as_str())).cloned().collect();
    for name in claims {
        headers.remove(name);
    }
}

/// Whether it is `X-Forwarded-` and something, or what the request is called; for servers that take `_` for `-`, too.
fn is_claim(name: &str) -> bool {
    let begins_with = |family: &str| {
        let start = name.as_bytes().get(..family.len());
        start
            .is_some_and(|start| start.iter().zip(family.as_bytes()).all(|(a, b)| a == b || (*a == b'_' && *b == b'-')))
    };
    begins_with("x-forwarded-") || (name.len() == REQUEST_ID.as_str().len() && begins_with(REQUEST_ID.as_str()))
}

/// Addresses, from the client's to that of the proxy before us.
pub(super) type Chain = SmallVec<[u8; 64]>;

/// The chain of a proxy that is trusted, with itself at the end; of anybody else himself.
pub(super) fn chain(headers: &HeaderMap, client: &Client) -> Chain {
    let own = client.address.as_deref();
    let mut chain = Chain::new();
    let theirs = headers.iter().filter(|(name, _)| client.is_trusted && *name == FORWARDED_FOR);
    for hop in theirs.filter_map(|(_, value)| value.to_str().ok()).chain(own) {
        if !chain.is_empty() {
            chain.extend_from_slice(b", ");
        }
        chain.extend_from_slice(hop.as_bytes());
    }
    if chain.len() > LONGEST_CHAIN {
        return own.map_or_else(Chain::new, |own| Chain::from_slice(own.as_bytes()));
    }
    chain
}

/// The path and query to ask for: as the client wrote it, perhaps without the beginning that the route names.
pub(super) fn target<'u>(uri: &'u Uri, lane: &Lane, prefix: &str) -> Cow<'u, str> {
    let written = uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    if !lane.strip_path || prefix.is_empty() {
        return Cow::Borrowed(written);
    }
    let rest = without(uri.path(), prefix);
    Cow::Owned(match uri.query() {
        Some(query) => format!("{rest}?{query}"),
        None => rest.to_owned(),
    })
}

/// What of a path that begins with `prefix`, however that is written, stands behind it, as it is written.
fn without<'p>(path: &'p str, prefix: &str) -> &'p str {
    let mut left = prefix.split('/').filter(|segment| !segment.is_empty()).count();
    let mut rest = path;
    while left > 0 {
        let Some(segment) = rest.strip_prefix('/') else { break };
        let end = segment.find('/').unwrap_or(segment.len());
        // As `normal_path` has it: several slashes are one, and parameters are no part of a path.
        let is_any = !segment.get(..end).unwrap_or_default().is_empty() && !segment.starts_with(';');
        left -= usize::from(is_any);
        rest = segment.get(end..).unwrap_or_default();
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_behind_a_prefix_stays_as_it_is_written() {
        for (path, prefix, rest) in [
            ("/api/a%7Cb", "/api", "/a%7Cb"),
            ("/%61pi/a%7Cb;v=1//c", "/api", "/a%7Cb;v=1//c"),
            ("//api;x/b", "/api", "/b"),
            ("/;x/api/b", "/api", "/b"),
            ("/%40me/x%2By/", "/@me", "/x%2By/"),
            ("/v1/chat%3Asend", "/v1/chat:send", ""),
            ("/v1//chat:send/", "/v1/chat:send", "/"),
        ] {
            assert_eq!(without(path, prefix), rest, "{path}");
        }
    }

    #[test]
    fn an_address_is_told_in_one_form_however_it_was_written() {
        for (written, told) in [
            ("203.0.113.7", "203.0.113.7"),
            ("[203.0.113.7]", "203.0.113.7"),
            ("203.0.113.7:80", "203.0.113.7"),
            ("203.0.113.7%a", "203.0.113.7"),
            ("::ffff:203.0.113.7", "203.0.113.7"),
            ("[2001:DB8:0::1]:80", "2001:db8::1"),
        ] {
            assert_eq!(text_of(told.parse().unwrap(), written), told, "{written}");
        }
    }
}
