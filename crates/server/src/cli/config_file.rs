//! The file of settings: what it says takes the place of defaults, so that flags and variables come before it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use clap::builder::Resettable;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};
use tollgate_rules::{Diagnostic, Diagnostics, Setting, Source, nearest, read_from, read_settings};

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
    match settings_in(&source, command, name_of_command, section) {
        Ok(settings) => Ok(given(settings)),
        Err(problems) => bail!("the settings cannot be used\n{}", located(&problems)),
    }
}

/// The settings in a text, if each of them is one and can be what it says.
pub(super) fn settings_in(
    source: &Source,
    command: &Command,
    name_of_command: &str,
    section: Option<&str>,
) -> Result<Vec<Setting>, Diagnostics> {
    let settings = read_settings(source, section)?;
    let mut problems = Diagnostics::new(vec![source.clone()]);
    for setting in &settings {
        if let Some(problem) = problem_with(setting, command, name_of_command) {
            problems.push(problem);
        }
    }
    if problems.has_errors() { Err(problems) } else { Ok(settings) }
}

/// Settings as values by the names of their options.
pub(super) fn given(settings: Vec<Setting>) -> Given {
    let values = |setting: &Setting| setting.values.iter().map(|value| value.to_string()).collect();
    settings.into_iter().map(|setting| (id_of(&setting), (values(&setting), From::File))).collect()
}

fn id_of(setting: &Setting) -> String {
    setting.name.replace('-', "_")
}

fn problem_with(setting: &Setting, command: &Command, name_of_command: &str) -> Option<Diagnostic> {
    let id = id_of(setting);
    let Some(option) = options(command, name_of_command).find(|option| *option.get_id() == *id) else {
        let problem =
            Diagnostic::error("unknown-setting", setting.span, format!("there is no setting `{}`", setting.name));
        let known = options(command, name_of_command).map(|option| option.get_id().as_str());
        return Some(match nearest(&id, known) {
            Some(near) => problem.help(format!("did you mean `{}`?", near.replace('_', "-"))),
            None => problem.help(format!("`tollgate {name_of_command} --help` lists them, without the dashes")),
        });
    };
    let why = mistake(option, &setting.values, command, name_of_command)?;
    Some(Diagnostic::error("setting", setting.span, format!("`{}`: {why}", setting.name)))
}

/// What is wrong with the values of an option, by what it takes on the command line. Variables have no say.
fn mistake(option: &Arg, values: &[Arc<str>], command: &Command, name_of_command: &str) -> Option<String> {
    if !option.get_action().takes_values() {
        let is_flag = matches!(values, [one] if matches!(&**one, "true" | "false"));
        return (!is_flag).then(|| "write true or false".to_owned());
    }
    if values.len() != 1 && !matches!(option.get_action(), ArgAction::Append) {
        return Some("this takes one value, and no list".to_owned());
    }
    let flag = option.get_long()?;
    let args = ["tollgate".to_owned(), name_of_command.to_owned()];
    let args = args.into_iter().chain(values.iter().map(|value| format!("--{flag}={value}")));
    let error = without_variables(command.clone(), name_of_command).try_get_matches_from(args).err()?;
    // What it needs beside it may be a flag, or a variable.
    if !matches!(error.kind(), ErrorKind::InvalidValue | ErrorKind::ValueValidation) {
        return None;
    }
    let value = match error.get(ContextKind::InvalidValue) {
        Some(ContextValue::String(value)) if !SECRETS.contains(&option.get_id().as_str()) => format!("`{value}`: "),
        _ => String::new(),
    };
    let why = match (std::error::Error::source(&error), error.get(ContextKind::ValidValue)) {
        (Some(why), _) => why.to_string(),
        (None, Some(ContextValue::Strings(words))) => format!("write one of {}", words.join(", ")),
        _ => "this is not understood".to_owned(),
    };
    Some(format!("{value}{why}"))
}

/// The command for which variables of this process mean nothing.
pub(super) fn without_variables(command: Command, name_of_command: &str) -> Command {
    command.mut_subcommand(name_of_command, |command| command.mut_args(|option| option.env(Resettable::Reset)))
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
