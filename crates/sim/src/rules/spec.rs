//! Arbitrary rule sets: plain descriptions of rules, and the text that says the same.
//!
//! Keys, values and patterns come from small alphabets, so that rules meet, shadow and contradict one another. Two
//! rules at one place are refused by the language and are not drawn.

use std::collections::HashSet;
use std::fmt::Write;

use super::model::{address, is_glob};
use crate::laws::Source;

/// The domain of all rules.
pub const DOMAIN: &str = "d";

const KEYS: [&str; 7] = ["a", "b", "c", "a_b", "ip", "longer_key", "a_very_long_key_indeed"];
const KEY_GLOBS: [&str; 4] = ["a*", "*", "*_b", "*e*y*"];
const TEXTS: [&str; 18] = [
    "",
    "x",
    "y",
    "xy",
    "xyx",
    "x_y",
    "abcd",
    "abcdefgh",
    "abcdefgi",
    "abcdefghijklmnop_q",
    "10.0.0.1",
    "10.1.0.1",
    "::ffff:10.0.0.1",
    "2001:db8::1",
    "2001:db8:0:1::1",
    "[2001:db8::2]",
    "fe80::1%eth0",
    "é",
];
const GLOBS: [&str; 10] = ["x*", "*x", "x*x", "*y*", "*", "**", "x*y*x", "10.*", "abcd*", "*é"];
const NETWORKS: [(&str, u8); 10] = [
    ("10.0.0.0", 8),
    ("10.0.0.0", 16),
    ("10.0.0.1", 32),
    ("0.0.0.0", 0),
    ("2001:db8::", 32),
    ("2001:db8::", 64),
    ("::", 0),
    ("::ffff:0:0", 96),
    ("2001:db8::1", 128),
    ("::ffff:10.0.0.0", 104),
];

/// A rule set, described and written.
#[derive(Debug, Default)]
pub struct Spec {
    /// In the order of the files.
    pub rules: Vec<Rule>,
    /// The files.
    pub files: Vec<String>,
    taken: HashSet<String>,
    /// Whether rules of this file that say nothing else are shadows.
    is_shadow: bool,
}

/// What is to be known of one rule.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Tells it from the others.
    pub name: String,
    /// The way to it.
    pub entries: Vec<Entry>,
    /// Groups of conditions under which it does not apply, those of its file included.
    pub unless: Vec<Group>,
    /// As if it were not there.
    pub off: bool,
    /// It binds, has one limit, and that counts requests.
    pub plain: bool,
    /// A shadow that takes nobody's place.
    pub beside: bool,
}

/// Keys with what their values have to be, all of them.
pub type Group = Vec<(String, Vec<Alternative>)>;

/// One key of a rule.
#[derive(Clone, Debug)]
pub struct Entry {
    /// With stars, a pattern.
    pub key: String,
    /// Any of these.
    pub alternatives: Vec<Alternative>,
    /// What is counted apart.
    pub told: Told,
}

/// What is counted apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// Nothing.
    Together,
    /// Each value.
    Value,
    /// Each network.
    Network {
        /// Bits of version 4.
        v4: u8,
        /// Bits of version 6.
        v6: u8,
    },
}

/// One thing that a value may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Alternative {
    /// Anything.
    Any,
    /// This.
    Exact(String),
    /// Of this shape.
    Glob(String),
    /// In the network of these bits, so many of 128.
    Network(u128, u8),
    /// None of these.
    Not(Vec<Alternative>),
}

impl Entry {
    /// Its key with each alternative.
    pub fn steps(&self) -> impl Iterator<Item = (&str, &Alternative)> {
        self.alternatives.iter().map(|alternative| (&*self.key, alternative))
    }
}

