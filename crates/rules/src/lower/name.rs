//! Names for rules of tollgate's own that were given none.
//!
//! Their counters are known by them, so rules of different entries have different ones: `shop.plan=free.user`. What
//! could be taken for something else is put in quotes.

use crate::model::{Entry, KeyPattern};
use crate::pattern::{Glob, Pattern};

/// The domain, then each key and which values of it.
pub(super) fn made_up(domain: &str, entries: &[Entry]) -> String {
    let mut name = domain.to_owned();
    for entry in entries {
        name.push('.');
        match &entry.key {
            KeyPattern::Exact(key) => push_word(&mut name, key),
            KeyPattern::Glob(key) => push_glob(&mut name, key),
        }
        if entry.value != Pattern::Any {
            name.push('=');
            push_pattern(&mut name, &entry.value);
        }
    }
    name
}

fn push_pattern(name: &mut String, pattern: &Pattern) {
    match pattern {
        Pattern::Any => name.push_str("(any)"),
        Pattern::Exact(value) => push_word(name, value),
        Pattern::OneOf(values) => push_list(name, ['[', ']'], values, |name, value| push_word(name, value)),
        Pattern::AnyOf(patterns) => push_list(name, ['[', ']'], patterns, push_pattern),
        Pattern::Networks(networks) => {
            push_list(name, ['(', ')'], networks, |name, network| name.push_str(&network.to_string()));
        }
        Pattern::Glob(glob) => push_glob(name, glob),
        Pattern::Not(pattern) => {
            name.push('!');
            push_pattern(name, pattern);
        }
    }
}

fn push_list<T>(name: &mut String, [open, close]: [char; 2], items: &[T], push: impl Fn(&mut String, &T)) {
    name.push(open);
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            name.push(',');
        }
        push(name, item);
    }
    name.push(close);
}

fn push_glob(name: &mut String, glob: &Glob) {
    let text = glob.to_string();
    if Glob::parse(&text).as_ref() != Some(glob) {
        // Only a prefix has stars that stand for themselves.
        name.push_str("(prefix)");
        return push_word(name, glob.head());
    }
    for (index, literal) in text.split('*').enumerate() {
        if index > 0 {
            name.push('*');
        }
        if !literal.is_empty() {
            push_word(name, literal);
        }
    }
}

fn push_word(name: &mut String, word: &str) {
    let means_something = |character: char| " .=*!,()[]\"\\".contains(character) || character.is_control();
    if !word.is_empty() && !word.contains(means_something) {
        return name.push_str(word);
    }
    name.push('"');
    for character in word.chars() {
        match character {
            '"' | '\\' => name.extend(['\\', character]),
            character if character.is_control() => name.extend(character.escape_default()),
            character => name.push(character),
        }
    }
    name.push('"');
}
