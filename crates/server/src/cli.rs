//! The command line: which command, with which arguments, and how it ended.

use std::ffi::OsString;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, CommandFactory, FromArgMatches as _, Parser, Subcommand};

use crate::command::{attempt, check, completions, inspect, nftables, schema};
use crate::gateway::GatewayArgs;
use crate::serve::{self, ServeArgs};
use crate::{demo, gateway, terminal};

mod check_settings;
mod compat;
mod compat_redis;
mod config_file;

pub(crate) use self::check_settings::check_settings;

/// An exact rate limiter.
///
/// Without a command it serves an example, as `tollgate serve` does.
#[derive(Debug, Parser)]
#[command(name = "tollgate", version, about, long_about, max_term_width = 100, override_usage = "tollgate [COMMAND]")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Serve(Box<ServeArgs>),
    Gateway(Box<GatewayArgs>),
    Check(check::CheckArgs),
    Try(attempt::TryArgs),
    Inspect(inspect::InspectArgs),
    Nftables(nftables::NftablesArgs),
    /// Show how limits decide, drawn on the terminal
    Demo(DemoArgs),
    Schema(schema::SchemaArgs),
    Completions(completions::CompletionsArgs),
}

#[derive(Debug, Default, Args)]
struct DemoArgs {
    /// Show this figure only, such as 4-9 or pacing
    #[arg(value_parser = demo::find, conflicts_with = "list")]
    figure: Option<&'static demo::Entry>,

    /// List the figures
    #[arg(long)]
    list: bool,

    #[command(flatten)]
    color: terminal::ColorArg,

    /// Draw with ASCII characters only
    #[arg(long)]
    ascii: bool,
}

/// Does what the arguments of the process say.
pub fn main() -> ExitCode {
    let Parsed { cli, shown } = match parse(std::env::args_os().collect()) {
        Ok(parsed) => parsed,
        Err(error) => {
            let _ = writeln!(io::stderr(), "error: {error:#}");
            return ExitCode::FAILURE;
        }
    };
    let mut out = BufWriter::new(io::stdout().lock());
    let done = match cli.command {
        Command::Serve(args) if args.common.print_config => {
            args.settings().and_then(|_| Ok(out.write_all(shown.as_bytes())?)).map(|()| ExitCode::SUCCESS)
        }
        Command::Serve(args) => serve::run(&args, &mut out),
        Command::Gateway(args) if args.common.print_config => {
            args.settings().and_then(|_| Ok(out.write_all(shown.as_bytes())?)).map(|()| ExitCode::SUCCESS)
        }
        Command::Gateway(args) => gateway::run(&args, &mut out),
        Command::Demo(args) => run_demo(&args, &mut out).map(|()| ExitCode::SUCCESS),
        Command::Check(args) => check::run(&args, &mut out, &mut io::stderr()),
        Command::Try(args) => attempt::run(&args, &mut out, &mut io::stderr()),
        Command::Inspect(args) => inspect::run(&args, &mut out, &mut io::stderr()),
        Command::Nftables(args) => nftables::run(&args, &mut out, &mut io::stderr()),
        Command::Schema(args) => schema::run(&args, &mut out).map(|()| ExitCode::SUCCESS),
        Command::Completions(args) => completions::run(&args, Cli::command(), &mut out).map(|()| ExitCode::SUCCESS),
    };
    let (code, written) = match done {
        Ok(code) => (code, out.flush().map_err(anyhow::Error::from)),
        Err(error) => (ExitCode::SUCCESS, Err(error)),
    };
    match written {
        // Whoever closed the pipe has seen enough.
        Err(error) if !is_broken_pipe(&error) => {
            // Nothing is left to report to when standard error is closed as well.
            let _ = writeln!(io::stderr(), "error: {error:#}");
            ExitCode::FAILURE
        }
        _ => code,
    }
}

/// The arguments, and what `--print-config` shows of them.
struct Parsed {
    cli: Cli,
    shown: String,
}

/// Reads the arguments of the process, with what the file of settings says in place of defaults.
fn parse(mut args: Vec<OsString>) -> anyhow::Result<Parsed> {
    let is_link = args.first().is_some_and(|name| Path::new(name).file_name() == Some("ratelimit".as_ref()));
    if args.len() < 2 || is_link {
        args.splice(..1, ["tollgate".into(), "serve".into()]);
    }
    if is_link {
        // The name that images of envoyproxy/ratelimit start; it takes no commands there.
        args.extend(["--compat".into(), "envoy-ratelimit".into()]);
    }
    let command = Cli::command();
    // Only to find the file: what is wrong with the arguments is said later.
    let first = command.clone().ignore_errors(true).try_get_matches_from(&args).ok();
    let name = first.as_ref().and_then(|matches| matches.subcommand_name()).unwrap_or_default();
    let is_gateway = name == "gateway";
    let name = if is_gateway { "gateway" } else { "serve" };
    let first = first.as_ref().and_then(|matches| matches.subcommand_matches(name));
    let files = first.and_then(|first| first.get_many::<PathBuf>("config")).into_iter().flatten();
    let mut settings = config_file::Given::new();
    // The file of a gateway has its settings in a part of it, and may be a directory, which has none.
    let section = is_gateway.then_some("settings");
    for file in files.filter(|file| !is_gateway || file.is_file()) {
        settings.extend(config_file::read(file, &command, name, section)?);
    }
    let is_compat = !is_gateway
        && (settings.contains_key("compat")
            || first.is_some_and(|serve| serve.get_one::<serve::Compat>("compat").is_some()));
    if is_compat {
        let variables = std::env::vars_os();
        let variables =
            variables.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        let translated = compat::translate(variables)?;
        for (option, given) in translated.defaults {
            settings.entry(option).or_insert(given);
        }
        settings.extend(translated.options);
        for warning in translated.warnings {
            writeln!(io::stderr(), "warning: {warning}")?;
        }
    }
    let settings = config_file::without_overruled(settings, first);
    let command = config_file::with_defaults(command, name, &settings);
    let matches = command.clone().get_matches_from(args);
    let shown = matches.subcommand_matches(name).map(|given| config_file::show(&command, name, given, &settings));
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    Ok(Parsed { cli, shown: shown.unwrap_or_default() })
}

fn run_demo(args: &DemoArgs, out: &mut impl Write) -> anyhow::Result<()> {
    let style = terminal::style_of_stdout(args.color.color, args.ascii);
    match args.figure {
        _ if args.list => demo::list(style, out),
        Some(figure) => demo::show(figure, style, out),
        None => demo::show_all(style, out),
    }
}

pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
