//! `CL.THROTTLE` as redis-cell 0.5.0 answers it: the same arguments, the same five integers, the same errors.
//!
//! Every key is one token bucket of the engine, with room for `max_burst + 1` and refilled evenly. What differs from
//! redis-cell: nothing is rounded inside (there the time of one unit is cut off to whole nanoseconds), giving back
//! never lifts a key above its limit, a key that is asked for with smaller parameters than before is empty at worst,
//! and numbers that cannot be counted with are refused.

use std::cell::RefCell;
use std::fmt;
use std::ops::Range;

use smallvec::SmallVec;
use tollgate::{Approach, Limit, LimitError, Micros, Outcome, Rate, TokenBucket};

use super::parse::Command;
use super::reply::Replies;
use crate::gate::Gate;

const USAGE: &str =
    "Cell error: Store error: Usage: cl.throttle <key> <max_burst> <count per period> <period> [<quantity>]";
/// The most of an argument that an error repeats.
const MOST_SHOWN: usize = 128;

/// The numbers of a question that make a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Quota {
    max_burst: i64,
    count: i64,
    period: i64,
}

/// Limits that were asked for last on this thread, each in the one place that its numbers lead to: compiling one takes
/// several times as long as deciding by it.
struct Compiled([Option<(Quota, Limit)>; Compiled::PLACES]);

impl Compiled {
    const PLACES: usize = 64;
}

thread_local! {
    static COMPILED: RefCell<Compiled> = const { RefCell::new(Compiled([const { None }; Compiled::PLACES])) };
}

/// Answers the command, by counters in memory.
#[inline]
pub(super) fn throttle(gate: &Gate, command: Command<'_>, replies: &mut Replies<'_>) {
    let asked = read(command).and_then(|(key, quota, quantity)| {
        let outcome = quota.with_limit(|limit| gate.throttle(key, limit, quantity)).map_err(refused)?;
        Ok((quota, outcome))
    });
    match asked {
        Ok((quota, outcome)) => tell(quota, &outcome, replies),
        Err(refusal) => replies.error(refusal),
    }
}

/// The same by counters that servers share.
pub(super) async fn throttle_shared(gate: &Gate, command: Command<'_>, replies: &mut Replies<'_>) {
    let asked = async {
        let (key, quota, quantity) = read(command)?;
        let limit = quota.with_limit(Limit::clone).map_err(refused)?;
        let outcome = gate.throttle_shared(key, &limit, quantity).await.map_err(|error| refused(error.to_string()))?;
        Ok((quota, outcome))
    };
    match asked.await {
        Ok((quota, outcome)) => tell(quota, &outcome, replies),
        Err::<_, Vec<u8>>(refusal) => replies.error(refusal),
    }
}

/// The key, the limit and how many.
#[inline]
fn read(command: Command<'_>) -> Result<(&[u8], Quota, i64), Vec<u8>> {
    let (Some(key), Some(max_burst), Some(count), Some(period), 5..=6) =
        (command.get(1), command.get(2), command.get(3), command.get(4), command.len())
    else {
        return Err(USAGE.into());
    };
    let numbers = (|| {
        let quota = Quota { max_burst: integer(max_burst)?, count: integer(count)?, period: integer(period)? };
        Ok((quota, command.get(5).map_or(Ok(1), integer)?))
    })();
    match numbers {
        Ok((quota, quantity)) => Ok((key, quota, quantity)),
        Err(NotAnInteger(argument)) => {
            let shown = argument.get(..MOST_SHOWN).unwrap_or(argument);
            Err([b"Cell error: Store error: Couldn't parse as integer: ", shown].concat())
        }
    }
}

fn refused(why: impl fmt::Display) -> Vec<u8> {
    format!("Cell error: Store error: {why}").into_bytes()
}

/// Commands that stand in a row in a pipeline, each for one unit: their counters are fetched all at once, before the
/// first is decided.
#[derive(Default)]
pub(super) struct Row(SmallVec<[Waiting; Row::LONGEST]>);

/// One of them.
struct Waiting {
    quota: Quota,
    /// Where in the bytes that were read its key is.
    key: Range<usize>,
    approach: Approach,
}

