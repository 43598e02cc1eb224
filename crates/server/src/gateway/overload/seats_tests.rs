//! Seats against the slow way to say the same, the promise to those with a reserve, and requests that wait for their
//! turn.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use tollgate::Micros;
use tollgate::rules::{MostSpec, OverloadSpec, Priority, ReservedSpec};

use super::seats::{Arrival, PRIORITIES, Seats};
use super::{Overload, Permit, Shed};
use crate::gate::{Exposition, Gate, GateClock, GateStore};

/// Everybody in one list, looked through from the beginning every time.
struct Naive {
    most: usize,
    reserved: [u32; 4],
    places: usize,
    newest_first: bool,
    sitting: Vec<usize>,
    /// Priority and number, by when they came.
    waiting: Vec<(usize, u64)>,
}

impl Naive {
    fn sits(&self, priority: usize) -> usize {
        self.sitting.iter().filter(|one| **one == priority).count()
    }

    /// What has to stay empty for others, who may come at any time.
    fn kept_for_others(&self, priority: usize) -> usize {
        let empty = |other: usize| (self.reserved[other] as usize).saturating_sub(self.sits(other));
        (0..4).filter(|other| *other != priority).map(empty).sum()
    }

    fn may_sit(&self, priority: usize) -> bool {
        self.sits(priority) < self.reserved[priority] as usize
            || self.sitting.len() + self.kept_for_others(priority) < self.most
    }

    fn arrive(&mut self, priority: usize, ticket: u64) -> Arrival<u64> {
        if self.may_sit(priority) {
            self.sitting.push(priority);
            return Arrival::Sits;
        }
        self.waiting.push((priority, ticket));
        if self.waiting.len() <= self.places {
            return Arrival::Waits { ticket, instead_of: None };
        }
        // One has to go: the least important, and of those the one that would be served last.
        let least = self.waiting.iter().map(|(one, _)| *one).min().unwrap();
        let mut worst = self.waiting.iter().filter(|(one, _)| *one == least);
        let worst = *if self.newest_first { worst.next() } else { worst.next_back() }.unwrap();
        self.waiting.retain(|one| *one != worst);
        if worst.1 == ticket { Arrival::Refused } else { Arrival::Waits { ticket, instead_of: Some(worst.1) } }
    }

    fn fill(&mut self) -> Vec<u64> {
        let mut seated = Vec::new();
        loop {
            let may = self.waiting.iter().filter(|(priority, _)| self.may_sit(*priority));
            let key = |(priority, ticket): &&(usize, u64)| {
                (*priority, if self.newest_first { *ticket } else { u64::MAX - *ticket })
            };
            let Some(next) = may.max_by_key(key).copied() else { return seated };
            self.waiting.retain(|one| *one != next);
            self.sitting.push(next.0);
            seated.push(next.1);
        }
    }
}

#[derive(Clone, Debug)]
enum Event {
    Arrive(usize),
    /// Of those who sit, or wait, this one.
    Done(usize),
    Leave(usize),
    Resize(u32, [u32; 4]),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => (0usize..4).prop_map(Event::Arrive),
        4 => any::<usize>().prop_map(Event::Done),
        1 => any::<usize>().prop_map(Event::Leave),
        1 => reserves().prop_map(|(most, reserved)| Event::Resize(most, reserved)),
    ]
}

