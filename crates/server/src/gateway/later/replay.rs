//! Sending what was kept: one after the other for each counter, at the rate of its limit, until a server has answered.
//!
//! The promise: a request that was kept is sent until a server answers it, or is put aside with the reason. That it is
//! about to be sent is written down before, and what came of it after. Where the end came between the two, nobody knows
//! whether a server has seen it: it is sent again if its method says that twice is as good as once, or if its route
//! says `repeat`; else it is put aside. So nothing is sent twice that a server has answered, and nothing is forgotten.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use http::{Method, StatusCode};
use http_body_util::{BodyExt as _, Full};
use tollgate::Micros;
use tollgate::rules::{LaterSpec, Priority};
use tollgate_gateway::{Answer, Head, Onward, is_idempotent};

use super::Later;
use super::counts::{End, Sent};
use super::form::{Answered, Entry, Id, LineId, Parcel, Stage, State};
use crate::gateway::known::Kept;
use crate::gateway::pass::{Passage, Turn, pass_later};
use crate::gateway::table::Lane;
use crate::serve::House;

/// How often those who wait look whether something changed.
const LOOK: Duration = Duration::from_secs(1);
/// The wait after the first failure; each further one doubles it, up to the most.
const FIRST_WAIT: Micros = Micros::SECOND;
const LONGEST_WAIT: Micros = Micros::MINUTE;
/// A server that cannot be reached is tried again after half the time that it is away for, within these.
const LEAST_AWAY: Micros = Micros::from_micros(500_000);
const MOST_AWAY: Micros = Micros::from_micros(30_000_000);
/// A server that asks for more time gets at most so much.
const MOST_ASKED: Micros = Micros::HOUR;
/// Of an answer, so much is kept; and so much is read, so that its connection can be used again.
const KEPT_OF_ANSWER: usize = 4 << 10;
const READ_OF_ANSWER: usize = 1 << 20;
/// For so long: one that does not end would keep everybody behind it waiting.
const READ_FOR: Duration = Duration::from_secs(10);

/// What came of sending a request.
enum Outcome {
    Answered(Answered),
    /// A server failed, perhaps with word when to come again; more attempts may help.
    Failed(String, Micros),
    /// No server has seen it.
    Unreached(String),
    /// A server may have done it, and nobody knows.
    Unknown(String),
}

impl Later {
    /// Serves a line for as long as somebody is in it.
    pub(super) fn serve(self: &Arc<Self>, line: LineId) {
        let (later, epoch) = (Arc::clone(self), self.lines.epoch());
        self.runtime.spawn(async move {
            while let Some(entry) = later.lines.first(&line, epoch) {
                if later.is_leaving() {
                    later.lines.leave(&line);
                    return;
                }
                if let Some(pause) = later.attempt(&entry).await {
                    tokio::time::sleep(pause.min(LOOK)).await;
                }
            }
        });
    }

    /// Takes in what was written down before. What was on its way when the end came is looked after.
    pub(super) async fn adopt(self: &Arc<Self>, mut entry: Entry) {
        if entry.state.stage == Stage::Begun {
            // It may be on its way from here: then what comes of it is not known yet.
            if self.is_on_its_way(entry.id) {
                return;
            }
            let table = self.gateway.table();
            let spec = table.lane(&entry.route).map(|lane| &lane.later);
            let outcome = unanswered(&entry.method, spec, "the gateway ended while it was on its way".to_owned());
            let before = entry.state.clone();
            entry.state = self.after(&before, before.attempts, outcome, spec.unwrap_or(&LaterSpec::default()));
            match self.shelf.mark(&entry).await {
                Ok(true) => {}
                Ok(false) => return,
                // It is found like this again, and nothing was sent meanwhile.
                Err(fault) => tracing::error!(id = %entry.id, "{fault}"),
            }
            if self.shelf.shared().is_some() && !matches!(entry.state.stage, Stage::Waiting { .. }) {
                return;
            }
        }
        self.take_in(entry);
    }

    fn is_on_its_way(&self, id: Id) -> bool {
        self.on_their_way.lock().unwrap_or_else(PoisonError::into_inner).contains(&id)
    }

    fn is_leaving(&self) -> bool {
        !self.house.drain.is_serving()
    }

    /// Whether one is still what it was.
    fn is_still(&self, entry: &Entry) -> bool {
        self.lines.get(entry.id).is_some_and(|now| now.state == entry.state)
    }

