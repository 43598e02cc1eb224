//! The service as whoever runs it meets it: rules that follow their files, switches, readiness, the end.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use quanta::Instant;
use serde_json::Value;
use support::{Answer, Service, eventually, http, scratch, within};

fn get(address: SocketAddr, path: &str) -> Answer {
    http(address, &format!("GET {path} HTTP/1.1"), "")
}

fn post(address: SocketAddr, path: &str) -> Answer {
    http(address, &format!("POST {path} HTTP/1.1"), "")
}

fn rules(service: &Service) -> Value {
    serde_json::from_str(&get(service.admin(), "/rules").body).expect("JSON")
}

fn rule(name: &str, limit: &str) -> String {
    format!("domain: d\nrules:\n  - name: {name}\n    per: user\n    limits: [{limit}]\n")
}

fn serve_paths(paths: &[&Path], args: &[&str]) -> Service {
    let paths = paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(",");
    let command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    Service::start_with(command, &[&["--rules", &paths], args].concat())
}

/// As editors do: another file, renamed over it, so that nobody meets half of it.
fn write(path: &Path, text: &str) {
    let beside = path.with_extension("new");
    std::fs::write(&beside, text).expect("a file can be written");
    std::fs::rename(&beside, path).expect("it can be renamed");
}

/// Waits for what `/rlconfig` says, and gives how long that took.
#[track_caller]
fn wait_for_rule(service: &Service, line: &str) -> Duration {
    let started = Instant::now();
    eventually(line, || get(service.admin(), "/rlconfig").body.contains(line));
    started.elapsed()
}

#[test]
fn an_edit_takes_effect_within_two_seconds() {
    let file = scratch("rules.yaml");
    write(&file, &rule("a", "1/day"));
    let service = serve_paths(&[&file], &[]);
    assert!(get(service.admin(), "/rlconfig").body.contains("d.a: 1/day"));
    // In place.
    std::fs::write(&file, rule("a", "2/day")).expect("a file can be written");
    assert!(wait_for_rule(&service, "d.a: 2/day") < Duration::from_secs(2));
    write(&file, &rule("a", "3/day"));
    assert!(wait_for_rule(&service, "d.a: 3/day") < Duration::from_secs(2));
}

#[test]
fn links_that_are_swapped_are_followed_as_kubernetes_does_it() {
    let volume = scratch("volume");
    let put = |version: &str, text: &str| {
        let directory = volume.join(version);
        std::fs::create_dir_all(&directory).expect("a directory can be made");
        write(&directory.join("rules.yaml"), text);
        let link = volume.join("..data_tmp");
        std::os::unix::fs::symlink(version, &link).expect("a link can be made");
        std::fs::rename(&link, volume.join("..data")).expect("it can be swapped");
    };
    put("..2026_1", &rule("a", "1/day"));
    std::os::unix::fs::symlink("..data/rules.yaml", volume.join("rules.yaml")).expect("a link can be made");
    let service = serve_paths(&[&volume], &[]);
    assert_eq!(rules(&service)["rules"], 1, "each file is seen once");
    put("..2026_2", &rule("a", "2/day"));
    assert!(wait_for_rule(&service, "d.a: 2/day") < Duration::from_secs(2));
}

#[test]
fn a_directory_gains_and_loses_files() {
    let first = scratch("first.yaml");
    let second = first.with_file_name("second.yaml");
    write(&first, &rule("a", "1/day"));
    let service = serve_paths(&[first.parent().expect("a directory")], &[]);
    write(&second, &rule("b", "2/day").replace("user", "device"));
    wait_for_rule(&service, "d.b: 2/day");
    std::fs::remove_file(&first).expect("it can be removed");
    eventually("a is gone", || !get(service.admin(), "/rlconfig").body.contains("d.a"));
    wait_for_rule(&service, "d.b: 2/day");
}

