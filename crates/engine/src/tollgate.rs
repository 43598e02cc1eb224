//! Rules over an engine: a check in, a verdict out.
//!
//! A decision takes the rule set that is current when it begins and keeps it to its end, so it never sees half of a new one.

use std::fmt;
use std::sync::{Arc, PoisonError};

use arc_swap::{ArcSwap, Guard};
use smallvec::SmallVec;
use tollgate_core::{Intent, Key, Limit, Micros, Outcome, Timestamp};
use tollgate_rules::{
    Attribute, Check, Descriptor, Limits, LyftRate, Match, Mode, Override, RuleSet, Subject, Unit, Values,
};

use crate::charge::Charge;
use crate::clock::{Clock, SystemClock};
use crate::engine::Engine;
use crate::store::{ReservationId, Settled, Settlement, Store};
use crate::sync::Mutex;
use crate::verdict::{DescriptorStatus, StatusKind, Toll, Verdict};

/// Decides by rules, with states in `S` and time from `C`. Share it by reference or in an `Arc`.
pub struct Tollgate<S, C = SystemClock> {
    engine: Engine<S, C>,
    rules: ArcSwap<RuleSet>,
    /// Sets that were replaced and may still be in use. They are dropped by whoever replaces the next, never by a decision:
    /// freeing a large one takes longer than a decision may.
    retired: Mutex<Vec<Arc<RuleSet>>>,
}

impl<S: Store> Tollgate<S> {
    /// Decides by `rules` on the system's clock.
    pub fn new(rules: RuleSet, store: S) -> Self {
        Self::with_engine(rules, Engine::new(store))
    }
}

impl<S: Store, C: Clock> Tollgate<S, C> {
    /// Decides by `rules` with an engine of your own.
    pub fn with_engine(rules: RuleSet, engine: Engine<S, C>) -> Self {
        Self { engine, rules: ArcSwap::from_pointee(rules), retired: Mutex::new(Vec::new()) }
    }

    /// The engine underneath.
    pub fn engine(&self) -> &Engine<S, C> {
        &self.engine
    }

    /// The rules in force.
    pub fn rules(&self) -> Arc<RuleSet> {
        self.rules.load_full()
    }

    /// Puts `rules` in force, at once and as a whole. Limits that are the same, or the same with other numbers, go on with their
    /// counts; see [`Limit::lineage`] for what changes keep.
    pub fn replace_rules(&self, rules: RuleSet) {
        let old = self.rules.swap(Arc::new(rules));
        let mut retired = self.retired.lock().unwrap_or_else(PoisonError::into_inner);
        retired.push(old);
        let unused = retired.extract_if(.., |set| Arc::strong_count(set) == 1).collect::<Vec<_>>();
        drop(retired);
        drop(unused);
    }

    /// Asks, and charges if the answer is yes.
    ///
    /// By attributes: every rule that applies is asked, and all are charged or none. By descriptors: each is counted on its
    /// own.
    #[inline]
    pub async fn check(&self, check: &Check<'_>) -> Result<Verdict, S::Error> {
        self.apply(check, Intent::Spend).await
    }

    /// What [`Self::check`] would say. Nothing is charged.
    pub async fn peek(&self, check: &Check<'_>) -> Result<Verdict, S::Error> {
        self.apply(check, Intent::Peek).await
    }

    /// Charges in any case: for costs that are known only when the work is done.
    pub async fn force(&self, check: &Check<'_>) -> Result<Verdict, S::Error> {
        self.apply(check, Intent::Force).await
    }

    /// Gives back what a check charged that was allowed at `charged_at` (plus its delay).
    pub async fn refund(&self, check: &Check<'_>, charged_at: Timestamp) -> Result<Verdict, S::Error> {
        self.apply(check, Intent::Refund { charged_at }).await
    }

    /// Holds the slots of a lease longer.
    pub async fn renew(&self, check: &Check<'_>) -> Result<Verdict, S::Error> {
        self.apply(check, Intent::Renew).await
    }

