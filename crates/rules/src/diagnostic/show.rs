//! How problems are shown: on a terminal with the line and the spot, as one line of a log, as JSON.
//!
//! What others wrote into a file is never passed on to a terminal as it is: escape sequences and line breaks are made
//! visible.

use std::borrow::Cow;
use std::fmt;

use annotate_snippets::{AnnotationKind, Element, Level, Origin, Renderer, Snippet};
use serde_json::{Value, json};

use super::{Diagnostic, Diagnostics, Severity, Span};

/// Lines that are longer than this, in bytes, are not shown: nobody reads them, and drawing them takes long.
const LONGEST: usize = 4 << 10;
/// Two places that are at most so many lines apart are shown in one excerpt.
const NEAR: usize = 5;

/// A place to mark.
#[derive(Clone, Copy)]
struct Spot<'a> {
    span: Span,
    kind: AnnotationKind,
    label: Option<&'a str>,
}

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
        let spot = diagnostic.span.map(|span| Spot {
            span,
            kind: AnnotationKind::Primary,
            label: diagnostic.label.as_deref(),
        });
        let other = diagnostic.related.as_ref();
        let other = other.map(|(span, why)| Spot { span: *span, kind: AnnotationKind::Context, label: Some(why) });
        let together = spot.zip(other).and_then(|(spot, other)| self.near(spot, other));
        let (place, related) = match together {
            Some(both) => (Some(both), None),
            None => (spot.and_then(|spot| self.element(spot)), other.and_then(|other| self.element(other))),
        };
        let unread = diagnostic.unread.as_ref().filter(|_| diagnostic.span.is_none());
        let place = place.or(unread.map(|unread| origin(&unread.file, unread.position).into()));
        let help = diagnostic.help.as_deref().map(|help| Level::HELP.message(visible(help)).into());
        let elements: [Option<Element<'_>>; 3] = [place, related, help];
        let title = level.primary_title(visible(&diagnostic.message)).id(diagnostic.code);
        renderer.render(&[title.elements(elements.into_iter().flatten())])
    }

    /// The line where a spot begins, with as much of it marked as is on that line.
    fn element<'a>(&'a self, spot: Spot<'a>) -> Option<Element<'a>> {
        let (source, start, _) = self.locate(spot.span)?;
        let excerpt = self.excerpt(&[spot]);
        Some(excerpt.unwrap_or_else(|| origin(&source.name, Some(start.position())).into()))
    }

    /// Two spots of one source in one excerpt, if they are near one another.
    fn near<'a>(&'a self, spot: Spot<'a>, other: Spot<'a>) -> Option<Element<'a>> {
        let ((_, start, _), (_, other_start, _)) = (self.locate(spot.span)?, self.locate(other.span)?);
        let is_near = spot.span.source == other.span.source && start.line.abs_diff(other_start.line) <= NEAR;
        if is_near { self.excerpt(&[spot, other]) } else { None }
    }

    /// The lines from the first of `spots` to the last, which are of one source; nothing if that is too long.
    fn excerpt<'a>(&'a self, spots: &[Spot<'a>]) -> Option<Element<'a>> {
        let places: Vec<_> = spots.iter().filter_map(|spot| Some((spot, self.locate(spot.span)?))).collect();
        let (_, (source, first, _)) = places.iter().min_by_key(|(_, (_, start, _))| start.byte)?;
        let line_end = |byte: usize| source.text[byte..].find('\n').map_or(source.text.len(), |length| byte + length);
        let (_, (_, last, _)) = places.iter().max_by_key(|(_, (_, start, _))| start.byte)?;
        let text = &source.text[first.line_byte..line_end(last.byte)];
        if text.len() > LONGEST {
            return None;
        }
        let text = text.strip_suffix('\r').unwrap_or(text);
        // Those of ASCII are made visible when it is drawn. A mark as long as they are keeps the places of what follows.
        let is_control = |character: char| !character.is_ascii() && character.is_control();
        let mut snippet =
            Snippet::source(text.replace(is_control, "¿")).path(visible(&source.name)).line_start(first.line);
        for (spot, (_, start, end)) in &places {
            // What goes on for several lines is marked on its first.
            let line = &source.text[..line_end(start.byte)];
            let line_end = line.strip_suffix('\r').unwrap_or(line).len();
            let at = |byte: usize| byte.min(line_end).saturating_sub(first.line_byte).min(text.len());
            snippet = snippet.annotation(spot.kind.span(at(start.byte)..at(end.byte)).label(spot.label.map(visible)));
        }
        Some(snippet.into())
    }

    /// For a machine: a list of objects with `file`, `line`, `column`, `end_line`, `end_column`, `severity`, `code`,
    /// `message`, `label`, `help` and `related`, each of them `null` where there is none. Lines and columns count from
    /// 1, columns in characters; the end is the character after the last.
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
        Some((line, column)) => Origin::path(visible(file)).line(line).char_column(column),
        None => Origin::path(visible(file)),
    }
}

/// The same, with line breaks and whatever else a terminal acts on made visible.
fn visible(text: &str) -> Cow<'_, str> {
    if !text.contains(char::is_control) {
        return Cow::Borrowed(text);
    }
    let each = text.chars().map(|character| match character.is_control() {
        true => character.escape_default().to_string(),
        false => character.to_string(),
    });
    Cow::Owned(each.collect())
}

/// As for a log: one line each, `file:line:column: severity: message (help)`.
impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, diagnostic) in self.iter().enumerate() {
            let help = diagnostic.help.as_ref().map_or(String::new(), |help| format!(" ({help})"));
            let (place, severity) = (self.prefix(diagnostic), diagnostic.severity.name());
            let line = format!("{place}{severity}: {}{help}", diagnostic.message);
            write!(f, "{}{}", if index > 0 { "\n" } else { "" }, visible(&line))?;
        }
        if self.left_out() > 0 {
            write!(f, "\nand {} more", self.left_out())?;
        }
        Ok(())
    }
}

impl std::error::Error for Diagnostics {}
