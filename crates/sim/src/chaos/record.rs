//! What is written down while faults are injected: every decision, every fault, and how late the machine itself was.
//!
//! All times are moments of one monotonic clock, in microseconds since the begin of the run. It has nothing to do with
//! the clock that decides, which is Redis's and is part of each answer.

use tollgate::{Limit, Micros, Outcome, Timestamp};

use super::workload::Plan;

/// Microseconds since the begin of the run.
pub type Moment = u64;

/// What nodes ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// One server.
    Single,
    /// A primary behind Sentinels.
    Sentinel,
    /// A Cluster.
    Cluster,
}

/// All that is known of one run.
#[derive(Clone, Debug)]
pub struct History {
    /// What nodes asked.
    pub layout: Layout,
    /// The load.
    pub plan: Plan,
    /// How many nodes share the limits.
    pub servers: u64,
    /// How long a decision waits for Redis at most.
    pub deadline: Moment,
    /// What the wall clock showed at moment zero.
    pub epoch: Timestamp,
    /// What was counted on, by number.
    pub counters: Vec<Counter>,
    /// One for each decision, in no order.
    pub records: Vec<Record>,
    /// What was done to Redis and its network.
    pub faults: Vec<Fault>,
    /// When clocks of nodes were set ahead: of which node, when, and by how much.
    pub leaps: Vec<(u16, Moment, Moment)>,
    /// When the machine did not let a thread run that wanted to: from, to.
    pub stalls: Vec<(Moment, Moment)>,
    /// Keys in Redis at the end that nobody would ever have removed.
    pub keys_for_ever: u64,
    /// What else whoever injected the faults found wrong.
    pub complaints: Vec<String>,
}

/// One counter, under one limit.
#[derive(Clone, Debug)]
pub struct Counter {
    /// What it is counted by.
    pub name: String,
    /// What it is limited to.
    pub limit: Limit,
    /// What Redis has counted on it in all, at the end: only of counters with a ledger, and only if nothing was lost.
    pub ledger: Option<u64>,
}

/// What was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// To spend.
    Spend,
    /// To spend, and to settle it later.
    Hold,
    /// To have back what a decision spent.
    Refund {
        /// Its number.
        of: u64,
        /// When that was, by the shared store's clock.
        charged_at: Timestamp,
    },
    /// To have back what a decision held. There is no answer but that it was done.
    Cancel {
        /// Its number.
        of: u64,
    },
}

/// What the shared store said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shared {
    /// An answer.
    Answered,
    /// It was not asked: what it denied before is denied still.
    Repeated,
    /// None, and the charge was certainly not counted.
    NotRun,
    /// None, and nobody knows whether the charge was counted.
    Unknown,
}

/// One decision.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    /// No other decision has it.
    pub number: u64,
    /// What was asked for.
    pub act: Act,
    /// Who decided.
    pub node: u16,
    /// On which counter.
    pub counter: u32,
    /// How many units.
    pub cost: u64,
    /// When it should have begun.
    pub scheduled: Moment,
    /// When it began.
    pub begun: Moment,
    /// When it was there.
    pub returned: Moment,
    /// What the shared store said.
    pub shared: Shared,
    /// The answer; none if whoever asked went away.
    pub outcome: Option<Outcome>,
    /// What the ledger of the counter stood at after this charge, if it has one and the shared store answered.
    pub total: Option<u64>,
}

impl Record {
    /// Whether something was to be had, and not to be given back.
    pub fn is_spending(&self) -> bool {
        matches!(self.act, Act::Spend | Act::Hold)
    }

    /// The number of the decision whose units are given back.
    pub fn gives_back(&self) -> Option<u64> {
        match self.act {
            Act::Spend | Act::Hold => None,
            Act::Refund { of, .. } | Act::Cancel { of } => Some(of),
        }
    }

    /// Whether it was admitted.
    pub fn is_allowed(&self) -> bool {
        self.is_spending() && self.outcome.is_some_and(|outcome| outcome.allowed)
    }

