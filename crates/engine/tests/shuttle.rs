//! Schedules that no machine would come up with by itself: thousands of orders of the same few steps.
//!
//! ```text
//! RUSTFLAGS="--cfg shuttle" cargo test -p tollgate --test shuttle --target-dir target/shuttle
//! ```
//!
//! The store has few shards then, so that keys meet, and its locks, atomics and random numbers are shuttle's. A failure
//! prints a schedule that `shuttle::replay` repeats.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]
#![cfg(shuttle)]

use std::sync::Arc;

use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::sync::atomic::{AtomicU64, Ordering};
use shuttle::{Config, Runner, future, thread};
use tollgate::{
    Algorithm, Charge, Check, Clock, Concurrency, Denials, Engine, FixedWindow, Intent, Key, Limit, ManualClock,
    MemoryStore, Micros, Rate, RuleSet, Settled, Settlement, SlidingLog, Store, Timestamp, TokenBucket, Tollgate,
};

const NOW: Timestamp = Timestamp::from_secs(1_700_000_000);
const NAMES: [&[&[u8]]; 4] = [&[b"a"], &[b"b"], &[b"c"], &[b"d"]];

fn limit(algorithm: impl Into<Algorithm>) -> Limit {
    Limit::new(algorithm).unwrap()
}

fn window(limit: u64) -> Limit {
    self::limit(FixedWindow::new(limit, Micros::HOUR))
}

fn charge<'a>(name: usize, limit: &'a Limit) -> Charge<'a> {
    Charge::new(Key::new(1, NAMES[name]), limit)
}

/// So many that tables get more blocks.
const MANY: [&[&[u8]]; 24] = [
    &[b"a"],
    &[b"b"],
    &[b"c"],
    &[b"d"],
    &[b"e"],
    &[b"f"],
    &[b"g"],
    &[b"h"],
    &[b"i"],
    &[b"j"],
    &[b"k"],
    &[b"l"],
    &[b"m"],
    &[b"n"],
    &[b"o"],
    &[b"p"],
    &[b"q"],
    &[b"r"],
    &[b"s"],
    &[b"t"],
    &[b"u"],
    &[b"v"],
    &[b"w"],
    &[b"x"],
];

fn of(name: usize, limit: &Limit) -> Charge<'_> {
    Charge::new(Key::new(1, MANY[name]), limit)
}

fn seconds(seconds: u64) -> Timestamp {
    NOW.plus(Micros::from_secs(seconds))
}

/// Runs a scene under many schedules: any, and those with few changes between threads.
fn explore(scene: impl Fn() + Send + Sync + 'static) {
    let scene = Arc::new(scene);
    let config = || {
        let mut config = Config::new();
        config.stack_size = 1 << 18;
        config
    };
    let once = scene.clone();
    Runner::new(RandomScheduler::new(6_000), config()).run(move || once());
    Runner::new(PctScheduler::new(3, 4_000), config()).run(move || scene());
}

