//! What a file says about an upstream that may be given too much: how many requests at a time, and who goes without.

use tollgate_core::Micros;

use crate::model::Priority;

/// How many requests an upstream is given at a time, and what becomes of the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverloadSpec {
    /// How many.
    pub most: MostSpec,
    /// How many of them are kept for each priority, from the least important on.
    pub reserved: [ReservedSpec; 4],
    /// How many others may wait.
    pub queue: u32,
    /// How long one may wait.
    pub max_wait: Micros,
    /// Whether those that came last are served first.
    pub newest_first: bool,
}

/// How many requests an upstream is given at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MostSpec {
    /// Always so many.
    Fixed(u32),
    /// As many as it answers without becoming slow, between these.
    Adaptive {
        /// Never fewer.
        min: u32,
        /// Never more.
        max: u32,
    },
}

impl MostSpec {
    /// The fewest that it can come to.
    pub fn least(self) -> u32 {
        match self {
            Self::Fixed(most) => most,
            Self::Adaptive { min, .. } => min,
        }
    }
}

/// What is kept for one priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReservedSpec {
    /// So many requests at a time.
    Slots(u32),
    /// So many of a hundred, rounded down, and one at least.
    Percent(u32),
}

impl Default for ReservedSpec {
    fn default() -> Self {
        Self::Slots(0)
    }
}

impl ReservedSpec {
    fn of(self, most: u32) -> u32 {
        match self {
            Self::Slots(slots) => slots,
            Self::Percent(percent) => {
                let share = u64::from(most) * u64::from(percent) / 100;
                u32::try_from(share).unwrap_or(u32::MAX).max(1)
            }
        }
    }
}

impl OverloadSpec {
    /// What is kept for each priority when `most` requests may be on their way. Never more than that together: the most
    /// important come first.
    pub fn reserved_of(&self, most: u32) -> [u32; 4] {
        let mut left = most;
        let mut reserved = [0; 4];
        for (kept, spec) in reserved.iter_mut().zip(self.reserved).rev() {
            *kept = spec.of(most).min(left);
            left -= *kept;
        }
        reserved
    }

    /// A priority that nothing is left for, at the fewest requests that there may be.
    pub(crate) fn goes_without(&self) -> Option<Priority> {
        const ALL: [Priority; 4] = [Priority::Low, Priority::Normal, Priority::High, Priority::Critical];
        // From a hundred on no share is rounded up, so that what is left only grows.
        let first = self.most.least();
        let last = match self.most {
            MostSpec::Fixed(most) => most,
            MostSpec::Adaptive { max, .. } => max.min(first.max(100)),
        };
        (first..=last).find_map(|most| {
            let asked: u64 = self.reserved.iter().map(|spec| u64::from(spec.of(most))).sum();
            let is_full = asked >= u64::from(most);
            let reserved = self.reserved_of(most);
            let is_short = |(at, spec): (usize, &ReservedSpec)| {
                let kept = reserved.get(at).copied().unwrap_or_default();
                kept < spec.of(most) || (is_full && kept == 0)
            };
            let short = self.reserved.iter().enumerate().position(is_short)?;
            ALL.get(short).copied()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(most: MostSpec, reserved: [ReservedSpec; 4]) -> OverloadSpec {
        OverloadSpec { most, reserved, queue: 0, max_wait: Micros::SECOND, newest_first: false }
    }

    #[test]
    fn shares_are_rounded_down_and_one_at_least() {
        use ReservedSpec::{Percent, Slots};
        let critical = spec(MostSpec::Fixed(100), [Slots(0), Slots(0), Percent(5), Percent(20)]);
        for (most, reserved) in
            [(100, [0, 0, 5, 20]), (10, [0, 0, 1, 2]), (14, [0, 0, 1, 2]), (2, [0, 0, 1, 1]), (1, [0, 0, 0, 1])]
        {
            assert_eq!(critical.reserved_of(most), reserved, "{most}");
        }
    }

    #[test]
    fn whoever_has_nothing_reserved_needs_something_left() {
        use ReservedSpec::{Percent, Slots};
        let none = Slots(0);
        let adaptive = |min, max| MostSpec::Adaptive { min, max };
        for (most, reserved, short) in [
            (MostSpec::Fixed(100), [none, none, none, Percent(99)], None),
            (MostSpec::Fixed(100), [none, none, none, Percent(100)], Some(Priority::Low)),
            (MostSpec::Fixed(4), [Percent(25); 4], None),
            (MostSpec::Fixed(3), [Percent(25); 4], Some(Priority::Low)),
            (MostSpec::Fixed(10), [none, Slots(5), none, Slots(6)], Some(Priority::Low)),
            (MostSpec::Fixed(10), [Slots(1), Slots(3), Slots(1), Slots(6)], Some(Priority::Low)),
            (MostSpec::Fixed(10), [Slots(1), Slots(2), Slots(1), Slots(6)], None),
            // At 99 both are rounded down; at 10 one is rounded up, and nothing is left.
            (adaptive(99, 1_000), [none, none, Percent(1), Percent(98)], None),
            (adaptive(10, 1_000), [none, none, Percent(1), Percent(98)], Some(Priority::Low)),
            (adaptive(5, 1_000), [none, none, none, Slots(5)], Some(Priority::Low)),
            (adaptive(6, 1_000), [none, none, none, Slots(5)], None),
        ] {
            assert_eq!(spec(most, reserved).goes_without(), short, "{most:?} {reserved:?}");
        }
    }
}
