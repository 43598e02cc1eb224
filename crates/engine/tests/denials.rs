//! Denials that are repeated without asking are those that the store would have given.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::convert::Infallible;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use tollgate::core::mix;
use tollgate::{
    Charge, Check, Concurrency, Denials, Engine, FixedWindow, Intent, Key, Limit, ManualClock, MemoryStore, Micros,
    Outcome, Outcomes, Rate, ReservationId, RuleSet, Settled, Settlement, Store, Timestamp, TokenBucket, Tollgate,
};
use tollgate_sim::conformance::{Model, one_of_each};

const START: Timestamp = Timestamp::from_secs(1_700_000_000);
/// Longer than any test lasts.
const HOLD: Micros = Micros::from_micros(1 << 50);

/// On a clock that stands still wherever it is not set.
fn denials(clock: &ManualClock) -> Denials<Slow, ManualClock> {
    Denials::with_clock(Slow::default(), clock.clone())
}

/// Numbers that are the same in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0) % sides
    }
}

/// Counts how often it is asked, and answers at the second look.
#[derive(Default)]
struct Slow {
    model: Model,
    asked: AtomicU64,
}

impl Slow {
    async fn answer<T>(&self, answer: T) -> Result<T, Infallible> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let mut is_first = true;
        std::future::poll_fn(|context| {
            if std::mem::take(&mut is_first) {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            Poll::Ready(())
        })
        .await;
        Ok(answer)
    }
}

impl Store for Slow {
    type Error = Infallible;

