//! The answer to a check: whether, by which rule, and until when.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;
use tollgate_core::{Micros, Outcome, Timestamp};
use tollgate_rules::{Check, Limits, OnLimit, Override, Rule, RuleLimit, RuleSet, Subject};

/// What was decided about a check, and on what grounds.
pub struct Verdict<'r> {
    /// Whether it may go on.
    pub allowed: bool,
    /// When it was decided.
    pub at: Timestamp,
    /// What it was asked to pay: one for each limit that was asked, shadows included.
    pub tolls: SmallVec<[Toll; 2]>,
    /// For explicit descriptors, what became of each, in order.
    pub descriptors: SmallVec<[DescriptorStatus; 2]>,
    pub(crate) rules: Rules<'r>,
}

/// The rules by which it was decided: borrowed where nobody keeps the verdict, which costs nothing.
pub(crate) enum Rules<'r> {
    Borrowed(&'r Arc<RuleSet>),
    Shared(Arc<RuleSet>),
}

/// One limit that was asked.
#[derive(Clone, Copy, Debug)]
pub struct Toll {
    /// What it said.
    pub outcome: Outcome,
    /// The cost it was asked for.
    pub cost: u64,
    /// The number of its rule in the rule set; `None` for a limit that came with the question.
    pub rule: Option<u32>,
    /// Which of the rule's limits it is.
    pub limit: u16,
    /// Counted, and bound to deny nothing.
    pub shadow: bool,
}

/// What became of one descriptor.
#[derive(Clone, Copy, Debug)]
pub struct DescriptorStatus {
    /// Whether it is over its limit, in a way that counts.
    pub over_limit: bool,
    /// What there is to know about it.
    pub kind: StatusKind,
    /// Its tolls: the first, and the one after the last.
    pub tolls: (u32, u32),
    /// The limit that came with the question, if it counted.
    pub limit: Option<Override>,
}

/// How a descriptor was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusKind {
    /// No rule was found, or it allows everything uncounted.
    NoLimit,
    /// The rule says that there is no limit.
    Unlimited,
    /// The rule's limit gave way to another one's.
    Replaced,
    /// It was counted.
    Counted,
    /// It was counted, and denies only together with all others of this kind.
    Quota,
}

impl<'r> Verdict<'r> {
    /// `asked_at` is when it was decided if no limit was asked.
    #[inline]
    pub(crate) fn new(allowed: bool, asked_at: Timestamp, tolls: SmallVec<[Toll; 2]>, rules: Rules<'r>) -> Self {
        let at = tolls.iter().map(|toll| toll.outcome.at).max().unwrap_or(asked_at);
        Self { allowed, at, tolls, descriptors: SmallVec::new(), rules }
    }

    /// The answer of the one limit that was asked.
    #[inline(always)]
    pub(crate) fn simple(check: &Check<'_>, rule: u32, outcome: Outcome, rules: &'r Arc<RuleSet>) -> Self {
        let toll = Toll { outcome, cost: check.cost, rule: Some(rule), limit: 0, shadow: false };
        let mut verdict = Self {
            allowed: outcome.allowed,
            at: outcome.at,
            tolls: SmallVec::new(),
            descriptors: SmallVec::new(),
            rules: Rules::Borrowed(rules),
        };
        verdict.tolls.push(toll);
        if let Subject::Descriptors(_) = check.subject {
            let over_limit = outcome.denied();
            let status = DescriptorStatus { over_limit, kind: StatusKind::Counted, tolls: (0, 1), limit: None };
            verdict.descriptors.push(status);
        }
        verdict
    }

