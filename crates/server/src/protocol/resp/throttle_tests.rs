//! `CL.THROTTLE` beside the arithmetic of redis-cell, in virtual time.

use tollgate::core::mix;
use tollgate::{ManualClock, MemoryStore, Timestamp};

use super::super::parse::Parser;
use super::*;
use crate::gate::{GateClock, GateStore};

struct Cell {
    gate: Gate,
    clock: ManualClock,
}

impl Cell {
    fn new() -> Self {
        let clock = ManualClock::at(Timestamp::from_secs(1_800_000_000));
        Self {
            gate: Gate::new(GateStore::Memory(MemoryStore::new()), GateClock::Manual(clock.clone()), 0.8, false),
            clock,
        }
    }

    /// The reply to `line`, in short.
    fn ask(&self, line: &str) -> String {
        let bytes = format!("{line}\n");
        let mut parser = Parser::new(true);
        parser.next(bytes.as_bytes()).unwrap().unwrap();
        let mut out = Vec::new();
        throttle(&self.gate, parser.command(bytes.as_bytes()), &mut Replies::new(&mut out, false));
        let text = String::from_utf8(out).unwrap();
        match text.strip_prefix("*5\r\n") {
            Some(integers) => integers.replace(':', "").replace("\r\n", " ").trim_end().to_owned(),
            None => text.trim_end().to_owned(),
        }
    }

    fn pass(&self, micros: u64) {
        self.clock.advance(Micros::from_micros(micros));
    }
}

#[test]
fn the_examples() {
    let cell = Cell::new();
    assert_eq!(cell.ask("CL.THROTTLE user123 15 30 60"), "0 16 15 -1 2");
    assert_eq!(cell.ask("cl.throttle user123 15 30 60"), "0 16 14 -1 4");
    assert_eq!(cell.ask("CL.THROTTLE k 0 1 2"), "0 1 0 -1 2");
    assert_eq!(cell.ask("CL.THROTTLE k 0 1 2"), "1 1 0 2 2");
    // A millisecond less is a second less; less than that is nothing.
    cell.pass(999_500);
    assert_eq!(cell.ask("CL.THROTTLE k 0 1 2"), "1 1 0 1 1");
    cell.pass(1_000_000);
    assert_eq!(cell.ask("CL.THROTTLE k 0 1 2"), "1 1 0 0 0");
    cell.pass(500);
    assert_eq!(cell.ask("CL.THROTTLE k 0 1 2"), "0 1 0 -1 2");
}

#[test]
fn quantities() {
    let cell = Cell::new();
    assert_eq!(cell.ask("CL.THROTTLE k 4 5 5 0"), "0 5 5 -1 0", "a look at an idle key");
    assert_eq!(cell.ask("CL.THROTTLE k 4 5 5 3"), "0 5 2 -1 3");
    assert_eq!(cell.ask("CL.THROTTLE k 4 5 5 0"), "0 5 2 -1 3", "a look changes nothing");
    assert_eq!(cell.ask("CL.THROTTLE k 4 5 5 3"), "1 5 2 1 3");
    assert_eq!(cell.ask("CL.THROTTLE k 4 5 5 6"), "1 5 2 -1 3", "six never fit into five");
    assert_eq!(cell.ask("CL.THROTTLE k 4 5 5 -2"), "0 5 4 -1 1", "given back");
    assert_eq!(cell.ask("CL.THROTTLE k 4 5 5 -100"), "0 5 5 -1 0", "and never above the limit");
    assert_eq!(cell.ask(&format!("CL.THROTTLE k 4 5 5 {}", i64::MIN)), "0 5 5 -1 0");
    assert_eq!(cell.ask(&format!("CL.THROTTLE k 4 5 5 {}", i64::MAX)), "1 5 5 -1 0");
    assert_eq!(cell.ask("CL.THROTTLE none -1 5 5"), "1 0 0 -1 0", "no burst at all");
    assert_eq!(cell.ask("CL.THROTTLE none -5 5 5"), "1 -4 0 -1 0");
}

#[test]
fn other_parameters_go_on_with_the_same_counter() {
    let cell = Cell::new();
    assert_eq!(cell.ask("CL.THROTTLE k 9 1 1 5"), "0 10 5 -1 5");
    assert_eq!(cell.ask("CL.THROTTLE k 19 1 1 0"), "0 20 15 -1 5");
    assert_eq!(cell.ask("CL.THROTTLE k 19 2 1 0"), "0 20 10 -1 5");
    assert_eq!(cell.ask("CL.THROTTLE k 0 1 1 1"), "1 1 0 1 1", "empty at worst");
    assert_eq!(cell.ask("CL.THROTTLE other 9 1 1 0"), "0 10 10 -1 0");
}

