//! A connection in use. Whatever waits at the moment goes into one call of the script, several calls are under way at a
//! time, and each caller gets its part of the answer or, at its deadline, word that there is none.
//!
//! Nothing is ever waited for in order to fill a call: while fewer than `depth` rounds are under way, a request is sent
//! at once. A reply goes to those who were in that very call: calls and answers are matched by their order alone,
//! whoever has given up keeps the place, and anything that does not fit ends the connection.

mod refused;

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWrite as _};
use tokio::time::{Instant, Sleep};

use crate::link::breaker::{Failure, Position};
use crate::link::desk::Count;
use crate::link::flight::{Flight, Flights, What};
use crate::link::handshake::Connection;
use crate::link::node::{Errand, Errands, Keeper, LATENESS};
use crate::link::resp::{self, Scan};
use crate::link::stream::Stream;
use crate::link::unavailable::{Refusal, Unavailable, Why, Word};

/// A connection on which no answer came for so long, and for longer than callers wait, is dead or as good as that.
const SILENCE: Duration = Duration::from_millis(200);
/// The most bytes of one call, after which the next begins, and of what is not yet sent when another is made.
const CALL_BYTES: usize = 256 << 10;

/// A conversation over one connection.
pub(super) struct Talk<'k> {
    keeper: &'k mut Keeper,
    stream: Box<dyn Stream>,
    sha: Arc<[u8]>,
    inbox: BytesMut,
    scan: Scan,
    outbox: Vec<u8>,
    /// How much of the outbox is sent.
    sent: usize,
    /// The stream may hold some of it back.
    unflushed: bool,
    taken: Vec<Errands>,
    waiting: VecDeque<Errand>,
    flights: Flights,
    /// Those that are tried again at a time, since a slot was on its way.
    later: Vec<(Instant, Errand)>,
    timer: Pin<Box<Sleep>>,
    /// When the last answer came.
    heard: Instant,
    /// When a server that is not asked is looked at next.
    look: Option<Instant>,
    /// Why it was not asked, last.
    why: Arc<str>,
    /// Why it is not to be asked any more. Those who are under way are heard, and nothing else is sent.
    leaving: Option<Refusal>,
}

/// Why a conversation ends, as those are told who were not answered.
type Ended = Why;

impl<'k> Talk<'k> {
    pub(super) fn new(keeper: &'k mut Keeper, connection: Connection, sha: Arc<[u8]>) -> Self {
        let now = Instant::now();
        Self {
            stream: connection.stream,
            inbox: connection.inbox,
            sha,
            scan: Scan::default(),
            outbox: Vec::new(),
            sent: 0,
            unflushed: false,
            taken: Vec::new(),
            waiting: std::mem::take(&mut keeper.held),
            flights: Flights::default(),
            later: Vec::new(),
            timer: Box::pin(tokio::time::sleep_until(now + keeper.around.settings.keepalive)),
            heard: now,
            look: None,
            why: keeper.node.desk().health(now).why,
            leaving: None,
            keeper,
        }
    }

