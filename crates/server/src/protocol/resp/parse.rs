//! From bytes to commands: arrays of bulk strings as clients send them, and lines as people type them.
//!
//! Incremental: what has been read of a command that is not yet complete is not read again, whatever pieces it arrives
//! in. Arguments are places in the bytes, never copies (only typed lines are copied once, for their quotes). No size
//! that a client declares is believed: nothing is set aside for it, and what is above the bounds ends the connection.

use std::fmt;
use std::ops::Range;

/// The longest argument.
pub(crate) const MOST_BULK: usize = 64 << 10;
/// The most arguments of one command, its name included.
pub(crate) const MOST_ARGUMENTS: usize = 1_024;
/// The longest command, and so the most that is kept of one that is not yet complete.
pub(crate) const MOST_COMMAND: usize = 1 << 20;
/// The longest typed line.
const MOST_LINE: usize = 64 << 10;
/// The longest `*3` or `$11`, line end included: 19 digits, a sign and a mark.
const MOST_HEADER: usize = 24;
/// What a client that has not yet said the password may send, as in Redis.
const MOST_ARGUMENTS_OF_STRANGERS: usize = 10;
const MOST_BULK_OF_STRANGERS: usize = 16 << 10;

/// Why a client cannot be understood any more. Shown as Redis words it where Redis has words for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProtocolError {
    ArgumentCount,
    ArgumentCountOfStranger,
    ExpectedBulk(u8),
    BulkLength,
    BulkLengthOfStranger,
    BulkEnd,
    HeaderTooLong,
    CommandTooLong,
    LineTooLong,
    Quotes,
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ArgumentCount => f.write_str("invalid multibulk length"),
            Self::ArgumentCountOfStranger => f.write_str("unauthenticated multibulk length"),
            Self::ExpectedBulk(got) if got.is_ascii_graphic() => {
                write!(f, "expected '$', got '{}'", char::from(*got))
            }
            Self::ExpectedBulk(got) => write!(f, "expected '$', got byte {got}"),
            Self::BulkLength => f.write_str("invalid bulk length"),
            Self::BulkLengthOfStranger => f.write_str("unauthenticated bulk length"),
            Self::BulkEnd => f.write_str("a bulk string does not end where its length says"),
            Self::HeaderTooLong => f.write_str("too big count string"),
            Self::CommandTooLong => write!(f, "a command is longer than {MOST_COMMAND} bytes"),
            Self::LineTooLong => f.write_str("too big inline request"),
            Self::Quotes => f.write_str("unbalanced quotes in request"),
        }
    }
}

/// Where an argument begins and ends.
#[derive(Clone, Copy, Debug)]
struct Span {
    start: u32,
    end: u32,
}

/// A complete command: its name and its arguments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Command<'a> {
    bytes: &'a [u8],
    spans: &'a [Span],
    is_line: bool,
}

impl<'a> Command<'a> {
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.spans.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// The argument at `index`; the name is at 0.
    #[inline]
    pub(crate) fn get(&self, index: usize) -> Option<&'a [u8]> {
        let Span { start, end } = self.spans.get(index)?;
        self.bytes.get(*start as usize..*end as usize)
    }

    /// Where in the bytes that were parsed the argument at `index` is. Typed lines have no such place.
    #[inline]
    pub(crate) fn place(&self, index: usize) -> Option<Range<usize>> {
        let Span { start, end } = self.spans.get(index).filter(|_| !self.is_line)?;
        Some(*start as usize..*end as usize)
    }

    /// What follows the first `count` arguments.
    pub(crate) fn after(&self, count: usize) -> Self {
        Self { spans: self.spans.get(count..).unwrap_or_default(), ..*self }
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = &'a [u8]> {
        (0..self.len()).filter_map(move |index| self.get(index))
    }
}

/// Reads one command after the other. The bytes it is given always begin where the next command does.
#[derive(Debug, Default)]
pub(crate) struct Parser {
    spans: Vec<Span>,
    /// Arguments of the current command that are still missing; zero between commands.
    missing: usize,
    /// How much of the current command has been read.
    at: usize,
    /// The arguments of a typed line, without their quotes.
    line: Vec<u8>,
    is_line: bool,
    /// Whether the client has said the password, if there is one.
    pub(crate) is_trusted: bool,
}