/// Runs threads of a scene to their end.
fn all(threads: Vec<Box<dyn FnOnce() + Send>>) {
    let running: Vec<_> = threads.into_iter().map(|thread| thread::spawn(thread)).collect();
    running.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn one_key_admits_exactly_its_limit() {
    let limits =
        [window(4), limit(SlidingLog::new(4, Micros::HOUR)), limit(TokenBucket::new(Rate::per_hour(4)))].map(Arc::new);
    for limit in limits {
        explore(move || {
            let (store, admitted) = (Arc::new(MemoryStore::new()), Arc::new(AtomicU64::new(0)));
            let ask = |quick: bool| -> Box<dyn FnOnce() + Send> {
                let (store, admitted, limit) = (store.clone(), admitted.clone(), limit.clone());
                Box::new(move || {
                    for _ in 0..3 {
                        let allowed = match quick {
                            true => store.admit_one(&charge(0, &limit), NOW),
                            false => store.apply_one(&charge(0, &limit), Intent::Spend, NOW).allowed,
                        };
                        admitted.fetch_add(u64::from(allowed), Ordering::SeqCst);
                    }
                })
            };
            all(vec![ask(true), ask(false), ask(true)]);
            assert_eq!(admitted.load(Ordering::SeqCst), 4);
        });
    }
}

/// All or nothing, whatever the order: no counter has given out more or less than its users got, and nobody was denied
/// by a charge that was taken back.
#[test]
fn stacks_in_opposite_orders_stay_exact() {
    const ORDERS: [&[usize]; 4] = [&[0, 1], &[1, 0], &[1, 2, 3], &[2, 0]];
    explore(|| {
        let (store, window) = (Arc::new(MemoryStore::new()), Arc::new(window(3)));
        let (given, denied): (Arc<[AtomicU64; 4]>, Arc<[AtomicU64; 4]>) = Default::default();
        let ask = |thread: usize| -> Box<dyn FnOnce() + Send> {
            let (store, window, given, denied) = (store.clone(), window.clone(), given.clone(), denied.clone());
            Box::new(move || {
                let stack: Vec<Charge<'_>> = ORDERS[thread].iter().map(|name| charge(*name, &window)).collect();
                for _ in 0..2 {
                    if store.apply_all(&stack, Intent::Spend, NOW).iter().all(|outcome| outcome.allowed) {
                        ORDERS[thread].iter().for_each(|name| _ = given[*name].fetch_add(1, Ordering::SeqCst));
                    } else {
                        denied[thread].fetch_add(1, Ordering::SeqCst);
                    }
                }
            })
        };
        all([0, 1, 2, 3].map(ask).into());
        let left = |name: usize| store.apply_one(&charge(name, &window), Intent::Peek, NOW).remaining;
        for (name, given) in given.iter().enumerate() {
            assert_eq!(left(name), 3 - given.load(Ordering::SeqCst), "counter {name}");
        }
        for (order, denied) in ORDERS.iter().zip(denied.iter()) {
            let used_up = order.iter().any(|name| left(*name) == 0);
            assert!(used_up || denied.load(Ordering::SeqCst) == 0, "{order:?} was denied with room for it");
        }
    });
}

/// A stack on one entity takes one lock, and meets those who take several.
#[test]
fn small_and_large_stacks_agree() {
    explore(|| {
        let (store, window) = (Arc::new(MemoryStore::new()), Arc::new(window(4)));
        let ask = |stack: &'static [(u64, usize)]| -> Box<dyn FnOnce() + Send> {
            let (store, window) = (store.clone(), window.clone());
            Box::new(move || {
                let charge = |(number, name): &(u64, usize)| Charge::new(Key::new(*number, NAMES[*name]), &window);
                let stack: Vec<Charge<'_>> = stack.iter().map(charge).collect();
                for _ in 0..2 {
                    store.apply_all(&stack, Intent::Spend, NOW);
                }
            })
        };
        // Everyone wants the first counter: as many get it as it has.
        all(vec![ask(&[(1, 0), (2, 0), (3, 0)]), ask(&[(1, 0), (1, 1)]), ask(&[(2, 2), (1, 0)])]);
        let left = |number, name: usize| {
            store.apply_one(&Charge::new(Key::new(number, NAMES[name]), &window), Intent::Peek, NOW).remaining
        };
        assert_eq!(left(1, 0), 0);
        assert_eq!(left(2, 0), left(3, 0));
        assert_eq!((4 - left(2, 0)) + (4 - left(1, 1)) + (4 - left(2, 2)), 4);
    });
}

/// One reservation is committed, cancelled and expires at the same time, while others decide. It ends once.
#[test]
fn a_reservation_ends_once() {
    explore(|| {
        let (store, window) = (Arc::new(MemoryStore::new()), Arc::new(window(10)));
        let charges = [charge(0, &window).cost(3), charge(1, &window).cost(5)];
        let (_, id) = store.reserve_all(&charges, Micros::from_secs(10), NOW);
        let (id, kept, ended) = (id.unwrap(), Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let settle = |settlement: Settlement<'static>, now: Timestamp| -> Box<dyn FnOnce() + Send> {
            let (store, kept, ended) = (store.clone(), kept.clone(), ended.clone());
            Box::new(move || {
                if store.settle_now(id, settlement, now) == Settled::Done {
                    ended.fetch_add(1, Ordering::SeqCst);
                    kept.store(u64::from(settlement == Settlement::Commit), Ordering::SeqCst);
                }
            })
        };
        let decide = |now: Timestamp| -> Box<dyn FnOnce() + Send> {
            let (store, window) = (store.clone(), window.clone());
            Box::new(move || {
                assert!(store.apply_one(&charge(0, &window), Intent::Spend, now).allowed);
            })
        };
        all(vec![
            settle(Settlement::Commit, seconds(9)),
            settle(Settlement::Cancel, seconds(9)),
            settle(Settlement::Cancel, seconds(10)),
            decide(seconds(10)),
            decide(seconds(11)),
        ]);
        assert!(ended.load(Ordering::SeqCst) <= 1, "it ended more than once");
        let kept = kept.load(Ordering::SeqCst);
        let left = [0, 1].map(|name| store.apply_one(&charge(name, &window), Intent::Peek, seconds(12)).remaining);
        assert_eq!(left, [10 - 2 - 3 * kept, 10 - 5 * kept]);
    });
}

