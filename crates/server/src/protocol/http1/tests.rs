//! The reader of requests and the writer of answers, in whatever pieces bytes come and go.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http::header::{HeaderMap, HeaderValue};
use http::{Method, Request, Response, StatusCode, Version};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use proptest::prelude::*;
use tollgate_gateway::Outgoing;

use super::answer::{About, Flow, encode};
use super::fuzz::{Seen, requests};
use super::malformed::Malformed;
use super::scan::Most;
use crate::protocol::answered::{Answered, Written};

const MOST: Most = Most { bytes: 300, headers: 4 };

/// What is read of these bytes, in pieces of this size.
fn read(bytes: &[u8], piece: usize) -> Vec<Seen> {
    requests(bytes, |_| piece, MOST)
}

fn asked(line: &str, body: &str, keeps: bool) -> Seen {
    Seen::Request { line: line.to_owned(), body: body.as_bytes().to_vec(), keeps }
}

#[test]
fn what_is_clear_is_read_in_whatever_pieces() {
    let text = "\r\nPOST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 45\r\n\r\nPOST / HTTP/1.1\ncontent-length: 1\r\nx: \n\r\n\r\n--\
                GET /b HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n\
                POST /c HTTP/1.1\r\nTRANSFER-encoding:\t Chunked \r\n\r\n\
                5;x=\"y\"\r\na\n\nb\n\r\n0a \r\n0123456789\r\n0\r\nX: 1\r\n\r\n\
                GET /d HTTP/1.1\r\nHost:\r\nContent-Length: 0\r\nConnection: x, close\r\n\r\nGET /e HTTP/1.0\r\n\r\nGET /f HTT";
    let expected = [
        asked("POST /a HTTP/1.1", "POST / HTTP/1.1\ncontent-length: 1\r\nx: \n\r\n\r\n--", true),
        asked("GET /b HTTP/1.0", "", true),
        asked("POST /c HTTP/1.1", "a\n\nb\n0123456789", true),
        asked("GET /d HTTP/1.1", "", false),
        asked("GET /e HTTP/1.0", "", false),
        Seen::Half,
    ];
    for piece in 1..text.len() {
        assert_eq!(read(text.as_bytes(), piece), expected, "{piece}");
    }
}

#[test]
fn what_can_be_read_in_two_ways_is_refused_where_it_begins() {
    let good = "POST /ok HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc";
    let large = format!("GET / HTTP/1.1\r\nx: {}", "y".repeat(300));
    for (head, why) in [
        ("GET / HTTP/1.1\nHost: a\r\n\r\n", Malformed::LineFeed),
        ("GET / HTTP/1.1\r\nHost: a\n\r\n", Malformed::LineFeed),
        ("GET / HTTP/1.1\r\nHost: a\r\n\n", Malformed::LineFeed),
        ("GET / HTTP/1.1\r\nHost: a\nx: y\r\n\r\n", Malformed::LineFeed),
        ("GET / HTTP/1.1\n\r\n", Malformed::LineFeed),
        ("\nGET / HTTP/1.1\r\n\r\n", Malformed::LineFeed),
        ("\r\n\nGET / HTTP/1.1\r\n\r\n", Malformed::LineFeed),
        ("GET / HTTP/1.1\r\nHost: a\r\n b\r\n\r\n", Malformed::Folded),
        ("POST / HTTP/1.1\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", Malformed::Lengths),
        ("POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\ncontent-length: 4\r\n\r\n0\r\n\r\n", Malformed::Lengths),
        ("POST / HTTP/1.1\r\nContent-Length: 4\r\nContent-Length: 4\r\n\r\nabcd", Malformed::Lengths),
        ("POST / HTTP/1.1\r\nContent-Length: 4, 4\r\n\r\nabcd", Malformed::Length),
        ("POST / HTTP/1.1\r\nContent-Length: +4\r\n\r\nabcd", Malformed::Length),
        ("POST / HTTP/1.1\r\nContent-Length:\r\n\r\nabcd", Malformed::Length),
        ("POST / HTTP/1.1\r\nContent-Length: 18446744073709551615\r\n\r\n", Malformed::Length),
        ("POST / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", Malformed::Encoding),
        ("POST / HTTP/1.1\r\nTransfer-Encoding: identity\r\n\r\n", Malformed::Encoding),
        (
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            Malformed::Encoding,
        ),
        ("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", Malformed::Encoding),
        ("GET / HTTP/1.1\r\na:1\r\nb:1\r\nc:1\r\nd:1\r\ne:1\r\n\r\n", Malformed::TooMany),
        (&large, Malformed::TooLarge),
    ] {
        let bytes = format!("{good}{head}GET /smuggled HTTP/1.1\r\n\r\n");
        for piece in 1..bytes.len() {
            let expected = [asked("POST /ok HTTP/1.1", "abc", true), Seen::Refused(why)];
            assert_eq!(read(bytes.as_bytes(), piece), expected, "{piece}: {head}");
        }
    }
}

