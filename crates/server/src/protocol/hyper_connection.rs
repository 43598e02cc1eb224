//! A connection of HTTP/1 or HTTP/2, bounded in everything that a client can make large, slow or many.

use std::convert::Infallible;
use std::future::Future;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};

use crate::serve::{Drained, Stream};

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

/// Serves HTTP/1 to the end of the connection.
pub(crate) async fn serve_http1<B, F>(stream: Stream, mut drained: Drained, answer: impl Fn(Request<Incoming>) -> F)
where
    B: Body<Error = Infallible> + 'static,
    F: Future<Output = Response<B>>,
{
    let service = service_fn(|request| {
        let answer = answer(request);
        async move { Ok::<_, Infallible>(answer.await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_headers(MOST_HEADERS)
        .max_buf_size(HEAD_BUFFER)
        .pipeline_flush(true)
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
    stream: Stream,
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
