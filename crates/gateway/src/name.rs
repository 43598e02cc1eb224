//! What the name of a server stands for. It is looked up on a thread of its own, once however many ask, so that a name
//! that nobody answers for keeps nobody waiting but those who need it.
//!
//! What was found is believed for some seconds. After that it is still used, and looked up again meanwhile. Invariant:
//! a name has one thread at most, and all names together have so many and no more.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// How long what was found is believed, and how long it is used while looking it up again fails.
const FRESH: Duration = Duration::from_secs(10);
const STALE: Duration = Duration::from_secs(600);
/// How long it is not asked again after a failure.
const FAILED: Duration = Duration::from_secs(1);
/// Names that are looked up at the same time.
const MOST_LOOKUPS: usize = 128;

static LOOKUPS: AtomicUsize = AtomicUsize::new(0);

type Lookup = dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync;

/// A name, with a port.
pub(crate) struct Name {
    host: Box<str>,
    port: u16,
    lookup: Arc<Lookup>,
    known: Arc<Mutex<Known>>,
    /// Counts what is known anew.
    news: Arc<watch::Sender<u64>>,
}

#[derive(Debug, Default)]
struct Known {
    /// What it stood for, and when.
    found: Option<(Arc<[SocketAddr]>, Instant)>,
    /// What went wrong since, and when.
    failed: Option<(io::ErrorKind, Arc<str>, Instant)>,
    is_under_way: bool,
}

impl std::fmt::Debug for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Name({}:{})", self.host, self.port)
    }
}

impl Name {
    /// One that the system knows, or not.
    pub(crate) fn new(host: &str, port: u16) -> Self {
        Self::by(host, port, |host, port| Ok((host, port).to_socket_addrs()?.collect()))
    }

    fn by(
        host: &str,
        port: u16,
        lookup: impl Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static,
    ) -> Self {
        let news = Arc::new(watch::channel(0).0);
        Self { host: host.into(), port, lookup: Arc::new(lookup), known: Arc::default(), news }
    }

    /// Its addresses: at least one. Takes as long as it takes; whoever has no time for that stops waiting.
    pub(crate) async fn addresses(&self) -> io::Result<Arc<[SocketAddr]>> {
        let mut news = self.news.subscribe();
        loop {
            news.mark_unchanged();
            {
                let mut known = lock(&self.known);
                let found = known.found.clone().filter(|(_, at)| at.elapsed() < STALE);
                let failed = known.failed.clone().filter(|(.., at)| at.elapsed() < FAILED);
                let is_fresh = found.as_ref().is_some_and(|(_, at)| at.elapsed() < FRESH);
                if !is_fresh && failed.is_none() && !known.is_under_way {
                    self.look_up(&mut known)?;
                }
                match (found, failed) {
                    (Some((found, _)), _) => return Ok(found),
                    (None, Some((kind, why, _))) => return Err(io::Error::new(kind, &*why)),
                    (None, None) => {}
                }
            }
            // The sender is ours.
            let _ = news.changed().await;
        }
    }

    /// What it stood for leads nowhere: it is looked up again the next time.
    pub(crate) fn doubt(&self) {
        if let Some((_, at)) = &mut lock(&self.known).found {
            *at = at.checked_sub(FRESH).unwrap_or(*at);
        }
    }

    fn look_up(&self, known: &mut Known) -> io::Result<()> {
        let Some(place) = Place::take() else {
            let found = known.found.is_some();
            let full = io::Error::new(io::ErrorKind::WouldBlock, "too many names are looked up already");
            return if found { Ok(()) } else { Err(full) };
        };
        let (host, port, lookup) = (self.host.clone(), self.port, Arc::clone(&self.lookup));
        let (shared, news) = (Arc::clone(&self.known), Arc::clone(&self.news));
        known.is_under_way = true;
        let begun = std::thread::Builder::new().name("name".to_owned()).spawn(move || {
            let answer = lookup(&host, port);
            let mut known = lock(&shared);
            known.is_under_way = false;
            match answer {
                Ok(found) if !found.is_empty() => {
                    (known.found, known.failed) = (Some((found.into(), Instant::now())), None);
                }
                Ok(_) => known.fail(io::ErrorKind::NotFound, "the name stands for no address"),
                Err(error) => known.fail(error.kind(), &error.to_string()),
            }
            drop((known, place));
            news.send_modify(|news| *news += 1);
        });
        if begun.is_err() {
            known.is_under_way = false;
        }
        begun.map(drop)
    }
}