/// What is due has been given back for everyone who comes by then, also while another is just doing it.
#[test]
fn whoever_comes_when_it_is_due_finds_it_given_back() {
    explore(|| {
        let (store, window) = (Arc::new(MemoryStore::new()), Arc::new(window(4)));
        for hold in [10, 11] {
            store.reserve_all(&[charge(0, &window).cost(2)], Micros::from_secs(hold), NOW);
        }
        let spend = |cost: u64, now: Timestamp| -> Box<dyn FnOnce() + Send> {
            let (store, window) = (store.clone(), window.clone());
            Box::new(move || {
                assert!(store.apply_one(&charge(0, &window).cost(cost), Intent::Spend, now).allowed);
            })
        };
        all(vec![spend(1, seconds(10)), spend(1, seconds(10)), spend(2, seconds(11))]);
        assert_eq!(store.apply_one(&charge(0, &window), Intent::Peek, seconds(11)).remaining, 0);
    });
}

/// While one thread gives back what is due, others reserve: what they hold is not forgotten.
#[test]
fn what_is_reserved_during_an_expiry_expires_too() {
    explore(|| {
        let (store, window) = (Arc::new(MemoryStore::new()), Arc::new(window(20)));
        for hold in [5, 9] {
            store.reserve_all(&[charge(0, &window)], Micros::from_secs(hold), NOW);
        }
        let reserve = |hold: u64| -> Box<dyn FnOnce() + Send> {
            let (store, window) = (store.clone(), window.clone());
            Box::new(move || {
                let (_, id) = store.reserve_all(&[charge(1, &window)], Micros::from_secs(hold), seconds(1));
                assert!(id.is_some());
            })
        };
        let look = |now: u64| -> Box<dyn FnOnce() + Send> {
            let (store, window) = (store.clone(), window.clone());
            Box::new(move || _ = store.apply_one(&charge(2, &window), Intent::Peek, seconds(now)))
        };
        all(vec![reserve(4), reserve(7), look(5), look(6)]);
        let left = |name, now| store.apply_one(&charge(name, &window), Intent::Peek, seconds(now)).remaining;
        assert_eq!([left(0, 8), left(0, 9)], [19, 20], "each in its time");
        // Holds begin at the latest time that the store has seen: at six at most.
        assert_eq!(left(1, 13), 20);
    });
}

/// With room for the blocks of one table, the keys of the other share: together they get their limit once more, and the
/// budget is never exceeded.
#[test]
fn sharing_under_a_tight_budget_is_exact() {
    const TABLE: usize = 300;
    explore(|| {
        let (store, window) = (Arc::new(MemoryStore::with_budget(TABLE)), Arc::new(window(2)));
        let shared: Arc<AtomicU64> = Arc::default();
        let own: Arc<[AtomicU64; 4]> = Arc::default();
        let ask = |names: &'static [usize]| -> Box<dyn FnOnce() + Send> {
            let (store, window, shared, own) = (store.clone(), window.clone(), shared.clone(), own.clone());
            Box::new(move || {
                let stack: Vec<Charge<'_>> = names.iter().map(|name| charge(*name, &window)).collect();
                for _ in 0..2 {
                    let outcomes = store.apply_all(&stack, Intent::Spend, NOW);
                    assert!(store.bytes_used() <= TABLE);
                    if outcomes.iter().all(|outcome| outcome.allowed) {
                        for (name, outcome) in names.iter().zip(&outcomes) {
                            let counter = if outcome.shared { &shared } else { &own[*name] };
                            counter.fetch_add(1, Ordering::SeqCst);
                        }
                    }
                }
            })
        };
        all(vec![ask(&[0]), ask(&[1, 0]), ask(&[2, 3]), ask(&[3])]);
        assert!(shared.load(Ordering::SeqCst) <= 2);
        assert!(own.iter().all(|own| own.load(Ordering::SeqCst) <= 2));
        for (name, own) in own.iter().enumerate() {
            let outcome = store.apply_one(&charge(name, &window), Intent::Peek, NOW);
            assert_eq!(outcome.remaining, 2 - own.load(Ordering::SeqCst), "key {name}");
        }
        store.shrink(NOW.plus(Micros::DAY));
        assert_eq!((store.keys(), store.bytes_used()), (0, 0), "what was taken is given back");
    });
}

