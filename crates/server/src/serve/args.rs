//! The arguments of `tollgate serve`: flags before variables, variables before the file, the file before defaults.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::bail;
use clap::{Args, ValueEnum};
use tollgate::Micros;
use tollgate::rules::Network;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use super::address::Address;
use super::banner;
use super::server::{Addresses, Server, StartError};
use super::settings::{EnvoySettings, HeaderProfile, RedisSettings, Settings};
use super::values::{parse_network, parse_size, parse_time, secret, tls};
use crate::gate::GateClock;
use crate::terminal::{self, ColorArg};

/// Run the rate limit service: for Envoy, by HTTP and forward-auth, and for clients of Redis
///
/// Every option can also be set by a variable (TOLLGATE_HTTP for --http) or in the file that --config names (http:), in this order
/// of precedence. --print-config shows what came of it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tollgate serve                                   An example, to look around
  tollgate serve --rules rules.yaml                Rules from a file, followed as it changes
  tollgate serve --rules rules/ --state counts.bin Counters survive a restart
  tollgate serve --compat envoy-ratelimit          In place of envoyproxy/ratelimit")]
pub(crate) struct ServeArgs {
    /// Rule files and directories of them, apart by commas; followed as they change. None: an example
    #[arg(long, value_name = "PATH", env = "TOLLGATE_RULES", value_delimiter = ',')]
    rules: Vec<PathBuf>,

