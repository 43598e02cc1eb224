//! Connections to Redis: one server, a primary that Sentinel watches, or a Cluster.
//!
//! A link has a thread of its own with all its connections, so that callers may live on any runtime, or on several: a
//! request crosses from its thread to the link's and its answer back, and nothing that a caller's thread does keeps
//! others waiting. What callers of all threads ask at the same time shares calls. Connecting, logging in, looking up
//! names and finding out who is the primary happen there too, never on the path of a caller.
//!
//! Whatever happens, a caller is answered or told [`Unavailable`] at its deadline, and nothing is sent twice that may
//! have been carried out.

mod address;
mod backoff;
mod breaker;
mod cluster;
mod desk;
mod flight;
mod handshake;
mod lookout;
mod map;
mod names;
mod node;
mod resp;
mod sentinel;
mod slots;
mod stream;
mod talk;
mod unavailable;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use smallvec::SmallVec;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

pub use address::{Address, BadAddress, Endpoint, Login, Password, Secret, TlsFiles, Topology};
pub use desk::{COUNTS, Health, Standing};
pub use names::Resolver;
pub use unavailable::{Refusal, Unavailable, Why, Word};

use crate::call::{Link, Reply, Request};
use handshake::Access;
use map::Map;
use names::Names;
use node::{Errand, Errands, News, Node, Surroundings};

/// How a link behaves. The defaults are for a Redis in the same data centre.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How long a caller waits at most.
    pub deadline: Duration,
    /// How long an attempt to connect may take, with the login.
    pub connect_timeout: Duration,
    /// The least and the most time from one attempt to connect to the next.
    pub reconnect_least: Duration,
    /// See `reconnect_least`. A server that comes back is found after this time at the latest.
    pub reconnect_most: Duration,
    /// A connection that was idle for this long is looked at.
    pub keepalive: Duration,
    /// How many requests may wait for one server.
    pub queue: usize,
    /// How many rounds of calls are under way to one server before requests wait to share the next.
    pub depth: u64,
    /// How many requests share a call at most.
    pub most_requests: usize,
    /// Looks up the names of servers.
    pub resolver: Resolver,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            deadline: Duration::from_millis(5),
            connect_timeout: Duration::from_millis(200),
            reconnect_least: Duration::from_millis(50),
            reconnect_most: Duration::from_millis(200),
            keepalive: Duration::from_secs(1),
            queue: 4096,
            depth: 2,
            most_requests: 128,
            resolver: Resolver::default(),
        }
    }
}

impl Settings {
    /// For a Redis that answers within `deadline`, mostly: the farther away it is, the longer a connection may take.
    pub fn with_deadline(deadline: Duration) -> Self {
        let usual = Self::default();
        Self { deadline, connect_timeout: usual.connect_timeout.max(deadline * 10), ..usual }
    }
}

/// A link to Redis. Clones share it; it is closed when the last one is dropped.
#[derive(Clone, Debug)]
pub struct RedisLink {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    map: Arc<ArcSwap<Map>>,
    settings: Settings,
    one_tag_per_call: bool,
    /// What stands for all servers, where none is known.
    name: Arc<str>,
    stop: watch::Sender<bool>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        let _ = self.stop.send(true);
    }
}

impl RedisLink {
    /// Starts to connect to what is at `address`, and returns at once: a Redis that is absent now is the same as one
    /// that is lost.
    ///
    /// # Errors
    /// Only if the system has no thread to spare.
    pub fn open(address: Address, script: &str, settings: Settings) -> io::Result<Self> {
        let map: Arc<ArcSwap<Map>> = Arc::default();
        let (news, heard) = mpsc::unbounded_channel();
        let one_tag_per_call = matches!(address.topology, Topology::Cluster { .. });
        let access = Access {
            login: address.login.clone(),
            database: address.database,
            tls: address.tls.clone(),
            names: Arc::new(Names::new(settings.resolver.clone())),
            timeout: settings.connect_timeout,
        };
        let around = Arc::new(Surroundings {
            access,
            script: script.into(),
            settings: settings.clone(),
            primary_only: matches!(address.topology, Topology::Sentinel { .. }),
            one_tag_per_call,
            map: Arc::clone(&map),
            news,
        });
        let (stop, mut stopped) = watch::channel(false);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            // Files only.
            .max_blocking_threads(2)
            .build()?;
        let name = name(&address.topology);
        let (started, start) = std::sync::mpsc::sync_channel(1);
        std::thread::Builder::new().name("redis".to_owned()).spawn(move || {
            runtime.block_on(async {
                let keeping = keep_map(address, around, heard, started);
                tokio::pin!(keeping);
                tokio::select! {
                    () = &mut keeping => {}
                    _ = stopped.wait_for(|stop| *stop) => {}
                }
            });
            // A file that hangs is left behind.
            runtime.shutdown_background();
        })?;
        // So that there is a server to speak of from the first call on.
        let _ = start.recv();
        Ok(Self { shared: Arc::new(Shared { map, settings, one_tag_per_call, name, stop }) })
    }

    /// How each server is. Those of a Cluster are all of its primaries and replicas.
    pub fn health(&self) -> Vec<Health> {
        let now = Instant::now();
        self.shared.map.load().nodes().iter().map(|node| node.desk().health(now)).collect()
    }

