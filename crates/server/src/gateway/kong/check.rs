//! What is wrong with an object although each of its fields is right.

use serde_json::Value;

use super::object::{complete, is_unsaid, text};
use super::plugin::{PERIODS, config_fields};
use super::{Object, Refusal};

/// In seconds.
const LONGEST_WINDOW: f64 = 100.0 * 366.0 * 86_400.0;

fn check_url(name: &str, url: Option<&str>) -> Result<tollgate::rules::Address, Refusal> {
    let url = url.ok_or_else(|| Refusal::field(name, "required field missing"))?;
    url.parse().map_err(|error: tollgate::rules::AddressError| Refusal::field(name, error.to_string()))
}

pub(super) fn check_api(api: &Object) -> Result<(), Refusal> {
    let name = text(api, "name").ok_or_else(|| Refusal::field("name", "required field missing"))?;
    if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_~".contains(&byte)) {
        return Err(Refusal::field("name", "a name has letters, digits and .-_~ only"));
    }
    check_url("upstream_url", text(api, "upstream_url"))?;
    if api["https_only"] == Value::Bool(true) {
        return Err(Refusal::field(
            "https_only",
            "this cannot be asked for one API: encrypt the port (--proxy-tls-cert)",
        ));
    }
    if ["hosts", "uris", "methods"].iter().all(|field| is_unsaid(api, field)) {
        return Err(Refusal::field("uris", "at least one of 'hosts', 'uris' or 'methods' must be specified"));
    }
    Ok(())
}

/// Rules are called by these names, so that they have to be told apart.
fn check_name(object: &Object) -> Result<(), Refusal> {
    let is_letter = |letter: char| !letter.is_ascii() || letter.is_ascii_alphanumeric() || ".-_~".contains(letter);
    match text(object, "name") {
        Some(name) if !name.chars().all(is_letter) => {
            Err(Refusal::field("name", "a name has letters, digits and .-_~ only"))
        }
        _ => Ok(()),
    }
}

pub(super) fn check_service(service: &mut Object) -> Result<(), Refusal> {
    check_name(service)?;
    if let Some(url) = text(service, "url").map(str::to_owned) {
        let address = check_url("url", Some(&url))?;
        let (host, port) = address.host_and_port().ok_or_else(|| Refusal::field("url", "write http:// or https://"))?;
        let protocol = if address.is_encrypted() { "https" } else { "http" };
        service.insert("protocol".to_owned(), protocol.into());
        service.insert("host".to_owned(), host.into());
        service.insert("port".to_owned(), port.into());
        let path = address.path();
        service.insert("path".to_owned(), if path.is_empty() { Value::Null } else { path.into() });
    }
    service.remove("url");
    check_url("host", Some(&super::render::url_of(service))).map(drop)
}

pub(super) fn check_route(route: &Object) -> Result<(), Refusal> {
    check_name(route)?;
    let speaks_http = |list: &Vec<Value>| list.iter().any(|protocol| protocol == "http");
    if !route["protocols"].as_array().is_none_or(speaks_http) {
        return Err(Refusal::field(
            "protocols",
            "has to contain http: what is spoken is a matter of the port (--proxy-tls-cert)",
        ));
    }
    if route["service"].is_null() {
        return Err(Refusal::field("service", "a route leads to a service: name one"));
    }
    if ["hosts", "paths", "methods"].iter().all(|field| is_unsaid(route, field)) {
        return Err(Refusal::field("paths", "must set one of 'methods', 'hosts', 'paths'"));
    }
    Ok(())
}

pub(super) fn check_plugin(plugin: &mut Object, base: &Object, has_store: bool) -> Result<(), Refusal> {
    let name = text(plugin, "name").ok_or_else(|| Refusal::field("name", "required field missing"))?.to_owned();
    let known = "rate-limiting, rate-limiting-advanced and key-auth are the plugins there are";
    let fields =
        config_fields(&name).ok_or_else(|| Refusal::field("name", format!("plugin '{name}' not enabled; {known}")))?;
    let given = plugin.get("config").and_then(Value::as_object).cloned().unwrap_or_default();
    let empty = Object::new();
    let base = base.get("config").and_then(Value::as_object).unwrap_or(&empty);
    let config = complete(fields, base, given, "config.")?;
    if name != "key-auth" {
        check_limits(&config, has_store)?;
    } else if !names_headers(&config["key_names"]) {
        let why = "these are no names of headers or parameters: name one at least, or leave it out for apikey";
        return Err(Refusal::field("config.key_names", why));
    } else if let Some(place) =
        ["key_in_header", "key_in_query"].into_iter().find(|place| config[*place] == Value::Bool(false))
    {
        let why = "keys are looked for in headers and in the query; this cannot be changed yet";
        return Err(Refusal::field(&format!("config.{place}"), why));
    } else if config["hide_credentials"] == Value::Bool(true) {
        return Err(Refusal::field(
            "config.hide_credentials",
            "keys are passed on to the server; this cannot be changed yet",
        ));
    }
    plugin.insert("config".to_owned(), Value::Object(config));
    Ok(())
}