#[test]
fn the_errors() {
    let cell = Cell::new();
    let usage =
        "-Cell error: Store error: Usage: cl.throttle <key> <max_burst> <count per period> <period> [<quantity>]";
    for line in ["CL.THROTTLE", "CL.THROTTLE k", "CL.THROTTLE k 1 2", "CL.THROTTLE k 1 2 3 4 5"] {
        assert_eq!(cell.ask(line), usage, "{line}");
    }
    for (arguments, wrong) in [
        ("k x 1 1", "x"),
        ("k 1 1.5 1", "1.5"),
        ("k 1 1 9223372036854775808", "9223372036854775808"),
        ("k 1 1 1 -", "-"),
        ("k 1 1 1 ''", ""),
        ("k '1 ' 0 1", "1 "),
        ("k 1 0 x", "x"),
        ("k 1 1 \"a\\r\\nb\"", "a  b"),
    ] {
        let error = format!("-Cell error: Store error: Couldn't parse as integer: {wrong}");
        assert_eq!(cell.ask(&format!("CL.THROTTLE {arguments}")), error.trim_end(), "{arguments}");
    }
    for arguments in ["k 1 0 1", "k 1 1 0", "k 1 0 0"] {
        let error = "-Cell error: Store error: Zero rates are not supported";
        assert_eq!(cell.ask(&format!("CL.THROTTLE {arguments}")), error, "{arguments}");
    }
    for (arguments, error) in [
        ("k 1 -1 1", "Negative rates"),
        ("k 9223372036854775807 1 1", "a number is above"),
        ("k 1 1 9223372036854775807", "a number is above"),
        ("k 9007199254740990 1 1000", "over 140 years"),
    ] {
        let reply = cell.ask(&format!("CL.THROTTLE {arguments}"));
        assert!(reply.starts_with("-Cell error: Store error: ") && reply.contains(error), "{arguments}: {reply}");
    }
    assert_eq!(cell.ask("CL.THROTTLE k +4 05 5 -0"), "0 5 5 -1 0", "other ways to write integers");
}

#[test]
fn with_all_limits_off_everything_is_allowed() {
    let cell = Cell::new();
    assert_eq!(cell.ask("CL.THROTTLE k 0 1 60"), "0 1 0 -1 60");
    cell.gate.set_limiting(false);
    assert_eq!(cell.ask("CL.THROTTLE k 0 1 60"), "0 1 1 -1 0");
    cell.gate.set_limiting(true);
    assert_eq!(cell.ask("CL.THROTTLE k 0 1 60"), "1 1 0 60 60");
}

/// redis-cell's arithmetic, in nanoseconds, for one key.
#[derive(Default)]
struct Oracle {
    tat: Option<i128>,
}

impl Oracle {
    fn ask(&mut self, quota: Quota, quantity: i64, now: i128) -> String {
        let Quota { max_burst, count, period } = quota;
        let interval = (i128::from(period) * 1_000_000_000) / i128::from(count);
        let tolerance = interval * (i128::from(max_burst) + 1);
        let increment = interval * i128::from(quantity);
        let tat = self.tat.unwrap_or(now);
        let new_tat = tat.max(now) + increment;
        let allow_at = new_tat - tolerance;
        let limited = now < allow_at;
        let left = if limited {
            (tat - now).max(0)
        } else {
            // Where it differs on purpose: giving back ends at a full bucket.
            self.tat = Some(new_tat.max(now));
            (new_tat - now).max(0)
        };
        let retry_after = if limited && increment <= tolerance { allow_at - now } else { -1_000_000_000 };
        let remaining = if tolerance - left > -interval { (tolerance - left) / interval } else { 0 };
        let seconds = |nanos: i128| nanos / 1_000_000_000 + i128::from(nanos % 1_000_000_000 >= 1_000_000);
        format!("{} {} {remaining} {} {}", u8::from(limited), max_burst + 1, seconds(retry_after), seconds(left))
    }
}

#[test]
fn every_answer_is_that_of_redis_cell() {
    let mut drawn = 0;
    let mut draw = |below: u64| {
        drawn += 1;
        mix(drawn) % below
    };
    for number in 0..300 {
        // Rates whose units take whole microseconds: of others redis-cell cuts a part off.
        let count = [1, 2, 4, 5, 8, 10, 20, 25, 50, 100][draw(10) as usize];
        let quota = Quota { max_burst: draw(30) as i64, count, period: 1 + draw(120) as i64 };
        let Quota { max_burst, count, period } = quota;
        let (cell, mut oracle, mut passed) = (Cell::new(), Oracle::default(), 0i128);
        for step in 0..60 {
            let quantity = match draw(8) {
                0 => 0,
                1 => -(draw(4) as i64),
                2 => draw(40) as i64,
                _ => 1,
            };
            let pause = [0, 1, 999, 1_000, draw(100_000), draw(3_000_000), draw(60_000_000)][draw(7) as usize];
            cell.pass(pause);
            passed += i128::from(pause) * 1_000;
            let reply = cell.ask(&format!("CL.THROTTLE k {max_burst} {count} {period} {quantity}"));
            let expected = oracle.ask(quota, quantity, passed);
            assert_eq!(reply, expected, "run {number}, step {step}: {quota:?}, {quantity} after {pause} us");
        }
    }
}
