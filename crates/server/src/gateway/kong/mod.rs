//! Kong's admin API, as far as it is about routes, consumers and rate limits: the calls of version 0.x (`/apis`) and
//! today's.
//!
//! What is made here is kept as objects, in the order they were made, and put in force as a text in tollgate's own
//! language: there is no second kind of route and no second kind of limit. A call that would make no sense changes
//! nothing and is told why.

mod check;
mod form;
mod object;
mod plugin;
mod render;

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use http::{Method, StatusCode};
use serde_json::{Map, Value, json};
use tokio::sync::Mutex;
use tollgate::Clock as _;
use tollgate::rules::Place;

use self::object::{Kind, Objects};
use crate::gate::Reloaded;
use crate::serve::House;

pub(super) type Object = Map<String, Value>;

/// The file that objects are kept in.
const FILE: &str = "objects.json";

/// What was made through the admin port.
pub(crate) struct Kong {
    objects: Arc<Mutex<Objects>>,
    file: Option<PathBuf>,
    /// Where servers may be: whoever reaches the admin port is not to reach everything else by it.
    within: Vec<Place>,
}

/// An answer: a status, and a body if there is one.
pub(crate) type Told = (StatusCode, Option<Value>);

/// Why a call changes nothing.
#[derive(Debug)]
pub(super) enum Refusal {
    /// These fields are wrong, each for its reason.
    Fields(Vec<(String, String)>),
    /// There is one of that name already.
    Taken(String),
    NotFound,
    BadBody(String),
    NotAllowed,
    /// It is all right, and yet cannot be done.
    Failed(StatusCode, String),
}

impl Refusal {
    pub(super) fn field(name: &str, why: impl Into<String>) -> Self {
        Self::Fields(vec![(name.to_owned(), why.into())])
    }

    fn told(self) -> Told {
        match self {
            Self::Fields(fields) => {
                let all: Vec<String> = fields.iter().map(|(name, why)| format!("{name}: {why}")).collect();
                let fields: Object = fields.into_iter().map(|(name, why)| (name, why.into())).collect();
                let message = format!("schema violation ({})", all.join("; "));
                let body = json!({"code": 2, "name": "schema violation", "message": message, "fields": fields});
                (StatusCode::BAD_REQUEST, Some(body))
            }
            Self::Taken(what) => {
                let body = json!({"code": 5, "name": "unique constraint violation", "message": format!("UNIQUE violation detected on '{what}'")});
                (StatusCode::CONFLICT, Some(body))
            }
            Self::NotFound => (StatusCode::NOT_FOUND, Some(json!({"message": "Not found"}))),
            Self::BadBody(why) => (StatusCode::BAD_REQUEST, Some(json!({"message": why}))),
            Self::Failed(status, why) => (status, Some(json!({"message": why}))),
            Self::NotAllowed => (StatusCode::METHOD_NOT_ALLOWED, Some(json!({"message": "Method not allowed"}))),
        }
    }
}

impl Kong {
    /// What there is to ask, as the admin port lists it. `NAME` is a name or an id.
    pub(crate) const ROUTES: [(&str, &str, &str); 12] = [
        ("GET, POST", "/services", "Kong's services: where requests go; forms or JSON"),
        ("GET, POST", "/routes", "Kong's routes: which requests go there; also below /services/NAME"),
        ("GET, POST", "/consumers", "who is known by a key"),
        ("GET, POST", "/consumers/NAME/key-auth", "the keys of one; /key-auths has all of them"),
        ("GET", "/key-auths", "all keys"),
        ("GET, POST", "/plugins", "rate-limiting, rate-limiting-advanced and key-auth, for all requests"),
        ("GET, POST", "/services/NAME/plugins", "the same for one service"),
        ("GET, POST", "/routes/NAME/plugins", "for one route"),
        ("GET, POST", "/consumers/NAME/plugins", "for one consumer"),
        ("GET, POST", "/apis", "services and routes in one, as Kong 0.x has them"),
        ("GET, POST", "/apis/NAME/plugins", "plugins for one of those"),
        ("GET, PATCH, PUT, DELETE", "/KIND/NAME", "one of any of these"),
    ];

