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

use std::collections::VecDeque;

use crate::limit::{Ask, Intent};
use crate::outcome::Outcome;
use crate::spec::Soft;
use crate::state::{Ahead, Cell, Change, Edit, Extra, Mark, MarkEdit};
use crate::time::{Micros, Timestamp};

/// How far the times of two threads that share a clock may be apart, in microseconds.
///
/// What was counted no further ahead than that was counted by another thread, at a later time than this; nothing is
/// wrong with it. What was counted further ahead was counted before the clock was set back: it counts as counted now.
/// That earns nothing, and nobody waits until the clock is where it was.
pub(crate) const MOST_APART: u64 = 10_000;

/// Whether `at` is further ahead of `now` than clocks differ.
#[inline(always)]
pub(crate) fn is_ahead(at: Timestamp, now: Timestamp) -> bool {
    at.as_micros() > now.as_micros() + MOST_APART
}

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
#[derive(Clone, Copy)]
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

    /// What becomes of marks before anything else, if they are further ahead than they can be.
    #[inline(always)]
    fn ahead(&self, _marks: &VecDeque<Mark>, _ask: &Ask) -> Ahead {
        Ahead::Stay
    }

    /// Brings a state up to `ask.now`. Time that runs backwards earns nothing; how far it may, see [`MOST_APART`].
    fn load<'a>(&self, view: View<'a>, ask: &Ask) -> Self::Now<'a>;

    /// The most that can ever be admitted at once.
    fn capacity(&self) -> u64;

    /// The largest cost that is admitted now. `fits(c)` is `c <= remaining()`, computed faster.
    fn remaining(&self, now: &Self::Now<'_>) -> u64;

    /// How much is counted above the limit, from those that count it.
    #[inline(always)]
    fn excess(&self, _now: &Self::Now<'_>) -> u32 {
        0
    }

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

    /// How long the state is kept if it is stored now: until it equals a fresh one, unless a fresh one is worse.
    fn kept_for(&self, now: &Self::Now<'_>) -> Micros {
        self.reset_after(now)
    }

    /// The state to store.
    fn save(&self, now: Self::Now<'_>) -> Saved;

    /// How long a request that is admitted now has to be held back.
    fn delay(&self, _now: &Self::Now<'_>) -> Micros {
        Micros::ZERO
    }

    /// Whether time alone does not make this of what is stored: then it is stored with a denial too, or the next one
    /// would find it as it was.
    fn is_adjusted(&self, _now: &Self::Now<'_>) -> bool {
        false
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

/// Answers `ask` by `hard`, and by `soft` (the same algorithm with room for the overage) when it denies, and hands the
/// answer to `then`.
#[inline(always)]
pub(crate) fn run<M: Machine, A: Answer, T>(
    hard: &M,
    soft: Option<(&M, &Soft)>,
    cell: Cell,
    extra: &Extra,
    ask: &Ask,
    then: impl FnOnce(A, &Change) -> T,
) -> T {
    run_on(hard, soft, cell, extra, Ahead::Stay, ask, then)
}

/// The same for machines that keep marks, which may be ahead.
#[inline(always)]
pub(crate) fn run_with_marks<M: Machine, A: Answer>(
    hard: &M,
    soft: Option<(&M, &Soft)>,
    cell: Cell,
    extra: &Extra,
    ask: &Ask,
) -> (A, Change) {
    match hard.ahead(&extra.marks, ask) {
        ahead if ahead != Ahead::Stay && cell.fresh_at > ask.now => run_held_back(hard, soft, cell, extra, ahead, ask),
        _ => run_on(hard, soft, cell, extra, Ahead::Stay, ask, both),
    }
}

/// The same on marks that are held back first. The clock was set back, which is rare enough to copy them.
#[cold]
fn run_held_back<M: Machine, A: Answer>(
    hard: &M,
    soft: Option<(&M, &Soft)>,
    cell: Cell,
    extra: &Extra,
    ahead: Ahead,
    ask: &Ask,
) -> (A, Change) {
    let mut extra = extra.clone();
    ahead.hold_back(&mut extra.marks);
    run_on(hard, soft, cell, &extra, ahead, ask, both)
}

/// An answer and a change as they are.
#[inline(always)]
pub(crate) fn both<A>(answer: A, change: &Change) -> (A, Change) {
    (answer, *change)
}

/// The same on a state whose marks are held back.
#[inline(always)]
fn run_on<M: Machine, A: Answer, T>(
    hard: &M,
    soft: Option<(&M, &Soft)>,
    cell: Cell,
    extra: &Extra,
    ahead: Ahead,
    ask: &Ask,
    then: impl FnOnce(A, &Change) -> T,
) -> T {
    let stale = cell.fresh_at <= ask.now;
    let view = if stale { View { cell: Cell::FRESH, extra: Extra::NONE } } else { View { cell, extra } };
    let held_back = ahead != Ahead::Stay;
    let before = Before { stale, extra, ahead };

    let mut now = hard.load(view, ask);
    let over_since = match (view.extra.over_since, soft) {
        (NEVER_OVER, _) => NEVER_OVER,
        (since, None) => since,
        (since, Some(_)) => still_over(hard, since, &now, ask),
    };
    match ask.intent {
        Intent::Peek => {
            let verdict = judge::<M, A>(hard, soft, view, over_since, held_back, &now, ask);
            then(A::of(verdict, hard, &now, ask), &Change::Keep)
        }
        Intent::Spend => {
            let verdict = judge::<M, A>(hard, soft, view, over_since, held_back, &now, ask);
            let since = match verdict {
                _ if ask.cost == 0 => return then(A::of(verdict, hard, &now, ask), &Change::Keep),
                Verdict::Fits { .. } => NEVER_OVER,
                Verdict::Overage { since, .. } => since,
                Verdict::Denied { .. }
                    if hard.deny(&mut now, ask.cost)
                        || held_back
                        || hard.is_adjusted(&now)
                        || over_since != view.extra.over_since =>
                {
                    let (answer, change) = deny_and_store(hard, soft, before, over_since, now, *ask);
                    return then(answer, &change);
                }
                Verdict::Denied { .. } => return then(A::of(verdict, hard, &now, ask), &Change::Keep),
            };
            hard.charge(&mut now, ask.cost);
            then(A::of(verdict, hard, &now, ask), &before.change(hard.save(now), since))
        }
        _ => {
            let (answer, change) = run_rarely(hard, before, view.is_fresh(), over_since, now, *ask);
            then(answer, &change)
        }
    }
}

/// What is asked for less often than whether something fits. Out of line, like [`deny_and_store`].
#[inline(never)]
fn run_rarely<M: Machine, A: Answer>(
    hard: &M,
    before: Before<'_>,
    is_fresh: bool,
    over_since: Timestamp,
    mut now: M::Now<'_>,
    ask: Ask,
) -> (A, Change) {
    let ask = &ask;
    let done = |now: &M::Now<'_>| A::of(Verdict::DONE, hard, now, ask);
    match ask.intent {
        Intent::Force if ask.cost > 0 => {
            let verdict = Verdict::Fits { delay: hard.delay(&now) };
            hard.charge(&mut now, ask.cost);
            (A::of(verdict, hard, &now, ask), before.change(hard.save(now), over_since))
        }
        // There is nothing to give back to a state that is as good as fresh.
        Intent::Refund { charged_at } if ask.cost > 0 && !is_fresh && !hard.reset_after(&now).is_zero() => {
            hard.refund(&mut now, ask.cost, charged_at);
            (done(&now), before.change(hard.save(now), over_since))
        }
        Intent::Renew if hard.renew(&mut now) => (done(&now), before.change(hard.save(now), over_since)),
        Intent::Renew => (A::of(Verdict::Denied { retry_after: None }, hard, &now, ask), Change::Keep),
        _ => (done(&now), Change::Keep),
    }
}

/// A denial that is stored: it is counted itself, or the state is not what time alone makes of what was there. Out of
/// line, so that what is common is in line where it is asked for.
#[inline(never)]
fn deny_and_store<M: Machine, A: Answer>(
    hard: &M,
    soft: Option<(&M, &Soft)>,
    before: Before<'_>,
    over_since: Timestamp,
    now: M::Now<'_>,
    ask: Ask,
) -> (A, Change) {
    let ask = &ask;
    let fresh_at = ask.now.plus(hard.kept_for(&now));
    let retry_after = if A::SAYS_WHEN { wait(hard, soft, fresh_at, over_since, &now, ask) } else { None };
    (A::of(Verdict::Denied { retry_after }, hard, &now, ask), before.change(hard.save(now), over_since))
}

/// What a state was before a step.
#[derive(Clone, Copy)]
struct Before<'a> {
    stale: bool,
    extra: &'a Extra,
    ahead: Ahead,
}

impl Before<'_> {
    /// What makes of it what a machine wants stored.
    #[inline(always)]
    fn change(&self, saved: Saved, over_since: Timestamp) -> Change {
        let Saved { cell, expired, marks } = saved;
        let leftovers = self.stale && !self.extra.is_empty();
        let are_kept = marks == MarkEdit::Keep && self.ahead == Ahead::Stay && expired == 0;
        if are_kept && over_since == self.extra.over_since && !leftovers {
            Change::Cell(cell)
        } else {
            Change::Both(cell, Edit { clear: self.stale, expired, over_since, ahead: self.ahead, marks })
        }
    }
}

/// [`Extra::over_since`] of a soft limit that is not exceeded.
const NEVER_OVER: Timestamp = Timestamp::EPOCH;

/// What a cost meets.
#[derive(Clone, Copy)]
pub(crate) enum Verdict {
    Fits { delay: Micros },
    Overage { delay: Micros, since: Timestamp },
    Denied { retry_after: Option<Micros> },
}

/// A soft limit that is first exceeded now; the epoch itself means "not exceeded".
fn began(now: Timestamp) -> Timestamp {
    now.max(Timestamp::from_micros(1))
}

#[inline(always)]
fn judge<'a, M: Machine, A: Answer>(
    hard: &M,
    soft: Option<(&M, &Soft)>,
    view: View<'a>,
    over_since: Timestamp,
    held_back: bool,
    now: &M::Now<'a>,
    ask: &Ask,
) -> Verdict {
    if ask.cost == 0 {
        return Verdict::Fits { delay: Micros::ZERO };
    }
    if hard.fits(now, ask.cost) {
        return Verdict::Fits { delay: hard.delay(now) };
    }
    if let Some((lenient, soft)) = soft
        && ask.now < hardens_at(over_since, soft)
        && lenient.fits(now, ask.cost)
    {
        let since = if over_since == NEVER_OVER { began(ask.now) } else { over_since };
        return Verdict::Overage { delay: lenient.delay(now), since };
    }
    if !A::SAYS_WHEN {
        return Verdict::Denied { retry_after: None };
    }
    let moved = soft.is_some() && !view.is_fresh() && (held_back || hard.is_adjusted(now));
    let fresh_at = if moved { ask.now.plus(hard.kept_for(now)) } else { view.cell.fresh_at };
    Verdict::Denied { retry_after: wait(hard, soft, fresh_at, over_since, now, ask) }
}

