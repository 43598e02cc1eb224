//! What follows an upgrade: bytes both ways, whatever they mean, until nothing passes for too long.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf, copy_bidirectional};

use crate::connect::Stream;
use crate::server::Busy;

/// A connection to a server that agreed to speak something else on it.
#[derive(Debug)]
pub struct Tunnel {
    stream: Stream,
    /// What it said already.
    first: BytesMut,
    /// How long nothing may pass.
    idle: Duration,
    /// The server is busy for as long as the tunnel is there.
    _busy: Busy,
}

impl Tunnel {
    pub(crate) fn new(stream: Stream, first: BytesMut, busy: Busy, idle: Duration) -> Self {
        stream.probe();
        Self { stream, first, idle, _busy: busy }
    }
}

/// Carries bytes both ways until both ends are done, one of them is gone, or nothing passed for too long.
pub async fn tunnel(client: impl AsyncRead + AsyncWrite + Unpin, mut server: Tunnel) -> io::Result<()> {
    let passed = AtomicU64::new(0);
    let mut client = Counted { stream: client, passed: &passed };
    let carry = async {
        client.write_all(&server.first).await?;
        copy_bidirectional(&mut client, &mut server.stream).await
    };
    tokio::select! {
        carried = carry => carried.map(drop),
        () = silence(&passed, server.idle) => Err(io::Error::new(io::ErrorKind::TimedOut, "nothing passed for too long")),
    }
}

/// Completes when nothing passed for so long, or a quarter longer: looking now and then is cheaper than a timer for
/// each piece.
async fn silence(passed: &AtomicU64, idle: Duration) {
    let (mut quiet, mut before) = (0, passed.load(Ordering::Relaxed));
    while quiet < 4 {
        tokio::time::sleep(idle / 4).await;
        let now = passed.load(Ordering::Relaxed);
        quiet = if now == before { quiet + 1 } else { 0 };
        before = now;
    }
}

/// A stream that tells how often something passed, either way.
struct Counted<'c, S> {
    stream: S,
    passed: &'c AtomicU64,
}

impl<S> Counted<'_, S> {
    fn count(&self) {
        self.passed.fetch_add(1, Ordering::Relaxed);
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<'_, S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let read = ready!(Pin::new(&mut self.stream).poll_read(cx, buffer));
        self.count();
        Poll::Ready(read)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<'_, S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, bytes));
        self.count();
        Poll::Ready(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
