//! `tollgate check`, `schema` and `completions` as their users meet them: what is printed where, and exit codes.
//!
//! After a deliberate change of output, run the tests once with `UPDATE_GOLDEN=1` and read the difference.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

const GOOD: &str = "\
domain: shop
rules:
  - name: posts
    when: {method: POST}
    per: user_id
    limits: [5/s, 100/h]
";

const BAD: &str = "\
domain: shop
rules:
  - nmae: posts
    limits: 5/s
";

/// Legal, and probably wrong.
const ODD: &str = "\
domain: shop
rules:
  - name: posts
    per: user_id
    limits: [10/s, 1000/min]
";

/// A directory of its own for each test, gone at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str, files: &[(&str, &str)]) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("check-{name}-{}", std::process::id()));
        drop(fs::remove_dir_all(&path));
        fs::create_dir_all(&path).expect("a directory for the test");
        for (name, content) in files {
            let path = path.join(name);
            fs::create_dir_all(path.parent().expect("inside the folder")).expect("a directory");
            fs::write(path, content).expect("a file");
        }
        Self(path)
    }

    /// Runs the binary inside the folder.
    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("the binary runs")
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
        command.args(args).env_clear().env("COLUMNS", "80").env("LC_ALL", "C.UTF-8").current_dir(&self.0);
        command.stdin(Stdio::null());
        command
    }

    fn run_with_input(&self, args: &[&str], input: &[u8]) -> Output {
        let mut command = self.command(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary runs");
        // It may have seen enough before it has all.
        drop(child.stdin.take().expect("a pipe").write_all(input));
        child.wait_with_output().expect("it ends")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

fn code(output: &Output) -> i32 {
    output.status.code().expect("an exit code")
}

fn assert_golden(name: &str, actual: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, actual).expect("golden file can be written");
    }
    let expected = fs::read_to_string(&path).unwrap_or_default().replace("\r\n", "\n");
    assert!(expected == actual, "output differs from tests/golden/{name}; UPDATE_GOLDEN=1 accepts it:\n{actual}");
}

#[test]
fn good_rules_are_summed_up() {
    let lyft = "domain: mail\ndescriptors:\n  - key: to\n    rate_limit: {unit: day, requests_per_unit: 5}\n";
    let folder = Folder::new("good", &[("rules/a.yaml", GOOD), ("rules/b/mail.yml", lyft)]);
    let output = folder.run(&["check", "rules"]);
    assert_eq!((code(&output), text(&output.stderr)), (0, String::new()));
    assert_golden("check-good.txt", &text(&output.stdout));
}

#[test]
fn wrong_rules_are_shown_and_fail() {
    let folder = Folder::new("bad", &[("bad.yaml", BAD), ("good.yaml", GOOD), ("odd.yaml", ODD)]);
    let output = folder.run(&["check", "bad.yaml", "good.yaml"]);
    assert_eq!((code(&output), text(&output.stdout)), (1, String::new()));
    assert_golden("check-bad.txt", &text(&output.stderr));
    assert_eq!(code(&folder.run(&["check", "."])), 1, "two rules are called `posts`");
}

#[test]
fn warnings_fail_only_when_they_are_denied() {
    let folder = Folder::new("odd", &[("odd.yaml", ODD)]);
    let output = folder.run(&["check", "odd.yaml"]);
    assert_eq!(code(&output), 0);
    assert!(text(&output.stdout).starts_with("ok: 1 file, 1 domain, 1 rule, 2 limits, 1 warning\n"));
    assert!(text(&output.stderr).contains("warning[pointless-limit]: `1000/min` never denies anything"));
    let output = folder.run(&["check", "--deny-warnings", "odd.yaml"]);
    assert_eq!((code(&output), text(&output.stdout)), (1, String::new()));
    assert!(text(&output.stderr).ends_with("\n1 warning: warnings are denied\n"));
}

