//! Servers that do the same: who is asked, and what happens when one does not answer.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method};
use http_body::Body;
use tokio::time::Instant;

use crate::connect::Trust;
use crate::connection::Connection;
use crate::error::{Failure, ForwardError};
use crate::exchange::{Answer, Exchange, Patience};
use crate::head::{Head, Onward};
use crate::health::HealthCheck;
use crate::server::{Busy, Server};
use tollgate_rules::{Address, Place};

/// Where servers cannot be reached one after the other, a request is given up after the time for so many of them.
const TRIES: u32 = 2;

/// How long things may take, and how many connections are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Until a connection is there; all tries of a request together may take twice as long.
    pub connect: Duration,
    /// How long a server may be silent while something is expected of it.
    pub silence: Duration,
    /// How long a client may be silent while the rest of its request is expected.
    pub client: Duration,
    /// How long nothing may pass through a tunnel.
    pub tunnel: Duration,
    /// How long a connection is kept for the next request. Less than servers keep theirs.
    pub idle: Duration,
    /// How many of them each thread keeps for each server.
    pub most_idle: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            silence: Duration::from_secs(60),
            client: Duration::from_secs(60),
            tunnel: Duration::from_secs(3_600),
            idle: Duration::from_secs(50),
            most_idle: 256,
        }
    }
}

/// Servers that do the same.
#[derive(Debug)]
pub struct Group {
    name: Box<str>,
    servers: Box<[Arc<Server>]>,
    limits: Limits,
    health: Option<HealthCheck>,
    /// Who is first among equals.
    turn: AtomicUsize,
}

impl Group {
    /// A group of at least one server. Whoever has an address that is encrypted has to be believed by `trust`, and is
    /// asked only `within` these places, if any are named.
    pub fn new(
        name: &str,
        addresses: impl IntoIterator<Item = Address>,
        limits: Limits,
        trust: Option<&Trust>,
        within: Option<&Arc<[Place]>>,
        health: Option<HealthCheck>,
    ) -> Self {
        let server =
            |address| Arc::new(Server::new(address, trust.cloned(), within.cloned(), limits.most_idle, limits.idle));
        let servers = addresses.into_iter().map(server).collect();
        Self { name: name.into(), servers, limits, health, turn: AtomicUsize::new(0) }
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Who belongs to it.
    pub fn servers(&self) -> &[Arc<Server>] {
        &self.servers
    }

    /// Looks after it for ever: asks how its servers are, and closes connections that nobody uses.
    pub async fn watch(self: Arc<Self>) {
        crate::health::watch(&self.servers, self.health.as_ref(), self.limits.connect).await;
    }

    /// Sends a request to one of the servers, and completes with the head of the answer. Where a connection cannot be
    /// made the next server is tried. A request that was sent is sent again only if its connection turned out to be a
    /// dead one from before, and if its method is one that may be repeated.
    pub async fn forward<B: Body<Data = Bytes> + Unpin>(
        &self,
        onward: &Onward<'_>,
        upgrade: Option<&HeaderValue>,
        body: B,
    ) -> Result<(Head, Answer<B>), Failure> {
        let is_repeatable = is_idempotent(onward.method) && upgrade.is_none();
        let mut body = body;
        let mut tried = Tried::default();
        let mut failure = Failure { why: ForwardError::NoServer, server: None };
        let mut only_fresh = upgrade.is_some();
        let mut until = None;
        let patience = Patience { server: self.limits.silence, client: self.limits.client, tunnel: self.limits.tunnel };
        while let Some((index, server)) = self.pick(&tried) {
            let busy = Busy::new(server);
            let idle = if only_fresh { None } else { server.take_idle(!is_repeatable) };
            let is_fresh = idle.is_none();
            let connection = match idle {
                Some(connection) => connection,
                None => match self.connect(server, &mut until).await {
                    Ok(connection) => connection,
                    Err(error) => {
                        tried.add(index);
                        failure = Failure { why: error, server: Some(Arc::clone(server)) };
                        if until.is_some_and(|until| Instant::now() >= until) {
                            break;
                        }
                        continue;
                    }
                },
            };
            let mut exchange = Exchange::new(connection, server, onward, upgrade, body, patience);
            match poll_fn(|cx| exchange.poll_head(cx)).await {
                Ok(head) => {
                    server.succeeded();
                    let answer = exchange.into_answer(head, onward.method, busy);
                    return answer.map_err(|why| Failure { why, server: Some(Arc::clone(server)) });
                }
                Err(error) => {
                    let was_dead = !is_fresh && !exchange.is_answered && matches!(error, ForwardError::Broken(_));
                    match exchange.into_untouched_body().filter(|_| was_dead && is_repeatable) {
                        Some(untouched) => {
                            body = untouched;
                            only_fresh = true;
                        }
                        None => {
                            if !matches!(error, ForwardError::Unsent | ForwardError::Stalled) {
                                server.failed(&error, self.servers.len() > 1);
                            }
                            return Err(Failure { why: error, server: Some(Arc::clone(server)) });
                        }
                    }
                }
            }
        }
        Err(failure)
    }

    /// A connection to a server, `until` the time is over that all tries of a request have together. It begins with the
    /// first of them.
    async fn connect(&self, server: &Server, until: &mut Option<Instant>) -> Result<Box<Connection>, ForwardError> {
        let now = Instant::now();
        *until = until.or_else(|| now.checked_add(self.limits.connect.saturating_mul(TRIES)));
        let left = until.map_or(self.limits.connect, |until| until.duration_since(now));
        let connected = tokio::time::timeout(left.min(self.limits.connect), server.connect()).await;
        // Who was left less time than is usual because of others has not failed.
        let is_to_blame = connected.is_ok() || left >= self.limits.connect;
        let late = |_| Err(io::Error::new(io::ErrorKind::TimedOut, "no connection in time"));
        let connected = connected.unwrap_or_else(late).map_err(ForwardError::Connect);
        if let Some(error) = connected.as_ref().err().filter(|_| is_to_blame) {
            server.failed(error, self.servers.len() > 1);
        }
        connected
    }

    /// Of those who are well the one with the least to do, each in its turn among equals. Who failed lately is asked if
    /// nobody else is left.
    fn pick(&self, tried: &Tried) -> Option<(usize, &Arc<Server>)> {
        if let [server] = &*self.servers {
            return (!tried.has(0) && server.is_well()).then_some((0, server));
        }
        let number = self.servers.len();
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let in_turn = (0..number).map(|step| turn.wrapping_add(step) % number);
        let candidates = in_turn.filter(|index| !tried.has(*index));
        let candidates = candidates.filter_map(|index| Some((index, self.servers.get(index)?)));
        candidates.filter(|(_, server)| server.is_well()).min_by_key(|(_, server)| (server.rests(), server.busy()))
    }
}

/// Which servers of a group could not be reached: one bit each, and no memory as long as all can.
#[derive(Debug, Default)]
struct Tried(Vec<u64>);

impl Tried {
    fn has(&self, index: usize) -> bool {
        self.0.get(index / 64).is_some_and(|bits| bits & (1 << (index % 64)) != 0)
    }

