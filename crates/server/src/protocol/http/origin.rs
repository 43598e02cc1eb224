//! Who and what a proxy asks about: the original request and the client's address.
//!
//! Headers about another request are believed only if they come from a proxy that is trusted: one of the settings, or
//! of this machine. Whoever else asks is asked about himself.

use std::borrow::Cow;
use std::net::IpAddr;

use http::header::{FORWARDED, HOST, USER_AGENT};
use http::{HeaderMap, HeaderName, Method, Uri};
use smallvec::SmallVec;
use tollgate::rules::{Network, parse_address};

use crate::serve::Peer;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// More proxies than this are no chain but an attempt to make work.
const MOST_HOPS: usize = 32;
/// And so are longer headers.
const MOST_BYTES: usize = 4 << 10;

/// The request that a proxy asks about.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Original<'a> {
    pub(super) method: Cow<'a, str>,
    /// Without the query, and as it was sent.
    pub(super) path: Cow<'a, str>,
    pub(super) host: Option<Cow<'a, str>>,
    pub(super) ip: Option<IpAddr>,
    pub(super) user_agent: Option<Cow<'a, str>>,
}

/// Whether a peer's word about others counts.
pub(crate) fn is_trusted(peer: Peer, trusted: &[Network]) -> bool {
    match peer {
        Peer::Local => true,
        Peer::Address(address) => is_trusted_address(address, trusted),
    }
}

fn is_trusted_address(address: IpAddr, trusted: &[Network]) -> bool {
    let address = address.to_canonical();
    address.is_loopback() || trusted.iter().any(|network| network.contains(address))
}

impl<'a> Original<'a> {
    /// `own_path` is what follows the route of forward-auth.
    pub(super) fn of(
        headers: &'a HeaderMap,
        (own_method, uri, own_path): (&'a Method, &'a Uri, &'a str),
        peer: Peer,
        trusted: &[Network],
    ) -> Self {
        let believed = is_trusted(peer, trusted).then_some(headers);
        let header = |name: &str| believed.and_then(|headers| text(headers, name));
        let forwarded = header("x-forwarded-uri").or_else(|| header("x-original-uri"));
        let full = header("x-original-url");
        let (path, host_of_url) = match (forwarded, full) {
            (Some(path), _) => (path, None),
            (None, Some(url)) => of_url(url),
            (None, None) => (Cow::Borrowed(if own_path.is_empty() { "/" } else { own_path }), None),
        };
        let method = header("x-forwarded-method").or_else(|| header("x-original-method"));
        let own_host = || text(headers, HOST.as_str()).or_else(|| uri.host().map(Cow::Borrowed));
        Self {
            method: method.unwrap_or_else(|| own_method.as_str().into()),
            path: without_query(path),
            host: header("x-forwarded-host").or(host_of_url).or_else(own_host),
            ip: client(headers, peer, trusted),
            user_agent: text(headers, USER_AGENT.as_str()),
        }
    }
}

/// The value of a header. What is not UTF-8 is told all the same: to leave it out would be a way round the rules.
fn text<'h>(headers: &'h HeaderMap, name: &str) -> Option<Cow<'h, str>> {
    headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()))
}

fn without_query(path: Cow<'_, str>) -> Cow<'_, str> {
    let end = path.find(['?', '#']).unwrap_or(path.len());
    match path {
        Cow::Borrowed(path) => Cow::Borrowed(path.get(..end).unwrap_or(path)),
        Cow::Owned(mut path) => {
            path.truncate(end);
            Cow::Owned(path)
        }
    }
}

/// The path and the host of `https://host/path`; a path alone is one.
fn of_url(url: Cow<'_, str>) -> (Cow<'_, str>, Option<Cow<'_, str>>) {
    let Some(start) = url.find("://").map(|at| at + 3) else { return (url, None) };
    let rest = url.get(start..).unwrap_or_default();
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (host, path) = rest.split_at(end);
    let path = if path.starts_with('/') { path } else { "/" };
    (Cow::Owned(path.to_owned()), Some(Cow::Owned(host.to_owned())))
}

/// The client's address: the first one from the right that is no trusted proxy.
fn client(headers: &HeaderMap, peer: Peer, trusted: &[Network]) -> Option<IpAddr> {
    written_client(headers, peer, trusted).map(|(address, _)| address)
}

/// The same, and how it is written, unless it is the peer's own.
pub(crate) fn written_client<'h>(
    headers: &'h HeaderMap,
    peer: Peer,
    trusted: &[Network],
) -> Option<(IpAddr, Option<&'h str>)> {
    let own = match peer {
        Peer::Address(address) => Some((address.to_canonical(), None)),
        Peer::Local => None,
    };
    if !is_trusted(peer, trusted) {
        return own;
    }
    let Some(hops) = hops(headers) else { return own };
    let mut client = own;
    for hop in hops.iter().rev() {
        // Beyond what nobody can read, nothing can be believed.
        let Some(address) = parse_hop(hop) else { return client };
        client = Some((address, Some(*hop)));
        if !is_trusted_address(address, trusted) {
            return client;
        }
    }
    client
}

