//! From a check to groups of charges, and from their outcomes to an answer.
//!
//! A plan is all that a store has to be asked for one check: groups of charges that pass together or not at all.
//! Whoever executes it asks for the groups in order and hands each outcome back.

use smallvec::SmallVec;
use tollgate_core::{Algorithm, Intent, Key, Limit, Outcome, Timestamp};
use tollgate_rules::{
    Attribute, Check, Descriptor, Limits, LyftRate, Match, Mode, OnLimit, Part, RuleLimit, RuleSet, StoreFailure,
    Subject, Unit, Value, Values,
};

use crate::charge::Charge;
use crate::verdict::{DescriptorStatus, StatusKind, Toll};

/// The rules that a check meets, and what they count it by.
#[derive(Default)]
pub(crate) struct Claims<'r, 'q> {
    claims: SmallVec<[Claim<'r, 'q>; 2]>,
    by_descriptors: bool,
}

/// One rule that a check meets; or, by descriptors, what one descriptor meets.
struct Claim<'r, 'q> {
    found: Option<Match<'r, 'q>>,
    /// A limit that came with the descriptor, the number it is counted under, and what it is counted by.
    own: Option<Box<(LyftRate, u64, Values<'q>)>>,
    kind: StatusKind,
    cost: u64,
    intent: Option<Intent>,
}

impl<'r, 'q> Claims<'r, 'q> {
    #[inline]
    pub(crate) fn of(rules: &'r RuleSet, check: &Check<'q>) -> Self {
        match check.subject {
            Subject::Attributes(attributes) => Self::by_attributes(rules, check, attributes),
            Subject::Descriptors(descriptors) => Self::by_descriptors(rules, check, descriptors),
        }
    }

