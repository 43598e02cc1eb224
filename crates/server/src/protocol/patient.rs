//! A stream whose other end has to read: a write that waits for longer than it may is an error, which ends the
//! connection.
//!
//! No timer runs while writes go through, as nearly all do.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

pub(super) struct Patient<S> {
    stream: S,
    patience: Duration,
    /// Runs while a write waits.
    waiting: Option<Pin<Box<Sleep>>>,
}

impl<S> Patient<S> {
    pub(super) fn new(stream: S, patience: Duration) -> Self {
        Self { stream, patience, waiting: None }
    }

    pub(super) fn get_ref(&self) -> &S {
        &self.stream
    }

    pub(super) fn into_inner(self) -> S {
        self.stream
    }

    /// What became of a write, or an error if it waits for too long.
    #[inline]
    fn within<T>(&mut self, written: Poll<io::Result<T>>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.waiting = None;
            return written;
        }
        let patience = self.patience;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        let too_long = io::Error::new(io::ErrorKind::TimedOut, "the other end does not read");
        waiting.as_mut().poll(cx).map(|()| Err(too_long))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    #[inline]
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    #[inline]
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.within(written, cx)
    }

    #[inline]
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.within(written, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.within(flushed, cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.within(shut, cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn whoever_does_not_read_is_left() {
        let (near, mut far) = tokio::io::duplex(10);
        let mut stream = Patient::new(near, Duration::from_secs(30));
        let begun = Instant::now();
        stream.write_all(&[0; 10]).await.unwrap();
        let reading = tokio::spawn(async move {
            // Slow, and good enough: something is read within the time, twice.
            for _ in 0..2 {
                tokio::time::sleep(Duration::from_secs(20)).await;
                far.read_exact(&mut [0; 10]).await.unwrap();
            }
            far
        });
        stream.write_all(&[0; 20]).await.unwrap();
        let _far = reading.await.unwrap();
        assert_eq!(begun.elapsed().as_secs(), 40);
        let error = stream.write_all(&[0; 20]).await.unwrap_err();
        assert_eq!((error.kind(), begun.elapsed().as_secs()), (io::ErrorKind::TimedOut, 70));
    }
}
