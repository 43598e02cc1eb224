//! Where timestamps come from. The only file that reads a clock or sleeps.
//!
//! A decision reads its clock once. The system clock is built for that: a processor counter costs a fraction of a
//! system call, and is pulled towards the wall clock so slowly that neither a step of the wall clock nor a badly
//! calibrated counter ever shows as a jump.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tollgate_core::{Micros, Timestamp};

/// A source of time.
pub trait Clock: Send + Sync {
    /// The time now.
    fn now(&self) -> Timestamp;

    /// Completes when `now` is not before `at`.
    fn sleep_until(&self, at: Timestamp) -> impl Future<Output = ()> + Send;
}

impl<C: Clock> Clock for Arc<C> {
    fn now(&self) -> Timestamp {
        C::now(self)
    }

    fn sleep_until(&self, at: Timestamp) -> impl Future<Output = ()> + Send {
        C::sleep_until(self, at)
    }
}

/// How often the counter is compared with the wall clock, in microseconds.
const SYNC_EVERY: u64 = 10_000;
/// The largest part of that time by which it is moved.
const SLEW: u64 = 1_000;
/// A wall clock that is this many microseconds ahead is right: it was set, or the machine slept.
const LEAP: u64 = 1_000_000;
/// One that is a year ahead may be wrong for a moment,
const LONG_LEAP: u64 = 366 * 24 * 3_600 * 1_000_000;
/// and is believed when it has been so for this many microseconds.
const DOUBT: u64 = 60 * 1_000_000;
/// Later than this, in the year 2245, it is wrong in any case: ten years further and timestamps end.
const LATEST: u64 = Timestamp::MAX.as_micros() - 10 * LONG_LEAP;
/// In place of an instant: it is not in doubt.
const NEVER: u64 = u64::MAX;

/// The time of day, read from the processor's counter.
///
/// It starts at the wall clock's time and follows it by at most 1 part in 1,000, so that one that is set back bends it
/// and never makes it jump. One that is more than a second ahead, because it was set or the machine slept, is followed
/// at once: time that leaps ahead fills buckets and ends windows, once. Only a leap of more than a year, which nothing
/// could take back, has to last for a minute first. Sleeping needs a tokio runtime with time enabled.
#[derive(Debug)]
pub struct SystemClock {
    counter: quanta::Clock,
    start: u64,
    /// Microseconds per tick of the counter, over 2^64.
    scale: u64,
    /// Microseconds from the counter's start to the next comparison.
    next_sync: AtomicU64,
    /// Microseconds since the epoch at the counter's start, as believed now.
    offset: AtomicU64,
    /// Microseconds from the counter's start to when the wall clock was first seen far ahead.
    doubted_since: AtomicU64,
}

impl SystemClock {
    /// A clock that shows the time of day.
    pub fn new() -> Self {
        /// Enough for a scale that is exact to a microsecond in a century, and few enough to be scaled to nanoseconds.
        const TICKS: u64 = 1 << 53;
        let counter = quanta::Clock::new();
        let nanos = counter.delta_as_nanos(0, TICKS);
        let scale = (u128::from(nanos) << 64) / (u128::from(TICKS) * 1_000);
        Self {
            start: counter.raw(),
            counter,
            scale: u64::try_from(scale).unwrap_or(u64::MAX),
            next_sync: AtomicU64::new(SYNC_EVERY),
            offset: AtomicU64::new(wall_micros().unwrap_or_default()),
            doubted_since: AtomicU64::new(NEVER),
        }
    }

    #[cold]
    fn sync(&self, elapsed: u64) {
        let due = self.next_sync.load(Ordering::Relaxed);
        let next = elapsed.wrapping_add(SYNC_EVERY);
        // Whoever moves the due time does the work; others read on.
        if elapsed < due || self.next_sync.compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return;
        }
        let most = (elapsed - due + SYNC_EVERY) / SLEW;
        if let Some(wall) = wall_micros() {
            self.follow(wall, elapsed, most);
        }
    }

    /// Moves what is shown after `elapsed` towards `wall`, by `most` unless that leaps ahead.
    fn follow(&self, wall: u64, elapsed: u64, most: u64) {
        let offset = self.offset.load(Ordering::Relaxed);
        let shown = offset.saturating_add(elapsed);
        let ahead = wall.saturating_sub(shown);
        if ahead <= LONG_LEAP {
            self.doubted_since.store(NEVER, Ordering::Relaxed);
        }
        let moved = match shown.checked_sub(wall) {
            Some(behind) => offset.saturating_sub(behind.min(most)),
            None if ahead <= LEAP => offset + ahead.min(most),
            None if ahead > LONG_LEAP && self.is_doubted(elapsed) => offset,
            None => offset + ahead,
        };
        self.offset.store(moved, Ordering::Relaxed);
    }

    /// Whether a wall clock that is far ahead has not been so for long.
    fn is_doubted(&self, elapsed: u64) -> bool {
        let since = self.doubted_since.load(Ordering::Relaxed).min(elapsed);
        self.doubted_since.store(since, Ordering::Relaxed);
        elapsed - since < DOUBT
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    #[inline]
    fn now(&self) -> Timestamp {
        // Another processor's counter may lag behind the one that it was started on.
        let ticks = self.counter.raw().saturating_sub(self.start);
        let elapsed = ((u128::from(ticks) * u128::from(self.scale)) >> 64) as u64;
        if elapsed >= self.next_sync.load(Ordering::Relaxed) {
            self.sync(elapsed);
        }
        Timestamp::from_micros(self.offset.load(Ordering::Relaxed).wrapping_add(elapsed))
    }

    #[allow(clippy::disallowed_methods, reason = "this is the clock")]
    async fn sleep_until(&self, at: Timestamp) {
        loop {
            let left = at.since(self.now());
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(Duration::from(left)).await;
        }
    }
}

