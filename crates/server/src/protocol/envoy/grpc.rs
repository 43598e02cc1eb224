//! What gRPC adds to HTTP/2: messages with a prefix of five bytes, and a status in the trailers.
//!
//! Written by hand because it is little, and because the answer to one question should cost little: one data frame and
//! one trailer, both made in advance. Compression is not offered; a client is told so and sends plain messages.

use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::{Body, Frame, Incoming};
use tokio::sync::mpsc;

use crate::protocol::budget::Share;

/// The largest message that is read, in bytes: as much as envoyproxy/ratelimit reads. Values can be headers of clients,
/// and Envoy lets pass what gets an error for an answer.
pub(crate) const LARGEST_MESSAGE: usize = 4 << 20;
/// Whether it is compressed, and its length.
pub(crate) const PREFIX: usize = 5;
/// How long a client may take to send the one message of a call.
const SLOWEST: Duration = Duration::from_secs(5);

static GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
static GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
static GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
static ACCEPT_ENCODING: HeaderName = HeaderName::from_static("grpc-accept-encoding");

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    Unknown = 2,
    InvalidArgument = 3,
    NotFound = 5,
    ResourceExhausted = 8,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
    DeadlineExceeded = 4,
}

/// A call that is not answered by a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) code: Code,
    pub(crate) why: String,
    /// Says which encodings of messages would have been understood.
    is_about_encoding: bool,
}

impl Failure {
    pub(crate) fn new(code: Code, why: impl Into<String>) -> Self {
        Self { code, why: why.into(), is_about_encoding: false }
    }

    /// What a client finds in the trailers, or instead of everything else.
    fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::with_capacity(4);
        headers.insert(GRPC_STATUS.clone(), HeaderValue::from(self.code as u16));
        if let Ok(why) = HeaderValue::try_from(percent_encoded(&self.why)) {
            headers.insert(GRPC_MESSAGE.clone(), why);
        }
        if self.is_about_encoding {
            headers.insert(ACCEPT_ENCODING.clone(), HeaderValue::from_static("identity"));
        }
        headers
    }

    /// An answer of trailers only.
    pub(crate) fn answer(&self) -> Response<Reply> {
        let mut answer = Response::new(Reply::Empty);
        *answer.headers_mut() = self.headers();
        answer.headers_mut().insert(CONTENT_TYPE, GRPC.clone());
        answer
    }
}

/// As the protocol wants messages: what is not printable ASCII in hexadecimal.
fn percent_encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'%' | ..0x20 | 0x7f.. => out.push_str(&format!("%{byte:02X}")),
            printable => out.push(char::from(printable)),
        }
    }
    out
}

/// The body of an answer.
#[derive(Debug)]
pub(crate) enum Reply {
    /// There is none.
    Empty,
    /// One message, then the trailers of success.
    Message(Bytes),
    /// The message was sent.
    Trailers,
    /// As many as somebody sends, with the trailers as the last. Without, the call goes on for as long as the client
    /// likes.
    Many(mpsc::Receiver<Frame<Bytes>>),
}

impl Body for Reply {
    type Data = Bytes;
    type Error = Infallible;

    #[inline]
    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = self.get_mut();
        let frame = match this {
            Self::Empty => return Poll::Ready(None),
            Self::Message(message) => {
                let frame = Frame::data(std::mem::take(message));
                *this = Self::Trailers;
                frame
            }
            Self::Trailers => {
                *this = Self::Empty;
                Frame::trailers(success())
            }
            Self::Many(frames) => return frames.poll_recv(cx).map(|frame| frame.map(Ok)),
        };
        Poll::Ready(Some(Ok(frame)))
    }

    #[inline]
    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Empty)
    }
}

fn success() -> HeaderMap {
    let mut trailers = HeaderMap::with_capacity(1);
    trailers.insert(GRPC_STATUS.clone(), HeaderValue::from_static("0"));
    trailers
}

/// The answer of a successful call. `message` has its prefix.
#[inline]
pub(crate) fn reply(message: Vec<u8>) -> Response<Reply> {
    with_body(Reply::Message(Bytes::from(message)))
}

