//! The libraries compared, each used as its documentation suggests.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use dashmap::DashMap;
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use limitador::limit::{Context, Limit, Namespace};
use pingora_limits::rate::Rate;
use ratelimit::Ratelimiter;
use throttlecrab::PeriodicStore;

use crate::contender::{Allowance, Contender, GOVERNOR, Key, Kind, key};

/// Keyed, on a DashMap, with the default hasher and clock.
pub struct Governor(DefaultKeyedRateLimiter<Key>);

impl Contender for Governor {
    const NAME: &'static str = GOVERNOR;

    fn new(_keys: usize, allowance: Allowance) -> Self {
        let each = Duration::from_secs(allowance.seconds) / u32::try_from(allowance.units).expect("the rate fits");
        let quota = Quota::with_period(each).expect("the rate is not zero");
        let burst = u32::try_from(allowance.burst).ok().and_then(NonZeroU32::new).expect("the burst fits");
        Governor(RateLimiter::keyed(quota.allow_burst(burst)))
    }

    fn check(&self, key: &Key) -> bool {
        self.0.check_key(key).is_ok()
    }
}

/// The periodic store, behind a mutex because a decision needs `&mut`.
pub struct Throttlecrab(Mutex<throttlecrab::RateLimiter<PeriodicStore>>, Allowance);

impl Contender for Throttlecrab {
    const NAME: &'static str = "throttlecrab";

    fn new(_keys: usize, allowance: Allowance) -> Self {
        let limiter = throttlecrab::RateLimiter::new(PeriodicStore::new());
        Throttlecrab(Mutex::new(limiter), allowance)
    }

    fn check(&self, key: &Key) -> bool {
        let mut limiter = self.0.lock().expect("no thread panics with the lock");
        let Allowance { units, seconds, burst } = self.1;
        let decided = limiter.rate_limit(key, burst as i64, units as i64, seconds as i64, 1, SystemTime::now());
        decided.is_ok_and(|(allowed, _)| allowed)
    }
}

/// One limiter for each key, in a DashMap.
pub struct RatelimitDashMap(DashMap<Key, Arc<Ratelimiter>>, Allowance);

impl Contender for RatelimitDashMap {
    const NAME: &'static str = "ratelimit+dashmap";

    fn new(_keys: usize, allowance: Allowance) -> Self {
        RatelimitDashMap(DashMap::new(), allowance)
    }

    fn check(&self, key: &Key) -> bool {
        if let Some(limiter) = self.0.get(key) {
            return limiter.try_wait().is_ok();
        }
        let limiter = self.0.entry(key.clone()).or_insert_with(|| {
            // It knows whole tokens per second only.
            let rate = (self.1.units / self.1.seconds).max(1);
            let full = Ratelimiter::builder(rate).max_tokens(self.1.burst).initial_available(self.1.burst);
            Arc::new(full.build().expect("the limit is valid"))
        });
        limiter.try_wait().is_ok()
    }
}

/// Approximate: a count-min sketch of fixed size, not a table of keys.
pub struct PingoraLimits(Rate, Allowance);

impl Contender for PingoraLimits {
    const NAME: &'static str = "pingora-limits";

    fn new(_keys: usize, allowance: Allowance) -> Self {
        PingoraLimits(Rate::new(allowance.window()), allowance)
    }

    fn check(&self, key: &Key) -> bool {
        self.0.observe(key, 1) <= self.1.burst as isize
    }
}

/// One limit with one variable, in memory; the context is built for each call.
pub struct Limitador {
    limiter: limitador::RateLimiter,
    namespace: Namespace,
}

impl Limitador {
    fn context(key: &Key) -> Context<'static> {
        HashMap::from([("user".to_string(), key.clone())]).into()
    }

    fn check_context(&self, context: &Context) -> bool {
        self.limiter.check_rate_limited_and_update(&self.namespace, context, 1).is_ok_and(|result| !result.limited)
    }
}

impl Contender for Limitador {
    const NAME: &'static str = "limitador";
    const BYTES_PER_KEY: usize = 1300;

    fn new(keys: usize, allowance: Allowance) -> Self {
        let limiter = limitador::RateLimiter::new(2 * keys as u64);
        let variable = "user".try_into().expect("the expression parses");
        limiter.add_limit(Limit::new("bench", allowance.burst, allowance.window().as_secs(), [], [variable]));
        Limitador { limiter, namespace: "bench".into() }
    }

    fn check(&self, key: &Key) -> bool {
        self.check_context(&Self::context(key))
    }
}

/// The same with a context built beforehand, for the first key only.
pub struct LimitadorPrebuilt {
    inner: Limitador,
    context: Context<'static>,
}

impl Contender for LimitadorPrebuilt {
    const NAME: &'static str = "limitador-prebuilt";
    const KIND: Kind = Kind::OneKey;

    fn new(keys: usize, allowance: Allowance) -> Self {
        LimitadorPrebuilt { inner: Limitador::new(keys, allowance), context: Limitador::context(&key(0)) }
    }

    fn check(&self, _key: &Key) -> bool {
        self.inner.check_context(&self.context)
    }
}
