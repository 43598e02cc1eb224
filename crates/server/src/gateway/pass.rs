//! Asking the gate about a request, and doing what the limit says that it is over.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use crate::protocol::body::Body;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{Response, StatusCode, request};
use http_body_util::Full;
use tollgate::rules::{CostSpec, OnLimit};
use tollgate::{Attribute, Check, Micros, Part, Queueing, Timestamp, Verdict};
use tollgate_core::Algorithm;
use tollgate_gateway::{Answer, Lines};

use super::answer::{Refusal, refused};
use super::body::Reply;
use super::known::{Kept, Known};
use super::later::{Deferred, Later, NotKept, part_of};
use super::line::{self, Outlook};
use super::log::DeniedBy;
use super::tab::{Account, Slots, Tab, Upload};
use super::table::Lane;
use super::told::Theirs;
use crate::gate::{Ask, Queue, Stood, Unavailable};
use crate::protocol::bounds::MOST_COST;
use crate::protocol::departure::attended;
use crate::protocol::http::{self as told, Form, Notice};
use crate::serve::{House, Manner};

/// Refusals that are held back at the same time: the next one is told at once, so that nobody can make us hold more.
const MOST_HELD: usize = 10_000;
/// How long a request that was kept waits in line with others for its turn. Before that it looks now and then, so that
/// it notices new rules.
const SOON: Micros = Micros::SECOND;

static HELD: AtomicUsize = AtomicUsize::new(0);
/// Names of leases, which no other gateway on the same store uses.
static LEASES: LazyLock<AtomicU64> = LazyLock::new(|| {
    let mut random = [0; 8];
    // Without randomness two gateways may give each other's slots back, which the lease bounds.
    let _ = getrandom::fill(&mut random);
    AtomicU64::new(u64::from_le_bytes(random) | 1)
});

/// A request that may go on, and what is still to be done for it.
pub(super) struct Passage {
    notice: Notice,
    /// How it waited for it, if it did.
    stood: Option<Stood>,
    tab: Option<Tab>,
}

/// What becomes of a request.
pub(super) enum Admission<'p, 'r> {
    Through(Passage),
    Denied(Box<Response<Reply>>),
    /// It is to be kept, and done later.
    Deferred(Box<Keeping<'p, 'r>>),
}

/// A request that is to be kept: it has paid the limits that do not keep requests, which get that back if it is not kept
/// after all.
pub(super) struct Keeping<'p, 'r> {
    pub(super) deferred: Deferred,
    place: Place<'p, 'r>,
    /// As of when it paid what it does not get back by leaving any more.
    paid_at: Option<Timestamp>,
    tab: Option<Tab>,
}

/// What the gate said.
enum Judged {
    /// `held` is for how long slots are held that nobody renews, if there are any; `paid_at` is as of when it paid, if
    /// that can be given back.
    Pass {
        delay: Option<Stood>,
        paid_at: Option<Timestamp>,
        notice: Notice,
        stood: Option<Stood>,
        held: Option<Micros>,
    },
    Denied {
        on_limit: OnLimit,
        answer: Box<Response<Reply>>,
        deferred: Option<Deferred>,
        outlook: Option<Outlook>,
    },
}

impl Judged {
    /// The same of one that has stood in line for it: it has had its delay, and its client is told.
    fn after(mut self, line: Stood) -> Self {
        match &mut self {
            // It came to the line since the queue was full, and then had the last place in that.
            Self::Pass { delay, stood, .. } => {
                *stood = Some(line.behind(delay.take().map_or(0, |queued| queued.position)));
            }
            Self::Denied { answer, outlook, .. } => {
                line::tell_refused(line, *outlook, |name, value| drop(answer.headers_mut().insert(name, value)));
            }
        }
        self
    }
}

