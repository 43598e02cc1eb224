//! JSON Web Tokens that clients show, and what they say about themselves.
//!
//! A token is good if one of the keys in force has signed it, it is not too old or too new, and by and for whom the
//! file says. Only then are its claims told to rules. How it is taken apart is in `token`, what signs in `keys`, and
//! what was verified before in `remembered`. This fetches no keys over a network: they are in files, which are looked
//! at as often as those of rules.

mod fuzz;
mod keys;
mod remembered;
mod token;
#[cfg(test)]
mod token_tests;

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context as _;
use arc_swap::ArcSwap;
use http::header::{AUTHORIZATION, HeaderMap};
use tollgate::rules::{JwtAlgorithm, JwtSpec, TokenPlace, TokenTrust};
use tollgate_core::{Micros, Timestamp};

use self::keys::Key;
use self::remembered::Remembered;
use self::token::{LONGEST, Token, claim};
use super::known::{cookie, shortened};
use crate::gate::Exposition;

pub(crate) use self::fuzz::{any_token, good_token};
pub(crate) use self::token::BadToken;

/// How long a token is taken for good that does not say how long it is.
const LONGEST_REMEMBERED: Micros = Micros::HOUR;

/// The claims of a token that rules ask for, by their names.
#[derive(Debug, Default)]
pub(super) struct Claims(Box<[(Box<str>, Box<str>)]>);

impl Claims {
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| **known == *name).map(|(_, value)| &**value)
    }
}

/// How many tokens there were, by what became of them.
#[derive(Debug, Default)]
pub(super) struct TokenCounts {
    verified: AtomicU64,
    remembered: AtomicU64,
    bad: [AtomicU64; BadToken::ALL.len()],
}

impl TokenCounts {
    pub(super) fn expose(&self, out: &mut Exposition) {
        out.counter(
            "tollgate_tokens_total",
            "Requests of routes that look at tokens, by what became of the token; remembered ones were verified before.",
        );
        out.sample(&[("result", "verified")], self.verified.load(Ordering::Relaxed));
        out.sample(&[("result", "remembered")], self.remembered.load(Ordering::Relaxed));
        for (bad, count) in BadToken::ALL.iter().zip(&self.bad) {
            out.sample(&[("result", bad.name())], count.load(Ordering::Relaxed));
        }
    }
}

/// What is done with the tokens of some routes.
pub(super) struct Tokens {
    spec: Arc<JwtSpec>,
    /// Claims that rules ask for.
    wanted: Box<[Box<str>]>,
    ring: ArcSwap<Ring>,
    /// What was wrong at the last look, so that it is told once.
    failed: Mutex<String>,
    counts: Arc<TokenCounts>,
}

/// Keys, and what was verified by them.
struct Ring {
    /// What the files said.
    texts: Vec<Vec<u8>>,
    keys: Arc<[Key]>,
    remembered: Remembered,
}

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokens").field("spec", &self.spec).field("wanted", &self.wanted).finish_non_exhaustive()
    }
}

