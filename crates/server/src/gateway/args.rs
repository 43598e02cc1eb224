//! The arguments of `tollgate gateway`.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use tollgate::Micros;
use tollgate::rules::Place;
use tollgate_core::Rate;
use tollgate_gateway::Limits;

use crate::serve::{
    Address, Addresses, BanSettings, CommonArgs, ConnectionSettings, GatewaySettings, Settings, parse_rate, parse_size,
    parse_time, tls_files,
};

/// Run the gateway: a reverse proxy that limits, shapes and sheds in front of any HTTP API
///
/// One file has everything: which servers there are, which requests go to which of them, and the rules. It is followed
/// as it changes. Without a file the gateway starts empty, to be filled through its admin port.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tollgate gateway --config gateway.yaml           Servers, routes and rules from a file
  tollgate gateway                                 Empty, to be filled through the admin port
  tollgate gateway --config gateway.yaml --store redis://127.0.0.1
                                                   Limits shared with other gateways")]
pub(crate) struct GatewayArgs {
    /// Files with `upstreams`, `routes` and `rules`, or directories of them, apart by commas; followed as they change
    #[arg(long, value_name = "FILE", env = "TOLLGATE_GATEWAY_CONFIG", value_delimiter = ',')]
    config: Vec<PathBuf>,

    /// Where clients ask
    #[arg(
        long,
        value_name = "ADDR",
        env = "TOLLGATE_PROXY",
        default_value = "0.0.0.0:8000",
        help_heading = "Listening"
    )]
    proxy: Address,

    /// Where routes and limits are made, and where metrics, status and switches are
    #[arg(
        long,
        value_name = "ADDR",
        env = "TOLLGATE_GATEWAY_ADMIN",
        default_value = "127.0.0.1:8001",
        help_heading = "Listening"
    )]
    admin: Address,

    /// Where what was made through the admin port is kept, and requests that are done later
    #[arg(long, value_name = "DIR", env = "TOLLGATE_DATA", help_heading = "Operation")]
    data: Option<PathBuf>,

    /// Where servers may be that are named through the admin port: public, private, loopback, link_local, or networks,
    /// apart by commas; all but link_local by default, and public only where the admin port can be reached from
    /// elsewhere
    #[arg(long, value_name = "PLACES", env = "TOLLGATE_ADMIN_UPSTREAMS", value_delimiter = ',', value_parser = parse_place, help_heading = "Security")]
    admin_upstreams: Option<Vec<Place>>,

    /// Write down each request as a line of JSON, here; `-` is standard output
    #[arg(long, value_name = "FILE", env = "TOLLGATE_ACCESS_LOG", help_heading = "Operation")]
    access_log: Option<PathBuf>,

    /// The most requests that are kept to be done later
    #[arg(long, value_name = "N", env = "TOLLGATE_LATER_REQUESTS", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000), help_heading = "Operation")]
    later_requests: u32,

    /// The most bytes of them
    #[arg(long, value_name = "SIZE", env = "TOLLGATE_LATER_BYTES", default_value = "256MiB", value_parser = parse_size, help_heading = "Operation")]
    later_bytes: usize,

    /// Encrypt with this certificate
    #[arg(
        long,
        value_name = "FILE",
        env = "TOLLGATE_PROXY_TLS_CERT",
        requires = "proxy_tls_key",
        help_heading = "Security"
    )]
    proxy_tls_cert: Option<PathBuf>,

    /// Its private key
    #[arg(
        long,
        value_name = "FILE",
        env = "TOLLGATE_PROXY_TLS_KEY",
        requires = "proxy_tls_cert",
        help_heading = "Security"
    )]
    proxy_tls_key: Option<PathBuf>,

    /// Clients need a certificate that one in this file vouches for
    #[arg(
        long,
        value_name = "FILE",
        env = "TOLLGATE_PROXY_TLS_CLIENT_CA",
        requires = "proxy_tls_cert",
        help_heading = "Security"
    )]
    proxy_tls_client_ca: Option<PathBuf>,

    /// The most connections of one address, or of one network of 64 bits of IPv6; any number if not given
    #[arg(long, value_name = "N", env = "TOLLGATE_MAX_CONNECTIONS_PER_ADDRESS", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Overload")]
    max_connections_per_address: Option<u32>,

    /// How many connections an address may open, such as 20/s; any number if not given
    #[arg(long, value_name = "RATE", env = "TOLLGATE_CONNECTION_RATE", value_parser = parse_rate, help_heading = "Overload")]
    connection_rate: Option<Rate>,

    /// Have the kernel drop an address that is denied so many times within a minute; never trusted proxies or this
    /// machine
    #[arg(long, value_name = "N", env = "TOLLGATE_BAN_AFTER", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Overload")]
    ban_after: Option<u32>,

    /// For how long
    #[arg(long, value_name = "TIME", env = "TOLLGATE_BAN_FOR", default_value = "10min", value_parser = parse_time, help_heading = "Overload")]
    ban_for: Micros,

    /// By which set of nftables: family, table and name; the one for IPv6 has a 6 at the end. `tollgate nftables` makes
    /// these
    #[arg(
        long,
        value_name = "SET",
        env = "TOLLGATE_BAN_SET",
        default_value = "inet tollgate offenders",
        help_heading = "Overload"
    )]
    ban_set: String,

    /// The program that tells the kernel
    #[arg(long, value_name = "FILE", env = "TOLLGATE_NFT", default_value = "nft", help_heading = "Overload")]
    nft: PathBuf,

    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

