//! HTTP/2 frame by frame, for what no client would send.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

pub(crate) const REFUSED_STREAM: u32 = 7;
pub(crate) const CANCEL: u32 = 8;
pub(crate) const ENHANCE_YOUR_CALM: u32 = 11;

/// What a client of HTTP/2 sends first, with no settings of its own.
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// A frame as it is sent.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, a, b, c] = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&[a, b, c, kind, flags], &stream.to_be_bytes()[..], payload].concat()
}

/// Fields, each of them literal and not to be remembered.
pub(crate) fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for part in [name, value] {
            block.extend(length(part.len()));
            block.extend_from_slice(part.as_bytes());
        }
    }
    block
}

/// How long a string is, as HPACK says it.
pub(crate) fn length(mut length: usize) -> Vec<u8> {
    if length < 127 {
        return vec![u8::try_from(length).unwrap()];
    }
    let mut bytes = vec![127];
    length -= 127;
    while length >= 128 {
        bytes.push(u8::try_from(length % 128 + 128).unwrap());
        length /= 128;
    }
    bytes.push(u8::try_from(length).unwrap());
    bytes
}

/// The fields of a request.
pub(crate) fn asks<'a>(method: &'a str, path: &'a str) -> [(&'a str, &'a str); 4] {
    [(":method", method), (":scheme", "http"), (":authority", "a"), (":path", path)]
}

/// A frame that was read.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

impl Told {
    /// Why a stream was reset, or a connection ended.
    pub(crate) fn reason(&self) -> u32 {
        let at = if self.kind == GOAWAY { 4 } else { 0 };
        u32::from_be_bytes(self.payload[at..at + 4].try_into().unwrap())
    }
}

/// A connection that has begun.
pub(crate) struct Http2 {
    pub(crate) stream: TcpStream,
}

impl Http2 {
    pub(crate) fn connect(at: SocketAddr) -> Self {
        let mut stream = TcpStream::connect(at).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.set_write_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.write_all(PREFACE).unwrap();
        Self { stream }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// The next frame; an error when there is no other.
    pub(crate) fn read(&mut self) -> io::Result<Told> {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head)?;
        let [a, b, c, kind, flags, ref stream @ ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        self.stream.read_exact(&mut payload)?;
        Ok(Told { kind, flags, stream: u32::from_be_bytes(*stream), payload })
    }

    /// All that is told until what was sent so far has been read.
    pub(crate) fn settled(&mut self) -> io::Result<Vec<Told>> {
        self.send(&frame(PING, 0, 0, b"settled?"))?;
        let mut told = Vec::new();
        loop {
            let next = self.read()?;
            let is_answer = next.kind == PING && next.flags == 1 && next.payload == b"settled?";
            told.push(next);
            if is_answer {
                return Ok(told);
            }
        }
    }
}

/// Whether an error says that the other end has left, and not that it is silent.
pub(crate) fn is_left(error: &io::Error) -> bool {
    !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}
