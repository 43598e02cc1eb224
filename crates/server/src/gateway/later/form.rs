//! What is kept of a request, and what became of it, as bytes.
//!
//! Both begin with the number of their form, so that a later version can tell what an earlier one wrote. Numbers are
//! little-endian, texts stand behind their lengths. What cannot be read is nothing, whatever it is: a store may hand
//! over anything.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode};
use tollgate::{Micros, Timestamp};

use crate::gateway::known::Kept;

/// The form that is written here.
const FORM: u8 = 1;

/// The name of a request that is kept: 128 random bits, so that who knows it was told it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Id(pub(super) u128);

impl Id {
    pub(super) fn random() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes)?;
        Ok(Self(u128::from_le_bytes(bytes)))
    }

    /// As it is shown, and in no other way.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        (text.len() == 32 && text.bytes().all(is_digit)).then(|| u128::from_str_radix(text, 16).ok().map(Self))?
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// Who waits for the same counter waits in the same line. A hash of what the counter is told by, so that nothing of
/// that is stored.
pub(crate) type LineId = [u8; 16];

/// A request as it is to be sent.
#[derive(Clone, Debug)]
pub(in crate::gateway) struct Parcel {
    pub(in crate::gateway) method: Method,
    /// Path and query as the server gets them.
    pub(in crate::gateway) target: String,
    /// The host to tell the server, if not its own.
    pub(in crate::gateway) host: Option<HeaderValue>,
    pub(in crate::gateway) headers: HeaderMap,
    /// What we say ourselves, in place of what the client says.
    pub(in crate::gateway) own: Vec<(HeaderName, Option<HeaderValue>)>,
    /// What rules were told of it.
    pub(in crate::gateway) attributes: Kept,
    pub(in crate::gateway) cost: u64,
    pub(in crate::gateway) body: Bytes,
}

/// What there is to know of a request without reading all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) id: Id,
    /// Its place in the order of arrival.
    pub(super) number: u64,
    pub(super) line: LineId,
    pub(super) route: Arc<str>,
    pub(super) method: Box<str>,
    pub(super) path: Box<str>,
    pub(super) received: Timestamp,
    /// How large it is, as it is kept.
    pub(super) bytes: u64,
    /// How long its answer can be asked for.
    pub(super) keep: Micros,
    pub(super) state: State,
}

/// What became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct State {
    /// How often it was sent.
    pub(super) attempts: u32,
    /// Since when it is what it is.
    pub(super) since: Timestamp,
    pub(super) stage: Stage,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// It is not sent before this; the text says why it has to wait again.
    Waiting { not_before: Timestamp, why: Box<str> },
    /// It is about to be sent, or was.
    Begun,
    /// A server has answered.
    Done(Answered),
    /// It was put aside.
    Dead { why: Box<str> },
}

/// The beginning of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answered {
    pub(super) status: StatusCode,
    pub(super) content_type: Box<str>,
    pub(super) body: Bytes,
    /// Whether that is all of it.
    pub(super) is_whole: bool,
}

impl State {
    pub(super) fn waiting(now: Timestamp) -> Self {
        Self { attempts: 0, since: now, stage: Stage::Waiting { not_before: now, why: "".into() } }
    }
}

impl Parcel {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Writer::with_room(self.body.len() + 1_024);
        out.text(self.method.as_str());
        out.text(&self.target);
        out.optional(self.host.as_ref());
        out.number(self.headers.len() as u64);
        for (name, value) in &self.headers {
            out.text(name.as_str());
            out.bytes(value.as_bytes());
        }
        out.number(self.own.len() as u64);
        for (name, value) in &self.own {
            out.text(name.as_str());
            out.optional(value.as_ref());
        }
        let attributes = self.attributes.attributes();
        out.number(attributes.len() as u64);
        for (key, value) in attributes {
            out.text(key);
            out.text(value);
        }
        out.number(self.cost);
        out.bytes(&self.body);
        out.0
    }

    pub(super) fn decode(bytes: &Bytes) -> Option<Self> {
        let mut read = Reader::new(bytes)?;
        let method = read.text()?.parse().ok()?;
        let target = read.text()?.to_owned();
        let host = read.optional()?;
        let mut headers = HeaderMap::new();
        for _ in 0..read.number()? {
            headers.try_append(read.name()?, HeaderValue::from_bytes(read.bytes()?).ok()?).ok()?;
        }
        let mut own = Vec::new();
        for _ in 0..read.number()? {
            own.push((read.name()?, read.optional()?));
        }
        let mut attributes = Vec::new();
        for _ in 0..read.number()? {
            attributes.push((read.text()?.into(), read.text()?.into()));
        }
        let attributes = Kept::from(attributes);
        let cost = read.number()?;
        let body = bytes.slice_ref(read.bytes()?);
        read.end()?;
        Some(Self { method, target, host, headers, own, attributes, cost, body })
    }
}

