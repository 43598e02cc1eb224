//! The objects: what each kind of them has to say, what it says if nobody does, and what may be done with them.

use std::ops::RangeInclusive;

use http::{Method, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tollgate::Timestamp;

use super::check::{check_api, check_plugin, check_route, check_service};
use super::{Object, Refusal, Target, Told};

/// The most objects of one list that is answered at once.
const MOST_LISTED: usize = 1_000;
const LISTED: usize = 100;

/// The kinds of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Api,
    Service,
    Route,
    Plugin,
    Consumer,
    Key,
}

impl Kind {
    pub(super) const ALL: [Self; 6] = [Self::Api, Self::Service, Self::Route, Self::Plugin, Self::Consumer, Self::Key];

    pub(super) const fn path(self) -> &'static str {
        match self {
            Self::Api => "apis",
            Self::Service => "services",
            Self::Route => "routes",
            Self::Plugin => "plugins",
            Self::Consumer => "consumers",
            Self::Key => "key-auths",
        }
    }

    /// What may be found below an object.
    pub(super) fn below(owner: Self, path: &str) -> Option<Self> {
        match (owner, path) {
            (Self::Api | Self::Service | Self::Route | Self::Consumer, "plugins") => Some(Self::Plugin),
            (Self::Service, "routes") => Some(Self::Route),
            (Self::Consumer, "key-auth") => Some(Self::Key),
            _ => None,
        }
    }

    /// The field that people may call it by, beside its id.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Consumer => "username",
            Self::Key => "key",
            _ => "name",
        }
    }

    /// The field of what belongs to it.
    pub(super) const fn reference(self) -> &'static str {
        match self {
            Self::Api => "api",
            Self::Service => "service",
            Self::Route => "route",
            Self::Plugin => "plugin",
            Self::Consumer => "consumer",
            Self::Key => "key",
        }
    }
}

/// What a field may say.
pub(super) enum Shape {
    Text,
    Texts,
    Number,
    Numbers,
    Flag,
    /// Another object, by its id.
    Reference,
    Free,
}

use Shape::{Flag, Free, Number, Numbers, Reference, Text, Texts};

/// The fields of a kind: their shapes, and what they say if nobody does.
fn fields(kind: Kind) -> Vec<(&'static str, Shape, Value)> {
    let minute = || json!(60_000);
    match kind {
        Kind::Api => vec![
            ("name", Text, Value::Null),
            ("hosts", Texts, Value::Null),
            ("uris", Texts, Value::Null),
            ("methods", Texts, Value::Null),
            ("upstream_url", Text, Value::Null),
            ("strip_uri", Flag, json!(true)),
            ("preserve_host", Flag, json!(false)),
            ("retries", Number, json!(5)),
            ("upstream_connect_timeout", Number, minute()),
            ("upstream_send_timeout", Number, minute()),
            ("upstream_read_timeout", Number, minute()),
            ("https_only", Flag, json!(false)),
            ("http_if_terminated", Flag, json!(false)),
        ],
        Kind::Service => vec![
            ("name", Text, Value::Null),
            ("url", Text, Value::Null),
            ("protocol", Text, json!("http")),
            ("host", Text, Value::Null),
            ("port", Number, json!(80)),
            ("path", Text, Value::Null),
            ("retries", Number, json!(5)),
            ("connect_timeout", Number, minute()),
            ("write_timeout", Number, minute()),
            ("read_timeout", Number, minute()),
            ("enabled", Flag, json!(true)),
            ("tags", Texts, Value::Null),
        ],
        Kind::Route => vec![
            ("name", Text, Value::Null),
            ("protocols", Texts, json!(["http", "https"])),
            ("methods", Texts, Value::Null),
            ("hosts", Texts, Value::Null),
            ("paths", Texts, Value::Null),
            ("strip_path", Flag, json!(true)),
            ("preserve_host", Flag, json!(false)),
            ("regex_priority", Number, json!(0)),
            ("path_handling", Text, json!("v0")),
            ("https_redirect_status_code", Number, json!(426)),
            ("request_buffering", Flag, json!(true)),
            ("response_buffering", Flag, json!(true)),
            ("service", Reference, Value::Null),
            ("tags", Texts, Value::Null),
        ],
        Kind::Plugin => vec![
            ("name", Text, Value::Null),
            ("config", Free, json!({})),
            ("enabled", Flag, json!(true)),
            ("protocols", Texts, json!(["grpc", "grpcs", "http", "https"])),
            ("api", Reference, Value::Null),
            ("service", Reference, Value::Null),
            ("route", Reference, Value::Null),
            ("consumer", Reference, Value::Null),
            ("instance_name", Text, Value::Null),
            ("tags", Texts, Value::Null),
        ],
        Kind::Consumer => {
            vec![("username", Text, Value::Null), ("custom_id", Text, Value::Null), ("tags", Texts, Value::Null)]
        }
        Kind::Key => {
            vec![("key", Text, Value::Null), ("consumer", Reference, Value::Null), ("tags", Texts, Value::Null)]
        }
    }
}

