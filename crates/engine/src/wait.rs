//! Who waits for the same counter waits in line.
//!
//! There is a line per counter while someone waits for it, and one of it has the turn: only that one asks the store and
//! sleeps. It is who came first; or, newest first, who came last, and whoever had the turn stands back until that one is
//! gone. Whoever has to pay several counters stands in one line at a time, so that no line waits for another.
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
use tollgate_rules::OnLimit;

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

    /// The line that a limit asks for, if it does.
    pub fn asked_by(on_limit: OnLimit) -> Option<Self> {
        match on_limit {
            OnLimit::Delay(longest) => Some(Self::in_order(longest)),
            OnLimit::DelayNewestFirst { longest, most } => {
                Some(Self { longest, newest_first: true, most: most as usize })
            }
            OnLimit::Reject | OnLimit::RejectSlowly(_) | OnLimit::Enqueue => None,
        }
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
    by_name: HashMap<Name, Line>,
    /// Nobody's yet, and of no line: who is in none any more may not be taken for another.
    next: u64,
}

/// What a counter is called.
type Name = Arc<[u8]>;

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
    /// What all of them cost together, by counter.
    costs: HashMap<Name, u64>,
}

struct Member {
    called: Arc<Notify>,
    costs: Arc<[(Name, u64)]>,
}

impl Member {
    fn cost(&self, counter: &Name) -> u64 {
        self.costs.iter().filter(|(name, _)| name == counter).fold(0, |sum, (_, cost)| sum.saturating_add(*cost))
    }
}

impl Line {
    /// What those cost on a counter who are served before this one. Whose turn it is does not count unless it is known
    /// to wait, as it may be admitted already; nor does anybody where whoever comes last is next.
    fn ahead(&self, ticket: u64, counter: &Name) -> u64 {
        if self.newest_first {
            return 0;
        }
        let is_last = self.members.last_key_value().is_some_and(|(last, _)| *last == ticket);
        if is_last {
            // Most who ask have just come: nobody has to be counted.
            return self.others(ticket, counter);
        }
        let before = self.members.range(..ticket).filter(|(other, _)| self.is_known_to_wait(**other));
        before.fold(0, |sum, (_, member)| sum.saturating_add(member.cost(counter)))
    }

    /// What all others in line cost on a counter, as far as they are known to wait.
    fn others(&self, ticket: u64, counter: &Name) -> u64 {
        let cost = |ticket| self.members.get(&ticket).map_or(0, |member| member.cost(counter));
        let all = self.costs.get(counter).copied().unwrap_or(0).saturating_sub(cost(ticket));
        if self.turn == ticket || self.is_known_to_wait(self.turn) { all } else { all.saturating_sub(cost(self.turn)) }
    }

    fn is_known_to_wait(&self, ticket: u64) -> bool {
        self.turn != ticket || self.is_denied
    }

    /// Gives the turn to one who has not asked yet.
    fn turn_to(&mut self, ticket: u64) {
        (self.turn, self.is_denied) = (ticket, false);
    }

    fn add(&mut self, ticket: u64, member: Member) {
        for (name, cost) in &*member.costs {
            let all = self.costs.entry(Arc::clone(name)).or_default();
            *all = all.saturating_add(*cost);
        }
        self.members.insert(ticket, member);
    }

