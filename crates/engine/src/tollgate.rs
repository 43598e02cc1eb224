//! Rules over an engine: a check in, a verdict out.
//!
//! A decision takes the rule set that is current when it begins and keeps it to its end, so it never sees half of a new
//! one.

use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::sync::{Arc, PoisonError};

use smallvec::SmallVec;
use tollgate_core::{Intent, Key, Micros, Timestamp};
use tollgate_rules::{Check, OnLimit, RuleSet, Simple, SimpleValues, Subject};

use crate::charge::Charge;
use crate::clock::{Clock, SystemClock};
use crate::engine::Engine;
use crate::join::join_all;
use crate::memory::prefetch_to_read;
use crate::plan::{Claims, Plan};
use crate::store::{ReservationId, Settled, Settlement, Store};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Mutex, thread_local};
use crate::verdict::{DescriptorStatus, Rules, Toll, Verdict};
use crate::wait::Queueing;

/// Decides by rules, with states in `S` and time from `C`. Share it by reference or in an `Arc`.
pub struct Tollgate<S, C = SystemClock> {
    engine: Engine<S, C>,
    current: Mutex<Arc<RuleSet>>,
    /// Grows with each replacement, after it.
    version: AtomicU64,
    /// Tells this one's rules from another's in a thread's memory.
    id: u64,
    /// Sets that were replaced and may still be in use. They are dropped by whoever replaces the next, never by a
    /// decision: freeing a large one takes longer than a decision may. (Only when the whole tollgate is dropped may a
    /// thread be left to free the last set, when it next decides elsewhere.)
    retired: Mutex<Vec<Arc<RuleSet>>>,
}

thread_local! {
    /// The rules that this thread decided by last. Looking here costs a fraction of taking a share in the current ones,
    /// which all threads would do at one place.
    static LAST: Cell<Option<Box<Last>>> = const { Cell::new(None) };
}

struct Last {
    tollgate: u64,
    version: u64,
    rules: Arc<RuleSet>,
}

static TOLLGATES: AtomicU64 = AtomicU64::new(0);

impl<S: Store> Tollgate<S> {
    /// Decides by `rules` on the system's clock.
    pub fn new(rules: RuleSet, store: S) -> Self {
        Self::with_engine(rules, Engine::new(store))
    }
}

impl<S: Store, C: Clock> Tollgate<S, C> {
    /// Decides by `rules` with an engine of your own.
    pub fn with_engine(rules: RuleSet, engine: Engine<S, C>) -> Self {
        Self {
            engine,
            current: Mutex::new(Arc::new(rules)),
            version: AtomicU64::new(0),
            id: TOLLGATES.fetch_add(1, Ordering::Relaxed),
            retired: Mutex::new(Vec::new()),
        }
    }

    /// The engine underneath.
    pub fn engine(&self) -> &Engine<S, C> {
        &self.engine
    }

