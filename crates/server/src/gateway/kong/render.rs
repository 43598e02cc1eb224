//! Objects as a text in tollgate's language, which is what is put in force.
//!
//! One plugin of a name acts on a request: the one for route and consumer before that for the consumer, before that for
//! the route, for the service, and for all.

use serde_json::{Value, json};
use tollgate::rules::Place;

use super::object::{Kind, Objects, is_unsaid, reference, text as word};
use super::{Object, Refusal};

/// Names of what is made from objects do not get in the way of those in files. Other gateways that were told the same
/// have the same names for it, and share its counters if they share a store; ids are everybody's own.
fn name_of(kind: Kind, object: &Object) -> String {
    let name = word(object, kind.name()).unwrap_or_else(|| id(object));
    format!("{}:{name}", kind.reference())
}

fn plugin_name(objects: &Objects, plugin: &Object) -> String {
    let mut name = format!("plugin:{}", word(plugin, "name").unwrap_or_default());
    for kind in [Kind::Api, Kind::Service, Kind::Route, Kind::Consumer] {
        let of = reference(plugin, kind.reference()).and_then(|id| objects.find(kind, id));
        if let Some(of) = of {
            name = format!("{name}:{}", name_of(kind, of));
        }
    }
    name
}

/// Where a service is.
pub(super) fn url_of(service: &Object) -> String {
    let part = |name: &str| word(service, name).unwrap_or_default();
    let host = part("host");
    let host = if host.contains(':') && !host.starts_with('[') { format!("[{host}]") } else { host.to_owned() };
    let port = service.get("port").and_then(Value::as_u64).unwrap_or(80);
    format!("{}://{host}:{port}{}", part("protocol"), part("path"))
}

fn id(object: &Object) -> &str {
    word(object, "id").unwrap_or_default()
}

/// One way for requests: an API of old, or a route with its service.
struct Way<'o> {
    name: String,
    service: String,
    object: &'o Object,
    /// Who it belongs to: ids that plugins may name.
    ids: Vec<(&'static str, &'o str)>,
    url: String,
    paths: &'static str,
    strips: bool,
    timeouts: [u64; 2],
}

fn ways(objects: &Objects) -> Vec<Way<'_>> {
    let flag = |object: &Object, name: &str| object.get(name).and_then(Value::as_bool).unwrap_or_default();
    let time = |object: &Object, name: &str| object.get(name).and_then(Value::as_u64).unwrap_or(60_000).max(1);
    let api = |api| Way {
        name: word(api, "name").unwrap_or_default().to_owned(),
        service: name_of(Kind::Api, api),
        object: api,
        ids: vec![("api", id(api))],
        url: word(api, "upstream_url").unwrap_or_default().to_owned(),
        paths: "uris",
        strips: flag(api, "strip_uri"),
        timeouts: [time(api, "upstream_connect_timeout"), time(api, "upstream_read_timeout")],
    };
    let route = |route| {
        let service = objects.find(Kind::Service, reference(route, "service")?)?;
        flag(service, "enabled").then(|| Way {
            name: name_of(Kind::Route, route),
            service: name_of(Kind::Service, service),
            object: route,
            ids: vec![("route", id(route)), ("service", id(service))],
            url: url_of(service),
            paths: "paths",
            strips: flag(route, "strip_path"),
            timeouts: [time(service, "connect_timeout"), time(service, "read_timeout")],
        })
    };
    objects.all(Kind::Api).iter().map(api).chain(objects.all(Kind::Route).iter().filter_map(route)).collect()
}

/// Plugins of these names that are switched on.
fn plugins<'o>(objects: &'o Objects, names: &'static [&'static str]) -> impl Iterator<Item = &'o Object> {
    let is_on = |plugin: &&Object| plugin.get("enabled").and_then(Value::as_bool).unwrap_or(true);
    let is_named = move |plugin: &&Object| word(plugin, "name").is_some_and(|name| names.contains(&name));
    objects.all(Kind::Plugin).iter().filter(is_on).filter(is_named)
}

/// How specific a plugin is for a way, apart from consumers; `None` if it is not for it.
fn closeness(plugin: &Object, way: &Way<'_>) -> Option<usize> {
    let mut closest = 0;
    for scope in ["api", "route", "service"] {
        if let Some(wanted) = reference(plugin, scope) {
            way.ids.iter().find(|(kind, id)| *kind == scope && *id == wanted)?;
            closest = closest.max(if scope == "service" { 1 } else { 2 });
        }
    }
    Some(closest)
}

