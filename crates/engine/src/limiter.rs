//! The simple case in one line.

use std::fmt;

use tollgate_core::{Intent, Key, Limit, LimitError, Micros, Outcome, Rate, TokenBucket};

use crate::charge::{Charge, Decision};
use crate::clock::{Clock, SystemClock};
use crate::engine::Engine;
use crate::memory::MemoryStore;

/// One limit for many keys, in memory: a counter for each key that comes by.
///
/// ```
/// use tollgate::Limiter;
///
/// let limiter = Limiter::requests_per_second(5).burst(10).build()?;
/// if limiter.allow("user-42") {
///     // go ahead
/// }
/// # Ok::<(), tollgate::LimitError>(())
/// ```
pub struct Limiter<C = SystemClock> {
    limit: Limit,
    engine: Engine<MemoryStore, C>,
}

impl Limiter {
    /// The number by which a limiter's keys are known in its store. See [`Key::limit`].
    pub const LIMIT_NUMBER: u64 = 0;

    /// Five per second are `requests_per_second(5)`: one every 200 milliseconds, and five at once after a pause unless
    /// [`LimiterBuilder::burst`] says otherwise.
    pub fn requests_per_second(requests: u64) -> LimiterBuilder {
        LimiterBuilder::new(Rate::per_second(requests))
    }

    /// So many per minute, and as many at once after a pause unless [`LimiterBuilder::burst`] says otherwise.
    pub fn requests_per_minute(requests: u64) -> LimiterBuilder {
        LimiterBuilder::new(Rate::per_minute(requests))
    }

    /// So many per hour, and as many at once after a pause unless [`LimiterBuilder::burst`] says otherwise.
    pub fn requests_per_hour(requests: u64) -> LimiterBuilder {
        LimiterBuilder::new(Rate::per_hour(requests))
    }

    /// So many per 24 hours, and as many at once after a pause unless [`LimiterBuilder::burst`] says otherwise.
    pub fn requests_per_day(requests: u64) -> LimiterBuilder {
        LimiterBuilder::new(Rate::per_day(requests))
    }

    /// Any limit of any algorithm, with the default memory budget.
    pub fn new(limit: Limit) -> Self {
        Self::with_engine(limit, Engine::new(MemoryStore::new()))
    }
}

impl<C: Clock> Limiter<C> {
    /// Any limit, on an engine of your own.
    pub fn with_engine(limit: Limit, engine: Engine<MemoryStore, C>) -> Self {
        Self { limit, engine }
    }

    /// Charges one unit to `key` if it fits, and says whether. The fastest question.
    #[inline]
    pub fn allow(&self, key: impl AsRef<[u8]>) -> bool {
        let values = [key.as_ref()];
        self.engine.store().admit_one_at(&self.charge(&values), || self.engine.clock().now())
    }

    /// Charges one unit to `key` if it fits, and says all there is to say about it.
    #[inline]
    pub fn check(&self, key: impl AsRef<[u8]>) -> Outcome {
        self.apply(key.as_ref(), 1, Intent::Spend)
    }

    /// Charges `cost` units to `key` if they fit.
    #[inline]
    pub fn check_cost(&self, key: impl AsRef<[u8]>, cost: u64) -> Outcome {
        self.apply(key.as_ref(), cost, Intent::Spend)
    }

    /// What [`Self::check_cost`] would say. Nothing is charged.
    pub fn peek(&self, key: impl AsRef<[u8]>, cost: u64) -> Outcome {
        self.apply(key.as_ref(), cost, Intent::Peek)
    }

    /// Waits until one unit fits, at most `longest`. Who waits for the same key is served in the order of arrival. The
    /// decision is a denial when the time does not do.
    pub async fn wait(&self, key: impl AsRef<[u8]>, longest: impl Into<Micros>) -> Decision {
        self.wait_cost(key, 1, longest).await
    }

    /// Waits until `cost` units fit. See [`Self::wait`].
    pub async fn wait_cost(&self, key: impl AsRef<[u8]>, cost: u64, longest: impl Into<Micros>) -> Decision {
        let values = [key.as_ref()];
        match self.engine.wait(&[self.charge(&values).cost(cost)], longest).await {
            Ok(decision) => decision,
            Err(never) => match never {},
        }
    }

    /// One unit on the counter of a key, for all that [`Self::engine`] can do with it.
    pub fn charge<'a>(&'a self, key: &'a [&'a [u8]; 1]) -> Charge<'a> {
        Charge::new(Key::new(Limiter::LIMIT_NUMBER, key), &self.limit)
    }

    /// The limit.
    pub fn limit(&self) -> &Limit {
        &self.limit
    }

    /// The engine, for everything else.
    pub fn engine(&self) -> &Engine<MemoryStore, C> {
        &self.engine
    }

    #[inline]
    fn apply(&self, key: &[u8], cost: u64, intent: Intent) -> Outcome {
        let values = [key];
        let charge = self.charge(&values).cost(cost);
        self.engine.store().apply_one_at(&charge, intent, || self.engine.clock().now())
    }
}

/// A [`Limiter`] in the making: a token bucket.
#[derive(Clone, Copy, Debug)]
pub struct LimiterBuilder {
    bucket: TokenBucket,
    budget: usize,
}

impl LimiterBuilder {
    fn new(rate: Rate) -> Self {
        Self { bucket: TokenBucket::new(rate), budget: MemoryStore::DEFAULT_BUDGET }
    }

    /// How many requests may come at once after a pause.
    pub fn burst(self, requests: u64) -> Self {
        Self { bucket: self.bucket.burst(requests), ..self }
    }

    /// How many bytes keys may take. See [`MemoryStore::with_budget`].
    pub fn memory_budget(self, bytes: usize) -> Self {
        Self { budget: bytes, ..self }
    }

    /// Checks the numbers. Zero requests are refused: whoever wants to deny everything makes a [`Limit`] that says so.
    pub fn build(self) -> Result<Limiter, LimitError> {
        self.build_with_clock(SystemClock::new())
    }

    /// The same on a clock of your own, such as a [`crate::ManualClock`] in tests.
    pub fn build_with_clock<C: Clock>(self, clock: C) -> Result<Limiter<C>, LimitError> {
        if self.bucket.rate.units == 0 {
            return Err(LimitError::NeverRefills);
        }
        let engine = Engine::with_clock(MemoryStore::with_budget(self.budget), clock);
        Ok(Limiter::with_engine(Limit::new(self.bucket)?, engine))
    }
}

impl<C> fmt::Debug for Limiter<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limiter").field("limit", self.limit.algorithm()).finish_non_exhaustive()
    }
}