#[test]
fn what_two_files_say_is_compared() {
    let again = GOOD.replace("posts", "others");
    let folder = Folder::new("across", &[("a.yaml", GOOD), ("b.yaml", &again)]);
    assert_eq!(code(&folder.run(&["check", "a.yaml"])), 0);
    assert_eq!(code(&folder.run(&["check", "b.yaml"])), 0);
    let output = folder.run(&["check", "a.yaml", "b.yaml"]);
    assert_eq!(code(&output), 1);
    let said = text(&output.stderr);
    assert!(said.contains("b.yaml:3:11") && said.contains("a.yaml:3:11"), "both places are shown:\n{said}");
}

#[test]
fn standard_input_is_a_file() {
    let folder = Folder::new("stdin", &[]);
    assert_eq!(code(&folder.run_with_input(&["check", "-"], GOOD.as_bytes())), 0);
    let output = folder.run_with_input(&["check", "-"], BAD.as_bytes());
    assert_eq!(code(&output), 1);
    assert!(text(&output.stderr).contains(" --> <stdin>:3:5\n"));
    assert_eq!(code(&folder.run_with_input(&["check", "-"], b"\xff\xfe")), 1);
    assert_eq!(code(&folder.run_with_input(&["check", "-"], b"")), 1);
}

#[test]
fn every_kind_of_bad_path_fails_and_says_why() {
    let folder = Folder::new("paths", &[("empty.yaml", ""), ("dir/notes.txt", "a"), ("tab.yaml", "a:\n\tb: c\n")]);
    fs::write(folder.0.join("latin.yaml"), b"domain: \xe9").expect("a file");
    let mut kinds = vec![
        ("gone.yaml", "not-found"),
        ("empty.yaml", "empty-file"),
        ("dir", "no-rules"),
        ("tab.yaml", "yaml"),
        ("latin.yaml", "not-utf-8"),
        ("deep.yaml", "too-deep"),
        ("large.yaml", "too-large"),
        ("early.json", "yaml"),
    ];
    fs::write(folder.0.join("deep.yaml"), "[".repeat(100)).expect("a file");
    fs::write(folder.0.join("early.json"), "{\"domain\": \"d\"},\n\"rules\": []}\n").expect("a file");
    fs::File::create(folder.0.join("large.yaml")).and_then(|file| file.set_len((64 << 20) + 1)).expect("a large file");
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("loop.yaml", folder.0.join("loop.yaml")).expect("a link");
        let made = Command::new("mkfifo").arg(folder.0.join("pipe.yaml")).status().expect("mkfifo runs");
        assert!(made.success());
        kinds.extend([("loop.yaml", "link-loop"), ("pipe.yaml", "not-a-file"), ("/dev/zero", "not-a-file")]);
    }
    // A file that cannot be read, whoever asks: nothing is at the beginning of a process's memory.
    #[cfg(target_os = "linux")]
    kinds.push(("/proc/self/mem", "unreadable"));
    for (path, expected) in kinds {
        let output = folder.run(&["check", path]);
        let said = text(&output.stderr);
        assert_eq!(code(&output), 1, "{path}: {said}");
        assert!(said.contains(&format!("error[{expected}]: ")), "{path}: {said}");
        assert!(said.contains(&format!("--> {path}")), "{path}: {said}");
    }
}

#[test]
fn json_is_one_object_on_standard_output() {
    let folder = Folder::new("json", &[("bad.yaml", BAD), ("good.yaml", GOOD)]);
    let output = folder.run(&["check", "--format", "json", "bad.yaml", "gone.yaml"]);
    assert_eq!((code(&output), text(&output.stderr)), (1, String::new()));
    let whole: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&whole["ok"], &whole["errors"], &whole["left_out"]), (&false.into(), &2.into(), &0.into()));
    let list = whole["diagnostics"].as_array().expect("a list");
    assert_eq!((&list[0]["file"], &list[0]["line"]), (&"gone.yaml".into(), &Value::Null));
    let bad = &list[1];
    assert_eq!((&bad["file"], &bad["line"], &bad["column"]), (&"bad.yaml".into(), &3.into(), &5.into()));
    assert_eq!((&bad["end_line"], &bad["end_column"]), (&3.into(), &9.into()));
    assert_eq!((&bad["severity"], &bad["code"]), (&"error".into(), &"unknown-field".into()));
    assert!(bad["help"].as_str().is_some_and(|help| help.contains("name")));

    let output = folder.run(&["check", "--format", "json", "good.yaml"]);
    let whole: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((code(&output), &whole["ok"]), (0, &true.into()));
    assert_eq!(whole["summary"]["domains"]["shop"], serde_json::json!({ "rules": 1, "limits": 2 }));
    assert_eq!(whole["summary"]["algorithms"], serde_json::json!({ "sliding window": 2 }));
}

