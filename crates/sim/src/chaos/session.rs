//! Nodes under load while something goes wrong: what happens is recorded and not judged here.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "real processes take real time")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tollgate::{Charge, Intent, Key, Limit, Store};

use super::drive::drive;
use super::node::{Maker, Node, NodeClock, Watch};
use super::record::{Counter, Excuse, Fault, History, Layout, Moment, Record};
use super::workload::{LEDGER_NUMBER, Plan, Target, Workload};
use crate::redis::{RedisServer, eventually};

/// A maker that others use too.
impl<M: Maker> Maker for Arc<M> {
    type Store = M::Store;
    type Front<S: Store + 'static> = M::Front<S>;

    fn front<S: Store + 'static>(&self, store: S, clock: NodeClock) -> M::Front<S> {
        M::front(self, store, clock)
    }

    fn open(&self, url: &str, node: u16, deadline: Duration) -> M::Store {
        M::open(self, url, node, deadline)
    }

    fn is_serving(&self, store: &M::Store) -> bool {
        M::is_serving(self, store)
    }

    fn may_have_run(&self, error: &<M::Store as Store>::Error) -> bool {
        M::may_have_run(self, error)
    }
}

/// What threads share.
pub(super) struct Stage<M: Maker> {
    pub(super) watch: Watch,
    pub(super) nodes: Vec<Node<M>>,
    pub(super) workload: Workload,
    pub(super) ledger: Limit,
    pub(super) plan: Plan,
    pub(super) stop: AtomicBool,
    records: Mutex<Vec<Record>>,
    stalls: Mutex<Vec<(Moment, Moment)>>,
}

/// A run.
pub struct Session<M: Maker> {
    stage: Arc<Stage<M>>,
    threads: Vec<JoinHandle<()>>,
    faults: Vec<Fault>,
    complaints: Vec<String>,
    leaps: Vec<(u16, Moment, Moment)>,
    maker: Arc<M>,
    layout: Layout,
    url: String,
}

/// A thread that wanted to run and did not for this long was kept from it.
const STALL: Moment = 3_000;
/// Nodes that ask again for so long have recovered.
const SETTLED: Duration = Duration::from_millis(100);
/// Nodes that do not after so long stay alone.
const PATIENCE: Duration = Duration::from_secs(20);

impl<M: Maker> Session<M> {
    /// Opens a store for each node, at `urls` in turn, and lets the load begin when all of them serve.
    pub fn start(maker: &Arc<M>, urls: &[String], plan: Plan) -> Self {
        let watch = Watch::start();
        let node = |number: u16| {
            let url = &urls[usize::from(number) % urls.len()];
            let ahead = plan.skews.get(usize::from(number)).copied().unwrap_or(0);
            let store = maker.open(url, number, plan.deadline);
            Node::new(maker, store, NodeClock::new(watch, ahead), plan.servers_told)
        };
        let nodes: Vec<_> = (0..plan.nodes).map(node).collect();
        let stage = Arc::new(Stage {
            watch,
            nodes,
            workload: Workload::new(plan.one_key),
            ledger: Workload::ledger(),
            plan,
            stop: AtomicBool::new(false),
            records: Mutex::default(),
            stalls: Mutex::default(),
        });
        if !stage.plan.starts_alone {
            eventually("all nodes are connected", || stage.is_serving());
            // The first call makes Redis read the script; nobody's time is taken by that.
            let warm = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            eventually("all nodes are answered", || {
                warm.block_on(async {
                    let mut well = true;
                    for node in &stage.nodes {
                        let values: [&[u8]; 1] = [b"warm"];
                        let charge = Charge::new(Key::new(LEDGER_NUMBER + 1, &values), &stage.ledger);
                        let now = stage.watch.epoch;
                        well &= node.tap.store.apply(&[charge], Intent::Peek, now).await.is_ok();
                    }
                    well
                })
            });
        }
        let mut threads: Vec<_> = (0..stage.plan.nodes)
            .map(|node| {
                let stage = Arc::clone(&stage);
                std::thread::spawn(move || drive(&stage, node))
            })
            .collect();
        let watched = Arc::clone(&stage);
        threads.push(std::thread::spawn(move || watch_machine(&watched)));
        let url = urls[0].clone();
        let layout = match url.split_once(':') {
            Some(("redis+sentinel", _)) => Layout::Sentinel,
            Some(("redis+cluster", _)) => Layout::Cluster,
            _ => Layout::Single,
        };
        Self {
            stage,
            threads,
            faults: Vec::new(),
            complaints: Vec::new(),
            leaps: Vec::new(),
            maker: Arc::clone(maker),
            layout,
            url,
        }
    }

    /// Lets the load go on for a while.
    pub fn rest(&self, span: Duration) {
        std::thread::sleep(span);
    }

    /// Does something that is over when `act` returns, and waits until all nodes ask Redis again.
    pub fn fault(&mut self, what: &str, excuse: Excuse, act: impl FnOnce(&Self)) {
        self.fault_until(what, excuse, |session| {
            act(session);
            session.moment()
        });
    }

    /// The same for something that is over at a moment that `act` returns: when a promotion could be seen, for one.
    pub fn fault_until(&mut self, what: &str, excuse: Excuse, act: impl FnOnce(&Self) -> Moment) {
        // What is wrong from the start was so before anybody asked.
        let begin = if self.stage.plan.starts_alone && self.faults.is_empty() { 0 } else { self.moment() };
        let end = act(self);
        if !self.recovers() {
            self.complaints.push(format!("{what}: not all nodes ask Redis again after {:?}", PATIENCE));
        }
        self.faults.push(Fault { what: what.to_owned(), begin, end, recovered: self.moment(), excuse });
    }

