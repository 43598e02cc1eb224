//! A naive oracle: what a limit must answer, worked out from every event of a key.
//!
//! Nothing here is clever. Buckets are replayed token by token in exact fractions, windows are lists of events that
//! are filtered by time, a queue is its list of departures, slots are a list of leases. It shares the vocabulary of
//! `tollgate-core` (descriptions, asks, outcomes and calendars) and none of its arithmetic, encodings or shortcuts, so
//! that an error would have to be made twice, in two different ways, to go unseen.
//!
//! It is not a limiter: it forgets nothing, and it judges only refunds of charges that were made in the past. Numbers
//! that leave the range of 2^53 are marked, not modelled, and so is time that runs backwards by so little that it may
//! be another thread's: [`Oracle::is_exact`].
//!
//! The rules that all algorithms share:
//!
//! - A cost of zero is always allowed, whatever the intent, and changes nothing.
//! - A spend is allowed when its cost is at most what there is room for. A denied one says the first microsecond
//!   at which it would be allowed if nothing else happened until then, and `None` when there is none.
//! - A key is as good as new when nothing of what was charged to it counts any more. There is nothing to give back
//!   to such a key, so a refund leaves it as it is.
//! - A soft limit has `overage` more room from the first request that needs it (at the epoch: one microsecond after
//!   it), for as long as it lasts. After that it is hard until a request is within it, or the key is as good as new.
//! - When the clock is set back, what no longer counted at the last change is forgotten. What was counted, and an overage that
//!   began, more than ten milliseconds after now, is taken to have been counted, or to have begun, now; as each model says in full.
//!   It stays so from the first spend, forced charge, refund or renewal on that is not of nothing and not in vain.

mod bucket;
mod counter;
mod interval;
mod log;
mod pacing;
mod queue;
mod slots;
mod window;

use num_rational::Ratio;
use tollgate_core::{
    Algorithm, Ask, Intent, LeakyBucket, LeakyForm, MAX_INTEGER, Micros, Outcome, Refill, Soft, Timestamp, TokenBucket,
};

/// An exact fraction. All numerators stay below 2^120: a product of two numbers below 2^53, summed some hundred
/// times.
type Exact = Ratio<i128>;

/// What is ahead by no more than this may have been counted by another thread that shares the clock.
const MOST_APART: u64 = 10_000;

fn exact(number: u64) -> Exact {
    Exact::from_integer(i128::from(number))
}

/// The whole part, no less than zero.
fn floor(fraction: Exact) -> u64 {
    u64::try_from(fraction.floor().to_integer().max(0)).unwrap_or(u64::MAX)
}

/// The next whole number, no less than zero.
fn ceil(fraction: Exact) -> u64 {
    u64::try_from(fraction.ceil().to_integer().max(0)).unwrap_or(u64::MAX)
}

