//! The checker is judged by stores that are wrong, each in a way that limiters have been wrong in: all have to be found
//! out, by what is wrong with them, and the one that is right has to pass under the same faults.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tollgate::{
    Charge, Clock as _, Denials, Intent, Micros, Outcome, Outcomes, ReservationId, Settled, Settlement, Store,
    Timestamp,
};
use tollgate_redis::link::{RedisLink, Unavailable};
use tollgate_redis::{RedisError, RedisStore, script};
use tollgate_sim::chaos::rows::{Bench, Row, Shown};
use tollgate_sim::chaos::{Excuse, Findings, History, Kind, Maker, NodeClock, Plan, Session, judge};
use tollgate_sim::redis::{Fault, FaultProxy, RedisServer, Replicated, eventually};

use crate::maker::{Plain, may_have_run, open};
use crate::{ALONE, STANDS_STILL, bench};

type Failure = RedisError<Unavailable>;

/// What is wrong with a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    /// Looks first and takes then.
    ReadThenWrite,
    /// Asks again when no answer came.
    RetryAfterTimeout,
    /// Decides by the clock of whoever asks.
    NodeClock,
    /// Stores without a time to live.
    MissingTtl,
    /// Repeats denials for longer than they hold.
    LastingDenials,
    /// Repeats denials although something was given back.
    RefundsForgotten,
    /// One node goes on asking the server that it knows, whatever Sentinels say.
    BelievesZombie,
}

struct Flawed(Flaw);

struct FlawedStore {
    flaw: Flaw,
    store: RedisStore<RedisLink>,
}

/// Denials in front of a store: those of tollgate, or some that are wrong.
enum FlawedFront<S> {
    Right(Box<Denials<S, NodeClock>>),
    Wrong(Careless<S>),
}

/// Remembers denials, and does not listen to anything else.
struct Careless<S> {
    store: S,
    clock: NodeClock,
    /// They are repeated for as long as they hold, a second at most, and this much longer.
    longer: Micros,
    denied: Mutex<HashMap<Vec<u8>, Denied>>,
}

/// What was denied, when that was heard, and until when it is repeated.
#[derive(Clone)]
struct Denied {
    outcomes: Outcomes,
    answered_at: Timestamp,
    until: Timestamp,
}

impl Maker for Flawed {
    type Store = FlawedStore;
    type Front<S: Store + 'static> = FlawedFront<S>;

    fn front<S: Store + 'static>(&self, store: S, clock: NodeClock) -> FlawedFront<S> {
        let longer = match self.0 {
            Flaw::LastingDenials => Micros::SECOND,
            Flaw::RefundsForgotten => Micros::ZERO,
            _ => return FlawedFront::Right(Box::new(Denials::with_clock(store, clock))),
        };
        FlawedFront::Wrong(Careless { store, clock, longer, denied: Mutex::default() })
    }

    fn open(&self, url: &str, _: u16, deadline: Duration) -> FlawedStore {
        let text = match self.0 {
            Flaw::NodeClock => script::given_time_source().to_owned(),
            Flaw::MissingTtl => {
                let whole = script::source();
                let flawed = whole.replace(r#", "PXAT", ends"#, "");
                assert_ne!(whole, flawed, "there is a time to live to be removed");
                flawed
            }
            _ => script::source().to_owned(),
        };
        FlawedStore { flaw: self.0, store: open(url, deadline, &text) }
    }

    fn is_serving(&self, store: &FlawedStore) -> bool {
        store.store.link().is_serving()
    }

    fn may_have_run(&self, error: &Failure) -> bool {
        may_have_run(error)
    }
}

