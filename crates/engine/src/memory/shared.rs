//! The counters that new keys share when the budget is spent.

use tollgate_core::{Algorithm, Ask, Cell, Extra, Intent};

use super::budget::Unbounded;
use super::hash::Hash;
use super::shard::Reply;
use super::site::Site;
use super::table::Full;
use super::{MemoryStore, SHARED};
use crate::charge::Charge;
use crate::sync::atomic::Ordering;

impl MemoryStore {
    /// Whether what has no counter of its own, and cannot have one, concerns the shared counter.
    pub(super) fn may_be_shared(&self, charge: &Charge<'_>, intent: Intent) -> bool {
        match intent {
            Intent::Spend | Intent::Force => true,
            Intent::Peek => self.shared_charges() > 0,
            Intent::Refund { .. } | Intent::Renew => is_leased(charge) && self.shared_charges() > 0,
        }
    }

    /// Whether a peek, a refund or a renewal concerns the shared counter: the key has none of its own, and would have
    /// to be or may be counted there. What is refunded has to be known to have been charged there, which only leases
    /// can tell.
    pub(super) fn is_shared(&self, charge: &Charge<'_>, hash: Hash, ask: &Ask, site: &mut Site<'_, '_>) -> bool {
        let charges = matches!(ask.intent, Intent::Spend | Intent::Force);
        if charges || self.shared_charges() == 0 || site.has(hash) {
            return false;
        }
        match ask.intent {
            Intent::Peek => !site.could_take(hash, charge.limit, ask.now, &self.budget),
            _ => is_leased(charge),
        }
    }

    #[cold]
    pub(super) fn apply_shared<R: Reply>(&self, charge: &Charge<'_>, ask: Ask) -> R {
        if matches!(ask.intent, Intent::Spend | Intent::Force) {
            self.count_shared();
        }
        let hash = self.hasher.shared(&charge.key, charge.limit.lineage());
        let mut shard = self.shard(SHARED).lock();
        let now = shard.advance(ask.now);
        let ask = Ask { now, ..ask };
        match shard.apply(hash, charge.limit, &ask, &Unbounded) {
            Ok(reply) => R::shared(reply),
            // Memory itself is spent: what would be said to a new key, and not remembered.
            Err(Full) => R::ask(charge.limit, Cell::FRESH, Extra::NONE, &ask, |reply: R, _| reply.shared()),
        }
    }

    pub(super) fn count_shared(&self) {
        self.shared_charges.fetch_add(1, Ordering::Relaxed);
    }
}

/// Whether it is known who was charged.
fn is_leased(charge: &Charge<'_>) -> bool {
    matches!(charge.limit.algorithm(), Algorithm::Concurrency(_))
}
