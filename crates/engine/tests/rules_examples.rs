//! The literal examples of the requirements, each as a rule file and what it lets pass. Their IDs are in the names.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[allow(dead_code, reason = "shared with the tests of rules, which use all of it")]
#[path = "rules/asking.rs"]
mod asking;

use asking::{advance, ask, entries, gate, of, passing, ready, request_in};
use tollgate::{Check, Engine, ManualClock, MemoryStore, Micros, RuleSet, Timestamp, Tollgate};

const HOUR: Micros = Micros::HOUR;

fn seconds(seconds: u64) -> Micros {
    Micros::from_secs(seconds)
}

#[test]
fn c3_two_posts_a_second_ten_accounts_a_day_five_rewards_a_week() {
    let gate = gate(
        "\
domain: d
rules:
- {name: posts, when: {action: post}, per: user, limits: 2/s}
- {name: accounts, when: {action: sign_up}, per: ip, limits: 10/day}
- {name: rewards, when: {action: claim}, per: device, limits: 5/week}
",
    );
    assert_eq!(passing(&gate, "action=post user=1", 5), 2);
    assert_eq!(passing(&gate, "action=post user=2", 5), 2);
    assert_eq!(passing(&gate, "action=sign_up ip=1.1.1.1", 20), 10);
    assert_eq!(passing(&gate, "action=sign_up ip=1.1.1.2 user=1", 1), 1);
    assert_eq!(passing(&gate, "action=claim device=x", 20), 5);
    assert_eq!(passing(&gate, "action=read user=1", 20), 20);
    advance(&gate, seconds(2));
    assert_eq!(passing(&gate, "action=post user=1", 5), 2);
    assert_eq!(passing(&gate, "action=sign_up ip=1.1.1.1", 20), 0);
    advance(&gate, seconds(2 * 86_400));
    assert_eq!(passing(&gate, "action=sign_up ip=1.1.1.1", 20), 10);
    assert_eq!(passing(&gate, "action=claim device=x", 20), 0);
    advance(&gate, seconds(12 * 86_400));
    assert_eq!(passing(&gate, "action=claim device=x", 20), 5);
}

#[test]
fn c4_five_a_second_and_a_hundred_thousand_an_hour() {
    let gate = gate("domain: d\nrules:\n- {per: user, limits: [5/s, 100000/h], algorithm: fixed_window}\n");
    let mut passed = 0;
    for _ in 0..2_010 {
        // Twice as much is asked as a second allows: what is denied costs the hour nothing.
        passed += passing(&gate, "user=1", 10);
        advance(&gate, Micros::SECOND);
    }
    assert_eq!(passed, 2_010 * 5);
    let hour = ask(&gate, "user=1", 1);
    assert_eq!(hour.tolls[1].outcome.remaining, 100_000 - 2_010 * 5 - 1);
    assert!(ready(gate.force(&Check::attributes("d", &entries("user=1")).cost(89_949))).unwrap().allowed);
    advance(&gate, seconds(2));
    let denied = ask(&gate, "user=1", 1);
    assert_eq!(
        (denied.allowed, denied.tolls[0].outcome.remaining),
        (false, 5),
        "nor the second for what the hour denies"
    );
}

#[test]
fn c6_writes_five_a_second_and_a_megabit_reads_ten_and_two() {
    let gate = gate(
        "\
domain: d
defaults: {algorithm: fixed_window}
rules:
- {name: writes, when: {method: [POST, PUT]}, per: user, limits: [5/s, 125000 bytes/s]}
- {name: reads, when: {method: GET}, per: user, limits: [10/s, 250000 bytes/s]}
",
    );
    let pass = |method: &str, bytes: u64, tries: u64| {
        let asked = [("method", method), ("user", "1")];
        let costs = [("bytes", bytes)];
        let check = Check::attributes("d", &asked).costs(&costs);
        (0..tries).map(|_| u64::from(ready(gate.check(&check)).unwrap().allowed)).sum::<u64>()
    };
    assert_eq!((pass("POST", 1_000, 9), pass("GET", 1_000, 19)), (5, 10), "by count, apart from each other");
    advance(&gate, Micros::SECOND);
    assert_eq!((pass("PUT", 50_000, 9), pass("GET", 50_000, 19)), (2, 5), "by bytes");
    assert_eq!((pass("PUT", 25_000, 9), pass("GET", 0, 19)), (1, 5), "a denial left both as they were");
}

#[test]
fn c7_both_seed_files_load_as_they_are() {
    for (text, domain, asked, unit) in [
        (
            include_str!("../../rules/tests/examples/seed_messaging.yaml"),
            "messaging",
            "message_type=marketing",
            Micros::DAY,
        ),
        (include_str!("../../rules/tests/examples/seed_auth.yaml"), "auth", "auth_type=login", Micros::MINUTE),
    ] {
        let gate = gate(text);
        let pass = |tries: u64| (0..tries).filter(|_| request_in(&gate, domain, &[of(asked)]).allowed).count();
        assert_eq!(pass(9), 5, "{domain}");
        assert!(request_in(&gate, domain, &[of("message_type=other")]).tolls.is_empty());
        advance(&gate, unit);
        assert_eq!(pass(9), 5, "{domain}");
    }
}