#[test]
fn what_is_no_http_is_told_what_is_wrong_in_whatever_pieces() {
    for (head, why) in [
        ("\x16\x03\x01", Malformed::NoHttp),
        ("\0\r\n\r\n", Malformed::NoHttp),
        ("\r\n\x16", Malformed::NoHttp),
        ("\rGET / HTTP/1.1\r\n\r\n", Malformed::NoHttp),
        ("NONSENSE\r\n\r\n", Malformed::Line),
        ("GET  / HTTP/1.1\r\n\r\n", Malformed::Line),
        ("GET http://[/ HTTP/1.1\r\n\r\n", Malformed::Line),
        ("GET http://[/ HTTP/1.1\r\nX Y: 1\r\n\r\n", Malformed::Line),
        ("GET / HTTP/1.2\r\n\r\n", Malformed::Version),
        ("\r\nGET / HTTP/3\r\nX Y: 1\r\n\r\n", Malformed::Version),
        ("GET / HTTP/1.1\r\nX Y: 1\r\n\r\n", Malformed::Header),
        ("GET / HTTP/1.1\r\nContent-Length : 1\r\n\r\n", Malformed::Header),
        ("GET / HTTP/1.1\r\n: 1\r\n\r\n", Malformed::Header),
        ("\r\nGET / HTTP/1.1\r\nX: a\rb\r\n\r\n", Malformed::Header),
        ("GET / HTTP/1.1\r\nX: a\0b\r\n\r\n", Malformed::Header),
    ] {
        for piece in 1..=head.len() {
            assert_eq!(read(head.as_bytes(), piece), [Seen::Refused(why)], "{piece}: {head:?}");
        }
    }
}

#[test]
fn a_body_that_is_not_framed_is_broken_and_hides_nothing() {
    let endless = format!("0\r\n{}", "x: y\r\n".repeat(4_000));
    let extended = format!("1;{}\r\n", "x".repeat(17_000));
    for body in [
        "x\r\n",
        "\r\n",
        "1\na",
        "1\r\nab",
        "1\r\na\n0",
        "11111111111111111\r\n",
        "0\r\n\n",
        "0\r\nx\ry",
        "1;\n",
        "1 1\r\n",
        "-1\r\n",
        "0x1\r\na\r\n",
        &endless,
        &extended,
    ] {
        let bytes = format!("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{body}GET / HTTP/1.1\r\n\r\n");
        for piece in (1..bytes.len()).step_by(bytes.len() / 200 + 1) {
            assert_eq!(read(bytes.as_bytes(), piece), [Seen::Broken], "{piece}: {}", &body[..body.len().min(20)]);
        }
    }
}

