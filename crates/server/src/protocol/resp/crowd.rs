//! Commands of a pipeline that have to be waited for, all at once.
//!
//! They are asked in their order, so that those of one key are decided in it, and waited for together: a pipeline takes
//! one round trip to the store and not one for each command.

use std::ops::Range;

use tollgate::join_all;

use super::own;
use super::parse::Parser;
use super::reply::Replies;
use super::session::Session;

/// So many are asked at once.
const MOST: usize = 256;

/// Commands that stand in a row, at the beginning of some bytes.
#[derive(Default)]
pub(super) struct Crowd {
    /// Each with what parsed it, and where it is.
    commands: Vec<(Parser, Range<usize>)>,
    length: usize,
}

impl Crowd {
    /// The commands at the beginning of `bytes` that `session` has to wait for.
    pub(super) fn gather(session: &Session, bytes: &[u8]) -> Self {
        let mut crowd = Self::default();
        while crowd.commands.len() < MOST {
            let mut parser = Parser::new(true);
            let rest = bytes.get(crowd.length..).unwrap_or_default();
            match parser.next(rest) {
                Ok(Some(length)) if session.waits_for(parser.command(rest)) => {
                    let place = crowd.length..crowd.length + length;
                    crowd.length = place.end;
                    crowd.commands.push((parser, place));
                }
                _ => break,
            }
        }
        crowd
    }

    /// How many commands there are.
    pub(super) fn len(&self) -> usize {
        self.commands.len()
    }

    /// How many bytes they take.
    pub(super) fn length(&self) -> usize {
        self.length
    }

    /// Answers all of them, in order.
    pub(super) async fn answer(&self, session: &Session, bytes: &[u8], out: &mut Vec<u8>) {
        let answers = self.commands.iter().map(|(parser, place)| async {
            let mut reply = Vec::new();
            let command = parser.command(bytes.get(place.clone()).unwrap_or_default());
            own::answer(session, command, &mut Replies::new(&mut reply, session.is_resp3)).await;
            reply
        });
        for reply in join_all(answers).await {
            session.count_error(&reply);
            out.extend_from_slice(&reply);
        }
    }
}
