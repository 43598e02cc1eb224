//! One server: where requests for it wait, and the task that connects, talks, gives up and connects again, for as long
//! as the link is open.
//!
//! Nothing is sent later than its caller waits for, and nothing waits for a connection but what a server said that it
//! did not carry out.

use std::collections::VecDeque;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use arc_swap::ArcSwap;
use smallvec::SmallVec;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::Settings;
use super::address::Endpoint;
use super::backoff::Backoff;
use super::breaker::{Breaker, Position};
use super::desk::{Admission, Count, Desk, Standing};
use super::handshake::{Access, Connection, NoConnection};
use super::map::Map;
use super::talk::Talk;
use super::unavailable::{Refusal, Unavailable, Why};
use crate::call::{Reply, Request};

/// Timers tick in milliseconds, and so does the wait that they end; both round up. They are set this much before their
/// time, so that nobody waits longer than a deadline and half a millisecond.
pub(super) const LATENESS: Duration = Duration::from_micros(1_500);

/// A request on its way, and who waits for the answer.
#[derive(Debug)]
pub(super) struct Errand {
    pub(super) request: Request,
    pub(super) reply: oneshot::Sender<Result<Reply, Unavailable>>,
    pub(super) begun: Instant,
    pub(super) deadline: Instant,
    /// How often it was sent and not carried out.
    pub(super) tries: u8,
    /// What was said to that, last.
    pub(super) refusal: Option<Refusal>,
    /// It is the one that a server that failed is tried with.
    pub(super) probe: bool,
    /// It was sent here by the server that still owns the slot.
    pub(super) asking: bool,
    /// It is sent in a call of its own, since its slot is on its way and not all keys of the last call were here.
    pub(super) apart: bool,
    /// It is carried out although nobody waits for it.
    pub(super) unwatched: bool,
}

/// What is sent together.
pub(super) type Errands = SmallVec<[Errand; 1]>;

impl Errand {
    fn new(
        request: Request,
        reply: oneshot::Sender<Result<Reply, Unavailable>>,
        begun: Instant,
        deadline: Instant,
    ) -> Self {
        let (tries, refusal, probe, asking, apart, unwatched) = (0, None, false, false, false, false);
        Self { request, reply, begun, deadline, tries, refusal, probe, asking, apart, unwatched }
    }

    /// Whoever wanted it has gone.
    pub(super) fn is_given_up(&self) -> bool {
        !self.unwatched && self.reply.is_closed()
    }

    /// When it is told that there is no answer.
    pub(super) fn due(&self) -> Instant {
        self.deadline - LATENESS
    }

    /// Why there is no answer, now that it was waited for and nothing is on its way: what the last one said, if it was
    /// asked.
    pub(super) fn unanswered(&self, waited: Duration) -> Why {
        self.refusal.clone().map_or(Why::Deadline(waited), Why::Refused)
    }

    /// It shares no call.
    pub(super) fn is_apart(&self) -> bool {
        self.asking || self.apart
    }
}

/// What nodes tell whoever keeps the map.
#[derive(Debug)]
pub(super) enum News {
    /// A server is not what the map says, or is gone.
    Trouble,
    /// A slot is at another server.
    Moved(u16, Endpoint),
    /// A request is for a server that is not in the map.
    Forward(Errand, Endpoint),
    /// The server there did not carry out a request, since it is not the primary any more.
    Stranded(Errand, Endpoint),
}

/// What all nodes of a link have in common.
#[derive(Debug)]
pub(super) struct Surroundings {
    pub(super) access: Access,
    pub(super) script: Arc<str>,
    pub(super) settings: Settings,
    /// Only a primary will do, as Sentinel says.
    pub(super) primary_only: bool,
    /// The keys of one call have one tag.
    pub(super) one_tag_per_call: bool,
    pub(super) map: Arc<ArcSwap<Map>>,
    pub(super) news: mpsc::UnboundedSender<News>,
}

/// One server.
#[derive(Debug)]
pub(super) struct Node {
    endpoint: Endpoint,
    name: Arc<str>,
    desk: Desk,
    queue: mpsc::Sender<Errands>,
    task: std::sync::OnceLock<tokio::task::AbortHandle>,
    /// It was told that others may be admitted by it when it is cut off.
    is_risk_told: AtomicBool,
}

