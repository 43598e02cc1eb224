//! Decisions through rules, beside limitador's library and beside decisions without rules; and what loading and
//! swapping rules costs. `scripts/bench rules` runs it.
//!
//! A check has three entries (tenant, path, user) and meets one rule of one limit. Ratios are medians over rounds in
//! which everything is measured in turn.

#[path = "../by_rules.rs"]
mod by_rules;
#[path = "../swapping.rs"]
mod swapping;

use std::collections::HashMap;
use std::hint::black_box;
use std::process::ExitCode;
use std::time::Instant;

use limitador::limit::{Limit, Namespace};
use tollgate::rules::Source;
use tollgate::{Check, Descriptor, Limiter, MemoryStore, RuleSet, Tollgate, Verdict};

use crate::by_rules::{PATTERNS, file, file_of, now, rule_set};

const ROUNDS: usize = 7;
const USERS: usize = 1_000;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let users: Vec<String> = (0..USERS).map(|number| format!("user:{number:019}")).collect();
    let swaps = || swapping::swapping(|gate, number| decide_once(gate, &users[number % USERS]));
    match &*arguments.iter().map(String::as_str).collect::<Vec<_>>() {
        ["load", what] => code(load(what)),
        ["swaps"] => code(swaps()),
        _ => code([decisions(&users), loading(), swaps()] == [true; 3]),
    }
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