    /// Charges like [`Self::check`], to be committed or cancelled within `hold`. Of descriptors, all pass or none is charged.
    pub async fn reserve(
        &self,
        check: &Check<'_>,
        hold: impl Into<Micros>,
    ) -> Result<(Verdict, Option<ReservationId>), S::Error> {
        let rules = self.rules.load();
        let (decision, tolls, reservation) = {
            let asked = Asked::about(&rules, check);
            let values = asked.values();
            let bill = asked.bill(&values, check, Mode::Enforce);
            let (decision, reservation) = self.engine.reserve(&bill.charges, hold).await?;
            let tolls = bill.tolls(&decision.outcomes, false);
            (decision, tolls, reservation)
        };
        Ok((Verdict::new(decision.allowed, decision.at, tolls, rules), reservation))
    }

    /// Ends a reservation.
    pub async fn settle(&self, reservation: ReservationId, settlement: Settlement<'_>) -> Result<Settled, S::Error> {
        match settlement {
            Settlement::Commit => self.engine.commit(reservation).await,
            Settlement::CommitActual(actual) => self.engine.commit_actual(reservation, actual).await,
            Settlement::Cancel => self.engine.cancel(reservation).await,
        }
    }

    /// Waits until it is allowed, at most `longest`, in the order of arrival. See [`Engine::wait`]. Of descriptors, all pass
    /// or none is charged.
    pub async fn wait(&self, check: &Check<'_>, longest: impl Into<Micros>) -> Result<Verdict, S::Error> {
        let rules = self.rules.load();
        let (decision, tolls) = {
            let asked = Asked::about(&rules, check);
            let values = asked.values();
            let bill = asked.bill(&values, check, Mode::Enforce);
            let decision = self.engine.wait(&bill.charges, longest).await?;
            let tolls = bill.tolls(&decision.outcomes, false);
            (decision, tolls)
        };
        Ok(Verdict::new(decision.allowed, decision.at, tolls, rules))
    }

    #[inline]
    async fn apply(&self, check: &Check<'_>, intent: Intent) -> Result<Verdict, S::Error> {
        let now = self.engine.clock().now();
        let rules = self.rules.load();
        let verdict = match check.subject {
            Subject::Attributes(attributes) => self.by_attributes(rules, attributes, check, intent, now).await,
            Subject::Descriptors(descriptors) => self.by_descriptors(rules, descriptors, check, intent, now).await,
        };
        if matches!(intent, Intent::Refund { .. }) {
            self.engine.wake_waiters();
        }
        verdict
    }