#[test]
fn a_bad_file_leaves_its_last_good_text_in_force_and_is_shown() {
    let good = scratch("good.yaml");
    let bad = good.with_file_name("bad.yaml");
    write(&good, &rule("a", "1/day"));
    write(&bad, &rule("b", "1/day").replace("user", "device"));
    let service = serve_paths(&[good.parent().expect("a directory")], &[]);
    write(&bad, &rule("b", "many").replace("user", "device"));
    write(&good, &rule("a", "2/day"));
    // The good one takes effect, the bad one stays as it was.
    wait_for_rule(&service, "d.a: 2/day");
    wait_for_rule(&service, "d.b: 1/day");
    let shown = get(service.admin(), "/rlconfig").body;
    assert!(shown.contains("bad.yaml is wrong; its last good text is in force"), "{shown}");
    assert!(shown.contains("bad.yaml:5:"), "line and column are named: {shown}");
    let metrics = get(service.admin(), "/metrics").body;
    assert!(metrics.contains("tollgate_bad_rule_files 1\n"), "{metrics}");
    // Both changes were seen at once, or one after the other.
    let errors = [1, 2].map(|times| format!("tollgate_rule_loads_total{{result=\"error\"}} {times}\n"));
    assert!(errors.iter().any(|line| metrics.contains(line)), "{metrics}");
    let answer = post(service.admin(), "/reload");
    assert_eq!(answer.status, 422, "{}", answer.body);
    write(&bad, &rule("b", "3/day").replace("user", "device"));
    wait_for_rule(&service, "d.b: 3/day");
    assert!(get(service.admin(), "/metrics").body.contains("tollgate_bad_rule_files 0\n"));
}

#[test]
fn a_directory_that_is_not_there_any_more_takes_no_rules_with_it() {
    let [first, second] = ["first/a.yaml", "second/b.yaml"].map(scratch);
    for (file, key) in [(&first, "x"), (&second, "y")] {
        std::fs::create_dir_all(file.parent().expect("a directory")).expect("a directory can be made");
        write(file, &rule(key, "1/day").replace("user", key));
    }
    let directory = first.parent().expect("a directory");
    let service = serve_paths(&[directory, second.parent().expect("a directory")], &[]);
    let elsewhere = directory.with_file_name("elsewhere");
    std::fs::rename(directory, &elsewhere).expect("it can be moved");
    eventually("it is noticed", || rules(&service)["bad_files"].as_array().is_some_and(|bad| bad.len() == 1));
    assert_eq!(rules(&service)["rules"], 2);
    assert_eq!(rules(&service)["bad_files"][0]["last_good_text_in_force"], true);
    // A switch works all the same, on what is in force.
    assert_eq!(post(service.admin(), "/rules/x/off").status, 200);
    assert_eq!(rules(&service)["rules"], 1);
    assert!(get(service.admin(), "/rlconfig").body.contains("# x is switched off"));
    std::fs::rename(&elsewhere, directory).expect("it can be moved back");
    eventually("it is back", || rules(&service)["bad_files"].as_array().is_some_and(Vec::is_empty));
    assert_eq!(rules(&service)["rules"], 1, "what is off stays off");
}

#[test]
fn a_file_that_cannot_be_read_keeps_its_place_among_the_others() {
    let last = scratch("z.yaml");
    let [first, middle] = ["m.yaml", "a.yaml"].map(|name| last.with_file_name(name));
    for (file, key) in [(&last, "x"), (&first, "y"), (&middle, "z")] {
        write(file, &rule(key, "1/day").replace("user", key));
    }
    // The order that was given is not that of names, and wildcards are tried in it.
    let service = serve_paths(&[&last, &first, &middle], &[]);
    let files = |service: &Service| rules(service)["files"].clone();
    let given = files(&service);
    std::fs::write(&first, [0xFF, 0xFE]).expect("it can be written");
    eventually("it is noticed", || rules(&service)["bad_files"].as_array().is_some_and(|bad| bad.len() == 1));
    assert_eq!(files(&service), given);
    assert_eq!(rules(&service)["rules"], 3);
    std::fs::remove_file(&first).expect("it can be removed");
    eventually("it is looked for", || rules(&service)["problems"].to_string().contains("no such file"));
    assert_eq!(
        (files(&service), &rules(&service)["rules"]),
        (given, &Value::from(3)),
        "a file that was named is not forgotten"
    );
}

