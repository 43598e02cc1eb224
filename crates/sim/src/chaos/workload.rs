//! What is asked, how often, on which counters.

use tollgate::{FixedWindow, Limit, Micros, Rate, SlidingCounter, SlidingLog, TokenBucket};
use tollgate_core::mix;

/// How a run is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// How many nodes there are.
    pub nodes: u16,
    /// How many servers each node believes to share the limits with: as many as there are nodes, if nothing is wrong.
    pub servers_told: u64,
    /// How long a decision waits for Redis.
    pub deadline: std::time::Duration,
    /// Decisions in a second, of all nodes together.
    pub per_second: u32,
    /// Of each node's clock, by how many microseconds it is ahead of the wall clock.
    pub skews: Vec<i64>,
    /// One caller in so many goes away before the answer is there; zero for none.
    pub impatient: u64,
    /// Only the hottest key is asked for.
    pub one_key: bool,
    /// Nodes are started although there is nothing to connect to.
    pub starts_alone: bool,
    /// Other numbers, other loads.
    pub seed: u64,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            nodes: 3,
            servers_told: 3,
            deadline: std::time::Duration::from_millis(50),
            per_second: 900,
            skews: Vec::new(),
            impatient: 0,
            one_key: false,
            starts_alone: false,
            seed: 1,
        }
    }
}

/// The counters, and how often each is asked for.
#[derive(Clone, Debug)]
pub struct Workload {
    pub(super) targets: Vec<Target>,
    /// What each target's weight adds up to, with those before it.
    sums: Vec<u64>,
}

/// One counter.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) name: String,
    pub(super) limit: Limit,
    /// The number of its limit, as rules have one.
    pub(super) number: u64,
    /// All its charges are counted once more, without a bound, so that it can be told what was charged.
    pub(super) ledger: bool,
    /// It is held first, and settled or given back after a while.
    pub(super) held: bool,
    weight: u64,
}

/// How much a ledger can hold.
const LEDGER: u64 = 1_000_000_000;
/// Long enough that no run meets its end.
const LEDGER_WINDOW: Micros = Micros::from_secs(10_000 * 86_400);
/// Its number beside other limits.
pub(super) const LEDGER_NUMBER: u64 = 1_000;
/// How many keys are asked for by few.
const MANY: u64 = 300;

impl Workload {
    /// Keys that are asked for half as often as their limit allows, as often, and four times as often, under four
    /// algorithms; two that are held first; a long log; and many others that few ask for, by Zipf's law.
    #[allow(clippy::expect_used, reason = "the limits are right")]
    pub fn new(one_key: bool) -> Self {
        let limit = |algorithm: tollgate::Algorithm| Limit::new(algorithm).expect("a limit");
        let bucket = limit(TokenBucket::new(Rate::per_second(40)).burst(20).into());
        let window = limit(FixedWindow::new(40, Micros::SECOND).into());
        let log = limit(SlidingLog::new(30, Micros::SECOND).into());
        let counter = limit(SlidingCounter::new(30, Micros::SECOND).into());
        // Asked for one at a time, which is answered on a short way: whole microseconds apart, thirds of them, and
        // windows.
        let few = [
            limit(TokenBucket::new(Rate::per_second(4)).burst(6).into()),
            limit(TokenBucket::new(Rate::per_second(3)).burst(6).into()),
            limit(FixedWindow::new(5, Micros::SECOND).into()),
        ];
        let mut targets = Vec::new();
        let mut target = |name: String, limit: &Limit, number: u64, ledger: bool, weight: u64| {
            let held = name.starts_with("held");
            targets.push(Target { name, limit: limit.clone(), number, ledger, held, weight });
        };
        for (name, limit, number, rate) in
            [("bucket", &bucket, 1, 40), ("window", &window, 2, 40), ("log", &log, 3, 30), ("counter", &counter, 4, 30)]
        {
            for (load, of_ten) in [("4x", 40), ("1x", 10), ("half", 5)] {
                // In tenths of a request for each second; a request has a cost of about 1.5.
                target(format!("{name}-{load}"), limit, number, number != 4, rate * of_ten * 2 / 3);
            }
        }
        for (name, limit, number) in [("held-bucket", &bucket, 8), ("held-window", &window, 9)] {
            target(name.to_owned(), limit, number, true, 400);
        }
        // It keeps a second key from 68 events on, which it rarely has.
        target("long-log".to_owned(), &limit(SlidingLog::new(100, Micros::SECOND).into()), 10, false, 400);
        for (number, (kind, limit)) in (0..MANY).zip(few.iter().enumerate().cycle()) {
            target(format!("few-{number}"), limit, 5 + kind as u64, false, 2_000 / (number + 10));
        }
        if one_key {
            targets.truncate(1);
        }
        let sums = targets.iter().scan(0, |sum, target| {
            *sum += target.weight;
            Some(*sum)
        });
        Self { sums: sums.collect(), targets }
    }

    /// What is asked for the `number`th time at a node: a counter and a cost.
    pub(super) fn pick(&self, seed: u64, node: u16, number: u64) -> (u32, u64) {
        let random = mix(mix(seed ^ mix(u64::from(node) + 1)).wrapping_add(number));
        let sum = self.sums.last().copied().unwrap_or(1);
        let counter = self.sums.partition_point(|upto| *upto <= (random >> 16) % sum);
        let cost = match random & 0xff {
            0..=178 => 1,
            179..=229 => 2,
            230..=250 => 3,
            251..=254 => 5,
            // More than any of them can ever admit.
            _ => 100_000,
        };
        (u32::try_from(counter).unwrap_or(0), cost)
    }

    /// A limit that limits nothing.
    #[allow(clippy::expect_used, reason = "the limit is right")]
    pub(super) fn ledger() -> Limit {
        Limit::new(FixedWindow::new(LEDGER, LEDGER_WINDOW)).expect("a limit")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hot_keys_are_asked_for_as_often_as_their_names_say() {
        let workload = Workload::new(false);
        let mut units = vec![0_u64; workload.targets.len()];
        let per_second = workload.sums.last().unwrap() / 10;
        for number in 0..per_second * 100 {
            let (counter, cost) = workload.pick(1, 0, number);
            if cost < 100 {
                units[counter as usize] += cost;
            }
        }
        for (target, units) in workload.targets.iter().zip(units).take(12) {
            let rate = if target.number < 3 { 4_000 } else { 3_000 };
            let times = units * 10 / rate;
            let named = if target.name.ends_with("4x") {
                34..46
            } else if target.name.ends_with("1x") {
                8..12
            } else {
                4..6
            };
            assert!(named.contains(&times), "{}: {times} tenths", target.name);
        }
    }
}
