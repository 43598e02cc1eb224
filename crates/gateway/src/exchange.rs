//! One request and its answer on one connection, both ways at once.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, StatusCode};
use http_body::{Body, Frame, SizeHint};

use crate::connection::Connection;
use crate::error::ForwardError;
use crate::framing::{Decoded, Framing};
use crate::head::{Head, Onward, RequestBody};
use crate::hop::is_agreed;
use crate::server::{Busy, Server};
use crate::tunnel::Tunnel;

/// The most answers of the kind "wait, there is more to come" before the real one.
const MOST_INTERIM: usize = 16;

/// A request on its way, and what there is of the answer.
#[derive(Debug)]
pub(crate) struct Exchange<B> {
    connection: Box<Connection>,
    sending: Sending<B>,
    /// Whether something came back.
    pub(crate) is_answered: bool,
    /// How often the real answer was announced.
    interim: usize,
    /// What else the client wants to speak.
    upgrade: Option<HeaderValue>,
    /// How long the server, or the client, may be silent while something is expected of it.
    patience: Patience,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    pub(crate) server: Duration,
    pub(crate) client: Duration,
    /// How long nothing may pass through a tunnel.
    pub(crate) tunnel: Duration,
}

/// What is still to be sent, behind what is on its way.
#[derive(Debug)]
struct Sending<B> {
    body: Option<B>,
    is_chunked: bool,
    /// Bytes that were promised and are still to come.
    promised: u64,
    /// Whether anything of the body was taken, so that it cannot be sent again.
    is_touched: bool,
    /// Why no more of it can be sent.
    broken: Option<Unsendable>,
}

impl<B: Body<Data = Bytes> + Unpin> Exchange<B> {
    pub(crate) fn new(
        mut connection: Box<Connection>,
        server: &Server,
        onward: &Onward<'_>,
        upgrade: Option<&HeaderValue>,
        body: B,
        patience: Patience,
    ) -> Self {
        let kind = match body.size_hint().exact() {
            _ if body.is_end_stream() => RequestBody::None,
            Some(0) => RequestBody::None,
            Some(length) => RequestBody::Length(length),
            None => RequestBody::Chunked,
        };
        onward.encode((server.authority(), server.address().path()), kind, upgrade, &mut connection.outgoing.buffer);
        let sending = Sending {
            is_chunked: kind == RequestBody::Chunked,
            promised: if let RequestBody::Length(length) = kind { length } else { 0 },
            body: Some(body),
            is_touched: false,
            broken: None,
        };
        Self { connection, sending, is_answered: false, interim: 0, upgrade: upgrade.cloned(), patience }
    }

    /// The body, if nothing of it was taken.
    pub(crate) fn into_untouched_body(self) -> Option<B> {
        self.sending.body.filter(|_| !self.sending.is_touched)
    }

    /// Completes with the head of the answer.
    pub(crate) fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<Head, ForwardError>> {
        loop {
            // Whether all is sent does not matter: an answer may come before.
            let sent = self.poll_send(cx);
            if self.is_answered || !self.connection.input.is_empty() {
                match Head::parse(&mut self.connection.input) {
                    Ok(Some(head)) if is_interim(head.status) => {
                        self.interim += 1;
                        if self.interim > MOST_INTERIM {
                            return Poll::Ready(Err(ForwardError::Nonsense("it only announces an answer")));
                        }
                        continue;
                    }
                    Ok(Some(head)) => return Poll::Ready(Ok(head)),
                    Ok(None) => {}
                    Err(why) => return Poll::Ready(Err(ForwardError::Nonsense(why))),
                }
            }
            match self.connection.poll_read(cx) {
                Poll::Ready(Ok(0)) => {
                    let gone = io::Error::new(io::ErrorKind::UnexpectedEof, "closed without an answer");
                    return Poll::Ready(Err(ForwardError::Broken(gone)));
                }
                Poll::Ready(Ok(_)) => {
                    self.is_answered = true;
                    self.connection.heard();
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(ForwardError::Broken(error))),
                Poll::Pending => {
                    if let Poll::Ready(Err(Unsendable::ByClient)) = sent {
                        return Poll::Ready(Err(ForwardError::Unsent));
                    }
                    let is_client = ready!(self.poll_silence(sent.is_pending(), cx));
                    return Poll::Ready(Err(if is_client { ForwardError::Stalled } else { ForwardError::Late }));
                }
            }
        }
    }