/// Tables get more blocks while others ask for what is in them, and fewer again: every charge counts once.
#[test]
fn nobody_is_lost_while_tables_grow_and_shrink() {
    let scene = || {
        let (store, window) = (Arc::new(MemoryStore::new()), Arc::new(window(9)));
        let ask = |names: std::ops::Range<usize>, together: bool| -> Box<dyn FnOnce() + Send> {
            let (store, window) = (store.clone(), window.clone());
            Box::new(move || {
                for name in names {
                    match together {
                        true => _ = store.apply_all(&[of(name, &window), of(0, &window)], Intent::Spend, NOW),
                        false => assert!(store.admit_one(&of(name, &window), NOW)),
                    }
                }
            })
        };
        let shrink = store.clone();
        all(vec![ask(0..18, false), ask(6..24, false), ask(9..12, true), Box::new(move || shrink.shrink(NOW))]);
        for name in 0..24 {
            let asked = [0..18, 6..24, 9..12].iter().filter(|names| names.contains(&name)).count() as u64;
            let spent = if name == 0 { 1 + 3 } else { asked };
            assert_eq!(store.apply_one(&of(name, &window), Intent::Peek, NOW).remaining, 9 - spent, "key {name}");
        }
        assert_eq!(store.keys(), 24);
    };
    let mut config = Config::new();
    config.stack_size = 1 << 18;
    Runner::new(RandomScheduler::new(1_500), config.clone()).run(scene);
    Runner::new(PctScheduler::new(3, 1_000), config).run(scene);
}

/// What nobody uses any more is given back to the system while others ask, some of them for what was just given back.
#[test]
fn nobody_is_lost_while_memory_is_given_back() {
    let scene = || {
        let (store, window) = (Arc::new(MemoryStore::new()), Arc::new(window(9)));
        (0..23).for_each(|name| assert!(store.admit_one(&of(name, &window), NOW)));
        let later = NOW.plus(Micros::DAY);
        let ask = |names: std::ops::Range<usize>| -> Box<dyn FnOnce() + Send> {
            let (store, window) = (store.clone(), window.clone());
            Box::new(move || {
                for name in names {
                    match name % 3 {
                        0 => _ = store.apply_all(&[of(name, &window), of(23, &window)], Intent::Spend, later),
                        _ => assert!(store.admit_one(&of(name, &window), later)),
                    }
                }
            })
        };
        let shrunk = store.clone();
        let shrink = move || (0..3).for_each(|_| shrunk.shrink(later));
        all(vec![ask(0..12), ask(8..16), Box::new(shrink)]);
        let asked = |name: usize| [0..12, 8..16].iter().filter(|names| names.contains(&name)).count() as u64;
        for name in 0..23 {
            let left = store.apply_one(&of(name, &window), Intent::Peek, later).remaining;
            assert_eq!(left, 9 - asked(name), "key {name}");
        }
        let with_others = (0..16).filter(|name| name % 3 == 0).map(asked).sum::<u64>();
        assert_eq!(store.apply_one(&of(23, &window), Intent::Peek, later).remaining, 9 - with_others);
        store.shrink(later.plus(Micros::DAY));
        assert_eq!((store.keys(), store.bytes_used()), (0, 0));
    };
    let mut config = Config::new();
    config.stack_size = 1 << 18;
    Runner::new(RandomScheduler::new(1_500), config.clone()).run(scene);
    Runner::new(PctScheduler::new(3, 1_000), config).run(scene);
}

