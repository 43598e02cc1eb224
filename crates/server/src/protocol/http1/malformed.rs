//! What is wrong with the head of a request of HTTP/1 that is refused, and what is said about it.

use http::StatusCode;

/// What is wrong with the head of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Malformed {
    LineFeed,
    Folded,
    Lengths,
    Length,
    Encoding,
    TooLarge,
    TooMany,
    /// It does not begin as anything of HTTP does.
    NoHttp,
    /// Another version than those that are spoken here.
    Version,
    /// Its first line is no method, path and version.
    Line,
    /// One of its lines is no header.
    Header,
}

impl Malformed {
    pub(crate) fn status(self) -> StatusCode {
        match self {
            Self::TooLarge | Self::TooMany => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            _ => StatusCode::BAD_REQUEST,
        }
    }

    pub(crate) fn told(self) -> &'static str {
        match self {
            Self::LineFeed => "a line of the request ends in a line feed alone: end lines with CR LF",
            Self::Folded => "a header goes on in the next line: write it in one",
            Self::Lengths => {
                "the length of the body is told twice: send one Content-Length, or Transfer-Encoding: chunked"
            }
            Self::Length => "Content-Length is no number of bytes: write digits and nothing else",
            Self::Encoding => {
                "the transfer encoding is not supported: send Transfer-Encoding: chunked by HTTP/1.1, or a Content-Length"
            }
            Self::TooLarge => "the head of the request is too large: send shorter headers",
            Self::TooMany => "the request has too many headers: send fewer",
            Self::NoHttp => "this is no HTTP: speak HTTP/1.1 or HTTP/2, encrypted only where the port is",
            Self::Version => "this version of HTTP is not spoken here: send HTTP/1.1",
            Self::Line => {
                "the first line is no request: send a method, a path and HTTP/1.1, with one space between them"
            }
            Self::Header => {
                "a line of the request is no header: send a name, a colon and a value, without control characters"
            }
        }
    }
}
