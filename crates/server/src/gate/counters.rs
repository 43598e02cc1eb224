//! What each rule did, counted. Labels are names from rule files, never what requests say, unless a rule asks for that.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tollgate::rules::{Limits, Subject};
use tollgate::{Check, Descriptor, RuleSet, StatusKind, Toll, Verdict};

use super::text::Exposition;
use super::upstream::{self, Hits, Series};
use super::values::{Given, Level, Room, Values};

/// What one rule did. In this order, so that what is needed most is on one cache line wherever it lies.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct RuleCounters {
    further: Option<Box<Further>>,
    pub(crate) allowed: AtomicU64,
    pub(crate) denied: AtomicU64,
    pub(crate) delayed: AtomicU64,
    pub(crate) shadow_denied: AtomicU64,
    pub(crate) near_limit: AtomicU64,
}

/// What only some rules keep: apart, so that the others pay nothing for it.
#[derive(Debug)]
struct Further {
    /// For limits of Lyft's dialect, if somebody wants to know.
    hits: Option<Hits>,
    /// The same and all else for each of the values that requests have.
    values: Option<Values>,
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
    /// For values, if rules ask for them. As well.
    room: Arc<Room>,
}

/// When this many rules have been met, those that have gone are forgotten.
const MOST_KEPT: usize = 100_000;

/// Domain and rule.
type Name = (Arc<str>, Arc<str>);

