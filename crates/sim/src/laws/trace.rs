//! One key of one limit, and a random history of it.
//!
//! The history is made up while it happens, so that steps in time can land exactly on what was promised, one
//! microsecond before or after it, and costs on what was said to remain.

use std::fmt::Write;

use tollgate_core::{Ask, Intent, Limit, Micros, Outcome, Soft, State, Timestamp};

use super::limits::{self, EDGES, Kind, Scale};
use super::source::Source;

/// How long a history gets at most.
const LONGEST: usize = 60;

/// What may happen in a history.
#[derive(Clone, Copy, Debug)]
pub struct Course {
    /// Softness now and then.
    pub soft: bool,
    /// Forced charges, refunds and renewals, besides spends and peeks.
    pub all_intents: bool,
    /// Time runs backwards now and then, but never to ten milliseconds before the latest.
    pub backwards: bool,
    /// The clock is set back now and then, by any span: from then on that is the time.
    pub set_back: bool,
}

impl Course {
    /// Everything but time running backwards.
    pub const ANY: Self = Self { soft: true, all_intents: true, backwards: false, set_back: false };
    /// The same, without softness.
    pub const HARD: Self = Self { soft: false, ..Self::ANY };
    /// Spends and peeks.
    pub const SPENDS: Self = Self { soft: false, all_intents: false, ..Self::ANY };
}

/// A charge that may be given back.
#[derive(Clone, Copy)]
struct Charge {
    cost: u64,
    proceeds_at: Timestamp,
    lease: u64,
}

/// A limit, the state of one key, and what happened to it.
pub struct Trace<'a> {
    /// What makes all choices.
    pub source: Source<'a>,
    /// The limit.
    pub limit: Limit,
    /// The key's state.
    pub state: State,
    /// The time of the last question.
    pub now: Timestamp,
    /// The key's phase.
    pub phase: u64,
    scale: Scale,
    course: Course,
    grain: Micros,
    latest: Timestamp,
    charges: Vec<Charge>,
    past: Vec<(Ask, Outcome)>,
}

impl<'a> Trace<'a> {
    /// A new key of a random limit of this kind; `None` when the description is not a limit.
    pub fn new(kind: Kind, scale: Scale, course: Course, bytes: &'a [u8]) -> Option<Self> {
        let mut source = Source::new(bytes);
        let algorithm = limits::algorithm(kind, scale, &mut source);
        let grain = limits::grain(&algorithm);
        let soft = if course.soft { limits::soft(scale, grain, &mut source) } else { None };
        let limit = match soft {
            Some(soft) => Limit::soft(algorithm, soft),
            None => Limit::new(algorithm),
        };
        let limit = limit.ok()?;
        let now = start(scale, grain, &mut source);
        let phase = source.word();
        let (state, latest, charges, past) = (State::default(), now, Vec::new(), Vec::new());
        Some(Self { source, limit, state, now, phase, scale, course, grain, latest, charges, past })
    }

    /// What the limit is softened by.
    pub fn soft(&self) -> Option<Soft> {
        self.limit.softness()
    }

    /// What happened so far.
    pub fn past(&self) -> &[(Ask, Outcome)] {
        &self.past
    }

    /// The next question, and the time goes on to it; `None` at the end of the history.
    pub fn next_ask(&mut self) -> Option<Ask> {
        if self.source.is_empty() || self.past.len() >= LONGEST {
            return None;
        }
        self.now = self.next_time();
        self.latest = self.latest.max(self.now);
        let lease = self.source.below(3);
        let ask = Ask { cost: 1, intent: Intent::Spend, now: self.now, phase: self.phase, lease };
        let choice = self.source.below(16);
        let ask = match choice {
            0..=8 => Ask { cost: self.cost(), ..ask },
            9 | 10 => Ask { cost: self.cost(), intent: Intent::Peek, ..ask },
            _ if !self.course.all_intents => ask,
            11 => Ask { cost: self.cost(), intent: Intent::Force, ..ask },
            12..=14 => self.refund(ask),
            _ => Ask { intent: Intent::Renew, ..ask },
        };
        Some(ask)
    }

    /// Asks, and puts the answer into effect.
    pub fn apply(&mut self, ask: &Ask) -> Outcome {
        let outcome = self.limit.apply(&mut self.state, ask);
        self.past.push((*ask, outcome));
        if outcome.allowed && matches!(ask.intent, Intent::Spend | Intent::Force) {
            let proceeds_at = outcome.proceeds_at();
            self.charges.push(Charge { cost: ask.cost, proceeds_at, lease: ask.lease });
        }
        outcome
    }

    /// Goes on with another limit that understands the state.
    pub fn change_limit(&mut self, limit: Limit) {
        self.grain = limits::grain(limit.algorithm());
        self.limit = limit;
    }

    /// Asks without any effect.
    pub fn peek(&self, cost: u64, now: Timestamp) -> Outcome {
        self.question(cost, Intent::Peek, now).outcome
    }

    /// What would come of a question.
    pub fn question(&self, cost: u64, intent: Intent, now: Timestamp) -> tollgate_core::Step {
        let ask = Ask { cost, intent, now, phase: self.phase, lease: 0 };
        self.limit.step(self.state.cell, &self.state.extra, &ask)
    }

