//! How problems are shown: on a terminal with the line and the spot, as one line of a log, as JSON.
//!
//! What others wrote into a file is never passed on to a terminal as it is: escape sequences and line breaks are made visible.

use std::fmt;

use annotate_snippets::{AnnotationKind, Element, Level, Origin, Renderer, Snippet};
use serde_json::{Value, json};

use super::{Diagnostic, Diagnostics, Severity, Span};

/// A line that is longer than this, in bytes, is not shown: nobody reads it, and drawing it takes long.
const LONGEST_LINE: usize = 4 << 10;

impl Diagnostics {
    /// For a person: each problem with its line and the spot marked, in colour if `colour`.
    pub fn render(&self, colour: bool) -> String {
        let renderer = if colour { Renderer::styled() } else { Renderer::plain() };
        let mut out: Vec<String> = self.iter().map(|diagnostic| self.render_one(&renderer, diagnostic)).collect();
        if self.left_out() > 0 {
            out.push(format!("and {} more", self.left_out()));
        }
        out.join("\n\n")
    }

    fn render_one(&self, renderer: &Renderer, diagnostic: &Diagnostic) -> String {
        let level = match diagnostic.severity {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
        };
        let place = match (diagnostic.span, &diagnostic.unread) {
            (Some(span), _) => self.element(span, AnnotationKind::Primary, diagnostic.label.as_deref()),
            (None, Some(unread)) => Some(origin(&unread.file, unread.position).into()),
            (None, None) => None,
        };
        let related = diagnostic.related.as_ref();
        let related = related.and_then(|(span, why)| self.element(*span, AnnotationKind::Context, Some(why)));
        let help = diagnostic.help.as_deref().map(|help| Level::HELP.message(help).into());
        let elements: [Option<Element<'_>>; 3] = [place, related, help];
        let title = level.primary_title(diagnostic.message.as_str()).id(diagnostic.code);
        renderer.render(&[title.elements(elements.into_iter().flatten())])
    }

    /// The line where a span begins, with as much of the span marked as is on it.
    fn element<'a>(&'a self, span: Span, kind: AnnotationKind, label: Option<&'a str>) -> Option<Element<'a>> {
        let (source, start, end) = self.locate(span)?;
        let rest = &source.text[start.byte..];
        let line_end = start.byte + rest.find('\n').unwrap_or(rest.len());
        let text = &source.text[start.line_byte..line_end];
        if text.len() > LONGEST_LINE {
            return Some(origin(&source.name, Some(start.position())).into());
        }
        let text = text.strip_suffix('\r').unwrap_or(text);
        let at = |byte: usize| (byte - start.line_byte).min(text.len());
        let spot = kind.span(at(start.byte)..at(end.byte)).label(label);
        Some(Snippet::source(text).path(&*source.name).line_start(start.line).annotation(spot).into())
    }

    /// For a machine: a list of objects with `file`, `line`, `column`, `end_line`, `end_column`, `severity`, `code`,
    /// `message`, `label`, `help` and `related`, each of them `null` where there is none. Lines and columns count from 1,
    /// columns in characters; the end is the character after the last.
    pub fn to_json(&self) -> Value {
        let entry = |diagnostic: &Diagnostic| {
            let mut entry = match (diagnostic.span, &diagnostic.unread) {
                (None, Some(unread)) => {
                    let (line, column) = unread.position.unzip();
                    json!({ "file": *unread.file, "line": line, "column": column, "end_line": line, "end_column": column })
                }
                (span, _) => self.place_json(span),
            };
            entry["severity"] = diagnostic.severity.name().into();
            entry["code"] = diagnostic.code.into();
            entry["message"] = diagnostic.message.as_str().into();
            entry["label"] = diagnostic.label.as_deref().into();
            entry["help"] = diagnostic.help.as_deref().into();
            entry["related"] = diagnostic.related.as_ref().map_or(Value::Null, |(span, why)| {
                let mut related = self.place_json(Some(*span));
                related["message"] = why.as_str().into();
                related
            });
            entry
        };
        self.iter().map(entry).collect()
    }

    fn place_json(&self, span: Option<Span>) -> Value {
        let place = span.and_then(|span| self.locate(span));
        let name = place.map(|(source, ..)| &*source.name);
        let (line, column) = place.map(|(_, start, _)| start.position()).unzip();
        let (end_line, end_column) = place.map(|(.., end)| end.position()).unzip();
        json!({ "file": name, "line": line, "column": column, "end_line": end_line, "end_column": end_column })
    }

    /// `file:line:column: `, as far as it is known.
    fn prefix(&self, diagnostic: &Diagnostic) -> String {
        let place = diagnostic.span.and_then(|span| self.locate(span));
        let place = place.map(|(source, start, _)| (&source.name, Some(start.position())));
        let unread = diagnostic.unread.as_ref().map(|unread| (&unread.file, unread.position));
        match place.or(unread) {
            Some((file, Some((line, column)))) => format!("{file}:{line}:{column}: "),
            Some((file, None)) => format!("{file}: "),
            None => String::new(),
        }
    }
}

fn origin(file: &str, position: Option<(usize, usize)>) -> Origin<'_> {
    match position {
        Some((line, column)) => Origin::path(file).line(line).char_column(column),
        None => Origin::path(file),
    }
}

/// As for a log: one line each, `file:line:column: severity: message (help)`.
impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, diagnostic) in self.iter().enumerate() {
            let help = diagnostic.help.as_ref().map_or(String::new(), |help| format!(" ({help})"));
            let (place, severity) = (self.prefix(diagnostic), diagnostic.severity.name());
            let line = format!("{place}{severity}: {}{help}", diagnostic.message);
            f.write_str(if index > 0 { "\n" } else { "" })?;
            for character in line.chars() {
                match character.is_control() {
                    true => write!(f, "{}", character.escape_default())?,
                    false => write!(f, "{character}")?,
                }
            }
        }
        if self.left_out() > 0 {
            write!(f, "\nand {} more", self.left_out())?;
        }
        Ok(())
    }
}

impl std::error::Error for Diagnostics {}
