//! Decides a number of times under one algorithm and exits: to be run under an instruction counter by `scripts/instructions`.
//!
//! Time is virtual and steps on by a fixed amount, so every run executes the same instructions.

use std::hint::black_box;
use std::process::ExitCode;

use tollgate::{
    Algorithm, Calendar, CalendarUnit, Charge, Concurrency, FixedWindow, Intent, Key, LeakyBucket, Limit, MemoryStore,
    Micros, Outcome, Pacing, Rate, Refill, SlidingCounter, SlidingLog, Timestamp, TokenBucket, Window, Zone,
};

const START: Timestamp = Timestamp::from_secs(1_700_000_000);
/// Between two decisions.
const STEP: Micros = Micros::from_micros(900);

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

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let found = match &arguments[..] {
        [list] if list == "--list" => {
            cases().iter().for_each(|(name, _)| println!("{name}"));
            return ExitCode::SUCCESS;
        }
        [name, decisions] => cases().into_iter().find(|(known, _)| known == name).zip(decisions.parse().ok()),
        _ => None,
    };
    let Some(((name, algorithms), decisions)) = found else {
        eprintln!("usage: count --list | count CASE DECISIONS");
        return ExitCode::from(2);
    };
    println!("{} of {decisions} allowed", run(name, algorithms, decisions));
    ExitCode::SUCCESS
}
