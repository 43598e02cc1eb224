//! Who asks and for what, as rules of a gateway see it, and what clients are told of it.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "gateway/origin.rs"]
mod origin;
mod support;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use origin::Origin;
use serde_json::Value;
use support::{Answer, Service, eventually, http, scratch};

fn get(at: SocketAddr, path: &str, headers: &str) -> Answer {
    http(at, &format!("GET {path} HTTP/1.1{headers}"), "")
}

/// A gateway with one rule: what it says beside its name and its limit of one a day.
fn once(origin: &Origin, rule: &str, args: &[&str]) -> Service {
    let at = origin.address;
    let limit = "{rate: 1/d, algorithm: token_bucket}";
    let file = format!(
        "routes:\n  - {{name: all, upstream: 'http://{at}'}}\nrules:\n  - {{name: r, {rule}, limits: [{limit}]}}\n"
    );
    Service::gateway(&file, args)
}

/// The status of a request for this host.
fn for_host(at: SocketAddr, host: &str) -> u16 {
    let mut stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split(' ').nth(1).unwrap().parse().unwrap()
}

/// However a client writes the host, it is the same.
#[test]
fn nobody_goes_round_a_rule_by_writing_the_host_differently() {
    let origin = Origin::start();
    let hosts =
        ["API.example.com", "api.example.com:8000", "api.example.com.", "Api.Example.Com.:1", "api.example.com"];
    for rule in ["when: {host: api.example.com}", "per: host"] {
        let gateway = once(&origin, rule, &[]);
        let told: Vec<u16> = hosts.iter().map(|host| for_host(gateway.proxy(), host)).collect();
        assert_eq!(told, [200, 429, 429, 429, 429], "{rule}");
        assert_eq!([for_host(gateway.proxy(), "example.com")], [200]);
    }
    // Servers are told what the client wrote.
    let gateway = once(&origin, "per: host", &[]);
    for_host(gateway.proxy(), "API.example.com:8000");
    assert_eq!(origin.last().header("x-forwarded-host"), Some("API.example.com:8000"));
}

/// Each of what rules can count by tells requests apart, and nothing else does.
#[test]
fn attributes_tell_requests_apart() {
    let origin = Origin::start();
    for (per, [one, same, other]) in [
        (
            "cookie.session",
            [("/", "\nCookie: a=1; session=x"), ("/2", "\nCookie: session=x"), ("/", "\nCookie: session=y")],
        ),
        ("segment.2", [("/a/one", ""), ("/b/one/deeper", ""), ("/a/two", "")]),
        ("user_agent", [("/", "\nUser-Agent: x"), ("/2", "\nUser-Agent: x"), ("/", "\nUser-Agent: y")]),
        ("header.x-user", [("/", "\nX-User: 1"), ("/2", "\nx-uSER: 1"), ("/", "\nX-User: 2")]),
        ("query.q", [("/?q=a%20b", ""), ("/?x=1&q=a+b", ""), ("/?q=b", "")]),
        ("path", [("/admin", ""), ("//%61dmin", ""), ("/other", "")]),
        ("path", [("/v1/chat:send", ""), ("/v1/chat%3Asend", ""), ("/v1/chat", "")]),
        ("path", [("/caf%C3%A9", ""), ("/caf%c3%a9", ""), ("/caf%C3%A8", "")]),
        ("segment.2", [("/u/a@b+c", ""), ("/u/a%40b%2Bc", ""), ("/u/a%20b", "")]),
        ("method", [("/", ""), ("/2", ""), ("/", "")]),
    ] {
        let gateway = once(&origin, &format!("per: {per}"), &[]);
        let ask = |(path, headers): (&str, &str)| get(gateway.proxy(), path, headers).status;
        assert_eq!([ask(one), ask(same)], [200, 429], "{per}");
        let other = if per == "method" { http(gateway.proxy(), "HEAD / HTTP/1.1", "").status } else { ask(other) };
        assert_eq!(other, 200, "{per}");
    }
}

/// A network of IPv6 is one client, and its addresses are told by whoever is trusted.
#[test]
fn a_network_of_ipv6_is_one_client() {
    let origin = Origin::start();
    let gateway = once(&origin, "per: ip/64", &["--trusted-proxies", "127.0.0.1"]);
    let ask = |from: &str| get(gateway.proxy(), "/", &format!("\nX-Forwarded-For: {from}")).status;
    assert_eq!([ask("2001:db8:1:2::1"), ask("2001:db8:1:2:ffff::9"), ask("2001:db8:1:3::1")], [200, 429, 200]);
    assert_eq!([ask("203.0.113.1"), ask("203.0.113.2"), ask("203.0.113.1")], [200, 200, 429]);
}