/// Every key is in a snapshot as it was at some instant, also while its table is rebuilt.
#[test]
fn a_snapshot_while_others_decide_has_everyone_once() {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("shuttle-snapshot");
    let scene = move || {
        let (store, window) = (Arc::new(MemoryStore::new()), Arc::new(window(9)));
        (0..18).for_each(|name| assert!(store.admit_one(&of(name, &window), NOW)));
        let ask = |names: std::ops::Range<usize>| -> Box<dyn FnOnce() + Send> {
            let (store, window) = (store.clone(), window.clone());
            Box::new(move || names.for_each(|name| assert!(store.admit_one(&of(name, &window), NOW))))
        };
        let (saved, shrunk, path) = (store.clone(), store.clone(), path.clone());
        let save = path.clone();
        all(vec![
            ask(18..24),
            ask(9..21),
            Box::new(move || saved.save_snapshot(&save, NOW).unwrap()),
            Box::new(move || shrunk.shrink(NOW)),
        ]);
        let loaded = MemoryStore::load_snapshot(&path, MemoryStore::DEFAULT_BUDGET, NOW).unwrap();
        for name in 0..24 {
            let charge = of(name, &window);
            let [saved, now] =
                [&loaded, &*store].map(|store| 9 - store.apply_one(&charge, Intent::Peek, NOW).remaining);
            let before = u64::from(name < 18);
            let asked = [18..24, 9..21].iter().filter(|names| names.contains(&name)).count() as u64;
            assert_eq!(now, before + asked, "key {name}");
            assert!((before..=now).contains(&saved), "key {name} is saved with {saved}");
        }
    };
    let mut config = Config::new();
    config.stack_size = 1 << 18;
    Runner::new(RandomScheduler::new(1_500), config.clone()).run(scene.clone());
    Runner::new(PctScheduler::new(3, 1_000), config).run(scene);
}

fn gate_of(limits: [u64; 2]) -> [RuleSet; 2] {
    limits.map(|limit| {
        let text = format!("domain: d\nrules:\n- {{name: r, limits: {{rate: {limit}/h, algorithm: fixed_window}}}}\n");
        RuleSet::from_yaml(&text).unwrap()
    })
}

/// Whoever decides while rules are replaced decides by the old ones or the new ones, and from then on by the new ones.
#[test]
fn replaced_rules_are_in_force_at_once_and_as_a_whole() {
    explore(|| {
        let [old, new] = gate_of([5, 8]);
        let engine = Engine::with_clock(MemoryStore::new(), ManualClock::at(NOW));
        let (gate, is_replaced) = (Arc::new(Tollgate::with_engine(old, engine)), Arc::new(AtomicU64::new(0)));
        let admitted = Arc::new(AtomicU64::new(0));
        let ask = || -> Box<dyn FnOnce() + Send> {
            let (gate, is_replaced, admitted) = (gate.clone(), is_replaced.clone(), admitted.clone());
            Box::new(move || {
                for _ in 0..3 {
                    let before = is_replaced.load(Ordering::SeqCst);
                    let asked = Check::attributes("d", &[]);
                    let asked = gate.check_with(&asked, |verdict| verdict.tolls[0].outcome);
                    let outcome = future::block_on(asked).unwrap();
                    admitted.fetch_add(u64::from(outcome.allowed), Ordering::SeqCst);
                    let limit = outcome.limit;
                    assert!(limit == 8 || (limit == 5 && before == 0), "decided by {limit} an hour");
                }
            })
        };
        let (replaced, flag) = (gate.clone(), is_replaced.clone());
        let new = std::sync::Mutex::new(Some(new));
        let replace = move || {
            let new = new.lock().unwrap().take().unwrap();
            replaced.replace_rules(new);
            flag.store(1, Ordering::SeqCst);
        };
        all(vec![ask(), ask(), Box::new(replace)]);
        let peeked = future::block_on(gate.peek(&Check::attributes("d", &[]))).unwrap();
        let left = 8 - admitted.load(Ordering::SeqCst);
        assert_eq!((peeked.tolls[0].outcome.limit, peeked.tolls[0].outcome.remaining), (8, left));
    });
}

