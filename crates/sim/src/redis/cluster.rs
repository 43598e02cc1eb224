//! A Cluster of six: three primaries that share the slots, and a replica of each.

use super::eventually;
use super::server::{RedisServer, free_port};

const SLOTS: [(&str, &str); 3] = [("0", "5460"), ("5461", "10922"), ("10923", "16383")];

/// A Cluster.
#[derive(Debug)]
pub struct Cluster {
    /// The first three are the primaries at the start, the others their replicas, in order.
    pub servers: Vec<RedisServer>,
}

impl Cluster {
    /// Starts one and waits until it serves. A server that is silent for half a second is taken for dead.
    pub fn start(args: &[&str]) -> Self {
        let start = |_| {
            let bus = free_port().to_string();
            let own = ["--cluster-enabled", "yes", "--cluster-node-timeout", "500", "--cluster-port", &bus];
            (RedisServer::start(&[&own, args].concat()), bus)
        };
        let (servers, buses): (Vec<_>, Vec<_>) = (0..6).map(start).unzip();
        let cluster = Self { servers };
        for (number, server) in cluster.servers.iter().enumerate() {
            server.cli(&["CLUSTER", "SET-CONFIG-EPOCH", &(number + 1).to_string()]);
        }
        for (server, (from, to)) in cluster.servers.iter().zip(SLOTS) {
            server.cli(&["CLUSTER", "ADDSLOTSRANGE", from, to]);
        }
        let [first, others @ ..] = &*cluster.servers else { panic!("there are six") };
        for (other, bus) in others.iter().zip(buses.iter().skip(1)) {
            first.cli(&["CLUSTER", "MEET", "127.0.0.1", &other.port().to_string(), bus]);
        }
        let all = |what: &str, holds: &dyn Fn(&RedisServer) -> bool| {
            eventually(what, || cluster.servers.iter().all(holds));
        };
        all("servers know one another", &|server| {
            let nodes = server.cli(&["CLUSTER", "NODES"]);
            nodes.lines().count() == 6 && nodes.matches(" connected").count() == 6
        });
        for (primary, replica) in cluster.servers.iter().zip(cluster.servers.iter().skip(3)) {
            let id = primary.cli(&["CLUSTER", "MYID"]);
            eventually("a replica follows", || replica.cli(&["CLUSTER", "REPLICATE", &id]) == "OK");
        }
        all("the Cluster serves", &|server| {
            server.cli(&["CLUSTER", "INFO"]).contains("cluster_state:ok")
                && server.cli(&["CLUSTER", "NODES"]).matches(" slave ").count()
                    + server.cli(&["CLUSTER", "NODES"]).matches("myself,slave").count()
                    == 3
        });
        eventually("replicas are in step", || {
            let primaries = cluster.servers.iter().take(3);
            primaries.clone().all(|server| server.cli(&["INFO", "replication"]).contains("state=online"))
        });
        cluster
    }

    /// The URL, by some of its servers.
    pub fn url(&self) -> String {
        let hosts: Vec<_> = self.servers.iter().take(2).map(|server| server.address().to_string()).collect();
        format!("redis+cluster://{}", hosts.join(","))
    }

    /// Moves a slot with its keys from one server to another, step by step; `between` is called when it is on its way,
    /// with the keys still at the source.
    pub fn migrate(&self, slot: u16, from: usize, to: usize, between: impl FnOnce()) {
        let (source, target) = (&self.servers[from], &self.servers[to]);
        let (source_id, target_id) = (source.cli(&["CLUSTER", "MYID"]), target.cli(&["CLUSTER", "MYID"]));
        let slot = slot.to_string();
        target.cli(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source_id]);
        source.cli(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target_id]);
        between();
        loop {
            let keys = source.cli_quoted(&format!("CLUSTER GETKEYSINSLOT {slot} 100\n"));
            let keys: Vec<_> = keys.lines().filter_map(|line| line.split_once(") ")).map(|(_, key)| key).collect();
            if keys.is_empty() {
                break;
            }
            let port = target.port();
            source.cli_quoted(&format!("MIGRATE 127.0.0.1 {port} \"\" 0 1000 KEYS {}\n", keys.join(" ")));
        }
        target.cli(&["CLUSTER", "SETSLOT", &slot, "NODE", &target_id]);
        source.cli(&["CLUSTER", "SETSLOT", &slot, "NODE", &target_id]);
    }
}
