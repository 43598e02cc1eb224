//! Who waits for what, in which order, and what became of whom: everything but the requests themselves.
//!
//! Nothing here waits or writes. Bounds are kept by taking a place before anything is written ([`Lines::reserve`]);
//! what is durable is for the shelf to say, so that a request is put in line only after it was written down.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tollgate::Timestamp;

use super::form::{Entry, Id, LineId, Stage, State};

/// How much may be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// Requests that wait or were put aside; and again as many of which only the answer is kept.
    pub(crate) requests: usize,
    /// Bytes of those that wait or were put aside.
    pub(crate) bytes: u64,
}

/// What is kept no more room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    /// All places are taken.
    Requests,
    /// All bytes are.
    Bytes,
    /// As many as the route allows wait for the same counter.
    Line,
}

/// All requests that are known here.
#[derive(Debug)]
pub(super) struct Lines {
    inner: Mutex<Inner>,
    bounds: Bounds,
    /// How many wait: looked at by every request, so that nobody takes the lock while nobody waits.
    waiting: AtomicUsize,
    /// Lines that another gateway serves, and how many there are.
    elsewhere: Mutex<HashSet<LineId>>,
    lines_elsewhere: AtomicUsize,
    /// How often everything was forgotten: whoever served lines before serves none of those that came after.
    epoch: AtomicUsize,
}

#[derive(Debug, Default)]
struct Inner {
    entries: HashMap<Id, Entry>,
    lines: HashMap<LineId, Line>,
    /// Those that are done, by when they are forgotten.
    done: BTreeSet<(Timestamp, Id)>,
    dead: usize,
    begun: usize,
    bytes: u64,
    /// Places that are taken by what is being written down.
    reserved: usize,
    next: u64,
}

/// Who waits for one counter, by their numbers.
#[derive(Debug, Default)]
struct Line {
    waiting: BTreeMap<u64, Id>,
    reserved: usize,
    is_served: bool,
}

/// How many there are of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) waiting: usize,
    pub(super) begun: usize,
    pub(super) done: usize,
    pub(super) dead: usize,
    pub(super) bytes: u64,
    /// Since when the one waits that waits longest.
    pub(super) oldest: Option<Timestamp>,
}

/// A place that is taken until it is given back or filled.
#[derive(Debug)]
pub(super) struct Place<'l> {
    lines: &'l Lines,
    line: LineId,
    bytes: u64,
    pub(super) number: u64,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut inner = self.lines.lock();
        inner.reserved -= 1;
        inner.bytes -= self.bytes;
        if let Some(line) = inner.lines.get_mut(&self.line) {
            line.reserved -= 1;
        }
        inner.close_if_empty(&self.line);
    }
}

impl Lines {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self {
            inner: Mutex::default(),
            bounds,
            waiting: AtomicUsize::new(0),
            elsewhere: Mutex::default(),
            lines_elsewhere: AtomicUsize::new(0),
            epoch: AtomicUsize::new(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether anybody waits at all.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) == 0 && self.lines_elsewhere.load(Ordering::Relaxed) == 0
    }

    /// How much may be kept.
    pub(super) fn bounds(&self) -> Bounds {
        self.bounds
    }

    /// Whether somebody waits in this line.
    pub(super) fn has(&self, line: &LineId) -> bool {
        self.lock().lines.get(line).is_some_and(|line| !line.waiting.is_empty())
            || self.elsewhere.lock().unwrap_or_else(PoisonError::into_inner).contains(line)
    }

    /// Another gateway serves these lines and no others; this one forgets what it knew.
    pub(super) fn set_elsewhere(&self, lines: HashSet<LineId>) {
        {
            let mut inner = self.lock();
            // Whoever serves a line finds that out, and leaves.
            self.epoch.fetch_add(1, Ordering::Relaxed);
            let next = inner.next;
            *inner = Inner { next, ..Inner::default() };
            self.waiting.store(0, Ordering::Relaxed);
        }
        self.lines_elsewhere.store(lines.len(), Ordering::Relaxed);
        *self.elsewhere.lock().unwrap_or_else(PoisonError::into_inner) = lines;
    }