#[test]
fn reloads_are_at_once_by_signal_and_by_call() {
    let file = scratch("rules.yaml");
    write(&file, &rule("a", "1/day"));
    let service = serve_paths(&[&file], &[]);
    write(&file, &rule("a", "2/day"));
    let answer = post(service.admin(), "/reload");
    assert_eq!(answer.status, 200);
    assert!(get(service.admin(), "/rlconfig").body.contains("d.a: 2/day"));
    // Sooner than by the next look.
    let mut limit = 2;
    within(Duration::from_millis(100), || {
        limit += 1;
        write(&file, &rule("a", &format!("{limit}/day")));
        service.signal("HUP");
        wait_for_rule(&service, &format!("d.a: {limit}/day"))
    });
}

#[test]
fn wrong_rules_are_refused_at_the_start_with_line_and_column() {
    let file = scratch("rules.yaml");
    write(&file, "domain: d\nrules:\n  - name: a\n    limits: [fast]\n");
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    let output = command.args(["serve", "--rules"]).arg(&file).output().expect("it runs");
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("rules.yaml:4:14") && said.contains("cannot be used"), "{said}");
    // Asked to, it serves all the same, and takes the rules once they are mended.
    let service = serve_paths(&[&file], &["--start-anyway", "--ready-with-rules"]);
    assert_eq!(rules(&service)["rules"], 0);
    assert_eq!(get(service.admin(), "/ready").status, 503);
    write(&file, &rule("a", "1/day"));
    wait_for_rule(&service, "d.a: 1/day");
    assert_eq!(get(service.admin(), "/ready").status, 200);
}

#[test]
fn one_rule_is_switched_off_and_on() {
    let service = Service::start(&rule("a b/c", "1/day"), &[]);
    within(Duration::from_millis(100), || {
        let started = Instant::now();
        let answer = post(service.admin(), "/rules/a%20b%2Fc/off");
        assert_eq!((answer.status, &*answer.body), (200, "a b/c is off\n"));
        started.elapsed()
    });
    assert_eq!(rules(&service)["rules"], 0);
    assert_eq!(rules(&service)["switched_off"][0], "a b/c");
    assert_eq!(post(service.admin(), "/rules/a%20b%2Fc/on").status, 200);
    assert_eq!(rules(&service)["rules"], 1);
    let answer = post(service.admin(), "/rules/other/off");
    assert_eq!(answer.status, 404);
    assert!(answer.body.contains("no rule other"));
}

#[test]
fn the_admin_port_says_what_there_is_and_refuses_strangers() {
    let service = Service::start(&rule("a", "1/day"), &[]);
    let list = get(service.admin(), "/").body;
    for path in ["/metrics", "/rlconfig", "/ready", "/off"] {
        assert!(list.contains(path), "{list}");
    }
    assert_eq!(get(service.admin(), "/nothing").status, 404);
    assert_eq!(get(service.admin(), "/off").status, 405);
    let rebound = http(service.admin(), "GET /rules HTTP/1.1\nX: y", "");
    assert_eq!(rebound.status, 200);

    let service = Service::start(&rule("a", "1/day"), &["--admin-token", "open-sesame"]);
    for path in ["/", "/metrics", "/live", "/ready", "/rlconfig", "/rules", "/stats"] {
        assert_eq!(get(service.admin(), path).status, 401, "{path}");
    }
    for path in ["/reload", "/off", "/on", "/rules/a/off", "/nothing"] {
        assert_eq!(post(service.admin(), path).status, 401, "{path}");
    }
    let with = |token: &str| http(service.admin(), &format!("GET /rules HTTP/1.1\nAuthorization: {token}"), "").status;
    assert_eq!(with("Bearer open-sesame"), 200);
    assert_eq!(with("Bearer open-sesam"), 401);
    assert_eq!(with("Basic open-sesame"), 401);
}

#[test]
fn pages_of_other_sites_switch_nothing() {
    let service = Service::start(&rule("a", "1/day"), &[]);
    for head in ["Origin: https://evil.example", "Sec-Fetch-Site: cross-site", "Origin: null"] {
        let answer = http(service.admin(), &format!("POST /off HTTP/1.1\n{head}"), "");
        assert_eq!(answer.status, 403, "{head}");
    }
    assert_eq!(rules(&service)["limiting"], true);
    assert_eq!(post(service.admin(), "/off").status, 200);
    assert_eq!(rules(&service)["limiting"], false);
    assert_eq!(post(service.admin(), "/on").status, 200);
}

