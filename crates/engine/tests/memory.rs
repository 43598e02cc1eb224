//! What the memory store promises beyond the contract: bounded memory, lossless forgetting, and no help from timers.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use tollgate::{
    Algorithm, Charge, Concurrency, FixedWindow, Intent, Key, Limit, MemoryStore, Micros, Outcome, Rate, Settled,
    Settlement, SlidingLog, Timestamp, TokenBucket, Window,
};

const NOW: Timestamp = Timestamp::from_secs(1_700_000_000);
const MEGABYTE: usize = 1 << 20;

fn limit(algorithm: impl Into<Algorithm>) -> Limit {
    Limit::new(algorithm).unwrap()
}

/// At most `limit` in the `length` from the first on: every key of it is stale at the same time.
fn window(limit: u64, length: Micros) -> Limit {
    self::limit(FixedWindow::in_window(limit, Window::FirstEvent { length }))
}

fn seconds(seconds: u64) -> Timestamp {
    NOW.plus(Micros::from_secs(seconds))
}

fn ask(store: &MemoryStore, name: &[u8], limit: &Limit, cost: u64, intent: Intent, now: Timestamp) -> Outcome {
    store.apply_one(&Charge::new(Key::new(1, &[name]), limit).cost(cost), intent, now)
}

fn spend(store: &MemoryStore, name: u64, limit: &Limit, now: Timestamp) -> Outcome {
    ask(store, &name.to_be_bytes(), limit, 1, Intent::Spend, now)
}

fn peek(store: &MemoryStore, name: u64, limit: &Limit, now: Timestamp) -> Outcome {
    ask(store, &name.to_be_bytes(), limit, 1, Intent::Peek, now)
}

#[test]
fn a_flood_of_keys_stays_within_the_budget_and_resets_nobody() {
    let budget = 4 * MEGABYTE;
    let store = MemoryStore::with_budget(budget);
    let limit = window(5, Micros::HOUR);
    ask(&store, b"victim", &limit, 5, Intent::Spend, NOW);
    ask(&store, b"customer", &limit, 2, Intent::Spend, NOW);

    let (mut own, mut shared_admitted) = (Vec::new(), 0);
    for name in 0..200_000 {
        let outcome = spend(&store, name, &limit, NOW);
        match outcome.shared {
            false => own.push(name),
            true => shared_admitted += u64::from(outcome.allowed),
        }
        if name % 1_000 == 0 {
            assert!(store.bytes_used() <= budget, "{} bytes", store.bytes_used());
            assert!(ask(&store, b"victim", &limit, 1, Intent::Spend, NOW).denied());
            assert_eq!(ask(&store, b"customer", &limit, 1, Intent::Peek, NOW).remaining, 3);
        }
    }
    assert!(own.len() * 48 > budget, "room for {} keys only", own.len());
    assert_eq!(shared_admitted, 5, "those without room share one limit");
    assert_eq!(store.shared_charges(), 200_000 - own.len() as u64);
    for name in &own {
        let outcome = peek(&store, *name, &limit, NOW);
        assert_eq!((outcome.remaining, outcome.shared), (4, false), "key {name} was forgotten");
    }
    // Stale from now on: the room is used again.
    let later = NOW.plus(Micros::HOUR);
    let again = (1_000_000..1_200_000).filter(|name| !spend(&store, *name, &limit, later).shared).count();
    assert!(again * 10 > own.len() * 9, "{again} keys where {} were", own.len());
    assert!(store.bytes_used() <= budget);
}

#[test]
fn stale_states_make_way_as_new_keys_come() {
    let store = MemoryStore::new();
    let limit = window(5, Micros::SECOND);
    for second in 0..60 {
        for name in 0..5_000 {
            assert!(!spend(&store, second * 5_000 + name, &limit, seconds(second)).shared);
        }
    }
    // 300,000 keys have come by and 5,000 are alive.
    assert!(store.keys() < 50_000, "{} keys", store.keys());
    assert!(store.bytes_used() < 4 * MEGABYTE, "{} bytes", store.bytes_used());
}

