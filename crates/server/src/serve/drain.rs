//! The end, announced: connections that hear of it finish what they have and go.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

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
pub(crate) struct Drained {
    phase: watch::Receiver<Phase>,
    /// When this connection has lived long enough.
    until: Option<Instant>,
}

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
        Drained { phase: self.0.subscribe(), until: None }
    }

    pub(crate) fn is_serving(&self) -> bool {
        *self.0.borrow() == Phase::Serving
    }
}

impl Drained {
    /// For a connection that is to finish after `age` in any case; a tenth more or less, so that those that came
    /// together do not leave together.
    pub(crate) fn at_most(self, age: Duration) -> Self {
        let mut random = [0];
        // Without randomness they leave together, which is no more than unkind.
        let _ = getrandom::fill(&mut random);
        let age = age / 10 * 9 + age / 5 * u32::from(random[0]) / 255;
        Self { until: Instant::now().checked_add(age), ..self }
    }

    pub(crate) fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    /// Completes when requests are no longer welcome.
    pub(crate) async fn leaving(&mut self) {
        let _ = self.phase.wait_for(|phase| *phase >= Phase::Leaving).await;
    }

    /// Completes when connections are to finish.
    pub(crate) async fn closing(&mut self) {
        let too_old = async {
            match self.until {
                Some(until) => tokio::time::sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            // Without a sender the server is gone, which is an end as well.
            _ = self.phase.wait_for(|phase| *phase == Phase::Closing) => {}
            () = too_old => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_connection_ends_with_the_service_or_when_it_is_old() {
        let drain = Drain::new();
        let mut forever = drain.listen();
        let mut day = drain.listen().at_most(Duration::from_secs(100));
        let begun = Instant::now();
        day.closing().await;
        let lived = begun.elapsed().as_secs();
        assert!((90..=110).contains(&lived), "{lived}");
        assert!(tokio::time::timeout(Duration::from_secs(1_000_000), forever.closing()).await.is_err());
        drain.enter(Phase::Leaving);
        assert!(!drain.is_serving());
        assert!(tokio::time::timeout(Duration::from_secs(1_000_000), forever.closing()).await.is_err());
        drain.enter(Phase::Closing);
        forever.closing().await;
        assert_eq!(forever.phase(), Phase::Closing);
    }

    #[test]
    fn phases_only_go_on() {
        let drain = Drain::new();
        drain.enter(Phase::Closing);
        drain.enter(Phase::Leaving);
        assert_eq!(drain.listen().phase(), Phase::Closing);
    }
}