#[test]
fn github_gets_one_line_per_problem() {
    let folder = Folder::new("github", &[("bad,1.yaml", BAD)]);
    let output = folder.run(&["check", "--format", "github", "bad,1.yaml"]);
    assert_eq!(code(&output), 1);
    let said = text(&output.stdout);
    let start = "::error title=unknown-field,file=bad%2C1.yaml,line=3,col=5,endLine=3::";
    assert!(said.starts_with(start) && said.lines().count() == 1, "{said}");
}

#[test]
fn colours_are_for_terminals_or_on_request() {
    let folder = Folder::new("colour", &[("bad.yaml", BAD), ("good.yaml", GOOD)]);
    let coloured = |args: &[&str]| {
        let output = folder.run(args);
        (text(&output.stderr) + &text(&output.stdout)).contains('\x1b')
    };
    assert!(!coloured(&["check", "bad.yaml"]) && !coloured(&["check", "good.yaml"]));
    assert!(coloured(&["check", "--color=always", "bad.yaml"]) && coloured(&["check", "--color=always", "good.yaml"]));
    assert!(!coloured(&["check", "--color=never", "bad.yaml"]));
}

/// `script` runs a command with a terminal before it.
#[cfg(target_os = "linux")]
#[test]
fn on_a_terminal_there_are_colours() {
    let folder = Folder::new("terminal", &[("bad.yaml", BAD), ("good.yaml", GOOD)]);
    let on_terminal = |args: &str, environment: &[(&str, &str)]| {
        let line = format!("{} {args}", env!("CARGO_BIN_EXE_tollgate"));
        let mut command = Command::new("script");
        command.args(["--quiet", "--return", "--command", &line, "/dev/null"]).current_dir(&folder.0);
        command.env_remove("NO_COLOR").env("TERM", "xterm").envs(environment.iter().copied()).stdin(Stdio::null());
        let output = command.output().expect("script runs");
        (code(&output), text(&output.stdout))
    };
    let (exit, shown) = on_terminal("check bad.yaml", &[]);
    assert_eq!(exit, 1, "{shown}");
    assert!(shown.contains("\x1b[") && shown.contains("unknown-field"), "{shown:?}");
    assert!(on_terminal("check good.yaml", &[]).1.contains("\x1b["));
    fs::write(folder.0.join("requests"), "user_id=42 method=POST\n").expect("a file");
    let (exit, shown) = on_terminal("try --rules good.yaml < requests", &[]);
    assert!(exit == 0 && shown.contains("\x1b[1;32mallowed\x1b[0m  posts (5/s)  4 of 5 remaining"), "{shown:?}");
    for plain in [
        on_terminal("check --color=never bad.yaml", &[]),
        on_terminal("check bad.yaml", &[("NO_COLOR", "1")]),
        on_terminal("try --color=never --rules good.yaml < requests", &[]),
    ] {
        assert!(!plain.1.contains('\x1b'), "{plain:?}");
    }
}

