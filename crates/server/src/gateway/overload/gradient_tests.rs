//! The limit in front of a server that answers so many requests at a time, in virtual time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::gradient::Gradient;

const MILLISECOND: u64 = 1_000;
const SECOND: u64 = 1_000_000;

/// A server with workers: who comes when all are busy waits inside it. That is its knee.
struct Server {
    /// When each is free again.
    workers: BinaryHeap<Reverse<u64>>,
    /// How long one works on a request.
    service: u64,
    random: u64,
}

impl Server {
    fn new(workers: usize, service: u64) -> Self {
        Self { workers: (0..workers).map(|_| Reverse(0)).collect(), service, random: 1 }
    }

    /// When a request that comes now is answered.
    fn answers_at(&mut self, now: u64) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // Between four and six fifths of what it usually takes.
        let takes = self.service * (800 + (self.random >> 33) % 400) / 1_000;
        let free = self.workers.pop().map_or(0, |free| free.0);
        let done = free.max(now) + takes;
        self.workers.push(Reverse(done));
        done
    }
}

/// A server, its limit and clients that always want more, or at most so many at a time.
struct World {
    gradient: Gradient,
    server: Server,
    now: u64,
    /// By when they are answered: when they began, and in which crowd.
    running: BinaryHeap<Reverse<(u64, u64, u32)>>,
    answered: u64,
    lowest: u32,
    highest: u32,
}

impl World {
    fn new(min: u32, max: u32, workers: usize, service: u64) -> Self {
        let (gradient, server) = (Gradient::new(min, max, 0), Server::new(workers, service));
        Self { gradient, server, now: 0, running: BinaryHeap::new(), answered: 0, lowest: u32::MAX, highest: 0 }
    }

    /// So long, with at most this many clients.
    fn run(&mut self, time: u64, clients: u32) {
        let end = self.now + time;
        (self.lowest, self.highest, self.answered) = (u32::MAX, 0, 0);
        loop {
            let limit = self.gradient.limit();
            (self.lowest, self.highest) = (self.lowest.min(limit), self.highest.max(limit));
            while self.running.len() < limit.min(clients) as usize {
                let crowd = self.running.len() as u32 + 1;
                let at = self.server.answers_at(self.now);
                self.running.push(Reverse((at, self.now, crowd)));
            }
            let Some(Reverse((at, began, crowd))) = self.running.pop() else { return };
            if at > end {
                self.running.push(Reverse((at, began, crowd)));
                self.now = end;
                return;
            }
            self.now = at;
            self.gradient.answered(began, crowd, at);
            self.answered += 1;
        }
    }
}

#[test]
fn it_finds_the_knee_from_below() {
    for (workers, service) in [(20, 10), (50, 50), (100, 20), (200, 100), (400, 5)] {
        let mut world = World::new(5, 10_000, workers, service * MILLISECOND);
        world.run(20 * SECOND, u32::MAX);
        world.run(20 * SECOND, u32::MAX);
        let knee = workers as u32;
        assert!(world.lowest >= knee * 9 / 10, "{workers}: {} to {}", world.lowest, world.highest);
        assert!(world.highest <= knee * 17 / 10 + 5, "{workers}: {} to {}", world.lowest, world.highest);
        // And the server is never idle because of it.
        let possible = 20 * SECOND / (service * MILLISECOND) * workers as u64;
        assert!(world.answered * 100 >= possible * 97, "{workers}: {} of {possible}", world.answered);
    }
}

#[test]
fn a_slow_period_is_short_in_its_consequences() {
    let mut world = World::new(5, 1_000, 100, 20 * MILLISECOND);
    world.run(20 * SECOND, u32::MAX);
    let before = world.gradient.limit();
    world.server.service = 400 * MILLISECOND;
    world.run(5 * SECOND, u32::MAX);
    assert!(world.lowest <= before / 4 && world.lowest >= 5, "{} of {before}", world.lowest);
    world.server.service = 20 * MILLISECOND;
    world.run(5 * SECOND, u32::MAX);
    assert!((90..=200).contains(&world.gradient.limit()), "{}", world.gradient.limit());
}

