//! What is known of one server, shared between those who ask and the task that talks to it: whether it may be asked,
//! since when and why, and what happened so far. Whoever finds the desk closed is told so at once and pays nothing.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Whether a server is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// There was no connection yet.
    Starting,
    /// All are let through.
    Serving,
    /// It failed, and one is let through to see whether it does still.
    Trying,
    /// It failed and is not asked.
    Resting,
}

/// How a server is.
#[derive(Clone, Debug)]
pub struct Health {
    /// Where it is, as `host:port` or a path.
    pub server: Arc<str>,
    /// Whether it is asked.
    pub standing: Standing,
    /// For how long that has been so.
    pub lasting: Duration,
    /// Why it is not asked; empty while it is.
    pub why: Arc<str>,
    /// What happened, by name, since the link was opened.
    pub counts: [(&'static str, u64); COUNTS],
}

impl Health {
    /// How often that happened.
    pub fn count(&self, name: &str) -> u64 {
        self.counts.iter().find(|(known, _)| *known == name).map_or(0, |(_, count)| *count)
    }
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Count {
    /// Calls of the script, and the requests in them.
    Calls,
    Requests,
    /// Requests that were answered in time.
    Answered,
    /// Requests that were not answered, by kind.
    Deadline,
    Lost,
    Refused,
    Nonsense,
    Crowded,
    /// Requests that were not sent since the server is not asked.
    Resting,
    /// Answers to requests that were given up.
    Late,
    /// Requests that were sent again, to where the server said or because it had not run them.
    Redirected,
    Again,
    /// Times that the script had to be loaded again.
    Reloaded,
    Connected,
    ConnectFailed,
    /// Transitions.
    Opened,
    Closed,
    /// Panics that were caught.
    Panicked,
}

/// How many different things are counted.
pub const COUNTS: usize = 18;

const NAMES: [&str; COUNTS] = [
    "calls",
    "requests",
    "answered",
    "deadline",
    "lost",
    "refused",
    "nonsense",
    "crowded",
    "resting",
    "late",
    "redirected",
    "again",
    "reloaded",
    "connected",
    "connect_failed",
    "opened",
    "closed",
    "panicked",
];

const PASS: u8 = 0;
const PROBE: u8 = 1;
const REFUSE: u8 = 2;

/// Whether one may be sent.
#[derive(Debug)]
pub(super) enum Admission {
    Pass,
    /// As the one that shows whether more can be.
    Probe,
    Refuse(Arc<str>),
}

#[derive(Debug)]
pub(super) struct Desk {
    server: Arc<str>,
    gate: AtomicU8,
    state: Mutex<State>,
    counts: [AtomicU64; COUNTS],
}

#[derive(Debug)]
struct State {
    standing: Standing,
    since: Instant,
    why: Arc<str>,
    /// Which reason was logged last, and when.
    told: Option<(Arc<str>, Instant)>,
}

/// Another reason why a server is not asked is logged after this time at the earliest: two may come in turn.
const QUIET: Duration = Duration::from_secs(1);

impl Desk {
    pub(super) fn new(server: Arc<str>, now: Instant) -> Self {
        let state = State { standing: Standing::Starting, since: now, why: "not connected yet".into(), told: None };
        Self { server, gate: AtomicU8::new(REFUSE), state: Mutex::new(state), counts: Default::default() }
    }

    /// Whether one may be sent now.
    #[inline]
    pub(super) fn admit(&self) -> Admission {
        match self.gate.load(Ordering::Relaxed) {
            PASS => Admission::Pass,
            // Of all that come, one is the probe.
            PROBE if self.gate.compare_exchange(PROBE, REFUSE, Ordering::Relaxed, Ordering::Relaxed).is_ok() => {
                Admission::Probe
            }
            _ => {
                self.count(Count::Resting, 1);
                Admission::Refuse(Arc::clone(&self.state().why))
            }
        }
    }

    /// The probe was not sent after all: the next one may be it.
    pub(super) fn return_probe(&self) {
        if self.state().standing == Standing::Trying {
            self.gate.store(PROBE, Ordering::Relaxed);
        }
    }

    /// Says how the server stands. A change is logged, once, and counted.
    pub(super) fn publish(&self, standing: Standing, why: &Arc<str>, now: Instant) {
        let (before, lasted) = {
            let mut state = self.state();
            if standing != Standing::Serving {
                state.why = Arc::clone(why);
            }
            if state.standing == standing {
                let is_other = state.told.as_ref().is_some_and(|(told, at)| told != why && now >= *at + QUIET);
                if standing == Standing::Resting && is_other {
                    state.told = Some((Arc::clone(why), now));
                    drop(state);
                    tracing::warn!(server = &*self.server, "Redis is still not asked: {why}");
                }
                return;
            }
            if matches!((state.standing, standing), (Standing::Serving | Standing::Starting, Standing::Resting)) {
                state.told = Some((Arc::clone(why), now));
            }
            let before = (state.standing, now.saturating_duration_since(state.since));
            (state.standing, state.since) = (standing, now);
            let gate = match standing {
                Standing::Serving => PASS,
                Standing::Trying => PROBE,
                Standing::Starting | Standing::Resting => REFUSE,
            };
            self.gate.store(gate, Ordering::Relaxed);
            before
        };
        let server = &*self.server;
        match (before, standing) {
            (Standing::Starting, Standing::Serving) => tracing::info!(server, "Redis is connected"),
            (_, Standing::Serving) => {
                self.count(Count::Closed, 1);
                tracing::info!(server, "Redis is asked again, after {lasted:.1?}");
            }
            (Standing::Serving | Standing::Starting, Standing::Resting) => {
                self.count(Count::Opened, 1);
                tracing::warn!(server, "Redis is not asked for now: {why}");
            }
            _ => tracing::debug!(server, "Redis is {standing:?}: {why}"),
        }
    }

    pub(super) fn health(&self, now: Instant) -> Health {
        let state = self.state();
        let mut counts = NAMES.map(|name| (name, 0));
        for (shown, count) in counts.iter_mut().zip(&self.counts) {
            shown.1 = count.load(Ordering::Relaxed);
        }
        Health {
            server: Arc::clone(&self.server),
            standing: state.standing,
            lasting: now.saturating_duration_since(state.since),
            why: if state.standing == Standing::Serving { "".into() } else { Arc::clone(&state.why) },
            counts,
        }
    }

    pub(super) fn standing(&self) -> Standing {
        self.state().standing
    }

    #[inline]
    pub(super) fn count(&self, what: Count, times: u64) {
        if let Some(count) = self.counts.get(what as usize) {
            count.fetch_add(times, Ordering::Relaxed);
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_count_has_a_name() {
        assert_eq!(Count::Panicked as usize, COUNTS - 1);
        let desk = Desk::new("s".into(), Instant::now());
        desk.count(Count::Late, 2);
        let health = desk.health(Instant::now());
        assert_eq!((health.count("late"), health.count("calls")), (2, 0));
    }

    #[test]
    fn half_open_exactly_one_is_let_through() {
        let now = Instant::now();
        let desk = Desk::new("s".into(), now);
        assert!(matches!(desk.admit(), Admission::Refuse(why) if &*why == "not connected yet"));
        desk.publish(Standing::Serving, &"".into(), now);
        assert!(matches!(desk.admit(), Admission::Pass));
        desk.publish(Standing::Resting, &"it died".into(), now);
        assert!(matches!(desk.admit(), Admission::Refuse(why) if &*why == "it died"));
        desk.publish(Standing::Trying, &"it died".into(), now);
        assert!(matches!(desk.admit(), Admission::Probe));
        assert!(matches!(desk.admit(), Admission::Refuse(_)));
        desk.return_probe();
        assert!(matches!(desk.admit(), Admission::Probe));
        desk.publish(Standing::Serving, &"".into(), now);
        desk.return_probe();
        assert!(matches!(desk.admit(), Admission::Pass));
        let health = desk.health(now);
        assert_eq!((health.count("opened"), health.count("closed"), health.count("resting")), (1, 1, 3));
    }
}
