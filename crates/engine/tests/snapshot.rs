//! States on disk: whole or refused, and never better than what was saved.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};

use tollgate::{
    Algorithm, Charge, FixedWindow, Intent, Key, Limit, MemoryStore, Micros, Outcome, Settled, Settlement, SlidingLog,
    Timestamp, TokenBucket, Window,
};
use tollgate_sim::conformance::one_of_each;
use tollgate_sim::laws::clocks::longest_wait;

const NOW: Timestamp = Timestamp::from_secs(1_700_000_000);
const BUDGET: usize = 64 << 20;
const NAMES: [&[&[u8]]; 3] = [&[b"alice"], &[b"bob", b"/search"], &[]];

fn limit(algorithm: impl Into<Algorithm>) -> Limit {
    Limit::new(algorithm).unwrap()
}

fn window(limit: u64, length: Micros) -> Limit {
    self::limit(FixedWindow::in_window(limit, Window::FirstEvent { length }))
}

fn seconds(seconds: u64) -> Timestamp {
    NOW.plus(Micros::from_secs(seconds))
}

/// A place for one test's file, with nothing in it.
fn place(test: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("snapshot-{test}"));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder.join("states")
}

fn load(path: &Path, now: Timestamp) -> Result<MemoryStore, String> {
    MemoryStore::load_snapshot(path, BUDGET, now).map_err(|error| error.to_string())
}

/// Asks both the same for a while.
fn go_on_alike(one: &MemoryStore, other: &MemoryStore, limits: &[Limit], from: Timestamp) {
    for round in 0..30 {
        let now = from.plus(Micros::from_micros(round * 4_321));
        for (number, limit) in (0..).zip(limits) {
            for (values, lease) in NAMES.into_iter().zip(0..) {
                let charge = Charge::new(Key::new(number, values), limit).lease(lease);
                let cost = 1 + (round + number) % 3;
                for intent in [Intent::Peek, Intent::Spend, Intent::Renew, Intent::Refund { charged_at: now }] {
                    let [a, b] = [one, other].map(|store| store.apply_one(&charge.cost(cost), intent, now));
                    assert_eq!(a, b, "round {round} {intent:?} {:?}", limit.algorithm());
                }
            }
        }
    }
}

#[test]
fn a_loaded_store_goes_on_where_the_saved_one_was() {
    let (path, limits) = (place("round-trip"), one_of_each().unwrap());
    for age in [0, 1, 5_000, 20_000, 40_000, 200_000] {
        let store = MemoryStore::new();
        for round in 0..12 {
            let now = NOW.plus(Micros::from_micros(round * 3_456));
            for (number, limit) in (0..).zip(&limits) {
                for (values, lease) in NAMES.into_iter().zip(0..) {
                    let charge = Charge::new(Key::new(number, values), limit).lease(lease);
                    store.apply_one(&charge, if round == 5 { Intent::Force } else { Intent::Spend }, now);
                }
            }
        }
        let later = NOW.plus(Micros::from_micros(12 * 3_456 + age));
        store.save_snapshot(&path, later).unwrap();
        let loaded = load(&path, later).unwrap();
        assert!(loaded.keys() <= store.keys());
        go_on_alike(&store, &loaded, &limits, later);
    }
}

/// The same snapshot as version 2 had it: with all 128 bits of each hash, of which fewer are kept now.
fn as_version_2(bytes: &[u8]) -> Vec<u8> {
    const HEAD: usize = 8 + 4 + 192;
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let mut before = [b"TOLLGATE", &[2, 0, 0, 0][..], &bytes[12..HEAD]].concat();
    let mut at = HEAD;
    while (word(at), word(at + 8)) != (u64::MAX, u64::MAX) {
        let (cut_off_high, cut_off_low) = (0x1234_5678 ^ at as u64, 0x1a_bcde ^ at as u64);
        before.extend((word(at) | cut_off_high).to_le_bytes());
        before.extend((cut_off_low << 43 | (word(at + 8) ^ cut_off_low)).to_le_bytes());
        let end = at + 48 + 16 * word(at + 40) as usize;
        before.extend(&bytes[at + 16..end]);
        at = end;
    }
    before.extend([0xff; 16]);
    let sum = xxhash_rust::xxh3::xxh3_128(&before);
    before.extend(sum.to_le_bytes());
    before
}

