//! Several limits on one request: all of them are charged or none is.

use tollgate_core::{FixedWindow, Micros, Rate, SlidingCounter, SlidingLog, TokenBucket};

use crate::transcript::{Gate, Together, at, seconds};

/// [C4] Five a second and 100,000 an hour: what the second denies costs the hour nothing, and the other way round.
#[test]
fn five_per_second_and_a_hundred_thousand_per_hour() {
    let together = Together::new();
    let mut second = Gate::new(SlidingLog::new(5, Micros::SECOND));
    let mut hour = Gate::new(FixedWindow::new(100_000, Micros::HOUR));
    let mut ask = |number: u64, now| -> usize {
        (0..number).filter(|_| together.takes(&mut [(&mut second, 1), (&mut hour, 1)], now)).count()
    };
    assert_eq!(ask(50, at("1:00:00")), 5);
    assert_eq!(ask(50, at("1:00:01")), 5);
    assert_eq!(hour.remaining("1:00:01"), 100_000 - 10, "the 90 that were denied were not counted");
}

/// [C4] Exhausting the hour needs 5 a second for 20,000 seconds and more than an hour has: with 10,000 an hour it is
/// reached, and then the second's budget stays whole.
#[test]
fn when_the_hour_denies_the_second_is_not_charged() {
    let together = Together::new();
    let mut second = Gate::new(SlidingLog::new(5, Micros::SECOND));
    let mut hour = Gate::new(FixedWindow::new(10_000, Micros::HOUR));
    let mut admitted = 0;
    for tick in 0..3_600 {
        let now = at("1:00:00").plus(seconds(tick));
        admitted += (0..6).filter(|_| together.takes(&mut [(&mut second, 1), (&mut hour, 1)], now)).count();
    }
    assert_eq!(admitted, 10_000);
    assert_eq!(second.remaining("1:59:59"), 5);
    assert!(together.takes(&mut [(&mut second, 5), (&mut hour, 5)], at("2:00:00")));
}

/// [C4] Denied or not, the order of the limits makes no difference.
#[test]
fn the_order_of_stacked_limits_does_not_matter() {
    let together = Together::new();
    let gates = || (Gate::new(SlidingLog::new(3, Micros::SECOND)), Gate::new(TokenBucket::new(Rate::per_minute(7))));
    let ((mut a, mut b), (mut c, mut d)) = (gates(), gates());
    let mut now = at("1:00:00");
    for step in 0..200u64 {
        now = now.plus(Micros::from_millis(step * step % 977));
        let cost = 1 + step % 3;
        let forwards = together.takes(&mut [(&mut a, cost), (&mut b, cost)], now);
        let backwards = together.takes(&mut [(&mut d, cost), (&mut c, cost)], now);
        assert_eq!(forwards, backwards, "step {step}");
    }
    assert_eq!((a.state, b.state), (c.state, d.state));
}

/// [B2] Two algorithms on one request: it is denied when either denies.
#[test]
fn a_bucket_and_a_window_deny_when_either_does() {
    let together = Together::new();
    let mut bucket = Gate::new(TokenBucket::new(Rate::per_second(10)).burst(3));
    let mut window = Gate::new(FixedWindow::new(5, Micros::MINUTE));
    let mut ask = |clock| together.takes(&mut [(&mut bucket, 1), (&mut window, 1)], at(clock));
    assert!(ask("1:00:00") && ask("1:00:00") && ask("1:00:00"));
    assert!(!ask("1:00:00"), "the bucket is empty");
    assert!(ask("1:00:01") && ask("1:00:01"));
    assert!(!ask("1:00:01"), "the window is full, though the bucket holds a token");
    assert_eq!(bucket.remaining("1:00:01"), 1);
}

/// What a client may do: requests and bits per second.
struct Budget {
    together: Together,
    requests: Gate,
    bits: Gate,
}

impl Budget {
    fn new(requests: u64, bits: u64) -> Self {
        let requests = Gate::new(SlidingCounter::new(requests, Micros::SECOND));
        Self { together: Together::new(), requests, bits: Gate::new(TokenBucket::new(Rate::per_second(bits))) }
    }

    fn takes(&mut self, bits: u64, clock: &str) -> bool {
        self.together.takes(&mut [(&mut self.requests, 1), (&mut self.bits, bits)], at(clock))
    }

    fn left(&self, clock: &str) -> (u64, u64) {
        (self.requests.remaining(clock), self.bits.remaining(clock))
    }
}

/// [C5, C6, C12] Writes: 5 a second and 1 Mb a second. Reads: 10 a second and 2 Mb a second. Four limits, none
/// touched by what another denies.
#[test]
fn reads_and_writes_by_number_and_by_size() {
    let (mut writes, mut reads) = (Budget::new(5, 1_000_000), Budget::new(10, 2_000_000));
    assert!(writes.takes(400_000, "1:00:00") && writes.takes(400_000, "1:00:00"));
    assert!(!writes.takes(400_000, "1:00:00"), "1.2 Mb in a second");
    assert_eq!(writes.left("1:00:00"), (3, 200_000), "the write that was too large was not counted");
    assert!(writes.takes(100_000, "1:00:00") && writes.takes(50_000, "1:00:00") && writes.takes(50_000, "1:00:00"));
    assert_eq!(writes.left("1:00:00"), (0, 0));
    assert_eq!(reads.left("1:00:00"), (10, 2_000_000), "reads have budgets of their own");

    assert!((0..10).all(|_| reads.takes(1_000, "1:00:00")));
    assert!(!reads.takes(1_000, "1:00:00"), "the eleventh read");
    assert_eq!(reads.left("1:00:00"), (0, 1_990_000), "its size was not counted");
    assert!(!writes.takes(1_000_001, "1:00:05"), "more than a second's worth never fits");
    assert!(reads.takes(2_000_000, "1:00:05") && writes.takes(1_000_000, "1:00:05"));
}
