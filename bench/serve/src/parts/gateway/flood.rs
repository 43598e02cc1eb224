//! One client asks a hundred times as often as it may, while others ask as usual.

use std::time::Duration;

use super::super::{MANY, Run, found, requests};
use crate::load::{Idle, Speaker, paced_each};
use crate::report::{Bound, median};
use crate::speakers::Clients;

const ROUNDS: usize = 15;
const TIME: Duration = Duration::from_millis(1_000);
/// Requests of the others in a second, and as many of the one.
const RATE: u64 = 2_000;
const RULES: &str = "rules: [{name: by-address, per: ip, limits: [20/s]}]\n";

fn usual() -> Box<dyn Speaker> {
    Box::new(Clients::served())
}

fn flooded() -> Box<dyn Speaker> {
    Box::new(Clients::flooded())
}

pub(crate) fn run(run: &mut Run) -> Result<(), String> {
    let behind = run.origin()?;
    let gateway = run.gateway("flood.yaml", found(behind.proxy)?, RULES)?;
    let address = found(gateway.proxy)?;
    let p99 = |mut took: Vec<Duration>| {
        took.sort_unstable();
        took[took.len() * 99 / 100].as_secs_f64() * 1e6
    };
    let (mut alone, mut beside) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let took = paced_each(address, &usual, requests(MANY), (RATE, TIME), Idle::Sleeps)?;
        alone.push(p99(took.into_iter().map(|(_, took)| took).collect()));
        let took = paced_each(address, &flooded, requests(MANY), (2 * RATE, TIME), Idle::Sleeps)?;
        let others = took.into_iter().filter(|(key, _)| !key.is_multiple_of(2));
        beside.push(p99(others.map(|(_, took)| took).collect()));
    }
    let ratio = median(beside.iter().zip(&alone).map(|(beside, alone)| beside / alone).collect());
    println!(
        "{RATE} requests/s of others: p99 {:.0} us; while one asks {RATE} times a second, of 20 that it may: {:.0} us\n",
        median(alone),
        median(beside)
    );
    run.goals.add("gateway: p99 of others while one floods", Bound::AtMost(1.1), "x", ratio);
    Ok(())
}