    /// Takes a place for a request of so many bytes, if there is one. Every place has a number above those before it.
    pub(super) fn reserve(&self, id: LineId, bytes: u64, most_in_line: u64) -> Result<Place<'_>, Full> {
        let mut inner = self.lock();
        let waiting = self.waiting.load(Ordering::Relaxed);
        if waiting + inner.begun + inner.dead + inner.reserved >= self.bounds.requests {
            return Err(Full::Requests);
        }
        if inner.bytes.saturating_add(bytes) > self.bounds.bytes {
            return Err(Full::Bytes);
        }
        if inner.lines.get(&id).is_some_and(|line| (line.waiting.len() + line.reserved) as u64 >= most_in_line) {
            return Err(Full::Line);
        }
        inner.lines.entry(id).or_default().reserved += 1;
        inner.bytes += bytes;
        inner.reserved += 1;
        inner.next += 1;
        let number = inner.next;
        drop(inner);
        Ok(Place { lines: self, line: id, bytes, number })
    }

    /// Takes in what was written down, now or before. True if its line has to be served from now on.
    pub(super) fn insert(&self, entry: Entry) -> bool {
        let mut inner = self.lock();
        inner.next = inner.next.max(entry.number);
        if inner.entries.contains_key(&entry.id) {
            return false;
        }
        let id = entry.id;
        inner.entries.insert(id, entry);
        inner.enter(id, &self.waiting)
    }

    pub(super) fn get(&self, id: Id) -> Option<Entry> {
        self.lock().entries.get(&id).cloned()
    }

    /// Its place in its line, counted from one, if it waits.
    pub(super) fn position(&self, id: Id) -> Option<usize> {
        let inner = self.lock();
        let entry = inner.entries.get(&id)?;
        let line = inner.lines.get(&entry.line)?;
        line.waiting.contains_key(&entry.number).then(|| line.waiting.range(..=entry.number).count())
    }

    /// What those who serve lines from now on have to name.
    pub(super) fn epoch(&self) -> usize {
        self.epoch.load(Ordering::Relaxed)
    }

    /// Who is next in a line. If nobody is, the line is not served any more; nor by whoever served it before all was
    /// forgotten.
    pub(super) fn first(&self, line: &LineId, epoch: usize) -> Option<Entry> {
        let mut inner = self.lock();
        if epoch != self.epoch() {
            return None;
        }
        let first = inner.lines.get(line).and_then(|line| line.waiting.first_key_value()).map(|(_, id)| *id);
        if first.is_none() {
            inner.stop_serving(line);
        }
        inner.entries.get(&first?).cloned()
    }

    /// Nobody serves a line any more, whoever waits.
    pub(super) fn leave(&self, line: &LineId) {
        self.lock().stop_serving(line);
    }

    /// Changes what became of one, if it is still what it was; `None` if it is not. True if its line has to be served
    /// from now on.
    pub(super) fn change(&self, before: &Entry, state: State) -> Option<(Entry, bool)> {
        let mut inner = self.lock();
        if inner.entries.get(&before.id).is_none_or(|entry| entry.state != before.state) {
            return None;
        }
        inner.exit(before.id, &self.waiting);
        let entry = inner.entries.get_mut(&before.id)?;
        entry.state = state;
        let entry = entry.clone();
        let is_to_be_served = inner.enter(before.id, &self.waiting);
        Some((entry, is_to_be_served))
    }

    /// Forgets one, if it is still what it was.
    pub(super) fn remove(&self, before: &Entry) -> bool {
        let mut inner = self.lock();
        if inner.entries.get(&before.id).is_none_or(|entry| entry.state != before.state) {
            return false;
        }
        inner.exit(before.id, &self.waiting);
        inner.entries.remove(&before.id);
        true
    }

    /// Those that are to be forgotten at `now`: their time is over, or there are too many of them.
    pub(super) fn overdue(&self, now: Timestamp) -> Vec<Entry> {
        let inner = self.lock();
        let too_many = inner.done.len().saturating_sub(self.bounds.requests);
        let is_over = |(at, (until, _)): &(usize, &(Timestamp, Id))| *at < too_many || *until <= now;
        let overdue = inner.done.iter().enumerate().take_while(is_over);
        overdue.filter_map(|(_, (_, id))| inner.entries.get(id).cloned()).collect()
    }

    pub(super) fn tally(&self) -> Tally {
        let inner = self.lock();
        let firsts = inner.lines.values().filter_map(|line| line.waiting.first_key_value());
        let oldest = firsts.filter_map(|(_, id)| inner.entries.get(id)).map(|entry| entry.received).min();
        Tally {
            waiting: self.waiting.load(Ordering::Relaxed),
            begun: inner.begun,
            done: inner.done.len(),
            dead: inner.dead,
            bytes: inner.bytes,
            oldest,
        }
    }

    /// The first of those for which `wanted` holds, in the order of their arrival.
    pub(super) fn list(&self, most: usize, wanted: impl Fn(&Stage) -> bool) -> Vec<Entry> {
        let inner = self.lock();
        let mut found: Vec<&Entry> = inner.entries.values().filter(|entry| wanted(&entry.state.stage)).collect();
        found.sort_unstable_by_key(|entry| (entry.number, entry.id));
        found.into_iter().take(most).cloned().collect()
    }
}

