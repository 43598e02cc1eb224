//! Replies as bytes, in the second or third version of the protocol. What differs between them is known here and
//! nowhere else.

/// Writes replies one after the other.
pub(crate) struct Replies<'a> {
    out: &'a mut Vec<u8>,
    is_resp3: bool,
}

impl<'a> Replies<'a> {
    #[inline]
    pub(crate) fn new(out: &'a mut Vec<u8>, is_resp3: bool) -> Self {
        Self { out, is_resp3 }
    }

    pub(crate) fn simple(&mut self, text: &str) {
        self.line(b'+', text.as_bytes());
    }

    /// An error. What clients sent may be in it, so line ends in it become spaces.
    pub(crate) fn error(&mut self, text: impl AsRef<[u8]>) {
        self.out.push(b'-');
        let plain = |byte: &u8| if matches!(byte, b'\r' | b'\n') { b' ' } else { *byte };
        self.out.extend(text.as_ref().iter().map(plain));
        self.out.extend_from_slice(b"\r\n");
    }

    #[inline]
    pub(crate) fn integer(&mut self, value: i64) {
        let mut line = Backwards::new();
        line.integer(value);
        self.out.extend_from_slice(line.bytes());
    }

    /// An array of five integers: the answer that is given most, copied once.
    #[inline]
    pub(crate) fn five_integers(&mut self, values: [i64; 5]) {
        let mut lines = Backwards::new();
        values.iter().rev().for_each(|value| lines.integer(*value));
        lines.put(*b"*5\r\n");
        self.out.extend_from_slice(lines.bytes());
    }

    /// The same for numbers that may be larger than the protocol allows, which are then the largest.
    pub(crate) fn count(&mut self, value: u64) {
        self.integer(i64::try_from(value).unwrap_or(i64::MAX));
    }

    pub(crate) fn bulk(&mut self, bytes: impl AsRef<[u8]>) {
        let bytes = bytes.as_ref();
        self.header(b'$', bytes.len());
        self.out.extend_from_slice(bytes);
        self.out.extend_from_slice(b"\r\n");
    }

    /// A text for people: clients that know the third version may show it as it is.
    pub(crate) fn text(&mut self, text: &str) {
        if !self.is_resp3 {
            return self.bulk(text);
        }
        self.header(b'=', text.len() + 4);
        self.out.extend_from_slice(b"txt:");
        self.out.extend_from_slice(text.as_bytes());
        self.out.extend_from_slice(b"\r\n");
    }

    pub(crate) fn null(&mut self) {
        self.out.extend_from_slice(if self.is_resp3 { b"_\r\n" } else { b"$-1\r\n" });
    }

    /// Is followed by `length` replies.
    #[inline]
    pub(crate) fn array(&mut self, length: usize) {
        self.header(b'*', length);
    }

    /// Is followed by `length` keys, each with its value.
    pub(crate) fn map(&mut self, length: usize) {
        if self.is_resp3 { self.header(b'%', length) } else { self.header(b'*', length * 2) }
    }

    /// Is followed by `length` replies, in no order.
    pub(crate) fn set(&mut self, length: usize) {
        self.header(if self.is_resp3 { b'~' } else { b'*' }, length);
    }

    #[inline]
    fn header(&mut self, mark: u8, length: usize) {
        let mut line = Backwards::new();
        line.put(*b"\r\n");
        line.digits(length as u64);
        line.put([mark]);
        self.out.extend_from_slice(line.bytes());
    }

    fn line(&mut self, mark: u8, text: &[u8]) {
        self.out.push(mark);
        self.out.extend_from_slice(text);
        self.out.extend_from_slice(b"\r\n");
    }
}

/// A few short lines, put together from the end: so a number's first digit need not be known first.
struct Backwards {
    room: [u8; Self::ROOM],
    start: usize,
}

impl Backwards {
    /// Enough for five of the longest integers and a header.
    const ROOM: usize = 128;

    #[inline(always)]
    fn new() -> Self {
        Self { room: [0; Self::ROOM], start: Self::ROOM }
    }

    #[inline(always)]
    fn put<const N: usize>(&mut self, bytes: [u8; N]) {
        self.start = self.start.saturating_sub(N);
        if let Some(place) = self.room.get_mut(self.start..).and_then(<[u8]>::first_chunk_mut) {
            *place = bytes;
        }
    }

    #[inline(always)]
    fn digits(&mut self, mut value: u64) {
        while value >= 10 {
            self.put([b'0' + (value % 10) as u8]);
            value /= 10;
        }
        self.put([b'0' + value as u8]);
    }

    #[inline(always)]
    fn integer(&mut self, value: i64) {
        self.put(*b"\r\n");
        self.digits(value.unsigned_abs());
        if value < 0 {
            self.put(*b"-");
        }
        self.put(*b":");
    }

    #[inline(always)]
    fn bytes(&self) -> &[u8] {
        self.room.get(self.start..).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(is_resp3: bool, write: impl Fn(&mut Replies<'_>)) -> String {
        let mut out = Vec::new();
        write(&mut Replies::new(&mut out, is_resp3));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn both_versions_have_their_own_forms() {
        let all = |replies: &mut Replies<'_>| {
            replies.simple("OK");
            replies.error("ERR a\r\nb");
            replies.map(1);
            replies.bulk("key");
            replies.null();
            replies.set(0);
            replies.text("hello");
        };
        assert_eq!(written(false, all), "+OK\r\n-ERR a  b\r\n*2\r\n$3\r\nkey\r\n$-1\r\n*0\r\n$5\r\nhello\r\n");
        assert_eq!(written(true, all), "+OK\r\n-ERR a  b\r\n%1\r\n$3\r\nkey\r\n_\r\n~0\r\n=9\r\ntxt:hello\r\n");
    }

    #[test]
    fn integers_of_every_length() {
        for value in [0, 7, 10, -1, -10, 1_234_567_890, i64::MAX, i64::MIN] {
            assert_eq!(written(false, |replies| replies.integer(value)), format!(":{value}\r\n"));
        }
        assert_eq!(written(true, |replies| replies.count(u64::MAX)), format!(":{}\r\n", i64::MAX));
        let five = written(false, |replies| replies.five_integers([1, -1, 0, 42, 7]));
        assert_eq!(five, "*5\r\n:1\r\n:-1\r\n:0\r\n:42\r\n:7\r\n");
        let longest = written(false, |replies| replies.five_integers([i64::MIN; 5]));
        assert_eq!(longest, format!("*5\r\n{}", format!(":{}\r\n", i64::MIN).repeat(5)));
    }
}
