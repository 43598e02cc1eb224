//! The load: what is asked at fixed times whatever happens, and what is given back of it.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "real processes take real time")]

use std::cell::Cell;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tollgate::{Charge, Intent, Key, Micros, Outcome, ReservationId, Settled, Settlement, Store as _};
use tollgate_core::mix;

use super::node::{Due, How, Maker, Node, SAID};
use super::record::{Act, Moment, Record, Shared};
use super::session::Stage;
use super::workload::{LEDGER_NUMBER, Target};

/// One admission in so many is given back.
const GIVEN_BACK: u64 = 4;
/// After this time at most, in microseconds: while somebody who was denied remembers it.
const GIVEN_BACK_WITHIN: Moment = 300_000;
/// Longer than any run, and than clocks are set ahead by, so that nothing that is held lapses.
const HOLD: Micros = Micros::from_secs(3 * 3_600);

/// Asks at fixed times, on a thread of its own. All that a node does is done by this thread: what was begun before
/// something else was also seen before it by what the node remembers.
pub(super) fn drive<M: Maker>(stage: &Arc<Stage<M>>, node: u16) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let itself = &stage.nodes[usize::from(node)];
        let begin = stage.watch.moment();
        let interval = 1_000_000_u64 * u64::from(stage.plan.nodes) / u64::from(stage.plan.per_second.max(1));
        let (mut number, mut last, mut tasks) = (0_u64, begin, Vec::new());
        while !stage.stop.load(Ordering::Relaxed) {
            tokio::time::sleep(Duration::from_millis(1)).await;
            let now = stage.watch.moment();
            stage.stalled(last, now);
            last = now;
            for due in itself.due(now) {
                let stage = Arc::clone(stage);
                tasks.push(tokio::spawn(async move { give_back(&stage, node, due).await }));
            }
            while begin + number * interval <= now {
                let (stage, scheduled) = (Arc::clone(stage), begin + number * interval);
                tasks.push(tokio::spawn(async move { Some(decide(&stage, node, number, scheduled).await) }));
                number += 1;
            }
        }
        let mut records = Vec::with_capacity(tasks.len());
        for task in tasks {
            records.extend(task.await.expect("a decision"));
        }
        stage.recorded(&mut records);
    });
}

/// What was said to a question, and by whom.
type Said<T> = (T, Shared);

/// Notes whether the shared store is asked, and what it says.
async fn hearing<T>(asking: impl Future<Output = T>) -> Said<T> {
    SAID.scope(Cell::new(Shared::Repeated), async {
        let said = asking.await;
        (said, SAID.with(Cell::get))
    })
    .await
}

/// The charges of one decision: what is limited and, if there is one, its ledger.
fn charges<'a, M: Maker>(
    stage: &'a Stage<M>,
    target: &'a Target,
    values: &'a [&'a [u8]; 1],
    cost: u64,
) -> Vec<Charge<'a>> {
    let mut charges = vec![Charge::new(Key::new(target.number, values), &target.limit).cost(cost)];
    if target.ledger {
        charges.push(Charge::new(Key::new(LEDGER_NUMBER, values), &stage.ledger).cost(cost));
    }
    charges
}

async fn decide<M: Maker>(stage: &Stage<M>, node: u16, number: u64, scheduled: Moment) -> Record {
    let (counter, cost) = stage.workload.pick(stage.plan.seed, node, number);
    let target = &stage.workload.targets[counter as usize];
    let values = [target.name.as_bytes()];
    let charges = &*charges(stage, target, &values, cost);
    let itself = &stage.nodes[usize::from(node)];
    let begun = stage.watch.moment();
    let now = itself.clock.at(begun);
    let asking = hearing(async {
        if target.held {
            return itself.shelter.reserve(charges, HOLD, now).await;
        }
        // As whoever decides by rules does.
        let outcomes = match itself.shelter.apply_now(charges, Intent::Spend, now) {
            Some(known) => known,
            None => itself.shelter.apply(charges, Intent::Spend, now).await,
        };
        outcomes.map(|outcomes| (outcomes, None))
    });
    let impatient = stage.plan.impatient;
    let patience = if impatient > 0 && number.is_multiple_of(impatient) {
        Duration::from_micros(number * 7_919 % 3_000)
    } else {
        Duration::from_secs(3_600)
    };
    let answered = tokio::time::timeout(patience, asking).await;
    let returned = stage.watch.moment();
    let (outcomes, reservation, shared) = match answered {
        Ok((Ok((outcomes, reservation)), shared)) => (Some(outcomes), reservation, shared),
        Ok((Err(error), _)) => panic!("a decision failed: {error}"),
        Err(_) => (None, None, Shared::Unknown),
    };
    let outcome = outcomes.as_ref().and_then(|outcomes| outcomes.first().copied());
    let ledger = outcomes.as_ref().and_then(|outcomes| outcomes.get(1));
    let act = if target.held { Act::Hold } else { Act::Spend };
    let number = u64::from(node) << 48 | number;
    let mut record =
        Record { number, act, node, counter, cost, scheduled, begun, returned, shared, outcome, total: None };
    if record.is_shared_admission() {
        record.total = total(stage, ledger);
    }
    follow(stage, &record, reservation);
    record
}

