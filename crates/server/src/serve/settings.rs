//! Everything that can be set about a service, checked. Where it came from (flags, variables, a file) is for `args`.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use tollgate::Micros;
use tollgate::rules::{HeaderFamily, Network, Place};
use tollgate_core::Rate;

use super::address::Address;
use super::tls::TlsFiles;

/// How a service is to be.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Rule files and directories. None: the example.
    pub rules: Vec<PathBuf>,
    /// Whether to refuse to start on rules that are wrong. If not, their checks get errors or go uncounted until the
    /// files are mended.
    pub strict_start: bool,
    /// Envoy's rate limit service.
    pub grpc: Address,
    /// The HTTP API, `/json` and forward-auth.
    pub http: Address,
    /// The protocol of Redis.
    pub resp: Address,
    /// Metrics, status and switches.
    pub admin: Address,
    /// Metrics and nothing else, for collectors elsewhere.
    pub metrics: Address,
    /// Under which path they are there.
    pub metrics_path: String,
    /// Threads that serve.
    pub workers: usize,
    /// Counters that several servers share. None: each has its own.
    pub redis: Option<RedisSettings>,
    /// The most memory for counters, in bytes.
    pub memory: usize,
    /// Where counters are kept while the service does not run.
    pub state: Option<PathBuf>,
    /// The domain of questions that name none.
    pub domain: Option<String>,
    /// Which headers tell clients about limits.
    pub headers: Vec<HeaderProfile>,
    /// By up to how much `Retry-After` is later than it has to be, by chance.
    pub retry_jitter: Micros,
    /// Whose word about the client's address is taken.
    pub trusted_proxies: Vec<Network>,
    /// What forward-auth answers to a denied request: 429 or 403.
    pub deny_status: u16,
    /// Encryption of gRPC.
    pub grpc_tls: Option<TlsFiles>,
    /// Encryption of HTTP.
    pub http_tls: Option<TlsFiles>,
    /// How long a connection of gRPC may live.
    pub grpc_max_connection_age: Duration,
    /// Whether to be ready only while there are rules.
    pub ready_with_rules: bool,
    /// What the admin port asks for.
    pub admin_token: Option<Secret>,
    /// What AUTH asks for.
    pub resp_password: Option<Secret>,
    /// How long to go on answering after readiness is off.
    pub drain_delay: Duration,
    /// How long connections may take to finish after that.
    pub drain_timeout: Duration,
    /// The most connections of all protocols together.
    pub max_connections: usize,
    /// How long a client of HTTP may take to send the head of a request, and again for its body; how long an idle
    /// connection is kept.
    pub http_timeout: Duration,
    /// From which share of a limit on a request counts as near it.
    pub near_limit_ratio: f64,
    /// How Envoy's service answers.
    pub envoy: EnvoySettings,
    /// The gateway, if there is to be one.
    pub gateway: Option<GatewaySettings>,
}

/// How a gateway is to be. Its routes are where the rules are.
#[derive(Clone, Debug)]
pub struct GatewaySettings {
    /// Where clients ask.
    pub proxy: Address,
    /// Encryption of that.
    pub tls: Option<TlsFiles>,
    /// Where what was made through the admin port is kept, and requests that are done later.
    pub data: Option<PathBuf>,
    /// Where servers may be that are named through the admin port.
    pub admin_upstreams: Vec<Place>,
    /// Where requests are written down; `-` is standard output.
    pub access_log: Option<PathBuf>,
    /// The most requests that are kept to be done later.
    pub later_requests: usize,
    /// The most bytes of them.
    pub later_bytes: u64,
    /// How many connections clients may have.
    pub connections: ConnectionSettings,
    /// Who is dropped by the kernel, if anybody is.
    pub bans: Option<BanSettings>,
}

/// Which addresses the kernel is told to drop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BanSettings {
    /// After how many denials within a minute.
    pub after: u32,
    /// For how long.
    pub lasting: Micros,
    /// Family, table and name of a set of nftables; that for IPv6 has a 6 at the end of its name.
    pub set: String,
    /// What tells the kernel.
    pub program: PathBuf,
}

/// How many connections an address may have, in front of everything else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionSettings {
    /// At the same time.
    pub per_address: Option<u32>,
    /// How many it may open in which time.
    pub rate: Option<Rate>,
}