/// What a request is known by: anything, or nearly what some rule is for. Now and then a key is given twice.
pub fn attributes(spec: &Spec, source: &mut Source<'_>) -> Vec<(String, String)> {
    let at = source.below(spec.rules.len() as u64) as usize;
    let mut attributes: Vec<(String, String)> = Vec::new();
    if let Some(rule) = spec.rules.get(at).filter(|_| !source.once_in(4)) {
        for entry in &rule.entries {
            let key = if is_glob(&entry.key) { source.pick(&KEYS, "a") } else { &entry.key };
            let value = match &*entry.alternatives {
                [.., Alternative::Exact(text)] if !source.once_in(4) => text,
                _ => source.pick(&TEXTS, "x"),
            };
            attributes.push((key.to_owned(), value.to_owned()));
        }
    }
    let more = if attributes.is_empty() { 6 } else { 2 };
    for _ in 0..source.below(more) {
        attributes.push((source.pick(&KEYS, "a").to_owned(), source.pick(&TEXTS, "x").to_owned()));
    }
    attributes
}

impl Spec {
    /// Whatever the bytes say.
    pub fn draw(source: &mut Source<'_>) -> Self {
        let mut spec = Self::default();
        let mut whole = spec.head(source);
        let before = spec.rules.len();
        let tree = spec.siblings(source, &mut Vec::new());
        if !tree.is_empty() {
            let _ = writeln!(whole.text, "descriptors: [{tree}]");
        }
        if source.once_in(4) {
            spec.finish(whole, before);
            whole = spec.head(source);
        }
        let before = if spec.files.is_empty() { before } else { spec.rules.len() };
        let mut flat = String::new();
        for _ in 0..source.below(6) {
            flat.push_str(&spec.flat(source));
        }
        if !flat.is_empty() {
            let _ = write!(whole.text, "rules:\n{flat}");
        }
        spec.finish(whole, before);
        spec
    }

    /// What a file says before its rules.
    fn head(&mut self, source: &mut Source<'_>) -> File {
        let mut text = format!("domain: {DOMAIN}\n");
        self.is_shadow = source.once_in(6);
        if self.is_shadow {
            text.push_str("defaults: {mode: shadow}\n");
        }
        let mut exempt = Vec::new();
        if source.once_in(6) {
            let (groups, written) = groups(source);
            let _ = writeln!(text, "exempt: {written}");
            exempt = groups;
        }
        File { text, exempt }
    }

    /// Puts a file to the others. Its rules are those from `before` on.
    fn finish(&mut self, file: File, before: usize) {
        for rule in self.rules.iter_mut().skip(before) {
            rule.unless.extend(file.exempt.iter().cloned());
        }
        self.files.push(file.text);
    }

    /// Some nodes of the tree, as text.
    fn siblings(&mut self, source: &mut Source<'_>, way: &mut Vec<Entry>) -> String {
        let mut seen = HashSet::new();
        let mut text = String::new();
        for _ in 0..source.below(if way.is_empty() { 8 } else { 4 }) {
            let key = if source.once_in(6) { source.pick(&KEY_GLOBS, "*") } else { source.pick(&KEYS, "a") };
            let alternatives = if source.once_in(3) { vec![Alternative::Any] } else { pattern(source, !is_glob(key)) };
            let value = written(&alternatives, Place::Tree, source);
            let may_share = is_glob(key) || !matches!(&*alternatives, [Alternative::Any | Alternative::Exact(_)]);
            let told = if may_share && source.once_in(4) { Told::Together } else { Told::Value };
            if seen.insert((key, format!("{alternatives:?}"))) {
                way.push(Entry { key: key.to_owned(), alternatives, told });
                text.push_str(&self.node(source, key, &value, way));
                way.pop();
            }
        }
        text
    }

    fn node(&mut self, source: &mut Source<'_>, key: &str, value: &str, way: &mut Vec<Entry>) -> String {
        let share =
            if way.last().is_some_and(|entry| entry.told == Told::Together) { ", share_threshold: true" } else { "" };
        let value = if value.is_empty() { String::new() } else { format!(", value: {value}") };
        let limits = match source.below(5) {
            0 => "",
            1 => ", rate_limit: {unlimited: true}",
            2 => ", limits: [5/s, 100/h]",
            3 => ", limits: 5/s",
            _ => ", rate_limit: {unit: minute, requests_per_unit: 5}",
        };
        let plain = limits.ends_with("5/s") || limits.ends_with("5}");
        let has_children = way.len() < 3 && source.once_in(2);
        // One without limits is a rule only if there is nothing below it.
        let own = if limits.is_empty() && has_children {
            None
        } else {
            self.rule(source, way.clone(), plain, if limits.contains("limits:") { Dialect::Own } else { Dialect::Lyft })
        };
        let children = if has_children { self.siblings(source, way) } else { String::new() };
        let below = if children.is_empty() { String::new() } else { format!(", descriptors: [{children}]") };
        match own {
            None if below.is_empty() => String::new(),
            None => format!("{{key: \"{key}\"{value}{share}{below}}}, "),
            Some(said) => format!("{{key: \"{key}\"{value}{share}{limits}{said}{below}}}, "),
        }
    }

