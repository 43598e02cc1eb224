//! The command line of tollgate: arguments in, exit codes out.
//!
//! Exit codes: 0 done, 1 something failed or is wrong, 2 the arguments make no sense.

mod command;
mod demo;
mod terminal;

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use clap::{Args, CommandFactory, Parser, Subcommand};

use command::{attempt, check, completions, schema};

/// An exact rate limiter.
///
/// Without a command it shows how limits decide, as `tollgate demo` does.
#[derive(Debug, Parser)]
#[command(name = "tollgate", version, about, long_about, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show how limits decide, drawn on the terminal
    Demo(DemoArgs),
    Check(check::CheckArgs),
    Try(attempt::TryArgs),
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

fn main() -> ExitCode {
    let cli = Cli::parse();
    let mut out = BufWriter::new(io::stdout().lock());
    let done = match cli.command.unwrap_or_else(|| Command::Demo(DemoArgs::default())) {
        Command::Demo(args) => run_demo(&args, &mut out).map(|()| ExitCode::SUCCESS),
        Command::Check(args) => check::run(&args, &mut out, &mut io::stderr()),
        Command::Try(args) => attempt::run(&args, &mut out, &mut io::stderr()),
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

fn run_demo(args: &DemoArgs, out: &mut impl Write) -> anyhow::Result<()> {
    let style = terminal::style_of_stdout(args.color.color, args.ascii);
    match args.figure {
        _ if args.list => demo::list(style, out),
        Some(figure) => demo::show(figure, style, out),
        None => demo::show_all(style, out),
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
