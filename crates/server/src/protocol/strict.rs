//! Requests of HTTP/1 as they come in, looked at before anybody reads them: what others could read in another way is refused, not repaired.
//!
//! hyper takes what is sent with two lengths, or with lines that end in a line feed alone, and reads it in one of the ways in which it can be read.
//! Whoever stands before us may have read it in the other. Here each head is held back until it is whole and unambiguous. One that is not is
//! replaced by a request that says so ([`Malformed`] is found in its extensions) and ends the connection. What is passed on is passed on
//! unchanged. Invariant: where a body ends is known from its head, so that nothing in a body is taken for a head.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use http::StatusCode;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::rewound::Rewound;

/// What is read in place of a head that is refused.
const IN_ITS_PLACE: &[u8] = b"GET / HTTP/1.1\r\nhost: -\r\nconnection: close\r\n\r\n";

/// What is wrong with the head of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Malformed {
    LineFeed,
    Folded,
    Lengths,
    Length,
    Encoding,
    TooLarge,
    TooMany,
}

impl Malformed {
    pub(crate) fn status(self) -> StatusCode {
        match self {
            Self::TooLarge | Self::TooMany => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            _ => StatusCode::BAD_REQUEST,
        }
    }

    pub(crate) fn told(self) -> &'static str {
        match self {
            Self::LineFeed => "a line of the request ends in a line feed alone: end lines with CR LF",
            Self::Folded => "a header goes on in the next line: write it in one",
            Self::Lengths => {
                "the length of the body is told twice: send one Content-Length, or Transfer-Encoding: chunked"
            }
            Self::Length => "Content-Length is no number of bytes: write digits and nothing else",
            Self::Encoding => {
                "the transfer encoding is not supported: send Transfer-Encoding: chunked by HTTP/1.1, or a Content-Length"
            }
            Self::TooLarge => "the head of the request is too large: send shorter headers",
            Self::TooMany => "the request has too many headers: send fewer",
        }
    }
}

/// Which request of a connection was refused, if one was: the last.
pub(super) type Refused = OnceLock<(u64, Malformed)>;

/// How large the head of a request may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Most {
    pub(super) bytes: usize,
    pub(super) headers: usize,
}

/// A stream of requests.
pub(super) struct Strict<S> {
    stream: S,
    most: Most,
    /// Nothing is looked at without it.
    refused: Option<Arc<Refused>>,
    place: Place,
    /// Heads that were whole.
    heads: u64,
    /// A head that is not whole yet, and how much of it was looked at.
    held: Vec<u8>,
    looked: usize,
    /// To be read next, before anything else.
    next: Vec<u8>,
    /// A head was refused: whatever else comes is no request.
    is_over: bool,
    /// Where a body ends is not known.
    is_broken: bool,
}

/// Where the next byte belongs.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    Head(Head),
    /// In a body of which so much is to come.
    Body(u64),
    Chunk(Chunk),
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Head {
    is_begun: bool,
    is_old: bool,
    headers: usize,
    length: Option<u64>,
    is_chunked: bool,
}

/// In a chunked body.
#[derive(Debug, PartialEq, Eq)]
enum Chunk {
    /// So large as far as it is known, by so many digits.
    Size(u64, u8),
    /// Behind its size, up to the end of the line.
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

/// What there is to say about some bytes.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    All,
    /// From there on it is a head that is not whole yet.
    HalfFrom(usize),
    /// From there on it is a head that is refused.
    BadFrom(usize, Malformed),
    /// From there on a body is not framed as it should be.
    BadBodyFrom(usize),
}

impl<S> Strict<S> {
    /// Looks at requests only if there is somewhere to say which one was refused.
    pub(super) fn new(stream: S, most: Most, refused: Option<Arc<Refused>>) -> Self {
        Self {
            stream,
            most,
            refused,
            place: Place::Head(Head::default()),
            heads: 0,
            held: Vec::new(),
            looked: 0,
            next: Vec::new(),
            is_over: false,
            is_broken: false,
        }
    }

