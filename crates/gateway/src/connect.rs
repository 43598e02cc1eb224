//! Ways to a server: sockets, encrypted or not. What names stand for is in `name`.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use smallvec::SmallVec;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::name::Name;
use tollgate_rules::{Address, Place};

/// Whom to believe that he is a server.
#[derive(Clone)]
pub struct Trust(TlsConnector);

impl Trust {
    /// Those whom one of these certificates vouches for.
    pub fn of(roots: RootCertStore) -> Self {
        let mut config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Self(TlsConnector::from(Arc::new(config)))
    }
}

impl std::fmt::Debug for Trust {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Trust")
    }
}

/// A connection to a server.
#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// Where a server is.
#[derive(Debug)]
pub(crate) enum Way {
    Socket,
    Number(SocketAddr),
    Name(Name),
}

impl Way {
    pub(crate) fn to(address: &Address) -> Self {
        if address.socket().is_some() {
            return Self::Socket;
        }
        let (host, port) = address.host_and_port().unwrap_or_default();
        match host.parse::<IpAddr>() {
            Ok(number) => Self::Number(SocketAddr::new(number, port)),
            Err(_) => Self::Name(Name::new(host, port)),
        }
    }
}

/// A connection, by a way to this address.
pub(crate) async fn connect(
    address: &Address,
    way: &Way,
    trust: Option<&Trust>,
    within: Option<&[Place]>,
) -> io::Result<Stream> {
    let stream = match way {
        Way::Socket => {
            return UnixStream::connect(address.socket().unwrap_or_default()).await.map(Stream::Unix);
        }
        Way::Number(number) => TcpStream::connect(&*allowed(&[*number], address, within)?).await?,
        Way::Name(name) => {
            let found = name.addresses().await?;
            let connected = TcpStream::connect(&*allowed(&found, address, within)?).await;
            connected.inspect_err(|_| name.doubt())?
        }
    };
    stream.set_nodelay(true)?;
    if !address.is_encrypted() {
        return Ok(Stream::Tcp(stream));
    }
    let (host, _) = address.host_and_port().unwrap_or_default();
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    let trust = trust.ok_or_else(|| io::Error::other("nobody is trusted to be an encrypted server"))?;
    Ok(Stream::Tls(Box::new(trust.0.connect(name, stream).await?)))
}

/// Where an address leads, as far as that is allowed. What is looked at is what is connected to: a name that leads
/// elsewhere the next time helps nobody.
fn allowed(found: &[SocketAddr], address: &Address, within: Option<&[Place]>) -> io::Result<SmallVec<[SocketAddr; 4]>> {
    let is_allowed =
        |found: &&SocketAddr| within.is_none_or(|places| places.iter().any(|place| place.contains(found.ip())));
    let allowed: SmallVec<[SocketAddr; 4]> = found.iter().filter(is_allowed).copied().collect();
    if allowed.is_empty() {
        let message = format!("{address} is not within the networks in which servers may be");
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
    }
    Ok(allowed)
}

/// How long a connection is silent before the system asks whether the other end is still there, and how often it asks.
const PROBE: Duration = Duration::from_secs(60);
const PROBES_EVERY: Duration = Duration::from_secs(20);

/// Has the system find out when the other end of a connection is gone without a word. Best effort: not all systems do.
pub fn probe(socket: &TcpStream) {
    let probes = socket2::TcpKeepalive::new().with_time(PROBE).with_interval(PROBES_EVERY);
    let _ = socket2::SockRef::from(socket).set_tcp_keepalive(&probes);
}

impl Stream {
    /// See [`probe`].
    pub(crate) fn probe(&self) {
        match self {
            Self::Tcp(stream) => probe(stream),
            Self::Tls(stream) => probe(stream.get_ref().0),
            Self::Unix(_) => {}
        }
    }

    /// Whether the other end has said something, or gone, while nobody listened. Asks the system nothing.
    pub(crate) fn has_news(&self) -> bool {
        match self {
            Self::Tcp(stream) => stream.try_io(Interest::READABLE, || Ok(())).is_ok(),
            Self::Tls(stream) => stream.get_ref().0.try_io(Interest::READABLE, || Ok(())).is_ok(),
            Self::Unix(stream) => stream.try_io(Interest::READABLE, || Ok(())).is_ok(),
        }
    }

    /// The same, by asking the system: true where anything but silence is to be read.
    pub(crate) fn is_closed(&self) -> bool {
        let is_silent = |socket: socket2::SockRef<'_>| {
            let mut byte = [std::mem::MaybeUninit::uninit()];
            socket.peek(&mut byte).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
        };
        !match self {
            Self::Tcp(stream) => is_silent(socket2::SockRef::from(stream)),
            Self::Tls(stream) => is_silent(socket2::SockRef::from(stream.get_ref().0)),
            Self::Unix(stream) => is_silent(socket2::SockRef::from(stream)),
        }
    }
}

impl AsyncRead for Stream {
    #[inline]
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Unix(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    #[inline]
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Unix(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    #[inline]
    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
            Self::Unix(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        !matches!(self, Self::Tls(_))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            Self::Unix(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
