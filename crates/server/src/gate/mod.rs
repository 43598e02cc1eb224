//! Where every question arrives, whatever protocol it came by: asked once, observed once.
//!
//! Protocols turn bytes into a [`Check`] and a verdict into bytes; what is counted, timed and switched off is decided
//! here. There is no second way to the limits.

mod alarm;
mod clock;
mod counters;
mod live;
mod meter;
mod store;
mod text;
mod throttle;
mod upstream;
mod values;
mod waits;

use std::fmt;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arc_swap::{ArcSwap, ArcSwapOption};
use tollgate::{
    Check, Clock as _, Engine, Micros, Part, Queueing, ReservationId, RuleSet, Settled, Settlement, StatusKind, Store,
    Timestamp, Tollgate, Verdict,
};
use tollgate_rules::{CompiledRule, Consistency};

pub(crate) use self::alarm::ring;
pub use self::clock::GateClock;
pub(crate) use self::live::{Live, LiveRules, Reloaded};
pub(crate) use self::meter::{Door, Meter};
pub(crate) use self::store::GateStore;
pub(crate) use self::text::Exposition;
pub(crate) use self::waits::{Queue, Stood};

use self::counters::Observed;
use self::throttle::Throttled;
use self::waits::Waits;

/// Decides, and keeps count of what was decided.
pub(crate) struct Gate {
    tollgate: Tollgate<GateStore, GateClock>,
    observed: ArcSwap<Observed>,
    /// The domain that there are rules for, if it is the only one.
    only_domain: ArcSwapOption<String>,
    meters: [Meter; Door::ALL.len()],
    /// False when somebody has switched all limits off.
    limiting: AtomicBool,
    /// Checks that met no rule of their domain.
    unmatched: AtomicU64,
    /// Checks of domains that there are no rules for.
    unknown_domain: AtomicU64,
    /// What limits that came with the question said.
    throttled: Throttled,
    waits: Waits,
    /// From which share of a limit on a request counts as near it, in thousandths.
    near: u32,
}

/// The store could not answer. What that means for the asker is for each protocol to say in its own words.
#[derive(Debug)]
pub(crate) struct Unavailable(String);

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the store cannot be reached: {}", self.0)
    }
}

impl std::error::Error for Unavailable {}

fn unavailable(error: impl std::error::Error) -> Unavailable {
    Unavailable(error.to_string())
}

/// What is asked of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// Charge if allowed.
    Spend,
    /// Only look.
    Peek,
    /// Charge in any case.
    Force,
    /// Give back what was charged at this time.
    Refund(Timestamp),
    /// Hold the slots of a lease longer.
    Renew,
    /// Give the slots of a lease back.
    Release,
}

impl Gate {
    /// `hits` asks for the metrics of envoyproxy/ratelimit beside our own.
    pub(crate) fn new(store: GateStore, clock: GateClock, near_limit_ratio: f64, hits: bool) -> Self {
        let tollgate = Tollgate::with_engine(RuleSet::default(), Engine::with_clock(store, clock));
        let observed = ArcSwap::from_pointee(Observed::new(tollgate.rules(), hits, None));
        Self {
            tollgate,
            observed,
            only_domain: ArcSwapOption::empty(),
            meters: Default::default(),
            limiting: AtomicBool::new(true),
            unmatched: AtomicU64::new(0),
            unknown_domain: AtomicU64::new(0),
            throttled: Throttled::default(),
            waits: Waits::default(),
            near: (near_limit_ratio.clamp(0.0, 1.0) * 1_000.0) as u32,
        }
    }

    /// Begins to fetch the counter that a check will be decided by, if it is one and in this server's memory.
    #[inline]
    pub(crate) fn approach_check(&self, check: &Check<'_>) {
        if let GateStore::Memory(store) = self.store() {
            let _on_its_way = self.tollgate.with_only_charge(check, |charge| store.approach(charge));
        }
    }

    /// Asks and charges; `tell` makes of the verdict what the protocol answers.
    #[inline]
    pub(crate) async fn check<R: Send>(
        &self,
        check: &Check<'_>,
        tell: impl FnOnce(&Verdict<'_>) -> R + Send,
    ) -> Result<R, Unavailable> {
        if !self.is_limiting() {
            return self.wave_through(tell).await;
        }
        let observed = |verdict: Verdict<'_>| {
            self.observe(check, &verdict);
            tell(&verdict)
        };
        self.tollgate.check_with(check, observed).await.map_err(unavailable)
    }

