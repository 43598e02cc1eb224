//! A running service: bound, listening, and able to leave without a failed request.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
use tollgate::rules::{Diagnostics, Source};
use tollgate::{Clock as _, Denials, MemoryStore, Presence, Shelter};
use tollgate_redis::link::{self, RedisLink};
use tollgate_redis::{RedisStore, script};

use super::doorman::Doorman;
use super::drain::{Drain, Phase};
use super::listen::{Listener, Room, Serve};
use super::settings::{GatewaySettings, RedisSettings, Settings};
use super::tls::Tls;
use super::workers::Workers;
use super::{Address, admin::Admin};
use crate::gate::{Gate, GateClock, GateStore, Live, LiveRules, Reloaded};
use crate::gateway::{AccessLog, Bounds, Gateway, Kong, Later, Offenders, ProxyService};
use crate::protocol::envoy::EnvoyService;
use crate::protocol::http::HttpService;
use crate::protocol::resp::RespService;

/// What is served when no rules are given.
pub(crate) const EXAMPLE: &str = include_str!("example.yaml");

/// How often certificates are looked at.
const CERTIFICATES: Duration = Duration::from_secs(1);

/// How soon servers are counted again if Redis could not be asked.
const COUNT_AGAIN: Duration = Duration::from_millis(200);

/// What all protocols share.
pub(crate) struct House {
    pub(crate) gate: Arc<Gate>,
    pub(crate) live: Live,
    pub(crate) settings: Settings,
    pub(crate) drain: Drain,
    /// Who answers requests, if this is a gateway.
    pub(crate) gateway: Option<Arc<Gateway>>,
}

impl House {
    /// One that nobody can reach, for tests of what protocols answer.
    #[cfg(test)]
    #[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    pub(crate) fn unreachable(rules: &str, settings: Settings, clock: GateClock) -> Arc<Self> {
        let gate = Arc::new(Gate::new(
            GateStore::Memory(MemoryStore::with_budget(1 << 20)),
            clock,
            settings.near_limit_ratio,
            false,
        ));
        let rules = LiveRules::Embedded(Source::new("rules.yaml", rules));
        let live = Live::start(rules, Arc::clone(&gate), None, settings.strict_start).ok().unwrap();
        Arc::new(Self { gate, live, settings, drain: Drain::new(), gateway: None })
    }

    /// What a drain begins with.
    #[cfg(test)]
    pub(crate) fn leave(&self) {
        self.drain.enter(Phase::Leaving);
    }

    /// Whether to send requests here.
    pub(crate) fn is_ready(&self) -> bool {
        let has_rules = || self.gate.rules().domains().next().is_some();
        self.drain.is_serving() && (!self.settings.ready_with_rules || has_rules())
    }
}

/// A service whose addresses are bound. It serves while [`Server::run`] does.
pub struct Server {
    house: Arc<House>,
    workers: Arc<Workers>,
    listeners: Vec<JoinHandle<()>>,
    runtime: Runtime,
    addresses: Addresses,
}

/// Where a service listens, with the ports that were free.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "their names say it")]
pub struct Addresses {
    pub grpc: Address,
    pub http: Address,
    pub resp: Address,
    pub proxy: Address,
    pub admin: Address,
    pub metrics: Address,
}

/// Why a service did not start.
#[derive(Debug)]
pub enum StartError {
    /// The rules are wrong.
    Rules(Arc<Diagnostics>),
    /// Something else.
    Other(anyhow::Error),
}

impl From<anyhow::Error> for StartError {
    fn from(error: anyhow::Error) -> Self {
        Self::Other(error)
    }
}

