//! tollgate's own limits: stacks that pass together, attributes, shadows, units, reservations, waiting and slots.

use super::asking::{Gate, START, advance, alone, ask, costing, entries, gate, of, passing, ready, request, rules};
use tollgate::rules::{OnLimit, Part};
use tollgate::{Check, Engine, ManualClock, MemoryStore, Micros, Settled, Settlement, Timestamp, Tollgate, Verdict};

/// What is left of each limit that was asked.
fn left(verdict: &Verdict) -> Vec<u64> {
    verdict.tolls.iter().map(|toll| toll.outcome.remaining).collect()
}

#[test]
fn a_stack_passes_as_a_whole_or_charges_nothing() {
    let gate = gate(
        "domain: d\nrules:\n- {per: user, limits: [{rate: 2/s, algorithm: fixed_window}, {rate: 5/h, algorithm: fixed_window}]}\n",
    );
    assert_eq!(left(&ask(&gate, "user=1", 2)), [0, 3]);
    for _ in 0..10 {
        let denied = ask(&gate, "user=1", 1);
        assert!(denied.denied());
        assert_eq!(left(&denied), [0, 3], "the hour is not charged for what the second denies");
        assert_eq!(denied.retry_after(), Some(Micros::SECOND));
    }
    advance(&gate, Micros::SECOND);
    assert_eq!(left(&ask(&gate, "user=1", 2)), [0, 1]);
    advance(&gate, Micros::SECOND);
    let denied = ask(&gate, "user=1", 2);
    assert_eq!((denied.allowed, left(&denied)), (false, vec![2, 1]), "nor the second for what the hour denies");
    assert_eq!(denied.binding().map(|toll| toll.limit), Some(1));
}

#[test]
fn stacks_hold_for_descriptors_too() {
    let gate = gate(
        "domain: d\ndescriptors:\n- {key: a, limits: {rate: 2/s, algorithm: fixed_window}}\n- {key: b, limits: [{rate: 1/s, algorithm: fixed_window}, {rate: 9/h, algorithm: fixed_window}]}\n",
    );
    assert_eq!(alone(&gate, costing("a=1", 3)), "OVER 2/2", "a denial charges nothing");
    assert_eq!(alone(&gate, costing("a=1", 2)), "OK 0/2");
    assert_eq!(left(&request(&gate, &[of("b=1")])), [0, 8]);
    assert_eq!(left(&request(&gate, &[of("b=1")])), [0, 8]);
}

/// [B9] All rules of a request pass or none is charged.
#[test]
fn a_global_denial_does_not_consume_the_limit_of_an_address() {
    let gate = gate(
        "domain: d\nrules:\n- {name: all, limits: {rate: 3/s, algorithm: fixed_window}}\n- {name: ip, per: ip, limits: {rate: 5/h, algorithm: fixed_window}}\n",
    );
    assert_eq!(passing(&gate, "ip=1.1.1.1", 3), 3);
    let denied = ask(&gate, "ip=1.1.1.1", 1);
    assert_eq!(denied.binding().and_then(|toll| denied.rule(toll)).map(|rule| &*rule.name), Some("all"));
    assert_eq!(passing(&gate, "ip=2.2.2.2", 9), 0);
    advance(&gate, Micros::SECOND);
    assert_eq!(passing(&gate, "ip=1.1.1.1", 3), 2, "three of five an hour were charged");
    advance(&gate, Micros::SECOND);
    assert_eq!(passing(&gate, "ip=2.2.2.2", 9), 3, "nothing was charged here");
}

/// [D9] What was kept for later pays by then what keeps it, and has a slot for as long as it takes; the rest it has paid.
#[test]
fn what_is_kept_pays_in_two_parts_and_holds_slots_in_both() {
    let gate = gate(
        "domain: d\nrules:\n- {name: r, limits: [{rate: 9/h, algorithm: fixed_window}, {rate: 5/h, algorithm: fixed_window, on_limit: enqueue}, {concurrency: 2}]}\n",
    );
    let asked = |part| {
        let verdict = ready(gate.check(&Check::attributes("d", &[]).part(part))).unwrap();
        verdict.tolls.iter().map(|toll| (toll.limit, toll.outcome.remaining)).collect::<Vec<_>>()
    };
    assert_eq!(asked(Part::AtOnce), [(0, 8), (2, 1)]);
    assert_eq!(asked(Part::Later), [(1, 4), (2, 0)]);
    assert_eq!(asked(Part::All), [(0, 8), (1, 4), (2, 0)], "no slot is left, and so nothing is charged");
}