impl Parser {
    pub(crate) fn new(is_trusted: bool) -> Self {
        Self { is_trusted, ..Self::default() }
    }

    /// The length of the command that `bytes` begin with, or `None` if it is not yet complete.
    #[inline]
    pub(crate) fn next(&mut self, bytes: &[u8]) -> Result<Option<usize>, ProtocolError> {
        if self.missing == 0 {
            self.spans.clear();
            match bytes.first() {
                None => return Ok(None),
                Some(b'*') => {}
                Some(_) => return self.next_line(bytes),
            }
            self.is_line = false;
            let Some((count, at)) = number(bytes, 1, ProtocolError::ArgumentCount)? else { return Ok(None) };
            if count <= 0 {
                return Ok(Some(at));
            }
            self.missing = usize::try_from(count)
                .ok()
                .filter(|count| *count <= MOST_ARGUMENTS)
                .ok_or(ProtocolError::ArgumentCount)?;
            if !self.is_trusted && self.missing > MOST_ARGUMENTS_OF_STRANGERS {
                return Err(ProtocolError::ArgumentCountOfStranger);
            }
            self.at = at;
        }
        while self.missing > 0 {
            match bytes.get(self.at) {
                None => return Ok(None),
                Some(b'$') => {}
                Some(other) => return Err(ProtocolError::ExpectedBulk(*other)),
            }
            let Some((length, start)) = number(bytes, self.at + 1, ProtocolError::BulkLength)? else {
                return Ok(None);
            };
            let length =
                usize::try_from(length).ok().filter(|length| *length <= MOST_BULK).ok_or(ProtocolError::BulkLength)?;
            if !self.is_trusted && length > MOST_BULK_OF_STRANGERS {
                return Err(ProtocolError::BulkLengthOfStranger);
            }
            let end = start + length;
            if end + 2 > MOST_COMMAND {
                return Err(ProtocolError::CommandTooLong);
            }
            match bytes.get(end..end + 2) {
                Some(b"\r\n") => {}
                Some(_) => return Err(ProtocolError::BulkEnd),
                None => return Ok(None),
            }
            // Both are below `MOST_COMMAND`.
            self.spans.push(Span { start: start as u32, end: end as u32 });
            self.at = end + 2;
            self.missing -= 1;
        }
        let length = self.at;
        self.at = 0;
        Ok(Some(length))
    }

    /// The command that [`Self::next`] found complete in the same `bytes`.
    #[inline]
    pub(crate) fn command<'a>(&'a self, bytes: &'a [u8]) -> Command<'a> {
        Command { bytes: if self.is_line { &self.line } else { bytes }, spans: &self.spans, is_line: self.is_line }
    }

    #[cold]
    fn next_line(&mut self, bytes: &[u8]) -> Result<Option<usize>, ProtocolError> {
        let end = bytes.get(self.at..).and_then(|rest| rest.iter().position(|byte| *byte == b'\n'));
        let Some(end) = end.map(|end| self.at + end) else {
            self.at = bytes.len();
            return if bytes.len() > MOST_LINE { Err(ProtocolError::LineTooLong) } else { Ok(None) };
        };
        self.at = 0;
        if end > MOST_LINE {
            return Err(ProtocolError::LineTooLong);
        }
        let line = bytes.get(..end).unwrap_or_default();
        self.line.clear();
        self.is_line = true;
        let mut words = Words { rest: line.strip_suffix(b"\r").unwrap_or(line), out: &mut self.line };
        while let Some((start, end)) = words.next()? {
            if self.spans.len() == MOST_ARGUMENTS
                || (!self.is_trusted && self.spans.len() == MOST_ARGUMENTS_OF_STRANGERS)
            {
                return Err(ProtocolError::ArgumentCount);
            }
            self.spans.push(Span { start: start as u32, end: end as u32 });
        }
        Ok(Some(end + 1))
    }
}