    /// Tries to get the first of a line done. If it has to wait, says for how long.
    async fn attempt(self: &Arc<Self>, entry: &Entry) -> Option<Duration> {
        let Stage::Waiting { not_before, .. } = &entry.state.stage else { return Some(LOOK) };
        let left = not_before.since(self.now());
        if !left.is_zero() {
            return Some(left.into());
        }
        let parcel = match self.parcel(entry).await {
            Ok(Some(parcel)) => parcel,
            Ok(None) => {
                self.put_aside(entry, "what was kept of it cannot be read").await;
                return None;
            }
            Err(pause) => return Some(pause),
        };
        let (attributes, cost, bytes) = (parcel.attributes, parcel.cost, parcel.body.len() as u64);
        let (lane, passage) = self.turn_of(entry, &attributes, cost, bytes).await?;
        let Ok(_permit) = self.senders.acquire().await else { return Some(LOOK) };
        if self.is_leaving() {
            return None;
        }
        // Its body was not held in memory meanwhile.
        let parcel = match self.parcel(entry).await {
            Ok(parcel) => parcel?,
            Err(pause) => return Some(pause),
        };
        let state = State { attempts: entry.state.attempts + 1, since: self.now(), stage: Stage::Begun };
        let (begun, _) = self.lines.change(entry, state)?;
        let _on_its_way = OnItsWay::new(self, entry.id);
        match self.shelf.mark(&begun).await {
            Ok(true) => {}
            Ok(false) => {
                // Somebody removed it, or it is another gateway's turn.
                self.lines.remove(&begun);
                return None;
            }
            Err(fault) => {
                tracing::error!(id = %entry.id, "{fault}");
                self.lines.change(&begun, entry.state.clone());
                return Some(LOOK);
            }
        }
        let outcome = send(&self.house, &lane, &parcel, passage).await;
        let state = self.after(&entry.state, begun.state.attempts, outcome, &lane.later);
        self.conclude(&begun, state).await;
        None
    }

    /// The request itself; `None` if there is none that can be read.
    async fn parcel(&self, entry: &Entry) -> Result<Option<Parcel>, Duration> {
        match self.shelf.request(entry.id).await {
            Ok(bytes) => Ok(bytes.and_then(|bytes| Parcel::decode(&bytes))),
            Err(fault) => {
                tracing::error!(id = %entry.id, "{fault}");
                Err(LOOK)
            }
        }
    }

    /// Completes when it is the turn of `entry`, or with nothing when that is none any more.
    async fn turn_of(
        self: &Arc<Self>,
        entry: &Entry,
        attributes: &Kept,
        cost: u64,
        bytes: u64,
    ) -> Option<(Arc<Lane>, Passage)> {
        loop {
            if self.is_leaving() || !self.is_still(entry) {
                return None;
            }
            let Some(lane) = self.gateway.table().lane(&entry.route).cloned() else {
                let outcome = Outcome::Unreached("there is no such route any more".to_owned());
                let state = self.after(&entry.state, entry.state.attempts, outcome, &LaterSpec::default());
                self.conclude(entry, state).await;
                return None;
            };
            let pause = match pass_later(&self.house, &lane, attributes, cost, bytes).await {
                Ok(Turn::Now(passage)) => return Some((lane, passage)),
                Ok(Turn::After(wait)) => wait.into(),
                Ok(Turn::Never) => {
                    self.put_aside(entry, "it costs more than its limit ever allows").await;
                    return None;
                }
                // What decides cannot be reached. Nobody waits for an answer, so this can.
                Err(_) => LOOK,
            };
            tokio::time::sleep(pause.min(LOOK)).await;
        }
    }

