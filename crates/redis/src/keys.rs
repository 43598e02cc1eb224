//! The names of what is stored.
//!
//! ```text
//!   tg1:{3f2}:LLLLLLLLNNNNNNNN v value v value …     a counter: lineage, limit's number, values behind their lengths
//!   tg1:{3f2}+LLLLLLLLNNNNNNNN v value v value …     the same counter's marks between its oldest and its newest
//!   tg1:{3f2}/IIIIIIII                               a reservation
//! ```
//!
//! One hash tag, a version, and an encoding that is injective: whatever bytes a value has, two counters with equal
//! names are one, and no value can put anything before its own place. Numbers are big-endian, lengths are varints.
//!
//! **The tag** is that of the first value that is counted by, so all that is counted by one entity lives together, with a rule by
//! user and another by user and path on the same node of a Cluster. What is counted by nothing has a tag of its own.

use tollgate::{Charge, ReservationId};
use tollgate_core::{mix, stable_hash};

use crate::call::{TAGS, Tag};

/// What every key begins with.
const VERSION: &[u8; 5] = b"tg1:{";
/// How long a tag is.
const TAG: usize = 3;

/// Where a charge's counter lives.
pub(crate) fn tag_of(charge: &Charge<'_>) -> Tag {
    Tag::new(mix(stable_hash(charge.key.values.first().copied())))
}

/// The name of a charge's counter.
pub(crate) fn counter(charge: &Charge<'_>, tag: Tag) -> Vec<u8> {
    let values = charge.key.values;
    let mut name = Vec::with_capacity(26 + values.iter().map(|value| value.len() + 2).sum::<usize>());
    begin(&mut name, tag, b':');
    name.extend_from_slice(&charge.limit.lineage().to_be_bytes());
    name.extend_from_slice(&charge.key.limit.to_be_bytes());
    for value in values {
        put_length(&mut name, value.len());
        name.extend_from_slice(value);
    }
    name
}

/// The name of what a counter keeps beside its value.
pub(crate) fn middle(counter: &[u8]) -> Vec<u8> {
    let mut name = counter.to_vec();
    if let Some(kind) = name.get_mut(VERSION.len() + TAG + 1) {
        *kind = b'+';
    }
    name
}

/// The name of a reservation, or of the part of it that lives at `tag`.
pub(crate) fn reservation(id: ReservationId, tag: Tag) -> Vec<u8> {
    let mut name = Vec::with_capacity(18);
    begin(&mut name, tag, b'/');
    name.extend_from_slice(&id.0.to_be_bytes());
    name
}

/// Where a reservation lives: its last bits say so, since whoever settles it knows nothing else.
pub(crate) fn tag_of_reservation(id: ReservationId) -> Tag {
    Tag::new(id.0)
}

/// A reservation that lives at `tag`, of random bits otherwise.
pub(crate) fn reservation_at(tag: Tag, random: u64) -> ReservationId {
    let places = u64::from(TAGS);
    ReservationId(random - random % places + u64::from(tag.number()))
}

fn begin(name: &mut Vec<u8>, tag: Tag, kind: u8) {
    name.extend_from_slice(VERSION);
    name.extend_from_slice(&tag.text());
    name.extend_from_slice(&[b'}', kind]);
}

fn put_length(name: &mut Vec<u8>, mut length: usize) {
    while length >= 0x80 {
        name.push(length as u8 | 0x80);
        length >>= 7;
    }
    name.push(length as u8);
}

/// A name, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Name<'n> {
    /// The key of its value or, if `is_middle`, that of what it keeps beside that.
    Counter {
        tag: &'n [u8],
        lineage: u64,
        limit: u64,
        values: Vec<&'n [u8]>,
        is_middle: bool,
    },
    Reservation {
        tag: &'n [u8],
        id: u64,
    },
}

impl<'n> Name<'n> {
    /// Whether it is that of what a counter keeps beside its value.
    pub(crate) fn is_middle(&self) -> bool {
        matches!(self, Self::Counter { is_middle: true, .. })
    }

