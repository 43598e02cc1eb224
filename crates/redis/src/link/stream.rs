//! Opens a stream of bytes to a server: TCP, TLS or a socket in the file system. Names and files are read off the
//! thread that talks, again each time, so that what has changed counts at the next connection.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::address::{Endpoint, TlsFiles};
use super::names::Names;

/// A stream of bytes, whatever carries it.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// A server that does not answer for so long is not waited for before another of the same name is tried.
const STAGGER: Duration = Duration::from_millis(20);

/// Where systems keep those whom they trust.
const SYSTEM_AUTHORITIES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
    "/etc/ssl/ca-bundle.pem",
];

/// Opens a stream to `endpoint`. A name gets at most `lookup` to be looked up.
pub(super) async fn open(
    endpoint: &Endpoint,
    tls: Option<&TlsFiles>,
    names: &Names,
    lookup: Duration,
) -> io::Result<Box<dyn Stream>> {
    let (host, port) = match endpoint {
        Endpoint::Unix(path) => return Ok(Box::new(UnixStream::connect(path).await?)),
        Endpoint::Tcp(host, port) => (host, *port),
    };
    let addresses = names.addresses(host, port, lookup).await?;
    let stream = connect(&addresses).await?;
    stream.set_nodelay(true)?;
    // What could not be sent is thrown away with the connection: it must not arrive when nobody waits for it any more.
    stream.set_zero_linger()?;
    let Some(files) = tls else { return Ok(Box::new(stream)) };
    let name = files.server_name.clone().unwrap_or_else(|| host.clone());
    let name = ServerName::try_from(name).map_err(|_| io::Error::other("the host is no name for a certificate"))?;
    let files = files.clone();
    let config = tokio::task::spawn_blocking(move || config(&files)).await.map_err(io::Error::other)??;
    Ok(Box::new(TlsConnector::from(Arc::new(config)).connect(name, stream).await?))
}

/// Connects to whichever answers first. The next is begun when one fails, or is silent for a while, so that one that is
/// gone does not stand before the others.
async fn connect(addresses: &[SocketAddr]) -> io::Result<TcpStream> {
    let mut attempts = JoinSet::new();
    let mut failed = io::Error::from(io::ErrorKind::NotFound);
    for address in addresses {
        attempts.spawn(TcpStream::connect(*address));
        if let Ok(Some(Ok(tried))) = timeout(STAGGER, attempts.join_next()).await {
            match tried {
                Ok(stream) => return Ok(stream),
                Err(error) => failed = error,
            }
        }
    }
    while let Some(tried) = attempts.join_next().await {
        match tried.unwrap_or_else(|panic| Err(io::Error::other(panic))) {
            Ok(stream) => return Ok(stream),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

fn config(files: &TlsFiles) -> io::Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    match &files.ca {
        Some(path) => {
            for certificate in certificates(path)? {
                let added = roots.add(certificate);
                added.map_err(|error| io::Error::other(format!("a certificate in {}: {error}", path.display())))?;
            }
        }
        None => {
            let path = SYSTEM_AUTHORITIES.iter().map(Path::new).find(|path| path.exists());
            let path = path.ok_or_else(|| io::Error::other("the system has no list of authorities: give ca_file"))?;
            // One that is odd does not take the others away.
            let _ = roots.add_parsable_certificates(certificates(path)?);
        }
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots);
    let Some((certificate, key)) = &files.own else { return Ok(builder.with_no_client_auth()) };
    let chain = certificates(certificate)?;
    let secret = PrivateKeyDer::from_pem_file(key)
        .map_err(|error| io::Error::other(format!("there is no private key in {}: {error}", key.display())))?;
    builder.with_client_auth_cert(chain, secret).map_err(|error| {
        let (certificate, key) = (certificate.display(), key.display());
        io::Error::other(format!("{certificate} and {key} do not fit together: {error}"))
    })
}

fn certificates(path: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let wrong = |error: &dyn std::fmt::Display| io::Error::other(format!("{}: {error}", path.display()));
    let read: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path).map_err(|error| wrong(&error))?.collect();
    let read = read.map_err(|error| wrong(&error))?;
    if read.is_empty() { Err(wrong(&"there is no certificate in it")) } else { Ok(read) }
}
