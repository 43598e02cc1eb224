//! In place of envoyproxy/ratelimit: its variables as options of `tollgate serve`.
//!
//! Only translates. What has no counterpart is told once, so that nobody believes it works; what would make answers
//! less safe than asked for is refused.

use anyhow::{Context as _, bail};

use super::config_file::{From, Given};

/// What the variables amount to.
#[derive(Debug, Default)]
pub(super) struct Translated {
    /// What variables say.
    pub(super) options: Given,
    /// What the other server does without them.
    pub(super) defaults: Given,
    pub(super) warnings: Vec<String>,
}

/// Variables that are honoured as they are: the option, and the variable.
const SAME: [(&str, &str); 7] = [
    ("near_limit_ratio", "NEAR_LIMIT_RATIO"),
    ("shadow_mode", "SHADOW_MODE"),
    ("quota_mode", "QUOTA_MODE"),
    ("dynamic_metadata", "RESPONSE_DYNAMIC_METADATA"),
    ("response_headers", "LIMIT_RESPONSE_HEADERS_ENABLED"),
    ("ready_with_rules", "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED"),
    ("grpc_tls_client_san", "GRPC_CLIENT_TLS_SAN"),
];

/// Those that change nothing here, and why. A name that ends in `*` stands for all that begin like it.
const WITHOUT_EFFECT: [(&str, &str); 27] = [
    ("REDIS_PERSECOND*", "one Redis has all counters"),
    ("REDIS_POOL_*", "one connection carries what is asked at the same time"),
    ("REDIS_PIPELINE_*", "what is asked at the same time is always sent together"),
    ("REDIS_CLUSTER_*", "servers of a Cluster are always asked at the same time"),
    ("REDIS_TIMEOUT", "a decision waits for --store-deadline, and is then made here"),
    ("REDIS_STARTUP_*", "nothing waits for Redis to be there"),
    ("REDIS_HEALTH_*", "the service is as healthy without Redis"),
    ("MEMCACHE_*", "counters live in Redis or in memory"),
    ("CACHE_KEY_PREFIX", "keys begin with tg1:"),
    ("EXPIRATION_JITTER_MAX_SECONDS", "counters expire with their windows"),
    ("LOCAL_CACHE_SIZE_IN_BYTES", "there is nothing to keep a copy of"),
    (
        "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT",
        "write `limits:` instead of `rate_limit:`: a denial then charges nothing",
    ),
    ("MERGE_DOMAIN_CONFIG", "files of one domain are always merged"),
    ("RUNTIME_IGNOREDOTFILES", "names that begin with a dot are always passed over"),
    ("RUNTIME_WATCH_ROOT", "every kind of change is noticed"),
    ("STATSD_*", "metrics are collected by Prometheus, on the admin port or with USE_PROMETHEUS"),
    ("USE_DOG_STATSD*", "metrics are collected by Prometheus, on the admin port or with USE_PROMETHEUS"),
    ("DOG_STATSD_*", "metrics are collected by Prometheus, on the admin port or with USE_PROMETHEUS"),
    ("EXTRA_TAGS", "labels are added by whoever collects the metrics"),
    ("STATS_FLUSH_INTERVAL", "metrics are always current"),
    ("PROMETHEUS_MAPPER_YAML", "names of metrics are fixed"),
    ("GRPC_MAX_CONNECTION_AGE_GRACE", "connections end when their calls are answered"),
    ("CONFIG_GRPC_XDS_*", "rules come from files"),
    ("XDS_CLIENT_*", "rules come from files"),
    ("DISABLE_STATS", "metrics cost nothing until they are collected"),
    ("PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS", "times are in seconds, as their name says"),
    ("TRACING_*", "there are no traces yet"),
];