/// The first of `from..until` at which `holds`, which once true stays so until then.
fn first(from: u64, until: u64, holds: impl Fn(u64) -> bool) -> Option<u64> {
    let (mut low, mut high) = (from, until);
    while low < high {
        let middle = low + (high - low) / 2;
        if holds(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    (low < until).then_some(low)
}

/// A model as it was, for questions without effect.
trait Copied {
    fn copied(&self) -> Box<dyn Model + Send>;
}

impl<M: Model + Clone + Send + 'static> Copied for M {
    fn copied(&self) -> Box<dyn Model + Send> {
        Box::new(self.clone())
    }
}

/// One algorithm's memory of one key. Instants are microseconds, and none is before one that came earlier, unless the
/// clock was set back to it.
trait Model: Copied {
    /// The most that is ever admitted at once.
    fn limit(&self) -> u64;

    /// The largest cost that is admitted at `at` by a limit of `extra` more, if nothing happens until then.
    fn room(&self, at: u64, extra: u64) -> u64;

    /// What is counted above the limit at `at`, for models that say so.
    fn excess(&self, at: u64) -> u64 {
        let _ = at;
        0
    }

    /// The first instant from `from` on at which there is room for `cost`, if the key is asked for at `from` and
    /// nothing happens from then on.
    fn opens(&self, from: u64, cost: u64, extra: u64) -> Option<u64>;

    /// Counts `cost` for `lease`, whether there is room or not.
    fn charge(&mut self, at: u64, cost: u64, lease: u64);

    /// Gives back up to `cost` of what was charged at `charged_at`.
    fn refund(&mut self, at: u64, cost: u64, charged_at: u64, lease: u64);

    /// From when on nothing that was charged counts any more; `at` or earlier when that is so now.
    fn reset_at(&self, at: u64) -> u64;

    /// From when on the key is as good as new.
    fn new_from(&self, at: u64) -> u64 {
        self.reset_at(at)
    }

    /// How long what is admitted at `at` has to wait.
    fn delay(&self, _at: u64) -> u64 {
        0
    }

    /// The clock was set back to `at` after the last change, which was at `changed_at`. Says whether it is known what
    /// follows.
    fn set_back(&mut self, changed_at: u64, at: u64) -> bool;

    /// A spend of `cost` was denied. Says whether that is remembered.
    fn deny(&mut self, _at: u64, _cost: u64) -> bool {
        false
    }

    /// `lease` is held longer. Says whether there is such a lease.
    fn renew(&mut self, _at: u64, _lease: u64) -> bool {
        false
    }

    /// Whether everything that counts at `at` is in the range in which limits are exact.
    fn is_exact(&self, at: u64) -> bool;
}

/// What one limit must answer about one key.
pub struct Oracle {
    model: Box<dyn Model + Send>,
    soft: Option<Soft>,
    /// When the soft limit began to be exceeded.
    over_since: Option<u64>,
    changed_at: u64,
    exact: bool,
}

/// What a spend meets.
enum Verdict {
    Fits,
    Overage { since: u64 },
    Denied { opens: Option<u64> },
}

impl Oracle {
    /// The oracle of a limit that [`tollgate_core::Limit::new`] or `soft` has accepted, for a key of this phase.
    pub fn new(algorithm: &Algorithm, soft: Option<Soft>, phase: u64) -> Self {
        let overage = soft.map_or(0, |soft| soft.overage);
        let model: Box<dyn Model + Send> = match algorithm {
            Algorithm::TokenBucket(spec) if spec.refill == Refill::Interval => Box::new(interval::Interval::new(spec)),
            Algorithm::TokenBucket(spec) => Box::new(bucket::Bucket::new(spec)),
            Algorithm::LeakyBucket(LeakyBucket { rate, form: LeakyForm::Meter { capacity } }) => {
                Box::new(bucket::Bucket::new(&TokenBucket::new(*rate).burst(*capacity)))
            }
            Algorithm::LeakyBucket(LeakyBucket { rate, form: LeakyForm::Queue { length, max_wait } }) => {
                Box::new(queue::Queue::new(*rate, *length, *max_wait))
            }
            Algorithm::FixedWindow(spec) => Box::new(window::FixedWindow::new(spec, phase)),
            Algorithm::SlidingLog(spec) => Box::new(log::Log::new(spec, overage)),
            Algorithm::SlidingCounter(spec) => Box::new(counter::Counter::new(spec)),
            Algorithm::Concurrency(spec) => Box::new(slots::Slots::new(spec, overage)),
            Algorithm::Pacing(spec) => Box::new(pacing::Pacing::new(spec, phase)),
        };
        Self { model, soft, over_since: None, changed_at: 0, exact: true }
    }

    /// Whether all numbers so far were in the range in which limits are exact: instants and counts below 2^53, and
    /// what the algorithm says besides. Outside of it they saturate, and answers need not be equal to these.
    pub fn is_exact(&self) -> bool {
        self.exact
    }

    /// The answer to one question, which is put into effect.
    pub fn ask(&mut self, ask: &Ask) -> Outcome {
        // Costs above any limit are all alike.
        let (at, cost) = (ask.now.as_micros(), ask.cost.min(MAX_INTEGER + 1));
        let is_set_back = at < self.changed_at;
        let before = is_set_back.then(|| (self.model.copied(), self.over_since));
        if is_set_back {
            self.set_back(at);
        }
        let (outcome, changed) = self.answer(ask, at, cost);
        let latest = self.model.new_from(at).max(at.saturating_add(outcome.retry_after.map_or(0, Micros::as_micros)));
        let countable = cost <= MAX_INTEGER || ask.intent != Intent::Force;
        self.exact &= countable && self.model.is_exact(at) && is_representable(latest);
        // A denial changes nothing but where that leaves what was counted.
        if changed || is_set_back && ask.intent == Intent::Spend && cost > 0 {
            self.changed_at = at;
        } else if let Some((model, over_since)) = before {
            (self.model, self.over_since) = (model, over_since);
        }
        outcome
    }

    fn set_back(&mut self, at: u64) {
        if self.soft.is_some() {
            self.over_since = self.over_since.map(|since| if since > at + MOST_APART { at.max(1) } else { since });
        }
        self.exact &= self.model.set_back(self.changed_at, at);
    }

    /// When the soft limit began to be exceeded, if that still matters.
    fn over_since_at(&self, at: u64) -> Option<u64> {
        self.over_since.filter(|_| at < self.model.new_from(at))
    }

    /// The answer, and whether anything is different from now on.
    fn answer(&mut self, ask: &Ask, at: u64, cost: u64) -> (Outcome, bool) {
        let over_since = self.over_since_at(at);
        match ask.intent {
            Intent::Renew => {
                let renewed = self.model.renew(at, ask.lease);
                let verdict = if renewed { Verdict::Fits } else { Verdict::Denied { opens: None } };
                (self.report(at, &verdict, 0), renewed)
            }
            _ if cost == 0 => (self.report(at, &Verdict::Fits, 0), false),
            Intent::Peek => {
                let verdict = self.judge(at, cost);
                (self.report(at, &verdict, self.model.delay(at)), false)
            }
            Intent::Spend => self.spend(at, cost, ask.lease),
            Intent::Force => {
                let delay = self.model.delay(at);
                self.over_since = over_since;
                self.model.charge(at, cost, ask.lease);
                (self.report(at, &Verdict::Fits, delay), true)
            }
            Intent::Refund { charged_at } => {
                let counts = self.model.new_from(at) > at && self.model.reset_at(at) > at;
                if counts {
                    self.model.refund(at, cost, charged_at.as_micros(), ask.lease);
                }
                (self.report(at, &Verdict::Fits, 0), counts)
            }
        }
    }

    fn spend(&mut self, at: u64, cost: u64, lease: u64) -> (Outcome, bool) {
        let (verdict, over_since) = (self.judge(at, cost), self.over_since_at(at));
        let delay = self.model.delay(at);
        match verdict {
            Verdict::Fits => self.over_since = None,
            Verdict::Overage { since } => self.over_since = Some(since),
            Verdict::Denied { .. } => {
                let changed = self.model.deny(at, cost);
                if changed {
                    self.over_since = over_since;
                }
                let opens = self.judge(at, cost);
                return (self.report(at, &opens, 0), changed);
            }
        }
        self.model.charge(at, cost, lease);
        (self.report(at, &verdict, delay), true)
    }

    fn judge(&self, at: u64, cost: u64) -> Verdict {
        if cost <= self.model.room(at, 0) {
            return Verdict::Fits;
        }
        if let Some(soft) = self.soft
            && self.lenient_at(at)
            && cost <= self.model.room(at, soft.overage)
        {
            return Verdict::Overage { since: self.over_since_at(at).unwrap_or(at.max(1)) };
        }
        Verdict::Denied { opens: self.opens(at, cost) }
    }

    /// Whether the limit is exceeded with impunity at `at`, if nothing happens until then.
    fn lenient_at(&self, at: u64) -> bool {
        let Some(soft) = self.soft else { return false };
        let forgotten = self.model.new_from(at) <= at;
        forgotten || self.over_since.is_none_or(|since| at < since.saturating_add(soft.lasting.as_micros()))
    }

    /// The first instant at which a cost that is denied at `at` is admitted. Room comes first to the hard limit, to the
    /// lenient one, or to the lenient one after it was forgotten that it had been exceeded.
    fn opens(&self, at: u64, cost: u64) -> Option<u64> {
        let hard = self.model.opens(at, cost, 0);
        let Some(Soft { overage, .. }) = self.soft else { return hard };
        let lenient = self.model.opens(at, cost, overage).filter(|due| self.lenient_at(*due));
        let forgotten = self.model.opens(self.model.new_from(at).max(at), cost, overage);
        // Nobody asks for the key when it becomes new, so what begins with being asked for has not begun.
        let forgotten = forgotten.filter(|due| cost <= self.model.room(*due, overage));
        [hard, lenient, forgotten].into_iter().flatten().min()
    }

    fn report(&self, at: u64, verdict: &Verdict, delay: u64) -> Outcome {
        let (allowed, retry_after, overage) = match verdict {
            Verdict::Fits => (true, Some(0), false),
            Verdict::Overage { .. } => (true, Some(0), true),
            Verdict::Denied { opens } => (false, opens.map(|due| due - at), false),
        };
        Outcome {
            allowed,
            at: Timestamp::from_micros(at),
            limit: self.model.limit(),
            remaining: self.model.room(at, 0),
            retry_after: retry_after.map(Micros::from_micros),
            reset_after: Micros::from_micros(self.model.reset_at(at).saturating_sub(at)),
            delay: Micros::from_micros(if allowed { delay } else { 0 }),
            overage,
            shared: false,
            alone: false,
            excess: u32::try_from(self.model.excess(at)).unwrap_or(u32::MAX),
        }
    }
}

/// Units that were counted at one instant.
#[derive(Clone, Copy)]
struct Event {
    at: u64,
    units: u64,
}

/// Takes up to `units` from the events that `are_meant`, the newest first.
fn give_back(events: &mut Vec<Event>, units: u64, are_meant: impl Fn(&Event) -> bool) {
    let mut left = units;
    for event in events.iter_mut().rev().filter(|event| are_meant(event)) {
        let taken = event.units.min(left);
        event.units -= taken;
        left -= taken;
    }
    events.retain(|event| event.units > 0);
}

fn total<'e>(events: impl IntoIterator<Item = &'e Event>) -> u64 {
    events.into_iter().fold(0, |sum: u64, event| sum.saturating_add(event.units))
}

/// Whether an instant can be told from all later ones.
fn is_representable(at: u64) -> bool {
    at < Timestamp::MAX.as_micros()
}
