//! Many at once. These cases want a runtime with several threads.

use std::sync::Arc;

use tokio::sync::Barrier;
use tokio::task::yield_now;
use tollgate::{
    Charge, Concurrency, FixedWindow, Intent, Key, Limit, Outcome, Rate, Settled, Settlement, SlidingCounter,
    SlidingLog, Store, Timestamp, TokenBucket,
};

use super::duel::{failed, same};
use super::limits::{limit, times, unit};
use super::{Kept, Maker, Model, Time, demand, limits};

const CROWD: usize = 64;
const USER: &[&[u8]] = &[b"user"];

/// Runs `size` tasks that start together, and collects what they return.
async fn crowd<S, R, J, T>(store: &Arc<S>, size: usize, job: J) -> Result<Vec<R>, String>
where
    S: Store + 'static,
    J: Fn(usize, Arc<S>) -> T,
    T: Future<Output = Result<R, String>> + Send + 'static,
    R: Send + 'static,
{
    let start = Arc::new(Barrier::new(size));
    let together = |task: T| {
        let start = start.clone();
        tokio::spawn(async move {
            start.wait().await;
            task.await
        })
    };
    let tasks: Vec<_> = (0..size).map(|number| together(job(number, store.clone()))).collect();
    let mut results = Vec::new();
    for task in tasks {
        results.push(task.await.map_err(|error| error.to_string())??);
    }
    Ok(results)
}

async fn spend<S: Store>(store: Arc<S>, limit: Limit, cost: u64, now: Timestamp) -> Result<Outcome, String> {
    let charge = Charge::new(Key::new(1, USER), &limit).cost(cost);
    let outcomes = store.apply(&[charge], Intent::Spend, now).await.map_err(failed)?;
    outcomes.first().copied().ok_or_else(|| "no outcome for one charge".to_owned())
}

async fn remaining<S: Store>(store: &S, key: Key<'_>, limit: &Limit, now: Timestamp) -> Result<u64, String> {
    let outcomes = store.apply(&[Charge::new(key, limit)], Intent::Peek, now).await.map_err(failed)?;
    outcomes.first().map(|outcome| outcome.remaining).ok_or_else(|| "no outcome for one charge".to_owned())
}

fn exact(time: Time) -> Result<Vec<Limit>, String> {
    let long = times(40, unit(time));
    Ok(vec![
        limit(TokenBucket::new(Rate::new(20, long)))?,
        limit(FixedWindow::new(20, long))?,
        limit(SlidingLog::new(20, long))?,
        limit(SlidingCounter::new(20, long))?,
        limit(Concurrency::new(20, long))?,
    ])
}

pub(super) async fn one_place_left_admits_one<M: Maker>(maker: &M, time: Time) -> Kept {
    let now = time.start();
    for limit in exact(time)? {
        let store = Arc::new(maker.make().await);
        spend(store.clone(), limit.clone(), 19, now).await?;
        let outcomes = crowd(&store, CROWD, |_, store| spend(store, limit.clone(), 1, now)).await?;
        let admitted = outcomes.iter().filter(|outcome| outcome.allowed).count();
        demand!(admitted == 1, "{admitted} were admitted to the last place: {:?}", limit.algorithm());
    }
    Ok(())
}

pub(super) async fn two_increments_from_three_make_five<M: Maker>(maker: &M, time: Time) -> Kept {
    let now = time.start();
    for limit in exact(time)? {
        for _ in 0..50 {
            let store = Arc::new(maker.make().await);
            spend(store.clone(), limit.clone(), 3, now).await?;
            crowd(&store, 2, |_, store| spend(store, limit.clone(), 1, now)).await?;
            let left = remaining(&*store, Key::new(1, USER), &limit, now).await?;
            demand!(left == 15, "{} are counted: {:?}", 20 - left, limit.algorithm());
        }
    }
    Ok(())
}

/// Equal calls have no order: the answers of a crowd must be those of a line, in any order.
pub(super) async fn a_crowd_is_served_as_a_line<M: Maker>(maker: &M, time: Time) -> Kept {
    let now = time.start();
    for limit in limits::all(time)? {
        let store = Arc::new(maker.make().await);
        let served = crowd(&store, CROWD, |_, store| spend(store, limit.clone(), 1, now)).await?;
        let model = Arc::new(Model::default());
        for _ in 0..CROWD {
            let expected = spend(model.clone(), limit.clone(), 1, now).await?;
            demand!(
                count(time, &served, &expected) >= 1,
                "nobody was told {expected:?} by {:?}: {served:?}",
                limit.algorithm()
            );
        }
        let (line, crowd) = (Arc::new(Model::default()), served.iter().filter(|outcome| outcome.allowed).count());
        let mut admitted = 0;
        for _ in 0..CROWD {
            admitted += usize::from(spend(line.clone(), limit.clone(), 1, now).await?.allowed);
        }
        demand!(crowd == admitted, "{crowd} of {admitted} were admitted: {:?}", limit.algorithm());
    }
    Ok(())
}

