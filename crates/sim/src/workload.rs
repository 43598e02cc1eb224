//! Seeded workloads: who asks when.
//!
//! Two kinds of parts make a trace. *Arrivals* are endless, ascending instants: [`Poisson`], [`OnOff`], [`Diurnal`] and
//! [`Boundary`]. A trace then says whose request each one is: [`ByPopularity`] deals one stream of arrivals to the
//! keys of a [`Zipf`] distribution, [`ByClient`] merges one stream per key. Both yield [`Request`]s in order of time.
//!
//! The same seed gives the same trace in every release: the generator ([`Rng`]) is part of this file and of no
//! library that may change its mind. Workloads are the only place where floating point is welcome; nothing here
//! decides.
//!
//! ```
//! use tollgate_core::Timestamp;
//! use tollgate_sim::workload::{ByPopularity, Poisson, Zipf};
//!
//! let noon = Timestamp::from_secs(1_700_049_600);
//! let trace = ByPopularity::new(Poisson::new(2_000.0, noon, 1), Zipf::new(100_000, 1.0), 2);
//! let first_second = trace.take_while(|request| request.at < noon.plus(tollgate_core::Micros::SECOND)).count();
//! assert!((1_800..2_200).contains(&first_second));
//! ```

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::f64::consts::TAU;

use tollgate_core::{Micros, Timestamp, mix};

/// One request of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// When it arrives.
    pub at: Timestamp,
    /// Whose it is: a number below the number of keys.
    pub key: usize,
}

/// SplitMix64: tiny, fast, and good enough to pass the usual batteries.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A generator whose whole future is determined by `seed`.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number from 0 up to but not including 1.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A whole number below `bound`; 0 when there is none. Biased by less than `bound / 2^64`.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }

    /// The time to the next event of a memoryless process with this mean.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit()).ln()
    }
}

/// Popularity by rank: key `k` (from 0) is drawn in proportion to `1 / (k + 1)^exponent`.
#[derive(Clone, Debug)]
pub struct Zipf {
    /// The share of all keys up to and including each one; the last is 1.
    cumulative: Vec<f64>,
}

impl Zipf {
    /// `keys` keys. An exponent of 1 is the classic law, 0 makes all keys equal.
    pub fn new(keys: usize, exponent: f64) -> Self {
        let mut cumulative: Vec<f64> = (1..=keys)
            .scan(0.0, |sum, rank| {
                *sum += (rank as f64).powf(-exponent);
                Some(*sum)
            })
            .collect();
        let total = cumulative.last().copied().unwrap_or(1.0);
        cumulative.iter_mut().for_each(|share| *share /= total);
        Self { cumulative }
    }

    /// A key, by looking a uniform number up in the exact table.
    pub fn draw(&self, rng: &mut Rng) -> usize {
        let at = rng.unit();
        self.cumulative.partition_point(|share| *share <= at).min(self.cumulative.len().saturating_sub(1))
    }

    /// The probability of `key`.
    pub fn share(&self, key: usize) -> f64 {
        let up_to = |index: usize| self.cumulative.get(index).copied().unwrap_or(1.0);
        up_to(key) - key.checked_sub(1).map_or(0.0, up_to)
    }
}

/// A point on a time line that is kept as a fraction, so that rates above one per microsecond work too.
#[derive(Clone, Copy, Debug)]
struct Line {
    from: Timestamp,
    /// Microseconds since `from`.
    micros: f64,
}

impl Line {
    fn at(&self) -> Timestamp {
        self.from.plus(Micros::from_micros(self.micros as u64))
    }
}

fn micros(span: Micros) -> f64 {
    span.as_micros() as f64
}

/// Independent arrivals at a constant rate.
#[derive(Clone, Debug)]
pub struct Poisson {
    rng: Rng,
    line: Line,
    mean_gap: f64,
}

impl Poisson {
    /// `per_second` arrivals per second on average, from `from` on.
    pub fn new(per_second: f64, from: Timestamp, seed: u64) -> Self {
        Self { rng: Rng::new(seed), line: Line { from, micros: 0.0 }, mean_gap: 1e6 / per_second }
    }
}

impl Iterator for Poisson {
    type Item = Timestamp;

    fn next(&mut self) -> Option<Timestamp> {
        self.line.micros += self.rng.exponential(self.mean_gap);
        Some(self.line.at())
    }
}

/// Bursts and silence: Poisson arrivals while on, none while off, both for exponentially distributed times.
#[derive(Clone, Debug)]
pub struct OnOff {
    rng: Rng,
    line: Line,
    mean_gap: f64,
    mean_on: f64,
    mean_off: f64,
    /// When the current burst ends.
    on_until: f64,
}

