//! How problems are shown: golden text for a terminal without colour, a log, and JSON.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use serde_json::json;
use tollgate_rules::{Diagnostic, Diagnostics, Source, Span};

/// One problem at the place in `text` that is between `«` and `»`.
fn marked(text: &str) -> (Diagnostics, Span) {
    let at = |mark| text.chars().position(|character| character == mark).expect("a mark");
    let span = Span { source: 0, start: at('«') as u32, end: at('»') as u32 - 1 };
    let source = Source::new("rules.yaml", text.replace(['«', '»'], ""));
    (Diagnostics::new(vec![source]), span)
}

fn rendered(text: &str) -> String {
    let (mut diagnostics, span) = marked(text);
    diagnostics.push(Diagnostic::error("wrong", span, "this is wrong"));
    diagnostics.render(false)
}

#[track_caller]
fn assert_shows(text: &str, expected: &str) {
    let shown = rendered(text);
    let expected = expected.trim_matches('\n');
    assert!(shown == expected, "expected\n{expected}\nshown\n{shown}");
}

#[test]
fn a_problem_shows_its_line_and_the_spot() {
    let (mut diagnostics, span) = marked("domain: a\nrules:\n  - «nmae»: x\n");
    let first = Span { source: 0, start: 0, end: 6 };
    diagnostics.push(
        Diagnostic::error("unknown-field", span, "there is no field `nmae`")
            .label("not a field of a rule")
            .related(first, "in this domain")
            .help("did you mean `name`?"),
    );
    let expected = "\
error[unknown-field]: there is no field `nmae`
 --> rules.yaml:3:5
  |
1 | domain: a
  | ------ in this domain
2 | rules:
3 |   - nmae: x
  |     ^^^^ not a field of a rule
  |
  = help: did you mean `name`?";
    assert_eq!(diagnostics.render(false), expected);
    assert_eq!(diagnostics.to_string(), "rules.yaml:3:5: error: there is no field `nmae` (did you mean `name`?)");
    let expected = json!([{
        "file": "rules.yaml", "line": 3, "column": 5, "end_line": 3, "end_column": 9,
        "severity": "error", "code": "unknown-field", "message": "there is no field `nmae`",
        "label": "not a field of a rule", "help": "did you mean `name`?",
        "related": {
            "file": "rules.yaml", "line": 1, "column": 1, "end_line": 1, "end_column": 7, "message": "in this domain",
        },
    }]);
    assert_eq!(diagnostics.to_json(), expected);
}

#[test]
fn another_place_is_shown_beside_it_or_below() {
    let text = format!("a: [one, two]\r\n{}b: three\r\n", "#\r\n".repeat(9));
    let at = |word: &str| {
        let start = u32::try_from(text.find(word).expect("the word")).expect("near");
        Span { source: 0, start, end: start + word.len() as u32 }
    };
    let shown = |spot, other| {
        let mut diagnostics = Diagnostics::new(vec![Source::new("rules.yaml", &*text)]);
        diagnostics.push(Diagnostic::warning("twice", at(spot), "said twice").related(at(other), "first here"));
        diagnostics.render(false)
    };
    let expected = "\
warning[twice]: said twice
 --> rules.yaml:1:10
  |
1 | a: [one, two]
  |     ---  ^^^
  |     |
  |     first here";
    assert_eq!(shown("two", "one"), expected);
    let expected = "\
warning[twice]: said twice
  --> rules.yaml:11:4
   |
11 | b: three
   |    ^^^^^
   |
  ::: rules.yaml:1:5
   |
 1 | a: [one, two]
   |     --- first here";
    assert_eq!(shown("three", "one"), expected);
}

#[test]
fn columns_count_characters_and_wide_ones_are_marked_whole() {
    assert_shows(
        "naïve: «日本»語\n",
        "
error[wrong]: this is wrong
 --> rules.yaml:1:8
  |
1 | naïve: 日本語
  |        ^^^^",
    );
}

#[test]
fn tabs_and_carriage_returns_do_not_move_the_mark() {
    assert_shows(
        "a:\r\n\tb: «c»\r\nd: e\r\n",
        "
error[wrong]: this is wrong
 --> rules.yaml:2:5
  |
2 |     b: c
  |        ^",
    );
    assert_shows(
        "a: «b\r\n»c: d\r\n",
        "
error[wrong]: this is wrong
 --> rules.yaml:1:4
  |
1 | a: b
  |    ^",
    );
}

#[test]
fn of_several_lines_the_first_is_shown() {
    assert_shows(
        "rules:\n  - «name: a\n    limits: [1/s]\n\n»  - name: b\n",
        "
error[wrong]: this is wrong
 --> rules.yaml:2:5
  |
2 |   - name: a
  |     ^^^^^^^",
    );
    let (mut diagnostics, span) = marked("rules:\n  - «name: a\n    limits: [1/s]\n\n»  - name: b\n");
    diagnostics.push(Diagnostic::error("wrong", span, "this is wrong"));
    let json = diagnostics.to_json();
    assert_eq!((&json[0]["end_line"], &json[0]["end_column"]), (&json!(3), &json!(18)));
}

