//! Calls of Kong's admin API, and requests to what they make.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::support::{Answer, http};

/// The status, and the body if it is JSON.
pub(crate) fn call(at: SocketAddr, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let answer = http(at, &format!("{method} {path} HTTP/1.1\nContent-Type: application/json"), &body);
    (answer.status, serde_json::from_str(&answer.body).unwrap_or(Value::Null))
}

pub(crate) fn look(at: SocketAddr, path: &str) -> Value {
    let (status, found) = call(at, "GET", path, &Value::Null);
    assert_eq!(status, 200, "{path}: {found}");
    found
}

#[allow(clippy::needless_pass_by_value, reason = "a body is written where it is sent")]
pub(crate) fn make(at: SocketAddr, path: &str, body: Value) -> Value {
    let (status, made) = call(at, "POST", path, &body);
    assert_eq!(status, 201, "{path} {body}: {made}");
    made
}

/// A service of this name at `origin`, and routes to it that are called as their paths.
pub(crate) fn make_service(at: SocketAddr, name: &str, origin: SocketAddr, routes: &[&str]) {
    make(at, "/services", json!({"name": name, "url": format!("http://{origin}")}));
    for route in routes {
        make(at, &format!("/services/{name}/routes"), json!({"name": route, "paths": [format!("/{route}")]}));
    }
}

pub(crate) fn make_consumer(at: SocketAddr, name: &str, keys: &[&str]) {
    make(at, "/consumers", json!({"username": name}));
    for key in keys {
        make(at, &format!("/consumers/{name}/key-auth"), json!({"key": key}));
    }
}

pub(crate) fn id(object: &Value) -> &str {
    object["id"].as_str().unwrap_or_default()
}

/// A request with a header, if one is given.
pub(crate) fn ask(at: SocketAddr, path: &str, header: &str) -> Answer {
    let header = if header.is_empty() { String::new() } else { format!("\n{header}") };
    http(at, &format!("GET {path} HTTP/1.1{header}"), "")
}

/// The statuses of requests to a path, each with its header.
pub(crate) fn statuses<const N: usize>(at: SocketAddr, path: &str, headers: [&str; N]) -> [u16; N] {
    headers.map(|header| ask(at, path, header).status)
}
