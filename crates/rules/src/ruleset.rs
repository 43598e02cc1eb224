//! Rules compiled: immutable, indexed, and the only thing that a decision looks at.

use std::borrow::{Borrow, Cow};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::HashMap;
use smallvec::SmallVec;
use tollgate_core::{Limit, mix, stable_hash};

use crate::Parsed;
use crate::by_name::ByName;
use crate::check::{Attribute, Check, Descriptor, Part, Subject};
use crate::diagnostic::{Diagnostic, Diagnostics, Source};
use crate::exceptions::Exceptions;
use crate::model::{Counted, Entry, KeyPattern, Limits, LyftUnit, Mode, Rule, Unit};
use crate::pattern::{Network, Pattern, parse_address};
use crate::tree::{NotStraight, Path, RuleId, Tree};

/// A rule has at most so many keys.
const MAX_ENTRIES: usize = 64;
/// A rule whose keys have lists of values stands for each combination of them: at most so many.
pub(crate) const MAX_COMBINATIONS: usize = 65_536;
/// All rules together need at most so many nodes of the tree, each as if no other shared its own.
pub(crate) const MAX_NODES: usize = 1 << 21;

/// How many sets there were.
static COMPILED: AtomicU64 = AtomicU64::new(0);

/// A set of rules, ready to be asked.
#[derive(Debug, Default)]
pub struct RuleSet {
    serial: u64,
    rules: Vec<CompiledRule>,
    /// Of each rule what [`Self::simple`] needs, close together.
    simple: Vec<Option<SimpleRule>>,
    domains: ByName<Domain>,
}

/// The rules of one domain.
#[derive(Debug, Default)]
struct Domain {
    tree: Tree,
    /// Those that stand beside the others: see [`Rule::is_beside`].
    beside: Tree,
}

impl Domain {
    #[inline(always)]
    fn find(&self, entries: &[Attribute<'_>]) -> Option<RuleId> {
        self.tree.find(entries).or_else(|| self.find_beside(entries))
    }

    #[inline(never)]
    fn find_beside(&self, entries: &[Attribute<'_>]) -> Option<RuleId> {
        self.beside.find(entries)
    }

    #[inline(always)]
    fn only<'a, 'q>(
        &self,
        attributes: &'a [Attribute<'q>],
        path: &mut Path<'a, 'q>,
    ) -> Result<Option<(RuleId, u32)>, NotStraight> {
        if self.beside.is_empty() { self.tree.only(attributes, path) } else { Err(NotStraight) }
    }

    #[inline]
    fn collect<'q>(&self, attributes: &[Attribute<'q>], mut apply: impl FnMut(RuleId, &[&Attribute<'q>])) {
        self.tree.collect(attributes, &mut apply);
        if !self.beside.is_empty() {
            self.beside.collect(attributes, &mut apply);
        }
    }
}

/// One rule of a set. It begins on a cache line, with what is told of it.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct CompiledRule {
    rule: Rule,
    /// The entries that tell its counters apart, and by what. An exact value is part of the rule's identity instead.
    counted: SmallVec<[(u16, Told); 2]>,
    /// The numbers of its limits.
    limit_ids: SmallVec<[u64; 1]>,
    path_id: u64,
}

/// What of an entry tells counters apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    /// Its key, where that is a pattern.
    Key,
    Value,
    Network {
        v4: u8,
        v6: u8,
    },
}

/// A rule that applies, and what it is counted by.
#[derive(Clone, Debug)]
pub struct Match<'r, 'q> {
    /// The rule.
    pub rule: &'r CompiledRule,
    /// Its number in the set.
    pub number: u32,
    /// What it is counted by.
    pub values: Values<'q>,
}

/// A rule of one limit, met alone. See [`RuleSet::simple`].
#[derive(Clone, Copy, Debug)]
pub struct Simple<'r, 'q> {
    /// The number of the rule.
    pub number: u32,
    /// The number of its limit.
    pub limit_id: u64,
    /// The limit.
    pub limit: &'r Limit,
    /// What it is counted by.
    pub values: &'r [&'q [u8]],
}

/// Room for what a simple rule is counted by.
pub type SimpleValues<'q> = [&'q [u8]; MAX_SIMPLE];

/// A rule that counts by more is not simple.
const MAX_SIMPLE: usize = 4;