    /// Asks in another way than to spend.
    pub(crate) async fn ask<R: Send>(
        &self,
        ask: Ask,
        check: &Check<'_>,
        tell: impl FnOnce(&Verdict<'_>) -> R + Send,
    ) -> Result<R, Unavailable> {
        // Slots that were taken before are given back all the same, and held until then.
        let is_of_slots = matches!(ask, Ask::Renew | Ask::Release);
        if !self.is_limiting() && !is_of_slots {
            return self.wave_through(tell).await;
        }
        let verdict = match ask {
            Ask::Spend => return self.check(check, tell).await,
            Ask::Peek => self.tollgate.peek(check).await,
            Ask::Force => self.tollgate.force(check).await,
            Ask::Refund(charged_at) => self.tollgate.refund(check, charged_at).await,
            Ask::Renew => self.tollgate.renew(check).await,
            Ask::Release => self.tollgate.release(check).await,
        };
        let verdict = verdict.map_err(unavailable)?;
        if ask == Ask::Force {
            self.observe(check, &verdict);
        }
        Ok(tell(&verdict))
    }

    /// Waits in line until it is allowed: for all limits as `how` says, or for each as its rule does. A delay that the
    /// verdict tells of is over by then.
    pub(crate) async fn wait<R: Send>(
        &self,
        check: &Check<'_>,
        how: Option<Queueing>,
        tell: impl FnOnce(&Verdict<'_>) -> R + Send,
    ) -> Result<(R, Stood), Unavailable> {
        let since = quanta::Instant::now();
        let answered = match how {
            Some(how) => self.tollgate.wait_in_line(check, how).await,
            None => self.tollgate.wait_by_rules(check).await,
        };
        let waited = since.elapsed();
        self.waited(Queue::Limit, waited);
        let (verdict, position) = answered.map_err(unavailable)?;
        self.observe(check, &verdict);
        Ok((tell(&verdict), Stood { position, waited }))
    }

    /// Whether a check has to stand in line behind others who wait for the same: nobody is to overtake them.
    #[inline]
    pub(crate) fn has_others_waiting(&self, check: &Check<'_>) -> bool {
        self.tollgate.has_others_waiting(check) && self.is_limiting()
    }

    /// Sits out the delay of a request that may go on.
    pub(crate) async fn sit_out(&self, delay: Micros) {
        // From now on by this clock: the verdict's time may be by another.
        let clock = self.tollgate.engine().clock();
        clock.sleep_until(clock.now().plus(delay)).await;
    }

    /// Somebody waited so long in this line.
    pub(crate) fn waited(&self, queue: Queue, waited: std::time::Duration) {
        self.waits.add(queue, waited);
    }

    /// Charges until settled, at most for `hold`.
    pub(crate) async fn reserve<R: Send>(
        &self,
        check: &Check<'_>,
        hold: Micros,
        tell: impl FnOnce(&Verdict<'_>, Option<ReservationId>) -> R + Send,
    ) -> Result<R, Unavailable> {
        if !self.is_limiting() {
            return self.wave_through(|verdict| tell(verdict, None)).await;
        }
        let (verdict, reservation) = self.tollgate.reserve(check, hold).await.map_err(unavailable)?;
        self.observe(check, &verdict);
        Ok(tell(&verdict, reservation))
    }

    pub(crate) async fn settle(
        &self,
        reservation: ReservationId,
        settlement: Settlement<'_>,
    ) -> Result<Settled, Unavailable> {
        self.tollgate.settle(reservation, settlement).await.map_err(unavailable)
    }

    /// Where the requests of a protocol are counted and timed.
    #[inline]
    pub(crate) fn meter(&self, door: Door) -> &Meter {
        &self.meters[door as usize]
    }

    /// The store and its time, for limits that come with the question and belong to no rule.
    pub(crate) fn engine(&self) -> &Engine<impl Store + use<>, GateClock> {
        self.tollgate.engine()
    }

    /// Where the counters are.
    #[inline]
    pub(crate) fn store(&self) -> &GateStore {
        self.tollgate.engine().store()
    }

    /// The rules in force.
    pub(crate) fn rules(&self) -> Arc<RuleSet> {
        self.tollgate.rules()
    }

    /// The domain that there are rules for, if it is the only one: what questions are about that name none.
    #[inline]
    pub(crate) fn only_domain(&self) -> impl Deref<Target = Option<Arc<String>>> + Send + Sync + use<> {
        self.only_domain.load()
    }

    /// Puts `rules` in force. Counts go on for rules that keep their names.
    pub(crate) fn replace_rules(&self, rules: RuleSet) {
        let only_domain = {
            let mut domains = rules.domains();
            domains.next().filter(|_| domains.next().is_none()).map(|domain| Arc::new(domain.to_owned()))
        };
        let inexact = |compiled: &&CompiledRule| compiled.rule().consistency != Consistency::Exact;
        if let (Some(_), Some(one)) = (self.store().shared(), rules.rules().iter().find(inexact)) {
            let rule = &*one.rule().name;
            tracing::warn!(rule, "`consistency` has no effect yet: limits in Redis are exact, this rule's too");
        }
        self.tollgate.replace_rules(rules);
        self.only_domain.store(only_domain);
        let before = self.observed.load_full();
        self.observed.store(Arc::new(Observed::new(self.tollgate.rules(), before.counts_hits(), Some(&before))));
    }

    /// Switches all limits off or on again.
    pub(crate) fn set_limiting(&self, on: bool) {
        self.limiting.store(on, Ordering::Relaxed);
    }

    pub(crate) fn is_limiting(&self) -> bool {
        self.limiting.load(Ordering::Relaxed)
    }

    /// Writes every state that matters to `path`.
    pub(crate) fn save_state(&self, path: &PathBuf) -> anyhow::Result<()> {
        let now = self.tollgate.engine().clock().now();
        Ok(self.store().memory().save_snapshot(path, now)?)
    }

    /// The answer when all limits are off: what a question without rules gets.
    async fn wave_through<R: Send>(&self, tell: impl FnOnce(&Verdict<'_>) -> R + Send) -> Result<R, Unavailable> {
        let nothing = Check::attributes("", &[]);
        self.tollgate.check_with(&nothing, |verdict| tell(&verdict)).await.map_err(unavailable)
    }

    #[inline]
    fn observe(&self, check: &Check<'_>, verdict: &Verdict<'_>) {
        let is_unmatched =
            verdict.tolls.is_empty() && verdict.descriptors.iter().all(|status| status.kind == StatusKind::NoLimit);
        if is_unmatched {
            // Of a part of its limits, there may well be none.
            if check.part != Part::All {
                return;
            }
            let is_known = verdict.rules().has_domain(check.domain);
            (if is_known { &self.unmatched } else { &self.unknown_domain }).fetch_add(1, Ordering::Relaxed);
        } else {
            self.observed.load().count(check, verdict, self.near);
        }
    }

    /// Everything that is counted, for whoever collects it.
    pub(crate) fn expose(&self, out: &mut Exposition) {
        for (door, meter) in Door::ALL.iter().zip(&self.meters) {
            meter.expose(*door, out);
        }
        let observed = self.observed.load();
        observed.expose(out);
        if observed.counts_hits() {
            self.meter(Door::Grpc).expose_as_upstream(out);
        }
        self.throttled.expose(out);
        self.waits.expose(out);
        out.gauge("tollgate_limit_waiting", "Requests that stand in line before limits.");
        out.sample(&[], self.tollgate.engine().waiting());
        out.counter("tollgate_unmatched_checks_total", "Checks that no rule of their domain applies to.");
        out.sample(&[], self.unmatched.load(Ordering::Relaxed));
        out.counter("tollgate_unknown_domain_checks_total", "Checks of domains that there are no rules for.");
        out.sample(&[], self.unknown_domain.load(Ordering::Relaxed));
        if let Some(shared) = self.store().shared() {
            expose_shared(shared, out);
        }
        let store = self.store().memory();
        out.gauge("tollgate_keys", "Counters in memory, those that are stale and not yet overwritten included.");
        out.sample(&[], store.keys() as u64);
        out.gauge("tollgate_key_bytes", "Memory that counters take.");
        out.sample(&[], store.bytes_used() as u64);
        out.counter(
            "tollgate_overflow_charges_total",
            "Charges on counters that keys share because the memory for keys is spent.",
        );
        out.sample(&[], store.shared_charges());
        out.gauge("tollgate_limiting", "1 while limits are enforced, 0 when they are switched off.");
        out.sample(&[], u64::from(self.is_limiting()));
    }
}

/// How the store is that servers share, and how often it was done without.
fn expose_shared(shared: &store::Shared, out: &mut Exposition) {
    out.counter("tollgate_degraded_decisions_total", "Decisions that were made without the store that servers share.");
    out.sample(&[], shared.decided_alone());
    out.counter("tollgate_repeated_denials_total", "Denials that Redis was not asked for, since they were still true.");
    out.sample(&[], shared.shared().repeated());
    out.gauge("tollgate_store_servers", "Servers that share the store, by count or as given.");
    out.sample(&[], shared.servers());
    out.counter("tollgate_foreign_values_total", "Values in Redis that are not tollgate's, under keys of tollgate's.");
    out.sample(&[], shared.shared().store().foreign_values());
    out.counter("tollgate_redis_bad_answers_total", "Answers of Redis that were none, by what was wrong with them.");
    for (kind, count) in shared.shared().store().bad_answers() {
        out.sample(&[("kind", kind)], count);
    }
    let link = shared.shared().store().link();
    out.gauge("tollgate_store_serving", "1 while every key has a server of Redis that is asked.");
    out.sample(&[], u64::from(link.is_serving()));
    let health = link.health();
    out.counter("tollgate_redis_events_total", "What happened with each server of Redis, by name.");
    for one in &health {
        for (event, count) in one.counts {
            out.sample(&[("server", &*one.server), ("event", event)], count);
        }
    }
}
