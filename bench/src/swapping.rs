//! Whether putting new rules in force keeps decisions waiting.
//!
//! Threads decide and time each decision, by the wall clock and in CPU time, while another swaps sets of 10,000 rules,
//! or swaps nothing. The machine stalls decisions too, and much longer now and then, so that the slowest says nothing.
//! Compared is how many decisions took longer than any may, in rounds with swaps and in as many without, made in turn:
//! if a swap stalled decisions, there would be about one more for each swap.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tollgate::{MemoryStore, RuleSet, Tollgate};

use crate::by_rules::{file, rule_set};

/// The longest that a swap may stall a decision.
const MOST_STALL: Duration = Duration::from_micros(100);
const ROUNDS: usize = 7;
const SWAPS: usize = 40;
const DECISIONS_PER_SWAP: usize = 20_000;

/// Prints what was found and says whether the claim holds. `decide` makes one decision.
pub fn swapping(decide: impl Fn(&Tollgate<MemoryStore>, usize) + Sync) -> bool {
    let text = file(10_000);
    let deciders = std::thread::available_parallelism().map_or(1, |cores| cores.get() - 1).max(1);
    let each = SWAPS * DECISIONS_PER_SWAP;
    println!(
        "Swapping 10000 rules under load: {ROUNDS} rounds of {SWAPS} swaps and as many without any, {each} decisions \
         in each of {deciders} threads\n"
    );
    let (mut without, mut with) = (Stalls::default(), Stalls::default());
    for _ in 0..ROUNDS {
        without.add(&round(&text, deciders, Vec::new(), &decide));
        with.add(&round(&text, deciders, (0..SWAPS).map(|_| rule_set(&text)).collect(), &decide));
    }
    without.print("without swaps");
    with.print("with swaps");
    println!("\nAllowed are as many as without swaps, three times the square root of that for chance, and three.");
    let wall = claim("by the wall clock", with.wall.over, without.wall.over);
    let cpu = claim("in CPU time", with.cpu.over, without.cpu.over);
    wall && cpu
}

fn claim(clock: &str, with: usize, without: usize) -> bool {
    let most = without + 3 * without.isqrt() + 3;
    let holds = with <= most;
    let word = if holds { "PASS" } else { "FAIL" };
    println!(
        "{word}  {} swaps stall no decision by more than 100 us {clock} ({with} such decisions, {most} allowed)",
        ROUNDS * SWAPS
    );
    holds
}

/// Decisions that took too long by one clock, and the slowest.
#[derive(Default)]
struct Clock {
    over: usize,
    slowest: Duration,
}

impl Clock {
    fn add(&mut self, took: Duration) {
        self.over += usize::from(took > MOST_STALL);
        self.slowest = self.slowest.max(took);
    }
}

#[derive(Default)]
struct Stalls {
    wall: Clock,
    cpu: Clock,
}

impl Stalls {
    fn add(&mut self, other: &Self) {
        for (sum, one) in [(&mut self.wall, &other.wall), (&mut self.cpu, &other.cpu)] {
            sum.over += one.over;
            sum.slowest = sum.slowest.max(one.slowest);
        }
    }

    fn print(&self, name: &str) {
        let shown = |clock: &Clock| format!("{:>5} over 100 us, slowest {:>9.1?}", clock.over, clock.slowest);
        println!("{name:<14} by the wall clock {}; in CPU time {}", shown(&self.wall), shown(&self.cpu));
    }
}

/// One round, with as many swaps as there are sets.
fn round(
    text: &str,
    deciders: usize,
    sets: Vec<RuleSet>,
    decide: &(impl Fn(&Tollgate<MemoryStore>, usize) + Sync),
) -> Stalls {
    let gate = Tollgate::new(rule_set(text), MemoryStore::new());
    let (decided, done) = (AtomicUsize::new(0), AtomicBool::new(false));
    let deciding = || {
        // The first decisions of a thread make what it keeps.
        (0..1_000).for_each(|number| decide(&gate, number));
        let mut stalls = Stalls::default();
        for number in 0..SWAPS * DECISIONS_PER_SWAP {
            let (start, cpu_start) = (Instant::now(), cpu());
            decide(&gate, number);
            stalls.cpu.add(cpu() - cpu_start);
            stalls.wall.add(start.elapsed());
            decided.fetch_add(1, Ordering::Relaxed);
        }
        stalls
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut sets = sets.into_iter();
            // Paced by the decisions themselves, so that each set decides as many.
            for step in 1..=SWAPS {
                while decided.load(Ordering::Relaxed) < step * DECISIONS_PER_SWAP * deciders
                    && !done.load(Ordering::Relaxed)
                {
                    std::thread::yield_now();
                }
                sets.next().into_iter().for_each(|set| gate.replace_rules(set));
            }
        });
        let threads: Vec<_> = (0..deciders).map(|_| scope.spawn(deciding)).collect();
        let mut all = Stalls::default();
        for thread in threads {
            all.add(&thread.join().expect("a decider does not panic"));
        }
        done.store(true, Ordering::Relaxed);
        all
    })
}

fn cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