    /// With what was kept in `data`. Nothing is in force yet.
    pub(crate) fn open(data: Option<&PathBuf>, within: Vec<Place>) -> anyhow::Result<Self> {
        let file = data.map(|data| data.join(FILE));
        let mut objects = Objects::default();
        if let (Some(data), Some(file)) = (data, &file) {
            std::fs::create_dir_all(data).with_context(|| format!("--data {}", data.display()))?;
            if file.exists() {
                let text = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
                objects = serde_json::from_slice(&text).with_context(|| {
                    format!("{}: this is not what was kept there; move it away to begin anew", file.display())
                })?;
            }
        }
        Ok(Self { objects: Arc::new(Mutex::new(objects)), file, within })
    }

    /// What is in force of it, as a text in tollgate's language.
    pub(crate) async fn text(&self) -> String {
        render::text(&*self.objects.lock().await, &self.within)
    }

    /// Whether a path is one of Kong's.
    pub(crate) fn knows(path: &str) -> bool {
        let first = path.trim_start_matches('/').split('/').next().unwrap_or_default();
        Kind::ALL.into_iter().any(|kind| kind.path() == first)
    }

    /// Answers a call, if it is one of Kong's.
    pub(crate) async fn answer(
        self: &Arc<Self>,
        house: &Arc<House>,
        method: &Method,
        path: &str,
        query: Option<&str>,
        kind: Option<&str>,
        body: &[u8],
    ) -> Option<Told> {
        let segments: Vec<String> = path
            .split('/')
            .filter(|segment| !segment.is_empty())
            .map(|segment| crate::protocol::percent::decode_path(segment).into_owned())
            .collect();
        let target = Target::of(&segments.iter().map(String::as_str).collect::<Vec<_>>())?;
        let told = match *method {
            Method::GET | Method::HEAD => self.objects.lock().await.look(&target, query),
            _ => match form::read(kind, body) {
                Ok(given) => self.change(house, method, &target, given).await,
                Err(refusal) => Err(refusal),
            },
        };
        Some(told.unwrap_or_else(Refusal::told))
    }

    /// Makes, changes or removes something: all of it or nothing, whether or not the caller stays to hear which.
    async fn change(
        self: &Arc<Self>,
        house: &Arc<House>,
        method: &Method,
        target: &Target<'_>,
        given: Object,
    ) -> Result<Told, Refusal> {
        let mut objects = Arc::clone(&self.objects).lock_owned().await;
        let mut changed = objects.clone();
        let now = house.gate.engine().clock().now();
        let has_store = house.gate.store().shared().is_some();
        let told = changed.change(method, target, given, now, has_store)?;
        let (this, house) = (Arc::clone(self), Arc::clone(house));
        let putting = tokio::spawn(async move { this.put_in_force(&house, &mut objects, changed).await });
        let ending =
            |_| Err(Refusal::Failed(StatusCode::SERVICE_UNAVAILABLE, "the gateway is about to end".to_owned()));
        putting.await.unwrap_or_else(ending)?;
        if let (Kind::Plugin, (_, Some(plugin))) = (target.kind, &told) {
            warn_of(plugin);
        }
        Ok(told)
    }

    /// Addresses can be looked at now; where names lead is looked at whenever they are connected to.
    fn check_places(&self, objects: &Objects) -> Result<(), Refusal> {
        for url in render::urls(objects) {
            let address = url.parse::<tollgate::rules::Address>().ok();
            let host = address.as_ref().and_then(|address| address.host_and_port()).map_or("", |(host, _)| host);
            let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
            let Ok(ip) = host.parse() else { continue };
            if !self.within.iter().any(|place| place.contains(ip)) {
                let places: Vec<String> = self.within.iter().map(Place::to_string).collect();
                let why = format!("servers may be within {}, and {ip} is not (--admin-upstreams)", places.join(", "));
                return Err(Refusal::field("host", why));
            }
        }
        Ok(())
    }