impl GatewayArgs {
    fn bans(&self) -> anyhow::Result<Option<BanSettings>> {
        let Some(after) = self.ban_after else { return Ok(None) };
        if self.ban_for.is_zero() {
            anyhow::bail!("--ban-for 0: write for how long, such as 10min");
        }
        if self.ban_set.split_whitespace().count() != 3 {
            anyhow::bail!(
                "--ban-set {}: write family, table and name, such as `inet tollgate offenders`",
                self.ban_set
            );
        }
        Ok(Some(BanSettings { after, lasting: self.ban_for, set: self.ban_set.clone(), program: self.nft.clone() }))
    }

    /// The settings, if they make sense.
    pub(crate) fn settings(&self) -> anyhow::Result<Settings> {
        let files = [&self.proxy_tls_cert, &self.proxy_tls_key, &self.proxy_tls_client_ca].map(Option::as_ref);
        let tls = tls_files("proxy", &self.proxy, files, None)?;
        let common = self.common.settings()?;
        Ok(Settings {
            rules: self.config.clone(),
            // As long as servers may be silent: what they are asked is not cut off.
            drain_timeout: self.common.drain_timeout.map_or(Limits::default().silence, Into::into),
            gateway: Some(GatewaySettings {
                proxy: self.proxy.clone(),
                tls,
                data: self.data.clone(),
                connections: ConnectionSettings {
                    per_address: self.max_connections_per_address,
                    rate: self.connection_rate,
                },
                bans: self.bans()?,
                admin_upstreams: self.admin_upstreams.clone().unwrap_or_else(|| {
                    let usual = [Place::Public, Place::Private, Place::Loopback];
                    usual.into_iter().take(if self.admin.is_public() { 1 } else { 3 }).collect()
                }),
                access_log: self.access_log.clone(),
                later_requests: self.later_requests as usize,
                later_bytes: self.later_bytes as u64,
            }),
            grpc: Address::Off,
            http: Address::Off,
            resp: Address::Off,
            admin: self.admin.clone(),
            ..common
        })
    }
}

/// Starts the gateway and runs it until it is told to end.
pub(crate) fn run(args: &GatewayArgs, out: &mut impl Write) -> anyhow::Result<ExitCode> {
    let settings = args.settings()?;
    let scheme = if args.proxy_tls_cert.is_some() { "https" } else { "http" };
    args.common
        .run(settings, out, |server, color, out| show(server.addresses(), !server.has_routes(), scheme, color, out))
}

fn parse_place(text: &str) -> Result<Place, String> {
    text.parse().map_err(|()| "write public, private, loopback, link_local, or a network such as 10.0.0.0/8".to_owned())
}

/// Says where it is, and what to try.
fn show(addresses: &Addresses, is_empty: bool, scheme: &str, color: bool, out: &mut dyn Write) -> io::Result<()> {
    let (bold, plain) = if color { ("\x1b[1m", "\x1b[0m") } else { ("", "") };
    let Addresses { proxy, admin, .. } = addresses;
    writeln!(out, "{bold}tollgate gateway{plain}")?;
    writeln!(out, "  proxy  {proxy}")?;
    writeln!(out, "  admin  {admin}")?;
    if is_empty && let (Some(proxy), Some(admin)) = (proxy.url(scheme), admin.url("http")) {
        writeln!(out, "\nIt has no routes yet. Try:")?;
        writeln!(out, "  curl {admin}/apis/ -d name=test -d uris=/test -d upstream_url=http://127.0.0.1:9000/")?;
        writeln!(out, "  curl {admin}/apis/test/plugins/ -d name=rate-limiting -d config.minute=5")?;
        writeln!(out, "  curl -i {proxy}/test")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        gateway: GatewayArgs,
    }

    fn settings(args: &[&str]) -> Settings {
        Line::parse_from([&["gateway"], args].concat()).gateway.settings().unwrap()
    }

    /// Clients come from everywhere, and whoever manages it from this machine.
    #[test]
    fn it_listens_where_it_is_expected() {
        let settings = settings(&[]);
        assert_eq!(settings.gateway.unwrap().proxy, "0.0.0.0:8000".parse().unwrap());
        assert_eq!(settings.admin, "127.0.0.1:8001".parse().unwrap());
        assert_eq!([settings.grpc, settings.http, settings.resp], [Address::Off, Address::Off, Address::Off]);
    }

    #[test]
    fn who_reaches_the_admin_port_from_elsewhere_names_public_servers() {
        let places = |args: &[&str]| settings(args).gateway.unwrap().admin_upstreams;
        let usual = [Place::Public, Place::Private, Place::Loopback];
        assert_eq!(places(&[]), usual);
        for here in ["127.0.0.1:9", "[::1]:9", "unix:/run/a", "off"] {
            assert_eq!(places(&["--admin", here]), usual, "{here}");
        }
        for elsewhere in ["0.0.0.0:9", "[::]:9", "10.0.0.1:9", "[::ffff:127.0.0.1]:9"] {
            assert_eq!(places(&["--admin", elsewhere]), [Place::Public], "{elsewhere}");
            let named = places(&["--admin", elsewhere, "--admin-upstreams", "private,loopback"]);
            assert_eq!(named, [Place::Private, Place::Loopback], "{elsewhere}");
        }
    }
}