#[test]
fn a_public_admin_port_needs_a_token() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    let output = command.args(["serve", "--admin", "0.0.0.0:0"]).output().expect("it runs");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("token"));
}

#[test]
fn metrics_have_a_port_of_their_own_that_changes_nothing() {
    let port = support::free_port();
    let service =
        Service::start(&rule("a", "1/day"), &["--metrics", &format!("127.0.0.1:{port}"), "--metrics-path", "/m"]);
    let metrics = SocketAddr::from(([127, 0, 0, 1], port));
    assert!(get(metrics, "/m").body.contains("tollgate_rules 1\n"));
    assert_eq!(get(metrics, "/metrics").status, 404);
    assert_eq!(post(metrics, "/off").status, 404);
    assert!(get(service.admin(), "/metrics").body.contains("tollgate_limiting 1\n"));
}

#[test]
fn flags_come_before_variables_before_the_file_before_defaults() {
    let file = scratch("tollgate.yaml");
    write(&file, "http: 127.0.0.1:1\ngrpc: 127.0.0.1:2\nresp: 127.0.0.1:3\nadmin-token: hush\n");
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    let output = command
        .args(["serve", "--print-config", "--http", "127.0.0.1:9", "--config"])
        .arg(&file)
        .env("TOLLGATE_HTTP", "127.0.0.1:8")
        .env("TOLLGATE_GRPC", "127.0.0.1:7")
        .output()
        .expect("it runs");
    let shown = String::from_utf8_lossy(&output.stdout);
    for line in [
        "http: 127.0.0.1:9  # flag",
        "grpc: 127.0.0.1:7  # variable",
        "resp: 127.0.0.1:3  # file",
        "admin: 127.0.0.1:6070  # default",
        "# admin-token: set, not shown  # file",
        "# state: not set",
    ] {
        assert!(shown.lines().any(|shown| shown == line), "{line}\n{shown}");
    }
    assert!(!shown.contains("hush"));
}

