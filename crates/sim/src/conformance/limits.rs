//! The limits that stores are judged by: every algorithm and variant, in small numbers.

use tollgate::{
    Algorithm, Calendar, CalendarUnit, Concurrency, FixedWindow, LeakyBucket, LeakyForm, Limit, Micros, Pacing, Rate,
    Rounding, SlidingCounter, SlidingLog, Soft, TokenBucket, Window, Zone,
};

use super::Time;

/// A limit, or why it is none.
pub(super) fn limit(algorithm: impl Into<Algorithm>) -> Result<Limit, String> {
    Limit::new(algorithm).map_err(|error| error.to_string())
}

fn soft(algorithm: impl Into<Algorithm>, overage: u64, lasting: Micros) -> Result<Limit, String> {
    Limit::soft(algorithm, Soft { overage, lasting }).map_err(|error| error.to_string())
}

/// One unit of time in these limits: short where time can be stepped, and so long where it cannot that no time passes.
pub(super) fn unit(time: Time) -> Micros {
    match time {
        Time::Given => Micros::from_millis(12),
        Time::Own => Micros::from_secs(Micros::YEAR.as_secs_ceil() / 12),
    }
}

/// So many of `unit`.
pub(super) fn times(count: u64, unit: Micros) -> Micros {
    Micros::from_micros(unit.as_micros().saturating_mul(count))
}

/// One of each kind.
pub(super) fn all(time: Time) -> Result<Vec<Limit>, String> {
    let unit = unit(time);
    let rate = Rate::new(7, times(4, unit));
    let bucket = TokenBucket::new(rate).burst(5);
    let even = TokenBucket::new(Rate::new(1, unit)).burst(4);
    let spread = Window::Clock { length: times(6, unit), spread: true };
    let calendar = if time == Time::Given { CalendarUnit::Day } else { CalendarUnit::Year };
    let calendar = Calendar::new(calendar, Zone::new("Elsewhere", 5 * 3_600, []));
    let counter = SlidingCounter::new(6, times(4, unit));
    let mut all = vec![
        limit(even)?,
        limit(bucket)?,
        limit(bucket.borrow(3))?,
        limit(bucket.initially(2))?,
        limit(TokenBucket::new(rate).burst(9).refill_at_intervals())?,
        limit(LeakyBucket { rate, form: LeakyForm::Meter { capacity: 3 } })?,
        limit(LeakyBucket::queue(rate, 4))?,
        limit(LeakyBucket::queue(Rate::new(1, unit), 9).max_wait(times(3, unit)))?,
        limit(FixedWindow::new(5, times(3, unit)))?,
        limit(FixedWindow::in_window(4, spread))?,
        limit(FixedWindow::in_window(3, Window::FirstEvent { length: times(2, unit) }))?,
        limit(FixedWindow::in_window(8, calendar.into()))?,
        limit(FixedWindow::new(3, times(4, unit)).record_rejected())?,
        limit(SlidingLog::new(4, times(3, unit)))?,
        limit(counter)?,
        limit(SlidingCounter::new(5, times(3, unit)).rounding(Rounding::Floor))?,
        limit(counter.sub_windows(4))?,
        limit(Concurrency::new(3, times(5, unit)))?,
        limit(Pacing::new(12, Window::clock(times(8, unit))).slack(3))?,
        soft(bucket, 2, times(3, unit))?,
        soft(FixedWindow::new(3, times(5, unit)), 2, times(2, unit))?,
        soft(SlidingLog::new(3, times(3, unit)), 2, times(2, unit))?,
        soft(LeakyBucket::queue(rate, 2), 2, times(2, unit))?,
        soft(Concurrency::new(2, times(4, unit)), 1, times(2, unit))?,
        limit(FixedWindow::new(0, unit))?,
    ];
    if time == Time::Given {
        // Which of its events a log forgets depends on whether two came in the same microsecond.
        all.push(limit(SlidingLog::new(3, times(2, unit)).record_rejected())?);
    }
    Ok(all)
}
