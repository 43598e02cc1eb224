//! Who waits for the same charges waits in line.
//!
//! There is a line per list of charges while someone waits, and one of it has the turn: only that one asks the store
//! and sleeps. It is who came first; or, newest first, who came last, and whoever had the turn stands back until that
//! one is gone.
//!
//! Invariant: in each line one has the turn.

use std::collections::{BTreeMap, HashMap};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError};
use std::task::Poll;

use smallvec::SmallVec;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tollgate_core::{Micros, Timestamp};

use crate::charge::Charge;
use crate::clock::Clock;
use crate::sync::Mutex;

/// Who may wait at the same time, in all lines together.
const MOST_WAITING: usize = 10_000;

/// How to stand in line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queueing {
    /// How long, at most.
    pub longest: Micros,
    /// Whether whoever comes last is next, and not whoever comes first.
    pub newest_first: bool,
    /// How many there may be in line. When there are more, whoever would be served last goes at once.
    pub most: usize,
}

impl Queueing {
    /// In the order of arrival, at most so long.
    pub fn in_order(longest: impl Into<Micros>) -> Self {
        Self { longest: longest.into(), newest_first: false, most: usize::MAX }
    }
}

#[derive(Default)]
pub(crate) struct Turnstiles {
    open: Mutex<Lines>,
    /// How many have a place.
    waiting: AtomicUsize,
    /// Rung when something is given back: whoever has the turn in a line asks again.
    bell: Notify,
}

#[derive(Default)]
struct Lines {
    by_name: HashMap<Box<[u8]>, Line>,
    /// Nobody's yet, and of no line: who is in none any more may not be taken for another.
    next: u64,
}

#[derive(Default)]
struct Line {
    /// By when they came.
    members: BTreeMap<u64, Member>,
    /// Who has the turn.
    turn: u64,
    /// Whether that one is known to wait: it was denied, and has not asked again.
    is_denied: bool,
    /// How often one of them has asked or left.
    moves: u64,
    newest_first: bool,
    /// What all of them cost together.
    cost: Costs,
}

/// What each of a list of charges costs.
type Costs = SmallVec<[u64; 3]>;

struct Member {
    called: Arc<Notify>,
    cost: Costs,
}

/// `a + b`, or `a - b`, charge by charge.
fn combined(a: &Costs, b: &Costs, combine: fn(u64, u64) -> u64) -> Costs {
    a.iter().zip(b).map(|(a, b)| combine(*a, *b)).collect()
}

impl Line {
    /// What those cost who are served before this one. Whose turn it is does not count unless it is known to wait, as
    /// it may be admitted already; nor does anybody where whoever comes last is next.
    fn ahead(&self, ticket: u64) -> Costs {
        let mut before = self.members.range(..ticket).map(|(_, member)| &member.cost);
        let Some(first) = before.next().filter(|_| !self.newest_first) else { return Costs::new() };
        let is_last = self.members.last_key_value().is_some_and(|(last, _)| *last == ticket);
        let all = match self.members.get(&ticket).filter(|_| is_last) {
            // Most who ask have just come: nobody has to be counted.
            Some(own) => combined(&self.cost, &own.cost, u64::saturating_sub),
            None => before.fold(first.clone(), |sum, cost| combined(&sum, cost, u64::saturating_add)),
        };
        if self.is_denied { all } else { combined(&all, first, u64::saturating_sub) }
    }

    /// Gives the turn to one who has not asked yet.
    fn turn_to(&mut self, ticket: u64) {
        (self.turn, self.is_denied) = (ticket, false);
    }

    fn add(&mut self, ticket: u64, member: Member) {
        self.cost = if self.members.is_empty() {
            member.cost.clone()
        } else {
            combined(&self.cost, &member.cost, u64::saturating_add)
        };
        self.members.insert(ticket, member);
    }

    fn remove(&mut self, ticket: u64) -> Option<Member> {
        let member = self.members.remove(&ticket)?;
        self.moves += 1;
        self.cost = combined(&self.cost, &member.cost, u64::saturating_sub);
        Some(member)
    }

    /// Gives the turn to whoever is next.
    fn advance(&mut self) {
        let next = if self.newest_first { self.members.last_key_value() } else { self.members.first_key_value() };
        if let Some((ticket, member)) = next {
            member.called.notify_one();
            self.turn_to(*ticket);
        }
    }

    /// Of one who is in it, or was until now: how many are served before, and one.
    fn position(&self, ticket: u64) -> usize {
        let is_last = self.members.last_key_value().is_some_and(|(last, _)| *last == ticket);
        match self.newest_first {
            true if is_last => 1,
            true => self.members.range(ticket.saturating_add(1)..).count() + 1,
            // Most who ask have just come: nobody has to be counted.
            false if is_last => self.members.len(),
            false => self.members.range(..ticket).count() + 1,
        }
    }
}

