//! One question to a rule set.

use crate::model::{LyftUnit, OnLimit};

/// A key and its value: what a request is known by.
pub type Attribute<'a> = (&'a str, &'a str);

/// One question: may this go on, and what does it cost?
#[derive(Clone, Copy, Debug)]
pub struct Check<'a> {
    /// Whose rules are asked.
    pub domain: &'a str,
    /// About what.
    pub subject: Subject<'a>,
    /// What it costs in requests. Zero charges none: limits on requests then stand in nobody's way.
    pub cost: u64,
    /// What it costs in other units, by name. What is not named here is not charged.
    pub costs: &'a [(&'a str, u64)],
    /// Whose slots it takes, for limits on concurrency; zero for nobody's in particular.
    pub lease: u64,
    /// Which of its limits are asked.
    pub part: Part,
}

/// Limits by when a request that may be kept is asked about them: those that keep requests when it is sent, all others
/// when it comes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Part {
    /// All, at the same time.
    #[default]
    All,
    /// Those that do not say `enqueue`.
    AtOnce,
    /// Those that say `enqueue`, and those on slots: nobody holds one while it waits.
    Later,
}

impl Part {
    /// Whether a limit is of it that says this, on slots or not.
    #[inline]
    pub const fn includes(self, on_limit: OnLimit, is_on_slots: bool) -> bool {
        match self {
            Self::All => true,
            Self::AtOnce => !matches!(on_limit, OnLimit::Enqueue),
            Self::Later => matches!(on_limit, OnLimit::Enqueue) || is_on_slots,
        }
    }
}

/// What a question is about.
#[derive(Clone, Copy, Debug)]
pub enum Subject<'a> {
    /// Everything that is known of the request. Every rule whose keys are present applies; all pass, or none is
    /// charged.
    Attributes(&'a [Attribute<'a>]),
    /// Envoy's way: each descriptor finds at most one rule and is counted on its own.
    Descriptors(&'a [Descriptor<'a>]),
}

/// One list of entries, in order.
#[derive(Clone, Copy, Debug)]
pub struct Descriptor<'a> {
    /// From the root of the tree on. A rule is found only at the last one.
    pub entries: &'a [Attribute<'a>],
    /// Replaces what the rules say.
    pub limit: Option<Override>,
    /// Its own cost instead of the question's: zero asks without charging.
    pub cost: Option<u64>,
    /// Gives the cost back.
    pub refund: bool,
}

/// A limit that comes with the question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Override {
    /// How many.
    pub requests_per_unit: u32,
    /// Per which time.
    pub unit: LyftUnit,
}

impl<'a> Check<'a> {
    /// A request known by `attributes`, of cost 1.
    pub const fn attributes(domain: &'a str, attributes: &'a [Attribute<'a>]) -> Self {
        Self { domain, subject: Subject::Attributes(attributes), cost: 1, costs: &[], lease: 0, part: Part::All }
    }

    /// A request known by `descriptors`, of cost 1 each.
    pub const fn descriptors(domain: &'a str, descriptors: &'a [Descriptor<'a>]) -> Self {
        Self { domain, subject: Subject::Descriptors(descriptors), cost: 1, costs: &[], lease: 0, part: Part::All }
    }

    /// `cost` instead of 1.
    pub const fn cost(self, cost: u64) -> Self {
        Self { cost, ..self }
    }

    /// And so much of other units.
    pub const fn costs(self, costs: &'a [(&'a str, u64)]) -> Self {
        Self { costs, ..self }
    }

    /// In the name of `lease`.
    pub const fn lease(self, lease: u64) -> Self {
        Self { lease, ..self }
    }

    /// Of a part of its limits only.
    pub const fn part(self, part: Part) -> Self {
        Self { part, ..self }
    }
}

impl<'a> Descriptor<'a> {
    /// `entries`, at the question's cost.
    pub const fn new(entries: &'a [Attribute<'a>]) -> Self {
        Self { entries, limit: None, cost: None, refund: false }
    }

    /// At its own cost.
    pub const fn cost(self, cost: u64) -> Self {
        Self { cost: Some(cost), ..self }
    }

    /// Under `limit`, whatever the rules say.
    pub const fn limit(self, limit: Override) -> Self {
        Self { limit: Some(limit), ..self }
    }
}