impl Inner {
    /// Counts one among those that it belongs to. True if its line has to be served from now on.
    fn enter(&mut self, id: Id, waiting: &AtomicUsize) -> bool {
        let Some(Entry { number, line, bytes, keep, state, .. }) = self.entries.get(&id) else { return false };
        match &state.stage {
            Stage::Waiting { .. } => {
                self.bytes += bytes;
                waiting.fetch_add(1, Ordering::Relaxed);
                let line = self.lines.entry(*line).or_default();
                line.waiting.insert(*number, id);
                return !std::mem::replace(&mut line.is_served, true);
            }
            Stage::Begun => {
                self.bytes += bytes;
                self.begun += 1;
            }
            Stage::Dead { .. } => {
                self.bytes += bytes;
                self.dead += 1;
            }
            Stage::Done(_) => {
                self.done.insert((state.since.plus(*keep), id));
            }
        }
        false
    }

    fn exit(&mut self, id: Id, waiting: &AtomicUsize) {
        let Some(Entry { number, line, bytes, keep, state, .. }) = self.entries.get(&id) else { return };
        match &state.stage {
            Stage::Waiting { .. } => {
                self.bytes -= bytes;
                waiting.fetch_sub(1, Ordering::Relaxed);
                let line = *line;
                if let Some(line) = self.lines.get_mut(&line) {
                    line.waiting.remove(number);
                }
                self.close_if_empty(&line);
            }
            Stage::Begun => {
                self.bytes -= bytes;
                self.begun -= 1;
            }
            Stage::Dead { .. } => {
                self.bytes -= bytes;
                self.dead -= 1;
            }
            Stage::Done(_) => {
                self.done.remove(&(state.since.plus(*keep), id));
            }
        }
    }

    fn stop_serving(&mut self, id: &LineId) {
        if let Some(line) = self.lines.get_mut(id) {
            line.is_served = false;
        }
        self.close_if_empty(id);
    }

