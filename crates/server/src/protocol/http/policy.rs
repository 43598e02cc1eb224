//! What a toll stands for, in the words of clients: a name, how much in which time, and of what.
//!
//! Only descriptions: what was decided is in the verdict.

use std::borrow::Cow;

use tollgate::rules::{Limits, LyftUnit, Rule, RuleLimit, Unit};
use tollgate::{
    Algorithm, CalendarUnit, FixedWindow, LeakyBucket, LeakyForm, Micros, Pacing, Rate, TokenBucket, Toll, Verdict,
    Window,
};

/// The limit of a toll.
pub(crate) struct Policy<'v> {
    /// Its rule; none if it came with the question.
    pub(crate) rule: Option<&'v Rule>,
    /// What tells it from the rule's other limits.
    part: Part<'v>,
    pub(crate) allows: Allows<'v>,
    /// What is counted: `requests`, or a unit of the rules.
    pub(crate) unit: &'v str,
    pub(crate) quota: Quota,
}

#[derive(Clone, Copy)]
enum Part<'v> {
    /// The rule has no other.
    Whole,
    Limit(&'v str),
    /// It came with the descriptor of this number.
    Descriptor(usize),
}

/// The limit as people write it.
#[derive(Clone, Copy)]
pub(crate) enum Allows<'v> {
    Own(&'v str),
    PerUnit(u32, LyftUnit),
    /// Nothing is known of it.
    Unknown,
}

/// So much in so much time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Quota {
    pub(crate) units: u64,
    /// None where no time says it: as many at once, or a window that is not always equally long.
    pub(crate) window: Option<Micros>,
    /// It is about how many at once.
    pub(crate) is_concurrent: bool,
}

impl<'v> Policy<'v> {
    /// That of the toll numbered `at`.
    pub(crate) fn of(verdict: &'v Verdict<'_>, at: usize, toll: &Toll) -> Self {
        let unknown = Quota { units: toll.outcome.limit, window: None, is_concurrent: false };
        let Some(rule) = verdict.rule(toll) else {
            let at = u32::try_from(at).unwrap_or(u32::MAX);
            let holds = |status: &tollgate::DescriptorStatus| (status.tolls.0..status.tolls.1).contains(&at);
            let number = verdict.descriptors.iter().position(holds);
            let limit = number.and_then(|number| verdict.descriptors.get(number)).and_then(|status| status.limit);
            let (allows, quota) = match limit {
                Some(limit) => per_unit(limit.requests_per_unit, limit.unit),
                None => (Allows::Unknown, unknown),
            };
            return Self { rule: None, part: Part::Descriptor(number.unwrap_or(0)), allows, unit: "requests", quota };
        };
        match &rule.limits {
            Limits::Own(limits) => match limits.get(usize::from(toll.limit)) {
                Some(limit) => {
                    let part = if limits.len() > 1 { Part::Limit(&limit.text) } else { Part::Whole };
                    let quota = Quota::of(limit.limit.algorithm(), toll.outcome.limit);
                    Self { rule: Some(rule), part, allows: Allows::Own(&limit.text), unit: unit_of(limit), quota }
                }
                None => Self::nameless(rule, unknown),
            },
            Limits::Lyft(limit) => match &limit.rate {
                Some(rate) => {
                    let (allows, quota) = per_unit(rate.requests_per_unit, rate.unit);
                    Self { rule: Some(rule), part: Part::Whole, allows, unit: "requests", quota }
                }
                None => Self::nameless(rule, unknown),
            },
            Limits::None => Self::nameless(rule, unknown),
        }
    }

    fn nameless(rule: &'v Rule, quota: Quota) -> Self {
        Self { rule: Some(rule), part: Part::Whole, allows: Allows::Unknown, unit: "requests", quota }
    }

    /// What it is called: its rule's name, with the limit if the rule has several.
    pub(crate) fn name(&self) -> Cow<'v, str> {
        match (self.rule, self.part) {
            (Some(rule), Part::Limit(text)) => format!("{}:{text}", rule.name).into(),
            (Some(rule), _) => Cow::Borrowed(&rule.name),
            (None, Part::Descriptor(number)) => format!("descriptor-{}", number + 1).into(),
            (None, _) => Cow::Borrowed("limit"),
        }
    }
}

/// The unit that a limit counts.
pub(crate) fn unit_of(limit: &RuleLimit) -> &str {
    match &limit.unit {
        Unit::Requests => "requests",
        Unit::Named(name) => name,
    }
}

fn per_unit<'v>(requests: u32, unit: LyftUnit) -> (Allows<'v>, Quota) {
    let quota = Quota { units: u64::from(requests), window: Some(unit.length()), is_concurrent: false };
    (Allows::PerUnit(requests, unit), quota)
}