    /// Completes when nothing happened for too long; with whether it is the client that is silent. While that takes its
    /// time with the body, the server has no reason to speak.
    fn poll_silence(&mut self, is_sending: bool, cx: &mut Context<'_>) -> Poll<bool> {
        let is_client = is_sending && self.connection.outgoing.is_empty();
        let longest = if is_client { self.patience.client } else { self.patience.server };
        self.connection.poll_silence(longest, cx).map(|()| is_client)
    }

    /// Sends what can be sent. Ready when all is, or when nothing more can be.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Unsendable>> {
        let connection = &mut self.connection;
        let Sending { body, is_chunked, promised, is_touched, broken } = &mut self.sending;
        loop {
            if let Some(by) = *broken {
                return Poll::Ready(Err(by));
            }
            if !connection.outgoing.is_empty() {
                let had = connection.outgoing.left();
                let written = connection.poll_write(cx);
                if connection.outgoing.left() < had {
                    connection.heard();
                }
                if ready!(written).is_err() {
                    *broken = Some(Unsendable::ByServer);
                    continue;
                }
            }
            let Some(sender) = body else { return Poll::Ready(Ok(())) };
            if !*is_touched && !*is_chunked && *promised == 0 {
                // Nothing was announced: it stays whole, to be sent again if need be.
                return Poll::Ready(Ok(()));
            }
            *is_touched = true;
            let frame = ready!(Pin::new(sender).poll_frame(cx));
            connection.heard();
            match frame {
                Some(Ok(frame)) => {
                    // Trailers end here.
                    let Some(data) = frame.into_data().ok().filter(|data| !data.is_empty()) else { continue };
                    if !*is_chunked {
                        match promised.checked_sub(data.len() as u64) {
                            Some(left) => *promised = left,
                            None => return self.sending.fail(),
                        }
                    }
                    match *is_chunked {
                        true => connection.outgoing.put_chunk(data),
                        false => connection.outgoing.put(data, b""),
                    }
                }
                Some(Err(_)) => return self.sending.fail(),
                None if *promised > 0 => return self.sending.fail(),
                None => {
                    *body = None;
                    if *is_chunked {
                        connection.outgoing.buffer.extend_from_slice(b"0\r\n\r\n");
                    }
                }
            }
        }
    }

    /// Whether all of the request was sent.
    fn is_sent(&self) -> bool {
        let Sending { body, is_chunked, promised, is_touched, broken } = &self.sending;
        let has_more = body.is_some() && (*is_touched || *is_chunked || *promised > 0);
        self.connection.outgoing.is_empty() && !has_more && broken.is_none()
    }

    /// What the answer is made of, now that its head is here.
    pub(crate) fn into_answer(
        mut self,
        head: Head,
        method: &Method,
        busy: Busy,
    ) -> Result<(Head, Answer<B>), ForwardError> {
        if head.status == StatusCode::SWITCHING_PROTOCOLS {
            if !is_agreed(self.upgrade.as_ref(), head.hop.upgrade.as_ref()) {
                return Err(ForwardError::Nonsense("it switches to what it was not asked for"));
            }
            if !self.is_sent() {
                return Err(ForwardError::Nonsense("it switches before it has the request"));
            }
            let Connection { stream, input, .. } = *self.connection;
            let tunnel = Tunnel::new(stream, input, busy, self.patience.tunnel);
            return Ok((head, Answer(State::Switched(Some(tunnel)))));
        }
        let mut framing = head.framing(method).map_err(ForwardError::Nonsense)?;
        let is_kept = head.is_kept() && framing != Framing::ToTheEnd;
        // Short bodies come with their heads: the connection is free again at once.
        let body = match framing.left() {
            Some(left) if self.connection.input.len() as u64 >= left => {
                match framing.decode(&mut self.connection.input) {
                    Decoded::Data(body) => Some(body),
                    _ => Some(Bytes::new()),
                }
            }
            _ => None,
        };
        let streaming = Streaming { exchange: self, framing, is_kept, busy };
        let state = match body {
            Some(body) if streaming.exchange.is_sent() => {
                streaming.give_back();
                State::Whole(body)
            }
            body => State::Streaming(Box::new(streaming), body.unwrap_or_default()),
        };
        Ok((head, Answer(state)))
    }
}

