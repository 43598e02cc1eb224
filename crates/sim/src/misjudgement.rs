//! How often a sliding counter is wrong: the same requests through the estimate and through the exact log.
//!
//! Several things are told apart for each request, because "wrong" has more than one meaning:
//!
//! - **Wrongly allowed**: the counter admitted it, though the rolling window that ends with it already held as many
//!   of the requests *that this counter had admitted* as the limit allows.
//! - **Wrongly denied**: the counter refused it, though that window had room.
//! - **Far off**: wrongly allowed or denied while the true count was more than a twentieth of the limit away from it.
//!   Nearly all refusals of a client that never lets up happen when a single place is or is about to be free, so the
//!   two figures above count many errors of one request; this one counts those that matter.
//! - **Differs**: an exact log that was fed the same arrivals from the start, and so has a history of its own,
//!   decided the other way. One early error shifts all later verdicts of a key, so this figure is larger and says
//!   less about a single decision.
//! - **Wrong when all count**: the estimate and the exact count disagree whether the limit is exceeded when refused
//!   requests are counted like admitted ones. No tollgate counter works like that, but limiters that count first and
//!   ask later do, and figures published for them may be of this kind.
//!
//! The first two judge every decision by the state that the counter itself brought about, which is what a client sees.
//! The counter's estimate is computed here a second time, from the admissions alone, to measure how far from the
//! true count it is.

use std::collections::VecDeque;

use tollgate_core::{Ask, Limit, LimitError, Micros, SlidingCounter, SlidingLog, State, Timestamp};

use crate::workload::Request;

/// What one counter got wrong.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Requests in all.
    pub requests: u64,
    /// Refused by the counter.
    pub denied: u64,
    /// Admitted though the rolling window was full.
    pub wrongly_allowed: u64,
    /// Refused though the rolling window had room.
    pub wrongly_denied: u64,
    /// Of both, those that were wrong by more than a twentieth of the limit.
    pub far_off: u64,
    /// Decided otherwise by an exact log with its own history.
    pub differs: u64,
    /// Estimate and count disagree when every arrival is counted, admitted or not.
    pub wrong_when_all_count: u64,
    /// The most admissions in any rolling window, whoever they were for.
    pub worst_window: u64,
    /// Requests that found something in the rolling window.
    counted: u64,
    /// Over those, the sum of |estimate - count| / count.
    error: f64,
}

impl Tally {
    /// The share of requests that were wrongly allowed or wrongly denied.
    pub fn misjudged(&self) -> f64 {
        self.share(self.wrongly_allowed + self.wrongly_denied)
    }

    /// `count` as a share of all requests.
    pub fn share(&self, count: u64) -> f64 {
        count as f64 / self.requests.max(1) as f64
    }

    /// How far the estimate is from the true count on average, as a share of the count, over the requests that find the
    /// window not empty.
    pub fn mean_error(&self) -> f64 {
        self.error / self.counted.max(1) as f64
    }
}

/// One counter under test.
#[derive(Clone, Debug)]
struct Judge {
    spec: SlidingCounter,
    counter: Limit,
    keys: Vec<Watched>,
    tally: Tally,
}

/// One key of it.
#[derive(Clone, Debug, Default)]
struct Watched {
    state: State,
    admitted: Events,
    arrived: Events,
}

/// Instants, oldest first, as long as an estimate reaches back.
#[derive(Clone, Debug, Default)]
struct Events(VecDeque<Timestamp>);

/// A rolling window as it is and as the counter takes it to be.
struct Window {
    count: u64,
    estimate: f64,
}

impl Events {
    /// Forgets what no longer matters at `now` and counts the rest.
    fn window(&mut self, spec: &SlidingCounter, now: Timestamp) -> Window {
        let part = spec.window.as_micros() / u64::from(spec.sub_windows);
        let into_part = now.as_micros() % part;
        let reach = now.minus(Micros::from_micros(into_part)).minus(spec.window);
        let oldest_ends = reach.plus(Micros::from_micros(part));
        while self.0.front().is_some_and(|at| *at < reach) {
            self.0.pop_front();
        }
        let since = |start: Timestamp| self.0.len() - self.0.partition_point(|at| *at < start);
        let fading = self.0.len() - since(oldest_ends);
        let covered = 1.0 - into_part as f64 / part as f64;
        // An event exactly one window old has left.
        let count = since(now.minus(spec.window).plus(Micros::from_micros(1))) as u64;
        Window { count, estimate: since(oldest_ends) as f64 + fading as f64 * covered }
    }
}

