//! Token buckets: figures 4-3 to 4-6, the buckets of one user, and the pseudo-code of the essay on frequency control.

use tollgate_core::{Algorithm, FixedWindow, LeakyBucket, Micros, Rate, SlidingCounter, SlidingLog, TokenBucket};
use tollgate_sim::workload::Rng;

use crate::transcript::{Allowed, Denied, Gate, Together, at};

/// [B1, A3] Two requests per second are allowed and a third in the same second is not, whatever counts them.
#[test]
fn figure_4_3_the_third_request_in_a_second_is_denied() {
    let second = Micros::SECOND;
    let by: [Algorithm; 6] = [
        TokenBucket::new(Rate::per_second(2)).into(),
        TokenBucket::new(Rate::per_second(2)).refill_at_intervals().into(),
        FixedWindow::new(2, second).into(),
        SlidingLog::new(2, second).into(),
        SlidingCounter::new(2, second).into(),
        SlidingCounter::new(2, second).sub_windows(4).into(),
    ];
    for algorithm in by {
        Gate::new(algorithm).plays(&[
            ("1:00:00", 1, Allowed),
            ("1:00:00.1", 1, Allowed),
            ("1:00:00.2", 1, Denied),
            ("1:00:03", 1, Allowed),
        ]);
    }
    let mut meter = Gate::new(LeakyBucket::meter(Rate::per_second(2)));
    meter.plays(&[("1:00:00", 1, Allowed), ("1:00:00.2", 1, Denied), ("1:00:00.5", 1, Allowed)]);
}

/// [B3, B5, B10] A bucket of 4 that gains 2 a second holds exactly 4 after ten idle seconds: what overflows is lost.
#[test]
fn figure_4_4_ten_idle_seconds_fill_the_bucket_and_no_more() {
    let mut gate = Gate::new(TokenBucket::new(Rate::per_second(2)).burst(4));
    gate.plays(&[("1:00:00", 4, Allowed), ("1:00:00", 1, Denied)]);
    assert_eq!(gate.remaining("1:00:01"), 2);
    assert_eq!(gate.remaining("1:00:02"), 4);
    assert_eq!(gate.remaining("1:00:10"), 4);
    gate.plays(&[
        ("1:00:10", 1, Allowed),
        ("1:00:10", 1, Allowed),
        ("1:00:10", 1, Allowed),
        ("1:00:10", 1, Allowed),
        ("1:00:10", 1, Denied),
        ("1:00:10.499999", 1, Denied),
        ("1:00:10.5", 1, Allowed),
        ("1:00:10.5", 1, Denied),
    ]);
}

/// [B6] A request takes its tokens when there are enough; otherwise it is dropped and takes none.
#[test]
fn figure_4_5_a_request_takes_its_tokens_or_is_dropped() {
    let mut gate = Gate::new(TokenBucket::new(Rate::per_second(2)).burst(4));
    gate.plays(&[
        ("1:00:00", 1, Allowed),
        ("1:00:00", 2, Allowed),
        ("1:00:00", 2, Denied),
        ("1:00:00", 1, Allowed),
        ("1:00:00", 1, Denied),
    ]);
}

/// [B4] Four per minute, all at once on the full minute.
#[test]
fn figure_4_6_four_tokens_each_minute() {
    let mut gate = Gate::new(TokenBucket::new(Rate::per_minute(4)).refill_at_intervals());
    gate.plays(&[("1:00:00", 1, Allowed)]);
    assert_eq!(gate.remaining("1:00:00"), 3);
    gate.plays(&[("1:00:05", 1, Allowed), ("1:00:05", 1, Allowed), ("1:00:05", 1, Allowed)]);
    assert_eq!(gate.remaining("1:00:05"), 0);
    gate.plays(&[("1:00:20", 1, Denied), ("1:00:59.999999", 1, Denied)]);
    assert_eq!(gate.peek(1, at("1:00:20")).retry_after, Some(Micros::from_secs(40)));
    assert_eq!(gate.remaining("1:01:00"), 4);
    gate.plays(&[("1:01:00", 4, Allowed), ("1:01:00", 1, Denied)]);
}

/// [B4] The same numbers refilled evenly are one token each 15 seconds.
#[test]
fn figure_4_6_refilled_evenly_is_one_token_each_15_seconds() {
    let mut gate = Gate::new(TokenBucket::new(Rate::per_minute(4)));
    gate.plays(&[
        ("1:00:05", 4, Allowed),
        ("1:00:05", 1, Denied),
        ("1:00:19.999999", 1, Denied),
        ("1:00:20", 1, Allowed),
        ("1:00:34.999999", 1, Denied),
        ("1:00:35", 1, Allowed),
        ("1:01:00", 1, Allowed),
        ("1:01:00", 1, Denied),
        ("1:01:05", 1, Allowed),
    ]);
}

