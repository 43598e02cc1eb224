//! Which texts are in force when some of the files are wrong. No files here, and no rules in force: only what follows
//! from what was read.
//!
//! A file that is wrong, that cannot be read or that has gone from where it was named keeps its last good text, at its
//! place among the others. Nothing that a disk, a mount or a shortage of file descriptors does can take rules away;
//! only files that say so, and directories that no longer list them while they can be read.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use tollgate::rules::{Diagnostic, Diagnostics, Parsed, Severity, Source, parse};

use crate::gateway::check_trust;

/// The texts in force, in the order of files.
#[derive(Debug, Default)]
pub(super) struct Texts(Vec<Source>);

/// What came of a look at the files.
pub(super) struct Renewed {
    /// What the texts in force say; `None` if they are the old ones, because even those do not fit to the new ones.
    pub(super) parsed: Option<Parsed>,
    /// What is to be said about the files as they are.
    pub(super) diagnostics: Diagnostics,
    /// Files and directories that are wrong, and whether an earlier text of theirs is in force.
    pub(super) bad: Vec<(Arc<str>, bool)>,
}

impl Texts {
    /// Puts what was read in force, as far as it makes sense.
    pub(super) fn renew(&mut self, sources: Vec<Source>, problems: Vec<Diagnostic>) -> Renewed {
        let is_error = |problem: &&Diagnostic| problem.severity == Severity::Error;
        let unread = problems.iter().filter(is_error).filter_map(|problem| problem.unread.as_ref());
        let mut bad: BTreeSet<Arc<str>> = unread.map(|unread| Arc::clone(&unread.file)).collect();
        let mut parsed = checked(sources.clone());
        for problem in problems {
            parsed.diagnostics.push(problem);
        }
        let diagnostics = parsed.diagnostics.clone();
        bad.extend(blamed(&diagnostics));
        let parsed = if bad.is_empty() {
            self.0 = sources;
            Some(parsed)
        } else {
            self.mix(&sources, &bad)
        };
        let bad =
            bad.into_iter().map(|name| (Arc::clone(&name), self.0.iter().any(|old| is_below(old, &name)))).collect();
        Renewed { parsed, diagnostics, bad }
    }

    /// What the texts in force say.
    pub(super) fn parse(&self) -> Parsed {
        parse(self.0.clone())
    }

    pub(super) fn names(&self) -> Vec<Arc<str>> {
        self.0.iter().map(|source| Arc::clone(&source.name)).collect()
    }

    /// Takes the last good text for each bad file, if that makes sense with the others.
    fn mix(&mut self, sources: &[Source], bad: &BTreeSet<Arc<str>>) -> Option<Parsed> {
        let place = |name: &Arc<str>| self.0.iter().position(|old| old.name == *name);
        let mut mixed: Vec<Source> = Vec::new();
        for source in sources {
            match bad.contains(&source.name) {
                true => mixed.extend(place(&source.name).and_then(|at| self.0.get(at)).cloned()),
                false => mixed.push(source.clone()),
            }
        }
        // What was not read stays where it was: wildcards are tried in the order of files.
        for (at, old) in self.0.iter().enumerate() {
            let is_missing = !mixed.iter().any(|source| source.name == old.name);
            if is_missing && bad.iter().any(|name| is_below(old, name)) {
                let after = mixed.iter().position(|other| place(&other.name).is_some_and(|place| place > at));
                mixed.insert(after.unwrap_or(mixed.len()), old.clone());
            }
        }
        let parsed = checked(mixed.clone());
        if mixed.is_empty() || parsed.diagnostics.has_errors() {
            return None;
        }
        self.0 = mixed;
        Some(parsed)
    }
}

/// Texts with everything that is wrong about them, in files that they name as well.
fn checked(sources: Vec<Source>) -> Parsed {
    let mut parsed = parse(sources);
    check_trust(&mut parsed);
    parsed
}

/// Whether a text is of the file `name`, or of one in the directory of that name.
fn is_below(source: &Source, name: &str) -> bool {
    Path::new(&*source.name).starts_with(name)
}

