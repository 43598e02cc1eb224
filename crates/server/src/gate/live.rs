//! Rules that follow their files.
//!
//! One thread reads the files twice a second and compares what they say. That sees every kind of edit on every kind of file
//! system, a rename, a swapped link and a network mount included, and needs no events. What does not make sense is
//! told and changes nothing: a bad file leaves its last good text in force, and the others go on.

use std::collections::{BTreeSet, HashSet};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context as _;
use quanta::Instant;
use tokio::sync::oneshot;
use tollgate::RuleSet;
use tollgate::rules::{Diagnostics, Mode, Parsed, Severity, Source, parse, read};

use super::Gate;

const POLL: Duration = Duration::from_millis(500);
/// Looking takes at most one part in so many of the time.
const SHARE: u32 = 100;
const LONGEST_POLL: Duration = Duration::from_millis(1_500);

/// Where rules come from.
#[derive(Clone, Debug)]
pub(crate) enum LiveRules {
    /// Files and directories.
    Paths(Vec<PathBuf>),
    /// A text that never changes.
    Embedded(Source),
}

/// What became of the last look at the rules.
#[derive(Clone, Debug, Default)]
pub(crate) struct RulesStatus {
    /// Grows with each set that was put in force.
    pub(crate) version: u64,
    pub(crate) loads: u64,
    pub(crate) failed_loads: u64,
    /// Files that are in force.
    pub(crate) files: Vec<Arc<str>>,
    /// Files that are wrong, and whether an earlier text of theirs is in force.
    pub(crate) bad_files: Vec<(Arc<str>, bool)>,
    /// What is to be said about the files as they are now.
    pub(crate) diagnostics: Arc<Diagnostics>,
    /// Rules that were switched off.
    pub(crate) switched_off: BTreeSet<String>,
}

/// The answer to a reload or a switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reloaded {
    /// Nothing was wrong.
    Done,
    /// Something was; the status says what.
    Wrong,
    /// There is no rule of this name.
    UnknownRule,
}

enum Order {
    Reload(oneshot::Sender<Reloaded>),
    Switch { rule: String, off: bool, done: oneshot::Sender<Reloaded> },
}

/// A handle on the thread that keeps the rules current. Dropping it ends the thread.
pub(crate) struct Live {
    orders: Option<Sender<Order>>,
    status: Arc<Mutex<RulesStatus>>,
    thread: Option<JoinHandle<()>>,
}

impl Live {
    /// Loads the rules into `gate` and follows them from then on. With `strict`, rules that cannot be used are refused now;
    /// later they never are.
    pub(crate) fn start(from: LiveRules, gate: Arc<Gate>, strict: bool) -> Result<Self, Arc<Diagnostics>> {
        let status = Arc::new(Mutex::new(RulesStatus::default()));
        let mut follower =
            Follower { from, gate, status: Arc::clone(&status), good: Vec::new(), seen: None, off: BTreeSet::new() };
        let loaded = follower.look(true);
        if strict && loaded == Reloaded::Wrong {
            return Err(Arc::clone(&lock(&status).diagnostics));
        }
        let (orders, received) = channel();
        let thread = std::thread::Builder::new().name("rules".to_owned()).spawn(move || follower.run(&received)).ok();
        Ok(Self { orders: Some(orders), status, thread })
    }

    pub(crate) fn status(&self) -> RulesStatus {
        lock(&self.status).clone()
    }

    /// Reads the files now.
    pub(crate) async fn reload(&self) -> anyhow::Result<Reloaded> {
        self.order(Order::Reload).await
    }

    /// Switches one rule off, or on again.
    pub(crate) async fn switch(&self, rule: String, off: bool) -> anyhow::Result<Reloaded> {
        self.order(|done| Order::Switch { rule, off, done }).await
    }

