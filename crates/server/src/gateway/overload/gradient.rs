//! How many requests an upstream can take at a time, found out by how long it takes to answer.
//!
//! Up to a point a server answers more requests at a time as quickly as fewer; from there on they only wait inside it.
//! That point is where the limit belongs:
//!
//! ```text
//!   latency                                  .·'
//!                                         .·'
//!   baseline × 5/4 ┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈.·'┈┈┈┈ above: fewer, by the share that it is above, down to half
//!         baseline ━━━━━━━━━━━━━━━━━·'┈┈┈┈┈┈┈ below: more, by the square root of what there is
//!                  ├───────┬────────┬──────── requests at a time
//!                         min     the knee
//! ```
//!
//! Requests are looked at in rounds. Only those count that began in the round, so that each shows what the limit before
//! it did; the median is compared with the **baseline**, which is how long an answer takes when nobody stands in the
//! way. That is measured:
//! - in a round in which at most `min` requests were on their way, whether there were no more, the limit had sunk so far, or
//! - for the sake of it, once a minute: the limit is `min` for one round.
//! - What is faster than the baseline becomes it at once.
//!
//! So a server that has become slower for good sinks to `min` in a few rounds, is measured there, and rises again; one
//! that was slow for a while is found fast as soon as it is. What did not get an answer, or one that says 503 or 429,
//! has no latency, and takes a tenth off the limit, once in a round. A round of nothing but failures ends like any
//! other.
//!
//! Time is an argument, in microseconds since any moment. Integers only: the limit is kept in thousandths. Invariant:
//! it is never below `min` and never above `max`.

/// A round takes at least so long, and three times the baseline: by then what was slow has come back, too.
const SHORTEST_ROUND: u64 = 100_000;
/// A round has at least so many answers, those that say that it failed included.
const FEWEST: usize = 10;
/// Of those in a round, the last so many are looked at.
const MOST_LOOKED_AT: usize = 512;
/// How long a baseline holds.
const MEASURE_EVERY: u64 = 60_000_000;
/// How long measuring may take, and ten times the baseline if that is longer.
const LONGEST_MEASURING: u64 = 1_000_000;
const THOUSAND: u64 = 1_000;

/// The limit of one upstream.
#[derive(Debug)]
pub(super) struct Gradient {
    min: u32,
    max: u32,
    /// In thousandths.
    limit: u64,
    /// In microseconds.
    baseline: Option<u64>,
    measured_at: u64,
    /// Since when it is `min` for the sake of measuring.
    measuring: Option<u64>,
    round: Round,
}

/// What is seen between two changes of the limit.
#[derive(Debug, Default)]
struct Round {
    began: u64,
    /// In microseconds, the last of them, in no order.
    latencies: Vec<u64>,
    answers: usize,
    /// The most that were on their way when one began, itself included.
    crowd: u32,
    failures: usize,
}

impl Gradient {
    pub(super) fn new(min: u32, max: u32, now: u64) -> Self {
        let min = min.max(1);
        let limit = u64::from(min) * THOUSAND;
        let round = Round { began: now, ..Round::default() };
        Self { min, max: max.max(min), limit, baseline: None, measured_at: now, measuring: None, round }
    }

    /// Other bounds for the same upstream.
    pub(super) fn set_bounds(&mut self, min: u32, max: u32) {
        self.min = min.max(1);
        self.max = max.max(self.min);
        self.limit = self.bounded(self.limit);
    }

    /// How many requests there may be at a time.
    pub(super) fn limit(&self) -> u32 {
        match self.measuring {
            Some(_) => self.min,
            None => u32::try_from(self.limit / THOUSAND).unwrap_or(self.max),
        }
    }

    /// A request that `began` when `crowd` were on their way, with it, was answered.
    pub(super) fn answered(&mut self, began: u64, crowd: u32, now: u64) {
        if began >= self.round.began {
            let latency = now.saturating_sub(began).max(1);
            if self.round.latencies.len() < MOST_LOOKED_AT {
                self.round.latencies.push(latency);
            } else if let Some(oldest) = self.round.latencies.get_mut(self.round.answers % MOST_LOOKED_AT) {
                *oldest = latency;
            }
            self.round.answers += 1;
            self.round.crowd = self.round.crowd.max(crowd);
        }
        self.end_round_in_time(now);
    }

    fn end_round_in_time(&mut self, now: u64) {
        let shortest = SHORTEST_ROUND.max(self.baseline.unwrap_or(0).saturating_mul(3));
        let is_long_enough = now.saturating_sub(self.round.began) >= shortest;
        if self.round.answers + self.round.failures >= FEWEST && is_long_enough {
            self.end_round(now);
        }
    }

    /// One was not, or was told that there is too much to do.
    pub(super) fn failed(&mut self, began: u64, now: u64) {
        if began >= self.round.began {
            if self.round.failures == 0 {
                self.limit = self.bounded(self.limit / 10 * 9);
            }
            self.round.failures += 1;
        }
        self.end_round_in_time(now);
    }

    fn end_round(&mut self, now: u64) {
        let mut round = std::mem::replace(&mut self.round, Round { began: now, ..Round::default() });
        if round.latencies.is_empty() {
            // Nothing is known but that all failed, which has taken its share already.
            self.measuring = self.measuring.filter(|since| now.saturating_sub(*since) < LONGEST_MEASURING);
            return;
        }
        let middle = round.latencies.len() / 2;
        let (_, median, _) = round.latencies.select_nth_unstable(middle);
        let latency = *median;
        if round.crowd <= self.min {
            self.baseline = Some(latency);
            self.measured_at = now;
        }
        let baseline = self.baseline.map_or(latency, |baseline| baseline.min(latency));
        self.baseline = Some(baseline);
        if let Some(since) = self.measuring {
            let longest = LONGEST_MEASURING.max(baseline.saturating_mul(10));
            if self.measured_at == now || now.saturating_sub(since) >= longest {
                (self.measuring, self.measured_at) = (None, now);
            }
            return;
        }
        self.limit = self.bounded(self.next(&round, latency, baseline));
        if now.saturating_sub(self.measured_at) >= MEASURE_EVERY {
            self.measuring = Some(now);
        }
    }

    fn next(&self, round: &Round, latency: u64, baseline: u64) -> u64 {
        let tolerated = baseline.saturating_add(baseline / 4);
        let share = u128::from(self.limit) * u128::from(tolerated) / u128::from(latency.max(1));
        let share = u64::try_from(share).unwrap_or(u64::MAX).clamp(self.limit / 2, self.limit);
        let next = share.saturating_add(self.limit.saturating_mul(THOUSAND).isqrt());
        // What nobody needs proves nothing.
        let is_needed = u64::from(round.crowd) * THOUSAND * 2 >= self.limit;
        if is_needed && round.failures == 0 { next } else { next.min(self.limit) }
    }

    fn bounded(&self, limit: u64) -> u64 {
        limit.clamp(u64::from(self.min) * THOUSAND, u64::from(self.max) * THOUSAND)
    }
}
