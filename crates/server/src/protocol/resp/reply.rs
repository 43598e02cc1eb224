//! Replies as bytes, in the second or third version of the protocol. What differs between them is known here and nowhere else.

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
        self.out.push(b':');
        if value < 0 {
            self.out.push(b'-');
        }
        push_digits(self.out, value.unsigned_abs());
        self.out.extend_from_slice(b"\r\n");
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
        self.out.push(mark);
        push_digits(self.out, length as u64);
        self.out.extend_from_slice(b"\r\n");
    }

    fn line(&mut self, mark: u8, text: &[u8]) {
        self.out.push(mark);
        self.out.extend_from_slice(text);
        self.out.extend_from_slice(b"\r\n");
    }
}

#[inline]
fn push_digits(out: &mut Vec<u8>, mut value: u64) {
    // Twenty digits are enough for any number, so this ends before the room does.
    let mut digits = [b'0'; 20];
    let mut unused = digits.len();
    for place in digits.iter_mut().rev() {
        *place += (value % 10) as u8;
        unused -= 1;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out.extend_from_slice(digits.get(unused..).unwrap_or_default());
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
    }
}
