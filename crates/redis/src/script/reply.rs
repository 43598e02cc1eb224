//! Replies of the script.
//!
//! ```text
//!   0 now:f64 outcomes …            answered; what follows depends on what was asked
//!   1 now:f64 at:f64                windows around `at` are needed: nothing was done
//!   2 now:f64 text                  the script failed: nothing was done
//!   3 now:f64 remaining:f64 reset:f64    one charge, admitted without anything else to say
//!
//!   outcome: flags remaining:f64 reset:f64 [retry:f64] [delay:f64] [excess:f64]
//! ```
//!
//! Whatever bytes come, there is an answer or a reason why there is none.

use tollgate::{Micros, Outcome, Settled, Timestamp};
use tollgate_core::MAX_INTEGER;

use super::request::Counter;
use crate::call::Tag;

const ONE: u8 = 3;

const ALLOWED: u8 = 1;
const OVERAGE: u8 = 2;
const RETRY: u8 = 4;
const DELAY: u8 = 8;
const EXCESS: u8 = 16;
const FOREIGN: u8 = 32;
const AGAIN: u8 = 64;
const FAILED: u8 = 128;

/// Why a reply is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// It is not one of ours.
    Malformed(&'static str),
    /// The script says that it failed.
    Failed(String),
}

/// What came of one charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Outcome(Outcome),
    /// It has to be asked again, with windows around this instant.
    Again(Timestamp),
}

/// What came of a request for charges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answers {
    /// One for each, and how many of them found something else than a state of ours.
    All { answers: Vec<Answer>, now: Timestamp, foreign: u64 },
    /// All have to be asked again, with windows around these instants.
    Again { now: Timestamp, at: Timestamp },
}

struct Reader<'r>(&'r [u8]);

impl<'r> Reader<'r> {
    fn byte(&mut self) -> Result<u8, Unreadable> {
        let (first, rest) = self.0.split_first().ok_or(Unreadable::Malformed("it ends too soon"))?;
        self.0 = rest;
        Ok(*first)
    }

    fn integer(&mut self) -> Result<u64, Unreadable> {
        let (first, rest) = self.0.split_first_chunk().ok_or(Unreadable::Malformed("it ends too soon"))?;
        self.0 = rest;
        let number = f64::from_le_bytes(*first);
        if number >= 0.0 && number <= (MAX_INTEGER + 1) as f64 && number.fract() == 0.0 {
            return Ok(number as u64);
        }
        Err(Unreadable::Malformed("a number is none that the script writes"))
    }

    fn time(&mut self) -> Result<Timestamp, Unreadable> {
        self.integer().map(Timestamp::from_micros)
    }

    fn span(&mut self) -> Result<Micros, Unreadable> {
        self.integer().map(Micros::from_micros)
    }

    fn end(&self) -> Result<(), Unreadable> {
        if self.0.is_empty() { Ok(()) } else { Err(Unreadable::Malformed("it goes on after its end")) }
    }

    /// The status and the time.
    fn begin(reply: &'r [u8]) -> Result<(Self, u8, Timestamp), Unreadable> {
        let mut reader = Self(reply);
        let status = reader.byte()?;
        let now = reader.time()?;
        match status {
            0 | 1 | ONE => Ok((reader, status, now)),
            2 => Err(Unreadable::Failed(String::from_utf8_lossy(reader.0).chars().take(200).collect())),
            _ => Err(Unreadable::Malformed("its first byte is unknown")),
        }
    }

    fn outcome(&mut self, counter: &Counter<'_>, at: Timestamp, foreign: &mut u64) -> Result<Answer, Unreadable> {
        let flags = self.byte()?;
        if flags == AGAIN {
            return self.time().map(Answer::Again);
        }
        if flags == FAILED {
            return Err(Unreadable::Failed("one of a batch".to_owned()));
        }
        let has = |flag: u8| flags & flag != 0;
        let (remaining, reset_after) = (self.integer()?, self.span()?);
        let waits = if has(RETRY) { Some(self.span()?) } else { None };
        let delay = if has(DELAY) { self.span()? } else { Micros::ZERO };
        let excess = if has(EXCESS) { self.integer()? } else { 0 };
        *foreign += u64::from(has(FOREIGN));
        Ok(Answer::Outcome(Outcome {
            allowed: has(ALLOWED),
            at,
            limit: counter.charge.limit.most(),
            remaining,
            retry_after: if has(ALLOWED) { Some(Micros::ZERO) } else { waits },
            reset_after,
            delay,
            overage: has(OVERAGE),
            shared: false,
            alone: false,
            excess: u32::try_from(excess).unwrap_or(u32::MAX),
        }))
    }
}

/// The answer to a request about `counters`.
pub(crate) fn outcomes(reply: &[u8], counters: &[Counter<'_>]) -> Result<Answers, Unreadable> {
    let (mut reader, status, now) = Reader::begin(reply)?;
    if status == 1 {
        let at = reader.time()?;
        reader.end()?;
        return Ok(Answers::Again { now, at });
    }
    let mut foreign = 0;
    if let (ONE, [counter]) = (status, counters) {
        let (remaining, reset_after) = (reader.integer()?, reader.span()?);
        reader.end()?;
        let limit = counter.charge.limit.most();
        let outcome = Outcome { at: now, limit, remaining, reset_after, ..Outcome::UNLIMITED };
        return Ok(Answers::All { answers: vec![Answer::Outcome(outcome)], now, foreign });
    }
    if status != 0 {
        return Err(Unreadable::Malformed("one answer to several questions"));
    }
    let answers = counters.iter().map(|counter| reader.outcome(counter, now, &mut foreign));
    let answers = answers.collect::<Result<Vec<_>, _>>()?;
    reader.end()?;
    Ok(Answers::All { answers, now, foreign })
}

/// The answer to a settlement, and where else the reservation holds something.
pub(crate) fn settled(reply: &[u8]) -> Result<(Settled, Vec<Tag>), Unreadable> {
    let (mut reader, status, _) = Reader::begin(reply)?;
    if status != 0 {
        return Err(Unreadable::Malformed("a settlement needs no windows"));
    }
    let unknown = reader.byte()? != 0;
    let (tags, rest) = reader.0.as_chunks::<2>();
    if !rest.is_empty() || (unknown && !tags.is_empty()) {
        return Err(Unreadable::Malformed("it goes on after its end"));
    }
    let tags = tags.iter().map(|tag| Tag::new(u64::from(u16::from_le_bytes(*tag)))).collect();
    Ok((if unknown { Settled::Unknown } else { Settled::Done }, tags))
}
