//! What `tollgate check` says about the `settings` in a gateway's file.
//!
//! Each is looked at by itself, as if it were written on the command line; what it needs beside it may be given there.

use clap::{CommandFactory as _, FromArgMatches as _};
use tollgate_rules::{Diagnostic, Diagnostics, Setting, Source};

use super::config_file::{given, settings_in, with_defaults, without_variables};
use super::{Cli, Command};

const GATEWAY: &str = "gateway";
const SECTION: Option<&str> = Some("settings");

/// What is wrong, each problem with its place and without the line that it is in: that may hold a secret.
pub(crate) fn check_settings(source: &Source) -> Vec<Diagnostic> {
    let problems = match settings_in(source, &Cli::command(), GATEWAY, SECTION) {
        Ok(settings) => together(source, settings),
        Err(problems) => problems,
    };
    let unshown = |problem: &Diagnostic| {
        let position = problem.span.map(|span| problems.position(span));
        Diagnostic { span: None, ..problem.clone() }.unread(&*source.name, position)
    };
    problems.iter().map(unshown).collect()
}

/// What only the command itself finds out, if it is about one of these.
fn together(source: &Source, settings: Vec<Setting>) -> Diagnostics {
    let mut problems = Diagnostics::new(vec![source.clone()]);
    let places: Vec<_> = settings.iter().map(|setting| (setting.name.replace('_', "-"), setting.span)).collect();
    let command = without_variables(with_defaults(Cli::command(), GATEWAY, &given(settings)), GATEWAY);
    let matches = command.try_get_matches_from(["tollgate", GATEWAY]);
    let Ok(Cli { command: Command::Gateway(args) }) = matches.and_then(|matches| Cli::from_arg_matches(&matches))
    else {
        return problems;
    };
    if let Err(error) = args.settings() {
        let why = format!("{error:#}");
        let is_about = |name: &str| why.strip_prefix("--")?.strip_prefix(name)?.strip_prefix([' ', ':']);
        for (name, span) in places {
            // What is wrong between two may be right with one of another place.
            if let Some(why) = is_about(&name).filter(|why| !why.contains("--")) {
                problems.push(Diagnostic::error("setting", span, format!("`{name}`: {}", why.trim_start())));
            }
        }
    }
    problems
}
