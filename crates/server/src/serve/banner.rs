//! What is printed when the service is up: where it listens, and what to try.

use std::io::{self, Write};

use super::address::Address;
use super::server::Addresses;

/// `scheme` is that of the HTTP port.
pub(super) fn show(
    addresses: &Addresses,
    is_example: bool,
    scheme: &str,
    color: bool,
    out: &mut dyn Write,
) -> io::Result<()> {
    let (bold, dim, off) = if color { ("\x1b[1m", "\x1b[2m", "\x1b[0m") } else { ("", "", "") };
    let lines = [
        ("gRPC", &addresses.grpc, "Envoy's rate limit service, version 3"),
        ("HTTP", &addresses.http, "API (/openapi.json), /json, forward-auth (/check)"),
        ("Redis", &addresses.resp, "CL.THROTTLE and commands of its own (TG.HELP)"),
        ("admin", &addresses.admin, "/metrics, /rlconfig, switches"),
    ];
    writeln!(out, "{bold}tollgate{off} {} is serving", env!("CARGO_PKG_VERSION"))?;
    let metrics = (addresses.metrics != Address::Off).then_some(("metrics", &addresses.metrics, "metrics alone"));
    for (name, address, what) in lines.into_iter().chain(metrics) {
        writeln!(out, "  {name:<7} {bold}{:<22}{off} {dim}{what}{off}", address.to_string())?;
    }
    if is_example {
        writeln!(out, "\nThese are example rules; --rules FILE serves yours. Try, a few times each:\n")?;
        try_http(&addresses.http, scheme, out)?;
        try_redis(&addresses.resp, out)?;
        try_envoy(&addresses.grpc, out)?;
    }
    Ok(())
}

fn try_http(address: &Address, scheme: &str, out: &mut dyn Write) -> io::Result<()> {
    let Address::Tcp(address) = address else { return Ok(()) };
    let body = r#"{"attributes": {"user_id": "42", "path": "/posts", "method": "POST"}}"#;
    writeln!(out, "  curl -i {scheme}://{}/v1/check -d '{body}'\n", reachable(*address))
}

fn try_redis(address: &Address, out: &mut dyn Write) -> io::Result<()> {
    let Address::Tcp(address) = address else { return Ok(()) };
    writeln!(out, "  redis-cli -h {} -p {} CL.THROTTLE user:42 4 5 60\n", reachable(*address).ip(), address.port())
}

fn try_envoy(address: &Address, out: &mut dyn Write) -> io::Result<()> {
    let Address::Tcp(address) = address else { return Ok(()) };
    let address = reachable(*address);
    writeln!(out, "  Envoy asks it by this filter, with a cluster `tollgate` of HTTP/2 at {address}:")?;
    writeln!(
        out,
        "    - name: envoy.filters.http.ratelimit
      typed_config:
        \"@type\": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit
        domain: example
        rate_limit_service:
          transport_api_version: V3
          grpc_service: {{envoy_grpc: {{cluster_name: tollgate}}}}"
    )
}

/// An address that a client on this machine can use.
fn reachable(address: std::net::SocketAddr) -> std::net::SocketAddr {
    if !address.ip().is_unspecified() {
        return address;
    }
    let local: std::net::IpAddr =
        if address.is_ipv4() { std::net::Ipv4Addr::LOCALHOST.into() } else { std::net::Ipv6Addr::LOCALHOST.into() };
    std::net::SocketAddr::new(local, address.port())
}
