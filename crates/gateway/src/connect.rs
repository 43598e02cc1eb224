//! Ways to a server: sockets, encrypted or not.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

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

pub(crate) async fn connect(address: &Address, trust: Option<&Trust>, within: Option<&[Place]>) -> io::Result<Stream> {
    if let Some(path) = address.socket() {
        return UnixStream::connect(path).await.map(Stream::Unix);
    }
    let (host, port) = address.host_and_port().unwrap_or_default();
    let stream = match within {
        None => TcpStream::connect((host, port)).await?,
        Some(places) => TcpStream::connect(&*allowed(host, port, places).await?).await?,
    };
    stream.set_nodelay(true)?;
    if !address.is_encrypted() {
        return Ok(Stream::Tcp(stream));
    }
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    let trust = trust.ok_or_else(|| io::Error::other("nobody is trusted to be an encrypted server"))?;
    Ok(Stream::Tls(Box::new(trust.0.connect(name, stream).await?)))
}

/// Where a name leads, as far as that is allowed. What is looked at is what is connected to: a name that leads elsewhere the next time helps
/// nobody.
async fn allowed(host: &str, port: u16, places: &[Place]) -> io::Result<Vec<SocketAddr>> {
    // As an address it stands in brackets.
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let found: Vec<SocketAddr> = tokio::net::lookup_host((host, port)).await?.collect();
    let is_allowed = |address: &SocketAddr| places.iter().any(|place| place.contains(address.ip()));
    let allowed: Vec<SocketAddr> = found.iter().copied().filter(is_allowed).collect();
    if allowed.is_empty() {
        let message = format!("{host} is not within the networks in which servers may be");
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
    }
    Ok(allowed)
}

impl Stream {
    /// Whether the other end has said something, or gone, while nobody listened. Asks the system nothing.
    pub(crate) fn has_news(&self) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        match self {
            Self::Tcp(stream) => stream.poll_read_ready(&mut context).is_ready(),
            Self::Tls(stream) => stream.get_ref().0.poll_read_ready(&mut context).is_ready(),
            Self::Unix(stream) => stream.poll_read_ready(&mut context).is_ready(),
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