impl Node {
    /// Starts to talk to the server at `endpoint`, on the runtime that this is called on.
    pub(super) fn start(endpoint: Endpoint, around: &Arc<Surroundings>) -> Arc<Self> {
        let (queue, waiting) = mpsc::channel(around.settings.queue);
        let name: Arc<str> = endpoint.to_string().into();
        let desk = Desk::new(Arc::clone(&name), Instant::now());
        let node = Arc::new(Self { endpoint, name, desk, queue, task: Default::default(), is_risk_told: false.into() });
        let keeper = Keeper {
            node: Arc::clone(&node),
            around: Arc::clone(around),
            queue: waiting,
            breaker: Breaker::default(),
            backoff: Backoff::new(around.settings.reconnect_least, around.settings.reconnect_most),
            held: VecDeque::new(),
            connected: false,
        };
        let task = tokio::spawn(keeper.keep());
        let _ = node.task.set(task.abort_handle());
        node
    }

    /// Ends its task: whoever waits is told, and nothing is sent any more.
    pub(super) fn give_up(&self) {
        if let Some(task) = self.task.get() {
            task.abort();
        }
        self.desk.publish(Standing::Resting, &"another server has taken its place".into(), Instant::now());
    }

    pub(super) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    pub(super) fn name(&self) -> &Arc<str> {
        &self.name
    }

    pub(super) fn desk(&self) -> &Desk {
        &self.desk
    }

    /// Makes an errand of a caller's request, to be [handed over](Self::hand_over), or says at once why not.
    pub(super) fn admit(&self, request: Request, settings: &Settings) -> Result<(Errand, Answer), Unavailable> {
        let probe = match self.desk.admit() {
            Admission::Pass => false,
            Admission::Probe => true,
            Admission::Refuse(why) => return Err(Unavailable::new(&self.name, Why::Resting(why))),
        };
        let (reply, answer) = oneshot::channel();
        let begun = Instant::now();
        let deadline = request.begun().unwrap_or(begun) + settings.deadline + request.patience();
        Ok((Errand { probe, ..Errand::new(request, reply, begun, deadline) }, answer))
    }

    /// Passes on what was admitted: all of it is sent together.
    pub(super) fn hand_over(&self, errands: Errands) {
        let Err(error) = self.queue.try_send(errands) else { return };
        let is_full = matches!(error, mpsc::error::TrySendError::Full(_));
        for errand in error.into_inner() {
            if errand.probe {
                self.desk.return_probe();
            }
            self.desk.count(Count::Crowded, 1);
            let why = if is_full { Why::Crowded } else { gone() };
            let _ = errand.reply.send(Err(Unavailable::new(&self.name, why)));
        }
    }

    /// Takes a request that nobody waits for, if there is a connection.
    pub(super) fn take(&self, request: Request, settings: &Settings) {
        if self.desk.standing() != Standing::Serving {
            return self.desk.count(Count::Resting, 1);
        }
        let (reply, _) = oneshot::channel();
        let begun = Instant::now();
        let deadline = begun + settings.deadline;
        let errand = Errand { unwatched: true, ..Errand::new(request, reply, begun, deadline) };
        self.hand_over(SmallVec::from_buf([errand]));
    }

    /// Takes a request that another server sent here.
    pub(super) fn forward(&self, mut errand: Errand) {
        errand.probe = false;
        self.hand_over(SmallVec::from_buf([errand]));
    }
}

/// Where the answer will be.
pub(super) type Answer = oneshot::Receiver<Result<Reply, Unavailable>>;

/// Whoever had the request is gone with it.
pub(super) fn gone() -> Why {
    Why::Lost("the server was given up".into())
}

/// The task of a node.
pub(super) struct Keeper {
    pub(super) node: Arc<Node>,
    pub(super) around: Arc<Surroundings>,
    pub(super) queue: mpsc::Receiver<Errands>,
    pub(super) breaker: Breaker,
    pub(super) backoff: Backoff,
    /// Sent on by another server before there was a connection, or not carried out by this one, over the last.
    pub(super) held: VecDeque<Errand>,
    /// There was a connection.
    connected: bool,
}

impl Keeper {
    /// Never ends, whatever happens inside.
    async fn keep(mut self) {
        loop {
            caught(self.connect_and_talk()).await;
            let why: Arc<str> = "its task failed and was started again".into();
            tracing::error!(server = &*self.node.name, "{why}");
            self.node.desk.count(Count::Panicked, 1);
            self.breaker.trip(Instant::now());
            self.publish(&why);
            tokio::time::sleep(self.around.settings.reconnect_least).await;
        }
    }

