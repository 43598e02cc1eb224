//! What is spent on approval.

use tollgate::{
    Algorithm, Charge, FixedWindow, Intent, Key, LeakyBucket, Limit, Micros, Outcome, Rate, ReservationId, Settled,
    Settlement, SlidingLog, Store, TokenBucket,
};

use super::duel::{Duel, Names, failed};
use super::limits::{limit, times, unit};
use super::{Kept, Maker, Time, demand, limits};

const USER: &[&[u8]] = &[b"user"];
const OTHER: &[&[u8]] = &[b"other"];

/// Longer than any of these cases takes.
fn hold(time: Time) -> Micros {
    times(50, unit(time))
}

async fn reserve<S: Store>(duel: &mut Duel<S>, charges: &[Charge<'_>], hold: Micros) -> Result<Names, String> {
    duel.reserve(charges, hold).await?.1.ok_or_else(|| "what fits was not reserved".to_owned())
}

async fn remaining<S: Store>(duel: &mut Duel<S>, charges: &[Charge<'_>]) -> Result<Vec<u64>, String> {
    Ok(duel.peek(charges).await?.iter().map(|outcome| outcome.remaining).collect())
}

/// A bucket of ten tokens and a window of eight.
fn ten_and_eight(time: Time) -> Result<(Limit, Limit), String> {
    let unit = unit(time);
    let bucket = limit(TokenBucket::new(Rate::new(10, times(100, unit))))?;
    Ok((bucket, limit(FixedWindow::new(8, times(60, unit)))?))
}

pub(super) async fn commit_keeps<M: Maker>(maker: &M, time: Time) -> Kept {
    let (bucket, window) = ten_and_eight(time)?;
    let mut duel = Duel::new(maker, time).await;
    let charges = [Charge::new(Key::new(1, USER), &bucket).cost(4), Charge::new(Key::new(2, OTHER), &window).cost(3)];
    let names = reserve(&mut duel, &charges, hold(time)).await?;
    demand!(remaining(&mut duel, &charges).await? == [6, 5], "a reservation is spent at once");
    demand!(duel.settle(names, Settlement::Commit).await? == Settled::Done, "it was open");
    demand!(remaining(&mut duel, &charges).await? == [6, 5], "a commit changes nothing");
    Ok(())
}

pub(super) async fn cancel_restores<M: Maker>(maker: &M, time: Time) -> Kept {
    for (number, limit) in (0..).zip(limits::all(time)?) {
        let mut duel = Duel::new(maker, time).await;
        let charge = Charge::new(Key::new(number, USER), &limit).lease(3);
        for before in 0..3 {
            let had = duel.one(charge, Intent::Peek).await?;
            if had.remaining >= 2 {
                let names = reserve(&mut duel, &[charge.cost(2)], hold(time)).await?;
                duel.settle(names, Settlement::Cancel).await?;
                let has = duel.one(charge, Intent::Peek).await?;
                let restored = if time == Time::Given { has == had } else { has.remaining == had.remaining };
                demand!(restored, "after {before}: had {had:?}, has {has:?} {:?}", limit.algorithm());
            }
            duel.one(charge, Intent::Spend).await?;
        }
    }
    Ok(())
}

pub(super) async fn actual_cost_is_what_counts<M: Maker>(maker: &M, time: Time) -> Kept {
    let (bucket, window) = ten_and_eight(time)?;
    for (actual, left) in [(0, [10, 8]), (1, [9, 7]), (3, [7, 5]), (4, [6, 4]), (8, [2, 0]), (30, [0, 0])] {
        let mut duel = Duel::new(maker, time).await;
        let charges =
            [Charge::new(Key::new(1, USER), &bucket).cost(3), Charge::new(Key::new(2, OTHER), &window).cost(3)];
        let names = reserve(&mut duel, &charges, hold(time)).await?;
        duel.settle(names, Settlement::CommitActual(&[actual, actual])).await?;
        let has = remaining(&mut duel, &charges).await?;
        demand!(has == left, "3 reserved, {actual} needed: {has:?} left");
        duel.spend(&charges).await?;
    }
    let mut duel = Duel::new(maker, time).await;
    let charges = [Charge::new(Key::new(2, OTHER), &window).cost(3), Charge::new(Key::new(1, USER), &bucket).cost(3)];
    let names = reserve(&mut duel, &charges, hold(time)).await?;
    duel.settle(names, Settlement::CommitActual(&[1, 6])).await?;
    demand!(remaining(&mut duel, &charges).await? == [7, 4], "each charge has an actual cost of its own");
    // Of two charges of one counter each needed its own, and one that is not named keeps what it had.
    let mut duel = Duel::new(maker, time).await;
    let charge = Charge::new(Key::new(1, USER), &bucket);
    let names = reserve(&mut duel, &[charge.cost(1), charge.cost(5)], hold(time)).await?;
    duel.settle(names, Settlement::CommitActual(&[2])).await?;
    demand!(remaining(&mut duel, &[charge]).await? == [3], "2 instead of 1, and 5 as reserved, are 7");
    Ok(())
}

pub(super) async fn denied_holds_nothing<M: Maker>(maker: &M, time: Time) -> Kept {
    let (bucket, window) = ten_and_eight(time)?;
    let mut duel = Duel::new(maker, time).await;
    let charges = [Charge::new(Key::new(1, USER), &bucket).cost(5), Charge::new(Key::new(2, USER), &window).cost(9)];
    for charges in [charges, [charges[1], charges[0]]] {
        let (outcomes, names) = duel.reserve(&charges, hold(time)).await?;
        demand!(names.is_none() && outcomes.iter().any(Outcome::denied), "reserved what does not fit: {outcomes:?}");
    }
    demand!(remaining(&mut duel, &charges).await? == [10, 8], "a denied reservation was charged");
    Ok(())
}

pub(super) async fn settled_only_once<M: Maker>(maker: &M, time: Time) -> Kept {
    let (bucket, _) = ten_and_eight(time)?;
    let mut duel = Duel::new(maker, time).await;
    let charge = Charge::new(Key::new(1, USER), &bucket).cost(2);
    let all = [Settlement::Cancel, Settlement::Commit, Settlement::CommitActual(&[0]), Settlement::CommitActual(&[9])];
    for first in all {
        let names = reserve(&mut duel, &[charge], hold(time)).await?;
        demand!(duel.settle(names, first).await? == Settled::Done, "it was open");
        let left = remaining(&mut duel, &[charge]).await?;
        for second in all {
            demand!(duel.settle(names, second).await? == Settled::Unknown, "{second:?} after {first:?}");
        }
        demand!(remaining(&mut duel, &[charge]).await? == left, "the second settlement had an effect");
        duel.one(charge.cost(20), Intent::Refund { charged_at: duel.now }).await?;
    }
    for id in [0, 1, u64::MAX, 0x5eed] {
        let settled = duel.store.settle(ReservationId(id), Settlement::Cancel, duel.now).await.map_err(failed)?;
        demand!(settled == Settled::Unknown, "reservation {id} was never made");
    }
    duel.peek(&[charge]).await.map(|_| ())
}

pub(super) async fn an_outcome_says_what_a_refund_must_name<M: Maker>(maker: &M, time: Time) -> Kept {
    for (number, limit) in (0..).zip(limits::all(time)?) {
        let Duel { store, now, .. } = Duel::new(maker, time).await;
        let charge = Charge::new(Key::new(number, USER), &limit).lease(3);
        let mut had = None;
        for round in 0..4 {
            let spent = store.apply(&[charge], Intent::Spend, now).await.map_err(failed)?;
            let Some(spent) = spent.first().filter(|outcome| outcome.allowed && !outcome.overage) else { break };
            had.get_or_insert(spent.remaining);
            let refund = Intent::Refund { charged_at: spent.proceeds_at() };
            store.apply(&[charge], refund, now).await.map_err(failed)?;
            let again = store.apply(&[charge], Intent::Spend, now).await.map_err(failed)?;
            let left = again.first().map(|outcome| outcome.remaining);
            demand!(left == Some(spent.remaining), "round {round}: not given back, {left:?} {:?}", limit.algorithm());
        }
        demand!(had.is_some() || limit.algorithm() == &FixedWindow::new(0, unit(time)).into(), "nothing fits");
    }
    Ok(())
}

pub(super) async fn refunds_stop_at_fresh<M: Maker>(maker: &M, time: Time) -> Kept {
    for (number, limit) in (0..).zip(limits::all(time)?) {
        let mut duel = Duel::new(maker, time).await;
        let charge = Charge::new(Key::new(number, USER), &limit).lease(1);
        let fresh = duel.one(charge, Intent::Peek).await?;
        // What starts part-filled fills up to its capacity.
        let part_filled = matches!(limit.algorithm(), Algorithm::TokenBucket(TokenBucket { initial: Some(_), .. }));
        let most = if part_filled { fresh.limit } else { fresh.remaining };
        let now = duel.now;
        for _ in 0..2 {
            let refund = Intent::Refund { charged_at: now };
            let unused = duel.store.apply(&[charge.cost(3)], refund, now).await.map_err(failed)?;
            demand!(unused.iter().all(|has| has.remaining <= most), "{:?}: {unused:?}", limit.algorithm());
            duel.store.apply(&[charge], Intent::Spend, now).await.map_err(failed)?;
            for cost in [1, 1, 100, u64::MAX] {
                duel.store.apply(&[charge.cost(cost)], refund, now).await.map_err(failed)?;
            }
            let has = duel.store.apply(&[charge], Intent::Peek, now).await.map_err(failed)?;
            demand!(has.iter().all(|has| has.remaining <= most), "{:?}: {has:?}", limit.algorithm());
        }
    }
    Ok(())
}

pub(super) async fn what_is_not_settled_expires<M: Maker>(maker: &M) -> Kept {
    let unit = unit(Time::Given);
    let almost = Micros::from_micros(times(5, unit).as_micros() - 1);
    let log = limit(SlidingLog::new(6, times(20, unit)))?;
    for settlement in [Settlement::Cancel, Settlement::Commit, Settlement::CommitActual(&[1])] {
        let mut duel = Duel::new(maker, Time::Given).await;
        let charges = [Charge::new(Key::new(1, USER), &log).cost(4), Charge::new(Key::new(1, OTHER), &log).cost(6)];
        let names = reserve(&mut duel, &charges, times(5, unit)).await?;
        let in_time = reserve(&mut duel, &[charges[0].cost(1)], times(5, unit)).await?;
        duel.pass(almost);
        demand!(remaining(&mut duel, &charges).await? == [1, 0], "given back before its time");
        demand!(duel.settle(in_time, Settlement::Commit).await? == Settled::Done, "there was time left");
        duel.pass(Micros::from_micros(1));
        demand!(remaining(&mut duel, &charges).await? == [5, 6], "the hold is over: it is given back");
        demand!(duel.settle(names, settlement).await? == Settled::Unknown, "{settlement:?} came too late");
        demand!(remaining(&mut duel, &charges).await? == [5, 6], "{settlement:?} came too late and had an effect");
    }
    // The settlement itself is the first call after the end.
    let mut duel = Duel::new(maker, Time::Given).await;
    let charge = Charge::new(Key::new(1, USER), &log).cost(4);
    let names = reserve(&mut duel, &[charge], times(5, unit)).await?;
    duel.pass(times(5, unit));
    demand!(duel.settle(names, Settlement::Commit).await? == Settled::Unknown, "committed after the end");
    demand!(remaining(&mut duel, &[charge]).await? == [6], "kept after the end");
    Ok(())
}

pub(super) async fn all_that_expired_is_given_back<M: Maker>(maker: &M) -> Kept {
    let unit = unit(Time::Given);
    let queue = limit(LeakyBucket::queue(Rate::new(1, times(10, unit)), 29))?;
    let mut duel = Duel::new(maker, Time::Given).await;
    let charge = Charge::new(Key::new(1, USER), &queue);
    for held in 0..20 {
        reserve(&mut duel, &[charge], times(1 + held % 3, unit)).await?;
    }
    duel.pass(times(4, unit));
    let free = remaining(&mut duel, &[charge]).await?;
    demand!(free == [30], "{free:?} of 30 places are free");
    Ok(())
}

pub(super) async fn cancel_after_the_window_rolled<M: Maker>(maker: &M) -> Kept {
    let unit = unit(Time::Given);
    for (number, limit) in (0..).zip(limits::all(Time::Given)?) {
        for settlement in [Settlement::Cancel, Settlement::CommitActual(&[0]), Settlement::CommitActual(&[3])] {
            let mut duel = Duel::new(maker, Time::Given).await;
            let charge = Charge::new(Key::new(number, USER), &limit);
            let (_, names) = duel.reserve(&[charge.cost(2)], times(20, unit)).await?;
            duel.pass(times(7, unit));
            for _ in 0..3 {
                duel.one(charge, Intent::Spend).await?;
            }
            if let Some(names) = names {
                duel.settle(names, settlement).await?;
            }
            for _ in 0..3 {
                duel.one(charge, Intent::Spend).await?;
            }
        }
    }
    let window = limit(FixedWindow::new(5, times(6, unit)))?;
    let mut duel = Duel::new(maker, Time::Given).await;
    let charge = Charge::new(Key::new(1, USER), &window);
    let names = reserve(&mut duel, &[charge.cost(3)], times(20, unit)).await?;
    duel.pass(times(6, unit));
    duel.one(charge.cost(4), Intent::Spend).await?;
    duel.settle(names, Settlement::Cancel).await?;
    demand!(remaining(&mut duel, &[charge]).await? == [1], "another window's charge was given back to this one");
    Ok(())
}