    /// One complete rule, as text.
    fn flat(&mut self, source: &mut Source<'_>) -> String {
        let mut entries: Vec<Entry> = Vec::new();
        let mut when = Vec::new();
        for _ in 0..source.below(3) {
            let key = source.pick(&KEYS, "a");
            if entries.iter().all(|entry| entry.key != key) {
                let alternatives = if source.once_in(6) { vec![Alternative::Any] } else { pattern(source, true) };
                when.push(format!("{key}: {}", written(&alternatives, Place::Condition, source)));
                entries.push(Entry { key: key.to_owned(), alternatives, told: Told::Together });
            }
        }
        let mut per = Vec::new();
        let mut counted = HashSet::new();
        for _ in 0..source.below(3) {
            let key = source.pick(&KEYS, "a");
            if !counted.insert(key) {
                continue;
            }
            let told = match source.below(5) {
                0 => Told::Network { v4: 32, v6: 64 },
                1 => Told::Network { v4: 8, v6: 48 },
                _ => Told::Value,
            };
            per.push(match told {
                Told::Network { v4: 32, v6 } => format!("{key}/{v6}"),
                Told::Network { v4, v6 } => format!("{{key: {key}, v4: {v4}, v6: {v6}}}"),
                Told::Value | Told::Together => key.to_owned(),
            });
            match entries.iter_mut().find(|entry| entry.key == key) {
                Some(entry) => entry.told = told,
                None => entries.push(Entry { key: key.to_owned(), alternatives: vec![Alternative::Any], told }),
            }
        }
        let (limits, plain) = source
            .pick(&[("5/s", true), ("[5/s, 100/h]", false), ("1MiB/s", false), ("unlimited", false)], ("5/s", true));
        let Some(said) = self.rule(source, entries, plain, Dialect::Own) else { return String::new() };
        let when = if when.is_empty() { String::new() } else { format!(", when: {{{}}}", when.join(", ")) };
        let per = if per.is_empty() { String::new() } else { format!(", per: [{}]", per.join(", ")) };
        format!("- {{limits: {limits}{when}{per}{said}}}\n")
    }

    /// Adds a rule, unless its place is taken. The text is what else is to be said about it.
    fn rule(&mut self, source: &mut Source<'_>, entries: Vec<Entry>, plain: bool, dialect: Dialect) -> Option<String> {
        let name = format!("r{}", self.rules.len());
        let said_mode = source.pick(&["", "", "", "", "off", "shadow", "enforce"], "");
        let mode = match said_mode {
            "" if self.is_shadow => "shadow",
            "" => "enforce",
            said => said,
        };
        let beside = mode == "shadow" && dialect == Dialect::Own;
        let places: Vec<String> = places(&entries).iter().map(|place| format!("{beside}{place}")).collect();
        if mode != "off" && places.iter().any(|place| self.taken.contains(place)) {
            return None;
        }
        let mut said = format!(", name: {name}");
        if said_mode == "shadow" && dialect == Dialect::Lyft && source.once_in(2) {
            said.push_str(", shadow_mode: true");
        } else if !said_mode.is_empty() {
            let _ = write!(said, ", mode: {said_mode}");
        }
        let mut unless = Vec::new();
        if source.once_in(5) {
            let (groups, written) = groups(source);
            let _ = write!(said, ", unless: {written}");
            unless = groups;
        }
        if mode != "off" {
            self.taken.extend(places);
        }
        let plain = plain && mode == "enforce";
        self.rules.push(Rule { name, entries, unless, off: mode == "off", plain, beside });
        Some(said)
    }
}

/// A file that is being written, and what all its rules are not for.
struct File {
    text: String,
    exempt: Vec<Group>,
}

