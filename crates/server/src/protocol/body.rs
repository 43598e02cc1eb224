//! The body of a request, by whichever of HTTP/1 and HTTP/2 it comes.
//!
//! One that came with its head, or none at all, is here already. Of one of HTTP/1 that is still to come a piece is
//! asked for and handed over at a desk that it shares with its connection: nothing is read before somebody asks, so
//! that a body that nobody wants stays where it is.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};

/// The body of a request.
#[derive(Debug)]
pub(crate) enum Body {
    /// Nothing, or nothing more.
    Empty,
    /// All of it.
    Whole(Bytes),
    /// By HTTP/1, as it comes.
    Arriving(Arriving),
    /// By HTTP/2.
    Incoming(Incoming),
}

/// A body of HTTP/1 that is still to come.
#[derive(Debug)]
pub(crate) struct Arriving {
    desk: Desk,
    /// Bytes that are still to come, if it was said how many.
    left: Option<u64>,
}

/// Where a connection hands over the body of a request, piece by piece.
#[derive(Clone, Debug, Default)]
pub(super) struct Desk(Arc<Mutex<Counter>>);

#[derive(Debug, Default)]
struct Counter {
    piece: Option<Bytes>,
    /// Who asks for more.
    asks: Option<Waker>,
    end: Option<End>,
    /// Nobody will ask any more.
    is_left: bool,
}

#[derive(Clone, Copy, Debug)]
enum End {
    Whole,
    Broken,
}

impl Desk {
    /// The body that is handed over here, of so many bytes if that is known.
    pub(super) fn body(&self, left: Option<u64>) -> Body {
        Body::Arriving(Arriving { desk: self.clone(), left })
    }

    fn open(&self) -> MutexGuard<'_, Counter> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether somebody waits for more.
    pub(super) fn is_asked(&self) -> bool {
        self.open().asks.is_some()
    }

    /// Whether nobody will ever ask again.
    pub(super) fn is_left(&self) -> bool {
        self.open().is_left
    }

    /// Hands over a piece; only to who asks. Who is run by `cx` need not be woken: it is running.
    pub(super) fn give(&self, piece: Bytes, cx: &Context<'_>) {
        let mut counter = self.open();
        counter.piece = Some(piece);
        wake(counter, cx);
    }

    /// That was all, or all that there will be.
    pub(super) fn end(&self, is_whole: bool, cx: &Context<'_>) {
        let mut counter = self.open();
        counter.end = Some(if is_whole { End::Whole } else { End::Broken });
        wake(counter, cx);
    }
}

fn wake(mut counter: MutexGuard<'_, Counter>, cx: &Context<'_>) {
    let asks = counter.asks.take();
    drop(counter);
    if let Some(waker) = asks.filter(|waker| !waker.will_wake(cx.waker())) {
        waker.wake();
    }
}

impl Arriving {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if self.left == Some(0) {
            return Poll::Ready(None);
        }
        let mut counter = self.desk.open();
        if let Some(piece) = counter.piece.take() {
            self.left = self.left.map(|left| left.saturating_sub(piece.len() as u64));
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        match counter.end {
            Some(End::Whole) => Poll::Ready(None),
            Some(End::Broken) => {
                let why = "the body of the request ended before it was whole, or is not framed as it should be";
                Poll::Ready(Some(Err(io::Error::new(io::ErrorKind::InvalidData, why))))
            }
            None => {
                counter.asks = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for Arriving {
    fn drop(&mut self) {
        let mut counter = self.desk.open();
        counter.is_left = true;
        counter.asks = None;
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = self.get_mut();
        match this {
            Self::Empty => Poll::Ready(None),
            Self::Whole(bytes) => {
                let bytes = std::mem::take(bytes);
                *this = Self::Empty;
                Poll::Ready(Some(Ok(Frame::data(bytes))))
            }
            Self::Arriving(arriving) => arriving.poll_frame(cx),
            Self::Incoming(incoming) => Pin::new(incoming).poll_frame(cx).map_err(io::Error::other),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Whole(bytes) => bytes.is_empty(),
            Self::Arriving(arriving) => arriving.left == Some(0),
            Self::Incoming(incoming) => incoming.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Arriving(Arriving { left: Some(left), .. }) => SizeHint::with_exact(*left),
            Self::Arriving(_) => SizeHint::default(),
            Self::Incoming(incoming) => incoming.size_hint(),
        }
    }
}
