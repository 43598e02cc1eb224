//! Bodies of requests in chunks. One that is not framed exactly as it should be is wrong: others may see its end
//! elsewhere.
//!
//! Extensions and trailers end here: nobody behind us asked for any. Together they are bounded.

use bytes::{Buf as _, Bytes, BytesMut};

/// The most bytes of extensions and trailers of one body.
const MOST_BESIDE: usize = 16 << 10;

/// A body in chunks, and where in it the next byte is.
#[derive(Debug)]
pub(super) struct Chunks {
    at: At,
    /// Bytes of extensions and trailers so far.
    beside: usize,
}

#[derive(Debug, PartialEq, Eq)]
enum At {
    /// So large as far as it is known, by so many digits.
    Size(u64, u8),
    /// Behind the digits.
    Blank(u64),
    /// Behind a semicolon, up to the end of the line.
    Extension(u64),
    SizeEnd(u64),
    Data(u64),
    DataEnd,
    DataEndEnd,
    /// At the beginning of a line behind the last chunk, in one, and at its end.
    Trailers,
    Trailer,
    TrailerEnd,
    End,
}

/// What the bytes at hand are.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Decoded {
    Data(Bytes),
    /// More bytes are needed.
    More,
    End,
    Wrong,
}

impl Default for Chunks {
    fn default() -> Self {
        Self { at: At::Size(0, 0), beside: 0 }
    }
}

impl Chunks {
    /// The next piece of what has come in.
    pub(super) fn decode(&mut self, input: &mut BytesMut) -> Decoded {
        loop {
            if let At::Data(left) = &mut self.at {
                if input.is_empty() {
                    return Decoded::More;
                }
                let data = take(input, left);
                if *left == 0 {
                    self.at = At::DataEnd;
                }
                return Decoded::Data(data);
            }
            let Some(byte) = input.first().copied() else { return Decoded::More };
            input.advance(1);
            match self.at.step(byte) {
                Some(None) => return Decoded::End,
                Some(Some(next)) => self.at = next,
                None => return Decoded::Wrong,
            }
            if matches!(self.at, At::Blank(_) | At::Extension(_) | At::Trailers | At::Trailer | At::TrailerEnd) {
                self.beside += 1;
                if self.beside > MOST_BESIDE {
                    return Decoded::Wrong;
                }
            }
        }
    }
}

impl At {
    /// What is next after a byte that is no data; `Some(None)` at the end of the body, and `None` for what is no chunk.
    fn step(&self, byte: u8) -> Option<Option<Self>> {
        Some(Some(match (self, byte) {
            (Self::Size(size, 1..) | Self::Blank(size) | Self::Extension(size), b'\r') => Self::SizeEnd(*size),
            (Self::Size(size, 1..) | Self::Blank(size), b' ' | b'\t') => Self::Blank(*size),
            (Self::Size(size, 1..) | Self::Blank(size), b';') => Self::Extension(*size),
            (Self::Size(size, digits @ ..16), _) => {
                let digit = char::from(byte).to_digit(16)?;
                Self::Size((*size << 4) | u64::from(digit), digits + 1)
            }
            (Self::SizeEnd(0) | Self::TrailerEnd, b'\n') => Self::Trailers,
            (Self::SizeEnd(size), b'\n') => Self::Data(*size),
            (Self::DataEnd, b'\r') => Self::DataEndEnd,
            (Self::DataEndEnd, b'\n') => Self::Size(0, 0),
            (Self::End, b'\n') => return Some(None),
            (_, b'\n') => return None,
            (Self::Extension(size), _) => Self::Extension(*size),
            (Self::Trailers, b'\r') => Self::End,
            (Self::Trailer, b'\r') => Self::TrailerEnd,
            (Self::Trailers | Self::Trailer, _) => Self::Trailer,
            _ => return None,
        }))
    }
}

/// As much of `left` as is there.
pub(super) fn take(input: &mut BytesMut, left: &mut u64) -> Bytes {
    let fits = usize::try_from(*left).unwrap_or(usize::MAX).min(input.len());
    *left -= fits as u64;
    input.split_to(fits).freeze()
}