/// Whether it is a list of names, with one at least.
fn names_headers(list: &Value) -> bool {
    let is_name =
        |name: &Value| name.as_str().is_some_and(|name| http::HeaderName::from_bytes(name.as_bytes()).is_ok());
    list.as_array().is_some_and(|names| !names.is_empty() && names.iter().all(is_name))
}

fn check_limits(config: &Object, has_store: bool) -> Result<(), Refusal> {
    let wrong = |name: &str, why: String| Refusal::field(&format!("config.{name}"), why);
    // What is larger cannot be counted exactly.
    let is_count = |number: f64| (1.0..9_007_199_254_740_992.0).contains(&number) && number.fract() == 0.0;
    let positive = |value: &Value| value.as_f64().is_some_and(is_count);
    let mut before: Option<(&str, f64)> = None;
    for period in PERIODS {
        let value = &config[period];
        if value.is_null() {
            continue;
        }
        if !positive(value) {
            return Err(wrong(period, "value must be greater than 0, a whole number, and below 2^53".to_owned()));
        }
        let limit = value.as_f64().unwrap_or_default();
        if let Some((shorter, most)) = before.filter(|(_, most)| *most > limit) {
            return Err(wrong(
                period,
                format!("The limit for {period}({limit:.1}) cannot be lower than the limit for {shorter}({most:.1})"),
            ));
        }
        before = Some((period, limit));
    }
    let list = |name: &str| config[name].as_array().cloned().unwrap_or_default();
    let (limits, windows) = (list("limit"), list("window_size"));
    if limits.len() != windows.len() {
        return Err(wrong("limit", "You must provide the same number of windows and limits".to_owned()));
    }
    if !limits.iter().chain(&windows).all(positive) {
        return Err(wrong("limit", "limits and windows are whole numbers above 0 and below 2^53".to_owned()));
    }
    if windows.iter().any(|window| window.as_f64() > Some(LONGEST_WINDOW)) {
        return Err(wrong("window_size", "a window has at most a hundred years".to_owned()));
    }
    if before.is_none() && limits.is_empty() {
        return Err(wrong(
            "minute",
            "at least one limit is needed: second, minute, hour, day, month, year, or limit and window_size".to_owned(),
        ));
    }
    match text(config, "window_type") {
        None | Some("fixed") => {}
        Some("sliding") if !limits.is_empty() => {}
        Some("sliding") => {
            let why = "second to year are windows on the clock: use limit and window_size for one that slides";
            return Err(wrong("window_type", why.to_owned()));
        }
        Some(_) => return Err(wrong("window_type", "expected one of: sliding, fixed".to_owned())),
    }
    let by = text(config, "identifier").or_else(|| text(config, "limit_by")).unwrap_or_default();
    match by {
        "consumer" | "credential" | "ip" | "service" | "route" => {}
        "header" => match text(config, "header_name").map(|name| http::HeaderName::from_bytes(name.as_bytes())) {
            Some(Ok(_)) => {}
            // A request never has one: it would limit nobody.
            Some(Err(_)) => return Err(wrong("header_name", "this is no name of a header".to_owned())),
            None => return Err(wrong("header_name", "required field missing".to_owned())),
        },
        "path" => match text(config, "path") {
            Some(path) if path.starts_with('/') => {}
            Some(_) => return Err(wrong("path", "should start with: /".to_owned())),
            None => return Err(wrong("path", "required field missing".to_owned())),
        },
        _ => {
            return Err(wrong(
                "limit_by",
                "expected one of: consumer, credential, ip, service, route, header, path".to_owned(),
            ));
        }
    }
    for policy in ["policy", "strategy"] {
        match text(config, policy) {
            None | Some("local") => {}
            Some("redis" | "cluster") if has_store => {}
            Some("redis" | "cluster") => {
                let why = "this gateway counts in memory: start it with --store redis://… and all plugins share it";
                return Err(wrong(policy, why.to_owned()));
            }
            Some(_) => return Err(wrong(policy, "expected one of: local, redis, cluster".to_owned())),
        }
    }
    let code = config["error_code"].as_u64().unwrap_or_default();
    if !(400..600).contains(&code) {
        return Err(wrong("error_code", "a status from 400 to 599".to_owned()));
    }
    Ok(())
}
