//! The sliding log: figure 4-10 in both readings, its edges, equal instants, and the bound on its length.

use tollgate_core::{Algorithm, Limit, LimitError, MAX_LOG, Micros, SlidingLog};

use crate::transcript::{Allowed, Denied, Gate, at, seconds, span};

const TWO_PER_MINUTE: SlidingLog = SlidingLog::new(2, Micros::MINUTE);

/// [B21, B22] Refused requests stay in the log. At 1:01:40 those of 1:00:01 and 1:00:30 have left, the refused one of
/// 1:00:50 has not, and with the new one the log holds two: allowed.
#[test]
fn figure_4_10_with_refused_requests_in_the_log() {
    let mut gate = Gate::new(TWO_PER_MINUTE.record_rejected());
    gate.plays(&[("1:00:01", 1, Allowed), ("1:00:30", 1, Allowed), ("1:00:50", 1, Denied), ("1:01:40", 1, Allowed)]);
    let logged: u64 = gate.state.extra.marks.iter().map(|mark| mark.note).sum();
    assert_eq!(logged, 2, "1:00:50 and 1:01:40");
    gate.plays(&[("1:01:49.999999", 1, Denied)]);
}

/// [B21, B22] The default: refused requests leave no trace: the same verdicts here, and one more request afterwards.
#[test]
fn figure_4_10_with_admitted_requests_only() {
    let mut gate = Gate::new(TWO_PER_MINUTE);
    gate.plays(&[
        ("1:00:01", 1, Allowed),
        ("1:00:30", 1, Allowed),
        ("1:00:50", 1, Denied),
        ("1:01:40", 1, Allowed),
        ("1:01:49.999999", 1, Allowed),
        ("1:01:50", 1, Denied),
    ]);
}

/// [B22] What tells the readings apart: with refusals in the log, a client that keeps knocking stays out for good.
#[test]
fn figure_4_10_a_client_that_keeps_knocking() {
    let knocks: Vec<_> = (0..20).map(|knock| at("1:00:00").plus(seconds(knock * 20))).collect();
    let mut plain = Gate::new(TWO_PER_MINUTE);
    let mut recording = Gate::new(TWO_PER_MINUTE.record_rejected());
    assert_eq!(knocks.iter().filter(|now| plain.spend(1, **now).allowed).count(), 14);
    assert_eq!(knocks.iter().filter(|now| recording.spend(1, **now).allowed).count(), 2);
}

/// [B22] With refusals in the log, the wait that is told counts the refusal itself, and is kept.
#[test]
fn figure_4_10_the_wait_that_is_told_counts_the_refusal() {
    let mut gate = Gate::new(TWO_PER_MINUTE.record_rejected());
    gate.plays(&[("1:00:01", 1, Allowed), ("1:00:30", 1, Allowed)]);
    let refused = gate.spend(1, at("1:00:50"));
    assert!(refused.denied());
    assert_eq!(
        refused.retry_after,
        Some(span("0:00:40")),
        "1:00:30 and 1:00:50 are in the log, the first leaves at 1:01:30"
    );
    gate.plays(&[("1:01:30", 1, Allowed)]);
}

/// [B21] Windows are half-open: an event exactly one window old has left.
#[test]
fn an_event_exactly_one_window_old_has_left() {
    Gate::new(TWO_PER_MINUTE).plays(&[
        ("1:00:01", 1, Allowed),
        ("1:00:30", 1, Allowed),
        ("1:01:00.999999", 1, Denied),
        ("1:01:01", 1, Allowed),
        ("1:01:01", 1, Denied),
        ("1:01:29.999999", 1, Denied),
        ("1:01:30", 1, Allowed),
    ]);
}

/// [B24] Two requests in the same microsecond are two.
#[test]
fn equal_instants_count_as_often_as_they_come() {
    let mut gate = Gate::new(SlidingLog::new(3, Micros::MINUTE));
    gate.plays(&[
        ("1:00:00.000001", 1, Allowed),
        ("1:00:00.000001", 1, Allowed),
        ("1:00:00.000001", 1, Allowed),
        ("1:00:00.000001", 1, Denied),
        ("1:01:00", 1, Denied),
        ("1:01:00.000001", 3, Allowed),
    ]);
}

/// [B21] Decision 3: the essay compares before it inserts and would admit one too many. A limit of n admits n.
#[test]
fn a_limit_of_n_admits_n_and_not_one_more() {
    for limit in [1, 2, 10, 1_000, MAX_LOG] {
        let mut gate = Gate::new(SlidingLog::new(limit, Micros::HOUR));
        assert_eq!(gate.admits(limit + 10, at("1:00:00")), limit);
    }
}

/// [B25] A log above the bound is refused, and the refusal says what would fit.
#[test]
fn a_log_that_is_too_long_is_refused_with_what_would_fit() {
    let refusal = |limit, window| Limit::new(SlidingLog::new(limit, window)).expect_err("above the bound");
    let too_long = refusal(100_000, Micros::HOUR);
    assert_eq!(too_long, LimitError::LogTooLong { limit: 100_000, window: Micros::HOUR });
    assert_eq!(
        too_long.to_string(),
        "a sliding log of 100000 entries is above the bound of 65536; use a sliding counter, or 50000 per 30min"
    );
    assert!(Limit::new(SlidingLog::new(MAX_LOG, Micros::HOUR)).is_ok());
    assert!(Limit::new(SlidingLog::new(MAX_LOG + 1, Micros::HOUR)).is_err());
}

/// [B25] 10,000 per hour in a hundred entries is 100 per 36 seconds.
#[test]
fn ten_thousand_per_hour_becomes_a_hundred_per_36_seconds() {
    let scaled = SlidingLog::new(10_000, Micros::HOUR).scaled_to(100);
    assert_eq!(scaled, SlidingLog::new(100, seconds(36)));
    assert_eq!(scaled.scaled_to(100), scaled, "what fits stays as it is");
    assert!(matches!(Algorithm::from(scaled), Algorithm::SlidingLog(log) if !log.record_rejected));
    let mut gate = Gate::new(scaled);
    assert_eq!(gate.admits(200, at("1:00:00")), 100);
    assert_eq!(gate.spend(1, at("1:00:00")).retry_after, Some(seconds(36)));
    let admitted: u64 = (1..100).map(|turn| gate.admits(200, at("1:00:00").plus(seconds(36 * turn)))).sum();
    assert_eq!(admitted + 100, 10_000, "in the whole hour");
}

/// [B25] Whatever is asked for, what is offered never has a higher rate and always fits.
#[test]
fn what_is_offered_instead_never_allows_more() {
    for (limit, window) in
        [(10_000, Micros::HOUR), (99_991, Micros::DAY), (7, Micros::SECOND), (u64::MAX >> 1, Micros::YEAR)]
    {
        for most in [1, 3, 100, MAX_LOG] {
            let scaled = SlidingLog::new(limit, window).scaled_to(most);
            let rate_of = |count: u64, per: Micros| u128::from(count) * u128::from(per.as_micros());
            assert!(scaled.limit <= most);
            assert!(rate_of(scaled.limit, window) <= rate_of(limit, scaled.window), "{limit} per {window} in {most}");
        }
    }
}