    fn remove(&mut self, ticket: u64) -> Option<Member> {
        let member = self.members.remove(&ticket)?;
        self.moves += 1;
        for (name, cost) in &*member.costs {
            if let Some(all) = self.costs.get_mut(name) {
                *all = all.saturating_sub(*cost);
                if *all == 0 {
                    self.costs.remove(name);
                }
            }
        }
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
    name: Name,
    ticket: u64,
    called: Arc<Notify>,
    /// What it costs, charge by charge.
    costs: Arc<[(Name, u64)]>,
}

/// What each of a list of charges costs.
pub(crate) type Costs = SmallVec<[u64; 3]>;

/// Those who are in line with one.
pub(crate) struct Company {
    /// What those ahead cost, for each charge, as far as that is known.
    pub(crate) ahead: Costs,
    /// The same of all of them, wherever they stand.
    pub(crate) all: Costs,
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
    /// Takes a place among all others who wait for the counter of the charge at `at`. Who means to [`Turn::stay`] says
    /// so when it knows.
    pub(crate) fn enter(&self, charges: &[Charge<'_>], at: usize, how: Queueing) -> Result<Turn<'_>, TooMany> {
        let costs: Arc<[(Name, u64)]> = charges.iter().map(|charge| (name_of(charge), charge.cost)).collect();
        let name = costs.get(at).map_or_else(|| Arc::from([]), |(name, _)| Arc::clone(name));
        let called = Arc::new(Notify::new());
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
        let line = open.by_name.entry(Arc::clone(&name)).or_default();
        line.newest_first = how.newest_first;
        let is_first = line.members.is_empty();
        line.add(ticket, Member { called: Arc::clone(&called), costs: Arc::clone(&costs) });
        if is_first {
            line.turn_to(ticket);
        } else if line.newest_first {
            let overtaken = line.members.get(&line.turn);
            overtaken.inspect(|overtaken| overtaken.called.notify_one());
            line.turn_to(ticket);
        }
        drop(open);
        Ok(Turn { turnstiles: self, name, ticket, called, costs })
    }

    /// How many wait, for whatever.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Whether somebody waits for this counter.
    pub(crate) fn has_line(&self, charge: &Charge<'_>) -> bool {
        let open = || self.open.lock().unwrap_or_else(PoisonError::into_inner);
        self.waiting() > 0 && open().by_name.contains_key(&name_of(charge))
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

/// What the counter of a charge is called.
fn name_of(charge: &Charge<'_>) -> Name {
    let mut name = charge.limit.lineage().to_be_bytes().to_vec();
    name.extend_from_slice(&(charge.key.values.len() as u64).to_be_bytes());
    charge.key.encode(&mut name);
    name.into()
}

impl Turn<'_> {
    /// Who is there now.
    pub(crate) fn company(&self) -> Company {
        let open = self.turnstiles.open.lock().unwrap_or_else(PoisonError::into_inner);
        let line = open.by_name.get(&self.name);
        let costs = |of: fn(&Line, u64, &Name) -> u64| {
            self.costs.iter().map(|(name, _)| line.map_or(0, |line| of(line, self.ticket, name))).collect()
        };
        Company { ahead: costs(Line::ahead), all: costs(Line::others), moves: line.map_or(0, |line| line.moves) }
    }

    /// Whether nobody in line has asked or left since then.
    pub(crate) fn is_as_it_was(&self, then: &Company) -> bool {
        let open = self.turnstiles.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.by_name.get(&self.name).is_some_and(|line| line.moves == then.moves)
    }

    /// It stays: if there are too many, whoever would be served last goes.
    pub(crate) fn stay(&self, how: Queueing) {
        let mut open = self.turnstiles.open.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full = self.turnstiles.waiting.load(Ordering::Relaxed) > MOST_WAITING;
        let Some(line) = open.by_name.get_mut(&self.name) else { return };
        if is_full || line.members.len() > how.most {
            let last = if line.newest_first { line.members.first_key_value() } else { line.members.last_key_value() };
            let sent_away = last.map(|(last, _)| *last).and_then(|last| line.remove(last));
            sent_away.inspect(|sent_away| sent_away.called.notify_one());
        }
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

    pub(crate) fn has_turn(&self) -> bool {
        self.standing() == Standing::HasTurn
    }

    /// Completes when somebody else has taken the turn.
    pub(crate) async fn taken(&self) {
        while self.has_turn() {
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
        let turn = turnstiles.enter(charges, 0, how).ok().unwrap();
        turn.stay(how);
        turn
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
    fn different_counters_are_different_lines() {
        let (turnstiles, limit) = (Turnstiles::default(), limit());
        let other = Limit::new(FixedWindow::new(1, Micros::MINUTE)).unwrap();
        let charge = |values: &'static [&'static [u8]]| Charge::new(Key::new(1, values), &limit);
        let counters = [
            charge(&[]),
            charge(&[b"a"]),
            charge(&[b"a", b""]),
            charge(&[b"a", b"b"]),
            charge(&[b"b"]),
            Charge::new(Key::new(2, &[b"a"]), &limit),
            Charge::new(Key::new(1, &[b"a"]), &other),
        ];
        assert!(!counters.iter().any(|counter| turnstiles.has_line(counter)));
        let turns: Vec<_> = counters.iter().map(|counter| enter(&turnstiles, &[*counter], IN_ORDER)).collect();
        assert!(turns.iter().all(Turn::has_turn) && counters.iter().all(|counter| turnstiles.has_line(counter)));
        // What else it pays, and what it costs, is nobody's place in line.
        let same = turnstiles.enter(&[charge(&[b"x"]), charge(&[b"a"]).cost(7)], 1, IN_ORDER).ok().unwrap();
        assert!(!same.has_turn() && same.position() == 2 && !turnstiles.has_line(&charge(&[b"x"])));
        drop((turns, same));
        assert!(turnstiles.is_empty());
    }

    /// Of those who wait for one counter, some pay another as well.
    #[test]
    fn what_others_in_line_pay_elsewhere_is_known() {
        let (turnstiles, limit) = (Turnstiles::default(), limit());
        let all = Charge::new(Key::new(1, &[]), &limit);
        let of = |ip: &'static [&'static [u8]], cost| [all, Charge::new(Key::new(2, ip), &limit).cost(cost)];
        let _first = enter(&turnstiles, &of(&[b"a"], 1), IN_ORDER);
        let (_second, _third) =
            (enter(&turnstiles, &of(&[b"a"], 3), IN_ORDER), enter(&turnstiles, &of(&[b"b"], 5), IN_ORDER));
        let known = |turn: &Turn<'_>| (turn.company().ahead.to_vec(), turn.company().all.to_vec());
        let fourth = enter(&turnstiles, &of(&[b"a"], 7), IN_ORDER);
        assert_eq!(known(&fourth), (vec![2, 3], vec![2, 3]));
        let newest = enter(&turnstiles, &of(&[b"b"], 1), Queueing { newest_first: true, ..IN_ORDER });
        assert_eq!(known(&newest), (vec![0, 0], vec![4, 5]), "nobody is ahead, and all are there");
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
        let ahead = |turn: &Turn<'_>| turn.company().ahead.to_vec();
        assert_eq!(ahead(&first), [0]);
        assert_eq!(poll(pin!(first.reached_before(&clock, Timestamp::from_secs(9)))), Poll::Ready(true));
        let second = enter(&turnstiles, &charge(5), IN_ORDER);
        assert_eq!(ahead(&second), [0], "whose turn it is may be admitted already");
        let third = enter(&turnstiles, &charge(7), IN_ORDER);
        assert_eq!((ahead(&third), third.position()), (vec![5], 3));
        let then = third.company();
        assert!(third.is_as_it_was(&then));
        first.denied();
        assert_eq!((ahead(&second), ahead(&third)), (vec![3], vec![8]), "it is known to wait");
        assert!(!third.is_as_it_was(&then));
        first.asks();
        assert_eq!((ahead(&second), ahead(&third)), (vec![0], vec![5]));
        drop(second);
        assert_eq!(ahead(&enter(&turnstiles, &charge(1), IN_ORDER)), [7]);
        let another = || turnstiles.enter(&charge(1), 0, IN_ORDER).ok();
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
