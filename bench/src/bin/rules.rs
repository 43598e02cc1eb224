//! Decisions through rules, beside limitador's library and beside decisions without rules; and what loading and
//! swapping rules costs. `scripts/bench rules` runs it.
//!
//! A check has three entries (tenant, path, user) and meets one rule of one limit. Ratios are medians over rounds in
//! which everything is measured in turn.

#[path = "../by_rules.rs"]
mod by_rules;

use std::collections::HashMap;
use std::hint::black_box;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use limitador::limit::{Limit, Namespace};
use tollgate::rules::Source;
use tollgate::{Check, Descriptor, Limiter, MemoryStore, RuleSet, Tollgate, Verdict};

use crate::by_rules::{file, now, rule_set};

const ROUNDS: usize = 7;
const USERS: usize = 1_000;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [first, dialect] = &*arguments
        && first == "load"
    {
        return code(load(dialect));
    }
    let users: Vec<String> = (0..USERS).map(|number| format!("user:{number:019}")).collect();
    let hold = [decisions(&users), loading(), swapping(&users)];
    code(hold == [true; 3])
}

/// Fails if a claim does.
fn code(hold: bool) -> ExitCode {
    if hold { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Nanoseconds each, for one pass over all users some times.
fn timed(users: &[String], passes: usize, mut decide: impl FnMut(&str) -> bool) -> f64 {
    let start = Instant::now();
    for _ in 0..passes {
        for user in users {
            assert!(decide(black_box(user)));
        }
    }
    start.elapsed().as_nanos() as f64 / (passes * users.len()) as f64
}

/// Looks at all that a verdict says.
#[inline(always)]
fn allowed(verdict: Verdict<'_>) -> bool {
    black_box(&verdict).allowed
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Nanoseconds of each round, by what was measured, in the order in which it was first.
#[derive(Default)]
struct Rows(Vec<(String, Vec<f64>)>);

impl Rows {
    fn add(&mut self, name: impl Into<String>, ns: f64) {
        let name = name.into();
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some((_, values)) => values.push(ns),
            None => self.0.push((name, vec![ns])),
        }
    }

    fn of(&self, name: &str) -> &[f64] {
        let row = self.0.iter().find(|(known, _)| known == name);
        row.map(|(_, values)| &**values).unwrap_or_else(|| panic!("nothing was measured as {name:?}"))
    }

    /// The median of how many times `b` each `a` took.
    fn ratio(&self, a: &str, b: &str) -> f64 {
        median(self.of(a).iter().zip(self.of(b)).map(|(a, b)| a / b).collect())
    }
}

const FULL_ANSWER: &str = "without rules, full answer";
const LIMITADOR: &str = "limitador, 1000 limits";

fn by_descriptors(rules: usize) -> String {
    format!("descriptors, {rules} rules")
}

fn by_attributes(rules: usize) -> String {
    format!("attributes, {rules} rules")
}

fn decisions(users: &[String]) -> bool {
    let bare = Limiter::requests_per_second(1_000_000).burst(1_000_000_000).build().expect("a limit");
    let sizes = [10, 1_000, 100_000];
    let gates = sizes.map(|size| Tollgate::new(rule_set(&file(size)), MemoryStore::new()));
    let limitador = limitador_with(1_000);
    let namespace: Namespace = "bench".into();

    let mut rows = Rows::default();
    for _ in 0..ROUNDS {
        rows.add("without rules, yes or no", timed(users, 200, |user| bare.allow(user)));
        rows.add(FULL_ANSWER, timed(users, 200, |user| black_box(bare.check(user)).allowed));
        for (size, gate) in sizes.iter().zip(&gates) {
            let ns = timed(users, 100, |user| {
                let entries = [("tenant", "tenant-0"), ("path", "/path-7"), ("user", user)];
                let descriptors = [Descriptor::new(&entries)];
                let check = Check::descriptors("bench", &descriptors);
                now(gate.check_with(&check, allowed)).unwrap_or(false)
            });
            rows.add(by_descriptors(*size), ns);
            let ns = timed(users, 100, |user| {
                let entries = [("tenant", "tenant-0"), ("path", "/path-7"), ("user", user)];
                now(gate.check_with(&Check::attributes("bench", &entries), allowed)).unwrap_or(false)
            });
            rows.add(by_attributes(*size), ns);
        }
        let some = &users[..10];
        let ns = timed(some, 2, |user| {
            let context = HashMap::from([
                ("tenant".to_string(), "tenant-0".to_string()),
                ("path".to_string(), "/path-7".to_string()),
                ("user".to_string(), user.to_string()),
            ]);
            let answer = limitador.check_rate_limited_and_update(&namespace, &context.into(), 1);
            answer.is_ok_and(|answer| !answer.limited)
        });
        rows.add(LIMITADOR, ns);
    }
    println!(
        "Decisions through rules: three entries, one rule met, one limit; {USERS} users; median of {ROUNDS} rounds\n"
    );
    for (name, values) in &rows.0 {
        println!("{name:<28} {:>10.1} ns", median(values.clone()));
    }
    let (bare_many, through_many) = many_users(&gates[1]);
    println!(
        "\nthe same with a million users, in no order: {bare_many:.1} ns without rules, {through_many:.1} ns by descriptors"
    );
    println!("\nClaims");
    let [few, thousand, most] = sizes.map(by_descriptors);
    let beside_limitador = rows.ratio(LIMITADOR, &thousand);
    let beside_none = rows.ratio(&thousand, FULL_ANSWER);
    let attributes_beside_none = rows.ratio(&by_attributes(1_000), FULL_ANSWER);
    let many = through_many / bare_many;
    let growth = rows.ratio(&most, &few);
    let [few, _, most] = sizes.map(by_attributes);
    let growth_of_attributes = rows.ratio(&most, &few);
    let within_a_tenth = |found| (0.9..=1.1).contains(&found);
    let hold = [
        claim("1000 rules: limitador at least 15 x descriptors", beside_limitador, |found| found >= 15.0),
        claim("1000 rules: descriptors at most 2.5 x a full answer without rules", beside_none, |found| found <= 2.5),
        claim("1000 rules: attributes at most 2.5 x a full answer without rules", attributes_beside_none, |found| {
            found <= 2.5
        }),
        claim("a million users: descriptors at most 2.5 x a full answer without rules", many, |found| found <= 2.5),
        claim("descriptors: 100000 rules within 10 % of 10", growth, within_a_tenth),
        claim("attributes: 100000 rules within 10 % of 10", growth_of_attributes, within_a_tenth),
    ];
    println!();
    hold == [true; 6]
}

/// A full answer without rules, and one by descriptors, when the users' states are all over the memory.
fn many_users(gate: &Tollgate<MemoryStore>) -> (f64, f64) {
    const USERS: usize = 1_000_000;
    // Every user once, far from the one before; the requests themselves come one after the other.
    let order: Vec<String> = (0..USERS).map(|at| format!("user:{:019}", at * 611_953 % USERS)).collect();
    let bare = Limiter::requests_per_second(1_000_000).burst(1_000_000_000).build().expect("a limit");
    let mut found = [Vec::new(), Vec::new()];
    for _ in 0..5 {
        let start = Instant::now();
        for user in &order {
            assert!(black_box(bare.check(black_box(user.as_str()))).allowed);
        }
        found[0].push(start.elapsed().as_nanos() as f64 / order.len() as f64);
        let start = Instant::now();
        for user in &order {
            let entries = [("tenant", "tenant-0"), ("path", "/path-7"), ("user", black_box(user.as_str()))];
            let descriptors = [Descriptor::new(&entries)];
            let check = Check::descriptors("bench", &descriptors);
            assert!(now(gate.check_with(&check, allowed)).unwrap_or(false));
        }
        found[1].push(start.elapsed().as_nanos() as f64 / order.len() as f64);
    }
    let [bare, through] = found.map(median);
    (bare, through)
}

/// Says whether a claim holds.
fn claim(what: &str, found: f64, holds: impl Fn(f64) -> bool) -> bool {
    let holds = holds(found);
    println!("{}  {what} ({found:.2})", if holds { "PASS" } else { "FAIL" });
    holds
}

fn limitador_with(limits: usize) -> limitador::RateLimiter {
    let limiter = limitador::RateLimiter::new(1_000_000);
    for number in 0..limits {
        let (tenant, path) = (number / 10, number % 10);
        let tenant = format!("tenant == 'tenant-{tenant}'").try_into().expect("an expression");
        let path = format!("path == '/path-{path}'").try_into().expect("an expression");
        let user = "user".try_into().expect("an expression");
        limiter.add_limit(Limit::new("bench", 1_000_000_000, 1_000, [tenant, path], [user]));
    }
    limiter
}

const DIALECTS: [&str; 2] = ["lyft", "own"];

/// Each dialect in a process of its own, so that what it keeps is what the process has.
fn loading() -> bool {
    println!("Loading 100000 rules, each dialect in a process of its own\n");
    let mut hold = true;
    for dialect in DIALECTS {
        let itself = std::env::current_exe().expect("this program has a path");
        let output = std::process::Command::new(itself).args(["load", dialect]).output().expect("it runs again");
        print!("{}", String::from_utf8_lossy(&output.stdout));
        eprint!("{}", String::from_utf8_lossy(&output.stderr));
        hold &= output.status.success();
    }
    println!();
    hold
}

fn load(dialect: &str) -> bool {
    let mut text = String::from("domain: bench\n");
    text.push_str(if dialect == "lyft" { "descriptors:\n" } else { "rules:\n" });
    for number in 0..100_000 {
        text.push_str(&if dialect == "lyft" {
            format!(
                "  - key: user_id\n    value: user-{number}\n    rate_limit:\n      unit: second\n      \
                 requests_per_unit: 5\n"
            )
        } else {
            format!(
                "  - name: rule-{number}\n    when: {{tenant: tenant-{number}}}\n    per: user_id\n    \
                 limits: 5/s\n"
            )
        });
    }
    let source = Source::new(dialect, text);
    let start = Instant::now();
    let (set, problems) = RuleSet::compile(tollgate::rules::parse(vec![source]));
    let took = start.elapsed();
    assert!(!problems.has_errors(), "{problems}");
    drop(problems);
    let (kept, most) = (status("VmRSS:") >> 20, status("VmHWM:") >> 20);
    println!("{dialect:<6} {} rules  {took:.0?}  {kept} MiB resident after it, {most} MiB at most", set.rules().len());
    let quick = claim("under 1 s", took.as_secs_f64(), |found| found < 1.0);
    let small = claim("under 200 MiB at any time", most as f64, |found| found < 200.0);
    quick && small
}

/// A figure of this process in bytes.
fn status(field: &str) -> usize {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with(field)).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kilobytes| kilobytes.parse::<usize>().ok()).unwrap_or(0) << 10
}

