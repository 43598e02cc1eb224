//! What the documents for people who write rules show is what happens: every rule file in them loads, every session on
//! a terminal is held again, and every field and every code of a problem is named.
//!
//! A console block finds the rule files of the blocks before it, `rules.yaml` unless the first line of the file is a
//! comment with another name. After a deliberate change of output, run this once with `UPDATE_GOLDEN=1` and read the
//! difference.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "documents/blocks.rs"]
mod blocks;

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use blocks::{Block, Transcript, blocks, transcripts};
use tollgate_rules::{Diagnostics, RuleSet, Severity, Source, json_schema, parse};

/// The documents, and how many rule files and sessions they have at least.
const DOCUMENTS: [(&str, usize, usize); 4] =
    [("README.md", 1, 1), ("docs/rules.md", 15, 8), ("docs/cookbook.md", 25, 15), ("docs/gateway.md", 2, 0)];

fn root() -> PathBuf {
    let server = Path::new(env!("CARGO_MANIFEST_DIR"));
    server.ancestors().nth(2).expect("crates/server is two folders deep").to_owned()
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn problems(text: &str) -> Diagnostics {
    RuleSet::compile(parse(vec![Source::new("rules.yaml", text)])).1
}

#[test]
fn every_rule_file_loads() {
    for (document, least, _) in DOCUMENTS {
        let text = read(document);
        let files: Vec<Block> = blocks(&text).into_iter().filter(|block| block.is("yaml")).collect();
        assert!(files.len() >= least, "{document} has {} rule files, not {least}", files.len());
        for file in &files {
            let found = problems(&file.text);
            let (errors, warnings) = (found.count(Severity::Error), found.count(Severity::Warning));
            let expected = (file.says("bad"), file.says("warned"));
            assert_eq!(
                (errors > 0, warnings > 0),
                expected,
                "{document}:{}: marked `{}`\n{}",
                file.lines.start,
                file.info,
                found.render(false)
            );
        }
    }
}

#[test]
fn every_session_goes_as_shown() {
    let update = std::env::var_os("UPDATE_GOLDEN").is_some();
    for (document, _, least) in DOCUMENTS {
        let text = read(document);
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!(
            "documents-{}-{}",
            document.replace(['/', '.'], "-"),
            std::process::id()
        ));
        drop(fs::remove_dir_all(&folder));
        let mut sessions = 0;
        // Lines that were added by updating move all that follow.
        let mut moved = 0isize;
        for block in blocks(&text) {
            if block.is("yaml") {
                let name = block.text.lines().next().and_then(|line| line.strip_prefix("# "));
                let name = name.filter(|name| name.ends_with(".yaml") && !name.contains(' ')).unwrap_or("rules.yaml");
                let path = folder.join(name);
                fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
                fs::write(path, &block.text).expect("a file of rules");
            }
            if !block.is("console") {
                continue;
            }
            let mut now = String::new();
            for transcript in transcripts(&block.text) {
                sessions += 1;
                now.push_str(&held_again(&transcript, &folder));
            }
            if now == block.text {
                continue;
            }
            assert!(
                update,
                "{document}:{}: this is shown:\n{}\nand this happens:\n{now}",
                block.lines.start, block.text
            );
            let new: Vec<String> = now.lines().map(str::to_owned).collect();
            let start = block.lines.start.checked_add_signed(moved).expect("a line");
            let end = block.lines.end.checked_add_signed(moved).expect("a line");
            moved += new.len() as isize - block.lines.len() as isize;
            lines.splice(start..end, new);
        }
        assert!(sessions >= least, "{document} has {sessions} sessions, not {least}");
        if update {
            fs::write(root().join(document), lines.join("\n") + "\n").expect("the document is written");
        }
        fs::remove_dir_all(&folder).expect("the folder of the test");
    }
}

/// The session as it goes now.
fn held_again(transcript: &Transcript, folder: &Path) -> String {
    let command = &transcript.command;
    let words: Vec<&str> = command.split(' ').collect();
    let ["tollgate", args @ ..] = words.as_slice() else { panic!("`{command}` is not a command of tollgate") };
    let typed = transcript.typed();
    let (answers, mut shown) = (run(args, folder, &typed), format!("$ {command}\n"));
    if answers == transcript.answers() || !transcript.is_try() {
        for exchange in &transcript.exchanges {
            shown.extend(exchange.typed.iter().map(|line| format!("{line}\n")));
            shown.push_str(if transcript.is_try() { &exchange.answer } else { &answers });
        }
        return shown;
    }
    // What belongs to which line is seen when the lines are given one by one.
    let mut before = run(args, folder, "");
    let mut given = String::new();
    shown.push_str(&before);
    for line in transcript.exchanges.iter().filter_map(|exchange| exchange.typed.as_ref()) {
        given.push_str(&format!("{line}\n"));
        let after = run(args, folder, &given);
        shown.push_str(&format!("{line}\n{}", after.strip_prefix(&before).unwrap_or(&after)));
        before = after;
    }
    shown
}

