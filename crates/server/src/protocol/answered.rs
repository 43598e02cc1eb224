//! An answer, as far as HTTP/1 and HTTP/2 have to know it.
//!
//! Most are headers in a map, and a body. Where the head of one is bytes already, as a server's is that is passed on,
//! HTTP/1 takes these as they are, and a map is made of them for HTTP/2 alone.

use http::header::HeaderMap;
use http::{Response, StatusCode};
use hyper::body::Body as HttpBody;

/// An answer.
pub(crate) trait Answered {
    type Body: HttpBody;

    fn status(&self) -> StatusCode;

    fn body(&self) -> &Self::Body;

    /// Those of its headers that are in a map.
    fn headers(&self) -> &HeaderMap;

    /// Writes those that are not, as lines of HTTP/1: none about the connection, and none about the length.
    fn write_lines(&self, _: &mut Vec<u8>) -> Written {
        Written::default()
    }

    /// The map, to be used again, and the body.
    fn into_parts(self) -> (HeaderMap, Self::Body);

    /// All of it, for HTTP/2.
    fn into_response(self) -> Response<Self::Body>;
}

/// What lines that are written say.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Written {
    pub(crate) has_date: bool,
    /// How long the body is, or would be if it were asked for.
    pub(crate) length: Option<u64>,
}

impl<B: HttpBody> Answered for Response<B> {
    type Body = B;

    fn status(&self) -> StatusCode {
        self.status()
    }

    fn body(&self) -> &B {
        self.body()
    }

    fn headers(&self) -> &HeaderMap {
        self.headers()
    }

    fn into_parts(self) -> (HeaderMap, B) {
        let (parts, body) = self.into_parts();
        (parts.headers, body)
    }

    fn into_response(self) -> Self {
        self
    }
}