impl Server {
    /// Loads the rules and binds every address: who connects from now on is served as soon as it runs.
    pub fn start(settings: Settings, clock: GateClock) -> Result<Self, StartError> {
        if settings.admin.is_public() && settings.admin_token.is_none() {
            let refusal = "the admin port can be reached from elsewhere and has no token: give it one \
                           (--admin-token-file or TOLLGATE_ADMIN_TOKEN), or listen on 127.0.0.1";
            return Err(StartError::Other(anyhow::anyhow!(refusal)));
        }
        let proxy = settings.gateway.as_ref().map_or(&Address::Off, |gateway| &gateway.proxy);
        if [&settings.grpc, &settings.http, &settings.resp, proxy].into_iter().all(|address| *address == Address::Off) {
            let refusal = "--grpc, --http and --resp are all off: there is nothing to serve";
            return Err(StartError::Other(anyhow::anyhow!(refusal)));
        }
        let runtime = Builder::new_current_thread().enable_all().build().context("a runtime cannot be started")?;
        let store = open_store(&settings, load_state(&settings, &clock)?)?;
        let gate = Arc::new(Gate::new(store, clock, settings.near_limit_ratio, settings.envoy.metric_names));
        let gateway = match &settings.gateway {
            Some(gateway) => {
                let doorman = Doorman::new(gateway.connections, &settings.trusted_proxies)?;
                let offenders = gateway.bans.as_ref().map(Offenders::new).transpose()?;
                Some(Arc::new(Gateway::new(runtime.handle().clone(), settings.http_timeout, doorman, offenders)))
            }
            None => None,
        };
        let from = match &*settings.rules {
            [] if gateway.is_none() => LiveRules::Embedded(Source::new("example.yaml", EXAMPLE)),
            paths => LiveRules::Paths(paths.to_vec()),
        };
        let kong = match &settings.gateway {
            Some(gateway) => Some(Arc::new(Kong::open(gateway.data.as_ref(), gateway.admin_upstreams.clone())?)),
            None => None,
        };
        let made = kong.as_ref().map(|kong| runtime.block_on(kong.text())).unwrap_or_default();
        let following = gateway.clone().map(|gateway| (gateway, made));
        let live = Live::start(from, Arc::clone(&gate), following, settings.strict_start).map_err(StartError::Rules)?;
        if let Some(domain) = settings.domain.as_ref().filter(|domain| !gate.rules().has_domain(domain)) {
            tracing::warn!(domain, "--domain names one that there are no rules for: what names none is allowed");
        }
        let drain = Drain::new();
        let workers = Arc::new(Workers::start(settings.workers.max(1))?);
        let house = Arc::new(House { gate, live, settings, drain, gateway: gateway.clone() });

        let later = match (&gateway, &house.settings.gateway) {
            (Some(gateway), Some(GatewaySettings { data, later_requests, later_bytes, .. })) => {
                let bounds = Bounds { requests: *later_requests, bytes: *later_bytes };
                Some(Later::open(&house, gateway, data.as_deref(), bounds, runtime.handle())?)
            }
            _ => None,
        };

        let inside = runtime.enter();
        let Settings { grpc, http, resp, admin, metrics, grpc_tls, http_tls, .. } = &house.settings;
        let grpc_tls = tls(grpc_tls.as_ref(), &[b"h2"])?;
        let http_tls = tls(http_tls.as_ref(), &[b"h2", b"http/1.1"])?;
        let mut proxy_tls = None;
        let mut opening = Opening { house: &house, workers: &workers, bound: Vec::new() };
        let addresses = Addresses {
            grpc: opening.bind("grpc", grpc, grpc_tls.as_ref(), EnvoyService::new(&house))?,
            http: opening.bind("http", http, http_tls.as_ref(), HttpService::new(&house))?,
            resp: opening.bind("resp", resp, None, RespService::new(&house))?,
            proxy: match (&gateway, &later, &house.settings.gateway) {
                (Some(gateway), Some(later), Some(settings)) => {
                    proxy_tls = tls(settings.tls.as_ref(), &[b"h2", b"http/1.1"])?;
                    let log = settings.access_log.as_deref().map(AccessLog::open).transpose()?;
                    let service = ProxyService::new(&house, gateway, later, log);
                    opening.bind("proxy", &settings.proxy, proxy_tls.as_ref(), service)?
                }
                _ => Address::Off,
            },
            admin: opening.bind("admin", admin, None, Admin::new(&house, kong, later.clone()))?,
            metrics: opening.bind("metrics", metrics, None, Admin::only_metrics(&house, later.clone()))?,
        };
        // Nothing is accepted before everything is bound.
        let mut listeners: Vec<_> = opening.bound.into_iter().map(|listen| listen(&runtime)).collect();
        if let Some(later) = later {
            listeners.push(runtime.spawn(later.finish(house.drain.listen())));
        }
        if house.settings.redis.as_ref().is_some_and(|redis| redis.servers.is_none()) {
            let presence = Presence::new().context("servers cannot be counted")?;
            listeners.push(runtime.spawn(count_servers(Arc::clone(&house), presence)));
        }
        let certificates: Vec<_> = [grpc_tls, http_tls, proxy_tls].into_iter().flatten().collect();
        if !certificates.is_empty() {
            // Ends with the runtime; nobody waits for it.
            drop(runtime.spawn(refresh(certificates)));
        }
        drop(inside);
        Ok(Self { house, workers, listeners, runtime, addresses })
    }

    /// Where it listens.
    pub fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// Whether it is a gateway that leads anywhere, by its files or by what was made through its admin port.
    pub(crate) fn has_routes(&self) -> bool {
        self.house.gateway.as_ref().is_some_and(|gateway| gateway.has_routes())
    }