const LIMITING: &[&str] = &["rate-limiting", "rate-limiting-advanced"];

/// Whether a plugin acts on requests of a way: of all of its name for the same consumer, or for those who have none of
/// their own, it is the closest.
fn is_acting(objects: &Objects, plugin: &Object, way: &Way<'_>) -> bool {
    let is_alike = |other: &&Object| {
        word(other, "name") == word(plugin, "name") && reference(other, "consumer") == reference(plugin, "consumer")
    };
    let candidates = plugins(objects, LIMITING).filter(is_alike).filter(|other| closeness(other, way).is_some());
    candidates.max_by_key(|other| closeness(other, way)).is_some_and(|closest| id(closest) == id(plugin))
}

/// What plugins that act on a way tell those who are over a limit, first that of all who have none of their own.
fn denials(objects: &Objects, way: &Way<'_>) -> Vec<Value> {
    let mut acting: Vec<&Object> =
        plugins(objects, LIMITING).filter(|plugin| is_acting(objects, plugin, way)).collect();
    acting.sort_by_key(|plugin| reference(plugin, "consumer").is_some());
    let told = |plugin: &Object| {
        let config = &plugin["config"];
        let is_hidden = config["hide_client_headers"] == json!(true);
        let message = config["error_message"].as_str().unwrap_or("API rate limit exceeded");
        json!({
            "status": config["error_code"],
            "body": json!({"message": message}).to_string(),
            "content_type": "application/json; charset=utf-8",
            "headers": [if is_hidden { "nothing" } else { "kong" }],
        })
    };
    acting.into_iter().map(told).collect()
}

/// Plugins that act on the same requests have to agree on what those are told.
pub(super) fn check(objects: &Objects) -> Result<(), Refusal> {
    for way in ways(objects) {
        let denials = denials(objects, &way);
        if denials.iter().any(|told| Some(told) != denials.first()) {
            let why = format!(
                "`{}` tells all its clients the same: give its plugins one error_code, error_message and hide_client_headers",
                way.name
            );
            return Err(Refusal::field("config.error_message", why));
        }
    }
    Ok(())
}

/// Where requests are sent.
pub(super) fn urls(objects: &Objects) -> Vec<String> {
    ways(objects).into_iter().map(|way| way.url).collect()
}

pub(super) fn text(objects: &Objects, within: &[Place]) -> String {
    let within: Vec<String> = within.iter().map(Place::to_string).collect();
    let ways = ways(objects);
    let mut document = json!({"upstreams": [], "routes": [], "rules": [], "consumers": []});
    let push = |document: &mut Value, list: &str, item: Value| {
        if let Some(items) = document[list].as_array_mut() {
            items.push(item);
        }
    };
    for way in &ways {
        let upstream = format!("admin:{}", way.name);
        let [connect, read] = way.timeouts.map(|time| format!("{time}ms"));
        push(
            &mut document,
            "upstreams",
            json!({"name": upstream, "servers": [way.url], "connect_timeout": connect, "timeout": read, "within": within}),
        );
        push(&mut document, "routes", route_of(objects, way, &upstream));
    }
    for plugin in plugins(objects, LIMITING) {
        for rule in rules_of(objects, plugin, &ways) {
            push(&mut document, "rules", rule);
        }
    }
    for consumer in objects.all(Kind::Consumer) {
        let keys: Vec<&str> = objects
            .all(Kind::Key)
            .iter()
            .filter(|key| reference(key, "consumer") == Some(id(consumer)))
            .filter_map(|key| word(key, "key"))
            .collect();
        push(&mut document, "consumers", json!({"name": name_of(Kind::Consumer, consumer), "keys": keys}));
    }
    serde_json::to_string_pretty(&document).unwrap_or_default()
}

