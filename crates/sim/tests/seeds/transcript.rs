//! The notation of transcripts: clock times as text, rows with expectations, and gates that play them.

use std::fmt::Write;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use tollgate::{Charge, Engine, Key, ManualClock, MemoryStore};
use tollgate_core::{Algorithm, Ask, Intent, Limit, Micros, Outcome, Soft, State, Timestamp};

/// Midnight before Monday, 15 January 2024, in UTC: all clock times count from here.
pub(crate) const MIDNIGHT: u64 = 1_705_276_800;

/// The instant of `h:mm:ss`, with a fraction and days before it if need be: `1:00:01`, `0:00:05.999999`, `6d 23:59:59`.
pub(crate) fn at(clock: &str) -> Timestamp {
    Timestamp::from_secs(MIDNIGHT).plus(span(clock))
}

/// A length of time in the same notation.
pub(crate) fn span(clock: &str) -> Micros {
    let (days, time) = clock.split_once("d ").unwrap_or(("0", clock));
    let (seconds, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let number = |text: &str| text.parse::<u64>().unwrap_or_else(|_| panic!("{clock:?} is not a clock time"));
    let seconds = seconds.split(':').fold(0, |sum, part| sum * 60 + number(part));
    let micros = number(&format!("{fraction:0<6}"));
    Micros::from_micros((number(days) * 86_400 + seconds) * 1_000_000 + micros)
}

pub(crate) fn seconds(number: u64) -> Micros {
    Micros::from_secs(number)
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It passes at once.
    Allowed,
    /// It is refused.
    Denied,
    /// It passes after being held back for so long.
    Delayed(&'static str),
    /// It passes above the limit, by the grace of a soft limit.
    Overage,
}
pub(crate) use Fate::{Allowed, Delayed, Denied, Overage};

impl Fate {
    fn matches(self, outcome: &Outcome) -> bool {
        match self {
            Allowed => outcome.allowed && outcome.delay.is_zero() && !outcome.overage,
            Denied => outcome.denied(),
            Delayed(by) => outcome.allowed && outcome.delay == span(by),
            Overage => outcome.allowed && outcome.overage,
        }
    }
}

/// When, at what cost, and what becomes of it.
pub(crate) type Row = (&'static str, u64, Fate);

/// A limit and the state of one key.
#[derive(Clone, Debug)]
pub(crate) struct Gate {
    pub(crate) limit: Limit,
    pub(crate) state: State,
    phase: u64,
    /// What the engine knows it by.
    number: u64,
}

impl Gate {
    pub(crate) fn new(algorithm: impl Into<Algorithm>) -> Self {
        Self::of(Limit::new(algorithm).expect("a valid limit"))
    }

    pub(crate) fn soft(algorithm: impl Into<Algorithm>, soft: Soft) -> Self {
        Self::of(Limit::soft(algorithm, soft).expect("a valid limit"))
    }

    fn of(limit: Limit) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self { limit, state: State::default(), phase: 0, number: NEXT.fetch_add(1, Ordering::Relaxed) }
    }

    /// The same limit for a key whose windows are shifted.
    pub(crate) fn with_phase(self, phase: u64) -> Self {
        Self { phase, ..self }
    }

    /// The limit changes to `algorithm`; the state goes on if it can, as a store would have it.
    pub(crate) fn changed_to(&self, algorithm: impl Into<Algorithm>) -> Self {
        let limit = Limit::new(algorithm).expect("a valid limit");
        let goes_on = limit.lineage() == self.limit.lineage();
        let state = if goes_on { self.state.clone() } else { State::default() };
        Self { limit, state, ..*self }
    }

    pub(crate) fn spend(&mut self, cost: u64, now: Timestamp) -> Outcome {
        self.limit.apply(&mut self.state, &Ask { phase: self.phase, ..Ask::spend(cost, now) })
    }

    pub(crate) fn refund(&mut self, cost: u64, charged_at: Timestamp, now: Timestamp) -> Outcome {
        self.limit.apply(&mut self.state, &Ask::spend(cost, now).with_intent(Intent::Refund { charged_at }))
    }

    pub(crate) fn peek(&self, cost: u64, now: Timestamp) -> Outcome {
        let ask = Ask { phase: self.phase, ..Ask::spend(cost, now).with_intent(Intent::Peek) };
        self.limit.step(self.state.cell, &self.state.extra, &ask).outcome
    }

    /// How much would be admitted at this time.
    pub(crate) fn remaining(&self, clock: &str) -> u64 {
        self.peek(0, at(clock)).remaining
    }

    /// How many of `number` requests at once are admitted.
    pub(crate) fn admits(&mut self, number: u64, now: Timestamp) -> u64 {
        (0..number).filter(|_| self.spend(1, now).allowed).count() as u64
    }

    /// Plays a transcript; shows all of it when one row differs.
    #[track_caller]
    pub(crate) fn plays(&mut self, rows: &[Row]) {
        let mut table = String::new();
        let mut differs = false;
        for (clock, cost, fate) in rows {
            let outcome = self.spend(*cost, at(clock));
            let as_told = fate.matches(&outcome);
            differs |= !as_told;
            let mark = if as_told { String::new() } else { format!("<-- {outcome:?}") };
            let _ = writeln!(table, "{clock:>18} {cost:>6}  {:<16} {mark}", format!("{fate:?}"));
        }
        assert!(!differs, "{:?} does not play its transcript:\n{table}", self.limit.algorithm());
    }
}

/// Asks for several gates as one, by the steps of core and of an engine that has seen the same.
pub(crate) struct Together {
    engine: Engine<MemoryStore, ManualClock>,
}

impl Together {
    pub(crate) fn new() -> Self {
        let clock = ManualClock::at(Timestamp::from_secs(MIDNIGHT));
        Self { engine: Engine::with_clock(MemoryStore::new(), clock) }
    }

    /// Takes every charge, each a gate and a cost, or none at all. Returns whether it did.
    #[track_caller]
    pub(crate) fn takes(&self, charges: &mut [(&mut Gate, u64)], now: Timestamp) -> bool {
        let steps: Vec<_> = charges
            .iter()
            .map(|(gate, cost)| gate.limit.step(gate.state.cell, &gate.state.extra, &Ask::spend(*cost, now)))
            .collect();
        let all = steps.iter().all(|step| step.outcome.allowed);
        if all {
            for ((gate, _), step) in charges.iter_mut().zip(&steps) {
                gate.state.apply(&step.change);
            }
        }
        self.engine.clock().set(now);
        let user: [&[u8]; 1] = [b"user"];
        let of = |(gate, cost): &(&mut Gate, u64)| (Key::new(gate.number, &user), gate.limit.clone(), *cost);
        let of: Vec<_> = charges.iter().map(of).collect();
        let of: Vec<_> = of.iter().map(|(key, limit, cost)| Charge::new(*key, limit).cost(*cost)).collect();
        let decision = at_once(self.engine.decide(&of)).expect("memory cannot fail");
        assert_eq!(decision.allowed, all, "the engine decides otherwise: {decision:?}");
        let left = charges.iter().map(|(gate, _)| gate.peek(0, now).remaining);
        let told = decision.outcomes.iter().map(|outcome| outcome.remaining);
        assert!(left.eq(told), "the engine has something else left: {decision:?}");
        all
    }
}

/// What is ready at once, as everything in memory is.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => done,
        Poll::Pending => panic!("nothing in memory has to be waited for"),
    }
}

#[test]
fn clock_times_read_as_written() {
    assert_eq!(span("1:00:01"), seconds(3_601));
    assert_eq!(span("0:00:05.9"), Micros::from_micros(5_900_000));
    assert_eq!(span("6d 23:59:59.999999"), Micros::from_micros(Micros::WEEK.as_micros() - 1));
    assert_eq!(at("0:00:00").as_micros() % Micros::DAY.as_micros(), 0);
}
