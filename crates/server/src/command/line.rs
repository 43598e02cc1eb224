//! One line of `tollgate try`: a time, what the request is known by, and what it costs.

use anyhow::{Context as _, bail};
use tollgate::{Micros, Timestamp};

/// A request as it was typed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Line {
    /// When, if the line says so.
    pub(crate) moment: Option<Moment>,
    /// Keys and values; descriptors apart by `;` are a group each.
    pub(crate) groups: Vec<Vec<(String, String)>>,
    /// In requests.
    pub(crate) cost: u64,
    /// In other units.
    pub(crate) costs: Vec<(String, u64)>,
}

/// When a request comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// `@2026-11-16T12:00:03Z`, or seconds since the epoch.
    At(Timestamp),
    /// `@12:00:03`: at this time of the day (in UTC) that it is.
    OfDay(Micros),
    /// `@+500ms`: so long after the one before.
    Later(Micros),
}

impl Line {
    /// `None` for a line without a request. `units` are the names that are costs.
    pub(crate) fn parse(text: &str, units: &[String]) -> anyhow::Result<Option<Self>> {
        if text.trim_start().starts_with('#') {
            return Ok(None);
        }
        let mut line = Self { moment: None, groups: vec![Vec::new()], cost: 1, costs: Vec::new() };
        let mut is_empty = true;
        for word in words(text)? {
            is_empty = false;
            if word == ";" {
                line.groups.push(Vec::new());
            } else if let Some(moment) = word.strip_prefix('@') {
                line.moment = Some(Moment::parse(moment)?);
            } else {
                line.add(&word, units)?;
            }
        }
        Ok((!is_empty).then_some(line))
    }

    fn add(&mut self, word: &str, units: &[String]) -> anyhow::Result<()> {
        let Some((key, value)) = word.split_once('=').filter(|(key, _)| !key.is_empty()) else {
            bail!("{word:?} is not key=value, such as user_id=42");
        };
        let number = || {
            let plain = value.replace('_', "");
            plain.parse::<u64>().with_context(|| format!("{key} is a cost, and {value:?} is not a whole number"))
        };
        if key == "cost" {
            self.cost = number()?;
        } else if units.iter().any(|unit| unit == key) {
            self.costs.push((key.to_owned(), number()?));
        } else if let Some(group) = self.groups.last_mut() {
            group.push((key.to_owned(), value.to_owned()));
        }
        Ok(())
    }
}

impl Moment {
    fn parse(text: &str) -> anyhow::Result<Self> {
        if let Some(span) = text.strip_prefix('+') {
            return Ok(Self::Later(tollgate_rules::parse_duration(span).map_err(anyhow::Error::msg)?));
        }
        if let Ok(time) = text.parse::<jiff::Timestamp>() {
            let micros = u64::try_from(time.as_microsecond()).context("times begin in 1970")?;
            return Ok(Self::At(Timestamp::from_micros(micros)));
        }
        if let Ok(time) = text.parse::<jiff::civil::Time>() {
            let since = time.duration_since(jiff::civil::Time::midnight());
            return Ok(Self::OfDay(Micros::from(since.unsigned_abs())));
        }
        bail!("{text:?} is no time; write @12:00:03, @2026-11-16T12:00:03Z or @+500ms")
    }
}

/// Words apart by blanks; `;` is one of its own; what is in double quotes is kept together.
fn words(text: &str) -> anyhow::Result<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut is_quoted = false;
    for character in text.chars() {
        match character {
            '"' => {
                is_quoted = !is_quoted;
                word.get_or_insert_default();
            }
            ';' if !is_quoted => {
                words.extend(word.take());
                words.push(";".to_owned());
            }
            blank if blank.is_whitespace() && !is_quoted => words.extend(word.take()),
            other => word.get_or_insert_default().push(other),
        }
    }
    if is_quoted {
        bail!("a quote is not closed");
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Line {
        Line::parse(text, &["bytes".to_owned()]).unwrap().unwrap()
    }

    fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
        list.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_line_is_what_a_request_is_known_by_and_what_it_costs() {
        let parsed = line("user_id=42 ip=1.2.3.4  cost=3 bytes=1_000");
        assert_eq!(parsed.groups, [pairs(&[("user_id", "42"), ("ip", "1.2.3.4")])]);
        assert_eq!((parsed.cost, &*parsed.costs), (3, &[("bytes".to_owned(), 1000)][..]));
        assert_eq!(line("path=\"/a b\" x=").groups, [pairs(&[("path", "/a b"), ("x", "")])]);
        assert_eq!(line("a=1;b=2 c=3").groups, [pairs(&[("a", "1")]), pairs(&[("b", "2"), ("c", "3")])]);
        assert_eq!(line("q=a=b").groups, [pairs(&[("q", "a=b")])]);
    }

    #[test]
    fn times_are_of_the_day_of_the_calendar_or_later() {
        assert_eq!(line("@+1500ms a=1").moment, Some(Moment::Later(Micros::from_millis(1_500))));
        assert_eq!(line("@12:00:03 a=1").moment, Some(Moment::OfDay(Micros::from_secs(43_203))));
        let at = Timestamp::from_secs(1_763_294_403);
        assert_eq!(line("@2025-11-16T12:00:03Z a=1").moment, Some(Moment::At(at)));
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, said) in [
            ("user_id", "key=value"),
            ("=3", "key=value"),
            ("cost=much", "whole number"),
            ("bytes=-1", "whole number"),
            ("@noon a=1", "no time"),
            ("a=\"b", "quote"),
        ] {
            let problem = Line::parse(text, &["bytes".to_owned()]).unwrap_err();
            assert!(format!("{problem:#}").contains(said), "{text}: {problem:#}");
        }
        assert_eq!(Line::parse("  ", &[]).unwrap(), None);
        assert_eq!(Line::parse("# user_id=1", &[]).unwrap(), None);
    }
}
