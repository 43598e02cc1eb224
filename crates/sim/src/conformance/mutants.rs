//! Stores with one flaw each. A suite that does not notice one is not worth passing.

use std::convert::Infallible;

use tokio::task::yield_now;
use tollgate::{
    Charge, Clock, Intent, Key, Limit, Micros, Outcome, Outcomes, ReservationId, Settled, Settlement, Store,
    SystemClock, Timestamp,
};

use super::{Model, Time};

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    /// Nothing.
    None,
    /// Uses its own time, as a shared store does.
    OwnTime,
    /// A denial does not take back what the charges before it took.
    HalfAStack,
    /// A denial tells the others what they would have had.
    WouldHave,
    /// The same counter twice in a call is only the last of them.
    LastOfEqualsWins,
    /// A renewal that fails keeps others from theirs.
    AllOrNothingRenewals,
    /// Peeks are spends.
    PeeksSpend,
    /// Looks first and takes later.
    ChecksThenActs,
    /// A batch is a stack.
    BatchIsAStack,
    /// Values are joined by a colon.
    JoinsValues,
    /// Long values are cut off.
    CutsValues,
    /// Keys are lossy text.
    DecodesValues,
    /// Every limit has the same number.
    OneNumber,
    /// A changed limit forgets.
    ForgetsOnChange,
    /// All slots are nobody's.
    IgnoresLeases,
    /// Reservations never expire.
    HoldsForever,
    /// Every settlement is welcome.
    SettlesAnything,
    /// A cancellation is a commit.
    CancelsNothing,
    /// The actual cost is never more than was reserved.
    NeverChargesMore,
    /// What does not fit is reserved all the same.
    ReservesDenied,
    /// Large costs are cut to 32 bits.
    NarrowCosts,
    /// Time stands still.
    StandsStill,
}

struct Flawed {
    flaw: Flaw,
    model: Model,
    clock: SystemClock,
}

impl Flawed {
    fn new(flaw: Flaw) -> Self {
        Self { flaw, model: Model::default(), clock: SystemClock::new() }
    }

    fn time(&self, given: Timestamp) -> Timestamp {
        match self.flaw {
            Flaw::OwnTime => self.clock.now(),
            Flaw::StandsStill => Time::Given.start(),
            _ => given,
        }
    }

    fn values(&self, key: &Key<'_>) -> Vec<Vec<u8>> {
        let values = key.values.iter();
        match self.flaw {
            Flaw::JoinsValues => vec![key.values.join(&b':')],
            Flaw::CutsValues => values.map(|value| value.iter().copied().take(1 << 16).collect()).collect(),
            Flaw::DecodesValues => values.map(|value| String::from_utf8_lossy(value).into_owned().into()).collect(),
            _ => values.map(|value| value.to_vec()).collect(),
        }
    }

    /// Charges as this store understands them.
    fn bent<R>(&self, charges: &[Charge<'_>], f: impl FnOnce(&[Charge<'_>]) -> R) -> R {
        let owned: Vec<Vec<Vec<u8>>> = charges.iter().map(|charge| self.values(&charge.key)).collect();
        let values: Vec<Vec<&[u8]>> = owned.iter().map(|values| values.iter().map(Vec::as_slice).collect()).collect();
        let mut bent = Vec::new();
        for (charge, values) in charges.iter().zip(&values) {
            let number = match self.flaw {
                Flaw::OneNumber => 0,
                Flaw::ForgetsOnChange => charge.key.limit ^ fingerprint(charge.limit),
                _ => charge.key.limit,
            };
            let cost = if self.flaw == Flaw::NarrowCosts { charge.cost & 0xffff_ffff } else { charge.cost };
            let lease = if self.flaw == Flaw::IgnoresLeases { 0 } else { charge.lease };
            bent.push(Charge { key: Key::new(number, values), cost, lease, ..*charge });
        }
        f(&bent)
    }

    fn stack(&self, charges: &[Charge<'_>], intent: Intent, now: Timestamp) -> Outcomes {
        let each =
            |intent: Intent| charges.iter().flat_map(move |charge| self.model.apply_all(&[*charge], intent, now));
        match (self.flaw, intent) {
            (Flaw::HalfAStack, Intent::Spend) => each(intent).collect(),
            (Flaw::LastOfEqualsWins, _) => {
                let mut last = charges.to_vec();
                for (index, charge) in charges.iter().enumerate() {
                    if charges.iter().skip(index + 1).any(|later| later.key == charge.key) {
                        last[index].cost = 0;
                    }
                }
                self.model.apply_all(&last, intent, now)
            }
            (Flaw::WouldHave, Intent::Spend) => {
                let mut outcomes = self.model.apply_all(charges, intent, now);
                if outcomes.iter().any(Outcome::denied) {
                    for (outcome, charge) in outcomes.iter_mut().zip(charges).filter(|(outcome, _)| outcome.allowed) {
                        outcome.remaining = outcome.remaining.saturating_sub(charge.cost);
                    }
                }
                outcomes
            }
            (Flaw::AllOrNothingRenewals, Intent::Renew) => {
                let all = each(Intent::Peek).zip(charges).all(|(_, charge)| charge.lease == charges[0].lease)
                    && charges.len() == 1;
                self.model.apply_all(charges, if all { intent } else { Intent::Peek }, now)
            }
            (Flaw::PeeksSpend, Intent::Peek) => self.model.apply_all(charges, Intent::Spend, now),
            _ => self.model.apply_all(charges, intent, now),
        }
    }
}

