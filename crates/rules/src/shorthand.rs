//! Rates, amounts and lengths of time as people write them: `5/s`, `300/3h`, `1MiB/s`, `10/day@Europe/Berlin`, `1h30m`.
//!
//! ```text
//! rate     = amount [unit] "/" period ["@" zone]
//! amount   = digits, with "_" between them and a fraction where the multiplier makes it whole
//! unit     = "B" "kB" "MiB" … "Mbit" (bytes)  |  ["k" "M" "G"], and a word after a space: what is counted
//! period   = [count] ("us" "ms" "s" "min" "h" "day" "week"), several in a row  |  "month"  |  "year"
//! ```
//!
//! Every mistake is told with the part of the text that it is in. Nothing is rounded: what is not whole is refused.

use std::ops::Range;

use tollgate_core::{CalendarUnit, MAX_INTEGER, Micros};

use crate::model::Unit;
use crate::nearest::nearest;

/// A rate that was understood.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Shorthand<'t> {
    pub(crate) amount: u64,
    pub(crate) unit: Unit,
    pub(crate) per: Per<'t>,
}

/// Per which time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Per<'t> {
    /// So long, wherever it begins.
    Length(Micros),
    /// A day, week, month or year of the calendar, in the zone of this name; UTC if none was given.
    Calendar(CalendarUnit, Option<&'t str>),
}

/// What is wrong with a text, in which part of it (in bytes), and what to write instead.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Wrong {
    pub(crate) part: Range<usize>,
    pub(crate) message: String,
    pub(crate) help: String,
}

/// Short forms of large numbers.
const COUNTS: [(&str, u64); 3] = [("k", 1_000), ("M", 1_000_000), ("G", 1_000_000_000)];

/// Amounts of data, in bits.
const SIZES: [(&str, u64); 15] = [
    ("B", 8),
    ("kB", 8_000),
    ("KB", 8_000),
    ("MB", 8_000_000),
    ("GB", 8_000_000_000),
    ("TB", 8_000_000_000_000),
    ("KiB", 8 << 10),
    ("MiB", 8 << 20),
    ("GiB", 8 << 30),
    ("TiB", 8 << 40),
    ("bit", 1),
    ("kbit", 1_000),
    ("Kbit", 1_000),
    ("Mbit", 1_000_000),
    ("Gbit", 1_000_000_000),
];

/// Units of time of a fixed length, in microseconds.
const TIMES: [(&[&str], u64); 7] = [
    (&["us"], 1),
    (&["ms"], 1_000),
    (&["s", "sec", "second", "seconds"], 1_000_000),
    (&["m", "min", "minute", "minutes"], 60_000_000),
    (&["h", "hour", "hours"], 3_600_000_000),
    (&["d", "day", "days"], 86_400_000_000),
    (&["w", "week", "weeks"], 604_800_000_000),
];

/// Units of time that a calendar knows.
const CALENDAR: [(&[&str], CalendarUnit); 4] = [
    (&["d", "day", "days"], CalendarUnit::Day),
    (&["w", "week", "weeks"], CalendarUnit::Week),
    (&["month", "months"], CalendarUnit::Month),
    (&["year", "years"], CalendarUnit::Year),
];

const RATE_HELP: &str = "a rate is an amount, a slash and a time, such as `5/s`, `300/3h` or `1MiB/s`";
const TIME_HELP: &str =
    "a length of time is a number and a unit, such as `500ms`, `30s`, `5min`, `3h`, `1d` or `1h30min`";

fn look_up<T: Copy>(table: &[(&[&str], T)], word: &str) -> Option<T> {
    table.iter().find(|(names, _)| names.contains(&word)).map(|(_, value)| *value)
}

/// A part of a text that knows where it is.
#[derive(Clone, Copy)]
struct Part<'t> {
    text: &'t str,
    start: usize,
}

impl<'t> Part<'t> {
    fn trim(self) -> Self {
        let text = self.text.trim_start();
        Self { text: text.trim_end(), start: self.start + self.text.len() - text.len() }
    }

    /// Before and after the byte `at`.
    fn split_at(self, at: usize) -> (Self, Self) {
        let (before, after) = self.text.split_at(at);
        (Self { text: before, ..self }, Self { text: after, start: self.start + at })
    }

