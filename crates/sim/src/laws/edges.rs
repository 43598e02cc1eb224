//! Every combination of numbers at the edges of integers, for every algorithm: refused, or exact.
//!
//! The random laws meet the edges by chance; here no pair of them is left out. The history is short and always the
//! same.

use tollgate_core::{
    Algorithm, Ask, Concurrency, FixedWindow, Intent, LeakyBucket, LeakyForm, Limit, Micros, Pacing, Rate,
    SlidingCounter, SlidingLog, Timestamp, TokenBucket, Window,
};

use super::Kept;
use super::limits::EDGES;
use super::trace::brief;
use crate::oracle::Oracle;

/// Periods besides the edges.
const PERIODS: [Micros; 3] = [Micros::SECOND, Micros::DAY, Micros::YEAR];

/// Runs all combinations with this many units per period, and says how many limits there were among them.
pub fn edges_are_refused_or_exact(units: u64) -> Result<u64, String> {
    let mut accepted = 0;
    let periods = EDGES.into_iter().map(Micros::from_micros).chain(PERIODS);
    for period in periods {
        for size in EDGES {
            for algorithm in algorithms(Rate::new(units, period), size) {
                let Ok(limit) = Limit::new(algorithm) else { continue };
                accepted += 1;
                EDGES.into_iter().try_for_each(|cost| history(&limit, cost))?;
            }
        }
    }
    Ok(accepted)
}

/// Every algorithm with this rate, or with these units per window, and this size.
fn algorithms(rate: Rate, size: u64) -> [Algorithm; 12] {
    let Rate { units, period } = rate;
    let bucket = TokenBucket::new(rate).burst(size);
    let queue = LeakyBucket::queue(rate, size);
    [
        bucket.into(),
        bucket.initially(size / 2).into(),
        bucket.borrow(units.min(1_000)).into(),
        bucket.refill_at_intervals().into(),
        LeakyBucket { rate, form: LeakyForm::Meter { capacity: size } }.into(),
        queue.into(),
        queue.max_wait(Micros::from_micros(size)).into(),
        FixedWindow::new(units, period).into(),
        SlidingLog::new(units, period).into(),
        SlidingCounter::new(units, period).into(),
        Concurrency::new(units, period).into(),
        Pacing::new(units, Window::clock(period)).slack(size).into(),
    ]
}

fn history(limit: &Limit, cost: u64) -> Kept {
    let now = Timestamp::from_secs(1_700_000_000);
    let later = now.plus(Micros::SECOND);
    let refund = Intent::Refund { charged_at: now };
    let steps = [
        (Intent::Spend, 1, now),
        (Intent::Spend, cost, now),
        (Intent::Peek, cost, now),
        (Intent::Force, cost, now),
        (Intent::Spend, 1, later),
        (Intent::Peek, cost, later),
        (refund, cost, later),
        (Intent::Spend, cost, later),
    ];
    let mut oracle = Oracle::new(limit.algorithm(), None, 0);
    let mut state = tollgate_core::State::default();
    for (intent, cost, now) in steps {
        let ask = Ask { cost, intent, now, phase: 0, lease: 0 };
        let outcome = limit.apply(&mut state, &ask);
        if outcome.remaining > outcome.limit {
            return Err(format!("{:?} {ask:?}: {}", limit.algorithm(), brief(&outcome)));
        }
        if oracle.is_exact() {
            let expected = oracle.ask(&ask);
            if oracle.is_exact() && outcome != expected {
                let (outcome, expected) = (brief(&outcome), brief(&expected));
                return Err(format!("{:?} {ask:?}: {outcome}, but the oracle says: {expected}", limit.algorithm()));
            }
        }
    }
    Ok(())
}
