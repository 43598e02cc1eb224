//! Requests over a limit that says `enqueue`: kept, and done when the limit has room.
//!
//! A request is written down before anybody is told that it will be done (`shelf`), waits in line with all others for
//! the same counter (`lines`), and is sent when its turn comes, which is asked for at the same gate as every other
//! request's (`replay`). There is no second rate: the limit is. First come, first served holds between those that were
//! kept and those that come: while somebody waits for a counter, whoever comes is put behind.
//!
//! Limits that do not keep requests are asked when a request comes, and have been paid when it is kept: so no line is
//! held up by what one of those who wait has spent elsewhere.

mod admin;
mod counts;
mod deferred;
mod file;
mod form;
mod lines;
mod redis;
mod replay;
mod shared;
mod shelf;
mod told;

use std::collections::HashSet;
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::Response;
use http::header::{HeaderName, HeaderValue};
use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore};
use tollgate::{Attribute, Check, Clock as _, Limiter, Timestamp};

pub(crate) use self::deferred::Deferred;
pub(super) use self::deferred::part_of;
pub(crate) use self::form::Id;
pub(super) use self::form::Parcel;
pub(crate) use self::lines::Bounds;

use self::counts::Counts;
use self::form::{Entry, State};
use self::lines::{Full, Lines, Tally};
use self::redis::RedisShelf;
use self::shelf::{Fault, Shelf};
use super::body::Reply;
use super::table::{Gateway, Lane};
use crate::serve::{Drained, House, network_of};

/// Where everybody who was told the name of a request can ask what became of it.
pub(super) const STATUS_PATH: &str = "/.tollgate/later/";

/// The file in the directory that `--data` names.
const FILE: &str = "later.redb";
/// Servers know by this that they have seen a request already.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// Of a path, so much is shown to people.
const LONGEST_PATH: usize = 256;
/// How many are on their way to servers at the same time.
const MOST_AT_ONCE: usize = 256;
/// How often answers that nobody may ask for any more are looked for.
const SWEEP: Duration = Duration::from_secs(1);
/// How many times that is tried to take back what could not be kept for certain.
const TAKE_BACK: usize = 600;
/// How often a client may ask what became of requests: so often a second, and so many at once. Each may be a question to
/// the Redis that decides about everybody.
const ASKED_A_SECOND: u64 = 1_000;
const ASKED_AT_ONCE: u64 = 10_000;
/// Bytes to remember those who asked.
const ASKER_MEMORY: usize = 4 << 20;

/// Requests that are done later.
pub(crate) struct Later {
    house: Arc<House>,
    gateway: Arc<Gateway>,
    shelf: Shelf,
    lines: Lines,
    counts: Counts,
    /// One for each that is on its way.
    senders: Semaphore,
    /// Which those are.
    on_their_way: Mutex<HashSet<Id>>,
    /// Rung when something was kept that this gateway may have to serve.
    bell: Notify,
    /// What all gateways keep together, as it was a moment ago.
    shared_tally: Mutex<Tally>,
    /// Clients that ask what became of requests.
    askers: Limiter,
    /// Where lines are served.
    runtime: Handle,
}

/// Why a request is not kept.
#[derive(Debug)]
pub(super) enum NotKept {
    /// There is no room, and there is perhaps some after so many seconds.
    Full(Full, u64),
    Fault(Fault),
    /// There is no randomness for a name that nobody can guess.
    Nameless,
    /// The process is about to end.
    Leaving,
}

impl Later {
    /// With what was kept in `data` before; in memory only if there is no such directory.
    pub(crate) fn open(
        house: &Arc<House>,
        gateway: &Arc<Gateway>,
        data: Option<&Path>,
        bounds: Bounds,
        runtime: &Handle,
    ) -> anyhow::Result<Arc<Self>> {
        let (shelf, found) = match (&house.settings.redis, data) {
            (Some(settings), _) => (Shelf::Redis(RedisShelf::open(&settings.address)?), Vec::new()),
            (None, Some(data)) => {
                let (file, found) = file::FileShelf::open(&data.join(FILE))?;
                (Shelf::File(file), found)
            }
            (None, None) => (Shelf::memory(), Vec::new()),
        };
        let later = Arc::new(Self {
            house: Arc::clone(house),
            gateway: Arc::clone(gateway),
            shelf,
            lines: Lines::new(bounds),
            counts: Counts::default(),
            senders: Semaphore::new(MOST_AT_ONCE),
            on_their_way: Mutex::default(),
            bell: Notify::new(),
            shared_tally: Mutex::default(),
            askers: Limiter::requests_per_second(ASKED_A_SECOND)
                .burst(ASKED_AT_ONCE)
                .memory_budget(ASKER_MEMORY)
                .build()?,
            runtime: runtime.clone(),
        });
        if !found.is_empty() {
            tracing::info!(requests = found.len(), "requests that were kept for later");
        }
        for entry in found {
            runtime.block_on(later.adopt(entry));
        }
        later.warn_of_memory();
        runtime.spawn(Arc::clone(&later).sweep());
        runtime.spawn(Arc::clone(&later).share(house.drain.listen()));
        Ok(later)
    }

