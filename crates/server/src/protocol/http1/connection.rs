//! A connection of HTTP/1: what was read and not yet used, what is still to be written, and the body of the request
//! that is being answered.
//!
//! Everything here happens in one task. While a request is being answered its body is read as it is asked for; where
//! nothing is left to read of it, the end of the connection is looked for, and whoever waits for a client that has left
//! is told.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use hyper::body::Body as HttpBody;
use tokio::io::AsyncWriteExt as _;
use tollgate_gateway::{Outgoing, Room};

use super::answer::{About, Flow, encode};
use super::chunks::{Chunks, Decoded, take};
use super::head::{self, Asked, Found, Framing, MOST};
use super::scan::Scan;
use crate::protocol::answered::Answered;
use crate::protocol::body::{Body, Desk};
use crate::protocol::departure::Watch;
use crate::protocol::patient::Patient;
use crate::serve::Stream;

/// So much of a body that nobody wanted is read, if it is there already, so that the connection can go on.
const MOST_DRAINED: usize = 64 << 10;
/// So much of what a client asks ahead is read while it waits for an answer: enough to miss one that leaves.
const MOST_AHEAD: usize = 4 << 10;
/// So much of what a client still sends is read after its last answer, so that it gets that, and for so long.
const MOST_LINGERED: usize = 1 << 20;
const LINGER: Duration = Duration::from_secs(1);

/// A connection that is awake.
pub(super) struct Connection {
    stream: Patient<Stream>,
    input: BytesMut,
    room: Room,
    half: Option<Scan>,
    outgoing: Outgoing,
    arriving: Option<Arrival>,
}

/// The rest of a request.
struct Arrival {
    framing: Rest,
    desk: Desk,
    /// Whether the client has to be told first to go on.
    expects: bool,
    watch: Watch,
}

enum Rest {
    Length(u64),
    Chunks(Chunks),
    /// Nobody knows where it ends, or it ended too early.
    Broken,
}

/// The client has gone, or cannot be talked to any more.
#[derive(Debug)]
pub(super) struct Gone;

impl From<io::Error> for Gone {
    fn from(_: io::Error) -> Self {
        Self
    }
}

impl Connection {
    /// `first` was read already. An answer may wait for `patience` to be taken.
    pub(super) fn new(stream: Stream, first: &[u8], patience: Duration) -> Self {
        let room = Room::default();
        let mut input = room.first();
        input.extend_from_slice(first);
        Self {
            stream: Patient::new(stream, patience),
            input,
            room,
            half: None,
            outgoing: Outgoing::default(),
            arriving: None,
        }
    }

    /// Whether nothing was read that is not used.
    pub(super) fn is_plain(&self) -> bool {
        self.input.is_empty()
    }

    /// What is left for whatever is spoken next, or for a rest.
    pub(super) fn into_parts(self) -> (Bytes, Stream) {
        (self.input.freeze(), self.stream.into_inner())
    }

