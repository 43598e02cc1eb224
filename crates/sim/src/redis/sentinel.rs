//! A primary, two replicas, and three Sentinels who watch them.

use super::eventually;
use super::server::{RedisServer, free_port, scratch};

/// What the Sentinels call the primary.
const NAME: &str = "main";

/// Servers behind Sentinels.
#[derive(Debug)]
pub struct Replicated {
    /// The first is the primary at the start.
    pub servers: Vec<RedisServer>,
    /// Three of them, of whom two have to agree.
    pub sentinels: Vec<RedisServer>,
}

impl Replicated {
    /// Starts them all, with further arguments for the servers, and waits until everybody knows everybody. A primary
    /// that is silent for half a second is taken for dead.
    pub fn start(args: &[&str]) -> Self {
        let first = RedisServer::start(args);
        let port = first.port().to_string();
        let mut servers = vec![first];
        let of_first = format!("127.0.0.1 {port}");
        for _ in 0..2 {
            servers.push(RedisServer::start(&[&["--replicaof", &of_first], args].concat()));
        }
        eventually("replicas are in step", || {
            servers
                .first()
                .is_some_and(|first| first.cli(&["INFO", "replication"]).matches("state=online").count() == 2)
        });
        let sentinels: Vec<_> = (0..3).map(|_| sentinel(&port)).collect();
        let replicated = Self { servers, sentinels };
        eventually("Sentinels know one another and the replicas", || {
            replicated.sentinels.iter().all(|sentinel| {
                let known = sentinel.cli(&["SENTINEL", "MASTER", NAME]);
                let after = |name: &str| known.lines().skip_while(|line| *line != name).nth(1).map(str::to_owned);
                after("num-other-sentinels").as_deref() == Some("2") && after("num-slaves").as_deref() == Some("2")
            })
        });
        replicated
    }

    /// The URL of all Sentinels.
    pub fn url(&self) -> String {
        let hosts: Vec<_> = self.sentinels.iter().map(|sentinel| sentinel.address().to_string()).collect();
        format!("redis+sentinel://{}/{NAME}", hosts.join(","))
    }

    /// The port of the primary, as one Sentinel says.
    pub fn primary_port(&self, sentinel: usize) -> Option<u16> {
        let said = self.sentinels.get(sentinel)?.cli(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME]);
        said.lines().nth(1)?.parse().ok()
    }

    /// A Sentinel more, of whom the others do not know, and who takes the server at that port for the primary.
    pub fn sentinel_for(&self, port: u16) -> RedisServer {
        sentinel(&port.to_string())
    }

    /// Has a replica promoted, although the primary is well.
    pub fn fail_over(&self) {
        if let Some(sentinel) = self.sentinels.first() {
            eventually("Sentinel agrees", || sentinel.cli(&["SENTINEL", "FAILOVER", NAME]) == "OK");
        }
    }

    /// The server at that port.
    pub fn server(&self, port: u16) -> Option<&RedisServer> {
        self.servers.iter().find(|server| server.port() == port)
    }
}

fn sentinel(primary_port: &str) -> RedisServer {
    let port = free_port();
    let directory = scratch();
    let file = directory.join("sentinel.conf");
    let text = format!(
        "port {port}\nbind 127.0.0.1\nsentinel monitor {NAME} 127.0.0.1 {primary_port} 2\n\
         sentinel down-after-milliseconds {NAME} 500\nsentinel failover-timeout {NAME} 3000\n"
    );
    std::fs::write(&file, text).expect("a file can be written");
    RedisServer::start_on(port, &[&file.display().to_string(), "--sentinel"])
}