#[test]
fn nothing_met_is_allowed_and_asks_no_limit() {
    let gate = gate("domain: d\nrules:\n- {per: ip, limits: 1/s}\n- {when: {ip: 10.0.0.0/8}, limits: unlimited}\n");
    for asked in ["user=1", "ip=10.1.1.1", ""] {
        let verdict = ask(&gate, asked, 1_000);
        assert!(verdict.allowed && verdict.tolls.is_empty() && verdict.binding().is_none(), "{asked}");
    }
}

#[test]
fn a_shadow_counts_what_passes_and_is_only_asked_about_what_does_not() {
    let gate = gate(
        "domain: d\nrules:\n- {name: real, per: user, limits: {rate: 1/m, algorithm: fixed_window}}\n- {name: trial, limits: {rate: 2/h, algorithm: fixed_window}, mode: shadow}\n",
    );
    let shadow = |verdict: &Verdict| {
        let toll = verdict.tolls.iter().find(|toll| toll.shadow).expect("a shadow");
        (toll.outcome.allowed, toll.outcome.remaining)
    };
    assert_eq!(shadow(&ask(&gate, "user=1", 1)), (true, 1));
    let denied = ask(&gate, "user=1", 1);
    assert_eq!((denied.allowed, denied.retry_after()), (false, Some(Micros::MINUTE)), "not the shadow's hour");
    assert_eq!(shadow(&denied), (true, 1), "denied by the real one: asked, not charged");
    assert_eq!(shadow(&ask(&gate, "user=2", 1)), (true, 0));
    let third = ask(&gate, "user=3", 1);
    assert!(third.allowed, "a shadow denies nothing");
    assert_eq!(shadow(&third), (false, 0));
    assert_eq!((third.binding().map(|toll| toll.shadow), third.delay()), (Some(false), Micros::ZERO));
    let alone = ask(&gate, "", 1);
    assert_eq!((alone.allowed, alone.binding().is_none()), (true, true));
}

/// [C6] What is not named is not charged.
#[test]
fn units_are_charged_only_when_they_are_given() {
    let gate = gate(
        "domain: d\nrules:\n- {per: user, limits: [{rate: 3/m, algorithm: fixed_window}, {rate: 100 bytes/m, algorithm: fixed_window}]}\n",
    );
    let asked = entries("user=1");
    let check = Check::attributes("d", &asked);
    let left_of = |check: Check<'_>| left(&ready(gate.check(&check)).unwrap());
    assert_eq!(left_of(check), [2]);
    assert_eq!(left_of(check.costs(&[("bytes", 60)])), [1, 40]);
    assert_eq!(left_of(check.costs(&[("tokens", 60)])), [0]);
    assert_eq!(left_of(check.cost(0).costs(&[("bytes", 10)])), [0, 30], "no request, ten bytes");
    assert_eq!(left_of(check.cost(0).costs(&[("bytes", 0)])), [0, 30]);
    assert!(ready(gate.check(&check.cost(0).costs(&[("bytes", 31)]))).unwrap().denied());
    assert_eq!(left_of(check.cost(0).costs(&[("bytes", 30)])), [0, 0], "the denial charged nothing");
}

#[test]
fn what_costs_nothing_is_charged_nothing_however_it_is_counted() {
    let gate = gate(
        "domain: d\nrules:\n- {per: user, limits: {rate: 1/m, algorithm: fixed_window}}\ndescriptors:\n- {key: l, rate_limit: {unit: minute, requests_per_unit: 1}}\n",
    );
    for asked in ["user=1", "l=1"] {
        for _ in 0..5 {
            assert_eq!(left(&ask(&gate, asked, 0)), [1], "{asked}");
        }
        assert_eq!(passing(&gate, asked, 2), 1, "{asked}");
    }
}

