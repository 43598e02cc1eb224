//! Any bytes as what a server answers, and as the path of a request: what has to hold of them whatever they are. For
//! tests and fuzzing.

use std::fmt::Write as _;

use bytes::BytesMut;
use http::Method;

use crate::framing::Decoded;
use crate::head::Head;
use crate::route::normal_path;

/// What was read of an answer.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    statuses: Vec<u16>,
    body: Vec<u8>,
    end: End,
}

#[derive(Debug, PartialEq, Eq)]
enum End {
    Whole,
    Half,
    Wrong,
}

/// In one piece or in pieces the same answer comes of any bytes, or none. The first byte says how the rest is cut.
pub fn any_answer(bytes: &[u8]) -> Result<(), String> {
    let [cut, bytes @ ..] = bytes else { return Ok(()) };
    let method = if cut & 1 == 0 { Method::GET } else { Method::HEAD };
    let whole = answer(bytes, &method, |_| bytes.len());
    let cut = u32::from(*cut);
    let mixed =
        answer(bytes, &method, |read| 1 + (read as u32).wrapping_mul(2_654_435_761).wrapping_add(cut) as usize % 97);
    for other in [answer(bytes, &method, |_| 1), mixed] {
        if other != whole {
            return Err(format!("in one piece {whole:?}, in pieces {other:?}"));
        }
    }
    Ok(())
}

/// The answer in `bytes`, if they come in pieces as long as `piece` says.
fn answer(bytes: &[u8], method: &Method, piece: impl Fn(usize) -> usize) -> Seen {
    let mut seen = Seen { statuses: Vec::new(), body: Vec::new(), end: End::Half };
    let (mut input, mut read) = (BytesMut::new(), 0);
    let mut next = |input: &mut BytesMut| {
        let more = bytes.get(read..).unwrap_or_default();
        let more = more.get(..piece(read).max(1)).unwrap_or(more);
        input.extend_from_slice(more);
        read += more.len();
        !more.is_empty()
    };
    let mut framing = loop {
        match Head::parse(&mut input) {
            Ok(Some(head)) => {
                seen.statuses.push(head.status.as_u16());
                match head.framing(method) {
                    Ok(_) if head.status.is_informational() => {}
                    Ok(framing) => break framing,
                    Err(_) => return Seen { end: End::Wrong, ..seen },
                }
            }
            Ok(None) if next(&mut input) => {}
            Ok(None) => return seen,
            Err(_) => return Seen { end: End::Wrong, ..seen },
        }
    };
    loop {
        match framing.decode(&mut input) {
            Decoded::Data(data) => seen.body.extend_from_slice(&data),
            Decoded::End => return Seen { end: End::Whole, ..seen },
            Decoded::Wrong(_) => return Seen { end: End::Wrong, ..seen },
            Decoded::More if next(&mut input) => {}
            Decoded::More if framing.is_whole_at_end() => return Seen { end: End::Whole, ..seen },
            Decoded::More => return seen,
        }
    }
}

/// Any text as a path: its normal form has one of its own, itself, and is the same however the path is escaped.
pub fn any_path(bytes: &[u8]) -> Result<(), String> {
    let Ok(path) = std::str::from_utf8(bytes) else { return Ok(()) };
    let normal = normal_path(path);
    if let Some(normal) = normal.as_deref() {
        let steps_back = normal.split('/').any(|segment| segment == "." || segment == "..");
        if !normal.starts_with('/') || normal.contains("//") || normal.contains([';', '\\']) || steps_back {
            return Err(format!("{path:?} is {normal:?}"));
        }
        if normal_path(normal).as_deref() != Some(normal) {
            return Err(format!("{path:?} is {normal:?}, and that {:?}", normal_path(normal)));
        }
    }
    let escaped = escaped(path);
    if normal_path(&escaped) != normal {
        return Err(format!("{path:?} is {normal:?}, and {escaped:?} is {:?}", normal_path(&escaped)));
    }
    Ok(())
}

/// The same path with all that may be escaped, in lower case.
fn escaped(path: &str) -> String {
    let mut escaped = String::new();
    let mut rest = path.as_bytes();
    while let [byte, next @ ..] = rest {
        rest = next;
        match (byte, next) {
            (b'%', [high, low, next @ ..]) if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                escaped.extend(['%', high.to_ascii_lowercase().into(), low.to_ascii_lowercase().into()]);
                rest = next;
            }
            (b'%' | b'/' | b'\\' | b'?' | b'#' | b';', _) => escaped.push((*byte).into()),
            _ if byte.is_ascii() && !byte.is_ascii_graphic() => escaped.push((*byte).into()),
            _ => {
                let _ = write!(escaped, "%{byte:02x}");
            }
        }
    }
    escaped
}