#[test]
fn snapshots_of_version_2_go_on_where_they_were() {
    let (path, limits) = (place("before"), one_of_each().unwrap());
    let store = MemoryStore::new();
    for (number, limit) in (0..).zip(&limits) {
        for (values, lease) in NAMES.into_iter().zip(0..) {
            let charge = Charge::new(Key::new(number, values), limit).lease(lease);
            (0..3).for_each(|_| _ = store.apply_one(&charge, Intent::Spend, NOW));
        }
    }
    store.save_snapshot(&path, NOW).unwrap();
    let before = as_version_2(&std::fs::read(&path).unwrap());
    std::fs::write(&path, &before).unwrap();
    let loaded = load(&path, NOW).unwrap();
    assert_eq!(loaded.keys(), store.keys());
    go_on_alike(&store, &loaded, &limits, NOW);
}

#[test]
fn shared_counters_are_saved_too() {
    let (path, limits) = (place("shared"), one_of_each().unwrap());
    let store = MemoryStore::with_budget(0);
    for (number, limit) in (0..).zip(&limits) {
        for values in NAMES {
            let outcome = store.apply_one(&Charge::new(Key::new(number, values), limit), Intent::Spend, NOW);
            assert!(outcome.shared || outcome.limit == 0);
        }
    }
    store.save_snapshot(&path, NOW).unwrap();
    let loaded = MemoryStore::load_snapshot(&path, 0, NOW).unwrap();
    assert_eq!((loaded.keys(), loaded.bytes_used()), (store.keys(), 0));
    for (number, limit) in (0..).zip(&limits) {
        for values in NAMES {
            let charge = Charge::new(Key::new(number, values), limit);
            let [a, b] = [&store, &loaded].map(|store| store.apply_one(&charge, Intent::Spend, NOW));
            assert_eq!(a, b, "{:?}", limit.algorithm());
        }
    }
    loaded.shrink(seconds(1_000_000));
    assert_eq!((loaded.keys(), loaded.bytes_used()), (0, 0));
}

/// A small snapshot with a bit of everything in it.
fn small(test: &str) -> (PathBuf, Vec<u8>) {
    let path = place(test);
    let store = MemoryStore::new();
    let (log, window) = (limit(SlidingLog::new(3, Micros::HOUR)), window(9, Micros::HOUR));
    for (number, limit) in [(1, &log), (2, &window)] {
        for second in 0..2 {
            store.apply_one(&Charge::new(Key::new(number, NAMES[0]), limit), Intent::Spend, seconds(second));
        }
    }
    store.save_snapshot(&path, NOW).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    (path, bytes)
}

#[test]
fn a_file_that_is_cut_short_is_refused_at_every_length() {
    let (path, bytes) = small("cut");
    for length in 0..bytes.len() {
        std::fs::write(&path, &bytes[..length]).unwrap();
        let refused = load(&path, NOW).unwrap_err();
        assert!(refused.ends_with("it is cut short or damaged; start without it"), "{length}: {refused}");
    }
    std::fs::write(&path, &bytes).unwrap();
    assert_eq!(load(&path, NOW).unwrap().keys(), 2);
    std::fs::write(&path, [&bytes[..], b"\n"].concat()).unwrap();
    assert!(load(&path, NOW).unwrap_err().ends_with("damaged; start without it"), "something was appended");
}

#[test]
fn a_file_with_any_byte_changed_is_refused() {
    let (path, bytes) = small("changed");
    for index in 0..bytes.len() {
        for change in [0x01, 0x80, 0xff] {
            let mut changed = bytes.clone();
            changed[index] ^= change;
            std::fs::write(&path, &changed).unwrap();
            assert!(load(&path, NOW).is_err(), "byte {index} xor {change:#x}");
        }
    }
}