/// The same for rules that have to be met.
#[inline(always)]
fn limited(verdict: Verdict<'_>) -> bool {
    black_box(&verdict).allowed && !verdict.tolls.is_empty()
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

/// Which of the rules are asked for: the first, one in the middle, or none of them.
const ASKED: [&str; 3] = ["the first", "one in the middle", "none"];

fn tenant(asked: &str, rules: usize) -> String {
    match asked {
        "the first" => "tenant-0".to_owned(),
        "one in the middle" => format!("tenant-{}", rules / 20),
        _ => "nobody".to_owned(),
    }
}

fn by_descriptors(rules: usize, asked: &str) -> String {
    format!("descriptors, {rules} rules, {asked}")
}

fn by_attributes(rules: usize, asked: &str) -> String {
    format!("attributes, {rules} rules, {asked}")
}

fn patterns(kind: &str, rules: usize) -> String {
    format!("{rules} {kind}, one in the middle")
}

fn decisions(users: &[String]) -> bool {
    let bare = Limiter::requests_per_second(1_000_000).burst(1_000_000_000).build().expect("a limit");
    let sizes = [10, 1_000, 100_000];
    let gates = sizes.map(|size| Tollgate::new(rule_set(&file(size)), MemoryStore::new()));
    let with_patterns: Vec<_> = PATTERNS
        .iter()
        .flat_map(|(kind, key, value)| [10, 100_000].map(|size| (*kind, *key, *value, size)))
        .map(|(kind, key, value, size)| {
            (kind, key, value(size / 2), size, Tollgate::new(rule_set(&file_of(key, value, size)), MemoryStore::new()))
        })
        .collect();
    let limitador = limitador_with(1_000);
    let namespace: Namespace = "bench".into();

    let mut rows = Rows::default();
    for _ in 0..ROUNDS {
        rows.add("without rules, yes or no", timed(users, 200, |user| bare.allow(user)));
        rows.add(FULL_ANSWER, timed(users, 200, |user| black_box(bare.check(user)).allowed));
        for (size, gate) in sizes.iter().zip(&gates) {
            for asked in ASKED {
                let tenant = tenant(asked, *size);
                let ns = timed(users, 100, |user| {
                    let entries = [("tenant", &*tenant), ("path", "/path-7"), ("user", user)];
                    let descriptors = [Descriptor::new(&entries)];
                    let check = Check::descriptors("bench", &descriptors);
                    now(gate.check_with(&check, allowed)).unwrap_or(false)
                });
                rows.add(by_descriptors(*size, asked), ns);
                let ns = timed(users, 100, |user| {
                    let entries = [("tenant", &*tenant), ("path", "/path-7"), ("user", user)];
                    now(gate.check_with(&Check::attributes("bench", &entries), allowed)).unwrap_or(false)
                });
                rows.add(by_attributes(*size, asked), ns);
            }
        }
        for (kind, key, value, size, gate) in &with_patterns {
            let value = value.replace(".0/24", ".9").replace('*', "more");
            let ns = timed(users, 100, |user| {
                let entries = [(*key, &*value), ("user", user)];
                now(gate.check_with(&Check::attributes("bench", &entries), limited)).unwrap_or(false)
            });
            rows.add(patterns(kind, *size), ns);
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
        println!("{name:<44} {:>10.1} ns", median(values.clone()));
    }
    let (bare_many, through_many) = many_users(&gates[1]);
    println!(
        "\nthe same with a million users, in no order: {bare_many:.1} ns without rules, {through_many:.1} ns by descriptors"
    );
    println!("\nClaims");
    let [first, ..] = ASKED;
    let descriptors = by_descriptors(1_000, first);
    let at_most = |found: f64| found <= 2.5;
    let mut hold = vec![
        claim("1000 rules: limitador at least 15 x descriptors", rows.ratio(LIMITADOR, &descriptors), |found| {
            found >= 15.0
        }),
        claim(
            "1000 rules: descriptors at most 2.5 x a full answer without rules",
            rows.ratio(&descriptors, FULL_ANSWER),
            at_most,
        ),
        claim(
            "1000 rules: attributes at most 2.5 x a full answer without rules",
            rows.ratio(&by_attributes(1_000, first), FULL_ANSWER),
            at_most,
        ),
        claim(
            "a million users: descriptors at most 2.5 x a full answer without rules",
            through_many / bare_many,
            at_most,
        ),
    ];
    let within_a_tenth = |found| (0.9..=1.1).contains(&found);
    for asked in ASKED {
        for (way, name) in [("descriptors", by_descriptors as fn(usize, &str) -> String), ("attributes", by_attributes)]
        {
            let growth = rows.ratio(&name(100_000, asked), &name(10, asked));
            hold.push(claim(&format!("{way}, {asked}: 100000 rules within 10 % of 10"), growth, within_a_tenth));
        }
    }
    for (kind, ..) in PATTERNS {
        let growth = rows.ratio(&patterns(kind, 100_000), &patterns(kind, 10));
        hold.push(claim(&format!("100000 {kind} within 10 % of 10"), growth, within_a_tenth));
    }
    println!();
    hold.into_iter().all(|holds| holds)
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

const FILES: [&str; 3] = ["lyft", "own", "tree"];

/// Each file in a process of its own, so that what it keeps is what the process has.
fn loading() -> bool {
    println!("Loading 100000 rules of either dialect, or each below two others, in a process of their own\n");
    let mut hold = true;
    for what in FILES {
        let itself = std::env::current_exe().expect("this program has a path");
        let output = std::process::Command::new(itself).args(["load", what]).output().expect("it runs again");
        print!("{}", String::from_utf8_lossy(&output.stdout));
        eprint!("{}", String::from_utf8_lossy(&output.stderr));
        hold &= output.status.success();
    }
    println!();
    hold
}

fn load(what: &str) -> bool {
    let text = match what {
        "tree" => file(100_000),
        "lyft" => (0..100_000).fold(String::from("domain: bench\ndescriptors:\n"), |text, number| {
            text + &format!(
                "  - key: user_id\n    value: user-{number}\n    rate_limit:\n      unit: second\n      \
                 requests_per_unit: 5\n"
            )
        }),
        _ => (0..100_000).fold(String::from("domain: bench\nrules:\n"), |text, number| {
            text + &format!(
                "  - name: rule-{number}\n    when: {{tenant: tenant-{number}}}\n    per: user_id\n    limits: 5/s\n"
            )
        }),
    };
    let source = Source::new(what, text);
    let start = Instant::now();
    let (set, problems) = RuleSet::compile(tollgate::rules::parse(vec![source]));
    let took = start.elapsed();
    assert!(!problems.has_errors(), "{problems}");
    drop(problems);
    let (kept, most) = (status("VmRSS:") >> 20, status("VmHWM:") >> 20);
    println!("{what:<6} {} rules  {took:.0?}  {kept} MiB resident after it, {most} MiB at most", set.rules().len());
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

fn decide_once(gate: &Tollgate<MemoryStore>, user: &str) {
    let entries = [("tenant", "tenant-0"), ("path", "/path-7"), ("user", user)];
    let check = Check::attributes("bench", &entries);
    assert!(now(gate.check_with(&check, allowed)).unwrap_or(false));
}
