//! What was sent and is not yet answered. Answers come in the order of what was sent, so that the first in line is
//! always the one that is answered; one whose callers have given up keeps its place, and its answer is thrown away.

use std::collections::VecDeque;

use tokio::time::Instant;

use super::node::Errand;

/// One command that waits for its answer.
pub(super) struct Flight {
    pub(super) what: What,
    pub(super) sent: Instant,
    /// Commands that were sent at once are of one round.
    pub(super) round: u64,
}

pub(super) enum What {
    /// The script, with these; `None` for one that was given up.
    Call(Vec<Option<Errand>>),
    /// Sees whether the server is there.
    Ping,
    /// Loads the script.
    Load,
    /// Announces one that another server sent here.
    Asking,
}

/// All that wait.
#[derive(Default)]
pub(super) struct Flights {
    line: VecDeque<Flight>,
    round: u64,
}

impl Flights {
    /// Begins a round.
    pub(super) fn next_round(&mut self) {
        self.round += 1;
    }

    pub(super) fn push(&mut self, what: What, sent: Instant) {
        self.line.push_back(Flight { what, sent, round: self.round });
    }

    /// The one that is answered next.
    pub(super) fn pop(&mut self) -> Option<Flight> {
        self.line.pop_front()
    }

    /// How many rounds wait.
    pub(super) fn rounds(&self) -> u64 {
        self.line.front().map_or(0, |first| self.round + 1 - first.round)
    }

    /// Since when the one that is answered next has been waiting.
    pub(super) fn oldest(&self) -> Option<Instant> {
        self.line.front().map(|first| first.sent)
    }

    pub(super) fn any(&self, what: impl Fn(&What) -> bool) -> bool {
        self.line.iter().any(|flight| what(&flight.what))
    }

    /// The earliest deadline of all who wait.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let calls = self
            .line
            .iter()
            .filter_map(|flight| if let What::Call(errands) = &flight.what { Some(errands) } else { None });
        calls.flatten().flatten().map(|errand| errand.deadline).min()
    }

    /// Takes out those whose deadline is not after `now`.
    pub(super) fn expired(&mut self, now: Instant, mut take: impl FnMut(Errand)) {
        for flight in &mut self.line {
            if let What::Call(errands) = &mut flight.what {
                errands
                    .iter_mut()
                    .filter_map(|errand| errand.take_if(|errand| errand.deadline <= now))
                    .for_each(&mut take);
            }
        }
    }

    /// Takes out all.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Errand> {
        self.line
            .drain(..)
            .filter_map(|flight| if let What::Call(errands) = flight.what { Some(errands) } else { None })
            .flatten()
            .flatten()
    }
}
