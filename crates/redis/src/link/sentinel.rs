//! Follows a primary that Sentinels watch: all are asked, all the time, and heard when they tell of a change.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::address::{Endpoint, Login};
use super::handshake::{Access, Connection, NoConnection};
use super::lookout::{Lookout, Sighting};
use super::map::Map;
use super::node::{Errand, News, Node, Surroundings, caught, random};
use super::resp::Value;
use super::unavailable::{Refusal, Unavailable, quoted};

/// How often a Sentinel is asked while all is well, and while it is not.
const CALM: Duration = Duration::from_secs(1);
const TROUBLE: Duration = Duration::from_millis(100);
/// How long a Sentinel may take to answer.
const PATIENCE: Duration = Duration::from_millis(200);

/// Keeps the map to the primary called `name`.
pub(super) async fn follow(
    sentinels: &[Endpoint],
    name: &str,
    login: &Login,
    around: &Arc<Surroundings>,
    news: &mut mpsc::UnboundedReceiver<News>,
) {
    let (said, mut heard) = mpsc::unbounded_channel();
    let hurry = Arc::new(Notify::new());
    // They end with this.
    let mut watches = JoinSet::new();
    let mut lookout = Lookout::new(sentinels.len(), Instant::now());
    for (number, endpoint) in sentinels.iter().enumerate() {
        let access = Access { login: login.clone(), database: 0, ..around.access.clone() };
        let watch = Watch {
            number,
            endpoint: endpoint.clone(),
            access,
            name: name.to_owned(),
            said: said.clone(),
            hurry: Arc::clone(&hurry),
            around: Arc::clone(around),
            told: String::new(),
        };
        watches.spawn(watch.keep());
    }
    // The one that is being looked at; and what was logged last, so that it is logged once.
    let (mut look, mut looking, mut told) = (JoinSet::new(), None::<Sighting>, String::new());
    // Those that the last primary did not carry out, since it is none any more.
    let mut stranded: Vec<(Errand, Endpoint)> = Vec::new();
    loop {
        let now = Instant::now();
        for (errand, from) in stranded.extract_if(.., |(errand, _)| errand.due() <= now) {
            let why = errand.unanswered(around.settings.deadline);
            let _ = errand.reply.send(Err(Unavailable::new(&from.to_string().into(), why)));
        }
        let due =
            stranded.iter().map(|(errand, _)| errand.due()).chain(lookout.due(now)).fold(now + CALM, Instant::min);
        tokio::select! {
            Some(seen) = look.join_next() => {
                let Some(candidate) = looking.take() else { continue };
                let seen = seen.unwrap_or_else(|_| Err(NoConnection::Other("looking at it failed".to_owned())));
                // One Sentinel alone takes away no primary that answers. If most agree, or there is nothing to lose, it
                // is tried until it can be reached; but never one that says itself that it is no primary.
                let is_tried = |error: &NoConnection| {
                    let is_free = lookout.is_agreed(&candidate) || !around.map.load().is_well();
                    is_free && !matches!(error, NoConnection::NotPrimary(_))
                };
                match seen {
                    Err(error) if !is_tried(&error) => {
                        lookout.doubt(&candidate, Instant::now());
                        let what = format!("{}: {error}", candidate.primary);
                        if told != what {
                            tracing::warn!("a Sentinel says that {name} is there, and it is not: {what}");
                            told = what;
                        }
                    }
                    _ => {
                        told.clear();
                        let node = follow_to(&candidate, name, around);
                        stranded.drain(..).for_each(|(errand, _)| node.forward(errand));
                        lookout.believe(candidate, Instant::now());
                    }
                }
            }
            Some((sentinel, sighting)) = heard.recv() => lookout.hear(sentinel, sighting, Instant::now()),
            Some(heard) = news.recv() => match heard {
                News::Trouble => hurry.notify_waiters(),
                News::Moved(..) => {}
                News::Forward(errand, _) => super::refuse_forward(errand, around),
                News::Stranded(errand, from) => {
                    hurry.notify_waiters();
                    match around.map.load().nodes().first() {
                        Some(node) if *node.endpoint() != from => node.forward(errand),
                        _ => stranded.push((errand, from)),
                    }
                }
            },
            () = tokio::time::sleep_until(due) => {}
        }
        if let Some(candidate) = lookout.candidate(Instant::now())
            && looking.as_ref() != Some(&candidate)
        {
            look = JoinSet::new();
            look.spawn(look_at(candidate.primary.clone(), Arc::clone(around)));
            looking = Some(candidate);
        }
    }
}

/// Sees whether a server is a primary.
async fn look_at(endpoint: Endpoint, around: Arc<Surroundings>) -> Result<(), NoConnection> {
    let patience = around.access.timeout;
    let looking = async { Connection::open(&endpoint, &around.access).await?.primary().await.map(drop) };
    timeout(patience, looking).await.unwrap_or_else(|_| Err(late(patience)))
}

/// Has another server asked.
fn follow_to(Sighting { primary, epoch }: &Sighting, name: &str, around: &Arc<Surroundings>) -> Arc<Node> {
    tracing::info!(server = %primary, epoch, "Sentinel says that {name} is there");
    let old = around.map.load_full();
    // The old one is given up first: from now on nothing that it says counts.
    old.nodes().iter().for_each(|node| node.give_up());
    let node = Node::start(primary.clone(), around);
    around.map.store(Arc::new(Map::single(Arc::clone(&node))));
    node
}