#[derive(Debug)]
struct SimpleRule {
    limit: Arc<Limit>,
    limit_id: u64,
    /// The entries whose values it is counted by: so many of them.
    counted: [u8; MAX_SIMPLE],
    length: u8,
    /// Whether these are the last entry alone.
    by_last: bool,
}

impl SimpleRule {
    /// `None` for a rule that is not simple.
    fn of(compiled: &CompiledRule) -> Option<Self> {
        let CompiledRule { rule, counted, .. } = compiled;
        let limit = match &rule.limits {
            Limits::None => return None,
            Limits::Own(limits) => match &**limits {
                [limit] if limit.unit == Unit::Requests => &limit.limit,
                _ => return None,
            },
            Limits::Lyft(limit) if limit.replaces.is_empty() => &limit.rate.as_ref()?.limit,
            Limits::Lyft(_) => return None,
        };
        let binds = rule.mode == Mode::Enforce && !rule.quota_mode && !rule.has_exceptions();
        if !binds || counted.len() > MAX_SIMPLE || counted.iter().any(|(_, told)| *told != Told::Value) {
            return None;
        }
        let mut places = [0; MAX_SIMPLE];
        for (place, (at, _)) in places.iter_mut().zip(counted) {
            *place = u8::try_from(*at).ok()?;
        }
        let length = counted.len() as u8;
        let by_last = matches!(&**counted, [(at, _)] if usize::from(*at) + 1 == rule.entries.len());
        Some(Self { limit: Arc::clone(limit), limit_id: compiled.limit_id(0), counted: places, length, by_last })
    }

    /// Puts what it is counted by at the end of `path` into `values`.
    #[inline(always)]
    fn take_values<'q>(&self, path: &[impl Borrow<Attribute<'q>>], values: &mut SimpleValues<'q>) {
        // The last is known before the rule is. So processors, which guess that it is the one again, begin to hash it
        // while the rule is still being looked for.
        if let (true, [first, ..], [.., last]) = (self.by_last, &mut *values, path) {
            *first = last.borrow().1.as_bytes();
            return;
        }
        for (slot, at) in values.iter_mut().zip(self.counted).take(usize::from(self.length)) {
            *slot = path.get(usize::from(at)).map_or(&[], |attribute| attribute.borrow().1.as_bytes());
        }
    }
}

/// What a counter is told by.
pub type Values<'q> = SmallVec<[Value<'q>; 2]>;

/// One value that a counter is told by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'q> {
    /// As it is.
    Text(&'q str),
    /// The network that an address is in: its bits and their number, behind a byte that no text begins with.
    Network([u8; 18]),
}

impl Value<'_> {
    /// As bytes of a key.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Text(text) => text.as_bytes(),
            Self::Network(bytes) => bytes,
        }
    }

    /// The network that bytes of a key stand for; `None` if they are a text.
    pub fn network_in(bytes: &[u8]) -> Option<Network> {
        let bytes = bytes.strip_prefix(&[NO_TEXT])?;
        Network::from_bytes(bytes.try_into().ok()?)
    }
}

/// What no text begins with.
const NO_TEXT: u8 = u8::MAX;

impl RuleSet {
    /// Compiles what was read from one text. Warnings are lost: [`crate::parse`] has them.
    pub fn from_yaml(text: &str) -> Result<Self, Diagnostics> {
        let (rules, diagnostics) = Self::compile(crate::parse(vec![Source::new("rules", text)]));
        if diagnostics.has_errors() { Err(diagnostics) } else { Ok(rules) }
    }

    /// Compiles rules. What cannot be used is left out and told.
    pub fn compile(parsed: Parsed) -> (Self, Diagnostics) {
        let Parsed { rules, domains, diagnostics, gateway: _ } = parsed;
        let mut set = Self {
            serial: COMPILED.fetch_add(1, Ordering::Relaxed) + 1,
            rules: Vec::with_capacity(rules.len()),
            simple: Vec::with_capacity(rules.len()),
            domains: ByName::default(),
        };
        let (mut shapes, mut exceptions) = (Shapes::default(), Exceptions::default());
        for domain in &domains {
            set.domains.get_or_insert(domain);
        }
        for mut rule in rules {
            exceptions.gather(&mut rule);
            let domain = set.domains.get_or_insert(&rule.domain);
            let tree = if rule.is_beside() { &mut domain.beside } else { &mut domain.tree };
            if rule.mode != Mode::Off {
                tree.insert(&rule.entries, set.rules.len() as RuleId, shapes.number(&rule.entries));
                let rule = CompiledRule::new(rule);
                set.simple.push(SimpleRule::of(&rule));
                set.rules.push(rule);
            }
        }
        (set, diagnostics)
    }

