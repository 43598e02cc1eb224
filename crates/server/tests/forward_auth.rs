//! Forward-auth as proxies use it: the contract itself, and a real nginx and Envoy with the recipes of `docs/http.md`.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::process::{Command, Stdio};

use support::{Answer, Running, Service, eventually, free_port, http, printed, scratch};

const RULES: &str = "
domain: proxied
rules:
  - {name: per-ip, per: ip, limits: [{rate: 2/d, algorithm: token_bucket}]}
  - {name: writes, when: {method: POST, path: /api/items}, per: ip, limits: [{rate: 1/d, algorithm: token_bucket}]}
  - {name: per-user, per: user_id, limits: [{rate: 1/d, algorithm: token_bucket}]}
  - {name: gold, when: {plan: gold}, per: host, limits: [{rate: 3/d, algorithm: token_bucket}]}
";

fn check(service: &Service, line: &str, headers: &[&str]) -> Answer {
    let head = [&[line][..], headers].concat().join("\n");
    http(service.http(), &head, "")
}

#[test]
fn allowed_is_exactly_200_without_a_body_by_any_method_and_path() {
    let service = Service::start(RULES, &[]);
    for (number, method) in ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PURGE"].iter().enumerate() {
        for (letter, path) in ["/check", "/check/", "/check/a/b?c=d"].iter().enumerate() {
            let from = format!("X-Forwarded-For: 198.51.{letter}.{number}");
            let answer = check(&service, &format!("{method} {path} HTTP/1.1"), &[&from]);
            assert_eq!((answer.status, &*answer.body), (200, ""), "{method} {path}");
            assert!(answer.header("ratelimit").is_some_and(|value| value.contains("r=1")), "{method} {path}");
            assert_eq!(answer.header("x-ratelimit-remaining"), Some("1"));
            assert_eq!(answer.header("location"), None);
        }
    }
    assert_eq!(check(&service, "GET /checks HTTP/1.1", &[]).status, 404);
}

#[test]
fn denied_is_429_or_403_as_the_proxy_wants_it() {
    let service = Service::start(RULES, &[]);
    let from = "X-Forwarded-For: 198.51.100.7";
    let ask = |line: &str| check(&service, line, &[from]);
    assert_eq!(ask("GET /check?cost=2 HTTP/1.1").status, 200);
    let denied = ask("GET /check HTTP/1.1");
    assert_eq!((denied.status, denied.header("x-ratelimit-deny-status")), (429, None));
    assert_eq!(denied.header("content-type"), Some("application/problem+json"));
    assert!(denied.header("retry-after").is_some() && denied.header("ratelimit").is_some());
    assert!(denied.body.contains("rule per-ip allows 2/d; wait "), "{}", denied.body);
    let denied = ask("GET /check?deny_status=403 HTTP/1.1");
    assert_eq!((denied.status, denied.header("x-ratelimit-deny-status")), (403, Some("429")));
    assert!(denied.header("retry-after").is_some());
    assert_eq!(ask("HEAD /check HTTP/1.1").body, "");
    for bad in ["/check?deny_status=200", "/check?cost=-1"] {
        assert_eq!(ask(&format!("GET {bad} HTTP/1.1")).status, 400, "{bad}");
    }
    let service = Service::start(RULES, &["--deny-status", "403", "--headers", "seed"]);
    for status in [200, 200, 403] {
        assert_eq!(check(&service, "GET /check HTTP/1.1", &[from]).status, status);
    }
    assert_eq!(check(&service, "GET /check?deny_status=429 HTTP/1.1", &[from]).status, 429);
}

#[test]
fn the_original_request_is_told_by_headers_parameters_or_the_path() {
    let service = Service::start(RULES, &[]);
    let status = |line: &str, headers: &[&str]| check(&service, line, headers).status;
    let writes = |from: &str, headers: &[&str], line: &str| {
        let from = format!("X-Forwarded-For: {from}");
        let headers = [&[&*from][..], headers].concat();
        [status(line, &headers), status(line, &headers)]
    };
    // The rule for writes denies the second; it is found by each of the ways.
    let forwarded = ["X-Forwarded-Method: POST", "X-Forwarded-Uri: /api/items?page=2"];
    assert_eq!(writes("198.51.100.1", &forwarded, "GET /check HTTP/1.1"), [200, 429]);
    let original = ["X-Original-Method: POST", "X-Original-URI: /api/items?page=2"];
    assert_eq!(writes("198.51.100.2", &original, "GET /check HTTP/1.1"), [200, 429]);
    let url = ["X-Original-Method: POST", "X-Original-URL: https://example.org/api/items?page=2"];
    assert_eq!(writes("198.51.100.3", &url, "GET /check HTTP/1.1"), [200, 429]);
    assert_eq!(writes("198.51.100.4", &[], "POST /check/api/items?page=2 HTTP/1.1"), [200, 429]);
    assert_eq!(writes("198.51.100.5", &[], "GET /check/api/items HTTP/1.1"), [200, 200]);
    // Attributes that the proxy adds.
    let user = ["X-RL-User-Id: 42", "X-Forwarded-For: 198.51.100.6"];
    assert_eq!([status("GET /check HTTP/1.1", &user), status("GET /check HTTP/1.1", &user)], [200, 429]);
    let gold = "GET /check?plan=gold&host=a%20b&ip=1 HTTP/1.1";
    assert_eq!([status(gold, &[]), status(gold, &[]), status(gold, &[])], [200, 200, 429], "the ip of the query");
    // Behind a path, the query is the client's and adds nothing.
    let behind = "GET /check/x?user_id=42 HTTP/1.1";
    assert_eq!(status(behind, &["X-Forwarded-For: 198.51.100.8"]), 200);
}