    /// The same, to be kept.
    pub fn into_owned(self) -> Verdict<'static> {
        let Self { allowed, at, tolls, descriptors, rules } = self;
        let rules = match rules {
            Rules::Borrowed(rules) => Arc::clone(rules),
            Rules::Shared(rules) => rules,
        };
        Verdict { allowed, at, tolls, descriptors, rules: Rules::Shared(rules) }
    }

    /// The opposite of [`Self::allowed`].
    pub fn denied(&self) -> bool {
        !self.allowed
    }

    /// The rules by which it was decided.
    pub fn rules(&self) -> &RuleSet {
        match &self.rules {
            Rules::Borrowed(rules) => rules,
            Rules::Shared(rules) => rules,
        }
    }

    /// The rule of a toll.
    pub fn rule(&self, toll: &Toll) -> Option<&Rule> {
        self.rules().rules().get(toll.rule? as usize).map(tollgate_rules::CompiledRule::rule)
    }

    /// The limit of a toll, if it is one of tollgate's own.
    pub fn limit(&self, toll: &Toll) -> Option<&RuleLimit> {
        match &self.rule(toll)?.limits {
            Limits::Own(limits) => limits.get(usize::from(toll.limit)),
            _ => None,
        }
    }

    /// The tolls of one descriptor.
    pub fn tolls_of(&self, status: &DescriptorStatus) -> &[Toll] {
        self.tolls.get(status.tolls.0 as usize..status.tolls.1 as usize).unwrap_or(&[])
    }

    /// The toll that decides: of a denial the one that takes longest to be admitted, of an admission the one with the
    /// least remaining, as a share of what it allows. Of quotas only the most lenient counts, since they deny only all
    /// together. `None` when nothing was asked.
    pub fn binding(&self) -> Option<&Toll> {
        self.greatest(|a, b| strictness(self.allowed, a, b))
    }

    /// Of a denial, the toll whose limit says what is to happen: the one that says the strictest
    /// ([`OnLimit::strictness`]) of those that deny, so that no limit is undone by another that is over for longer. Of
    /// equals it is the one that takes longest to be admitted.
    pub fn acting(&self) -> Option<&Toll> {
        if self.allowed {
            return None;
        }
        let severity = |toll: &Toll| self.limit(toll).map(|limit| limit.on_limit).unwrap_or_default().strictness();
        self.greatest(|a, b| severity(a).cmp(&severity(b)).then_with(|| strictness(false, a, b)))
    }

    /// Of the tolls that bind the greatest by this measure; of equals the first.
    fn greatest(&self, measure: impl Fn(&Toll, &Toll) -> Ordering) -> Option<&Toll> {
        let binds = |toll: &&Toll| !toll.shadow && (self.allowed || toll.outcome.denied());
        if self.descriptors.is_empty() {
            return self.tolls.iter().filter(binds).rev().max_by(|a, b| measure(a, b));
        }
        let is_quota = |status: &&DescriptorStatus| status.kind == StatusKind::Quota;
        let others = self.descriptors.iter().filter(|status| !is_quota(status));
        let others = others.flat_map(|status| self.tolls_of(status));
        let quota = self.most_lenient_quota().map(|status| self.tolls_of(status)).unwrap_or_default();
        others.chain(quota).filter(binds).rev().max_by(|a, b| measure(a, b))
    }

    /// Of quotas the one that counts, if one does.
    fn most_lenient_quota(&self) -> Option<&DescriptorStatus> {
        let quotas = self.descriptors.iter().filter(|status| status.kind == StatusKind::Quota);
        if !self.allowed && !quotas.clone().all(|status| status.over_limit) {
            return None;
        }
        // Of an admission, one that is not over; of a denial, all of them are.
        let candidates = quotas.filter(|status| status.over_limit != self.allowed);
        let strictest = |status| {
            let binds = |toll: &&Toll| !toll.shadow && (self.allowed || toll.outcome.denied());
            let tolls = self.tolls_of(status).iter().filter(binds);
            tolls.max_by(|a, b| strictness(self.allowed, a, b)).map(|toll| (status, toll))
        };
        let strictest = candidates.filter_map(strictest);
        strictest.min_by(|(_, a), (_, b)| strictness(self.allowed, a, b)).map(|(status, _)| status)
    }

    /// The toll that decides about one descriptor, by the same measure; of a shadow, the one that would.
    pub fn binding_of(&self, status: &DescriptorStatus) -> Option<&Toll> {
        let tolls = self.tolls_of(status);
        // Nearly always there is one.
        if let [toll] = tolls {
            return Some(toll);
        }
        let allowed = tolls.iter().all(|toll| toll.outcome.allowed);
        let binds = |toll: &&Toll| allowed || toll.outcome.denied();
        tolls.iter().filter(binds).rev().max_by(|a, b| strictness(allowed, a, b))
    }

    /// The shortest wait after which it would be allowed: zero when it is, `None` when it never is.
    pub fn retry_after(&self) -> Option<Micros> {
        match self.binding() {
            Some(toll) if !self.allowed => toll.outcome.retry_after,
            _ => Some(Micros::ZERO),
        }
    }

    /// Whether something of it was decided by this server alone, because the store that servers share could not be
    /// asked.
    pub fn is_degraded(&self) -> bool {
        self.tolls.iter().any(|toll| toll.outcome.alone)
    }

    /// How long an allowed request has to be held back before it may proceed.
    pub fn delay(&self) -> Micros {
        self.tolls.iter().filter(|toll| !toll.shadow).map(|toll| toll.outcome.delay).max().unwrap_or_default()
    }

    /// What is to happen to a request that was denied: the strictest that one of the limits says which deny it.
    pub fn on_limit(&self) -> OnLimit {
        self.acting().and_then(|toll| self.limit(toll)).map(|limit| limit.on_limit).unwrap_or_default()
    }
}

/// Which of two tolls binds more, of an admission or of a denial.
fn strictness(allowed: bool, a: &Toll, b: &Toll) -> Ordering {
    if allowed {
        let left = |toll: &Toll| (share(toll), toll.outcome.remaining);
        return left(b).cmp(&left(a));
    }
    // What is never admitted takes longest.
    let wait = |toll: &Toll| (toll.outcome.retry_after.is_none(), toll.outcome.retry_after);
    wait(a).cmp(&wait(b))
}

/// What remains, in parts of 2^64 of what is allowed.
fn share(toll: &Toll) -> u128 {
    (u128::from(toll.outcome.remaining) << 64) / u128::from(toll.outcome.limit.max(1))
}

impl fmt::Debug for Verdict<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verdict")
            .field("allowed", &self.allowed)
            .field("at", &self.at)
            .field("tolls", &self.tolls)
            .field("descriptors", &self.descriptors)
            .finish_non_exhaustive()
    }
}