    /// A cost as it comes in this history.
    pub fn cost(&mut self) -> u64 {
        let last = self.past.last().map(|(_, outcome)| *outcome);
        let remaining = last.map_or(1, |last| last.remaining);
        let limit = last.map_or(1, |last| last.limit);
        match self.source.below(8) {
            0..=2 => 1,
            3 => self.source.below(7),
            4 => remaining,
            5 => remaining.saturating_add(1),
            6 => limit.saturating_add(self.source.below(3)),
            _ if self.scale == Scale::Extreme => self.source.pick(&EDGES, 1),
            _ => self.source.below(limit.saturating_add(4).min(256)),
        }
    }

    /// A time not before the last, on boundaries by preference.
    fn next_time(&mut self) -> Timestamp {
        let last = self.past.last().map(|(_, outcome)| *outcome);
        let promised = last.and_then(|last| last.retry_after).unwrap_or(Micros::ZERO);
        let reset = last.map_or(Micros::ZERO, |last| last.reset_after);
        let grain = self.grain.as_micros();
        let (now, source) = (self.now, &mut self.source);
        let near = |span: Micros, source: &mut Source<'_>| match source.below(4) {
            0 | 1 => now.plus(span),
            2 => now.plus(Micros::from_micros(span.as_micros().saturating_sub(1))),
            _ => now.plus(span).plus(Micros::from_micros(1)),
        };
        let due = match source.below(16) {
            0..=3 => now,
            4..=6 => near(promised, source),
            7 | 8 => near(reset, source),
            9 | 10 => now.plus(Micros::from_micros(source.below(8))),
            11..=13 => now.plus(Micros::from_micros(
                u64::try_from(u128::from(grain) * u128::from(source.below(17)) / 8).unwrap_or(0),
            )),
            14 => now.plus(Micros::from_micros(grain.saturating_mul(source.below(40)))),
            _ if self.course.backwards => {
                let earliest = self.latest.minus(Micros::from_micros(9_999));
                now.minus(Micros::from_micros(grain / 4 * source.below(12))).max(earliest)
            }
            _ if self.course.set_back => {
                // Further than clocks differ, unless what is kept is older than now.
                let by = match source.below(6) {
                    0 => 10_001 + source.below(1_000),
                    1 => grain.saturating_mul(source.below(5)),
                    2 => u64::try_from(u128::from(grain) * u128::from(source.below(17)) / 8).unwrap_or(0),
                    3 => Micros::HOUR.as_micros(),
                    4 => Micros::YEAR.as_micros(),
                    _ => source.word() >> (11 + source.below(40)),
                };
                now.minus(Micros::from_micros(by))
            }
            _ => now,
        };
        // The end of time is nobody's present.
        due.min(now.max(Timestamp::from_micros(1 << 52)))
    }

    fn refund(&mut self, ask: Ask) -> Ask {
        let chosen = usize::try_from(self.source.below(self.charges.len() as u64)).unwrap_or(0);
        let recent = self.charges.len().checked_sub(chosen + 1).and_then(|index| self.charges.get(index)).copied();
        match recent {
            Some(charge) if !self.source.once_in(6) => {
                if self.source.once_in(2) && chosen < self.charges.len() {
                    self.charges.remove(self.charges.len() - chosen - 1);
                }
                let intent = Intent::Refund { charged_at: charge.proceeds_at };
                Ask { cost: charge.cost, intent, lease: charge.lease, ..ask }
            }
            _ => {
                let charged_at = self.now.minus(Micros::from_micros(self.grain.as_micros() / 4 * self.source.below(8)));
                Ask { cost: self.cost(), intent: Intent::Refund { charged_at }, ..ask }
            }
        }
    }

    /// What went wrong, and all that led to it.
    pub fn broken(&self, what: &str) -> String {
        let mut text =
            format!("{what}\n{:?}\nsoft: {:?}, phase {:#x}\n", self.limit.algorithm(), self.soft(), self.phase);
        for (ask, outcome) in &self.past {
            let at = ask.now.as_micros();
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{at}: {:?} {} (lease {}) -> {}", ask.intent, ask.cost, ask.lease, brief(outcome));
        }
        let _ = writeln!(text, "state: {:?}", self.state);
        text
    }
}

/// An outcome on one line.
pub fn brief(outcome: &Outcome) -> String {
    format!(
        "{}{} remaining {}/{} retry {:?} reset {} delay {}",
        if outcome.allowed { "allowed" } else { "denied" },
        if outcome.overage { " above the limit" } else { "" },
        outcome.remaining,
        outcome.limit,
        outcome.retry_after.map(Micros::as_micros),
        outcome.reset_after.as_micros(),
        outcome.delay.as_micros(),
    )
}

fn start(scale: Scale, grain: Micros, source: &mut Source<'_>) -> Timestamp {
    const TODAY: u64 = 1_700_000_000_000_000;
    let grain = grain.as_micros();
    let micros = match source.below(8) {
        0 => 0,
        1 => source.below(20),
        2 => grain.saturating_mul(source.below(5)),
        3 => TODAY,
        4 => TODAY - TODAY.checked_rem(grain).unwrap_or(0),
        5 => (TODAY - TODAY.checked_rem(grain).unwrap_or(0)).saturating_sub(1),
        6 => grain / 8 * source.below(64),
        _ if scale == Scale::Extreme => source.word() >> 11,
        _ => TODAY + source.below(1 << 40),
    };
    Timestamp::from_micros(micros)
}
