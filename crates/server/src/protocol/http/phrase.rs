//! What clients are told about one limit that let them through, with as little work as possible: nearly every answer of
//! a gateway says it.
//!
//! What is the same in all answers is made once by each thread. The rest is two numbers, written between its parts: as
//! lines of HTTP/1, or into one text of which each header of a map has its part. It is word for word what
//! [`super::headers`] says at length, and says of everything that is not this usual case.

use std::cell::RefCell;
use std::sync::Arc;

use http::{HeaderName, HeaderValue};
use tollgate::{Toll, Verdict};

use super::headers::{MOST, POLICY, RATELIMIT, X_LIMIT, X_REMAINING, X_RESET, effective_window, item, policy_item};
use super::policy::Policy;
use crate::protocol::snippet::{digits, snippet, value_of};
use crate::serve::HeaderProfile;

/// One limit that let a request through, and has nothing else to say.
pub(crate) struct Usual {
    phrase: Arc<Phrase>,
    remaining: u64,
    seconds: u64,
    /// Which headers are wanted.
    has_ietf: bool,
    has_x: bool,
    has_reset: bool,
}

/// What is the same whenever a limit is told.
struct Phrase {
    limit: LimitId,
    policy: HeaderValue,
    /// What `RateLimit` begins with: all before the number that remains.
    beginning: Box<[u8]>,
    units: HeaderValue,
    /// The line of the policy, and the next up to the number that remains.
    ietf: Box<[u8]>,
    /// The line of the limit, and the next up to the number that remains.
    x: Box<[u8]>,
}

/// A limit of a rule set, and how many units it allows just now.
#[derive(Clone, Copy, PartialEq, Eq)]
struct LimitId {
    rules: u64,
    rule: u32,
    limit: u16,
    units: u64,
}

/// Phrases that a thread keeps.
const KEPT: usize = 64;
/// Longer names are told at length.
const LONGEST: usize = 4 << 10;

thread_local! {
    static PHRASES: RefCell<[Option<Arc<Phrase>>; KEPT]> = const { RefCell::new([const { None }; KEPT]) };
}

impl Usual {
    /// What there is to say of a verdict in headers of these families, if it is the usual.
    pub(super) fn of(verdict: &Verdict<'_>, profiles: &[HeaderProfile]) -> Option<Self> {
        let ([toll], []) = (&*verdict.tolls, &*verdict.descriptors) else { return None };
        let has = |profile| profiles.contains(&profile);
        let outcome = &toll.outcome;
        let is_usual = outcome.allowed && !toll.shadow && !outcome.alone && outcome.remaining <= MOST;
        if !is_usual || has(HeaderProfile::Kong) {
            return None;
        }
        let (has_ietf, has_reset) = (has(HeaderProfile::Ietf), has(HeaderProfile::X));
        let seconds = effective_window(toll)?;
        let phrase = phrase(verdict, toll)?;
        let has_x = has_reset || has(HeaderProfile::Seed);
        Some(Self { phrase, remaining: outcome.remaining, seconds, has_ietf, has_x, has_reset })
    }

    /// Hands each header to `header`.
    pub(super) fn tell(self, mut header: impl FnMut(HeaderName, HeaderValue)) {
        let Self { phrase, has_ietf, has_x, has_reset, .. } = self;
        let (mut remaining, mut reset) = (0, 0);
        let text = snippet(|out| {
            out.extend_from_slice(&phrase.beginning);
            digits(out, self.remaining);
            remaining = out.len();
            out.extend_from_slice(b";t=");
            reset = out.len();
            digits(out, self.seconds);
        });
        let part = |part: std::ops::Range<usize>| value_of(text.slice(part));
        let number = part(phrase.beginning.len()..remaining);
        let seconds = part(reset..text.len());
        if has_ietf {
            header(POLICY, phrase.policy.clone());
            header(RATELIMIT, value_of(text));
        }
        if has_x {
            header(X_LIMIT, phrase.units.clone());
            header(X_REMAINING, number);
        }
        if has_reset {
            header(X_RESET, seconds);
        }
    }

    /// Writes each header as a line.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let (mut remaining, mut seconds) = (itoa::Buffer::new(), itoa::Buffer::new());
        let (remaining, seconds) = (remaining.format(self.remaining), seconds.format(self.seconds));
        let mut put = |parts: [&[u8]; 5]| parts.iter().for_each(|part| out.extend_from_slice(part));
        if self.has_ietf {
            put([&self.phrase.ietf, remaining.as_bytes(), b";t=", seconds.as_bytes(), b"\r\n"]);
        }
        if self.has_x {
            put([&self.phrase.x, remaining.as_bytes(), b"\r\n", b"", b""]);
        }
        if self.has_reset {
            put([b"x-ratelimit-reset: ", seconds.as_bytes(), b"\r\n", b"", b""]);
        }
    }
}

/// The phrase for the limit of a toll; `None` if there is none that is short.
fn phrase(verdict: &Verdict<'_>, toll: &Toll) -> Option<Arc<Phrase>> {
    let rule = toll.rule?;
    let limit = LimitId { rules: verdict.rules().serial(), rule, limit: toll.limit, units: toll.outcome.limit };
    PHRASES
        .with_borrow_mut(|phrases| {
            let place = phrases.get_mut(rule as usize % KEPT)?;
            if let Some(phrase) = place.as_ref().filter(|phrase| phrase.limit == limit) {
                return Some(Arc::clone(phrase));
            }
            let made = Arc::new(Phrase::of(limit, verdict, toll));
            *place = Some(Arc::clone(&made));
            Some(made)
        })
        .filter(|phrase| phrase.beginning.len() <= LONGEST)
}

impl Phrase {
    fn of(limit: LimitId, verdict: &Verdict<'_>, toll: &Toll) -> Self {
        let policy = Policy::of(verdict, 0, toll);
        let (mut text, mut beginning) = (Vec::new(), Vec::new());
        policy_item(&mut text, &policy);
        item(&mut beginning, &policy.name());
        beginning.extend_from_slice(b";r=");
        let units = limit.units.to_string();
        let ietf = [b"ratelimit-policy: ", &*text, b"\r\nratelimit: ", &beginning].concat();
        let x = format!("x-ratelimit-limit: {units}\r\nx-ratelimit-remaining: ");
        Self {
            limit,
            policy: value_of(text.into()),
            beginning: beginning.into(),
            units: value_of(units.into()),
            ietf: ietf.into(),
            x: x.into_bytes().into(),
        }
    }
}