/// All objects, in the order they were made.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Objects {
    apis: Vec<Object>,
    services: Vec<Object>,
    routes: Vec<Object>,
    plugins: Vec<Object>,
    consumers: Vec<Object>,
    keys: Vec<Object>,
}

/// What an object says in a field that refers to another.
pub(super) fn reference<'o>(object: &'o Object, name: &str) -> Option<&'o str> {
    object.get(name)?.get("id")?.as_str()
}

/// Whether an object says nothing in a field: an empty list is nothing, too.
pub(super) fn is_unsaid(object: &Object, name: &str) -> bool {
    object.get(name).is_none_or(|value| value.is_null() || value.as_array().is_some_and(Vec::is_empty))
}

pub(super) fn text<'o>(object: &'o Object, name: &str) -> Option<&'o str> {
    object.get(name)?.as_str()
}

impl Objects {
    pub(super) fn all(&self, kind: Kind) -> &[Object] {
        match kind {
            Kind::Api => &self.apis,
            Kind::Service => &self.services,
            Kind::Route => &self.routes,
            Kind::Plugin => &self.plugins,
            Kind::Consumer => &self.consumers,
            Kind::Key => &self.keys,
        }
    }

    fn all_mut(&mut self, kind: Kind) -> &mut Vec<Object> {
        match kind {
            Kind::Api => &mut self.apis,
            Kind::Service => &mut self.services,
            Kind::Route => &mut self.routes,
            Kind::Plugin => &mut self.plugins,
            Kind::Consumer => &mut self.consumers,
            Kind::Key => &mut self.keys,
        }
    }

    /// By id or by name.
    pub(super) fn find(&self, kind: Kind, called: &str) -> Option<&Object> {
        let is_called =
            |object: &&Object| text(object, "id") == Some(called) || text(object, kind.name()) == Some(called);
        self.all(kind).iter().find(is_called)
    }