    /// Who relies on what is kept is to know how long it is.
    fn warn_of_memory(&self) {
        if let Some(rule) = deferred::a_rule_that_keeps(&self.house.gate.rules()).filter(|_| !self.shelf.is_durable()) {
            let rule = &*rule.name;
            tracing::warn!(rule, "`on_limit: enqueue` keeps requests in memory only: name a directory with --data");
        }
    }

    fn now(&self) -> Timestamp {
        self.house.gate.engine().clock().now()
    }

    /// Whether a client may ask now what became of requests.
    pub(super) fn may_ask(&self, from: Option<IpAddr>) -> bool {
        self.askers.allow(from.map(network_of).map_or_else(|| "local".to_owned(), |from| from.to_string()))
    }

    /// Whether somebody waits already for a counter that this request is counted by: then it waits behind.
    pub(super) fn behind_others(&self, check: &Check<'_>, attributes: &[Attribute<'_>]) -> Option<Deferred> {
        if self.lines.is_empty() || !self.house.gate.is_limiting() {
            return None;
        }
        deferred::behind(&self.house.gate.rules(), check, attributes, |line| self.lines.has(line))
    }

    /// Keeps a request, and says where to ask what becomes of it. Whether the client stays to hear that makes no
    /// difference.
    pub(super) async fn keep(
        self: &Arc<Self>,
        lane: &Arc<Lane>,
        deferred: Deferred,
        path: &str,
        parcel: Parcel,
    ) -> Result<Response<Reply>, NotKept> {
        let (this, lane, path) = (Arc::clone(self), Arc::clone(lane), shortened(path).into());
        let keeping = self.runtime.spawn(async move { this.write_down(&lane, &deferred, path, parcel).await });
        let kept = keeping.await.unwrap_or(Err(NotKept::Leaving));
        if let Err(why) = &kept {
            self.counts.refused(why);
        }
        kept
    }

    async fn write_down(
        self: &Arc<Self>,
        lane: &Lane,
        deferred: &Deferred,
        path: Box<str>,
        mut parcel: Parcel,
    ) -> Result<Response<Reply>, NotKept> {
        let id = Id::random().map_err(|_| NotKept::Nameless)?;
        if !parcel.headers.contains_key(&IDEMPOTENCY_KEY) {
            parcel.own.push((IDEMPOTENCY_KEY, HeaderValue::from_str(&id.to_string()).ok()));
        }
        let bytes = parcel.encode();
        let size = bytes.len() as u64;
        let now = self.now();
        let entry = |number| Entry {
            id,
            number,
            line: deferred.line,
            route: Arc::clone(&lane.name),
            method: parcel.method.as_str().into(),
            path,
            received: now,
            bytes: size,
            keep: lane.later.keep,
            state: State::waiting(now),
        };
        let no_room = |full| NotKept::Full(full, deferred.seconds_at(1));
        let most = lane.later.most_waiting;
        let position = if let Some(redis) = self.shelf.shared() {
            let put = self.put_shared(redis, &entry(0), &bytes, most).await.map_err(NotKept::Fault)?;
            self.bell.notify_one();
            put.map_err(no_room)?
        } else {
            let place = self.lines.reserve(deferred.line, size, most).map_err(no_room)?;
            let entry = entry(place.number);
            self.shelf.put(&entry, bytes).await.map_err(NotKept::Fault)?;
            // Its place is counted by itself from now on.
            drop(place);
            self.take_in(entry);
            self.lines.position(id).unwrap_or(1)
        };
        self.counts.kept();
        Ok(told::accepted(id, position, deferred.wait_at(position), now, self.shelf.is_durable()))
    }

    /// Writes a request down in the Redis that gateways share. If no answer comes it may be there all the same: so it
    /// is asked again, and taken back if that is in vain, since the client will send it again.
    async fn put_shared(
        self: &Arc<Self>,
        redis: &RedisShelf,
        entry: &Entry,
        bytes: &[u8],
        most: u64,
    ) -> Result<Result<usize, Full>, Fault> {
        let mut put = redis.put(entry, bytes, self.lines.bounds(), most).await;
        if put.is_err() {
            put = redis.put(entry, bytes, self.lines.bounds(), most).await;
        }
        if put.is_err() {
            let (this, id) = (Arc::clone(self), entry.id);
            self.runtime.spawn(async move { take_back(&this.shelf, id, SWEEP).await });
        }
        put
    }

    /// How many there are: here, or of all gateways. Answers that are kept in Redis are not counted, nor told from what
    /// waits what is on its way.
    fn tally(&self) -> Tally {
        let here = self.lines.tally();
        match self.shelf.shared() {
            Some(_) => {
                let all = *self.shared_tally.lock().unwrap_or_else(PoisonError::into_inner);
                Tally { oldest: here.oldest, ..all }
            }
            None => here,
        }
    }

    /// Puts one that is written down in line, and has the line served.
    fn take_in(self: &Arc<Self>, entry: Entry) {
        let line = entry.line;
        if self.lines.insert(entry) {
            self.serve(line);
        }
    }

    /// Completes when the service closes and nothing is on its way any more.
    pub(crate) async fn finish(self: Arc<Self>, mut drained: Drained) {
        drained.closing().await;
        let waiting = self.lines.tally().waiting;
        if waiting > 0 && !self.shelf.is_durable() {
            let help = "they were kept in memory only: name a directory with --data";
            tracing::warn!(requests = waiting, "requests that were kept for later are lost: {help}");
        }
        // Whoever sends holds a permit, and nobody begins any more.
        let _ = self.senders.acquire_many(MOST_AT_ONCE as u32).await;
        if let Some(redis) = self.shelf.shared() {
            redis.end_turn().await;
        }
    }

    async fn sweep(self: Arc<Self>) {
        loop {
            tokio::time::sleep(SWEEP).await;
            for entry in self.lines.overdue(self.now()) {
                // Redis forgets by itself. What could not be removed is met again.
                if self.shelf.shared().is_some() || self.shelf.remove(entry.id).await.is_ok() {
                    self.lines.remove(&entry);
                }
            }
        }
    }
}

