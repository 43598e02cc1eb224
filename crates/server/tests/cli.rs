//! The binary as a visitor meets it: its output against golden files, its exit codes, its manners with pipes.
//!
//! After a deliberate change of output, run the tests once with `UPDATE_GOLDEN=1` and read the difference.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Runs the binary with a known terminal: 80 columns and UTF-8, whatever the tests run in.
fn tollgate(args: &[&str]) -> Output {
    command(args).output().expect("the binary runs")
}

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command.args(args).env_clear().env("COLUMNS", "80").env("LC_ALL", "C.UTF-8");
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

fn assert_golden(name: &str, actual: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, actual).expect("golden file can be written");
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default().replace("\r\n", "\n");
    let differing = expected.lines().zip(actual.lines()).position(|(expected, actual)| expected != actual);
    let line = differing.unwrap_or_else(|| expected.lines().count().min(actual.lines().count())) + 1;
    assert!(
        expected == actual,
        "output differs from tests/golden/{name} at line {line}. If that is meant, run once with UPDATE_GOLDEN=1.\n{actual}"
    );
}

#[test]
fn the_demonstration_is_drawn() {
    let output = tollgate(&["demo"]);
    assert!(output.status.success());
    assert_eq!(text(&output.stderr), "");
    assert_golden("demo.txt", &text(&output.stdout));
}

#[test]
fn without_arguments_it_serves_an_example_and_says_what_to_try() {
    let mut command = command(&[]);
    for port in ["GRPC", "HTTP", "RESP", "ADMIN"] {
        command.env(format!("TOLLGATE_{port}"), "127.0.0.1:0");
    }
    let mut serving = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the binary runs");
    let lines = BufReader::new(serving.stdout.take().expect("it has an output")).lines();
    let mut said = String::new();
    for line in lines {
        said.push_str(&line.expect("text"));
        said.push('\n');
        if said.contains("cluster_name: tollgate") {
            break;
        }
    }
    serving.kill().expect("it can be ended");
    serving.wait().expect("it ends");
    for part in ["is serving", "curl -i http://127.0.0.1:", "redis-cli -h 127.0.0.1", "envoy.filters.http.ratelimit"] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
fn an_ascii_locale_gets_ascii() {
    let output = command(&["demo", "4-9"]).env("LC_ALL", "C").output().expect("the binary runs");
    assert_golden("demo-4-9-ascii.txt", &text(&output.stdout));
    assert_eq!(tollgate(&["demo", "4-9", "--ascii"]).stdout, output.stdout);
}

#[test]
fn colours_can_be_asked_for() {
    assert!(!text(&tollgate(&["demo", "4-9"]).stdout).contains('\x1b'));
    assert!(text(&tollgate(&["demo", "4-9", "--color=always"]).stdout).contains("\x1b[0;31m✗"));
}

#[test]
fn figures_are_listed() {
    let list = text(&tollgate(&["demo", "--list"]).stdout);
    assert_eq!(list.lines().count(), 9);
    for line in list.lines() {
        let id = line.split_whitespace().next().expect("a name");
        assert!(tollgate(&["demo", id]).status.success(), "{id}");
    }
}

#[test]
fn help_is_stable() {
    assert_golden("help.txt", &text(&tollgate(&["--help"]).stdout));
    assert_golden("help-serve.txt", &text(&tollgate(&["serve", "--help"]).stdout));
    assert_golden("help-gateway.txt", &text(&tollgate(&["gateway", "--help"]).stdout));
    assert_golden("help-demo.txt", &text(&tollgate(&["demo", "--help"]).stdout));
}

#[test]
fn version_is_that_of_the_package() {
    assert_eq!(text(&tollgate(&["--version"]).stdout), format!("tollgate {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn arguments_that_make_no_sense_exit_with_2() {
    for args in [&["nonsense"][..], &["--nonsense"], &["demo", "nonsense"], &["demo", "4-9", "--list"]] {
        let output = tollgate(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert_eq!(text(&output.stdout), "", "{args:?}");
        assert!(text(&output.stderr).starts_with("error: "), "{args:?}");
    }
}

#[test]
fn an_unknown_figure_names_the_nearest_and_all() {
    assert_golden("demo-nonsense.txt", &text(&tollgate(&["demo", "nonsense"]).stderr));
}

#[test]
fn a_closed_pipe_is_no_error() {
    let mut child = command(&["demo"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary runs");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(text(&output.stderr), "");
    assert!(output.status.success());
}
