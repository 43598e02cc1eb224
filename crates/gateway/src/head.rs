//! Heads: what is sent on to a server, and what it answers with.

use std::mem::MaybeUninit;

use bytes::{Buf as _, BytesMut};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode, Version};

use smallvec::SmallVec;

use crate::framing::Framing;
use crate::hop::{Nominated, is_about_hop};
use crate::lines::Lines;

/// The most headers of an answer, and the most bytes of its head.
const MOST_HEADERS: usize = 128;
const LONGEST_HEAD: usize = 64 << 10;

/// A request as it is to be sent on.
#[derive(Clone, Copy, Debug)]
pub struct Onward<'r> {
    /// The method.
    pub method: &'r Method,
    /// Path and query; the path that the server's address has comes before it.
    pub target: &'r str,
    /// The value of `Host`; `None` for the server's own name.
    pub host: Option<&'r HeaderValue>,
    /// The client's headers. Those that end here are left out.
    pub headers: &'r HeaderMap,
    /// What we say ourselves, names and values that are such, if anything: whatever the client said under these names is
    /// left out.
    pub own: &'r [(&'r str, Option<&'r [u8]>)],
}

/// How the body of a request is framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestBody {
    None,
    Length(u64),
    Chunked,
}

impl Onward<'_> {
    /// Writes the head for a server of this name, whose address has this path.
    pub(crate) fn encode(
        &self,
        (authority, path): (&str, &str),
        body: RequestBody,
        upgrade: Option<&HeaderValue>,
        out: &mut Vec<u8>,
    ) {
        out.reserve(512);
        let host = self.host.map_or(authority.as_bytes(), HeaderValue::as_bytes);
        let method = self.method.as_str().as_bytes();
        // A path that has nothing before it begins with a slash.
        let slash: &[u8] = if path.is_empty() && !self.target.starts_with('/') { b"/" } else { b"" };
        let (path, target) = (path.as_bytes(), self.target.as_bytes());
        for part in [method, b" ", path, slash, target, b" HTTP/1.1\r\nhost: ", host, b"\r\n"] {
            out.extend_from_slice(part);
        }
        let nominated = Nominated::of(self.headers);
        let lengths = self.own.iter().fold(0_u64, |lengths, (name, _)| lengths | 1 << (name.len() % 64));
        let mut is_behind_cookie = false;
        for (name, value) in self.headers {
            if self.ends_here(name, &nominated, lengths) {
                continue;
            }
            // By HTTP/2 they may come one by one, and servers of HTTP/1.1 know only one line of them (RFC 9113, 8.2.3).
            let is_cookie = *name == header::COOKIE;
            if is_cookie && is_behind_cookie {
                out.truncate(out.len().saturating_sub(2));
                for part in [b"; ", value.as_bytes(), b"\r\n"] {
                    out.extend_from_slice(part);
                }
            } else {
                line(out, name.as_str(), value.as_bytes());
            }
            is_behind_cookie = is_cookie;
        }
        for (name, value) in self.own {
            if let Some(value) = value {
                line(out, name, value);
            }
        }
        match body {
            // Some servers want to be told that there is nothing where there could be something.
            RequestBody::None if is_usually_with_body(self.method) => out.extend_from_slice(b"content-length: 0\r\n"),
            RequestBody::None => {}
            RequestBody::Length(length) => line(out, "content-length", itoa::Buffer::new().format(length).as_bytes()),
            RequestBody::Chunked => out.extend_from_slice(b"transfer-encoding: chunked\r\n"),
        }
        if let Some(upgrade) = upgrade {
            out.extend_from_slice(b"connection: upgrade\r\n");
            line(out, "upgrade", upgrade.as_bytes());
        }
        out.extend_from_slice(b"\r\n");
    }

    /// `lengths` has a bit for each length that one of our own names has.
    fn ends_here(&self, name: &HeaderName, nominated: &Nominated<'_>, lengths: u64) -> bool {
        let text = name.as_str();
        let is_own = |(own, _): &(&str, Option<&[u8]>)| *own == text || is_alias(text, own);
        // Whoever waits to be told to go on is told by us, when the server takes the body.
        matches!(text, "host" | "expect")
            || is_about_hop(text.as_bytes())
            || (lengths & (1 << (text.len() % 64)) != 0 && self.own.iter().any(is_own))
            || nominated.contains(name)
    }
}