impl Known {
    fn fail(&mut self, kind: io::ErrorKind, why: &str) {
        self.failed = Some((kind, why.into(), Instant::now()));
    }
}

fn lock(known: &Mutex<Known>) -> MutexGuard<'_, Known> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One of the lookups that there may be at a time.
struct Place;

impl Place {
    fn take() -> Option<Self> {
        let more = |lookups: usize| (lookups < MOST_LOOKUPS).then_some(lookups + 1);
        LOOKUPS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok().map(|_| Self)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        LOOKUPS.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn address(last: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, last], 80))
    }

    /// A name whose lookups are counted and answered by the test; none is answered before.
    fn asked(host: &str) -> (Arc<Name>, mpsc::Sender<io::Result<Vec<SocketAddr>>>, Arc<AtomicUsize>) {
        let (answers, answered) = mpsc::channel();
        let (answered, asked) = (Mutex::new(answered), Arc::new(AtomicUsize::new(0)));
        let count = Arc::clone(&asked);
        let name = Name::by(host, 80, move |_, _| {
            count.fetch_add(1, Ordering::SeqCst);
            answered.lock().unwrap().recv().unwrap_or_else(|_| Err(io::ErrorKind::NotFound.into()))
        });
        (Arc::new(name), answers, asked)
    }

    async fn is_over(name: &Name, of: u64) {
        let _ = name.news.subscribe().wait_for(|news| *news >= of).await;
    }

    #[tokio::test]
    async fn a_name_that_hangs_is_asked_for_once_and_delays_no_other() {
        let (dead, dead_answers, asked_dead) = asked("dead");
        let (other, other_answers, _) = asked("other");
        let waiting: Vec<_> = (0..100)
            .map(|_| {
                let dead = Arc::clone(&dead);
                tokio::spawn(async move { dead.addresses().await.map(|found| found.to_vec()) })
            })
            .collect();
        other_answers.send(Ok(vec![address(2)])).unwrap();
        assert_eq!(&*other.addresses().await.unwrap(), [address(2)]);
        dead_answers.send(Ok(vec![address(1)])).unwrap();
        for waited in waiting {
            assert_eq!(waited.await.unwrap().unwrap(), [address(1)]);
        }
        assert_eq!(asked_dead.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn what_was_found_is_used_while_it_is_looked_up_again() {
        let (name, answers, asked) = asked("moving");
        answers.send(Ok(vec![address(1)])).unwrap();
        assert_eq!(&*name.addresses().await.unwrap(), [address(1)]);
        assert_eq!(&*name.addresses().await.unwrap(), [address(1)]);
        assert_eq!(asked.load(Ordering::SeqCst), 1, "it is believed");
        name.doubt();
        // Nobody answers yet, and nobody waits.
        assert_eq!(&*name.addresses().await.unwrap(), [address(1)]);
        assert_eq!(&*name.addresses().await.unwrap(), [address(1)]);
        answers.send(Ok(vec![address(2)])).unwrap();
        is_over(&name, 2).await;
        assert_eq!(&*name.addresses().await.unwrap(), [address(2)]);
        assert_eq!(asked.load(Ordering::SeqCst), 2);
        // Where it fails, what is known is good enough.
        name.doubt();
        answers.send(Err(io::ErrorKind::TimedOut.into())).unwrap();
        assert_eq!(&*name.addresses().await.unwrap(), [address(2)]);
        is_over(&name, 3).await;
        assert_eq!(&*name.addresses().await.unwrap(), [address(2)]);
        assert_eq!(asked.load(Ordering::SeqCst), 3, "it is not asked again at once");
    }

    #[tokio::test]
    async fn a_failure_is_told_and_asked_about_again_only_later() {
        let (name, answers, asked) = asked("nowhere");
        answers.send(Err(io::Error::new(io::ErrorKind::NotFound, "no such name"))).unwrap();
        for _ in 0..10 {
            assert_eq!(name.addresses().await.unwrap_err().to_string(), "no such name");
        }
        assert_eq!(asked.load(Ordering::SeqCst), 1);
        lock(&name.known).failed = None;
        answers.send(Ok(Vec::new())).unwrap();
        assert_eq!(name.addresses().await.unwrap_err().to_string(), "the name stands for no address");
        lock(&name.known).failed = None;
        answers.send(Ok(vec![address(3)])).unwrap();
        assert_eq!(&*name.addresses().await.unwrap(), [address(3)]);
    }
}