    /// Before and after the first `separator`.
    fn split(self, separator: char) -> Option<(Self, Self)> {
        let at = self.text.find(separator)?;
        let (before, _) = self.split_at(at);
        Some((before, self.split_at(at + separator.len_utf8()).1))
    }

    /// The number at the front, and what follows.
    fn number(self) -> (Self, Self) {
        let is_number = |character: char| character.is_ascii_digit() || matches!(character, '_' | '.');
        self.split_at(self.text.find(|character| !is_number(character)).unwrap_or(self.text.len()))
    }

    fn wrong(self, message: impl Into<String>, help: impl Into<String>) -> Wrong {
        Wrong { part: self.start..self.start + self.text.len(), message: message.into(), help: help.into() }
    }
}

/// Reads a rate.
pub(crate) fn rate(text: &str) -> Result<Shorthand<'_>, Wrong> {
    let whole = Part { text, start: 0 }.trim();
    if whole.text.matches('/').count() > 1 && whole.text.contains([',', ';', '&', '+']) {
        let each: Vec<&str> =
            whole.text.split([',', ';', '&', '+']).map(str::trim).filter(|rate| !rate.is_empty()).collect();
        let help = format!("several limits are a list: `[{}]`", shorten(&each.join(", ")));
        return Err(whole.wrong(format!("`{}` is more than one rate", shorten(whole.text)), help));
    }
    let Some((amount, period)) = whole.split('/') else {
        let help = match whole.text.split_once(" per ") {
            Some((amount, period)) => format!("write it with a slash: `{}/{}`", amount.trim(), period.trim()),
            None => match nearest(whole.text, ["unlimited"]) {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => RATE_HELP.to_owned(),
            },
        };
        return Err(whole.wrong(format!("`{}` is not a rate", shorten(whole.text)), help));
    };
    let (units, unit) = read_amount(amount.trim(), whole)?;
    Ok(Shorthand { amount: units, unit, per: read_period(period.trim(), whole)? })
}

/// Reads an amount: `100`, `10k`, `1MiB`, and of what if that was said.
pub(crate) fn amount(text: &str) -> Result<(u64, Unit), Wrong> {
    let whole = Part { text, start: 0 }.trim();
    read_amount(whole, whole)
}

/// Reads a length of time.
pub(crate) fn duration(text: &str) -> Result<Micros, Wrong> {
    let whole = Part { text, start: 0 }.trim();
    if let (number, Part { text: "", .. }) = whole.number()
        && !number.text.is_empty()
    {
        let help = format!("write the unit too, such as `{}s` or `{}ms`", number.text, number.text);
        return Err(whole.wrong(format!("`{}` of what?", shorten(whole.text)), help));
    }
    read_length(whole)
}

