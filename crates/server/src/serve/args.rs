//! The arguments of `tollgate serve`: flags before variables, variables before the file, the file before defaults.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use tollgate::Micros;

use super::address::Address;
use super::banner;
use super::common::CommonArgs;
use super::settings::{EnvoySettings, Settings};
use super::values::{parse_time, secret, tls};

/// Run the rate limit service: for Envoy, by HTTP and forward-auth, and for clients of Redis
///
/// Every option can also be set by a variable (TOLLGATE_HTTP for --http) or in the file that --config names (http:), in
/// this order of precedence. --print-config shows what came of it.
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

    /// The domain of questions that name none; else the only one that there is
    #[arg(long, value_name = "NAME", env = "TOLLGATE_DOMAIN", help_heading = "Answers")]
    domain: Option<String>,

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

    /// Take the place of another server: honour its variables, serve its names of metrics
    #[arg(long, value_enum, env = "TOLLGATE_COMPAT", help_heading = "Envoy's service")]
    pub(crate) compat: Option<Compat>,

    /// A file with any of these options, such as `http: 127.0.0.1:8080`
    #[arg(long, value_name = "FILE", env = "TOLLGATE_CONFIG", help_heading = "Operation")]
    pub(crate) config: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

/// Another server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Compat {
    /// envoyproxy/ratelimit
    EnvoyRatelimit,
}

/// Starts the service and runs it until it is told to end.
pub(crate) fn run(args: &ServeArgs, out: &mut impl Write) -> anyhow::Result<ExitCode> {
    let settings = args.settings()?;
    let is_example = settings.rules.is_empty();
    let scheme = if args.http_tls_cert.is_some() { "https" } else { "http" };
    args.common
        .run(settings, out, |server, color, out| banner::show(server.addresses(), is_example, scheme, color, out))
}

impl ServeArgs {
    /// The settings, if they make sense.
    pub(crate) fn settings(&self) -> anyhow::Result<Settings> {
        let Ok(names) = <[String; 3]>::try_from(self.response_header_names.clone()) else {
            anyhow::bail!("--response-header-names takes three names with commas between: limit, remaining, reset");
        };
        let is_compat = self.compat == Some(Compat::EnvoyRatelimit);
        Ok(Settings {
            rules: self.rules.clone(),
            grpc: self.grpc.clone(),
            http: self.http.clone(),
            resp: self.resp.clone(),
            admin: self.admin.clone(),
            domain: self.domain.clone(),
            deny_status: self.deny_status.parse()?,
            grpc_tls: tls(
                "grpc",
                &self.grpc,
                [&self.grpc_tls_cert, &self.grpc_tls_key, &self.grpc_tls_client_ca].map(Option::as_ref),
                self.grpc_tls_client_san.as_ref(),
            )?,
            grpc_max_connection_age: std::time::Duration::from_micros(self.grpc_max_connection_age.as_micros()),
            http_tls: tls(
                "http",
                &self.http,
                [&self.http_tls_cert, &self.http_tls_key, &self.http_tls_client_ca].map(Option::as_ref),
                None,
            )?,
            resp_password: secret(self.resp_password.as_deref(), self.resp_password_file.as_deref())?,
            envoy: EnvoySettings {
                response_headers: self.response_headers.then_some(names),
                dynamic_metadata: self.dynamic_metadata,
                shadow_mode: self.shadow_mode,
                quota_mode: self.quota_mode,
                metric_names: is_compat,
            },
            ..self.common.settings()?
        })
    }
}