/// Where servers share their counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisSettings {
    /// Where it is.
    pub address: tollgate_redis::link::Address,
    /// How long a decision waits for it.
    pub deadline: Duration,
    /// How many servers share it: each enforces its part of a limit while Redis cannot be asked. Counted there if not
    /// given.
    pub servers: Option<u64>,
}

/// What envoyproxy/ratelimit can be told about its answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EnvoySettings {
    /// Names of headers for the limit, what remains and when it is reset; `None` adds none.
    pub response_headers: Option<[String; 3]>,
    /// Whether to answer with metadata.
    pub dynamic_metadata: bool,
    /// Nothing is denied.
    pub shadow_mode: bool,
    /// A request is denied only if all its descriptors are over their limits.
    pub quota_mode: bool,
    /// Names of metrics as there.
    pub metric_names: bool,
}

/// A family of response headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum HeaderProfile {
    /// RateLimit and RateLimit-Policy, as the IETF drafts them
    Ietf,
    /// X-RateLimit-Limit, -Remaining and -Reset
    X,
    /// X-Ratelimit-Limit, -Remaining and -Retry-After
    Seed,
    /// RateLimit-Limit, -Remaining and -Reset, and X-RateLimit-Limit-Minute and the like
    Kong,
    /// None but Retry-After
    None,
    /// None at all: a matter of single routes
    #[value(skip)]
    Nothing,
}

impl From<HeaderFamily> for HeaderProfile {
    fn from(family: HeaderFamily) -> Self {
        match family {
            HeaderFamily::Ietf => Self::Ietf,
            HeaderFamily::X => Self::X,
            HeaderFamily::Seed => Self::Seed,
            HeaderFamily::Kong => Self::Kong,
            HeaderFamily::None => Self::None,
            HeaderFamily::Nothing => Self::Nothing,
        }
    }
}

/// How clients are told about limits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner<'a> {
    /// In which families of headers.
    pub(crate) profiles: &'a [HeaderProfile],
    /// By up to how much `Retry-After` is later than it has to be.
    pub(crate) jitter: Micros,
}

impl Settings {
    pub(crate) fn manner(&self) -> Manner<'_> {
        Manner { profiles: &self.headers, jitter: self.retry_jitter }
    }
}

/// A text that is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Keeps `text`.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Whether `given` is it, in a time that does not depend on where they differ.
    pub fn is(&self, given: &[u8]) -> bool {
        let own = self.0.as_bytes();
        let mut difference = own.len() ^ given.len();
        for (at, byte) in given.iter().enumerate() {
            // A wrong length is compared to the end all the same.
            difference |= usize::from(byte ^ own.get(at % own.len().max(1)).unwrap_or(&0));
        }
        difference == 0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl Default for Settings {
    /// What `tollgate serve` does without arguments, on free ports of this machine.
    fn default() -> Self {
        let any = Address::Tcp(([127, 0, 0, 1], 0).into());
        Self {
            rules: Vec::new(),
            strict_start: true,
            grpc: any.clone(),
            http: any.clone(),
            resp: any.clone(),
            admin: any,
            metrics: Address::Off,
            metrics_path: "/metrics".to_owned(),
            workers: 1,
            redis: None,
            memory: tollgate::MemoryStore::DEFAULT_BUDGET,
            state: None,
            domain: None,
            headers: vec![HeaderProfile::Ietf, HeaderProfile::X],
            retry_jitter: Micros::ZERO,
            trusted_proxies: Vec::new(),
            deny_status: 429,
            grpc_tls: None,
            http_tls: None,
            grpc_max_connection_age: Duration::from_secs(86_400),
            ready_with_rules: false,
            admin_token: None,
            resp_password: None,
            drain_delay: Duration::ZERO,
            drain_timeout: Duration::from_secs(3),
            max_connections: 10_000,
            http_timeout: Duration::from_secs(60),
            near_limit_ratio: 0.8,
            envoy: EnvoySettings::default(),
            gateway: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_compared_whole_and_never_shown() {
        let secret = Secret::new("open sesame");
        assert!(secret.is(b"open sesame"));
        for wrong in ["", "open", "open sesam", "open sesame!", "open sesameopen sesame"] {
            assert!(!secret.is(wrong.as_bytes()), "{wrong}");
        }
        assert!(Secret::new("").is(b"") && !Secret::new("").is(b"a"));
        assert_eq!(format!("{secret:?}"), "***");
    }
}