fn read_amount(part: Part<'_>, whole: Part<'_>) -> Result<(u64, Unit), Wrong> {
    let (number, rest) = part.number();
    let word = rest.trim();
    if number.text.is_empty() {
        return Err(whole.wrong(format!("`{}` does not begin with a number", shorten(whole.text)), RATE_HELP));
    }
    let bytes = || Unit::Named("bytes".into());
    let (first, after) = word.split_at(word.text.find(char::is_whitespace).unwrap_or(word.text.len()));
    let count = COUNTS.iter().find(|(name, _)| *name == first.text);
    let (multiplier, rest, word) = match count {
        Some((_, multiplier)) => (*multiplier, after, after.trim()),
        None => (1, rest, word),
    };
    let size = SIZES.iter().find(|(name, _)| *name == word.text);
    if let Some((name, _)) = size.filter(|_| count.is_some()) {
        let message = format!("`{}` and `{name}` are two units", first.text);
        return Err(whole.wrong(message, "write the number with one of them, such as `10MB`"));
    }
    if let Some((_, bits)) = size {
        return Ok((read_number(number, *bits, 8)?, bytes()));
    }
    let unit = match word.text {
        "" | "requests" => Unit::Requests,
        "bytes" => bytes(),
        name => {
            let known = SIZES.iter().chain(&COUNTS).map(|(name, _)| *name);
            let meant: Vec<&str> = known.filter(|size| size.eq_ignore_ascii_case(name)).collect();
            if name.eq_ignore_ascii_case("mb") || name.eq_ignore_ascii_case("gb") {
                let message = format!("`{name}` may be bits or bytes");
                let letter = name[..1].to_uppercase();
                let help = format!("write `{letter}B` for bytes or `{letter}bit` for bits");
                return Err(word.wrong(message, help));
            }
            if let Some(meant) = meant.first() {
                return Err(word.wrong(format!("there is no unit `{name}`"), format!("did you mean `{meant}`?")));
            }
            if let Some(exponent) = exponent(word).filter(|_| count.is_none() && word.start == rest.start) {
                let power = Part { text: &whole.text[number.start - whole.start..], start: number.start };
                let (power, _) = power.split_at(number.text.len() + word.text.len());
                let help = match 10u64.checked_pow(exponent).map(|tens| read_number(number, tens, 1)) {
                    Some(Ok(value)) if value > 0 && value % 1_000 == 0 => {
                        format!("write `{value}` or `{}k`", value / 1_000)
                    }
                    Some(Ok(value)) => format!("write `{value}`"),
                    _ => "write all its digits, or a short form such as `1k` or `1M`".to_owned(),
                };
                return Err(power.wrong(format!("`{}` has an exponent", power.text), help));
            }
            if !is_name(name) {
                let help = "what is counted is one word of letters, digits, `_` and `-`, such as `1000 tokens/min`";
                return Err(word.wrong(format!("`{}` is no unit", shorten(name)), help));
            }
            if word.start == rest.start {
                let help = match nearest(name, SIZES.iter().map(|(size, _)| *size)) {
                    Some(meant) => {
                        format!("did you mean `{meant}`? What has a name of its own needs a space before it")
                    }
                    // As nginx has it.
                    None if matches!(name, "r" | "req" | "request" | "reqs") => {
                        format!("requests are counted without a unit: `{}/…`", number.text)
                    }
                    None => format!("what is counted needs a space before it: `{} {name}`", number.text),
                };
                return Err(word.wrong(format!("there is no unit `{name}`"), help));
            }
            Unit::Named(name.into())
        }
    };
    Ok((read_number(number, multiplier, 1)?, unit))
}

/// The power of ten that follows a number, as in `1e3`.
fn exponent(word: Part<'_>) -> Option<u32> {
    let digits = word.text.strip_prefix(['e', 'E'])?;
    digits.strip_prefix('+').unwrap_or(digits).parse().ok()
}

/// Whether `text` can be the name of what is counted.
pub(crate) fn is_name(text: &str) -> bool {
    text.len() <= 64
        && text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.chars().all(|character| character.is_ascii_alphanumeric() || matches!(character, '_' | '-'))
}

/// `number * multiplier / divisor`, if that is a whole number that fits.
fn read_number(number: Part<'_>, multiplier: u64, divisor: u64) -> Result<u64, Wrong> {
    let (whole, fraction) = number.text.split_once('.').unwrap_or((number.text, ""));
    let digits = || whole.chars().chain(fraction.chars()).filter(|character| *character != '_');
    let is_well_formed = !whole.is_empty()
        && !whole.starts_with('_')
        && (!number.text.contains('.') || !fraction.is_empty())
        && digits().all(|character| character.is_ascii_digit());
    if !is_well_formed {
        return Err(number.wrong(format!("`{}` is not a number", shorten(number.text)), RATE_HELP));
    }
    let too_large = || {
        number
            .wrong(format!("this is above {MAX_INTEGER} (2^53 - 1)"), "use a smaller number, or count in a larger unit")
    };
    let not_whole = || {
        let help = match (whole.parse::<u64>(), fraction) {
            (Ok(0), "5") if multiplier == 1 => "write one in twice the time, such as `1/2s` for half a one each second",
            _ if divisor > 1 => "bytes are whole: write a multiple of 8 bits",
            _ => "amounts are whole: write more of them in a longer time, such as `3/2s`",
        };
        number.wrong(format!("`{}` is not a whole number", shorten(number.text)), help)
    };
    let mut value: u128 = 0;
    for digit in digits().filter_map(|digit| digit.to_digit(10)) {
        value = value.checked_mul(10).and_then(|value| value.checked_add(digit.into())).ok_or_else(too_large)?;
    }
    let places = u32::try_from(fraction.chars().filter(char::is_ascii_digit).count()).unwrap_or(u32::MAX);
    let divisor = 10u128.checked_pow(places).and_then(|tens| tens.checked_mul(divisor.into())).ok_or_else(not_whole)?;
    let value = value.checked_mul(multiplier.into()).ok_or_else(too_large)?;
    if value % divisor != 0 {
        return Err(not_whole());
    }
    u64::try_from(value / divisor).ok().filter(|value| *value <= MAX_INTEGER).ok_or_else(too_large)
}

