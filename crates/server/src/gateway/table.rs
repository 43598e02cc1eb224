//! What goes where: routes and servers in force, swapped as a whole when files change.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tollgate::RuleSet;
use tollgate::rules::{
    Condition, ConsumerSpec, CostSpec, DeniedSpec, HealthSpec, JwtSpec, KeyPattern, KeySpec, LaterSpec,
    Limits as Tolls, Network, Priority, RouteSpec, Target, Unit, UpstreamSpec,
};
use tollgate_core::{Algorithm, Micros};
use tollgate_gateway::{Group, HealthCheck, Limits, Route, Routes, Wanted};

use super::Client;
use super::jwt::{TokenCounts, Tokens};
use super::known::{Known, Source};
use super::offenders::Offenders;
use super::overload::Overload;
use super::trust::trust;
use crate::gate::Exposition;
use crate::serve::{Doorman, HeaderProfile};

/// Requests that a gateway answers for, and who answers them.
pub(crate) struct Gateway {
    table: ArcSwap<Table>,
    /// The groups that are in force, by everything that is said about them: one that stays keeps its connections.
    groups: Mutex<BTreeMap<String, Watched>>,
    /// What groups are given at a time, by their names: what is on its way stays so when files change.
    overloads: Mutex<BTreeMap<Arc<str>, Arc<Overload>>>,
    tokens: Arc<TokenCounts>,
    /// Who looks at connections.
    doorman: Arc<Doorman>,
    /// Whom the kernel is told to drop, if anybody.
    offenders: Option<Offenders>,
    /// Where health checks run.
    runtime: Handle,
    /// How long clients may be silent while the rest of their requests is expected.
    patience: Duration,
}

/// A group, looked after for as long as this lives.
struct Watched {
    group: Arc<Group>,
    watch: JoinHandle<()>,
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

/// The routes in force.
pub(crate) struct Table {
    pub(super) routes: Routes<Arc<Lane>>,
    by_name: HashMap<Arc<str>, Arc<Lane>>,
    /// By what SHA-256 makes of their keys.
    consumers: HashMap<[u8; 32], Arc<Consumer>>,
    /// By all that is said about them.
    tokens: BTreeMap<String, Arc<Tokens>>,
}

impl Table {
    /// The route of this name.
    pub(super) fn lane(&self, name: &str) -> Option<&Arc<Lane>> {
        self.by_name.get(name)
    }

    /// Whose key this is, and what SHA-256 makes of it.
    pub(super) fn consumer(&self, key: &[u8]) -> Option<(&[u8; 32], &Consumer)> {
        self.consumers.get_key_value(&sha256(key)).map(|(hash, consumer)| (hash, &**consumer))
    }
}

fn sha256(bytes: &[u8]) -> [u8; 32] {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    digest.as_ref().try_into().unwrap_or_default()
}

fn consumers(specs: &[ConsumerSpec]) -> HashMap<[u8; 32], Arc<Consumer>> {
    let mut consumers = HashMap::new();
    for spec in specs {
        let consumer = Arc::new(Consumer { name: Arc::clone(&spec.name), attributes: spec.attributes.clone() });
        for key in &spec.keys {
            let hash = match key {
                KeySpec::Plain(key) => sha256(key.as_bytes()),
                KeySpec::Sha256(hash) => *hash,
            };
            consumers.insert(hash, Arc::clone(&consumer));
        }
    }
    consumers
}

/// One route, with all that is needed on the way.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(super) name: Arc<str>,
    pub(super) domain: Arc<str>,
    pub(super) group: Arc<Group>,
    pub(super) strip_path: bool,
    pub(super) preserve_host: bool,
    /// Whether a `%2F` may be in its paths.
    pub(super) encoded_slash: bool,
    /// What may be spoken after an upgrade.
    pub(super) upgrades: Vec<Arc<str>>,
    pub(super) attributes: Vec<(Arc<str>, Arc<str>)>,
    pub(super) cost: Option<CostSpec>,
    /// What the rules of the domain ask about.
    pub(super) wanted: Arc<[(Arc<str>, Source)]>,
    /// Whether they count bytes of answers, bytes of requests, and requests that are not answered yet.
    pub(super) counts_bytes: bool,
    pub(super) counts_uploads: bool,
    pub(super) counts_slots: bool,
    allow: Vec<Network>,
    deny: Vec<Network>,
    /// Where a consumer's key has to be; nobody needs one if there is nothing.
    pub(super) api_key: Vec<String>,
    /// What is told of a denial instead of the usual.
    pub(super) denied: DeniedSpec,
    /// How requests are kept that are done later.
    pub(super) later: LaterSpec,
    /// Which headers tell of limits; those of the settings if nothing is said.
    pub(super) profiles: Option<Vec<HeaderProfile>>,
    /// How many requests its servers are given at a time, if anything is said of that.
    pub(super) overload: Option<Arc<Overload>>,
    priority: Option<Priority>,
    /// Whether rules of the domain say of requests that they matter more, or less.
    ranked: bool,
    /// What is done with tokens, if anybody wants to know what they say.
    pub(super) tokens: Option<Arc<Tokens>>,
}

