//! `tollgate try`: rules, and requests typed or piped, each answered at once.
//!
//! Everything is decided by the same code as in a service, from memory. Time is the system's until a line gives one;
//! from then on it stands still between lines.

use std::future::Future;
use std::io::{BufRead, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::task::{Context, Poll, Waker};

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use serde_json::json;
use tollgate::{Check, Clock, Engine, ManualClock, MemoryStore, SystemClock, Timestamp, Toll, Tollgate, Verdict};
use tollgate_rules::{Attribute, Descriptor, Limits, RuleSet, Unit};

use super::line::{Line, Moment};
use super::load::load;
use crate::terminal::{self, ColorArg};

/// Try rules on requests that you type or pipe
///
/// Each line is a request: what it is known by and what it costs, such as `user_id=42 ip=1.2.3.4 cost=3`. Each is
/// answered with the decision, the rule and the limit that decide, what remains, and how long to wait.
///
/// A line may begin with its time: `@12:00:03.5`, `@2026-11-16T12:00:03Z`, or `@+500ms` after the line before.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tollgate try --rules rules.yaml
  echo 'user_id=42 cost=3' | tollgate try --rules rules.yaml
  printf '@12:00 ip=1.2.3.4\\n@+1s ip=1.2.3.4\\n' | tollgate try --rules rules.yaml --explain
  tollgate try --rules envoy/ --descriptors --domain rl <<< 'path=/login user=7; ip=1.2.3.4'

Values with spaces go in quotes: path=\"/a b\". Lines that begin with # are left out.")]
pub(crate) struct TryArgs {
    /// Files or directories of rules
    #[arg(long, required = true, value_name = "PATH", num_args = 1..)]
    rules: Vec<PathBuf>,

    /// Whose rules to ask; needed if there are several domains
    #[arg(long, value_name = "NAME")]
    domain: Option<String>,

    /// Take each line as descriptors, as Envoy sends them: entries in order, descriptors apart by `;`
    #[arg(long)]
    descriptors: bool,

    /// Say which rules were considered, and why each answer is what it is
    #[arg(long)]
    explain: bool,

    /// How to answer
    #[arg(long, value_enum, default_value_t)]
    format: Format,

    #[command(flatten)]
    color: ColorArg,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A line for people
    #[default]
    Human,
    /// An object per line
    Json,
}

