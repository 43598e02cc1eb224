//! What follows an upgrade: bytes both ways, whatever they mean.

use std::io;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, copy_bidirectional};

use crate::connect::Stream;
use crate::server::Busy;

/// A connection to a server that agreed to speak something else on it.
#[derive(Debug)]
pub struct Tunnel {
    stream: Stream,
    /// What it said already.
    first: BytesMut,
    /// The server is busy for as long as the tunnel is there.
    _busy: Busy,
}

impl Tunnel {
    pub(crate) fn new(stream: Stream, first: BytesMut, busy: Busy) -> Self {
        Self { stream, first, _busy: busy }
    }
}

/// Carries bytes both ways until both ends are done, or one of them is gone. How many came from the client, and how many went there.
pub async fn tunnel(mut client: impl AsyncRead + AsyncWrite + Unpin, mut server: Tunnel) -> io::Result<(u64, u64)> {
    client.write_all(&server.first).await?;
    let first = server.first.len() as u64;
    let (up, down) = copy_bidirectional(&mut client, &mut server.stream).await?;
    Ok((up, down + first))
}