/// Somebody who is known by a key.
#[derive(Debug)]
pub(crate) struct Consumer {
    pub(super) name: Arc<str>,
    pub(super) attributes: Vec<(Arc<str>, Arc<str>)>,
}

impl Lane {
    /// How much a request matters: what the route says, else the most that a rule says which it meets. Rules that say
    /// nothing of it do not count.
    pub(super) fn priority(&self, known: &Known<'_>, rules: impl FnOnce() -> Arc<RuleSet>) -> Priority {
        if let Some(priority) = self.priority.or_else(|| (!self.ranked).then(Priority::default)) {
            return priority;
        }
        let mut highest = None;
        rules().collect(&self.domain, &known.attributes(), |met| {
            highest = highest.max(met.rule.rule().priority);
        });
        highest.unwrap_or_default()
    }

    pub(super) fn is_welcome(&self, ip: Option<IpAddr>) -> bool {
        if self.allow.is_empty() && self.deny.is_empty() {
            return true;
        }
        let is_in = |networks: &[Network]| ip.is_some_and(|ip| networks.iter().any(|network| network.contains(ip)));
        !is_in(&self.deny) && (self.allow.is_empty() || is_in(&self.allow))
    }
}

impl Gateway {
    /// One without routes. Health checks run on `runtime`, clients have `patience` to send the rest of a request.
    pub(crate) fn new(runtime: Handle, patience: Duration, doorman: Doorman, offenders: Option<Offenders>) -> Self {
        let table = ArcSwap::from_pointee(Table {
            routes: Routes::new(Vec::new()),
            by_name: HashMap::new(),
            consumers: HashMap::new(),
            tokens: BTreeMap::new(),
        });
        Self {
            table,
            groups: Mutex::default(),
            overloads: Mutex::default(),
            tokens: Arc::default(),
            doorman: Arc::new(doorman),
            offenders,
            runtime,
            patience,
        }
    }

    pub(crate) fn has_routes(&self) -> bool {
        !self.table.load().by_name.is_empty()
    }

    pub(super) fn doorman(&self) -> &Arc<Doorman> {
        &self.doorman
    }

    /// A client was told that it is over a limit.
    pub(super) fn denied(&self, client: &Client) {
        if let (Some(offenders), Some(from)) = (&self.offenders, client.own_address()) {
            offenders.denied(from);
        }
    }

    pub(super) fn table(&self) -> Arc<Table> {
        self.table.load_full()
    }

