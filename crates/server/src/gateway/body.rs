//! The bodies of answers: our own, a server's, and a server's of which something is counted.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tollgate_gateway::Answer;

use super::overload::Permit;
use super::pass::Tab;

/// The body of an answer.
pub(crate) enum Reply {
    Own(Full<Bytes>),
    Theirs(Answer<Incoming>),
    /// One that is paid for as it flows, or whose end is waited for.
    Counted(Box<Counted>),
    /// One whose server is given another request only when it is through.
    Held(Box<Held>),
}

pub(crate) struct Counted {
    body: Answer<Incoming>,
    tab: Tab,
}

pub(crate) struct Held {
    body: Reply,
    _permit: Permit,
}

impl Reply {
    pub(super) fn empty() -> Self {
        Self::Own(Full::default())
    }

    pub(super) fn counted(body: Answer<Incoming>, tab: Tab) -> Self {
        Self::Counted(Box::new(Counted { body, tab }))
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
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Own(body) => body.is_end_stream(),
            Self::Theirs(body) => body.is_end_stream(),
            Self::Counted(counted) => counted.body.is_end_stream(),
            Self::Held(held) => held.body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Own(body) => body.size_hint(),
            Self::Theirs(body) => body.size_hint(),
            Self::Counted(counted) => counted.body.size_hint(),
            Self::Held(held) => held.body.size_hint(),
        }
    }
}