    /// What becomes of a request that was in state `before` and was sent so often, the last time with this outcome.
    fn after(&self, before: &State, attempts: u32, outcome: Outcome, spec: &LaterSpec) -> State {
        let now = self.now();
        let dead = |why: String| State { attempts, since: now, stage: Stage::Dead { why: why.into() } };
        match outcome {
            Outcome::Answered(answered) => {
                self.counts.sent(Sent::Answered);
                State { attempts, since: now, stage: Stage::Done(answered) }
            }
            Outcome::Failed(why, _) if attempts >= spec.attempts => {
                self.counts.sent(Sent::Failed);
                dead(format!("{why}, at the last of {attempts} attempts"))
            }
            Outcome::Failed(why, asked) => {
                self.counts.sent(Sent::Failed);
                let not_before = now.plus(jittered(backoff(attempts)).max(asked.min(MOST_ASKED)));
                State { attempts, since: now, stage: Stage::Waiting { not_before, why: why.into() } }
            }
            Outcome::Unreached(why) => {
                self.counts.sent(Sent::Unreached);
                let since = match &before.stage {
                    Stage::Waiting { why, .. } if !why.is_empty() => before.since,
                    _ => now,
                };
                let away = now.since(since);
                if away >= spec.give_up {
                    return dead(format!("{why}, for all the time that it may wait"));
                }
                let wait = Micros::from_micros(away.as_micros() / 2).clamp(LEAST_AWAY, MOST_AWAY);
                let stage = Stage::Waiting { not_before: now.plus(jittered(wait)), why: why.into() };
                // Nobody has seen it: that was no attempt.
                State { attempts: before.attempts, since, stage }
            }
            Outcome::Unknown(why) => {
                self.counts.sent(Sent::Unknown);
                dead(format!("unknown whether it was done: {why}"))
            }
        }
    }

    async fn put_aside(self: &Arc<Self>, entry: &Entry, why: &str) {
        let stage = Stage::Dead { why: why.into() };
        self.conclude(entry, State { since: self.now(), stage, ..entry.state }).await;
    }

    /// Writes down what became of a request, however long that takes, and lets it be known then.
    async fn conclude(self: &Arc<Self>, before: &Entry, state: State) {
        // Whoever removes it meanwhile is told that it is on its way, so that what is written here is never about one
        // that is gone.
        let held = State { stage: Stage::Begun, ..before.state.clone() };
        let before = match before.state.stage {
            Stage::Begun => before.clone(),
            _ => match self.lines.change(before, held) {
                Some((held, _)) => held,
                None => return,
            },
        };
        let entry = Entry { state, ..before.clone() };
        let is_ours = loop {
            match self.shelf.mark(&entry).await {
                Ok(is_ours) => break is_ours,
                Err(fault) => tracing::error!(id = %entry.id, "{fault}"),
            }
            tokio::time::sleep(LOOK).await;
        };
        if !is_ours {
            self.lines.remove(&before);
            return;
        }
        match &entry.state.stage {
            Stage::Done(_) => self.counts.end(End::Done),
            Stage::Dead { why } => {
                self.counts.end(End::Dead);
                tracing::warn!(id = %entry.id, route = &*entry.route, why = &**why, "a request that was kept was put aside");
            }
            Stage::Waiting { .. } | Stage::Begun => {}
        }
        if self.shelf.shared().is_some() && !matches!(entry.state.stage, Stage::Waiting { .. }) {
            // What is over is everybody's to look at, where it is kept.
            self.lines.remove(&before);
            return;
        }
        match self.lines.change(&before, entry.state.clone()) {
            Some((_, true)) => self.serve(before.line),
            Some((_, false)) => {}
            // The turn was another's for a while, and is this gateway's again.
            None if matches!(entry.state.stage, Stage::Waiting { .. }) => self.take_in(entry),
            None => {}
        }
    }
}

/// A request is on its way for as long as this lives.
struct OnItsWay<'l>(&'l Later, Id);

impl<'l> OnItsWay<'l> {
    fn new(later: &'l Later, id: Id) -> Self {
        later.on_their_way.lock().unwrap_or_else(PoisonError::into_inner).insert(id);
        Self(later, id)
    }
}

impl Drop for OnItsWay<'_> {
    fn drop(&mut self) {
        self.0.on_their_way.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.1);
    }
}

/// Sends a request to one of the servers of its route, and reads the answer.
async fn send(house: &House, lane: &Lane, parcel: &Parcel, passage: Passage) -> Outcome {
    let Parcel { method, target, host, headers, own, body, .. } = parcel;
    let own: Vec<_> =
        own.iter().map(|(name, value)| (name.as_str(), value.as_ref().map(HeaderValue::as_bytes))).collect();
    let onward = Onward { method, target, host: host.as_ref(), headers, own: &own };
    // Whoever has a client that waits for the answer goes first.
    let permit = match &lane.overload {
        Some(overload) => match overload.enter(Priority::Low, &house.gate).await {
            Ok(permit) => Some(permit),
            Err(_) => return Outcome::Unreached("its servers have as much to do as they may".to_owned()),
        },
        None => None,
    };
    let answered = lane.group.forward(&onward, None, Full::new(body.clone())).await;
    if let Some(permit) = &permit {
        permit.answered(answered.as_ref().map(|(head, _)| head.status).map_err(|failure| failure.why.status()));
    }
    match answered {
        Ok((Head { status, lines, .. }, answer)) => {
            let headers = lines.to_headers();
            let answered = read(status, &headers, answer, passage).await;
            if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS {
                let asked = headers.get(RETRY_AFTER).and_then(|seconds| seconds.to_str().ok()?.parse().ok());
                let asked = Micros::from_secs(asked.unwrap_or(0));
                return Outcome::Failed(format!("the server answered {}", status.as_u16()), asked);
            }
            Outcome::Answered(answered)
        }
        Err(failure) if !failure.why.may_have_been_seen() => Outcome::Unreached(failure.why.told().to_owned()),
        Err(failure) => unanswered(method.as_str(), Some(&lane.later), failure.why.told().to_owned()),
    }
}

