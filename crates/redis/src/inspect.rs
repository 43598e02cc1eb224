//! What is stored, in words.
//!
//! ```text
//!   nothing                                         as good as new
//!   fresh:f64                                       a cell whose word is zero
//!   fresh:f64 word:f64                              a cell
//!   2 fresh:f64 current:u32 previous:u32            a sliding counter
//!   3 fresh:f64 word:f64 previous:f64 over:f64 n:u32 holds marks
//!       n holds of reservations: id due:f64 cost:f64 proceeds_at:f64 lease
//!       marks to the end: at:f64 and a count:f64, or a lease
//!   4 due:f64 n:u32 counters tags                   a reservation
//!   5 fresh:f64 word:f64 over:f64 ahead:u32 between:u32 n:u32 holds marks
//!       a long log; its oldest marks are the first `ahead` bytes, and `between` marks after those are elsewhere
//!   6 due:f64 how n:u16 (high:f64 low:f64)… tags    a reservation that was settled, and held something elsewhere
//! ```
//!
//! Those are in a List under a name of its own (`keys.rs`): first an index, `last:f64 units:f64 marks:u16` for each
//! block, and then the blocks, some marks each.
//!
//! Numbers are little-endian. Which algorithm a counter is of is told by its lineage.

use std::fmt::Write;

use tollgate::rules::Value;

use crate::keys::Name;

/// How many marks or holds are written out.
const SHOWN: usize = 10;

const ALGORITHMS: [&str; 9] = [
    "token bucket or meter",
    "token bucket with refill at intervals",
    "leaky queue",
    "fixed window",
    "sliding log",
    "sliding counter",
    "sliding counter of sub-windows",
    "concurrency limit",
    "paced budget",
];
const BUCKET: usize = 0;
const INTERVAL: usize = 1;
const QUEUE: usize = 2;
const LOG: usize = 4;
const COUNTER: usize = 5;
const SLOTS: usize = 7;

/// Explains a key of tollgate's in Redis, and what is stored under it if anything is. Says so if it is not one.
pub fn inspect(key: &[u8], value: Option<&[u8]>) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = match Name::parse(key) {
        None => writeln!(text, "not a key of tollgate's"),
        Some(Name::Reservation { tag, id }) => {
            let tag = tag.escape_ascii();
            let _ = writeln!(text, "reservation {id:016x} (hash tag {tag})");
            explain(&mut text, value, reservation)
        }
        Some(Name::Counter { tag, lineage, limit, values, is_middle }) => {
            let kind = kind_of(lineage);
            let name = ALGORITHMS.get(kind).copied().unwrap_or("unknown algorithm");
            let values: Vec<String> = values.iter().map(|value| in_words(value)).collect();
            let values = if values.is_empty() { "everyone".to_owned() } else { values.join(", ") };
            let tag = tag.escape_ascii();
            let part = if is_middle { "between the oldest and the newest marks of a " } else { "" };
            let _ = writeln!(text, "{part}{name}, limit {limit:016x}, for {values} (hash tag {tag})");
            explain(&mut text, value, |text, value| match is_middle {
                true => marks(text, kind, Reader(value)),
                false => counter(text, kind, value),
            })
        }
    };
    text
}

/// A value that is counted by.
fn in_words(value: &[u8]) -> String {
    match Value::network_in(value) {
        Some(network) => format!("network {network}"),
        None => format!("\"{}\"", value.escape_ascii()),
    }
}

fn explain(
    text: &mut String,
    value: Option<&[u8]>,
    with: impl FnOnce(&mut String, &[u8]) -> Option<()>,
) -> std::fmt::Result {
    match value {
        None => writeln!(text, "  nothing is stored: as good as new"),
        Some(value) => {
            let written = text.len();
            if with(text, value).is_none() {
                text.truncate(written);
                writeln!(
                    text,
                    "  not a value of tollgate's ({} bytes): it counts as nothing and will be overwritten",
                    value.len()
                )?;
            }
            Ok(())
        }
    }
}

