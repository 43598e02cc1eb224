//! Whom to believe that servers are who they say: files of certificates, looked at before they are put in force.

use anyhow::Context as _;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tollgate::rules::{Diagnostic, Parsed};
use tollgate_gateway::Trust;

/// What is wrong with files that upstreams name. Servers that nobody vouches for would be out of reach.
pub(crate) fn check_trust(parsed: &mut Parsed) {
    for upstream in &parsed.gateway.upstreams {
        if let Some(ca) = &upstream.ca
            && let Err(error) = trust(Some(ca))
        {
            let message = format!("upstream `{}`: its `ca` cannot be used: {error:#}", upstream.name);
            let problem = Diagnostic::error("bad-ca", upstream.span, message);
            parsed.diagnostics.push(problem.help("name a file with certificates in PEM form"));
        }
    }
}

/// Whom to believe: those in a file, or those that the system believes.
pub(super) fn trust(ca: Option<&str>) -> anyhow::Result<Trust> {
    let mut roots = RootCertStore::empty();
    match ca {
        Some(path) => {
            let pem = std::fs::read(path).with_context(|| format!("cannot read {path}"))?;
            for certificate in CertificateDer::pem_slice_iter(&pem) {
                let certificate = certificate.with_context(|| format!("{path} is no PEM"))?;
                roots.add(certificate).with_context(|| format!("a certificate in {path}"))?;
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    if roots.is_empty() {
        anyhow::bail!("there is no certificate that could vouch for them: name a file with `ca`");
    }
    Ok(Trust::of(roots))
}
