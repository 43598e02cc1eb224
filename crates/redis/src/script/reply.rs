//! Replies of the script.
//!
//! ```text
//!   0 now:f64 outcomes …            answered; what follows depends on what was asked
//!   1 now:f64 at:f64                windows around `at` are needed: nothing was done
//!   2 now:f64 text                  the script failed: nothing was done
//!   3 now:f64 remaining:f64 reset:f64    one charge, admitted without anything else to say
//!
//!   settled:  0 tags …               done; what it holds elsewhere
//!             1                      unknown
//!             2 how count:u16 (high:f64 low:f64)… tags …    done before, in this way
//!
//!   outcome: flags remaining:f64 reset:f64 [retry:f64] [delay:f64] [excess:f64]
//! ```
//!
//! Whatever bytes come, there is an answer or a reason why there is none.

use tollgate::{Micros, Outcome, Settlement, Timestamp};
use tollgate_core::MAX_INTEGER;

use super::request::{CANCEL, COMMIT, COMMIT_ACTUAL, Counter, HALF};
use crate::call::{TAGS, Tag};

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
    /// One for each, and the limits of those that found something else than a state of ours.
    All { answers: Vec<Answer>, now: Timestamp, foreign: Vec<u64> },
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

    /// Tags to the end.
    fn tags(&self) -> Result<Vec<Tag>, Unreadable> {
        let (tags, rest) = self.0.as_chunks::<2>();
        if !rest.is_empty() || tags.len() > usize::from(TAGS) {
            return Err(Unreadable::Malformed("it goes on after its end"));
        }
        Ok(tags.iter().map(|tag| Tag::new(u64::from(u16::from_le_bytes(*tag)))).collect())
    }

    fn how(&mut self) -> Result<How, Unreadable> {
        let mode = self.byte()?;
        let count = u16::from_le_bytes([self.byte()?, self.byte()?]);
        let actual = (0..count).map(|_| Ok((self.integer()? << HALF) | self.integer()?)).collect::<Result<_, _>>()?;
        match mode {
            COMMIT => Ok(How::Commit),
            COMMIT_ACTUAL => Ok(How::CommitActual(actual)),
            CANCEL => Ok(How::Cancel),
            _ => Err(Unreadable::Malformed("a way to settle is unknown")),
        }
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

    fn outcome(&mut self, counter: &Counter<'_>, at: Timestamp, foreign: &mut Vec<u64>) -> Result<Answer, Unreadable> {
        let flags = self.byte()?;
        if flags == AGAIN {
            return self.time().map(Answer::Again);
        }
        if flags == FAILED {
            return Err(Unreadable::Failed(format!("one of a batch, of limit {:016x}", counter.charge.key.limit)));
        }
        let has = |flag: u8| flags & flag != 0;
        let (remaining, reset_after) = (self.integer()?, self.span()?);
        let waits = if has(RETRY) { Some(self.span()?) } else { None };
        let delay = if has(DELAY) { self.span()? } else { Micros::ZERO };
        let excess = if has(EXCESS) { self.integer()? } else { 0 };
        if has(FOREIGN) {
            foreign.push(counter.charge.key.limit);
        }
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
    let mut foreign = Vec::new();
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

/// What came of a settlement at one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Nothing is held there.
    Unknown,
    /// It took effect, and something is held at these other tags.
    Now { elsewhere: Vec<Tag> },
    /// It had taken effect in this way, and may have to be brought to the other tags still.
    Before { how: How, elsewhere: Vec<Tag> },
}

/// How a reservation was settled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum How {
    Commit,
    CommitActual(Vec<u64>),
    Cancel,
}

impl How {
    pub(crate) fn settlement(&self) -> Settlement<'_> {
        match self {
            Self::Commit => Settlement::Commit,
            Self::CommitActual(actual) => Settlement::CommitActual(actual),
            Self::Cancel => Settlement::Cancel,
        }
    }
}

