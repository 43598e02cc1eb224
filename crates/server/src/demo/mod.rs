//! The demonstration: the algorithms over a textbook's figures, drawn on the terminal in virtual time.
//!
//! The book is *System Design Interview: An Insider's Guide*, whose fourth chapter explains rate limiters. The
//! demonstration shows what limits do; it is no tool to try rules with. Its output depends on nothing but its
//! arguments and what the terminal can show.

mod draw;
mod figures;
mod scene;

use std::io::Write;

use draw::{Glyph, Layout, Mark, Strip, Tone};
use figures::{DEPARTURES, FIGURES, Figure, Part, Run};
use scene::{Gauge, Verdict};

pub(crate) use draw::Style;
pub(crate) use figures::Entry;

/// Lines of prose are no longer than this, however wide the terminal is.
const PROSE_WIDTH: usize = 96;

/// Shows every figure, with a word before and after.
pub(crate) fn show_all(style: Style, out: &mut impl Write) -> anyhow::Result<()> {
    opening(style, out)?;
    for entry in &FIGURES {
        show(entry, style, out)?;
    }
    closing(style, out)
}

/// Shows one figure.
pub(crate) fn show(entry: &Entry, style: Style, out: &mut impl Write) -> anyhow::Result<()> {
    let figure = entry.build()?;
    let name = if entry.is_numbered() { format!("Figure {}", entry.id) } else { capitalised(entry.id) };
    let heading = [(name.as_str(), Tone::Strong), (" · ", Tone::Faint), (entry.title, Tone::Strong)];
    writeln!(out, "{}", draw::line(&heading, style))?;
    prose(figure.rule, Tone::Plain, style, out)?;
    writeln!(out)?;
    for line in drawing(&figure, style) {
        writeln!(out, "{line}")?;
    }
    writeln!(out)?;
    prose(&figure.note, Tone::Plain, style, out)?;
    writeln!(out)?;
    Ok(())
}

/// Lists the figures.
pub(crate) fn list(style: Style, out: &mut impl Write) -> anyhow::Result<()> {
    for Entry { id, title, .. } in &FIGURES {
        let id = format!("{id:<13}");
        writeln!(out, "{}", draw::line(&[(&id, Tone::Strong), (title, Tone::Plain)], style))?;
    }
    Ok(())
}

/// The figure of this name, or what to say about it.
pub(crate) fn find(name: &str) -> Result<&'static Entry, String> {
    let wanted = name.to_lowercase().replace("figure", "").replace(['.', '_', ' '], "-");
    let wanted = wanted.trim_matches('-');
    if let Some(entry) = FIGURES.iter().find(|entry| entry.id == wanted) {
        return Ok(entry);
    }
    let nearest = FIGURES.iter().min_by_key(|entry| strsim::damerau_levenshtein(entry.id, wanted));
    let nearest = nearest.map_or("4-4", |entry| entry.id);
    let all: Vec<_> = FIGURES.iter().map(|entry| entry.id).collect();
    Err(format!("there is no such figure; the nearest is {nearest}\n\n  figures: {}", all.join(", ")))
}

fn opening(style: Style, out: &mut impl Write) -> anyhow::Result<()> {
    writeln!(out, "{}", draw::line(&[("tollgate", Tone::Strong), (": how limits decide", Tone::Plain)], style))?;
    let text = "A few scenes on virtual time. An answer depends on the limit, on what it remembers, on the cost and on \
                the instant, and on nothing else, so they come out the same on every run. The numbers are those of the \
                figures in chapter 4 of the book System Design Interview.";
    prose(text, Tone::Plain, style, out)?;
    writeln!(out)?;
    let (level, level_says) = if style.unicode { ("▃", " how full") } else { ("3", " how many") };
    let legend = [
        ("  ", Tone::Plain),
        ("●", Tone::Allowed),
        (" allowed   ", Tone::Plain),
        ("✗", Tone::Denied),
        (" denied   ", Tone::Plain),
        (level, Tone::Level),
        (level_says, Tone::Plain),
    ];
    writeln!(out, "{}\n", draw::line(&legend, style))?;
    Ok(())
}

