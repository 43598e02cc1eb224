//! Taking turns with other gateways at sending what all of them keep in one Redis.

use std::collections::HashSet;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::redis::{Turn, Whose};
use super::{Later, deferred};
use crate::serve::Drained;

/// How often the turn is asked for, or renewed: a fraction of what it lasts.
const ASK: Duration = Duration::from_millis(250);
/// How often it is where no rule keeps anything: what was kept before is to be done all the same.
const SELDOM: Duration = Duration::from_secs(2);

impl Later {
    /// Asks for the turn until the service closes. Whose it is takes in what is kept, others learn which lines there
    /// are.
    pub(super) async fn share(self: Arc<Self>, mut drained: Drained) {
        let Some(redis) = self.shelf.shared() else { return };
        let (mut last, mut ours): (Option<Vec<u8>>, Option<u64>) = (None, None);
        loop {
            // While Redis cannot be asked everything stays as it is; nothing can be begun either.
            let turn = redis.take_turn(last.as_deref()).await.map(|Turn { tally, whose }| {
                *self.shared_tally.lock().unwrap_or_else(PoisonError::into_inner) = tally;
                whose
            });
            match turn {
                Ok(Whose::Ours(turn, rows)) => {
                    if ours != Some(turn) {
                        tracing::info!("this gateway sends what is kept for later");
                        // What was remembered may be what others have changed meanwhile: all of it is looked at again.
                        self.lines.set_elsewhere(HashSet::new());
                        let is_known = last.take().is_some();
                        ours = Some(turn);
                        if is_known {
                            continue;
                        }
                    }
                    let is_all = rows.is_empty();
                    for (place, entry) in rows {
                        match entry {
                            Some(entry) => self.adopt(entry).await,
                            None => tracing::error!(
                                place = %String::from_utf8_lossy(&place),
                                "what became of a request that was kept cannot be read: it stays in Redis"
                            ),
                        }
                        last = Some(place);
                    }
                    if !is_all {
                        continue;
                    }
                }
                Ok(Whose::Theirs(lines)) => {
                    self.lines.set_elsewhere(lines);
                    (last, ours) = (None, None);
                }
                Err(_) => {}
            }
            let is_in_use = ours.is_some() && !self.lines.is_empty();
            let is_wanted = is_in_use || deferred::a_rule_that_keeps(&self.house.gate.rules()).is_some();
            tokio::select! {
                () = drained.closing() => return,
                () = self.bell.notified() => {}
                () = tokio::time::sleep(if is_wanted { ASK } else { SELDOM }) => {}
            }
        }
    }
}
