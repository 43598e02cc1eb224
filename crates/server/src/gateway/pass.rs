//! Asking the gate about a request, and doing what the limit says that it is over.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use http::{Response, StatusCode, response};
use http_body_util::Full;
use hyper::body::Incoming;
use tollgate::rules::{CostSpec, OnLimit};
use tollgate::{Attribute, Check, Micros, Verdict};
use tollgate_core::Algorithm;
use tollgate_gateway::Answer;

use super::answer::Refusal;
use super::body::Reply;
use super::known::{Kept, Known};
use super::later::{Deferred, Later};
use super::log::DeniedBy;
use super::table::Lane;
use crate::gate::{Ask, Queue, Unavailable};
use crate::protocol::bounds::MOST_COST;
use crate::protocol::http::{self as told, Form};
use crate::serve::House;

/// Refusals that are held back at the same time: the next one is told at once, so that nobody can make us hold more.
const MOST_HELD: usize = 10_000;
/// How long a request that was kept waits in line with others for its turn. Before that it looks now and then, so that it notices new rules.
const SOON: Micros = Micros::SECOND;
/// Bytes of an answer that are paid for together.
const PORTION: u64 = 64 << 10;

static HELD: AtomicUsize = AtomicUsize::new(0);
/// Names of leases, which no other gateway on the same store uses.
static LEASES: LazyLock<AtomicU64> = LazyLock::new(|| {
    let mut random = [0; 8];
    // Without randomness two gateways may give each other's slots back, which the lease bounds.
    let _ = getrandom::fill(&mut random);
    AtomicU64::new(u64::from_le_bytes(random) | 1)
});

/// Moved often, so it is small.
type Headers = Vec<(HeaderName, HeaderValue)>;

/// A request that may go on, and what is still to be done for it.
pub(super) struct Passage {
    headers: Headers,
    tab: Option<Tab>,
}

/// What becomes of a request.
pub(super) enum Admission {
    Through(Passage),
    Denied(Box<Response<Reply>>),
    /// It is to be kept, and done later.
    Deferred(Deferred),
}

/// What the gate said.
enum Judged {
    Pass { delay: Micros, headers: Headers, has_slots: bool },
    Denied { on_limit: OnLimit, answer: Box<Response<Reply>>, deferred: Option<Deferred> },
}

