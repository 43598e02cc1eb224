//! The Lua step against the Rust step, one after the other, on random histories of every algorithm: small numbers where
//! boundaries meet, and the largest that doubles hold.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "server/mod.rs"]
mod server;

use server::{Server, expiring};
use tollgate::{Charge, Key, Outcome, Store};
use tollgate_core::lua::around_arithmetic;
use tollgate_core::{MAX_INTEGER, mix};
use tollgate_redis::script;
use tollgate_sim::laws::{Course, Kind, Scale, Trace, limits::EDGES, trace::brief};

const KINDS: [Kind; 13] = [
    Kind::TokenBucket,
    Kind::LendingBucket,
    Kind::IntervalBucket,
    Kind::Meter,
    Kind::Queue,
    Kind::ClockWindow,
    Kind::FirstEventWindow,
    Kind::CalendarWindow,
    Kind::SlidingLog,
    Kind::SlidingCounter,
    Kind::SubWindows,
    Kind::Concurrency,
    Kind::Pacing,
];
/// How many steps are compared for each algorithm, scale and course.
const STEPS: usize = 2_000;

fn random_bytes(seed: u64) -> Vec<u8> {
    (0..60).flat_map(|word| mix(seed.wrapping_mul(1_000) + word).to_le_bytes()).collect()
}

/// Holds histories of each kind against the script.
async fn steps_are_equal(script: &str, scale: Scale, course: Course) {
    steps_of_kinds_are_equal(script, &KINDS, STEPS, scale, course).await;
}

async fn steps_of_kinds_are_equal(script: &str, kinds: &[Kind], most_steps: usize, scale: Scale, course: Course) {
    let server = Server::start();
    steps_on_server_are_equal(&server, script, kinds, most_steps, scale, course).await;
}

async fn steps_on_server_are_equal(
    server: &Server,
    script: &str,
    kinds: &[Kind],
    most_steps: usize,
    scale: Scale,
    course: Course,
) {
    let store = server.store(script, 0, 1);
    let mut number = 0;
    for &kind in kinds {
        let (mut steps, mut seed) = (0, 0);
        while steps < most_steps {
            seed += 1;
            assert!(seed < 100_000, "{kind:?}: hardly any description is a limit");
            let bytes = random_bytes(seed ^ (number << 32));
            let Some(mut trace) = Trace::new(kind, scale, course, &bytes) else { continue };
            number += 1;
            let key = Key::new(number, &[b"user"]);
            trace.phase = key.phase();
            while let Some(ask) = trace.next_ask() {
                let limit = trace.limit.clone();
                let expected = trace.apply(&ask);
                let charge = Charge::new(key, &limit).cost(ask.cost).lease(ask.lease);
                let answered = store.apply(&[charge], ask.intent, ask.now).await;
                let answered: Outcome = match answered {
                    Ok(outcomes) => outcomes[0],
                    Err(error) => panic!("{}", trace.broken(&format!("{kind:?}: {error}"))),
                };
                if answered != expected {
                    panic!("{}", trace.broken(&format!("{kind:?}, the script says: {}", brief(&answered))));
                }
                steps += 1;
            }
        }
    }
    assert_eq!(store.foreign_values(), 0);
}

#[tokio::test]
async fn small_numbers() {
    steps_are_equal(script::given_time_source(), Scale::Small, Course::ANY).await;
}

/// What the script answers on its short way, its machines answer alike: in one call some of its spends may go either
/// way.
#[tokio::test]
async fn small_numbers_without_the_short_way() {
    let slow = without_the_short_way(script::given_time_source());
    steps_are_equal(&slow, Scale::Small, Course::ANY).await;
}

fn without_the_short_way(script: &str) -> String {
    let guard = "if now > 4503599627370495 then return end";
    assert_eq!(script.matches(guard).count(), 2, "one for cells and one for logs");
    script.replace(guard, "do return end")
}

#[tokio::test]
async fn the_largest_numbers() {
    steps_are_equal(script::given_time_source(), Scale::Extreme, Course::ANY).await;
}

#[tokio::test]
async fn time_that_runs_backwards() {
    steps_are_equal(script::given_time_source(), Scale::Small, Course { backwards: true, ..Course::ANY }).await;
}