impl Observed {
    /// Counters for `rules`: rules that were there before go on with theirs.
    pub(crate) fn new(rules: Arc<RuleSet>, hits: bool, before: Option<&Self>) -> Self {
        let mut by_name: HashMap<Name, Arc<RuleCounters>> = HashMap::new();
        let room = before.map(|before| Arc::clone(&before.room)).unwrap_or_default();
        let counters = rules
            .rules()
            .iter()
            .map(|compiled| {
                let name = (Arc::clone(&compiled.rule().domain), Arc::clone(&compiled.rule().name));
                let counts_hits = hits && matches!(compiled.rule().limits, Limits::Lyft(_));
                let levels = Level::all(compiled.rule());
                // One that is written in another dialect now, or names other values, counts otherwise and begins anew.
                let known = before.and_then(|before| before.by_name.get(&name));
                let known = known.filter(|known| known.hits().is_some() == counts_hits);
                let known = known.filter(|known| known.values().map(Values::levels) == levels.as_deref());
                let values = || levels.map(|levels| Values::new(levels, counts_hits, Arc::clone(&room)));
                let new = || Arc::new(RuleCounters::new(counts_hits, values()));
                Arc::clone(by_name.entry(name).or_insert_with(|| known.cloned().unwrap_or_else(new)))
            })
            .collect();
        let overrides = before.map(|before| Arc::clone(&before.overrides)).unwrap_or_default();
        // Those of rules that have gone are kept for when they come back, as after a switch; not for ever more of them.
        let before = before.filter(|before| before.by_name.len() < MOST_KEPT);
        for (name, counters) in before.iter().flat_map(|before| &before.by_name) {
            by_name.entry((Arc::clone(&name.0), Arc::clone(&name.1))).or_insert_with(|| {
                counters.values().into_iter().for_each(Values::forget);
                Arc::clone(counters)
            });
        }
        Self { rules, counters, by_name, hits, overrides, room }
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
                    let given = Given::Entries(descriptor.entries);
                    match status.kind {
                        _ if descriptor.refund => {}
                        StatusKind::Unlimited => self.count_unlimited(check, descriptor),
                        _ => self.count_rule(given, verdict, verdict.tolls_of(status), near),
                    }
                }
            }
            Subject::Descriptors(_) => self.count_rules(Given::Entries(&[]), verdict, near),
            Subject::Attributes(attributes) => self.count_rules(Given::Attributes(attributes), verdict, near),
        }
    }

    #[inline]
    fn count_rules(&self, given: Given<'_>, verdict: &Verdict<'_>, near: u32) {
        // The limits of one rule follow one another.
        let rules = verdict.tolls.chunk_by(|a, b| a.rule == b.rule);
        rules.for_each(|tolls| self.count_rule(given, verdict, tolls, near));
    }

    #[inline]
    fn count_rule(&self, given: Given<'_>, verdict: &Verdict<'_>, tolls: &[Toll], near: u32) {
        let Some(first) = tolls.first().filter(|_| tolls.iter().any(|toll| toll.cost > 0)) else { return };
        if first.rule.is_none() {
            let overrides = if first.outcome.allowed { &self.overrides.allowed } else { &self.overrides.denied };
            overrides.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let Some(counters) = self.of(verdict, first) else { return };
        counters.count(tolls, near);
        if let Some(values) = counters.values() {
            values.with(given, |counters| counters.count(tolls, near));
        }
    }

    /// A rule without a limit is asked nothing, so it has to be found again.
    #[cold]
    fn count_unlimited(&self, check: &Check<'_>, descriptor: &Descriptor<'_>) {
        let found = self.rules.find(check.domain, descriptor.entries);
        let Some(counters) = found.and_then(|found| self.counters.get(found.number as usize)) else { return };
        let hits = descriptor.cost.unwrap_or(check.cost);
        counters.count_unlimited(hits);
        if let Some(values) = counters.values() {
            values.with(Given::Entries(descriptor.entries), |counters| counters.count_unlimited(hits));
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
        let rules = self.rules.rules().iter().map(tollgate::rules::CompiledRule::rule);
        let mut sorted: Vec<_> = rules.zip(&self.counters).collect();
        sorted.sort_by_key(|(rule, _)| (&*rule.domain, &*rule.name));
        sorted.dedup_by_key(|(rule, _)| (&*rule.domain, &*rule.name));
        out.counter(
            "tollgate_rule_checks_total",
            "What each rule said. near_limit and delayed are allowed as well; shadow_denied is what a shadow would deny.",
        );
        for (rule, counters) in &sorted {
            for (outcome, pick) in OUTCOMES {
                let labels = [("domain", &*rule.domain), ("rule", &*rule.name), ("outcome", outcome)];
                out.sample(&labels, pick(counters).load(Ordering::Relaxed));
            }
        }
        for (rule, values) in sorted.iter().filter_map(|(rule, counters)| Some((rule, counters.values()?))) {
            out.counter(
                "tollgate_value_checks_total",
                "What rules said that ask for metrics by values, for each; `other` is all that found no room.",
            );
            values.each(|text, _, counters| {
                for (outcome, pick) in OUTCOMES {
                    let rule = [("domain", &*rule.domain), ("rule", &*rule.name)];
                    let labels = [rule[0], rule[1], ("values", text), ("outcome", outcome)];
                    out.sample(&labels, pick(counters).load(Ordering::Relaxed));
                }
            });
        }
        out.counter("tollgate_override_checks_total", "What limits said that came with the question.");
        out.sample(&[("outcome", "allowed")], self.overrides.allowed.load(Ordering::Relaxed));
        out.sample(&[("outcome", "denied")], self.overrides.denied.load(Ordering::Relaxed));
        if self.hits {
            let mut series = Series::default();
            for (rule, counters) in &sorted {
                match counters.values() {
                    Some(values) => values.each(|_, levels, counters| {
                        let labels =
                            levels.map_or_else(|| upstream::labels(rule), |levels| upstream::named(rule, levels));
                        counters.hits().into_iter().for_each(|hits| series.add(labels.clone(), hits));
                    }),
                    None => counters.hits().into_iter().for_each(|hits| series.add(upstream::labels(rule), hits)),
                }
            }
            series.expose(out);
        }
    }
}

impl RuleCounters {
    pub(super) fn new(hits: bool, values: Option<Values>) -> Self {
        let hits = hits.then(Hits::default);
        let is_plain = hits.is_none() && values.is_none();
        Self { further: (!is_plain).then(|| Box::new(Further { hits, values })), ..Self::default() }
    }

    #[inline]
    fn hits(&self) -> Option<&Hits> {
        self.further.as_ref()?.hits.as_ref()
    }

    #[inline]
    fn values(&self) -> Option<&Values> {
        self.further.as_ref()?.values.as_ref()
    }

    fn count_unlimited(&self, hits: u64) {
        self.allowed.fetch_add(1, Ordering::Relaxed);
        if let Some(counted) = self.hits() {
            counted.count_unlimited(hits);
        }
    }

    #[inline]
    fn count(&self, tolls: &[Toll], near: u32) {
        if let (Some(hits), Some(first)) = (self.hits(), tolls.first()) {
            hits.count(first, near);
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn observed(descriptors: &str, before: Option<&Observed>) -> Observed {
        let text = format!("domain: d\ndescriptors: [{descriptors}]");
        let rules = RuleSet::from_yaml(&text).unwrap_or_else(|wrong| panic!("{}", wrong.render(false)));
        Observed::new(Arc::new(rules), false, before)
    }

    /// What is shown of values, beside those that are zero.
    fn shown(observed: &Observed) -> Vec<String> {
        let mut out = Exposition::default();
        observed.expose(&mut out);
        let text = out.finish();
        let lines =
            text.lines().filter(|line| line.starts_with("tollgate_value_checks_total") && !line.ends_with(" 0"));
        lines.map(str::to_owned).collect()
    }

    #[test]
    fn values_go_on_with_rules_that_stay_and_leave_with_those_that_go() {
        const USERS: &str = "{key: user, value_to_metric: true, rate_limit: {unit: day, requests_per_unit: 9}}";
        const NETS: &str = "{key: net, rate_limit: {unit: day, requests_per_unit: 9}}";
        let first = observed(USERS, None);
        for values in first.counters.iter().filter_map(|counters| counters.values()) {
            values.with(Given::Entries(&[("user", "42")]), |counters| counters.count_unlimited(1));
        }
        let line = r#"tollgate_value_checks_total{domain="d",rule="d.user",values="user_42",outcome="allowed"} 1"#;
        assert_eq!(shown(&first), [line]);
        let same = observed(&format!("{NETS}, {}", USERS.replace('9', "8")), Some(&first));
        assert_eq!(shown(&same), [line]);
        // Asked for no longer, and asked for again.
        let silent = observed(&USERS.replace("true", "false"), Some(&same));
        assert!(shown(&silent).is_empty());
        assert!(shown(&observed(USERS, Some(&silent))).is_empty());
        // Away, and back again: what it had named makes room for others meanwhile.
        let gone = observed(NETS, Some(&same));
        assert!(shown(&observed(USERS, Some(&gone))).is_empty());
    }
}