/// The answer to a settlement.
pub(crate) fn ended(reply: &[u8]) -> Result<Ended, Unreadable> {
    let (mut reader, status, _) = Reader::begin(reply)?;
    if status != 0 {
        return Err(Unreadable::Malformed("a settlement needs no windows"));
    }
    match reader.byte()? {
        0 => Ok(Ended::Now { elsewhere: reader.tags()? }),
        1 => reader.end().map(|()| Ended::Unknown),
        2 => Ok(Ended::Before { how: reader.how()?, elsewhere: reader.tags()? }),
        _ => Err(Unreadable::Malformed("its first byte is unknown")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate::{Charge, Key, Limit, Rate, TokenBucket};
    use tollgate_core::mix;

    fn limit() -> Limit {
        Limit::new(TokenBucket::new(Rate::per_second(5))).unwrap()
    }

    fn reply(parts: &[&[u8]], numbers: &[f64]) -> Vec<u8> {
        let numbers = numbers.iter().flat_map(|number| number.to_le_bytes());
        parts.concat().into_iter().chain(numbers).collect()
    }

    #[test]
    fn answers_are_read() {
        let limit = limit();
        let counter = Counter::new(&Charge::new(Key::new(1, &[]), &limit), 0);
        let one = outcomes(&reply(&[&[3]], &[7.0, 4.0, 9.0]), std::slice::from_ref(&counter)).unwrap();
        let Answers::All { answers, now, foreign } = one else { panic!("{one:?}") };
        assert!(foreign.is_empty());
        let [Answer::Outcome(outcome)] = answers[..] else { panic!("{answers:?}") };
        assert_eq!((now.as_micros(), outcome.allowed, outcome.limit, outcome.remaining), (7, true, 5, 4));
        let denied = [reply(&[&[0]], &[7.0]), reply(&[&[RETRY | FOREIGN]], &[0.0, 9.0, 3.0])].concat();
        let denied = outcomes(&denied, std::slice::from_ref(&counter)).unwrap();
        let Answers::All { answers, foreign, .. } = denied else { panic!("{denied:?}") };
        assert_eq!(foreign, [1]);
        let [Answer::Outcome(outcome)] = answers[..] else { panic!("{answers:?}") };
        assert_eq!((outcome.allowed, outcome.retry_after), (false, Some(Micros::from_micros(3))));
        let again = outcomes(&reply(&[&[1]], &[7.0, 8.0]), &[counter]).unwrap();
        let (now, at) = (Timestamp::from_micros(7), Timestamp::from_micros(8));
        assert_eq!(again, Answers::Again { now, at });
        let at_zero = |rest: &[u8]| ended(&[&[0; 9], rest].concat());
        let elsewhere = vec![Tag::new(5)];
        assert_eq!(at_zero(&[0, 5, 0]).unwrap(), Ended::Now { elsewhere: elsewhere.clone() });
        assert_eq!(at_zero(&[1]).unwrap(), Ended::Unknown);
        let costs = [u64::MAX >> HALF, (1 << HALF) - 1].map(|half| (half as f64).to_le_bytes());
        let before = at_zero(&[&[2, 1, 1, 0], &costs[0][..], &costs[1][..], &[5, 0]].concat()).unwrap();
        assert_eq!(before, Ended::Before { how: How::CommitActual(vec![u64::MAX]), elsewhere });
        // Nobody is to ask more places than there are.
        let too_many = [&[0][..], &[5; 2 * 1_025]].concat();
        for wrong in [&[1, 5][..], &[0, 5], &[2], &[2, 3, 0, 0], &[2, 1, 1, 0, 7], &[3], &too_many] {
            assert!(at_zero(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn whatever_comes_there_is_an_answer_or_a_reason() {
        let limit = limit();
        let counters = [1, 2].map(|number| Counter::new(&Charge::new(Key::new(number, &[]), &limit), 0));
        let good = [reply(&[&[0]], &[7.0]), reply(&[&[1]], &[4.0, 9.0]), reply(&[&[1]], &[4.0, 9.0])].concat();
        assert!(outcomes(&good, &counters).is_ok());
        for length in 0..good.len() {
            assert!(outcomes(&good[..length], &counters).is_err(), "cut to {length}");
        }
        assert!(outcomes(&[&good[..], &[0]].concat(), &counters).is_err());
        for number in [-1.0, 0.5, f64::NAN, f64::INFINITY, 1e300] {
            assert!(outcomes(&reply(&[&[3]], &[number, 1.0, 1.0]), &counters[..1]).is_err(), "{number}");
        }
        let failed = [reply(&[&[2]], &[7.0]), vec![0xff; 9_000]].concat();
        let Err(Unreadable::Failed(said)) = outcomes(&failed, &counters) else { panic!("it failed") };
        assert!(said.len() < 1_000);
        for seed in 0..20_000_u64 {
            let length = (mix(seed) % 60) as usize;
            let mut bytes: Vec<u8> = (0..8).flat_map(|word| mix(seed * 8 + word).to_le_bytes()).take(length).collect();
            // Mostly near to what is right.
            if let (true, Some(first)) = (seed % 4 > 0, bytes.first_mut()) {
                *first %= 5;
            }
            if let (true, Some(time)) = (seed % 4 > 1, bytes.get_mut(1..9)) {
                time.copy_from_slice(&7_f64.to_le_bytes());
            }
            let _ = (outcomes(&bytes, &counters), outcomes(&bytes, &counters[..1]), ended(&bytes));
        }
    }
}