/// What the binary prints: problems first, as on a terminal.
fn run(args: &[&str], folder: &Path, typed: &str) -> String {
    let mut child = Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .args(args)
        .current_dir(folder)
        .env("NO_COLOR", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    // It may end without reading, when the rules are bad.
    drop(child.stdin.take().expect("a pipe").write_all(typed.as_bytes()));
    let output = child.wait_with_output().expect("the binary ends");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    text(&output.stderr) + &text(&output.stdout)
}

/// The words in backticks that are the first cell of a row, in the part of the document below `heading`.
fn first_cells(text: &str, heading: &str) -> Vec<String> {
    let level = heading.chars().take_while(|character| *character == '#').count();
    let is_above = |line: &str| {
        let marks = line.chars().take_while(|character| *character == '#').count();
        marks > 0 && marks <= level
    };
    let below = text.lines().skip_while(|line| *line != heading).skip(1).take_while(|line| !is_above(line));
    let rows = below.filter_map(|line| line.strip_prefix("| "));
    let cells = rows.filter_map(|row| row.split(" | ").next());
    cells.flat_map(|cell| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>()).collect()
}

/// The lines of the drawing in the reference: one request every 100 ms, three allowed per second.
#[test]
fn the_drawing_of_the_algorithms_is_true() {
    let text = read("docs/rules.md");
    let drawn = |block: &Block| block.is("text") && block.text.contains("sliding_window  ");
    let drawing = blocks(&text).into_iter().find(drawn).expect("the drawing");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("documents-drawing-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let lines: Vec<_> = drawing.text.lines().skip(2).filter_map(|line| line.split_once(' ')).collect();
    assert!(lines.len() > 6, "{}", drawing.text);
    for (algorithm, drawn) in lines {
        let rules = format!("rules: [{{limits: {{rate: 3/s, algorithm: {algorithm}}}}}]\n");
        fs::write(folder.join("rules.yaml"), rules).expect("a file of rules");
        let typed = format!("@12:00:00.5 a=1\n{}", "@+100ms a=1\n".repeat(drawn.trim().len() - 1));
        let answers = run(&["try", "--rules", "rules.yaml"], &folder, &typed);
        let mark = |line: &str| match (line.starts_with("allowed"), line.contains(", after ")) {
            (true, false) => '#',
            (true, true) => 'w',
            (false, _) => '.',
        };
        assert_eq!(answers.lines().map(mark).collect::<String>(), drawn.trim(), "{algorithm}");
    }
    fs::remove_dir_all(&folder).expect("the folder of the test");
}

#[test]
fn every_rate_in_the_reference_is_one() {
    let rates = first_cells(&read("docs/rules.md"), "## Rates");
    assert!(rates.len() > 10, "{rates:?}");
    for rate in rates {
        let found = problems(&format!("rules: [{{limits: \"{rate}\"}}]"));
        assert!(!found.has_errors(), "{rate}\n{}", found.render(false));
    }
}

#[test]
fn every_field_is_in_the_reference_and_no_other() {
    let text = read("docs/rules.md");
    let schema = json_schema();
    let places = schema["$defs"].as_object().expect("definitions");
    let known: BTreeSet<String> = places
        .values()
        .filter_map(|place| place["properties"].as_object())
        .flat_map(|fields| fields.keys().cloned())
        .filter(|field| field != "Value")
        .collect();
    let told: BTreeSet<String> = first_cells(&text, "## Fields").into_iter().collect();
    let missing: Vec<_> = known.difference(&told).collect();
    let invented: Vec<_> = told.difference(&known).collect();
    assert!(missing.is_empty() && invented.is_empty(), "not in the tables: {missing:?}; no fields: {invented:?}");
}

#[test]
fn every_code_of_a_problem_is_in_the_reference_and_no_other() {
    let told: BTreeSet<String> = first_cells(&read("docs/rules.md"), "## Problems").into_iter().collect();
    let mut sources = String::new();
    let mut folders = vec![root().join("crates/rules/src")];
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.file_name().is_none_or(|name| name != "tests.rs") {
                let text = fs::read_to_string(&path).expect("a source file");
                sources.push_str(text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default());
            }
        }
    }
    let said = ["error(", "warning(", "problem(", "unplaced(", "understood("];
    let known: BTreeSet<String> = said
        .iter()
        .flat_map(|call| sources.split(call).skip(1))
        .filter_map(|rest| rest.trim_start().strip_prefix('"')?.split_once('"'))
        .map(|(code, _)| code.to_owned())
        .collect();
    assert!(known.len() > 30, "{known:?}");
    let missing: Vec<_> = known.difference(&told).collect();
    let invented: Vec<_> = told.iter().filter(|code| !sources.contains(&format!("\"{code}\""))).collect();
    assert!(missing.is_empty() && invented.is_empty(), "not in the tables: {missing:?}; no codes: {invented:?}");
}
