//! Short texts, such as values of headers, that share one piece of memory.
//!
//! Each thread writes them one behind the other, and takes a new piece when one is full: for many texts memory is asked
//! for once. A text that is kept for long keeps its piece, so this is for what ends with its request.

use std::cell::RefCell;

use bytes::{Bytes, BytesMut};
use http::HeaderValue;

/// Bytes of a piece.
const PIECE: usize = 4 << 10;
/// With less left than this, a new one is begun.
const LEAST: usize = 128;

thread_local! {
    static PAGE: RefCell<BytesMut> = RefCell::new(BytesMut::with_capacity(PIECE));
}

/// What `write` puts into the buffer, which is empty before. It must not ask for another one meanwhile.
#[inline]
pub(crate) fn snippet(write: impl FnOnce(&mut BytesMut)) -> Bytes {
    PAGE.with_borrow_mut(|page| {
        if page.capacity() < LEAST {
            page.reserve(PIECE);
        }
        write(page);
        page.split().freeze()
    })
}

/// The same as the value of a header; empty if it is none.
#[inline]
pub(crate) fn value(write: impl FnOnce(&mut BytesMut)) -> HeaderValue {
    value_of(snippet(write))
}

/// A text as the value of a header; empty if it is none.
#[inline]
pub(crate) fn value_of(text: Bytes) -> HeaderValue {
    HeaderValue::from_maybe_shared(text).unwrap_or_else(|_| HeaderValue::from_static(""))
}

/// A number in digits.
#[inline]
pub(crate) fn digits(out: &mut BytesMut, number: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_stay_what_they_are_while_others_are_written() {
        let long = "x".repeat(3 * PIECE);
        let texts: Vec<Bytes> = (0..10_000)
            .map(|number| match number % 1_000 {
                999 => snippet(|out| out.extend_from_slice(long.as_bytes())),
                _ => snippet(|out| digits(out, number)),
            })
            .collect();
        for (number, text) in texts.iter().enumerate() {
            let expected = if number % 1_000 == 999 { long.clone() } else { number.to_string() };
            assert_eq!(*text, expected.as_bytes());
        }
        assert_eq!(value(|out| digits(out, 7)), "7");
        assert_eq!(value(|out| out.extend_from_slice(b"a\nb")), "");
    }
}