    async fn by_attributes(
        &self,
        rules: Guard<Arc<RuleSet>>,
        attributes: &[Attribute<'_>],
        check: &Check<'_>,
        intent: Intent,
        now: Timestamp,
    ) -> Result<Verdict, S::Error> {
        let (allowed, tolls) = {
            let mut asked = Asked::default();
            rules.collect(check.domain, attributes, |found| asked.matches.push(found));
            let values = asked.values();
            let bill = asked.bill(&values, check, Mode::Enforce);
            let outcomes = self.engine.store().apply(&bill.charges, intent, now).await?;
            let allowed = outcomes.iter().all(|outcome| outcome.allowed);
            let mut tolls = bill.tolls(&outcomes, false);

            let shadow = asked.bill(&values, check, Mode::Shadow);
            if !shadow.charges.is_empty() {
                // What is denied by others never happens, so that a shadow does not count it either.
                let intent = if intent == Intent::Spend && !allowed { Intent::Peek } else { intent };
                let outcomes = self.engine.store().apply_each(&shadow.charges, intent, now).await?;
                tolls.extend(shadow.tolls(&outcomes, true));
            }
            (allowed, tolls)
        };
        Ok(Verdict::new(allowed, now, tolls, rules))
    }

    async fn by_descriptors(
        &self,
        rules: Guard<Arc<RuleSet>>,
        descriptors: &[Descriptor<'_>],
        check: &Check<'_>,
        intent: Intent,
        now: Timestamp,
    ) -> Result<Verdict, S::Error> {
        let found: SmallVec<[Finding<'_, '_>; 1]> =
            descriptors.iter().map(|descriptor| Finding::of(&rules, check.domain, descriptor)).collect();
        let mut tolls: SmallVec<[Toll; 2]> = SmallVec::new();
        let mut statuses: SmallVec<[DescriptorStatus; 1]> = SmallVec::new();
        for (descriptor, finding) in descriptors.iter().zip(&found) {
            let first = tolls.len() as u16;
            let replaced = finding.name().is_some_and(|name| found.iter().any(|other| other.replaces(name)));
            let kind = if replaced { StatusKind::Replaced } else { finding.kind() };
            let mut over_limit = false;
            if matches!(kind, StatusKind::Counted | StatusKind::Quota) {
                let cost = descriptor.cost.unwrap_or(check.cost);
                let values: SmallVec<[&[u8]; 4]> = finding.values.iter().map(tollgate_rules::Value::bytes).collect();
                let bill = finding.bill(&values, cost, check);
                let intent = match intent {
                    _ if descriptor.refund => Intent::Refund { charged_at: now },
                    Intent::Spend if cost == 0 => Intent::Peek,
                    intent => intent,
                };
                let outcomes = self.engine.store().apply(&bill.charges, intent, now).await?;
                let denied = outcomes.iter().any(Outcome::denied);
                over_limit = denied && !finding.shadow();
                tolls.extend(bill.tolls(&outcomes, finding.shadow()));
            }
            let ranged = (first, tolls.len() as u16);
            statuses.push(DescriptorStatus { over_limit, kind, tolls: ranged, limit: descriptor.limit });
        }
        let denies = |status: &DescriptorStatus| status.over_limit && status.kind != StatusKind::Quota;
        let mut quotas = statuses.iter().filter(|status| status.kind == StatusKind::Quota).peekable();
        let quota_spent = quotas.peek().is_some() && quotas.all(|status| status.over_limit);
        let allowed = !statuses.iter().any(denies) && !quota_spent;
        drop(found);
        Ok(Verdict { descriptors: statuses, ..Verdict::new(allowed, now, tolls, rules) })
    }
}

/// The rules that a check is asked to pay.
#[derive(Default)]
struct Asked<'r, 'q> {
    matches: SmallVec<[Match<'r, 'q>; 2]>,
}

impl<'r, 'q> Asked<'r, 'q> {
    fn about(rules: &'r RuleSet, check: &Check<'q>) -> Self {
        let mut asked = Self::default();
        match check.subject {
            Subject::Attributes(attributes) => {
                rules.collect(check.domain, attributes, |found| asked.matches.push(found));
            }
            Subject::Descriptors(descriptors) => {
                let found = descriptors.iter().filter_map(|one| rules.find(check.domain, one.entries));
                asked.matches.extend(found);
            }
        }
        asked
    }

    /// What all of them are counted by, one after the other.
    #[inline]
    fn values(&self) -> SmallVec<[&[u8]; 4]> {
        self.matches.iter().flat_map(|found| found.values.iter().map(tollgate_rules::Value::bytes)).collect()
    }

    /// The charges of the rules that are in `mode`.
    #[inline]
    fn bill<'a>(&'a self, values: &'a [&'a [u8]], check: &Check<'_>, mode: Mode) -> Bill<'a> {
        let mut bill = Bill::default();
        let mut rest = values;
        for found in &self.matches {
            let (own, others) = rest.split_at(found.values.len().min(rest.len()));
            rest = others;
            if found.rule.rule().mode == mode {
                bill.add(found, own, check.cost, check);
            }
        }
        bill
    }
}

/// What one descriptor finds.
struct Finding<'r, 'q> {
    found: Option<Match<'r, 'q>>,
    /// A limit that came with it, and the number it is counted under.
    own: Option<(LyftRate, u64)>,
    values: Values<'q>,
}

impl<'r, 'q> Finding<'r, 'q> {
    fn of(rules: &'r RuleSet, domain: &str, descriptor: &Descriptor<'q>) -> Self {
        let own = descriptor.limit.filter(|_| rules.has_domain(domain)).and_then(|limit| {
            let Override { requests_per_unit, unit } = limit;
            Some((LyftRate::new(requests_per_unit, unit).ok()?, unit))
        });
        if let Some((rate, unit)) = own {
            let (id, values) = rules.override_key(domain, descriptor.entries, unit);
            return Self { found: None, own: Some((rate, id)), values };
        }
        let found = rules.find(domain, descriptor.entries);
        let values = found.as_ref().map(|found| found.values.clone()).unwrap_or_default();
        Self { found, own: None, values }
    }

    fn limits(&self) -> Option<&'r Limits> {
        self.found.as_ref().map(|found| &found.rule.rule().limits)
    }

