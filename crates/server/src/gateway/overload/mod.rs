//! An upstream is given only so many requests at a time, the most important first.
//!
//! Who gets through is for `seats` to say, and how many seats there are for `gradient`, where nobody has said it. Here
//! is what those two leave out: time, and requests that wait for their turn. A [`Permit`] is a seat; whoever drops it
//! has stood up, in whatever way that came about.

mod gradient;
#[cfg(test)]
mod gradient_tests;
mod seats;
#[cfg(test)]
mod seats_tests;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::StatusCode;
use quanta::Instant;
use tokio::sync::oneshot;
use tollgate::rules::{MostSpec, OverloadSpec, Priority};

use self::gradient::Gradient;
use self::seats::{Arrival, PRIORITIES, Seats};
use crate::gate::{Exposition, Gate, Queue};

/// What one upstream is given.
#[derive(Debug)]
pub(crate) struct Overload {
    upstream: Arc<str>,
    state: Mutex<State>,
    /// Before this, there was nothing.
    began: Instant,
    /// By priority and reason.
    shed: [[AtomicU64; Shed::ALL.len()]; PRIORITIES.len()],
}

#[derive(Debug)]
struct State {
    spec: OverloadSpec,
    seats: Seats<oneshot::Sender<Permit>>,
    gradient: Option<Gradient>,
}

/// Why a request was not let through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shed {
    /// Nobody more may wait.
    Full,
    /// It waited, and somebody more important came.
    Displaced,
    /// It waited for as long as one may.
    Waited,
}

impl Shed {
    const ALL: [Self; 3] = [Self::Full, Self::Displaced, Self::Waited];

    const fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Displaced => "displaced",
            Self::Waited => "waited",
        }
    }
}

impl State {
    /// As many seats as there may be now, for those who wait, too.
    fn resize(&mut self, lucky: &mut Lucky) {
        let most = match (self.spec.most, &self.gradient) {
            (MostSpec::Fixed(most), _) => most,
            (MostSpec::Adaptive { .. }, Some(gradient)) => gradient.limit(),
            (MostSpec::Adaptive { min, .. }, None) => min,
        };
        self.seats.resize(most, self.spec.reserved_of(most), |priority, waiter| lucky.push((priority, waiter)));
    }
}

/// Those whose turn it is.
type Lucky = Vec<(Priority, oneshot::Sender<Permit>)>;

impl Overload {
    pub(super) fn new(upstream: &Arc<str>, spec: &OverloadSpec) -> Self {
        let most = spec.most.least();
        let seats = Seats::new(most, spec.reserved_of(most), spec.queue as usize, spec.newest_first);
        let state = State { spec: spec.clone(), seats, gradient: gradient_of(spec, 0) };
        Self {
            upstream: Arc::clone(upstream),
            state: Mutex::new(state),
            began: Instant::now(),
            shed: Default::default(),
        }
    }

    /// Says something else about the same upstream. Whoever has a seat keeps it, and whoever waits goes on waiting.
    pub(super) fn set(self: &Arc<Self>, spec: &OverloadSpec) {
        let now = self.now();
        self.change(|state, lucky| {
            if state.spec == *spec {
                return;
            }
            match (&mut state.gradient, spec.most) {
                (Some(gradient), MostSpec::Adaptive { min, max }) => gradient.set_bounds(min, max),
                (gradient, _) => *gradient = gradient_of(spec, now),
            }
            state.spec = spec.clone();
            state.seats.rearrange(spec.queue as usize, spec.newest_first);
            state.resize(lucky);
        });
    }

