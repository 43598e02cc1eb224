//! Fenced blocks of a Markdown document, and what a console block shows: commands, what is typed, what is answered.
//!
//! What is an answer is told by how it begins, since nothing else tells it apart on a terminal either.

use std::ops::Range;

/// A fenced block.
#[derive(Debug)]
pub(crate) struct Block {
    /// What stands behind the backticks, such as `yaml bad`.
    pub(crate) info: String,
    pub(crate) text: String,
    /// Its lines in the document, without the fences, counted from zero.
    pub(crate) lines: Range<usize>,
}

impl Block {
    pub(crate) fn is(&self, language: &str) -> bool {
        self.info.split(' ').next() == Some(language)
    }

    pub(crate) fn says(&self, word: &str) -> bool {
        self.info.split(' ').skip(1).any(|said| said == word)
    }
}

/// All fenced blocks of `text`, in order.
pub(crate) fn blocks(text: &str) -> Vec<Block> {
    let mut found: Vec<Block> = Vec::new();
    let mut open: Option<(String, usize)> = None;
    for (number, line) in text.lines().enumerate() {
        match (line.strip_prefix("```"), open.take()) {
            (Some(info), None) => open = Some((info.trim().to_owned(), number + 1)),
            (Some(_), Some((info, first))) => {
                let lines: Vec<&str> = text.lines().skip(first).take(number - first).collect();
                let text = lines.iter().map(|line| format!("{line}\n")).collect();
                found.push(Block { info, text, lines: first..number });
            }
            (None, was) => open = was,
        }
    }
    assert!(open.is_none(), "a fence is not closed");
    found
}

/// One command of a console block.
#[derive(Debug, Default)]
pub(crate) struct Transcript {
    /// Behind the `$`.
    pub(crate) command: String,
    /// What is typed, and after which of it something is answered.
    pub(crate) exchanges: Vec<Exchange>,
}

/// What is typed before an answer (nothing, before the first), and the answer.
#[derive(Debug, Default)]
pub(crate) struct Exchange {
    pub(crate) typed: Option<String>,
    pub(crate) answer: String,
}

impl Transcript {
    /// All that is typed.
    pub(crate) fn typed(&self) -> String {
        self.exchanges.iter().filter_map(|exchange| exchange.typed.as_ref()).map(|line| format!("{line}\n")).collect()
    }

    /// All that is answered.
    pub(crate) fn answers(&self) -> String {
        self.exchanges.iter().map(|exchange| exchange.answer.as_str()).collect()
    }

    pub(crate) fn is_try(&self) -> bool {
        self.command.starts_with("tollgate try")
    }
}

/// The commands of a console block.
pub(crate) fn transcripts(text: &str) -> Vec<Transcript> {
    let mut found: Vec<Transcript> = Vec::new();
    for line in text.lines() {
        if let Some(command) = line.strip_prefix("$ ") {
            found.push(Transcript { command: command.to_owned(), exchanges: vec![Exchange::default()] });
            continue;
        }
        let transcript = found.last_mut().expect("a console block begins with `$ `");
        if transcript.is_try() && is_typed(line) {
            transcript.exchanges.push(Exchange { typed: Some(line.to_owned()), answer: String::new() });
        } else if let Some(exchange) = transcript.exchanges.last_mut() {
            exchange.answer.push_str(line);
            exchange.answer.push('\n');
        }
    }
    found
}

/// Whether this is a line that a person types to `tollgate try`, not an answer.
pub(crate) fn is_typed(line: &str) -> bool {
    !["allowed", "DENIED", " ", "line ", "error", "{"].iter().any(|answer| line.starts_with(answer)) && !line.is_empty()
}
