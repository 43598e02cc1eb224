//! When a server is no longer asked, and when it is asked again. Pure: time is an argument, nothing is logged or
//! awaited here.
//!
//! A breaker bounds how many calls pay for a server that fails or is slow. It opens after [`FAILURES`] refusals that no
//! successes make up for, or when nothing but failures came for [`STREAK`]. Calls that were late together, since one
//! stall held them all, are one failure and not many: what is over after a few milliseconds closes nobody's door. After
//! a while the breaker lets one call through, and what that meets decides.
//!
//! ```text
//!              failures                        the hold is over, and there is a connection
//!   closed ─────────────────────> open ────────────────────────────────────────────> half open
//!      ^                           ^                                                    │
//!      └───────────────────────────┼───────────────── the probe succeeds ───────────────┤
//!                                  └───────────────── the probe fails ──────────────────┘
//! ```
//!
//! It opens at most once per [`CALM`]: one that would open again sooner stays open for longer instead, so that nothing
//! flaps.

use std::time::Duration;

use tokio::time::Instant;

/// So many refusals in a row open it, or stalls that few calls between them were spared.
pub(super) const FAILURES: u32 = 8;
/// A success makes up for a quarter of a failure: what fails more often than every fifth call is worse than nothing.
const WORTH: u32 = 4;
/// Nothing but failures from the begin of the first one's call on, and two or more. Half of the 50 ms of traffic that
/// may pay, so that even where calls are few none begins later and pays.
pub(super) const STREAK: Duration = Duration::from_millis(25);
/// How long it stays open at first, and at most: whoever comes back is seen within 250 ms, of which a connection may
/// take some.
const HOLD: Duration = Duration::from_millis(20);
const LONGEST_HOLD: Duration = Duration::from_millis(100);
/// It opens at most once in this time.
const CALM: Duration = Duration::from_secs(1);

/// What a breaker does with calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Position {
    /// All go through.
    Closed,
    /// None goes through.
    Open,
    /// One goes through, as a probe.
    HalfOpen,
}

/// How a call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// No answer came in time.
    Late,
    /// There was an answer that is none.
    Refused,
}

/// The state of a breaker.
#[derive(Clone, Debug)]
pub(super) struct Breaker {
    position: Position,
    /// Failures, each worth [`WORTH`], less the successes.
    score: u32,
    /// Since the last success: when the first call that failed was begun.
    streak: Option<Instant>,
    /// When a call was last counted as late.
    late: Option<Instant>,
    /// When it opened last, from closed.
    opened: Option<Instant>,
    /// When one may be let through.
    until: Option<Instant>,
    hold: Duration,
}

impl Default for Breaker {
    fn default() -> Self {
        Self { position: Position::Closed, score: 0, streak: None, late: None, opened: None, until: None, hold: HOLD }
    }
}

impl Breaker {
    /// What it does with calls.
    pub(super) fn position(&self) -> Position {
        self.position
    }

    /// When [`Self::retry`] will half open it, if it is open.
    pub(super) fn retry_at(&self) -> Option<Instant> {
        self.until.filter(|_| self.position == Position::Open)
    }

    /// A call was answered in time.
    pub(super) fn succeeded(&mut self) {
        if self.position == Position::Closed {
            self.score = self.score.saturating_sub(1);
            self.streak = None;
        }
    }

    /// A call that was begun at `begun` failed.
    pub(super) fn failed(&mut self, how: Failure, begun: Instant, now: Instant) {
        if self.position != Position::Closed {
            return;
        }
        let same_stall = how == Failure::Late && self.late.is_some_and(|late| begun < late);
        if !same_stall {
            self.score += WORTH;
        }
        if how == Failure::Late && !same_stall {
            self.late = Some(now);
        }
        let lasts = self.streak.is_some_and(|streak| now.saturating_duration_since(streak) >= STREAK);
        if self.score >= FAILURES * WORTH || lasts {
            self.open(now);
        } else {
            self.streak.get_or_insert(begun);
        }
    }