    /// Puts what was changed in force and keeps it, or leaves everything as it was.
    async fn put_in_force(&self, house: &House, objects: &mut Objects, changed: Objects) -> Result<(), Refusal> {
        self.check_places(&changed)?;
        render::check(&changed)?;
        if let Err(why) = house.live.set_made(render::text(&changed, &self.within)).await.and_then(understood) {
            // What was there before is in force again.
            let _ = house.live.set_made(render::text(objects, &self.within)).await;
            return Err(Refusal::BadBody(format!("this cannot be put in force: {why:#}")));
        }
        if let Some(file) = &self.file {
            let text = serde_json::to_vec_pretty(&changed).unwrap_or_default();
            if let Err(error) = keep(file, &text) {
                let _ = house.live.set_made(render::text(objects, &self.within)).await;
                let why = format!("this cannot be kept, so it is not in force either: {error:#}");
                return Err(Refusal::Failed(StatusCode::INTERNAL_SERVER_ERROR, why));
            }
        }
        *objects = changed;
        Ok(())
    }
}

/// Only names are told: there are passwords among the values.
fn warn_of(plugin: &Value) {
    let names: Vec<String> =
        plugin::without_effect(&plugin["config"]).into_iter().map(|name| format!("config.{name}")).collect();
    if !names.is_empty() {
        let (name, id) = (&plugin["name"], &plugin["id"]);
        tracing::warn!("the plugin {name} {id} says what is without effect here: {}", names.join(", "));
    }
}

fn understood((reloaded, problems): (Reloaded, Arc<tollgate::rules::Diagnostics>)) -> anyhow::Result<()> {
    if reloaded == Reloaded::Done {
        return Ok(());
    }
    let first = problems.iter().find(|problem| problem.severity == tollgate::rules::Severity::Error);
    Err(anyhow::Error::msg(first.map_or_else(|| "it makes no sense".to_owned(), |problem| problem.message.clone())))
}

/// Writes a file so that a crash leaves the old one or the new one, never half of it.
fn keep(file: &std::path::Path, text: &[u8]) -> anyhow::Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let beside = file.with_extension("new");
    // There are keys in it.
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut writing = options.open(&beside).with_context(|| format!("cannot write {}", beside.display()))?;
    writing.write_all(text)?;
    writing.sync_all()?;
    std::fs::rename(&beside, file).with_context(|| format!("cannot write {}", file.display()))?;
    // The name is on the disk when its directory is.
    let directory = file.parent().map(std::fs::File::open).transpose()?;
    directory.map_or(Ok(()), |directory| directory.sync_all()).context("cannot keep the directory")
}

/// What a call is about.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Target<'p> {
    /// Only what belongs to this one.
    pub(super) of: Option<(Kind, &'p str)>,
    pub(super) kind: Kind,
    /// One of them; all if none is named.
    pub(super) one: Option<&'p str>,
}

impl<'p> Target<'p> {
    fn of(segments: &[&'p str]) -> Option<Self> {
        let kind = |name: &str| Kind::ALL.into_iter().find(|kind| kind.path() == name);
        Some(match segments {
            [kinds] => Self { of: None, kind: kind(kinds)?, one: None },
            [kinds, one] => Self { of: None, kind: kind(kinds)?, one: Some(one) },
            [owners, owner, kinds] => {
                Self { of: Some((kind(owners)?, owner)), kind: Kind::below(kind(owners)?, kinds)?, one: None }
            }
            [owners, owner, kinds, one] => {
                Self { of: Some((kind(owners)?, owner)), kind: Kind::below(kind(owners)?, kinds)?, one: Some(one) }
            }
            _ => return None,
        })
    }
}
