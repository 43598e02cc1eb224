//! HTTP/1 to clients: one request after the other on a connection, each read, answered and done with before the next.
//!
//! What others could read in another way is refused ([`scan`], [`chunks`]), bodies stream both ways as they come
//! ([`connection`]), and what is said of a body's length and of the connection is said here alone ([`answer`]). What is
//! spoken after a switch is for whoever asked for it.

mod answer;
mod chunks;
mod connection;
#[cfg(test)]
mod conversations;
mod date;
mod fuzz;
mod head;
mod malformed;
mod scan;
#[cfg(test)]
mod tests;

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use hyper::body::Body as HttpBody;
use tokio::task::coop::has_budget_remaining;
use tokio::time::{Instant, Sleep};
use tollgate_gateway::recycle;

pub(crate) use self::fuzz::any_pieces;
pub(crate) use self::malformed::Malformed;

use self::answer::About;
use self::connection::{Connection, Gone};
use self::head::Found;
use super::answered::Answered;
use super::body::Body;
use super::rewound::Rewound;
use crate::serve::{Drained, Phase, Stream};

/// After this time without a request a connection rests. The more is asked on it the longer it stays awake, up to the
/// second.
const FIRST_REST: Duration = Duration::from_millis(10);
const LAST_REST: Duration = Duration::from_secs(1);

/// What differs between ports that speak HTTP/1.
#[derive(Clone, Copy)]
pub(super) struct Manners {
    /// How long a client may take to send a head, and how long a connection without a request is kept.
    pub(super) patience: Duration,
    /// How long an answer may wait to be taken.
    pub(super) write_timeout: Duration,
    /// Whether the connection is given back when nothing is asked for a moment.
    pub(super) rests: bool,
    /// Whether requests that are refused are asked about, to be told why, and those that wait are given up when their
    /// clients leave.
    pub(super) asks: bool,
}

/// What is left of a connection.
pub(super) enum Left {
    Nothing,
    /// Nothing is asked.
    Resting(Stream),
    /// An answer said that something else is spoken from now on.
    Switched(Rewound<Stream>),
}

/// Why no request came.
enum Idle {
    Rests,
    Ends,
}

/// Serves a connection to its end or, if it may rest, until it does. `first` was read of it already.
pub(super) async fn serve<B, F>(
    manners: Manners,
    first: Vec<u8>,
    stream: Stream,
    mut drained: Drained,
    answer: &impl Fn(Request<Body>) -> F,
) -> Left
where
    B: HttpBody<Data = Bytes> + Unpin,
    F: Future<Output: Answered<Body = B>>,
{
    let leaving = drained.clone();
    let mut connection = Connection::new(stream, &first, manners.write_timeout);
    let mut patience = Patience::new(manners);
    let mut closing = pin!(drained.closing());
    let mut is_waited_for = false;
    loop {
        let mut found = None;
        let idle = poll_fn(|cx| {
            if connection.poll_head(&mut found, cx).is_ready() {
                return Poll::Ready(Idle::Ends);
            }
            // Both wake this task, whatever it does meanwhile: after an answer there is nothing to tell them, and what
            // they had to say then is asked for below and in `is_over`.
            if std::mem::take(&mut is_waited_for) && !patience.is_over() {
                return Poll::Pending;
            }
            if closing.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Idle::Ends);
            }
            patience.poll(connection.is_plain(), cx)
        });
        let idle = idle.await;
        let mut asked = match found {
            Some(Found::Request(asked)) => asked,
            Some(Found::Bad(why)) if manners.asks => head::in_its_place(why),
            Some(Found::Bad(why)) => return refuse(connection, why.status()).await,
            Some(Found::Half) => return refuse(connection, StatusCode::BAD_REQUEST).await,
            None if matches!(idle, Idle::Rests) => return Left::Resting(connection.into_parts().1),
            None => {
                connection.end(false).await;
                return Left::Nothing;
            }
        };
        patience.is_asked = true;
        connection.expect_body(&mut asked, manners.asks);
        let is_refused = asked.request.extensions().get::<Malformed>().is_some();
        let mut about = About::of(&asked.request, asked.keeps);
        let answered = exchange(&mut connection, &mut about, &leaving, pin!(answer(asked.request))).await;
        let Ok(status) = answered else { return Left::Nothing };
        if status == StatusCode::SWITCHING_PROTOCOLS && connection.is_read() {
            let (first, stream) = connection.into_parts();
            return Left::Switched(Rewound::new(first, stream));
        }
        let is_read = connection.drain();
        if !about.keeps || !is_read || leaving.phase() == Phase::Closing {
            // It may have asked more, which lies unread: to be closed upon would take from it what it was answered.
            let may_have_asked = !connection.is_plain() || leaving.phase() > Phase::Serving;
            connection.end(is_refused || !is_read || may_have_asked).await;
            return Left::Nothing;
        }
        is_waited_for = patience.is_waited_for;
    }
}

