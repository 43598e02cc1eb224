//! Who gets through to an upstream that can take only so many requests at a time.
//!
//! There are `most` seats. Some of them are reserved for a priority, and a request holds one until its answer is
//! through; nobody who sits is sent away. So what is reserved and empty is lent to nobody: it could not be had back at
//! once, and at once is what was promised. The whole rule is one sum:
//!
//! ```text
//!   most = 10, reserved for critical = 2
//!
//!   normal   ########          8 sit
//!   critical                   nobody sits, 2 are kept     8 + 2 = 10: the next normal one waits, a critical one sits down
//!
//!   each priority takes the greater of what sits and what is reserved for it;
//!   a request sits down if, with it, these together are not more than `most`
//! ```
//!
//! A priority below its reserve adds nothing to the sum by sitting down, so that it always may: that is the promise.
//! All others share what is left, the most important first.
//!
//! Whoever finds no seat may wait. The places for that are for the most important, too: who comes when they are taken
//! sends the least important away, if that is less important than itself. Among equals it is first come, first served,
//! and who comes too late goes; or, newest first, the one that waited longest goes, since its client has probably gone
//! already.
//!
//! This is not where time passes: whoever has waited long enough is taken out by [`Seats::leave`]. Invariant: nobody
//! waits who could sit.

use std::collections::BTreeMap;

use tollgate::rules::Priority;

/// From the least important on.
pub(super) const PRIORITIES: [(Priority, &str); 4] =
    [(Priority::Low, "low"), (Priority::Normal, "normal"), (Priority::High, "high"), (Priority::Critical, "critical")];

/// The seats of one upstream, and those who wait for one.
#[derive(Debug)]
pub(super) struct Seats<W> {
    most: u32,
    reserved: [u32; 4],
    sitting: [u32; 4],
    /// By when they came.
    waiting: [BTreeMap<u64, W>; 4],
    /// How many may wait.
    places: usize,
    newest_first: bool,
    next_ticket: u64,
}

/// What became of a request that came.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Arrival<W> {
    Sits,
    /// It waits under this number. Somebody less important had to go.
    Waits {
        ticket: u64,
        instead_of: Option<W>,
    },
    Refused,
}

impl<W> Seats<W> {
    pub(super) fn new(most: u32, reserved: [u32; 4], places: usize, newest_first: bool) -> Self {
        let waiting = [const { BTreeMap::new() }; 4];
        Self { most, reserved, sitting: [0; 4], waiting, places, newest_first, next_ticket: 0 }
    }

    /// A request comes. `waiter` is asked for only if it has to wait.
    pub(super) fn arrive(&mut self, priority: Priority, waiter: impl FnOnce() -> W) -> Arrival<W> {
        if self.sit(priority) {
            return Arrival::Sits;
        }
        let instead_of = if self.waiting() < self.places {
            None
        } else {
            match self.send_away_for(priority) {
                Some(gone) => Some(gone),
                None => return Arrival::Refused,
            }
        };
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        if let Some(line) = self.waiting.get_mut(priority as usize) {
            line.insert(ticket, waiter());
        }
        Arrival::Waits { ticket, instead_of }
    }

    /// One that waits goes. False if it does not wait any more.
    pub(super) fn leave(&mut self, priority: Priority, ticket: u64) -> bool {
        self.waiting.get_mut(priority as usize).is_some_and(|line| line.remove(&ticket).is_some())
    }

    /// One that sits is done. Those who sit down now are told to `seat`.
    pub(super) fn stand_up(&mut self, priority: Priority, seat: impl FnMut(Priority, W)) {
        if let Some(sitting) = self.sitting.get_mut(priority as usize) {
            *sitting = sitting.saturating_sub(1);
        }
        self.fill(seat);
    }

    /// There are more or fewer seats. If fewer, nobody is sent away, and what is reserved is kept all the same.
    pub(super) fn resize(&mut self, most: u32, reserved: [u32; 4], seat: impl FnMut(Priority, W)) {
        (self.most, self.reserved) = (most, reserved);
        self.fill(seat);
    }

    /// The same for those who wait. If there are too many already, nobody is sent away.
    pub(super) fn rearrange(&mut self, places: usize, newest_first: bool) {
        (self.places, self.newest_first) = (places, newest_first);
    }

    pub(super) fn most(&self) -> u32 {
        self.most
    }

    pub(super) fn sitting(&self) -> u32 {
        self.sitting.iter().sum()
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.iter().map(BTreeMap::len).sum()
    }

    /// Whether it sits down.
    fn sit(&mut self, priority: Priority) -> bool {
        let taken: u64 = self.sitting.iter().zip(self.reserved).map(|(sits, kept)| u64::from(kept.max(*sits))).sum();
        let at = priority as usize;
        let (Some(sitting), Some(kept)) = (self.sitting.get_mut(at), self.reserved.get(at)) else { return false };
        let may = *sitting < *kept || taken < u64::from(self.most);
        *sitting += u32::from(may);
        may
    }

    /// The most important sit down, for as long as they may.
    fn fill(&mut self, mut seat: impl FnMut(Priority, W)) {
        for (priority, _) in PRIORITIES.into_iter().rev() {
            while self.waiting.get(priority as usize).is_some_and(|line| !line.is_empty()) && self.sit(priority) {
                let newest_first = self.newest_first;
                let line = self.waiting.get_mut(priority as usize);
                let next = line.and_then(|line| if newest_first { line.pop_last() } else { line.pop_first() });
                if let Some((_, waiter)) = next {
                    seat(priority, waiter);
                }
            }
        }
    }

    /// Takes the one out that matters least, unless that matters more than one of `priority` that comes now.
    fn send_away_for(&mut self, priority: Priority) -> Option<W> {
        let (least, line) = PRIORITIES.iter().zip(&mut self.waiting).find(|(_, line)| !line.is_empty())?;
        let gone = match (least.0.cmp(&priority), self.newest_first) {
            (std::cmp::Ordering::Less | std::cmp::Ordering::Equal, true) => line.pop_first(),
            (std::cmp::Ordering::Less, false) => line.pop_last(),
            _ => None,
        };
        gone.map(|(_, waiter)| waiter)
    }
}