    fn name(&self) -> Option<&str> {
        match self.limits()? {
            Limits::Lyft(limit) => limit.name.as_deref(),
            _ => None,
        }
    }

    fn replaces(&self, name: &str) -> bool {
        match self.limits() {
            Some(Limits::Lyft(limit)) => limit.replaces.iter().any(|replaced| **replaced == *name),
            _ => false,
        }
    }

    fn shadow(&self) -> bool {
        self.found.as_ref().is_some_and(|found| found.rule.rule().mode == Mode::Shadow)
    }

    fn kind(&self) -> StatusKind {
        if self.own.is_some() {
            return StatusKind::Counted;
        }
        match self.limits() {
            None | Some(Limits::None) => StatusKind::NoLimit,
            Some(Limits::Lyft(limit)) if limit.rate.is_none() => StatusKind::Unlimited,
            _ if self.found.as_ref().is_some_and(|found| found.rule.rule().quota_mode) => StatusKind::Quota,
            _ => StatusKind::Counted,
        }
    }

    fn bill<'a>(&'a self, values: &'a [&'a [u8]], cost: u64, check: &Check<'_>) -> Bill<'a> {
        let mut bill = Bill::default();
        match (&self.own, &self.found) {
            (Some((rate, id)), _) => bill.add_lyft(None, *id, rate, values, cost, check),
            (None, Some(found)) => bill.add(found, values, cost, check),
            (None, None) => {}
        }
        bill
    }
}

/// Charges, and whose they are.
#[derive(Default)]
struct Bill<'a> {
    charges: SmallVec<[Charge<'a>; 3]>,
    /// The rule and the limit of each.
    owners: SmallVec<[(Option<u32>, u16); 3]>,
}

impl<'a> Bill<'a> {
    #[inline]
    fn add(&mut self, found: &'a Match<'_, '_>, values: &'a [&'a [u8]], cost: u64, check: &Check<'_>) {
        match &found.rule.rule().limits {
            Limits::None => {}
            Limits::Own(limits) => {
                for (at, limit) in limits.iter().enumerate() {
                    let cost = match &limit.unit {
                        Unit::Requests => Some(cost.max(1)),
                        Unit::Named(unit) => {
                            check.costs.iter().find(|(name, _)| **name == **unit).map(|(_, cost)| *cost)
                        }
                    };
                    if let Some(cost) = cost {
                        let id = found.rule.limit_id(at);
                        self.push(Some(found.number), at as u16, id, &limit.limit, values, cost, check.lease);
                    }
                }
            }
            Limits::Lyft(limit) => {
                if let Some(rate) = &limit.rate {
                    self.add_lyft(Some(found.number), found.rule.limit_id(0), rate, values, cost, check);
                }
            }
        }
    }

    /// A cost of nothing asks whether the limit is exceeded.
    fn add_lyft(
        &mut self,
        rule: Option<u32>,
        id: u64,
        rate: &'a LyftRate,
        values: &'a [&'a [u8]],
        cost: u64,
        check: &Check<'_>,
    ) {
        let limit = if cost == 0 { &rate.exceeded } else { &rate.limit };
        self.push(rule, 0, id, limit, values, cost.max(1), check.lease);
    }

    #[inline]
    #[allow(clippy::too_many_arguments, reason = "one place that puts a charge and its owner together")]
    fn push(
        &mut self,
        rule: Option<u32>,
        at: u16,
        id: u64,
        limit: &'a Limit,
        values: &'a [&'a [u8]],
        cost: u64,
        lease: u64,
    ) {
        self.charges.push(Charge::new(Key::new(id, values), limit).cost(cost).lease(lease));
        self.owners.push((rule, at));
    }

    #[inline]
    fn tolls(&self, outcomes: &[Outcome], shadow: bool) -> SmallVec<[Toll; 2]> {
        let toll = |((charge, (rule, limit)), outcome): ((&Charge<'_>, &(Option<u32>, u16)), &Outcome)| Toll {
            outcome: *outcome,
            cost: charge.cost,
            rule: *rule,
            limit: *limit,
            shadow,
        };
        self.charges.iter().zip(&self.owners).zip(outcomes).map(toll).collect()
    }
}

impl<S: fmt::Debug, C: fmt::Debug> fmt::Debug for Tollgate<S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tollgate").field("engine", &self.engine).finish_non_exhaustive()
    }
}
