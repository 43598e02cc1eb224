//! Any bytes as what a client of HTTP/1 sends: what is read of them, in pieces of any size. For tests and fuzzing.

use bytes::BytesMut;

use super::chunks::{Chunks, Decoded, take};
use super::head::{self, Asked, Found, Framing};
use super::malformed::Malformed;
use super::scan::Most;

/// What was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    Request {
        line: String,
        body: Vec<u8>,
        keeps: bool,
    },
    Refused(Malformed),
    /// A body is not framed as it should be.
    Broken,
    /// It ended in the middle.
    Half,
}

/// What comes in.
struct Pieces<'b, P> {
    input: BytesMut,
    bytes: &'b [u8],
    read: usize,
    piece: P,
}

impl<P: Fn(usize) -> usize> Pieces<'_, P> {
    /// The next piece; false at the end.
    fn next(&mut self) -> bool {
        let more = self.bytes.get(self.read..).unwrap_or_default();
        let more = more.get(..(self.piece)(self.read).max(1)).unwrap_or(more);
        self.input.extend_from_slice(more);
        self.read += more.len();
        !more.is_empty()
    }

    fn body(&mut self, framing: Framing) -> Result<Vec<u8>, Seen> {
        let (mut body, mut chunks) = (Vec::new(), Chunks::default());
        let mut left = if let Framing::Length(length) = framing { length } else { u64::MAX };
        while left > 0 {
            let decoded = match framing {
                Framing::Chunked => chunks.decode(&mut self.input),
                Framing::Length(_) if self.input.is_empty() => Decoded::More,
                Framing::Length(_) => Decoded::Data(take(&mut self.input, &mut left)),
            };
            match decoded {
                Decoded::Data(data) => body.extend_from_slice(&data),
                Decoded::End => break,
                Decoded::Wrong => return Err(Seen::Broken),
                Decoded::More if self.next() => {}
                Decoded::More => return Err(Seen::Half),
            }
        }
        Ok(body)
    }
}

/// The requests in `bytes`, if they come in pieces as long as `piece` says, up to the first that is none.
pub(super) fn requests(bytes: &[u8], piece: impl Fn(usize) -> usize, most: Most) -> Vec<Seen> {
    let mut pieces = Pieces { input: BytesMut::new(), bytes, read: 0, piece };
    let (mut seen, mut half) = (Vec::new(), None);
    loop {
        if pieces.input.is_empty() && !pieces.next() {
            return seen;
        }
        let last = match head::take(&mut pieces.input, &mut half, most) {
            Found::Half if pieces.next() => continue,
            Found::Half => Seen::Half,
            Found::Bad(why) => Seen::Refused(why),
            Found::Request(Asked { request, framing, keeps, .. }) => match pieces.body(framing) {
                Ok(body) => {
                    let line = format!("{} {} {:?}", request.method(), request.uri(), request.version());
                    seen.push(Seen::Request { line, body, keeps });
                    continue;
                }
                Err(broken) => broken,
            },
        };
        seen.push(last);
        return seen;
    }
}

/// In one piece or in pieces the same requests come of any bytes, or the same refusal. The first byte says how the rest
/// is cut.
pub(crate) fn any_pieces(bytes: &[u8]) -> Result<(), String> {
    let [cut, bytes @ ..] = bytes else { return Ok(()) };
    let most = Most { bytes: 1 << 10, headers: 16 };
    let whole = requests(bytes, |_| bytes.len(), most);
    let cut = u32::from(*cut);
    let mixed =
        requests(bytes, |read| 1 + (read as u32).wrapping_mul(2_654_435_761).wrapping_add(cut) as usize % 97, most);
    for other in [requests(bytes, |_| 1, most), mixed] {
        if other != whole {
            return Err(format!("in one piece {whole:?}, in pieces {other:?}"));
        }
    }
    Ok(())
}