#[test]
fn a_closed_pipe_does_not_change_the_answer() {
    let folder = Folder::new("pipe", &[("bad.yaml", BAD), ("good.yaml", GOOD)]);
    for (file, expected) in [("bad.yaml", 1), ("good.yaml", 0)] {
        let mut command = folder.command(&["check", "--format=json", file]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary runs");
        drop(child.stdout.take());
        let output = child.wait_with_output().expect("it ends");
        assert_eq!((code(&output), text(&output.stderr)), (expected, String::new()));
    }
}

/// The settings of a gateway are looked at as well; what is told has a place, and no line that may hold a secret.
#[test]
fn settings_of_a_gateway_are_checked() {
    let route = "routes:\n  - {name: all, upstream: 'http://127.0.0.1:9'}\n";
    for (settings, told) in [
        ("proxxy: 0.0.0.0:80", "a.yaml:2:3: error: there is no setting `proxxy` (did you mean `proxy`?)"),
        ("admin-tokn: hunter2", "a.yaml:2:3: error: there is no setting `admin-tokn` (did you mean `admin-token`?)"),
        ("proxy: nowhere", "a.yaml:2:3: error: `proxy`: `nowhere`: "),
        ("log-level: loud", "a.yaml:2:3: error: `log-level`: `loud`: write one of error, warn, info, debug, trace"),
        ("later_requests: 0", "a.yaml:2:3: error: `later_requests`: `0`: 0 is not in 1..=1000000"),
        ("start-anyway: 3", "a.yaml:2:3: error: `start-anyway`: write true or false"),
        ("proxy: [':1', ':2']", "a.yaml:2:3: error: `proxy`: this takes one value, and no list"),
        ("store: 'redis://me:hunter2@'", "a.yaml:2:3: error: `store`: "),
        ("near-limit-ratio: 7", "a.yaml:2:3: error: `near-limit-ratio`: 7: a share is between 0 and 1"),
        ("ban-after: 5\n  ban-for: 0s", "a.yaml:3:3: error: `ban-for`: 0: write for how long, such as 10min"),
        ("proxy: {a: b}", "a.yaml:2:10: error: `proxy` takes a value or a list of values, not a mapping"),
        ("workers: 1\n  workers: 2", "a.yaml:3:3: error: `workers` is set twice"),
    ] {
        let file = format!("settings:\n  {settings}\n{route}");
        let folder = Folder::new("settings", &[("a.yaml", &file)]);
        let output = folder.run(&["check", "--format=json", "a.yaml"]);
        let whole: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let one = &whole["diagnostics"][0];
        let word = |name: &str| one[name].as_str().unwrap_or_default().to_owned();
        let help = if one["help"].is_null() { String::new() } else { format!(" ({})", word("help")) };
        let shown = format!(
            "{}:{}:{}: {}: {}{help}",
            word("file"),
            one["line"],
            one["column"],
            word("severity"),
            word("message")
        );
        assert!(shown.starts_with(told), "{settings}\n{shown}");
        assert_eq!((code(&output), whole["errors"].as_u64()), (1, Some(1)), "{whole}");
        let human = folder.run(&["check", "a.yaml"]);
        let human = text(&human.stderr);
        assert!(human.contains("a.yaml:") && !human.contains("hunter2"), "{human}");
    }
    // What another option, or another machine, has to complete is no mistake of the file.
    let file = format!(
        "settings: {{proxy: ':80', proxy-tls-cert: /there.pem, admin-token-file: /run/there, trusted-proxies: [10.0.0.0/8, '::1']}}\n{route}"
    );
    let folder = Folder::new("settings", &[("a.yaml", &file)]);
    let output =
        folder.command(&["check", "a.yaml"]).env("TOLLGATE_WORKERS", "many").output().expect("the binary runs");
    assert_eq!(code(&output), 0, "{}", text(&output.stderr));
}

#[test]
fn arguments_that_make_no_sense_exit_with_2() {
    let folder = Folder::new("usage", &[]);
    for args in [&["check"][..], &["check", "--format", "xml", "a"], &["completions"], &["completions", "cmd"]] {
        assert_eq!(code(&folder.run(args)), 2, "{args:?}");
    }
}

#[test]
fn the_schema_is_json() {
    let folder = Folder::new("schema", &[]);
    let output = folder.run(&["schema"]);
    assert_eq!(code(&output), 0);
    let schema: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(schema["$schema"].as_str().is_some_and(|version| version.contains("json-schema.org")));
}

#[test]
fn completions_know_the_commands() {
    let folder = Folder::new("completions", &[]);
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let output = folder.run(&["completions", shell]);
        assert_eq!(code(&output), 0, "{shell}");
        assert!(text(&output.stdout).contains("deny-warnings"), "{shell}");
    }
}

#[test]
fn help_is_stable() {
    let folder = Folder::new("help", &[]);
    for name in ["check", "schema", "completions"] {
        assert_golden(&format!("help-{name}.txt"), &text(&folder.run(&[name, "--help"]).stdout));
    }
}