fn fingerprint(limit: &Limit) -> u64 {
    format!("{:?}{:?}", limit.algorithm(), limit.softness())
        .bytes()
        .fold(7, |sum, byte| tollgate::core::mix(sum ^ u64::from(byte)))
}

impl Store for Flawed {
    type Error = Infallible;

    async fn apply(&self, charges: &[Charge<'_>], intent: Intent, now: Timestamp) -> Result<Outcomes, Infallible> {
        let now = self.time(now);
        if self.flaw == Flaw::ChecksThenActs && intent == Intent::Spend {
            let outcomes = self.stack(charges, Intent::Peek, now);
            yield_now().await;
            let denied = outcomes.iter().any(Outcome::denied);
            return Ok(self.stack(charges, if denied { Intent::Spend } else { Intent::Force }, now));
        }
        Ok(self.bent(charges, |charges| self.stack(charges, intent, now)))
    }

    async fn apply_each(
        &self,
        charges: &[Charge<'_>],
        intent: Intent,
        now: Timestamp,
    ) -> Result<Vec<Outcome>, Infallible> {
        let now = self.time(now);
        if self.flaw == Flaw::BatchIsAStack {
            return Ok(self.stack(charges, intent, now).into_vec());
        }
        let each = |charges: &[Charge<'_>]| {
            charges.iter().flat_map(|charge| self.stack(&[*charge], intent, now)).collect::<Vec<_>>()
        };
        Ok(self.bent(charges, each))
    }

    async fn reserve(
        &self,
        charges: &[Charge<'_>],
        hold: Micros,
        now: Timestamp,
    ) -> Result<(Outcomes, Option<ReservationId>), Infallible> {
        let now = self.time(now);
        let hold = if self.flaw == Flaw::HoldsForever { Micros::MAX } else { hold };
        let (outcomes, name) = self.bent(charges, |charges| self.model.reserve_all(charges, hold, now));
        let anyhow = (self.flaw == Flaw::ReservesDenied).then_some(ReservationId(0));
        Ok((outcomes, name.or(anyhow)))
    }

    async fn settle(
        &self,
        reservation: ReservationId,
        settlement: Settlement<'_>,
        now: Timestamp,
    ) -> Result<Settled, Infallible> {
        let settlement = match (self.flaw, settlement) {
            (Flaw::CancelsNothing, Settlement::Cancel) => Settlement::Commit,
            (Flaw::NeverChargesMore, Settlement::CommitActual(actual)) if actual.iter().any(|actual| *actual > 3) => {
                Settlement::Commit
            }
            _ => settlement,
        };
        let settled = self.model.settle_now(reservation, settlement, self.time(now));
        Ok(if self.flaw == Flaw::SettlesAnything { Settled::Done } else { settled })
    }
}

/// Every case named here must notice the flaw.
macro_rules! noticed {
    ($($test:ident: $flaw:ident by $($case:ident)+;)*) => {
        $(
            #[tokio::test]
            async fn $test() {
                let maker = || async { Flawed::new(Flaw::$flaw) };
                $(assert!(super::$case(&maker, Time::Given).await.is_err(), "{} misses it", stringify!($case));)+
            }
        )*
    };
}

noticed! {
    half_a_stack: HalfAStack by all_or_nothing all_intents opposite_orders_stay_exact;
    would_have: WouldHave by what_is_reported_is_what_is all_intents;
    last_of_equals_wins: LastOfEqualsWins by equal_counters_add_up all_intents;
    all_or_nothing_renewals: AllOrNothingRenewals by other_intents_apply_to_each all_intents;
    peeks_spend: PeeksSpend by peek_changes_nothing all_intents;
    checks_then_acts: ChecksThenActs by one_place_left_admits_one a_crowd_is_served_as_a_line;
    batch_is_a_stack: BatchIsAStack by one_call_for_many_keys batches_equal_single_calls;
    joins_values: JoinsValues by hostile_keys_stay_apart;
    cuts_values: CutsValues by hostile_keys_stay_apart;
    decodes_values: DecodesValues by hostile_keys_stay_apart;
    one_number: OneNumber by limit_numbers_stay_apart all_intents;
    forgets_on_change: ForgetsOnChange by equal_lineage_goes_on;
    ignores_leases: IgnoresLeases by slots_are_held_and_released only_the_holder_renews leases_expire renewed_leases_last;
    holds_forever: HoldsForever by what_is_not_settled_expires all_that_expired_is_given_back all_intents_over_time;
    settles_anything: SettlesAnything by settled_only_once a_reservation_ends_once;
    cancels_nothing: CancelsNothing by cancel_restores settled_only_once;
    never_charges_more: NeverChargesMore by actual_cost_is_what_counts;
    reserves_denied: ReservesDenied by denied_holds_nothing all_intents;
    narrow_costs: NarrowCosts by extreme_costs;
    stands_still: StandsStill by all_intents_over_time leases_expire windows_roll_under_a_crowd;
}

mod model {
    use super::{Flaw, Flawed};
    crate::conformance_tests! { #[tokio::test] given_time: || async { Flawed::new(Flaw::None) } }
}

mod own_time {
    use super::{Flaw, Flawed};
    crate::conformance_tests! { #[tokio::test] own_time: || async { Flawed::new(Flaw::OwnTime) } }
}
