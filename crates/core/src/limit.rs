//! Limits: an algorithm with its parameters, valid by construction, and the one function that applies it.
//!
//! [`Limit::new`] checks a description once and precomputes what deciding needs; after that nothing can fail. This is
//! the only file that knows all algorithms.

use crate::algorithm::concurrency::Slots;
use crate::algorithm::fixed_window::WindowCount;
use crate::algorithm::leaky_queue::Queue;
use crate::algorithm::pacing::Budget;
use crate::algorithm::sliding_counter::TwoWindows;
use crate::algorithm::sliding_log::Log;
use crate::algorithm::sub_windows::SubWindows;
use crate::algorithm::token_bucket::Bucket;
use crate::algorithm::token_interval::IntervalBucket;
use crate::algorithm::{Answer, Machine, Verdict, both, run, run_with_marks};
use crate::error::LimitError;
use crate::outcome::Outcome;
use crate::spec::{Algorithm, FixedWindow, LeakyBucket, LeakyForm, MAX_LOG, Pacing, Refill, Soft, Window};
use crate::state::{Cell, Change, Extra, State};
use crate::time::{MAX_INTEGER, Timestamp};

/// One question to a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// How many units.
    pub cost: u64,
    /// What is to be done with them.
    pub intent: Intent,
    /// The instant of the decision.
    pub now: Timestamp,
    /// Where between 0 and 2^64 this key's windows are shifted, for limits that spread them.
    pub phase: u64,
    /// Whose slots these are, for concurrency limits.
    pub lease: u64,
}

impl Ask {
    /// Spends `cost` at `now`.
    pub const fn spend(cost: u64, now: Timestamp) -> Self {
        Self { cost, intent: Intent::Spend, now, phase: 0, lease: 0 }
    }

    /// The same with another intent.
    pub const fn with_intent(self, intent: Intent) -> Self {
        Self { intent, ..self }
    }
}

/// What is to be done with a cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Intent {
    /// Take it if it fits.
    Spend,
    /// Say whether it would fit and change nothing.
    Peek,
    /// Take it in any case: what it is was known too late to deny it.
    Force,
    /// Give it back.
    Refund {
        /// When the charged request could proceed: the time of the charge, plus its delay if it had one.
        charged_at: Timestamp,
    },
    /// Hold a lease longer. Denied when there is no such lease.
    Renew,
}

impl Intent {
    /// What is asked of those that come after others with these outcomes: what is denied never happens, so nothing is
    /// spent for it.
    #[must_use]
    pub fn after(self, outcomes: &[Outcome]) -> Self {
        if self == Self::Spend && outcomes.iter().any(Outcome::denied) { Self::Peek } else { self }
    }
}

/// What came of an [`Ask`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The answer.
    pub outcome: Outcome,
    /// How the state changes if the answer is put into effect.
    pub change: Change,
}

/// An algorithm with parameters that are known to work.
#[derive(Clone, Debug)]
pub struct Limit {
    algorithm: Algorithm,
    soft: Option<Soft>,
    lineage: u64,
    spreads_keys: bool,
    machines: Machines,
}

/// The compiled algorithm; beside it, for soft limits, the same with room for the overage.
#[derive(Clone, Debug)]
pub(crate) enum Machines {
    Plain(Bucket<true>),
    Bucket(Bucket<false>, Option<Bucket<false>>),
    Interval(IntervalBucket, Option<IntervalBucket>),
    Queue(Queue, Option<Queue>),
    Window(WindowCount, Option<WindowCount>),
    Log(Log, Option<Log>),
    Counter(TwoWindows, Option<TwoWindows>),
    SubWindows(SubWindows, Option<SubWindows>),
    Slots(Slots, Option<Slots>),
    Budget(Box<(Budget, Option<Budget>)>),
}

impl Machines {
    fn bucket(bucket: Bucket<false>, overage: Option<u64>) -> Result<Self, LimitError> {
        Ok(match (overage, bucket.plain()) {
            (None, Some(plain)) => Self::Plain(plain),
            _ => Self::Bucket(bucket, overage.map(|by| bucket.raised(by)).transpose()?),
        })
    }

    fn lineage(&self) -> u64 {
        let (kind, shape) = match self {
            Self::Plain(_) => (0, 0),
            Self::Bucket(machine, _) => (0, machine.lineage()),
            Self::Interval(machine, _) => (1, machine.lineage()),
            Self::Queue(..) => (2, 0),
            Self::Window(machine, _) => (3, machine.lineage()),
            Self::Log(..) => (4, 0),
            Self::Counter(machine, _) => (5, machine.window()),
            Self::SubWindows(machine, _) => (6, machine.lineage()),
            Self::Slots(..) => (7, 0),
            Self::Budget(machines) => (8, machines.0.lineage()),
        };
        crate::key::mix(shape.wrapping_mul(16) + kind)
    }
}