/// A denial is repeated until something is given back, and not by whoever comes after that.
#[test]
fn what_is_given_back_is_not_denied_from_memory() {
    explore(|| {
        let store = Arc::new(Denials::with_clock(MemoryStore::new(), ManualClock::at(NOW)));
        let (window, admitted) = (Arc::new(window(1)), Arc::new(AtomicU64::new(0)));
        let spent = future::block_on(store.apply(&[charge(0, &window)], Intent::Spend, NOW)).unwrap();
        assert!(spent[0].allowed);
        let act = |intents: &'static [Intent]| -> Box<dyn FnOnce() + Send> {
            let (store, window, admitted) = (store.clone(), window.clone(), admitted.clone());
            Box::new(move || {
                for intent in intents {
                    let told = future::block_on(store.apply(&[charge(0, &window)], *intent, NOW)).unwrap();
                    admitted.fetch_add(u64::from(*intent == Intent::Spend && told[0].allowed), Ordering::SeqCst);
                }
            })
        };
        const REFUND: Intent = Intent::Refund { charged_at: NOW };
        all(vec![act(&[Intent::Spend, Intent::Spend]), act(&[REFUND, Intent::Spend]), act(&[Intent::Spend])]);
        assert_eq!(admitted.load(Ordering::SeqCst), 1, "what was given back is had once");
    });
}

/// Time stands still: only a release lets the next one in, and no release goes unheard.
#[test]
fn every_release_is_heard() {
    explore(|| {
        let engine = Arc::new(Engine::with_clock(MemoryStore::new(), ManualClock::at(NOW)));
        let slots = Arc::new(limit(Concurrency::new(1, Micros::HOUR)));
        let inside = Arc::new(AtomicU64::new(0));
        let work = |lease: u64| {
            let (engine, slots, inside) = (engine.clone(), slots.clone(), inside.clone());
            future::spawn(async move {
                let charge = charge(0, &slots).lease(lease);
                assert!(engine.wait(&[charge], Micros::DAY).await.unwrap().allowed);
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "one at a time");
                future::yield_now().await;
                inside.fetch_sub(1, Ordering::SeqCst);
                engine.release(&[charge]).await.unwrap();
            })
        };
        for worker in [1, 2, 3, 4].map(work) {
            future::block_on(worker).unwrap();
        }
    });
}

/// Waiters come and go, one gives up, and the clock moves on whenever somebody sleeps. Nobody is forgotten.
#[test]
fn everyone_in_line_gets_through() {
    explore(|| {
        let clock = ManualClock::at(NOW);
        let engine = Arc::new(Engine::with_clock(MemoryStore::new(), clock.clone()));
        let bucket = Arc::new(limit(TokenBucket::new(Rate::per_second(1)).burst(1)));
        let left = Arc::new(AtomicU64::new(4));
        let wait = |longest: Micros, counts: u64| {
            let (engine, bucket, left) = (engine.clone(), bucket.clone(), left.clone());
            future::spawn(async move {
                let decision = engine.wait(&[charge(0, &bucket)], longest).await.unwrap();
                left.fetch_sub(counts, Ordering::SeqCst);
                (decision.allowed, decision.at)
            })
        };
        let waiters =
            [Micros::HOUR, Micros::HOUR, Micros::HOUR, Micros::from_millis(500)].map(|longest| wait(longest, 1));
        let quitter = wait(Micros::HOUR, 0);
        let driver = thread::spawn({
            let left = left.clone();
            move || {
                while left.load(Ordering::SeqCst) > 0 {
                    if let Some(due) = clock.next_due().filter(|due| *due <= NOW.plus(Micros::MINUTE)) {
                        clock.set(due.max(clock.now()));
                    }
                    thread::yield_now();
                }
            }
        });
        quitter.abort();
        let mut admitted = Vec::new();
        for waiter in waiters {
            let (allowed, at) = future::block_on(waiter).unwrap();
            admitted.extend(allowed.then_some(at));
        }
        driver.join().unwrap();
        admitted.sort();
        assert!((3..=4).contains(&admitted.len()), "three can wait as long as it takes");
        assert!(admitted.windows(2).all(|pair| pair[1].since(pair[0]) >= Micros::SECOND), "{admitted:?}");
    });
}
