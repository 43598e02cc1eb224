//! Looking without taking, giving back, slots with leases, and budgets spent evenly.

use tollgate_core::{Ask, Concurrency, Intent, Limit, Micros, Outcome, Pacing, SlidingLog, State, Timestamp, Window};
use tollgate_sim::workload::Diurnal;

use crate::transcript::{Allowed, Denied, Gate, at, seconds};

/// [E2] A look leaves the state as it is, whatever it finds.
#[test]
fn a_peek_changes_nothing() {
    let mut gate = Gate::new(SlidingLog::new(3, Micros::MINUTE));
    gate.plays(&[("1:00:00", 2, Allowed)]);
    let before = gate.state.clone();
    assert!(gate.peek(1, at("1:00:01")).allowed);
    assert!(gate.peek(2, at("1:00:01")).denied());
    assert_eq!(gate.state, before);
}

/// [E3] Reserve for every candidate, keep the winner's, give the others' back.
#[test]
fn candidates_that_lose_give_back_what_they_reserved() {
    let now = at("1:00:00");
    let mut campaigns: Vec<Gate> = (0..5).map(|_| Gate::new(SlidingLog::new(3, Micros::DAY))).collect();
    assert!(campaigns.iter_mut().all(|campaign| campaign.spend(1, now).allowed));
    for loser in &mut campaigns[1..] {
        loser.refund(1, now, at("1:00:00.05"));
    }
    let left: Vec<u64> = campaigns.iter().map(|campaign| campaign.remaining("1:00:01")).collect();
    assert_eq!(left, [2, 3, 3, 3, 3]);
}

/// Two slots of half a minute each.
struct Slots {
    limit: Limit,
    state: State,
}

impl Slots {
    fn new() -> Self {
        let limit = Limit::new(Concurrency::new(2, seconds(30))).expect("a valid limit");
        Self { limit, state: State::default() }
    }

    fn ask(&mut self, lease: u64, intent: Intent, clock: &str) -> Outcome {
        self.limit.apply(&mut self.state, &Ask { lease, ..Ask::spend(1, at(clock)).with_intent(intent) })
    }

    fn takes(&mut self, lease: u64, clock: &str) -> bool {
        self.ask(lease, Intent::Spend, clock).allowed
    }

    fn releases(&mut self, lease: u64, clock: &str) {
        self.ask(lease, Intent::Refund { charged_at: at("0:00:00") }, clock);
    }
}

/// [E5] At most two at a time; a slot that is released is free at once.
#[test]
fn at_most_two_requests_at_a_time() {
    let mut slots = Slots::new();
    assert!(slots.takes(1, "1:00:00") && slots.takes(2, "1:00:01"));
    assert!(!slots.takes(3, "1:00:02"));
    slots.releases(1, "1:00:03");
    assert!(slots.takes(3, "1:00:03"));
    assert!(!slots.takes(4, "1:00:03"));
    slots.releases(9, "1:00:04");
    assert!(!slots.takes(4, "1:00:04"), "who holds nothing releases nothing");
}

/// [E5] A client that crashed holds its slot until the lease expires and not a moment longer; one that renews keeps it.
#[test]
fn a_crashed_client_loses_its_slot_with_its_lease() {
    let mut slots = Slots::new();
    assert!(slots.takes(1, "1:00:00") && slots.takes(2, "1:00:10"));
    assert!(!slots.takes(3, "1:00:29.999999"));
    assert!(slots.ask(2, Intent::Renew, "1:00:35").allowed);
    assert!(slots.takes(3, "1:00:36"), "the first lease expired at 1:00:30");
    assert!(!slots.takes(4, "1:00:59"), "the second was renewed until 1:01:05");
    assert!(slots.takes(4, "1:01:05"));
    assert!(!slots.ask(1, Intent::Renew, "1:01:05").allowed, "what has expired cannot be renewed");
}

/// [E5] A denied client is told when the next lease expires at the latest.
#[test]
fn the_wait_for_a_slot_ends_with_the_oldest_lease() {
    let mut slots = Slots::new();
    assert!(slots.takes(1, "1:00:00") && slots.takes(2, "1:00:10"));
    assert_eq!(slots.ask(3, Intent::Spend, "1:00:12").retry_after, Some(seconds(18)));
    assert!(slots.takes(3, "1:00:30"));
}