impl Judge {
    fn feed(&mut self, request: Request, exact_allows: bool) {
        if self.keys.len() <= request.key {
            self.keys.resize_with(request.key + 1, Watched::default);
        }
        let Some(key) = self.keys.get_mut(request.key) else { return };
        let window = key.admitted.window(&self.spec, request.at);
        let arrived = key.arrived.window(&self.spec, request.at);
        key.arrived.0.push_back(request.at);
        let had_room = window.count < self.spec.limit;
        let fits_all = arrived.count < self.spec.limit;
        let seems_to_fit_all = arrived.estimate + 1.0 <= self.spec.limit as f64;
        let allowed = self.counter.apply(&mut key.state, &Ask::spend(1, request.at)).allowed;
        let tally = &mut self.tally;
        tally.requests += 1;
        tally.denied += u64::from(!allowed);
        tally.wrongly_allowed += u64::from(allowed && !had_room);
        tally.wrongly_denied += u64::from(!allowed && had_room);
        let off_by = window.count.abs_diff(self.spec.limit);
        tally.far_off += u64::from(allowed != had_room && off_by * 20 > self.spec.limit);
        tally.differs += u64::from(allowed != exact_allows);
        tally.wrong_when_all_count += u64::from(fits_all != seems_to_fit_all);
        if window.count > 0 {
            let count = window.count as f64;
            tally.counted += 1;
            tally.error += (window.estimate - count).abs() / count;
        }
        if allowed {
            key.admitted.0.push_back(request.at);
            tally.worst_window = tally.worst_window.max(window.count + 1);
        }
    }
}

/// Several counters of one limit, and the exact log, side by side.
#[derive(Clone, Debug)]
pub struct Comparison {
    log: Limit,
    exact: Vec<State>,
    denied_exactly: u64,
    requests: u64,
    judges: Vec<Judge>,
}

impl Comparison {
    /// `limit` per `window`, counted exactly and by a counter with each number of `sub_windows`.
    pub fn new(limit: u64, window: Micros, sub_windows: &[u32]) -> Result<Self, LimitError> {
        let judge = |number: &u32| {
            let spec = SlidingCounter::new(limit, window).sub_windows(*number);
            Ok(Judge { spec, counter: Limit::new(spec)?, keys: Vec::new(), tally: Tally::default() })
        };
        Ok(Self {
            log: Limit::new(SlidingLog::new(limit, window))?,
            exact: Vec::new(),
            denied_exactly: 0,
            requests: 0,
            judges: sub_windows.iter().map(judge).collect::<Result<_, LimitError>>()?,
        })
    }

    /// Puts one request to all of them. Requests come in order of time.
    pub fn feed(&mut self, request: Request) {
        if self.exact.len() <= request.key {
            self.exact.resize_with(request.key + 1, State::default);
        }
        let Some(state) = self.exact.get_mut(request.key) else { return };
        let allowed = self.log.apply(state, &Ask::spend(1, request.at)).allowed;
        self.requests += 1;
        self.denied_exactly += u64::from(!allowed);
        self.judges.iter_mut().for_each(|judge| judge.feed(request, allowed));
    }

    /// What each counter got wrong, with its number of sub-windows.
    pub fn tallies(&self) -> impl Iterator<Item = (u32, &Tally)> {
        self.judges.iter().map(|judge| (judge.spec.sub_windows, &judge.tally))
    }

    /// The share of requests that the exact log refused.
    pub fn denied_exactly(&self) -> f64 {
        self.denied_exactly as f64 / self.requests.max(1) as f64
    }

    /// What a counter admitted in all, as a multiple of what the exact log did.
    pub fn admitted_by(&self, tally: &Tally) -> f64 {
        (tally.requests - tally.denied) as f64 / (self.requests - self.denied_exactly).max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Timestamp = Timestamp::from_secs(1_705_276_800);

    fn at(seconds: u64) -> Request {
        Request { at: START.plus(Micros::from_secs(seconds)), key: 0 }
    }

    fn tally(limit: u64, times: &[u64]) -> Tally {
        let mut comparison = Comparison::new(limit, Micros::MINUTE, &[1]).expect("a valid limit");
        times.iter().for_each(|seconds| comparison.feed(at(*seconds)));
        comparison.tallies().next().expect("one counter").1.clone()
    }

    #[test]
    fn a_late_burst_is_wrongly_allowed_when_it_fades_too_soon() {
        // Ten at 0:59. At 1:30 half of them count, so five more pass, though all ten are in the rolling window.
        let times: Vec<u64> = [59; 10].into_iter().chain([90; 6]).collect();
        let tally = tally(10, &times);
        assert_eq!((tally.wrongly_allowed, tally.wrongly_denied, tally.far_off), (5, 0, 4));
        assert_eq!((tally.denied, tally.differs, tally.worst_window), (1, 5, 15));
    }

    #[test]
    fn an_early_burst_is_wrongly_denied_when_it_fades_too_late() {
        // Ten at 0:00. At 1:06 they have all left, but nine tenths of them count.
        let times: Vec<u64> = [0; 10].into_iter().chain([66; 4]).collect();
        let tally = tally(10, &times);
        assert_eq!((tally.wrongly_allowed, tally.wrongly_denied), (0, 3));
        assert_eq!((tally.denied, tally.differs, tally.worst_window), (3, 3, 10));
        assert!((tally.misjudged() - 3.0 / 14.0).abs() < 1e-12);
    }

    #[test]
    fn the_estimate_is_that_of_the_counter() {
        let spec = SlidingCounter::new(50, Micros::MINUTE);
        let mut events = Events([vec![at(10).at; 42], vec![at(70).at; 18]].concat().into());
        let window = events.window(&spec, at(75).at);
        assert_eq!((window.count, window.estimate), (18, 49.5));
    }
}