/// The number of a lineage's algorithm: its lowest digit, once it is unmixed.
fn kind_of(lineage: u64) -> usize {
    (unmix(lineage) % 16) as usize
}

/// The opposite of [`tollgate_core::mix`].
fn unmix(mut x: u64) -> u64 {
    x ^= x >> 31 ^ x >> 62;
    x = x.wrapping_mul(inverse(0x94d0_49bb_1331_11eb));
    x ^= x >> 27 ^ x >> 54;
    x = x.wrapping_mul(inverse(0xbf58_476d_1ce4_e5b9));
    x ^ x >> 30 ^ x >> 60
}

/// What an odd number has to be multiplied by to make one. Each round doubles how many bits are right.
const fn inverse(odd: u64) -> u64 {
    let mut inverse = odd;
    let mut round = 0;
    while round < 6 {
        inverse = inverse.wrapping_mul(2_u64.wrapping_sub(odd.wrapping_mul(inverse)));
        round += 1;
    }
    inverse
}

struct Reader<'v>(&'v [u8]);

impl<'v> Reader<'v> {
    fn take(&mut self, count: usize) -> Option<&'v [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u64> {
        let number = f64::from_le_bytes(self.take(8)?.try_into().ok()?);
        (number >= 0.0 && number.fract() == 0.0 && number <= 9_007_199_254_740_992.0).then_some(number as u64)
    }

    fn short(&mut self) -> Option<u64> {
        Some(u64::from(u32::from_le_bytes(self.take(4)?.try_into().ok()?)))
    }

    fn bits(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }
}

/// An instant as people write it, or in microseconds if no calendar has it.
fn at(micros: u64) -> String {
    let date = i64::try_from(micros).ok().and_then(|micros| jiff::Timestamp::from_microsecond(micros).ok());
    date.map_or_else(|| format!("{micros} us"), |date| date.to_string())
}

fn counter(text: &mut String, kind: usize, value: &[u8]) -> Option<()> {
    let mut reader = Reader(value);
    match value.len() {
        8 => {
            let fresh = reader.number()?;
            cell(text, kind, fresh, 0, 0);
        }
        16 => {
            let (fresh, word) = (reader.number()?, reader.number()?);
            cell(text, kind, fresh, word, 0);
        }
        17 if value.first() == Some(&2) => {
            reader.take(1)?;
            let (fresh, current, previous) = (reader.number()?, reader.short()?, reader.short()?);
            cell(text, kind, fresh, current, previous);
        }
        _ if value.first() == Some(&3) => {
            reader.take(1)?;
            let (fresh, word, previous) = (reader.number()?, reader.number()?, reader.number()?);
            let (over, holds) = (reader.number()?, reader.short()?);
            cell(text, kind, fresh, word, previous);
            overage_and_holds(text, over, holds, &mut reader)?;
            marks(text, kind, reader)?;
        }
        _ if value.first() == Some(&5) => {
            reader.take(1)?;
            let (fresh, word, over) = (reader.number()?, reader.number()?, reader.number()?);
            let (ahead, between, holds) = (reader.short()?, reader.short()?, reader.short()?);
            cell(text, kind, fresh, word, 0);
            overage_and_holds(text, over, holds, &mut reader)?;
            let oldest = Reader(reader.take(usize::try_from(ahead).ok()?)?);
            marks(text, kind, oldest)?;
            let _ = writeln!(text, "  and {between} marks between these, kept beside them");
            marks(text, kind, reader)?;
        }
        _ => return None,
    }
    Some(())
}

fn overage_and_holds(text: &mut String, over: u64, holds: u64, reader: &mut Reader<'_>) -> Option<()> {
    if over > 0 {
        let _ = writeln!(text, "  above the limit since {}", at(over));
    }
    for index in 0..holds {
        let (id, due, cost) = (reader.bits()?, reader.number()?, reader.number()?);
        let (proceeds_at, lease) = (reader.number()?, reader.bits()?);
        if index < SHOWN as u64 {
            let (due, proceeds_at) = (at(due), at(proceeds_at));
            let _ = writeln!(text, "  {cost} of {proceeds_at} reserved until {due} as {id:016x} (lease {lease:016x})");
        }
    }
    Some(())
}