fn read_period<'t>(part: Part<'t>, whole: Part<'_>) -> Result<Per<'t>, Wrong> {
    let (time, zone) = match part.split('@') {
        Some((time, zone)) => (time.trim(), Some(zone.trim())),
        None => (part, None),
    };
    if time.text.is_empty() {
        return Err(whole.wrong(format!("`{}` does not say per which time", shorten(whole.text)), RATE_HELP));
    }
    let (number, word) = time.number();
    let unit = look_up(&CALENDAR, word.trim().text);
    let has_no_length = matches!(unit, Some(CalendarUnit::Month | CalendarUnit::Year));
    if zone.is_none() && !has_no_length {
        // No number is one; then the unit is all there is.
        if number.text.is_empty() {
            return unit_length(word).map(Per::Length);
        }
        let length = read_length(time)?;
        if length.is_zero() {
            return Err(time.wrong("this is no time at all", "write at least `1us`"));
        }
        return Ok(Per::Length(length));
    }
    let Some(unit) = unit else {
        let help = "leave the zone out, or count by `day`, `week`, `month` or `year`";
        return Err(time.wrong("a time zone matters only to days, weeks, months and years", help));
    };
    if !matches!(number.text, "" | "1") {
        let help = match has_no_length {
            true => "count by one `month` or one `year`, or write a length in days, such as `90d`",
            false => "count by one day or week, or leave the zone out",
        };
        return Err(time.wrong("windows of the calendar are one day, week, month or year long", help));
    }
    match zone {
        Some(Part { text: "", .. }) => {
            Err(part.wrong("there is no time zone after the `@`", "write `day@Europe/Berlin`"))
        }
        zone => Ok(Per::Calendar(unit, zone.map(|zone| zone.text))),
    }
}

/// One or more numbers with units, added up.
fn read_length(part: Part<'_>) -> Result<Micros, Wrong> {
    let mut rest = part;
    let mut micros: u64 = 0;
    loop {
        let (number, after) = rest.number();
        if number.text.is_empty() || number.text.starts_with('_') {
            let text = shorten(part.text);
            return Err(part.wrong(format!("`{text}` is not a length of time"), TIME_HELP));
        }
        if number.text.contains('.') {
            return Err(number.wrong("lengths of time are whole numbers", "use a smaller unit: `1500ms`, `90s`, `36h`"));
        }
        let after = after.trim();
        let letters = after.text.find(|character: char| !character.is_ascii_alphabetic()).unwrap_or(after.text.len());
        let (word, next) = after.split_at(letters);
        if word.text.is_empty() {
            let text = shorten(part.text);
            return Err(part.wrong(format!("`{text}` is not a length of time"), TIME_HELP));
        }
        let unit = unit_length(word)?.as_micros();
        let sum = read_number(number, 1, 1).ok().and_then(|count| count.checked_mul(unit)?.checked_add(micros));
        micros = match sum.filter(|sum| *sum <= MAX_INTEGER) {
            Some(sum) => sum,
            None => return Err(part.wrong("this is longer than 285 years", "use a shorter time")),
        };
        rest = next.trim();
        if rest.text.is_empty() {
            return Ok(Micros::from_micros(micros));
        }
    }
}

