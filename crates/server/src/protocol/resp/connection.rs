//! One connection: a read, every command that is in it, and one write for all their replies.
//!
//! Nothing here waits while there is something to do, and no clock is set while everything goes well: only a command
//! that stays incomplete, a password that is not given and replies that are not read are given a time. A client that
//! sends without reading is not read from.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::time::{Sleep, sleep};

use super::buffers::{Buffer, SIZE};
use super::crowd::Crowd;
use super::parse::{MOST_COMMAND, Parser, ProtocolError};
use super::reply::Replies;
use super::session::{Next, Session};
use super::throttle::Row;
use crate::serve::{Drained, Phase, Stream};

/// Replies that may wait to be written, in bytes: with more, nothing is read or answered until they are.
const MOST_REPLIES: usize = 64 << 10;
/// The most of an incomplete command that is copied once more with the next read. A longer one keeps its buffer.
const SHORT: usize = 4 << 10;
/// Bytes that one client may have answered in a row before others have their turn.
const TURN: usize = 64 << 10;
/// Reads after the end was announced: what a client sends without pause has to stop somewhere.
const LAST_READS: u32 = 16;
/// What is read and thrown away, so that an error reaches a client that is still sending.
const MOST_DISCARDED: usize = 16 << 20;

/// How long a client may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// To complete a command that it has begun.
    pub(super) command: Duration,
    /// To say the password.
    pub(super) password: Duration,
    /// To read the replies that were written.
    pub(super) replies: Duration,
    /// To hear that the connection is over.
    pub(super) farewell: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            command: Duration::from_secs(30),
            password: Duration::from_secs(60),
            replies: Duration::from_secs(30),
            farewell: Duration::from_secs(1),
        }
    }
}

pub(super) struct Connection {
    stream: Stream,
    session: Session,
    parser: Parser,
    bounds: Bounds,
    /// What was read. Only while it is being worked on, or while a long command is incomplete.
    input: Option<Buffer>,
    /// The beginning of a short command that is not yet complete.
    begun: Vec<u8>,
    /// Replies that are not yet written.
    replies: Vec<u8>,
    /// Runs while the client owes something.
    deadline: Option<Pin<Box<Sleep>>>,
    /// Bytes that were read since others had their turn.
    turn: usize,
    /// The service is about to end.
    is_closing: bool,
}

/// What came of waiting for bytes.
enum Read {
    Bytes,
    /// The client has closed, or has taken too long.
    Ended,
    /// The service is about to end, and nothing has arrived.
    Closing,
}

/// What was next.
enum Found {
    /// So many commands, which are answered.
    Row(usize),
    Other(Result<Option<usize>, ProtocolError>),
}

/// How a batch of commands ended.
enum Batch {
    Answered,
    /// The client wants to go.
    Quit,
    /// The client cannot be understood.
    Nonsense,
}

impl Connection {
    pub(super) fn new(stream: Stream, session: Session, bounds: Bounds) -> Self {
        let parser = Parser::new(session.is_trusted());
        let (begun, replies) = (Vec::new(), Vec::new());
        Self {
            stream,
            session,
            parser,
            bounds,
            input: None,
            begun,
            replies,
            deadline: None,
            turn: 0,
            is_closing: false,
        }
    }

    /// Serves it to its end.
    pub(super) async fn run(mut self, drained: Drained) {
        let mut listener = drained.clone();
        let mut closing = pin!(listener.closing());
        let mut last_reads = LAST_READS;
        loop {
            match poll_fn(|context| self.poll_read(context, closing.as_mut())).await {
                Read::Bytes => {}
                Read::Ended => return,
                Read::Closing if self.is_closing => return self.close().await,
                Read::Closing => {
                    // What has arrived by now is known only after the system was asked once more.
                    self.is_closing = true;
                    tokio::task::yield_now().await;
                    continue;
                }
            }
            let batch = self.answer().await;
            if self.write().await.is_err() {
                return;
            }
            self.release();
            match batch {
                Ok(Batch::Answered) => {}
                Ok(Batch::Quit) => return self.close().await,
                Ok(Batch::Nonsense) => return self.hang_up().await,
                Err(_) => return,
            }
            if drained.phase() == Phase::Closing {
                last_reads -= 1;
                if last_reads == 0 {
                    return self.hang_up().await;
                }
            }
            if self.turn >= TURN {
                self.turn = 0;
                tokio::task::yield_now().await;
            }
        }
    }

    /// Reads what there is. Waits only for that, and then for the end and for the time that the client has.
    fn poll_read(&mut self, context: &mut Context<'_>, closing: Pin<&mut impl Future<Output = ()>>) -> Poll<Read> {
        let mut input = self.input.take().unwrap_or_else(|| {
            let mut fresh = Buffer::take();
            if !self.begun.is_empty() {
                fresh.put(&self.begun);
            }
            fresh
        });
        // A command is refused before it is too long, so there is always room.
        let mut room = ReadBuf::new(input.room(MOST_COMMAND + SIZE));
        let read = Pin::new(&mut self.stream).poll_read(context, &mut room);
        let bytes = room.filled().len();
        match read {
            Poll::Ready(Ok(())) if bytes > 0 => {
                input.fill(bytes);
                self.begun.clear();
                self.input = Some(input);
                self.turn += bytes;
                return Poll::Ready(Read::Bytes);
            }
            Poll::Ready(_) => return Poll::Ready(Read::Ended),
            Poll::Pending => {}
        }
        self.turn = 0;
        let is_long = input.unused().len() > SHORT;
        let owes_command = !input.unused().is_empty();
        if is_long {
            self.input = Some(input);
        } else {
            input.give_back();
        }
        if self.is_closing || closing.poll(context).is_ready() {
            return Poll::Ready(Read::Closing);
        }
        let owed = match (owes_command, self.session.is_trusted()) {
            (true, _) => self.bounds.command,
            (_, false) => self.bounds.password,
            (false, true) => return Poll::Pending,
        };
        let deadline = self.deadline.get_or_insert_with(|| Box::pin(sleep(owed)));
        deadline.as_mut().poll(context).map(|()| Read::Ended)
    }