fn cell(text: &mut String, kind: usize, fresh: u64, word: u64, previous: u64) {
    let until = at(fresh);
    let _ = match kind {
        BUCKET if word >= 1 << 52 => writeln!(text, "  overdrawn, full at {until}"),
        // Or a fraction, at a rate that is reduced to more than 2^26 tokens per so many microseconds.
        BUCKET if word >= 1 << 26 => writeln!(text, "  overdrawn by {} at most, full at {until}", word >> 26),
        BUCKET => writeln!(text, "  full at {until}"),
        INTERVAL => writeln!(text, "  {word} tokens missing, full at {until}"),
        QUEUE => writeln!(text, "  next free departure at {until}"),
        COUNTER => writeln!(text, "  {word} counted in its window and {previous} in the one before, over at {until}"),
        LOG => writeln!(text, "  {word} counted, all forgotten at {until}"),
        _ if word > 0 => writeln!(text, "  {word} counted, over at {until}"),
        _ => writeln!(text, "  over at {until}"),
    };
}

fn marks(text: &mut String, kind: usize, mut reader: Reader<'_>) -> Option<()> {
    let (all, rest) = (reader.0.len() / 16, reader.0.len() % 16);
    if rest > 0 {
        return None;
    }
    for index in 0..all {
        let instant = reader.number()?;
        let note = if kind == SLOTS { reader.bits()? } else { reader.number()? };
        let _ = match index {
            SHOWN => writeln!(text, "  and {} more", all - SHOWN),
            _ if index > SHOWN => Ok(()),
            _ if kind == SLOTS => writeln!(text, "  a slot held until {} by lease {note:016x}", at(instant)),
            _ => writeln!(text, "  {note} at {}", at(instant)),
        };
    }
    Some(())
}