    /// `None` if it is not one of ours.
    pub(crate) fn parse(name: &'n [u8]) -> Option<Self> {
        let rest = name.strip_prefix(VERSION)?;
        let (tag, rest) = rest.split_at_checked(TAG)?;
        let rest = rest.strip_prefix(b"}")?;
        if !tag.iter().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f')) {
            return None;
        }
        let (kind, rest) = rest.split_first()?;
        match kind {
            b'/' => Some(Self::Reservation { tag, id: u64::from_be_bytes(rest.try_into().ok()?) }),
            b':' | b'+' => {
                let (lineage, rest) = rest.split_first_chunk()?;
                let (limit, mut rest) = rest.split_first_chunk()?;
                let mut values = Vec::new();
                while !rest.is_empty() {
                    let (length, after) = take_length(rest)?;
                    let (value, after) = after.split_at_checked(length)?;
                    values.push(value);
                    rest = after;
                }
                let (lineage, limit) = (u64::from_be_bytes(*lineage), u64::from_be_bytes(*limit));
                Some(Self::Counter { tag, lineage, limit, values, is_middle: *kind == b'+' })
            }
            _ => None,
        }
    }
}

fn take_length(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let mut length = 0_usize;
    for (index, byte) in bytes.iter().enumerate().take(9) {
        length |= usize::from(byte & 0x7f).checked_shl(7 * u32::try_from(index).ok()?)?;
        if byte & 0x80 == 0 {
            return Some((length, bytes.get(index + 1..)?));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate::{Key, Limit, Rate, TokenBucket};

    #[test]
    fn a_name_tells_what_it_was_made_of() {
        let limit = Limit::new(TokenBucket::new(Rate::per_second(5))).unwrap();
        let long = vec![b'}'; 70_000];
        let all: [&[&[u8]]; 7] =
            [&[], &[b""], &[b"", b""], &[b"user", b"/a"], &[b"user/a"], &[b"}:tg1:{000}:"], &[&long, b"x"]];
        let mut names = Vec::new();
        for values in all {
            let charge = Charge::new(Key::new(7, values), &limit);
            let name = counter(&charge, tag_of(&charge));
            for (name, middle) in [(middle(&name), true), (name, false)] {
                let Some(Name::Counter { tag, lineage, limit: number, values: parsed, is_middle }) = Name::parse(&name)
                else {
                    panic!("{name:?}");
                };
                assert_eq!((tag, lineage, number), (&tag_of(&charge).text()[..], limit.lineage(), 7));
                assert_eq!((parsed, is_middle), (values.to_vec(), middle));
                assert!(!names.contains(&name));
                names.push(name);
            }
        }
    }

    #[test]
    fn a_reservation_says_where_it_lives() {
        for number in [0, 1, 513, u64::from(TAGS) - 1] {
            let id = reservation_at(Tag::new(number), u64::MAX);
            assert_eq!(tag_of_reservation(id).number(), number as u16);
            let name = reservation(id, Tag::new(number));
            assert_eq!(Name::parse(&name), Some(Name::Reservation { tag: &Tag::new(number).text(), id: id.0 }));
        }
    }

    #[test]
    fn what_is_counted_by_one_entity_lives_together() {
        let limit = Limit::new(TokenBucket::new(Rate::per_second(5))).unwrap();
        let tag = |values: &[&[u8]]| tag_of(&Charge::new(Key::new(1, values), &limit));
        assert_eq!(tag(&[b"alice"]), tag(&[b"alice", b"/search"]));
        assert_ne!(tag(&[b"alice"]), tag(&[b"bob"]));
        assert_ne!(tag(&[]), tag(&[b""]));
    }

    #[test]
    fn what_is_not_ours_is_not_taken_for_it() {
        let cut = b"tg1:{000}:LLLLLLLLNNNNNNNN\x05abc";
        let endless = [&b"tg1:{000}:LLLLLLLLNNNNNNNN"[..], &[0xff; 12]].concat();
        for name in [&b""[..], b"tg1:", b"tg2:{000}/IIIIIIII", b"tg1:{00g}/IIIIIIII", b"tg1:{000}/III", cut, &endless] {
            assert_eq!(Name::parse(name), None, "{name:?}");
        }
    }
}
