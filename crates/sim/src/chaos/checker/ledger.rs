//! Nothing is charged twice, nothing for nobody: what Redis has counted is what was admitted, and no more than what nobody knows of.

use tollgate::Timestamp;

use super::{Findings, Kind};
use crate::chaos::record::{Fault, History, Moment, Record, Shared};

pub(super) fn check(history: &History, findings: &mut Findings) {
    let is_kept = history.faults.iter().all(|fault| fault.excuse.losses == 0);
    let is_clock_set = history.faults.iter().any(|fault| fault.excuse.clock != 0);
    for (number, counter) in history.counters.iter().enumerate() {
        let records: Vec<&Record> = history.of(u32::try_from(number).unwrap_or(u32::MAX)).collect();
        let sum = |which: &dyn Fn(&Record) -> bool| -> u64 {
            records.iter().filter(|record| which(record)).map(|record| record.cost).sum()
        };
        let admitted = sum(&Record::is_shared_admission);
        let unknown = sum(&|record| record.shared == Shared::Unknown);
        findings.unknown += unknown;
        if let Some(counted) = counter.ledger
            && (counted > admitted + unknown || is_kept && counted < admitted)
        {
            let text = format!(
                "{}: Redis counted {counted}, where {admitted} were admitted and of {unknown} it is not known",
                counter.name
            );
            findings.violation(Kind::Ledger, text);
        }
        // Each charge has a place of its own in what was counted, after those that were decided before it.
        let since = lost_until(history);
        let mut places: Vec<(Timestamp, u64, u64)> = records
            .iter()
            .filter(|record| record.is_shared_admission() && record.begun >= since)
            .filter_map(|record| Some((record.outcome?.at, record.total?, record.cost)))
            .collect();
        places.sort_unstable();
        for pair in places.windows(2) {
            if let [(_, before, _), (_, total, cost)] = pair
                && before + cost > *total
                && !is_clock_set
            {
                let text = format!("{}: after {before} units were counted, {cost} more made {total}", counter.name);
                findings.violation(Kind::Ledger, text);
            }
        }
    }
    if history.keys_for_ever > 0 {
        let text = format!("{} keys have no time to live", history.keys_for_ever);
        findings.violation(Kind::Expiry, text);
    }
}

/// When the last loss was over.
fn lost_until(history: &History) -> Moment {
    let is_loss = |fault: &&Fault| fault.excuse.losses > 0;
    history.faults.iter().filter(is_loss).map(|fault| fault.recovered).max().unwrap_or(0)
}