/// Since when a soft limit counts as exceeded that was first exceeded at `since`.
#[cold]
fn still_over<M: Machine>(hard: &M, since: Timestamp, now: &M::Now<'_>, ask: &Ask) -> Timestamp {
    match since {
        // After a clock was set back there may be as good as nothing: then nothing is known of an overage either.
        _ if hard.is_adjusted(now) && hard.kept_for(now).is_zero() => NEVER_OVER,
        later if is_ahead(later, ask.now) => began(ask.now),
        since => since,
    }
}

/// When a soft limit stops being soft.
fn hardens_at(over_since: Timestamp, soft: &Soft) -> Timestamp {
    match over_since {
        NEVER_OVER => Timestamp::MAX,
        over_since => over_since.plus(soft.lasting),
    }
}

/// How long until a cost that is denied now is admitted: within the limit, above it while it is soft, or above it once
/// the state is as good as fresh, since then nothing is known of an overage either.
fn wait<M: Machine>(
    hard: &M,
    soft: Option<(&M, &Soft)>,
    fresh_at: Timestamp,
    over_since: Timestamp,
    now: &M::Now<'_>,
    ask: &Ask,
) -> Option<Micros> {
    let within = hard.wait(now, ask.cost);
    let Some((lenient, soft)) = soft else { return within };
    let above = lenient.wait(now, ask.cost).filter(|wait| ask.now.plus(*wait) < hardens_at(over_since, soft));
    let anew = wait_anew(lenient, fresh_at.max(ask.now), ask);
    [within, above, anew].into_iter().flatten().min()
}

