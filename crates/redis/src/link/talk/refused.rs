//! Errors that a server answers to a call. Most prove that the script did not run, and those who were in the call are sent again,
//! here or elsewhere, if there is time; some say that this is not the server to ask, and end the connection.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::{Ended, LATENESS, Talk};
use crate::link::desk::Count;
use crate::link::flight::What;
use crate::link::node::{Errand, News};
use crate::link::resp;
use crate::link::unavailable::{Refusal, Why, Word};

/// A request is sent so often at most, if the server says each time that it did not run.
const TRIES: u8 = 4;

impl Talk<'_> {
    /// The server did not carry out a call: whoever can still be served is sent again.
    pub(super) fn refused(&mut self, errands: Vec<Option<Errand>>, answer: &Bytes, now: Instant) -> Result<(), Ended> {
        let refusal = Refusal::read(line(answer));
        match refusal.word {
            Word::NoScript => {
                if !self.flights.any(|what| matches!(what, What::Load)) {
                    self.keeper.node.desk().count(Count::Reloaded, 1);
                    let script = Arc::clone(&self.keeper.around.script);
                    resp::command(&mut self.outbox, &[b"SCRIPT", b"LOAD", script.as_bytes()]);
                    self.flights.push(What::Load, now);
                }
                for errand in self.again(errands, &refusal).into_iter().rev() {
                    self.waiting.push_front(errand);
                }
            }
            Word::TryAgain => self.try_again(errands, &refusal, now),
            Word::Moved | Word::Ask => match Refusal::points_to(line(answer), self.keeper.node.endpoint()) {
                Some((slot, to)) => {
                    let asking = refusal.word == Word::Ask;
                    // Of what a request reads and does not name, nobody knows where it is: such a one waits until all of the slot is there.
                    let waits = |errand: &Option<Errand>| {
                        asking && errand.as_ref().is_some_and(|errand| errand.request.reads_more())
                    };
                    let (waiting, errands): (Vec<_>, Vec<_>) = errands.into_iter().partition(waits);
                    self.try_again(waiting, &refusal, now);
                    if !asking {
                        let _ = self.keeper.around.news.send(News::Moved(slot, to.clone()));
                    }
                    for mut errand in self.again(errands, &refusal) {
                        self.keeper.node.desk().count(Count::Redirected, 1);
                        if std::mem::take(&mut errand.probe) {
                            self.keeper.breaker.probed(true, now);
                            self.publish();
                        }
                        errand.asking = asking;
                        let map = self.keeper.around.map.load();
                        match map.find(&to) {
                            Some(node) => node.forward(errand),
                            None => drop(self.keeper.around.news.send(News::Forward(errand, to.clone()))),
                        }
                    }
                }
                None => self.fail_all(errands, &Why::Refused(refusal)),
            },
            _ => {
                let why = Why::Refused(refusal.clone());
                self.fail_all(errands, &why);
                return self.trouble(&refusal, now);
            }
        }
        Ok(())
    }

    /// Of a slot that is on its way, some keys of a call are here and some are not. Each request is sent in a call of its own, at once if
    /// others were in this one, as it may have been their keys; one that was alone waits for its keys to come together.
    fn try_again(&mut self, errands: Vec<Option<Errand>>, refusal: &Refusal, now: Instant) {
        let was_alone = errands.len() == 1;
        for mut errand in self.again(errands, refusal) {
            errand.apart = true;
            if !was_alone {
                self.waiting.push_back(errand);
                continue;
            }
            let at = now + Duration::from_millis(1 << (errand.tries - 1).min(3));
            if at + LATENESS >= errand.deadline {
                self.fail(errand, Why::Refused(refusal.clone()));
                continue;
            }
            self.later.push((at, errand));
            self.arm(at);
        }
    }

    /// Those that may be sent again; the others are told.
    fn again(&mut self, errands: Vec<Option<Errand>>, refusal: &Refusal) -> Vec<Errand> {
        let mut again = Vec::with_capacity(errands.len());
        for mut errand in errands.into_iter().flatten() {
            errand.tries += 1;
            if errand.tries < TRIES {
                self.keeper.node.desk().count(Count::Again, 1);
                again.push(errand);
            } else {
                self.fail(errand, Why::Refused(refusal.clone()));
            }
        }
        again
    }

    /// What a refusal says about the server.
    pub(super) fn trouble(&mut self, refusal: &Refusal, now: Instant) -> Result<(), Ended> {
        match refusal.word {
            // Somebody else is the primary, or the login has to be made again.
            Word::ReadOnly | Word::MasterDown | Word::NoAuth | Word::WrongPass | Word::MaxClients => {
                self.keeper.breaker.trip(now);
                Err(Why::Lost(refusal.to_string().into()))
            }
            Word::ClusterDown => {
                let _ = self.keeper.around.news.send(News::Trouble);
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// The line of an error, without its sign and its end.
pub(super) fn line(answer: &[u8]) -> &[u8] {
    answer.get(1..).unwrap_or_default().trim_ascii_end()
}
