//! What is asked of a store, and what comes back.

use smallvec::SmallVec;
use tollgate_core::{Key, Limit, Micros, Outcome, Timestamp};
use tollgate_rules::StoreFailure;

/// One thing that a request must pay: a cost, on one counter, under one limit.
#[derive(Clone, Copy, Debug)]
pub struct Charge<'a> {
    /// The counter.
    pub key: Key<'a>,
    /// The limit it is counted under.
    pub limit: &'a Limit,
    /// How many units.
    pub cost: u64,
    /// Whose slots these are, for concurrency limits; zero for nobody's in particular.
    pub lease: u64,
    /// What becomes of it when the store that servers share cannot be asked.
    pub on_failure: StoreFailure,
}

impl<'a> Charge<'a> {
    /// One unit of `limit` on `key`.
    pub const fn new(key: Key<'a>, limit: &'a Limit) -> Self {
        Self { key, limit, cost: 1, lease: 0, on_failure: StoreFailure::Local }
    }

    /// `cost` units instead of one.
    pub const fn cost(self, cost: u64) -> Self {
        Self { cost, ..self }
    }

    /// In the name of `lease`.
    pub const fn lease(self, lease: u64) -> Self {
        Self { lease, ..self }
    }

    /// Decided by `policy` when the store that servers share cannot be asked.
    pub const fn on_failure(self, policy: StoreFailure) -> Self {
        Self { on_failure: policy, ..self }
    }
}

/// One outcome per charge, in order. Up to three need no allocation.
pub type Outcomes = SmallVec<[Outcome; 3]>;

/// The answer to a list of charges that pass together or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Whether all were admitted. If not, none was charged.
    pub allowed: bool,
    /// When it was decided.
    pub at: Timestamp,
    /// One outcome per charge, in order.
    pub outcomes: Outcomes,
}

impl Decision {
    /// `asked_at` is when it was decided if nothing was asked.
    pub(crate) fn new(outcomes: Outcomes, asked_at: Timestamp) -> Self {
        let at = outcomes.iter().map(|outcome| outcome.at).max().unwrap_or(asked_at);
        Self { allowed: outcomes.iter().all(|outcome| outcome.allowed), at, outcomes }
    }

    /// The opposite of [`Self::allowed`].
    pub fn denied(&self) -> bool {
        !self.allowed
    }

    /// The charge that decides: of a denial the one that takes longest to be admitted, of an admission the one with the
    /// least remaining. `None` when nothing was asked.
    pub fn binding(&self) -> Option<usize> {
        let outcomes = self.outcomes.iter().enumerate();
        let binding = if self.allowed {
            outcomes.min_by_key(|(_, outcome)| outcome.remaining)
        } else {
            let longest = |outcome: &Outcome| outcome.retry_after.unwrap_or(Micros::MAX);
            // Of equals the first.
            outcomes.filter(|(_, outcome)| outcome.denied()).rev().max_by_key(|(_, outcome)| longest(outcome))
        };
        binding.map(|(index, _)| index)
    }

    /// The shortest wait after which all would be admitted: zero when they are, `None` when one never fits.
    pub fn retry_after(&self) -> Option<Micros> {
        self.outcomes
            .iter()
            .map(|outcome| outcome.retry_after)
            .try_fold(Micros::ZERO, |longest, wait| Some(longest.max(wait?)))
    }

    /// How long the request has to be held back.
    pub fn delay(&self) -> Micros {
        self.outcomes.iter().map(|outcome| outcome.delay).max().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(allowed: bool, remaining: u64, retry_after: Option<u64>, delay: u64) -> Outcome {
        let retry_after = retry_after.map(Micros::from_secs);
        Outcome { allowed, remaining, retry_after, delay: Micros::from_secs(delay), ..Outcome::UNLIMITED }
    }

    fn decision(outcomes: &[Outcome]) -> Decision {
        Decision::new(Outcomes::from_slice(outcomes), Timestamp::EPOCH)
    }

    #[test]
    fn an_admission_is_bound_by_the_least_remaining() {
        let allowed = |remaining| outcome(true, remaining, Some(0), 0);
        let decided = decision(&[allowed(7), allowed(3), allowed(3), allowed(9)]);
        assert_eq!((decided.allowed, decided.binding(), decided.retry_after()), (true, Some(1), Some(Micros::ZERO)));
    }

    #[test]
    fn a_denial_is_bound_by_the_longest_wait_and_by_what_never_fits_before_that() {
        let (fits, soon, late) =
            (outcome(true, 0, Some(0), 0), outcome(false, 5, Some(2), 0), outcome(false, 9, Some(8), 0));
        let decided = decision(&[fits, soon, late, late]);
        assert_eq!((decided.denied(), decided.binding()), (true, Some(2)));
        assert_eq!(decided.retry_after(), Some(Micros::from_secs(8)));
        let never = outcome(false, 9, None, 0);
        let decided = decision(&[late, never, soon]);
        assert_eq!((decided.binding(), decided.retry_after()), (Some(1), None));
    }

    #[test]
    fn a_request_is_held_back_as_long_as_its_longest_delay() {
        let held = |seconds| outcome(true, 1, Some(0), seconds);
        assert_eq!(decision(&[held(2), held(5), held(0)]).delay(), Micros::from_secs(5));
    }

    #[test]
    fn nothing_asked_is_allowed_and_binds_nowhere() {
        let decided = decision(&[]);
        assert_eq!((decided.allowed, decided.binding(), decided.delay()), (true, None, Micros::ZERO));
        assert_eq!(decided.retry_after(), Some(Micros::ZERO));
    }
}
