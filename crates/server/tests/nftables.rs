//! What `tollgate nftables` prints, and that the kernel takes it.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// Rules of as many domains, since two for the same keys would be in each other's way.
const RULES: &str = "\
per-address, per: ip, limits: [100/s, {rate: 500/3h, algorithm: sliding_log}, 1MiB/s]
networks, per: {key: ip, v4: 24, v6: 56}, limits: {rate: 1000/min, burst: 50, algorithm: token_bucket}
paths, when: {path: /login}, per: ip, limits: 5/min
all, limits: 10000/s
slots, per: ip, limits: {concurrency: 10}
waits, per: ip, limits: {rate: 5/s, on_limit: {delay: 2s}}
soft, per: ip, limits: {rate: 7/s, soft: {overage: 1, for: 5s}}
shadow, per: ip, limits: 3/s, mode: shadow
months, per: ip, limits: 10/month
queue, per: ip, limits: {rate: 20/s, algorithm: leaky_bucket, queue: 9}
unless, per: ip/64, unless: {path: /health}, limits: 8/s
partners, per: ip/64, unless: {ip: 198.51.100.7}, limits: {rate: 7/13min, algorithm: fixed_window}
connections, per: ip, limits: [{rate: 9/s, counts: connections}, {concurrency: 30, counts: connections}]
any, per: ip, limits: 40/s}, {name: some, when: {ip: [203.0.113.0/24, 10.1.0.0/16]}, limits: unlimited
others, per: ip, limits: 41/s}, {name: none, when: {ip: {not: 203.0.113.0/24}}, limits: 10/s
";

fn ruleset(rules: &str, args: &[&str]) -> String {
    let file = support::scratch("rules.yaml");
    let folder = file.parent().unwrap();
    let exempt = "exempt: {ip: [10.0.0.0/8, '2001:db8:9::/48']}";
    for (number, rule) in rules.lines().enumerate() {
        let text = format!("domain: d{number}\n{exempt}\nrules: [{{name: {rule}}}]\n");
        std::fs::write(folder.join(format!("{number:02}.yaml")), text).unwrap();
    }
    std::fs::write(&file, "rules: []\n").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    support::printed(&command.arg("nftables").arg(folder).args(args).output().unwrap())
}

/// Runs `nft` in a network of its own, where nothing of this machine can change.
fn nft(args: &[&str], input: &str) -> (bool, String) {
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--net", "nft"]).args(args);
    command.env("PATH", format!("{}:/usr/sbin", std::env::var("PATH").unwrap_or_default()));
    let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("unshare runs");
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn c10_the_kernel_takes_what_is_printed() {
    let all = &[
        "--ports",
        "80,443",
        "--except",
        "192.0.2.0/24,2001:db8::1",
        "--max-connections-per-address",
        "50",
        "--connection-rate",
        "20/s",
    ];
    for (rules, args) in [(RULES, &all[..]), (RULES, &[]), ("", &[])] {
        let printed = ruleset(rules, args);
        // Twice, as it is when it is loaded again.
        let (is_taken, why) = nft(&["-c", "-f", "-"], &format!("{printed}\n{printed}"));
        assert!(is_taken, "{why}\n{printed}");
    }
    // What it would not take, to know that it looks.
    let (is_taken, why) = nft(&["-c", "-f", "-"], &ruleset(RULES, &[]).replace("limit rate over", "limit rote over"));
    assert!(!is_taken && why.contains("syntax error"), "{why}");
}

#[test]
fn c10_the_ruleset_is_stable_and_names_what_it_leaves_out() {
    let args = [
        "--ports",
        "80,443",
        "--except",
        "192.0.2.0/24",
        "--max-connections-per-address",
        "50",
        "--connection-rate",
        "20/s",
    ];
    let printed = ruleset(RULES, &args);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/nftables.txt");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &printed).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(printed == golden, "if that is meant, run once with UPDATE_GOLDEN=1\n{printed}");
}

#[test]
fn rules_that_are_wrong_make_no_ruleset() {
    let file = support::scratch("rules.yaml");
    std::fs::write(&file, "rules: [{limits: 5}]").unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_tollgate")).arg("nftables").arg(&file).output().unwrap();
    assert!(!output.status.success() && output.stdout.is_empty());
    assert!(String::from_utf8_lossy(&output.stderr).contains("error"));
}

/// Proxies that the gateway trusts by the same file come for others: nothing is refused from them.
#[test]
fn trusted_proxies_of_the_file_are_let_through() {
    let file = support::scratch("gateway.yaml");
    let text = "settings: {trusted-proxies: [192.0.2.7, 'fd00::/8']}\nrules: [{name: r, per: ip, limits: 5/s}]\n";
    std::fs::write(&file, text).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    let printed = support::printed(&command.arg("nftables").arg(&file).output().unwrap());
    assert!(
        printed.contains("ip saddr { 192.0.2.7/32 } accept") || printed.contains("ip saddr { 192.0.2.7 } accept"),
        "{printed}"
    );
    assert!(printed.contains("ip6 saddr { fd00::/8 } accept"), "{printed}");
}