fn count(time: Time, outcomes: &[Outcome], wanted: &Outcome) -> usize {
    outcomes.iter().filter(|outcome| same(time, outcome, wanted)).count()
}

/// Four orders on three counters. Each counter has to have given out exactly what those who use it got.
pub(super) async fn opposite_orders_stay_exact<M: Maker>(maker: &M, time: Time) -> Kept {
    const ORDERS: [[usize; 2]; 4] = [[0, 1], [1, 0], [1, 2], [2, 0]];
    const ENTITIES: [&[&[u8]]; 3] = [&[b"a"], &[b"b"], &[b"c"]];
    const CALLS: usize = 40;
    let now = time.start();
    let limit = limit(FixedWindow::new(700, times(40, unit(time))))?;
    let store = Arc::new(maker.make().await);
    let admitted = crowd(&store, CROWD, |number, store| {
        let limit = limit.clone();
        let order = ORDERS[number % ORDERS.len()];
        async move {
            let charges = order.map(|entity| Charge::new(Key::new(1, ENTITIES[entity]), &limit));
            let mut admitted = 0;
            for _ in 0..CALLS {
                let outcomes = store.apply(&charges, Intent::Spend, now).await.map_err(failed)?;
                admitted += u64::from(outcomes.iter().all(|outcome| outcome.allowed));
                yield_now().await;
            }
            Ok(admitted)
        }
    })
    .await?;
    for (entity, values) in ENTITIES.iter().enumerate() {
        let users = admitted.iter().enumerate().filter(|(number, _)| ORDERS[number % ORDERS.len()].contains(&entity));
        let given: u64 = users.map(|(_, admitted)| admitted).sum();
        let left = remaining(&*store, Key::new(1, values), &limit, now).await?;
        demand!(given + left == 700, "counter {entity}: {given} admitted, {left} left of 700");
    }
    let left_of_b = remaining(&*store, Key::new(1, ENTITIES[1]), &limit, now).await?;
    let left_of_a = remaining(&*store, Key::new(1, ENTITIES[0]), &limit, now).await?;
    demand!(left_of_a == 0 || left_of_b == 0, "denied with room: {left_of_a} and {left_of_b} left");
    Ok(())
}

pub(super) async fn a_reservation_ends_once<M: Maker>(maker: &M, time: Time) -> Kept {
    let now = time.start();
    for limit in exact(time)? {
        let store = Arc::new(maker.make().await);
        let charge = Charge::new(Key::new(1, USER), &limit);
        store.apply(&[charge.cost(5)], Intent::Spend, now).await.map_err(failed)?;
        let held = store.reserve(&[charge.cost(4)], times(20, unit(time)), now).await.map_err(failed)?.1;
        let held = held.ok_or("what fits was not reserved")?;
        let ended = crowd(&store, CROWD, |_, store| async move {
            store.settle(held, Settlement::Cancel, now).await.map_err(failed)
        })
        .await?;
        let done = ended.iter().filter(|settled| **settled == Settled::Done).count();
        let left = remaining(&*store, charge.key, &limit, now).await?;
        demand!(done == 1 && left == 15, "done {done} times, {left} left of 20: {:?}", limit.algorithm());
    }
    Ok(())
}

/// Whoever comes first into a window has asked for its limit in the one before, so every window is used up; and what
/// is late counts in the window that is.
pub(super) async fn windows_roll_under_a_crowd<M: Maker>(maker: &M) -> Kept {
    const LIMIT: u64 = 25;
    const WINDOWS: u64 = 20;
    // So short that who is late is never further behind than clocks may differ: beyond that a clock was set back, which
    // is another story.
    let window = tollgate::Micros::from_micros(400);
    let start = Time::Given.start();
    let start = start.minus(tollgate::Micros::from_micros(start.as_micros() % window.as_micros()));
    let slots = Concurrency::new(LIMIT, window);
    let bucket = TokenBucket::new(Rate::new(LIMIT, window)).refill_at_intervals();
    for limit in [limit(FixedWindow::new(LIMIT, window))?, limit(bucket)?, limit(slots)?] {
        let store = Arc::new(maker.make().await);
        let admitted = crowd(&store, CROWD / 4, |_, store| {
            let limit = limit.clone();
            async move {
                let mut admitted = 0;
                for number in 0..WINDOWS {
                    let now = start.plus(times(number, window));
                    for _ in 0..LIMIT {
                        admitted += u64::from(spend(store.clone(), limit.clone(), 1, now).await?.allowed);
                        yield_now().await;
                    }
                }
                Ok(admitted)
            }
        })
        .await?;
        let admitted: u64 = admitted.iter().sum();
        demand!(admitted == LIMIT * WINDOWS, "{admitted} of {} in {WINDOWS} windows", LIMIT * WINDOWS);
    }
    Ok(())
}
