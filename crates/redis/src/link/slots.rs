//! Who has which slots of a Cluster, by what its servers say. Pure.
//!
//! A server that has slots has an epoch, and whoever takes slots over has a higher one. A slot changes hands only if
//! the epoch does not go back, so that a server that was cut off is not believed; what a server says of a slot when it
//! is asked for it (`MOVED`) counts at once.

use super::address::{Endpoint, endpoint};
use super::map::SLOTS;

/// More servers than this are a mistake.
const MOST_SERVERS: usize = 1_000;

/// A server of a Cluster, as another sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Server {
    pub(super) endpoint: Endpoint,
    epoch: u64,
    /// From and to; empty for replicas.
    slots: Vec<(u16, u16)>,
}

/// Reads what `CLUSTER NODES` answers. A server that does not know its own address has the one that was asked. Names
/// instead of numbers are taken where there are some and `by_name` says so.
pub(super) fn read(text: &str, asked: &Endpoint, by_name: bool) -> Result<Vec<Server>, &'static str> {
    let mut servers = Vec::new();
    for line in text.lines() {
        let words: Vec<_> = line.split(' ').collect();
        let [_, address, flags, _, _, _, epoch, _, slots @ ..] = &*words else {
            return Err("a line has too few words");
        };
        if flags.split(',').any(|flag| ["noaddr", "handshake"].contains(&flag)) {
            continue;
        }
        let endpoint = place(address, asked, by_name).ok_or("a server has no address")?;
        let epoch = epoch.parse().map_err(|_| "an epoch is no number")?;
        let primary = flags.split(',').any(|flag| flag == "master");
        let ranges: Option<Vec<_>> =
            slots.iter().filter(|slots| primary && !slots.starts_with('[')).map(|slots| range(slots)).collect();
        servers.push(Server { endpoint, epoch, slots: ranges.ok_or("slots are no numbers")? });
    }
    match servers.len() {
        0 => Err("there are no servers"),
        1..=MOST_SERVERS => Ok(servers),
        _ => Err("there are too many servers"),
    }
}

/// Reads `host:port@bus,name`.
fn place(address: &str, asked: &Endpoint, by_name: bool) -> Option<Endpoint> {
    let (address, names) = address.split_once(',').unwrap_or((address, ""));
    let name = names.split(',').next().filter(|name| by_name && !name.is_empty());
    let (address, _) = address.split_once('@').unwrap_or((address, ""));
    let (host, port) = address.rsplit_once(':')?;
    match (name.unwrap_or(host), asked) {
        ("", Endpoint::Tcp(host, _)) => Some(Endpoint::Tcp(host.clone(), port.parse().ok().filter(|port| *port != 0)?)),
        (host, _) if host.contains(':') => endpoint(&format!("[{host}]:{port}"), 0).ok(),
        (host, _) => endpoint(&format!("{host}:{port}"), 0).ok(),
    }
}

fn range(text: &str) -> Option<(u16, u16)> {
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    let (from, to) = (from.parse().ok()?, to.parse().ok()?);
    (from <= to && to < SLOTS).then_some((from, to))
}

/// Who has which slots, as far as is known.
#[derive(Debug)]
pub(super) struct Slots {
    owners: Vec<Option<(Endpoint, u64)>>,
}

impl Default for Slots {
    fn default() -> Self {
        Self { owners: vec![None; usize::from(SLOTS)] }
    }
}

impl Slots {
    /// Takes what one server says. True if a slot changed hands.
    pub(super) fn merge(&mut self, servers: &[Server]) -> bool {
        let mut changed = false;
        for server in servers {
            for slot in server.slots.iter().flat_map(|(from, to)| *from..=*to) {
                let Some(owner) = self.owners.get_mut(usize::from(slot)) else { continue };
                match owner {
                    Some((endpoint, epoch)) if *endpoint == server.endpoint => *epoch = server.epoch.max(*epoch),
                    // One that nobody speaks of any more has left, and with it its epoch.
                    Some((endpoint, epoch))
                        if *epoch > server.epoch && servers.iter().any(|known| known.endpoint == *endpoint) => {}
                    _ => {
                        *owner = Some((server.endpoint.clone(), server.epoch));
                        changed = true;
                    }
                }
            }
        }
        changed
    }