fn with_body(body: Reply) -> Response<Reply> {
    let mut answer = Response::new(body);
    answer.headers_mut().insert(CONTENT_TYPE, GRPC.clone());
    answer
}

/// A message with its prefix.
pub(crate) fn framed(message: &[u8]) -> Vec<u8> {
    let mut framed = Vec::with_capacity(PREFIX + message.len());
    framed.push(0);
    framed.extend_from_slice(&(message.len() as u32).to_be_bytes());
    framed.extend_from_slice(message);
    framed
}

/// An answer of many messages, and where to send them. It is closed when the client has gone.
pub(crate) fn many() -> (Response<Reply>, Sender) {
    let (sender, receiver) = mpsc::channel(1);
    (with_body(Reply::Many(receiver)), Sender(sender))
}

/// Sends the messages of one call.
pub(crate) struct Sender(mpsc::Sender<Frame<Bytes>>);

impl Sender {
    /// False when the client has gone.
    pub(crate) async fn send(&self, message: &[u8]) -> bool {
        self.0.send(Frame::data(Bytes::from(framed(message)))).await.is_ok()
    }

    /// Ends the call.
    pub(crate) async fn end(self, failure: Option<Failure>) {
        let trailers = failure.map_or_else(success, |failure| failure.headers());
        let _client_has_gone = self.0.send(Frame::trailers(trailers)).await;
    }

    /// Completes when the client has gone.
    pub(crate) async fn closed(&self) {
        self.0.closed().await;
    }
}

/// Whoever does not speak gRPC is told so in plain HTTP.
#[inline]
pub(crate) fn refusal<B>(request: &Request<B>) -> Option<StatusCode> {
    let kind = request.headers().get(CONTENT_TYPE).map_or(&[][..], HeaderValue::as_bytes);
    let speaks_grpc = kind.strip_prefix(b"application/grpc").is_some_and(|rest| matches!(rest, [] | [b'+' | b';', ..]));
    match (speaks_grpc, request.method() == Method::POST) {
        (true, true) => None,
        (true, false) => Some(StatusCode::METHOD_NOT_ALLOWED),
        (false, _) => Some(StatusCode::UNSUPPORTED_MEDIA_TYPE),
    }
}

/// The one message of a call.
pub(crate) async fn one_message(body: Incoming) -> Result<Bytes, Failure> {
    let mut reading = pin!(read(body));
    // A message that is there already, as nearly all are, needs no timer.
    if let Poll::Ready(read) = std::future::poll_fn(|cx| Poll::Ready(reading.as_mut().poll(cx))).await {
        return read;
    }
    match tokio::time::timeout(SLOWEST, reading).await {
        Ok(read) => read,
        Err(_) => Err(Failure::new(Code::DeadlineExceeded, "the message did not arrive within 5 seconds")),
    }
}

async fn read(mut body: Incoming) -> Result<Bytes, Failure> {
    let mut whole = match next_data(&mut body).await? {
        Some(first) => first,
        None => Bytes::new(),
    };
    if !body.is_end_stream() {
        let mut parts = BytesMut::new();
        let mut share = Share::new();
        check_length(&whole)?;
        while let Some(more) = next_data(&mut body).await? {
            // Some clients end a call by a frame without data.
            if more.is_empty() {
                continue;
            }
            if parts.is_empty() {
                take(&mut share, whole.len())?;
                parts.extend_from_slice(&whole);
            }
            take(&mut share, more.len())?;
            parts.extend_from_slice(&more);
            check_length(&parts)?;
        }
        if !parts.is_empty() {
            whole = parts.freeze();
        }
    }
    let length = check_length(&whole)?;
    if whole.len() < PREFIX || length > whole.len() - PREFIX {
        return Err(Failure::new(Code::Internal, "the call ended in the middle of its message"));
    }
    whole.advance(PREFIX);
    if whole.len() > length {
        return Err(Failure::new(Code::Unimplemented, "this method takes one message"));
    }
    Ok(whole)
}

fn take(share: &mut Share<'_>, bytes: usize) -> Result<(), Failure> {
    let why = "too many large messages are on their way here; send it again later";
    share.take(bytes).then_some(()).ok_or_else(|| Failure::new(Code::ResourceExhausted, why))
}

