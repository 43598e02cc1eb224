//! A connection of HTTP/1 or HTTP/2, bounded in everything that a client can make large, slow or many.
//!
//! Which of the two it is, the first bytes say where both are welcome: a client that agreed on HTTP/2 by ALPN, or knows, begins with
//! its preface.

use std::convert::Infallible;
use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONNECTION;
use http::{HeaderValue, Request, Response};
use hyper::body::{Body, Incoming};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};

use super::rewound::Rewound;
use crate::serve::{Drained, Phase, Stream};

/// How long a client may take to send the head of a request, and how long an idle connection is kept.
const HEADER_TIMEOUT: Duration = Duration::from_secs(60);
const MOST_HEADERS: usize = 64;
/// The longest head of a request over HTTP/1, in bytes.
const HEAD_BUFFER: usize = 32 << 10;
const HEADER_LIST: u32 = 16 << 10;
const MOST_STREAMS: u32 = 1_000;
const PING_EVERY: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(10);
/// Streams that a client reset before they were answered; more of them end the connection.
const MOST_RESETS: usize = 64;

/// What every client of HTTP/2 sends first.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Serves whichever of HTTP/1 and HTTP/2 the client speaks, to the end of the connection. The client has `patience` to begin, and
/// to send each head.
pub(crate) async fn serve_http<B, F>(
    mut stream: Stream,
    mut drained: Drained,
    patience: Duration,
    answer: impl Fn(Request<Incoming>) -> F + Clone,
) where
    B: Body<Error = Infallible> + Send + 'static,
    B::Data: Send,
    F: Future<Output = Response<B>> + Send + 'static,
{
    let begun = tokio::select! {
        biased;
        begun = tokio::time::timeout(patience, begin(&mut stream)) => begun,
        () = drained.closing() => return,
    };
    let Ok(Some(Begun { first, is_http2 })) = begun else { return };
    let stream = Rewound::new(first, stream);
    if is_http2 {
        serve_http2(stream, drained, answer).await;
    } else {
        serve_http1_within(patience, stream, drained, answer).await;
    }
}

/// How a client begins.
struct Begun {
    first: Bytes,
    is_http2: bool,
}

/// Reads until it is clear what the client speaks. `None` when it has gone.
async fn begin(stream: &mut Stream) -> Option<Begun> {
    let mut first = Vec::with_capacity(PREFACE.len());
    let mut wanted = stream.take(PREFACE.len() as u64);
    loop {
        if wanted.read_buf(&mut first).await.ok()? == 0 {
            return None;
        }
        let is_http2 = first == PREFACE;
        if is_http2 || !PREFACE.starts_with(&first) {
            return Some(Begun { first: first.into(), is_http2 });
        }
    }
}

/// Serves HTTP/1 to the end of the connection.
pub(crate) async fn serve_http1<B, F>(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    drained: Drained,
    answer: impl Fn(Request<Incoming>) -> F,
) where
    B: Body<Error = Infallible> + 'static,
    F: Future<Output = Response<B>>,
{
    serve_http1_within(HEADER_TIMEOUT, stream, drained, answer).await;
}

async fn serve_http1_within<B, F>(
    patience: Duration,
    stream: impl AsyncRead + AsyncWrite + Unpin,
    mut drained: Drained,
    answer: impl Fn(Request<Incoming>) -> F,
) where
    B: Body<Error = Infallible> + 'static,
    F: Future<Output = Response<B>>,
{
    let leaving = drained.clone();
    let service = service_fn(|request| {
        let answer = answer(request);
        let leaving = &leaving;
        async move {
            let mut answer = answer.await;
            if leaving.phase() >= Phase::Leaving {
                // The client goes on elsewhere, before this end is closed under its next request.
                answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            Ok::<_, Infallible>(answer)
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(patience)
        .max_headers(MOST_HEADERS)
        .max_buf_size(HEAD_BUFFER)
        // Answers are short: to copy one behind its head costs less than to hand the system two pieces.
        .writev(false)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        _ = &mut connection => return,
        () = drained.closing() => connection.as_mut().graceful_shutdown(),
    }
    // How it ends is the client's business.
    let _ = connection.await;
}

/// Serves HTTP/2 to the end of the connection.
pub(crate) async fn serve_http2<B, F>(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    mut drained: Drained,
    answer: impl Fn(Request<Incoming>) -> F + Clone,
) where
    B: Body<Error = Infallible> + Send + 'static,
    B::Data: Send,
    F: Future<Output = Response<B>> + Send + 'static,
{
    let service = service_fn(|request| {
        let answer = answer(request);
        async move { Ok::<_, Infallible>(answer.await) }
    });
    let connection = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_concurrent_streams(MOST_STREAMS)
        .max_header_list_size(HEADER_LIST)
        .max_pending_accept_reset_streams(MOST_RESETS)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        _ = &mut connection => return,
        () = drained.closing() => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}
