//! Licence expressions: whether one can be satisfied by licences from a list.
//!
//! `AND` binds closer than `OR`, `WITH` closer than both, and `A/B` is the old way to write `A OR B`. An exception is
//! part of its licence: `A WITH B` is satisfied only by an entry that says the same.

/// The licences that the `[licenses]` table of a `deny.toml` allows.
pub(crate) fn allowed_by(policy: &str) -> Vec<String> {
    let lines = policy.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    let table = lines.skip_while(|line| *line != "[licenses]").skip(1).take_while(|line| !line.starts_with('['));
    let table = table.collect::<Vec<_>>().join("\n");
    let list = table.split_once("allow = [").and_then(|(_, rest)| rest.split_once(']'));
    let list = list.map_or("", |(list, _)| list);
    list.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Whether licences from `allowed` are enough for `expression`, or what is wrong with it.
pub(crate) fn is_satisfied(expression: &str, allowed: &[String]) -> Result<bool, String> {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let mut reader = Reader { words: spaced.split_whitespace().collect(), next: 0, allowed };
    let satisfied = reader.any()?;
    match reader.peek() {
        None => Ok(satisfied),
        Some(word) => Err(format!("{word:?} is not expected there")),
    }
}

struct Reader<'a> {
    words: Vec<&'a str>,
    next: usize,
    allowed: &'a [String],
}

impl<'a> Reader<'a> {
    fn peek(&self) -> Option<&'a str> {
        self.words.get(self.next).copied()
    }

    fn take(&mut self) -> Result<&'a str, String> {
        let word = self.peek().ok_or("it ends too early")?;
        self.next += 1;
        Ok(word)
    }

    fn take_if(&mut self, wanted: &str) -> bool {
        let found = self.peek().is_some_and(|word| word.eq_ignore_ascii_case(wanted));
        self.next += usize::from(found);
        found
    }

    fn any(&mut self) -> Result<bool, String> {
        let mut satisfied = self.all()?;
        while self.take_if("OR") {
            satisfied |= self.all()?;
        }
        Ok(satisfied)
    }

    fn all(&mut self) -> Result<bool, String> {
        let mut satisfied = self.one()?;
        while self.take_if("AND") {
            satisfied &= self.one()?;
        }
        Ok(satisfied)
    }

    fn one(&mut self) -> Result<bool, String> {
        if self.take_if("(") {
            let satisfied = self.any()?;
            return if self.take_if(")") { Ok(satisfied) } else { Err("a parenthesis is not closed".into()) };
        }
        let name = self.take()?;
        if [")", "OR", "AND", "WITH"].contains(&name) {
            return Err(format!("{name:?} stands where a licence should"));
        }
        let name = if self.take_if("WITH") { format!("{name} WITH {}", self.take()?) } else { name.to_owned() };
        Ok(self.allowed.contains(&name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(expression: &str) -> Result<bool, String> {
        is_satisfied(expression, &["MIT", "Zlib", "Apache-2.0 WITH LLVM-exception"].map(str::to_owned))
    }

    #[test]
    fn expressions_bind_as_in_spdx() {
        for (expression, expected) in [
            ("MIT", true),
            ("GPL-3.0-only", false),
            ("GPL-3.0-only OR MIT", true),
            ("GPL-3.0-only/MIT", true),
            ("GPL-3.0-only / MIT", true),
            ("MIT AND Zlib", true),
            ("MIT AND GPL-3.0-only", false),
            ("MIT OR Zlib AND GPL-3.0-only", true),
            ("GPL-3.0-only AND Zlib OR MIT", true),
            ("(MIT OR Zlib) AND GPL-3.0-only", false),
            ("(GPL-3.0-only OR MIT) AND (Zlib)", true),
            ("Apache-2.0 WITH LLVM-exception OR GPL-3.0-only", true),
            ("Apache-2.0", false),
            ("MIT WITH LLVM-exception", false),
        ] {
            assert_eq!(check(expression), Ok(expected), "{expression}");
        }
    }

    #[test]
    fn what_is_no_expression_is_not_satisfied() {
        for expression in ["", "MIT OR", "MIT Zlib", "(MIT", "MIT)", "OR MIT", "none stated", "MIT WITH"] {
            assert!(check(expression).is_err(), "{expression}");
        }
    }

    #[test]
    fn the_list_is_read_from_its_own_table() {
        let policy = "[bans]\nallow = [\"GPL\"]\n[licenses]\n# allow = [\"no\"]\nallow = [\n  \"MIT\", # why\n  \"A WITH B\",\n]\n[sources]\nallow = [\"x\"]";
        assert_eq!(allowed_by(policy), ["MIT", "A WITH B"]);
        assert!(allowed_by("[bans]\nallow = [\"GPL\"]").is_empty());
    }
}
