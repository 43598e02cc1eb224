//! The `Date` of answers that have none, made once a second by each thread.

use std::cell::RefCell;

use jiff::Timestamp;

/// A second, and how it is written.
struct Second {
    number: i64,
    text: String,
}

thread_local! {
    static NOW: RefCell<Second> = const { RefCell::new(Second { number: i64::MIN, text: String::new() }) };
}

/// Writes the line.
pub(super) fn line(out: &mut Vec<u8>) {
    write(out, Timestamp::now());
}

fn write(out: &mut Vec<u8>, now: Timestamp) {
    NOW.with_borrow_mut(|second| {
        if second.number != now.as_second() {
            *second = Second {
                number: now.as_second(),
                text: now.strftime("date: %a, %d %b %Y %H:%M:%S GMT\r\n").to_string(),
            };
        }
        out.extend_from_slice(second.text.as_bytes());
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_is_written_as_the_standard_has_it() {
        for (number, expected) in [
            (784_111_777, "date: Sun, 06 Nov 1994 08:49:37 GMT\r\n"),
            (784_111_777, "date: Sun, 06 Nov 1994 08:49:37 GMT\r\n"),
            (1_709_164_800, "date: Thu, 29 Feb 2024 00:00:00 GMT\r\n"),
        ] {
            let mut out = Vec::new();
            write(&mut out, Timestamp::from_second(number).unwrap());
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }
}
