//! Fixed windows: figures 4-8 and 4-9, where windows begin, and windows that begin with the first request.

use tollgate_core::{FixedWindow, Key, Micros, SlidingCounter, SlidingLog, Timestamp, Window};

use crate::transcript::{Allowed, Denied, Gate, Row, at, seconds};

/// [B16] Three a second: in each second the fourth request is dropped, and the next second starts anew.
#[test]
fn figure_4_8_three_per_second() {
    Gate::new(FixedWindow::new(3, Micros::SECOND)).plays(&[
        ("1:00:00", 1, Allowed),
        ("1:00:00.3", 1, Allowed),
        ("1:00:00.6", 1, Allowed),
        ("1:00:00.9", 1, Denied),
        ("1:00:01", 1, Allowed),
        ("1:00:01.2", 1, Allowed),
        ("1:00:02", 1, Allowed),
        ("1:00:02.1", 1, Allowed),
        ("1:00:02.2", 1, Allowed),
        ("1:00:02.3", 1, Denied),
        ("1:00:02.999999", 1, Denied),
        ("1:00:03", 1, Allowed),
    ]);
}

/// Five requests late in one minute and five early in the next.
const AROUND_THE_MINUTE: [&str; 10] =
    ["2:00:30", "2:00:36", "2:00:42", "2:00:48", "2:00:54", "2:01:00", "2:01:06", "2:01:12", "2:01:18", "2:01:24"];

fn admitted_around_the_minute(mut gate: Gate) -> usize {
    AROUND_THE_MINUTE.iter().filter(|clock| gate.spend(1, at(clock)).allowed).count()
}

/// [B17] At five a minute, ten requests pass between 2:00:30 and 2:01:30.
#[test]
fn figure_4_9_twice_the_limit_passes_around_the_boundary() {
    assert_eq!(admitted_around_the_minute(Gate::new(FixedWindow::new(5, Micros::MINUTE))), 10);
}

/// [B17, B23] The log lets five pass. The counter takes the earlier minute for evenly spread and lets seven pass, with
/// sub-windows nearer to the truth; none of them lets ten pass.
#[test]
fn figure_4_9_does_not_happen_to_sliding_windows() {
    let counter = SlidingCounter::new(5, Micros::MINUTE);
    assert_eq!(admitted_around_the_minute(Gate::new(SlidingLog::new(5, Micros::MINUTE))), 5);
    assert_eq!(admitted_around_the_minute(Gate::new(counter)), 7);
    assert_eq!(admitted_around_the_minute(Gate::new(counter.sub_windows(10))), 5);
}

/// [B15] 12:00:03 lies in the window from 12:00:00 up to but not including 12:01:00.
#[test]
fn the_minute_of_12_00_03_begins_at_12_00_00() {
    let mut gate = Gate::new(FixedWindow::new(2, Micros::MINUTE));
    gate.plays(&[("12:00:00", 1, Allowed), ("12:00:03", 1, Allowed), ("12:00:03", 1, Denied)]);
    let outcome = gate.peek(1, at("12:00:03"));
    assert_eq!((outcome.reset_after, outcome.retry_after), (seconds(57), Some(seconds(57))));
    gate.plays(&[("12:00:59.999999", 1, Denied), ("12:01:00", 1, Allowed)]);
    let mut late = Gate::new(FixedWindow::new(1, Micros::MINUTE));
    late.plays(&[("11:59:59.999999", 1, Allowed), ("12:00:00", 1, Allowed), ("12:00:03", 1, Denied)]);
}

