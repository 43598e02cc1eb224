//! Answers of HTTP/1: their heads as bytes, and how their bodies are framed.
//!
//! How long a body is, whether the connection goes on and what time it is, is said here and nowhere else: what an
//! answer says about these itself is left out, but for the length of what is not sent because only its head was asked
//! for.

use bytes::Bytes;
use http::header;
use http::{Method, Request, StatusCode, Version};
use hyper::body::Body as _;
use tollgate_gateway::Outgoing;

use super::date;
use crate::protocol::answered::Answered;
use crate::protocol::http::write_line;

/// What an answer has to know of its request.
#[derive(Clone, Copy, Debug)]
pub(super) struct About {
    is_head: bool,
    is_old: bool,
    /// Whether the connection goes on after it.
    pub(super) keeps: bool,
}

impl About {
    pub(super) fn of<B>(request: &Request<B>, keeps: bool) -> Self {
        let is_old = request.version() < Version::HTTP_11;
        Self { is_head: request.method() == Method::HEAD, is_old, keeps }
    }
}

/// How the body of an answer is framed, and how much of it is still to come.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Flow {
    /// Nothing, or nothing more.
    Done,
    Length(u64),
    Chunked,
    /// All that comes until the connection ends.
    ToTheEnd,
}

/// Writes the head of an answer; tells how its body goes, and in `about` whether the connection goes on.
pub(super) fn encode(about: &mut About, answer: &impl Answered, out: &mut Vec<u8>) -> Flow {
    let (status, headers, body) = (answer.status(), answer.headers(), answer.body());
    let length = if body.is_end_stream() { Some(0) } else { body.size_hint().exact() };
    let is_switch = status == StatusCode::SWITCHING_PROTOCOLS;
    begin(about.is_old, status, out);
    let written = answer.write_lines(out);
    let mut has_date = written.has_date;
    for (name, value) in headers {
        if *name == header::CONTENT_LENGTH || *name == header::TRANSFER_ENCODING {
            continue;
        }
        if *name == header::CONNECTION && !is_switch {
            about.keeps &= !value.as_bytes().eq_ignore_ascii_case(b"close");
            continue;
        }
        has_date |= *name == header::DATE;
        write_line(out, name, value);
    }
    let is_bare = status.is_informational() || [StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED].contains(&status);
    let flow = match length {
        _ if is_bare => Flow::Done,
        _ if about.is_head => {
            if let Some(length) = written.length.or_else(|| length.filter(|length| *length > 0)) {
                length_line(out, length);
            }
            Flow::Done
        }
        Some(length) => {
            length_line(out, length);
            if length == 0 { Flow::Done } else { Flow::Length(length) }
        }
        None if about.is_old => {
            about.keeps = false;
            Flow::ToTheEnd
        }
        None => {
            out.extend_from_slice(b"transfer-encoding: chunked\r\n");
            Flow::Chunked
        }
    };
    match (about.keeps, about.is_old) {
        _ if is_switch => {}
        (false, false) => out.extend_from_slice(b"connection: close\r\n"),
        (true, true) => out.extend_from_slice(b"connection: keep-alive\r\n"),
        _ => {}
    }
    if !has_date {
        date::line(out);
    }
    out.extend_from_slice(b"\r\n");
    flow
}

fn begin(is_old: bool, status: StatusCode, out: &mut Vec<u8>) {
    if status == StatusCode::OK && !is_old {
        return out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
    }
    let version: &[u8] = if is_old { b"HTTP/1.0 " } else { b"HTTP/1.1 " };
    // Something has to be said, as many clients expect it.
    let reason = status.canonical_reason().unwrap_or("<none>");
    for part in [version, status.as_str().as_bytes(), b" ", reason.as_bytes(), b"\r\n"] {
        out.extend_from_slice(part);
    }
}

fn length_line(out: &mut Vec<u8>, length: u64) {
    for part in [b"content-length: ", itoa::Buffer::new().format(length).as_bytes(), b"\r\n"] {
        out.extend_from_slice(part);
    }
}

impl Flow {
    /// Puts a piece of the body. No more than was promised ever goes out.
    pub(super) fn put(&mut self, mut data: Bytes, out: &mut Outgoing) {
        match self {
            _ if data.is_empty() => {}
            Self::Done => {}
            Self::Length(left) => {
                data.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= data.len() as u64;
                if *left == 0 {
                    *self = Self::Done;
                }
                out.put(data, b"");
            }
            Self::Chunked => out.put_chunk(data),
            Self::ToTheEnd => out.put(data, b""),
        }
    }

    /// Puts what says that this was all; `None` if more was promised.
    pub(super) fn end(&mut self, out: &mut Outgoing) -> Option<()> {
        match self {
            Self::Length(_) => return None,
            Self::Chunked => out.put_end(b"0\r\n\r\n", b"\r\n0\r\n\r\n"),
            Self::Done | Self::ToTheEnd => {}
        }
        *self = Self::Done;
        Some(())
    }
}
