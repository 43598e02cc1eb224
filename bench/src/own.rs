//! tollgate itself: one limit on a key, and three stacked on it.

use std::path::PathBuf;
use std::sync::LazyLock;

use tollgate::{
    Charge, Clock, Engine, Key as LimitKey, Limit, Limiter, MemoryStore, Micros, Rate, SystemClock, Timestamp,
    TokenBucket,
};

use crate::contender::{Allowance, Contender, Key};

fn bucket(allowance: Allowance) -> Limit {
    let rate = Rate::new(allowance.units, Micros::from_secs(allowance.seconds));
    Limit::new(TokenBucket::new(rate).burst(allowance.burst)).expect("the numbers of the benchmark are a limit")
}

/// An empty store, with the same secret each time within one process: so that growth can be repeated step by step.
fn store() -> MemoryStore {
    static EMPTY: LazyLock<PathBuf> = LazyLock::new(|| {
        let path = std::env::temp_dir().join(format!("tollgate-bench-{}", std::process::id()));
        MemoryStore::new().save_snapshot(&path, Timestamp::EPOCH).expect("an empty store can be written down");
        path
    });
    MemoryStore::load_snapshot(&*EMPTY, MemoryStore::DEFAULT_BUDGET, Timestamp::EPOCH).expect("it was just written")
}

pub struct Tollgate(Limiter);

impl Contender for Tollgate {
    const NAME: &'static str = "tollgate";
    const BYTES_PER_KEY: usize = 40;

    fn new(_keys: usize, allowance: Allowance) -> Self {
        Self(Limiter::with_engine(bucket(allowance), Engine::new(store())))
    }

    fn check(&self, key: &Key) -> bool {
        self.0.allow(key)
    }
}

/// The same, with remaining, reset and retry-after in every answer.
pub struct TollgateFull(Limiter);

impl Contender for TollgateFull {
    const NAME: &'static str = "tollgate full";
    const BYTES_PER_KEY: usize = 40;

    fn new(_keys: usize, allowance: Allowance) -> Self {
        Self(Limiter::new(bucket(allowance)))
    }

    fn check(&self, key: &Key) -> bool {
        std::hint::black_box(self.0.check(key)).allowed
    }
}

/// Three limits that pass together or not at all.
pub struct TollgateStack {
    limits: [Limit; 3],
    store: MemoryStore,
    clock: SystemClock,
}

impl Contender for TollgateStack {
    const NAME: &'static str = "tollgate x3";
    const BYTES_PER_KEY: usize = 120;

    fn new(_keys: usize, allowance: Allowance) -> Self {
        let limits = [0, 1, 2].map(|less| bucket(Allowance { burst: allowance.burst - less, ..allowance }));
        Self { limits, store: MemoryStore::with_budget(4 << 30), clock: SystemClock::new() }
    }

    fn check(&self, key: &Key) -> bool {
        let values = [key.as_bytes()];
        let [a, b, c] = &self.limits;
        let charges = [
            Charge::new(LimitKey::new(1, &values), a),
            Charge::new(LimitKey::new(2, &values), b),
            Charge::new(LimitKey::new(3, &values), c),
        ];
        self.store.admit_all_at(&charges, || self.clock.now())
    }
}