impl Quota {
    /// What `algorithm` allows, which can admit `limit` at once.
    fn of(algorithm: &Algorithm, limit: u64) -> Self {
        let in_window = |units, window| Self { units, window, is_concurrent: false };
        // A bucket's quota is what it holds, and its window the time in which that flows in: the same rate, and never
        // less than what remains.
        let held = |units: u64, rate: &Rate| in_window(units, Some(time_of(units, rate)));
        match algorithm {
            Algorithm::TokenBucket(TokenBucket { rate, capacity, .. }) => held(*capacity, rate),
            Algorithm::LeakyBucket(LeakyBucket { rate, form: LeakyForm::Meter { capacity } }) => held(*capacity, rate),
            Algorithm::LeakyBucket(LeakyBucket { rate, form: LeakyForm::Queue { .. } }) => held(limit.max(1), rate),
            Algorithm::FixedWindow(FixedWindow { limit, window, .. }) => in_window(*limit, length_of(window)),
            Algorithm::SlidingLog(spec) => in_window(spec.limit, Some(spec.window)),
            Algorithm::SlidingCounter(spec) => in_window(spec.limit, Some(spec.window)),
            Algorithm::Concurrency(spec) => Self { units: spec.slots, window: None, is_concurrent: true },
            Algorithm::Pacing(Pacing { budget, window, .. }) => in_window(*budget, length_of(window)),
        }
    }

    /// In whole seconds, for those who know no other: shorter windows are told as what fits into a second, others
    /// rounded up.
    pub(crate) fn in_seconds(self) -> (u64, Option<u64>) {
        match self.window.map(Micros::as_micros) {
            None | Some(0) => (self.units, None),
            Some(micros @ ..1_000_000) => {
                let units = u128::from(self.units) * 1_000_000 / u128::from(micros);
                (u64::try_from(units).unwrap_or(u64::MAX), Some(1))
            }
            Some(micros) => (self.units, Some(micros.div_ceil(1_000_000))),
        }
    }
}

/// How long `units` take at `rate`.
fn time_of(units: u64, rate: &Rate) -> Micros {
    let micros = u128::from(units) * u128::from(rate.period.as_micros()) / u128::from(rate.units.max(1));
    Micros::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
}

fn length_of(window: &Window) -> Option<Micros> {
    match window {
        Window::Clock { length, .. } | Window::FirstEvent { length } => Some(*length),
        Window::Calendar(calendar) => match calendar.unit() {
            CalendarUnit::Day => Some(Micros::DAY),
            CalendarUnit::Week => Some(Micros::from_secs(7 * 86_400)),
            CalendarUnit::Month | CalendarUnit::Year => None,
        },
    }
}

impl<'v> Allows<'v> {
    /// As people write it.
    pub(crate) fn text(self) -> Cow<'v, str> {
        match self {
            Self::Own(text) => Cow::Borrowed(text),
            Self::PerUnit(requests, unit) => format!("{requests}/{}", unit.name()).into(),
            Self::Unknown => Cow::Borrowed("no more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate::{Calendar, Concurrency, SlidingCounter, SlidingLog, Zone};

    #[test]
    fn every_algorithm_has_a_quota_and_most_have_a_window() {
        let quota = |algorithm: Algorithm, limit| {
            let quota = Quota::of(&algorithm, limit);
            (quota.in_seconds(), quota.is_concurrent)
        };
        let month = Calendar::new(CalendarUnit::Month, Zone::utc());
        let day = Calendar::new(CalendarUnit::Day, Zone::utc());
        let second = Rate::per_second;
        for (algorithm, limit, expected) in [
            (TokenBucket::new(second(5)).into(), 5, ((5, Some(1)), false)),
            // Ten tokens flow in within two seconds.
            (TokenBucket::new(second(5)).burst(10).into(), 10, ((10, Some(2)), false)),
            // Ten of three a second take three seconds and a third.
            (TokenBucket::new(second(3)).burst(10).into(), 10, ((10, Some(4)), false)),
            // What takes less than a second is told per second.
            (TokenBucket::new(second(100)).burst(5).into(), 5, ((100, Some(1)), false)),
            (SlidingCounter::new(5, Micros::from_millis(100)).into(), 5, ((50, Some(1)), false)),
            (LeakyBucket::meter(Rate::per_minute(6)).into(), 1, ((1, Some(10)), false)),
            (LeakyBucket::queue(second(2), 0).into(), 0, ((2, Some(1)), false)),
            (FixedWindow::new(7, Micros::HOUR).into(), 7, ((7, Some(3_600)), false)),
            (FixedWindow::in_window(7, day.into()).into(), 7, ((7, Some(86_400)), false)),
            (FixedWindow::in_window(7, month.into()).into(), 7, ((7, None), false)),
            (SlidingLog::new(3, Micros::MINUTE).into(), 3, ((3, Some(60)), false)),
            (Concurrency::new(2, Micros::MINUTE).into(), 2, ((2, None), true)),
            (Pacing::new(1_000, Window::clock(Micros::DAY)).into(), 1, ((1_000, Some(86_400)), false)),
        ] {
            assert_eq!(quota(algorithm, limit), expected);
        }
    }
}