    /// A slot is there: the one who had it says so.
    pub(super) fn moved(&mut self, slot: u16, to: &Endpoint) -> bool {
        match self.owners.get_mut(usize::from(slot)) {
            Some(Some((endpoint, _))) if endpoint == to => false,
            Some(Some((endpoint, _))) => {
                endpoint.clone_from(to);
                true
            }
            Some(owner) => {
                *owner = Some((to.clone(), 0));
                true
            }
            None => false,
        }
    }

    /// Who has a slot.
    pub(super) fn owner(&self, slot: u16) -> Option<&Endpoint> {
        self.owners.get(usize::from(slot))?.as_ref().map(|(endpoint, _)| endpoint)
    }

    /// Whether this one has any.
    pub(super) fn has_any(&self, endpoint: &Endpoint) -> bool {
        self.owners.iter().flatten().any(|(owner, _)| owner == endpoint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
07c3 127.0.0.1:30004@31004,host4 slave e7d1 0 1426238317239 4 connected
67ed 127.0.0.1:30002@31002,host2 master - 0 1426238316232 2 connected 5461-10922
292f :30003@31003 myself,master - 0 1426238318243 3 connected 10923-16382 16383 [93-<-292f]
6ec2 ::1:30005@31005 slave,fail 67ed 0 1426238316232 5 connected
824f :0@0 master,noaddr - 0 1426238316232 5 disconnected
e7d1 127.0.0.1:30001@31001,host1 master,fail? - 0 0 1 connected 0-5460
";

    fn tcp(host: &str, port: u16) -> Endpoint {
        Endpoint::Tcp(host.to_owned(), port)
    }

    #[test]
    fn what_a_server_says_of_all_is_read() {
        let servers = read(TEXT, &tcp("asked", 1), false).expect("servers");
        let endpoints: Vec<_> = servers.iter().map(|server| server.endpoint.to_string()).collect();
        let expected = ["127.0.0.1:30004", "127.0.0.1:30002", "asked:30003", "[::1]:30005", "127.0.0.1:30001"];
        assert_eq!(endpoints, expected);
        let named = read(TEXT, &tcp("asked", 1), true).expect("servers");
        assert_eq!(named[0].endpoint, tcp("host4", 30004));
        let mut slots = Slots::default();
        assert!(slots.merge(&servers));
        assert!(!slots.merge(&servers));
        assert_eq!(slots.owner(0), Some(&tcp("127.0.0.1", 30001)));
        assert_eq!(slots.owner(5461), Some(&tcp("127.0.0.1", 30002)));
        assert_eq!(slots.owner(16383), Some(&tcp("asked", 30003)));
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "",
            "a b c",
            "a h:1@2 master - 0 0 x connected",
            "a h:1@2 master - 0 0 1 connected 9-8",
            "a h:1@2 master - 0 0 1 connected 16384",
            "a h@2 master - 0 0 1 c",
            "a h:0@2 master - 0 0 1 c",
        ] {
            assert!(read(text, &tcp("asked", 1), false).is_err(), "{text}");
        }
    }

    fn server(port: u16, epoch: u64, slots: &[(u16, u16)]) -> Server {
        Server { endpoint: tcp("h", port), epoch, slots: slots.to_vec() }
    }

    #[test]
    fn epochs_decide_and_those_who_were_cut_off_are_not_believed() {
        let mut slots = Slots::default();
        slots.merge(&[server(1, 1, &[(0, 99)]), server(2, 2, &[])]);
        assert!(slots.merge(&[server(1, 1, &[]), server(2, 5, &[(0, 99)])]));
        assert!(!slots.merge(&[server(1, 1, &[(0, 99)]), server(2, 2, &[])]), "it was asleep");
        assert_eq!(slots.owner(7), Some(&tcp("h", 2)));
        assert!(slots.moved(7, &tcp("h", 3)));
        assert_eq!(slots.owner(7), Some(&tcp("h", 3)));
        // A Cluster that was made anew begins with low epochs.
        assert!(slots.merge(&[server(8, 1, &[(0, 99)])]));
        assert_eq!(slots.owner(7), Some(&tcp("h", 8)));
        assert!(slots.has_any(&tcp("h", 8)) && !slots.has_any(&tcp("h", 2)));
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".*", words in proptest::collection::vec("[a-z0-9:@,-]{0,8}", 0..12)) {
            let _ = read(&text, &tcp("asked", 1), false);
            let _ = read(&words.join(" "), &tcp("asked", 1), true);
        }
    }
}
