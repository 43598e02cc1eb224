//! Whose rules a question is about when it does not say: those of the settings, else of the only domain that there is.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use super::server::House;

/// The domain of a question that may name one.
pub(crate) enum Domain<'a, G> {
    Named(&'a str),
    /// The only one that there is, on loan.
    Only(G),
}

impl<G: Deref<Target = Option<Arc<String>>>> Domain<'_, G> {
    pub(crate) fn as_str(&self) -> &str {
        match self {
            Self::Named(name) => name,
            Self::Only(name) => name.as_ref().map_or("", |name| name),
        }
    }
}

/// A question has to name one of these.
#[derive(Debug)]
pub(crate) struct SeveralDomains(Vec<String>);

/// More of them help nobody.
const MOST_NAMED: usize = 10;

impl fmt::Display for SeveralDomains {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = self.0.get(..MOST_NAMED.min(self.0.len())).unwrap_or_default().join(", ");
        let more = if self.0.len() > MOST_NAMED { ", …" } else { "" };
        write!(f, "the rules have several domains: name one of {named}{more}, or serve with --domain NAME")
    }
}

impl House {
    /// What was named, else what the settings say, else the only one that there is.
    pub(crate) fn domain<'a>(
        &'a self,
        named: Option<&'a str>,
    ) -> Result<Domain<'a, impl Deref<Target = Option<Arc<String>>> + Send + Sync + use<>>, SeveralDomains> {
        if let Some(name) = named.or(self.settings.domain.as_deref()) {
            return Ok(Domain::Named(name));
        }
        let only = self.gate.only_domain();
        if only.is_some() {
            return Ok(Domain::Only(only));
        }
        let mut domains: Vec<String> = self.gate.rules().domains().map(str::to_owned).collect();
        if domains.is_empty() {
            // Without rules, everything is allowed in whatever domain.
            return Ok(Domain::Named(""));
        }
        domains.sort_unstable();
        Err(SeveralDomains(domains))
    }
}
