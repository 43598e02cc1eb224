//! What is remembered of a client, and which command is answered where.

use std::sync::Arc;

use super::commands::{Kind, Known, Verb, find};
use super::crowd::Crowd;
use super::parse::{Command, Parser};
use super::reply::Replies;
use super::throttle::Row;
use super::transaction::Transaction;
use super::{greet, info, own, throttle};
use crate::gate::{Door, Gate, Meter};
use crate::serve::{House, Peer};

/// The most of what a client sent that an error repeats, as in Redis.
const MOST_SHOWN: usize = 128;

/// One client.
pub(crate) struct Session {
    pub(super) house: Arc<House>,
    pub(super) number: u64,
    pub(super) peer: Peer,
    pub(super) is_resp3: bool,
    is_trusted: bool,
    /// What the client calls itself.
    pub(super) name: Vec<u8>,
    /// The name and version of its library.
    pub(super) library: [Vec<u8>; 2],
    pub(super) speech: Speech,
    /// Commands since `MULTI`.
    transaction: Option<Transaction>,
}

/// Whether a client wants to hear replies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Speech {
    #[default]
    Always,
    Never,
    /// Not to this command.
    Skip,
    /// Not to the next command.
    SkipNext,
}

/// What is to happen after a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Go,
    /// It is not yet answered: that may take waiting.
    Wait,
    /// It may have changed how much the client is trusted.
    Greeted,
    Quit,
}

impl Session {
    pub(super) fn new(house: &Arc<House>, number: u64, peer: Peer) -> Self {
        Self {
            number,
            peer,
            is_resp3: false,
            is_trusted: house.settings.resp_password.is_none(),
            name: Vec::new(),
            library: Default::default(),
            speech: Speech::Always,
            transaction: None,
            house: Arc::clone(house),
        }
    }

    /// Whether the client has said the password, if there is one.
    #[inline]
    pub(super) fn is_trusted(&self) -> bool {
        self.is_trusted
    }

    #[inline]
    pub(super) fn gate(&self) -> &Gate {
        &self.house.gate
    }

    #[inline]
    pub(super) fn meter(&self) -> &Meter {
        self.house.gate.meter(Door::Resp)
    }

    /// Compares what a client says with the password. Any is right where there is none, as in Redis.
    pub(super) fn hear_password(&mut self, user: Option<&[u8]>, password: &[u8]) -> bool {
        let is_user = user.is_none_or(|user| user == b"default");
        let is_right = match &self.house.settings.resp_password {
            Some(secret) => secret.is(password) && is_user,
            None => is_user,
        };
        self.is_trusted |= is_right;
        is_right
    }

    /// As good as new.
    pub(super) fn reset(&mut self) {
        self.is_resp3 = false;
        self.is_trusted = self.house.settings.resp_password.is_none();
        self.name.clear();
        self.speech = Speech::Always;
        self.transaction = None;
    }

    /// Whether a command can be answered together with others of its kind. If so, it is in `row`.
    #[inline]
    pub(super) fn defer(&self, command: Command<'_>, at: usize, row: &mut Row) -> bool {
        // As most write it, or in any other way.
        command.get(0).is_some_and(|name| name == b"CL.THROTTLE" || name.eq_ignore_ascii_case(b"CL.THROTTLE"))
            && self.is_trusted
            && self.transaction.is_none()
            && self.gate().store().shared().is_none()
            && self.speech == Speech::Always
            && row.take(self.gate(), command, at)
    }

    /// Answers a row of commands, whose bytes they were parsed from.
    #[inline]
    pub(super) fn answer_row(&self, row: Row, bytes: &[u8], out: &mut Vec<u8>) {
        row.answer(self.gate(), bytes, &mut Replies::new(out, self.is_resp3));
    }

    /// Answers a command, unless that may take waiting.
    #[inline]
    pub(super) fn answer(&mut self, command: Command<'_>, out: &mut Vec<u8>) -> Next {
        let before = out.len();
        let next = self.dispatch(command, out);
        if next != Next::Wait {
            self.end(before, out);
        }
        next
    }

    /// Answers a command that may take waiting.
    pub(super) async fn answer_slowly(&mut self, command: Command<'_>, out: &mut Vec<u8>) -> Next {
        let before = out.len();
        let next = match self.transaction.take() {
            Some(transaction) => self.execute(&transaction, out).await,
            None => {
                own::answer(self, command, &mut Replies::new(out, self.is_resp3)).await;
                Next::Go
            }
        };
        self.end(before, out);
        next
    }

    /// Whether a command is answered by a store that has to be waited for, and by nothing else.
    pub(super) fn waits_for(&self, command: Command<'_>) -> bool {
        self.is_trusted
            && self.transaction.is_none()
            && self.speech == Speech::Always
            && self.gate().store().shared().is_some()
            && find(command.get(0).unwrap_or_default()).is_some_and(|known| {
                // Explanations ask nobody, and take their time.
                let is_asked = match known.kind {
                    Kind::Question(verb) => verb != Verb::Explain,
                    kind => matches!(kind, Kind::Throttle | Kind::Settle { .. }),
                };
                is_asked && known.takes(command.len())
            })
    }