/// [C6] Own limits answer alike however they are asked; `rate_limit` denies descriptors when it is exceeded, as
/// upstream.
#[test]
fn a_cost_of_zero_asks_what_remains_and_is_allowed() {
    let gate = gate(
        "domain: d\ndescriptors:\n- {key: own, limits: [{rate: 2/m, algorithm: fixed_window}, {rate: 100 bytes/m, algorithm: fixed_window}]}\n- {key: slots, limits: {concurrency: 2, lease: 30s}}\n- {key: lyft, rate_limit: {unit: minute, requests_per_unit: 2}}\n",
    );
    for asked in ["own=1", "slots=1", "lyft=1"] {
        for remaining in [2, 1, 0] {
            for _ in 0..3 {
                let by_attributes = ask(&gate, asked, 0);
                let by_descriptors = request(&gate, &[costing(asked, 0)]);
                for verdict in [by_attributes, by_descriptors] {
                    assert_eq!((verdict.allowed, left(&verdict)), (true, vec![remaining]), "{asked}");
                    assert_eq!((verdict.tolls[0].cost, verdict.tolls[0].outcome.limit), (0, 2), "{asked}");
                }
            }
            if remaining > 0 {
                assert!(ask(&gate, asked, 1).allowed, "{asked}");
            }
        }
        assert!(request(&gate, &[of(asked)]).denied(), "{asked}");
        assert!(ask(&gate, asked, 0).allowed, "{asked}");
        assert_eq!(request(&gate, &[costing(asked, 0)]).allowed, asked != "lyft=1", "exceeded: {asked}");
    }
    // No request, and what it costs in other units is charged both ways.
    let asked = entries("own=2");
    let descriptors = [tollgate::Descriptor::new(&asked)];
    for (check, remaining) in [(Check::attributes("d", &asked), 90), (Check::descriptors("d", &descriptors), 80)] {
        let verdict = ready(gate.check(&check.cost(0).costs(&[("bytes", 10)]))).unwrap();
        assert_eq!((verdict.allowed, left(&verdict)), (true, vec![2, remaining]));
    }
    let nothing = Check::descriptors("d", &descriptors).cost(0);
    let reserved = ready(gate.reserve(&nothing, Micros::MINUTE)).unwrap().0;
    assert!(reserved.allowed && reserved.tolls.is_empty(), "what costs nothing takes no part");
    let reserved = ready(gate.reserve(&nothing.costs(&[("bytes", 10)]), Micros::MINUTE)).unwrap().0;
    assert_eq!(left(&reserved), [2, 70]);
}

#[test]
fn what_is_to_happen_at_the_limit_is_told() {
    let gate = gate(
        "domain: d\nrules:\n- {name: one, per: a, limits: [{rate: 1/s, on_limit: {delay: 2s}}, {rate: 2/h, on_limit: enqueue}]}\n- {name: two, per: b, limits: 1/s, on_limit: {reject_slowly: 3s}}\n",
    );
    ask(&gate, "a=1 b=1", 1);
    assert_eq!(ask(&gate, "a=1", 1).on_limit(), OnLimit::Delay(Micros::from_secs(2)));
    assert_eq!(ask(&gate, "b=1", 1).on_limit(), OnLimit::RejectSlowly(Micros::from_secs(3)));
    advance(&gate, Micros::from_secs(2));
    assert!(ask(&gate, "a=1", 1).allowed);
    assert_eq!(ask(&gate, "a=1", 1).on_limit(), OnLimit::Enqueue, "who is kept is not to wait as well");
}

/// [A9] No limit is undone by another that is over for longer: of those that deny, the strictest says what happens, and
/// the longest says for how long.
#[test]
fn a_limit_that_rejects_does_so_whatever_others_say() {
    for (other, kept) in [
        ("enqueue", OnLimit::Enqueue),
        ("{delay: 10s}", OnLimit::Delay(Micros::from_secs(10))),
        ("{reject_slowly: 3s}", OnLimit::RejectSlowly(Micros::from_secs(3))),
    ] {
        let gate = gate(&format!(
            "domain: d\nrules:\n- {{name: all, limits: {{rate: 2/min, algorithm: fixed_window, on_limit: {other}}}}}\n\
             - {{name: ip, per: ip, limits: {{rate: 1/s, algorithm: fixed_window}}}}\n"
        ));
        assert!(ask(&gate, "ip=1", 1).allowed && ask(&gate, "ip=2", 1).allowed);
        let flood = ask(&gate, "ip=1", 1);
        assert_eq!((flood.allowed, flood.on_limit()), (false, OnLimit::Reject), "{other}");
        assert_eq!(flood.retry_after(), Some(Micros::MINUTE), "who waits that long is admitted");
        assert_eq!(flood.acting().and_then(|toll| flood.rule(toll)).map(|rule| &*rule.name), Some("ip"));
        assert_eq!(flood.binding().and_then(|toll| flood.rule(toll)).map(|rule| &*rule.name), Some("all"));
        let honest = ask(&gate, "ip=3", 1);
        assert_eq!((honest.allowed, honest.on_limit()), (false, kept), "nothing rejects this one");
        advance(&gate, Micros::MINUTE);
        let passed = ask(&gate, "ip=1", 1);
        assert!(passed.allowed && passed.acting().is_none());
    }
}