fn route_of(objects: &Objects, way: &Way<'_>, upstream: &str) -> Value {
    let list = |name: &str| way.object.get(name).filter(|_| !is_unsaid(way.object, name));
    let mut route = json!({
        "name": way.name,
        "hosts": list("hosts"),
        "paths": list(way.paths),
        "methods": list("methods"),
        "upstream": upstream,
        "strip_path": way.strips,
        "preserve_host": way.object.get("preserve_host").cloned().unwrap_or_default(),
    });
    if plugins(objects, LIMITING).any(|plugin| limited_by(plugin) == "service") {
        route["attributes"] = json!({"service": way.service});
    }
    if let Some(denied) = denials(objects, way).into_iter().next() {
        route["denied"] = denied;
    }
    let keys = plugins(objects, &["key-auth"]).filter(|plugin| closeness(plugin, way).is_some());
    if let Some(plugin) = keys.max_by_key(|plugin| closeness(plugin, way)) {
        // What was kept by a version that took a plugin without names is no way in, either.
        let names = plugin["config"].as_object().filter(|config| !is_unsaid(config, "key_names"));
        route["api_key"] = names.map_or_else(|| json!("apikey"), |config| config["key_names"].clone());
    }
    route
}

/// The rules of a plugin, for the ways on which it is the one that acts.
fn rules_of(objects: &Objects, plugin: &Object, ways: &[Way<'_>]) -> Vec<Value> {
    let consumer = |plugin: &Object| {
        let id = reference(plugin, "consumer")?;
        objects.find(Kind::Consumer, id).map(|consumer| name_of(Kind::Consumer, consumer))
    };
    let is_acting = |way: &&Way<'_>| is_acting(objects, plugin, way);
    let routes: Vec<&str> = ways.iter().filter(is_acting).map(|way| way.name.as_str()).collect();
    if routes.is_empty() {
        return Vec::new();
    }
    let mut when = json!({"route": {"is": routes}});
    let mut unless = Vec::new();
    match consumer(plugin) {
        Some(consumer) => when["consumer"] = json!({"is": consumer}),
        // Who has a plugin of its own is not asked by this one.
        None => {
            for other in plugins(objects, LIMITING).filter(|other| word(other, "name") == word(plugin, "name")) {
                let own = consumer(other);
                let shared: Vec<&str> = ways
                    .iter()
                    .filter(is_acting)
                    .filter(|way| closeness(other, way).is_some())
                    .map(|way| way.name.as_str())
                    .collect();
                if let (Some(own), false) = (own, shared.is_empty()) {
                    unless.push(json!({"consumer": {"is": own}, "route": {"is": shared}}));
                }
            }
        }
    }
    let config = &plugin["config"];
    let rule = |name: &str, when: Value, per: Value| {
        let mut rule = json!({"name": name, "when": when, "limits": limits_of(config)});
        if config["fault_tolerant"] == json!(false) {
            rule["on_store_failure"] = json!("deny");
        }
        if !per.is_null() {
            rule["per"] = per;
        }
        if !unless.is_empty() {
            rule["unless"] = json!(unless);
        }
        rule
    };
    let name = plugin_name(objects, plugin);
    match limited_by(plugin) {
        by @ ("ip" | "service" | "route" | "credential") => vec![rule(&name, when, json!(by))],
        "header" => {
            let header = config["header_name"].as_str().unwrap_or_default().to_ascii_lowercase();
            vec![rule(&name, when, json!(format!("header_or_ip.{header}")))]
        }
        "path" => {
            let path = config["path"].as_str().unwrap_or_default();
            let (mut here, mut elsewhere) = (when.clone(), when);
            here["path"] = json!({"is": path});
            elsewhere["path"] = json!({"not": {"is": path}});
            vec![rule(&name, here, Value::Null), rule(&format!("{name}:elsewhere"), elsewhere, json!("ip"))]
        }
        _ => vec![rule(&name, when, json!("client"))],
    }
}

fn limited_by(plugin: &Object) -> &str {
    let config = &plugin["config"];
    config["identifier"].as_str().or(config["limit_by"].as_str()).unwrap_or("consumer")
}

fn limits_of(config: &Value) -> Value {
    let mut limits = Vec::new();
    for (period, unit) in
        [("second", "s"), ("minute", "min"), ("hour", "h"), ("day", "d"), ("month", "month@UTC"), ("year", "year@UTC")]
    {
        if let Some(limit) = config[period].as_f64() {
            limits.push(json!({"rate": format!("{limit}/{unit}"), "algorithm": "fixed_window"}));
        }
    }
    let list = |name: &str| config[name].as_array().cloned().unwrap_or_default();
    let algorithm = if config["window_type"] == "fixed" { "fixed_window" } else { "sliding_window" };
    for (limit, window) in list("limit").iter().zip(list("window_size")) {
        limits.push(json!({"rate": format!("{limit}/{window}s"), "algorithm": algorithm}));
    }
    json!(limits)
}