impl Limit {
    /// Checks and prepares `algorithm`.
    pub fn new(algorithm: impl Into<Algorithm>) -> Result<Self, LimitError> {
        Self::build(algorithm.into(), None)
    }

    /// The same, with a limit that may be exceeded for a while.
    pub fn soft(algorithm: impl Into<Algorithm>, soft: Soft) -> Result<Self, LimitError> {
        Self::build(algorithm.into(), Some(soft))
    }

    fn build(algorithm: Algorithm, soft: Option<Soft>) -> Result<Self, LimitError> {
        let size = algorithm.size();
        if soft.is_some_and(|soft| soft.overage > MAX_LOG.max(size) || soft.lasting.is_zero()) {
            return Err(LimitError::BadOverage);
        }
        let overage = soft.map(|soft| soft.overage);
        if size.saturating_add(overage.unwrap_or(0)) > MAX_INTEGER {
            return Err(LimitError::TooLarge);
        }
        let machines = match &algorithm {
            Algorithm::TokenBucket(spec) if spec.refill == Refill::Interval => {
                let machine = IntervalBucket::new(spec)?;
                Machines::Interval(machine, overage.map(|by| machine.raised(by)))
            }
            Algorithm::TokenBucket(spec) => Machines::bucket(Bucket::new(spec)?, overage)?,
            Algorithm::LeakyBucket(LeakyBucket { rate, form: LeakyForm::Meter { capacity } }) => {
                Machines::bucket(Bucket::meter(*rate, *capacity)?, overage)?
            }
            Algorithm::LeakyBucket(LeakyBucket { rate, form: LeakyForm::Queue { length, max_wait } }) => {
                let machine = Queue::new(*rate, *length, *max_wait)?;
                Machines::Queue(machine, overage.map(|by| machine.raised(by)).transpose()?)
            }
            Algorithm::FixedWindow(spec) => {
                let machine = WindowCount::new(spec)?;
                let raised = overage.map(|by| machine.raised(by));
                Machines::Window(machine, raised)
            }
            Algorithm::SlidingLog(spec) => {
                let machine = Log::new(spec, overage.unwrap_or(0))?;
                Machines::Log(machine, overage.map(|by| machine.raised(by)))
            }
            Algorithm::SlidingCounter(spec) if spec.sub_windows == 1 && spec.limit <= TwoWindows::MAX_LIMIT => {
                let machine = TwoWindows::new(spec)?;
                Machines::Counter(machine, overage.map(|by| machine.raised(by)))
            }
            Algorithm::SlidingCounter(spec) => {
                let machine = SubWindows::new(spec)?;
                Machines::SubWindows(machine, overage.map(|by| machine.raised(by)))
            }
            Algorithm::Concurrency(spec) => {
                let machine = Slots::new(spec, overage.unwrap_or(0))?;
                Machines::Slots(machine, overage.map(|by| machine.raised(by)))
            }
            Algorithm::Pacing(spec) => {
                let machine = Budget::new(spec)?;
                let raised = overage.map(|by| machine.raised(by));
                Machines::Budget(Box::new((machine, raised)))
            }
        };
        let spreads_keys = match &algorithm {
            Algorithm::FixedWindow(FixedWindow { window, .. }) | Algorithm::Pacing(Pacing { window, .. }) => {
                matches!(window, Window::Clock { spread: true, .. })
            }
            _ => false,
        };
        Ok(Self { algorithm, soft, lineage: machines.lineage(), spreads_keys, machines })
    }

    /// The description it was made from.
    pub fn algorithm(&self) -> &Algorithm {
        &self.algorithm
    }

    pub(crate) fn machines(&self) -> &Machines {
        &self.machines
    }

    /// Whether and how far it may be exceeded.
    pub fn softness(&self) -> Option<Soft> {
        self.soft
    }

    /// Limits of equal lineage understand each other's states: a changed limit goes on with the states of the old one
    /// if the lineage is the same, and starts anew otherwise.
    ///
    /// Buckets, queues, logs and slots keep their state whatever changes; window counters keep theirs while the
    /// window stays the same.
    #[inline]
    pub fn lineage(&self) -> u64 {
        self.lineage
    }

    /// The most that it can ever admit at once: [`Outcome::limit`] of every answer.
    pub fn most(&self) -> u64 {
        match &self.machines {
            Machines::Plain(machine) => machine.capacity(),
            Machines::Bucket(machine, _) => machine.capacity(),
            Machines::Interval(machine, _) => machine.capacity(),
            Machines::Queue(machine, _) => machine.capacity(),
            Machines::Window(machine, _) => machine.capacity(),
            Machines::Log(machine, _) => machine.capacity(),
            Machines::Counter(machine, _) => machine.capacity(),
            Machines::SubWindows(machine, _) => machine.capacity(),
            Machines::Slots(machine, _) => machine.capacity(),
            Machines::Budget(machines) => machines.0.capacity(),
        }
    }