/// Most chains are short.
type Hops<'h> = SmallVec<[&'h str; 4]>;

/// The chain of `X-Forwarded-For`, else of `Forwarded`, as it was written. `None` if it is too long to be one.
fn hops(headers: &HeaderMap) -> Option<Hops<'_>> {
    let from = |name: &HeaderName| -> Option<Hops<'_>> {
        let mut bytes = 0;
        let mut hops = Hops::new();
        // There are few, and to look at each costs less than to look for one.
        for (_, value) in headers.iter().filter(|(known, _)| *known == name) {
            bytes += value.len();
            if bytes > MOST_BYTES {
                return None;
            }
            // What cannot be read ends the walk where it stands.
            hops.extend(value.to_str().unwrap_or("?").split(',').map(str::trim));
        }
        (hops.len() <= MOST_HOPS).then_some(hops)
    };
    let usual = from(&FORWARDED_FOR)?;
    if !usual.is_empty() {
        return Some(usual);
    }
    let elements = from(&FORWARDED)?;
    Some(elements.into_iter().map(|element| forwarded_for(element).unwrap_or("?")).collect())
}

/// The `for=` of an element of `Forwarded`.
fn forwarded_for(element: &str) -> Option<&str> {
    element.split(';').find_map(|pair| {
        let (name, value) = pair.trim().split_once('=')?;
        name.eq_ignore_ascii_case("for").then(|| value.trim_matches('"'))
    })
}

/// An address, with a port or without.
fn parse_hop(hop: &str) -> Option<IpAddr> {
    let without_port = || {
        let (address, port) = hop.rsplit_once(':')?;
        let is_port = port.parse::<u16>().is_ok() && (address.ends_with(']') || !address.contains(':'));
        is_port.then(|| parse_address(address)).flatten()
    };
    parse_address(hop).or_else(without_port).map(|address| address.to_canonical())
}