    /// A number that no other set with rules has in this process: for what is remembered of them.
    pub fn serial(&self) -> u64 {
        self.serial
    }

    /// The rules, by number.
    pub fn rules(&self) -> &[CompiledRule] {
        &self.rules
    }

    /// The names of all domains, in no order.
    pub fn domains(&self) -> impl Iterator<Item = &str> {
        self.domains.names()
    }

    /// Whether there are rules for `domain`.
    pub fn has_domain(&self, domain: &str) -> bool {
        self.domains.get(domain).is_some()
    }

    /// The rule that a descriptor finds, if any.
    #[inline]
    pub fn find<'q>(&self, domain: &str, entries: &[Attribute<'q>]) -> Option<Match<'_, 'q>> {
        let number = self.domains.get(domain)?.find(entries)?;
        let rule = self.rules.get(number as usize)?;
        if rule.rule.has_exceptions() && rule.exempts(entries) {
            return None;
        }
        Some(Match { rule, number, values: rule.values(entries) })
    }

    /// The rule that a descriptor finds, also if one of its exceptions applies.
    pub(crate) fn find_any<'q>(&self, domain: &str, entries: &[Attribute<'q>]) -> Option<Match<'_, 'q>> {
        let number = self.domains.get(domain)?.find(entries)?;
        let rule = self.rules.get(number as usize)?;
        Some(Match { rule, number, values: rule.values(entries) })
    }

    /// The rule that a check meets if it meets just one, and that one is simple: one limit that counts requests by
    /// values as they are, and binds. Most checks are of this kind, and this is the quick way to answer them. What it
    /// counts by is put into `values`.
    #[inline(always)]
    pub fn simple<'a, 'q>(&'a self, check: &Check<'q>, values: &'a mut SimpleValues<'q>) -> Option<Simple<'a, 'q>> {
        let domain = self.domains.get(check.domain)?;
        if check.cost == 0 || check.part != Part::All {
            return None;
        }
        let (number, rule) = match check.subject {
            Subject::Descriptors([Descriptor { entries, limit: None, cost: None, refund: false }]) => {
                let number = domain.find(entries)?;
                let rule = self.simple.get(number as usize)?.as_ref()?;
                rule.take_values(entries, values);
                (number, rule)
            }
            Subject::Attributes(attributes) => {
                let mut path: Path<'_, 'q> = [&("", ""); _];
                match domain.only(attributes, &mut path) {
                    Ok(found) => {
                        let (number, length) = found?;
                        let rule = self.simple.get(number as usize)?.as_ref()?;
                        rule.take_values(path.get(..length as usize)?, values);
                        (number, rule)
                    }
                    Err(NotStraight) => self.simple_of_all(domain, attributes, values)?,
                }
            }
            Subject::Descriptors(_) => return None,
        };
        let values = values.get(..usize::from(rule.length))?;
        Some(Simple { number, limit_id: rule.limit_id, limit: &rule.limit, values })
    }

    /// The simple rule that attributes meet, where it has to be made sure that there is no other.
    #[inline(never)]
    fn simple_of_all<'q>(
        &self,
        domain: &Domain,
        attributes: &[Attribute<'q>],
        values: &mut SimpleValues<'q>,
    ) -> Option<(RuleId, &SimpleRule)> {
        let (mut met, mut number) = (0u32, 0);
        domain.collect(attributes, |found, path| {
            (met, number) = (met + 1, found);
            if let Some(Some(rule)) = self.simple.get(found as usize) {
                rule.take_values(path, values);
            }
        });
        let rule = self.simple.get(number as usize)?.as_ref().filter(|_| met == 1)?;
        Some((number, rule))
    }

    /// Hands over every rule that applies to `attributes`.
    #[inline]
    pub fn collect<'r, 'q>(&'r self, domain: &str, attributes: &[Attribute<'q>], mut apply: impl FnMut(Match<'r, 'q>)) {
        let Some(domain) = self.domains.get(domain) else { return };
        domain.collect(attributes, |number, path| {
            if let Some(rule) = self.rules.get(number as usize)
                && (!rule.rule.has_exceptions() || !rule.exempts(attributes))
            {
                apply(Match { rule, number, values: rule.values(path) });
            }
        });
    }

    /// [`Self::collect`] with the rules of which an exception applies.
    pub(crate) fn collect_all<'r, 'q>(
        &'r self,
        domain: &str,
        attributes: &[Attribute<'q>],
        mut apply: impl FnMut(Match<'r, 'q>),
    ) {
        let Some(domain) = self.domains.get(domain) else { return };
        domain.collect(attributes, |number, path| {
            if let Some(rule) = self.rules.get(number as usize) {
                apply(Match { rule, number, values: rule.values(path) });
            }
        });
    }

    /// The number under which an overriding limit counts what `entries` say: that of the rule they find, if it counts
    /// per the same unit.
    pub fn override_key<'q>(&self, domain: &str, entries: &[Attribute<'q>], unit: LyftUnit) -> (u64, Values<'q>) {
        // A rule that counts several values together is not what counts these.
        let each = |entry: &Entry| entry.counted != Counted::Together || matches!(entry.value, Pattern::Exact(_));
        if let Some(found) = self.find(domain, entries).filter(|found| found.rule.rule.entries.iter().all(each)) {
            return (lyft_id(found.rule.path_id, unit), found.values);
        }
        // The keys are the asker's, so they are told apart like values, by a hash that nobody knows.
        let told = entries.iter().flat_map(|(key, value)| [Value::Text(key), Value::Text(value)]).collect();
        (lyft_id(stable_hash([b"override", domain.as_bytes()]), unit), told)
    }
}