    /// The most marks that one key can need; zero when two integers are enough.
    pub fn most_marks(&self) -> u64 {
        match &self.machines {
            Machines::Log(machine, _) => machine.most_marks(),
            Machines::SubWindows(machine, _) => machine.most_marks(),
            Machines::Slots(machine, _) => machine.most_marks(),
            _ => 0,
        }
    }

    /// Whether keys may need more than two integers.
    pub fn needs_extra(&self) -> bool {
        self.soft.is_some() || self.most_marks() > 0
    }

    /// Whether [`Ask::phase`] matters to this limit.
    #[inline]
    pub fn spreads_keys(&self) -> bool {
        self.spreads_keys
    }

    /// Answers one question about one key: a pure function of its arguments, total and without side effect. The change
    /// takes effect only when the caller stores it, so several steps can be taken or left together.
    #[inline]
    pub fn step(&self, cell: Cell, extra: &Extra, ask: &Ask) -> Step {
        self.step_then(cell, extra, ask, |outcome, change| Step { outcome, change: *change })
    }

    /// The same as [`Self::step`] for those who only want to know whether: what is remaining and how long to wait is
    /// not computed.
    #[inline]
    pub fn admit(&self, cell: Cell, extra: &Extra, ask: &Ask) -> (bool, Change) {
        self.admit_then(cell, extra, ask, |allowed, change| (allowed, *change))
    }

    /// Hands what [`Self::step`] would return to `then`. Faster where `then` uses it up: an answer in two parts, of
    /// which the second is large and mostly empty, need not be put together and taken apart again.
    #[inline(always)]
    pub fn step_then<T>(&self, cell: Cell, extra: &Extra, ask: &Ask, then: impl FnOnce(Outcome, &Change) -> T) -> T {
        self.answer(cell, extra, ask, then)
    }

    /// Hands what [`Self::admit`] would return to `then`.
    #[inline(always)]
    pub fn admit_then<T>(&self, cell: Cell, extra: &Extra, ask: &Ask, then: impl FnOnce(bool, &Change) -> T) -> T {
        self.answer(cell, extra, ask, then)
    }

    #[inline(always)]
    fn answer<A: Answer, T>(&self, cell: Cell, extra: &Extra, ask: &Ask, then: impl FnOnce(A, &Change) -> T) -> T {
        // The most common of all is decided where it is asked for; the others are a call away.
        if let Machines::Plain(bucket) = &self.machines
            && extra.is_empty()
            && let Some((now, cell)) = bucket.spend(cell, ask)
        {
            return then(A::of(Verdict::DONE, bucket, &now, ask), &Change::Cell(cell));
        }
        let (answer, change) = self.answer_elsewhere(cell, extra, *ask);
        then(answer, &change)
    }

    #[inline(never)]
    fn answer_elsewhere<A: Answer>(&self, cell: Cell, extra: &Extra, mut ask: Ask) -> (A, Change) {
        // More than any limit can hold is as good as this, which is small enough to add to it.
        ask.cost = ask.cost.min(MAX_INTEGER + 1);
        let ask = &ask;
        macro_rules! run {
            ($hard:expr, $raised:expr) => {
                run($hard, $raised.as_ref().zip(self.soft.as_ref()), cell, extra, ask, both)
            };
        }
        macro_rules! run_with_marks {
            ($hard:expr, $raised:expr) => {
                run_with_marks($hard, $raised.as_ref().zip(self.soft.as_ref()), cell, extra, ask)
            };
        }
        match &self.machines {
            Machines::Plain(bucket) => run(bucket, None, cell, extra, ask, both),
            Machines::Bucket(hard, raised) => run!(hard, raised),
            Machines::Interval(hard, raised) => run!(hard, raised),
            Machines::Queue(hard, raised) => run!(hard, raised),
            Machines::Window(hard, raised) => run!(hard, raised),
            Machines::Log(hard, raised) => run_with_marks!(hard, raised),
            Machines::Counter(hard, raised) => run!(hard, raised),
            Machines::SubWindows(hard, raised) => run_with_marks!(hard, raised),
            Machines::Slots(hard, raised) => run_with_marks!(hard, raised),
            Machines::Budget(machines) => run!(&machines.0, machines.1),
        }
    }

    /// Takes a step and puts it into effect at once.
    pub fn apply(&self, state: &mut State, ask: &Ask) -> Outcome {
        let step = self.step(state.cell, &state.extra, ask);
        state.apply(&step.change);
        step.outcome
    }
}
