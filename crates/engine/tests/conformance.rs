//! The memory store keeps the contract of a store: when it is new, when its blocks are full, and, for all keys of a
//! limit as if they were one, when there is no room at all.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use tollgate::{
    Charge, FixedWindow, Intent, Key, Limit, MemoryStore, Micros, Outcome, Rate, Timestamp, TokenBucket, Window,
};
use tollgate_sim::conformance::{Model, one_of_each};
use tollgate_sim::workload::Rng;

/// When the suite begins.
const NOW: Timestamp = Timestamp::from_secs(1_700_000_000);

tollgate_sim::conformance_tests! {
    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    given_time: || async { MemoryStore::new() }
}

mod crowded {
    use super::*;

    /// A few tables, of which every block has others in it that stay: so counters are behind their blocks, come
    /// forward, and make tables grow.
    fn store() -> MemoryStore {
        let store = MemoryStore::with_budget(4 << 20);
        let others = Limit::new(FixedWindow::in_window(1, Window::FirstEvent { length: Micros::DAY })).unwrap();
        for name in 0..4_000u64 {
            let values: [&[u8]; 1] = [&name.to_be_bytes()];
            assert!(!store.apply_one(&Charge::new(Key::new(u64::MAX, &values), &others), Intent::Spend, NOW).shared);
        }
        store
    }

    tollgate_sim::conformance_tests! {
        #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
        given_time: || async { store() }
    }
}

/// A block has five counters, so of nine on one entity some are always behind it.
#[test]
fn stacks_with_counters_behind_their_block_are_charged_and_denied_as_one() {
    const USER: &[&[u8]] = &[b"user"];
    let limit = |number: u64| match number % 3 {
        0 => Limit::new(FixedWindow::in_window(10 + number, Window::FirstEvent { length: Micros::HOUR })),
        1 => Limit::new(TokenBucket::new(Rate::new(10 + number, Micros::HOUR))),
        _ => Limit::new(FixedWindow::new(10 + number, Micros::HOUR).record_rejected()),
    };
    let limits: Vec<Limit> = (0..9).map(|number| limit(number).unwrap()).collect();
    let (mut denied, mut rng) = (0, Rng::new(1));
    for _ in 0..200 {
        let (store, model) = (MemoryStore::new(), Model::default());
        let mut now = NOW;
        for call in 0..80 {
            now = now.plus(Micros::from_micros(rng.below(100)));
            let mut stack: Vec<Charge<'_>> = Vec::new();
            for (number, limit) in (0..9).zip(&limits) {
                if rng.below(3) == 0 {
                    stack.push(Charge::new(Key::new(number, USER), limit).cost(1 + rng.below(3)));
                }
            }
            stack.truncate(4);
            let answered = store.apply_all(&stack, Intent::Spend, now);
            assert_eq!(answered, model.apply_all(&stack, Intent::Spend, now), "call {call}: {stack:?}");
            denied += u64::from(answered.iter().any(Outcome::denied));
            let admitted = store.admit_all(&stack, now);
            assert_eq!(admitted, model.apply_all(&stack, Intent::Spend, now).iter().all(|one| one.allowed));
        }
    }
    assert!((2_000..14_000).contains(&denied), "{denied} of 16,000 are denied");
}

#[test]
fn keys_for_which_there_is_no_room_are_counted_as_one_key() {
    const NAMES: [&[&[u8]]; 4] = [&[b"a"], &[b"b"], &[b"c", b"d"], &[]];
    let limits: Vec<Limit> = one_of_each().unwrap().into_iter().filter(|limit| !limit.spreads_keys()).collect();
    let mut rng = Rng::new(2);
    for _ in 0..100 {
        let (store, model) = (MemoryStore::with_budget(0), Model::default());
        let mut now = NOW;
        for call in 0..60 {
            now = now.plus(Micros::from_millis(rng.below(500)));
            let intent = [Intent::Spend, Intent::Spend, Intent::Force, Intent::Peek][rng.below(4) as usize];
            let charges: Vec<(usize, usize, u64)> = (0..=rng.below(3))
                .map(|_| (rng.below(4) as usize, rng.below(limits.len() as u64) as usize, rng.below(4)))
                .collect();
            let by = |values: fn(usize) -> &'static [&'static [u8]]| -> Vec<Charge<'_>> {
                let charge = |(name, number, cost): &(usize, usize, u64)| {
                    Charge::new(Key::new(*number as u64, values(*name)), &limits[*number]).cost(*cost).lease(7)
                };
                charges.iter().map(charge).collect()
            };
            let (theirs, one) = (by(|name| NAMES[name]), by(|_| &[]));
            let answered = store.apply_all(&theirs, intent, now);
            let is_known = store.shared_charges() > 0;
            let mut expected = model.apply_all(&one, intent, now);
            expected.iter_mut().for_each(|outcome| outcome.shared = is_known);
            assert_eq!(answered, expected, "call {call}: {intent:?} {theirs:?}");
        }
        assert_eq!(store.bytes_used(), 0);
    }
}
