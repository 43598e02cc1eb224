//! `envoy.service.ratelimit.v3.RateLimitRequest`: from bytes to a check.
//!
//! Texts stay where they arrived; a common request allocates nothing. Field numbers and units are those of Envoy 1.40.

use smallvec::SmallVec;
use tollgate::rules::{LyftUnit, Override};
use tollgate::{Attribute, Check, Descriptor};

use super::wire::{Malformed, Reader};
use crate::protocol::bounds::{MOST_DESCRIPTORS, MOST_ENTRIES};

/// A request, checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Request<'a> {
    pub(crate) domain: &'a str,
    /// What each descriptor costs that says nothing else; zero as it was sent, which means one.
    pub(crate) hits_addend: u32,
    /// Those of all descriptors, one after the other.
    entries: SmallVec<[Attribute<'a>; 4]>,
    pub(crate) descriptors: SmallVec<[Asked; 1]>,
}

/// One descriptor as it was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    /// Its entries: the first, and the one after the last.
    entries: (usize, usize),
    pub(crate) limit: Option<Override>,
    pub(crate) hits_addend: Option<u64>,
    pub(crate) is_refund: bool,
}

/// Why a request cannot be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It makes no sense.
    Invalid(String),
    /// What envoyproxy/ratelimit refuses, in its words.
    Upstream(&'static str),
}

impl From<Malformed> for Refusal {
    fn from(Malformed(why): Malformed) -> Self {
        Self::Invalid(format!("the message is no RateLimitRequest: {why}"))
    }
}

/// A limit as it was sent, before it is known to make sense.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SentLimit {
    pub(crate) requests_per_unit: u32,
    pub(crate) unit: i32,
    pub(crate) unit_multiplier: u32,
}

impl<'a> Request<'a> {
    /// Reads a message.
    pub(crate) fn decode(message: &'a [u8]) -> Result<Self, Refusal> {
        let mut request = Self::default();
        let mut fields = Reader::new(message);
        while let Some((number, field)) = fields.next()? {
            match number {
                1 => request.domain = field.text()?,
                2 => request.decode_descriptor(field.bytes()?)?,
                3 => request.hits_addend = field.number()? as u32,
                _ => {}
            }
        }
        request.checked()
    }

    fn decode_descriptor(&mut self, message: &'a [u8]) -> Result<(), Refusal> {
        let mut asked = self.begin()?;
        let mut limit = None;
        let mut fields = Reader::new(message);
        while let Some((number, field)) = fields.next()? {
            match number {
                1 => {
                    let (key, value) = decode_entry(field.bytes()?)?;
                    self.enter(&asked, key, value)?;
                }
                2 => decode_limit(field.bytes()?, limit.get_or_insert_default())?,
                3 => decode_wrapped(field.bytes()?, asked.hits_addend.get_or_insert_default())?,
                4 => asked.is_refund = field.number()? != 0,
                _ => {}
            }
        }
        asked.limit = limit.map(|limit| self.known(limit)).transpose()?;
        self.end(asked);
        Ok(())
    }

    /// Begins a descriptor.
    pub(crate) fn begin(&self) -> Result<Asked, Refusal> {
        if self.descriptors.len() == MOST_DESCRIPTORS {
            return Err(Refusal::Invalid(format!("a request has at most {MOST_DESCRIPTORS} descriptors")));
        }
        let first = self.entries.len();
        Ok(Asked { entries: (first, first), ..Asked::default() })
    }

    /// Adds an entry to the descriptor that was begun.
    pub(crate) fn enter(&mut self, asked: &Asked, key: &'a str, value: &'a str) -> Result<(), Refusal> {
        if self.entries.len() - asked.entries.0 == MOST_ENTRIES {
            let at = self.descriptors.len();
            return Err(Refusal::Invalid(format!("descriptors[{at}]: at most {MOST_ENTRIES} entries are possible")));
        }
        self.entries.push((key, value));
        Ok(())
    }

