//! Answers that are none, and values that are somebody else's: each is counted, and told in the log once a minute at
//! most, with the limit that it is about. Nothing of keys is told, since clients make them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// One that goes on is told again after this time.
const QUIET: Duration = Duration::from_secs(60);

/// What was wrong with an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// It is none of the script's.
    Unreadable,
    /// The script says that it failed.
    Failed,
    /// There was something else under a key than tollgate writes.
    Foreign,
}

const NAMES: [&str; 3] = ["unreadable", "failed", "foreign"];

/// How often each happened.
#[derive(Debug, Default)]
pub(crate) struct Troubles([(AtomicU64, Mutex<Option<Instant>>); 3]);

impl Troubles {
    /// It happened, `times` times, with the limit of this number; `what` is said of it.
    pub(crate) fn tell(&self, trouble: Trouble, times: u64, limit: Option<u64>, what: &str) {
        let Some((count, told)) = self.0.get(trouble as usize) else { return };
        let count = count.fetch_add(times, Ordering::Relaxed) + times;
        let now = Instant::now();
        let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.is_some_and(|told| now.saturating_duration_since(told) < QUIET) {
            return;
        }
        *told = Some(now);
        drop(told);
        match limit {
            // As `tollgate inspect` shows it.
            Some(limit) => tracing::warn!(limit = format!("{limit:016x}"), count, "{what}"),
            None => tracing::warn!(count, "{what}"),
        }
    }

    /// How often each happened, by name.
    pub(crate) fn counts(&self) -> [(&'static str, u64); 3] {
        let mut counts = NAMES.map(|name| (name, 0));
        for (shown, (count, _)) in counts.iter_mut().zip(&self.0) {
            shown.1 = count.load(Ordering::Relaxed);
        }
        counts
    }
}