    /// Answers every command that was read.
    async fn answer(&mut self) -> io::Result<Batch> {
        let Some(mut input) = self.input.take() else { return Ok(Batch::Answered) };
        let started = self.session.meter().start();
        let mut requests = 0;
        let batch = loop {
            let length = match self.answer_row(&mut input) {
                Found::Row(count) => {
                    requests += count as u64;
                    if self.replies.len() > MOST_REPLIES {
                        self.write().await?;
                    }
                    continue;
                }
                Found::Other(Ok(Some(length))) => length,
                Found::Other(Ok(None)) => break Batch::Answered,
                Found::Other(Err(error)) => {
                    self.session.meter().error();
                    Replies::new(&mut self.replies, false).error(format!("ERR Protocol error: {error}"));
                    break Batch::Nonsense;
                }
            };
            let mut length = length;
            let command = self.parser.command(input.unused());
            let mut next = Next::Go;
            if !command.is_empty() {
                requests += 1;
                next = self.session.answer(command, &mut self.replies);
                if next == Next::Wait {
                    let crowd = Crowd::gather(&self.session, input.unused());
                    if crowd.len() > 1 {
                        crowd.answer(&self.session, input.unused(), &mut self.replies).await;
                        requests += crowd.len() as u64 - 1;
                        length = crowd.length();
                    } else {
                        next = self.session.answer_slowly(command, &mut self.replies).await;
                    }
                }
            }
            input.advance(length);
            match next {
                Next::Go | Next::Wait => {}
                Next::Greeted => {
                    self.parser.is_trusted = self.session.is_trusted();
                    self.deadline = None;
                }
                Next::Quit => break Batch::Quit,
            }
            if self.replies.len() > MOST_REPLIES {
                self.write().await?;
            }
        };
        if requests > 0 {
            self.session.meter().finish_all(started, requests);
            if self.session.is_trusted() {
                self.deadline = None;
            }
        }
        self.input = Some(input);
        Ok(batch)
    }

    /// Answers the commands that can be answered together, or says what comes if it is something else.
    #[inline]
    fn answer_row(&mut self, input: &mut Buffer) -> Found {
        let Self { parser, session, replies, .. } = self;
        let (mut row, mut at) = (Row::default(), 0);
        let bytes = input.unused();
        while !row.is_full() {
            let rest = bytes.get(at..).unwrap_or_default();
            match parser.next(rest) {
                Ok(Some(length)) if session.defer(parser.command(rest), at, &mut row) => at += length,
                other if row.len() == 0 => return Found::Other(other),
                // It is parsed once more when its turn comes.
                _ => break,
            }
        }
        let count = row.len();
        session.answer_row(row, bytes, replies);
        input.advance(at);
        Found::Row(count)
    }

    /// Writes the replies, all of them.
    async fn write(&mut self) -> io::Result<()> {
        let mut written = 0;
        let mut deadline: Option<Pin<Box<Sleep>>> = None;
        let Self { stream, replies, bounds, .. } = self;
        poll_fn(|context| {
            while let Some(rest) = replies.get(written..).filter(|rest| !rest.is_empty()) {
                match Pin::new(&mut *stream).poll_write(context, rest) {
                    Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                    Poll::Ready(Ok(bytes)) => written += bytes,
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Pending => {
                        let deadline = deadline.get_or_insert_with(|| Box::pin(sleep(bounds.replies)));
                        return deadline.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()));
                    }
                }
            }
            Poll::Ready(Ok(()))
        })
        .await?;
        replies.clear();
        if let Stream::Tls(stream) = stream {
            stream.flush().await?;
        }
        Ok(())
    }

    /// Keeps no more than it needs until the next bytes come.
    #[inline]
    fn release(&mut self) {
        if let Some(input) = self.input.take() {
            if input.unused().len() > SHORT {
                self.input = Some(input);
            } else {
                self.begun.clear();
                self.begun.extend_from_slice(input.unused());
                input.give_back();
            }
        }
        if self.replies.capacity() > SHORT {
            self.replies = Vec::new();
        }
    }

    async fn close(mut self) {
        // Whoever is gone already need not be told.
        let _ = tokio::time::timeout(self.bounds.farewell, self.stream.shutdown()).await;
    }

    /// Closes, and lets a client that is still sending hear why: with bytes left unread, the system would take back
    /// what was written.
    async fn hang_up(mut self) {
        let farewell = self.bounds.farewell;
        let said = async {
            self.stream.shutdown().await?;
            let mut buffer = Buffer::take();
            let mut discarded = 0;
            while discarded < MOST_DISCARDED {
                let stream = &mut self.stream;
                let room = buffer.room(SIZE);
                let read = poll_fn(|context| {
                    let mut room = ReadBuf::new(&mut *room);
                    let read = Pin::new(&mut *stream).poll_read(context, &mut room);
                    read.map_ok(|()| room.filled().len())
                });
                match read.await? {
                    0 => break,
                    bytes => discarded += bytes,
                }
            }
            buffer.give_back();
            io::Result::Ok(())
        };
        let _ = tokio::time::timeout(farewell, said).await;
    }
}

#[cfg(test)]
#[path = "connection_tests.rs"]
mod tests;
