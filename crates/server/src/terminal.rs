//! What the terminal can show: its width, colours, and characters beyond ASCII.

use std::io::IsTerminal;

use clap::{Args, ValueEnum};

use crate::demo::Style;

/// When to use colours. `Auto` is on a terminal, unless `NO_COLOR` is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    #[default]
    Auto,
    Always,
    Never,
}

/// The argument of every command that can use colours.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct ColorArg {
    /// When to use colours: auto is on a terminal, unless NO_COLOR is set
    #[arg(long, value_enum, default_value_t, value_name = "WHEN")]
    pub(crate) color: Color,
}

const USUAL_WIDTH: usize = 80;
const WIDTHS: std::ops::RangeInclusive<usize> = 48..=160;

/// The style for the standard output of this process.
pub(crate) fn style_of_stdout(color: Color, ascii: bool) -> Style {
    let stdout = std::io::stdout();
    let measured = terminal_size::terminal_size_of(&stdout).map(|(width, _)| usize::from(width.0));
    style(color, ascii, stdout.is_terminal(), measured, |name| std::env::var(name).ok())
}

/// Whether what goes to standard error is coloured.
pub(crate) fn color_on_stderr(color: Color) -> bool {
    wants_color(color, std::io::stderr().is_terminal(), |name| std::env::var(name).ok())
}

/// Whether what goes to standard output is coloured.
pub(crate) fn color_on_stdout(color: Color) -> bool {
    wants_color(color, std::io::stdout().is_terminal(), |name| std::env::var(name).ok())
}

fn wants_color(color: Color, is_terminal: bool, variable: impl Fn(&str) -> Option<String>) -> bool {
    let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
    match color {
        Color::Auto => {
            let dumb = variable("TERM").is_some_and(|terminal| terminal == "dumb");
            is_terminal && !dumb && variable("NO_COLOR").is_none()
        }
        Color::Always => true,
        Color::Never => false,
    }
}

fn style(
    color: Color,
    ascii: bool,
    is_terminal: bool,
    measured_width: Option<usize>,
    variable: impl Fn(&str) -> Option<String>,
) -> Style {
    let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
    let dumb = variable("TERM").is_some_and(|terminal| terminal == "dumb");
    let width = variable("COLUMNS").and_then(|columns| columns.parse().ok()).or(measured_width).unwrap_or(USUAL_WIDTH);
    // Where no locale is set at all, as in most containers, the terminal outside is nearly always able.
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(variable);
    let able = locale.is_none_or(|locale| {
        let locale = locale.to_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    });
    Style {
        width: width.clamp(*WIDTHS.start(), *WIDTHS.end()),
        unicode: able && !ascii && !(dumb && is_terminal),
        color: wants_color(color, is_terminal, variable),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn styled(is_terminal: bool, measured: Option<usize>, variables: &[(&str, &str)]) -> Style {
        let variable =
            |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        style(Color::Auto, false, is_terminal, measured, variable)
    }

    #[test]
    fn colours_are_for_terminals_that_want_them() {
        assert!(styled(true, None, &[]).color);
        assert!(!styled(false, None, &[]).color);
        assert!(!styled(true, None, &[("NO_COLOR", "1")]).color);
        assert!(styled(true, None, &[("NO_COLOR", "")]).color);
        assert!(!styled(true, None, &[("TERM", "dumb")]).color);
    }

    #[test]
    fn columns_come_before_the_measured_width() {
        assert_eq!(styled(true, Some(120), &[("COLUMNS", "100")]).width, 100);
        assert_eq!(styled(true, Some(120), &[("COLUMNS", "wide")]).width, 120);
        assert_eq!(styled(false, None, &[]).width, 80);
        assert_eq!(styled(true, Some(5), &[]).width, 48);
        assert_eq!(styled(true, Some(1_000), &[]).width, 160);
    }

    #[test]
    fn a_locale_that_is_not_utf_8_gets_ascii() {
        assert!(styled(true, None, &[]).unicode);
        assert!(styled(true, None, &[("LANG", "de_DE.UTF-8")]).unicode);
        assert!(styled(true, None, &[("LANG", "C"), ("LC_ALL", "C.utf8")]).unicode);
        assert!(!styled(true, None, &[("LANG", "C.UTF-8"), ("LC_ALL", "C")]).unicode);
        assert!(!styled(true, None, &[("TERM", "dumb")]).unicode);
    }
}