    /// Puts routes and servers in force, as a whole, and asks of requests what `rules` want to know.
    pub(crate) fn replace(&self, spec: &tollgate::rules::Gateway, rules: &RuleSet) {
        if spec.routes.is_empty() {
            tracing::warn!("no routes are in force: every request is answered with 404");
        }
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        let overloads = self.overloads(&spec.upstreams);
        let mut kept = BTreeMap::new();
        let mut lanes = Vec::with_capacity(spec.routes.len());
        let mut domains: BTreeMap<&str, Asked> = BTreeMap::new();
        let (before, mut tokens) = (self.table(), BTreeMap::new());
        for route in &spec.routes {
            let Some((identity, upstream)) = upstream_of(route, &spec.upstreams) else { continue };
            let (name, is_bounded) = (Arc::clone(&upstream.name), upstream.overload.is_some());
            let watched = kept
                .entry(identity.clone())
                .or_insert_with(|| groups.remove(&identity).unwrap_or_else(|| self.watched(upstream)));
            let overload = is_bounded.then(|| overloads.get(&*name).cloned()).flatten();
            let asked = domains.entry(&route.domain).or_insert_with(|| Asked::by(rules, &route.domain));
            let lane = Lane {
                name: Arc::clone(&route.name),
                domain: Arc::clone(&route.domain),
                group: Arc::clone(&watched.group),
                strip_path: route.strip_path,
                preserve_host: route.preserve_host,
                encoded_slash: route.encoded_slash,
                upgrades: route.upgrades.clone().unwrap_or_else(|| vec![Arc::from("websocket")]),
                attributes: route.attributes.clone(),
                cost: route.cost.clone(),
                wanted: Arc::clone(&asked.wanted),
                counts_bytes: asked.bytes,
                counts_uploads: asked.uploads,
                counts_slots: asked.slots,
                allow: route.allow.clone(),
                deny: route.deny.clone(),
                api_key: route.api_key.clone(),
                denied: route.denied.clone(),
                overload,
                priority: route.priority,
                ranked: asked.ranked,
                tokens: route.jwt.as_ref().and_then(|spec| self.tokens(spec, asked, &before.tokens, &mut tokens)),
                later: route.later.clone(),
                profiles: route
                    .denied
                    .headers
                    .as_ref()
                    .map(|families| families.iter().map(|one| (*one).into()).collect()),
            };
            let methods = route.methods.iter().filter_map(|method| method.parse().ok()).collect();
            let wanted = Wanted { hosts: route.hosts.clone(), paths: route.paths.clone(), methods };
            lanes.push(Route { wanted, to: Arc::new(lane) });
        }
        let by_name = lanes.iter().map(|route| (Arc::clone(&route.to.name), Arc::clone(&route.to))).collect();
        let table = Table { routes: Routes::new(lanes), by_name, consumers: consumers(&spec.consumers), tokens };
        self.table.store(Arc::new(table));
        // Those that are left are not in force any more; whoever is being answered by them is answered.
        *groups = kept;
    }

    /// What is done with tokens that are to be verified like this. Routes that have it in common know the same tokens,
    /// and what was known `before` still is.
    fn tokens(
        &self,
        spec: &Arc<JwtSpec>,
        asked: &Asked,
        before: &BTreeMap<String, Arc<Tokens>>,
        known: &mut BTreeMap<String, Arc<Tokens>>,
    ) -> Option<Arc<Tokens>> {
        let wanted: Box<[Box<str>]> =
            asked.wanted.iter().filter_map(|(_, source)| Some(source.claim()?.into())).collect();
        if !Tokens::matters(spec, &wanted) {
            return None;
        }
        let identity = format!("{spec:?} {wanted:?}");
        let old = before.get(&identity).cloned();
        let new = || old.unwrap_or_else(|| Arc::new(Tokens::new(spec, wanted, &self.tokens, before.values())));
        Some(Arc::clone(known.entry(identity).or_insert_with(new)))
    }

    /// Looks at the files of keys again.
    pub(crate) fn refresh(&self) {
        for tokens in self.table().tokens.values() {
            tokens.refresh();
        }
    }

