//! What a rate limiter has to offer to be measured, and the list of those that are.
//!
//! To add one: implement [`Contender`] and add a line to [`all`].

use std::time::Duration;

use crate::measure::Runner;
use crate::{floors, own, peers};

/// What every contender allows each key: the same for all of them.
#[derive(Clone, Copy)]
pub struct Allowance {
    /// So many decisions
    pub units: u64,
    /// in so many seconds,
    pub seconds: u64,
    /// and so many at once.
    pub burst: u64,
}

/// For speed: every decision is allowed, so every decision writes; and a key that was asked for once is remembered for
/// some minutes, which is longer than it takes from filling the tables to the first scenario that asks for all keys,
/// and from there to the last: so all of them are live and none can be forgotten in between. The burst is more than one
/// hot key is asked for in nine rounds; the time in which it comes back, some 139 years, is about the longest that all
/// contenders can count.
pub const FAST: Allowance = Allowance { units: 1, seconds: 220, burst: 20_000_000 };
/// For memory and growth: a key that was asked for once is remembered for a minute, so that all of them are live at
/// once.
pub const SLOW: Allowance = Allowance { units: 1, seconds: 60, burst: 1_000 };

impl Allowance {
    /// The time in which a spent burst comes back: the window of the contenders that count in windows instead of
    /// keeping a bucket.
    pub fn window(&self) -> Duration {
        Duration::from_secs(self.burst * self.seconds / self.units)
    }
}

/// The name that ratios "to governor" refer to.
pub const GOVERNOR: &str = "governor";
/// The name that ratios "to the floor" refer to.
pub const FLOOR: &str = "floor";

/// Exactly 24 bytes, as [`write_key`] makes it. An owned `String` because
/// governor looks its keys up by a reference to the owned type; the others take
/// it as a `&str` at no cost.
pub type Key = String;

/// A rate limiter, shared by threads.
pub trait Contender: Sync + Sized + 'static {
    const NAME: &'static str;
    const KIND: Kind = Kind::Keyed;
    /// A rough upper bound, used to skip what would not fit in memory.
    const BYTES_PER_KEY: usize = 400;

    /// `keys` is how many distinct keys will come. A limiter that grows by
    /// itself ignores it; it is for those that must be told a bound.
    fn new(keys: usize, allowance: Allowance) -> Self;

    /// Decides one request; true if it is allowed.
    fn check(&self, key: &Key) -> bool;
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// State per key: measured everywhere.
    Keyed,
    /// No limiter but a yardstick: speed only.
    Floor,
    /// Knows only the first key: the hot key only.
    OneKey,
    /// No limiter but a yardstick: growth only.
    Growth,
}

/// A contender before it is built.
#[derive(Clone, Copy)]
pub struct Entry {
    pub name: &'static str,
    pub kind: Kind,
    pub bytes_per_key: usize,
    pub build: fn(usize, Allowance) -> Box<dyn Runner>,
}

fn entry<C: Contender>() -> Entry {
    Entry {
        name: C::NAME,
        kind: C::KIND,
        bytes_per_key: C::BYTES_PER_KEY,
        build: |keys, allowance| Box::new(C::new(keys, allowance)),
    }
}

/// Every contender, in the order of the tables.
pub fn all() -> Vec<Entry> {
    vec![
        entry::<floors::Empty>(),
        entry::<floors::Fresh>(),
        entry::<floors::Floor>(),
        entry::<floors::FloorGcra>(),
        entry::<own::Tollgate>(),
        entry::<own::TollgateFull>(),
        entry::<own::TollgateStack>(),
        entry::<peers::Governor>(),
        entry::<peers::Throttlecrab>(),
        entry::<peers::RatelimitDashMap>(),
        entry::<peers::PingoraLimits>(),
        entry::<peers::Limitador>(),
        entry::<peers::LimitadorPrebuilt>(),
    ]
}

/// Overwrites `into` with the key numbered `number`.
pub fn write_key(into: &mut Key, number: usize) {
    use std::fmt::Write;
    into.clear();
    let _ = write!(into, "user:{number:019}");
}

/// The key numbered `number`.
pub fn key(number: usize) -> Key {
    let mut key = Key::with_capacity(24);
    write_key(&mut key, number);
    key
}