fn unit_length(word: Part<'_>) -> Result<Micros, Wrong> {
    if let Some(micros) = look_up(&TIMES, word.text) {
        return Ok(Micros::from_micros(micros));
    }
    let message = format!("there is no unit of time `{}`", shorten(word.text));
    if let Some(unit) = look_up(&CALENDAR, word.text) {
        let days = if unit == CalendarUnit::Month { "30d" } else { "365d" };
        return Err(word.wrong(format!("a {} has no fixed length", word.text), format!("write `{days}`")));
    }
    let known = TIMES.iter().flat_map(|(names, _)| names.iter().copied()).chain(["month", "year"]);
    let help = match nearest(word.text, known.filter(|name| name.len() > 1)) {
        _ if word.text == "M" => "write `min` for a minute or `month` for a month".to_owned(),
        Some(meant) => format!("did you mean `{meant}`?"),
        None => "units are `us`, `ms`, `s`, `min`, `h`, `day`, `week`, `month` and `year`".to_owned(),
    };
    Err(word.wrong(message, help))
}

fn shorten(text: &str) -> String {
    match text.char_indices().nth(40) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> String {
        match rate(text) {
            Ok(Shorthand { amount, unit, per }) => {
                let unit = if let Unit::Named(name) = unit { format!(" {name}") } else { String::new() };
                let per = match per {
                    Per::Length(length) => length.to_string(),
                    Per::Calendar(unit, zone) => format!("{unit:?} in {}", zone.unwrap_or("UTC")),
                };
                format!("{amount}{unit} per {per}")
            }
            Err(wrong) => format!("`{}`: {} ({})", &text[wrong.part], wrong.message, wrong.help),
        }
    }

    #[test]
    fn rates_are_read() {
        for (text, meaning) in [
            ("5/s", "5 per 1s"),
            ("0/s", "0 per 1s"),
            ("300/3h", "300 per 3h"),
            (" 5 / s ", "5 per 1s"),
            ("5 requests/s", "5 per 1s"),
            ("100/min", "100 per 1min"),
            ("100/m", "100 per 1min"),
            ("100/minute", "100 per 1min"),
            ("10/500ms", "10 per 500ms"),
            ("1/250us", "1 per 250us"),
            ("1/week", "1 per 7d"),
            ("3/2w", "3 per 14d"),
            ("10/day", "10 per 1d"),
            ("10/d", "10 per 1d"),
            ("3/1h30min", "3 per 90min"),
            ("1_000_000/h", "1000000 per 1h"),
            ("10k/s", "10000 per 1s"),
            ("1M/h", "1000000 per 1h"),
            ("1.5M/h", "1500000 per 1h"),
            ("2G/day", "2000000000 per 1d"),
            ("1MiB/s", "1048576 bytes per 1s"),
            ("1.5KiB/s", "1536 bytes per 1s"),
            ("500kB/min", "500000 bytes per 1min"),
            ("500 KB/min", "500000 bytes per 1min"),
            ("7B/s", "7 bytes per 1s"),
            ("8Mbit/s", "1000000 bytes per 1s"),
            ("64kbit/s", "8000 bytes per 1s"),
            ("1000 bytes/s", "1000 bytes per 1s"),
            ("1000 tokens/min", "1000 tokens per 1min"),
            ("100k tokens/min", "100000 tokens per 1min"),
            ("1.5 M  tokens/min", "1500000 tokens per 1min"),
            ("10k requests/s", "10000 per 1s"),
            ("10 gpu-seconds/h", "10 gpu-seconds per 1h"),
            ("2/month", "2 per Month in UTC"),
            ("2/1month", "2 per Month in UTC"),
            ("2/year", "2 per Year in UTC"),
            ("10/day@Europe/Berlin", "10 per Day in Europe/Berlin"),
            ("1/week@UTC", "1 per Week in UTC"),
            ("1/month @ Asia/Tokyo", "1 per Month in Asia/Tokyo"),
            ("9007199254740991/s", "9007199254740991 per 1s"),
        ] {
            assert_eq!(read(text), meaning, "{text}");
        }
    }

    #[test]
    fn what_is_no_rate_is_told_where_and_why() {
        for (text, part, message) in [
            ("", "", "`` is not a rate"),
            ("5", "5", "`5` is not a rate"),
            ("five/s", "five/s", "`five/s` does not begin with a number"),
            ("-5/s", "-5/s", "`-5/s` does not begin with a number"),
            ("5/", "5/", "`5/` does not say per which time"),
            ("/s", "/s", "`/s` does not begin with a number"),
            ("5/sec/min", "sec/min", "there is no unit of time `sec/min`"),
            ("5/0s", "0s", "this is no time at all"),
            ("5/fortnight", "fortnight", "there is no unit of time `fortnight`"),
            ("0.5/s", "0.5", "`0.5` is not a whole number"),
            ("1.5B/s", "1.5", "`1.5` is not a whole number"),
            ("1bit/s", "1", "`1` is not a whole number"),
            ("1..5M/s", "1..5", "`1..5` is not a number"),
            ("1./s", "1.", "`1.` is not a number"),
            ("_1/s", "_1", "`_1` is not a number"),
            ("1Mb/s", "Mb", "`Mb` may be bits or bytes"),
            ("1mib/s", "mib", "there is no unit `mib`"),
            ("1K/s", "K", "there is no unit `K`"),
            ("1000tokens/min", "tokens", "there is no unit `tokens`"),
            ("10ktokens/min", "ktokens", "there is no unit `ktokens`"),
            ("10k MB/s", "10k MB/s", "`k` and `MB` are two units"),
            ("10 big tokens/s", "big tokens", "`big tokens` is no unit"),
            ("9007199254740992/s", "9007199254740992", "this is above 9007199254740991 (2^53 - 1)"),
            (
                "99999999999999999999999999999999999999999/s",
                "99999999999999999999999999999999999999999",
                "this is above 9007199254740991 (2^53 - 1)",
            ),
            ("9TiB/s", "", ""),
            ("9000TiB/s", "9000", "this is above 9007199254740991 (2^53 - 1)"),
            ("1/300years", "300years", "windows of the calendar are one day, week, month or year long"),
            ("1/20000w", "20000w", "this is longer than 285 years"),
            ("1/3month", "3month", "windows of the calendar are one day, week, month or year long"),
            ("1/h@UTC", "h", "a time zone matters only to days, weeks, months and years"),
            ("1/2day@UTC", "2day", "windows of the calendar are one day, week, month or year long"),
            ("1/day@", "day@", "there is no time zone after the `@`"),
            ("1/1.5h", "1.5", "lengths of time are whole numbers"),
            ("1/h3", "h3", "there is no unit of time `h3`"),
            ("1/3 h 5", "3 h 5", "`3 h 5` is not a length of time"),
        ] {
            match rate(text) {
                Ok(_) => assert_eq!(message, "", "{text}"),
                Err(wrong) => assert_eq!((&text[wrong.part], wrong.message.as_str()), (part, message), "{text}"),
            }
        }
        let help = |text| rate(text).err().map(|wrong| wrong.help).unwrap_or_default();
        assert_eq!(help("100 per minute"), "write it with a slash: `100/minute`");
        assert_eq!(help("5/mins"), "did you mean `min`?");
        assert_eq!(help("1mib/s"), "did you mean `MiB`?");
        assert_eq!(help("1000tokens/min"), "what is counted needs a space before it: `1000 tokens`");
    }

    #[test]
    fn lengths_of_time_are_read() {
        for (text, meaning) in [
            ("30s", "30s"),
            ("500ms", "500ms"),
            ("1h30m", "90min"),
            ("1d 12h", "36h"),
            ("0s", "0s"),
            ("2 weeks", "14d"),
        ] {
            assert_eq!(duration(text).map(|length| length.to_string()), Ok(meaning.to_owned()), "{text}");
        }
        for (text, message) in [
            ("30", "`30` of what?"),
            ("", "`` is not a length of time"),
            ("s", "`s` is not a length of time"),
            ("1month", "a month has no fixed length"),
            ("5x", "there is no unit of time `x`"),
            ("99999999999999999999s", "this is longer than 285 years"),
            ("_5s", "`_5s` is not a length of time"),
            ("1h_5s", "`1h_5s` is not a length of time"),
        ] {
            assert_eq!(duration(text).err().map(|wrong| wrong.message).as_deref(), Some(message), "{text}");
        }
    }
}
