//! Decisions on keys that are known allocate nothing.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use tollgate::{
    Attribute, Charge, Check, Descriptor, Engine, Intent, Key, Limit, Limiter, ManualClock, MemoryStore, Micros,
    Outcome, Rate, RuleSet, SlidingCounter, SlidingLog, Timestamp, TokenBucket, Tollgate,
};
use tollgate_sim::conformance::one_of_each;

const NOW: Timestamp = Timestamp::from_secs(1_700_000_000);
const USER: &[&[u8]] = &[b"user-42"];
/// Of a key that is not known yet. Logs get more room as their first events come.
const FIRST: usize = 6;
/// More than any of these limits admits, so that denials are among what is counted.
const ROUNDS: usize = 200;

thread_local! {
    /// Of this thread alone: tests run beside each other.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

impl Counting {
    fn count() {
        // A thread that ends allocates where its own numbers are gone already.
        let _ended = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
    }
}

#[allow(unsafe_code, reason = "an allocator has no safe name")]
// SAFETY: the system's allocator does what is asked for, with what it was asked for.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Self::count();
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        Self::count();
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        Self::count();
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn allocations<T>(of: impl FnOnce() -> T) -> (u64, T) {
    let before = ALLOCATIONS.get();
    let told = of();
    (ALLOCATIONS.get() - before, told)
}

#[track_caller]
fn none_after_the_first(what: &str, mut is_allowed: impl FnMut() -> bool) {
    (0..FIRST).for_each(|_| _ = is_allowed());
    let (count, allowed) = allocations(|| (0..ROUNDS).filter(|_| is_allowed()).count());
    assert!((1..ROUNDS).contains(&allowed), "{what}: {allowed} of {ROUNDS} allowed is not both");
    assert_eq!(count, 0, "{what}: allocations in {ROUNDS} decisions, {allowed} of them allowed");
}

fn ready<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => unreachable!("a memory store has its answers at hand"),
    }
}

fn bucket(tokens: u64) -> Limit {
    Limit::new(TokenBucket::new(Rate::per_hour(tokens))).unwrap()
}

fn all(outcomes: &[Outcome]) -> bool {
    outcomes.iter().all(|outcome| outcome.allowed)
}

#[test]
fn what_allocates_is_counted() {
    assert_eq!(allocations(|| Box::new(1)).0, 1);
    assert_eq!(allocations(|| vec![0_u8; 9]).0, 1);
    assert_eq!(allocations(|| NOW.plus(Micros::SECOND)).0, 0);
}

#[test]
fn a_limiter_allocates_nothing() {
    let limiter = || Limiter::requests_per_hour(50).build_with_clock(ManualClock::at(NOW)).unwrap();
    let (quick, told) = (limiter(), limiter());
    none_after_the_first("allow", || quick.allow("user-42"));
    none_after_the_first("check", || told.check("user-42").allowed);
    let on_the_systems_clock = Limiter::requests_per_hour(50).build().unwrap();
    none_after_the_first("allow by the system's clock", || on_the_systems_clock.allow("user-42"));
}

