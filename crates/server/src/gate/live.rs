//! Rules that follow their files.
//!
//! One thread reads the files twice a second and compares what they say. That sees every kind of edit on every kind of
//! file system, a rename, a swapped link and a network mount included, and needs no events. What does not make sense is
//! told and changes nothing: a bad file leaves its last good text in force, and the others go on.

mod texts;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context as _;
use quanta::Instant;
use tokio::sync::oneshot;
use tollgate::RuleSet;
use tollgate::rules::{Diagnostics, Mode, Parsed, Severity, Source, read};

use self::texts::{Renewed, Texts};
use super::Gate;
use crate::gateway::Gateway;

/// The niceness of what may wait.
#[cfg(target_os = "linux")]
const LESS_URGENT: i32 = 10;
const POLL: Duration = Duration::from_millis(500);
/// Looking takes at most one part in so many of the time.
const SHARE: u32 = 100;
/// More problems at once are the same one.
const MOST_LOGGED: usize = 20;
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
    /// Files and directories that are wrong, and whether an earlier text of theirs is in force.
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
    Switch {
        rule: String,
        off: bool,
        done: oneshot::Sender<Reloaded>,
    },
    /// Take this for what was made through the admin port.
    Make {
        text: String,
        done: oneshot::Sender<Made>,
    },
}

/// Whether what was made makes sense, and what is to be said about it.
pub(crate) type Made = (Reloaded, Arc<Diagnostics>);

/// What was made through the admin port is called so in messages.
const MADE: &str = "admin";

/// A handle on the thread that keeps the rules current. Dropping it ends the thread.
pub(crate) struct Live {
    orders: Option<Sender<Order>>,
    status: Arc<Mutex<RulesStatus>>,
    thread: Option<JoinHandle<()>>,
}

