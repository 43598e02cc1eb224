//! The protocol of Redis, in its second and third version: `CL.THROTTLE`, tollgate's own commands, and what clients
//! send when they connect. It holds no data: what is not about limits is answered with the error that Redis has for
//! unknown commands.

mod buffers;
mod commands;
mod connection;
mod crowd;
mod greet;
mod info;
mod own;
mod parse;
mod question;
mod reply;
mod session;
mod throttle;
mod transaction;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::AsyncWriteExt as _;

use self::connection::{Bounds, Connection};
use self::session::Session;
use crate::gate::{Door, Meter};
use crate::serve::{Drained, House, Peer, Serve, Stream};

pub(crate) use self::parse::Parser;

/// How long a connection may be silent before the system asks whether anybody is still there.
const KEEPALIVE: Duration = Duration::from_secs(300);
/// How long a client that is one too many may take to be told so.
const REFUSAL: Duration = Duration::from_secs(1);

pub(crate) struct RespService {
    house: Arc<House>,
    /// The number of the last connection.
    connections: AtomicU64,
}

impl RespService {
    pub(crate) fn new(house: &Arc<House>) -> Self {
        Self { house: Arc::clone(house), connections: AtomicU64::new(0) }
    }
}

impl Serve for RespService {
    async fn serve(self: Arc<Self>, stream: Stream, peer: Peer, drained: Drained) {
        if let Stream::Tcp(stream) = &stream {
            // Nobody is harmed by a connection that lives a little too long.
            let _ = SockRef::from(stream).set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE));
        }
        let number = self.connections.fetch_add(1, Ordering::Relaxed) + 1;
        let session = Session::new(&self.house, number, peer);
        Connection::new(stream, session, Bounds::default()).run(drained).await;
    }

    fn meter(&self) -> &Meter {
        self.house.gate.meter(Door::Resp)
    }

    async fn refuse(mut stream: Stream) {
        let told = stream.write_all(b"-ERR max number of clients reached\r\n");
        // Whether it was heard is of no interest.
        let _ = tokio::time::timeout(REFUSAL, told).await;
    }
}