/// The longest that a swap may stall a decision, in microseconds.
const MOST_STALL: f64 = 100.0;

/// One thread decides and times each decision while another swaps sets of 10,000 rules. The wall clock also counts what
/// else the machine runs, so the thread's CPU time is taken beside it. Before each round with swaps is one without: if
/// that has a decision as slow as none may be, the machine is busy with something else, and both are made again.
fn swapping(users: &[String]) -> bool {
    let text = file(10_000);
    println!(
        "Swapping 10000 rules under load: the slowest single decision of {ROUNDS} rounds, and of the median round\n"
    );
    let (mut quiet, mut swapped) = (Slowest::default(), Slowest::default());
    let mut disturbed = 0;
    while swapped.cpu.len() < ROUNDS {
        let without = round(&text, users, 0);
        if without.1 > MOST_STALL {
            disturbed += 1;
            if disturbed > 3 * ROUNDS {
                println!("no judgement: decisions without swaps took over {MOST_STALL} us in {disturbed} rounds");
                return false;
            }
            continue;
        }
        quiet.add(without);
        swapped.add(round(&text, users, SWAPS));
    }
    quiet.print("without swaps");
    swapped.print(&format!("{SWAPS} swaps a round"));
    println!("\nmade again because rounds without swaps were disturbed: {disturbed}");
    println!(
        "Compared is the slowest of all rounds with swaps in CPU time, as it is: what those without take is not subtracted."
    );
    println!(
        "It leaves out waiting, for a lock or for a processor; the wall clock has both, and what else the machine runs."
    );
    claim("a swap stalls no decision by more than 100 us of CPU time", most(&swapped.cpu), |found| found <= MOST_STALL)
}