impl CompiledRule {
    fn new(rule: Rule) -> Self {
        let counted: SmallVec<[(u16, Told); 2]> =
            (0u16..).zip(&rule.entries).flat_map(|(at, entry)| told_by(entry).map(move |told| (at, told))).collect();
        let path_id = path_hash(&rule.domain, rule.entries.iter().map(entry_parts));
        // What is counted by another key, or in other networks, is counted anew.
        let told_apart = counted.iter().fold(0, |hash, (at, told)| {
            let key = rule.entries.get(usize::from(*at)).map(|entry| entry_parts(entry)[1].to_vec());
            let (kind, v4, v6) = match told {
                Told::Key => (0, 0, 0),
                Told::Value => (1, 0, 0),
                Told::Network { v4, v6 } => (2, *v4, *v6),
            };
            mix(stable_hash([&key.unwrap_or_default(), &[kind, v4, v6][..]]) ^ hash)
        });
        let limit_ids = match &rule.limits {
            Limits::None => SmallVec::new(),
            Limits::Lyft(limit) => limit.rate.iter().map(|rate| lyft_id(path_id, rate.unit)).collect(),
            Limits::Own(limits) => limits
                .iter()
                .map(|limit| {
                    let parts = [b"own", rule.domain.as_bytes(), rule.name.as_bytes(), limit.identity.as_bytes()];
                    mix(stable_hash(parts) ^ told_apart)
                })
                .collect(),
        };
        Self { rule, counted, limit_ids, path_id }
    }

    /// The rule as it was written.
    pub fn rule(&self) -> &Rule {
        &self.rule
    }

    /// The number of its limit at `index`: the same in every process, and as long as it is the same limit of the same
    /// rule.
    #[inline]
    pub fn limit_id(&self, index: usize) -> u64 {
        self.limit_ids.get(index).copied().unwrap_or_default()
    }

    #[inline]
    fn values<'q>(&self, path: &[impl Borrow<Attribute<'q>>]) -> Values<'q> {
        let told = |(at, told): &(u16, Told)| {
            let (key, value) = path.get(usize::from(*at)).map(|attribute| *attribute.borrow()).unwrap_or_default();
            match told {
                Told::Key => Value::Text(key),
                Told::Value => Value::Text(value),
                Told::Network { v4, v6 } => network_of(value, *v4, *v6),
            }
        };
        self.counted.iter().map(told).collect()
    }

    /// Whether it does not apply because one of its exceptions does.
    pub fn exempts(&self, attributes: &[Attribute<'_>]) -> bool {
        self.rule.exceptions().any(|group| {
            group.iter().all(|condition| {
                let value = attributes.iter().find(|(key, _)| **key == *condition.key);
                value.is_some_and(|(_, value)| condition.value.matches(value))
            })
        })
    }
}

