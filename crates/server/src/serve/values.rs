//! Single values of arguments, each with an error that says what to write.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use tollgate::Micros;
use tollgate::rules::Network;
use tollgate_core::Rate;

use super::address::Address;
use super::settings::Secret;
use super::tls::TlsFiles;

/// The files of one port, complete or refused: encryption that was asked for is never left out.
pub(crate) fn tls(
    port: &str,
    address: &Address,
    [certificate, key, client_ca]: [Option<&PathBuf>; 3],
    client_name: Option<&String>,
) -> anyhow::Result<Option<TlsFiles>> {
    let files = match (certificate, key) {
        (Some(certificate), Some(key)) => TlsFiles {
            certificate: certificate.clone(),
            key: key.clone(),
            client_ca: client_ca.cloned(),
            client_name: client_name.cloned(),
        },
        (None, None) if client_ca.is_none() && client_name.is_none() => return Ok(None),
        _ => bail!("--{port}-tls-cert and --{port}-tls-key are needed to encrypt, both of them"),
    };
    if files.client_name.is_some() && files.client_ca.is_none() {
        bail!("--{port}-tls-client-san needs --{port}-tls-client-ca: somebody has to vouch for the name");
    }
    if matches!(address, Address::Unix(_)) {
        bail!(
            "--{port} is a socket of this machine, which is not encrypted: listen on TCP, or leave --{port}-tls-… out"
        );
    }
    Ok(Some(files))
}

pub(super) fn secret(given: Option<&str>, file: Option<&Path>) -> anyhow::Result<Option<Secret>> {
    let text = match (given, file) {
        (Some(given), _) => given.to_owned(),
        (None, Some(file)) => {
            let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
            text.trim_end_matches(['\r', '\n']).to_owned()
        }
        (None, None) => return Ok(None),
    };
    if text.is_empty() {
        bail!("a secret cannot be empty");
    }
    Ok(Some(Secret::new(text)))
}

pub(crate) fn parse_size(text: &str) -> Result<usize, String> {
    let digits = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit {
        "" | "B" => 0,
        "K" | "KiB" => 10,
        "M" | "MiB" => 20,
        "G" | "GiB" => 30,
        _ => return Err("write a size such as 512MiB or 2GiB".to_owned()),
    };
    let bytes = number.parse::<usize>().ok().and_then(|number| number.checked_mul(1 << shift));
    bytes.ok_or_else(|| "write a size such as 512MiB or 2GiB".to_owned())
}

pub(crate) fn parse_time(text: &str) -> Result<Micros, String> {
    tollgate::rules::parse_duration(text)
}

pub(crate) fn parse_rate(text: &str) -> Result<Rate, String> {
    tollgate::rules::parse_rate(text)
}

pub(crate) fn parse_network(text: &str) -> Result<Network, String> {
    Network::parse(text).ok_or_else(|| "write an address or a network such as 10.0.0.0/8".to_owned())
}