    /// What belongs to whom a call is about.
    fn owner<'p>(&self, target: &Target<'p>) -> Result<Option<(Kind, &Object)>, Refusal> {
        let Some((kind, called)) = target.of else { return Ok(None) };
        self.find(kind, called).map(|owner| Some((kind, owner))).ok_or(Refusal::NotFound)
    }

    fn one(&self, target: &Target<'_>, called: &str) -> Result<&Object, Refusal> {
        let owner = self.owner(target)?;
        let found = self.find(target.kind, called).ok_or(Refusal::NotFound)?;
        let belongs = owner.is_none_or(|(kind, owner)| reference(found, kind.reference()) == text(owner, "id"));
        belongs.then_some(found).ok_or(Refusal::NotFound)
    }

    /// Answers a call that changes nothing.
    pub(super) fn look(&self, target: &Target<'_>, query: Option<&str>) -> Result<Told, Refusal> {
        if let Some(called) = target.one {
            return Ok((StatusCode::OK, Some(shown(self.one(target, called)?))));
        }
        let owner = self.owner(target)?;
        let belongs = |object: &&Object| {
            owner.is_none_or(|(kind, owner)| reference(object, kind.reference()) == text(owner, "id"))
        };
        let asked = |name: &str, most: RangeInclusive<usize>, usual: usize| {
            let mut pairs = query.unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='));
            let Some((_, value)) = pairs.find(|(key, _)| *key == name) else { return Ok(usual) };
            let wrong = || Refusal::field(name, format!("a whole number from {} to {}", most.start(), most.end()));
            value.parse().ok().filter(|number| most.contains(number)).ok_or_else(wrong)
        };
        let size = asked("size", 1..=MOST_LISTED, LISTED)?;
        let offset = asked("offset", 0..=u32::MAX as usize, 0)?;
        let all: Vec<&Object> = self.all(target.kind).iter().filter(belongs).collect();
        let page: Vec<Value> = all.iter().skip(offset).take(size).map(|object| shown(object)).collect();
        let end = offset + page.len();
        let mut told = json!({"total": all.len(), "data": page, "next": null});
        if end < all.len() {
            let path = match owner {
                Some((kind, owner)) => {
                    let below = if target.kind == Kind::Key { "key-auth" } else { target.kind.path() };
                    format!("{}/{}/{below}", kind.path(), text(owner, "id").unwrap_or_default())
                }
                None => target.kind.path().to_owned(),
            };
            told["next"] = json!(format!("/{path}?size={size}&offset={end}"));
            told["offset"] = json!(end.to_string());
        }
        Ok((StatusCode::OK, Some(told)))
    }

    /// Answers a call that makes, changes or removes something.
    pub(super) fn change(
        &mut self,
        method: &Method,
        target: &Target<'_>,
        given: Object,
        now: Timestamp,
        has_store: bool,
    ) -> Result<Told, Refusal> {
        let existing =
            target.one.map(|called| self.one(target, called).map(|one| text(one, "id").unwrap_or_default().to_owned()));
        match (method, existing) {
            (&Method::POST, None) => {
                let made = self.make(target, given, None, now, has_store)?;
                Ok((StatusCode::CREATED, Some(made)))
            }
            (&Method::PATCH, Some(id)) => {
                Ok((StatusCode::OK, Some(self.make(target, given, Some((&id?, false)), now, has_store)?)))
            }
            (&Method::PUT, Some(Ok(id))) => {
                let given = called(target, given);
                Ok((StatusCode::OK, Some(self.make(target, given, Some((&id, true)), now, has_store)?)))
            }
            (&Method::PUT, Some(Err(Refusal::NotFound))) => {
                let made = self.make_called(target, given, now, has_store)?;
                Ok((StatusCode::OK, Some(made)))
            }
            (&Method::PUT, None) => Ok((StatusCode::CREATED, Some(self.make(target, given, None, now, has_store)?))),
            (&Method::PUT, Some(Err(refusal))) => Err(refusal),
            (&Method::DELETE, Some(id)) => {
                self.remove(target.kind, &id?);
                Ok((StatusCode::NO_CONTENT, None))
            }
            _ => Err(Refusal::NotAllowed),
        }
    }

    /// Makes what is not there under the id or the name that was asked for, so that asking again changes it.
    fn make_called(
        &mut self,
        target: &Target<'_>,
        given: Object,
        now: Timestamp,
        has_store: bool,
    ) -> Result<Value, Refusal> {
        let (kind, one) = (target.kind, target.one.unwrap_or_default());
        if self.find(kind, one).is_some() {
            // It is there, and belongs to somebody else.
            return Err(Refusal::NotFound);
        }
        if is_id(one) {
            return self.make(target, given, Some((&one.to_ascii_lowercase(), true)), now, has_store);
        }
        if kind == Kind::Plugin {
            return Err(Refusal::field("id", "plugins are called by their ids: expected a valid UUID"));
        }
        self.make(target, called(target, given), None, now, has_store)
    }

    /// Removes an object and what belongs to it.
    fn remove(&mut self, kind: Kind, id: &str) {
        self.all_mut(kind).retain(|object| text(object, "id") != Some(id));
        let belonging: Vec<(Kind, String)> = [Kind::Route, Kind::Plugin, Kind::Key]
            .into_iter()
            .flat_map(|other| self.all(other).iter().map(move |object| (other, object)))
            .filter(|(_, object)| reference(object, kind.reference()) == Some(id))
            .filter_map(|(other, object)| Some((other, text(object, "id")?.to_owned())))
            .collect();
        for (other, id) in belonging {
            self.remove(other, &id);
        }
    }

    /// Makes an object, or changes the one of this `old` id if there is one; if that comes with `true`, what is not
    /// said is as if it had never been.
    fn make(
        &mut self,
        target: &Target<'_>,
        given: Object,
        old: Option<(&str, bool)>,
        now: Timestamp,
        has_store: bool,
    ) -> Result<Value, Refusal> {
        let kind = target.kind;
        let given = if kind == Kind::Plugin { in_todays_words(given) } else { given };
        let owner = self
            .owner(target)?
            .map(|(kind, owner)| (kind.reference(), text(owner, "id").unwrap_or_default().to_owned()));
        let before = old.and_then(|(id, _)| self.find(kind, id)).cloned();
        let base = match (&before, old) {
            (Some(before), Some((_, false))) => before.clone(),
            _ => Object::new(),
        };
        let mut object = complete(fields(kind), &base, given, "")?;
        if let Some((reference, id)) = owner {
            object.insert(reference.to_owned(), json!({"id": id}));
        }
        self.check_references(&mut object)?;
        match kind {
            Kind::Api => check_api(&object)?,
            Kind::Service => check_service(&mut object)?,
            Kind::Route => check_route(&object)?,
            Kind::Plugin => check_plugin(&mut object, &base, has_store)?,
            Kind::Consumer if object["username"].is_null() && object["custom_id"].is_null() => {
                return Err(Refusal::field("username", "a consumer needs this or a custom_id"));
            }
            Kind::Consumer => {}
            Kind::Key if object["consumer"].is_null() => return Err(Refusal::field("consumer", "whose key is it?")),
            Kind::Key if object["key"].is_null() => {
                drop(object.insert("key".to_owned(), random_id().replace('-', "").into()));
            }
            Kind::Key => {}
        }
        let id = old.map_or_else(random_id, |(id, _)| id.to_owned());
        self.check_unique(kind, &id, &object)?;
        let made = before.as_ref().and_then(|before| before.get("created_at").cloned());
        let seconds = now.as_micros() / 1_000_000;
        let stamp = if kind == Kind::Api { json!(now.as_micros() / 1_000) } else { json!(seconds) };
        object.insert("created_at".to_owned(), made.unwrap_or(stamp));
        if kind != Kind::Api {
            object.insert("updated_at".to_owned(), json!(seconds));
        }
        object.insert("id".to_owned(), id.clone().into());
        let shown = shown(&object);
        let all = self.all_mut(kind);
        match all.iter_mut().find(|known| text(known, "id") == Some(&id)) {
            Some(known) => *known = object,
            None => all.push(object),
        }
        Ok(shown)
    }

    /// What an object refers to has to be there; it may be called by name as well.
    fn check_references(&self, object: &mut Object) -> Result<(), Refusal> {
        for kind in [Kind::Api, Kind::Service, Kind::Route, Kind::Consumer] {
            let name = kind.reference();
            let Some(Value::Object(given)) = object.get(name) else { continue };
            let called = text(given, "id").or_else(|| text(given, kind.name())).unwrap_or_default();
            let found = self.find(kind, called).and_then(|found| text(found, "id"));
            let id = found.ok_or_else(|| Refusal::field(name, format!("there is no {name} `{called}`")))?.to_owned();
            object.insert(name.to_owned(), json!({"id": id}));
        }
        Ok(())
    }

    fn check_unique(&self, kind: Kind, id: &str, object: &Object) -> Result<(), Refusal> {
        let others = || self.all(kind).iter().filter(|other| text(other, "id") != Some(id));
        if kind == Kind::Plugin {
            let scope = |object: &Object| {
                ["api", "service", "route", "consumer"].map(|name| reference(object, name).map(str::to_owned))
            };
            let limits = |object: &Object| text(object, "name").is_some_and(|name| name.starts_with("rate-limiting"));
            let mut in_scope = others().filter(|other| scope(other) == scope(object));
            if in_scope.clone().any(|other| text(other, "name") == text(object, "name")) {
                return Err(Refusal::Taken("name".to_owned()));
            }
            return match in_scope.find(|other| limits(other) && limits(object)) {
                Some(_) => {
                    let why = "another plugin limits the same already: one plugin can have limits of both forms";
                    Err(Refusal::field("name", why))
                }
                None => Ok(()),
            };
        }
        let name = text(object, kind.name());
        match others().find(|other| name.is_some() && text(other, kind.name()) == name) {
            Some(_) => Err(Refusal::Taken(kind.name().to_owned())),
            None => Ok(()),
        }
    }
}

