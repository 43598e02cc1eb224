//! Where the body of an answer ends.

use bytes::{Buf as _, Bytes, BytesMut};
use http::{Method, StatusCode, Version};

use crate::head::Hop;

/// The longest line that a chunk begins with, and the most bytes of trailers: both are somebody's play when they are
/// longer.
const LONGEST_SIZE_LINE: usize = 1 << 10;
const MOST_TRAILERS: usize = 16 << 10;

/// How a body is framed, and how much of it is still to come.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// Nothing, or nothing more.
    Done,
    /// So many bytes.
    Length(u64),
    Chunked(Chunk),
    /// All that comes until the connection ends.
    ToTheEnd,
}

/// Where in a chunked body the next byte is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Chunk {
    Size,
    Data(u64),
    /// The line break behind a chunk.
    Behind,
    /// Behind the last chunk, after so many bytes.
    Trailers(usize),
}

/// What the bytes at hand are.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Decoded {
    Data(Bytes),
    /// More bytes are needed.
    More,
    End,
    Wrong(&'static str),
}

impl Framing {
    /// How the answer to a request of this method is framed (RFC 9112, 6.3). What could be read in two ways is refused.
    pub(crate) fn of(method: &Method, status: StatusCode, version: Version, hop: &Hop) -> Result<Self, &'static str> {
        if hop.lengths > 1 || (hop.is_encoded && hop.lengths > 0) {
            return Err("the length of its body is told in two ways");
        }
        let has_body = *method != Method::HEAD
            && !status.is_informational()
            && status != StatusCode::NO_CONTENT
            && status != StatusCode::NOT_MODIFIED;
        match hop.length {
            _ if hop.is_encoded && (version < Version::HTTP_11 || !hop.is_chunked) => {
                Err("its transfer encoding is not supported")
            }
            _ if hop.is_encoded && has_body => Ok(Self::Chunked(Chunk::Size)),
            None if hop.lengths > 0 => Err("the length of its body is no number"),
            Some(length @ 1..) if has_body => Ok(Self::Length(length)),
            None if has_body && !hop.is_encoded => Ok(Self::ToTheEnd),
            Some(_) | None => Ok(Self::Done),
        }
    }

    /// The next piece of what has come in.
    pub(crate) fn decode(&mut self, input: &mut BytesMut) -> Decoded {
        loop {
            match self {
                Self::Done => return Decoded::End,
                _ if input.is_empty() => return Decoded::More,
                Self::ToTheEnd => return Decoded::Data(input.split().freeze()),
                Self::Length(left) => {
                    let data = take(input, left);
                    if *left == 0 {
                        *self = Self::Done;
                    }
                    return Decoded::Data(data);
                }
                Self::Chunked(chunk) => match chunk.decode(input) {
                    Some(Decoded::End) => *self = Self::Done,
                    Some(decoded) => return decoded,
                    None => {}
                },
            }
        }
    }

    /// What the end of the connection means.
    pub(crate) fn is_whole_at_end(&self) -> bool {
        matches!(self, Self::Done | Self::ToTheEnd)
    }

    /// How many bytes are still to come, where that is known.
    pub(crate) fn left(&self) -> Option<u64> {
        match self {
            Self::Done => Some(0),
            Self::Length(left) => Some(*left),
            Self::Chunked(_) | Self::ToTheEnd => None,
        }
    }
}

impl Chunk {
    /// One step; `None` if there is nothing to tell yet and bytes may be left.
    fn decode(&mut self, input: &mut BytesMut) -> Option<Decoded> {
        match self {
            Self::Size => match httparse::parse_chunk_size(input) {
                Ok(httparse::Status::Complete((length, size))) if length <= LONGEST_SIZE_LINE => {
                    input.advance(length);
                    *self = if size == 0 { Self::Trailers(0) } else { Self::Data(size) };
                }
                Ok(httparse::Status::Partial) if input.len() < LONGEST_SIZE_LINE => return Some(Decoded::More),
                _ => return Some(Decoded::Wrong("a chunk begins with no size")),
            },
            Self::Data(left) => {
                let data = take(input, left);
                if *left == 0 {
                    *self = Self::Behind;
                }
                return Some(Decoded::Data(data));
            }
            Self::Behind => match &input[..] {
                [b'\r', b'\n', ..] => {
                    input.advance(2);
                    *self = Self::Size;
                }
                [b'\r'] => return Some(Decoded::More),
                _ => return Some(Decoded::Wrong("a chunk is longer than it says")),
            },
            // Trailers end here: nobody behind us asked for any.
            Self::Trailers(seen) => {
                let Some(line) = input.iter().position(|byte| *byte == b'\n') else {
                    let is_too_much = *seen + input.len() > MOST_TRAILERS;
                    return Some(if is_too_much { TOO_MANY_TRAILERS } else { Decoded::More });
                };
                let is_last = matches!(&input[..line], b"\r" | b"");
                *seen += line + 1;
                let is_too_much = *seen > MOST_TRAILERS;
                input.advance(line + 1);
                if is_too_much {
                    return Some(TOO_MANY_TRAILERS);
                }
                if is_last {
                    return Some(Decoded::End);
                }
            }
        }
        None
    }
}

const TOO_MANY_TRAILERS: Decoded = Decoded::Wrong("its trailers do not end");