#[test]
fn c9_a_soft_limit_may_be_exceeded_for_a_short_time() {
    let gate = gate(
        "domain: d\nrules:\n- {per: user, limits: {rate: 5/m, algorithm: fixed_window, soft: {overage: 3, for: 10s}}}\n",
    );
    assert_eq!(passing(&gate, "user=1", 5), 5);
    let above = ask(&gate, "user=1", 1);
    assert!(above.allowed && above.tolls[0].outcome.overage, "and it is told");
    advance(&gate, seconds(9));
    assert_eq!(passing(&gate, "user=1", 1), 1);
    advance(&gate, seconds(1));
    assert_eq!(passing(&gate, "user=1", 9), 0, "hard now");
    assert_eq!(passing(&gate, "user=2", 20), 8, "never more than the overage");
}

#[test]
fn c11_three_shows_of_a_campaign_per_user_and_day_in_berlin() {
    let rules =
        RuleSet::from_yaml("domain: d\nrules:\n- {per: [campaign, user], limits: 3/day@Europe/Berlin}\n").unwrap();
    // 2024-06-01T21:00:00Z is 23:00 in Berlin.
    let clock = ManualClock::at(Timestamp::from_secs(1_717_275_600));
    let gate = Tollgate::with_engine(rules, Engine::with_clock(MemoryStore::new(), clock));
    assert_eq!(passing(&gate, "campaign=a user=1", 9), 3);
    assert_eq!(passing(&gate, "campaign=a user=2", 9), 3);
    assert_eq!(passing(&gate, "campaign=b user=1", 9), 3);
    assert_eq!(ask(&gate, "campaign=a user=1", 1).retry_after(), Some(HOUR));
    advance(&gate, HOUR);
    assert_eq!(passing(&gate, "campaign=a user=1", 9), 3, "midnight in Berlin");
    advance(&gate, seconds(2 * 3_600));
    assert_eq!(passing(&gate, "campaign=a user=1", 9), 0, "midnight of UTC is nothing");
}

#[test]
fn d1_a_burst_may_be_a_loan() {
    let gate = gate("domain: d\nrules:\n- {limits: {rate: 1/s, algorithm: token_bucket, burst: 1, borrow: 3}}\n");
    assert_eq!(passing(&gate, "", 9), 4, "its own and three of the future");
    advance(&gate, seconds(3));
    assert_eq!(ask(&gate, "", 4).retry_after(), Some(seconds(1)), "the loan is repaid, the bucket empty");
    assert_eq!(passing(&gate, "", 9), 3);
}

#[test]
fn d2_a_burst_may_be_what_was_saved() {
    let text = |initial: &str| {
        format!(
            "domain: d\nrules:\n- {{limits: {{rate: 1/s, algorithm: token_bucket, burst: 5, initial: {initial}}}}}\n"
        )
    };
    let full = gate(&text("full"));
    assert_eq!(passing(&full, "", 9), 5);
    advance(&full, seconds(100));
    assert_eq!(passing(&full, "", 9), 5, "saved up to the most");
    let empty = gate(&text("empty"));
    assert_eq!(passing(&empty, "", 9), 0);
    advance(&empty, seconds(2));
    assert_eq!(passing(&empty, "", 9), 2);
}

#[test]
fn d3_a_loan_and_savings_differ_in_what_may_be_spent_in_advance() {
    let loan = gate(
        "domain: d\nrules:\n- {limits: {rate: 1/s, algorithm: token_bucket, burst: 1, borrow: 4, initial: empty}}\n",
    );
    let savings =
        gate("domain: d\nrules:\n- {limits: {rate: 1/s, algorithm: token_bucket, burst: 5, initial: empty}}\n");
    assert_eq!((passing(&loan, "", 9), passing(&savings, "", 9)), (4, 0), "before anything was earned");
    for gate in [&loan, &savings] {
        advance(gate, seconds(5));
    }
    assert_eq!((passing(&loan, "", 9), passing(&savings, "", 9)), (5, 5), "after a pause");
}

#[test]
fn e7_a_daily_budget_is_spent_evenly() {
    let gate = gate("domain: d\nrules:\n- {limits: {rate: 2400/day, algorithm: pacing}}\n");
    // From midnight on: the clock stands at ten in the evening.
    advance(&gate, seconds(2 * 3_600));
    let mut spent = 0;
    for hour in 1..=24 {
        for _ in 0..1_000 {
            spent += passing(&gate, "", 1);
            advance(&gate, Micros::from_millis(3_600));
        }
        let line = hour * 100_u64;
        assert!((line..=line + 3).contains(&spent), "{spent} by {hour} o'clock: a thousandth ahead at most");
    }
    assert_eq!(spent, 2_400);
}
