//! Faults of Redis under load, judged by the checker of `tollgate_sim::chaos`: a short set of them. All of them, for
//! longer and with times, are run by `scripts/chaos`.
//!
//! What is exact has to be exact here too: bounds, denials, ledgers, times to live. What depends on time is told and
//! not judged.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "what was measured is shown")]

mod flaws;
mod maker;

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use maker::Plain;
use tollgate_sim::chaos::rows::{self, Bench};
use tollgate_sim::chaos::{Judged, Maker, Plan, Verdict, table};

/// One after the other: they share the processors, and with them the time.
static ALONE: Mutex<()> = Mutex::new(());

fn bench<M: Maker>(maker: M) -> Bench<M> {
    Bench::new(maker, Plan::default(), Duration::from_millis(600))
}

/// A machine that stands still for longer than this, in microseconds, is not one to judge by.
const STANDS_STILL: u64 = 100_000;
const ATTEMPTS: usize = 3;

/// Each row as promised. Where the machine stood still meanwhile it is done again, and the last attempt counts in any
/// case.
fn pass(names: &[&str]) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let rows = rows::all();
    for name in names {
        let row = rows.iter().find(|row| row.name == *name).expect("a row");
        for attempt in 1..=ATTEMPTS {
            let bench = bench(Plain);
            let judged = bench.run(row);
            let all = [bench.calm(), vec![judged]].concat();
            println!("{}", table(&all, false));
            // The deadline here is long: it is missed by a machine that stands still, and then that is seen.
            let is_well = all.iter().all(|row| row.is_well(false)) && all.iter().all(Judged::is_steady);
            let stood_still = all.iter().any(|row| row.longest_stall() > STANDS_STILL);
            if is_well {
                check_samples(&all[all.len() - 1..]);
                break;
            }
            assert!(stood_still && attempt < ATTEMPTS, "see above");
        }
    }
}

/// Enough was asked for the judgement to mean something.
fn check_samples(judged: &[Judged]) {
    for row in judged {
        let Verdict::Injected(both) = &row.verdict else { panic!("{} is injected", row.name) };
        assert!(both.0.answered > 300, "{}: Redis answered", row.name);
        // By a clock that is set back, instants come twice, and there is no order to replay them in.
        let is_in_order = !["F41", "F42"].contains(&row.name);
        assert!(both.0.replayed > 200 || !is_in_order, "{}: answers were replayed", row.name);
    }
}

#[test]
fn one_server_is_killed_stopped_cut_off_and_robbed() {
    pass(&["F01", "F02", "F03", "F06", "F07", "F30"]);
}

#[test]
fn one_server_is_absent_slow_and_forgetful() {
    pass(&["F10", "F13", "F14", "F29"]);
}

#[test]
fn a_primary_is_stopped_and_comes_back() {
    pass(&["F18"]);
}

#[test]
fn a_primary_of_a_cluster_is_killed() {
    pass(&["F22"]);
}

#[test]
fn clocks_are_wrong() {
    pass(&["F41", "F42", "F43"]);
}

#[test]
fn no_row_is_forgotten() {
    let rows = rows::all::<Plain>();
    let names: Vec<&str> = rows.iter().map(|row| row.name).collect();
    let wanted: Vec<String> = (1..=30).chain(41..=46).map(|number| format!("F{number:02}")).collect();
    assert_eq!(names, wanted);
}
