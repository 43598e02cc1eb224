//! The gateway. What is asked comes from one trusted proxy that speaks for a million addresses; the server behind is on
//! the core of the load: nginx, or the load itself.

pub(crate) mod flood;
pub(crate) mod idle;
pub(crate) mod proxy;
pub(crate) mod shaping;

use std::net::SocketAddr;

use super::Run;
use crate::process::Server;

/// So much for everybody that nobody is denied.
const PLENTY: &str = "rules: [{name: by-address, per: ip, limits: 100000/s}]\n";
const NO_RULES: &str = "rules: []\n";

impl Run {
    /// A server that answers at once.
    fn origin(&self) -> Result<Server, String> {
        let http = "server { listen 127.0.0.1:PORT backlog=4096; location / { return 200 \"hello from behind the proxy\\n\"; } }";
        Server::nginx(&[self.cores.load], &self.scratch, "origin", http)
    }

    /// The gateway before it, with these rules.
    fn gateway(&self, name: &str, origin: SocketAddr, rules: &str) -> Result<Server, String> {
        let text = format!("routes: [{{name: all, upstream: \"http://{origin}\"}}]\n{rules}");
        Server::gateway(&self.server(), &self.scratch.write(name, &text)?)
    }
}