/// What of `entry` tells counters apart.
fn told_by(entry: &Entry) -> impl Iterator<Item = Told> + use<> {
    let key = matches!(entry.key, KeyPattern::Glob(_)).then_some(Told::Key);
    let value = match entry.counted {
        Counted::ByNetwork { v4, v6 } => Told::Network { v4, v6 },
        Counted::ByValue | Counted::Together => Told::Value,
    };
    let value = (!matches!(entry.value, Pattern::Exact(_))).then_some(value);
    let is_counted = entry.counted != Counted::Together;
    key.into_iter().chain(value).filter(move |_| is_counted)
}

/// What is no address is counted as what it is.
fn network_of(text: &str, v4: u8, v6: u8) -> Value<'_> {
    let Some(address) = parse_address(text) else { return Value::Text(text) };
    let address = address.to_canonical();
    let length = if address.is_ipv4() { 96 + v4.min(32) } else { v6.min(128) };
    let mut bytes = [NO_TEXT; 18];
    bytes[1..].copy_from_slice(&Network::around(address, length).to_bytes());
    Value::Network(bytes)
}

fn path_hash<'a>(domain: &str, parts: impl Iterator<Item = [Cow<'a, [u8]>; 4]>) -> u64 {
    let start = stable_hash([b"path", domain.as_bytes()]);
    parts.fold(start, |hash, entry| stable_hash([&hash.to_be_bytes(), &*entry[0], &entry[1], &entry[2], &entry[3]]))
}

/// What of an entry tells its rule's counters from those of others: an exact value, and a pattern whose values are
/// counted together. Another pattern does not, so that a counter stays the same when the pattern changes.
fn entry_parts(entry: &Entry) -> [Cow<'_, [u8]>; 4] {
    let (kind, key) = match &entry.key {
        KeyPattern::Exact(key) => ("k", Cow::Borrowed(key.as_bytes())),
        KeyPattern::Glob(glob) => ("g", Cow::Owned(glob.to_string().into_bytes())),
    };
    let (told, value) = match &entry.value {
        Pattern::Exact(value) => ("v", Cow::Borrowed(value.as_bytes())),
        pattern if entry.counted == Counted::Together => ("p", Cow::Owned(pattern.to_string().into_bytes())),
        _ => ("", Cow::Borrowed(&[][..])),
    };
    [Cow::Borrowed(kind.as_bytes()), key, Cow::Borrowed(told.as_bytes()), value]
}

fn lyft_id(path: u64, unit: LyftUnit) -> u64 {
    mix(path ^ mix(unit.length().as_micros()))
}

/// Leaves out the rules that have too many keys or places, and those that are too many with the ones before.
pub(crate) fn leave_out_too_large(rules: &mut Vec<Rule>, diagnostics: &mut Diagnostics) {
    let mut left = MAX_NODES;
    rules.retain(|rule| {
        let (places, nodes) = (Tree::combinations(&rule.entries), Tree::nodes(&rule.entries));
        let (message, help) = if rule.entries.len() > MAX_ENTRIES {
            let keys = rule.entries.len();
            (format!("the rule has {keys} keys; at most {MAX_ENTRIES} are possible"), "use fewer")
        } else if places > MAX_COMBINATIONS {
            let message =
                format!("the rule's lists have {places} combinations; at most {MAX_COMBINATIONS} are possible");
            (message, "use a wildcard, or split the rule")
        } else if nodes > left {
            let message = format!(
                "with this rule's {nodes} all rules have more than {MAX_NODES} combinations of values on the way to them"
            );
            (message, "use wildcards instead of long lists, or write keys with lists behind those without")
        } else {
            left -= nodes;
            return true;
        };
        diagnostics.push(Diagnostic::error("too-large", rule.span, message).help(help));
        false
    });
}

/// Numbers for lists of keys.
#[derive(Default)]
struct Shapes {
    numbers: HashMap<Vec<KeyPattern>, u32>,
}

impl Shapes {
    fn number(&mut self, entries: &[Entry]) -> u32 {
        let keys = entries.iter().map(|entry| entry.key.clone()).collect();
        let next = self.numbers.len() as u32;
        *self.numbers.entry(keys).or_insert(next)
    }
}
