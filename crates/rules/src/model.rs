//! Rules as they were written: checked, and not yet indexed.
//!
//! Both dialects end here. A rule is a path of entries (what has to be in a question, and what of it is counted by)
//! with limits at its end; a tree of descriptors is the list of its paths, in the order of the file.

use std::sync::Arc;

use tollgate_core::{FixedWindow, Limit, LimitError, Micros};

use crate::diagnostic::Span;
use crate::pattern::{Glob, Pattern};

/// One rule. What answers tell of it comes first: it fills a cache line.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct Rule {
    /// What may be spent. None: nothing is counted, and less specific rules of the same keys do not apply either.
    pub limits: Limits,
    /// What it is called; made from its entries if it was given no name.
    pub name: Arc<str>,
    /// Whose rule it is.
    pub domain: Arc<str>,
    /// Where it was written.
    pub span: Span,
    /// What has to be there. In a tree of descriptors, the way from the root.
    pub entries: Vec<Entry>,
    /// It does not apply where all conditions of one of these groups hold.
    pub unless: Vec<Vec<Condition>>,
    /// Nor where those of one of these do: what its file exempts, one list that all rules of the file share.
    pub exempt: Arc<[Vec<Condition>]>,
    /// Whether its limits bind.
    pub mode: Mode,
    /// What matters more when there is not enough for all, if it says anything about that.
    pub priority: Option<Priority>,
    /// How exact it has to be between servers.
    pub consistency: Consistency,
    /// What happens when the shared store cannot be reached.
    pub on_store_failure: StoreFailure,
    /// In Lyft's dialect: it denies only together with all other such rules of the request.
    pub quota_mode: bool,
    /// In Lyft's dialect: its metrics name every value.
    pub detailed_metric: bool,
    /// In Lyft's dialect: told to the proxy when the request passes.
    pub metadata: Option<Arc<serde_json::Value>>,
}

impl Rule {
    /// The groups of conditions of which each takes the rule out: its own and those of its file.
    pub fn exceptions(&self) -> impl Iterator<Item = &Vec<Condition>> {
        self.unless.iter().chain(&*self.exempt)
    }

    /// Whether there are any [`exceptions`](Self::exceptions).
    #[inline]
    pub fn has_exceptions(&self) -> bool {
        !self.unless.is_empty() || !self.exempt.is_empty()
    }

    /// Whether it stands beside the rules in force and takes nobody's place: a shadow of tollgate's own. Those of
    /// Lyft's dialect stand where they are written; a leaf without limits, which is no shadow whatever it says, too.
    pub fn is_beside(&self) -> bool {
        self.mode == Mode::Shadow && !matches!(self.limits, Limits::Lyft(_))
    }
}

/// One key of a rule.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// Which key.
    pub key: KeyPattern,
    /// Which of its values.
    pub value: Pattern,
    /// What of the value goes into the counter's identity.
    pub counted: Counted,
    /// In Lyft's dialect: metrics name the value.
    pub value_to_metric: bool,
}

/// Which keys an entry is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum KeyPattern {
    /// This one.
    Exact(Arc<str>),
    /// In Lyft's dialect: those of this shape.
    Glob(Glob),
}

/// What is counted apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Counted {
    /// Nothing: the entry is a condition, and all that meets it is counted together.
    Together,
    /// Each value.
    ByValue,
    /// Each network: so many bits of an address of either version.
    ByNetwork {
        /// Bits of 32.
        v4: u8,
        /// Bits of 128.
        v6: u8,
    },
}

/// A key and what its value is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Which key.
    pub key: Arc<str>,
    /// Which values.
    pub value: Pattern,
}

/// What a rule allows.
#[derive(Clone, Debug)]
pub enum Limits {
    /// Everything, uncounted.
    None,
    /// tollgate's own: all pass or none is charged.
    Own(Vec<RuleLimit>),
    /// Lyft's, which behaves as envoyproxy/ratelimit does.
    Lyft(LyftLimit),
}

/// One of a rule's limits.
#[derive(Clone, Debug)]
pub struct RuleLimit {
    /// As people would write it, such as `5/s`.
    pub text: Arc<str>,
    /// The limit. Equal ones are shared.
    pub limit: Arc<Limit>,
    /// What tells it from the rule's other limits and stays the same when its numbers change: its name, or what it
    /// counts and over which time.
    pub identity: Arc<str>,
    /// What it counts.
    pub unit: Unit,
    /// What happens to a request that it denies.
    pub on_limit: OnLimit,
    /// Where it was written.
    pub span: Span,
}

