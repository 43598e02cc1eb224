//! What `tollgate serve` and `tollgate gateway` have in common: options, logging, and the way to run to the end.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use tollgate::Micros;
use tollgate::rules::Network;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use super::address::Address;
use super::journal::Journal;
use super::server::{Addresses, Server, StartError};
use super::settings::{HeaderProfile, RedisSettings, Settings};
use super::values::{parse_network, parse_size, parse_time, secret};
use crate::gate::GateClock;
use crate::terminal::{self, ColorArg};

/// Options of both.
#[derive(Debug, Args)]
pub(crate) struct CommonArgs {
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

    /// How many servers share the Redis: each enforces its part of a limit while Redis cannot be asked. Counted in
    /// Redis if it is not given
    #[arg(long, value_name = "N", env = "TOLLGATE_STORE_SERVERS", value_parser = clap::value_parser!(u64).range(1..=10_000), help_heading = "Counters")]
    store_servers: Option<u64>,

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

    /// Tell clients to come back later than they have to by up to this, by chance, so that they do not come at once
    #[arg(long, value_name = "TIME", env = "TOLLGATE_RETRY_JITTER", default_value = "0s", value_parser = parse_time, help_heading = "Answers")]
    retry_jitter: Micros,

    /// Whose X-Forwarded-For is believed: addresses and networks
    #[arg(long, value_name = "NET", env = "TOLLGATE_TRUSTED_PROXIES", value_delimiter = ',', value_parser = parse_network, help_heading = "Answers")]
    trusted_proxies: Vec<Network>,

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

    /// How long to go on answering after readiness is off
    #[arg(long, value_name = "TIME", env = "TOLLGATE_DRAIN_DELAY", default_value = "1s", value_parser = parse_time, help_heading = "Operation")]
    drain_delay: Micros,

    /// How long connections may take after that to finish what they have begun; 3s for the service and 60s for the
    /// gateway if not given
    #[arg(long, value_name = "TIME", env = "TOLLGATE_DRAIN_TIMEOUT", value_parser = parse_time, help_heading = "Operation")]
    pub(crate) drain_timeout: Option<Micros>,

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

    /// Be ready only while there are rules
    #[arg(long, env = "TOLLGATE_READY_WITH_RULES", help_heading = "Operation")]
    ready_with_rules: bool,

    /// Start even if the rules are wrong
    #[arg(long, env = "TOLLGATE_START_ANYWAY", help_heading = "Operation")]
    start_anyway: bool,

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
    pub(crate) color: ColorArg,
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

/// Less than twice as long as a busy thread may be late by itself: nearly every decision would be made without Redis.
const SHORTEST_DEADLINE: Duration = Duration::from_millis(3);

impl CommonArgs {
    fn redis(&self) -> anyhow::Result<Option<RedisSettings>> {
        if self.store == "memory" {
            return Ok(None);
        }
        // What is wrong is said without the text, which may hold a password.
        let address = self.store.parse().map_err(|wrong| anyhow::anyhow!("--store: {wrong}"))?;
        let deadline = Duration::from_micros(self.store_deadline.as_micros());
        if deadline < SHORTEST_DEADLINE {
            bail!(
                "--store-deadline {}: a decision has to wait for Redis, for {SHORTEST_DEADLINE:?} at least; 5ms is the default",
                self.store_deadline
            );
        }
        Ok(Some(RedisSettings { address, deadline, servers: self.store_servers }))
    }

    /// What these options set, over what is the same without any.
    pub(crate) fn settings(&self) -> anyhow::Result<Settings> {
        if !(0.0..=1.0).contains(&self.near_limit_ratio) {
            bail!("--near-limit-ratio {}: a share is between 0 and 1", self.near_limit_ratio);
        }
        let cores = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Ok(Settings {
            strict_start: !self.start_anyway,
            metrics: self.metrics.clone(),
            metrics_path: self.metrics_path.clone(),
            workers: if self.workers == 0 { cores() } else { self.workers },
            redis: self.redis()?,
            memory: self.memory,
            state: self.state.clone(),
            headers: self.headers.clone(),
            retry_jitter: self.retry_jitter,
            trusted_proxies: self.trusted_proxies.clone(),
            ready_with_rules: self.ready_with_rules,
            admin_token: secret(self.admin_token.as_deref(), self.admin_token_file.as_deref())?,
            drain_delay: Duration::from_micros(self.drain_delay.as_micros()),
            drain_timeout: self.drain_timeout.map_or(Settings::default().drain_timeout, Into::into),
            max_connections: self.max_connections,
            http_timeout: self.http_timeout.into(),
            near_limit_ratio: self.near_limit_ratio,
            ..Settings::default()
        })
    }

    /// Starts a service, lets `show` tell where it is, and runs it until it is told to end.
    pub(crate) fn run(
        &self,
        settings: Settings,
        out: &mut impl Write,
        show: impl FnOnce(&Server, bool, &mut dyn Write) -> std::io::Result<()>,
    ) -> anyhow::Result<ExitCode> {
        let journal = self.start_logging()?;
        let ended = self.serve_logged(settings, out, show);
        journal.finish();
        ended
    }

    fn serve_logged(
        &self,
        settings: Settings,
        out: &mut impl Write,
        show: impl FnOnce(&Server, bool, &mut dyn Write) -> std::io::Result<()>,
    ) -> anyhow::Result<ExitCode> {
        raise_file_limit(settings.max_connections);
        let server = match Server::start(settings, GateClock::system()) {
            Ok(server) => server,
            Err(StartError::Rules(diagnostics)) => {
                let color = terminal::color_on_stderr(self.color.color);
                writeln!(std::io::stderr(), "{}", diagnostics.render(color).trim_end())?;
                bail!("the rules cannot be used; `tollgate check` says the same, --start-anyway serves without them");
            }
            Err(StartError::Other(error)) => return Err(error),
        };
        // Whoever closed the output does not want to know; that is no reason not to serve.
        let _ = show(&server, terminal::color_on_stdout(self.color.color), out).and_then(|()| out.flush());
        let Addresses { grpc, http, resp, proxy, admin, metrics } = server.addresses();
        tracing::info!(%grpc, %http, %resp, %proxy, %admin, %metrics, "serving");
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

    fn start_logging(&self) -> anyhow::Result<Journal> {
        let level = match self.log_level {
            LogLevel::Error => tracing::Level::ERROR,
            LogLevel::Warn => tracing::Level::WARN,
            LogLevel::Info => tracing::Level::INFO,
            LogLevel::Debug => tracing::Level::DEBUG,
            LogLevel::Trace => tracing::Level::TRACE,
        };
        let is_json = match self.log_format {
            LogFormat::Auto => !std::io::stderr().is_terminal(),
            LogFormat::Text => false,
            LogFormat::Json => true,
        };
        let journal = Journal::start(is_json).context("cannot start a thread for the log")?;
        let builder = tracing_subscriber::fmt()
            .with_max_level(level)
            .with_target(false)
            .with_ansi(terminal::color_on_stderr(self.color.color))
            .with_writer(journal.clone());
        // Libraries quote what clients send; only what is wrong with the service itself is heard of them.
        let level = LevelFilter::from_level(level);
        let own = Targets::new().with_target("tollgate", level).with_default(level.min(LevelFilter::WARN));
        // Only a second start in one process can fail, and that one logs already.
        let _ = if is_json {
            builder.json().flatten_event(true).finish().with(own).try_init()
        } else {
            builder.finish().with(own).try_init()
        };
        Ok(journal)
    }
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