/// Some groups of conditions, and as they are written.
fn groups(source: &mut Source<'_>) -> (Vec<Group>, String) {
    let (mut groups, mut written_groups) = (Vec::new(), Vec::new());
    for _ in 0..=source.below(2) {
        let mut group = Group::new();
        let mut conditions = Vec::new();
        for _ in 0..=source.below(2) {
            let key = source.pick(&KEYS, "a");
            if group.iter().all(|(known, _)| known != key) {
                let alternatives = pattern(source, true);
                conditions.push(format!("{key}: {}", written(&alternatives, Place::Condition, source)));
                group.push((key.to_owned(), alternatives));
            }
        }
        written_groups.push(format!("{{{}}}", conditions.join(", ")));
        groups.push(group);
    }
    (groups, format!("[{}]", written_groups.join(", ")))
}

/// Every place that a rule of these entries takes.
fn places(entries: &[Entry]) -> Vec<String> {
    entries.iter().fold(vec![String::new()], |places, entry| {
        let longer = |place: &String| entry.steps().map(move |step| format!("{place}{step:?}")).collect::<Vec<_>>();
        places.iter().flat_map(longer).collect()
    })
}

/// Whose limits a rule has. A leaf of the tree that has none is Lyft's.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Dialect {
    Lyft,
    Own,
}

/// Where a pattern is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Text is text, a star is a pattern, and nothing is anything.
    Tree,
    /// Text may be a network, and a star is anything.
    Condition,
}

/// One alternative, or a list: patterns first, then texts, then networks, as lists are taken apart.
fn pattern(source: &mut Source<'_>, may_be_list: bool) -> Vec<Alternative> {
    let mut alternatives: Vec<Alternative> = Vec::new();
    let count = if may_be_list && source.once_in(4) { 1 + source.below(3) } else { 1 };
    for _ in 0..count {
        let one = alternative(source);
        let one = if source.once_in(8) { Alternative::Not(vec![one]) } else { one };
        if !alternatives.contains(&one) {
            alternatives.push(one);
        }
    }
    let order = |alternative: &Alternative| match alternative {
        Alternative::Exact(_) => 1,
        Alternative::Network(..) => 2,
        _ => 0,
    };
    alternatives.sort_by_key(order);
    alternatives
}

fn alternative(source: &mut Source<'_>) -> Alternative {
    match source.below(6) {
        0 | 1 => Alternative::Glob(source.pick(&GLOBS, "x*").to_owned()),
        2 => {
            let (text, length) = source.pick(&NETWORKS, ("10.0.0.0", 8));
            let (bits, offset) = (address(text).unwrap_or(0), if text.contains(':') { 0 } else { 96 });
            Alternative::Network(bits, offset + length)
        }
        _ => Alternative::Exact(source.pick(&TEXTS[1..], "x").to_owned()),
    }
}

fn written(alternatives: &[Alternative], place: Place, source: &mut Source<'_>) -> String {
    let mut items: Vec<String> = alternatives.iter().map(|alternative| one(alternative, place, source)).collect();
    match items.len() {
        1 => items.pop().unwrap_or_default(),
        _ => format!("[{}]", items.join(", ")),
    }
}

fn one(alternative: &Alternative, place: Place, source: &mut Source<'_>) -> String {
    match alternative {
        Alternative::Any if place == Place::Tree => String::new(),
        Alternative::Any => "\"*\"".to_owned(),
        Alternative::Exact(text) if place == Place::Tree && source.once_in(2) => format!("\"{text}\""),
        Alternative::Exact(text) => format!("{{is: \"{text}\"}}"),
        Alternative::Glob(text) => match text.strip_suffix('*').filter(|head| !head.contains('*')) {
            Some(head) if (place == Place::Condition && head.is_empty()) || source.once_in(2) => {
                format!("{{prefix: \"{head}\"}}")
            }
            _ => format!("\"{text}\""),
        },
        Alternative::Network(bits, length) => {
            format!("{{cidr: \"{}/{length}\"}}", std::net::Ipv6Addr::from_bits(*bits))
        }
        Alternative::Not(inner) => format!("{{not: {}}}", written(inner, place, source)),
    }
}
