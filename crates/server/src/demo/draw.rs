//! Drawings in text: marks, levels and spans over a common time axis.
//!
//! Pure: strips go in, lines come out. Everything is composed in Unicode; [`Row::render`] alone knows about colour
//! escapes and about terminals that show nothing but ASCII.

use tollgate_core::Timestamp;

/// What the output can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Style {
    /// Columns of the terminal.
    pub(crate) width: usize,
    pub(crate) unicode: bool,
    pub(crate) color: bool,
}

/// What a piece of text says, for those who see colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Plain,
    Strong,
    Faint,
    Allowed,
    Denied,
    Level,
}

/// The stretch of time that is drawn, and the instants named beneath it.
#[derive(Clone, Debug)]
pub(crate) struct Axis {
    pub(crate) from: Timestamp,
    pub(crate) to: Timestamp,
    pub(crate) ticks: Vec<(Timestamp, String)>,
}

/// One part of a drawing. Those with a label have it on the left.
#[derive(Clone, Debug)]
pub(crate) enum Strip {
    /// Single events; those of one column are stacked, the first at the bottom. The tally stands on the right.
    Marks { label: String, marks: Vec<Mark>, tally: String },
    /// A number for each column, out of `full`.
    Levels { label: String, values: Vec<u64>, full: u64 },
    /// Something that lasts, with a remark behind it. At the end of the axis it is left open.
    Span { label: String, from: Timestamp, to: Timestamp, remark: String },
    /// A single denied event, with a remark behind it.
    Refusal { label: String, at: Timestamp, remark: String },
    /// A stretch of time with a remark in it.
    Bracket { from: Timestamp, to: Timestamp, remark: String },
    /// The time axis.
    Axis,
    /// An empty line.
    Gap,
}

/// One event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    pub(crate) at: Timestamp,
    pub(crate) glyph: Glyph,
}

/// How an event is shown.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Glyph {
    Allowed,
    Denied,
    /// Allowed, and to be found again elsewhere by its letter.
    Named(char),
}

impl Glyph {
    fn cell(self) -> (char, Tone) {
        match self {
            Self::Allowed => ('●', Tone::Allowed),
            Self::Denied => ('✗', Tone::Denied),
            Self::Named(letter) => (letter, Tone::Allowed),
        }
    }
}

/// Where things stand on a line: labels, then one column per stretch of time, then tallies.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    gutter: usize,
    columns: usize,
    axis: Axis,
}

const INDENT: usize = 2;
const GAP: usize = 2;
/// The longest tally, such as `12 of 48`.
const TALLY: usize = 8;
const FEWEST_COLUMNS: usize = 24;

impl Layout {
    /// Fits `axis` between the longest label and the tallies.
    pub(crate) fn new(width: usize, axis: Axis, longest_label: usize) -> Self {
        let gutter = INDENT + longest_label + GAP;
        let columns = width.saturating_sub(gutter + GAP + TALLY).max(FEWEST_COLUMNS);
        Self { gutter, columns, axis }
    }

    /// The last instant of each column: what a level has to be asked for.
    pub(crate) fn instants(&self) -> Vec<Timestamp> {
        let start = self.axis.from.as_micros();
        let end_of = |column: usize| start + self.span() * (column as u64 + 1) / self.columns as u64 - 1;
        (0..self.columns).map(|column| Timestamp::from_micros(end_of(column))).collect()
    }

    fn span(&self) -> u64 {
        self.axis.to.since(self.axis.from).as_micros().max(self.columns as u64)
    }

    /// The place of an instant on the line.
    fn place(&self, at: Timestamp) -> usize {
        let into = at.since(self.axis.from).as_micros();
        let column = into * self.columns as u64 / self.span();
        self.gutter + usize::try_from(column).unwrap_or(usize::MAX).min(self.columns - 1)
    }

    fn right_margin(&self) -> usize {
        self.gutter + self.columns + GAP
    }
}

/// Draws `strips` one below the other.
pub(crate) fn strips(strips: &[Strip], layout: &Layout, style: Style) -> Vec<String> {
    let rows = strips.iter().flat_map(|strip| match strip {
        Strip::Marks { label, marks, tally } => stacked(label, marks, tally, layout),
        Strip::Levels { label, values, full } => vec![levels(label, values, *full, layout, style.unicode)],
        Strip::Span { label, from, to, remark } => {
            let mut row = Row::labelled(label);
            row.stretch(layout.place(*from), layout.place(*to), Tone::Allowed);
            if *to >= layout.axis.to {
                row.put(layout.place(*to), '─', Tone::Allowed);
            }
            row.text(layout.place(*to) + 2, remark, Tone::Faint);
            vec![row]
        }
        Strip::Refusal { label, at, remark } => {
            let (glyph, tone) = Glyph::Denied.cell();
            let mut row = Row::labelled(label);
            row.put(layout.place(*at), glyph, tone);
            row.text(layout.place(*at) + 2, remark, Tone::Faint);
            vec![row]
        }
        Strip::Bracket { from, to, remark } => vec![bracket(layout.place(*from), layout.place(*to), remark)],
        Strip::Axis => axis(layout),
        Strip::Gap => vec![Row::default()],
    });
    rows.map(|row| row.render(style)).collect()
}

fn stacked(label: &str, marks: &[Mark], tally: &str, layout: &Layout) -> Vec<Row> {
    let mut rows = vec![Row::labelled(label)];
    rows[0].text(layout.right_margin(), tally, Tone::Faint);
    for mark in marks {
        let place = layout.place(mark.at);
        let height = rows.iter().take_while(|row| row.is_taken(place)).count();
        if height == rows.len() {
            rows.push(Row::default());
        }
        let (glyph, tone) = mark.glyph.cell();
        rows[height].put(place, glyph, tone);
    }
    rows.reverse();
    rows
}

