//! Runs limits over arrivals in virtual time.
//!
//! Pure: what is drawn is what the algorithms of `tollgate-core` answer, and nothing here reads a clock. Nothing here
//! decides either; levels are read back from the answers.

use tollgate_core::{Ask, Intent, Limit, Outcome, State, Timestamp};

/// One request and its answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Verdict {
    /// When it came.
    pub(crate) at: Timestamp,
    pub(crate) outcome: Outcome,
}

impl Verdict {
    /// When it may proceed, if it may.
    pub(crate) fn departure(&self) -> Option<Timestamp> {
        self.outcome.allowed.then(|| self.at.plus(self.outcome.delay))
    }
}

/// Which number of a limit is drawn over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gauge {
    /// What is left, such as tokens.
    Left,
    /// What is taken, such as the count of a window.
    Taken,
    /// How many admitted requests have not departed yet.
    Waiting,
    /// How many were admitted so far.
    Admitted,
}

/// Answers every arrival with cost 1. `arrivals` are in order of time.
pub(crate) fn judge(limit: &Limit, arrivals: &[Timestamp]) -> Vec<Verdict> {
    let mut state = State::default();
    arrivals.iter().map(|&at| Verdict { at, outcome: limit.apply(&mut state, &Ask::spend(1, at)) }).collect()
}

/// The gauge at each of `instants`, with everything that arrived by then. `arrivals` and `instants` are in order of
/// time.
pub(crate) fn levels(limit: &Limit, arrivals: &[Timestamp], gauge: Gauge, instants: &[Timestamp]) -> Vec<u64> {
    let mut state = State::default();
    let mut coming = arrivals.iter().copied().peekable();
    let mut seen = Vec::with_capacity(arrivals.len());
    let mut level_at = |now: Timestamp| {
        while let Some(at) = coming.next_if(|at| *at <= now) {
            seen.push(Verdict { at, outcome: limit.apply(&mut state, &Ask::spend(1, at)) });
        }
        let departures = || seen.iter().filter_map(Verdict::departure);
        let peek = || limit.step(state.cell, &state.extra, &Ask::spend(0, now).with_intent(Intent::Peek)).outcome;
        match gauge {
            Gauge::Left => peek().remaining,
            Gauge::Taken => {
                let Outcome { limit, remaining, .. } = peek();
                limit.saturating_sub(remaining)
            }
            Gauge::Waiting => departures().filter(|leaves| *leaves > now).count() as u64,
            Gauge::Admitted => departures().count() as u64,
        }
    };
    instants.iter().map(|&now| level_at(now)).collect()
}

/// How many of `verdicts` were admitted within `from..=to`.
pub(crate) fn admitted_between(verdicts: &[Verdict], from: Timestamp, to: Timestamp) -> usize {
    verdicts.iter().filter(|verdict| verdict.outcome.allowed && (from..=to).contains(&verdict.at)).count()
}

#[cfg(test)]
mod tests {
    use tollgate_core::{FixedWindow, LeakyBucket, Micros, Rate, TokenBucket};

    use super::*;

    fn seconds(all: &[u64]) -> Vec<Timestamp> {
        all.iter().map(|second| Timestamp::from_secs(1_000 + second)).collect()
    }

    #[test]
    fn a_level_includes_what_arrived_at_its_instant() {
        let limit = Limit::new(TokenBucket::new(Rate::per_second(1)).burst(3)).unwrap();
        let levels = levels(&limit, &seconds(&[1, 1]), Gauge::Left, &seconds(&[0, 1, 2, 3, 4]));
        assert_eq!(levels, [3, 1, 2, 3, 3]);
    }

    #[test]
    fn windows_are_gauged_by_what_is_taken() {
        let limit = Limit::new(FixedWindow::new(2, Micros::from_secs(10))).unwrap();
        let arrivals = seconds(&[1, 2, 3]);
        assert_eq!(levels(&limit, &arrivals, Gauge::Taken, &seconds(&[0, 1, 5, 10])), [0, 1, 2, 0]);
        assert_eq!(levels(&limit, &arrivals, Gauge::Admitted, &seconds(&[0, 1, 5, 10])), [0, 1, 2, 2]);
        assert_eq!(admitted_between(&judge(&limit, &arrivals), arrivals[1], arrivals[2]), 1);
    }

    #[test]
    fn those_wait_whose_departure_lies_ahead() {
        let limit = Limit::new(LeakyBucket::queue(Rate::per_second(1), 2)).unwrap();
        let arrivals = seconds(&[1, 1, 1, 1]);
        assert_eq!(levels(&limit, &arrivals, Gauge::Waiting, &seconds(&[0, 1, 2, 3])), [0, 2, 1, 0]);
        let departures: Vec<_> = judge(&limit, &arrivals).iter().map(Verdict::departure).collect();
        let expected = seconds(&[1, 2, 3]);
        assert_eq!(departures, [Some(expected[0]), Some(expected[1]), Some(expected[2]), None]);
    }
}
