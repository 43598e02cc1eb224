//! What was kept and what came of it, counted. Labels are words of this file, never what requests say.

use std::sync::atomic::{AtomicU64, Ordering};

use super::lines::Tally;
use super::{Later, NotKept};
use crate::gate::Exposition;

#[derive(Debug, Default)]
pub(super) struct Counts {
    kept: AtomicU64,
    ends: [AtomicU64; End::ALL.len()],
    sent: [AtomicU64; Sent::ALL.len()],
    refused: [AtomicU64; REFUSALS.len()],
}

/// How a request ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Done,
    Dead,
    Removed,
}

impl End {
    const ALL: [(Self, &'static str); 3] = [(Self::Done, "done"), (Self::Dead, "dead"), (Self::Removed, "removed")];
}

/// What came of sending one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    Answered,
    Failed,
    Unreached,
    Unknown,
}

impl Sent {
    const ALL: [(Self, &'static str); 4] = [
        (Self::Answered, "answered"),
        (Self::Failed, "failed"),
        (Self::Unreached, "unreached"),
        (Self::Unknown, "unknown"),
    ];
}

const REFUSALS: [&str; 2] = ["full", "error"];

impl Counts {
    pub(super) fn kept(&self) {
        self.kept.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn end(&self, end: End) {
        self.ends[end as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn sent(&self, sent: Sent) {
        self.sent[sent as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn refused(&self, why: &NotKept) {
        let which = usize::from(!matches!(why, NotKept::Full(..)));
        self.refused[which].fetch_add(1, Ordering::Relaxed);
    }
}

impl Later {
    /// Everything that is counted, for whoever collects it.
    pub(crate) fn expose(&self, out: &mut Exposition) {
        let Counts { kept, ends, sent, refused } = &self.counts;
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        out.counter("tollgate_later_kept_total", "Requests that were kept, to be done later.");
        out.sample(&[], read(kept));
        out.counter("tollgate_later_ended_total", "Requests that were kept and wait no more, by how that ended.");
        for ((_, name), count) in End::ALL.iter().zip(ends) {
            out.sample(&[("end", name)], read(count));
        }
        out.counter("tollgate_later_sent_total", "Times that requests were sent later, by what came of it.");
        for ((_, name), count) in Sent::ALL.iter().zip(sent) {
            out.sample(&[("result", name)], read(count));
        }
        out.counter("tollgate_later_refused_total", "Requests that could not be kept.");
        for (name, count) in REFUSALS.iter().zip(refused) {
            out.sample(&[("why", name)], read(count));
        }
        let Tally { waiting, begun, done, dead, bytes, oldest } = self.tally();
        out.gauge("tollgate_later_requests", "Requests that are kept, by their state.");
        for (state, count) in [("waiting", waiting), ("begun", begun), ("done", done), ("dead", dead)] {
            out.sample(&[("state", state)], count);
        }
        out.gauge("tollgate_later_bytes", "What requests take that wait or were put aside.");
        out.sample(&[], bytes);
        out.gauge("tollgate_later_oldest_seconds", "How long the request waits that waits longest.");
        let age = oldest.map_or(0, |oldest| self.now().since(oldest).as_micros() / 1_000_000);
        out.sample(&[], age);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_counted_at_its_own_place() {
        for (place, (end, _)) in End::ALL.iter().enumerate() {
            assert_eq!(*end as usize, place);
        }
        for (place, (sent, _)) in Sent::ALL.iter().enumerate() {
            assert_eq!(*sent as usize, place);
        }
    }
}
