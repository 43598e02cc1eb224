//! The headers of an answer as the bytes that the server wrote, to be passed on as they are: a map is made of them only
//! for who needs one.
//!
//! What ends here is not among them, nor is the length, which is told anew. Invariant: each line is a name, a colon, a
//! space, a value and CR LF, names and values are such as HTTP allows, and no value has a line break in it.

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use smallvec::SmallVec;

use crate::spare::spare_headers;

/// Headers that may be added to a map without moving those that are there.
const ROOM: usize = 12;

/// Lines of the head of an answer.
#[derive(Clone, Debug, Default)]
pub struct Lines {
    bytes: Bytes,
    /// Where in the bytes there are lines, whole ones, in order.
    runs: SmallVec<[Range<usize>; 4]>,
    number: usize,
    /// One bit for each kind of name, to know that one is not there.
    kinds: u64,
    has_date: bool,
    length: Option<u64>,
}

impl Lines {
    /// Adds a line that is part of the bytes to come, and is written as it should be.
    pub(crate) fn add(&mut self, name: &[u8], line: Range<usize>) {
        self.number += 1;
        self.kinds |= kind(name);
        self.has_date |= name.eq_ignore_ascii_case(b"date");
        match self.runs.last_mut() {
            Some(last) if last.end == line.start => last.end = line.end,
            _ => self.runs.push(line),
        }
    }

    /// The same, which are parts of these bytes, of an answer of this length.
    pub(crate) fn over(self, bytes: Bytes, length: Option<u64>) -> Self {
        Self { bytes, length, ..self }
    }

    /// Written anew, of these names and values, each of which is one.
    pub(crate) fn anew<'l>(headers: impl Iterator<Item = (&'l [u8], &'l [u8])>, length: Option<u64>) -> Self {
        let mut bytes = BytesMut::new();
        let mut lines = Self { length, ..Self::default() };
        for (name, value) in headers {
            let start = bytes.len();
            for part in [name, b": ", value, b"\r\n"] {
                bytes.extend_from_slice(part);
            }
            lines.add(name, start..bytes.len());
        }
        lines.bytes = bytes.freeze();
        lines
    }

    /// These names and values, each of which is one, of an answer of this length.
    pub fn of(headers: &[(&str, &str)], length: u64) -> Self {
        Self::anew(headers.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())), Some(length))
    }

    /// The length that the server told, of a body that may not be there if only the head was asked for.
    pub fn length(&self) -> Option<u64> {
        self.length
    }

    /// Whether the server says when it answered.
    pub fn has_date(&self) -> bool {
        self.has_date
    }

    /// Whether there may be a header of this name. If not, there is none.
    fn may_have(&self, name: &[u8]) -> bool {
        self.kinds & kind(name) != 0
    }

    /// The first value of this name, if it is a number. The length is one.
    pub fn number(&self, name: &[u8]) -> Option<u64> {
        if name.eq_ignore_ascii_case(b"content-length") {
            return self.length;
        }
        std::str::from_utf8(self.get(name)?).ok()?.parse().ok()
    }

    /// The first value of this name.
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        let is_same = |(known, _): &(&[u8], &[u8])| known.eq_ignore_ascii_case(name);
        self.may_have(name).then(|| self.iter().find(is_same)).flatten().map(|(_, value)| value)
    }

    /// All names and values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let runs = self.runs.iter().filter_map(|run| self.bytes.get(run.clone()));
        let lines = runs.flat_map(|run| run.split(|byte| *byte == b'\n'));
        lines.filter_map(|line| {
            let line = line.strip_suffix(b"\r")?;
            let colon = line.iter().position(|byte| *byte == b':')?;
            Some((line.get(..colon)?, line.get(colon + 2..)?))
        })
    }

    /// Writes all lines but those of one name.
    pub fn write_without(&self, name: &[u8], out: &mut Vec<u8>) {
        if self.get(name).is_some() {
            for (known, value) in self.iter().filter(|(known, _)| !known.eq_ignore_ascii_case(name)) {
                for part in [known, b": ", value, b"\r\n"] {
                    out.extend_from_slice(part);
                }
            }
            return;
        }
        for run in &self.runs {
            out.extend_from_slice(self.bytes.get(run.clone()).unwrap_or_default());
        }
    }

    /// As a map, the length included, with room for some more.
    pub fn to_headers(&self) -> HeaderMap {
        let mut headers = spare_headers(self.number + ROOM);
        for (name, value) in self.iter() {
            let value = self.bytes.slice_ref(value);
            if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), HeaderValue::from_maybe_shared(value)) {
                headers.append(name, value);
            }
        }
        if let Some(length) = self.length {
            headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
        }
        headers
    }
}

/// The bit of a name, whatever its case.
fn kind(name: &[u8]) -> u64 {
    let first = name.first().map_or(0, |first| u32::from(first | 0x20));
    1 << ((31 * name.len() as u32 + first) % 64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(lines: &Lines, without: &str) -> String {
        let mut out = Vec::new();
        lines.write_without(without.as_bytes(), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn lines_are_found_passed_on_and_left_out_by_name() {
        let lines =
            Lines::of(&[("Content-Type", "a: b"), ("X-Request-Id", "1"), ("Empty", ""), ("x-request-id", "2")], 7);
        let all = "Content-Type: a: b\r\nX-Request-Id: 1\r\nEmpty: \r\nx-request-id: 2\r\n";
        assert_eq!(written(&lines, "date"), all);
        assert_eq!(written(&lines, "x-request-id"), "Content-Type: a: b\r\nEmpty: \r\n");
        let found = ["content-type", "x-request-id", "empty", "date"].map(|name| lines.get(name.as_bytes()));
        assert_eq!(found, [Some(&b"a: b"[..]), Some(b"1"), Some(b""), None]);
        assert!(!lines.has_date() && Lines::of(&[("DATE", "today")], 0).has_date());
        let numbers =
            ["Content-Length", "x-request-id", "content-type", "date"].map(|name| lines.number(name.as_bytes()));
        assert_eq!(numbers, [Some(7), Some(1), None, None]);
        let headers = lines.to_headers();
        let told: Vec<String> =
            headers.iter().map(|(name, value)| format!("{name}={}", value.to_str().unwrap())).collect();
        assert_eq!(told.join(" "), "content-type=a: b x-request-id=1 x-request-id=2 empty= content-length=7");
    }
}