    /// The connection is gone, or the server may not be believed: no call goes through until there is another.
    pub(super) fn trip(&mut self, now: Instant) {
        match self.position {
            Position::Closed => self.open(now),
            Position::HalfOpen => self.probed(false, now),
            Position::Open => {}
        }
    }

    /// There is a connection: half opens what has been open for long enough. True if that changed something.
    pub(super) fn retry(&mut self, now: Instant) -> bool {
        let due = self.position == Position::Open && self.until.is_none_or(|until| now >= until);
        if due {
            self.position = Position::HalfOpen;
        }
        due
    }

    /// The one that was let through while half open met with success or not.
    pub(super) fn probed(&mut self, success: bool, now: Instant) {
        if self.position != Position::HalfOpen {
            return;
        }
        if success {
            *self = Self { opened: self.opened, ..Self::default() };
        } else {
            self.position = Position::Open;
            self.until = Some(now + self.hold);
            self.hold = (self.hold * 2).min(LONGEST_HOLD);
        }
    }

    fn open(&mut self, now: Instant) {
        let calm = self.opened.map_or(now, |opened| opened + CALM);
        self.position = Position::Open;
        self.until = Some(calm.max(now + self.hold));
        self.hold = (self.hold * 2).min(LONGEST_HOLD);
        self.opened = Some(calm.max(now));
        self.score = 0;
        self.streak = None;
        self.late = None;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const DEADLINE: Duration = Duration::from_millis(5);

    /// Fails calls that are begun every `every` from `begin` on, until it opens: how many failed, when the last one
    /// began, and when it opened.
    fn failures_until_open(how: Failure, begin: Instant, every: Duration) -> (u32, Duration, Duration) {
        let mut breaker = Breaker::default();
        let mut begun = begin;
        for number in 1..=100_000 {
            breaker.failed(how, begun, begun + DEADLINE);
            if breaker.position() == Position::Open {
                return (number, begun - begin, begun + DEADLINE - begin);
            }
            begun += every;
        }
        panic!("it never opened");
    }

    #[test]
    fn a_dead_server_is_given_up_after_eight_failures_or_fifty_milliseconds() {
        let begin = Instant::now();
        for micros in [1, 10, 100, 1_000, 5_000, 9_000, 10_000, 12_000, 20_000, 30_000, 45_000, 100_000, 5_000_000] {
            let every = Duration::from_micros(micros);
            let (refusals, _, _) = failures_until_open(Failure::Refused, begin, every);
            assert!(refusals <= FAILURES, "{refusals} at one in {every:?}");
            let (late, last, opened) = failures_until_open(Failure::Late, begin, every);
            assert!(late == 2 || last <= 45 * MS && opened <= 50 * MS, "{late} in {opened:?} at one in {every:?}");
        }
    }

    #[test]
    fn a_short_stall_is_no_outage_however_many_it_holds() {
        let begin = Instant::now();
        let mut breaker = Breaker::default();
        for stall in 0..20 {
            let from = begin + stall * 100 * MS;
            (0..500).for_each(|call| {
                breaker.failed(Failure::Late, from + call * Duration::from_micros(30), from + 20 * MS);
            });
            (0..20).for_each(|_| breaker.succeeded());
        }
        assert_eq!(breaker.position(), Position::Closed);
    }

    #[test]
    fn one_failure_is_none() {
        let mut breaker = Breaker::default();
        let mut now = Instant::now();
        for _ in 0..100 {
            breaker.failed(Failure::Late, now, now + DEADLINE);
            breaker.succeeded();
            (0..WORTH).for_each(|_| breaker.succeeded());
            now += 100 * MS;
        }
        assert_eq!(breaker.position(), Position::Closed);
    }

    #[test]
    fn a_server_that_fails_every_third_call_is_given_up_and_one_that_fails_every_tenth_is_not() {
        for (one_in, position) in [(3, Position::Open), (10, Position::Closed)] {
            let mut breaker = Breaker::default();
            let now = Instant::now();
            for number in 0..1_000 {
                if number % one_in == 0 { breaker.failed(Failure::Refused, now, now) } else { breaker.succeeded() }
            }
            assert_eq!(breaker.position(), position, "one in {one_in}");
        }
    }

    #[test]
    fn half_open_one_probe_decides() {
        let begin = Instant::now();
        let mut breaker = Breaker::default();
        breaker.trip(begin);
        let until = breaker.retry_at().expect("it is open");
        assert!(!breaker.retry(until - MS));
        assert!(breaker.retry(until));
        assert_eq!(breaker.position(), Position::HalfOpen);
        // What others meet, who were let through before it opened, does not matter.
        breaker.succeeded();
        breaker.failed(Failure::Refused, begin, until);
        assert_eq!(breaker.position(), Position::HalfOpen);
        breaker.probed(false, until);
        assert_eq!(breaker.position(), Position::Open);
        let later = breaker.retry_at().expect("it is open");
        assert!(later > until && later - until <= LONGEST_HOLD);
        breaker.retry(later);
        breaker.probed(true, later);
        assert_eq!(breaker.position(), Position::Closed);
    }

    #[derive(Clone, Copy, Debug)]
    enum Event {
        Succeeded,
        Failed(Failure, u64),
        Trip,
        Retry,
        Probed(bool),
        Pass(u64),
    }

    fn event() -> impl Strategy<Value = Event> {
        prop_oneof![
            Just(Event::Succeeded),
            (0..10_000u64).prop_map(|micros| Event::Failed(Failure::Refused, micros)),
            (0..10_000u64).prop_map(|micros| Event::Failed(Failure::Late, micros)),
            Just(Event::Trip),
            Just(Event::Retry),
            any::<bool>().prop_map(Event::Probed),
            (0..200_000u64).prop_map(Event::Pass),
        ]
    }

    proptest! {
        #[test]
        fn whatever_happens(events in prop::collection::vec(event(), 0..400)) {
            let mut now = Instant::now();
            let mut breaker = Breaker::default();
            let (mut openings, mut in_a_row) = (Vec::new(), 0);
            for event in events {
                let before = breaker.position();
                match event {
                    Event::Succeeded => {
                        breaker.succeeded();
                        in_a_row = 0;
                    }
                    Event::Failed(how, micros) => {
                        breaker.failed(how, now, now + Duration::from_micros(micros));
                        now += Duration::from_micros(micros);
                        in_a_row += u32::from(before == Position::Closed && how == Failure::Refused);
                    }
                    Event::Trip => breaker.trip(now),
                    Event::Retry => { breaker.retry(now); }
                    Event::Probed(success) => breaker.probed(success, now),
                    Event::Pass(micros) => now += Duration::from_micros(micros),
                }
                let after = breaker.position();
                if after != Position::Closed { in_a_row = 0 }
                prop_assert!(in_a_row < FAILURES, "so many failures in a row open it");
                // Only a probe closes it, and nothing half opens it but a retry.
                prop_assert!(after != Position::Closed || before != Position::Open);
                if before == Position::HalfOpen && after == Position::Closed {
                    prop_assert!(matches!(event, Event::Probed(true)));
                }
                if before == Position::Open && after == Position::HalfOpen {
                    prop_assert!(matches!(event, Event::Retry));
                }
                if before == Position::Closed && after == Position::Open {
                    openings.push(now);
                }
                // Whatever it is, it can be tried again, and soon.
                if after == Position::Open {
                    let at = breaker.retry_at().expect("when it will be tried");
                    prop_assert!(at <= now + CALM + CALM);
                }
            }
            // Over any stretch of time it opened at most once per second and once more.
            for (first, from) in openings.iter().enumerate() {
                for (last, to) in openings.iter().enumerate().skip(first) {
                    let most = (*to - *from).as_secs_f64() / CALM.as_secs_f64() + 2.0;
                    prop_assert!(((last - first + 1) as f64) <= most, "{} in {:?}", last - first + 1, *to - *from);
                }
            }
        }
    }
}
