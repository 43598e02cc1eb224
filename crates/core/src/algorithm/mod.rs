//! The algorithms, one file each, and the one driver that runs them all.
//!
//! An algorithm is a [`Machine`]: it reads a state at an instant, says what fits into it, and charges or
//! gives back. What an [`Intent`] means, what a soft limit adds and what is reported is the same for all of
//! them and written once, in [`run`].

pub(crate) mod concurrency;
pub(crate) mod fixed_window;
pub(crate) mod leaky_queue;
pub(crate) mod pacing;
pub(crate) mod sliding_counter;
pub(crate) mod sliding_log;
pub(crate) mod sub_windows;
pub(crate) mod token_bucket;
pub(crate) mod token_interval;

use crate::limit::{Ask, Intent, Step};
use crate::outcome::Outcome;
use crate::spec::Soft;
use crate::state::{Cell, Change, Edit, Extra, MarkEdit};
use crate::time::{Micros, Timestamp};

/// A state as a machine sees it: never stale.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub(crate) cell: Cell,
    pub(crate) extra: &'a Extra,
}

impl View<'_> {
    #[inline]
    pub(crate) fn is_fresh(&self) -> bool {
        self.cell.fresh_at == Timestamp::EPOCH
    }
}

/// What a machine wants stored.
pub(crate) struct Saved {
    pub(crate) cell: Cell,
    pub(crate) expired: usize,
    pub(crate) marks: MarkEdit,
}

impl Saved {
    /// For the machines that keep nothing but the cell.
    #[inline]
    pub(crate) fn cell(cell: Cell) -> Self {
        Self { cell, expired: 0, marks: MarkEdit::Keep }
    }
}

/// The arithmetic of one algorithm. Every method is total: any state and any cost have an answer.
pub(crate) trait Machine {
    /// A state brought up to the instant of the question.
    type Now<'a>;

