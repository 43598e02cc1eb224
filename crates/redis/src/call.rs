//! What is sent to Redis, and who carries it.
//!
//! A [`Request`] is one question, encoded: some keys and one argument. Many of them make one call of the script, all
//! keys first and then all arguments, and the script answers with an array of as many bulk strings, one [`Reply`] each,
//! in order:
//!
//! ```text
//!   EVALSHA <sha> <sum of key_count()>  <keys() of each> ...  <argument() of each> ...
//! ```
//!
//! The script is [`crate::script::source`]; a link is given its text when it is made, loads it by `SCRIPT LOAD` and
//! calls it by the name that this answers.
//!
//! Nothing here reads or writes a connection, and nothing knows what the bytes mean.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;
use tollgate::join_all;

/// What a decision may take Redis if many are asked for at once: about twice what it takes.
const EACH: Duration = Duration::from_micros(20);
/// More than so many do not wait for longer.
const MOST_AMONG: usize = 4_096;

/// How many tags there are.
pub const TAGS: u16 = 1024;

/// Carries requests to Redis and replies back.
///
/// Whatever happens to a call, a request is either not carried out or carried out once: it is sent a second time only
/// if it is known that the script did not run, or if it [changes nothing](Request::changes_nothing).
pub trait Link: Send + Sync {
    /// Why there is no reply.
    type Error: std::error::Error + Send + Sync + 'static;

    /// Carries one request. Those that are waiting for the same place may share a call.
    fn call(&self, request: Request) -> impl Future<Output = Result<Reply, Self::Error>> + Send;

    /// Carries many requests, as one: those for the same server go there together, in one round trip.
    fn call_all(&self, requests: Vec<Request>) -> impl Future<Output = Vec<Result<Reply, Self::Error>>> + Send {
        join_all(requests.into_iter().map(|request| self.call(request)))
    }

    /// Carries one request whose answer nobody waits for. What is asked later at the same place is answered after it.
    fn send(&self, request: Request);

    /// Whether the keys of one call must all have the same [`Tag`], as in Cluster.
    fn one_tag_per_call(&self) -> bool;
}

tokio::task_local! {
    static AMONG: usize;
}

/// Asks many questions at once: each of them waits for as long as all need.
pub async fn at_once<F: Future>(questions: usize, asking: F) -> F::Output {
    AMONG.scope(questions, asking).await
}

/// How many questions were asked at once where this is one of them.
pub(crate) fn among() -> usize {
    AMONG.try_with(|among| *among).unwrap_or(1)
}

/// What the script answered to one request.
pub type Reply = Bytes;

/// Which keys live together: those of one tag are always on the same node, so that one call can change them as one.
///
/// There are few of them, so that many requests to a Cluster can share a call, and enough to spread over any number of
/// nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(u16);

impl Tag {
    /// One of [`TAGS`], by a number that is spread evenly over all integers.
    pub const fn new(spread: u64) -> Self {
        Self((spread % TAGS as u64) as u16)
    }

    /// Its number, below [`TAGS`].
    pub const fn number(self) -> u16 {
        self.0
    }

    /// What stands between the braces of a key: Cluster's slot is CRC16 of this modulo 16384.
    pub fn text(self) -> [u8; 3] {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        [8, 4, 0].map(|shift| DIGITS[usize::from(self.0 >> shift & 15)])
    }
}

/// One question, encoded.
#[derive(Clone, PartialEq, Eq)]
pub struct Request {
    tag: Tag,
    key_count: usize,
    changes_nothing: bool,
    reads_more: bool,
    begun: Option<Instant>,
    among: usize,
    /// The keys as they are sent, then the argument as it is sent.
    sent: Vec<u8>,
    keys_end: usize,
}

impl Request {
    /// A question about `keys`. All have the tag `tag`, unless the link takes several in one call.
    pub fn new<'k>(tag: Tag, keys: impl IntoIterator<Item = &'k [u8]>, argument: &[u8], changes_nothing: bool) -> Self {
        let (mut sent, mut key_count) = (Vec::with_capacity(argument.len() + 128), 0);
        for key in keys {
            put_bulk(&mut sent, key);
            key_count += 1;
        }
        let keys_end = sent.len();
        put_bulk(&mut sent, argument);
        Self { tag, key_count, changes_nothing, reads_more: false, begun: None, among: 1, sent, keys_end }
    }

    /// The same as part of what began then: whoever waits for all of it waits no longer than for one.
    #[must_use]
    pub fn part_of(self, begun: Instant) -> Self {
        Self { begun: Some(begun), ..self }
    }

    /// The same as one that reads other keys of the same tag than it names.
    #[must_use]
    pub fn reading_more(self) -> Self {
        Self { reads_more: true, ..self }
    }

    /// Whether it reads keys that it does not name: they may be elsewhere while their slot is on its way.
    pub fn reads_more(&self) -> bool {
        self.reads_more
    }

    /// The same as one of so many questions that were asked at once, or with so many in it.
    #[must_use]
    pub fn among(self, among: usize) -> Self {
        Self { among, ..self }
    }

    /// How much longer than usual it may take, since there are many of them: so much for each.
    pub fn patience(&self) -> Duration {
        EACH * u32::try_from(self.among.clamp(1, MOST_AMONG) - 1).unwrap_or(0)
    }

    /// When that began which it is part of, unless it is all.
    pub fn begun(&self) -> Option<Instant> {
        self.begun
    }

    /// Where the keys live: of several, the first.
    pub fn tag(&self) -> Tag {
        self.tag
    }

    /// How many keys there are.
    pub fn key_count(&self) -> usize {
        self.key_count
    }

    /// The keys as RESP bulk strings, one after the other.
    pub fn keys(&self) -> &[u8] {
        self.sent.get(..self.keys_end).unwrap_or_default()
    }

    /// The argument as one RESP bulk string.
    pub fn argument(&self) -> &[u8] {
        self.sent.get(self.keys_end..).unwrap_or_default()
    }

    /// Whether it may be sent again even if the first may have been carried out.
    pub fn changes_nothing(&self) -> bool {
        self.changes_nothing
    }

    /// How many bytes it adds to a call.
    pub fn size(&self) -> usize {
        self.sent.len()
    }
}

/// Says how large it is and nothing of what is in it: keys hold what clients send.
impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request").field("tag", &self.tag).field("keys", &self.key_count).finish_non_exhaustive()
    }
}

fn put_bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'$');
    put_decimal(out, bytes.len());
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

fn put_decimal(out: &mut Vec<u8>, number: usize) {
    if number >= 10 {
        put_decimal(out, number / 10);
    }
    out.push(b'0' + (number % 10) as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_sent_as_bulk_strings() {
        let request = Request::new(Tag::new(7), [&b"a"[..], b"", b"b\r\n"], &[b'x'; 12], false);
        assert_eq!(request.keys(), b"$1\r\na\r\n$0\r\n\r\n$3\r\nb\r\n\r\n");
        assert_eq!(request.argument(), b"$12\r\nxxxxxxxxxxxx\r\n");
        assert_eq!((request.key_count(), request.size()), (3, request.keys().len() + request.argument().len()));
    }

    #[test]
    fn each_tag_has_a_text_of_its_own() {
        let texts: std::collections::HashSet<_> = (0..u64::from(TAGS)).map(|tag| Tag::new(tag).text()).collect();
        assert_eq!(texts.len(), usize::from(TAGS));
        assert_eq!(Tag::new(u64::from(TAGS) - 1).text(), *b"3ff");
    }
}