    /// Where counters live: `memory`, or a Redis that several servers share: redis://, rediss://, redis+sentinel://,
    /// redis+cluster:// or redis+unix://
    #[arg(
        long,
        value_name = "memory|URL",
        env = "TOLLGATE_STORE",
        default_value = "memory",
        help_heading = "Counters"
    )]
    store: String,

    /// How long a decision waits for Redis, before this server decides by itself
    #[arg(long, value_name = "TIME", env = "TOLLGATE_STORE_DEADLINE", default_value = "5ms", value_parser = parse_time, help_heading = "Counters")]
    store_deadline: Micros,

    /// How many servers share the Redis: each enforces its part of a limit while Redis cannot be asked. Counted in Redis if it is not
    /// given
    #[arg(long, value_name = "N", env = "TOLLGATE_STORE_SERVERS", value_parser = clap::value_parser!(u64).range(1..=10_000), help_heading = "Counters")]
    store_servers: Option<u64>,

    /// Where to listen for gRPC; off for nowhere
    #[arg(
        long,
        value_name = "ADDR",
        env = "TOLLGATE_GRPC",
        default_value = "0.0.0.0:8081",
        help_heading = "Listening"
    )]
    grpc: Address,

    /// Where to listen for HTTP
    #[arg(
        long,
        value_name = "ADDR",
        env = "TOLLGATE_HTTP",
        default_value = "0.0.0.0:8080",
        help_heading = "Listening"
    )]
    http: Address,

    /// Where to listen for the protocol of Redis
    #[arg(
        long,
        value_name = "ADDR",
        env = "TOLLGATE_RESP",
        default_value = "127.0.0.1:6380",
        help_heading = "Listening"
    )]
    resp: Address,

    /// Where metrics, status and switches are
    #[arg(
        long,
        value_name = "ADDR",
        env = "TOLLGATE_ADMIN",
        default_value = "127.0.0.1:6070",
        help_heading = "Listening"
    )]
    admin: Address,

    /// Where metrics are, for collectors elsewhere: nothing but those, and no token
    #[arg(long, value_name = "ADDR", env = "TOLLGATE_METRICS", default_value = "off", help_heading = "Listening")]
    metrics: Address,

    /// Under which path
    #[arg(
        long,
        value_name = "PATH",
        env = "TOLLGATE_METRICS_PATH",
        default_value = "/metrics",
        help_heading = "Listening"
    )]
    metrics_path: String,

    /// Threads that serve; 0 is one for each core
    #[arg(long, value_name = "N", env = "TOLLGATE_WORKERS", default_value_t = 0, help_heading = "Operation")]
    workers: usize,

    /// The most memory for counters, such as 512MiB
    #[arg(long, value_name = "SIZE", env = "TOLLGATE_MEMORY", default_value = "1GiB", value_parser = parse_size, help_heading = "Counters")]
    memory: usize,

    /// Keep counters in this file while the service does not run
    #[arg(long, value_name = "FILE", env = "TOLLGATE_STATE", help_heading = "Counters")]
    state: Option<PathBuf>,

    /// The domain of questions that name none; else the only one that there is
    #[arg(long, value_name = "NAME", env = "TOLLGATE_DOMAIN", help_heading = "Answers")]
    domain: Option<String>,

    /// Which headers tell clients about limits
    #[arg(
        long,
        value_enum,
        env = "TOLLGATE_HEADERS",
        value_delimiter = ',',
        default_value = "ietf,x",
        help_heading = "Answers"
    )]
    headers: Vec<HeaderProfile>,

    /// Whose X-Forwarded-For is believed: addresses and networks
    #[arg(long, value_name = "NET", env = "TOLLGATE_TRUSTED_PROXIES", value_delimiter = ',', value_parser = parse_network, help_heading = "Answers")]
    trusted_proxies: Vec<Network>,

    /// What forward-auth answers to denied requests: 429, or 403 for nginx
    #[arg(long, value_name = "STATUS", env = "TOLLGATE_DENY_STATUS", default_value = "429", value_parser = ["429", "403"], help_heading = "Answers")]
    deny_status: String,

    /// Encrypt gRPC with this certificate
    #[arg(
        long,
        value_name = "FILE",
        env = "TOLLGATE_GRPC_TLS_CERT",
        requires = "grpc_tls_key",
        help_heading = "Security"
    )]
    grpc_tls_cert: Option<PathBuf>,

    /// Its private key
    #[arg(
        long,
        value_name = "FILE",
        env = "TOLLGATE_GRPC_TLS_KEY",
        requires = "grpc_tls_cert",
        help_heading = "Security"
    )]
    grpc_tls_key: Option<PathBuf>,

    /// Clients of gRPC need a certificate that one in this file vouches for
    #[arg(
        long,
        value_name = "FILE",
        env = "TOLLGATE_GRPC_TLS_CLIENT_CA",
        requires = "grpc_tls_cert",
        help_heading = "Security"
    )]
    grpc_tls_client_ca: Option<PathBuf>,

    /// And that is for this name
    #[arg(
        long,
        value_name = "NAME",
        env = "TOLLGATE_GRPC_TLS_CLIENT_SAN",
        requires = "grpc_tls_client_ca",
        help_heading = "Security"
    )]
    grpc_tls_client_san: Option<String>,

    /// End connections of gRPC after this long, so that they spread over servers anew
    #[arg(long, value_name = "TIME", env = "TOLLGATE_GRPC_MAX_CONNECTION_AGE", default_value = "24h", value_parser = parse_time, help_heading = "Envoy's service")]
    grpc_max_connection_age: Micros,

    /// Encrypt HTTP with this certificate
    #[arg(
        long,
        value_name = "FILE",
        env = "TOLLGATE_HTTP_TLS_CERT",
        requires = "http_tls_key",
        help_heading = "Security"
    )]
    http_tls_cert: Option<PathBuf>,

    /// Its private key
    #[arg(
        long,
        value_name = "FILE",
        env = "TOLLGATE_HTTP_TLS_KEY",
        requires = "http_tls_cert",
        help_heading = "Security"
    )]
    http_tls_key: Option<PathBuf>,

    /// Clients of HTTP need a certificate that one in this file vouches for
    #[arg(
        long,
        value_name = "FILE",
        env = "TOLLGATE_HTTP_TLS_CLIENT_CA",
        requires = "http_tls_cert",
        help_heading = "Security"
    )]
    http_tls_client_ca: Option<PathBuf>,

    /// What the admin port asks for, as a bearer token
    #[arg(long, value_name = "TOKEN", env = "TOLLGATE_ADMIN_TOKEN", hide_env_values = true, help_heading = "Security")]
    admin_token: Option<String>,

    /// A file that holds it
    #[arg(
        long,
        value_name = "FILE",
        env = "TOLLGATE_ADMIN_TOKEN_FILE",
        conflicts_with = "admin_token",
        help_heading = "Security"
    )]
    admin_token_file: Option<PathBuf>,

    /// What AUTH asks for on the port that speaks Redis
    #[arg(
        long,
        value_name = "PASSWORD",
        env = "TOLLGATE_RESP_PASSWORD",
        hide_env_values = true,
        help_heading = "Security"
    )]
    resp_password: Option<String>,

    /// A file that holds it
    #[arg(
        long,
        value_name = "FILE",
        env = "TOLLGATE_RESP_PASSWORD_FILE",
        conflicts_with = "resp_password",
        help_heading = "Security"
    )]
    resp_password_file: Option<PathBuf>,

    /// How long to go on answering after readiness is off
    #[arg(long, value_name = "TIME", env = "TOLLGATE_DRAIN_DELAY", default_value = "1s", value_parser = parse_time, help_heading = "Operation")]
    drain_delay: Micros,

    /// The most connections, of all protocols together
    #[arg(
        long,
        value_name = "N",
        env = "TOLLGATE_MAX_CONNECTIONS",
        default_value_t = 10_000,
        help_heading = "Operation"
    )]
    max_connections: usize,

    /// How long a client of HTTP may take to send a request; how long an idle connection is kept
    #[arg(long, value_name = "TIME", env = "TOLLGATE_HTTP_TIMEOUT", default_value = "60s", value_parser = parse_time, help_heading = "Operation")]
    http_timeout: Micros,

    /// From which share of a limit on requests count as near it
    #[arg(
        long,
        value_name = "SHARE",
        env = "TOLLGATE_NEAR_LIMIT_RATIO",
        default_value_t = 0.8,
        help_heading = "Answers"
    )]
    near_limit_ratio: f64,

    /// Envoy's service: add headers about the limit to responses
    #[arg(long, env = "TOLLGATE_RESPONSE_HEADERS", help_heading = "Envoy's service")]
    response_headers: bool,

    /// Their names: limit, remaining, reset
    #[arg(
        long,
        value_name = "NAMES",
        env = "TOLLGATE_RESPONSE_HEADER_NAMES",
        value_delimiter = ',',
        default_value = "RateLimit-Limit,RateLimit-Remaining,RateLimit-Reset",
        help_heading = "Envoy's service"
    )]
    response_header_names: Vec<String>,

    /// Envoy's service: answer with the metadata of rules
    #[arg(long, env = "TOLLGATE_DYNAMIC_METADATA", help_heading = "Envoy's service")]
    dynamic_metadata: bool,

    /// Envoy's service: deny nothing
    #[arg(long, env = "TOLLGATE_SHADOW_MODE", help_heading = "Envoy's service")]
    shadow_mode: bool,

    /// Envoy's service: deny only what is over all its limits
    #[arg(long, env = "TOLLGATE_QUOTA_MODE", help_heading = "Envoy's service")]
    quota_mode: bool,

    /// Be ready only while there are rules
    #[arg(long, env = "TOLLGATE_READY_WITH_RULES", help_heading = "Operation")]
    ready_with_rules: bool,

    /// Start even if the rules are wrong
    #[arg(long, env = "TOLLGATE_START_ANYWAY", help_heading = "Operation")]
    start_anyway: bool,

    /// Take the place of another server: honour its variables, serve its names of metrics
    #[arg(long, value_enum, env = "TOLLGATE_COMPAT", help_heading = "Envoy's service")]
    pub(crate) compat: Option<Compat>,

    /// A file with any of these options, such as `http: 127.0.0.1:8080`
    #[arg(long, value_name = "FILE", env = "TOLLGATE_CONFIG", help_heading = "Operation")]
    pub(crate) config: Option<PathBuf>,

    /// Show all options and where each comes from, and exit
    #[arg(long, help_heading = "Operation")]
    pub(crate) print_config: bool,

    /// What is logged, to standard error
    #[arg(long, value_enum, env = "TOLLGATE_LOG_LEVEL", default_value_t, help_heading = "Operation")]
    log_level: LogLevel,

    /// How it is logged: for people on a terminal, else as JSON
    #[arg(long, value_enum, env = "TOLLGATE_LOG_FORMAT", default_value_t, help_heading = "Operation")]
    log_format: LogFormat,

    #[command(flatten)]
    color: ColorArg,
}