/// A place in line, given up when dropped.
pub(crate) struct Turn<'t> {
    turnstiles: &'t Turnstiles,
    name: Box<[u8]>,
    ticket: u64,
    called: Arc<Notify>,
}

/// Those ahead of one in line.
pub(crate) struct Ahead {
    /// What they cost, for each charge, as far as that is known; nothing if there are none.
    pub(crate) cost: Costs,
    moves: u64,
}

/// Nobody else may stand in line.
pub(crate) struct TooMany {
    /// The place that it would have had.
    pub(crate) position: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Standing {
    HasTurn,
    Waits,
    /// There were too many.
    SentAway,
}

impl Turnstiles {
    /// Takes a place among all others for the same charges.
    pub(crate) fn enter(&self, charges: &[Charge<'_>], how: Queueing) -> Result<Turn<'_>, TooMany> {
        let name = name_of(charges);
        let (called, cost) = (Arc::new(Notify::new()), charges.iter().map(|charge| charge.cost).collect());
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full = self.waiting.load(Ordering::Relaxed) >= MOST_WAITING;
        let others = open.by_name.get(&name).map_or(0, |line| line.members.len());
        // Newest first, somebody older goes instead.
        if is_full && !(how.newest_first && others > 0) {
            return Err(TooMany { position: others + 1 });
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let ticket = open.next;
        open.next += 1;
        let line = open.by_name.entry(name.clone()).or_default();
        line.newest_first = how.newest_first;
        let is_first = line.members.is_empty();
        line.add(ticket, Member { called: Arc::clone(&called), cost });
        if is_first {
            line.turn_to(ticket);
        } else if line.newest_first {
            let overtaken = line.members.get(&line.turn);
            overtaken.inspect(|overtaken| overtaken.called.notify_one());
            line.turn_to(ticket);
        }
        if is_full || line.members.len() > how.most {
            let last = if line.newest_first { line.members.first_key_value() } else { line.members.last_key_value() };
            let sent_away = last.map(|(last, _)| *last).and_then(|last| line.remove(last));
            sent_away.inspect(|sent_away| sent_away.called.notify_one());
        }
        drop(open);
        Ok(Turn { turnstiles: self, name, ticket, called })
    }

    /// How many wait, for whatever.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Whether somebody waits for these.
    pub(crate) fn has_line(&self, charges: &[Charge<'_>]) -> bool {
        let open = || self.open.lock().unwrap_or_else(PoisonError::into_inner);
        self.waiting() > 0 && open().by_name.contains_key(&name_of(charges))
    }

    /// Completes when something is given back after this call.
    pub(crate) fn given_back(&self) -> Notified<'_> {
        self.bell.notified()
    }

    pub(crate) fn give_back(&self) {
        self.bell.notify_waiters();
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).by_name.is_empty()
    }
}

/// What a line for these is called.
fn name_of(charges: &[Charge<'_>]) -> Box<[u8]> {
    let mut name = Vec::new();
    for charge in charges {
        name.extend_from_slice(&charge.limit.lineage().to_be_bytes());
        name.extend_from_slice(&(charge.key.values.len() as u64).to_be_bytes());
        charge.key.encode(&mut name);
    }
    name.into_boxed_slice()
}

impl Turn<'_> {
    /// Who is ahead now.
    pub(crate) fn ahead(&self) -> Ahead {
        let open = self.turnstiles.open.lock().unwrap_or_else(PoisonError::into_inner);
        let line = open.by_name.get(&self.name);
        line.map_or(Ahead { cost: Costs::new(), moves: 0 }, |line| Ahead {
            cost: line.ahead(self.ticket),
            moves: line.moves,
        })
    }

    /// Whether nobody in line has asked or left since then.
    pub(crate) fn is_as_it_was(&self, then: &Ahead) -> bool {
        let open = self.turnstiles.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.by_name.get(&self.name).is_some_and(|line| line.moves == then.moves)
    }

    /// Who has the turn is about to ask.
    pub(crate) fn asks(&self) {
        self.move_to(false);
    }

    /// It asked, and has to wait.
    pub(crate) fn denied(&self) {
        self.move_to(true);
    }

    fn move_to(&self, is_denied: bool) {
        let mut open = self.turnstiles.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(line) = open.by_name.get_mut(&self.name).filter(|line| line.turn == self.ticket) {
            line.is_denied = is_denied;
            line.moves += 1;
        }
    }

    /// Waits until it has the turn. `false` when `deadline` comes first, or when there are too many in line.
    pub(crate) async fn reached_before(&self, clock: &impl Clock, deadline: Timestamp) -> bool {
        let mut late = pin!(clock.sleep_until(deadline));
        loop {
            match self.standing() {
                Standing::HasTurn => return true,
                Standing::SentAway => return false,
                Standing::Waits => {}
            }
            let called = async {
                self.called.notified().await;
                true
            };
            let is_late = async {
                late.as_mut().await;
                false
            };
            if !either(called, is_late).await {
                return self.standing() == Standing::HasTurn;
            }
        }
    }

    /// Completes when somebody else has taken the turn.
    pub(crate) async fn taken(&self) {
        while self.standing() == Standing::HasTurn {
            self.called.notified().await;
        }
    }

    /// How many are served before it, and one.
    pub(crate) fn position(&self) -> usize {
        let open = self.turnstiles.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.by_name.get(&self.name).map_or(1, |line| line.position(self.ticket))
    }

    fn standing(&self) -> Standing {
        let open = self.turnstiles.open.lock().unwrap_or_else(PoisonError::into_inner);
        match open.by_name.get(&self.name).filter(|line| line.members.contains_key(&self.ticket)) {
            Some(line) if line.turn == self.ticket => Standing::HasTurn,
            Some(_) => Standing::Waits,
            None => Standing::SentAway,
        }
    }
}

/// What comes first; the first of the two if both are there.
pub(crate) async fn either<T>(first: impl Future<Output = T>, second: impl Future<Output = T>) -> T {
    let (mut first, mut second) = (pin!(first), pin!(second));
    poll_fn(|context| match first.as_mut().poll(context) {
        Poll::Pending => second.as_mut().poll(context),
        ready => ready,
    })
    .await
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut open = self.turnstiles.open.lock().unwrap_or_else(PoisonError::into_inner);
        self.turnstiles.waiting.fetch_sub(1, Ordering::Relaxed);
        let Some(line) = open.by_name.get_mut(&self.name) else { return };
        line.remove(self.ticket);
        if line.members.is_empty() {
            open.by_name.remove(&self.name);
        } else if line.turn == self.ticket {
            line.advance();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use tollgate_core::{FixedWindow, Key, Limit, Micros};

    use super::*;
    use crate::clock::ManualClock;

    const IN_ORDER: Queueing = Queueing { longest: Micros::HOUR, newest_first: false, most: usize::MAX };

    fn limit() -> Limit {
        Limit::new(FixedWindow::new(1, Micros::SECOND)).unwrap()
    }

    fn enter<'t>(turnstiles: &'t Turnstiles, charges: &[Charge<'_>], how: Queueing) -> Turn<'t> {
        turnstiles.enter(charges, how).ok().unwrap()
    }

    fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_turnstile_is_there_while_someone_waits() {
        let (turnstiles, clock, limit) = (Turnstiles::default(), ManualClock::at(Timestamp::EPOCH), limit());
        let charges = [Charge::new(Key::new(1, &[b"user"]), &limit)];
        let deadline = Timestamp::from_secs(9);
        let (first, second, third) = (
            enter(&turnstiles, &charges, IN_ORDER),
            enter(&turnstiles, &charges, IN_ORDER),
            enter(&turnstiles, &charges, IN_ORDER),
        );
        let mut second_turn = Box::pin(second.reached_before(&clock, deadline));
        assert_eq!(poll(pin!(first.reached_before(&clock, deadline))), Poll::Ready(true));
        assert!(poll(second_turn.as_mut()).is_pending());
        // One who has not come to wait yet leaves: the line does not notice.
        drop(third);
        assert!(!turnstiles.is_empty());
        drop(first);
        assert_eq!(poll(second_turn.as_mut()), Poll::Ready(true));
        drop(second_turn);
        assert!(!turnstiles.is_empty());
        drop(second);
        assert!(turnstiles.is_empty());
    }

    #[test]
    fn those_who_give_up_or_are_late_leave_nothing_behind() {
        let (turnstiles, clock, limit) = (Turnstiles::default(), ManualClock::at(Timestamp::EPOCH), limit());
        let charges = [Charge::new(Key::new(1, &[b"user"]), &limit)];
        let turns = [
            enter(&turnstiles, &charges, IN_ORDER),
            enter(&turnstiles, &charges, IN_ORDER),
            enter(&turnstiles, &charges, IN_ORDER),
        ];
        let deadlines = [90, 5, 90].map(Timestamp::from_secs);
        let mut waits: Vec<_> = turns
            .iter()
            .zip(deadlines)
            .map(|(turn, deadline)| Box::pin(turn.reached_before(&clock, deadline)))
            .collect();
        assert_eq!(poll(waits[0].as_mut()), Poll::Ready(true));
        assert!(poll(waits[1].as_mut()).is_pending() && poll(waits[2].as_mut()).is_pending());
        clock.set(Timestamp::from_secs(5));
        assert_eq!(poll(waits[1].as_mut()), Poll::Ready(false));
        drop(waits);
        drop(turns);
        assert!(turnstiles.is_empty());
        assert_eq!(clock.next_due(), None);
    }

    #[test]
    fn different_charges_are_different_lines() {
        let (turnstiles, limit) = (Turnstiles::default(), limit());
        let other = Limit::new(FixedWindow::new(1, Micros::MINUTE)).unwrap();
        let charge = |values: &'static [&'static [u8]]| Charge::new(Key::new(1, values), &limit);
        let lists = [
            vec![],
            vec![charge(&[])],
            vec![charge(&[b"a"])],
            vec![charge(&[b"a"]), charge(&[])],
            vec![charge(&[]), charge(&[b"a"])],
            vec![charge(&[b"a", b""])],
            vec![charge(&[b"a"]), charge(&[b"b"])],
            vec![charge(&[b"a", b"b"])],
            vec![Charge::new(Key::new(2, &[b"a"]), &limit)],
            vec![Charge::new(Key::new(1, &[b"a"]), &other)],
        ];
        let turns: Vec<_> = lists.iter().map(|charges| enter(&turnstiles, charges, IN_ORDER)).collect();
        assert_eq!(turnstiles.open.lock().unwrap().by_name.len(), lists.len());
        // What it costs is nobody's place in line.
        let _same = enter(&turnstiles, &[charge(&[b"a"]).cost(7)], IN_ORDER);
        assert_eq!(turnstiles.open.lock().unwrap().by_name.len(), lists.len());
        drop((turns, _same));
        assert!(turnstiles.is_empty());
    }

    #[test]
    fn who_was_sent_away_is_not_taken_for_another() {
        let (turnstiles, clock, limit) = (Turnstiles::default(), ManualClock::at(Timestamp::EPOCH), limit());
        let charges = [Charge::new(Key::new(1, &[b"user"]), &limit)];
        let (deadline, how) = (Timestamp::from_secs(9), Queueing { newest_first: true, most: 1, ..IN_ORDER });
        let (old, new) = (enter(&turnstiles, &charges, how), enter(&turnstiles, &charges, how));
        assert_eq!(poll(pin!(old.reached_before(&clock, deadline))), Poll::Ready(false));
        assert_eq!((new.position(), old.position()), (1, 2));
        drop(new);
        let another = enter(&turnstiles, &charges, how);
        drop(old);
        assert_eq!(poll(pin!(another.reached_before(&clock, deadline))), Poll::Ready(true));
        drop(another);
        assert!(turnstiles.is_empty());
    }

    #[test]
    fn what_is_ahead_is_known_and_there_is_a_most() {
        let (turnstiles, clock, limit) = (Turnstiles::default(), ManualClock::at(Timestamp::EPOCH), limit());
        let charge = |cost| [Charge::new(Key::new(1, &[b"user"]), &limit).cost(cost)];
        let first = enter(&turnstiles, &charge(3), IN_ORDER);
        let ahead = |turn: &Turn<'_>| turn.ahead().cost.to_vec();
        assert!(ahead(&first).is_empty());
        assert_eq!(poll(pin!(first.reached_before(&clock, Timestamp::from_secs(9)))), Poll::Ready(true));
        let second = enter(&turnstiles, &charge(5), IN_ORDER);
        assert_eq!(ahead(&second), [0], "whose turn it is may be admitted already");
        let third = enter(&turnstiles, &charge(7), IN_ORDER);
        assert_eq!((ahead(&third), third.position()), (vec![5], 3));
        let then = third.ahead();
        assert!(third.is_as_it_was(&then));
        first.denied();
        assert_eq!((ahead(&second), ahead(&third)), (vec![3], vec![8]), "it is known to wait");
        assert!(!third.is_as_it_was(&then));
        first.asks();
        assert_eq!((ahead(&second), ahead(&third)), (vec![0], vec![5]));
        drop(second);
        assert_eq!(ahead(&enter(&turnstiles, &charge(1), IN_ORDER)), [7]);
        let another = || turnstiles.enter(&charge(1), IN_ORDER).ok();
        let mut turns: Vec<_> = std::iter::from_fn(another).take(2 * MOST_WAITING).collect();
        assert_eq!(turns.len(), MOST_WAITING - 2);
        // Newest first, the oldest makes room for another.
        let newest = enter(&turnstiles, &charge(1), Queueing { newest_first: true, ..IN_ORDER });
        assert_eq!((newest.position(), first.standing() == Standing::SentAway), (1, true));
        drop(newest);
        turns.pop();
        assert!(another().is_some());
        drop((first, third, turns));
        assert!(turnstiles.is_empty() && turnstiles.waiting() == 0);
    }
}
