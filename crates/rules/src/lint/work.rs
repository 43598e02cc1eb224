//! How much may be compared to find what is probably wrong.
//!
//! Comparing two patterns takes as long as their lists are, and there are as many pairs as people like to write. So what
//! a comparison takes is told before it is made, and when the budget is spent, nothing is compared any more: what is
//! wrong then goes unnoticed, and nothing else happens.

use super::coverage;
use crate::pattern::{Pattern, text_size};

/// Steps of some nanoseconds each: a fraction of a second's work, for all files together.
const MOST: usize = 1 << 22;

/// What is left of the budget.
#[derive(Debug)]
pub(crate) struct Work {
    left: usize,
}

impl Default for Work {
    fn default() -> Self {
        Self { left: MOST }
    }
}

impl Work {
    /// Whether there is enough left for so many steps, which are taken from it. If not, nothing is left.
    pub(crate) fn take(&mut self, steps: usize) -> bool {
        let left = self.left.checked_sub(steps);
        self.left = left.unwrap_or(0);
        left.is_some()
    }

    /// Whether every value of `narrow` is certainly one of `wide`.
    pub(crate) fn covers(&mut self, wide: &Pattern, narrow: &Pattern) -> bool {
        self.compares(wide, narrow) && coverage::covers(wide, narrow)
    }

    /// Whether certainly no value of `one` is of `other`.
    pub(crate) fn disjoint(&mut self, one: &Pattern, other: &Pattern) -> bool {
        self.compares(one, other) && coverage::disjoint(one, other)
    }

    /// Whether two patterns are the same.
    pub(crate) fn same(&mut self, one: &Pattern, other: &Pattern) -> bool {
        self.compares(one, other) && one == other
    }

    fn compares(&mut self, one: &Pattern, other: &Pattern) -> bool {
        // Telling what it takes is work too.
        self.take(1) && {
            let each = |values: &Pattern, tried: &Pattern| values.size().saturating_mul(tries(tried));
            self.take(each(one, other).saturating_add(each(other, one)))
        }
    }
}

/// How many steps one value takes.
fn tries(pattern: &Pattern) -> usize {
    match pattern {
        Pattern::AnyOf(patterns) => patterns.iter().map(tries).sum::<usize>() + 1,
        Pattern::Not(pattern) => tries(pattern),
        Pattern::Glob(glob) => text_size(glob.literal_bytes()),
        Pattern::Any | Pattern::Exact(_) | Pattern::OneOf(_) | Pattern::Networks(_) => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern::Glob;

    #[test]
    fn long_lists_take_more_than_short_ones_and_when_nothing_is_left_nothing_is_certain() {
        let list = |length: usize| {
            let globs = (0..length).map(|number| Pattern::Glob(Glob::prefix(&format!("p{number}-"))));
            Pattern::AnyOf(globs.collect())
        };
        let spent = |wide: &Pattern, narrow: &Pattern| {
            let mut work = Work::default();
            assert!(work.covers(wide, narrow));
            MOST - work.left
        };
        let (few, many) = (list(10), list(1_000));
        assert!(spent(&few, &few) < 500 && spent(&many, &few) > 10_000 && spent(&many, &many) > 1_000_000);
        let mut work = Work::default();
        let huge = list(10_000);
        assert!(!work.covers(&huge, &huge) && !work.disjoint(&few, &few), "nothing is left");
        assert!(!work.covers(&Pattern::Any, &few) && !work.same(&few, &few) && !work.take(1));
    }
}
