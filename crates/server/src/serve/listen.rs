//! Listening and accepting: one listener for each address, and every connection to the thread with the fewest.

use std::fs;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use super::address::Address;
use super::doorman::Doorman;
use super::drain::Drained;
use super::stream::{Peer, Stream};
use super::tls::Tls;
use super::workers::Workers;
use crate::gate::Meter;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 4_096;
/// How long to wait when the system has no more file descriptors: others may close some.
const OUT_OF_FILES: Duration = Duration::from_millis(20);
/// How often the log says so.
const TELL_AGAIN: Duration = Duration::from_secs(10);
/// How long those are let in at the end who had connected before it.
const LAST_CALL: Duration = Duration::from_millis(20);
/// How long a client may take to agree on encryption.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// A bound address.
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, SocketFile),
}

/// Removes the file of a socket when nobody listens any more.
pub(crate) struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Serves connections of one protocol.
pub(crate) trait Serve: Send + Sync + 'static {
    /// Serves one connection to its end.
    fn serve(self: Arc<Self>, stream: Stream, peer: Peer, drained: Drained) -> impl Future<Output = ()> + Send;

    /// Where its connections are counted.
    fn meter(&self) -> &Meter;

    /// Who looks at connections before anything is read of them.
    fn doorman(&self) -> Option<&Arc<Doorman>> {
        None
    }

    /// Connections above the most that there may be, for those who look after the others.
    const SPARE: usize = 0;

    /// Turns a connection away because there are too many.
    fn refuse(stream: Stream) -> impl Future<Output = ()> + Send {
        drop(stream);
        std::future::ready(())
    }
}

impl Listener {
    /// Has to be called within a runtime. `None` for an address that is off.
    pub(crate) fn bind(address: &Address) -> anyhow::Result<Option<Self>> {
        match address {
            Address::Off => Ok(None),
            Address::Tcp(address) => match bind_tcp(*address) {
                Ok(listener) => Ok(Some(Self::Tcp(listener))),
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                    anyhow::bail!("something listens there already; give another port, or 0 for any that is free")
                }
                Err(error) => Err(error).context("cannot listen there"),
            },
            Address::Unix(path) => {
                let listener = bind_unix(path).context("cannot listen there")?;
                Ok(Some(Self::Unix(listener, SocketFile(path.clone()))))
            }
        }
    }

    /// Where it listens, with the port that was free.
    pub(crate) fn address(&self) -> io::Result<Address> {
        match self {
            Self::Tcp(listener) => listener.local_addr().map(Address::Tcp),
            Self::Unix(_, file) => Ok(Address::Unix(file.0.clone())),
        }
    }

    async fn accept(&self) -> io::Result<Accepted> {
        match self {
            Self::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                // Answers are whole; waiting for more to send helps nobody.
                let _ = stream.set_nodelay(true);
                Ok(Accepted::Tcp(stream.into_std()?, peer))
            }
            Self::Unix(listener, _) => Ok(Accepted::Unix(listener.accept().await?.0.into_std()?)),
        }
    }

    /// Accepts until the end is announced, and then once more whatever waits already: whoever was connected gets an
    /// answer.
    pub(crate) async fn run<S: Serve>(self, room: Room<S>) {
        let mut drained = room.drained.clone();
        let mut told: Option<tokio::time::Instant> = None;
        loop {
            let accepted = tokio::select! {
                biased;
                () = drained.closing() => break,
                accepted = self.accept() => accepted,
            };
            match accepted {
                Ok(accepted) => room.admit(accepted),
                Err(error) if is_about_one_connection(&error) => {}
                Err(error) => {
                    // It may last, and the log is not to be full of it.
                    if told.is_none_or(|told| told.elapsed() > TELL_AGAIN) {
                        tracing::warn!(%error, "connections cannot be accepted");
                        told = Some(tokio::time::Instant::now());
                    }
                    tokio::time::sleep(OUT_OF_FILES).await;
                }
            }
        }
        let waiting = async {
            for _ in 0..BACKLOG {
                if let Ok(accepted) = self.accept().await {
                    room.admit(accepted);
                }
            }
        };
        // As many as were there already; others keep coming as long as they find somebody.
        let _ = tokio::time::timeout(LAST_CALL, waiting).await;
    }
}

/// A connection that is not yet on a worker's runtime.
enum Accepted {
    Tcp(std::net::TcpStream, SocketAddr),
    Unix(std::os::unix::net::UnixStream),
}

/// What a listener needs to hand connections on.
pub(crate) struct Room<S> {
    pub(crate) protocol: Arc<S>,
    pub(crate) workers: Arc<Workers>,
    pub(crate) tls: Option<Arc<Tls>>,
    pub(crate) most_connections: usize,
    pub(crate) drained: Drained,
}

/// Counts an open connection for as long as it lives, however it ends.
struct Open<S: Serve>(Arc<S>);

impl<S: Serve> Open<S> {
    fn new(protocol: Arc<S>) -> Self {
        protocol.meter().opened();
        Self(protocol)
    }
}

impl<S: Serve> Drop for Open<S> {
    fn drop(&mut self) {
        self.0.meter().closed();
    }
}

impl<S: Serve> Room<S> {
    fn admit(&self, accepted: Accepted) {
        let guest = match (&accepted, self.protocol.doorman()) {
            (Accepted::Tcp(stream, peer), Some(doorman)) => match doorman.admit(peer.ip()) {
                Ok(guest) => Some(guest),
                Err(_) => {
                    // Reset, so that nothing of it is left here either.
                    let _ = socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO));
                    return;
                }
            },
            _ => None,
        };
        let is_full = self.workers.connections() >= self.most_connections.saturating_add(S::SPARE);
        let protocol = Arc::clone(&self.protocol);
        let drained = self.drained.clone();
        let tls = self.tls.clone();
        let open = Open::new(Arc::clone(&protocol));
        self.workers.spawn(async move {
            let (_open, _guest) = (open, guest);
            let stream = match accepted {
                Accepted::Tcp(stream, peer) => {
                    TcpStream::from_std(stream).map(|stream| (Stream::Tcp(stream), Peer::Address(peer.ip())))
                }
                Accepted::Unix(stream) => {
                    UnixStream::from_std(stream).map(|stream| (Stream::Unix(stream), Peer::Local))
                }
            };
            let Ok((stream, peer)) = stream else { return };
            if is_full {
                // Who expects TLS would not understand a word of it.
                return if tls.is_none() {
                    S::refuse(stream).await;
                };
            }
            let stream = match (stream, tls) {
                (Stream::Tcp(stream), Some(tls)) => match tokio::time::timeout(HANDSHAKE, tls.accept(stream)).await {
                    Ok(Ok(stream)) => Stream::Tls(Box::new(stream)),
                    Ok(Err(error)) => return tracing::debug!(%error, "a TLS handshake failed"),
                    Err(_) => return,
                },
                (stream, _) => stream,
            };
            protocol.serve(stream, peer, drained).await;
        });
    }
}

/// Errors that concern a client that has gone already.
fn is_about_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionRefused
    )
}

fn bind_tcp(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // A server that was just stopped leaves connections behind that keep the port for a while.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

fn bind_unix(path: &Path) -> anyhow::Result<UnixListener> {
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.file_type().is_socket() => {
            if std::os::unix::net::UnixStream::connect(path).is_ok() {
                anyhow::bail!("another process listens there");
            }
            fs::remove_file(path)?;
        }
        Ok(_) => anyhow::bail!("there is a file that is no socket"),
        Err(_) => {}
    }
    Ok(UnixListener::bind(path)?)
}