#[test]
fn every_refusal_says_which_file_and_why() {
    let (path, bytes) = small("texts");
    let told = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        load(&path, NOW).unwrap_err()
    };
    let at = format!("snapshot {}: ", path.display());
    assert_eq!(told(b"{\"states\": []}"), format!("{at}this is not a snapshot of tollgate"));
    assert_eq!(told(b""), format!("{at}it is cut short or damaged; start without it"));
    for version in [1, 4] {
        let other = [b"TOLLGATE", &[version, 0, 0, 0][..], &bytes[12..]].concat();
        assert_eq!(told(&other), format!("{at}version {version} is not understood, only 2 and 3; start without it"));
    }
    std::fs::remove_file(&path).unwrap();
    let missing = load(&path, NOW).unwrap_err();
    assert!(missing.starts_with(&at) && missing.contains("No such file"), "{missing}");
    let unwritable = path.join("below-a-file-that-is-not-there");
    let refused = MemoryStore::new().save_snapshot(&unwritable, NOW).unwrap_err().to_string();
    assert!(refused.starts_with(&format!("snapshot {}: ", unwritable.display())), "{refused}");
}

#[test]
fn a_save_that_fails_leaves_what_was_there_and_nothing_beside_it() {
    // A file cannot take the place of a folder.
    let path = place("failed");
    std::fs::create_dir(&path).unwrap();
    let store = MemoryStore::new();
    store.apply_one(&Charge::new(Key::new(1, NAMES[1]), &window(1, Micros::HOUR)), Intent::Spend, NOW);
    assert!(store.save_snapshot(&path, NOW).is_err());
    assert!(path.is_dir());
    assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    std::fs::remove_dir(&path).unwrap();
    store.save_snapshot(&path, NOW).unwrap();
    assert_eq!(load(&path, NOW).unwrap().keys(), 1);
    assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
}

#[test]
fn a_file_that_is_read_late_has_expired_in_part() {
    let path = place("late");
    let (short, long) = (window(3, Micros::SECOND), window(3, Micros::HOUR));
    let store = MemoryStore::new();
    let [short, long] = [(1, &short), (2, &long)].map(|(number, limit)| Charge::new(Key::new(number, NAMES[0]), limit));
    for charge in [short, long] {
        store.apply_one(&charge.cost(3), Intent::Spend, NOW);
    }
    store.save_snapshot(&path, NOW).unwrap();
    let loaded = load(&path, seconds(1)).unwrap();
    assert_eq!(loaded.keys(), 1);
    assert!(loaded.apply_one(&long, Intent::Spend, seconds(1)).denied());
    assert_eq!(load(&path, seconds(3_600)).unwrap().keys(), 0);
    // What was left out as stale is not missed by someone whose clock is behind: a second begins when it was loaded.
    let loaded = load(&path, seconds(1)).unwrap();
    assert!(loaded.apply_one(&short.cost(3), Intent::Spend, NOW).allowed);
    assert!(loaded.apply_one(&short, Intent::Spend, NOW.plus(Micros::from_micros(1_999_999))).denied());
    assert!(loaded.apply_one(&short, Intent::Spend, seconds(2)).allowed);
}

/// The clock was set back by a day: nobody is forgiven, and nobody is locked out for that day by a bucket.
#[test]
fn a_file_from_the_future_resets_nobody() {
    let (path, limits) = (place("future"), one_of_each().unwrap());
    let store = MemoryStore::new();
    let spend = |store: &MemoryStore, now: Timestamp| -> Vec<Outcome> {
        let charges = (0..).zip(&limits).map(|(number, limit)| Charge::new(Key::new(number, NAMES[0]), limit));
        charges.map(|charge| store.apply_one(&charge, Intent::Spend, now)).collect()
    };
    (0..40).for_each(|_| drop(spend(&store, NOW)));
    store.save_snapshot(&path, NOW).unwrap();
    let before = NOW.minus(Micros::DAY);
    let loaded = load(&path, before).unwrap();
    assert!(spend(&loaded, before).iter().all(Outcome::denied));
    let bucket = limit(TokenBucket::new(tollgate::Rate::new(1, Micros::from_millis(12))).burst(4));
    let first = Charge::new(Key::new(0, NAMES[0]), &bucket);
    assert!(loaded.apply_one(&first, Intent::Peek, before.plus(Micros::SECOND)).allowed);
}

