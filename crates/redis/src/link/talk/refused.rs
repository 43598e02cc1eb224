//! Errors that a server answers to a call. Most prove that the script did not run. Where something can be hoped for,
//! those who were in the call are sent again, here or elsewhere, if there is time:
//!
//! | word | |
//! |---|---|
//! | `NOSCRIPT` | here, behind the script |
//! | `MOVED`, `ASK` | where it says |
//! | `TRYAGAIN` | here, after a while |
//! | `READONLY`, `MASTERDOWN`; `LOADING` by Sentinel | to whoever is the primary now; or over a new connection, since a name may lead elsewhere |
//! | `CLUSTERDOWN`, `LOADING`, all others | not: it lasts longer than anybody waits, and the rule's policy is there at once |

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::{Ended, Talk};
use crate::link::desk::Count;
use crate::link::flight::What;
use crate::link::node::{Errand, LATENESS, News};
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
                    // Of what a request reads and does not name, nobody knows where it is: such a one waits until all
                    // of the slot is there.
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
            word if self.is_elsewhere(word) => self.leave(errands, &refusal, now),
            _ => {
                let why = Why::Refused(refusal.clone());
                self.fail_all(errands, &why);
                return self.trouble(&refusal, now);
            }
        }
        Ok(())
    }

    /// Whether the primary is another one. One that Sentinels watch and that reads data while it is connected has
    /// become a replica; any other would have to be waited for for too long.
    fn is_elsewhere(&self, word: Word) -> bool {
        match word {
            Word::ReadOnly | Word::MasterDown => true,
            Word::Loading => self.keeper.around.primary_only,
            _ => false,
        }
    }

    /// The server is not the primary any more. Nobody new comes here; those who were in the call are for whoever is
    /// found to be the primary.
    fn leave(&mut self, errands: Vec<Option<Errand>>, refusal: &Refusal, now: Instant) {
        if self.leaving.is_none() {
            self.leaving = Some(refusal.clone());
            self.keeper.breaker.trip(now);
            self.why = refusal.to_string().into();
            self.publish();
        }
        let again = self.again(errands, refusal);
        self.pass_on(again, refusal);
    }

    /// Has those who were not carried out asked of the primary, if it is known before their deadlines. Where nobody
    /// else can be, it is over the next connection: its name may lead to another server by then.
    pub(super) fn pass_on(&mut self, errands: Vec<Errand>, refusal: &Refusal) {
        for mut errand in errands {
            errand.probe = false;
            errand.tries = errand.tries.max(1);
            errand.refusal.get_or_insert_with(|| refusal.clone());
            if self.keeper.around.primary_only {
                let from = self.keeper.node.endpoint().clone();
                let _ = self.keeper.around.news.send(News::Stranded(errand, from));
            } else {
                self.keeper.held.push_back(errand);
            }
        }
    }

    /// Why the conversation ends, if this is not the server to ask any more.
    pub(super) fn left(&self) -> Option<Ended> {
        self.leaving.as_ref().map(|refusal| Why::Lost(refusal.to_string().into()))
    }

    /// Of a slot that is on its way, some keys of a call are here and some are not. Each request is sent in a call of
    /// its own, at once if others were in this one, as it may have been their keys; one that was alone waits for its
    /// keys to come together.
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
            errand.refusal = Some(refusal.clone());
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
