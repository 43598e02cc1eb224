//! Alarms that ring on time.
//!
//! tokio's timers are as fine as a millisecond: what leaves a queue of 1,000 a second would leave in lumps. So a thread
//! that serves has a timer of the system's own besides, and one list of those who wait for it: by when they are due
//! and, where that is the same, by who came first. One who no longer waits is in no list. Everywhere else (other
//! threads, other systems than Linux) tokio's timers serve.
//!
//! This is no clock: whoever slept asks theirs whether it is time.

use std::time::Duration;

/// Completes after `time`, and never before.
pub(super) async fn sleep(time: Duration) {
    #[cfg(target_os = "linux")]
    if let Some(alarms) = linux::Alarms::here() {
        return alarms.wait(time).await;
    }
    tokio::time::sleep(time).await;
}

/// Rings the alarms of this thread for as long as it is polled, and never completes. For threads whose tasks stay with
/// them.
pub(crate) async fn ring() {
    #[cfg(target_os = "linux")]
    linux::ring().await;
    std::future::pending::<()>().await;
}

#[cfg(target_os = "linux")]
mod linux {
    use std::cell::RefCell;
    use std::collections::BTreeMap;
    use std::future::Future;
    use std::io;
    use std::os::fd::OwnedFd;
    use std::pin::Pin;
    use std::sync::{Arc, Mutex, PoisonError};
    use std::task::{Context, Poll, Waker};
    use std::time::Duration;

    use rustix::time::{
        ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime, timerfd_create,
        timerfd_settime,
    };
    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;

    thread_local! {
        /// Those of this thread, while it rings them.
        static HERE: RefCell<Option<Arc<Alarms>>> = const { RefCell::new(None) };
    }

    /// The alarms of one thread.
    pub(super) struct Alarms {
        timer: AsyncFd<OwnedFd>,
        waits: Mutex<Waits>,
    }

    /// Since the system started.
    type Moment = Duration;

    /// When somebody is due, and how many came before.
    type Place = (Moment, u64);

    /// Who waits, in order.
    #[derive(Default)]
    pub(super) struct Waits {
        came: u64,
        by_place: BTreeMap<Place, Waker>,
    }

    impl Waits {
        fn place(&mut self, due: Moment) -> Place {
            self.came += 1;
            (due, self.came)
        }

        /// Puts somebody there. Gives what was there before, and whether the next alarm is now this one.
        fn set(&mut self, place: Place, waker: Waker) -> (Option<Waker>, bool) {
            let before = self.by_place.insert(place, waker);
            let is_first = self.by_place.first_key_value().is_some_and(|(first, _)| *first == place);
            let is_next = before.is_none() && is_first;
            (before, is_next)
        }

        fn remove(&mut self, place: Place) -> Option<Waker> {
            self.by_place.remove(&place)
        }

        /// Takes out who is due, in order.
        fn due(&mut self, now: Moment) -> BTreeMap<Place, Waker> {
            let later = self.by_place.split_off(&(now, u64::MAX));
            std::mem::replace(&mut self.by_place, later)
        }

        fn next(&self) -> Option<Moment> {
            self.by_place.first_key_value().map(|((due, _), _)| *due)
        }
    }

    impl Alarms {
        #[allow(deprecated, reason = "unsound only for what changes its descriptor; an owned one stays what it is")]
        fn new() -> io::Result<Self> {
            let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
            Ok(Self { timer: AsyncFd::with_interest(timer, Interest::READABLE)?, waits: Mutex::default() })
        }

        pub(super) fn here() -> Option<Arc<Self>> {
            HERE.with_borrow(Option::clone)
        }

        pub(super) fn wait(self: Arc<Self>, time: Duration) -> Wait {
            let place = self.with(|waits| waits.place(now().saturating_add(time)));
            Wait { alarms: self, place }
        }

        /// Wakers that are given out are dropped after the lock: whatever that brings about may want the list.
        fn with<R>(&self, f: impl FnOnce(&mut Waits) -> R) -> R {
            f(&mut self.waits.lock().unwrap_or_else(PoisonError::into_inner))
        }

