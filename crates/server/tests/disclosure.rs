//! What the service tells whoever runs it: everything that is counted, under names that stay and labels that clients
//! cannot make; and in its log nothing that a client said, and no secret, whatever the level.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;
#[path = "support/wire.rs"]
mod wire;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use serde_json::json;
use support::{Service, eventually, http, printed, python, scratch};
use wire::Connection;

/// Part of everything that must not be told.
const CANARY: &str = "canary";

fn openssl(args: &str, directory: &Path) {
    let output = Command::new("openssl").args(args.split_whitespace()).current_dir(directory).output();
    printed(&output.expect("openssl runs"));
}

/// Serves with a log of everything, and says where the log is.
fn logged(rules: &Path, more: &[&str]) -> (Service, std::path::PathBuf) {
    let log = scratch("everything.log");
    let mut command = Command::new("sh");
    let exec = format!("exec \"$0\" \"$@\" 2>'{}'", log.display());
    command.args(["-c", &exec, env!("CARGO_BIN_EXE_tollgate")]);
    command.env("TOLLGATE_ADMIN_TOKEN", "canary-token").env("TOLLGATE_RESP_PASSWORD", "canary-password");
    let rules = rules.display().to_string();
    let args = ["--rules", &rules, "--log-level", "trace", "--drain-delay", "0s"];
    (Service::start_with(command, &[&args[..], more].concat()), log)
}

