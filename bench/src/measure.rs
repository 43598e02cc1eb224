//! The measured loops. They are generic, so that every contender's `check` is
//! compiled into them; only the choice of a loop goes through a pointer.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use crate::contender::{Contender, Key, write_key};

/// What a loop found.
#[derive(Clone, Copy, Default)]
pub struct Timing {
    pub elapsed: Duration,
    pub decisions: usize,
    pub allowed: usize,
}

impl Timing {
    pub fn ns_per_decision(&self) -> f64 {
        self.elapsed.as_nanos() as f64 / self.decisions.max(1) as f64
    }
}

/// A built contender, its type forgotten.
pub trait Runner: Sync {
    /// Decides keys numbered 0 to `keys`, once each.
    fn insert(&self, keys: usize);

    /// Decides the requests in turn.
    fn walk(&self, requests: &[Key]) -> Timing;

    /// Decides the keys that `order` points to.
    fn jump(&self, keys: &[Key], order: &[u32]) -> Timing;

    /// Walks each list in a thread of its own, all at once. The time is that of
    /// the slowest thread, the decisions are those of all.
    fn walk_together(&self, lists: &[&[Key]]) -> Timing;

    /// Decides keys numbered 0 to `keys` once each, and returns what every
    /// decision took by `clock`, in its unit.
    fn insert_timed(&self, keys: usize, clock: fn() -> u64) -> Vec<u32>;
}

impl<C: Contender> Runner for C {
    fn insert(&self, keys: usize) {
        let mut key = Key::with_capacity(24);
        for number in 0..keys {
            write_key(&mut key, number);
            self.check(&key);
        }
    }

    fn walk(&self, requests: &[Key]) -> Timing {
        let start = Instant::now();
        let mut allowed = 0;
        for key in requests {
            allowed += usize::from(self.check(key));
        }
        Timing { elapsed: start.elapsed(), decisions: requests.len(), allowed }
    }

    fn jump(&self, keys: &[Key], order: &[u32]) -> Timing {
        let start = Instant::now();
        let mut allowed = 0;
        for &at in order {
            allowed += usize::from(self.check(&keys[at as usize]));
        }
        Timing { elapsed: start.elapsed(), decisions: order.len(), allowed }
    }

    fn walk_together(&self, lists: &[&[Key]]) -> Timing {
        let barrier = &Barrier::new(lists.len());
        let mut total = Timing::default();
        std::thread::scope(|scope| {
            let threads: Vec<_> = lists
                .iter()
                .map(|&list| {
                    scope.spawn(move || {
                        barrier.wait();
                        self.walk(list)
                    })
                })
                .collect();
            for thread in threads {
                let one = thread.join().expect("a measuring thread panicked");
                total.elapsed = total.elapsed.max(one.elapsed);
                total.decisions += one.decisions;
                total.allowed += one.allowed;
            }
        });
        total
    }

    fn insert_timed(&self, keys: usize, clock: fn() -> u64) -> Vec<u32> {
        let mut key = Key::with_capacity(24);
        let mut times = vec![0; keys];
        for (number, time) in times.iter_mut().enumerate() {
            write_key(&mut key, number);
            let start = clock();
            self.check(&key);
            *time = u32::try_from(clock() - start).unwrap_or(u32::MAX);
        }
        times
    }
}
