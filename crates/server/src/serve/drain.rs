//! The end, announced: connections that hear of it finish what they have and go.

use std::sync::Arc;

use tokio::sync::watch;

/// How far the end has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    #[default]
    Serving,
    /// Not ready any more, and still answering everything: whoever balances load is to notice.
    Leaving,
    /// No new connections; those that are open finish.
    Closing,
}

/// Announces the end.
#[derive(Clone, Debug)]
pub(crate) struct Drain(Arc<watch::Sender<Phase>>);

/// Hears of it.
#[derive(Clone, Debug)]
pub(crate) struct Drained(watch::Receiver<Phase>);

impl Drain {
    pub(crate) fn new() -> Self {
        Self(Arc::new(watch::channel(Phase::Serving).0))
    }

    pub(crate) fn enter(&self, phase: Phase) {
        self.0.send_if_modified(|current| {
            let is_later = phase > *current;
            *current = phase.max(*current);
            is_later
        });
    }

    pub(crate) fn listen(&self) -> Drained {
        Drained(self.0.subscribe())
    }

    pub(crate) fn is_serving(&self) -> bool {
        *self.0.borrow() == Phase::Serving
    }
}

impl Drained {
    pub(crate) fn phase(&self) -> Phase {
        *self.0.borrow()
    }

    /// Completes when connections are to finish.
    pub(crate) async fn closing(&mut self) {
        // Without a sender the server is gone, which is an end as well.
        let _ = self.0.wait_for(|phase| *phase == Phase::Closing).await;
    }
}
