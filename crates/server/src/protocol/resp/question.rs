//! The grammar of questions to the rules: options, then `FOR` and attributes, or descriptors.
//!
//! Every word has one meaning by its place: an attribute may have the name of an option, since options end at `FOR`,
//! and entries of descriptors are counted.

use smallvec::SmallVec;
use tollgate::{Attribute, Check, Descriptor, Timestamp};

use super::parse::Command;
use crate::protocol::bounds::{MOST_ATTRIBUTES, MOST_COST, MOST_DESCRIPTORS, MOST_ENTRIES, MOST_UNITS};

/// A question as it was written.
#[derive(Debug, Default)]
pub(super) struct Question<'a> {
    pub(super) domain: Option<&'a str>,
    cost: Option<u64>,
    units: SmallVec<[(&'a str, u64); 2]>,
    lease: u64,
    /// When what is to be given back was charged.
    pub(super) at: Option<Timestamp>,
    pairs: SmallVec<[Attribute<'a>; 8]>,
    /// How many of the pairs belong to each descriptor; none of them if it is by attributes.
    descriptors: SmallVec<[usize; 2]>,
}

impl<'a> Question<'a> {
    /// Reads what follows the name of a command.
    pub(super) fn read(mut words: Command<'a>) -> Result<Self, String> {
        let mut question = Self::default();
        while let Some(word) = words.get(0) {
            let is = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
            if is("FOR") {
                question.pairs = pairs(words.after(1))?;
                return question.checked();
            }
            if is("DESCRIPTOR") {
                question.read_descriptors(words)?;
                return question.checked();
            }
            let taken = question.read_option(words)?;
            words = words.after(taken);
        }
        Err("ERR what is it about? Write FOR and attributes at the end, such as FOR user_id 42; see TG.HELP".to_owned())
    }

    fn read_option(&mut self, words: Command<'a>) -> Result<usize, String> {
        let word = words.get(0).unwrap_or_default();
        let name = text(word)?;
        let value = |at: usize| words.get(at).ok_or_else(|| format!("ERR {name} needs more than that; see TG.HELP"));
        match name.to_ascii_uppercase().as_str() {
            "DOMAIN" => self.domain = Some(text(value(1)?)?),
            "COST" => self.cost = Some(number(name, value(1)?)?),
            "LEASE" => self.lease = number(name, value(1)?)?,
            "AT" => self.at = Some(Timestamp::from_micros(number(name, value(1)?)?)),
            "UNIT" if self.units.len() == MOST_UNITS => return Err(format!("ERR more than {MOST_UNITS} units")),
            "UNIT" if value(1)? == b"requests" => {
                return Err("ERR requests are no other unit: write COST and the number".to_owned());
            }
            "UNIT" if self.units.iter().any(|(known, _)| value(1) == Ok(known.as_bytes())) => {
                return Err("ERR a unit is there twice: leave one of them out".to_owned());
            }
            "UNIT" => {
                self.units.push((text(value(1)?)?, number(name, value(2)?)?));
                return Ok(3);
            }
            _ => {
                let shown: String = name.chars().take(64).collect();
                return Err(format!(
                    "ERR '{shown}' is no option: write FOR before attributes (options are DOMAIN, COST, UNIT, LEASE, AT)"
                ));
            }
        }
        Ok(2)
    }

    fn read_descriptors(&mut self, mut words: Command<'a>) -> Result<(), String> {
        while let Some(word) = words.get(0) {
            if !word.eq_ignore_ascii_case(b"DESCRIPTOR") {
                return Err(
                    "ERR DESCRIPTOR number is followed by so many keys with values, and then by the next DESCRIPTOR"
                        .to_owned(),
                );
            }
            if self.descriptors.len() == MOST_DESCRIPTORS {
                return Err(format!("ERR more than {MOST_DESCRIPTORS} descriptors"));
            }
            let count = number("DESCRIPTOR", words.get(1).unwrap_or_default())?;
            let count = usize::try_from(count).ok().filter(|count| (1..=MOST_ENTRIES).contains(count));
            let count = count.ok_or_else(|| format!("ERR a descriptor has between 1 and {MOST_ENTRIES} entries"))?;
            let entries = words.after(2);
            if entries.len() < count * 2 {
                return Err(format!("ERR a descriptor of {count} entries needs {} words: keys and values", count * 2));
            }
            for at in 0..count {
                self.pairs.push(pair(entries, at * 2)?);
            }
            self.descriptors.push(count);
            words = entries.after(count * 2);
        }
        Ok(())
    }

    fn checked(self) -> Result<Self, String> {
        if self.cost.is_none_or(|cost| cost <= MOST_COST) && self.units.iter().all(|(_, cost)| *cost <= MOST_COST) {
            return Ok(self);
        }
        Err(format!("ERR a cost is above {MOST_COST}"))
    }

    pub(super) fn descriptors(&self) -> SmallVec<[Descriptor<'_>; 4]> {
        let mut rest = self.pairs.as_slice();
        let counts = self.descriptors.iter();
        counts
            .map(|count| {
                let (entries, others) = rest.split_at_checked(*count).unwrap_or((rest, &[]));
                rest = others;
                Descriptor::new(entries)
            })
            .collect()
    }

    pub(super) fn check<'c>(&'c self, domain: &'c str, descriptors: &'c [Descriptor<'c>]) -> Check<'c> {
        let check = match descriptors {
            [] => Check::attributes(domain, &self.pairs),
            descriptors => Check::descriptors(domain, descriptors),
        };
        check.cost(self.cost.unwrap_or(1)).costs(&self.units).lease(self.lease)
    }
}

fn pairs(words: Command<'_>) -> Result<SmallVec<[Attribute<'_>; 8]>, String> {
    if words.is_empty() || !words.len().is_multiple_of(2) {
        return Err("ERR FOR is followed by keys, each with its value".to_owned());
    }
    if words.len() > MOST_ATTRIBUTES * 2 {
        return Err(format!("ERR more than {MOST_ATTRIBUTES} attributes"));
    }
    let mut pairs = SmallVec::<[Attribute<'_>; 8]>::new();
    for at in (0..words.len()).step_by(2) {
        let (key, value) = pair(words, at)?;
        if pairs.iter().any(|(known, _)| *known == key) {
            let shown: String = key.chars().take(64).collect();
            return Err(format!("ERR '{shown}' is there twice: leave one of them out"));
        }
        pairs.push((key, value));
    }
    Ok(pairs)
}

fn pair(words: Command<'_>, at: usize) -> Result<Attribute<'_>, String> {
    Ok((text(words.get(at).unwrap_or_default())?, text(words.get(at + 1).unwrap_or_default())?))
}

fn text(bytes: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(bytes).map_err(|_| "ERR names and values have to be UTF-8".to_owned())
}

pub(super) fn number(what: &str, bytes: &[u8]) -> Result<u64, String> {
    let number = std::str::from_utf8(bytes).ok().and_then(|text| text.parse().ok());
    number.ok_or_else(|| format!("ERR {what} needs a number that is not negative"))
}

#[cfg(test)]
mod tests {
    use super::super::parse::Parser;
    use super::*;

    fn read(line: &str) -> Result<String, String> {
        let bytes = format!("{line}\n");
        let mut parser = Parser::new(true);
        parser.next(bytes.as_bytes()).unwrap().unwrap();
        let question = Question::read(parser.command(bytes.as_bytes()).after(1))?;
        let descriptors = question.descriptors();
        Ok(format!("{:?}", question.check(question.domain.unwrap_or("none"), &descriptors)))
    }

    #[test]
    fn words_have_their_meaning_by_their_place() {
        assert_eq!(
            read("TG.CHECK domain FOR cost 3 UNIT tokens 500 lease 9 FOR domain a COST b for c").unwrap(),
            "Check { domain: \"FOR\", subject: Attributes([(\"domain\", \"a\"), (\"COST\", \"b\"), (\"for\", \"c\")]), \
             cost: 3, costs: [(\"tokens\", 500)], lease: 9, part: All }"
        );
        assert_eq!(
            read("TG.CHECK DESCRIPTOR 2 DESCRIPTOR 1 a b DESCRIPTOR 1 FOR x").unwrap(),
            "Check { domain: \"none\", subject: Descriptors([Descriptor { entries: [(\"DESCRIPTOR\", \"1\"), (\"a\", \"b\")], \
             limit: None, cost: None, refund: false }, Descriptor { entries: [(\"FOR\", \"x\")], limit: None, cost: None, \
             refund: false }]), cost: 1, costs: [], lease: 0, part: All }"
        );
    }

    #[test]
    fn what_makes_no_sense_is_refused_in_words() {
        for (line, error) in [
            ("TG.CHECK", "what is it about"),
            ("TG.CHECK user_id 42", "'user_id' is no option: write FOR"),
            ("TG.CHECK COST 1", "what is it about"),
            ("TG.CHECK COST FOR a b", "COST needs a number"),
            ("TG.CHECK COST -1 FOR a b", "COST needs a number"),
            ("TG.CHECK COST 9007199254740992 FOR a b", "a cost is above 9007199254740991"),
            ("TG.CHECK UNIT tokens", "UNIT needs more than that"),
            ("TG.CHECK UNIT requests 5 FOR a b", "write COST"),
            ("TG.CHECK UNIT tokens 5 UNIT tokens 6 FOR a b", "a unit is there twice"),
            ("TG.CHECK FOR a b c d a e", "'a' is there twice"),
            ("TG.CHECK FOR", "FOR is followed by keys"),
            ("TG.CHECK FOR a", "FOR is followed by keys"),
            ("TG.CHECK FOR a \"\\xff\"", "UTF-8"),
            ("TG.CHECK DESCRIPTOR 0", "between 1 and 64"),
            ("TG.CHECK DESCRIPTOR 2 a b", "needs 4 words"),
            ("TG.CHECK DESCRIPTOR 1 a b c d", "followed by so many keys"),
            ("TG.CHECK DESCRIPTOR many", "DESCRIPTOR needs a number"),
        ] {
            let refusal = read(line).unwrap_err();
            assert!(refusal.starts_with("ERR ") && refusal.contains(error), "{line}: {refusal}");
        }
        let many =
            |count: usize| format!("TG.CHECK FOR{}", (0..count).map(|at| format!(" k{at} v")).collect::<String>());
        assert!(read(&many(64)).is_ok());
        assert!(read(&many(65)).unwrap_err().contains("more than 64"));
    }
}
