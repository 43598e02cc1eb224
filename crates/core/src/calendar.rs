//! Calendar windows: the day, week, month or year that an instant falls into, in a named time zone.
//!
//! A zone is a list of the instants at which its offset from UTC changes. It is given, not looked up: this
//! crate has no time zone database. A window begins at the first instant whose local date is not before the
//! window's first date, so days of 23 and 25 hours and midnights that do not exist come out right.

use std::sync::Arc;

use crate::time::Timestamp;

/// Which calendar window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CalendarUnit {
    /// From midnight to midnight.
    Day,
    /// From Monday to Monday.
    Week,
    /// From the first to the first.
    Month,
    /// From the first of January to the next.
    Year,
}

/// A time zone as a list of offsets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Zone {
    name: String,
    /// (from when on, in seconds since the epoch; seconds east of UTC), ascending.
    offsets: Vec<(i64, i32)>,
}

impl Zone {
    /// Coordinated universal time.
    pub fn utc() -> Self {
        Self { name: "UTC".to_owned(), offsets: Vec::new() }
    }

    /// A zone that has `initial` seconds east of UTC until the first of `changes`, each a pair of the second since the
    /// epoch from which on and the seconds east of UTC that then hold. Changes out of order are sorted.
    pub fn new(name: impl Into<String>, initial: i32, changes: impl IntoIterator<Item = (i64, i32)>) -> Self {
        let mut offsets = vec![(i64::MIN, initial)];
        offsets.extend(changes);
        offsets.sort_by_key(|(from, _)| *from);
        Self { name: name.into(), offsets }
    }

    /// The name it was given.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn offset_at(&self, second: i64) -> i64 {
        let after = self.offsets.partition_point(|(from, _)| *from <= second);
        after.checked_sub(1).and_then(|index| self.offsets.get(index)).map_or(0, |(_, offset)| i64::from(*offset))
    }

    /// The first second whose local time is not before `local`.
    fn first_second_at(&self, local: i64) -> i64 {
        // An offset is always less than two days.
        let first = self.offsets.partition_point(|(from, _)| *from < local - 172_800).saturating_sub(1);
        for (index, (from, offset)) in self.offsets.iter().enumerate().skip(first) {
            let until = self.offsets.get(index + 1).map_or(i64::MAX, |(until, _)| *until);
            let second = (local - i64::from(*offset)).max(*from);
            if second < until {
                return second;
            }
        }
        local
    }
}

/// The calendar windows of one unit in one zone. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Calendar {
    unit: CalendarUnit,
    zone: Arc<Zone>,
}

impl Calendar {
    /// Windows of one `unit` each, in `zone`.
    pub fn new(unit: CalendarUnit, zone: impl Into<Arc<Zone>>) -> Self {
        Self { unit, zone: zone.into() }
    }

    /// Which windows.
    pub fn unit(&self) -> CalendarUnit {
        self.unit
    }

    /// In which zone.
    pub fn zone(&self) -> &Zone {
        &self.zone
    }

    /// The start and the end of the window that `now` is in; the end belongs to the next one.
    pub fn window_at(&self, now: Timestamp) -> (Timestamp, Timestamp) {
        let second = (now.as_micros() / 1_000_000) as i64;
        let mut number = self.number_of(second + self.zone.offset_at(second));
        // When clocks are set back over a midnight, the new date began before the old one came again.
        while self.start_of(number + 1) <= second {
            number += 1;
        }
        (instant(self.start_of(number)), instant(self.start_of(number + 1)))
    }

    /// The number of the window with this local second.
    fn number_of(&self, local: i64) -> i64 {
        let day = local.div_euclid(86_400);
        let (year, month) = year_and_month(day);
        match self.unit {
            CalendarUnit::Day => day,
            CalendarUnit::Week => (day + 3).div_euclid(7),
            CalendarUnit::Month => year * 12 + month - 1,
            CalendarUnit::Year => year,
        }
    }

    /// The second at which window `number` starts.
    fn start_of(&self, number: i64) -> i64 {
        let day = match self.unit {
            CalendarUnit::Day => number,
            // Day 0 was a Thursday.
            CalendarUnit::Week => number * 7 - 3,
            CalendarUnit::Month => first_day_of(number.div_euclid(12), number.rem_euclid(12) + 1),
            CalendarUnit::Year => first_day_of(number, 1),
        };
        self.zone.first_second_at(day * 86_400)
    }
}