    /// The limit of the descriptor that was begun, if there is such a thing.
    pub(crate) fn known(&self, limit: SentLimit) -> Result<Override, Refusal> {
        let at = self.descriptors.len();
        let SentLimit { requests_per_unit, unit, unit_multiplier } = limit;
        if unit_multiplier > 1 {
            let why = "is not supported here: send a limit per one unit, or write the limit into the rules";
            return Err(Refusal::Invalid(format!("descriptors[{at}].limit: unit_multiplier {unit_multiplier} {why}")));
        }
        // Envoy's units of overrides have no week.
        let unit = match unit {
            1 => LyftUnit::Second,
            2 => LyftUnit::Minute,
            3 => LyftUnit::Hour,
            4 => LyftUnit::Day,
            5 => LyftUnit::Month,
            6 => LyftUnit::Year,
            unknown => {
                let known = "SECOND (1), MINUTE (2), HOUR (3), DAY (4), MONTH (5) or YEAR (6)";
                return Err(Refusal::Invalid(format!("descriptors[{at}].limit: unit {unknown} is not one of {known}")));
            }
        };
        Ok(Override { requests_per_unit, unit })
    }

    /// Ends the descriptor that was begun.
    pub(crate) fn end(&mut self, asked: Asked) {
        let entries = (asked.entries.0, self.entries.len());
        self.descriptors.push(Asked { entries, ..asked });
    }

    /// What envoyproxy/ratelimit refuses is refused in its words.
    pub(crate) fn checked(self) -> Result<Self, Refusal> {
        if self.domain.is_empty() {
            return Err(Refusal::Upstream("rate limit domain must not be empty"));
        }
        if self.descriptors.is_empty() {
            return Err(Refusal::Upstream("rate limit descriptor list must not be empty"));
        }
        Ok(self)
    }

    pub(crate) fn entries_of(&self, asked: &Asked) -> &[Attribute<'a>] {
        self.entries.get(asked.entries.0..asked.entries.1).unwrap_or(&[])
    }

    /// The descriptors as the gate knows them, for [`Self::check`].
    pub(crate) fn descriptors(&self) -> SmallVec<[Descriptor<'_>; 1]> {
        let descriptor = |asked: &Asked| Descriptor {
            limit: asked.limit,
            cost: asked.hits_addend,
            refund: asked.is_refund,
            ..Descriptor::new(self.entries_of(asked))
        };
        self.descriptors.iter().map(descriptor).collect()
    }

    pub(crate) fn check<'c>(&'c self, descriptors: &'c [Descriptor<'c>]) -> Check<'c> {
        Check::descriptors(self.domain, descriptors).cost(u64::from(self.hits_addend.max(1)))
    }
}

fn decode_entry(message: &[u8]) -> Result<Attribute<'_>, Malformed> {
    let (mut key, mut value) = ("", "");
    let mut fields = Reader::new(message);
    while let Some((number, field)) = fields.next()? {
        match number {
            1 => key = field.text()?,
            2 => value = field.text()?,
            _ => {}
        }
    }
    Ok((key, value))
}

/// A message that is sent twice is read as one.
fn decode_limit(message: &[u8], limit: &mut SentLimit) -> Result<(), Malformed> {
    let mut fields = Reader::new(message);
    while let Some((number, field)) = fields.next()? {
        match number {
            1 => limit.requests_per_unit = field.number()? as u32,
            2 => limit.unit = field.number()? as i32,
            3 => {
                let mut multiplier = u64::from(limit.unit_multiplier);
                decode_wrapped(field.bytes()?, &mut multiplier)?;
                limit.unit_multiplier = multiplier as u32;
            }
            _ => {}
        }
    }
    Ok(())
}

/// A wrapper's value; an empty one is zero.
fn decode_wrapped(message: &[u8], value: &mut u64) -> Result<(), Malformed> {
    let mut fields = Reader::new(message);
    while let Some((number, field)) = fields.next()? {
        if number == 1 {
            *value = field.number()?;
        }
    }
    Ok(())
}