/// What it means that a request was sent and nobody knows what came of it.
fn unanswered(method: &str, spec: Option<&LaterSpec>, why: String) -> Outcome {
    let is_repeatable = method.parse::<Method>().is_ok_and(|method| is_idempotent(&method));
    if is_repeatable || spec.is_some_and(|spec| spec.repeat) {
        Outcome::Failed(why, Micros::ZERO)
    } else {
        Outcome::Unknown(why)
    }
}

/// Reads an answer, as far as that is of use, and pays for it.
async fn read(status: StatusCode, headers: &HeaderMap, mut answer: Answer<Full<Bytes>>, passage: Passage) -> Answered {
    let mut tab = passage.into_tab(headers);
    let (mut body, mut length, mut is_over) = (BytesMut::new(), 0, false);
    let deadline = tokio::time::Instant::now() + READ_FOR;
    while length < READ_OF_ANSWER {
        let Ok(frame) = tokio::time::timeout_at(deadline, answer.frame()).await else { break };
        match frame {
            Some(Ok(frame)) => {
                let Ok(data) = frame.into_data() else { continue };
                if let Some(tab) = &mut tab {
                    tab.add(data.len() as u64);
                }
                length += data.len();
                let room = KEPT_OF_ANSWER - body.len();
                body.extend_from_slice(data.get(..room.min(data.len())).unwrap_or_default());
            }
            // That the server has answered is known; what exactly it said is not.
            Some(Err(_)) => break,
            None => {
                is_over = true;
                break;
            }
        }
    }
    let content_type = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    Answered {
        status,
        content_type: content_type.into(),
        is_whole: is_over && length == body.len(),
        body: body.freeze(),
    }
}

/// The wait after so many failures.
fn backoff(failures: u32) -> Micros {
    let doubled = FIRST_WAIT.as_micros().checked_shl(failures.saturating_sub(1).min(20)).unwrap_or(u64::MAX);
    Micros::from_micros(doubled).min(LONGEST_WAIT)
}

/// Between half of it and all of it, so that what failed together is not tried together.
fn jittered(wait: Micros) -> Micros {
    let mut random = [0; 2];
    // Without randomness they are tried together, which is no more than unkind.
    let _ = getrandom::fill(&mut random);
    let share = u64::from(u16::from_le_bytes(random));
    let half = wait.as_micros() / 2;
    Micros::from_micros(half + half * share / u64::from(u16::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_and_are_bounded() {
        let seconds = |failures| backoff(failures).as_micros() / 1_000_000;
        assert_eq!([1, 2, 3, 6, 7, 1_000].map(seconds), [1, 2, 4, 32, 60, 60]);
        for _ in 0..1_000 {
            let wait = jittered(Micros::SECOND).as_micros();
            assert!((500_000..=1_000_000).contains(&wait), "{wait}");
        }
    }

    #[test]
    fn what_may_have_been_done_is_sent_again_only_if_that_does_no_harm() {
        let repeat = LaterSpec { repeat: true, ..LaterSpec::default() };
        for (method, spec, is_sent_again) in [
            ("GET", None, true),
            ("PUT", Some(&LaterSpec::default()), true),
            ("POST", Some(&LaterSpec::default()), false),
            ("POST", None, false),
            ("POST", Some(&repeat), true),
            ("PATCH", Some(&LaterSpec::default()), false),
        ] {
            let outcome = unanswered(method, spec, "gone".to_owned());
            assert_eq!(matches!(outcome, Outcome::Failed(..)), is_sent_again, "{method}");
            assert_eq!(matches!(outcome, Outcome::Unknown(_)), !is_sent_again, "{method}");
        }
    }
}
