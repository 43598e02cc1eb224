//! What is said to servers on behalf of clients: who they are, what they asked for, and by which name.

use std::borrow::Cow;
use std::net::IpAddr;

use http::header::{FORWARDED, HOST, HeaderMap, HeaderName, HeaderValue};
use http::{Uri, request};

use super::table::Lane;
use super::{Client, client_of};
use crate::protocol::snippet;
use crate::serve::{Peer, Settings};

pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_PORT: HeaderName = HeaderName::from_static("x-forwarded-port");
const REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");

/// The chain of a proxy that is trusted goes on; longer ones are not, since they are none.
const LONGEST_CHAIN: usize = 4 << 10;

/// Where a request comes from: the client's address, behind proxies that are trusted.
pub(super) struct Origin {
    pub(super) ip: Option<IpAddr>,
    text: Option<HeaderValue>,
}

impl Origin {
    pub(super) fn of(headers: &HeaderMap, client: &Client, settings: &Settings) -> Self {
        let peer = match client.peer {
            Peer::Address(address) => Some(address.to_canonical()),
            Peer::Local => None,
        };
        if !client.is_trusted {
            return Self { ip: peer, text: client.address.clone() };
        }
        let ip = client_of(headers, client.peer, &settings.trusted_proxies);
        let text = if ip == peer { client.address.clone() } else { ip.map(text_of) };
        Self { ip, text }
    }

    /// The address as text.
    pub(super) fn text(&self) -> Option<&str> {
        self.text.as_ref().and_then(|text| text.to_str().ok())
    }

    #[cfg(test)]
    pub(super) fn at(text: &'static str) -> Self {
        Self { ip: text.parse().ok(), text: Some(HeaderValue::from_static(text)) }
    }
}

/// An address as people write it.
fn text_of(ip: IpAddr) -> HeaderValue {
    let IpAddr::V4(ip) = ip else { return snippet::value(|out| out.extend_from_slice(ip.to_string().as_bytes())) };
    // As `Display` does, with a fifth of the work.
    snippet::value(|out| {
        for (at, byte) in ip.octets().into_iter().enumerate() {
            if at > 0 {
                out.extend_from_slice(b".");
            }
            snippet::digits(out, byte.into());
        }
    })
}

fn value(text: &str) -> Option<HeaderValue> {
    HeaderValue::from_str(text).ok()
}

/// What a proxy that is trusted says of its client, found in one go: there are few headers, and most are none of these.
#[derive(Default)]
struct Theirs<'h> {
    proto: Option<&'h HeaderValue>,
    host: Option<&'h HeaderValue>,
    port: Option<&'h HeaderValue>,
    forwarded: Option<&'h HeaderValue>,
}

impl<'h> Theirs<'h> {
    fn of(headers: Option<&'h HeaderMap>) -> Self {
        let mut theirs = Self::default();
        for (name, value) in headers.into_iter().flatten() {
            let place = match name.as_str() {
                "x-forwarded-proto" => &mut theirs.proto,
                "x-forwarded-host" => &mut theirs.host,
                "x-forwarded-port" => &mut theirs.port,
                "forwarded" => &mut theirs.forwarded,
                _ => continue,
            };
            // The first of a name counts.
            place.get_or_insert(value);
        }
        theirs
    }
}

/// What we say of a client ourselves, in place of whatever it says. A trusted proxy's word is passed on.
pub(super) fn own_headers(
    head: &request::Parts,
    client: &Client,
    origin: &Origin,
    host: &str,
    name: &HeaderValue,
) -> [(HeaderName, Option<HeaderValue>); 7] {
    let headers = &head.headers;
    let theirs = Theirs::of(client.is_trusted.then_some(headers));
    let proto = HeaderValue::from_static(if client.is_encrypted { "https" } else { "http" });
    // The very header, if there is one, costs nothing to pass on.
    let asked = || headers.get(HOST).cloned().or_else(|| value(host));
    let port = || match behind_colon(host).filter(|port| port.parse::<u16>().is_ok()) {
        Some(port) => Some(snippet::value(|out| out.extend_from_slice(port.as_bytes()))),
        None => Some(HeaderValue::from_static(if client.is_encrypted { "443" } else { "80" })),
    };
    [
        (FORWARDED_FOR, if client.is_trusted { longer_chain(headers, client) } else { client.address.clone() }),
        (REAL_IP, origin.text.clone()),
        (FORWARDED_PROTO, theirs.proto.cloned().or(Some(proto))),
        (FORWARDED_HOST, theirs.host.cloned().or_else(asked)),
        (FORWARDED_PORT, theirs.port.cloned().or_else(port)),
        (FORWARDED, theirs.forwarded.cloned()),
        (REQUEST_ID, Some(name.clone())),
    ]
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

/// The chain of a proxy that is trusted, with itself at the end.
fn longer_chain(headers: &HeaderMap, client: &Client) -> Option<HeaderValue> {
    let chain = snippet::snippet(|chain| {
        let theirs = headers.iter().filter(|(name, _)| *name == FORWARDED_FOR).map(|(_, value)| value);
        let hops = theirs.chain(&client.address);
        for hop in hops.filter_map(|value| value.to_str().ok()) {
            if !chain.is_empty() {
                chain.extend_from_slice(b", ");
            }
            chain.extend_from_slice(hop.as_bytes());
        }
    });
    if chain.len() > LONGEST_CHAIN {
        return client.address.clone();
    }
    (!chain.is_empty()).then(|| snippet::value_of(chain))
}

/// The path and query to ask for: as the client wrote it, perhaps without the beginning that the route names.
pub(super) fn target<'u>(uri: &'u Uri, lane: &Lane, prefix: &str, normal: &str) -> Cow<'u, str> {
    let written = uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    if !lane.strip_path || prefix.is_empty() {
        return Cow::Borrowed(written);
    }
    // Where it was written in another way, the beginning is found only in its plain form.
    let is_rest = |rest: &&str| rest.is_empty() || rest.starts_with('/');
    let written = uri.path().strip_prefix(prefix).filter(is_rest);
    let rest = written.or_else(|| normal.strip_prefix(prefix)).unwrap_or(normal);
    Cow::Owned(match uri.query() {
        Some(query) => format!("{rest}?{query}"),
        None => rest.to_owned(),
    })
}
