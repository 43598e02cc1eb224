//! A connection of HTTP/1 or HTTP/2, bounded in everything that a client can make large, slow or many.
//!
//! Which of the two it is, the first bytes say where both are welcome: a client that agreed on HTTP/2 by ALPN, or
//! knows, begins with its preface. HTTP/2 is hyper's; HTTP/1 is our own ([`super::http1`]).
//!
//! A connection of HTTP/1 that nothing is asked on for a moment rests: all that is needed to read and answer a request
//! is given back, and what remains is a socket that is waited for.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use pin_project_lite::pin_project;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::answered::Answered;
use super::body::Body;
use super::calm::Calm;
use super::http1::{self, Left};
use super::patient::Patient;
use super::rewound::Rewound;
use super::taken::{Taken, note};
use crate::serve::{Drain, Drained, Stream};

/// How long a client may take to send the head of a request, and how long an idle connection is kept.
const HEADER_TIMEOUT: Duration = Duration::from_secs(60);
const HEADER_LIST: u32 = 16 << 10;
/// Bytes that a client of HTTP/2 may send ahead: on one stream, and on all of a connection.
const STREAM_WINDOW: u32 = 64 << 10;
const CONNECTION_WINDOW: u32 = 1 << 20;
const PING_EVERY: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(10);
/// How long an answer may wait for a client to read what came before.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a client of HTTP/2 may take to begin where nothing else is spoken.
const PREFACE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection that was idle may take to end.
const FAREWELL: Duration = Duration::from_secs(1);
/// Streams that a client reset before they were looked at; more of them end the connection.
const MOST_RESETS: usize = 64;
/// A client that takes back more than half of what it asks, unanswered, and within this time twice as much as it may
/// ask at once, is left: all of it is work for limits and servers.
const RUSH: Duration = Duration::from_secs(60);

/// How long a client that is one too many may take to be told so.
const REFUSAL: Duration = Duration::from_secs(1);
/// What it is told.
const FULL: &str = r#"{"type":"about:blank","title":"Service Unavailable","status":503,"detail":"there are as many connections as --max-connections allows: use one that is open, or try again"}"#;
const FULL_FOR_GRPC: &str = "there are as many connections as --max-connections allows";

/// What every client of HTTP/2 sends first.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// What differs between the ports that speak HTTP/2.
struct Manners {
    most_streams: u32,
    write_timeout: Duration,
    /// How long a connection without a request is kept; for ever, if nothing is said.
    idle: Option<Duration>,
}

/// Serves whichever of HTTP/1 and HTTP/2 the client speaks, to the end of the connection. The client has `patience` to
/// begin, to send each head, to read its answers, and to ask again. With `asks`, requests of HTTP/1 that can be read in
/// two ways are asked about with what is wrong with them ([`http1::Malformed`]) in place of what they say; else they
/// get a status without words. Where an answer switched to another protocol, gives what it is spoken on.
pub(crate) async fn serve_http<B, F>(
    mut stream: Stream,
    mut drained: Drained,
    patience: Duration,
    asks: bool,
    answer: impl Fn(Request<Body>) -> F + Clone,
) -> Option<Rewound<Stream>>
where
    B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Failure>,
    F: Future<Output: Answered<Body = B>> + Send + 'static,
{
    let write_timeout = patience.min(WRITE_TIMEOUT);
    let mut is_known = false;
    loop {
        let begun = tokio::select! {
            biased;
            begun = tokio::time::timeout(patience, begin(&mut stream, is_known)) => begun.ok().flatten(),
            () = drained.closing() => None,
        };
        let Some(Begun { first, is_http2 }) = begun else {
            // Encrypted, an end that is not announced looks like one that somebody else made.
            let _ = tokio::time::timeout(FAREWELL, stream.shutdown()).await;
            return None;
        };
        if is_http2 {
            let manners = Manners { most_streams: 100, write_timeout, idle: Some(patience) };
            let answer = move |request: Request<Incoming>| answer(request.map(Body::Incoming));
            Box::pin(serve_http2(manners, Rewound::new(first.into(), stream), drained, answer)).await;
            return None;
        }
        is_known = true;
        let manners = http1::Manners { patience, write_timeout, rests: true, asks };
        // Boxed, so that it is given back while the connection rests.
        match Box::pin(http1::serve(manners, first, stream, drained.clone(), &answer)).await {
            Left::Nothing => return None,
            Left::Switched(stream) => return Some(stream),
            Left::Resting(rested) => stream = rested,
        }
    }
}