    /// The time now.
    pub fn moment(&self) -> Moment {
        self.stage.watch.moment()
    }

    /// Whether all nodes ask Redis.
    pub fn is_serving(&self) -> bool {
        self.stage.is_serving()
    }

    /// Sets a node's clock ahead, or back.
    pub fn set_clock(&mut self, node: u16, ahead: i64) {
        let clock = &self.stage.nodes[usize::from(node)].clock;
        let by = u64::try_from(ahead).unwrap_or(0);
        self.leaps.push((node, self.stage.watch.moment(), by));
        clock.set(ahead);
    }

    /// Where ledgers are read at the end, if not where the first node asks.
    pub fn read_at(&mut self, url: String) {
        self.url = url;
    }

    /// Waits until all nodes ask Redis again and go on to, and says whether they do.
    fn recovers(&self) -> bool {
        let (begun, mut since) = (Instant::now(), Instant::now());
        while begun.elapsed() < PATIENCE {
            if !self.stage.is_serving() {
                since = Instant::now();
            }
            if since.elapsed() >= SETTLED {
                return true;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        false
    }

    /// Ends the load and says what happened. `servers` are those that states are in.
    pub fn finish(self, servers: &[&RedisServer]) -> History {
        self.stage.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().expect("every decision is made");
        }
        let stage = &self.stage;
        let ledgers = ledgers(&*self.maker, &self.url, stage);
        let counter = |(target, ledger): (&Target, Option<u64>)| Counter {
            name: target.name.clone(),
            limit: target.limit.clone(),
            ledger,
        };
        History {
            layout: self.layout,
            plan: stage.plan.clone(),
            servers: u64::from(stage.plan.nodes),
            deadline: u64::try_from(stage.plan.deadline.as_micros()).unwrap_or(u64::MAX),
            epoch: stage.watch.epoch,
            counters: stage.workload.targets.iter().zip(ledgers).map(counter).collect(),
            records: std::mem::take(&mut *stage.records.lock().unwrap_or_else(PoisonError::into_inner)),
            faults: self.faults,
            stalls: std::mem::take(&mut *stage.stalls.lock().unwrap_or_else(PoisonError::into_inner)),
            complaints: self.complaints,
            leaps: self.leaps,
            keys_for_ever: servers.iter().map(|server| keys_for_ever(server)).sum(),
        }
    }
}

impl<M: Maker> Stage<M> {
    fn is_serving(&self) -> bool {
        self.nodes.iter().all(|node| node.tap.is_serving())
    }

    pub(super) fn recorded(&self, records: &mut Vec<Record>) {
        self.records.lock().unwrap_or_else(PoisonError::into_inner).append(records);
    }

    pub(super) fn stalled(&self, from: Moment, to: Moment) {
        if to - from > STALL {
            self.stalls.lock().unwrap_or_else(PoisonError::into_inner).push((from, to));
        }
    }
}

/// A thread that only sleeps sees when the machine does not let it wake; and the kernel knows when a processor that
/// others were to run on was given to another guest of the same host.
fn watch_machine<M: Maker>(stage: &Stage<M>) {
    let mut last = stage.watch.moment();
    let mut stolen = stolen();
    for round in 0_u64.. {
        if stage.stop.load(Ordering::Relaxed) {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
        let now = stage.watch.moment();
        stage.stalled(last, now);
        last = now;
        if round % 5 == 0 {
            let before = std::mem::replace(&mut stolen, self::stolen());
            let most = stolen.iter().zip(before).map(|(now, before)| now.saturating_sub(before)).max();
            stage.stalled(now.saturating_sub(most.unwrap_or(0)), now);
        }
    }
}

/// For how many microseconds each processor was somebody else's, since the machine was started, in steps of the
/// kernel's clock. Nothing where that is not told.
fn stolen() -> Vec<Moment> {
    /// Of what Linux counts processors' time in, in every configuration that it is told in.
    const TICK: Moment = 10_000;
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let processors = stat.lines().filter(|line| line.starts_with("cpu") && !line.starts_with("cpu "));
    processors.filter_map(|line| Some(line.split_whitespace().nth(8)?.parse::<Moment>().ok()? * TICK)).collect()
}

/// What each ledger stands at.
fn ledgers<M: Maker>(maker: &M, url: &str, stage: &Stage<M>) -> Vec<Option<u64>> {
    let store = maker.open(url, 0, Duration::from_secs(2));
    eventually("the ledgers can be read", || maker.is_serving(&store));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let read = |target: &Target| {
        if !target.ledger {
            return None;
        }
        let values: [&[u8]; 1] = [target.name.as_bytes()];
        let charge = Charge::new(Key::new(LEDGER_NUMBER, &values), &stage.ledger);
        let mut left = None;
        eventually("a ledger is read", || {
            left = runtime.block_on(store.apply(&[charge], Intent::Peek, stage.watch.epoch)).ok();
            left.is_some()
        });
        left.and_then(|left| left.first().map(|left| stage.ledger.most() - left.remaining))
    };
    stage.workload.targets.iter().map(read).collect()
}

/// How many of our keys have no time to live. Replicas have those of their primary, and are not asked.
fn keys_for_ever(server: &RedisServer) -> u64 {
    if server.cli(&["ROLE"]).starts_with("slave") {
        return 0;
    }
    let script = "local n = 0 for _, key in ipairs(redis.call('KEYS', 'tg1:*')) do \
        if redis.call('PTTL', key) == -1 then n = n + 1 end end return n";
    let said = server.cli(&["EVAL", script, "0"]);
    said.parse().unwrap_or_else(|_| panic!("{} does not tell of its keys: {said}", server.address()))
}