/// Consumers of a file are known by their keys, written out or as what SHA-256 makes of them.
#[test]
fn consumers_of_a_file_are_known_by_their_keys() {
    let origin = Origin::start();
    let hash = ring::digest::digest(&ring::digest::SHA256, b"secret-b");
    let hash: String = hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    let file = format!(
        "routes:\n  - {{name: all, upstream: 'http://{}', api_key: [x-api-key, key]}}\n\
         consumers:\n  - {{name: alice, keys: [secret-a, other-a]}}\n  \
         - {{name: bob, key: 'sha256:{hash}', attributes: {{plan: gold}}}}\n\
         rules:\n  - {{name: free, per: consumer, unless: {{plan: gold}}, limits: [{{rate: 2/d, algorithm: token_bucket}}]}}\n  \
         - {{name: gold, when: {{plan: gold}}, per: consumer, limits: [{{rate: 3/d, algorithm: token_bucket}}]}}\n",
        origin.address
    );
    let gateway = Service::gateway(&file, &[]);
    let ask = |key: &str| get(gateway.proxy(), "/", &format!("\nX-Api-Key: {key}")).status;
    assert_eq!([ask("secret-a"), ask("other-a"), ask("secret-a")], [200, 200, 429], "two keys of one");
    assert_eq!([ask("secret-b"), ask("secret-b")], [200, 200]);
    assert_eq!([get(gateway.proxy(), "/?key=secret-b", "").status, ask("secret-b")], [200, 429]);
    for stranger in ["", "secret", &hash, &format!("sha256:{hash}")] {
        assert_eq!(ask(stranger), 401, "{stranger}");
    }
    assert_eq!(get(gateway.proxy(), "/", "").status, 401);
    assert_eq!(origin.seen().len(), 5);
    let places = "in the header or query parameter `x-api-key` or `key`";
    for (header, told) in [
        ("", format!("a key is needed: send yours {places}")),
        ("\nX-Api-Key:", format!("a key is needed: send yours {places}")),
        ("\nX-Api-Key: wrong", format!("this key is not known: send yours {places}")),
    ] {
        let body = get(gateway.proxy(), "/", header).body;
        assert!(body.contains(&told) && !body.contains("wrong"), "{header}: {body}");
    }
}

/// A denial is told in the form that is asked for.
#[test]
fn a_denial_has_the_form_that_is_asked_for() {
    let origin = Origin::start();
    let gateway = once(&origin, "per: ip", &[]);
    assert_eq!(get(gateway.proxy(), "/", "").status, 200);
    for (accept, kind) in [
        ("", "application/problem+json"),
        ("\nAccept: application/json", "application/json"),
        ("\nAccept: application/problem+json", "application/problem+json"),
        ("\nAccept: text/plain", "text/plain"),
    ] {
        let denied = get(gateway.proxy(), "/", accept);
        assert_eq!(denied.status, 429);
        let told = denied.header("content-type").unwrap();
        assert!(told.starts_with(kind), "{accept}: {told}");
        let is_json = serde_json::from_str::<Value>(&denied.body).is_ok();
        assert_eq!(is_json, kind.contains("json"), "{}", denied.body);
        assert!(denied.header("retry-after").is_some());
    }
}

/// Each family of headers is on answers and on denials, and no other is.
#[test]
fn every_family_of_headers_is_told() {
    let origin = Origin::start();
    let families = [
        ("ietf", &["ratelimit", "ratelimit-policy"][..]),
        ("x", &["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"]),
        ("seed", &["x-ratelimit-limit", "x-ratelimit-remaining"]),
        (
            "kong",
            &[
                "ratelimit-limit",
                "ratelimit-remaining",
                "ratelimit-reset",
                "x-ratelimit-limit-day",
                "x-ratelimit-remaining-day",
            ],
        ),
        ("none", &[]),
    ];
    for (family, expected) in families {
        let gateway = once(&origin, "per: ip", &["--headers", family]);
        let (allowed, denied) = (get(gateway.proxy(), "/", ""), get(gateway.proxy(), "/", ""));
        assert_eq!([allowed.status, denied.status], [200, 429]);
        let told = |answer: &Answer| {
            let names = answer.headers.iter().map(|(name, _)| name.clone());
            let mut names: Vec<String> = names.filter(|name| name.contains("ratelimit")).collect();
            names.sort_unstable();
            names
        };
        let mut names: Vec<String> = expected.iter().map(|name| (*name).to_owned()).collect();
        names.sort_unstable();
        assert_eq!(told(&allowed), names, "{family}");
        if family == "seed" {
            names.push("x-ratelimit-retry-after".to_owned());
        }
        assert_eq!(told(&denied), names, "{family}");
        assert!(denied.header("retry-after").is_some() && allowed.header("retry-after").is_none(), "{family}");
    }
}

/// Half of a file is not put in force, neither at the start nor later.
#[test]
fn half_a_file_changes_nothing() {
    let origin = Origin::start();
    let at = origin.address;
    let whole = format!(
        "routes:\n  - {{name: all, upstream: 'http://{at}'}}\nrules:\n  - {{name: r, per: ip, limits: [{{rate: 1/d, algorithm: token_bucket}}]}}\n"
    );
    let path = scratch("gateway.yaml");
    for end in [whole.len() - 3, whole.find("limits").unwrap(), whole.find("upstream").unwrap() + 12] {
        std::fs::write(&path, &whole[..end]).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
        command.args(["gateway", "--proxy", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--config"]).arg(&path);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains("gateway.yaml"), "{said}");
    }
    std::fs::write(&path, &whole).unwrap();
    let gateway = Service::gateway_with(&["--config", path.to_str().unwrap()]);
    let ask = || get(gateway.proxy(), "/", "").status;
    assert_eq!([ask(), ask()], [200, 429]);
    for end in [whole.len() - 3, whole.find("limits").unwrap(), whole.find("upstream").unwrap() + 12] {
        std::fs::write(&path, &whole[..end]).unwrap();
        assert_ne!(http(gateway.admin(), "POST /reload HTTP/1.1", "").status, 200);
        assert_eq!(ask(), 429, "what was in force stays");
    }
    std::fs::write(&path, whole.replace("1/d", "2/d")).unwrap();
    eventually("the whole of it is put in force", || get(gateway.admin(), "/rlconfig", "").body.contains("2/d"));
}
