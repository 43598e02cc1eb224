//! What envoyproxy/ratelimit counts of each of its limits, by its arithmetic and under its names.
//!
//! Hits, not requests: a request of cost 5 that is 2 over its limit is 2 hits over and up to 3 near. Labels are what
//! rules say. Values of requests are among them where a rule asks for it, as long as there is room; what finds none is
//! counted under the rule's pattern, so that clients cannot make series without end.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use tollgate::Toll;
use tollgate::rules::{Entry, KeyPattern, Pattern, Rule};

use super::text::Exposition;

/// The hits of one limit.
#[derive(Debug, Default)]
pub(crate) struct Hits {
    total: AtomicU64,
    over: AtomicU64,
    near: AtomicU64,
    within: AtomicU64,
    shadow: AtomicU64,
}

/// What a number of hits amounts to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Shares {
    over: u64,
    near: u64,
    within: u64,
}

impl Hits {
    /// Counts one question to the limit. `near` is the share of the limit, in thousandths, from which on hits are near
    /// it.
    pub(super) fn count(&self, toll: &Toll, near: u32) {
        let limit = toll.outcome.limit;
        let after = match toll.outcome.allowed {
            true => limit.saturating_sub(toll.outcome.remaining),
            false => limit.saturating_add(u64::from(toll.outcome.excess)),
        };
        let near = limit.saturating_mul(u64::from(near)) / 1_000;
        let shares = Shares::of(toll.cost, after, limit, near);
        self.total.fetch_add(toll.cost, Ordering::Relaxed);
        self.over.fetch_add(shares.over, Ordering::Relaxed);
        self.near.fetch_add(shares.near, Ordering::Relaxed);
        self.within.fetch_add(shares.within, Ordering::Relaxed);
        if toll.shadow && toll.outcome.denied() {
            self.shadow.fetch_add(toll.cost, Ordering::Relaxed);
        }
    }

    /// Counts hits of a rule that has no limit.
    pub(super) fn count_unlimited(&self, hits: u64) {
        self.total.fetch_add(hits, Ordering::Relaxed);
        self.within.fetch_add(hits, Ordering::Relaxed);
    }
}

impl Shares {
    /// `hits` that took a counter to `after`.
    fn of(hits: u64, after: u64, limit: u64, near: u64) -> Self {
        let before = after.saturating_sub(hits);
        if after <= limit {
            let above = if after <= near { 0 } else { hits.min(after - near) };
            return Self { within: hits, near: above, over: 0 };
        }
        if before >= limit {
            return Self { over: hits, ..Self::default() };
        }
        Self { over: after - limit, near: limit - near.max(before), within: 0 }
    }
}

type Pick = fn(&Hits) -> &AtomicU64;
const NAMES: [(&str, Pick); 5] = [
    ("total_hits", |hits| &hits.total),
    ("over_limit", |hits| &hits.over),
    ("near_limit", |hits| &hits.near),
    ("within_limit", |hits| &hits.within),
    ("shadow_mode", |hits| &hits.shadow),
];

/// How many levels of a rule are in its labels.
pub(super) const LEVELS: usize = 2;

/// The hits of all limits by their labels. Rules that have the same labels there are one series.
#[derive(Debug, Default)]
pub(super) struct Series(BTreeMap<Vec<String>, [u64; NAMES.len()]>);

impl Series {
    pub(super) fn add(&mut self, labels: Vec<String>, hits: &Hits) {
        let sums = self.0.entry(labels).or_default();
        for (sum, (_, pick)) in sums.iter_mut().zip(NAMES) {
            *sum += pick(hits).load(Ordering::Relaxed);
        }
    }

    pub(super) fn expose(&self, out: &mut Exposition) {
        for (at, (name, _)) in NAMES.iter().enumerate() {
            out.counter(&format!("ratelimit_service_rate_limit_{name}"), "As envoyproxy/ratelimit counts it.");
            for (labels, sums) in &self.0 {
                let named: Vec<(&str, &str)> =
                    ["domain", "key1", "key2"].into_iter().zip(labels.iter().map(String::as_str)).collect();
                out.sample(&named, sums.get(at).copied().unwrap_or_default());
            }
        }
    }
}

/// The domain and the first two levels, as they are called there.
pub(super) fn labels(rule: &Rule) -> Vec<String> {
    let levels: Vec<String> = rule.entries.iter().take(LEVELS).map(level).collect();
    named(rule, &levels)
}

/// The same with levels that have names already.
pub(super) fn named(rule: &Rule, levels: &[String]) -> Vec<String> {
    [rule.domain.to_string()].into_iter().chain(levels.iter().cloned()).collect()
}

/// A level as it is written.
pub(super) fn level(entry: &Entry) -> String {
    let key = match &entry.key {
        KeyPattern::Exact(key) => key.to_string(),
        KeyPattern::Glob(glob) => glob.to_string(),
    };
    match &entry.value {
        Pattern::Any => key,
        value => format!("{key}_{value}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of its own tests, as (hits, after, limit, near): over, near and within.
    #[test]
    fn hits_are_shared_out_as_there() {
        for ((hits, after, limit, near), (over, near_hits, within)) in [
            ((3, 19, 20, 16), (0, 3, 3)),
            ((3, 22, 20, 16), (2, 1, 0)),
            ((7, 22, 20, 16), (2, 4, 0)),
            ((2, 7, 8, 6), (0, 1, 2)),
            ((3, 30, 10, 8), (3, 0, 0)),
            ((1, 1, 10, 8), (0, 0, 1)),
            ((0, 10, 10, 8), (0, 0, 0)),
        ] {
            let expected = Shares { over, near: near_hits, within };
            assert_eq!(Shares::of(hits, after, limit, near), expected, "{hits} hits to {after} of {limit}");
        }
    }
}
