//! Reading a mapping by the table of its fields: what is unknown, misplaced, written twice or of the wrong kind is told
//! here.

use tollgate_core::{MAX_INTEGER, Micros};

use super::Lowering;
use super::scalar::Scalar;
use crate::diagnostic::Diagnostic;
use crate::grammar::{Choice, Dialect, Fields, PLACES, Place, Shape, Slot, Written};
use crate::model::Unit;
use crate::nearest::one_of;
use crate::shorthand::{self, Wrong};
use crate::yaml::{Kind, Node};

impl Lowering<'_> {
    /// The fields of the mapping `node`.
    pub(super) fn fields<'a, F: Fields<'a>>(&mut self, node: &'a Node) -> Option<F> {
        let mut fields = F::default();
        self.add_fields(node, &mut fields, None)?;
        Some(fields)
    }

    /// A mapping's own fields come before those that it merges. If this is what one merges, `merged` are those that it
    /// has written before.
    fn add_fields<'a, F: Fields<'a>>(
        &mut self,
        node: &'a Node,
        fields: &mut F,
        merged: Option<&[(Node, Node)]>,
    ) -> Option<()> {
        let Kind::Map(items) = node.kind() else {
            let place = F::place();
            let names: Vec<&str> = place.fields().take(3).map(|field| field.name).collect();
            let message = format!("expected a mapping, found {}", node.describe());
            let first = node.text().and_then(|text| text.split_once(':'));
            let help = match first.filter(|(name, _)| place.field(name).is_some()) {
                Some((name, _)) => format!("put a space after each colon: `{name}: …`"),
                None => format!("write fields here, such as {}", one_of(names)),
            };
            self.error("wrong-type", node.spot(), message, help);
            return None;
        };
        let mut has_merges = false;
        for (key, value) in items {
            if is_merge(key) {
                has_merges = true;
                continue;
            }
            let written = Written { key, value };
            let Some(slot) = key.text().and_then(|name| fields.slot(name)) else {
                self.unknown(F::place(), key);
                continue;
            };
            match slot {
                // What is written here outranks what is merged.
                Some(first) if let Some(before) = merged => {
                    let first_start = first.key.span.start;
                    let place = before.binary_search_by_key(&first_start, |(known, _)| known.span.start).ok();
                    let is_before =
                        place.and_then(|at| before.get(at)).is_some_and(|(known, _)| known.span == first.key.span);
                    if is_before && F::place().dialect == Dialect::Lyft && value.text() != first.value.text() {
                        let first = first.key;
                        self.merged_later(first, key);
                    }
                }
                Some(first) => {
                    let first = first.key;
                    *slot = Some(written).filter(|_| !value.is_null());
                    self.twice(F::place().dialect, key, first);
                }
                None => *slot = Some(written).filter(|_| !value.is_null()),
            }
        }
        if has_merges {
            for (at, (_, value)) in items.iter().enumerate().filter(|(_, (key, _))| is_merge(key)) {
                let before = merged.or_else(|| items.get(..at));
                match value.kind() {
                    Kind::List(maps) => maps.iter().for_each(|map| {
                        self.add_fields(map, fields, before);
                    }),
                    _ => self.add_fields(value, fields, before).unwrap_or_default(),
                }
            }
        }
        Some(())
    }

    /// To envoyproxy/ratelimit, what is merged outranks what is written before it.
    fn merged_later(&mut self, own: &Node, merged: &Node) {
        let name = own.describe();
        let message =
            format!("{name} counts as it is written here; envoyproxy/ratelimit takes what is merged after it");
        let warning =
            Diagnostic::warning("duplicate-field", own.span, message).related(merged.span, "merged from here");
        self.say(warning.help("write `<<` before it, and both read it alike"));
    }

    pub(super) fn twice(&mut self, dialect: Dialect, key: &Node, first: &Node) {
        let name = key.describe();
        let diagnostic = match dialect {
            Dialect::Lyft => {
                Diagnostic::warning("duplicate-field", key.span, format!("{name} is written twice; this one counts"))
            }
            Dialect::Own => Diagnostic::error("duplicate-field", key.span, format!("{name} is written twice")),
        };
        self.say(diagnostic.related(first.span, "first here").help("remove one of them"));
    }

    /// A key that is no field of `place`: where it belongs, or what was meant.
    fn unknown(&mut self, place: &'static Place, key: &Node) {
        let Some(name) = key.text() else {
            return self.error(
                "wrong-type",
                key.spot(),
                "a field has a name, not a list or a mapping",
                "write one word",
            );
        };
        if place.name == "file" && name.starts_with("x-") {
            return;
        }
        if !matches!(key.scalar(), Some(Scalar::Text(_))) {
            let message = format!("config error, key is not of type string: {name}");
            return self.error("unknown-field", key.span, message, field_list(place));
        }
        if let Some((message, help)) = home_of(name, place) {
            return self.error("misplaced-field", key.span, message, help);
        }
        let shown = key.describe();
        let names = place.fields().flat_map(|field| [Some(field.name), field.alias]).flatten();
        let help = match self.nearest(name, names) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None if self.diagnostics.is_full() => String::new(),
            None => {
                match self.nearest(name, PLACES.iter().flat_map(|place| place().fields()).map(|field| field.name)) {
                    Some(meant) => match home_of(meant, place) {
                        Some((message, _)) => format!("did you mean `{meant}`? {message}"),
                        None => field_list(place),
                    },
                    None => field_list(place),
                }
            }
        };
        self.error("unknown-field", key.span, format!("unknown field {shown}"), help);
    }

    /// The items of a list.
    pub(super) fn list<'a>(&mut self, node: &'a Node) -> &'a [Node] {
        match node.kind() {
            Kind::List(items) => items,
            _ => {
                let help = "begin each item with `- `";
                self.error("wrong-type", node.spot(), format!("expected a list, found {}", node.describe()), help);
                &[]
            }
        }
    }

    /// The items of a list, or the one thing that is no list.
    pub(super) fn one_or_more<'a>(&mut self, node: &'a Node) -> &'a [Node] {
        match node.kind() {
            Kind::List(items) => items,
            _ => std::slice::from_ref(node),
        }
    }

    /// What a field says; `otherwise` if it says nothing, and also where it is wrong: whoever uses it looks for errors.
    pub(super) fn or<T>(
        &mut self,
        slot: Slot<'_>,
        otherwise: T,
        read: impl FnOnce(&mut Self, &Node) -> Option<T>,
    ) -> T {
        slot.and_then(|written| read(self, written.value)).unwrap_or(otherwise)
    }

    /// Whether a field is there and true.
    pub(super) fn is_set(&mut self, slot: Slot<'_>) -> bool {
        self.or(slot, false, Self::flag)
    }

    /// What a word stands for.
    pub(super) fn choice<T: Copy>(&mut self, choice: &Choice<T>, node: &Node) -> Option<T> {
        self.choice_or(choice, node, &[])
    }

    /// What a word stands for, where something else than a word could be written too: `others`.
    pub(super) fn choice_or<T: Copy>(&mut self, choice: &Choice<T>, node: &Node, others: &[&'static str]) -> Option<T> {
        let words = || choice.0.iter().map(|(word, ..)| *word);
        let text = node.text().filter(|_| !node.is_null());
        if let Some((_, value, _)) = choice.0.iter().find(|(word, ..)| Some(*word) == text) {
            return Some(*value);
        }
        let help = match text.and_then(|text| self.nearest(text, words())) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => format!("write {}", one_of(words().chain(others.iter().copied()))),
        };
        self.error(
            "unknown-word",
            node.spot(),
            format!("expected {}, found {}", one_of(words()), node.describe()),
            help,
        );
        None
    }

    /// A length of time.
    pub(super) fn time(&mut self, node: &Node) -> Option<Micros> {
        let text = match node.scalar() {
            Some(Scalar::Text(text)) => text,
            Some(Scalar::Integer(_) | Scalar::Float(_)) => node.text()?,
            _ => {
                self.wrong_type(node, "a length of time such as `30s`");
                return None;
            }
        };
        self.understood("time", node, shorthand::duration(text))
    }

    /// A length of time that is longer than none.
    pub(super) fn some_time(&mut self, node: &Node) -> Option<Micros> {
        let time = self.time(node)?;
        if time.is_zero() {
            self.error("time", node.span, "this is no time at all", "write at least `1us`, or leave it out");
            return None;
        }
        Some(time)
    }

    /// How many: a number, with a multiplier or a unit of data if one likes.
    pub(super) fn count(&mut self, node: &Node) -> Option<u64> {
        match node.scalar() {
            Some(Scalar::Text(text)) if text.starts_with(|first: char| first.is_ascii_digit()) => {
                if matches!(node.kind(), Kind::Scalar { quoted: true, .. })
                    && text.bytes().all(|byte| byte.is_ascii_digit())
                {
                    return self.integer(node, 0, MAX_INTEGER);
                }
                let (amount, unit) = self.understood("amount", node, shorthand::amount(text))?;
                if matches!(&unit, Unit::Named(name) if &**name != "bytes") {
                    let message = "what is counted is said by the rate";
                    self.error("amount", node.span, message, "write the number only");
                    return None;
                }
                Some(amount)
            }
            _ => self.integer(node, 0, MAX_INTEGER),
        }
    }

    /// What was read, or the mistake told.
    pub(super) fn understood<T>(&mut self, code: &'static str, node: &Node, read: Result<T, Wrong>) -> Option<T> {
        match read {
            Ok(value) => Some(value),
            Err(wrong) => {
                self.wrong(code, node, wrong);
                None
            }
        }
    }
}

