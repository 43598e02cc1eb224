//! Memory for bodies that have begun to arrive and have not ended: so much for the whole process, whoever sends them.
//!
//! Bodies that arrive in one piece, as nearly all do, take nothing from it. What is counted is what has arrived, not
//! what was announced: to announce costs nothing.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Of all bodies together, in bytes.
const MOST: usize = 64 << 20;

static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// The share of one body, given back when it is dropped.
#[derive(Debug)]
pub(super) struct Share<'b> {
    taken: &'b AtomicUsize,
    own: usize,
}

impl Share<'static> {
    /// Nothing yet.
    pub(super) fn new() -> Self {
        Self { taken: &TAKEN, own: 0 }
    }
}

impl Share<'_> {
    /// Takes so much more. False, and nothing taken, when that is more than there is.
    #[must_use]
    pub(super) fn take(&mut self, bytes: usize) -> bool {
        let taken = |before: usize| before.checked_add(bytes).filter(|after| *after <= MOST);
        let is_enough = self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken).is_ok();
        if is_enough {
            self.own += bytes;
        }
        is_enough
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        self.taken.fetch_sub(self.own, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_so_much_and_no_more_and_it_is_given_back() {
        let taken = AtomicUsize::new(0);
        let share = || Share { taken: &taken, own: 0 };
        let (mut first, mut second) = (share(), share());
        assert!(first.take(MOST - 10) && second.take(10) && !second.take(1) && !first.take(usize::MAX));
        drop(first);
        assert!(second.take(MOST - 10) && !second.take(1));
        drop(second);
        assert_eq!(taken.into_inner(), 0);
    }
}
