//! Who holds slots on this thread: for as long as a request is there, its lease is renewed.
//!
//! One task of each thread looks after all of them. It looks six times in the time of the shortest lease and renews
//! what has a third of its own behind it, so that one renewal may fail and the next still comes in time.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::tab::{Account, Slots};

#[derive(Default)]
struct Holders {
    by_lease: HashMap<u64, Holder>,
    /// How long the task sleeps. Nothing while it waits for somebody to come.
    pace: Option<Duration>,
    /// There is a task while this is.
    bell: Option<Arc<Notify>>,
}

struct Holder {
    account: Weak<Account>,
    slots: Slots,
    renewed: Instant,
}

thread_local! {
    static HOLDERS: RefCell<Holders> = RefCell::default();
}

/// Renews these until they are removed, or the account is gone.
pub(super) fn add(account: &Arc<Account>, slots: Slots) {
    // Without a runtime the process is about to end.
    let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
    let holder = Holder { account: Arc::downgrade(account), slots, renewed: Instant::now() };
    HOLDERS.with_borrow_mut(|holders| {
        holders.by_lease.insert(slots.lease, holder);
        let bell = holders.bell.get_or_insert_with(|| {
            let bell = Arc::new(Notify::new());
            runtime.spawn(look_after(Watch, Arc::clone(&bell)));
            bell
        });
        if holders.pace.is_none_or(|pace| pace_of(slots) < pace) {
            holders.pace = Some(pace_of(slots));
            bell.notify_one();
        }
    });
}

pub(super) fn remove(slots: Slots) {
    // A thread that ends has forgotten them already.
    let _ = HOLDERS.try_with(|holders| holders.borrow_mut().by_lease.remove(&slots.lease));
}

/// Ends the watch, if its runtime ends before its thread.
struct Watch;

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = HOLDERS.try_with(|holders| holders.take());
    }
}

async fn look_after(_watch: Watch, bell: Arc<Notify>) {
    loop {
        match HOLDERS.with_borrow(|holders| holders.pace) {
            None => bell.notified().await,
            Some(pace) => {
                // Whoever comes with a shorter lease wakes it.
                let is_time = tokio::time::timeout(pace, bell.notified()).await.is_err();
                if is_time {
                    HOLDERS.with_borrow_mut(Holders::look);
                }
            }
        }
    }
}

fn pace_of(slots: Slots) -> Duration {
    Duration::from(slots.length) / 6
}

impl Holders {
    fn look(&mut self) {
        let now = Instant::now();
        self.by_lease.retain(|_, holder| {
            let Some(account) = holder.account.upgrade() else { return false };
            if now.duration_since(holder.renewed) >= Duration::from(holder.slots.length) / 3 {
                holder.renewed = now;
                let slots = holder.slots;
                tokio::spawn(async move { account.renew(slots).await });
            }
            true
        });
        self.pace = self.by_lease.values().map(|holder| pace_of(holder.slots)).min();
    }
}