    async fn apply(&self, charges: &[Charge<'_>], intent: Intent, now: Timestamp) -> Result<Outcomes, Infallible> {
        self.answer(self.model.apply_all(charges, intent, now)).await
    }

    async fn apply_each(
        &self,
        charges: &[Charge<'_>],
        intent: Intent,
        now: Timestamp,
    ) -> Result<Vec<Outcome>, Infallible> {
        let each = charges.iter().flat_map(|charge| self.model.apply_all(&[*charge], intent, now));
        self.answer(each.collect()).await
    }

    async fn reserve(
        &self,
        charges: &[Charge<'_>],
        hold: Micros,
        now: Timestamp,
    ) -> Result<(Outcomes, Option<ReservationId>), Infallible> {
        self.answer(self.model.reserve_all(charges, hold, now)).await
    }

    async fn settle(
        &self,
        reservation: ReservationId,
        settlement: Settlement<'_>,
        now: Timestamp,
    ) -> Result<Settled, Infallible> {
        self.answer(self.model.settle_now(reservation, settlement, now)).await
    }
}

/// Looks as often as it takes.
fn done<T>(future: impl Future<Output = Result<T, Infallible>>) -> T {
    let mut future = std::pin::pin!(future);
    for _ in 0..1_000 {
        if let Poll::Ready(Ok(value)) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return value;
        }
    }
    panic!("it waits for ever");
}

fn asked<C>(denials: &Denials<Slow, C>) -> u64
where
    C: tollgate::Clock,
{
    denials.store().asked.load(Ordering::Relaxed)
}

/// Steps to where answers change, to just before it, and to anywhere.
fn step(dice: &mut Dice, last: Option<&Outcome>) -> Micros {
    let wait = last.and_then(|outcome| outcome.retry_after).map_or(0, Micros::as_micros);
    Micros::from_micros(match dice.roll(12) {
        0..=5 => 0,
        6 => wait.saturating_sub(1),
        7 => wait,
        8 => dice.roll(wait + 2),
        9 => dice.roll(2_000),
        10 => dice.roll(2_000_000),
        _ => 1,
    })
}

#[test]
fn one_unit_is_answered_bit_for_bit() {
    let mut repeated = 0;
    for (number, limit) in one_of_each().unwrap().iter().enumerate() {
        for seed in 0..60 {
            let mut dice = Dice(number as u64 * 1_000 + seed);
            let clock = ManualClock::at(START);
            let (model, denials) = (Model::default(), denials(&clock));
            let (mut now, mut last, mut held) = (START, None::<Outcome>, Vec::new());
            for turn in 0..120 {
                now = now.plus(step(&mut dice, last.as_ref()));
                clock.set(now);
                let values: &[&[u8]] = [&[b"alice" as &[u8]], &[b"bob" as &[u8]]][dice.roll(2) as usize];
                let charge = [Charge::new(Key::new(1, values), limit).lease(dice.roll(3))];
                let intent = match dice.roll(40) {
                    0 => Intent::Force,
                    1 => Intent::Refund { charged_at: now },
                    2 => Intent::Peek,
                    3 => {
                        let hold = [HOLD, Micros::from_millis(4), Micros::from_millis(700)][dice.roll(3) as usize];
                        let (expected, theirs) = model.reserve_all(&charge, hold, now);
                        let (told, ours) = done(denials.reserve(&charge, hold, now));
                        assert_eq!((&told, ours.is_some()), (&expected, theirs.is_some()), "turn {turn}");
                        held.extend(theirs.zip(ours));
                        continue;
                    }
                    4 if !held.is_empty() => {
                        let (theirs, ours) = held.swap_remove(0);
                        let how = [Settlement::Cancel, Settlement::Commit, Settlement::CommitActual(&[0])];
                        let how = how[dice.roll(3) as usize];
                        assert_eq!(done(denials.settle(ours, how, now)), model.settle_now(theirs, how, now));
                        continue;
                    }
                    _ => Intent::Spend,
                };
                let expected = model.apply_all(&charge, intent, now);
                let told = match denials.apply_now(&charge, intent, now) {
                    Some(Ok(told)) => told,
                    _ if dice.roll(2) == 0 => done(denials.apply_each(&charge, intent, now)).into(),
                    _ => done(denials.apply(&charge, intent, now)),
                };
                assert_eq!(told, expected, "{:?}, seed {seed}, turn {turn}: {intent:?}", limit.algorithm());
                last = expected.first().copied();
            }
            repeated += denials.repeated();
        }
    }
    assert!(repeated > 5_000, "only {repeated} were repeated");
}

#[test]
fn whatever_is_asked_is_denied_only_if_the_store_would() {
    let limits = one_of_each().unwrap();
    let mut repeated = 0;
    for seed in 0..800 {
        let mut dice = Dice(seed);
        let clock = ManualClock::at(START);
        let (model, denials) = (Model::default(), denials(&clock));
        let (mut now, mut last) = (START, None::<Outcome>);
        let chosen: Vec<&Limit> = (0..3).map(|_| &limits[dice.roll(limits.len() as u64) as usize]).collect();
        for turn in 0..100 {
            now = now.plus(step(&mut dice, last.as_ref()));
            clock.set(now);
            let charges: Vec<Charge<'_>> = (0..1 + dice.roll(3) as usize)
                .map(|place| {
                    let values: &[&[u8]] = if dice.roll(6) == 0 { &[b"bob"] } else { &[b"alice"] };
                    Charge::new(Key::new(place as u64, values), chosen[place]).cost(1 + dice.roll(3) / 2)
                })
                .collect();
            let intent = match dice.roll(30) {
                0 => Intent::Force,
                1 => Intent::Refund { charged_at: now },
                _ => Intent::Spend,
            };
            let expected = model.apply_all(&charges, intent, now);
            let told = done(denials.apply(&charges, intent, now));
            let is_allowed = |outcomes: &[Outcome]| outcomes.iter().all(|outcome| outcome.allowed);
            assert_eq!(is_allowed(&told), is_allowed(&expected), "seed {seed}, turn {turn}: {charges:?}");
            for (told, expected) in told.iter().zip(&expected).filter(|(told, _)| told.denied()) {
                let wait = |outcome: &Outcome| outcome.retry_after.unwrap_or(Micros::MAX);
                assert!(expected.denied() && wait(told) <= wait(expected), "{told:?} {expected:?}");
            }
            last = expected.iter().find(|outcome| outcome.denied()).copied();
        }
        repeated += denials.repeated();
    }
    assert!(repeated > 2_000, "only {repeated} were repeated");
}

#[test]
fn a_flood_is_heard_of_once_a_second() {
    let limit = Limit::new(FixedWindow::new(1, Micros::HOUR)).unwrap();
    let clock = ManualClock::at(START);
    let denials = denials(&clock);
    let charge = [Charge::new(Key::new(1, &[b"user"]), &limit)];
    let mut denied = 0;
    // Ten seconds of a request every millisecond.
    for number in 0..10_000 {
        let now = START.plus(Micros::from_micros(number * 1_000));
        clock.set(now);
        let outcome = done(denials.apply(&charge, Intent::Spend, now))[0];
        let left = limit_wait(START, now);
        assert_eq!((outcome.at, outcome.retry_after == Some(left)), (now, outcome.denied()), "{outcome:?}");
        denied += u64::from(outcome.denied());
    }
    assert_eq!(denied, 9_999);
    assert_eq!(asked(&denials), 11, "the first, the first denial, and once a second from then on");
}

/// How long until the hour is over that `start` is in.
fn limit_wait(start: Timestamp, now: Timestamp) -> Micros {
    let hour = Micros::HOUR.as_micros();
    let end = Timestamp::from_micros(start.as_micros() / hour * hour + hour);
    end.since(now)
}

#[test]
fn what_is_given_back_or_ruled_anew_counts_at_once() {
    let limit = Limit::new(TokenBucket::new(Rate::per_hour(1))).unwrap();
    let denials = denials(&ManualClock::at(START));
    let charge = [Charge::new(Key::new(1, &[b"user"]), &limit)];
    let spend = || done(denials.apply(&charge, Intent::Spend, START))[0].allowed;
    let deny_twice = || {
        assert!(!spend());
        let before = asked(&denials);
        assert!(!spend());
        assert_eq!(asked(&denials), before, "the second time it is known");
    };
    assert!(spend());
    deny_twice();
    done(denials.apply(&charge, Intent::Refund { charged_at: START }, START));
    let (outcomes, held) = done(denials.reserve(&charge, HOLD, START));
    assert!(outcomes[0].allowed);
    deny_twice();
    assert_eq!(done(denials.settle(held.unwrap(), Settlement::Cancel, START)), Settled::Done);
    assert!(spend());
    deny_twice();
    // Another rule for the same key.
    let raised = Limit::new(TokenBucket::new(Rate::per_hour(2))).unwrap();
    assert_eq!(raised.lineage(), limit.lineage());
    let charge = [Charge::new(Key::new(1, &[b"user"]), &raised)];
    let before = asked(&denials);
    done(denials.apply(&charge, Intent::Spend, START));
    assert_eq!(asked(&denials), before + 1);
}

#[test]
fn a_denial_that_was_on_its_way_when_something_was_given_back_is_not_kept() {
    let limit = Limit::new(FixedWindow::new(1, Micros::HOUR)).unwrap();
    let denials = denials(&ManualClock::at(START));
    let charge = [Charge::new(Key::new(1, &[b"user"]), &limit)];
    assert!(done(denials.apply(&charge, Intent::Spend, START))[0].allowed);
    let mut denied = std::pin::pin!(denials.apply(&charge, Intent::Spend, START));
    let mut context = Context::from_waker(Waker::noop());
    assert!(denied.as_mut().poll(&mut context).is_pending(), "it is decided, and the answer is on its way");
    done(denials.apply(&charge, Intent::Refund { charged_at: START }, START));
    let Poll::Ready(Ok(outcomes)) = denied.as_mut().poll(&mut context) else { panic!("it is there") };
    assert!(outcomes[0].denied());
    assert!(done(denials.apply(&charge, Intent::Spend, START))[0].allowed);
    // Who asks behind a refund, at the same time, is asked behind it.
    assert!(done(denials.apply(&charge, Intent::Spend, START))[0].denied());
    let mut refund = Box::pin(denials.apply(&charge, Intent::Refund { charged_at: START }, START));
    assert!(refund.as_mut().poll(&mut context).is_pending());
    assert!(done(denials.apply(&charge, Intent::Spend, START))[0].allowed);
    assert!(refund.as_mut().poll(&mut context).is_ready());
    // Nor if whoever gave it back did not wait for the answer.
    {
        let mut denied = std::pin::pin!(denials.apply(&charge, Intent::Spend, START));
        assert!(denied.as_mut().poll(&mut context).is_pending());
        let mut refund = Box::pin(denials.apply(&charge, Intent::Refund { charged_at: START }, START));
        assert!(refund.as_mut().poll(&mut context).is_pending());
        drop(refund);
        assert!(denied.as_mut().poll(&mut context).is_ready());
    }
    assert!(done(denials.apply(&charge, Intent::Spend, START))[0].allowed);
}

/// A rule that only watches is asked with the denial, and told as it was while that is repeated.
#[test]
fn a_flood_stays_away_although_a_shadow_watches() {
    let rules = "domain: d\nrules:\n- {name: real, per: user, limits: {rate: 1/h, algorithm: fixed_window}}\n\
                 - {name: trial, limits: {rate: 5/h, algorithm: fixed_window}, mode: shadow}\n";
    let clock = ManualClock::at(START);
    let gate =
        Tollgate::with_engine(RuleSet::from_yaml(rules).unwrap(), Engine::with_clock(denials(&clock), clock.clone()));
    let asked = || asked(gate.engine().store());
    let check = |user: &str| {
        let verdict = done(gate.check(&Check::attributes("d", &[("user", user)])));
        let shadow = verdict.tolls.iter().find(|toll| toll.shadow).map(|toll| toll.outcome.remaining);
        (verdict.allowed, verdict.tolls.len(), shadow)
    };
    assert_eq!(check("alice"), (true, 2, Some(4)));
    assert_eq!(check("alice"), (false, 2, Some(4)), "it is only looked at");
    let before = asked();
    for _ in 0..1_000 {
        assert_eq!(check("alice"), (false, 2, Some(4)));
    }
    assert_eq!(asked(), before);
    assert_eq!(check("bob"), (true, 2, Some(3)));
    // A second later it is heard of again, and the shadow with it.
    clock.set(START.plus(Micros::from_millis(1_100)));
    assert_eq!(check("alice"), (false, 2, Some(3)));
    assert_eq!(asked(), before + 4);
    // What is given back ends it.
    done(gate.refund(&Check::attributes("d", &[("user", "alice")]), START));
    assert!(check("alice").0);
}

#[test]
fn what_is_given_back_to_one_says_nothing_of_others() {
    let limit = Limit::new(FixedWindow::new(1, Micros::HOUR)).unwrap();
    let denials = denials(&ManualClock::at(START));
    let names: Vec<[Vec<u8>; 1]> = (0..20_u8).map(|name| [vec![name]]).collect();
    let values: Vec<[&[u8]; 1]> = names.iter().map(|[name]| [&name[..]]).collect();
    let charge = |number: usize| [Charge::new(Key::new(1, &values[number]), &limit)];
    let spend = |number: usize| done(denials.apply(&charge(number), Intent::Spend, START))[0].allowed;
    for number in 1..20 {
        assert!(spend(number) && !spend(number));
    }
    let repeat = |why: &str| {
        let before = asked(&denials);
        (1..20).for_each(|number| assert!(!spend(number)));
        // One in a thousand shares a part with what was given back.
        assert!(asked(&denials) - before <= 1, "{why}: {}", asked(&denials) - before);
    };
    repeat("nothing happened");
    for how in [Settlement::Cancel, Settlement::CommitActual(&[0])] {
        let held = done(denials.reserve(&charge(0), HOLD, START)).1.unwrap();
        assert!(!spend(0));
        assert_eq!(done(denials.settle(held, how, START)), Settled::Done);
        repeat("another's was given back");
        let held = done(denials.reserve(&charge(0), HOLD, START)).1.expect("it was given back");
        // Who does not wait for the answer leaves open what became of it.
        let mut settling = Box::pin(denials.settle(held, how, START));
        assert!(settling.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        drop(settling);
        repeat("another's was given back, perhaps");
        assert_eq!(done(denials.settle(ReservationId(12), how, START)), Settled::Unknown);
        repeat("nobody's was given back");
    }
    // One that another server made may be anybody's.
    let (_, held) = denials.store().model.reserve_all(&charge(0), HOLD, START);
    assert_eq!(done(denials.settle(held.unwrap(), Settlement::Cancel, START)), Settled::Done);
    let before = asked(&denials);
    assert!(!spend(1));
    assert_eq!(asked(&denials), before + 1);
}

/// A store of several homes: what is charged in vain at one of them is given back a look later.
#[derive(Default)]
struct Apart(Slow);

impl Store for Apart {
    type Error = Infallible;

    async fn apply(&self, charges: &[Charge<'_>], intent: Intent, now: Timestamp) -> Result<Outcomes, Infallible> {
        let [first, .., last] = charges else { return self.0.apply(charges, intent, now).await };
        let charged = self.0.model.apply_all(&[*first], intent, now)[0];
        let denied = self.0.apply(&[*last], intent, now).await?[0];
        assert!(charged.allowed && denied.denied(), "as in the test");
        let intent = Intent::Refund { charged_at: charged.at };
        self.0.model.apply_all(&[*first], intent, now);
        Ok([self.0.model.apply_all(&[*first], Intent::Peek, now)[0], denied].into_iter().collect())
    }

    fn home(&self, charge: &Charge<'_>) -> u64 {
        charge.key.values.len() as u64
    }

    async fn apply_each(&self, _: &[Charge<'_>], _: Intent, _: Timestamp) -> Result<Vec<Outcome>, Infallible> {
        unreachable!("it is not asked")
    }

    async fn reserve(
        &self,
        _: &[Charge<'_>],
        _: Micros,
        _: Timestamp,
    ) -> Result<(Outcomes, Option<ReservationId>), Infallible> {
        unreachable!("it is not asked")
    }

    async fn settle(&self, _: ReservationId, _: Settlement<'_>, _: Timestamp) -> Result<Settled, Infallible> {
        unreachable!("it is not asked")
    }
}

#[test]
fn whoever_is_denied_for_what_was_charged_in_vain_is_not_denied_again() {
    let (one, none) = (FixedWindow::new(1, Micros::HOUR), FixedWindow::new(0, Micros::HOUR));
    let (one, none) = (Limit::new(one).unwrap(), Limit::new(none).unwrap());
    let denials = Denials::with_clock(Apart::default(), ManualClock::at(START));
    let user = Charge::new(Key::new(1, &[b"user"]), &one);
    let both = [user, Charge::new(Key::new(2, &[]), &none)];
    let mut vain = Box::pin(denials.apply(&both, Intent::Spend, START));
    assert!(vain.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let spend = || done(denials.apply(&[user], Intent::Spend, START))[0].allowed;
    assert!(!spend() && !spend(), "it is charged for now");
    assert!(done(vain)[1].denied());
    let asked = || denials.store().0.asked.load(Ordering::Relaxed);
    let before = asked();
    assert!(done(denials.apply(&both, Intent::Spend, START))[1].denied());
    assert_eq!(asked(), before, "its own denial is repeated");
    assert!(spend(), "what stood in its way was given back");
}

#[test]
fn slots_and_limits_that_record_denials_are_asked_every_time() {
    for limit in [
        Limit::new(Concurrency::new(1, Micros::HOUR)).unwrap(),
        Limit::new(FixedWindow::new(1, Micros::HOUR).record_rejected()).unwrap(),
    ] {
        let denials = denials(&ManualClock::at(START));
        for number in 1..=5 {
            let charge = [Charge::new(Key::new(1, &[]), &limit).lease(number)];
            assert_eq!(done(denials.apply(&charge, Intent::Spend, START))[0].allowed, number == 1);
            assert_eq!(asked(&denials), number);
        }
    }
}

#[test]
fn a_flood_of_keys_takes_no_more_room() {
    let limit = Limit::new(FixedWindow::new(0, Micros::HOUR)).unwrap();
    let denials = Denials::new(MemoryStore::new());
    let flood = |now: Timestamp| {
        let before = denials.repeated();
        for number in 0..150_000_u64 {
            let bytes: &[&[u8]] = &[&number.to_le_bytes()];
            let charge = [Charge::new(Key::new(1, bytes), &limit)];
            assert!(done(denials.apply(&charge, Intent::Spend, now))[0].denied());
        }
        denials.repeated() - before
    };
    assert_eq!(flood(START), 0);
    let kept = flood(START.plus(Micros::from_micros(1_000)));
    assert!((60_000..=65_536).contains(&kept), "{kept}");
    // What is over makes room for others.
    let later = START.plus(Micros::MINUTE);
    flood(later);
    assert!(flood(later) > 60_000);
}

#[test]
fn a_wait_is_never_told_too_short() {
    let limit = Limit::new(TokenBucket::new(Rate::per_second(10)).burst(1)).unwrap();
    let clock = ManualClock::at(START);
    let denials = denials(&clock);
    let charge = [Charge::new(Key::new(1, &[b"user"]), &limit)];
    assert!(done(denials.apply(&charge, Intent::Spend, START))[0].allowed);
    let mut denied = Box::pin(denials.apply(&charge, Intent::Spend, START));
    assert!(denied.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    // The answer is on its way for a while.
    clock.set(START.plus(Micros::from_millis(3)));
    assert!(denied.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
    let now = START.plus(Micros::from_millis(10));
    let told = done(denials.apply(&charge, Intent::Spend, now))[0].retry_after.unwrap();
    assert_eq!((asked(&denials), told), (2, Micros::from_millis(93)), "it may have been decided at the last moment");
}
