//! Limits of Lyft's dialect, with the refusals of envoyproxy/ratelimit in its own words.

use std::sync::Arc;

use super::Lowering;
use super::scalar::to_json;
use crate::grammar::{Fields, RateLimitFields, ReplacesFields};
use crate::model::{LyftLimit, LyftRate, LyftUnit};
use crate::nearest::one_of;
use crate::yaml::{Kind, Node};

impl Lowering<'_> {
    pub(super) fn rate_limit(&mut self, node: &Node) -> Option<LyftLimit> {
        let before = self.errors;
        let fields: RateLimitFields<'_> = self.fields(node)?;
        let misspelt = self.errors > before;
        let name = fields.name.and_then(|name| self.text(name.value)).filter(|name| !name.is_empty());
        let unlimited = self.is_set(fields.unlimited);
        let rate = if unlimited { self.no_rate(&fields) } else { self.lyft_rate(node, &fields, misspelt) };
        let replaces = fields.replaces.map_or(&[][..], |replaces| self.list(replaces.value));
        let replaces = replaces.iter().filter_map(|item| self.replaced(item, name)).collect();
        let name = name.map(|name| self.key(name));
        (self.errors == before).then_some(LyftLimit { name, replaces, rate })
    }

    /// An unlimited one must not say per which time. What is no time is not looked at upstream either.
    fn no_rate(&mut self, fields: &RateLimitFields<'_>) -> Option<Arc<LyftRate>> {
        if let Some(unit) = fields.unit {
            if unit.value.text().and_then(LyftUnit::parse).is_some() {
                let message = "should not specify rate limit unit when unlimited";
                self.error("unlimited", unit.key.span, message, "remove `unit`, or remove `unlimited`");
            } else {
                let message = format!("`unit: {}` has no effect beside `unlimited`", unit.value.text().unwrap_or("…"));
                self.warning("no-effect", unit.key.span, message, "remove it");
            }
        }
        if let Some(requests) = fields.requests_per_unit {
            self.integer(requests.value, 0, u32::MAX.into());
            let message = "`requests_per_unit` has no effect beside `unlimited`";
            self.warning("no-effect", requests.key.span, message, "remove it");
        }
        None
    }

    fn lyft_rate(&mut self, node: &Node, fields: &RateLimitFields<'_>, misspelt: bool) -> Option<Arc<LyftRate>> {
        let written = fields.unit.and_then(|unit| Some((unit.value, self.text(unit.value)?)));
        let unit = match (fields.unit, written) {
            (_, Some((value, text))) => LyftUnit::parse(text).or_else(|| {
                let help = match self.nearest(text, LyftUnit::ALL.map(LyftUnit::name)) {
                    Some(meant) => format!("did you mean `{meant}`?"),
                    None => format!(
                        "write {}; other times can be written in a rule of tollgate's own, such as `limits: 5/30s`",
                        one_of(LyftUnit::ALL.map(LyftUnit::name))
                    ),
                };
                self.error("unit", value.span, format!("invalid rate limit unit '{text}'"), help);
                None
            }),
            (Some(_), None) => None,
            (None, None) => {
                let help = "write per which time, such as `unit: minute`, or `unlimited: true`";
                self.error("unit", node.spot(), "invalid rate limit unit ''", help);
                None
            }
        };
        let requests = match fields.requests_per_unit {
            Some(requests) => self.integer(requests.value, 0, u32::MAX.into()),
            // That there is no unit either, or a field of another name, is told, and is worse.
            None if fields.unit.is_none() || misspelt => None,
            None => {
                let message = "without `requests_per_unit` everything is denied";
                let help = "write how many, or `requests_per_unit: 0` if that is meant";
                self.warning("missing-requests-per-unit", node.spot(), message, help);
                Some(0)
            }
        };
        let (unit, requests_per_unit) = (unit?, u32::try_from(requests?).ok()?);
        if let Some(known) = self.lyft_rates.get(&(requests_per_unit, unit)) {
            return Some(Arc::clone(known));
        }
        match LyftRate::new(requests_per_unit, unit) {
            Ok(rate) => {
                let rate = Arc::new(rate);
                self.lyft_rates.insert((requests_per_unit, unit), Arc::clone(&rate));
                Some(rate)
            }
            Err(error) => {
                self.error("limit", node.spot(), error.to_string(), "write other numbers");
                None
            }
        }
    }

    fn replaced(&mut self, item: &Node, own: Option<&str>) -> Option<Arc<str>> {
        let fields: ReplacesFields<'_> = if item.is_null() { ReplacesFields::default() } else { self.fields(item)? };
        let text = match fields.name {
            Some(name) => self.text(name.value)?,
            None => "",
        };
        let place = fields.name.map_or(item.spot(), |name| name.value.span);
        if text.is_empty() {
            let field = ReplacesFields::place().own_fields.first().map_or("", |field| field.name);
            let help = format!("write the name of the limit, `- {field}: …`");
            self.error("replaces", place, "should not have an empty replaces entry", help);
            return None;
        }
        if Some(text) == own {
            let help = "a limit cannot replace itself: name another";
            self.error("replaces", place, "replaces should not contain name of same descriptor", help);
            return None;
        }
        Some(self.key(text))
    }

    /// Whatever someone likes to tell the proxy.
    pub(super) fn metadata(&mut self, node: &Node) -> Option<Arc<serde_json::Value>> {
        if !matches!(node.kind(), Kind::Map(_)) {
            self.wrong_type(node, "a mapping");
            return None;
        }
        match to_json(node) {
            Ok(value) => Some(value.into()),
            Err((part, why)) => {
                let message = format!("error parsing metadata: {} has no place in it", part.describe());
                self.error("metadata", part.spot(), message, why);
                None
            }
        }
    }
}
