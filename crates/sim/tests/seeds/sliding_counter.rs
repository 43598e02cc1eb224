//! The sliding counter: figure 4-11 with and without rounding, and the weight of the earlier window.

use tollgate_core::{Micros, Rounding, SlidingCounter};

use crate::transcript::{Allowed, Denied, Gate, Row, at};

const SEVEN_PER_MINUTE: SlidingCounter = SlidingCounter::new(7, Micros::MINUTE);

/// Five requests in the minute of 1:00.
const FIVE_BEFORE: [Row; 5] = [
    ("1:00:05", 1, Allowed),
    ("1:00:15", 1, Allowed),
    ("1:00:25", 1, Allowed),
    ("1:00:35", 1, Allowed),
    ("1:00:45", 1, Allowed),
];

/// [B26, B27] No rounding, the default: at 30 % of the minute the request that brings the sum to 3 + 5 x 0.7 = 6.5 is
/// within 7, and the next, at 7.5, is not.
#[test]
fn figure_4_11_the_request_that_makes_it_six_and_a_half_passes_and_the_next_does_not() {
    let mut gate = Gate::new(SEVEN_PER_MINUTE);
    gate.plays(&FIVE_BEFORE);
    gate.plays(&[
        ("1:01:00", 1, Allowed),
        ("1:01:00", 1, Allowed),
        ("1:01:18", 1, Allowed),
        ("1:01:18", 1, Denied),
        ("1:01:23.999999", 1, Denied),
        ("1:01:24", 1, Allowed),
    ]);
}

/// [B26, B27] Rounded down as in the source: a request that finds 6.5 counts as the seventh and passes; the next
/// finds 7.5.
#[test]
fn figure_4_11_rounded_down_the_request_that_finds_six_and_a_half_passes() {
    let mut gate = Gate::new(SEVEN_PER_MINUTE.rounding(Rounding::Floor));
    gate.plays(&FIVE_BEFORE);
    gate.plays(&[
        ("1:01:12", 1, Allowed),
        ("1:01:12", 1, Allowed),
        ("1:01:12", 1, Allowed),
        ("1:01:18", 1, Allowed),
        ("1:01:18", 1, Denied),
    ]);
}

/// [B27] At the same 6.5 (three of the current minute, five of the one before) the roundings part.
#[test]
fn figure_4_11_what_each_rounding_makes_of_six_and_a_half() {
    for (rounding, eighth) in [(Rounding::None, Denied), (Rounding::Ceil, Denied), (Rounding::Floor, Allowed)] {
        let mut gate = Gate::new(SEVEN_PER_MINUTE.rounding(rounding));
        gate.plays(&FIVE_BEFORE);
        gate.plays(&[("1:01:12", 3, Allowed), ("1:01:18", 1, eighth)]);
    }
    assert_eq!(SEVEN_PER_MINUTE.rounding, Rounding::None, "the default");
}

/// [B26] A quarter into the minute, three quarters of the earlier one still count.
#[test]
fn a_quarter_into_the_window_the_earlier_one_weighs_three_quarters() {
    let mut gate = Gate::new(SlidingCounter::new(100, Micros::MINUTE));
    gate.plays(&[("1:00:00", 80, Allowed)]);
    assert_eq!(gate.remaining("1:00:59"), 20);
    assert_eq!(gate.remaining("1:01:00"), 20);
    assert_eq!(gate.remaining("1:01:15"), 40, "80 x 0.75 = 60");
    assert_eq!(gate.remaining("1:01:30"), 60);
    assert_eq!(gate.remaining("1:01:45"), 80);
    assert_eq!(gate.remaining("1:02:00"), 100);
}

/// [B26] The example that Cloudflare gives: 42 in the earlier minute, 18 in the first 15 seconds of this one, 49.5 in
/// all.
#[test]
fn forty_two_and_eighteen_are_forty_nine_and_a_half() {
    let mut gate = Gate::new(SlidingCounter::new(50, Micros::MINUTE));
    gate.plays(&[("1:00:10", 42, Allowed), ("1:01:14", 17, Allowed), ("1:01:15", 1, Allowed), ("1:01:15", 1, Denied)]);
    assert_eq!(gate.peek(1, at("1:01:15")).remaining, 0, "half a request is none");
}

/// [B28] With sub-windows only the oldest part fades: requests of 1:00:05 are forgotten with that part of the minute,
/// not bit by bit over the whole of the next.
#[test]
fn sub_windows_forget_when_the_request_leaves() {
    let fill = [("1:00:05", 60, Allowed)];
    let mut coarse = Gate::new(SlidingCounter::new(60, Micros::MINUTE));
    let mut fine = Gate::new(SlidingCounter::new(60, Micros::MINUTE).sub_windows(6));
    coarse.plays(&fill);
    fine.plays(&fill);
    assert_eq!((coarse.remaining("1:01:05"), fine.remaining("1:01:05")), (5, 30));
    assert_eq!((coarse.remaining("1:01:10"), fine.remaining("1:01:10")), (10, 60));
    assert_eq!((coarse.remaining("1:02:00"), fine.remaining("1:02:00")), (60, 60));
}