/// Whether servers that take `_` for `-` would take one name for the other.
fn is_alias(name: &str, own: &str) -> bool {
    name.len() == own.len()
        && name.contains('_')
        && name.bytes().zip(own.bytes()).all(|(a, b)| a == b || (a == b'_' && b == b'-'))
}

fn is_usually_with_body(method: &Method) -> bool {
    *method == Method::POST || *method == Method::PUT || *method == Method::PATCH
}

fn line(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    for part in [name.as_bytes(), b": ", value, b"\r\n"] {
        out.extend_from_slice(part);
    }
}

/// The head of an answer.
#[derive(Debug)]
pub struct Head {
    /// The status.
    pub status: StatusCode,
    pub(crate) version: Version,
    /// What is handed on.
    pub lines: Lines,
    /// What ends here.
    pub(crate) hop: Hop,
}

/// What the head of an answer says about its connection and its body.
#[derive(Debug, Default)]
pub(crate) struct Hop {
    says_close: bool,
    says_keep_alive: bool,
    /// Whether it has a transfer encoding, and whether that is one that is understood.
    pub(crate) is_encoded: bool,
    pub(crate) is_chunked: bool,
    /// How often its length is told, and the length if it is one.
    pub(crate) lengths: usize,
    pub(crate) length: Option<u64>,
    /// What is spoken from now on, if both agree.
    pub(crate) upgrade: Option<HeaderValue>,
    /// Names of headers that end here as well.
    nominated: SmallVec<[HeaderName; 1]>,
}

impl Head {
    /// Takes a head from what has come in; `None` if it is not whole yet.
    pub(crate) fn parse(input: &mut BytesMut) -> Result<Option<Self>, &'static str> {
        let mut places = [const { MaybeUninit::uninit() }; MOST_HEADERS];
        let mut response = httparse::Response::new(&mut []);
        let parser = httparse::ParserConfig::default();
        let length = match parser.parse_response_with_uninit_headers(&mut response, input, &mut places) {
            Ok(httparse::Status::Complete(length)) if length <= LONGEST_HEAD => length,
            Ok(httparse::Status::Partial) if input.len() < LONGEST_HEAD => return Ok(None),
            Ok(_) | Err(httparse::Error::TooManyHeaders) => {
                return Err("the head of its answer is too large");
            }
            Err(_) => return Err("the head of its answer is none of HTTP/1"),
        };
        let status = response.code.and_then(|code| StatusCode::from_u16(code).ok());
        let status = status.ok_or("its status is none")?;
        let version = if response.version == Some(1) { Version::HTTP_11 } else { Version::HTTP_10 };
        let (mut hop, mut lines) = (Hop::default(), Lines::default());
        // Whether all that is handed on is written as we write it.
        let mut is_plain = true;
        for header in &*response.headers {
            if !hop.hear(header.name.as_bytes(), header.value)? {
                match line_of(input, header) {
                    Some(line) => lines.add(header.name.as_bytes(), line),
                    None => is_plain = false,
                }
            }
        }
        if is_plain && hop.nominated.is_empty() {
            // They are parts of one piece, so that none of them is copied.
            lines = lines.over(input.split_to(length).freeze(), hop.length);
        } else {
            let is_handed_on = |header: &&httparse::Header<'_>| {
                let is_own = |name: &HeaderName| header.name.eq_ignore_ascii_case(name.as_str());
                !is_about_hop(header.name.as_bytes()) && !hop.nominated.iter().any(is_own)
            };
            let handed_on = response.headers.iter().filter(is_handed_on);
            lines = Lines::anew(handed_on.map(|header| (header.name.as_bytes(), header.value)), hop.length);
            input.advance(length);
        }
        Ok(Some(Self { status, version, lines, hop }))
    }

    /// Whether the server keeps the connection.
    pub(crate) fn is_kept(&self) -> bool {
        !self.hop.says_close && (self.version == Version::HTTP_11 || self.hop.says_keep_alive)
    }

    /// How its body is framed, in answer to this method.
    pub(crate) fn framing(&self, method: &Method) -> Result<Framing, &'static str> {
        Framing::of(method, self.status, self.version, &self.hop)
    }

    /// What is spoken from now on, if that is what it says. Whoever switches has to say so to the next hop as well.
    pub fn upgrade(&self) -> Option<&HeaderValue> {
        self.hop.upgrade.as_ref().filter(|_| self.status == StatusCode::SWITCHING_PROTOCOLS)
    }
}

