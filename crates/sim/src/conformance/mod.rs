//! The contract of [`tollgate::Store`], as a suite that any store must pass.
//!
//! A store is judged in three lines, which become one test for each demand:
//!
//! ```
//! tollgate_sim::conformance_tests! {
//!     #[tokio::test(flavor = "multi_thread")] given_time: || async { tollgate::MemoryStore::new() }
//! }
//! ```
//!
//! The expression makes a store that holds nothing yet; it is called often. `given_time` is for stores that decide at
//! the time they are given, and makes every case exact to the microsecond. A store that decides at its own time says
//! `own_time` instead: its limits are then so slow that no time passes during the suite, times are not compared, and
//! the cases that have to step time are not among its tests.
//!
//! What a store must answer is told by a [`Model`]: the core's states in a map under one lock. [`CASES`] lists what is
//! demanded.

mod batches;
mod changes;
mod crowds;
mod duel;
mod keys;
mod leases;
mod limits;
mod model;
#[cfg(test)]
mod mutants;
mod reservations;
mod scripts;
mod stacks;

use std::future::Future;

use tollgate::{Clock, Limit, Store, SystemClock, Timestamp};

pub use self::model::Model;

/// Kept, or how it was broken.
pub type Kept = Result<(), String>;

/// At which time a store decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    /// The one that it is given.
    Given,
    /// Its own.
    Own,
}

impl Time {
    /// When a case begins: near the store's own time, if it has one.
    fn start(self) -> Timestamp {
        match self {
            Self::Given => Timestamp::from_secs(1_700_000_000),
            Self::Own => SystemClock::new().now(),
        }
    }
}

/// One limit of every algorithm and variant, in small numbers and short times.
pub fn one_of_each() -> Result<Vec<Limit>, String> {
    limits::all(Time::Given)
}

/// Makes stores to be judged, each as if it were the first.
pub trait Maker {
    /// What it makes.
    type Store: Store + 'static;

    /// A store that holds nothing yet.
    fn make(&self) -> impl Future<Output = Self::Store>;
}

impl<F, M, S> Maker for F
where
    F: Fn() -> M,
    M: Future<Output = S>,
    S: Store + 'static,
{
    type Store = S;

    fn make(&self) -> impl Future<Output = S> {
        self()
    }
}

/// One demand.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Its name, which is also that of its test.
    pub name: &'static str,
    /// What is demanded.
    pub demand: &'static str,
    /// Whether it can be judged only if time can be given.
    pub needs_given_time: bool,
}

/// The list of cases, once for all who need it. Calls `$to` with it.
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_cases {
    ([$($to:tt)+] $($arguments:tt)*) => {
        $($to)+! {
            $($arguments)*
            any_time {
                scripts::all_intents "Random calls of every intent are answered as by the model, outcome for outcome.";
                stacks::all_or_nothing
                    "A denial by one of several charges charges the others nothing, wherever it stands.";
                stacks::what_is_reported_is_what_is
                    "Beside a denial, the others are told what they have, not what they would have had.";
                stacks::equal_counters_add_up "Two charges of one counter in one call count as one of their sum.";
                stacks::other_intents_apply_to_each
                    "Only a spend is all or nothing: other intents take effect wherever they can.";
                stacks::nothing_asked_nothing_denied "A call without charges is admitted and has no outcomes.";
                stacks::peek_changes_nothing "After any number of peeks every answer is as if there had been none.";
                stacks::extreme_costs "Costs up to the largest integer neither wrap nor stick.";
                batches::one_call_for_many_keys "500 keys in one call are each answered on their own, in order.";
                batches::batches_equal_single_calls
                    "A batch, with repeated keys too, answers as its charges one by one.";
                reservations::commit_keeps "A committed reservation stays spent.";
                reservations::cancel_restores "A cancelled reservation is given back, on every algorithm.";
                reservations::actual_cost_is_what_counts
                    "A commit of the actual cost gives the rest back, or charges what is missing in any case.";
                reservations::denied_holds_nothing "A denied reservation charges nothing and has no name.";
                reservations::settled_only_once
                    "A reservation that is settled, or never was, is unknown, and settling it changes nothing.";
                reservations::an_outcome_says_what_a_refund_must_name
                    "A refund that names when a charge could proceed gives it back, on every algorithm.";
                reservations::refunds_stop_at_fresh
                    "Giving back more than was taken makes a key as good as new and never better.";
                keys::hostile_keys_stay_apart
                    "Keys of any bytes, length and number of values are counters of their own.";
                keys::limit_numbers_stay_apart "The same values under another limit's number are another counter.";
                changes::equal_lineage_goes_on
                    "A changed limit of equal lineage goes on with the state of the old one.";
                changes::other_lineage_starts_anew
                    "A limit of another lineage starts anew and leaves the old state alone.";
                leases::slots_are_held_and_released "A slot is held until released by the lease that holds it.";
                leases::only_the_holder_renews "A lease that does not exist is not renewed.";
                crowds::one_place_left_admits_one "Of 64 at once at one below the limit exactly one is admitted.";
                crowds::two_increments_from_three_make_five "Two increments at once are both counted.";
                crowds::a_crowd_is_served_as_a_line
                    "64 at once get the answers that 64 in line would get, on every algorithm.";
                crowds::opposite_orders_stay_exact
                    "Stacks that share counters in opposite orders neither hang nor miscount.";
                crowds::a_reservation_ends_once
                    "Of 64 settlements of one reservation at once exactly one takes effect.";
            }
            given_time {
                scripts::all_intents_over_time
                    "Random calls over time, on what was promised and a microsecond beside it, are answered as by the model.";
                scripts::backwards_earns_nothing "A time before one that was given earlier earns nothing.";
                reservations::what_is_not_settled_expires
                    "A reservation is given back when its hold is over, not before, and unknown from then on.";
                reservations::all_that_expired_is_given_back
                    "Reservations that expire together are given back together, all places of a queue included.";
                reservations::cancel_after_the_window_rolled
                    "What was reserved in a window that is over is not given back to the next one.";
                leases::leases_expire "A slot that is neither released nor renewed is free when its lease is over.";
                leases::renewed_leases_last "A renewed lease lasts from its renewal on.";
                crowds::windows_roll_under_a_crowd
                    "Windows that roll while many ask admit their limit each, no more and no less.";
            }
        }
    };
}

