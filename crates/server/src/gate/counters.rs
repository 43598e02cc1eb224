//! What each rule did, counted. Labels are names from rule files, never what requests say.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tollgate::rules::{Limits, Subject};
use tollgate::{Check, Descriptor, RuleSet, StatusKind, Toll, Verdict};

use super::text::Exposition;
use super::upstream::{self, Hits};

/// What one rule did. In this order, so that what is needed most is on one cache line wherever it lies.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct RuleCounters {
    /// For limits of Lyft's dialect, if somebody wants to know.
    hits: Option<Box<Hits>>,
    pub(crate) allowed: AtomicU64,
    pub(crate) denied: AtomicU64,
    pub(crate) delayed: AtomicU64,
    pub(crate) shadow_denied: AtomicU64,
    pub(crate) near_limit: AtomicU64,
}

/// The counters of a rule set, by the number of the rule.
pub(crate) struct Observed {
    rules: Arc<RuleSet>,
    counters: Vec<Arc<RuleCounters>>,
    by_name: HashMap<Name, Arc<RuleCounters>>,
    /// Whether hits are counted, too.
    hits: bool,
    /// Limits that came with the question. Shared by all sets, like the counters of rules that stay.
    overrides: Arc<RuleCounters>,
}

/// When this many rules have been met, those that have gone are forgotten.
const MOST_KEPT: usize = 100_000;

/// Domain and rule.
type Name = (Arc<str>, Arc<str>);

impl Observed {
    /// Counters for `rules`: rules that were there before go on with theirs.
    pub(crate) fn new(rules: Arc<RuleSet>, hits: bool, before: Option<&Self>) -> Self {
        let mut by_name: HashMap<Name, Arc<RuleCounters>> = HashMap::new();
        let counters = rules
            .rules()
            .iter()
            .map(|compiled| {
                let name = (Arc::clone(&compiled.rule().domain), Arc::clone(&compiled.rule().name));
                let counts_hits = hits && matches!(compiled.rule().limits, Limits::Lyft(_));
                // One that is written in another dialect now counts otherwise, and begins anew.
                let known = before.and_then(|before| before.by_name.get(&name));
                let known = known.filter(|known| known.hits.is_some() == counts_hits);
                let new = || RuleCounters { hits: counts_hits.then(Box::default), ..RuleCounters::default() };
                let counters = by_name.entry(name).or_insert_with(|| known.cloned().unwrap_or_else(|| new().into()));
                Arc::clone(counters)
            })
            .collect();
        let overrides = before.map(|before| Arc::clone(&before.overrides)).unwrap_or_default();
        // Those of rules that have gone are kept for when they come back, as after a switch; not for ever more of them.
        let before = before.filter(|before| before.by_name.len() < MOST_KEPT);
        for (name, counters) in before.iter().flat_map(|before| &before.by_name) {
            by_name.entry((Arc::clone(&name.0), Arc::clone(&name.1))).or_insert_with(|| Arc::clone(counters));
        }
        Self { rules, counters, by_name, hits, overrides }
    }

    pub(crate) fn counts_hits(&self) -> bool {
        self.hits
    }

    /// Counts a verdict, once for each rule that it asked. What only looks, and what is given back, is not counted.
    #[inline]
    pub(crate) fn count(&self, check: &Check<'_>, verdict: &Verdict<'_>, near: u32) {
        match check.subject {
            Subject::Descriptors(asked) if !verdict.descriptors.is_empty() => {
                for (descriptor, status) in asked.iter().zip(&verdict.descriptors) {
                    match status.kind {
                        _ if descriptor.refund => {}
                        StatusKind::Unlimited => self.count_unlimited(check, descriptor),
                        _ => self.count_rule(verdict, verdict.tolls_of(status), near),
                    }
                }
            }
            // The limits of one rule follow one another.
            _ => {
                verdict.tolls.chunk_by(|a, b| a.rule == b.rule).for_each(|tolls| self.count_rule(verdict, tolls, near));
            }
        }
    }