/// Blocks of rising height, or digits where blocks cannot be shown.
fn levels(label: &str, values: &[u64], full: u64, layout: &Layout, unicode: bool) -> Row {
    const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let full = full.max(1);
    let mut row = Row::default();
    row.text(INDENT, label, Tone::Faint);
    for (column, &value) in values.iter().enumerate() {
        let value = value.min(full);
        let place = layout.gutter + column;
        match value {
            0 => row.put(place, if unicode { '·' } else { '0' }, Tone::Faint),
            _ if unicode => row.put(place, BLOCKS[(value * 8).div_ceil(full) as usize - 1], Tone::Level),
            _ => {
                let digit = if full <= 9 { value } else { (value * 9).div_ceil(full) };
                row.put(place, char::from_digit(digit as u32, 10).unwrap_or('9'), Tone::Level);
            }
        }
    }
    row.text(layout.right_margin(), &format!("of {full}"), Tone::Faint);
    row
}

fn bracket(from: usize, to: usize, remark: &str) -> Row {
    let mut row = Row::default();
    row.stretch(from, to, Tone::Strong);
    let remark = format!(" {remark} ");
    let length = remark.chars().count();
    if length + 2 <= to.saturating_sub(from) {
        row.text(from + (to - from + 1 - length) / 2, &remark, Tone::Strong);
    } else {
        row.text(to + 1, &remark, Tone::Strong);
    }
    row
}

fn axis(layout: &Layout) -> Vec<Row> {
    let (mut line, mut names) = (Row::default(), Row::default());
    for column in 0..layout.columns {
        line.put(layout.gutter + column, '─', Tone::Faint);
    }
    let end = layout.gutter + layout.columns - 1;
    let mut free_from = 0;
    for (at, name) in &layout.axis.ticks {
        let place = layout.place(*at);
        let glyph = match place {
            place if place == layout.gutter => '├',
            place if place == end => '┤',
            _ => '┼',
        };
        line.put(place, glyph, Tone::Faint);
        let length = name.chars().count();
        let start = place.saturating_sub(length / 2);
        if start >= free_from {
            names.text(start, name, Tone::Faint);
            free_from = start + length + 1;
        }
    }
    vec![line, names]
}

/// Breaks `text` into lines of at most `width` characters, each indented.
pub(crate) fn paragraph(text: &str, width: usize, tone: Tone, style: Style) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last().map_or(0, |line| line.chars().count());
        if line > 0 && INDENT + line + 1 + word.chars().count() > width {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    let rows = lines.iter().map(|line| {
        let mut row = Row::default();
        row.text(INDENT, line, tone);
        row
    });
    rows.map(|row| row.render(style)).collect()
}

/// One line in several tones.
pub(crate) fn line(pieces: &[(&str, Tone)], style: Style) -> String {
    let mut row = Row::default();
    for (text, tone) in pieces {
        row.text(row.cells.len(), text, *tone);
    }
    row.render(style)
}

/// A line under construction.
#[derive(Clone, Debug, Default)]
struct Row {
    cells: Vec<(char, Tone)>,
}

impl Row {
    fn labelled(label: &str) -> Self {
        let mut row = Self::default();
        row.text(INDENT, label, Tone::Plain);
        row
    }

    fn is_taken(&self, place: usize) -> bool {
        self.cells.get(place).is_some_and(|(glyph, _)| *glyph != ' ')
    }

    fn put(&mut self, place: usize, glyph: char, tone: Tone) {
        if self.cells.len() <= place {
            self.cells.resize(place + 1, (' ', Tone::Plain));
        }
        self.cells[place] = (glyph, tone);
    }

    fn text(&mut self, place: usize, text: &str, tone: Tone) {
        for (offset, glyph) in text.chars().enumerate() {
            self.put(place + offset, glyph, tone);
        }
    }

    fn stretch(&mut self, from: usize, to: usize, tone: Tone) {
        for place in from..=to {
            self.put(place, '─', tone);
        }
        self.put(from, '├', tone);
        self.put(to, '┤', tone);
    }

    /// The line without trailing spaces, in the characters and colours that `style` has.
    fn render(&self, style: Style) -> String {
        let length = self.cells.iter().rposition(|(glyph, _)| *glyph != ' ').map_or(0, |last| last + 1);
        let mut text = String::new();
        let mut current = Tone::Plain;
        for &(glyph, tone) in &self.cells[..length] {
            // A blank has no colour to change.
            if style.color && tone != current && glyph != ' ' {
                text.push_str(escape(tone));
                current = tone;
            }
            text.push(if style.unicode { glyph } else { ascii(glyph) });
        }
        if current != Tone::Plain {
            text.push_str(escape(Tone::Plain));
        }
        text
    }
}

fn escape(tone: Tone) -> &'static str {
    match tone {
        Tone::Plain => "\x1b[0m",
        Tone::Strong => "\x1b[0;1m",
        Tone::Faint => "\x1b[0;2m",
        Tone::Allowed => "\x1b[0;32m",
        Tone::Denied => "\x1b[0;31m",
        Tone::Level => "\x1b[0;36m",
    }
}

fn ascii(glyph: char) -> char {
    match glyph {
        '●' => 'o',
        '✗' | '×' => 'x',
        '─' | '–' | '·' => '-',
        '├' | '┤' | '┼' => '+',
        other => other,
    }
}

#[cfg(test)]
#[path = "draw_tests.rs"]
mod tests;