/// As much of `left` as is there.
fn take(input: &mut BytesMut, left: &mut u64) -> Bytes {
    let fits = usize::try_from(*left).unwrap_or(usize::MAX).min(input.len());
    *left -= fits as u64;
    input.split_to(fits).freeze()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::head::Head;

    fn framing(method: &Method, status: u16, lines: &[(&'static str, &'static str)]) -> Result<Framing, &'static str> {
        read("HTTP/1.1", method, status, lines)
    }

    fn read(version: &str, method: &Method, status: u16, lines: &[(&str, &str)]) -> Result<Framing, &'static str> {
        let lines: String = lines.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let head = format!("{version} {status} Said\r\n{lines}\r\n");
        Head::parse(&mut BytesMut::from(&*head)).unwrap().unwrap().framing(method)
    }

    #[test]
    fn answers_are_framed_by_method_status_and_headers() {
        let (length, chunked) = (("content-length", "5"), ("transfer-encoding", "chunked"));
        for (method, status, lines, expected) in [
            (Method::GET, 200, &[length][..], Framing::Length(5)),
            (Method::GET, 200, &[("content-length", "0")], Framing::Done),
            (Method::GET, 200, &[chunked], Framing::Chunked(Chunk::Size)),
            (Method::GET, 200, &[("transfer-encoding", "Chunked")], Framing::Chunked(Chunk::Size)),
            (Method::GET, 200, &[], Framing::ToTheEnd),
            (Method::HEAD, 200, &[length], Framing::Done),
            (Method::HEAD, 200, &[chunked], Framing::Done),
            (Method::GET, 204, &[], Framing::Done),
            (Method::GET, 304, &[length], Framing::Done),
        ] {
            assert_eq!(framing(&method, status, lines), Ok(expected), "{method} {status} {lines:?}");
        }
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_refused() {
        for lines in [
            &[("content-length", "5"), ("transfer-encoding", "chunked")][..],
            &[("content-length", "5"), ("content-length", "5")],
            &[("content-length", "5, 5")],
            &[("content-length", "+5")],
            &[("content-length", "-1")],
            &[("content-length", "0x5")],
            &[("content-length", "99999999999999999999")],
            &[("content-length", "")],
            &[("transfer-encoding", "gzip, chunked")],
            &[("transfer-encoding", "chunked"), ("transfer-encoding", "chunked")],
            &[("transfer-encoding", "identity")],
            &[("transfer-encoding", "xchunked")],
        ] {
            assert!(framing(&Method::GET, 200, lines).is_err(), "{lines:?}");
        }
        assert!(read("HTTP/1.0", &Method::GET, 200, &[("transfer-encoding", "chunked")]).is_err());
    }

    /// What comes of these bytes, if they come in pieces of this size.
    fn decoded(mut framing: Framing, bytes: &[u8], piece: usize) -> Result<(Vec<u8>, Vec<u8>), &'static str> {
        let (mut input, mut data) = (BytesMut::new(), Vec::new());
        let mut pieces = bytes.chunks(piece);
        loop {
            match framing.decode(&mut input) {
                Decoded::Data(bytes) => data.extend_from_slice(&bytes),
                Decoded::End => {
                    let rest = pieces.flatten().copied();
                    return Ok((data, input.iter().copied().chain(rest).collect()));
                }
                Decoded::Wrong(why) => return Err(why),
                Decoded::More => match pieces.next() {
                    Some(piece) => input.extend_from_slice(piece),
                    None => return Err("unfinished"),
                },
            }
        }
    }

    #[test]
    fn chunks_are_put_together_and_what_follows_is_left() {
        let bytes = b"5\r\nhello\r\n1;a=b\r\n \r\nA\r\n0123456789\r\n0\r\nX-Sum: 1\r\n\r\nHTTP/1.1";
        for piece in 1..bytes.len() {
            let (data, rest) = decoded(Framing::Chunked(Chunk::Size), bytes, piece).unwrap();
            assert_eq!((&data[..], &rest[..]), (&b"hello 0123456789"[..], &b"HTTP/1.1"[..]), "{piece}");
        }
        let (data, rest) = decoded(Framing::Length(5), b"helloHTTP", 3).unwrap();
        assert_eq!((&data[..], &rest[..]), (&b"hello"[..], &b"HTTP"[..]));
    }

    #[test]
    fn chunks_that_are_none_are_refused() {
        let endless = [&b"0\r\n"[..], &vec![b'a'; 20_000]].concat();
        let lines = [&b"0\r\n"[..], &b"a: b\r\n".repeat(5_000)].concat();
        let size = [&b"1;"[..], &vec![b'a'; 2_000]].concat();
        for bytes in [
            &b"x\r\n"[..],
            b"-1\r\n",
            b"5\r\nhelloX",
            b"5\r\nhello\n5",
            b"fffffffffffffffff\r\n",
            &endless,
            &lines,
            &size,
        ] {
            let why = decoded(Framing::Chunked(Chunk::Size), bytes, 1).unwrap_err();
            assert_ne!(why, "unfinished", "{}", String::from_utf8_lossy(&bytes[..bytes.len().min(20)]));
        }
    }

    proptest! {
        #[test]
        fn any_chunks_in_any_pieces_are_the_same_body(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..50), 0..10),
            piece in 1_usize..64,
        ) {
            let mut bytes = Vec::new();
            for chunk in &chunks {
                bytes.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
                bytes.extend_from_slice(chunk);
                bytes.extend_from_slice(b"\r\n");
            }
            bytes.extend_from_slice(b"0\r\n\r\n");
            prop_assert_eq!(decoded(Framing::Chunked(Chunk::Size), &bytes, piece), Ok((chunks.concat(), Vec::new())));
        }

        #[test]
        fn nonsense_is_an_answer_and_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), piece in 1_usize..20) {
            let _ = decoded(Framing::Chunked(Chunk::Size), &bytes, piece);
        }
    }
}