/// How long until a key that is fresh at `fresh_at` and that nobody asks about meanwhile admits a cost.
fn wait_anew<M: Machine>(machine: &M, fresh_at: Timestamp, ask: &Ask) -> Option<Micros> {
    let load = |now: Timestamp| machine.load(View { cell: Cell::FRESH, extra: Extra::NONE }, &Ask { now, ..*ask });
    let fresh = load(fresh_at);
    let fits = machine.fits(&fresh, ask.cost);
    let due = if fits { fresh_at } else { fresh_at.plus(machine.wait(&fresh, ask.cost)?) };
    machine.fits(&load(due), ask.cost).then(|| due.since(ask.now))
}

impl Verdict {
    pub(crate) const DONE: Self = Self::Fits { delay: Micros::ZERO };
}

/// How much of an answer is wanted. What is not asked for is not computed.
pub(crate) trait Answer {
    /// Whether it says how long to wait.
    const SAYS_WHEN: bool;

    fn of<M: Machine>(verdict: Verdict, machine: &M, now: &M::Now<'_>, ask: &Ask) -> Self;
}

/// Only whether the cost is admitted.
impl Answer for bool {
    const SAYS_WHEN: bool = false;

    #[inline(always)]
    fn of<M: Machine>(verdict: Verdict, _machine: &M, _now: &M::Now<'_>, _ask: &Ask) -> Self {
        !matches!(verdict, Verdict::Denied { .. })
    }
}

impl Answer for Outcome {
    const SAYS_WHEN: bool = true;

    #[inline(always)]
    fn of<M: Machine>(verdict: Verdict, machine: &M, now: &M::Now<'_>, ask: &Ask) -> Self {
        let (allowed, retry_after, delay, overage) = match verdict {
            Verdict::Fits { delay } => (true, Some(Micros::ZERO), delay, false),
            Verdict::Overage { delay, .. } => (true, Some(Micros::ZERO), delay, true),
            Verdict::Denied { retry_after } => (false, retry_after, Micros::ZERO, false),
        };
        Self {
            allowed,
            at: ask.now,
            limit: machine.capacity(),
            remaining: machine.remaining(now),
            retry_after,
            reset_after: machine.reset_after(now),
            delay,
            overage,
            shared: false,
            alone: false,
            excess: machine.excess(now),
        }
    }
}