macro_rules! define_cases {
    (
        any_time { $($any_room:ident::$any:ident $any_demand:literal;)* }
        given_time { $($given_room:ident::$given:ident $given_demand:literal;)* }
    ) => {
        /// All that is demanded.
        pub const CASES: &[Case] = &[
            $(Case { name: stringify!($any), demand: $any_demand, needs_given_time: false },)*
            $(Case { name: stringify!($given), demand: $given_demand, needs_given_time: true },)*
        ];
        $(
            #[doc = $any_demand]
            pub async fn $any(maker: &impl Maker, time: Time) -> Kept {
                named(stringify!($any), $any_demand, $any_room::$any(maker, time).await)
            }
        )*
        $(
            #[doc = $given_demand]
            ///
            /// Only for stores that decide at the time they are given.
            pub async fn $given(maker: &impl Maker, _time: Time) -> Kept {
                named(stringify!($given), $given_demand, $given_room::$given(maker).await)
            }
        )*
    };
}
conformance_cases!([define_cases]);

fn named(name: &str, demand: &str, kept: Kept) -> Kept {
    kept.map_err(|how| format!("{name}: {demand}\n{how}"))
}

/// One test for each case. See [the module](crate::conformance).
#[macro_export]
macro_rules! conformance_tests {
    ($(#[$test:meta])+ given_time: $maker:expr) => {
        $crate::conformance_cases! { [$crate::conformance_tests] @given [$(#[$test])+] [$maker] }
    };
    ($(#[$test:meta])+ own_time: $maker:expr) => {
        $crate::conformance_cases! { [$crate::conformance_tests] @own [$(#[$test])+] [$maker] }
    };
    (@given $test:tt $maker:tt
        any_time { $($any_room:ident::$any:ident $any_demand:literal;)* }
        given_time { $($given_room:ident::$given:ident $given_demand:literal;)* }
    ) => {
        $($crate::conformance_tests! { @one $test $maker $any Given })*
        $($crate::conformance_tests! { @one $test $maker $given Given })*
    };
    (@own $test:tt $maker:tt
        any_time { $($room:ident::$case:ident $demand:literal;)* }
        given_time { $($rest:tt)* }
    ) => {
        $($crate::conformance_tests! { @one $test $maker $case Own })*
    };
    (@one [$(#[$test:meta])+] [$maker:expr] $case:ident $time:ident) => {
        $(#[$test])+
        async fn $case() {
            if let Err(broken) = $crate::conformance::$case(&$maker, $crate::conformance::Time::$time).await {
                panic!("{broken}");
            }
        }
    };
}

/// Leaves the case with a text if something that is demanded does not hold.
macro_rules! demand {
    ($holds:expr, $($text:tt)+) => {
        if !$holds {
            return Err(format!($($text)+));
        }
    };
}
use demand;
