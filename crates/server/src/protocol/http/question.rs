//! The bodies of questions: JSON to checks, borrowed from the request where it can be, and bounded.
//!
//! What is not understood is refused: a misspelt field would be a limit that silently does not apply. A refusal says
//! where, and what to write.

use std::borrow::Cow;
use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use tollgate::rules::{LyftUnit, Override, nearest};
use tollgate::{Attribute, Check, Descriptor, Micros, Part, Timestamp};
use tollgate_rules::Subject;

use super::value::{Count, Length, Moment, Number, Text};
use crate::protocol::bounds::{MOST_ATTRIBUTES, MOST_DESCRIPTORS, MOST_ENTRIES, MOST_UNITS};

/// Questions in one batch.
pub(super) const MOST_CHECKS: usize = 500;

/// One question as it was written.
#[derive(Debug, Default)]
pub(super) struct Question<'a> {
    pub(super) domain: Option<Cow<'a, str>>,
    about: About<'a>,
    cost: Option<u64>,
    costs: Vec<(Cow<'a, str>, u64)>,
    pub(super) lease: Option<u64>,
    pub(super) hold: Option<Micros>,
    pub(super) charged_at: Option<Timestamp>,
}

#[derive(Debug, Default)]
enum About<'a> {
    #[default]
    Nothing,
    Attributes(Pairs<'a>),
    Descriptors(Vec<Described<'a>>),
}

type Pairs<'a> = Vec<(Cow<'a, str>, Cow<'a, str>)>;

/// A descriptor as it was written.
#[derive(Debug, Default)]
struct Described<'a> {
    entries: Pairs<'a>,
    limit: Option<Override>,
    cost: Option<u64>,
    refund: bool,
}

/// Which field a question may have beside those that all have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Beside {
    Nothing,
    Hold,
    ChargedAt,
}

/// Reads one question.
pub(super) fn question(body: &[u8], beside: Beside) -> Result<Question<'_>, serde_json::Error> {
    read(body, beside)
}

/// Reads questions: `{"domain": …, "checks": […]}`.
pub(super) fn batch(body: &[u8]) -> Result<Batch<'_>, serde_json::Error> {
    read(body, BatchSeed)
}

fn read<'a, S: DeserializeSeed<'a>>(body: &'a [u8], seed: S) -> Result<S::Value, serde_json::Error> {
    // Checked as a whole, and not string by string; unless that fails, and it is to be said where.
    match std::str::from_utf8(body) {
        Ok(text) => finish(serde_json::Deserializer::from_str(text), seed),
        Err(_) => finish(serde_json::Deserializer::from_slice(body), seed),
    }
}

fn finish<'a, R: serde_json::de::Read<'a>, S: DeserializeSeed<'a>>(
    mut json: serde_json::Deserializer<R>,
    seed: S,
) -> Result<S::Value, serde_json::Error> {
    let value = seed.deserialize(&mut json)?;
    json.end()?;
    Ok(value)
}

/// The memory that a check refers to: of a question that is read, in the forms that are asked.
#[derive(Debug, Default)]
pub(super) struct Room<'q> {
    pairs: Vec<Attribute<'q>>,
    descriptors: Vec<Descriptor<'q>>,
    costs: Vec<(&'q str, u64)>,
}

impl<'a> Question<'a> {
    /// The check, in a room of its own.
    pub(super) fn check<'q>(&'q self, domain: &'q str, room: &'q mut Room<'q>) -> Check<'q> {
        room.pairs = self.pairs();
        room.descriptors = self.descriptors(&room.pairs);
        room.costs = self.costs();
        let subject = match self.about {
            About::Descriptors(_) => Subject::Descriptors(&room.descriptors),
            _ => Subject::Attributes(&room.pairs),
        };
        let (cost, lease) = (self.cost.unwrap_or(1), self.lease.unwrap_or(0));
        Check { domain, subject, cost, costs: &room.costs, lease, part: Part::All }
    }