    fn close_if_empty(&mut self, id: &LineId) {
        let is_empty = |line: &Line| line.waiting.is_empty() && line.reserved == 0 && !line.is_served;
        if self.lines.get(id).is_some_and(is_empty) {
            self.lines.remove(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::StatusCode;

    use super::super::form::{Answered, tests::entry};
    use super::*;

    const BOUNDS: Bounds = Bounds { requests: 3, bytes: 350 };

    fn waiting(number: u64, line: u8) -> Entry {
        let stage = Stage::Waiting { not_before: Timestamp::EPOCH, why: "".into() };
        Entry { line: [line; 16], ..entry(number, stage) }
    }

    fn state(stage: Stage) -> State {
        State { attempts: 1, since: Timestamp::from_secs(10), stage }
    }

    fn done() -> Stage {
        let answered = Answered { status: StatusCode::OK, content_type: "".into(), body: Bytes::new(), is_whole: true };
        Stage::Done(answered)
    }

    #[test]
    fn a_line_is_served_by_one_and_in_the_order_of_numbers() {
        let lines = Lines::new(BOUNDS);
        assert!(lines.is_empty() && !lines.has(&[1; 16]));
        assert!(lines.insert(waiting(5, 1)), "the first has it served");
        assert!(!lines.insert(waiting(2, 1)), "the second finds it served");
        assert!(lines.insert(waiting(3, 2)), "another line is served on its own");
        assert!(!lines.insert(waiting(3, 2)), "what is known already changes nothing");
        assert_eq!((lines.position(waiting(2, 1).id), lines.position(waiting(5, 1).id)), (Some(1), Some(2)));
        let first = lines.first(&[1; 16], lines.epoch()).unwrap();
        assert_eq!(first.number, 2);
        // On its way it is not in line; what failed is at its old place again.
        let (begun, _) = lines.change(&first, state(Stage::Begun)).unwrap();
        assert_eq!(lines.first(&[1; 16], lines.epoch()).unwrap().number, 5);
        assert!(lines.change(&first, state(done())).is_none(), "it is not what it was");
        let again = state(Stage::Waiting { not_before: Timestamp::EPOCH, why: "503".into() });
        assert!(!lines.change(&begun, again).unwrap().1);
        assert_eq!(lines.first(&[1; 16], lines.epoch()).unwrap().number, 2);
        for number in [2, 5] {
            assert!(lines.remove(&lines.get(waiting(number, 1).id).unwrap()));
        }
        assert!(lines.first(&[1; 16], lines.epoch()).is_none());
        assert!(lines.insert(waiting(9, 1)), "after it was left it is served anew");
        assert_eq!(lines.tally().waiting, 2);
    }

    #[test]
    fn places_are_bounded_and_given_back() {
        let lines = Lines::new(BOUNDS);
        let first = lines.reserve([1; 16], 100, 2).unwrap();
        let second = lines.reserve([1; 16], 100, 2).unwrap();
        assert!(second.number > first.number);
        assert_eq!(lines.reserve([1; 16], 1, 2).unwrap_err(), Full::Line);
        assert_eq!(lines.reserve([2; 16], 151, 2).unwrap_err(), Full::Bytes);
        let third = lines.reserve([2; 16], 150, 2).unwrap();
        assert_eq!(lines.reserve([3; 16], 0, 2).unwrap_err(), Full::Requests);
        drop((first, second, third));
        assert_eq!(lines.tally(), Tally::default());
        assert!(lines.lock().lines.is_empty(), "nothing is left of lines that nobody is in");
        // What was put aside takes its place for as long as it is there; what is done does not.
        for number in 1..=3 {
            lines.insert(waiting(number, number as u8));
        }
        let all = lines.list(10, |_| true);
        lines.change(&all[0], state(Stage::Dead { why: "no".into() })).unwrap();
        lines.change(&all[1], state(Stage::Begun)).unwrap();
        assert_eq!(lines.reserve([9; 16], 1, 2).unwrap_err(), Full::Requests);
        lines.change(&all[2], state(done())).unwrap();
        assert!(lines.reserve([9; 16], 1, 2).is_ok());
        assert_eq!(lines.tally(), Tally { begun: 1, done: 1, dead: 1, bytes: 200, ..Tally::default() });
    }

    #[test]
    fn lines_that_another_gateway_serves_are_waited_in_as_well() {
        let lines = Lines::new(BOUNDS);
        lines.insert(waiting(1, 1));
        lines.set_elsewhere([[2; 16]].into());
        assert!(!lines.is_empty() && lines.has(&[2; 16]) && !lines.has(&[1; 16]));
        assert_eq!((lines.tally(), lines.first(&[1; 16], lines.epoch())), (Tally::default(), None));
        lines.set_elsewhere(HashSet::new());
        assert!(lines.is_empty() && !lines.has(&[2; 16]));
        assert!(lines.insert(waiting(1, 1)), "it is served anew");
    }

    #[test]
    fn answers_are_forgotten_when_their_time_is_over_or_there_are_too_many() {
        let lines = Lines::new(BOUNDS);
        for number in 1..=5 {
            let mut entry = waiting(number, 1);
            entry.state = State { since: Timestamp::from_secs(number), ..state(done()) };
            lines.insert(entry);
        }
        let numbers = |secs| lines.overdue(Timestamp::from_secs(secs)).iter().map(|e| e.number).collect::<Vec<_>>();
        assert_eq!(numbers(0), [1, 2], "three are the most");
        assert_eq!(numbers(3_600 + 4), [1, 2, 3, 4], "an hour is over");
        for entry in lines.overdue(Timestamp::MAX) {
            assert!(lines.remove(&entry));
        }
        assert_eq!(lines.tally(), Tally::default());
    }
}