/// What Redis forgets when its time is over was of no account: answers are those of steps that never forget.
#[tokio::test]
async fn what_expires_between_two_questions_changes_no_answer() {
    let server = Server::start();
    let mut connection = server.connect(0);
    let mut expired_before = 0;
    let script = expiring(script::given_time_source());
    for (script, scale, kinds) in [
        (&script, Scale::Small, &KINDS[..]),
        (&without_the_short_way(&script), Scale::Small, &KINDS),
        (&script, Scale::Extreme, &KINDS),
        (&expiring(&in_small_blocks(script::given_time_source())), Scale::Small, &[Kind::SlidingLog]),
    ] {
        for kind in kinds {
            connection.command(&[b"FLUSHALL"]).unwrap();
            steps_on_server_are_equal(&server, script, &[*kind], STEPS, scale, Course::ANY).await;
            let expired = connection.command(&[b"GET", b"expired"]).unwrap();
            let expired: usize = String::from_utf8(expired.bytes()).unwrap().parse().unwrap();
            assert!(expired > 10, "{kind:?} of {scale:?}: only {expired} expired");
            expired_before += expired;
        }
    }
    assert!(expired_before > 4_000, "{expired_before}");
}

fn in_small_blocks(script: &str) -> String {
    let mut script = script.to_owned();
    for (size, small) in [("(31 * 16)", "(1 * 16)"), ("(5 * 16)", "(0 * 16)"), ("(67 * 16)", "(2 * 16)")] {
        assert!(script.contains(size));
        script = script.replace(size, small);
    }
    script
}

/// Logs that have blocks from a few marks on: all that happens to long ones happens in short histories.
#[tokio::test]
async fn logs_in_blocks() {
    let script = in_small_blocks(script::given_time_source());
    let backwards = Course { backwards: true, ..Course::ANY };
    for script in [&script, &without_the_short_way(&script)] {
        let set_back = Course { set_back: true, ..Course::ANY };
        let courses = [
            (Scale::Small, Course::ANY),
            (Scale::Extreme, Course::ANY),
            (Scale::Small, backwards),
            (Scale::Small, set_back),
        ];
        for (scale, course) in courses {
            steps_of_kinds_are_equal(script, &[Kind::SlidingLog], 8_000, scale, course).await;
        }
    }
}

/// The clock of the server is set back by anything from microseconds to years.
#[tokio::test]
async fn a_clock_that_is_set_back() {
    steps_are_equal(script::given_time_source(), Scale::Small, Course { set_back: true, ..Course::ANY }).await;
}

#[tokio::test]
async fn a_clock_that_is_set_back_among_the_largest_numbers() {
    steps_are_equal(script::given_time_source(), Scale::Extreme, Course { set_back: true, ..Course::ANY }).await;
}

/// Products that need more than a double, and divisors beside which a quotient may be rounded to the wrong side.
fn factors() -> Vec<[u64; 3]> {
    let edges = EDGES.map(|edge| edge.min(MAX_INTEGER + 1));
    let mut all: Vec<[u64; 3]> = Vec::new();
    for a in edges {
        for b in edges {
            all.extend(edges.map(|d| [a, b, d.max(1)]));
        }
    }
    for seed in 0..20_000_u64 {
        let number = |n: u64| {
            let bits = mix(seed * 8 + n);
            (bits >> (11 + mix(bits) % 50)).max(1)
        };
        let [a, b, d] = [number(1), number(2), number(3)];
        all.push([a, b, d]);
        // A product that a divisor divides, or almost.
        let near = a.saturating_mul(d).clamp(1, MAX_INTEGER);
        all.extend([
            [near, 1, d],
            [near - 1, 1, d],
            [(near + 1).min(MAX_INTEGER), 1, d],
            [a, d, d],
            [a, d, (d - 1).max(1)],
        ]);
    }
    all
}

#[test]
fn quotients_are_exact() {
    let server = Server::start();
    let mut connection = server.connect(0);
    let harness = "local out = {} for i = 1, #ARGV do local a, b, d = unpack('<ddd', ARGV[i]) \
                   out[i] = pack('<dd', muldiv(a, b, d)) end return out";
    let sha = connection.load(&around_arithmetic(harness));
    for batch in factors().chunks(1_000) {
        let arguments: Vec<Vec<u8>> =
            batch.iter().map(|all| all.iter().flat_map(|number| (*number as f64).to_le_bytes()).collect()).collect();
        let mut parts: Vec<&[u8]> = vec![b"EVALSHA", &sha, b"0"];
        parts.extend(arguments.iter().map(Vec::as_slice));
        let answers = connection.command(&parts).unwrap().list();
        for ([a, b, d], answer) in batch.iter().zip(answers) {
            let answer = answer.bytes();
            let number = |at: usize| f64::from_le_bytes(answer[at..at + 8].try_into().unwrap());
            let (product, d) = (u128::from(*a) * u128::from(*b), u128::from(*d));
            let (quotient, remainder) = (product / d, product % d);
            if quotient <= u128::from(MAX_INTEGER) {
                assert_eq!((number(0) as u128, number(8) as u128), (quotient, remainder), "{a} * {b} / {d}");
            } else {
                assert!(number(0) > MAX_INTEGER as f64, "{a} * {b} / {d} is beyond 2^53");
            }
        }
    }
}
