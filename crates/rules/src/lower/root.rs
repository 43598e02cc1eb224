//! A file as a whole: whose rules they are, what holds for all of them, and the two ways to write them.

use std::sync::Arc;

use super::Lowering;
use super::settings::Settings;
use crate::diagnostic::{Diagnostics, Span};
use crate::gateway::Gateway;
use crate::grammar::{DefaultsFields, RootFields};
use crate::jwt::JwtSpec;
use crate::lint::Work;
use crate::model::{Condition, Rule};
use crate::yaml::Node;

/// The domain of a file that has only `rules` and names none.
const DEFAULT_DOMAIN: &str = "default";

/// What all rules of a file have in common.
pub(super) struct File {
    pub(super) domain: Arc<str>,
    pub(super) defaults: Settings,
    pub(super) exempt: Arc<[Vec<Condition>]>,
    /// How tokens are verified where a route does not say it.
    pub(super) jwt: Option<Arc<JwtSpec>>,
}

/// Appends the rules of one file to `rules`, and what it says about a gateway to `gateway`. What is wrong with it goes
/// to `diagnostics`, all at once; what is right is kept.
pub(crate) fn lower(
    source: u32,
    root: Option<&Node>,
    rules: &mut Vec<Rule>,
    gateway: &mut Gateway,
    work: &mut Work,
    diagnostics: &mut Diagnostics,
) {
    let mut lowering = Lowering::new(rules, gateway, work, diagnostics);
    match root.filter(|root| !root.is_null()) {
        Some(root) => lowering.file(root),
        None => lowering.nothing(Span { source, start: 0, end: 0 }),
    }
}

impl Lowering<'_> {
    fn file(&mut self, root: &Node) {
        let Some(fields) = self.fields::<RootFields<'_>>(root) else { return };
        let is_gateway = [fields.routes, fields.upstreams, fields.consumers, fields.settings, fields.jwt]
            .iter()
            .any(Option::is_some);
        let domain = match fields.domain {
            Some(domain) => {
                let text = self.text(domain.value);
                if text == Some("") {
                    self.no_domain(domain.value.span);
                }
                text
            }
            None if fields.descriptors.is_none() && (fields.rules.is_some() || is_gateway) => Some(DEFAULT_DOMAIN),
            None => {
                self.no_domain(root.spot());
                None
            }
        };
        let defaults = fields.defaults.and_then(|defaults| self.fields::<DefaultsFields<'_>>(defaults.value));
        let defaults = defaults.map(|defaults| self.settings(&defaults.settings, Settings::default()));
        let exempt = self.exempt(fields.exempt);
        let file = File {
            domain: domain.unwrap_or_default().into(),
            defaults: defaults.unwrap_or_default(),
            exempt: exempt.into(),
            jwt: fields.jwt.and_then(|jwt| self.jwt(jwt.value)).map(Arc::new),
        };
        if let Some(tree) = fields.descriptors {
            self.tree(tree.value, &file);
        }
        if let Some(rules) = fields.rules {
            for node in self.list(rules.value) {
                self.rule(node, &file);
            }
        }
        if let Some(upstreams) = fields.upstreams {
            for node in self.list(upstreams.value) {
                self.upstream(node);
            }
        }
        if let Some(consumers) = fields.consumers {
            for node in self.list(consumers.value) {
                self.consumer(node);
            }
        }
        if let Some(routes) = fields.routes {
            for node in self.list(routes.value) {
                self.route(node, &file);
            }
        }
    }

    fn nothing(&mut self, place: Span) {
        let help = "write some rules, such as `rules: [{name: per-address, per: ip, limits: 100/s}]`, and for a gateway where requests go, such \
                    as `routes: [{name: all, upstream: 'http://127.0.0.1:9000'}]`";
        self.error("empty-file", place, "the file is empty", help);
    }

    fn no_domain(&mut self, place: Span) {
        let help = "write whose rules these are, such as `domain: my_api`";
        self.error("no-domain", place, "config file cannot have empty domain", help);
    }
}