    /// What each of these is given at a time. One that stays goes on with what is on its way.
    fn overloads(&self, upstreams: &[UpstreamSpec]) -> BTreeMap<Arc<str>, Arc<Overload>> {
        let mut known = self.overloads.lock().unwrap_or_else(PoisonError::into_inner);
        let mut overloads = BTreeMap::new();
        for upstream in upstreams {
            let Some(spec) = &upstream.overload else { continue };
            let overload = match known.get(&upstream.name) {
                Some(overload) => {
                    overload.set(spec);
                    Arc::clone(overload)
                }
                None => Arc::new(Overload::new(&upstream.name, spec)),
            };
            overloads.insert(Arc::clone(&upstream.name), overload);
        }
        known.clone_from(&overloads);
        overloads
    }

    /// What upstreams are given, for whoever collects it.
    pub(crate) fn expose(&self, out: &mut Exposition) {
        let overloads = self.overloads.lock().unwrap_or_else(PoisonError::into_inner).clone();
        overloads.values().for_each(|overload| overload.expose(out));
        self.expose_servers(out);
        self.tokens.expose(out);
        self.doorman.expose(out);
        if let Some(offenders) = &self.offenders {
            offenders.expose(out);
        }
    }

    /// Which servers are asked.
    fn expose_servers(&self, out: &mut Exposition) {
        let mut servers = BTreeMap::new();
        for watched in self.groups.lock().unwrap_or_else(PoisonError::into_inner).values() {
            for server in watched.group.servers() {
                let name = (watched.group.name().to_owned(), server.address().to_string());
                servers.insert(name, server.is_well() && !server.rests());
            }
        }
        out.gauge(
            "tollgate_upstream_server_up",
            "1 while a server is asked, 0 while its health check fails or it is left alone since it failed.",
        );
        for ((upstream, server), is_up) in &servers {
            out.sample(&[("upstream", upstream), ("server", server)], u8::from(*is_up));
        }
    }

    fn watched(&self, spec: UpstreamSpec) -> Watched {
        let limits = Limits::default();
        let limits = Limits {
            connect: spec.connect_timeout.map_or(limits.connect, duration),
            silence: spec.timeout.map_or(limits.silence, duration),
            client: self.patience,
            tunnel: spec.tunnel_timeout.map_or(limits.tunnel, duration),
            ..limits
        };
        let trust = spec.servers.iter().any(tollgate::rules::Address::is_encrypted).then(|| trust(spec.ca.as_deref()));
        let trust = trust.and_then(|trust| match trust {
            Ok(trust) => Some(trust),
            Err(error) => {
                tracing::error!(upstream = &*spec.name, "its servers cannot be trusted, so it is not asked: {error:#}");
                None
            }
        });
        let health = spec.health.as_ref().map(health);
        let group =
            Arc::new(Group::new(&spec.name, spec.servers, limits, trust.as_ref(), spec.within.as_ref(), health));
        let watch = self.runtime.spawn(Arc::clone(&group).watch());
        Watched { group, watch }
    }
}

/// The servers of a route, and what tells them from others.
fn upstream_of(route: &RouteSpec, upstreams: &[UpstreamSpec]) -> Option<(String, UpstreamSpec)> {
    let upstream = match &route.upstream {
        Target::Named(name) => upstreams.iter().find(|upstream| upstream.name == *name)?.clone(),
        Target::Server(address) => UpstreamSpec {
            name: Arc::clone(&route.name),
            servers: vec![address.clone()],
            health: None,
            connect_timeout: None,
            timeout: None,
            tunnel_timeout: None,
            ca: None,
            within: None,
            overload: None,
            span: route.span,
        },
    };
    let UpstreamSpec {
        name,
        servers,
        health,
        connect_timeout,
        timeout,
        tunnel_timeout,
        ca,
        within,
        overload: _,
        span: _,
    } = &upstream;
    // A file that says something else is another one.
    let certificates = ca.as_ref().map(|path| std::fs::read(&**path).map(|pem| sha256(&pem)).unwrap_or_default());
    let times = (connect_timeout, timeout, tunnel_timeout);
    let identity = format!("{:?}", (name, servers, health, times, ca, certificates, within));
    Some((identity, upstream))
}

fn duration(time: Micros) -> Duration {
    Duration::from_micros(time.as_micros())
}

