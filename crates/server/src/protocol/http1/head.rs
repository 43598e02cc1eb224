//! The head of a request of HTTP/1: bytes to a request, and how its body is framed.
//!
//! A head that could be read in two ways is refused ([`super::scan`] says why), and so is what is no HTTP. What is in
//! order and in one piece is gone over once. Names and values are parts of the piece that came in: nothing of
//! them is copied.

use std::mem::MaybeUninit;
use std::ops::Range;

use bytes::{Bytes, BytesMut};
use http::header::{self, HeaderName, HeaderValue};
use http::{Method, Request, Uri, Version};
use smallvec::SmallVec;
use tollgate_gateway::{recycle, spare_headers};

use super::malformed::Malformed;
use super::scan::{self, Most, Scan, Scanned};
use crate::protocol::body::Body;

/// The most headers of a request, and the most bytes of its head.
const MOST_HEADERS: usize = 64;
pub(crate) const MOST: Most = Most { bytes: 32 << 10, headers: MOST_HEADERS };

/// A request whose body is still to be looked for.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) request: Request<Body>,
    pub(super) framing: Framing,
    /// Whether the client wants to ask again on this connection.
    pub(super) keeps: bool,
    /// Whether it sends the body only when it is told to.
    pub(super) expects: bool,
}

/// How the body of a request is framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    Length(u64),
    Chunked,
}

/// What there is of a head.
#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "nearly all are the largest, and memory for each would cost more than to move it"
)]
pub(super) enum Found {
    /// More is to come.
    Half,
    Request(Asked),
    Bad(Malformed),
}

/// Takes a head from what has come in. `half` is what is known of one that was not whole the last time.
pub(super) fn take(input: &mut BytesMut, half: &mut Option<Scan>, most: Most) -> Found {
    if !begins(input) {
        return Found::Bad(Malformed::NoHttp);
    }
    if half.is_none()
        && let Some(found) = parse(input, most)
    {
        return found;
    }
    match half.get_or_insert_default().look(input, most) {
        Scanned::Half => Found::Half,
        Scanned::Bad(why) => Found::Bad(why),
        Scanned::Whole(_) => {
            *half = None;
            parse(input, most).unwrap_or_else(|| Found::Bad(wrong(input, most)))
        }
    }
}

/// What is wrong with a head that is whole: its first line, or one of its headers.
fn wrong(head: &[u8], most: Most) -> Malformed {
    let first = head.split(|byte| *byte == b'\n').find(|line| *line != b"\r").unwrap_or_default();
    let mut alone = BytesMut::from(first);
    alone.extend_from_slice(b"\n\r\n");
    let version = first.trim_ascii_end().rsplit(|byte| *byte == b' ').next().unwrap_or_default();
    match parse(&mut alone, most) {
        Some(Found::Request(_)) => Malformed::Header,
        _ if version.starts_with(b"HTTP/") && !matches!(version, b"HTTP/1.0" | b"HTTP/1.1") => Malformed::Version,
        _ => Malformed::Line,
    }
}

/// Whether a request may begin so: those who speak something else altogether need not be waited for.
fn begins(input: &[u8]) -> bool {
    let mut input = input;
    // Empty lines before a request are nothing.
    while let [b'\r', b'\n', rest @ ..] = input {
        input = rest;
    }
    match input {
        [] | [b'\r'] | [b'\n', ..] => true,
        [first, ..] => first.is_ascii_graphic(),
    }
}

type Span = Range<usize>;