async fn next_data(body: &mut Incoming) -> Result<Option<Bytes>, Failure> {
    loop {
        match std::future::poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await {
            None => return Ok(None),
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    return Ok(Some(data));
                }
            }
            // Nobody is left to hear it, but whoever collects metrics.
            Some(Err(_)) => return Err(Failure::new(Code::Unavailable, "the client has gone")),
        }
    }
}

/// How long the message at the beginning says it is, if that much can be read; zero if that is not known yet.
fn check_length(bytes: &[u8]) -> Result<usize, Failure> {
    let Some((&[compressed, a, b, c, d], _)) = bytes.split_first_chunk() else { return Ok(0) };
    match compressed {
        0 => {}
        1 => {
            let why = "compressed messages are not understood; send identity";
            return Err(Failure { is_about_encoding: true, ..Failure::new(Code::Unimplemented, why) });
        }
        _ => return Err(Failure::new(Code::Internal, "this is no message of gRPC: its first byte is neither 0 nor 1")),
    }
    let length = u32::from_be_bytes([a, b, c, d]) as usize;
    if length > LARGEST_MESSAGE {
        let why = format!("the message has {length} bytes; at most {LARGEST_MESSAGE} are read");
        return Err(Failure::new(Code::ResourceExhausted, why));
    }
    if bytes.len() > PREFIX + LARGEST_MESSAGE {
        return Err(Failure::new(Code::Unimplemented, "this method takes one message"));
    }
    Ok(length)
}

/// Messages that arrive one after the other.
pub(crate) struct Messages {
    body: Incoming,
    arrived: BytesMut,
}

/// The largest of messages that arrive one after the other, in bytes: those of reflection, which are names.
const LARGEST_OF_MANY: usize = 16 << 10;

impl Messages {
    pub(crate) fn new(body: Incoming) -> Self {
        Self { body, arrived: BytesMut::new() }
    }

    /// `None` when the client has no more to say.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        loop {
            if let Some((prefix, _)) = self.arrived.split_first_chunk::<PREFIX>() {
                let length = check_length(prefix)?;
                if length > LARGEST_OF_MANY {
                    let why = format!("the message has {length} bytes; at most {LARGEST_OF_MANY} are read");
                    return Err(Failure::new(Code::ResourceExhausted, why));
                }
                if self.arrived.len() >= PREFIX + length {
                    self.arrived.advance(PREFIX);
                    return Ok(Some(self.arrived.split_to(length).freeze()));
                }
            }
            match next_data(&mut self.body).await? {
                Some(data) => self.arrived.extend_from_slice(&data),
                None if self.arrived.is_empty() => return Ok(None),
                None => return Err(Failure::new(Code::Internal, "the call ended in the middle of a message")),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_checked() {
        let code = |bytes: &[u8]| check_length(bytes).map_err(|failure| failure.code);
        assert_eq!(code(&[]), Ok(0));
        assert_eq!(code(&[0, 0, 0]), Ok(0));
        assert_eq!(code(&[0, 0, 0, 1, 2]), Ok(258));
        assert_eq!(code(&[0, 0, 64, 0, 0]), Ok(LARGEST_MESSAGE));
        assert_eq!(code(&[0, 0, 64, 0, 1]), Err(Code::ResourceExhausted));
        assert_eq!(code(&[0, 255, 255, 255, 255]), Err(Code::ResourceExhausted));
        assert_eq!(code(&[1, 0, 0, 0, 2]), Err(Code::Unimplemented));
        assert_eq!(code(&[2, 0, 0, 0, 2]), Err(Code::Internal));
    }

    #[test]
    fn texts_of_failures_are_plain_ascii() {
        assert_eq!(percent_encoded("100 % ü\n~"), "100 %25 %C3%BC%0A~");
        let headers = Failure::new(Code::InvalidArgument, "line\r\nbreak").headers();
        assert_eq!(headers[&GRPC_STATUS], "3");
        assert_eq!(headers[&GRPC_MESSAGE], "line%0D%0Abreak");
    }
}