/// Slower for good is not overload: the limit comes back up to the knee, which is where it was.
#[test]
fn a_server_that_stays_slower_is_measured_anew() {
    let mut world = World::new(5, 1_000, 100, 20 * MILLISECOND);
    world.run(20 * SECOND, u32::MAX);
    world.server.service = 100 * MILLISECOND;
    world.run(30 * SECOND, u32::MAX);
    world.run(10 * SECOND, u32::MAX);
    assert!(world.lowest >= 90 && world.highest <= 200, "{} to {}", world.lowest, world.highest);
}

/// One that loses half of its workers is given half as much.
#[test]
fn fewer_workers_are_given_less() {
    let mut world = World::new(5, 1_000, 100, 20 * MILLISECOND);
    world.run(20 * SECOND, u32::MAX);
    world.server.workers = (0..25).map(|_| Reverse(world.now)).collect();
    world.run(5 * SECOND, u32::MAX);
    world.run(20 * SECOND, u32::MAX);
    assert!(world.lowest >= 20 && world.highest <= 55, "{} to {}", world.lowest, world.highest);
}

/// What the limit does not decide says nothing about it.
#[test]
fn idle_times_do_not_raise_it() {
    let mut world = World::new(5, 1_000, 100, 20 * MILLISECOND);
    world.run(60 * SECOND, 3);
    assert!(world.gradient.limit() <= 10, "{}", world.gradient.limit());
    world.run(20 * SECOND, u32::MAX);
    let found = world.gradient.limit();
    world.run(30 * SECOND, 20);
    assert!(found > 90 && world.gradient.limit() <= found, "{} after {found}", world.gradient.limit());
}

/// Once a minute it looks how fast the server is with few requests, for a moment.
#[test]
fn measuring_costs_little_and_happens_once_a_minute() {
    let mut world = World::new(10, 1_000, 100, 20 * MILLISECOND);
    world.run(50 * SECOND, u32::MAX);
    world.run(300 * SECOND, u32::MAX);
    assert_eq!(world.lowest, 10);
    let possible = 300 * SECOND / (20 * MILLISECOND) * 100;
    assert!(world.answered * 1_000 >= possible * 985, "{} of {possible}", world.answered);
    assert!(world.highest <= 200, "{}", world.highest);
}

#[test]
fn it_stays_between_its_bounds() {
    let mut world = World::new(7, 30, 100, 20 * MILLISECOND);
    world.run(20 * SECOND, u32::MAX);
    assert_eq!((world.lowest, world.highest), (7, 30));
    // However bad it becomes.
    for _ in 0..1_000 {
        world.gradient.failed(u64::MAX, world.now);
        let now = world.now;
        (0..20).for_each(|_| world.gradient.answered(now, 8, now + 100 * SECOND));
        world.now += 100 * SECOND;
        assert!(world.gradient.limit() >= 7);
    }
    let mut world = World::new(7, 30, 1, 20 * MILLISECOND);
    world.run(20 * SECOND, u32::MAX);
    assert!(world.lowest == 7 && world.gradient.limit() <= 12, "{}", world.gradient.limit());
}

/// What fails at once is not fast.
#[test]
fn failures_lower_it_once_in_a_round() {
    let mut world = World::new(5, 1_000, 100, 20 * MILLISECOND);
    world.run(20 * SECOND, u32::MAX);
    let before = world.gradient.limit();
    (0..100).for_each(|_| world.gradient.failed(world.now, world.now));
    let after = world.gradient.limit();
    assert!(after < before && after >= before * 9 / 10 - 1, "{before} {after}");
}

/// Servers that only fail are soon given as little as may be, and more again when they answer.
#[test]
fn a_server_that_fails_altogether_sinks_to_the_least() {
    let mut world = World::new(5, 1_000, 100, 20 * MILLISECOND);
    world.run(20 * SECOND, u32::MAX);
    assert!(world.gradient.limit() > 90);
    for _ in 0..10_000 {
        world.now += MILLISECOND;
        world.gradient.failed(world.now, world.now);
    }
    assert_eq!(world.gradient.limit(), 5);
    world.running.clear();
    world.run(10 * SECOND, u32::MAX);
    assert!(world.gradient.limit() > 90, "{}", world.gradient.limit());
}
