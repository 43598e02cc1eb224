//! Encryption: certificates from files, read again when the files change.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context as _;
use arc_swap::ArcSwap;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// The files of a listener's certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate and those that vouch for it, in PEM.
    pub certificate: PathBuf,
    /// Its private key, in PEM.
    pub key: PathBuf,
    /// Whoever connects has to show a certificate that one of these vouches for.
    pub client_ca: Option<PathBuf>,
    /// And that certificate has to be for this name.
    pub client_name: Option<String>,
}

/// Accepts encrypted connections.
pub(crate) struct Tls {
    files: TlsFiles,
    /// Protocols in the order of preference, as ALPN calls them.
    protocols: &'static [&'static [u8]],
    acceptor: ArcSwap<Loaded>,
    /// What was wrong at the last look, so that it is told once.
    failed: Mutex<String>,
}

struct Loaded {
    /// What the files said.
    bytes: Vec<Vec<u8>>,
    acceptor: TlsAcceptor,
}

impl Tls {
    pub(crate) fn load(files: TlsFiles, protocols: &'static [&'static [u8]]) -> anyhow::Result<Self> {
        let loaded = Loaded::read(&files, protocols)?;
        Ok(Self { files, protocols, acceptor: ArcSwap::from_pointee(loaded), failed: Mutex::default() })
    }

    pub(crate) async fn accept(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let acceptor = self.acceptor.load().acceptor.clone();
        let stream = acceptor.accept(stream).await?;
        if let Some(name) = &self.files.client_name {
            let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
            if !shown.is_some_and(|certificate| is_for(certificate, name)) {
                return Err(io::Error::other(format!("the client's certificate is not for {name}")));
            }
        }
        Ok(stream)
    }

    /// Reads the files again; what is wrong with them leaves the old ones in force.
    pub(crate) fn refresh(&self) {
        let unchanged = self.files.read().is_ok_and(|bytes| bytes == self.acceptor.load().bytes);
        if unchanged {
            return;
        }
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        match Loaded::read(&self.files, self.protocols) {
            Ok(loaded) => {
                self.acceptor.store(Arc::new(loaded));
                failed.clear();
                tracing::info!(certificate = %self.files.certificate.display(), "certificate loaded");
            }
            Err(error) => {
                let said = format!("{error:#}");
                if *failed != said {
                    tracing::error!("the certificate cannot be used, the old one stays: {said}");
                    *failed = said;
                }
            }
        }
    }
}

impl TlsFiles {
    fn read(&self) -> anyhow::Result<Vec<Vec<u8>>> {
        let paths = [Some(&self.certificate), Some(&self.key), self.client_ca.as_ref()];
        paths.into_iter().flatten().map(|path| read(path)).collect()
    }
}

fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

impl Loaded {
    fn read(files: &TlsFiles, protocols: &[&[u8]]) -> anyhow::Result<Self> {
        let bytes = files.read()?;
        let [certificate, key, rest @ ..] = &*bytes else { anyhow::bail!("a certificate and a key are needed") };
        let chain = certificates(certificate, &files.certificate)?;
        let key = PrivateKeyDer::from_pem_slice(key)
            .with_context(|| format!("there is no private key in {}", files.key.display()))?;
        let builder = ServerConfig::builder();
        let builder = match (rest, &files.client_ca) {
            ([ca, ..], Some(path)) => {
                let mut roots = RootCertStore::empty();
                for certificate in certificates(ca, path)? {
                    roots.add(certificate).with_context(|| format!("a certificate in {}", path.display()))?;
                }
                let verifier = WebPkiClientVerifier::builder(Arc::new(roots)).build();
                builder.with_client_cert_verifier(verifier.context("client certificates cannot be checked")?)
            }
            _ => builder.with_no_client_auth(),
        };
        let mut config = builder.with_single_cert(chain, key).with_context(|| {
            format!("{} and {} do not fit together", files.certificate.display(), files.key.display())
        })?;
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        Ok(Self { bytes, acceptor: TlsAcceptor::from(Arc::new(config)) })
    }
}

fn is_for(certificate: &CertificateDer<'_>, name: &str) -> bool {
    let (Ok(certificate), Ok(name)) = (webpki::EndEntityCert::try_from(certificate), ServerName::try_from(name)) else {
        return false;
    };
    certificate.verify_is_valid_for_subject_name(&name).is_ok()
}

fn certificates(pem: &[u8], path: &Path) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let read = read.with_context(|| format!("{} is no PEM", path.display()))?;
    if read.is_empty() {
        anyhow::bail!("there is no certificate in {}", path.display());
    }
    Ok(read)
}