    /// Whether every key has a server that is asked.
    pub fn is_serving(&self) -> bool {
        self.shared.map.load().all_stand(&[Standing::Serving])
    }
}

impl Link for RedisLink {
    type Error = Unavailable;

    async fn call(&self, request: Request) -> Result<Reply, Unavailable> {
        let admitted = match self.shared.map.load().home(request.tag()) {
            Some(node) => {
                let (errand, answer) = node.admit(request, &self.shared.settings)?;
                node.hand_over(SmallVec::from_buf([errand]));
                (answer, Arc::clone(node.name()))
            }
            None => return Err(Unavailable::new(&self.shared.name, Why::Homeless)),
        };
        answered(admitted).await
    }

    async fn call_all(&self, requests: Vec<Request>) -> Vec<Result<Reply, Unavailable>> {
        let mut answers = Vec::with_capacity(requests.len());
        {
            let map = self.shared.map.load();
            let mut parcels: Vec<(&Arc<Node>, Errands)> = Vec::new();
            for request in requests {
                answers.push(match map.home(request.tag()) {
                    Some(node) => node.admit(request, &self.shared.settings).map(|(errand, answer)| {
                        match parcels.iter_mut().find(|(other, _)| Arc::ptr_eq(other, node)) {
                            Some((_, errands)) => errands.push(errand),
                            None => parcels.push((node, SmallVec::from_buf([errand]))),
                        }
                        (answer, Arc::clone(node.name()))
                    }),
                    None => Err(Unavailable::new(&self.shared.name, Why::Homeless)),
                });
            }
            parcels.into_iter().for_each(|(node, errands)| node.hand_over(errands));
        }
        let mut replies = Vec::with_capacity(answers.len());
        for admitted in answers {
            replies.push(match admitted {
                Ok(admitted) => answered(admitted).await,
                Err(refused) => Err(refused),
            });
        }
        replies
    }

    fn send(&self, request: Request) {
        if let Some(node) = self.shared.map.load().home(request.tag()) {
            node.take(request, &self.shared.settings);
        }
    }

    fn one_tag_per_call(&self) -> bool {
        self.shared.one_tag_per_call
    }
}

/// Waits for an answer of this server.
async fn answered((answer, server): (node::Answer, Arc<str>)) -> Result<Reply, Unavailable> {
    answer.await.unwrap_or_else(|_| Err(Unavailable::new(&server, node::gone())))
}

fn name(topology: &Topology) -> Arc<str> {
    let list = |endpoints: &[Endpoint]| endpoints.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    match topology {
        Topology::Single(endpoint) => endpoint.to_string().into(),
        Topology::Sentinel { sentinels, name } => format!("{name} of Sentinels {}", list(sentinels)).into(),
        Topology::Cluster { seeds } => format!("Cluster {}", list(seeds)).into(),
    }
}

/// Keeps the map of servers what it should be, for as long as the link is open, whatever happens inside.
async fn keep_map(
    address: Address,
    around: Arc<Surroundings>,
    mut news: mpsc::UnboundedReceiver<News>,
    started: std::sync::mpsc::SyncSender<()>,
) {
    let mut started = Some(started);
    loop {
        node::caught(follow(&address, &around, &mut news, started.take())).await;
        tracing::error!("what follows the servers of Redis failed and was started again");
        around.map.load().nodes().iter().for_each(|node| node.give_up());
        tokio::time::sleep(around.settings.reconnect_least).await;
    }
}

async fn follow(
    address: &Address,
    around: &Arc<Surroundings>,
    news: &mut mpsc::UnboundedReceiver<News>,
    started: Option<std::sync::mpsc::SyncSender<()>>,
) {
    match &address.topology {
        Topology::Single(endpoint) => {
            around.map.store(Arc::new(Map::single(Node::start(endpoint.clone(), around))));
            drop(started);
            // One server is where it is, whatever happens.
            while let Some(heard) = news.recv().await {
                if let News::Forward(errand, _) | News::Stranded(errand, _) = heard {
                    refuse_forward(errand, around);
                }
            }
        }
        Topology::Sentinel { sentinels, name } => {
            drop(started);
            sentinel::follow(sentinels, name, &address.sentinel_login, around, news).await;
        }
        Topology::Cluster { seeds } => {
            drop(started);
            cluster::follow(seeds, around, news).await;
        }
    }
}

/// A server sends callers on to others as those of a Cluster do, and the address says that it is none.
fn refuse_forward(errand: Errand, around: &Surroundings) {
    let server = around.map.load().nodes().first().map_or_else(|| "".into(), |node| Arc::clone(node.name()));
    let refusal = Refusal::read(b"CROSSSLOT the keys are at another server");
    let _ = errand.reply.send(Err(Unavailable::new(&server, Why::Refused(refusal))));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_longer_for_answers_waits_longer_for_connections() {
        let connecting =
            |deadline| Settings::with_deadline(Duration::from_millis(deadline)).connect_timeout.as_millis();
        assert_eq!([1, 5, 20, 100].map(connecting), [200, 200, 200, 1_000]);
    }
}