fn closing(style: Style, out: &mut impl Write) -> anyhow::Result<()> {
    const NEXT: [(&str, &str); 4] = [
        ("tollgate demo 4-9", "one of these by itself"),
        ("tollgate demo --list", "their names"),
        ("tollgate --help", "what else there is"),
        ("scripts/test", "every test of the repository"),
    ];
    writeln!(out, "{}", draw::line(&[("What to try next", Tone::Strong)], style))?;
    for (command, purpose) in NEXT {
        let pieces = [(format!("  {command:<22}"), Tone::Allowed), (purpose.to_owned(), Tone::Plain)];
        let pieces = pieces.each_ref().map(|(text, tone)| (text.as_str(), *tone));
        writeln!(out, "{}", draw::line(&pieces, style))?;
    }
    writeln!(out)?;
    prose("In a checkout, write `cargo run --release --` for `tollgate`.", Tone::Faint, style, out)
}

fn prose(text: &str, tone: Tone, style: Style, out: &mut impl Write) -> anyhow::Result<()> {
    for line in draw::paragraph(text, style.width.min(PROSE_WIDTH), tone, style) {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

fn drawing(figure: &Figure, style: Style) -> Vec<String> {
    let labels = figure.parts.iter().flat_map(Part::labels);
    let longest_label = labels.map(|label| label.chars().count()).max().unwrap_or(0);
    let layout = Layout::new(style.width, figure.axis.clone(), longest_label);
    let strips: Vec<_> = figure
        .parts
        .iter()
        .flat_map(|part| match part {
            Part::Run(run) => strips_of(run, &layout),
            Part::Strip(strip) => vec![strip.clone()],
        })
        .collect();
    draw::strips(&strips, &layout, style)
}

/// The requests of a run, what became of them, and the level beneath.
fn strips_of(run: &Run, layout: &Layout) -> Vec<Strip> {
    let verdicts = scene::judge(&run.limit, &run.arrivals);
    let queued = run.gauge == Gauge::Waiting;
    let mut letters = 'a'..='z';
    let glyphs: Vec<_> = verdicts
        .iter()
        .map(|verdict| match verdict.outcome.allowed {
            true if queued => letters.next().map_or(Glyph::Allowed, Glyph::Named),
            true => Glyph::Allowed,
            false => Glyph::Denied,
        })
        .collect();
    let marks = verdicts.iter().zip(&glyphs).map(|(verdict, &glyph)| Mark { at: verdict.at, glyph }).collect();
    let departing = |(verdict, &glyph): (&Verdict, &Glyph)| Some(Mark { at: verdict.departure()?, glyph });
    let departures = verdicts.iter().zip(&glyphs).filter_map(departing).collect();
    let values = scene::levels(&run.limit, &run.arrivals, run.gauge, &layout.instants());
    let mut strips = vec![
        Strip::Marks { label: run.label.into(), marks, tally: tally(&verdicts) },
        Strip::Levels { label: run.gauge_label.into(), values, full: run.full },
    ];
    if queued {
        strips.push(Strip::Marks { label: DEPARTURES.into(), marks: departures, tally: String::new() });
    }
    strips
}

fn capitalised(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(letters).collect()
}

fn tally(verdicts: &[Verdict]) -> String {
    let allowed = verdicts.iter().filter(|verdict| verdict.outcome.allowed).count();
    format!("{allowed} of {}", verdicts.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_however_they_are_written() {
        for name in ["4-9", "4.9", "figure 4-9", "Figure4-9", "figure-4_9"] {
            assert_eq!(find(name).map(|entry| entry.id), Ok("4-9"), "{name}");
        }
        assert_eq!(find("Pacing").map(|entry| entry.id), Ok("pacing"));
    }

    #[test]
    fn an_unknown_figure_is_answered_with_the_nearest_and_the_list() {
        let said = find("concurency").unwrap_err();
        assert!(said.contains("the nearest is concurrency"), "{said}");
        assert!(said.contains("4-4, 4-6, 4-7, 4-8, 4-9, 4-10, 4-11, concurrency, pacing"), "{said}");
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        for width in [60, 80, 100, 120, 160] {
            let style = Style { width, unicode: true, color: false };
            let mut page = Vec::new();
            show_all(style, &mut page).unwrap();
            let page = String::from_utf8(page).unwrap();
            let widest = page.lines().map(|line| line.chars().count()).max().unwrap();
            assert!(widest <= width, "{widest} characters on a terminal of {width}");
        }
    }

    #[test]
    fn ascii_means_ascii() {
        let mut page = Vec::new();
        show_all(Style { width: 80, unicode: false, color: false }, &mut page).unwrap();
        assert!(page.is_ascii());
    }
}
