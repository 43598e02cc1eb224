//! What each algorithm promises about any stretch of time, and how much of it was used at worst.
//!
//! Only decisions count that lie wholly within a stretch, from begin to return, so that nothing has to be known about
//! the instant between at which they took effect.

use tollgate::{Algorithm, Limit, Rate, Window};

use super::tree::Tree;
use crate::chaos::record::Moment;

/// Something that was admitted, or may have been charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Op {
    pub(super) from: Moment,
    pub(super) to: Moment,
    pub(super) cost: u64,
}

/// More is allowed in every stretch of time that meets this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extra {
    pub(super) from: Moment,
    pub(super) to: Moment,
    pub(super) units: u64,
}

impl Extra {
    fn meets(&self, from: Moment, to: Moment) -> bool {
        self.from <= to && from <= self.to
    }
}

/// The promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Law {
    /// In any stretch `burst` and what the rate brings.
    Bucket { rate: Rate, burst: u64 },
    /// In any window on the clock, which is `phase` past the begin of one at moment zero.
    Clock { limit: u64, width: Moment, phase: Moment },
    /// In any window.
    Sliding { limit: u64, width: Moment },
}

/// How much was used of what was allowed, at worst.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Use {
    /// Units above what is allowed; negative if there was room.
    pub(super) excess: i128,
    /// Used by allowed.
    pub(super) ratio: f64,
    /// The end of the worst stretch.
    pub(super) at: Moment,
}

impl Use {
    fn of(used: u64, allowed: u64, at: Moment) -> Self {
        let ratio = used as f64 / (allowed as f64).max(1.0);
        Self { excess: i128::from(used) - i128::from(allowed), ratio, at }
    }

    pub(super) const NONE: Self = Self { excess: i128::MIN, ratio: 0.0, at: 0 };

    fn worse(self, other: Self) -> Self {
        if other.ratio > self.ratio { other } else { self }
    }
}

impl Law {
    /// What `limit` promises; `None` for those that are not about amounts. `epoch` is the wall clock at moment zero, in
    /// microseconds.
    pub(super) fn of(limit: &Limit, epoch: u64) -> Option<Self> {
        Some(match limit.algorithm() {
            Algorithm::TokenBucket(bucket) => Self::Bucket { rate: bucket.rate, burst: bucket.capacity },
            Algorithm::FixedWindow(spec) => match spec.window {
                Window::Clock { length, spread: false } => {
                    let width = length.as_micros();
                    Self::Clock { limit: spec.limit, width, phase: epoch % width }
                }
                _ => return None,
            },
            Algorithm::SlidingLog(spec) => Self::Sliding { limit: spec.limit, width: spec.window.as_micros() },
            // Two whole windows, if all of the first came at its end: docs/accuracy.md.
            Algorithm::SlidingCounter(spec) => Self::Sliding { limit: 2 * spec.limit, width: spec.window.as_micros() },
            _ => return None,
        })
    }

    /// What is lost with a state at most, or brought by a clock that leaps ahead.
    pub(super) fn most(&self) -> u64 {
        match *self {
            Self::Bucket { burst, .. } => burst,
            Self::Clock { limit, .. } | Self::Sliding { limit, .. } => limit,
        }
    }

    /// What comes back in a length of time, at most.
    pub(super) fn refill(&self, length: Moment) -> u64 {
        match *self {
            Self::Bucket { rate, .. } => {
                let units = u128::from(rate.units) * u128::from(length) / u128::from(rate.period.as_micros());
                u64::try_from(units).unwrap_or(u64::MAX).saturating_add(1)
            }
            // Whole windows at a time.
            Self::Clock { limit, width, .. } | Self::Sliding { limit, width } => limit * (length / width + 1),
        }
    }

    /// The stretch of time in which most was used of what was allowed. The clocks differ by `slack` at most.
    pub(super) fn worst(&self, ops: &[Op], extras: &[Extra], slack: Moment) -> Use {
        match *self {
            Self::Bucket { rate, burst } => worst_of_bucket(rate, burst, ops, extras, slack),
            Self::Clock { limit, width, phase } => {
                let mut windows = std::collections::BTreeMap::<Moment, u64>::new();
                for op in ops {
                    let (first, last) = ((op.from + phase).saturating_sub(slack), op.to + phase + slack);
                    if first / width == last / width {
                        *windows.entry(first / width).or_default() += op.cost;
                    }
                }
                let of = |(window, used): (Moment, u64)| {
                    let from = (window * width).saturating_sub(phase);
                    let more = extra(extras, from, from + width);
                    Use::of(used, limit + more, from + width)
                };
                windows.into_iter().map(of).fold(Use::NONE, Use::worse)
            }
            Self::Sliding { limit, width } => {
                let width = width.saturating_sub(slack);
                let mut ops = ops.to_vec();
                ops.sort_unstable_by_key(|op| op.from);
                let mut worst = Use::NONE;
                for (index, first) in ops.iter().enumerate() {
                    let end = first.from + width;
                    let within = ops.iter().skip(index).take_while(|op| op.from < end).filter(|op| op.to < end);
                    let used = within.map(|op| op.cost).sum();
                    worst = worst.worse(Use::of(used, limit + extra(extras, first.from, end), end));
                }
                worst
            }
        }
    }
}

fn extra(extras: &[Extra], from: Moment, to: Moment) -> u64 {
    extras.iter().filter(|extra| extra.meets(from, to)).map(|extra| extra.units).sum()
}