/// Microseconds since the epoch, unless the wall clock is beyond all reason.
fn wall_micros() -> Option<u64> {
    #[allow(clippy::disallowed_methods, reason = "this is the clock")]
    in_reason(SystemTime::now())
}

/// Before the epoch is the epoch.
fn in_reason(wall: SystemTime) -> Option<u64> {
    let since = wall.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).ok().filter(|micros| *micros <= LATEST)
}

/// Time that passes only when told to: for tests and simulations. Clones share it.
#[derive(Clone, Debug)]
pub struct ManualClock {
    shared: Arc<Mutex<Manual>>,
}

#[derive(Debug)]
struct Manual {
    now: Timestamp,
    next_sleeper: u64,
    /// By due time, then by order of arrival.
    sleepers: BTreeMap<(Timestamp, u64), Waker>,
}

impl ManualClock {
    /// A clock that stands at `now`.
    pub fn at(now: Timestamp) -> Self {
        Self { shared: Arc::new(Mutex::new(Manual { now, next_sleeper: 0, sleepers: BTreeMap::new() })) }
    }

    /// Moves time on by `span` and wakes whoever is due, in order.
    pub fn advance(&self, span: Micros) {
        let to = self.now().plus(span);
        self.set(to);
    }

    /// Moves time to `now`, which may be earlier.
    pub fn set(&self, now: Timestamp) {
        let due = self.with(|manual| {
            manual.now = now;
            let later = manual.sleepers.split_off(&(now.plus(Micros::from_micros(1)), 0));
            std::mem::replace(&mut manual.sleepers, later)
        });
        due.into_values().for_each(Waker::wake);
    }

    /// When the next sleeper is due, if anyone sleeps.
    pub fn next_due(&self) -> Option<Timestamp> {
        self.with(|manual| manual.sleepers.keys().next().map(|(due, _)| *due))
    }

    fn with<R>(&self, f: impl FnOnce(&mut Manual) -> R) -> R {
        f(&mut self.shared.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        self.with(|manual| manual.now)
    }

    async fn sleep_until(&self, at: Timestamp) {
        let mut sleeper = Sleeper { clock: self, place: None };
        poll_fn(|context| {
            // The waker that it replaces is dropped after the lock: whatever that brings about may want the clock.
            let (poll, _replaced) = self.with(|manual| {
                if manual.now >= at {
                    return (Poll::Ready(()), None);
                }
                let place = *sleeper.place.get_or_insert_with(|| {
                    manual.next_sleeper += 1;
                    (at, manual.next_sleeper)
                });
                (Poll::Pending, manual.sleepers.insert(place, context.waker().clone()))
            });
            poll
        })
        .await;
    }
}

/// Someone who sleeps, until dropped.
struct Sleeper<'c> {
    clock: &'c ManualClock,
    place: Option<(Timestamp, u64)>,
}