/// Reads the variables of a process.
pub(super) fn translate(variables: impl Iterator<Item = (String, String)>) -> anyhow::Result<Translated> {
    let variables: Vec<(String, String)> = variables.filter(|(_, value)| !value.is_empty()).collect();
    let variable = |name: &str| variables.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
    let is_on = |name: &str| variable(name).is_some_and(is_true);
    let mut translated = Translated::default();
    if let Some(kind) = variable("CONFIG_TYPE").filter(|kind| *kind != "FILE") {
        bail!("CONFIG_TYPE={kind}: rules come from files here; mount them and set RUNTIME_ROOT, or unset it");
    }

    let listen = |host: &str, port: &str, usual_port: &str| {
        let address = variable(host).unwrap_or("0.0.0.0");
        let address = if address.contains(':') { format!("[{address}]") } else { address.to_owned() };
        format!("{address}:{}", variable(port).unwrap_or(usual_port))
    };
    let is_set = |names: &[&str]| names.iter().any(|name| variable(name).is_some());
    translated.put(is_set(&["HOST", "PORT"]), "http", listen("HOST", "PORT", "8080"));
    match variable("GRPC_UDS") {
        Some(path) => translated.set("grpc", format!("unix:{path}")),
        None => {
            let address = listen("GRPC_HOST", "GRPC_PORT", "8081");
            translated.put(is_set(&["GRPC_HOST", "GRPC_PORT"]), "grpc", address);
        }
    }
    // There, everybody may look and nobody can change a thing. Here the port has switches.
    let admin = format!("127.0.0.1:{}", variable("DEBUG_PORT").unwrap_or("6070"));
    translated.put(is_set(&["DEBUG_PORT"]), "admin", admin);
    if let Some(host) = variable("DEBUG_HOST").filter(|host| !["127.0.0.1", "localhost"].contains(host)) {
        translated.warn(format!(
            "DEBUG_HOST={host} has no effect: the admin port listens on 127.0.0.1; --admin with a token opens it"
        ));
    }
    translated.put(false, "resp", "off".to_owned());
    translated.put(false, "start_anyway", "true".to_owned());

    if let Some(address) = super::compat_redis::address(variable, is_on)? {
        translated.set("store", address);
        if is_on("REDIS_TLS_SKIP_HOSTNAME_VERIFICATION") {
            translated.warn("no effect of REDIS_TLS_SKIP_HOSTNAME_VERIFICATION: names are always compared".to_owned());
        }
    } else if variable("BACKEND_TYPE").is_some() {
        translated.warn("no effect of BACKEND_TYPE: counters live in memory, or in the Redis of REDIS_URL".to_owned());
    }

    let root = variable("RUNTIME_ROOT").unwrap_or("/srv/runtime_data/current");
    let below = [variable("RUNTIME_SUBDIRECTORY"), Some(variable("RUNTIME_APPDIRECTORY").unwrap_or("config"))];
    let path: std::path::PathBuf = [Some(root)].into_iter().chain(below).flatten().collect();
    let is_there = is_set(&["RUNTIME_ROOT", "RUNTIME_SUBDIRECTORY", "RUNTIME_APPDIRECTORY"]);
    translated.put(is_there, "rules", path.display().to_string());
    if let Some(age) = variable("GRPC_MAX_CONNECTION_AGE") {
        translated.set("grpc_max_connection_age", duration(age)?);
    }

    for (option, name) in SAME {
        if let Some(value) = variable(name) {
            let value = if is_true(value) {
                "true"
            } else if is_false(value) {
                "false"
            } else {
                value
            };
            translated.set(option, value.to_owned());
        }
    }
    const HEADERS: [(&str, &str); 3] = [
        ("LIMIT_LIMIT_HEADER", "RateLimit-Limit"),
        ("LIMIT_REMAINING_HEADER", "RateLimit-Remaining"),
        ("LIMIT_RESET_HEADER", "RateLimit-Reset"),
    ];
    if is_set(&HEADERS.map(|(name, _)| name)) {
        let names = HEADERS.map(|(name, usual)| variable(name).unwrap_or(usual).to_owned());
        translated.options.insert("response_header_names".to_owned(), (names.to_vec(), From::Compat));
    }
    if is_on("GRPC_SERVER_USE_TLS") {
        for (option, name) in [
            ("grpc_tls_cert", "GRPC_SERVER_TLS_CERT"),
            ("grpc_tls_key", "GRPC_SERVER_TLS_KEY"),
            ("grpc_tls_client_ca", "GRPC_CLIENT_TLS_CACERT"),
        ] {
            if let Some(path) = variable(name) {
                translated.set(option, path.to_owned());
            }
        }
        if !is_set(&["GRPC_SERVER_TLS_CERT"]) || !is_set(&["GRPC_SERVER_TLS_KEY"]) {
            bail!("GRPC_SERVER_USE_TLS=true needs GRPC_SERVER_TLS_CERT and GRPC_SERVER_TLS_KEY");
        }
    } else if is_set(&["GRPC_CLIENT_TLS_CACERT", "GRPC_CLIENT_TLS_SAN"]) {
        bail!("clients cannot be asked for certificates without encryption: set GRPC_SERVER_USE_TLS=true as well");
    }
    for (name, why) in [
        ("USE_STATSD", "metrics are collected by Prometheus, on the admin port or with USE_PROMETHEUS"),
        (
            "USE_CALENDAR_MONTH_RATE_LIMIT",
            "a month of `rate_limit` has 30 days; write `limits: [N/month]` for calendar months",
        ),
    ] {
        if is_on(name) {
            translated.warn(format!("no effect of {name}: {why}"));
        }
    }
    if is_on("USE_PROMETHEUS") {
        let address = variable("PROMETHEUS_ADDR").unwrap_or(":9090");
        translated.set("metrics", address.to_owned());
        translated.set("metrics_path", variable("PROMETHEUS_PATH").unwrap_or("/metrics").to_owned());
    }
    translated.put(is_set(&["LOG_LEVEL"]), "log_level", level(variable("LOG_LEVEL").unwrap_or("warn")).to_owned());
    let is_json = variable("LOG_FORMAT").is_some_and(|format| format.eq_ignore_ascii_case("json"));
    translated.put(is_set(&["LOG_FORMAT"]), "log_format", if is_json { "json" } else { "text" }.to_owned());
    for (pattern, why) in WITHOUT_EFFECT {
        let matches = |name: &str| match pattern.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning),
            None => name == pattern,
        };
        let names: Vec<&str> = variables.iter().map(|(name, _)| name.as_str()).filter(|name| matches(name)).collect();
        if !names.is_empty() {
            translated.warn(format!("no effect of {}: {why}", names.join(", ")));
        }
    }
    Ok(translated)
}

