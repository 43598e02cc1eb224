//! Limits that change while their keys are counted.

use tollgate::{
    Charge, Concurrency, FixedWindow, Intent, Key, LeakyBucket, Limit, Micros, Pacing, Rate, SlidingCounter,
    SlidingLog, TokenBucket, Window,
};

use super::duel::Duel;
use super::limits::{limit, times, unit};
use super::{Kept, Maker, Time, demand, limits};

const USER: &[&[u8]] = &[b"user"];

fn rate(units: u64, unit: Micros) -> Rate {
    Rate::new(units, times(units, unit))
}

/// Pairs that understand each other's states.
fn changed(time: Time) -> Result<Vec<(Limit, Limit)>, String> {
    let unit = unit(time);
    let long = times(10, unit);
    let window = Window::clock(long);
    Ok(vec![
        (limit(TokenBucket::new(rate(10, unit)))?, limit(TokenBucket::new(rate(20, unit)))?),
        (limit(TokenBucket::new(rate(10, unit)))?, limit(TokenBucket::new(rate(10, unit)).burst(4))?),
        (limit(LeakyBucket::queue(rate(1, unit), 9))?, limit(LeakyBucket::queue(rate(1, unit), 12))?),
        (limit(FixedWindow::new(10, long))?, limit(FixedWindow::new(12, long))?),
        (limit(SlidingLog::new(10, long))?, limit(SlidingLog::new(14, long))?),
        (limit(SlidingLog::new(10, long))?, limit(SlidingLog::new(4, times(12, unit)))?),
        (limit(SlidingCounter::new(10, long))?, limit(SlidingCounter::new(5, long))?),
        (limit(Concurrency::new(10, long))?, limit(Concurrency::new(20, times(3, unit)))?),
        (limit(Pacing::new(40, window.clone()).slack(20))?, limit(Pacing::new(40, window).slack(30))?),
        (
            limit(FixedWindow::new(10, long))?,
            Limit::soft(FixedWindow::new(4, long), tollgate::Soft { overage: 3, lasting: times(2, unit) })
                .map_err(|error| error.to_string())?,
        ),
    ])
}

/// There and back again: the model does the same with one state.
pub(super) async fn equal_lineage_goes_on<M: Maker>(maker: &M, time: Time) -> Kept {
    for (old, new) in changed(time)? {
        demand!(old.lineage() == new.lineage(), "these are no pair: {:?} {:?}", old.algorithm(), new.algorithm());
        let mut duel = Duel::new(maker, time).await;
        let key = Key::new(1, USER);
        for _ in 0..3 {
            duel.one(Charge::new(key, &old), Intent::Spend).await?;
        }
        let fresh = duel.one(Charge::new(Key::new(2, USER), &new), Intent::Peek).await?;
        let changed = duel.one(Charge::new(key, &new), Intent::Peek).await?;
        demand!(changed.remaining < fresh.remaining, "{:?} started anew: {changed:?}", new.algorithm());
        for _ in 0..12 {
            duel.one(Charge::new(key, &new), Intent::Spend).await?;
        }
        duel.one(Charge::new(key, &new).cost(2), Intent::Force).await?;
        duel.one(Charge::new(key, &old), Intent::Spend).await?;
        if time == Time::Given {
            duel.pass(times(3, unit(time)));
            duel.one(Charge::new(key, &old), Intent::Spend).await?;
            duel.one(Charge::new(key, &new), Intent::Spend).await?;
        }
    }
    Ok(())
}

/// Every limit on the same number and values, in turns: those of different lineage never meet.
pub(super) async fn other_lineage_starts_anew<M: Maker>(maker: &M, time: Time) -> Kept {
    let mut limits: Vec<Limit> = Vec::new();
    for limit in limits::all(time)? {
        if limits.iter().all(|other| other.lineage() != limit.lineage()) {
            limits.push(limit);
        }
    }
    let mut duel = Duel::new(maker, time).await;
    for round in 0..3 {
        for limit in &limits {
            let outcome = duel.one(Charge::new(Key::new(1, USER), limit), Intent::Spend).await?;
            demand!(round > 0 || outcome.allowed || outcome.limit == 0, "not new under {:?}", limit.algorithm());
        }
        let all: Vec<Charge<'_>> = limits.iter().map(|limit| Charge::new(Key::new(1, USER), limit)).collect();
        duel.spend(&all).await?;
    }
    Ok(())
}