    /// Answers the commands of a transaction.
    async fn execute(&mut self, transaction: &Transaction, out: &mut Vec<u8>) -> Next {
        let mut replies = Replies::new(out, self.is_resp3);
        let Some(count) = transaction.count() else {
            replies.error("EXECABORT Transaction discarded because of previous errors.");
            return Next::Go;
        };
        replies.array(count);
        let (mut parser, mut rest) = (Parser::new(true), transaction.commands());
        let mut after = Next::Go;
        // They were commands when they were kept.
        while let Ok(Some(length)) = parser.next(rest) {
            let crowd = Crowd::gather(self, rest);
            if crowd.len() > 0 {
                crowd.answer(self, rest, out).await;
                rest = rest.get(crowd.length()..).unwrap_or_default();
                continue;
            }
            let command = parser.command(rest);
            match self.dispatch(command, out) {
                Next::Go => {}
                Next::Wait => own::answer(self, command, &mut Replies::new(out, self.is_resp3)).await,
                other => after = other,
            }
            rest = rest.get(length..).unwrap_or_default();
        }
        after
    }

    /// Counts an error, and takes back what the client does not want to hear.
    #[inline]
    fn end(&mut self, before: usize, out: &mut Vec<u8>) {
        self.count_error(out.get(before..).unwrap_or_default());
        match self.speech {
            Speech::Always => {}
            Speech::Never => out.truncate(before),
            Speech::Skip => {
                out.truncate(before);
                self.speech = Speech::Always;
            }
            Speech::SkipNext => {
                out.truncate(before);
                self.speech = Speech::Skip;
            }
        }
    }

    #[inline]
    pub(super) fn count_error(&self, reply: &[u8]) {
        if reply.first() == Some(&b'-') {
            self.meter().error();
        }
    }

    fn spoil_transaction(&mut self) {
        if let Some(transaction) = &mut self.transaction {
            transaction.spoil();
        }
    }

    #[inline]
    fn dispatch(&mut self, command: Command<'_>, out: &mut Vec<u8>) -> Next {
        let mut replies = Replies::new(out, self.is_resp3);
        let name = command.get(0).unwrap_or_default();
        let known = find(name);
        if !self.is_trusted && !known.is_some_and(Known::is_for_strangers) {
            replies.error("NOAUTH Authentication required.");
            return Next::Go;
        }
        let Some(known) = known else {
            self.spoil_transaction();
            return unknown(command, &mut replies);
        };
        if !known.takes(command.len()) {
            self.spoil_transaction();
            replies.error(format!("ERR wrong number of arguments for '{}' command", known.name));
            return Next::Go;
        }
        if let Some(transaction) = &mut self.transaction
            && !known.bounds_transactions()
        {
            keep(transaction, known, command, &mut replies);
            return Next::Go;
        }
        match known.kind {
            Kind::Throttle if self.gate().store().shared().is_some() => return Next::Wait,
            Kind::Throttle => throttle::throttle(self.gate(), command, &mut replies),
            Kind::Question(_) | Kind::Settle { .. } => return Next::Wait,
            Kind::Ping => greet::ping(command, &mut replies),
            Kind::Echo => replies.bulk(command.get(1).unwrap_or_default()),
            Kind::Select => greet::select(command, &mut replies),
            Kind::Command => info::command(command, &mut replies),
            Kind::Info => info::info(self, command, &mut replies),
            Kind::Config => info::config(command, &mut replies),
            Kind::Time => info::time(self, &mut replies),
            Kind::Help => own::help(&mut replies),
            Kind::Client => greet::client(self, command, &mut replies),
            Kind::Hello => {
                greet::hello(self, command, out);
                return Next::Greeted;
            }
            Kind::Auth => {
                greet::auth(self, command, &mut replies);
                return Next::Greeted;
            }
            Kind::Reset => {
                self.reset();
                replies.simple("RESET");
                return Next::Greeted;
            }
            Kind::Multi if self.transaction.is_some() => replies.error("ERR MULTI calls can not be nested"),
            Kind::Multi => {
                self.transaction = Some(Transaction::default());
                replies.simple("OK");
            }
            Kind::Exec if self.transaction.is_some() => return Next::Wait,
            Kind::Exec => replies.error("ERR EXEC without MULTI"),
            Kind::Discard if self.transaction.take().is_some() => replies.simple("OK"),
            Kind::Discard => replies.error("ERR DISCARD without MULTI"),
            Kind::Quit => {
                replies.simple("OK");
                return Next::Quit;
            }
        }
        Next::Go
    }
}

/// Keeps a command until `EXEC`.
fn keep(transaction: &mut Transaction, known: &Known, command: Command<'_>, replies: &mut Replies<'_>) {
    if !known.is_for_transactions() {
        transaction.spoil();
        replies.error("ERR Command not allowed inside a transaction");
    } else if transaction.push(command) {
        replies.simple("QUEUED");
    } else {
        replies.error("ERR too many commands since MULTI");
    }
}

/// The error for a command that is not known, as Redis words it.
#[cold]
fn unknown(command: Command<'_>, replies: &mut Replies<'_>) -> Next {
    let name = command.get(0).unwrap_or_default();
    // What a web page can make a browser send is not to be taken for commands.
    if name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:") {
        return Next::Quit;
    }
    let mut text = b"ERR unknown command '".to_vec();
    text.extend_from_slice(name.get(..MOST_SHOWN).unwrap_or(name));
    text.extend_from_slice(b"', with args beginning with: ");
    let start = text.len();
    for argument in command.after(1).iter() {
        let room = MOST_SHOWN.saturating_sub(text.len() - start);
        if room == 0 {
            break;
        }
        text.push(b'\'');
        text.extend_from_slice(argument.get(..room).unwrap_or(argument));
        text.extend_from_slice(b"' ");
    }
    replies.error(text);
    Next::Go
}
