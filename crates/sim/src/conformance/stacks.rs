//! Several charges in one call.

use tollgate::{Charge, Concurrency, FixedWindow, Intent, Key, Limit, Micros, Rate, TokenBucket};

use super::duel::Duel;
use super::limits::{limit, times, unit};
use super::{Kept, Maker, Time, demand, limits};

const USER: &[&[u8]] = &[b"user"];
const OTHER: &[&[u8]] = &[b"other"];

/// Three wide limits and a narrow one, on the same entity and on another.
fn wide_and_narrow(time: Time) -> Result<(Limit, Limit, Limit), String> {
    let unit = unit(time);
    let bucket = limit(TokenBucket::new(Rate::new(100, times(100, unit))))?;
    let window = limit(FixedWindow::new(100, times(10, unit)))?;
    let narrow = limit(FixedWindow::new(1, times(10, unit)))?;
    Ok((bucket, window, narrow))
}

pub(super) async fn all_or_nothing<M: Maker>(maker: &M, time: Time) -> Kept {
    let (bucket, window, narrow) = wide_and_narrow(time)?;
    for narrow_at in 0..4 {
        let mut duel = Duel::new(maker, time).await;
        let mut charges = vec![
            Charge::new(Key::new(1, USER), &bucket).cost(5),
            Charge::new(Key::new(2, USER), &window).cost(7),
            Charge::new(Key::new(1, OTHER), &bucket).cost(9),
        ];
        charges.insert(narrow_at, Charge::new(Key::new(3, USER), &narrow));
        let first = duel.spend(&charges).await?;
        demand!(first.iter().all(|outcome| outcome.allowed), "the first call fits: {first:?}");
        for _ in 0..3 {
            let denied = duel.spend(&charges).await?;
            demand!(denied.iter().filter(|outcome| outcome.denied()).count() == 1, "one denies: {denied:?}");
        }
        let left: Vec<u64> = duel.peek(&charges).await?.iter().map(|outcome| outcome.remaining).collect();
        let mut expected = vec![95, 93, 91];
        expected.insert(narrow_at, 0);
        demand!(left == expected, "charged {left:?} where {expected:?} should be left");
    }
    Ok(())
}

pub(super) async fn what_is_reported_is_what_is<M: Maker>(maker: &M, time: Time) -> Kept {
    let (bucket, _, narrow) = wide_and_narrow(time)?;
    for (first, second) in [(USER, USER), (USER, OTHER)] {
        let mut duel = Duel::new(maker, time).await;
        let charges = [
            Charge::new(Key::new(1, first), &bucket).cost(4),
            Charge::new(Key::new(3, second), &narrow).cost(2),
            Charge::new(Key::new(2, second), &bucket).cost(100),
        ];
        let outcomes = duel.spend(&charges).await?;
        let told: Vec<(bool, u64)> = outcomes.iter().map(|outcome| (outcome.allowed, outcome.remaining)).collect();
        demand!(told == [(true, 100), (false, 1), (true, 100)], "told {told:?}");
    }
    Ok(())
}

pub(super) async fn equal_counters_add_up<M: Maker>(maker: &M, time: Time) -> Kept {
    for (number, limit) in (0..).zip(limits::all(time)?) {
        let mut duel = Duel::new(maker, time).await;
        let charge = |cost: u64| Charge::new(Key::new(number, USER), &limit).cost(cost);
        for costs in [[1, 1, 0], [0, 0, 0], [2, 1, 1], [1, 0, 2], [u64::MAX, u64::MAX, 1]] {
            let charges = costs.map(charge);
            duel.peek(&charges).await?;
            let outcomes = duel.spend(&charges).await?;
            let first = outcomes.first();
            demand!(
                outcomes.iter().all(|outcome| Some(outcome) == first),
                "one counter, several answers: {outcomes:?}"
            );
            duel.apply(&charges, Intent::Force).await?;
        }
    }
    Ok(())
}

