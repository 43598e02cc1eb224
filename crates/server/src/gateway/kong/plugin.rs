//! What plugins can be told.

use serde_json::{Value, json};

use super::object::Shape::{self, Flag, Free, Number, Numbers, Text, Texts};

pub(super) const PERIODS: [&str; 6] = ["second", "minute", "hour", "day", "month", "year"];

/// What older versions call the fields of `redis`.
const OLD_REDIS: [(&str, Shape); 9] = [
    ("redis_host", Text),
    ("redis_port", Number),
    ("redis_username", Text),
    ("redis_password", Text),
    ("redis_database", Number),
    ("redis_timeout", Number),
    ("redis_ssl", Flag),
    ("redis_ssl_verify", Flag),
    ("redis_server_name", Text),
];

/// The fields of a plugin's `config`: their shapes, and what they say if nobody does.
pub(super) fn config_fields(plugin: &str) -> Option<Vec<(&'static str, Shape, Value)>> {
    match plugin {
        "rate-limiting" | "rate-limiting-advanced" => Some(limiting_fields()),
        "key-auth" => Some(vec![
            ("key_names", Texts, json!(["apikey"])),
            ("key_in_header", Flag, json!(true)),
            ("key_in_query", Flag, json!(true)),
            ("hide_credentials", Flag, json!(false)),
        ]),
        _ => None,
    }
}

fn limiting_fields() -> Vec<(&'static str, Shape, Value)> {
    let mut fields: Vec<_> = PERIODS.into_iter().map(|period| (period, Number, Value::Null)).collect();
    fields.extend([
        ("limit", Numbers, Value::Null),
        ("window_size", Numbers, Value::Null),
        ("window_type", Text, Value::Null),
        ("identifier", Text, Value::Null),
        ("strategy", Text, Value::Null),
        ("sync_rate", Number, json!(-1)),
        ("limit_by", Text, json!("consumer")),
        ("header_name", Text, Value::Null),
        ("path", Text, Value::Null),
        ("policy", Text, json!("local")),
        ("fault_tolerant", Flag, json!(true)),
        ("hide_client_headers", Flag, json!(false)),
        ("error_code", Number, json!(429)),
        ("error_message", Text, json!("API rate limit exceeded")),
        ("namespace", Text, Value::Null),
        ("dictionary_name", Text, Value::Null),
        ("lock_dictionary_name", Text, Value::Null),
        ("disable_penalty", Flag, Value::Null),
        ("retry_after_jitter_max", Number, Value::Null),
        ("redis", Free, Value::Null),
    ]);
    fields.extend(OLD_REDIS.into_iter().map(|(name, shape)| (name, shape, Value::Null)));
    fields
}

/// What a limiting plugin says that changes nothing here. Scripts that were written for Kong say it, so it is taken.
pub(super) fn without_effect(config: &Value) -> Vec<&'static str> {
    let says = |name: &str| match (name, &config[name]) {
        (_, Value::Null) => false,
        // Whoever is over a limit never pays for it here.
        ("disable_penalty", value) => value == false,
        ("sync_rate", value) => value.as_f64() != Some(-1.0),
        ("retry_after_jitter_max", value) => value.as_f64() != Some(0.0),
        (_, Value::Object(object)) => !object.is_empty(),
        _ => true,
    };
    let names = [
        "dictionary_name",
        "disable_penalty",
        "lock_dictionary_name",
        "namespace",
        "redis",
        "retry_after_jitter_max",
        "sync_rate",
    ];
    names.into_iter().chain(OLD_REDIS.map(|(name, _)| name)).filter(|name| says(name)).collect()
}
