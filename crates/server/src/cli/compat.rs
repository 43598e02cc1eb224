//! In place of envoyproxy/ratelimit: its variables as options of `tollgate serve`.
//!
//! Only translates. What has no counterpart is told once, so that nobody believes it works; what would make answers less safe
//! than asked for is refused.

use anyhow::bail;

use super::config_file::{From, Given};

/// What the variables amount to.
#[derive(Debug, Default)]
pub(super) struct Translated {
    pub(super) options: Given,
    pub(super) warnings: Vec<String>,
}

/// Variables that are honoured as they are: the option, and the variable.
const SAME: [(&str, &str); 8] = [
    ("near_limit_ratio", "NEAR_LIMIT_RATIO"),
    ("shadow_mode", "SHADOW_MODE"),
    ("quota_mode", "QUOTA_MODE"),
    ("dynamic_metadata", "RESPONSE_DYNAMIC_METADATA"),
    ("response_headers", "LIMIT_RESPONSE_HEADERS_ENABLED"),
    ("ready_with_rules", "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED"),
    ("grpc_max_connection_age", "GRPC_MAX_CONNECTION_AGE"),
    ("grpc_tls_client_san", "GRPC_CLIENT_TLS_SAN"),
];

/// Those that change nothing here, and why. A name that ends in `*` stands for all that begin like it.
const WITHOUT_EFFECT: [(&str, &str); 19] = [
    ("REDIS_*", "counters live in memory"),
    ("MEMCACHE_*", "counters live in memory"),
    ("BACKEND_TYPE", "counters live in memory"),
    ("CACHE_KEY_PREFIX", "counters live in memory"),
    ("EXPIRATION_JITTER_MAX_SECONDS", "counters live in memory and expire with their windows"),
    ("LOCAL_CACHE_SIZE_IN_BYTES", "counters live in memory, so there is nothing to keep a copy of"),
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
    translated.set("http", listen("HOST", "PORT", "8080"));
    match variable("GRPC_UDS") {
        Some(path) => translated.set("grpc", format!("unix:{path}")),
        None => translated.set("grpc", listen("GRPC_HOST", "GRPC_PORT", "8081")),
    }
    // There, everybody may look and nobody can change a thing. Here the port has switches.
    translated.set("admin", format!("127.0.0.1:{}", variable("DEBUG_PORT").unwrap_or("6070")));
    if let Some(host) = variable("DEBUG_HOST").filter(|host| !["127.0.0.1", "localhost"].contains(host)) {
        translated.warn(format!(
            "DEBUG_HOST={host} has no effect: the admin port listens on 127.0.0.1; --admin with a token opens it"
        ));
    }
    translated.set("resp", "off".to_owned());
    translated.set("start_anyway", "true".to_owned());

    let root = variable("RUNTIME_ROOT").unwrap_or("/srv/runtime_data/current");
    let below = [variable("RUNTIME_SUBDIRECTORY"), Some(variable("RUNTIME_APPDIRECTORY").unwrap_or("config"))];
    let path: std::path::PathBuf = [Some(root)].into_iter().chain(below).flatten().collect();
    translated.set("rules", path.display().to_string());

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
    let header = |name: &str, usual: &str| variable(name).unwrap_or(usual).to_owned();
    translated.options.insert(
        "response_header_names".to_owned(),
        (
            vec![
                header("LIMIT_LIMIT_HEADER", "RateLimit-Limit"),
                header("LIMIT_REMAINING_HEADER", "RateLimit-Remaining"),
                header("LIMIT_RESET_HEADER", "RateLimit-Reset"),
            ],
            From::Compat,
        ),
    );
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
    }
    if is_on("USE_PROMETHEUS") {
        let address = variable("PROMETHEUS_ADDR").unwrap_or(":9090");
        translated.set("metrics", address.to_owned());
        translated.set("metrics_path", variable("PROMETHEUS_PATH").unwrap_or("/metrics").to_owned());
    }
    translated.set("log_level", level(variable("LOG_LEVEL").unwrap_or("warn")).to_owned());
    if let Some(format) = variable("LOG_FORMAT") {
        translated.set("log_format", format.to_lowercase());
    }
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
        translated.options.get(name).map(|(values, _)| values.join(","))
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
            ("response_header_names", "RateLimit-Limit,RateLimit-Remaining,RateLimit-Reset"),
        ] {
            assert_eq!(option(&plain, name).as_deref(), Some(value), "{name}");
        }
        assert!(plain.warnings.is_empty(), "{:?}", plain.warnings);
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
        ] {
            assert_eq!(option(&given, name).as_deref(), Some(value), "{name}");
        }
        assert!(given.warnings.is_empty(), "{:?}", given.warnings);
    }

    #[test]
    fn what_has_no_effect_is_told_once() {
        let given =
            translated(&[("REDIS_URL", "a"), ("REDIS_TYPE", "b"), ("STATSD_HOST", "c"), ("DEBUG_HOST", "0.0.0.0")]);
        assert_eq!(given.warnings.len(), 3, "{:?}", given.warnings);
        assert!(given.warnings.iter().any(|warning| warning.contains("REDIS_URL, REDIS_TYPE")));
    }

    #[test]
    fn rules_from_elsewhere_are_refused() {
        let variables = [("CONFIG_TYPE".to_owned(), "GRPC_XDS_SOTW".to_owned())];
        assert!(translate(variables.into_iter()).unwrap_err().to_string().contains("files"));
    }
}