impl Entry {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Writer::with_room(256);
        out.bytes(&self.id.0.to_le_bytes());
        out.number(self.number);
        out.bytes(&self.line);
        for text in [&*self.route, &self.method, &self.path] {
            out.text(text);
        }
        for number in [self.received.as_micros(), self.bytes, self.keep.as_micros()] {
            out.number(number);
        }
        out.number(self.state.attempts.into());
        out.number(self.state.since.as_micros());
        match &self.state.stage {
            Stage::Waiting { not_before, why } => {
                out.0.push(0);
                out.number(not_before.as_micros());
                out.text(why);
            }
            Stage::Begun => out.0.push(1),
            Stage::Done(Answered { status, content_type, body, is_whole }) => {
                out.0.push(2);
                out.number(status.as_u16().into());
                out.text(content_type);
                out.bytes(body);
                out.0.push(u8::from(*is_whole));
            }
            Stage::Dead { why } => {
                out.0.push(3);
                out.text(why);
            }
        }
        out.0
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut read = Reader::new(bytes)?;
        let id = Id(u128::from_le_bytes(read.bytes()?.try_into().ok()?));
        let number = read.number()?;
        let line = read.bytes()?.try_into().ok()?;
        let (route, method, path) = (read.text()?.into(), read.text()?.into(), read.text()?.into());
        let received = read.time()?;
        let (bytes, keep) = (read.number()?, Micros::from_micros(read.number()?));
        let attempts = u32::try_from(read.number()?).ok()?;
        let since = read.time()?;
        let stage = match read.byte()? {
            0 => Stage::Waiting { not_before: read.time()?, why: read.text()?.into() },
            1 => Stage::Begun,
            2 => Stage::Done(Answered {
                status: StatusCode::from_u16(u16::try_from(read.number()?).ok()?).ok()?,
                content_type: read.text()?.into(),
                body: Bytes::copy_from_slice(read.bytes()?),
                is_whole: read.byte()? != 0,
            }),
            3 => Stage::Dead { why: read.text()?.into() },
            _ => return None,
        };
        read.end()?;
        Some(Self {
            id,
            number,
            line,
            route,
            method,
            path,
            received,
            bytes,
            keep,
            state: State { attempts, since, stage },
        })
    }
}

struct Writer(Vec<u8>);

impl Writer {
    fn with_room(room: usize) -> Self {
        let mut bytes = Vec::with_capacity(room);
        bytes.push(FORM);
        Self(bytes)
    }

    fn number(&mut self, number: u64) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    fn optional(&mut self, value: Option<&HeaderValue>) {
        self.0.push(u8::from(value.is_some()));
        if let Some(value) = value {
            self.bytes(value.as_bytes());
        }
    }
}

struct Reader<'b>(&'b [u8]);

impl<'b> Reader<'b> {
    fn new(bytes: &'b [u8]) -> Option<Self> {
        let mut read = Self(bytes);
        (read.byte()? == FORM).then_some(read)
    }

