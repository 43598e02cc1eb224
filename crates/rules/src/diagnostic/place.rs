//! From counted characters to bytes, lines and columns, without reading a file again for every problem in it.
//!
//! One pass notes where it is every few kilobytes; a place is then found by reading on from the note before it. Lines
//! end with `\n`, which covers `\r\n`.

use super::{Diagnostics, Source, Span};

/// How many bytes are between two notes, at least.
const STEP: usize = 4 << 10;

/// A place in a text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// How many bytes are before it.
    pub(super) byte: usize,
    characters: usize,
    /// From 1.
    pub(super) line: usize,
    /// Where its line begins, in bytes and in characters.
    pub(super) line_byte: usize,
    line_characters: usize,
}

impl Place {
    const START: Self = Self { byte: 0, characters: 0, line: 1, line_byte: 0, line_characters: 0 };

    /// Line and column, both from 1.
    pub(super) fn position(&self) -> (usize, usize) {
        (self.line, self.characters - self.line_characters + 1)
    }

    fn pass(&mut self, character: char) {
        self.byte += character.len_utf8();
        self.characters += 1;
        if character == '\n' {
            self.line += 1;
            self.line_byte = self.byte;
            self.line_characters = self.characters;
        }
    }
}

/// Notes of places in one text, in order.
#[derive(Clone, Debug)]
pub(super) struct Lines {
    notes: Vec<Place>,
}

impl Lines {
    pub(super) fn new(text: &str) -> Self {
        let mut notes = vec![Place::START];
        let mut here = Place::START;
        let mut next = STEP;
        for character in text.chars() {
            if here.byte >= next {
                notes.push(here);
                next = here.byte + STEP;
            }
            here.pass(character);
        }
        Self { notes }
    }

    /// The place before which there are so many characters, or the end of `text`, which has to be the one of these
    /// notes.
    fn find(&self, text: &str, characters: usize) -> Place {
        let after = self.notes.partition_point(|note| note.characters <= characters);
        let mut here = after.checked_sub(1).and_then(|before| self.notes.get(before)).copied().unwrap_or(Place::START);
        for character in text[here.byte..].chars().take(characters - here.characters) {
            here.pass(character);
        }
        here
    }
}

impl Diagnostics {
    /// The source of a span, where the span begins, and where it ends without the white space there.
    pub(super) fn locate(&self, span: Span) -> Option<(&Source, Place, Place)> {
        let number = span.source as usize;
        let (source, lines) = self.sources.get(number).zip(self.lines.get(number))?;
        let lines = lines.get_or_init(|| Lines::new(&source.text));
        let start = lines.find(&source.text, span.start as usize);
        let end = lines.find(&source.text, span.end.max(span.start) as usize);
        let blank = source.text[start.byte..end.byte].chars().rev().take_while(|last| last.is_whitespace()).count();
        let end = lines.find(&source.text, (end.characters - blank).max(start.characters));
        Some((source, start, end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_those_of_counting_from_the_start() {
        let line = "é\tüber\r\n\n日本 x\n";
        let text = line.repeat(3 * STEP / line.len());
        let lines = Lines::new(&text);
        assert!(lines.notes.len() >= 3);
        let mut counted = Place::START;
        for (number, character) in text.chars().enumerate() {
            let found = lines.find(&text, number);
            assert_eq!((found.byte, found.position()), (counted.byte, counted.position()), "{number}");
            counted.pass(character);
        }
        for beyond in [text.chars().count(), usize::MAX] {
            assert_eq!(lines.find(&text, beyond).position(), counted.position());
        }
        assert_eq!(Lines::new("").find("", 7).position(), (1, 1));
    }
}