impl OnOff {
    /// `per_second` arrivals per second during bursts of `on` on average, with `off` on average between them. Begins
    /// with silence.
    pub fn new(per_second: f64, on: Micros, off: Micros, from: Timestamp, seed: u64) -> Self {
        Self {
            rng: Rng::new(seed),
            line: Line { from, micros: 0.0 },
            mean_gap: 1e6 / per_second,
            mean_on: micros(on),
            mean_off: micros(off),
            on_until: 0.0,
        }
    }
}

impl Iterator for OnOff {
    type Item = Timestamp;

    fn next(&mut self) -> Option<Timestamp> {
        loop {
            let next = self.line.micros + self.rng.exponential(self.mean_gap);
            if next < self.on_until {
                self.line.micros = next;
                return Some(self.line.at());
            }
            // Arrivals are memoryless, so the one that did not come in this burst is drawn anew in the next.
            self.line.micros = self.on_until + self.rng.exponential(self.mean_off);
            self.on_until = self.line.micros + self.rng.exponential(self.mean_on);
        }
    }
}

/// Poisson arrivals whose rate follows the day: lowest at 4:00 UTC, highest at 16:00.
#[derive(Clone, Debug)]
pub struct Diurnal {
    peak: Poisson,
    swing: f64,
}

impl Diurnal {
    /// `per_second` on average over a day, between `1 - swing` and `1 + swing` times that.
    pub fn new(per_second: f64, swing: f64, from: Timestamp, seed: u64) -> Self {
        Self { peak: Poisson::new(per_second * (1.0 + swing), from, seed), swing }
    }

    /// The rate at an instant, as a multiple of the average.
    pub fn level(swing: f64, at: Timestamp) -> f64 {
        let hours = (at.as_micros() % Micros::DAY.as_micros()) as f64 / micros(Micros::HOUR);
        1.0 - swing * (TAU * (hours - 4.0) / 24.0).cos()
    }
}

impl Iterator for Diurnal {
    type Item = Timestamp;

    fn next(&mut self) -> Option<Timestamp> {
        loop {
            let at = self.peak.next()?;
            if self.peak.rng.unit() * (1.0 + self.swing) < Self::level(self.swing, at) {
                return Some(at);
            }
        }
    }
}

/// An adversary of fixed windows: bursts just before and just after each boundary, silence in between.
#[derive(Clone, Debug)]
pub struct Boundary {
    rng: Rng,
    burst: usize,
    window: Micros,
    margin: u64,
    next_boundary: Timestamp,
    /// Latest first.
    ready: Vec<Timestamp>,
}

impl Boundary {
    /// `burst` arrivals within `margin` before each multiple of `window` after `from`, and as many within `margin`
    /// after.
    pub fn new(burst: usize, window: Micros, margin: Micros, from: Timestamp, seed: u64) -> Self {
        let length = window.as_micros().max(1);
        // Two windows on, so that the first burst lies after `from` for every margin up to a window.
        let next_boundary = Timestamp::from_micros((from.as_micros() / length + 2) * length);
        let (rng, margin) = (Rng::new(seed), margin.as_micros().min(length));
        Self { rng, burst: burst.max(1), window, margin, next_boundary, ready: Vec::new() }
    }
}

impl Iterator for Boundary {
    type Item = Timestamp;

    fn next(&mut self) -> Option<Timestamp> {
        if self.ready.is_empty() {
            let before = self.next_boundary.minus(Micros::from_micros(self.margin));
            for start in [before, self.next_boundary] {
                for _ in 0..self.burst {
                    self.ready.push(start.plus(Micros::from_micros(self.rng.below(self.margin))));
                }
            }
            self.ready.sort_unstable_by_key(|at| Reverse(*at));
            self.next_boundary = self.next_boundary.plus(self.window);
        }
        self.ready.pop()
    }
}

/// One stream of arrivals, each by a key drawn from a distribution.
#[derive(Clone, Debug)]
pub struct ByPopularity<A> {
    arrivals: A,
    keys: Zipf,
    rng: Rng,
}

impl<A: Iterator<Item = Timestamp>> ByPopularity<A> {
    /// Deals `arrivals` to `keys`.
    pub fn new(arrivals: A, keys: Zipf, seed: u64) -> Self {
        Self { arrivals, keys, rng: Rng::new(seed) }
    }
}

impl<A: Iterator<Item = Timestamp>> Iterator for ByPopularity<A> {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        let at = self.arrivals.next()?;
        Some(Request { at, key: self.keys.draw(&mut self.rng) })
    }
}

/// One stream of arrivals per key, merged.
#[derive(Clone, Debug)]
pub struct ByClient<A> {
    clients: Vec<A>,
    next: BinaryHeap<Reverse<(Timestamp, usize)>>,
}

impl<A: Iterator<Item = Timestamp>> ByClient<A> {
    /// The first stream belongs to key 0, and so on.
    pub fn new(clients: impl IntoIterator<Item = A>) -> Self {
        let mut clients: Vec<A> = clients.into_iter().collect();
        let first = |(key, client): (usize, &mut A)| client.next().map(|at| Reverse((at, key)));
        let next = clients.iter_mut().enumerate().filter_map(first).collect();
        Self { clients, next }
    }
}