impl<S: Store> Careless<S> {
    fn name(charges: &[Charge<'_>]) -> Vec<u8> {
        let mut name = Vec::new();
        charges.iter().for_each(|charge| charge.key.encode(&mut name));
        name.extend(charges.iter().flat_map(|charge| charge.cost.to_be_bytes()));
        name
    }

    async fn spend(&self, charges: &[Charge<'_>], now: Timestamp) -> Result<Outcomes, S::Error> {
        let name = Self::name(charges);
        let known = self.denied.lock().unwrap_or_else(PoisonError::into_inner).get(&name).cloned();
        if let Some(denied) = known.filter(|denied| now < denied.until) {
            let passed = now.since(denied.answered_at);
            let later = |outcome: Outcome| Outcome {
                at: outcome.at.plus(passed),
                retry_after: outcome.retry_after.map(|wait| wait.minus(passed)),
                reset_after: outcome.reset_after.minus(passed),
                ..outcome
            };
            return Ok(denied.outcomes.into_iter().map(later).collect());
        }
        let outcomes = self.store.apply(charges, Intent::Spend, now).await?;
        if let Some(wait) =
            outcomes.iter().filter(|outcome| outcome.denied()).filter_map(|outcome| outcome.retry_after).max()
        {
            let until = now.plus(wait.min(Micros::SECOND)).plus(self.longer);
            let denied = Denied { outcomes: outcomes.clone(), answered_at: self.clock.now().max(now), until };
            self.denied.lock().unwrap_or_else(PoisonError::into_inner).insert(name, denied);
        }
        Ok(outcomes)
    }
}

impl<S: Store> Store for FlawedFront<S> {
    type Error = S::Error;

    async fn apply(&self, charges: &[Charge<'_>], intent: Intent, now: Timestamp) -> Result<Outcomes, S::Error> {
        match self {
            Self::Right(right) => right.apply(charges, intent, now).await,
            Self::Wrong(wrong) if intent == Intent::Spend => wrong.spend(charges, now).await,
            Self::Wrong(wrong) => wrong.store.apply(charges, intent, now).await,
        }
    }

    async fn apply_each(
        &self,
        charges: &[Charge<'_>],
        intent: Intent,
        now: Timestamp,
    ) -> Result<Vec<Outcome>, S::Error> {
        match self {
            Self::Right(right) => right.apply_each(charges, intent, now).await,
            Self::Wrong(wrong) => wrong.store.apply_each(charges, intent, now).await,
        }
    }

    async fn reserve(
        &self,
        charges: &[Charge<'_>],
        hold: Micros,
        now: Timestamp,
    ) -> Result<(Outcomes, Option<ReservationId>), S::Error> {
        match self {
            Self::Right(right) => right.reserve(charges, hold, now).await,
            Self::Wrong(wrong) => wrong.store.reserve(charges, hold, now).await,
        }
    }

    async fn settle(
        &self,
        reservation: ReservationId,
        settlement: Settlement<'_>,
        now: Timestamp,
    ) -> Result<Settled, S::Error> {
        match self {
            Self::Right(right) => right.settle(reservation, settlement, now).await,
            Self::Wrong(wrong) => wrong.store.settle(reservation, settlement, now).await,
        }
    }
}

impl Store for FlawedStore {
    type Error = Failure;

    async fn apply(&self, charges: &[Charge<'_>], intent: Intent, now: Timestamp) -> Result<Outcomes, Failure> {
        if intent != Intent::Spend {
            return self.store.apply(charges, intent, now).await;
        }
        match self.flaw {
            Flaw::ReadThenWrite => {
                let seen = self.store.apply(charges, Intent::Peek, now).await?;
                if seen.iter().any(Outcome::denied) {
                    return Ok(seen);
                }
                // As much as lies between two calls in a network that is not a loop.
                tokio::time::sleep(Duration::from_millis(5)).await;
                let forced = self.store.apply(charges, Intent::Force, now).await?;
                Ok(forced.into_iter().map(|outcome| Outcome { allowed: true, ..outcome }).collect())
            }
            Flaw::RetryAfterTimeout => {
                let mut result = self.store.apply(charges, intent, now).await;
                if result.as_ref().is_err_and(may_have_run) {
                    // For as long as a breaker may be open.
                    for _ in 0..40 {
                        tokio::time::sleep(Duration::from_millis(50)).await;
                        result = self.store.apply(charges, intent, now).await;
                        if result.is_ok() {
                            break;
                        }
                    }
                }
                result
            }
            Flaw::NodeClock
            | Flaw::MissingTtl
            | Flaw::LastingDenials
            | Flaw::RefundsForgotten
            | Flaw::BelievesZombie => self.store.apply(charges, intent, now).await,
        }
    }

    fn apply_each(
        &self,
        charges: &[Charge<'_>],
        intent: Intent,
        now: Timestamp,
    ) -> impl Future<Output = Result<Vec<Outcome>, Failure>> + Send {
        self.store.apply_each(charges, intent, now)
    }

    fn reserve(
        &self,
        charges: &[Charge<'_>],
        hold: Micros,
        now: Timestamp,
    ) -> impl Future<Output = Result<(Outcomes, Option<ReservationId>), Failure>> + Send {
        self.store.reserve(charges, hold, now)
    }

    fn settle(
        &self,
        reservation: ReservationId,
        settlement: Settlement<'_>,
        now: Timestamp,
    ) -> impl Future<Output = Result<Settled, Failure>> + Send {
        self.store.settle(reservation, settlement, now)
    }
}

const SHORT: Duration = Duration::from_millis(1_200);

/// All is well, but for the clocks of nodes, which should not matter.
fn calm<M: Maker>(bench: &Bench<M>) -> History {
    let server = RedisServer::start(&[]);
    let skews = vec![0, 10_000_000, -10_000_000];
    let plan = Plan { skews, ..bench.plan.clone() };
    let session = Session::start(&bench.maker, &[format!("redis://{}", server.address())], plan);
    session.rest(SHORT);
    session.finish(&[&server])
}

/// Answers are lost after they were counted, or come too late.
fn answers_lost<M: Maker>(bench: &Bench<M>) -> History {
    let server = RedisServer::start(&[]);
    let proxy = FaultProxy::start(server.address());
    let url = format!("redis://{}", proxy.address());
    let mut session = Session::start(&bench.maker, &[url], bench.plan.clone());
    session.rest(SHORT / 4);
    // Several times, since a breaker lets few pay for it each time.
    let late = Fault::Delay { by: bench.plan.deadline * 2, jitter: Duration::ZERO };
    let mut faults = vec![("answers late", late); 3];
    faults.push(("answers lost", Fault::CloseBeforeReply { every: 10 }));
    for (what, fault) in faults {
        session.fault(what, Excuse::ALONE, |session| {
            proxy.set(fault);
            session.rest(SHORT / 2);
            proxy.set(Fault::None);
        });
        session.rest(SHORT / 2);
    }
    session.finish(&[&server])
}

/// The server is stopped, so that all nodes go on alone.
fn stopped<M: Maker>(bench: &Bench<M>) -> History {
    let server = RedisServer::start(&[]);
    let url = format!("redis://{}", server.address());
    let mut session = Session::start(&bench.maker, &[url], bench.plan.clone());
    session.rest(SHORT / 4);
    session.fault("stopped", Excuse::ALONE, |session| {
        server.pause();
        session.rest(SHORT);
        server.resume();
    });
    session.rest(SHORT);
    session.finish(&[&server])
}

fn found(findings: &Findings) -> String {
    findings.violations.iter().map(|(kind, what)| format!("{kind:?}: {what}\n")).collect()
}

/// How often a history is made anew where the machine stood still, which is no fault of the store's.
const ATTEMPTS: usize = 3;
/// How often a flaw that shows by chance may fail to, one time after the other.
const CHANCES: usize = 12;

fn stood_still(history: &History) -> bool {
    history.stalls.iter().any(|(from, to)| to - from > STANDS_STILL)
}

fn expect_well(what: &str, make: impl Fn() -> History) {
    for attempt in 1..=ATTEMPTS {
        let history = make();
        let findings = judge(&history);
        let is_well = findings.violated == 0 && findings.replayed > 500;
        if is_well {
            return;
        }
        let told = format!("{} of {} replayed\n{}", findings.replayed, findings.answered, found(&findings));
        assert!(stood_still(&history) && attempt < ATTEMPTS, "{what}: {told}");
    }
}

#[track_caller]
fn expect_found(flaw: Flaw, make: impl Fn() -> History, kinds: &[Kind]) {
    for attempt in 1..=CHANCES {
        let history = make();
        let findings = judge(&history);
        println!("{flaw:?}: {} violations\n{}", findings.violated, found(&findings));
        let missing: Vec<Kind> = kinds.iter().filter(|kind| !findings.has(**kind)).copied().collect();
        if missing.is_empty() {
            return;
        }
        // Some show by chance only: two nodes have to meet.
        assert!(attempt < CHANCES, "{flaw:?} is not found out by {missing:?}");
    }
}

#[test]
fn a_store_that_is_right_passes_where_others_are_found_out() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let bench = bench(Plain);
    expect_well("calm", || calm(&bench));
    expect_well("answers lost", || answers_lost(&bench));
    expect_well("stopped", || stopped(&bench));
}

#[test]
fn flaws_that_show_while_all_is_well() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let flawed = |flaw| calm(&bench(Flawed(flaw)));
    // Nodes that ask at the same time see the same units and all take them.
    expect_found(Flaw::ReadThenWrite, || flawed(Flaw::ReadThenWrite), &[Kind::Replay, Kind::SharedBound]);
    expect_found(Flaw::NodeClock, || flawed(Flaw::NodeClock), &[Kind::Clock, Kind::SharedBound, Kind::Bound]);
    expect_found(Flaw::MissingTtl, || flawed(Flaw::MissingTtl), &[Kind::Expiry]);
    expect_found(Flaw::LastingDenials, || flawed(Flaw::LastingDenials), &[Kind::Denial, Kind::Repeat]);
    expect_found(Flaw::RefundsForgotten, || flawed(Flaw::RefundsForgotten), &[Kind::Repeat]);
}

#[test]
fn a_retry_after_a_timeout_charges_twice() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let make = || answers_lost(&bench(Flawed(Flaw::RetryAfterTimeout)));
    expect_found(Flaw::RetryAfterTimeout, make, &[Kind::Ledger]);
}

#[test]
fn shares_that_are_not_divided() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut bench = bench(Plain);
    bench.plan.servers_told = 1;
    let findings = judge(&stopped(&bench));
    assert!(findings.has(Kind::LoneBound), "{}", found(&findings));
    assert!(findings.has(Kind::Bound), "{}", found(&findings));
}

#[test]
fn a_node_that_believes_a_primary_of_the_past() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let zombie = |bench: &Bench<Flawed>| {
        let replicated = Replicated::start(&[]);
        let port = replicated.primary_port(0).expect("a primary");
        let old = replicated.server(port).expect("it");
        // Two nodes follow the Sentinels; the third has an address and no doubt.
        let urls = [replicated.url(), replicated.url(), format!("redis://{}", old.address())];
        let mut session = Session::start(&bench.maker, &urls, bench.plan.clone());
        session.rest(SHORT / 2);
        session.fault("primary stopped, and back", Excuse::LOSS, |session| {
            old.pause();
            eventually("another is promoted", || replicated.primary_port(0).is_some_and(|now| now != port));
            session.rest(SHORT / 2);
            old.resume();
        });
        session.rest(SHORT);
        session.finish(&[])
    };
    expect_found(Flaw::BelievesZombie, || zombie(&bench(Flawed(Flaw::BelievesZombie))), &[Kind::Ledger]);
}

/// Rows can be made of anything that can be judged.
#[test]
fn a_row_that_is_violated_is_not_well() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let row = Row { name: "F00", what: "keys for ever", shown: Shown::Here(calm::<Flawed>, &[]) };
    let judged = bench(Flawed(Flaw::MissingTtl)).run(&row);
    assert!(!judged.is_well(false));
}