    #[inline]
    fn by_attributes(rules: &'r RuleSet, check: &Check<'q>, attributes: &[Attribute<'q>]) -> Self {
        let mut claims = SmallVec::new();
        rules.collect(check.domain, attributes, |found| {
            claims.push(Claim {
                found: Some(found),
                own: None,
                kind: StatusKind::Counted,
                cost: check.cost,
                intent: None,
            });
        });
        Self { claims, by_descriptors: false }
    }

    #[inline]
    fn by_descriptors(rules: &'r RuleSet, check: &Check<'q>, descriptors: &[Descriptor<'q>]) -> Self {
        let mut claims: SmallVec<[Claim<'r, 'q>; 2]> = SmallVec::new();
        for descriptor in descriptors {
            claims.push(Claim::of(rules, check, descriptor));
        }
        // A limit that another one of the same check replaces does not count. Those that replace may be replaced
        // themselves.
        let replaces = |claim: &Claim<'_, '_>| claim.lyft().is_some_and(|limit| !limit.replaces.is_empty());
        if claims.iter().any(replaces) {
            let names: SmallVec<[&str; 4]> = claims
                .iter()
                .filter_map(|claim| claim.lyft())
                .flat_map(|limit| limit.replaces.iter().map(|name| &**name))
                .collect();
            for claim in &mut claims {
                let name = claim.lyft().and_then(|limit| limit.name.as_deref());
                if name.is_some_and(|name| names.contains(&name)) {
                    claim.kind = StatusKind::Replaced;
                }
            }
        }
        Self { claims, by_descriptors: true }
    }

    /// What all of them are counted by, one after the other: the memory that the charges of a plan refer to.
    #[inline]
    pub(crate) fn values(&self) -> SmallVec<[&[u8]; 4]> {
        let mut all = SmallVec::new();
        for claim in &self.claims {
            all.extend(claim.values().iter().map(Value::bytes));
        }
        all
    }

    /// Each claim with its part of what [`Self::values`] returned.
    #[inline]
    fn claims_with_values<'a>(
        &'a self,
        values: &'a [&'a [u8]],
    ) -> impl Iterator<Item = (&'a Claim<'r, 'q>, &'a [&'a [u8]])> {
        let mut rest = values;
        self.claims.iter().map(move |claim| {
            let (own, others) = rest.split_at(claim.values().len().min(rest.len()));
            rest = others;
            (claim, own)
        })
    }

    /// What a store has to be asked. `values` is what [`Self::values`] returned.
    #[inline]
    pub(crate) fn plan<'a>(
        &'a self,
        values: &'a [&'a [u8]],
        check: &Check<'_>,
        intent: Intent,
        now: Timestamp,
    ) -> Plan<'a> {
        let mut plan = Plan::default();
        for (claim, own) in self.claims_with_values(values) {
            let is_shadow = claim.is_shadow();
            if self.by_descriptors {
                plan.add(claim, own, check);
                let intent = match claim.intent.unwrap_or(intent) {
                    Intent::Refund { charged_at } if charged_at == Timestamp::MAX => Intent::Refund { charged_at: now },
                    intent => intent,
                };
                plan.close(intent, false, is_shadow);
            } else if !is_shadow {
                plan.add(claim, own, check);
            }
        }
        if !self.by_descriptors {
            plan.close(intent, false, false);
            self.add_shadows(&mut plan, values, check, intent);
        }
        plan
    }

    /// Shadows come after what binds, each on its own.
    #[inline]
    fn add_shadows<'a>(&'a self, plan: &mut Plan<'a>, values: &'a [&'a [u8]], check: &Check<'_>, intent: Intent) {
        for (claim, own) in self.claims_with_values(values) {
            if claim.is_shadow() {
                plan.add(claim, own, check);
                plan.close(intent, true, true);
            }
        }
    }

    /// Everything in one group, for those who reserve or wait: shadows take no part, nor what is only asked or given
    /// back.
    pub(crate) fn plan_as_one<'a>(&'a self, values: &'a [&'a [u8]], check: &Check<'_>) -> Plan<'a> {
        let mut plan = Plan::default();
        for (claim, own) in self.claims_with_values(values) {
            let costs_nothing = self.by_descriptors && claim.cost == 0 && check.costs.is_empty();
            let takes_part = claim.intent.is_none() && claim.kind != StatusKind::Replaced && !costs_nothing;
            if takes_part && !claim.is_shadow() {
                plan.add(claim, own, check);
            }
        }
        plan.close(Intent::Spend, false, false);
        plan
    }

    /// The slots of concurrency limits that a check holds, those of shadows included.
    pub(crate) fn plan_of_slots<'a>(&'a self, values: &'a [&'a [u8]], check: &Check<'_>) -> Plan<'a> {
        let mut all = Plan::default();
        for (claim, own) in self.claims_with_values(values) {
            all.add(claim, own, check);
        }
        let mut plan = Plan::default();
        for (charge, owner) in all.charges.iter().zip(&all.owners) {
            if matches!(charge.limit.algorithm(), Algorithm::Concurrency(_)) {
                plan.charges.push(*charge);
                plan.owners.push(*owner);
            }
        }
        plan.close(Intent::Spend, false, false);
        plan
    }

    /// What became of each descriptor, and whether the check is allowed.
    #[inline]
    pub(crate) fn statuses(
        &self,
        descriptors: &[Descriptor<'_>],
        plan: &Plan<'_>,
        tolls: &[Toll],
    ) -> (bool, SmallVec<[DescriptorStatus; 2]>) {
        let mut first = 0;
        let mut statuses: SmallVec<[DescriptorStatus; 2]> = SmallVec::new();
        for ((claim, group), descriptor) in self.claims.iter().zip(&plan.groups).zip(descriptors) {
            let own = tolls.get(first as usize..group.end as usize).unwrap_or(&[]);
            let over_limit = !group.shadow && own.iter().any(|toll| toll.outcome.denied());
            let (kind, limit) = (claim.kind, descriptor.limit.filter(|_| claim.own.is_some()));
            statuses.push(DescriptorStatus { over_limit, kind, tolls: (first, group.end), limit });
            first = group.end;
        }
        let denies = |status: &DescriptorStatus| status.over_limit && status.kind != StatusKind::Quota;
        let mut quotas = statuses.iter().filter(|status| status.kind == StatusKind::Quota).peekable();
        let quota_spent = quotas.peek().is_some() && quotas.all(|status| status.over_limit);
        (!quota_spent && !statuses.iter().any(denies), statuses)
    }
}

