//! Follows a Cluster: who has which slots, asked in the background of several servers at a time, soon where something
//! is wrong. There is a connection to every server, replicas too, so that one that is promoted can be asked at once.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::address::Endpoint;
use super::desk::Standing;
use super::handshake::{Connection, NoConnection};
use super::map::Map;
use super::node::{News, Node, Surroundings, random};
use super::resp::Value;
use super::slots::{Server, Slots, read};
use super::unavailable::{Refusal, Unavailable};

/// How often servers are asked while all is well, and while it is not.
const CALM: Duration = Duration::from_secs(5);
const TROUBLE: Duration = Duration::from_millis(100);
/// How many servers are asked at a time.
const ASKED: usize = 3;
/// More servers than a Cluster can have are not connected to, whatever somebody says of them; and so many that only
/// redirections speak of.
const MOST_SERVERS: usize = 1_000;
const MOST_STRANGERS: usize = 16;

/// Keeps the map to the servers of a Cluster.
pub(super) async fn follow(seeds: &[Endpoint], around: &Arc<Surroundings>, news: &mut mpsc::UnboundedReceiver<News>) {
    let (seeds, around) = (seeds.to_vec(), Arc::clone(around));
    let (slots, nodes, known, told) = (Slots::default(), Vec::new(), Vec::new(), String::new());
    let mut atlas = Atlas { seeds, around, slots, nodes, known, turn: 0, told };
    let mut questions: JoinSet<Result<Vec<Server>, String>> = JoinSet::new();
    let mut next = Instant::now();
    loop {
        tokio::select! {
            Some(heard) = news.recv() => match heard {
                News::Trouble => {}
                News::Moved(slot, to) => {
                    if atlas.stranger(&to).is_some() && atlas.slots.moved(slot, &to) {
                        atlas.publish();
                    }
                    next = next.min(Instant::now() + TROUBLE);
                    continue;
                }
                News::Forward(errand, to) | News::Stranded(errand, to) => {
                    match atlas.stranger(&to) {
                        Some(node) => {
                            node.forward(errand);
                            atlas.publish();
                        }
                        None => {
                            let why = errand.unanswered(atlas.around.settings.deadline);
                            let _ = errand.reply.send(Err(Unavailable::new(&to.to_string().into(), why)));
                        }
                    }
                    next = next.min(Instant::now() + TROUBLE);
                    continue;
                }
            },
            Some(answer) = questions.join_next() => match answer {
                Ok(Ok(servers)) => atlas.hear(&servers),
                Ok(Err(error)) => atlas.tell(&error),
                Err(_) => {}
            },
            () = tokio::time::sleep_until(next) => {
                if questions.is_empty() {
                    for endpoint in atlas.whom_to_ask() {
                        questions.spawn(ask(endpoint, Arc::clone(&atlas.around)));
                    }
                }
                let well = atlas.around.map.load().is_well();
                next = Instant::now() + if well { CALM } else { TROUBLE };
                continue;
            }
        }
        if !atlas.around.map.load().is_well() {
            next = next.min(Instant::now() + TROUBLE);
        }
    }
}

/// Asks one server about all.
async fn ask(endpoint: Endpoint, around: Arc<Surroundings>) -> Result<Vec<Server>, String> {
    let asking = async {
        let mut connection = Connection::open(&endpoint, &around.access).await?;
        match connection.ask(&[vec![b"CLUSTER", b"NODES"]]).await?.pop() {
            Some(Value::Error(line)) => Err(NoConnection::Refused(Refusal::read(&line))),
            Some(answer) => read(answer.text().unwrap_or_default(), &endpoint, around.access.tls.is_some())
                .map_err(|wrong| NoConnection::Other(format!("it answered nonsense to CLUSTER NODES: {wrong}"))),
            None => Err(NoConnection::Other("it answered nothing to CLUSTER NODES".to_owned())),
        }
    };
    let late = || NoConnection::Other(format!("no answer in {:?}", around.access.timeout));
    let answer = timeout(around.access.timeout, asking).await.unwrap_or_else(|_| Err(late()));
    answer.map_err(|error| format!("{endpoint}: {error}"))
}

/// What is known of a Cluster.
struct Atlas {
    seeds: Vec<Endpoint>,
    around: Arc<Surroundings>,
    slots: Slots,
    nodes: Vec<Arc<Node>>,
    /// Those that the others spoke of, last.
    known: Vec<Endpoint>,
    /// Whose turn it is to be asked.
    turn: usize,
    /// What was logged last, so that it is logged once.
    told: String,
}

impl Atlas {
    /// The node at `endpoint`, started if there is none.
    fn node(&mut self, endpoint: &Endpoint) -> Arc<Node> {
        if let Some(node) = self.nodes.iter().find(|node| node.endpoint() == endpoint) {
            return Arc::clone(node);
        }
        let node = Node::start(endpoint.clone(), &self.around);
        self.nodes.push(Arc::clone(&node));
        node
    }

    /// The node that a redirection leads to; none if there were too many that lead to where nobody else knows a server.
    fn stranger(&mut self, endpoint: &Endpoint) -> Option<Arc<Node>> {
        let is_there = self.nodes.iter().any(|node| node.endpoint() == endpoint);
        let strangers = self.nodes.iter().filter(|node| !self.known.contains(node.endpoint())).count();
        (is_there || strangers < MOST_STRANGERS).then(|| self.node(endpoint))
    }

    /// Takes what a server said of all.
    fn hear(&mut self, servers: &[Server]) {
        let servers = servers.get(..MOST_SERVERS).unwrap_or(servers);
        self.known = servers.iter().map(|server| server.endpoint.clone()).collect();
        self.told.clear();
        let changed = self.slots.merge(servers);
        let before = self.nodes.len();
        for server in servers {
            self.node(&server.endpoint);
        }
        let added = self.nodes.len() > before;
        let (slots, mut left) = (&self.slots, false);
        self.nodes.retain(|node| {
            let stays =
                servers.iter().any(|server| server.endpoint == *node.endpoint()) || slots.has_any(node.endpoint());
            if !stays {
                node.give_up();
                left = true;
            }
            stays
        });
        if changed || added || left {
            self.publish();
        }
    }

    fn publish(&self) {
        let home = |slot| {
            let owner = self.slots.owner(slot)?;
            self.nodes.iter().position(|node| node.endpoint() == owner)
        };
        self.around.map.store(Arc::new(Map::by_slot(self.nodes.clone(), home)));
    }

    /// Some servers in turn, first those that answer.
    fn whom_to_ask(&mut self) -> Vec<Endpoint> {
        if self.turn == 0 {
            self.turn = usize::try_from(random() % 1_000).unwrap_or(1).max(1);
        }
        self.turn = self.turn.wrapping_add(1);
        let answers = |node: &&Arc<Node>| node.desk().standing() == Standing::Serving;
        let mut known: Vec<_> = self.nodes.iter().filter(answers).map(|node| node.endpoint().clone()).collect();
        if known.len() < 2 {
            known.extend(self.seeds.iter().chain(self.nodes.iter().map(|node| node.endpoint())).cloned());
        }
        let turn = self.turn % known.len().max(1);
        known.rotate_left(turn);
        let mut asked: Vec<Endpoint> = Vec::new();
        for endpoint in known {
            if asked.len() < ASKED && !asked.contains(&endpoint) {
                asked.push(endpoint);
            }
        }
        asked
    }

    fn tell(&mut self, what: &str) {
        if self.told != what {
            tracing::warn!("a server of the Cluster could not be asked about the others: {what}");
            what.clone_into(&mut self.told);
        }
    }
}