    async fn order(&self, order: impl FnOnce(oneshot::Sender<Reloaded>) -> Order) -> anyhow::Result<Reloaded> {
        let (done, answer) = oneshot::channel();
        let orders = self.orders.as_ref().context("the rules are no longer followed")?;
        orders.send(order(done)).ok().context("the rules are no longer followed")?;
        answer.await.context("the rules are no longer followed")
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What files say, to be compared.
#[derive(PartialEq, Eq)]
struct Seen {
    /// Names and texts.
    files: Vec<(Arc<str>, Arc<str>)>,
    problems: Vec<String>,
}

struct Follower {
    from: LiveRules,
    gate: Arc<Gate>,
    status: Arc<Mutex<RulesStatus>>,
    /// The texts in force, in the order of files: the last good one of each.
    good: Vec<Source>,
    /// What there was at the last look.
    seen: Option<Seen>,
    off: BTreeSet<String>,
}

impl Follower {
    fn run(mut self, orders: &Receiver<Order>) {
        let mut pause = POLL;
        loop {
            match orders.recv_timeout(pause) {
                Ok(Order::Reload(done)) => {
                    let _ = done.send(self.look(true));
                }
                Ok(Order::Switch { rule, off, done }) => {
                    let _ = done.send(self.switch(rule, off));
                }
                Err(RecvTimeoutError::Timeout) => {
                    let started = Instant::now();
                    self.look(false);
                    pause = (started.elapsed() * SHARE).clamp(POLL, LONGEST_POLL);
                }
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn switch(&mut self, rule: String, off: bool) -> Reloaded {
        let known =
            self.off.contains(&rule) || self.gate.rules().rules().iter().any(|compiled| *compiled.rule().name == *rule);
        if !known {
            return Reloaded::UnknownRule;
        }
        tracing::warn!(rule, off, "a rule was switched");
        if off {
            self.off.insert(rule)
        } else {
            self.off.remove(&rule)
        };
        // What is wrong with the files now has nothing to do with it.
        match self.look(true) {
            Reloaded::UnknownRule => Reloaded::UnknownRule,
            _ => Reloaded::Done,
        }
    }

    /// Reads the files, and puts them in force if they say something new or if told `anyway`.
    fn look(&mut self, anyway: bool) -> Reloaded {
        let (sources, problems) = match &self.from {
            LiveRules::Paths(paths) => read(paths),
            LiveRules::Embedded(source) => (vec![source.clone()], Vec::new()),
        };
        let files = sources.iter().map(|source| (Arc::clone(&source.name), Arc::clone(&source.text))).collect();
        let seen = Seen { files, problems: problems.iter().map(|problem| format!("{problem:?}")).collect() };
        let is_new = self.seen.as_ref() != Some(&seen);
        if !is_new && !anyway {
            return Reloaded::Done;
        }
        self.seen = Some(seen);

        let unread = problems.iter().filter(|problem| problem.severity == Severity::Error);
        let unread: HashSet<Arc<str>> =
            unread.filter_map(|problem| problem.unread.as_ref()).map(|unread| Arc::clone(&unread.file)).collect();
        let mut parsed = parse(sources.clone());
        for problem in problems {
            parsed.diagnostics.push(problem);
        }
        let diagnostics = Arc::new(parsed.diagnostics.clone());
        let wrong = diagnostics.has_errors();
        let mut bad: BTreeSet<Arc<str>> = unread.into_iter().collect();
        bad.extend(blamed(&diagnostics));
        let mut in_force = sources;
        if wrong {
            let (mixed, compiled) = self.fall_back(&in_force, &bad);
            in_force = mixed;
            match compiled {
                Some(again) => parsed = again,
                // Even the old texts do not fit the new ones: nothing changes.
                None => {
                    self.tell(&diagnostics, &bad, None, is_new);
                    return Reloaded::Wrong;
                }
            }
        }
        self.good.clone_from(&in_force);

        for rule in parsed.rules.iter_mut().filter(|rule| self.off.contains(&*rule.name)) {
            rule.mode = Mode::Off;
        }
        let (rules, _) = RuleSet::compile(parsed);
        self.gate.replace_rules(rules);
        let files = in_force.into_iter().map(|source| source.name).collect();
        self.tell(&diagnostics, &bad, Some(files), is_new);
        if wrong { Reloaded::Wrong } else { Reloaded::Done }
    }

    /// The sources with the last good text in place of each bad one; a bad one without is left out. And what they say, if that
    /// makes sense now.
    fn fall_back(&self, sources: &[Source], bad: &BTreeSet<Arc<str>>) -> (Vec<Source>, Option<Parsed>) {
        let good = |name: &Arc<str>| self.good.iter().position(|known| known.name == *name);
        let mut mixed: Vec<Source> = Vec::new();
        for source in sources {
            match bad.contains(&source.name) {
                true => mixed.extend(good(&source.name).and_then(|at| self.good.get(at)).cloned()),
                false => mixed.push(source.clone()),
            }
        }
        // What cannot even be read stays where it was: wildcards are tried in the order of files.
        let is_there = |mixed: &[Source], name: &Arc<str>| mixed.iter().any(|source| source.name == *name);
        for (at, source) in self.good.iter().enumerate() {
            if bad.contains(&source.name) && !is_there(&mixed, &source.name) {
                let after = mixed.iter().position(|other| good(&other.name).is_some_and(|place| place > at));
                mixed.insert(after.unwrap_or(mixed.len()), source.clone());
            }
        }
        if mixed.is_empty() {
            return (mixed, None);
        }
        let parsed = parse(mixed.clone());
        let makes_sense = !parsed.diagnostics.has_errors();
        (mixed, makes_sense.then_some(parsed))
    }

    fn tell(
        &self,
        diagnostics: &Arc<Diagnostics>,
        bad: &BTreeSet<Arc<str>>,
        in_force: Option<Vec<Arc<str>>>,
        is_new: bool,
    ) {
        let wrong = diagnostics.has_errors();
        let rules = self.gate.rules().rules().len();
        let mut status = lock(&self.status);
        if let Some(files) = in_force {
            status.version += 1;
            status.files = files;
        }
        status.bad_files =
            bad.iter().map(|name| (Arc::clone(name), self.good.iter().any(|good| good.name == *name))).collect();
        *(if wrong { &mut status.failed_loads } else { &mut status.loads }) += 1;
        status.switched_off = self.off.clone();
        let version = status.version;
        status.diagnostics = Arc::clone(diagnostics);
        drop(status);
        if !is_new {
            return;
        }
        if wrong {
            tracing::error!(
                version,
                "some rules are wrong; what was in force of them stays\n{}",
                diagnostics.render(false)
            );
        } else {
            tracing::info!(version, rules, "rules loaded");
        }
    }
}

/// The files that errors are in, those that another place is part of included.
fn blamed(diagnostics: &Diagnostics) -> impl Iterator<Item = Arc<str>> {
    let errors = diagnostics.iter().filter(|diagnostic| diagnostic.severity == Severity::Error);
    let sources = errors.filter_map(|diagnostic| diagnostic.span).map(|span| span.source as usize);
    sources.filter_map(|at| diagnostics.sources().get(at)).map(|source| Arc::clone(&source.name))
}

fn lock(status: &Mutex<RulesStatus>) -> std::sync::MutexGuard<'_, RulesStatus> {
    status.lock().unwrap_or_else(PoisonError::into_inner)
}
