//! A limit divided between servers, for when each has to enforce it alone.

use crate::limit::Limit;
use crate::rate::Rate;
use crate::spec::{
    Algorithm, Concurrency, FixedWindow, LeakyBucket, LeakyForm, Pacing, Refill, SlidingCounter, SlidingLog, Soft,
    TokenBucket,
};
use crate::time::Micros;

impl Limit {
    /// What one of `servers` may admit by itself, so that all together admit no more than the whole. Rounded down, but
    /// never to nothing: more servers than units admit one each.
    pub fn share(&self, servers: u64) -> Self {
        if servers <= 1 {
            return self.clone();
        }
        let algorithm = self.algorithm().share(servers);
        let shared = match self.softness() {
            Some(soft) => Self::soft(algorithm, Soft { overage: part(soft.overage, servers), ..soft }),
            None => Self::new(algorithm),
        };
        // What is smaller than a limit that was accepted is accepted; if it were not, too much is better than none.
        shared.unwrap_or_else(|_| self.clone())
    }
}

impl Algorithm {
    fn share(&self, servers: u64) -> Self {
        match self {
            Self::TokenBucket(spec) => {
                let rate = match spec.refill {
                    Refill::Continuous => slower(spec.rate, servers),
                    Refill::Interval => Rate::new(part(spec.rate.units, servers), spec.rate.period),
                };
                let (capacity, loan) = (part(spec.capacity, servers), spec.loan / servers);
                let initial = spec.initial.map(|initial| initial / servers);
                Self::TokenBucket(TokenBucket { rate, capacity, refill: spec.refill, initial, loan })
            }
            Self::LeakyBucket(LeakyBucket { rate, form }) => {
                let form = match *form {
                    LeakyForm::Queue { length, max_wait } => LeakyForm::Queue { length: length / servers, max_wait },
                    LeakyForm::Meter { capacity } => LeakyForm::Meter { capacity: part(capacity, servers) },
                };
                Self::LeakyBucket(LeakyBucket { rate: slower(*rate, servers), form })
            }
            Self::FixedWindow(spec) => {
                Self::FixedWindow(FixedWindow { limit: part(spec.limit, servers), ..spec.clone() })
            }
            Self::SlidingLog(spec) => Self::SlidingLog(SlidingLog { limit: part(spec.limit, servers), ..*spec }),
            Self::SlidingCounter(spec) => {
                Self::SlidingCounter(SlidingCounter { limit: part(spec.limit, servers), ..*spec })
            }
            Self::Concurrency(spec) => Self::Concurrency(Concurrency { slots: part(spec.slots, servers), ..*spec }),
            Self::Pacing(Pacing { budget, window, slack }) => {
                let (budget, slack) = (part(*budget, servers), part(*slack, servers));
                Self::Pacing(Pacing { budget, window: window.clone(), slack })
            }
        }
    }
}

/// Nothing of nothing, and at least one of what there is.
fn part(units: u64, servers: u64) -> u64 {
    (units / servers).max(units.min(1))
}

/// A part of a rate, exactly where the longer period can be told.
fn slower(rate: Rate, servers: u64) -> Rate {
    match rate.period.as_micros().checked_mul(servers).filter(|micros| *micros < Micros::MAX.as_micros()) {
        Some(micros) => Rate::new(rate.units, Micros::from_micros(micros)),
        None => Rate::new(part(rate.units, servers), rate.period),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::Ask;
    use crate::spec::Window;
    use crate::state::State;
    use crate::time::Timestamp;

    fn all() -> Vec<Algorithm> {
        vec![
            TokenBucket::new(Rate::per_second(10)).burst(20).into(),
            TokenBucket::new(Rate::per_second(10)).refill_at_intervals().initially(7).into(),
            LeakyBucket::meter(Rate::per_second(10)).into(),
            LeakyBucket::queue(Rate::per_second(10), 9).into(),
            FixedWindow::new(10, Micros::SECOND).into(),
            SlidingLog::new(10, Micros::SECOND).into(),
            SlidingCounter::new(10, Micros::SECOND).into(),
            SlidingCounter::new(10, Micros::SECOND).sub_windows(4).into(),
            Concurrency::new(10, Micros::SECOND).into(),
            Pacing::new(10, Window::clock(Micros::SECOND)).slack(5).into(),
        ]
    }

    /// How many of a flood a limit admits in five seconds, asked every ten milliseconds.
    fn admitted(limit: &Limit) -> u64 {
        let mut state = State::default();
        (0..500)
            .filter(|at| {
                let now = Timestamp::from_micros(1_000_000_000 + at * 10_000);
                limit.apply(&mut state, &Ask::spend(1, now)).allowed
            })
            .count() as u64
    }

    #[test]
    fn all_shares_together_admit_no_more_than_the_whole_and_nearly_as_much() {
        for algorithm in all() {
            let whole = Limit::new(algorithm.clone()).unwrap();
            assert_eq!(whole.share(1).algorithm(), whole.algorithm());
            for servers in [2, 3, 5] {
                let share = whole.share(servers);
                assert!(
                    share.algorithm().size() <= whole.algorithm().size() / servers.min(whole.algorithm().size().max(1))
                );
                let (all, one) = (admitted(&whole), admitted(&share));
                // A meter has room for one, which each server has.
                let spare = if matches!(algorithm, Algorithm::LeakyBucket(_)) { servers } else { 0 };
                assert!(one * servers <= all + spare, "{algorithm:?} by {servers}: {one} each of {all}");
                assert!(one * servers * 2 >= all, "{algorithm:?} by {servers}: {one} each of {all}");
            }
        }
    }

    #[test]
    fn more_servers_than_units_admit_one_each_and_nothing_stays_nothing() {
        let one = |algorithm: Algorithm| Limit::new(algorithm).unwrap().share(7).algorithm().size();
        assert_eq!(one(FixedWindow::new(3, Micros::SECOND).into()), 1);
        assert_eq!(one(FixedWindow::new(0, Micros::SECOND).into()), 0);
        assert_eq!(one(TokenBucket::new(Rate::per_day(3)).into()), 1);
    }
}
