//! The laws of rate limiting, for every algorithm.
//!
//! Each test is one law for one kind of limit, over `TOLLGATE_CASES` random histories. What the laws say is written
//! beside their checks, in `tollgate_sim::laws`; this file only runs them. Two more laws need no histories and are
//! here: long runs do not drift, and calendar windows begin where the calendar says.

use proptest::collection::vec;
use proptest::prelude::any;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use tollgate_core::{
    Ask, Calendar, CalendarUnit, Intent, LeakyBucket, LeakyForm, Limit, MAX_INTEGER, Micros, Rate, Soft, State,
    Timestamp, TokenBucket, Zone,
};
use tollgate_sim::laws::{Kept, Kind, Law, Source, bounds, changes, clocks, edges, limits, steps};

/// Bytes for a history of up to sixty steps.
const BYTES: usize = 420;

fn cases() -> u32 {
    std::env::var("TOLLGATE_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(500)
}

fn uphold(law: Law, kind: Kind) {
    check(cases(), |bytes| law(kind, bytes));
}

fn check(cases: u32, law: impl Fn(&[u8]) -> Kept) {
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let kept =
        TestRunner::new(config).run(&vec(any::<u8>(), 0..BYTES), |bytes| law(&bytes).map_err(TestCaseError::fail));
    assert!(kept.is_ok(), "{}", kept.err().map_or_else(String::new, |broken| broken.to_string()));
}

macro_rules! laws {
    ($($name:ident: $kind:ident;)*) => {
        $(mod $name {
            use super::*;

            #[test]
            fn equals_the_oracle() {
                uphold(steps::equals_the_oracle, Kind::$kind);
            }

            #[test]
            fn equals_the_oracle_set_back() {
                uphold(steps::equals_the_oracle_set_back, Kind::$kind);
            }

            #[test]
            fn equals_the_oracle_at_the_edges() {
                uphold(steps::equals_the_oracle_at_the_edges, Kind::$kind);
            }

            #[test]
            fn bounds_hold() {
                uphold(bounds::bounds_hold, Kind::$kind);
            }

            #[test]
            fn bounds_hold_backwards() {
                uphold(bounds::bounds_hold_backwards, Kind::$kind);
            }

            #[test]
            fn set_back_nobody_is_locked_out() {
                uphold(clocks::nobody_is_locked_out, Kind::$kind);
            }

            #[test]
            fn set_back_nobody_gains() {
                uphold(clocks::nobody_gains, Kind::$kind);
            }

            #[test]
            fn backwards_earns_nothing() {
                uphold(steps::backwards_earns_nothing, Kind::$kind);
            }

            #[test]
            fn promised_waits_are_exact() {
                uphold(steps::promised_waits_are_exact, Kind::$kind);
            }

            #[test]
            fn costs_add() {
                uphold(steps::costs_add, Kind::$kind);
            }

            #[test]
            fn answers_are_honest() {
                uphold(steps::answers_are_honest, Kind::$kind);
            }

            #[test]
            fn forgetting_changes_nothing() {
                uphold(steps::forgetting_changes_nothing, Kind::$kind);
            }

            #[test]
            fn refunds_restore() {
                uphold(steps::refunds_restore, Kind::$kind);
            }

            #[test]
            fn changed_limits_go_on() {
                uphold(changes::changed_limits_go_on, Kind::$kind);
            }
        })*
    };
}

laws! {
    token_bucket: TokenBucket;
    lending_bucket: LendingBucket;
    interval_bucket: IntervalBucket;
    meter: Meter;
    queue: Queue;
    clock_window: ClockWindow;
    first_event_window: FirstEventWindow;
    calendar_window: CalendarWindow;
    sliding_log: SlidingLog;
    sliding_counter: SlidingCounter;
    sub_windows: SubWindows;
    concurrency: Concurrency;
    pacing: Pacing;
}

/// No combination of numbers at the edges of integers and doubles is anything but refused or exact.
#[test]
fn edges_are_refused_or_exact() {
    let accepted: u64 = limits::EDGES.into_iter().map(|units| edges::edges_are_refused_or_exact(units).unwrap()).sum();
    assert!(accepted > 1_000, "{accepted}");
}

/// Rates whose units are not whole microseconds apart, or many to one.
const AWKWARD: [Rate; 6] = [
    Rate::per_second(3),
    Rate::per_second(7),
    Rate::per_second(1_000_000_000),
    Rate::per_day(1_000_003),
    Rate::new(1, Micros::YEAR),
    Rate::new(999_983, Micros::from_micros(1_000_003)),
];

/// Whoever takes all there is, as often as it likes but before the bucket is full again, gets exactly the capacity and
/// what has flowed in, after any time.
#[test]
fn long_runs_do_not_drift() {
    for rate in AWKWARD {
        let capacity = rate.units.saturating_mul(2).max(10);
        let limit = Limit::new(TokenBucket::new(rate).burst(capacity)).unwrap();
        let start = Timestamp::from_secs(1_000_000_000);
        let (mut state, mut now, mut admitted) = (State::default(), start, 0u128);
        for step in 0..40_000u64 {
            let all = limit.step(state.cell, &state.extra, &Ask::spend(0, now)).outcome.remaining;
            assert!(limit.apply(&mut state, &Ask::spend(all, now)).allowed);
            assert!(limit.apply(&mut state, &Ask::spend(1, now)).denied());
            admitted += u128::from(all);
            let elapsed = u128::from(now.since(start).as_micros());
            let flowed_in = elapsed * u128::from(rate.units) / u128::from(rate.period.as_micros());
            assert_eq!(admitted, u128::from(capacity) + flowed_in, "{rate:?} after {elapsed}");
            let pause = tollgate_core::mix(step) % (rate.period.as_micros().min(Micros::HOUR.as_micros() * 20));
            now = now.plus(Micros::from_micros(pause));
        }
    }
}

/// The n-th request of an overfull queue leaves exactly n intervals after the first, rounded up. A queue of several to
/// a microsecond is empty before anyone can ask again.
#[test]
fn queues_keep_their_rate() {
    for rate in AWKWARD.into_iter().filter(|rate| rate.units <= rate.period.as_micros()) {
        let limit = Limit::new(LeakyBucket::queue(rate, 3)).unwrap();
        let start = Timestamp::from_secs(1_000_000_000);
        let (mut state, mut now) = (State::default(), start);
        for number in 0..20_000u128 {
            let mut outcome = limit.apply(&mut state, &Ask::spend(1, now));
            if let Some(wait) = outcome.retry_after.filter(|_| outcome.denied()) {
                now = now.plus(wait);
                outcome = limit.apply(&mut state, &Ask::spend(1, now));
            }
            assert!(outcome.allowed);
            let departure = u128::from(now.plus(outcome.delay).since(start).as_micros());
            let due = (number * u128::from(rate.period.as_micros())).div_ceil(u128::from(rate.units));
            if due + u128::from(start.as_micros()) > u128::from(MAX_INTEGER) / 2 {
                break;
            }
            assert_eq!(departure, due, "{rate:?} number {number}");
        }
    }
}

/// When the clock is set back by an hour, nobody is locked out of a bucket for longer than its refill, and a second.
#[test]
fn a_clock_set_back_locks_nobody_out() {
    for rate in AWKWARD {
        let limit = Limit::new(TokenBucket::new(rate).burst(5)).unwrap();
        let refill = Micros::from_micros((5 * rate.period.as_micros()).div_ceil(rate.units));
        let now = Timestamp::from_secs(1_000_000_000);
        let mut state = State::default();
        assert!(limit.apply(&mut state, &Ask::spend(5, now)).allowed);
        let back = now.minus(Micros::HOUR);
        let denied = limit.apply(&mut state, &Ask::spend(5, back));
        assert!(denied.denied(), "nothing is earned either");
        let wait = denied.retry_after.unwrap();
        assert!(wait <= refill.plus(Micros::SECOND), "{wait} at {rate:?}");
        assert!(limit.apply(&mut state, &Ask::spend(5, back.plus(wait))).allowed);
    }
}

/// A state that is as good as fresh knows of no overage, also when it is so because the clock was set back.
#[test]
fn a_clock_set_back_keeps_no_overage_of_nothing() {
    let soft = Soft { overage: 6, lasting: Micros::from_millis(250) };
    let nothing = LeakyBucket { rate: Rate::per_second(5), form: LeakyForm::Meter { capacity: 0 } };
    let limit = Limit::soft(nothing, soft).unwrap();
    let start = Timestamp::from_secs(1_000);
    let mut state = State::default();
    for step in 0..3 {
        let now = start.plus(Micros::from_millis(100 * step));
        assert!(limit.apply(&mut state, &Ask::spend(1, now)).overage);
    }
    let hardened = start.plus(Micros::from_millis(300));
    assert!(limit.apply(&mut state, &Ask::spend(1, hardened)).denied());
    // All of it is given back, and the clock is set back by more than clocks differ.
    let refund = Ask::spend(3, hardened).with_intent(Intent::Refund { charged_at: hardened });
    assert!(limit.apply(&mut state, &refund).reset_after.is_zero());
    let outcome = limit.apply(&mut state, &Ask::spend(1, hardened.minus(Micros::from_micros(10_001))));
    assert!(outcome.overage && outcome.retry_after == Some(Micros::ZERO), "{outcome:?}");
}

/// Giving everything back, however often, never makes room for more than there was.
#[test]
fn refunds_in_the_long_run_leave_no_trace() {
    for rate in AWKWARD {
        let limit = Limit::new(TokenBucket::new(rate).burst(5)).unwrap();
        let now = Timestamp::from_secs(1_000_000_000);
        let mut state = State::default();
        limit.apply(&mut state, &Ask::spend(2, now));
        let before = state.clone();
        for _ in 0..10_000 {
            assert!(limit.apply(&mut state, &Ask::spend(3, now)).allowed);
            limit.apply(&mut state, &Ask::spend(3, now).with_intent(Intent::Refund { charged_at: now }));
        }
        assert_eq!(state, before, "{rate:?}");
    }
}

/// A window ends at the first quarter of an hour whose local date belongs to a later window than any before it had.
#[test]
fn calendar_windows_begin_where_the_calendar_says() {
    const QUARTER: i64 = 900;
    let cases = (cases() / 50).clamp(5, 500);
    check(cases, |bytes| {
        let (initial, changes) = limits::zone(&mut Source::new(bytes));
        for unit in [CalendarUnit::Day, CalendarUnit::Week, CalendarUnit::Month, CalendarUnit::Year] {
            let calendar = Calendar::new(unit, Zone::new("Anywhere", initial, changes.clone()));
            let labels = labels(unit);
            let label_at = |second: i64| {
                let offset =
                    changes.iter().rev().find(|(from, _)| *from <= second).map_or(initial, |(_, offset)| *offset);
                let day = (second + i64::from(offset)).div_euclid(86_400);
                labels[usize::try_from(day + FIRST_DAY).unwrap()]
            };
            let (mut label, mut start) = (label_at(0), 0);
            for quarter in 1..400 * 96 {
                let second = quarter * QUARTER;
                if label_at(second) <= label {
                    continue;
                }
                label = label_at(second);
                let before = Timestamp::from_micros(u64::try_from(second).unwrap() * 1_000_000 - 1);
                let expected = (Timestamp::from_secs(start), Timestamp::from_secs(u64::try_from(second).unwrap()));
                for at in [expected.0, before] {
                    let window = calendar.window_at(at);
                    if window != expected {
                        return Err(format!(
                            "{unit:?} in {initial} {changes:?} at {at:?}: {window:?}, not {expected:?}"
                        ));
                    }
                }
                start = u64::try_from(second).unwrap();
            }
        }
        Ok(())
    });
}

/// The first day that has a label, before the epoch.
const FIRST_DAY: i64 = 3;

/// The number of the window that each day belongs to, from 29 December 1969 (a Monday) on, counted on the fingers.
fn labels(unit: CalendarUnit) -> Vec<u32> {
    let (mut year, mut month, mut day, mut weekday) = (1969u32, 12u32, 29u32, 0u32);
    let (mut days, mut weeks, mut months, mut years) = (0, 0, 0, 0);
    let mut labels = Vec::new();
    for _ in 0..1_600 {
        labels.push(match unit {
            CalendarUnit::Day => days,
            CalendarUnit::Week => weeks,
            CalendarUnit::Month => months,
            CalendarUnit::Year => years,
        });
        let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
        let length = match month {
            2 => 28 + u32::from(is_leap),
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        };
        days += 1;
        weekday = (weekday + 1) % 7;
        weeks += u32::from(weekday == 0);
        day += 1;
        if day > length {
            (day, month, months) = (1, month + 1, months + 1);
        }
        if month > 12 {
            (month, year, years) = (1, year + 1, years + 1);
        }
    }
    labels
}