/// For fuzzing: any lines as chains of proxies. Nobody speaks for others whom nobody trusts, whoever is found is in the
/// chain, and what a client puts in front of it changes nothing.
pub(crate) fn fuzz_chain(bytes: &[u8]) -> Result<(), String> {
    let trusted: SmallVec<[Network; 1]> = Network::parse("10.0.0.0/8").into_iter().collect();
    let (proxy, stranger) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([203, 0, 113, 9]));
    let chain = |front: &'static str| {
        let mut headers = HeaderMap::new();
        let lines = bytes.split(|byte| *byte == b'\n').filter_map(|line| http::HeaderValue::from_bytes(line).ok());
        for line in Some(http::HeaderValue::from_static(front)).filter(|line| !line.is_empty()).into_iter().chain(lines)
        {
            headers.append(FORWARDED_FOR, line);
        }
        headers
    };
    let headers = chain("");
    if client(&headers, Peer::Address(stranger), &trusted) != Some(stranger) {
        return Err("a stranger spoke for another".to_owned());
    }
    let found = client(&headers, Peer::Address(proxy), &trusted);
    let hops = hops(&headers).unwrap_or_default();
    if found != Some(proxy) && !hops.iter().any(|hop| parse_hop(hop) == found) {
        return Err(format!("{found:?} is not in the chain {hops:?}"));
    }
    let has_room = hops.len() < MOST_HOPS && bytes.len() + 16 < MOST_BYTES;
    if has_room && found.is_some_and(|found| !is_trusted_address(found, &trusted)) {
        let longer = client(&chain("198.51.100.77"), Peer::Address(proxy), &trusted);
        if longer != found {
            return Err(format!("what is put in front of the chain makes {longer:?} of {found:?}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(HeaderName::from_static(name), HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        headers
    }

    fn peer(address: &str) -> Peer {
        Peer::Address(address.parse().unwrap())
    }

    #[test]
    fn the_client_is_the_first_from_the_right_that_is_no_trusted_proxy() {
        let trusted = [Network::parse("10.0.0.0/8").unwrap(), Network::parse("2001:db8::/32").unwrap()];
        for (from, chain, expected) in [
            // A peer that nobody trusts speaks for himself only.
            ("203.0.113.9", "198.51.100.1", "203.0.113.9"),
            ("::ffff:203.0.113.9", "198.51.100.1", "203.0.113.9"),
            ("10.0.0.1", "198.51.100.1", "198.51.100.1"),
            ("::ffff:10.0.0.1", "198.51.100.1", "198.51.100.1"),
            ("127.0.0.1", "198.51.100.1", "198.51.100.1"),
            // What a client puts in front does not count.
            ("10.0.0.1", "1.1.1.1, 198.51.100.1", "198.51.100.1"),
            ("10.0.0.1", "1.1.1.1, 198.51.100.1, 10.0.0.2", "198.51.100.1"),
            ("10.0.0.1", "198.51.100.1,2001:db8::7 , 10.0.0.2", "198.51.100.1"),
            // All of them are proxies: the first one asked.
            ("10.0.0.1", "10.0.0.3, 10.0.0.2", "10.0.0.3"),
            ("10.0.0.1", "::ffff:198.51.100.1", "198.51.100.1"),
            ("10.0.0.1", "[2001:db9::1]:443", "2001:db9::1"),
            ("10.0.0.1", "198.51.100.1:1234", "198.51.100.1"),
            ("10.0.0.1", "2001:db9::1", "2001:db9::1"),
            // Nonsense ends the chain.
            ("10.0.0.1", "198.51.100.1, unknown", "10.0.0.1"),
            ("10.0.0.1", "198.51.100.1, banana, 10.0.0.2", "10.0.0.2"),
            ("10.0.0.1", "", "10.0.0.1"),
        ] {
            let headers = headers(&[("x-forwarded-for", chain)]);
            let found = client(&headers, peer(from), &trusted).unwrap();
            assert_eq!(found.to_string(), expected, "{from} {chain}");
        }
    }

    #[test]
    fn chains_may_be_in_several_lines_and_not_too_long() {
        let two = headers(&[("x-forwarded-for", "198.51.100.1"), ("x-forwarded-for", "127.0.0.1")]);
        assert_eq!(client(&two, peer("127.0.0.1"), &[]).unwrap().to_string(), "198.51.100.1");
        let chain = |hops: usize| vec!["198.51.100.1"; hops].join(",");
        let long = headers(&[("x-forwarded-for", &chain(MOST_HOPS))]);
        assert_eq!(client(&long, peer("127.0.0.1"), &[]).unwrap().to_string(), "198.51.100.1");
        let too_long = headers(&[("x-forwarded-for", &chain(MOST_HOPS + 1))]);
        assert_eq!(client(&too_long, peer("127.0.0.1"), &[]).unwrap().to_string(), "127.0.0.1");
        let huge = headers(&[("x-forwarded-for", &format!("{}198.51.100.1", " ".repeat(MOST_BYTES)))]);
        assert_eq!(client(&huge, peer("127.0.0.1"), &[]).unwrap().to_string(), "127.0.0.1");
        // A socket in the file system has no address of its own.
        assert_eq!(client(&HeaderMap::new(), Peer::Local, &[]), None);
        assert_eq!(client(&two, Peer::Local, &[]).unwrap().to_string(), "198.51.100.1");
    }

    #[test]
    fn the_standard_header_is_read_where_the_usual_one_is_missing() {
        for (value, expected) in [
            ("for=198.51.100.1", "198.51.100.1"),
            ("For=\"[2001:db9::1]:4711\";proto=https, for=127.0.0.1", "2001:db9::1"),
            ("for=198.51.100.1, for=_hidden", "127.0.0.1"),
            ("proto=https", "127.0.0.1"),
        ] {
            let headers = headers(&[("forwarded", value)]);
            assert_eq!(client(&headers, peer("127.0.0.1"), &[]).unwrap().to_string(), expected, "{value}");
        }
    }

    #[test]
    fn the_original_request_is_what_a_trusted_proxy_says_in_this_order() {
        let uri = Uri::from_static("/check/own?q=1");
        let of = |lines: &[(&'static str, &str)], from: &str| {
            let headers = headers(lines);
            let own = (&Method::PUT, &uri, "/own");
            let Original { method, path, host, .. } = Original::of(&headers, own, peer(from), &[]);
            format!("{method} {path} {}", host.unwrap_or_default())
        };
        let forwarded = [
            ("x-forwarded-method", "POST"),
            ("x-forwarded-uri", "/a%20b?c=d"),
            ("x-forwarded-host", "api.example.org"),
            ("host", "tollgate"),
        ];
        assert_eq!(of(&forwarded, "127.0.0.1"), "POST /a%20b api.example.org");
        assert_eq!(of(&forwarded, "203.0.113.9"), "PUT /own tollgate");
        let original = [("x-original-method", "DELETE"), ("x-original-uri", "/x#y"), ("host", "h")];
        assert_eq!(of(&original, "127.0.0.1"), "DELETE /x h");
        let url = [("x-original-url", "https://shop.example/z?q"), ("host", "h")];
        assert_eq!(of(&url, "127.0.0.1"), "PUT /z shop.example");
        assert_eq!(of(&[("x-original-url", "https://shop.example?q")], "127.0.0.1"), "PUT / shop.example");
        assert_eq!(of(&[("x-original-url", "/only/path?q")], "127.0.0.1"), "PUT /only/path ");
        let both = [("x-original-uri", "/second"), ("x-forwarded-uri", "/first")];
        assert_eq!(of(&both, "127.0.0.1"), "PUT /first ");
        assert_eq!(of(&[("x-forwarded-uri", "/\u{e9}")], "127.0.0.1"), "PUT /é ");
    }
}