#[test]
fn a_smaller_budget_forgets_nobody_and_has_no_room_for_new_keys() {
    let path = place("smaller");
    let window = window(5, Micros::HOUR);
    let store = MemoryStore::new();
    let charge = |name: &[u8], cost, intent, store: &MemoryStore| {
        store.apply_one(&Charge::new(Key::new(1, &[name]), &window).cost(cost), intent, NOW)
    };
    for name in 0..100_000u32 {
        charge(&name.to_be_bytes(), 2, Intent::Spend, &store);
    }
    store.save_snapshot(&path, NOW).unwrap();
    let budget = 3 << 20;
    let loaded = MemoryStore::load_snapshot(&path, budget, NOW).unwrap();
    assert_eq!(loaded.keys(), 100_000);
    assert!((0..100_000u32).all(|name| charge(&name.to_be_bytes(), 1, Intent::Peek, &loaded).remaining == 3));
    let used = loaded.bytes_used();
    let own = (200_000..300_000u32).filter(|name| !charge(&name.to_be_bytes(), 1, Intent::Spend, &loaded).shared);
    let (own, then) = (own.count(), loaded.bytes_used());
    assert!(own < 40_000 && used > budget && then <= used, "only what was empty is filled: {own}, {used}, {then}");
}

/// Nothing is earned by it, and nobody waits until the clock is where it was.
#[test]
fn a_snapshot_that_is_loaded_by_a_clock_that_was_set_back_locks_nobody_out() {
    let (path, limits) = (place("set-back"), one_of_each().unwrap());
    let store = MemoryStore::new();
    let charges: Vec<_> = (0..)
        .zip(limits.iter().filter(|limit| limit.most() > 0))
        .map(|(number, limit)| Charge::new(Key::new(number, NAMES[0]), limit))
        .collect();
    for charge in &charges {
        let denied = (0..100).any(|_| store.apply_one(charge, Intent::Spend, NOW).denied());
        assert!(denied, "{:?}", charge.limit.algorithm());
    }
    store.save_snapshot(&path, NOW).unwrap();
    for back in [Micros::from_secs(1), Micros::HOUR, Micros::YEAR] {
        let now = NOW.minus(back);
        for charge in &charges {
            let (algorithm, soft) = (charge.limit.algorithm(), charge.limit.softness());
            let loaded = load(&path, now).unwrap();
            let denied = loaded.apply_one(charge, Intent::Spend, now);
            assert!(denied.denied(), "{back} back earns nothing: {algorithm:?}");
            let wait = denied.retry_after.unwrap();
            // Above the limit there is no more than there is within it.
            let longest = longest_wait(algorithm, now).as_micros() * if soft.is_some() { 2 } else { 1 };
            assert!(wait.as_micros() <= longest, "{wait} to wait, {back} back: {algorithm:?}");
            let half = now.plus(Micros::from_micros(wait.as_micros() / 2));
            let again = loaded.apply_one(charge, Intent::Spend, half);
            let due = half.plus(again.retry_after.unwrap());
            assert!(again.denied() && (due == now.plus(wait) || counts_denials(algorithm)), "{again:?}: {algorithm:?}");
            assert!(loaded.apply_one(charge, Intent::Spend, due).allowed, "{back} back, after {wait}: {algorithm:?}");
        }
    }
}

fn counts_denials(algorithm: &Algorithm) -> bool {
    match algorithm {
        Algorithm::SlidingLog(log) => log.record_rejected,
        Algorithm::FixedWindow(window) => window.record_rejected,
        _ => false,
    }
}