#[test]
fn the_end_of_a_file_is_a_place() {
    assert_shows(
        "a: [b«»",
        "
error[wrong]: this is wrong
 --> rules.yaml:1:6
  |
1 | a: [b
  |      ^",
    );
    assert_shows(
        "a: [b\n«»",
        "
error[wrong]: this is wrong
 --> rules.yaml:2:1
  |
2 |
  | ^",
    );
    assert_shows(
        "«»",
        "
error[wrong]: this is wrong
 --> rules.yaml:1:1
  |
1 |
  | ^",
    );
}

#[test]
fn places_beyond_the_text_are_its_end() {
    let mut diagnostics = Diagnostics::new(vec![Source::new("a", "b\n")]);
    diagnostics.push(Diagnostic::error("wrong", Span { source: 0, start: u32::MAX, end: 0 }, "beyond the end"));
    diagnostics.push(Diagnostic::error("wrong", Span { source: 9, start: 0, end: 0 }, "no such source"));
    assert_eq!(diagnostics.to_string(), "a:2:1: error: beyond the end\nerror: no such source");
    assert!(diagnostics.render(false).contains("a:2:1"));
}

#[test]
fn what_could_not_be_read_is_shown_with_its_file() {
    let mut diagnostics = Diagnostics::default();
    diagnostics.push(Diagnostic::unplaced("not-utf-8", "this is not UTF-8").unread("a.yaml", Some((2, 5))));
    diagnostics.push(Diagnostic::unplaced("not-found", "there is no such file").unread("b.yaml", None));
    let expected = "\
error[not-utf-8]: this is not UTF-8
--> a.yaml:2:5

error[not-found]: there is no such file
--> b.yaml";
    assert_eq!(diagnostics.render(false), expected);
    let expected = "a.yaml:2:5: error: this is not UTF-8\nb.yaml: error: there is no such file";
    assert_eq!(diagnostics.to_string(), expected);
    let json = diagnostics.to_json();
    assert_eq!((&json[0]["file"], &json[0]["line"], &json[1]["line"]), (&json!("a.yaml"), &json!(2), &json!(null)));
}

#[test]
fn text_from_files_cannot_speak_to_the_terminal() {
    let (mut diagnostics, span) = marked("a: «\x1b[31mred»\n");
    diagnostics.push(Diagnostic::error("wrong", span, "bad \x1b[31m value\nerror: forged"));
    assert!(!diagnostics.render(false).contains('\x1b'));
    assert!(!diagnostics.to_string().contains(['\x1b', '\n']));
}

#[test]
fn a_line_that_is_too_long_is_not_drawn() {
    let shown = rendered(&format!("{}«b»", "a".repeat(1 << 20)));
    assert_eq!(shown, format!("error[wrong]: this is wrong\n--> rules.yaml:1:{}", (1 << 20) + 1));
}

#[test]
fn colour_only_adds_escapes() {
    let (mut diagnostics, span) = marked("a: «b»\n");
    diagnostics.push(Diagnostic::warning("odd", span, "this is odd"));
    let (plain, coloured) = (diagnostics.render(false), diagnostics.render(true));
    assert!(coloured.contains('\x1b') && !plain.contains('\x1b'));
    let mut stripped = String::new();
    for (index, piece) in coloured.split('\x1b').enumerate() {
        stripped.push_str(if index == 0 { piece } else { piece.split_once('m').expect("an escape sequence").1 });
    }
    let bare = |text: &str| text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n");
    assert_eq!(bare(&stripped), bare(&plain));
}

#[test]
fn nothing_that_a_terminal_acts_on_is_passed_on() {
    let (mut diagnostics, span) = marked("a: \u{9b}31m«b»\n");
    let evil = "one\ntwo\u{1b}[2J\u{9b}m\r";
    diagnostics.push(Diagnostic::error("wrong", span, evil).label(evil).help(evil).related(span, evil));
    let source = Source::new("no\u{1b}]0;title\u{7}te\n.yaml", "a: b\n");
    let mut elsewhere = Diagnostics::new(vec![source]);
    elsewhere.push(Diagnostic::error("wrong", Span { source: 0, start: 3, end: 4 }, "wrong"));
    elsewhere.push(Diagnostic::unplaced("not-found", "gone").unread("\u{1b}c\nb.yaml", Some((1, 2))));
    for shown in [diagnostics.render(false), elsewhere.render(false)] {
        assert!(shown.chars().all(|character| character == '\n' || !character.is_control()), "{shown:?}");
        assert!(!shown.contains("\ntwo") && !shown.contains("\n.yaml") && !shown.contains("\nb.yaml"), "{shown}");
    }
    assert!(diagnostics.render(false).contains("one\\ntwo"), "{}", diagnostics.render(false));
    assert!(diagnostics.render(false).contains("1 | a: ¿31mb\n  |        ^"), "{}", diagnostics.render(false));
}