/// What a request pays before it goes on, and what it holds meanwhile.
#[derive(Clone)]
struct Fare {
    cost: u64,
    costs: [(&'static str, u64); 3],
    /// Bytes of either way that are paid for before they come.
    ahead: u64,
    is_announced: bool,
    lease: u64,
}

impl Fare {
    /// `bytes` are those of the request's body, if it says how many there are.
    fn of(lane: &Lane, cost: u64, bytes: Option<u64>) -> Self {
        // How many bytes will come is not known yet; one of them is paid for now, so that nobody gets any who owes
        // some.
        let ahead = u64::from(lane.counts_bytes || (lane.counts_uploads && bytes.is_none()));
        let up = bytes.unwrap_or(ahead);
        let costs = [("bytes", up.max(ahead)), ("request_bytes", up), ("response_bytes", ahead)];
        let lease = if lane.counts_slots { LEASES.fetch_add(1, Ordering::Relaxed) } else { 0 };
        Self { cost, costs, ahead, is_announced: bytes.is_some(), lease }
    }

    fn check<'q>(&'q self, lane: &'q Lane, attributes: &'q [Attribute<'q>]) -> Check<'q> {
        Check::attributes(&lane.domain, attributes).cost(self.cost).costs(&self.costs).lease(self.lease)
    }

    /// What is still to be paid or given back when the request is done, if anything. Slots are `held` for so long if
    /// nobody renews them; it was let through by a `part` of its limits.
    fn tab(
        &self,
        house: &Arc<House>,
        lane: &Arc<Lane>,
        part: Part,
        held: Option<Micros>,
        known: impl FnOnce() -> Kept,
    ) -> Option<Tab> {
        let is_charged_later =
            lane.counts_bytes || lane.counts_uploads || matches!(lane.cost, Some(CostSpec::ResponseHeader(_)));
        (held.is_some() || is_charged_later).then(|| {
            let account = Account { house: Arc::clone(house), lane: Arc::clone(lane), known: known(), part };
            let slots = held.map(|length| Slots { lease: self.lease, number: self.cost, length });
            Tab::new(account, slots, self.ahead, self.is_announced)
        })
    }
}

/// What a request has paid and may not need: a place in the queue of a leaky bucket, before its departure, or whatever
/// one paid that is to be kept. Whoever drops it gives that back. In a queue it is free again if it was the last place:
/// those behind any other have been told theirs.
struct Place<'p, 'r> {
    house: &'p Arc<House>,
    lane: &'p Arc<Lane>,
    known: &'p Known<'r>,
    fare: Fare,
    part: Part,
    paid_at: Option<Timestamp>,
}

impl Drop for Place<'_, '_> {
    fn drop(&mut self) {
        let Some(paid_at) = self.paid_at else { return };
        // Without a runtime the process is about to end.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (house, lane, known) = (Arc::clone(self.house), Arc::clone(self.lane), self.known.keep());
        let (fare, part) = (self.fare.clone(), self.part);
        runtime.spawn(async move {
            let attributes = known.attributes();
            // If the store cannot be asked, it stays paid.
            let _ = house.gate.ask(Ask::Refund(paid_at), &fare.check(&lane, &attributes).part(part), |_| ()).await;
        });
    }
}

impl Keeping<'_, '_> {
    /// It is about to be kept, which happens whether its client stays or not.
    pub(super) fn commit(&mut self) {
        self.paid_at = self.place.paid_at.take();
    }

    /// It was kept, with so many bytes. Slots are free again until it is sent.
    pub(super) fn kept(mut self, bytes: u64) {
        if let Some(tab) = &mut self.tab {
            tab.received(bytes);
        }
    }

    /// It was not kept.
    pub(super) fn take_back(&mut self) {
        self.place.paid_at = self.paid_at.take();
    }

    /// There is no room for it, so that it is denied after all.
    pub(super) async fn deny(mut self, why: NotKept, asked: &HeaderMap) -> Response<Reply> {
        self.take_back();
        let Place { house, lane, known, fare, .. } = &self.place;
        let mut answer = refused(&Refusal::Later(why), Form::wanted(asked));
        let attributes = known.attributes();
        let notice = |verdict: &Verdict<'_>| Notice::of(verdict, manner_of(house, lane));
        // If the store cannot be asked, there is nothing to say about limits.
        if let Ok(notice) = house.gate.ask(Ask::Peek, &fare.check(lane, &attributes), notice).await {
            notice.tell(|name, value| _ = answer.headers_mut().entry(name).or_insert(value));
        }
        as_route_says(lane, answer)
    }
}

/// Asks, and waits or refuses as the limit says. `later` is there for a request that can be kept, `bytes` are those of
/// its body if that is known.
pub(super) async fn pass<'p, 'r>(
    house: &'p Arc<House>,
    later: Option<&Later>,
    lane: &'p Arc<Lane>,
    known: &'p Known<'r>,
    head: &request::Parts,
    bytes: Option<u64>,
) -> Result<Admission<'p, 'r>, Refusal> {
    let headers = &head.headers;
    let fare = Fare::of(lane, cost_of(lane, headers)?, bytes);
    let attributes = known.attributes();
    let check = fare.check(lane, &attributes);
    let mut deferred = later.and_then(|later| later.behind_others(&check, &attributes));
    let judge = |verdict: &Verdict<'_>| judge(house, lane, verdict, headers, later.map(|_| &*attributes));
    // Whatever waits is boxed, so that the room for it is not part of every request's.
    let stand = async |check: &Check<'_>| {
        let stood = Box::pin(attended(&head.extensions, house.gate.wait(check, None, judge))).await;
        stood.map(|(judged, stood)| judged.after(stood))
    };
    let ask = async |check: &Check<'_>| {
        if house.gate.has_others_waiting(check) {
            return stand(check).await;
        }
        match house.gate.check(check, judge).await? {
            Judged::Denied { on_limit, .. } if Queueing::asked_by(on_limit).is_some() => stand(check).await,
            judged => Ok(judged),
        }
    };
    let at_once = check.part(Part::AtOnce);
    let mut judged = if deferred.is_none() { ask(&check).await? } else { Box::pin(ask(&at_once)).await? };
    if let Judged::Denied { deferred: Some(kept), .. } = &judged {
        deferred = Some(*kept);
        judged = Box::pin(ask(&at_once)).await?;
    }
    match judged {
        Judged::Pass { delay, paid_at, notice, stood, held } => {
            let part = if deferred.is_some() { Part::AtOnce } else { Part::All };
            let tab = fare.tab(house, lane, part, held, || known.keep());
            if let Some(Stood { waited: delay, .. }) = delay {
                let mut place = Place { house, lane, known, fare: fare.clone(), part, paid_at };
                Box::pin(attended(&head.extensions, house.gate.sit_out(delay.into()))).await;
                place.paid_at = None;
                house.gate.waited(Queue::Limit, delay);
            }
            Ok(match deferred {
                Some(deferred) => {
                    let place = Place { house, lane, known, fare, part, paid_at };
                    Admission::Deferred(Box::new(Keeping { deferred, place, paid_at: None, tab }))
                }
                None => Admission::Through(Passage { notice, stood: stood.or(delay), tab }),
            })
        }
        Judged::Denied { on_limit, answer, .. } => {
            if let OnLimit::RejectSlowly(hold) = on_limit {
                Box::pin(attended(&head.extensions, hold_back(Duration::from_micros(hold.as_micros())))).await;
            }
            Ok(Admission::Denied(answer))
        }
    }
}

/// Whether a request that was kept may go on.
pub(super) enum Turn {
    Now(Passage),
    /// Not for so long.
    After(Micros),
    /// It is more than the limit ever allows.
    Never,
}

/// Asks about a request that was kept: if its turn is soon it is waited for, in line with whoever else waits. What is
/// asked about before then is not counted as a denial. Other limits than those that keep requests were asked when it
/// came; all are if none keeps it any more.
pub(super) async fn pass_later(
    house: &Arc<House>,
    lane: &Arc<Lane>,
    known: &Kept,
    cost: u64,
    bytes: u64,
) -> Result<Turn, Unavailable> {
    let fare = Fare::of(lane, cost, Some(bytes));
    let attributes = known.attributes();
    let check = fare.check(lane, &attributes);
    let part = part_of(&house.gate.rules(), &check, &attributes);
    let check = check.part(part);
    let judge = |verdict: &Verdict<'_>| match verdict.denied() {
        true => Err(verdict.retry_after()),
        false => Ok(lease_of(verdict)),
    };
    let mut judged = house.gate.ask(Ask::Peek, &check, judge).await?;
    let is_soon = |wait: &Option<Micros>| wait.is_some_and(|wait| wait <= SOON);
    judged = match judged {
        Ok(_) if !house.gate.is_limiting() => judged,
        Err(wait) if !is_soon(&wait) => Err(wait),
        Ok(_) | Err(_) => house.gate.wait(&check, Some(Queueing::in_order(SOON)), judge).await?.0,
    };
    Ok(match judged {
        Ok(held) => {
            let tab = fare.tab(house, lane, part, held, || known.clone());
            Turn::Now(Passage { notice: Notice::NONE, stood: None, tab })
        }
        Err(Some(wait)) => Turn::After(wait),
        Err(None) => Turn::Never,
    })
}

