//! The head of a request, looked at line by line as it comes in: where it ends, or why it is refused.
//!
//! What others could read in another way is refused, not repaired: whoever stands before us may have read it so. This
//! says which line is the first that is wrong, and with what. Heads that come in one piece and are in order, as nearly
//! all are, never get here; what is no HTTP at all is not found here either, but by whoever parses the head when it is
//! whole. Invariant: the answer does not depend on the pieces in which a head comes.

use super::malformed::Malformed;

/// How large the head of a request may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Most {
    pub(crate) bytes: usize,
    pub(crate) headers: usize,
}

/// What there is to say about the beginning of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scanned {
    /// More is to come.
    Half,
    /// It has so many bytes.
    Whole(usize),
    Bad(Malformed),
}

/// What is known of a head by now.
#[derive(Debug, Default)]
pub(super) struct Scan {
    /// Bytes that were looked at.
    looked: usize,
    is_begun: bool,
    is_old: bool,
    headers: usize,
    length: Option<u64>,
    is_chunked: bool,
}

impl Scan {
    /// Looks at a head, or the beginning of one, that begins as it did the last time.
    pub(super) fn look(&mut self, bytes: &[u8], most: Most) -> Scanned {
        while let Some(end) = memchr::memchr(b'\n', bytes.get(self.looked..).unwrap_or_default()) {
            let line = bytes.get(self.looked..self.looked + end).unwrap_or_default();
            self.looked += end + 1;
            match self.hear(line, most.headers) {
                Err(why) => return Scanned::Bad(why),
                Ok(_) if self.looked > most.bytes => return Scanned::Bad(Malformed::TooLarge),
                Ok(true) => return Scanned::Whole(self.looked),
                Ok(false) => {}
            }
        }
        if bytes.len() > most.bytes { Scanned::Bad(Malformed::TooLarge) } else { Scanned::Half }
    }

    /// A line of it, without its line feed; whether it was the last.
    fn hear(&mut self, line: &[u8], most: usize) -> Result<bool, Malformed> {
        let line = line.strip_suffix(b"\r").ok_or(Malformed::LineFeed)?;
        if !self.is_begun {
            // Empty lines before a request are nothing.
            self.is_begun = !line.is_empty();
            self.is_old = line.ends_with(b"HTTP/1.0");
            return Ok(false);
        }
        let Some(first) = line.first() else { return Ok(true) };
        self.headers += 1;
        if self.headers > most {
            return Err(Malformed::TooMany);
        }
        match first {
            b' ' | b'\t' => return Err(Malformed::Folded),
            b'c' | b'C' => {
                if let Some(value) = value_of(line, b"content-length:") {
                    if self.length.is_some() {
                        return Err(Malformed::Lengths);
                    }
                    self.length = Some(length(value).ok_or(Malformed::Length)?);
                }
            }
            b't' | b'T' => {
                if let Some(value) = value_of(line, b"transfer-encoding:") {
                    if self.is_old || self.is_chunked || !value.eq_ignore_ascii_case(b"chunked") {
                        return Err(Malformed::Encoding);
                    }
                    self.is_chunked = true;
                }
            }
            _ => {}
        }
        if self.is_chunked && self.length.is_some() {
            return Err(Malformed::Lengths);
        }
        Ok(false)
    }
}

/// The value of a header of this name, if it is one.
fn value_of<'l>(line: &'l [u8], name: &[u8]) -> Option<&'l [u8]> {
    let (start, value) = line.split_at_checked(name.len())?;
    start.eq_ignore_ascii_case(name).then(|| value.trim_ascii())
}

/// A length, if it is one: digits, and nothing else.
pub(super) fn length(value: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(value).ok().filter(|_| value.iter().all(u8::is_ascii_digit))?;
    // With room above, so that it can be counted on.
    digits.parse().ok().filter(|length| *length < u64::MAX - 2)
}
