//! Redis's wire protocol, version 2, as a client speaks it: bytes to values, and commands to bytes. Pure.
//!
//! Whoever answers is not trusted: depth, lengths and the size of one answer are bounded, nothing is reserved because a
//! header announces it, and work is linear in the bytes that came, however they came.

use std::fmt;

use bytes::Bytes;

/// How deep arrays may be nested: the answer of a script is one, with one for each request, and what that holds.
const DEPTH: usize = 6;
/// The most elements of an array.
const ELEMENTS: u64 = 65_536;
/// The most bytes of a line: a status, an error, a number.
const LINE: usize = 16 << 10;
/// The most bytes of one answer.
pub(super) const MOST_BYTES: usize = 16 << 20;

/// What Redis answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// `+OK`.
    Status(Vec<u8>),
    /// `-ERR what`.
    Error(Vec<u8>),
    /// `:1`.
    Integer(i64),
    /// Bytes.
    Bulk(Vec<u8>),
    /// Several.
    Array(Vec<Value>),
    /// There is none.
    Nil,
}

impl Value {
    /// The bytes of a status or a bulk.
    pub(super) fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Status(bytes) | Self::Bulk(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// The same as text.
    pub(super) fn text(&self) -> Option<&str> {
        std::str::from_utf8(self.bytes()?).ok()
    }

    pub(super) fn elements(&self) -> &[Self] {
        match self {
            Self::Array(elements) => elements,
            _ => &[],
        }
    }
}

/// What came is not the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed(pub(super) &'static str);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// Finds where an answer ends. It goes on where it stopped when more bytes come.
#[derive(Clone, Debug, Default)]
pub(super) struct Scan {
    /// The bytes of complete elements.
    passed: usize,
    /// Elements that are still to come of each array that is open.
    open: Vec<u64>,
}

impl Scan {
    /// The length of the answer that `bytes` begin with, or `None` if more of it has to come. After either, `bytes`
    /// have to begin with the same ones, until an answer was found: then the next begins behind it.
    pub(super) fn end(&mut self, bytes: &[u8]) -> Result<Option<usize>, Malformed> {
        loop {
            let Some(element) = Element::read(bytes.get(self.passed..).unwrap_or_default())? else {
                return if bytes.len() > MOST_BYTES { Err(Malformed("an answer is too long")) } else { Ok(None) };
            };
            self.passed += element.length;
            if self.passed > MOST_BYTES {
                return Err(Malformed("an answer is too long"));
            }
            match element.kind {
                Kind::Array(count) if count > 0 => {
                    if self.open.len() == DEPTH {
                        return Err(Malformed("arrays are nested too deeply"));
                    }
                    self.open.push(count);
                    continue;
                }
                _ => {}
            }
            while let Some(left) = self.open.last_mut() {
                *left -= 1;
                if *left > 0 {
                    break;
                }
                self.open.pop();
            }
            if self.open.is_empty() {
                return Ok(Some(std::mem::take(self).passed));
            }
        }
    }
}

/// Reads one answer that is complete, and nothing behind it.
pub(super) fn value(mut bytes: &[u8]) -> Result<Value, Malformed> {
    let value = read_value(&mut bytes, 0)?;
    if bytes.is_empty() { Ok(value) } else { Err(Malformed("something follows an answer")) }
}

/// Takes an array of byte strings apart, without a copy.
pub(super) fn bulks(answer: &Bytes, out: &mut Vec<Bytes>) -> Result<(), Malformed> {
    const NOT: Malformed = Malformed("not an array of byte strings");
    let array = Element::read(answer)?.ok_or(NOT)?;
    let Kind::Array(count) = array.kind else { return Err(NOT) };
    let mut at = array.length;
    for _ in 0..count {
        let element = Element::read(answer.get(at..).unwrap_or_default())?.ok_or(NOT)?;
        let Kind::Bulk = element.kind else { return Err(NOT) };
        out.push(answer.slice(at + element.content.start..at + element.content.end));
        at += element.length;
    }
    if at == answer.len() { Ok(()) } else { Err(NOT) }
}

fn read_value(bytes: &mut &[u8], depth: usize) -> Result<Value, Malformed> {
    let element = Element::read(bytes)?.ok_or(Malformed("an answer is cut off"))?;
    let (here, rest) = bytes.split_at_checked(element.length).ok_or(Malformed("an answer is cut off"))?;
    *bytes = rest;
    let content = || here.get(element.content.clone()).unwrap_or_default().to_vec();
    Ok(match element.kind {
        Kind::Status => Value::Status(content()),
        Kind::Error => Value::Error(content()),
        Kind::Integer(number) => Value::Integer(number),
        Kind::Bulk => Value::Bulk(content()),
        Kind::Nil => Value::Nil,
        Kind::Array(_) if depth == DEPTH => return Err(Malformed("arrays are nested too deeply")),
        Kind::Array(count) => {
            // An element has at least four bytes, so that no more is reserved than has come.
            let mut elements = Vec::with_capacity(usize::try_from(count).unwrap_or(0).min(bytes.len() / 4));
            for _ in 0..count {
                elements.push(read_value(bytes, depth + 1)?);
            }
            Value::Array(elements)
        }
    })
}

enum Kind {
    Status,
    Error,
    Integer(i64),
    Bulk,
    Nil,
    Array(u64),
}

/// One element, without what an array holds.
struct Element {
    kind: Kind,
    /// With its end of line.
    length: usize,
    content: std::ops::Range<usize>,
}

impl Element {
    /// `None` if more has to come.
    #[inline]
    fn read(bytes: &[u8]) -> Result<Option<Self>, Malformed> {
        let Some((sign, line)) = bytes.split_first() else { return Ok(None) };
        if !b"+-:$*".contains(sign) {
            return Err(Malformed("an answer begins with none of + - : $ *"));
        }
        let Some(end) = line.iter().take(LINE).position(|byte| *byte == b'\n') else {
            return if line.len() >= LINE { Err(Malformed("a line is too long")) } else { Ok(None) };
        };
        let Some([line @ .., b'\r']) = line.get(..end) else {
            return Err(Malformed("a line does not end with CR LF"));
        };
        let after = end + 2;
        let content = 1..1 + line.len();
        let simple = |kind| Ok(Some(Self { kind, length: after, content: content.clone() }));
        match sign {
            b'+' => simple(Kind::Status),
            b'-' => simple(Kind::Error),
            b':' => simple(Kind::Integer(number(line)?)),
            b'*' => match number(line)? {
                -1 => simple(Kind::Nil),
                count => match u64::try_from(count) {
                    Ok(count @ ..=ELEMENTS) => simple(Kind::Array(count)),
                    _ => Err(Malformed("an array has an impossible length")),
                },
            },
            _ => match number(line)? {
                -1 => simple(Kind::Nil),
                length => match usize::try_from(length) {
                    Ok(length @ ..=MOST_BYTES) => {
                        let whole = after + length + 2;
                        match bytes.get(after + length..whole) {
                            Some(b"\r\n") => {
                                Ok(Some(Self { kind: Kind::Bulk, length: whole, content: after..after + length }))
                            }
                            Some(_) => Err(Malformed("bytes do not end where they should")),
                            None => Ok(None),
                        }
                    }
                    _ => Err(Malformed("bytes have an impossible length")),
                },
            },
        }
    }
}

/// A number as Redis writes it: digits, and a minus before them.
fn number(line: &[u8]) -> Result<i64, Malformed> {
    let (negative, digits) = match line {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    if digits.is_empty() || digits.len() > 19 || !digits.iter().all(u8::is_ascii_digit) {
        return Err(Malformed("a number is none"));
    }
    // Counted downwards, where there is one more.
    let minus = digits.iter().try_fold(0i64, |sum, digit| sum.checked_mul(10)?.checked_sub(i64::from(digit - b'0')));
    let number = minus.and_then(|minus| if negative { Some(minus) } else { minus.checked_neg() });
    number.ok_or(Malformed("a number is too large"))
}

/// Begins a command of `count` words.
pub(super) fn begin(out: &mut Vec<u8>, count: usize) {
    header(out, b'*', count);
}

/// Writes a word of a command.
#[inline]
pub(super) fn word(out: &mut Vec<u8>, word: &[u8]) {
    header(out, b'$', word.len());
    out.extend_from_slice(word);
    out.extend_from_slice(b"\r\n");
}

/// Writes a number as a word of a command.
#[inline]
pub(super) fn number_word(out: &mut Vec<u8>, number: usize) {
    word(out, itoa::Buffer::new().format(number).as_bytes());
}

/// Writes a whole command.
pub(super) fn command(out: &mut Vec<u8>, words: &[&[u8]]) {
    begin(out, words.len());
    for each in words {
        word(out, each);
    }
}

#[inline]
fn header(out: &mut Vec<u8>, sign: u8, number: usize) {
    out.push(sign);
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn whole(bytes: &[u8]) -> Result<Option<usize>, Malformed> {
        Scan::default().end(bytes)
    }

    #[test]
    fn answers_are_read() {
        let bytes = b"*6\r\n+OK\r\n-ERR no\r\n:-42\r\n$3\r\na\r\n\r\n$-1\r\n*1\r\n*0\r\n";
        assert_eq!(whole(bytes), Ok(Some(bytes.len())));
        let expected = Value::Array(vec![
            Value::Status(b"OK".to_vec()),
            Value::Error(b"ERR no".to_vec()),
            Value::Integer(-42),
            Value::Bulk(b"a\r\n".to_vec()),
            Value::Nil,
            Value::Array(vec![Value::Array(vec![])]),
        ]);
        assert_eq!(value(bytes), Ok(expected));
        assert_eq!(value(b":-9223372036854775808\r\n"), Ok(Value::Integer(i64::MIN)));
        assert_eq!(value(b":9223372036854775807\r\n"), Ok(Value::Integer(i64::MAX)));
    }

    #[test]
    fn nonsense_is_refused_and_reserves_nothing() {
        for bytes in [
            &b"HTTP/1.1 400 Bad Request\r\n"[..],
            b">2\r\n+push\r\n+x\r\n",
            b"$1073741824\r\n",
            b"$-2\r\n",
            b"*65537\r\n",
            b"*-2\r\n",
            b"*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n",
            b"$1\r\nab\r\n",
            b":1x\r\n",
            b":\r\n",
            b":9223372036854775808\r\n",
            b"+OK\n",
            b"\r\n",
        ] {
            assert!(whole(bytes).is_err(), "{}", bytes.escape_ascii());
            assert!(value(bytes).is_err(), "{}", bytes.escape_ascii());
        }
        let endless = [b"+".as_slice(), &vec![b'a'; LINE]].concat();
        assert!(whole(&endless).is_err());
        assert!(value(b"+OK\r\n+OK\r\n").is_err());
    }

    #[test]
    fn byte_strings_are_taken_apart() {
        let mut out = Vec::new();
        assert_eq!(bulks(&Bytes::from_static(b"*2\r\n$1\r\na\r\n$0\r\n\r\n"), &mut out), Ok(()));
        assert_eq!(out, [&b"a"[..], b""]);
        for other in
            ["$1\r\na\r\n", "*1\r\n$-1\r\n", "*1\r\n:1\r\n", "*1\r\n*0\r\n", "*0\r\n+x\r\n", "*2\r\n$0\r\n\r\n", ""]
        {
            assert!(bulks(&Bytes::from_static(other.as_bytes()), &mut out).is_err(), "{other:?}");
        }
    }

    #[test]
    fn commands_are_written() {
        let mut out = Vec::new();
        command(&mut out, &[b"GET", b"a b"]);
        assert_eq!(out, b"*2\r\n$3\r\nGET\r\n$3\r\na b\r\n");
    }

    fn written(value: &Value, out: &mut Vec<u8>) {
        match value {
            Value::Status(bytes) => out.extend([b"+", &**bytes, b"\r\n"].concat()),
            Value::Error(bytes) => out.extend([b"-", &**bytes, b"\r\n"].concat()),
            Value::Integer(number) => out.extend(format!(":{number}\r\n").bytes()),
            Value::Bulk(bytes) => word(out, bytes),
            Value::Nil => out.extend(b"$-1\r\n"),
            Value::Array(elements) => {
                begin(out, elements.len());
                elements.iter().for_each(|element| written(element, out));
            }
        }
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let line = || "[ -~]{0,20}".prop_map(String::into_bytes);
        let leaf = prop_oneof![
            line().prop_map(Value::Status),
            line().prop_map(Value::Error),
            any::<i64>().prop_map(Value::Integer),
            prop::collection::vec(any::<u8>(), 0..40).prop_map(Value::Bulk),
            Just(Value::Nil),
        ];
        leaf.prop_recursive(5, 64, 8, |inner| prop::collection::vec(inner, 0..8).prop_map(Value::Array))
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_in_whatever_pieces_it_comes(
            values in prop::collection::vec(any_value(), 1..4),
            pieces in prop::collection::vec(1..30usize, 1..40),
        ) {
            let mut bytes = Vec::new();
            values.iter().for_each(|value| written(value, &mut bytes));
            let (mut scan, mut begin, mut end, mut read) = (Scan::default(), 0, 0, Vec::new());
            let mut pieces = pieces.iter().cycle();
            while read.len() < values.len() {
                match scan.end(&bytes[begin..end]).expect("it is the protocol") {
                    Some(length) => {
                        read.push(value(&bytes[begin..begin + length]).expect("it is the protocol"));
                        begin += length;
                    }
                    None => {
                        prop_assert!(end < bytes.len());
                        end = (end + pieces.next().expect("endless")).min(bytes.len());
                    }
                }
            }
            prop_assert_eq!(read, values);
            prop_assert_eq!(begin, bytes.len());
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(prop_oneof![any::<u8>(), Just(b'*'), Just(b'$'), Just(b'1'), Just(b'\r'), Just(b'\n')], 0..200)) {
            if let Ok(Some(length)) = whole(&bytes) {
                prop_assert!(length <= bytes.len());
                prop_assert!(value(&bytes[..length]).is_ok());
            }
        }
    }
}