/// An object as it is shown; one of `/apis` names what it belongs to in the old way.
fn shown(object: &Object) -> Value {
    let mut shown = object.clone();
    shown.remove("api");
    if let Some(id) = reference(object, "api") {
        shown.insert("api_id".to_owned(), id.into());
        shown.insert("consumer_id".to_owned(), reference(object, "consumer").into());
    }
    Value::Object(shown)
}

/// A plugin that names what it belongs to in the old way.
fn in_todays_words(mut given: Object) -> Object {
    for (old, today) in [("api_id", "api"), ("consumer_id", "consumer")] {
        if let Some(id) = given.remove(old).filter(|id| !id.is_null() && id != "") {
            given.entry(today).or_insert(id);
        }
    }
    given
}

/// All fields of an object: what is given, else what was, else the default. What is unknown or of the wrong kind is
/// refused, all at once.
pub(super) fn complete(
    fields: Vec<(&'static str, Shape, Value)>,
    base: &Object,
    mut given: Object,
    within: &str,
) -> Result<Object, Refusal> {
    // What we answered may be sent back as it was.
    for own in ["id", "created_at", "updated_at"] {
        if within.is_empty() {
            given.remove(own);
        }
    }
    let mut object = Object::new();
    let mut wrong = Vec::new();
    for (name, shape, default) in fields {
        let value = match given.remove(name) {
            Some(value) => match shaped(&shape, value) {
                // Whoever takes a value back has said nothing.
                Ok(Value::Null) => default,
                Ok(value) => value,
                Err(why) => {
                    wrong.push((format!("{within}{name}"), why.to_owned()));
                    continue;
                }
            },
            None => base.get(name).cloned().unwrap_or(default),
        };
        object.insert(name.to_owned(), value);
    }
    wrong.extend(given.keys().map(|name| (format!("{within}{name}"), "unknown field".to_owned())));
    if wrong.is_empty() { Ok(object) } else { Err(Refusal::Fields(wrong)) }
}

/// A value as its field has it: forms know only text.
fn shaped(shape: &Shape, value: Value) -> Result<Value, &'static str> {
    if value.is_null() || value == "" {
        return Ok(Value::Null);
    }
    match (shape, value) {
        (Text, Value::String(text)) => Ok(text.into()),
        (Text, Value::Number(number)) => Ok(number.to_string().into()),
        (Text, _) => Err("expected a string"),
        (Flag, Value::Bool(flag)) => Ok(flag.into()),
        (Flag, Value::String(text)) if text == "true" => Ok(true.into()),
        (Flag, Value::String(text)) if text == "false" => Ok(false.into()),
        (Flag, _) => Err("expected a boolean"),
        (Number, Value::Number(number)) => Ok(Value::Number(number)),
        (Number, Value::String(text)) => number(&text),
        (Number, _) => Err("expected a number"),
        (Texts, Value::Array(items)) => {
            items.into_iter().map(|item| shaped(&Text, item)).collect::<Result<Vec<_>, _>>().map(Value::Array)
        }
        (Texts, Value::String(text)) => Ok(text.split(',').map(|item| Value::from(item.trim())).collect()),
        (Texts, _) => Err("expected an array of strings"),
        (Numbers, Value::Array(items)) => {
            items.into_iter().map(|item| shaped(&Number, item)).collect::<Result<Vec<_>, _>>().map(Value::Array)
        }
        (Numbers, Value::String(text)) => {
            text.split(',').map(|item| number(item.trim())).collect::<Result<Vec<_>, _>>().map(Value::Array)
        }
        (Numbers, Value::Number(number)) => Ok(json!([number])),
        (Numbers, _) => Err("expected an array of numbers"),
        (Reference, Value::String(id)) => Ok(json!({"id": id})),
        (Reference, Value::Object(object)) => Ok(Value::Object(object)),
        (Reference, _) => Err("expected an object with an id"),
        (Free, Value::Object(object)) => Ok(Value::Object(object)),
        (Free, _) => Err("expected an object"),
    }
}

fn number(text: &str) -> Result<Value, &'static str> {
    match (text.parse::<i64>(), text.parse::<f64>()) {
        (Ok(number), _) => Ok(number.into()),
        (_, Ok(number)) if number.is_finite() => Ok(number.into()),
        _ => Err("expected a number"),
    }
}

/// What is put under a name has that name.
fn called(target: &Target<'_>, mut given: Object) -> Object {
    let name = target.one.filter(|one| !is_id(one) && !matches!(target.kind, Kind::Plugin | Kind::Key));
    if let Some(name) = name {
        given.entry(target.kind.name()).or_insert_with(|| name.into());
    }
    given
}

/// Whether it could be one of these: 32 digits, in groups.
fn is_id(text: &str) -> bool {
    let groups = text.split('-').map(str::len);
    groups.eq([8, 4, 4, 4, 12]) && text.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit())
}

fn random_id() -> String {
    let mut bytes = [0_u8; 16];
    // Without randomness there are no ids, and the same one twice is refused.
    let _ = getrandom::fill(&mut bytes);
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}
