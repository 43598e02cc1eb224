//! `tollgate check`: everything that is wrong with some rule files, at once.
//!
//! For people, problems go to standard error and the summary to standard output; for machines, everything goes to
//! standard output in one piece.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use tollgate_rules::{Diagnostic, Severity};

use super::load::{Loaded, load};
use super::summary::count;
use crate::cli::check_settings;
use crate::terminal::{self, Color, ColorArg};

/// Check rule files, and say everything that is wrong with them
///
/// Rules, and all that a file of `tollgate gateway` has beside them. A directory stands for its files that end in
/// .yaml, .yml or .json, and those of its subdirectories. All files together have to make sense, as they would when
/// they are served together.
///
/// Problems go to standard error, a summary of what was loaded to standard output. Exits with 0 if the rules can be
/// used, with 1 if not.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tollgate check rules.yaml              One file
  tollgate check rules/ extra.yaml       A directory and a file, together
  generate-rules | tollgate check -      Standard input
  tollgate check --deny-warnings rules/  Fail on warnings too, in a build
  tollgate check --format json rules/    For other programs")]
pub(crate) struct CheckArgs {
    /// Files, directories of files, or - for standard input
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,

    /// How to tell what was found
    #[arg(long, value_enum, default_value_t)]
    format: Format,

    /// Exit with 1 on warnings too
    #[arg(long)]
    deny_warnings: bool,

    #[command(flatten)]
    color: ColorArg,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Format {
    /// With the line and the spot, for people
    #[default]
    Human,
    /// One object, for programs
    Json,
    /// As annotations of a GitHub workflow
    Github,
}

pub(crate) fn run(args: &CheckArgs, out: &mut impl Write, err: &mut impl Write) -> anyhow::Result<ExitCode> {
    let mut loaded = load(&args.paths);
    for source in loaded.diagnostics.sources().to_vec() {
        for problem in check_settings(&source) {
            // What cannot be read at all is told already.
            let is_told = |told: &Diagnostic| (told.code, &told.message) == (problem.code, &problem.message);
            if !loaded.diagnostics.iter().any(is_told) {
                loaded.diagnostics.push(problem);
            }
        }
    }
    let (errors, warnings) = counts(&loaded);
    let is_good = errors == 0 && (warnings == 0 || !args.deny_warnings);
    let code = if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    let told = match args.format {
        Format::Human => human(&loaded, is_good, args.color.color, out, err),
        Format::Json => json(&loaded, is_good, out),
        Format::Github => github(&loaded, out),
    };
    match told {
        // Whoever closed the pipe still gets the answer.
        Err(error) if crate::cli::is_broken_pipe(&error) => Ok(code),
        told => told.map(|()| code),
    }
}

fn counts(loaded: &Loaded) -> (usize, usize) {
    (loaded.diagnostics.count(Severity::Error), loaded.diagnostics.count(Severity::Warning))
}

fn human(
    loaded: &Loaded,
    is_good: bool,
    color: Color,
    out: &mut impl Write,
    err: &mut impl Write,
) -> anyhow::Result<()> {
    let (errors, warnings) = counts(loaded);
    let told = match (errors, warnings) {
        (0, 0) => String::new(),
        (_, 0) => count(errors, "error"),
        (0, _) => count(warnings, "warning"),
        _ => format!("{} and {}", count(errors, "error"), count(warnings, "warning")),
    };
    if !loaded.diagnostics.is_empty() {
        writeln!(err, "{}\n", loaded.diagnostics.render(terminal::color_on_stderr(color)))?;
    }
    if !is_good {
        let verdict = if errors > 0 { "the rules cannot be used" } else { "warnings are denied" };
        let (red, plain) = if terminal::color_on_stderr(color) { ("\x1b[1;31m", "\x1b[0m") } else { ("", "") };
        writeln!(err, "{red}{told}{plain}: {verdict}")?;
        return Ok(());
    }
    let (green, plain) = if terminal::color_on_stdout(color) { ("\x1b[1;32m", "\x1b[0m") } else { ("", "") };
    let told = if told.is_empty() { told } else { format!(", {told}") };
    writeln!(out, "{green}ok{plain}: {}{told}", loaded.summary.sentence())?;
    loaded.summary.print(out)?;
    Ok(())
}

fn json(loaded: &Loaded, is_good: bool, out: &mut impl Write) -> anyhow::Result<()> {
    let (errors, warnings) = counts(loaded);
    let whole = json!({
        "ok": is_good,
        "errors": errors,
        "warnings": warnings,
        "left_out": loaded.diagnostics.left_out(),
        "diagnostics": loaded.diagnostics.to_json(),
        "summary": loaded.summary.to_json(),
    });
    serde_json::to_writer_pretty(&mut *out, &whole).map_err(std::io::Error::from)?;
    writeln!(out)?;
    Ok(())
}

/// One workflow command per problem, which GitHub shows at the line that it concerns.
fn github(loaded: &Loaded, out: &mut impl Write) -> anyhow::Result<()> {
    let list = loaded.diagnostics.to_json();
    for one in list.as_array().into_iter().flatten() {
        let text = |name: &str| one[name].as_str().unwrap_or_default();
        let fields = [("file", "file"), ("line", "line"), ("col", "column"), ("endLine", "end_line")];
        let mut properties = vec![format!("title={}", escape_property(text("code")))];
        for (property, name) in fields {
            match &one[name] {
                Value::Null => {}
                Value::String(file) => properties.push(format!("{property}={}", escape_property(file))),
                number => properties.push(format!("{property}={number}")),
            }
        }
        let help = one["help"].as_str().map(|help| format!(" ({help})")).unwrap_or_default();
        let message = escape(&format!("{}{help}", text("message")));
        writeln!(out, "::{} {}::{message}", text("severity"), properties.join(","))?;
    }
    Ok(())
}

/// What would end a workflow command, as GitHub wants it written.
fn escape(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

fn escape_property(text: &str) -> String {
    escape(text).replace(':', "%3A").replace(',', "%2C")
}