    /// Reads what there is; the number of bytes, zero at the end of the connection.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.room.poll_read(&mut self.stream, &mut self.input, cx)
    }

    /// Puts the head of the next request into its place; nothing when there is none.
    pub(super) fn poll_head(&mut self, place: &mut Option<Found>, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            if !self.input.is_empty() {
                // It is large, and moved no more often than it has to be.
                let found = place.insert(head::take(&mut self.input, &mut self.half, MOST));
                if !matches!(found, Found::Half) {
                    return Poll::Ready(());
                }
                *place = None;
            }
            match ready!(self.poll_read(cx)) {
                Ok(1..) => {}
                // Half a head, and no more to come, is nothing.
                Ok(0) | Err(_) => return Poll::Ready(()),
            }
        }
    }

    /// Gives a request its body. With `is_attended` the client is missed if it leaves while the request waits.
    pub(super) fn expect_body(&mut self, asked: &mut Asked, is_attended: bool) {
        let (rest, left) = match asked.framing {
            Framing::Length(0) => return,
            Framing::Length(length) if self.input.len() as u64 >= length => {
                *asked.request.body_mut() = Body::Whole(take(&mut self.input, &mut { length }));
                return;
            }
            Framing::Length(length) => (Rest::Length(length), Some(length)),
            Framing::Chunked => (Rest::Chunks(Chunks::default()), None),
        };
        let (desk, watch) = (Desk::default(), Watch::default());
        *asked.request.body_mut() = desk.body(left);
        if is_attended {
            asked.request.extensions_mut().insert(watch.unread());
        }
        self.arriving = Some(Arrival { framing: rest, desk, expects: asked.expects, watch });
    }

    /// Polls what answers a request, and reads for it meanwhile.
    pub(super) fn poll_with<T>(
        &mut self,
        cx: &mut Context<'_>,
        mut answer: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<Result<T, Gone>> {
        loop {
            if let Poll::Ready(answered) = answer(cx) {
                return Poll::Ready(Ok(answered));
            }
            ready!(self.poll_feed(cx))?;
        }
    }

    /// Ready when the body of the request has come on, or cannot.
    fn poll_feed(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Gone>> {
        loop {
            let Some(arrival) = &mut self.arriving else {
                // What comes now is the next request, and its time has not come; behind it there may be the end.
                if self.input.len() >= MOST_AHEAD {
                    return Poll::Pending;
                }
                match ready!(self.poll_read(cx)) {
                    Ok(1..) => continue,
                    Ok(0) | Err(_) => return Poll::Ready(Err(Gone)),
                }
            };
            if !arrival.desk.is_asked() {
                return arrival.watch.poll(self.stream.get_ref(), cx).map(|()| Err(Gone));
            }
            if std::mem::take(&mut arrival.expects) {
                self.outgoing.buffer.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
            }
            if !self.outgoing.is_empty() {
                ready!(self.outgoing.poll_write(&mut self.stream, cx))?;
            }
            match arrival.framing.decode(&mut self.input) {
                Decoded::Data(data) => {
                    arrival.desk.give(data, cx);
                    if matches!(arrival.framing, Rest::Length(0)) {
                        self.arriving = None;
                    }
                    return Poll::Ready(Ok(()));
                }
                Decoded::End => {
                    arrival.desk.end(true, cx);
                    self.arriving = None;
                    return Poll::Ready(Ok(()));
                }
                Decoded::Wrong => {
                    arrival.framing = Rest::Broken;
                    arrival.desk.end(false, cx);
                    return Poll::Ready(Ok(()));
                }
                Decoded::More => {}
            }
            match ready!(self.poll_read(cx)) {
                Ok(1..) => {}
                Ok(0) | Err(_) => {
                    if let Some(arrival) = &mut self.arriving {
                        arrival.framing = Rest::Broken;
                    }
                }
            }
        }
    }

    /// Begins an answer.
    pub(super) fn begin(&mut self, about: &mut About, answer: &impl Answered) -> Flow {
        // Nobody wants the rest of the request: the connection goes on only if that is here already.
        if self.arriving.as_ref().is_some_and(|arrival| arrival.desk.is_left()) {
            about.keeps &= self.drain();
        }
        if let Some(arrival) = &mut self.arriving {
            // Whoever is answered is not told any more to go on.
            arrival.expects = false;
        }
        encode(about, answer, &mut self.outgoing.buffer)
    }

    /// Sends an answer that has begun to its end.
    pub(super) fn poll_send<B>(
        &mut self,
        body: &mut Option<B>,
        flow: &mut Flow,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Gone>>
    where
        B: HttpBody<Data = Bytes> + Unpin,
    {
        loop {
            let mut is_waiting = false;
            while self.outgoing.has_room()
                && let Some(more) = body
            {
                if *flow == Flow::Done {
                    *body = None;
                    break;
                }
                match Pin::new(&mut *more).poll_frame(cx) {
                    Poll::Ready(Some(Ok(frame))) => {
                        // Trailers end here.
                        if let Ok(data) = frame.into_data() {
                            flow.put(data, &mut self.outgoing);
                        }
                        if more.is_end_stream() {
                            *body = None;
                        }
                    }
                    Poll::Ready(None) => *body = None,
                    Poll::Ready(Some(Err(_))) => {
                        // It cannot be whole: what there is of it goes out, and then the connection ends.
                        let _ = self.outgoing.poll_write(&mut self.stream, cx);
                        return Poll::Ready(Err(Gone));
                    }
                    Poll::Pending => {
                        is_waiting = true;
                        break;
                    }
                }
                if body.is_none() && flow.end(&mut self.outgoing).is_none() {
                    let _ = self.outgoing.poll_write(&mut self.stream, cx);
                    return Poll::Ready(Err(Gone));
                }
            }
            let is_written = self.outgoing.poll_write(&mut self.stream, cx)?.is_ready();
            match body {
                None if is_written => return Poll::Ready(Ok(())),
                None => return Poll::Pending,
                Some(_) if is_written && !is_waiting => {}
                Some(_) => ready!(self.poll_feed(cx))?,
            }
        }
    }

    /// Reads what is there of a body that nobody wants. Whether that was all of it.
    pub(super) fn drain(&mut self) -> bool {
        // What is not there is not waited for.
        let mut context = Context::from_waker(Waker::noop());
        let mut drained = 0;
        while let Some(arrival) = &mut self.arriving {
            match arrival.framing.decode(&mut self.input) {
                Decoded::Data(data) if drained <= MOST_DRAINED => {
                    drained += data.len();
                    if matches!(arrival.framing, Rest::Length(0)) {
                        self.arriving = None;
                    }
                }
                Decoded::End => self.arriving = None,
                Decoded::More => {
                    if !matches!(self.poll_read(&mut context), Poll::Ready(Ok(1..))) {
                        return false;
                    }
                }
                Decoded::Data(_) | Decoded::Wrong => return false,
            }
        }
        true
    }

    /// Whether all of the request was read.
    pub(super) fn is_read(&self) -> bool {
        self.arriving.is_none()
    }

    /// Ends it. A client that may still be sending is heard out for a while: one that is cut off may lose its answer.
    pub(super) async fn end(mut self, is_heard_out: bool) {
        let _ = tokio::time::timeout(LINGER, async {
            let _ = self.stream.shutdown().await;
            let mut left = if is_heard_out { MOST_LINGERED } else { 0 };
            while left > 0 {
                self.input.clear();
                match std::future::poll_fn(|cx| self.poll_read(cx)).await {
                    Ok(read @ 1..) => left = left.saturating_sub(read),
                    Ok(0) | Err(_) => return,
                }
            }
        })
        .await;
    }
}

impl Rest {
    fn decode(&mut self, input: &mut BytesMut) -> Decoded {
        match self {
            Self::Length(_) if input.is_empty() => Decoded::More,
            Self::Length(left) => Decoded::Data(take(input, left)),
            Self::Chunks(chunks) => chunks.decode(input),
            Self::Broken => Decoded::Wrong,
        }
    }
}
