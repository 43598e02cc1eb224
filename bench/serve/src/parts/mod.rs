//! The parts of a run, each of which can be asked for alone.

mod gateway;
mod grpc;
mod http;
mod reload;
mod resp;
mod scale;
mod start;

use std::net::SocketAddr;

use crate::load::{Keys, Shape};
use crate::process::{Cores, Scratch, Server};
use crate::report::Goals;

/// Rounds of those measurements that are compared with others.
const ROUNDS: usize = 15;
/// Users that are asked about if nothing else is said: more than a few, and all in the cache.
const FEW: Keys = Keys::Any(1_000);
/// As many as redis-benchmark is told to use.
const MANY: Keys = Keys::Any(1_000_000);

/// What all parts need.
pub struct Run {
    pub cores: Cores,
    pub scratch: Scratch,
    pub goals: Goals,
}

/// Those that measure the gateway, and not the service.
pub const OF_THE_GATEWAY: [&str; 4] = ["proxy", "shaping", "flood", "idle"];

/// A name, what is measured, and how.
pub type Part = (&'static str, &'static str, fn(&mut Run) -> Result<(), String>);

/// All, by name, with what each measures.
pub const PARTS: [Part; 10] = [
    ("grpc", "ShouldRateLimit beside tonic services that do nothing", grpc::run),
    ("resp", "CL.THROTTLE beside redis-server", resp::run),
    ("http", "POST /v1/check beside an axum handler that does nothing", http::run),
    ("scale", "all of them with a million keys and with 10,000 rules, and memory", scale::run),
    ("reload", "latency while rules are replaced", reload::run),
    ("start", "from start to ready", start::run),
    ("proxy", "the gateway beside nginx and Envoy with a limit, and without one", gateway::proxy::run),
    ("shaping", "how even a queue's outflow is", gateway::shaping::run),
    ("flood", "what one client that asks far too often does to others", gateway::flood::run),
    ("idle", "10,000 idle connections", gateway::idle::run),
];

impl Run {
    /// The cores of a server, as a list.
    fn server(&self) -> [usize; 1] {
        [self.cores.server]
    }

    /// `tollgate serve` with one worker on the core for servers.
    fn tollgate(&self, name: &str, rules: &str, args: &[&str]) -> Result<Server, String> {
        let file = self.scratch.write(name, rules)?;
        Server::tollgate(&self.server(), &file, &[&["--workers", "1"], args].concat())
    }
}

/// Four connections with 16 calls each, as Envoy would have them.
const fn calls(keys: Keys) -> Shape {
    Shape { connections: 4, depth: 16, in_batches: false, keys }
}

const fn requests(keys: Keys) -> Shape {
    Shape { connections: 32, depth: 1, in_batches: false, keys }
}

/// As redis-benchmark has them by default, in pipelines of `depth`.
const fn commands(depth: usize, keys: Keys) -> Shape {
    Shape { connections: 50, depth, in_batches: true, keys }
}

fn found(address: Option<SocketAddr>) -> Result<SocketAddr, String> {
    address.ok_or_else(|| "the server did not say where it listens".to_owned())
}
