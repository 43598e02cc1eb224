//! What a gateway's admin port tells people: which paths it has, which servers are up, and what is wrong with a call.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "gateway/origin.rs"]
mod origin;
mod support;

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use origin::Origin;
use support::{Running, Service, eventually, http, printed, scratch};

fn ask(service: &Service, head: &str) -> support::Answer {
    http(service.admin(), &format!("{head} HTTP/1.1"), "")
}

/// Each path that `/` lists is there, those of Kong's calls, too; a service lists none of a gateway's.
#[test]
fn the_admin_port_lists_its_paths() {
    let gateway = Service::gateway_with(&[]);
    let list = ask(&gateway, "GET /").body;
    for path in
        ["/metrics", "/rules", "/later", "/services", "/routes/NAME/plugins", "/apis", "/consumers/NAME/key-auth"]
    {
        assert!(list.contains(&format!(" {path}: ")), "{path}\n{list}");
    }
    let mut asked = 0;
    for line in list.lines() {
        let (methods, path) = line.split_once(": ").unwrap().0.rsplit_once(' ').unwrap();
        if methods.trim().starts_with("GET") && !path.contains("NAME") && !path.contains("ID") {
            assert_eq!(ask(&gateway, &format!("GET {path}")).status, 200, "{line}");
            asked += 1;
        }
    }
    assert!(asked > 12, "{list}");
    assert!(ask(&gateway, "GET /nowhere").body.ends_with(&list));
    let service = Service::start("rules: []\n", &[]);
    let list = ask(&service, "GET /").body;
    assert!(list.contains("/rlconfig") && !list.contains("/services") && !list.contains("/later"), "{list}");
}