/// `attributes` are there for a request that can be kept.
fn judge(
    house: &House,
    lane: &Lane,
    verdict: &Verdict<'_>,
    asked: &HeaderMap,
    attributes: Option<&[Attribute<'_>]>,
) -> Judged {
    let manner = manner_of(house, lane);
    if verdict.denied() {
        let mut answer = told::deny(verdict, denied_status(lane), manner, Form::wanted(asked)).map(Reply::Own);
        answer = as_route_says(lane, answer);
        let on_limit = verdict.on_limit();
        let waits = Queueing::asked_by(on_limit).is_some();
        if let Some(would) = line::full_queue(verdict).filter(|_| !waits) {
            line::tell_full(would, |name, value| drop(answer.headers_mut().insert(name, value)));
        }
        let attributes = attributes.filter(|_| on_limit == OnLimit::Enqueue);
        let deferred = attributes.and_then(|attributes| Deferred::by(verdict, &lane.domain, attributes));
        let is_logged = house.settings.gateway.as_ref().is_some_and(|gateway| gateway.access_log.is_some());
        if let Some(rule) = verdict.binding().filter(|_| is_logged).and_then(|toll| verdict.rule(toll)) {
            answer.extensions_mut().insert(DeniedBy(Arc::clone(&rule.name)));
        }
        let outlook = Outlook::of(verdict).filter(|_| waits);
        return Judged::Denied { on_limit, answer: Box::new(answer), deferred, outlook };
    }
    let (delay, notice) = (line::departure(verdict), Notice::of(verdict, manner));
    Judged::Pass { delay, paid_at: line::paid_at(verdict), notice, stood: None, held: lease_of(verdict) }
}

/// How clients of a route are told about limits.
fn manner_of<'a>(house: &'a House, lane: &'a Lane) -> Manner<'a> {
    let mut manner = house.settings.manner();
    if let Some(profiles) = &lane.profiles {
        manner.profiles = profiles;
    }
    manner
}

fn denied_status(lane: &Lane) -> StatusCode {
    let status = lane.denied.status.and_then(|status| StatusCode::from_u16(status).ok());
    status.unwrap_or(StatusCode::TOO_MANY_REQUESTS)
}

/// A denial in the words of the route, if it has its own.
fn as_route_says(lane: &Lane, mut answer: Response<Reply>) -> Response<Reply> {
    *answer.status_mut() = denied_status(lane);
    if let Some(body) = &lane.denied.body {
        *answer.body_mut() = Reply::Own(Full::from(Bytes::copy_from_slice(body.as_bytes())));
        let kind = lane.denied.content_type.as_ref().and_then(|kind| HeaderValue::from_str(kind).ok());
        let kind = kind.unwrap_or_else(|| HeaderValue::from_static("application/json"));
        answer.headers_mut().insert(CONTENT_TYPE, kind);
    }
    answer
}

/// The shortest time that something is held for until the request is done, if something is.
fn lease_of(verdict: &Verdict<'_>) -> Option<Micros> {
    let lease = |limit: &tollgate::rules::RuleLimit| match limit.limit.algorithm() {
        Algorithm::Concurrency(slots) => Some(slots.lease),
        _ => None,
    };
    verdict.tolls.iter().filter_map(|toll| verdict.limit(toll).and_then(lease)).min()
}

pub(super) fn cost_of(lane: &Lane, headers: &HeaderMap) -> Result<u64, Refusal> {
    let name = match &lane.cost {
        None | Some(CostSpec::ResponseHeader(_)) => return Ok(1),
        Some(CostSpec::Fixed(cost)) => return Ok(*cost),
        Some(CostSpec::Header(name)) => name,
    };
    let Some(value) = headers.get(&**name) else { return Ok(1) };
    let cost = value.to_str().ok().and_then(|text| text.parse().ok()).filter(|cost| *cost <= MOST_COST);
    cost.ok_or(Refusal::Cost("the header that says what this request costs is no whole number"))
}

/// Waits before a refusal, unless many wait already.
async fn hold_back(hold: Duration) {
    struct Held;
    impl Drop for Held {
        fn drop(&mut self) {
            HELD.fetch_sub(1, Ordering::Relaxed);
        }
    }
    let before = HELD.fetch_add(1, Ordering::Relaxed);
    let _held = Held;
    if before < MOST_HELD {
        tokio::time::sleep(hold).await;
    }
}

impl Passage {
    /// A body on its way to the server, counted if it is paid for as it flows.
    pub(super) fn upload(&mut self, body: Body) -> Upload {
        Upload::new(body, self.tab.as_mut())
    }

    /// What there is to say about limits where another protocol follows the request, and what is still to be paid.
    pub(super) fn into_tunnel(self, lines: Lines) -> (Theirs, Option<Tab>) {
        (Theirs { lines, notice: self.notice, stood: self.stood }, self.tab)
    }

    /// Puts what there is to say about limits into an answer, and makes sure that what is still to be paid is.
    pub(super) fn tell(self, lines: Lines, answer: Answer<Upload>) -> (Reply, Theirs) {
        let reply = match Self::bill(self.tab, |name| lines.number(name.as_bytes())) {
            Some(tab) => Reply::counted(answer, tab),
            None => Reply::Theirs(answer),
        };
        (reply, Theirs { lines, notice: self.notice, stood: self.stood })
    }

    /// What is still to be paid for an answer whose headers are these, and whose body nobody waits for.
    pub(super) fn into_tab(self, headers: &HeaderMap) -> Option<Tab> {
        Self::bill(self.tab, |name| headers.get(name)?.to_str().ok()?.parse().ok())
    }

    fn bill(tab: Option<Tab>, number: impl FnOnce(&str) -> Option<u64>) -> Option<Tab> {
        let mut tab = tab?;
        if let Some(CostSpec::ResponseHeader(name)) = &tab.lane().cost {
            // One is paid already.
            tab.costs(number(name).unwrap_or(1).min(MOST_COST).saturating_sub(1));
        }
        Some(tab)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn so_many_refusals_are_held_back_and_no_more() {
        const HOLD: Duration = Duration::from_secs(60);
        let begun = tokio::time::Instant::now();
        let held: Vec<_> = (0..MOST_HELD).map(|_| tokio::spawn(hold_back(HOLD))).collect();
        while HELD.load(Ordering::Relaxed) < MOST_HELD {
            tokio::task::yield_now().await;
        }
        hold_back(HOLD).await;
        assert_eq!(begun.elapsed(), Duration::ZERO, "it is told at once");
        for one in held {
            one.await.unwrap();
        }
        assert_eq!(begun.elapsed(), HOLD);
        hold_back(HOLD).await;
        assert_eq!(begun.elapsed(), 2 * HOLD, "there is room again");
    }
}
