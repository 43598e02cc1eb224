//! The gateway as clients and servers see it: real sockets on both sides.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "gateway/origin.rs"]
mod origin;
mod support;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::time::Duration;

use origin::Origin;
use quanta::Instant;
use support::{Answer, Service, eventually, http};

fn get(at: SocketAddr, path: &str) -> Answer {
    http(at, &format!("GET {path} HTTP/1.1"), "")
}

/// A gateway in front of one server, with these lines at the end of its file.
fn before(origin: &Origin, rules: &str) -> Service {
    let file = format!("routes:\n  - {{name: all, upstream: 'http://{}'}}\n{rules}", origin.address);
    Service::gateway(&file, &[])
}

/// All that comes back on a connection that says exactly this, until it is closed or nothing more comes.
fn said(at: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    // Whoever is refused may be left before it has said everything.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

/// The statuses in what came back.
fn statuses_in(answer: &str) -> Vec<&str> {
    let heads = answer.match_indices("HTTP/1.1 ").map(|(at, _)| answer.get(at + 9..at + 12).unwrap_or_default());
    heads.filter(|status| status.len() == 3 && status.bytes().all(|byte| byte.is_ascii_digit())).collect()
}

/// Figure 4-3: two of three requests of a second reach the server, the third gets 429.
#[test]
fn a3_two_requests_get_through_and_the_third_is_refused() {
    let origin = Origin::start();
    let gateway =
        before(&origin, "rules:\n  - {name: figure, per: ip, limits: [{rate: 2/d, algorithm: token_bucket}]}\n");
    let statuses: Vec<u16> = (0..3).map(|_| get(gateway.proxy(), "/").status).collect();
    assert_eq!(statuses, [200, 200, 429]);
    assert_eq!(origin.seen().len(), 2);
    let denied = get(gateway.proxy(), "/");
    assert_eq!(denied.header("content-type"), Some("application/problem+json"));
    assert!(denied.body.contains("rule figure allows 2/d"), "{}", denied.body);
    assert!(denied.header("retry-after").is_some_and(|seconds| seconds.parse::<u64>().unwrap() > 1_000));
    let plain = http(gateway.proxy(), "GET / HTTP/1.1\nAccept: text/plain", "");
    assert!(plain.body.starts_with("rule figure allows 2/d; wait "), "{}", plain.body);
}

#[test]
fn servers_are_told_who_asks_and_clients_cannot_speak_for_us() {
    let origin = Origin::start();
    let gateway = before(&origin, "");
    let head = "POST /a/b?c=%20d HTTP/1.1\nX-Forwarded-For: 6.6.6.6\nX-Real-IP: 6.6.6.6\nX_Forwarded_For: 6.6.6.6\n\
                Forwarded: for=6.6.6.6\nConnection: X-Secret\nX-Secret: 1\nTE: trailers\nX-Kept: yes";
    // The only peer that is trusted without being named is this machine, so that its word counts here.
    let answer = http(gateway.proxy(), head, "body");
    assert_eq!(answer.status, 200);
    let seen = origin.last();
    assert_eq!((&*seen.line, &*seen.body), ("POST /a/b?c=%20d HTTP/1.1", &b"body"[..]));
    assert_eq!(seen.header("host"), Some(&*origin.address.to_string()));
    assert_eq!(seen.header("x-forwarded-for"), Some("6.6.6.6, 127.0.0.1"));
    assert_eq!(seen.header("x-real-ip"), Some("6.6.6.6"));
    assert_eq!(seen.header("x-forwarded-proto"), Some("http"));
    assert_eq!(seen.header("x-forwarded-host"), Some("localhost"));
    assert_eq!(seen.header("x-forwarded-port"), Some("80"));
    assert_eq!(seen.header("content-length"), Some("4"));
    assert_eq!(seen.header("x-kept"), Some("yes"));
    for gone in ["x-secret", "te", "connection", "x_forwarded_for"] {
        assert_eq!(seen.header(gone), None, "{gone}");
    }
    let name = seen.header("x-request-id").unwrap();
    assert_eq!(answer.header("x-request-id"), Some(name));
    let named = http(gateway.proxy(), "GET / HTTP/1.1\nX-Request-Id: mine", "");
    assert_eq!((named.header("x-request-id"), origin.last().header("x-request-id")), (Some("mine"), Some("mine")));
}

/// [A4] A chain that comes from somebody who is not trusted does not change the key.
#[test]
fn a4_a_forged_chain_changes_nothing() {
    let origin = Origin::start();
    let rules = "rules:\n  - {per: ip, limits: [{rate: 2/d, algorithm: token_bucket}]}\n";
    let other = other_address();
    let file = format!("routes:\n  - {{name: all, upstream: 'http://{}'}}\n{rules}", origin.address);
    let gateway = Service::gateway(&file, &["--proxy", "0.0.0.0:0"]);
    let at = SocketAddr::new(other, gateway.proxy().port());
    let statuses: Vec<u16> =
        (0..4).map(|number| http(at, &format!("GET / HTTP/1.1\nX-Forwarded-For: 9.9.9.{number}"), "").status).collect();
    assert_eq!(statuses, [200, 200, 429, 429]);
    assert_eq!(origin.last().header("x-forwarded-for"), Some(&*other.to_string()));
}

/// Whoever is not trusted says nothing about itself in the name of a proxy, under whichever name.
#[test]
fn claims_of_somebody_who_is_not_trusted_are_left_out() {
    let origin = Origin::start();
    let file = format!("routes:\n  - {{name: all, upstream: 'http://{}'}}\n", origin.address);
    let gateway = Service::gateway(&file, &["--proxy", "0.0.0.0:0"]);
    let at = SocketAddr::new(other_address(), gateway.proxy().port());
    let head = "GET / HTTP/1.1\nX-Forwarded-For: 6.6.6.6\nX-Forwarded-Host: evil\nX-Forwarded-Proto: https\nX-Forwarded-Port: 1\n\
                X-Real-IP: 6.6.6.6\nForwarded: for=6.6.6.6\nX-Forwarded-Prefix: /evil\nX-Forwarded-User: root\n\
                X_Forwarded_Scheme: https\nX-Forwarded-Client-Cert: x\nX-Forward: kept\nX-Request-Id: of-somebody-else\n\
                X_Request_Id: of-somebody-else\nX-Request-Ids: kept";
    let answer = http(at, head, "");
    assert_eq!(answer.status, 200);
    let seen = origin.last();
    let name = seen.header("x-request-id").expect("every request has a name");
    assert!(name.len() == 16 && name.bytes().all(|digit| digit.is_ascii_hexdigit()), "{name}");
    assert_eq!(answer.header("x-request-id"), Some(name));
    for (name, value) in [
        ("x-forwarded-for", at.ip().to_string()),
        ("x-real-ip", at.ip().to_string()),
        ("x-forwarded-host", "localhost".to_owned()),
        ("x-forwarded-proto", "http".to_owned()),
        ("x-forwarded-port", "80".to_owned()),
        ("x-forward", "kept".to_owned()),
        ("x-request-ids", "kept".to_owned()),
    ] {
        assert_eq!(seen.header(name), Some(&*value), "{name}");
    }
    for gone in [
        "forwarded",
        "x-forwarded-prefix",
        "x-forwarded-user",
        "x_forwarded_scheme",
        "x-forwarded-client-cert",
        "x_request_id",
    ] {
        assert_eq!(seen.header(gone), None, "{gone}");
    }
}

/// By the address of another interface this machine is nobody special. Nothing is sent to find it out.
fn other_address() -> std::net::IpAddr {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.connect("192.0.2.1:9").expect("a machine with a network");
    let other = socket.local_addr().unwrap().ip();
    assert!(!other.is_loopback(), "{other}");
    other
}

/// [A6] By host, path and method, and 404 for what nothing is for.
#[test]
fn a6_requests_go_where_the_routes_say() {
    let origins: Vec<Origin> = (0..4).map(|_| Origin::start()).collect();
    let at = |number: usize| origins[number].address;
    let file = format!(
        "upstreams:\n  - {{name: pair, servers: ['http://{}', 'http://{}']}}\n\
         routes:\n  - {{name: api, path: /api, upstream: 'http://{}/v2', strip_path: true}}\n  \
         - {{name: host, host: '*.example.com', upstream: 'http://{}', preserve_host: true}}\n  \
         - {{name: pair, path: /pair, method: GET, upstream: pair}}\n",
        at(2),
        at(3),
        at(0),
        at(1)
    );
    let gateway = Service::gateway(&file, &[]);
    let proxy = gateway.proxy();
    assert_eq!(get(proxy, "/api/users?x=1").body, "GET /v2/users?x=1 HTTP/1.1 0");
    assert_eq!(get(proxy, "/api").body, "GET /v2 HTTP/1.1 0");
    assert_eq!(get(proxy, "/%61pi/users").body, "GET /v2/users HTTP/1.1 0");
    let answer = said(proxy, b"GET /x HTTP/1.1\r\nHost: a.example.com:80\r\nConnection: close\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(origins[1].last().header("host"), Some("a.example.com:80"));
    for _ in 0..10 {
        assert_eq!(get(proxy, "/pair").status, 200);
    }
    assert_eq!((origins[2].seen().len(), origins[3].seen().len()), (5, 5));
    let missing = get(proxy, "/apis");
    assert_eq!(missing.status, 404);
    assert!(missing.body.contains("no route"), "{}", missing.body);
    assert_eq!(http(proxy, "POST /pair HTTP/1.1", "x").status, 404);
}

#[test]
fn connections_to_servers_are_used_again() {
    let origin = Origin::start();
    let gateway = Service::gateway(
        &format!("routes:\n  - {{name: all, upstream: 'http://{}'}}\n", origin.address),
        &["--workers", "1"],
    );
    for number in 0..20 {
        assert_eq!(get(gateway.proxy(), &format!("/bytes/{}", number * 7_000)).body.len(), number * 7_000);
    }
    assert_eq!(origin.connections(), 1);
}

#[test]
fn a_connection_that_died_at_rest_costs_nobody_an_answer() {
    let origin = Origin::start();
    let gateway = before(&origin, "");
    for number in 0..10 {
        let closed = origin.closed();
        assert_eq!(get(gateway.proxy(), "/close").body, "bye");
        eventually("it is closed", || origin.closed() > closed);
        // What may not be sent twice is not; what may be is, and both are answered.
        let method = if number % 2 == 0 { "GET" } else { "POST" };
        assert_eq!(http(gateway.proxy(), &format!("{method} /x HTTP/1.1"), "").status, 200, "{number}");
    }
    assert_eq!(origin.seen().len(), 20);
}

#[test]
fn bodies_stream_both_ways_as_they_come() {
    let origin = Origin::start();
    let gateway = before(&origin, "");
    let begun = Instant::now();
    let mut stream = TcpStream::connect(gateway.proxy()).unwrap();
    stream.write_all(b"GET /drip/20 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let mut first = [0; 1 << 10];
    let mut read = 0;
    while !String::from_utf8_lossy(&first[..read]).contains("\r\n0\n") {
        read += stream.read(&mut first[read..]).unwrap();
    }
    // The last piece comes a second after the first.
    assert!(begun.elapsed() < Duration::from_millis(800), "{:?}", begun.elapsed());
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    assert!(begun.elapsed() >= Duration::from_millis(900) && rest.contains("19\n"), "{rest}");

    // A body of unknown length, in pieces, is handed on in pieces.
    let pieces = b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n";
    assert!(said(gateway.proxy(), pieces).ends_with("POST /x HTTP/1.1 11"));
    assert_eq!(
        (origin.last().header("transfer-encoding"), &*origin.last().body),
        (Some("chunked"), &b"hello world"[..])
    );
    // A large one passes.
    let large = "y".repeat(3_000_000);
    assert!(http(gateway.proxy(), "PUT /x HTTP/1.1", &large).body.ends_with(" 3000000"));
    assert_eq!(get(gateway.proxy(), "/bytes/3000000").body.len(), 3_000_000);
    assert!(get(gateway.proxy(), "/to-the-end").body.contains("until I close"));
    let head = http(gateway.proxy(), "HEAD /x HTTP/1.1", "");
    assert_eq!((head.status, &*head.body), (200, ""));
}

#[test]
fn a_websocket_becomes_a_tunnel_and_nothing_passes_before_the_server_agrees() {
    let origin = Origin::start();
    let gateway = before(&origin, "");
    let mut stream = TcpStream::connect(gateway.proxy()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream
        .write_all(b"GET /websocket HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        .unwrap();
    let mut read = String::new();
    let mut bytes = [0; 1 << 10];
    while !read.ends_with("hello") {
        let now = stream.read(&mut bytes).unwrap();
        assert!(now > 0, "{read}");
        read.push_str(std::str::from_utf8(&bytes[..now]).unwrap());
    }
    assert!(read.starts_with("HTTP/1.1 101 Switching Protocols\r\n"), "{read}");
    let read = read.to_ascii_lowercase();
    assert!(read.contains("upgrade: websocket\r\n") && read.contains("connection: upgrade\r\n"), "{read}");
    assert_eq!(origin.last().header("upgrade"), Some("websocket"));
    for _ in 0..3 {
        stream.write_all(b"ping").unwrap();
        stream.read_exact(&mut bytes[..4]).unwrap();
        assert_eq!(&bytes[..4], b"PING");
    }
}

/// A server that does not agree answers, and what came behind the request is one more request, which is decided about.
#[test]
fn what_follows_an_upgrade_that_nobody_agreed_to_is_no_tunnel() {
    let origin = Origin::start();
    let gateway = before(&origin, "rules:\n  - {name: one, per: ip, limits: [{rate: 1/d, algorithm: token_bucket}]}\n");
    let both = b"GET /x HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n\
                 GET /y HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let answer = said(gateway.proxy(), both);
    assert_eq!(statuses_in(&answer), ["200", "429"], "{answer}");
    let seen: Vec<String> = origin.seen().iter().map(|seen| seen.line.clone()).collect();
    assert_eq!(seen, ["GET /x HTTP/1.1"]);
}

#[test]
fn answers_lose_what_concerns_one_hop_and_keep_what_the_server_says_of_limits() {
    let origin = Origin::start();
    let rules = "rules:\n  - {name: ours, per: ip, limits: [{rate: 9/d, algorithm: token_bucket}]}\n";
    let gateway = before(&origin, rules);
    let answer = get(gateway.proxy(), "/headers");
    for gone in ["x-hop", "keep-alive"] {
        assert_eq!(answer.header(gone), None, "{gone}");
    }
    let all = |name: &str| -> Vec<&str> {
        answer.headers.iter().filter(|(known, _)| known == name).map(|(_, value)| value.as_str()).collect()
    };
    assert_eq!(all("x-end"), ["1", "2"]);
    assert_eq!(all("ratelimit")[0], "\"theirs\";r=1");
    assert!(all("ratelimit")[1].starts_with("\"ours\";r=8"), "{:?}", all("ratelimit"));
}

#[test]
fn a_server_that_fails_is_told_in_words() {
    let origin = Origin::start();
    let dead = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let file = format!(
        "upstreams:\n  - {{name: slow, servers: 'http://{}', timeout: 300ms}}\n\
         routes:\n  - {{name: dead, path: /dead, upstream: 'http://{dead}'}}\n  - {{name: all, upstream: slow}}\n",
        origin.address
    );
    let gateway = Service::gateway(&file, &[]);
    for (path, status, why) in [
        ("/dead", 502, "cannot be reached"),
        ("/silence", 504, "in time"),
        ("/gone", 502, "closed the connection"),
        ("/raw/SSH-2.0%0d%0a", 502, "cannot be understood"),
        ("/raw/HTTP/1.1%20200%20OK%0d%0aContent-Length:%201%0d%0aContent-Length:%202%0d%0a%0d%0aab", 502, "understood"),
        (
            "/raw/HTTP/1.1%20200%20OK%0d%0aTransfer-Encoding:%20chunked%0d%0aContent-Length:%202%0d%0a%0d%0aab",
            502,
            "understood",
        ),
        ("/raw/HTTP/1.1%20200%20OK%0d%0aTransfer-Encoding:%20gzip%0d%0a%0d%0aab", 502, "understood"),
        ("/raw/HTTP/1.1%20200%20OK%0d%0aBad%20Header:%201%0d%0a%0d%0a", 502, "understood"),
    ] {
        let answer = get(gateway.proxy(), path);
        assert_eq!(answer.status, status, "{path}: {}", answer.body);
        assert!(answer.body.contains(why), "{path}: {}", answer.body);
        assert!(!answer.body.contains("127.0.0.1"), "nothing is told about where: {}", answer.body);
    }
    // And nobody else notices.
    assert_eq!(get(gateway.proxy(), "/x").status, 200);
}

/// A route, its keys and its limits hold however its path is written: whatever a server could read as another path is
/// refused.
#[test]
fn nobody_goes_round_a_route_by_writing_its_path_differently() {
    let origin = Origin::start();
    let at = origin.address;
    let file = format!(
        "routes:\n  - {{name: admin, path: /admin, upstream: 'http://{at}', api_key: x-key}}\n  \
         - {{name: names, path: /names, upstream: 'http://{at}', encoded_slash: true}}\n  \
         - {{name: cut, path: /cut, upstream: 'http://{at}/v2', strip_path: true}}\n  \
         - {{name: send, path: '/v1/chat:send', upstream: 'http://{at}', api_key: x-key}}\n  \
         - {{name: all, upstream: 'http://{at}'}}\n\
         rules:\n  - {{name: secret, when: {{path: /secret/*}}, limits: 0/d}}\n"
    );
    let gateway = Service::gateway(&file, &[]);
    for (path, status) in [
        ("/admin/users", 401),
        ("/admin;x/users", 401),
        ("/;x/admin;y=1", 401),
        ("//admin", 401),
        ("/%61dmin", 401),
        ("/v1/chat:send", 401),
        ("/v1/chat%3Asend", 401),
        ("/v1/chat%3asen%64/x", 401),
        ("/secret/x", 429),
        ("/secre%74/%40x", 429),
        ("/secret;v=1/x", 429),
        ("/admin%2Fusers", 400),
        ("/admin%5cusers", 400),
        ("/%2fadmin", 400),
        ("/admin\\users", 400),
        ("/public/..%2fadmin", 400),
        ("/public/..;/admin", 400),
        ("/public/%2e%2e/admin", 400),
        ("/admin%00", 400),
        ("/names/..%2fadmin", 400),
        ("/names%2f", 400),
        ("/names/a%2Fb", 200),
        ("/x%2Fnames", 400),
        ("/admin%252Fusers", 200),
        ("/cut;x/a;y", 200),
    ] {
        let before = origin.seen().len();
        let answer = get(gateway.proxy(), path);
        assert_eq!(answer.status, status, "{path}: {}", answer.body);
        assert_eq!(origin.seen().len() - before, usize::from(status == 200), "{path}");
        if status == 400 {
            assert!(answer.body.contains("more than one way") || path.contains('\\'), "{path}: {}", answer.body);
        }
    }
    assert_eq!(origin.last().line, "GET /v2/a;y HTTP/1.1", "what is behind the beginning stays as it was written");
    for written in ["/names/a%2Fb;c", "/a%40b/caf%c3%a9%7C"] {
        assert_eq!(get(gateway.proxy(), written).body, format!("GET {written} HTTP/1.1 0"), "as it was written");
    }
}

#[test]
fn routes_and_rules_follow_their_file_without_a_failed_request() {
    let (one, two) = (Origin::start(), Origin::start());
    let path = support::scratch("gateway.yaml");
    let write = |origin: &Origin, extra: &str| {
        let text = format!("routes:\n  - {{name: all, upstream: 'http://{}'}}\n{extra}", origin.address);
        std::fs::write(&path, text).unwrap();
    };
    write(&one, "");
    let gateway = Service::gateway_with(&["--config", &path.display().to_string()]);
    assert_eq!(get(gateway.proxy(), "/x").status, 200);
    write(&two, "");
    eventually("the new server is asked", || {
        assert_eq!(get(gateway.proxy(), "/x").status, 200);
        !two.seen().is_empty()
    });
    // What makes no sense changes nothing.
    write(&one, "routes: again\n");
    support::pause(Duration::from_millis(800));
    let before = one.seen().len();
    assert_eq!(get(gateway.proxy(), "/x").status, 200);
    assert_eq!(one.seen().len(), before);
}

#[test]
fn what_is_wrong_with_a_file_is_told_where_it_is() {
    let path = support::scratch("gateway.yaml");
    std::fs::write(
        &path,
        "upstreams:\n  - {name: api, servers: ['ftp://x']}\nroutes:\n  - {name: a, upstream: apj, pathes: /x}\n  - {upstream: 'http://b'}\n  - {name: c, path: a}\n",
    )
    .unwrap();
    let output =
        Command::new(env!("CARGO_BIN_EXE_tollgate")).args(["gateway", "--config"]).arg(&path).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let told = String::from_utf8_lossy(&output.stderr);
    for said in [
        "gateway.yaml:2:27",
        "does not say how to speak",
        "unknown field `pathes`",
        "did you mean `paths`",
        "a route needs a name",
        "gateway.yaml:6:21",
        "`a` is no path",
    ] {
        assert!(told.contains(said), "{said}:\n{told}");
    }
}

#[test]
fn addresses_may_be_let_in_or_kept_out() {
    let origin = Origin::start();
    let at = origin.address;
    let file = format!(
        "routes:\n  - {{name: inside, path: /in, upstream: 'http://{at}', allow: 10.0.0.0/8}}\n  \
         - {{name: outside, path: /out, upstream: 'http://{at}', deny: [127.0.0.0/8, '::1']}}\n  \
         - {{name: all, upstream: 'http://{at}', allow: [127.0.0.1]}}\n"
    );
    let gateway = Service::gateway(&file, &[]);
    let statuses = ["/in", "/out", "/"].map(|path| get(gateway.proxy(), path).status);
    assert_eq!(statuses, [403, 403, 200]);
}
