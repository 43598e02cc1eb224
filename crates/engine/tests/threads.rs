//! Threads of the operating system on one store: exact under any schedule that this machine comes up with.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};

use tollgate::{
    Charge, Concurrency, FixedWindow, Intent, Key, Limit, MemoryStore, Micros, Settled, Settlement, SlidingLog,
    Timestamp,
};
use tollgate_sim::conformance::{Model, one_of_each};

const NOW: Timestamp = Timestamp::from_secs(1_700_000_000);
const THREADS: usize = 64;
const USER: &[&[u8]] = &[b"user"];

/// Runs a job on many threads that start together, and adds up what they return.
fn together(threads: usize, job: impl Fn(usize) -> u64 + Sync) -> u64 {
    let start = Barrier::new(threads);
    std::thread::scope(|scope| {
        let run = |number: usize| {
            let (start, job) = (&start, &job);
            scope.spawn(move || {
                start.wait();
                job(number)
            })
        };
        let running: Vec<_> = (0..threads).map(run).collect();
        running.into_iter().map(|thread| thread.join().unwrap()).sum()
    })
}

#[test]
fn sixty_four_threads_admit_exactly_the_limit_of_every_algorithm() {
    for limit in one_of_each().unwrap() {
        let charge = Charge::new(Key::new(1, USER), &limit);
        let line = Model::default();
        let in_line: u64 = (0..200).map(|_| u64::from(line.apply_all(&[charge], Intent::Spend, NOW)[0].allowed)).sum();
        for quick in [true, false] {
            let store = MemoryStore::new();
            let admitted = together(THREADS, |_| {
                let admit = |_| match quick {
                    true => store.admit_one(&charge, NOW),
                    false => store.apply_one(&charge, Intent::Spend, NOW).allowed,
                };
                (0..5).map(|try_number: u64| u64::from(admit(try_number))).sum()
            });
            assert_eq!(admitted, in_line, "{:?}", limit.algorithm());
        }
    }
}

/// Stacks on one entity, on several, and in opposite orders: each counter has given out what its users got.
#[test]
fn stacks_in_any_order_stay_exact() {
    const ENTITIES: [&[&[u8]]; 3] = [&[b"a"], &[b"b"], &[b"c"]];
    const ORDERS: [&[usize]; 6] = [&[0, 1], &[1, 0], &[1, 2], &[2, 0], &[2, 1, 0], &[0]];
    let windows = Limit::new(FixedWindow::new(4_000, Micros::HOUR)).unwrap();
    let log = Limit::new(SlidingLog::new(4_000, Micros::HOUR)).unwrap();
    let store = MemoryStore::new();
    let given: Vec<AtomicU64> = ENTITIES.iter().map(|_| AtomicU64::new(0)).collect();
    let charges_on = |entity: usize| {
        [Charge::new(Key::new(1, ENTITIES[entity]), &windows), Charge::new(Key::new(2, ENTITIES[entity]), &log)]
    };
    together(12, |number| {
        let order = ORDERS[number % ORDERS.len()];
        let stack: Vec<Charge<'_>> = order.iter().flat_map(|entity| charges_on(*entity)).collect();
        for _ in 0..800 {
            if store.admit_all(&stack, NOW) {
                order.iter().for_each(|entity| _ = given[*entity].fetch_add(1, Ordering::Relaxed));
            }
        }
        0
    });
    for (entity, given) in given.iter().enumerate() {
        for charge in charges_on(entity) {
            let left = store.apply_one(&charge, Intent::Peek, NOW).remaining;
            assert_eq!(left, 4_000 - given.load(Ordering::Relaxed), "{}", entity);
        }
    }
}

#[test]
fn reservations_that_expire_while_they_are_settled_are_given_back_once() {
    let window = Limit::new(FixedWindow::new(1_000, Micros::HOUR)).unwrap();
    for round in 0..40 {
        let store = MemoryStore::new();
        let charge = Charge::new(Key::new(1, USER), &window);
        let open: Vec<_> =
            (0..100).map(|_| store.reserve_all(&[charge.cost(2)], Micros::SECOND, NOW).1.unwrap()).collect();
        let due = NOW.plus(Micros::SECOND);
        let committed = together(4, |number| {
            let now = if number % 2 == 0 { NOW } else { due };
            let settle = |id| store.settle_now(id, Settlement::Commit, now) == Settled::Done;
            open.iter().map(|id| u64::from(settle(*id))).sum()
        });
        let left = store.apply_one(&charge, Intent::Peek, due).remaining;
        assert_eq!(left, 1_000 - 2 * committed, "round {round}");
    }
}

#[test]
fn slots_are_never_held_by_more_than_there_are() {
    let slots = Limit::new(Concurrency::new(5, Micros::HOUR)).unwrap();
    let store = MemoryStore::new();
    let inside = AtomicU64::new(0);
    let passed = together(16, |number| {
        let charge = Charge::new(Key::new(1, USER), &slots).lease(number as u64);
        let mut passed = 0;
        for _ in 0..500 {
            if store.admit_one(&charge, NOW) {
                assert!(inside.fetch_add(1, Ordering::SeqCst) < 5);
                std::thread::yield_now();
                inside.fetch_sub(1, Ordering::SeqCst);
                store.apply_one(&charge, Intent::Refund { charged_at: NOW }, NOW);
                passed += 1;
            }
        }
        passed
    });
    assert!(passed > 0);
    assert_eq!(store.apply_one(&Charge::new(Key::new(1, USER), &slots), Intent::Peek, NOW).remaining, 5);
}

/// In memory time never runs back, however late a thread is: what is late counts in the window that is.
#[test]
fn windows_roll_under_threads_that_are_late_by_whole_windows() {
    const LIMIT: u64 = 25;
    const WINDOWS: u64 = 20;
    let window = Micros::from_millis(48);
    let start = NOW.minus(Micros::from_micros(NOW.as_micros() % window.as_micros()));
    for limit in
        [Limit::new(FixedWindow::new(LIMIT, window)).unwrap(), Limit::new(Concurrency::new(LIMIT, window)).unwrap()]
    {
        let store = MemoryStore::new();
        let charge = Charge::new(Key::new(1, USER), &limit);
        let admitted = together(16, |_| {
            let asks = (0..WINDOWS).flat_map(|window| std::iter::repeat_n(window, LIMIT as usize));
            let at = |number: u64| start.plus(Micros::from_micros(number * window.as_micros()));
            asks.map(|number| u64::from(store.apply_one(&charge, Intent::Spend, at(number)).allowed)).sum()
        });
        assert_eq!(admitted, LIMIT * WINDOWS);
    }
}