    fn add(&mut self, index: usize) {
        if self.0.len() <= index / 64 {
            self.0.resize(index / 64 + 1, 0);
        }
        if let Some(bits) = self.0.get_mut(index / 64) {
            *bits |= 1 << (index % 64);
        }
    }
}

/// Whether sending it twice is as good as once.
pub fn is_idempotent(method: &Method) -> bool {
    [Method::GET, Method::HEAD, Method::PUT, Method::DELETE, Method::OPTIONS, Method::TRACE].contains(method)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr, TcpStream};
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use http::header::HeaderMap;
    use http_body::{Frame, SizeHint};
    use http_body_util::Empty;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    fn group(addresses: &[SocketAddr]) -> Group {
        let addresses = addresses.iter().map(|address| format!("http://{address}").parse().unwrap());
        Group::new("g", addresses, Limits::default(), None, None, None)
    }

    fn onward<'o>(method: &'o Method, headers: &'o HeaderMap) -> Onward<'o> {
        Onward { method, target: "/", host: None, headers, own: &[] }
    }

    /// A place where connections wait for ever, and those that fill it.
    fn full() -> (socket2::Socket, SocketAddr, Vec<TcpStream>) {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
        socket.listen(0).unwrap();
        let address = socket.local_addr().unwrap().as_socket().unwrap();
        let mut waiting = Vec::new();
        while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(300)) {
            waiting.push(stream);
        }
        (socket, address, waiting)
    }

    /// Ten servers that nobody hears of cost a request the time of two, and whoever is behind the second is not tried.
    #[tokio::test(start_paused = true)]
    async fn however_many_servers_are_silent_a_request_is_given_up_in_time() {
        let (_socket, silent, _waiting) = full();
        let headers = HeaderMap::new();
        let group = group(&[silent; 10]);
        let begun = Instant::now();
        let forwarded = group.forward(&onward(&Method::GET, &headers), None, Empty::<Bytes>::new()).await;
        let failure = forwarded.err().unwrap();
        assert_eq!(failure.why.status(), 504);
        let took = begun.elapsed();
        assert!((Duration::from_secs(10)..Duration::from_millis(10_100)).contains(&took), "{took:?}");
    }

    /// Who is asked when others have used up most of the time is not blamed for that; who had all of it is.
    #[tokio::test(start_paused = true)]
    async fn a_server_without_its_time_has_not_failed() {
        let (_socket, silent, _waiting) = full();
        for (left, is_blamed) in [(Duration::from_millis(100), false), (Duration::from_secs(5), true)] {
            let group = group(&[silent; 2]);
            let server = group.servers.first().unwrap();
            for _ in 0..10 {
                let mut until = Some(Instant::now() + left);
                assert!(group.connect(server, &mut until).await.is_err());
            }
            assert_eq!(server.rests(), is_blamed, "{left:?}");
        }
    }

    /// A body that breaks off when it is asked for the second time.
    struct Broken(usize);

    impl Body for Broken {
        type Data = Bytes;
        type Error = &'static str;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
            self.0 += 1;
            if self.0 > 1 { Poll::Ready(Some(Err("the client has gone"))) } else { Poll::Pending }
        }

        fn size_hint(&self) -> SizeHint {
            SizeHint::with_exact(10)
        }
    }

    /// Whoever breaks off is not the server's fault, whatever the server says at that moment.
    #[tokio::test(start_paused = true)]
    async fn an_upload_that_breaks_off_as_the_server_speaks_is_the_clients() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let group = group(&[listener.local_addr().unwrap()]);
        let server = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = [0; 1 << 10];
            assert!(stream.read(&mut head).await.unwrap() > 0);
            stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await.unwrap();
            stream
        };
        let headers = HeaderMap::new();
        let post = onward(&Method::POST, &headers);
        let (forwarded, _stream) = tokio::join!(group.forward(&post, None, Broken(0)), server);
        let failure = forwarded.err().unwrap();
        assert!(matches!(failure.why, ForwardError::Unsent), "{failure}");
        assert_eq!(failure.why.status(), 400);
    }
}