    /// Makes its runtime that of this thread, for as long as the guard lives.
    pub(crate) fn enter(&self) -> tokio::runtime::EnterGuard<'_> {
        self.runtime.enter()
    }

    /// Reads the rules again, now. False if something is wrong with them.
    pub fn reload(&self) -> bool {
        let reloaded = self.runtime.block_on(self.house.live.reload());
        matches!(reloaded, Ok(Reloaded::Done))
    }

    /// Serves until `end`, and then drains.
    pub fn run(self, end: impl Future<Output = ()>) -> anyhow::Result<()> {
        self.run_until(end, std::future::pending)
    }

    /// Runs until `end`, reading the rules again whenever `reload` completes; then drains.
    pub(crate) fn run_until<R: Future<Output = ()>>(
        self,
        end: impl Future<Output = ()>,
        mut reload: impl FnMut() -> R,
    ) -> anyhow::Result<()> {
        self.runtime.block_on(async {
            let mut end = std::pin::pin!(end);
            loop {
                tokio::select! {
                    () = &mut end => break,
                    () = reload() => {
                        let is_right = matches!(self.house.live.reload().await, Ok(Reloaded::Done));
                        tracing::info!(is_right, "rules read again");
                    }
                }
            }
        });
        self.drain()
    }

    /// Leaves: readiness off, no new connections, what is asked is answered, counters are kept.
    fn drain(self) -> anyhow::Result<()> {
        let Self { house, workers, listeners, runtime, .. } = self;
        runtime.block_on(async {
            house.drain.enter(Phase::Leaving);
            tokio::time::sleep(house.settings.drain_delay).await;
            house.drain.enter(Phase::Closing);
            let finished = async {
                for listener in listeners {
                    let _ = listener.await;
                }
                while workers.connections() > 0 {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            if tokio::time::timeout(house.settings.drain_timeout, finished).await.is_err() {
                tracing::warn!(connections = workers.connections(), "connections did not finish in time");
            }
        });
        if let Some(path) = &house.settings.state {
            house.gate.save_state(path)?;
            tracing::info!("counters saved");
        }
        tracing::info!("stopped");
        Ok(())
    }
}

/// Addresses that are bound, not yet listened on.
struct Opening<'a> {
    house: &'a Arc<House>,
    workers: &'a Arc<Workers>,
    bound: Vec<Listen>,
}

type Listen = Box<dyn FnOnce(&Runtime) -> JoinHandle<()>>;

impl Opening<'_> {
    fn bind<S: Serve>(
        &mut self,
        option: &str,
        address: &Address,
        tls: Option<&Arc<Tls>>,
        protocol: S,
    ) -> anyhow::Result<Address> {
        let bound = Listener::bind(address).with_context(|| format!("--{option} {address}"))?;
        let Some(listener) = bound else { return Ok(Address::Off) };
        let address = listener.address()?;
        let room = Room {
            protocol: Arc::new(protocol),
            workers: Arc::clone(self.workers),
            tls: tls.cloned(),
            most_connections: self.house.settings.max_connections,
            drained: self.house.drain.listen(),
        };
        self.bound.push(Box::new(move |runtime| runtime.spawn(listener.run(room))));
        Ok(address)
    }
}

/// `memory`, or a Redis with `memory` beside it. Redis need not be there yet.
fn open_store(settings: &Settings, memory: MemoryStore) -> anyhow::Result<GateStore> {
    let Some(RedisSettings { address, deadline, servers }) = &settings.redis else {
        return Ok(GateStore::Memory(memory));
    };
    let behaviour = link::Settings::with_deadline(*deadline);
    let link = RedisLink::open(address.clone(), script::source(), behaviour).context("Redis has no thread")?;
    let shared = Shelter::new(Denials::new(RedisStore::new(link)), memory);
    if let Some(servers) = servers {
        shared.set_servers(*servers);
    }
    Ok(GateStore::Shared(Box::new(shared)))
}

/// Lets the others know of this server until it closes, and keeps count of them.
async fn count_servers(house: Arc<House>, presence: Presence) {
    let Some(shared) = house.gate.store().shared() else { return };
    let (redis, now) = (shared.shared().store(), || house.gate.engine().clock().now());
    let mut drained = house.drain.listen();
    loop {
        // While Redis cannot be asked the last count holds.
        let pause = match presence.report(redis, now()).await {
            Ok(servers) => {
                shared.set_servers(servers);
                Presence::every().into()
            }
            Err(_) => COUNT_AGAIN,
        };
        tokio::select! {
            () = drained.closing() => break,
            () = tokio::time::sleep(pause) => {}
        }
    }
    // If it is not heard of, the others find out by themselves.
    let _ = presence.leave(redis, now()).await;
}

fn load_state(settings: &Settings, clock: &GateClock) -> anyhow::Result<MemoryStore> {
    let Some(path) = &settings.state else { return Ok(MemoryStore::with_budget(settings.memory)) };
    if path.exists() {
        let store = MemoryStore::load_snapshot(path, settings.memory, clock.now())
            .with_context(|| format!("--state {}: remove the file to begin anew", path.display()))?;
        tracing::info!(keys = store.keys(), "counters restored");
        return Ok(store);
    }
    // Whether it can be written is better known now than at the end, when the counters are at stake.
    let beside = path.with_added_extension(format!("{}.probe", std::process::id()));
    std::fs::File::create(&beside)
        .and_then(|_| std::fs::remove_file(&beside))
        .with_context(|| format!("--state {}: counters cannot be kept there", path.display()))?;
    Ok(MemoryStore::with_budget(settings.memory))
}

fn tls(files: Option<&super::tls::TlsFiles>, protocols: &'static [&'static [u8]]) -> anyhow::Result<Option<Arc<Tls>>> {
    files.map(|files| Tls::load(files.clone(), protocols).map(Arc::new)).transpose()
}

async fn refresh(certificates: Vec<Arc<Tls>>) {
    loop {
        tokio::time::sleep(CERTIFICATES).await;
        certificates.iter().for_each(|tls| tls.refresh());
    }
}