/// What a request pays before it goes on, and what it holds meanwhile.
struct Fare {
    cost: u64,
    costs: [(&'static str, u64); 3],
    ahead: u64,
    lease: u64,
}

impl Fare {
    fn of(lane: &Lane, cost: u64, bytes: u64) -> Self {
        // How many bytes will come back is not known yet; one of them is paid for now, so that nobody gets any who owes some.
        let ahead = u64::from(lane.counts_bytes);
        let costs = [("bytes", bytes.max(ahead)), ("request_bytes", bytes), ("response_bytes", ahead)];
        let lease = if lane.counts_slots { LEASES.fetch_add(1, Ordering::Relaxed) } else { 0 };
        Self { cost, costs, ahead, lease }
    }

    fn check<'q>(&'q self, lane: &'q Lane, attributes: &'q [Attribute<'q>]) -> Check<'q> {
        Check::attributes(&lane.domain, attributes).cost(self.cost).costs(&self.costs).lease(self.lease)
    }

    /// What is still to be paid or given back when the request is done, if anything.
    fn tab(&self, house: &Arc<House>, lane: &Arc<Lane>, has_slots: bool, known: impl FnOnce() -> Kept) -> Option<Tab> {
        let is_charged_later = lane.counts_bytes || matches!(lane.cost, Some(CostSpec::ResponseHeader(_)));
        (has_slots || is_charged_later).then(|| Tab {
            house: Arc::clone(house),
            lane: Arc::clone(lane),
            known: known(),
            slots: has_slots.then_some((self.lease, self.cost)),
            cost: 0,
            ahead: self.ahead,
            unpaid: 0,
        })
    }
}

/// Asks, and waits or refuses as the limit says. `later` is there for a request that can be kept.
pub(super) async fn pass(
    house: &Arc<House>,
    later: Option<&Later>,
    lane: &Arc<Lane>,
    known: &Known<'_>,
    headers: &HeaderMap,
) -> Result<Admission, Refusal> {
    let bytes = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok()).unwrap_or(0);
    let fare = Fare::of(lane, cost_of(lane, headers)?, bytes);
    let attributes = known.attributes();
    let check = fare.check(lane, &attributes);
    if let Some(deferred) = later.and_then(|later| later.behind_others(&check, &attributes)) {
        return Ok(Admission::Deferred(deferred));
    }
    let judge = |verdict: &Verdict<'_>| judge(house, lane, verdict, headers, later.map(|_| &*attributes));
    let mut judged = house.gate.check(&check, judge).await?;
    if let Judged::Denied { on_limit: OnLimit::Delay(longest), .. } = judged {
        judged = house.gate.wait(&check, longest, judge).await?;
    }
    match judged {
        Judged::Pass { delay, headers, has_slots } => {
            let passage = Passage { headers, tab: fare.tab(house, lane, has_slots, || known.keep()) };
            if !delay.is_zero() {
                let delay = Duration::from_micros(delay.as_micros());
                tokio::time::sleep(delay).await;
                house.gate.waited(Queue::Limit, delay);
            }
            Ok(Admission::Through(passage))
        }
        Judged::Denied { deferred: Some(deferred), .. } => Ok(Admission::Deferred(deferred)),
        Judged::Denied { on_limit, answer, .. } => {
            if let OnLimit::RejectSlowly(hold) = on_limit {
                hold_back(Duration::from_micros(hold.as_micros())).await;
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

/// Asks about a request that was kept: if its turn is soon it is waited for, in line with whoever else waits. What is asked about before
/// then is not counted as a denial.
pub(super) async fn pass_later(
    house: &Arc<House>,
    lane: &Arc<Lane>,
    known: &Kept,
    cost: u64,
    bytes: u64,
) -> Result<Turn, Unavailable> {
    let fare = Fare::of(lane, cost, bytes);
    let attributes = known.attributes();
    let check = fare.check(lane, &attributes);
    let judge = |verdict: &Verdict<'_>| match verdict.denied() {
        true => Err(verdict.retry_after()),
        false => Ok((verdict.delay(), has_slots(verdict))),
    };
    let mut judged = house.gate.ask(Ask::Peek, &check, judge).await?;
    let is_soon = |wait: &Option<Micros>| wait.is_some_and(|wait| wait <= SOON);
    judged = match judged {
        Ok(_) if !house.gate.is_limiting() => judged,
        Err(wait) if !is_soon(&wait) => Err(wait),
        Ok(_) | Err(_) => house.gate.wait(&check, SOON, judge).await?,
    };
    Ok(match judged {
        Ok((delay, has_slots)) => {
            let passage = Passage { headers: Headers::new(), tab: fare.tab(house, lane, has_slots, || known.clone()) };
            if !delay.is_zero() {
                tokio::time::sleep(Duration::from_micros(delay.as_micros())).await;
            }
            Turn::Now(passage)
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
    let profiles = lane.profiles.as_ref().unwrap_or(&house.settings.headers);
    if verdict.denied() {
        let status = lane.denied.status.and_then(|status| StatusCode::from_u16(status).ok());
        let status = status.unwrap_or(StatusCode::TOO_MANY_REQUESTS);
        let mut answer = told::deny(verdict, status, profiles, Form::wanted(asked));
        if let Some(body) = &lane.denied.body {
            *answer.body_mut() = Full::from(Bytes::copy_from_slice(body.as_bytes()));
            let kind = lane.denied.content_type.as_ref().and_then(|kind| HeaderValue::from_str(kind).ok());
            let kind = kind.unwrap_or_else(|| HeaderValue::from_static("application/json"));
            answer.headers_mut().insert(CONTENT_TYPE, kind);
        }
        let on_limit = verdict.on_limit();
        let attributes = attributes.filter(|_| on_limit == OnLimit::Enqueue);
        let deferred = attributes.and_then(|attributes| Deferred::by(verdict, &lane.domain, attributes));
        let is_logged = house.settings.gateway.as_ref().is_some_and(|gateway| gateway.access_log.is_some());
        if let Some(rule) = verdict.binding().filter(|_| is_logged).and_then(|toll| verdict.rule(toll)) {
            answer.extensions_mut().insert(DeniedBy(Arc::clone(&rule.name)));
        }
        return Judged::Denied { on_limit, answer: Box::new(answer.map(Reply::Own)), deferred };
    }
    let mut headers = Headers::with_capacity(6);
    told::tell_headers(verdict, profiles, |name, value| headers.push((name, value)));
    Judged::Pass { delay: verdict.delay(), headers, has_slots: has_slots(verdict) }
}

/// Whether something is held until the request is done.
fn has_slots(verdict: &Verdict<'_>) -> bool {
    let is_slot = |limit: &tollgate::rules::RuleLimit| matches!(limit.limit.algorithm(), Algorithm::Concurrency(_));
    verdict.tolls.iter().any(|toll| verdict.limit(toll).is_some_and(is_slot))
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
    /// Puts what there is to say about limits into an answer, and makes sure that what is still to be paid is.
    pub(super) fn tell(self, parts: &mut response::Parts, answer: Answer<Incoming>) -> Reply {
        for (name, value) in self.headers {
            // Lists of the server's own are added to, never taken away.
            parts.headers.append(name, value);
        }
        match Self::bill(self.tab, &parts.headers) {
            Some(tab) => Reply::counted(answer, tab),
            None => Reply::Theirs(answer),
        }
    }

    /// What is still to be paid for an answer whose headers are these, and whose body nobody waits for.
    pub(super) fn into_tab(self, headers: &HeaderMap) -> Option<Tab> {
        Self::bill(self.tab, headers)
    }

    fn bill(tab: Option<Tab>, headers: &HeaderMap) -> Option<Tab> {
        let mut tab = tab?;
        if let Some(CostSpec::ResponseHeader(name)) = &tab.lane.cost {
            let cost = headers.get(&**name).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
            // One is paid already.
            tab.cost = cost.unwrap_or(1).min(MOST_COST).saturating_sub(1);
        }
        Some(tab)
    }
}

/// What a request still has to pay when it is done: bytes of the answer, a cost that was not known before, and slots to be given back.
pub(super) struct Tab {
    house: Arc<House>,
    lane: Arc<Lane>,
    known: Kept,
    /// Whose slots are given back, and how many.
    slots: Option<(u64, u64)>,
    cost: u64,
    /// Bytes that are paid for already.
    ahead: u64,
    unpaid: u64,
}

impl Tab {
    /// So many bytes went to the client.
    pub(super) fn add(&mut self, bytes: u64) {
        if self.lane.counts_bytes {
            let paid = bytes.min(self.ahead);
            self.ahead -= paid;
            self.unpaid += bytes - paid;
            if self.unpaid >= PORTION {
                let unpaid = std::mem::take(&mut self.unpaid);
                self.spawn(0, unpaid, None);
            }
        }
    }

    /// Pays without waiting for it.
    fn spawn(&self, cost: u64, bytes: u64, slots: Option<(u64, u64)>) {
        if cost == 0 && bytes == 0 && slots.is_none() {
            return;
        }
        // Without a runtime the process is about to end, and slots end by themselves.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (house, lane, known) = (Arc::clone(&self.house), Arc::clone(&self.lane), self.known.clone());
        runtime.spawn(async move {
            let attributes = known.attributes();
            let costs = [("bytes", bytes), ("response_bytes", bytes)];
            let check = Check::attributes(&lane.domain, &attributes).cost(cost).costs(&costs);
            // If the store cannot be asked, nobody is there to be told.
            if cost > 0 || bytes > 0 {
                let _ = house.gate.ask(Ask::Force, &check, |_| ()).await;
            }
            if let Some((lease, number)) = slots {
                let _ = house.gate.ask(Ask::Release, &check.cost(number).lease(lease), |_| ()).await;
            }
        });
    }
}

impl Drop for Tab {
    fn drop(&mut self) {
        self.spawn(self.cost, self.unpaid, self.slots);
    }
}