    #[inline]
    fn count_rule(&self, verdict: &Verdict<'_>, tolls: &[Toll], near: u32) {
        let Some(first) = tolls.first().filter(|_| tolls.iter().any(|toll| toll.cost > 0)) else { return };
        if first.rule.is_none() {
            let overrides = if first.outcome.allowed { &self.overrides.allowed } else { &self.overrides.denied };
            overrides.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let Some(counters) = self.of(verdict, first) else { return };
        counters.count(tolls, near);
        if let Some(hits) = &counters.hits {
            hits.count(first, near);
        }
    }

    /// A rule without a limit is asked nothing, so it has to be found again.
    #[cold]
    fn count_unlimited(&self, check: &Check<'_>, descriptor: &Descriptor<'_>) {
        let found = self.rules.find(check.domain, descriptor.entries);
        let Some(counters) = found.and_then(|found| self.counters.get(found.number as usize)) else { return };
        counters.allowed.fetch_add(1, Ordering::Relaxed);
        if let Some(hits) = &counters.hits {
            hits.count_unlimited(descriptor.cost.unwrap_or(check.cost));
        }
    }

    /// The counters of the rule of a toll.
    #[inline]
    fn of(&self, verdict: &Verdict<'_>, toll: &Toll) -> Option<&RuleCounters> {
        if std::ptr::eq(verdict.rules(), &*self.rules) {
            return self.counters.get(toll.rule? as usize).map(|counters| &**counters);
        }
        // Decided while the rules were being replaced: numbers are those of another set, names are not.
        let rule = verdict.rule(toll)?;
        self.by_name.get(&(Arc::clone(&rule.domain), Arc::clone(&rule.name))).map(|counters| &**counters)
    }

    pub(crate) fn expose(&self, out: &mut Exposition) {
        type Pick = fn(&RuleCounters) -> &AtomicU64;
        const OUTCOMES: [(&str, Pick); 5] = [
            ("allowed", |counters| &counters.allowed),
            ("delayed", |counters| &counters.delayed),
            ("denied", |counters| &counters.denied),
            ("near_limit", |counters| &counters.near_limit),
            ("shadow_denied", |counters| &counters.shadow_denied),
        ];
        let rules = self.rules.rules().iter().map(|compiled| (&*compiled.rule().domain, &*compiled.rule().name));
        let mut sorted: Vec<_> = rules.zip(&self.counters).collect();
        sorted.sort_unstable_by_key(|(name, _)| *name);
        sorted.dedup_by_key(|(name, _)| *name);
        out.counter(
            "tollgate_rule_checks_total",
            "What each rule said. near_limit and delayed are allowed as well; shadow_denied is what a shadow would deny.",
        );
        for ((domain, rule), counters) in sorted {
            for (outcome, pick) in OUTCOMES {
                let labels = [("domain", domain), ("rule", rule), ("outcome", outcome)];
                out.sample(&labels, pick(counters).load(Ordering::Relaxed));
            }
        }
        out.counter("tollgate_override_checks_total", "What limits said that came with the question.");
        out.sample(&[("outcome", "allowed")], self.overrides.allowed.load(Ordering::Relaxed));
        out.sample(&[("outcome", "denied")], self.overrides.denied.load(Ordering::Relaxed));
        if self.hits {
            let rules = self.rules.rules().iter().map(tollgate::rules::CompiledRule::rule);
            let limits =
                rules.zip(&self.counters).filter_map(|(rule, counters)| Some((rule, counters.hits.as_deref()?)));
            upstream::expose(limits, out);
        }
    }
}

impl RuleCounters {
    #[inline]
    fn count(&self, tolls: &[Toll], near: u32) {
        let denied = tolls.iter().any(|toll| toll.outcome.denied());
        if denied {
            let shadow = tolls.iter().all(|toll| toll.shadow);
            (if shadow { &self.shadow_denied } else { &self.denied }).fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.allowed.fetch_add(1, Ordering::Relaxed);
        if tolls.iter().any(|toll| !toll.outcome.delay.is_zero()) {
            self.delayed.fetch_add(1, Ordering::Relaxed);
        }
        if tolls.iter().any(|toll| is_near(toll, near)) {
            self.near_limit.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Whether more than `near` thousandths of the limit are spent.
fn is_near(toll: &Toll, near: u32) -> bool {
    let limit = u128::from(toll.outcome.limit);
    let spent = limit.saturating_sub(u128::from(toll.outcome.remaining));
    spent * 1_000 > limit * u128::from(near)
}
