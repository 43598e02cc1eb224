//! Clocks that are wrong, and nodes that do not run for a while.

use std::process::Command;

use super::{Bench, CALM, ms};
use crate::chaos::node::Maker;
use crate::chaos::record::{Excuse, History, Moment, Record, Shared};
use crate::chaos::{ClockShim, Plan};
use crate::redis::RedisServer;

const HOUR: i64 = 3_600_000_000;
/// As long as any of the limits takes to be fresh, and half as long again.
const FRESH: Moment = 1_500_000;

fn url(server: &RedisServer) -> String {
    format!("redis://{}", server.address())
}

/// Sets Redis's clock and, after a while, right again: whichever comes first, nobody is locked out, or told to wait,
/// for longer than it takes to be fresh.
fn stepped<M: Maker>(bench: &Bench<M>, by: i64) -> History {
    let shim = ClockShim::new();
    let server = shim.server();
    let mut session = bench.session(&[url(&server)]);
    let mut steps = Vec::new();
    for (what, ahead, by) in [("clock set", by, by), ("clock set right", 0, -by)] {
        steps.push(session.moment());
        session.fault(what, Excuse { clock: by, ..Excuse::NOTHING }, |_| shim.set(ahead));
        session.rest(ms(2_500));
    }
    let mut history = session.finish(&[&server]);
    let mut complaints = Vec::new();
    for (number, counter) in history.counters.iter().enumerate().filter(|(_, counter)| counter.name.ends_with("4x")) {
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        for step in &steps {
            let soon = |record: &&Record| (step + FRESH..step + FRESH + 1_000_000).contains(&record.begun);
            if !history.of(number).filter(soon).any(Record::is_shared_admission) {
                complaints
                    .push(format!("{}: locked out {FRESH} us after the clock was set at {step} us", counter.name));
            }
        }
        let waits = history.of(number).filter(|record| record.shared == Shared::Answered);
        let longest = waits.filter_map(|record| record.outcome?.retry_after).max().unwrap_or_default();
        if longest.as_micros() > 2_000_000 {
            complaints.push(format!("{}: told to wait for {} us", counter.name, longest.as_micros()));
        }
    }
    history.complaints.append(&mut complaints);
    history
}

pub(super) fn back<M: Maker>(bench: &Bench<M>) -> History {
    stepped(bench, -HOUR)
}

pub(super) fn ahead<M: Maker>(bench: &Bench<M>) -> History {
    stepped(bench, HOUR)
}

/// Nodes' clocks decide nothing, but for a node that is alone: what it has gained when its clock is set ahead.
pub(super) fn skewed<M: Maker>(bench: &Bench<M>) -> History {
    let server = RedisServer::start(&[]);
    let skews = vec![0, 10_000_000, -10_000_000];
    let mut session = bench.session_with(&[url(&server)], Plan { skews, ..bench.plan.clone() });
    bench.wait();
    session.set_clock(0, HOUR);
    bench.wait();
    session.finish(&[&server])
}

/// All nodes are one process here, which has itself stopped.
pub(super) fn frozen<M: Maker>(bench: &Bench<M>) -> History {
    let server = RedisServer::start(&[]);
    let mut session = bench.session(&[url(&server)]);
    session.fault("stopped ourselves", Excuse::ALONE, |session| {
        let id = std::process::id();
        let script = format!("kill -STOP {id}; sleep {}; kill -CONT {id}", bench.fault.as_secs_f64());
        let status = Command::new("sh").args(["-c", &script]).status();
        assert!(status.is_ok_and(|status| status.success()), "we can be stopped");
        session.rest(ms(50));
    });
    session.rest(CALM);
    session.finish(&[&server])
}

/// Nothing is excused: what may come of it is less than what the checker cannot tell.
pub(super) fn drifting<M: Maker>(bench: &Bench<M>) -> History {
    let shim = ClockShim::new();
    let server = shim.server();
    let mut session = bench.session(&[url(&server)]);
    session.fault("clock drifts", Excuse::NOTHING, |session| {
        let begun = session.moment();
        let length = u64::try_from(bench.fault.as_micros()).unwrap_or(0) * 2;
        while session.moment() < begun + length {
            shim.set(i64::try_from((session.moment() - begun) / 2_000).unwrap_or(0));
            session.rest(ms(2));
        }
    });
    session.rest(CALM);
    session.finish(&[&server])
}