/// Serves gRPC, which is HTTP/2, to the end of the connection. Clients keep connections that they seldom use.
pub(crate) async fn serve_grpc<B, F>(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    mut drained: Drained,
    answer: impl Fn(Request<Incoming>) -> F + Clone,
) where
    B: HttpBody + Send + Unpin + 'static,
    B::Data: Send,
    B::Error: Into<Failure>,
    F: Future<Output = Response<B>> + Send + 'static,
{
    let begun = tokio::select! {
        biased;
        begun = tokio::time::timeout(PREFACE_TIMEOUT, begin(&mut stream, false)) => begun,
        () = drained.closing() => return,
    };
    let Ok(Some(Begun { first, .. })) = begun else { return };
    let manners = Manners { most_streams: 1_000, write_timeout: WRITE_TIMEOUT, idle: None };
    serve_http2(manners, Rewound::new(first.into(), stream), drained, answer).await;
}

/// Tells a client that it is one too many, by whichever of HTTP/1 and HTTP/2 it speaks, and closes.
pub(crate) async fn refuse_http(stream: Stream) {
    let drain = Drain::new();
    let drained = drain.listen().at_most(REFUSAL);
    // Whether it was heard is of no interest.
    let _ = tokio::time::timeout(2 * REFUSAL, serve_http(stream, drained, REFUSAL, false, refusal)).await;
}

async fn refusal(mut request: Request<Body>) -> Response<Full<Bytes>> {
    let is_grpc =
        request.headers().get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
    // Read as far as it is there: some clients give up on an answer that comes before they have sent all.
    while let Some(Ok(_)) = request.body_mut().frame().await {}
    if is_grpc {
        let mut answer = Response::new(Full::default());
        let headers = answer.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        // UNAVAILABLE.
        headers.insert("grpc-status", HeaderValue::from_static("14"));
        headers.insert("grpc-message", HeaderValue::from_static(FULL_FOR_GRPC));
        return answer;
    }
    let mut answer = Response::new(Full::from(FULL));
    *answer.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
    if request.version() < http::Version::HTTP_2 {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    answer
}

/// How a client begins.
struct Begun {
    first: Vec<u8>,
    is_http2: bool,
}

/// Reads until it is clear what the client speaks, unless that is known to be HTTP/1. `None` when it has gone.
async fn begin(stream: &mut (impl AsyncRead + Unpin), is_known: bool) -> Option<Begun> {
    // No memory for those who do not ask.
    let mut first = Vec::new();
    let mut wanted = stream.take(PREFACE.len() as u64);
    loop {
        if wanted.read_buf(&mut first).await.ok()? == 0 {
            return None;
        }
        let is_http2 = first == PREFACE && !is_known;
        if is_http2 || is_known || !PREFACE.starts_with(&first) {
            return Some(Begun { first, is_http2 });
        }
    }
}

/// Serves HTTP/1 to the end of the connection.
pub(crate) async fn serve_http1<B, F>(stream: Stream, drained: Drained, answer: impl Fn(Request<Body>) -> F)
where
    B: HttpBody<Data = Bytes> + Unpin,
    F: Future<Output: Answered<Body = B>>,
{
    let manners = http1::Manners { patience: HEADER_TIMEOUT, write_timeout: WRITE_TIMEOUT, rests: false, asks: false };
    http1::serve(manners, Vec::new(), stream, drained, &answer).await;
}

/// Serves HTTP/2 to the end of the connection.
async fn serve_http2<B, F>(
    manners: Manners,
    stream: impl AsyncRead + AsyncWrite + Unpin,
    mut drained: Drained,
    answer: impl Fn(Request<Incoming>) -> F,
) where
    B: HttpBody + Send + Unpin + 'static,
    B::Data: Send,
    B::Error: Into<Failure>,
    F: Future<Output: Answered<Body = B>> + Send + 'static,
{
    let requests = Arc::new(Requests::new(2 * u64::from(manners.most_streams)));
    let stream = Calm::new(stream, PREFACE.len(), Arc::clone(&requests.is_sent));
    let service = service_fn(|request| Answering { answer: answer(request), asked: Some(Asked::new(&requests)) });
    let connection = http2::Builder::new(Taken { patience: manners.write_timeout })
        .timer(TokioTimer::new())
        .max_concurrent_streams(manners.most_streams)
        .max_header_list_size(HEADER_LIST)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_pending_accept_reset_streams(MOST_RESETS)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_TIMEOUT)
        .serve_connection(TokioIo::new(Patient::new(stream, manners.write_timeout)), service);
    let mut connection = std::pin::pin!(connection);
    let is_idle = tokio::select! {
        _ = &mut connection => return,
        () = drained.closing() => false,
        () = requests.cease(manners.idle) => true,
        () = requests.rush() => return,
    };
    connection.as_mut().graceful_shutdown();
    if is_idle {
        // Answers that were not taken so far are not waited for.
        let _ = tokio::time::timeout(FAREWELL, connection).await;
    } else {
        let _ = connection.await;
    }
}