    /// Looks at bytes of which `looked` were looked at already, and which begin with a head if any were.
    fn look(&mut self, bytes: &[u8], looked: usize) -> Seen {
        let (mut at, mut start) = (looked, 0);
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            match &mut self.place {
                Place::Body(left) => {
                    let here = usize::try_from(*left).unwrap_or(usize::MAX).min(rest.len());
                    *left -= here as u64;
                    at += here;
                    if *left > 0 {
                        return Seen::All;
                    }
                    self.place = Place::Head(Head::default());
                    start = at;
                }
                Place::Chunk(chunk) => {
                    let Some((next, here)) = chunk.step(rest) else { return Seen::BadBodyFrom(at) };
                    at += here;
                    match next {
                        Some(next) => *chunk = next,
                        None => self.place = Place::Head(Head::default()),
                    }
                    start = at;
                }
                Place::Head(head) => {
                    let Some(end) = memchr::memchr(b'\n', rest) else { break };
                    let line = rest.get(..end).unwrap_or_default();
                    at += end + 1;
                    match head.hear(line, self.most.headers) {
                        Err(why) => return Seen::BadFrom(start, why),
                        Ok(None) => {}
                        Ok(Some(place)) => {
                            self.place = place;
                            self.heads += 1;
                            start = at;
                        }
                    }
                    if at - start > self.most.bytes {
                        return Seen::BadFrom(start, Malformed::TooLarge);
                    }
                }
            }
        }
        if !matches!(self.place, Place::Head(_)) || start == bytes.len() {
            return Seen::All;
        }
        self.looked = at - start;
        if bytes.len() - start > self.most.bytes {
            return Seen::BadFrom(start, Malformed::TooLarge);
        }
        Seen::HalfFrom(start)
    }

    /// Notes that the next head is refused.
    fn refuse(&mut self, why: Malformed) {
        if let Some(refused) = &self.refused {
            let _ = refused.set((self.heads, why));
        }
        self.is_over = true;
        self.next.extend_from_slice(IN_ITS_PLACE);
    }

    /// Says about `held` what there is to say.
    fn look_at_held(&mut self) {
        let held = std::mem::take(&mut self.held);
        let looked = std::mem::take(&mut self.looked);
        match self.look(&held, looked) {
            Seen::All => self.next = held,
            Seen::HalfFrom(start) => {
                let (good, half) = held.split_at(start);
                (self.next, self.held) = (good.to_vec(), half.to_vec());
            }
            Seen::BadFrom(start, why) => {
                self.next = held.get(..start).unwrap_or_default().to_vec();
                self.refuse(why);
            }
            Seen::BadBodyFrom(start) => {
                self.next = held.get(..start).unwrap_or_default().to_vec();
                self.is_broken = true;
            }
        }
    }
}

impl<S> Strict<Rewound<S>> {
    /// The stream, with all that was not read from here.
    pub(super) fn into_inner(self) -> Rewound<S> {
        self.stream.before(&[self.next, self.held].concat())
    }
}

fn bad_body() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the body of the request is not framed as it should be")
}