fn health(spec: &HealthSpec) -> HealthCheck {
    let usual = HealthCheck::new(&spec.path);
    HealthCheck {
        every: spec.every.map_or(usual.every, duration),
        timeout: spec.timeout.map_or(usual.timeout, duration),
        failures: spec.failures.unwrap_or(usual.failures),
        successes: spec.successes.unwrap_or(usual.successes),
        path: usual.path,
    }
}

/// What the rules of a domain want to know.
struct Asked {
    wanted: Arc<[(Arc<str>, Source)]>,
    bytes: bool,
    uploads: bool,
    slots: bool,
    ranked: bool,
}

impl Asked {
    fn by(rules: &RuleSet, domain: &str) -> Self {
        let (mut keys, mut seen) = (Vec::new(), HashSet::new());
        let mut want = |key: &Arc<str>| {
            if seen.insert(Arc::clone(key))
                && let Some(source) = Source::of(key)
            {
                keys.push((Arc::clone(key), source));
            }
        };
        let (mut bytes, mut uploads, mut slots, mut ranked) = (false, false, false, false);
        for rule in rules.rules().iter().map(tollgate::rules::CompiledRule::rule).filter(|rule| *rule.domain == *domain)
        {
            ranked |= rule.priority.is_some();
            for entry in &rule.entries {
                if let KeyPattern::Exact(key) = &entry.key {
                    want(key);
                }
            }
            for Condition { key, .. } in rule.exceptions().flatten() {
                want(key);
            }
            if let Tolls::Own(limits) = &rule.limits {
                slots |= limits.iter().any(|limit| matches!(limit.limit.algorithm(), Algorithm::Concurrency(_)));
                let counts =
                    |unit: &str| limits.iter().any(|limit| matches!(&limit.unit, Unit::Named(name) if **name == *unit));
                bytes |= counts("bytes") || counts("response_bytes");
                uploads |= counts("bytes") || counts("request_bytes");
            }
        }
        Self { wanted: keys.into(), bytes, uploads, slots, ranked }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A route that asks for these.
    pub(in crate::gateway) fn lane(name: &str, wanted: Vec<(Arc<str>, Source)>) -> Lane {
        let address = "http://127.0.0.1:9".parse().unwrap();
        Lane {
            name: name.into(),
            domain: "default".into(),
            group: Arc::new(Group::new(name, [address], Limits::default(), None, None, None)),
            strip_path: false,
            preserve_host: false,
            encoded_slash: false,
            upgrades: Vec::new(),
            attributes: Vec::new(),
            cost: None,
            wanted: wanted.into(),
            counts_bytes: false,
            counts_uploads: false,
            counts_slots: false,
            allow: Vec::new(),
            deny: Vec::new(),
            api_key: Vec::new(),
            denied: DeniedSpec::default(),
            later: LaterSpec::default(),
            profiles: None,
            overload: None,
            priority: None,
            ranked: false,
            tokens: None,
        }
    }

    #[test]
    fn who_may_ask_is_said_by_two_lists() {
        let networks = |list: &str| list.split_whitespace().map(|net| Network::parse(net).unwrap()).collect();
        for (allow, deny, ip, is_welcome) in [
            ("", "", "1.2.3.4", true),
            ("10.0.0.0/8", "", "10.1.1.1", true),
            ("10.0.0.0/8", "", "1.2.3.4", false),
            ("", "1.2.3.4", "1.2.3.4", false),
            ("", "1.2.3.4", "1.2.3.5", true),
            ("10.0.0.0/8", "10.6.0.0/16", "10.6.1.1", false),
        ] {
            let lane = Lane { allow: networks(allow), deny: networks(deny), ..lane("a", Vec::new()) };
            assert_eq!(lane.is_welcome(Some(ip.parse().unwrap())), is_welcome, "{allow} / {deny}: {ip}");
        }
        let lane = Lane { allow: networks("10.0.0.0/8"), ..lane("a", Vec::new()) };
        assert!(!lane.is_welcome(None));
    }
}
