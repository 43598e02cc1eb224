//! What a word without quotes is: nothing, a truth value, a number, or text.
//!
//! The rules are those that envoyproxy/ratelimit reads files by (YAML 1.1 as Go's library has it: `yes` is true, `010`
//! is eight), so that a file means the same in both. Quotes make everything text.

use serde_json::{Map, Number, Value};

use super::Lowering;
use crate::yaml::{Kind, Node};

/// A scalar's meaning.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Scalar<'t> {
    Null,
    Flag(bool),
    Integer(i128),
    Float(f64),
    Text(&'t str),
}

/// What `text` means without quotes.
pub(super) fn resolve(text: &str) -> Scalar<'_> {
    let Some(first) = text.bytes().next() else { return Scalar::Null };
    match first {
        b'0'..=b'9' | b'+' | b'-' | b'.' => number(text).unwrap_or(Scalar::Text(text)),
        _ => match text {
            "~" | "null" | "Null" | "NULL" => Scalar::Null,
            "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => Scalar::Flag(true),
            "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => Scalar::Flag(false),
            _ => Scalar::Text(text),
        },
    }
}

fn number(text: &str) -> Option<Scalar<'static>> {
    // Longer ones are numbers to nobody.
    if text.len() > 400 {
        return None;
    }
    match text {
        ".nan" | ".NaN" | ".NAN" => return Some(Scalar::Float(f64::NAN)),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => return Some(Scalar::Float(f64::INFINITY)),
        "-.inf" | "-.Inf" | "-.INF" => return Some(Scalar::Float(f64::NEG_INFINITY)),
        _ => {}
    }
    let plain = text.replace('_', "");
    let (sign, digits) = match plain.strip_prefix(['+', '-']) {
        Some(digits) => (if plain.starts_with('-') { -1 } else { 1 }, digits),
        None => (1, plain.as_str()),
    };
    let prefixed = |prefixes: [&str; 2]| prefixes.iter().find_map(|prefix| digits.strip_prefix(prefix));
    let (radix, rest) = if let Some(rest) = prefixed(["0x", "0X"]) {
        (16, rest)
    } else if let Some(rest) = prefixed(["0o", "0O"]) {
        (8, rest)
    } else if let Some(rest) = prefixed(["0b", "0B"]) {
        (2, rest)
    } else if digits.len() > 1 && digits.starts_with('0') {
        (8, digits)
    } else {
        (10, digits)
    };
    if rest.starts_with(|first: char| first.is_ascii_alphanumeric())
        && let Ok(value) = i128::from_str_radix(rest, radix)
        && let value = value * sign
        && (i128::from(i64::MIN)..=i128::from(u64::MAX)).contains(&value)
    {
        return Some(Scalar::Integer(value));
    }
    let is_float = digits.starts_with(|first: char| first.is_ascii_digit() || first == '.')
        && digits.contains(|character: char| character.is_ascii_digit())
        && digits
            .chars()
            .all(|character| character.is_ascii_digit() || matches!(character, '.' | 'e' | 'E' | '+' | '-'));
    if is_float { plain.parse().ok().map(Scalar::Float) } else { None }
}

impl Node {
    /// A scalar's meaning; `None` for lists and mappings.
    pub(super) fn scalar(&self) -> Option<Scalar<'_>> {
        match self.kind() {
            Kind::Scalar { text, quoted: true } => Some(Scalar::Text(text)),
            Kind::Scalar { text, quoted: false } => Some(resolve(text)),
            _ => None,
        }
    }
}

/// A value as JSON; the node that has no place there, and why.
pub(crate) fn to_json(node: &Node) -> Result<Value, (&Node, &'static str)> {
    Ok(match node.kind() {
        Kind::List(items) => Value::Array(items.iter().map(to_json).collect::<Result<_, _>>()?),
        Kind::Map(_) => {
            let mut map = Map::new();
            fill(&mut map, node, false)?;
            Value::Object(map)
        }
        _ => match node.scalar() {
            None | Some(Scalar::Null) => Value::Null,
            Some(Scalar::Flag(flag)) => Value::Bool(flag),
            Some(Scalar::Integer(integer)) => match i64::try_from(integer) {
                Ok(integer) => integer.into(),
                Err(_) => u64::try_from(integer).unwrap_or(u64::MAX).into(),
            },
            Some(Scalar::Float(float)) => {
                Number::from_f64(float).map(Value::Number).ok_or((node, "JSON has no such number"))?
            }
            Some(Scalar::Text(text)) => text.into(),
        },
    })
}