    fn take(&mut self, length: usize) -> Option<&'b [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    fn number(&mut self) -> Option<u64> {
        self.take(8)?.try_into().ok().map(u64::from_le_bytes)
    }

    fn time(&mut self) -> Option<Timestamp> {
        self.number().map(Timestamp::from_micros)
    }

    fn bytes(&mut self) -> Option<&'b [u8]> {
        let length = usize::try_from(self.number()?).ok()?;
        self.take(length)
    }

    fn text(&mut self) -> Option<&'b str> {
        std::str::from_utf8(self.bytes()?).ok()
    }

    fn name(&mut self) -> Option<HeaderName> {
        HeaderName::from_bytes(self.bytes()?).ok()
    }

    fn optional(&mut self) -> Option<Option<HeaderValue>> {
        match self.byte()? {
            0 => Some(None),
            _ => HeaderValue::from_bytes(self.bytes()?).ok().map(Some),
        }
    }

    /// Nothing may be left.
    fn end(&self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::gateway::later) fn entry(number: u64, stage: Stage) -> Entry {
        Entry {
            id: Id(u128::from(number) << 64 | 7),
            number,
            line: [number as u8; 16],
            route: "shop".into(),
            method: "POST".into(),
            path: "/orders".into(),
            received: Timestamp::from_secs(1_000),
            bytes: 100,
            keep: Micros::HOUR,
            state: State { attempts: 3, since: Timestamp::from_secs(2_000), stage },
        }
    }

    fn parcel() -> Parcel {
        let mut headers = HeaderMap::new();
        headers.append("accept", HeaderValue::from_static("a"));
        headers.append("accept", HeaderValue::from_bytes(b"\xff\xfe").unwrap());
        Parcel {
            method: Method::from_bytes(b"PURGE").unwrap(),
            target: "/a?b=%20".into(),
            host: Some(HeaderValue::from_static("example.com")),
            headers,
            own: vec![
                (HeaderName::from_static("x-real-ip"), Some(HeaderValue::from_static("::1"))),
                (HeaderName::from_static("forwarded"), None),
            ],
            attributes: Kept::from(vec![("ip".into(), "é".into())]),
            cost: 9,
            body: Bytes::from_static(b"\0body\xff"),
        }
    }

    #[test]
    fn a_request_is_read_as_it_was_kept_and_no_part_of_it_is() {
        let bytes = Bytes::from(parcel().encode());
        let read = Parcel::decode(&bytes).unwrap();
        assert_eq!(format!("{read:?}"), format!("{:?}", parcel()));
        for end in 0..bytes.len() {
            assert!(Parcel::decode(&bytes.slice(..end)).is_none(), "{end}");
        }
        assert!(Parcel::decode(&Bytes::from([&bytes[..], b"x"].concat())).is_none());
        // Another form is not guessed at.
        let mut other = bytes.to_vec();
        other[0] = 2;
        assert!(Parcel::decode(&other.into()).is_none());
    }

    #[test]
    fn what_became_of_one_is_read_as_it_was_written_and_no_part_of_it_is() {
        let answered = Answered {
            status: StatusCode::CREATED,
            content_type: "text/plain".into(),
            body: Bytes::from_static(b"made"),
            is_whole: true,
        };
        for stage in [
            Stage::Waiting { not_before: Timestamp::from_secs(5), why: "503".into() },
            Stage::Begun,
            Stage::Done(answered),
            Stage::Dead { why: "it failed".into() },
        ] {
            let entry = entry(4, stage);
            let bytes = entry.encode();
            assert_eq!(Entry::decode(&bytes).as_ref(), Some(&entry));
            for end in 0..bytes.len() {
                assert!(Entry::decode(&bytes[..end]).is_none(), "{entry:?} {end}");
            }
        }
    }

    #[test]
    fn names_are_read_in_one_form_only() {
        let id = Id::random().unwrap();
        assert_eq!(Id::parse(&id.to_string()), Some(id));
        assert_ne!(Id::random().unwrap(), id);
        for wrong in
            ["", "1", "+0000000000000000000000000000001", "0000000000000000000000000000000G", &format!("{id}0")]
        {
            assert_eq!(Id::parse(wrong), None, "{wrong}");
        }
        assert_eq!(Id::parse("ABCDEFABCDEFABCDEFABCDEFABCDEFAB"), None);
    }
}