proptest! {
    #[test]
    fn whatever_comes_is_the_same_in_whatever_pieces(
        words in prop::collection::vec(prop::sample::select(vec![
            "GET / HTTP/1.1\r\n", "POST / HTTP/1.0\r\n", "Host: a\r\n", "content-length: 3\r\n", "\r\n", "abc", "0\r\n\r\n",
            "Transfer-Encoding: chunked\r\n", "3\r\nabc\r\n", "\n", "\0", "é", " ", "connection: close\r\n", "\r", ":", "3;x\r\n",
        ]), 0..20),
        piece in 1_usize..40,
    ) {
        let bytes = words.concat();
        prop_assert_eq!(read(bytes.as_bytes(), piece), read(bytes.as_bytes(), bytes.len().max(1)));
    }

    #[test]
    fn garbage_is_an_answer_and_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), piece in 1_usize..20) {
        prop_assert_eq!(read(&bytes, piece), read(&bytes, bytes.len().max(1)));
    }
}

/// A request, as far as answers have to know it.
fn about(method: Method, version: Version, keeps: bool) -> About {
    let mut request = Request::new(());
    (*request.method_mut(), *request.version_mut()) = (method, version);
    About::of(&request, keeps)
}

/// A body of this length, if that is told.
struct Sized(Option<u64>);