/// Another server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Compat {
    /// envoyproxy/ratelimit
    EnvoyRatelimit,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum LogLevel {
    Error,
    Warn,
    #[default]
    Info,
    Debug,
    Trace,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum LogFormat {
    #[default]
    Auto,
    Text,
    Json,
}

/// Starts the service and runs it until it is told to end.
pub(crate) fn run(args: &ServeArgs, out: &mut impl Write) -> anyhow::Result<ExitCode> {
    let settings = args.settings()?;
    start_logging(args);
    raise_file_limit(settings.max_connections);
    let is_example = settings.rules.is_empty();
    let server = match Server::start(settings, GateClock::system()) {
        Ok(server) => server,
        Err(StartError::Rules(diagnostics)) => {
            let color = terminal::color_on_stderr(args.color.color);
            writeln!(std::io::stderr(), "{}", diagnostics.render(color).trim_end())?;
            bail!("the rules cannot be used; `tollgate check` says the same, --start-anyway serves without them");
        }
        Err(StartError::Other(error)) => return Err(error),
    };
    // Whoever closed the output does not want to know; that is no reason not to serve.
    let scheme = if args.http_tls_cert.is_some() { "https" } else { "http" };
    let addresses = server.addresses();
    let _ = banner::show(addresses, is_example, scheme, terminal::color_on_stdout(args.color.color), out)
        .and_then(|()| out.flush());
    let Addresses { grpc, http, resp, admin, metrics } = addresses;
    tracing::info!(%grpc, %http, %resp, %admin, %metrics, "serving");
    let mut signals = Signals::new(&server)?;
    let hangup = signals.hangup.take();
    let hangup = Arc::new(tokio::sync::Mutex::new(hangup));
    server.run_until(signals.end(), move || {
        let hangup = Arc::clone(&hangup);
        async move {
            match &mut *hangup.lock().await {
                Some(hangup) => {
                    hangup.recv().await;
                }
                None => std::future::pending().await,
            }
        }
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Every connection takes a file descriptor, and many systems allow few until asked.
fn raise_file_limit(connections: usize) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // If it cannot be raised, it stays as it is, and what is there is told below.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    let allowed = getrlimit(Resource::Nofile).current;
    if allowed.is_some_and(|allowed| allowed < connections as u64) {
        tracing::warn!(
            allowed,
            connections,
            "the system allows fewer files than --max-connections; connections will wait"
        );
    }
}

/// What the system tells a process.
struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
    hangup: Option<tokio::signal::unix::Signal>,
}

impl Signals {
    fn new(server: &Server) -> anyhow::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let _inside = server.enter();
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: Some(signal(SignalKind::hangup())?),
        })
    }

    async fn end(mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
        tracing::info!("draining; a second signal ends it at once");
        tokio::spawn(async move {
            tokio::select! {
                _ = self.terminate.recv() => {}
                _ = self.interrupt.recv() => {}
            }
            tracing::warn!("ended before all was answered");
            std::process::exit(1);
        });
    }
}