/// Puts the fields of a mapping into `map`: the last of equal ones, and merged ones where there is none.
fn fill<'a>(map: &mut Map<String, Value>, node: &'a Node, merged: bool) -> Result<(), (&'a Node, &'static str)> {
    let Kind::Map(items) = node.kind() else { return Err((node, "only mappings can be merged")) };
    let is_merge = |key: &Node| matches!(key.kind(), Kind::Scalar { text, quoted: false } if &**text == "<<");
    for (key, value) in items.iter().filter(|(key, _)| !is_merge(key)) {
        let Some(Scalar::Text(name)) = key.scalar() else { return Err((key, "keys are text; quote it")) };
        if !merged || !map.contains_key(name) {
            map.insert(name.to_owned(), to_json(value)?);
        }
    }
    for (_, value) in items.iter().filter(|(key, _)| is_merge(key)) {
        match value.kind() {
            Kind::List(maps) => maps.iter().try_for_each(|item| fill(map, item, true))?,
            _ => fill(map, value, true)?,
        }
    }
    Ok(())
}

impl Lowering<'_> {
    /// Text, or what is as good as text. Fractions are refused: `1.10` is a number to some and a version to others.
    pub(super) fn text<'a>(&mut self, node: &'a Node) -> Option<&'a str> {
        let wanted = match node.scalar() {
            Some(Scalar::Text(_) | Scalar::Flag(_)) => return node.text(),
            Some(Scalar::Integer(integer)) if i64::try_from(integer).is_ok() => return node.text(),
            Some(Scalar::Integer(_) | Scalar::Float(_)) => {
                let text = node.text().unwrap_or_default();
                let message = format!("{} is a number that can be read in more than one way", node.describe());
                self.error("number-as-text", node.span, message, format!("quote it: \"{}\"", text.escape_debug()));
                return None;
            }
            Some(Scalar::Null) | None => "text",
        };
        self.wrong_type(node, wanted);
        None
    }

    pub(super) fn flag(&mut self, node: &Node) -> Option<bool> {
        match node.scalar() {
            Some(Scalar::Flag(flag)) => Some(flag),
            Some(Scalar::Text(text)) if matches!(resolve(text), Scalar::Flag(_)) => {
                self.quoted(node, text);
                None
            }
            _ => {
                self.wrong_type(node, "`true` or `false`");
                None
            }
        }
    }

    /// A whole number from `least` to `most`.
    pub(super) fn integer(&mut self, node: &Node, least: u64, most: u64) -> Option<u64> {
        let range = i128::from(least)..=i128::from(most);
        match node.scalar() {
            Some(Scalar::Integer(integer)) if range.contains(&integer) => return u64::try_from(integer).ok(),
            Some(Scalar::Integer(_) | Scalar::Float(_)) => {
                let message = format!("{} is not a whole number from {least} to {most}", node.describe());
                self.error("out-of-range", node.span, message, "write a number in that range");
            }
            Some(Scalar::Text(text)) if matches!(resolve(text), Scalar::Integer(_)) => self.quoted(node, text),
            _ => self.wrong_type(node, "a whole number"),
        }
        None
    }

    /// Something other than text, were it not for its quotes.
    fn quoted(&mut self, node: &Node, text: &str) {
        let message = format!("\"{text}\" is text because of its quotes");
        self.error("wrong-type", node.span, message, format!("write {text} without quotes"));
    }

    pub(super) fn wrong_type(&mut self, node: &Node, wanted: &str) {
        let message = format!("expected {wanted}, found {}", node.describe());
        self.error("wrong-type", node.spot(), message, format!("write {wanted} here"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_without_quotes_mean_what_they_mean_upstream() {
        for (text, meaning) in [
            ("", Scalar::Null),
            ("~", Scalar::Null),
            ("yes", Scalar::Flag(true)),
            ("Off", Scalar::Flag(false)),
            ("oN", Scalar::Text("oN")),
            ("1", Scalar::Integer(1)),
            ("-1", Scalar::Integer(-1)),
            ("+1_000", Scalar::Integer(1000)),
            ("0x10", Scalar::Integer(16)),
            ("010", Scalar::Integer(8)),
            ("0b11", Scalar::Integer(3)),
            ("08", Scalar::Float(8.0)),
            ("1.5", Scalar::Float(1.5)),
            ("1e3", Scalar::Float(1000.0)),
            (".5", Scalar::Float(0.5)),
            ("18446744073709551615", Scalar::Integer(18_446_744_073_709_551_615)),
            ("18446744073709551616", Scalar::Float(18_446_744_073_709_551_616.0)),
            (".inf", Scalar::Float(f64::INFINITY)),
            ("1.2.3", Scalar::Text("1.2.3")),
            ("10.0.0.1", Scalar::Text("10.0.0.1")),
            ("5/s", Scalar::Text("5/s")),
            ("-", Scalar::Text("-")),
            (".", Scalar::Text(".")),
            ("2001-01-01", Scalar::Text("2001-01-01")),
            ("--1", Scalar::Text("--1")),
            ("infinity", Scalar::Text("infinity")),
        ] {
            assert_eq!(resolve(text), meaning, "{text}");
        }
    }
}