    /// The rules in force.
    pub fn rules(&self) -> Arc<RuleSet> {
        Arc::clone(&self.current.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts `rules` in force, at once and as a whole. Limits that are the same, or the same with other numbers, go on
    /// with their counts; see [`tollgate_core::Limit::lineage`] for what changes keep. A thread that no longer decides
    /// keeps the set that it decided by last until it ends.
    pub fn replace_rules(&self, rules: RuleSet) {
        // Whoever decides waits for this lock, so nothing is allocated or freed behind it.
        let rules = Arc::new(rules);
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let old = std::mem::replace(&mut *current, rules);
        self.version.fetch_add(1, Ordering::Release);
        drop(current);
        // What this thread remembers is of no use any more; others find out when they decide.
        drop(LAST.try_with(Cell::take));
        let mut retired = self.retired.lock().unwrap_or_else(PoisonError::into_inner);
        retired.push(old);
        let unused = retired.extract_if(.., |set| Arc::strong_count(set) == 1).collect::<Vec<_>>();
        drop(retired);
        drop(unused);
    }

    /// Asks, and charges if the answer is yes.
    ///
    /// By attributes: every rule that applies is asked, and all are charged or none. By descriptors: each is counted on
    /// its own.
    #[inline]
    pub fn check(&self, check: &Check<'_>) -> impl Future<Output = Result<Verdict<'static>, S::Error>> + Send {
        self.apply(check, || Intent::Spend, |verdict: Verdict<'_>| verdict.into_owned())
    }

    /// [`Self::check`] for those who only look at the verdict: `tell` gets it with the rules on loan, which is a good
    /// deal faster than a share in them.
    #[inline]
    pub fn check_with<R: Send>(
        &self,
        check: &Check<'_>,
        tell: impl FnOnce(Verdict<'_>) -> R + Send,
    ) -> impl Future<Output = Result<R, S::Error>> + Send {
        self.apply(check, || Intent::Spend, tell)
    }

    /// What [`Self::check`] would say. Nothing is charged.
    #[inline]
    pub fn peek(&self, check: &Check<'_>) -> impl Future<Output = Result<Verdict<'static>, S::Error>> + Send {
        self.apply(check, || Intent::Peek, |verdict: Verdict<'_>| verdict.into_owned())
    }

    /// Charges in any case: for costs that are known only when the work is done.
    #[inline]
    pub fn force(&self, check: &Check<'_>) -> impl Future<Output = Result<Verdict<'static>, S::Error>> + Send {
        self.apply(check, || Intent::Force, |verdict: Verdict<'_>| verdict.into_owned())
    }

    /// Gives back what a check charged that was allowed at `charged_at` (plus its delay).
    pub async fn refund(&self, check: &Check<'_>, charged_at: Timestamp) -> Result<Verdict<'static>, S::Error> {
        let verdict =
            self.apply(check, || Intent::Refund { charged_at }, |verdict: Verdict<'_>| verdict.into_owned()).await;
        self.engine.wake_waiters();
        verdict
    }

    /// Holds the slots of a lease longer. Denied where the lease has expired; limits of other kinds are not asked.
    pub async fn renew(&self, check: &Check<'_>) -> Result<Verdict<'static>, S::Error> {
        self.apply_to_slots(check, true).await
    }

    /// Gives the slots of concurrency limits back that a check took. What it was charged by other limits stays charged.
    pub async fn release(&self, check: &Check<'_>) -> Result<Verdict<'static>, S::Error> {
        self.apply_to_slots(check, false).await
    }

    async fn apply_to_slots(&self, check: &Check<'_>, longer: bool) -> Result<Verdict<'static>, S::Error> {
        let rules = self.rules();
        let (decision, tolls) = {
            let claims = Claims::of(&rules, check);
            let values = claims.values();
            let plan = claims.plan_of_slots(&values, check);
            let decision = match longer {
                true => self.engine.renew(&plan.charges).await?,
                false => self.engine.release(&plan.charges).await?,
            };
            let mut tolls = SmallVec::new();
            plan.tell(0, &decision.outcomes, &mut tolls);
            (decision, tolls)
        };
        Ok(Verdict::new(decision.allowed, decision.at, tolls, Rules::Shared(rules)))
    }

    /// Charges like [`Self::check`], to be committed or cancelled within `hold`. Of descriptors, all pass or none is
    /// charged; those that cost nothing or are given back take no part.
    pub async fn reserve(
        &self,
        check: &Check<'_>,
        hold: impl Into<Micros>,
    ) -> Result<(Verdict<'static>, Option<ReservationId>), S::Error> {
        let rules = self.rules();
        let (decision, tolls, reservation) = {
            let claims = Claims::of(&rules, check);
            let values = claims.values();
            let plan = claims.plan_as_one(&values, check);
            let (decision, reservation) = self.engine.reserve(&plan.charges, hold).await?;
            let mut tolls = SmallVec::new();
            plan.tell(0, &decision.outcomes, &mut tolls);
            (decision, tolls, reservation)
        };
        Ok((Verdict::new(decision.allowed, decision.at, tolls, Rules::Shared(rules)), reservation))
    }

    /// Ends a reservation.
    pub async fn settle(&self, reservation: ReservationId, settlement: Settlement<'_>) -> Result<Settled, S::Error> {
        match settlement {
            Settlement::Commit => self.engine.commit(reservation).await,
            Settlement::CommitActual(actual) => self.engine.commit_actual(reservation, actual).await,
            Settlement::Cancel => self.engine.cancel(reservation).await,
        }
    }

    /// Waits until it is allowed, at most `longest`, in the order of arrival. See [`Engine::wait`]. Of descriptors, all
    /// pass or none is charged; those that cost nothing or are given back take no part.
    pub async fn wait(&self, check: &Check<'_>, longest: impl Into<Micros>) -> Result<Verdict<'static>, S::Error> {
        self.wait_in_line(check, Queueing::in_order(longest)).await.map(|(verdict, _)| verdict)
    }

    /// The same in lines that are kept as `how` says, and the place in the last. See [`Engine::wait_in_line`].
    pub async fn wait_in_line(&self, check: &Check<'_>, how: Queueing) -> Result<(Verdict<'static>, usize), S::Error> {
        self.wait_where(check, |_| Some(how)).await
    }

    /// The same for limits that say `delay`, each for as long and in the order that it says. What others deny is denied
    /// at once, and no more stand in a line than these have room for.
    pub async fn wait_by_rules(&self, check: &Check<'_>) -> Result<(Verdict<'static>, usize), S::Error> {
        self.wait_where(check, Queueing::asked_by).await
    }

    async fn wait_where(
        &self,
        check: &Check<'_>,
        how: impl Fn(OnLimit) -> Option<Queueing>,
    ) -> Result<(Verdict<'static>, usize), S::Error> {
        let rules = self.rules();
        let (decision, position, tolls) = {
            let claims = Claims::of(&rules, check);
            let values = claims.values();
            let plan = claims.plan_as_one(&values, check);
            let (decision, position) =
                self.engine.wait_where(&plan.charges, |at| how(plan.on_limit(&rules, at))).await?;
            let mut tolls = SmallVec::new();
            plan.tell(0, &decision.outcomes, &mut tolls);
            (decision, position, tolls)
        };
        Ok((Verdict::new(decision.allowed, decision.at, tolls, Rules::Shared(rules)), position))
    }

    /// Whether somebody waits for a counter of this check whose limit delays in the order of arrival: who asks at once
    /// instead of waiting behind may overtake them.
    #[inline]
    pub fn has_others_waiting(&self, check: &Check<'_>) -> bool {
        self.engine.has_waiters() && self.is_behind(check)
    }

    #[cold]
    fn is_behind(&self, check: &Check<'_>) -> bool {
        let rules = self.rules();
        let claims = Claims::of(&rules, check);
        let values = claims.values();
        let plan = claims.plan_as_one(&values, check);
        let mut charges = plan.charges.iter().enumerate();
        charges
            .any(|(at, charge)| matches!(plan.on_limit(&rules, at), OnLimit::Delay(_)) && self.engine.has_line(charge))
    }

    /// Hands over what a check has to pay if that is a charge by the one limit of one rule, as mostly; nothing is
    /// decided. For whoever has something else to do before that is, and would have the counter fetched meanwhile.
    #[inline]
    pub fn with_only_charge<R>(&self, check: &Check<'_>, then: impl FnOnce(&Charge<'_>) -> R) -> Option<R> {
        let last = self.last();
        let mut values = SimpleValues::default();
        let done = last.rules.simple(check, &mut values).map(|simple| then(&charge_of(&simple, check)));
        last.keep();
        done
    }

    /// The intent is a function, so that where it is always the same it is known here, and the others are left out.
    #[inline(always)]
    async fn apply<R, T: FnOnce(Verdict<'_>) -> R>(
        &self,
        check: &Check<'_>,
        intent: impl Fn() -> Intent,
        tell: T,
    ) -> Result<R, S::Error> {
        match self.apply_at_once(check, intent(), tell) {
            AtOnce::Told(told) => told,
            // Boxed, so that the room for what is alive meanwhile is not part of every caller's future.
            AtOnce::Later(now, tell) => Box::pin(self.apply_later(check, intent(), now)).await.map(tell),
        }
    }

    /// All that is done without waiting: everything, if the store has its answers at hand. No part of the future, whose
    /// variables the compiler keeps in memory.
    #[inline(always)]
    fn apply_at_once<R, T: FnOnce(Verdict<'_>) -> R>(
        &self,
        check: &Check<'_>,
        intent: Intent,
        tell: T,
    ) -> AtOnce<R, T, S::Error> {
        let last = self.last();
        let mut now = None;
        let mut values = SimpleValues::default();
        // What most checks are is answered here, without a plan: several times faster. The verdict is told where it is
        // made, as moving it would take longer than making it.
        let verdict = if let Some(simple) = last.rules.simple(check, &mut values) {
            // Whoever is told will want to know more of the rule than it takes to decide.
            if let Some(rule) = last.rules.rules().get(simple.number as usize) {
                prefetch_to_read(std::ptr::from_ref(rule).addr());
            }
            let charge = charge_of(&simple, check);
            let quickly = || *now.insert(self.engine.clock().now());
            if let Some(outcome) = self.engine.store().apply_one_quickly(&charge, intent, quickly) {
                let told = tell(Verdict::simple(check, simple.number, outcome, &last.rules));
                last.keep();
                return AtOnce::Told(Ok(told));
            }
            // One decision, one time.
            let now = *now.get_or_insert_with(|| self.engine.clock().now());
            self.apply_simple(check, &simple, intent, now, &last.rules)
        } else {
            self.apply_now(check, intent, *now.insert(self.engine.clock().now()), &last.rules)
        };
        let at_once = match verdict {
            Some(verdict) => AtOnce::Told(verdict.map(tell)),
            None => AtOnce::Later(now.unwrap_or_else(|| self.engine.clock().now()), tell),
        };
        last.keep();
        at_once
    }

    /// Decides by the one limit of a rule where that is not done quickly: the key is new, mostly.
    #[inline(never)]
    fn apply_simple<'r>(
        &self,
        check: &Check<'_>,
        simple: &Simple<'_, '_>,
        intent: Intent,
        now: Timestamp,
        rules: &'r Arc<RuleSet>,
    ) -> Option<Result<Verdict<'r>, S::Error>> {
        let asked = self.engine.store().apply_now(&[charge_of(simple, check)], intent, now)?;
        let outcomes = match asked {
            Ok(outcomes) => outcomes,
            Err(error) => return Some(Err(error)),
        };
        Some(Ok(Verdict::simple(check, simple.number, *outcomes.first()?, rules)))
    }

    /// The rules in force, taken out of this thread's memory.
    #[inline(always)]
    fn last(&self) -> Box<Last> {
        let version = self.version.load(Ordering::Acquire);
        match LAST.try_with(Cell::take) {
            Ok(Some(last)) if last.tollgate == self.id && last.version == version => last,
            _ => self.current(version),
        }
    }

    #[cold]
    fn current(&self, version: u64) -> Box<Last> {
        Box::new(Last { tollgate: self.id, version, rules: self.rules() })
    }

    /// Decides without a future, if the store can.
    #[inline(never)]
    fn apply_now<'r>(
        &self,
        check: &Check<'_>,
        intent: Intent,
        now: Timestamp,
        rules: &'r Arc<RuleSet>,
    ) -> Option<Result<Verdict<'r>, S::Error>> {
        let claims = Claims::of(rules, check);
        let values = claims.values();
        let plan = claims.plan(&values, check, intent, now);
        let mut tolls = SmallVec::new();
        let mut passed = true;
        for (number, group) in plan.groups.iter().enumerate() {
            let asked = self.engine.store().apply_now(plan.charges_of(number), group.intent(passed), now)?;
            let outcomes = match asked {
                Ok(outcomes) => outcomes,
                Err(error) => return Some(Err(error)),
            };
            if number == 0 {
                passed = outcomes.iter().all(|outcome| outcome.allowed);
            }
            plan.tell(number, &outcomes, &mut tolls);
        }
        let Answer { allowed, descriptors } = Answer::of(check, &claims, &plan, &tolls, passed);
        self.wake_if_refunded(check);
        Some(Ok(Verdict { descriptors, ..Verdict::new(allowed, now, tolls, Rules::Borrowed(rules)) }))
    }

    /// The same with a store that has to be waited for.
    async fn apply_later(
        &self,
        check: &Check<'_>,
        intent: Intent,
        now: Timestamp,
    ) -> Result<Verdict<'static>, S::Error> {
        let rules = self.rules();
        let mut tolls = SmallVec::new();
        let Answer { allowed, descriptors } = {
            let claims = Claims::of(&rules, check);
            let values = claims.values();
            let plan = claims.plan(&values, check, intent, now);
            let store = self.engine.store();
            // All at the same time, but for those that depend on what the first says.
            let at_once = plan.groups.iter().take_while(|group| !group.is_after_first()).count();
            let asked = if at_once < plan.groups.len() {
                let later: SmallVec<[_; 2]> = (1..plan.groups.len()).map(|number| plan.charges_of(number)).collect();
                store.apply_in_turn(plan.charges_of(0), &later, intent, now).await
            } else {
                let groups = plan.groups.iter().enumerate();
                join_all(groups.map(|(number, group)| store.apply(plan.charges_of(number), group.intent(true), now)))
                    .await
            };
            let mut passed = true;
            for (number, outcomes) in asked.into_iter().enumerate() {
                let outcomes = outcomes?;
                if number == 0 {
                    passed = outcomes.iter().all(|outcome| outcome.allowed);
                }
                plan.tell(number, &outcomes, &mut tolls);
            }
            Answer::of(check, &claims, &plan, &tolls, passed)
        };
        self.wake_if_refunded(check);
        Ok(Verdict { descriptors, ..Verdict::new(allowed, now, tolls, Rules::Shared(rules)) })
    }

    /// Whoever waits may find room in what a descriptor gave back.
    fn wake_if_refunded(&self, check: &Check<'_>) {
        if let Subject::Descriptors(descriptors) = check.subject
            && descriptors.iter().any(|descriptor| descriptor.refund)
        {
            self.engine.wake_waiters();
        }
    }
}

impl Last {
    /// Puts it back into this thread's memory.
    #[inline(always)]
    fn keep(self: Box<Self>) {
        // What a decision within this one has kept meanwhile is rarely there to be dropped.
        if let Ok(Some(other)) = LAST.try_with(|last| last.replace(Some(self))) {
            Self::forget(other);
        }
    }

    #[cold]
    fn forget(self: Box<Self>) {
        drop(self);
    }
}

/// What a check has to pay by the one limit of a rule.
#[inline(always)]
fn charge_of<'a>(simple: &Simple<'a, 'a>, check: &Check<'_>) -> Charge<'a> {
    Charge::new(Key::new(simple.limit_id, simple.values), simple.limit).cost(check.cost).lease(check.lease)
}

/// What came of a check without waiting.
enum AtOnce<R, T, E> {
    Told(Result<R, E>),
    /// Nothing: the store has to be waited for. When it was asked, and whom to tell.
    Later(Timestamp, T),
}

/// What the outcomes of a plan amount to.
struct Answer {
    allowed: bool,
    descriptors: SmallVec<[DescriptorStatus; 2]>,
}

impl Answer {
    #[inline]
    fn of(check: &Check<'_>, claims: &Claims<'_, '_>, plan: &Plan<'_>, tolls: &[Toll], passed: bool) -> Self {
        match check.subject {
            Subject::Attributes(_) => Self { allowed: passed, descriptors: SmallVec::new() },
            Subject::Descriptors(asked) => {
                let (allowed, descriptors) = claims.statuses(asked, plan, tolls);
                Self { allowed, descriptors }
            }
        }
    }
}

impl<S: fmt::Debug, C: fmt::Debug> fmt::Debug for Tollgate<S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tollgate").field("engine", &self.engine).finish_non_exhaustive()
    }
}