/// A head that is whole and in order; nothing is taken from the input where there is none.
fn parse(input: &mut BytesMut, most: Most) -> Option<Found> {
    let mut places = [const { MaybeUninit::uninit() }; MOST_HEADERS];
    let places = places.get_mut(..most.headers)?;
    let mut head = httparse::Request::new(&mut []);
    let parser = httparse::ParserConfig::default();
    let Ok(httparse::Status::Complete(length)) = parser.parse_request_with_uninit_headers(&mut head, input, places)
    else {
        return None;
    };
    let (method, path) = (head.method?, head.path?);
    let is_old = head.version? == 0;
    let before = span(input, method.as_bytes()).start;
    let is_in_order =
        input.get(..length)?.ends_with(b"\r\n\r\n") && input.get(..before)?.chunks(2).all(|line| line == b"\r\n");
    if length > most.bytes || !is_in_order {
        return None;
    }
    let method = Method::from_bytes(method.as_bytes()).ok()?;
    let path = span(input, path.as_bytes());
    let mut told = Told { is_old, length: None, is_chunked: false, closes: is_old, says_close: false, expects: false };
    let mut spans: SmallVec<[(Span, Span); 16]> = SmallVec::new();
    for header in &*head.headers {
        let name = span(input, header.name.as_bytes());
        let is_line_before = input.get(..name.start)?.ends_with(b"\r\n");
        if !is_line_before || !told.hear(header.name.as_bytes(), header.value) {
            return None;
        }
        spans.push((name, span(input, header.value)));
    }
    if told.is_chunked && told.length.is_some() {
        return None;
    }
    let bytes = input.split_to(length).freeze();
    Some(match Uri::from_maybe_shared(bytes.slice(path)) {
        Ok(uri) => Found::Request(told.asked(method, uri, &bytes, &spans)),
        Err(_) => Found::Bad(Malformed::Line),
    })
}

/// Where in the input a part of it is; anywhere if it is empty.
fn span(input: &[u8], part: &[u8]) -> Span {
    if part.is_empty() {
        return 0..0;
    }
    let start = (part.as_ptr() as usize).wrapping_sub(input.as_ptr() as usize);
    start..start + part.len()
}

/// What the headers say about the connection and the body.
struct Told {
    is_old: bool,
    length: Option<u64>,
    is_chunked: bool,
    closes: bool,
    says_close: bool,
    expects: bool,
}

impl Told {
    /// Whether a header can be read in one way only.
    fn hear(&mut self, name: &[u8], value: &[u8]) -> bool {
        let is = |other: &[u8]| name.eq_ignore_ascii_case(other);
        // Most are of no interest, which their lengths tell.
        match name.len() {
            14 if is(b"content-length") => {
                let length = scan::length(value).filter(|_| self.length.is_none());
                self.length = length;
                length.is_some()
            }
            17 if is(b"transfer-encoding") => {
                let is_good = !self.is_old && !self.is_chunked && value.eq_ignore_ascii_case(b"chunked");
                self.is_chunked = true;
                is_good
            }
            10 if is(b"connection") => {
                for token in value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
                    self.says_close |= token.eq_ignore_ascii_case(b"close");
                    self.closes &= !token.eq_ignore_ascii_case(b"keep-alive");
                }
                true
            }
            6 if is(b"expect") => {
                self.expects = value.eq_ignore_ascii_case(b"100-continue");
                true
            }
            _ => true,
        }
    }

    fn asked(self, method: Method, uri: Uri, bytes: &Bytes, spans: &[(Span, Span)]) -> Asked {
        let mut request = Request::new(Body::Empty);
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        *request.version_mut() = if self.is_old { Version::HTTP_10 } else { Version::HTTP_11 };
        let mut headers = spare_headers(spans.len());
        for (name, value) in spans {
            let name = bytes.get(name.clone()).and_then(|name| HeaderName::from_bytes(name).ok());
            let value = HeaderValue::from_maybe_shared(bytes.slice(value.clone())).ok();
            // Both were found to be what they are.
            if let (Some(name), Some(value)) = (name, value) {
                headers.append(name, value);
            }
        }
        recycle(std::mem::replace(request.headers_mut(), headers));
        let framing = if self.is_chunked { Framing::Chunked } else { Framing::Length(self.length.unwrap_or(0)) };
        let keeps = !self.closes && !self.says_close;
        Asked { request, framing, keeps, expects: self.expects && !self.is_old }
    }
}

/// What is asked about in place of a head that is refused: what is wrong with it is beside it, and nothing follows.
pub(super) fn in_its_place(why: Malformed) -> Asked {
    let mut request = Request::new(Body::Empty);
    request.headers_mut().insert(header::HOST, HeaderValue::from_static("-"));
    request.extensions_mut().insert(why);
    Asked { request, framing: Framing::Length(0), keeps: false, expects: false }
}