/// The requests of a connection.
#[derive(Debug)]
struct Requests {
    begun: AtomicU64,
    answered: AtomicU64,
    /// How many of late were taken back before there was an answer, how many are to be looked into, and who is told.
    given_up: AtomicU64,
    most_given_up: u64,
    rushed: Notify,
    /// Whether a piece of an answer went out.
    is_sent: Arc<AtomicBool>,
}

/// Why a body ends before its end.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The body of an answer: the request is not done before it is.
struct Held<B> {
    body: B,
    asked: Option<Asked>,
}

impl<B: HttpBody + Unpin> HttpBody for Held<B> {
    type Data = B::Data;
    type Error = B::Error;

    #[inline]
    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let frame = note(Pin::new(&mut self.body).poll_frame(cx));
        if let (Poll::Ready(_), Some(Asked(requests))) = (&frame, &self.asked) {
            requests.is_sent.store(true, Ordering::Relaxed);
        }
        frame
    }

    #[inline]
    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    #[inline]
    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

pin_project! {
    /// A request that is being answered. No `async` block, which would have room for all that takes twice, and copy it
    /// from one to the other.
    struct Answering<F> {
        #[pin]
        answer: F,
        asked: Option<Asked>,
    }

    impl<F> PinnedDrop for Answering<F> {
        fn drop(this: Pin<&mut Self>) {
            if let Some(Asked(requests)) = &*this.project().asked {
                requests.give_up();
            }
        }
    }
}

impl<F: Future<Output: Answered>> Future for Answering<F> {
    type Output = Result<Response<Held<<F::Output as Answered>::Body>>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let answering = self.project();
        let answer = ready!(note(answering.answer.poll(cx)));
        let asked = answering.asked.take();
        Poll::Ready(Ok(answer.into_response().map(|body| Held { body, asked })))
    }
}

/// A request until it is answered, or given up.
struct Asked(Arc<Requests>);

impl Asked {
    fn new(requests: &Arc<Requests>) -> Self {
        requests.begun.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(requests))
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.0.answered.fetch_add(1, Ordering::Relaxed);
    }
}

impl Requests {
    fn new(most_given_up: u64) -> Self {
        Self {
            begun: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            given_up: AtomicU64::new(0),
            most_given_up,
            rushed: Notify::new(),
            is_sent: Arc::default(),
        }
    }

    fn give_up(&self) {
        if self.given_up.fetch_add(1, Ordering::Relaxed) + 1 == self.most_given_up {
            self.rushed.notify_one();
        }
    }

    /// Completes when too many were given up in too short a time.
    async fn rush(&self) {
        loop {
            let (since, before) = (Instant::now(), self.begun.load(Ordering::Relaxed));
            self.rushed.notified().await;
            let given_up = self.given_up.swap(0, Ordering::Relaxed);
            let begun = self.begun.load(Ordering::Relaxed) - before;
            if since.elapsed() < RUSH && 2 * given_up > begun {
                return;
            }
        }
    }

