//! How much memory keys may take, and do; and who may take more than that.

use super::table::Allowance;
use crate::sync::atomic::{AtomicUsize, Ordering};

/// The bytes that keys may take, and do.
pub(super) struct Budget {
    bytes: usize,
    used: AtomicUsize,
}

impl Budget {
    pub(super) fn new(bytes: usize) -> Self {
        Self { bytes, used: AtomicUsize::new(0) }
    }

    pub(super) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }
}

impl Allowance for Budget {
    fn take(&self, bytes: usize) -> bool {
        let fits = |used: usize| used.checked_add(bytes).filter(|total| *total <= self.bytes);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
    }

    fn give_back(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Counts against the budget what is needed in any case.
pub(super) struct Forced<'a>(pub(super) &'a Budget);

impl Allowance for Forced<'_> {
    fn take(&self, bytes: usize) -> bool {
        self.0.used.fetch_add(bytes, Ordering::Relaxed);
        true
    }

    fn give_back(&self, bytes: usize) {
        self.0.give_back(bytes);
    }
}

/// For the shared counters: there are as many as limits, which strangers cannot multiply.
pub(super) struct Unbounded;

impl Allowance for Unbounded {
    fn take(&self, _bytes: usize) -> bool {
        true
    }

    fn give_back(&self, _bytes: usize) {}
}