impl<'r, 'q> Claim<'r, 'q> {
    #[inline]
    fn of(rules: &'r RuleSet, check: &Check<'q>, descriptor: &Descriptor<'q>) -> Self {
        let cost = descriptor.cost.unwrap_or(check.cost);
        // The time is filled in when it is known.
        let refund = descriptor.refund.then_some(Intent::Refund { charged_at: Timestamp::MAX });
        // Own limits are charged nothing for a cost of 0, and stand in nobody's way. Those of Lyft's dialect are asked.
        let peek = (cost == 0).then_some(Intent::Peek);
        if let Some(own) = own_limit(rules, check.domain, descriptor) {
            let intent = refund.or(peek);
            return Self { found: None, own: Some(own), kind: StatusKind::Counted, cost, intent };
        }
        let found = rules.find(check.domain, descriptor.entries);
        let kind = match found.as_ref().map(|found| found.rule.rule()) {
            None => StatusKind::NoLimit,
            Some(rule) => match &rule.limits {
                Limits::None => StatusKind::NoLimit,
                Limits::Lyft(limit) if limit.rate.is_none() => StatusKind::Unlimited,
                _ if rule.quota_mode => StatusKind::Quota,
                _ => StatusKind::Counted,
            },
        };
        let is_lyft = found.as_ref().is_some_and(|found| matches!(found.rule.rule().limits, Limits::Lyft(_)));
        let intent = refund.or(peek.filter(|_| is_lyft));
        Self { found, own: None, kind, cost, intent }
    }

    #[inline]
    fn lyft(&self) -> Option<&'r tollgate_rules::LyftLimit> {
        match &self.found.as_ref()?.rule.rule().limits {
            Limits::Lyft(limit) => Some(limit),
            _ => None,
        }
    }

    #[inline]
    fn values(&self) -> &[Value<'q>] {
        match (&self.found, &self.own) {
            (Some(found), _) => &found.values,
            (None, Some(own)) => &own.2,
            (None, None) => &[],
        }
    }

    /// Whether it only asks a limit of Lyft's dialect, because it costs nothing.
    #[inline]
    fn is_peek(&self) -> bool {
        self.intent == Some(Intent::Peek)
    }

    #[inline]
    fn is_shadow(&self) -> bool {
        self.found.as_ref().is_some_and(|found| found.rule.rule().mode == Mode::Shadow)
    }
}

/// The limit that a descriptor brings along. It counts only where there are rules at all.
#[inline]
fn own_limit<'q>(
    rules: &RuleSet,
    domain: &str,
    descriptor: &Descriptor<'q>,
) -> Option<Box<(LyftRate, u64, Values<'q>)>> {
    let limit = descriptor.limit?;
    if !rules.has_domain(domain) {
        return None;
    }
    let rate = LyftRate::new(limit.requests_per_unit, limit.unit).ok()?;
    let (id, values) = rules.override_key(domain, descriptor.entries, limit.unit);
    Some(Box::new((rate, id, values)))
}

/// Groups of charges, in the order in which they are asked for.
#[derive(Default)]
pub(crate) struct Plan<'a> {
    pub(crate) charges: SmallVec<[Charge<'a>; 3]>,
    owners: SmallVec<[Owner; 3]>,
    pub(crate) groups: SmallVec<[Group; 2]>,
    /// The policy of the rule whose charges are being added.
    on_failure: StoreFailure,
}

/// Whose a charge is.
#[derive(Clone, Copy)]
struct Owner {
    rule: Option<u32>,
    limit: u16,
    /// Put to [`LyftRate::exceeded`], since it costs nothing.
    is_peek: bool,
}

/// Charges that pass together or not at all.
#[derive(Clone, Copy)]
pub(crate) struct Group {
    /// One after its last charge.
    pub(crate) end: u32,
    intent: Intent,
    /// Charged only if the first group was: what is denied never happens.
    after_first: bool,
    shadow: bool,
}

impl Group {
    /// Whether it is asked for only once the first is answered.
    pub(crate) fn is_after_first(&self) -> bool {
        self.after_first
    }

    /// What is asked for, given whether the first group passed.
    #[inline]
    pub(crate) fn intent(&self, first_passed: bool) -> Intent {
        if self.after_first && !first_passed && self.intent == Intent::Spend { Intent::Peek } else { self.intent }
    }
}

impl<'a> Plan<'a> {
    #[inline]
    fn close(&mut self, intent: Intent, after_first: bool, shadow: bool) {
        let end = self.charges.len() as u32;
        self.groups.push(Group { end, intent, after_first, shadow });
    }