#[test]
fn what_a_client_makes_long_is_no_error_of_the_proxy() {
    let service = Service::start(RULES, &[]);
    let long = "x".repeat(9_000);
    let (agent, path) = (format!("User-Agent: {long}"), format!("X-Original-URI: /{long}"));
    let headers = ["X-Forwarded-For: 198.51.100.9", &agent, &path];
    for status in [200, 200, 429] {
        assert_eq!(check(&service, "GET /check HTTP/1.1", &headers).status, status);
    }
}

/// The first block in the document that begins so.
fn recipe(start: &str) -> String {
    let document = include_str!("../../../docs/http.md");
    let at = document.find(start).expect("the document has the recipe");
    let block = document[at..].split_once('\n').and_then(|(_, rest)| rest.split("```").next());
    block.expect("it ends").to_owned()
}

/// An nginx with the recipe, in front of an application that says so.
fn nginx(service: &Service) -> (Running, u16, u16) {
    nginx_with(service, &recipe("```nginx"))
}

fn nginx_with(service: &Service, recipe: &str) -> (Running, u16, u16) {
    let (front, app) = (free_port(), free_port());
    for address in ["127.0.0.1:8080", "127.0.0.1:9000"] {
        assert_eq!(recipe.matches(address).count(), 1, "{address} is in the recipe once");
    }
    let recipe = recipe
        .replace("127.0.0.1:8080", &service.http().to_string())
        .replace("127.0.0.1:9000", &format!("127.0.0.1:{app}"));
    let servers = format!(
        "server {{ listen 127.0.0.1:{front}; {recipe} }}
        server {{ listen 127.0.0.1:{app}; location / {{ return 200 'the application'; }}
                  location /api/forbidden {{ return 403 'not yours'; }} }}"
    );
    let running = support::nginx(&servers, front);
    (running, front, app)
}

/// Asks from an address of this machine, and gives the answer with its head.
fn curl(from: &str, port: u16, path: &str, more: &[&str]) -> String {
    let url = format!("http://127.0.0.1:{port}{path}");
    let mut command = Command::new("curl");
    command.args(["--silent", "--show-error", "--include", "--interface", from]).args(more).arg(url);
    printed(&command.output().expect("curl runs"))
}

#[test]
fn nginx_asks_and_tells_its_clients() {
    let service = Service::start(RULES, &[]);
    let (_nginx, port, _) = nginx(&service);
    let first = curl("127.0.0.2", port, "/api/x", &[]);
    assert!(first.starts_with("HTTP/1.1 200") && first.ends_with("the application"), "{first}");
    assert!(first.contains("RateLimit: \"per-ip\";r=1;t="), "{first}");
    assert!(first.contains("RateLimit-Policy: \"per-ip\";q=2;w=86400"), "{first}");
    curl("127.0.0.2", port, "/api/x", &[]);
    let denied = curl("127.0.0.2", port, "/api/x", &[]);
    assert!(denied.starts_with("HTTP/1.1 429"), "{denied}");
    assert!(denied.contains("Retry-After: ") && denied.contains("RateLimit: \"per-ip\";r=0;t="), "{denied}");
    assert!(denied.contains("too many requests: wait ") && !denied.contains("the application"), "{denied}");
    // Others are other clients.
    assert!(curl("127.0.0.3", port, "/api/x", &[]).starts_with("HTTP/1.1 200"));
    // A 403 of the application is its own.
    let forbidden = curl("127.0.0.4", port, "/api/forbidden", &[]);
    assert!(forbidden.starts_with("HTTP/1.1 403") && forbidden.ends_with("not yours"), "{forbidden}");
    // The original method and path are what the rules see.
    let posts = ["--data", "x=1"];
    assert!(curl("127.0.0.5", port, "/api/items?q=1", &posts).starts_with("HTTP/1.1 200"));
    assert!(curl("127.0.0.5", port, "/api/items?q=2", &posts).starts_with("HTTP/1.1 429"));
    assert!(curl("127.0.0.5", port, "/api/items", &[]).starts_with("HTTP/1.1 200"), "reading is another matter");
}