pub(crate) fn run(args: &TryArgs, out: &mut impl Write, err: &mut impl Write) -> anyhow::Result<ExitCode> {
    let loaded = load(&args.rules);
    if !loaded.diagnostics.is_empty() {
        writeln!(err, "{}\n", loaded.diagnostics.render(terminal::color_on_stderr(args.color.color)))?;
    }
    if loaded.diagnostics.has_errors() {
        return Ok(ExitCode::FAILURE);
    }
    let domain = choose_domain(args.domain.as_deref(), &loaded.rules)?;
    let units = units(&loaded.rules);
    let wall = SystemClock::new();
    let clock = ManualClock::at(wall.now());
    let mut session = Session {
        gate: Tollgate::with_engine(loaded.rules, Engine::with_clock(MemoryStore::new(), clock.clone())),
        wall,
        clock,
        is_given: false,
        domain,
        units,
        args,
        color: terminal::color_on_stdout(args.color.color),
    };
    let stdin = std::io::stdin();
    let is_typed = stdin.is_terminal();
    if is_typed {
        writeln!(err, "Type requests such as `user_id=42 cost=3`; end with Ctrl-D.")?;
    }
    let mut failed = false;
    for (number, line) in (1..).zip(stdin.lock().lines()) {
        let line = line.context("standard input cannot be read")?;
        if let Err(problem) = session.answer(&line, out) {
            if problem.downcast_ref::<std::io::Error>().is_some() {
                return Err(problem);
            }
            out.flush()?;
            writeln!(err, "line {number}: {problem}")?;
            failed = true;
        }
        out.flush()?;
    }
    Ok(if failed && !is_typed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The domain that was named, or the only one.
fn choose_domain(named: Option<&str>, rules: &RuleSet) -> anyhow::Result<String> {
    let mut domains: Vec<&str> = rules.domains().collect();
    domains.sort_unstable();
    match (named, &*domains) {
        (Some(named), _) if rules.has_domain(named) => Ok(named.to_owned()),
        (Some(named), _) => bail!("there is no domain {named}; the rules have: {}", domains.join(", ")),
        (None, [only]) => Ok((*only).to_owned()),
        (None, []) => bail!("the files have no rules"),
        (None, _) => bail!("name one of the domains with --domain: {}", domains.join(", ")),
    }
}

/// The units other than requests that some limit counts.
fn units(rules: &RuleSet) -> Vec<String> {
    let mut units: Vec<String> = rules
        .rules()
        .iter()
        .filter_map(|compiled| match &compiled.rule().limits {
            Limits::Own(limits) => Some(limits),
            _ => None,
        })
        .flatten()
        .filter_map(|limit| match &limit.unit {
            Unit::Named(unit) => Some(unit.to_string()),
            Unit::Requests => None,
        })
        .collect();
    units.sort_unstable();
    units.dedup();
    units
}

struct Session<'a> {
    gate: Tollgate<MemoryStore, ManualClock>,
    wall: SystemClock,
    clock: ManualClock,
    /// Whether time is what lines say.
    is_given: bool,
    domain: String,
    units: Vec<String>,
    args: &'a TryArgs,
    color: bool,
}

impl Session<'_> {
    fn answer(&mut self, text: &str, out: &mut impl Write) -> anyhow::Result<()> {
        let Some(line) = Line::parse(text, &self.units)? else { return Ok(()) };
        self.set_time(line.moment);
        let costs: Vec<(&str, u64)> = line.costs.iter().map(|(unit, cost)| (unit.as_str(), *cost)).collect();
        let groups: Vec<Vec<Attribute<'_>>> = line
            .groups
            .iter()
            .map(|group| group.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect())
            .collect();
        let descriptors: Vec<Descriptor<'_>> = groups.iter().map(|entries| Descriptor::new(entries)).collect();
        let all: Vec<Attribute<'_>> = groups.iter().flatten().copied().collect();
        let check = if self.args.descriptors {
            Check::descriptors(&self.domain, &descriptors)
        } else {
            Check::attributes(&self.domain, &all)
        };
        let check = check.cost(line.cost).costs(&costs);
        let explanation = self.args.explain.then(|| self.gate.rules().explain(&check).to_string());
        let verdict = now(self.gate.check(&check))?;
        match self.args.format {
            Format::Human => self.tell(&verdict, explanation.as_deref(), out)?,
            Format::Json => {
                writeln!(out, "{}", to_json(&verdict, explanation.as_deref()))?;
            }
        }
        Ok(())
    }

    fn set_time(&mut self, moment: Option<Moment>) {
        let now = self.clock.now();
        let time = match moment {
            Some(Moment::At(time)) => time,
            Some(Moment::OfDay(since_midnight)) => {
                let day = 86_400_000_000;
                Timestamp::from_micros(now.as_micros() / day * day + since_midnight.as_micros())
            }
            Some(Moment::Later(span)) => now.plus(span),
            None if self.is_given => now,
            None => self.wall.now(),
        };
        self.is_given |= moment.is_some();
        self.clock.set(time);
    }

    fn tell(&self, verdict: &Verdict, explanation: Option<&str>, out: &mut impl Write) -> std::io::Result<()> {
        let (on, word) = if verdict.allowed { ("\x1b[1;32m", "allowed") } else { ("\x1b[1;31m", "DENIED ") };
        let (on, off) = if self.color { (on, "\x1b[0m") } else { ("", "") };
        let Some(toll) = verdict.binding() else {
            writeln!(out, "{on}{word}{off}  no limit applies")?;
            tell_shadows(verdict, out)?;
            return explain(explanation, verdict, out);
        };
        let mut line = format!("{on}{word}{off}  {}", name(verdict, toll));
        if verdict.allowed {
            line.push_str(&format!("  {} of {} remaining", toll.outcome.remaining, toll.outcome.limit));
            if !verdict.delay().is_zero() {
                line.push_str(&format!(", after {}", verdict.delay()));
            }
            if toll.outcome.overage {
                line.push_str(", over the limit by its grace");
            }
        } else {
            match verdict.retry_after() {
                Some(wait) => line.push_str(&format!("  wait {wait}")),
                None => line.push_str(&format!("  never fits: {} of {}", toll.cost, toll.outcome.limit)),
            }
        }
        writeln!(out, "{line}")?;
        tell_shadows(verdict, out)?;
        explain(explanation, verdict, out)
    }
}