    /// All keys and values, one after the other.
    fn pairs(&self) -> Vec<Attribute<'_>> {
        fn all<'q>(pairs: &'q Pairs<'_>) -> impl Iterator<Item = Attribute<'q>> {
            pairs.iter().map(|(key, value)| (&**key, &**value))
        }
        match &self.about {
            About::Nothing => Vec::new(),
            About::Attributes(pairs) => all(pairs).collect(),
            About::Descriptors(descriptors) => descriptors.iter().flat_map(|one| all(&one.entries)).collect(),
        }
    }

    /// `pairs` is what [`Self::pairs`] returned.
    fn descriptors<'q>(&self, pairs: &'q [Attribute<'q>]) -> Vec<Descriptor<'q>> {
        let About::Descriptors(descriptors) = &self.about else { return Vec::new() };
        let mut rest = pairs;
        let mut taken = Vec::with_capacity(descriptors.len());
        for Described { entries, limit, cost, refund } in descriptors {
            let (own, others) = rest.split_at(entries.len().min(rest.len()));
            rest = others;
            taken.push(Descriptor { entries: own, limit: *limit, cost: *cost, refund: *refund });
        }
        taken
    }

    /// Costs in other units than requests.
    fn costs(&self) -> Vec<(&str, u64)> {
        self.costs.iter().map(|(unit, cost)| (&**unit, *cost)).collect()
    }
}

impl<'de> DeserializeSeed<'de> for Beside {
    type Value = Question<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Question<'de>, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Beside {
    type Value = Question<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(r#"an object such as {"attributes": {"user_id": "42"}}"#)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Question<'de>, A::Error> {
        let mut question = Question::default();
        let mut seen = Seen::default();
        while let Some(Text(field)) = map.next_key()? {
            match &*field {
                "domain" => question.domain = Some(seen.once(&mut map, 0, "domain")?).map(|Text(text)| text),
                "attributes" => {
                    let Attributes(pairs) = seen.once(&mut map, 1, "attributes")?;
                    question.about.set(About::Attributes(pairs))?;
                }
                "descriptors" => {
                    let Many(descriptors) = seen.once(&mut map, 2, "descriptors")?;
                    if descriptors.is_empty() {
                        return Err(de::Error::custom("`descriptors` is empty: write at least one"));
                    }
                    question.about.set(About::Descriptors(descriptors))?;
                }
                "cost" => question.cost = Some(seen.once::<Count, A>(&mut map, 3, "cost")?.0),
                "costs" => question.costs = seen.once::<Costs<'de>, A>(&mut map, 4, "costs")?.0,
                "lease" => question.lease = Some(seen.once::<Number, A>(&mut map, 5, "lease")?.0),
                "hold" if self == Self::Hold => {
                    question.hold = Some(seen.once::<Length, A>(&mut map, 6, "hold")?.0);
                }
                "charged_at" if self == Self::ChargedAt => {
                    question.charged_at = Some(seen.once::<Moment, A>(&mut map, 7, "charged_at")?.0);
                }
                other => return Err(unknown(other, self.fields())),
            }
        }
        match question.about {
            About::Nothing => Err(de::Error::custom(
                r#"there is nothing to ask about: write "attributes": {"user_id": "42"} or "descriptors": [...]"#,
            )),
            _ => Ok(question),
        }
    }
}

impl Beside {
    fn fields(self) -> &'static [&'static str] {
        match self {
            Self::Nothing => &["domain", "attributes", "descriptors", "cost", "costs", "lease"],
            Self::Hold => &["domain", "attributes", "descriptors", "cost", "costs", "lease", "hold"],
            Self::ChargedAt => &["domain", "attributes", "descriptors", "cost", "costs", "lease", "charged_at"],
        }
    }
}

impl<'a> About<'a> {
    fn set<E: de::Error>(&mut self, about: Self) -> Result<(), E> {
        if !matches!(self, Self::Nothing) {
            return Err(E::custom("a question is about `attributes` or about `descriptors`: leave one of them out"));
        }
        *self = about;
        Ok(())
    }
}

/// Which fields were there already.
#[derive(Default)]
struct Seen(u32);

impl Seen {
    /// The value of a field that may be there once.
    fn once<'de, T: de::Deserialize<'de>, A: MapAccess<'de>>(
        &mut self,
        map: &mut A,
        number: u32,
        name: &'static str,
    ) -> Result<T, A::Error> {
        if self.0 & 1 << number != 0 {
            return Err(de::Error::custom(format_args!("`{name}` is there twice: leave one of them out")));
        }
        self.0 |= 1 << number;
        map.next_value()
    }
}

fn unknown<E: de::Error>(field: &str, known: &[&'static str]) -> E {
    let shown: String = field.chars().take(48).collect();
    match nearest(field, known.iter().copied()) {
        Some(meant) => E::custom(format_args!("there is no field `{shown}`: did you mean `{meant}`?")),
        None => E::custom(format_args!("there is no field `{shown}`: there are `{}`", known.join("`, `"))),
    }
}

/// `{"user_id": "42", "plan": "gold"}`.
struct Attributes<'a>(Pairs<'a>);

