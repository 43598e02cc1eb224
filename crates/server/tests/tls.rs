//! Encryption: certificates, clients that need one, and certificates that change while the service runs.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

use support::{Service, eventually, printed, python, scratch};

const RULES: &str = "domain: d\ndescriptors:\n  - key: a\n    rate_limit: {unit: day, requests_per_unit: 1}\n";

/// An authority and what it vouches for, made by openssl.
struct Authority {
    directory: PathBuf,
}

impl Authority {
    fn new() -> Self {
        let directory = scratch("ca.pem").parent().expect("a directory").to_owned();
        let authority = Self { directory };
        authority.openssl(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=authority \
             -keyout ca.key -out ca.pem -addext basicConstraints=critical,CA:TRUE",
        );
        authority
    }

    fn openssl(&self, args: &str) -> String {
        let output = Command::new("openssl").args(args.split_whitespace()).current_dir(&self.directory).output();
        printed(&output.expect("openssl runs"))
    }

    /// Writes `name.pem` and `name.key` for a subject that is also called `dns`.
    fn vouch(&self, name: &str, dns: &str) {
        let extension = format!("subjectAltName=DNS:{dns},IP:127.0.0.1\n");
        std::fs::write(self.directory.join("ext"), extension).expect("a file can be written");
        self.openssl(&format!(
            "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN={dns} -keyout {name}.key.new -out {name}.csr"
        ));
        self.openssl(&format!(
            "x509 -req -days 2 -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -extfile ext -out {name}.pem.new"
        ));
        for end in ["pem", "key"] {
            let new = self.directory.join(format!("{name}.{end}.new"));
            std::fs::rename(&new, self.path(&format!("{name}.{end}"))).expect("it can be renamed");
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn serve(&self, args: &[&str]) -> Service {
        let path = |name: &str| self.path(name).display().to_string();
        let (certificate, key) = (path("server.pem"), path("server.key"));
        let tls = [
            "--http-tls-cert",
            &certificate,
            "--http-tls-key",
            &key,
            "--grpc-tls-cert",
            &certificate,
            "--grpc-tls-key",
            &key,
        ];
        Service::start(RULES, &[&tls[..], args].concat())
    }

    /// The status of `/ready` over HTTPS, or what curl says is wrong.
    fn ready(&self, service: &Service, client: Option<&str>) -> Result<String, String> {
        let mut curl = Command::new("curl");
        curl.args(["-sS", "--max-time", "5", "-o", "/dev/null", "-w", "%{http_code} %{http_version}", "--cacert"]);
        curl.arg(self.path("ca.pem")).arg(format!("https://{}/ready", service.http()));
        if let Some(client) = client {
            curl.arg("--cert").arg(self.path(&format!("{client}.pem")));
            curl.arg("--key").arg(self.path(&format!("{client}.key")));
        }
        let output = curl.output().expect("curl runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }

    /// What gRPC health says, asked by Python.
    fn health(&self, service: &Service, client: Option<&str>) -> String {
        let script = r#"
import sys, grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
read = lambda path: open(path, "rb").read() if path else None
address, ca, certificate, key = sys.argv[1:5]
credentials = grpc.ssl_channel_credentials(read(ca), read(key), read(certificate))
with grpc.secure_channel(address, credentials) as channel:
    try:
        asked = health_pb2.HealthCheckRequest(service="ratelimit")
        print(health_pb2_grpc.HealthStub(channel).Check(asked, timeout=5).status)
    except grpc.RpcError as error:
        print(error.code().name)
"#;
        let file = |end: &str| client.map(|name| path_text(&self.path(&format!("{name}.{end}")))).unwrap_or_default();
        let address = service.grpc().to_string();
        python(script, &[&address, &path_text(&self.path("ca.pem")), &file("pem"), &file("key")]).trim().to_owned()
    }
}

fn path_text(path: &Path) -> String {
    path.display().to_string()
}

#[test]
fn http_and_grpc_are_encrypted_and_http2_is_agreed_on() {
    let authority = Authority::new();
    authority.vouch("server", "localhost");
    let service = authority.serve(&[]);
    assert_eq!(authority.ready(&service, None), Ok("200 2".to_owned()));
    assert_eq!(authority.health(&service, None), "1");
    // Who does not speak TLS gets nothing, and harms nobody.
    let mut plain = std::net::TcpStream::connect(service.http()).expect("it listens");
    std::io::Write::write_all(&mut plain, b"GET /ready HTTP/1.1\r\nHost: a\r\n\r\n").expect("it reads");
    let mut answer = Vec::new();
    let _ = std::io::Read::read_to_end(&mut plain, &mut answer);
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    assert_eq!(authority.ready(&service, None), Ok("200 2".to_owned()));
}

#[test]
fn clients_need_a_certificate_if_that_is_asked_for() {
    let authority = Authority::new();
    for (name, dns) in [("server", "localhost"), ("envoy", "envoy.mesh"), ("other", "other.mesh")] {
        authority.vouch(name, dns);
    }
    let ca = path_text(&authority.path("ca.pem"));
    let args = ["--http-tls-client-ca", &ca, "--grpc-tls-client-ca", &ca, "--grpc-tls-client-san", "envoy.mesh"];
    let service = authority.serve(&args);
    assert!(authority.ready(&service, None).is_err());
    assert_eq!(authority.ready(&service, Some("other")), Ok("200 2".to_owned()));
    assert_eq!(authority.health(&service, None), "UNAVAILABLE");
    assert_eq!(authority.health(&service, Some("other")), "UNAVAILABLE", "a certificate for another name");
    assert_eq!(authority.health(&service, Some("envoy")), "1");
    let stranger = Authority::new();
    stranger.vouch("envoy", "envoy.mesh");
    std::fs::copy(stranger.path("envoy.pem"), authority.path("stranger.pem")).expect("a copy");
    std::fs::copy(stranger.path("envoy.key"), authority.path("stranger.key")).expect("a copy");
    assert!(authority.ready(&service, Some("stranger")).is_err(), "another authority's word");
}

#[test]
fn a_new_certificate_is_used_without_a_restart_and_a_bad_one_is_not() {
    let authority = Authority::new();
    authority.vouch("server", "localhost");
    let service = authority.serve(&[]);
    let address = service.http().to_string();
    let serial = || {
        let script = "import ssl, sys\nhost, port = sys.argv[1].split(':')\nprint(ssl.get_server_certificate((host, int(port))))";
        python(script, &[&address])
    };
    let first = serial();
    std::fs::write(authority.path("server.pem"), "no certificate").expect("it can be written");
    // Long enough to be looked at; nothing changes.
    support::pause(std::time::Duration::from_millis(1_500));
    assert_eq!(serial(), first);
    authority.vouch("server", "localhost");
    eventually("the new certificate is shown", || serial() != first);
    assert_eq!(authority.ready(&service, None), Ok("200 2".to_owned()));
}

#[test]
fn files_that_do_not_fit_are_refused_at_the_start() {
    let authority = Authority::new();
    authority.vouch("server", "localhost");
    authority.vouch("other", "localhost");
    let start = |certificate: &str, key: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
        command.args(["serve", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--resp", "off", "--admin", "off"]);
        command.arg("--http-tls-cert").arg(authority.path(certificate)).arg("--http-tls-key").arg(authority.path(key));
        let output = command.output().expect("it runs");
        assert_eq!(output.status.code(), Some(1), "{certificate} {key}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(start("server.pem", "other.key").contains("do not fit together"));
    assert!(start("missing.pem", "server.key").contains("missing.pem"));
    assert!(start("server.key", "server.key").contains("no certificate"));
    assert!(start("server.pem", "server.pem").contains("no private key"));
}

/// Two gateways: one is encrypted for clients, and asks the other, which is encrypted as well, as its server.
#[test]
fn the_gateway_is_encrypted_on_both_sides_and_believes_only_whom_it_should() {
    let authority = Authority::new();
    authority.vouch("server", "localhost");
    let path = |name: &str| path_text(&authority.path(name));
    let tls = ["--proxy-tls-cert", &path("server.pem"), "--proxy-tls-key", &path("server.key")];
    let behind = Service::gateway("routes: []\n", &tls);
    let port = behind.proxy().port();
    let file = |ca: &str| {
        let upstream = format!("{{name: u, servers: ['https://localhost:{port}'], ca: '{}'}}", path(ca));
        format!("upstreams: [{upstream}]\nroutes: [{{name: all, upstream: u}}]\n")
    };
    let front = Service::gateway(&file("ca.pem"), &tls);
    let ask = |service: &Service, version: &str| {
        let mut curl = Command::new("curl");
        curl.args(["-sS", "--max-time", "5", version, "-w", " %{http_code} %{http_version}", "--cacert"]);
        curl.arg(authority.path("ca.pem")).arg(format!("https://{}/x", service.proxy()));
        printed(&curl.output().expect("curl runs"))
    };
    for (flag, version) in [("--http2", "2"), ("--http1.1", "1.1")] {
        // What the one behind says, who has no routes.
        let told = ask(&front, flag);
        assert!(told.contains("there is no route") && told.ends_with(&format!(" 404 {version}")), "{told}");
    }
    // A server whom somebody else vouches for is not asked.
    let other = Authority::new();
    std::fs::copy(other.path("ca.pem"), authority.path("other.pem")).expect("it can be copied");
    let wary = Service::gateway(&file("other.pem"), &tls);
    assert!(ask(&wary, "--http2").ends_with(" 502 2"));
    // A new certificate is used without a restart.
    authority.vouch("server", "elsewhere");
    let subject = || {
        let script = format!("openssl s_client -connect {} </dev/null 2>/dev/null", front.proxy());
        printed(&Command::new("sh").args(["-c", &script]).output().expect("sh runs"))
    };
    eventually("the new certificate is shown", || subject().contains("CN = elsewhere"));
}

/// A file of certificates that says something else is read again; one that says nothing is told of, and changes
/// nothing.
#[test]
fn whom_servers_are_believed_by_follows_its_file() {
    let authority = Authority::new();
    authority.vouch("server", "localhost");
    let path = |name: &str| path_text(&authority.path(name));
    let tls = ["--proxy-tls-cert", &path("server.pem"), "--proxy-tls-key", &path("server.key")];
    let behind = Service::gateway("routes: []\n", &tls);
    let other = Authority::new();
    std::fs::copy(other.path("ca.pem"), authority.path("believed.pem")).expect("it can be copied");
    let (config, port) = (scratch("gateway.yaml"), behind.proxy().port());
    let write = |ca: &str, route: &str| {
        let upstream = format!("{{name: u, servers: ['https://localhost:{port}'], ca: '{}'}}", path(ca));
        let file = format!("upstreams: [{upstream}]\nroutes: [{{name: {route}, upstream: u}}]\n");
        std::fs::write(&config, file).expect("a file can be written");
    };
    write("believed.pem", "one");
    let front = Service::gateway_with(&["--config", &path_text(&config)]);
    let ask = || support::http(front.proxy(), "GET /x HTTP/1.1", "").status;
    assert_eq!(ask(), 502, "somebody else vouches for it");
    std::fs::copy(authority.path("ca.pem"), authority.path("believed.pem")).expect("it can be copied");
    eventually("the new authority is believed", || ask() == 404);
    // What is no certificate is not put in force.
    std::fs::write(authority.path("empty.pem"), "").expect("a file can be written");
    for ca in ["empty.pem", "missing.pem"] {
        write(ca, "two");
        let told = support::http(front.admin(), "POST /reload HTTP/1.1", "");
        assert_ne!(told.status, 200, "{ca}: {}", told.body);
        let rules = support::http(front.admin(), "GET /rules HTTP/1.1", "").body;
        assert!(rules.contains("its `ca` cannot be used"), "{rules}");
        assert_eq!(ask(), 404, "{ca}: what was in force stays");
        let mut check = Command::new(env!("CARGO_BIN_EXE_tollgate"));
        let output = check.arg("check").arg(&config).output().expect("it runs");
        let said = [output.stdout, output.stderr].concat();
        assert!(!output.status.success() && String::from_utf8_lossy(&said).contains("its `ca` cannot be used"));
    }
}

/// A client that asks nothing more is told so before its connection is closed: else it cannot tell that from one that
/// was cut.
#[test]
fn the_end_of_an_idle_connection_is_announced() {
    let authority = Authority::new();
    authority.vouch("server", "localhost");
    let service = authority.serve(&["--http-timeout", "1s"]);
    let script = r#"
import socket, ssl, sys
host, port = sys.argv[1].rsplit(":", 1)
context = ssl.create_default_context(cafile=sys.argv[2])
stream = context.wrap_socket(socket.create_connection((host, int(port)), 10), server_hostname="localhost", suppress_ragged_eofs=False)
stream.sendall(b"GET /ready HTTP/1.1\r\nHost: a\r\n\r\n")
heard = b""
while more := stream.recv(4096):
    heard += more
print(heard.split(b"\r\n")[0].decode())
"#;
    let heard = python(script, &[&service.http().to_string(), &path_text(&authority.path("ca.pem"))]);
    assert_eq!(heard.trim(), "HTTP/1.1 200 OK");
}
