//! The rule language: text to located diagnostics, or to a compiled, indexed, immutable [`RuleSet`].
//!
//! Two dialects, one tree. Lyft's (`rate_limit: {unit, requests_per_unit}`) means what it means to
//! envoyproxy/ratelimit; tollgate's own (`limits: [5/s, 100000/h]`) has every algorithm and option of the core. Nothing
//! here reads a clock or counts: a rule set turns a question into charges, and stores decide.

mod address;
mod by_name;
mod check;
mod diagnostic;
mod exact;
mod exceptions;
mod explain;
mod files;
mod flat;
mod gateway;
mod grammar;
mod index;
mod jwt;
mod lint;
mod lower;
mod model;
mod nearest;
mod overload;
mod pattern;
mod ruleset;
mod schema;
mod shorthand;
mod tree;
mod words;
mod yaml;
mod zone;

use std::sync::Arc;

pub use address::{Address, AddressError};
pub use check::{Attribute, Check, Descriptor, Override, Part, Subject};
pub use diagnostic::{Diagnostic, Diagnostics, Severity, Source, Span, Unread};
pub use explain::{Applied, Considered, Effect, Explanation, Fate};
pub use files::{read, read_from};
pub use flat::{Setting, read_settings};
pub use gateway::{
    ConsumerSpec, CostSpec, DeniedSpec, Gateway, HeaderFamily, HealthSpec, KeySpec, LaterSpec, Place, RouteSpec,
    Target, UpstreamSpec, is_told,
};
pub use jwt::{JwtAlgorithm, JwtSpec, TokenPlace, TokenTrust};
pub use model::{
    Condition, Consistency, Counted, Entry, KeyPattern, Limits, LyftLimit, LyftRate, LyftUnit, Mode, OnLimit, Priority,
    Rule, RuleLimit, StoreFailure, Unit,
};
pub use nearest::nearest;
pub use overload::{MostSpec, OverloadSpec, ReservedSpec};
pub use pattern::{Glob, Network, Networks, Pattern, Texts, parse_address};
pub use ruleset::{CompiledRule, Match, RuleSet, Simple, SimpleValues, Value, Values};
pub use schema::json_schema;
pub use zone::{UnknownZone, zone};

/// A length of time as rules write it, such as `500ms` or `1h30min`. The error says what to write instead.
pub fn parse_duration(text: &str) -> Result<tollgate_core::Micros, String> {
    shorthand::duration(text).map_err(|wrong| format!("{}; {}", wrong.message, wrong.help))
}

/// A rate as rules write it, such as `20/s` or `300/3h`: of requests or the like, per a fixed time. The error says what
/// to write instead.
pub fn parse_rate(text: &str) -> Result<tollgate_core::Rate, String> {
    let read = shorthand::rate(text).map_err(|wrong| format!("{}; {}", wrong.message, wrong.help))?;
    match (read.unit, read.per) {
        (Unit::Requests, shorthand::Per::Length(period)) if read.amount > 0 => {
            Ok(tollgate_core::Rate::new(read.amount, period))
        }
        _ => Err("write how many in which time, such as `20/s` or `300/3h`".to_owned()),
    }
}

/// Sources as rules, and everything that is to be said about them.
#[derive(Debug)]
pub struct Parsed {
    /// The rules, in the order of files and places. What is wrong is left out.
    pub rules: Vec<Rule>,
    /// The domains that files are for, those without rules included.
    pub domains: Vec<Arc<str>>,
    /// What is said about a gateway.
    pub gateway: Gateway,
    /// What is wrong, and what probably is.
    pub diagnostics: Diagnostics,
}

/// Reads the rules of `sources`, all of them, whatever is wrong with some.
pub fn parse(sources: Vec<Source>) -> Parsed {
    let mut diagnostics = Diagnostics::new(sources);
    let mut rules = Vec::new();
    let mut gateway = Gateway::default();
    let mut domains = Vec::new();
    let mut work = lint::Work::default();
    for (number, source) in (0u32..).zip(diagnostics.sources().to_vec()) {
        match yaml::read(number, &source.text) {
            Ok(document) => {
                lower::lower(number, document.root.as_ref(), &mut rules, &mut gateway, &mut work, &mut diagnostics);
                domains.extend(document.domain().map(Arc::from));
                if let Some(second) = document.second {
                    let unread =
                        Diagnostic::warning("second-document", second, "only the first document of a file is read");
                    diagnostics.push(unread.help("put the rest into a file of its own"));
                }
            }
            Err(problem) => diagnostics.push(*problem),
        }
    }
    ruleset::leave_out_too_large(&mut rules, &mut diagnostics);
    lint::lint(&rules, &mut work, &mut diagnostics);
    gateway.check(&rules, &mut diagnostics);
    Parsed { rules, domains, gateway, diagnostics }
}