    /// Brings a state up to `ask.now`. Time that runs backwards earns nothing.
    fn load<'a>(&self, view: View<'a>, ask: &Ask) -> Self::Now<'a>;

    /// The most that can ever be admitted at once.
    fn capacity(&self) -> u64;

    /// The largest cost that is admitted now. `fits(c)` is `c <= remaining()`, computed faster.
    fn remaining(&self, now: &Self::Now<'_>) -> u64;

    /// Whether `cost` is admitted now.
    fn fits(&self, now: &Self::Now<'_>, cost: u64) -> bool;

    /// For a cost that does not fit now: how long until it does, `None` for never.
    fn wait(&self, now: &Self::Now<'_>, cost: u64) -> Option<Micros>;

    /// Takes `cost`, whether it fits or not.
    fn charge(&self, now: &mut Self::Now<'_>, cost: u64);

    /// Gives back what was taken at `charged_at`, never beyond a fresh state.
    fn refund(&self, now: &mut Self::Now<'_>, cost: u64, charged_at: Timestamp);

    /// How long until the state equals a fresh one.
    fn reset_after(&self, now: &Self::Now<'_>) -> Micros;

    /// The state to store.
    fn save(&self, now: Self::Now<'_>) -> Saved;

    /// How long a request that is admitted now has to be held back.
    fn delay(&self, _now: &Self::Now<'_>) -> Micros {
        Micros::ZERO
    }

    /// Remembers a denial; returns whether it did.
    fn deny(&self, _now: &mut Self::Now<'_>, _cost: u64) -> bool {
        false
    }

    /// Holds a lease longer; returns whether there is one.
    fn renew(&self, _now: &mut Self::Now<'_>) -> bool {
        false
    }
}

/// Answers `ask` by `hard`, and by `soft` (the same algorithm with room for the overage) when it denies.
#[inline]
pub(crate) fn run<M: Machine>(hard: &M, soft: Option<(&M, &Soft)>, cell: Cell, extra: &Extra, ask: &Ask) -> Step {
    let stale = cell.fresh_at <= ask.now;
    let view = if stale { View { cell: Cell::FRESH, extra: Extra::NONE } } else { View { cell, extra } };
    let over_since = view.extra.over_since;
    let save = |now: M::Now<'_>, over_since: Timestamp| {
        let Saved { cell, expired, marks } = hard.save(now);
        let leftovers = stale && !extra.is_empty();
        if marks == MarkEdit::Keep && expired == 0 && over_since == extra.over_since && !leftovers {
            Change::Cell(cell)
        } else {
            Change::Both(cell, Edit { clear: stale, expired, over_since, marks })
        }
    };

    let mut now = hard.load(view, ask);
    match ask.intent {
        Intent::Peek => {
            let verdict = judge(hard, soft, view, &now, ask);
            Step { outcome: verdict.report(hard, &now), change: Change::Keep }
        }
        Intent::Spend => {
            let verdict = judge(hard, soft, view, &now, ask);
            match verdict {
                _ if ask.cost == 0 => Step { outcome: verdict.report(hard, &now), change: Change::Keep },
                Verdict::Fits { .. } => {
                    hard.charge(&mut now, ask.cost);
                    Step { outcome: verdict.report(hard, &now), change: save(now, NEVER_OVER) }
                }
                Verdict::Overage { since, .. } => {
                    hard.charge(&mut now, ask.cost);
                    Step { outcome: verdict.report(hard, &now), change: save(now, since) }
                }
                Verdict::Denied { .. } if hard.deny(&mut now, ask.cost) => {
                    let retry_after = hard.wait(&now, ask.cost);
                    let outcome = Verdict::Denied { retry_after }.report(hard, &now);
                    Step { outcome, change: save(now, over_since) }
                }
                Verdict::Denied { .. } => Step { outcome: verdict.report(hard, &now), change: Change::Keep },
            }
        }
        Intent::Force => {
            let verdict = Verdict::Fits { delay: hard.delay(&now) };
            hard.charge(&mut now, ask.cost);
            let outcome = verdict.report(hard, &now);
            Step { outcome, change: if ask.cost == 0 { Change::Keep } else { save(now, over_since) } }
        }
        Intent::Refund { charged_at } => {
            hard.refund(&mut now, ask.cost, charged_at);
            let outcome = Verdict::Fits { delay: Micros::ZERO }.report(hard, &now);
            // There is nothing to give back to a fresh state.
            Step { outcome, change: if view.is_fresh() { Change::Keep } else { save(now, over_since) } }
        }
        Intent::Renew => {
            if hard.renew(&mut now) {
                let outcome = Verdict::Fits { delay: Micros::ZERO }.report(hard, &now);
                Step { outcome, change: save(now, over_since) }
            } else {
                let outcome = Verdict::Denied { retry_after: None }.report(hard, &now);
                Step { outcome, change: Change::Keep }
            }
        }
    }
}

/// [`Extra::over_since`] of a soft limit that is not exceeded.
const NEVER_OVER: Timestamp = Timestamp::EPOCH;

/// What a cost meets.
enum Verdict {
    Fits { delay: Micros },
    Overage { delay: Micros, since: Timestamp },
    Denied { retry_after: Option<Micros> },
}

#[inline]
fn judge<'a, M: Machine>(hard: &M, soft: Option<(&M, &Soft)>, view: View<'a>, now: &M::Now<'a>, ask: &Ask) -> Verdict {
    if ask.cost == 0 {
        return Verdict::Fits { delay: Micros::ZERO };
    }
    if hard.fits(now, ask.cost) {
        return Verdict::Fits { delay: hard.delay(now) };
    }
    let retry_after = hard.wait(now, ask.cost);
    let Some((lenient, soft)) = soft else {
        return Verdict::Denied { retry_after };
    };
    let over_since = view.extra.over_since;
    let hardens_at = if over_since == NEVER_OVER { Timestamp::MAX } else { over_since.plus(soft.lasting) };
    if ask.now >= hardens_at {
        return Verdict::Denied { retry_after };
    }
    let raised = lenient.load(view, ask);
    if lenient.fits(&raised, ask.cost) {
        // The epoch itself means "not exceeded".
        let since = if over_since == NEVER_OVER { ask.now.max(Timestamp::from_micros(1)) } else { over_since };
        return Verdict::Overage { delay: lenient.delay(&raised), since };
    }
    let within_overage = lenient.wait(&raised, ask.cost).filter(|wait| ask.now.plus(*wait) < hardens_at);
    Verdict::Denied { retry_after: [retry_after, within_overage].into_iter().flatten().min() }
}

impl Verdict {
    #[inline]
    fn report<M: Machine>(&self, machine: &M, now: &M::Now<'_>) -> Outcome {
        let (allowed, retry_after, delay, overage) = match *self {
            Verdict::Fits { delay } => (true, Some(Micros::ZERO), delay, false),
            Verdict::Overage { delay, .. } => (true, Some(Micros::ZERO), delay, true),
            Verdict::Denied { retry_after } => (false, retry_after, Micros::ZERO, false),
        };
        Outcome {
            allowed,
            limit: machine.capacity(),
            remaining: machine.remaining(now),
            retry_after,
            reset_after: machine.reset_after(now),
            delay,
            overage,
            shared: false,
        }
    }
}