/// The number in `bytes` that begins at `from` and ends with a line, and where the next line begins; `None` if more
/// bytes have to come first.
#[inline]
fn number(bytes: &[u8], from: usize, wrong: ProtocolError) -> Result<Option<(i64, usize)>, ProtocolError> {
    // Most have one digit or two.
    if let Some([tens @ b'0'..=b'9', rest @ ..]) = bytes.get(from..).and_then(<[u8]>::first_chunk::<4>) {
        match rest {
            [b'\r', b'\n', _] => return Ok(Some((i64::from(tens - b'0'), from + 3))),
            [ones @ b'0'..=b'9', b'\r', b'\n'] => {
                return Ok(Some((i64::from(tens - b'0') * 10 + i64::from(ones - b'0'), from + 4)));
            }
            _ => {}
        }
    }
    any_number(bytes, from, wrong)
}

fn any_number(bytes: &[u8], from: usize, wrong: ProtocolError) -> Result<Option<(i64, usize)>, ProtocolError> {
    let mut at = from;
    let negative = bytes.get(at) == Some(&b'-');
    at += usize::from(negative);
    let digits = at;
    let mut value = 0i64;
    loop {
        match bytes.get(at) {
            Some(digit @ b'0'..=b'9') => {
                value = value.checked_mul(10).and_then(|ten| ten.checked_add(i64::from(digit - b'0'))).ok_or(wrong)?;
                at += 1;
            }
            Some(b'\r') if at > digits => break,
            Some(_) => return Err(wrong),
            None => return Ok(None),
        }
        if at - from > MOST_HEADER {
            return Err(ProtocolError::HeaderTooLong);
        }
    }
    match bytes.get(at + 1) {
        Some(b'\n') => Ok(Some((if negative { -value } else { value }, at + 2))),
        Some(_) => Err(wrong),
        None => Ok(None),
    }
}

/// The words of a typed line, with quotes and escapes as redis-cli has them.
struct Words<'a> {
    rest: &'a [u8],
    out: &'a mut Vec<u8>,
}

impl Words<'_> {
    /// Where the next word is in `out`.
    fn next(&mut self) -> Result<Option<(usize, usize)>, ProtocolError> {
        while let [first, rest @ ..] = self.rest
            && first.is_ascii_whitespace()
        {
            self.rest = rest;
        }
        if self.rest.is_empty() {
            return Ok(None);
        }
        let start = self.out.len();
        while let [first, rest @ ..] = self.rest {
            match first {
                b'"' | b'\'' => {
                    self.rest = rest;
                    self.quoted(*first)?;
                    // A quote ends its word.
                    if self.rest.first().is_some_and(|next| !next.is_ascii_whitespace()) {
                        return Err(ProtocolError::Quotes);
                    }
                    break;
                }
                space if space.is_ascii_whitespace() => break,
                other => {
                    self.out.push(*other);
                    self.rest = rest;
                }
            }
        }
        Ok(Some((start, self.out.len())))
    }

    fn quoted(&mut self, quote: u8) -> Result<(), ProtocolError> {
        loop {
            let (byte, rest) = match (quote, self.rest) {
                (_, []) => return Err(ProtocolError::Quotes),
                (_, [end, rest @ ..]) if *end == quote => {
                    self.rest = rest;
                    return Ok(());
                }
                (b'"', [b'\\', b'x', high, low, rest @ ..]) if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                    (hex(*high) << 4 | hex(*low), rest)
                }
                (b'"', [b'\\', escaped, rest @ ..]) => (escape(*escaped), rest),
                (b'\'', [b'\\', b'\'', rest @ ..]) => (b'\'', rest),
                (_, [other, rest @ ..]) => (*other, rest),
            };
            self.out.push(byte);
            self.rest = rest;
        }
    }
}

fn hex(digit: u8) -> u8 {
    char::from(digit).to_digit(16).map_or(0, |value| value as u8)
}

fn escape(letter: u8) -> u8 {
    match letter {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 8,
        b'a' => 7,
        other => other,
    }
}

#[cfg(test)]
#[path = "parse_tests.rs"]
mod tests;
