//! Nothing is charged twice, nothing for nobody: what Redis has counted is what was admitted less what was given back,
//! give or take what nobody knows of.

use tollgate::Timestamp;

use super::{Findings, Kind};
use crate::chaos::record::{Counter, History, Record, Shared};

pub(super) fn check(history: &History, findings: &mut Findings) {
    for (number, counter) in history.counters.iter().enumerate() {
        let records: Vec<&Record> = history.of(u32::try_from(number).unwrap_or(u32::MAX)).collect();
        total(history, counter, &records, findings);
        places(history, counter, &records, findings);
    }
    if history.keys_for_ever > 0 {
        let text = format!("{} keys have no time to live", history.keys_for_ever);
        findings.violation(Kind::Expiry, text);
    }
}

/// What was counted in all.
fn total(history: &History, counter: &Counter, records: &[&Record], findings: &mut Findings) {
    let is_kept = history.lost_until().is_none();
    let sum = |which: &dyn Fn(&Record) -> bool| -> u64 {
        records.iter().filter(|record| which(record)).map(|record| record.cost).sum()
    };
    let admitted = sum(&Record::is_shared_admission);
    let unknown = sum(&|record| record.is_spending() && record.shared == Shared::Unknown);
    let returned = sum(&|record| !record.is_spending() && record.shared == Shared::Answered);
    let maybe_returned = sum(&|record| !record.is_spending() && record.shared == Shared::Unknown);
    findings.unknown += unknown + maybe_returned;
    let Some(counted) = counter.ledger else { return };
    // That something was given back may have been lost, and what was spent not.
    let most = admitted + unknown - if is_kept { returned } else { 0 };
    if counted > most || is_kept && counted + returned + maybe_returned < admitted {
        let text = format!(
            "{}: Redis counted {counted}, where {admitted} were admitted, {returned} given back, and of {unknown} and \
             {maybe_returned} it is not known",
            counter.name
        );
        findings.violation(Kind::Ledger, text);
    }
}

/// Each charge has a place of its own in what was counted, after those that were decided before it.
fn places(history: &History, counter: &Counter, records: &[&Record], findings: &mut Findings) {
    if history.faults.iter().any(|fault| fault.excuse.clock != 0) {
        return;
    }
    let sum = |which: &dyn Fn(&Record) -> bool| -> u64 {
        records.iter().filter(|record| which(record)).map(|record| record.cost).sum()
    };
    let since = history.lost_until().unwrap_or(0);
    // What nobody knows whether it was given back may be missing from then on, and what nobody knows whether it was
    // charged may be there. So may be what was asked for before the last loss and answered after it.
    let is_unplaced =
        |record: &Record| record.shared == Shared::Unknown || record.begun < since && record.returned >= since;
    let missing = sum(&|record| !record.is_spending() && (is_unplaced(record) || record.total.is_none()));
    let besides = sum(&|record| record.is_spending() && is_unplaced(record));
    let mut places: Vec<(Timestamp, u64, &Record)> = records
        .iter()
        .filter(|record| record.shared == Shared::Answered && record.begun >= since)
        .filter_map(|record| Some((record.outcome?.at, record.total?, *record)))
        .collect();
    places.sort_unstable_by_key(|(at, total, _)| (*at, *total));
    let mut before = None;
    for at_once in places.chunk_by(|a, b| a.0 == b.0) {
        // At one instant there is no order but that of a counter that only grows.
        if at_once.len() > 1 && at_once.iter().any(|(_, _, record)| !record.is_spending()) {
            before = None;
            continue;
        }
        for (_, total, record) in at_once {
            let cost = record.cost;
            let is_wrong = |before: &u64| {
                let after = if record.is_spending() { before + cost } else { before.saturating_sub(cost) };
                after > total + missing || after + besides < *total
            };
            if let Some(before) = before.filter(is_wrong) {
                let what = if record.is_spending() { "more" } else { "given back" };
                let text = format!("{}: after {before} units were counted, {cost} {what} made {total}", counter.name);
                findings.violation(Kind::Ledger, text);
            }
            before = Some(*total);
        }
    }
}
