//! What clients are told when a request does not get through.

use http::header::{CACHE_CONTROL, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{Response, StatusCode};
use http_body_util::Full;
use tollgate_gateway::Failure;

use super::body::Reply;
use super::jwt::BadToken;
use super::later::NotKept;
use crate::gate::Unavailable;
use crate::protocol::http::{self as told, Form};
use crate::protocol::http1::Malformed;

/// Why a request does not get through, other than by a limit.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// It can be read in two ways.
    Malformed(Malformed),
    /// It is not clear which host it is for.
    Host(&'static str),
    /// It is for nothing that a server could have.
    NoPath,
    /// Its path could be read in two ways.
    Path,
    NoTunnels,
    NoRoute,
    Unwelcome,
    /// It shows no key, or none that anybody has.
    Stranger {
        has_key: bool,
        /// Names of headers or parameters.
        places: Vec<String>,
    },
    /// It shows no good token.
    Token(BadToken),
    /// Its cost is no number.
    Cost(&'static str),
    Store(Unavailable),
    /// The servers have too much to do, with what matters more.
    Shed,
    Upstream(Failure),
    /// It would have to be kept, and its body cannot be.
    Body((StatusCode, String)),
    /// It would have to be kept, and cannot be.
    Later(NotKept),
    /// It asks too often what became of those that were kept.
    Asking,
}

impl From<Unavailable> for Refusal {
    fn from(error: Unavailable) -> Self {
        Self::Store(error)
    }
}

impl Refusal {
    fn status(&self) -> StatusCode {
        match self {
            Self::Malformed(why) => why.status(),
            Self::Host(_) | Self::NoPath | Self::Path | Self::Cost(_) => StatusCode::BAD_REQUEST,
            Self::NoTunnels => StatusCode::METHOD_NOT_ALLOWED,
            Self::NoRoute => StatusCode::NOT_FOUND,
            Self::Unwelcome => StatusCode::FORBIDDEN,
            Self::Stranger { .. } | Self::Token(_) => StatusCode::UNAUTHORIZED,
            Self::Store(_) | Self::Shed => StatusCode::SERVICE_UNAVAILABLE,
            Self::Upstream(failure) => failure.why.status(),
            Self::Body((status, _)) => *status,
            Self::Later(why) => why.status().0,
            Self::Asking => StatusCode::TOO_MANY_REQUESTS,
        }
    }

    /// Why nobody could answer, for those who run the servers; `None` where it is the request that is wrong.
    pub(super) fn cause(&self) -> Option<String> {
        let is_ours = matches!(self.status().as_u16(), 502..=504);
        is_ours.then(|| match self {
            Self::Upstream(failure) => failure.to_string(),
            Self::Shed => "its upstream has as much to do as `overload` lets it have".into(),
            _ => self.detail(),
        })
    }

    fn detail(&self) -> String {
        match self {
            Self::Malformed(why) => why.told().into(),
            Self::Host(why) | Self::Cost(why) => (*why).into(),
            Self::NoPath => "this names no path: send one that begins with a slash".into(),
            Self::Path => {
                "the path can be read in more than one way: leave out `.`, `..`, `\\` and escapes of `/`, `\\` and NUL, and escape `%`"
                    .into()
            }
            Self::NoTunnels => "this is no proxy for other hosts: CONNECT is not for it".into(),
            Self::NoRoute => "there is no route for this host, path and method".into(),
            Self::Unwelcome => "this address may not ask".into(),
            Self::Stranger { has_key, places } => {
                let why = if *has_key { "this key is not known" } else { "a key is needed" };
                format!("{why}: send yours in the header or query parameter `{}`", places.join("` or `"))
            }
            Self::Token(why) => why.told().into(),
            Self::Store(error) => error.to_string(),
            Self::Shed => "there is too much to do just now, and others come first: try again a little later".into(),
            Self::Upstream(failure) => failure.why.told().into(),
            Self::Body((_, why)) => format!("this is over a limit, and could only be kept for later: {why}"),
            Self::Later(why) => why.detail(),
            Self::Asking => "you ask too often what became of requests: ask again a little later".into(),
        }
    }
}

/// What `OPTIONS *` is told: that somebody is there. What can be asked for is another matter for each path.
pub(super) fn about_all() -> Response<Reply> {
    let mut answer = Response::new(Reply::Own(Full::default()));
    *answer.status_mut() = StatusCode::NO_CONTENT;
    answer
}

/// A refusal as an answer.
pub(super) fn refused(refusal: &Refusal, form: Form) -> Response<Reply> {
    if let Refusal::Upstream(failure) = refusal {
        tracing::debug!("{failure}");
    }
    let status = refusal.status();
    let answer = match refusal {
        Refusal::Shed => told::shed(refusal.detail(), form),
        _ => told::refuse(status, refusal.detail(), form),
    };
    let mut answer = answer.map(Reply::Own);
    let headers = answer.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    match refusal {
        Refusal::Stranger { .. } => drop(headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Key"))),
        Refusal::Token(why) => drop(headers.insert(WWW_AUTHENTICATE, challenge(*why))),
        _ => {}
    }
    if status == StatusCode::SERVICE_UNAVAILABLE || matches!(refusal, Refusal::Asking) {
        headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    if let Refusal::Later(why) = refusal {
        headers.insert(RETRY_AFTER, HeaderValue::from(why.status().1));
    }
    answer
}

/// As RFC 6750 has it: whoever shows nothing is told of no error.
fn challenge(why: BadToken) -> HeaderValue {
    let told = match why {
        BadToken::Missing => "Bearer".to_owned(),
        _ => format!("Bearer error=\"invalid_token\", error_description=\"{}\"", why.told()),
    };
    HeaderValue::try_from(told).unwrap_or_else(|_| HeaderValue::from_static("Bearer"))
}
