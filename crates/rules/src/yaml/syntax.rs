//! What is wrong with a text that is not YAML, and what its writer probably meant.

use crate::diagnostic::{Diagnostic, Span};

const COLUMNS: &str = "check the indentation: what belongs together begins in the same column";
const BRACKETS: &str = "close what was opened before this: each `[` needs its `]`, each `{` its `}`";

/// The problem that the parser met at the character `index` of `text` and calls `why`. `spot` is the place of one
/// character.
pub(super) fn syntax(text: &str, index: usize, why: &str, spot: impl Fn(usize) -> Span) -> Diagnostic {
    let message = format!("this is not YAML: {why}");
    if why.contains("tab") {
        // The parser points to where it was when it met the tab, or to what comes after.
        let before = index.checked_sub(1).filter(|before| text.chars().nth(*before) == Some('\t'));
        let after = || index + text.chars().skip(index).position(|character| character == '\t').unwrap_or(0);
        let help = "indent with spaces; YAML does not allow tabs there";
        return Diagnostic::error("yaml", spot(before.unwrap_or_else(after)), message).help(help);
    }
    let rest: String = text.chars().skip(index).take_while(|character| !matches!(character, '\n' | '\r')).collect();
    Diagnostic::error("yaml", spot(index), message).help(help(why, &rest))
}

/// What to write instead, for what the parser calls `why`, where the line goes on with `rest`.
fn help(why: &str, rest: &str) -> String {
    let is = |parts: &[&str]| parts.iter().any(|part| why.contains(part));
    let marks: &[char] = if is(&["unknown anchor", "anchor or alias"]) {
        &['*']
    } else if is(&["unexpected character", "plain scalar cannot start", "directive", "tag"]) {
        &['@', '`', '%', '!', '-']
    } else {
        &[]
    };
    // The rest of it is not repeated: it may be a secret.
    if let Some(first) = rest.chars().next().filter(|first| marks.contains(first)) {
        return format!("put what begins with {first:?} into quotes");
    }
    let help = if is(&["mapping values are not allowed"]) {
        "begin the fields of one thing in the same column, and quote a value that has a colon and a space in it"
    } else if is(&["block collection", "block mapping", "block sequence", "indent", "document"]) {
        COLUMNS
    } else if is(&["end of stream"]) {
        "the quote that begins here does not end: close it"
    } else if is(&["escape", "hexadecimal"]) {
        "in double quotes a `\\` begins an escape: write it twice, or use single quotes"
    } else if is(&["trailing content", "comment"]) {
        "put the whole value into one pair of quotes"
    } else if is(&["':'", "flow", "bracket", "eof", "simple key", "next token", "node content"]) {
        BRACKETS
    } else {
        "check the indentation, and quote what is not plain text"
    };
    help.to_owned()
}

#[cfg(test)]
mod tests {
    use crate::{Source, parse};

    #[test]
    fn what_is_not_yaml_is_told_with_its_place_and_what_to_write() {
        for (text, place, help) in [
            ("a:\n  - key: b\n  c: d\n", "3:3", "in the same column"),
            ("a:\n- b: c\n   d: e\n", "3:5", "in the same column"),
            ("a:\n- b: c\n - d: e\n", "3:2", "in the same column"),
            ("a:\n- b: c: d\n", "2:7", "quote a value that has a colon"),
            ("a: {b: *all}\n", "1:8", "put what begins with '*' into quotes"),
            ("a: {b: *}\n", "1:8", "put what begins with '*' into quotes"),
            ("a: [*/x, b]\n", "1:5", "put what begins with '*' into quotes"),
            ("a: @hourly\n", "1:4", "put what begins with '@' into quotes"),
            ("a: %5\n", "1:4", "put what begins with '%' into quotes"),
            ("a: [5/s, 100/h\nb: c\n", "2:2", "close what was opened"),
            ("a: {b: [c}\n", "1:10", "close what was opened"),
            ("a: \"b\n", "1:4", "close it"),
            ("a: 'b\n", "1:4", "close it"),
            ("a: \"\\d\"\n", "1:4", "write it twice"),
            ("a: \"b\" c\n", "1:8", "one pair of quotes"),
            ("a:\n\t- b\n", "2:1", "indent with spaces"),
            ("a: b\n\tc: d\n", "2:1", "indent with spaces"),
            ("a: &a [*a]\n", "1:8", "cannot stand for itself"),
        ] {
            let diagnostics = parse(vec![Source::new("a", text)]).diagnostics;
            let first = diagnostics.iter().next().unwrap();
            let (line, column) = diagnostics.position(first.span.unwrap());
            let told = first.help.as_deref().unwrap_or_default();
            assert_eq!((first.code, &*format!("{line}:{column}")), ("yaml", place), "{text:?}: {}", first.message);
            assert!(told.contains(help), "{text:?}: {} ({told})", first.message);
        }
    }
}
