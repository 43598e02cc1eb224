//! An answer on its way to a client: a server's, with what there is to say about limits, or one of our own; each with
//! the name of its request.

use http::header::{CONTENT_LENGTH, HeaderMap, HeaderValue};
use http::{Response, StatusCode};
use tollgate_gateway::Lines;

use super::body::Reply;
use super::{line, onward};
use crate::gate::Stood;
use crate::protocol::answered::{Answered, Written};
use crate::protocol::http::{Notice, write_line};

/// An answer.
pub(crate) struct Told {
    /// Headers of our own are in it, and the body, whosever that is.
    pub(super) response: Response<Reply>,
    pub(super) theirs: Option<Theirs>,
    /// What the request is called.
    pub(super) name: HeaderValue,
}

/// A server's own headers, and what clients are told beside them. Lists of the server's are added to, never taken away.
pub(super) struct Theirs {
    pub(super) lines: Lines,
    pub(super) notice: Notice,
    /// How the request waited, if it did.
    pub(super) stood: Option<Stood>,
}

impl Answered for Told {
    type Body = Reply;

    fn status(&self) -> StatusCode {
        self.response.status()
    }

    fn body(&self) -> &Reply {
        self.response.body()
    }

    fn headers(&self) -> &HeaderMap {
        self.response.headers()
    }

    fn write_lines(&self, out: &mut Vec<u8>) -> Written {
        let mut written = Written::default();
        if let Some(Theirs { lines, notice, stood }) = &self.theirs {
            lines.write_without(onward::REQUEST_ID.as_str().as_bytes(), out);
            written = Written { has_date: lines.has_date(), length: lines.length() };
            if let Some(stood) = *stood {
                line::tell_passed(stood, |name, value| write_line(out, &name, &value));
            }
            notice.write(out);
        }
        write_line(out, &onward::REQUEST_ID, &self.name);
        written
    }

    fn into_parts(self) -> (HeaderMap, Reply) {
        let (parts, body) = self.response.into_parts();
        (parts.headers, body)
    }

    fn into_response(self) -> Response<Reply> {
        let Self { mut response, theirs, name } = self;
        if let Some(Theirs { lines, notice, stood }) = theirs {
            let mut headers = lines.to_headers();
            headers.extend(std::mem::take(response.headers_mut()));
            if let Some(stood) = stood {
                line::tell_passed(stood, |name, value| _ = headers.append(name, value));
            }
            notice.tell(|name, value| _ = headers.append(name, value));
            // They have no body, and by HTTP/1 no length is told of it, either.
            if [StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED].contains(&response.status()) {
                headers.remove(CONTENT_LENGTH);
            }
            *response.headers_mut() = headers;
        }
        response.headers_mut().insert(onward::REQUEST_ID, name);
        response
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::header::{CONTENT_TYPE, HeaderName};

    use super::*;

    #[test]
    fn the_same_is_told_by_either_protocol() {
        let theirs = || Theirs {
            lines: Lines::of(
                &[("Server", "s"), ("X-Request-Id", "theirs"), ("RateLimit", "\"a\";r=1"), ("Date", "today")],
                7,
            ),
            notice: Notice::Other(vec![(HeaderName::from_static("ratelimit"), HeaderValue::from_static("\"b\";r=2"))]),
            stood: Some(Stood { position: 3, waited: Duration::from_millis(1_500) }),
        };
        for theirs in [Some(theirs()), None] {
            let is_theirs = theirs.is_some();
            let mut response = Response::new(Reply::empty());
            if !is_theirs {
                response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
            }
            let told = Told { response, theirs, name: HeaderValue::from_static("mine") };
            let mut out = Vec::new();
            let written = told.write_lines(&mut out);
            assert_eq!((written.has_date, written.length), if is_theirs { (true, Some(7)) } else { (false, None) });
            told.headers().iter().for_each(|(name, value)| write_line(&mut out, name, value));
            let mut by_lines: Vec<String> = String::from_utf8(out).unwrap().lines().map(str::to_owned).collect();
            let line =
                |line: &String| line.split_once(": ").map(|(name, value)| format!("{}: {value}", name.to_lowercase()));
            by_lines = by_lines.iter().filter_map(line).collect();
            let response = told.into_response();
            let by_map = response.headers().iter().filter(|(name, _)| *name != "content-length");
            let mut by_map: Vec<String> =
                by_map.map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
            by_lines.sort();
            by_map.sort();
            assert_eq!(by_lines, by_map);
            assert_eq!(by_lines.iter().filter(|line| line.starts_with("x-request-id: mine")).count(), 1);
            assert_eq!(by_lines.len(), if is_theirs { 7 } else { 2 });
        }
    }
    #[test]
    fn no_length_is_told_of_what_has_no_body() {
        for (status, length) in [(200, Some("7")), (204, None), (304, None)] {
            let theirs = Theirs { lines: Lines::of(&[], 7), notice: Notice::NONE, stood: None };
            let mut response = Response::new(Reply::empty());
            *response.status_mut() = StatusCode::from_u16(status).unwrap();
            let told = Told { response, theirs: Some(theirs), name: HeaderValue::from_static("mine") };
            let response = told.into_response();
            let told = response.headers().get(CONTENT_LENGTH).map(|length| length.to_str().unwrap());
            assert_eq!(told, length, "{status}");
        }
    }
}
