//! Denials that are repeated without asking are those that the store would have given.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::convert::Infallible;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use tollgate::core::mix;
use tollgate::{
    Charge, Concurrency, Denials, FixedWindow, Intent, Key, Limit, ManualClock, MemoryStore, Micros, Outcome, Outcomes,
    Rate, ReservationId, Settled, Settlement, Store, Timestamp, TokenBucket,
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