impl ServeArgs {
    fn redis(&self) -> anyhow::Result<Option<RedisSettings>> {
        if self.store == "memory" {
            return Ok(None);
        }
        // What is wrong is said without the text, which may hold a password.
        let address = self.store.parse().map_err(|wrong| anyhow::anyhow!("--store: {wrong}"))?;
        let deadline = std::time::Duration::from_micros(self.store_deadline.as_micros());
        if deadline.is_zero() {
            bail!("--store-deadline 0: a decision has to wait for Redis, if only for a moment; 5ms is the default");
        }
        Ok(Some(RedisSettings { address, deadline, servers: self.store_servers }))
    }

    /// The settings, if they make sense.
    pub(crate) fn settings(&self) -> anyhow::Result<Settings> {
        if !(0.0..=1.0).contains(&self.near_limit_ratio) {
            bail!("--near-limit-ratio {}: a share is between 0 and 1", self.near_limit_ratio);
        }
        let Ok(names) = <[String; 3]>::try_from(self.response_header_names.clone()) else {
            anyhow::bail!("--response-header-names takes three names with commas between: limit, remaining, reset");
        };
        let cores = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let is_compat = self.compat == Some(Compat::EnvoyRatelimit);
        Ok(Settings {
            rules: self.rules.clone(),
            strict_start: !self.start_anyway,
            grpc: self.grpc.clone(),
            http: self.http.clone(),
            resp: self.resp.clone(),
            admin: self.admin.clone(),
            metrics: self.metrics.clone(),
            metrics_path: self.metrics_path.clone(),
            workers: if self.workers == 0 { cores() } else { self.workers },
            redis: self.redis()?,
            memory: self.memory,
            state: self.state.clone(),
            domain: self.domain.clone(),
            headers: self.headers.clone(),
            trusted_proxies: self.trusted_proxies.clone(),
            deny_status: self.deny_status.parse()?,
            grpc_tls: tls(
                "grpc",
                &self.grpc,
                [&self.grpc_tls_cert, &self.grpc_tls_key, &self.grpc_tls_client_ca].map(Option::as_ref),
                self.grpc_tls_client_san.as_ref(),
            )?,
            grpc_max_connection_age: std::time::Duration::from_micros(self.grpc_max_connection_age.as_micros()),
            ready_with_rules: self.ready_with_rules,
            http_tls: tls(
                "http",
                &self.http,
                [&self.http_tls_cert, &self.http_tls_key, &self.http_tls_client_ca].map(Option::as_ref),
                None,
            )?,
            admin_token: secret(self.admin_token.as_deref(), self.admin_token_file.as_deref())?,
            resp_password: secret(self.resp_password.as_deref(), self.resp_password_file.as_deref())?,
            drain_delay: std::time::Duration::from_micros(self.drain_delay.as_micros()),
            max_connections: self.max_connections,
            http_timeout: self.http_timeout.into(),
            near_limit_ratio: self.near_limit_ratio,
            envoy: EnvoySettings {
                response_headers: self.response_headers.then_some(names),
                dynamic_metadata: self.dynamic_metadata,
                shadow_mode: self.shadow_mode,
                quota_mode: self.quota_mode,
                metric_names: is_compat,
            },
        })
    }
}

fn start_logging(args: &ServeArgs) {
    let level = match args.log_level {
        LogLevel::Error => tracing::Level::ERROR,
        LogLevel::Warn => tracing::Level::WARN,
        LogLevel::Info => tracing::Level::INFO,
        LogLevel::Debug => tracing::Level::DEBUG,
        LogLevel::Trace => tracing::Level::TRACE,
    };
    let is_json = match args.log_format {
        LogFormat::Auto => !std::io::stderr().is_terminal(),
        LogFormat::Text => false,
        LogFormat::Json => true,
    };
    let builder = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_target(false)
        .with_ansi(terminal::color_on_stderr(args.color.color))
        .with_writer(std::io::stderr);
    // Libraries quote what clients send; only what is wrong with the service itself is heard of them.
    let level = LevelFilter::from_level(level);
    let own = Targets::new().with_target("tollgate", level).with_default(level.min(LevelFilter::WARN));
    // Only a second start in one process can fail, and that one logs already.
    let _ = if is_json {
        builder.json().flatten_event(true).finish().with(own).try_init()
    } else {
        builder.finish().with(own).try_init()
    };
}