fn reserves() -> impl Strategy<Value = (u32, [u32; 4])> {
    (1u32..12, prop::array::uniform4(0u32..4)).prop_map(|(most, mut reserved)| {
        while reserved.iter().sum::<u32>() > most {
            reserved = reserved.map(|one| one.saturating_sub(1));
        }
        (most, reserved)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn seats_are_given_as_the_slow_way_gives_them(
        (most, reserved) in reserves(), places in 0usize..5, newest_first: bool, events in prop::collection::vec(event(), 1..120)
    ) {
        let mut seats = Seats::new(most, reserved, places, newest_first);
        let (sitting, waiting) = (Vec::new(), Vec::new());
        let mut naive = Naive { most: most as usize, reserved, places, newest_first, sitting, waiting };
        let (mut came, mut tickets) = (0, HashMap::new());
        for event in events {
            let mut seated = Vec::new();
            match event {
                Event::Arrive(priority) => {
                    came += 1;
                    let arrival = match seats.arrive(PRIORITIES[priority].0, || came) {
                        Arrival::Waits { ticket, instead_of } => {
                            tickets.insert(came, ticket);
                            Arrival::Waits { ticket: came, instead_of }
                        }
                        other => other,
                    };
                    prop_assert_eq!(arrival, naive.arrive(priority, came));
                }
                Event::Done(which) if !naive.sitting.is_empty() => {
                    let priority = naive.sitting.swap_remove(which % naive.sitting.len());
                    seats.stand_up(PRIORITIES[priority].0, |_, who| seated.push(who));
                    let mut expected = naive.fill();
                    expected.sort_unstable();
                    seated.sort_unstable();
                    prop_assert_eq!(&seated, &expected);
                }
                Event::Leave(which) if !naive.waiting.is_empty() => {
                    let (priority, who) = naive.waiting.remove(which % naive.waiting.len());
                    prop_assert!(seats.leave(PRIORITIES[priority].0, tickets[&who]));
                    prop_assert!(!seats.leave(PRIORITIES[priority].0, tickets[&who]));
                }
                Event::Resize(most, reserved) => {
                    (naive.most, naive.reserved) = (most as usize, reserved);
                    seats.resize(most, reserved, |_, who| seated.push(who));
                    let mut expected = naive.fill();
                    expected.sort_unstable();
                    seated.sort_unstable();
                    prop_assert_eq!(&seated, &expected);
                }
                Event::Done(_) | Event::Leave(_) => {}
            }
            prop_assert_eq!(seats.sitting() as usize, naive.sitting.len());
            prop_assert_eq!(seats.waiting(), naive.waiting.len());
            prop_assert!(naive.waiting.iter().all(|(priority, _)| !naive.may_sit(*priority)), "nobody waits who could sit");
        }
    }

    /// [A11] Whatever the others do, and however many of them, whoever is below its reserve sits down at once, and
    /// there are never more than there may be.
    #[test]
    fn a11_a_reserve_is_there_at_any_time((most, reserved) in reserves(), others in prop::collection::vec((0usize..4, any::<bool>()), 0..200)) {
        let mut seats: Seats<()> = Seats::new(most, reserved, 3, false);
        let mut sitting = [0u32; 4];
        for (priority, comes) in others {
            let mut seated = Vec::new();
            if comes {
                let arrival = seats.arrive(PRIORITIES[priority].0, || ());
                if sitting[priority] < reserved[priority] {
                    prop_assert_eq!(&arrival, &Arrival::Sits);
                }
                sitting[priority] += u32::from(arrival == Arrival::Sits);
            } else if sitting[priority] > 0 {
                sitting[priority] -= 1;
                seats.stand_up(PRIORITIES[priority].0, |priority, ()| seated.push(priority));
            }
            seated.into_iter().for_each(|priority| sitting[priority as usize] += 1);
            prop_assert!(seats.sitting() <= most);
            prop_assert_eq!(seats.sitting(), sitting.iter().sum::<u32>());
        }
    }
}

/// [A11] With a fifth reserved, critical requests get a fifth of what is done while others come without end, and next
/// to nothing without.
#[test]
fn a11_critical_requests_keep_their_share_under_saturation() {
    for (share, least, most) in [(ReservedSpec::default(), 0, 6), (ReservedSpec::Percent(20), 195, 205)] {
        let reserved = spec(MostSpec::Fixed(10), share, 0, false).reserved_of(10);
        let mut seats: Seats<()> = Seats::new(10, reserved, 0, false);
        let (mut done, mut sitting) = ([0; 4], Vec::new());
        for _ in 0..1_000 {
            // Others come first, and more of them than could ever be served.
            for priority in [Priority::High, Priority::High, Priority::Normal, Priority::Critical, Priority::Critical] {
                if seats.arrive(priority, || ()) == Arrival::Sits {
                    sitting.push(priority);
                }
            }
            if sitting.len() == 10 {
                let first = sitting.remove(0);
                seats.stand_up(first, |_, ()| unreachable!("nobody waits"));
                done[first as usize] += 1;
            }
        }
        let critical = done[Priority::Critical as usize];
        assert!((least..=most).contains(&critical), "{share:?}: {done:?}");
    }
}

fn spec(most: MostSpec, critical: ReservedSpec, queue: u32, newest_first: bool) -> OverloadSpec {
    let reserved = [ReservedSpec::default(), ReservedSpec::default(), ReservedSpec::default(), critical];
    OverloadSpec { most, reserved, queue, max_wait: Micros::SECOND, newest_first }
}

fn gate() -> Gate {
    let store = GateStore::Memory(tollgate::MemoryStore::with_budget(1 << 20));
    Gate::new(store, GateClock::system(), 0.8, false)
}

fn overload(queue: u32, newest_first: bool) -> (Arc<Overload>, Gate) {
    let spec = spec(MostSpec::Fixed(1), ReservedSpec::default(), queue, newest_first);
    (Arc::new(Overload::new(&"api".into(), &spec)), gate())
}

fn exposed(overload: &Overload) -> String {
    let mut out = Exposition::default();
    overload.expose(&mut out);
    out.finish()
}

/// Begins to wait, and does not stop.
fn waits(overload: &Arc<Overload>, priority: Priority) -> tokio::task::JoinHandle<Result<Permit, Shed>> {
    let overload = Arc::clone(overload);
    tokio::spawn(async move { overload.enter(priority, &gate()).await })
}

async fn until_waiting(overload: &Overload, number: usize) {
    while overload.lock().seats.waiting() != number {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_is_served_in_order_displaced_or_late() {
    for newest_first in [false, true] {
        let (overload, gate) = overload(2, newest_first);
        let seat = overload.enter(Priority::Low, &gate).await.unwrap();
        let first = waits(&overload, Priority::Normal);
        until_waiting(&overload, 1).await;
        let second = waits(&overload, Priority::Normal);
        until_waiting(&overload, 2).await;
        assert_eq!(overload.enter(Priority::Low, &gate).await.unwrap_err(), Shed::Full);
        let important = waits(&overload, Priority::Critical);
        // The one that would be served last has to go.
        let (gone, stays) = if newest_first { (first, second) } else { (second, first) };
        assert_eq!(gone.await.unwrap().unwrap_err(), Shed::Displaced);
        drop(seat);
        let important = important.await.unwrap().unwrap();
        assert!(!stays.is_finished());
        drop(important);
        drop(stays.await.unwrap().unwrap());
        assert_eq!(overload.lock().seats.sitting(), 0);
        assert_eq!(overload.lock().seats.waiting(), 0);

        let _seat = overload.enter(Priority::Low, &gate).await.unwrap();
        let began = tokio::time::Instant::now();
        assert_eq!(overload.enter(Priority::Critical, &gate).await.unwrap_err(), Shed::Waited);
        assert_eq!(began.elapsed().as_millis(), 1_000);
        let text = exposed(&overload);
        for line in [
            "tollgate_shed_requests_total{upstream=\"api\",priority=\"low\",reason=\"full\"} 1",
            "tollgate_shed_requests_total{upstream=\"api\",priority=\"normal\",reason=\"displaced\"} 1",
            "tollgate_shed_requests_total{upstream=\"api\",priority=\"critical\",reason=\"waited\"} 1",
            "tollgate_upstream_requests{upstream=\"api\",state=\"running\"} 1",
            "tollgate_upstream_requests{upstream=\"api\",state=\"waiting\"} 0",
            "tollgate_upstream_max_concurrent{upstream=\"api\"} 1",
        ] {
            assert!(text.contains(&format!("{line}\n")), "{line}\n{text}");
        }
        let mut out = Exposition::default();
        gate.expose(&mut out);
        let text = out.finish();
        assert!(text.contains("tollgate_queue_wait_seconds_count{queue=\"upstream\"} 1\n"), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_gives_up_leaves_nothing_behind() {
    let (overload, gate) = overload(5, false);
    let seat = overload.enter(Priority::Normal, &gate).await.unwrap();
    let gone = waits(&overload, Priority::Normal);
    until_waiting(&overload, 1).await;
    gone.abort();
    assert!(gone.await.unwrap_err().is_cancelled());
    assert_eq!(overload.lock().seats.waiting(), 0);
    // It was its turn, and it went before it knew.
    let gone = waits(&overload, Priority::Normal);
    until_waiting(&overload, 1).await;
    drop(seat);
    assert_eq!(overload.lock().seats.sitting(), 1);
    gone.abort();
    let _ = gone.await;
    assert_eq!(overload.lock().seats.sitting(), 0);
}

#[tokio::test(start_paused = true)]
async fn another_number_counts_for_those_who_are_there() {
    let (overload, gate) = overload(5, false);
    let first = overload.enter(Priority::Normal, &gate).await.unwrap();
    let second = waits(&overload, Priority::Normal);
    until_waiting(&overload, 1).await;
    overload.set(&spec(MostSpec::Fixed(2), ReservedSpec::default(), 0, false));
    let second = second.await.unwrap().unwrap();
    assert_eq!(overload.enter(Priority::Normal, &gate).await.unwrap_err(), Shed::Full);
    overload.set(&spec(MostSpec::Fixed(1), ReservedSpec::default(), 0, false));
    drop(first);
    assert_eq!(overload.enter(Priority::Normal, &gate).await.unwrap_err(), Shed::Full);
    drop(second);
    assert!(overload.enter(Priority::Normal, &gate).await.is_ok());
    // A number that is found out begins at the least.
    overload.set(&spec(MostSpec::Adaptive { min: 3, max: 9 }, ReservedSpec::default(), 0, false));
    assert!(exposed(&overload).contains("tollgate_upstream_max_concurrent{upstream=\"api\"} 3\n"));
    tokio::time::advance(Duration::from_secs(1)).await;
}