const SWAPS: usize = 40;

/// The slowest decision of one round, by the wall clock and in CPU time, in microseconds.
fn round(text: &str, users: &[String], swaps: usize) -> (f64, f64) {
    const DECISIONS_PER_SWAP: usize = 4_000;
    let gate = Tollgate::new(rule_set(text), MemoryStore::new());
    let sets: Vec<RuleSet> = (0..swaps).map(|_| rule_set(text)).collect();
    let (done, decided) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut sets = sets.into_iter();
            for step in 1..=SWAPS {
                // Paced by the decisions themselves, so that each set decides as many.
                while decided.load(Ordering::Relaxed) < step * DECISIONS_PER_SWAP {
                    std::thread::yield_now();
                }
                sets.next().into_iter().for_each(|set| gate.replace_rules(set));
            }
            done.store(true, Ordering::Relaxed);
        });
        slowest_until(&done, &decided, &gate, users)
    })
}

/// Microseconds of the slowest decision of each round.
#[derive(Default)]
struct Slowest {
    wall: Vec<f64>,
    cpu: Vec<f64>,
}

impl Slowest {
    fn add(&mut self, (wall, cpu): (f64, f64)) {
        self.wall.push(wall);
        self.cpu.push(cpu);
    }

    fn print(&self, name: &str) {
        let [wall, cpu] = [&self.wall, &self.cpu].map(|of| (most(of), median(of.clone())));
        println!(
            "{name:<18} {:>8.1} us of CPU time, median {:>6.1}  {:>8.1} us by the wall clock, median {:>6.1}",
            cpu.0, cpu.1, wall.0, wall.1
        );
    }
}

fn most(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
}

/// Decides until it is `done`: the slowest by the wall clock, and the slowest by CPU time, in microseconds.
fn slowest_until(
    done: &AtomicBool,
    decided: &AtomicUsize,
    gate: &Tollgate<MemoryStore>,
    users: &[String],
) -> (f64, f64) {
    // The first decision of a thread takes its share in the rules, and gives back the last ones.
    decide_once(gate, &users[0]);
    let (mut wall, mut most) = (Duration::ZERO, 0);
    while !done.load(Ordering::Relaxed) {
        for user in users {
            let (start, cpu_start) = (Instant::now(), cpu());
            decide_once(gate, user);
            most = most.max(cpu() - cpu_start);
            wall = wall.max(start.elapsed());
        }
        decided.fetch_add(users.len(), Ordering::Relaxed);
    }
    (wall.as_nanos() as f64 / 1_000.0, most as f64 / 1_000.0)
}

fn decide_once(gate: &Tollgate<MemoryStore>, user: &str) {
    let entries = [("tenant", "tenant-0"), ("path", "/path-7"), ("user", user)];
    let check = Check::attributes("bench", &entries);
    assert!(now(gate.check_with(&check, allowed)).unwrap_or(false));
}

fn cpu() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
