//! One connection, whatever carries it.

use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::server::TlsStream;

/// A connection.
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// Who is at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    Address(IpAddr),
    /// A process of this machine, by a socket in the file system.
    Local,
}

impl Stream {
    /// Has the system find out when the other end is gone without a word.
    pub(crate) fn probe(&self) {
        match self {
            Self::Tcp(stream) => tollgate_gateway::probe(stream),
            Self::Tls(stream) => tollgate_gateway::probe(stream.get_ref().0),
            Self::Unix(_) => {}
        }
    }

    /// Completes when the other end has closed the connection, or its half of it, whatever is still to be read before
    /// that; never where the system does not tell. It has a descriptor of its own, and concerns nobody who reads or
    /// writes.
    #[cfg(target_os = "linux")]
    pub(crate) fn closed(&self) -> impl Future<Output = ()> + Send + use<> {
        let twin = self.twin();
        async move {
            // Of all there is to be told, nothing but the end is left where what is urgent was not asked for.
            let told = match &twin {
                Ok(Self::Tcp(stream)) => stream.ready(tokio::io::Interest::PRIORITY).await,
                Ok(Self::Unix(stream)) => stream.ready(tokio::io::Interest::PRIORITY).await,
                _ => return std::future::pending().await,
            };
            if !told.is_ok_and(|told| told.is_read_closed()) {
                std::future::pending::<()>().await;
            }
        }
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn closed(&self) -> impl Future<Output = ()> + Send + use<> {
        std::future::pending()
    }

    /// The same connection by another descriptor, without what is spoken on it.
    #[cfg(target_os = "linux")]
    fn twin(&self) -> io::Result<Self> {
        use std::os::fd::AsFd as _;
        let tcp = |stream: &TcpStream| {
            let twin = stream.as_fd().try_clone_to_owned()?;
            TcpStream::from_std(twin.into()).map(Self::Tcp)
        };
        match self {
            Self::Tcp(stream) => tcp(stream),
            Self::Tls(stream) => tcp(stream.get_ref().0),
            Self::Unix(stream) => {
                let twin = stream.as_fd().try_clone_to_owned()?;
                UnixStream::from_std(twin.into()).map(Self::Unix)
            }
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
        match self {
            Self::Tcp(stream) => stream.is_write_vectored(),
            Self::Unix(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
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
