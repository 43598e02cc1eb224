//! What names of servers stand for. Looked up for every connection, on threads of their own: one that hangs keeps
//! nobody waiting but the attempt to connect, for a part of its time, and is asked for once, however often connecting
//! is tried meanwhile.
//!
//! What a name last stood for is kept for when it cannot be looked up.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout};

/// What came of a lookup that took longer than it was waited for is believed for so long.
const BELIEVED: Duration = Duration::from_secs(1);

/// So many names are remembered. A Cluster has fewer.
const MOST_NAMES: usize = 4_000;

/// Looks up the addresses of a host with a port. May take as long as it likes.
#[derive(Clone)]
pub struct Resolver(Arc<Lookup>);

type Lookup = dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync;

impl Resolver {
    /// One of your own.
    pub fn new(lookup: impl Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static) -> Self {
        Self(Arc::new(lookup))
    }
}

/// The system's.
impl Default for Resolver {
    fn default() -> Self {
        Self::new(|host, port| Ok((host, port).to_socket_addrs()?.collect()))
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Resolver")
    }
}

/// What came of a lookup, and when.
#[derive(Clone, Debug)]
struct Answer {
    found: Result<Vec<SocketAddr>, (io::ErrorKind, String)>,
    at: Instant,
}

type Answered = watch::Receiver<Option<Answer>>;

#[derive(Debug, Default)]
struct Name {
    /// The addresses that it stood for when it was last looked up.
    last: Vec<SocketAddr>,
    under_way: Option<Answered>,
}

/// The names of one link.
#[derive(Debug)]
pub(super) struct Names {
    resolver: Resolver,
    known: Mutex<HashMap<(String, u16), Name>>,
}

impl Names {
    pub(super) fn new(resolver: Resolver) -> Self {
        Self { resolver, known: Mutex::default() }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<(String, u16), Name>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The addresses of a host, within `patience`.
    pub(super) async fn addresses(&self, host: &str, port: u16, patience: Duration) -> io::Result<Vec<SocketAddr>> {
        if let Ok(number) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(number, port)]);
        }
        let name = (host.to_owned(), port);
        let mut last = Vec::new();
        let found = match self.ask(&name, &mut last) {
            Ok((mut answered, is_new)) => {
                // Whoever asked first has waited for it; who comes after has no use for waiting if there is an address
                // to try.
                let patience = if is_new || last.is_empty() { patience } else { Duration::ZERO };
                match timeout(patience, answered.wait_for(Option::is_some)).await {
                    Ok(Ok(answer)) => answer.clone().map_or_else(|| Err(given_up()), |answer| answer.found),
                    Ok(Err(_)) => Err(given_up()),
                    Err(_) => Err((io::ErrorKind::TimedOut, "the name is not looked up in time".to_owned())),
                }
            }
            Err(error) => Err((error.kind(), error.to_string())),
        };
        match found {
            Ok(found) if !found.is_empty() => {
                self.known().entry(name).or_default().last.clone_from(&found);
                Ok(found)
            }
            _ if !last.is_empty() => Ok(last),
            Ok(_) => Err(io::Error::other("the name stands for no address")),
            Err((kind, why)) => Err(io::Error::new(kind, why)),
        }
    }

    /// Where the answer will be, and whether it was asked for just now. `last` is what is known.
    fn ask(&self, name: &(String, u16), last: &mut Vec<SocketAddr>) -> io::Result<(Answered, bool)> {
        let mut known = self.known();
        if known.len() >= MOST_NAMES && !known.contains_key(name) {
            known.clear();
        }
        let entry = known.entry(name.clone()).or_default();
        if let Some(answered) = entry.under_way.take() {
            let answer = answered.borrow().clone();
            // One that is there, and was not waited for: it counts if it is new, and is better than nothing if it is
            // not.
            if let Some(Answer { found: Ok(found), .. }) = answer.as_ref().filter(|answer| is_some_address(answer)) {
                entry.last.clone_from(found);
            }
            last.clone_from(&entry.last);
            let is_useful = match &answer {
                None => answered.has_changed().is_ok(),
                Some(answer) => answer.found.is_ok() && answer.at.elapsed() < BELIEVED,
            };
            if is_useful {
                if answer.is_none() {
                    entry.under_way = Some(answered.clone());
                }
                return Ok((answered, false));
            }
        }
        last.clone_from(&entry.last);
        let (answers, answered) = watch::channel(None);
        let (resolver, (host, port)) = (self.resolver.clone(), name.clone());
        std::thread::Builder::new().name("redis-name".to_owned()).spawn(move || {
            let found = (resolver.0)(&host, port).map_err(|error| (error.kind(), error.to_string()));
            let _ = answers.send(Some(Answer { found, at: Instant::now() }));
        })?;
        entry.under_way = Some(answered.clone());
        Ok((answered, true))
    }
}

fn is_some_address(answer: &Answer) -> bool {
    answer.found.as_ref().is_ok_and(|found| !found.is_empty())
}

fn given_up() -> (io::ErrorKind, String) {
    (io::ErrorKind::Other, "the lookup of the name failed".to_owned())
}