impl Live {
    /// Loads the rules into `gate` and follows them from then on. With `strict`, rules that cannot be used are refused
    /// now; later they never are.
    pub(crate) fn start(
        from: LiveRules,
        gate: Arc<Gate>,
        gateway: Option<(Arc<Gateway>, String)>,
        strict: bool,
    ) -> Result<Self, Arc<Diagnostics>> {
        let status = Arc::new(Mutex::new(RulesStatus::default()));
        let mut follower = Follower {
            from,
            gate,
            made: gateway.as_ref().map(|(_, made)| Source::new(MADE, made.clone())),
            gateway: gateway.map(|(gateway, _)| gateway),
            status: Arc::clone(&status),
            texts: Texts::default(),
            seen: None,
            named: Vec::new(),
            off: BTreeSet::new(),
            is_starting: strict,
        };
        let loaded = follower.look();
        if strict && loaded == Reloaded::Wrong {
            return Err(Arc::clone(&lock(&status).diagnostics));
        }
        follower.is_starting = false;
        let (orders, received) = channel();
        let follow = move || {
            // Decisions come first where there are as many workers as cores. (On Linux this is about the thread alone.)
            #[cfg(target_os = "linux")]
            let _ = rustix::process::setpriority_process(None, LESS_URGENT);
            follower.run(&received);
        };
        let thread = std::thread::Builder::new().name("rules".to_owned()).spawn(follow).ok();
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

    /// Takes `text` for what was made through the admin port.
    pub(crate) async fn set_made(&self, text: String) -> anyhow::Result<Made> {
        self.order(|done| Order::Make { text, done }).await
    }

    async fn order<T>(&self, order: impl FnOnce(oneshot::Sender<T>) -> Order) -> anyhow::Result<T> {
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

/// What was read, to be compared.
#[derive(PartialEq, Eq)]
struct Seen {
    /// Names and texts.
    files: Vec<(Arc<str>, Arc<str>)>,
    problems: Vec<String>,
    /// Files that those name, and what is in them.
    named: Vec<(Arc<str>, Option<Vec<u8>>)>,
}

struct Follower {
    from: LiveRules,
    gate: Arc<Gate>,
    gateway: Option<Arc<Gateway>>,
    /// What was made through the admin port.
    made: Option<Source>,
    status: Arc<Mutex<RulesStatus>>,
    texts: Texts,
    /// What there was at the last look.
    seen: Option<Seen>,
    /// Files of certificates that those in force name.
    named: Vec<Arc<str>>,
    off: BTreeSet<String>,
    /// Whether wrong rules end it all.
    is_starting: bool,
}

impl Follower {
    fn run(mut self, orders: &Receiver<Order>) {
        let mut pause = POLL;
        loop {
            match orders.recv_timeout(pause) {
                Ok(Order::Reload(done)) => {
                    let _ = done.send(self.look());
                }
                Ok(Order::Switch { rule, off, done }) => {
                    let _ = done.send(self.switch(rule, off));
                }
                Ok(Order::Make { text, done }) => {
                    self.made = Some(Source::new(MADE, text));
                    self.look();
                    let status = lock(&self.status);
                    let is_wrong = status.bad_files.iter().any(|(name, _)| **name == *MADE);
                    let reloaded = if is_wrong { Reloaded::Wrong } else { Reloaded::Done };
                    let _ = done.send((reloaded, Arc::clone(&status.diagnostics)));
                }
                Err(RecvTimeoutError::Timeout) => {
                    let started = Instant::now();
                    self.look();
                    pause = (started.elapsed() * SHARE).clamp(POLL, LONGEST_POLL);
                }
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Reads the files, and puts them in force if they say something new.
    fn look(&mut self) -> Reloaded {
        if let Some(gateway) = &self.gateway {
            gateway.refresh();
        }
        let (mut sources, problems) = match &self.from {
            LiveRules::Paths(paths) => read(paths),
            LiveRules::Embedded(source) => (vec![source.clone()], Vec::new()),
        };
        sources.extend(self.made.clone());
        let files = sources.iter().map(|source| (Arc::clone(&source.name), Arc::clone(&source.text))).collect();
        let seen = Seen {
            files,
            problems: problems.iter().map(|problem| format!("{problem:?}")).collect(),
            named: self.named.iter().map(read_named).collect(),
        };
        if self.seen.as_ref() == Some(&seen) {
            let is_wrong = lock(&self.status).diagnostics.has_errors();
            return if is_wrong { Reloaded::Wrong } else { Reloaded::Done };
        }
        self.seen = Some(seen);
        let Renewed { parsed, diagnostics, bad } = self.texts.renew(sources, problems);
        let is_wrong = diagnostics.has_errors();
        let is_in_force = parsed.is_some();
        if let Some(parsed) = parsed {
            let upstreams = &parsed.gateway.upstreams;
            self.named = upstreams.iter().filter_map(|upstream| upstream.ca.clone()).collect();
            if let Some(seen) = &mut self.seen {
                seen.named = self.named.iter().map(read_named).collect();
            }
            self.enforce(parsed);
        }
        let mut status = lock(&self.status);
        status.version += u64::from(is_in_force);
        status.files = self.texts.names();
        status.bad_files = bad;
        *(if is_wrong { &mut status.failed_loads } else { &mut status.loads }) += 1;
        status.diagnostics = Arc::new(diagnostics);
        let (version, rules) = (status.version, self.gate.rules().rules().len());
        if is_wrong {
            self.log(&status.diagnostics);
            return Reloaded::Wrong;
        }
        tracing::info!(version, rules, "rules loaded");
        if rules == 0 {
            tracing::warn!("no rules are in force: everything is allowed");
        }
        Reloaded::Done
    }

    /// A record for each problem. At a start that fails they are shown to whoever starts it instead.
    fn log(&self, diagnostics: &Diagnostics) {
        if self.is_starting {
            return;
        }
        tracing::error!("some rules are wrong; what was in force of those files stays");
        for problem in diagnostics.iter().take(MOST_LOGGED) {
            let place = problem.span.map_or_else(
                || problem.unread.as_ref().map(|unread| unread.file.to_string()).unwrap_or_default(),
                |span| {
                    let (line, column) = diagnostics.position(span);
                    let file = diagnostics.sources().get(span.source as usize).map_or("", |source| &*source.name);
                    format!("{file}:{line}:{column}")
                },
            );
            let help = problem.help.as_deref().unwrap_or_default();
            match problem.severity {
                Severity::Error => tracing::error!(place, help, "{}", problem.message),
                Severity::Warning => tracing::warn!(place, help, "{}", problem.message),
            }
        }
    }

    /// Switches a rule of the texts in force; what the files say now has nothing to do with it.
    fn switch(&mut self, rule: String, off: bool) -> Reloaded {
        let parsed = self.texts.parse();
        if !parsed.rules.iter().any(|known| *known.name == *rule) {
            return Reloaded::UnknownRule;
        }
        tracing::warn!(rule, "a rule was switched {}", if off { "off" } else { "on" });
        match off {
            true => self.off.insert(rule),
            false => self.off.remove(&rule),
        };
        self.enforce(parsed);
        let mut status = lock(&self.status);
        status.version += 1;
        status.switched_off.clone_from(&self.off);
        Reloaded::Done
    }

    /// Puts rules in force, but for those that are switched off.
    fn enforce(&self, mut parsed: Parsed) {
        for rule in parsed.rules.iter_mut().filter(|rule| self.off.contains(&*rule.name)) {
            rule.mode = Mode::Off;
        }
        let routes = std::mem::take(&mut parsed.gateway);
        let (rules, _) = RuleSet::compile(parsed);
        if let Some(gateway) = &self.gateway {
            gateway.replace(&routes, &rules);
        }
        self.gate.replace_rules(rules);
    }
}

fn read_named(path: &Arc<str>) -> (Arc<str>, Option<Vec<u8>>) {
    (Arc::clone(path), std::fs::read(&**path).ok())
}

fn lock(status: &Mutex<RulesStatus>) -> std::sync::MutexGuard<'_, RulesStatus> {
    status.lock().unwrap_or_else(PoisonError::into_inner)
}
