//! Named time zones for calendar windows.

use std::fmt;

use jiff::Timestamp as Instant;
use jiff::tz::TimeZone;
use tollgate_core::Zone;

/// Offsets are looked up until here (the year 2256), beyond which no timestamp lies.
const LAST_SECOND: i64 = 9_007_199_254;

/// The zone of this name in the time zone database, such as `Europe/Berlin`.
pub fn zone(name: &str) -> Result<Zone, UnknownZone> {
    let unknown = || UnknownZone { name: name.to_owned() };
    let zone = TimeZone::get(name).map_err(|_| unknown())?;
    let first = zone.to_offset(Instant::UNIX_EPOCH).seconds();
    let changes = zone
        .following(Instant::UNIX_EPOCH)
        .map(|change| (change.timestamp().as_second(), change.offset().seconds()))
        .take_while(|(second, _)| *second <= LAST_SECOND);
    Ok(Zone::new(name, first, changes))
}

/// There is no time zone of this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownZone {
    name: String,
}

impl fmt::Display for UnknownZone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no time zone named {:?}; names look like \"Europe/Berlin\" or \"UTC\"", self.name)
    }
}

impl std::error::Error for UnknownZone {}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::civil::date;
    use tollgate_core::{Calendar, CalendarUnit, Timestamp};

    #[test]
    fn every_day_starts_where_the_time_zone_library_says() {
        for name in [
            "Europe/Berlin",
            "America/Sao_Paulo",
            "Asia/Kathmandu",
            "Pacific/Apia",
            "America/St_Johns",
            "Africa/Cairo",
            "UTC",
        ] {
            let days = Calendar::new(CalendarUnit::Day, zone(name).unwrap());
            let library = TimeZone::get(name).unwrap();
            let mut day = date(1995, 1, 1);
            while day < date(2040, 1, 1) {
                let start = day.to_zoned(library.clone()).unwrap().start_of_day().unwrap().timestamp().as_second();
                let start = Timestamp::from_secs(start as u64);
                let window = days.window_at(start);
                // Apia skipped a whole day: it has no window of its own.
                if (name, day) != ("Pacific/Apia", date(2011, 12, 30)) {
                    assert_eq!(window.0, start, "{name} {day}");
                }
                day = day.tomorrow().unwrap();
            }
        }
    }

    #[test]
    fn months_and_years_start_where_the_time_zone_library_says() {
        let name = "America/New_York";
        let (months, years) = (
            Calendar::new(CalendarUnit::Month, zone(name).unwrap()),
            Calendar::new(CalendarUnit::Year, zone(name).unwrap()),
        );
        let library = TimeZone::get(name).unwrap();
        for year in 1975..2150 {
            for month in 1..=12 {
                let start = date(year, month, 1).to_zoned(library.clone()).unwrap().timestamp().as_second();
                assert_eq!(months.window_at(Timestamp::from_secs(start as u64)).0, Timestamp::from_secs(start as u64));
            }
            let start = date(year, 1, 1).to_zoned(library.clone()).unwrap().timestamp().as_second();
            assert_eq!(years.window_at(Timestamp::from_secs(start as u64 + 5)).0, Timestamp::from_secs(start as u64));
        }
    }

    #[test]
    fn a_name_that_is_no_zone_is_named() {
        assert_eq!(
            zone("Europe/Berln").unwrap_err().to_string(),
            "there is no time zone named \"Europe/Berln\"; names look like \"Europe/Berlin\" or \"UTC\""
        );
    }
}
