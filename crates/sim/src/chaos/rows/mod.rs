//! The faults, one function each: what is started, what is done to it, and what that excuses.
//!
//! The names are those of the table in `docs/chaos.md`. Rows that are shown elsewhere, or not at all, are here too, and
//! say so.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "real processes take real time")]

mod clocks;
mod network;
mod server;
mod topology;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::checker::{Misses, judge};
use super::node::Maker;
use super::record::{History, Layout};
use super::report::{Judged, Verdict};
use super::session::Session;
use super::times::{Goal, Times};
use super::workload::Plan;

/// What rows are run with.
pub struct Bench<M> {
    /// Makes the stores.
    pub maker: Arc<M>,
    /// The load.
    pub plan: Plan,
    /// How long a fault lasts, where that is free.
    pub fault: Duration,
    /// What came of the same load with nothing done, by what was asked.
    calm: Mutex<Vec<(Layout, Plan, Judged)>>,
}

/// One fault of the table.
pub struct Row<M> {
    /// Its name.
    pub name: &'static str,
    /// What it is about.
    pub what: &'static str,
    /// Where it is shown.
    pub shown: Shown<M>,
}

/// Where a row is shown.
pub enum Shown<M> {
    /// Here: what to do, and what is promised about time.
    Here(fn(&Bench<M>) -> History, &'static [Goal]),
    /// By another test.
    By(&'static str),
    /// Nowhere yet, and why.
    Not(&'static str),
}

impl<M: Maker> Bench<M> {
    /// Rows on what `maker` makes, under the load that `plan` says, with faults as long as `fault`.
    pub fn new(maker: M, plan: Plan, fault: Duration) -> Self {
        Self { maker: Arc::new(maker), plan, fault, calm: Mutex::default() }
    }

    /// Runs one row and judges what happened. If there is none yet, a run under the same load in which nothing is done
    /// comes after it, for comparison.
    pub fn run(&self, row: &Row<M>) -> Judged {
        let verdict = match row.shown {
            Shown::Here(run, goals) => {
                let history = run(self);
                let findings = judge(&history);
                let mut times = Times::measure(&history, &findings, goals);
                times.compare(&findings.misses, &self.calm_misses(&history));
                Verdict::Injected(Box::new((findings, times)))
            }
            Shown::By(whom) => Verdict::ShownBy(whom),
            Shown::Not(why) => Verdict::NotShown(why),
        };
        Judged { name: row.name, what: row.what, verdict }
    }

    /// The runs in which nothing was done.
    pub fn calm(&self) -> Vec<Judged> {
        let calm = self.calm.lock().unwrap_or_else(PoisonError::into_inner);
        calm.iter().map(|(_, _, judged)| judged.clone()).collect()
    }

    /// How often deadlines are missed when nothing is done, under the load of `history`.
    fn calm_misses(&self, history: &History) -> Misses {
        let plan = Plan { skews: Vec::new(), impatient: 0, starts_alone: false, ..history.plan.clone() };
        let mut known = self.calm.lock().unwrap_or_else(PoisonError::into_inner);
        let same = known.iter().find(|(layout, known, _)| *layout == history.layout && *known == plan);
        if let Some(Verdict::Injected(judged)) = same.map(|(_, _, judged)| &judged.verdict) {
            return judged.0.misses;
        }
        let (what, calm) = match history.layout {
            Layout::Single => ("nothing is done", server::calm(self, plan.clone())),
            Layout::Sentinel => ("Sentinel: nothing is done", topology::calm_sentinel(self, plan.clone())),
            Layout::Cluster => ("Cluster: nothing is done", topology::calm_cluster(self, plan.clone())),
        };
        let findings = judge(&calm);
        let mut times = Times::measure(&calm, &findings, &[]);
        times.is_fit(findings.alone, calm.records.len() as u64);
        let misses = findings.misses;
        let verdict = Verdict::Injected(Box::new((findings, times)));
        known.push((history.layout, plan, Judged { name: "F00", what, verdict }));
        misses
    }

    fn session(&self, urls: &[String]) -> Session<M> {
        self.session_with(urls, self.plan.clone())
    }

    fn session_with(&self, urls: &[String], plan: Plan) -> Session<M> {
        let session = Session::start(&self.maker, urls, plan);
        session.rest(CALM);
        session
    }

    fn wait(&self) {
        std::thread::sleep(self.fault);
    }
}

/// How long all is well, before and after.
const CALM: Duration = ms(400);
/// How long it is if nothing is done.
const ALWAYS_CALM: Duration = ms(2_500);

const fn ms(number: u64) -> Duration {
    Duration::from_millis(number)
}

/// All rows.
pub fn all<M: Maker>() -> Vec<Row<M>> {
    use Shown::{By, Here};
    const BACK: Goal = Goal::Back(250);
    const PROMOTED: Goal = Goal::Back(300);
    // What fails now and then opens a breaker again and again, and that no more often than once a second.
    const AFTER_UNREST: Goal = Goal::Back(1_250);
    let row = |name, what, shown| Row { name, what, shown };
    vec![
        row("F01", "killed", Here(server::killed, &[Goal::Gone, BACK])),
        row("F02", "stopped", Here(server::stopped, &[Goal::Silent, BACK])),
        row("F03", "packets lost", Here(network::blackhole, &[Goal::Silent, BACK])),
        row("F04", "connection forgotten", Here(network::forgotten, &[Goal::Deadline])),
        row("F05", "slow, and slow now and then", Here(network::slow, &[Goal::Deadline, AFTER_UNREST])),
        row("F06", "answer lost after it was counted", Here(network::answers_lost, &[Goal::Deadline, AFTER_UNREST])),
        row("F07", "restarted empty at once", Here(server::restarted_empty, &[BACK])),
        row("F08", "refusals of every kind", Here(network::refusals, &[Goal::Deadline, AFTER_UNREST])),
        row("F09", "comes and goes", Here(network::flapping, &[Goal::Deadline])),
        row("F10", "absent at the start", Here(server::absent, &[BACK])),
        row("F11", "restarted under eight nodes", Here(network::herd, &[BACK])),
        row(
            "F12",
            "stopped for long: nothing is kept for later",
            Here(server::stopped_for_long, &[Goal::Silent, BACK]),
        ),
        row("F13", "callers go away", Here(network::impatience, &[BACK])),
        row("F14", "names unknown, unanswered, changed", Here(network::names, &[Goal::Gone, BACK])),
        row(
            "F15",
            "answers damaged or swapped",
            By("redis/tests/link_faults.rs answers_that_are_damaged_…, nonsense_closes_…"),
        ),
        row("F16", "one key asked for by all", Here(server::hot_key, &[Goal::Deadline])),
        row("F17", "Sentinel: primary killed", Here(topology::sentinel_killed, &[Goal::Gone, PROMOTED])),
        row("F18", "Sentinel: primary stopped, and back", Here(topology::sentinel_zombie, &[Goal::Silent, PROMOTED])),
        row("F19", "Sentinel: all Sentinels gone", Here(topology::no_sentinels, &[Goal::Deadline])),
        row("F20", "Sentinel: one names a replica", Here(topology::wrong_sentinel, &[Goal::Deadline])),
        row("F21", "Sentinel: primary demoted", Here(topology::demoted, &[PROMOTED])),
        row("F22", "Cluster: primary killed", Here(topology::cluster_killed, &[PROMOTED])),
        row("F23", "Cluster: down", Here(topology::cluster_down, &[Goal::Deadline, PROMOTED])),
        row("F24", "Cluster: slots move under load", Here(topology::migration, &[Goal::Deadline])),
        row(
            "F25",
            "Cluster: charges on several slots",
            By("redis/tests/store.rs what_lives_apart_…, a_reservation_that_lives_apart_…"),
        ),
        row("F26", "Cluster: 1,000 slots are moved", Here(topology::reshard, &[Goal::Deadline])),
        row("F27", "Sentinel: replica that lags is promoted", Here(topology::lagging, &[PROMOTED])),
        row("F28", "primary without its replicas refuses", Here(topology::without_replicas, &[AFTER_UNREST])),
        row("F29", "scripts forgotten ten times a second", Here(server::scripts_flushed, &[Goal::Deadline])),
        row("F30", "keys removed, and values of others", Here(server::vandals, &[Goal::Deadline])),
        row("F41", "Redis's clock is set back an hour", Here(clocks::back, &[Goal::Deadline])),
        row("F42", "Redis's clock is set ahead an hour", Here(clocks::ahead, &[Goal::Deadline])),
        row("F43", "clocks of nodes are 10 s apart", Here(clocks::skewed, &[Goal::Deadline])),
        row("F44", "nodes stopped", Here(clocks::frozen, &[])),
        row("F45", "Redis's clock drifts by 500 ppm", Here(clocks::drifting, &[Goal::Deadline])),
        row(
            "F46",
            "counters of processors go back",
            By("engine/src/clock.rs: saturating arithmetic only, with its tests; clippy.toml bans other clocks"),
        ),
    ]
}