#[test]
fn shrinking_gives_memory_back_and_forgets_nobody() {
    let store = MemoryStore::new();
    let (short, long) = (window(5, Micros::SECOND), window(5, Micros::HOUR));
    (0..50_000).for_each(|name| assert!(spend(&store, name, &short, NOW).allowed));
    (50_000..51_000).for_each(|name| assert!(spend(&store, name, &long, NOW).allowed));
    let before = store.bytes_used();
    store.shrink(NOW);
    assert_eq!(store.keys(), 51_000, "nothing is stale yet");
    store.shrink(seconds(1));
    assert_eq!(store.keys(), 1_000);
    assert!(store.bytes_used() < before, "{} bytes of {before}", store.bytes_used());
    (50_000..51_000).for_each(|name| assert_eq!(peek(&store, name, &long, seconds(1)).remaining, 4));
    store.shrink(seconds(3_600));
    assert_eq!((store.keys(), store.bytes_used()), (0, 0));
}

#[test]
fn after_a_flood_there_is_room_for_everyone_again() {
    let store = MemoryStore::with_budget(8 * MEGABYTE);
    let (heavy, long) = (limit(SlidingLog::new(60_000, Micros::SECOND)), window(5, Micros::HOUR));
    for event in 0..240_000 {
        assert!(!spend(&store, event % 4, &heavy, NOW.plus(Micros::from_micros(event))).shared);
    }
    let own = (0..250_000).filter(|name| !spend(&store, *name, &long, NOW).shared).count();
    assert!(own < 200_000, "the heavy ones have taken half of the budget");
    store.shrink(seconds(2));
    let own = (200_000..220_000).filter(|name| !spend(&store, *name, &long, seconds(2)).shared).count();
    assert_eq!(own, 20_000, "not all have room");
}

#[test]
fn shared_counters_do_not_count_towards_the_budget() {
    let store = MemoryStore::with_budget(0);
    let limits: Vec<Limit> = (1..100).map(|events| limit(SlidingLog::new(events, Micros::SECOND))).collect();
    for (number, limit) in (0..).zip(&limits) {
        let charge = Charge::new(Key::new(number, &[b"anyone"]), limit);
        assert!(store.apply_one(&charge, Intent::Spend, NOW).shared);
        assert!(store.apply_all(&[charge, charge], Intent::Spend, NOW)[0].shared);
    }
    assert_eq!(store.bytes_used(), 0);
    store.shrink(seconds(1));
    assert_eq!((store.bytes_used(), store.keys()), (0, 0));
}

#[test]
fn slots_stay_within_the_budget() {
    let budget = 4 * MEGABYTE;
    let limit = limit(Concurrency::new(100, Micros::SECOND));
    let store = MemoryStore::with_budget(budget);
    let fill = |names: std::ops::Range<u64>, now: Timestamp| {
        let own: Vec<u64> = names.filter(|name| !spend(&store, *name, &limit, now).shared).collect();
        assert!(store.bytes_used() <= budget, "{} bytes", store.bytes_used());
        own
    };
    let own = fill(0..5_000, NOW);
    assert!((300..5_000).contains(&own.len()), "{} keys", own.len());
    for name in &own {
        let admitted = (1..400).filter(|_| spend(&store, *name, &limit, NOW).allowed).count();
        assert_eq!(admitted + 1, 100, "what is known has room for all its slots");
    }
    assert!(store.bytes_used() <= budget, "{} bytes", store.bytes_used());
    let again = fill(10_000..15_000, seconds(1));
    assert!(again.len() * 10 > own.len() * 9, "{} keys where {} were", again.len(), own.len());
    store.shrink(seconds(2));
    assert_eq!((store.keys(), store.bytes_used()), (0, 0));
}

#[test]
fn logs_stay_within_the_budget_and_never_admit_more_without_room() {
    let budget = 4 * MEGABYTE;
    let limit = limit(SlidingLog::new(200, Micros::SECOND));
    let store = MemoryStore::with_budget(budget);
    let at = |micros: u64| NOW.plus(Micros::from_micros(micros));
    let own: Vec<u64> = (0..5_000).filter(|name| !spend(&store, *name, &limit, NOW).shared).collect();
    assert_eq!(own.len(), 5_000, "one event each takes little");
    // All want room for 200 events now, of which a few get it.
    for event in 1..250 {
        for name in &own {
            assert_eq!(spend(&store, *name, &limit, at(event)).allowed, event < 200, "event {event} of {name}");
        }
        assert!(store.bytes_used() <= budget, "{} bytes", store.bytes_used());
    }
    assert!(own.iter().all(|name| spend(&store, *name, &limit, at(999_999)).denied()));
    assert!(own.iter().all(|name| spend(&store, *name, &limit, seconds(1)).allowed), "the first event has left");
    let left: Vec<u64> = own.iter().map(|name| peek(&store, *name, &limit, at(1_000_040)).remaining).collect();
    let exact = left.iter().filter(|left| **left == 40).count();
    assert!(left.iter().all(|left| *left <= 40), "more is admitted than have left");
    assert!((1..5_000).contains(&exact), "{exact} have room for more than 40 events");
    assert!(own.iter().all(|name| peek(&store, *name, &limit, at(1_000_199)).remaining >= 198));
    store.shrink(seconds(4));
    assert_eq!((store.keys(), store.bytes_used()), (0, 0));
}