/// Sweeps over the ends of stretches; the tree has, for every begin, what was admitted since and what the rate brought
/// before.
fn worst_of_bucket(rate: Rate, burst: u64, ops: &[Op], extras: &[Extra], slack: Moment) -> Use {
    let (units, period) = (i128::from(rate.units), i128::from(rate.period.as_micros()));
    let mut begins: Vec<Moment> = ops.iter().map(|op| op.from).collect();
    begins.sort_unstable();
    begins.dedup();
    if begins.is_empty() {
        return Use::NONE;
    }
    let values: Vec<i128> = begins.iter().map(|begin| i128::from(*begin) * units).collect();
    let mut tree = Tree::new(&values);
    let mut ops = ops.to_vec();
    ops.sort_unstable_by_key(|op| op.to);
    let mut extras = extras.to_vec();
    extras.sort_unstable_by_key(|extra| extra.from);
    let mut extras = extras.into_iter().peekable();
    let upto = |moment: Moment| begins.partition_point(|begin| *begin <= moment);
    let room = i128::from(burst) * period + i128::from(slack) * units;
    let (mut worst, mut at) = (i128::MIN, 0);
    for op in ops {
        while let Some(extra) = extras.next_if(|extra| extra.from <= op.to) {
            tree.add(upto(extra.to), -i128::from(extra.units) * period);
        }
        tree.add(upto(op.from), i128::from(op.cost) * period);
        let most = tree.most(upto(op.to)) - i128::from(op.to) * units - room;
        if most > worst {
            (worst, at) = (most, op.to);
        }
    }
    // Rounded up: a part of a unit too much is one too much.
    let excess = worst.div_euclid(period) + i128::from(worst.rem_euclid(period) > 0);
    let allowed = burst as f64;
    Use { excess, ratio: ((allowed + worst as f64 / period as f64) / allowed.max(1.0)).max(0.0), at }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Moment = 1_000_000;

    fn op(from: Moment, cost: u64) -> Op {
        Op { from, to: from + 10, cost }
    }

    fn bucket() -> Law {
        Law::Bucket { rate: Rate::per_second(10), burst: 5 }
    }

    #[test]
    fn a_bucket_admits_its_burst_and_its_rate_and_one_more_is_too_much() {
        let mut ops: Vec<_> = (0..5).map(|n| op(n, 1)).collect();
        ops.extend((1..=20).map(|n| op(n * 100_000 + 20, 1)));
        assert_eq!(bucket().worst(&ops, &[], 0).excess, 0);
        ops.push(op(SECOND, 1));
        assert_eq!(bucket().worst(&ops, &[], 0).excess, 1);
        // A state that was lost in between excuses it, one that was lost before does not.
        let lost = |at| Extra { from: at, to: at, units: 5 };
        assert!(bucket().worst(&ops, &[lost(SECOND / 2)], 0).excess <= 0);
        let late: Vec<_> = ops.iter().map(|op| Op { from: op.from + SECOND, to: op.to + SECOND, ..*op }).collect();
        assert_eq!(bucket().worst(&late, &[lost(SECOND / 2)], 0).excess, 1);
    }

    #[test]
    fn the_sweep_finds_what_trying_all_stretches_finds() {
        let mut seed = 7_u64;
        for _ in 0..200 {
            let mut next = |below: u64| {
                seed = tollgate_core::mix(seed.wrapping_add(1));
                seed % below
            };
            let ops: Vec<_> = (0..12)
                .map(|_| {
                    let from = next(2_000_000);
                    Op { from, to: from + next(50_000), cost: 1 + next(3) }
                })
                .collect();
            let from = next(2_000_000);
            let extras = [Extra { from, to: from + next(100_000), units: next(6) }];
            let slow = |from: Moment, to: Moment| {
                let within = ops.iter().filter(|op| op.from >= from && op.to <= to);
                let used: u64 = within.map(|op| op.cost).sum();
                let micros = i128::from(used) * 1_000_000 - i128::from(to - from) * 10;
                micros - i128::from(5 + extra(&extras, from, to)) * 1_000_000
            };
            let pairs = ops.iter().flat_map(|a| ops.iter().map(move |b| (a.from, b.to)));
            let worst = pairs.filter(|(from, to)| from <= to).map(|(from, to)| slow(from, to)).max().unwrap();
            let excess = worst.div_euclid(1_000_000) + i128::from(worst.rem_euclid(1_000_000) > 0);
            assert_eq!(bucket().worst(&ops, &extras, 0).excess, excess, "{ops:?} {extras:?}");
        }
    }

    #[test]
    fn windows_on_the_clock_and_windows_that_slide() {
        let clock = Law::Clock { limit: 3, width: SECOND, phase: SECOND / 2 };
        // Three before the edge and three after it are no more than three in each.
        let ops: Vec<_> = [499_000, 499_100, 499_200, 501_000, 501_100, 501_200].map(|at| op(at, 1)).into();
        assert_eq!(clock.worst(&ops, &[], 0).excess, 0);
        let sliding = Law::Sliding { limit: 3, width: SECOND };
        assert_eq!(sliding.worst(&ops, &[], 0).excess, 3);
        assert_eq!(sliding.worst(&ops, &[Extra { from: 500_000, to: 500_000, units: 3 }], 0).excess, 0);
        let more = [ops, vec![op(502_000, 1)]].concat();
        assert_eq!(clock.worst(&more, &[], 0).excess, 1);
    }
}