fn instant(second: i64) -> Timestamp {
    Timestamp::from_secs(u64::try_from(second).unwrap_or(0))
}

/// Days from the epoch to the first of a month of the Gregorian calendar, by counting years from March so that the
/// leap day comes last.
fn first_day_of(year: i64, month: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    year * 365 + leap_days + (month * 153 + 2) / 5 - 719_468
}

fn year_and_month(day: i64) -> (i64, i64) {
    // 365.2425 days a year: at most one off, put right by looking.
    let mut year = 1970 + (day * 400).div_euclid(146_097);
    while first_day_of(year, 1) > day {
        year -= 1;
    }
    while first_day_of(year + 1, 1) <= day {
        year += 1;
    }
    let month = (1..=12).rev().find(|month| first_day_of(year, *month) <= day).unwrap_or(1);
    (year, month)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_dates() {
        assert_eq!(first_day_of(1970, 1), 0);
        assert_eq!(first_day_of(2000, 3), 11_017);
        assert_eq!(first_day_of(2024, 2), 19_754);
        assert_eq!(year_and_month(19_783), (2024, 3));
        assert_eq!(year_and_month(-1), (1969, 12));
    }

    #[test]
    fn a_day_in_utc_is_a_day() {
        let days = Calendar::new(CalendarUnit::Day, Zone::utc());
        let now = Timestamp::from_secs(86_400 * 20_000 + 5);
        assert_eq!(days.window_at(now), (Timestamp::from_secs(86_400 * 20_000), Timestamp::from_secs(86_400 * 20_001)));
        assert_eq!(days.window_at(Timestamp::EPOCH), (Timestamp::EPOCH, Timestamp::from_secs(86_400)));
    }

    #[test]
    fn clocks_set_forward_and_back_make_days_of_23_and_25_hours() {
        // Berlin in 2024: summer time from 31 March 01:00 UTC to 27 October 01:00 UTC.
        let berlin = Zone::new("Europe/Berlin", 3600, [(1_711_846_800, 7200), (1_729_990_800, 3600)]);
        let days = Calendar::new(CalendarUnit::Day, berlin);
        let hours = |second: u64| {
            let (start, end) = days.window_at(Timestamp::from_secs(second));
            end.since(start).as_micros() / 3_600_000_000
        };
        assert_eq!(hours(1_711_846_800), 23);
        assert_eq!(hours(1_729_990_800), 25);
        assert_eq!(hours(1_720_000_000), 24);
    }

    #[test]
    fn a_midnight_that_does_not_exist_is_the_moment_it_would_have_been() {
        // Clocks jump from 24:00 to 01:00 local time.
        let zone = Zone::new("Gap", 0, [(86_400 * 10, 3600)]);
        let days = Calendar::new(CalendarUnit::Day, zone);
        let (start, end) = days.window_at(Timestamp::from_secs(86_400 * 10 + 1));
        assert_eq!(start, Timestamp::from_secs(86_400 * 10));
        assert_eq!(end, Timestamp::from_secs(86_400 * 11 - 3600));
    }

    #[test]
    fn every_instant_lies_in_its_window_and_windows_tile_time() {
        let zone = Zone::new("Odd", -12_600, [(1_000_000, 50_400), (2_000_000, -43_200), (2_500_000, 20_700)]);
        for unit in [CalendarUnit::Day, CalendarUnit::Week, CalendarUnit::Month, CalendarUnit::Year] {
            let calendar = Calendar::new(unit, zone.clone());
            let mut last = calendar.window_at(Timestamp::from_secs(400_000));
            for step in 1..2_000 {
                let now = Timestamp::from_secs(400_000 + step * 1_801);
                let window = calendar.window_at(now);
                assert!(window.0 <= now && now < window.1, "{unit:?} {now:?} {window:?}");
                assert!(window == last || window.0 == last.1, "{unit:?}: {last:?} then {window:?}");
                last = window;
            }
        }
    }
}
