//! The lock of the memory store, replaced by an instrumented one when schedules are explored.
//!
//! Critical sections are some tens of nanoseconds long and nothing in them waits, so a spinning lock is the right one: taking
//! it is one atomic operation and releasing it a plain store. A thread that finds it taken gives way to
//! others, in case the holder was interrupted.

#[cfg(not(shuttle))]
mod chosen {
    pub(crate) type Guard<'a, T> = spin::mutex::SpinMutexGuard<'a, T, spin::relax::Yield>;

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
}

#[cfg(shuttle)]
mod chosen {
    use std::sync::PoisonError;

    pub(crate) type Guard<'a, T> = shuttle::sync::MutexGuard<'a, T>;

    pub(crate) struct Lock<T>(shuttle::sync::Mutex<T>);

    impl<T> Lock<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(shuttle::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> Guard<'_, T> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }
}

pub(crate) use chosen::{Guard, Lock};
