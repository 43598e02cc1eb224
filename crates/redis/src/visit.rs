//! Looking at what is stored, without changing it: for people, not for decisions.

use std::collections::HashSet;

use crate::call::{Link, Request, TAGS, Tag};
use crate::keys::Name;

/// Answers each request about its one key: what is stored there, or what the next keys are.
const SCRIPT: &str = include_str!("visit.lua");

/// The script of a link that [`Visitor`] can use.
pub fn visiting_script() -> &'static str {
    SCRIPT
}

/// Reads keys and values of tollgate's, over a link that has [`visiting_script`].
#[derive(Debug)]
pub struct Visitor<L> {
    link: L,
}

/// What is stored under a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stored {
    /// Nothing.
    Nothing,
    /// A value, and for how many milliseconds more if not for ever.
    Value(Vec<u8>, Option<u64>),
    /// Something of another type.
    Other(String),
}

impl<L: Link> Visitor<L> {
    /// Looks through `link`.
    pub fn new(link: L) -> Self {
        Self { link }
    }

    /// What carries its requests.
    pub fn link(&self) -> &L {
        &self.link
    }

    /// What is stored under `key`.
    pub async fn read(&self, key: &[u8]) -> Result<Stored, L::Error> {
        let reply = self.ask(tag_of(key).unwrap_or(Tag::new(0)), key, b"value").await?;
        let (kind, rest) = reply.split_first().unwrap_or((&b'n', &[]));
        let text = || String::from_utf8_lossy(rest).into_owned();
        Ok(match kind {
            b'n' => Stored::Nothing,
            b's' => {
                let end = rest.iter().position(|byte| *byte == b' ').unwrap_or(rest.len());
                let (ttl, value) = rest.split_at(end);
                let ttl = std::str::from_utf8(ttl).ok().and_then(|ttl| ttl.parse().ok());
                Stored::Value(value.get(1..).unwrap_or_default().to_vec(), ttl)
            }
            _ => Stored::Other(text()),
        })
    }

    /// At most `most` keys of tollgate's for which `wanted` holds, from all servers that hold some.
    pub async fn keys(&self, most: usize, mut wanted: impl FnMut(&[u8]) -> bool) -> Result<Vec<Vec<u8>>, L::Error> {
        let mut found = HashSet::new();
        let mut servers = HashSet::new();
        // In a Cluster every server is met by some tag; otherwise there is one.
        let tags = if self.link.one_tag_per_call() { TAGS } else { 1 };
        for tag in (0..u64::from(tags)).map(Tag::new) {
            let name = [b"tg1:{", &tag.text()[..], b"}"].concat();
            if found.len() >= most || !servers.insert(self.ask(tag, &name, b"server").await?) {
                continue;
            }
            let mut cursor = b"0".to_vec();
            while found.len() < most {
                let reply = self.ask(tag, &name, &cursor).await?;
                let Some(page) = Page::parse(&reply) else { break };
                // What a counter keeps beside its value is told with it.
                let is_whole = |key: &[u8]| Name::parse(key).is_some_and(|name| !name.is_middle());
                let ours = page.keys.into_iter().filter(|key| is_whole(key) && wanted(key));
                found.extend(ours.map(<[u8]>::to_vec));
                cursor = page.cursor.to_vec();
                if cursor == b"0" {
                    break;
                }
            }
        }
        let mut found: Vec<_> = found.into_iter().collect();
        found.sort_unstable();
        found.truncate(most);
        Ok(found)
    }

    async fn ask(&self, tag: Tag, key: &[u8], what: &[u8]) -> Result<Vec<u8>, L::Error> {
        self.link.call(Request::new(tag, [key], what, true)).await.map(|reply| reply.to_vec())
    }
}

/// Where a key lives, if it is tollgate's.
fn tag_of(key: &[u8]) -> Option<Tag> {
    let (Name::Counter { tag, .. } | Name::Reservation { tag, .. }) = Name::parse(key)?;
    u64::from_str_radix(std::str::from_utf8(tag).ok()?, 16).ok().map(Tag::new)
}

/// Some keys: where the next are, and they themselves behind their lengths.
struct Page<'r> {
    cursor: &'r [u8],
    keys: Vec<&'r [u8]>,
}

impl<'r> Page<'r> {
    fn parse(reply: &'r [u8]) -> Option<Self> {
        let (cursor, mut rest) = word(reply, b' ')?;
        let mut keys = Vec::new();
        while !rest.is_empty() {
            let (length, after) = word(rest, b':')?;
            let length = std::str::from_utf8(length).ok()?.parse().ok()?;
            let (key, after) = after.split_at_checked(length)?;
            keys.push(key);
            rest = after;
        }
        Some(Self { cursor, keys })
    }
}

/// What is before the next `end`, and what is after it.
fn word(bytes: &[u8], end: u8) -> Option<(&[u8], &[u8])> {
    let at = bytes.iter().position(|byte| *byte == end)?;
    Some((bytes.get(..at)?, bytes.get(at + 1..)?))
}

/// The number of the limit that a key counts, and the values that it counts by; `None` for reservations and what is not
/// tollgate's.
pub fn counted_by(key: &[u8]) -> Option<(u64, Vec<&[u8]>)> {
    match Name::parse(key)? {
        Name::Counter { limit, values, .. } => Some((limit, values)),
        Name::Reservation { .. } => None,
    }
}
