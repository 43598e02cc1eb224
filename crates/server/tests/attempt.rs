//! `tollgate try` as its users meet it: lines in, decisions out.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

const RULES: &str = "\
domain: api
rules:
  - name: posts
    when: {path: /posts*, method: [POST, PUT]}
    per: user_id
    limits: [2/s, 10/min]
  - name: upload
    per: user_id
    when: {path: /files}
    limits: 1MB/s
  - name: new
    mode: shadow
    per: user_id
    when: {path: /posts*}
    limits: 1/s
descriptors:
  - key: ip
    rate_limit: {unit: day, requests_per_unit: 1}
";

fn rules(name: &str, text: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("try-{name}-{}.yaml", std::process::id()));
    fs::write(&path, text).expect("a file of rules");
    path
}

fn attempt(rules: &Path, args: &[&str], lines: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .args(["try", "--rules"])
        .arg(rules)
        .args(args)
        .env_remove("NO_COLOR")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    child.stdin.take().expect("a pipe").write_all(lines.as_bytes()).expect("lines are read");
    child.wait_with_output().expect("the binary ends")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn each_line_is_answered_with_its_rule_what_remains_and_the_wait() {
    let rules = rules("answers", RULES);
    let lines = "\
# two posts per second
@12:00:00 user_id=42 path=/posts/1 method=POST
user_id=42 path=/posts/2 method=POST
user_id=42 path=/posts/3 method=POST
@+2s user_id=42 path=/posts/4 method=POST cost=3

@+1s user_id=42 path=/files bytes=900_000
user_id=42 path=/files bytes=200000
user_id=42 path=/elsewhere
";
    let output = attempt(&rules, &[], lines);
    let expected = "\
allowed  posts (2/s)  1 of 2 remaining
allowed  posts (2/s)  0 of 2 remaining
         new (1/s) would have denied it
DENIED   posts (2/s)  wait 1.5s
         new (1/s) would have denied it
DENIED   posts (2/s)  never fits: 3 of 2
         new (1/s) would have denied it
allowed  upload (1MB/s)  100000 of 1000000 remaining
DENIED   upload (1MB/s)  wait 1.111112s
allowed  no limit applies
";
    assert_eq!(text(&output.stdout), expected);
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
fn descriptors_are_asked_as_envoy_asks() {
    let rules = rules("descriptors", RULES);
    let output = attempt(&rules, &["--descriptors"], "@12:00:00 ip=1.2.3.4\nip=1.2.3.4; ip=5.6.7.8\nip=1 user=2\n");
    let stdout = text(&output.stdout);
    let lines: Vec<&str> = stdout.lines().collect();
    assert_eq!(lines[0], "allowed  api.ip (1/day)  0 of 1 remaining");
    assert!(lines[1].starts_with("DENIED   api.ip (1/day)  wait 12h"), "{}", lines[1]);
    assert_eq!(lines[2], "allowed  no limit applies");
}

#[test]
fn an_explanation_names_what_was_considered_and_why() {
    let rules = rules("explain", RULES);
    let output = attempt(&rules, &["--explain"], "user_id=42 path=/posts/1 method=GET\n");
    let stdout = text(&output.stdout);
    for said in [
        "posts does not apply: method is GET, not [POST, PUT]",
        "upload does not apply: path is /posts/1, not /files",
        "new applies, by user_id=42",
        "api.ip does not apply: there is no ip",
        "new (1/s) (shadow) admits 1, 0 of 1 remaining",
    ] {
        assert!(stdout.contains(said), "{said:?} is not in\n{stdout}");
    }
}

#[test]
fn machines_get_an_object_per_line() {
    let rules = rules("json", RULES);
    let output = attempt(&rules, &["--format", "json", "--explain"], "@0 a=1\n@1970-01-02T00:00:00Z ip=1\nip=1\n");
    let stdout = text(&output.stdout);
    let answers: Vec<Value> = stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    // The first line has a time that is none.
    assert_eq!(answers.len(), 2, "{stdout}");
    assert_eq!(answers[0]["allowed"], true);
    assert_eq!(answers[1]["allowed"], false);
    assert_eq!(answers[1]["rule"], "api.ip");
    assert_eq!(answers[1]["retry_after"], 86_400.0);
    assert!(answers[1]["explanation"][0].as_str().is_some_and(|line| line.starts_with("api.ip applies")));
}

#[test]
fn a_bad_line_is_told_and_the_others_are_answered() {
    let rules = rules("bad-line", RULES);
    let output = attempt(&rules, &[], "ip=1\nnonsense\ncost=x\nip=2\n");
    assert_eq!(text(&output.stdout).lines().count(), 2);
    let stderr = text(&output.stderr);
    assert!(stderr.contains("line 2: \"nonsense\" is not key=value"), "{stderr}");
    assert!(stderr.contains("line 3: cost is a cost"), "{stderr}");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn rules_that_cannot_be_used_are_told_and_nothing_is_read() {
    let bad = rules("bad", "rules:\n  - nmae: x\n    limits: 5/s\n");
    let output = attempt(&bad, &[], "");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("did you mean `name`"), "{}", text(&output.stderr));
    let two = rules("two", "domain: a\nrules: [{limits: 5/s}]\n");
    let other = rules("other", "domain: b\nrules: [{limits: 5/s}]\n");
    let output = attempt(&two, &["--rules", other.to_str().expect("a path")], "");
    assert!(text(&output.stderr).contains("--domain: a, b"), "{}", text(&output.stderr));
}

#[test]
fn a_shadow_stands_beside_the_rule_in_force() {
    let written = "\
rules:
  - {name: api, per: user_id, limits: {rate: 2/h, algorithm: fixed_window}}
  - {name: stricter, mode: shadow, per: user_id, limits: {rate: 1/h, algorithm: fixed_window}}
  - {name: root, mode: shadow, when: {user_id: root}, per: user_id, limits: 1/h}
";
    let output = attempt(&rules("shadow", written), &[], "@12:00:00 user_id=root\nuser_id=root\nuser_id=root\n");
    let expected = "\
allowed  api (2/h)  1 of 2 remaining
allowed  api (2/h)  0 of 2 remaining
         root (1/h) would have denied it
DENIED   api (2/h)  wait 1h
         root (1/h) would have denied it
";
    assert_eq!(text(&output.stdout), expected, "{}", text(&output.stderr));
}