impl Row {
    const LONGEST: usize = 16;

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.0.len() >= Self::LONGEST
    }

    /// Takes a command, which was parsed from the bytes at `at`, if it is an ordinary one: `false` leaves it to
    /// [`throttle`].
    #[inline]
    pub(super) fn take(&mut self, gate: &Gate, command: Command<'_>, at: usize) -> bool {
        let (Some(key), Some(place), Some(max_burst), Some(count), Some(period), 5) =
            (command.get(1), command.place(1), command.get(2), command.get(3), command.get(4), command.len())
        else {
            return false;
        };
        let (Ok(max_burst), Ok(count), Ok(period)) = (integer(max_burst), integer(count), integer(period)) else {
            return false;
        };
        let quota = Quota { max_burst, count, period };
        let Ok(approach) = quota.with_limit(|limit| gate.approach(key, limit)) else { return false };
        self.0.push(Waiting { quota, key: at + place.start..at + place.end, approach });
        true
    }

    /// Answers all, whose keys are in `bytes`.
    #[inline]
    pub(super) fn answer(self, gate: &Gate, bytes: &[u8], replies: &mut Replies<'_>) {
        let now = gate.now();
        for Waiting { quota, key, approach } in self.0 {
            let key = bytes.get(key).unwrap_or_default();
            match quota.with_limit(|limit| gate.throttle_approached(key, limit, approach, now)) {
                Ok(outcome) => tell(quota, &outcome, replies),
                Err(refusal) => replies.error(refused(refusal)),
            }
        }
    }
}

#[inline]
fn tell(quota: Quota, outcome: &Outcome, replies: &mut Replies<'_>) {
    let limit = quota.max_burst.saturating_add(1);
    let remaining = i64::try_from(outcome.remaining).unwrap_or(i64::MAX).min(limit.max(0));
    let retry_after = if outcome.allowed { -1 } else { outcome.retry_after.map_or(-1, seconds) };
    replies.five_integers([i64::from(outcome.denied()), limit, remaining, retry_after, seconds(outcome.reset_after)]);
}

impl Quota {
    /// Hands on the limit of these numbers, or says why there is none.
    #[inline]
    fn with_limit<T>(self, then: impl FnOnce(&Limit) -> T) -> Result<T, String> {
        COMPILED.with_borrow_mut(|compiled| {
            let place = self.place();
            let Some(place) = compiled.0.get_mut(place) else { return Err(String::new()) };
            let limit = match place {
                Some((quota, limit)) if *quota == self => limit,
                _ => &mut place.insert((self, self.compile()?)).1,
            };
            Ok(then(limit))
        })
    }

    #[inline]
    fn place(self) -> usize {
        let Self { max_burst, count, period } = self;
        let mixed = [max_burst, count, period]
            .iter()
            .fold(0u64, |mixed, number| (mixed ^ *number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        (mixed >> 58) as usize
    }

    #[cold]
    fn compile(self) -> Result<Limit, String> {
        let Self { max_burst, count, period } = self;
        if count == 0 || period == 0 {
            return Err("Zero rates are not supported".to_owned());
        }
        let too_large = || LimitError::TooLarge.to_string();
        let (Ok(count), Ok(period)) = (u64::try_from(count), u64::try_from(period)) else {
            return Err("Negative rates are not supported".to_owned());
        };
        let period = period.checked_mul(1_000_000).map(Micros::from_micros).filter(|period| *period < Micros::MAX);
        let rate = Rate::new(count, period.ok_or_else(too_large)?);
        // With less than no burst nothing ever fits, as with none at all.
        let capacity = max_burst.checked_add(1).map(|most| u64::try_from(most).unwrap_or(0)).ok_or_else(too_large)?;
        Limit::new(TokenBucket::new(rate).burst(capacity)).map_err(|error| error.to_string())
    }
}

/// Whole seconds, one more if at least a millisecond is left over.
#[inline]
fn seconds(span: Micros) -> i64 {
    let micros = span.as_micros();
    (micros / 1_000_000 + u64::from(micros % 1_000_000 >= 1_000)) as i64
}

struct NotAnInteger<'a>(&'a [u8]);

/// Decimal, with a sign if it has one.
#[inline]
fn integer(argument: &[u8]) -> Result<i64, NotAnInteger<'_>> {
    let wrong = NotAnInteger(argument);
    let (negative, digits) = match argument {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() {
        return Err(wrong);
    }
    let mut value = 0i64;
    for digit in digits {
        let digit = i64::from(digit.wrapping_sub(b'0'));
        if digit > 9 {
            return Err(wrong);
        }
        // Towards the sign, so that the smallest number is one too.
        let next = value
            .checked_mul(10)
            .and_then(|ten| if negative { ten.checked_sub(digit) } else { ten.checked_add(digit) });
        let Some(next) = next else { return Err(wrong) };
        value = next;
    }
    Ok(value)
}

#[cfg(test)]
#[path = "throttle_tests.rs"]
mod tests;