/// Whatever its limit is.
#[test]
fn a_log_takes_memory_in_proportion_to_what_is_in_its_window() {
    let store = MemoryStore::new();
    let (log, other) = (limit(SlidingLog::new(60_000, Micros::SECOND)), window(1, Micros::SECOND));
    spend(&store, 2, &other, NOW);
    let before = store.bytes_used();
    let spend_at = |micros: u64| {
        assert!(spend(&store, 1, &log, NOW.plus(Micros::from_micros(micros))).allowed);
        store.bytes_used() - before
    };
    // With the first blocks of its table.
    let first = 4_096;
    for events in 1..=20_000 {
        let bytes = spend_at(events);
        let most = 2 * 16 * usize::try_from(events).unwrap() + first;
        assert!(bytes < most, "{events} events take {bytes} bytes");
    }
    // All but the last have left the window.
    assert!(spend_at(1_019_999) < first);
    assert!(spend_at(1_030_000) < first);
}

/// A log that was given room for two events and must hold a thousand has to ask for more room.
#[test]
fn a_raised_limit_is_charged_to_the_budget() {
    let budget = 8 * MEGABYTE;
    let store = MemoryStore::with_budget(budget);
    let (few, many) = (limit(SlidingLog::new(2, Micros::HOUR)), limit(SlidingLog::new(1_000, Micros::HOUR)));
    (0..1_000).for_each(|name| assert!(!spend(&store, name, &few, NOW).shared));
    let before = store.bytes_used();
    for name in 0..100 {
        for event in 0..500 {
            assert!(spend(&store, name, &many, NOW.plus(Micros::from_micros(name * 1_000 + event))).allowed);
        }
    }
    let held = 100 * 500 * 16;
    assert!(store.bytes_used() >= before + held, "{} of {held} bytes are accounted for", store.bytes_used() - before);
    assert!(store.bytes_used() <= budget);
}

/// What was stored with room for a few slots has those and no more until there is room again.
#[test]
fn slots_of_a_raised_limit_are_charged_to_the_budget() {
    let budget = 8 * MEGABYTE;
    let store = MemoryStore::with_budget(budget);
    let (few, many) = (limit(Concurrency::new(2, Micros::HOUR)), limit(Concurrency::new(60_000, Micros::HOUR)));
    let filler = window(1, Micros::MINUTE);
    (0..100).for_each(|name| assert!(!spend(&store, name, &few, NOW).shared));
    (0..300_000).for_each(|name| _ = spend(&store, 1_000 + name, &filler, NOW));
    let user = 7u64.to_be_bytes();
    let (values, other): ([&[u8]; 1], [&[u8]; 1]) = ([&user], [b"other"]);
    let acquire = |lease: u64, together: bool, now: Timestamp| {
        let charge = Charge::new(Key::new(1, &values), &many).lease(lease);
        match together {
            false => store.apply_one(&charge, Intent::Spend, now),
            true => store.apply_all(&[charge, Charge::new(Key::new(3, &other), &few)], Intent::Peek, now)[0],
        }
    };
    let admitted = (1..=1_000).filter(|lease| acquire(*lease, false, NOW).allowed).count();
    assert_eq!(admitted, 3, "there is room for four");
    assert!(acquire(2_000, true, NOW).denied(), "also in a stack");
    assert!(store.bytes_used() <= budget, "{} bytes", store.bytes_used());

    store.shrink(seconds(60));
    let before = store.bytes_used();
    assert!((1..=1_000).all(|lease| acquire(lease, false, seconds(60)).allowed));
    assert!(acquire(2_000, true, seconds(60)).allowed);
    assert!(store.bytes_used() >= before + 60_000 * 16, "{} bytes more", store.bytes_used() - before);
}