    async fn connect_and_talk(&mut self) {
        loop {
            let begun = Instant::now();
            let why = match self.connect().await {
                Ok((connection, sha)) => {
                    self.node.desk.count(Count::Connected, 1);
                    self.connected = true;
                    let why: Arc<str> = Talk::new(self, connection, sha).run().await;
                    self.breaker.trip(Instant::now());
                    why
                }
                Err(error) => {
                    self.node.desk.count(Count::ConnectFailed, 1);
                    // One that was never there has failed nobody: when it appears, all may ask it at once.
                    if self.connected {
                        self.breaker.trip(Instant::now());
                    }
                    error.to_string().into()
                }
            };
            self.publish(&why);
            let _ = self.around.news.send(News::Trouble);
            let next = begun + self.backoff.wait(random());
            self.refusing(&why, tokio::time::sleep_until(next)).await;
        }
    }

    async fn connect(&mut self) -> Result<(Connection, Arc<[u8]>), NoConnection> {
        let around = Arc::clone(&self.around);
        let node = Arc::clone(&self.node);
        let attempt = async {
            let mut connection = Connection::open(&node.endpoint, &around.access).await?;
            if around.primary_only && !connection.primary().await? && !node.is_risk_told.swap(true, Ordering::Relaxed) {
                tracing::warn!(
                    server = &*node.name,
                    "min-replicas-to-write is 0: a primary that is cut off goes on admitting for as long as it is asked; \
                     set min-replicas-to-write 1 and min-replicas-max-lag 1"
                );
            }
            let sha = connection.load(&around.script).await?;
            Ok((connection, sha))
        };
        let why = self.node.desk.health(Instant::now()).why;
        let timeout = tokio::time::timeout(self.around.access.timeout, attempt);
        let result = self.refusing(&why, timeout).await;
        result.unwrap_or_else(|_| {
            let waited = self.around.access.timeout;
            Err(NoConnection::Other(format!("there is no connection after {waited:?}")))
        })
    }

    /// Waits for `event` while there is no connection: callers are refused, and what was sent and not carried out is
    /// held until its deadline.
    async fn refusing<F: Future>(&mut self, why: &Arc<str>, event: F) -> F::Output {
        let mut event = pin!(event);
        loop {
            let due = self.held.iter().map(Errand::due).min();
            tokio::select! {
                biased;
                output = &mut event => return output,
                errands = self.queue.recv() => match errands {
                    Some(errands) => for errand in errands {
                        match errand.tries {
                            0 => self.refuse(errand, Why::Resting(Arc::clone(why))),
                            _ => self.held.push_back(errand),
                        }
                    },
                    // The node holds a sender, so that this does not happen; if it does, nobody asks any more.
                    None => return event.await,
                },
                () = sleep_until(due) => self.drop_held(),
            }
        }
    }

    fn drop_held(&mut self) {
        let now = Instant::now();
        for errand in std::mem::take(&mut self.held) {
            if errand.due() <= now {
                let why = errand.unanswered(now.saturating_duration_since(errand.begun));
                self.refuse(errand, why);
            } else {
                self.held.push_back(errand);
            }
        }
    }

    fn refuse(&self, errand: Errand, why: Why) {
        self.node.desk.count(Count::Resting, 1);
        let _ = errand.reply.send(Err(Unavailable::new(&self.node.name, why)));
    }

    /// Says how the server stands, by its breaker.
    pub(super) fn publish(&self, why: &Arc<str>) {
        let standing = match self.breaker.position() {
            Position::Closed if !self.connected => Standing::Resting,
            Position::Closed => Standing::Serving,
            Position::HalfOpen => Standing::Trying,
            Position::Open => Standing::Resting,
        };
        self.node.desk.publish(standing, why, Instant::now());
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Runs `task` and returns when it ends or panics.
pub(super) async fn caught(task: impl Future<Output = ()>) {
    let mut task = pin!(task);
    std::future::poll_fn(|context| {
        std::panic::catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(context))).unwrap_or(Poll::Ready(()))
    })
    .await;
}

/// A random number for waits; which does not matter much.
pub(super) fn random() -> u64 {
    getrandom::u64().unwrap_or(500)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_task_that_panics_is_caught_wherever_it_does() {
        caught(async { panic!("at once") }).await;
        caught(async {
            tokio::task::yield_now().await;
            panic!("later");
        })
        .await;
    }
}