pub(super) async fn other_intents_apply_to_each<M: Maker>(maker: &M, time: Time) -> Kept {
    let unit = unit(time);
    let slots = limit(Concurrency::new(2, times(10, unit)))?;
    let bucket = limit(TokenBucket::new(Rate::new(3, times(3, unit))))?;
    let mut duel = Duel::new(maker, time).await;
    let held = Charge::new(Key::new(1, USER), &slots).lease(7);
    let free = Charge::new(Key::new(1, OTHER), &slots).lease(7);
    let tokens = Charge::new(Key::new(2, USER), &bucket);
    duel.spend(&[held]).await?;
    if time == Time::Given {
        duel.pass(times(6, unit));
    }
    // Neither the lease that is not there nor a limit without leases keeps the one that is from being renewed.
    let renewed = duel.apply(&[free, held, tokens], Intent::Renew).await?;
    let renewed: Vec<bool> = renewed.iter().map(|outcome| outcome.allowed).collect();
    demand!(renewed == [false, true, false], "renewed {renewed:?}");
    if time == Time::Given {
        duel.pass(times(6, unit));
    }
    let left = duel.one(held, Intent::Peek).await?.remaining;
    demand!(left == 1, "the lease was to be renewed, and {left} of 2 slots are free");
    let forced = duel.apply(&[tokens.cost(9), held.cost(0)], Intent::Force).await?;
    demand!(forced.iter().all(|outcome| outcome.allowed), "what is forced is not denied: {forced:?}");
    Ok(())
}

pub(super) async fn nothing_asked_nothing_denied<M: Maker>(maker: &M, time: Time) -> Kept {
    let mut duel = Duel::new(maker, time).await;
    for intent in [Intent::Spend, Intent::Peek, Intent::Force, Intent::Renew] {
        duel.apply(&[], intent).await?;
        duel.apply_each(&[], intent).await?;
    }
    let (_, names) = duel.reserve(&[], Micros::SECOND).await?;
    demand!(names.is_some(), "what asks for nothing is reserved");
    Ok(())
}

pub(super) async fn peek_changes_nothing<M: Maker>(maker: &M, time: Time) -> Kept {
    let limits = limits::all(time)?;
    let charges: Vec<Charge<'_>> =
        (0..).zip(&limits).map(|(number, limit)| Charge::new(Key::new(number, USER), limit)).collect();
    let mut duel = Duel::new(maker, time).await;
    for _ in 0..7 {
        let before = duel.peek(&charges).await?;
        for cost in [0, 1, 3, 1_000, u64::MAX] {
            let asked: Vec<Charge<'_>> = charges.iter().map(|charge| charge.cost(cost)).collect();
            duel.peek(&asked).await?;
            duel.apply_each(&asked, Intent::Peek).await?;
        }
        let after = duel.peek(&charges).await?;
        demand!(time == Time::Own || before == after, "a peek changed {before:?} to {after:?}");
        duel.apply_each(&charges, Intent::Spend).await?;
    }
    Ok(())
}

pub(super) async fn extreme_costs<M: Maker>(maker: &M, time: Time) -> Kept {
    const COSTS: [u64; 8] = [0, 1, 1 << 31, (1 << 32) - 1, (1 << 53) - 1, (1 << 53) + 1, i64::MAX as u64, u64::MAX];
    for (number, limit) in (0..).zip(limits::all(time)?) {
        let mut duel = Duel::new(maker, time).await;
        let charge = Charge::new(Key::new(number, USER), &limit);
        for cost in COSTS {
            let outcome = duel.one(charge.cost(cost), Intent::Spend).await?;
            demand!(outcome.allowed == (cost == 0) || cost == 1, "{cost} of {:?}: {outcome:?}", limit.algorithm());
        }
        for cost in COSTS {
            duel.one(charge.cost(cost), Intent::Force).await?;
            duel.one(charge, Intent::Spend).await?;
            if time == Time::Given {
                let charged_at = duel.now;
                duel.one(charge.cost(cost), Intent::Refund { charged_at }).await?;
                duel.one(charge, Intent::Spend).await?;
                duel.pass(times(1, unit(time)));
            }
        }
    }
    Ok(())
}