/// A stack that makes room for a new key must not lose a charge on one that is known and as good as new.
#[test]
fn a_stack_charges_known_keys_while_it_makes_room() {
    let (short, long) = (window(5, Micros::SECOND), window(5, Micros::HOUR));
    let log = limit(SlidingLog::new(5, Micros::SECOND));
    for neighbours in 0..150 {
        let store = MemoryStore::new();
        let user: [&[u8]; 1] = [b"user"];
        let charge = |number: u64, limit| Charge::new(Key::new(number, &user), limit);
        store.apply_one(&charge(1_000, &short).cost(5), Intent::Spend, NOW);
        store.apply_one(&charge(1_001, &log).cost(5), Intent::Spend, NOW);
        for number in 0..neighbours {
            store.apply_one(&charge(number, &long), Intent::Spend, NOW);
        }
        let later = seconds(2);
        let stack = [charge(1_000, &short), charge(1_001, &log), charge(2_000, &long)];
        let first = store.apply_all(&stack, Intent::Spend, later);
        let after: Vec<u64> = stack.iter().map(|one| store.apply_one(one, Intent::Peek, later).remaining).collect();
        assert!(first.iter().all(|outcome| outcome.allowed));
        assert_eq!(after, [4, 4, 4], "with {neighbours} neighbours");
    }
}

/// A stack takes all its keys along to the latest time that one of them has seen, and they stay there.
#[test]
fn time_given_backwards_earns_nothing() {
    let (short, long) = (window(5, Micros::from_secs(50)), window(5, Micros::HOUR));
    // Some of these make the store rebuild a table, and so forget what is stale; whose lock is first is up to chance.
    for neighbours in (30..45).cycle().take(150) {
        let store = MemoryStore::new();
        let (user, other): ([&[u8]; 1], [&[u8]; 1]) = ([b"user"], [b"other"]);
        let charge = |number: u64, limit| Charge::new(Key::new(number, &user), limit);
        let victim = charge(1_000, &short);
        store.apply_one(&victim.cost(5), Intent::Spend, NOW);
        for number in 0..neighbours {
            store.apply_one(&charge(number, &long), Intent::Spend, NOW);
        }
        let ahead = Charge::new(Key::new(1, &other), &long);
        store.apply_one(&ahead, Intent::Spend, seconds(100));
        store.apply_all(&[charge(2_000, &long), ahead], Intent::Spend, seconds(1));
        // It is 100 seconds later for the victim too: a window begins now and lasts 50 seconds.
        assert!(store.apply_one(&victim.cost(5), Intent::Spend, seconds(2)).allowed);
        assert!(store.apply_one(&victim, Intent::Spend, seconds(149)).denied(), "with {neighbours} neighbours");
        assert!(store.apply_one(&victim, Intent::Spend, seconds(150)).allowed);
    }
}

#[test]
fn an_idle_key_is_full_again_without_anyone_having_touched_it() {
    let store = MemoryStore::new();
    let bucket = limit(TokenBucket::new(Rate::per_second(10)));
    (0..100_000).for_each(|name| _ = spend(&store, name, &bucket, NOW));
    let used = store.bytes_used();
    for (later, remaining) in [(0, 9), (3_600, 10)] {
        for name in (0..100_000).step_by(1_000) {
            assert_eq!(peek(&store, name, &bucket, seconds(later)).remaining, remaining);
        }
    }
    assert_eq!(store.bytes_used(), used, "looking costs nothing");
}

#[test]
fn threads_that_flood_stay_within_the_budget_together() {
    let budget = 3 * MEGABYTE;
    let store = MemoryStore::with_budget(budget);
    let (window, log) = (window(3, Micros::HOUR), limit(SlidingLog::new(4, Micros::HOUR)));
    std::thread::scope(|scope| {
        for thread in 0..8u64 {
            let (store, window, log) = (&store, &window, &log);
            scope.spawn(move || {
                for name in 0..10_000 {
                    spend(store, thread << 32 | name, if name % 3 == 0 { log } else { window }, NOW);
                    assert!(store.bytes_used() <= budget);
                }
            });
        }
    });
    store.shrink(NOW.plus(Micros::DAY));
    assert_eq!((store.keys(), store.bytes_used()), (0, 0), "what was taken is given back");
}

