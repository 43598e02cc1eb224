//! Addresses that go on and on are handed to the kernel: by a program that writes down what it is told, and by the real
//! one.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "gateway/origin.rs"]
mod origin;
mod support;

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use origin::Origin;
use support::{Service, eventually, http, printed, scratch};

/// A program in place of `nft`, and the file that it writes its arguments to.
fn recorder(exit: u8) -> (String, std::path::PathBuf) {
    let (program, told) = (scratch("nft"), scratch("told"));
    std::fs::write(&program, format!("#!/bin/sh\necho \"$@\" >> {}\nexit {exit}\n", told.display())).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    (program.display().to_string(), told)
}

fn gateway(origin: &Origin, nft: &str) -> Service {
    let file = format!(
        "routes:\n  - {{name: all, upstream: 'http://{}'}}\nrules:\n  \
         - {{name: r, per: ip, limits: {{rate: 2/d, algorithm: token_bucket}}}}\n",
        origin.address
    );
    Service::gateway(&file, &["--proxy", "0.0.0.0:0", "--ban-after", "5", "--ban-for", "90s", "--nft", nft])
}

fn statuses(at: SocketAddr, number: usize) -> Vec<u16> {
    (0..number).map(|_| http(at, "GET / HTTP/1.1", "").status).collect()
}

/// By the address of another interface this machine is nobody special. Nothing is sent to find it out.
fn other(gateway: &Service) -> SocketAddr {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.connect("192.0.2.1:9").expect("a machine with a network");
    SocketAddr::new(socket.local_addr().unwrap().ip(), gateway.proxy().port())
}

fn bans(gateway: &Service, result: &str) -> bool {
    let text = http(gateway.admin(), "GET /metrics HTTP/1.1", "").body;
    text.contains(&format!("tollgate_bans_total{{result=\"{result}\"}} 1\n"))
}

/// [C10] Five denials within a minute are enough, and the kernel is told once.
#[test]
fn c10_whoever_goes_on_is_handed_to_the_kernel() {
    let origin = Origin::start();
    let (nft, told) = recorder(0);
    let gateway = gateway(&origin, &nft);
    let at = other(&gateway);
    assert_eq!(statuses(at, 6), [200, 200, 429, 429, 429, 429]);
    // This machine is denied as often as it likes.
    let local = SocketAddr::new([127, 0, 0, 1].into(), at.port());
    assert_eq!(statuses(local, 20)[2..], [429; 18]);
    assert_eq!(statuses(at, 1), [429]);
    eventually("the kernel is told", || bans(&gateway, "done"));
    let expected = format!("add element inet tollgate offenders {{ {}/32 timeout 90s }}\n", at.ip());
    assert_eq!(std::fs::read_to_string(&told).unwrap(), expected);
}

/// Whoever finds no room where requests are kept is denied like anybody else.
#[test]
fn whoever_fills_what_is_kept_is_handed_to_the_kernel() {
    let origin = Origin::start();
    let (nft, _) = recorder(0);
    let file = format!(
        "routes:\n  - {{name: all, upstream: 'http://{}', later: {{most_waiting: 1}}}}\nrules:\n  \
         - {{name: r, per: ip, limits: {{rate: 1/d, algorithm: token_bucket, on_limit: enqueue}}}}\n",
        origin.address
    );
    let args = ["--proxy", "0.0.0.0:0", "--ban-after", "5", "--ban-for", "90s", "--nft", &nft];
    let gateway = Service::gateway(&file, &args);
    assert_eq!(statuses(other(&gateway), 7), [200, 202, 429, 429, 429, 429, 429]);
    eventually("the kernel is told", || bans(&gateway, "done"));
}

/// A kernel that cannot be told changes nothing for anybody else.
#[test]
fn a_kernel_that_cannot_be_told_is_no_harm() {
    let origin = Origin::start();
    for nft in [recorder(1).0, "/nowhere/nft".to_owned()] {
        let gateway = gateway(&origin, &nft);
        statuses(other(&gateway), 7);
        eventually("it was tried", || bans(&gateway, "failed"));
        assert_eq!(statuses(other(&gateway), 1), [429]);
    }
}

/// [C10] The real thing, in a network of its own: the ruleset is loaded, the client is dropped, and heard again when
/// its time is over.
#[test]
fn c10_the_kernel_drops_whoever_goes_on() {
    let (file, folder) = (scratch("gateway.yaml"), scratch("drops"));
    let text = "routes:\n  - {name: all, upstream: 'http://127.0.0.1:9000'}\nrules:\n  \
                - {name: r, per: ip, limits: {rate: 2/d, algorithm: token_bucket, burst: 1000}}\n  \
                - {name: s, when: {method: GET}, per: ip, limits: {rate: 2/d, algorithm: token_bucket}}\n";
    std::fs::write(&file, text).unwrap();
    std::fs::create_dir_all(&folder).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/gateway/drops.sh");
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--net", "bash"]).arg(script);
    let output = command.arg(env!("CARGO_BIN_EXE_tollgate")).arg(&file).arg(&folder).output().unwrap();
    let said = printed(&output);
    let log = std::fs::read_to_string(folder.join("log")).unwrap_or_default();
    assert_eq!(said, "200 200 429 429 429 429 000\ndropped\n429\n429\n", "{log}");
}
