//! Many keys in one call.

use tollgate::{Charge, Intent, Key, SlidingCounter};

use super::duel::Duel;
use super::limits::{limit, times, unit};
use super::{Kept, Maker, Time, demand, limits};

const KEYS: u64 = 500;

pub(super) async fn one_call_for_many_keys<M: Maker>(maker: &M, time: Time) -> Kept {
    let limit = limit(SlidingCounter::new(3, times(10, unit(time))))?;
    let names: Vec<[u8; 8]> = (0..KEYS).map(u64::to_be_bytes).collect();
    let values: Vec<[&[u8]; 1]> = names.iter().map(|name| [name.as_slice()]).collect();
    let costs = (0..KEYS).map(|number| number % 5);
    let charges: Vec<Charge<'_>> =
        values.iter().zip(costs).map(|(values, cost)| Charge::new(Key::new(1, values), &limit).cost(cost)).collect();
    let mut duel = Duel::new(maker, time).await;
    for round in 0..3 {
        let outcomes = duel.apply_each(&charges, Intent::Spend).await?;
        for (charge, outcome) in charges.iter().zip(outcomes) {
            let fits = charge.cost == 0 || charge.cost * (round + 1) <= 3;
            demand!(outcome.allowed == fits, "round {round}, cost {}: {outcome:?}", charge.cost);
        }
    }
    Ok(())
}

pub(super) async fn batches_equal_single_calls<M: Maker>(maker: &M, time: Time) -> Kept {
    let (mut batches, mut singles) = (Duel::new(maker, time).await, Duel::new(maker, time).await);
    singles.now = batches.now;
    for (number, limit) in (0..).zip(limits::all(time)?) {
        let charge = |name: &'static [&'static [u8]]| Charge::new(Key::new(number, name), &limit);
        let charges = [charge(&[b"a"]), charge(&[b"b"]).cost(2), charge(&[b"a"]), charge(&[b"a"]), charge(&[])];
        for intent in [Intent::Spend, Intent::Peek, Intent::Spend, Intent::Force, Intent::Renew, Intent::Spend] {
            let together = batches.apply_each(&charges, intent).await?;
            let mut alone = Vec::new();
            for charge in charges {
                alone.push(singles.one(charge, intent).await?);
            }
            demand!(time == Time::Own || together == alone, "a batch says {together:?}, single calls {alone:?}");
        }
    }
    Ok(())
}
