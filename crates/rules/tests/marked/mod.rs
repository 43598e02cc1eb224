//! Files of rules with the places marked where something is wrong: `«` and `»` around each, in the order of the text.

use tollgate_rules::{Parsed, Rule, Source, parse};

/// What `text` says.
pub(crate) fn read(text: &str) -> Parsed {
    parse(vec![Source::new("rules.yaml", text)])
}

/// The rules of `text`, with which nothing is wrong.
#[allow(dead_code, reason = "not every test that uses this module needs it")]
#[track_caller]
pub(crate) fn rules(text: &str) -> Vec<Rule> {
    let parsed = read(text);
    assert!(!parsed.diagnostics.has_errors(), "{}", parsed.diagnostics.render(false));
    parsed.rules
}

/// Asserts that exactly these problems are told of `marked`, each at its mark. A message that ends with `…` goes on.
#[allow(dead_code, reason = "not every test that uses this module needs it")]
#[track_caller]
pub(crate) fn assert_wrong(marked: &str, messages: &[&str]) {
    let mut text = String::new();
    let (mut starts, mut expected, mut length) = (Vec::new(), Vec::new(), 0);
    for character in marked.chars() {
        match character {
            '«' => starts.push(length),
            '»' => expected.push((starts.pop().expect("a mark was opened"), length)),
            other => {
                text.push(other);
                length += 1;
            }
        }
    }
    expected.sort_unstable();
    let parsed = read(&text);
    let found: Vec<_> = parsed.diagnostics.iter().collect();
    let shown = parsed.diagnostics.render(false);
    assert_eq!(found.len(), messages.len(), "{shown}");
    for (index, (problem, message)) in found.iter().zip(messages).enumerate() {
        match message.strip_suffix('…') {
            Some(beginning) => assert!(problem.message.starts_with(beginning), "{message}\n{shown}"),
            None => assert_eq!(problem.message, *message, "{shown}"),
        }
        let span = problem.span.expect("a place");
        assert_eq!(Some(&(span.start, span.end)), expected.get(index), "{message}\n{shown}");
        assert!(problem.help.as_ref().is_some_and(|help| !help.is_empty()), "no help: {message}");
    }
}