/// Removes one that nobody was promised anything about, as soon as that can be done.
async fn take_back(shelf: &Shelf, id: Id, pause: Duration) {
    let mut times = 0;
    for _ in 0..TAKE_BACK {
        tokio::time::sleep(pause).await;
        // Twice: what was sent before may arrive after the first. What is on its way may come back to wait.
        times += usize::from(matches!(shelf.remove(id).await, Ok(true)));
        if times == 2 {
            return;
        }
    }
    tracing::error!(%id, "a request that could not be kept may be sent all the same: Redis was away, or it was on its way, for too long");
}

fn shortened(path: &str) -> &str {
    let end = (0..=LONGEST_PATH.min(path.len())).rev().find(|end| path.is_char_boundary(*end));
    path.get(..end.unwrap_or(0)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use tollgate_sim::redis::RedisServer;

    use super::form::Stage;
    use super::form::tests::entry;
    use super::redis::{Turn, Whose};
    use super::*;

    /// One that its client was told could not be kept, and that is on its way already, is not sent again.
    #[tokio::test]
    async fn what_is_on_its_way_is_taken_back_when_it_waits_again() {
        let server = RedisServer::start(&[]);
        let shelf = Shelf::Redis(RedisShelf::open(&format!("redis://{}", server.address()).parse().unwrap()).unwrap());
        let redis = shelf.shared().unwrap();
        // The link may not be there yet.
        while !matches!(redis.take_turn(None).await, Ok(Turn { whose: Whose::Ours(..), .. })) {
            tokio::task::yield_now().await;
        }
        let waiting = entry(1, Stage::Waiting { not_before: Timestamp::EPOCH, why: "".into() });
        let bounds = Bounds { requests: 9, bytes: 1_000 };
        redis.put(&waiting, b"request", bounds, 9).await.unwrap().unwrap();
        assert!(redis.mark(&entry(1, Stage::Begun)).await.unwrap());
        let pause = Duration::from_millis(5);
        let comes_back = async {
            tokio::time::sleep(20 * pause).await;
            assert!(redis.mark(&waiting).await.unwrap(), "the server failed: it waits again");
        };
        tokio::join!(take_back(&shelf, waiting.id, pause), comes_back);
        assert_eq!(redis.look(waiting.id).await.unwrap(), None);
    }
}