/// Has a request answered, and the answer sent. The status; what was said of the connection is in `about`.
async fn exchange<B: HttpBody<Data = Bytes> + Unpin>(
    connection: &mut Connection,
    about: &mut About,
    leaving: &Drained,
    mut answering: Pin<&mut impl Future<Output: Answered<Body = B>>>,
) -> Result<StatusCode, Gone> {
    let answered = poll_fn(|cx| connection.poll_with(cx, |cx| answering.as_mut().poll(cx))).await?;
    // The client goes on elsewhere, before this end is closed under its next request.
    about.keeps &= leaving.phase() < Phase::Leaving;
    let mut flow = connection.begin(about, &answered);
    let status = answered.status();
    let (headers, body) = answered.into_parts();
    recycle(headers);
    let mut body = Some(body);
    poll_fn(|cx| connection.poll_send(&mut body, &mut flow, cx)).await?;
    Ok(status)
}

/// Tells a client that it speaks nothing that is understood, without words.
async fn refuse(mut connection: Connection, status: StatusCode) -> Left {
    let mut about = About::of(&Request::new(()), false);
    let mut answer = Response::new(Body::Empty);
    *answer.status_mut() = status;
    let mut flow = connection.begin(&mut about, &answer);
    let told = poll_fn(|cx| connection.poll_send::<Body>(&mut None, &mut flow, cx));
    if told.await.is_ok() {
        connection.end(true).await;
    }
    Left::Nothing
}

/// How long a connection is awake, and kept, without a request. Looking now and then is cheaper than a timer for each
/// request.
struct Patience {
    manners: Manners,
    look: Pin<Box<Sleep>>,
    every: Duration,
    /// For how long nothing was asked when it was last looked.
    quiet: Duration,
    /// Whether something was asked since.
    is_asked: bool,
    /// Whether this task is surely woken when it is to be looked, and when the service ends.
    is_waited_for: bool,
}

impl Patience {
    fn new(manners: Manners) -> Self {
        let every = FIRST_REST.min(manners.patience / 4);
        let look = Box::pin(tokio::time::sleep(every));
        Self { manners, look, every, quiet: Duration::ZERO, is_asked: false, is_waited_for: false }
    }

    /// Whether it is to be looked.
    fn is_over(&self) -> bool {
        self.look.is_elapsed()
    }

    /// Ready when it was waited for long enough. `is_plain` says that nothing came in, either.
    fn poll(&mut self, is_plain: bool, cx: &mut Context<'_>) -> Poll<Idle> {
        while self.look.as_mut().poll(cx).is_ready() {
            let Manners { patience, rests, .. } = self.manners;
            if std::mem::take(&mut self.is_asked) {
                self.quiet = Duration::ZERO;
            } else {
                self.quiet += self.every;
                if rests && is_plain {
                    return Poll::Ready(Idle::Rests);
                }
                if self.quiet >= patience {
                    return Poll::Ready(Idle::Ends);
                }
            }
            self.every = (self.every * 2).min(LAST_REST).min(patience / 4);
            let next = Instant::now() + self.every;
            self.look.as_mut().reset(next);
        }
        // A task that has done much at once is made to pause instead of being heard, and is then woken by nobody else.
        self.is_waited_for = has_budget_remaining();
        Poll::Pending
    }
}
