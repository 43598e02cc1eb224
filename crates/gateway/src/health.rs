//! Asking servers how they are.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method};
use http_body::{Body, Frame};
use tokio::task::JoinSet;

use crate::exchange::{Exchange, Patience};
use crate::head::Onward;
use crate::server::Server;

/// How often connections at rest are looked through.
const SWEEP: Duration = Duration::from_secs(5);

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
    let every = check.map_or(SWEEP, |check| check.every.min(SWEEP));
    let mut counts = vec![(0_u32, 0_u32); servers.len()];
    let mut since_check = Duration::MAX;
    loop {
        for server in servers {
            server.sweep();
        }
        if let Some(check) = check.filter(|check| since_check >= check.every) {
            since_check = Duration::ZERO;
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
        tokio::time::sleep(every).await;
        since_check = since_check.saturating_add(every);
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