    /// Waits for a seat, if one may.
    pub(super) async fn enter(self: &Arc<Self>, priority: Priority, gate: &Gate) -> Result<Permit, Shed> {
        let mut receiver = None;
        let (arrival, crowd, longest) = {
            let mut state = self.lock();
            let arrival = state.seats.arrive(priority, || {
                let (waiter, turn) = oneshot::channel();
                receiver = Some(turn);
                waiter
            });
            (arrival, state.seats.sitting(), state.spec.max_wait)
        };
        let (Arrival::Waits { ticket, .. }, Some(mut turn)) = (&arrival, receiver) else {
            return match arrival {
                Arrival::Sits => Ok(self.permit(priority, crowd)),
                _ => Err(self.count(priority, Shed::Full)),
            };
        };
        let _place = Place { overload: self, priority, ticket: *ticket };
        // Whoever had to go finds out by this.
        drop(arrival);
        let since = Instant::now();
        let waited = tokio::time::timeout(Duration::from_micros(longest.as_micros()), &mut turn).await;
        gate.waited(Queue::Upstream, since.elapsed());
        match waited {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(_)) => Err(self.count(priority, Shed::Displaced)),
            // It may have been its turn at the last moment.
            Err(_) => turn.try_recv().map_err(|_| self.count(priority, Shed::Waited)),
        }
    }

    fn permit(self: &Arc<Self>, priority: Priority, crowd: u32) -> Permit {
        Permit { overload: Arc::clone(self), priority, crowd, began: self.now() }
    }

    /// Changes something, and tells those whose turn that makes it.
    fn change(self: &Arc<Self>, change: impl FnOnce(&mut State, &mut Lucky)) {
        let mut lucky = Vec::new();
        let crowd = {
            let mut state = self.lock();
            change(&mut state, &mut lucky);
            state.seats.sitting()
        };
        for (priority, waiter) in lucky {
            // One that has gone meanwhile leaves its seat to the next by dropping it, for which the lock has to be
            // free.
            drop(waiter.send(self.permit(priority, crowd)));
        }
    }

    fn count(&self, priority: Priority, why: Shed) -> Shed {
        if let Some(count) = self.shed.get(priority as usize).and_then(|reasons| reasons.get(why as usize)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        why
    }

    /// In microseconds.
    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn expose(&self, out: &mut Exposition) {
        let (most, sitting, waiting) = {
            let State { seats, .. } = &*self.lock();
            (seats.most(), seats.sitting(), seats.waiting())
        };
        let upstream = ("upstream", &*self.upstream);
        out.gauge("tollgate_upstream_requests", "Requests that an upstream is busy with, and that wait for it.");
        out.sample(&[upstream, ("state", "running")], sitting);
        out.sample(&[upstream, ("state", "waiting")], waiting);
        out.gauge("tollgate_upstream_max_concurrent", "How many requests an upstream is given at a time, now.");
        out.sample(&[upstream], most);
        out.counter(
            "tollgate_shed_requests_total",
            "Requests that were refused because an upstream has too much to do.",
        );
        for ((_, priority), reasons) in PRIORITIES.iter().zip(&self.shed) {
            for (reason, count) in Shed::ALL.iter().zip(reasons) {
                let labels = [upstream, ("priority", priority), ("reason", reason.name())];
                out.sample(&labels, count.load(Ordering::Relaxed));
            }
        }
    }
}

fn gradient_of(spec: &OverloadSpec, now: u64) -> Option<Gradient> {
    match spec.most {
        MostSpec::Fixed(_) => None,
        MostSpec::Adaptive { min, max } => Some(Gradient::new(min, max, now)),
    }
}

/// A place in the queue, given up by whoever does not wait any more.
struct Place<'o> {
    overload: &'o Overload,
    priority: Priority,
    ticket: u64,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.overload.lock().seats.leave(self.priority, self.ticket);
    }
}

/// One of the requests that an upstream is given at a time, until it is dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    overload: Arc<Overload>,
    priority: Priority,
    /// How many had one when it was given, itself included.
    crowd: u32,
    /// When, in microseconds.
    began: u64,
}

impl Permit {
    /// The head of the answer is there, or it is certain that none comes.
    pub(super) fn answered(&self, status: Result<StatusCode, StatusCode>) {
        let now = self.overload.now();
        let has_failed = match status {
            Ok(status) => matches!(status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS),
            Err(status) => status.is_server_error(),
        };
        // How quickly something goes wrong says nothing about how long the right answer takes.
        let is_good = status.is_ok_and(|status| !status.is_server_error());
        self.overload.change(|state, lucky| {
            let Some(gradient) = &mut state.gradient else { return };
            if has_failed {
                gradient.failed(self.began, now);
            } else if is_good {
                gradient.answered(self.began, self.crowd, now);
            }
            if gradient.limit() != state.seats.most() {
                state.resize(lucky);
            }
        });
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let priority = self.priority;
        self.overload.change(|state, lucky| {
            state.seats.stand_up(priority, |priority, waiter| lucky.push((priority, waiter)));
        });
    }
}