impl Translated {
    fn set(&mut self, option: &str, value: String) {
        self.options.insert(option.to_owned(), (vec![value], From::Compat));
    }

    /// What a variable says, or what holds without one.
    fn put(&mut self, is_said: bool, option: &str, value: String) {
        if is_said {
            self.set(option, value);
        } else {
            self.defaults.insert(option.to_owned(), (vec![value], From::CompatDefault));
        }
    }

    fn warn(&mut self, warning: String) {
        self.warnings.push(warning);
    }
}

/// As Go reads booleans.
fn is_true(text: &str) -> bool {
    ["1", "t", "T", "true", "TRUE", "True"].contains(&text)
}

fn is_false(text: &str) -> bool {
    ["0", "f", "F", "false", "FALSE", "False"].contains(&text)
}

/// A length of time as Go writes it, such as `1h30m` or `1.5h`, in microseconds.
fn duration(text: &str) -> anyhow::Result<String> {
    let mut rest = text;
    let mut micros = 0.0;
    while !rest.is_empty() {
        let number = rest.find(|character: char| !character.is_ascii_digit() && character != '.').unwrap_or(rest.len());
        let (amount, after) = rest.split_at(number);
        let unit = after.find(|character: char| character.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(unit);
        let length = match unit {
            "h" => 3.6e9,
            "m" => 6e7,
            "s" => 1e6,
            "ms" => 1e3,
            "us" | "µs" => 1.0,
            _ => bail!("{text:?} is no length of time; write it such as 24h or 1h30m"),
        };
        micros += amount.parse::<f64>().with_context(|| format!("{text:?} is no length of time"))? * length;
        rest = after;
    }
    Ok(format!("{}us", micros as u64))
}

/// Levels that are not ours: what is worse than an error is one, too.
fn level(name: &str) -> &'static str {
    match &*name.to_lowercase() {
        "trace" => "trace",
        "debug" => "debug",
        "info" => "info",
        "error" | "fatal" | "panic" => "error",
        _ => "warn",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translated(variables: &[(&str, &str)]) -> Translated {
        let owned = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        translate(owned).unwrap()
    }

    fn option(translated: &Translated, name: &str) -> Option<String> {
        let given = translated.options.get(name).or_else(|| translated.defaults.get(name));
        given.map(|(values, _)| values.join(","))
    }

    #[test]
    fn without_variables_it_listens_where_the_other_does() {
        let plain = translated(&[]);
        for (name, value) in [
            ("http", "0.0.0.0:8080"),
            ("grpc", "0.0.0.0:8081"),
            ("admin", "127.0.0.1:6070"),
            ("resp", "off"),
            ("rules", "/srv/runtime_data/current/config"),
            ("log_level", "warn"),
        ] {
            assert_eq!(option(&plain, name).as_deref(), Some(value), "{name}");
        }
        assert!(plain.warnings.is_empty(), "{:?}", plain.warnings);
        assert!(plain.options.is_empty(), "nothing is set, so a file may say otherwise: {:?}", plain.options);
        assert_eq!(option(&plain, "metrics"), None);
    }

    #[test]
    fn variables_mean_what_they_mean_there() {
        let given = translated(&[
            ("HOST", "::1"),
            ("PORT", "1"),
            ("GRPC_UDS", "/run/rl.sock"),
            ("DEBUG_PORT", "3"),
            ("RUNTIME_ROOT", "/data"),
            ("RUNTIME_SUBDIRECTORY", "ratelimit"),
            ("SHADOW_MODE", "T"),
            ("QUOTA_MODE", "0"),
            ("NEAR_LIMIT_RATIO", "0.5"),
            ("LIMIT_RESPONSE_HEADERS_ENABLED", "true"),
            ("LIMIT_RESET_HEADER", "X-Reset"),
            ("USE_PROMETHEUS", "true"),
            ("PROMETHEUS_ADDR", ":19001"),
            ("GRPC_SERVER_USE_TLS", "true"),
            ("GRPC_SERVER_TLS_CERT", "/c"),
            ("GRPC_SERVER_TLS_KEY", "/k"),
            ("LOG_LEVEL", "INFO"),
            ("LOG_FORMAT", "logfmt"),
            ("GRPC_MAX_CONNECTION_AGE", "1.5h30s"),
        ]);
        for (name, value) in [
            ("http", "[::1]:1"),
            ("grpc", "unix:/run/rl.sock"),
            ("admin", "127.0.0.1:3"),
            ("rules", "/data/ratelimit/config"),
            ("shadow_mode", "true"),
            ("quota_mode", "false"),
            ("near_limit_ratio", "0.5"),
            ("response_headers", "true"),
            ("response_header_names", "RateLimit-Limit,RateLimit-Remaining,X-Reset"),
            ("metrics", ":19001"),
            ("metrics_path", "/metrics"),
            ("grpc_tls_cert", "/c"),
            ("grpc_tls_key", "/k"),
            ("log_level", "info"),
            ("log_format", "text"),
            ("grpc_max_connection_age", "5430000000us"),
        ] {
            assert_eq!(option(&given, name).as_deref(), Some(value), "{name}");
        }
        assert!(given.warnings.is_empty(), "{:?}", given.warnings);
    }

    #[test]
    fn what_has_no_effect_is_told_once() {
        let given = translated(&[
            ("REDIS_POOL_SIZE", "9"),
            ("REDIS_POOL_ON_EMPTY_BEHAVIOR", "WAIT"),
            ("STATSD_HOST", "c"),
            ("DEBUG_HOST", "0.0.0.0"),
        ]);
        assert_eq!(given.warnings.len(), 3, "{:?}", given.warnings);
        let both = "REDIS_POOL_SIZE, REDIS_POOL_ON_EMPTY_BEHAVIOR";
        assert!(given.warnings.iter().any(|warning| warning.contains(both)));
    }

    #[test]
    fn what_would_be_less_than_was_asked_for_is_refused() {
        for (name, value, said) in [
            ("CONFIG_TYPE", "GRPC_XDS_SOTW", "files"),
            ("GRPC_SERVER_USE_TLS", "true", "GRPC_SERVER_TLS_CERT"),
            ("GRPC_CLIENT_TLS_CACERT", "/ca", "encryption"),
            ("GRPC_MAX_CONNECTION_AGE", "soon", "length of time"),
        ] {
            let problem = translate([(name.to_owned(), value.to_owned())].into_iter()).unwrap_err();
            assert!(problem.to_string().contains(said), "{name}: {problem}");
        }
    }
}
