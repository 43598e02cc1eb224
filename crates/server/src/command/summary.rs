//! What a set of rules consists of, in numbers.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde_json::{Value, json};
use tollgate_core::{Algorithm, LeakyBucket, LeakyForm};
use tollgate_rules::{Limits, Mode, Rule};

/// More domains are summed up.
const MOST_DOMAINS: usize = 20;

/// Rules and limits, counted.
#[derive(Debug, Default)]
pub(crate) struct Summary {
    pub(crate) files: usize,
    /// By name.
    domains: BTreeMap<String, Domain>,
    algorithms: Tally,
    modes: Tally,
}

#[derive(Clone, Copy, Debug, Default)]
struct Domain {
    rules: usize,
    limits: usize,
}

/// How many of each name, the most frequent first when shown.
#[derive(Debug, Default)]
struct Tally(BTreeMap<&'static str, usize>);

impl Tally {
    fn add(&mut self, name: &'static str) {
        *self.0.entry(name).or_default() += 1;
    }

    fn sorted(&self) -> Vec<(&'static str, usize)> {
        let mut all: Vec<_> = self.0.iter().map(|(name, count)| (*name, *count)).collect();
        all.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        all
    }

    fn sentence(&self) -> String {
        self.sorted().iter().map(|(name, count)| format!("{count} {name}")).collect::<Vec<_>>().join(", ")
    }

    fn to_json(&self) -> Value {
        self.0.iter().map(|(name, count)| ((*name).to_owned(), Value::from(*count))).collect()
    }
}

impl Summary {
    pub(crate) fn new(files: usize, rules: &[Rule]) -> Self {
        let mut summary = Self { files, ..Self::default() };
        for rule in rules {
            summary.modes.add(match rule.mode {
                Mode::Enforce => "enforced",
                Mode::Shadow => "shadow",
                Mode::Off => "off",
            });
            let algorithms: Vec<&Algorithm> = match &rule.limits {
                Limits::None => Vec::new(),
                Limits::Own(limits) => limits.iter().map(|limit| limit.limit.algorithm()).collect(),
                Limits::Lyft(limit) => limit.rate.iter().map(|rate| rate.limit.algorithm()).collect(),
            };
            if !summary.domains.contains_key(&*rule.domain) {
                summary.domains.insert(rule.domain.to_string(), Domain::default());
            }
            if let Some(domain) = summary.domains.get_mut(&*rule.domain) {
                domain.rules += 1;
                domain.limits += algorithms.len();
            }
            for algorithm in algorithms {
                summary.algorithms.add(name(algorithm));
            }
        }
        summary
    }

    fn rules(&self) -> usize {
        self.domains.values().map(|domain| domain.rules).sum()
    }

    fn limits(&self) -> usize {
        self.domains.values().map(|domain| domain.limits).sum()
    }

    /// `2 files, 1 domain, 14 rules, 20 limits`.
    pub(crate) fn sentence(&self) -> String {
        let parts = [
            count(self.files, "file"),
            count(self.domains.len(), "domain"),
            count(self.rules(), "rule"),
            count(self.limits(), "limit"),
        ];
        parts.join(", ")
    }

    /// For a person: a table of domains, and what there is of each kind.
    pub(crate) fn print(&self, out: &mut impl Write) -> io::Result<()> {
        if self.domains.is_empty() {
            return Ok(());
        }
        let visible = |name: &str| name.chars().flat_map(escaped).collect::<String>();
        let shown: Vec<_> =
            self.domains.iter().take(MOST_DOMAINS).map(|(name, domain)| (visible(name), *domain)).collect();
        let width = shown.iter().map(|(name, _)| name.chars().count()).fold("domain".len(), usize::max);
        writeln!(out, "\n  {:<width$}  {:>6}  {:>6}", "domain", "rules", "limits")?;
        for (name, domain) in &shown {
            writeln!(out, "  {name:<width$}  {:>6}  {:>6}", domain.rules, domain.limits)?;
        }
        if let Some(more) = self.domains.len().checked_sub(MOST_DOMAINS).filter(|more| *more > 0) {
            writeln!(out, "  and {more} more")?;
        }
        writeln!(out)?;
        for (title, tally) in [("limits", &self.algorithms), ("rules", &self.modes)] {
            if !tally.0.is_empty() {
                writeln!(out, "  {:<8}{}", format!("{title}:"), tally.sentence())?;
            }
        }
        Ok(())
    }

    /// For a machine.
    pub(crate) fn to_json(&self) -> Value {
        let domain = |(name, domain): (&String, &Domain)| {
            (name.clone(), json!({ "rules": domain.rules, "limits": domain.limits }))
        };
        json!({
            "files": self.files,
            "rules": self.rules(),
            "limits": self.limits(),
            "domains": self.domains.iter().map(domain).collect::<Value>(),
            "algorithms": self.algorithms.to_json(),
            "modes": self.modes.to_json(),
        })
    }
}

/// `1 rule`, `2 rules`.
pub(crate) fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// What a file says is shown, never obeyed.
fn escaped(character: char) -> impl Iterator<Item = char> {
    let control = character.is_control();
    character.escape_default().filter(move |_| control).chain(std::iter::once(character).filter(move |_| !control))
}

/// As rule files call it, in plain words.
fn name(algorithm: &Algorithm) -> &'static str {
    match algorithm {
        Algorithm::TokenBucket(_) => "token bucket",
        Algorithm::LeakyBucket(LeakyBucket { form: LeakyForm::Queue { .. }, .. }) => "leaky bucket",
        Algorithm::LeakyBucket(LeakyBucket { form: LeakyForm::Meter { .. }, .. }) => "leaky meter",
        Algorithm::FixedWindow(_) => "fixed window",
        Algorithm::SlidingLog(_) => "sliding log",
        Algorithm::SlidingCounter(_) => "sliding window",
        Algorithm::Concurrency(_) => "concurrency",
        Algorithm::Pacing(_) => "pacing",
    }
}