/// A call that does not arrive, or that is too large, is told so and holds nothing.
#[test]
fn a_call_has_a_size_and_a_time() {
    let gateway = Service::gateway_with(&["--http-timeout", "1s"]);
    let mut stream = TcpStream::connect(gateway.admin()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream.write_all(b"POST /apis HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{").unwrap();
    let mut told = [0; 12];
    stream.read_exact(&mut told).unwrap();
    assert_eq!(&told, b"HTTP/1.1 408");
    assert_eq!(http(gateway.admin(), "POST /apis HTTP/1.1", &"x".repeat((1 << 20) + 1)).status, 413);
}

/// What is up of an upstream's servers: by health checks, and by what becomes of requests.
#[test]
fn metrics_say_which_servers_are_up() {
    let well = Origin::start();
    let gone = TcpListener::bind("127.0.0.1:0").unwrap();
    let dead = gone.local_addr().unwrap();
    drop(gone);
    let file = format!(
        "upstreams:\n  - {{name: shop, servers: ['http://{0}', 'http://{dead}'], health: {{path: /, every: 50ms}}}}\n\
         routes:\n  - {{name: shop, path: /shop, upstream: shop}}\n  - {{name: direct, upstream: 'http://{dead}'}}\n",
        well.address
    );
    let gateway = Service::gateway(&file, &[]);
    let up = |upstream: &str, server: std::net::SocketAddr| {
        let line = format!("tollgate_upstream_server_up{{upstream=\"{upstream}\",server=\"http://{server}\"}} ");
        let metrics = ask(&gateway, "GET /metrics").body;
        metrics.lines().find_map(|known| known.strip_prefix(&line)).map(str::to_owned)
    };
    assert_eq!(up("shop", well.address).as_deref(), Some("1"));
    eventually("a health check failed", || up("shop", dead).as_deref() == Some("0"));
    // Without a health check it is up until it has failed three times.
    assert_eq!(up("direct", dead).as_deref(), Some("1"));
    for _ in 0..3 {
        assert_eq!(http(gateway.proxy(), "GET / HTTP/1.1", "").status, 502);
    }
    assert_eq!(up("direct", dead).as_deref(), Some("0"));
    let back = Origin::at(TcpListener::bind(dead).unwrap());
    eventually("the health check succeeds", || up("shop", back.address).as_deref() == Some("1"));
}

/// A server that takes a check and says nothing keeps nobody from hearing of the next.
#[test]
fn silent_servers_delay_no_check_of_others() {
    let silent = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let [a, b, c] = silent.each_ref().map(|listener| listener.local_addr().unwrap());
    let gone = TcpListener::bind("127.0.0.1:0").unwrap();
    let dead = gone.local_addr().unwrap();
    drop(gone);
    let servers = format!("['http://{a}', 'http://{b}', 'http://{c}', 'http://{dead}']");
    let file = format!(
        "upstreams:\n  - {{name: shop, servers: {servers}, health: {{path: /, every: 50ms}}}}\n\
         routes:\n  - {{name: shop, upstream: shop}}\n"
    );
    let gateway = Service::gateway(&file, &[]);
    // Two failures are needed, and a silent server fails after two seconds: the first round of checks tells of nobody.
    let mut metrics = String::new();
    eventually("the dead one is known", || {
        metrics = ask(&gateway, "GET /metrics").body;
        metrics.contains(&format!("server=\"http://{dead}\"}} 0"))
    });
    for silent in [a, b, c] {
        assert!(metrics.contains(&format!("server=\"http://{silent}\"}} 1")), "{silent} was heard of first");
    }
}

/// `curl -d '{…}'` calls JSON a form; it is read as what it is.
#[test]
fn json_that_is_called_a_form_is_json() {
    let gateway = Service::gateway_with(&[]);
    let services = format!("http://{}/services", gateway.admin());
    let curl = |body: &str| {
        let output =
            Command::new("curl").args(["-sS", "-w", "\n%{http_code}", &services, "-d", body]).output().unwrap();
        printed(&output)
    };
    let made = curl(r#"{"name": "shop", "url": "http://127.0.0.1:9000"}"#);
    assert!(made.ends_with("201") && made.contains("\"name\":\"shop\""), "{made}");
    let refused = curl(r#"{"name": shop}"#);
    assert!(refused.ends_with("400") && refused.contains("Cannot parse JSON body"), "{refused}");
}

/// Whatever can be reached from elsewhere asks for a token, wherever its address is written, and by default leads only
/// to servers that everybody can reach.
#[test]
fn an_admin_port_for_others_has_a_token_and_leads_to_public_servers() {
    let refused = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
        command.args(["gateway", "--proxy", "127.0.0.1:0"]).args(args);
        let mut running = Running(command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap());
        eventually("it does not start", || running.0.try_wait().unwrap().is_some_and(|status| !status.success()));
        std::io::read_to_string(running.0.stderr.take().unwrap()).unwrap()
    };
    let file = scratch("gateway.yaml");
    std::fs::write(&file, "settings: {admin: '0.0.0.0:0'}\nroutes: []\n").unwrap();
    for args in [&["--admin", "0.0.0.0:0"][..], &["--admin", "[::]:0"], &["--config", &file.display().to_string()]] {
        let told = refused(args);
        assert!(told.contains("--admin-token-file"), "{args:?}: {told}");
    }
    let origin = Origin::start();
    let made = |gateway: &Service, token: &str, url: &str| {
        let body = format!("{{\"name\": \"a\", \"uris\": \"/a\", \"upstream_url\": \"{url}\"}}");
        let head = format!("POST /apis HTTP/1.1\nContent-Type: application/json{token}");
        let admin = (std::net::Ipv4Addr::LOCALHOST, gateway.admin().port());
        http(admin.into(), &head, &body).status
    };
    let (none, right) = ("", "\nAuthorization: Bearer let-me-in");
    let (here, private) = (format!("http://{}/", origin.address), "http://10.0.0.1/");
    let open = ["--admin", "0.0.0.0:0", "--admin-token", "let-me-in"];
    let public = Service::gateway_with(&open);
    assert_eq!(made(&public, none, "http://203.0.113.1/"), 401);
    assert_eq!([made(&public, right, &here), made(&public, right, private)], [400, 400]);
    assert_eq!(made(&public, right, "http://203.0.113.1/"), 201);
    let named = Service::gateway_with(&[&open[..], &["--admin-upstreams", "loopback"]].concat());
    assert_eq!([made(&named, right, private), made(&named, right, &here)], [400, 201]);
    assert_eq!(http(named.proxy(), "GET /a HTTP/1.1", "").status, 200);
    assert_eq!(origin.seen().len(), 1);
}

/// What to try is told to those who have no routes, from wherever they would come.
#[test]
fn only_a_gateway_without_routes_says_that_it_has_none() {
    let data = scratch("data");
    let printed_at_start = || {
        let path = scratch("stdout");
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
        command.args(["gateway", "--proxy", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--data"]).arg(&data);
        let out = std::fs::File::create(&path).unwrap();
        let log = std::fs::File::create(path.with_extension("log")).unwrap();
        let mut process = command.stdout(out).stderr(log).spawn().unwrap();
        let logged = || std::fs::read_to_string(path.with_extension("log")).unwrap_or_default();
        eventually("it serves", || logged().contains("serving"));
        process.kill().unwrap();
        process.wait().unwrap();
        std::fs::read_to_string(&path).unwrap()
    };
    assert!(printed_at_start().contains("It has no routes yet"));
    let gateway = Service::gateway_with(&["--data", &data.display().to_string()]);
    let api = r#"{"name": "a", "uris": "/a", "upstream_url": "http://127.0.0.1:9/"}"#;
    let made = http(gateway.admin(), "POST /apis HTTP/1.1\nContent-Type: application/json", api);
    assert_eq!(made.status, 201, "{}", made.body);
    drop(gateway);
    let printed = printed_at_start();
    assert!(printed.contains("proxy") && !printed.contains("no routes"), "{printed}");
}

/// What becomes of an API at a place where its server must not be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// The call is refused: the address is there to see.
    Refused,
    /// A name, or what only the system takes for an address: whoever asks gets 502, and nothing was connected to.
    Unreached,
}

/// Makes an API for each host, and says what became of it.
fn fates(gateway: &Service, port: u16, log: &std::path::Path, hosts: &[(&str, Fate)]) {
    use Fate::{Refused, Unreached};
    for (number, (host, expected)) in hosts.iter().enumerate() {
        let body = format!(r#"{{"name": "a{number}", "uris": "/a{number}", "upstream_url": "http://{host}:{port}/"}}"#);
        let made = http(gateway.admin(), "POST /apis HTTP/1.1\nContent-Type: application/json", &body);
        let fate = match made.status {
            400 if made.body.contains("--admin-upstreams") => Refused,
            201 => Unreached,
            _ => panic!("{host}: {} {}", made.status, made.body),
        };
        assert_eq!(fate, *expected, "{host}: {}", made.body);
        if fate == Unreached {
            let answer = http(gateway.proxy(), &format!("GET /a{number} HTTP/1.1"), "");
            assert_eq!(answer.status, 502, "{host}");
            assert!(!answer.body.contains("127.0.0.1") && !answer.body.contains("169.254"), "{}", answer.body);
            let line = format!("\"path\":\"/a{number}\"");
            eventually("it is in the log", || {
                let written = std::fs::read_to_string(log).unwrap_or_default();
                written.lines().any(|entry| entry.contains(&line) && entry.contains("not within the networks"))
            });
        }
    }
}

/// However an address is written, and whatever a name leads to: whoever may reach the admin port reaches nothing by it
/// that the operator did not allow.
#[test]
fn no_spelling_of_an_address_reaches_what_is_not_allowed() {
    use Fate::{Refused, Unreached};
    let link = [
        ("169.254.169.254", Refused),
        ("[fe80::1]", Refused),
        ("[::ffff:169.254.169.254]", Refused),
        ("[::ffff:a9fe:a9fe]", Refused),
        ("[0:0:0:0:0:ffff:a9fe:a9fe]", Refused),
        ("[::169.254.169.254]", Refused),
        ("[64:ff9b::a9fe:a9fe]", Refused),
        ("[64:ff9b::169.254.169.254]", Refused),
        ("[2002:a9fe:a9fe::]", Refused),
        ("[fd00:ec2::254]", Refused),
        ("100.100.100.200", Refused),
        ("[64:ff9b::100.100.100.200]", Refused),
        ("192.0.0.192", Refused),
        ("0.0.0.0", Refused),
        ("[::]", Refused),
        ("255.255.255.255", Refused),
        ("224.0.0.1", Refused),
        ("2852039166", Unreached),
        ("0xa9fea9fe", Unreached),
        ("0251.0376.0251.0376", Unreached),
        ("169.254.43518", Unreached),
        ("0xa9.0xfe.43518", Unreached),
        ("0", Unreached),
    ];
    let machine = [
        ("127.0.0.1", Refused),
        ("127.255.255.254", Refused),
        ("[::1]", Refused),
        ("[::ffff:127.0.0.1]", Refused),
        ("[::127.0.0.1]", Refused),
        ("[64:ff9b::7f00:1]", Refused),
        ("[2002:7f00:1::]", Refused),
        ("10.0.0.1", Refused),
        ("[64:ff9b::10.0.0.1]", Refused),
        ("[fec0::1]", Refused),
        ("localhost", Unreached),
        ("LocalHost", Unreached),
        ("127.1", Unreached),
        ("2130706433", Unreached),
        ("0x7f000001", Unreached),
        ("0177.0.0.1", Unreached),
        ("017700000001", Unreached),
    ];
    let origin = Origin::start();
    let port = origin.address.port();
    for (places, hosts) in [("public", [&link[..], &machine[..]].concat()), ("public,private,loopback", link.to_vec())]
    {
        let log = scratch("places.log");
        let gateway = Service::gateway_with(&["--admin-upstreams", places, "--access-log", &log.display().to_string()]);
        fates(&gateway, port, &log, &hosts);
    }
    assert!(origin.seen().is_empty(), "nothing arrived");
}