/// [B8] One post a second, 150 friends a day and 5 likes a second are three buckets of one user.
#[test]
fn posts_friends_and_likes_have_their_own_buckets() {
    let mut posts = Gate::new(TokenBucket::new(Rate::per_second(1)));
    let mut friends = Gate::new(TokenBucket::new(Rate::per_day(150)));
    let mut likes = Gate::new(TokenBucket::new(Rate::per_second(5)));
    let now = at("9:00:00");
    assert_eq!(friends.admits(200, now), 150);
    assert_eq!((posts.remaining("9:00:00"), likes.remaining("9:00:00")), (1, 5));
    assert_eq!(likes.admits(10, now), 5);
    assert_eq!(posts.remaining("9:00:00"), 1);
    assert_eq!(posts.admits(3, now), 1);
    // A day's 150 come back evenly, one each 9 minutes and 36 seconds.
    friends.plays(&[("9:09:35.999999", 1, Denied), ("9:09:36", 1, Allowed), ("9:09:36", 1, Denied)]);
    posts.plays(&[("9:00:00.999999", 1, Denied), ("9:00:01", 1, Allowed)]);
}

/// [B9] 10,000 a second for all, and 100 a second for each address: what the shared bucket denies costs no address
/// anything.
#[test]
fn a_bucket_for_all_above_a_bucket_for_each_address() {
    let (together, now) = (Together::new(), at("12:00:00"));
    let mut all = Gate::new(TokenBucket::new(Rate::per_second(10_000)));
    let mut addresses: Vec<Gate> = (0..102).map(|_| Gate::new(TokenBucket::new(Rate::per_second(100)))).collect();
    let mut admitted = 0;
    for gate in &mut addresses {
        admitted += (0..150).filter(|_| together.takes(&mut [(&mut all, 1), (&mut *gate, 1)], now)).count();
    }
    assert_eq!(admitted, 10_000);
    assert_eq!(all.remaining("12:00:00"), 0);
    assert_eq!(addresses[99].remaining("12:00:00"), 0);
    assert_eq!(addresses[100].remaining("12:00:00"), 100, "denied by the bucket for all");
    assert_eq!(addresses[101].remaining("12:00:00"), 100, "denied by the bucket for all");
    assert!(together.takes(&mut [(&mut all, 1), (&mut addresses[100], 1)], at("12:00:00.0001")));
}

/// The pseudo-code as it stands, with tokens counted in parts of `period`, so that `rate * elapsed` is whole. The
/// step it leaves out is there: the time of the last update moves whenever tokens are recomputed.
struct PseudoCode {
    rate: Rate,
    burst: u128,
    tokens: u128,
    last_update_time: u128,
}

impl PseudoCode {
    fn new(rate: Rate, burst: u64, now: u64) -> Self {
        let burst = u128::from(burst) * u128::from(rate.period.as_micros());
        Self { rate, burst, tokens: burst, last_update_time: u128::from(now) }
    }

    fn ratelimit(&mut self, cost: u64, now: u64) -> bool {
        let now = u128::from(now);
        self.tokens += u128::from(self.rate.units) * (now - self.last_update_time);
        self.last_update_time = now;
        if self.tokens > self.burst {
            self.tokens = self.burst;
        }
        match self.tokens.checked_sub(u128::from(cost) * u128::from(self.rate.period.as_micros())) {
            None => false,
            Some(tokens) => {
                self.tokens = tokens;
                true
            }
        }
    }

    fn whole_tokens(&self) -> u128 {
        self.tokens / u128::from(self.rate.period.as_micros())
    }
}

/// [B6, B7] Over 3,000 random traces of random buckets, every verdict and every level equal those of the pseudo-code.
#[test]
fn the_pseudo_code_of_the_essay_gives_the_same_verdicts() {
    let mut rng = Rng::new(0x5eed_0003);
    let (mut allowed, mut denied) = (0, 0);
    for trace in 0..3_000 {
        let period = [1_000_000, 60_000_000, 999_983, 7, 3_600_000_001][rng.below(5) as usize];
        let rate = Rate::new(1 + rng.below(50), Micros::from_micros(period));
        let burst = 1 + rng.below(20);
        let mut now = at("0:00:00").as_micros();
        let mut gate = Gate::new(TokenBucket::new(rate).burst(burst));
        let mut told = PseudoCode::new(rate, burst, now);
        let each = period / rate.units + 1;
        for step in 0..150 {
            now += [0, rng.below(3), rng.below(each * 2), each - 1, rng.below(each * burst * 2)][rng.below(5) as usize];
            let cost = if rng.below(4) == 0 { 1 + rng.below(burst + 1) } else { 1 };
            let outcome = gate.spend(cost, tollgate_core::Timestamp::from_micros(now));
            assert_eq!(
                outcome.allowed,
                told.ratelimit(cost, now),
                "trace {trace}, step {step}, {rate:?}, burst {burst}"
            );
            assert_eq!(u128::from(outcome.remaining), told.whole_tokens(), "trace {trace}, step {step}");
            if outcome.allowed { allowed += 1 } else { denied += 1 }
        }
    }
    assert!(allowed > 50_000 && denied > 50_000, "{allowed} allowed, {denied} denied: one-sided traces prove little");
}
