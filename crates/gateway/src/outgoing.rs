//! What is on its way out on a connection, to a client or to a server: heads and short pieces in one buffer, and a long
//! piece behind it as it is.

use std::io::{self, IoSlice, Write as _};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use tokio::io::AsyncWrite;

/// Pieces up to this are copied behind what is there, which costs less than to hand the system one more.
const SHORT: usize = 4 << 10;
/// With so much in the buffer it is written before more is put there.
const FULL: usize = 16 << 10;

/// Bytes on their way.
#[derive(Debug, Default)]
pub struct Outgoing {
    /// Heads and short pieces, and how much of them is written.
    pub buffer: Vec<u8>,
    written: usize,
    data: Bytes,
    behind: &'static [u8],
    /// What was written may be in a buffer of the stream's own, as that of TLS.
    is_unflushed: bool,
}

impl Outgoing {
    /// Whether everything is on its way for good.
    pub fn is_empty(&self) -> bool {
        self.left() == 0 && !self.is_unflushed
    }

    /// How many bytes are left to write.
    pub fn left(&self) -> usize {
        self.buffer.len() - self.written + self.data.len() + self.behind.len()
    }

    /// Whether it has more memory than short messages need.
    pub fn has_grown(&self) -> bool {
        self.buffer.capacity() > SHORT
    }

    /// Whether another piece may be put.
    pub fn has_room(&self) -> bool {
        self.data.is_empty() && self.behind.is_empty() && self.buffer.len() < FULL
    }

    /// A piece, and what stands behind it. Only where there is room.
    pub fn put(&mut self, data: Bytes, behind: &'static [u8]) {
        if data.len() <= SHORT {
            self.buffer.extend_from_slice(&data);
            self.buffer.extend_from_slice(behind);
        } else {
            (self.data, self.behind) = (data, behind);
        }
    }

    /// A piece as a chunk, of at least a byte. Only where there is room.
    pub fn put_chunk(&mut self, data: Bytes) {
        // A vector takes whatever is written.
        let _ = write!(self.buffer, "{:x}\r\n", data.len());
        self.put(data, b"\r\n");
    }

    /// Puts what ends a body, behind whatever is there.
    pub fn put_end(&mut self, end: &'static [u8], both: &'static [u8]) {
        if self.behind.is_empty() && self.data.is_empty() {
            self.buffer.extend_from_slice(end);
        } else {
            self.behind = both;
        }
    }

    /// Writes until nothing is left.
    pub fn poll_write(&mut self, stream: &mut (impl AsyncWrite + Unpin), cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.left() > 0 {
            let head = self.buffer.get(self.written..).unwrap_or_default();
            let stream = Pin::new(&mut *stream);
            let written = if self.data.is_empty() && self.behind.is_empty() {
                ready!(stream.poll_write(cx, head))?
            } else {
                ready!(stream.poll_write_vectored(cx, &[head, &self.data, self.behind].map(IoSlice::new)))?
            };
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.advance(written);
            self.is_unflushed = true;
        }
        self.buffer.clear();
        self.written = 0;
        ready!(Pin::new(stream).poll_flush(cx))?;
        self.is_unflushed = false;
        Poll::Ready(Ok(()))
    }

    fn advance(&mut self, mut written: usize) {
        let first = written.min(self.buffer.len() - self.written);
        self.written += first;
        written -= first;
        let second = written.min(self.data.len());
        self.data.advance(second);
        written -= second;
        self.behind = self.behind.get(written..).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes so many bytes at a time, and passes them on when it is asked as often as it wants to be.
    struct Narrow(Vec<u8>, usize, usize);

    impl AsyncWrite for Narrow {
        fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            let fits = self.1.min(bytes.len());
            self.0.extend_from_slice(bytes.get(..fits).unwrap());
            Poll::Ready(Ok(fits))
        }

        fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            let is_done = self.2 == 0;
            self.2 = self.2.saturating_sub(1);
            if is_done { Poll::Ready(Ok(())) } else { Poll::Pending }
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn bytes_leave_in_order_however_few_at_a_time() {
        let long = Bytes::from(vec![b'x'; 2 * SHORT]);
        for step in [1, 2, 3, 7, 100, SHORT, usize::MAX] {
            let mut stream = Narrow(Vec::new(), step, 0);
            let mut outgoing = Outgoing::default();
            let mut context = Context::from_waker(std::task::Waker::noop());
            for _ in 0..2 {
                outgoing.buffer.extend_from_slice(b"head");
                outgoing.put_chunk(Bytes::from_static(b"short"));
                assert!(outgoing.has_room() && !outgoing.is_empty());
                outgoing.put(long.clone(), b";");
                assert!(!outgoing.has_room());
                outgoing.put_end(b"end", b";end");
                assert!(outgoing.poll_write(&mut stream, &mut context).is_ready());
                assert!(outgoing.is_empty() && outgoing.has_room());
                outgoing.put_end(b"end", b";end");
            }
            assert!(outgoing.poll_write(&mut stream, &mut context).is_ready());
            let once = [&b"head5\r\nshort\r\n"[..], &long, b";endend"].concat();
            assert!(stream.0 == once.repeat(2), "{step}");
        }
    }

    #[test]
    fn what_a_stream_keeps_to_itself_is_not_on_its_way() {
        let mut stream = Narrow(Vec::new(), usize::MAX, 2);
        let mut outgoing = Outgoing::default();
        let mut context = Context::from_waker(std::task::Waker::noop());
        outgoing.put(Bytes::from_static(b"last"), b"");
        for _ in 0..2 {
            assert!(outgoing.poll_write(&mut stream, &mut context).is_pending());
            assert!(!outgoing.is_empty() && outgoing.left() == 0);
        }
        assert!(outgoing.poll_write(&mut stream, &mut context).is_ready());
        assert!(outgoing.is_empty());
        assert_eq!(stream.0, b"last");
    }
}
