//! Clients that leave while their requests wait and nobody reads what they sent.
//!
//! hyper looks for the end of a connection only where nothing of a request is left to read. One whose body is unread may stand in line
//! for long, with all that was sent, and the end of it, lying in the socket. Whoever lets such a request wait says so ([`attended`]), and for as
//! long the system is asked to tell when the other end is closed, whatever lies before that. This takes a second descriptor of the socket; where
//! there is none left, and on other systems than Linux, the client is missed only when the wait is over.
//!
//! Nothing is read here. A client that closes its half of the connection counts as gone, as it does for hyper where there is no body.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use http::Extensions;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::serve::Stream;

/// Whether the request of a connection waits; among the extensions of those that have a body.
#[derive(Clone, Debug, Default)]
pub(super) struct Unread(Arc<AtomicBool>);

/// Lets a request wait, which ends when its client leaves: by HTTP/2 and without a body this is so in any case.
pub(crate) async fn attended<T>(request: &Extensions, wait: impl Future<Output = T>) -> T {
    struct Waiting<'r>(&'r AtomicBool);
    impl Drop for Waiting<'_> {
        fn drop(&mut self) {
            self.0.store(false, Ordering::Relaxed);
        }
    }
    let _waiting = request.get::<Unread>().map(|Unread(waits)| {
        waits.store(true, Ordering::Relaxed);
        Waiting(waits)
    });
    wait.await
}

/// A connection whose other end is looked after while a request waits.
pub(super) struct Attentive {
    stream: Stream,
    waits: Unread,
    /// Completes when the other end is closed.
    closed: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Attentive {
    pub(super) fn new(stream: Stream, waits: Unread) -> Self {
        Self { stream, waits, closed: None }
    }

    pub(super) fn into_inner(self) -> Stream {
        self.stream
    }

    /// An error if somebody waits in vain.
    #[inline]
    fn look(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if !self.waits.0.load(Ordering::Relaxed) {
            self.closed = None;
            return Ok(());
        }
        let Self { stream, closed, .. } = self;
        match closed.get_or_insert_with(|| Box::pin(stream.closed())).as_mut().poll(cx) {
            Poll::Ready(()) => Err(io::ErrorKind::ConnectionAborted.into()),
            Poll::Pending => Ok(()),
        }
    }
}

impl AsyncRead for Attentive {
    #[inline]
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Attentive {
    #[inline]
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    #[inline]
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// hyper asks for this whenever it has asked for an answer.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.look(cx)?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
