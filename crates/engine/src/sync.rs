//! Locks, atomics and randomness, replaced by instrumented ones when schedules are explored (`--cfg shuttle`): so that
//! every order of steps can come up, and comes up again when it is replayed.
//!
//! Critical sections are some tens of nanoseconds long and nothing in them waits, so a spinning lock is the right one:
//! taking it is one atomic operation and releasing it a plain store. A thread that finds it taken gives way to others,
//! in case the holder was interrupted.

#[cfg(not(shuttle))]
mod chosen {
    pub(crate) use std::sync::{Mutex, MutexGuard, atomic};
    pub(crate) use std::thread_local;

    pub(crate) type Guard<'a, T> = spin::mutex::SpinMutexGuard<'a, T, spin::relax::Yield>;

    #[derive(Default)]
    pub(crate) struct Lock<T>(spin::mutex::SpinMutex<T, spin::relax::Yield>);

    impl<T> Lock<T> {
        pub(crate) const fn new(value: T) -> Self {
            Self(spin::mutex::SpinMutex::new(value))
        }

        #[inline]
        pub(crate) fn lock(&self) -> Guard<'_, T> {
            self.0.lock()
        }
    }

    /// Gives way to others, among them whoever has what is waited for.
    pub(crate) fn relax() {
        std::thread::yield_now();
    }

    /// Fills `bytes` at random; `false` when there is no randomness to be had.
    pub(crate) fn randomize(bytes: &mut [u8]) -> bool {
        getrandom::fill(bytes).is_ok()
    }
}

#[cfg(shuttle)]
mod chosen {
    use std::sync::PoisonError;

    pub(crate) use shuttle::sync::{Mutex, MutexGuard, atomic};
    pub(crate) use shuttle::thread_local;

    pub(crate) type Guard<'a, T> = MutexGuard<'a, T>;

    #[derive(Default)]
    pub(crate) struct Lock<T>(Mutex<T>);

    impl<T> Lock<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> Guard<'_, T> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }

    pub(crate) fn relax() {
        shuttle::thread::yield_now();
    }

    pub(crate) fn randomize(bytes: &mut [u8]) -> bool {
        shuttle::rand::RngCore::fill_bytes(&mut shuttle::rand::thread_rng(), bytes);
        true
    }
}

pub(crate) use chosen::{Guard, Lock, Mutex, MutexGuard, atomic, randomize, relax, thread_local};