/// What a limit counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Unit {
    /// Requests, or whatever the asker calls one.
    #[default]
    Requests,
    /// Something else, by name: `bytes`, `tokens`. What carries no cost of that name is not charged.
    Named(Arc<str>),
}

/// What happens to a request that is over a limit. The engine says so, servers do it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnLimit {
    /// It is refused at once.
    #[default]
    Reject,
    /// It waits until it fits, at most this long, and is refused if that is not enough.
    Delay(Micros),
    /// The same, and whoever came last is next.
    DelayNewestFirst {
        /// How long at most.
        longest: Micros,
        /// How many may wait for one counter: when there are more, whoever came first is refused.
        most: u32,
    },
    /// It is refused after this long.
    RejectSlowly(Micros),
    /// It is kept and done later.
    Enqueue,
}

impl OnLimit {
    /// How little it leaves to a request, of which the greatest counts where several limits deny: to be refused at once,
    /// to be refused, to be done without its client, to be late.
    pub const fn strictness(self) -> u8 {
        match self {
            Self::Reject => 3,
            Self::RejectSlowly(_) => 2,
            Self::Enqueue => 1,
            Self::Delay(_) | Self::DelayNewestFirst { .. } => 0,
        }
    }
}

/// A limit of Lyft's dialect.
#[derive(Clone, Debug)]
pub struct LyftLimit {
    /// Its name, for others to replace it.
    pub name: Option<Arc<str>>,
    /// The limits that do not count when this one is matched.
    pub replaces: Vec<Arc<str>>,
    /// How much per which time; `None` when unlimited.
    pub rate: Option<Arc<LyftRate>>,
}

/// So many requests per unit of time.
#[derive(Clone, Debug)]
pub struct LyftRate {
    /// As written.
    pub requests_per_unit: u32,
    /// Per which time.
    pub unit: LyftUnit,
    /// The window that counts it: fixed, and denied requests count.
    pub limit: Arc<Limit>,
    /// The same window with room for one more: what a question that costs nothing is put to, since it is denied only
    /// when the limit is exceeded, not when it is reached.
    pub exceeded: Arc<Limit>,
}

impl LyftRate {
    /// `requests_per_unit` per `unit`.
    pub fn new(requests_per_unit: u32, unit: LyftUnit) -> Result<Self, LimitError> {
        let window = |limit: u64| Limit::new(FixedWindow::new(limit, unit.length()).record_rejected()).map(Arc::new);
        let limit = u64::from(requests_per_unit);
        Ok(Self { requests_per_unit, unit, limit: window(limit)?, exceeded: window(limit + 1)? })
    }
}

/// The units of Lyft's dialect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs, reason = "their names say it")]
pub enum LyftUnit {
    Second,
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Year,
}

impl LyftUnit {
    /// All of them, shortest first.
    pub const ALL: [Self; 7] = [Self::Second, Self::Minute, Self::Hour, Self::Day, Self::Week, Self::Month, Self::Year];

    /// As in a file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Second => "second",
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
            Self::Year => "year",
        }
    }

    /// The one of this name, in upper or lower case.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|unit| unit.name().eq_ignore_ascii_case(name))
    }

    /// How long: months have 30 days and years 365.
    pub const fn length(self) -> Micros {
        let days = match self {
            Self::Second => return Micros::SECOND,
            Self::Minute => return Micros::MINUTE,
            Self::Hour => return Micros::HOUR,
            Self::Day => 1,
            Self::Week => 7,
            Self::Month => 30,
            Self::Year => 365,
        };
        Micros::from_secs(days * 86_400)
    }
}

/// Whether a rule's limits bind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// They do.
    #[default]
    Enforce,
    /// They are counted, and what they would have denied is told; nothing is denied.
    Shadow,
    /// As if the rule were not there.
    Off,
}

/// What matters more when there is not enough for all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs, reason = "their names say it")]
pub enum Priority {
    Low,
    #[default]
    Normal,
    High,
    Critical,
}

/// How exact a rule has to be between servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Consistency {
    /// Every decision asks the shared store.
    #[default]
    Exact,
    /// Each server decides by itself and they tell each other this often.
    Synced(Micros),
    /// Each server counts alone.
    Local,
}

/// What happens when the shared store cannot be reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum StoreFailure {
    /// This server enforces its share of the limit by itself.
    #[default]
    Local,
    /// Requests pass.
    Allow,
    /// They do not.
    Deny,
}