    /// Completes when none was there for so long, or a quarter longer: looking now and then is cheaper than a timer for
    /// each request.
    async fn cease(&self, idle: Option<Duration>) {
        let Some(idle) = idle else { return std::future::pending().await };
        let (mut quiet, mut before) = (0, 0);
        while quiet < 4 {
            tokio::time::sleep(idle / 4).await;
            let (answered, begun) = (self.answered.load(Ordering::Relaxed), self.begun.load(Ordering::Relaxed));
            quiet = if answered == begun && begun == before { quiet + 1 } else { 0 };
            before = begun;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::Drain;
    use http_body_util::Empty;

    /// How many seconds a client of gRPC is borne with that sends so much and no more.
    async fn borne(bytes: &[u8]) -> Option<u64> {
        let (near, mut far) = tokio::io::duplex(1 << 16);
        far.write_all(bytes).await.unwrap();
        let begun = Instant::now();
        let answer = |_: Request<Incoming>| async { Response::new(Empty::<Bytes>::new()) };
        let drain = Drain::new();
        let served = serve_grpc(near, drain.listen(), answer);
        tokio::time::timeout(Duration::from_secs(3_600), served).await.ok().map(|()| begun.elapsed().as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_of_grpc_begins_soon_or_is_left() {
        assert_eq!(borne(b"").await, Some(10));
        assert_eq!(borne(&PREFACE[..20]).await, Some(10));
        // Then it has to answer pings.
        assert!(borne(&[PREFACE, &[0, 0, 0, 4, 0, 0, 0, 0, 0]].concat()).await.is_some_and(|seconds| seconds >= 40));
    }

    /// Whether a connection is left on which so many requests are taken back, one every so often, and so many answered.
    async fn is_rushed(given_up: u32, every: Duration, answered: u32) -> bool {
        let requests = Arc::new(Requests::new(10));
        let rush = tokio::spawn({
            let requests = Arc::clone(&requests);
            async move { requests.rush().await }
        });
        // It counts from its first moment on.
        tokio::task::yield_now().await;
        for _ in 0..answered {
            drop(Asked::new(&requests));
        }
        for _ in 0..given_up {
            tokio::time::sleep(every).await;
            drop(Answering { answer: (), asked: Some(Asked::new(&requests)) });
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
        rush.is_finished()
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_back_most_of_what_it_asks_is_left() {
        let (soon, seldom) = (Duration::from_millis(1), Duration::from_millis(6_100));
        assert!(is_rushed(10, soon, 0).await && is_rushed(10, soon, 9).await);
        assert!(!is_rushed(9, soon, 0).await, "not so many");
        assert!(!is_rushed(10, soon, 10).await, "half");
        assert!(is_rushed(20, soon, 10).await, "all that came after");
        assert!(!is_rushed(100, seldom, 0).await, "ten in more than a minute");
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_idle_when_no_request_was_there_for_so_long() {
        let requests = Arc::new(Requests::new(10));
        let begun = Instant::now();
        let ceasing = tokio::spawn({
            let requests = Arc::clone(&requests);
            async move { requests.cease(Some(Duration::from_secs(60))).await }
        });
        let asked = Asked::new(&requests);
        tokio::time::sleep(Duration::from_secs(100)).await;
        drop(asked);
        for _ in 0..10 {
            tokio::time::sleep(Duration::from_secs(50)).await;
            drop(Asked::new(&requests));
        }
        ceasing.await.unwrap();
        let idle = begun.elapsed().as_secs() - 600;
        assert!((60..=75).contains(&idle), "{idle}");
    }

    /// A connection on which each of `pieces` is sent after some time has passed, and what came back in all.
    async fn answers(pieces: &[(u64, &[u8])]) -> String {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let served = tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let answer = |request: Request<Body>| async move {
                let path = request.uri().path().to_owned();
                let body = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
                Response::new(Full::<Bytes>::from([path.as_bytes(), b":", &body, b";"].concat()))
            };
            let drain = Drain::new();
            let left = serve_http(Stream::Tcp(stream), drain.listen(), Duration::from_secs(1), true, answer).await;
            assert!(left.is_none());
        });
        let mut client = tokio::net::TcpStream::connect(address).await.unwrap();
        for (millis, piece) in pieces {
            tokio::time::sleep(Duration::from_millis(*millis)).await;
            client.write_all(piece).await.unwrap();
        }
        let mut all = String::new();
        client.read_to_string(&mut all).await.unwrap();
        served.await.unwrap();
        let bodies = all.split("\r\n\r\n").skip(1).filter_map(|answer| answer.split_inclusive(';').next());
        bodies.collect()
    }

    #[tokio::test]
    async fn what_is_asked_after_a_rest_is_answered_and_nothing_is_lost() {
        let get = |path: &str| format!("GET /{path} HTTP/1.1\r\nHost: a\r\n\r\n").into_bytes();
        let (a, b, c) = (get("a"), get("b"), get("c"));
        assert_eq!(answers(&[(0, &a), (60, &b), (60, &c)]).await, "/a:;/b:;/c:;");
        // Half of the next head comes with the one before, and the other half after the time for a rest; then all of it
        // again.
        let split = [&a[..], &b[..9]].concat();
        assert_eq!(answers(&[(0, &split), (60, &b[9..]), (60, &c)]).await, "/a:;/b:;/c:;");
        let post = b"POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n01234";
        let rest = [b"56789", &a[..3]].concat();
        assert_eq!(answers(&[(0, post), (60, &rest), (60, &a[3..])]).await, "/p:0123456789;/a:;");
        // Byte by byte, slower than it rests.
        let slowly: Vec<(u64, &[u8])> = b[..12].chunks(1).map(|byte| (15, byte)).chain([(0, &b[12..])]).collect();
        assert_eq!(answers(&[&[(0, &a[..])], &slowly[..]].concat()).await, "/a:;/b:;");
    }

    #[tokio::test]
    async fn whoever_sends_half_a_head_and_rests_is_not_borne_with_for_ever() {
        let begun = Instant::now();
        let a = b"GET /a HTTP/1.1\r\nHost: a\r\n\r\nGET /b";
        assert_eq!(answers(&[(0, a)]).await, "/a:;");
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    }
}