impl<'de> de::Deserialize<'de> for Attributes<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs_;
        impl<'de> Visitor<'de> for Pairs_ {
            type Value = Attributes<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(r#"an object of keys and values such as {"user_id": "42"}"#)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Attributes<'de>, A::Error> {
                let mut pairs = Pairs::with_capacity(8);
                while let Some(Text(key)) = map.next_key()? {
                    if pairs.len() == MOST_ATTRIBUTES {
                        return Err(too_many(MOST_ATTRIBUTES, "attributes"));
                    }
                    if pairs.iter().any(|(known, _)| *known == key) {
                        return Err(de::Error::custom(format_args!("`{key}` is there twice: leave one of them out")));
                    }
                    let Text(value) = map.next_value()?;
                    pairs.push((key, value));
                }
                Ok(Attributes(pairs))
            }
        }
        deserializer.deserialize_map(Pairs_)
    }
}

/// `{"bytes": 1200}`.
struct Costs<'a>(Vec<(Cow<'a, str>, u64)>);

impl<'de> de::Deserialize<'de> for Costs<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ByUnit;
        impl<'de> Visitor<'de> for ByUnit {
            type Value = Costs<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(r#"an object of units and whole numbers such as {"bytes": 1200}"#)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Costs<'de>, A::Error> {
                let mut costs: Vec<(Cow<'de, str>, u64)> = Vec::new();
                while let Some(Text(unit)) = map.next_key()? {
                    if costs.len() == MOST_UNITS {
                        return Err(too_many(MOST_UNITS, "costs"));
                    }
                    if costs.iter().any(|(known, _)| *known == unit) {
                        return Err(de::Error::custom(format_args!("`{unit}` is there twice: leave one of them out")));
                    }
                    if unit == "requests" {
                        return Err(de::Error::custom("requests are no other unit: use `cost`, as in \"cost\": 5"));
                    }
                    let Count(cost) = map.next_value()?;
                    costs.push((unit, cost));
                }
                Ok(Costs(costs))
            }
        }
        deserializer.deserialize_map(ByUnit)
    }
}

/// A list, and not too long a one.
struct Many<T>(Vec<T>);

/// What lists are of.
trait Listed {
    const MOST: usize;
    const WHAT: &'static str;
}

impl Listed for Described<'_> {
    const MOST: usize = MOST_DESCRIPTORS;
    const WHAT: &'static str = "descriptors";
}

impl Listed for Entry<'_> {
    const MOST: usize = MOST_ENTRIES;
    const WHAT: &'static str = "entries";
}

impl<'de, T: de::Deserialize<'de> + Listed> de::Deserialize<'de> for Many<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct List<T>(std::marker::PhantomData<T>);
        impl<'de, T: de::Deserialize<'de> + Listed> Visitor<'de> for List<T> {
            type Value = Many<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a list of {}", T::WHAT)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Many<T>, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = list.next_element()? {
                    if items.len() == T::MOST {
                        return Err(too_many(T::MOST, T::WHAT));
                    }
                    items.push(item);
                }
                Ok(Many(items))
            }
        }
        deserializer.deserialize_seq(List(std::marker::PhantomData))
    }
}

fn too_many<E: de::Error>(most: usize, what: &str) -> E {
    E::custom(format_args!("there are more than {most} {what}: send fewer"))
}

impl<'de> de::Deserialize<'de> for Described<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = Described<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(r#"a descriptor such as {"entries": [["path", "/login"]]}"#)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Described<'de>, A::Error> {
                let mut described = Described::default();
                let mut seen = Seen::default();
                while let Some(Text(field)) = map.next_key()? {
                    match &*field {
                        "entries" => {
                            let Many(entries) = seen.once(&mut map, 0, "entries")?;
                            described.entries = entries.into_iter().map(|Entry(key, value)| (key, value)).collect();
                        }
                        "limit" => described.limit = Some(seen.once::<Limit, A>(&mut map, 1, "limit")?.0),
                        "cost" => described.cost = Some(seen.once::<Count, A>(&mut map, 2, "cost")?.0),
                        "refund" => described.refund = seen.once(&mut map, 3, "refund")?,
                        other => return Err(unknown(other, &["entries", "limit", "cost", "refund"])),
                    }
                }
                if described.entries.is_empty() {
                    return Err(de::Error::custom(r#"a descriptor has "entries": [["path", "/login"]], at least one"#));
                }
                Ok(described)
            }
        }
        deserializer.deserialize_map(Fields)
    }
}

