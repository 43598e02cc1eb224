//! The file of settings: what it says takes the place of defaults, so that flags and variables come before it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::path::Path;

use anyhow::{Context as _, bail};
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command};
use tollgate_rules::{Diagnostic, Diagnostics, nearest, read_from, read_settings};

/// Options that make no sense in a file.
const NOT_IN_FILES: [&str; 4] = ["config", "print_config", "help", "color"];
const SECRETS: [&str; 2] = ["admin_token", "resp_password"];

/// Where a value comes from that is neither a flag, nor a variable of tollgate's own, nor a default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum From {
    File,
    /// A variable of the server whose place it takes.
    Compat,
    /// What that server does if nobody says.
    CompatDefault,
}

/// Values by the name of their option.
pub(super) type Given = BTreeMap<String, (Vec<String>, From)>;

/// Reads a file of settings for a command: all of it, or the part under `section`.
pub(super) fn read(
    path: &Path,
    command: &Command,
    name_of_command: &str,
    section: Option<&str>,
) -> anyhow::Result<Given> {
    let name = path.display().to_string();
    let file = File::open(path).with_context(|| format!("cannot read {name}"))?;
    let unread = |problem: Box<Diagnostic>| anyhow::Error::msg(format!("{name}: {}", problem.message));
    let source = read_from(&name, file).map_err(unread)?;
    let mut problems = Diagnostics::new(vec![source.clone()]);
    let settings = match read_settings(&source, section) {
        Ok(settings) => settings,
        Err(problems) => bail!("the settings cannot be used\n{}", located(&problems)),
    };
    let known: Vec<String> = options(command, name_of_command).map(|option| option.get_id().to_string()).collect();
    let mut read = Given::new();
    for setting in settings {
        let id = setting.name.replace('-', "_");
        if !known.contains(&id) {
            let problem =
                Diagnostic::error("unknown-setting", setting.span, format!("there is no setting `{}`", setting.name));
            let near = nearest(&id, known.iter().map(String::as_str));
            problems.push(match near {
                Some(near) => problem.help(format!("did you mean `{}`?", near.replace('_', "-"))),
                None => problem.help(format!("`tollgate {name_of_command} --help` lists them, without the dashes")),
            });
        }
        read.insert(id, (setting.values.iter().map(|value| value.to_string()).collect(), From::File));
    }
    if problems.has_errors() {
        bail!("the settings cannot be used\n{}", located(&problems));
    }
    Ok(read)
}

/// Problems without the lines that they are in: those may hold secrets.
fn located(problems: &Diagnostics) -> String {
    let mut told = String::new();
    for problem in problems.iter() {
        let (line, column) = problem.span.map_or((1, 1), |span| problems.position(span));
        let name = problems.sources().first().map_or("", |source| &*source.name);
        let help = problem.help.as_ref().map(|help| format!("; {help}")).unwrap_or_default();
        // Writing to a string cannot fail.
        let _ = writeln!(told, "  {name}:{line}:{column}: {}{help}", problem.message);
    }
    told.trim_end().to_owned()
}

/// Takes out what a flag or a variable says by another option.
pub(super) fn without_overruled(mut settings: Given, first: Option<&ArgMatches>) -> Given {
    let is_given = |id: &str| {
        // Not every command has every option.
        let source =
            first.filter(|first| first.ids().any(|known| known == id)).and_then(|first| first.value_source(id));
        matches!(source, Some(ValueSource::CommandLine | ValueSource::EnvVariable))
    };
    for secret in SECRETS {
        let file = format!("{secret}_file");
        if is_given(&file) {
            settings.remove(secret);
        }
        if is_given(secret) {
            settings.remove(&file);
        }
    }
    settings
}

/// The command with `settings` as the defaults of the command `name`.
pub(super) fn with_defaults(command: Command, name: &str, settings: &Given) -> Command {
    if settings.is_empty() {
        return command;
    }
    command.mut_subcommand(name, |serve| {
        serve.mut_args(|option| match settings.get(option.get_id().as_str()) {
            Some((values, _)) => option.default_values(values.clone()),
            None => option,
        })
    })
}

/// All options as a file of settings could say them, and where each comes from.
pub(super) fn show(command: &Command, name_of_command: &str, serve: &ArgMatches, settings: &Given) -> String {
    let mut shown = String::new();
    for option in options(command, name_of_command) {
        let id = option.get_id().as_str();
        let name = id.replace('_', "-");
        let values: Vec<String> = serve
            .get_raw(id)
            .map(|values| values.map(|value| value.to_string_lossy().into_owned()).collect())
            .unwrap_or_default();
        let source = match serve.value_source(id) {
            Some(ValueSource::CommandLine) => "flag",
            Some(ValueSource::EnvVariable) => "variable",
            Some(_) => match settings.get(id) {
                Some((_, From::File)) => "file",
                Some((_, From::Compat)) => "variable of the other server",
                Some((_, From::CompatDefault)) => "default of the other server",
                None => "default",
            },
            None => "default",
        };
        let value = match &*values {
            [] => {
                // Writing to a string cannot fail.
                let _ = writeln!(shown, "# {name}: not set");
                continue;
            }
            _ if SECRETS.contains(&id) => {
                let _ = writeln!(shown, "# {name}: set, not shown  # {source}");
                continue;
            }
            [one] if id == "store" && one.contains('@') => {
                let _ = writeln!(shown, "# {name}: set, with a login, not shown  # {source}");
                continue;
            }
            [one] => quoted(one),
            several => format!("[{}]", several.iter().map(|value| quoted(value)).collect::<Vec<_>>().join(", ")),
        };
        let _ = writeln!(shown, "{name}: {value}  # {source}");
    }
    shown
}

fn quoted(value: &str) -> String {
    let is_plain = !value.is_empty()
        && value.chars().all(|character| character.is_alphanumeric() || "-_./:".contains(character))
        && !value.starts_with([':', '-']);
    if is_plain { value.to_owned() } else { format!("'{}'", value.replace('\'', "''")) }
}

fn options<'c>(command: &'c Command, name: &str) -> impl Iterator<Item = &'c Arg> {
    let serve = command.find_subcommand(name);
    serve
        .into_iter()
        .flat_map(Command::get_arguments)
        .filter(|option| !NOT_IN_FILES.contains(&option.get_id().as_str()))
}
