//! The limits that the source documents name as examples: by user, address, device, campaign; from a second to a year.

use tollgate_core::{
    Algorithm, Calendar, CalendarUnit, Concurrency, FixedWindow, Micros, Rate, SlidingCounter, SlidingLog, Soft,
    Timestamp, TokenBucket, Window, Zone,
};

use crate::transcript::{Allowed, Denied, Gate, Overage, Row, at, seconds};

fn calendar(unit: CalendarUnit) -> Window {
    Calendar::new(unit, Zone::utc()).into()
}

/// [C3] A user may post twice a second.
#[test]
fn two_posts_per_second_and_user() {
    let limit = Gate::new(SlidingLog::new(2, Micros::SECOND));
    let (mut ann, mut bob) = (limit.clone(), limit);
    ann.plays(&[("8:00:00", 1, Allowed), ("8:00:00.4", 1, Allowed), ("8:00:00.9", 1, Denied), ("8:00:01", 1, Allowed)]);
    bob.plays(&[("8:00:00.9", 1, Allowed), ("8:00:01", 1, Allowed), ("8:00:01", 1, Denied)]);
}

/// [C3] Ten accounts may be created per day from one address.
#[test]
fn ten_accounts_per_day_and_address() {
    let limit = Gate::new(FixedWindow::in_window(10, calendar(CalendarUnit::Day)));
    let (mut home, mut office) = (limit.clone(), limit);
    assert_eq!(home.admits(25, at("7:30:00")), 10);
    home.plays(&[("23:59:59.999999", 1, Denied), ("1d 0:00:00", 1, Allowed)]);
    assert_eq!(office.admits(25, at("23:00:00")), 10, "another address has its own ten");
}

/// [C3] Five rewards per week and device, Monday to Monday.
#[test]
fn five_rewards_per_week_and_device() {
    let mut device = Gate::new(FixedWindow::in_window(5, calendar(CalendarUnit::Week)));
    device.plays(&[
        ("0:00:00", 1, Allowed),
        ("1d 10:00:00", 2, Allowed),
        ("4d 20:00:00", 2, Allowed),
        ("5d 0:00:00", 1, Denied),
        ("6d 23:59:59.999999", 1, Denied),
        ("7d 0:00:00", 1, Allowed),
    ]);
}

/// [C2] 300 per 3 hours, as Twitter does, and 300 per 60 seconds, as Google's document API does, exactly and estimated.
#[test]
fn three_hundred_per_three_hours_and_per_sixty_seconds() {
    for window in [Micros::from_secs(3 * 3_600), seconds(60)] {
        let start = at("3:00:00");
        let last_instant = start.plus(Micros::from_micros(window.as_micros() - 1));
        let gates = [Gate::new(FixedWindow::new(300, window)), Gate::new(SlidingLog::new(300, window))];
        for mut gate in gates {
            assert_eq!(gate.admits(400, start), 300);
            assert!(gate.spend(1, last_instant).denied());
            assert_eq!(gate.spend(1, start).retry_after, Some(window));
            assert_eq!(gate.admits(400, start.plus(window)), 300);
        }
        let mut counter = Gate::new(SlidingCounter::new(300, window));
        assert_eq!(counter.admits(400, start), 300);
        assert!(counter.spend(1, last_instant).denied());
        let mut bucket = Gate::new(TokenBucket::new(Rate::new(300, window)));
        assert_eq!(bucket.admits(400, start), 300);
        assert_eq!(bucket.spend(1, start).retry_after, Some(Micros::from_micros(window.as_micros() / 300)));
    }
}

/// [C2] Every unit from the second to the year, and spans that are none.
#[test]
fn units_from_the_second_to_the_year() {
    let odd = Micros::from_secs(90_061);
    let units = [Micros::SECOND, Micros::MINUTE, Micros::HOUR, Micros::DAY, Micros::WEEK, Micros::YEAR, odd];
    for window in units {
        let start = Timestamp::from_micros(at("0:00:00").as_micros() / window.as_micros() * window.as_micros());
        let mut fixed = Gate::new(FixedWindow::new(3, window));
        let mut log = Gate::new(SlidingLog::new(3, window));
        for gate in [&mut fixed, &mut log] {
            assert_eq!(gate.admits(5, start), 3, "{window}");
            let wait = gate.spend(1, start).retry_after.expect("waiting helps");
            assert_eq!(wait, window);
            assert!(gate.spend(1, start.plus(wait)).allowed, "{window}");
        }
    }
}

/// Berlin in 2024, when clocks went forward on 31 March and back on 27 October, each at 1:00 UTC.
fn berlin() -> Zone {
    Zone::new("Europe/Berlin", 3_600, [(1_711_846_800, 7_200), (1_729_990_800, 3_600)])
}