    /// Whether it was denied.
    pub fn is_denied(&self) -> bool {
        self.is_spending() && self.outcome.is_some_and(|outcome| !outcome.allowed)
    }

    /// Whether the node decided without the shared store, which it had asked or would have.
    pub fn is_alone(&self) -> bool {
        matches!(self.shared, Shared::NotRun | Shared::Unknown)
    }

    /// Admitted by the shared store.
    pub fn is_shared_admission(&self) -> bool {
        self.is_allowed() && self.shared == Shared::Answered
    }

    /// Admitted by a node alone.
    pub fn is_lone_admission(&self) -> bool {
        self.is_allowed() && self.is_alone()
    }

    /// Whether the shared store may have counted it.
    pub fn may_be_charged(&self) -> bool {
        self.is_shared_admission() || self.is_spending() && self.shared == Shared::Unknown
    }

    /// Whether the shared store may have given something back.
    pub fn may_be_given_back(&self) -> bool {
        !self.is_spending() && matches!(self.shared, Shared::Answered | Shared::Unknown)
    }

    /// How long it took, from when it should have begun.
    pub fn took(&self) -> Moment {
        self.returned.saturating_sub(self.scheduled)
    }
}

/// Something that was done, and what it justifies.
#[derive(Clone, Debug)]
pub struct Fault {
    /// In words.
    pub what: String,
    /// From when.
    pub begin: Moment,
    /// Until when it was in force.
    pub end: Moment,
    /// When all nodes asked Redis again, as far as they ever stopped.
    pub recovered: Moment,
    /// What is excused by it.
    pub excuse: Excuse,
}

/// What a fault excuses, beyond nodes that go on alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Excuse {
    /// Nodes may decide alone.
    pub alone: bool,
    /// How often each counter's state may have been lost.
    pub losses: u64,
    /// Redis's clock was set: by so many microseconds, ahead or back.
    pub clock: i64,
}

impl Excuse {
    /// Only that nodes go on alone.
    pub const ALONE: Self = Self { alone: true, losses: 0, clock: 0 };
    /// Nothing: nobody may notice.
    pub const NOTHING: Self = Self { alone: false, ..Self::ALONE };
    /// Nodes go on alone, and states are lost once.
    pub const LOSS: Self = Self { losses: 1, ..Self::ALONE };
}

/// For so long a busy machine may keep Redis from what is in its sockets, although nothing is wrong with either.
const LINGER: Moment = 200_000;

/// How far the machine's two clocks may have drifted apart over a run, in microseconds: as much as the wall clock may
/// be slewed, and a millisecond.
pub(super) fn drift(length: Moment) -> Moment {
    length / 2_000 + 1_000
}

impl History {
    /// How long it lasted.
    pub fn length(&self) -> Moment {
        self.records.iter().map(|record| record.returned).max().unwrap_or(0)
    }

    /// The wall clock at a moment.
    pub fn wall(&self, moment: Moment) -> Timestamp {
        self.epoch.plus(Micros::from_micros(moment))
    }

    /// Until when the shared store may carry out what was asked: what it did not answer may wait in its sockets, and is
    /// read when it goes on.
    pub fn settled(&self, record: &Record) -> Moment {
        if record.shared != Shared::Unknown {
            return record.returned;
        }
        let overlaps = |fault: &&Fault| fault.begin <= record.returned && record.begun <= fault.recovered;
        self.faults.iter().filter(overlaps).map(|fault| fault.recovered).fold(record.returned + LINGER, Moment::max)
    }

    /// Whether and until when states may have been lost.
    pub fn lost_until(&self) -> Option<Moment> {
        self.faults.iter().filter(|fault| fault.excuse.losses > 0).map(|fault| fault.recovered).max()
    }

    /// The records of one counter.
    pub fn of(&self, counter: u32) -> impl Iterator<Item = &Record> {
        self.records.iter().filter(move |record| record.counter == counter)
    }
}