#[test]
fn slots_taken_on_a_shared_counter_can_be_peeked_renewed_and_given_back() {
    let store = MemoryStore::with_budget(0);
    let limit = Limit::new(Concurrency::new(2, Micros::HOUR)).unwrap();
    let tenant: [&[u8]; 1] = [b"tenant"];
    let lease = |number| Charge::new(Key::new(1, &tenant), &limit).lease(number);
    let refund = Intent::Refund { charged_at: NOW };
    for together in [false, true] {
        let apply = |number: u64, intent: Intent| match together {
            false => store.apply_one(&lease(number), intent, NOW),
            true => {
                let other: [&[u8]; 1] = [b"other"];
                let window = window(1_000, Micros::HOUR);
                let charges = [lease(number), Charge::new(Key::new(2, &other), &window)];
                store.apply_all(&charges, intent, NOW)[0]
            }
        };
        assert!(apply(1, Intent::Spend).allowed && apply(2, Intent::Spend).shared);
        assert!(apply(3, Intent::Peek).denied() && apply(3, Intent::Spend).denied());
        assert!(apply(2, Intent::Renew).allowed && apply(3, Intent::Renew).denied());
        assert_eq!(apply(1, refund).remaining, 1);
        assert!(apply(3, Intent::Peek).allowed && apply(3, Intent::Spend).allowed);
        apply(2, refund);
        apply(3, refund);
    }
}

#[test]
fn what_is_missing_of_a_reservation_is_charged_even_without_room() {
    // Room for a reservation or two, and for no key.
    let store = MemoryStore::with_budget(20_000);
    let (limit, neighbour) = (window(10, Micros::HOUR), window(1, Micros::HOUR));
    (0..10_000).for_each(|name| _ = spend(&store, name, &neighbour, NOW));
    let user: [&[u8]; 1] = [b"user"];
    let charge = Charge::new(Key::new(2, &user), &limit);
    let (outcomes, id) = store.reserve_all(&[charge], Micros::MINUTE, NOW);
    assert!(outcomes[0].shared);
    store.settle_now(id.unwrap(), Settlement::CommitActual(&[7]), NOW);
    assert_eq!(store.apply_one(&charge, Intent::Peek, NOW).remaining, 3);
}

/// Whoever asks for what no limit counts may do so without end.
#[test]
fn reservations_of_nothing_take_no_memory_and_can_be_settled() {
    let store = MemoryStore::with_budget(0);
    let reserved = || store.reserve_all(&[], Micros::HOUR, NOW).1.unwrap();
    for settlement in [Settlement::Commit, Settlement::Cancel, Settlement::CommitActual(&[3])] {
        let ids: Vec<_> = (0..1_000).map(|_| reserved()).collect();
        assert_eq!(store.bytes_used(), 0);
        assert!(ids.into_iter().all(|id| store.settle_now(id, settlement, NOW) == Settled::Done));
    }
    let another = MemoryStore::with_budget(0);
    assert_eq!(another.settle_now(reserved(), Settlement::Commit, NOW), Settled::Unknown);
}

#[test]
fn what_was_reserved_at_no_cost_may_turn_out_to_cost_something() {
    let (store, limit) = (MemoryStore::new(), window(10, Micros::HOUR));
    let user: [&[u8]; 1] = [b"user"];
    let charge = Charge::new(Key::new(1, &user), &limit);
    let (_, id) = store.reserve_all(&[charge.cost(0)], Micros::MINUTE, NOW);
    assert_eq!(store.settle_now(id.unwrap(), Settlement::CommitActual(&[7]), NOW), Settled::Done);
    assert_eq!(store.apply_one(&charge, Intent::Peek, NOW).remaining, 3);
    assert_eq!(store.settle_now(id.unwrap(), Settlement::Commit, NOW), Settled::Unknown);
}

