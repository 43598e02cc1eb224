//! What a request waits for, and for how long that is likely to be.

use std::time::Duration;

use tollgate::rules::{Limits, Mode, OnLimit, Rule, RuleLimit};
use tollgate::{Attribute, Check, Part, RuleSet, Verdict};

use super::form::LineId;
use crate::gateway::line::{Outlook, pace};

/// A request that is to be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Deferred {
    /// Whom it waits with.
    pub(super) line: LineId,
    outlook: Outlook,
}

impl Deferred {
    /// By the limit that says so. `None` for what is never allowed, however long it waits.
    pub(crate) fn by(verdict: &Verdict<'_>, domain: &str, attributes: &[Attribute<'_>]) -> Option<Self> {
        let (toll, outlook) = (verdict.acting()?, Outlook::of(verdict)?);
        let mut line = None;
        verdict.rules().collect(domain, attributes, |found| {
            if Some(found.number) == toll.rule {
                let values = found.values.iter().map(tollgate::rules::Value::bytes);
                line = Some(line_of(found.rule.limit_id(usize::from(toll.limit)), values));
            }
        });
        Some(Self { line: line?, outlook })
    }

    /// How long the one at this place of the line, counted from one, is likely to wait.
    pub(super) fn wait_at(&self, position: usize) -> Duration {
        self.outlook.at(position)
    }

    /// The same in whole seconds, for headers.
    pub(super) fn seconds_at(&self, position: usize) -> u64 {
        self.wait_at(position).as_millis().div_ceil(1_000).try_into().unwrap_or(u64::MAX)
    }
}

/// The line that a request has to wait in because others do, if there is one.
pub(super) fn behind(
    rules: &RuleSet,
    check: &Check<'_>,
    attributes: &[Attribute<'_>],
    has_waiters: impl Fn(&LineId) -> bool,
) -> Option<Deferred> {
    let mut deferred = None;
    each_that_keeps(rules, check, attributes, |line, limit| {
        if deferred.is_none() && has_waiters(&line) {
            let pace = pace(&limit.limit, check.cost);
            deferred = Some(Deferred { line, outlook: Outlook { wait: pace, pace, queued: 0 } });
        }
    });
    deferred
}

/// The limits that a request is asked about when it is sent: those that keep requests; or all, if none keeps it any more
/// since the rules have changed, so that what was kept does not come all at once.
pub(in crate::gateway) fn part_of(rules: &RuleSet, check: &Check<'_>, attributes: &[Attribute<'_>]) -> Part {
    let mut part = Part::All;
    each_that_keeps(rules, check, attributes, |_, _| part = Part::Later);
    part
}

/// Hands over the limits that keep a request which is over them, with their lines.
fn each_that_keeps(
    rules: &RuleSet,
    check: &Check<'_>,
    attributes: &[Attribute<'_>],
    mut apply: impl FnMut(LineId, &RuleLimit),
) {
    rules.collect(check.domain, attributes, |found| {
        let rule = found.rule.rule();
        let Limits::Own(limits) = &rule.limits else { return };
        if rule.mode != Mode::Enforce {
            return;
        }
        let is_kept = |(_, limit): &(usize, &RuleLimit)| limit.on_limit == OnLimit::Enqueue;
        for (index, limit) in limits.iter().enumerate().filter(is_kept) {
            let values = found.values.iter().map(tollgate::rules::Value::bytes);
            apply(line_of(found.rule.limit_id(index), values), limit);
        }
    });
}

/// One of the rules whose requests are kept, if there is any.
pub(super) fn a_rule_that_keeps(rules: &RuleSet) -> Option<&Rule> {
    let is_kept = |limit: &RuleLimit| limit.on_limit == OnLimit::Enqueue;
    let mut rules = rules.rules().iter().map(tollgate::rules::CompiledRule::rule);
    rules.find(|rule| matches!(&rule.limits, Limits::Own(limits) if limits.iter().any(is_kept)))
}

/// Who is counted together waits together. The same in every gateway.
fn line_of<'v>(limit: u64, values: impl Iterator<Item = &'v [u8]>) -> LineId {
    let mut bytes = limit.to_le_bytes().to_vec();
    for value in values {
        bytes.extend_from_slice(&(value.len() as u64).to_le_bytes());
        bytes.extend_from_slice(value);
    }
    let digest = ring::digest::digest(&ring::digest::SHA256, &bytes);
    let half = digest.as_ref().first_chunk();
    half.copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use tollgate::Micros;

    use super::*;

    const RULES: &str = "
domain: d
rules:
  - {name: all, limits: 100/s}
  - {name: orders, per: shop, limits: [5/s, {rate: 60/min, algorithm: token_bucket, on_limit: enqueue}]}
  - {name: networks, per: ip/64, limits: {rate: 1/s, on_limit: enqueue}}
  - {name: tried, per: user, limits: {rate: 1/s, on_limit: enqueue}, mode: shadow}
";

    fn line(attributes: &[Attribute<'_>], cost: u64) -> Option<Deferred> {
        let rules = RuleSet::from_yaml(RULES).unwrap();
        behind(&rules, &Check::attributes("d", attributes).cost(cost), attributes, |_| true)
    }

    #[test]
    fn who_is_counted_together_waits_together() {
        let orders = line(&[("shop", "a")], 3).unwrap();
        assert_eq!(orders.outlook.pace, Micros::from_micros(3_000_000));
        assert_eq!(line(&[("shop", "a")], 3), Some(orders));
        assert_ne!(line(&[("shop", "b")], 3).unwrap().line, orders.line);
        let network = |ip| line(&[("ip", ip)], 1).unwrap().line;
        assert_eq!(network("2001:db8::1"), network("2001:db8::2"));
        assert_ne!(network("2001:db8::1"), network("2001:db8:1::1"));
        assert_eq!(line(&[("other", "x")], 1), None, "a limit that rejects keeps nobody waiting");
        assert_eq!(line(&[("user", "x")], 1), None, "nor does one that is only tried");
        let part = |attributes: &[Attribute<'_>]| {
            part_of(&RuleSet::from_yaml(RULES).unwrap(), &Check::attributes("d", attributes), attributes)
        };
        assert_eq!((part(&[("shop", "a")]), part(&[("user", "x")])), (Part::Later, Part::All));
        let nobody = RuleSet::from_yaml(RULES).unwrap();
        let attributes = [("shop", "a")];
        assert_eq!(behind(&nobody, &Check::attributes("d", &attributes), &attributes, |_| false), None);
    }

    #[test]
    fn the_wait_grows_with_the_line() {
        let (wait, pace) = (Micros::from_micros(300_000), Micros::from_micros(2_000_000));
        let outlook = Outlook { wait, pace, queued: 0 };
        let deferred = Deferred { line: [0; 16], outlook };
        assert_eq!(deferred.wait_at(1), Duration::from_millis(300));
        assert_eq!(deferred.wait_at(4), Duration::from_millis(6_300));
        assert_eq!((deferred.seconds_at(1), deferred.seconds_at(4)), (1, 7));
        assert!(deferred.wait_at(usize::MAX) > Duration::from_secs(1));
    }
}