impl<A: Iterator<Item = Timestamp>> Iterator for ByClient<A> {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        let Reverse((at, key)) = self.next.pop()?;
        if let Some(then) = self.clients.get_mut(key).and_then(Iterator::next) {
            self.next.push(Reverse((then, key)));
        }
        Some(Request { at, key })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: Timestamp = Timestamp::from_secs(1_700_049_600);

    fn ascending<I: Iterator<Item = Timestamp>>(arrivals: I, number: usize) -> Vec<Timestamp> {
        let all: Vec<Timestamp> = arrivals.take(number).collect();
        assert!(all.is_sorted() && all.first().is_some_and(|first| *first >= NOON));
        all
    }

    fn close(measured: f64, expected: f64, tolerance: f64) {
        assert!((measured / expected - 1.0).abs() <= tolerance, "{measured} is not near {expected}");
    }

    #[test]
    fn zipf_frequencies_follow_the_law() {
        let zipf = Zipf::new(1_000, 1.0);
        close(zipf.share(0) / zipf.share(9), 10.0, 1e-9);
        let mut rng = Rng::new(7);
        let mut counts = vec![0.0; 1_000];
        (0..1_000_000).for_each(|_| counts[zipf.draw(&mut rng)] += 1.0);
        for key in [0, 1, 2, 9, 49] {
            close(counts[key] / 1e6, zipf.share(key), 0.05);
        }
        close(counts[100..].iter().sum::<f64>() / 1e6, (100..1_000).map(|key| zipf.share(key)).sum(), 0.01);
        close(Zipf::new(50, 0.0).share(49), 1.0 / 50.0, 1e-9);
    }

    #[test]
    fn poisson_gaps_are_exponential() {
        let arrivals = ascending(Poisson::new(250.0, NOON, 3), 200_000);
        let gaps: Vec<f64> = arrivals.windows(2).map(|pair| micros(pair[1].since(pair[0]))).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        close(mean, 4_000.0, 0.01);
        close(variance.sqrt(), 4_000.0, 0.02);
        let longer_than_mean = gaps.iter().filter(|gap| **gap > mean).count() as f64 / gaps.len() as f64;
        close(longer_than_mean, (-1.0_f64).exp(), 0.01);
    }

    #[test]
    fn bursts_have_the_asked_rate_and_share_of_time() {
        let bursts = OnOff::new(100.0, Micros::from_secs(2), Micros::from_secs(8), NOON, 5);
        let arrivals = ascending(bursts, 400_000);
        let seconds = micros(arrivals[arrivals.len() - 1].since(NOON)) / 1e6;
        close(arrivals.len() as f64 / seconds, 20.0, 0.05);
        let silences = arrivals.windows(2).filter(|pair| pair[1].since(pair[0]) > Micros::from_millis(200)).count();
        close(silences as f64, seconds / 10.0, 0.05);
    }

    #[test]
    fn the_day_has_its_trough_at_four_and_its_peak_at_sixteen() {
        let mut by_hour = [0.0; 24];
        let arrivals = Diurnal::new(10.0, 0.8, NOON, 11).take(864_000 * 4);
        arrivals.for_each(|at| by_hour[(at.as_micros() / 3_600_000_000 % 24) as usize] += 1.0);
        let mean = by_hour.iter().sum::<f64>() / 24.0;
        for (hour, count) in by_hour.into_iter().enumerate() {
            let middle = Timestamp::from_secs(hour as u64 * 3_600 + 1_800);
            close(count / mean, Diurnal::level(0.8, middle), 0.02);
        }
    }

    #[test]
    fn boundary_bursts_lie_evenly_on_both_sides() {
        let bursts = Boundary::new(5, Micros::MINUTE, Micros::SECOND, NOON, 13);
        let arrivals = ascending(bursts, 1_000);
        let second_of_minute = |at: &Timestamp| at.as_micros() / 1_000_000 % 60;
        assert_eq!(arrivals.iter().filter(|at| second_of_minute(at) == 59).count(), 500);
        assert_eq!(arrivals.iter().filter(|at| second_of_minute(at) == 0).count(), 500);
    }

    #[test]
    fn merged_clients_stay_in_order_and_the_same_seed_repeats() {
        let trace = || ByClient::new((0..50).map(|seed| Poisson::new(1.0 + seed as f64, NOON, seed)));
        let requests: Vec<Request> = trace().take(20_000).collect();
        assert!(requests.is_sorted_by_key(|request| request.at));
        assert!(trace().take(20_000).eq(requests.iter().copied()));
        let of = |key| requests.iter().filter(|request| request.key == key).count() as f64;
        close(of(49) / of(24), 2.0, 0.15);
    }
}