/// Whatever they cost: nothing bounds how many there are of those that cost nothing.
#[test]
fn open_reservations_stay_within_their_part_of_the_budget() {
    let (budget, limit) = (MEGABYTE, window(100_000, Micros::HOUR));
    let user: [&[u8]; 1] = [b"user"];
    for cost in [0, 1] {
        let store = MemoryStore::with_budget(budget);
        let charge = Charge::new(Key::new(1, &user), &limit);
        assert!(store.admit_one(&charge, NOW));
        let before = store.bytes_used();
        let reserve = |now| store.reserve_all(&[charge.cost(cost)], Micros::MINUTE, now);
        let fill = |now| -> Vec<_> { (0..10_000).map_while(|_| reserve(now).1).collect() };
        let open = fill(NOW);
        assert!((50..200).contains(&open.len()), "{} reservations", open.len());
        assert!(store.bytes_used() <= before + budget / 16, "{} bytes", store.bytes_used());
        assert!(!spend(&store, 7, &limit, NOW).shared, "keys have their own part");

        let left = store.apply_one(&charge, Intent::Peek, NOW).remaining;
        let refused = reserve(seconds(20)).0[0];
        assert!(refused.denied() && refused.shared);
        assert_eq!(refused.retry_after, Some(Micros::from_secs(40)), "until the first of them ends");
        assert_eq!(store.apply_one(&charge, Intent::Peek, NOW).remaining, left, "it was charged");

        assert!(store.settle_now(open[0], Settlement::Cancel, seconds(20)) == Settled::Done);
        assert!(reserve(seconds(20)).1.is_some(), "there is room for another");
        assert!(reserve(seconds(20)).1.is_none());
        assert!(reserve(seconds(60)).1.is_some(), "the others have ended");
        let held = left + (open.len() as u64 - 2) * cost;
        assert_eq!(store.apply_one(&charge, Intent::Peek, seconds(60)).remaining, held);
    }
}

#[test]
fn a_flood_of_keys_leaves_room_for_reservations() {
    let store = MemoryStore::with_budget(MEGABYTE);
    let limit = window(100_000, Micros::HOUR);
    (0..100_000).for_each(|name| _ = spend(&store, name, &limit, NOW));
    let user: [&[u8]; 1] = [b"user"];
    let charge = Charge::new(Key::new(1, &user), &limit);
    for _ in 0..1_000 {
        let (outcomes, id) = store.reserve_all(&[charge], Micros::MINUTE, NOW);
        assert!(outcomes[0].shared);
        assert_eq!(store.settle_now(id.unwrap(), Settlement::Cancel, NOW), Settled::Done);
    }
}

#[test]
fn a_store_without_a_budget_has_no_reservations() {
    let (store, limit) = (MemoryStore::with_budget(0), window(5, Micros::HOUR));
    let user: [&[u8]; 1] = [b"user"];
    let charge = Charge::new(Key::new(1, &user), &limit);
    let (outcomes, id) = store.reserve_all(&[charge, charge], Micros::MINUTE, NOW);
    assert!(id.is_none());
    assert!(outcomes.iter().all(|outcome| outcome.denied() && outcome.can_never_fit() && outcome.remaining == 5));
    assert_eq!(store.bytes_used(), 0);
}

#[test]
fn a_small_budget_is_not_spread_over_too_many_tables() {
    let store = MemoryStore::with_budget(MEGABYTE);
    let limit = window(5, Micros::SECOND);
    let own = (0..40_000).filter(|name| !spend(&store, *name, &limit, NOW).shared).count();
    assert!(own * 48 > MEGABYTE, "room for {own} keys only");
    let late = NOW.plus(Micros::DAY);
    let shared = (50_000..51_000).filter(|name| spend(&store, *name, &limit, late).shared).count();
    assert!(shared < 100, "{shared} of 1,000 keys share although all others are stale");
    // Keys that need more than a cell find room as well.
    let log = Limit::new(SlidingLog::new(100, Micros::SECOND)).unwrap();
    let store = MemoryStore::with_budget(MEGABYTE);
    (0..30_000).for_each(|name| _ = spend(&store, name, &limit, NOW));
    let shared = (0..50).filter(|name| spend(&store, *name, &log, late).shared).count();
    assert!(shared < 25, "{shared} of 50 logs share although everything is stale");
}

#[test]
fn a_refund_of_a_key_without_a_counter_of_its_own_gives_nothing_to_others() {
    let store = MemoryStore::with_budget(0);
    let bucket = limit(TokenBucket::new(Rate::new(5, Micros::HOUR)));
    (0..5).for_each(|name| assert!(spend(&store, name, &bucket, NOW).allowed));
    for name in 100..110 {
        ask(&store, &u64::to_be_bytes(name), &bucket, 1, Intent::Refund { charged_at: NOW }, NOW);
    }
    assert!(spend(&store, 200, &bucket, NOW).denied());
}