impl HttpBody for Sized {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Poll::Ready(None)
    }

    fn size_hint(&self) -> SizeHint {
        self.0.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

/// An answer, parts of whose head are lines already.
struct Made {
    response: Response<Sized>,
    length: Option<u64>,
}

impl Answered for Made {
    type Body = Sized;

    fn status(&self) -> StatusCode {
        self.response.status()
    }

    fn body(&self) -> &Sized {
        self.response.body()
    }

    fn headers(&self) -> &HeaderMap {
        self.response.headers()
    }

    fn write_lines(&self, out: &mut Vec<u8>) -> Written {
        out.extend_from_slice(b"Date: today\r\n");
        Written { has_date: true, length: self.length }
    }

    fn into_parts(self) -> (HeaderMap, Sized) {
        Answered::into_parts(self.response)
    }

    fn into_response(self) -> Response<Sized> {
        self.response
    }
}

#[test]
fn heads_say_how_bodies_are_framed_and_whether_the_connection_goes_on() {
    let (new, old) = (Version::HTTP_11, Version::HTTP_10);
    let close = &[("connection", "close")][..];
    let (none, chunked) = (&[][..], "transfer-encoding: chunked\r\n");
    for (method, version, keeps, status, lines, size, said, told, flow, goes_on) in [
        (Method::GET, new, true, 200, none, Some(5), Some(5), "content-length: 5\r\n", Flow::Length(5), true),
        (Method::GET, new, true, 200, none, Some(0), None, "content-length: 0\r\n", Flow::Done, true),
        (Method::GET, new, true, 200, none, None, None, chunked, Flow::Chunked, true),
        (
            Method::GET,
            new,
            false,
            200,
            none,
            Some(0),
            None,
            "content-length: 0\r\nconnection: close\r\n",
            Flow::Done,
            false,
        ),
        (
            Method::GET,
            new,
            true,
            503,
            close,
            Some(0),
            None,
            "content-length: 0\r\nconnection: close\r\n",
            Flow::Done,
            false,
        ),
        (Method::GET, new, true, 200, &[("content-length", "9")], None, None, chunked, Flow::Chunked, true),
        (
            Method::GET,
            new,
            true,
            200,
            &[("x", "y")],
            Some(1),
            None,
            "x: y\r\ncontent-length: 1\r\n",
            Flow::Length(1),
            true,
        ),
        (Method::GET, old, false, 200, none, Some(5), None, "content-length: 5\r\n", Flow::Length(5), false),
        (
            Method::GET,
            old,
            true,
            200,
            none,
            Some(5),
            None,
            "content-length: 5\r\nconnection: keep-alive\r\n",
            Flow::Length(5),
            true,
        ),
        (Method::GET, old, true, 200, none, None, None, "", Flow::ToTheEnd, false),
        (Method::HEAD, new, true, 200, none, Some(0), Some(9), "content-length: 9\r\n", Flow::Done, true),
        (Method::HEAD, new, true, 200, none, Some(0), Some(0), "content-length: 0\r\n", Flow::Done, true),
        (Method::HEAD, new, true, 200, none, Some(5), None, "content-length: 5\r\n", Flow::Done, true),
        (Method::HEAD, new, true, 200, none, Some(0), None, "", Flow::Done, true),
        (Method::HEAD, new, true, 200, none, None, None, "", Flow::Done, true),
        (Method::GET, new, true, 204, none, Some(0), None, "", Flow::Done, true),
        (Method::GET, new, true, 304, none, Some(0), Some(9), "", Flow::Done, true),
        (
            Method::GET,
            new,
            true,
            101,
            &[("connection", "upgrade")],
            Some(0),
            None,
            "connection: upgrade\r\n",
            Flow::Done,
            true,
        ),
    ] {
        let (mut about, mut out) = (about(method.clone(), version, keeps), Vec::new());
        let mut response = Response::new(Sized(size));
        *response.status_mut() = StatusCode::from_u16(status).unwrap();
        for (name, value) in lines {
            response.headers_mut().append(*name, HeaderValue::from_static(value));
        }
        let found = encode(&mut about, &Made { response, length: said }, &mut out);
        let head = String::from_utf8(out).unwrap();
        let number = if version == new { "HTTP/1.1" } else { "HTTP/1.0" };
        let reason = StatusCode::from_u16(status).unwrap().canonical_reason().unwrap();
        let expected = format!("{number} {status} {reason}\r\nDate: today\r\n{told}\r\n");
        assert_eq!((&*head, found, about.keeps), (&*expected, flow, goes_on), "{method} {status} {size:?}");
    }
    let mut out = Vec::new();
    encode(&mut about(Method::GET, new, true), &Response::new(Sized(Some(0))), &mut out);
    assert!(String::from_utf8(out).unwrap().contains(" GMT\r\n\r\n"), "a date is said by us where nobody else does");
}

#[test]
fn bodies_are_as_long_as_was_promised() {
    let sent = |mut flow: Flow, pieces: &[&'static str]| {
        let mut out = Outgoing::default();
        pieces.iter().for_each(|piece| flow.put(Bytes::from_static(piece.as_bytes()), &mut out));
        let end = flow.end(&mut out);
        (String::from_utf8(out.buffer).unwrap(), end.is_some())
    };
    assert_eq!(
        sent(Flow::Chunked, &["hello", "", "world, and all of it"]),
        ("5\r\nhello\r\n14\r\nworld, and all of it\r\n0\r\n\r\n".into(), true)
    );
    assert_eq!(sent(Flow::Length(5), &["he", "llo"]), ("hello".into(), true));
    assert_eq!(sent(Flow::Length(5), &["hello", "more"]), ("hello".into(), true));
    assert_eq!(sent(Flow::Length(5), &["hello, world"]), ("hello".into(), true));
    assert_eq!(sent(Flow::Length(5), &["hell"]), ("hell".into(), false), "what is missing is not made up");
    assert_eq!(sent(Flow::ToTheEnd, &["he", "llo"]), ("hello".into(), true));
    assert_eq!(sent(Flow::Done, &["x"]), (String::new(), true));
}

#[test]
fn what_is_read_is_not_copied() {
    let mut input = BytesMut::from("GET /path HTTP/1.1\r\nHost: example\r\n\r\n");
    let start = input.as_ptr() as usize;
    let mut half = None;
    let super::Found::Request(asked) = super::head::take(&mut input, &mut half, MOST) else { panic!("it is one") };
    let host = asked.request.headers()["host"].as_bytes().as_ptr() as usize;
    assert!((start..start + 40).contains(&host) && input.is_empty());
}
