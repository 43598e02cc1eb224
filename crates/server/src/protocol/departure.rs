//! Clients that leave while their requests wait and nobody reads what they sent.
//!
//! The end of a connection is found by reading, which nobody does while a body is unread: such a request may stand in
//! line for long, with all that was sent, and the end of it, lying in the socket. Whoever lets it wait says so
//! ([`attended`]), and for as long the system is asked to tell when the other end is closed, whatever lies before that.
//! This takes a second descriptor of the socket; where there is none left, and on other systems than Linux, the client
//! is missed only when the wait is over.
//!
//! Nothing is read here. A client that closes its half of the connection counts as gone, as it does where there is no
//! body.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use http::Extensions;

use crate::serve::Stream;

/// Whether the request of a connection waits; among the extensions of those whose bodies are still to come.
#[derive(Clone, Debug, Default)]
pub(super) struct Unread(Arc<AtomicBool>);

/// Lets a request wait, which ends when its client leaves: by HTTP/2 and without a body this is so in any case.
pub(crate) async fn attended<T>(request: &Extensions, wait: impl Future<Output = T>) -> T {
    struct Waiting<'r>(&'r AtomicBool);
    impl Drop for Waiting<'_> {
        fn drop(&mut self) {
            self.0.store(false, Ordering::Relaxed);
        }
    }
    let _waiting = request.get::<Unread>().map(|Unread(waits)| {
        waits.store(true, Ordering::Relaxed);
        Waiting(waits)
    });
    wait.await
}

/// Looks after the other end of a connection while a request on it waits.
#[derive(Default)]
pub(super) struct Watch {
    waits: Unread,
    /// Completes when the other end is closed.
    closed: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Watch {
    /// For whoever lets the request wait.
    pub(super) fn unread(&self) -> Unread {
        self.waits.clone()
    }

    /// Ready when somebody waits in vain.
    pub(super) fn poll(&mut self, stream: &Stream, cx: &mut Context<'_>) -> Poll<()> {
        if !self.waits.0.load(Ordering::Relaxed) {
            self.closed = None;
            return Poll::Pending;
        }
        self.closed.get_or_insert_with(|| Box::pin(stream.closed())).as_mut().poll(cx)
    }
}