impl Tokens {
    /// With keys from the files as they are now. Where those make no sense, with the keys that somebody had `before` by
    /// the same files; else with none, so that no token is good.
    pub(super) fn new<'t>(
        spec: &Arc<JwtSpec>,
        wanted: Box<[Box<str>]>,
        counts: &Arc<TokenCounts>,
        mut before: impl Iterator<Item = &'t Arc<Self>>,
    ) -> Self {
        if spec.trust == TokenTrust::Nothing {
            tracing::warn!(
                "tokens are not verified (`verify: false`): whoever sends one writes into it what they like"
            );
        }
        let old = before.find(|old| old.spec.trust == spec.trust).map(|old| old.ring.load_full());
        let ring = match old {
            Some(old) => Ring::new(old.texts.clone(), Arc::clone(&old.keys)),
            None => Ring::new(Vec::new(), Arc::new([])),
        };
        let ring = ArcSwap::from_pointee(ring);
        let tokens =
            Self { spec: Arc::clone(spec), wanted, ring, failed: Mutex::default(), counts: Arc::clone(counts) };
        tokens.refresh();
        tokens
    }

    /// Whether anybody wants to know.
    pub(super) fn matters(spec: &JwtSpec, wanted: &[Box<str>]) -> bool {
        spec.required || !wanted.is_empty()
    }

    /// Looks at the files again. What makes no sense leaves the keys in force that are; what is new makes every token
    /// be verified anew.
    pub(super) fn refresh(&self) {
        let TokenTrust::Keys { keys, secret, algorithms } = &self.spec.trust else { return };
        let read = read_all(keys.iter().chain(secret));
        if read.as_ref().is_ok_and(|texts| *texts == self.ring.load().texts) {
            return;
        }
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        match read.and_then(|texts| Ring::read(texts, keys, secret.as_deref(), algorithms)) {
            Ok(ring) => {
                tracing::info!(keys = ring.keys.len(), "keys for tokens loaded");
                self.ring.store(Arc::new(ring));
                failed.clear();
            }
            Err(error) => {
                let said = format!("{error:#}");
                if *failed != said {
                    let fate = if self.ring.load().keys.is_empty() { "no token is good" } else { "the old ones stay" };
                    tracing::error!("the keys for tokens cannot be used, {fate}: {said}");
                    *failed = said;
                }
            }
        }
    }

    /// What the token of a request says. An error where one is needed, and nothing where none is.
    pub(super) fn claims(&self, headers: &HeaderMap, now: Timestamp) -> Result<Option<Arc<Claims>>, BadToken> {
        match self.verified(headers, now) {
            Ok(claims) => Ok(Some(claims)),
            Err(bad) => {
                if let Some(count) = self.counts.bad.get(bad as usize) {
                    count.fetch_add(1, Ordering::Relaxed);
                }
                if self.spec.required { Err(bad) } else { Ok(None) }
            }
        }
    }

    fn verified(&self, headers: &HeaderMap, now: Timestamp) -> Result<Arc<Claims>, BadToken> {
        let text = self.token_in(headers)?;
        if text.len() > LONGEST {
            return Err(BadToken::TooLong);
        }
        if self.spec.trust == TokenTrust::Nothing {
            return Ok(Arc::new(self.told_by(&Token::parse(text)?)));
        }
        let ring = self.ring.load();
        let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
        let digest = digest.as_ref().try_into().map_err(|_| BadToken::Malformed)?;
        if let Some(claims) = ring.remembered.get(&digest, now) {
            self.counts.remembered.fetch_add(1, Ordering::Relaxed);
            return Ok(claims);
        }
        let token = Token::parse(text)?;
        token.verify(&self.spec, &ring.keys, now)?;
        self.counts.verified.fetch_add(1, Ordering::Relaxed);
        let claims = Arc::new(self.told_by(&token));
        let longest = now.plus(LONGEST_REMEMBERED);
        let until = token.good_until(&self.spec).map_or(longest, |until| until.min(longest));
        ring.remembered.put(digest, &claims, until);
        Ok(claims)
    }

    fn told_by(&self, token: &Token<'_>) -> Claims {
        let value = |name: &str| {
            let value = shortened(claim(&token.claims, name)?.into());
            Some((name.into(), value.into_owned().into_boxed_str()))
        };
        Claims(self.wanted.iter().filter_map(|name| value(name)).collect())
    }

    fn token_in<'h>(&self, headers: &'h HeaderMap) -> Result<&'h str, BadToken> {
        let alone = |name: &str| {
            let mut values = headers.get_all(name).iter();
            let (first, more) = (values.next(), values.next());
            match (first, more) {
                (Some(value), None) => value.to_str().map(Some).map_err(|_| BadToken::Malformed),
                (Some(_), Some(_)) => Err(BadToken::Malformed),
                (None, _) => Ok(None),
            }
        };
        let found = match &self.spec.place {
            TokenPlace::Bearer => alone(AUTHORIZATION.as_str())?.and_then(bearer),
            TokenPlace::Header(name) => alone(name)?.map(|value| bearer(value).unwrap_or(value)),
            TokenPlace::Cookie(name) => match cookie(headers, name) {
                Some(Cow::Borrowed(value)) => Some(value),
                // No text at all.
                Some(Cow::Owned(_)) => return Err(BadToken::Malformed),
                None => None,
            },
        };
        found.map(str::trim).filter(|token| !token.is_empty()).ok_or(BadToken::Missing)
    }
}

impl Ring {
    fn new(texts: Vec<Vec<u8>>, keys: Arc<[Key]>) -> Self {
        Self { texts, keys, remembered: Remembered::default() }
    }

    /// What is in the files of keys, and in the one of the secret, whose text is the last.
    fn read(
        texts: Vec<Vec<u8>>,
        files: &[Arc<str>],
        secret: Option<&str>,
        algorithms: &[JwtAlgorithm],
    ) -> anyhow::Result<Self> {
        let mut keys = Vec::new();
        for (path, text) in files.iter().zip(&texts) {
            keys.extend(keys::read(text).with_context(|| path.to_string())?);
        }
        if let (Some(path), Some(text)) = (secret, texts.get(files.len())) {
            keys.push(Key::secret(text.trim_ascii_end()).with_context(|| path.to_owned())?);
        }
        Ok(Self::new(texts, keys.into_iter().map(|key| key.only(algorithms)).collect()))
    }
}

fn read_all<'p>(paths: impl Iterator<Item = &'p Arc<str>>) -> anyhow::Result<Vec<Vec<u8>>> {
    paths.map(|path| std::fs::read(&**path).with_context(|| format!("cannot read {path}"))).collect()
}

fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.trim_start().split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token)
}