/// Spends a day's requests; returns what was spent by each full hour and by the end.
fn day(pacing: Pacing, requests: impl Iterator<Item = Timestamp>) -> Vec<u64> {
    let mut gate = Gate::new(pacing);
    let mut by_hour = vec![0; 25];
    for now in requests.take_while(|now| *now < at("1d 0:00:00")) {
        let hour = now.since(at("0:00:00")).as_micros() / Micros::HOUR.as_micros();
        by_hour[hour as usize + 1] += u64::from(gate.spend(1, now).allowed);
    }
    by_hour.iter_mut().fold(0, |sum, spent| {
        *spent += sum;
        *spent
    });
    by_hour
}

fn budget(units: u64) -> Pacing {
    Pacing::new(units, Window::clock(Micros::DAY))
}

/// [E7] Ten times as much demand as budget, evenly: spending is within 5 % of the straight line at every full hour,
/// and the budget is spent to the last unit.
#[test]
fn ten_times_the_demand_is_spent_along_the_straight_line() {
    let demand = || (0..240_000).map(|request| at("0:00:00").plus(Micros::from_micros(request * 360_000)));
    let spent = day(budget(24_000), demand());
    for (hour, spent) in spent.iter().enumerate() {
        let line = 1_000 * hour as u64;
        assert!(spent.abs_diff(line) * 100 <= line * 5, "{spent} at {hour}:00, the line is at {line}");
    }
    assert_eq!(spent[24], 24_000);
    assert_eq!(day(budget(24_000), demand())[24], 24_000);
}

/// [E7] The slack that a budget has by default never runs further ahead of the line than a thousandth of the
/// budget, and that far it runs.
#[test]
fn the_default_slack_is_a_thousandth_of_the_budget() {
    let demand = (0..240_000).map(|request| at("0:00:00").plus(Micros::from_micros(request * 360_000)));
    let spent = day(budget(24_000), demand);
    for (hour, spent) in spent.iter().enumerate().skip(1).take(23) {
        let ahead = spent.checked_sub(1_000 * hour as u64);
        assert!(ahead.is_some_and(|ahead| (23..=24).contains(&ahead)), "{spent} at {hour}:00");
    }
}

/// [E8] Demand of a whole day: a trough before dawn, a peak in the afternoon, three times the budget. The budget
/// lasts beyond 23:00 and is spent in full.
#[test]
fn skewed_demand_does_not_exhaust_the_budget_before_the_evening() {
    let demand = Diurnal::new(72_000.0 / 86_400.0, 0.9, at("0:00:00"), 8);
    let spent = day(budget(24_000), demand);
    assert!(spent[23] < 24_000, "{} spent by 23:00", spent[23]);
    assert_eq!(spent[24], 24_000);
}

/// [E8] All demand of the day in its first hours: nothing is spent ahead of time, however many ask.
#[test]
fn a_rush_in_the_morning_leaves_the_rest_for_the_day() {
    let rush = (0..200_000).map(|request| at("6:00:00").plus(Micros::from_micros(request * 36_000)));
    let spent = day(budget(24_000), rush);
    assert_eq!(spent[6], 0);
    assert!(spent[8] <= 8_000 + 24, "a third of the day has passed");
    assert!(spent[8] >= 7_900, "what was not spent at night may be spent now");
}

/// [E7] What a slow hour leaves may be spent later, and a new day starts a new budget.
#[test]
fn a_slow_hour_costs_nothing_and_the_next_day_starts_anew() {
    let mut gate = Gate::new(budget(24_000).slack(10));
    assert_eq!(gate.admits(100, at("0:00:00")), 10);
    assert_eq!(gate.admits(20_000, at("12:00:00")), 12_000);
    assert_eq!(gate.admits(20_000, at("23:59:59")), 11_990);
    gate.plays(&[("23:59:59.9", 1, Denied), ("1d 0:00:00", 1, Allowed)]);
}