/// [C11] A campaign shows itself to one user three times a day, from midnight to midnight in Berlin.
#[test]
fn three_shows_per_campaign_and_user_each_day_in_berlin() {
    let limit = Gate::new(FixedWindow::in_window(3, Calendar::new(CalendarUnit::Day, berlin()).into()));
    let (mut ann_and_shoes, mut ann_and_hats) = (limit.clone(), limit);
    let rows: [Row; 6] = [
        ("8:00:00", 1, Allowed),
        ("12:00:00", 1, Allowed),
        ("20:00:00", 1, Allowed),
        ("22:30:00", 1, Denied),
        ("22:59:59.999999", 1, Denied),
        ("23:00:00", 1, Allowed),
    ];
    ann_and_shoes.plays(&rows);
    assert_eq!(ann_and_hats.remaining("22:30:00"), 3, "another campaign has its own three");
    assert_eq!(ann_and_hats.admits(5, at("22:30:00")), 3);
}

/// [C11] The day on which clocks go forward has 23 hours, the one on which they go back has 25.
#[test]
fn days_in_berlin_have_23_and_25_hours_when_clocks_change() {
    let days = FixedWindow::in_window(3, Calendar::new(CalendarUnit::Day, berlin()).into());
    // Midnights in Berlin: 31 March and 27 October 2024.
    for (midnight, hours) in [(1_711_839_600, 23), (1_729_980_000, 25)] {
        let start = Timestamp::from_secs(midnight);
        let end = start.plus(seconds(hours * 3_600));
        let mut gate = Gate::new(days.clone());
        assert_eq!(gate.admits(1, start.minus(Micros::from_micros(1))), 1, "the day before");
        assert_eq!(gate.admits(5, start), 3);
        assert_eq!(gate.spend(1, start).retry_after, Some(seconds(hours * 3_600)));
        assert!(gate.spend(1, end.minus(Micros::from_micros(1))).denied());
        assert!(gate.spend(1, end).allowed);
    }
}

/// [C9] A soft limit of five a minute lets three more pass for ten seconds, says so, and is hard after that until the
/// client has been within the limit again.
#[test]
fn a_soft_limit_is_exceeded_for_a_short_time_only() {
    let mut gate = Gate::soft(FixedWindow::new(5, Micros::MINUTE), Soft { overage: 3, lasting: seconds(10) });
    gate.plays(&[
        ("1:00:00", 5, Allowed),
        ("1:00:20", 1, Overage),
        ("1:00:25", 1, Overage),
        ("1:00:29.999999", 1, Overage),
        ("1:00:29.999999", 1, Denied),
        ("1:00:40", 1, Denied),
        ("1:01:00", 5, Allowed),
        ("1:01:01", 1, Overage),
        ("1:01:11", 1, Denied),
        ("1:01:59", 1, Denied),
        ("1:02:00", 1, Allowed),
    ]);
}

/// [C9] A soft log: hard from ten seconds after the first overage on, soft again once a request is within the limit.
#[test]
fn a_soft_sliding_limit_hardens_too() {
    let mut gate = Gate::soft(SlidingLog::new(5, Micros::MINUTE), Soft { overage: 3, lasting: seconds(10) });
    gate.plays(&[
        ("1:00:00", 5, Allowed),
        ("1:00:20", 1, Overage),
        ("1:00:30", 1, Denied),
        ("1:00:59.999999", 1, Denied),
        ("1:01:00", 1, Allowed),
        ("1:01:00", 3, Allowed),
        ("1:01:00", 1, Overage),
    ]);
}

/// [C9] However a limit counts, the overage is all that passes above it, and what passed is remembered unit by unit.
#[test]
fn a_soft_limit_is_exceeded_by_its_overage_and_no_more() {
    let (soft, log) = (Soft { overage: 3, lasting: Micros::HOUR }, SlidingLog::new(2, Micros::MINUTE));
    for algorithm in [Algorithm::from(log), log.record_rejected().into(), Concurrency::new(2, Micros::MINUTE).into()] {
        let mut gate = Gate::soft(algorithm, soft);
        gate.plays(&[
            ("1:00:00", 1, Allowed),
            ("1:00:10", 1, Allowed),
            ("1:00:20", 1, Overage),
            ("1:00:30", 1, Overage),
            ("1:00:40", 1, Overage),
            ("1:00:50", 1, Denied),
        ]);
    }
    let mut gate = Gate::soft(log, soft);
    gate.plays(&[("1:00:00", 1, Allowed), ("1:00:10", 1, Allowed), ("1:00:20", 1, Overage), ("1:00:30", 1, Overage)]);
    gate.plays(&[("1:01:20", 1, Allowed), ("1:01:30", 1, Allowed), ("1:01:30", 1, Overage)]);
}