const TEN: &str = "domain: d\nrules:\n- {per: user, limits: {rate: 10/h, algorithm: fixed_window}}\n- {mode: shadow, limits: {rate: 1/h, algorithm: fixed_window}}\ndescriptors:\n- {key: l, rate_limit: {unit: hour, requests_per_unit: 3}}\n";

#[test]
fn reservations_are_committed_cancelled_or_expire() {
    let gate = gate(TEN);
    let asked = entries("user=1");
    let check = Check::attributes("d", &asked).cost(4);
    let reserve = || ready(gate.reserve(&check, Micros::MINUTE)).unwrap();
    let settle = |id, how| ready(gate.settle(id, how)).unwrap();
    let (verdict, first) = reserve();
    assert_eq!(left(&verdict), [6], "shadows take no part");
    let (_, second) = reserve();
    let (third, none) = reserve();
    assert!(third.denied() && none.is_none() && left(&third) == [2]);
    assert_eq!(settle(first.unwrap(), Settlement::Cancel), Settled::Done);
    assert_eq!(settle(first.unwrap(), Settlement::Cancel), Settled::Unknown);
    assert_eq!(settle(second.unwrap(), Settlement::CommitActual(&[1])), Settled::Done);
    assert_eq!(left(&ready(gate.peek(&check)).unwrap())[0], 9);
    let (_, third) = reserve();
    advance(&gate, Micros::from_secs(61));
    assert_eq!(left(&ready(gate.peek(&check)).unwrap())[0], 9, "what nobody settles is given back");
    assert_eq!(settle(third.unwrap(), Settlement::Commit), Settled::Unknown);
}

#[test]
fn a_reservation_of_descriptors_charges_all_or_none_and_leaves_peeks_out() {
    let gate = gate(TEN);
    let (one, two) = (entries("l=1"), entries("l=2"));
    let new = tollgate::Descriptor::new;
    let both = [new(&one).cost(2), new(&two), new(&two).cost(0)];
    let check = Check::descriptors("d", &both);
    let (first, id) = ready(gate.reserve(&check, Micros::MINUTE)).unwrap();
    assert_eq!((first.allowed, left(&first)), (true, vec![1, 2]));
    let (second, none) = ready(gate.reserve(&check, Micros::MINUTE)).unwrap();
    assert!(second.denied() && none.is_none());
    ready(gate.settle(id.unwrap(), Settlement::Commit)).unwrap();
    assert_eq!(alone(&gate, costing("l=2", 0)), "OK 2/3");
}

#[tokio::test]
async fn waiting_takes_its_turn() {
    let rules = rules("domain: d\nrules:\n- {per: user, limits: {rate: 1/s, algorithm: token_bucket}}\n");
    let clock = ManualClock::at(Timestamp::from_secs(1_000));
    let gate = Tollgate::with_engine(rules, Engine::with_clock(MemoryStore::new(), clock));
    let asked = entries("user=1");
    let check = Check::attributes("d", &asked);
    assert!(gate.wait(&check, Micros::SECOND).await.unwrap().allowed);
    let waiting = gate.wait(&check, Micros::SECOND);
    let turning = async {
        tokio::task::yield_now().await;
        assert_eq!(gate.engine().clock().next_due(), Some(Timestamp::from_secs(1_001)));
        gate.engine().clock().advance(Micros::SECOND);
    };
    let (waited, ()) = tokio::join!(waiting, turning);
    assert_eq!(waited.map(|verdict| (verdict.allowed, verdict.at)), Ok((true, Timestamp::from_secs(1_001))));
    let hopeless = gate.wait(&check, Micros::from_millis(999)).await.unwrap();
    assert_eq!((hopeless.allowed, hopeless.retry_after()), (false, Some(Micros::SECOND)), "denied without waiting");
}

#[test]
fn what_a_descriptor_gives_back_wakes_who_waits() {
    let gate = gate(TEN);
    assert_eq!(alone(&gate, costing("l=1", 3)), "OK 0/3");
    let asked = entries("l=1");
    let descriptors = [tollgate::Descriptor::new(&asked)];
    let check = Check::descriptors("d", &descriptors);
    let mut waiting = std::pin::pin!(gate.wait(&check, Micros::HOUR));
    assert!(waiting.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop())).is_pending());
    // What waits was denied once, which counts: two have to go before there is room for one.
    let back = super::asking::Asked { refund: true, ..costing("l=1", 2) };
    assert!(request(&gate, &[back]).allowed);
    assert!(ready(waiting).unwrap().allowed, "the clock stood still");
}