/// One Sentinel.
struct Watch {
    number: usize,
    endpoint: Endpoint,
    access: Access,
    name: String,
    said: mpsc::UnboundedSender<(usize, Sighting)>,
    hurry: Arc<Notify>,
    around: Arc<Surroundings>,
    /// What was logged last, so that it is logged once.
    told: String,
}

impl Watch {
    /// Never ends.
    async fn keep(mut self) {
        loop {
            caught(async {
                let Err(error) = self.watch().await;
                self.tell(&error.to_string());
            })
            .await;
            tokio::time::sleep(TROUBLE / 2 + TROUBLE * u32::try_from(random() % 100).unwrap_or(0) / 100).await;
        }
    }

    async fn watch(&mut self) -> Result<std::convert::Infallible, NoConnection> {
        let mut asked = self.connect().await?;
        self.ask(&mut asked).await?;
        let mut following = self.connect().await?;
        following.ask(&[vec![b"SUBSCRIBE", b"+switch-master"]]).await?;
        let hurry = Arc::clone(&self.hurry);
        loop {
            let pause = if self.around.map.load().is_well() { CALM } else { TROUBLE };
            tokio::select! {
                change = following.answer() => drop(change?),
                () = tokio::time::sleep(pause) => {}
                () = hurry.notified() => {}
            }
            self.ask(&mut asked).await?;
        }
    }

    async fn connect(&self) -> Result<Connection, NoConnection> {
        let opening = Connection::open(&self.endpoint, &self.access);
        timeout(self.access.timeout, opening).await.unwrap_or_else(|_| Err(late(self.access.timeout)))
    }

    /// Asks who is the primary, and by which epoch, in one go: between two answers there could be a failover.
    async fn ask(&mut self, connection: &mut Connection) -> Result<(), NoConnection> {
        let name = self.name.clone();
        let commands = [
            vec![&b"SENTINEL"[..], b"GET-MASTER-ADDR-BY-NAME", name.as_bytes()],
            vec![&b"SENTINEL"[..], b"MASTER", name.as_bytes()],
        ];
        let answers = timeout(PATIENCE, connection.ask(&commands)).await.unwrap_or_else(|_| Err(late(PATIENCE)))?;
        match sighting(&answers) {
            Ok(Some(sighting)) => {
                self.told.clear();
                let _ = self.said.send((self.number, sighting));
            }
            Ok(None) => self.tell(&format!("it knows no primary called {}", quoted(name.as_bytes()))),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn tell(&mut self, what: &str) {
        if self.told != what {
            tracing::warn!(sentinel = %self.endpoint, "a Sentinel is of no use for now: {what}");
            what.clone_into(&mut self.told);
        }
    }
}

fn late(waited: Duration) -> NoConnection {
    NoConnection::Other(format!("no answer in {waited:?}"))
}

/// What the answers of a Sentinel say.
fn sighting(answers: &[Value]) -> Result<Option<Sighting>, NoConnection> {
    let nonsense = || NoConnection::Other("it answered nonsense; is this a Sentinel?".to_owned());
    let [address, details] = answers else { return Err(nonsense()) };
    let address = match address {
        Value::Nil => return Ok(None),
        Value::Error(line) => return Err(NoConnection::Refused(Refusal::read(line))),
        address => address.elements(),
    };
    let [host, port] = address else { return Err(nonsense()) };
    let host = host.text().filter(|host| !host.is_empty()).ok_or_else(nonsense)?;
    let port = port.text().and_then(|port| port.parse().ok()).filter(|port| *port != 0).ok_or_else(nonsense)?;
    let mut fields = details.elements().chunks_exact(2);
    let epoch = fields.find_map(|field| match field {
        [name, epoch] if name.bytes() == Some(b"config-epoch") => epoch.text()?.parse().ok(),
        _ => None,
    });
    let epoch = epoch.ok_or_else(nonsense)?;
    Ok(Some(Sighting { primary: Endpoint::Tcp(host.to_owned(), port), epoch }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::Bulk(text.as_bytes().to_vec())
    }

    #[test]
    fn the_answers_of_a_sentinel_are_read() {
        let address = Value::Array(vec![bulk("10.0.0.1"), bulk("6379")]);
        let details = Value::Array(["name", "main", "config-epoch", "7"].map(bulk).to_vec());
        let read = sighting(&[address.clone(), details.clone()]).expect("an answer");
        assert_eq!(read, Some(Sighting { primary: Endpoint::Tcp("10.0.0.1".to_owned(), 6379), epoch: 7 }));
        assert_eq!(sighting(&[Value::Nil, Value::Error(b"ERR No such master".to_vec())]).expect("an answer"), None);
        for nonsense in [
            vec![],
            vec![address, Value::Nil],
            vec![bulk("x"), details.clone()],
            vec![Value::Array(vec![bulk("h"), bulk("0")]), details.clone()],
            vec![Value::Array(vec![bulk(""), bulk("1")]), details],
            vec![Value::Error(b"NOAUTH".to_vec()), Value::Error(b"NOAUTH".to_vec())],
        ] {
            assert!(sighting(&nonsense).is_err(), "{nonsense:?}");
        }
    }
}