/// `["path", "/login"]` or `{"key": "path", "value": "/login"}`.
struct Entry<'a>(Cow<'a, str>, Cow<'a, str>);

impl<'de> de::Deserialize<'de> for Entry<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct EitherForm;
        const FORMS: &str = r#"an entry such as ["path", "/login"] or {"key": "path", "value": "/login"}"#;
        impl<'de> Visitor<'de> for EitherForm {
            type Value = Entry<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(FORMS)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Entry<'de>, A::Error> {
                let (key, value) = (list.next_element()?, list.next_element()?);
                let (Some(Text(key)), Some(Text(value)), None) = (key, value, list.next_element::<IgnoredAny>()?)
                else {
                    return Err(de::Error::custom(format_args!("write {FORMS}")));
                };
                Ok(Entry(key, value))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entry<'de>, A::Error> {
                let (mut key, mut value) = (None, None);
                let mut seen = Seen::default();
                while let Some(Text(field)) = map.next_key()? {
                    match &*field {
                        "key" => key = Some(seen.once::<Text<'de>, A>(&mut map, 0, "key")?.0),
                        "value" => value = Some(seen.once::<Text<'de>, A>(&mut map, 1, "value")?.0),
                        other => return Err(unknown(other, &["key", "value"])),
                    }
                }
                let Some(key) = key else { return Err(de::Error::custom(format_args!("write {FORMS}"))) };
                // As in Envoy's messages, a value that is not there is empty.
                Ok(Entry(key, value.unwrap_or_default()))
            }
        }
        deserializer.deserialize_any(EitherForm)
    }
}

/// `{"requests_per_unit": 5, "unit": "minute"}`.
struct Limit(Override);

impl<'de> de::Deserialize<'de> for Limit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(serde::Deserialize)]
        #[serde(deny_unknown_fields, expecting = r#"a limit such as {"requests_per_unit": 5, "unit": "minute"}"#)]
        struct Raw<'a> {
            requests_per_unit: u32,
            #[serde(borrow)]
            unit: Text<'a>,
        }
        let Raw { requests_per_unit, unit: Text(unit) } = Raw::deserialize(deserializer)?;
        let Some(unit) = LyftUnit::parse(&unit) else {
            let known: Vec<&str> = LyftUnit::ALL.iter().map(|unit| unit.name()).collect();
            let shown: String = unit.chars().take(48).collect();
            return Err(de::Error::custom(format_args!("`{shown}` is no unit: write one of {}", known.join(", "))));
        };
        Ok(Self(Override { requests_per_unit, unit }))
    }
}

/// Several questions.
#[derive(Debug, Default)]
pub(super) struct Batch<'a> {
    /// Of those that name none.
    pub(super) domain: Option<Cow<'a, str>>,
    pub(super) checks: Vec<Question<'a>>,
}

struct BatchSeed;

impl<'de> DeserializeSeed<'de> for BatchSeed {
    type Value = Batch<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Batch<'de>, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for BatchSeed {
    type Value = Batch<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(r#"an object such as {"checks": [{"attributes": {"user_id": "42"}}]}"#)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Batch<'de>, A::Error> {
        let mut batch = Batch::default();
        let mut seen = Seen::default();
        while let Some(Text(field)) = map.next_key()? {
            match &*field {
                "domain" => batch.domain = Some(seen.once::<Text<'de>, A>(&mut map, 0, "domain")?.0),
                "checks" => batch.checks = seen.once::<Checks<'de>, A>(&mut map, 1, "checks")?.0,
                other => return Err(unknown(other, &["domain", "checks"])),
            }
        }
        if batch.checks.is_empty() {
            return Err(de::Error::custom(r#"there is nothing to ask: write "checks": [{"attributes": {...}}, ...]"#));
        }
        Ok(batch)
    }
}

struct Checks<'a>(Vec<Question<'a>>);

impl<'de> de::Deserialize<'de> for Checks<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct List;
        impl<'de> Visitor<'de> for List {
            type Value = Checks<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of questions")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Checks<'de>, A::Error> {
                let mut checks = Vec::new();
                while let Some(question) = list.next_element_seed(Beside::Nothing)? {
                    if checks.len() == MOST_CHECKS {
                        let told = format_args!("there are more than {MOST_CHECKS} checks: send several batches");
                        return Err(de::Error::custom(told));
                    }
                    checks.push(question);
                }
                Ok(Checks(checks))
            }
        }
        deserializer.deserialize_seq(List)
    }
}