/// [E5] Slots, through rules.
#[test]
fn slots_are_taken_renewed_and_released() {
    let gate = gate(
        "domain: d\nrules:\n- {per: user, limits: [{concurrency: 2, lease: 30s}, {rate: 4/h, algorithm: fixed_window}]}\n",
    );
    let asked = entries("user=1");
    let held_by = |lease| Check::attributes("d", &asked).lease(lease);
    let take = |lease| ready(gate.check(&held_by(lease))).unwrap().allowed;
    assert_eq!([1, 2, 3].map(take), [true, true, false]);
    let released = ready(gate.release(&held_by(2))).unwrap();
    assert_eq!((released.allowed, left(&released)), (true, vec![1]), "the slot, and only the slot");
    assert!(take(3), "the third of four an hour");
    advance(&gate, Micros::from_secs(20));
    assert!(ready(gate.renew(&held_by(1))).unwrap().allowed, "the rate beside it is not asked");
    advance(&gate, Micros::from_secs(20));
    assert!(take(4), "that of 3 expired");
    assert!(!take(5), "1 was renewed; and the hour is used up");
    advance(&gate, Micros::from_secs(20));
    assert!(ready(gate.renew(&held_by(3))).unwrap().denied(), "gone");
}

#[test]
fn addresses_are_counted_by_network() {
    let gate = gate(
        "domain: d\nrules:\n- {name: six, per: ip/64, limits: {rate: 2/h, algorithm: fixed_window}}\n- {name: four, per: [{key: ip, v4: 24, v6: 48}, host], limits: {rate: 2/h, algorithm: fixed_window}}\n",
    );
    assert_eq!(passing(&gate, "ip=2001:db8:0:1::1", 1) + passing(&gate, "ip=2001:db8:0:1:ffff::2", 2), 2);
    assert_eq!(passing(&gate, "ip=[2001:db8:0:1::3]", 1), 0, "in brackets");
    assert_eq!(passing(&gate, "ip=2001:db8:0:2::1", 3), 2, "the next network");
    assert_eq!(passing(&gate, "ip=192.0.2.1", 1) + passing(&gate, "ip=::ffff:192.0.2.1", 2), 2);
    assert_eq!(passing(&gate, "ip=192.0.2.2", 3), 2, "the next address");
    assert_eq!(passing(&gate, "ip=unknown", 3), 2, "what is no address is itself");
    assert_eq!(passing(&gate, "ip=198.51.100.1 host=a", 1) + passing(&gate, "ip=198.51.100.9 host=a", 2), 2);
    assert_eq!(passing(&gate, "ip=198.51.100.7 host=b", 1), 1);
}

#[test]
fn peek_force_and_refund_do_what_they_say() {
    let gate = gate(TEN);
    let asked = entries("user=1");
    let check = Check::attributes("d", &asked).cost(6);
    let first = |verdict: Verdict| (verdict.allowed, verdict.tolls[0].outcome.remaining);
    assert_eq!(first(ready(gate.peek(&check)).unwrap()), (true, 10));
    let charged = ready(gate.check(&check)).unwrap();
    let at = charged.at;
    assert_eq!(first(charged), (true, 4));
    assert_eq!(first(ready(gate.force(&check)).unwrap()), (true, 0));
    assert_eq!(first(ready(gate.refund(&check, at)).unwrap()), (true, 4));
    assert_eq!(first(ready(gate.refund(&check.cost(99), at)).unwrap()), (true, 10));
}

#[test]
fn the_only_charge_of_a_check_is_handed_over_and_nothing_is_decided_by_that() {
    let gate = gate(
        "domain: d\nrules:\n- {name: user, per: user, limits: 3/min}\n- {name: plan, per: plan, limits: [5/min, 9/h]}",
    );
    let only = |text: &str| {
        let entries = entries(text);
        let check = Check::attributes("d", &entries).cost(2);
        let store = gate.engine().store();
        gate.with_only_charge(&check, |charge| {
            // What was counted by rules is what is met here.
            (charge.cost, store.apply_one(charge, tollgate::Intent::Peek, START).remaining)
        })
    };
    assert_eq!(only("user=a"), Some((2, 3)));
    assert_eq!(ask(&gate, "user=a", 1).tolls[0].outcome.remaining, 2);
    assert_eq!(only("user=a"), Some((2, 2)));
    for none_or_several in ["other=a", "plan=a", "user=a plan=a"] {
        assert_eq!(only(none_or_several), None, "{none_or_several}");
    }
}