impl Hop {
    /// Whether a header ends here, and what it says if it does.
    fn hear(&mut self, name: &[u8], value: &[u8]) -> Result<bool, &'static str> {
        if !is_about_hop(name) {
            return Ok(false);
        }
        let is = |other: &[u8]| name.eq_ignore_ascii_case(other);
        if is(b"content-length") {
            self.lengths += 1;
            let is_number = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
            let digits = std::str::from_utf8(value).ok().filter(|_| is_number);
            self.length = digits.and_then(|digits| digits.parse().ok());
        } else if is(b"transfer-encoding") {
            // Two of them could be read in two ways.
            self.is_chunked = !self.is_encoded && value.eq_ignore_ascii_case(b"chunked");
            self.is_encoded = true;
        } else if is(b"upgrade") {
            self.upgrade = HeaderValue::from_bytes(value).ok();
        } else if is(b"connection") {
            for token in value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).filter(|token| !token.is_empty()) {
                if token.eq_ignore_ascii_case(b"close") {
                    self.says_close = true;
                } else if token.eq_ignore_ascii_case(b"keep-alive") {
                    self.says_keep_alive = true;
                } else {
                    self.nominated.push(HeaderName::from_bytes(token).ok().ok_or("`Connection` names no header")?);
                }
            }
        }
        Ok(true)
    }
}

type Span = std::ops::Range<usize>;

