//! Asking servers how they are.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method};
use http_body::{Body, Frame};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::exchange::{Exchange, Patience};
use crate::head::Onward;
use crate::server::Server;

/// How often connections at rest are looked through.
const SWEEP: Duration = Duration::from_secs(5);

const SHORTEST_PAUSE: Duration = Duration::from_millis(1);

/// How to find out whether a server is well: it answers a GET with a status below 400.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    /// What to ask for.
    pub path: String,
    /// How often.
    pub every: Duration,
    /// How long it may take.
    pub timeout: Duration,
    /// After how many failures in a row it is not asked any more, and after how many successes it is again.
    pub failures: u32,
    /// See above.
    pub successes: u32,
}

impl HealthCheck {
    /// Every five seconds; two failures, one success.
    pub fn new(path: &str) -> Self {
        let (every, timeout) = (Duration::from_secs(5), Duration::from_secs(2));
        Self { path: path.to_owned(), every, timeout, failures: 2, successes: 1 }
    }
}

/// Looks after servers for ever.
pub(crate) async fn watch(servers: &[Arc<Server>], check: Option<&HealthCheck>, connect: Duration) {
    let mut counts = vec![(0_u32, 0_u32); servers.len()];
    let (mut sweep_at, mut check_at) = (Instant::now(), Instant::now());
    loop {
        let now = Instant::now();
        if now >= sweep_at {
            sweep_at = now + SWEEP;
            servers.iter().for_each(|server| server.sweep());
        }
        if let Some(check) = check.filter(|_| now >= check_at) {
            check_at = now + check.every;
            // All at once: those that are silent keep nobody from hearing of the others.
            let mut asked = JoinSet::new();
            for (number, server) in servers.iter().map(Arc::clone).enumerate() {
                let check = check.clone();
                asked.spawn(async move {
                    let limit = check.timeout.max(Duration::from_millis(1));
                    let is_well = tokio::time::timeout(limit, ask(&server, &check, connect)).await.unwrap_or(false);
                    (number, is_well)
                });
            }
            while let Some(answered) = asked.join_next().await {
                let Ok((number, is_well)) = answered else { continue };
                let (Some(server), Some((good, bad))) = (servers.get(number), counts.get_mut(number)) else { continue };
                (*good, *bad) = if is_well { (good.saturating_add(1), 0) } else { (0, bad.saturating_add(1)) };
                if *good >= check.successes.max(1) {
                    server.set_well(true);
                } else if *bad >= check.failures.max(1) {
                    server.set_well(false);
                }
            }
        }
        let next = check.map_or(sweep_at, |_| sweep_at.min(check_at));
        // Who takes longer to answer than the time between two checks is not asked without a pause.
        tokio::time::sleep_until(next.max(Instant::now() + SHORTEST_PAUSE)).await;
    }
}

async fn ask(server: &Arc<Server>, check: &HealthCheck, connect: Duration) -> bool {
    let Ok(Ok(connection)) = tokio::time::timeout(connect, server.connect()).await else { return false };
    let headers = HeaderMap::new();
    let own = [("user-agent", Some(&b"tollgate-health"[..]))];
    let onward = Onward { method: &Method::GET, target: &check.path, host: None, headers: &headers, own: &own };
    let patience = Patience { server: check.timeout, client: check.timeout, tunnel: check.timeout };
    let mut exchange = Exchange::new(connection, server, &onward, None, Nothing, patience);
    let head = std::future::poll_fn(|cx| exchange.poll_head(cx)).await;
    head.is_ok_and(|head| head.status.as_u16() < 400)
}

/// No body.
struct Nothing;

impl Body for Nothing {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        std::task::Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;
    use crate::group::{Group, Limits};

    /// Servers are asked as often as it says, also where that is no multiple of anything.
    #[tokio::test(start_paused = true)]
    async fn servers_are_asked_as_often_as_it_says() {
        for every in [3, 5, 7, 12] {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
            let asked = Mutex::new(Vec::new());
            let server = async {
                loop {
                    let (mut stream, _) = listener.accept().await.unwrap();
                    asked.lock().unwrap().push(Instant::now());
                    assert!(stream.read(&mut [0; 1 << 10]).await.unwrap() > 0);
                    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
                }
            };
            let check = HealthCheck { every: Duration::from_secs(every), ..HealthCheck::new("/") };
            let group = Arc::new(Group::new("g", [address], Limits::default(), None, None, Some(check)));
            let both = async { tokio::join!(group.watch(), server) };
            assert!(tokio::time::timeout(Duration::from_secs(4 * every + 1), both).await.is_err());
            let asked = asked.into_inner().unwrap();
            let pauses: Vec<u64> = asked.windows(2).map(|two| (two[1] - two[0]).as_secs()).collect();
            assert_eq!(pauses, [every; 4], "every {every} s");
        }
    }
}