#[test]
fn nginx_lets_pass_if_it_is_to_while_the_service_is_full_or_gone() {
    let service = Service::start(RULES, &["--max-connections", "1"]);
    let addition = |start: &str| {
        let document = include_str!("../../../docs/http.md");
        document.split('`').find(|part| part.starts_with(start)).expect("the document has the addition")
    };
    let lets_pass = recipe("```nginx")
        .replace("    internal;\n", &format!("    internal;\n    {}\n", addition("proxy_intercept_errors")));
    let lets_pass = format!("{lets_pass}\n{}", addition("location = /_pass"));
    let (_nginx, port, _) = nginx_with(&service, &lets_pass);
    let (_strict, strict, _) = nginx(&service);
    let mut one_too_many = std::net::TcpStream::connect(service.http()).unwrap();
    std::io::Write::write_all(&mut one_too_many, b"GET").unwrap();
    eventually("the service is full", || curl("127.0.0.7", strict, "/api/x", &[]).starts_with("HTTP/1.1 500"));
    let passed = || {
        let answer = curl("127.0.0.7", port, "/api/x", &[]);
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("the application"), "{answer}");
    };
    passed();
    drop(service);
    passed();
}

#[test]
fn what_clients_say_about_themselves_is_not_believed_through_nginx() {
    let service = Service::start(RULES, &[]);
    let (_nginx, port, _) = nginx(&service);
    let mut statuses = Vec::new();
    for number in 0..4 {
        let lies = [
            format!("X-Forwarded-For: 198.51.100.{number}"),
            format!("Forwarded: for=198.51.100.{number}"),
            format!("X-Real-IP: 198.51.100.{number}"),
            format!("X-RL-Ip: 198.51.100.{number}"),
            format!("X-RL-Per-Ip: {number}"),
            format!("X-Forwarded-Uri: /other/{number}"),
            "X-Forwarded-Method: OPTIONS".to_owned(),
        ];
        let more: Vec<&str> = lies.iter().flat_map(|lie| ["--header", lie]).collect();
        let answer = curl("127.0.0.6", port, "/api/x?ip=9", &more);
        statuses.push(answer.split(' ').nth(1).unwrap_or_default().to_owned());
    }
    assert_eq!(statuses, ["200", "200", "429", "429"]);
}

/// An Envoy with the recipe, in front of the same application.
fn envoy(service: &Service, app: u16) -> (Running, u16) {
    let front = free_port();
    let indent =
        |text: &str, by: usize| text.lines().map(|line| format!("{}{line}\n", " ".repeat(by))).collect::<String>();
    let filters = indent(&recipe("http_filters:\n  - name: envoy.filters.http.ext_authz"), 10);
    let cluster = |name: &str, port: u16| {
        format!(
            "  - {{name: {name}, load_assignment: {{cluster_name: {name}, endpoints: [{{lb_endpoints: [{{endpoint: {{address: \
             {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}}}}}]}}]}}}}\n"
        )
    };
    let text = format!(
        "static_resources:
  listeners:
  - address: {{socket_address: {{address: 127.0.0.1, port_value: {front}}}}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          '@type': type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: front
          route_config: {{virtual_hosts: [{{name: all, domains: ['*'], routes: [{{match: {{prefix: /}}, route: {{cluster: app}}}}]}}]}}
          http_filters:
{filters}            - name: envoy.filters.http.router
              typed_config: {{'@type': type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}
  clusters:
{}{}",
        cluster("app", app),
        cluster("tollgate", service.http().port())
    );
    let file = scratch("envoy.yaml");
    std::fs::write(&file, text).unwrap();
    let mut command = Command::new(support::tool("envoy"));
    command.args(["--use-dynamic-base-id", "--concurrency", "1", "-l", "error", "-c"]).arg(&file);
    let running = Running(command.stdin(Stdio::null()).spawn().expect("Envoy starts"));
    eventually("Envoy listens", || std::net::TcpStream::connect(("127.0.0.1", front)).is_ok());
    (running, front)
}

#[test]
fn envoy_asks_by_ext_authz_and_hands_the_denial_on() {
    let service = Service::start(RULES, &[]);
    let (_nginx, _, app) = nginx(&service);
    let (_envoy, port) = envoy(&service, app);
    let post = |number: u32| {
        let lies = [format!("X-Forwarded-For: 198.51.100.{number}"), format!("X-RL-Ip: 198.51.100.{number}")];
        let more = ["--data", "x=1", "--header", &lies[0], "--header", &lies[1]];
        curl("127.0.0.9", port, &format!("/api/items?ip={number}"), &more)
    };
    let first = post(1);
    assert!(first.starts_with("HTTP/1.1 200") && first.contains("ratelimit: \"per-ip\";r=1;t="), "{first}");
    let denied = post(2);
    assert!(denied.starts_with("HTTP/1.1 429") && denied.contains("retry-after: "), "{denied}");
    assert!(denied.contains("application/problem+json") && denied.contains("rule writes allows 1/d"), "{denied}");
}
