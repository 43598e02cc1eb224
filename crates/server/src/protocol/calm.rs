//! A client of HTTP/2 that sends frame after frame and neither asks nor tells anything with them is left.
//!
//! What is read here is only the head of each frame. Streams, heads, small pieces of bodies, and requests that are taken
//! back before they were looked at, are bounded by h2; PING and SETTINGS are answered by it, however many they are.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

/// So many of them in a row, while nothing is sent to the client either, are a flood if they come within this time.
/// Clients measure with a PING for each piece of an answer, and take back at once all that they asked.
const MOST_IDLE: u32 = 2_000;
const WITHIN: Duration = Duration::from_secs(60);

const HEAD: usize = 9;
const DATA: u8 = 0;
const HEADERS: u8 = 1;

/// A stream of which frames are counted.
pub(super) struct Calm<S> {
    stream: S,
    frames: Frames,
}

impl<S> Calm<S> {
    /// The first bytes are no frame. Who sends pieces of answers says so in `is_sent`.
    pub(super) fn new(stream: S, first: usize, is_sent: Arc<AtomicBool>) -> Self {
        let frames = Frames { skipped: first, head: [0; HEAD], known: 0, idle: 0, since: Instant::now(), is_sent };
        Self { stream, frames }
    }
}

struct Frames {
    /// Bytes until the next head.
    skipped: usize,
    head: [u8; HEAD],
    /// How much of it was read.
    known: usize,
    idle: u32,
    since: Instant,
    is_sent: Arc<AtomicBool>,
}

impl Frames {
    /// False if there are too many.
    fn look(&mut self, mut bytes: &[u8]) -> bool {
        loop {
            let skipped = self.skipped.min(bytes.len());
            self.skipped -= skipped;
            bytes = bytes.get(skipped..).unwrap_or_default();
            if bytes.is_empty() {
                return true;
            }
            let wanted = self.head.get_mut(self.known..).unwrap_or_default();
            let fits = wanted.len().min(bytes.len());
            let (now, later) = bytes.split_at(fits);
            wanted.iter_mut().zip(now).for_each(|(place, byte)| *place = *byte);
            self.known += fits;
            bytes = later;
            if self.known == HEAD {
                self.known = 0;
                let [a, b, c, kind, ..] = self.head;
                self.skipped = u32::from_be_bytes([0, a, b, c]) as usize;
                if !self.count(kind) {
                    return false;
                }
            }
        }
    }

    fn count(&mut self, kind: u8) -> bool {
        if kind == HEADERS || kind == DATA && self.skipped > 0 {
            self.idle = 0;
            return true;
        }
        self.idle += 1;
        if self.idle < MOST_IDLE {
            return true;
        }
        // Time is asked for seldom enough here to cost nothing.
        self.idle = 0;
        let since = std::mem::replace(&mut self.since, Instant::now());
        self.is_sent.swap(false, Ordering::Relaxed) || self.since - since > WITHIN
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Calm<S> {
    #[inline]
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if read.is_ready() && !self.frames.look(buffer.filled().get(before..).unwrap_or_default()) {
            return Poll::Ready(Err(io::Error::other("the other end sends too much that says nothing")));
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Calm<S> {
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

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PING: u8 = 6;

    fn frame(kind: u8, payload: usize) -> Vec<u8> {
        let [_, a, b, c] = u32::try_from(payload).unwrap().to_be_bytes();
        // What is in it looks like a PING, to whoever takes it for a head.
        [&[a, b, c, kind, 0, 0, 0, 0, 1], &*vec![PING; payload]].concat()
    }

    /// How many frames of each kind are borne with, one after the other, as often as it goes; at most a million. They
    /// come in pieces of this size.
    async fn borne(kinds: &[(u8, usize)], every: Duration, piece: usize, is_sent: bool) -> usize {
        let sent = Arc::new(AtomicBool::new(false));
        let mut frames = Calm::new((), 24, Arc::clone(&sent)).frames;
        assert!(frames.look(&[PING; 24]));
        let mut number = 0;
        while number < 100_000 {
            for (kind, payload) in kinds {
                sent.store(is_sent, Ordering::Relaxed);
                tokio::time::advance(every).await;
                if !frame(*kind, *payload).chunks(piece).all(|piece| frames.look(piece)) {
                    return number;
                }
                number += 1;
            }
        }
        number
    }

    #[tokio::test(start_paused = true)]
    async fn frames_that_say_nothing_are_borne_with_to_a_number() {
        let (at_once, many) = (Duration::ZERO, 100_000);
        for piece in [1, 7, 100] {
            for (kind, payload) in [(PING, 8), (4, 0), (4, 60), (8, 4), (3, 4), (2, 5), (DATA, 0), (200, 3)] {
                assert_eq!(borne(&[(kind, payload)], at_once, piece, false).await, 1_999, "{kind} in {piece}");
            }
            // Who asks, sends, is sent something, or takes its time, may.
            assert_eq!(borne(&[(HEADERS, 20), (PING, 8)], at_once, piece, false).await, many);
            assert_eq!(borne(&[(DATA, 1), (PING, 8)], at_once, piece, false).await, many);
        }
        assert_eq!(borne(&[(PING, 8)], at_once, 100, true).await, many);
        assert_eq!(borne(&[(PING, 8)], Duration::from_millis(31), 100, false).await, many);
        assert_eq!(borne(&[(PING, 8)], Duration::from_millis(29), 100, false).await, 1_999);
    }
}
