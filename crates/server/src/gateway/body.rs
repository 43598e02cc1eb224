//! The bodies of answers: our own, a server's, and those whose flow or end is of interest to somebody.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame, SizeHint};
use tollgate_gateway::Answer;

use super::log::Entry;
use super::overload::Permit;
use super::tab::{Tab, Upload};

/// The body of an answer.
pub(crate) enum Reply {
    Own(Full<Bytes>),
    Theirs(Answer<Upload>),
    /// One that is paid for as it flows, or whose end is waited for.
    Counted(Box<Counted>),
    /// One whose server is given another request only when it is through.
    Held(Box<Held>),
    /// One that is written down when it is through.
    Logged(Box<Logged>),
}

pub(crate) struct Counted {
    body: Answer<Upload>,
    tab: Tab,
}

pub(crate) struct Held {
    body: Reply,
    _permit: Permit,
}

pub(crate) struct Logged {
    body: Reply,
    entry: Entry,
}

impl Reply {
    pub(super) fn empty() -> Self {
        Self::Own(Full::default())
    }

    pub(super) fn counted(body: Answer<Upload>, tab: Tab) -> Self {
        Self::Counted(Box::new(Counted { body, tab }))
    }

    pub(super) fn logged(self, mut entry: Entry) -> Self {
        if self.is_end_stream() {
            entry.whole();
        }
        Self::Logged(Box::new(Logged { body: self, entry }))
    }

    pub(super) fn holding(self, permit: Option<Permit>) -> Self {
        match permit {
            Some(permit) => Self::Held(Box::new(Held { body: self, _permit: permit })),
            None => self,
        }
    }
}

impl Body for Reply {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        match self.get_mut() {
            Self::Own(body) => Pin::new(body).poll_frame(cx).map_err(|never| match never {}),
            Self::Theirs(body) => Pin::new(body).poll_frame(cx),
            Self::Counted(counted) => {
                let frame = ready!(Pin::new(&mut counted.body).poll_frame(cx));
                if let Some(data) = frame.as_ref().and_then(|frame| frame.as_ref().ok()).and_then(Frame::data_ref) {
                    counted.tab.add(data.len() as u64);
                }
                Poll::Ready(frame)
            }
            Self::Held(held) => Pin::new(&mut held.body).poll_frame(cx),
            Self::Logged(logged) => {
                let frame = ready!(Pin::new(&mut logged.body).poll_frame(cx));
                match frame.as_ref().map(|frame| frame.as_ref().map(Frame::data_ref)) {
                    Some(Ok(data)) => logged.entry.sent(data.map_or(0, Bytes::len) as u64),
                    Some(Err(_)) => return Poll::Ready(frame),
                    None => {}
                }
                // Whoever sees that this was all does not ask again.
                if frame.is_none() || logged.body.is_end_stream() {
                    logged.entry.whole();
                }
                Poll::Ready(frame)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Own(body) => body.is_end_stream(),
            Self::Theirs(body) => body.is_end_stream(),
            Self::Counted(counted) => counted.body.is_end_stream(),
            Self::Held(held) => held.body.is_end_stream(),
            Self::Logged(logged) => logged.body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Own(body) => body.size_hint(),
            Self::Theirs(body) => body.size_hint(),
            Self::Counted(counted) => counted.body.size_hint(),
            Self::Held(held) => held.body.size_hint(),
            Self::Logged(logged) => logged.body.size_hint(),
        }
    }
}