/// The files that errors are in.
fn blamed(diagnostics: &Diagnostics) -> impl Iterator<Item = Arc<str>> {
    let errors = diagnostics.iter().filter(|diagnostic| diagnostic.severity == Severity::Error);
    let sources = errors.filter_map(|diagnostic| diagnostic.span).map(|span| span.source as usize);
    sources.filter_map(|at| diagnostics.sources().get(at)).map(|source| Arc::clone(&source.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, key: &str, limit: &str) -> Source {
        Source::new(name, format!("domain: d\nrules:\n  - name: {key}\n    per: {key}\n    limits: [{limit}]\n"))
    }

    fn unread(name: &str) -> Diagnostic {
        Diagnostic::unplaced("unreadable", "it cannot be read").unread(name, None)
    }

    /// The limits in force, in the order of files.
    fn in_force(texts: &Texts) -> Vec<String> {
        let limits =
            |source: &Source| source.text.rsplit_once('[').map(|(_, rest)| rest.trim_end_matches("]\n").to_owned());
        texts.0.iter().filter_map(limits).collect()
    }

    fn loaded() -> Texts {
        let mut texts = Texts::default();
        let files = vec![file("z.yaml", "z", "1/s"), file("dir/a.yaml", "a", "2/s"), file("dir/b.yaml", "b", "3/s")];
        let renewed = texts.renew(files, Vec::new());
        assert!(renewed.bad.is_empty() && renewed.parsed.is_some());
        texts
    }

    #[test]
    fn a_bad_text_stays_what_it_was_at_its_place() {
        let mut texts = loaded();
        let files = vec![file("z.yaml", "z", "10/s"), file("dir/a.yaml", "a", "many"), file("dir/b.yaml", "b", "30/s")];
        let renewed = texts.renew(files, Vec::new());
        assert_eq!(in_force(&texts), ["10/s", "2/s", "30/s"]);
        assert_eq!(renewed.bad, [(Arc::from("dir/a.yaml"), true)]);
        assert!(renewed.diagnostics.has_errors());
    }

    #[test]
    fn what_cannot_be_read_is_kept_with_all_that_is_below() {
        let mut texts = loaded();
        let renewed = texts.renew(vec![file("z.yaml", "z", "10/s")], vec![unread("dir")]);
        assert_eq!(in_force(&texts), ["10/s", "2/s", "3/s"]);
        assert_eq!(renewed.bad, [(Arc::from("dir"), true)]);
        texts.renew(vec![file("dir/b.yaml", "b", "30/s")], vec![unread("z.yaml"), unread("dir/a.yaml")]);
        assert_eq!(in_force(&texts), ["10/s", "2/s", "30/s"]);
    }

    #[test]
    fn what_a_directory_no_longer_lists_is_gone() {
        let mut texts = loaded();
        texts.renew(vec![file("z.yaml", "z", "1/s"), file("dir/b.yaml", "b", "3/s")], Vec::new());
        assert_eq!(in_force(&texts), ["1/s", "3/s"]);
    }

    #[test]
    fn a_new_file_that_is_wrong_is_left_out() {
        let mut texts = loaded();
        let mut files = texts.0.clone();
        files.push(file("new.yaml", "n", "many"));
        let renewed = texts.renew(files, Vec::new());
        assert_eq!(in_force(&texts), ["1/s", "2/s", "3/s"]);
        assert_eq!(renewed.bad, [(Arc::from("new.yaml"), false)]);
    }

    #[test]
    fn if_even_the_old_text_does_not_fit_nothing_changes() {
        let mut texts = loaded();
        // The rule moves to another file while its own is broken: both would have it.
        let files = vec![file("z.yaml", "z", "many"), file("dir/a.yaml", "z", "2/s"), file("dir/b.yaml", "b", "30/s")];
        let renewed = texts.renew(files, Vec::new());
        assert!(renewed.parsed.is_none());
        assert_eq!(in_force(&texts), ["1/s", "2/s", "3/s"]);
    }
}