fn total<M: Maker>(stage: &Stage<M>, ledger: Option<&Outcome>) -> Option<u64> {
    ledger.map(|ledger| stage.ledger.most() - ledger.remaining)
}

/// Some of what was admitted is given back, after a while, here or through another node. Only what the shared store
/// admitted: it could not be told from the ledger what was never in it.
fn follow<M: Maker>(stage: &Stage<M>, record: &Record, reservation: Option<ReservationId>) {
    let Some(outcome) = record.outcome.filter(|_| record.is_allowed()) else { return };
    let random = mix(record.number ^ stage.plan.seed);
    let how = match reservation {
        Some(reservation) if random.is_multiple_of(2) => How::Cancel(reservation),
        Some(reservation) => How::Commit(reservation),
        None if record.is_shared_admission() && random.is_multiple_of(GIVEN_BACK) => How::Refund,
        None => return,
    };
    let elsewhere = (random >> 8).is_multiple_of(3) && record.is_shared_admission();
    let through = if elsewhere { (record.node + 1) % stage.plan.nodes } else { record.node };
    let due = Due {
        at: record.returned + (random >> 16) % GIVEN_BACK_WITHIN,
        of: record.number,
        counter: record.counter,
        cost: record.cost,
        charged_at: outcome.proceeds_at(),
        how,
    };
    stage.nodes[usize::from(through)].expect(due);
}

async fn give_back<M: Maker>(stage: &Stage<M>, node: u16, due: Due) -> Option<Record> {
    let itself: &Node<M> = &stage.nodes[usize::from(node)];
    let target = &stage.workload.targets[due.counter as usize];
    let values = [target.name.as_bytes()];
    let charges = &*charges(stage, target, &values, due.cost);
    let begun = stage.watch.moment();
    let now = itself.clock.at(begun);
    let mut record = Record {
        number: 1 << 63 | due.of,
        act: Act::Cancel { of: due.of },
        node,
        counter: due.counter,
        cost: due.cost,
        scheduled: due.at,
        begun,
        returned: begun,
        shared: Shared::Unknown,
        outcome: None,
        total: None,
    };
    match due.how {
        How::Refund => {
            let intent = Intent::Refund { charged_at: due.charged_at };
            let (outcomes, shared) = hearing(itself.shelter.apply(charges, intent, now)).await;
            let outcomes = outcomes.unwrap_or_else(|error| panic!("a refund failed: {error}"));
            record.act = Act::Refund { of: due.of, charged_at: due.charged_at };
            record.outcome = outcomes.first().copied();
            record.shared = shared;
            record.total = total(stage, outcomes.get(1).filter(|_| shared == Shared::Answered));
        }
        How::Cancel(reservation) => {
            let (settled, shared) = hearing(itself.shelter.settle(reservation, Settlement::Cancel, now)).await;
            record.shared = match (settled, shared) {
                (Ok(Settled::Done), Shared::Answered) => Shared::Answered,
                // This node's own.
                (Ok(Settled::Done), _) => Shared::NotRun,
                // It was lost, and nothing is given back.
                (Ok(Settled::Unknown), _) => return None,
                (Err(_), shared) => shared,
            };
        }
        How::Commit(reservation) => {
            let _ = itself.shelter.settle(reservation, Settlement::Commit, now).await;
            return None;
        }
    }
    record.returned = stage.watch.moment();
    Some(record)
}