/// Asks for a stack in every way there is to ask. Time passes, so that it is allowed and denied again and again.
fn no_way_allocates(name: &str, charges: &[Charge<'_>]) {
    let at = |round: &mut u64| {
        *round += 1;
        // The pause is for those that count what they deny.
        let pause = if *round > 100 { Micros::SECOND } else { Micros::ZERO };
        NOW.plus(Micros::from_micros(*round * 500)).plus(pause)
    };
    let (store, mut round) = (MemoryStore::new(), 0);
    none_after_the_first(&format!("{name}, admitted"), || store.admit_all(charges, at(&mut round)));
    let (store, mut round) = (MemoryStore::new(), 0);
    none_after_the_first(&format!("{name}, applied"), || all(&store.apply_all(charges, Intent::Spend, at(&mut round))));
    let (engine, mut round) = (Engine::with_clock(MemoryStore::new(), ManualClock::at(NOW)), 0);
    none_after_the_first(&format!("{name}, decided"), || {
        engine.clock().set(at(&mut round));
        ready(engine.decide(charges)).unwrap().allowed
    });
}

#[test]
fn no_algorithm_allocates_on_a_known_key() {
    let limits = one_of_each().unwrap();
    for limit in limits.iter().filter(|limit| limit.most() > 0) {
        no_way_allocates(&format!("{:?}", limit.algorithm()), &[Charge::new(Key::new(1, USER), limit)]);
    }
}

#[test]
fn a_stack_of_three_allocates_nothing() {
    let (bucket, window) = (bucket(50), Limit::new(SlidingCounter::new(60, Micros::HOUR)).unwrap());
    let address: &[&[u8]] = &[b"10.1.1.1"];
    let of_one = [(1, USER, &bucket), (2, USER, &window), (3, USER, &bucket)];
    let of_several = [(1, USER, &bucket), (2, address, &window), (3, &[][..], &bucket)];
    for (name, stack) in [("of one", of_one), ("of several", of_several)] {
        let charges = stack.map(|(number, values, limit)| Charge::new(Key::new(number, values), limit));
        no_way_allocates(name, &charges);
    }
}

fn gate(rules: &str) -> Tollgate<MemoryStore, ManualClock> {
    let rules = RuleSet::from_yaml(rules).unwrap();
    Tollgate::with_engine(rules, Engine::with_clock(MemoryStore::new(), ManualClock::at(NOW)))
}

#[track_caller]
fn no_check_allocates(name: &str, rules: &str, check: &Check<'_>) {
    let told = gate(rules);
    none_after_the_first(name, || ready(told.check_with(check, |verdict| verdict.allowed)).unwrap());
    let kept = gate(rules);
    none_after_the_first(&format!("{name}, kept"), || ready(kept.check(check)).unwrap().allowed);
}

#[test]
fn checks_by_attributes_allocate_nothing() {
    let attributes: [Attribute<'_>; 4] =
        [("ip", "10.1.1.1"), ("method", "GET"), ("path", "/v1/search"), ("user", "user-42")];
    let check = Check::attributes("d", &attributes);
    let one = "domain: d\nrules:\n- {per: user, limits: 50/h}\n";
    no_check_allocates("one rule", one, &check);
    let two_limits = "domain: d\nrules:\n- {per: user, limits: [50/h, 100/d]}\n";
    no_check_allocates("one rule of two limits", two_limits, &check);
    let two_rules = "domain: d\nrules:\n- {per: ip, limits: 60/h}\n- {when: {path: /v1/*}, per: user, limits: 50/h}\n";
    no_check_allocates("two rules", two_rules, &check);
}

#[test]
fn checks_by_descriptors_allocate_nothing() {
    let user: [Attribute<'_>; 2] = [("route", "/v1/search"), ("user", "user-42")];
    let address: [Attribute<'_>; 1] = [("ip", "10.1.1.1")];
    let rules = "domain: d\ndescriptors:\n- key: ip\n  rate_limit: {unit: hour, requests_per_unit: 60}\n- key: route\n  descriptors:\n  - key: user\n    rate_limit: {unit: hour, requests_per_unit: 50}\n";
    let one = [Descriptor::new(&user)];
    no_check_allocates("one descriptor", rules, &Check::descriptors("d", &one));
    let two = [Descriptor::new(&user), Descriptor::new(&address)];
    no_check_allocates("two descriptors", rules, &Check::descriptors("d", &two));
}

/// What has no place on the stack any more: the tolls, and who matched.
#[test]
fn checks_of_three_limits_allocate_twice_at_most() {
    let attributes: [Attribute<'_>; 2] = [("ip", "10.1.1.1"), ("user", "user-42")];
    let check = Check::attributes("d", &attributes);
    let one_rule = "domain: d\nrules:\n- {per: user, limits: [50/h, 100/d, 900/d]}\n";
    let three_rules = "domain: d\nrules:\n- {per: ip, limits: 60/h}\n- {limits: 900/h}\n- {per: user, limits: 50/h}\n";
    for (rules, most) in [(one_rule, 1), (three_rules, 2)] {
        let gate = gate(rules);
        let ask = || ready(gate.check_with(&check, |verdict| (verdict.allowed, verdict.tolls.len()))).unwrap();
        assert_eq!(ask(), (true, 3));
        let (count, allowed) = allocations(|| (0..ROUNDS).filter(|_| ask().0).count());
        assert_eq!(allowed, 49);
        assert!(count <= most * ROUNDS as u64, "{count} in {ROUNDS} decisions");
    }
}

/// It takes room by the double, not by the event.
#[test]
fn a_log_allocates_a_few_times_until_it_has_room_for_its_limit() {
    let (store, log) = (MemoryStore::new(), Limit::new(SlidingLog::new(1_000, Micros::SECOND)).unwrap());
    let admit = |event: u64| {
        let now = NOW.plus(Micros::from_micros(event * 500));
        store.admit_one(&Charge::new(Key::new(1, USER), &log), now)
    };
    assert!(admit(0));
    let (count, allowed) = allocations(|| (1..1_000).filter(|event| admit(*event)).count());
    assert_eq!(allowed, 999);
    assert!(count <= 12, "{count} in its first thousand events");
    let (count, allowed) = allocations(|| (1_000..9_000).filter(|event| admit(*event)).count());
    assert!((3_000..8_000).contains(&allowed), "{allowed}");
    assert_eq!(count, 0, "afterwards");
}