impl Drop for Sleeper<'_> {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            let _waker = self.clock.with(|manual| manual.sleepers.remove(&place));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;
    const HOUR: u64 = 3_600 * SECOND;
    const YEAR: u64 = 365 * 24 * HOUR;
    /// Some time in 2025.
    const START: u64 = 55 * YEAR;

    #[test]
    fn the_system_clock_shows_the_wall_clock() {
        let clock = SystemClock::new();
        let wall = wall_micros().unwrap();
        let shown = clock.now().as_micros();
        assert!(shown.abs_diff(wall) < 1_000_000, "{shown} {wall}");
        let mut last = Timestamp::EPOCH;
        for _ in 0..10_000 {
            let now = clock.now();
            assert!(now.plus(Micros::from_micros(20)) >= last, "a step back of more than the slew: {now:?} {last:?}");
            last = now;
        }
    }

    /// A clock that believes that it was started at `start`, and what it shows when it compares itself, after a time,
    /// with a wall clock.
    fn started_at(start: u64) -> (SystemClock, impl Fn(&SystemClock, u64, u64) -> u64) {
        let clock = SystemClock::new();
        clock.offset.store(start, Ordering::Relaxed);
        let shows = |clock: &SystemClock, elapsed: u64, wall: u64| {
            clock.follow(wall, elapsed, SYNC_EVERY / SLEW);
            clock.offset.load(Ordering::Relaxed) + elapsed
        };
        (clock, shows)
    }

    #[test]
    fn a_wall_clock_that_is_set_back_bends_the_clock_and_one_set_forward_is_followed() {
        let (clock, shows) = started_at(START);
        assert_eq!(shows(&clock, HOUR, START), START + HOUR - SYNC_EVERY / SLEW);
        assert_eq!(shows(&clock, HOUR, START + HOUR + SECOND / 2), START + HOUR);
        assert_eq!(shows(&clock, HOUR, START + 3 * HOUR), START + 3 * HOUR);
        assert_eq!(shows(&clock, 2 * HOUR, START + 4 * HOUR), START + 4 * HOUR);
    }

    /// As on a machine that has forgotten the date: it may have been up for longer than its wall clock shows.
    #[test]
    fn a_wall_clock_near_the_epoch_bends_the_clock() {
        let (clock, shows) = started_at(START);
        for wall in [0, 1, HOUR, 2 * HOUR] {
            let before = clock.offset.load(Ordering::Relaxed);
            assert_eq!(shows(&clock, 2 * HOUR, wall), before + 2 * HOUR - SYNC_EVERY / SLEW, "wall clock at {wall}");
        }
        let (clock, shows) = started_at(0);
        assert_eq!(shows(&clock, 5, 3), 5, "there is nothing before the epoch to bend to");
    }

    #[test]
    fn a_wall_clock_that_is_far_ahead_is_followed_when_it_stays_there() {
        let (clock, shows) = started_at(0);
        for elapsed in [HOUR, HOUR + SECOND, HOUR + 59 * SECOND] {
            assert_eq!(shows(&clock, elapsed, START + elapsed), elapsed, "a year and more at once");
        }
        assert_eq!(shows(&clock, HOUR + 60 * SECOND, START), START, "for a minute");
        // One reading between two is enough for the doubt to begin anew.
        let (clock, shows) = started_at(START);
        let far = 2 * START;
        for (elapsed, wall) in [(0, far), (40, far), (50, START + 50 * SECOND), (70, far), (110, far)] {
            let right = START + elapsed * SECOND;
            assert_eq!(shows(&clock, elapsed * SECOND, wall), right, "after {elapsed} s");
        }
    }

    #[test]
    fn a_wall_clock_beyond_reason_is_not_read() {
        let at = |micros| in_reason(UNIX_EPOCH + Duration::from_micros(micros));
        assert_eq!(at(START), Some(START));
        assert_eq!(at(275 * YEAR), Some(275 * YEAR));
        assert_eq!((at(286 * YEAR), at(1 << 60), at(u64::MAX)), (None, None, None));
        assert_eq!(in_reason(UNIX_EPOCH - Duration::from_secs(1)), Some(0));
    }

    #[test]
    fn a_manual_clock_wakes_those_who_are_due() {
        let clock = ManualClock::at(Timestamp::from_secs(1));
        let mut sleep = Box::pin(clock.sleep_until(Timestamp::from_secs(3)));
        let mut context = std::task::Context::from_waker(Waker::noop());
        assert!(sleep.as_mut().poll(&mut context).is_pending());
        assert_eq!(clock.next_due(), Some(Timestamp::from_secs(3)));
        clock.advance(Micros::from_secs(2));
        assert!(sleep.as_mut().poll(&mut context).is_ready());
        assert_eq!(clock.next_due(), None);
    }

    #[test]
    fn those_who_no_longer_sleep_are_not_due() {
        let clock = ManualClock::at(Timestamp::from_secs(1));
        let mut context = std::task::Context::from_waker(Waker::noop());
        let mut sleeps = [3, 2, 4].map(|second| Some(Box::pin(clock.sleep_until(Timestamp::from_secs(second)))));
        for sleep in sleeps.iter_mut().flatten() {
            assert!(sleep.as_mut().poll(&mut context).is_pending());
            assert!(sleep.as_mut().poll(&mut context).is_pending());
        }
        sleeps[1] = None;
        assert_eq!(clock.next_due(), Some(Timestamp::from_secs(3)));
        sleeps[0] = None;
        assert_eq!(clock.next_due(), Some(Timestamp::from_secs(4)));
        sleeps[2] = None;
        assert_eq!(clock.next_due(), None);
    }
}
