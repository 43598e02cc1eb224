//! Rules from paths, for every command that needs some: files, directories, and `-` for standard input.

use std::io;
use std::path::PathBuf;

use tollgate_rules::{Diagnostic, Diagnostics, RuleSet, Severity, read, read_from};

use super::summary::Summary;
use crate::gateway::check_trust;

/// What standard input is called in messages.
const STDIN: &str = "<stdin>";

/// Everything that came of some paths.
pub(crate) struct Loaded {
    /// What can be used of the rules.
    pub(crate) rules: RuleSet,
    /// What was loaded, in numbers.
    pub(crate) summary: Summary,
    /// What is wrong, and what probably is.
    pub(crate) diagnostics: Diagnostics,
}

/// Reads and compiles all rules that `paths` name. Standard input is read after the files.
pub(crate) fn load(paths: &[PathBuf]) -> Loaded {
    let (stdin, paths): (Vec<&PathBuf>, Vec<&PathBuf>) = paths.iter().partition(|path| path.as_os_str() == "-");
    let (mut sources, mut problems) = read(&paths);
    if !stdin.is_empty() {
        match read_from(STDIN, io::stdin().lock()) {
            Ok(source) => sources.push(source),
            Err(problem) => problems.push(*problem),
        }
    }
    if stdin.len() > 1 {
        let twice = Diagnostic::unplaced("named-twice", "standard input was named before; it is read once");
        problems.push(Diagnostic { severity: Severity::Warning, ..twice.unread(STDIN, None) });
    }
    let files = sources.len();
    let mut parsed = tollgate_rules::parse(sources);
    check_trust(&mut parsed);
    let summary = Summary::new(files, &parsed.rules);
    let (rules, mut diagnostics) = RuleSet::compile(parsed);
    for problem in problems {
        diagnostics.push(problem);
    }
    Loaded { rules, summary, diagnostics }
}
