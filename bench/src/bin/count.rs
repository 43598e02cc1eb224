//! Decides a number of times under one algorithm, or by rules, and exits: to be run under an instruction counter by
//! `scripts/instructions`.
//!
//! Time is virtual and steps on by a fixed amount, so every run executes the same instructions.

#[path = "../by_rules.rs"]
mod by_rules;

use std::future::ready;
use std::hint::black_box;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};

use tollgate::{
    Algorithm, Calendar, CalendarUnit, Charge, Check, Clock, Concurrency, Descriptor, Engine, FixedWindow, Intent, Key,
    LeakyBucket, Limit, MemoryStore, Micros, Outcome, Pacing, Rate, Refill, SlidingCounter, SlidingLog, Timestamp,
    TokenBucket, Tollgate, Verdict, Window, Zone,
};

use crate::by_rules::{file, now, rule_set};

const START: Timestamp = Timestamp::from_secs(1_700_000_000);
/// Between two decisions.
const STEP: Micros = Micros::from_micros(901);

/// The end of the names of cases that ask only whether.
const YES_OR_NO: &str = "yes or no";

/// The cases, each about a tenth denied: 1,000 a second asked for 1,111 times a second.
fn cases() -> Vec<(&'static str, Vec<Algorithm>)> {
    let rate = Rate::per_second(1_000);
    let bucket = TokenBucket::new(rate).burst(100);
    let second = Micros::SECOND;
    let calendar = Calendar::new(CalendarUnit::Day, Zone::utc());
    vec![
        ("token bucket", vec![bucket.into()]),
        ("token bucket, yes or no", vec![bucket.into()]),
        (
            "token bucket, odd rate",
            vec![TokenBucket::new(Rate::new(999_983, Micros::from_secs(1_000))).burst(100).into()],
        ),
        ("token bucket, loan", vec![bucket.borrow(50).into()]),
        ("token bucket, interval", vec![TokenBucket { refill: Refill::Interval, ..TokenBucket::new(rate) }.into()]),
        ("leaky bucket, queue", vec![LeakyBucket::queue(rate, 100).into()]),
        ("leaky bucket, meter", vec![LeakyBucket::meter(rate).into()]),
        ("fixed window", vec![FixedWindow::new(1_000, second).into()]),
        (
            "fixed window, first event",
            vec![FixedWindow::in_window(1_000, Window::FirstEvent { length: second }).into()],
        ),
        ("fixed window, calendar", vec![FixedWindow::in_window(100_000_000, calendar.into()).into()]),
        ("sliding log of 1000", vec![SlidingLog::new(1_000, second).into()]),
        ("sliding counter", vec![SlidingCounter::new(1_000, second).into()]),
        ("sliding counter, 10 parts", vec![SlidingCounter::new(1_000, second).sub_windows(10).into()]),
        ("concurrency", vec![Concurrency::new(1_000, second).into()]),
        ("pacing", vec![Pacing::new(1_000, Window::clock(second)).into()]),
        ("three stacked buckets", vec![bucket.into(), bucket.burst(200).into(), bucket.burst(300).into()]),
        ("three stacked, yes or no", vec![bucket.into(), bucket.burst(200).into(), bucket.burst(300).into()]),
    ]
}

fn run(name: &str, algorithms: Vec<Algorithm>, decisions: u64) -> u64 {
    let limits: Vec<Limit> = algorithms.into_iter().filter_map(|algorithm| Limit::new(algorithm).ok()).collect();
    let store = MemoryStore::new();
    let user: [&[u8]; 1] = [b"user:0000000000000000042"];
    let charges: Vec<Charge<'_>> =
        limits.iter().zip(1..).map(|(limit, number)| Charge::new(Key::new(number, &user), limit)).collect();
    let mut now = START;
    let yes_or_no = name.ends_with(YES_OR_NO);
    let mut allowed = 0;
    for _ in 0..decisions {
        now = now.plus(STEP);
        let admitted = match &charges[..] {
            charges if yes_or_no => store.admit_all(black_box(charges), now),
            [charge] => store.apply_one(black_box(charge), Intent::Spend, now).allowed,
            charges => store.apply_all(black_box(charges), Intent::Spend, now).iter().all(|o: &Outcome| o.allowed),
        };
        allowed += u64::from(admitted);
    }
    allowed
}

/// A question of three entries that meets one of a thousand rules, in two ways; and one that meets three of four rules.
const BY_RULES: [&str; 3] = ["by rules, descriptors", "by rules, attributes", "by rules, three are met"];

const FOUR_RULES: &str = "
domain: bench
defaults: {algorithm: token_bucket}
rules:
  - {per: user, limits: 1000000/s}
  - {per: tenant, limits: 1000000/s}
  - {when: {path: /path-7}, per: user, limits: 1000000/s}
  - {when: {path: /path-8}, per: user, limits: 1000000/s}
";

fn run_by_rules(name: &str, decisions: u64) -> u64 {
    let [by_descriptors, _, three] = BY_RULES;
    let rules = if name == three { FOUR_RULES.to_owned() } else { file(1_000) };
    let engine = Engine::with_clock(MemoryStore::new(), Steps(AtomicU64::new(START.as_micros())));
    let gate = Tollgate::with_engine(rule_set(&rules), engine);
    let allowed = |verdict: Verdict<'_>| black_box(&verdict).allowed;
    let mut admitted = 0;
    for _ in 0..decisions {
        let entries = [("tenant", "tenant-0"), ("path", "/path-7"), ("user", black_box("user:0000000000000000042"))];
        let descriptors = [Descriptor::new(&entries)];
        let check = match name == by_descriptors {
            true => Check::descriptors("bench", &descriptors),
            false => Check::attributes("bench", &entries),
        };
        admitted += u64::from(now(gate.check_with(&check, allowed)).unwrap_or(false));
    }
    admitted
}

/// Steps on whenever it is read.
struct Steps(AtomicU64);

impl Clock for Steps {
    #[inline]
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.fetch_add(STEP.as_micros(), Ordering::Relaxed))
    }

    fn sleep_until(&self, _at: Timestamp) -> impl Future<Output = ()> + Send {
        ready(())
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let found = match &arguments[..] {
        [list] if list == "--list" => {
            let names = cases().into_iter().map(|(name, _)| name).chain(BY_RULES);
            names.for_each(|name| println!("{name}"));
            return ExitCode::SUCCESS;
        }
        [name, decisions] => decisions.parse().ok().map(|decisions| (name, decisions)),
        _ => None,
    };
    let allowed = found.and_then(|(name, decisions)| {
        let case = cases().into_iter().find(|(known, _)| known == name);
        let by_rules = BY_RULES.contains(&&**name).then(|| run_by_rules(name, decisions));
        case.map(|(_, algorithms)| run(name, algorithms, decisions)).or(by_rules).map(|allowed| (allowed, decisions))
    });
    let Some((allowed, decisions)) = allowed else {
        eprintln!("usage: count --list | count CASE DECISIONS");
        return ExitCode::from(2);
    };
    println!("{allowed} of {decisions} allowed");
    ExitCode::SUCCESS
}