    #[inline]
    fn add(&mut self, claim: &'a Claim<'_, '_>, values: &'a [&'a [u8]], check: &Check<'_>) {
        self.on_failure = claim.found.as_ref().map(|found| found.rule.rule().on_store_failure).unwrap_or_default();
        if let Some(own) = claim.own.as_ref().filter(|_| check.part.includes(OnLimit::Reject, false)) {
            self.add_lyft(None, Key::new(own.1, values), &own.0, claim, check.lease);
        }
        let Some(found) = claim.found.as_ref().filter(|_| claim.kind != StatusKind::Replaced) else { return };
        match &found.rule.rule().limits {
            Limits::None => {}
            Limits::Lyft(limit) => {
                if let Some(rate) = limit.rate.as_ref().filter(|_| check.part.includes(OnLimit::Reject, false)) {
                    let key = Key::new(found.rule.limit_id(0), values);
                    self.add_lyft(Some(found.number), key, rate, claim, check.lease);
                }
            }
            Limits::Own(limits) => {
                let includes = |limit: &RuleLimit| {
                    let is_on_slots = || matches!(limit.limit.algorithm(), Algorithm::Concurrency(_));
                    check.part == Part::All || check.part.includes(limit.on_limit, is_on_slots())
                };
                for (at, limit) in (0u16..).zip(limits).filter(|(_, limit)| includes(limit)) {
                    let cost = match &limit.unit {
                        Unit::Requests => Some(claim.cost),
                        Unit::Named(unit) => {
                            check.costs.iter().find(|(name, _)| **name == **unit).map(|(_, cost)| *cost)
                        }
                    };
                    if let Some(cost) = cost {
                        let key = Key::new(found.rule.limit_id(usize::from(at)), values);
                        let owner = Owner { rule: Some(found.number), limit: at, is_peek: false };
                        self.push(owner, key, &limit.limit, cost, check.lease);
                    }
                }
            }
        }
    }

    /// A descriptor that costs nothing asks whether the limit is exceeded.
    #[inline]
    fn add_lyft(&mut self, rule: Option<u32>, key: Key<'a>, rate: &'a LyftRate, claim: &Claim<'_, '_>, lease: u64) {
        let is_peek = claim.is_peek();
        let (limit, cost) = if is_peek { (&rate.exceeded, 1) } else { (&rate.limit, claim.cost) };
        self.push(Owner { rule, limit: 0, is_peek }, key, limit, cost, lease);
    }

    #[inline]
    fn push(&mut self, owner: Owner, key: Key<'a>, limit: &'a Limit, cost: u64, lease: u64) {
        self.charges.push(Charge::new(key, limit).cost(cost).lease(lease).on_failure(self.on_failure));
        self.owners.push(owner);
    }

    /// What the limit of a charge says is to happen.
    pub(crate) fn on_limit(&self, rules: &RuleSet, at: usize) -> OnLimit {
        let said = |owner: &Owner| match &rules.rules().get(owner.rule? as usize)?.rule().limits {
            Limits::Own(limits) => limits.get(usize::from(owner.limit)).map(|limit| limit.on_limit),
            _ => None,
        };
        self.owners.get(at).and_then(said).unwrap_or_default()
    }

    /// The charges of the group numbered `number`.
    #[inline]
    pub(crate) fn charges_of(&self, number: usize) -> &[Charge<'a>] {
        let start = if number == 0 { 0 } else { self.groups[number - 1].end as usize };
        &self.charges[start..self.groups[number].end as usize]
    }

    /// Adds what came of a group.
    #[inline]
    pub(crate) fn tell(&self, number: usize, outcomes: &[Outcome], tolls: &mut SmallVec<[Toll; 2]>) {
        let shadow = self.groups[number].shadow;
        for outcome in outcomes {
            let at = tolls.len();
            let Owner { rule, limit, is_peek } = self.owners[at];
            let mut toll = Toll { outcome: *outcome, cost: self.charges[at].cost, rule, limit, shadow };
            if is_peek {
                // What is told is the limit as it was written, without the room for one more.
                toll.cost = 0;
                toll.outcome.limit = toll.outcome.limit.saturating_sub(1);
                toll.outcome.remaining = toll.outcome.remaining.saturating_sub(1);
            }
            tolls.push(toll);
        }
    }
}
