//! How wrong the sliding counter is: a small version of what the `misjudgement` example measures at length.

use tollgate_core::{Micros, SlidingCounter, SlidingLog, Timestamp};
use tollgate_sim::misjudgement::{Comparison, Tally};
use tollgate_sim::workload::{ByClient, ByPopularity, OnOff, Poisson, Request, Zipf};

use crate::transcript::{Gate, at};

const REQUESTS: usize = 100_000;

fn compared(limit: u64, requests: impl Iterator<Item = Request>) -> Vec<Tally> {
    let mut comparison = Comparison::new(limit, Micros::MINUTE, &[1, 4, 10, 60]).expect("a valid limit");
    requests.take(REQUESTS).for_each(|request| comparison.feed(request));
    comparison.tallies().map(|(_, tally)| tally.clone()).collect()
}

fn clients<A: Iterator<Item = Timestamp>>(number: u64, client: impl Fn(u64) -> A) -> ByClient<A> {
    ByClient::new((0..number).map(client))
}

/// [B28] More sub-windows, less error: in the estimate, in the verdicts, and in what a rolling window can hold.
#[test]
fn more_sub_windows_are_more_exact() {
    let start = at("0:00:00");
    let second = Micros::from_secs;
    let patterns = [
        ("at the limit", compared(30, clients(50, |client| Poisson::new(0.5, start, client)))),
        ("bursty", compared(30, clients(50, |client| OnOff::new(6.0, second(5), second(55), start, client)))),
        ("popular", compared(30, ByPopularity::new(Poisson::new(100.0, start, 1), Zipf::new(5_000, 1.0), 2))),
    ];
    for (name, tallies) in patterns {
        for pair in tallies.windows(2) {
            let [fewer, more] = pair else { continue };
            assert!(more.mean_error() < fewer.mean_error(), "{name}: {more:?} after {fewer:?}");
        }
        let (coarsest, finest) = (&tallies[0], &tallies[3]);
        assert!(finest.mean_error() * 5.0 < coarsest.mean_error(), "{name}: {finest:?} after {coarsest:?}");
        assert!(finest.misjudged() * 2.0 < coarsest.misjudged(), "{name}: {finest:?} after {coarsest:?}");
        assert!(finest.worst_window <= coarsest.worst_window, "{name}: {finest:?} after {coarsest:?}");
        assert!(finest.worst_window >= 30 && coarsest.worst_window < 60, "{name}: {coarsest:?}");
    }
}

/// [B29] Clients well below the limit or far above it are judged like the exact count does, when all requests count:
/// the kind of traffic of which 0.003 % was published.
#[test]
fn clients_far_from_the_limit_are_hardly_ever_misjudged() {
    let start = at("0:00:00");
    let rate = |client: u64| if client.is_multiple_of(100) { 300.0 } else { 6.0 };
    let tallies = compared(30, clients(500, |client| Poisson::new(rate(client) / 60.0, start, client)));
    for tally in tallies {
        assert!(tally.denied > 0, "nobody was above the limit");
        assert!(tally.share(tally.wrong_when_all_count) < 0.000_3, "{tally:?}");
    }
}

/// [B29] Why nearly every refusal of a client that never lets up counts as wrong, though the error is one request: the
/// two-window counter admits one less than the limit in each window, for the last place would be free only when the
/// earlier window has faded to nothing.
#[test]
fn a_flood_is_admitted_one_short_of_the_limit() {
    let per_minute = |mut gate: Gate| -> Vec<u64> {
        let minute = |minute: u64| (0..600).map(move |tick| Micros::from_millis(minute * 60_000 + tick * 100 + 7));
        (0..6).map(|number| minute(number).map(|after| gate.admits(1, at("1:00:00").plus(after))).sum()).collect()
    };
    let counter = SlidingCounter::new(100, Micros::MINUTE);
    assert_eq!(per_minute(Gate::new(counter)), [100, 99, 99, 99, 99, 99]);
    assert_eq!(per_minute(Gate::new(counter.sub_windows(10))), [100; 6]);
    assert_eq!(per_minute(Gate::new(SlidingLog::new(100, Micros::MINUTE))), [100; 6]);
}

/// [B28] What more sub-windows do not cure: a client that spends all at the very end of a sub-window and asks on
/// while that one fades, a window later, passes nearly twice the limit in a rolling window. They only make it harder
/// to hit.
#[test]
fn the_worst_case_is_nearly_twice_the_limit_for_any_number_of_sub_windows() {
    for number in [1, 4, 10, 60] {
        let part = 60_000_000 / u64::from(number);
        let mut gate = Gate::new(SlidingCounter::new(100, Micros::MINUTE).sub_windows(number));
        let after = |micros: u64| at("1:00:00").plus(Micros::from_micros(micros));
        assert_eq!(gate.admits(200, after(part - 1)), 100);
        let later: u64 = (0..1_000).map(|tick| gate.admits(200, after(60_000_000 + tick * (part / 1_000)))).sum();
        assert_eq!(later, 99, "{number} sub-windows; all of the first hundred are less than a minute old");
    }
}
