//! Parts of addresses as they were before they were put there.
//!
//! What is no code stays as it was written; bytes that are no UTF-8 are replaced.

use std::borrow::Cow;

/// A part of a path: `%2F` is `/`, and `+` is itself.
pub(crate) fn decode_path(text: &str) -> Cow<'_, str> {
    decode(text, b'+')
}

/// A part of a query, in which `+` is a space.
pub(crate) fn decode_query(text: &str) -> Cow<'_, str> {
    decode(text, b' ')
}

fn decode(text: &str, plus: u8) -> Cow<'_, str> {
    if !text.contains(['%', '+']) {
        return Cow::Borrowed(text);
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let code = after.split_first_chunk::<2>().filter(|_| *first == b'%');
        if let Some((byte, after)) = code.and_then(|(digits, after)| Some((hexadecimal(*digits)?, after))) {
            bytes.push(byte);
            rest = after;
            continue;
        }
        bytes.push(if *first == b'+' { plus } else { *first });
        rest = after;
    }
    Cow::Owned(String::from_utf8_lossy(&bytes).into_owned())
}

fn hexadecimal([high, low]: [u8; 2]) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(digit(high)? * 16 + digit(low)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_decoded_and_what_is_none_stays() {
        for (text, expected) in
            [("a", "a"), ("a+b", "a b"), ("%41%2f", "A/"), ("%", "%"), ("%4", "%4"), ("%zz", "%zz"), ("%+1", "% 1")]
        {
            assert_eq!(decode_query(text), expected, "{text}");
        }
        assert_eq!(decode("a+b%2B%+1", b'+'), "a+b+%+1");
        assert_eq!(decode_query("%ff"), "\u{fffd}");
    }
}