/// [B18] With spread windows a thousand clients that are denied at the same time come back over the whole hour, not
/// at the top of it.
#[test]
fn spread_windows_do_not_all_begin_at_the_top_of_the_hour() {
    let now = at("9:20:00");
    let returns = |spread: bool| -> Vec<u64> {
        let window = Window::Clock { length: Micros::HOUR, spread };
        let limit = Gate::new(FixedWindow::in_window(1, window));
        let comes_back = |user: u32| {
            let mut gate = limit.clone().with_phase(Key::new(1, &[&user.to_be_bytes()]).phase());
            assert!(gate.spend(1, now).allowed);
            let wait = gate.spend(1, now).retry_after.expect("waiting helps");
            assert!(!wait.is_zero() && wait <= Micros::HOUR);
            assert!(gate.clone().spend(1, now.plus(wait)).allowed);
            wait.as_micros() / seconds(360).as_micros()
        };
        (0..1_000).map(comes_back).collect()
    };
    assert!(returns(false).iter().all(|tenth| *tenth == 6), "40 minutes later, all of them");
    let spread = returns(true);
    for tenth in 0..10 {
        let count = spread.iter().filter(|other| **other == tenth).count();
        assert!((60..140).contains(&count), "{count} of 1,000 in tenth {tenth} of the hour");
    }
}

/// [B19] 3 per 5 seconds, counted from the first request: three pass, the counter expires, and three pass again at
/// once.
const COUNTER_THAT_EXPIRES: [Row; 6] = [
    ("0:00:01", 1, Allowed),
    ("0:00:05.9", 1, Allowed),
    ("0:00:05.9", 1, Allowed),
    ("0:00:06", 1, Allowed),
    ("0:00:06", 1, Allowed),
    ("0:00:06", 1, Allowed),
];

/// [B19] Between 0:05 and 0:10 five requests pass a window that begins with the first request.
#[test]
fn three_per_five_seconds_from_the_first_request_lets_five_pass() {
    let mut gate = Gate::new(FixedWindow::in_window(3, Window::FirstEvent { length: seconds(5) }));
    gate.plays(&COUNTER_THAT_EXPIRES);
}

/// [B19] Windows on the clock hold three in those five seconds, and so does the log in any five.
#[test]
fn three_per_five_seconds_on_the_clock_or_in_a_log_lets_three_pass() {
    let passed = |mut gate: Gate| -> Vec<Timestamp> {
        let times = COUNTER_THAT_EXPIRES.iter().map(|(clock, ..)| at(clock));
        times.filter(|now| gate.spend(1, *now).allowed).collect()
    };
    let after_five = |times: Vec<Timestamp>| times.iter().filter(|now| **now >= at("0:00:05")).count();
    assert_eq!(after_five(passed(Gate::new(FixedWindow::new(3, seconds(5))))), 3);
    assert_eq!(
        passed(Gate::new(SlidingLog::new(3, seconds(5)))),
        ["0:00:01", "0:00:05.9", "0:00:05.9", "0:00:06"].map(at),
        "the request of 0:00:01 has left at 0:00:06"
    );
}

/// [B19] The instants of the source to the letter: at 0:05 a window of five seconds from 0:00 is over, so the two
/// requests there open the next one.
#[test]
fn three_per_five_seconds_at_the_very_edge_belongs_to_the_next_window() {
    let rows: [Row; 6] = [
        ("0:00:00", 1, Allowed),
        ("0:00:05", 1, Allowed),
        ("0:00:05", 1, Allowed),
        ("0:00:06", 1, Allowed),
        ("0:00:06", 1, Denied),
        ("0:00:06", 1, Denied),
    ];
    Gate::new(FixedWindow::in_window(3, Window::FirstEvent { length: seconds(5) })).plays(&rows);
    Gate::new(FixedWindow::new(3, seconds(5))).plays(&rows);
    Gate::new(SlidingLog::new(3, seconds(5))).plays(&rows);
}

/// [B20] At most one per interval: the key exists, so the second is refused, until it expires.
#[test]
fn at_most_once_per_interval() {
    let mut gate = Gate::new(FixedWindow::once_per(seconds(5)));
    gate.plays(&[
        ("0:00:03", 1, Allowed),
        ("0:00:03", 1, Denied),
        ("0:00:07.999999", 1, Denied),
        ("0:00:08", 1, Allowed),
        ("0:00:12.999999", 1, Denied),
        ("0:05:00", 1, Allowed),
        ("0:05:04", 1, Denied),
    ]);
    assert_eq!(gate.peek(1, at("0:05:04")).retry_after, Some(seconds(1)));
}