/// Where in the input the line of a header is; `None` if it is written in another way than we write lines.
fn line_of(input: &[u8], header: &httparse::Header<'_>) -> Option<Span> {
    let of = |part: &[u8]| (part.as_ptr() as usize).wrapping_sub(input.as_ptr() as usize);
    let start = of(header.name.as_bytes());
    let value = start + header.name.len() + 2;
    let end = value + header.value.len() + 2;
    let is_plain = of(header.value) == value
        && input.get(value - 2..value) == Some(b": ")
        && input.get(end - 2..end) == Some(b"\r\n");
    is_plain.then_some(start..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        headers
    }

    fn sent(method: &Method, lines: &[(&'static str, &'static str)], body: RequestBody) -> String {
        let own = [("x-forwarded-for", Some(&b"1.2.3.4"[..]))];
        let headers = headers(lines);
        let onward = Onward { method, target: "/a?b", host: None, headers: &headers, own: &own };
        let mut out = Vec::new();
        onward.encode(("api", "/v1"), body, None, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn what_concerns_one_hop_ends_here_and_nobody_speaks_for_us() {
        let client = [
            ("accept", "*/*"),
            ("host", "elsewhere"),
            ("connection", "close, x-secret"),
            ("x-secret", "1"),
            ("keep-alive", "timeout=5"),
            ("te", "trailers"),
            ("trailer", "x"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("content-length", "999"),
            ("expect", "100-continue"),
            ("proxy-connection", "keep-alive"),
            ("proxy-authorization", "Basic x"),
            ("x-forwarded-for", "6.6.6.6"),
            ("x_forwarded_for", "6.6.6.6"),
            ("x-forwarded_for", "6.6.6.6"),
            ("accept", "second"),
        ];
        let expected =
            "GET /v1/a?b HTTP/1.1\r\nhost: api\r\naccept: */*\r\naccept: second\r\nx-forwarded-for: 1.2.3.4\r\n\r\n";
        assert_eq!(sent(&Method::GET, &client, RequestBody::None), expected);
    }

    #[test]
    fn cookies_that_come_one_by_one_are_one_line() {
        let client = [("cookie", "a=1"), ("accept", "*/*"), ("cookie", "b=2; c=3"), ("x-last", "1"), ("cookie", "d")];
        let sent = sent(&Method::GET, &client, RequestBody::None);
        assert!(sent.contains("\r\ncookie: a=1; b=2; c=3; d\r\naccept: */*\r\n"), "{sent}");
        assert_eq!(sent.matches("cookie").count(), 1);
    }

    #[test]
    fn bodies_are_framed_in_one_way() {
        let own = "x-forwarded-for: 1.2.3.4\r\n";
        for (method, body, framed) in [
            (Method::POST, RequestBody::None, "content-length: 0\r\n"),
            (Method::DELETE, RequestBody::None, ""),
            (Method::PUT, RequestBody::Length(7), "content-length: 7\r\n"),
            (Method::GET, RequestBody::Chunked, "transfer-encoding: chunked\r\n"),
        ] {
            let expected = format!("{method} /v1/a?b HTTP/1.1\r\nhost: api\r\n{own}{framed}\r\n");
            assert_eq!(sent(&method, &[], body), expected);
        }
    }

    fn parsed(text: &str) -> Result<Option<Head>, &'static str> {
        Head::parse(&mut BytesMut::from(text))
    }

    #[test]
    fn answers_are_read_and_lose_what_ends_here() {
        let text = "HTTP/1.1 200 OK\r\nA: 1\r\nEmpty:\r\na: 2\r\nConnection: X-Own, content-length\r\nX-Own: 1\r\n\
                    Keep-Alive: 5\r\nContent-Length: 2\r\n\r\nrest";
        let mut input = BytesMut::from(text);
        let head = Head::parse(&mut input).unwrap().unwrap();
        assert_eq!(&input[..], b"rest");
        assert!(head.is_kept());
        let mut lines = Vec::new();
        head.lines.write_without(b"date", &mut lines);
        assert_eq!(String::from_utf8(lines).unwrap(), "A: 1\r\nEmpty: \r\na: 2\r\n");
        assert_eq!(head.lines.length(), Some(2));
        for cut in 0..text.len() - 4 {
            assert!(parsed(&text[..cut]).unwrap().is_none(), "{cut}");
        }
    }

    #[test]
    fn connections_are_kept_as_the_version_says() {
        for (head, is_kept) in [
            ("HTTP/1.1 200 OK\r\n\r\n", true),
            ("HTTP/1.1 200 OK\r\nConnection: Close\r\n\r\n", false),
            ("HTTP/1.0 200 OK\r\n\r\n", false),
            ("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n\r\n", true),
        ] {
            assert_eq!(parsed(head).unwrap().unwrap().is_kept(), is_kept, "{head}");
        }
    }

    #[test]
    fn what_is_no_answer_is_refused() {
        let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(200));
        let long = format!("HTTP/1.1 200 OK\r\na: {}", "b".repeat(70_000));
        for text in [
            "SSH-2.0-OpenSSH\r\n",
            "HTTP/2 200\r\n\r\n",
            "HTTP/1.1 20 OK\r\n\r\n",
            "HTTP/1.1 099 \r\n\r\n",
            &many,
            &long,
        ] {
            assert!(parsed(text).is_err(), "{}", &text[..text.len().min(20)]);
        }
    }
}
