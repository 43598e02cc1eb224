//! One connection to a server: what was read of it and not yet used, and how long it may be silent.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::BytesMut;
use tokio::time::{Instant, Sleep};

use crate::connect::Stream;
use crate::outgoing::Outgoing;
use crate::room::Room;

/// A connection that is open.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) stream: Stream,
    /// Read, and not yet used.
    pub(crate) input: BytesMut,
    room: Room,
    /// On its way to the server. Its memory serves one request after the other.
    pub(crate) outgoing: Outgoing,
    /// Runs while the server is waited for. Kept from one wait to the next: to set it anew costs less than to make
    /// another.
    silence: Option<Pin<Box<Sleep>>>,
    /// Whether it was set for this wait.
    is_silent: bool,
}

impl Connection {
    /// Boxed, since it is handed from one to the other several times in a request.
    pub(crate) fn new(stream: Stream) -> Box<Self> {
        let (input, outgoing) = (BytesMut::new(), Outgoing::default());
        Box::new(Self { stream, input, room: Room::default(), outgoing, silence: None, is_silent: false })
    }

    /// Reads what there is; the number of bytes, zero at the end of the connection.
    pub(crate) fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.room.poll_read(&mut self.stream, &mut self.input, cx)
    }

    /// Writes until nothing is left.
    pub(crate) fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.outgoing.poll_write(&mut self.stream, cx)
    }

    /// Something happened: the silence begins anew when next it is waited.
    pub(crate) fn heard(&mut self) {
        self.is_silent = false;
    }

    /// Completes when nothing happened for so long.
    pub(crate) fn poll_silence(&mut self, longest: Duration, cx: &mut Context<'_>) -> Poll<()> {
        let was_silent = std::mem::replace(&mut self.is_silent, true);
        let silence = match &mut self.silence {
            Some(silence) => {
                if !was_silent {
                    silence.as_mut().reset(Instant::now() + longest);
                }
                silence
            }
            none => none.insert(Box::pin(tokio::time::sleep(longest))),
        };
        silence.as_mut().poll(cx)
    }

    /// Puts it in order for the next request; `None` if it is not fit for one.
    pub(crate) fn at_rest(mut self: Box<Self>) -> Option<Idle> {
        if !self.input.is_empty() || !self.outgoing.is_empty() {
            return None;
        }
        self.heard();
        if self.room.has_grown() {
            (self.input, self.room) = (BytesMut::new(), Room::default());
        }
        if self.outgoing.has_grown() {
            self.outgoing = Outgoing::default();
        }
        Some(Idle { connection: self, since: Instant::now() })
    }
}

/// A connection that waits for the next request.
#[derive(Debug)]
pub(crate) struct Idle {
    connection: Box<Connection>,
    since: Instant,
}

impl Idle {
    pub(crate) fn is_older_than(&self, age: Duration) -> bool {
        self.since.elapsed() > age
    }

    /// To be used again; `None` if the server has closed it, or speaks out of turn. With `surely` the system is asked;
    /// else only what it told already counts, which may be a moment old.
    pub(crate) fn wake(self, surely: bool) -> Option<Box<Connection>> {
        let stream = &self.connection.stream;
        let has_news = stream.has_news() || (surely && stream.is_closed());
        (!has_news).then_some(self.connection)
    }
}