#[test]
fn long_logs_are_loaded_within_the_budget_and_grow_within_it() {
    let path = place("logs");
    let log = limit(SlidingLog::new(1_000, Micros::HOUR));
    let store = MemoryStore::new();
    for name in 0..500u32 {
        store.apply_one(&Charge::new(Key::new(1, &[&name.to_be_bytes()]), &log), Intent::Spend, NOW);
    }
    store.save_snapshot(&path, NOW).unwrap();
    let loaded = load(&path, NOW).unwrap();
    let before = loaded.bytes_used();
    for name in 0..500u32 {
        for event in 0..100 {
            let now = seconds(1 + u64::from(name)).plus(Micros::from_micros(event));
            loaded.apply_one(&Charge::new(Key::new(1, &[&name.to_be_bytes()]), &log), Intent::Spend, now);
        }
    }
    let grown = loaded.bytes_used() - before;
    assert!(grown >= 500 * 100 * 16, "{grown} bytes are accounted for");
}

#[test]
fn open_reservations_stay_spent() {
    let path = place("reserved");
    let window = window(5, Micros::HOUR);
    let store = MemoryStore::new();
    let charge = Charge::new(Key::new(1, NAMES[0]), &window).cost(2);
    let (_, reservation) = store.reserve_all(&[charge], Micros::MINUTE, NOW);
    store.save_snapshot(&path, NOW).unwrap();
    let loaded = load(&path, NOW).unwrap();
    assert_eq!(loaded.settle_now(reservation.unwrap(), Settlement::Cancel, NOW), Settled::Unknown);
    assert_eq!(loaded.apply_one(&charge, Intent::Peek, seconds(120)).remaining, 3);
}

#[test]
fn saving_while_others_decide_is_a_snapshot_of_some_instant_of_each_key() {
    let path = place("busy");
    let window = window(1_000_000, Micros::HOUR);
    let store = MemoryStore::new();
    let charges: Vec<Charge<'_>> = NAMES.map(|values| Charge::new(Key::new(1, values), &window)).to_vec();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| (0..20_000).for_each(|_| drop(store.apply_all(&charges, Intent::Spend, NOW))));
        }
        for _ in 0..10 {
            store.save_snapshot(&path, NOW).unwrap();
            let loaded = load(&path, NOW).unwrap();
            for charge in &charges {
                let [saved, now] = [&loaded, &store].map(|store| store.apply_one(charge, Intent::Peek, NOW).remaining);
                assert!(saved >= now);
            }
        }
    });
    store.save_snapshot(&path, NOW).unwrap();
    let loaded = load(&path, NOW).unwrap();
    for charge in &charges {
        assert_eq!(loaded.apply_one(charge, Intent::Peek, NOW).remaining, 1_000_000 - 60_000);
    }
}

#[test]
fn two_who_save_at_once_leave_a_whole_snapshot_that_only_its_owner_reads() {
    let path = place("two");
    let store = MemoryStore::with_budget(BUDGET);
    let limit = window(5, Micros::HOUR);
    for name in 0..2_000u64 {
        store.apply_one(&Charge::new(Key::new(1, &[&name.to_be_bytes()]), &limit), Intent::Spend, NOW);
    }
    store.save_snapshot(&path, NOW).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| (0..20).for_each(|_| store.save_snapshot(&path, NOW).unwrap()));
        }
        (0..40).for_each(|_| _ = load(&path, NOW).unwrap());
    });
    assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing is left beside it");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
    assert!(MemoryStore::load_snapshot(path.with_file_name("none"), BUDGET, NOW).unwrap_err().is_missing());
}

#[test]
fn a_full_store_goes_on_with_the_same_budget_and_forgets_nobody() {
    let path = place("full");
    for budget in [1 << 20, 5 << 20] {
        let store = MemoryStore::with_budget(budget);
        let limit = window(1, Micros::HOUR);
        let charge = |store: &MemoryStore, name: u64| {
            store.apply_one(&Charge::new(Key::new(1, &[&name.to_be_bytes()]), &limit), Intent::Spend, NOW)
        };
        let own: Vec<u64> = (0..200_000).filter(|name| !charge(&store, *name).shared).collect();
        store.save_snapshot(&path, NOW).unwrap();
        let again = MemoryStore::load_snapshot(&path, budget, NOW).unwrap();
        let forgotten = own.iter().filter(|name| charge(&again, **name).allowed).count();
        assert_eq!(forgotten, 0, "of {}", own.len());
    }
}