/// A limit for everybody that delays, beside one for each address that rejects.
const DELAYED: &str = "domain: d\nrules:\n\
    - {name: all, limits: {rate: 10/s, burst: 1, algorithm: token_bucket, on_limit: {delay: 1s}}}\n\
    - {name: ip, per: ip, limits: {rate: 3/min, algorithm: fixed_window}}\n";

/// Whether it was allowed, its place in line, and what is to be done.
type ToldOne = (bool, usize, OnLimit);

/// Who waits, by address, and what became of it: polled once, so that it takes its place.
struct Waiting<'g> {
    gate: &'g Gate,
    all: Vec<std::pin::Pin<Box<dyn Future<Output = ToldOne> + 'g>>>,
    told: Vec<Option<ToldOne>>,
}

impl<'g> Waiting<'g> {
    fn new(gate: &'g Gate) -> Self {
        Self { gate, all: Vec::new(), told: Vec::new() }
    }

    fn come(&mut self, ip: &str) {
        let (gate, asked) = (self.gate, format!("ip={ip}"));
        self.all.push(Box::pin(async move {
            let (verdict, position) = gate.wait_by_rules(&Check::attributes("d", &entries(&asked))).await.unwrap();
            (verdict.allowed, position, verdict.on_limit())
        }));
        self.told.push(None);
        self.step();
    }

    fn step(&mut self) {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        for _ in 0..self.all.len() {
            for (one, told) in self.all.iter_mut().zip(&mut self.told) {
                if told.is_none()
                    && let std::task::Poll::Ready(answer) = one.as_mut().poll(&mut context)
                {
                    *told = Some(answer);
                }
            }
        }
    }

    /// Who has been told, after so long.
    fn after(&mut self, time: Micros) -> Vec<usize> {
        advance(self.gate, time);
        self.step();
        self.told.iter().enumerate().filter(|(_, told)| told.is_some()).map(|(number, _)| number).collect()
    }
}

/// [D8, B14] First come, first served, among all who wait for the same counter: each is told its place, and who would
/// come too late for those ahead is told so at once.
#[test]
fn those_who_wait_for_one_counter_are_one_line_whoever_they_are() {
    let gate = gate(DELAYED);
    let mut waiting = Waiting::new(&gate);
    for ip in 0..15 {
        waiting.come(&ip.to_string());
    }
    // Ten fit into the second that one may wait, behind the one that passed.
    let refused: Vec<usize> = (11..15).collect();
    assert_eq!(waiting.after(Micros::ZERO), [vec![0], refused.clone()].concat());
    assert!(refused.iter().all(|late| waiting.told[*late] == Some((false, 11, OnLimit::Delay(Micros::SECOND)))));
    for passed in 1..=10 {
        let told = waiting.after(Micros::from_millis(100));
        assert_eq!(told, (0..=passed).chain(refused.iter().copied()).collect::<Vec<_>>());
        assert_eq!(waiting.told[passed], Some((true, passed, OnLimit::Reject)), "its place, and no denial");
    }
    assert_eq!(gate.engine().waiting(), 0);
}

/// [A9] Nobody stands in line for what its own limit rejects, so that a flood keeps no others out.
#[test]
fn a_flood_does_not_fill_the_line() {
    let gate = gate(DELAYED);
    let mut waiting = Waiting::new(&gate);
    waiting.come("other");
    for _ in 0..50 {
        waiting.come("flood");
    }
    let rejected = |waiting: &Waiting<'_>| {
        waiting.told.iter().flatten().filter(|told| (told.0, told.2) == (false, OnLimit::Reject)).count()
    };
    assert_eq!((rejected(&waiting), gate.engine().waiting()), (47, 3), "as many as it may send");
    for ip in 0..7 {
        waiting.come(&ip.to_string());
    }
    assert_eq!((rejected(&waiting), gate.engine().waiting()), (47, 10), "others have the rest of the line");
    for _ in 0..10 {
        waiting.after(Micros::from_millis(100));
    }
    let passed = waiting.told.iter().flatten().filter(|told| told.0).count();
    assert_eq!((passed, gate.engine().waiting()), (11, 0));
    // Its limit is spent now: it is not even put in line.
    waiting.come("another");
    waiting.come("flood");
    assert_eq!((rejected(&waiting), gate.engine().waiting()), (48, 1), "and another is");
}