impl<B> Sending<B> {
    /// The client broke off: what was sent is not a request, so the connection cannot be used any more.
    fn fail(&mut self) -> Poll<Result<(), Unsendable>> {
        self.broken = Some(Unsendable::ByClient);
        self.body = None;
        Poll::Ready(Err(Unsendable::ByClient))
    }
}

/// Why a request cannot be sent to its end: its sender stopped sending it, or the server stopped taking it.
#[derive(Clone, Copy, Debug)]
enum Unsendable {
    ByClient,
    ByServer,
}

/// Whether the real answer is still to come.
fn is_interim(status: StatusCode) -> bool {
    status.is_informational() && status != StatusCode::SWITCHING_PROTOCOLS
}

/// The body of an answer, as it comes. The connection goes back to its server when the body ends.
#[derive(Debug)]
pub struct Answer<B>(State<B>);

#[derive(Debug)]
enum State<B> {
    /// All of it is here.
    Whole(Bytes),
    /// More is to come, after this.
    Streaming(Box<Streaming<B>>, Bytes),
    Switched(Option<Tunnel>),
}

#[derive(Debug)]
struct Streaming<B> {
    exchange: Exchange<B>,
    framing: Framing,
    is_kept: bool,
    busy: Busy,
}

impl<B> Answer<B> {
    /// The connection, if the server agreed to speak something else on it.
    pub fn tunnel(&mut self) -> Option<Tunnel> {
        match &mut self.0 {
            State::Switched(tunnel) => tunnel.take(),
            _ => None,
        }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Streaming<B> {
    /// The connection is free.
    fn give_back(self) {
        if self.is_kept && self.exchange.is_sent() {
            self.busy.server().give_back(self.exchange.connection);
        }
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let exchange = &mut self.exchange;
        loop {
            match self.framing.decode(&mut exchange.connection.input) {
                Decoded::Data(data) => return Poll::Ready(Some(Ok(Frame::data(data)))),
                Decoded::End => return Poll::Ready(None),
                Decoded::Wrong(why) => return Poll::Ready(Some(Err(io::Error::new(io::ErrorKind::InvalidData, why)))),
                Decoded::More => {}
            }
            // A body that is still on its way goes on, whatever comes back.
            let sent = exchange.poll_send(cx);
            match exchange.connection.poll_read(cx) {
                Poll::Ready(Ok(0)) if self.framing.is_whole_at_end() => {
                    self.framing = Framing::Done;
                    return Poll::Ready(None);
                }
                Poll::Ready(Ok(0)) => return Poll::Ready(Some(Err(io::ErrorKind::UnexpectedEof.into()))),
                Poll::Ready(Ok(_)) => exchange.connection.heard(),
                Poll::Ready(Err(error)) => return Poll::Ready(Some(Err(error))),
                Poll::Pending => {
                    let is_client = ready!(exchange.poll_silence(sent.is_pending(), cx));
                    let why = if is_client { "the client fell silent" } else { "the server fell silent" };
                    return Poll::Ready(Some(Err(io::Error::new(io::ErrorKind::TimedOut, why))));
                }
            }
        }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Answer<B> {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let (State::Whole(first) | State::Streaming(_, first)) = &mut self.0 else { return Poll::Ready(None) };
        if !first.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(std::mem::take(first)))));
        }
        let State::Streaming(streaming, _) = &mut self.0 else { return Poll::Ready(None) };
        let frame = ready!(streaming.poll_frame(cx));
        let is_over = match &frame {
            Some(Ok(_)) => streaming.framing == Framing::Done,
            Some(Err(_)) | None => true,
        };
        if is_over && let State::Streaming(streaming, _) = std::mem::replace(&mut self.0, State::Whole(Bytes::new())) {
            match &frame {
                Some(Err(_)) => drop(streaming),
                _ => streaming.give_back(),
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            State::Whole(left) => left.is_empty(),
            State::Switched(_) => true,
            State::Streaming(streaming, first) => streaming.framing == Framing::Done && first.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            State::Whole(left) => SizeHint::with_exact(left.len() as u64),
            State::Switched(_) => SizeHint::with_exact(0),
            State::Streaming(streaming, first) => {
                let left = streaming.framing.left().map(|left| left + first.len() as u64);
                left.map_or_else(SizeHint::default, SizeHint::with_exact)
            }
        }
    }
}