impl Head {
    /// A line of it, without its line feed; what follows if it was the last.
    fn hear(&mut self, line: &[u8], most: usize) -> Result<Option<Place>, Malformed> {
        let line = line.strip_suffix(b"\r").ok_or(Malformed::LineFeed)?;
        if !self.is_begun {
            // Empty lines before a request are nothing.
            self.is_begun = !line.is_empty();
            self.is_old = line.ends_with(b"HTTP/1.0");
            return Ok(None);
        }
        let Some(first) = line.first() else {
            return Ok(Some(match self.length {
                _ if self.is_chunked => Place::Chunk(Chunk::Size(0, 0)),
                Some(length) if length > 0 => Place::Body(length),
                _ => Place::Head(Self::default()),
            }));
        };
        self.headers += 1;
        if self.headers > most {
            return Err(Malformed::TooMany);
        }
        match first {
            b' ' | b'\t' => return Err(Malformed::Folded),
            b'c' | b'C' => {
                if let Some(value) = value_of(line, b"content-length:") {
                    self.hear_length(value)?;
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
        Ok(None)
    }

    fn hear_length(&mut self, value: &[u8]) -> Result<(), Malformed> {
        if self.length.is_some() {
            return Err(Malformed::Lengths);
        }
        let digits = std::str::from_utf8(value).ok().filter(|_| value.iter().all(u8::is_ascii_digit));
        // The largest of them mean something else to hyper.
        let length = digits.and_then(|digits| digits.parse().ok()).filter(|length| *length < u64::MAX - 2);
        self.length = Some(length.ok_or(Malformed::Length)?);
        Ok(())
    }
}

/// The value of a header of this name, if it is one.
fn value_of<'l>(line: &'l [u8], name: &[u8]) -> Option<&'l [u8]> {
    let (start, value) = line.split_at_checked(name.len())?;
    start.eq_ignore_ascii_case(name).then(|| value.trim_ascii())
}

impl Chunk {
    /// What is next, `None` at the end of the body, and how many bytes lead there; `None` for what is no chunk.
    fn step(&self, bytes: &[u8]) -> Option<(Option<Self>, usize)> {
        let byte = *bytes.first()?;
        let next = match (self, byte) {
            (Self::Data(left), _) => {
                let here = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                let left = *left - here as u64;
                return Some((Some(if left == 0 { Self::DataEnd } else { Self::Data(left) }), here));
            }
            (Self::Size(size, 1..), b'\r') | (Self::Extension(size), b'\r') => Self::SizeEnd(*size),
            (Self::Size(size, 1..), b';' | b' ' | b'\t') => Self::Extension(*size),
            (Self::Size(size, digits @ ..16), _) => {
                let digit = char::from(byte).to_digit(16)?;
                Self::Size((*size << 4) | u64::from(digit), digits + 1)
            }
            (Self::Size(..), _) | (_, b'\n')
                if !matches!(self, Self::SizeEnd(_) | Self::DataEndEnd | Self::TrailerEnd | Self::End) =>
            {
                return None;
            }
            (Self::Extension(size), _) => Self::Extension(*size),
            (Self::SizeEnd(0), b'\n') | (Self::TrailerEnd, b'\n') => Self::Trailers,
            (Self::SizeEnd(size), b'\n') => Self::Data(*size),
            (Self::DataEnd, b'\r') => Self::DataEndEnd,
            (Self::DataEndEnd, b'\n') => Self::Size(0, 0),
            (Self::Trailers, b'\r') => Self::End,
            (Self::Trailer, b'\r') => Self::TrailerEnd,
            (Self::Trailers | Self::Trailer, _) => Self::Trailer,
            (Self::End, b'\n') => return Some((None, 1)),
            _ => return None,
        };
        Some((Some(next), 1))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Strict<S> {
    #[inline]
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.refused.is_none() {
            return Pin::new(&mut this.stream).poll_read(cx, buffer);
        }
        loop {
            if !this.next.is_empty() {
                let fits = this.next.len().min(buffer.remaining());
                buffer.put_slice(this.next.get(..fits).unwrap_or_default());
                this.next.drain(..fits);
                return Poll::Ready(Ok(()));
            }
            if this.is_broken {
                return Poll::Ready(Err(bad_body()));
            }
            if this.is_over {
                return this.poll_discard(cx);
            }
            let before = buffer.filled().len();
            ready!(Pin::new(&mut this.stream).poll_read(cx, buffer))?;
            let new = buffer.filled().get(before..).unwrap_or_default();
            if new.is_empty() {
                if this.held.is_empty() {
                    return Poll::Ready(Ok(()));
                }
                // Half a head, and no more to come: whoever reads it finds out.
                this.next = std::mem::take(&mut this.held);
                this.looked = 0;
                continue;
            }
            if !this.held.is_empty() {
                this.held.extend_from_slice(new);
                buffer.set_filled(before);
                this.look_at_held();
                continue;
            }
            match this.look(new, 0) {
                Seen::All => return Poll::Ready(Ok(())),
                Seen::HalfFrom(start) => {
                    this.held.extend_from_slice(new.get(start..).unwrap_or_default());
                    buffer.set_filled(before + start);
                }
                Seen::BadFrom(start, why) => {
                    buffer.set_filled(before + start);
                    this.refuse(why);
                }
                Seen::BadBodyFrom(start) => {
                    buffer.set_filled(before + start);
                    this.is_broken = true;
                }
            }
            if buffer.filled().len() > before {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl<S: AsyncRead + Unpin> Strict<S> {
    /// Reads what follows a refusal and forgets it: a connection that is closed with something unread may lose the answer.
    fn poll_discard(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut bytes = [std::mem::MaybeUninit::uninit(); 4 << 10];
        let mut rest = ReadBuf::uninit(&mut bytes);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut rest))?;
        if rest.filled().is_empty() {
            return Poll::Ready(Ok(()));
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Strict<S> {
    #[inline]
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    #[inline]
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::io::AsyncReadExt as _;

    use super::*;

    const MOST: Most = Most { bytes: 300, headers: 4 };

    /// Gives `bytes` in pieces of this size, as a socket would.
    struct Pieces<'b>(&'b [u8], usize);

    impl AsyncRead for Pieces<'_> {
        fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            let fits = self.1.min(self.0.len()).min(buffer.remaining());
            let (now, rest) = self.0.split_at(fits);
            buffer.put_slice(now);
            self.0 = rest;
            Poll::Ready(Ok(()))
        }
    }

    /// What is read of these bytes in the end, and what was refused.
    fn read(bytes: &[u8], piece: usize) -> (Vec<u8>, Option<(u64, Malformed)>, bool) {
        let refused = Arc::new(Refused::new());
        let mut strict = Strict::new(Pieces(bytes, piece), MOST, Some(Arc::clone(&refused)));
        let mut all = Vec::new();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let result = runtime.block_on(strict.read_to_end(&mut all));
        (all, refused.get().copied(), result.is_err())
    }

    #[test]
    fn what_is_clear_passes_unchanged_in_whatever_pieces() {
        let bodies = "\r\nPOST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 44\r\n\r\nPOST / HTTP/1.1\ncontent-length: 1\r\nx: \n\r\n\r\n--\
                      GET /b HTTP/1.0\r\n\r\n\
                      POST /c HTTP/1.1\r\nTRANSFER-encoding:\t Chunked \r\n\r\n\
                      5;x=\"y\"\r\na\n\nb\n\r\n0a \r\n0123456789\r\n0\r\nX: 1\r\n\r\n\
                      GET /d HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\nGET /e HTT";
        for piece in 1..bodies.len() {
            assert_eq!(read(bodies.as_bytes(), piece), (bodies.as_bytes().to_vec(), None, false), "{piece}");
        }
    }

    #[test]
    fn what_can_be_read_in_two_ways_is_refused_where_it_begins() {
        let good = "POST /ok HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc";
        let large = format!("GET / HTTP/1.1\r\nx: {}", "y".repeat(300));
        for (head, why) in [
            ("GET / HTTP/1.1\nHost: a\r\n\r\n", Malformed::LineFeed),
            ("GET / HTTP/1.1\r\nHost: a\n\r\n", Malformed::LineFeed),
            ("GET / HTTP/1.1\r\nHost: a\r\n\n", Malformed::LineFeed),
            ("\nGET / HTTP/1.1\r\n\r\n", Malformed::LineFeed),
            ("GET / HTTP/1.1\r\nHost: a\r\n b\r\n\r\n", Malformed::Folded),
            ("POST / HTTP/1.1\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", Malformed::Lengths),
            ("POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\ncontent-length: 4\r\n\r\n0\r\n\r\n", Malformed::Lengths),
            ("POST / HTTP/1.1\r\nContent-Length: 4\r\nContent-Length: 4\r\n\r\nabcd", Malformed::Lengths),
            ("POST / HTTP/1.1\r\nContent-Length: 4, 4\r\n\r\nabcd", Malformed::Length),
            ("POST / HTTP/1.1\r\nContent-Length: +4\r\n\r\nabcd", Malformed::Length),
            ("POST / HTTP/1.1\r\nContent-Length:\r\n\r\nabcd", Malformed::Length),
            ("POST / HTTP/1.1\r\nContent-Length: 18446744073709551615\r\n\r\n", Malformed::Length),
            ("POST / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", Malformed::Encoding),
            ("POST / HTTP/1.1\r\nTransfer-Encoding: identity\r\n\r\n", Malformed::Encoding),
            (
                "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
                Malformed::Encoding,
            ),
            ("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", Malformed::Encoding),
            ("GET / HTTP/1.1\r\na:1\r\nb:1\r\nc:1\r\nd:1\r\ne:1\r\n\r\n", Malformed::TooMany),
            (&large, Malformed::TooLarge),
        ] {
            let bytes = format!("{good}{head}GET /smuggled HTTP/1.1\r\n\r\n");
            for piece in 1..bytes.len() {
                let expected = [good.as_bytes(), IN_ITS_PLACE].concat();
                assert_eq!(read(bytes.as_bytes(), piece), (expected, Some((1, why)), false), "{piece}: {head}");
            }
        }
    }

    #[test]
    fn a_body_that_is_not_framed_ends_the_stream() {
        for body in
            ["x\r\n", "\r\n", "1\na", "1\r\nab", "1\r\na\n0", "11111111111111111\r\n", "0\r\n\n", "0\r\nx\ry", "1;\n"]
        {
            let bytes = format!("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{body}GET / HTTP/1.1\r\n\r\n");
            for piece in 1..bytes.len() {
                let (read, refused, is_error) = read(bytes.as_bytes(), piece);
                assert!(is_error && refused.is_none(), "{piece}: {body:?}");
                assert!(!String::from_utf8_lossy(&read).contains("GET"), "{piece}: {body:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn nothing_is_lost_or_changed_before_it_is_refused(
            words in prop::collection::vec(prop::sample::select(vec![
                "GET / HTTP/1.1\r\n", "POST / HTTP/1.0\r\n", "Host: a\r\n", "content-length: 3\r\n", "\r\n", "abc", "0\r\n\r\n",
                "Transfer-Encoding: chunked\r\n", "3\r\nabc\r\n", "\n", "\0", "é", " ",
            ]), 0..20),
            piece in 1_usize..40,
        ) {
            let bytes = words.concat();
            let (all, refused, is_error) = read(bytes.as_bytes(), piece);
            let passed = if refused.is_some() { all.strip_suffix(IN_ITS_PLACE).unwrap() } else { &all };
            prop_assert!(bytes.as_bytes().starts_with(passed));
            prop_assert!(refused.is_some() || is_error || passed.len() == bytes.len());
            let (whole, refused_whole, is_error_whole) = read(bytes.as_bytes(), bytes.len().max(1));
            prop_assert_eq!((refused, is_error), (refused_whole, is_error_whole));
            if !is_error {
                prop_assert_eq!(all, whole);
            }
        }
    }
}