fn reservation(text: &mut String, value: &[u8]) -> Option<()> {
    let mut reader = Reader(value);
    let layout = reader.take(1)?;
    if layout == [6] {
        let (due, how) = (reader.number()?, reader.take(1)?);
        let how = if how == [2] { "cancelled" } else { "committed" };
        let _ = writeln!(text, "  {how}, here and at other hash tags; remembered until {}", at(due));
        return Some(());
    }
    if layout != [4] {
        return None;
    }
    let (due, counters) = (reader.number()?, reader.short()?);
    let _ = writeln!(text, "  given back at {} unless it is settled before", at(due));
    for _ in 0..counters {
        let (name, charge) = (reader.short()?, reader.short()?);
        let proceeds_at = reader.number()?;
        let name = reader.take(usize::try_from(name).ok()?)?;
        reader.take(usize::try_from(charge).ok()?)?;
        let held = inspect(name, None);
        let _ = writeln!(text, "  holds of {}: {}", at(proceeds_at), held.lines().next().unwrap_or_default());
    }
    let elsewhere = reader.0.len() / 2;
    if elsewhere > 0 {
        let _ = writeln!(text, "  and of {elsewhere} other hash tags");
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys;
    use tollgate::{Charge, Concurrency, Key, Limit, Micros, Rate, SlidingCounter, SlidingLog, TokenBucket};

    fn name_of(limit: &Limit) -> Vec<u8> {
        let charge = Charge::new(Key::new(7, &[b"alice", b"/\xff"]), limit);
        keys::counter(&charge, keys::tag_of(&charge))
    }

    fn bytes(numbers: &[f64]) -> Vec<u8> {
        numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
    }

    #[test]
    fn mixing_can_be_undone() {
        for number in [0, 1, 16, 0xdead_beef, u64::MAX] {
            assert_eq!(unmix(tollgate_core::mix(number)), number);
        }
    }

    #[test]
    fn a_bucket_says_when_it_is_full() {
        let limit = Limit::new(TokenBucket::new(Rate::per_second(5))).unwrap();
        let text = inspect(&name_of(&limit), Some(&bytes(&[1_700_000_000_500_000.0])));
        let (head, rest) = text.split_once('\n').unwrap();
        assert!(head.starts_with(r#"token bucket or meter, limit 0000000000000007, for "alice", "/\xff""#), "{text}");
        assert_eq!(rest, "  full at 2023-11-14T22:13:20.5Z\n");
        let text = inspect(&name_of(&limit), Some(&bytes(&[1_700_000_000_500_000.0, f64::from(3 << 26)])));
        assert!(text.ends_with("\n  overdrawn by 3 at most, full at 2023-11-14T22:13:20.5Z\n"), "{text}");
        assert!(inspect(&name_of(&limit), None).ends_with("as good as new\n"));
    }

    #[test]
    fn counters_and_slots_are_told_from_it() {
        let counter = Limit::new(SlidingCounter::new(5, Micros::MINUTE)).unwrap();
        let value = [&[2][..], &bytes(&[120e6]), &3_u32.to_le_bytes(), &4_u32.to_le_bytes()].concat();
        let text = inspect(&name_of(&counter), Some(&value));
        assert!(
            text.contains("3 counted in its window and 4 in the one before, over at 1970-01-01T00:02:00Z"),
            "{text}"
        );
        let slots = Limit::new(Concurrency::new(5, Micros::MINUTE)).unwrap();
        let value = [&[3][..], &bytes(&[60e6, 0.0, 0.0, 0.0]), &[0; 4], &bytes(&[60e6]), &9_u64.to_le_bytes()].concat();
        let text = inspect(&name_of(&slots), Some(&value));
        assert!(text.contains("a slot held until 1970-01-01T00:01:00Z by lease 0000000000000009"), "{text}");
    }

    #[test]
    fn a_long_log_tells_of_its_blocks() {
        let log = Limit::new(SlidingLog::new(1_000, Micros::MINUTE)).unwrap();
        let counts = |numbers: [u32; 3]| numbers.map(u32::to_le_bytes).concat();
        let head = [&[5][..], &bytes(&[66e6, 14.0, 0.0]), &counts([16, 7, 0])].concat();
        let value = [&head[..], &bytes(&[1e6, 4.0, 6e6, 1.0])].concat();
        let text = inspect(&name_of(&log), Some(&value));
        let lines: Vec<&str> = text.lines().skip(1).collect();
        assert_eq!(
            lines,
            [
                "  14 counted, all forgotten at 1970-01-01T00:01:06Z",
                "  4 at 1970-01-01T00:00:01Z",
                "  and 7 marks between these, kept beside them",
                "  1 at 1970-01-01T00:00:06Z",
            ]
        );
        for length in 1..head.len() + 16 {
            let text = inspect(&name_of(&log), Some(&value[..length]));
            assert!(text.contains("not a value of tollgate's"), "cut to {length}: {text}");
        }
        let beside = inspect(&keys::middle(&name_of(&log)), Some(&bytes(&[2e6, 1.0, 3e6, 1.0])));
        assert!(beside.starts_with("between the oldest and the newest marks of a sliding log, limit"), "{beside}");
        assert!(beside.ends_with("  1 at 1970-01-01T00:00:02Z\n  1 at 1970-01-01T00:00:03Z\n"), "{beside}");
    }

    #[test]
    fn what_is_not_ours_is_called_so() {
        let limit = Limit::new(TokenBucket::new(Rate::per_second(5))).unwrap();
        assert_eq!(inspect(b"session:42", Some(b"x")), "not a key of tollgate's\n");
        for value in [&b"hello"[..], b"", &[0xff; 16], &[3; 60], &[4; 9]] {
            assert!(inspect(&name_of(&limit), Some(value)).contains("not a value of tollgate's"), "{value:?}");
            let name = keys::reservation(tollgate::ReservationId(5), crate::Tag::new(5));
            assert!(inspect(&name, Some(value)).contains("not a value of tollgate's"), "{value:?}");
        }
    }
}