/// Whether this is YAML's key for taking over another mapping's fields.
pub(super) fn is_merge(key: &Node) -> bool {
    matches!(key.kind(), Kind::Scalar { text, quoted: false } if &**text == "<<")
}

fn field_list(place: &Place) -> String {
    let names: Vec<&str> = place.fields().map(|field| field.name).collect();
    if names.len() == 1 {
        format!("the only field here is `{}`", names.concat())
    } else {
        format!("fields here are {}", one_of(names))
    }
}

/// Where a field belongs that is not of `place`, and what to do. `None` if it is one of its fields, or none at all.
fn home_of(name: &str, place: &'static Place) -> Option<(String, String)> {
    if place.field(name).is_some() {
        return None;
    }
    let homes = || PLACES.iter().map(|home| home()).filter(|home| home.field(name).is_some());
    let above = homes().find_map(|home| home.holds(place));
    if let Some(holder) = above {
        if homes().any(|home| home.name == "file") {
            let message = format!("`{name}` belongs at the top of the file, not {}", place.whereabouts);
            return Some((message, format!("move it out, beside `{holder}`")));
        }
        let message = format!("`{name}` belongs beside `{holder}`, not in it");
        return Some((message, "move it out, one level up".to_owned()));
    }
    // What both ways to write rules have is shown in the plainer one.
    let below = || homes().filter_map(|home| place.holds(home));
    if let Some(holder) = below().find(|holder| *holder == "rules").or_else(|| below().next()) {
        let message = format!("`{name}` belongs inside `{holder}`, not beside it");
        let is_list = place.field(holder).is_some_and(|field| matches!(field.shape, Shape::List(_)));
        let (open, close) = if is_list { ("[", "]") } else { ("", "") };
        return Some((message, format!("write `{holder}: {open}{{{name}: …}}{close}`")));
    }
    let home = homes().next()?;
    let message = format!("`{name}` belongs {}, not {}", home.whereabouts, place.whereabouts);
    Some((message, format!("move it, or remove it; {}", field_list(place))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_belongs_where_it_is() {
        let names = PLACES.iter().flat_map(|place| place().fields()).flat_map(|field| [Some(field.name), field.alias]);
        for name in names.flatten() {
            for place in PLACES.map(|place| place()) {
                let Some((message, _)) = home_of(name, place) else { continue };
                assert!(place.field(name).is_none(), "{name} {}: {message}", place.whereabouts);
                assert!(!message.contains(&format!("belongs {}", place.whereabouts)), "{message}");
            }
        }
    }

    #[test]
    fn other_names_of_a_field_are_meant_as_well() {
        for (written, meant) in [("pth", "path"), ("hots", "hosts"), ("metod", "method"), ("pahts", "paths")] {
            let text = format!("routes:\n  - {{name: a, {written}: /x, upstream: 'http://a'}}\n");
            let parsed = crate::parse(vec![crate::Source::new("a", text)]);
            let told: Vec<_> = parsed.diagnostics.iter().filter_map(|problem| problem.help.as_deref()).collect();
            assert_eq!(told, [format!("did you mean `{meant}`?")], "{written}");
        }
    }
}