fn speak_http(service: &Service) {
    let secrets = "Authorization: Bearer canary-bearer\nCookie: session=canary-cookie\nUser-Agent: canary-agent";
    let user = r#"{"attributes": {"user": "canary-user", "canary-key": "canary-value"}}"#;
    for (head, body) in [
        ("POST /v1/check", user),
        ("POST /v1/check", user),
        ("POST /v1/explain", user),
        ("POST /v1/check", r#"{"attributes": {"canary-key": ["canary-value"]}}"#),
        ("POST /v1/check", r#"{"canary-field": 1}"#),
        ("POST /v1/check", "canary-nonsense"),
        ("POST /v1/commit", r#"{"reservation": "canary-reservation"}"#),
        (
            "POST /json",
            r#"{"domain": "canary-domain", "descriptors": [{"entries": [{"key": "canary-key", "value": "canary"}]}]}"#,
        ),
        ("POST /json", r#"{"domain": "canary-domain", "canary": 1}"#),
        ("GET /check?user=canary-user", ""),
        ("GET /check?cost=canary-cost", ""),
        ("GET /check/canary-path?canary-query=1", ""),
        ("GET /canary-path", ""),
        ("CANARY /v1/check", "canary-body"),
    ] {
        let more = "X-RL-User: canary-header\nX-Forwarded-For: canary-address, 10.0.0.1\nX-Canary: canary";
        let answer = http(service.http(), &format!("{head} HTTP/1.1\n{secrets}\n{more}"), body);
        assert!(answer.status >= 200, "{head}");
    }
    // Heads that make no sense.
    for head in ["canary", "GET canary-nonsense HTTP/1.1\ncanary header", "GET / HTTP/9.9\nCanary: canary"] {
        let mut connection = Connection::open(service.http()).unwrap();
        let _ = connection.http(head, "canary");
    }
    let wrong = "GET /rules HTTP/1.1\nAuthorization: Bearer canary-wrong";
    assert_eq!(http(service.admin(), wrong, "").status, 401);
    let right = "POST /rules/canary-rule/off HTTP/1.1\nAuthorization: Bearer canary-token";
    assert_eq!(http(service.admin(), right, "").status, 404);
    // The same by HTTP/2.
    let url = format!("http://{}/v1/check?canary-query", service.http());
    let headers =
        ["-H", "authorization: Bearer canary-bearer", "-H", "cookie: canary-cookie", "-H", "x-canary: canary"];
    let mut curl = Command::new("curl");
    curl.args(["-sS", "--http2-prior-knowledge", "-d", user, &url]).args(headers);
    assert!(printed(&curl.output().unwrap()).contains("allowed"));
}

fn speak_resp(service: &Service) {
    let mut client = Connection::open(service.resp()).unwrap();
    for words in [
        &["AUTH", "canary-wrong"][..],
        &["HELLO", "3", "AUTH", "canary-user", "canary-wrong"],
        &["TG.CHECK", "FOR", "user", "canary-too-early"],
        &["AUTH", "canary-password"],
        &["CLIENT", "SETNAME", "canary-name"],
        &["CLIENT", "SETINFO", "LIB-NAME", "canary-library"],
        &["TG.CHECK", "FOR", "user", "canary-user", "canary-key", "canary-value"],
        &["TG.CHECK", "canary-option"],
        &["TG.EXPLAIN", "FOR", "user", "canary-user"],
        &["CL.THROTTLE", "canary-key", "1", "1", "60"],
        &["CL.THROTTLE", "canary-key", "canary", "1", "60"],
        &["CANARY", "canary-argument"],
    ] {
        client.command(words).answer();
    }
    let mut nonsense = Connection::open(service.resp()).unwrap();
    let _ = nonsense.http("canary", "*1\r\n$-canary\r\n");
}

fn speak_grpc(service: &Service) {
    let script = r#"
secrets = [("authorization", "Bearer canary-bearer"), ("cookie", "canary-cookie"), ("canary-bin", b"canary")]
for question in (request("user=canary-user"), request("canary-key=canary-value", domain="canary-domain")):
    method(question, metadata=secrets, timeout=10)
for message in (b"canary", b"\x0a\xffcanary", request("user=canary").SerializeToString()[:-3]):
    fails(grpc.StatusCode.INVALID_ARGUMENT, "", lambda: raw(message, metadata=secrets, timeout=10))
unknown = channel.unary_unary("/canary.Service/Canary")
fails(grpc.StatusCode.UNIMPLEMENTED, "", lambda: unknown(b"canary", metadata=secrets, timeout=10))
print("done")
"#;
    let script = format!("{}{script}", include_str!("grpc/client.py"));
    assert_eq!(python(&script, &[&service.grpc().to_string()]).trim(), "done");
}

/// Heads of HTTP/2 that make no sense, by frames made by hand: libraries like to quote what they cannot read.
fn speak_http2(address: SocketAddr) {
    let script = r#"
import socket, struct, sys
def frame(kind, flags, stream, body=b""):
    return struct.pack(">I", len(body))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + body
def literal(name, value):
    return b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value
good = {":method": "GET", ":scheme": "http", ":path": "/", ":authority": "localhost"}
for name, value in [
    (":path", "canary path"), (":authority", "canary,canary"), (":scheme", "canary scheme"), (":method", "canary method"),
    (":canary", "x"), ("Canary", "canary"), ("x-canary", "canary\x00canary"), ("content-length", "canary"),
    ("connection", "canary"), ("te", "canary"), ("host", "canary canary"),
]:
    head = b"".join(literal(name.encode(), value.encode()) for name, value in {**good, name: value}.items())
    host, port = sys.argv[1].split(":")
    connection = socket.create_connection((host, int(port)), timeout=10)
    connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0) + frame(1, 5, 1, head) + frame(0xca, 0, 0, b"canary"))
    connection.shutdown(socket.SHUT_WR)
    try:
        while connection.recv(65536):
            pass
    except ConnectionResetError:
        pass
print("done")
"#;
    assert_eq!(python(script, &[&address.to_string()]).trim(), "done");
}

#[track_caller]
fn tells_nothing(log: &Path, something: &str) {
    let said = std::fs::read_to_string(log).unwrap();
    assert!(said.contains(something), "it is the log of everything, {something} included: {said}");
    let told: Vec<&str> = said.lines().filter(|line| line.to_ascii_lowercase().contains(CANARY)).collect();
    assert!(told.is_empty(), "{} lines of {} tell:\n{}", told.len(), said.lines().count(), told.join("\n"));
    // What is split or written as numbers is told as well.
    for bytes in [format!("{:?}", CANARY.as_bytes()), "63616e617279".to_owned()] {
        let bytes = bytes.trim_matches(['[', ']']);
        assert!(!said.contains(bytes), "{bytes}");
    }
}

#[test]
fn no_secret_and_nothing_that_clients_say_is_logged_at_any_level() {
    let rules = scratch("rules.yaml");
    let text = "domain: d\nexempt: {user: canary-friend}\nrules:\n  - {name: once, per: user, limits: [1/d]}\n";
    std::fs::write(&rules, text).unwrap();
    let (service, log) = logged(&rules, &[]);
    speak_http(&service);
    speak_resp(&service);
    speak_grpc(&service);
    speak_http2(service.grpc());
    speak_http2(service.http());
    // Of a bad file the line is shown that is wrong, and no other.
    std::fs::write(&rules, format!("{text}  - {{name: bad, limits: [many]}}\n")).unwrap();
    eventually("it is noticed", || std::fs::read_to_string(&log).unwrap().contains("some rules are wrong"));
    service.signal("TERM");
    assert!(service.wait().success());
    tells_nothing(&log, "draining");
}

#[test]
fn nothing_is_logged_of_what_is_encrypted() {
    let rules = scratch("rules.yaml");
    std::fs::write(&rules, "{domain: d, rules: [{name: once, per: user, limits: [1/d]}]}").unwrap();
    let directory = rules.parent().unwrap();
    let request = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost";
    openssl(&format!("{request} -keyout key.pem -out cert.pem -addext subjectAltName=IP:127.0.0.1"), directory);
    let path = |name: &str| directory.join(name).display().to_string();
    let (certificate, key) = (path("cert.pem"), path("key.pem"));
    let (service, log) = logged(&rules, &["--http-tls-cert", &certificate, "--http-tls-key", &key]);
    let url = format!("https://{}/v1/check?canary-query", service.http());
    for version in ["--http1.1", "--http2"] {
        let mut curl = Command::new("curl");
        curl.args(["-sS", version, "--cacert", &certificate, "-H", "cookie: canary-cookie", "-u", "canary:canary"]);
        curl.args(["-d", r#"{"attributes": {"user": "canary-user"}}"#, &url]);
        assert!(printed(&curl.output().unwrap()).contains("once"));
    }
    // Not encrypted, and no handshake.
    let mut plain = Connection::open(service.http()).unwrap();
    let _ = plain.http("GET /canary HTTP/1.1\nAuthorization: canary", "canary");
    eventually("it is noticed", || std::fs::read_to_string(&log).unwrap().contains("handshake failed"));
    tells_nothing(&log, "handshake failed");
}

/// Families of metrics with their types and the names of their labels.
fn families(metrics: &str) -> String {
    let mut families: BTreeMap<&str, (&str, BTreeSet<&str>)> = BTreeMap::new();
    for line in metrics.lines() {
        if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            assert!(families.insert(name, (kind, BTreeSet::new())).is_none(), "{name} is there twice");
        } else if !line.starts_with('#') {
            let name = line.split(['{', ' ']).next().unwrap();
            let base = ["_bucket", "_sum", "_count"].iter().find_map(|part| name.strip_suffix(part));
            let name = base.filter(|base| families.contains_key(base)).unwrap_or(name);
            let (_, known) = families.get_mut(name).unwrap_or_else(|| panic!("{line} belongs to no family"));
            let labels = line.split_once('{').map_or("", |(_, rest)| rest);
            known.extend(labels.split("\",").filter_map(|label| label.split_once("=\"")).map(|(label, _)| label));
        }
    }
    let show = |(name, (kind, labels)): (&&str, &(&str, BTreeSet<&str>))| {
        format!("{name} {kind} {}", labels.iter().copied().collect::<Vec<_>>().join(",")).trim_end().to_owned() + "\n"
    };
    families.iter().map(show).collect()
}

const METRIC_RULES: [&str; 2] = [
    "{domain: shop, rules: [{name: per-user, per: user, limits: [1/d]}]}",
    "{domain: edge, descriptors: [{key: path, value: /login, descriptors: [{key: ip, rate_limit: {unit: day, requests_per_unit: 5}}]}]}",
];

fn serve_both(more: &[&str]) -> Service {
    let files = METRIC_RULES.map(|text| {
        let file = scratch("rules.yaml");
        std::fs::write(&file, text).unwrap();
        file.display().to_string()
    });
    let command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    Service::start_with(command, &[&["--rules", &files.join(",")], more].concat())
}

fn metrics(service: &Service) -> String {
    let answer = http(service.admin(), "GET /metrics HTTP/1.1", "");
    assert_eq!(answer.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    answer.body
}

#[test]
fn every_metric_is_in_the_document() {
    let document = include_str!("../../../docs/operations.md");
    for name in include_str!("metrics/own.txt").lines().filter_map(|line| line.split(' ').next()) {
        assert!(document.contains(&format!("`{name}`")) || document.contains(&format!("`{name}{{")), "{name}");
    }
}

/// Names are what other people's dashboards and alarms are made of.
#[test]
fn metrics_keep_their_names_types_and_labels() {
    for (more, golden, name) in [
        (&[][..], include_str!("metrics/own.txt"), "own.txt"),
        (&["--compat", "envoy-ratelimit"], include_str!("metrics/compat.txt"), "compat.txt"),
    ] {
        let found = families(&metrics(&serve_both(more)));
        assert_eq!(found, golden, "if that is meant, crates/server/tests/metrics/{name} is:\n{found}");
    }
}

#[test]
fn a_thousand_users_make_no_series() {
    let service = serve_both(&["--compat", "envoy-ratelimit"]);
    let names = |text: &str| text.lines().map(|line| line.rsplit_once(' ').unwrap().0.to_owned()).collect::<Vec<_>>();
    let before = names(&metrics(&service));
    let mut resp = Connection::open(service.resp()).unwrap();
    let mut web = Connection::open(service.http()).unwrap();
    for number in 0..1_000 {
        let user = format!("user-{number}");
        resp.command(&["TG.CHECK", "DOMAIN", "shop", "FOR", "user", &user, &user, "x"]).answer();
        resp.command(&["TG.CHECK", "DOMAIN", &user, "FOR", "user", "1"]).answer();
        resp.command(&["CL.THROTTLE", &user, "0", "1", "86400"]).answer();
        resp.command(&[&user]).answer();
        let entries = json!([{"key": "path", "value": "/login"}, {"key": "ip", "value": user}]);
        for domain in ["edge", &user] {
            let body = json!({"domain": domain, "descriptors": [{"entries": entries}]}).to_string();
            web.http("POST /json HTTP/1.1", &body).answer();
        }
        web.http(&format!("GET /{user} HTTP/1.1"), "").answer();
        web.http(&format!("GET /check?domain=shop&path=/{user} HTTP/1.1\nX-RL-User: {user}"), "").answer();
    }
    let after = metrics(&service);
    assert_eq!(names(&after), before);
    // And all of it was counted.
    for line in [
        "tollgate_rule_checks_total{domain=\"shop\",rule=\"per-user\",outcome=\"allowed\"} 1000",
        "ratelimit_service_rate_limit_total_hits{domain=\"edge\",key1=\"path_/login\",key2=\"ip\"} 1000",
        "tollgate_throttle_checks_total{outcome=\"allowed\"} 1000",
    ] {
        assert!(after.contains(line), "{line}\n{after}");
    }
}

#[test]
fn a_rule_that_asks_for_it_is_told_by_values_up_to_a_bound() {
    let rules = "
domain: edge
descriptors:
  - {key: ip, value_to_metric: true, rate_limit: {unit: day, requests_per_unit: 2}}
  - {key: user, rate_limit: {unit: day, requests_per_unit: 2}}
";
    let service = Service::start(rules, &["--compat", "envoy-ratelimit"]);
    let mut web = Connection::open(service.http()).unwrap();
    let mut ask = |key: &str, value: &str| {
        let body = json!({"domain": "edge", "descriptors": [{"entries": [{"key": key, "value": value}]}]}).to_string();
        web.http("POST /json HTTP/1.1", &body).answer();
    };
    (0..3).for_each(|_| ask("ip", "192.0.2.1"));
    ask("user", "42");
    (0..1_100).for_each(|number| ask("ip", &format!("10.0.0.{number}")));
    let after = metrics(&service);
    let of_values = r#"tollgate_value_checks_total{domain="edge",rule="edge.ip",values="#;
    for line in [
        // The rule as a whole, as ever.
        r#"tollgate_rule_checks_total{domain="edge",rule="edge.ip",outcome="allowed"} 1102"#,
        &format!(r#"{of_values}"ip_192.0.2.1",outcome="allowed"}} 2"#),
        &format!(r#"{of_values}"ip_192.0.2.1",outcome="denied"}} 1"#),
        &format!(r#"{of_values}"other",outcome="allowed"}} 101"#),
        r#"ratelimit_service_rate_limit_total_hits{domain="edge",key1="ip_192.0.2.1"} 3"#,
        r#"ratelimit_service_rate_limit_over_limit{domain="edge",key1="ip_192.0.2.1"} 1"#,
        r#"ratelimit_service_rate_limit_total_hits{domain="edge",key1="ip"} 101"#,
        r#"ratelimit_service_rate_limit_total_hits{domain="edge",key1="user"} 1"#,
    ] {
        assert!(after.lines().any(|found| found == line), "{line}\n{after}");
    }
    let named = after.lines().filter(|line| line.starts_with(of_values) && line.contains(r#"outcome="allowed""#));
    assert_eq!(named.count(), 1_001);
    assert!(!after.contains("user_42"), "{after}");
}

#[test]
fn rules_that_ask_for_what_is_not_there_are_told_of() {
    let rules = scratch("rules.yaml");
    let text = "domain: d\nrules:\n  - {name: a, per: user, limits: [1/day], consistency: local}\n";
    std::fs::write(&rules, text).unwrap();
    let store = format!("redis://127.0.0.1:{}", support::free_port());
    let (_service, log) = logged(&rules, &["--store", &store]);
    eventually("the rule that asks for it is named in the log", || {
        let said = std::fs::read_to_string(&log).unwrap();
        said.contains("`consistency` has no effect yet") && said.contains(r#""rule":"a""#)
    });
}