fn tell_shadows(verdict: &Verdict, out: &mut impl Write) -> std::io::Result<()> {
    for shadow in verdict.tolls.iter().filter(|toll| toll.shadow && toll.outcome.denied()) {
        writeln!(out, "         {} would have denied it", name(verdict, shadow))?;
    }
    Ok(())
}

fn explain(explanation: Option<&str>, verdict: &Verdict, out: &mut impl Write) -> std::io::Result<()> {
    let Some(explanation) = explanation else { return Ok(()) };
    for line in explanation.lines() {
        writeln!(out, "    {line}")?;
    }
    for toll in &verdict.tolls {
        let outcome = &toll.outcome;
        let said = match (outcome.allowed, outcome.retry_after) {
            (true, _) => format!("admits {}, {} of {} remaining", toll.cost, outcome.remaining, outcome.limit),
            (false, Some(wait)) => format!("denies {}, admits it after {wait}", toll.cost),
            (false, None) => format!("denies {}, which can never fit into {}", toll.cost, outcome.limit),
        };
        let is_quota = verdict.rule(toll).is_some_and(|rule| rule.quota_mode) && !verdict.descriptors.is_empty();
        let said = match is_quota && !outcome.allowed && verdict.allowed {
            true => format!("is over by {} and lets it pass: not all quotas are over", toll.cost),
            false => said,
        };
        let shadow = if toll.shadow { " (shadow)" } else { "" };
        writeln!(out, "    {}{shadow} {said}", name(verdict, toll))?;
    }
    Ok(())
}

/// The rule and the limit, such as `posts (2/s)`.
fn name(verdict: &Verdict, toll: &Toll) -> String {
    let Some(rule) = verdict.rule(toll) else { return "a limit of its own".to_owned() };
    match (&rule.limits, verdict.limit(toll)) {
        (_, Some(limit)) => format!("{} ({})", rule.name, limit.text),
        (Limits::Lyft(limit), _) => match &limit.rate {
            Some(rate) => format!("{} ({}/{})", rule.name, rate.requests_per_unit, rate.unit.name()),
            None => format!("{} (unlimited)", rule.name),
        },
        _ => rule.name.to_string(),
    }
}

fn to_json(verdict: &Verdict, explanation: Option<&str>) -> serde_json::Value {
    let seconds = |micros: tollgate::Micros| micros.as_micros() as f64 / 1e6;
    let tolls: Vec<serde_json::Value> = verdict
        .tolls
        .iter()
        .map(|toll| {
            json!({
                "rule": verdict.rule(toll).map(|rule| &*rule.name),
                "limit": verdict.limit(toll).map(|limit| &*limit.text),
                "allowed": toll.outcome.allowed,
                "shadow": toll.shadow,
                "cost": toll.cost,
                "size": toll.outcome.limit,
                "remaining": toll.outcome.remaining,
                "retry_after": toll.outcome.retry_after.map(seconds),
                "reset_after": seconds(toll.outcome.reset_after),
            })
        })
        .collect();
    let mut whole = json!({
        "allowed": verdict.allowed,
        "at": seconds(verdict.at.since(Timestamp::EPOCH)),
        "rule": verdict.binding().and_then(|toll| verdict.rule(toll)).map(|rule| &*rule.name),
        "retry_after": verdict.retry_after().map(seconds),
        "delay": seconds(verdict.delay()),
        "limits": tolls,
    });
    if let Some(explanation) = explanation {
        whole["explanation"] = explanation.lines().collect();
    }
    whole
}

/// The result of a future that does not wait: those of a store in memory do not.
fn now<T, E: std::error::Error + Send + Sync + 'static>(
    future: impl Future<Output = Result<T, E>>,
) -> anyhow::Result<T> {
    let mut future = std::pin::pin!(future);
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => Ok(result?),
        Poll::Pending => bail!("the store did not answer at once"),
    }
}
