//! What is wrong with a file, where, and what to write instead.
//!
//! Problems are collected, never thrown: whoever writes rules is told everything at once. A problem knows its place in
//! the text; how it is shown (a terminal, a log line, JSON) is decided in `show`.

mod place;
mod show;

use std::sync::{Arc, OnceLock};

use place::Lines;

/// One file of rules.
#[derive(Clone, Debug)]
pub struct Source {
    /// What it is called in messages.
    pub name: Arc<str>,
    /// What it says.
    pub text: Arc<str>,
}

impl Source {
    /// `text`, called `name`.
    pub fn new(name: impl Into<Arc<str>>, text: impl Into<Arc<str>>) -> Self {
        Self { name: name.into(), text: text.into() }
    }
}

/// A stretch of one source, in characters (not bytes), half-open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Span {
    /// Which source, by its place in the list.
    pub source: u32,
    /// The first character.
    pub start: u32,
    /// The one after the last.
    pub end: u32,
}

/// A file that could not become a source, and as much of the place in it as is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread {
    /// Its path.
    pub file: Arc<str>,
    /// Line and column (in characters) of what cannot be read, both from 1.
    pub position: Option<(usize, usize)>,
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The rules cannot be used.
    Error,
    /// They can, and are probably not what was meant.
    Warning,
}

impl Severity {
    /// In one word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
        }
    }
}

/// One problem.
#[derive(Clone, Debug)]
pub struct Diagnostic {
    /// How bad it is.
    pub severity: Severity,
    /// A short name that stays the same when the wording changes, such as `unknown-field`.
    pub code: &'static str,
    /// What is wrong.
    pub message: String,
    /// Where, unless it concerns no text that was read.
    pub span: Option<Span>,
    /// Which file, if that could not be read.
    pub unread: Option<Unread>,
    /// What to say at the spot itself.
    pub label: Option<String>,
    /// Another place that matters, and why.
    pub related: Option<(Span, String)>,
    /// What to do.
    pub help: Option<String>,
}

impl Diagnostic {
    /// An error at `span`.
    pub fn error(code: &'static str, span: Span, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Error,
            code,
            message: message.into(),
            span: Some(span),
            unread: None,
            label: None,
            related: None,
            help: None,
        }
    }

    /// A warning at `span`.
    pub fn warning(code: &'static str, span: Span, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(code, span, message) }
    }

    /// An error that has no place in a text.
    pub fn unplaced(code: &'static str, message: impl Into<String>) -> Self {
        Self { span: None, ..Self::error(code, Span::default(), message) }
    }

    /// Says which file could not be read, and where in it the reading ended.
    pub fn unread(self, file: impl Into<Arc<str>>, position: Option<(usize, usize)>) -> Self {
        Self { unread: Some(Unread { file: file.into(), position }), ..self }
    }

    /// Says `label` at the spot.
    pub fn label(self, label: impl Into<String>) -> Self {
        Self { label: Some(label.into()), ..self }
    }

    /// Says what to do.
    pub fn help(self, help: impl Into<String>) -> Self {
        Self { help: Some(help.into()), ..self }
    }

    /// Points at another place.
    pub fn related(self, span: Span, why: impl Into<String>) -> Self {
        Self { related: Some((span, why.into())), ..self }
    }
}

/// Everything that is to be said about some sources.
#[derive(Clone, Debug, Default)]
pub struct Diagnostics {
    sources: Vec<Source>,
    /// Where the lines of each source are; looked for once, when the first problem in it is shown.
    lines: Vec<OnceLock<Lines>>,
    list: Vec<Diagnostic>,
    errors: usize,
    warnings: usize,
}

/// A file that is wrong in this many places is wrong in one way, many times.
const MOST: usize = 200;

impl Diagnostics {
    /// Nothing yet about `sources`.
    pub fn new(sources: Vec<Source>) -> Self {
        let lines = sources.iter().map(|_| OnceLock::new()).collect();
        Self { sources, lines, ..Self::default() }
    }

    /// Adds a problem. Beyond 200 they are only counted; errors displace warnings, so that what fails is always among
    /// what is shown.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        let is_error = diagnostic.severity == Severity::Error;
        *(if is_error { &mut self.errors } else { &mut self.warnings }) += 1;
        if self.list.len() >= MOST {
            let warning = self.list.iter().rposition(|kept| kept.severity == Severity::Warning);
            match warning.filter(|_| is_error) {
                Some(at) => self.list.remove(at),
                None => return,
            };
        }
        self.list.push(diagnostic);
    }

    /// Whether whatever else is wrong will only be counted.
    pub fn is_full(&self) -> bool {
        self.errors >= MOST
    }

    /// The sources, as spans number them.
    pub fn sources(&self) -> &[Source] {
        &self.sources
    }

    /// The problems: first those of files that could not be read, then in the order of files and places.
    pub fn iter(&self) -> impl Iterator<Item = &Diagnostic> {
        let mut sorted: Vec<&Diagnostic> = self.list.iter().collect();
        sorted.sort_by_key(|diagnostic| (diagnostic.span.map(|span| (span.source, span.start)), diagnostic.severity));
        sorted.into_iter()
    }

    /// How many problems are not listed because there were too many.
    pub fn left_out(&self) -> usize {
        self.errors + self.warnings - self.list.len()
    }

    /// How many of `severity` there are, listed or not.
    pub fn count(&self, severity: Severity) -> usize {
        match severity {
            Severity::Error => self.errors,
            Severity::Warning => self.warnings,
        }
    }

    /// Whether the rules cannot be used.
    pub fn has_errors(&self) -> bool {
        self.errors > 0
    }

    /// Whether there is nothing to say.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Line and column of a span's first character, both from 1, the column in characters.
    pub fn position(&self, span: Span) -> (usize, usize) {
        self.start_and_end(span).0
    }

    /// Line and column of a span's first character and of the one after its last. White space at the end does not
    /// count: a block of YAML ends where the next one begins.
    pub fn start_and_end(&self, span: Span) -> ((usize, usize), (usize, usize)) {
        self.locate(span).map_or(((1, 1), (1, 1)), |(_, start, end)| (start.position(), end.position()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beyond_many_they_are_counted_and_errors_stay() {
        let mut diagnostics = Diagnostics::new(vec![Source::new("a", "text")]);
        let span = Span::default();
        for _ in 0..MOST + 50 {
            diagnostics.push(Diagnostic::warning("w", span, "perhaps"));
        }
        assert!(!diagnostics.has_errors());
        for _ in 0..30 {
            diagnostics.push(Diagnostic::error("e", span, "certainly"));
        }
        assert_eq!(diagnostics.iter().filter(|one| one.severity == Severity::Error).count(), 30);
        assert_eq!(diagnostics.iter().count(), MOST);
        assert_eq!((diagnostics.count(Severity::Error), diagnostics.count(Severity::Warning)), (30, MOST + 50));
        assert_eq!(diagnostics.left_out(), 80);
    }
}