        fn set_timer(&self, due: Moment) {
            let it_value = Timespec::try_from(due).unwrap_or(Timespec { tv_sec: i64::MAX, tv_nsec: 0 });
            let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
            // It is our own timer and a time that there is, so nothing can be wrong.
            let _ = timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &Itimerspec { it_interval, it_value });
        }

        fn wake_due(&self) {
            let (due, next) = self.with(|waits| (waits.due(now()), waits.next()));
            // To set it again is to read it: nothing is left to be told about the last time.
            if let Some(next) = next {
                self.set_timer(next);
            }
            due.into_values().for_each(Waker::wake);
        }
    }

    /// Takes them away from the thread when it stops to ring them.
    struct Here;

    impl Drop for Here {
        fn drop(&mut self) {
            let _thread_is_ending = HERE.try_with(RefCell::take);
        }
    }

    pub(super) async fn ring() {
        let alarms = match Alarms::new() {
            Ok(alarms) => Arc::new(alarms),
            Err(error) => {
                tracing::warn!("waits are only as fine as a millisecond, since there is no timer: {error}");
                return;
            }
        };
        HERE.set(Some(Arc::clone(&alarms)));
        let _here = Here;
        // An error says that the runtime ends.
        while let Ok(mut rung) = alarms.timer.readable().await {
            rung.clear_ready();
            alarms.wake_due();
        }
    }

    fn now() -> Moment {
        Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default()
    }

    /// Somebody who waits, until dropped.
    pub(super) struct Wait {
        alarms: Arc<Alarms>,
        place: Place,
    }

    impl Future for Wait {
        type Output = ();

        fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
            let Self { alarms, place } = &*self;
            if now() >= place.0 {
                return Poll::Ready(());
            }
            let (_before, is_next) = alarms.with(|waits| waits.set(*place, cx.waker().clone()));
            if is_next {
                alarms.set_timer(place.0);
            }
            Poll::Pending
        }
    }

    impl Drop for Wait {
        fn drop(&mut self) {
            let _waker = self.alarms.with(|waits| waits.remove(self.place));
        }
    }

    #[cfg(test)]
    mod tests {
        use std::sync::atomic::{AtomicUsize, Ordering};
        use std::task::Wake;

        use super::super::{ring, sleep};
        use super::*;

        #[derive(Default)]
        struct Woken(AtomicUsize);

        impl Wake for Woken {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }

        /// What `work` gives on a thread that rings its alarms.
        fn ringing<R>(work: impl Future<Output = R>) -> R {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                tokio::select! {
                    biased;
                    () = ring() => unreachable!("it never completes"),
                    result = work => result,
                }
            })
        }

        fn micros(micros: u64) -> Duration {
            Duration::from_micros(micros)
        }

        #[test]
        fn who_is_due_comes_in_order_and_of_equals_the_first_first() {
            let mut waits = Waits::default();
            let places = [30, 10, 20, 10, 40].map(|due| waits.place(micros(due)));
            let firsts = places.map(|place| waits.set(place, Waker::noop().clone()).1);
            assert_eq!(firsts, [true, true, false, false, false]);
            assert!(waits.due(micros(9)).is_empty());
            let due: Vec<Place> = waits.due(micros(20)).into_keys().collect();
            assert_eq!(due, [places[1], places[3], places[2]]);
            assert_eq!(waits.next(), Some(micros(30)));
            assert!(waits.remove(places[0]).is_some() && waits.remove(places[1]).is_none());
            assert_eq!(waits.next(), Some(micros(40)));
            // To be asked again is no reason to set the timer again.
            assert!(!waits.set(places[4], Waker::noop().clone()).1);
        }

        /// Who was woken, in order.
        type Rung = Arc<Mutex<Vec<u64>>>;

        /// Notes who was woken, and whether that was too early.
        struct Noted(u64, Moment, Rung);

        impl Wake for Noted {
            fn wake(self: Arc<Self>) {
                assert!(now() >= self.1);
                self.2.lock().unwrap().push(self.0);
            }
        }

        /// Waits of this many groups of three, of which each next is due a little later; they come in the opposite
        /// order. `None` if the first are due before the last has come.
        fn crowd(alarms: &Arc<Alarms>, groups: u64, first: Duration) -> Option<(Vec<Wait>, Rung)> {
            let (noted, begun) = (Arc::default(), now());
            let come = |number: u64| {
                let due = begun + first + micros(number * 7);
                (0..3).map(move |same| (due, number * 3 + same))
            };
            let mut waits = Vec::new();
            for (due, number) in (0..groups).rev().flat_map(come) {
                let mut wait = Arc::clone(alarms).wait(due.saturating_sub(now()));
                wait.place.0 = due;
                let waker = Waker::from(Arc::new(Noted(number, due, Arc::clone(&noted))));
                if Pin::new(&mut wait).poll(&mut Context::from_waker(&waker)).is_ready() {
                    return None;
                }
                waits.push(wait);
            }
            (now() < begun + first).then_some((waits, noted))
        }

        #[test]
        fn many_alarms_ring_in_order_and_none_too_early() {
            ringing(async {
                let alarms = Alarms::here().unwrap();
                let first = (0..10).map(|power| micros(10_000 << power));
                let (waits, noted) = first.filter_map(|first| crowd(&alarms, 300, first)).next().unwrap();
                let last = waits.first().unwrap().place.0;
                sleep(last.saturating_sub(now())).await;
                assert!(now() >= last);
                // This one may be asked once more before the others are rung.
                for _ in 0..1_000 {
                    if noted.lock().unwrap().len() == 900 {
                        break;
                    }
                    sleep(micros(1_000)).await;
                }
                let noted = noted.lock().unwrap();
                assert_eq!(*noted, (0..900).collect::<Vec<_>>());
                assert!(alarms.with(|waits| waits.by_place.is_empty()));
            });
        }

        #[test]
        fn who_leaves_is_not_woken_and_nothing_of_them_is_kept() {
            ringing(async {
                let (alarms, woken) = (Alarms::here().unwrap(), Arc::new(Woken::default()));
                let waker = Waker::from(Arc::clone(&woken));
                let mut waits: Vec<_> =
                    (0..100).map(|number| Box::pin(Arc::clone(&alarms).wait(micros(1_000 + number)))).collect();
                for wait in waits.iter_mut().chain([&mut Box::pin(Arc::clone(&alarms).wait(micros(1)))]) {
                    // Asked twice, and yet in the list only once.
                    let _ = wait.as_mut().poll(&mut Context::from_waker(&waker));
                    let _ = wait.as_mut().poll(&mut Context::from_waker(&waker));
                }
                assert!(alarms.with(|waits| waits.by_place.len()) <= 100);
                drop(waits);
                drop(waker);
                assert!(alarms.with(|waits| waits.by_place.is_empty()));
                assert_eq!(Arc::strong_count(&woken), 1);
                // The timer was set for one of those; it rings for nobody, and goes on to whoever waits.
                sleep(micros(3_000)).await;
                assert_eq!(woken.0.load(Ordering::Relaxed), 0);
            });
        }

        #[test]
        fn an_alarm_before_all_others_rings_before_them() {
            ringing(async {
                let long = tokio::spawn(sleep(Duration::from_secs(3_600)));
                tokio::task::yield_now().await;
                sleep(micros(100)).await;
                assert!(!long.is_finished());
                long.abort();
                assert!(long.await.is_err());
                assert!(Alarms::here().unwrap().with(|waits| waits.by_place.is_empty()));
            });
            assert!(Alarms::here().is_none());
        }

        #[tokio::test(start_paused = true)]
        async fn where_nobody_rings_alarms_time_is_that_of_tokio() {
            let begun = tokio::time::Instant::now();
            sleep(Duration::from_secs(3_600)).await;
            assert!(begun.elapsed() >= Duration::from_secs(3_600));
        }
    }
}