fn refused(args: &[&str], file: &str) -> String {
    let path = scratch("tollgate.yaml");
    write(&path, file);
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    let ports = ["--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--resp", "off", "--admin", "off"];
    let output = command.arg("serve").args(ports).args(args).arg("--config").arg(&path).output().expect("it runs");
    assert!(!output.status.success(), "{args:?} {file}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn encryption_that_was_asked_for_is_never_left_out() {
    for file in ["http-tls-cert: /a\n", "grpc-tls-key: /a\n", "grpc-tls-client-ca: /a\n", "http-tls-client-ca: /a\n"] {
        assert!(refused(&[], file).contains("both of them"), "{file}");
    }
    let socket = scratch("socket").display().to_string();
    let args = ["--grpc", &format!("unix:{socket}"), "--grpc-tls-cert", "/a", "--grpc-tls-key", "/b"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    let output = command.arg("serve").args(args).output().expect("it runs");
    assert!(String::from_utf8_lossy(&output.stderr).contains("not encrypted"));
}

#[test]
fn what_is_wrong_with_settings_is_told_without_their_secrets() {
    for file in ["admin-tokn: hunter2\n", "admin-token: @hunter2\n", "admin-token: [hunter2\n"] {
        let said = refused(&[], file);
        assert!(said.contains("tollgate.yaml:") && !said.contains("hunter2"), "{file}: {said}");
    }
}

#[test]
fn a_token_by_flag_comes_before_one_of_the_file() {
    let [config, token] = ["tollgate.yaml", "token"].map(scratch);
    write(&config, "admin-token: from-file\n");
    write(&token, "from-flag\n");
    let [config, token] = [config, token].map(|path| path.display().to_string());
    let service = Service::start(&rule("a", "1/day"), &["--config", &config, "--admin-token-file", &token]);
    let with =
        |token: &str| http(service.admin(), &format!("GET /rules HTTP/1.1\nAuthorization: Bearer {token}"), "").status;
    assert_eq!((with("from-flag"), with("from-file")), (200, 401));
}

#[test]
fn variables_of_the_other_server_come_before_the_file_and_its_defaults_after() {
    let config = scratch("tollgate.yaml");
    write(&config, "compat: envoy-ratelimit\nhttp: 127.0.0.1:1\ngrpc: 127.0.0.1:2\nadmin: 127.0.0.1:3\n");
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    let output = command
        .args(["serve", "--print-config", "--admin", "127.0.0.1:9", "--config"])
        .arg(&config)
        .env("GRPC_HOST", "127.0.0.1")
        .env("GRPC_PORT", "7")
        .output()
        .expect("it runs");
    let shown = String::from_utf8_lossy(&output.stdout);
    for line in [
        "http: 127.0.0.1:1  # file",
        "grpc: 127.0.0.1:7  # variable of the other server",
        "admin: 127.0.0.1:9  # flag",
        "rules: /srv/runtime_data/current/config  # default of the other server",
    ] {
        assert!(shown.lines().any(|shown| shown == line), "{line}\n{shown}");
    }
}

#[test]
fn a_mistake_in_the_file_of_settings_has_a_place() {
    for (text, said) in
        [("http: :1\nhtttp: :2\n", "tollgate.yaml:2:1"), ("workers: many\n", "many"), ("http: [", "tollgate.yaml:1")]
    {
        let file = scratch("tollgate.yaml");
        write(&file, text);
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
        let output = command.args(["serve", "--config"]).arg(&file).output().expect("it runs");
        assert!(!output.status.success());
        let shown = String::from_utf8_lossy(&output.stderr);
        assert!(shown.contains(said), "{text}: {shown}");
    }
}

#[test]
fn it_is_ready_until_it_leaves_and_then_ends_in_good_time() {
    let service = Service::start(&rule("a", "1/day"), &["--drain-delay", "500ms"]);
    assert_eq!(get(service.admin(), "/ready").status, 200);
    assert_eq!(get(service.admin(), "/live").status, 200);
    let admin = service.admin();
    let started = Instant::now();
    service.signal("TERM");
    eventually("readiness is off", || get(admin, "/ready").status == 503);
    assert_eq!(get(admin, "/live").status, 200);
    assert!(service.wait().success());
    let took = started.elapsed();
    assert!(took >= Duration::from_millis(400) && took < Duration::from_secs(5), "{took:?}");
}

#[test]
fn as_ratelimit_it_takes_the_variables_of_envoyproxy_ratelimit() {
    let directory = scratch("ratelimit/config");
    std::fs::create_dir_all(&directory).expect("a directory can be made");
    let text = "domain: d\ndescriptors:\n  - key: a\n    rate_limit: {unit: minute, requests_per_unit: 20}\n";
    write(&directory.join("basic.yaml"), text);
    let root = directory.ancestors().nth(2).expect("a directory").to_owned();
    let link = root.join("ratelimit-link").join("ratelimit");
    std::fs::create_dir_all(link.parent().expect("a directory")).expect("a directory can be made");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_tollgate"), &link).expect("a link can be made");
    let (port, grpc, debug) = (support::free_port(), support::free_port(), support::free_port());
    let mut command = Command::new(&link);
    command
        .env("RUNTIME_ROOT", &root)
        .env("RUNTIME_SUBDIRECTORY", "ratelimit")
        .env("HOST", "127.0.0.1")
        .env("PORT", port.to_string())
        .env("GRPC_HOST", "127.0.0.1")
        .env("GRPC_PORT", grpc.to_string())
        .env("DEBUG_PORT", debug.to_string())
        .env("REDIS_POOL_SIZE", "10")
        .stderr(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null());
    let mut running = support::Running(command.spawn().expect("it starts"));
    let admin = SocketAddr::from(([127, 0, 0, 1], debug));
    eventually("it listens", || std::net::TcpStream::connect(admin).is_ok());
    let shown = get(admin, "/rlconfig").body;
    assert!(
        shown.starts_with("d.a: unit=MINUTE requests_per_unit=20, shadow_mode: false, quota_mode: false\n"),
        "{shown}"
    );
    assert!(std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
    assert!(std::net::TcpStream::connect(("127.0.0.1", grpc)).is_ok());
    running.0.kill().expect("it can be ended");
    let mut said = String::new();
    std::io::Read::read_to_string(running.0.stderr.as_mut().expect("an output"), &mut said).expect("text");
    assert_eq!(said.matches("REDIS_POOL_SIZE").count(), 1, "{said}");
}