    /// Talks until the connection is of no more use, and says why.
    pub(super) async fn run(mut self) -> Arc<str> {
        let now = Instant::now();
        if self.keeper.breaker.position() == Position::Open && !self.keeper.breaker.retry(now) {
            self.look = self.keeper.breaker.retry_at();
        }
        self.publish();
        self.arm_next(now);
        let end = poll_fn(|context| self.poll(context)).await;
        let ended: Arc<str> = end.to_string().into();
        let sent: Vec<_> = self.flights.drain().collect();
        for errand in sent {
            self.fail(errand, end.clone());
        }
        let unsent: Vec<_> = self.waiting.drain(..).chain(self.later.drain(..).map(|(_, errand)| errand)).collect();
        match self.leaving.clone() {
            Some(refusal) => self.pass_on(unsent, &refusal),
            None => unsent.into_iter().for_each(|errand| self.fail(errand, Why::Resting(Arc::clone(&ended)))),
        }
        ended
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Ended> {
        loop {
            let heard = match self.hear(context) {
                Ok(heard) => heard,
                Err(ended) => return Poll::Ready(ended),
            };
            let taken = self.take(context);
            let now = Instant::now();
            self.send_waiting(now);
            let written = match self.write(context) {
                Poll::Ready(Ok(written)) => written,
                Poll::Ready(Err(error)) => return Poll::Ready(lost(&error)),
                Poll::Pending => false,
            };
            let ticked = self.timer.as_mut().poll(context).is_ready();
            if ticked && let Err(ended) = self.tick(Instant::now()) {
                return Poll::Ready(ended);
            }
            if !(heard || taken || written || ticked) {
                return Poll::Pending;
            }
        }
    }

    /// Reads what has come and answers whom it is for. True if something came.
    fn hear(&mut self, context: &mut Context<'_>) -> Result<bool, Ended> {
        self.inbox.reserve(4096);
        let read = pin!(self.stream.read_buf(&mut self.inbox)).poll(context);
        match read {
            Poll::Pending => return Ok(false),
            Poll::Ready(Ok(0)) => return Err(Why::Lost("it was closed".into())),
            Poll::Ready(Ok(_)) => {}
            Poll::Ready(Err(error)) => return Err(lost(&error)),
        }
        let now = Instant::now();
        loop {
            match self.scan.end(&self.inbox) {
                Ok(Some(length)) => {
                    let answer = self.inbox.split_to(length).freeze();
                    self.answered(&answer, now)?;
                }
                Ok(None) if self.flights.oldest().is_none() => return self.left().map_or(Ok(true), Err),
                Ok(None) => return Ok(true),
                Err(malformed) => return Err(self.nonsense(malformed.0)),
            }
        }
    }

    /// Takes what callers have sent. True if there was something.
    fn take(&mut self, context: &mut Context<'_>) -> bool {
        let most = self.keeper.around.settings.queue;
        let Poll::Ready(count @ 1..) = self.keeper.queue.poll_recv_many(context, &mut self.taken, most) else {
            return false;
        };
        let earliest = self.taken.iter().flatten().map(|errand| errand.deadline).min();
        let mut taken = std::mem::take(&mut self.taken);
        for errand in taken.drain(..).flatten() {
            if self.waiting.len() < most {
                self.waiting.push_back(errand);
            } else {
                self.fail(errand, Why::Crowded);
            }
        }
        self.taken = taken;
        if let Some(earliest) = earliest {
            self.arm(earliest - LATENESS);
        }
        count > 0
    }

    /// Puts what waits into calls, unless enough are under way.
    fn send_waiting(&mut self, now: Instant) {
        let depth = self.keeper.around.settings.depth;
        let is_enough = self.flights.rounds() >= depth || self.outbox.len() > CALL_BYTES;
        if self.waiting.is_empty() || is_enough || self.leaving.is_some() {
            return;
        }
        let mut ready: Vec<Errand> = Vec::with_capacity(self.waiting.len());
        for errand in std::mem::take(&mut self.waiting) {
            if errand.deadline <= now {
                // This thread, or the whole process, did not run for a while: what nobody waits for is not sent.
                self.fail(errand, Why::Deadline(self.keeper.around.settings.deadline));
            } else if !errand.is_given_up() {
                ready.push(errand);
            } else if errand.probe {
                self.keeper.node.desk().return_probe();
            }
        }
        if ready.is_empty() {
            return;
        }
        if self.keeper.around.one_tag_per_call {
            ready.sort_by_key(|errand| (errand.request.tag(), errand.is_apart()));
        }
        self.flights.next_round();
        let mut ready = ready.into_iter().peekable();
        while let Some(first) = ready.next() {
            let (mut bytes, tag) = (first.request.size(), first.request.tag());
            let (asking, is_apart) = (first.asking, first.is_apart());
            let mut call = vec![first];
            let most = if is_apart { 1 } else { self.keeper.around.settings.most_requests };
            while call.len() < most && bytes < CALL_BYTES {
                let is_at_home = |next: &Errand| !self.keeper.around.one_tag_per_call || next.request.tag() == tag;
                let fits = |next: &Errand| !next.is_apart() && is_at_home(next);
                let Some(next) = ready.next_if(fits) else { break };
                bytes += next.request.size();
                call.push(next);
            }
            self.send(call, asking, now);
        }
    }

    fn send(&mut self, call: Vec<Errand>, asking: bool, now: Instant) {
        let desk = self.keeper.node.desk();
        desk.count(Count::Calls, 1);
        desk.count(Count::Requests, call.len() as u64);
        let out = &mut self.outbox;
        if asking {
            resp::command(out, &[b"ASKING"]);
            self.flights.push(What::Asking, now);
        }
        let keys: usize = call.iter().map(|errand| errand.request.key_count()).sum();
        resp::begin(out, 3 + keys + call.len());
        resp::word(out, b"EVALSHA");
        resp::word(out, &self.sha);
        resp::number_word(out, keys);
        for errand in &call {
            out.extend_from_slice(errand.request.keys());
        }
        for errand in &call {
            out.extend_from_slice(errand.request.argument());
        }
        self.flights.push(What::Call(call.into_iter().map(Some).collect()), now);
    }

    /// Sends bytes. True if some were.
    fn write(&mut self, context: &mut Context<'_>) -> Poll<std::io::Result<bool>> {
        let any = self.sent < self.outbox.len();
        while let Some(rest) = self.outbox.get(self.sent..).filter(|rest| !rest.is_empty()) {
            self.unflushed = true;
            match ready!(Pin::new(&mut self.stream).poll_write(context, rest))? {
                0 => return Poll::Ready(Err(std::io::ErrorKind::WriteZero.into())),
                written => self.sent += written,
            }
        }
        self.outbox.clear();
        self.sent = 0;
        if self.unflushed {
            ready!(Pin::new(&mut self.stream).poll_flush(context))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(any))
    }

    fn answered(&mut self, answer: &Bytes, now: Instant) -> Result<(), Ended> {
        self.heard = now;
        let Some(Flight { what, sent, .. }) = self.flights.pop() else {
            return Err(self.nonsense("an answer to nothing"));
        };
        match what {
            What::Call(errands) if answer.first() == Some(&b'-') => self.refused(errands, answer, now),
            What::Call(errands) => {
                let mut replies = Vec::with_capacity(errands.len());
                let fits = resp::bulks(answer, &mut replies).is_ok() && replies.len() == errands.len();
                if !fits {
                    let ended = self.nonsense("not one answer for each request");
                    self.fail_all(errands, &ended);
                    return Err(ended);
                }
                for (errand, reply) in errands.into_iter().zip(replies) {
                    self.succeed(errand, reply, now);
                }
                Ok(())
            }
            What::Ping if answer.starts_with(b"+PONG") => {
                if now.saturating_duration_since(sent) <= self.keeper.around.settings.deadline {
                    self.keeper.breaker.retry(now);
                    self.publish();
                }
                Ok(())
            }
            What::Ping | What::Asking | What::Load => match answer.first() {
                Some(b'-') => self.trouble(&Refusal::read(refused::line(answer)), now),
                Some(b'+' | b'$') => Ok(()),
                _ => Err(self.nonsense("a strange answer to PING, ASKING or SCRIPT LOAD")),
            },
        }
    }

    fn succeed(&mut self, errand: Option<Errand>, reply: Bytes, now: Instant) {
        let Some(errand) = errand else {
            self.keeper.node.desk().count(Count::Late, 1);
            return;
        };
        self.keeper.node.desk().count(Count::Answered, 1);
        if errand.probe {
            self.keeper.breaker.probed(true, now);
            self.publish();
        } else {
            self.keeper.breaker.succeeded();
        }
        self.keeper.backoff.reset();
        let _ = errand.reply.send(Ok(reply));
    }

    fn fail_all(&mut self, errands: Vec<Option<Errand>>, why: &Why) {
        for errand in errands.into_iter().flatten() {
            self.fail(errand, why.clone());
        }
    }

    /// Tells a caller that there is no answer, and the breaker.
    fn fail(&mut self, errand: Errand, why: Why) {
        let desk = self.keeper.node.desk();
        desk.count(
            match why {
                Why::Deadline(_) => Count::Deadline,
                Why::Lost(_) => Count::Lost,
                Why::Refused(_) => Count::Refused,
                Why::Nonsense(_) => Count::Nonsense,
                Why::Crowded => Count::Crowded,
                Why::Resting(_) | Why::Homeless => Count::Resting,
            },
            1,
        );
        let now = Instant::now();
        let before = self.keeper.breaker.position();
        // A slot that is on its way says nothing against the server, if that is one of a Cluster.
        let is_on_its_way = matches!(&why, Why::Refused(refusal) if matches!(refusal.word, Word::TryAgain | Word::Ask));
        let is_well = is_on_its_way && self.keeper.around.one_tag_per_call;
        // Nor does one that had little time left after others of the same decision.
        let had = errand.deadline.saturating_duration_since(errand.begun);
        let was_hurried = matches!(why, Why::Deadline(_)) && had * 2 < self.keeper.around.settings.deadline;
        if errand.probe {
            self.keeper.breaker.probed(is_well, now);
            if is_well {
                self.publish();
            }
        } else if !is_well && !was_hurried && !matches!(why, Why::Crowded | Why::Resting(_)) {
            let how = if matches!(why, Why::Deadline(_)) { Failure::Late } else { Failure::Refused };
            self.keeper.breaker.failed(how, errand.begun, now);
        }
        let unavailable = Unavailable::new(self.keeper.node.name(), why);
        if before != Position::Open && self.keeper.breaker.position() == Position::Open {
            self.why = unavailable.why.to_string().into();
            self.look = self.keeper.breaker.retry_at();
            self.publish();
            if let Some(look) = self.look {
                self.arm(look);
            }
        }
        let _ = errand.reply.send(Err(unavailable));
    }

    fn nonsense(&self, what: &str) -> Ended {
        self.keeper.node.desk().count(Count::Nonsense, 1);
        Why::Nonsense(format!("{what}; is this a Redis?").into())
    }

    /// What time brings: deadlines, silence, second tries, and looks at servers that are idle or not asked.
    fn tick(&mut self, now: Instant) -> Result<(), Ended> {
        let (mut expired, mut unsent) = (Vec::new(), Vec::new());
        let soon = now + LATENESS;
        self.flights.expired(soon, |errand| expired.push(errand));
        for errand in std::mem::take(&mut self.waiting) {
            if errand.deadline <= soon { unsent.push(errand) } else { self.waiting.push_back(errand) }
        }
        for (at, errand) in std::mem::take(&mut self.later) {
            if errand.deadline <= soon {
                unsent.push(errand);
            } else if at <= now {
                self.waiting.push_back(errand);
            } else {
                self.later.push((at, errand));
            }
        }
        let deadline = self.keeper.around.settings.deadline;
        for errand in expired {
            self.fail(errand, Why::Deadline(deadline));
        }
        for errand in unsent {
            let why = errand.unanswered(deadline);
            self.fail(errand, why);
        }
        // What is still under way then is not waited for.
        if let Some(left) = self.left() {
            return Err(left);
        }
        if self.silence().is_some_and(|silence| silence <= now) {
            return Err(Why::Lost(format!("no answer for {:?}", self.patience()).into()));
        }
        let resting = self.keeper.breaker.position() == Position::Open;
        let idle = self.flights.oldest().is_none() && now >= self.heard + self.keeper.around.settings.keepalive;
        let look = resting && self.look.is_some_and(|look| look <= now);
        if idle || look {
            self.look = Some(now + SILENCE / 2);
            if !self.flights.any(|what| matches!(what, What::Ping)) {
                resp::command(&mut self.outbox, &[b"PING"]);
                self.flights.next_round();
                self.flights.push(What::Ping, now);
            }
        }
        self.arm_next(now);
        Ok(())
    }

    /// When the answer that is due next is overdue for too long.
    fn silence(&self) -> Option<Instant> {
        self.flights.oldest().map(|sent| sent.max(self.heard) + self.patience())
    }

    fn patience(&self) -> Duration {
        SILENCE.max(self.keeper.around.settings.deadline)
    }

    fn arm_next(&mut self, now: Instant) {
        let waiting = self.waiting.iter().map(|errand| errand.deadline).min();
        let deadline = [waiting, self.flights.deadline()].into_iter().flatten().min().map(|at| at - LATENESS);
        let later = self.later.iter().map(|(at, _)| *at).min();
        let look = self.look.filter(|_| self.keeper.breaker.position() == Position::Open);
        let idle = (self.heard + self.keeper.around.settings.keepalive).max(now + LATENESS);
        let next = [deadline, later, look, self.silence()].into_iter().flatten().fold(idle, Instant::min);
        self.timer.as_mut().reset(next);
    }

    /// Makes sure that the timer goes off at `at` at the latest.
    fn arm(&mut self, at: Instant) {
        if at < self.timer.deadline() {
            self.timer.as_mut().reset(at);
        }
    }

    fn publish(&self) {
        self.keeper.publish(&self.why);
    }
}

fn lost(error: &std::io::Error) -> Ended {
    Why::Lost(error.to_string().into())
}
