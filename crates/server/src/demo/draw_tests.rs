//! Drawings against what they should look like.

use super::Glyph::{Allowed, Denied, Named};
use super::*;

const PLAIN: Style = Style { width: 60, unicode: false, color: false };
const UNICODE: Style = Style { unicode: true, ..PLAIN };
const COLORED: Style = Style { color: true, ..UNICODE };

fn at(second: u64) -> Timestamp {
    Timestamp::from_secs(1_000 + second)
}

/// Forty seconds over forty columns.
fn layout() -> Layout {
    let ticks = [0, 20, 40].map(|second| (at(second), format!("{second}s"))).into();
    Layout::new(60, Axis { from: at(0), to: at(40), ticks }, 6)
}

fn marks(glyphs: &[(u64, Glyph)]) -> Strip {
    let marks = glyphs.iter().map(|&(second, glyph)| Mark { at: at(second), glyph }).collect();
    Strip::Marks { label: "asked".into(), marks, tally: "3 of 5".into() }
}

fn picture(strips: &[Strip], style: Style) -> String {
    let lines = super::strips(strips, &layout(), style);
    lines.iter().map(|line| format!("\n{line}")).collect()
}

#[test]
fn marks_of_one_column_are_stacked_above_the_axis() {
    let asked = marks(&[(0, Allowed), (10, Allowed), (10, Allowed), (10, Denied), (20, Denied)]);
    let expected = "
                    x
                    o
  asked   o         o         x                     3 of 5
          +-------------------+------------------+
         0s                  20s                40s";
    assert_eq!(picture(&[asked, Strip::Axis], PLAIN), expected);
}

#[test]
fn unicode_has_its_own_marks_and_lines() {
    let asked = marks(&[(1, Allowed), (2, Denied), (3, Named('c'))]);
    let expected = "
  asked    ●✗c                                      3 of 5
          ├───────────────────┼──────────────────┤
         0s                  20s                40s";
    assert_eq!(picture(&[asked, Strip::Axis], UNICODE), expected);
}

#[test]
fn levels_are_blocks_or_digits() {
    let values: Vec<u64> = (0..40).map(|column| column / 8).collect();
    let tokens = Strip::Levels { label: "tokens".into(), values, full: 4 };
    let expected = "
  tokens  ········▂▂▂▂▂▂▂▂▄▄▄▄▄▄▄▄▆▆▆▆▆▆▆▆████████  of 4";
    assert_eq!(picture(std::slice::from_ref(&tokens), UNICODE), expected);
    let expected = "
  tokens  0000000011111111222222223333333344444444  of 4";
    assert_eq!(picture(&[tokens], PLAIN), expected);
}

#[test]
fn a_level_above_nine_is_scaled_to_one_digit_and_only_nothing_is_zero() {
    let spent = Strip::Levels { label: "spent".into(), values: vec![0, 1, 50, 99, 100, 250], full: 100 };
    let expected = "
  spent   015999                                    of 100";
    assert_eq!(picture(&[spent], PLAIN), expected);
}

#[test]
fn spans_end_before_their_remark_and_stay_open_at_the_end_of_the_axis() {
    let span = |label: &str, from, to, remark: &str| Strip::Span {
        label: label.into(),
        from: at(from),
        to: at(to),
        remark: remark.into(),
    };
    let refusal = Strip::Refusal { label: "c".into(), at: at(12), remark: "denied".into() };
    let bracket = Strip::Bracket { from: at(10), to: at(30), remark: "a while".into() };
    let tight = Strip::Bracket { from: at(10), to: at(14), remark: "a moment".into() };
    let expected = "
  a            +---------+ done
  b                           +-------------------
  c                   x denied

                    +----- a while -----+
                    +---+ a moment";
    let strips = [span("a", 5, 15, "done"), span("b", 20, 40, ""), refusal, Strip::Gap, bracket, tight];
    assert_eq!(picture(&strips, PLAIN), expected);
}

#[test]
fn names_that_would_overlap_are_left_out() {
    let ticks = [0, 2, 20].map(|second| (at(second), format!("1:00:{second:02}"))).into();
    let layout = Layout::new(60, Axis { from: at(0), to: at(40), ticks }, 6);
    let lines = strips(&[Strip::Axis], &layout, PLAIN);
    assert_eq!(lines[0], "          +-+-----------------+-------------------");
    assert_eq!(lines[1], "       1:00:00             1:00:20");
}

#[test]
fn a_narrow_terminal_still_gets_a_drawing() {
    let layout = Layout::new(10, Axis { from: at(0), to: at(40), ticks: vec![] }, 6);
    assert_eq!(strips(&[Strip::Axis], &layout, PLAIN)[0], format!("          {}", "-".repeat(24)));
}

#[test]
fn levels_are_asked_for_at_the_end_of_each_column() {
    let instants = layout().instants();
    assert_eq!(instants.len(), 40);
    assert_eq!(instants[0], Timestamp::from_micros(at(1).as_micros() - 1));
    assert_eq!(instants[39], Timestamp::from_micros(at(40).as_micros() - 1));
}

#[test]
fn colours_change_only_where_there_is_something_to_see() {
    let text = line(&[("a ", Tone::Allowed), ("b", Tone::Allowed), ("  ", Tone::Denied), ("c", Tone::Plain)], COLORED);
    assert_eq!(text, "\x1b[0;32ma b  \x1b[0mc");
    assert_eq!(line(&[("d", Tone::Denied), ("  ", Tone::Plain)], COLORED), "\x1b[0;31md\x1b[0m");
    assert_eq!(line(&[("d", Tone::Denied)], UNICODE), "d");
}

#[test]
fn paragraphs_break_between_words_and_keep_long_ones_whole() {
    let lines = paragraph("a limit of 5 × 2 per unbelievably-long-unit", 16, Tone::Plain, PLAIN);
    assert_eq!(lines, ["  a limit of 5 x", "  2 per", "  unbelievably-long-unit"]);
}
